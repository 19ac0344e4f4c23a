// SPDX-License-Identifier: GPL-2.0

//! Records of destroyed queues and detached processes that the hardware is done with, until they are freed
//! without the state lock.

use kernel::{
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::Arc, //
};

use super::{
    process::ProcRec,
    queue::{
        KeepRoom,
        QueueRec, //
    }, //
};
use crate::sched::{
    mqd::MqdMem,
    params::KeepAlive, //
};

/// Records that are not needed any more; dropping it frees them.
///
/// Must be dropped without locks: keep-alives run foreign code.
#[derive(Default)]
pub(in crate::sched) struct Garbage {
    queues: RBTree<u64, QueueRec>,
    procs: RBTree<u64, ProcRec>,
    keeps: RBTree<u64, Arc<dyn KeepAlive>>,
    mqds: RBTree<u64, MqdMem>,
}

impl Garbage {
    fn is_empty(&self) -> bool {
        self.queues.is_empty()
            && self.procs.is_empty()
            && self.keeps.is_empty()
            && self.mqds.is_empty()
    }
}

/// Records that the hardware is done with.
pub(super) struct Retired {
    /// Records that their destroyers will collect.
    awaited_queues: RBTree<u64, QueueRec>,
    awaited_procs: RBTree<u64, ProcRec>,
    /// Records that no caller will collect.
    garbage: Garbage,
    next_keep: u64,
    /// Descriptors of queues that are gone, which the active list names: the firmware may read the list, and
    /// them, again, and what it reads there it obeys.
    listed_mqds: RBTree<u64, MqdMem>,
}

impl Retired {
    /// Nothing was destroyed.
    pub(super) fn new() -> Self {
        Self {
            awaited_queues: RBTree::new(),
            awaited_procs: RBTree::new(),
            garbage: Garbage::default(),
            next_keep: 0,
            listed_mqds: RBTree::new(),
        }
    }

    /// Moves destroyed records that the hardware is done with out of `procs`.
    pub(super) fn take_from(&mut self, procs: &mut RBTree<u64, ProcRec>) {
        for proc in procs.values_mut() {
            if proc.destroyed {
                // Goes as a whole, below.
                continue;
            }
            while let Some((id, queue)) = proc
                .queues
                .iter_mut()
                .find(|(_, queue)| queue.destroyed && !queue.phase.on_hardware())
            {
                let (id, orphan) = (*id, queue.orphan);
                if queue.listed {
                    if let Some(room) = queue.mqd_room.take() {
                        self.listed_mqds
                            .insert(room.into_node(id, queue.mqd.clone()));
                    }
                }
                let Some(node) = proc.queues.remove_node(&id) else {
                    break;
                };
                match orphan {
                    true => self.garbage.queues.insert(node),
                    false => self.awaited_queues.insert(node),
                };
            }
        }
        while let Some((id, orphan)) = procs
            .iter()
            .find(|(_, proc)| proc.destroyed && !proc.listed && !proc.on_hardware())
            .map(|(id, proc)| (*id, proc.orphan))
        {
            let Some(node) = procs.remove_node(&id) else {
                break;
            };
            match orphan {
                true => self.garbage.procs.insert(node),
                false => self.awaited_procs.insert(node),
            };
        }
    }

    /// Notes that the list is over that named queues which are gone.
    pub(super) fn list_ended(&mut self) {
        loop {
            let first = self.listed_mqds.keys().next().copied();
            let Some(node) = first.and_then(|id| self.listed_mqds.remove_node(&id)) else {
                return;
            };
            self.garbage.mqds.insert(node);
        }
    }

    /// Takes a keep-alive that another one replaced.
    pub(super) fn add_keep(&mut self, room: KeepRoom, keep: Arc<dyn KeepAlive>) {
        self.next_keep += 1;
        self.garbage
            .keeps
            .insert(room.into_node(self.next_keep, keep));
    }

    /// Takes out the record of a destroyed queue.
    pub(super) fn collect_queue(&mut self, queue: u64) -> Option<RBTreeNode<u64, QueueRec>> {
        self.awaited_queues.remove_node(&queue)
    }

    /// Takes out the record of a detached process.
    pub(super) fn collect_proc(&mut self, proc: u64) -> Option<RBTreeNode<u64, ProcRec>> {
        self.awaited_procs.remove_node(&proc)
    }

    /// Notes that no caller will collect a queue. Returns whether its record is here.
    pub(super) fn disown_queue(&mut self, queue: u64) -> bool {
        let node = self.awaited_queues.remove_node(&queue);
        node.map(|node| self.garbage.queues.insert(node)).is_some()
    }

    /// Notes that no caller will collect a process. Returns whether its record is here.
    pub(super) fn disown_proc(&mut self, proc: u64) -> bool {
        let node = self.awaited_procs.remove_node(&proc);
        node.map(|node| self.garbage.procs.insert(node)).is_some()
    }

    /// Whether there is anything that no caller will collect.
    pub(super) fn has_garbage(&self) -> bool {
        !self.garbage.is_empty()
    }

    /// Takes what no caller will collect.
    pub(super) fn take_garbage(&mut self) -> Garbage {
        core::mem::take(&mut self.garbage)
    }
}
