// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl fuzz ioctl`: several processes with several threads that make random calls of both nodes, most of them
//! right, and whose ends come at any time. No answer may be one that is not documented, no process may see what
//! another does, and at the end nothing is left.

mod calls;
mod dice;
mod kinds;
mod memory;
mod mirrors;
mod native;
mod process;
mod queues;
pub mod raw;
mod sharing;
mod smi;
mod tally;
mod thread;

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use nix::fcntl::fcntl;
use nix::fcntl::FcntlArg;
use nix::fcntl::OFlag;
use nix::sys::signal::kill;
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::sys::wait::WaitPidFlag;
use nix::sys::wait::WaitStatus;
use nix::unistd::fork;
use nix::unistd::ForkResult;
use nix::unistd::Pid;
use rkfd::device::pci_identity;
use rkfd::error::Error;
use rkfd::sizes::Shape;
use rkfd::topology::Topology;

use crate::debugfs;
use crate::style;
use dice::Dice;
use kinds::Kind;
use process::Plan;
use process::Target;
use tally::Tally;

/// Between two looks at the processes.
const LOOK: Duration = Duration::from_millis(20);
/// Where a process is killed: after at least so long, and at most so much longer.
const LIFE_MS: (u64, u64) = (300, 1500);

#[derive(clap::Args)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Random calls of /dev/kfd and the render node from several processes and threads; root, to see what is left
    Ioctl(Ioctl),
}

#[derive(clap::Args)]
struct Ioctl {
    /// GPU, counted from 0
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// How long calls are made
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// … or until each thread has made so many, and no process is killed
    #[arg(long)]
    calls: Option<u64>,
    /// What all choices follow from. With one thread and --calls two runs make the same calls
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Processes
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    processes: u32,
    /// Threads of each process
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Seconds that all processes may take to end when they are told to, and again what they had to be gone
    #[arg(long, default_value_t = 120)]
    patience: u64,
    /// Find every errno wrong, to see that it is found
    #[arg(long, hide = true)]
    expect_nothing: bool,
    /// Change what must not change, to see that it is found
    #[arg(long, hide = true)]
    spoil: bool,
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let What::Ioctl(options) = &options.what;
    let target = target(options.gpu)?;
    let pci = pci_identity(&target.render).map(|pci| pci.address);
    let before = pci.as_deref().map(usage);
    let (read, write) = nix::unistd::pipe().context("pipe")?;
    // Findings are bounded, so that they fit; nobody waits for who reads.
    fcntl(&read, FcntlArg::F_SETPIPE_SZ(1 << 16)).context("room in a pipe")?;
    fcntl(&read, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).context("a pipe without waiting")?;
    let run = Run {
        plan: Plan {
            target,
            seed: options.seed,
            threads: options.threads,
            calls: options.calls,
            expect_nothing: options.expect_nothing,
            spoil: options.spoil,
            tally: Tally::new()?,
        },
        reports: File::from(write),
        dice: Dice::new(options.seed, u32::MAX, 0, 0),
        lives: Vec::new(),
        killed: 0,
        problems: Vec::new(),
    };
    anstream::println!(
        "seed {}: {} processes with {} threads each",
        options.seed,
        options.processes,
        options.threads
    );
    let mut run = run.all(options)?;
    let tally = run.plan.tally;
    let mut found = String::new();
    // What nobody has written yet is no error of a pipe without waiting.
    let _ = File::from(read).read_to_string(&mut found);
    anstream::println!("{}", tally.table());
    let calls: u64 = Kind::ALL.iter().map(|kind| tally.calls(*kind)).sum();
    match before {
        Some(Ok(before)) => {
            let address = pci.as_deref().unwrap_or_default();
            if let Err(e) = nothing_left(address, &before, Duration::from_secs(options.patience)) {
                run.problems.push(format!("{e:#}"));
            }
        }
        Some(Err(e)) => anstream::println!("What is left is not looked at: {e:#}"),
        None => {
            anstream::println!("What is left is not looked at: the GPU's PCI address is not known")
        }
    }
    for line in found.lines().chain(run.problems.iter().map(String::as_str)) {
        anstream::println!("{}", style::bad(line));
    }
    let findings = tally.reports() + run.problems.len() as u64; // CAST: a count.
    if findings > 0 {
        bail!(
            "{findings} findings in {calls} calls with seed {}",
            options.seed
        );
    }
    anstream::println!(
        "{} {calls} calls, {} processes killed: every answer is documented, nothing was changed by others, nothing is left",
        style::good("ok:"),
        run.killed
    );
    Ok(ExitCode::SUCCESS)
}

/// GPU number `index`, as the topology has it: this process itself must not be one that uses it.
fn target(index: usize) -> anyhow::Result<Target> {
    if !std::path::Path::new("/dev/kfd").exists() {
        return Err(Error::NoDriver.into());
    }
    let topology = Topology::read()?.ok_or(Error::NoDriver)?;
    let gpus: Vec<_> = topology
        .nodes
        .iter()
        .filter(|node| node.gpu_id != 0)
        .collect();
    let Some(node) = gpus.get(index) else {
        if gpus.is_empty() {
            return Err(Error::NoGpu.into());
        }
        bail!(
            "there is no GPU {index}: the driver serves {}, counted from 0",
            gpus.len()
        );
    };
    let minor = node
        .properties
        .get("drm_render_minor")
        .filter(|minor| *minor != 0);
    let minor = minor.context("the topology names no render node")?;
    Ok(Target {
        gpu_id: node.gpu_id,
        render: PathBuf::from(format!("/dev/dri/renderD{minor}")),
        save: Shape::save_area_of_node(&node.properties)
            .context("the topology does not tell the GPU's shape")?,
    })
}

/// One life of a process.
struct Life {
    pid: Pid,
    index: u32,
    number: u32,
    /// When it is killed, if ever.
    until: Option<Instant>,
}

struct Run {
    plan: Plan,
    reports: File,
    dice: Dice,
    lives: Vec<Life>,
    killed: u64,
    problems: Vec<String>,
}

impl Run {
    /// Begins a life of process `index`.
    fn begin(&mut self, index: u32, number: u32) -> anyhow::Result<()> {
        let reports = self.reports.try_clone().context("a pipe")?;
        // SAFETY: this program has one thread, so that the child may go on as it likes.
        match unsafe { fork() }.context("fork")? {
            ForkResult::Child => {
                // With its parent it ends, too.
                let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
                std::process::exit(process::live(&self.plan, index, number, reports));
            }
            ForkResult::Parent { child } => {
                let (least, more) = LIFE_MS;
                let life = Duration::from_millis(least + self.dice.below(more));
                self.lives.push(Life {
                    pid: child,
                    index,
                    number,
                    until: self.plan.calls.is_none().then(|| Instant::now() + life),
                });
                Ok(())
            }
        }
    }

    /// From the first process to the end of the last.
    fn all(mut self, options: &Ioctl) -> anyhow::Result<Self> {
        for index in 0..options.processes {
            self.begin(index, 0)?;
        }
        let end = Instant::now() + Duration::from_secs(options.seconds);
        while (options.calls.is_some() || Instant::now() < end) && !self.lives.is_empty() {
            self.reap(options.calls.is_none())?;
            std::thread::sleep(LOOK);
        }
        self.plan.tally.stop();
        let late = Instant::now() + Duration::from_secs(options.patience);
        while !self.lives.is_empty() {
            for life in &mut self.lives {
                life.until = None;
            }
            self.reap(false)?;
            if Instant::now() > late {
                for life in std::mem::take(&mut self.lives) {
                    let stack = std::fs::read_to_string(format!("/proc/{}/stack", life.pid))
                        .unwrap_or_default();
                    self.problems
                        .push(format!("process {} does not end\n{stack}", life.index));
                    let _ = kill(life.pid, Signal::SIGKILL);
                }
            }
            std::thread::sleep(LOOK);
        }
        Ok(self)
    }

    /// Kills whose time has come and looks after those that ended. `again`: begins the next life.
    fn reap(&mut self, again: bool) -> anyhow::Result<()> {
        let mut ended = Vec::new();
        for (at, life) in self.lives.iter().enumerate().rev() {
            let killed = life.until.is_some_and(|until| Instant::now() >= until);
            let flags = if killed {
                kill(life.pid, Signal::SIGKILL).context("kill")?;
                None
            } else {
                Some(WaitPidFlag::WNOHANG)
            };
            match waitpid(life.pid, flags).context("waitpid")? {
                WaitStatus::StillAlive => continue,
                WaitStatus::Signaled(_, Signal::SIGKILL, _) if killed => self.killed += 1,
                WaitStatus::Exited(_, 0) => {}
                other => self.problems.push(format!(
                    "process {} (life {}): {other:?}",
                    life.index, life.number
                )),
            }
            ended.push((at, killed));
        }
        for (at, killed) in ended {
            let life = self.lives.swap_remove(at);
            if again && killed {
                self.begin(life.index, life.number + 1)?;
            }
        }
        Ok(())
    }
}

/// What the driver says to be in use on a GPU: one line per thing, without what is left of the total.
fn usage(pci: &str) -> anyhow::Result<Vec<String>> {
    let memory = debugfs::read(pci, "memory")?;
    let mut lines: Vec<String> = memory
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let queues: usize = debugfs::mqds(&debugfs::read(pci, "mqds")?)
        .iter()
        .map(|process| process.queues.len())
        .sum();
    lines.push(format!("queues {queues}"));
    let spaces = debugfs::read(pci, "vms")?;
    lines.push(format!(
        "address spaces {}",
        spaces.lines().filter(|line| !line.starts_with(' ')).count()
    ));
    Ok(lines)
}

/// Waits until nothing more is in use than before: the end of a process is deferred work.
fn nothing_left(pci: &str, before: &[String], patience: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + patience;
    loop {
        let now = usage(pci)?;
        if now == before {
            return Ok(());
        }
        if Instant::now() > end {
            let changed: Vec<String> = before
                .iter()
                .zip(&now)
                .filter(|(before, now)| before != now)
                .map(|(before, now)| format!("{now:?}, before {before:?}"))
                .collect();
            bail!("something is left: {}", changed.join("; "));
        }
        std::thread::sleep(LOOK);
    }
}
