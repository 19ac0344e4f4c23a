// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Doorbells in the hands of kernels.
//!
//! A kernel that enqueues work takes a place by the write index of the queue's `amd_queue_t`, writes the packet, its header
//! last, and stores the index to the doorbell, as a thread of the CPU does.  The doorbell is a register of the GPU: a
//! kernel reaches it where it is mapped as memory of that kind.

use std::sync::Arc;

use super::Queue;
use crate::abi::alloc;
use crate::device::Device;
use crate::device::DOORBELL_SLICE;
use crate::error::Result;
use crate::memory::allocation::Allocation;
use crate::sys::Mapping;

/// All doorbells that the process has on a GPU, mapped for that GPU's kernels as long as the value lives, at the addresses
/// that they have for the CPU ([`Queue::doorbell_address`]).
#[derive(Debug)]
pub struct KernelDoorbells {
    // Freed before the addresses can go to somebody else.
    _allocation: Allocation,
    _doorbells: Arc<Mapping>,
}

impl Queue {
    /// Lets kernels on the queue's GPU ring the process's doorbells there, this queue's and others'.
    ///
    /// Packets that kernels write are theirs: the library, which does not know of them, neither waits for them nor keeps
    /// account of their places. So a queue is either the program's or the kernels' while there may be packets in it.
    ///
    /// # Errors
    /// [`crate::error::Error::Call`], such as `EINVAL` where a mapping of them exists.
    pub fn doorbells_for_kernels(&self) -> Result<KernelDoorbells> {
        self.doorbells_for_kernels_of(&self.device().clone())
    }

    /// As [`Queue::doorbells_for_kernels`], for the kernels of another GPU.
    ///
    /// # Errors
    /// [`crate::error::Error::Call`], where that GPU does not reach the doorbells of this one. rkfd lets none: somebody else has
    /// to ring for such kernels, as a task of theirs does.
    pub fn doorbells_for_kernels_of(&self, device: &Arc<Device>) -> Result<KernelDoorbells> {
        let doorbells = self.live.doorbells.clone();
        // CAST: an address and a constant of a 64-bit process.
        let (va, size) = (doorbells.address() as u64, DOORBELL_SLICE as u64);
        let flags = alloc::DOORBELL | alloc::WRITABLE | alloc::COHERENT | alloc::NO_SUBSTITUTE;
        let allocation = Allocation::new(self.device(), va, size, 0, flags)?;
        allocation.map(device)?;
        Ok(KernelDoorbells {
            _allocation: allocation,
            _doorbells: doorbells,
        })
    }
    /// Lets kernels of another GPU of this process write packets into the queue: maps its ring and its indices there.
    ///
    /// # Errors
    /// [`crate::error::Error::Call`].
    pub fn share_with(&self, device: &Arc<Device>) -> Result<()> {
        self.live.ring.share(device)?;
        self.live.object.share(device)
    }
}
