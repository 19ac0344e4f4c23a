// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What a stress run found, as figures, a table and JSON.

use serde::Serialize;
use tabled::Tabled;

use super::protocol::KindName;
use super::protocol::QueueResult;
use crate::table;

/// The queues of one kind.
#[derive(Debug, PartialEq, Serialize, Tabled)]
pub struct Row {
    /// What they executed.
    #[tabled(rename = "type", display = "title")]
    pub kind: KindName,
    /// How many there were.
    pub queues: usize,
    /// Packets submitted.
    pub packets: u64,
    /// Packets whose effects were not found.
    pub lost: u64,
    /// Queues that finished nothing in the time.
    #[tabled(rename = "no progress")]
    pub no_progress: usize,
    /// Packets in time of the slowest queue.
    pub min: u64,
    /// … of the middle one.
    pub median: u64,
    /// … of the fastest.
    pub max: u64,
    /// Jain's index of the packets in time.
    #[tabled(rename = "fairness", display = "three_digits")]
    pub fairness: f64,
    /// Longest wait of the middle queue, in milliseconds.
    #[tabled(rename = "median wait", display = "milliseconds")]
    pub median_wait_ms: u64,
    /// … of the one that waited longest.
    #[tabled(rename = "longest wait", display = "milliseconds")]
    pub longest_wait_ms: u64,
}

fn title(kind: &KindName) -> String {
    kind.title().to_owned()
}

fn three_digits(value: &f64) -> String {
    format!("{value:.3}")
}

fn milliseconds(value: &u64) -> String {
    format!("{value}ms")
}

/// Jain's fairness index: 1 where all have the same, 1/n where one has all.
///
/// (Σx)² / (n Σx²), after R. Jain, D. Chiu, W. Hawe 1984; 0 where nobody has anything.
pub fn jain(values: &[u64]) -> f64 {
    // CAST: figures for a reader.
    let sum: f64 = values.iter().map(|&v| v as f64).sum();
    let squares: f64 = values.iter().map(|&v| v as f64 * v as f64).sum();
    if squares == 0.0 {
        0.0
    } else {
        sum * sum / (values.len() as f64 * squares)
    }
}

/// One row per kind that has queues.
pub fn rows(results: &[QueueResult]) -> Vec<Row> {
    KindName::ALL
        .into_iter()
        .filter_map(|kind| {
            let of_kind: Vec<&QueueResult> = results.iter().filter(|r| r.kind == kind).collect();
            let mut progress: Vec<u64> = of_kind.iter().map(|r| r.in_time).collect();
            progress.sort_unstable();
            let mut waits: Vec<u64> = of_kind.iter().map(|r| r.longest_wait_ms).collect();
            waits.sort_unstable();
            Some(Row {
                kind,
                queues: of_kind.len(),
                packets: of_kind.iter().map(|r| r.submitted).sum(),
                lost: of_kind
                    .iter()
                    .map(|r| r.submitted.saturating_sub(r.verified))
                    .sum(),
                no_progress: progress.iter().filter(|&&p| p == 0).count(),
                min: *progress.first()?,
                median: *progress.get(progress.len() / 2)?,
                max: *progress.last()?,
                fairness: jain(&progress),
                median_wait_ms: *waits.get(waits.len() / 2)?,
                longest_wait_ms: *waits.last()?,
            })
        })
        .collect()
}

/// The rows for a reader.
pub fn table(rows: &[Row]) -> String {
    table::plain(rows, 1..Row::LENGTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(kind: KindName, submitted: u64, verified: u64, in_time: u64) -> QueueResult {
        QueueResult {
            kind,
            submitted,
            verified,
            in_time,
            longest_wait_ms: 1000 - in_time,
            error: None,
        }
    }

    #[test]
    fn jain_knows_its_extremes() {
        assert_eq!(jain(&[7, 7, 7]), 1.0);
        assert_eq!(jain(&[8, 0, 0, 0]), 0.25);
        assert_eq!(jain(&[]), 0.0);
        assert_eq!(jain(&[0, 0]), 0.0);
        assert!((jain(&[1, 2, 3]) - 36.0 / 42.0).abs() < 1e-12);
    }

    #[test]
    fn rows_hold_losses_and_the_spread() {
        let found = rows(&[
            result(KindName::Aql, 9, 9, 6),
            result(KindName::Pm4, 40, 36, 20),
            result(KindName::Pm4, 8, 8, 0),
            result(KindName::Pm4, 16, 16, 12),
        ]);
        assert_eq!(found.len(), 2, "no SDMA queue, no row");
        let pm4 = &found[0];
        assert_eq!(
            (pm4.kind, pm4.queues, pm4.packets, pm4.lost, pm4.no_progress),
            (KindName::Pm4, 3, 64, 4, 1)
        );
        assert_eq!((pm4.min, pm4.median, pm4.max), (0, 12, 20));
        assert_eq!((pm4.median_wait_ms, pm4.longest_wait_ms), (988, 1000));
        assert_eq!((found[1].lost, found[1].fairness), (0, 1.0));
    }

    #[test]
    fn the_table_is_aligned_and_named() {
        let text = table(&rows(&[result(KindName::Sdma, 10, 10, 5)]));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0].split_whitespace().collect::<Vec<_>>(),
            [
                "type", "queues", "packets", "lost", "no", "progress", "min", "median", "max",
                "fairness", "median", "wait", "longest", "wait"
            ]
        );
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>(),
            ["SDMA", "1", "10", "0", "0", "5", "5", "5", "1.000", "995ms", "995ms"]
        );
        assert_eq!(lines[0].len(), lines[1].len());
    }
}
