// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Pages that a process gives back inside of memory that the GPU reaches, while its queue has work.

use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use rkfd::device::Device;
use rkfd::memory::Buffer;
use rkfd::memory::Kind;
use rkfd::packet::pm4::Compare;
use rkfd::packet::pm4::Packet;
use serde::Serialize;

use super::advise_away;
use super::timed;
use super::times;
use super::Mapped;
use super::Pair;
use super::PAGE;
use crate::bench::versus::measure::Worker;
use crate::debugfs;

/// Clocks between two looks of the packet that waits.
const INTERVAL: u32 = 100;
/// A stride that reaches pages far from each other, and all of them in the end.
const STRIDE: usize = 4097;
/// Longest wait for a packet to begin.
const PATIENCE: Duration = Duration::from_secs(60);

/// What giving back one page costs.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Of the buffer.
    pub bytes: u64,
    /// The call.
    pub call: Pair,
    /// From its begin to the effect of the next packet of the process, which in the peer's case no page was given back for.
    pub next_packet: Pair,
    /// How often all queues of the process were stopped.
    pub evictions_per_call: f64,
    /// Pages whose entries were written anew or taken away.
    pub rewritten_per_call: f64,
}

/// Gives back single pages of a buffer of `size` bytes.
///
/// # Errors
/// A call failed, or a packet had no effect.
pub fn measure(
    device: &Arc<Device>,
    gpu: usize,
    size: usize,
    rounds: u32,
) -> anyhow::Result<Figures> {
    let gpus = crate::mem::addresses()?;
    let pci = gpus
        .get(gpu)
        .with_context(|| format!("there is no GPU {gpu}"))?;
    let worker = Worker::new(device)?;
    let gate = Buffer::new(device, Kind::Gtt, PAGE)?;
    let buffer = Buffer::new(device, Kind::Userptr, size)?;
    let pages = size / PAGE;
    let at = |round: u32| {
        let page = usize::try_from(round).unwrap_or(0).wrapping_mul(STRIDE) % pages;
        // CAST: a 64-bit process.
        buffer.address() as usize + page * PAGE
    };
    let counter = |file: &str, name: &str| -> anyhow::Result<u64> {
        let counters = debugfs::counters(&debugfs::read(pci, file)?);
        counters
            .get(name)
            .copied()
            .with_context(|| format!("the driver does not count {name}"))
    };
    let evictions = || counter("sched", "evictions");
    let rewritten = || counter("userptr", "rewritten");
    let (mut value, mut gates) = (0, 0);
    // The queue waits in a packet while `call` is made, and works when that is over.
    let mut beside =
        |call: &dyn Fn() -> anyhow::Result<()>| -> anyhow::Result<(Duration, Duration)> {
            gates += 1;
            value += 1;
            let packets = [
                Packet::WriteData {
                    address: gate.address() + 8,
                    data: vec![gates],
                    confirm: true,
                },
                Packet::WaitMem {
                    compare: Compare::Equal,
                    address: gate.address(),
                    reference: gates,
                    mask: u32::MAX,
                    interval: INTERVAL,
                },
            ];
            worker.queue.submit(&Packet::encode_all(&packets)?)?;
            let end = Instant::now() + PATIENCE;
            while gate.read_u32(8)? != gates {
                if Instant::now() > end {
                    bail!("a packet did not begin within {PATIENCE:?}");
                }
                std::thread::yield_now();
            }
            let began = Instant::now();
            call()?;
            let took = began.elapsed();
            gate.write_u32(0, gates)?;
            worker.effect(value)?;
            Ok((took, began.elapsed()))
        };
    let (mut calls, mut nexts, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    let before = (evictions()?, rewritten()?);
    for round in 0..rounds {
        let (call, next) = beside(&|| advise_away(at(round), PAGE))?;
        calls.push(call);
        nexts.push(next);
    }
    // The effect of the last packet came after what was written for its page.
    let (evicted, written) = (evictions()? - before.0, rewritten()? - before.1);
    for _ in 0..rounds {
        plain.push(beside(&|| Ok(()))?.1);
    }
    let other = Mapped::anonymous(size)?;
    let peer = times(rounds, |round| {
        let page = usize::try_from(round)?.wrapping_mul(STRIDE) % pages;
        timed(|| other.forget(page))
    })?;
    Ok(Figures {
        bytes: size as u64, // CAST: a size in memory.
        call: Pair::new(calls, peer),
        next_packet: Pair::new(nexts, plain),
        evictions_per_call: evicted as f64 / f64::from(rounds), // CAST: for a reader.
        rewritten_per_call: written as f64 / f64::from(rounds), // CAST: for a reader.
    })
}
