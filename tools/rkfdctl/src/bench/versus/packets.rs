// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What does not enter the kernel, and events.

use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use rkfd::device::Device;
use rkfd::packet::aql;
use rkfd::queue::Queue;
use rkfd::queue::QueueKind;
use rkfd::queue::QueueOptions;
use rkfd::signal::Signals;

use super::counts::Model;
use super::measure::Worker;
use super::report::Row;
use crate::bench::strays::Trip;

/// Times that a packet is submitted for each call of other series: they take less time, and vary more.
const MORE: usize = 32;
/// Longest wait for a signal.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures round trips.
///
/// # Errors
/// A call failed, or a packet had no effect.
pub fn measure(
    device: &Arc<Device>,
    model: &mut Model,
    rounds: usize,
    rows: &mut Vec<Row>,
) -> anyhow::Result<()> {
    let rounds = rounds * MORE;
    let worker = Worker::new(device)?;
    worker.effect(u32::MAX)?;
    rows.push(
        model.series("packet to memory", "PM4 queue", rounds, |round| {
            let value = u32::try_from(round).context("a number of rounds")?;
            let began = Instant::now();
            worker.effect(value)?;
            Ok(began.elapsed())
        })?,
    );
    drop(worker);
    let signals = Signals::new(device, 1)?;
    let queue = Queue::new(device, QueueOptions::new(QueueKind::Aql)).context("AQL queue")?;
    rows.push(model.series("packet to memory", "AQL queue", rounds, |_| {
        signals.store(0, 1)?;
        let (packet, header) = aql::Barrier {
            kind: aql::BarrierKind::And,
            dependencies: [0; 5],
            completion: signals.address(0)?,
        }
        .encode()?;
        let began = Instant::now();
        queue.stage_aql(&packet, header)?;
        queue.flush();
        let end = began + PATIENCE;
        while signals.load(0)? != 0 {
            if Instant::now() >= end {
                bail!("a packet had no effect within {PATIENCE:?}");
            }
            std::thread::yield_now();
        }
        Ok(began.elapsed())
    })?);
    drop(queue);
    let mut trip = Trip::new(device)?;
    rows.push(model.series("packet to event", "PM4 queue", rounds, |_| {
        let mut times = Vec::new();
        trip.series(1, &mut times)?;
        times.pop().context("a time")
    })?);
    Ok(())
}
