// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl events`: what happens on the GPUs, as it happens.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use nix::errno::Errno;
use nix::poll::poll;
use nix::poll::PollFd;
use nix::poll::PollFlags;
use nix::poll::PollTimeout;
use rkfd::device::Kfd;
use rkfd::error::Error;
use rkfd::monitor;
use rkfd::monitor::Event;
use rkfd::monitor::Monitor;
use rkfd::monitor::What;

use crate::style;

#[derive(clap::Args)]
pub struct Options {
    /// Only this GPU, counted from 0
    #[arg(long)]
    gpu: Option<usize>,
    /// Stop after so many events
    #[arg(long)]
    count: Option<u64>,
    /// Stop after so many seconds
    #[arg(long)]
    seconds: Option<f64>,
    /// The driver's own lines, after the number of the GPU
    #[arg(long)]
    raw: bool,
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let kfd = Kfd::open()?;
    let gpus = kfd.gpus()?;
    if gpus.is_empty() {
        return Err(Error::NoGpu.into());
    }
    if options.gpu.is_some_and(|gpu| gpu >= gpus.len()) {
        bail!("the driver serves {} GPUs, counted from 0", gpus.len());
    }
    if options.seconds.is_some_and(|s| !s.is_finite() || s < 0.0) {
        bail!("--seconds takes a number of seconds");
    }
    let mut monitors = Vec::new();
    for (index, gpu) in gpus.iter().enumerate() {
        if options.gpu.is_none_or(|only| only == index) {
            monitors.push((index, Monitor::open(&kfd, gpu.id, monitor::ALL)?));
        }
    }
    let mut out = anstream::stdout();
    if !options.raw {
        writeln!(
            out,
            "{}",
            style::head(format!(
                "{:>3}  {:<14}  {:>7}  DETAILS",
                "GPU", "EVENT", "PID"
            ))
        )?;
    }
    let end = options
        .seconds
        .map(|seconds| Instant::now() + Duration::from_secs_f64(seconds.min(1e9)));
    let mut left = options.count.unwrap_or(u64::MAX);
    while left > 0 && wait(&monitors, end)? {
        for (index, monitor) in &mut monitors {
            for line in monitor.lines()? {
                if left == 0 {
                    break;
                }
                left -= 1;
                if options.raw {
                    writeln!(out, "{index} {line}")?;
                } else {
                    writeln!(out, "{index:>3}  {}", describe(&line))?;
                }
            }
        }
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Sleeps until there is an event; false: the time is over.
fn wait(monitors: &[(usize, Monitor)], end: Option<Instant>) -> anyhow::Result<bool> {
    let mut fds: Vec<PollFd<'_>> = monitors
        .iter()
        .map(|(_, monitor)| PollFd::new(monitor.as_fd(), PollFlags::POLLIN))
        .collect();
    loop {
        let timeout = match end {
            None => PollTimeout::NONE,
            Some(end) => {
                let left = end.saturating_duration_since(Instant::now());
                PollTimeout::try_from(left.min(Duration::from_secs(3600)))?
            }
        };
        match poll(&mut fds, timeout) {
            Ok(0) if end.is_some_and(|end| Instant::now() >= end) => return Ok(false),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(e) => return Err(e.into()),
        }
    }
}

/// A line for people.
fn describe(line: &str) -> String {
    let row = |event: &str, pid: Option<u32>, details: String| {
        let pid = pid.map_or("-".into(), |pid| pid.to_string());
        format!("{event:<14}  {pid:>7}  {details}")
    };
    let Some(event) = Event::parse(line) else {
        return row("?", None, line.to_owned());
    };
    match event.what {
        What::VmFault { pid, name } => style::bad(row("memory fault", Some(pid), name)),
        What::Reset {
            number,
            cause,
            over: false,
        } => style::bad(row(
            "reset begins",
            None,
            format!("number {number}, {cause}"),
        )),
        What::Reset {
            number,
            cause,
            over: true,
        } => style::good(row("reset over", None, format!("number {number}, {cause}"))),
        What::Eviction {
            time, pid, trigger, ..
        } => row(
            "queues off",
            Some(pid),
            format!("{} at {}", trigger_name(trigger), seconds(time)),
        ),
        What::Restore {
            time, pid, delayed, ..
        } => row(
            "queues on",
            Some(pid),
            format!(
                "{}at {}",
                if delayed { "not yet, " } else { "" },
                seconds(time)
            ),
        ),
        What::Move {
            time,
            pid,
            page,
            pages,
            from,
            to,
            trigger,
            error,
        } => {
            let event = if error.is_some() {
                "memory moved"
            } else {
                "memory moves"
            };
            let failed = match error {
                None | Some(0) => String::new(),
                Some(error) => format!(", {:?}", Errno::from_raw(error.saturating_neg())),
            };
            let details = format!(
                "{pages} pages at {:#x}, {} to {}, {}{failed} at {}",
                page << 12,
                place_name(from),
                place_name(to),
                move_name(trigger),
                seconds(time)
            );
            row(event, Some(pid), details)
        }
        What::Process {
            pid,
            name,
            over: false,
        } => row("process starts", Some(pid), name),
        What::Process {
            pid,
            name,
            over: true,
        } => row("process ends", Some(pid), name),
        What::Other(fields) => row(&format!("event {}", event.number), None, fields),
    }
}

/// Nanoseconds since boot, for people.
fn seconds(ns: u64) -> String {
    format!("{}.{:06} s", ns / 1_000_000_000, ns / 1000 % 1_000_000)
}

/// Where memory lies, by the id of a GPU.
fn place_name(gpu: u32) -> String {
    match gpu {
        0 => "system".into(),
        gpu => format!("GPU {gpu:x}"),
    }
}

/// `enum KFD_MIGRATE_TRIGGERS`.
fn move_name(trigger: u32) -> String {
    match trigger {
        0 => "prefetched".into(),
        1 => "accessed by the GPU".into(),
        2 => "accessed by the CPU".into(),
        3 => "evicted".into(),
        other => format!("reason {other}"),
    }
}

/// `enum KFD_QUEUE_EVICTION_TRIGGERS`.
fn trigger_name(trigger: u32) -> String {
    match trigger {
        0 => "SVM migration".into(),
        1 => "memory of the process changed".into(),
        2 => "buffer moved".into(),
        3 => "suspend".into(),
        other => format!("reason {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::describe;

    /// Without colours.
    fn plain(line: &str) -> String {
        anstream::adapter::strip_str(&describe(line)).to_string()
    }

    #[test]
    fn events_read_well() {
        assert_eq!(
            plain("9 1002003004 -77 a5d5 1"),
            "queues off           77  memory of the process changed at 1.002003 s"
        );
        assert_eq!(
            plain("a 5 -77 a5d5 R"),
            "queues on            77  not yet, at 0.000000 s"
        );
        assert_eq!(
            plain("5 5 -77 @7f00(200) 0->a5d5 a5d5:ffffffff 0"),
            "memory moves         77  512 pages at 0x7f00000, system to GPU a5d5, prefetched at 0.000000 s"
        );
        assert_eq!(
            plain("6 5 -77 @7f00(200) a5d5->0 2 -12"),
            "memory moved         77  512 pages at 0x7f00000, GPU a5d5 to system, accessed by the CPU, ENOMEM at 0.000000 s"
        );
        assert_eq!(
            plain("3 2 engines"),
            "reset begins          -  number 2, engines"
        );
        assert_eq!(plain("1 4d:a"), "memory fault         77  a");
        assert_eq!(plain("c 4d a"), "process starts       77  a");
        assert_eq!(plain("junk"), "?                     -  junk");
    }
}
