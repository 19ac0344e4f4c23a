// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl mem`: whose memory is where, and what a GPU address leads to.
//!
//! Everything is what the driver shows in debugfs: `memory`, `vms` and `walk` of each GPU.

mod spaces;
mod walk;

use std::process::ExitCode;

use anyhow::bail;
use anyhow::Context;
use rkfd::device::Kfd;
use rkfd::error::Error;
use serde::Serialize;
use tabled::Tabled;

use self::spaces::Share;
use self::spaces::Space;
use crate::debugfs;
use crate::style;
use crate::table;

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Options {
    #[command(subcommand)]
    what: Option<What>,
    /// Only this GPU, counted from 0
    #[arg(long)]
    gpu: Option<usize>,
    /// Only memory of this process
    #[arg(long)]
    pid: Option<u32>,
    /// One JSON object per row and line
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum What {
    /// Follow the page tables to a GPU address, as the driver has them and as the device model reads them
    Walk(walk::Options),
}

/// What is in use of one kind of memory of a GPU.
#[derive(Debug, PartialEq, Serialize, Tabled)]
#[tabled(rename_all = "UPPERCASE")]
struct Heap {
    gpu: usize,
    heap: String,
    #[tabled(display = "size")]
    used: u64,
    #[tabled(display = "size")]
    of: u64,
}

/// What one address space maps of one kind of memory.
#[derive(Debug, PartialEq, Serialize, Tabled)]
#[tabled(rename_all = "UPPERCASE")]
struct Row {
    #[tabled(display = "or_dash")]
    pid: Option<u32>,
    process: String,
    pasid: u32,
    gpu: usize,
    heap: &'static str,
    ranges: u64,
    #[tabled(display = "size")]
    mapped: u64,
    /// Contiguous parts of the VRAM that the buffers behind the ranges take, of each range its whole buffer.
    #[tabled(display = "or_dash")]
    pieces: Option<u64>,
    #[tabled(rename = "4K")]
    small: u64,
    #[tabled(rename = "2M")]
    large: u64,
    #[tabled(rename = "1G")]
    largest: u64,
}

fn or_dash(n: &Option<impl ToString>) -> String {
    n.as_ref().map_or("-".into(), ToString::to_string)
}

fn size(n: &u64) -> String {
    style::bytes(*n)
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    match &options.what {
        Some(What::Walk(walk)) => walk::run(walk),
        None => show(options),
    }
}

/// PCI addresses of the GPUs that the driver serves.
///
/// # Errors
/// [`Error::NoGpu`] where there is none.
pub fn addresses() -> anyhow::Result<Vec<String>> {
    let gpus = Kfd::open()?.gpus()?;
    if gpus.is_empty() {
        return Err(Error::NoGpu.into());
    }
    let address = |gpu: &rkfd::device::Gpu| Some(gpu.pci()?.address);
    let all: Option<Vec<String>> = gpus.iter().map(address).collect();
    all.context("a GPU without a PCI address")
}

fn show(options: &Options) -> anyhow::Result<ExitCode> {
    let gpus = addresses()?;
    if options.gpu.is_some_and(|n| n >= gpus.len()) {
        bail!("the driver serves {} GPUs, counted from 0", gpus.len());
    }
    let (mut heaps, mut rows) = (Vec::new(), Vec::new());
    for (index, pci) in gpus.iter().enumerate() {
        if options.gpu.is_some_and(|n| n != index) {
            continue;
        }
        heaps.extend(heaps_of(index, &debugfs::read(pci, "memory")?));
        let spaces = spaces::parse(&debugfs::read(pci, "vms")?);
        rows.extend(rows_of(index, &spaces, debugfs::process_name));
    }
    rows.retain(|row| options.pid.is_none() || row.pid == options.pid);
    if options.json {
        for heap in &heaps {
            anstream::println!("{}", serde_json::to_string(heap)?);
        }
        for row in &rows {
            anstream::println!("{}", serde_json::to_string(row)?);
        }
        return Ok(ExitCode::SUCCESS);
    }
    anstream::println!("{}", table::plain(&heaps, [0, 2, 3]));
    if rows.is_empty() {
        anstream::println!("\nnothing is mapped");
    } else {
        anstream::println!("\n{}", table::plain(&rows, [0, 2, 3, 5, 6, 7, 8, 9, 10]));
    }
    Ok(ExitCode::SUCCESS)
}

/// The heaps of GPU number `gpu`, from `memory`.
fn heaps_of(gpu: usize, text: &str) -> Vec<Heap> {
    let heap = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [what @ .., used, of] = words.as_slice() else {
            return None;
        };
        let heap = match what {
            ["vram", "bytes"] => "VRAM",
            ["page", "tables"] => "page tables",
            _ => return None,
        };
        Some(Heap {
            gpu,
            heap: heap.to_owned(),
            used: debugfs::number(used)?,
            of: debugfs::number(of)?,
        })
    };
    text.lines().filter_map(heap).collect()
}

/// One row for each kind of memory that a space maps.
fn rows_of(gpu: usize, spaces: &[Space], name: impl Fn(u32) -> Option<String>) -> Vec<Row> {
    let mut rows = Vec::new();
    for space in spaces {
        let process = space.pid.and_then(&name).unwrap_or_else(|| "-".to_owned());
        for (heap, share) in space.shares() {
            let Share {
                ranges,
                mapped,
                pieces,
                pages: [small, large, largest],
            } = share;
            rows.push(Row {
                pid: space.pid,
                process: process.clone(),
                pasid: space.pasid,
                gpu,
                heap,
                ranges,
                mapped,
                pieces,
                small,
                large,
                largest,
            });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heaps_are_those_that_hold_bytes() {
        let text = "what           used           of\nvram bytes     4096           8192\n\
                    page tables    16             32\ndoorbell slice 1              64\n";
        let found = heaps_of(1, text);
        let plain: Vec<(usize, &str, u64, u64)> = found
            .iter()
            .map(|h| (h.gpu, h.heap.as_str(), h.used, h.of))
            .collect();
        assert_eq!(plain, [(1, "VRAM", 4096, 8192), (1, "page tables", 16, 32)]);
    }

    #[test]
    fn each_kind_of_memory_is_a_row() {
        let spaces = spaces::parse(spaces::EXAMPLE);
        let rows = rows_of(0, &spaces, |pid| (pid == 77).then(|| "worker".into()));
        let [vram, evicted, system] = &rows[..] else {
            panic!("{rows:?}")
        };
        assert_eq!((vram.pid, vram.process.as_str()), (Some(77), "worker"));
        assert_eq!(
            (vram.heap, vram.ranges, vram.mapped),
            ("VRAM", 2, 0x40_3000)
        );
        assert_eq!((vram.pieces, vram.small, vram.large), (Some(4), 3, 2));
        assert_eq!((evicted.heap, evicted.mapped), ("evicted", 0x1000));
        assert_eq!((system.heap, system.small), ("system", 16));
        let text = table::plain(&rows, [0, 2, 3, 5, 6, 7, 8, 9, 10]);
        let head: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(
            head,
            [
                "PID", "PROCESS", "PASID", "GPU", "HEAP", "RANGES", "MAPPED", "PIECES", "4K", "2M",
                "1G"
            ]
        );
    }
}
