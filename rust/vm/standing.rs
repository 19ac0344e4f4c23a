// SPDX-License-Identifier: GPL-2.0

//! Whether the queues of an address space run, are stopped because memory moves, or cannot be stopped.

use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use crate::kapi::task::ThreadGroup;

/// The queues of an address space, for what moves its memory.
pub(crate) trait VmQueues: Send + Sync {
    /// Takes them off the hardware until [`Self::resume`]; new ones do not run meanwhile either. Allocates nothing; bounded.
    ///
    /// # Errors
    ///
    /// They may still run. It counts nevertheless.
    fn stop(&self) -> Result;

    /// Takes one [`Self::stop`] back.
    fn resume(&self);
}

/// What becomes of queues whose memory moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// They are off the hardware.
    Off,
    /// They run again.
    On,
}

/// Notified when queues stop because memory of their address space moves. Called with locks held: neither sleeps nor
/// allocates.
pub(crate) trait MoveMonitor: Send + Sync {
    /// Memory of `who` moves.
    fn moved(&self, who: &ThreadGroup, what: Moved);
}

/// What of an address space has to do with moves.
pub(super) struct Eviction {
    pub(super) queues: Option<Arc<dyn VmQueues>>,
    /// They are stopped, and entries may be missing.
    pub(super) stopped: bool,
    /// They were to be, and may run on: nothing is moved until they were restored.
    pub(super) running_on: bool,
    /// Memory that is displaced was mapped since the last restore began.
    pub(super) mapped: bool,
    /// When they were last let run.
    pub(super) restored: Option<Instant<Monotonic>>,
    /// How often it could not be restored, one time after the other.
    pub(super) failures: u32,
}

impl Eviction {
    pub(super) const fn new() -> Self {
        Self {
            queues: None,
            stopped: false,
            running_on: false,
            mapped: false,
            restored: None,
            failures: 0,
        }
    }
}

/// Whether queues have to be stopped before memory moves.
pub(super) enum Standing {
    /// None run.
    Idle,
    /// They have run for so long.
    Running(Delta),
}
