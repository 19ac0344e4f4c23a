// SPDX-License-Identifier: GPL-2.0

//! What the interrupt thread counts.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// What the interrupt thread has seen.
#[derive(Default)]
pub(crate) struct Counters {
    /// Interrupts taken.
    pub(crate) interrupts: Count,
    /// Vectors that were found without an interrupt: its message was lost.
    pub(crate) unannounced: Count,
    /// Vectors taken from each ring.
    pub(crate) vectors: [Count; 3],
    /// End-of-pipe vectors.
    pub(crate) eop: Count,
    /// SDMA traps.
    pub(crate) sdma_trap: Count,
    /// SDMA traps of the kernel's copy engine.
    pub(crate) copy: Count,
    /// SQ messages.
    pub(crate) sq: Count,
    /// Bad packets.
    pub(crate) bad_opcode: Count,
    /// Faults that were not retried.
    pub(crate) faults: Count,
    /// Faults that were not handled one by one, because too many waited.
    pub(crate) fault_drops: Count,
    /// Retry faults.
    pub(crate) retry_faults: Count,
    /// Vectors that mean nothing to this driver.
    pub(crate) other: Count,
    /// Vectors of a VMID or PASID that no user has.
    pub(crate) foreign: Count,
    /// Overflows of a ring.
    pub(crate) overflows: Count,
    /// Write pointers outside the ring.
    pub(crate) bad_pointers: Count,
}

/// A counter for statistics.
pub(crate) struct Count(Atomic<i64>);

impl Default for Count {
    fn default() -> Self {
        Self(Atomic::new(0))
    }
}

impl Count {
    /// Adds one.
    pub(super) fn inc(&self) {
        self.0.add(1, Relaxed);
    }

    /// Adds `n`.
    pub(super) fn add(&self, n: u32) {
        self.0.add(i64::from(n), Relaxed);
    }

    /// The count.
    pub(crate) fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}
