// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl torture mirror`: threads that map, move, protect, discard and share memory in all ways there are, while GPUs
//! read, write and do atomics there through mirrors. A copy of what must be where proves that no byte is lost or stale.

mod arena;
mod gpu;
mod lane;
mod plan;
mod report;
mod shadow;
mod tally;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use nix::errno::Errno;
use rkfd::error::Error;
use rkfd::native::QueueKind;
use rkfd::native::Space;

use crate::demo::native::nodes;
use crate::progress;
use crate::style;
use arena::Arena;
use gpu::Engine;
use gpu::Room;
use gpu::Way;
use lane::Lane;
use lane::Spoil;
use report::LaneResult;
use report::Outcome;
use tally::Kind;
use tally::Tally;

/// Where the memory of lane 0 lies: the kernel gives nobody addresses there by itself.
const ARENAS: usize = 0x20_0000_0000;
/// Between the memory of two lanes.
const ARENA: usize = 1 << 30;
/// Attempts at a call for which there is no memory.
const TRIES: u32 = 5000;
/// Between two looks at how far the lanes are.
const LOOK: Duration = Duration::from_millis(100);
/// Where the output is no terminal, a line of progress this often.
const LINE: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Memory changes in all ways while GPUs work on it through mirrors; every byte is compared
    Mirror(Mirror),
}

/// What moves memory to VRAM.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum Moves {
    /// Nothing
    None,
    /// Calls of the lanes, also of memory that packets use
    Now,
}

#[derive(clap::Args)]
struct Mirror {
    /// How long
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// … or until each lane has done so many rounds
    #[arg(long)]
    rounds: Option<u64>,
    /// What all choices follow from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// GPUs, counted from 0; all without it
    #[arg(long, value_delimiter = ',')]
    gpus: Vec<usize>,
    /// How GPUs have the memory; what they cannot do is left out
    #[arg(long, value_delimiter = ',', default_value = "populated,fault")]
    mirrors: Vec<Way>,
    /// Lanes for each of these ways: threads with memory of their own, and a queue on each GPU
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    lanes: u8,
    /// MiB of memory of each lane
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=512))]
    mib: u16,
    /// Whether memory moves to VRAM of the GPUs, and back
    #[arg(long, value_enum, default_value_t = Moves::None)]
    migrate: Moves,
    /// Seconds that the packets of a round may take
    #[arg(long, default_value_t = 120)]
    patience: u64,
    /// The result as JSON
    #[arg(long)]
    json: bool,
    /// Do something wrong in the first lane, to see that it is found
    #[arg(long, hide = true)]
    spoil: Option<Spoil>,
}

/// Repeats what fails for want of memory, `tries` times.
fn persist<T>(
    tally: &Tally,
    tries: u32,
    mut call: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut left = tries;
    loop {
        match call() {
            Err(Errno::ENOMEM | Errno::EAGAIN) if left > 0 => {
                left -= 1;
                tally.retry();
                std::thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let What::Mirror(options) = &options.what;
    let tally = Arc::new(Tally::new());
    let (lanes, left_out) = lanes(options, &tally)?;
    if lanes.is_empty() {
        bail!(
            "the GPUs have none of these mirrors: {}",
            left_out.join(", ")
        );
    }
    if !options.json {
        anstream::println!("seed {}: {} lanes", options.seed, lanes.len());
        for way in &left_out {
            anstream::println!("left out: {way}, which no GPU has");
        }
    }
    let began = Instant::now();
    let (results, errors) = run_lanes(options, lanes, &tally);
    let outcome = Outcome::new(
        options.seed,
        began.elapsed(),
        &tally,
        results,
        left_out,
        errors,
    );
    outcome.show(options.json)?;
    Ok(if outcome.ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The nodes of the GPUs that were asked for.
fn targets(wanted: &[usize]) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in nodes() {
        match Space::open(&path) {
            Ok(_) => found.push(path),
            // Another driver's.
            Err(e)
                if matches!(
                    e.errno(),
                    Some(Errno::ENOTTY | Errno::EINVAL | Errno::EOPNOTSUPP | Errno::EACCES)
                ) => {}
            Err(e) => return Err(e).with_context(|| path.display().to_string()),
        }
    }
    if found.is_empty() {
        return Err(Error::NoGpu.into());
    }
    if wanted.is_empty() {
        return Ok(found);
    }
    let pick = |index: &usize| {
        let path = found.get(*index).cloned();
        path.with_context(|| format!("there is no GPU {index}: there are {}", found.len()))
    };
    wanted.iter().map(pick).collect()
}

/// A lane and what its queues are.
struct Thread {
    lane: Lane<Engine>,
    kind: QueueKind,
}

/// The lanes of all ways that some GPU has, and the names of the others.
fn lanes(options: &Mirror, tally: &Arc<Tally>) -> anyhow::Result<(Vec<Thread>, Vec<&'static str>)> {
    let targets = targets(&options.gpus)?;
    let pages = usize::from(options.mib) << 8;
    let (mut lanes, mut left_out) = (Vec::new(), Vec::new());
    for way in &options.mirrors {
        let rooms = targets
            .iter()
            .map(|node| Room::open(node, *way, tally).map(Arc::new))
            .collect::<anyhow::Result<Vec<_>>>()?;
        if rooms.iter().all(|room| room.way() != *way) {
            left_out.push(way.title());
            continue;
        }
        if options.migrate == Moves::Now && !rooms.iter().any(|room| room.migrates()) {
            bail!("no GPU has memory of mirrors move to its VRAM");
        }
        for n in 0..options.lanes {
            let number = lanes.len();
            let kind = if n % 2 == 0 {
                QueueKind::Sdma
            } else {
                QueueKind::Pm4
            };
            let file = pages / 4;
            let arena = Arena::new(ARENAS + number * ARENA, pages, file)?;
            let patience = Duration::from_secs(options.patience);
            let engines = rooms
                .iter()
                .map(|room| Engine::new(room, number, kind, &arena, patience, tally))
                .collect::<anyhow::Result<Vec<_>>>()
                .with_context(|| format!("lane {number}"))?;
            let mut lane = Lane::new(number, options.seed, arena, file, engines, tally.clone())
                .with_context(|| format!("lane {number}"))?;
            if options.migrate == Moves::Now {
                lane.migrate();
            }
            lane.spoil(options.spoil.filter(|_| number == 0));
            lanes.push(Thread { lane, kind });
        }
    }
    Ok((lanes, left_out))
}

/// Runs a lane until it has done enough, or another one has failed.
fn run_lane(thread: &mut Thread, options: &Mirror, stop: &AtomicBool) -> anyhow::Result<()> {
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let over = |rounds: u64| match options.rounds {
        Some(most) => rounds >= most,
        None => Instant::now() >= end,
    };
    let lane = &mut thread.lane;
    while !over(lane.rounds()) && !stop.load(Ordering::Relaxed) {
        lane.round()?;
    }
    lane.close()
}

/// All lanes, each in a thread. Returns what they have done, and what went wrong.
fn run_lanes(
    options: &Mirror,
    lanes: Vec<Thread>,
    tally: &Arc<Tally>,
) -> (Vec<LaneResult>, Vec<String>) {
    let stop = AtomicBool::new(false);
    let mut errors = Vec::new();
    let mut results = Vec::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = lanes
            .into_iter()
            .map(|mut thread| {
                let stop = &stop;
                scope.spawn(move || {
                    let result = run_lane(&mut thread, options, stop);
                    if result.is_err() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    let summary = LaneResult::new(&thread.lane, thread.kind);
                    (summary, result)
                })
            })
            .collect();
        watch(options, tally, || threads.iter().all(|t| t.is_finished()));
        for (number, thread) in threads.into_iter().enumerate() {
            match thread.join() {
                Ok((summary, result)) => {
                    match summary {
                        Ok(summary) => results.push(summary),
                        Err(e) => errors.push(format!("lane {number}: {e:#}")),
                    }
                    if let Err(e) = result {
                        errors.push(format!("{e:#}"));
                    }
                }
                Err(_) => errors.push(format!("lane {number} panicked")),
            }
        }
    });
    (results, errors)
}

/// Shows progress until the lanes have ended.
fn watch(options: &Mirror, tally: &Tally, ended: impl Fn() -> bool) {
    let began = Instant::now();
    let bar = (!options.json).then(|| progress::bar(options.seconds * 10, progress::TIMED));
    let bar = bar.flatten();
    let mut line = began + LINE;
    while !ended() {
        std::thread::sleep(LOOK);
        let operations: u64 = Kind::ALL.iter().map(|kind| tally.done(*kind)).sum();
        let (cpu, gpu) = tally.verified();
        let text = format!(
            "{} rounds, {operations} operations, {} compared",
            tally.rounds(),
            style::bytes(cpu + gpu)
        );
        let seconds = began.elapsed().as_secs_f64();
        if let Some(bar) = &bar {
            bar.set_position((seconds * 10.0) as u64); // CAST: tenths of a second.
            bar.set_message(text);
        } else if !options.json && Instant::now() >= line {
            line += LINE;
            anstream::println!("  {seconds:>5.1} s  {text}");
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}
