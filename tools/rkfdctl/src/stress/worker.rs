// SPDX-License-Identifier: GPL-2.0 OR MIT
//! One process of a stress run: creates its queues, waits for the word, keeps them busy, compares, reports.

use std::io::BufRead;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use nix::errno::Errno;
use rkfd::device::Device;
use rkfd::queue::QueueKind;
use rkfd::queue::SaveBuffer;

use super::load::packets_per_batch;
use super::load::Load;
use super::protocol::KindName;
use super::protocol::Message;
use super::protocol::QueueResult;

/// Between two reports of progress.
const REPORT: Duration = Duration::from_millis(500);
/// Longest rest while nothing moves. The GPU's own quantum is 10 ms, so nothing is missed.
const REST: Duration = Duration::from_millis(4);

#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// GPU, counted from 0
    #[arg(long, default_value_t = 0)]
    pub gpu: usize,
    /// Queues to create
    #[arg(long)]
    pub queues: usize,
    /// How long they may take to finish when they are told to stop
    #[arg(long, value_parser = super::seconds)]
    pub drain: Duration,
    /// Number of this process, from 0
    #[arg(long)]
    pub index: u64,
    /// Lose a packet, to see whether that is noticed
    #[arg(long)]
    pub lose_one: bool,
    /// Kinds of queues, in turn
    #[arg(long, value_delimiter = ',')]
    pub kinds: Vec<String>,
}

fn say(message: &Message) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, message)?;
    out.write_all(b"\n")?;
    out.flush().context("the parent is gone")
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    match work(options) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(e) => {
            say(&Message::Failed {
                why: format!("{e:#}"),
            })?;
            Ok(ExitCode::FAILURE)
        }
    }
}

fn work(options: &Options) -> anyhow::Result<()> {
    let device = crate::open_gpu(options.gpu)?;
    let (mut loads, sdma_refused) = create(&device, options)?;
    say(&Message::Ready {
        queues: loads.len() as u64, // CAST: a count.
        sdma_refused,
    })?;
    let mut word = String::new();
    let told = std::io::stdin().lock().read_line(&mut word)?;
    if told == 0 {
        // The parent gave up.
        return Ok(());
    }
    if let (true, Some(load)) = (options.lose_one, loads.first_mut()) {
        load.lose(3);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    std::thread::spawn(move || {
        // A parent that is gone says it, too.
        let _ = std::io::stdin().lock().read_line(&mut String::new());
        told.store(true, Ordering::Relaxed);
    });
    let waits = keep_busy(&mut loads, &stop)?;
    let in_time: Vec<u64> = loads.iter().map(Load::good).collect();
    drain(&mut loads, options.drain)?;
    let mut queues = Vec::new();
    for ((load, in_time), wait) in loads.iter_mut().zip(in_time).zip(waits) {
        load.check_counter()?;
        let packets = packets_per_batch(load.kind());
        queues.push(QueueResult {
            kind: load.kind().into(),
            submitted: load.submitted() * packets,
            verified: load.good() * packets,
            in_time: in_time * packets,
            longest_wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            error: load.first_error().map(str::to_owned),
        });
    }
    say(&Message::Done { queues })
}

/// The queues in the order of the kinds. Where the device has no slot for a further SDMA queue, a PM4 queue takes its
/// place.
fn create(device: &Arc<Device>, options: &Options) -> anyhow::Result<(Vec<Load>, u64)> {
    let kinds: Vec<KindName> = options
        .kinds
        .iter()
        .map(|k| serde_json::from_value(serde_json::Value::String(k.clone())))
        .collect::<Result<_, _>>()
        .context("a kind of queue is pm4, aql or sdma")?;
    // One save buffer for all: packets of the command processor run no waves, so there is nothing to save.
    let mut save = None;
    let (mut loads, mut refused) = (Vec::new(), 0);
    for n in 0..options.queues {
        let mut kind = QueueKind::from(
            *kinds
                .get(n % kinds.len().max(1))
                .context("no kind of queue")?,
        );
        let seed = (options.index << 32) | ((n as u64) << 8) | 0x5a; // CAST: a count.
        loop {
            if save.is_none() && kind != QueueKind::Sdma {
                save = Some(Arc::new(SaveBuffer::new(device).context("save buffer")?));
            }
            let own = save.clone().filter(|_| kind != QueueKind::Sdma);
            match Load::new(device, kind, seed, own) {
                Ok(load) => {
                    loads.push(load);
                    break;
                }
                Err(e) if kind == QueueKind::Sdma && e.errno() == Some(Errno::ENOMEM) => {
                    refused += 1;
                    kind = QueueKind::Pm4;
                }
                Err(e) => return Err(e).with_context(|| format!("queue {n} ({kind:?})")),
            }
        }
    }
    Ok((loads, refused))
}

fn packets(loads: &[Load]) -> u64 {
    loads
        .iter()
        .map(|l| l.good() * packets_per_batch(l.kind()))
        .sum()
}

/// The longest time without progress.
struct Waiting {
    since: Instant,
    longest: Duration,
}

impl Waiting {
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            longest: Duration::ZERO,
        }
    }

    fn progressed(&mut self, now: Instant) {
        self.longest = self.until(now);
        self.since = now;
    }

    /// … if it ends now.
    fn until(&self, now: Instant) -> Duration {
        self.longest.max(now.saturating_duration_since(self.since))
    }
}

/// Returns each queue's longest wait.
fn keep_busy(loads: &mut [Load], stop: &AtomicBool) -> anyhow::Result<Vec<Duration>> {
    let began = Instant::now();
    let mut waits: Vec<Waiting> = loads.iter().map(|_| Waiting::new(began)).collect();
    let mut report = began + REPORT;
    let mut rest = Duration::from_millis(1);
    loop {
        let mut moved = false;
        for (load, wait) in loads.iter_mut().zip(&mut waits) {
            let good = load.good();
            moved |= load.collect()?;
            if load.good() > good {
                wait.progressed(Instant::now());
            }
            moved |= load.fill()?;
        }
        let now = Instant::now();
        if now >= report {
            report = now + REPORT;
            say(&Message::Progress {
                packets: packets(loads),
                least: loads.iter().map(Load::good).min().unwrap_or(0),
            })?;
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(waits.iter().map(|wait| wait.until(now)).collect());
        }
        rest = if moved {
            REST / 4
        } else {
            (rest * 2).min(REST)
        };
        std::thread::sleep(rest);
    }
}

fn drain(loads: &mut [Load], limit: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + limit;
    loop {
        for load in &mut *loads {
            load.collect()?;
        }
        if !loads.iter().any(Load::busy) || Instant::now() >= until {
            return Ok(());
        }
        std::thread::sleep(REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_before_the_first_and_after_the_last_counts() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut wait = Waiting::new(start);
        assert_eq!(wait.until(at(300)), Duration::from_millis(300));
        for ms in [40, 50, 75] {
            wait.progressed(at(ms));
        }
        assert_eq!(wait.until(at(80)), Duration::from_millis(40));
        wait.progressed(at(130));
        assert_eq!(wait.until(at(130)), Duration::from_millis(55));
        assert_eq!(wait.until(at(230)), Duration::from_millis(100));
    }
}
