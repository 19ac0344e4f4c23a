// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Processes of a benchmark: one that holds idle queues, one that measures.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use rkfd::queue::Queue;
use rkfd::queue::QueueKind;
use rkfd::queue::QueueOptions;
use rkfd::queue::SaveBuffer;
use serde::Deserialize;
use serde::Serialize;

use crate::debugfs;

/// How long the counters must stay as they are before a phase counts as over, beyond the time for which the driver
/// collects changes.
const SETTLED: Duration = Duration::from_millis(200);
/// Longest wait for that.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// GPU, counted from 0
    #[arg(long, default_value_t = 0)]
    pub gpu: usize,
    /// Queues to hold, or to measure with
    #[arg(long)]
    pub queues: usize,
    /// Measure (and say so in JSON) rather than hold
    #[arg(long)]
    pub measure: bool,
    /// How long the driver collects changes
    #[arg(long, default_value_t = 2000)]
    pub gather_us: u64,
}

/// One operation, `queues` times in a row.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Phase {
    /// `create`, `update`, `destroy`.
    pub operation: String,
    /// The calls' times in microseconds, in order.
    pub micros: Vec<f64>,
    /// From before the first to after the last.
    pub total_micros: f64,
    /// What the driver's counters grew by.
    pub counters: BTreeMap<String, u64>,
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let device = crate::open_gpu(options.gpu)?;
    let save = Arc::new(SaveBuffer::new(&device)?);
    let make = || {
        Queue::with_save_buffer(
            &device,
            QueueOptions::new(QueueKind::Pm4),
            Some(save.clone()),
        )
    };
    let mut queues = Vec::new();
    if !options.measure {
        for n in 0..options.queues {
            queues.push(make().with_context(|| format!("queue {n}"))?);
        }
        println!("ready");
        std::io::stdout().flush()?;
        // Until the parent closes it.
        std::io::stdin().lock().read_line(&mut String::new())?;
        return Ok(ExitCode::SUCCESS);
    }
    let pci = device
        .pci()
        .context("a GPU without a PCI address")?
        .address
        .clone();
    // What a process pays once (its doorbells, its entry in the run list) is not what is measured.
    drop(make()?);
    let n = options.queues;
    let rest = Duration::from_micros(options.gather_us);
    let mut phases = Vec::new();
    phases.push(phase(&pci, rest, "create", n, |_| {
        queues.push(make()?);
        Ok(())
    })?);
    phases.push(phase(&pci, rest, "update", n, |i| {
        let queue = queues.get_mut(i).context("a queue")?;
        Ok(queue.update(100, 9)?)
    })?);
    phases.push(phase(&pci, rest, "destroy", n, |_| {
        drop(queues.pop());
        Ok(())
    })?);
    println!("{}", serde_json::to_string(&phases)?);
    Ok(ExitCode::SUCCESS)
}

/// The counters, once they rest: changes are collected, so that work may follow a call.
fn settled(pci: &str, gathered: Duration) -> anyhow::Result<BTreeMap<String, u64>> {
    let read = || Ok::<_, anyhow::Error>(debugfs::counters(&debugfs::read(pci, "sched")?));
    let end = Instant::now() + LIMIT;
    let mut last = read()?;
    while Instant::now() < end {
        std::thread::sleep(SETTLED + gathered);
        let now = read()?;
        if now == last {
            return Ok(now);
        }
        last = now;
    }
    bail!("the scheduler does not come to rest")
}

fn phase(
    pci: &str,
    gathered: Duration,
    operation: &str,
    count: usize,
    mut call: impl FnMut(usize) -> anyhow::Result<()>,
) -> anyhow::Result<Phase> {
    let before = settled(pci, gathered)?;
    let mut micros = Vec::new();
    let start = Instant::now();
    for i in 0..count {
        let began = Instant::now();
        call(i).with_context(|| format!("{operation} {i}"))?;
        micros.push(began.elapsed().as_secs_f64() * 1e6);
    }
    let total_micros = start.elapsed().as_secs_f64() * 1e6;
    let after = settled(pci, gathered)?;
    Ok(Phase {
        operation: operation.to_owned(),
        micros,
        total_micros,
        counters: after
            .into_iter()
            .map(|(name, value)| {
                let grown = value.saturating_sub(before.get(&name).copied().unwrap_or(0));
                (name, grown)
            })
            .collect(),
    })
}
