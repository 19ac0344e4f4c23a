// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Tests of the parser: documents as the kernel prints them, damage of every kind, random trees.

use super::*;
use proptest::prelude::*;

fn read(text: &str) -> Document {
    parse(text.lines())
}

fn counts(text: &str) -> (usize, usize, usize) {
    let counts = read(text).counts();
    (counts.passed, counts.failed, counts.skipped)
}

const KUNIT: &str = "\
KTAP version 1
1..2
    KTAP version 1
    # Subtest: rkfd_pm4
    # module: rkfd
    1..3
    ok 1 map_queues
    # unmap: EXPECTATION FAILED at rust/hw/pm4.rs:12
    Expected a == b, but
    not ok 2 unmap
        KTAP version 1
        # Subtest: sizes
        ok 1 n=1
        ok 2 n=2
    # sizes: pass:2 fail:0 skip:0 total:2
    ok 3 sizes
# rkfd_pm4: pass:2 fail:1 skip:0 total:3
not ok 1 rkfd_pm4
    KTAP version 1
    # Subtest: rkfd_live
    1..1
    ok 1 gpu # SKIP no GPU
ok 2 rkfd_live
";

#[test]
fn kunit_with_suites_in_suites() {
    let document = read(KUNIT);
    let counts = document.counts();
    assert_eq!((counts.passed, counts.failed, counts.skipped), (3, 1, 1));
    assert_eq!(document.tests.len(), 2);
    let pm4 = &document.tests[0];
    assert_eq!(
        (pm4.name.as_str(), &pm4.status),
        ("rkfd_pm4", &Status::Failed)
    );
    let unmap = &pm4.children[1];
    assert!(unmap
        .diagnostics
        .iter()
        .any(|line| line.contains("Expected a == b")));
    assert_eq!(pm4.children[2].children.len(), 2);
    let skipped = &document.tests[1].children[0];
    assert_eq!(skipped.status, Status::Skipped("no GPU".into()));
    assert_eq!(skipped.name, "gpu");
}

#[test]
fn leaves_come_with_their_path() {
    let mut seen = Vec::new();
    for test in &read(KUNIT).tests {
        test.leaves(&mut Vec::new(), &mut |path, _| seen.push(path.join("/")));
    }
    assert_eq!(
        seen,
        [
            "rkfd_pm4/map_queues",
            "rkfd_pm4/unmap",
            "rkfd_pm4/sizes/n=1",
            "rkfd_pm4/sizes/n=2",
            "rkfd_live/gpu"
        ]
    );
}

#[test]
fn plain_tap_with_dashes_and_comments() {
    let text = "TAP version 13\n1..4\nok 1 - opens # 12 ms\n# detail\nnot ok 2 - closes\nok 3 # skip no card\n\
                not ok 4 later # TODO not there\n";
    let document = read(text);
    let names: Vec<&str> = document
        .tests
        .iter()
        .map(|test| test.name.as_str())
        .collect();
    assert_eq!(names, ["opens # 12 ms", "closes", "case 3", "later"]);
    assert_eq!(document.tests[1].diagnostics, ["# detail"]);
    assert_eq!(counts(text), (1, 1, 2));
}

#[test]
fn the_plan_may_come_last_and_may_be_missing() {
    assert_eq!(counts("ok 1 a\nok 2 b\n1..2\n"), (2, 0, 0));
    assert_eq!(counts("ok 1 a\nok 2 b\n"), (2, 0, 0));
}

#[test]
fn cases_that_were_announced_but_not_reported_fail() {
    assert_eq!(counts("1..5\nok 1 a\nok 2 b\n"), (2, 3, 0));
    assert_eq!(counts("1..3\n"), (0, 3, 0));
    let text = "KTAP version 1\n1..2\n    KTAP version 1\n    # Subtest: s\n    1..4\n    ok 1 a\n";
    // Three cases of s and the second suite.
    assert_eq!(counts(text), (1, 4, 0));
    let document = read(text);
    assert_eq!(document.tests[0].name, "s");
    assert_eq!(document.tests[0].status, Status::Failed);
}

#[test]
fn more_results_than_announced_fail() {
    assert_eq!(counts("1..1\nok 1 a\nok 2 b\n"), (2, 1, 0));
}

#[test]
fn a_suite_that_fails_without_a_failed_case_counts() {
    let text = "    # Subtest: s\n    1..1\n    ok 1 a\nnot ok 1 s\n";
    assert_eq!(counts(text), (1, 1, 0));
}

#[test]
fn bailing_out_fails_the_rest() {
    assert_eq!(counts("1..3\nok 1 a\nBail out! no device\n"), (1, 2, 0));
    assert_eq!(counts("ok 1 a\nBail out!\n"), (1, 1, 0));
}

#[test]
fn a_skipped_plan_is_one_skip() {
    let document = read("TAP version 13\n1..0 # SKIP no KFD\n");
    assert_eq!(document.counts().skipped, 1);
    assert_eq!(document.tests[0].status, Status::Skipped("no KFD".into()));
}

#[test]
fn nothing_is_not_found() {
    for text in [
        "",
        "hello\nworld\n",
        "okay 1\nnot okay\n1..x\n",
        "# only a comment\n",
    ] {
        assert!(!read(text).found, "{text:?}");
    }
}

#[test]
fn two_documents_in_a_row() {
    assert_eq!(
        counts("KTAP version 1\n1..1\nok 1 a\nKTAP version 1\n1..2\nok 1 b\n"),
        (2, 1, 0)
    );
}

#[test]
fn an_absurd_plan_is_bounded() {
    let counts = read("1..18446744073709551615\n").counts();
    assert_eq!(counts.failed, PLAN_MAX);
    assert_eq!(read("1..99999999999999999999999999\n").counts().total(), 0);
}

#[test]
fn odd_indentation_loses_no_result() {
    let text = "   ok 1 a\n  not ok 2 b\n ok 3 c\nok 4 d\n";
    let counts = read(text).counts();
    assert!(counts.failed >= 1, "{counts:?}");
    assert!(counts.passed >= 1, "{counts:?}");
}

/// A tree as a test program would print it.
#[derive(Clone, Debug)]
enum Tree {
    Case(u8),
    Suite(Vec<Tree>),
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = (0u8..3).prop_map(Tree::Case);
    leaf.prop_recursive(3, 24, 5, |inner| {
        prop::collection::vec(inner, 1..5).prop_map(Tree::Suite)
    })
}

fn print(tree: &Tree, number: usize, indent: usize, out: &mut String, counts: &mut Counts) -> bool {
    let pad = " ".repeat(indent);
    match tree {
        Tree::Case(0) => {
            counts.passed += 1;
            out.push_str(&format!("{pad}ok {number} case{number}\n"));
            true
        }
        Tree::Case(1) => {
            counts.failed += 1;
            out.push_str(&format!("{pad}# why\n{pad}not ok {number} case{number}\n"));
            false
        }
        Tree::Case(_) => {
            counts.skipped += 1;
            out.push_str(&format!("{pad}ok {number} case{number} # SKIP reason\n"));
            true
        }
        Tree::Suite(children) => {
            let inner = " ".repeat(indent + 4);
            out.push_str(&format!(
                "{inner}KTAP version 1\n{inner}# Subtest: suite{number}\n"
            ));
            out.push_str(&format!("{inner}1..{}\n", children.len()));
            let mut good = true;
            for (at, child) in children.iter().enumerate() {
                good &= print(child, at + 1, indent + 4, out, counts);
            }
            let word = if good { "ok" } else { "not ok" };
            out.push_str(&format!("{pad}{word} {number} suite{number}\n"));
            good
        }
    }
}

fn document(trees: &[Tree]) -> (String, Counts) {
    let mut counts = Counts::default();
    let mut text = format!("KTAP version 1\n1..{}\n", trees.len());
    for (at, tree) in trees.iter().enumerate() {
        print(tree, at + 1, 0, &mut text, &mut counts);
    }
    (text, counts)
}

proptest! {
    #[test]
    fn a_printed_tree_is_read_back(trees in prop::collection::vec(tree(), 1..5)) {
        let (text, expected) = document(&trees);
        prop_assert_eq!(read(&text).counts(), expected, "{}", text);
    }

    #[test]
    fn a_document_that_ends_early_never_passes(
        trees in prop::collection::vec(tree(), 1..5),
        keep in 2usize..100,
    ) {
        let (text, whole) = document(&trees);
        let lines: Vec<&str> = text.lines().collect();
        prop_assume!(keep < lines.len());
        let counts = parse(lines[..keep].iter().copied()).counts();
        prop_assert!(counts.failed > 0, "{} of\n{}", keep, text);
        prop_assert!(counts.passed <= whole.passed);
    }

    #[test]
    fn kernel_messages_in_between_change_nothing(trees in prop::collection::vec(tree(), 1..4), every in 1usize..4) {
        let (text, expected) = document(&trees);
        let mut mixed = String::new();
        for (at, line) in text.lines().enumerate() {
            mixed.push_str(line);
            mixed.push('\n');
            if at % every == 0 {
                mixed.push_str("rkfd 0000:01:00.0: 1024 MiB of VRAM\n");
            }
        }
        prop_assert_eq!(read(&mixed).counts(), expected);
    }

    #[test]
    fn any_text_is_read_without_panic(text in "(( {0,9})(ok|not ok|1\\.\\.[0-9]{1,3}|KTAP version 1|# Subtest: x|Bail out!|[a-z#]{0,9})( [0-9]{0,3})?\n){0,30}") {
        let _ = read(&text);
    }

    #[test]
    fn any_bytes_are_read_without_panic(text in ".{0,300}") {
        let _ = read(&text);
    }
}
