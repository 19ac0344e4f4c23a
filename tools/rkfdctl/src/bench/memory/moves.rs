// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Moves of buffers between VRAM and system memory, as the driver's tracepoint tells of them.
//!
//! This process takes most of the VRAM; another one takes so much that some of the first's is moved out, and ends, so that it
//! is moved in again.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::ExitCode;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use rkfd::native::Bo;
use rkfd::native::Heap;
use rkfd::native::Rights;
use rkfd::native::Space;
use serde::Serialize;

use super::gb_per_second;
use super::timed;
use super::Pair;
use super::MIB;
use crate::debugfs;
use crate::demo::native::open;
use crate::style;

/// Where the buffers of each address space are bound.
const AT: u64 = 1 << 32;
/// The VRAM is taken in so many parts at most.
const PARTS: usize = 16;
/// Of these this process has so many, and the other one.
const FIRST: usize = 12;
const SECOND: usize = 8;
/// Longest wait for what was moved out to come back.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);

#[derive(clap::Args)]
pub struct TakerOptions {
    /// GPU, counted from 0
    #[arg(long)]
    gpu: usize,
    /// Buffers
    #[arg(long)]
    count: usize,
    /// Bytes of each
    #[arg(long)]
    bytes: usize,
}

/// The other process: takes VRAM and ends.
pub fn taker(options: &TakerOptions) -> anyhow::Result<ExitCode> {
    let (_, space) = open(options.gpu)?;
    take(&space, options.count, options.bytes)?;
    Ok(ExitCode::SUCCESS)
}

/// The moves of one direction.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// `out` or `in`.
    direction: &'static str,
    moves: usize,
    /// Of each.
    bytes: u64,
    pub time: Pair,
    gb_per_second: f64,
}

impl Figures {
    /// What a line of a table is about.
    pub fn line(&self) -> String {
        format!(
            "move {} {} of VRAM",
            style::bytes(self.bytes),
            self.direction
        )
    }

    /// How fast, for a reader.
    pub fn rate(&self) -> String {
        format!("  {:.2} GB/s", self.gb_per_second)
    }
}

/// One record of `bo_move`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Moved {
    out: bool,
    bytes: u64,
    micros: u64,
}

/// The tracepoint, which records while this lives.
struct Trace(PathBuf);

impl Trace {
    fn start() -> anyhow::Result<Self> {
        let root = Path::new("/sys/kernel/tracing");
        let name = || format!("{} (tracefs must be mounted; root only)", root.display());
        fs::write(root.join("trace"), "").with_context(name)?;
        fs::write(root.join("events/rkfd/bo_move/enable"), "1").with_context(name)?;
        Ok(Self(root.to_owned()))
    }

    /// Moves so far.
    fn moves(&self) -> anyhow::Result<Vec<Moved>> {
        Ok(parse(&fs::read_to_string(self.0.join("trace"))?))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("events/rkfd/bo_move/enable"), "0");
    }
}

/// The moves of a trace that went well.
fn parse(text: &str) -> Vec<Moved> {
    let record = |line: &str| {
        let (_, fields) = line.split_once(" bo_move: ")?;
        let field = |key: &str| {
            let mut words = fields.split_whitespace();
            words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
        };
        if field("result")? != "0" {
            return None;
        }
        Some(Moved {
            out: field("direction")? == "out",
            bytes: debugfs::number(field("length")?)?,
            micros: field("us")?.parse().ok()?,
        })
    };
    text.lines().filter_map(record).collect()
}

/// Has buffers moved both ways.
///
/// # Errors
/// A call failed, nothing was moved, or the contents are others than before.
pub fn measure(gpu: usize) -> anyhow::Result<Vec<Figures>> {
    let gpus = crate::mem::addresses()?;
    let pci = gpus
        .get(gpu)
        .with_context(|| format!("there is no GPU {gpu}"))?;
    let (used, total) = vram(pci)?;
    let free = usize::try_from(total.saturating_sub(used))?;
    let each = free / PARTS / (2 * MIB) * (2 * MIB);
    if each == 0 {
        bail!("too little VRAM is free");
    }
    let trace = Trace::start()?;
    let (_, first) = open(gpu)?;
    let buffers = take(&first, FIRST, each)?;
    for (bo, number) in buffers.iter().zip(1..) {
        bo.write_u32(0, number)?;
        bo.write_u32(each - 4, !number)?;
    }
    let other = Command::new(std::env::current_exe().context("this program's own path")?)
        .args(["bench", "taker", "--gpu", &gpu.to_string()])
        .args(["--count", &SECOND.to_string(), "--bytes", &each.to_string()])
        .status()
        .context("a process that takes VRAM")?;
    if !other.success() {
        bail!("the process that takes VRAM: {other}");
    }
    let end = Instant::now() + PATIENCE;
    let moved = loop {
        let moved = trace.moves()?;
        let (out, back): (Vec<Moved>, Vec<Moved>) = moved.iter().partition(|moved| moved.out);
        if out.is_empty() {
            bail!("no buffer was moved though VRAM was short");
        }
        if back.len() >= out.len() {
            break moved;
        }
        if Instant::now() > end {
            bail!(
                "{} buffers were moved out, of which {} are back",
                out.len(),
                back.len()
            );
        }
        std::thread::sleep(LOOK);
    };
    drop(trace);
    for (bo, number) in buffers.iter().zip(1..) {
        if (bo.read_u32(0)?, bo.read_u32(each - 4)?) != (number, !number) {
            bail!("a buffer that was moved has other contents than before");
        }
    }
    figures(&moved, each)
}

fn figures(moved: &[Moved], each: usize) -> anyhow::Result<Vec<Figures>> {
    let bytes = each as u64; // CAST: a size in memory.
    let from = vec![1u8; each];
    let mut found = Vec::new();
    for direction in ["out", "in"] {
        let out = direction == "out";
        let own = moved.iter().filter(|m| m.out == out && m.bytes == bytes);
        let times: Vec<Duration> = own.map(|m| Duration::from_micros(m.micros)).collect();
        let moves = times.len();
        if moves == 0 {
            bail!("no buffer was moved {direction}");
        }
        let peers: anyhow::Result<Vec<Duration>> = (0..moves)
            .map(|_| {
                // Pages that are not there yet, as those that a move takes.
                timed(|| Ok(std::hint::black_box(from.clone())))
            })
            .collect();
        let time = Pair::new(times, peers?);
        found.push(Figures {
            direction,
            moves,
            bytes,
            time,
            gb_per_second: gb_per_second(bytes, time.micros),
        });
    }
    Ok(found)
}

/// Bytes of VRAM in use, and all.
fn vram(pci: &str) -> anyhow::Result<(u64, u64)> {
    let text = debugfs::read(pci, "memory")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("vram bytes"));
    let mut numbers = line
        .unwrap_or("")
        .split_whitespace()
        .filter_map(debugfs::number);
    numbers
        .next()
        .zip(numbers.next())
        .context("the driver does not say how much VRAM there is")
}

/// Takes and binds `count` buffers in VRAM.
fn take(space: &Space, count: usize, each: usize) -> anyhow::Result<Vec<Bo>> {
    let mut taken = Vec::with_capacity(count);
    for number in 0..count {
        let bo = space.bo(Heap::Vram, each).context("a buffer in VRAM")?;
        let mut list = space.list();
        let address = AT + (number * each) as u64; // CAST: a size in memory.
        list.map(address, &bo, 0, each, Rights::Write)?;
        space.bind(&list).context("binding it")?;
        taken.push(bo);
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_moves_are_read() {
        let text = "# tracer: nop\n \
            a-1 [000] ..... 1.0: bo_move: gpu_id=7 direction=out length=0x200000 us=15 result=0\n \
            a-1 [000] ..... 1.1: bo_move: gpu_id=7 direction=in length=0x1000 us=2 result=-5\n \
            a-1 [000] ..... 1.2: evict: gpu_id=7 pid=1\n \
            a-1 [000] ..... 1.3: bo_move: gpu_id=7 direction=in length=0x1000 us=3 result=0\n";
        let moved = |out, bytes, micros| Moved { out, bytes, micros };
        assert_eq!(
            parse(text),
            [moved(true, 0x20_0000, 15), moved(false, 0x1000, 3)]
        );
    }
}
