// SPDX-License-Identifier: GPL-2.0

//! Tables of pages, mapped for a device: what is behind the [mappings of this driver](super::dma_map) and those that other
//! devices have of [exported buffers](super::dma_buf). Suites: `rkfd_dma`, `rkfd_dma_buf`.
//!
//! C header: [`include/linux/dma-mapping.h`](srctree/include/linux/dma-mapping.h)

use kernel::{
    bindings,
    device::Device,
    error::to_result,
    page::PAGE_SIZE,
    prelude::*,
    types::Opaque, //
};

use super::pages::Pages;

/// A part of device address space: `len` bytes from `addr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DmaRun {
    /// Bus address.
    pub(crate) addr: u64,
    /// Length in bytes.
    pub(crate) len: u64,
}

/// The C device behind `dev`.
pub(super) fn as_raw(dev: &Device) -> *mut bindings::device {
    // `Device` is `repr(transparent)` over `Opaque<struct device>`.
    core::ptr::from_ref(dev).cast_mut().cast()
}

/// How pages are mapped: where device and CPU see the same memory at any time, or not at all. A page may have any
/// number of such mappings, for no cache has to be written back or dropped between accesses.
// CAST: A single bit, below 32.
const COHERENT: c_ulong = bindings::DMA_ATTR_REQUIRE_COHERENT as c_ulong;

/// Maps `pages` for `dev`, a device of any driver.
///
/// # Errors
///
/// - `EOPNOTSUPP`: the machine gives `dev` copies of memory (bounce buffers).
/// - `ENOMEM`, and what the DMA layer reports.
///
/// # Safety
///
/// `dev` is bound, and the result is given to [`unmap_table`] while it is; `pages` live until then.
pub(super) unsafe fn map_table(
    dev: *mut bindings::device,
    pages: &Pages,
    dir: bindings::dma_data_direction,
) -> Result<KBox<Opaque<bindings::sg_table>>> {
    // SAFETY: `dev` is bound.
    if unsafe { crate::bindings::rkfd_dma_bounces(dev) } {
        return Err(EOPNOTSUPP);
    }
    // SAFETY: `dev` is a valid device.
    let longest = unsafe { bindings::dma_max_mapping_size(dev) };
    // CAST: Widened; the driver is built for 64 bits only.
    let longest = longest.min(u32::MAX as usize) & !(PAGE_SIZE - 1);
    let sgt = KBox::new(Opaque::zeroed(), GFP_KERNEL_ACCOUNT)?;
    // SAFETY: `sgt` is memory for a table, and the array holds valid pages, which the C
    // function only reads. There is at least one.
    to_result(unsafe {
        bindings::sg_alloc_table_from_pages_segment(
            sgt.get(),
            pages.as_ptr(),
            c_uint::try_from(pages.len())?,
            0,
            pages.size(),
            c_uint::try_from(longest)?,
            bindings::GFP_KERNEL_ACCOUNT,
        )
    })?;
    // SAFETY: `dev` is bound and the table was just made.
    let mapped = to_result(unsafe { bindings::dma_map_sgtable(dev, sgt.get(), dir, COHERENT) });
    if let Err(e) = mapped {
        // SAFETY: Made above and not mapped.
        unsafe { bindings::sg_free_table(sgt.get()) };
        return Err(e);
    }
    // Some machines begin only when they are asked.
    // SAFETY: `dev` is bound.
    if unsafe { crate::bindings::rkfd_dma_bounces(dev) } {
        // SAFETY: Made and mapped above, in this direction.
        unsafe {
            crate::bindings::rkfd_dma_unmap_unsynced(dev, sgt.get(), dir);
            bindings::sg_free_table(sgt.get());
        }
        return Err(EOPNOTSUPP);
    }
    Ok(sgt)
}

/// Ends what [`map_table`] began; the table is empty then.
///
/// # Safety
///
/// `sgt` is the result of [`map_table`] with these arguments and was not unmapped; no device uses it any more.
pub(super) unsafe fn unmap_table(
    dev: *mut bindings::device,
    sgt: &Opaque<bindings::sg_table>,
    dir: bindings::dma_data_direction,
) {
    // SAFETY: By the requirements of this function.
    unsafe {
        bindings::dma_unmap_sgtable(dev, sgt.get(), dir, COHERENT);
        bindings::sg_free_table(sgt.get());
    }
}
