// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The self-test that runs under ThreadSanitizer (`tools/selftests`, `library-threads`) notes which functions two threads
//! call at once, and fails where that is not every function it knows of. Here: that it knows of each one of the header, and
//! that the file which asks comes last.

// A test may panic, its helpers too; that is how it fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What `called.sh` makes of a header.
fn called(header: &Path) -> String {
    let output = Command::new(root().join("../selftests/called.sh"))
        .arg(header)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

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
fn each_function_of_the_header_is_noted() {
    let header = root().join("include/rkfd.h");
    let all = functions(&fs::read_to_string(&header).unwrap());
    assert!(all.len() > 90, "only {} functions found", all.len());
    let made = called(&header);
    let noted: BTreeSet<String> = made
        .lines()
        .filter_map(|line| line.strip_prefix("#define rkfd_"))
        .map(|rest| format!("rkfd_{}", rest.split('(').next().unwrap()))
        .collect();
    assert_eq!(noted, all);
    for function in &all {
        let macro_ =
            format!("#define {function}(...) (called(CALLED_{function}), {function}(__VA_ARGS__))");
        assert_eq!(
            made.lines().filter(|line| *line == macro_).count(),
            1,
            "{function}"
        );
        assert_eq!(
            made.matches(&format!("\tCALLED_{function},\n")).count(),
            1,
            "{function}"
        );
        assert_eq!(
            made.matches(&format!("\t\"{function}\",")).count(),
            1,
            "{function}"
        );
    }
}

#[test]
fn a_header_without_functions_is_refused() {
    let empty = format!("{}/empty.h", env!("CARGO_TARGET_TMPDIR"));
    fs::write(&empty, "/* rkfd_none() */\n").unwrap();
    let output = Command::new(root().join("../selftests/called.sh"))
        .arg(&empty)
        .output()
        .unwrap();
    assert!(!output.status.success());
}

#[test]
fn the_file_that_asks_comes_last() {
    let makefile = fs::read_to_string(root().join("../selftests/Makefile")).unwrap();
    let sources = makefile
        .lines()
        .find_map(|line| line.strip_prefix("THREADS := "))
        .expect("the Makefile says what the program is made of");
    assert_eq!(
        sources.split_whitespace().next_back(),
        Some("library_called.c")
    );
}
