// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `Documentation/tasks.md` against the example that it shows: what a fence has that names a file is in that file, to the
//! letter, and what the example prints is what `tests/e2e/library-tasks` wants of it.

// A test may panic, its helpers too; that is how it fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(top.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// What stands in the fences that begin with these words.
fn fences(words: &str) -> Vec<String> {
    let begin = format!("```{words}\n");
    let document = read("Documentation/tasks.md");
    let parts = document.split(&begin).skip(1);
    parts
        .map(|part| part.split_once("```\n").unwrap().0.to_owned())
        .collect()
}

#[test]
fn what_the_document_shows_is_in_the_example() {
    for (words, least) in [("c tasks.c", 4), ("cpp tasks.hip", 1)] {
        let name = words.split(' ').next_back().unwrap();
        let file = read(&format!("tools/rkfd-c/examples/{name}"));
        let shown = fences(words);
        assert!(shown.len() >= least, "{name}: {}", shown.len());
        for lines in shown {
            assert!(lines.len() > 40, "{lines:?}");
            assert!(file.contains(&lines), "{name} has no\n{lines}");
        }
    }
}

#[test]
fn what_the_document_has_it_print_is_what_the_suite_wants() {
    let [printed] = &fences("text tasks")[..] else {
        panic!("one text");
    };
    assert_eq!(printed.lines().count(), 3);
    let suite = read("tests/e2e/library-tasks");
    assert!(suite.contains(printed.trim_end()), "{printed}");
}
