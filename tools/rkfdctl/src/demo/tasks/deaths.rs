// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Workers that die with a task in hand.

use anyhow::bail;
use rkfd::code::arguments::Value;
use rkfd::tasks::failure;
use rkfd::tasks::Death;
use rkfd::tasks::Tasks;

use super::super::heading;
use super::super::hsa::stage::same;
use super::row;
use super::stage::mix;
use super::stage::settle;
use super::stage::Stage;
use super::stage::FAILED;
use super::stage::OK;
use super::stage::TRIES;
use crate::style;

/// Has each worker die in that way, while waves of all GPUs ask. Returns how many tasks there were, and how many failed.
fn kill(stage: &mut Stage, tasks: &Tasks, death: Death) -> anyhow::Result<(u64, u64)> {
    let before = tasks.statistics().of_workers(|of| of.deaths);
    for worker in 0..stage.workers {
        tasks.kill(worker, death);
    }
    let (mut ran, mut failed) = (0, 0);
    while tasks.statistics().of_workers(|of| of.deaths) - before < stage.workers as u64 {
        // CAST: a small number.
        for (n, gpu) in stage.gpus.iter_mut().enumerate() {
            let arguments = [
                Value::Address(tasks.address(n)),
                1u32.into(),
                TRIES.into(),
                gpu.out(),
            ];
            gpu.start("ask", 64, &arguments)?;
        }
        for gpu in &stage.gpus {
            gpu.finish()?;
            for (item, found) in (0u64..).zip(gpu.words(128)?.chunks(2)) {
                ran += 1;
                match found[1] {
                    OK => same("value", found[0], mix(item, 0))?,
                    FAILED => {
                        same("reason", found[0], failure::WORKER)?;
                        failed += 1;
                    }
                    other => bail!("answer {other} to a work-item whose worker died"),
                }
            }
        }
    }
    settle(tasks)?;
    Ok((ran, failed))
}

pub fn tell(stage: &mut Stage) -> anyhow::Result<()> {
    heading("Death of workers: a task that has begun fails, another one runs all the same");
    let tasks = stage.tasks(stage.shape, None)?;
    let workers = stage.workers as u64; // CAST: a small number.
    for (death, when, wanted) in [
        (Death::Taken, "a task just taken", 0),
        (Death::Noted, "a task in hand", 0),
        (Death::Begun, "a task begun", workers),
    ] {
        let (ran, failed) = kill(stage, &tasks, death)?;
        same("number of tasks that failed", failed, wanted)?;
        row(
            when,
            format!(
                "{workers} workers died: {} of {ran} tasks {}, {failed} failed",
                ran - failed,
                style::good("ran once")
            ),
        );
    }
    let after = tasks.statistics();
    same(
        "number of deaths",
        after.of_workers(|of| of.deaths),
        3 * workers,
    )?;
    same(
        "number of tasks run again",
        after.of_workers(|of| of.recovered),
        2 * workers,
    )?;
    same(
        "number of tasks lost",
        after.of_workers(|of| of.lost),
        workers,
    )
}
