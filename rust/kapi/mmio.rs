// SPDX-License-Identifier: GPL-2.0

//! A PCI BAR, mapped.
//!
//! [`kernel::pci::Bar`] borrows the bound device and maps uncached only. [`BarMapping`] owns its
//! device reference, so that it can lie behind a [`Gate`], and chooses the caching.
//!
//! C header: [`include/linux/io.h`](srctree/include/linux/io.h)
//!
//! [`Gate`]: super::gate::Gate

use kernel::{
    bindings,
    device::Bound,
    pci,
    prelude::*,
    sync::aref::ARef, //
};

/// How the CPU sees a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caching {
    /// Every access is one bus transaction, in order.
    Uncached,
    /// Writes may be merged and delayed; reads are uncached.
    WriteCombined,
}

/// A requested and mapped BAR.
///
/// # Invariants
///
/// - BAR `num` of `pdev` is requested by this object and `addr` maps its first `len` bytes.
pub(crate) struct BarMapping {
    pdev: ARef<pci::Device>,
    num: c_int,
    addr: *mut u8,
    len: usize,
    bus: u64,
}

// SAFETY: The mapping is valid in every context; nothing in it is bound to a thread.
unsafe impl Send for BarMapping {}
// SAFETY: All methods are single volatile accesses or copies to I/O memory, which may race as
// hardware accesses do, but never touch Rust memory.
unsafe impl Sync for BarMapping {}

impl BarMapping {
    /// Requests BAR `bar` under `name` and maps it.
    ///
    /// # Errors
    ///
    /// - `ENODEV`: the BAR is absent or shorter than `min_len` bytes.
    /// - `EBUSY`: another driver holds it.
    /// - `ENOMEM`: no room for the mapping.
    pub(crate) fn new(
        pdev: &pci::Device<Bound>,
        bar: u32,
        name: &'static CStr,
        caching: Caching,
        min_len: usize,
    ) -> Result<Self> {
        let bus = pdev.resource_start(bar)?;
        let len = usize::try_from(pdev.resource_len(bar)?)?;
        if len == 0 || len < min_len {
            dev_err!(
                pdev,
                "BAR{} has {:#x} bytes, need at least {:#x}\n",
                bar,
                len,
                min_len.max(1)
            );
            return Err(ENODEV);
        }
        let num = c_int::try_from(bar)?;
        let raw = super::pci::as_raw(pdev);

        // SAFETY: `raw` is a bound device, `num` was checked by `resource_len` and `name` is static.
        if unsafe { bindings::pci_request_region(raw, num, name.as_char_ptr()) } != 0 {
            dev_err!(pdev, "BAR{} is held by another driver\n", bar);
            return Err(EBUSY);
        }
        let addr = match caching {
            // SAFETY: The range was just requested and belongs to the device.
            Caching::Uncached => unsafe { bindings::ioremap(bus, len) },
            // SAFETY: The range was just requested and belongs to the device.
            Caching::WriteCombined => unsafe { bindings::ioremap_wc(bus, len) },
        };
        if addr.is_null() {
            // SAFETY: Requested above and not used.
            unsafe { bindings::pci_release_region(raw, num) };
            return Err(ENOMEM);
        }
        // INVARIANT: Requested and mapped above.
        Ok(Self {
            pdev: pdev.into(),
            num,
            addr: addr.cast(),
            len,
            bus,
        })
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// CPU physical address, for mappings into user space.
    pub(crate) fn bus_addr(&self) -> u64 {
        self.bus
    }

    /// Pointer to `len` bytes at `off`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range is not inside the BAR or not aligned to `align`.
    fn range(&self, off: usize, len: usize, align: usize) -> Result<*mut u8> {
        let end = off.checked_add(len).ok_or(EINVAL)?;
        if end > self.len || off % align != 0 {
            return Err(EINVAL);
        }
        Ok(self.addr.wrapping_add(off))
    }

    /// Reads 32 bits at `off`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `off` is outside the BAR or not aligned.
    pub(crate) fn read32(&self, off: usize) -> Result<u32> {
        let ptr = self.range(off, 4, 4)?;
        // SAFETY: `range` returned an aligned address inside the mapping.
        Ok(unsafe { bindings::readl(ptr.cast()) })
    }

    /// Writes 32 bits at `off`, after all earlier memory writes.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `off` is outside the BAR or not aligned.
    pub(crate) fn write32(&self, off: usize, value: u32) -> Result {
        let ptr = self.range(off, 4, 4)?;
        // SAFETY: `range` returned an aligned address inside the mapping.
        unsafe { bindings::writel(value, ptr.cast()) };
        Ok(())
    }

    /// Writes 64 bits at `off` as one transaction, after all earlier memory writes.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `off` is outside the BAR or not aligned.
    pub(crate) fn write64(&self, off: usize, value: u64) -> Result {
        let ptr = self.range(off, 8, 8)?;
        // SAFETY: `range` returned an aligned address inside the mapping.
        unsafe { bindings::writeq(value, ptr.cast()) };
        Ok(())
    }

    /// Copies `src` to `off`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range is not inside the BAR.
    pub(crate) fn copy_to(&self, off: usize, src: &[u8]) -> Result {
        let ptr = self.range(off, src.len(), 1)?;
        // SAFETY: `range` checked the destination, `src` is a slice.
        unsafe { bindings::memcpy_toio(ptr.cast(), src.as_ptr().cast(), src.len()) };
        Ok(())
    }

    /// Copies from `off` to `dst`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range is not inside the BAR.
    pub(crate) fn copy_from(&self, off: usize, dst: &mut [u8]) -> Result {
        let ptr = self.range(off, dst.len(), 1)?;
        // SAFETY: `range` checked the source, `dst` is an exclusive slice.
        unsafe { bindings::memcpy_fromio(dst.as_mut_ptr().cast(), ptr.cast(), dst.len()) };
        Ok(())
    }

    /// Stores `values` one by one, each as an untorn 64-bit access.
    ///
    /// For memory that a device reads in units of 64 bits at any time, such as page tables.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range is not inside the BAR or `off` not a multiple of 8.
    pub(crate) fn write_u64s(&self, off: usize, values: &[u64]) -> Result {
        let ptr = self.range(off, core::mem::size_of_val(values), 8)?;
        for (i, value) in values.iter().enumerate() {
            // SAFETY: `range` checked the whole range and its alignment.
            unsafe { bindings::writeq_relaxed(*value, ptr.wrapping_add(8 * i).cast()) };
        }
        Ok(())
    }

    /// Fills `len` bytes at `off` with `byte`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range is not inside the BAR.
    pub(crate) fn fill(&self, off: usize, len: usize, byte: u8) -> Result {
        let ptr = self.range(off, len, 1)?;
        // SAFETY: `range` checked the destination.
        unsafe { bindings::memset_io(ptr.cast(), c_int::from(byte), len) };
        Ok(())
    }
}

impl Drop for BarMapping {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the mapping and the request are ours, and `self` was the
        // only way to them.
        unsafe {
            bindings::iounmap(self.addr.cast());
            bindings::pci_release_region(super::pci::as_raw(&self.pdev), self.num);
        }
    }
}
