// SPDX-License-Identifier: GPL-2.0

//! Messages that a device or a user can provoke must not flood the log.
//!
//! The kernel's `printk_ratelimited()` family has no Rust form. [`dev_limited!`] lets a burst
//! through, then one message per interval with the number that was held back.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// Messages in a row that pass.
const BURST: i32 = 10;
/// Length of a window in nanoseconds: 5 s, as in C.
const WINDOW_NS: i64 = 5_000_000_000;

/// State of one call site.
pub(crate) struct RateLimit {
    window: Atomic<i64>,
    passed: Atomic<i32>,
    held: Atomic<i32>,
}

impl RateLimit {
    /// A call site that has not printed yet.
    pub(crate) const fn new() -> Self {
        Self {
            window: Atomic::new(0),
            passed: Atomic::new(0),
            held: Atomic::new(0),
        }
    }

    /// Whether a message may pass now; if so, how many were held back before it.
    ///
    /// Races between callers let a message more or less through, which does no harm.
    pub(crate) fn pass(&self) -> Option<i32> {
        self.pass_at(monotonic_ns())
    }

    /// As [`RateLimit::pass`], at the given time.
    pub(crate) fn pass_at(&self, now: i64) -> Option<i32> {
        let start = self.window.load(Relaxed);
        if start == 0 || now - start >= WINDOW_NS {
            self.window.store(now.max(1), Relaxed);
            self.passed.store(0, Relaxed);
        }
        if self.passed.fetch_add(1, Relaxed) < BURST {
            Some(self.held.xchg(0, Relaxed))
        } else {
            self.held.add(1, Relaxed);
            None
        }
    }
}

/// Monotonic time in nanoseconds.
pub(crate) fn monotonic_ns() -> i64 {
    // SAFETY: Reading the clock has no precondition.
    unsafe { kernel::bindings::ktime_get() }
}

/// `dev_limited!(dev_err, dev, "format", ...)`: at most ten messages in five seconds per call site.
macro_rules! dev_limited {
    ($level:ident, $dev:expr, $($arg:tt)*) => {{
        static LIMIT: $crate::kapi::log::RateLimit = $crate::kapi::log::RateLimit::new();
        if let Some(held) = LIMIT.pass() {
            if held > 0 {
                ::kernel::prelude::$level!($dev, "{} similar messages were held back\n", held);
            }
            ::kernel::prelude::$level!($dev, $($arg)*);
        }
    }};
}
pub(crate) use dev_limited;
