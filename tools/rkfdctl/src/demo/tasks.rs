// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl demo gpu-tasks`: work that kernels hand to the CPU and to queues, each claim with the values that show it.
//!
//! Beside what a task from a GPU costs stands what one costs that the CPU hands to itself. Times are told, never judged.

mod calls;
mod deaths;
mod figures;
mod handover;
mod places;
mod processes;
mod queues;
pub mod stage;
mod waiting;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use rkfd::tasks::layout::Shape;

use self::stage::Stage;
use super::demand_gpu;
use super::heading;
use super::hsa::stage::row;
use super::introduce;
use crate::style;

#[derive(clap::Args, Clone)]
pub struct Options {
    /// First GPU, counted from 0
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// GPUs; all from the first one on if not given
    #[arg(long)]
    gpus: Option<usize>,
    /// Threads that run tasks
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
    workers: u16,
    /// Rings of each priority for each GPU: a power of two
    #[arg(long, default_value_t = 4)]
    lanes: u32,
    /// Tasks of a ring: a power of two
    #[arg(long, default_value_t = 64)]
    depth: u32,
    /// Bytes of a task, arguments included: a multiple of 64
    #[arg(long, default_value_t = 256)]
    segment: u32,
    /// Work-items that hand tasks over
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(64..=1024))]
    items: u16,
    /// Tasks of each
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    tasks: u16,
    /// Round trips to measure
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Keep handing tasks over for as many seconds at the end, to be looked at by `rkfdctl tasks`
    #[arg(long, default_value_t = 0)]
    hold: u16,
    /// Tell only where areas and workers are
    #[arg(long)]
    places: bool,
    /// Let the demo fail on purpose: have areas and workers anywhere
    #[arg(long, hide = true)]
    anywhere: bool,
    /// Let the demo fail on purpose: expect a task more than there are
    #[arg(long, hide = true)]
    expect_wrong: bool,
    /// Be another process of the demo: hand tasks over until standard input ends
    #[arg(long, hide = true)]
    child: bool,
}

impl Options {
    fn items(&self) -> usize {
        usize::from(self.items).next_multiple_of(64)
    }

    fn shape(&self) -> Shape {
        Shape {
            lanes: self.lanes,
            depth: self.depth,
            segment: self.segment,
            ..Shape::default()
        }
    }
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    demand_gpu()?;
    let mut stage = Stage::new(
        options.gpu,
        options.gpus,
        options.shape(),
        options.workers.into(),
    )?;
    rkfd::clock::calibrate();
    if options.child {
        processes::work(&mut stage)?;
        return Ok(ExitCode::SUCCESS);
    }
    for gpu in &stage.gpus {
        introduce(&gpu.device)?;
    }
    tell(&mut stage, options)?;
    anstream::println!("\n{}", style::good("Success."));
    Ok(ExitCode::SUCCESS)
}

fn tell(stage: &mut Stage, options: &Options) -> anyhow::Result<()> {
    areas(stage)?;
    places::tell(stage, !options.anywhere)?;
    if options.places {
        return Ok(());
    }
    handover::tell(stage, options)?;
    waiting::tell(stage, options)?;
    deaths::tell(stage)?;
    calls::tell(stage)?;
    queues::tell(stage)?;
    processes::tell(stage, options)?;
    heading("What it costs");
    for line in figures::table(&figures::measure(stage, options.rounds.into(), 2000)?).lines() {
        anstream::println!("  {line}");
    }
    if options.hold > 0 {
        handover::hold(stage, Duration::from_secs(options.hold.into()))?;
    }
    Ok(())
}

/// Measures tasks: so many in a row, and round trips.
///
/// # Errors
/// A task is lost, or has another value.
pub fn measure(stage: &mut Stage, rounds: u64, tasks: u64) -> anyhow::Result<Vec<figures::Row>> {
    figures::measure(stage, rounds, tasks)
}

pub use self::figures::table;

/// Where the areas are, and that kernels have the same idea of them.
fn areas(stage: &mut Stage) -> anyhow::Result<()> {
    use rkfd::tasks::layout::cell;
    use rkfd::tasks::layout::header;
    use rkfd::tasks::layout::ring;
    use rkfd::tasks::layout::slot;
    use rkfd::tasks::layout::CELL_BYTES;
    use rkfd::tasks::layout::HEADER_BYTES;
    use rkfd::tasks::layout::RING_BYTES;
    use rkfd::tasks::layout::SLOT_HEAD;
    let ours = [
        HEADER_BYTES,
        header::LANES,
        header::SEGMENT,
        header::EVENT,
        header::MAILBOX,
        header::RINGS,
        header::SLOTS,
        header::CELLS,
        header::BYTES,
        header::SLEEPING,
        header::CLOSED,
        header::REFUSED,
        RING_BYTES,
        ring::HEAD,
        slot::FUNCTION,
        slot::FUTURE,
        slot::THEN,
        SLOT_HEAD,
        CELL_BYTES,
        cell::VALUE,
    ]
    .map(|n| n as u64); // CAST: small numbers.
    heading("Areas: rings in memory that CPU and GPU see");
    let tasks = stage.tasks(stage.shape, None)?;
    let shape = stage.shape;
    for (n, gpu) in stage.gpus.iter_mut().enumerate() {
        let out = gpu.out();
        gpu.run("layout", 1, &[out])?;
        let theirs = gpu.words(ours.len())?;
        if theirs != ours {
            bail!("kernels have another layout: {theirs:?}, {ours:?} was expected");
        }
        let node = tasks
            .node(n)
            .map_or("no node is known".into(), |node| format!("node {node}"));
        row(
            &format!("area of GPU {n}"),
            format!(
                "{:#x}, {} pinned, {node}",
                tasks.address(n),
                style::bytes(shape.bytes() as u64), // CAST: a size in memory.
            ),
        );
    }
    row(
        "rings of each",
        format!(
            "{} lanes of 2 priorities, {} tasks of {} bytes; {} futures",
            shape.lanes, shape.depth, shape.segment, shape.futures
        ),
    );
    row(
        "layout",
        format!(
            "{} sizes and offsets of kernels and program are {}",
            ours.len(),
            style::good("the same")
        ),
    );
    Ok(())
}
