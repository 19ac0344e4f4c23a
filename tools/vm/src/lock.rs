// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Locked files, by which runs of one machine tell what is in use from what a dead run left.

use nix::errno::Errno;
use nix::fcntl::Flock;
use nix::fcntl::FlockArg;
use std::fs::File;
use std::io;

/// Locks the file; none where it is locked.
///
/// The lock goes with the process or, at the latest, when the value is dropped. Closing the file alone would not do:
/// a process that another thread is just starting has all descriptors until it executes its program.
///
/// # Errors
/// What locking gave otherwise.
pub fn take(file: File) -> io::Result<Option<Flock<File>>> {
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_lock_is_free_though_a_copy_of_the_descriptor_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let open = || File::create(dir.path().join("lock")).unwrap();
        let file = open();
        let copy = file.try_clone().unwrap();
        let held = take(file).unwrap().unwrap();
        assert!(take(open()).unwrap().is_none());
        drop(held);
        assert!(take(open()).unwrap().is_some());
        drop(copy);
    }
}
