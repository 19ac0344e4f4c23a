// SPDX-License-Identifier: GPL-2.0

//! Whether the scheduler takes changes; how it gives up on hardware that does not follow, and who is told.

use kernel::{
    fmt,
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
    dump,
    machine::Machine, //
};

/// Whether the scheduler takes changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Health {
    /// Yes.
    Running,
    /// The firmware does not answer; changes are refused with `EIO` until a reset.
    Wedged,
    /// The device was removed or the scheduler shut down; changes are refused with `ENODEV`.
    Gone,
}

impl Health {
    pub(super) const fn raw(self) -> u32 {
        // CAST: The discriminant of a fieldless enum.
        self as u32
    }

    const fn from_raw(raw: u32) -> Self {
        match raw {
            0 => Self::Running,
            1 => Self::Wedged,
            _ => Self::Gone,
        }
    }

    /// Name in dumps.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Wedged => "wedged",
            Self::Gone => "gone",
        }
    }

    /// What a change is answered with.
    pub(super) fn check(self) -> Result {
        match self {
            Self::Running => Ok(()),
            Self::Wedged => Err(EIO),
            Self::Gone => Err(ENODEV),
        }
    }
}

/// Why the hardware did not follow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    /// The fence of a preemption did not come. `refused` is what the HIQ's descriptor says.
    Timeout {
        /// Doorbell of a queue that refused, or 0.
        refused: u32,
    },
    /// The firmware has a list and gives no sign of life.
    Silent,
    /// The firmware gave up on a queue.
    Refused {
        /// Its doorbell, as the firmware wrote it.
        doorbell: u32,
    },
    /// The firmware does not take packets.
    RingFull,
    /// Packets could not be built; a driver bug, or the device is gone.
    Build(Error),
    /// The device is lost or gone.
    Device(Error),
}

impl Failure {
    /// Whether it means that the device was removed.
    fn is_gone(&self) -> bool {
        matches!(self, Self::Device(error) | Self::Build(error) if *error == ENODEV)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout { refused: 0 } => f.write_str("no answer to a preemption in time"),
            Self::Timeout { refused } => write!(
                f,
                "no answer to a preemption in time, queue {refused:#x} refused it"
            ),
            Self::Silent => f.write_str("the firmware gives no sign of life"),
            Self::Refused { doorbell } => {
                write!(f, "queue {doorbell:#x} refused preemption")
            }
            Self::RingFull => f.write_str("the firmware takes no packets"),
            Self::Build(error) => write!(f, "no packets could be built ({error:?})"),
            Self::Device(error) => write!(f, "the device does not answer ({error:?})"),
        }
    }
}

/// Told when the scheduler gives up on the firmware, so that somebody can reset the device.
///
/// Called without any lock of the scheduler. After the reset [`Machine::after_reset`] takes the
/// scheduler into service again.
pub(crate) trait ResetHook: Send + Sync {
    /// The scheduler is wedged. Called by the worker, for which nobody waits any more.
    fn wedged(&self, failure: &Failure);

    /// The queue of address space `pasid` with doorbell `doorbell` (dword index on the doorbell BAR)
    /// hung and was reset. It does not run again; all others go on.
    fn queue_hung(&self, _pasid: u16, _doorbell: u32) {}
}

impl Machine {
    /// Whether changes are taken.
    pub(crate) fn health(&self) -> Health {
        Health::from_raw(self.health.load(Acquire))
    }

    /// Whom to tell when the scheduler is wedged.
    pub(crate) fn set_reset_hook(&self, hook: Option<Arc<dyn ResetHook>>) {
        let old = core::mem::replace(&mut *self.hook.lock(), hook);
        drop(old);
    }

    /// Stops using hardware that does not follow: sleepers wake up, changes are refused. Called under
    /// `engine`; [`Machine::report_failure`] comes after it, without.
    pub(super) fn mark_failed(&self, failure: &Failure) {
        let gone = failure.is_gone();
        let health = if gone { Health::Gone } else { Health::Wedged };
        let told = !gone && self.hook.lock().is_some();
        self.recovering.store(told, Release);
        {
            let mut state = self.state.lock();
            match gone {
                // Nothing runs on a device that is not there.
                true => {
                    state.all_stopped();
                    // No descriptor can be written any more; nobody needs them.
                    let _ = state.settle();
                }
                false => state.lose(),
            }
            self.health.store(health.raw(), Release);
        }
        self.events.wake_all();
    }

    /// Tells people and the hook why the scheduler gave up.
    pub(super) fn report_failure(&self, failure: &Failure) {
        if failure.is_gone() {
            return;
        }
        self.platform
            .complain(fmt!("{failure}; giving up until a reset"));
        dump::report(self, &mut |line| self.platform.complain(fmt!("{line}")));
        let hook = self.hook.lock().clone();
        match hook {
            Some(hook) => hook.wedged(failure),
            None => self.stays_out(),
        }
    }

    /// Tells those who wait for the scheduler to be brought back that nobody brings it.
    pub(super) fn stays_out(&self) {
        self.recovering.store(false, Release);
        self.events.wake_all();
    }

    /// Whether the firmware does not answer and nobody brought the scheduler back yet.
    pub(super) fn is_wedged(&self) -> bool {
        self.health() == Health::Wedged
    }

    /// Leaves the scheduler out of service: nobody brings it back.
    pub(super) fn abandon(&self) {
        let engine = self.engine.lock();
        if self.health() == Health::Running {
            self.mark_failed(&Failure::Device(EIO));
        }
        self.stays_out();
        drop(engine);
    }
}
