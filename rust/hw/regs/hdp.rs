// SPDX-License-Identifier: GPL-2.0

//! Host data path: the cache between BAR0 and VRAM.
//!
//! Source: `hdp_4_0_offset.h`, `hdp_v4_0.c`. The flush registers proper are reached through the
//! remapped page, see [`AsicDesc::hdp_remap`].
//!
//! [`AsicDesc::hdp_remap`]: super::super::asic::AsicDesc::hdp_remap

use super::super::bits::fields;
use super::{
    regs,
    Reg, //
};

/// Dword base of segment 0.
pub(crate) const SEG0: u32 = 0xF20;

regs! { SEG0;
    /// FB base >> 8.
    HDP_NONSURFACE_BASE = 0x40;
    /// FB base >> 40.
    HDP_NONSURFACE_BASE_HI = 0x42;
    /// Writing 1 drops the read cache; unused on HDP 4.4.
    HDP_READ_CACHE_INVALIDATE = 0xD1;
    /// See [`MiscCntl`].
    HDP_MISC_CNTL = 0xD3;
}

/// Offset of the memory flush inside the remapped page, in bytes.
pub(crate) const REMAP_MEM_FLUSH: u32 = 0;
/// Offset of the register flush inside the remapped page, in bytes.
pub(crate) const REMAP_REG_FLUSH: u32 = 4;
/// Length of the remapped page, which user space may map, in bytes.
pub(crate) const REMAP_SIZE: u32 = 0x1000;

/// The memory flush register behind a remap at byte `remap` of BAR5.
pub(crate) const fn mem_flush(remap: u32) -> Reg {
    Reg::new(remap / 4, REMAP_MEM_FLUSH / 4)
}

fields! {
    /// HDP_MISC_CNTL.
    pub(crate) struct MiscCntl {
        /// Flush also invalidates.
        FLUSH_INVALIDATE_CACHE [0:0];
        /// Read buffer watermark; 2 on HDP 4.4.0.
        READ_BUFFER_WATERMARK [15:14];
    }
}
