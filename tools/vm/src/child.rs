// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Processes that never outlive us.

use nix::sys::prctl;
use nix::sys::signal::killpg;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::process::Command;
use std::process::ExitStatus;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;
use std::time::Instant;

/// Pause between two looks at a process that is about to end.
const INTERVAL: Duration = Duration::from_millis(5);

/// The groups of the children that were not reaped yet, so that their numbers still mean them.
static GROUPS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn groups() -> MutexGuard<'static, BTreeSet<i32>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills all children of this process with all that they started, for one who is about to exit.
pub fn kill_groups() {
    for group in groups().iter() {
        // ESRCH: gone this instant.
        let _ = killpg(Pid::from_raw(*group), Signal::SIGKILL);
    }
}

/// A child that is killed when this value is dropped, with what it started as far as that stayed in its
/// process group. The kernel kills the child itself when the thread that started it ends in any way,
/// SIGKILL included.
#[derive(Debug)]
pub struct Bound(Child);

impl Bound {
    /// Starts `command` in a process group of its own (so that Ctrl-C reaches only us), with the
    /// descriptors of `inherit` open in it under their numbers here.
    ///
    /// # Errors
    /// What starting it gave.
    pub fn spawn(command: &mut Command, inherit: &[OwnedFd]) -> io::Result<Self> {
        let numbers: Vec<i32> = inherit.iter().map(AsRawFd::as_raw_fd).collect();
        let parent = nix::unistd::getpid();
        let prepare = move || {
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            // The parent may have died before the line above.
            if nix::unistd::getppid() != parent {
                return Err(io::Error::from_raw_os_error(nix::libc::ESRCH));
            }
            for number in &numbers {
                // SAFETY: The parent holds the descriptors open until spawn returns, and the child was
                // forked from it, so the number is open here; clearing close-on-exec touches no memory.
                if unsafe { nix::libc::fcntl(*number, nix::libc::F_SETFD, 0) } < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: Between fork and exec the closure makes system calls only; it reads a vector made
        // before the fork and allocates nothing.
        unsafe { command.process_group(0).pre_exec(prepare) };
        let child = command.spawn()?;
        groups().insert(group_of(&child));
        Ok(Self(child))
    }

    /// Its status if it has ended.
    ///
    /// # Errors
    /// What waiting gave.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        // The number is nobody's before the status is taken: nobody may kill by it meanwhile.
        let mut groups = groups();
        let status = self.0.try_wait()?;
        if status.is_some() {
            groups.remove(&group_of(&self.0));
        }
        Ok(status)
    }

    /// Waits at most `limit`; none where it runs on.
    ///
    /// # Errors
    /// What waiting gave.
    pub fn wait_for(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            thread::sleep(INTERVAL);
        }
    }

    /// Sends it a signal, if it is still there.
    pub fn signal(&mut self, signal: Signal) {
        if let Ok(None) = self.try_wait() {
            let _ = nix::sys::signal::kill(Pid::from_raw(group_of(&self.0)), signal);
        }
    }

    /// Kills its group and takes its status.
    ///
    /// # Errors
    /// What waiting gave.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.try_wait()? {
            return Ok(status);
        }
        // It is there or dead and not reaped, so that the number is still that of its group.
        let group = group_of(&self.0);
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        groups().remove(&group);
        self.0.wait()
    }
}

/// The group that [`Bound::spawn`] gave it.
fn group_of(child: &Child) -> i32 {
    // CAST: process ids are positive i32.
    child.id() as i32
}

impl Drop for Bound {
    fn drop(&mut self) {
        // An error means that it is gone already.
        let _ = self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_dropped_child_is_killed_and_reaped() {
        let child = Bound::spawn(Command::new("sleep").arg("1000"), &[]).unwrap();
        let pid = child.0.id();
        drop(child);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn what_a_child_started_dies_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let script = format!(
            "sh -c 'echo $$ >{0}.new; mv {0}.new {0}; exec sleep 1000'; true",
            pid.display()
        );
        let child = Bound::spawn(Command::new("sh").args(["-c", script.as_str()]), &[]).unwrap();
        while !pid.exists() {
            thread::sleep(INTERVAL);
        }
        let grandchild = std::fs::read_to_string(&pid).unwrap();
        let state = || {
            let path = format!("/proc/{}/stat", grandchild.trim());
            std::fs::read_to_string(path).unwrap_or_default()
        };
        assert!(state().contains("(s"));
        drop(child);
        // Whoever inherits it may reap it a little later.
        let gone = || state().is_empty() || state().contains(") Z ");
        let end = Instant::now() + Duration::from_secs(60);
        while !gone() {
            assert!(Instant::now() < end, "it lives: {}", state());
            thread::sleep(INTERVAL);
        }
    }

    #[test]
    fn waiting_is_bounded_and_reports_the_status() {
        let mut child = Bound::spawn(Command::new("sleep").arg("1000"), &[]).unwrap();
        assert_eq!(child.wait_for(Duration::from_millis(10)).unwrap(), None);
        assert_eq!(child.kill().unwrap().signal(), Some(9));
        let mut child = Bound::spawn(Command::new("sh").args(["-c", "exit 3"]), &[]).unwrap();
        let status = child.wait_for(Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!(status.code(), Some(3));
    }

    #[test]
    fn inherited_descriptors_keep_their_numbers() {
        use std::io::Read;
        use std::os::unix::net::UnixStream;
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let theirs = OwnedFd::from(theirs);
        let script = format!("echo hello >&{}", theirs.as_raw_fd());
        let inherit = [theirs];
        let mut child =
            Bound::spawn(Command::new("bash").args(["-c", script.as_str()]), &inherit).unwrap();
        drop(inherit);
        let mut text = String::new();
        ours.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello\n");
        child.wait_for(Duration::from_secs(60)).unwrap().unwrap();
    }
}
