// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Which messages of the kernel make a run fail.
//!
//! Before the module is loaded the bare kernel may warn about its machine; only reports of a broken
//! kernel count then. From the mark on that `rkfd-init` writes just before loading, every kernel message
//! of level warning or worse counts, and so does every report whatever its level, unless the run allows
//! warnings or the message was announced as expected.

use crate::kmsg::Level;
use crate::kmsg::Record;
use crate::protocol::MARK;
use crate::protocol::MARK_MODULE;
use regex::Regex;
use regex::RegexSet;
use std::sync::LazyLock;

/// Reports of the kernel's own checkers, whatever level they are printed at.
static REPORT: LazyLock<RegexSet> = LazyLock::new(|| {
    set(&[
        r"^BUG: ",
        r"^kernel BUG at ",
        r"^WARNING: ",
        r"^(general protection fault|Oops|invalid opcode)\b",
        r"^Kernel panic",
        r"^(rust_kernel|rkfd): panicked at ",
        r"^(KASAN|KCSAN|KMSAN|UBSAN|KFENCE): ",
        r"^INFO: (possible|task|lockdep|trying to register)\b.*(deadlock|blocked for more|non-static key|turned off|recursive|circular)",
        r"rcu: INFO: .*(stall|blocked)",
        r"^(watchdog: )?BUG: soft lockup",
        r"^ODEBUG: ",
        r"^DMA-API: .*(device driver|error|leak)",
        r"kmemleak: .* new suspected memory leaks",
        r"^refcount_t: ",
        r"list_(add|del) corruption",
        r"^(Slab|SLUB) corruption|^BUG [\w-]+ \(",
    ])
});

/// Warnings that say nothing about the driver: the out-of-tree taint that every such module sets, and
/// remarks on how fast or loaded the host is.
static HARMLESS: LazyLock<RegexSet> = LazyLock::new(|| {
    set(&[
        r"^\w+: loading out-of-tree module taints kernel\.",
        r"^\w+: module verification failed: signature",
        r"^clocksource: ",
        r"^(Clocksource tsc unstable|TSC found unstable|sched_clock: Marking unstable)",
        r"^hrtimer: interrupt took ",
        r"^perf: interrupt took too long",
        r"^sched: (DL|RT) .*throttling",
        r"^Spectre V2 : ",
    ])
});

fn set(patterns: &[&str]) -> RegexSet {
    // The patterns are constants that a unit test compiles; an empty set would only be laxer.
    RegexSet::new(patterns).unwrap_or_else(|_| RegexSet::empty())
}

/// What the run's options say about messages.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Messages of level warning and error do not count; reports still do.
    pub allow_warnings: bool,
    /// Messages that match do not count, whatever they are; reports only where the match is at their beginning.
    pub expected: Vec<Regex>,
}

impl Policy {
    /// Whether a message was announced. A word of a test's own messages must not excuse a report with that word
    /// somewhere in it.
    fn expects(&self, text: &str, report: bool) -> bool {
        self.expected.iter().any(|known| {
            known
                .find(text)
                .is_some_and(|found| !report || found.start() == 0)
        })
    }
}

/// Reads the log record by record and picks what counts.
#[derive(Debug, Default)]
pub struct Judge {
    policy: Policy,
    module_loading: bool,
    last: Option<u64>,
    lost: u64,
}

impl Judge {
    /// A judge at the start of the log.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// Replaces the policy from the next record on.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// How many records were lost since the module was loaded.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether this record makes the run fail.
    pub fn counts(&mut self, record: &Record) -> bool {
        let next = self
            .last
            .map_or(record.sequence, |last| last.saturating_add(1));
        let missing = record.sequence.saturating_sub(next);
        self.last = Some(record.sequence);
        if !record.from_kernel && record.text.strip_prefix(MARK) == Some(MARK_MODULE) {
            self.module_loading = true;
        }
        if missing > 0 && self.module_loading {
            // The lost records may have been what we look for.
            self.lost = self.lost.saturating_add(missing);
            return true;
        }
        if !record.from_kernel {
            return false;
        }
        let report = REPORT.is_match(&record.text);
        if self.policy.expects(&record.text, report) {
            return false;
        }
        if report {
            return true;
        }
        self.module_loading
            && !self.policy.allow_warnings
            && record.level <= Level::WARNING
            && !HARMLESS.is_match(&record.text)
    }
}

/// Whether a line of the serial console shows that the kernel broke; used when the log itself did not
/// reach us.
pub fn console_line_is_report(line: &str) -> bool {
    // Lines carry a time stamp, perhaps a caller: "[    1.234567] text".
    let text = line.split_once("] ").map_or(line, |(_, text)| text);
    REPORT.is_match(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::MARK_END;
    use proptest::prelude::*;

    fn record(sequence: u64, priority: u8, text: &str) -> Record {
        Record::parse(&format!("{priority},{sequence},0,-;{text}")).unwrap()
    }

    /// Feeds the texts as records of the given priorities and returns those that counted.
    fn judge(policy: Policy, log: &[(u8, &str)]) -> Vec<String> {
        let mut judge = Judge::new(policy);
        let mut counted = Vec::new();
        for (at, (priority, text)) in log.iter().enumerate() {
            let record = record(at as u64, *priority, text);
            if judge.counts(&record) {
                counted.push(record.text);
            }
        }
        counted
    }

    const MODULE: (u8, &str) = (14, "rkfd-init: module");

    #[test]
    fn the_mark_is_what_the_guest_writes() {
        assert_eq!(MODULE.1, format!("{MARK}{MARK_MODULE}"));
        assert_ne!(MARK_END, MARK_MODULE);
        assert!(REPORT.len() > 10 && HARMLESS.len() > 5);
    }

    #[test]
    fn warnings_count_from_the_module_on() {
        let log = [
            (4, "early warning"),
            MODULE,
            (4, "warning"),
            (3, "error"),
            (5, "notice"),
        ];
        assert_eq!(judge(Policy::default(), &log), ["warning", "error"]);
    }

    #[test]
    fn reports_count_at_any_level_and_time() {
        let log = [
            (6, "BUG: KASAN: use-after-free in rkfd"),
            MODULE,
            (6, "WARNING: possible circular locking dependency detected"),
            (6, "UBSAN: array-index-out-of-bounds in x.c"),
            (6, "rcu: INFO: rcu_preempt self-detected stall on CPU"),
            (5, "INFO: task sh:12 blocked for more than 60 seconds."),
        ];
        assert_eq!(judge(Policy::default(), &log).len(), 5);
        let lax = Policy {
            allow_warnings: true,
            ..Policy::default()
        };
        assert_eq!(judge(lax, &log).len(), 5);
    }

    #[test]
    fn a_report_is_excused_by_its_beginning_only() {
        let log = [
            MODULE,
            (4, "the KIQ is stuck"),
            (4, "WARNING: in the KIQ's worker"),
            (4, "WARNING: a known one"),
        ];
        let policy = Policy {
            expected: ["KIQ", "WARNING: a known"]
                .map(|text| Regex::new(text).unwrap())
                .to_vec(),
            ..Policy::default()
        };
        assert_eq!(judge(policy, &log), ["WARNING: in the KIQ's worker"]);
    }

    #[test]
    fn allowed_and_expected_warnings_do_not_count() {
        let log = [MODULE, (4, "rkfd: queue 3 was reset"), (4, "other")];
        let lax = Policy {
            allow_warnings: true,
            ..Policy::default()
        };
        assert!(judge(lax, &log).is_empty());
        let expecting = Policy {
            expected: vec![Regex::new("queue [0-9]+ was reset").unwrap()],
            ..Policy::default()
        };
        assert_eq!(judge(expecting, &log), ["other"]);
    }

    #[test]
    fn taint_and_host_speed_are_harmless_and_processes_do_not_count() {
        let log = [
            MODULE,
            (4, "rkfd: loading out-of-tree module taints kernel."),
            (4, "hrtimer: interrupt took 12345 ns"),
            (12, "written by a test"),
        ];
        assert!(judge(Policy::default(), &log).is_empty());
    }

    #[test]
    fn lost_records_count() {
        let mut judge = Judge::default();
        assert!(!judge.counts(&record(0, 14, MODULE.1)));
        assert!(!judge.counts(&record(1, 14, "a")));
        assert!(judge.counts(&record(5, 14, "b")));
        assert_eq!(judge.lost(), 3);
        assert!(!judge.counts(&record(6, 14, "c")));
        assert_eq!(judge.lost(), 3);
    }

    #[test]
    fn a_console_line_is_read_without_its_time_stamp() {
        assert!(console_line_is_report(
            "[    1.5] Kernel panic - not syncing: Attempted to kill init!"
        ));
        assert!(console_line_is_report(
            "BUG: unable to handle page fault for address: 0"
        ));
        assert!(!console_line_is_report("[    1.5] Linux version 7.3"));
    }

    proptest! {
        #[test]
        fn info_never_counts_unless_a_report(text in "[a-z0-9 .]{0,60}") {
            let log = [MODULE, (6, text.as_str())];
            prop_assert!(judge(Policy::default(), &log).is_empty());
        }

        #[test]
        fn errors_always_count(text in "driver [a-z0-9 .]{0,60}") {
            let log = [MODULE, (3, text.as_str())];
            prop_assert_eq!(judge(Policy::default(), &log), [text]);
        }
    }
}
