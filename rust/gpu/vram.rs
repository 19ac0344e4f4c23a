// SPDX-License-Identifier: GPL-2.0

//! Video memory: contiguous blocks of it.
//!
//! Blocks of 2 MiB and more are aligned to 2 MiB, so that one page-table entry can map 2 MiB, and
//! grow from the bottom; smaller ones (page tables, descriptors) from the top. That keeps the
//! small and long-lived apart from the large.

use kernel::{
    prelude::*,
    sizes::{
        SZ_2M,
        SZ_4K, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

use super::reserved::Span;
use crate::kapi::range::{
    Fit,
    Range,
    RangeAllocator, //
};

/// Reserved at the end of VRAM: firmware keeps the discovery table there (`amdgpu_discovery.c`).
const RESERVED_TOP: u64 = 64 << 10;

/// Allocator of one GPU's VRAM.
pub(crate) struct VramManager {
    ranges: Arc<RangeAllocator>,
    total: u64,
    used: Atomic<i64>,
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
        let total = size.checked_sub(RESERVED_TOP).ok_or(EINVAL)?;
        mc_base.checked_add(size).ok_or(EINVAL)?;
        pa_base.checked_add(size).ok_or(EINVAL)?;
        Ok(Arc::new(
            Self {
                ranges: RangeAllocator::new(0, total)?,
                total,
                used: Atomic::new(0),
                mc_base,
                pa_base,
            },
            GFP_KERNEL,
        )?)
    }

    /// Takes a contiguous block of at least `size` bytes (whole pages) at a multiple of `align`.
    ///
    /// The content is whatever the previous owner left.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `size` is 0 or overflows, or `align` is no power of two.
    /// - `ENOSPC`: no hole is large enough.
    /// - `ENOMEM`: no memory for the bookkeeping.
    pub(crate) fn alloc(self: &Arc<Self>, size: u64, align: u64) -> Result<VramBlock> {
        // CAST: Constants.
        let (page, huge) = (SZ_4K as u64, SZ_2M as u64);
        if size == 0 || !align.max(1).is_power_of_two() {
            return Err(EINVAL);
        }
        let size = size.checked_next_multiple_of(page).ok_or(EINVAL)?;
        let (align, fit) = if size >= huge {
            (align.max(huge), Fit::Lowest)
        } else {
            (align.max(page), Fit::Highest)
        };
        let range = self.ranges.alloc(size, align, fit)?;
        // CAST: Sizes of VRAM are below 2^63.
        self.used.add(size as i64, Relaxed);
        Ok(VramBlock {
            range,
            vram: self.clone(),
        })
    }

    /// Takes the pages of `span` for good, so that nobody else gets them; `None` if none of them is managed.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: some of it is taken. `ENOMEM`.
    pub(crate) fn reserve(self: &Arc<Self>, span: Span) -> Result<Option<VramBlock>> {
        // CAST: A constant.
        let page = SZ_4K as u64;
        let start = span.start & !(page - 1);
        let end = span
            .start
            .saturating_add(span.size)
            .checked_next_multiple_of(page)
            .unwrap_or(u64::MAX)
            .min(self.total);
        let Some(size) = end.checked_sub(start).filter(|size| *size != 0) else {
            return Ok(None);
        };
        let range = self.ranges.alloc_at(start, size)?;
        // CAST: As in `alloc`.
        self.used.add(size as i64, Relaxed);
        Ok(Some(VramBlock {
            range,
            vram: self.clone(),
        }))
    }

    /// Bytes that can be allocated in all.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        u64::try_from(self.used.load(Relaxed)).unwrap_or(0)
    }

    /// Bytes not in use; they need not be contiguous.
    pub(crate) fn available(&self) -> u64 {
        self.total.saturating_sub(self.used())
    }
}

/// A contiguous block of VRAM; dropping frees it.
pub(crate) struct VramBlock {
    range: Range,
    vram: Arc<VramManager>,
}

impl VramBlock {
    /// First byte, counted from the start of VRAM and of BAR0.
    pub(crate) fn offset(&self) -> u64 {
        self.range.start()
    }

    /// Size in bytes, whole pages.
    pub(crate) fn size(&self) -> u64 {
        self.range.size()
    }

    /// Address for page-table entries and page-table bases.
    pub(crate) fn pa(&self) -> u64 {
        self.vram.pa_base + self.offset()
    }

    /// Address for VMID 0, which sees VRAM untranslated.
    pub(crate) fn mc(&self) -> u64 {
        self.vram.mc_base + self.offset()
    }
}

impl Drop for VramBlock {
    fn drop(&mut self) {
        // CAST: As in `alloc`.
        self.vram.used.add(-(self.size() as i64), Relaxed);
    }
}
