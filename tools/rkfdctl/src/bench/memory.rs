// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl bench memory`: what memory costs that a GPU reaches, beside a peer that does the like without one.
//!
//! Each figure has a peer that is measured in the same run on the same machine: times tell little about a driver where the
//! device is a program that shares the processors, ratios tell more.
//!
//! | figure | peer |
//! |---|---|
//! | binding and unbinding one range of VRAM, and single pages that do not continue each other | the CPU's own page table: `mmap` of as many bytes or pages that exist already, and `munmap` |
//! | moving VRAM to system memory and back, as the tracepoint `bo_move` says | `memcpy` of as many bytes |
//! | round trip of an event: packet, interrupt, wake-up | a byte there and back between two threads |
//! | WAIT_EVENTS of which the last event is signalled | `poll` of as many eventfds |
//! | `madvise(MADV_DONTNEED)` of a page inside of a buffer of the process while its queue runs | the same in memory that is no buffer |

mod bind;
pub mod moves;
mod userptr;
mod waits;

use std::process::ExitCode;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use nix::libc;
use serde::Serialize;

use crate::fuzz::raw;
use crate::latency::Samples;
use crate::style;

#[derive(clap::Args)]
pub struct Options {
    /// GPU, counted from 0
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// MiB that are bound as one range
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(2..=65_536))]
    range: u32,
    /// MiB of the buffer of the process of which pages are given back
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(2..=65_536))]
    userptr: u32,
    /// Times that each call is made
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// The figures as JSON
    #[arg(long)]
    json: bool,
}

/// Everything.
#[derive(Debug, Serialize)]
struct Figures {
    bind: Vec<bind::Figures>,
    moves: Vec<moves::Figures>,
    round_trip: Pair,
    wait_events: Vec<waits::Figures>,
    userptr: userptr::Figures,
}

/// A time, and that of its peer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// Medians in microseconds.
    micros: f64,
    peer_micros: f64,
    /// The first by the second.
    ratio: f64,
}

impl Pair {
    fn new(times: Vec<Duration>, peer: Vec<Duration>) -> Self {
        let (micros, peer_micros) = (median(times), median(peer));
        Self {
            micros,
            peer_micros,
            ratio: micros / peer_micros,
        }
    }
}

/// The median in microseconds, never 0.
fn median(times: Vec<Duration>) -> f64 {
    Samples::new(times).percentile(50).as_secs_f64().max(1e-9) * 1e6
}

/// Times `call`, once without being counted and then `rounds` times.
fn times(
    rounds: u32,
    mut call: impl FnMut(u32) -> anyhow::Result<Duration>,
) -> anyhow::Result<Vec<Duration>> {
    call(0)?;
    (0..rounds).map(call).collect()
}

/// How long `call` takes.
fn timed<T>(call: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<Duration> {
    let began = Instant::now();
    call()?;
    Ok(began.elapsed())
}

/// Bytes per microsecond as GB/s.
fn gb_per_second(bytes: u64, micros: f64) -> f64 {
    bytes as f64 / micros / 1e3 // CAST: for a reader.
}

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let usize_of = |mib: u32| usize::try_from(mib).context("a number of MiB");
    let rounds = options.rounds;
    let bind = bind::measure(options.gpu, usize_of(options.range)? * MIB, rounds)?;
    let moves = moves::measure(options.gpu)?;
    // A process has one address space of a GPU by `/dev/kfd`.
    let device = crate::open_gpu(options.gpu)?;
    let userptr = usize_of(options.userptr)? * MIB;
    let figures = Figures {
        bind,
        moves,
        round_trip: waits::round_trip(&device, rounds)?,
        wait_events: waits::measure(&device, rounds)?,
        userptr: userptr::measure(&device, options.gpu, userptr, rounds)?,
    };
    if options.json {
        anstream::println!("{}", serde_json::to_string_pretty(&figures)?);
    } else {
        print(&figures);
    }
    Ok(ExitCode::SUCCESS)
}

fn print(figures: &Figures) {
    let line = |what: &str, pair: &Pair, more: &str| {
        anstream::println!(
            "  {what:<34} {:>10.1} µs {:>10.1} µs {:>8.2}{more}",
            pair.micros,
            pair.peer_micros,
            pair.ratio
        );
    };
    anstream::println!(
        "{}",
        style::head(format!(
            "{:<36} {:>13} {:>13} {:>8}",
            "medians", "GPU", "peer", "ratio"
        ))
    );
    for figures in &figures.bind {
        let (bind, unbind) = figures.lines();
        line(&bind, &figures.bind, &figures.rate(&figures.bind));
        line(&unbind, &figures.unbind, &figures.rate(&figures.unbind));
    }
    for figures in &figures.moves {
        line(&figures.line(), &figures.time, &figures.rate());
    }
    line("round trip of an event", &figures.round_trip, "");
    for figures in &figures.wait_events {
        line(
            &format!("wait for one of {} events", figures.events),
            &figures.time,
            "",
        );
    }
    let own = &figures.userptr;
    line(
        &format!("madvise of a page of {}", style::bytes(own.bytes)),
        &own.call,
        &format!(
            "  {:.2} evictions, {:.0} pages written each",
            own.evictions_per_call, own.rewritten_per_call
        ),
    );
    line("… until the next packet", &own.next_packet, "");
}

/// Memory of this process that nobody has a reference to; unmapped when dropped.
struct Mapped {
    start: usize,
    len: usize,
}

impl Mapped {
    /// Anonymous memory whose pages are there.
    fn anonymous(len: usize) -> anyhow::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: no address is asked for, so nothing existing is replaced.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            bail!("mmap: {}", nix::errno::Errno::last());
        }
        Ok(Self {
            start: start.expose_provenance(),
            len,
        })
    }

    /// Has the kernel forget a page.
    fn forget(&self, page: usize) -> anyhow::Result<()> {
        advise_away(self.start + page * PAGE % self.len, PAGE)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: a mapping of its own, which nobody accesses but through it.
        let _ = unsafe { raw::unmap(self.start, self.len) };
    }
}

/// `madvise(MADV_DONTNEED)`.
fn advise_away(start: usize, len: usize) -> anyhow::Result<()> {
    // SAFETY: the callers name memory of their own that nobody has a reference to, and do not need what it holds.
    match unsafe { raw::advise(start, len, libc::MADV_DONTNEED) } {
        0 => Ok(()),
        errno => bail!("madvise: errno {errno}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_of_the_medians() {
        let micros = |list: &[u64]| list.iter().copied().map(Duration::from_micros).collect();
        let pair = Pair::new(micros(&[4, 100, 6]), micros(&[3, 2, 50]));
        assert_eq!((pair.micros, pair.peer_micros, pair.ratio), (6.0, 3.0, 2.0));
    }

    #[test]
    fn the_first_call_does_not_count() {
        let mut calls = Vec::new();
        let found = times(3, |round| {
            calls.push(round);
            Ok(Duration::from_micros(calls.len() as u64))
        });
        assert_eq!(calls, [0, 0, 1, 2]);
        assert_eq!(found.unwrap().first(), Some(&Duration::from_micros(2)));
    }

    #[test]
    fn bytes_per_microsecond_are_megabytes_per_second() {
        assert!((gb_per_second(1_000_000, 1000.0) - 1.0).abs() < 1e-9);
    }
}
