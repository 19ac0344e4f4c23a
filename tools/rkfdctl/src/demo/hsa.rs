// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl demo hsa`: what HSA's queueing model promises, shown by kernels and checked as it is told.
//!
//! Beside what a promise costs stands what the same work costs without it: buffers, copies, and waits in the kernel. What
//! is wrong, a system call where there is to be none included, is a failure. Times are told, never judged.

mod coherency;
mod queueing;
mod shared;
mod signals;
mod space;
pub mod stage;
mod table;

use std::process::ExitCode;

use self::stage::Stage;
use super::check_counter;
use super::demand_gpu;
use super::introduce;
use crate::style;
use crate::syscalls;
use crate::syscalls::Counter;

#[derive(clap::Args, Clone)]
pub struct Options {
    /// GPU, counted from 0
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// Runs of each path to measure
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Nodes of the list that is shared
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(3..=10000))]
    nodes: u16,
    /// Let the demo fail on purpose: expect another sum than the list has
    #[arg(long, hide = true)]
    expect_wrong: bool,
    /// Be the other process of the demo
    #[arg(long, hide = true)]
    worker: bool,
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    demand_gpu()?;
    let options = options.clone();
    syscalls::watched(move |counter| match tell(&options, counter) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("rkfdctl: {e:#}");
            ExitCode::FAILURE
        }
    })
}

fn tell(options: &Options, mut counter: Counter) -> anyhow::Result<()> {
    let device = crate::open_gpu(options.gpu)?;
    rkfd::clock::calibrate();
    check_counter(&mut counter)?;
    if options.worker {
        return queueing::work(&mut Stage::new(device, counter, options)?);
    }
    introduce(&device)?;
    let mut stage = Stage::new(device, counter, options)?;
    shared::tell(&mut stage)?;
    coherency::tell(&mut stage)?;
    signals::tell(&mut stage)?;
    queueing::tell(&mut stage)?;
    stage.table.show();
    anstream::println!("\n{}", style::good("Success."));
    Ok(())
}
