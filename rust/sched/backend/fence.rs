// SPDX-License-Identifier: GPL-2.0

//! Fences that QUERY_STATUS writes, each in a slot and with a value of its own.
//!
//! A fence that did not come in time may still come later. Two things keep it from being taken for
//! another one:
//!
//! - every fence has a value that no other fence of this pool ever had, and only an equal value
//!   counts;
//! - the slot of a fence that was given up is not used again before the device was reset, so that
//!   the late write cannot overwrite a newer fence either.

use kernel::{
    prelude::*,
    sync::{
        barrier::{
            dma_mb,
            Read, //
        },
        Arc, //
    }, //
};

use crate::sched::platform::DeviceMem;

/// Slots of a pool.
pub(crate) const SLOTS: usize = 64;
/// Bytes of a slot. The contract asks for 8; a cache line each keeps neighbours apart.
const STRIDE: usize = 64;
/// Bytes of shared memory that a pool needs.
pub(crate) const POOL_BYTES: usize = SLOTS * STRIDE;
/// Content of a slot that waits. No fence has this value.
const UNSIGNALLED: u64 = 0;

/// A fence that was armed.
///
/// Must be handed back to its pool with [`FencePool::release`] or [`FencePool::abandon`]; if it is
/// merely dropped, its slot stays taken, which is safe and wasteful.
#[derive(Debug)]
#[must_use = "a fence that is dropped keeps its slot"]
pub(crate) struct Fence {
    slot: usize,
    addr: u64,
    value: u64,
}

impl Fence {
    /// GPU address to write to.
    pub(crate) fn addr(&self) -> u64 {
        self.addr
    }

    /// Value to write.
    pub(crate) fn value(&self) -> u64 {
        self.value
    }
}

/// State of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Free,
    Armed,
    /// Given up; a late write may still come.
    Quarantined,
}

/// All fences of one scheduler.
pub(crate) struct FencePool {
    mem: Arc<dyn DeviceMem>,
    slots: [Slot; SLOTS],
    /// Where the search for a free slot starts, so that a slot rests as long as possible.
    cursor: usize,
    next_value: u64,
    strays: u64,
}

impl FencePool {
    /// Makes a pool on `mem`, of which it uses the first [`POOL_BYTES`].
    ///
    /// # Errors
    ///
    /// `EINVAL` if `mem` is too small, else as [`DeviceMem`].
    pub(crate) fn new(mem: Arc<dyn DeviceMem>) -> Result<Self> {
        if mem.size() < POOL_BYTES {
            return Err(EINVAL);
        }
        mem.clear(0, POOL_BYTES)?;
        Ok(Self {
            mem,
            slots: [Slot::Free; SLOTS],
            cursor: 0,
            next_value: UNSIGNALLED + 1,
            strays: 0,
        })
    }

    /// Takes a slot and a new value.
    ///
    /// # Errors
    ///
    /// `EIO` if every slot waits or is quarantined (the device has stopped answering), else as
    /// [`DeviceMem`].
    pub(crate) fn arm(&mut self) -> Result<Fence> {
        let slot = (0..SLOTS)
            .map(|step| (self.cursor + step) % SLOTS)
            .find(|&slot| self.slots.get(slot) == Some(&Slot::Free))
            .ok_or(EIO)?;
        self.mem.write64(slot * STRIDE, UNSIGNALLED)?;
        let value = self.next_value;
        // OVERFLOW: 2^64 preemptions do not happen.
        self.next_value += 1;
        self.cursor = (slot + 1) % SLOTS;
        self.set(slot, Slot::Armed);
        // CAST: Lossless, a slot offset is small.
        let addr = self.mem.gpu_addr() + (slot * STRIDE) as u64;
        Ok(Fence { slot, addr, value })
    }

    /// Whether the device has written `fence`.
    ///
    /// A value that belongs to no fence of this slot is counted and ignored.
    ///
    /// # Errors
    ///
    /// As [`DeviceMem`].
    pub(crate) fn signalled(&mut self, fence: &Fence) -> Result<bool> {
        let seen = self.mem.read64(fence.slot * STRIDE)?;
        if seen != fence.value && seen != UNSIGNALLED {
            self.strays += 1;
        }
        let signalled = seen == fence.value;
        if signalled {
            // What the device wrote before the fence (the queue that refused, saved queues) is
            // read after it.
            dma_mb(Read);
        }
        Ok(signalled)
    }

    /// Hands back a fence that was seen, or whose packet was never published.
    pub(crate) fn release(&mut self, fence: Fence) {
        self.set(fence.slot, Slot::Free);
    }

    /// Hands back a fence that did not come in time.
    pub(crate) fn abandon(&mut self, fence: Fence) {
        self.set(fence.slot, Slot::Quarantined);
    }

    /// Takes quarantined slots into use again: the device was reset and writes nothing old.
    pub(crate) fn after_reset(&mut self) {
        for slot in &mut self.slots {
            *slot = Slot::Free;
        }
    }

    /// Slots that are neither armed nor quarantined.
    #[cfg(rkfd_kunit)]
    pub(crate) fn free(&self) -> usize {
        self.slots.iter().filter(|s| **s == Slot::Free).count()
    }

    /// Slots whose fence was given up.
    #[cfg(rkfd_kunit)]
    pub(crate) fn quarantined(&self) -> usize {
        self.slots
            .iter()
            .filter(|s| **s == Slot::Quarantined)
            .count()
    }

    /// How often a slot held a value of none of its fences.
    #[cfg(rkfd_kunit)]
    pub(crate) fn strays(&self) -> u64 {
        self.strays
    }

    fn set(&mut self, slot: usize, state: Slot) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = state;
        }
    }
}
