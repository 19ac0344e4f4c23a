// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl queues`: every queue, whose it is, and where it sits.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use anyhow::Context;
use rkfd::device::Kfd;
use rkfd::error::Error;
use serde::Serialize;
use tabled::Tabled;

use crate::debugfs;
use crate::debugfs::Hqd;
use crate::debugfs::Process;
use crate::style;
use crate::table;

#[derive(clap::Args)]
pub struct Options {
    /// Only this GPU, counted from 0
    #[arg(long)]
    gpu: Option<usize>,
    /// Only queues of this process
    #[arg(long)]
    pid: Option<u32>,
    /// Refresh, each time after so many seconds (1 without a number)
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1")]
    watch: Option<f64>,
    /// Stop after so many refreshes
    #[arg(long, requires = "watch")]
    count: Option<u64>,
    /// One JSON object per queue and line
    #[arg(long)]
    json: bool,
}

/// One queue.
#[derive(Debug, PartialEq, Serialize, Tabled)]
#[tabled(rename_all = "UPPERCASE")]
struct Row {
    #[tabled(display = "or_dash")]
    pid: Option<u32>,
    #[tabled(rename = "PROCESS")]
    process: String,
    pasid: u32,
    gpu: usize,
    queue: u64,
    #[tabled(rename = "TYPE")]
    kind: String,
    #[tabled(display = "hex")]
    doorbell: u64,
    #[tabled(rename = "RING", display = "size")]
    ring_bytes: u64,
    #[tabled(display = "maybe_hex")]
    rptr: Option<u64>,
    #[tabled(display = "maybe_hex")]
    wptr: Option<u64>,
    #[tabled(rename = "HARDWARE", display = "place")]
    hqd: Option<String>,
    state: String,
}

fn or_dash(n: &Option<u32>) -> String {
    n.map_or("-".into(), |n| n.to_string())
}

fn hex(n: &u64) -> String {
    format!("{n:#x}")
}

fn maybe_hex(n: &Option<u64>) -> String {
    n.map_or("-".into(), |n| format!("{n:#x}"))
}

fn size(n: &u64) -> String {
    style::bytes(*n)
}

fn place(name: &Option<String>) -> String {
    name.clone().unwrap_or_else(|| "-".into())
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let Some(seconds) = options.watch else {
        print(options)?;
        return Ok(ExitCode::SUCCESS);
    };
    let pause = Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|p| !p.is_zero())
        .context("--watch takes a number of seconds")?;
    let mut round = 0;
    loop {
        if !options.json {
            // To the corner, and clear what is below; only a terminal gets to see it.
            anstream::print!("\x1b[H\x1b[J");
        }
        print(options)?;
        round += 1;
        if options.count.is_some_and(|count| round >= count) {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(pause);
    }
}

fn print(options: &Options) -> anyhow::Result<()> {
    let gpus = Kfd::open()?.gpus()?;
    if gpus.is_empty() {
        return Err(Error::NoGpu.into());
    }
    if options.gpu.is_some_and(|n| n >= gpus.len()) {
        bail!("the driver serves {} GPUs, counted from 0", gpus.len());
    }
    let mut found = Vec::new();
    for (index, gpu) in gpus.iter().enumerate() {
        if options.gpu.is_some_and(|n| n != index) {
            continue;
        }
        let pci = gpu.pci().context("a GPU without a PCI address")?.address;
        let processes = debugfs::mqds(&debugfs::read(&pci, "mqds")?);
        let hqds = debugfs::hqds(&debugfs::read(&pci, "hqds")?);
        found.extend(rows(index, processes, &hqds, debugfs::process_name));
    }
    found.retain(|row| options.pid.is_none() || row.pid == options.pid);
    if options.json {
        for row in &found {
            anstream::println!("{}", serde_json::to_string(row)?);
        }
    } else {
        let queues = found.len();
        let mapped = found.iter().filter(|r| r.hqd.is_some()).count();
        let processes: BTreeMap<(usize, u32), ()> =
            found.iter().map(|r| ((r.gpu, r.pasid), ())).collect();
        if queues > 0 {
            anstream::println!("{}", table(&found));
        }
        anstream::println!(
            "{queues} queues of {} processes, {mapped} on the hardware",
            processes.len()
        );
    }
    Ok(())
}

/// Joins descriptors and slots by their doorbells, which no two queues of a GPU share.
fn rows(
    gpu: usize,
    processes: Vec<Process>,
    hqds: &[Hqd],
    name: impl Fn(u32) -> Option<String>,
) -> Vec<Row> {
    let slots: BTreeMap<u64, &Hqd> = hqds.iter().map(|h| (h.doorbell, h)).collect();
    let mut rows = Vec::new();
    for process in processes {
        let title = process
            .pid
            .and_then(&name)
            .unwrap_or_else(|| "-".to_owned());
        for queue in process.queues {
            let hqd = slots.get(&queue.doorbell);
            // A queue that is not on the hardware: as its descriptor kept it when it was last taken off.
            let saved = |names: [&str; 2]| {
                names
                    .iter()
                    .find_map(|n| queue.fields.get(*n))
                    .copied()
                    .filter(|_| !queue.fields.is_empty())
            };
            rows.push(Row {
                pid: process.pid,
                process: title.clone(),
                pasid: process.pasid,
                gpu,
                queue: queue.id,
                rptr: hqd
                    .map(|h| h.rptr)
                    .or_else(|| saved(["CP_HQD_PQ_RPTR", "RB_RPTR"])),
                wptr: hqd
                    .map(|h| h.wptr)
                    .or_else(|| saved(["CP_HQD_PQ_WPTR_LO", "RB_WPTR"])),
                hqd: hqd.map(|h| h.name.clone()),
                kind: queue.kind,
                doorbell: queue.doorbell,
                ring_bytes: queue.ring_bytes,
                state: queue.state,
            });
        }
    }
    rows
}

fn table(rows: &[Row]) -> String {
    table::plain(rows, [0, 2, 3, 4, 6, 7, 8, 9])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debugfs::Queue;

    #[test]
    fn queues_are_joined_with_their_slots() {
        let queue = |id, doorbell: u64, state: &str| Queue {
            id,
            kind: "pm4".into(),
            state: state.into(),
            doorbell,
            ring_bytes: 4096,
            fields: BTreeMap::from([
                ("CP_HQD_PQ_RPTR".to_owned(), 0x10),
                ("CP_HQD_PQ_WPTR_LO".to_owned(), 0x20),
            ]),
            ..Default::default()
        };
        let processes = vec![Process {
            pasid: 5,
            pid: Some(99),
            queues: vec![queue(1, 0x2000, "mapped"), queue(2, 0x2008, "evicted")],
        }];
        let hqds = [Hqd {
            name: "me 1 pipe 0 q 2".into(),
            vmid: 8,
            doorbell: 0x2000,
            rptr: 7,
            wptr: 9,
        }];
        let found = rows(0, processes, &hqds, |pid| {
            (pid == 99).then(|| "worker".into())
        });
        assert_eq!(
            (found[0].hqd.as_deref(), found[0].rptr, found[0].wptr),
            (Some("me 1 pipe 0 q 2"), Some(7), Some(9))
        );
        assert_eq!(
            (found[1].hqd.as_deref(), found[1].rptr, found[1].wptr),
            (None, Some(0x10), Some(0x20))
        );
        let text = table(&found);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines[0],
            [
                "PID", "PROCESS", "PASID", "GPU", "QUEUE", "TYPE", "DOORBELL", "RING", "RPTR",
                "WPTR", "HARDWARE", "STATE"
            ]
        );
        assert_eq!(
            lines[2],
            [
                "99", "worker", "5", "0", "2", "pm4", "0x2008", "4", "KiB", "0x10", "0x20", "-",
                "evicted"
            ]
        );
    }
}
