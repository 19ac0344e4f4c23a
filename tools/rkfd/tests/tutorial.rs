// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `Documentation/tutorial.md` against the programs that it is about: what it shows of them is in them, to the letter.
//!
//! A fence says after the language which file its lines are of (```` ```c tutorial-03-queue.c ````); they may be moved to
//! the left together. What the programs print stands in fences ```` ```text tutorial-03-queue ````, which `tests/e2e/tutorial`
//! compares with what they do print.

// A test may panic, its helpers too; that is how it fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

/// Programs in each language.
const PROGRAMS: usize = 10;
/// Lines of the longest.
const LINES: usize = 80;

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(top().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Where the files of a language are.
fn folder(file: &str) -> &'static str {
    match file.rsplit('.').next() {
        Some("c" | "h") => "tools/rkfd-c/examples",
        _ => "tools/rkfd/examples",
    }
}

/// Names of the programs in a language, sorted, without what the files end in.
fn programs(ending: &str) -> Vec<String> {
    let mut found: Vec<String> = fs::read_dir(top().join(folder(ending)))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("tutorial-"))
        .filter_map(|name| name.strip_suffix(ending).map(str::to_owned))
        .collect();
    found.sort();
    found
}

/// What a fence holds.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    /// Number of the section that it is in, 0 before the first.
    section: usize,
    language: String,
    /// What follows the language.
    name: String,
    lines: Vec<String>,
}

/// All of them, in their order.
fn blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let (mut section, mut open) = (0, false);
    for line in text.lines() {
        match line.strip_prefix("```") {
            Some(_) if open => open = false,
            Some(info) => {
                let (language, name) = info.split_once(' ').unwrap_or((info, ""));
                found.push(Block {
                    section,
                    language: language.into(),
                    name: name.into(),
                    lines: Vec::new(),
                });
                open = true;
            }
            None if open => found.last_mut().unwrap().lines.push(line.into()),
            None => {
                if let Some(number) = line.strip_prefix("## ").and_then(|l| l.split('.').next()) {
                    section = number.parse().unwrap_or(0);
                }
            }
        }
    }
    assert!(!open, "a fence is not closed");
    found
}

/// Whether the lines stand in the text, one after the other, all of them with the same white space before them.
fn is_in(lines: &[String], text: &str) -> bool {
    let text: Vec<&str> = text.lines().collect();
    let blank = |line: &str| line.trim().is_empty();
    text.windows(lines.len().max(1)).any(|window| {
        let first = lines.iter().zip(window).find(|(line, _)| !blank(line));
        let Some(indent) = first.and_then(|(line, there)| there.strip_suffix(line.as_str())) else {
            return false;
        };
        blank(indent)
            && lines.iter().zip(window).all(|(line, there)| {
                (blank(line) && blank(there)) || there.strip_prefix(indent) == Some(line.as_str())
            })
    })
}

fn document() -> Vec<Block> {
    blocks(&read("Documentation/tutorial.md"))
}

#[test]
fn each_program_is_there_in_both_languages_and_short() {
    let (c, rust) = (programs(".c"), programs(".rs"));
    assert_eq!(c, rust);
    assert_eq!(c.len(), PROGRAMS, "{c:?}");
    for (number, name) in (1..).zip(&c) {
        let start = format!("tutorial-{number:02}-");
        assert!(name.starts_with(&start), "{name}: {start} was expected");
        for file in [format!("{name}.c"), format!("{name}.rs")] {
            let text = read(&format!("{}/{file}", folder(&file)));
            let lines = text.lines().count();
            assert!(lines <= LINES, "{file} has {lines} lines");
            // What says what it is about stands behind the licence, and has its number.
            let second = text.lines().nth(1).unwrap();
            let about = second.trim_start_matches(['/', '!', ' ']);
            assert!(about.starts_with(&format!("{number}: ")), "{file}: {about}");
        }
    }
    let manifest = read("tools/rkfd/Cargo.toml");
    for name in &rust {
        let path = format!("name = \"{name}\"\npath = \"examples/{name}.rs\"\n");
        assert!(manifest.contains(&path), "{name} is not built");
    }
}

#[test]
fn what_is_shown_of_a_program_is_in_it() {
    let mut wrong = Vec::new();
    for block in document() {
        let Block { language, name, .. } = &block;
        let ending = match language.as_str() {
            "c" => [".c", ".h"],
            "rust" => [".rs", ".rs"],
            "cpp" => [".hip", ".hip"],
            _ => continue,
        };
        let fits = ending.iter().any(|ending| name.ends_with(ending));
        assert!(fits, "a fence of {language} names {name:?}");
        if !is_in(&block.lines, &read(&format!("{}/{name}", folder(name)))) {
            wrong.push(format!("{name}:\n{}", block.lines.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "not so in {}", wrong.join("\n\n"));
}

#[test]
fn each_section_shows_its_programs_and_what_they_print() {
    let names = programs(".c");
    let blocks = document();
    let sections: BTreeSet<usize> = blocks.iter().map(|block| block.section).collect();
    for (section, name) in (1..).zip(&names) {
        assert!(sections.contains(&section), "no section {section}");
        let count = |language: &str, wanted: &str| {
            let of = |b: &&Block| b.section == section && b.language == language;
            blocks
                .iter()
                .filter(of)
                .filter(|b| b.name == wanted)
                .count()
        };
        assert!(count("c", &format!("{name}.c")) > 0, "{name} in C");
        assert!(count("rust", &format!("{name}.rs")) > 0, "{name} in Rust");
        // The test of what it prints takes one.
        assert_eq!(count("text", name), 1, "what {name} prints");
    }
    for block in &blocks {
        let known = ["c", "rust", "cpp", "text", "sh", ""];
        assert!(known.contains(&block.language.as_str()), "{block:?}");
        assert!(
            block.language != "text" || names.contains(&block.name),
            "{block:?}"
        );
    }
}

#[test]
fn a_line_that_is_not_so_is_noticed() {
    let program = "int main(void)\n{\n\tint a = 1;\n\n\tif (a)\n\t\treturn 2;\n}\n";
    let lines = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
    for there in [
        "\tint a = 1;\n\n\tif (a)",
        "int a = 1;\n\nif (a)\n\treturn 2;",
        "return 2;",
        "{\n\tint a = 1;",
    ] {
        assert!(is_in(&lines(there), program), "{there}");
    }
    for not_there in [
        "int a = 2;",
        "int a = 1;\nif (a)",
        "int a = 1;\n\nif (a)\nreturn 2;",
        "nt a = 1;",
        "int a = 1",
        "",
    ] {
        assert!(!is_in(&lines(not_there), program), "{not_there}");
    }
    let found = blocks("# Text\n```sh\nls\n```\n## 3. A\n```c a.c\nint a;\n\nint b;\n```\n");
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].section, found[0].language.as_str()), (0, "sh"));
    assert_eq!((found[1].section, found[1].name.as_str()), (3, "a.c"));
    assert_eq!(found[1].lines, ["int a;", "", "int b;"]);
}

#[test]
fn readers_of_the_library_are_led_to_the_tutorial() {
    for file in ["README.md", "Documentation/library.md"] {
        assert!(read(file).contains("tutorial.md)"), "{file}");
    }
}
