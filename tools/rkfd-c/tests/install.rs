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

/// `librkfd.so` and the number of the versions that take each other's place: the major one, from 1 on.
fn soname() -> String {
    let (major, minor) = (
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
    );
    match major {
        "0" => format!("librkfd.so.0.{minor}"),
        _ => format!("librkfd.so.{major}"),
    }
}

/// The C program of the document.
fn program() -> String {
    let document = fs::read_to_string(root().join("../../Documentation/library.md")).unwrap();
    let (_, rest) = document.split_once("```c\n").unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

#[test]
fn a_program_is_built_by_pkg_config_and_finds_the_library_by_the_name_of_its_versions() {
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
    let soname = soname();
    let has = |file: &Path, tag: &str| -> bool {
        let dynamic = run(Command::new("readelf").arg("-d").arg(file));
        let value = format!("[{soname}]");
        dynamic
            .lines()
            .any(|l| l.contains(tag) && l.contains(&value))
    };
    let libraries = to.join("opt/rkfd/lib");
    assert!(has(&demo, "(NEEDED)"));
    assert!(has(&libraries.join("librkfd.so"), "(SONAME)"));
    assert_eq!(config("--variable=soname"), [soname.as_str()]);
    let links_to = |name: &str| fs::read_link(libraries.join(name)).unwrap();
    assert_eq!(links_to("librkfd.so"), Path::new(&soname));
    let file = concat!("librkfd.so.", env!("CARGO_PKG_VERSION"));
    assert_eq!(links_to(&soname), Path::new(file));
    let count = fs::read_dir(&libraries)
        .unwrap()
        .filter(|e| {
            e.as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .contains(".so")
        })
        .count();
    assert_eq!(
        count, 3,
        "the file, its name at run time and the one for linking"
    );
    // It starts; without a driver it says so.
    let output = Command::new(&demo)
        .env("LD_LIBRARY_PATH", &libraries)
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
fn a_library_of_another_version_is_not_installed() {
    let old = Path::new(env!("CARGO_TARGET_TMPDIR")).join("old");
    let _ = fs::remove_dir_all(&old);
    fs::create_dir_all(&old).unwrap();
    fs::write(old.join("librkfd.a"), "").unwrap();
    // The name that all versions 0 had once, and the one of ten versions later.
    for name in ["librkfd.so.0".to_owned(), format!("{}0", soname())] {
        fs::write(old.join("librkfd.so"), format!("ELF\0{name}\0")).unwrap();
        let to = old.join("to");
        let output = Command::new(root().join("install"))
            .arg("--destdir")
            .arg(&to)
            .arg("--from")
            .arg(&old)
            .output()
            .unwrap();
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let wanted = format!("is not {}, so it is of another version", soname());
        assert!(said.contains(&wanted), "{said}");
        assert!(!to.exists(), "nothing was installed");
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
