// SPDX-License-Identifier: GPL-2.0

//! Causes that keep the queues of a process from running: evict and restore.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::pending::Pending;
use crate::{
    kapi::waitqueue::Sleep,
    sched::{
        params::EvictCause,
        worker::Worker, //
    }, //
};

impl Worker {
    /// Notes a cause to keep the queues of a process from running. Returns the change to wait for.
    ///
    /// # Errors
    ///
    /// `ESRCH`, `EOVERFLOW`, `EIO`, `ENODEV`.
    pub(in crate::sched) fn begin_evict(
        self: &Arc<Self>,
        proc: u64,
        cause: EvictCause,
    ) -> Result<Pending> {
        let mut state = self.core.state.lock();
        // Under the lock, as it changes: a scheduler that comes back maps queues again.
        let checked = self.core.check();
        let change = state.next_change();
        // One that is being detached may be on the hardware still; when it is not, the record is gone.
        let rec = state.procs.get_mut(&proc).ok_or(ESRCH)?;
        let first = !rec.is_evicted();
        rec.evict(cause)?;
        if first {
            self.core.counters.evictions.inc();
        }
        let mut wait = false;
        for queue in rec.queues.values_mut() {
            wait |= queue.require_off(change);
        }
        if !wait {
            return Ok(Pending::Done);
        }
        // The cause is counted even if the hardware cannot follow, so that `restore` balances it.
        checked?;
        self.kick(&state, change, true);
        Ok(Pending::Change(change))
    }

    /// Takes the queues of a process off the hardware until [`Worker::restore`]. Allocates nothing.
    ///
    /// The cause counts even if an error is returned.
    ///
    /// # Errors
    ///
    /// As [`Worker::begin_evict`] and [`SchedCore::wait`](crate::sched::core::SchedCore::wait).
    pub(in crate::sched) fn evict(self: &Arc<Self>, proc: u64, cause: EvictCause) -> Result {
        match self.begin_evict(proc, cause)? {
            Pending::Done => Ok(()),
            Pending::Change(change) => self.core.wait(change, Sleep::Uninterruptible),
        }
    }

    /// Takes back one [`Worker::evict`]. When no cause is left the queues run again soon.
    ///
    /// # Errors
    ///
    /// `EINVAL`: not evicted for this cause. `ESRCH`: detached. `EIO`, `ENODEV`.
    pub(in crate::sched) fn restore(self: &Arc<Self>, proc: u64, cause: EvictCause) -> Result {
        let mut state = self.core.state.lock();
        let change = state.next_change();
        let rec = state.proc_mut(proc)?;
        if rec.restore(cause)? {
            self.core.counters.restores.inc();
            if rec.wanted_queues() > 0 {
                self.kick(&state, change, false);
            }
        }
        drop(state);
        self.core.check()
    }
}
