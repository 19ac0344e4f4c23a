// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Doorbells that no connected queue listens to: harmless, but told apart and counted.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::cp::mqd::MEC;
use crate::cp::pm4::{length, op};
use crate::device::Gpu;

/// Stray doorbells remembered one by one; the counters go on beyond.
const MAX: usize = 1024;

/// What a stray doorbell means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Its queue is known and waits for a slot; the write pointer is read from memory when it gets one.
    Unmapped,
    /// No queue that the device knows has it.
    Foreign,
    /// Not four or eight aligned bytes.
    Malformed,
}

/// One stray doorbell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Stray {
    /// What it means, at its last write.
    pub kind: Kind,
    /// Writes.
    pub count: u64,
    /// The last value.
    pub value: u64,
    /// PASID of the queue, 0 if there is none.
    pub pasid: u16,
    /// When, in nanoseconds of the device's clock.
    pub t_ns: u64,
}

/// Knowledge about doorbells.
#[derive(Debug, Default)]
pub struct Strays {
    /// Doorbells (dword index) that belong to queues, with their PASIDs.
    known: HashMap<u32, u16>,
    seen: BTreeMap<u64, Stray>,
}

impl Strays {
    /// A new run list: only its queues, and those that are connected, are known from now on.
    pub fn begin_list(&mut self, connected: impl Iterator<Item = (u32, u16)>) {
        self.known = connected.collect();
    }

    /// A doorbell (dword index) belongs to a queue.
    pub fn learn(&mut self, doorbell: u32, pasid: u16) {
        self.known.insert(doorbell, pasid);
    }

    /// Books a write that nobody listened to, at a byte offset of BAR2.
    pub fn note(&mut self, byte: u64, value: u64, malformed: bool, t_ns: u64) -> Stray {
        let owner = u32::try_from(byte / 4)
            .ok()
            .and_then(|d| self.known.get(&d).copied());
        let kind = match owner {
            _ if malformed => Kind::Malformed,
            Some(_) => Kind::Unmapped,
            None => Kind::Foreign,
        };
        let mut stray = Stray {
            kind,
            count: 1,
            value,
            pasid: owner.unwrap_or(0),
            t_ns,
        };
        let room = self.seen.len() < MAX;
        match self.seen.get_mut(&byte) {
            Some(old) => {
                stray.count += old.count;
                *old = stray;
            }
            None if room => {
                self.seen.insert(byte, stray);
            }
            None => {}
        }
        stray
    }

    /// Stray doorbells by byte offset.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Stray)> {
        self.seen.iter().map(|(b, s)| (*b, s))
    }
}

impl Gpu {
    /// Notes which doorbells belong to queues of a run list (GPU address, dwords), connected or not.
    pub fn learn_doorbells(&mut self, base: u64, size: u32) {
        let connected: Vec<_> = self
            .hws
            .mapped
            .iter()
            .map(|m| (m.doorbell, m.pasid))
            .collect();
        self.strays.begin_list(connected.into_iter());
        let mut words = vec![0; size as usize];
        // What cannot be read is reported by the walk that follows, not here.
        let end = base + words.len() as u64 * 4;
        let mut pages = (base..end).step_by(4096).chain([end - 4]);
        if pages.any(|at| self.peek_u32(MEC, at).is_none())
            || self.vm_read_dwords(MEC, base, &mut words).is_err()
        {
            return;
        }
        let (mut pos, mut pasid) = (0usize, 0u16);
        while let Some(&header) = words.get(pos) {
            let dw = |i: usize| words.get(pos + i).copied().unwrap_or(0);
            match (header >> 30, ((header >> 8) & 0xFF) as u8) {
                (3, op::MAP_PROCESS) => pasid = dw(1) as u16,
                (3, op::MAP_QUEUES) => self.strays.learn((dw(2) & 0x0FFF_FFFC) >> 2, pasid),
                _ => {}
            }
            pos += length(header) as usize;
        }
    }
}
