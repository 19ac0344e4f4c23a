// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The guest's file systems.

use crate::protocol::Setup;
use anyhow::Context;
use nix::mount::mount;
use nix::mount::MsFlags;
use std::fs;
use std::path::Path;

/// Options of the 9p mounts; `msize` is the largest message, in bytes.
const OPTIONS_9P: &str = "trans=virtio,version=9p2000.L,msize=1048576";

fn attach(
    source: &str,
    target: &str,
    kind: &str,
    flags: MsFlags,
    data: &str,
) -> anyhow::Result<()> {
    mount(Some(source), target, Some(kind), flags, Some(data))
        .with_context(|| format!("mounting {kind} at {target}"))
}

/// Puts a writable overlay over the read-only root, makes it the root, and mounts the kernel's file
/// systems into it.
///
/// # Errors
/// Names the mount that failed; the guest is of no use then.
pub(super) fn root() -> anyhow::Result<()> {
    let none = MsFlags::empty();
    attach("rkfd", "/tmp", "tmpfs", none, "mode=755")?;
    for dir in ["/tmp/upper", "/tmp/work", "/tmp/root"] {
        fs::create_dir(dir).with_context(|| format!("making {dir}"))?;
    }
    attach(
        "rkfd",
        "/tmp/root",
        "overlay",
        none,
        "lowerdir=/,upperdir=/tmp/upper,workdir=/tmp/work",
    )?;
    nix::unistd::chdir("/tmp/root").context("entering the new root")?;
    mount(Some("."), "/", None::<&str>, MsFlags::MS_MOVE, None::<&str>)
        .context("moving the new root")?;
    nix::unistd::chroot(".").context("chroot to the new root")?;
    nix::unistd::chdir("/").context("entering /")?;

    let safe = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    attach("proc", "/proc", "proc", safe, "")?;
    attach("sysfs", "/sys", "sysfs", safe, "")?;
    attach("devtmpfs", "/dev", "devtmpfs", MsFlags::MS_NOSUID, "")?;
    for (link, to) in [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
    ] {
        // A link that exists already points the same way.
        let _ = std::os::unix::fs::symlink(to, link);
    }
    for dir in ["/dev/pts", "/dev/shm"] {
        let _ = fs::create_dir(dir);
    }
    attach(
        "devpts",
        "/dev/pts",
        "devpts",
        MsFlags::MS_NOSUID,
        "mode=620,ptmxmode=666",
    )?;
    attach("shm", "/dev/shm", "tmpfs", none, "mode=1777")?;
    // A checkout below one of these must stay visible; the overlay is writable and in memory anyway.
    for (dir, mode) in [("/tmp", "mode=1777"), ("/run", "mode=755")] {
        let mut found = fs::read_dir(dir).with_context(|| format!("reading {dir}"))?;
        if found.next().is_none() {
            attach("rkfd", dir, "tmpfs", none, mode)?;
        }
    }
    attach("debugfs", "/sys/kernel/debug", "debugfs", safe, "")?;
    // Made by the kernel only if tracing is configured.
    if Path::new("/sys/kernel/tracing").is_dir() {
        attach("tracefs", "/sys/kernel/tracing", "tracefs", safe, "")?;
    }
    let _ = nix::unistd::sethostname("rkfd");
    Ok(())
}

/// Mounts what the user shares and binds what the tests expect at fixed places.
///
/// # Errors
/// Names the directory that could not be mounted.
pub(super) fn shares(setup: &Setup) -> anyhow::Result<()> {
    for share in &setup.shares {
        fs::create_dir_all(&share.path).with_context(|| format!("making {}", share.path))?;
        // As good as no cache, as the host may look at the files, or change them, while the guest runs;
        // but files can be mapped shared and writable, which linkers and databases need.
        attach(
            &share.tag,
            &share.path,
            "9p",
            MsFlags::empty(),
            &format!("{OPTIONS_9P},cache=mmap,access=client"),
        )?;
    }
    for (from, onto) in &setup.binds {
        fs::create_dir_all(onto).with_context(|| format!("making {onto}"))?;
        mount(
            Some(from.as_str()),
            onto.as_str(),
            None::<&str>,
            MsFlags::MS_BIND,
            None::<&str>,
        )
        .with_context(|| format!("binding {from} onto {onto}"))?;
    }
    Ok(())
}
