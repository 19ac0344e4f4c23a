// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Tasks come as they were handed over, each once; a full ring says so.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::anyhow;
use anyhow::bail;
use rkfd::code::arguments::Value;
use rkfd::tasks::layout::Priority;
use rkfd::tasks::layout::Shape;
use rkfd::tasks::ring::Task;
use rkfd::tasks::TaskError;
use rkfd::tasks::Tasks;

use super::super::heading;
use super::row;
use super::stage::mix;
use super::stage::Stage;
use super::stage::NOTE;
use super::stage::TRIES;
use super::Options;
use crate::style;

/// Threads of the CPU that hand tasks over, too.
const THREADS: u64 = 2;

/// The number of a GPU's first work-item among producers.
fn first_of(gpu: usize) -> u64 {
    (gpu as u64 + 1) << 32 // CAST: a small number.
}

/// Starts kernels that hand notes over on all GPUs.
pub fn start(
    stage: &mut Stage,
    tasks: &Tasks,
    items: usize,
    count: u32,
    tries: u32,
) -> anyhow::Result<()> {
    for (n, gpu) in stage.gpus.iter_mut().enumerate() {
        let arguments = [
            Value::Address(tasks.address(n)),
            first_of(n).into(),
            count.into(),
            tries.into(),
            gpu.out(),
        ];
        gpu.start("notes", items, &arguments)?;
    }
    Ok(())
}

/// Waits for them. Returns what each work-item has handed over.
pub fn finish(stage: &Stage, items: usize) -> anyhow::Result<Vec<(u64, u64)>> {
    let mut wanted = Vec::new();
    for (n, gpu) in stage.gpus.iter().enumerate() {
        gpu.finish()?;
        let handed = gpu.dwords(items)?;
        wanted.extend((first_of(n)..).zip(handed.into_iter().map(u64::from)));
    }
    Ok(wanted)
}

/// Hands notes of a producer over.
fn produce(tasks: &Tasks, producer: u64, count: u64) -> anyhow::Result<()> {
    for number in 0..count {
        let task = Task::new(NOTE, &[producer, number, mix(producer, number)]);
        let priority = Priority::ALL[(number % 2) as usize]; // CAST: 0 or 1.
        loop {
            match tasks.post(&task, priority) {
                Ok(()) => break,
                Err(TaskError::Refused(rkfd::tasks::ring::Refused::Full)) => thread::yield_now(),
                Err(e) => return Err(e.into()),
            }
        }
    }
    Ok(())
}

pub fn tell(stage: &mut Stage, options: &Options) -> anyhow::Result<()> {
    heading("Handing over: each task runs once, with the arguments that it had");
    let items = options.items();
    let count = u32::from(options.tasks);
    let tasks = stage.tasks(stage.shape, None)?;
    start(stage, &tasks, items, count, TRIES)?;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|producer| {
                let tasks = &tasks;
                scope.spawn(move || produce(tasks, producer, count.into()))
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a producer panicked"))?)
    })?;
    let mut wanted = finish(stage, items)?;
    if wanted.iter().any(|(_, handed)| *handed != u64::from(count)) {
        bail!("a work-item found no room, though it may wait: {wanted:?}");
    }
    wanted.extend((0..THREADS).map(|producer| (producer, count.into())));
    if options.expect_wrong {
        wanted.push((77, 1));
        // It never comes; so it is not waited for.
        stage
            .world
            .check_notes(&tasks, &wanted[..wanted.len() - 1])?;
        bail!("task 0 of producer 77 was lost");
    }
    let ran = stage.world.check_notes(&tasks, &wanted)?;
    row(
        "several producers",
        format!(
            "{ran} tasks of {} work-items on {} GPUs and {THREADS} threads: {}",
            items * stage.gpus.len(),
            stage.gpus.len(),
            style::good("each ran once")
        ),
    );
    drop(tasks);
    pressure(stage)
}

/// Rings that are too small, and workers that take nothing until all producers have been told so.
fn pressure(stage: &mut Stage) -> anyhow::Result<()> {
    let shape = Shape {
        lanes: 1,
        depth: 4,
        segment: 64,
        futures: 0,
    };
    let (items, count) = (64, 3);
    let tasks = stage.tasks(shape, None)?;
    stage.world.close(true);
    let done = start(stage, &tasks, items, count, 1).and_then(|()| finish(stage, items));
    stage.world.close(false);
    let wanted = done?;
    for (n, of) in wanted.chunks(items).enumerate() {
        let handed: u64 = of.iter().map(|(_, handed)| handed).sum();
        let gave_up = of
            .iter()
            .filter(|(_, handed)| *handed < u64::from(count))
            .count();
        let refused = tasks.statistics().areas[n].refused;
        // Two rings, and a task in the hand of each worker.
        let most = 2 * u64::from(shape.depth) + stage.workers as u64; // CAST: a small number.
        if handed < u64::from(shape.depth) || handed > most || gave_up == 0 {
            bail!("{handed} tasks found room where there is room for 4 to {most}");
        }
        if refused != gave_up as u64 {
            // CAST: a small number.
            bail!("{gave_up} work-items found no room, and {refused} were counted");
        }
    }
    let ran = stage.world.check_notes(&tasks, &wanted)?;
    row(
        "full rings",
        format!(
            "{ran} of {} tasks found room in rings of {}: {}, the others were told so",
            wanted.len() as u64 * u64::from(count), // CAST: a small number.
            shape.depth,
            style::good("each of them ran once")
        ),
    );
    Ok(())
}

/// Hands tasks over for some time.
pub fn hold(stage: &mut Stage, time: Duration) -> anyhow::Result<()> {
    let tasks = stage.tasks(stage.shape, None)?;
    let end = Instant::now() + time;
    row("holding", "rkfdctl tasks shows it");
    let mut rounds = 0;
    while Instant::now() < end {
        start(stage, &tasks, 64, 4, TRIES)?;
        let wanted = finish(stage, 64)?;
        stage.world.check_notes(&tasks, &wanted)?;
        rounds += 1;
    }
    row("held", format!("{rounds} rounds"));
    Ok(())
}

/// Hands tasks over until it is told to stop. Returns how many, all of which have run once.
pub fn until(stage: &mut Stage, tasks: &Tasks, stop: &AtomicBool) -> anyhow::Result<u64> {
    let mut ran = 0;
    loop {
        start(stage, tasks, 64, 4, TRIES)?;
        let wanted = finish(stage, 64)?;
        ran += stage.world.check_notes(tasks, &wanted)?;
        if stop.load(Ordering::Acquire) {
            return Ok(ran);
        }
    }
}
