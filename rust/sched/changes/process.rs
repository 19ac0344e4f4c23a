// SPDX-License-Identifier: GPL-2.0

//! Changes of processes: attach, new address space or trap handler, debugger, detach.

use kernel::{
    prelude::*,
    rbtree::RBTreeNode,
    sync::Arc, //
};

use super::pending::Pending;
use crate::{
    hw::{
        num::{
            index,
            is_aligned, //
        },
        pm4::process::Debug, //
    },
    kapi::{
        task,
        waitqueue::Sleep, //
    },
    sched::{
        config::Policy,
        desired::process::ProcRec,
        params::ProcessParams,
        worker::Worker, //
    }, //
};

impl Worker {
    /// Adds a process. Returns its id. What is held against the caller is held against it, see [`Conduct`](crate::gpu::conduct::Conduct).
    ///
    /// # Errors
    ///
    /// `EINVAL`: PASID 0, or a trap handler that is not 256-byte aligned. `EBUSY`: the PASID is
    /// attached. `ENOSPC`: the limit of processes is reached. `ENOMEM`, `EIO`, `ENODEV`.
    pub(in crate::sched) fn attach(&self, params: ProcessParams) -> Result<u64> {
        self.core.check()?;
        check_trap(&params)?;
        if params.pasid == 0 {
            return Err(EINVAL);
        }
        let id = self.core.new_id();
        let pasid = params.pasid;
        let standing = self.core.platform.standing()?;
        let rec = ProcRec::new(params, task::current_tgid(), standing);
        let node = RBTreeNode::new(id, rec, GFP_KERNEL_ACCOUNT)?;
        let mut state = self.core.state.lock();
        if self.core.life().is_shut_down() {
            return Err(ENODEV);
        }
        if state.has_pasid(pasid) {
            drop(state);
            return Err(EBUSY);
        }
        if state.procs.values().count() >= index(self.core.config.max_processes) {
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
    /// `EINVAL`: a trap handler that is not 256-byte aligned. `ESRCH`: detached. `EIO`, `ENODEV`.
    pub(in crate::sched) fn update_process(
        self: &Arc<Self>,
        proc: u64,
        f: impl FnOnce(&mut ProcessParams),
    ) -> Result {
        self.core.check()?;
        let mut state = self.core.state.lock();
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
            // A descriptor says whether there is a handler for the waves of its queue.
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
        self.core.hand_off();
        settled
    }

    /// Begins to detach a process with all its queues.
    pub(in crate::sched) fn begin_detach(self: &Arc<Self>, proc: u64, orphan: bool) -> Pending {
        let mut state = self.core.state.lock();
        let change = state.next_change();
        let Ok(rec) = state.proc_mut(proc) else {
            return Pending::Done;
        };
        rec.destroyed = true;
        rec.orphan = orphan;
        let wait = rec.require_off(change);
        self.finish_destroy(state, change, wait)
    }

    /// Takes all queues of a process off the hardware and forgets it.
    ///
    /// # Errors
    ///
    /// As [`SchedCore::wait`](crate::sched::core::SchedCore::wait), except that a scheduler that is gone has reached the goal. After an error
    /// the record, with all that it keeps alive, stays until the hardware is done with it.
    pub(in crate::sched) fn detach(self: &Arc<Self>, proc: u64) -> Result {
        let result = match self.begin_detach(proc, false) {
            Pending::Done => Ok(()),
            // An address space ends in the task that drops the last reference, which may have been killed
            // for that very reason. Its pages go next, so the wait is not to be cut short; it is
            // bounded.
            Pending::Change(change) => self.core.wait(change, Sleep::Uninterruptible),
        };
        let node = {
            let mut state = self.core.state.lock();
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

    /// Sets the words of a debugger and whether there is a debug interface queue, and waits until that is in force.
    ///
    /// # Errors
    ///
    /// `ENODEV`: no firmware schedules the device. `ESRCH`; else as [`SchedCore::wait`](crate::sched::core::SchedCore::wait).
    pub(in crate::sched) fn set_debug(
        self: &Arc<Self>,
        proc: u64,
        debug: Debug,
        diq: bool,
    ) -> Result {
        match self.begin_debug(proc, debug, diq)? {
            Pending::Done => Ok(()),
            Pending::Change(change) => self.core.wait(change, Sleep::Killable),
        }
    }

    /// Sets the words of a debugger and whether there is a debug interface queue. Returns the change to wait for.
    ///
    /// # Errors
    ///
    /// As [`Worker::set_debug`].
    pub(in crate::sched) fn begin_debug(
        self: &Arc<Self>,
        proc: u64,
        debug: Debug,
        diq: bool,
    ) -> Result<Pending> {
        self.core.check()?;
        if self.core.config.policy == Policy::Direct {
            return Err(ENODEV);
        }
        let mut state = self.core.state.lock();
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
}

/// Checks what MAP_PROCESS names in units of 256 bytes.
fn check_trap(params: &ProcessParams) -> Result {
    if !is_aligned(params.tba, 256) || !is_aligned(params.tma, 256) {
        return Err(EINVAL);
    }
    Ok(())
}
