// SPDX-License-Identifier: GPL-2.0 OR MIT
//! QEMU's root file system and, in it, the guest's, put together from bind mounts on a tmpfs.

use super::Spec;
use super::EXPORT;
use super::KERNEL;
use super::SHARES;
use super::SOCKETS;
use anyhow::Context;
use nix::errno::Errno;
use nix::mount::mount;
use nix::mount::umount2;
use nix::mount::MntFlags;
use nix::mount::MsFlags;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::fs::DirBuilder;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;

/// Where programs and their libraries are.
const PROGRAMS: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Where an administrator puts programs with all that they have, passwords included.
const OPTIONAL: &str = "opt";
/// What is wanted of these: ROCm, where it is not the distribution's.
const ROCM: &str = "rocm";

/// What is an administrator's own in the directories of programs.
const OWN_SETTINGS: &str = "usr/local/etc";

/// What programs read of `/etc`. Left out is what may hold a secret: keys, shadowed passwords, settings of
/// package managers and proxies, profiles of an administrator's own.
const SETTINGS: &[&str] = &[
    "OpenCL",
    "alternatives",
    "bash.bashrc",
    "bindresvport.blacklist",
    "crypto-policies",
    "debian_version",
    "drirc",
    "ethertypes",
    "fonts",
    "gai.conf",
    "group",
    "host.conf",
    "hosts",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "libaudit.conf",
    "libnl-3",
    "locale.alias",
    "locale.conf",
    "localtime",
    "login.defs",
    "lsb-release",
    "magic",
    "magic.mime",
    "mime.types",
    "networks",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "perl",
    "profile",
    "protocols",
    "rpc",
    "services",
    "shells",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "vulkan",
    "xattr.conf",
];

/// The directories of a system that are the guest's own, with their modes.
const EMPTY: [(&str, u32); 21] = [
    ("boot", 0o755),
    ("dev", 0o755),
    ("home", 0o755),
    ("media", 0o755),
    ("mnt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("srv", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/local", 0o755),
    ("var/log", 0o755),
    ("var/mail", 0o755),
    ("var/opt", 0o755),
    ("var/spool", 0o755),
    ("var/tmp", 0o1777),
    ("etc", 0o755),
];

/// Device nodes that a program expects everywhere.
const DEVICES: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/urandom"];

/// What is bound over a path that is to be hidden, in QEMU's root.
const NO_DIRECTORY: &str = "empty/directory";
const NO_FILE: &str = "empty/file";

/// Puts everything together at `spec.base`.
///
/// # Errors
/// Names the path that could not be made or mounted.
pub(super) fn build(spec: &Spec) -> anyhow::Result<()> {
    let base = Root(&spec.base);
    tmpfs(base.0)?;
    base.directory(Path::new(NO_DIRECTORY), 0o755)?;
    base.file(Path::new(NO_FILE))?;

    base.system(&base, spec.toolbox)?;
    base.program(&spec.program)?;
    base.devices(spec)?;
    base.proc()?;
    if spec.cards {
        base.bind(Path::new("/sys"), Path::new("sys"), Access::Read)?;
    }
    base.bind(&spec.kernel, Path::new(KERNEL), Access::Read)?;
    // Connecting to a socket takes no right to write to its directory.
    base.bind(&spec.sockets, Path::new(SOCKETS), Access::Read)?;
    base.directory(Path::new(SHARES), 0o755)?;
    for share in &spec.shares {
        let at = Path::new(SHARES).join(&share.tag);
        base.bind(Path::new(&share.path), &at, Access::Write)?;
    }

    base.directory(Path::new(EXPORT), 0o755)?;
    let export = base.path(Path::new(EXPORT));
    let guest = Root(&export);
    for (dir, mode) in EMPTY {
        guest.directory(Path::new(dir), mode)?;
    }
    for (link, to) in [("var/run", "/run"), ("var/lock", "/run/lock")] {
        guest.link(Path::new(link), Path::new(to))?;
    }
    guest.system(&base, spec.toolbox)?;
    for (path, content) in layers(&spec.exports, &spec.hidden) {
        match content {
            Layer::Link(to) => guest.link(&path, &to)?,
            Layer::Export => guest.bind(&path, &path, Access::Read)?,
            Layer::Hidden => guest.hide(&base, &path)?,
        }
    }
    read_only(base.0, false)
}

/// Keeps all mounts of this namespace from showing in the one that it was made from. To be called at its root.
///
/// # Errors
/// What the kernel refused.
pub(super) fn make_private() -> anyhow::Result<()> {
    let none = None::<&str>;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(none, "/", none, private, none).context("making the mounts private")
}

/// Makes the current directory, the top of a mount, the root of this process, and drops all other mounts.
///
/// # Errors
/// What the kernel refused.
pub(super) fn make_root() -> anyhow::Result<()> {
    match nix::unistd::pivot_root(".", ".") {
        // The old root lies over the new one now.
        Ok(()) => umount2(".", MntFlags::MNT_DETACH).context("dropping the old root")?,
        // The first root of a kernel cannot be replaced, only covered. Leaving the new one takes CAP_SYS_CHROOT,
        // which is given up.
        Err(Errno::EINVAL) => {
            let none = None::<&str>;
            mount(Some("."), "/", none, MsFlags::MS_MOVE, none).context("moving the new root")?;
            nix::unistd::chroot(".").context("entering the new root")?;
        }
        Err(error) => return Err(error).context("replacing the root"),
    }
    nix::unistd::chdir("/").context("entering the new root")
}

/// What lies at a path of the guest's root.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Layer {
    /// A symbolic link of the host on the way to an exported directory.
    Link(PathBuf),
    /// The host's directory.
    Export,
    /// Nothing, whatever the host has there.
    Hidden,
}

/// All layers, outer ones first, so that one inside of another lies over it.
fn layers(exports: &[PathBuf], hidden: &[PathBuf]) -> BTreeMap<PathBuf, Layer> {
    let mut layers = BTreeMap::new();
    for export in exports {
        let (links, real) = resolve(export);
        layers.extend(links.into_iter().map(|(at, to)| (at, Layer::Link(to))));
        layers.insert(real, Layer::Export);
    }
    let hidden: Vec<PathBuf> = hidden.iter().map(|path| resolve(path).1).collect();
    for path in hidden {
        let covered = layers
            .iter()
            .any(|(at, layer)| *layer == Layer::Export && path != *at && path.starts_with(at));
        // One that is exported itself is wanted.
        if covered {
            layers.entry(path).or_insert(Layer::Hidden);
        }
    }
    layers
}

/// The path without symbolic links, and the links on the way to it with what they lead to.
fn resolve(path: &Path) -> (Vec<(PathBuf, PathBuf)>, PathBuf) {
    /// As many as the kernel follows.
    const LINKS: usize = 40;
    let mut links = Vec::new();
    let mut path = path.to_owned();
    while links.len() < LINKS {
        let mut prefixes: Vec<&Path> = path.ancestors().collect();
        prefixes.reverse();
        let link = prefixes.into_iter().find(|prefix| prefix.is_symlink());
        let Some((link, to)) = link.and_then(|link| Some((link, fs::canonicalize(link).ok()?)))
        else {
            break;
        };
        let rest = path.strip_prefix(link).unwrap_or(Path::new(""));
        // Joining an empty path would add a slash.
        let next = if rest.as_os_str().is_empty() {
            to.clone()
        } else {
            to.join(rest)
        };
        links.push((link.to_owned(), to));
        path = next;
    }
    (links, path)
}

/// What may be done with a bound file or directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    /// Opened as the device that it is.
    Device,
}

/// A root file system that is being put together.
struct Root<'a>(&'a Path);

impl Root<'_> {
    /// Where a path of this root is now.
    fn path(&self, path: &Path) -> PathBuf {
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Makes a directory and those above it.
    fn directory(&self, path: &Path, mode: u32) -> anyhow::Result<()> {
        let at = self.path(path);
        make_directories(&at)?;
        // The mode of a new directory would be cut by the umask.
        match fs::metadata(&at) {
            Ok(found) if found.permissions().mode() & 0o7777 == mode => Ok(()),
            _ => fs::set_permissions(&at, fs::Permissions::from_mode(mode))
                .with_context(|| format!("setting the mode of {}", at.display())),
        }
    }

    /// Makes an empty file.
    fn file(&self, path: &Path) -> anyhow::Result<()> {
        let at = self.path(path);
        if let Some(parent) = at.parent() {
            make_directories(parent)?;
        }
        if !at.exists() {
            File::create(&at).with_context(|| format!("making {}", at.display()))?;
        }
        Ok(())
    }

    /// Makes a symbolic link, if there is nothing yet.
    fn link(&self, path: &Path, to: &Path) -> anyhow::Result<()> {
        let at = self.path(path);
        if let Some(parent) = at.parent() {
            make_directories(parent)?;
        }
        match symlink(to, &at) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(error).with_context(|| format!("making the link {}", at.display()))
            }
            _ => Ok(()),
        }
    }

    /// Shows `from` at `path`, with all that is mounted in it.
    fn bind(&self, from: &Path, path: &Path, access: Access) -> anyhow::Result<()> {
        let kind = fs::metadata(from).with_context(|| format!("looking at {}", from.display()))?;
        let at = self.path(path);
        if kind.is_dir() {
            make_directories(&at)?;
        } else {
            self.file(path)?;
        }
        bind(from, &at)?;
        match access {
            Access::Read => read_only(&at, true),
            Access::Write => plain(&at),
            Access::Device => Ok(()),
        }
    }

    /// Shows nothing at `path`, if there is something.
    fn hide(&self, base: &Root<'_>, path: &Path) -> anyhow::Result<()> {
        let at = self.path(path);
        let empty = match fs::symlink_metadata(&at) {
            Ok(found) if found.is_dir() => NO_DIRECTORY,
            Ok(found) if found.is_file() => NO_FILE,
            // Anything else is nothing that one could look into.
            _ => return Ok(()),
        };
        bind(&base.path(Path::new(empty)), &at)
    }

    /// Shows the system's programs and what they read of /etc. `toolbox`: it is the toolbox, which has nothing of an
    /// administrator's.
    fn system(&self, base: &Root<'_>, toolbox: bool) -> anyhow::Result<()> {
        for name in PROGRAMS {
            self.copy(Path::new("/"), Path::new(name))?;
        }
        self.hide(base, Path::new(OWN_SETTINGS))?;
        let optional = Path::new(OPTIONAL);
        if toolbox {
            self.copy(Path::new("/"), optional)?;
        } else {
            self.directory(optional, 0o755)?;
            // There need not be any.
            let found = fs::read_dir(Path::new("/").join(optional));
            for entry in found.into_iter().flatten().flatten() {
                let name = entry.file_name();
                if name.as_bytes().starts_with(ROCM.as_bytes()) {
                    self.copy(Path::new("/"), &optional.join(name))?;
                }
            }
        }
        self.directory(Path::new("etc"), 0o755)?;
        let found = fs::read_dir("/etc").context("reading /etc")?.flatten();
        let pythons = found
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.starts_with("python3"));
        let names = SETTINGS.iter().map(ToString::to_string);
        for name in names.chain(pythons) {
            self.copy(Path::new("/"), &Path::new("etc").join(name))?;
        }
        Ok(())
    }

    /// Shows what the running system has at `path` (none needs to be there): a link as the same link.
    fn copy(&self, system: &Path, path: &Path) -> anyhow::Result<()> {
        let from = system.join(path);
        match fs::symlink_metadata(&from) {
            Ok(found) if found.is_symlink() => {
                let to = fs::read_link(&from)
                    .with_context(|| format!("reading the link {}", from.display()))?;
                self.link(path, &to)
            }
            Ok(found) if found.is_dir() || found.is_file() => self.bind(&from, path, Access::Read),
            _ => Ok(()),
        }
    }

    /// Shows the program, with what was installed beside it, where it is none of the system's.
    fn program(&self, program: &Path) -> anyhow::Result<()> {
        let mut parts = program.components().skip(1);
        let first = parts.next().and_then(|part| part.as_os_str().to_str());
        if first.is_some_and(|first| PROGRAMS.contains(&first)) {
            return Ok(());
        }
        let prefix = program.parent().and_then(Path::parent);
        match prefix {
            Some(prefix) if prefix != Path::new("/") => self.bind(prefix, prefix, Access::Read),
            _ => Ok(()),
        }
    }

    /// Shows the device nodes.
    fn devices(&self, spec: &Spec) -> anyhow::Result<()> {
        let wanted = spec.devices.iter().map(PathBuf::as_path);
        for node in DEVICES.map(Path::new).into_iter().chain(wanted) {
            let kind =
                fs::metadata(node).with_context(|| format!("looking at {}", node.display()))?;
            let device = kind.file_type().is_char_device() || kind.is_dir();
            anyhow::ensure!(device, "{} is no device", node.display());
            self.bind(node, node, Access::Device)?;
        }
        Ok(())
    }

    /// Shows the processes of this namespace, and nothing of the kernel.
    fn proc(&self) -> anyhow::Result<()> {
        let at = self.path(Path::new("proc"));
        make_directories(&at)?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some("proc"), &at, Some("proc"), flags, Some("subset=pid"))
            .with_context(|| format!("mounting proc at {}", at.display()))
    }
}

/// Makes a directory and those above it, readable by all whatever the umask.
fn make_directories(path: &Path) -> anyhow::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path)
        .with_context(|| format!("making {}", path.display()))
}

fn tmpfs(at: &Path) -> anyhow::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(
        Some("rkfd-jail"),
        at,
        Some("tmpfs"),
        flags,
        Some("mode=755,size=16m"),
    )
    .with_context(|| format!("mounting tmpfs at {}", at.display()))
}

fn bind(from: &Path, at: &Path) -> anyhow::Result<()> {
    let none = None::<&str>;
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(from), at, none, flags, none)
        .with_context(|| format!("binding {} at {}", from.display(), at.display()))
}

/// Makes the mount read-only, and what is mounted inside of it if `recursive`.
fn read_only(at: &Path, recursive: bool) -> anyhow::Result<()> {
    let more = nix::libc::MOUNT_ATTR_RDONLY;
    set_attributes(
        at,
        more | nix::libc::MOUNT_ATTR_NOSUID | nix::libc::MOUNT_ATTR_NODEV,
        recursive,
    )
}

/// Files there are plain data to QEMU.
fn plain(at: &Path) -> anyhow::Result<()> {
    set_attributes(
        at,
        nix::libc::MOUNT_ATTR_NOSUID | nix::libc::MOUNT_ATTR_NODEV,
        true,
    )
}

/// Sets attributes of the mount at `at`. A remount would have to repeat the attributes that a user namespace may not
/// take away.
fn set_attributes(at: &Path, attributes: u64, recursive: bool) -> anyhow::Result<()> {
    let path = CString::new(at.as_os_str().as_bytes())?;
    let attr = nix::libc::mount_attr {
        attr_set: attributes,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let flags = if recursive {
        nix::libc::AT_RECURSIVE
    } else {
        0
    };
    // SAFETY: `path` ends with a zero and `attr` is a mount_attr of the size that is passed; both outlive
    // the call, which only reads them.
    let done = unsafe {
        nix::libc::syscall(
            nix::libc::SYS_mount_setattr,
            nix::libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attr,
            size_of_val(&attr),
        )
    };
    Errno::result(done)
        .map(drop)
        .with_context(|| format!("setting the attributes of the mount {}", at.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_lies_over_what_is_exported() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let (cache, out) = (top.join("cache"), top.join("cache/out"));
        let layers = layers(
            &[top.clone(), out.clone()],
            &[cache.clone(), "/elsewhere".into(), top.clone()],
        );
        let all: Vec<(PathBuf, Layer)> = layers.into_iter().collect();
        let wanted = [
            (top, Layer::Export),
            (cache, Layer::Hidden),
            (out, Layer::Export),
        ];
        assert_eq!(all, wanted);
    }

    #[test]
    fn links_on_the_way_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("disk/me/rkfd")).unwrap();
        fs::create_dir_all(top.join("big/out")).unwrap();
        symlink("disk/me", top.join("me")).unwrap();
        symlink("../../../big/out", top.join("disk/me/rkfd/build")).unwrap();
        let (links, real) = resolve(&top.join("me/rkfd/build"));
        assert_eq!(real, top.join("big/out"));
        let wanted = [
            (top.join("me"), top.join("disk/me")),
            (top.join("disk/me/rkfd/build"), top.join("big/out")),
        ];
        assert_eq!(links, wanted);
        let plain = top.join("disk/me/rkfd");
        assert_eq!(resolve(&plain), (Vec::new(), plain));
        // What is not there has no links.
        let missing = top.join("no/such/thing");
        assert_eq!(resolve(&missing), (Vec::new(), missing));
    }
}
