// SPDX-License-Identifier: GPL-2.0

//! Where a bound GPU is in its life, see [`power`](super::power).

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            AtomicFlag, //
        },
        Mutex, //
    },
};

/// What the GPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Works.
    Up,
    /// Stands still, keeps its memory, comes back.
    Suspended,
    /// Was taken down for good.
    Down,
}

/// State of the transitions.
#[pin_data]
pub(super) struct Power {
    #[pin]
    pub(super) stage: Mutex<Stage>,
    /// [`Stage::Suspended`], for callers that cannot wait for the lock.
    pub(super) asleep: AtomicFlag,
    /// Resets of the engines that have begun.
    pub(super) resets: Atomic<i64>,
}

/// A moment in which no transition was under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment(pub(super) i64);

impl Moment {
    /// As a number, for callers that cannot name the type.
    pub(crate) fn number(self) -> i64 {
        self.0
    }

    /// From [`Self::number`].
    pub(crate) fn from_number(number: i64) -> Self {
        Self(number)
    }
}

impl Power {
    /// Of a GPU that is being brought up.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            stage <- new_mutex!(Stage::Up, "rkfd_power"),
            asleep: AtomicFlag::new(false),
            resets: Atomic::new(0),
        })
    }
}
