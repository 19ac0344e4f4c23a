// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Time as the device sees it: real in the server, driven by hand in tests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

/// Nanoseconds per tick of the GPU clock counter (100 MHz reference clock).
pub const NS_PER_TICK: u64 = 10;

/// A monotonic clock.
#[derive(Debug, Clone)]
pub enum Clock {
    /// Time since the model started.
    Real(Instant),
    /// Nanoseconds set by a test.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// Nanoseconds since the clock began.
    pub fn now_ns(&self) -> u64 {
        match self {
            Clock::Real(start) => u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
            Clock::Manual(ns) => ns.load(Ordering::Relaxed),
        }
    }

    /// The value of the free-running GPU clock counter.
    pub fn ticks(&self) -> u64 {
        self.now_ns() / NS_PER_TICK
    }
}
