// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the user sees: a line per suite, details of what failed, the total.

use crate::ktap::Counts;
use crate::ktap::Status;
use crate::ktap::Test;
use crate::term::Paint;
use std::path::PathBuf;
use std::time::Duration;

/// Lines of diagnostics shown per failed case; the log has the rest.
const DIAGNOSTICS_SHOWN: usize = 25;
/// Failed cases shown in full per suite.
const FAILURES_SHOWN: usize = 12;
/// Width of the column of names.
const NAME_WIDTH: usize = 44;

/// Cases that belong together.
#[derive(Clone, Debug)]
pub struct Suite {
    /// `kind/name`.
    pub name: String,
    /// Results.
    pub tests: Vec<Test>,
    /// Time that it took.
    pub time: Duration,
    /// Where more is to be read.
    pub log: Option<PathBuf>,
}

impl Suite {
    /// A suite with one case of its own name, which failed if there is a reason.
    pub fn check(
        name: &str,
        time: Duration,
        log: Option<PathBuf>,
        failure: Option<String>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            tests: vec![case(name, failure)],
            time,
            log,
        }
    }

    /// Counts its leaves.
    pub fn counts(&self) -> Counts {
        let document = crate::ktap::Document {
            tests: self.tests.clone(),
            found: true,
            planned: true,
        };
        document.counts()
    }
}

/// A case that failed if there is a reason.
pub fn case(name: &str, failure: Option<String>) -> Test {
    Test {
        name: name.to_owned(),
        status: if failure.is_some() {
            Status::Failed
        } else {
            Status::Passed
        },
        diagnostics: failure
            .map(|text| text.lines().map(str::to_owned).collect())
            .unwrap_or_default(),
        children: Vec::new(),
    }
}

/// Prints suites as they end and keeps the total.
#[derive(Debug)]
pub struct Report {
    paint: Paint,
    total: Counts,
    failed: Vec<String>,
    times: Vec<(String, Duration)>,
    /// The suites themselves, which are not printed then.
    kept: Option<Vec<Suite>>,
}

impl Report {
    /// One that prints nothing and keeps the suites.
    pub fn collecting() -> Self {
        Self {
            kept: Some(Vec::new()),
            ..Self::new(Paint::default())
        }
    }

    /// The names of the suites with the times that they took.
    pub fn take_times(&mut self) -> Vec<(String, Duration)> {
        std::mem::take(&mut self.times)
    }

    /// The suites that were kept.
    pub fn take(&mut self) -> Vec<Suite> {
        self.kept.take().unwrap_or_default()
    }

    /// An empty report.
    pub fn new(paint: Paint) -> Self {
        Self {
            paint,
            total: Counts::default(),
            failed: Vec::new(),
            times: Vec::new(),
            kept: None,
        }
    }

    /// Prints a suite's line, and what failed in it.
    pub fn add(&mut self, suite: &Suite) {
        let counts = suite.counts();
        self.total.add(counts);
        self.times.push((suite.name.clone(), suite.time));
        if let Some(kept) = &mut self.kept {
            kept.push(suite.clone());
            return;
        }
        println!("{}", line(self.paint, suite, counts));
        let mut shown = 0;
        let mut failures = 0;
        for test in &suite.tests {
            test.leaves(&mut Vec::new(), &mut |path, test| {
                if let Status::Skipped(reason) = &test.status {
                    let name = path.join(": ");
                    println!(
                        "      {}",
                        self.paint.dim(&format!("skipped {name}: {reason}"))
                    );
                }
                if test.status != Status::Failed {
                    return;
                }
                failures += 1;
                self.failed
                    .push(format!("{}: {}", suite.name, path.join(": ")));
                if shown < FAILURES_SHOWN {
                    shown += 1;
                    show_failure(self.paint, path, test);
                }
            });
        }
        if failures > shown {
            println!("      … and {} more", failures - shown);
        }
        if let (true, Some(log)) = (failures > 0, &suite.log) {
            println!("      log: {}", log.display());
        }
    }

    /// Prints the total; whether nothing failed, something passed, and each of the user's filters had an
    /// effect: `unused` are those that no test has in its name.
    pub fn finish(&self, unused: &[&str]) -> bool {
        if !self.failed.is_empty() {
            println!();
            for name in &self.failed {
                println!("{} {name}", self.paint.bad("FAILED"));
            }
        }
        for text in unused {
            println!(
                "{} no test has {text} in its name",
                self.paint.bad("error:")
            );
        }
        if unused.is_empty() && self.total == Counts::default() {
            println!("nothing ran: what was asked for does not run on this kernel");
        }
        println!();
        println!("{}", summary(self.total));
        self.total.failed == 0 && self.total.passed > 0 && unused.is_empty()
    }
}

fn summary(total: Counts) -> String {
    format!(
        "{} passed, {} failed, {} skipped",
        total.passed, total.failed, total.skipped
    )
}

fn line(paint: Paint, suite: &Suite, counts: Counts) -> String {
    let (kind, name) = suite
        .name
        .split_once('/')
        .unwrap_or(("", suite.name.as_str()));
    let mut text = format!("{:>5} passed", counts.passed);
    if counts.failed > 0 {
        text.push_str(&paint.bad(&format!("  {} FAILED", counts.failed)));
    }
    if counts.skipped > 0 {
        text.push_str(&paint.warn(&format!("  {} skipped", counts.skipped)));
    }
    let sign = if counts.failed > 0 {
        paint.bad("✗")
    } else {
        paint.good("✓")
    };
    format!(
        "  {sign} {kind:<6} {name:<NAME_WIDTH$} {:>7.1} s {text}",
        suite.time.as_secs_f64()
    )
}

fn show_failure(paint: Paint, path: &[&str], test: &Test) {
    println!("      {} {}", paint.bad("not ok"), path.join(": "));
    let from = test.diagnostics.len().saturating_sub(DIAGNOSTICS_SHOWN);
    for line in test.diagnostics.iter().skip(from) {
        println!("        | {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(failure: Option<&str>) -> Suite {
        let mut suite = Suite::check(
            "host/rustfmt",
            Duration::from_millis(1250),
            None,
            failure.map(str::to_owned),
        );
        suite.tests.push(case("second", None));
        suite
    }

    #[test]
    fn lines_are_aligned_and_name_what_failed() {
        let paint = Paint::default();
        let good = suite(None);
        let text = line(paint, &good, good.counts());
        assert!(text.starts_with("  ✓ host   rustfmt "), "{text}");
        assert!(text.ends_with("    1.2 s     2 passed"), "{text}");
        let bad = suite(Some("why"));
        let text = line(paint, &bad, bad.counts());
        assert!(text.ends_with("    1.2 s     1 passed  1 FAILED"), "{text}");
    }

    #[test]
    fn the_total_needs_at_least_one_case() {
        let mut report = Report::new(Paint::default());
        assert!(!report.finish(&[]));
        report.add(&suite(None));
        assert!(report.finish(&[]));
        assert!(!report.finish(&["nonsense"]));
        report.add(&suite(Some("why")));
        assert!(!report.finish(&[]));
        assert_eq!(summary(report.total), "3 passed, 1 failed, 0 skipped");
    }
}
