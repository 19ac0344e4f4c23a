// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The library's tests of what threads share, once more under ThreadSanitizer.
//!
//! Library and standard library are compiled for it, since it has to see the locks of the latter. Such a build is a matter
//! of nightly compilers, hence `RUSTC_BOOTSTRAP`; nothing that is delivered is built so. The sanitizer's runtime is clang's.
//! `RKFD_TSAN_STD` names a system root with a standard library that is compiled for it already (`scripts/build tsan`).

// A test may panic, its helpers too; that is how it fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(target_arch = "x86_64")]

use std::path::Path;
use std::process::Command;
use std::process::Output;

/// The tests: all of [`rkfd::queue`], whose threads need no GPU.
const TESTS: &str = "queue::";
/// Those of [`rkfd::tasks`], whose workers need none either.
const TASKS: &str = "tasks::";
/// One of the first that races on purpose.
const RACE: &str = "queue::producers::tests::a_race";

/// A clang that has the runtime. (Debian has one for each of its versions of clang, in packages of their own.)
fn clang() -> &'static str {
    let names = ["clang", "clang-19", "clang-17"];
    let has_runtime = |name: &&&str| {
        let asked = Command::new(name)
            .arg("-print-file-name=lib/linux/libclang_rt.tsan-x86_64.a")
            .output();
        // It prints the bare name of what it does not find.
        asked.is_ok_and(|found| {
            Path::new(String::from_utf8_lossy(&found.stdout).trim()).is_absolute()
        })
    };
    names
        .iter()
        .find(has_runtime)
        .unwrap_or_else(|| panic!("none of {names:?} has ThreadSanitizer's runtime"))
}

fn run(filter: &str, arguments: &[&str]) -> (Output, String) {
    let mut flags = format!(
        "-Zsanitizer=thread -Zexternal-clangrt -Clinker={} -Clink-arg=-fsanitize=thread",
        clang()
    );
    let std = match std::env::var("RKFD_TSAN_STD") {
        Ok(root) => {
            flags += &format!(" --sysroot {root}");
            None
        }
        Err(_) => Some("-Zbuild-std=std,panic_unwind"),
    };
    // Below the directory of all builds, beside that of the profiles.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tsan");
    let output = Command::new(env!("CARGO"))
        .args([
            "test",
            "--release",
            "--locked",
            "--package",
            "rkfd",
            "--lib",
        ])
        .args(std)
        .args(["--target", "x86_64-unknown-linux-gnu"])
        .arg("--target-dir")
        .arg(target)
        .args([filter, "--"])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", flags)
        .env("TSAN_OPTIONS", "halt_on_error=1")
        .output()
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output, text)
}

#[test]
fn threads_of_tasks_do_not_race() {
    // Loom switches threads behind the sanitizer's back.
    let (output, text) = run(TASKS, &["--skip", "every_order"]);
    assert!(output.status.success(), "{text}");
    assert!(!text.contains("WARNING: ThreadSanitizer"), "{text}");
    for ran in [
        "tasks::ring::tests::threads_hand_over_each_task_once ... ok",
        "tasks::tests::the_task_of_a_dead_worker_runs_or_fails ... ok",
    ] {
        assert!(text.contains(ran), "{text}");
    }
}

#[test]
fn threads_of_a_queue_do_not_race() {
    let (output, text) = run(TESTS, &[]);
    assert!(output.status.success(), "{text}");
    assert!(!text.contains("WARNING: ThreadSanitizer"), "{text}");
    for ran in [
        "queue::laps::tests::of_threads_that_claim_one_packet_one_succeeds ... ok",
        "queue::producers::tests::places_that_are_given_up_stop_nobody ... ok",
    ] {
        assert!(text.contains(ran), "{text}");
    }
    // The sanitizer sees a race where there is one.
    let (output, text) = run(RACE, &["--ignored", "--exact"]);
    assert!(!output.status.success(), "{text}");
    assert!(
        text.contains("WARNING: ThreadSanitizer: data race"),
        "{text}"
    );
}
