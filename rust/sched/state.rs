// SPDX-License-Identifier: GPL-2.0

//! The desired state, and the decision what to do next to reach it.
//!
//! Everything here is bookkeeping under one mutex: nothing allocates (callers bring tree nodes, see
//! [`RBTreeNode`]) and nothing waits for the device, so that page reclaim and exiting tasks can
//! always get through.
//!
//! *Changes* are numbered. A change is *applied* when the hardware no longer uses anything that the
//! change takes away. A caller that must not return earlier waits for its number.

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::Arc,
};

use super::{
    params::{
        Config,
        KeepAlive, //
    },
    record::{
        Hang,
        Phase,
        ProcRec,
        QueueRec, //
    },
    runlist::ListBuffer, //
};
use crate::kapi::workqueue::OwnedQueue;

/// Doorbells that one UNMAP_QUEUES can name.
pub(super) const UNMAP_DOORBELLS: usize = 4;
/// Compute HQDs that the firmware may use: queues 2 to 7 of each pipe of MEC1, one byte per pipe.
pub(super) const QUEUE_MASK: u64 = 0xfcfc_fcfc;
/// Number of [`QUEUE_MASK`]'s slots.
pub(super) const COMPUTE_SLOTS: usize = 24;

const _: () = assert!(QUEUE_MASK.count_ones() == 24 && COMPUTE_SLOTS == 24);

/// The runlist that the hardware works on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ActiveList {
    /// The firmware takes turns: it walks the IB again and again.
    pub(super) chained: bool,
    /// Dwords of the IB.
    pub(super) dwords: u32,
    /// Processes in it.
    pub(super) processes: usize,
    /// Queues in it.
    pub(super) queues: usize,
    /// Dwords of the IB that the list before it did not have.
    pub(super) written: u32,
    /// It has static queues.
    pub(super) fixed: bool,
}

/// What UNMAP_QUEUES names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The whole runlist; ends it.
    Dynamic,
    /// The same with static queues.
    All,
    /// All queues of one process.
    Pasid(u16),
    /// Up to four compute queues; unused places are 0.
    Doorbells([u32; UNMAP_DOORBELLS], usize),
}

impl Scope {
    /// What takes `list` off the hardware.
    pub(super) fn whole(list: &ActiveList) -> Self {
        match list.fixed {
            true => Self::All,
            false => Self::Dynamic,
        }
    }

    /// Whether nothing of the list is left.
    pub(super) fn ends_list(&self) -> bool {
        matches!(self, Self::Dynamic | Self::All)
    }

    fn covers(&self, pasid: u16, queue: &QueueRec) -> bool {
        match self {
            Self::Dynamic | Self::All => true,
            Self::Pasid(scope) => *scope == pasid,
            Self::Doorbells(list, count) => list
                .iter()
                .take(*count)
                .any(|doorbell| *doorbell == queue.spec.doorbell.dword()),
        }
    }
}

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Hardware and desired state agree.
    Idle,
    /// Work was added; wait a moment for more before running work is preempted for it.
    Gather,
    /// Take queues off the hardware.
    Preempt(Scope),
    /// Submit a runlist; none is active.
    Map,
}

/// Figures of the desired state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Processes attached.
    pub(crate) processes: usize,
    /// Processes with a queue that should run.
    pub(crate) active_processes: usize,
    /// Queues that exist.
    pub(crate) queues: usize,
    /// Compute queues that should run.
    pub(crate) active_compute: usize,
    /// SDMA queues that should run.
    pub(crate) active_sdma: usize,
    /// Queues on the hardware.
    pub(crate) on_hardware: usize,
}

/// Records that nobody needs any more; dropping it frees them.
///
/// Must be dropped without locks: keep-alives run foreign code.
#[derive(Default)]
pub(super) struct Garbage {
    queues: RBTree<u64, QueueRec>,
    procs: RBTree<u64, ProcRec>,
    keeps: RBTree<u64, Arc<dyn KeepAlive>>,
}

impl Garbage {
    /// Whether there is nothing to free.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.procs.is_empty() && self.keeps.is_empty()
    }
}

/// Everything that the scheduler's inner mutex guards.
pub(super) struct State {
    pub(super) procs: RBTree<u64, ProcRec>,
    /// Records that their destroyers will collect.
    awaited_queues: RBTree<u64, QueueRec>,
    awaited_procs: RBTree<u64, ProcRec>,
    /// Records that nobody will collect.
    garbage: Garbage,
    /// Newest change.
    change: u64,
    next_keep: u64,
    /// The list that the hardware works on.
    pub(super) active: Option<ActiveList>,
    /// The buffer of `active` and of the list that replaces it.
    pub(super) ib: Option<ListBuffer>,
    /// A larger buffer that replaces `ib` when no list is active.
    pub(super) next_ib: Option<ListBuffer>,
    /// A buffer that was replaced; freed by the next caller that brings one.
    pub(super) old_ib: Option<ListBuffer>,
    /// Runs the worker; taken at shutdown.
    pub(super) queue: Option<OwnedQueue>,
    /// Set once at shutdown: the worker does nothing more.
    pub(super) stopping: bool,
}

impl State {
    /// Nothing attached.
    pub(super) fn new(queue: Option<OwnedQueue>) -> Self {
        Self {
            procs: RBTree::new(),
            awaited_queues: RBTree::new(),
            awaited_procs: RBTree::new(),
            garbage: Garbage::default(),
            change: 0,
            next_keep: 0,
            active: None,
            ib: None,
            next_ib: None,
            old_ib: None,
            queue,
            stopping: false,
        }
    }

    /// Numbers a change.
    pub(super) fn next_change(&mut self) -> u64 {
        // OVERFLOW: 2^64 changes do not happen.
        self.change += 1;
        self.change
    }

    /// The newest change.
    pub(super) fn newest_change(&self) -> u64 {
        self.change
    }

    /// Figures of the desired state.
    pub(super) fn load(&self) -> Load {
        let mut load = Load::default();
        for proc in self.procs.values() {
            load.processes += 1;
            let mut active = false;
            for queue in proc.queues.values() {
                load.queues += 1;
                load.on_hardware += usize::from(queue.phase.on_hardware());
                if proc.wants(queue) {
                    active = true;
                    match queue.spec.kind.is_compute() {
                        true => load.active_compute += 1,
                        false => load.active_sdma += 1,
                    }
                }
            }
            load.active_processes += usize::from(active);
        }
        load
    }

    /// Whether a PASID is attached.
    pub(super) fn has_pasid(&self, pasid: u16) -> bool {
        self.procs.values().any(|proc| proc.params.pasid == pasid)
    }

    /// A process that was not detached.
    ///
    /// # Errors
    ///
    /// `ESRCH`.
    pub(super) fn proc_mut(&mut self, proc: u64) -> Result<&mut ProcRec> {
        self.procs
            .get_mut(&proc)
            .filter(|proc| !proc.doomed)
            .ok_or(ESRCH)
    }

    /// A queue that was not destroyed.
    ///
    /// # Errors
    ///
    /// `ENOENT`.
    pub(super) fn queue_mut(&mut self, proc: u64, queue: u64) -> Result<&mut QueueRec> {
        self.procs
            .get_mut(&proc)
            .filter(|proc| !proc.doomed)
            .and_then(|proc| proc.queues.get_mut(&queue))
            .filter(|queue| !queue.doomed)
            .ok_or(ENOENT)
    }

    /// Decides what to do next. `gathered`: the time for further additions is over.
    pub(super) fn plan(&self, config: &Config, gathered: bool) -> Step {
        let mut add = false;
        let mut remove = false;
        // Something of the list is left to be gentle with.
        let mut running = false;
        // Removal that a narrow UNMAP_QUEUES can do: nothing else has to change.
        let mut narrow = config.targeted && config.coalesce;
        let mut doorbells = [0; UNMAP_DOORBELLS];
        let mut named = 0;
        let mut pasid = None;
        for proc in self.procs.values() {
            let mut leaving = 0;
            let mut staying = 0;
            let mut sdma = false;
            for queue in proc.queues.values() {
                let wanted = proc.wants(queue);
                if !queue.phase.on_hardware() {
                    add |= wanted;
                    continue;
                }
                if wanted && queue.need.is_none() {
                    staying += 1;
                    running = true;
                    continue;
                }
                remove = true;
                leaving += 1;
                sdma |= !queue.spec.kind.is_compute();
                // It comes back with other values, which takes a new runlist.
                narrow &= !wanted;
                if let Some(place) = doorbells.get_mut(named) {
                    *place = queue.spec.doorbell.dword();
                }
                named += 1;
            }
            if leaving == 0 {
                continue;
            }
            // UNMAP_QUEUES with engine 0 and a narrow selection names compute queues.
            narrow &= !sdma;
            // One PASID and nothing else of it stays.
            pasid = match (pasid, named == leaving && staying == 0) {
                (None, true) => Some(proc.params.pasid),
                _ => Some(0),
            };
        }
        match self.active {
            None if add => Step::Map,
            None => Step::Idle,
            Some(_) if !add && !remove => Step::Idle,
            Some(_) if running && add && !remove && !gathered && config.coalesce => Step::Gather,
            Some(list) if remove && !add && narrow && !list.chained && !list.fixed => match pasid {
                Some(pasid) if pasid != 0 => Step::Preempt(Scope::Pasid(pasid)),
                _ if named <= UNMAP_DOORBELLS => Step::Preempt(Scope::Doorbells(doorbells, named)),
                _ => Step::Preempt(Scope::whole(&list)),
            },
            Some(list) => Step::Preempt(Scope::whole(&list)),
        }
    }

    /// Notes that the preemption of `scope` is being requested. Returns how many queues it takes.
    pub(super) fn begin_preempt(&mut self, scope: &Scope) -> usize {
        let mut count = 0;
        for proc in self.procs.values_mut() {
            let pasid = proc.params.pasid;
            for queue in proc.queues.values_mut() {
                if queue.phase == Phase::Mapped && scope.covers(pasid, queue) {
                    queue.phase = queue.phase.preempting();
                    count += 1;
                }
            }
        }
        count
    }

    /// Notes that the preemption was confirmed.
    pub(super) fn end_preempt(&mut self, scope: &Scope) {
        self.each_queue(|queue| queue.phase = queue.phase.preempted());
        if scope.ends_list() {
            self.active = None;
        }
    }

    /// Marks the queue on the hardware with doorbell `doorbell` as hung, so that it is not mapped
    /// again. Returns whether there is one.
    pub(super) fn condemn(&mut self, doorbell: u32) -> bool {
        self.condemn_if(doorbell, |_| true)
    }

    /// The same for a compute queue only: others cannot be reset alone.
    pub(super) fn condemn_compute(&mut self, doorbell: u32) -> bool {
        self.condemn_if(doorbell, |queue| queue.spec.kind.is_compute())
    }

    fn condemn_if(&mut self, doorbell: u32, may: impl Fn(&QueueRec) -> bool) -> bool {
        let mut found = false;
        self.each_queue(|queue| {
            let named = queue.spec.doorbell.dword() == doorbell;
            if named && queue.phase.on_hardware() && may(queue) {
                // Its owner is told once, however many resets it takes.
                if queue.hang == Hang::Sound {
                    queue.hang = Hang::Untold;
                }
                found = true;
            }
        });
        found
    }

    /// Notes that a condemned queue was reset and is off the hardware.
    pub(super) fn queue_was_reset(&mut self, doorbell: u32) {
        self.each_queue(|queue| {
            if queue.hang != Hang::Sound && queue.spec.doorbell.dword() == doorbell {
                queue.phase = queue.phase.stopped();
            }
        });
    }

    /// Whether there is a hung queue that nobody was told of.
    pub(super) fn has_untold(&self) -> bool {
        let mut procs = self.procs.values();
        procs.any(|proc| {
            let mut queues = proc.queues.values();
            queues.any(|queue| queue.hang == Hang::Untold)
        })
    }

    /// Takes the next hung queue that nobody was told of: PASID and doorbell.
    pub(super) fn next_hang(&mut self) -> Option<(u16, u32)> {
        for proc in self.procs.values_mut() {
            let pasid = proc.params.pasid;
            for queue in proc.queues.values_mut() {
                if queue.hang == Hang::Untold {
                    queue.hang = Hang::Told;
                    return Some((pasid, queue.spec.doorbell.dword()));
                }
            }
        }
        None
    }

    /// Notes that the hardware does not answer any more.
    pub(super) fn lose(&mut self) {
        self.each_queue(|queue| queue.phase = queue.phase.lost());
    }

    /// Notes that nothing runs on the hardware any more, because it was reset or removed.
    pub(super) fn all_stopped(&mut self) {
        self.each_queue(|queue| queue.phase = queue.phase.stopped());
        self.active = None;
    }

    fn each_queue(&mut self, mut f: impl FnMut(&mut QueueRec)) {
        for proc in self.procs.values_mut() {
            for queue in proc.queues.values_mut() {
                f(queue);
            }
        }
    }

    /// Finishes what waited for queues to be off the hardware, and returns the newest change up to
    /// which everything is applied.
    ///
    /// # Errors
    ///
    /// Of writing a descriptor; the device is gone then.
    pub(super) fn settle(&mut self) -> Result<u64> {
        let mut applied = self.change;
        let mut result = Ok(());
        for proc in self.procs.values_mut() {
            for queue in proc.queues.values_mut() {
                if queue.phase.on_hardware() {
                    if let Some(need) = queue.need {
                        applied = applied.min(need.saturating_sub(1));
                    }
                    continue;
                }
                queue.need = None;
                if let Some(update) = queue.update.take() {
                    if let Err(error) = queue.mqd.update(&update.spec) {
                        result = Err(error);
                    }
                    queue.spec = update.spec;
                    if let Some((keep, room)) = update.keep {
                        if let Some(old) = queue.hold.keep.replace(keep) {
                            self.next_keep += 1;
                            self.garbage
                                .keeps
                                .insert(room.into_node(self.next_keep, old));
                        }
                    }
                }
            }
        }
        self.bury();
        result.map(|()| applied)
    }

    /// Moves doomed records that the hardware is done with out of the tables, so that they can be
    /// freed without the lock.
    fn bury(&mut self) {
        for proc in self.procs.values_mut() {
            if proc.doomed {
                // Goes as a whole, below.
                continue;
            }
            while let Some((id, orphan)) = proc
                .queues
                .iter()
                .find(|(_, queue)| queue.doomed && !queue.phase.on_hardware())
                .map(|(id, queue)| (*id, queue.orphan))
            {
                let Some(node) = proc.queues.remove_node(&id) else {
                    break;
                };
                match orphan {
                    true => self.garbage.queues.insert(node),
                    false => self.awaited_queues.insert(node),
                };
            }
        }
        while let Some((id, orphan)) = self
            .procs
            .iter()
            .find(|(_, proc)| proc.doomed && !proc.on_hardware())
            .map(|(id, proc)| (*id, proc.orphan))
        {
            let Some(node) = self.procs.remove_node(&id) else {
                break;
            };
            match orphan {
                true => self.garbage.procs.insert(node),
                false => self.awaited_procs.insert(node),
            };
        }
    }

    /// Takes the record of a destroyed queue, if the hardware is done with it.
    pub(super) fn collect_queue(&mut self, queue: u64) -> Option<RBTreeNode<u64, QueueRec>> {
        self.awaited_queues.remove_node(&queue)
    }

    /// Takes the record of a detached process, if the hardware is done with it.
    pub(super) fn collect_proc(&mut self, proc: u64) -> Option<RBTreeNode<u64, ProcRec>> {
        self.awaited_procs.remove_node(&proc)
    }

    /// Leaves a doomed queue to the reaper.
    pub(super) fn disown_queue(&mut self, proc: u64, queue: u64) {
        if let Some(node) = self.awaited_queues.remove_node(&queue) {
            self.garbage.queues.insert(node);
        } else if let Some(queue) = self
            .procs
            .get_mut(&proc)
            .and_then(|proc| proc.queues.get_mut(&queue))
        {
            queue.orphan = true;
        }
    }

    /// Leaves a doomed process to the reaper.
    pub(super) fn disown_proc(&mut self, proc: u64) {
        if let Some(node) = self.awaited_procs.remove_node(&proc) {
            self.garbage.procs.insert(node);
        } else if let Some(proc) = self.procs.get_mut(&proc) {
            proc.orphan = true;
        }
    }

    /// Whether the reaper has work.
    pub(super) fn has_garbage(&self) -> bool {
        !self.garbage.is_empty()
    }

    /// Takes what nobody needs any more.
    pub(super) fn take_garbage(&mut self) -> Garbage {
        core::mem::take(&mut self.garbage)
    }
}
