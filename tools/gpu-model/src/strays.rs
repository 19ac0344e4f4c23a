// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Doorbells that no connected queue listens to: harmless, but told apart and counted.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::cp::mqd::MEC;
use crate::cp::pm4::{length, op};
use crate::device::Gpu;
use crate::vm::access::Reach;
use crate::vm::Access;

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

    /// Stray doorbells by byte offset, from this one on, at most `most`.
    pub fn copy(&self, from: u64, most: usize) -> Vec<(u64, Stray)> {
        let later = self.seen.range(from..).take(most);
        later.map(|(byte, stray)| (*byte, *stray)).collect()
    }
}

/// Dwords of a run list that are read at once.
const PIECE: u32 = 4096;
/// Dwords of MAP_PROCESS and MAP_QUEUES that are looked at.
const NAMES: u32 = 3;

/// Where the reading of a run list stands that learns its doorbells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    pos: u32,
    pasid: u16,
}

/// How far the reading of a run list has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learned {
    /// To its end, or to where it cannot be read.
    All,
    /// There is more to read.
    Piece,
    /// What follows lies on the bus, and bus mastering is off.
    Blocked,
}

impl Gpu {
    /// Begins to learn the doorbells of a run list; those of connected queues stay known.
    pub fn begin_learning(&mut self) {
        let connected: Vec<_> = self
            .hws
            .mapped()
            .iter()
            .map(|m| (m.doorbell, m.pasid))
            .collect();
        self.soc.strays.begin_list(connected.into_iter());
    }

    /// Learns from a piece of a run list of `size` dwords.
    pub fn learn_doorbells(&mut self, base: u64, size: u32, at: &mut Reading) -> Learned {
        let left = size.saturating_sub(at.pos);
        let mut words = vec![0; left.min(PIECE) as usize];
        let first = base.wrapping_add(u64::from(at.pos) * 4);
        // What cannot be read is reported by the walk that follows, not here.
        let reach = self.soc.vm_reach(MEC, first, words.len() * 4, Access::Read);
        if reach == Reach::Blocked {
            self.soc.log.stats.dma_blocked += 1;
            return Learned::Blocked;
        }
        if reach == Reach::Missing || self.soc.vm_read_dwords(MEC, first, &mut words).is_err() {
            return Learned::All;
        }
        let mut pos = 0u32;
        while let Some(&header) = words.get(pos as usize) {
            if pos + NAMES > PIECE && left > PIECE {
                break;
            }
            let dw = |i: usize| words.get(pos as usize + i).copied().unwrap_or(0);
            match (header >> 30, ((header >> 8) & 0xFF) as u8) {
                (3, op::MAP_PROCESS) => at.pasid = dw(1) as u16,
                (3, op::MAP_QUEUES) => self.soc.strays.learn((dw(2) & 0x0FFF_FFFC) >> 2, at.pasid),
                _ => {}
            }
            pos += length(header) as u32;
        }
        at.pos += pos;
        if at.pos >= size {
            Learned::All
        } else {
            Learned::Piece
        }
    }
}
