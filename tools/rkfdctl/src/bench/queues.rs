// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl bench queues`: what creating, changing and destroying a queue costs beside many others, with changes
//! collected and without.
//!
//! Without (`coalesce=n`) the driver does what amdkfd does: everything off the hardware and a whole new run list at each
//! change. Both are measured in one run, on one machine, with the same sequence of calls.

use std::path::PathBuf;
use std::process::Command;
use std::process::ExitCode;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use rkfd::device::Kfd;
use rkfd::error::Error;
use serde::Serialize;
use tabled::Tabled;

use super::holders::Holders;
use super::worker::Phase;
use crate::table;

/// How long the driver may be in use after the last program has ended.
const UNLOAD: Duration = Duration::from_secs(20);

#[derive(clap::Args)]
pub struct Options {
    /// GPU, counted from 0
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// Numbers of queues that exist already, ascending
    #[arg(long, value_delimiter = ',', default_value = "1,16,128,1024")]
    existing: Vec<usize>,
    /// Queues to create, update and destroy at each
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// The module, which is loaded anew with and without `coalesce=n`
    #[arg(long, env = "RKFD_MODULE", default_value = "build/module/rkfd.ko")]
    module: PathBuf,
    /// Further parameters for it, NAME=VALUE, given both times
    #[arg(long, value_name = "NAME=VALUE")]
    parameter: Vec<String>,
    /// The figures as JSON
    #[arg(long)]
    json: bool,
}

/// Figures of one operation, per call.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Figures {
    micros_median: f64,
    micros_max: f64,
    /// Of the whole series of calls.
    micros_total: f64,
    runlists: f64,
    packets: f64,
    dwords: f64,
    preemptions: f64,
}

/// One operation beside `existing` queues.
#[derive(Debug, Serialize)]
struct Point {
    existing: usize,
    operation: String,
    collected: Figures,
    upstream: Figures,
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if Kfd::open()?.gpus()?.is_empty() {
        return Err(Error::NoGpu.into());
    }
    if !options.existing.is_sorted() {
        // Idle queues are only added.
        bail!("--existing takes ascending numbers");
    }
    let say = |text: &str| {
        if !options.json {
            anstream::println!("{text}");
        }
    };
    let both = || {
        let mut series = Vec::new();
        for collected in [true, false] {
            say(&set(options, collected)?);
            series.push(measure(options, say)?);
        }
        anyhow::Ok(series)
    };
    let series = both();
    // As it is by default, whatever happened.
    let restored = set(options, true);
    let series = series?;
    say(&restored?);
    let [collected, upstream] = series.as_slice() else {
        bail!("two series were measured")
    };
    let points: Vec<Point> = collected
        .iter()
        .zip(upstream)
        .map(|((existing, with), (_, without))| Point {
            existing: *existing,
            operation: with.operation.clone(),
            collected: figures(with),
            upstream: figures(without),
        })
        .collect();
    if options.json {
        anstream::println!("{}", serde_json::to_string_pretty(&points)?);
    } else {
        anstream::println!("\n{}", table(&points));
        anstream::println!(
            "\nPer call, {} calls each; on: changes collected, off: coalesce=n. Dwords are those of run lists and HIQ.",
            options.rounds
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Loads the module anew, with changes collected or not; returns what was done.
fn set(options: &Options, collected: bool) -> anyhow::Result<String> {
    let mut parameters = vec![format!("coalesce={}", if collected { "y" } else { "n" })];
    parameters.extend(options.parameter.iter().cloned());
    // The stand-in that makes rocminfo look for a GPU may hold the driver; without it there is nothing to unload.
    let _ = Command::new("rmmod")
        .arg("amdgpu")
        .stderr(Stdio::null())
        .status();
    unload()?;
    command(
        Command::new("insmod")
            .arg(&options.module)
            .args(&parameters),
    )?;
    Ok(format!(
        "{} was loaded anew with {}",
        options.module.display(),
        parameters.join(" ")
    ))
}

/// Unloads the driver. A program's last reference may be given back a little after its end.
fn unload() -> anyhow::Result<()> {
    let end = Instant::now() + UNLOAD;
    loop {
        let out = Command::new("rmmod")
            .arg("rkfd")
            .output()
            .context("rmmod")?;
        if out.status.success() {
            return Ok(());
        }
        if Instant::now() >= end {
            bail!("{}", String::from_utf8_lossy(&out.stderr).trim());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn command(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

/// The process that measures.
fn worker(options: &Options, queues: usize) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("this program's own path")?);
    command
        .args(["bench", "worker", "--gpu", &options.gpu.to_string()])
        .args(["--queues", &queues.to_string(), "--measure"]);
    // Parameters of a Rust module are not in sysfs.
    if let Some(us) = options
        .parameter
        .iter()
        .rev()
        .find_map(|p| p.strip_prefix("gather_us="))
    {
        command.args(["--gather-us", us]);
    }
    Ok(command)
}

fn measure(options: &Options, say: impl Fn(&str)) -> anyhow::Result<Vec<(usize, Phase)>> {
    let mut holders = Holders::new(options.gpu);
    let mut found = Vec::new();
    for &existing in &options.existing {
        holders.grow(existing)?;
        say(&format!(
            "  beside {} queues of {} processes …",
            holders.held(),
            holders.processes()
        ));
        let out = worker(options, usize::from(options.rounds))?
            .stderr(Stdio::inherit())
            .output()
            .context("starting the measuring process")?;
        if !out.status.success() {
            bail!("the measuring process ended with {}", out.status);
        }
        let phases: Vec<Phase> =
            serde_json::from_slice(&out.stdout).context("what the measuring process said")?;
        found.extend(phases.into_iter().map(|p| (existing, p)));
    }
    Ok(found)
}

fn figures(phase: &Phase) -> Figures {
    let mut micros = phase.micros.clone();
    micros.sort_by(f64::total_cmp);
    // CAST: figures for a reader.
    let calls = micros.len().max(1) as f64;
    let count = |names: &[&str]| -> f64 {
        names
            .iter()
            .filter_map(|n| phase.counters.get(*n))
            .sum::<u64>() as f64
            / calls
    };
    Figures {
        micros_median: micros.get(micros.len() / 2).copied().unwrap_or(0.0),
        micros_max: micros.last().copied().unwrap_or(0.0),
        micros_total: phase.total_micros,
        runlists: count(&["runlists"]),
        packets: count(&["packets"]),
        dwords: count(&["dwords", "runlist_dwords"]),
        preemptions: count(&["preemptions"]),
    }
}

#[derive(Tabled)]
struct Row {
    existing: usize,
    operation: String,
    #[tabled(rename = "µs on")]
    micros_on: String,
    #[tabled(rename = "off")]
    micros_off: String,
    #[tabled(rename = "ratio")]
    micros_ratio: String,
    #[tabled(rename = "run lists on")]
    runlists_on: String,
    #[tabled(rename = "off")]
    runlists_off: String,
    #[tabled(rename = "packets on")]
    packets_on: String,
    #[tabled(rename = "off")]
    packets_off: String,
    #[tabled(rename = "dwords on")]
    dwords_on: String,
    #[tabled(rename = "off")]
    dwords_off: String,
    #[tabled(rename = "ratio")]
    dwords_ratio: String,
    #[tabled(rename = "preemptions on")]
    preemptions_on: String,
    #[tabled(rename = "off")]
    preemptions_off: String,
}

/// How many times `off` is `on`.
fn ratio(on: f64, off: f64) -> String {
    if on == 0.0 {
        "-".to_owned()
    } else {
        format!("{:.1}", off / on)
    }
}

fn table(points: &[Point]) -> String {
    let rows = points.iter().map(|p| {
        let (on, off) = (&p.collected, &p.upstream);
        let some = |x: f64| format!("{x:.2}");
        let whole = |x: f64| format!("{x:.0}");
        Row {
            existing: p.existing,
            operation: p.operation.clone(),
            micros_on: whole(on.micros_median),
            micros_off: whole(off.micros_median),
            micros_ratio: ratio(on.micros_median, off.micros_median),
            runlists_on: some(on.runlists),
            runlists_off: some(off.runlists),
            packets_on: some(on.packets),
            packets_off: some(off.packets),
            dwords_on: whole(on.dwords),
            dwords_off: whole(off.dwords),
            dwords_ratio: ratio(on.dwords, off.dwords),
            preemptions_on: some(on.preemptions),
            preemptions_off: some(off.preemptions),
        }
    });
    table::plain(rows, (0..Row::LENGTH).filter(|column| *column != 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn phase(micros: &[f64], counters: &[(&str, u64)]) -> Phase {
        Phase {
            operation: "create".into(),
            micros: micros.to_vec(),
            total_micros: micros.iter().sum(),
            counters: counters
                .iter()
                .map(|(n, v)| ((*n).to_owned(), *v))
                .collect::<BTreeMap<_, _>>(),
        }
    }

    #[test]
    fn figures_are_per_call() {
        let f = figures(&phase(
            &[30.0, 10.0, 20.0, 40.0],
            &[
                ("runlists", 2),
                ("packets", 8),
                ("dwords", 100),
                ("runlist_dwords", 300),
                ("preemptions", 1),
            ],
        ));
        assert_eq!((f.micros_median, f.micros_max), (30.0, 40.0));
        assert_eq!(
            (f.runlists, f.packets, f.dwords, f.preemptions),
            (0.5, 2.0, 100.0, 0.25)
        );
    }

    #[test]
    fn the_table_has_both_and_their_ratio() {
        let on = figures(&phase(&[10.0], &[("runlists", 1), ("dwords", 50)]));
        let off = figures(&phase(&[45.0], &[("runlists", 3), ("dwords", 500)]));
        let text = table(&[Point {
            existing: 16,
            operation: "create".into(),
            collected: on,
            upstream: off,
        }]);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines[1],
            [
                "16", "create", "10", "45", "4.5", "1.00", "3.00", "0.00", "0.00", "50", "500",
                "10.0", "0.00", "0.00"
            ]
        );
    }
}
