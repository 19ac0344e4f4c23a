// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl bench tasks`: tasks from kernels and from threads of the CPU to workers of the CPU.
//!
//! Each task's arguments are compared, and that each ran once; so is the value of each round trip.

use std::process::ExitCode;

use rkfd::tasks::layout::Shape;

use crate::demo::tasks::measure;
use crate::demo::tasks::stage::Stage;
use crate::demo::tasks::table;

#[derive(clap::Args)]
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
    /// Tasks of each series, at least
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    tasks: u64,
    /// Round trips of each
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: u64,
    /// The figures as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let mut stage = Stage::new(
        options.gpu,
        options.gpus,
        Shape::default(),
        options.workers.into(),
    )?;
    rkfd::clock::calibrate();
    let rows = measure(&mut stage, options.rounds, options.tasks)?;
    if options.json {
        anstream::println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        anstream::println!("{}", table(&rows));
        anstream::println!(
            "\nTasks in a row, from the first one's writing to the last one's end; a round trip ends with the value."
        );
    }
    Ok(ExitCode::SUCCESS)
}
