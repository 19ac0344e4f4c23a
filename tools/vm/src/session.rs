// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A booted VM: start, commands, end.
//!
//! Reader threads turn whatever arrives from the guest into events of one bounded channel; the thread
//! that owns the [`Session`] takes them one by one, so nothing here needs a lock. When QEMU goes, the
//! status port closes and every wait ends.

mod ports;

pub use ports::pump_stdin;

use crate::child::Bound;
use crate::complaints::console_line_is_report;
use crate::complaints::Judge;
use crate::complaints::Policy;
use crate::kmsg::Record;
use crate::model;
use crate::model::Model;
use crate::protocol::Ending;
use crate::protocol::Exec;
use crate::protocol::Reply;
use crate::protocol::Request;
use crate::protocol::Setup;
use crate::protocol::TermSize;
use crate::protocol::MARK;
use crate::protocol::MARK_END;
use crate::protocol::PORT_KMSG;
use crate::protocol::PORT_STATUS;
use crate::protocol::PORT_STDERR;
use crate::protocol::PORT_STDIN;
use crate::protocol::PORT_STDOUT;
use crate::qemu;
use crate::qemu::Gpu;
use crate::qemu::Machine;
use anyhow::Context;
use ports::read_data;
use ports::read_kmsg;
use ports::read_status;
use ports::Ports;
use std::fs;
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::SyncSender;
use std::time::Duration;
use std::time::Instant;

/// How long the kernel may take to reach `rkfd-init`; 1 to 2 s are usual, a debug kernel on a loaded
/// host needs many times that.
const BOOT_DEADLINE: Duration = Duration::from_secs(240);
/// How long loading the module (and running its KUnit suites) may take.
const SETUP_DEADLINE: Duration = Duration::from_secs(300);
/// How long a command may take over an interrupt before it is killed.
const INTERRUPT_DEADLINE: Duration = Duration::from_secs(20);
/// How long a killed command may take to be gone.
const KILL_DEADLINE: Duration = Duration::from_secs(60);
/// How long unloading and the leak check may take.
const FINISH_DEADLINE: Duration = Duration::from_secs(240);
/// How long the rest of a dead VM's output may take.
const DRAIN_DEADLINE: Duration = Duration::from_secs(3);
/// How long QEMU may take to end once the guest said that it is done.
const POWER_OFF_DEADLINE: Duration = Duration::from_secs(60);
/// Letters for `/proc/sysrq-trigger` when something hangs: blocked tasks, backtraces of busy CPUs.
const SYSRQ_ON_HANG: &str = "wl";

/// One of the command's output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// What a [`Session`] waits for.
#[derive(Debug)]
pub enum Event {
    /// The guest answers.
    Reply(Reply),
    /// Output of the command.
    Data(Stream, Vec<u8>),
    /// A kernel message.
    Kmsg(Record),
    /// A port closed.
    Closed(&'static str),
    /// The user wants to stop (SIGINT and the like).
    Interrupt(i32),
    /// The user's terminal changed its size.
    Resize(TermSize),
}

/// What to boot.
#[derive(Clone, Debug)]
pub struct Config {
    /// TCG or KVM.
    pub accel: crate::accel::Accel,
    /// Kernel image.
    pub kernel: PathBuf,
    /// Process 1 of the guest.
    pub init: PathBuf,
    /// The device model's program.
    pub model: PathBuf,
    /// ASIC of each modelled GPU.
    pub asics: Vec<String>,
    /// More options of each model's program.
    pub model_options: Vec<String>,
    /// PCI addresses of real cards.
    pub cards: Vec<String>,
    /// Guest memory.
    pub memory: String,
    /// Virtual CPUs.
    pub cpus: u32,
    /// What the guest prepares.
    pub setup: Setup,
    /// More kernel parameters.
    pub kernel_args: String,
    /// Which messages count.
    pub policy: Policy,
    /// Directory for logs; must exist.
    pub log_dir: PathBuf,
}

/// How a command went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// To its end.
    Ended(Ending),
    /// It could not be started.
    NotStarted {
        /// 126 or 127.
        status: i32,
        /// Why.
        error: String,
    },
    /// Its time was up; it was killed and the VM lives on.
    TimedOut,
    /// The user interrupted it.
    Interrupted(i32),
    /// The VM is gone or stuck; text says how.
    VmLost(String),
}

/// Why the VM cannot be used any more.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("the VM ended by itself")]
    Gone,
    #[error("{what} took longer than {} s", limit.as_secs())]
    TooLong { what: &'static str, limit: Duration },
    #[error("interrupted")]
    Interrupted(i32),
}

/// The user wanted to stop while the VM came up.
#[derive(Debug, thiserror::Error)]
#[error("interrupted by signal {0}")]
pub struct Interrupted(pub i32);

/// Both ends of what a [`Session`] waits on.
pub struct Channel(SyncSender<Event>, Receiver<Event>);

impl Channel {
    /// An empty one.
    pub fn new() -> Self {
        let (sender, events) = mpsc::sync_channel(64);
        Self(sender, events)
    }

    /// A sender for events from outside, such as signals.
    pub fn sender(&self) -> SyncSender<Event> {
        self.0.clone()
    }
}

impl Default for Channel {
    fn default() -> Self {
        Self::new()
    }
}

/// A running VM.
pub struct Session {
    qemu: Bound,
    models: Vec<Model>,
    events: Receiver<Event>,
    status: UnixStream,
    stdin: UnixStream,
    judge: Judge,
    complaints: Vec<Record>,
    kernel_log: Vec<Record>,
    last_mark: String,
    /// Ports that the guest may still say something on.
    open_ports: usize,
    log_dir: PathBuf,
    // Last: its directory holds the sockets of everything above.
    _run_dir: tempfile::TempDir,
}

impl Session {
    /// Starts models and QEMU and prepares the guest.
    ///
    /// The calling thread must live as long as the session: the kernel ties the processes to it.
    ///
    /// # Errors
    /// What did not come up, with the last lines of the log that tells why.
    pub fn boot(config: &Config) -> anyhow::Result<Self> {
        Self::boot_on(config, Channel::new())
    }

    /// The same, heeding what arrives on `channel` from the start.
    ///
    /// # Errors
    /// As [`Session::boot`]; [`Interrupted`] is in the chain where the user wanted to stop.
    pub fn boot_on(config: &Config, channel: Channel) -> anyhow::Result<Self> {
        let run_dir = tempfile::Builder::new().prefix("rkfd-vm.").tempdir()?;
        let mut models = Vec::new();
        let mut gpus = Vec::new();
        for (index, asic) in config.asics.iter().enumerate() {
            let model = Model::start(&model::Spec {
                program: &config.model,
                asic,
                options: &config.model_options,
                index,
                run_dir: run_dir.path(),
                log_dir: &config.log_dir,
            })?;
            gpus.push(Gpu::Model {
                socket: model.socket().to_owned(),
                control: model.control().to_owned(),
            });
            models.push(model);
        }
        gpus.extend(config.cards.iter().map(|address| Gpu::Card {
            address: address.clone(),
        }));

        let ports = Ports::new().context("making the ports")?;
        let qemu_log = config.log_dir.join("qemu.log");
        let machine = Machine {
            accel: config.accel,
            kernel: &config.kernel,
            root: Path::new("/"),
            init: &config.init,
            memory: &config.memory,
            cpus: config.cpus,
            gpus: &gpus,
            shares: &config.setup.shares,
            ports: &ports.numbers(),
            console: &config.log_dir.join("console.log"),
            kernel_args: &config.kernel_args,
        };
        let args = machine.args();
        write_command_line(&config.log_dir, &args);
        let log = File::create(&qemu_log).context("making QEMU's log")?;
        let mut command = Command::new(qemu::PROGRAM);
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let qemu = Bound::spawn(&mut command, &ports.theirs)
            .with_context(|| format!("starting {}", qemu::PROGRAM))?;

        let Channel(sender, events) = channel;
        read_status(ports.get(PORT_STATUS)?, sender.clone());
        read_kmsg(
            ports.get(PORT_KMSG)?,
            sender.clone(),
            File::create(config.log_dir.join("kernel.log"))?,
        );
        for (name, stream) in [(PORT_STDOUT, Stream::Out), (PORT_STDERR, Stream::Err)] {
            read_data(name, ports.get(name)?, stream, sender.clone());
        }
        let status = ports.get(PORT_STATUS)?;
        let stdin = ports.get(PORT_STDIN)?;
        // Our copies of QEMU's ends must go, or its death would not close the ports.
        drop(ports);

        let mut session = Self {
            qemu,
            models,
            events,
            status,
            stdin,
            judge: Judge::new(config.policy.clone()),
            complaints: Vec::new(),
            kernel_log: Vec::new(),
            last_mark: String::new(),
            open_ports: 4,
            log_dir: config.log_dir.clone(),
            _run_dir: run_dir,
        };
        session.prepare(&config.setup)?;
        Ok(session)
    }

    fn prepare(&mut self, setup: &Setup) -> anyhow::Result<()> {
        match self.reply("booting", BOOT_DEADLINE) {
            Ok(Reply::Ready) => {}
            Ok(other) => anyhow::bail!("the guest began with {other:?}"),
            Err(Lost::Interrupted(signal)) => return Err(Interrupted(signal).into()),
            Err(lost) => {
                self.drain();
                anyhow::bail!("the VM did not come up: {lost}{}", self.last_words())
            }
        }
        self.send(&Request::Setup(setup.clone()))?;
        match self.reply("loading the module", SETUP_DEADLINE) {
            Ok(Reply::SetUp { error: None }) => Ok(()),
            Ok(Reply::SetUp { error: Some(error) }) => {
                let log = self.kernel_tail();
                anyhow::bail!("{error}\n  the kernel log ends:\n{log}")
            }
            Ok(other) => anyhow::bail!("the guest answered {other:?} to its set-up"),
            Err(Lost::Interrupted(signal)) => Err(Interrupted(signal).into()),
            Err(lost) => {
                self.drain();
                anyhow::bail!("while loading the module: {lost}{}", self.last_words())
            }
        }
    }

    /// The host's end of the command's standard input; write frames of [`crate::protocol::stdin_frame`].
    ///
    /// # Errors
    /// Where the descriptor cannot be duplicated.
    pub fn stdin(&self) -> io::Result<UnixStream> {
        self.stdin.try_clone()
    }

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
                if (out, err) >= (all_out, all_err) && out >= all_out && err >= all_err {
                    return cut.unwrap_or(Outcome::Ended(ending));
                }
            }
            match self.next(&deadline) {
                Ok(Event::Data(stream, data)) => {
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

    /// The control sockets of the models, in order.
    pub fn controls(&self) -> Vec<PathBuf> {
        let paths = self.models.iter().map(|model| model.control().to_owned());
        paths.collect()
    }

    /// The complaints since the last call.
    pub fn take_complaints(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.complaints)
    }

    /// The kernel messages since the last call.
    pub fn take_kernel_log(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.kernel_log)
    }

    /// Which messages count from now on.
    pub fn set_policy(&mut self, policy: Policy) {
        self.judge.set_policy(policy);
    }

    /// Unloads, powers off and returns everything that was wrong at the end: leaks, what the models
    /// counted, a kernel that broke. Kernel messages remain in [`Verdict::complaints`].
    pub fn finish(mut self, keep: bool) -> Verdict {
        let mut problems = Vec::new();
        let mut interrupted = None;
        match self.end_guest(keep) {
            Ok(found) => problems.extend(found),
            Err(error) => match error.downcast_ref::<Interrupted>() {
                Some(Interrupted(signal)) => interrupted = Some(*signal),
                None => problems.push(format!("the VM could not be ended in order: {error:#}")),
            },
        }
        let mut verdict = self.close(problems, interrupted.is_some());
        verdict.interrupted = interrupted;
        verdict
    }

    /// Ends a VM that is lost, without asking it.
    pub fn abandon(mut self) -> Verdict {
        self.drain();
        let words = self.last_words();
        let problems = if words.is_empty() {
            Vec::new()
        } else {
            vec![words]
        };
        self.close(problems, false)
    }

    fn end_guest(&mut self, keep: bool) -> anyhow::Result<Vec<String>> {
        self.send(&Request::Finish { keep })?;
        let reply = self.reply("unloading the module", FINISH_DEADLINE);
        let problems = match reply {
            Ok(Reply::Finished { problems }) => problems,
            Ok(other) => anyhow::bail!("the guest answered {other:?}"),
            Err(Lost::Interrupted(signal)) => return Err(Interrupted(signal).into()),
            Err(lost) => {
                let _ = self.send(&Request::SysRq {
                    keys: SYSRQ_ON_HANG.into(),
                });
                self.drain();
                anyhow::bail!("{lost}{}", self.last_words())
            }
        };
        let deadline = Deadline::new("the end of the kernel log", KILL_DEADLINE);
        while self.last_mark != MARK_END {
            match self.next(&deadline) {
                Ok(_) => {}
                // The guest may be off before its last messages have passed through here.
                Err(Lost::Gone) if self.open_ports > 0 => {}
                Err(_) => anyhow::bail!("the kernel log did not come to its end"),
            }
        }
        Ok(problems)
    }

    /// Ends the processes. One who is in a hurry waits for nobody and asks nobody.
    fn close(self, mut problems: Vec<String>, hurry: bool) -> Verdict {
        let Self {
            mut qemu,
            models,
            complaints,
            kernel_log,
            log_dir,
            ..
        } = self;
        if hurry {
            drop(qemu.kill());
            drop(models);
        } else {
            match qemu.wait_for(POWER_OFF_DEADLINE) {
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => drop(qemu.kill()),
            }
            for model in models {
                problems.extend(model.finish());
            }
        }
        Verdict {
            problems,
            complaints,
            kernel_log,
            log_dir,
            interrupted: None,
        }
    }

    fn send(&mut self, request: &Request) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        self.status
            .write_all(line.as_bytes())
            .context("the VM no longer listens")
    }

    /// The next event; kernel messages are judged on the way.
    fn next(&mut self, deadline: &Deadline) -> Result<Event, Lost> {
        let event = match deadline.end {
            None => self.events.recv().map_err(|_| Lost::Gone)?,
            Some(end) => {
                let left = end.saturating_duration_since(Instant::now());
                self.events
                    .recv_timeout(left)
                    .map_err(|error| match error {
                        RecvTimeoutError::Timeout => Lost::TooLong {
                            what: deadline.what,
                            limit: deadline.limit,
                        },
                        RecvTimeoutError::Disconnected => Lost::Gone,
                    })?
            }
        };
        match &event {
            Event::Kmsg(record) => self.take_record(record.clone()),
            Event::Closed(port) => {
                self.open_ports = self.open_ports.saturating_sub(1);
                if *port == PORT_STATUS {
                    return Err(Lost::Gone);
                }
            }
            _ => {}
        }
        Ok(event)
    }

    fn take_record(&mut self, record: Record) {
        if self.judge.counts(&record) {
            self.complaints.push(record.clone());
        }
        if let (false, Some(mark)) = (record.from_kernel, record.text.strip_prefix(MARK)) {
            mark.clone_into(&mut self.last_mark);
        }
        self.kernel_log.push(record);
    }

    fn reply(&mut self, what: &'static str, limit: Duration) -> Result<Reply, Lost> {
        let deadline = Deadline::new(what, limit);
        loop {
            match self.next(&deadline)? {
                Event::Reply(reply) => return Ok(reply),
                Event::Interrupt(signal) => return Err(Lost::Interrupted(signal)),
                _ => {}
            }
        }
    }

    /// Takes what a dying VM still said.
    fn drain(&mut self) {
        let deadline = Deadline::new("the rest", DRAIN_DEADLINE);
        while self.open_ports > 0 {
            if matches!(
                self.next(&deadline),
                Err(Lost::TooLong { .. } | Lost::Interrupted(_))
            ) {
                return;
            }
        }
    }

    fn kernel_tail(&self) -> String {
        let from = self.kernel_log.len().saturating_sub(12);
        let last = self.kernel_log.iter().skip(from);
        let lines: Vec<String> = last.map(|record| format!("    | {record}")).collect();
        lines.join("\n")
    }

    /// What QEMU and the console said last, where a VM died; empty where there is nothing to say.
    fn last_words(&self) -> String {
        let mut words = String::new();
        let qemu = model::tail(&self.log_dir.join("qemu.log"));
        if !qemu.is_empty() {
            words.push_str(&format!("\n  QEMU said:\n{qemu}"));
        }
        let console = fs::read(self.log_dir.join("console.log")).unwrap_or_default();
        let console = String::from_utf8_lossy(&console);
        let lines: Vec<&str> = console.lines().collect();
        let report = lines.iter().position(|line| console_line_is_report(line));
        let from = report.unwrap_or(lines.len().saturating_sub(10));
        let shown: Vec<String> = lines
            .iter()
            .skip(from)
            .take(60)
            .map(|line| format!("    | {line}"))
            .collect();
        if !shown.is_empty() {
            words.push_str(&format!("\n  the console said:\n{}", shown.join("\n")));
        }
        words
    }
}

/// What is known when a VM has ended.
#[derive(Debug)]
pub struct Verdict {
    /// Leaks, protocol errors, broken ends; one text each.
    pub problems: Vec<String>,
    /// Kernel messages that count and were not taken before.
    pub complaints: Vec<Record>,
    /// Kernel messages not taken before.
    pub kernel_log: Vec<Record>,
    /// Where the logs are.
    pub log_dir: PathBuf,
    /// The user interrupted the end, so that the rest is not known.
    pub interrupted: Option<i32>,
}

struct Deadline {
    what: &'static str,
    end: Option<Instant>,
    limit: Duration,
}

impl Deadline {
    fn new(what: &'static str, limit: Duration) -> Self {
        Self {
            what,
            end: Some(Instant::now() + limit),
            limit,
        }
    }
}

fn write_command_line(log_dir: &Path, args: &[std::ffi::OsString]) {
    let mut text = qemu::PROGRAM.to_owned();
    for arg in args {
        text.push_str(&format!(" '{}'", arg.to_string_lossy()));
    }
    text.push('\n');
    // Only for the curious.
    let _ = fs::write(log_dir.join("qemu.cmdline"), text);
}
