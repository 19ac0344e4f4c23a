// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The self-test that runs under ThreadSanitizer (`tools/selftests`, `library-threads`) calls every function of the header.

// A test may panic, its helpers too; that is how it fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Names of functions that C code calls or declares. Comments, which name some, are left out.
fn functions(text: &str) -> BTreeSet<String> {
    let outside = |part| str::split_once(part, "*/").map_or(part, |(_, behind)| behind);
    let code: String = text.split("/*").map(outside).collect();
    let words = code.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter_map(|word| word.strip_suffix('('))
        .filter(|word| word.starts_with("rkfd_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn functions_are_told_from_types_and_comments() {
    let text = "int rkfd_a(struct rkfd_b *b); /* rkfd_c() */ OK(rkfd_d(x)); my_rkfd_e(); rkfd_f (";
    let wanted = ["rkfd_a", "rkfd_d"].map(str::to_owned);
    assert_eq!(functions(text), BTreeSet::from(wanted));
}

#[test]
fn every_function_is_called_under_thread_sanitizer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let selftests = root.join("../selftests");
    let makefile = fs::read_to_string(selftests.join("Makefile")).unwrap();
    let sources = makefile
        .lines()
        .find_map(|line| line.strip_prefix("THREADS := "))
        .expect("the Makefile says what the program is made of");
    let called: BTreeSet<String> = sources
        .split_whitespace()
        .chain(["library.h"])
        .flat_map(|name| functions(&fs::read_to_string(selftests.join(name)).unwrap()))
        .collect();
    let all = functions(&fs::read_to_string(root.join("include/rkfd.h")).unwrap());
    assert!(all.len() > 90, "only {} functions found", all.len());
    let missing: Vec<_> = all.difference(&called).collect();
    assert!(missing.is_empty(), "not in {sources}: {missing:?}");
}
