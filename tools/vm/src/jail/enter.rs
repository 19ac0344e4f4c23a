// SPDX-License-Identifier: GPL-2.0 OR MIT
//! From the runner's namespaces into new ones.
//!
//! Two processes: the outer one makes the namespaces and waits; the inner one, process 1 of the new
//! process namespace, builds the root, gives up its rights and becomes the program. Everything here runs
//! with a single thread.

use super::rights;
use super::tree;
use super::Spec;
use super::STATUS;
use anyhow::Context;
use nix::errno::Errno;
use nix::libc;
use nix::sched::setns;
use nix::sched::unshare;
use nix::sched::CloneFlags;
use nix::sys::prctl;
use nix::sys::resource::setrlimit;
use nix::sys::resource::Resource;
use nix::sys::resource::RLIM_INFINITY;
use nix::sys::signal::raise;
use nix::sys::signal::signal;
use nix::sys::signal::SigHandler;
use nix::sys::signal::Signal;
use nix::sys::stat::umask;
use nix::sys::stat::Mode;
use nix::sys::wait::waitpid;
use nix::sys::wait::WaitStatus;
use nix::unistd::fork;
use nix::unistd::getegid;
use nix::unistd::geteuid;
use nix::unistd::ForkResult;
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs;
use std::fs::File;
use std::io;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Runs what the arguments say; returns the status to exit with.
pub(super) fn run(mut args: impl Iterator<Item = OsString>) -> anyhow::Result<i32> {
    let spec = args.next().context("SPEC ARGUMENT…, please")?;
    let spec = spec.to_str().context("the specification is no text")?;
    let spec: Spec = serde_json::from_str(spec).context("reading the specification")?;
    let mut command = Command::new(&spec.program);
    // The user's environment may hold credentials, and QEMU reads nothing else of it.
    command
        .args(args)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LANG", "C.UTF-8");

    namespaces()?;
    let (ours, theirs) = UnixStream::pair().context("making a pair of sockets")?;
    // SAFETY: This process has one thread, so the child may do whatever its parent may.
    match unsafe { fork() }.context("starting process 1")? {
        ForkResult::Parent { child } => {
            drop(theirs);
            let status = wait(child);
            drop(ours);
            status
        }
        ForkResult::Child => {
            drop(ours);
            let error = match inner(&spec, command, &theirs) {
                Ok(never) => match never {},
                Err(error) => error,
            };
            eprintln!("rkfd-jail: {error:#}");
            std::process::exit(STATUS)
        }
    }
}

enum Never {}

/// What process 1 does.
fn inner(spec: &Spec, mut command: Command, parent: &UnixStream) -> anyhow::Result<Never> {
    die_with(parent)?;
    // The modes of what is made here are as they are written.
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
    detach()?;
    tree::build(spec)?;
    enter(&spec.base)?;
    if spec.cards {
        // VFIO pins all of the guest's memory. Without the right to it, QEMU says what is missing.
        let _ = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY);
    }
    // It is faster with them; that is all.
    let _ = short_slices();
    rights::give_up(spec)?;
    // Another user id has switched it off.
    die_with(parent)?;
    let error = command.exec();
    Err(error).with_context(|| format!("starting {}", spec.program.display()))
}

/// Longest time that a virtual processor holds one of the host while others want it, in nanoseconds; the least that the
/// kernel takes.
const SLICE: u64 = 100_000;

/// Makes this process's time slices short, and those of its future threads. A processor of the guest that has others
/// flush their TLB spins until they have done it, which they cannot while they wait for a processor of the host.
fn short_slices() -> nix::Result<()> {
    let mut attr = MaybeUninit::<libc::sched_attr>::zeroed();
    let size = u32::try_from(size_of::<libc::sched_attr>()).map_err(|_| Errno::EOVERFLOW)?;
    // SAFETY: The kernel writes `size` bytes at most, which `attr` has room for.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, attr.as_mut_ptr(), size, 0) };
    Errno::result(got)?;
    // SAFETY: All its fields are integers, and all bytes were set to 0 at least.
    let mut attr = unsafe { attr.assume_init() };
    // Of the policy for ordinary processes this is the slice; kernels before 6.12 take no notice.
    if attr.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    attr.size = size;
    attr.sched_runtime = SLICE;
    // SAFETY: The kernel reads `attr.size` bytes, which `attr` has.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    Errno::result(set).map(drop)
}

/// The kernel kills this process when its parent ends; ends it now where that has happened.
fn die_with(parent: &UnixStream) -> anyhow::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    parent.set_nonblocking(true)?;
    let mut to_read = parent;
    match to_read.read(&mut [0]) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        // Its end of the pair is closed.
        _ => std::process::exit(STATUS),
    }
}

/// Moves this process, and its future children, into new namespaces.
fn namespaces() -> anyhow::Result<()> {
    let flags = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS;
    let (user, group) = (geteuid(), getegid());
    if user.is_root() {
        match unshare(flags) {
            Err(Errno::EPERM) => {}
            other => return other.context("making namespaces for QEMU"),
        }
    }
    unshare(CloneFlags::CLONE_NEWUSER | flags).with_context(|| {
        format!(
            "QEMU needs namespaces of its own; {}",
            advice(user.is_root())
        )
    })?;
    // To the namespace the user is root; whatever it does, it does as the user.
    fs::write("/proc/self/setgroups", "deny").context("writing /proc/self/setgroups")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1")).context("writing /proc/self/uid_map")?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1")).context("writing /proc/self/gid_map")
}

/// Why this host may refuse, and what changes it.
fn advice(root: bool) -> String {
    if root {
        return "this root may not mount (a plain container?): run it privileged, or outside of a container".into();
    }
    let refusals = [
        ("kernel/unprivileged_userns_clone", "0"),
        ("user/max_user_namespaces", "0"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
    ];
    for (name, value) in refusals {
        let found = fs::read_to_string(Path::new("/proc/sys").join(name)).unwrap_or_default();
        if found.trim() == value {
            let name = name.replace('/', ".");
            return format!("this host refuses them to users (sysctl {name}={value}): run as root, or change that");
        }
    }
    "this host refuses them to users: run as root".into()
}

/// Goes to the root of the mount namespace. The runner may be in a chroot, whose root is no mount, and only a mount
/// can be made private or be replaced.
fn leave_chroot() -> anyhow::Result<()> {
    // A process that enters the namespace that it is in stands at its root.
    let own = File::open("/proc/self/ns/mnt").context("opening /proc/self/ns/mnt")?;
    setns(own, CloneFlags::CLONE_NEWNS).context("going to the root of the namespace")
}

/// Makes changes to mounts this namespace's own. Paths mean what they meant before.
fn detach() -> anyhow::Result<()> {
    let root = File::open("/").context("opening /")?;
    leave_chroot()?;
    tree::make_private()?;
    nix::unistd::fchdir(&root).context("going back")?;
    nix::unistd::chroot(".").context("going back")
}

/// Makes the tree at `base` the root, and drops the old one.
fn enter(base: &Path) -> anyhow::Result<()> {
    let root = File::open(base).with_context(|| format!("opening {}", base.display()))?;
    leave_chroot()?;
    nix::unistd::fchdir(&root).context("entering the new root")?;
    tree::make_root()
}

/// Waits for process 1 and ends as it did.
fn wait(child: Pid) -> anyhow::Result<i32> {
    loop {
        match waitpid(child, None) {
            Ok(WaitStatus::Exited(_, status)) => return Ok(status),
            Ok(WaitStatus::Signaled(_, number, _)) => {
                // SAFETY: The default action runs no code of this program.
                let _ = unsafe { signal(number, SigHandler::SigDfl) };
                let _ = raise(number);
                // CAST: signal numbers are small.
                return Ok(128 + number as i32);
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("waiting for process 1"),
        }
    }
}
