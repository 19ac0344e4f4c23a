// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Counts the system calls that a piece of code makes.
//!
//! An address space on a GPU belongs to the process that opened it, so the code to be counted cannot move into a child
//! of that process. Instead the whole work runs in a child from the start, and its parent watches it by ptrace while
//! it says so. A window opens and closes with a SIGSTOP that a thread sends itself by one raw `tgkill`; that `tgkill` is
//! the only call which is not counted. The result goes back to the child's first thread through a pipe, with what the
//! windows of other threads have counted since the last one.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::io::Write;
use std::mem::MaybeUninit;
use std::process::ExitCode;

use anyhow::bail;
use anyhow::Context;
use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::sys::wait::WaitPidFlag;
use nix::sys::wait::WaitStatus;
use nix::unistd::fork;
use nix::unistd::ForkResult;
use nix::unistd::Pid;

/// Most call numbers that are handed back; more are only counted.
const NAMED: usize = 8;

/// The child's end: opens windows.
#[derive(Debug)]
pub struct Counter {
    edge: Edge,
    answers: File,
}

/// What happened in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// System calls made.
    pub calls: u64,
    /// Numbers of the first few.
    pub numbers: Vec<u64>,
}

impl Count {
    fn note(&mut self, number: u64) {
        self.calls += 1;
        if self.numbers.len() < NAMED {
            self.numbers.push(number);
        }
    }

    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        let room = NAMED.saturating_sub(self.numbers.len());
        self.numbers.extend(other.numbers.iter().take(room));
    }

    fn read(from: &mut impl Read) -> anyhow::Result<Self> {
        let calls = word(from)?;
        let mut numbers = Vec::with_capacity(NAMED);
        for _ in 0..NAMED {
            numbers.push(word(from)?);
        }
        numbers.truncate(usize::try_from(calls).unwrap_or(NAMED));
        Ok(Self { calls, numbers })
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.calls.to_le_bytes().to_vec();
        for i in 0..NAMED {
            bytes.extend(self.numbers.get(i).copied().unwrap_or(0).to_le_bytes());
        }
        bytes
    }
}

fn word(from: &mut impl Read) -> anyhow::Result<u64> {
    let mut buf = [0; 8];
    from.read_exact(&mut buf)
        .context("the watching process is gone")?;
    Ok(u64::from_le_bytes(buf))
}

/// The edges of windows of a thread.
#[derive(Clone, Copy, Debug)]
struct Edge {
    process: libc::pid_t,
    thread: libc::pid_t,
}

impl Edge {
    /// Those of the caller; which it is takes calls of its own, so this comes before the window.
    fn of_caller() -> Self {
        Self {
            process: nix::unistd::getpid().as_raw(),
            thread: nix::unistd::gettid().as_raw(),
        }
    }

    /// One raw call.
    fn mark(self) {
        // SAFETY: `tgkill` with the caller's own ids and a signal that the watcher swallows; no memory is involved.
        unsafe { libc::syscall(libc::SYS_tgkill, self.process, self.thread, libc::SIGSTOP) };
    }
}

impl Counter {
    /// Runs `work` and counts its system calls.
    ///
    /// # Errors
    /// Where the watcher is gone.
    pub fn count<T>(&mut self, work: impl FnOnce() -> T) -> anyhow::Result<(T, Count)> {
        self.edge.mark();
        let out = work();
        self.edge.mark();
        let count = Count::read(&mut self.answers)?;
        Count::read(&mut self.answers)?;
        word(&mut self.answers)?;
        Ok((out, count))
    }

    /// What the windows of other threads have counted since the last count, and how many windows that were.
    ///
    /// # Errors
    /// Where the watcher is gone.
    pub fn of_threads(&mut self) -> anyhow::Result<(Count, u64)> {
        self.edge.mark();
        self.edge.mark();
        Count::read(&mut self.answers)?;
        Ok((Count::read(&mut self.answers)?, word(&mut self.answers)?))
    }
}

/// Runs `work` on a thread that is not the first, and counts its system calls for [`Counter::of_threads`].
pub fn on_thread<T>(work: impl FnOnce() -> T) -> T {
    let edge = Edge::of_caller();
    edge.mark();
    let out = work();
    edge.mark();
    out
}

/// Runs `work` in a child under watch and returns its exit status.
///
/// # Errors
/// Where fork, pipe or ptrace are refused, or the child dies by a signal.
pub fn watched(work: impl FnOnce(Counter) -> ExitCode + 'static) -> anyhow::Result<ExitCode> {
    let (read, write) = nix::unistd::pipe().context("pipe")?;
    // SAFETY: this program has a single thread, so the child may go on as it likes.
    match unsafe { fork() }.context("fork")? {
        ForkResult::Child => {
            drop(write);
            let code = match ptrace::traceme() {
                Ok(()) => {
                    let counter = Counter {
                        edge: Edge::of_caller(),
                        answers: File::from(read),
                    };
                    // The first stop hands over the watch.
                    counter.edge.mark();
                    work(counter)
                }
                Err(e) => {
                    eprintln!("rkfdctl: ptrace: {e}");
                    ExitCode::FAILURE
                }
            };
            let _ = std::io::stdout().flush();
            // ExitCode has no accessor; success is the only value that matters beside failure.
            std::process::exit(i32::from(code != ExitCode::SUCCESS));
        }
        ForkResult::Parent { child } => {
            drop(read);
            watch(child, File::from(write))
        }
    }
}

/// A thread of the child.
#[derive(Default)]
struct Traced {
    window: Option<Count>,
    ready: bool,
}

fn watch(child: Pid, mut answers: File) -> anyhow::Result<ExitCode> {
    let mut threads: HashMap<Pid, Traced> = HashMap::new();
    let (mut others, mut windows) = (Count::default(), 0u64);
    loop {
        let status = waitpid(None::<Pid>, Some(WaitPidFlag::__WALL)).context("waitpid")?;
        let Some(tid) = status.pid() else { continue };
        let thread = threads.entry(tid).or_default();
        let signal = match status {
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) if tid != child => {
                threads.remove(&tid);
                continue;
            }
            WaitStatus::Exited(_, 0) => return Ok(ExitCode::SUCCESS),
            WaitStatus::Exited(_, _) => return Ok(ExitCode::FAILURE),
            WaitStatus::Signaled(_, signal, _) => bail!("the demo was killed by {signal}"),
            // Each thread begins with one.
            WaitStatus::Stopped(_, Signal::SIGSTOP) if !thread.ready => {
                if tid == child {
                    ptrace::setoptions(
                        child,
                        ptrace::Options::PTRACE_O_TRACESYSGOOD
                            | ptrace::Options::PTRACE_O_EXITKILL
                            | ptrace::Options::PTRACE_O_TRACECLONE,
                    )
                    .context("ptrace options")?;
                }
                thread.ready = true;
                None
            }
            WaitStatus::Stopped(_, Signal::SIGSTOP) => {
                match thread.window.take() {
                    None => thread.window = Some(Count::default()),
                    Some(count) if tid == child => {
                        let mut bytes = count.bytes();
                        bytes.extend(std::mem::take(&mut others).bytes());
                        bytes.extend(std::mem::take(&mut windows).to_le_bytes());
                        answers.write_all(&bytes).context("the child is gone")?;
                    }
                    Some(count) => {
                        others.add(&count);
                        windows += 1;
                    }
                }
                None
            }
            WaitStatus::Stopped(_, signal) => Some(signal),
            WaitStatus::PtraceSyscall(_) => {
                if let Some(count) = &mut thread.window {
                    if let Some(number) = entered(tid, child)? {
                        count.note(number);
                    }
                }
                None
            }
            _ => None,
        };
        let went_on = if thread.window.is_some() {
            ptrace::syscall(tid, signal)
        } else {
            ptrace::cont(tid, signal)
        };
        match went_on {
            // Killed by the end of the process.
            Err(Errno::ESRCH) if tid != child => {}
            result => result.context("ptrace")?,
        }
    }
}

/// The number of the system call that a thread of the child is entering, unless it is leaving one or it is the window's
/// edge.
fn entered(thread: Pid, child: Pid) -> anyhow::Result<Option<u64>> {
    let mut info = MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
    // SAFETY: the kernel writes at most the size given into a structure of that size, which is valid when zeroed.
    // (The wrapper of `nix` tells the kernel a size of 0 and so gets nothing.)
    let info = unsafe {
        let size = size_of::<libc::ptrace_syscall_info>();
        let filled = libc::ptrace(
            libc::PTRACE_GET_SYSCALL_INFO,
            thread.as_raw(),
            size,
            info.as_mut_ptr(),
        );
        Errno::result(filled).context("ptrace syscall info")?;
        info.assume_init()
    };
    if info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return Ok(None);
    }
    // SAFETY: `op` says that the kernel filled the `entry` member.
    let (number, args) = unsafe { (info.u.entry.nr, info.u.entry.args) };
    // CAST: small non-negative constants and an id.
    let edge = number == libc::SYS_tgkill as u64
        && args[0] == child.as_raw() as u64
        && args[1] == thread.as_raw() as u64
        && args[2] == libc::SIGSTOP as u64;
    Ok((!edge).then_some(number))
}
