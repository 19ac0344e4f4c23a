// SPDX-License-Identifier: GPL-2.0

//! The worker: lets the hardware converge to the desired state, through the back end.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};

use super::{
    backend::Backend,
    config::Config,
    core::SchedCore,
    desired::{
        process::ProcRec,
        state::State, //
    },
    diag::dump,
    failure::Failure,
    lifecycle::Lifecycle,
    platform::Platform, //
};
use crate::kapi::workqueue::OwnedQueue;

/// A scheduler's core with the back end that moves its queues, and the work item that does so.
///
/// Callers' changes (`changes/`) and what becomes of the queues in resets and at sleep (`recovery.rs`) are
/// methods of it.
#[pin_data]
pub(crate) struct Worker {
    /// What all parts share.
    pub(super) core: Arc<SchedCore>,
    #[pin]
    pub(super) backend: Mutex<Backend>,
    #[pin]
    converge: Work<Worker, 0>,
    #[pin]
    notes: Work<Worker, 3>,
}

impl_has_work! {
    impl HasWork<Self, 0> for Worker { self.converge }
    impl HasWork<Self, 3> for Worker { self.notes }
}

impl WorkItem<0> for Worker {
    type Pointer = Arc<Worker>;

    fn run(this: Arc<Worker>) {
        this.converge();
    }
}

impl Worker {
    /// Makes a scheduler that runs, or, without a `queue`, one that its owner drives by
    /// [`Worker::converge`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENOSPC`, `ETIMEDOUT` if the firmware does not answer, `EIO`, `ENODEV`.
    pub(super) fn new(
        platform: Arc<dyn Platform>,
        config: Config,
        queue: Option<OwnedQueue>,
    ) -> Result<Arc<Self>> {
        let core = SchedCore::new(platform, config, queue)?;
        let mut backend = Backend::new(&*core.platform, &core.config)?;
        backend.start(&*core.platform, &core.config)?;
        Arc::pin_init(
            pin_init!(Self {
                core,
                backend <- new_mutex!(backend, "rkfd_sched_backend"),
                converge <- new_work!("rkfd_sched_converge"),
                notes <- new_work!("rkfd_sched_notes"),
            }),
            GFP_KERNEL,
        )
    }

    /// Asks the worker to run. `urgent`: the caller waits, or will, for `change`.
    pub(super) fn kick(self: &Arc<Self>, state: &State, change: u64, urgent: bool) {
        self.core.counters.changes.inc();
        if urgent {
            // Changes are numbered under the state lock, which the caller holds, so they only grow.
            self.core.mark_urgent(change);
        }
        if !self.enqueue(state) {
            self.core.counters.coalesced.inc();
        }
    }

    /// Has the worker look at the state. Returns false if it will anyway: it is queued, and has not
    /// looked yet.
    fn enqueue(self: &Arc<Self>, state: &State) -> bool {
        match &state.queue {
            Some(queue) => queue.enqueue::<Arc<Self>, 0>(self.clone()).is_ok(),
            // Its owner drives it.
            None => true,
        }
    }

    /// Moves the hardware to the desired state. Returns when both agree or the hardware does not follow.
    pub(super) fn converge(self: &Arc<Self>) {
        let result = {
            let mut backend = self.backend.lock();
            if self.core.life() != Lifecycle::Running {
                return;
            }
            // The next user of the back end must find it out of service.
            backend
                .converge(&self.core)
                .inspect_err(|failure| self.core.mark_failed(failure))
        };
        self.core.hand_off();
        if let Err(failure) = result {
            self.report_failure(&failure);
        }
    }

    /// Waits until everything is as the newest change wants it, if changes are not collected.
    ///
    /// # Errors
    ///
    /// As [`SchedCore::wait`].
    pub(super) fn end_serialized(self: &Arc<Self>) -> Result {
        if self.core.config.coalesce {
            return Ok(());
        }
        let newest = {
            let state = self.core.state.lock();
            let newest = state.newest_change();
            // Another caller may have made it meanwhile, and a change that asks nothing of the hardware did
            // not queue the worker.
            if !self.core.is_settled(newest) {
                let _ = self.enqueue(&state);
            }
            newest
        };
        self.core.wait_settled(newest)
    }

    /// Sends QUERY_STATUS alone and waits for its fence.
    ///
    /// # Errors
    ///
    /// As [`SchedCore::wait`]; `ETIMEDOUT` if the firmware does not answer.
    #[cfg(rkfd_kunit)]
    pub(super) fn ping(&self) -> Result {
        self.core.check()?;
        self.backend
            .lock()
            .handshake(&*self.core.platform, &self.core.config)
    }

    /// Asks the firmware for an answer, if it has a list with queues: a list that it never takes up, and
    /// queues that wait for a turn which does not come, show in no register.
    pub(super) fn probe(&self) {
        let core = &self.core;
        let has_work = {
            let state = core.state.lock();
            // Never without firmware. A list stays when its last queue was taken off alone.
            state.active.is_some() && state.procs.values().any(ProcRec::on_hardware)
        };
        if !has_work {
            return;
        }
        let failure = {
            let mut backend = self.backend.lock();
            if core.life() != Lifecycle::Running {
                return;
            }
            let Err(error) = backend.handshake(&*core.platform, &core.config) else {
                return;
            };
            let failure = match error == ETIMEDOUT {
                true => {
                    core.counters.timeouts.inc();
                    Failure::Unresponsive
                }
                false => Failure::Device(error),
            };
            // The next user of the back end must find it out of service.
            core.mark_failed(&failure);
            failure
        };
        self.report_failure(&failure);
    }

    /// Logs why the hardware does not follow, with what it was doing, and calls the hook.
    pub(super) fn report_failure(&self, failure: &Failure) {
        if failure.is_gone() {
            return;
        }
        let platform = &*self.core.platform;
        platform.err(fmt!("{failure}; giving up until a reset"));
        dump::report(&self.core, &mut |line| platform.err(fmt!("{line}")));
        match self.core.reset_hook() {
            Some(hook) => hook.wedged(failure),
            None => self.core.give_up(),
        }
    }
}
