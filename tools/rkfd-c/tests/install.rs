// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What `install` puts where, as a program sees it that is built by pkg-config, and the manual pages.

// A test may panic, its helpers too; that is how it fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;
use std::sync::Once;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    text(&output)
}

/// Where cargo puts the libraries and examples of the profile that this test is built in.
fn built() -> PathBuf {
    let mut dir = std::env::current_exe().unwrap();
    // deps/install-…
    dir.pop();
    dir.pop();
    dir
}

/// Cargo makes the libraries for no test by itself, since none links them, and the examples for one that was chosen alone
/// neither.
fn build() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        run(Command::new(env!("CARGO"))
            .args([
                "build",
                "--locked",
                "--quiet",
                "--package",
                "rkfd-c",
                "--lib",
                "--examples",
            ])
            .current_dir(root())
            .env("CARGO_TARGET_DIR", built().parent().unwrap()));
    });
}

/// Installs below a directory of the test's own.
fn install(name: &str) -> PathBuf {
    build();
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&to);
    run(Command::new(root().join("install"))
        .args(["--prefix", "/opt/rkfd", "--destdir"])
        .arg(&to)
        .arg("--from")
        .arg(built())
        .env("RKFD_REFERENCE", built().join("examples/reference")));
    to
}

/// The C program of the document.
fn program() -> String {
    let document = fs::read_to_string(root().join("../../Documentation/library.md")).unwrap();
    let (_, rest) = document.split_once("```c\n").unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

#[test]
fn a_program_is_built_by_pkg_config_and_finds_the_library_by_its_major_version() {
    let to = install("shared");
    let config = |what: &str| -> Vec<String> {
        run(Command::new("pkg-config")
            .args([what, "rkfd"])
            .env("PKG_CONFIG_PATH", to.join("opt/rkfd/lib/pkgconfig"))
            .env("PKG_CONFIG_SYSROOT_DIR", &to))
        .split_whitespace()
        .map(str::to_owned)
        .collect()
    };
    assert_eq!(config("--modversion"), [env!("CARGO_PKG_VERSION")]);
    let source = to.join("demo.c");
    fs::write(&source, program()).unwrap();
    let demo = to.join("demo");
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    run(Command::new(cc)
        .args(["-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&demo)
        .arg(&source)
        .args(config("--cflags"))
        .args(config("--libs")));
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    let needed = run(Command::new("readelf").arg("-d").arg(&demo));
    let wanted = format!("[librkfd.so.{major}]");
    assert!(needed.contains(&wanted), "{needed}");
    let named = run(Command::new("readelf")
        .arg("-d")
        .arg(to.join("opt/rkfd/lib/librkfd.so")));
    assert!(
        named
            .lines()
            .any(|l| l.contains("(SONAME)") && l.contains(&wanted)),
        "{named}"
    );
    // It starts; without a driver it says so.
    let output = Command::new(&demo)
        .env("LD_LIBRARY_PATH", to.join("opt/rkfd/lib"))
        .output()
        .unwrap();
    let said = text(&output);
    match output.status.code() {
        Some(0) => assert_eq!(said, "42\n"),
        Some(1) => assert!(said.contains("driver") || said.contains("GPU"), "{said}"),
        other => panic!("{other:?}: {said}"),
    }
}

#[test]
fn every_function_and_structure_has_a_page_that_tells_of_threads() {
    let to = install("pages");
    let pages = to.join("opt/rkfd/share/man/man3");
    let header = fs::read_to_string(root().join("include/rkfd.h")).unwrap();
    let read = |name: &str| {
        fs::read_to_string(pages.join(format!("{name}.3")))
            .unwrap_or_else(|e| panic!("{name}.3: {e}"))
    };
    // Found in another way than the generator's: a word before a parenthesis at the start of a line.
    let functions: BTreeSet<&str> = header
        .lines()
        .filter(|l| !l.starts_with([' ', '\t', '*', '#', '/']) && !l.starts_with("typedef"))
        .filter_map(|l| l.split_once('('))
        .filter_map(|(before, _)| before.split([' ', '*']).next_back())
        .filter(|name| name.starts_with("rkfd_"))
        .collect();
    assert!(functions.len() > 60, "{functions:?}");
    let overview = read("rkfd");
    for function in &functions {
        let page = read(function);
        assert!(page.contains(&format!(".SH NAME\n{function} ")), "{page}");
        let (_, attributes) = page.split_once(".SH ATTRIBUTES\n").unwrap();
        let stated = attributes.contains("MT\\-Safe") || attributes.contains("MT\\-Unsafe race:");
        assert!(stated, "{function}: {attributes}");
        assert!(page.contains(".SH DESCRIPTION\n.PP\n"), "{function}");
        assert!(
            overview.contains(&format!("\\fB{function}\\fP(3)")),
            "{function}"
        );
    }
    let structures: BTreeSet<&str> = header
        .lines()
        .filter(|l| l.starts_with("struct ") && l.ends_with('{'))
        .filter_map(|l| l.split(' ').nth(1))
        .collect();
    assert!(structures.len() >= 6, "{structures:?}");
    for structure in &structures {
        let page = read(structure);
        assert!(page.contains("uint32_t size;"), "{structure}: {page}");
    }
    let count = fs::read_dir(&pages).unwrap().count();
    assert_eq!(count, functions.len() + structures.len() + 1);
}
