// SPDX-License-Identifier: GPL-2.0 OR MIT
//! End-to-end tests: programs that run in the VM and print TAP.
//!
//! Tests that ask for the same VM share a boot. Between two of them the kernel log and the models are
//! asked for complaints, so that each complaint fails the test that caused it. A test that loses the VM
//! costs the others only a boot.

use super::filter::UNLOAD;
use super::job::discover;
use super::job::Job;
use super::load::Pace;
use super::output::Collector;
use super::output::Output;
use super::pack::pack;
use super::report::case;
use super::report::Suite;
use super::times::Times;
use super::times::VmTime;
use super::trial::kernel_report;
use super::trial::says_failed;
use super::trial::Guard;
use super::Runner;
use crate::cli;
use crate::complaints::Policy;
use crate::ktap;
use crate::ktap::Status;
use crate::ktap::Test;
use crate::protocol::Ending;
use crate::protocol::Exec;
use crate::session::Channel;
use crate::session::Outcome;
use crate::session::Session;
use crate::timings::Timings;
use anyhow::Context;
use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::iter::Peekable;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::Instant;
use std::vec::IntoIter;

/// What a test's own time, and each wait in it, is multiplied by. These limits only matter when something
/// is broken, and VMs share the processors with each other.
const FACTOR: u32 = 2;
/// The same for the debug kernel, which is several times slower under TCG.
const DEBUG_FACTOR: u32 = 8;
/// Kernel parameters for a VM whose module is the one with KUnit suites, which are not run: the last word counts.
const ONE_BUILD: &str = " kunit.enable=1 kunit.enable=0";
/// How long a model may take to answer on its control socket.
const CONTROL_DEADLINE: Duration = Duration::from_secs(60);

impl Runner {
    /// The tests of `tests/e2e`, or of `tests/upstream`, in groups that share a VM.
    ///
    /// # Errors
    /// Where the folder cannot be read.
    pub(super) fn e2e_groups(&self, times: &Times) -> anyhow::Result<Vec<Vec<Job>>> {
        let folder = if self.options.upstream {
            "tests/upstream"
        } else {
            "tests/e2e"
        };
        let dir = self.places.top.join(folder);
        let mut wanted = Vec::new();
        for (name, found) in discover(&dir)? {
            match found {
                Ok(jobs) => {
                    for job in jobs.into_iter().filter(|job| self.wants(&job.name)) {
                        match &job.header.not_on_debug {
                            Some(reason) if self.debug => self.skip(&job, reason),
                            _ if job.header.only_on_debug && !self.debug => {}
                            _ => wanted.push(job),
                        }
                    }
                }
                Err(error) if self.wants(&name) => {
                    let why = Some(format!("{error:#}"));
                    self.add(&Suite::check(&name, Duration::ZERO, None, why));
                }
                Err(_) => {}
            }
        }
        Ok(pack(
            wanted,
            times,
            Pace::of_machine().usual(),
            self.conditions(),
        ))
    }

    /// Runs tests that share a VM, in as many boots as it takes.
    ///
    /// # Errors
    /// Where the options do not fit this machine.
    pub(super) fn group(&self, jobs: Vec<Job>) -> anyhow::Result<()> {
        let mut left = jobs.into_iter().peekable();
        // Each boot finishes at least one job, so this ends.
        while let Some(first) = left.peek().cloned() {
            self.progress(&first.name);
            let mut time = VmTime {
                name: first.name.clone(),
                ..VmTime::default()
            };
            let mut machine = first.machine(self.conditions())?;
            if self.options.changed && !self.debug {
                machine.kernel_args.push_str(ONE_BUILD);
            }
            let config = machine.config(&self.places)?;
            let log_dir = config.log_dir.clone();
            let start = Instant::now();
            let channel = Channel::new();
            let guard = self
                .trial
                .as_ref()
                .map(|trial| Guard::new(trial, channel.sender(), log_dir.join("kernel.log")));
            let session = Session::boot_on(&config, channel, Timings::default());
            time.boot = start.elapsed();
            match session {
                Ok(session) => {
                    let gpus = config.asics.len();
                    self.in_vm(session, &mut left, gpus, guard.as_ref(), &mut time);
                }
                Err(error) => {
                    let why = match &self.trial {
                        Some(trial) => trial.no_vm(&error, &log_dir),
                        None => Some(format!("no VM: {error:#}")),
                    };
                    for job in left.by_ref() {
                        let log = Some(log_dir.clone());
                        self.add(&Suite::check(&job.name, start.elapsed(), log, why.clone()));
                    }
                }
            }
            self.add_vm_time(time);
        }
        Ok(())
    }

    /// Runs tests in a VM that has booted for the first of them, as far as it lasts.
    fn in_vm(
        &self,
        mut session: Session,
        left: &mut Peekable<IntoIter<Job>>,
        gpus: usize,
        guard: Option<&Guard>,
        time: &mut VmTime,
    ) {
        let log_dir = session.log_dir().to_owned();
        let mut names = Vec::new();
        let mut before: Option<Job> = None;
        for job in left.by_ref() {
            let renewed = before.filter(|before| self.is_renewed(before, &job));
            if let Some(before) = renewed {
                let start = Instant::now();
                let unloaded = self.unload(&mut session, &names, end_policy(&before));
                names.clear();
                let reset = before.is_fresh() || job.is_fresh();
                let loaded = if unloaded {
                    self.load(&mut session, &job, reset)
                } else {
                    Err("the driver was not unloaded".into())
                };
                time.reloads += start.elapsed();
                if let Err(why) = loaded {
                    let log = Some(log_dir);
                    self.add(&Suite::check(&job.name, start.elapsed(), log, Some(why)));
                    // The others get another VM.
                    return;
                }
            }
            let (suite, lost) = self.job(&mut session, &job, gpus, guard);
            time.suites += suite.time;
            time.count += 1;
            names.push(job.name.clone());
            let start = Instant::now();
            if guard.is_some() && suite.counts().failed > 0 {
                if lost.is_some() {
                    self.add(&suite);
                }
                return;
            }
            if let Some(why) = lost {
                time.cpu = self.abandon(session, suite, why);
                time.end = start.elapsed();
                return;
            }
            before = Some(job);
        }
        let start = Instant::now();
        if let Some(before) = before {
            session.set_policy(end_policy(&before));
        }
        time.cpu = self.end(session, &names, &log_dir);
        time.end = start.elapsed();
    }

    fn skip(&self, job: &Job, reason: &str) {
        let mut test = case(&job.name, None);
        test.status = Status::Skipped(format!("on the debug kernel: {reason}"));
        self.add(&Suite {
            name: job.name.clone(),
            tests: vec![test],
            time: Duration::ZERO,
            log: None,
        });
    }

    /// Runs one test. Its suite is reported, unless the VM was lost: then the caller adds how it ended.
    fn job(
        &self,
        session: &mut Session,
        job: &Job,
        gpus: usize,
        guard: Option<&Guard>,
    ) -> (Suite, Option<String>) {
        self.progress(&job.name);
        let start = Instant::now();
        let cpu = session.cpu();
        session.set_policy(job.policy());
        let mut env = cli::environment(&self.places, gpus);
        let asic = job.asic.clone().unwrap_or_else(|| "gfx90a".into());
        env.push(("RKFD_ASIC".into(), asic));
        if let Ok(machine) = job.machine(self.conditions()) {
            env.push(("RKFD_DRIVER".into(), machine.driver.name().into()));
        }
        if let Some(policy) = job.sched_policy {
            env.push(("KFD_SCHED_POLICY".into(), policy.to_string()));
        }
        let factor = if self.debug { DEBUG_FACTOR } else { FACTOR };
        env.push(("TAP_PATIENCE".into(), factor.to_string()));
        if self.debug {
            env.push(("RKFD_DEBUG_KERNEL".into(), "1".into()));
        }
        let exec = Exec {
            argv: vec![job.path.display().to_string()],
            cwd: self.places.top.display().to_string(),
            env,
            stdin: false,
            tty: None,
            label: job.name.clone(),
        };
        let limit = job.header.timeout * factor;
        let mut printed = Collector::new();
        let outcome = session.exec(exec, Some(limit), &mut |stream, data| {
            printed.add(stream, data);
            if let Some(guard) = guard.filter(|_| says_failed(printed.out_so_far())) {
                guard.fail();
            }
        });
        let output = printed.finish();
        let lost = match &outcome {
            Outcome::VmLost(how) => Some(how.clone()),
            _ => None,
        };
        if let Some(trial) = self.trial.as_ref().filter(|_| !says_failed(output.out())) {
            match &outcome {
                Outcome::Interrupted(_) => trial.time_is_up(),
                Outcome::TimedOut => {
                    trial.proves_nothing(format!("it was killed after {} s", limit.as_secs()));
                }
                Outcome::VmLost(how) if kernel_report(session.log_dir()).is_none() => {
                    trial.proves_nothing(format!("the VM was lost: {how}"));
                }
                _ => {}
            }
        }
        let log = self.write_log(job, &output, session);
        let mut tests = judge(&outcome, &output, limit);
        let mut complaints: Vec<String> = session
            .take_complaints()
            .iter()
            .map(ToString::to_string)
            .collect();
        if lost.is_none() {
            for (index, control) in session.controls().iter().enumerate() {
                complaints.extend(model_errors(control, index));
            }
        }
        if !complaints.is_empty() {
            tests.push(case(
                "no complaint of kernel or model",
                Some(complaints.join("\n")),
            ));
        }
        let suite = Suite {
            name: job.name.clone(),
            tests,
            time: start.elapsed(),
            log,
        };
        if lost.is_none() {
            self.add_cpu(&suite.name, session.cpu().saturating_sub(cpu));
            self.add(&suite);
        }
        (suite, lost)
    }

    /// Ends a VM and reports what its end shows. Returns the VM's processor time.
    fn end(&self, session: Session, names: &[String], log_dir: &Path) -> Duration {
        let start = Instant::now();
        let verdict = session.finish(false);
        if let (Some(trial), Some(_)) = (&self.trial, verdict.interrupted) {
            trial.time_is_up();
        }
        let complaints = verdict.complaints.iter().map(ToString::to_string);
        let all: Vec<String> = complaints.chain(verdict.problems).collect();
        let failure =
            (!all.is_empty()).then(|| format!("after {}:\n{}", names.join(", "), all.join("\n")));
        let first = names.first().map_or("", String::as_str);
        let name = format!("{UNLOAD}{}", first.trim_start_matches("e2e/"));
        let log = Some(log_dir.to_owned());
        self.add(&Suite::check(&name, start.elapsed(), log, failure));
        verdict.cpu
    }

    /// Ends a VM that a test has lost, and reports the test with what is known. Returns the VM's processor time.
    fn abandon(&self, session: Session, mut suite: Suite, why: String) -> Duration {
        let verdict = session.abandon();
        let complaints = verdict.complaints.iter().map(ToString::to_string);
        let all: Vec<String> = std::iter::once(why)
            .chain(complaints)
            .chain(verdict.problems)
            .collect();
        suite
            .tests
            .push(case("the VM survives", Some(all.join("\n"))));
        self.add(&suite);
        verdict.cpu
    }

    fn write_log(&self, job: &Job, output: &Output, session: &mut Session) -> Option<PathBuf> {
        let path = self
            .logs
            .join(format!("{}.log", job.name.replace(['/', ' '], "-")));
        let mut text = output.out().to_owned();
        text.extend_from_slice(b"\n---- standard error\n");
        text.extend_from_slice(output.err());
        text.extend_from_slice(b"\n---- kernel\n");
        for record in session.take_kernel_log() {
            text.extend_from_slice(format!("{record}\n").as_bytes());
        }
        fs::write(&path, text).ok().map(|()| path)
    }
}

/// Which kernel messages count when the driver is unloaded after a test: what it expects may come late, if nobody shared
/// the driver with it.
fn end_policy(job: &Job) -> Policy {
    if job.is_fresh() {
        job.policy()
    } else {
        job.policy_of_driver()
    }
}

/// The results of a test by what it printed and how it ended.
pub(super) fn judge(outcome: &Outcome, output: &Output, limit: Duration) -> Vec<Test> {
    let text = String::from_utf8_lossy(output.out());
    let document = ktap::parse(text.lines());
    let failures = document.counts().failed;
    let mut tests = document.tests;
    let how = match outcome {
        Outcome::Ended(Ending::Code(0)) => None,
        // A TAP program that has said what failed may say it by its status, too.
        Outcome::Ended(Ending::Code(_)) if failures > 0 => None,
        Outcome::Ended(Ending::Code(code)) => Some(format!("exit status {code}")),
        Outcome::Ended(Ending::Signal(signal)) => Some(format!("killed by signal {signal}")),
        Outcome::NotStarted { error, .. } => Some(error.clone()),
        Outcome::TimedOut => Some(format!("killed after {} s", limit.as_secs())),
        Outcome::Interrupted(_) | Outcome::VmLost(_) => Some("the VM was lost".into()),
    };
    let how = match how {
        None if !document.found || tests.is_empty() => Some("it printed no TAP".into()),
        // Who leaves before he has said how many cases there are may have left some out.
        None if !document.planned => Some("it ended without its plan".into()),
        how => how,
    };
    if let Some(how) = how {
        let last = output.text();
        tests.push(case("runs to its end", Some(format!("{how}\n{last}"))));
    } else if failures > 0 {
        // What it wrote to standard error explains the failures.
        let errors = String::from_utf8_lossy(output.err());
        if let Some(failed) = tests
            .iter_mut()
            .rev()
            .find(|test| test.status == Status::Failed)
        {
            failed.diagnostics.extend(errors.lines().map(str::to_owned));
        }
    }
    tests
}

/// Asks a model for its protocol errors and clears them.
pub(super) fn model_errors(control: &Path, index: usize) -> Vec<String> {
    let who = format!("model of GPU {index}");
    match ask(control, "{\"cmd\":\"errors\"}") {
        Ok(reply) => {
            let errors = reply.get("errors").and_then(|errors| errors.as_array());
            let texts: Vec<String> = errors
                .into_iter()
                .flatten()
                .map(|error| format!("{who}: {}", error_text(error)))
                .collect();
            if !texts.is_empty() {
                let _ = ask(control, "{\"cmd\":\"clear-errors\"}");
            }
            texts
        }
        // A model that a test has killed is judged at the end of the VM.
        Err(_) => Vec::new(),
    }
}

fn error_text(error: &serde_json::Value) -> String {
    let text = error
        .as_str()
        .or_else(|| error.get("text").and_then(|text| text.as_str()));
    text.map_or_else(|| error.to_string(), str::to_owned)
}

pub(super) fn ask(control: &Path, request: &str) -> anyhow::Result<serde_json::Value> {
    let mut stream = UnixStream::connect(control).context("connecting to the model")?;
    stream.set_read_timeout(Some(CONTROL_DEADLINE))?;
    stream.write_all(request.as_bytes())?;
    stream.write_all(b"\n")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Stream;

    fn output(out: &str, err: &str) -> Output {
        let mut printed = Collector::new();
        printed.add(Stream::Out, out.as_bytes());
        printed.add(Stream::Err, err.as_bytes());
        printed.finish()
    }

    fn judged(outcome: &Outcome, out: &str) -> (usize, usize) {
        let tests = judge(outcome, &output(out, "stderr text"), Duration::from_secs(5));
        let document = ktap::Document {
            tests,
            found: true,
            planned: true,
        };
        let counts = document.counts();
        (counts.passed, counts.failed)
    }

    const GOOD: Outcome = Outcome::Ended(Ending::Code(0));

    #[test]
    fn tap_and_status_must_both_be_good() {
        assert_eq!(judged(&GOOD, "1..2\nok 1 a\nok 2 b\n"), (2, 0));
        assert_eq!(
            judged(&Outcome::Ended(Ending::Code(1)), "1..1\nok 1 a\n"),
            (1, 1)
        );
        assert_eq!(
            judged(&Outcome::Ended(Ending::Code(1)), "1..1\nnot ok 1 a\n"),
            (0, 1)
        );
        assert_eq!(judged(&GOOD, "1..1\nnot ok 1 a\n"), (0, 1));
    }

    #[test]
    fn who_leaves_without_a_plan_has_failed() {
        assert_eq!(judged(&GOOD, "ok 1 a\nok 2 b\n"), (2, 1));
        // That of a subtest is none.
        let nested = "    1..1\n    ok 1 a\nok 1 suite\n";
        assert_eq!(judged(&GOOD, nested), (1, 1));
        assert_eq!(judged(&GOOD, "ok 1 a\n1..1\n"), (1, 0));
    }

    #[test]
    fn silence_and_early_death_fail() {
        assert_eq!(judged(&GOOD, ""), (0, 1));
        assert_eq!(judged(&GOOD, "hello\n"), (0, 1));
        assert_eq!(
            judged(&Outcome::Ended(Ending::Signal(11)), "1..3\nok 1 a\n"),
            (1, 3)
        );
        assert_eq!(judged(&Outcome::TimedOut, "1..2\nok 1 a\n"), (1, 2));
    }

    #[test]
    fn standard_error_is_shown_with_the_failure() {
        let tests = judge(
            &GOOD,
            &output("1..1\nnot ok 1 a\n", "because"),
            Duration::ZERO,
        );
        assert!(tests[0].diagnostics.iter().any(|line| line == "because"));
    }

    #[test]
    fn a_models_errors_are_read_and_cleared() {
        use std::os::unix::net::UnixListener;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let mut seen = Vec::new();
            for reply in [
                "{\"ok\":true,\"errors\":[{\"text\":\"HIQ: bad\"},\"plain\"]}",
                "{\"ok\":true}",
            ] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut line = String::new();
                BufReader::new(stream.try_clone().unwrap())
                    .read_line(&mut line)
                    .unwrap();
                seen.push(line);
                writeln!(stream, "{reply}").unwrap();
            }
            seen
        });
        assert_eq!(
            model_errors(&path, 0),
            ["model of GPU 0: HIQ: bad", "model of GPU 0: plain"]
        );
        let seen = server.join().unwrap();
        assert!(seen[0].contains("\"errors\"") && seen[1].contains("clear-errors"));
    }
}
