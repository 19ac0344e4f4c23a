// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl tasks`: programs whose kernels hand tasks to the CPU, by the counters that they show to others.

use std::env;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use rkfd::tasks::statistics::Snapshot;
use serde::Serialize;

use crate::style;

/// What the files' names begin with; the process follows.
const NAME: &str = "rkfd-tasks-";

#[derive(clap::Args)]
pub struct Options {
    /// Show it again and again, with what came since
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    /// Times that it is shown with --watch; without end if not given
    #[arg(long, requires = "watch")]
    count: Option<u32>,
    /// Milliseconds between two of them
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    interval: u64,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Where programs put the file of their counters.
fn directory() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() {
        shared.into()
    } else {
        env::temp_dir()
    }
}

/// The file of a process's.
pub fn file_of(process: u32) -> PathBuf {
    directory().join(format!("{NAME}{process}"))
}

/// The counters of programs that run, by their process.
fn all() -> Vec<Snapshot> {
    let entries = fs::read_dir(directory()).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(NAME));
    let mut found: Vec<Snapshot> = ours
        .filter_map(|entry| Snapshot::read(&entry.path()).ok())
        // One that was killed has left its file.
        .filter(|found| Path::new(&format!("/proc/{}", found.process)).is_dir())
        .collect();
    found.sort_by_key(|found| found.process);
    found
}

/// An area, for programs.
#[derive(Serialize)]
struct Area {
    gpu: Option<String>,
    high: u64,
    low: u64,
    done: u64,
    failed: u64,
    rejected: u64,
    corrupt: u64,
    late: u64,
    in_hand: u64,
    waiting: u64,
}

/// A worker, for programs.
#[derive(Serialize)]
struct Worker {
    runs: u64,
    turns: u64,
    sleeps: u64,
    wakes: u64,
    looks: u64,
    recovered: u64,
    lost: u64,
    deaths: u64,
}

/// A program, for programs.
#[derive(Serialize)]
struct Program {
    process: u64,
    areas: Vec<Area>,
    workers: Vec<Worker>,
}

fn program(of: &Snapshot) -> Program {
    let areas = of.areas.iter().map(|area| Area {
        gpu: (area.gpu != 0).then(|| format!("{:#06x}", area.gpu)),
        high: area.taken[0],
        low: area.taken[1],
        done: area.done,
        failed: area.failed,
        rejected: area.rejected,
        corrupt: area.corrupt,
        late: area.late,
        in_hand: (area.taken[0] + area.taken[1]).saturating_sub(area.done + area.failed),
        waiting: area.waiting,
    });
    let workers = of.workers.iter().map(|worker| Worker {
        runs: worker.runs,
        turns: worker.turns,
        sleeps: worker.sleeps,
        wakes: worker.wakes,
        looks: worker.looks,
        recovered: worker.recovered,
        lost: worker.lost,
        deaths: worker.deaths,
    });
    Program {
        process: of.process,
        areas: areas.collect(),
        workers: workers.collect(),
    }
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if options.json {
        let programs: Vec<Program> = all().iter().map(program).collect();
        anstream::println!("{}", serde_json::to_string_pretty(&programs)?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut before: Vec<Snapshot> = Vec::new();
    let mut left = if options.watch {
        options.count
    } else {
        Some(1)
    };
    loop {
        let now = all();
        for line in lines(&now, &before, Duration::from_millis(options.interval)) {
            anstream::println!("{line}");
        }
        before = now;
        if let Some(left) = &mut left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                return Ok(ExitCode::SUCCESS);
            }
        }
        std::thread::sleep(Duration::from_millis(options.interval));
    }
}

/// What is shown, with tasks in a second where it is known what was `before`.
fn lines(now: &[Snapshot], before: &[Snapshot], interval: Duration) -> Vec<String> {
    if now.is_empty() {
        return vec!["no program shows tasks".into()];
    }
    let mut out = Vec::new();
    for found in now {
        let last = before.iter().find(|last| last.process == found.process);
        out.push(style::head(format!("process {}", found.process)));
        for (n, area) in found.areas.iter().enumerate() {
            let name = match area.gpu {
                0 => "its own".to_owned(),
                gpu => format!("GPU {gpu:#06x}"),
            };
            let [high, low] = area.taken;
            let rate = last.and_then(|last| last.areas.get(n)).map(|last| {
                let grown = (high + low).saturating_sub(last.taken[0] + last.taken[1]);
                // CAST: a figure for a reader.
                format!(", {:.0}/s", grown as f64 / interval.as_secs_f64())
            });
            let mut text = format!(
                "  {name:<12} {high} high and {low} low taken, {} done, {} failed, {} in hand, {} behind{}",
                area.done,
                area.failed,
                (high + low).saturating_sub(area.done + area.failed),
                area.waiting,
                rate.unwrap_or_default()
            );
            for (count, what) in [
                (area.rejected, "not taken by any function"),
                (area.corrupt, "slots put right"),
                (area.late, "without their future"),
            ] {
                if count != 0 {
                    text += &style::bad(format!(", {count} {what}"));
                }
            }
            out.push(text);
        }
        for (n, worker) in found.workers.iter().enumerate() {
            let asleep = worker.sleeps > worker.wakes + worker.looks;
            let mut text = format!(
                "  worker {n:<5} {} tasks, {} turns, woken {} times, {}",
                worker.runs,
                worker.turns,
                worker.wakes,
                if asleep { "asleep" } else { "awake" }
            );
            if worker.deaths != 0 {
                text += &style::bad(format!(
                    ", died {} times: {} tasks run again, {} failed",
                    worker.deaths, worker.recovered, worker.lost
                ));
            }
            out.push(text);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use rkfd::tasks::statistics::AreaCounters;
    use rkfd::tasks::statistics::WorkerCounters;

    #[test]
    fn a_program_is_shown_with_what_came_since() {
        let at = |low| Snapshot {
            process: 7,
            areas: vec![AreaCounters {
                gpu: 0xa5d5,
                taken: [3, low],
                done: 4,
                corrupt: 1,
                ..AreaCounters::default()
            }],
            workers: vec![WorkerCounters {
                runs: 4,
                sleeps: 2,
                wakes: 1,
                ..WorkerCounters::default()
            }],
        };
        let text: Vec<String> = lines(&[at(12)], &[at(2)], Duration::from_millis(500))
            .iter()
            .map(|line| anstream::adapter::strip_str(line).to_string())
            .collect();
        assert_eq!(
            text,
            [
                "process 7",
                "  GPU 0xa5d5   3 high and 12 low taken, 4 done, 0 failed, 11 in hand, 0 behind, 20/s, 1 slots put right",
                "  worker 0     4 tasks, 0 turns, woken 1 times, asleep",
            ]
        );
        assert_eq!(lines(&[], &[], Duration::ZERO), ["no program shows tasks"]);
    }
}
