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
mod line;
mod load;
pub mod mutants;
mod output;
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
use header::Conditions;
use line::available_memory;
use line::Line;
use load::Load;
use load::Pace;
use report::Report;
use report::Suite;
use signal_hook::consts::SIGHUP;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::io::IsTerminal;
use std::panic::catch_unwind;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::path::PathBuf;
use std::process::exit;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;
use std::time::Instant;
use times::Times;
use times::VmTime;

/// What a run is like.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// On the debug kernel.
    pub debug: bool,
    /// Models give nothing that hardware does not promise.
    pub harsh: bool,
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
    /// The processor time of suites, by name.
    cpus: Mutex<BTreeMap<String, Duration>>,
    /// What processors did meanwhile.
    load: Load,
    /// Ends runs early.
    trial: Option<trial::Trial>,
}

/// What one worker does without a break: it boots VMs, which end with its thread.
enum Work {
    /// The VM runner's own tests.
    Vm,
    Kunit(kunit::Vm),
    Group(Vec<job::Job>),
}

impl Work {
    fn name(&self) -> String {
        match self {
            Self::Vm => vm::NAME.into(),
            Self::Kunit(vm) => vm.unit(),
            Self::Group(jobs) => jobs
                .first()
                .map_or("e2e".into(), |job| job.name().to_owned()),
        }
    }
}

/// What a lock protects is whole after a panic, too.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            cpus: Mutex::default(),
            load: Load::new(),
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
            work.push(Work::Vm);
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

    /// VMs, as many at a time as [`Pace`] says and the machine has the memory for, and beside them what needs none.
    fn side_by_side(&self, mut work: Vec<Work>) {
        // A long one that begins last would run alone at the end.
        work.sort_by_key(|work| Reverse(self.weight(work)));
        let sized = work.into_iter().map(|work| (self.memory(&work), work));
        let line = Line::new(sized.collect(), available_memory());
        let pace = Pace::of_machine();
        let admits = |running, since| pace.admits(running, since, self.load.idle());
        thread::scope(|scope| {
            let watch = scope.spawn(|| self.load.watch(|| line.running()));
            let host =
                (!self.options.upstream).then(|| scope.spawn(|| self.part("host", || self.host())));
            let workers: Vec<_> = (0..pace.most())
                .map(|_| {
                    scope.spawn(|| {
                        while let Some((size, work)) = line.next(admits) {
                            self.part(&work.name(), || match work {
                                Work::Vm => self.vm(),
                                Work::Kunit(vm) => self.kunit(vm),
                                Work::Group(jobs) => self.group(jobs),
                            });
                            line.done(size);
                        }
                    })
                })
                .collect();
            for thread in workers.into_iter().chain(host) {
                // A panic is a failure of its part.
                let _ = thread.join();
            }
            self.load.end();
            let _ = watch.join();
        });
    }

    /// How long it probably takes.
    fn weight(&self, work: &Work) -> Duration {
        let times = lock(&self.times);
        match work {
            Work::Group(jobs) => jobs.iter().map(|job| times.of(job.name())).sum(),
            Work::Vm | Work::Kunit(_) => times.of(&work.name()),
        }
    }

    /// Notes where the time of a VM went.
    fn add_vm_time(&self, time: VmTime) {
        lock(&self.vms).push(time);
    }

    /// Notes the processor time of a suite.
    fn add_cpu(&self, name: &str, time: Duration) {
        lock(&self.cpus).insert(name.to_owned(), time);
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
            print!("{}", times::table(&vms, &suites, &lock(&self.cpus)));
            print!("{}", self.load.table());
        }
    }

    /// The memory that it takes, in MiB.
    fn memory(&self, work: &Work) -> u64 {
        match work {
            Work::Vm => vm::memory(),
            Work::Kunit(_) => kunit::Vm::memory(self.conditions()),
            Work::Group(jobs) => jobs.first().map_or(0, |job| job.memory(self.conditions())),
        }
    }

    /// What all VMs have in common.
    fn conditions(&self) -> Conditions {
        Conditions {
            debug: self.debug,
            harsh: self.options.harsh,
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
