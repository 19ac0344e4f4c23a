// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A booted VM: start, commands, end.
//!
//! Reader threads turn whatever arrives from the guest into events of one bounded channel; the thread
//! that owns the [`Session`] takes them one by one, so nothing here needs a lock. When QEMU goes, the
//! status port closes and every wait ends.

mod command;
mod end;
mod inbox;
mod ports;

pub use end::Verdict;
pub use ports::pump_stdin;

use crate::budget::Budget;
use crate::budget::Claim;
use crate::child::Bound;
use crate::complaints::Judge;
use crate::complaints::Policy;
use crate::jail;
use crate::kmsg::Record;
use crate::log::Bounded;
use crate::log::Copier;
use crate::log::Records;
use crate::model;
use crate::model::Model;
use crate::protocol::Ending;
use crate::protocol::Reply;
use crate::protocol::Request;
use crate::protocol::Setup;
use crate::protocol::TermSize;
use crate::protocol::MARK;
use crate::protocol::PORT_KMSG;
use crate::protocol::PORT_STATUS;
use crate::protocol::PORT_STDERR;
use crate::protocol::PORT_STDIN;
use crate::protocol::PORT_STDOUT;
use crate::qemu;
use crate::qemu::Gpu;
use crate::qemu::Machine;
use crate::run_dir::RunDir;
use crate::timings::Timings;
use crate::tsc;
use anyhow::Context;
use inbox::Inbox;
use inbox::Nothing;
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use ports::read_data;
use ports::read_kmsg;
use ports::read_status;
use ports::Ports;
use std::fs;
use std::fs::File;
use std::io;
use std::io::IsTerminal;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;
use std::time::Instant;

/// How long the kernel may take to reach `rkfd-init`; 1 to 2 s are usual, a debug kernel on a loaded
/// host needs many times that.
const BOOT_DEADLINE: Duration = Duration::from_secs(240);
/// How long loading the module (and running its KUnit suites) may take: a minute on a machine with nothing else to do, several
/// times that beside other VMs and on the debug kernel.
const SETUP_DEADLINE: Duration = Duration::from_secs(1200);
/// How long a killed command may take to be gone.
const KILL_DEADLINE: Duration = Duration::from_secs(60);
/// Pause between two looks at the memory that others leave.
const CLAIM_INTERVAL: Duration = Duration::from_millis(100);
/// How long a run waits for memory before it says so, on a terminal and elsewhere.
const CLAIM_HINT: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(60)];
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
    /// The program that starts QEMU with nothing else in reach.
    pub jail: PathBuf,
    /// What is in QEMU's reach.
    pub reach: jail::Spec,
    /// The memory that runs share, and how much of it this one may come to use, in MiB.
    pub budget: Option<(Budget, u64)>,
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
    /// Guest memory in MiB.
    pub memory: u64,
    /// Virtual CPUs.
    pub cpus: u32,
    /// NUMA nodes, which memory and virtual CPUs can be divided among.
    pub nodes: u32,
    /// What the guest prepares.
    pub setup: Setup,
    /// Timer ticks per second of the kernel, if its configuration says so.
    pub hz: Option<u64>,
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
    events: Inbox,
    status: UnixStream,
    stdin: UnixStream,
    judge: Judge,
    complaints: Records,
    kernel_log: Records,
    last_mark: String,
    /// Logs of QEMU and of the console.
    copiers: [Copier; 2],
    /// The log of the kernel, whose thread waits for one who takes its events.
    kmsg: Copier,
    timings: Timings,
    log_dir: PathBuf,
    // Last: these are in use by everything above.
    _run_dir: RunDir,
    _claim: Option<Claim>,
}

impl Session {
    /// Starts models and QEMU and prepares the guest.
    ///
    /// The calling thread must live as long as the session: the kernel ties the processes to it.
    ///
    /// # Errors
    /// What did not come up, with the last lines of the log that tells why.
    pub fn boot(config: &Config) -> anyhow::Result<Self> {
        Self::boot_on(config, Channel::new(), Timings::default())
    }

    /// The same, heeding what arrives on `channel` from the start, and going on with `timings`.
    ///
    /// # Errors
    /// As [`Session::boot`]; [`Interrupted`] is in the chain where the user wanted to stop.
    pub fn boot_on(
        config: &Config,
        channel: Channel,
        mut timings: Timings,
    ) -> anyhow::Result<Self> {
        let claim = claim(config, &channel)?;
        timings.end("waiting for memory");
        let run_dir = RunDir::new()?;
        let [sockets, base] = ["sockets", "root"].map(|name| run_dir.path().join(name));
        for dir in [&sockets, &base] {
            fs::create_dir(dir).with_context(|| format!("making {}", dir.display()))?;
        }
        let mut models = Vec::new();
        let mut gpus = Vec::new();
        for (index, asic) in config.asics.iter().enumerate() {
            let model = Model::start(&model::Spec {
                program: &config.model,
                asic,
                options: &config.model_options,
                index,
                sockets: &sockets,
                log_dir: &config.log_dir,
            })?;
            let name = |path: &Path| {
                let name = path.file_name().unwrap_or_default();
                name.to_string_lossy().into_owned()
            };
            gpus.push(Gpu::Model {
                socket: name(model.socket()),
                control: name(model.control()),
            });
            models.push(model);
        }
        gpus.extend(config.cards.iter().map(|address| Gpu::Card {
            address: address.clone(),
        }));

        timings.end("GPU models");

        let mut ports = Ports::new().context("making the ports")?;
        let (console, console_end) = UnixStream::pair().context("making the console")?;
        let machine = Machine {
            accel: config.accel,
            init: &config.init,
            memory: config.memory,
            cpus: config.cpus,
            nodes: config.nodes,
            gpus: &gpus,
            shares: &config.setup.shares,
            ports: &ports.numbers(),
            console: console_end.as_raw_fd(),
            tsc_khz: tsc::khz(),
            hz: config.hz,
            kernel_args: &config.kernel_args,
        };
        ports.theirs.push(console_end.into());
        let args = machine.args();
        let reach = jail::Spec {
            base,
            sockets,
            ..config.reach.clone()
        };
        write_command_line(&config.log_dir, &args, &reach);
        let (said, to_say) = pipe2(OFlag::O_CLOEXEC).context("making QEMU's log")?;
        let log = |name: &str| config.log_dir.join(name);
        let copiers = [
            Copier::start(File::from(said), &log("qemu.log")).context("making QEMU's log")?,
            Copier::start(console, &log("console.log")).context("making the console's log")?,
        ];
        let mut command = Command::new(&config.jail);
        command
            .args(reach.args(args)?)
            .stdin(Stdio::null())
            .stdout(to_say.try_clone()?)
            .stderr(to_say);
        let qemu = Bound::spawn(&mut command, &ports.theirs)
            .with_context(|| format!("starting {}", config.jail.display()))?;
        // It holds our copies of the end that QEMU writes to.
        drop(command);

        let Channel(sender, events) = channel;
        read_status(ports.get(PORT_STATUS)?, sender.clone());
        let kmsg = read_kmsg(
            ports.get(PORT_KMSG)?,
            sender.clone(),
            Bounded::new(File::create(config.log_dir.join("kernel.log"))?),
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
            events: Inbox::new(events, 4),
            status,
            stdin,
            judge: Judge::new(config.policy.clone()),
            complaints: Records::default(),
            kernel_log: Records::default(),
            last_mark: String::new(),
            copiers,
            kmsg,
            timings,
            log_dir: config.log_dir.clone(),
            _run_dir: run_dir,
            _claim: claim,
        };
        session.prepare(&config.setup)?;
        Ok(session)
    }

    fn prepare(&mut self, setup: &Setup) -> anyhow::Result<()> {
        match self.reply("booting", BOOT_DEADLINE) {
            Ok(Reply::Ready { started, now }) => {
                let micros = |micros| Duration::from_micros(micros);
                self.timings
                    .end_before("jail, QEMU, firmware, unpacking the kernel", micros(now));
                let ago = micros(now.saturating_sub(started));
                self.timings.end_before("kernel, to process 1", ago);
                self.timings.end("file systems and ports of the guest");
            }
            Ok(other) => anyhow::bail!("the guest began with {other:?}"),
            Err(Lost::Interrupted(signal)) => return Err(Interrupted(signal).into()),
            Err(lost) => {
                self.drain();
                anyhow::bail!("the VM did not come up: {lost}{}", self.last_words())
            }
        }
        self.send(&Request::Setup(setup.clone()))?;
        match self.reply("loading the module", SETUP_DEADLINE) {
            Ok(Reply::SetUp { error: None }) => {
                self.timings.end("shares and modules");
                Ok(())
            }
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

    /// The control sockets of the models, in order.
    pub fn controls(&self) -> Vec<PathBuf> {
        let paths = self.models.iter().map(|model| model.control().to_owned());
        paths.collect()
    }

    /// The processor time of QEMU and the models until now.
    pub fn cpu(&mut self) -> Duration {
        let models = self.models.iter_mut().map(Model::cpu_time);
        self.qemu.cpu_time() + models.sum::<Duration>()
    }

    /// Where the logs are.
    pub fn log_dir(&self) -> &Path {
        &self.log_dir
    }

    /// The complaints since the last call.
    pub fn take_complaints(&mut self) -> Vec<Record> {
        self.complaints.take()
    }

    /// The kernel messages since the last call.
    pub fn take_kernel_log(&mut self) -> Vec<Record> {
        self.kernel_log.take()
    }

    /// Which messages count from now on.
    pub fn set_policy(&mut self, policy: Policy) {
        self.judge.set_policy(policy);
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
        let event = self.events.next(deadline.end).map_err(|why| match why {
            Nothing::Yet => Lost::TooLong {
                what: deadline.what,
                limit: deadline.limit,
            },
            Nothing::Anymore => Lost::Gone,
        })?;
        match &event {
            Event::Kmsg(record) => self.take_record(record.clone()),
            Event::Closed(PORT_STATUS) => return Err(Lost::Gone),
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

/// Waits for the memory that the VM may come to use.
fn claim(config: &Config, channel: &Channel) -> anyhow::Result<Option<Claim>> {
    let Some((budget, wanted)) = &config.budget else {
        return Ok(None);
    };
    let [on_terminal, elsewhere] = CLAIM_HINT;
    let hint = if io::stderr().is_terminal() {
        on_terminal
    } else {
        elsewhere
    };
    let start = Instant::now();
    let mut said = false;
    let mut turn = None;
    loop {
        let mut claim = || {
            if turn.is_none() {
                turn = budget.turn()?;
            }
            let turn = turn.as_ref();
            turn.map_or(Ok(None), |turn| budget.claim(turn, *wanted))
        };
        match claim() {
            Ok(Some(claim)) => return Ok(Some(claim)),
            Ok(None) => {}
            // A cache that cannot be written to is not shared.
            Err(_) => return Ok(None),
        }
        if !said && start.elapsed() > hint {
            eprintln!("waiting for {wanted} MiB of memory, which other VMs have");
            said = true;
        }
        match channel.1.recv_timeout(CLAIM_INTERVAL) {
            Ok(Event::Interrupt(signal)) => return Err(Interrupted(signal).into()),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            // The channel has a sender of its own.
            Err(RecvTimeoutError::Disconnected) => thread::sleep(CLAIM_INTERVAL),
        }
    }
}

fn write_command_line(log_dir: &Path, args: &[std::ffi::OsString], reach: &jail::Spec) {
    let mut text = format!("{reach:#?}\n{}", qemu::PROGRAM);
    for arg in args {
        text.push_str(&format!(" '{}'", arg.to_string_lossy()));
    }
    text.push('\n');
    // Only for the curious.
    let _ = fs::write(log_dir.join("qemu.cmdline"), text);
}
