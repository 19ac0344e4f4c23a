// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Queueing in user mode: threads, queues and processes submit work without a call, and without knowing of each other.

use std::cell::Cell;
use std::env;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::anyhow;
use anyhow::bail;
use anyhow::Context;
use rkfd::code::dispatch::Dispatch;
use rkfd::code::dispatch::Kernargs;
use rkfd::memory::Buffer;
use rkfd::memory::Kind;
use rkfd::queue::Queue;
use rkfd::signal::Signals;

use super::super::heading;
use super::stage::calls;
use super::stage::encoded;
use super::stage::judged;
use super::stage::reached;
use super::stage::row;
use super::stage::same;
use super::stage::Packet;
use super::stage::Stage;
use super::stage::ATTEMPTS;
use super::stage::NONE;
use super::table::Copied;
use crate::style;
use crate::syscalls;

/// Threads that submit, or queues.
const PRODUCERS: usize = 4;
/// Launches of each.
const LAUNCHES: usize = 16;
/// All of them.
const ALL: usize = PRODUCERS * LAUNCHES;
/// What the other process says, and is told.
const READY: &str = "ready";
const GO: &str = "go";

/// Launches of producers: each counts in a place of its own, and has a signal of its own.
struct Work {
    visits: Buffer,
    signals: Signals,
    packets: Vec<Packet>,
    _kernargs: Kernargs,
}

impl Work {
    fn new(stage: &Stage, queue: &Queue, producers: usize) -> anyhow::Result<Self> {
        let kernel = stage.kernel("visit")?;
        let kernargs = Kernargs::new(&stage.device, producers * rkfd::sys::PAGE)?;
        let visits = Buffer::new(&stage.device, Kind::Gtt, rkfd::sys::PAGE)?;
        let signals = Signals::new(&stage.device, producers)?;
        let packets = (0..producers)
            .map(|producer| {
                let dispatch = Dispatch::new(&kernel)
                    .argument(&visits)
                    .argument(u32::try_from(producer)?)
                    .barrier(false)
                    .completion(signals.address(producer)?);
                encoded(queue, &dispatch, &kernargs)
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(Self {
            visits,
            signals,
            packets,
            _kernargs: kernargs,
        })
    }

    fn reset(&self) -> anyhow::Result<()> {
        for producer in 0..self.packets.len() {
            self.visits.write_u32(4 * producer, 0)?;
            self.signals.store(producer, LAUNCHES as i64)?; // CAST: a small number.
        }
        Ok(())
    }

    fn submit(&self, queue: &Queue, producer: usize) -> anyhow::Result<()> {
        let (packet, header) = &self.packets[producer];
        queue.submit_aql(packet, *header)?;
        Ok(())
    }

    /// All launches of a producer, up to their end.
    fn produce(&self, queue: &Queue, producer: usize) -> anyhow::Result<()> {
        for _ in 0..LAUNCHES {
            self.submit(queue, producer)?;
        }
        reached(&self.signals, producer)
    }

    fn check(&self) -> anyhow::Result<()> {
        for producer in 0..self.packets.len() {
            let found = self.visits.read_u32(4 * producer)?;
            // CAST: a small number.
            same(
                &format!("number of launches of producer {producer}"),
                found,
                LAUNCHES as u32,
            )?;
        }
        Ok(())
    }
}

/// Tells of the promise.
///
/// # Errors
/// It is not kept.
pub fn tell(stage: &mut Stage) -> anyhow::Result<()> {
    heading("Queueing in user mode: no launch enters the kernel");
    threads(stage)?;
    queues(stage)?;
    processes(stage)
}

/// Several threads that submit to one queue.
fn threads(stage: &mut Stage) -> anyhow::Result<()> {
    // A producer that waits for room may sleep, and there is none to be counted.
    let queue = stage.queue(ALL)?;
    let work = Work::new(stage, &queue, PRODUCERS)?;
    let run = |counted: bool| -> anyhow::Result<Duration> {
        work.reset()?;
        let begin = Barrier::new(PRODUCERS);
        let took = thread::scope(|scope| {
            let threads: Vec<_> = (0..PRODUCERS)
                .map(|producer| {
                    let (work, queue, begin) = (&work, &queue, &begin);
                    scope.spawn(move || {
                        begin.wait();
                        let began = Instant::now();
                        let produce = || work.produce(queue, producer);
                        let done = if counted {
                            syscalls::on_thread(produce)
                        } else {
                            produce()
                        };
                        done.map(|()| began.elapsed())
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| anyhow!("a producer panicked"))?)
                .try_fold(Duration::ZERO, |longest, took| {
                    took.map(|took| longest.max(took))
                })
        })?;
        work.check()?;
        Ok(took)
    };
    let mut count = String::new();
    for _ in 0..ATTEMPTS {
        let took = run(true)?;
        let found = stage.calls_of_threads(PRODUCERS as u64)?; // CAST: a small number.
        count = judged("a producer", &found, took)?;
        if count == NONE {
            break;
        }
    }
    row(
        "several producers",
        format!(
            "{PRODUCERS} threads, one queue, {ALL} launches {}: {}",
            style::good("correct"),
            calls(&count)
        ),
    );
    let runs = (0..stage.rounds)
        .map(|_| run(false))
        .collect::<anyhow::Result<_>>()?;
    let path = format!("{ALL} launches: {PRODUCERS} threads, one queue");
    stage.table.add(&path, runs, count, Copied::default());
    Ok(())
}

/// Several queues of one thread.
fn queues(stage: &mut Stage) -> anyhow::Result<()> {
    let queues = (0..PRODUCERS)
        .map(|_| stage.queue(LAUNCHES))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let work = Work::new(stage, &queues[0], PRODUCERS)?;
    let run = || -> anyhow::Result<()> {
        for _ in 0..LAUNCHES {
            for (at, queue) in queues.iter().enumerate() {
                work.submit(queue, at)?;
            }
        }
        (0..PRODUCERS).try_for_each(|at| reached(&work.signals, at))
    };
    let count = stage.without_calls("a launch to several queues", || work.reset(), run)?;
    work.check()?;
    row(
        "several queues",
        format!(
            "one thread, {PRODUCERS} queues, {ALL} launches {}: {}",
            style::good("correct"),
            calls(&count)
        ),
    );
    let runs = stage.measure("several queues", || work.reset(), run)?;
    work.check()?;
    let path = format!("{ALL} launches: one thread, {PRODUCERS} queues");
    stage.table.add(&path, runs, count, Copied::default());
    Ok(())
}

/// The other process; it ends with this one.
struct Other(Child);

impl Other {
    fn start(gpu: usize) -> anyhow::Result<Self> {
        let tool = env::current_exe().context("the tool's own path")?;
        let child = Command::new(tool)
            .args(["demo", "hsa", "--worker", "--gpu", &gpu.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("another process")?;
        Ok(Self(child))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // Without a word from here it ends.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Two processes, each with a queue of its own.
fn processes(stage: &mut Stage) -> anyhow::Result<()> {
    let mut other = Other::start(stage.gpu)?;
    let from = other.0.stdout.take().context("its output")?;
    let mut lines = BufReader::new(from).lines();
    let mut next = || -> anyhow::Result<String> {
        let line = lines.next().context("the other process has ended")?;
        Ok(line?)
    };
    let said = next()?;
    if said != READY {
        bail!("the other process said {said:?}");
    }
    let queue = stage.queue(LAUNCHES)?;
    let work = Work::new(stage, &queue, 1)?;
    let to = Cell::new(other.0.stdin.take());
    let go = || -> anyhow::Result<()> {
        work.reset()?;
        // Once, though a run that has slept is repeated.
        if let Some(mut to) = to.take() {
            writeln!(to, "{GO}")?;
        }
        Ok(())
    };
    let count = stage.without_calls("a launch beside another process", go, || {
        work.produce(&queue, 0)
    })?;
    work.check()?;
    let theirs = next()?;
    let ended = other.0.wait().context("the other process")?;
    if !ended.success() {
        bail!("the other process failed: {ended}");
    }
    row(
        "two processes",
        format!(
            "{LAUNCHES} launches of each at once {}: {} and {}",
            style::good("correct"),
            calls(&count),
            calls(&theirs)
        ),
    );
    Ok(())
}

/// What the other process does: it launches when it is told, and answers with its system calls.
///
/// # Errors
/// A launch is lost, or made one.
pub fn work(stage: &mut Stage) -> anyhow::Result<()> {
    let queue = stage.queue(LAUNCHES)?;
    let work = Work::new(stage, &queue, 1)?;
    println!("{READY}");
    let mut told = String::new();
    std::io::stdin().read_line(&mut told)?;
    if told.trim() != GO {
        bail!("the first process has ended");
    }
    let count = stage.without_calls(
        "a launch of the other process",
        || work.reset(),
        || work.produce(&queue, 0),
    )?;
    work.check()?;
    println!("{count}");
    Ok(())
}
