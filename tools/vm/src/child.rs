// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Processes that never outlive us.

use nix::sys::prctl;
use nix::sys::signal::killpg;
use nix::sys::signal::Signal;
use nix::sys::wait::waitid;
use nix::sys::wait::Id;
use nix::sys::wait::WaitPidFlag;
use nix::sys::wait::WaitStatus;
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
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

/// Ticks of `/proc/PID/stat` in a second: `USER_HZ`, which is part of the kernel's interface.
const TICKS: u64 = 100;

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
pub struct Bound {
    child: Child,
    /// Its processor time, once it has ended.
    cpu: Option<Duration>,
}

impl Bound {
    /// Starts `command` in a process group of its own (so that Ctrl-C reaches only us), with the
    /// descriptors of `inherit` open in it under their numbers here. Of others it has the standard ones only: by a
    /// directory that the user's shell had open, QEMU would get out of its root.
    ///
    /// # Errors
    /// What starting it gave.
    pub fn spawn(command: &mut Command, inherit: &[OwnedFd]) -> io::Result<Self> {
        /// Of close_range(2).
        // CAST: the flag is 4.
        const CLOEXEC: nix::libc::c_int = nix::libc::CLOSE_RANGE_CLOEXEC as nix::libc::c_int;
        let numbers: Vec<i32> = inherit.iter().map(AsRawFd::as_raw_fd).collect();
        let parent = nix::unistd::getpid();
        let prepare = move || {
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            // The parent may have died before the line above.
            if nix::unistd::getppid() != parent {
                return Err(io::Error::from_raw_os_error(nix::libc::ESRCH));
            }
            // SAFETY: This marks descriptors, for the exec that follows, and touches no memory. Those of the child are
            // its own copies, so the parent's stay as they are.
            let marked = unsafe { nix::libc::close_range(3, nix::libc::c_uint::MAX, CLOEXEC) };
            if marked < 0 {
                return Err(io::Error::last_os_error());
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
        Ok(Self { child, cpu: None })
    }

    /// Its status if it has ended.
    ///
    /// # Errors
    /// What waiting gave.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        // The number is nobody's before the status is taken: nobody may kill by it meanwhile.
        let mut groups = groups();
        self.note_end(WaitPidFlag::WNOHANG);
        let status = self.child.try_wait()?;
        if status.is_some() {
            groups.remove(&group_of(&self.child));
        }
        Ok(status)
    }

    /// The processor time that it has taken until now, with that of what it started as far as that is in its process
    /// group.
    pub fn cpu_time(&mut self) -> Duration {
        let group = group_of(&self.child);
        self.cpu.unwrap_or_else(|| cpu_of(group))
    }

    /// Notes the processor time if it has ended and was not reaped: afterwards nothing tells.
    fn note_end(&mut self, flag: WaitPidFlag) {
        let id = Id::Pid(Pid::from_raw(group_of(&self.child)));
        let flags = flag | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        if let Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) = waitid(id, flags) {
            self.cpu = Some(self.cpu_time());
        }
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
            let _ = nix::sys::signal::kill(Pid::from_raw(group_of(&self.child)), signal);
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
        let group = group_of(&self.child);
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        self.note_end(WaitPidFlag::empty());
        groups().remove(&group);
        self.child.wait()
    }
}

/// The group that [`Bound::spawn`] gave it.
fn group_of(child: &Child) -> i32 {
    // CAST: process ids are positive i32.
    child.id() as i32
}

/// The processor time of the processes of a group, and of those that they have started and reaped.
fn cpu_of(group: i32) -> Duration {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let members = entries.filter_map(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let ticks = ticks_of(&stat, group)?;
        Some(Duration::from_millis(ticks * 1000 / TICKS) + hidden_children(&entry.path()))
    });
    members.sum()
}

/// The processor time of the children of a process that `/proc` does not show, as in the toolbox those of another user:
/// QEMU runs as nobody. The clock of a process can be read by anybody.
fn hidden_children(process: &Path) -> Duration {
    let Some(name) = process.file_name() else {
        return Duration::ZERO;
    };
    let list = process.join("task").join(name).join("children");
    let list = fs::read_to_string(list).unwrap_or_default();
    let hidden = list
        .split_whitespace()
        .filter(|child| !Path::new("/proc").join(child).exists());
    let times = hidden.filter_map(|child| {
        let clock = clock_getcpuclockid(Pid::from_raw(child.parse().ok()?)).ok()?;
        clock.now().ok().map(Duration::from)
    });
    times.sum()
}

/// The ticks in a `/proc/PID/stat`, if the process is in this group: its own and those of its children that are gone.
fn ticks_of(stat: &str, group: i32) -> Option<u64> {
    // The name before it may have anything in it.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    if fields.get(2)?.parse() != Ok(group) {
        return None;
    }
    let times = fields.get(11..15)?.iter();
    times.map(|field| field.parse::<u64>().ok()).sum()
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
    use std::os::fd::FromRawFd;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_dropped_child_is_killed_and_reaped() {
        let child = Bound::spawn(Command::new("sleep").arg("1000"), &[]).unwrap();
        let pid = child.child.id();
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
    fn processor_time_is_that_of_all_that_it_started() {
        let stat = "7 (a) b) S 1 5 5 0 -1 4194304 9 9 9 9 100 20 3 4 20 0 1 0 99";
        assert_eq!(ticks_of(stat, 5), Some(127));
        assert_eq!(ticks_of(stat, 6), None);
        assert_eq!(ticks_of("", 5), None);
        let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done";
        let script = format!("sh -c '{busy}'; {busy}");
        let mut child =
            Bound::spawn(Command::new("sh").args(["-c", script.as_str()]), &[]).unwrap();
        // This thread may be late: then all of it is over.
        while child.cpu_time().is_zero() && child.try_wait().unwrap().is_none() {
            thread::sleep(INTERVAL);
        }
        child.wait_for(Duration::from_secs(60)).unwrap().unwrap();
        let after = child.cpu_time();
        // It is gone, and what it took is known.
        assert!(after > Duration::ZERO && child.cpu_time() == after);
        let mut killed =
            Bound::spawn(Command::new("sh").args(["-c", "while :; do :; done"]), &[]).unwrap();
        while killed.cpu_time().is_zero() {
            thread::sleep(INTERVAL);
        }
        killed.kill().unwrap();
        assert!(killed.cpu_time() > Duration::ZERO);
    }

    #[test]
    fn processor_time_is_that_of_other_users_as_well() {
        let busy = "setpriv --reuid=65534 --clear-groups sh -c 'while :; do :; done'; true";
        let mut child = Bound::spawn(Command::new("sh").args(["-c", busy]), &[]).unwrap();
        // Far more than the outer shell takes.
        while child.cpu_time() < Duration::from_millis(500) {
            assert!(child.try_wait().unwrap().is_none(), "it has ended");
            thread::sleep(INTERVAL);
        }
        child.kill().unwrap();
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

    #[test]
    fn a_child_has_no_descriptors_but_those_that_it_is_given() {
        let dir = fs::File::open("/").unwrap();
        // One that whoever started us left open for all programs: it is not closed on exec.
        // SAFETY: This makes another number for a descriptor that is open, and touches no memory.
        let left = unsafe { nix::libc::fcntl(dir.as_raw_fd(), nix::libc::F_DUPFD, 100) };
        assert!(left >= 100);
        // SAFETY: The number is new, and nobody else's.
        let left = unsafe { OwnedFd::from_raw_fd(left) };
        let given = OwnedFd::from(dir);
        let script = "[ ! -e /proc/self/fd/$1 ] && [ -e /proc/self/fd/$2 ]";
        let mut command = Command::new("sh");
        command
            .args(["-c", script, "sh"])
            .arg(left.as_raw_fd().to_string())
            .arg(given.as_raw_fd().to_string());
        let mut child = Bound::spawn(&mut command, &[given]).unwrap();
        let status = child.wait_for(Duration::from_secs(60)).unwrap().unwrap();
        assert!(status.success(), "{status}");
        drop(left);
    }
}
