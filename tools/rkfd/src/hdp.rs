// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The host data path: what the CPU stores to VRAM may wait there until it is flushed.
//!
//! The driver lets a process map the page of the register that flushes it (`MMIO_REMAP`).

use std::os::fd::AsFd;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use nix::sys::mman::ProtFlags;

use crate::abi;
use crate::abi::alloc;
use crate::device::Kfd;
use crate::error::Result;
use crate::sys;
use crate::sys::Mapping;
use crate::sys::PAGE;

/// The page: `HDP_MEM_COHERENCY_FLUSH_CNTL` at its start.
#[derive(Debug)]
pub(crate) struct FlushPage {
    kfd: Arc<Kfd>,
    handle: u64,
    mapping: Mapping,
}

impl FlushPage {
    /// Maps a GPU's.
    ///
    /// # Errors
    /// [`crate::error::Error::Call`], where the driver has none as well.
    pub(crate) fn new(kfd: &Arc<Kfd>, gpu_id: u32) -> Result<Self> {
        let mapping = Mapping::reserve(PAGE, PAGE)?;
        let mut arg = abi::AllocMemory {
            va_addr: mapping.address() as u64, // CAST: a 64-bit process.
            size: PAGE as u64,                 // CAST: a constant.
            gpu_id,
            flags: alloc::MMIO_REMAP | alloc::WRITABLE | alloc::NO_SUBSTITUTE | alloc::COHERENT,
            ..Default::default()
        };
        kfd.plain("ALLOC_MEMORY_OF_GPU", abi::ALLOC_MEMORY_OF_GPU, &mut arg)?;
        let page = Self {
            kfd: kfd.clone(),
            handle: arg.handle,
            mapping,
        };
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        page.mapping
            .replace_by_file(kfd.as_fd(), arg.mmap_offset, prot)?;
        Ok(page)
    }

    /// Flushes what was stored before.
    pub(crate) fn flush(&self) {
        sys::publish();
        // SAFETY: aligned and inside the page, which lives as long as `self`; any value flushes.
        let register = unsafe { AtomicU32::from_ptr(self.mapping.as_ptr().cast()) };
        register.store(1, Ordering::Relaxed);
        sys::publish();
    }
}

impl Drop for FlushPage {
    fn drop(&mut self) {
        let mut arg = abi::FreeMemory {
            handle: self.handle,
        };
        let _ = self
            .kfd
            .plain("FREE_MEMORY_OF_GPU", abi::FREE_MEMORY_OF_GPU, &mut arg);
    }
}
