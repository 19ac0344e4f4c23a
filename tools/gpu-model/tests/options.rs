// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Options that make another board: what the program refuses, and what it says of those that name something.
#![allow(clippy::unwrap_used)]

use std::process::Command;

use gpu_model::inject::{Kind, Rules};

/// Runs the program with options that it must refuse; what it says.
fn refusal(options: &[&str]) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_gpu-model"))
        .args(["--socket", "none", "--control", "none"])
        .args(options)
        .output()
        .unwrap();
    let text = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(2), "{options:?}: {text}");
    text
}

#[test]
fn impossible_boards_are_refused() {
    for (asic, option, bad, why) in [
        (
            "gfx90a",
            "--compute-units",
            "113",
            "compute units of gfx90a must be from 1 to 112, not 113",
        ),
        (
            "gfx906",
            "--compute-units",
            "65",
            "compute units of gfx906 must be from 1 to 64",
        ),
        (
            "gfx906",
            "--compute-units",
            "0",
            "compute units of gfx906 must be from 1 to 64",
        ),
        ("gfx906", "--compute-units", "many", "invalid digit"),
        ("gfx90a", "--mec-firmware", "131072", "from 0 to 131071"),
        ("gfx90a", "--sdma-firmware", "16384", "from 0 to 16383"),
        ("gfx906", "--sdma-firmware", "8192", "from 0 to 8191"),
        (
            "gfx906",
            "--engine-clock",
            "65536",
            "65536 is not in 0..=65535",
        ),
        (
            "gfx906",
            "--memory-clock",
            "1.6",
            "invalid digit found in string",
        ),
    ] {
        let text = refusal(&["--asic", asic, option, bad]);
        assert!(text.contains(why), "{option} {bad}: {text}");
    }
}

#[test]
fn rules_that_are_none_are_refused() {
    let text = refusal(&["--no-rule", "early-acks"]);
    assert!(
        text.contains(
            "known: late-acks, late-writes, flush-range, load-running, mqd-flush, pte-flush"
        ),
        "{text}"
    );
}

#[test]
fn readings_of_ranges_that_are_none_are_refused() {
    let text = refusal(&["--invalidation-ranges", "start-and-size"]);
    assert!(
        text.contains("unknown reading start-and-size; known: refuse, size-bit"),
        "{text}"
    );
}

#[test]
fn faults_that_would_not_last_are_refused() {
    for (kind, why) in [
        ("nonsense", "unknown fault nonsense"),
        ("die", "the control socket"),
        ("hang-hws", "the control socket"),
        ("ignore-reset", "the control socket"),
        ("slow-preempt", "needs a time"),
    ] {
        let text = refusal(&["--fault", kind]);
        assert!(text.contains(why), "{kind}: {text}");
    }
}

/// What stands in the text between two parts of it.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    text.split_once(from).unwrap().1.split_once(to).unwrap().0
}

#[test]
fn help_names_every_rule_and_fault() {
    let out = Command::new(env!("CARGO_BIN_EXE_gpu-model"))
        .arg("--help")
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let text: Vec<_> = text.split_whitespace().collect();
    let text = text.join(" ");
    let listed = between(&text, "A rule to do without: ", ";");
    assert_eq!(listed.split(", ").collect::<Vec<_>>(), Rules::NAMES);
    for name in Rules::NAMES {
        let mut rules = Rules::default();
        rules.switch_off(name).unwrap();
        assert_ne!(rules, Rules::default(), "{name}");
    }
    let listed = between(&text, "on from the start, for all queues: ", ";");
    let lasting = Kind::ALL.map(|(name, _)| name);
    let lasting = lasting
        .into_iter()
        .filter(|name| Kind::from_the_start(name).is_ok());
    assert_eq!(
        listed.split(", ").collect::<Vec<_>>(),
        lasting.collect::<Vec<_>>()
    );
}
