// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Stores of waves to the device's own BARs, on their way to the device.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::vm::own::OwnRanges;

/// Stores to doorbells that may be on their way when another one begins.  It is more than one instruction makes: four
/// dwords of 64 lanes, each at most in two pages.
const MOST: usize = 1024;

/// What waves need to know for such stores.
#[derive(Debug, Default)]
pub struct Posts {
    ranges: Mutex<OwnRanges>,
    /// Stores to doorbells that the device has not delivered yet.
    pending: AtomicUsize,
}

impl Posts {
    /// Says where on the bus the device itself answers.
    pub fn set_ranges(&self, ranges: OwnRanges) {
        *self.ranges.lock() = ranges;
    }

    /// Where on the bus the device itself answers, as it was when a dispatch last began or went on.
    pub fn ranges(&self) -> OwnRanges {
        *self.ranges.lock()
    }

    /// How many stores to doorbells have room now.
    pub fn room(&self) -> usize {
        MOST.saturating_sub(self.pending.load(Ordering::Relaxed))
    }

    /// That many more are on their way.
    pub fn sent(&self, count: usize) {
        self.pending.fetch_add(count, Ordering::Relaxed);
    }

    /// That many of them are delivered, or dropped.
    pub fn delivered(&self, count: usize) {
        self.pending.fetch_sub(count, Ordering::Relaxed);
    }
}
