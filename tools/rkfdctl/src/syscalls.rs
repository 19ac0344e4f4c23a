// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Counts the system calls that a piece of code makes.
//!
//! An address space on a GPU belongs to the process that opened it, so the code to be counted cannot move into a child
//! of that process. Instead the whole work runs in a child from the start, and its parent watches it by ptrace while
//! it says so. A window opens and closes with a SIGSTOP that the child sends itself by one raw `kill`; that `kill` is
//! the only call which is not counted. The result goes back to the child through a pipe.

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
use nix::sys::wait::WaitStatus;
use nix::unistd::fork;
use nix::unistd::ForkResult;
use nix::unistd::Pid;

/// Most call numbers that are handed back; more are only counted.
const NAMED: usize = 8;

/// The child's end: opens windows.
#[derive(Debug)]
pub struct Counter {
    pid: libc::pid_t,
    answers: File,
}

/// What happened in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// System calls made.
    pub calls: u64,
    /// Numbers of the first few.
    pub numbers: Vec<u64>,
}

impl Counter {
    /// Runs `work` and counts its system calls.
    ///
    /// # Errors
    /// Where the watcher is gone.
    pub fn count<T>(&mut self, work: impl FnOnce() -> T) -> anyhow::Result<(T, Count)> {
        self.mark();
        let out = work();
        self.mark();
        let mut words = [0u64; NAMED + 1];
        for word in &mut words {
            let mut buf = [0; 8];
            self.answers
                .read_exact(&mut buf)
                .context("the watching process is gone")?;
            *word = u64::from_le_bytes(buf);
        }
        let [calls, numbers @ ..] = words;
        let named = usize::try_from(calls).unwrap_or(NAMED).min(NAMED);
        Ok((
            out,
            Count {
                calls,
                numbers: numbers.into_iter().take(named).collect(),
            },
        ))
    }

    /// One raw `kill`, so that the window's edge is exactly one system call.
    fn mark(&self) {
        // SAFETY: `kill` with this process's own id and a signal that the watcher swallows; no memory is involved.
        unsafe { libc::syscall(libc::SYS_kill, self.pid, libc::SIGSTOP) };
    }
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
                        pid: nix::unistd::getpid().as_raw(),
                        answers: File::from(read),
                    };
                    // The first stop hands over the watch.
                    counter.mark();
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

fn watch(child: Pid, mut answers: File) -> anyhow::Result<ExitCode> {
    let mut window: Option<Count> = None;
    let mut ready = false;
    loop {
        let signal = match waitpid(child, None).context("waitpid")? {
            WaitStatus::Exited(_, 0) => return Ok(ExitCode::SUCCESS),
            WaitStatus::Exited(_, _) => return Ok(ExitCode::FAILURE),
            WaitStatus::Signaled(_, signal, _) => bail!("the demo was killed by {signal}"),
            WaitStatus::Stopped(_, Signal::SIGSTOP) if !ready => {
                ptrace::setoptions(
                    child,
                    ptrace::Options::PTRACE_O_TRACESYSGOOD | ptrace::Options::PTRACE_O_EXITKILL,
                )
                .context("ptrace options")?;
                ready = true;
                None
            }
            WaitStatus::Stopped(_, Signal::SIGSTOP) => {
                window = match window.take() {
                    None => Some(Count {
                        calls: 0,
                        numbers: Vec::new(),
                    }),
                    Some(count) => {
                        send(&mut answers, &count)?;
                        None
                    }
                };
                None
            }
            WaitStatus::Stopped(_, signal) => Some(signal),
            WaitStatus::PtraceSyscall(_) => {
                if let (Some(count), Some(number)) = (&mut window, entered(child)?) {
                    count.calls += 1;
                    if count.numbers.len() < NAMED {
                        count.numbers.push(number);
                    }
                }
                None
            }
            _ => None,
        };
        if window.is_some() {
            ptrace::syscall(child, signal)
        } else {
            ptrace::cont(child, signal)
        }
        .context("ptrace")?;
    }
}

/// The number of the system call that the child is entering, unless it is leaving one or it is the window's edge.
fn entered(child: Pid) -> anyhow::Result<Option<u64>> {
    let mut info = MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
    // SAFETY: the kernel writes at most the size given into a structure of that size, which is valid when zeroed.
    // (The wrapper of `nix` tells the kernel a size of 0 and so gets nothing.)
    let info = unsafe {
        let size = size_of::<libc::ptrace_syscall_info>();
        let filled = libc::ptrace(
            libc::PTRACE_GET_SYSCALL_INFO,
            child.as_raw(),
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
    let edge = number == libc::SYS_kill as u64
        && args[0] == child.as_raw() as u64
        && args[1] == libc::SIGSTOP as u64;
    Ok((!edge).then_some(number))
}

fn send(answers: &mut File, count: &Count) -> anyhow::Result<()> {
    let mut bytes = count.calls.to_le_bytes().to_vec();
    for i in 0..NAMED {
        bytes.extend(count.numbers.get(i).copied().unwrap_or(0).to_le_bytes());
    }
    answers.write_all(&bytes).context("the child is gone")
}
