// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What a torture run came to: tables and JSON.

use std::time::Duration;

use rkfd::native::QueueKind;
use serde::Serialize;
use tabled::Tabled;

use super::gpu::Engine;
use super::lane::Lane;
use super::tally::Kind;
use super::tally::Tally;
use crate::style;
use crate::table;

/// Operations of one kind.
#[derive(Debug, PartialEq, Serialize, Tabled)]
pub struct Row {
    /// Its name.
    pub operation: &'static str,
    /// How many were done.
    pub done: u64,
    /// How many the kernel refused, as it may.
    pub refused: u64,
}

/// One lane.
#[derive(Debug, Serialize, Tabled)]
pub struct LaneResult {
    /// How each GPU has its memory.
    pub mirrors: String,
    /// Type of its queues.
    pub queues: &'static str,
    /// Rounds.
    pub rounds: u64,
    /// Changes of memory that its mirrors met.
    pub changes: u64,
    /// Accesses for which memory was shown.
    pub faults: u64,
    /// The same for two runs that made the same choices.
    pub choices: String,
}

impl LaneResult {
    pub fn new(lane: &Lane<Engine>, kind: QueueKind) -> anyhow::Result<Self> {
        let (mut changes, mut faults) = (0, 0);
        for gpu in lane.gpus() {
            let figures = gpu.figures()?;
            changes += figures.changes;
            faults += figures.faults;
        }
        let ways: Vec<&str> = lane.gpus().iter().map(|gpu| gpu.way().title()).collect();
        Ok(Self {
            mirrors: ways.join("+"),
            queues: match kind {
                QueueKind::Pm4 => "PM4",
                QueueKind::Aql => "AQL",
                QueueKind::Sdma => "SDMA",
            },
            rounds: lane.rounds(),
            changes,
            faults,
            choices: format!("{:016x}", lane.choices()),
        })
    }
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct Outcome {
    pub seed: u64,
    pub seconds: f64,
    pub rounds: u64,
    pub operations: Vec<Row>,
    pub lanes: Vec<LaneResult>,
    pub left_out: Vec<&'static str>,
    pub retries: u64,
    pub compared_by_cpu: u64,
    pub compared_by_gpu: u64,
    pub moved_in: u64,
    pub moved_out: u64,
    pub errors: Vec<String>,
    pub ok: bool,
}

/// A line for each kind of operation; moves and hints have one where there were any.
fn rows(tally: &Tally) -> Vec<Row> {
    let tried = |kind: &&Kind| tally.done(**kind) + tally.refused(**kind) > 0;
    let wanted =
        |kind: &&Kind| !matches!(kind, Kind::MoveIn | Kind::MoveOut | Kind::Hint) || tried(kind);
    let row = |kind: &Kind| Row {
        operation: kind.title(),
        done: tally.done(*kind),
        refused: tally.refused(*kind),
    };
    Kind::ALL.iter().filter(wanted).map(row).collect()
}

/// Rows for a reader, the columns from `first` on aligned to the right.
fn table<T: Tabled>(rows: &[T], first: usize) -> String {
    table::plain(rows, first..T::LENGTH)
}

impl Outcome {
    pub fn new(
        seed: u64,
        time: Duration,
        tally: &Tally,
        lanes: Vec<LaneResult>,
        left_out: Vec<&'static str>,
        errors: Vec<String>,
    ) -> Self {
        let (compared_by_cpu, compared_by_gpu) = tally.verified();
        let (moved_in, moved_out) = tally.all_moved();
        Self {
            seed,
            seconds: time.as_secs_f64(),
            rounds: tally.rounds(),
            operations: rows(tally),
            lanes,
            left_out,
            retries: tally.retries(),
            compared_by_cpu,
            compared_by_gpu,
            moved_in,
            moved_out,
            ok: errors.is_empty(),
            errors,
        }
    }

    /// Writes it to standard output.
    pub fn show(&self, json: bool) -> anyhow::Result<()> {
        if json {
            println!("{}", serde_json::to_string(self)?);
            return Ok(());
        }
        anstream::println!("\n{}\n", table(&self.operations, 1));
        anstream::println!("{}\n", table(&self.lanes, 2));
        for error in &self.errors {
            anstream::println!("{}", style::bad(error));
        }
        let operations: u64 = self.operations.iter().map(|row| row.done).sum();
        let what = format!(
            "{} rounds, {operations} operations, {} calls made again, {} compared by the CPU and {} by GPUs, in {:.1} s",
            self.rounds,
            self.retries,
            style::bytes(self.compared_by_cpu),
            style::bytes(self.compared_by_gpu),
            self.seconds
        );
        if self.moved_in + self.moved_out > 0 {
            anstream::println!(
                "{} moved to VRAM and {} to system memory by calls\n",
                style::bytes(self.moved_in),
                style::bytes(self.moved_out)
            );
        }
        if self.ok {
            anstream::println!("{} no byte is lost or stale: {what}", style::good("ok:"));
        } else {
            anstream::println!("{} with seed {}: {what}", style::bad("failed"), self.seed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_line_for_each_kind() {
        let tally = Tally::new();
        tally.add(Kind::Fork, true);
        tally.add(Kind::Fork, true);
        tally.add(Kind::Collapse, false);
        let rows = rows(&tally);
        assert_eq!(rows.len(), 21);
        tally.add(Kind::MoveOut, true);
        assert_eq!(super::rows(&tally).len(), 22);
        let of = |name: &str| rows.iter().find(|row| row.operation == name).unwrap();
        assert_eq!((of("fork").done, of("fork").refused), (2, 0));
        assert_eq!(
            (of("MADV_COLLAPSE").done, of("MADV_COLLAPSE").refused),
            (0, 1)
        );
        let text = table(&rows, 1);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 22);
        assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    }
}
