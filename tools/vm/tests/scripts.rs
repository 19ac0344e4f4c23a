// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `scripts/lib.sh`: a step that fails ends the script, and a script that is stopped leaves no step behind.

// A test may panic, its helpers too; that is how it fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use std::time::Instant;

const LIB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/lib.sh");
const PATIENCE: Duration = Duration::from_secs(120);

/// A script that has sourced the library, with its cache in `dir`.
fn script(dir: &Path, text: &str) -> Command {
    let mut command = Command::new("bash");
    command
        .arg("-c")
        .arg(format!(". '{LIB}'\n{text}"))
        .env("RKFD_CACHE", dir)
        .env("RKFD_OUT", dir)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_failed_step_under_a_lock_ends_the_script() {
    let dir = tempfile::tempdir().unwrap();
    let text = "
        build() {
            step one log/one help touch one
            step two log/two help false
            step three log/three help touch three
        }
        with_lock shared build
        touch after";
    assert!(!script(dir.path(), text).status().unwrap().success());
    let there = |name| dir.path().join(name).exists();
    assert!(there("one") && !there("three") && !there("after"));
}

#[test]
fn a_command_that_fails_inside_a_step_fails_it() {
    let dir = tempfile::tempdir().unwrap();
    let text = "
        install() {
            false
            touch installed
        }
        build() { step install log/install help install; }
        with_lock shared build";
    assert!(!script(dir.path(), text).status().unwrap().success());
    assert!(!dir.path().join("installed").exists());
}

#[test]
fn what_goes_well_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let text = "
        build() { step one log/one help touch one; }
        with_lock shared build
        with_lock shared build
        touch after";
    assert!(script(dir.path(), text).status().unwrap().success());
    assert!(dir.path().join("after").exists());
}

#[test]
fn a_stopped_script_takes_its_step_along() {
    let dir = tempfile::tempdir().unwrap();
    // The step's own child writes its number, as a compiler below make would be one.
    let text = "step long log/long help sh -c 'sh -c \"echo \\$\\$ >pid.new; mv pid.new pid; exec sleep 1000\"; true'";
    let mut child = script(dir.path(), text).spawn().unwrap();
    let pid = dir.path().join("pid");
    wait_until("the step to start", || pid.exists());
    let number: i32 = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    let parent = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(parent, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    wait_until("the step's child to be gone", || {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        // Gone, or dead and not yet reaped by whoever inherited it.
        stat.is_empty() || stat.contains(") Z ")
    });
}

/// What the library, sourced with these variables, prints of `text`, its error text, and whether it went well.
fn sourced(dir: &Path, variables: &[(&str, &str)], text: &str) -> (String, String, bool) {
    let mut command = script(dir, text);
    command.env_remove("KDIR").env_remove("RKFD_OUT");
    let output = command
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        text(output.stdout),
        text(output.stderr),
        output.status.success(),
    )
}

#[test]
fn relative_paths_become_absolute() {
    let dir = tempfile::tempdir().unwrap();
    let variables = [
        ("RKFD_CACHE", "c/../cache"),
        ("RKFD_OUT", "out"),
        ("KDIR", "./k"),
    ];
    let text = "printf '%s\\n' \"$RKFD_CACHE\" \"$OUT\" \"$RKFD_OUT\" \"$KDIR\"";
    let (out, err, good) = sourced(dir.path(), &variables, text);
    let here = dir.path().display();
    let wanted = format!("{here}/cache\n{here}/out\n{here}/out\n{here}/k\n");
    assert_eq!((out, err, good), (wanted, String::new(), true));
}

#[test]
fn a_path_that_would_be_split_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["RKFD_CACHE", "RKFD_OUT", "KDIR"] {
        for path in ["/a b", "/a:b", "/a\tb", "/a$b", "/a'b"] {
            let (out, err, good) = sourced(dir.path(), &[(name, path)], "echo on");
            assert!(!good && out.is_empty(), "{name}={path}: {out}");
            assert!(err.contains(&format!("the path '{path}' has")), "{err}");
        }
    }
}

#[test]
fn a_module_of_other_sources_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let write = |name: &str, text: &str| {
        fs::create_dir_all(at(name).parent().unwrap()).unwrap();
        fs::write(at(name), text).unwrap();
    };
    for name in ["lib.sh", "build"] {
        fs::create_dir_all(at("scripts")).unwrap();
        let from = Path::new(LIB).with_file_name(name);
        fs::copy(from, at("scripts").join(name)).unwrap();
    }
    // What a module is made of, a kernel that has Rust, and a make that makes all at once.
    for name in [
        "rust/a.rs",
        "rust/b.rs",
        "include/a.h",
        "uapi/a.h",
        "Kbuild",
    ] {
        write(name, "1");
    }
    write("kernel/.config", "CONFIG_RUST=y\n");
    write("kernel/rust/libkernel.rmeta", "");
    write("kernel/Module.symvers", "");
    let made = "for a; do case $a in MO=*) cd \"${a#MO=}\" && touch rkfd.ko amdgpu.ko pm_cycle.ko; esac; done";
    program(&at("bin/make"), made);
    let build = |words: &[&str]| {
        let path = format!("{}:{}", at("bin").display(), std::env::var("PATH").unwrap());
        // Read by its shell: a child of another thread may have a copy of the descriptor that it was written by.
        let output = Command::new("bash")
            .arg(at("scripts/build"))
            .args(words)
            .env_remove("RKFD_OUT")
            .env("RKFD_CACHE", at("cache"))
            .env("KDIR", at("kernel"))
            .env("TOOLBOX", "none")
            .env("PATH", path)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{words:?}: {said}");
        said
    };
    let both = ["warn", "base", "kunit"];
    let warning = |flavour: &str, name: &str| {
        let ko = at("build").join(name).join("rkfd.ko");
        let ko = ko.display();
        format!("warning: the sources are newer than {ko} (scripts/build module {flavour})\n")
    };
    assert_eq!(build(&both), "", "none is there");
    build(&["module"]);
    assert_eq!(build(&both), "", "it is of these sources");
    fs::remove_file(at("rust/b.rs")).unwrap();
    assert_eq!(build(&both), warning("base", "module"));
    build(&["module", "kunit"]);
    assert_eq!(build(&both), warning("base", "module"));
    build(&["module"]);
    assert_eq!(build(&both), "", "both were made anew");
    write("rust/a.rs", "22");
    let of_all = warning("base", "module") + &warning("kunit", "module-kunit");
    assert_eq!(build(&both), of_all);
}

#[test]
fn another_machine_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    // The function goes before the program of that name.
    let uname = [("BASH_FUNC_uname%%", "() { echo aarch64; }")];
    let (out, err, good) = sourced(dir.path(), &uname, "echo on");
    assert!(!good && out.is_empty(), "{out}");
    assert!(err.contains("this is aarch64"), "{err}");
}

#[test]
fn a_kernel_tree_is_seen_with_its_source() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().canonicalize().unwrap();
    for name in ["build", "plain", "elsewhere"] {
        fs::create_dir(here.join(name)).unwrap();
    }
    std::os::unix::fs::symlink("../elsewhere", here.join("build/source")).unwrap();
    let bound = |tree: &str| sourced(&here, &[("KDIR", tree)], "bound_kernel").0;
    let at = here.display();
    assert_eq!(bound("build"), format!("{at}/build\n{at}/elsewhere\n"));
    assert_eq!(bound("plain"), format!("{at}/plain\n"));
    std::os::unix::fs::symlink("plain", here.join("link")).unwrap();
    assert_eq!(bound("link"), format!("{at}/link\n{at}/plain\n"));
    assert_eq!(sourced(&here, &[], "bound_kernel").0, "");
}

/// A program that uses a folder until it is dropped.
struct Sleeper(std::process::Child);

impl Sleeper {
    /// One that works there.
    fn new(dir: &Path) -> Self {
        let mut command = Command::new("sleep");
        command.arg("1000").current_dir(dir).stdout(Stdio::null());
        Self(command.stderr(Stdio::null()).spawn().unwrap())
    }

    /// A shell that has carried out a script in a mount namespace of its own.
    fn with_mounts(script: &str, dirs: &[&Path]) -> Self {
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private"]);
        if !nix::unistd::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        // The shell itself reads, since it may have no programs any more.
        let script = format!("set -e; {script}; echo ready; read -r _");
        command.args(["bash", "-c", &script, "bash"]).args(dirs);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut ready)
            .unwrap();
        Self(child)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // Where this fails the test has failed already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn pruning_keeps_what_is_used_built_or_in_force() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().canonicalize().unwrap();
    let scripts = Path::new(LIB).parent().unwrap().canonicalize().unwrap();
    let run = |name: &str, args: &[&str]| {
        let output = Command::new(scripts.join(name))
            .args(args)
            .env("RKFD_CACHE", &cache)
            .env_remove("TOOLBOX")
            .env_remove("KDIR")
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap().trim().to_owned();
        (
            output.status.success(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    // Without a toolbox nothing tells which kernels are in force.
    fs::create_dir(cache.join("kernel-base-old")).unwrap();
    assert!(!run("prune", &[]).0);
    assert!(cache.join("kernel-base-old").exists());

    let packages = Path::new(&run("toolbox", &["path"]).1).join("var/lib/dpkg");
    fs::create_dir_all(&packages).unwrap();
    let status = "Package: linux-source-7.3\nVersion: 7.3.4-1\n\n";
    fs::write(packages.join("status"), status).unwrap();
    let mut kept = vec![run("toolbox", &["path"]).1, run("kernel", &["source"]).1];
    kept.push(run("kernel", &["path"]).1);
    kept.push(run("kernel", &["path", "debug"]).1);
    kept.push(run("build", &["tsan-std"]).1);
    for name in [
        "toolbox-used",
        "toolbox-entered/mnt",
        "toolbox-lowest",
        "with-layered/layer",
        "kernel-base-built",
        "cargo",
        "log",
    ] {
        kept.push(cache.join(name).display().to_string());
    }
    for path in &kept {
        fs::create_dir_all(path).unwrap();
    }
    let old = [
        "toolbox-old",
        "toolbox-old.new",
        "kernel-debug-old",
        "tsan-old",
    ];
    for name in old.iter().chain(&["linux-old/source"]) {
        fs::create_dir_all(cache.join(name)).unwrap();
    }
    fs::write(cache.join("kernel-base-old/vmlinux"), vec![1; 3 << 20]).unwrap();

    let user = Sleeper::new(&cache.join("toolbox-used"));
    // As `scripts/toolbox run` does it, without packages and with some.
    let enter = "mount --rbind \"$1\" \"$1\"; cd \"$1\"; pivot_root . mnt";
    let entered = Sleeper::with_mounts(enter, &[&cache.join("toolbox-entered")]);
    let layered = Sleeper::with_mounts(
        "mount -t overlay -o \"lowerdir=$1:$2\" overlay \"$3\"",
        &[
            &cache.join("with-layered/layer"),
            &cache.join("toolbox-lowest"),
            dir.path(),
        ],
    );
    fs::create_dir_all(cache.join("lock")).unwrap();
    let lock = fs::File::create(cache.join("lock/kernel-base-built")).unwrap();
    let lock = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusive)
        .map_err(|(_, errno)| errno)
        .unwrap();
    let (good, out, err) = run("prune", &[]);
    drop((user, entered, layered, lock));

    assert!(good, "{err}");
    assert_eq!(out, format!("freed 3 MiB of {}", cache.display()));
    for name in [
        "toolbox-used",
        "toolbox-entered",
        "toolbox-lowest",
        "with-layered",
    ] {
        assert!(err.contains(&format!("{name}: in use")), "{err}");
    }
    assert!(
        err.contains("kernel-base-built: somebody is building"),
        "{err}"
    );
    for path in &kept {
        assert!(Path::new(path).exists(), "{path} is gone");
    }
    for name in old.iter().chain(&["linux-old", "kernel-base-old"]) {
        assert!(!cache.join(name).exists(), "{name} is still there");
    }
}

/// Writes a program, by another process: what this one has open for writing a child of another thread may have, too, and then
/// nobody can execute it.
fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let status = Command::new("sh")
        .args([
            "-c",
            r#"printf '#!/bin/sh\n%s\n' "$1" >"$0" && chmod 755 "$0""#,
        ])
        .arg(path)
        .arg(text)
        .status()
        .unwrap();
    assert!(status.success(), "{}", path.display());
}

#[test]
fn a_test_of_shares_that_is_stopped_leaves_nothing() {
    use nix::sys::signal::killpg;
    use nix::sys::signal::Signal;
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (from, to) in [
            ("tests/share.sh", "top/tools/vm/tests/share.sh"),
            ("../../tests/e2e/lib.sh", "top/tests/e2e/lib.sh"),
        ] {
            fs::create_dir_all(at(to).parent().unwrap()).unwrap();
            fs::copy(source.join(from), at(to)).unwrap();
        }
        for name in ["home", "tmp", "toolbox/etc/apt/apt.conf.d"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        program(&at("top/scripts/vm"), "exit 1");
        let toolbox = at("toolbox");
        program(
            &at("top/scripts/toolbox"),
            &format!("[ $1 = run ] || echo {}", toolbox.display()),
        );
        // The last that the test makes is there when it starts this one.
        program(
            &at("top/build/bin/rkfd-jail"),
            "[ $# -gt 0 ] || { echo rkfd-jail: >&2; exit; }
            : >\"${0%/*}/started\"
            exec sleep 1000",
        );
        let mut command = Command::new("sh");
        command
            .arg(at("top/tools/vm/tests/share.sh"))
            .env("HOME", at("home"))
            .env("TMPDIR", at("tmp"))
            .env("RKFD_CACHE", at("cache"))
            .env_remove("RKFD_OUT")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // The terminal's signals reach a group.
        let mut child = command.process_group(0).spawn().unwrap();
        let started = at("top/build/bin/started");
        wait_until("the last part of the test", || started.exists());
        let count = |name: &str| fs::read_dir(at(name)).unwrap().count();
        assert_eq!((count("home"), count("tmp")), (1, 2), "{signal}");
        let group = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
        killpg(group, signal).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(128 + signal as i32), "{signal}");
        let left = [
            count("home"),
            count("tmp"),
            count("toolbox/etc/apt/apt.conf.d"),
        ];
        assert_eq!(left, [0; 3], "{signal}");
    }
}

#[test]
fn what_is_used_as_it_is_is_looked_up_once_and_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    for name in ["kernel", "out/module", "out/module-kunit"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    let build = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/build");
    let warn = || {
        let output = Command::new(build)
            .args(["warn", "base", "kunit"])
            .env("RKFD_CACHE", dir.join("cache"))
            .env("RKFD_OUT", dir.join("out"))
            .env("KDIR", dir.join("kernel"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    };
    let kernel = format!("{}\n", dir.join("kernel").display());
    // What is not there is no older than anything.
    assert_eq!(warn(), (kernel.clone(), String::new()));
    fs::write(dir.join("out/module-kunit/.done"), "other sources\n").unwrap();
    let module = dir.join("out/module-kunit/rkfd.ko");
    let wanted = format!(
        "warning: the sources are newer than {} (scripts/build module kunit)\n",
        module.display()
    );
    assert_eq!(warn(), (kernel, wanted));
}
