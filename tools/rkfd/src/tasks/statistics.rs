// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Counters of tasks and workers, which other programs can read while they run.
//!
//! They are words of a file that is mapped, or of memory where nobody asked for a file. The file begins with a magic number,
//! the process, the number of areas (the last one is the program's own) and the number of workers, one word each; then come
//! [`AREA_WORDS`] words for each area and [`WORKER_WORDS`] for each worker.

use std::fs;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use nix::libc::O_NOFOLLOW;
use nix::libc::O_NONBLOCK;

use super::layout::Priority;
use crate::error::Error;
use crate::error::Result;
use crate::sys::Mapping;
use crate::sys::PAGE;

/// What a file begins with.
pub const MAGIC: u64 = 0x7461_7473_6b73_6174;
/// Words in front of those of areas.
const HEAD_WORDS: usize = 4;
/// Words of an area.
pub const AREA_WORDS: usize = 9;
/// Words of a worker.
pub const WORKER_WORDS: usize = 8;
/// Most bytes of a file that is one.
const MOST_BYTES: u64 = 1 << 20;

/// Which counter of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Runs,
    Turns,
    Sleeps,
    Wakes,
    Looks,
    Recovered,
    Lost,
    Deaths,
}

/// Counters of an area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AreaCounters {
    /// Id of its GPU; 0: the program's own.
    pub gpu: u64,
    /// Tasks that workers took, of high and low priority.
    pub taken: [u64; 2],
    /// Tasks that ended with a value.
    pub done: u64,
    /// Tasks that failed.
    pub failed: u64,
    /// Of these, those that were not run, since no function takes them.
    pub rejected: u64,
    /// Slots that had a state which they cannot have.
    pub corrupt: u64,
    /// Tasks whose future was none.
    pub late: u64,
    /// Tasks in the ring that was visited last, behind the one that was taken.
    pub waiting: u64,
    /// Calls of kernels that found no room; not in the file.
    pub refused: u64,
    /// Futures in use; not in the file.
    pub futures: u32,
}

/// Counters of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounters {
    /// Functions that it ran.
    pub runs: u64,
    /// Times that it looked at the rings.
    pub turns: u64,
    /// Times that it went to sleep.
    pub sleeps: u64,
    /// Times that it was woken.
    pub wakes: u64,
    /// Times that it woke by itself.
    pub looks: u64,
    /// Tasks of a worker that had died which were put in line again.
    pub recovered: u64,
    /// Tasks of one which failed.
    pub lost: u64,
    /// Threads that ended before their time.
    pub deaths: u64,
}

/// All counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The process.
    pub process: u64,
    /// Areas of GPUs, and behind them the program's own.
    pub areas: Vec<AreaCounters>,
    /// Workers.
    pub workers: Vec<WorkerCounters>,
}

impl Snapshot {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::Argument`] where it is none of statistics.
    pub fn read(path: &Path) -> Result<Self> {
        let mut bytes = Vec::new();
        // Whoever may write to the directory may have put a link or a FIFO there, which is not waited for.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(O_NOFOLLOW | O_NONBLOCK)
            .open(path)
            .map_err(Error::file(path))?;
        file.take(MOST_BYTES)
            .read_to_end(&mut bytes)
            .map_err(Error::file(path))?;
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)))
            .collect();
        Self::of_words(&words).ok_or(Error::Argument("Not a file of statistics"))
    }

    fn of_words(words: &[u64]) -> Option<Self> {
        let (head, rest) = words.split_at_checked(HEAD_WORDS)?;
        let [MAGIC, process, areas, workers] = *head else {
            return None;
        };
        let areas = usize::try_from(areas).ok()?.checked_mul(AREA_WORDS)?;
        let workers = usize::try_from(workers).ok()?.checked_mul(WORKER_WORDS)?;
        let (areas, rest) = rest.split_at_checked(areas)?;
        let workers = rest.get(..workers)?;
        let area = |words: &[u64]| {
            let [gpu, high, low, done, failed, rejected, corrupt, late, waiting] = *words else {
                return None;
            };
            Some(AreaCounters {
                gpu,
                taken: [high, low],
                done,
                failed,
                rejected,
                corrupt,
                late,
                waiting,
                refused: 0,
                futures: 0,
            })
        };
        let worker = |words: &[u64]| {
            let [runs, turns, sleeps, wakes, looks, recovered, lost, deaths] = *words else {
                return None;
            };
            Some(WorkerCounters {
                runs,
                turns,
                sleeps,
                wakes,
                looks,
                recovered,
                lost,
                deaths,
            })
        };
        Some(Self {
            process,
            areas: areas.chunks(AREA_WORDS).map(area).collect::<Option<_>>()?,
            workers: workers
                .chunks(WORKER_WORDS)
                .map(worker)
                .collect::<Option<_>>()?,
        })
    }

    /// A sum over the workers.
    pub fn of_workers(&self, of: impl Fn(&WorkerCounters) -> u64) -> u64 {
        self.workers.iter().map(of).sum()
    }
}

/// The counters as they are counted.
#[derive(Debug)]
pub(super) struct Statistics {
    memory: Mapping,
    areas: usize,
    workers: usize,
    /// Removed when dropped.
    path: Option<PathBuf>,
}

impl Statistics {
    pub(super) fn new(path: Option<PathBuf>, gpus: Vec<u32>, workers: usize) -> Result<Self> {
        let areas = gpus.len() + 1;
        let words = HEAD_WORDS + areas * AREA_WORDS + workers * WORKER_WORDS;
        let bytes = (8 * words).next_multiple_of(PAGE);
        let memory = match &path {
            None => Mapping::anonymous(bytes)?,
            Some(path) => {
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create(true)
                    .truncate(true)
                    // What a link in a directory of everybody's leads to stays as it is.
                    .custom_flags(O_NOFOLLOW)
                    .open(path)
                    .map_err(Error::file(path))?;
                file.set_len(bytes as u64).map_err(Error::file(path))?; // CAST: a size in memory.
                Mapping::of_device(&file, bytes, 0)?
            }
        };
        let statistics = Self {
            memory,
            areas,
            workers,
            path,
        };
        // CAST: counts.
        let head = [
            MAGIC,
            std::process::id().into(),
            areas as u64,
            workers as u64,
        ];
        for (n, gpu) in gpus.iter().enumerate() {
            statistics
                .area(n, 0)
                .store((*gpu).into(), Ordering::Relaxed);
        }
        for (n, value) in head.into_iter().enumerate().rev() {
            statistics.word(n).store(value, Ordering::Release);
        }
        Ok(statistics)
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        debug_assert!(8 * index + 8 <= self.memory.size());
        // SAFETY: callers' indices are below the number of words that the mapping was made for; it lives as long as `self`,
        // and all access is atomic.
        unsafe { AtomicU64::from_ptr(self.memory.as_ptr().add(8 * index).cast()) }
    }

    fn area(&self, area: usize, of: usize) -> &AtomicU64 {
        self.word(HEAD_WORDS + area.min(self.areas - 1) * AREA_WORDS + of)
    }

    /// Counts of a worker.
    pub(super) fn add(&self, worker: usize, of: Of, count: u64) {
        let first = HEAD_WORDS + self.areas * AREA_WORDS;
        let of = match of {
            Of::Runs => 0,
            Of::Turns => 1,
            Of::Sleeps => 2,
            Of::Wakes => 3,
            Of::Looks => 4,
            Of::Recovered => 5,
            Of::Lost => 6,
            Of::Deaths => 7,
        };
        let worker = worker.min(self.workers - 1);
        self.word(first + worker * WORKER_WORDS + of)
            .fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn add_taken(&self, area: usize, priority: Priority, waiting: u64) {
        self.area(area, 1 + priority.index())
            .fetch_add(1, Ordering::Relaxed);
        self.area(area, 8).store(waiting, Ordering::Relaxed);
    }

    pub(super) fn add_end(&self, area: usize, well: bool) {
        self.area(area, if well { 3 } else { 4 })
            .fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_rejected(&self, area: usize) {
        self.area(area, 5).fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_corrupt(&self, area: usize, count: u64) {
        if count != 0 {
            self.area(area, 6).fetch_add(count, Ordering::Relaxed);
        }
    }

    pub(super) fn add_late(&self, area: usize) {
        self.area(area, 7).fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let count = HEAD_WORDS + self.areas * AREA_WORDS + self.workers * WORKER_WORDS;
        let words: Vec<u64> = (0..count)
            .map(|n| self.word(n).load(Ordering::Relaxed))
            .collect();
        Snapshot::of_words(&words).unwrap_or_default()
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn other_programs_read_what_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("statistics");
        let statistics = Statistics::new(Some(path.clone()), vec![7, 8], 2).unwrap();
        statistics.add_taken(1, Priority::Low, 5);
        statistics.add_end(1, false);
        statistics.add_end(2, true);
        statistics.add(1, Of::Deaths, 3);
        let read = Snapshot::read(&path).unwrap();
        assert_eq!(read, statistics.snapshot());
        assert_eq!(read.process, u64::from(std::process::id()));
        assert_eq!(read.areas.len(), 3);
        let area = read.areas[1];
        assert_eq!((area.gpu, area.taken, area.waiting), (8, [0, 1], 5));
        assert_eq!((area.failed, read.areas[2].done), (1, 1));
        assert_eq!(read.of_workers(|worker| worker.deaths), 3);
        drop(statistics);
        assert!(!path.exists());
    }

    #[test]
    fn links_and_fifos_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "kept").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(Statistics::new(Some(link.clone()), Vec::new(), 1).is_err());
        assert!(matches!(Snapshot::read(&link), Err(Error::File { .. })));
        assert_eq!(fs::read(&file).unwrap(), b"kept");
        let fifo = dir.path().join("fifo");
        let path = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
        // SAFETY: a path that ends with a zero byte.
        assert_eq!(unsafe { nix::libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        // Nobody writes to it: a plain open would wait for that.
        assert!(matches!(Snapshot::read(&fifo), Err(Error::Argument(_))));
    }

    proptest! {
        #[test]
        fn any_words_are_bearable(mut words in prop::collection::vec(any::<u64>(), 0..100), small in 0u64..5) {
            let _ = Snapshot::of_words(&words);
            if words.len() > 4 {
                words[0] = MAGIC;
                words[2] = small;
                words[3] = small;
                let _ = Snapshot::of_words(&words);
            }
        }
    }
}
