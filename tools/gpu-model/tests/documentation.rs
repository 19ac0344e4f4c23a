// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the documentation of the model names is there, and what there is it names.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use gpu_model::inject::{Kind, Rules};

const DOCUMENTATION: &str = include_str!("../../../Documentation/gpu-model.md");

/// Rows of the table whose header begins so, as first cell and the rest.
fn rows(header: &str) -> Vec<(&'static str, &'static str)> {
    let (_, behind) = DOCUMENTATION.split_once(header).unwrap();
    // The rest of the header, and the line below it.
    let rows = behind.lines().skip(2).take_while(|row| !row.is_empty());
    let cells = rows.map(|row| row.trim_start_matches('|').split_once(" | ").unwrap());
    cells.collect()
}

/// What the first column of a table names.
fn first_column(header: &str) -> Vec<&'static str> {
    let cells = rows(header).into_iter();
    let names = cells.flat_map(|(first, _)| first.split(','));
    names.map(|name| name.trim().trim_matches('`')).collect()
}

fn sorted<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_unstable();
    names
}

#[test]
fn every_fault_and_every_rule_is_described() {
    let names = Kind::ALL.map(|(name, _)| name);
    assert_eq!(sorted(first_column("| Fault | Effect |")), sorted(names));
    let habits = first_column("| `--no-rule` | Without it |");
    assert_eq!(
        sorted(habits.into_iter().chain(["late-acks", "late-writes"])),
        sorted(Rules::NAMES)
    );
    for (name, kind) in Kind::ALL {
        // As the control socket writes it.
        let written = serde_json::to_value(kind).unwrap();
        assert_eq!(written, name);
    }
}

#[test]
fn the_tests_of_each_rule_are_there() {
    let table = rows("| Rule | File of `tests/`: cases |");
    assert!(table.len() >= 20, "{}", table.len());
    for (rule, shown) in table {
        for part in shown.trim_end_matches('|').split(';') {
            let (file, cases) = part.split_once(':').unwrap();
            let file = file.trim().trim_matches('`');
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{file}.rs"));
            let source = std::fs::read_to_string(&path).unwrap();
            for case in cases.split(',') {
                let case = case.trim().trim_matches('`');
                let head = format!("#[test]\nfn {case}() {{");
                assert!(source.contains(&head), "{rule}: {file} has no {case}");
            }
        }
    }
}

/// A place for a figure that nobody has put there.
#[test]
fn no_figure_is_missing() {
    let left = |text: &str| -> Vec<String> {
        let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let words = text.split(|c| !is_name(c));
        let places = words.filter(|word| {
            let alone = ["TBD", "TODO", "FIXME"].contains(word);
            alone || word.ends_with("_COST") || word.ends_with("_FIGURE")
        });
        places.map(str::to_owned).collect()
    };
    assert_eq!(left("| a save | SAVE_COST |"), ["SAVE_COST"]);
    assert_eq!(left("VMIDs cost TBD µs"), ["TBD"]);
    assert_eq!(left(DOCUMENTATION), Vec::<String>::new());
}
