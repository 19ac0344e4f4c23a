// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Which tests are asked for. Whatever name the report prints selects what printed it.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

/// What the report calls the end of a VM, before the name of its first test.
pub const UNLOAD: &str = "e2e/unload after ";

/// Texts of the user; no text asks for everything.
#[derive(Debug)]
pub struct Filter {
    texts: Vec<Text>,
}

#[derive(Debug)]
struct Text {
    given: String,
    /// Something had it in its name.
    used: AtomicBool,
}

impl Filter {
    /// A filter for what has one of the texts in its name.
    pub fn new(texts: Vec<String>) -> Self {
        let text = |given| Text {
            given,
            used: AtomicBool::new(false),
        };
        Self {
            texts: texts.into_iter().map(text).collect(),
        }
    }

    /// Whether a unit of work, `kind/name`, or a part of it is asked for. Its parts are printed as
    /// `kind/name: part`.
    pub fn wants(&self, unit: &str) -> bool {
        self.any(|text| has(text, unit) || names_part(text, unit))
    }

    /// Whether all parts of the unit are asked for.
    pub fn wants_all_of(&self, unit: &str) -> bool {
        self.any(|text| has(text, unit))
    }

    /// Whether tests of a package are asked for. They are printed as `host/PACKAGE` and `host/PACKAGE file`,
    /// with the name of a crate in place of the package's for documentation.
    pub fn wants_package(&self, package: &str) -> bool {
        let unit = format!("host/{package}");
        self.any(|text| {
            let dashed = text.replace('_', "-");
            has(text, &unit) || names_part(text, &unit) || after(&dashed, &unit, " ")
        })
    }

    /// The texts that nothing had in its name.
    pub fn unused(&self) -> Vec<&str> {
        let unused = self.texts.iter();
        let unused = unused.filter(|text| !text.used.load(Ordering::Relaxed));
        unused.map(|text| text.given.as_str()).collect()
    }

    fn any(&self, fits: impl Fn(&str) -> bool) -> bool {
        let mut any = self.texts.is_empty();
        for text in &self.texts {
            let first = text.given.strip_prefix(UNLOAD);
            let first = first.map(|first| format!("e2e/{first}"));
            if fits(first.as_deref().unwrap_or(&text.given)) {
                text.used.store(true, Ordering::Relaxed);
                any = true;
            }
        }
        any
    }
}

/// The unit has the text in its name.
fn has(text: &str, unit: &str) -> bool {
    unit.contains(text)
}

/// The text is the printed name of a part of the unit.
fn names_part(text: &str, unit: &str) -> bool {
    after(text, unit, ": ")
}

/// The text is the unit's name, with its kind or without, and goes on with `separator`.
fn after(text: &str, unit: &str, separator: &str) -> bool {
    let name = unit.split_once('/').map_or(unit, |(_, name)| name);
    [unit, name].iter().any(|start| {
        let rest = text.strip_prefix(start);
        rest.is_some_and(|rest| rest.starts_with(separator))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(texts: &[&str]) -> Filter {
        Filter::new(texts.iter().map(|text| (*text).to_owned()).collect())
    }

    #[test]
    fn without_a_text_everything_is_wanted() {
        let filter = filter(&[]);
        assert!(filter.wants("e2e/demo"));
        assert!(filter.wants_all_of("kunit/gfx90a"));
        assert!(filter.wants_package("rkfd-vm"));
        assert!(filter.unused().is_empty());
    }

    #[test]
    fn a_printed_name_selects_what_printed_it() {
        for (text, unit) in [
            ("kunit/gfx90a: rkfd_hw_pm4", "kunit/gfx90a"),
            ("gfx90a: rkfd_hw_pm4", "kunit/gfx90a"),
            (
                "kunit/gfx906, no HWS: log and unload",
                "kunit/gfx906, no HWS",
            ),
            ("rkfd_hw_pm4", "kunit/gfx90a: rkfd_hw_pm4"),
            ("e2e/demo (gfx90a): the demo succeeds", "e2e/demo (gfx90a)"),
            ("demo (gfx90a): the demo succeeds", "e2e/demo (gfx90a)"),
            ("e2e/unload after demo (gfx90a)", "e2e/demo (gfx90a)"),
            ("host/clippy-module", "host/clippy-module"),
            ("vm/runner: an expected one does not", "vm/runner"),
        ] {
            let filter = filter(&[text]);
            assert!(filter.wants(unit), "{text} does not select {unit}");
            assert!(filter.unused().is_empty(), "{text}");
        }
    }

    #[test]
    fn it_does_not_select_what_only_begins_alike() {
        for (text, unit) in [
            ("kunit/gfx90a, no HWS: rkfd_gpu_live", "kunit/gfx90a"),
            ("e2e/demo-c", "e2e/demo"),
            ("e2e/unload after demo-c", "e2e/demo"),
            ("rkfd_hw_pm4", "kunit/gfx90a"),
        ] {
            let filter = filter(&[text]);
            assert!(!filter.wants(unit), "{text} selects {unit}");
            assert_eq!(filter.unused(), [text]);
        }
    }

    #[test]
    fn a_part_is_not_the_whole() {
        let filter = filter(&["kunit/gfx90a: rkfd_hw_pm4"]);
        assert!(!filter.wants_all_of("kunit/gfx90a"));
        assert!(filter.wants("kunit/gfx90a"));
    }

    #[test]
    fn packages_by_the_names_of_their_programs() {
        for (text, package) in [
            ("host/gpu-model", "gpu-model"),
            ("host/gpu-model aql.rs", "gpu-model"),
            ("host/gpu_model documentation", "gpu-model"),
            ("host/rkfd-vm: kmsg::tests::a", "rkfd-vm"),
            ("rkfd-c header.rs", "rkfd-c"),
            ("host", "rkfdctl"),
        ] {
            assert!(filter(&[text]).wants_package(package), "{text}");
        }
        for text in [
            "host/gpu-model aql.rs",
            "host/rkfd-c",
            "host/clippy",
            "rkfd_pm4",
        ] {
            assert!(!filter(&[text]).wants_package("rkfd"), "{text}");
        }
    }

    #[test]
    fn each_text_that_selects_nothing_is_known() {
        let filter = filter(&["demo", "dmeo", "e2e"]);
        assert!(filter.wants("e2e/demo"));
        assert!(!filter.wants("host/rustfmt"));
        assert_eq!(filter.unused(), ["dmeo"]);
    }
}
