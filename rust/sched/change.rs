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
        ProcessParams,
        QueueUpdate,
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
    state::State, //
};
use crate::{
    hw::num::is_aligned,
    kapi::waitqueue::Sleep, //
};

impl Machine {
    /// Adds a process. Returns its id.
    ///
    /// # Errors
    ///
    /// `EINVAL`: PASID 0. `EBUSY`: the PASID is attached. `ENOMEM`, `EIO`, `ENODEV`.
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
        let mut stale = false;
        for queue in rec.queues.values_mut() {
            stale |= queue.require_off(change);
        }
        if stale {
            self.kick(&state, change, false);
        }
        Ok(())
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
        self.reap_later();
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
            Pending::Change(change) => self.wait(change, Sleep::Killable),
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
    pub(super) fn create_queue(
        self: &Arc<Self>,
        proc: u64,
        mut spec: QueueSpec,
        hold: QueueHold,
    ) -> Result<u64> {
        self.health().check()?;
        check_spec(&spec)?;
        spec.trap = self.state.lock().proc_mut(proc)?.params.tba != 0;
        let mqd = MqdMem::new(&*self.platform, &self.sdma_mqds, &spec)?;
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
            hold,
        };
        let id = self.new_id();
        let mut node = Some(RBTreeNode::new(id, rec, GFP_KERNEL)?);
        // A buffer that the state did not take, or gave back; freed without the lock.
        let mut spare = None;
        loop {
            let mut state = self.state.lock();
            if state.stopping {
                return Err(ENODEV);
            }
            state.proc_mut(proc)?;
            state.swap_buffer(&mut spare);
            let need = state.list_dwords(self.platform.asic(), 1);
            if need > state.list_capacity() {
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
            if active && !evicted {
                self.kick(&state, change, !self.config.coalesce);
                drop(state);
                if !self.config.coalesce {
                    self.wait_settled(change)?;
                }
            }
            return Ok(id);
        }
    }

    /// Changes a queue. Returns the change to wait for.
    ///
    /// # Errors
    ///
    /// `EINVAL`: bad values. `ENOENT`: no such queue. `ENOMEM`, `EIO`, `ENODEV`.
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
        let rec = state.queue_mut(proc, queue)?;
        // A change that is not in force yet is built upon.
        let mut spec = rec.update.as_ref().map_or(rec.spec, |update| update.spec);
        spec.ring_base = update.ring_base.unwrap_or(spec.ring_base);
        spec.ring_size = update.ring_size.unwrap_or(spec.ring_size);
        spec.percent = update.percent.unwrap_or(spec.percent);
        spec.priority = update.priority.unwrap_or(spec.priority);
        spec.cu_mask = update.cu_mask.or(spec.cu_mask);
        let checked = check_spec(&spec).and_then(|()| MqdMem::check(self.platform.asic(), &spec));
        if let Err(error) = checked {
            // What the caller brought is dropped without the lock.
            drop(state);
            return Err(error);
        }
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
        if !wait {
            state.settle()?;
        }
        self.kick(&state, change, wait);
        drop(state);
        // A keep-alive that never came into force.
        drop(unused);
        self.reap_later();
        Ok(match wait {
            true => Pending::Change(change),
            false => Pending::Done,
        })
    }

    /// Changes a queue and waits until the change is in force.
    ///
    /// # Errors
    ///
    /// As [`Machine::begin_update`] and [`Machine::wait`].
    pub(super) fn update_queue(
        self: &Arc<Self>,
        proc: u64,
        queue: u64,
        update: QueueUpdate,
    ) -> Result {
        match self.begin_update(proc, queue, update)? {
            Pending::Done => Ok(()),
            Pending::Change(change) => self.wait(change, Sleep::Killable),
        }
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
        self.doomed(state, change, wait)
    }

    /// Takes a queue off the hardware and forgets it. A queue that is not there is no error.
    ///
    /// # Errors
    ///
    /// As [`Machine::detach`].
    pub(super) fn destroy_queue(self: &Arc<Self>, proc: u64, queue: u64) -> Result {
        let result = match self.doom_queue(proc, queue, false) {
            Pending::Done => Ok(()),
            Pending::Change(change) => self.wait(change, Sleep::Killable),
        };
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
        let health = self.health();
        let mut state = self.state.lock();
        let change = state.next_change();
        let rec = state.proc_mut(proc)?;
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
    // MAP_QUEUES names the write pointer by dwords.
    if spec.priority > MAX_PRIORITY || spec.percent > 100 || !is_aligned(spec.wptr, 4) {
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
