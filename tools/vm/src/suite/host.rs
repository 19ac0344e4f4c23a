// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Checks that need no VM: formatting, lints, unit and property tests.

use super::report::case;
use super::report::Suite;
use super::Runner;
use crate::child::Bound;
use crate::suite::libtest;
use anyhow::Context;
use std::fs;
use std::fs::File;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

/// Bound of one step; the first build of all tests on a slow machine is the longest.
const STEP_DEADLINE: Duration = Duration::from_secs(3600);

/// A finished step.
struct Step {
    success: bool,
    output: String,
    time: Duration,
    log: PathBuf,
}

impl Runner {
    /// Formatting, lints and `cargo test`.
    ///
    /// # Errors
    /// Where a log cannot be written.
    pub(super) fn host(&mut self) -> anyhow::Result<()> {
        let tools = self.places.top.join("tools");
        let checks: [(&str, &[&str]); 2] = [
            ("host/rustfmt", &["fmt", "--all", "--check"]),
            (
                "host/clippy",
                &[
                    "clippy",
                    "--workspace",
                    "--all-targets",
                    "--locked",
                    "--quiet",
                    "--",
                    "-D",
                    "warnings",
                ],
            ),
        ];
        for (name, args) in checks {
            if self.wants(name) {
                let step = self.cargo(&tools, name, args)?;
                let failure = (!step.success).then_some(step.output);
                self.report
                    .add(&Suite::check(name, step.time, Some(step.log), failure));
            }
        }
        if self.wants("host/cargo") {
            let args = ["test", "--workspace", "--locked", "--no-fail-fast"];
            let step = self.cargo(&tools, "host/cargo", &args)?;
            self.cargo_tests(&step);
        }
        Ok(())
    }

    fn cargo_tests(&mut self, step: &Step) {
        let binaries = libtest::parse(&step.output);
        let mut failed = false;
        for binary in binaries {
            let suite = Suite {
                name: format!("host/{}", binary.name),
                tests: binary.tests,
                time: Duration::from_secs_f64(binary.seconds),
                log: Some(step.log.clone()),
            };
            failed |= suite.counts().failed > 0;
            self.report.add(&suite);
        }
        if !step.success && !failed {
            // It did not even build, or a program died before its first line.
            let lines: Vec<&str> = step.output.lines().collect();
            let from = lines.len().saturating_sub(60);
            let tail = lines.get(from..).unwrap_or(&[]).join("\n");
            self.report.add(&Suite {
                name: "host/cargo test".into(),
                tests: vec![case("cargo test", Some(tail))],
                time: step.time,
                log: Some(step.log.clone()),
            });
        }
    }

    fn cargo(&self, dir: &Path, name: &str, args: &[&str]) -> anyhow::Result<Step> {
        let log = self.logs.join(format!("{}.log", name.replace('/', "-")));
        let file = File::create(&log).with_context(|| format!("making {}", log.display()))?;
        let start = Instant::now();
        let mut command = Command::new("cargo");
        command
            .args(args)
            .current_dir(dir)
            .env("CARGO_TARGET_DIR", self.places.out.join("target"))
            .env("CARGO_TERM_COLOR", "never")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        self.progress(name);
        let mut process = Bound::spawn(&mut command, &[]).context("starting cargo")?;
        let status = process.wait_for(STEP_DEADLINE)?;
        let output = fs::read(&log).unwrap_or_default();
        Ok(Step {
            success: status.is_some_and(|status| status.success()),
            output: String::from_utf8_lossy(&output).into_owned(),
            time: start.elapsed(),
            log,
        })
    }
}
