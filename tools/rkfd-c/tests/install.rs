// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What `install` puts where, as a program sees it that is built by pkg-config, and the manual pages.

// A test may panic, its helpers too; that is how it fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;
use std::sync::Once;
use std::time::Duration;
use std::time::SystemTime;

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

/// Cargo makes the libraries for no test by itself, since none links them.
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
                "--bins",
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
        .arg(built()));
    to
}

/// A checkout in which nothing was built yet.
struct Checkout(PathBuf);

impl Checkout {
    fn new(name: &str) -> Self {
        let top = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&top);
        fs::create_dir_all(top.join("tools/rkfd-c/include")).unwrap();
        // As the shell names it.
        let top = fs::canonicalize(top).unwrap();
        // Other processes write what is executed: a child that another test starts meanwhile would inherit a file of this
        // one that is open for writing, and then it could not be (ETXTBSY).
        for file in ["install", "Cargo.toml", "rkfd.pc.in", "include/rkfd.h"] {
            run(Command::new("cp")
                .arg(root().join(file))
                .arg(top.join("tools/rkfd-c").join(file)));
        }
        // The header for kernels.
        fs::create_dir_all(top.join("tools/rkfd/include")).unwrap();
        run(Command::new("cp")
            .arg(root().join("../rkfd/include/rkfd_tasks.h"))
            .arg(top.join("tools/rkfd/include")));
        // What a machine has that has no Rust.
        fs::create_dir_all(top.join("bin")).unwrap();
        for program in ["cp", "dirname", "grep", "ln", "mkdir", "sed", "sh", "tr"] {
            let found = ["/usr/bin", "/bin"]
                .map(|dir| Path::new(dir).join(program))
                .into_iter()
                .find(|path| path.exists());
            symlink(found.unwrap(), top.join("bin").join(program)).unwrap();
        }
        Self(top)
    }

    /// Puts there what a build leaves in `dir`, which `mark` tells from another, `age` ago.
    fn build(&self, dir: &str, mark: &str, age: Duration) {
        let dir = self.0.join(dir);
        fs::create_dir_all(&dir).unwrap();
        let library = dir.join("librkfd.so");
        fs::write(&library, format!("ELF\0{}\0{mark}", soname())).unwrap();
        fs::write(dir.join("librkfd.a"), mark).unwrap();
        let script = format!("#!/bin/sh\necho {mark} >\"$1/rkfd.3\"\n");
        run(Command::new("sh")
            .args(["-c", "printf %s \"$0\" >\"$1\" && chmod 755 \"$1\""])
            .arg(script)
            .arg(dir.join("rkfd-manual")));
        let library = File::options().write(true).open(library).unwrap();
        library.set_modified(SystemTime::now() - age).unwrap();
    }

    /// Runs a command of the shell's at the top; what it says, and whether it succeeded.
    fn run(&self, command: &str) -> (String, bool) {
        let output = Command::new(self.0.join("bin/sh"))
            .args(["-c", command])
            .current_dir(&self.0)
            .env_clear()
            .env("PATH", self.0.join("bin"))
            .env("HOME", self.0.join("home"))
            .output()
            .unwrap();
        (text(&output), output.status.success())
    }

    /// The mark of what was installed, which is of one build.
    fn installed(&self, prefix: &str) -> String {
        let read = |name: &str| fs::read_to_string(self.0.join(prefix).join(name)).unwrap();
        let mark = read("lib/librkfd.a");
        assert!(read("lib/librkfd.so").ends_with(&mark));
        assert_eq!(read("share/man/man3/rkfd.3").trim_end(), mark);
        assert!(read("include/rkfd.h").contains("rkfd_queue_new("));
        assert!(read("include/rkfd_tasks.h").contains("rkfd_task_submit("));
        mark
    }
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

/// The commands of the document that build and install.
fn documented() -> Vec<String> {
    let document = fs::read_to_string(root().join("../../Documentation/library.md")).unwrap();
    let (_, rest) = document.split_once("```sh\n").unwrap();
    let (commands, _) = rest.split_once("```").unwrap();
    let without_comment = |line: &str| line.split('#').next().unwrap().trim().to_owned();
    commands.lines().map(without_comment).collect()
}

#[test]
fn the_documented_commands_install_what_they_built_where_no_rust_is() {
    let commands = documented();
    assert_eq!(commands.len(), 2, "{commands:?}");
    assert_eq!(commands[0], "make tools");
    let checkout = Checkout::new("documented");
    let (said, succeeded) = checkout.run(&commands[1]);
    assert!(!succeeded, "nothing was built: {said}");
    let top = checkout.0.display();
    let nowhere = format!(
        "there is no librkfd.so in {top}/build/target/release, nor in {top}/tools/target/release"
    );
    assert!(said.contains(&nowhere), "{said}");
    assert!(said.contains(&format!("make tools in {top}")), "{said}");
    assert!(
        said.contains(&format!("cargo build --release in {top}/tools")),
        "{said}"
    );
    assert!(!checkout.0.join("home").exists(), "nothing was installed");
    // Where scripts/build, which make tools calls, puts it.
    checkout.build("build/target/release", "make", Duration::ZERO);
    let (said, succeeded) = checkout.run(&commands[1]);
    assert!(succeeded, "{said}");
    assert_eq!(checkout.installed("home/.local"), "make");
}

#[test]
fn of_two_builds_the_newer_one_is_installed_unless_one_is_named() {
    let checkout = Checkout::new("two");
    let install = |more: &str| {
        let to = checkout.0.join("to");
        let _ = fs::remove_dir_all(&to);
        let (said, succeeded) = checkout.run(&format!(
            "{more} tools/rkfd-c/install --prefix {}",
            to.display()
        ));
        assert!(succeeded, "{said}");
        checkout.installed("to")
    };
    let (old, new) = (Duration::from_secs(60), Duration::ZERO);
    checkout.build("tools/target/release", "cargo", old);
    assert_eq!(install(""), "cargo", "there is no other");
    checkout.build("build/target/release", "make", new);
    assert_eq!(install(""), "make");
    checkout.build("build/target/release", "make", 2 * old);
    assert_eq!(install(""), "cargo");
    // As scripts/build and cargo have them put elsewhere.
    checkout.build("out/target/release", "out", new);
    assert_eq!(install("RKFD_OUT=out"), "out");
    checkout.build("other/release", "other", new);
    assert_eq!(install("CARGO_TARGET_DIR=other"), "other");
    let (said, succeeded) =
        checkout.run("tools/rkfd-c/install --destdir \"$PWD/named\" --from build/target/release");
    assert!(succeeded, "{said}");
    assert_eq!(checkout.installed("named/usr/local"), "make");
}

#[test]
fn what_is_missing_or_of_another_version_is_not_installed() {
    let checkout = Checkout::new("wrong");
    let dir = "build/target/release";
    let refused = |because: &str| {
        let (said, succeeded) = checkout.run("tools/rkfd-c/install --prefix \"$PWD/to\"");
        assert!(!succeeded, "{because}: {said}");
        assert!(said.contains(because), "{said}");
        assert!(said.contains("build it: make tools in "), "{said}");
        assert!(
            !checkout.0.join("to").exists(),
            "{because}: nothing was installed"
        );
    };
    for file in ["librkfd.so", "librkfd.a", "rkfd-manual"] {
        checkout.build(dir, "make", Duration::ZERO);
        fs::remove_file(checkout.0.join(dir).join(file)).unwrap();
        refused("there is no ");
    }
    checkout.build(dir, "make", Duration::ZERO);
    // The name that all versions 0 had once, and the one of ten versions later.
    for name in ["librkfd.so.0".to_owned(), format!("{}0", soname())] {
        fs::write(
            checkout.0.join(dir).join("librkfd.so"),
            format!("ELF\0{name}\0"),
        )
        .unwrap();
        refused(&format!("is not {}, so it is of another version", soname()));
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
