// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Where everything of an area lies, as `include/rkfd_tasks.h` has it for kernels.
//!
//! An area is a header, a pair of indices for each ring, the slots of all rings, and the cells of futures. Offsets are from
//! its start, so that it may lie at any address. A test compares the numbers with those of the header for kernels.

use crate::error::Error;
use crate::error::Result;

/// What an area begins with.
pub const MAGIC: u32 = 0x6b73_6174;
/// Version of the layout.
pub const VERSION: u32 = 1;
/// Bytes of a line: what different sides write lies in different ones.
pub const LINE: usize = 128;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 512;
/// Bytes of the indices of a ring.
pub const RING_BYTES: usize = 256;
/// Bytes of a future's cell.
pub const CELL_BYTES: usize = 64;
/// Bytes of a slot in front of its arguments.
pub const SLOT_HEAD: usize = 32;

/// Offsets of words in the header.
pub mod header {
    /// Magic and version.
    pub const MAGIC: usize = 0;
    /// Lanes and depth.
    pub const LANES: usize = 8;
    /// Bytes of a slot, and number of cells.
    pub const SEGMENT: usize = 16;
    /// Id of the workers' event, and number of the area.
    pub const EVENT: usize = 24;
    /// Address of the event's slot.
    pub const MAILBOX: usize = 32;
    /// Offset of the rings.
    pub const RINGS: usize = 40;
    /// Offset of the slots.
    pub const SLOTS: usize = 48;
    /// Offset of the cells.
    pub const CELLS: usize = 56;
    /// Bytes of the area.
    pub const BYTES: usize = 64;
    /// Not 0: workers sleep.
    pub const SLEEPING: usize = 128;
    /// Whether tasks are taken: [`super::closed`].
    pub const CLOSED: usize = 256;
    /// Calls of kernels that found no room.
    pub const REFUSED: usize = 384;
}

/// What the word `closed` says.
pub mod closed {
    /// Tasks are taken.
    pub const OPEN: u64 = 0;
    /// No new ones are.
    pub const CLOSING: u64 = 1;
    /// Nobody runs tasks any more.
    pub const ENDED: u64 = 2;
}

/// Offsets of a ring's indices.
pub mod ring {
    /// Next position to be taken by a producer.
    pub const TAIL: usize = 0;
    /// No position before it has a task that nobody took.
    pub const HEAD: usize = 128;
}

/// Offsets of a slot's words.
pub mod slot {
    /// State.
    pub const STATE: usize = 0;
    /// Function, and bytes of the arguments above.
    pub const FUNCTION: usize = 8;
    /// Future, or 0.
    pub const FUTURE: usize = 16;
    /// Function that follows, and what the producer calls itself above.
    pub const THEN: usize = 24;
}

/// Offsets of a cell's words.
pub mod cell {
    /// State.
    pub const STATE: usize = 0;
    /// Value.
    pub const VALUE: usize = 8;
}

/// Phases of a slot.
pub mod phase {
    /// A producer may take it.
    pub const FREE: u64 = 0;
    /// It has a task.
    pub const READY: u64 = 1;
    /// A worker has the task, which it copies.
    pub const TAKEN: u64 = 2;
}

/// Phases of a cell.
pub mod future {
    /// Nobody's.
    pub const FREE: u32 = 0;
    /// The task has not ended.
    pub const WAITING: u32 = 1;
    /// It has, with a value.
    pub const DONE: u32 = 2;
    /// It failed, for a reason.
    pub const FAILED: u32 = 3;
    /// It has not ended, and nobody waits.
    pub const DROPPED: u32 = 4;
}

/// Shift of the position in a slot's state.
pub const POSITION_SHIFT: u32 = 16;
/// Shift of the worker in it.
pub const WORKER_SHIFT: u32 = 8;
/// Workers that a state can name.
pub const MOST_WORKERS: usize = 256;

/// Priorities, each with rings of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Taken first.
    High,
    /// Taken when there is nothing of the other, and now and then in any case.
    #[default]
    Low,
}

impl Priority {
    /// Both.
    pub const ALL: [Self; 2] = [Self::High, Self::Low];

    /// Its number.
    pub fn index(self) -> usize {
        match self {
            Self::High => 0,
            Self::Low => 1,
        }
    }
}

/// How large an area is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rings of each priority: a power of two up to 64.
    pub lanes: u32,
    /// Slots of a ring: a power of two from 2 to 65536.
    pub depth: u32,
    /// Bytes of a slot, [`SLOT_HEAD`] and the arguments: a multiple of 64 up to 4096.
    pub segment: u32,
    /// Futures that can be in use at the same time: a power of two up to 2²⁰, or 0 for none.
    pub futures: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            lanes: 4,
            depth: 256,
            segment: 256,
            futures: 4096,
        }
    }
}

impl Shape {
    /// Checks it.
    ///
    /// # Errors
    /// [`Error::Argument`], which says what it may be.
    pub fn check(&self) -> Result<()> {
        let power = |n: u32, least: u32, most: u32| n.is_power_of_two() && n >= least && n <= most;
        if !power(self.lanes, 1, 64) {
            return Err(Error::Argument("Lanes are a power of two from 1 to 64"));
        }
        if !power(self.depth, 2, 65536) {
            return Err(Error::Argument(
                "The depth of a ring is a power of two from 2 to 65536",
            ));
        }
        if self.segment == 0 || self.segment % 64 != 0 || self.segment > 4096 {
            return Err(Error::Argument(
                "A slot's bytes are a multiple of 64 up to 4096",
            ));
        }
        if self.futures != 0 && !power(self.futures, 1, 1 << 20) {
            return Err(Error::Argument(
                "Futures are a power of two up to 1048576, or none",
            ));
        }
        Ok(())
    }

    /// Rings of both priorities.
    pub fn rings(&self) -> usize {
        self.lanes as usize * Priority::ALL.len() // CAST: a small number.
    }

    /// The ring of a lane and priority. Lanes beyond the last count from the first again.
    pub fn ring(&self, lane: u32, priority: Priority) -> usize {
        // CAST: a small number.
        (lane & (self.lanes - 1)) as usize * Priority::ALL.len() + priority.index()
    }

    /// Bytes of arguments that a slot has room for.
    pub fn arguments(&self) -> usize {
        self.segment as usize - SLOT_HEAD // CAST: a small number; `check` wants more than the head.
    }

    /// Offset of the slots.
    pub(super) fn slots_at(&self) -> usize {
        HEADER_BYTES + self.rings() * RING_BYTES
    }

    /// Offset of the cells.
    pub(super) fn cells_at(&self) -> usize {
        // CAST: bounded by `check`.
        self.slots_at() + self.rings() * self.depth as usize * self.segment as usize
    }

    /// Bytes of the area.
    pub fn bytes(&self) -> usize {
        self.cells_at() + self.futures as usize * CELL_BYTES // CAST: bounded by `check`.
    }

    /// Offset of a ring's indices.
    pub(super) fn ring_at(&self, ring: usize) -> usize {
        HEADER_BYTES + ring * RING_BYTES
    }

    /// Offset of the slot of a position.
    pub(super) fn slot_at(&self, ring: usize, position: u64) -> usize {
        let index = (position & u64::from(self.depth - 1)) as usize; // CAST: below the depth.
        self.slots_at() + (ring * self.depth as usize + index) * self.segment as usize
    }

    /// Offset of a cell.
    pub(super) fn cell_at(&self, index: u32) -> usize {
        self.cells_at() + index as usize * CELL_BYTES // CAST: bounded by `check`.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The macros of the header for kernels that are numbers.
    fn numbers() -> BTreeMap<String, u64> {
        let text = include_str!("../../include/rkfd_tasks.h");
        let number = |word: &str| {
            let word = word.trim_end_matches('u');
            match word.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok(),
                None => word.parse().ok(),
            }
        };
        let mut found = BTreeMap::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let ["#define", name, value, ..] = words[..] {
                if let Some(value) = number(value) {
                    found.insert(name.to_owned(), value);
                }
            }
        }
        found
    }

    #[test]
    fn kernels_have_the_same_numbers() {
        let theirs = numbers();
        let ours: &[(&str, u64)] = &[
            ("RKFD_TASKS_MAGIC", MAGIC.into()),
            ("RKFD_TASKS_VERSION", VERSION.into()),
            ("RKFD_TASKS_LINE", LINE as u64),
            ("RKFD_TASKS_HEADER_BYTES", HEADER_BYTES as u64),
            ("RKFD_TASK_RING_BYTES", RING_BYTES as u64),
            ("RKFD_TASK_CELL_BYTES", CELL_BYTES as u64),
            ("RKFD_TASK_SLOT_HEAD", SLOT_HEAD as u64),
            ("RKFD_TASK_HIGH", Priority::High.index() as u64),
            ("RKFD_TASK_LOW", Priority::Low.index() as u64),
            ("RKFD_TASK_PRIORITIES", Priority::ALL.len() as u64),
            ("RKFD_SLOT_POSITION_SHIFT", POSITION_SHIFT.into()),
            ("RKFD_SLOT_WORKER_SHIFT", WORKER_SHIFT.into()),
            ("RKFD_SLOT_FREE", phase::FREE),
            ("RKFD_SLOT_READY", phase::READY),
            ("RKFD_SLOT_TAKEN", phase::TAKEN),
            ("RKFD_CELL_FREE", future::FREE.into()),
            ("RKFD_CELL_WAITING", future::WAITING.into()),
            ("RKFD_CELL_DONE", future::DONE.into()),
            ("RKFD_CELL_FAILED", future::FAILED.into()),
            ("RKFD_CELL_DROPPED", future::DROPPED.into()),
            ("RKFD_TASKS_OPEN", closed::OPEN),
            ("RKFD_TASKS_CLOSING", closed::CLOSING),
            ("RKFD_TASKS_ENDED", closed::ENDED),
            ("RKFD_FAIL_FUNCTION", super::super::failure::FUNCTION),
            ("RKFD_FAIL_BYTES", super::super::failure::BYTES),
            ("RKFD_FAIL_PANIC", super::super::failure::PANIC),
            ("RKFD_FAIL_WORKER", super::super::failure::WORKER),
            ("RKFD_FAIL_THEN", super::super::failure::THEN),
            ("RKFD_FAIL_OWN", super::super::failure::OWN),
            ("RKFD_CALL_PRINT", super::super::host::PRINT.into()),
            ("RKFD_CALL_READ", super::super::host::READ.into()),
            ("RKFD_CALL_ALLOCATE", super::super::host::ALLOCATE.into()),
            ("RKFD_CALL_RELEASE", super::super::host::RELEASE.into()),
        ];
        for (name, value) in ours {
            assert_eq!(theirs.get(*name), Some(value), "{name}");
        }
    }

    #[test]
    fn parts_of_an_area_lie_apart_on_lines() {
        for shape in [
            Shape::default(),
            Shape {
                lanes: 1,
                depth: 2,
                segment: 64,
                futures: 0,
            },
        ] {
            shape.check().unwrap();
            let last = shape.rings() - 1;
            assert_eq!(shape.ring_at(last) + RING_BYTES, shape.slots_at());
            let depth = u64::from(shape.depth);
            assert_eq!(
                shape.slot_at(last, depth - 1) + shape.segment as usize,
                shape.cells_at()
            );
            assert_eq!(shape.slot_at(0, depth), shape.slot_at(0, 0));
            assert_eq!(shape.slots_at() % LINE, 0);
            assert_eq!(shape.cells_at() % 64, 0);
        }
    }

    #[test]
    fn shapes_that_cannot_be_are_refused() {
        let fine = Shape::default();
        for wrong in [
            Shape { lanes: 0, ..fine },
            Shape { lanes: 3, ..fine },
            Shape { lanes: 128, ..fine },
            Shape { depth: 1, ..fine },
            Shape { depth: 48, ..fine },
            Shape { segment: 0, ..fine },
            Shape {
                segment: 100,
                ..fine
            },
            Shape {
                segment: 8192,
                ..fine
            },
            Shape { futures: 5, ..fine },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
