// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the lanes have done, counted while they do.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use super::plan::Advice;
use super::plan::GpuOp;
use super::plan::MemoryOp;
use super::plan::Place;

macro_rules! kinds {
    ($( $kind:ident $title:literal )*) => {
        /// A kind of operation, in the order of the table.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Kind { $( $kind ),* }

        impl Kind {
            /// All of them.
            pub const ALL: &[Self] = &[ $( Self::$kind ),* ];

            /// For a reader.
            pub fn title(self) -> &'static str {
                match self { $( Self::$kind => $title ),* }
            }
        }
    };
}

kinds! {
    MapPrivate "mmap (private)"
    MapShared "mmap (file)"
    Unmap "munmap"
    Move "mremap"
    Protect "mprotect"
    Discard "MADV_DONTNEED"
    Free "MADV_FREE"
    Punch "hole in the file"
    Huge "MADV_HUGEPAGE"
    Small "MADV_NOHUGEPAGE"
    Collapse "MADV_COLLAPSE"
    Cold "MADV_COLD"
    PageOut "MADV_PAGEOUT"
    MoveIn "moves to VRAM"
    MoveOut "moves to system memory"
    Hint "hints where to be"
    Fork "fork"
    CpuWrite "CPU writes"
    CpuCheck "CPU compares"
    GpuWrite "GPU writes"
    GpuFill "GPU fills"
    GpuAdd "GPU atomics"
    GpuCopy "GPU copies"
    GpuRead "GPU reads"
}

impl From<&GpuOp> for Kind {
    fn from(op: &GpuOp) -> Self {
        match op {
            GpuOp::Write { .. } => Self::GpuWrite,
            GpuOp::Fill { .. } => Self::GpuFill,
            GpuOp::Add { .. } => Self::GpuAdd,
            GpuOp::Copy { .. } => Self::GpuCopy,
            GpuOp::Read { .. } => Self::GpuRead,
        }
    }
}

impl From<&MemoryOp> for Kind {
    fn from(op: &MemoryOp) -> Self {
        match op {
            MemoryOp::MapPrivate { .. } => Self::MapPrivate,
            MemoryOp::MapShared { .. } => Self::MapShared,
            MemoryOp::Unmap { .. } => Self::Unmap,
            MemoryOp::Move { .. } => Self::Move,
            MemoryOp::Protect { .. } => Self::Protect,
            MemoryOp::Discard { .. } => Self::Discard,
            MemoryOp::Free { .. } => Self::Free,
            MemoryOp::Punch { .. } => Self::Punch,
            MemoryOp::Advise { advice, .. } => match advice {
                Advice::Huge => Self::Huge,
                Advice::Small => Self::Small,
                Advice::Collapse => Self::Collapse,
                Advice::Cold => Self::Cold,
                Advice::PageOut => Self::PageOut,
            },
            MemoryOp::Migrate { to, .. } => match to {
                Place::Vram => Self::MoveIn,
                Place::System => Self::MoveOut,
            },
            MemoryOp::Hint { .. } => Self::Hint,
            MemoryOp::Fork => Self::Fork,
            MemoryOp::Write { .. } => Self::CpuWrite,
            MemoryOp::Check { .. } => Self::CpuCheck,
        }
    }
}

/// Counters of all lanes.
#[derive(Debug)]
pub struct Tally {
    done: Vec<AtomicU64>,
    refused: Vec<AtomicU64>,
    /// Bytes that the CPU compared.
    by_cpu: AtomicU64,
    /// Bytes that a GPU had read.
    by_gpu: AtomicU64,
    retries: AtomicU64,
    rounds: AtomicU64,
    /// Bytes that went to VRAM by calls, and to system memory.
    moved_in: AtomicU64,
    moved_out: AtomicU64,
}

fn counter(of: &[AtomicU64], kind: Kind) -> Option<&AtomicU64> {
    of.get(kind as usize) // CAST: the index of a variant.
}

fn count(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed); // CAST: a count.
}

impl Tally {
    pub fn new() -> Self {
        let zeroes = || Kind::ALL.iter().map(|_| AtomicU64::new(0)).collect();
        Self {
            done: zeroes(),
            refused: zeroes(),
            by_cpu: AtomicU64::new(0),
            by_gpu: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            rounds: AtomicU64::new(0),
            moved_in: AtomicU64::new(0),
            moved_out: AtomicU64::new(0),
        }
    }

    /// An operation was done, or refused for a reason that it may have.
    pub fn add(&self, kind: Kind, done: bool) {
        let of = if done { &self.done } else { &self.refused };
        if let Some(counter) = counter(of, kind) {
            count(counter, 1);
        }
    }

    /// A call failed for want of memory and is made again.
    pub fn retry(&self) {
        count(&self.retries, 1);
    }

    /// The CPU compared bytes.
    pub fn compared(&self, bytes: usize) {
        count(&self.by_cpu, bytes);
    }

    /// Bytes were compared that a GPU had read.
    pub fn read_by_gpu(&self, bytes: usize) {
        count(&self.by_gpu, bytes);
    }

    /// Bytes were moved by a call.
    pub fn moved(&self, to: Place, bytes: u64) {
        let counter = match to {
            Place::Vram => &self.moved_in,
            Place::System => &self.moved_out,
        };
        counter.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A lane has finished a round.
    pub fn round(&self) {
        count(&self.rounds, 1);
    }

    /// Operations of a kind that were done.
    pub fn done(&self, kind: Kind) -> u64 {
        counter(&self.done, kind).map_or(0, |c| c.load(Ordering::Relaxed))
    }

    /// … that were refused.
    pub fn refused(&self, kind: Kind) -> u64 {
        counter(&self.refused, kind).map_or(0, |c| c.load(Ordering::Relaxed))
    }

    /// Rounds of all lanes.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Calls that were made again.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Bytes that calls moved to VRAM, and to system memory.
    pub fn all_moved(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.moved_in), load(&self.moved_out))
    }

    /// Bytes compared by the CPU, and by GPUs.
    pub fn verified(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.by_cpu), load(&self.by_gpu))
    }
}
