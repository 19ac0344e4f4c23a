// SPDX-License-Identifier: GPL-2.0

//! What becomes of the queues when the engines are reset, and when the system sleeps.
//!
//! Everything that the hardware was doing is over. Queues that could save themselves go on where
//! they were. For others the driver stores the pointers that it read from the hardware, so that
//! what was executed is not executed again. A queue that is to blame does not run again, and its
//! owner is told; to blame is
//!
//! - the one that the firmware named when it gave up, and
//! - one that refused to stop while another one obeyed: then it was not the command processor that
//!   was dead.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Release, //
        },
        Arc, //
    }, //
};

use super::{
    health::{
        Failure,
        Health, //
    },
    machine::Machine,
    state::State, //
};
use crate::gpu::salvage::{
    Outcome,
    SavedQueue, //
};

/// Whether the command processor still obeyed somebody.
fn somebody_obeyed(saved: &[SavedQueue]) -> bool {
    saved.iter().any(|queue| queue.outcome == Outcome::Saved)
}

impl Failure {
    /// Doorbell of the queue that the firmware blamed, dword index on BAR2.
    fn blamed(&self) -> Option<u32> {
        match *self {
            Self::Timeout { refused } if refused != 0 => Some(refused),
            Self::Refused { doorbell } => Some(doorbell),
            _ => None,
        }
    }
}

impl State {
    /// Notes where queues stand and which are to blame. Returns how many are.
    ///
    /// # Errors
    ///
    /// Of writing a descriptor: the device is lost or gone.
    pub(super) fn note_reset(&mut self, saved: &[SavedQueue], failure: &Failure) -> Result<usize> {
        let obeyed = somebody_obeyed(saved);
        let mut guilty = 0;
        for found in saved {
            let blamed = failure.blamed() == Some(found.doorbell);
            if blamed || (obeyed && found.outcome == Outcome::Refused) {
                guilty += usize::from(self.condemn(found.doorbell));
            }
            if found.outcome != Outcome::Saved {
                self.begin_at(found)?;
            }
        }
        // The firmware may have taken it off before it gave up.
        if let Some(doorbell) = failure.blamed() {
            if !saved.iter().any(|found| found.doorbell == doorbell) {
                guilty += usize::from(self.condemn(doorbell));
            }
        }
        Ok(guilty)
    }

    fn begin_at(&mut self, found: &SavedQueue) -> Result {
        for proc in self.procs.values() {
            for queue in proc.queues.values() {
                // Doorbells are of one queue each, while it exists.
                if queue.spec.doorbell.dword() == found.doorbell && queue.phase.on_hardware() {
                    return queue.mqd.begin_at(&queue.spec, found.rptr, found.wptr);
                }
            }
        }
        Ok(())
    }
}

impl Machine {
    /// Takes the scheduler into service again after the engines were reset.
    ///
    /// # Errors
    ///
    /// As [`Machine::after_reset`], and of writing descriptors.
    pub(super) fn recover(self: &Arc<Self>, saved: &[SavedQueue], failure: &Failure) -> Result {
        let guilty = self.state.lock().note_reset(saved, failure)?;
        self.after_reset()?;
        self.counters.resets.inc();
        pr_info!(
            "scheduler: in service again after a reset; {} queues were on the hardware, {} to blame\n",
            saved.len(),
            guilty
        );
        Ok(())
    }

    /// Whether the hardware must not be touched.
    pub(super) fn is_parked(&self) -> bool {
        self.parked.load(Acquire)
    }

    /// Takes everything off the hardware and leaves it alone.
    ///
    /// A scheduler that is out of service is left alone likewise, and stays out of service.
    ///
    /// # Errors
    ///
    /// `EIO`: the hardware does not let go; the scheduler is wedged then. `EBUSY`: it is wedged and
    /// about to be brought back, which must not meet the end of the hardware half way.
    pub(super) fn suspend(self: &Arc<Self>) -> Result {
        let result = {
            let mut engine = self.engine.lock();
            if self.is_parked() {
                return Ok(());
            }
            let result = match self.health() {
                Health::Running => engine
                    .stop(self)
                    .and_then(|()| self.tell_stopped())
                    .inspect_err(|failure| self.mark_failed(failure)),
                Health::Wedged if self.recovering.load(Acquire) => return Err(EBUSY),
                // There is nothing that could be taken off.
                Health::Wedged | Health::Gone => Ok(()),
            };
            self.parked.store(result.is_ok(), Release);
            result
        };
        // A look at the hardware that began before.
        drop(self.looks.lock());
        self.hand_off();
        result.map_err(|failure| {
            self.report_failure(&failure);
            EIO
        })
    }

    /// Tells those who wait for queues to be off that all of them are: the worker, which would, leaves
    /// hardware that is suspended alone.
    fn tell_stopped(&self) -> Result<(), Failure> {
        let settled = self.state.lock().settle();
        self.publish(settled.map_err(Failure::Device)?);
        Ok(())
    }

    /// Goes on after [`Machine::suspend`].
    ///
    /// # Errors
    ///
    /// As [`Machine::after_reset`]; the scheduler is wedged then.
    pub(super) fn resume(self: &Arc<Self>) -> Result {
        let result = {
            let mut engine = self.engine.lock();
            let was_parked = self.is_parked();
            self.parked.store(false, Release);
            if !was_parked || self.health() != Health::Running {
                return Ok(());
            }
            self.restart(&mut engine)
                .inspect_err(|error| self.mark_failed(&Failure::Device(*error)))
        };
        match result {
            Ok(()) => self.hand_off(),
            Err(error) => self.report_failure(&Failure::Device(error)),
        }
        result
    }
}
