// SPDX-License-Identifier: GPL-2.0 OR MIT
//! How a queue is made.

use std::time::Duration;

use crate::sys::PAGE;

/// What a queue executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// PM4 packets on a compute pipe.
    Pm4,
    /// AQL packets on a compute pipe.
    Aql,
    /// SDMA packets on a copy engine.
    Sdma,
}

/// How to create a queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// What it executes.
    pub kind: QueueKind,
    /// Ring size in bytes: a power of two, at least one page.
    pub ring_bytes: usize,
    /// 0 (stopped) to 100.
    pub percentage: u32,
    /// 0 to 15; 7 is ordinary.
    pub priority: u32,
    /// The copy engine of an SDMA queue; the kernel chooses where `None`.
    pub engine: Option<u32>,
    /// How long an AQL packet waits for room, where the caller names no limit.
    pub full_limit: Duration,
}

impl QueueOptions {
    /// An ordinary queue with a ring of 4 KiB (compute) or 64 KiB (SDMA).
    pub fn new(kind: QueueKind) -> Self {
        let ring_bytes = if kind == QueueKind::Sdma {
            0x10000
        } else {
            PAGE
        };
        Self {
            kind,
            ring_bytes,
            percentage: 100,
            priority: 7,
            engine: None,
            full_limit: Duration::from_secs(30),
        }
    }
}
