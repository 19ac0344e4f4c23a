// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The test driver behind `make test`: checks on the host, KUnit suites and end-to-end tests in the VM.

pub mod areas;
pub mod e2e;
pub mod filter;
pub mod header;
pub mod host;
pub mod job;
pub mod kunit;
pub mod libtest;
pub mod mutants;
pub mod outside;
mod pack;
mod renew;
pub mod report;
mod times;
pub mod trial;
pub mod vm;

use crate::child::kill_groups;
use crate::cli::Places;
use crate::term::Paint;
use anyhow::Context;
use filter::Filter;
use report::Report;
use report::Suite;
use signal_hook::consts::SIGHUP;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;
use std::cmp::Reverse;
use std::fs;
use std::io;
use std::io::IsTerminal;
use std::num::NonZero;
use std::panic::catch_unwind;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::path::PathBuf;
use std::process::exit;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;
use std::time::Instant;
use times::Times;
use times::VmTime;

/// VMs at a time.
const MOST_VMS: usize = 3;

/// What a run is like.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// On the debug kernel.
    pub debug: bool,
    /// The tests of the kernel's own driver, and nothing else.
    pub upstream: bool,
    /// Tables tell where the time went.
    pub timings: bool,
    /// What changes can affect, as far as there is such a suite, and with one build of the module, that with the KUnit
    /// suites.
    pub changed: bool,
}

/// Runs suites and reports them.
pub struct Runner {
    places: Places,
    debug: bool,
    options: Options,
    filter: Filter,
    logs: PathBuf,
    report: Mutex<Report>,
    /// What suites took, in this run and earlier.
    times: Mutex<Times>,
    /// Where the time of each VM went.
    vms: Mutex<Vec<VmTime>>,
    /// Ends runs early.
    trial: Option<trial::Trial>,
}

/// What one worker does without a break: it boots VMs, which end with its thread.
enum Work {
    /// Checks on the host, which keep a processor busy.
    Host,
    /// The VM runner's own tests.
    Vm,
    Kunit(kunit::Vm),
    Group(Vec<job::Job>),
}

impl Work {
    fn name(&self) -> String {
        match self {
            Self::Host => "host".into(),
            Self::Vm => vm::NAME.into(),
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

/// What a lock protects is whole after a panic, too.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many VMs run side by side: half as many again as there are processors, since many a VM under test waits for a
/// time-out most of the time.
fn workers() -> usize {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    (processors + processors.div_ceil(2)).min(MOST_VMS)
}

/// The folder of one file for each suite.
fn logs_of(places: &Places) -> anyhow::Result<PathBuf> {
    let logs = places.out.join("logs/test");
    fs::create_dir_all(&logs).with_context(|| format!("making {}", logs.display()))?;
    Ok(logs)
}

/// The names of all suites of a checkout, as the report prints them.
///
/// # Errors
/// A folder or a manifest that cannot be read.
pub fn names(top: &Path) -> anyhow::Result<Vec<String>> {
    let mut names: Vec<String> = [vm::NAME, outside::SHARE].map(str::to_owned).into();
    names.extend(host::names(top)?);
    names.extend(kunit::names(top));
    names.extend(job::all_jobs(top)?.iter().map(|job| job.name().to_owned()));
    Ok(names)
}

/// Ends the program with everything that it has started when it gets SIGINT, SIGTERM or SIGHUP.
pub fn end_on_signals() {
    match Signals::new([SIGINT, SIGTERM, SIGHUP]) {
        // Children are in groups of their own, which neither Ctrl-C nor our death reaches.
        Ok(mut signals) => drop(thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                kill_groups();
                exit(128 + signal);
            }
        })),
        Err(error) => eprintln!("{} {error}", Paint::for_stderr().bad("error:")),
    }
}

impl Runner {
    /// A driver for the tests that the filter wants.
    ///
    /// # Errors
    /// Where the folder for logs cannot be made.
    pub fn new(places: Places, options: Options, filter: Filter) -> anyhow::Result<Self> {
        let debug = options.debug;
        let logs = logs_of(&places)?;
        Ok(Self {
            times: Mutex::new(Times::load(&places.out, debug)),
            vms: Mutex::default(),
            options,
            places,
            debug,
            filter,
            logs,
            report: Mutex::new(Report::new(Paint::for_stdout())),
            trial: None,
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
        let mut work = Vec::new();
        if !self.options.upstream {
            work.extend([Work::Host, Work::Vm]);
            work.extend(self.kunit_vms().into_iter().map(Work::Kunit));
        }
        self.part("e2e", || {
            let groups = self.e2e_groups(&lock(&self.times))?;
            work.extend(groups.into_iter().map(Work::Group));
            Ok(())
        });
        self.side_by_side(work);
        self.progress("");
        self.keep_times();
        let unused = self.filter.unused();
        let unused = if self.options.changed {
            &[]
        } else {
            unused.as_slice()
        };
        self.report().finish(unused)
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

    /// As many at a time as [`workers`] says and the machine has the memory for.
    fn side_by_side(&self, mut work: Vec<Work>) {
        // A long one that begins last would run alone at the end.
        work.sort_by_key(|work| Reverse(self.weight(work)));
        let sized = work.into_iter().map(|work| (self.memory(&work), work));
        let line = Line::new(sized.collect(), available_memory());
        thread::scope(|scope| {
            for _ in 0..workers() {
                scope.spawn(|| {
                    while let Some((size, work)) = line.next() {
                        self.part(&work.name(), || match work {
                            Work::Host => self.host(),
                            Work::Vm => self.vm(),
                            Work::Kunit(vm) => self.kunit(vm),
                            Work::Group(jobs) => self.group(jobs),
                        });
                        line.done(size);
                    }
                });
            }
        });
    }

    /// How long it probably takes.
    fn weight(&self, work: &Work) -> Duration {
        let times = lock(&self.times);
        match work {
            // What fails there is known first.
            Work::Host => Duration::MAX,
            Work::Group(jobs) => jobs.iter().map(|job| times.of(job.name())).sum(),
            Work::Vm | Work::Kunit(_) => times.of(&work.name()),
        }
    }

    /// Notes where the time of a VM went.
    fn add_vm_time(&self, time: VmTime) {
        lock(&self.vms).push(time);
    }

    /// Keeps the times of all suites for the next run, and prints the tables if they are wanted.
    fn keep_times(&self) {
        let suites = self.report().take_times();
        let vms = lock(&self.vms);
        let mut times = lock(&self.times);
        for (name, time) in &suites {
            times.note(name, *time);
        }
        for vm in vms.iter().filter(|vm| vm.name.starts_with("kunit/")) {
            times.note(&vm.name, vm.total());
        }
        times.save();
        if self.options.timings {
            print!("{}", times::table(&vms, &suites));
        }
    }

    /// The memory that it takes, in MiB.
    fn memory(&self, work: &Work) -> u64 {
        match work {
            Work::Host => 0,
            Work::Vm => vm::memory(),
            Work::Kunit(_) => kunit::Vm::memory(self.debug),
            Work::Group(jobs) => jobs.first().map_or(0, |job| job.memory(self.debug)),
        }
    }

    fn report(&self) -> MutexGuard<'_, Report> {
        lock(&self.report)
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
