// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the parts of the demo share: the GPU, the kernels, the counter of system calls, and the table.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use rkfd::backoff::poll;
use rkfd::backoff::SPINNING;
use rkfd::code::dispatch::Dispatch;
use rkfd::code::dispatch::Kernargs;
use rkfd::code::program::Kernel;
use rkfd::code::program::Program;
use rkfd::code::target::Target;
use rkfd::device::Device;
use rkfd::queue::Queue;
use rkfd::queue::QueueKind;
use rkfd::queue::QueueOptions;
use rkfd::signal::Signals;

use super::table::Table;
use super::Options;
use crate::progress;
use crate::style;
use crate::syscalls::Count;
use crate::syscalls::Counter;

/// Longest that anything may take, on a slow machine under load.
pub const LIMIT: Duration = Duration::from_secs(120);
/// How often a run is repeated whose poll has slept, so that its count says nothing.
pub const ATTEMPTS: usize = 5;
/// Where the compiled kernels are.
const KERNELS: &str = "RKFD_KERNELS";
/// The file of them for each GPU.
const FILE: &str = "demo.co";

/// The GPU and what the parts leave for the end.
pub struct Stage {
    /// Number of the GPU.
    pub gpu: usize,
    /// The GPU.
    pub device: Arc<Device>,
    /// The file of the kernels.
    pub code: Vec<u8>,
    /// The same, on the GPU.
    pub program: Arc<Program>,
    /// Runs of each path.
    pub rounds: usize,
    /// Nodes of the list.
    pub nodes: usize,
    /// Expect what is not so.
    pub expect_wrong: bool,
    /// Costs.
    pub table: Table,
    counter: Counter,
}

/// The text for no system calls.
pub const NONE: &str = "0";

/// The text for the system calls of a path that polls, which took so long.
///
/// # Errors
/// There are some, though no poll can have slept.
pub fn judged(what: &str, count: &Count, took: Duration) -> anyhow::Result<String> {
    if count.calls == 0 {
        return Ok(NONE.into());
    }
    if took < SPINNING {
        bail!(
            "{what} entered the kernel: system calls {:?}",
            count.numbers
        );
    }
    Ok(format!("{} (slept)", count.calls))
}

/// A file of kernels for a GPU: in the directory that `RKFD_KERNELS` names, or where the build leaves them beside the tool.
pub fn kernels(device: &Device, name: &str) -> anyhow::Result<Vec<u8>> {
    let processor = Target::from_version(device.gfx())
        .and_then(|target| target.processor())
        .context("it is not known which instruction set the GPU has")?;
    let mut places: Vec<PathBuf> = env::var_os(KERNELS)
        .map(PathBuf::from)
        .into_iter()
        .collect();
    if places.is_empty() {
        let tool = env::current_exe().context("the tool's own path")?;
        let dirs = tool.ancestors().skip(1).take(2);
        places = dirs
            .flat_map(|dir| ["kernels", "selftests/kernels"].map(|at| dir.join(at)))
            .collect();
    }
    let files: Vec<PathBuf> = places
        .iter()
        .map(|place| place.join(processor).join(name))
        .collect();
    let Some(file) = files.iter().find(|file| file.is_file()) else {
        let looked: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
        bail!(
            "no compiled kernels: {KERNELS} names their directory; looked for {}",
            looked.join(", ")
        );
    };
    fs::read(file).with_context(|| file.display().to_string())
}

impl Stage {
    /// Loads the kernels.
    pub fn new(device: Arc<Device>, counter: Counter, options: &Options) -> anyhow::Result<Self> {
        let code = kernels(&device, FILE)?;
        let program = Program::load(&device, &code).context("the kernels")?;
        Ok(Self {
            gpu: options.gpu,
            device,
            code,
            program,
            rounds: options.rounds.into(),
            nodes: options.nodes.into(),
            expect_wrong: options.expect_wrong,
            table: Table::default(),
            counter,
        })
    }

    /// Counts the system calls of `work`, which polls: there are to be none. `prepare` comes before it and is not counted.
    /// Returns the count as a text.
    ///
    /// # Errors
    /// Those of both; a system call, unless the poll has slept time and again, since what takes seconds is no measurement.
    pub fn without_calls(
        &mut self,
        what: &str,
        mut prepare: impl FnMut() -> anyhow::Result<()>,
        mut work: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<String> {
        let mut text = String::new();
        for _ in 0..ATTEMPTS {
            prepare()?;
            let began = Instant::now();
            let (done, count) = self.counter.count(&mut work)?;
            done.with_context(|| what.to_owned())?;
            text = judged(what, &count, began.elapsed())?;
            if text == NONE {
                break;
            }
        }
        Ok(text)
    }

    /// What threads made of system calls in their windows ([`crate::syscalls::on_thread`]), of which there are to be so many.
    ///
    /// # Errors
    /// There are not.
    pub fn calls_of_threads(&mut self, windows: u64) -> anyhow::Result<Count> {
        let (count, found) = self.counter.of_threads()?;
        same("number of counted threads", found, windows)?;
        Ok(count)
    }

    /// Counts the system calls of `work`, which makes some.
    ///
    /// # Errors
    /// Those of `work`; none made.
    pub fn with_calls(
        &mut self,
        what: &str,
        work: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<u64> {
        let (done, count) = self.counter.count(work)?;
        done.with_context(|| what.to_owned())?;
        if count.calls == 0 {
            bail!("{what} made no system call, though it sleeps in the kernel");
        }
        Ok(count.calls)
    }

    /// How long each of the runs of `what` takes, after one that is not measured.
    ///
    /// # Errors
    /// Those of the two; `prepare` is not measured.
    pub fn measure(
        &self,
        what: &str,
        mut prepare: impl FnMut() -> anyhow::Result<()>,
        mut work: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<Duration>> {
        let mut runs = Vec::with_capacity(self.rounds);
        // Drawn between two runs.
        let steps = self.rounds as u64 + 1; // CAST: a count.
        let bar = progress::bar(steps, "  {bar:30} {pos}/{len} {msg}");
        if let Some(bar) = &bar {
            bar.set_message(what.to_owned());
        }
        for n in 0..=self.rounds {
            prepare()?;
            let began = Instant::now();
            work()?;
            if n > 0 {
                runs.push(began.elapsed());
            }
            if let Some(bar) = &bar {
                bar.inc(1);
            }
        }
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        Ok(runs)
    }

    /// A kernel.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn kernel(&self, name: &str) -> anyhow::Result<Kernel> {
        Ok(self.program.kernel(name)?)
    }

    /// A queue for AQL packets with room for as many.
    ///
    /// # Errors
    /// Those of [`Queue::new`].
    pub fn queue(&self, packets: usize) -> anyhow::Result<Queue> {
        let ring_bytes = (packets * rkfd::packet::aql::BYTES)
            .next_power_of_two()
            .max(rkfd::sys::PAGE);
        let options = QueueOptions {
            ring_bytes,
            ..QueueOptions::new(QueueKind::Aql)
        };
        Queue::new(&self.device, options).context("queue")
    }
}

/// An AQL packet and its header.
pub type Packet = ([u32; rkfd::packet::aql::DWORDS], u16);

/// The packet of a launch, with its arguments in memory: made once, written to queues as often as it is needed.
///
/// # Errors
/// What the launch asks for cannot be.
pub fn encoded(
    queue: &Queue,
    dispatch: &Dispatch<'_>,
    kernargs: &Kernargs,
) -> anyhow::Result<Packet> {
    let planned = dispatch.plan(&queue.surroundings())?;
    Ok(dispatch.encode(&planned, kernargs.place(&planned)?)?)
}

/// Polls until a signal is 0.
///
/// # Errors
/// It is not in time.
pub fn reached(signals: &Signals, index: usize) -> anyhow::Result<()> {
    Ok(poll("a signal", LIMIT, || match signals.load(index) {
        Ok(value) => (value == 0, value as u64), // CAST: the bits, for a message.
        Err(_) => (false, 0),
    })?)
}

/// A line: what is told, and what was found.
pub fn row(label: &str, text: impl std::fmt::Display) {
    anstream::println!("  {} {text}", style::dim(format!("{label:<30}")));
}

/// How many system calls, for a reader.
pub fn calls(count: &str) -> String {
    let plural = if count == "1" { "" } else { "s" };
    let text = format!("{count} system call{plural}");
    if count == NONE {
        style::good(text)
    } else {
        text
    }
}

/// Compares what a kernel left with what it was to leave.
///
/// # Errors
/// They differ.
pub fn same<T: PartialEq + std::fmt::Display>(
    what: &str,
    found: T,
    wanted: T,
) -> anyhow::Result<()> {
    if found == wanted {
        return Ok(());
    }
    bail!("wrong {what}: {found}, {wanted} was expected");
}
