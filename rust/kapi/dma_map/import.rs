// SPDX-License-Identifier: GPL-2.0

//! Buffers of other drivers, attached to a device and mapped for it. Suite: `rkfd_dma_import`.
//!
//! The attachment is a static one: the exporter is not told of any peer access, so that it has to have the buffer in
//! system memory, and keeps it where it is while it is mapped.
//!
//! # Locks
//!
//! To map and to unmap takes the reservation of the buffer, which is the exporter's, and which others may hold while they
//! want one of ours. So neither is done by a thread that holds a reservation. [`DmaImport`](super::DmaImport) can be
//! dropped anywhere all the same: a worker of the [`DmaMapper`](super::DmaMapper) ends the mapping.
//!
//! C header: [`include/linux/dma-buf.h`](srctree/include/linux/dma-buf.h)

use core::ptr::NonNull;

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    error::from_err_ptr,
    page::PAGE_SIZE,
    prelude::*,
    sync::aref::ARef, //
};

use crate::kapi::{
    dma_buf::DmaBuf,
    dma_table::{
        as_raw,
        DmaRun, //
    },
};

/// GPUs read and write what is imported; rights are a matter of the page tables.
const BOTH_WAYS: bindings::dma_data_direction = bindings::dma_data_direction::DMA_BIDIRECTIONAL;

/// A device that is attached to a buffer.
///
/// # Invariants
///
/// `raw` is an attachment of `dev`, which is bound or being unbound, to `dma_buf`, and nothing is mapped by it but by
/// a [`MappedImport`] that has it.
struct Attachment {
    raw: NonNull<bindings::dma_buf_attachment>,
    dma_buf: DmaBuf,
    /// Keeps the device that the attachment names.
    _dev: ARef<Device>,
}

impl Attachment {
    /// # Errors
    ///
    /// What the exporter reports, `ENOMEM`.
    ///
    /// # Safety
    ///
    /// The result is dropped before `dev` has been unbound.
    unsafe fn new(dev: &Device<Bound>, dma_buf: &DmaBuf) -> Result<Self> {
        // SAFETY: Both are valid. Without operations of the importer the attachment is a static one.
        let raw = unsafe { bindings::dma_buf_attach(dma_buf.as_raw(), as_raw(dev)) };
        Ok(Self {
            // INVARIANT: Attached above.
            raw: NonNull::new(from_err_ptr(raw)?).ok_or(EINVAL)?,
            dma_buf: dma_buf.clone(),
            _dev: (&**dev).into(),
        })
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; what was mapped is not any more, for `MappedImport` unmaps before it drops this.
        unsafe { bindings::dma_buf_detach(self.dma_buf.as_raw(), self.raw.as_ptr()) };
    }
}

/// A buffer that is mapped for a device.
///
/// # Invariants
///
/// `table` is what `attachment` was mapped to, [`BOTH_WAYS`], and is not unmapped.
pub(super) struct MappedImport {
    table: NonNull<bindings::sg_table>,
    attachment: Attachment,
}

// SAFETY: Nothing in it is bound to a thread.
unsafe impl Send for MappedImport {}

impl MappedImport {
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the machine gives `dev` copies of memory (bounce buffers).
    /// - What the exporter reports.
    ///
    /// # Safety
    ///
    /// The result is dropped before `dev` has been unbound, and when no device uses the memory by it any more.
    pub(super) unsafe fn new(dev: &Device<Bound>, dma_buf: &DmaBuf) -> Result<Self> {
        // SAFETY: `dev` is bound.
        if unsafe { crate::bindings::rkfd_dma_bounces(as_raw(dev)) } {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: By the requirement of this function: it goes with the result, or here.
        let attachment = unsafe { Attachment::new(dev, dma_buf) }?;
        // SAFETY: A valid attachment, whose device is bound; the caller holds no reservation.
        let table = unsafe {
            bindings::dma_buf_map_attachment_unlocked(attachment.raw.as_ptr(), BOTH_WAYS)
        };
        // INVARIANT: Mapped above.
        let this = Self {
            table: NonNull::new(from_err_ptr(table)?).ok_or(EINVAL)?,
            attachment,
        };
        // Some machines begin only when they are asked.
        // SAFETY: `dev` is bound.
        if unsafe { crate::bindings::rkfd_dma_bounces(as_raw(dev)) } {
            return Err(EOPNOTSUPP);
        }
        Ok(this)
    }

    /// Where the device finds the buffer.
    ///
    /// # Errors
    ///
    /// `EINVAL`: these are not whole pages, or not as many as the buffer has. `ENOMEM`.
    pub(super) fn runs(&self) -> Result<KVVec<DmaRun>> {
        let mut segments = Segments::new();
        // SAFETY: By the type invariant the table is valid, and it does not change.
        let (mut sg, count) = unsafe { ((*self.table.as_ptr()).sgl, (*self.table.as_ptr()).nents) };
        for _ in 0..count {
            if sg.is_null() {
                break;
            }
            // SAFETY: `sg` is one of the first `nents` entries of the table, those that the device sees.
            let (addr, len) = unsafe {
                (
                    bindings::sg_dma_address(sg),
                    u64::from(bindings::sg_dma_len(sg)),
                )
            };
            segments.add(addr, len)?;
            // SAFETY: `sg` is an entry of the table; the function returns null after the last one.
            sg = unsafe { bindings::sg_next(sg) };
        }
        segments.finish(self.attachment.dma_buf.size())
    }
}

impl Drop for MappedImport {
    fn drop(&mut self) {
        // SAFETY: By the type invariants; it is dropped with no reservation held: by the function that attaches, before
        // there is another user, by the worker, or while the device is unbound.
        unsafe {
            bindings::dma_buf_unmap_attachment_unlocked(
                self.attachment.raw.as_ptr(),
                self.table.as_ptr(),
                BOTH_WAYS,
            );
        }
    }
}

/// What a device sees of a buffer, as it is being read. Nothing that another driver says of it is relied on: page tables
/// are written from it.
struct Segments {
    /// Neighbours joined.
    runs: KVVec<DmaRun>,
    /// Bytes of all of them.
    len: u64,
}

impl Segments {
    fn new() -> Self {
        Self {
            runs: KVVec::new(),
            len: 0,
        }
    }

    /// # Errors
    ///
    /// `EINVAL`: not whole pages, none, or beyond the last address. `ENOMEM`.
    fn add(&mut self, addr: u64, len: u64) -> Result {
        // CAST: `usize` is at most 64 bits wide.
        if len == 0 || (addr | len) % PAGE_SIZE as u64 != 0 {
            return Err(EINVAL);
        }
        // So that ends can be compared below, and by the users of the result.
        addr.checked_add(len).ok_or(EINVAL)?;
        self.len = self.len.checked_add(len).ok_or(EINVAL)?;
        match self.runs.last_mut() {
            Some(last) if last.addr + last.len == addr => last.len += len,
            _ => self.runs.push(DmaRun { addr, len }, GFP_KERNEL_ACCOUNT)?,
        }
        Ok(())
    }

    /// # Errors
    ///
    /// `EINVAL`: they are not `size` bytes.
    fn finish(self, size: u64) -> Result<KVVec<DmaRun>> {
        if self.len != size {
            return Err(EINVAL);
        }
        Ok(self.runs)
    }
}
