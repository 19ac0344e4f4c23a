// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl mirror`: which memory of programs GPUs see where, how much of it just now, and what that has cost.
//!
//! Everything is what the driver shows in debugfs: `mirrors` of each GPU.

mod map;
mod parse;
mod stats;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use anyhow::Context;
use serde::Serialize;
use tabled::Tabled;

use self::parse::Mirror;
use self::parse::Report;
use self::stats::Figures;
use crate::debugfs;
use crate::mem;
use crate::style;
use crate::table;

#[derive(clap::Args)]
pub struct Options {
    /// Only this GPU, counted from 0
    #[arg(long)]
    gpu: Option<usize>,
    /// Only mirrors of this process
    #[arg(long)]
    pid: Option<u32>,
    /// Draw what each mirror shows, and in leaves of which size
    #[arg(long)]
    map: bool,
    /// Write the same as a picture to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Counters of the GPU, and how long each step took
    #[arg(long)]
    stats: bool,
    /// One JSON object per GPU and line, with mirrors, ranges, counters and histograms
    #[arg(long, conflicts_with_all = ["map", "svg", "stats"])]
    json: bool,
}

/// A mirror.
#[derive(Debug, PartialEq, Tabled)]
#[tabled(rename_all = "UPPERCASE")]
struct Row {
    #[tabled(display = "or_dash")]
    pid: Option<u32>,
    process: String,
    pasid: u32,
    gpu: usize,
    mirror: u32,
    #[tabled(display = "hex")]
    memory: u64,
    #[tabled(rename = "GPU ADDRESS", display = "hex")]
    address: u64,
    #[tabled(display = "size")]
    length: u64,
    flags: String,
    granules: String,
    #[tabled(rename = "IN 4K", display = "size")]
    small: u64,
    #[tabled(rename = "IN 2M", display = "size")]
    huge: u64,
    #[tabled(rename = "IN VRAM", display = "size")]
    vram: u64,
    hints: u64,
    changes: u64,
    served: u64,
}

/// Columns of numbers, which are aligned to the right.
const NUMBERS: [usize; 14] = [0, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15];

fn or_dash(n: &Option<u32>) -> String {
    n.map_or("-".into(), |n| n.to_string())
}

fn hex(n: &u64) -> String {
    format!("{n:#x}")
}

fn size(n: &u64) -> String {
    style::bytes(*n)
}

impl Row {
    fn of(gpu: usize, mirror: &Mirror, process: String) -> Self {
        Self {
            pid: mirror.pid,
            process,
            pasid: mirror.pasid,
            gpu,
            mirror: mirror.id,
            memory: mirror.cpu.first,
            address: mirror.gpu.first,
            length: mirror.gpu.len(),
            flags: match mirror.flags.is_empty() {
                true => "-".into(),
                false => mirror.flags.join(","),
            },
            granules: format!("{} of {}", mirror.granules_shown, mirror.granules),
            small: mirror.small_bytes(),
            huge: mirror.huge_bytes,
            vram: mirror.vram_bytes,
            hints: mirror.hints,
            changes: mirror.changes,
            served: mirror.served,
        }
    }
}

/// What is told of a GPU.
#[derive(Serialize)]
struct Json<'r> {
    gpu: usize,
    pci: &'r str,
    counts: &'r std::collections::BTreeMap<String, u64>,
    changes: &'r std::collections::BTreeMap<String, u64>,
    histograms: Vec<Figures<'r>>,
    mirrors: &'r [Mirror],
    /// There are more mirrors than the driver lists.
    cut: bool,
}

fn process(mirror: &Mirror) -> String {
    let name = mirror.pid.and_then(debugfs::process_name);
    name.unwrap_or_else(|| "-".to_owned())
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let gpus = mem::addresses()?;
    if options.gpu.is_some_and(|n| n >= gpus.len()) {
        bail!("the driver serves {} GPUs, counted from 0", gpus.len());
    }
    let mut reports = Vec::new();
    for (index, pci) in gpus.iter().enumerate() {
        if options.gpu.is_some_and(|n| n != index) {
            continue;
        }
        let mut report = parse::parse(&debugfs::read(pci, "mirrors")?);
        let of_pid = |mirror: &Mirror| options.pid.is_none() || mirror.pid == options.pid;
        report.mirrors.retain(of_pid);
        if options.json {
            let json = Json {
                gpu: index,
                pci,
                counts: &report.counts,
                changes: &report.changes,
                histograms: report.histograms.iter().map(Figures::of).collect(),
                mirrors: &report.mirrors,
                cut: report.cut,
            };
            anstream::println!("{}", serde_json::to_string(&json)?);
        }
        reports.push((index, report));
    }
    if !options.json {
        show(options, &reports)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(options: &Options, reports: &[(usize, Report)]) -> anyhow::Result<()> {
    let mut named = Vec::new();
    let mut rows = Vec::new();
    for (gpu, report) in reports {
        for mirror in &report.mirrors {
            let process = process(mirror);
            named.push((map::title(mirror, &process, *gpu), mirror));
            rows.push(Row::of(*gpu, mirror, process));
        }
    }
    if rows.is_empty() {
        anstream::println!("there are no mirrors");
    } else {
        let table = table::plain(&rows, NUMBERS);
        anstream::println!("{table}");
    }
    if reports.iter().any(|(_, report)| report.cut) {
        anstream::println!("and more mirrors than the driver lists");
    }
    if options.map && !named.is_empty() {
        for (title, mirror) in &named {
            anstream::println!("\n{}", map::text(mirror, title).trim_end());
        }
        anstream::println!("\n{}", map::legend());
    }
    if let Some(path) = &options.svg {
        std::fs::write(path, map::svg(&named))
            .with_context(|| format!("cannot write the picture to {}", path.display()))?;
    }
    if options.stats {
        anstream::println!("\n{}", stats::text(reports));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_what_a_mirror_is() {
        let report = parse::parse(parse::EXAMPLE);
        let mirrors = report.mirrors.iter();
        let rows: Vec<Row> = mirrors.map(|m| Row::of(1, m, "worker".into())).collect();
        let text = table::plain(&rows, NUMBERS);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let of = |text: &'static str| text.split_whitespace().collect::<Vec<_>>();
        assert_eq!(
            lines,
            [
                of("PID PROCESS PASID GPU MIRROR MEMORY GPU ADDRESS LENGTH FLAGS GRANULES IN 4K IN 2M IN VRAM HINTS CHANGES SERVED"),
                of("77 worker 33 1 1 0x7f0000000000 0x100000000 8 MiB populated,read-only 3 of 4 12 KiB 4 MiB 2052 KiB 3 5 0"),
                of("77 worker 33 1 2 0x7f1000000000 0x200000000 4 KiB fault 0 of 1 0 bytes 0 bytes 0 bytes 0 0 0"),
            ]
        );
        // Columns of numbers are aligned to the right: the ends of the lengths meet.
        let end = |line: &str, text: &str| line.find(text).map(|at| at + text.len());
        let all: Vec<&str> = text.lines().collect();
        assert_eq!(end(all[1], "8 MiB"), end(all[0], "LENGTH"));
        assert_eq!(end(all[2], "4 KiB"), end(all[0], "LENGTH"));
    }
}
