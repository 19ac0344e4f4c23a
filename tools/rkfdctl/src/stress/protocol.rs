// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the workers of a stress run tell, one JSON object per line. Their standard input says when to begin, and when to
//! stop: one line each.

use rkfd::queue::QueueKind;
use serde::Deserialize;
use serde::Serialize;

/// A kind of queue, by the name it has in the output.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KindName {
    /// PM4 compute.
    Pm4,
    /// AQL compute.
    Aql,
    /// SDMA.
    Sdma,
}

impl KindName {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Pm4, Self::Aql, Self::Sdma];

    /// For a reader.
    pub fn title(self) -> &'static str {
        match self {
            Self::Pm4 => "PM4",
            Self::Aql => "AQL",
            Self::Sdma => "SDMA",
        }
    }
}

impl From<QueueKind> for KindName {
    fn from(kind: QueueKind) -> Self {
        match kind {
            QueueKind::Pm4 => Self::Pm4,
            QueueKind::Aql => Self::Aql,
            QueueKind::Sdma => Self::Sdma,
        }
    }
}

impl From<KindName> for QueueKind {
    fn from(kind: KindName) -> Self {
        match kind {
            KindName::Pm4 => Self::Pm4,
            KindName::Aql => Self::Aql,
            KindName::Sdma => Self::Sdma,
        }
    }
}

/// What became of one queue.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct QueueResult {
    /// What it executed.
    pub kind: KindName,
    /// Packets submitted.
    pub submitted: u64,
    /// Packets whose effects were found in memory, at the end.
    pub verified: u64,
    /// … when the time was up, before the queue was drained.
    pub in_time: u64,
    /// Longest time between two batches that were found, and before the first and after the last, while there was work:
    /// in milliseconds.
    pub longest_wait_ms: u64,
    /// The first thing that was wrong.
    pub error: Option<String>,
}

/// A line from a worker.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// Its queues exist.
    Ready {
        /// How many there are.
        queues: u64,
        /// SDMA queues that the device had no slot for.
        sdma_refused: u64,
    },
    /// Packets verified so far.
    Progress {
        /// Of all its queues.
        packets: u64,
        /// Batches of the slowest.
        least: u64,
    },
    /// It is done.
    Done {
        /// Every queue.
        queues: Vec<QueueResult>,
    },
    /// It cannot go on.
    Failed {
        /// Why.
        why: String,
    },
}
