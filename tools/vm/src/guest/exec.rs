// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Running a command in the guest.
//!
//! The command gets pipes (or a terminal), never the ports themselves: a port can be opened only once, so
//! `/dev/stderr` would not work. When the command's own process has ended, everything that it left
//! behind is killed, the pipes are drained to their end, and only then is the result reported.

use super::ports::Port;
use super::Event;
use crate::protocol::read_stdin_frame;
use crate::protocol::Ending;
use crate::protocol::Exec;
use crate::protocol::Reply;
use crate::protocol::Request;
use crate::protocol::TermSize;
use crate::protocol::PORT_STDERR;
use crate::protocol::PORT_STDIN;
use crate::protocol::PORT_STDOUT;
use anyhow::Context;
use nix::errno::Errno;
use nix::pty::openpty;
use nix::pty::Winsize;
use nix::sys::signal::kill;
use nix::sys::signal::killpg;
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::sys::wait::WaitPidFlag;
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;
use std::fs::File;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;
use std::thread::JoinHandle;

mod ioctls {
    nix::ioctl_write_ptr_bad!(set_window_size, nix::libc::TIOCSWINSZ, nix::pty::Winsize);
    nix::ioctl_write_int_bad!(set_controlling_terminal, nix::libc::TIOCSCTTY);
}

/// Where frames of standard input go at the moment.
type Sink = Arc<Mutex<Option<File>>>;

/// Runs one command after the other.
pub(super) struct Runner {
    events: mpsc::Sender<Event>,
    stdout: Arc<File>,
    stderr: Arc<File>,
    sink: Sink,
    stdin_runs: bool,
}

/// A started command and the ends of its streams that are ours.
struct Started {
    child: Child,
    outputs: Vec<JoinHandle<u64>>,
    terminal: Option<File>,
}

impl Runner {
    /// Opens the ports of the standard streams.
    ///
    /// # Errors
    /// Where a port is missing.
    pub(super) fn new(events: mpsc::Sender<Event>) -> anyhow::Result<Self> {
        Ok(Self {
            events,
            stdout: Arc::new(Port::open(PORT_STDOUT)?.into_file()),
            stderr: Arc::new(Port::open(PORT_STDERR)?.into_file()),
            sink: Sink::default(),
            stdin_runs: false,
        })
    }

    /// Runs `exec` to its end, heeding what the host asks for meanwhile.
    ///
    /// # Errors
    /// Where the guest itself is out of order; a command that cannot start is a reply.
    pub(super) fn run(&mut self, exec: &Exec, events: &Receiver<Event>) -> anyhow::Result<Reply> {
        let started = match self.start(exec) {
            Ok(started) => started,
            Err(error) => return Ok(not_started(exec, &error)),
        };
        let Started {
            child,
            outputs,
            terminal,
        } = started;
        // CAST: process ids are positive i32.
        let pid = Pid::from_raw(child.id() as i32);
        let sender = self.events.clone();
        thread::spawn(move || {
            let _ = sender.send(Event::Exited(reap_until(pid)));
        });
        let ending = loop {
            match events.recv().context("all senders are gone")? {
                Event::Exited(ending) => break ending,
                Event::Request(Request::Signal { signal }) => {
                    if let Ok(signal) = Signal::try_from(signal) {
                        // It may have ended this instant.
                        let _ = killpg(pid, signal);
                    }
                }
                Event::Request(Request::Resize(size)) => {
                    if let Some(terminal) = &terminal {
                        resize(terminal, size);
                    }
                }
                Event::Request(Request::SysRq { keys }) => super::kmsg::sysrq(&keys),
                Event::Request(Request::Finish { .. }) | Event::HostGone => {
                    let _ = killpg(pid, Signal::SIGKILL);
                }
                Event::Request(Request::Setup(_) | Request::Exec(_)) => {
                    let _ = super::kmsg::say("request out of turn ignored");
                }
            }
        };
        kill_all();
        *self.sink.lock().unwrap_or_else(PoisonError::into_inner) = None;
        // The terminal's relay reads from a duplicate; with this one gone and no process left it ends.
        drop(terminal);
        let mut counts = outputs.into_iter().map(|relay| relay.join().unwrap_or(0));
        Ok(Reply::Exited {
            ending,
            stdout: counts.next().unwrap_or(0),
            stderr: counts.next().unwrap_or(0),
        })
    }

    fn start(&mut self, exec: &Exec) -> io::Result<Started> {
        let (program, args) = exec
            .argv
            .split_first()
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .envs(exec.env.iter().cloned())
            .current_dir(&exec.cwd);
        match exec.tty {
            Some(size) => self.start_on_terminal(command, size),
            None => self.start_on_pipes(command, exec.stdin),
        }
    }

    fn start_on_pipes(&mut self, mut command: Command, stdin: bool) -> io::Result<Started> {
        command
            .process_group(0)
            .stdin(if stdin { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut outputs = Vec::new();
        if let Some(pipe) = child.stdout.take() {
            outputs.push(relay(OwnedFd::from(pipe).into(), Arc::clone(&self.stdout)));
        }
        if let Some(pipe) = child.stderr.take() {
            outputs.push(relay(OwnedFd::from(pipe).into(), Arc::clone(&self.stderr)));
        }
        if let Some(pipe) = child.stdin.take() {
            self.feed(OwnedFd::from(pipe).into())?;
        }
        Ok(Started {
            child,
            outputs,
            terminal: None,
        })
    }

    fn start_on_terminal(&mut self, mut command: Command, size: TermSize) -> io::Result<Started> {
        let pty = openpty(&window(size), None)?;
        command
            .stdin(pty.slave.try_clone()?)
            .stdout(pty.slave.try_clone()?)
            .stderr(pty.slave);
        let make_leader = || {
            nix::unistd::setsid()?;
            // SAFETY: File descriptor 0 is the terminal that std just put there, and the call takes a
            // plain integer, so no memory is involved.
            unsafe { ioctls::set_controlling_terminal(0, 0) }?;
            Ok(())
        };
        // SAFETY: Between fork and exec the closure makes two system calls and allocates nothing.
        unsafe { command.pre_exec(make_leader) };
        let child = command.spawn()?;
        // `command` still owns our copies of the slave; the relay ends only without them.
        drop(command);
        let master = File::from(pty.master);
        let outputs = vec![relay(master.try_clone()?, Arc::clone(&self.stdout))];
        self.feed(master.try_clone()?)?;
        Ok(Started {
            child,
            outputs,
            terminal: Some(master),
        })
    }

    /// Sends what arrives on the stdin port to `to`.
    fn feed(&mut self, to: File) -> io::Result<()> {
        *self.sink.lock().unwrap_or_else(PoisonError::into_inner) = Some(to);
        if self.stdin_runs {
            return Ok(());
        }
        let mut port = Port::open(PORT_STDIN)
            .map_err(io::Error::other)?
            .into_file();
        let sink = Arc::clone(&self.sink);
        thread::spawn(move || {
            while let Ok(frame) = read_stdin_frame(&mut port) {
                let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
                let broken = match (&mut *sink, frame) {
                    // A command that does not read its input just gets no more of it.
                    (Some(to), Some(data)) => to.write_all(&data).is_err(),
                    (_, None) => true,
                    (None, Some(_)) => false,
                };
                if broken {
                    *sink = None;
                }
            }
        });
        self.stdin_runs = true;
        Ok(())
    }
}

fn not_started(exec: &Exec, error: &io::Error) -> Reply {
    let program = exec.argv.first().map_or("", String::as_str);
    let missing = error.kind() == io::ErrorKind::NotFound;
    Reply::NotStarted {
        status: if missing { 127 } else { 126 },
        error: format!("{program}: {error}"),
    }
}

fn window(size: TermSize) -> Winsize {
    Winsize {
        ws_row: size.rows,
        ws_col: size.cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn resize(terminal: &File, size: TermSize) {
    let window = window(size);
    // SAFETY: The descriptor is open for the life of `terminal`, and `window` outlives the call.
    let _ = unsafe { ioctls::set_window_size(terminal.as_raw_fd(), &window) };
}

/// Copies `from` to a port until its end; the thread's result is the number of bytes.
fn relay(mut from: File, port: Arc<File>) -> JoinHandle<u64> {
    thread::spawn(move || {
        let mut total = 0;
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = match from.read(&mut buffer) {
                // A terminal without processes answers EIO.
                Ok(0) | Err(_) => return total,
                Ok(length) => length,
            };
            let data = buffer.get(..length).unwrap_or(&[]);
            if (&*port).write_all(data).is_err() {
                return total;
            }
            // CAST: usize is 64 bits wide here.
            total += length as u64;
        }
    })
}

/// Reaps children until `pid` is among them. Process 1 inherits orphans, which are reaped on the way.
fn reap_until(pid: Pid) -> Ending {
    loop {
        match waitpid(None, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Exited(ended, code)) if ended == pid => return Ending::Code(code),
            Ok(WaitStatus::Signaled(ended, signal, _)) if ended == pid => {
                return Ending::Signal(signal as i32)
            }
            Err(Errno::ECHILD) => return Ending::Code(255),
            Ok(_) | Err(_) => {}
        }
    }
}

/// Kills every process but this one and waits until all are gone.
pub(super) fn kill_all() {
    // ESRCH: there is none.
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    loop {
        match waitpid(None, Some(WaitPidFlag::__WALL)) {
            Err(Errno::EINTR) | Ok(_) => {}
            Err(_) => return,
        }
    }
}
