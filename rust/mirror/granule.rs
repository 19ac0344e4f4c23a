// SPDX-License-Identifier: GPL-2.0

//! What is known of 2 MiB of a mirror.

use core::ops::Range;

use super::bounces::Bounces;
use crate::vm::{
    mirrored::{
        Shown,
        GRANULE, //
    },
    pt::PAGE, //
};

/// Bytes that are found around the first access.
const FIRST_REACH: u64 = 16 * PAGE;

/// A granule.
pub(super) struct Granule {
    /// It is to be shown, as far as there is memory.
    pub(super) wanted: bool,
    /// Its memory changes: what it shows is about to be taken away.
    pub(super) stale: bool,
    /// What its entries show.
    pub(super) shown: Option<Shown>,
    /// Bytes that are found around an access, a power of two: few at first, more with each access that nothing was shown for,
    /// and fewer after changes. 0 before the first.
    reach: u64,
    /// The frame of pages in VRAM that its pages have moved to at last, and the number of the room there.
    pub(super) room: Option<(usize, u64)>,
    /// What became of memory that moved in.
    pub(super) bounces: Bounces,
    /// The task that moves memory of it; of several one that does.
    pub(super) mover: Option<usize>,
}

impl Granule {
    /// Of which nothing is wanted.
    pub(super) const NEW: Self = Self {
        wanted: false,
        stale: false,
        shown: None,
        reach: 0,
        room: None,
        bounces: Bounces::NEW,
        mover: None,
    };

    /// Whether it is to be found again.
    pub(super) fn is_missing(&self) -> bool {
        self.wanted && (self.stale || self.shown.is_none())
    }

    /// Whether the GPU may access the page at `va`.
    pub(super) fn shows(&self, va: u64, write: bool) -> bool {
        let shown = self.shown.as_ref();
        !self.stale && shown.is_some_and(|shown| shown.allows(va, write))
    }

    /// Whether something of `range`, GPU addresses, is shown that is in the system.
    pub(super) fn shows_system(&self, range: &Range<u64>) -> bool {
        let shown = self.shown.as_ref();
        shown.is_some_and(|shown| {
            let mut ranges = shown.ranges();
            ranges.any(|(part, vram)| !vram && part.start < range.end && range.start < part.end)
        })
    }

    /// Whether all of it is found at an access.
    pub(super) fn is_streamed(&self) -> bool {
        self.reach == GRANULE
    }

    /// What is found around an access to `va`: GPU addresses, not cut to the granule. `streamed`: all of a neighbour is.
    pub(super) fn around(&mut self, va: u64, streamed: bool) -> Range<u64> {
        self.reach = match self.reach {
            0 if streamed => GRANULE,
            0 => FIRST_REACH,
            reach => (2 * reach).min(GRANULE),
        };
        let start = va & !(self.reach - 1);
        start..start + self.reach
    }

    /// The memory has changed: what it shows goes, and less is found around the next access.
    pub(super) fn hide(&mut self) {
        if core::mem::replace(&mut self.stale, false) {
            drop(self.shown.take());
            // What moves for an access is found at its new place at once.
            if self.mover.is_none() {
                self.reach = (self.reach / 4).max(FIRST_REACH / 2);
            }
        }
    }
}
