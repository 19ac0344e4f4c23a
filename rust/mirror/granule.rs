// SPDX-License-Identifier: GPL-2.0

//! What is known of 2 MiB of a mirror.

use crate::vm::mirrored::Shown;

/// A granule.
pub(super) struct Granule {
    /// Somebody wants it shown, as far as there is memory.
    pub(super) wanted: bool,
    /// Its memory changes: what it shows is about to be taken away.
    pub(super) stale: bool,
    /// What its entries show.
    pub(super) shown: Option<Shown>,
}

impl Granule {
    /// Of which nothing is wanted.
    pub(super) const NEW: Self = Self {
        wanted: false,
        stale: false,
        shown: None,
    };

    /// Whether it is to be found again.
    pub(super) fn is_missing(&self) -> bool {
        self.wanted && (self.stale || self.shown.is_none())
    }
}
