// SPDX-License-Identifier: GPL-2.0

//! What becomes of the queues when the engines are reset, when the system sleeps, and at the end.
//!
//! After a reset everything that the hardware was doing is over. Queues that could save themselves go on where
//! they were. For others the driver stores the pointers that it read from the hardware, so that
//! what was executed is not executed again. A queue that is at fault does not run again, and its
//! owner is notified. At fault is
//!
//! - the one that the firmware named when it gave up, and
//! - one that refused to stop while another one obeyed: then it was not the command processor that
//!   was dead.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    backend::Backend,
    desired::state::{
        Refusal,
        State, //
    },
    diag::trace,
    failure::Failure,
    lifecycle::{
        Event,
        Lifecycle, //
    },
    worker::Worker, //
};
use crate::gpu::salvage::{
    Outcome,
    SavedQueue, //
};

/// Whether the command processor still took a queue off.
fn any_obeyed(saved: &[SavedQueue]) -> bool {
    saved.iter().any(|queue| queue.outcome == Outcome::Saved)
}

/// Notes where queues stand and which are at fault. Returns how many are.
///
/// # Errors
///
/// Of writing a descriptor: the device is lost or gone.
pub(super) fn note_reset(
    state: &mut State,
    saved: &[SavedQueue],
    failure: &Failure,
    when: Refusal,
) -> Result<usize> {
    let obeyed = any_obeyed(saved);
    let mut guilty = 0;
    for found in saved {
        let named = failure.named_queue() == Some(found.doorbell);
        if named || (obeyed && found.outcome == Outcome::Refused) {
            guilty += usize::from(state.mark_hung(found.doorbell, when));
        }
        if found.outcome != Outcome::Saved {
            begin_at(state, found)?;
        }
    }
    // The firmware may have taken it off before it gave up.
    if let Some(doorbell) = failure.named_queue() {
        if !saved.iter().any(|found| found.doorbell == doorbell) {
            guilty += usize::from(state.mark_hung(doorbell, when));
        }
    }
    Ok(guilty)
}

fn begin_at(state: &State, found: &SavedQueue) -> Result {
    for proc in state.procs.values() {
        for queue in proc.queues.values() {
            // Doorbells are of one queue each, while it exists.
            if queue.spec.doorbell.dword() == found.doorbell && queue.phase.on_hardware() {
                return queue.mqd.begin_at(&queue.spec, found.rptr, found.wptr);
            }
        }
    }
    Ok(())
}

impl Worker {
    /// Takes the scheduler into service again after the engines were reset.
    ///
    /// # Errors
    ///
    /// As [`Worker::after_reset`], and of writing descriptors.
    pub(super) fn recover(self: &Arc<Self>, saved: &[SavedQueue], failure: &Failure) -> Result {
        let when = self.core.refusal();
        let guilty = note_reset(&mut self.core.state.lock(), saved, failure, when)?;
        self.after_reset()?;
        self.core.counters.resets.inc();
        pr_info!(
            "scheduler: in service again after a reset; {} queues were on the hardware, {} at fault\n",
            saved.len(),
            guilty
        );
        Ok(())
    }

    /// Notes the processes that a reset of the chip is held against, see [`super::Scheduler::note_chip_reset`].
    ///
    /// Where several SDMA queues do not stop and one of them is named, that one is at fault: the others may wait for its
    /// engine.
    pub(super) fn note_chip_reset(&self, saved: &[SavedQueue], failure: &Failure) {
        let core = &self.core;
        let when = core.refusal();
        let asic = core.platform.asic();
        let note = |doorbell| {
            let told = core.state.lock().note_chip_reset(doorbell, asic, when);
            if let Some((pid, pasid)) = told {
                core.platform.warn(fmt!(
                    "an SDMA queue of pid {pid} (pasid {pasid}) takes a reset of the chip: it gets no SDMA queues any more"
                ));
            }
        };
        let named = failure.named_queue();
        named.inspect(|doorbell| note(*doorbell));
        if !named.is_some_and(|doorbell| core.state.lock().is_copying(doorbell)) {
            for found in saved {
                let copies = core.state.lock().is_copying(found.doorbell);
                if copies && found.outcome == Outcome::Refused {
                    note(found.doorbell);
                }
            }
        }
        core.report_barred();
    }

    /// Takes the scheduler into service again after the device was reset: nothing runs on it and
    /// the HIQ is not connected.
    ///
    /// # Errors
    ///
    /// As [`Worker::new`]; the scheduler stays out of service then. `ENODEV` if it is gone, `EBUSY` if the
    /// hardware must not be touched now, because it is suspended.
    pub(crate) fn after_reset(self: &Arc<Self>) -> Result {
        {
            let mut backend = self.backend.lock();
            match self.core.life() {
                Lifecycle::Gone => return Err(ENODEV),
                life if life.is_suspended() => return Err(EBUSY),
                _ => {}
            }
            self.restart(&mut backend)?;
        }
        self.core.hand_off();
        Ok(())
    }

    /// Connects `backend` to hardware on which nothing runs, and goes on.
    fn restart(self: &Arc<Self>, backend: &mut Backend) -> Result {
        let core = &self.core;
        backend.forget()?;
        backend.start(&*core.platform, &core.config)?;
        trace::all_off(core);
        let mut state = core.state.lock();
        // It was shut down meanwhile, and the hardware will be stopped.
        if core.life().is_shut_down() {
            return Err(ENODEV);
        }
        state.all_stopped();
        let applied = state.settle()?;
        core.publish(applied);
        core.advance(&mut state, Event::Restarted).ok_or(EBUSY)?;
        let change = state.next_change();
        self.kick(&state, change, false);
        Ok(())
    }

    /// Leaves the scheduler out of service for good.
    pub(super) fn abandon(&self) {
        let backend = self.backend.lock();
        if self.core.life().takes_changes() {
            self.core.mark_failed(&Failure::Device(EIO));
        }
        self.core.give_up();
        drop(backend);
    }

    /// Takes everything off the hardware and leaves it alone.
    ///
    /// A scheduler that is out of service is left alone likewise, and stays out of service.
    ///
    /// # Errors
    ///
    /// `EIO`: the queues do not leave the hardware; the scheduler is out of service then. `EBUSY`: it is about
    /// to be brought back, which must not meet the end of the hardware half way.
    pub(super) fn suspend(self: &Arc<Self>) -> Result {
        let core = &self.core;
        let result = {
            let mut backend = self.backend.lock();
            let result = match core.life() {
                Lifecycle::Running => backend
                    .stop(core)
                    .and_then(|()| self.publish_stopped())
                    .inspect_err(|failure| core.mark_failed(failure)),
                // There is nothing that could be taken off.
                _ => Ok(()),
            };
            if result.is_ok() {
                core.advance(&mut core.state.lock(), Event::Suspended)
                    .ok_or(EBUSY)?;
            }
            result
        };
        // The watchdog may have begun to read the slots before.
        drop(core.watchdog_lock.lock());
        core.hand_off();
        result.map_err(|failure| {
            self.report_failure(&failure);
            EIO
        })
    }

    /// Wakes all that wait for queues to be off, as all of them are: the worker, which would, leaves
    /// hardware that is suspended alone.
    fn publish_stopped(&self) -> Result<(), Failure> {
        let settled = self.core.state.lock().settle();
        self.core.publish(settled.map_err(Failure::Device)?);
        Ok(())
    }

    /// Goes on after [`Worker::suspend`].
    ///
    /// # Errors
    ///
    /// As [`Worker::after_reset`]; the scheduler is out of service then.
    pub(super) fn resume(self: &Arc<Self>) -> Result {
        let core = &self.core;
        let result = {
            let mut backend = self.backend.lock();
            if core.life() != Lifecycle::Suspended {
                core.advance(&mut core.state.lock(), Event::Resumed);
                return Ok(());
            }
            self.restart(&mut backend)
                .inspect_err(|error| core.mark_failed(&Failure::Device(*error)))
        };
        match result {
            Ok(()) => core.hand_off(),
            Err(error) => self.report_failure(&Failure::Device(error)),
        }
        result
    }

    /// Takes everything off the hardware and refuses further changes. Idempotent; bounded.
    ///
    /// Afterwards the worker is gone. If the firmware did not agree, what the hardware may still use
    /// is kept until [`Worker::release`]; else records are freed as their owners drop them.
    pub(super) fn shutdown(self: &Arc<Self>) {
        let core = &self.core;
        let (before, queue) = {
            let mut state = core.state.lock();
            if matches!(core.life(), Lifecycle::Stopping | Lifecycle::Unreleased) {
                return;
            }
            let before = core.advance(&mut state, Event::ShutDown);
            (before, state.queue.take())
        };
        // The worker shall not wait for further additions.
        core.mark_urgent(u64::MAX);
        let last = core.notes.lock().close();
        // Finishes what runs; nothing can be queued any more.
        drop((queue, last));
        let result = {
            let mut backend = self.backend.lock();
            match core.life() {
                // Nothing is on the hardware, and it must not be touched.
                Lifecycle::Stopping if before == Some(Lifecycle::Suspended) => Ok(()),
                Lifecycle::Stopping => backend.stop(core),
                Lifecycle::Gone => Ok(()),
                // Whatever went wrong was reported then.
                _ => {
                    core.set_reset_hook(None);
                    return;
                }
            }
        };
        core.set_reset_hook(None);
        match result {
            Ok(()) => self.release(),
            Err(failure) => {
                core.platform
                    .err(fmt!("shut down without the firmware's consent: {failure}"));
                let mut state = core.state.lock();
                state.mark_lost();
                core.advance(&mut state, Event::Failed { reset: false });
            }
        }
    }

    /// Frees what the hardware may have used: nothing runs on it any more.
    ///
    /// The end of a [`Worker::shutdown`] to which the firmware agreed. If it did not, the caller that
    /// stops the hardware calls this afterwards. Idempotent.
    pub(super) fn release(&self) {
        let core = &self.core;
        let garbage = {
            let mut state = core.state.lock();
            state.all_stopped();
            let applied = state.settle();
            // Without the device no descriptor can be written, and none is needed.
            core.publish(applied.unwrap_or_else(|_| state.newest_change()));
            core.advance(&mut state, Event::Released);
            state.take_garbage()
        };
        drop(garbage);
    }
}
