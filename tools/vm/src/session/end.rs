// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The end of a VM, in order or not, and what is known of it then.

use super::Deadline;
use super::Event;
use super::Interrupted;
use super::Lost;
use super::Session;
use super::KILL_DEADLINE;
use super::SYSRQ_ON_HANG;
use crate::complaints::console_line_is_report;
use crate::kmsg::Record;
use crate::log::Copier;
use crate::model;
use crate::protocol::Reply;
use crate::protocol::Request;
use crate::protocol::MARK_END;
use crate::timings::Timings;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

/// How long unloading and the leak check may take.
const FINISH_DEADLINE: Duration = Duration::from_secs(240);
/// How long the rest of a dead VM's output may take.
const DRAIN_DEADLINE: Duration = Duration::from_secs(3);
/// How long QEMU may take to end once the guest said that it is done.
const POWER_OFF_DEADLINE: Duration = Duration::from_secs(60);

/// What is known when a VM has ended.
#[derive(Debug)]
pub struct Verdict {
    /// Leaks, protocol errors, broken ends; one text each.
    pub problems: Vec<String>,
    /// Kernel messages that were lost; the one after them is among the complaints.
    pub lost_messages: u64,
    /// Kernel messages that count and were not taken before.
    pub complaints: Vec<Record>,
    /// Kernel messages not taken before.
    pub kernel_log: Vec<Record>,
    /// Where the logs are.
    pub log_dir: PathBuf,
    /// The user interrupted the end, so that the rest is not known.
    pub interrupted: Option<i32>,
    /// Where the time went.
    pub timings: Timings,
    /// The processor time of QEMU and the models, from the start to the end.
    pub cpu: Duration,
}

/// A panic that came after the end of the kernel log, of which nobody else tells.
fn last_panic(log_dir: &Path) -> Option<String> {
    let console = fs::read(log_dir.join("console.log")).unwrap_or_default();
    let console = String::from_utf8_lossy(&console);
    let line = console.lines().find(|line| line.contains("Kernel panic"))?;
    Some(format!("at the end of the console: {}", line.trim()))
}

impl Session {
    /// Unloads, powers off and returns everything that was wrong at the end: leaks, what the models
    /// counted, a kernel that broke. Kernel messages remain in [`Verdict::complaints`].
    pub fn finish(mut self, keep: bool) -> Verdict {
        let mut problems = Vec::new();
        let mut interrupted = None;
        match self.end_guest(keep) {
            Ok(found) => problems.extend(found),
            Err(error) => match error.downcast_ref::<Interrupted>() {
                Some(Interrupted(signal)) => interrupted = Some(*signal),
                None => problems.push(format!("the VM could not be ended in order: {error:#}")),
            },
        }
        self.timings.end("unloading, leak check");
        let mut verdict = self.close(problems, interrupted.is_some());
        verdict.interrupted = interrupted;
        verdict
    }

    /// Ends a VM that is lost, without asking it.
    pub fn abandon(mut self) -> Verdict {
        self.drain();
        let words = self.last_words();
        let problems = if words.is_empty() {
            Vec::new()
        } else {
            vec![words]
        };
        self.close(problems, false)
    }

    fn end_guest(&mut self, keep: bool) -> anyhow::Result<Vec<String>> {
        self.send(&Request::Finish { keep })?;
        let reply = self.reply("unloading the module", FINISH_DEADLINE);
        let problems = match reply {
            Ok(Reply::Finished { problems }) => problems,
            Ok(other) => anyhow::bail!("the guest answered {other:?}"),
            Err(Lost::Interrupted(signal)) => return Err(Interrupted(signal).into()),
            Err(lost) => {
                let _ = self.send(&Request::SysRq {
                    keys: SYSRQ_ON_HANG.into(),
                });
                self.drain();
                anyhow::bail!("{lost}{}", self.last_words())
            }
        };
        let deadline = Deadline::new("the end of the kernel log", KILL_DEADLINE);
        while self.last_mark != MARK_END {
            match self.next(&deadline) {
                Ok(_) => {}
                // The guest may be off before its last messages have passed through here.
                Err(Lost::Gone) if self.events.is_open() => {}
                Err(_) => anyhow::bail!("the kernel log did not come to its end"),
            }
        }
        Ok(problems)
    }

    /// Ends the processes. One who is in a hurry waits for nobody and asks nobody.
    fn close(self, mut problems: Vec<String>, hurry: bool) -> Verdict {
        let Self {
            mut qemu,
            models,
            mut complaints,
            mut kernel_log,
            mut copiers,
            mut kmsg,
            events,
            mut timings,
            log_dir,
            judge,
            ..
        } = self;
        let mut cpu = Duration::ZERO;
        if hurry {
            drop(qemu.kill());
            drop(models);
        } else {
            match qemu.wait_for(POWER_OFF_DEADLINE) {
                Ok(Some(status)) if status.success() => {}
                Ok(Some(status)) => problems.push(format!("QEMU ended badly: {status}")),
                Ok(None) | Err(_) => {
                    problems.push("the guest did not power off".into());
                    drop(qemu.kill());
                }
            }
            timings.end("power-off");
            drop(events);
            kmsg.complete();
            copiers.iter_mut().for_each(Copier::complete);
            problems.extend(last_panic(&log_dir));
            cpu += qemu.cpu_time();
            for mut model in models {
                problems.extend(model.finish());
                cpu += model.cpu_time();
            }
            timings.end("end of the models");
        }
        Verdict {
            problems,
            lost_messages: judge.lost(),
            complaints: complaints.take(),
            kernel_log: kernel_log.take(),
            log_dir,
            interrupted: None,
            timings,
            cpu,
        }
    }

    /// Takes what a dying VM still said.
    pub(super) fn drain(&mut self) {
        let mut records = Vec::new();
        self.events.drain(DRAIN_DEADLINE, |event| {
            let interrupted = matches!(event, Event::Interrupt(_));
            if let Event::Kmsg(record) = event {
                records.push(record);
            }
            !interrupted
        });
        for record in records {
            self.take_record(record);
        }
    }

    pub(super) fn kernel_tail(&self) -> String {
        let last = self.kernel_log.last(12).into_iter();
        let lines: Vec<String> = last.map(|record| format!("    | {record}")).collect();
        lines.join("\n")
    }

    /// What QEMU and the console said last, where a VM died; empty where there is nothing to say.
    pub(super) fn last_words(&mut self) -> String {
        // Of one that is about to end the logs are to be whole; another one may go on writing them.
        if let Ok(Some(_)) = self.qemu.wait_for(DRAIN_DEADLINE) {
            self.copiers.iter_mut().for_each(Copier::complete);
        }
        let mut words = String::new();
        let qemu = model::tail(&self.log_dir.join("qemu.log"));
        if !qemu.is_empty() {
            words.push_str(&format!("\n  QEMU said:\n{qemu}"));
        }
        let console = fs::read(self.log_dir.join("console.log")).unwrap_or_default();
        let console = String::from_utf8_lossy(&console);
        let lines: Vec<&str> = console.lines().collect();
        let report = lines.iter().position(|line| console_line_is_report(line));
        let from = report.unwrap_or(lines.len().saturating_sub(10));
        let shown: Vec<String> = lines
            .iter()
            .skip(from)
            .take(60)
            .map(|line| format!("    | {line}"))
            .collect();
        if !shown.is_empty() {
            words.push_str(&format!("\n  the console said:\n{}", shown.join("\n")));
        }
        words
    }
}
