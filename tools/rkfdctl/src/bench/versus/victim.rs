// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A process whose queues are on the hardware, and which is killed or misbehaves.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::process::Child;
use std::process::Command;
use std::process::ExitCode;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use rkfd::queue::SaveBuffer;

use super::counts::Model;
use super::measure::Worker;
use super::measure::GPU;

/// Longest wait until its queues are connected.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub struct Options {
    /// Queues to hold
    #[arg(long)]
    queues: usize,
}

/// The process: has each queue execute a packet, tells the addresses of the rings, and waits.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let device = crate::open_gpu(GPU)?;
    let save = Arc::new(SaveBuffer::new(&device)?);
    let mut workers = Vec::new();
    for _ in 0..options.queues {
        let worker = Worker::sharing(&device, &save)?;
        worker.effect(1)?;
        workers.push(worker);
    }
    let rings: Vec<u64> = workers.iter().map(|w| w.queue.ring_address()).collect();
    println!("{}", serde_json::to_string(&rings)?);
    std::io::stdout().flush()?;
    // Until the parent closes it, or this process is killed.
    std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(ExitCode::SUCCESS)
}

/// Such a process as its parent sees it; killed when dropped.
pub struct Victim {
    child: Child,
    rings: Vec<u64>,
    doorbells: Vec<u64>,
}

impl Victim {
    /// Starts one, each of whose queues has executed a packet when this returns.
    ///
    /// # Errors
    /// It does not start, or cannot create its queues.
    pub fn start(queues: usize) -> anyhow::Result<Self> {
        let child = Command::new(std::env::current_exe().context("this program's own path")?)
            .args(["bench", "versus", "victim", "--queues", &queues.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a process")?;
        let mut victim = Self {
            child,
            rings: Vec::new(),
            doorbells: Vec::new(),
        };
        let out = victim.child.stdout.take().context("its output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        victim.rings =
            serde_json::from_str(&line).context("a process could not create its queues")?;
        Ok(victim)
    }

    /// Waits until all of its queues are connected, and returns their doorbells, as the model counts them.
    ///
    /// # Errors
    /// They do not come onto the hardware.
    pub fn connected(&mut self, model: &mut Model) -> anyhow::Result<&[u64]> {
        let end = Instant::now() + PATIENCE;
        while self.doorbells.len() != self.rings.len() {
            if Instant::now() >= end {
                bail!("the queues of a process do not come onto the hardware");
            }
            std::thread::sleep(Duration::from_millis(1));
            self.doorbells = model.doorbells(&self.rings)?;
        }
        Ok(&self.doorbells)
    }

    /// Kills it and waits for its end.
    pub fn kill(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.kill();
    }
}
