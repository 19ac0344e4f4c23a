// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Waiting for memory that changes without an interrupt: spin for a short while, then yield, then sleep.
//!
//! A packet that is about to end is seen within the time that a system call takes; who waits for longer gives the CPU
//! away, first to whoever is ready to run, then for times that double up to [`LONGEST`]. No lock is held meanwhile.

use std::time::Duration;

use crate::clock::Deadline;
use crate::error::Error;
use crate::error::Result;

/// Rounds of spinning; round n is 2^n pause instructions, all together some 50 µs.
const SPINS: u32 = 10;
/// Rounds of yielding after that.
const YIELDS: u32 = 8;
/// The first sleep.
const SHORTEST: Duration = Duration::from_micros(50);
/// Sleeps double up to this.
const LONGEST: Duration = Duration::from_millis(1);
/// How long [`poll`] spins. What it measures takes microseconds; with the device model, on a loaded machine, milliseconds.
pub const SPINNING: Duration = Duration::from_secs(2);

/// How long a waiter has waited, in rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    round: u32,
}

/// What a round is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Spin(u32),
    Yield,
    Sleep(Duration),
}

impl Backoff {
    /// Before the first look.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the next round still spins: nothing has entered the kernel yet.
    pub fn is_spinning(&self) -> bool {
        self.round < SPINS
    }

    fn next(&mut self) -> Round {
        let round = self.round;
        self.round = round.saturating_add(1);
        if round < SPINS {
            Round::Spin(1 << round)
        } else if round < SPINS + YIELDS {
            Round::Yield
        } else {
            let doubled = SHORTEST.saturating_mul(1 << (round - SPINS - YIELDS).min(16));
            Round::Sleep(doubled.min(LONGEST))
        }
    }

    /// Waits one round, or `most` where that is shorter.
    pub fn pause(&mut self, most: Duration) {
        match self.next() {
            Round::Spin(times) => {
                for _ in 0..times {
                    std::hint::spin_loop();
                }
            }
            Round::Yield => std::thread::yield_now(),
            Round::Sleep(time) => std::thread::sleep(time.min(most)),
        }
    }
}

/// Looks until `probe` says true, with a `pause` after each look, which learns how long it has been.
fn look(
    what: &'static str,
    limit: Duration,
    mut probe: impl FnMut() -> Result<(bool, u64)>,
    mut pause: impl FnMut(Duration),
) -> Result<()> {
    let deadline = Deadline::after(limit);
    loop {
        let (done, seen) = probe()?;
        if done {
            return Ok(());
        }
        let waited = deadline.elapsed();
        if deadline.passed() {
            return Err(Error::TimedOut {
                what,
                seen,
                ms: waited.as_millis(),
            });
        }
        pause(waited);
    }
}

/// Waits with [`Backoff`] until `probe` says true.
///
/// # Errors
/// [`Error::TimedOut`] with what was seen last; those of `probe`.
pub fn wait_until(
    what: &'static str,
    limit: Duration,
    probe: impl FnMut() -> Result<(bool, u64)>,
) -> Result<()> {
    let mut backoff = Backoff::new();
    look(what, limit, probe, |waited| {
        backoff.pause(limit.saturating_sub(waited));
    })
}

/// What [`poll`] sleeps before its next look after it has waited for `waited`; nothing while it still spins.
fn rest(waited: Duration) -> Option<Duration> {
    (waited >= SPINNING).then_some(LONGEST)
}

/// Polls until `probe` says true. Neither the loop nor its deadline enters the kernel (see [`crate::clock`]): for what is
/// to be measured. What has taken [`SPINNING`] is no measurement any more, and from then on the loop sleeps between two
/// looks. [`wait_until`] is for what takes longer.
///
/// # Errors
/// [`Error::TimedOut`] with what was seen last.
pub fn poll(
    what: &'static str,
    limit: Duration,
    mut probe: impl FnMut() -> (bool, u64),
) -> Result<()> {
    look(
        what,
        limit,
        || Ok(probe()),
        |waited| match rest(waited) {
            None => std::hint::spin_loop(),
            Some(time) => std::thread::sleep(time),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn spins_yields_and_sleeps_in_turn() {
        let mut backoff = Backoff::new();
        let mut spun = 0;
        for _ in 0..SPINS {
            assert!(backoff.is_spinning());
            let Round::Spin(times) = backoff.next() else {
                panic!("spinning is bounded and comes first");
            };
            spun += times;
        }
        assert_eq!(spun, (1 << SPINS) - 1);
        assert!(!backoff.is_spinning());
        for _ in 0..YIELDS {
            assert_eq!(backoff.next(), Round::Yield);
        }
        let mut last = Duration::ZERO;
        for _ in 0..100 {
            let Round::Sleep(time) = backoff.next() else {
                panic!("it sleeps from now on");
            };
            assert!(time >= last && time <= LONGEST);
            last = time;
        }
        assert_eq!(last, LONGEST);
        backoff.round = u32::MAX;
        assert_eq!(backoff.next(), Round::Sleep(LONGEST));
    }

    #[test]
    fn what_is_not_measured_any_more_is_slept_for() {
        assert_eq!(rest(Duration::ZERO), None);
        assert_eq!(rest(SPINNING - Duration::from_micros(1)), None);
        assert_eq!(rest(SPINNING), Some(LONGEST));
        assert_eq!(rest(Duration::from_secs(60)), Some(LONGEST));
        let mut looks = 0;
        poll("it", Duration::from_secs(60), || {
            looks += 1;
            (looks == 40, looks)
        })
        .unwrap();
        assert_eq!(looks, 40);
        let late = poll("it", Duration::from_millis(3), || (false, 7)).unwrap_err();
        assert!(matches!(
            late,
            Error::TimedOut {
                what: "it",
                seen: 7,
                ..
            }
        ));
    }

    #[test]
    fn a_wait_ends_with_its_probe_or_its_limit() {
        let looks = Cell::new(0);
        let after = |n: u64| {
            looks.set(0);
            let looks = &looks;
            move || {
                looks.set(looks.get() + 1);
                Ok((looks.get() >= n, looks.get()))
            }
        };
        wait_until("it", Duration::from_secs(60), after(40)).unwrap();
        assert_eq!(looks.get(), 40);
        let late = wait_until("it", Duration::from_millis(3), after(u64::MAX)).unwrap_err();
        assert!(matches!(late, Error::TimedOut { what: "it", seen, .. } if seen == looks.get()));
        wait_until("it", Duration::ZERO, after(1)).unwrap();
        let failed = wait_until("it", Duration::from_secs(60), || Err(Error::NoGpu)).unwrap_err();
        assert!(matches!(failed, Error::NoGpu));
    }
}
