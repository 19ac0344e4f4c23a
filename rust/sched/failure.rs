// SPDX-License-Identifier: GPL-2.0

//! Why the hardware did not follow, and the hook that resets it.

use kernel::{
    fmt,
    prelude::*, //
};

use super::notes::Halt;

/// Why the hardware did not follow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    /// The fence of a preemption did not come. `refused` is what the HIQ's descriptor says.
    Timeout {
        /// Doorbell of a queue that refused, or 0.
        refused: u32,
    },
    /// The firmware has a list and does not answer.
    Unresponsive,
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
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Device(error) | Self::Build(error) if *error == ENODEV)
    }

    /// Doorbell of the queue that the firmware named, dword index on BAR2.
    pub(crate) fn named_queue(&self) -> Option<u32> {
        match *self {
            Self::Timeout { refused } if refused != 0 => Some(refused),
            Self::Refused { doorbell } => Some(doorbell),
            _ => None,
        }
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
            Self::Unresponsive => f.write_str("the firmware does not answer"),
            Self::Refused { doorbell } => {
                write!(f, "queue {doorbell:#x} refused preemption")
            }
            Self::RingFull => f.write_str("the firmware takes no packets"),
            Self::Build(error) => write!(f, "no packets could be built ({error:?})"),
            Self::Device(error) => write!(f, "the device does not answer ({error:?})"),
        }
    }
}

/// Called when the hardware does not follow, to reset it.
///
/// Called without any lock of the scheduler. After the reset
/// [`Scheduler::recover`](super::Scheduler::recover) takes the scheduler into service again.
pub(crate) trait ResetHook: Send + Sync {
    /// The scheduler is out of service. Called by the worker, for which no change waits any more.
    fn wedged(&self, failure: &Failure);

    /// The queue of address space `pasid` with doorbell `doorbell` (dword index on the doorbell BAR)
    /// hung and was reset. It does not run again; all others go on.
    fn queue_hung(&self, _pasid: u16, _doorbell: u32) {}

    /// A queue stopped at a packet that cannot be executed, and does not run again.
    fn queue_halted(&self, _halt: &Halt) {}
}
