// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl bench`: what things cost, counted and timed.

mod doorbells;
mod holders;
mod isa;
mod memory;
mod queues;
mod strays;
mod tasks;
mod versus;
mod worker;

use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Creation, update and destruction of queues, with changes collected and without (root)
    Queues(queues::Options),
    /// Packets per second with one doorbell for one packet and for many
    Doorbells(doorbells::Options),
    /// Instructions of the GPU per second on one core of this machine, per class
    Isa(isa::Options),
    /// Binding, moves, events and changes of the process's own memory, beside peers without a GPU (root)
    Memory(memory::Options),
    /// Round trips of events beside a process that rings doorbells without a queue
    Strays(strays::Options),
    /// Tasks from kernels and threads to workers of the CPU: how many in a second, how long one takes
    Tasks(tasks::Options),
    /// The loaded driver by what every driver of this interface has, and the comparison of two
    Versus(versus::Options),
    /// One process of `queues`
    #[command(hide = true)]
    Worker(worker::Options),
    /// One process of `memory`
    #[command(hide = true)]
    Taker(memory::moves::TakerOptions),
    /// One process of `strays`
    #[command(hide = true)]
    Ringer(strays::RingerOptions),
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    match &options.what {
        What::Queues(queues) => queues::run(queues),
        What::Doorbells(doorbells) => doorbells::run(doorbells),
        What::Isa(isa) => isa::run(isa),
        What::Memory(memory) => memory::run(memory),
        What::Strays(strays) => strays::run(strays),
        What::Tasks(tasks) => tasks::run(tasks),
        What::Versus(versus) => versus::run(versus),
        What::Worker(worker) => worker::run(worker),
        What::Taker(taker) => memory::moves::taker(taker),
        What::Ringer(ringer) => strays::ringer(ringer),
    }
}
