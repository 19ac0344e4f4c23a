// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The rkfd test tool.
//!
//! Exit status: 0 success, 1 failure (a wrong value is a failure), 2 wrong usage, 3 no GPU.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod bench;
mod control;
mod debugfs;
mod demo;
mod errors;
mod events;
mod fuzz;
mod hang;
mod info;
mod latency;
mod mem;
mod mirror;
mod model;
mod profile;
mod progress;
mod queues;
mod run;
mod source;
mod stress;
mod style;
mod syscalls;
mod table;
mod tasks;
mod timeline;
mod torture;
mod trace;
mod waves;

use std::process::ExitCode;

use clap::Parser;
use clap::Subcommand;
use rkfd::error::Error;

/// Status of a run that found no GPU.
const NO_GPU: u8 = 3;

/// Look at, try and trace a compute GPU behind /dev/kfd.
#[derive(Parser)]
#[command(name = "rkfdctl", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the GPUs, their memory, queues and versions
    Info(info::Options),
    /// Dispatch packets through a user queue and tell what happens
    Demo(demo::Options),
    /// Run a kernel of a compiled file, or list its kernels
    Run(run::Options),
    /// Show every queue, whose it is and where it sits (root)
    Queues(queues::Options),
    /// Show whose memory is where, and what a GPU address leads to (root)
    Mem(mem::Options),
    /// Show which memory of programs GPUs see, how much of it just now, and what that costs (root)
    Mirror(mirror::Options),
    /// Show where every wave is: kernel, instruction, active lanes (model only)
    Waves(waves::Options),
    /// Count what the kernels of a command execute (model only)
    Profile(profile::Options),
    /// Show what kernels have done wrong: kernel, line of the source, wave, address (model only)
    Errors(errors::Options),
    /// Run a command with a checker of its kernels' accesses to LDS (model only)
    Check(errors::CheckOptions),
    /// Show what happens on the GPUs: processes, evictions, faults, resets
    Events(events::Options),
    /// Show programs whose kernels hand tasks to the CPU, and their workers
    Tasks(tasks::Options),
    /// Show the packets that the GPU executed lately
    Trace(trace::Options),
    /// Put a GPU under load and verify what it does
    Stress(stress::Options),
    /// Change memory in all ways while GPUs work on it, and compare every byte
    Torture(torture::Options),
    /// Make random calls and see whether an answer, memory or what is left is wrong
    Fuzz(fuzz::Options),
    /// Measure what queues and doorbells cost
    Bench(bench::Options),
    /// Break something in the device model and see who is hurt
    Hang(hang::Options),
    /// Ask the device model something, or make it fail
    Model(model::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Info(options) => info::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::Run(options) => run::run(&options),
        Command::Queues(options) => queues::run(&options),
        Command::Mem(options) => mem::run(&options),
        Command::Mirror(options) => mirror::run(&options),
        Command::Waves(options) => waves::run(&options),
        Command::Profile(options) => profile::run(&options),
        Command::Errors(options) => errors::run(&options),
        Command::Check(options) => errors::check(&options),
        Command::Events(options) => events::run(&options),
        Command::Tasks(options) => tasks::run(&options),
        Command::Trace(options) => trace::run(&options),
        Command::Stress(options) => stress::run(&options),
        Command::Torture(options) => torture::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Hang(options) => hang::run(&options),
        Command::Model(options) => model::run(&options),
    };
    match result {
        Ok(code) => code,
        Err(e) => match e.downcast_ref::<Error>() {
            Some(Error::NoDriver | Error::NoGpu) => {
                eprintln!("rkfdctl: {}", no_gpu(&e));
                ExitCode::from(NO_GPU)
            }
            _ => {
                eprintln!("rkfdctl: {e:#}");
                ExitCode::FAILURE
            }
        },
    }
}

/// A plain sentence for a machine without a GPU.
fn no_gpu(e: &anyhow::Error) -> &'static str {
    match e.downcast_ref::<Error>() {
        Some(Error::NoDriver) => {
            "There is no GPU: /dev/kfd does not exist, so no compute driver is loaded."
        }
        _ => "There is no GPU: the driver is loaded but serves none.",
    }
}

/// The GPU number `index`, opened.
///
/// # Errors
/// [`Error::NoGpu`] where there is none at all; a sentence where there are fewer.
fn open_gpu(index: usize) -> anyhow::Result<std::sync::Arc<rkfd::device::Device>> {
    let kfd = rkfd::device::Kfd::open()?;
    let gpus = kfd.gpus()?;
    if gpus.is_empty() {
        return Err(Error::NoGpu.into());
    }
    let Some(gpu) = gpus.get(index) else {
        anyhow::bail!(
            "there is no GPU {index}: the driver serves {}, counted from 0",
            gpus.len()
        );
    };
    Ok(rkfd::device::Device::open(&kfd, gpu)?)
}
