// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Cases on a GPU as TAP, each in a process of its own.

use std::env;
use std::process::exit;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rkfd::device::Device;

/// A name, and what it does on a GPU.
pub type Case = (&'static str, fn(&Arc<Device>));

/// How long to wait for what comes.
pub fn patience() -> Duration {
    let times = env::var("TAP_PATIENCE").ok().and_then(|v| v.parse().ok());
    Duration::from_secs(30) * times.unwrap_or(1)
}

fn run(case: Case) -> ! {
    let device = Device::first().unwrap_or_else(|e| panic!("{e}"));
    (case.1)(&device);
    exit(0);
}

/// Runs the cases that the arguments choose by parts of their names, and ends the process.
pub fn main(cases: &[Case]) -> ! {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [flag, number] = &arguments[..] {
        if flag == "--case" {
            let number: usize = number.parse().expect("a number");
            run(cases[number]);
        }
    }
    if Device::first().is_err() && env::var_os("KFD_REQUIRE_GPU").is_none() {
        println!("1..0 # SKIP no GPU");
        exit(0);
    }
    let this = env::current_exe().expect("a path");
    let chosen: Vec<usize> = (0..cases.len())
        .filter(|&n| arguments.is_empty() || arguments.iter().any(|a| cases[n].0.contains(&**a)))
        .collect();
    println!("1..{}", chosen.len());
    let mut failed = false;
    for (position, number) in chosen.into_iter().enumerate() {
        let child = Command::new(&this)
            .args(["--case", &number.to_string()])
            .output()
            .expect("a child");
        let ok = child.status.success();
        failed |= !ok;
        for line in String::from_utf8_lossy(&child.stderr).lines() {
            println!("# {line}");
        }
        let not = if ok { "" } else { "not " };
        println!("{not}ok {} {}", position + 1, cases[number].0);
    }
    exit(failed.into());
}
