// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl bench isa`: how fast this machine executes instructions of the GPU, per class, on one core.  No GPU is
//! needed.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use anyhow::Context;
use gfx9_isa::simd;
use gfx9_isa::workload::workloads;
use gfx9_isa::workload::Bench;
use gfx9_isa::workload::Workload;
use nix::time::ClockId;
use serde::Serialize;
use tabled::settings::object::Columns;
use tabled::settings::Alignment;
use tabled::settings::Style;
use tabled::Table;
use tabled::Tabled;

#[derive(clap::Args)]
pub struct Options {
    /// Only loops with one of these in their name
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Milliseconds for each loop
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    time: u64,
    /// The figures as JSON
    #[arg(long)]
    json: bool,
}

/// One loop on one core.
#[derive(Debug, Serialize, Tabled)]
struct Row {
    #[tabled(rename = "loop")]
    name: &'static str,
    #[tabled(rename = "class")]
    class: &'static str,
    /// Instructions of a wave per second, in millions.
    #[tabled(rename = "Minst/s", display = "one_place")]
    instructions: f64,
    /// Nanoseconds per instruction.
    #[tabled(rename = "ns/inst", display = "one_place")]
    nanoseconds: f64,
    /// Bytes loaded and stored per second, in billions.
    #[tabled(rename = "GB/s", display = "if_any")]
    bytes: f64,
    /// Operations of matrices per second, in billions.
    #[tabled(rename = "GFLOP/s", display = "if_any")]
    flops: f64,
}

fn one_place(value: &f64) -> String {
    format!("{value:.1}")
}

fn if_any(value: &f64) -> String {
    if *value == 0.0 {
        String::new()
    } else {
        format!("{value:.2}")
    }
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    ClockId::CLOCK_THREAD_CPUTIME_ID
        .now()
        .map_or(Duration::ZERO, Duration::from)
}

fn measure(workload: &'static Workload, time: Duration) -> anyhow::Result<Row> {
    let mut bench = Bench::new(workload);
    let figures = match bench.measure(time, thread_time) {
        Ok(figures) => figures,
        Err(stop) => bail!("the loop {} stops: {stop:?}", workload.name),
    };
    Ok(Row {
        name: workload.name,
        class: workload.class,
        instructions: figures.instructions / 1e6,
        nanoseconds: 1e9 / figures.instructions,
        bytes: figures.bytes / 1e9,
        flops: figures.flops / 1e9,
    })
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let wanted = |workload: &&Workload| {
        let named = |part: &String| workload.name.contains(part.as_str());
        options.only.is_empty() || options.only.iter().any(named)
    };
    let rows = workloads()
        .filter(wanted)
        .map(|workload| measure(workload, Duration::from_millis(options.time)))
        .collect::<anyhow::Result<Vec<Row>>>()?;
    if rows.is_empty() {
        bail!("no loop has such a name");
    }
    if options.json {
        let text = serde_json::to_string_pretty(&rows).context("the figures as JSON")?;
        anstream::println!("{text}");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&rows);
    table
        .with(Style::blank())
        .modify(Columns::new(2..), Alignment::right());
    anstream::println!(
        "One core, one wave of 64 lanes, kernels for {:?}:",
        simd::level()
    );
    anstream::println!("{table}");
    Ok(ExitCode::SUCCESS)
}
