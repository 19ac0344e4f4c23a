// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A single suite whose only question is whether it fails: it ends with its first failure, or when its time is up.

use super::filter::Filter;
use super::job;
use super::kunit;
use super::report::Report;
use super::report::Suite;
use super::times::Times;
use super::Options;
use super::Runner;
use crate::cli::Places;
use crate::session::Event;
use anyhow::Context;
use nix::libc::SIGALRM;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::sync::mpsc::TrySendError;
use std::sync::Arc;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use std::time::Instant;

/// Pause between two looks at a run.
const INTERVAL: Duration = Duration::from_millis(100);

/// What a trial may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// From the start of the VM to its end.
    pub(super) time: Duration,
}

/// Ends a VM early: when its test has failed, or when its time is up.
pub(super) struct Guard {
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// The test has failed.
    failed: AtomicBool,
    /// The VM is gone.
    over: AtomicBool,
}

impl Guard {
    /// Watches over a VM whose kernel log is written to `log`.
    pub(super) fn new(limits: Limits, events: SyncSender<Event>, log: PathBuf) -> Self {
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            let end = Instant::now() + limits.time;
            while !shared.over.load(Ordering::Relaxed) {
                let failed = shared.failed.load(Ordering::Relaxed) || has_failed(&log);
                if failed || Instant::now() >= end {
                    match events.try_send(Event::Interrupt(SIGALRM)) {
                        Ok(()) | Err(TrySendError::Full(_)) => {}
                        Err(TrySendError::Disconnected(_)) => return,
                    }
                }
                thread::sleep(INTERVAL);
            }
        });
        Self { state }
    }

    /// The test has failed.
    pub(super) fn fail(&self) {
        self.state.failed.store(true, Ordering::Relaxed);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Relaxed);
    }
}

/// A KUnit case has failed.
fn has_failed(log: &Path) -> bool {
    failed_case(log).is_some()
}

/// The first KUnit case that the kernel log says has failed.
pub(super) fn failed_case(log: &Path) -> Option<String> {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find_map(|line| line.split_once("not ok "));
    let (_, case) = line?;
    // The number stands before the name.
    Some(
        case.split_once(' ')
            .map_or(case, |(_, name)| name)
            .to_owned(),
    )
}

/// Whether a line of TAP says that a case has failed.
pub(super) fn says_failed(text: &[u8]) -> bool {
    String::from_utf8_lossy(text)
        .lines()
        .any(|line| line.trim_start().starts_with("not ok "))
}

/// A suite that can be tried: one of KUnit in one VM, or an end-to-end test with its variant.
#[derive(Clone, Debug)]
pub struct Subject(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Kunit(kunit::Vm),
    E2e(Box<job::Job>),
}

/// All subjects of a checkout, by name.
pub struct Subjects {
    suites: Vec<String>,
    jobs: Vec<job::Job>,
}

impl Subjects {
    /// Finds them.
    ///
    /// # Errors
    /// Where the folder of end-to-end tests cannot be read.
    pub fn find(top: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            suites: kunit::suites_in(top),
            jobs: job::all_jobs(top)?,
        })
    }

    /// That of a name, as `kunit/gfx90a: rkfd_hw_pm4` or `e2e/demo (gfx90a)`.
    ///
    /// # Errors
    /// Where nothing has that name.
    pub fn get(&self, name: &str) -> anyhow::Result<Subject> {
        if let Some(vm) = kunit::Vm::for_suite(name, &self.suites) {
            return Ok(Subject(Kind::Kunit(vm)));
        }
        let job = self.jobs.iter().find(|job| job.name() == name);
        let job = job.with_context(|| format!("there is no suite {name}"))?;
        Ok(Subject(Kind::E2e(Box::new(job.clone()))))
    }
}

impl Subject {
    /// One whose VM runs this and `other`, if one VM can.
    pub fn with(&self, other: &Self) -> Option<Self> {
        match (&self.0, &other.0) {
            (Kind::Kunit(one), Kind::Kunit(two)) => Some(Self(Kind::Kunit(one.with(two)?))),
            _ => None,
        }
    }

    /// The memory that its VM takes, in MiB.
    pub fn memory(&self) -> u64 {
        match &self.0 {
            Kind::Kunit(_) => kunit::Vm::memory(false),
            Kind::E2e(job) => job.memory(false),
        }
    }

    /// Runs it with what is below `places.out`.
    ///
    /// # Errors
    /// Where it cannot be run at all.
    pub fn run(&self, places: Places, time: Duration) -> anyhow::Result<Vec<Suite>> {
        let runner = Runner {
            logs: super::logs_of(&places)?,
            times: Mutex::new(Times::load(&places.out, false)),
            vms: Mutex::default(),
            options: Options::default(),
            places,
            debug: false,
            filter: Filter::new(Vec::new()),
            report: Mutex::new(Report::collecting()),
            trial: Some(Limits { time }),
        };
        match &self.0 {
            Kind::Kunit(vm) => runner.kunit(vm.clone())?,
            Kind::E2e(job) => runner.group(vec![job.as_ref().clone()])?,
        }
        let suites = runner.report().take();
        Ok(suites)
    }
}
