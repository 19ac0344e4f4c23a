// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Reader of what `cargo test` prints.

use crate::ktap::Status;
use crate::ktap::Test;
use std::collections::HashMap;

/// The tests of one binary.
#[derive(Clone, Debug, PartialEq)]
pub struct Binary {
    /// Crate and file, as `rkfd_vm` or `rkfd_vm boot.rs`.
    pub name: String,
    /// Its cases; what it announced and did not report is a failed one.
    pub tests: Vec<Test>,
    /// Time that it took, in seconds.
    pub seconds: f64,
}

/// Reads the output of `cargo test` with both streams in one.
pub fn parse(output: &str) -> Vec<Binary> {
    let mut binaries: Vec<Binary> = Vec::new();
    let mut planned = 0;
    // Cargo names the files of integration tests without their crate, whose own tests come first.
    let mut package = String::new();
    let packages = packages(output);
    // The failed test whose captured output is being printed.
    let mut current = None;
    for line in output.lines() {
        if let Some((path, mut name)) = binary_name(line) {
            let known = packages.get(path);
            name = match (name.strip_prefix("tests/"), known) {
                (Some(file), None) => format!("{package} {file}"),
                (Some(file), Some(package)) => format!("{package} {file}"),
                (None, None) => name,
                // Two packages may have libraries of one name.
                (None, Some(package)) => match name.split_once(' ') {
                    Some((_, file)) => format!("{package} {file}"),
                    None => package.clone(),
                },
            };
            package = name.split(' ').next().unwrap_or("").to_owned();
            close(&mut binaries, planned);
            planned = 0;
            current = None;
            binaries.push(Binary {
                name,
                tests: Vec::new(),
                seconds: 0.0,
            });
            continue;
        }
        let Some(binary) = binaries.last_mut() else {
            continue;
        };
        if let Some(count) = running(line) {
            planned += count;
        } else if let Some(test) = result(line) {
            binary.tests.push(test);
        } else if let Some(seconds) = finished(line) {
            binary.seconds += seconds;
        } else if let Some(text) = line.strip_prefix("---- ") {
            // The captured output of a failed test follows until the next such line.
            let name = text.split(' ').next().unwrap_or("");
            current = binary.tests.iter().position(|test| test.name == name);
        } else if line == "failures:" || line.starts_with("test result: ") {
            current = None;
        } else if let Some(test) = current.and_then(|at| binary.tests.get_mut(at)) {
            test.diagnostics.push(line.to_owned());
        }
    }
    close(&mut binaries, planned);
    binaries.retain(|binary| !binary.tests.is_empty());
    binaries
}

fn close(binaries: &mut [Binary], planned: usize) {
    let Some(binary) = binaries.last_mut() else {
        return;
    };
    for number in binary.tests.len()..planned {
        binary.tests.push(Test {
            name: format!("test {} of {planned}", number + 1),
            status: Status::Failed,
            diagnostics: vec!["announced but never reported: the test program died".into()],
            children: Vec::new(),
        });
    }
}

/// The packages of test programs by the programs' file names, from cargo's JSON lines.
fn packages(output: &str) -> HashMap<String, String> {
    let mut packages = HashMap::new();
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let Ok(artifact) = serde_json::from_str::<serde_json::Value>(line) else {
            continue;
        };
        let text = |key: &str| artifact.get(key).and_then(|value| value.as_str());
        let (Some(id), Some(program)) = (text("package_id"), text("executable")) else {
            continue;
        };
        // `path+file:///dir/name#0.1.0` or, where the directory has another name, `…/dir#name@0.1.0`.
        let (path, version) = id.rsplit_once('#').unwrap_or((id, ""));
        let package = match version.split_once('@') {
            Some((name, _)) => name,
            None => path.rsplit('/').next().unwrap_or(path),
        };
        let file = program.rsplit('/').next().unwrap_or(program);
        packages.insert(file.to_owned(), package.to_owned());
    }
    packages
}

/// `Running unittests src/lib.rs (target/debug/deps/rkfd_vm-0123)` and `Doc-tests rkfd_vm`: the program's
/// file name, if there is one, and what to call it.
fn binary_name(line: &str) -> Option<(&str, String)> {
    let line = line.trim_start();
    if let Some(name) = line.strip_prefix("Doc-tests ") {
        return Some(("", format!("{name} documentation")));
    }
    let rest = line.strip_prefix("Running ")?;
    let (source, path) = rest.split_once(" (")?;
    let file = path.trim_end_matches(')').rsplit('/').next()?;
    let (stem, _hash) = file.rsplit_once('-')?;
    let name = match source.strip_prefix("unittests ") {
        Some("src/lib.rs") => stem.to_owned(),
        Some(source) => format!("{stem} {}", source.trim_start_matches("src/")),
        None => source.to_owned(),
    };
    Some((file, name))
}

fn running(line: &str) -> Option<usize> {
    let rest = line.strip_prefix("running ")?;
    let (count, word) = rest.split_once(' ')?;
    word.starts_with("test")
        .then(|| count.parse().ok())
        .flatten()
}

fn result(line: &str) -> Option<Test> {
    let rest = line.strip_prefix("test ")?;
    let (name, word) = rest.rsplit_once(" ... ")?;
    let status = match word.split(',').next().unwrap_or(word).trim() {
        "ok" => Status::Passed,
        "FAILED" => Status::Failed,
        "ignored" => Status::Skipped(
            word.split_once(", ")
                .map_or("ignored", |(_, why)| why)
                .to_owned(),
        ),
        _ => return None,
    };
    Some(Test {
        name: name.trim_end_matches(" - should panic").to_owned(),
        status,
        diagnostics: Vec::new(),
        children: Vec::new(),
    })
}

fn finished(line: &str) -> Option<f64> {
    let rest = line.strip_prefix("test result: ")?;
    let (_, time) = rest.rsplit_once("finished in ")?;
    time.trim_end_matches('s').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OUTPUT: &str = "\
   Compiling rkfd-vm v0.1.0
     Running unittests src/lib.rs (target/debug/deps/rkfd_vm-0a1b2c)

running 3 tests
test kmsg::tests::a ... ok
test ktap::tests::b ... FAILED
test ktap::tests::c ... ignored, needs a card

failures:

---- ktap::tests::b stdout ----
thread 'ktap::tests::b' panicked at src/ktap.rs:1:2:
boom

failures:
    ktap::tests::b

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.25s

     Running tests/codec.rs (target/debug/deps/codec-ffff)

running 4 tests
test one ... ok
   Doc-tests rkfd_vm

running 0 tests

test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn binaries_results_and_reasons() {
        let binaries = parse(OUTPUT);
        assert_eq!(binaries.len(), 2);
        assert_eq!(binaries[0].name, "rkfd_vm");
        assert!((binaries[0].seconds - 0.25).abs() < 1e-9);
        assert_eq!(
            binaries[0].tests[2].status,
            Status::Skipped("needs a card".into())
        );
        let failed = &binaries[0].tests[1];
        assert_eq!(failed.status, Status::Failed);
        assert!(
            failed.diagnostics.iter().any(|line| line == "boom"),
            "{failed:?}"
        );
    }

    #[test]
    fn a_program_that_died_has_failed_its_missing_tests() {
        let binaries = parse(OUTPUT);
        assert_eq!(binaries[1].name, "rkfd_vm codec.rs");
        let failed = binaries[1]
            .tests
            .iter()
            .filter(|test| test.status == Status::Failed);
        assert_eq!((binaries[1].tests.len(), failed.count()), (4, 3));
    }

    #[test]
    fn names_of_binaries() {
        let name = |line| binary_name(line).map(|(_, name)| name);
        assert_eq!(
            name("     Running unittests src/main.rs (t/gpu_model-1)").unwrap(),
            "gpu_model main.rs"
        );
        assert_eq!(name("   Doc-tests rkfd").unwrap(), "rkfd documentation");
        assert_eq!(name("Running out of words"), None);
    }

    #[test]
    fn libraries_of_one_name_are_told_apart_by_their_packages() {
        let artifact = |id: &str, file: &str| {
            format!("{{\"reason\":\"compiler-artifact\",\"package_id\":\"{id}\",\"executable\":\"/t/debug/deps/{file}\"}}\n")
        };
        let run = |source: &str, file: &str| {
            format!("     Running {source} (target/debug/deps/{file})\n\nrunning 1 test\ntest a ... ok\n")
        };
        let output = artifact("path+file:///w/tools/rkfd#0.1.0", "rkfd-11")
            + &artifact("path+file:///w/tools/lib#rkfd-c@0.1.0", "rkfd-22")
            + &artifact("path+file:///w/tools/lib#rkfd-c@0.1.0", "header-33")
            + &run("unittests src/lib.rs", "rkfd-11")
            + &run("unittests src/lib.rs", "rkfd-22")
            + &run("tests/header.rs", "header-33");
        let names: Vec<String> = parse(&output).into_iter().map(|b| b.name).collect();
        assert_eq!(names, ["rkfd", "rkfd-c", "rkfd-c header.rs"]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "((test [a-z:]{0,8} \\.\\.\\. (ok|FAILED|x)|running [0-9]{1,3} tests|   Running [a-z./]{0,9} \\([a-z/-]{0,9}\\)|---- a ----|.{0,9})\n){0,20}") {
            let _ = parse(&text);
        }
    }
}
