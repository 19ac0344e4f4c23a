// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl bench doorbells`: what it brings to ring once for many packets.
//!
//! Every packet adds 1 to a number in memory (an AQL packet takes 1 from its signal), so that the end of the run is also
//! the proof that each was executed once.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use rkfd::device::Device;
use rkfd::memory::Buffer;
use rkfd::memory::Kind;
use rkfd::packet::aql;
use rkfd::packet::pm4;
use rkfd::packet::sdma;
use rkfd::queue::Queue;
use rkfd::queue::QueueKind;
use rkfd::queue::QueueOptions;
use rkfd::signal::Signals;
use serde::Serialize;
use tabled::Tabled;

use crate::table;

/// Room for the largest batch, several times.
const RING_BYTES: usize = 0x10000;
/// Largest batch: half an AQL ring of that size.
const MOST: i64 = 512;
/// Longest wait for the GPU to go on.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub struct Options {
    /// GPU, counted from 0
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// Packets for each ring of the doorbell
    #[arg(long, value_delimiter = ',', default_value = "1,8,64",
          value_parser = clap::value_parser!(u64).range(1..=MOST as u64))]
    batches: Vec<u64>,
    /// Packets in all, for each size
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    packets: u64,
    /// The figures as JSON
    #[arg(long)]
    json: bool,
}

/// One kind of queue with one size of batches.
#[derive(Debug, Serialize, Tabled)]
struct Row {
    #[tabled(rename = "type")]
    kind: &'static str,
    /// Packets for each ring of the doorbell, at most.
    #[tabled(rename = "packets per doorbell")]
    batch: u64,
    /// Packets whose effect was found.
    packets: u64,
    doorbells: u64,
    #[tabled(rename = "packets/s", display = "whole")]
    packets_per_second: f64,
    /// … as a multiple of those of the kind's first row.
    #[tabled(rename = "times", display = "tenths")]
    times: f64,
}

fn whole(value: &f64) -> String {
    format!("{value:.0}")
}

fn tenths(value: &f64) -> String {
    format!("{value:.1}")
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let device = crate::open_gpu(options.gpu)?;
    let mut rows = Vec::new();
    for (name, kind) in [
        ("PM4", QueueKind::Pm4),
        ("AQL", QueueKind::Aql),
        ("SDMA", QueueKind::Sdma),
    ] {
        let mut first = None;
        for &batch in &options.batches {
            let mut counted = Counted::new(&device, kind)?;
            let (elapsed, doorbells) = counted.execute(options.packets, batch)?;
            // CAST: figures for a reader.
            let rate = options.packets as f64 / elapsed.as_secs_f64().max(1e-9);
            rows.push(Row {
                kind: name,
                batch,
                packets: counted.done()?,
                doorbells,
                packets_per_second: rate,
                times: rate / *first.get_or_insert(rate),
            });
        }
    }
    if options.json {
        anstream::println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        anstream::println!("{}", table(&rows));
        anstream::println!("\nFrom the first packet's writing to the last one's effect in memory.");
    }
    if rows.iter().any(|row| row.packets != options.packets) {
        bail!("packets were lost or executed twice");
    }
    Ok(ExitCode::SUCCESS)
}

fn table(rows: &[Row]) -> String {
    table::plain(rows, 1..Row::LENGTH)
}

/// Where the packets leave what they did.
enum Counter {
    Memory(Buffer),
    /// A signal, and what it began with.
    Signal(Signals, i64),
}

/// A queue whose packets count.
struct Counted {
    // Destroyed before the memory that its packets write.
    queue: Queue,
    counter: Counter,
}

impl Counted {
    fn new(device: &Arc<Device>, kind: QueueKind) -> anyhow::Result<Self> {
        let counter = if kind == QueueKind::Aql {
            let signals = Signals::new(device, 1)?;
            let start = i64::MAX / 2;
            signals.store(0, start)?;
            Counter::Signal(signals, start)
        } else {
            let memory = Buffer::new(device, Kind::Gtt, 4096)?;
            memory.write_u64(0, 0)?;
            Counter::Memory(memory)
        };
        let options = QueueOptions {
            ring_bytes: RING_BYTES,
            ..QueueOptions::new(kind)
        };
        Ok(Self {
            queue: Queue::new(device, options)?,
            counter,
        })
    }

    /// Packets whose effect is in memory.
    fn done(&self) -> anyhow::Result<u64> {
        Ok(match &self.counter {
            Counter::Memory(memory) => memory.read_u64(0)?,
            Counter::Signal(signals, start) => start.abs_diff(signals.load(0)?),
        })
    }

    /// Writes `packets` packets, `batch` for each ring of the doorbell, and waits for all; returns how long that took
    /// and how often the doorbell rang.
    fn execute(&mut self, packets: u64, batch: u64) -> anyhow::Result<(Duration, u64)> {
        let packet = self.packet()?;
        // The queue sits on the hardware before the clock starts.
        self.stage(&packet)?;
        self.queue.flush();
        self.wait(1)?;
        let began = Instant::now();
        let mut doorbells = 0;
        let mut left = packets - 1;
        while left > 0 {
            let n = left.min(batch);
            for _ in 0..n {
                self.stage(&packet)?;
            }
            doorbells += u64::from(self.queue.flush());
            left -= n;
        }
        self.wait(packets)?;
        Ok((began.elapsed(), doorbells + 1))
    }

    fn wait(&self, packets: u64) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        while self.done()? < packets {
            if Instant::now() > end {
                bail!("{} of {packets} packets were executed", self.done()?);
            }
            std::thread::yield_now();
        }
        // One that ran twice would come after the last.
        Ok(self.queue.drain(PATIENCE)?)
    }

    fn packet(&self) -> anyhow::Result<Encoded> {
        Ok(match &self.counter {
            Counter::Signal(signals, _) => {
                let (packet, header) = aql::Barrier {
                    kind: aql::BarrierKind::And,
                    dependencies: [0; 5],
                    completion: signals.address(0)?,
                }
                .encode()?;
                Encoded::Aql(packet, header)
            }
            Counter::Memory(memory) if self.queue.kind() == QueueKind::Sdma => {
                Encoded::Dwords(sdma::Packet::encode_all(&[sdma::Packet::Atomic {
                    operation: sdma::ATOMIC_ADD64,
                    address: memory.address(),
                    source: 1,
                }])?)
            }
            Counter::Memory(memory) => {
                Encoded::Dwords(pm4::Packet::encode_all(&[pm4::Packet::AtomicMem {
                    operation: pm4::ATOMIC_ADD64,
                    address: memory.address(),
                    source: 1,
                    compare: 0,
                }])?)
            }
        })
    }

    /// Writes a packet as soon as there is room.
    fn stage(&mut self, packet: &Encoded) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let staged = match packet {
                Encoded::Dwords(dwords) => self.queue.stage(dwords),
                // Waiting for room in there rings the doorbell, which is counted here.
                Encoded::Aql(..) if self.queue.free() == 0 => {
                    Err(rkfd::error::Error::RingFull { wanted: 1, free: 0 })
                }
                Encoded::Aql(dwords, header) => self.queue.stage_aql(dwords, *header).map(|_| ()),
            };
            match staged {
                Err(rkfd::error::Error::RingFull { .. }) if Instant::now() < end => {
                    // A batch is half a ring at most, so the GPU knows of packets whose room will be free.
                    std::thread::yield_now();
                }
                other => return Ok(other?),
            }
        }
    }
}

/// A packet, ready for the ring.
enum Encoded {
    Dwords(Vec<u32>),
    Aql([u32; aql::DWORDS], u16),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_its_figures() {
        let text = table(&[Row {
            kind: "PM4",
            batch: 64,
            packets: 8192,
            doorbells: 128,
            packets_per_second: 123_456.7,
            times: 20.04,
        }]);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines[0].join(" "),
            "type packets per doorbell packets doorbells packets/s times"
        );
        assert_eq!(lines[1], ["PM4", "64", "8192", "128", "123457", "20.0"]);
    }
}
