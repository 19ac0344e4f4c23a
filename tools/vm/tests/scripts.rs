// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `scripts/lib.sh`: a step that fails ends the script, and a script that is stopped leaves no step behind.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use std::time::Instant;

const LIB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/lib.sh");
const PATIENCE: Duration = Duration::from_secs(120);

/// A script that has sourced the library, with its cache in `dir`.
fn script(dir: &Path, text: &str) -> Command {
    let mut command = Command::new("bash");
    command
        .arg("-c")
        .arg(format!(". '{LIB}'\n{text}"))
        .env("RKFD_CACHE", dir)
        .env("RKFD_OUT", dir)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_failed_step_under_a_lock_ends_the_script() {
    let dir = tempfile::tempdir().unwrap();
    let text = "
        build() {
            step one log/one help touch one
            step two log/two help false
            step three log/three help touch three
        }
        with_lock shared build
        touch after";
    assert!(!script(dir.path(), text).status().unwrap().success());
    let there = |name| dir.path().join(name).exists();
    assert!(there("one") && !there("three") && !there("after"));
}

#[test]
fn a_command_that_fails_inside_a_step_fails_it() {
    let dir = tempfile::tempdir().unwrap();
    let text = "
        install() {
            false
            touch installed
        }
        build() { step install log/install help install; }
        with_lock shared build";
    assert!(!script(dir.path(), text).status().unwrap().success());
    assert!(!dir.path().join("installed").exists());
}

#[test]
fn what_goes_well_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let text = "
        build() { step one log/one help touch one; }
        with_lock shared build
        with_lock shared build
        touch after";
    assert!(script(dir.path(), text).status().unwrap().success());
    assert!(dir.path().join("after").exists());
}

#[test]
fn a_stopped_script_takes_its_step_along() {
    let dir = tempfile::tempdir().unwrap();
    // The step's own child writes its number, as a compiler below make would be one.
    let text = "step long log/long help sh -c 'sh -c \"echo \\$\\$ >pid.new; mv pid.new pid; exec sleep 1000\"; true'";
    let mut child = script(dir.path(), text).spawn().unwrap();
    let pid = dir.path().join("pid");
    wait_until("the step to start", || pid.exists());
    let number: i32 = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    let parent = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(parent, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    wait_until("the step's child to be gone", || {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        // Gone, or dead and not yet reaped by whoever inherited it.
        stat.is_empty() || stat.contains(") Z ")
    });
}
