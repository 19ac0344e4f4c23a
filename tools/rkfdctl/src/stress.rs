// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl stress queues`: many processes with many queues of every kind, all verifying what their packets wrote.
//!
//! Every process is this program again, started afresh, so that it has its own address space and its own life. All
//! begin at one word, when the queues of all exist.

mod load;
mod protocol;
mod report;
mod worker;

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::process::Child;
use std::process::Command;
use std::process::ExitCode;
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use rkfd::device::Kfd;
use rkfd::error::Error;
use serde::Serialize;

use crate::info::gfx_name;
use crate::progress;
use crate::style;
pub use load::Load;
use protocol::Message;
use protocol::QueueResult;

/// Where the output is no terminal, a line of progress this often.
const LINE: Duration = Duration::from_secs(5);
/// Between two looks at whether the load has lasted long enough.
const LOOK: Duration = Duration::from_millis(50);

#[derive(clap::Args)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Processes with queues of every kind, all of them verifying what their packets wrote
    Queues(Queues),
    /// One process of such a run
    #[command(hide = true)]
    Worker(worker::Options),
}

#[derive(clap::Args, Clone)]
struct Queues {
    /// GPU, counted from 0
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// Processes
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    processes: u16,
    /// Queues of each process
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    queues: u16,
    /// How long the queues are kept busy
    #[arg(long, default_value = "5", value_parser = seconds)]
    seconds: Duration,
    /// … and longer, until each has finished so many batches, within the patience
    #[arg(long, default_value_t = 1)]
    batches: u64,
    /// … and longer, until standard input ends, within the patience
    #[arg(long)]
    hold: bool,
    /// Kinds of queues, in turn
    #[arg(long, value_delimiter = ',', default_value = "pm4,aql,sdma",
          value_parser = ["pm4", "aql", "sdma"])]
    kinds: Vec<String>,
    /// Seconds for creating all queues, again for what goes on longer, and again for finishing their work afterwards
    #[arg(long, default_value = "120", value_parser = seconds)]
    patience: Duration,
    /// The result as JSON
    #[arg(long)]
    json: bool,
    /// Let the first queue lose a packet on purpose
    #[arg(long, hide = true)]
    lose_one: bool,
}

/// A number of seconds for an option: more than none, and less than a year, so that sums of them are times as well.
fn seconds(text: &str) -> Result<Duration, String> {
    const MOST: Duration = Duration::from_secs(365 * 24 * 3600);
    let number: f64 = text.parse().map_err(|_| "it is a number of seconds")?;
    Duration::try_from_secs_f64(number)
        .ok()
        .filter(|time| !time.is_zero() && *time <= MOST)
        .ok_or_else(|| "it is more than 0 s and at most a year".to_owned())
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    match &options.what {
        What::Worker(worker) => worker::run(worker),
        What::Queues(queues) => stress(queues),
    }
}

/// Processes that end with this value.
struct Workers(Vec<Child>);

impl Drop for Workers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Harmless for one that ended; the wait keeps no zombie.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What the run came to.
#[derive(Serialize)]
struct Outcome {
    gpu: String,
    processes: u16,
    queues: usize,
    seconds: f64,
    packets_per_second: f64,
    sdma_wanted: u64,
    sdma_refused: u64,
    types: Vec<report::Row>,
    errors: Vec<String>,
    ok: bool,
}

fn stress(options: &Queues) -> anyhow::Result<ExitCode> {
    let gpus = Kfd::open()?.gpus()?;
    let Some(gpu) = gpus.get(options.gpu) else {
        if gpus.is_empty() {
            return Err(Error::NoGpu.into());
        }
        bail!("there is no GPU {}", options.gpu);
    };
    let name = gfx_name(gpu.gfx());
    let mut errors = Vec::new();
    let (mut workers, messages) = start(options)?;
    let patience = options.patience.max(Duration::from_secs(1));
    let quiet = options.json;
    let note = |text: String| {
        if !quiet {
            anstream::println!("{text}");
        }
    };
    note(format!(
        "{} processes with {} queues each on {name}",
        options.processes, options.queues
    ));

    let began = Instant::now();
    let (created, sdma_refused) = await_ready(options, &messages, patience)?;
    note(format!(
        "{created} queues were created in {:.1} s",
        began.elapsed().as_secs_f64()
    ));
    let sdma_wanted = wanted(options);
    if sdma_refused > 0 {
        note(format!(
            "SDMA queues: {} of {sdma_wanted}; the device has no more slots, so {sdma_refused} are PM4 queues instead",
            sdma_wanted.saturating_sub(sdma_refused)
        ));
    }
    for child in &mut workers.0 {
        let input = child.stdin.as_mut().context("a worker without input")?;
        input.write_all(b"go\n").context("a worker is gone")?;
    }
    let held = Arc::new(AtomicBool::new(options.hold));
    if options.hold {
        let held = held.clone();
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            held.store(false, Ordering::Relaxed);
        });
    }
    let run = Run {
        options,
        held: &held,
        patience,
    };
    let (results, seconds) = run.watch(&mut workers, &messages, &mut errors)?;
    drop(workers);

    for result in &results {
        if let (Some(error), true) = (&result.error, errors.len() < 20) {
            errors.push(format!("a {} queue: {error}", result.kind.title()));
        }
    }
    let types = report::rows(&results);
    // CAST: figures for a reader.
    let total: u64 = results.iter().map(|r| r.in_time).sum();
    let whole = results.len() == usize::from(options.processes) * usize::from(options.queues);
    let ok = whole
        && errors.is_empty()
        && types
            .iter()
            .all(|row| row.lost == 0 && row.no_progress == 0);
    let outcome = Outcome {
        gpu: name,
        processes: options.processes,
        queues: results.len(),
        seconds,
        packets_per_second: total as f64 / seconds,
        sdma_wanted,
        sdma_refused,
        types,
        errors,
        ok,
    };
    show(&outcome, options.json)?;
    Ok(if ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// SDMA queues that the run asks for.
fn wanted(options: &Queues) -> u64 {
    let of_one = (0..usize::from(options.queues))
        .filter(|n| {
            options
                .kinds
                .get(n % options.kinds.len().max(1))
                .is_some_and(|k| k == "sdma")
        })
        .count();
    of_one as u64 * u64::from(options.processes) // CAST: a count.
}

type Messages = mpsc::Receiver<(usize, anyhow::Result<Message>)>;

fn start(options: &Queues) -> anyhow::Result<(Workers, Messages)> {
    let program = std::env::current_exe().context("this program's own path")?;
    let (sender, messages) = mpsc::channel();
    let mut workers = Workers(Vec::new());
    for index in 0..usize::from(options.processes) {
        let mut child = Command::new(&program)
            .args(["stress", "worker"])
            .args(["--gpu", &options.gpu.to_string()])
            .args(["--queues", &options.queues.to_string()])
            .args(["--drain", &options.patience.as_secs_f64().to_string()])
            .args(["--index", &index.to_string()])
            .args(["--kinds", &options.kinds.join(",")])
            .args((options.lose_one && index == 0).then_some("--lose-one"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a worker")?;
        let out = child.stdout.take().context("a worker without output")?;
        workers.0.push(child);
        let sender = sender.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines() {
                let message = line
                    .map_err(anyhow::Error::from)
                    .and_then(|line| Ok(serde_json::from_str(&line)?));
                if sender.send((index, message)).is_err() {
                    return;
                }
            }
        });
    }
    Ok((workers, messages))
}

fn await_ready(
    options: &Queues,
    messages: &Messages,
    limit: Duration,
) -> anyhow::Result<(u64, u64)> {
    let until = Instant::now() + limit;
    let (mut ready, mut created, mut refused) = (0, 0, 0);
    while ready < options.processes {
        let left = until.saturating_duration_since(Instant::now());
        match messages.recv_timeout(left) {
            Ok((
                _,
                Ok(Message::Ready {
                    queues,
                    sdma_refused,
                }),
            )) => {
                ready += 1;
                created += queues;
                refused += sdma_refused;
            }
            Ok((index, Ok(Message::Failed { why }))) => bail!("process {index}: {why}"),
            Ok((index, Ok(other))) => bail!("process {index} said {other:?} too early"),
            Ok((index, Err(e))) => return Err(e).with_context(|| format!("process {index}")),
            Err(mpsc::RecvTimeoutError::Timeout) => bail!(
                "only {ready} of {} processes had their queues after {} s",
                options.processes,
                limit.as_secs()
            ),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                bail!("processes ended before their queues existed")
            }
        }
    }
    Ok((created, refused))
}

/// How long the load lasts.
struct Run<'a> {
    options: &'a Queues,
    /// Standard input has not ended.
    held: &'a AtomicBool,
    patience: Duration,
}

impl Run<'_> {
    /// Whether the load has lasted long enough; `least` are the batches of each worker's slowest queue.
    fn over(&self, lasted: Duration, least: &[u64]) -> bool {
        let time = self.options.seconds;
        let wanted = self.held.load(Ordering::Relaxed)
            || least.iter().any(|least| *least < self.options.batches);
        lasted >= time && (!wanted || lasted >= time + self.patience)
    }

    /// Shows progress, tells the workers to stop, and takes what every one of them reports; returns it with the seconds
    /// that the load lasted.
    fn watch(
        &self,
        workers: &mut Workers,
        messages: &Messages,
        errors: &mut Vec<String>,
    ) -> anyhow::Result<(Vec<QueueResult>, f64)> {
        let options = self.options;
        let began = Instant::now();
        let mut next_line = began + LINE;
        let mut packets = vec![0u64; usize::from(options.processes)];
        let mut least = packets.clone();
        let mut stopped = None;
        let (mut results, mut done) = (Vec::new(), 0);
        let tenths = (options.seconds.as_secs_f64() * 10.0) as u64; // CAST: of a second, of a run.
        let bar = (!options.json).then(|| progress::bar(tenths, progress::TIMED));
        let bar = bar.flatten();
        while done < options.processes {
            let lasted = began.elapsed();
            if stopped.is_none() && self.over(lasted, &least) {
                stopped = Some(lasted);
                for child in &mut workers.0 {
                    // One that has failed says so itself.
                    if let Some(input) = child.stdin.as_mut() {
                        let _ = input.write_all(b"stop\n");
                    }
                }
            }
            if stopped.is_some_and(|at| lasted >= at + 2 * self.patience) {
                errors.push(format!(
                    "{} of {} processes did not report",
                    options.processes - done,
                    options.processes
                ));
                break;
            }
            match messages.recv_timeout(LOOK) {
                Ok((
                    index,
                    Ok(Message::Progress {
                        packets: n,
                        least: slowest,
                    }),
                )) => {
                    if let Some(slot) = packets.get_mut(index) {
                        *slot = n;
                    }
                    if let Some(slot) = least.get_mut(index) {
                        *slot = slowest;
                    }
                    let total: u64 = packets.iter().sum();
                    let idle = packets.iter().filter(|&&n| n == 0).count();
                    let text = format!("{total} packets verified, {idle} processes still at 0");
                    if let Some(bar) = &bar {
                        bar.set_position((began.elapsed().as_secs_f64() * 10.0) as u64);
                        bar.set_message(text);
                    } else if !options.json && Instant::now() >= next_line {
                        next_line += LINE;
                        anstream::println!("  {:>5.1} s  {text}", began.elapsed().as_secs_f64());
                    }
                }
                Ok((_, Ok(Message::Done { queues }))) => {
                    done += 1;
                    results.extend(queues);
                }
                Ok((index, Ok(Message::Failed { why }))) => {
                    done += 1;
                    errors.push(format!("process {index}: {why}"));
                }
                Ok((index, Ok(other))) => bail!("process {index} said {other:?} too late"),
                Ok((index, Err(e))) => return Err(e).with_context(|| format!("process {index}")),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    errors.push(format!(
                        "{} of {} processes ended without a report",
                        options.processes - done,
                        options.processes
                    ));
                    break;
                }
            }
        }
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        let seconds = stopped.unwrap_or_else(|| began.elapsed()).as_secs_f64();
        Ok((results, seconds))
    }
}

fn show(outcome: &Outcome, json: bool) -> anyhow::Result<()> {
    if json {
        anstream::println!("{}", serde_json::to_string_pretty(outcome)?);
        return Ok(());
    }
    anstream::println!(
        "\n{}\n\nmin, median and max are packets of one queue in {:.1} s; {:.0} packets per second in all\na wait is the longest time in which a queue that had work got none of it done",
        report::table(&outcome.types),
        outcome.seconds,
        outcome.packets_per_second
    );
    for error in &outcome.errors {
        anstream::println!("{} {error}", style::bad("error:"));
    }
    anstream::println!(
        "{}",
        if outcome.ok {
            style::good("Nothing was lost, every queue made progress.")
        } else {
            style::bad("Failed.")
        }
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_times_that_can_be_added() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds("120"), Ok(Duration::from_secs(120)));
        for wrong in ["", "soon", "0", "-5", "nan", "inf", "1e30", "1e8"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
