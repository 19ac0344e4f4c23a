// SPDX-License-Identifier: GPL-2.0

//! Coherent memory that a device and the CPU share, released at unbind at the latest.

use kernel::{
    alloc::Flags,
    bindings,
    device::{
        Bound,
        Device, //
    },
    devres::Devres,
    dma::Coherent,
    prelude::*, //
};

/// Zeroed coherent memory of whole pages.
///
/// The memory goes away when the device is unbound even if this object stays; accesses then answer
/// `ENODEV`. Every access is bounds-checked, aligned and volatile, for a device may write at any
/// time. No access orders another: the caller needs a barrier between a flag and what it guards.
pub(crate) struct DmaBuffer {
    memory: Devres<Coherent<[u64]>>,
    bus: u64,
    size: usize,
}

impl DmaBuffer {
    /// Allocates `size` bytes, rounded up to whole pages. With `GFP_KERNEL_ACCOUNT` the pages are charged to the memory
    /// control group of the caller: the DMA layer hands the flag to the page allocator, with an IOMMU and without, but not
    /// to a CMA area, of which memory is never charged. Nor is what the kernel notes of device-managed memory.
    ///
    /// # Errors
    ///
    /// `EINVAL` for size 0, `ENOMEM`.
    pub(crate) fn new(dev: &Device<Bound>, size: usize, flags: Flags) -> Result<Self> {
        let page = kernel::page::PAGE_SIZE;
        if size == 0 {
            return Err(EINVAL);
        }
        let size = size.checked_next_multiple_of(page).ok_or(EINVAL)?;
        let memory = Coherent::<u64>::zeroed_slice(dev, size / 8, flags)?;
        let bus = memory.dma_address();
        Ok(Self {
            memory: Devres::new(dev, Ok::<_, Error>(memory))?,
            bus,
            size,
        })
    }

    /// Bus address of the first byte.
    pub(crate) fn bus_addr(&self) -> u64 {
        self.bus
    }

    /// Size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Runs `f` on a pointer to `len` bytes at `off`, aligned to `align`.
    fn with<R>(
        &self,
        off: usize,
        len: usize,
        align: usize,
        f: impl FnOnce(*mut u8) -> R,
    ) -> Result<R> {
        let end = off.checked_add(len).ok_or(EINVAL)?;
        if end > self.size || off % align != 0 {
            return Err(EINVAL);
        }
        let memory = self.memory.try_access().ok_or(ENODEV)?;
        Ok(f(memory.as_mut_ptr().cast::<u8>().wrapping_add(off)))
    }

    /// Reads 32 bits at byte `off`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: outside the buffer or not aligned. The same for all accessors.
    /// - `ENODEV`: the device was unbound. The same for all accessors.
    pub(crate) fn read32(&self, off: usize) -> Result<u32> {
        // SAFETY: `with` checked range and alignment and keeps the memory.
        self.with(off, 4, 4, |ptr| unsafe {
            ptr.cast::<u32>().read_volatile()
        })
    }

    /// Writes 32 bits at byte `off`.
    pub(crate) fn write32(&self, off: usize, value: u32) -> Result {
        // SAFETY: `with` checked range and alignment and keeps the memory.
        self.with(off, 4, 4, |ptr| unsafe {
            ptr.cast::<u32>().write_volatile(value)
        })
    }

    /// Reads 64 bits at byte `off`, untorn.
    pub(crate) fn read64(&self, off: usize) -> Result<u64> {
        // SAFETY: `with` checked range and alignment and keeps the memory.
        self.with(off, 8, 8, |ptr| unsafe {
            ptr.cast::<u64>().read_volatile()
        })
    }

    /// Writes 64 bits at byte `off`, untorn.
    pub(crate) fn write64(&self, off: usize, value: u64) -> Result {
        // SAFETY: `with` checked range and alignment and keeps the memory.
        self.with(off, 8, 8, |ptr| unsafe {
            ptr.cast::<u64>().write_volatile(value)
        })
    }

    /// Copies dwords to byte `off`, in ascending order.
    pub(crate) fn write_dwords(&self, off: usize, src: &[u32]) -> Result {
        self.with(off, core::mem::size_of_val(src), 4, |ptr| {
            for (i, value) in src.iter().enumerate() {
                // SAFETY: `with` checked the whole range and its alignment.
                unsafe { ptr.wrapping_add(4 * i).cast::<u32>().write_volatile(*value) };
            }
        })
    }

    /// Copies dwords from byte `off`, in ascending order.
    pub(crate) fn read_dwords(&self, off: usize, dst: &mut [u32]) -> Result {
        self.with(off, core::mem::size_of_val(dst), 4, |ptr| {
            for (i, value) in dst.iter_mut().enumerate() {
                // SAFETY: `with` checked the whole range and its alignment.
                *value = unsafe { ptr.wrapping_add(4 * i).cast::<u32>().read_volatile() };
            }
        })
    }

    /// Stores `value` in each of the `count` dwords from byte `off`.
    pub(crate) fn fill_dwords(&self, off: usize, count: usize, value: u32) -> Result {
        self.with(off, count.checked_mul(4).ok_or(EINVAL)?, 4, |ptr| {
            for i in 0..count {
                // SAFETY: `with` checked the whole range and its alignment.
                unsafe { ptr.wrapping_add(4 * i).cast::<u32>().write_volatile(value) };
            }
        })
    }
}

/// Orders earlier reads of memory that a device writes before later ones.
pub(crate) fn read_barrier() {
    kernel::sync::barrier::dma_mb(kernel::sync::barrier::Read);
}

/// Size of a page that the GPU maps, which must be the CPU's.
pub(crate) const PAGE: usize = 1 << bindings::PAGE_SHIFT;
