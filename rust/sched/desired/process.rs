// SPDX-License-Identifier: GPL-2.0

//! What the scheduler knows of a process: its address space, its queues, and what keeps them from running.

use kernel::{
    prelude::*,
    rbtree::RBTree, //
};

use super::{
    plan::{
        ProcessView,
        QueueView, //
    },
    queue::QueueRec, //
};
use crate::{
    gpu::conduct::Standing,
    hw::pm4::process::Debug,
    sched::params::{
        EvictCause,
        ProcessParams, //
    }, //
};

/// A process.
pub(in crate::sched) struct ProcRec {
    pub(in crate::sched) params: ProcessParams,
    /// The process that attached it, for messages.
    pub(in crate::sched) pid: i32,
    evictions: [u32; EvictCause::COUNT],
    /// It has a debug interface queue; its compute queues are mapped as static ones.
    pub(in crate::sched) diq: bool,
    /// The words of a debugger for MAP_PROCESS.
    pub(in crate::sched) debug: Debug,
    pub(in crate::sched) queues: RBTree<u64, QueueRec>,
    /// What is held against the process that attached it. Others that it has attached share it.
    pub(in crate::sched) standing: Standing,
    /// The active list names its address space.
    pub(in crate::sched) listed: bool,
    /// The change by which it was detached, while it waits for the end of the list that names it.
    pub(in crate::sched) pending_since: Option<u64>,
    /// Detached by its owner.
    pub(in crate::sched) destroyed: bool,
    /// No thread waits for the record: the reaper takes it.
    pub(in crate::sched) orphan: bool,
}

impl ProcRec {
    /// Makes a process without queues, attached by process `pid`, against which `standing` is held.
    pub(in crate::sched) fn new(params: ProcessParams, pid: i32, standing: Standing) -> Self {
        Self {
            params,
            pid,
            evictions: [0; EvictCause::COUNT],
            diq: false,
            debug: Debug::default(),
            queues: RBTree::new(),
            standing,
            listed: false,
            pending_since: None,
            destroyed: false,
            orphan: false,
        }
    }

    /// Whether any cause keeps the queues from running.
    pub(in crate::sched) fn is_evicted(&self) -> bool {
        self.evictions.iter().any(|count| *count > 0)
    }

    /// How often `cause` holds.
    pub(in crate::sched) fn evictions(&self, cause: EvictCause) -> u32 {
        self.evictions.get(cause.index()).copied().unwrap_or(0)
    }

    /// Adds one to `cause`.
    ///
    /// # Errors
    ///
    /// `EOVERFLOW`.
    pub(in crate::sched) fn evict(&mut self, cause: EvictCause) -> Result {
        let count = self.evictions.get_mut(cause.index()).ok_or(EINVAL)?;
        *count = count.checked_add(1).ok_or(EOVERFLOW)?;
        Ok(())
    }

    /// Takes one from `cause` and returns whether the queues may run now.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `cause` does not hold.
    pub(in crate::sched) fn restore(&mut self, cause: EvictCause) -> Result<bool> {
        let count = self.evictions.get_mut(cause.index()).ok_or(EINVAL)?;
        *count = count.checked_sub(1).ok_or(EINVAL)?;
        Ok(!self.is_evicted())
    }

    /// Whether a queue has global wave sync, or will have it.
    pub(in crate::sched) fn has_gws(&self) -> bool {
        let mut queues = self.queues.values().filter(|queue| !queue.destroyed);
        queues.any(|queue| queue.newest_spec().gws)
    }

    /// Whether a queue of the process refused to be preempted.
    pub(in crate::sched) fn has_record(&self) -> bool {
        self.standing.has_refused()
    }

    /// Whether the process has, or is to have, the hardware do something: others should not keep it waiting.
    pub(super) fn has_work(&self) -> bool {
        self.wants_any() || self.on_hardware()
    }

    /// Whether the memory manager, or another caller that took the queues off, waits until they are. A fault
    /// has no waiter.
    pub(super) fn is_evicted_for_others(&self) -> bool {
        let fault = self.evictions(EvictCause::Fault);
        self.evictions.iter().sum::<u32>() > fault
    }

    /// Marks all queues as hung, because the process is barred: a thread that waits for one of them has to know.
    pub(super) fn mark_all_hung(&mut self) {
        for queue in self.queues.values_mut() {
            queue.mark_hung();
        }
    }

    /// Whether nothing keeps all queues of the process from running.
    pub(in crate::sched) fn runs(&self) -> bool {
        !self.destroyed && !self.is_evicted() && !self.standing.is_barred()
    }

    /// Whether `queue` of this process should be part of the runlist.
    pub(in crate::sched) fn wants(&self, queue: &QueueRec) -> bool {
        queue.wanted(self.runs())
    }

    /// The process as [`plan`](super::plan::plan) sees it.
    pub(in crate::sched) fn view(&self) -> ProcessView {
        ProcessView {
            pasid: self.params.pasid,
            ends_list: self.destroyed && self.listed,
        }
    }

    /// The queues as [`plan`](super::plan::plan) sees them.
    pub(in crate::sched) fn views(&self) -> impl Iterator<Item = QueueView> + '_ {
        let runs = self.runs();
        self.queues.values().map(move |queue| QueueView {
            doorbell: queue.spec.doorbell.dword(),
            is_compute: queue.spec.kind.is_compute(),
            on_hardware: queue.phase.on_hardware(),
            wanted: queue.wanted(runs),
            must_leave: queue.pending_since.is_some(),
        })
    }

    /// Whether any queue of this process should be part of the runlist.
    pub(in crate::sched) fn wants_any(&self) -> bool {
        self.runs() && self.queues.values().any(|queue| queue.wanted(true))
    }

    /// Whether the hardware may use a queue of the process.
    pub(in crate::sched) fn on_hardware(&self) -> bool {
        self.queues.values().any(|queue| queue.phase.on_hardware())
    }

    /// Notes that change number `change` needs the process off the hardware, with all its queues, and out of
    /// the list.
    ///
    /// Returns whether there is anything to wait for.
    pub(in crate::sched) fn require_off(&mut self, change: u64) -> bool {
        let mut wait = self.listed;
        if self.listed {
            self.pending_since.get_or_insert(change);
        }
        for queue in self.queues.values_mut() {
            wait |= queue.require_off(change);
        }
        wait
    }

    /// Queues that should be part of the runlist.
    pub(in crate::sched) fn wanted_queues(&self) -> usize {
        self.queues
            .values()
            .filter(|queue| self.wants(queue))
            .count()
    }
}
