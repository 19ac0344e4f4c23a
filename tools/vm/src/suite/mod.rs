// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The test driver behind `make test`: checks on the host, KUnit suites and end-to-end tests in the VM.

pub mod e2e;
pub mod filter;
pub mod header;
pub mod host;
pub mod kunit;
pub mod libtest;
pub mod outside;
pub mod report;
pub mod vm;

use crate::cli::Places;
use crate::term::Paint;
use anyhow::Context;
use filter::Filter;
use header::Header;
use report::Report;
use report::Suite;
use std::cmp::Reverse;
use std::fs;
use std::io;
use std::io::IsTerminal;
use std::num::NonZero;
use std::panic::catch_unwind;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;
use std::time::Instant;

/// VMs at a time.
const MOST_VMS: usize = 3;
/// What a VM of KUnit suites counts for in the order of work.
const KUNIT_WEIGHT: Duration = Duration::from_secs(200);

/// Runs suites and reports them.
pub struct Runner {
    places: Places,
    debug: bool,
    filter: Filter,
    logs: PathBuf,
    report: Mutex<Report>,
}

/// What one worker does without a break: it boots VMs, which end with its thread.
enum Work {
    Kunit(kunit::Vm),
    Group(Vec<e2e::Job>),
}

impl Work {
    fn name(&self) -> String {
        match self {
            Self::Kunit(vm) => vm.unit(),
            Self::Group(jobs) => jobs
                .first()
                .map_or("e2e".into(), |job| job.name().to_owned()),
        }
    }
}

/// Things to do, each with the memory that it takes: the first one that fits is next, and one that is
/// larger than the machine gets it alone.
struct Line<T> {
    state: Mutex<LineState<T>>,
    changed: Condvar,
}

struct LineState<T> {
    waiting: Vec<(u64, T)>,
    free: u64,
    running: usize,
}

impl<T> Line<T> {
    fn new(waiting: Vec<(u64, T)>, free: u64) -> Self {
        Self {
            state: Mutex::new(LineState {
                waiting,
                free,
                running: 0,
            }),
            changed: Condvar::new(),
        }
    }

    /// The next one, as soon as there is room for it; none where nothing waits.
    fn next(&self) -> Option<(u64, T)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.waiting.is_empty() {
                return None;
            }
            let free = state.free;
            let fitting = state.waiting.iter().position(|(size, _)| *size <= free);
            if let Some(at) = fitting.or((state.running == 0).then_some(0)) {
                let (size, work) = state.waiting.remove(at);
                // What is too large for the machine takes all of it.
                let size = size.min(free);
                state.free -= size;
                state.running += 1;
                return Some((size, work));
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives back what [`Line::next`] took.
    fn done(&self, size: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.free += size;
        state.running -= 1;
        drop(state);
        self.changed.notify_all();
    }
}

/// Memory that this machine can give to VMs, in MiB; some remains for the host itself.
fn available_memory() -> u64 {
    let table = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    memory_of(&table) / 10 * 9
}

/// `MemAvailable` of the table, in MiB; where it is missing, enough for anything.
fn memory_of(table: &str) -> u64 {
    let mut lines = table.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(1 << 30, |kib| kib / 1024)
}

impl Runner {
    /// A driver for the tests that the filter wants.
    ///
    /// # Errors
    /// Where the folder for logs cannot be made.
    pub fn new(places: Places, debug: bool, filter: Filter) -> anyhow::Result<Self> {
        let logs = places.out.join("logs/test");
        fs::create_dir_all(&logs).with_context(|| format!("making {}", logs.display()))?;
        Ok(Self {
            places,
            debug,
            filter,
            logs,
            report: Mutex::new(Report::new(Paint::for_stdout())),
        })
    }

    /// Runs everything; whether nothing failed. What keeps a part from being run is a failure of its own,
    /// so that the others are run and counted all the same. `outside` is what has been tried before.
    pub fn run(&self, outside: &[outside::Program]) -> bool {
        for program in outside {
            self.part(program.name(), || self.outside(program));
        }
        if self.debug {
            // It is there, though not on this kernel.
            let _ = self.wants(outside::SHARE);
        }
        self.part("host", || self.host());
        self.part("vm/runner", || self.vm());
        let mut work: Vec<Work> = self.kunit_vms().into_iter().map(Work::Kunit).collect();
        self.part("e2e", || {
            work.extend(self.e2e_groups()?.into_iter().map(Work::Group));
            Ok(())
        });
        self.side_by_side(work);
        self.progress("");
        self.report().finish(&self.filter.unused())
    }

    /// Runs a part of the whole and counts its error, or its panic, as a failure.
    fn part(&self, name: &str, run: impl FnOnce() -> anyhow::Result<()>) {
        let start = Instant::now();
        // Results are behind locks that survive a panic.
        let why = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => "the test driver panicked; its message is on standard error".to_owned(),
        };
        self.add(&Suite::check(name, start.elapsed(), None, Some(why)));
    }

    /// Half as many again as there are processors, as long as the machine has the memory for them: many a VM under
    /// test waits for a time-out most of the time.
    fn side_by_side(&self, mut work: Vec<Work>) {
        // A long one that begins last would run alone at the end.
        work.sort_by_key(|work| Reverse(self.weight(work)));
        let sized = work.into_iter().map(|work| (self.memory(&work), work));
        let line = Line::new(sized.collect(), available_memory());
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let workers = processors + processors.div_ceil(2);
        thread::scope(|scope| {
            for _ in 0..workers.min(MOST_VMS) {
                scope.spawn(|| {
                    while let Some((size, work)) = line.next() {
                        self.part(&work.name(), || match work {
                            Work::Kunit(vm) => self.kunit(vm),
                            Work::Group(jobs) => self.group(jobs),
                        });
                        line.done(size);
                    }
                });
            }
        });
    }

    /// How long it may take, as far as that is known before.
    fn weight(&self, work: &Work) -> Duration {
        match work {
            Work::Kunit(_) => KUNIT_WEIGHT,
            Work::Group(jobs) => jobs.iter().map(e2e::Job::limit).sum(),
        }
    }

    /// The memory that it takes, in MiB.
    fn memory(&self, work: &Work) -> u64 {
        let machine = match work {
            Work::Kunit(_) => Header::default().machine(None, None, self.debug),
            Work::Group(jobs) => match jobs.first() {
                Some(job) => job.machine(self.debug),
                None => return 0,
            },
        };
        // One with wrong options never boots.
        machine.map_or(0, |machine| machine.footprint())
    }

    fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints a suite's line and counts it.
    fn add(&self, suite: &Suite) {
        self.report().add(suite);
    }

    fn wants(&self, unit: &str) -> bool {
        self.filter.wants(unit)
    }

    /// Shows on a terminal what is being done; overwritten by the next line.
    fn progress(&self, what: &str) {
        if io::stdout().is_terminal() {
            print!("\r\x1b[K");
            if !what.is_empty() {
                print!("  … {what}\r");
            }
            // Only decoration.
            let _ = io::Write::flush(&mut io::stdout());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_next_and_what_never_fits_runs_alone() {
        let line = Line::new(vec![(6, 'a'), (5, 'b'), (2, 'c'), (99, 'd')], 8);
        assert_eq!(line.next(), Some((6, 'a')));
        assert_eq!(line.next(), Some((2, 'c')));
        line.done(6);
        assert_eq!(line.next(), Some((5, 'b')));
        line.done(5);
        line.done(2);
        assert_eq!(line.next(), Some((8, 'd')));
        assert_eq!(line.next(), None);
    }

    #[test]
    fn one_that_does_not_fit_waits_for_room() {
        let line = Line::new(vec![(6, 'a'), (5, 'b')], 8);
        let (size, _) = line.next().unwrap();
        thread::scope(|scope| {
            let second = scope.spawn(|| line.next());
            line.done(size);
            assert_eq!(second.join().unwrap(), Some((5, 'b')));
        });
    }

    #[test]
    fn available_memory_is_read() {
        assert_eq!(
            memory_of("MemTotal: 9 kB\nMemAvailable:   2097152 kB\n"),
            2048
        );
        assert!(memory_of("") > 1 << 20);
    }
}
