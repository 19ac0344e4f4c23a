// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfd-jail`, from inside: a shell in QEMU's place looks at what is in reach and at the rights that it has.

// A test may panic, its helpers too; that is how it fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use rkfd_vm::jail::Spec;
use rkfd_vm::protocol::Share;
use std::fs;
use std::io::Read;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

/// Part of the names of all files that the tests make.
const CANARY: &str = "rkfd-canary";

/// A machine as a user has it, in a directory.
struct Host {
    dir: tempfile::TempDir,
    spec: Spec,
}

impl Host {
    /// A checkout with what is built elsewhere, a home, a cache in the checkout, a project.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        for path in [
            "home/.ssh/rkfd-canary-key",
            "home/.cargo/rkfd-canary-credentials",
            "home/rkfd/rkfd-canary-source",
            "home/rkfd/.git/rkfd-canary-config",
            "home/rkfd/cache/cargo/rkfd-canary-credentials",
            "home/rkfd/cache/built/rkfd-canary-product",
            "project/rkfd-canary-input",
            "run/gpu0-rkfd-canary",
            "kernel/rkfd-canary-image",
        ] {
            let path = top.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, CANARY).unwrap();
        }
        fs::create_dir(top.join("base")).unwrap();
        symlink("home/rkfd", top.join("link")).unwrap();
        let at = |name: &str| top.join(name);
        let spec = Spec {
            base: at("base"),
            exports: vec![at("link"), at("home/rkfd/cache/built")],
            hidden: vec![at("home/rkfd/cache"), at("link/.git")],
            shares: Vec::new(),
            kernel: at("kernel/rkfd-canary-image"),
            sockets: at("run"),
            program: "/bin/bash".into(),
            ..Spec::default()
        };
        Self { dir, spec }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn share(&mut self) {
        self.spec.shares.push(Share {
            tag: "share0".into(),
            path: self.path("project").to_str().unwrap().into(),
        });
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rkfd-jail"));
        let args = self.spec.args(vec!["-c".into(), script.into()]).unwrap();
        command.args(args).stdin(Stdio::null());
        command
    }

    fn run(&self, script: &str) -> Output {
        self.command(script).output().unwrap()
    }

    /// What the script prints; it must go well and complain of nothing.
    fn lines(&self, script: &str) -> Vec<String> {
        let output = self.run(script);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        assert_eq!(text(output.stderr), "");
        assert!(output.status.success(), "{}", output.status);
        text(output.stdout).lines().map(str::to_owned).collect()
    }
}

#[test]
fn nothing_is_in_reach_but_what_the_run_needs() {
    let mut host = Host::new();
    host.share();
    let root = host.lines("ls /");
    let mut system: Vec<String> = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"]
        .into_iter()
        .filter(|name| Path::new("/").join(name).symlink_metadata().is_ok())
        .map(str::to_owned)
        .collect();
    system.push("opt".into());
    let own = [
        "boot", "dev", "empty", "etc", "export", "proc", "run", "shares",
    ];
    let mut wanted = system.clone();
    wanted.extend(own.map(str::to_owned));
    // The tree is below the directory for temporary files, so that its name is not there by itself.
    wanted.sort();
    assert_eq!(root, wanted);

    let mut export = host.lines("ls /export");
    let first = host
        .path("x")
        .components()
        .nth(1)
        .unwrap()
        .as_os_str()
        .to_owned();
    let mut wanted = system;
    wanted.extend(
        [
            "boot", "dev", "etc", "home", "media", "mnt", "proc", "root", "run", "srv", "sys",
            "tmp", "var",
        ]
        .map(str::to_owned),
    );
    wanted.push(first.to_str().unwrap().to_owned());
    wanted.sort();
    wanted.dedup();
    export.sort();
    assert_eq!(export, wanted);

    let mut found = host.lines(&format!(
        "find / -path /proc -prune -o -name '*{CANARY}*' -print"
    ));
    found.sort();
    let at = |name: &str| format!("/export{}", host.path(name).display());
    let mut wanted = [
        at("home/rkfd/rkfd-canary-source"),
        at("home/rkfd/cache/built/rkfd-canary-product"),
        "/shares/share0/rkfd-canary-input".into(),
        "/run/rkfd/gpu0-rkfd-canary".into(),
    ];
    wanted.sort();
    assert_eq!(found, wanted);
    // To the guest, whose root /export is, the link leads to the checkout.
    let link = host.lines(&format!("readlink {}; cat /boot/bzImage", at("link")));
    let target = host.path("home/rkfd").display().to_string();
    assert_eq!(link, [target.as_str(), CANARY]);
    // These have the guest's own, or nothing.
    let empty = "cd /export; find dev home/* media mnt proc root run srv sys -mindepth 1; ls -d etc/*shadow* etc/apt etc/ssh etc/ssl/private";
    let shown = host.run(empty);
    let shown = String::from_utf8(shown.stdout).unwrap();
    let strange: Vec<&str> = shown
        .lines()
        .filter(|line| !line.contains("rkfd"))
        .collect();
    assert!(strange.is_empty(), "{strange:?}");
    let modes = host.lines("cd /export; stat -c '%a %n' root tmp etc usr");
    assert_eq!(modes, ["700 root", "1777 tmp", "755 etc", "755 usr"]);
}

#[test]
fn of_an_administrators_directories_a_machine_shows_rocm_alone() {
    let mut host = Host::new();
    // These directories are the machine's, so the test has others in their place.
    let place = "set -e
        mount -t tmpfs none /opt
        mount -t tmpfs none /usr/local/etc
        mkdir /opt/product /opt/rocm-9 /opt/rocket
        for file in /opt/product/.credentials /opt/rocm-9/library /opt/rocket/fuel /usr/local/etc/password; do
            echo text >$file-rkfd-canary
        done
        ln -s rocm-9 /opt/rocm
        exec \"$@\"";
    let find = "find /opt /export/opt /usr/local/etc /export/usr/local/etc -name '*rkfd-canary' -o -type l";
    let mut found = |toolbox| {
        host.spec.toolbox = toolbox;
        let jail = host.command(find);
        let output = Command::new("unshare")
            .args(["-m", "sh", "-c", place, "sh"])
            .arg(jail.get_program())
            .args(jail.get_args())
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
        let shown = String::from_utf8(output.stdout).unwrap();
        let mut lines: Vec<String> = shown.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let both = |names: &[&str]| -> Vec<String> {
        let roots = ["/export/opt", "/opt"].into_iter();
        roots
            .flat_map(|root| names.iter().map(move |name| format!("{root}/{name}")))
            .collect()
    };
    let wanted = ["rocm", "rocm-9/library-rkfd-canary"];
    assert_eq!(found(false), both(&wanted));
    // The toolbox' own are no secret.
    let wanted = [
        "product/.credentials-rkfd-canary",
        "rocket/fuel-rkfd-canary",
        "rocm",
        "rocm-9/library-rkfd-canary",
    ];
    assert_eq!(found(true), both(&wanted));
}

#[test]
fn only_shares_are_written_to() {
    let mut host = Host::new();
    host.share();
    let project = host.path("project");
    // The guest's root may write to what belongs to any user.
    nix::unistd::chown(&project, Some(1234.into()), Some(1234.into())).unwrap();
    fs::set_permissions(&project, fs::Permissions::from_mode(0o700)).unwrap();
    let source = host.path("home/rkfd");
    let script = format!(
        "for dir in / /etc /run /run/rkfd /usr /export /export/etc /export/usr /export/tmp /export{} /dev /boot; do
            touch $dir/new 2>/dev/null && echo $dir
        done
        cd /shares/share0; mkdir deep; echo inside >deep/file; chmod 640 deep/file; chown 77:88 deep/file",
        source.display()
    );
    let writable = host.lines(&script);
    assert!(writable.is_empty(), "{writable:?}");
    let file = project.join("deep/file");
    assert_eq!(fs::read_to_string(&file).unwrap(), "inside\n");
    let found = fs::metadata(&file).unwrap();
    let found = (
        found.permissions().mode() & 0o7777,
        std::os::unix::fs::MetadataExt::uid(&found),
        std::os::unix::fs::MetadataExt::gid(&found),
    );
    assert_eq!(found, (0o640, 77, 88));
    assert!(!source.join("new").exists());
}

/// The values of /proc/self/status by their names.
fn status(lines: &[String], name: &str) -> String {
    let line = lines.iter().find_map(|line| line.strip_prefix(name));
    let line = line.unwrap_or_else(|| panic!("no {name}"));
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn rights_are_gone_for_good() {
    let mut host = Host::new();
    let show = "while read -r line; do echo \"$line\"; done </proc/self/status";
    let plain = host.lines(show);
    // CAP_DAC_OVERRIDE.
    for (name, wanted) in [
        ("Pid:", "1"),
        ("Uid:", "65534 65534 65534 65534"),
        ("Gid:", "65534 65534 65534 65534"),
        ("Groups:", ""),
        ("CapEff:", "0000000000000002"),
        ("CapPrm:", "0000000000000002"),
        ("CapBnd:", "0000000000000002"),
        ("NoNewPrivs:", "1"),
    ] {
        assert_eq!(status(&plain, name), wanted, "{name}");
    }
    // With CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER and CAP_FSETID.
    host.share();
    let sharing = host.lines(show);
    for (name, wanted) in [
        ("Uid:", "0 0 0 0"),
        ("CapEff:", "000000000000001b"),
        ("CapBnd:", "000000000000001b"),
        ("NoNewPrivs:", "1"),
    ] {
        assert_eq!(status(&sharing, name), wanted, "{name}");
    }
    let refused = host.lines(
        "mount -t tmpfs none /run 2>/dev/null && echo mount
        umount /export/usr 2>/dev/null && echo umount
        chroot /export true 2>/dev/null && echo chroot
        mknod /shares/share0/sda b 8 0 2>/dev/null && echo mknod
        true",
    );
    assert!(refused.is_empty(), "{refused:?}");
    // A file of the host's root that others may not read.
    fs::set_permissions(
        host.path("home/rkfd/rkfd-canary-source"),
        fs::Permissions::from_mode(0o600),
    )
    .unwrap();
    host.spec.shares.clear();
    let script = format!(
        "cat /export{}",
        host.path("home/rkfd/rkfd-canary-source").display()
    );
    assert_eq!(host.lines(&script), [CANARY]);
}

#[test]
fn no_file_is_opened_by_its_handle() {
    // Numbers of system calls, and AT_FDCWD. The file that standard input shows says which file system is meant.
    const HANDLE: &str = r#"
        my $handle = pack("Ii", 128, 0) . "\0" x 128;
        my $mount = pack("i", 0);
        die "no handle: $!" if syscall(303, -100, $ARGV[0], $handle, $mount, 0) < 0;
        print unpack("H*", $handle);"#;
    const OPEN: &str = r#"
        my $file = syscall(304, 0, pack("H*", $ARGV[0]), 0);
        if ($file < 0) { print "$!"; exit }
        open my $found, "<&=", $file or die $!;
        print <$found>;"#;
    let mut host = Host::new();
    let key = host.path("home/.ssh/rkfd-canary-key");
    let source = host.path("home/rkfd/rkfd-canary-source");
    let perl = |script: &str, argument: &str, input: &Path| {
        let output = Command::new("perl")
            .args(["-e", script, argument])
            .env("LC_ALL", "C")
            .stdin(fs::File::open(input).unwrap())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let handle = perl(HANDLE, key.to_str().unwrap(), &source);
    // Who may do it can.
    assert_eq!(perl(OPEN, &handle, &source), CANARY);
    let script = format!(
        "LC_ALL=C perl -e '{OPEN}' {handle} </export{}",
        source.display()
    );
    assert_eq!(host.lines(&script), ["Operation not permitted"]);
    host.share();
    assert_eq!(host.lines(&script), ["Operation not permitted"]);
}

#[test]
fn other_processes_and_the_network_are_out_of_reach() {
    let host = Host::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let found = host.lines(&format!(
        "echo /proc/[0-9]* /proc/sys* /proc/k*
        (echo >/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo connected
        echo \"${{HOME-none}} ${{CARGO-none}}\""
    ));
    // The shell is all that runs; a pattern that matches nothing stays as it is.
    assert_eq!(found, ["/proc/1 /proc/sys* /proc/k*", "none none"]);
}

#[test]
fn the_end_is_that_of_the_program() {
    let host = Host::new();
    assert_eq!(host.run("exit 7").status.code(), Some(7));
    // Process 1 of a namespace takes no signal from inside that it has not asked for, but one from outside.
    let mut child = host
        .command("echo up; exec sleep 1000")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut up = [0; 3];
    out.read_exact(&mut up).unwrap();
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    // The program has the other end of the pipe for as long as it lives.
    assert_eq!(out.read(&mut up).unwrap(), 0);
    // Nothing of it shows outside.
    assert_eq!(fs::read_dir(host.path("base")).unwrap().count(), 0);
}

#[test]
fn what_is_missing_is_named() {
    let mut host = Host::new();
    host.spec.program = "/usr/bin/no-such-program".into();
    let output = host.run("true");
    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("starting /usr/bin/no-such-program"), "{said}");
    host.spec.exports = vec!["/no/such/checkout".into()];
    let said = String::from_utf8(host.run("true").stderr).unwrap();
    assert!(said.contains("/no/such/checkout"), "{said}");
}

/// Gives a directory and what is in it to a user.
fn give(path: &Path, user: u32) {
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path(), user);
        }
    }
    std::os::unix::fs::lchown(path, Some(user), Some(user)).unwrap();
}

#[test]
fn a_user_needs_no_root_where_the_host_permits_it() {
    const USER: u32 = 12345;
    let mut host = Host::new();
    host.share();
    // What is built may lie in a directory that is root's alone.
    let program = host.path("rkfd-jail");
    // By another process: a child that another test starts meanwhile would inherit the file open for writing, and a
    // program that is open for writing cannot be started (ETXTBSY).
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_rkfd-jail"))
        .arg(&program)
        .status()
        .unwrap();
    assert!(copied.success());
    give(host.dir.path(), USER);
    let script = "while read -r line; do echo \"$line\"; done </proc/self/status
        mkdir /shares/share0/made
        touch /export/tmp/new /export/usr/new 2>/dev/null && echo writable
        echo /export/home/* /proc/[0-9]*";
    let output = Command::new(&program)
        .args(host.spec.args(vec!["-c".into(), script.into()]).unwrap())
        .stdin(Stdio::null())
        .uid(USER)
        .gid(USER)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if output.status.code() == Some(125) && said.contains("this host refuses them to users") {
        // It does, and says what changes that. (In a chroot every host does.) The test's own output would be shown with a
        // failure only.
        assert!(said.contains("run as root"), "{said}");
        let skipped = b"a_user_needs_no_root_where_the_host_permits_it: skipped, user namespaces are refused here\n";
        std::io::stderr().write_all(skipped).unwrap();
        return;
    }
    assert_eq!((said.as_str(), output.status.code()), ("", Some(0)));
    let shown = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<String> = shown.lines().map(str::to_owned).collect();
    for (name, wanted) in [
        ("Pid:", "1"),
        ("CapEff:", "0000000000000000"),
        ("CapBnd:", "0000000000000000"),
        ("NoNewPrivs:", "1"),
    ] {
        assert_eq!(status(&lines, name), wanted, "{name}");
    }
    assert_eq!(lines.last().unwrap(), "/export/home/* /proc/1");
    assert!(!lines.contains(&"writable".to_owned()));
    let made = fs::metadata(host.path("project/made")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&made), USER);
}
