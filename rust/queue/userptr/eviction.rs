// SPDX-License-Identifier: GPL-2.0

//! Whether the queues of a process wait for pages that changed, and how long changes are held back for them.

use kernel::time::{
    Delta,
    Instant,
    Monotonic, //
};

/// So long further changes are awaited before queues run again; twice as long after each failure.
const SETTLE: Delta = Delta::from_millis(1);
/// The pause does not grow any more after so many failures.
const MAX_DOUBLINGS: u32 = 8;
/// So long queues run between two evictions when changes are held back.
const LEAST_RUN: Delta = Delta::from_millis(10);
/// So long changes are held back at most each time that pages are looked for.
const MOST_DELAY: Delta = Delta::from_millis(50);
/// Queues that ran so long do not starve any more.
const CALM: Delta = Delta::from_millis(1000);

/// Whether the queues of a process wait for pages.
pub(crate) struct Eviction {
    /// They do.
    pub(super) active: bool,
    /// Counts changes of pages.
    pub(super) changes: u64,
    /// Pages changed while they were being looked for, time and again.
    pub(super) starving: bool,
    /// How often the queues could not be restored, one time after the other.
    pub(super) failures: u32,
    /// When pages were last begun to be looked for.
    pub(super) looked: Option<Instant<Monotonic>>,
    /// When the queues were last restored.
    pub(super) restored: Option<Instant<Monotonic>>,
}

impl Eviction {
    /// They do not.
    pub(crate) const fn new() -> Self {
        Self {
            active: false,
            changes: 0,
            starving: false,
            failures: 0,
            looked: None,
            restored: None,
        }
    }

    /// Whether changes are to wait until the pages were found.
    pub(super) fn holds_back(&self) -> bool {
        self.active && self.starving && self.looked.is_some_and(|time| time.elapsed() < MOST_DELAY)
    }

    /// How long the queues that run are to be left alone; none where nothing starves.
    pub(super) fn left_to_run(&mut self) -> Option<Delta> {
        let ran = self.restored?.elapsed();
        if self.active || !self.starving {
            return None;
        }
        if ran >= CALM {
            self.starving = false;
        }
        (ran < LEAST_RUN).then(|| LEAST_RUN - ran)
    }

    /// How long to wait before the pages are looked for.
    pub(super) fn pause(&self) -> Delta {
        SETTLE * (1i64 << self.failures.min(MAX_DOUBLINGS))
    }
}
