// SPDX-License-Identifier: GPL-2.0

//! The hardware side: the steps that move the hardware towards the desired state.
//!
//! There are two ways to do it: [`Hws`] hands runlists to the scheduler firmware, [`Direct`]
//! loads each queue by registers. Which one a scheduler has is decided by its
//! [`Policy`].
//!
//! A [`Backend`] is only used by one thread at a time (it is the content of the scheduler's outer
//! mutex). Its steps wait for the device; they take the state lock for bookkeeping before and
//! after a wait, never across it, and allocate nothing.

pub(super) mod direct;
pub(super) mod fence;
pub(super) mod hiq;
pub(super) mod hws;
pub(super) mod load;
pub(super) mod packets;
pub(super) mod runlist;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use self::{
    direct::Direct,
    hws::Hws, //
};
use super::{
    config::{
        Config,
        Policy, //
    },
    core::SchedCore,
    failure::Failure,
    platform::Platform, //
};

/// The hardware side of a scheduler.
#[expect(clippy::large_enum_variant, reason = "there is one per GPU")]
pub(super) enum Backend {
    /// With scheduler firmware.
    Hws(Hws),
    /// Without.
    Direct(Direct),
}

impl Backend {
    /// Allocates what the back end needs. Nothing is sent.
    ///
    /// # Errors
    ///
    /// Of [`Platform::alloc`].
    pub(super) fn new(platform: &dyn Platform, config: &Config) -> Result<Self> {
        Ok(match config.policy {
            Policy::Oversubscribe | Policy::Strict => Self::Hws(Hws::new(platform)?),
            Policy::Direct => Self::Direct(Direct::new()),
        })
    }

    /// Takes the hardware into service.
    ///
    /// # Errors
    ///
    /// Those of [`Hws::start`] or [`Direct::start`].
    pub(super) fn start(&mut self, platform: &dyn Platform, config: &Config) -> Result {
        match self {
            Self::Hws(hws) => hws.start(platform, config),
            Self::Direct(direct) => direct.start(platform),
        }
    }

    /// Asks for an answer.
    ///
    /// # Errors
    ///
    /// As [`Backend::start`].
    pub(super) fn handshake(&mut self, platform: &dyn Platform, config: &Config) -> Result {
        match self {
            Self::Hws(hws) => hws.handshake(platform, config),
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
            Self::Hws(hws) => hws.forget(),
            Self::Direct(direct) => {
                direct.forget();
                Ok(())
            }
        }
    }

    /// Takes one step after the other until hardware and desired state agree.
    ///
    /// # Errors
    ///
    /// Why the hardware could not follow. The caller marks the scheduler as out of service.
    pub(super) fn converge(&mut self, core: &Arc<SchedCore>) -> Result<(), Failure> {
        match self {
            Self::Hws(hws) => hws.converge(core),
            Self::Direct(direct) => direct.converge(core),
        }
    }

    /// Takes everything off the hardware, for shutdown.
    ///
    /// # Errors
    ///
    /// As [`Backend::converge`].
    pub(super) fn stop(&mut self, core: &SchedCore) -> Result<(), Failure> {
        match self {
            Self::Hws(hws) => hws.stop(core),
            Self::Direct(direct) => direct.stop(core),
        }
    }
}
