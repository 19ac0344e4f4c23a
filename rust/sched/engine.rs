// SPDX-License-Identifier: GPL-2.0

//! The hardware side: the steps that move the hardware towards the desired state.
//!
//! There are two ways to do it: [`Firmware`] hands runlists to the scheduler firmware, [`Direct`]
//! loads each queue by registers. Which one a scheduler has is decided by its
//! [`Policy`](super::params::Policy).
//!
//! An [`Engine`] is only used by one thread at a time (it is the content of the scheduler's outer
//! mutex). Its steps wait for the device; they take the state lock for bookkeeping before and
//! after a wait, never across it, and allocate nothing.

mod direct;
mod firmware;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use self::{
    direct::Direct,
    firmware::Firmware, //
};
use super::{
    health::Failure,
    machine::Machine,
    params::{
        Config,
        Policy, //
    },
    platform::Platform, //
};

/// The hardware side of a scheduler.
#[expect(clippy::large_enum_variant, reason = "there is one per GPU")]
pub(super) enum Engine {
    /// With scheduler firmware.
    Firmware(Firmware),
    /// Without.
    Direct(Direct),
}

impl Engine {
    /// Allocates what the back end needs. Nothing is sent.
    ///
    /// # Errors
    ///
    /// Of [`Platform::alloc`].
    pub(super) fn new(platform: &dyn Platform, config: &Config) -> Result<Self> {
        Ok(match config.policy {
            Policy::Oversubscribe | Policy::Strict => Self::Firmware(Firmware::new(platform)?),
            Policy::Direct => Self::Direct(Direct::new()),
        })
    }

    /// Takes the hardware into service.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the firmware does not answer, `EIO` and `ENODEV` as [`Platform`].
    pub(super) fn start(&mut self, platform: &dyn Platform, config: &Config) -> Result {
        match self {
            Self::Firmware(engine) => engine.start(platform, config),
            Self::Direct(engine) => engine.start(platform),
        }
    }

    /// Asks for a sign of life.
    ///
    /// # Errors
    ///
    /// As [`Engine::start`].
    pub(super) fn handshake(&mut self, platform: &dyn Platform, config: &Config) -> Result {
        match self {
            Self::Firmware(engine) => engine.handshake(platform, config),
            Self::Direct(_) => platform.check(),
        }
    }

    /// Forgets what was in flight, after the device was reset.
    ///
    /// # Errors
    ///
    /// `ENODEV`.
    pub(super) fn forget(&mut self) -> Result {
        match self {
            Self::Firmware(engine) => engine.forget(),
            Self::Direct(engine) => {
                engine.forget();
                Ok(())
            }
        }
    }

    /// Takes one step after the other until hardware and desired state agree.
    ///
    /// # Errors
    ///
    /// Why the hardware could not follow. The caller marks the scheduler as wedged.
    pub(super) fn converge(&mut self, machine: &Arc<Machine>) -> Result<(), Failure> {
        match self {
            Self::Firmware(engine) => engine.converge(machine),
            Self::Direct(engine) => engine.converge(machine),
        }
    }

    /// Takes everything off the hardware, for shutdown.
    ///
    /// # Errors
    ///
    /// As [`Engine::converge`].
    pub(super) fn stop(&mut self, machine: &Machine) -> Result<(), Failure> {
        match self {
            Self::Firmware(engine) => engine.stop(machine),
            Self::Direct(engine) => engine.stop(machine),
        }
    }
}
