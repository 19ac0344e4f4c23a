// SPDX-License-Identifier: GPL-2.0 OR MIT
//! One command: its output, its time, its interruption.

use super::Deadline;
use super::Event;
use super::Lost;
use super::Outcome;
use super::Session;
use super::Stream;
use super::KILL_DEADLINE;
use super::SYSRQ_ON_HANG;
use crate::complaints::Policy;
use crate::protocol::Exec;
use crate::protocol::Reply;
use crate::protocol::Request;
use std::time::Duration;
use std::time::Instant;

/// How long a command may take over an interrupt before it is killed.
const INTERRUPT_DEADLINE: Duration = Duration::from_secs(20);

impl Session {
    /// Runs a command and hands its output to `sink` as it comes.
    pub fn exec(
        &mut self,
        exec: Exec,
        limit: Option<Duration>,
        sink: &mut dyn FnMut(Stream, &[u8]),
    ) -> Outcome {
        let done = format!("done {}", exec.label);
        if let Err(error) = self.send(&Request::Exec(exec)) {
            self.drain();
            return Outcome::VmLost(error.to_string());
        }
        let outcome = self.run_to_end(limit, sink);
        self.timings.end("command, to its end");
        if matches!(outcome, Outcome::VmLost(_)) {
            self.drain();
        } else if !matches!(outcome, Outcome::NotStarted { .. }) {
            // The kernel's messages up to the mark belong to this command; the mark itself comes after
            // the reply only by the time that the port takes.
            let deadline = Deadline::new("the kernel log", KILL_DEADLINE);
            while self.last_mark != done {
                if let Err(lost) = self.next(&deadline) {
                    return Outcome::VmLost(lost.to_string());
                }
            }
        }
        outcome
    }

    fn run_to_end(
        &mut self,
        limit: Option<Duration>,
        sink: &mut dyn FnMut(Stream, &[u8]),
    ) -> Outcome {
        let mut deadline = Deadline {
            what: "the command",
            end: limit.map(|limit| Instant::now() + limit),
            limit: limit.unwrap_or_default(),
        };
        let (mut out, mut err) = (0, 0);
        // Why it is being ended, and whether it has been killed for that.
        let mut cut = None;
        let mut killed = false;
        let mut ended = None;
        loop {
            if let Some((ending, all_out, all_err)) = ended {
                if out >= all_out && err >= all_err {
                    return cut.unwrap_or(Outcome::Ended(ending));
                }
            }
            match self.next(&deadline) {
                Ok(Event::Data(stream, data)) => {
                    if out + err == 0 {
                        self.timings.end("command, to its first output");
                    }
                    // CAST: usize is 64 bits wide here.
                    match stream {
                        Stream::Out => out += data.len() as u64,
                        Stream::Err => err += data.len() as u64,
                    }
                    sink(stream, &data);
                }
                Ok(Event::Reply(Reply::Exited {
                    ending,
                    stdout,
                    stderr,
                })) => ended = Some((ending, stdout, stderr)),
                Ok(Event::Reply(Reply::NotStarted { status, error })) => {
                    return Outcome::NotStarted { status, error }
                }
                Ok(Event::Resize(size)) => drop(self.send(&Request::Resize(size))),
                Ok(Event::Interrupt(signal)) => {
                    // Who asks again does not want to wait for what the command makes of it.
                    let signal = if cut.is_some() {
                        killed = true;
                        nix::libc::SIGKILL
                    } else {
                        cut = Some(Outcome::Interrupted(signal));
                        signal
                    };
                    let _ = self.send(&Request::Signal { signal });
                    let limit = if killed {
                        KILL_DEADLINE
                    } else {
                        INTERRUPT_DEADLINE
                    };
                    deadline = Deadline::new("the interrupted command", limit);
                }
                Ok(_) => {}
                Err(Lost::TooLong { .. }) if cut.is_some() && !killed => {
                    // It handles the signal and goes on.
                    killed = true;
                    let signal = nix::libc::SIGKILL;
                    let _ = self.send(&Request::Signal { signal });
                    deadline = Deadline::new("the killed command", KILL_DEADLINE);
                }
                Err(Lost::TooLong { .. }) if cut.is_none() => {
                    cut = Some(Outcome::TimedOut);
                    killed = true;
                    // What the kernel answers now is an account, not a complaint.
                    self.judge.set_policy(Policy {
                        allow_warnings: true,
                        ..Policy::default()
                    });
                    let _ = self.send(&Request::SysRq {
                        keys: SYSRQ_ON_HANG.into(),
                    });
                    let signal = nix::libc::SIGKILL;
                    let _ = self.send(&Request::Signal { signal });
                    deadline = Deadline::new("the killed command", KILL_DEADLINE);
                }
                Err(Lost::TooLong { .. }) => {
                    return Outcome::VmLost(
                        "the command was killed but does not go away: a task hangs in the kernel"
                            .into(),
                    )
                }
                Err(lost) => return Outcome::VmLost(lost.to_string()),
            }
        }
    }
}
