// SPDX-License-Identifier: GPL-2.0

//! The life of a scheduler: one state, and every way from one to another.
//!
//! ```text
//!            Suspended ◄──► Running ──► Recovering ──► Wedged ◄──► WedgedSuspended
//!                 │            │  ▲          │ │          │              │
//!                 │            │  └──────────┘ │          │              │
//!                 ▼            ▼               ▼          ▼              ▼
//!                   Stopping ─────────────────────► Unreleased
//!                      │                                │
//!                      └──────────────► Gone ◄──────────┘
//! ```
//!
//! A device that was removed leads from every state to `Gone`. Pure, and compiled by the host tests
//! (`tools/hw`) as it is.

/// Where a scheduler stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Lifecycle {
    /// Changes are taken and applied.
    Running,
    /// The system sleeps: changes are taken, and the hardware is not touched.
    Suspended,
    /// The hardware did not follow, and a reset was asked for. Changes are refused.
    Recovering,
    /// The hardware did not follow, and it will not be reset. Changes are refused.
    Wedged,
    /// The same, and the system sleeps.
    WedgedSuspended,
    /// Shutdown has begun, and the hardware is being cleared.
    Stopping,
    /// Shut down without the firmware's consent: what the hardware may use is kept until it was stopped.
    Unreleased,
    /// Shut down, or the device was removed. Final.
    Gone,
}

/// What changes the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The hardware did not follow; whether a reset will be asked for.
    Failed {
        /// It will.
        reset: bool,
    },
    /// The scheduler is not brought back.
    Abandoned,
    /// The hardware was brought up anew, with nothing on it.
    Restarted,
    /// The system is about to sleep, and the hardware runs nothing that could be taken off.
    Suspended,
    /// The system is awake.
    Resumed,
    /// Shutdown begins.
    ShutDown,
    /// Nothing runs on the hardware any more, for good.
    Released,
}

impl Lifecycle {
    /// The state after `event`; `None` if it must not happen now.
    pub(crate) const fn after(self, event: Event) -> Option<Self> {
        Some(match (self, event) {
            (_, Event::Released) => Self::Gone,
            (Self::Gone, Event::Restarted) => return None,
            (Self::Gone, _) => Self::Gone,

            (Self::Running | Self::Suspended, Event::Failed { reset: true }) => Self::Recovering,
            (Self::Running | Self::Suspended, Event::Failed { reset: false }) => Self::Wedged,
            (Self::Stopping, Event::Failed { .. }) => Self::Unreleased,
            (_, Event::Failed { .. }) => self,

            (Self::Recovering, Event::Abandoned) => Self::Wedged,
            (_, Event::Abandoned) => self,

            (
                Self::Running | Self::Suspended | Self::Recovering | Self::Wedged,
                Event::Restarted,
            ) => Self::Running,
            (_, Event::Restarted) => return None,

            (Self::Running | Self::Suspended, Event::Suspended) => Self::Suspended,
            (Self::Wedged | Self::WedgedSuspended, Event::Suspended) => Self::WedgedSuspended,
            // The end of the hardware must not meet its reset.
            (Self::Recovering, Event::Suspended) => return None,
            (_, Event::Suspended) => self,

            // Hardware that was suspended is restarted.
            (Self::Suspended, Event::Resumed) => return None,
            (Self::WedgedSuspended, Event::Resumed) => Self::Wedged,
            (_, Event::Resumed) => self,

            (Self::Running | Self::Suspended | Self::Stopping, Event::ShutDown) => Self::Stopping,
            (_, Event::ShutDown) => Self::Unreleased,
        })
    }

    /// The number under which the state is stored.
    pub(crate) const fn raw(self) -> u32 {
        // CAST: The discriminant of a fieldless enum.
        self as u32
    }

    /// The state with a number; one that no state has is the final one.
    pub(crate) const fn from_raw(raw: u32) -> Self {
        match raw {
            0 => Self::Running,
            1 => Self::Suspended,
            2 => Self::Recovering,
            3 => Self::Wedged,
            4 => Self::WedgedSuspended,
            5 => Self::Stopping,
            6 => Self::Unreleased,
            _ => Self::Gone,
        }
    }

    /// Name in dumps.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Suspended => "suspended",
            Self::Recovering => "recovering",
            Self::Wedged | Self::WedgedSuspended => "wedged",
            Self::Stopping | Self::Unreleased => "stopping",
            Self::Gone => "gone",
        }
    }

    /// Whether the hardware did not follow and is not back.
    pub(crate) const fn is_out_of_service(self) -> bool {
        match self {
            Self::Recovering | Self::Wedged | Self::WedgedSuspended | Self::Unreleased => true,
            Self::Running | Self::Suspended | Self::Stopping | Self::Gone => false,
        }
    }

    /// Whether changes are taken, and will be applied or end with the scheduler.
    pub(crate) const fn takes_changes(self) -> bool {
        !self.is_out_of_service() && !matches!(self, Self::Gone)
    }

    /// Whether the hardware must be left alone because the system sleeps.
    pub(crate) const fn is_suspended(self) -> bool {
        matches!(self, Self::Suspended | Self::WedgedSuspended)
    }

    /// Whether shutdown has begun or is over.
    pub(crate) const fn is_shut_down(self) -> bool {
        matches!(self, Self::Stopping | Self::Unreleased | Self::Gone)
    }
}
