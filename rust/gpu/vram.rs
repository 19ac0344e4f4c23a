// SPDX-License-Identifier: GPL-2.0

//! Video memory: the kernel's buddy allocator, and what is taken from it.
//!
//! Memory comes in blocks of powers of two that are aligned to their size, the smallest hole that fits first, so
//! that small and large do not break each other. What must be one block ([`VramBlock`]: page tables,
//! descriptors, contiguous buffers) is cut from the next larger one. Buffers take as few blocks as there are
//! holes ([`VramBlocks`]), the larger before the smaller: each begins in the buffer at a multiple of its own size, and
//! can be mapped by pages as large as it is.

use core::pin::Pin;

use kernel::{
    gpu::buddy::{
        AllocatedBlocks,
        GpuBuddy,
        GpuBuddyAllocFlag,
        GpuBuddyAllocFlags,
        GpuBuddyAllocMode,
        GpuBuddyParams, //
    },
    prelude::*,
    ptr::Alignment,
    sizes::{
        SZ_2M,
        SZ_4K, //
    },
    sync::Arc, //
};

use super::reserved::Span;
use crate::hw::pte::PAGE;

/// Reserved at the end of VRAM: firmware keeps the discovery table there (`amdgpu_discovery.c`).
const RESERVED_TOP: u64 = 64 << 10;
// CAST: A constant.
const HUGE: u64 = SZ_2M as u64;

/// Allocator of one GPU's VRAM.
///
/// Its lock is held while memory for its bookkeeping is allocated, so nothing is taken or freed where the memory
/// manager waits.
pub(crate) struct VramManager {
    buddy: GpuBuddy,
    total: u64,
    mc_base: u64,
    pa_base: u64,
}

impl VramManager {
    /// Manages the CPU-visible `size` bytes of VRAM that begin at GPU address `mc_base`, and at
    /// `pa_base` as page tables count.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `size` is too small or an address would wrap, `ENOMEM`.
    pub(crate) fn new(size: u64, mc_base: u64, pa_base: u64) -> Result<Arc<Self>> {
        let total = size.checked_sub(RESERVED_TOP).ok_or(EINVAL)? & !(PAGE - 1);
        mc_base.checked_add(size).ok_or(EINVAL)?;
        pa_base.checked_add(size).ok_or(EINVAL)?;
        let buddy = GpuBuddy::new(GpuBuddyParams {
            base_offset: 0,
            size: total,
            chunk_size: Alignment::new::<SZ_4K>(),
        })?;
        Ok(Arc::new(
            Self {
                buddy,
                total,
                mc_base,
                pa_base,
            },
            GFP_KERNEL,
        )?)
    }

    /// Takes `size` bytes, which are not more than there are, in blocks of at least `least`.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: no holes that fit. `ENOMEM`: no memory for the bookkeeping.
    fn take(
        &self,
        mode: GpuBuddyAllocMode,
        size: u64,
        least: u64,
        flags: impl Into<GpuBuddyAllocFlags>,
    ) -> Result<Pin<KBox<AllocatedBlocks>>> {
        let least = usize::try_from(least).ok().and_then(Alignment::new_checked);
        let blocks = self
            .buddy
            .alloc_blocks(mode, size, least.ok_or(EINVAL)?, flags);
        let blocks = KBox::pin_init(blocks, GFP_KERNEL_ACCOUNT).map_err(|error| match error {
            // More than the allocator's largest block; the callers exclude its other reasons.
            e if e == EINVAL => ENOSPC,
            e => e,
        })?;
        // Where it has no memory to give back what a block has beyond `size`, the allocator says nothing.
        if blocks.iter().map(|block| block.size()).sum::<u64>() > size {
            return Err(ENOMEM);
        }
        Ok(blocks)
    }

    /// Takes a contiguous block of at least `size` bytes (whole pages) at a multiple of `align`, and of 2 MiB if it
    /// is as large.
    ///
    /// The content is whatever the previous owner left.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `size` is 0 or overflows, or `align` is no power of two.
    /// - `ENOSPC`: no hole is large enough.
    /// - `ENOMEM`: no memory for the bookkeeping.
    pub(crate) fn alloc(self: &Arc<Self>, size: u64, align: u64) -> Result<VramBlock> {
        if !align.max(1).is_power_of_two() {
            return Err(EINVAL);
        }
        let size = self.whole_pages(size)?;
        let align = align.max(if size >= HUGE { HUGE } else { PAGE });
        if align > self.total {
            return Err(ENOSPC);
        }
        // A block is aligned to its own size. The allocator ignores a larger alignment where a contiguous range is
        // asked for; with a larger alignment the result is one block anyway.
        let flags = if align > size {
            GpuBuddyAllocFlags::default()
        } else {
            GpuBuddyAllocFlag::Contiguous.into()
        };
        let blocks = self.take(GpuBuddyAllocMode::Simple, size, align, flags)?;
        self.one_block(blocks, size)
    }

    /// Takes memory of at least `size` bytes (whole pages), in as few blocks as there are holes, or in one.
    ///
    /// The content is whatever the previous owner left; see [`Gpu::clear_vram`](super::Gpu::clear_vram).
    ///
    /// # Errors
    ///
    /// Those of [`Self::alloc`].
    pub(crate) fn alloc_blocks(
        self: &Arc<Self>,
        size: u64,
        contiguous: bool,
    ) -> Result<VramBlocks> {
        if contiguous {
            let block = self.alloc(size, PAGE)?;
            let mut parts = KVVec::with_capacity(1, GFP_KERNEL_ACCOUNT)?;
            parts.push(
                Part {
                    first: 0,
                    span: block.span,
                },
                GFP_KERNEL_ACCOUNT,
            )?;
            return Ok(VramBlocks {
                parts,
                vram: self.clone(),
                _blocks: block._blocks,
            });
        }
        let size = self.whole_pages(size)?;
        let none = GpuBuddyAllocFlags::default();
        let blocks = self.take(GpuBuddyAllocMode::Simple, size, PAGE, none)?;
        let mut parts: KVVec<Part> = KVVec::new();
        let mut first = 0;
        for block in blocks.iter() {
            let (start, len) = (block.offset(), block.size());
            match parts.last_mut() {
                Some(last) if last.span.start + last.span.size == start => last.span.size += len,
                _ => {
                    let span = Span { start, size: len };
                    parts.push(Part { first, span }, GFP_KERNEL_ACCOUNT)?;
                }
            }
            first += len;
        }
        Ok(VramBlocks {
            parts,
            vram: self.clone(),
            _blocks: blocks,
        })
    }

    /// Takes the pages of `span` for good, so that no other user gets them; `None` if none of them is managed.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: some of it is taken. `ENOMEM`.
    pub(crate) fn reserve(self: &Arc<Self>, span: Span) -> Result<Option<VramBlock>> {
        let start = span.start & !(PAGE - 1);
        let end = span
            .start
            .saturating_add(span.size)
            .checked_next_multiple_of(PAGE)
            .unwrap_or(u64::MAX)
            .min(self.total);
        let Some(size) = end.checked_sub(start).filter(|size| *size != 0) else {
            return Ok(None);
        };
        let none = GpuBuddyAllocFlags::default();
        let blocks = self.take(GpuBuddyAllocMode::Range(start..end), size, PAGE, none)?;
        self.one_block(blocks, size).map(Some)
    }

    /// `size` rounded up to whole pages.
    fn whole_pages(&self, size: u64) -> Result<u64> {
        if size == 0 {
            return Err(EINVAL);
        }
        let size = size.checked_next_multiple_of(PAGE).ok_or(EINVAL)?;
        if size > self.total {
            return Err(ENOSPC);
        }
        Ok(size)
    }

    /// `blocks`, in whatever order, as the one block of `size` bytes that they make up.
    fn one_block(
        self: &Arc<Self>,
        blocks: Pin<KBox<AllocatedBlocks>>,
        size: u64,
    ) -> Result<VramBlock> {
        let (mut start, mut end, mut sum) = (u64::MAX, 0, 0);
        for block in blocks.iter() {
            start = start.min(block.offset());
            end = end.max(block.offset() + block.size());
            sum += block.size();
        }
        // Disjoint blocks without a gap.
        if sum != size || end.checked_sub(start) != Some(size) {
            return Err(EIO);
        }
        Ok(VramBlock {
            span: Span { start, size },
            vram: self.clone(),
            _blocks: blocks,
        })
    }

    /// Bytes that can be allocated in all.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Address of byte `offset` for VMID 0, which sees VRAM untranslated.
    pub(crate) fn mc(&self, offset: u64) -> u64 {
        self.mc_base + offset
    }

    /// Address of byte `offset` for page-table entries.
    pub(crate) fn pa(&self, offset: u64) -> u64 {
        self.pa_base + offset
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.total.saturating_sub(self.buddy.avail())
    }

    /// Bytes not in use; they need not be contiguous.
    pub(crate) fn available(&self) -> u64 {
        self.buddy.avail()
    }
}

/// A contiguous block of VRAM; dropping frees it.
pub(crate) struct VramBlock {
    span: Span,
    vram: Arc<VramManager>,
    _blocks: Pin<KBox<AllocatedBlocks>>,
}

impl VramBlock {
    /// First byte, counted from the start of VRAM and of BAR0.
    pub(crate) fn offset(&self) -> u64 {
        self.span.start
    }

    /// Size in bytes, whole pages.
    pub(crate) fn size(&self) -> u64 {
        self.span.size
    }

    /// Address for page-table entries and page-table bases.
    pub(crate) fn pa(&self) -> u64 {
        self.vram.pa_base + self.offset()
    }

    /// Address for VMID 0, which sees VRAM untranslated.
    pub(crate) fn mc(&self) -> u64 {
        self.vram.mc(self.offset())
    }
}

/// A contiguous part of [`VramBlocks`].
struct Part {
    /// Its first byte within the whole.
    first: u64,
    span: Span,
}

/// VRAM in blocks that follow each other in a buffer; dropping frees it.
///
/// # Invariants
///
/// The parts are not empty and ascend without gaps from byte 0 of the whole.
pub(crate) struct VramBlocks {
    parts: KVVec<Part>,
    vram: Arc<VramManager>,
    _blocks: Pin<KBox<AllocatedBlocks>>,
}

impl VramBlocks {
    /// The contiguous parts: where they lie in the VRAM, in the order of the buffer.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        self.parts.iter().map(|part| part.span)
    }

    /// The contiguous part with this number.
    pub(crate) fn span(&self, number: usize) -> Option<Span> {
        self.parts.get(number).map(|part| part.span)
    }

    /// Address of byte `offset` of the VRAM for page-table entries.
    pub(crate) fn pa(&self, offset: u64) -> u64 {
        self.vram.pa_base + offset
    }

    /// Address of byte `offset` of the VRAM for VMID 0, which sees it untranslated.
    pub(crate) fn mc(&self, offset: u64) -> u64 {
        self.vram.mc(offset)
    }

    /// Where in the VRAM byte `offset` of the whole lies, and how many bytes follow there; `None` beyond the end.
    pub(crate) fn locate(&self, offset: u64) -> Option<(u64, u64)> {
        let above = self.parts.partition_point(|part| part.first <= offset);
        let part = self.parts.get(above.checked_sub(1)?)?;
        let within = offset - part.first;
        let follow = part.span.size.checked_sub(within).filter(|len| *len != 0)?;
        Some((part.span.start + within, follow))
    }
}
