// SPDX-License-Identifier: GPL-2.0 OR MIT
//! How fast the host's time stamp counter counts.
//!
//! A guest reads the host's counter, under TCG as under KVM, and takes the time from it. How fast it counts, Linux measures
//! at boot against emulated timers. Where the host is busy, QEMU may be off the processor in the middle of each
//! attempt, and the guest then believes in a clock that is slower by any factor: all its time-outs come too early by
//! that. So the guest is told (`tsc_early_khz`).

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;
use std::time::Instant;

/// How long the counter is watched.
const SPAN: Duration = Duration::from_millis(20);
/// Readings at either end, the quickest of which counts.
const READINGS: usize = 16;
/// How often it is watched until nothing came between.
const ATTEMPTS: usize = 10;
/// Frequencies that there are, in kHz.
const PLAUSIBLE: RangeInclusive<u64> = 100_000..=20_000_000;

/// The counter at a moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    ticks: u64,
    /// Before it was read.
    before: Instant,
    /// How long that took.
    took: Duration,
}

/// The frequency of the host's counter in kHz; `None` where it has none that stays the same.
pub fn khz() -> Option<u64> {
    static KHZ: OnceLock<Option<u64>> = OnceLock::new();
    *KHZ.get_or_init(|| {
        let cpus = fs::read_to_string("/proc/cpuinfo").ok()?;
        if !cpus.split_whitespace().any(|flag| flag == "constant_tsc") {
            return None;
        }
        (0..ATTEMPTS).find_map(|_| watch())
    })
}

/// How often per second the timer of a kernel ticks, whose build directory this is, if its configuration says so.
pub fn hz(kernel: &Path) -> Option<u64> {
    let config = fs::read_to_string(kernel.join(".config")).ok()?;
    hz_of(&config)
}

fn hz_of(config: &str) -> Option<u64> {
    let value = config
        .lines()
        .find_map(|line| line.strip_prefix("CONFIG_HZ="))?;
    value.parse().ok().filter(|hz| *hz > 0)
}

/// The frequency in kHz, unless the host was busy at the wrong moment.
fn watch() -> Option<u64> {
    let first = read()?;
    thread::sleep(SPAN);
    frequency(first, read()?)
}

/// The frequency in kHz from two readings.
fn frequency(first: Reading, second: Reading) -> Option<u64> {
    let ticks = u128::from(second.ticks.checked_sub(first.ticks)?);
    let nanos = second.before.checked_duration_since(first.before)?;
    // What a reading took is the uncertainty of its moment.
    if (first.took + second.took) * 1000 > nanos {
        return None;
    }
    let khz = (ticks * 1_000_000).checked_div(nanos.as_nanos())?;
    u64::try_from(khz)
        .ok()
        .filter(|khz| PLAUSIBLE.contains(khz))
}

/// The quickest of some readings.
#[cfg(target_arch = "x86_64")]
fn read() -> Option<Reading> {
    let readings = (0..READINGS).map(|_| {
        let before = Instant::now();
        // SAFETY: Every processor of this architecture has the instruction, it touches no memory, and Linux lets programs
        // use it (where a process has forbidden it to itself, by PR_SET_TSC, it ends: nobody does so here).
        let ticks = unsafe { core::arch::x86_64::_rdtsc() };
        Reading {
            ticks,
            before,
            took: before.elapsed(),
        }
    });
    readings.min_by_key(|reading| reading.took)
}

/// Guests of the test kernel read another counter there.
#[cfg(not(target_arch = "x86_64"))]
fn read() -> Option<Reading> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, ticks: u64, micros: u64, took: u64) -> Reading {
        Reading {
            ticks,
            before: start + Duration::from_micros(micros),
            took: Duration::from_nanos(took),
        }
    }

    #[test]
    fn ticks_of_a_span_are_a_frequency() {
        let start = Instant::now();
        let first = at(start, 1000, 0, 100);
        let end = |ticks, micros, took| at(start, ticks, micros, took);
        // 2.6 GHz for 20 ms.
        assert_eq!(
            frequency(first, end(52_001_000, 20_000, 100)),
            Some(2_600_000)
        );
        assert_eq!(
            frequency(first, end(104_001_000, 40_000, 100)),
            Some(2_600_000)
        );
        // It went backwards; no time passed.
        assert_eq!(frequency(first, end(999, 20_000, 100)), None);
        assert_eq!(frequency(first, end(52_001_000, 0, 0)), None);
        // Nothing counts so slowly or so fast.
        assert_eq!(frequency(first, end(1_999_000, 20_000, 100)), None);
        assert_eq!(frequency(first, end(402_001_000, 20_000, 100)), None);
        // Nobody knows when it was read.
        assert_eq!(frequency(first, end(52_001_000, 20_000, 20_000)), None);
    }

    #[test]
    fn a_configuration_names_the_ticks() {
        let config = "# CONFIG_HZ_100 is not set\nCONFIG_HZ_250=y\nCONFIG_HZ=250\n";
        assert_eq!(hz_of(config), Some(250));
        assert_eq!(hz_of("CONFIG_HZ_250=y\n"), None);
        assert_eq!(hz_of("CONFIG_HZ=0\n"), None);
        assert_eq!(hz_of("CONFIG_HZ=y\n"), None);
        assert_eq!(hz(Path::new("/no/such/tree")), None);
    }

    #[test]
    fn measurements_agree() {
        // Readings that took too long count for nothing; the others are of the same counter.
        let found: Vec<u64> = (0..ATTEMPTS).filter_map(|_| watch()).collect();
        for khz in &found {
            assert!(khz.abs_diff(found[0]) * 100 < found[0], "{found:?}");
        }
    }
}
