// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfd-vm` and the memory that runs share: it claims what its VM may come to use, and waits for what others have.
//! The programs that it starts are stand-ins, so that no VM is booted.

// A test may panic, its helpers too; that is how it fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use rkfd_vm::budget::Budget;
use rkfd_vm::budget::Claim;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use std::time::Instant;

/// Limit of what comes in a moment.
const PATIENCE: Duration = Duration::from_secs(120);
/// A run looks for memory ten times in that.
const LOOKS: Duration = Duration::from_secs(1);
/// What there is to share, in MiB.
const ALL: u64 = 8192;

/// A checkout in which nothing can be booted, and a cache.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let place = Self { dir };
        for dir in [
            "top",
            "cache",
            "out/bin",
            "kernel/arch/x86/boot",
            "programs",
        ] {
            fs::create_dir_all(place.path(dir)).unwrap();
        }
        fs::write(place.path("kernel/arch/x86/boot/bzImage"), "").unwrap();
        // What a run starts first, with and without a model, fails at once.
        for program in [
            "out/bin/gpu-model",
            "out/bin/rkfd-jail",
            "out/bin/rkfd-init",
            "programs/qemu-system-x86_64",
        ] {
            symlink("/bin/false", place.path(program)).unwrap();
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A run that takes so many MiB, as if `ALL` had been free when it began.
    fn other_run(&self, size: u64) -> Claim {
        let budget = Budget::new(&self.path("cache"));
        let turn = budget.turn().unwrap().unwrap();
        let claim = budget.claim(&turn, size).unwrap().unwrap();
        let amount = self.path("cache/lock/vm-memory/amount");
        fs::write(amount, ALL.to_string()).unwrap();
        claim
    }

    fn run(&self, options: &[&str]) -> Run {
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_rkfd-vm"));
        for (option, place) in [("--top", "top"), ("--out", "out"), ("--kernel", "kernel")] {
            command.arg(option).arg(self.path(place));
        }
        let child = command
            .args(["--accel", "tcg", "--no-module"])
            .args(options)
            .args(["--", "true"])
            .env("RKFD_CACHE", self.path("cache"))
            .env(
                "PATH",
                format!("{}:{path}", self.path("programs").display()),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(self.path("stderr")).unwrap())
            .spawn()
            .unwrap();
        Run(child)
    }

    /// Whether the latest run has made the folder of its logs, after which it claims its memory.
    fn has_begun(&self) -> bool {
        self.path("out/logs/vm/last/").exists()
    }

    /// Whether the latest run has come to its models, or to QEMU.
    fn has_gone_on(&self) -> bool {
        let mut logs = ["model0.stderr", "qemu.cmdline"].into_iter();
        logs.any(|name| self.path("out/logs/vm/last").join(name).exists())
    }

    /// Waits for the end of a run, which must have got its memory. What it starts then fails.
    fn goes_on(&self, mut run: Run) {
        wait_until("the run to go on", || !run.goes());
        assert_eq!(run.0.wait().unwrap().code(), Some(125));
        let said = fs::read_to_string(self.path("stderr")).unwrap();
        assert!(self.has_gone_on(), "{said}");
    }

    /// The run must stay where it is.
    fn waits(&self, run: &mut Run) {
        thread::sleep(LOOKS);
        assert!(run.goes() && !self.has_gone_on(), "it did not wait");
    }

    /// Whether somebody has the turn to claim.
    fn turn_is_taken(&self) -> bool {
        let budget = Budget::new(&self.path("cache"));
        budget.turn().unwrap().is_none()
    }
}

/// A process that does not outlive a failed test.
struct Run(Child);

impl Run {
    fn goes(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_run_waits_for_the_memory_of_another_one() {
    let place = Place::new();
    let other = place.other_run(ALL - 2048 - 1024);
    // It fits, with and without VRAM.
    place.goes_on(place.run(&["--mem", "2G", "--gpus", "0"]));
    place.goes_on(place.run(&["--mem", "2G", "--gpus", "1", "--vram", "1G"]));
    // A little more VRAM does not.
    let mut run = place.run(&["--mem", "2G", "--gpus", "1", "--vram", "1025M"]);
    wait_until("the run to claim", || place.turn_is_taken() || !run.goes());
    place.waits(&mut run);
    drop(other);
    place.goes_on(run);
}

#[test]
fn a_run_waits_for_its_turn() {
    let place = Place::new();
    let budget = Budget::new(&place.path("cache"));
    let turn = budget.turn().unwrap().unwrap();
    let mut run = place.run(&["--mem", "512M", "--gpus", "0"]);
    wait_until("the run to begin", || place.has_begun() || !run.goes());
    place.waits(&mut run);
    drop(turn);
    place.goes_on(run);
}

#[test]
fn a_cache_for_reading_is_not_shared() {
    let place = Place::new();
    // Root may write to any directory, but to none in the place of which there is a file.
    fs::write(place.path("cache/lock"), "").unwrap();
    place.goes_on(place.run(&["--mem", "512M", "--gpus", "0"]));
}
