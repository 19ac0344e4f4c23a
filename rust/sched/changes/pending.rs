// SPDX-License-Identifier: GPL-2.0

//! Changes that take memory from the hardware, and the wait for their end.

use kernel::sync::{
    lock::{
        mutex::MutexBackend,
        Guard, //
    },
    Arc, //
};

use crate::sched::{
    desired::state::State,
    worker::Worker, //
};

/// A change that may have to wait for the hardware.
#[derive(Debug)]
#[must_use = "memory of the hardware may only be released after the wait"]
pub(in crate::sched) enum Pending {
    /// The hardware has nothing to do with it, or is done with it.
    Done,
    /// Wait for this change.
    Change(u64),
}

impl Worker {
    /// Common end of the changes that destroy a queue or detach a process. `wait`: the hardware uses it.
    pub(super) fn finish_destroy(
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
        self.core.hand_off();
        Pending::Done
    }
}
