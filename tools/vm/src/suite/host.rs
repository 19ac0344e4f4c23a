// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Checks that need no VM: formatting and lints of tools and module, unit and property tests.

use super::report::case;
use super::report::Suite;
use super::Runner;
use crate::child::Bound;
use crate::suite::libtest;
use anyhow::Context;
use std::env;
use std::fs;
use std::fs::File;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use std::time::Instant;

/// Bound of one step; the first build of all tests on a slow machine is the longest.
const STEP_DEADLINE: Duration = Duration::from_secs(3600);

/// What property tests and the fuzzer of the model begin with, unless the environment says so: the same tree makes the same
/// choices, and a failure is of what was changed. `cargo test` by itself draws.
const SEEDS: [&str; 2] = ["PROPTEST_RNG_SEED", "RKFD_FUZZ_SEED"];

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
    /// The module is one crate, which one processor compiles; the other does the tools meanwhile.
    ///
    /// # Errors
    /// Where a log cannot be written.
    pub(super) fn host(&self) -> anyhow::Result<()> {
        thread::scope(|scope| {
            let module = scope.spawn(|| self.module_checks());
            self.tools_checks()?;
            module
                .join()
                .map_err(|_| anyhow::anyhow!("the module's checks panicked"))?
        })
    }

    fn tools_checks(&self) -> anyhow::Result<()> {
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
                self.add(&Suite::check(name, step.time, Some(step.log), failure));
            }
        }
        let packages = self.packages(&tools)?;
        if !packages.is_empty() {
            // The artifacts, one JSON object per line, tell of which package each program is.
            let mut args = vec![
                "test",
                "--locked",
                "--no-fail-fast",
                "--message-format=json-render-diagnostics",
            ];
            args.extend(packages.iter().flat_map(|package| ["-p", package]));
            let step = self.cargo(&tools, "host/cargo", &args)?;
            self.cargo_tests(&step);
        }
        Ok(())
    }

    /// The packages of the tools whose tests are asked for.
    ///
    /// # Errors
    /// Where a manifest cannot be read.
    fn packages(&self, tools: &Path) -> anyhow::Result<Vec<String>> {
        let all = self.wants("host/cargo");
        let mut packages = packages(tools)?;
        packages.retain(|name| self.filter.wants_package(name) || all);
        Ok(packages)
    }

    /// Formatting and lints of the module's own sources, by the kernel's rules.
    ///
    /// A tree of the user's (`KDIR`) may want another compiler than ours, so these are for our kernel.
    fn module_checks(&self) -> anyhow::Result<()> {
        let theirs = std::env::var_os("RKFD_BIND").is_some_and(|tree| !tree.is_empty());
        let name = "host/rustfmt-module";
        if self.wants(name) && !theirs {
            let mut command = Command::new("rustfmt");
            command
                .args(["--check", "--edition", "2021", "--config-path"])
                .arg(self.places.kernel.join("source/.rustfmt.toml"))
                .arg("rust/rkfd.rs")
                .current_dir(&self.places.top);
            let step = self.step(name, &mut command)?;
            let failure = (!step.success).then_some(step.output);
            self.add(&Suite::check(name, step.time, Some(step.log), failure));
        }
        let name = "host/clippy-module";
        if self.wants(name) && !theirs {
            let out = self.places.out.join("module-clippy");
            fs::create_dir_all(&out).with_context(|| format!("making {}", out.display()))?;
            let mut command = Command::new("make");
            command
                .arg("-C")
                .arg(&self.places.kernel)
                .arg(format!("M={}", self.places.top.display()))
                .arg(format!("MO={}", out.display()))
                .args(["-s", "LLVM=1", "CLIPPY=1", "RKFD_KUNIT=y"])
                // Lints come before the code, which nobody runs: Kbuild wants an object file, and gets the cheapest.
                .arg(format!(
                    "KRUSTFLAGS=-Copt-level=0 -Cincremental={}",
                    out.join(".incremental").display()
                ))
                .arg("rust/rkfd.o");
            for ours in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"] {
                command.env_remove(ours);
            }
            // Kbuild calls warnings no failure, and compiles nothing where nothing changed: then the
            // last verdict holds.
            let step = self.step(name, &mut command)?;
            let clean = step.success && !has_warning(&step.output);
            if !clean {
                // The next run must say it again.
                let _ = fs::remove_file(out.join("rust/rkfd.o"));
            }
            let failure = (!clean).then_some(step.output);
            self.add(&Suite::check(name, step.time, Some(step.log), failure));
        }
        Ok(())
    }

    fn cargo_tests(&self, step: &Step) {
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
            self.add(&suite);
        }
        if !step.success && !failed {
            // It did not even build, or a program died before its first line.
            let lines = step.output.lines();
            let lines: Vec<&str> = lines.filter(|line| !line.starts_with('{')).collect();
            let from = lines.len().saturating_sub(60);
            let tail = lines.get(from..).unwrap_or(&[]).join("\n");
            self.add(&Suite {
                name: "host/cargo test".into(),
                tests: vec![case("cargo test", Some(tail))],
                time: step.time,
                log: Some(step.log.clone()),
            });
        }
    }

    fn cargo(&self, dir: &Path, name: &str, args: &[&str]) -> anyhow::Result<Step> {
        let mut command = Command::new("cargo");
        command
            .args(args)
            .current_dir(dir)
            .env("CARGO_TARGET_DIR", self.places.out.join("target"))
            .env("CARGO_TERM_COLOR", "never");
        for seed in SEEDS {
            if env::var_os(seed).is_none() {
                command.env(seed, "1");
            }
        }
        self.step(name, &mut command)
    }

    fn step(&self, name: &str, command: &mut Command) -> anyhow::Result<Step> {
        let log = self.logs.join(format!("{}.log", name.replace('/', "-")));
        let file = File::create(&log).with_context(|| format!("making {}", log.display()))?;
        let start = Instant::now();
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        self.progress(name);
        let mut process = Bound::spawn(command, &[]).with_context(|| format!("starting {name}"))?;
        let status = process.wait_for(STEP_DEADLINE)?;
        let output = fs::read(&log).unwrap_or_default();
        self.add_cpu(name, process.cpu_time());
        Ok(Step {
            success: status.is_some_and(|status| status.success()),
            output: String::from_utf8_lossy(&output).into_owned(),
            time: start.elapsed(),
            log,
        })
    }
}

/// The names of the checks, and of the packages whose programs report under their names.
///
/// # Errors
/// Where a manifest cannot be read.
pub(super) fn names(top: &Path) -> anyhow::Result<Vec<String>> {
    let checks = ["rustfmt", "clippy", "rustfmt-module", "clippy-module"].map(str::to_owned);
    let all = checks.into_iter().chain(packages(&top.join("tools"))?);
    Ok(all.map(|name| format!("host/{name}")).collect())
}

/// The packages of the tools.
///
/// # Errors
/// Where a manifest cannot be read.
fn packages(tools: &Path) -> anyhow::Result<Vec<String>> {
    let mut packages = Vec::new();
    for entry in fs::read_dir(tools)? {
        let manifest = entry?.path().join("Cargo.toml");
        if !manifest.exists() {
            continue;
        }
        let text = fs::read_to_string(&manifest)
            .with_context(|| format!("reading {}", manifest.display()))?;
        let name = package_name(&text)
            .with_context(|| format!("{} names no package", manifest.display()))?;
        packages.push(name.to_owned());
    }
    packages.sort();
    Ok(packages)
}

/// The name in the part `[package]`, which comes first, of a manifest.
fn package_name(manifest: &str) -> Option<&str> {
    let mut lines = manifest.lines();
    let value = lines.find_map(|line| line.strip_prefix("name = "))?;
    Some(value.trim_matches('"'))
}

/// Whether a compiler warned: its messages stand at the start of a line, linker's and make's do not.
fn has_warning(output: &str) -> bool {
    output
        .lines()
        .any(|line| line.starts_with("warning") || line.starts_with("error"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_named_by_its_manifest() {
        let manifest = "[package]\nname = \"rkfd-c\"\nversion = \"1\"\n\n[lib]\nname = \"rkfd\"\n";
        assert_eq!(package_name(manifest), Some("rkfd-c"));
        assert_eq!(package_name("[workspace]\n"), None);
    }

    #[test]
    fn a_lint_is_told_from_other_lines() {
        let lint = "  CLIPPY rkfd.o\nwarning: this loop never loops\n  --> rust/vm.rs:3:1\n";
        assert!(has_warning(lint));
        assert!(has_warning("error[E0308]: mismatched types\n"));
        assert!(!has_warning(
            "make: Entering directory\n  note: no warning\n"
        ));
    }
}
