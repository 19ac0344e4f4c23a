// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What a process that is killed leaves behind, and what a queue that does not leave the hardware costs others.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::anyhow;
use anyhow::bail;
use anyhow::Context;
use rkfd::device::Device;
use rkfd::queue::SaveBuffer;
use serde_json::json;
use serde_json::Value;

use super::counts::median;
use super::counts::Model;
use super::measure::Worker;
use super::report::Row;
use super::report::Time;
use super::victim::Victim;
use crate::bench::strays::Trip;

/// Queues of the process that is killed.
const KILLED: usize = 8;
/// Longest wait until they are off the hardware.
const PATIENCE: Duration = Duration::from_secs(60);
/// Times that a queue refuses to leave. Each takes seconds.
const REFUSALS: usize = 3;

/// From `kill -9` of a process until none of its queues is on the hardware, by the model's clock.
///
/// # Errors
/// A call failed, or the queues stay.
pub fn kill(model: &mut Model, rounds: usize, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let beside = format!("{KILLED} queues");
    let mut times = Vec::new();
    for _ in 0..rounds {
        let mut victim = Victim::start(KILLED)?;
        let doorbells = victim.connected(model)?.to_vec();
        let since = model.now()?;
        victim.kill();
        let end = Instant::now() + PATIENCE;
        while !gone(model, &doorbells)? {
            if Instant::now() >= end {
                bail!("the queues of a process that was killed stay on the hardware");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let left = model.left(&doorbells, since)?;
        times.push(Duration::from_nanos(left.saturating_sub(since)));
    }
    rows.push(Row::timed(
        "kill -9 until queues are off",
        &beside,
        median(times),
    ));
    // The counts, with the start of the process, which both drivers have to serve.
    let mut row = model.series("start and kill a process", &beside, rounds, |_| {
        let began = Instant::now();
        Victim::start(KILLED)?.kill();
        Ok(began.elapsed())
    })?;
    row.time = Time::Untimed;
    rows.push(row);
    Ok(())
}

/// Whether no queue with these doorbells is on the hardware any more. Between a preemption and the list that follows none is
/// either, so the scheduler has to rest.
fn gone(model: &mut Model, doorbells: &[u64]) -> anyhow::Result<bool> {
    if connected(model, doorbells)? {
        return Ok(false);
    }
    model.settled()?;
    Ok(!connected(model, doorbells)?)
}

/// Whether a queue with one of these doorbells sits on a slot.
fn connected(model: &mut Model, doorbells: &[u64]) -> anyhow::Result<bool> {
    let answer = model.request(&json!({ "cmd": "queues" }))?;
    let queues = answer.get("compute").and_then(Value::as_array);
    Ok(queues.into_iter().flatten().any(|q| {
        let doorbell = q.get("doorbell").and_then(Value::as_u64);
        doorbell.is_some_and(|d| doorbells.contains(&d))
    }))
}

/// The longest round trip of an event while a queue of another process refuses preemption and one more queue is created.
///
/// # Errors
/// A call failed before the fault was on. What fails with it is a result: others do not go on.
pub fn refuse(device: &Arc<Device>, model: &mut Model, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let save = Arc::new(SaveBuffer::new(device)?);
    let mut trip = Trip::new(device)?;
    let mut sound = Vec::new();
    let mut stalls = Vec::new();
    for _ in 0..REFUSALS {
        // The same without the fault, for comparison.
        sound.push(longest(device, &save, &mut trip).context("without a fault")?);
    }
    let mut stays = false;
    for _ in 0..REFUSALS {
        let mut victim = Victim::start(1)?;
        let doorbell = victim.connected(model)?.first().context("its queue")?;
        let fault = json!({ "cmd": "fault", "kind": "ignore-preempt", "doorbell": doorbell });
        model.request(&fault)?;
        let stalled = longest(device, &save, &mut trip);
        model.request(&json!({ "cmd": "clear-faults" }))?;
        match stalled {
            Ok(time) => stalls.push(time),
            Err(e) => {
                // A result, not a failure of the measurement.
                anstream::eprintln!("  others do not go on: {e:#}");
                stays = true;
                break;
            }
        }
    }
    let time = if stays { Time::Never } else { median(stalls) };
    rows.push(Row::timed(
        "longest round trip, a queue is created",
        "no hang",
        median(sound),
    ));
    rows.push(Row::timed(
        "longest round trip, a queue is created",
        "another process's queue refuses",
        time,
    ));
    Ok(())
}

/// The longest round trip while a queue is created and has executed a packet.
fn longest(
    device: &Arc<Device>,
    save: &Arc<SaveBuffer>,
    trip: &mut Trip,
) -> anyhow::Result<Duration> {
    let stop = AtomicBool::new(false);
    let (created, longest) = std::thread::scope(|scope| {
        let trips = scope.spawn(|| {
            let mut times = Vec::new();
            loop {
                // The last one begins when the new queue has worked, so the queue is back.
                let last = stop.load(Ordering::Acquire);
                trip.series(1, &mut times)?;
                if last {
                    return anyhow::Ok(times.into_iter().max().unwrap_or_default());
                }
            }
        });
        let created = Worker::sharing(device, save).and_then(|worker| worker.effect(1));
        stop.store(true, Ordering::Release);
        let longest = trips.join();
        (created, longest)
    });
    created.context("creating a queue")?;
    longest.map_err(|_| anyhow!("the thread of the round trips panicked"))?
}
