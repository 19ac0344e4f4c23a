// SPDX-License-Identifier: GPL-2.0

//! The tables of the desired state, and the numbers of changes to it.
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
    sync::Arc, //
};

use super::{
    ib::{
        ListBuffer,
        ListBuffers, //
    },
    plan::{
        self,
        ActiveList,
        Rules,
        Scope,
        Step, //
    },
    process::ProcRec,
    queue::{
        HaltState,
        HangState,
        Phase,
        QueueRec, //
    },
    reap::{
        Garbage,
        Retired, //
    }, //
};
use crate::{
    hw::asic::AsicDesc,
    kapi::workqueue::OwnedQueue,
    sched::{
        config::{
            Config,
            Hurry, //
        },
        notes::Halt,
        params::QueueKind, //
    }, //
};

/// Compute HQDs that the firmware may use: queues 2 to 7 of each pipe of MEC1, one byte per pipe.
pub(in crate::sched) const QUEUE_MASK: u64 = 0xfcfc_fcfc;
/// Number of [`QUEUE_MASK`]'s slots.
pub(in crate::sched) const COMPUTE_SLOTS: usize = 24;

const _: () = assert!(QUEUE_MASK.count_ones() == 24 && COMPUTE_SLOTS == 24);

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

/// When a queue refused to be preempted.
#[derive(Clone, Copy, Debug)]
pub(in crate::sched) struct Refusal {
    /// Now, in microseconds.
    pub(in crate::sched) now: u64,
    /// For how long refusals count as one occasion.
    pub(in crate::sched) window: u64,
}

/// The kinds of which there are queues whose time to leave is over.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::sched) struct Overdue {
    /// There are compute queues.
    pub(in crate::sched) compute: bool,
    /// There are SDMA queues.
    pub(in crate::sched) sdma: bool,
}

/// Everything that the scheduler's inner mutex guards.
pub(in crate::sched) struct State {
    pub(in crate::sched) procs: RBTree<u64, ProcRec>,
    /// Records of destroyed queues and detached processes.
    retired: Retired,
    /// Newest change.
    change: u64,
    /// The list that the hardware works on.
    pub(in crate::sched) active: Option<ActiveList>,
    /// Memory of `active` and of the lists that follow it.
    pub(in crate::sched) buffers: ListBuffers,
    /// Runs the worker; taken at shutdown.
    pub(in crate::sched) queue: Option<Arc<OwnedQueue>>,
}

impl State {
    /// Nothing attached, with memory for the first list.
    pub(in crate::sched) fn new(ib: ListBuffer, queue: Option<Arc<OwnedQueue>>) -> Self {
        Self {
            procs: RBTree::new(),
            retired: Retired::new(),
            change: 0,
            active: None,
            buffers: ListBuffers::new(ib),
            queue,
        }
    }

    /// Numbers a change.
    pub(in crate::sched) fn next_change(&mut self) -> u64 {
        // OVERFLOW: 2^64 changes do not happen.
        self.change += 1;
        self.change
    }

    /// The newest change.
    pub(in crate::sched) fn newest_change(&self) -> u64 {
        self.change
    }

    /// Figures of the desired state.
    pub(in crate::sched) fn load(&self) -> Load {
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
    pub(in crate::sched) fn has_pasid(&self, pasid: u16) -> bool {
        self.procs.values().any(|proc| proc.params.pasid == pasid)
    }

    /// A process that was not detached.
    ///
    /// # Errors
    ///
    /// `ESRCH`.
    pub(in crate::sched) fn proc_mut(&mut self, proc: u64) -> Result<&mut ProcRec> {
        self.procs
            .get_mut(&proc)
            .filter(|proc| !proc.destroyed)
            .ok_or(ESRCH)
    }

    /// A queue that was not destroyed.
    ///
    /// # Errors
    ///
    /// `ENOENT`.
    pub(in crate::sched) fn queue_mut(&mut self, proc: u64, queue: u64) -> Result<&mut QueueRec> {
        self.procs
            .get_mut(&proc)
            .filter(|proc| !proc.destroyed)
            .and_then(|proc| proc.queues.get_mut(&queue))
            .filter(|queue| !queue.destroyed)
            .ok_or(ENOENT)
    }

    /// Decides what to do next. `gathered`: the time for further additions is over.
    pub(in crate::sched) fn plan(&self, config: &Config, gathered: bool) -> Step {
        let rules = Rules {
            coalesce: config.coalesce,
            targeted: config.targeted,
            gathered,
        };
        let processes = self.procs.values();
        plan::plan(
            self.active.as_ref(),
            rules,
            processes.map(|proc| (proc.view(), proc.views())),
        )
    }

    /// Notes that the preemption of `scope` is being requested. Returns how many queues it takes.
    pub(in crate::sched) fn begin_preempt(&mut self, scope: &Scope) -> usize {
        let mut count = 0;
        for proc in self.procs.values_mut() {
            let pasid = proc.params.pasid;
            for queue in proc.queues.values_mut() {
                let doorbell = queue.spec.doorbell.dword();
                if queue.phase == Phase::Mapped && scope.covers(pasid, doorbell) {
                    queue.phase = queue.phase.preempting();
                    count += 1;
                }
            }
        }
        count
    }

    /// Notes that the preemption was confirmed.
    pub(in crate::sched) fn end_preempt(&mut self, scope: &Scope) {
        self.each_queue(|queue| queue.phase = queue.phase.preempted());
        if scope.ends_list() {
            self.end_list();
        }
    }

    /// Notes that the hardware forgot the list: what it names may go.
    fn end_list(&mut self) {
        self.active = None;
        for proc in self.procs.values_mut() {
            proc.listed = false;
            for queue in proc.queues.values_mut() {
                queue.listed = false;
            }
        }
        self.retired.list_ended();
    }

    /// Marks the queue on the hardware with doorbell `doorbell`, which refused preemption, as hung, so that it is
    /// not mapped again. Returns whether there is one.
    pub(in crate::sched) fn mark_hung(&mut self, doorbell: u32, when: Refusal) -> bool {
        self.mark_hung_if(doorbell, when, |_| true)
    }

    /// The same for a compute queue only: others cannot be reset alone.
    pub(in crate::sched) fn mark_hung_compute(&mut self, doorbell: u32, when: Refusal) -> bool {
        self.mark_hung_if(doorbell, when, |queue| queue.spec.kind.is_compute())
    }

    /// Whether the queues of process `id` have to leave sooner than the firmware would have them, and why.
    pub(in crate::sched) fn hurry(&self, id: u64, proc: &ProcRec) -> Option<Hurry> {
        let mut others = self.procs.iter().filter(|(other, _)| **other != id);
        if proc.has_record() {
            Some(Hurry::Record)
        } else if proc.is_evicted_for_others() || others.any(|(_, other)| other.has_work()) {
            Some(Hurry::Awaited)
        } else {
            None
        }
    }

    /// Queues whose time to leave is over, if their preemption began `elapsed` microseconds ago: compute queues, and
    /// those of SDMA. Some of them may have left, which the firmware does not say before all have.
    pub(in crate::sched) fn overdue(&self, config: &Config, elapsed: u64) -> Overdue {
        let mut found = Overdue::default();
        for (id, proc) in self.procs.iter() {
            let mut leaving = proc
                .queues
                .values()
                .filter(|queue| queue.phase == Phase::Preempting)
                .peekable();
            if leaving.peek().is_none() {
                continue;
            }
            let hurry = self.hurry(*id, proc);
            if hurry.is_none_or(|hurry| elapsed < config.hurry_us(hurry)) {
                continue;
            }
            for queue in leaving {
                match queue.spec.kind.is_compute() {
                    true => found.compute = true,
                    false => found.sdma = true,
                }
            }
        }
        found
    }

    /// Marks the queue with doorbell `doorbell`, which is on the hardware, as hung, if its time to leave is over: as
    /// [`State::overdue`] and [`State::mark_hung`].
    pub(in crate::sched) fn mark_overdue(
        &mut self,
        doorbell: u32,
        config: &Config,
        elapsed: u64,
        when: Refusal,
    ) -> bool {
        let mut procs = self.procs.iter();
        let overdue = procs.any(|(id, proc)| {
            let is_it = |queue: &QueueRec| {
                queue.spec.doorbell.dword() == doorbell && queue.phase == Phase::Preempting
            };
            let hurry = || self.hurry(*id, proc);
            proc.queues.values().any(is_it)
                && hurry().is_some_and(|hurry| elapsed >= config.hurry_us(hurry))
        });
        overdue && self.mark_hung(doorbell, when)
    }

    /// Whether the queue with doorbell `doorbell` hung and was reset.
    pub(in crate::sched) fn is_reset(&self, doorbell: u32) -> bool {
        self.procs.values().any(|proc| {
            let mut queues = proc.queues.values();
            queues.any(|queue| {
                let named = queue.spec.doorbell.dword() == doorbell;
                named && queue.hang != HangState::None && !queue.phase.on_hardware()
            })
        })
    }

    fn mark_hung_if(
        &mut self,
        doorbell: u32,
        when: Refusal,
        may: impl Fn(&QueueRec) -> bool,
    ) -> bool {
        let mut found = false;
        let mut barred = None;
        for proc in self.procs.values_mut() {
            let refused = proc.queues.values_mut().find(|queue| {
                let named = queue.spec.doorbell.dword() == doorbell;
                named && queue.phase.on_hardware() && may(queue)
            });
            let Some(queue) = refused else {
                continue;
            };
            found = true;
            // However many resets it takes, it is one refusal.
            if queue.hang == HangState::None {
                queue.mark_hung();
                if proc.standing.note_refusal(when.now, when.window) {
                    barred = Some(proc.standing.conduct().clone());
                }
            }
            break;
        }
        if let Some(conduct) = &barred {
            let procs = self.procs.values_mut();
            procs
                .filter(|proc| proc.standing.is_of(conduct))
                .for_each(ProcRec::mark_all_hung);
        }
        found
    }

    /// Notes that the chip is reset because the queue on the hardware with doorbell `doorbell` refused to leave. Returns
    /// pid and PASID of its process if from now on that gets no SDMA queues: it has none that could be reset alone.
    pub(in crate::sched) fn note_chip_reset(
        &mut self,
        doorbell: u32,
        asic: &AsicDesc,
        when: Refusal,
    ) -> Option<(i32, u16)> {
        self.mark_hung(doorbell, when);
        let mut procs = self.procs.values();
        let proc = procs.find(|proc| {
            let mut queues = proc.queues.values();
            queues.any(|queue| {
                let engine = match queue.spec.kind {
                    QueueKind::Sdma(place) => asic.sdma.engine(place.engine),
                    QueueKind::Pm4 | QueueKind::Aql => None,
                };
                queue.spec.doorbell.dword() == doorbell
                    && queue.phase.on_hardware()
                    && engine.is_some_and(|engine| !engine.can_be_reset())
            })
        })?;
        let first = proc.standing.note_chip_reset();
        first.then_some((proc.pid, proc.params.pasid))
    }

    /// Whether the queue with doorbell `doorbell`, which is on the hardware, is one of SDMA.
    pub(in crate::sched) fn is_copying(&self, doorbell: u32) -> bool {
        self.procs.values().any(|proc| {
            let mut queues = proc.queues.values();
            queues.any(|queue| {
                let named = queue.spec.doorbell.dword() == doorbell;
                named && queue.phase.on_hardware() && !queue.spec.kind.is_compute()
            })
        })
    }

    /// Keeps the compute queue that `halt` names from running for good. Returns whether it might have run until now.
    pub(in crate::sched) fn halt(&mut self, halt: &Halt) -> bool {
        let change = self.next_change();
        let mut procs = self.procs.values_mut();
        let proc = procs.find(|p| p.params.pasid == halt.pasid);
        let queue = proc.and_then(|proc| {
            let mut queues = proc.queues.values_mut();
            queues.find(|queue| {
                let id = queue.spec.doorbell.id_in_slice();
                queue.spec.kind.is_compute() && id == halt.doorbell
            })
        });
        let Some(queue) = queue.filter(|queue| queue.may_run()) else {
            return false;
        };
        queue.halt = HaltState::Pending(halt.reason);
        // No thread waits for it.
        let _ = queue.require_off(change);
        true
    }

    /// Notes that a hung queue was reset and is off the hardware.
    pub(in crate::sched) fn queue_was_reset(&mut self, doorbell: u32) {
        self.each_queue(|queue| {
            if queue.hang != HangState::None && queue.spec.doorbell.dword() == doorbell {
                queue.phase = queue.phase.stopped();
            }
        });
    }

    /// Takes the next process that was barred and not logged: its pid and PASID.
    pub(in crate::sched) fn next_barred(&mut self) -> Option<(i32, u16)> {
        let mut procs = self.procs.values();
        let proc = procs.find(|proc| proc.standing.take_bar())?;
        Some((proc.pid, proc.params.pasid))
    }

    /// Whether there is a queue that hung or stopped and was not reported.
    pub(in crate::sched) fn has_pending_report(&self) -> bool {
        let mut procs = self.procs.values();
        procs.any(|proc| {
            let mut queues = proc.queues.values();
            queues.any(|queue| {
                queue.hang == HangState::Pending || matches!(queue.halt, HaltState::Pending(_))
            })
        })
    }

    /// Takes the next queue that stopped at a bad packet and was not reported.
    pub(in crate::sched) fn next_halt(&mut self) -> Option<Halt> {
        for proc in self.procs.values_mut() {
            let pasid = proc.params.pasid;
            for queue in proc.queues.values_mut() {
                if let HaltState::Pending(reason) = queue.halt {
                    queue.halt = HaltState::Reported;
                    let doorbell = queue.spec.doorbell.id_in_slice();
                    return Some(Halt {
                        pasid,
                        doorbell,
                        reason,
                    });
                }
            }
        }
        None
    }

    /// Takes the next hung queue whose owner was not notified: PASID and doorbell.
    pub(in crate::sched) fn next_hang(&mut self) -> Option<(u16, u32)> {
        for proc in self.procs.values_mut() {
            let pasid = proc.params.pasid;
            for queue in proc.queues.values_mut() {
                if queue.hang == HangState::Pending {
                    queue.hang = HangState::Reported;
                    return Some((pasid, queue.spec.doorbell.dword()));
                }
            }
        }
        None
    }

    /// Notes that the hardware does not answer any more.
    pub(in crate::sched) fn mark_lost(&mut self) {
        self.each_queue(|queue| queue.phase = queue.phase.lost());
    }

    /// Notes that nothing runs on the hardware any more, because it was reset or removed.
    pub(in crate::sched) fn all_stopped(&mut self) {
        self.each_queue(|queue| queue.phase = queue.phase.stopped());
        self.end_list();
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
    pub(in crate::sched) fn settle(&mut self) -> Result<u64> {
        let mut applied = self.change;
        let mut result = Ok(());
        for proc in self.procs.values_mut() {
            if !proc.listed {
                proc.pending_since = None;
            }
            if let Some(change) = proc.pending_since {
                applied = applied.min(change.saturating_sub(1));
            }
            for queue in proc.queues.values_mut() {
                if queue.phase.on_hardware() {
                    if let Some(change) = queue.pending_since {
                        applied = applied.min(change.saturating_sub(1));
                    }
                    continue;
                }
                queue.pending_since = None;
                if let Some(update) = queue.update.take() {
                    if let Err(error) = queue.mqd.update(&update.spec) {
                        result = Err(error);
                    }
                    queue.spec = update.spec;
                    if let Some((keep, room)) = update.keep {
                        if let Some(old) = queue.hold.keep.replace(keep) {
                            self.retired.add_keep(room, old);
                        }
                    }
                }
            }
        }
        self.retired.take_from(&mut self.procs);
        result.map(|()| applied)
    }

    /// Takes the record of a destroyed queue, if the hardware is done with it.
    pub(in crate::sched) fn collect_queue(
        &mut self,
        queue: u64,
    ) -> Option<RBTreeNode<u64, QueueRec>> {
        self.retired.collect_queue(queue)
    }

    /// Takes the record of a detached process, if the hardware is done with it.
    pub(in crate::sched) fn collect_proc(&mut self, proc: u64) -> Option<RBTreeNode<u64, ProcRec>> {
        self.retired.collect_proc(proc)
    }

    /// Leaves a destroyed queue to the reaper.
    pub(in crate::sched) fn disown_queue(&mut self, proc: u64, queue: u64) {
        if self.retired.disown_queue(queue) {
            return;
        }
        if let Some(queue) = self
            .procs
            .get_mut(&proc)
            .and_then(|proc| proc.queues.get_mut(&queue))
        {
            queue.orphan = true;
        }
    }

    /// Leaves a detached process to the reaper.
    pub(in crate::sched) fn disown_proc(&mut self, proc: u64) {
        if self.retired.disown_proc(proc) {
            return;
        }
        if let Some(proc) = self.procs.get_mut(&proc) {
            proc.orphan = true;
        }
    }

    /// Whether the reaper has work.
    pub(in crate::sched) fn has_garbage(&self) -> bool {
        self.retired.has_garbage()
    }

    /// Takes what is not needed any more.
    pub(in crate::sched) fn take_garbage(&mut self) -> Garbage {
        self.retired.take_garbage()
    }
}
