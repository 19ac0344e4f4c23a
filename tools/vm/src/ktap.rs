// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Parser for KTAP (Documentation/dev-tools/ktap.rst) and plain TAP.
//!
//! It never refuses: whatever comes, the result is a tree whose leaves can be counted. What a plan
//! announced but nobody reported counts as failed, and so does a suite that announced nothing and
//! reported nothing. Lines that are neither are kept as diagnostics of the result that follows them.

use std::mem;

/// Result of one case or suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// `ok`.
    Passed,
    /// `not ok`, or missing.
    Failed,
    /// Not run, with the reason given.
    Skipped(String),
}

/// A case, or a suite with cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// Its description.
    pub name: String,
    /// Its own result line.
    pub status: Status,
    /// Lines printed on its behalf.
    pub diagnostics: Vec<String>,
    /// Cases of a suite.
    pub children: Vec<Test>,
}

/// Numbers of leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Leaves that passed.
    pub passed: usize,
    /// Leaves that failed.
    pub failed: usize,
    /// Leaves that were skipped.
    pub skipped: usize,
}

impl Counts {
    /// All leaves.
    pub fn total(self) -> usize {
        self.passed + self.failed + self.skipped
    }

    /// Adds another's.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// Top-level results.
    pub tests: Vec<Test>,
    /// Whether there was a version, a plan or a result at all.
    pub found: bool,
    /// Whether the number of top-level results was announced.
    pub planned: bool,
}

impl Document {
    /// Counts all leaves.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for test in &self.tests {
            test.count(&mut counts);
        }
        counts
    }
}

impl Test {
    fn failed(name: String, why: &str) -> Self {
        Self {
            name,
            status: Status::Failed,
            diagnostics: vec![why.to_owned()],
            children: Vec::new(),
        }
    }

    fn count(&self, counts: &mut Counts) {
        if self.children.is_empty() {
            match self.status {
                Status::Passed => counts.passed += 1,
                Status::Failed => counts.failed += 1,
                Status::Skipped(_) => counts.skipped += 1,
            }
            return;
        }
        let before = counts.failed;
        for child in &self.children {
            child.count(counts);
        }
        // A suite may fail in its own set-up or tear-down while all its cases are fine.
        if self.status == Status::Failed && counts.failed == before {
            counts.failed += 1;
        }
    }

    /// Calls `visit` with the path of names and the test, for every leaf and for every suite that failed
    /// although its cases did not.
    pub fn leaves<'a>(&'a self, path: &mut Vec<&'a str>, visit: &mut dyn FnMut(&[&str], &Test)) {
        path.push(&self.name);
        for child in &self.children {
            child.leaves(path, visit);
        }
        let mut counts = Counts::default();
        for child in &self.children {
            child.count(&mut counts);
        }
        let own_failure = self.status == Status::Failed && counts.failed == 0;
        if self.children.is_empty() || own_failure {
            visit(path, self);
        }
        path.pop();
    }
}

/// What a line means.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    Version,
    Plan { count: usize, skip: Option<String> },
    Result { status: Status, name: String },
    Subtest(String),
    BailOut(String),
    Other,
}

/// Results at one indentation.
#[derive(Debug, Default)]
struct Level {
    indent: usize,
    /// Results announced so far; none where no plan was seen.
    planned: Option<usize>,
    tests: Vec<Test>,
    name: Option<String>,
    /// A finished deeper level, whose result line comes next at this level.
    children: Option<Vec<Test>>,
    diagnostics: Vec<String>,
}

/// Longest plan that is believed: a damaged line must not make us count to a billion.
const PLAN_MAX: usize = 100_000;

/// Reads the lines of one output.
pub fn parse<'a>(lines: impl IntoIterator<Item = &'a str>) -> Document {
    let mut parser = Parser {
        levels: vec![Level::default()],
        document: Document::default(),
    };
    for line in lines {
        parser.line(line.trim_end_matches(['\r', '\n']));
    }
    parser.finish()
}

struct Parser {
    /// Never empty; indentations rise.
    levels: Vec<Level>,
    document: Document,
}

impl Parser {
    fn line(&mut self, line: &str) {
        let text = line.trim_start_matches(' ');
        let indent = line.len() - text.len();
        match classify(text) {
            Line::Other => {
                if !text.is_empty() {
                    self.top().diagnostics.push(line.to_owned());
                }
            }
            Line::Version => {
                self.document.found = true;
                self.enter(indent);
            }
            Line::Subtest(name) => {
                self.document.found = true;
                self.enter(indent);
                self.top().name = Some(name);
            }
            Line::Plan { count, skip } => {
                self.document.found = true;
                self.document.planned |= indent == 0;
                self.enter(indent);
                let top = self.top();
                // A second document may follow at the same level (two modules, say).
                top.planned = Some((top.planned.unwrap_or(0) + count).min(PLAN_MAX));
                if let (0, Some(reason)) = (count, skip) {
                    let name = top.name.clone().unwrap_or_else(|| "all".into());
                    top.tests.push(Test {
                        name,
                        status: Status::Skipped(reason),
                        diagnostics: Vec::new(),
                        children: Vec::new(),
                    });
                    top.planned = Some(top.planned.unwrap_or(0) + 1);
                }
            }
            Line::Result { status, name } => {
                self.document.found = true;
                self.enter(indent);
                let top = self.top();
                let diagnostics = mem::take(&mut top.diagnostics);
                let children = top.children.take().unwrap_or_default();
                top.tests.push(Test {
                    name,
                    status,
                    diagnostics,
                    children,
                });
            }
            Line::BailOut(reason) => {
                self.document.found = true;
                let top = self.top();
                let number = top.tests.len() + 1;
                let mut test = Test::failed(format!("case {number}"), "bailed out");
                test.diagnostics.push(reason);
                test.diagnostics.append(&mut top.diagnostics);
                top.tests.push(test);
                // At least this one was expected.
                let planned = top.planned.unwrap_or(0).max(number);
                top.planned = Some(planned);
            }
        }
    }

    fn top(&mut self) -> &mut Level {
        if self.levels.is_empty() {
            self.levels.push(Level::default());
        }
        let last = self.levels.len() - 1;
        &mut self.levels[last]
    }

    /// Makes the level of that indentation the top one.
    fn enter(&mut self, indent: usize) {
        while self.levels.len() > 1 && self.top().indent > indent {
            self.leave();
        }
        if self.top().indent < indent {
            // A level that a suite opens while an earlier one still waits for its result line.
            self.adopt_orphans();
            self.levels.push(Level {
                indent,
                ..Level::default()
            });
        }
    }

    /// Closes the top level; its results wait for their own result line one level up.
    fn leave(&mut self) {
        let Some(level) = self.levels.pop() else {
            return;
        };
        let (name, tests) = level.close();
        self.adopt_orphans();
        let parent = self.top();
        parent.children = Some(tests);
        if parent.name.is_none() || name.is_some() {
            // Only used should the result line never come.
            parent
                .diagnostics
                .extend(name.map(|name| format!("# Subtest: {name}")));
        }
    }

    /// Children whose result line did not come belong to a suite that ended early.
    fn adopt_orphans(&mut self) {
        let top = self.top();
        if let Some(children) = top.children.take() {
            let prefix = "# Subtest: ";
            let named = top
                .diagnostics
                .iter()
                .rev()
                .find_map(|line| line.strip_prefix(prefix));
            let name = named.unwrap_or("suite without a result").to_owned();
            let mut test = Test::failed(name, "the suite has no result line: it ended early");
            test.diagnostics.append(&mut top.diagnostics);
            test.children = children;
            top.tests.push(test);
        }
    }

    fn finish(mut self) -> Document {
        while self.levels.len() > 1 {
            self.leave();
        }
        self.adopt_orphans();
        if let Some(level) = self.levels.pop() {
            let (_, tests) = level.close();
            self.document.tests = tests;
        }
        self.document
    }
}

impl Level {
    /// The level's name and its results, with what its plan announced and nobody reported.
    fn close(mut self) -> (Option<String>, Vec<Test>) {
        if let Some(children) = self.children.take() {
            let mut test = Test::failed("suite without a result".into(), "it ended early");
            test.children = children;
            self.tests.push(test);
        }
        if let Some(planned) = self.planned {
            let reported = self.tests.len();
            for number in reported..planned {
                let name = format!("case {} of {planned}", number + 1);
                self.tests
                    .push(Test::failed(name, "announced but never reported"));
            }
            if reported > planned {
                let why = format!("{reported} results where {planned} were announced");
                self.tests.push(Test::failed("plan".into(), &why));
            }
        }
        if let Some(last) = self.tests.last_mut() {
            last.diagnostics.append(&mut self.diagnostics);
        }
        (self.name, self.tests)
    }
}

fn classify(text: &str) -> Line {
    if text.starts_with("KTAP version ") || text.starts_with("TAP version ") {
        return Line::Version;
    }
    if let Some(name) = text.strip_prefix("# Subtest: ") {
        return Line::Subtest(name.trim().to_owned());
    }
    if let Some(reason) = text.strip_prefix("Bail out!") {
        return Line::BailOut(reason.trim().to_owned());
    }
    if let Some(plan) = text.strip_prefix("1..") {
        return plan_line(plan).unwrap_or(Line::Other);
    }
    result_line(text).unwrap_or(Line::Other)
}

fn plan_line(plan: &str) -> Option<Line> {
    let (count, comment) = match plan.split_once('#') {
        Some((count, comment)) => (count, Some(comment)),
        None => (plan, None),
    };
    let count: usize = count.trim().parse().ok()?;
    let skip = comment.and_then(|comment| directive(comment, "skip"));
    Some(Line::Plan {
        count: count.min(PLAN_MAX),
        skip,
    })
}

/// The reason behind a directive's keyword, whose case does not matter.
fn directive(comment: &str, keyword: &str) -> Option<String> {
    let comment = comment.trim();
    let word = comment.get(..keyword.len())?;
    let reason = comment.get(keyword.len()..)?;
    word.eq_ignore_ascii_case(keyword)
        .then(|| reason.trim().to_owned())
}

fn result_line(text: &str) -> Option<Line> {
    let (passed, rest) = match text.strip_prefix("not ok") {
        Some(rest) => (false, rest),
        None => (true, text.strip_prefix("ok")?),
    };
    // "okay" is no result.
    if !rest.is_empty() && !rest.starts_with(' ') {
        return None;
    }
    let rest = rest.trim_start();
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, rest) = rest.split_at(digits);
    let rest = rest.trim_start().trim_start_matches("- ");
    let (name, comment) = match rest
        .rsplit_once(" # ")
        .or_else(|| rest.strip_prefix("# ").map(|c| ("", c)))
    {
        Some((name, comment)) => (name, comment),
        None => (rest, ""),
    };
    let mut name = name.trim();
    let mut status = if passed {
        Status::Passed
    } else {
        Status::Failed
    };
    if let Some(reason) = directive(comment, "skip") {
        status = Status::Skipped(reason);
    } else if let Some(reason) = directive(comment, "todo") {
        // Known not to work yet; neither a success nor a surprise.
        if !passed {
            status = Status::Skipped(format!("todo: {reason}"));
        }
    } else if !comment.is_empty() {
        name = rest.trim();
    }
    let name = if name.is_empty() {
        format!("case {number}")
    } else {
        name.to_owned()
    };
    Some(Line::Result { status, name })
}

#[cfg(test)]
mod tests;
