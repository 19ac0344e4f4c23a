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

/// Between the two samples of a measurement.
const SPAN: Duration = Duration::from_millis(2);
/// Readings from which a sample is chosen.
const SAMPLES: u32 = 8;

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

/// A moment on both clocks.
#[derive(Clone, Copy, Debug)]
struct Sample {
    time: Duration,
    ticks: u64,
    /// Ticks between the two readings of the counter around that of the clock.
    width: u64,
}

/// The tightest of several samples. Whoever takes the CPU away in the middle of one, as a loaded machine does to a
/// virtual one, spoils only that.
fn sample(mut ticks: impl FnMut() -> u64, mut time: impl FnMut() -> Duration) -> Sample {
    let mut take = || {
        let before = ticks();
        let time = time();
        let width = ticks().wrapping_sub(before);
        Sample {
            time,
            ticks: before.wrapping_add(width / 2),
            width,
        }
    };
    let mut best = take();
    for _ in 1..SAMPLES {
        let next = take();
        if next.width < best.width {
            best = next;
        }
    }
    best
}

/// How fast the counter went from one sample to the next.
fn rate_between(first: Sample, last: Sample) -> Rate {
    let nanos = last.time.saturating_sub(first.time).as_nanos().max(1);
    let ticks = u128::from(last.ticks.wrapping_sub(first.ticks));
    let per_micro = ticks.saturating_mul(1000) / nanos;
    Rate {
        ticks_per_micro: u64::try_from(per_micro).unwrap_or(u64::MAX).max(1),
    }
}

fn rate() -> Rate {
    *RATE.get_or_init(|| {
        let start = Instant::now();
        let first = sample(ticks, || start.elapsed());
        while start.elapsed().saturating_sub(first.time) < SPAN {}
        rate_between(first, sample(ticks, || start.elapsed()))
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
    use std::cell::Cell;

    /// A CPU of 1000 ticks per microsecond that is away for 5 s at the `pause`th reading of either clock.
    fn measured(pause: u32) -> u64 {
        let (nanos, readings) = (Cell::new(0_u64), Cell::new(0_u32));
        let read = || {
            readings.set(readings.get() + 1);
            let away = if readings.get() == pause {
                5_000_000_000
            } else {
                40
            };
            nanos.set(nanos.get() + away);
            nanos.get()
        };
        let first = sample(read, || Duration::from_nanos(read()));
        nanos.set(nanos.get() + 2_000_000);
        let last = sample(read, || Duration::from_nanos(read()));
        rate_between(first, last).ticks_per_micro
    }

    #[test]
    fn a_pause_at_any_reading_does_not_change_the_rate() {
        for pause in 0..=6 * SAMPLES {
            let rate = measured(pause);
            assert!(
                (995..=1005).contains(&rate),
                "{rate} with a pause at {pause}"
            );
        }
    }

    #[test]
    fn a_deadline_passes_and_not_before() {
        let far = Deadline::after(Duration::from_secs(3600));
        let near = Deadline::after(Duration::from_millis(1));
        while !near.passed() {}
        assert!(!far.passed());
        assert!(far.elapsed() >= Duration::from_millis(1));
    }
}
