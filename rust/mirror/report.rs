// SPDX-License-Identifier: GPL-2.0

//! What is told of moves and accesses of a mirror with [`Rules`]. Without rules nobody is told anything. Tested by
//! `rkfd_mirror_rules_live`.

use core::{
    cell::Cell,
    ops::Range, //
};

use kernel::prelude::*;

use super::rules::Rules;
use crate::gpu::devmem::{
    Movement,
    Stage,
    Trigger, //
};

/// A move that is told of when it begins, and again, with its result, when this is dropped. One that does not begin is not
/// told of.
pub(super) struct MoveReport<'a> {
    rules: Option<&'a dyn Rules>,
    /// GPU addresses.
    range: Range<u64>,
    is_out: bool,
    trigger: Trigger,
    begun: Cell<bool>,
    result: Cell<Result>,
}

impl<'a> MoveReport<'a> {
    /// A move of `range`, GPU addresses, that does not begin yet: to the system if it `is_out`, else to VRAM.
    pub(super) fn new(
        rules: Option<&'a dyn Rules>,
        range: Range<u64>,
        is_out: bool,
        trigger: Trigger,
    ) -> Self {
        Self {
            rules,
            range,
            is_out,
            trigger,
            begun: Cell::new(false),
            result: Cell::new(Ok(())),
        }
    }

    /// Whether it is about GPU address `va`.
    pub(super) fn covers(&self, va: u64) -> bool {
        self.range.contains(&va)
    }

    /// Pages are about to move; again is nothing.
    pub(super) fn begin(&self) {
        if !self.begun.replace(true) {
            self.tell(Stage::Begins);
        }
    }

    /// Notes what became of a part. What is told in the end is the first error.
    pub(super) fn note(&self, result: Result) {
        self.result.set(self.result.get().and(result));
    }

    fn tell(&self, stage: Stage) {
        let Some(rules) = self.rules else { return };
        rules.memory_moves(&Movement {
            range: self.range.clone(),
            is_out: self.is_out,
            trigger: self.trigger,
            stage,
        });
    }
}

impl Drop for MoveReport<'_> {
    fn drop(&mut self) {
        if self.begun.get() {
            self.tell(Stage::Ended(self.result.get()));
        }
    }
}

/// An access that is told of when memory is looked for, and when it is served.
pub(super) struct AccessReport<'a> {
    rules: Option<&'a dyn Rules>,
    /// First byte of its page, GPU address.
    page: u64,
    begun: Cell<bool>,
    moved: Cell<bool>,
}

impl<'a> AccessReport<'a> {
    /// An access to the page at GPU address `page`.
    pub(super) fn new(rules: Option<&'a dyn Rules>, page: u64) -> Self {
        Self {
            rules,
            page,
            begun: Cell::new(false),
            moved: Cell::new(false),
        }
    }

    /// Memory is looked for; again is nothing.
    pub(super) fn begin(&self, write: bool) {
        if !self.begun.replace(true) {
            if let Some(rules) = self.rules {
                rules.access_begins(self.page, write);
            }
        }
    }

    /// Memory has moved to VRAM for it.
    pub(super) fn note_moved(&self) {
        self.moved.set(true);
    }

    /// It is served, and about to be repeated. An access for which nothing was looked for is not told of.
    pub(super) fn end(self) {
        if !self.begun.get() {
            return;
        }
        if let Some(rules) = self.rules {
            rules.access_ends(self.page, self.moved.get());
        }
    }
}
