// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl bench strays`: what a process costs others that stores to doorbells without a queue as fast as it can.
//!
//! The round trip is that of an event: a packet is submitted whose interrupt wakes the thread that waits for it. It is
//! measured alone, beside a process that rings the doorbell of a queue that is connected and has no work, and beside one
//! that rings a doorbell which no connected queue has. Both take the same time of the CPU and, under emulation, of the
//! device model; what the second costs beyond the first is the price of a stray doorbell.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::process::Child;
use std::process::Command;
use std::process::ExitCode;
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use rkfd::device::Device;
use rkfd::event::Event;
use rkfd::event::Waited;
use rkfd::packet::pm4::Packet;
use rkfd::packet::pm4::ReleaseData;
use rkfd::packet::pm4::ReleaseInterrupt;
use rkfd::packet::pm4::CACHE_FLUSH_AND_INV_TS;
use rkfd::queue::Queue;
use rkfd::queue::QueueKind;
use rkfd::queue::QueueOptions;
use serde::Serialize;

use crate::latency::Samples;

/// Longest wait for an event.
const PATIENCE: Duration = Duration::from_secs(60);
/// Stores between two looks at whether to stop.
const BURST: u64 = 1024;

#[derive(clap::Args)]
pub struct Options {
    /// GPU, counted from 0
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// Round trips of each series
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
    /// Times that the three series take turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    turns: u32,
    /// The figures as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct RingerOptions {
    /// GPU, counted from 0
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// The queue is not connected
    #[arg(long)]
    stray: bool,
}

/// What was found.
#[derive(Debug, Serialize)]
struct Figures {
    /// Median round trips in microseconds.
    alone_micros: f64,
    connected_micros: f64,
    stray_micros: f64,
    /// Stores to doorbells during the series.
    connected_stores: u64,
    stray_stores: u64,
    /// Of the medians, stray to connected.
    ratio: f64,
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let device = crate::open_gpu(options.gpu)?;
    let mut trip = Trip::new(&device)?;
    let (mut alone, mut connected, mut stray) = (Vec::new(), Vec::new(), Vec::new());
    let (mut connected_stores, mut stray_stores) = (0, 0);
    for _ in 0..options.turns {
        trip.series(options.rounds, &mut alone)?;
        let ringer = Ringer::new(options.gpu, false)?;
        trip.series(options.rounds, &mut connected)?;
        connected_stores += ringer.stop()?;
        let ringer = Ringer::new(options.gpu, true)?;
        trip.series(options.rounds, &mut stray)?;
        stray_stores += ringer.stop()?;
    }
    let median = |samples| Samples::new(samples).percentile(50).as_secs_f64().max(1e-9) * 1e6;
    let (connected, stray) = (median(connected), median(stray));
    let figures = Figures {
        alone_micros: median(alone),
        connected_micros: connected,
        stray_micros: stray,
        connected_stores,
        stray_stores,
        ratio: stray / connected,
    };
    if options.json {
        anstream::println!("{}", serde_json::to_string_pretty(&figures)?);
    } else {
        anstream::println!(
            "round trip of an event, median\n  alone                          {:.1} µs\n  beside a connected doorbell    {:.1} µs ({} stores)\n  beside a doorbell of no queue  {:.1} µs ({} stores), {:.2} of the line before",
            figures.alone_micros,
            figures.connected_micros,
            figures.connected_stores,
            figures.stray_micros,
            figures.stray_stores,
            figures.ratio
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// A queue and an event that its packets signal.
pub(super) struct Trip {
    // Destroyed before the event whose slot its packets write.
    queue: Queue,
    event: Event,
    packets: Vec<u32>,
}

impl Trip {
    pub(super) fn new(device: &Arc<Device>) -> anyhow::Result<Self> {
        let event = Event::new(device, true).context("event")?;
        let packets = Packet::encode_all(&[Packet::ReleaseMem {
            event: CACHE_FLUSH_AND_INV_TS,
            address: event.slot_address(),
            data: ReleaseData::Dword(event.id()),
            interrupt: ReleaseInterrupt::AfterWrite(event.id()),
        }])?;
        Ok(Self {
            queue: Queue::new(device, QueueOptions::new(QueueKind::Pm4)).context("queue")?,
            event,
            packets,
        })
    }

    /// Adds the times of `rounds` round trips to `times`.
    pub(super) fn series(&mut self, rounds: u32, times: &mut Vec<Duration>) -> anyhow::Result<()> {
        for _ in 0..rounds {
            let began = Instant::now();
            self.queue.submit(&self.packets)?;
            if self.event.wait(PATIENCE)? == Waited::TimedOut {
                bail!("an event was not signalled within {PATIENCE:?}");
            }
            times.push(began.elapsed());
        }
        Ok(())
    }
}

/// A process that rings a doorbell without pause; killed when dropped.
struct Ringer(Child);

impl Ringer {
    /// Starts one, which is at it when this returns.
    fn new(gpu: usize, stray: bool) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("this program's own path")?);
        command
            .args(["bench", "ringer", "--gpu", &gpu.to_string()])
            .args(stray.then_some("--stray"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut ringer = Self(command.spawn().context("a process that rings doorbells")?);
        let line = ringer.line()?;
        if line != "ready" {
            bail!("the process that rings doorbells said {line:?}");
        }
        Ok(ringer)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let out = self.0.stdout.as_mut().context("its output")?;
        let mut line = String::new();
        // No more than a line is ever in the buffer that goes away here.
        BufReader::new(out).read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// Ends it and returns how often it rang.
    fn stop(mut self) -> anyhow::Result<u64> {
        drop(self.0.stdin.take());
        let stores = self.line()?.parse().context("its number of stores")?;
        let status = self.0.wait()?;
        if !status.success() {
            bail!("the process that rings doorbells: {status}");
        }
        Ok(stores)
    }
}

impl Drop for Ringer {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process of a [`Ringer`]: rings until its standard input ends, then prints how often.
pub fn ringer(options: &RingerOptions) -> anyhow::Result<ExitCode> {
    let device = crate::open_gpu(options.gpu)?;
    let queue = Queue::new(&device, QueueOptions::new(QueueKind::Pm4))?;
    if options.stray {
        // A queue of 0 % keeps its doorbell and is not on the hardware.
        queue.update(0, 7)?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (at_end, value) = (stop.clone(), queue.write_pointer());
    let reader = std::thread::spawn(move || {
        let ended = std::io::stdin().lock().read_line(&mut String::new());
        at_end.store(true, Ordering::Relaxed);
        ended
    });
    println!("ready");
    std::io::stdout().flush()?;
    let mut stores: u64 = 0;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..BURST {
            queue.ring_doorbell(value);
        }
        stores += BURST;
    }
    if reader.join().is_err() {
        bail!("the thread that reads standard input panicked");
    }
    println!("{stores}");
    Ok(ExitCode::SUCCESS)
}
