// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What tasks cost, from GPUs and from the CPU.

use std::time::Instant;

use anyhow::bail;
use rkfd::code::arguments::Value;
use rkfd::tasks::layout::Priority;
use rkfd::tasks::layout::Shape;
use rkfd::tasks::ring::Task;
use rkfd::tasks::TaskError;
use serde::Serialize;
use tabled::Tabled;

use super::stage::mix;
use super::stage::settle;
use super::stage::Stage;
use super::stage::LIMIT;
use super::stage::MIX;
use super::stage::NOTE;
use super::stage::OK;
use super::stage::TRIES;
use crate::latency::Samples;
use crate::table;

/// Work-items that hand tasks over.
const ITEMS: usize = 64;

/// Who hands over.
#[derive(Debug, Serialize, Tabled)]
pub struct Row {
    #[tabled(rename = "from")]
    pub from: String,
    /// Tasks that have run, each once.
    pub tasks: u64,
    #[tabled(rename = "tasks/s", display = "whole")]
    pub tasks_per_second: f64,
    /// Round trips whose value was compared.
    #[tabled(rename = "round trips")]
    pub round_trips: u64,
    #[tabled(rename = "µs each", display = "tenths")]
    pub micros_median: f64,
}

fn whole(value: &f64) -> String {
    format!("{value:.0}")
}

fn tenths(value: &f64) -> String {
    format!("{value:.1}")
}

/// Hands so many tasks over in a row, and makes round trips, one after the other: the CPU to itself, then each GPU.
///
/// # Errors
/// A task is lost, or has another value.
pub fn measure(stage: &mut Stage, rounds: u64, tasks: u64) -> anyhow::Result<Vec<Row>> {
    let mut rows = vec![of_cpu(stage, rounds, tasks)?];
    for n in 0..stage.gpus.len() {
        rows.push(of_gpu(stage, n, rounds, tasks)?);
    }
    Ok(rows)
}

fn row(from: String, ran: u64, seconds: f64, mut trips: Vec<std::time::Duration>) -> Row {
    trips.sort();
    let round_trips = trips.len() as u64; // CAST: a length.
    Row {
        from,
        tasks: ran,
        tasks_per_second: ran as f64 / seconds.max(1e-9), // CAST: a figure for a reader.
        round_trips,
        micros_median: Samples::new(trips).percentile(50).as_secs_f64() * 1e6,
    }
}

fn of_cpu(stage: &mut Stage, rounds: u64, count: u64) -> anyhow::Result<Row> {
    let tasks = stage.tasks(Shape::default(), None)?;
    let began = Instant::now();
    for number in 0..count {
        let task = Task::new(NOTE, &[0, number, mix(0, number)]);
        while let Err(e) = tasks.post(&task, Priority::Low) {
            if e != TaskError::Refused(rkfd::tasks::ring::Refused::Full) {
                return Err(e.into());
            }
            std::thread::yield_now();
        }
    }
    let ran = stage.world.check_notes(&tasks, &[(0, count)])?;
    let seconds = began.elapsed().as_secs_f64();
    let mut trips = Vec::new();
    for n in 0..rounds {
        let began = Instant::now();
        let future = tasks.submit_as(&Task::new(MIX, &[n, 1]), Priority::High)?;
        let value = tasks.wait(future, LIMIT)?;
        trips.push(began.elapsed());
        if value != mix(n, 1) {
            bail!("wrong value of a task of the CPU");
        }
    }
    Ok(row("the CPU itself".into(), ran, seconds, trips))
}

fn of_gpu(stage: &mut Stage, n: usize, rounds: u64, count: u64) -> anyhow::Result<Row> {
    let tasks = stage.tasks(Shape::default(), None)?;
    let each = u32::try_from(count.div_ceil(ITEMS as u64))?; // CAST: a constant.
    let began = Instant::now();
    let gpu = &mut stage.gpus[n];
    let arguments = [
        Value::Address(tasks.address(n)),
        0u64.into(),
        each.into(),
        TRIES.into(),
        gpu.out(),
    ];
    gpu.run("notes", ITEMS, &arguments)?;
    let wanted: Vec<(u64, u64)> = (0..)
        .zip(gpu.dwords(ITEMS)?.into_iter().map(u64::from))
        .collect();
    let ran = stage.world.check_notes(&tasks, &wanted)?;
    let seconds = began.elapsed().as_secs_f64();
    if ran != u64::from(each) * ITEMS as u64 {
        // CAST: a constant.
        bail!("{ran} tasks of GPU {n} ran");
    }
    // A lone wave, as many trips in a launch; what a launch takes is not counted.
    let gpu = &mut stage.gpus[n];
    let mut launch = |rounds: u32| -> anyhow::Result<std::time::Duration> {
        let arguments = [
            Value::Address(tasks.address(n)),
            rounds.into(),
            TRIES.into(),
            gpu.out(),
        ];
        let began = Instant::now();
        gpu.run("ask", 1, &arguments)?;
        let took = began.elapsed();
        let wanted = (0..u64::from(rounds))
            .fold(0u64, |sum, n| sum.wrapping_mul(31).wrapping_add(mix(0, n)));
        if gpu.words(2)? != [wanted, OK] {
            bail!("wrong values of tasks of GPU {n}");
        }
        Ok(took)
    };
    let empty = launch(0)?;
    let mut trips = Vec::new();
    let mut left = rounds;
    while left > 0 {
        let rounds = u32::try_from(left.min(10))?;
        let took = launch(rounds)?.saturating_sub(empty) / rounds;
        trips.extend(std::iter::repeat_n(took, rounds as usize)); // CAST: a small number.
        left -= u64::from(rounds);
    }
    settle(&tasks)?;
    Ok(row(format!("GPU {n}"), ran, seconds, trips))
}

/// The rows, for a reader.
pub fn table(rows: &[Row]) -> String {
    table::plain(rows, 1..Row::LENGTH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_table_names_its_figures() {
        let trips = [3, 1, 2].map(Duration::from_micros).to_vec();
        let text = table(&[row("GPU 0".into(), 2000, 0.5, trips)]);
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(lines[0], "from tasks tasks/s round trips µs each");
        assert_eq!(lines[1], "GPU 0 2000 4000 3 2.0");
    }
}
