// SPDX-License-Identifier: GPL-2.0 OR MIT
//! One process of a hang scenario: keeps queues busy, tells what it sees, does what it is told.
//!
//! It reads one command per line: `create` makes a further queue, `destroy` destroys it (which waits for a preemption),
//! `touch` and a number changes one of its queues (which waits for that queue), `report` asks for all that has finished
//! up to now, `stop` ends the process. It prints one JSON object per line.

use std::io::BufRead;
use std::io::Write;
use std::process::ExitCode;
use std::sync::mpsc;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use rkfd::error::Error;
use rkfd::exception::Exception;
use rkfd::exception::ExceptionEvent;
use rkfd::queue::QueueKind;
use rkfd::queue::SaveBuffer;
use serde::Deserialize;
use serde::Serialize;

use crate::stress::Load;

/// Between two reports.
const REPORT: Duration = Duration::from_millis(100);
/// Between two looks at the queues. What an emulated processor does in a look takes it a millisecond or two, and the
/// processes of a scenario are to leave some of its time to the driver.
const REST: Duration = Duration::from_millis(10);

#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// GPU, counted from 0
    #[arg(long, default_value_t = 0)]
    pub gpu: usize,
    /// Number of this process, which makes its patterns its own
    #[arg(long)]
    pub index: u64,
}

/// An exception, as an actor tells it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Told {
    /// Type of reset.
    pub reset_type: u32,
    /// Cause of reset.
    pub reset_cause: u32,
    /// Whether VRAM was lost.
    pub memory_lost: bool,
}

/// A line of an actor.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Says {
    /// Its queues exist; addresses of their rings.
    Ready {
        /// In the order PM4, AQL, SDMA.
        rings: Vec<u64>,
    },
    /// Batches of each queue that were verified, and the first thing that was wrong with any.
    Progress {
        /// By queue.
        good: Vec<u64>,
        /// Batches of the queue that `create` made.
        extra: u64,
        /// Nothing where all was well.
        error: Option<String>,
    },
    /// An HW_EXCEPTION event was raised.
    Exception(Told),
    /// What became of `create`.
    Created {
        /// Nothing where it succeeded.
        errno: Option<String>,
        /// How long the call took.
        ms: u64,
    },
    /// What became of `touch`.
    Touched {
        /// Nothing where it succeeded.
        errno: Option<String>,
        /// How long the call took.
        ms: u64,
    },
    /// `destroy` came back.
    Destroyed {
        /// How long the call took.
        ms: u64,
    },
    /// All that had finished when `report` came is told.
    Reported,
    /// It cannot go on.
    Failed {
        /// Why.
        why: String,
    },
}

fn say(line: &Says) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, line)?;
    out.write_all(b"\n")?;
    out.flush().context("the parent is gone")
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    match act(options) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(e) => {
            say(&Says::Failed {
                why: format!("{e:#}"),
            })?;
            Ok(ExitCode::FAILURE)
        }
    }
}

/// The exception's wait runs beside the work.
fn listen(event: ExceptionEvent) {
    std::thread::spawn(move || loop {
        match event.wait(Duration::from_secs(3600)) {
            Ok(Some(Exception::Hardware {
                reset_type,
                reset_cause,
                memory_lost,
                ..
            })) => {
                let told = say(&Says::Exception(Told {
                    reset_type,
                    reset_cause,
                    memory_lost,
                }));
                // The event is not reset, so that it would be told for ever: once is enough.
                drop(told);
                return;
            }
            Ok(_) => {}
            Err(_) => return,
        }
    });
}

fn act(options: &Options) -> anyhow::Result<()> {
    let device = crate::open_gpu(options.gpu)?;
    let save = Arc::new(SaveBuffer::new(&device)?);
    let mut seed = options.index << 32;
    let mut make = |kind: QueueKind| {
        seed += 0x101;
        let own = (kind != QueueKind::Sdma).then(|| save.clone());
        Load::new(&device, kind, seed, own)
    };
    let mut loads = Vec::new();
    for kind in [QueueKind::Pm4, QueueKind::Aql, QueueKind::Sdma] {
        loads.push(make(kind).with_context(|| format!("{kind:?} queue"))?);
    }
    listen(ExceptionEvent::hardware(&device)?);
    say(&Says::Ready {
        rings: loads.iter().map(Load::ring_address).collect(),
    })?;
    let (sender, commands) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut extra = Vec::new();
    let mut report = Instant::now();
    loop {
        for load in loads.iter_mut().chain(&mut extra) {
            load.collect()?;
            load.fill()?;
        }
        if Instant::now() >= report {
            report = Instant::now() + REPORT;
            say(&progress(&loads, &extra))?;
        }
        match commands.recv_timeout(REST) {
            Ok(line) if line == "destroy" => {
                let began = Instant::now();
                extra.clear();
                let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                say(&Says::Destroyed { ms })?;
            }
            Ok(line) if line == "create" => say(&create(&mut make, &mut extra))?,
            Ok(line) if line.starts_with("touch ") => {
                let index: usize = line["touch ".len()..].parse().context("touch which?")?;
                let load = loads.get_mut(index).context("touch which?")?;
                let began = Instant::now();
                let errno = errno_of(load.touch());
                let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                say(&Says::Touched { errno, ms })?;
            }
            Ok(line) if line == "report" => {
                for load in loads.iter_mut().chain(&mut extra) {
                    load.collect()?;
                }
                say(&progress(&loads, &extra))?;
                say(&Says::Reported)?;
            }
            Ok(_) | Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
    }
}

/// What was verified up to now.
fn progress(loads: &[Load], extra: &[Load]) -> Says {
    Says::Progress {
        good: loads.iter().map(Load::good).collect(),
        extra: extra.iter().map(Load::good).sum(),
        error: loads
            .iter()
            .chain(extra)
            .find_map(Load::first_error)
            .map(str::to_owned),
    }
}

/// A further queue, its time taken.
fn create(make: &mut impl FnMut(QueueKind) -> Result<Load, Error>, extra: &mut Vec<Load>) -> Says {
    let began = Instant::now();
    let made = make(QueueKind::Pm4);
    let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let errno = errno_of(made.map(|load| extra.push(load)));
    Says::Created { errno, ms }
}

/// What a call answered that failed.
fn errno_of(result: Result<(), Error>) -> Option<String> {
    let error = result.err()?;
    Some(
        error
            .errno()
            .map_or_else(|| error.to_string(), |errno| format!("{errno:?}")),
    )
}
