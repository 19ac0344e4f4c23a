// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What QEMU can reach, and with which rights.
//!
//! QEMU serves files of the host to the guest by 9p and has device models in C between the guest and
//! itself. So it runs in a root file system of its own, in namespaces of its own (mounts, processes,
//! network, IPC, host name), without a capability that this run has no need of, and can get none back
//! (`no_new_privs`; its own `-sandbox` forbids further system calls). [`Spec`] says what is in reach,
//! `rkfd-jail` ([`main`]) puts it together and becomes QEMU.
//!
//! The root that QEMU sees, all of it read-only but the shares:
//!
//! | path | content |
//! | --- | --- |
//! | `/usr`, `/bin`, `/lib` …, parts of `/etc` and, outside of the toolbox, of `/opt` | the system's programs, from which QEMU itself runs |
//! | `/dev` | `null`, `zero`, `urandom`, and what the run needs: `kvm`, `vfio` |
//! | `/proc` | QEMU's own process, nothing of the kernel |
//! | `/boot/bzImage` | the test kernel |
//! | `/run/rkfd` | the sockets of the models |
//! | `/shares/TAG` | the shared directories, writable |
//! | `/export` | the guest's root: the system's programs again, the checkout and what is built, at their own paths |
//!
//! Which of the system's files are in `/export` is a list of what programs need (`tree.rs`), so that a
//! home directory, a credential or any file that is not on the list is not there. Where the runner is not
//! root, a user namespace gives it the right to mount.

mod enter;
mod rights;
mod tree;

use crate::protocol::Share;
use serde::Deserialize;
use serde::Serialize;
use std::ffi::OsString;
use std::path::Path;
use std::path::PathBuf;

/// The test kernel, as QEMU sees it.
pub const KERNEL: &str = "/boot/bzImage";
/// The directory of the models' sockets, as QEMU sees it.
pub const SOCKETS: &str = "/run/rkfd";
/// The guest's root, as QEMU sees it.
pub const EXPORT: &str = "/export";
/// Below it are the shared directories by their tags, as QEMU sees them.
pub const SHARES: &str = "/shares";

/// Exit status of `rkfd-jail` where QEMU could not be started.
const STATUS: i32 = 125;

/// What QEMU may reach. Paths are the host's (the toolbox' where the runner is in it), absolute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// An empty directory to put the new root together at.
    pub base: PathBuf,
    /// Directories that the guest sees read-only, at their own paths.
    pub exports: Vec<PathBuf>,
    /// What it sees empty where it lies in one of them.
    pub hidden: Vec<PathBuf>,
    /// Directories that the guest may write to.
    pub shares: Vec<Share>,
    /// The test kernel's image.
    pub kernel: PathBuf,
    /// The directory of the models' sockets.
    pub sockets: PathBuf,
    /// Device nodes, or directories of them, that QEMU opens.
    pub devices: Vec<PathBuf>,
    /// The system's directories are the toolbox', so that all of them may be seen.
    pub toolbox: bool,
    /// A real card is passed through, which takes sysfs and locked memory.
    pub cards: bool,
    /// The program to run; it may lie outside of the system's directories.
    pub program: PathBuf,
}

impl Spec {
    /// The arguments of `rkfd-jail` that start [`Spec::program`] with `args`.
    ///
    /// # Errors
    /// A path that is no UTF-8.
    pub fn args(&self, args: Vec<OsString>) -> anyhow::Result<Vec<OsString>> {
        let mut all = vec![OsString::from(serde_json::to_string(self)?)];
        all.extend(args);
        Ok(all)
    }
}

/// The path at which QEMU sees the shared directory with that tag.
pub fn share(tag: &str) -> PathBuf {
    Path::new(SHARES).join(tag)
}

/// `rkfd-jail SPEC ARGUMENT…`: runs the program of SPEC, a [`Spec`] in JSON, with the arguments.
pub fn main() -> ! {
    let error = match enter::run(std::env::args_os().skip(1)) {
        Ok(status) => std::process::exit(status),
        Err(error) => error,
    };
    eprintln!("rkfd-jail: {error:#}");
    std::process::exit(STATUS);
}
