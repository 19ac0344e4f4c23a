// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl bench versus`: the same calls to two drivers of one interface, and what they cost with each.
//!
//! `measure` runs in a VM with one driver and prints a report. It uses nothing but the calls of `/dev/kfd` and the render
//! node that both drivers have; what the hardware was asked for is counted by the device model, so that these figures hold
//! on any machine. `table` puts the reports of two drivers side by side. `scripts/bench-versus` does all of it.

mod boot;
mod counts;
mod hang;
pub mod measure;
mod memory;
mod packets;
mod queues;
mod report;
mod table;
mod victim;

use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Measure the driver that is loaded; the report is JSON
    Measure(measure::Options),
    /// Compare reports
    Table(table::Options),
    /// A process that waits for a GPU and has a packet executed
    #[command(hide = true)]
    First,
    /// A process that holds queues until its input ends, or until it is killed
    #[command(hide = true)]
    Victim(victim::Options),
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    match &options.what {
        What::Measure(measure) => measure::run(measure),
        What::Table(table) => table::run(table),
        What::First => boot::first(),
        What::Victim(victim) => victim::run(victim),
    }
}
