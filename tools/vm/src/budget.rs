// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Memory that runs on one machine share, whatever checkout they belong to.
//!
//! Each run claims what its VM may come to use before it starts, and waits while the claims of those that
//! run leave too little. A claim is a locked file in a directory of the cache; the lock goes with the
//! process, so that a killed run claims nothing. How much there is to share is what was free when
//! there was no claim; a VM that is larger than that runs alone. One run at a time has the turn to claim: others wait
//! behind it, so that a large VM is not kept waiting by small ones that come later.

use crate::lock;
use nix::fcntl::Flock;
use std::fs;
use std::fs::File;
use std::io;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use tempfile::TempPath;

/// Start of the names of the claims.
const CLAIM: &str = "claim.";
/// File with the amount to be shared, in MiB.
const AMOUNT: &str = "amount";

/// The memory that there is to share.
#[derive(Clone, Debug)]
pub struct Budget {
    dir: PathBuf,
    /// Free memory in MiB, asked for while there is no claim.
    free: fn() -> u64,
}

/// The right to claim, until this value is dropped.
#[derive(Debug)]
pub struct Turn {
    _lock: Flock<File>,
}

/// Memory that one run has for itself until this value is dropped.
#[derive(Debug)]
pub struct Claim {
    // Nobody takes the memory for free before the lock goes, and nobody finds the file after.
    _path: TempPath,
    _lock: Flock<File>,
}

impl Budget {
    /// The one of all runs that use this cache.
    pub fn new(cache: &Path) -> Self {
        Self {
            dir: cache.join("lock/vm-memory"),
            free: available_memory,
        }
    }

    /// Takes the turn to claim; none where another run has it.
    ///
    /// # Errors
    /// Where the file cannot be made.
    pub fn turn(&self) -> io::Result<Option<Turn>> {
        fs::create_dir_all(&self.dir)?;
        let lock = File::create(self.dir.join("turn"))?;
        Ok(lock::take(lock)?.map(|_lock| Turn { _lock }))
    }

    /// Claims so many MiB; none where others have them.
    ///
    /// # Errors
    /// Where the files cannot be made.
    pub fn claim(&self, _turn: &Turn, wanted: u64) -> io::Result<Option<Claim>> {
        let (runs, claimed) = self.claimed()?;
        let amount = self.dir.join(AMOUNT);
        let all = if runs == 0 {
            let free = (self.free)();
            fs::write(&amount, free.to_string())?;
            free
        } else {
            let kept = fs::read_to_string(&amount)?;
            kept.trim().parse().unwrap_or_else(|_| (self.free)())
        };
        if runs > 0 && claimed.saturating_add(wanted) > all {
            return Ok(None);
        }
        let (mut file, path) = tempfile::Builder::new()
            .prefix(CLAIM)
            .tempfile_in(&self.dir)?
            .into_parts();
        write!(file, "{wanted}")?;
        // Nobody else opens it: only the one with the turn looks for claims.
        let lock = lock::take(file)?.ok_or(io::ErrorKind::ResourceBusy)?;
        Ok(Some(Claim {
            _path: path,
            _lock: lock,
        }))
    }

    /// The number of runs that have claims, and their sum in MiB. Removes the claims of dead ones.
    fn claimed(&self) -> io::Result<(usize, u64)> {
        let (mut runs, mut sum) = (0, 0u64);
        for entry in fs::read_dir(&self.dir)?.flatten() {
            if !entry.file_name().to_string_lossy().starts_with(CLAIM) {
                continue;
            }
            // It may end this instant.
            let Ok(file) = File::open(entry.path()) else {
                continue;
            };
            if let Ok(None) = lock::take(file) {
                let text = fs::read_to_string(entry.path()).unwrap_or_default();
                runs += 1;
                sum = sum.saturating_add(text.trim().parse().unwrap_or(0));
            } else {
                drop(fs::remove_file(entry.path()));
            }
        }
        Ok((runs, sum))
    }
}

/// Memory that this machine can give to VMs, in MiB; some remains for the host itself.
fn available_memory() -> u64 {
    let table = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let read = |name: &str| fs::read_to_string(Path::new("/sys/fs/cgroup").join(name)).ok();
    let group = group_memory(read("memory.max"), read("memory.current"));
    free_of(&table).min(group) / 10 * 9
}

/// `MemAvailable` of the table, in MiB; where it is missing, enough for anything.
fn free_of(table: &str) -> u64 {
    let mut lines = table.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib / 1024)
}

/// What a container's limit leaves, in MiB; anything where it has none.
fn group_memory(max: Option<String>, current: Option<String>) -> u64 {
    let bytes = |text: Option<String>| text?.trim().parse::<u64>().ok();
    match (bytes(max), bytes(current)) {
        (Some(max), Some(current)) => max.saturating_sub(current) >> 20,
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(dir: &Path) -> Budget {
        Budget {
            dir: dir.join("lock"),
            free: || 8,
        }
    }

    /// What a run gets that wants so much.
    fn claim(budget: &Budget, wanted: u64) -> Option<Claim> {
        let turn = budget.turn().unwrap().unwrap();
        budget.claim(&turn, wanted).unwrap()
    }

    #[test]
    fn one_run_at_a_time_has_the_turn() {
        let dir = tempfile::tempdir().unwrap();
        let (large, small) = (budget(dir.path()), budget(dir.path()));
        let running = claim(&small, 2).unwrap();
        let turn = large.turn().unwrap().unwrap();
        assert!(large.claim(&turn, 8).unwrap().is_none());
        // There would be room for one that comes later.
        assert!(small.turn().unwrap().is_none());
        drop(running);
        assert!(large.claim(&turn, 8).unwrap().is_some());
        drop(turn);
        assert!(small.turn().unwrap().is_some());
    }

    #[test]
    fn runs_share_and_a_large_one_runs_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (budget(dir.path()), budget(dir.path()));
        let large = claim(&one, 99).unwrap();
        assert!(claim(&other, 0).is_none());
        drop(large);
        let six = claim(&one, 6).unwrap();
        assert!(claim(&other, 3).is_none());
        let two = claim(&other, 2).unwrap();
        assert!(claim(&one, 1).is_none());
        drop(six);
        assert!(claim(&other, 7).is_none());
        assert!(claim(&one, 6).is_some());
        drop(two);
    }

    #[test]
    fn what_a_dead_run_claimed_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let budget = budget(dir.path());
        let dead = claim(&budget, 8).unwrap();
        let path = dead._path.to_path_buf();
        assert!(claim(&budget, 1).is_none());
        // A killed process loses its locks and leaves its files.
        drop(dead._lock);
        assert!(path.exists());
        let next = claim(&budget, 8);
        assert!(next.is_some() && !path.exists());
    }

    #[test]
    fn what_is_free_is_the_least_of_machine_and_container() {
        assert_eq!(
            free_of("MemTotal: 9 kB\nMemAvailable:   2097152 kB\n"),
            2048
        );
        assert_eq!(free_of(""), u64::MAX);
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(group_memory(text("1073741824\n"), text("536870912\n")), 512);
        assert_eq!(group_memory(text("max\n"), text("1\n")), u64::MAX);
        assert_eq!(group_memory(None, None), u64::MAX);
    }
}
