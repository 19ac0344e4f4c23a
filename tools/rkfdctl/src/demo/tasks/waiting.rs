// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Futures: waves wait for them or go on; tasks that follow others; workers that sleep; tasks that are none.

use std::thread;
use std::time::Duration;

use anyhow::bail;
use rkfd::backoff::wait_until;
use rkfd::code::arguments::Value;
use rkfd::tasks::failure;
use rkfd::tasks::ring::Task;
use rkfd::tasks::statistics::Snapshot;
use rkfd::tasks::statistics::WorkerCounters;
use rkfd::tasks::Tasks;

use super::super::heading;
use super::super::hsa::stage::same;
use super::row;
use super::stage::mix;
use super::stage::settle;
use super::stage::Stage;
use super::stage::FAILED;
use super::stage::LIMIT;
use super::stage::MIX;
use super::stage::OK;
use super::stage::TRIES;
use super::Options;
use crate::style;

/// `RKFD_TASK_TOO_LONG`.
const TOO_LONG: u64 = 3;
/// How often it is tried to see a worker woken that wakes by itself at the same moment.
const ATTEMPTS: usize = 5;
/// How long workers are left alone to show that they sleep.
const REST: Duration = Duration::from_millis(100);

/// Waves ask on all GPUs at once, and each value is compared.
pub fn ask(
    stage: &mut Stage,
    tasks: &Tasks,
    kernel: &str,
    items: usize,
    rounds: u32,
) -> anyhow::Result<u64> {
    for (n, gpu) in stage.gpus.iter_mut().enumerate() {
        let arguments = [
            Value::Address(tasks.address(n)),
            rounds.into(),
            TRIES.into(),
            gpu.out(),
        ];
        gpu.start(kernel, items, &arguments)?;
    }
    for gpu in &stage.gpus {
        gpu.finish()?;
        let words = gpu.words(2 * items)?;
        for (item, found) in (0u64..).zip(words.chunks(2)) {
            let wanted = (0..u64::from(rounds)).fold(0u64, |sum, n| {
                sum.wrapping_mul(31).wrapping_add(mix(item, n))
            });
            same(&format!("answer to work-item {item}"), found[1], OK)?;
            same(&format!("value of work-item {item}"), found[0], wanted)?;
        }
    }
    settle(tasks)?;
    let asked = stage.gpus.len() * items;
    Ok(asked as u64 * u64::from(rounds)) // CAST: a small number.
}

pub fn tell(stage: &mut Stage, options: &Options) -> anyhow::Result<()> {
    heading("Futures: a wave waits, or goes on");
    let tasks = stage.tasks(stage.shape, None)?;
    let items = options.items();
    let values = ask(stage, &tasks, "ask", items, 4)?;
    row(
        "waves that wait",
        format!("{values} values {}", style::good("correct")),
    );
    let values = ask(stage, &tasks, "ask_cl", 64, 2)?;
    row(
        "from OpenCL C",
        format!("{values} values {}", style::good("correct")),
    );
    go_on(stage, &tasks, items)?;
    branches(stage, &tasks)?;
    let in_use: u32 = tasks
        .statistics()
        .areas
        .iter()
        .map(|area| area.futures)
        .sum();
    same("number of futures in use", in_use, 0)?;
    heading("Workers: they sleep without work, and are woken by an interrupt");
    sleep(stage, &tasks)?;
    heading("What kernels should not do is seen, and harms nobody");
    wrong(stage, &tasks)
}

fn go_on(stage: &mut Stage, tasks: &Tasks, items: usize) -> anyhow::Result<()> {
    let work = 50u32;
    for (n, gpu) in stage.gpus.iter_mut().enumerate() {
        let arguments = [
            Value::Address(tasks.address(n)),
            work.into(),
            TRIES.into(),
            gpu.out(),
        ];
        gpu.run("go_on", items, &arguments)?;
        let words = gpu.words(3 * items)?;
        for (item, found) in (0u64..).zip(words.chunks(3)) {
            let own = (0..u64::from(work)).fold(item, mix);
            same(&format!("answer to work-item {item}"), found[2], OK)?;
            same(&format!("work of work-item {item}"), found[0], own)?;
            let wanted = mix(item, 7).wrapping_mul(2);
            same(&format!("value of work-item {item}"), found[1], wanted)?;
        }
    }
    row(
        "waves that go on",
        format!(
            "{} values of tasks that follow others {}",
            items * stage.gpus.len(),
            style::good("correct")
        ),
    );
    Ok(())
}

/// Work-items of a wave that take different ways, as `branches` does.
fn branches(stage: &mut Stage, tasks: &Tasks) -> anyhow::Result<()> {
    let items = 128;
    let first = 1 << 48;
    let mut wanted_notes = Vec::new();
    for (n, gpu) in stage.gpus.iter_mut().enumerate() {
        let first = first * (n as u64 + 1); // CAST: a small number.
        let arguments = [
            Value::Address(tasks.address(n)),
            first.into(),
            TRIES.into(),
            gpu.out(),
        ];
        gpu.run("branches", items, &arguments)?;
        let words = gpu.words(2 * items)?;
        for (i, found) in (0u64..).zip(words.chunks(2)) {
            let mut sum = 0u64;
            for n in 0..1 + i % 5 {
                let value = match (i + n) % 4 {
                    0 => {
                        wanted_notes.push((first + i, n));
                        0
                    }
                    1 => mix(i, n),
                    2 => mix(i, n).wrapping_mul(2),
                    _ => mix(n, i).wrapping_add(mix(i, n)),
                };
                sum = sum.wrapping_add(value);
            }
            same(&format!("answer to work-item {i}"), found[1], OK)?;
            same(&format!("sum of work-item {i}"), found[0], sum)?;
        }
    }
    stage.world.check_each(tasks, &wanted_notes)?;
    row(
        "waves that diverge",
        format!(
            "{} work-items, each its own way: values and tasks {}",
            items * stage.gpus.len(),
            style::good("correct")
        ),
    );
    Ok(())
}

fn awake(of: &WorkerCounters) -> u64 {
    of.wakes + of.looks
}

/// The counters when all workers sleep and have done so for a while, in which nobody has looked for tasks.
fn asleep(stage: &Stage, tasks: &Tasks) -> anyhow::Result<Snapshot> {
    let workers = stage.workers as u64; // CAST: a small number.
    let mut found = Snapshot::default();
    wait_until("the workers to sleep", LIMIT, || {
        let now = tasks.statistics();
        let asleep = now.of_workers(|of| of.sleeps) - now.of_workers(awake);
        if asleep != workers {
            return Ok((false, asleep));
        }
        let before = tasks.statistics();
        thread::sleep(REST);
        found = tasks.statistics();
        // One may have woken by itself meanwhile.
        Ok((
            before.of_workers(awake) == found.of_workers(awake) && before == found,
            asleep,
        ))
    })?;
    Ok(found)
}

fn sleep(stage: &mut Stage, tasks: &Tasks) -> anyhow::Result<()> {
    let before = asleep(stage, tasks)?;
    row(
        "without work",
        format!(
            "{} workers asleep: 0 looks at the rings in {} ms",
            stage.workers,
            REST.as_millis()
        ),
    );
    for n in 0..stage.gpus.len() {
        let mut woken = false;
        for _ in 0..ATTEMPTS {
            let before = asleep(stage, tasks)?;
            let gpu = &mut stage.gpus[n];
            let arguments = [
                Value::Address(tasks.address(n)),
                1u32.into(),
                TRIES.into(),
                gpu.out(),
            ];
            gpu.run("ask", 1, &arguments)?;
            let found = gpu.words(1)?[0];
            same("value of the wave that woke them", found, mix(0, 0))?;
            let after = tasks.statistics();
            woken = after.of_workers(|of| of.wakes) > before.of_workers(|of| of.wakes);
            // One that has woken by itself just then takes the task without an interrupt.
            if woken || after.of_workers(|of| of.looks) == before.of_workers(|of| of.looks) {
                break;
            }
        }
        if !woken {
            bail!("a worker ran the task of GPU {n}, but no interrupt has woken it");
        }
    }
    let values = tasks.submit(&Task::new(MIX, &[3, 4]))?;
    same(
        "value of the CPU's task",
        tasks.wait(values, LIMIT)?,
        mix(3, 4),
    )?;
    let after = tasks.statistics();
    row(
        "a wave's task",
        format!(
            "an interrupt {} its workers: {} times in all, {} by themselves",
            style::good("woke"),
            after.of_workers(|of| of.wakes) - before.of_workers(|of| of.wakes),
            after.of_workers(|of| of.looks) - before.of_workers(|of| of.looks)
        ),
    );
    Ok(())
}

fn wrong(stage: &mut Stage, tasks: &Tasks) -> anyhow::Result<()> {
    for n in 0..stage.gpus.len() {
        settle(tasks)?;
        let before = tasks.statistics().areas[n];
        let gpu = &mut stage.gpus[n];
        let arguments = [Value::Address(tasks.address(n)), TRIES.into(), gpu.out()];
        gpu.run("wrong", 1, &arguments)?;
        let wanted = [
            OK,
            FAILED,
            failure::FUNCTION,
            OK,
            FAILED,
            failure::BYTES,
            TOO_LONG,
        ];
        for (what, (found, wanted)) in gpu.words(wanted.len())?.into_iter().zip(wanted).enumerate()
        {
            same(&format!("answer {what} to wrong tasks"), found, wanted)?;
        }
        // The made-up task and slot are seen by the workers at their next look.
        let seen = |tasks: &Tasks| {
            let now = tasks.statistics().areas[n];
            (
                now.rejected - before.rejected,
                now.late - before.late,
                now.corrupt - before.corrupt,
            )
        };
        wait_until("workers to see what is wrong", LIMIT, || {
            // They look when there is work.
            let future = tasks.submit(&Task::new(MIX, &[0, 0])).ok();
            if let Some(future) = future {
                let _ = tasks.wait(future, LIMIT);
            }
            let (rejected, late, corrupt) = seen(tasks);
            Ok((rejected >= 3 && late >= 1 && corrupt >= 1, rejected))
        })?;
        same(
            "what was seen",
            format!("{:?}", seen(tasks)),
            "(3, 1, 1)".into(),
        )?;
    }
    let values = ask(stage, tasks, "ask", 64, 1)?;
    row(
        "wrong tasks",
        "no such function, wrong length, made-up future, state of a slot: each refused",
    );
    row(
        "afterwards",
        format!("{values} values {}", style::good("correct")),
    );
    Ok(())
}
