// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Measures the driver that is loaded.

use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use rkfd::device::Device;
use rkfd::memory::Buffer;
use rkfd::memory::Kind;
use rkfd::packet::pm4::Packet;
use rkfd::queue::Queue;
use rkfd::queue::QueueKind;
use rkfd::queue::QueueOptions;
use rkfd::queue::SaveBuffer;

use super::boot;
use super::counts::Counts;
use super::counts::Model;
use super::hang;
use super::memory;
use super::packets;
use super::queues;
use super::report::Report;
use super::report::Row;
use super::report::Time;
use crate::info::gfx_name;

/// The only GPU.
pub const GPU: usize = 0;
/// Longest wait for an effect in memory.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long is watched what happens without any call.
const REST: Duration = Duration::from_secs(5);

/// What can be measured, in the order in which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// From loading the driver to the first packet
    Boot,
    /// Nothing at all
    Rest,
    /// Packets and events
    Packets,
    /// Mapping of memory, and changes of the process's own
    Memory,
    /// A process that is killed
    Kill,
    /// Queues beside others
    Queues,
    /// A queue that does not leave the hardware; last, since a driver may not recover
    Hang,
}

#[derive(clap::Args)]
pub struct Options {
    /// Numbers of queues that exist already, ascending
    #[arg(long, value_delimiter = ',', default_value = "1,16,128,1024")]
    existing: Vec<usize>,
    /// Calls of each kind
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Only these parts
    #[arg(long, value_delimiter = ',', value_enum)]
    only: Vec<Part>,
    /// All but these parts
    #[arg(long, value_delimiter = ',', value_enum)]
    skip: Vec<Part>,
}

impl Options {
    fn wants(&self, part: Part) -> bool {
        (self.only.is_empty() || self.only.contains(&part)) && !self.skip.contains(&part)
    }
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if !options.existing.is_sorted() {
        // Idle queues are only added.
        bail!("--existing takes ascending numbers");
    }
    let rounds = usize::from(options.rounds);
    let mut model = Model::open()?;
    let driver = boot::Driver::bound()?;
    let mut rows = Vec::new();
    // It unloads the driver, so nothing may be open yet.
    if options.wants(Part::Boot) {
        say("loading the driver");
        boot::measure(&driver, &mut model, &mut rows)?;
    }
    let device = crate::open_gpu(GPU)?;
    if options.wants(Part::Rest) {
        say("nothing");
        rest(&device, &mut model, &mut rows)?;
    }
    if options.wants(Part::Packets) {
        say("packets and events");
        packets::measure(&device, &mut model, rounds, &mut rows)?;
    }
    if options.wants(Part::Memory) {
        say("memory");
        memory::measure(&device, &mut model, rounds, &mut rows)?;
    }
    if options.wants(Part::Kill) {
        say("a process that is killed");
        hang::kill(&mut model, rounds, &mut rows)?;
    }
    if options.wants(Part::Queues) {
        queues::measure(&device, &mut model, &options.existing, rounds, &mut rows)?;
    }
    if options.wants(Part::Hang) {
        say("a queue that does not leave");
        hang::refuse(&device, &mut model, &mut rows)?;
    }
    let report = Report {
        driver: driver.name().to_owned(),
        kernel: text_of("/proc/sys/kernel/osrelease"),
        processor: processor(),
        gpu: gfx_name(device.gfx()),
        rounds,
        rows,
    };
    anstream::println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(ExitCode::SUCCESS)
}

/// Tells how far it is; the report is on standard output.
pub fn say(what: &str) {
    anstream::eprintln!("  {what} …");
}

fn text_of(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

/// The guest's processor by name.
fn processor() -> String {
    let text = text_of("/proc/cpuinfo");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    line.and_then(|line| line.split_once(':'))
        .map_or("unknown", |(_, name)| name)
        .trim()
        .to_owned()
}

/// What the driver does while nobody asks for anything, per second, beside a queue that rests.
fn rest(device: &Arc<Device>, model: &mut Model, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let worker = Worker::new(device)?;
    worker.effect(1)?;
    let before = model.settled()?;
    let began = Instant::now();
    std::thread::sleep(REST);
    let after = model.counts()?;
    let seconds = began.elapsed().as_secs_f64();
    let mut figures = after.since(before, 1).figures();
    for figure in &mut figures {
        *figure /= seconds;
    }
    rows.push(Row {
        what: "one second of rest".to_owned(),
        beside: "1 queue".to_owned(),
        time: Time::Untimed,
        counts: Some(Counts::of_figures(figures)),
    });
    Ok(())
}

/// A queue whose packets leave numbers in memory.
pub struct Worker {
    // Destroyed before the memory that its packets write.
    pub queue: Queue,
    memory: Buffer,
}

impl Worker {
    /// With a save area of its own.
    pub fn new(device: &Arc<Device>) -> anyhow::Result<Self> {
        Self::sharing(device, &Arc::new(SaveBuffer::new(device)?))
    }

    /// With the save area of other queues that run no waves.
    pub fn sharing(device: &Arc<Device>, save: &Arc<SaveBuffer>) -> anyhow::Result<Self> {
        let memory = Buffer::new(device, Kind::Gtt, 4096)?;
        let options = QueueOptions::new(QueueKind::Pm4);
        let queue =
            Queue::with_save_buffer(device, options, Some(save.clone())).context("queue")?;
        Ok(Self { queue, memory })
    }

    /// Submits a packet that writes `value`, another one than the one before, and waits until it is there.
    pub fn effect(&self, value: u32) -> anyhow::Result<()> {
        let write = Packet::WriteData {
            address: self.memory.address(),
            data: vec![value],
            confirm: true,
        };
        self.queue.submit(&Packet::encode_all(&[write])?)?;
        let end = Instant::now() + PATIENCE;
        while self.memory.read_u32(0)? != value {
            if Instant::now() >= end {
                bail!("a packet had no effect within {PATIENCE:?}");
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}
