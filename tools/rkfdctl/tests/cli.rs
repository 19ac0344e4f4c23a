// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The tool from outside, on a machine without a GPU (with one, the end-to-end tests take over).

#![allow(clippy::expect_used)]

use std::path::Path;
use std::process::Command;
use std::process::Output;

fn rkfdctl(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rkfdctl"))
        .args(args)
        .output()
        .expect("rkfdctl runs")
}

#[test]
fn without_a_driver_every_command_says_so_with_status_3() {
    if Path::new("/dev/kfd").exists() {
        eprintln!("skipped: this machine has /dev/kfd");
        return;
    }
    for command in [
        &["info"][..],
        &["info", "--json"],
        &["demo"],
        &["demo", "gpu-tasks"],
        &["trace"],
        &["mirror"],
        &["mirror", "--json"],
    ] {
        let out = rkfdctl(command);
        assert_eq!(out.status.code(), Some(3), "{command:?}");
        assert_eq!(
            String::from_utf8_lossy(&out.stderr),
            "rkfdctl: There is no GPU: /dev/kfd does not exist, so no compute driver is loaded.\n"
        );
        assert!(out.stdout.is_empty(), "{command:?}");
    }
}

#[test]
fn wrong_usage_is_status_2() {
    for command in [
        &["sing"][..],
        &["demo", "--rounds", "many"],
        &["trace", "--last"],
        &["mirror", "--json", "--map"],
        &["mirror", "--svg"],
        &["tasks", "--json", "--watch"],
        &["demo", "gpu-tasks", "--workers", "0"],
    ] {
        assert_eq!(rkfdctl(command).status.code(), Some(2), "{command:?}");
    }
}

#[test]
fn a_control_path_that_is_not_there_is_named() {
    let out = rkfdctl(&["trace", "--control", "/nonexistent/control"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("/nonexistent/control"));
}
