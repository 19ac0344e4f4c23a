// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A single suite whose only question is whether it fails: it ends with its first failure, or when its time is up.
//!
//! A run that came to no end, or never began, does not answer the question: on a busy machine the driver as it is
//! may look the same.

use super::filter::Filter;
use super::header::Conditions;
use super::job;
use super::kunit;
use super::report::Report;
use super::report::Suite;
use super::times::Times;
use super::Options;
use super::Runner;
use crate::cli::Places;
use crate::complaints::console_line_is_report;
use crate::session::Event;
use crate::session::Interrupted;
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
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;
use std::time::Instant;

/// Pause between two looks at a run.
const INTERVAL: Duration = Duration::from_millis(100);

/// Reports that a machine without processor time brings about, too.
const OF_A_BUSY_MACHINE: [&str; 3] = ["stall", "blocked for more than", "soft lockup"];

/// What a trial found.
#[derive(Debug)]
pub enum Found {
    /// The suites ran: to their end, or to the first failure.
    Ran(Vec<Suite>),
    /// Nothing: why they came to no end.
    NoVerdict(String),
}

/// A trial under way.
#[derive(Debug)]
pub(super) struct Trial {
    /// From the first message of the VM's kernel to the end.
    time: Duration,
    /// Why it proves nothing, where it does not.
    no_verdict: Mutex<Option<String>>,
}

impl Trial {
    fn new(time: Duration) -> Self {
        Self {
            time,
            no_verdict: Mutex::default(),
        }
    }

    /// It came to no end, and nothing had failed before. The first reason counts.
    pub(super) fn proves_nothing(&self, why: impl Into<String>) {
        super::lock(&self.no_verdict).get_or_insert_with(|| why.into());
    }

    /// It was ended when its time was up.
    pub(super) fn time_is_up(&self) {
        self.proves_nothing(format!("it took longer than {} s", self.time.as_secs()));
    }

    /// The VM did not come as far as to run the suites. What failed, if the driver is to blame for that.
    pub(super) fn no_vm(&self, error: &anyhow::Error, log_dir: &Path) -> Option<String> {
        let broken = failed_case(&log_dir.join("kernel.log")).or_else(|| kernel_report(log_dir));
        match (&broken, error.downcast_ref::<Interrupted>()) {
            (Some(_), _) => {}
            (None, Some(_)) => self.time_is_up(),
            (None, None) => self.proves_nothing(format!("no VM: {error:#}")),
        }
        broken
    }
}

/// What the kernel's own checkers reported at the end of a VM, as the console shows it.
pub(super) fn kernel_report(log_dir: &Path) -> Option<String> {
    let console = fs::read(log_dir.join("console.log")).unwrap_or_default();
    let console = String::from_utf8_lossy(&console);
    let mut reports = console.lines().filter(|line| {
        console_line_is_report(line) && !OF_A_BUSY_MACHINE.iter().any(|word| line.contains(word))
    });
    reports.next().map(|line| line.trim().to_owned())
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
    pub(super) fn new(trial: &Trial, events: SyncSender<Event>, log: PathBuf) -> Self {
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let time = trial.time;
        thread::spawn(move || {
            // A VM that waits for memory, or for a processor, has not begun.
            let mut end = None;
            while !shared.over.load(Ordering::Relaxed) {
                let begun = fs::metadata(&log).is_ok_and(|meta| meta.len() > 0);
                if begun && end.is_none() {
                    end = Some(Instant::now() + time);
                }
                let failed = shared.failed.load(Ordering::Relaxed) || has_failed(&log);
                if failed || end.is_some_and(|end| Instant::now() >= end) {
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
    text.lines().find_map(|line| {
        // A kernel that the driver has broken may come no further than to what a case found wrong.
        if let Some((before, _)) = line.split_once(": ASSERTION FAILED at ") {
            return before.split_once("# ").map(|(_, case)| case.to_owned());
        }
        let (_, case) = line.split_once("not ok ")?;
        // The number stands before the name.
        let name = case.split_once(' ').map_or(case, |(_, name)| name);
        Some(name.to_owned())
    })
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
            Kind::Kunit(_) => kunit::Vm::memory(Conditions::default()),
            Kind::E2e(job) => job.memory(Conditions::default()),
        }
    }

    /// Runs it with what is below `places.out`, for `time` at most.
    ///
    /// # Errors
    /// Where it cannot be run at all.
    pub fn run(&self, places: Places, time: Duration) -> anyhow::Result<Found> {
        let runner = Runner {
            logs: super::logs_of(&places)?,
            times: Mutex::new(Times::load(&places.out, false)),
            vms: Mutex::default(),
            cpus: Mutex::default(),
            load: super::load::Load::new(),
            options: Options::default(),
            places,
            debug: false,
            filter: Filter::new(Vec::new()),
            report: Mutex::new(Report::collecting()),
            trial: Some(Trial::new(time)),
        };
        match &self.0 {
            Kind::Kunit(vm) => runner.kunit(vm.clone())?,
            Kind::E2e(job) => runner.group(vec![job.as_ref().clone()])?,
        }
        let suites = runner.report().take();
        let no_verdict = runner.trial.and_then(|trial| {
            let why = trial.no_verdict.into_inner();
            why.unwrap_or_else(PoisonError::into_inner)
        });
        Ok(no_verdict.map_or(Found::Ran(suites), Found::NoVerdict))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a VM that did not come up with these logs has failed, and what the trial says.
    fn no_vm(
        kernel: &str,
        console: &str,
        error: anyhow::Error,
    ) -> (Option<String>, Option<String>) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("kernel.log"), kernel).unwrap();
        fs::write(dir.path().join("console.log"), console).unwrap();
        let trial = Trial::new(Duration::from_secs(40));
        let failed = trial.no_vm(&error, dir.path());
        (failed, trial.no_verdict.into_inner().unwrap())
    }

    #[test]
    fn a_vm_that_did_not_come_up_proves_nothing() {
        let gone = || anyhow::anyhow!("the model did not start");
        let (failed, why) = no_vm("", "", gone());
        assert_eq!(failed, None);
        assert_eq!(why.as_deref(), Some("no VM: the model did not start"));
        let (failed, why) = no_vm("", "", Interrupted(SIGALRM).into());
        assert_eq!(failed, None);
        assert_eq!(why.as_deref(), Some("it took longer than 40 s"));
        let stall = "[    9.0] rcu: INFO: rcu_sched self-detected stall on CPU\n";
        let (failed, why) = no_vm("", stall, gone());
        assert_eq!((failed, why.is_some()), (None, true));
    }

    #[test]
    fn one_that_the_driver_broke_does() {
        let gone = || anyhow::anyhow!("the VM ended by itself");
        let panic = "[    9.0] Kernel panic - not syncing: Fatal exception";
        assert_eq!(no_vm("", panic, gone()), (Some(panic.to_owned()), None));
        let case = "[    3.0]     not ok 2 wakes_up\n";
        let failed = no_vm(case, "", Interrupted(SIGALRM).into());
        assert_eq!(failed, (Some("wakes_up".to_owned()), None));
        let found = "[    3.6] error       # ends_in_time: ASSERTION FAILED at rust/tests/kapi_threads.rs:128\n";
        let failed = no_vm(found, "", Interrupted(SIGALRM).into());
        assert_eq!(failed, (Some("ends_in_time".to_owned()), None));
    }

    #[test]
    fn the_first_reason_counts() {
        let trial = Trial::new(Duration::from_secs(40));
        trial.proves_nothing("the VM was lost");
        trial.time_is_up();
        let why = trial.no_verdict.into_inner().unwrap();
        assert_eq!(why.as_deref(), Some("the VM was lost"));
    }
}
