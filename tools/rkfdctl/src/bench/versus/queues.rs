// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What a queue costs beside many others.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use rkfd::device::Device;
use rkfd::queue::Queue;
use rkfd::queue::QueueKind;
use rkfd::queue::QueueOptions;
use rkfd::queue::SaveBuffer;

use super::counts::Model;
use super::measure::say;
use super::measure::Worker;
use super::measure::GPU;
use super::report::Row;
use crate::bench::holders::Holders;

/// Ordinary priority.
const PRIORITY: u32 = 7;

/// Measures beside as many queues of other processes as `existing` says, in turn.
///
/// # Errors
/// A call failed.
pub fn measure(
    device: &Arc<Device>,
    model: &mut Model,
    existing: &[usize],
    rounds: usize,
    rows: &mut Vec<Row>,
) -> anyhow::Result<()> {
    let save = Arc::new(SaveBuffer::new(device)?);
    let mut holders = Holders::new(GPU);
    for &queues in existing {
        say(&format!("queues beside {queues}"));
        holders.grow(queues)?;
        let noun = if queues == 1 { "queue" } else { "queues" };
        beside(
            device,
            &save,
            model,
            &format!("{queues} {noun}"),
            rounds,
            rows,
        )?;
    }
    Ok(())
}

fn beside(
    device: &Arc<Device>,
    save: &Arc<SaveBuffer>,
    model: &mut Model,
    beside: &str,
    rounds: usize,
    rows: &mut Vec<Row>,
) -> anyhow::Result<()> {
    let make = || {
        let options = QueueOptions::new(QueueKind::Pm4);
        Queue::with_save_buffer(device, options, Some(save.clone()))
    };
    // What a process pays once (its doorbells, its entry in the run list) is not what is measured; the queue stays, so
    // that the process does.
    let _first = make()?;
    let mut queues = Vec::new();
    rows.push(model.series("create a queue", beside, rounds, |_| {
        let began = Instant::now();
        queues.push(make()?);
        Ok(began.elapsed())
    })?);
    for (what, percentage) in [("stop a queue", 0), ("start a queue", 100)] {
        rows.push(model.series(what, beside, rounds, |round| {
            let queue = queues.get(round).context("a queue")?;
            let began = Instant::now();
            queue.update(percentage, PRIORITY)?;
            Ok(began.elapsed())
        })?);
    }
    rows.push(model.series("destroy a queue", beside, rounds, |_| {
        let mut queue = queues.pop().context("a queue")?;
        let began = Instant::now();
        queue.destroy()?;
        Ok(began.elapsed())
    })?);
    let mut workers = Vec::new();
    rows.push(
        model.series("create a queue, first packet", beside, rounds, |_| {
            let began = Instant::now();
            let worker = Worker::sharing(device, save)?;
            worker.effect(1)?;
            let took = began.elapsed();
            workers.push(worker);
            Ok(took)
        })?,
    );
    Ok(())
}
