// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Deadlines that are checked without entering the kernel.
//!
//! `clock_gettime` is a system call wherever the kernel does not trust the time-stamp counter (emulated machines, for
//! one), so a polling loop that looks at it would not be what it claims. Here the counter is measured against the
//! system's clock once and read alone afterwards.

use std::sync::OnceLock;
use std::time::Duration;
use std::time::Instant;

/// A counter of the CPU and its rate.
#[derive(Clone, Copy, Debug)]
struct Rate {
    ticks_per_micro: u64,
}

static RATE: OnceLock<Rate> = OnceLock::new();

#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: the instruction is part of the x86-64 baseline and readable by user space unless a process asked otherwise.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    // CAST: 584 years.
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Measures the counter, once per process; takes about 2 ms the first time.
pub fn calibrate() {
    rate();
}

fn rate() -> Rate {
    *RATE.get_or_init(|| {
        let (start, first) = (Instant::now(), ticks());
        let span = Duration::from_millis(2);
        let mut elapsed = start.elapsed();
        while elapsed < span {
            elapsed = start.elapsed();
        }
        let micros = u64::try_from(elapsed.as_micros())
            .unwrap_or(u64::MAX)
            .max(1);
        Rate {
            ticks_per_micro: (ticks().wrapping_sub(first) / micros).max(1),
        }
    })
}

/// A moment after which waiting ends.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    start: u64,
    limit: u64,
    rate: Rate,
}

impl Deadline {
    /// The moment `limit` from now.
    pub fn after(limit: Duration) -> Self {
        let rate = rate();
        let micros = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        Self {
            start: ticks(),
            limit: micros.saturating_mul(rate.ticks_per_micro),
            rate,
        }
    }

    /// Whether it has come.
    pub fn passed(&self) -> bool {
        ticks().wrapping_sub(self.start) > self.limit
    }

    /// Time since the deadline was set.
    pub fn elapsed(&self) -> Duration {
        Duration::from_micros(ticks().wrapping_sub(self.start) / self.rate.ticks_per_micro)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_passes_and_not_before() {
        let far = Deadline::after(Duration::from_secs(3600));
        let near = Deadline::after(Duration::from_millis(1));
        while !near.passed() {}
        assert!(!far.passed());
        assert!(far.elapsed() >= Duration::from_millis(1));
    }
}
