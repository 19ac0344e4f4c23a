// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What all processes of a run count together, in memory that they share: what a killed process did is there, too.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use anyhow::Context;
use nix::errno::Errno;
use nix::libc;
use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::Alignment;
use tabled::settings::Style;

use super::kinds::Kind;
use super::kinds::ENOTSUPP;

/// Answers that are told apart: success, errnos below the next, ENOTSUPP.
const ANSWERS: usize = 136;
/// Room for kinds.
const KINDS: usize = 96;

/// The shared memory. Zero is its first state.
#[repr(C)]
pub struct Shared {
    stop: AtomicBool,
    reports: AtomicU64,
    counts: [[AtomicU64; ANSWERS]; KINDS],
}

const _: () = assert!(Kind::ALL.len() <= KINDS);

/// The processes' count, shared by all that fork from who made it.
#[derive(Clone, Copy)]
pub struct Tally(NonNull<Shared>);

// SAFETY: `Shared` is made of atomics, and its memory is never unmapped.
unsafe impl Send for Tally {}
// SAFETY: as above.
unsafe impl Sync for Tally {}

impl Tally {
    /// Memory for a run. It lasts as long as the program.
    ///
    /// # Errors
    /// mmap's.
    pub fn new() -> anyhow::Result<Self> {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: no address is asked for, so nothing existing is replaced.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Shared>(),
                prot,
                flags,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Errno::last()).context("shared memory");
        }
        Ok(Self(
            NonNull::new(start.cast()).context("shared memory at 0")?,
        ))
    }

    fn shared(&self) -> &Shared {
        // SAFETY: a mapping of that size, zeroed, which is a valid state of atomics, and never unmapped.
        unsafe { self.0.as_ref() }
    }

    /// Tells all threads to come to an end.
    pub fn stop(&self) {
        self.shared().stop.store(true, Ordering::Relaxed);
    }

    /// Whether they have been told.
    pub fn is_stopped(&self) -> bool {
        self.shared().stop.load(Ordering::Relaxed)
    }

    /// Counts an answer; 0 is success.
    pub fn count(&self, kind: Kind, errno: i32) {
        let at = match errno {
            ENOTSUPP => ANSWERS - 1,
            _ => usize::try_from(errno).map_or(ANSWERS - 2, |n| n.min(ANSWERS - 2)),
        };
        if let Some(count) = self
            .shared()
            .counts
            .get(kind.index())
            .and_then(|row| row.get(at))
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of a finding, from 0.
    pub fn next_report(&self) -> u64 {
        self.shared().reports.fetch_add(1, Ordering::Relaxed)
    }

    /// How many findings there were.
    pub fn reports(&self) -> u64 {
        self.shared().reports.load(Ordering::Relaxed)
    }

    /// What calls of a kind answered, and how often.
    fn answers(&self, kind: Kind) -> BTreeMap<i32, u64> {
        let row = self.shared().counts.get(kind.index());
        let counts = row.into_iter().flatten().map(|n| n.load(Ordering::Relaxed));
        let answers = counts.enumerate().filter(|(_, n)| *n > 0);
        answers
            .map(|(at, n)| match i32::try_from(at) {
                Ok(errno) if at + 1 < ANSWERS => (errno, n),
                _ => (ENOTSUPP, n),
            })
            .collect()
    }

    /// Calls of a kind.
    pub fn calls(&self, kind: Kind) -> u64 {
        self.answers(kind).values().sum()
    }

    /// The table: one line per kind.
    pub fn table(&self) -> String {
        let mut table = Builder::new();
        table.push_record(["call", "calls", "ok", "errors"]);
        for &kind in Kind::ALL {
            let answers = self.answers(kind);
            let errors: Vec<String> = answers
                .iter()
                .filter(|(errno, _)| **errno != 0)
                .map(|(errno, n)| format!("{} {n}", errno_name(*errno)))
                .collect();
            table.push_record([
                kind.name().to_owned(),
                answers.values().sum::<u64>().to_string(),
                answers.get(&0).copied().unwrap_or(0).to_string(),
                errors.join(", "),
            ]);
        }
        let mut table = table.build();
        table.with(Style::blank());
        table.modify(Columns::new(1..3), Alignment::right());
        table.to_string()
    }
}

/// The errno's name.
pub fn errno_name(errno: i32) -> String {
    match errno {
        0 => "success".to_owned(),
        ENOTSUPP => "ENOTSUPP".to_owned(),
        _ => format!("{:?}", Errno::from_raw(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_calls_successes_and_errors() {
        let tally = Tally::new().unwrap();
        for errno in [0, 0, 22, 16, 22] {
            tally.count(Kind::Free, errno);
        }
        tally.count(Kind::CreateQueue, ENOTSUPP);
        let table = tally.table();
        let line = |name: &str| -> Vec<String> {
            let line = table
                .lines()
                .find(|line| line.trim_start().starts_with(name));
            line.unwrap()
                .split_whitespace()
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(
            line("FREE_MEMORY").join(" "),
            "FREE_MEMORY_OF_GPU 5 2 EBUSY 1, EINVAL 2"
        );
        assert_eq!(
            line("CREATE_QUEUE").join(" "),
            "CREATE_QUEUE 1 0 ENOTSUPP 1"
        );
        assert_eq!(tally.calls(Kind::Free), 5);
        assert_eq!(table.lines().count(), Kind::ALL.len() + 1);
    }
}
