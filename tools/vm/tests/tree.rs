// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What this checkout says of itself: the map from files to suites, the mutants, and which files of wrappers have a test.

// A test may panic, its helpers too; that is how it fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use rkfd_vm::suite;
use rkfd_vm::suite::areas;
use rkfd_vm::suite::filter::Filter;
use rkfd_vm::suite::mutants;
use rkfd_vm::suite::mutants::build::read_sources;
use rkfd_vm::suite::mutants::data::apply_switched;
use rkfd_vm::suite::mutants::data::Mutant;
use rkfd_vm::suite::trial::Subjects;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

/// As many mutants as there are at least.
const MUTANTS: usize = 60;
/// Files at the top that builds, git and editors leave there.
const NOT_OURS: [&str; 3] = ["build", "out", ".git"];

fn top() -> PathBuf {
    let top = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    fs::canonicalize(top).unwrap()
}

/// Every file below `dir`, as a path from `top`, but what is built.
fn files(top: &Path, dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(top.join(dir)).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = dir.join(&name);
        let is_top = dir.as_os_str().is_empty();
        let built = name == "target"
            || name == "__pycache__"
            || [".o", ".ko", ".cmd", ".mod", ".mod.c"]
                .iter()
                .any(|end| name.ends_with(end));
        if built || (is_top && NOT_OURS.contains(&name.as_str())) {
            continue;
        }
        if entry.path().is_dir() {
            files(top, &path, found);
        } else {
            found.push(path.to_string_lossy().into_owned());
        }
    }
}

#[test]
fn every_file_has_an_area() {
    let top = top();
    let areas = areas::load(&top).unwrap();
    let mut found = Vec::new();
    files(&top, Path::new(""), &mut found);
    assert!(found.len() > 300, "{} files", found.len());
    for file in found {
        areas::affected(&areas, [file.as_str()]).unwrap();
    }
}

#[test]
fn every_suite_has_an_area_and_every_area_has_suites() {
    let top = top();
    let areas = areas::load(&top).unwrap();
    let mut found = Vec::new();
    files(&top, Path::new(""), &mut found);
    let texts = areas::affected(&areas, found.iter().map(String::as_str)).unwrap();
    // Documentation within a folder of tests has no suite of its name.
    let is_test = |text: &String| text != "e2e/README";
    let filter = Filter::new(texts.into_iter().filter(is_test).collect());
    // The same suites run on both ASICs, with and without firmware: one of them is enough for a quick answer.
    let one_of = |name: &str| {
        let first = name.split(" (").next().unwrap_or(name);
        let suite = first.rsplit(": ").next().unwrap_or(first);
        suite.to_owned()
    };
    let names = suite::names(&top).unwrap();
    let wanted = |name: &String| match name.strip_prefix("host/") {
        Some(package) => filter.wants_package(package) || filter.wants(name),
        None => filter.wants(name),
    };
    let chosen: BTreeSet<String> = names
        .iter()
        .filter(|name| wanted(name))
        .map(|name| one_of(name))
        .collect();
    let left: Vec<&String> = names
        .iter()
        // It builds the module once more, which takes too long.
        .filter(|name| *name != "host/clippy-module")
        .filter(|name| !chosen.contains(&one_of(name)))
        .collect();
    assert!(left.is_empty(), "in no area: {left:?}");
    // A file may have another name than the test that uses it, but what is written out must be there.
    let written = |text: &&str| {
        let mut suites = areas.iter().flat_map(|area| &area.suites);
        suites.any(|one| one == text)
    };
    let unused: Vec<&str> = filter.unused().into_iter().filter(written).collect();
    assert!(unused.is_empty(), "suites that there are not: {unused:?}");
}

#[test]
fn every_file_of_the_self_tests_asks_for_suites_that_there_are() {
    let top = top();
    let areas = areas::load(&top).unwrap();
    let names = suite::names(&top).unwrap();
    let mut found = Vec::new();
    files(&top, Path::new("tools/selftests"), &mut found);
    let mut wrong = Vec::new();
    for file in &found {
        let texts = areas::affected(&areas, [file.as_str()]).unwrap();
        let filter = Filter::new(texts.into_iter().collect());
        for name in &names {
            let _ = match name.strip_prefix("host/") {
                Some(package) => filter.wants_package(package),
                None => filter.wants(name),
            };
        }
        let missing = filter.unused();
        wrong.extend(missing.iter().map(|suite| format!("{file}: {suite}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_mutant_applies_to_this_tree() {
    let top = top();
    let all = mutants::list(&top, &[]).unwrap();
    assert!(all.len() >= MUTANTS, "only {} mutants", all.len());
    let sources = read_sources(&top).unwrap();
    let mut wrong = Vec::new();
    for mutant in &all {
        match sources.get(&mutant.file) {
            None => wrong.push(format!("{}: no {}", mutant.name, mutant.file.display())),
            Some(source) => {
                if let Err(error) = mutant.place(source) {
                    wrong.push(format!("{}: {error:#}", mutant.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let numbered: Vec<(u32, &Mutant)> = (1..).zip(&all).filter(|(_, one)| !one.alone).collect();
    apply_switched(&mut sources.clone(), &numbered).unwrap();
}

#[test]
fn every_mutant_names_suites_that_there_are() {
    let top = top();
    let subjects = Subjects::find(&top).unwrap();
    for mutant in mutants::list(&top, &[]).unwrap() {
        for suite in &mutant.suites {
            let found = subjects.get(suite);
            assert!(found.is_ok(), "mutant {}: {suite}", mutant.name);
        }
    }
}

#[test]
fn every_folder_of_the_driver_has_mutants() {
    let top = top();
    let all = mutants::list(&top, &[]).unwrap();
    let folders: BTreeSet<&str> = all.iter().map(Mutant::folder).collect();
    for entry in fs::read_dir(top.join("rust")).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() && name != "tests" {
            assert!(folders.contains(name.as_str()), "no mutant in rust/{name}");
        }
    }
}

#[test]
fn every_mutant_is_noticed_by_the_area_of_its_file() {
    let top = top();
    let areas = areas::load(&top).unwrap();
    let mut wrong = Vec::new();
    for mutant in mutants::list(&top, &[]).unwrap() {
        let file = mutant.file.to_str().unwrap();
        let chosen = areas::affected(&areas, [file]).unwrap();
        let filter = Filter::new(chosen.into_iter().collect());
        if !mutant.suites.iter().any(|suite| filter.wants(suite)) {
            wrong.push(format!("{file}: {} needs {:?}", mutant.name, mutant.suites));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The table of mutants in the documentation: how many each file has, and all.
fn documented(text: &str) -> BTreeMap<String, usize> {
    let rows = text
        .lines()
        .skip_while(|line| *line != "| file | mutants |")
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        (cells[1].to_owned(), cells[2].parse().unwrap())
    };
    rows.map(row).collect()
}

#[test]
fn the_table_of_mutants_has_the_numbers_of_their_files() {
    #[derive(serde::Deserialize)]
    struct Listing {
        mutant: Vec<toml::Table>,
    }
    let top = top();
    let mut counts = BTreeMap::new();
    for entry in fs::read_dir(top.join("tests/mutants")).unwrap().flatten() {
        let path = entry.path();
        let listing: Listing = toml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        counts.insert(name, listing.mutant.len());
    }
    counts.insert("all".into(), counts.values().sum());
    let text = fs::read_to_string(top.join("Documentation/testing.md")).unwrap();
    assert_eq!(documented(&text), counts);
}

/// Whether `text` uses a module of wrappers of that name, by a path or a group of imports.
fn uses(text: &str, name: &str) -> bool {
    let path = format!("{name}::");
    let import = text.lines().any(|line| {
        let line = line.trim().trim_end_matches([';', ',', '/', ' ']);
        line == name || line.ends_with(&format!("::{name}"))
    });
    let whole = |at: usize| {
        let before = text[..at].chars().next_back();
        before.is_none_or(|sign| !sign.is_alphanumeric() && sign != '_')
    };
    import || text.match_indices(&path).any(|(at, _)| whole(at))
}

#[test]
fn every_wrapper_is_used_by_a_suite_or_says_what_tests_it() {
    let top = top();
    let read = |path: &String| fs::read_to_string(top.join(path)).unwrap();
    let mut suites = Vec::new();
    files(&top, Path::new("rust/tests"), &mut suites);
    let suites: Vec<String> = suites.iter().map(read).collect();
    let mut wrappers = Vec::new();
    files(&top, Path::new("rust/kapi"), &mut wrappers);
    let tests = suite::names(&top).unwrap();
    let mut wrong = Vec::new();
    for file in wrappers {
        let name = Path::new(&file).file_stem().unwrap().to_str().unwrap();
        let suite = format!("rkfd_kapi_{name}");
        let has_suite = |text: &String| uses(text, name) || text.contains(&suite);
        if suites.iter().any(has_suite) {
            continue;
        }
        // Where another module hands on what is in it, or no suite reaches it, its documentation names tests in backquotes.
        let text = read(&file);
        let doc = text.lines().filter(|line| line.starts_with("//!"));
        let named: Vec<&str> = doc
            .flat_map(|line| line.split('`'))
            .filter(|part| part.starts_with("e2e/") || part.starts_with("rkfd_"))
            .collect();
        let there = |test: &&str| {
            let mut tests = tests.iter();
            tests.any(|one| {
                one.split(" (").next() == Some(*test) || one.ends_with(&format!(": {test}"))
            })
        };
        if named.is_empty() || !named.iter().all(there) {
            wrong.push(file);
        }
    }
    assert!(wrong.is_empty(), "without a suite: {wrong:?}");
}
