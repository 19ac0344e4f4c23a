// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The directory of a run: sockets, and the point at which QEMU's root is put together.
//!
//! A run that is killed leaves it behind. Its owner holds a lock on it, so that the next run can tell one
//! that is dead from one that is in use.

use crate::lock;
use anyhow::Context;
use nix::fcntl::Flock;
use nix::unistd::geteuid;
use std::fs;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;

/// Start of the names; only what is called so is ever removed.
const PREFIX: &str = "rkfd-run.";
/// How often another run may take a directory for dead in the instant before its owner has locked it.
const TRIES: usize = 100;

/// A directory that is removed with its content when this value is dropped, or by the next run.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    _lock: Flock<File>,
}

impl RunDir {
    /// Makes one in the system's directory for temporary files and removes those of dead runs there.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn new() -> anyhow::Result<Self> {
        let parent = std::env::temp_dir();
        Self::new_in(&parent).with_context(|| format!("making a directory in {}", parent.display()))
    }

    fn new_in(parent: &Path) -> io::Result<Self> {
        sweep(parent);
        for _ in 0..TRIES {
            let path = tempfile::Builder::new()
                .prefix(PREFIX)
                .tempdir_in(parent)?
                .keep();
            if let Some(lock) = own(&path)? {
                return Ok(Self { path, _lock: lock });
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        // The next run tries it again.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Locks the directory; none where it is locked or gone.
fn own(path: &Path) -> io::Result<Option<Flock<File>>> {
    let opened = File::options()
        .read(true)
        .custom_flags(nix::libc::O_DIRECTORY | nix::libc::O_NOFOLLOW)
        .open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let Some(lock) = lock::take(file)? else {
        return Ok(None);
    };
    // Its owner may have removed it, and another one be there by that name, before the lock was ours.
    let same = |found: fs::Metadata| {
        let ours = lock.metadata()?;
        Ok((found.dev(), found.ino()) == (ours.dev(), ours.ino()))
    };
    match fs::symlink_metadata(path) {
        Ok(found) => same(found).map(|same| same.then_some(lock)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes what dead runs of this user left in `parent`.
fn sweep(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry
                .metadata()
                .is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw());
        // What cannot be removed stays for the next run.
        if let (true, Ok(Some(_lock))) = (ours, own(&entry.path())) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_dead_runs_go() {
        let parent = tempfile::tempdir().unwrap();
        let parent = parent.path();
        let alive = RunDir::new_in(parent).unwrap();
        fs::write(alive.path().join("socket"), "").unwrap();
        let dead = parent.join("rkfd-run.dead");
        fs::create_dir_all(dead.join("root")).unwrap();
        fs::write(dead.join("socket"), "").unwrap();
        // Other names, files, and what a link of that name leads to, stay.
        let others = ["other", "rkfd-run-not", "target"].map(|name| parent.join(name));
        for other in &others {
            fs::create_dir(other).unwrap();
        }
        fs::write(parent.join("rkfd-run.file"), "").unwrap();
        std::os::unix::fs::symlink("target", parent.join("rkfd-run.link")).unwrap();
        let next = RunDir::new_in(parent).unwrap();
        assert!(!dead.exists());
        assert!(alive.path().join("socket").exists());
        assert!(others.iter().all(|other| other.exists()));
        assert!(parent.join("rkfd-run.file").exists() && parent.join("rkfd-run.link").exists());

        // A killed run drops nothing, but its lock goes.
        let path = alive.path().to_owned();
        let RunDir { path: _, _lock } = &alive;
        rustix::fs::flock(&**_lock, rustix::fs::FlockOperation::Unlock).unwrap();
        let last = RunDir::new_in(parent).unwrap();
        assert!(!path.exists());
        assert!(next.path().exists() && last.path().exists());
    }

    #[test]
    fn one_that_ends_in_order_leaves_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let run = RunDir::new_in(parent.path()).unwrap();
        fs::write(run.path().join("socket"), "").unwrap();
        drop(run);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
