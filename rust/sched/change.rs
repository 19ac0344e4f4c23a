// SPDX-License-Identifier: GPL-2.0

//! The changes that callers make to the desired state.
//!
//! Each takes the state lock for bookkeeping only. What it needs is allocated before, what it
//! leaves is freed after, and waiting comes last.

use kernel::{
    prelude::*,
    rbtree::{
        RBTreeNode,
        RBTreeNodeReservation, //
    },
    sync::{
        lock::{
            mutex::MutexBackend,
            Guard, //
        },
        Arc, //
    }, //
};

use super::{
    machine::{
        Machine,
        Pending, //
    },
    mqd::MqdMem,
    params::{
        EvictCause,
        Policy,
        ProcessParams,
        QueueUpdate,
        UpdateError,
        MAX_PRIORITY, //
    },
    record::{
        Hang,
        PendingUpdate,
        Phase,
        ProcRec,
        QueueHold,
        QueueRec,
        QueueSpec, //
    },
    runlist::ListBuffer,
    saved::QueueImage,
    state::State,
    watchdog::Watch, //
};
use crate::{
    hw::{
        num::{
            index,
            is_aligned, //
        },
        pm4::process::Debug, //
    },
    kapi::waitqueue::Sleep, //
};

impl Machine {
    /// Adds a process. Returns its id.
    ///
    /// # Errors
    ///
    /// `EINVAL`: PASID 0. `EBUSY`: the PASID is attached. `ENOSPC`: the limit of processes is
    /// reached. `ENOMEM`, `EIO`, `ENODEV`.
    pub(super) fn attach(&self, params: ProcessParams) -> Result<u64> {
        self.health().check()?;
        check_trap(&params)?;
        if params.pasid == 0 {
            return Err(EINVAL);
        }
        let id = self.new_id();
        let pasid = params.pasid;
        let node = RBTreeNode::new(id, ProcRec::new(params), GFP_KERNEL)?;
        let mut state = self.state.lock();
        if state.stopping {
            return Err(ENODEV);
        }
        if state.has_pasid(pasid) {
            drop(state);
            return Err(EBUSY);
        }
        if state.procs.values().count() >= index(self.config.max_processes) {
            drop(state);
            return Err(ENOSPC);
        }
        state.procs.insert(node);
        Ok(id)
    }

    /// Changes what MAP_PROCESS installs. Queues that run are mapped anew soon.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the trap handler is misaligned. `ESRCH`, `EIO`, `ENODEV`.
    pub(super) fn update_process(
        self: &Arc<Self>,
        proc: u64,
        f: impl FnOnce(&mut ProcessParams),
    ) -> Result {
        self.health().check()?;
        let mut state = self.state.lock();
        let change = state.next_change();
        let rec = state.proc_mut(proc)?;
        let before = rec.params.values();
        f(&mut rec.params);
        let checked = check_trap(&rec.params);
        if checked.is_err() {
            rec.params.set_values(before);
        }
        // The identity of a process is not a parameter.
        rec.params.pasid = before.pasid;
        checked?;
        let trap = rec.params.tba != 0;
        let mut stale = false;
        for queue in rec.queues.values_mut() {
            // Descriptors tell the waves of a queue whether there is a handler.
            queue.set_trap(trap);
            stale |= queue.require_off(change);
        }
        let settled = match stale {
            true => {
                self.kick(&state, change, false);
                Ok(())
            }
            false => state.settle().map(|_| ()),
        };
        drop(state);
        self.hand_off();
        settled
    }

    /// Dooms a process with all its queues.
    pub(super) fn doom_process(self: &Arc<Self>, proc: u64, orphan: bool) -> Pending {
        let mut state = self.state.lock();
        let change = state.next_change();
        let Ok(rec) = state.proc_mut(proc) else {
            return Pending::Done;
        };
        rec.doomed = true;
        rec.orphan = orphan;
        let mut wait = false;
        for queue in rec.queues.values_mut() {
            wait |= queue.require_off(change);
        }
        self.doomed(state, change, wait)
    }

    /// Common end of dooming.
    fn doomed(
        self: &Arc<Self>,
        mut state: Guard<'_, State, MutexBackend>,
        change: u64,
        wait: bool,
    ) -> Pending {
        if wait {
            self.kick(&state, change, true);
            return Pending::Change(change);
        }
        // Errors of descriptors do not matter here; the worker sees them again.
        let _ = state.settle();
        drop(state);
        self.hand_off();
        Pending::Done
    }

    /// Takes all queues of a process off the hardware and forgets it.
    ///
    /// # Errors
    ///
    /// As [`Machine::wait`], except that a scheduler that is gone has reached the goal. After an error
    /// the record, with all that it keeps alive, stays until the hardware is done with it.
    pub(super) fn detach(self: &Arc<Self>, proc: u64) -> Result {
        let result = match self.doom_process(proc, false) {
            Pending::Done => Ok(()),
            // An address space ends in whatever task lets go of it last, which may have been killed
            // for that very reason. Its pages go next, so the wait is not to be cut short; it is
            // bounded.
            Pending::Change(change) => self.wait(change, Sleep::Uninterruptible),
        };
        let node = {
            let mut state = self.state.lock();
            let node = state.collect_proc(proc);
            if node.is_none() {
                state.disown_proc(proc);
            }
            node
        };
        let done = node.is_some();
        drop(node);
        match result {
            Err(_) if done => Ok(()),
            result => result,
        }
    }

    /// Adds a queue. Never waits for a preemption (unless coalescing is off).
    ///
    /// # Errors
    ///
    /// `EINVAL`: the descriptor cannot be encoded. `ENOSPC`: no slot (see [`State::admit`]) or no
    /// memory of the device. `ESRCH`, `ENOMEM`, `EIO`, `ENODEV`.
    #[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "seen by tests"))]
    pub(super) fn create_queue(
        self: &Arc<Self>,
        proc: u64,
        spec: QueueSpec,
        hold: QueueHold,
    ) -> Result<u64> {
        self.add_queue(proc, spec, hold, None)
    }

    /// As [`Machine::create_queue`], with the state of a queue that was checkpointed.
    ///
    /// # Errors
    ///
    /// As there; `EINVAL`: the image is not that of such a queue.
    pub(super) fn add_queue(
        self: &Arc<Self>,
        proc: u64,
        mut spec: QueueSpec,
        hold: QueueHold,
        image: Option<&QueueImage>,
    ) -> Result<u64> {
        self.health().check()?;
        check_spec(&spec)?;
        spec.trap = self.state.lock().proc_mut(proc)?.params.tba != 0;
        let mqd = MqdMem::new(&*self.platform, &self.sdma_mqds, &spec)?;
        if let Some(image) = image {
            mqd.restore(&spec, image)?;
        }
        let active = spec.is_active();
        let rec = QueueRec {
            spec,
            mqd,
            phase: Phase::Created,
            doomed: false,
            orphan: false,
            update: None,
            hang: Hang::Sound,
            need: None,
            watch: Watch::default(),
            hold,
        };
        let id = self.new_id();
        let mut node = Some(RBTreeNode::new(id, rec, GFP_KERNEL)?);
        // A buffer that the state did not take, or gave back; freed without the lock.
        let mut spare = None;
        let turn = self.turn()?;
        loop {
            let mut state = self.state.lock();
            if state.stopping {
                return Err(ENODEV);
            }
            state.proc_mut(proc)?;
            state.swap_buffer(&mut spare);
            let need = state.list_dwords(self.platform.asic(), 1);
            if self.config.policy != Policy::Direct && need > state.list_capacity() {
                drop(state);
                spare = Some(ListBuffer::new(&*self.platform, need.saturating_mul(2))?);
                continue;
            }
            state.admit(
                proc,
                active,
                spec.kind.is_compute(),
                self.platform.asic(),
                &self.config,
            )?;
            let change = state.next_change();
            let evicted = {
                let rec = state.proc_mut(proc)?;
                if let Some(node) = node.take() {
                    rec.queues.insert(node);
                }
                rec.is_evicted()
            };
            self.counters.creates.inc();
            if active && !evicted {
                self.kick(&state, change, !self.config.coalesce);
                drop(state);
                if let Err(error) = self.end_turn() {
                    // The caller does not learn of the queue, so nobody else can end it.
                    drop(turn);
                    let _ = self.doom_queue(proc, id, true);
                    return Err(error);
                }
            }
            return Ok(id);
        }
    }

    /// Changes a queue. Returns the change to wait for.
    ///
    /// # Errors
    ///
    /// `EINVAL`: bad values. `EACCES`: the queue hung and was reset. `EBUSY`, `ENODEV`: see
    /// [`Machine::may_have_gws`]. `ENOSPC`: the queue would run and finds no room, see
    /// [`State::admit_active`]. `ENOENT`: no such queue. `ENOMEM`, `EIO`, `ENODEV`.
    pub(super) fn begin_update(
        self: &Arc<Self>,
        proc: u64,
        queue: u64,
        update: QueueUpdate,
    ) -> Result<Pending> {
        self.health().check()?;
        let keep = match update.keep {
            Some(keep) => Some((keep, RBTreeNodeReservation::new(GFP_KERNEL)?)),
            None => None,
        };
        let mut state = self.state.lock();
        let change = state.next_change();
        if state.queue_mut(proc, queue)?.hang != Hang::Sound {
            // It does not run again, whatever it is given.
            return Err(EACCES);
        }
        if let Some(on) = update.gws {
            self.may_have_gws(&mut state, proc, queue, on)?;
        }
        let rec = state.queue_mut(proc, queue)?;
        // A change that is not in force yet is built upon.
        let mut spec = rec.update.as_ref().map_or(rec.spec, |update| update.spec);
        spec.ring_base = update.ring_base.unwrap_or(spec.ring_base);
        spec.ring_size = update.ring_size.unwrap_or(spec.ring_size);
        spec.percent = update.percent.unwrap_or(spec.percent);
        spec.priority = update.priority.unwrap_or(spec.priority);
        spec.cu_mask = update.cu_mask.or(spec.cu_mask);
        spec.gws = update.gws.unwrap_or(spec.gws);
        let starts = spec.is_active() && !rec.takes_part();
        let compute = spec.kind.is_compute();
        let asic = self.platform.asic();
        let mut checked = check_spec(&spec).and_then(|()| MqdMem::check(asic, &spec));
        if checked.is_ok() && starts {
            checked = state.admit_active(proc, compute, asic, &self.config);
        }
        if let Err(error) = checked {
            // What the caller brought is dropped without the lock.
            drop(state);
            return Err(error);
        }
        let rec = state.queue_mut(proc, queue)?;
        let unused = match rec.update.take() {
            Some(old) if keep.is_none() => {
                rec.update = Some(PendingUpdate {
                    spec,
                    keep: old.keep,
                });
                None
            }
            old => {
                rec.update = Some(PendingUpdate { spec, keep });
                old
            }
        };
        let wait = rec.require_off(change);
        self.counters.updates.inc();
        let settled = match wait {
            true => Ok(()),
            false => state.settle().map(|_| ()),
        };
        self.kick(&state, change, wait);
        // Before an error is returned, too: foreign code must not run under the lock.
        drop(state);
        // A keep-alive that never came into force.
        drop(unused);
        self.hand_off();
        settled?;
        Ok(match wait {
            true => Pending::Change(change),
            false => Pending::Done,
        })
    }

    /// See [`super::Scheduler::num_gws`].
    pub(super) fn num_gws(&self) -> u32 {
        match self.config.policy {
            Policy::Direct => 0,
            _ => self.platform.asic().num_gws(self.config.mec_firmware),
        }
    }

    /// Whether global wave sync may go to (or from) a queue: one queue of a process may have it.
    fn may_have_gws(&self, state: &mut State, proc: u64, queue: u64, on: bool) -> Result {
        let compute = state.queue_mut(proc, queue)?.spec.kind.is_compute();
        if self.num_gws() == 0 {
            return Err(ENODEV);
        }
        let has = state.procs.get(&proc).is_some_and(ProcRec::has_gws);
        match (on, has) {
            _ if !compute => Err(EINVAL),
            (true, true) => Err(EBUSY),
            (false, false) => Err(EINVAL),
            _ => Ok(()),
        }
    }

    /// Sets the words of a debugger and whether there is a debug interface queue, and waits until that is in force.
    ///
    /// # Errors
    ///
    /// `ENODEV`: no firmware schedules the device. `ESRCH`; else as [`Machine::wait`].
    #[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "for the debugger"))]
    pub(super) fn set_debug(self: &Arc<Self>, proc: u64, debug: Debug, diq: bool) -> Result {
        match self.begin_debug(proc, debug, diq)? {
            Pending::Done => Ok(()),
            Pending::Change(change) => self.wait(change, Sleep::Killable),
        }
    }

    /// Sets the words of a debugger and whether there is a debug interface queue. Returns the change to wait for.
    ///
    /// # Errors
    ///
    /// As [`Machine::set_debug`].
    pub(super) fn begin_debug(
        self: &Arc<Self>,
        proc: u64,
        debug: Debug,
        diq: bool,
    ) -> Result<Pending> {
        self.health().check()?;
        if self.config.policy == Policy::Direct {
            return Err(ENODEV);
        }
        let mut state = self.state.lock();
        let change = state.next_change();
        let rec = state.proc_mut(proc)?;
        rec.debug = debug;
        rec.diq = diq;
        let mut wait = false;
        for queue in rec.queues.values_mut() {
            wait |= queue.require_off(change);
        }
        if !wait {
            return Ok(Pending::Done);
        }
        self.kick(&state, change, true);
        Ok(Pending::Change(change))
    }

    /// Changes a queue and waits until the change is in force.
    ///
    /// # Errors
    ///
    /// As [`Machine::begin_update`] ([`UpdateError::Refused`]) and [`Machine::wait`].
    pub(super) fn update_queue(
        self: &Arc<Self>,
        proc: u64,
        queue: u64,
        update: QueueUpdate,
    ) -> Result<(), UpdateError> {
        let _turn = self.turn().map_err(UpdateError::Refused)?;
        let begun = self.begin_update(proc, queue, update);
        match begun.map_err(UpdateError::Refused)? {
            Pending::Done => Ok(()),
            Pending::Change(change) => self.wait_through_reset(change),
        }
        .and_then(|()| self.end_turn())
        .map_err(UpdateError::Unconfirmed)
    }

    /// Dooms a queue.
    pub(super) fn doom_queue(self: &Arc<Self>, proc: u64, queue: u64, orphan: bool) -> Pending {
        let mut state = self.state.lock();
        let change = state.next_change();
        let Ok(rec) = state.queue_mut(proc, queue) else {
            return Pending::Done;
        };
        rec.doomed = true;
        rec.orphan = orphan;
        let wait = rec.require_off(change);
        self.counters.destroys.inc();
        self.doomed(state, change, wait)
    }

    /// Takes a queue off the hardware and forgets it. A queue that is not there is no error.
    ///
    /// # Errors
    ///
    /// As [`Machine::detach`].
    pub(super) fn destroy_queue(self: &Arc<Self>, proc: u64, queue: u64) -> Result {
        // Who is being killed, or finds the hardware dead, destroys out of turn.
        let turn = self.turn();
        let result = match self.doom_queue(proc, queue, false) {
            Pending::Done => Ok(()),
            Pending::Change(change) => self
                .wait_through_reset(change)
                .and_then(|()| self.end_turn()),
        };
        drop(turn);
        let node = {
            let mut state = self.state.lock();
            let node = state.collect_queue(queue);
            if node.is_none() {
                state.disown_queue(proc, queue);
            }
            node
        };
        let done = node.is_some();
        // Frees descriptor, doorbell and mappings without any lock of the scheduler.
        drop(node);
        match result {
            Err(_) if done => Ok(()),
            result => result,
        }
    }

    /// Notes a cause to keep the queues of a process from running. Returns the change to wait for.
    ///
    /// # Errors
    ///
    /// `ESRCH`, `EOVERFLOW`, `EIO`, `ENODEV`.
    pub(super) fn begin_evict(self: &Arc<Self>, proc: u64, cause: EvictCause) -> Result<Pending> {
        let mut state = self.state.lock();
        // Under the lock, as it changes: a scheduler that comes back maps queues again.
        let health = self.health();
        let change = state.next_change();
        // One that is being detached may be on the hardware still; when it is not, the record is gone.
        let rec = state.procs.get_mut(&proc).ok_or(ESRCH)?;
        let first = !rec.is_evicted();
        rec.evict(cause)?;
        if first {
            self.counters.evictions.inc();
        }
        let mut wait = false;
        for queue in rec.queues.values_mut() {
            wait |= queue.require_off(change);
        }
        if !wait {
            return Ok(Pending::Done);
        }
        // The cause is counted even if the hardware cannot follow, so that `restore` balances it.
        health.check()?;
        self.kick(&state, change, true);
        Ok(Pending::Change(change))
    }

    /// Takes the queues of a process off the hardware until [`Machine::restore`]. Allocates nothing.
    ///
    /// The cause counts even if an error is returned.
    ///
    /// # Errors
    ///
    /// As [`Machine::begin_evict`] and [`Machine::wait`].
    pub(super) fn evict(self: &Arc<Self>, proc: u64, cause: EvictCause) -> Result {
        match self.begin_evict(proc, cause)? {
            Pending::Done => Ok(()),
            Pending::Change(change) => self.wait(change, Sleep::Uninterruptible),
        }
    }

    /// Takes back one [`Machine::evict`]. When no cause is left the queues run again soon.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the cause does not hold. `ESRCH`, `EIO`, `ENODEV`.
    #[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "seen by tests"))]
    pub(super) fn restore(self: &Arc<Self>, proc: u64, cause: EvictCause) -> Result {
        let mut state = self.state.lock();
        let change = state.next_change();
        let rec = state.proc_mut(proc)?;
        if rec.restore(cause)? {
            self.counters.restores.inc();
            if rec.wanted_queues() > 0 {
                self.kick(&state, change, false);
            }
        }
        drop(state);
        self.health().check()
    }
}

/// Checks what no descriptor encoder checks.
fn check_spec(spec: &QueueSpec) -> Result {
    // MAP_QUEUES names the write pointer by dwords, but it is one of 64 bits.
    if spec.priority > MAX_PRIORITY || spec.percent > 100 || !is_aligned(spec.wptr, 8) {
        return Err(EINVAL);
    }
    Ok(())
}

/// Checks what MAP_PROCESS names in units of 256 bytes.
fn check_trap(params: &ProcessParams) -> Result {
    if !is_aligned(params.tba, 256) || !is_aligned(params.tma, 256) {
        return Err(EINVAL);
    }
    Ok(())
}
