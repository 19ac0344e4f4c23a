// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What must hold when all commands are over: nothing left loaded, nothing leaked.

use super::module::Loaded;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

const KMEMLEAK: &str = "/sys/kernel/debug/kmemleak";
/// Parameters of the kernel, and the one that turns kmemleak off: it leaves its file, which then takes no command.
const PARAMETERS: &str = "/proc/cmdline";
const OFF: &str = "kmemleak=off";
/// kmemleak reports no object that is younger than this (MSECS_MIN_AGE of mm/kmemleak.c is 5000).
const KMEMLEAK_MIN_AGE: Duration = Duration::from_millis(5100);

/// Whether leaks are sought. That the kernel has turned kmemleak off by itself does not count: they cannot be found then.
fn seeks(parameters: &str) -> bool {
    !parameters.split_whitespace().any(|word| word == OFF)
}

/// Keeps the debug kernel's own periodic scan from slowing the run down; ours at the end replaces it.
pub(super) fn prepare() {
    // Only the debug kernel has it.
    let _ = fs::write(KMEMLEAK, "scan=off");
}

/// Unloads unless `keep`, then looks for leaks. Returns what was found wrong.
pub(super) fn finish(loaded: &Loaded, keep: bool) -> Vec<String> {
    super::exec::kill_all();
    let mut problems = Vec::new();
    if !keep {
        problems.extend(loaded.unload());
    }
    let parameters = fs::read_to_string(PARAMETERS).unwrap_or_default();
    if loaded.any() && Path::new(KMEMLEAK).exists() && seeks(&parameters) {
        problems.extend(leaks());
    }
    problems
}

/// Every leak that kmemleak knows and that names a function of our module or was left by it.
fn leaks() -> Vec<String> {
    // The first scan after a change only takes check sums, the second one reports; and an object must
    // have been there for a while.
    thread::sleep(KMEMLEAK_MIN_AGE);
    for _ in 0..2 {
        if let Err(error) = fs::write(KMEMLEAK, "scan") {
            return vec![format!("kmemleak cannot scan: {error}")];
        }
    }
    let report = match fs::read(KMEMLEAK) {
        Ok(report) => report,
        Err(error) => return vec![format!("kmemleak cannot report: {error}")],
    };
    // Names of programs are any bytes.
    split_leaks(&String::from_utf8_lossy(&report))
        .into_iter()
        .map(|leak| format!("kmemleak: {leak}"))
        .collect()
}

/// kmemleak's text as one string per leaked object.
fn split_leaks(report: &str) -> Vec<String> {
    let mut leaks: Vec<String> = Vec::new();
    for line in report.lines() {
        match leaks.last_mut() {
            Some(leak) if !line.starts_with("unreferenced object") => {
                leak.push('\n');
                leak.push_str(line);
            }
            _ => leaks.push(line.to_owned()),
        }
    }
    leaks
}

#[cfg(test)]
mod tests {
    use super::seeks;
    use super::split_leaks;

    #[test]
    fn leaks_are_sought_unless_a_parameter_says_not() {
        assert!(seeks("console=ttyS0 init=/a/kmemleak=off/init kmemleak=on"));
        assert!(!seeks("console=ttyS0 kmemleak=off\n"));
        assert!(seeks(""));
    }

    #[test]
    fn each_leaked_object_is_one_problem() {
        let report =
            "unreferenced object 0xffff (size 64):\n  comm \"x\", pid 1\n  backtrace:\n    a+0x1\n\
                      unreferenced object 0xfffe (size 8):\n  comm \"y\", pid 2\n";
        let leaks = split_leaks(report);
        assert_eq!(leaks.len(), 2);
        assert!(leaks[0].ends_with("a+0x1"));
        assert!(leaks[1].contains("comm \"y\""));
        assert!(split_leaks("").is_empty());
    }
}
