// SPDX-License-Identifier: GPL-2.0

//! Bus interface (NBIO 7.4): memory size, doorbell ranges, HDP remap, indirect windows.
//!
//! Source: `nbio_7_4_offset.h`, `nbio_7_4_sh_mask.h`, `nbio_v7_4.c`. gfx942 (NBIO 7.9) keeps segment
//! 2 but routes doorbells through other registers.

use super::super::bits::fields;
use super::{
    regs,
    Reg, //
};

/// Dword base of segment 0.
pub(crate) const SEG0: u32 = 0x0;
/// Dword base of segment 1.
pub(crate) const SEG1: u32 = 0x14;
/// Dword base of segment 2.
pub(crate) const SEG2: u32 = 0xD20;

/// Byte in BAR5: low address of the indirect VRAM window.
pub(crate) const MM_INDEX: Reg = Reg::new(SEG0, 0);
/// Data of the indirect VRAM window.
pub(crate) const MM_DATA: Reg = Reg::new(SEG0, 1);
/// High address of the indirect VRAM window.
pub(crate) const MM_INDEX_HI: Reg = Reg::new(SEG0, 6);
/// Byte address of the register behind [`PCIE_DATA2`].
pub(crate) const PCIE_INDEX2: Reg = Reg::new(SEG0, 0xE);
/// The register named by [`PCIE_INDEX2`].
pub(crate) const PCIE_DATA2: Reg = Reg::new(SEG0, 0xF);

regs! { SEG2;
    /// Silicon revision in bits 27 to 24 (gfx906).
    RCC_DEV0_EPF0_STRAP0_GFX906 = 0x11;
    /// Silicon revision in bits 27 to 24 (gfx90a).
    RCC_DEV0_EPF0_STRAP0_GFX90A = 0x15;
    /// Bit 0: BAR2 decodes doorbells.
    RCC_DOORBELL_APER_EN = 0xC0;
    /// VRAM size in MiB; all ones while the device is in reset.
    RCC_CONFIG_MEMSIZE = 0xC3;
    /// See [`InterruptCntl`].
    INTERRUPT_CNTL = 0xF1;
    /// Bus address >> 8 of a page that the interrupt block may read.
    INTERRUPT_CNTL2 = 0xF2;
    /// High half of the self-ring aperture.
    DOORBELL_SELFRING_GPA_APER_BASE_HIGH = 0xF3;
    /// Low half of the self-ring aperture, the bus address of BAR2.
    DOORBELL_SELFRING_GPA_APER_BASE_LOW = 0xF4;
    /// See [`SelfringCntl`].
    DOORBELL_SELFRING_GPA_APER_CNTL = 0xF5;
    /// Writing 0 flushes the HDP, where no remap is set.
    HDP_MEM_COHERENCY_FLUSH_CNTL = 0xF7;
    /// See [`FbEn`].
    BIF_FB_EN = 0xFF;
    /// HDP flush requests, a bit per client, see [`hdp_flush_sdma`].
    GPU_HDP_FLUSH_REQ = 0x106;
    /// Mirrors GPU_HDP_FLUSH_REQ when done.
    GPU_HDP_FLUSH_DONE = 0x107;
    /// Byte in BAR5 at which the memory flush register appears once more.
    REMAP_HDP_MEM_FLUSH_CNTL = 0x12D;
    /// Byte in BAR5 at which the register flush register appears once more.
    REMAP_HDP_REG_FLUSH_CNTL = 0x12E;
    /// See [`DoorbellRange`].
    BIF_SDMA0_DOORBELL_RANGE = 0x1D0;
    /// See [`DoorbellRange`].
    BIF_SDMA1_DOORBELL_RANGE = 0x1D1;
    /// See [`DoorbellRange`].
    BIF_IH_DOORBELL_RANGE = 0x1D2;
    /// See [`DoorbellRange`].
    BIF_SDMA2_DOORBELL_RANGE = 0x1D6;
    /// See [`DoorbellRange`].
    BIF_SDMA3_DOORBELL_RANGE = 0x1D7;
    /// See [`DoorbellRange`]; gfx90a only, Arcturus has it one dword before.
    BIF_SDMA4_DOORBELL_RANGE = 0x1D9;
}

/// RCC_CONFIG_MEMSIZE of a device that is in reset or gone.
pub(crate) const MEMSIZE_DEAD: u32 = u32::MAX;

/// VRAM bytes from RCC_CONFIG_MEMSIZE; `None` if the device does not answer or reports nothing.
pub(crate) const fn vram_bytes(memsize: u32) -> Option<u64> {
    if memsize == MEMSIZE_DEAD || memsize == 0 {
        None
    } else {
        Some(super::super::num::widen(memsize) << 20)
    }
}

/// Doorbell range registers of the SDMA engines in engine order.
pub(crate) const SDMA_DOORBELL_RANGE: [Reg; 5] = [
    BIF_SDMA0_DOORBELL_RANGE,
    BIF_SDMA1_DOORBELL_RANGE,
    BIF_SDMA2_DOORBELL_RANGE,
    BIF_SDMA3_DOORBELL_RANGE,
    BIF_SDMA4_DOORBELL_RANGE,
];

/// Bit of SDMA engine `engine` in GPU_HDP_FLUSH_REQ and DONE.
pub(crate) const fn hdp_flush_sdma(engine: u32) -> u32 {
    1 << (10 + (engine & 0xf))
}

fields! {
    /// BIF_*_DOORBELL_RANGE: routes doorbells of a block.
    pub(crate) struct DoorbellRange {
        /// First doorbell, dword index.
        OFFSET [11:2];
        /// Doorbells in dwords; 0 routes nothing.
        SIZE [20:16];
    }
}

fields! {
    /// INTERRUPT_CNTL.
    pub(crate) struct InterruptCntl {
        /// Read the dummy page even when interrupts are off.
        IH_DUMMY_RD_OVERRIDE [0:0];
        /// Non-snooped writes.
        IH_REQ_NONSNOOP_EN [3:3];
        /// Generic interrupts.
        GEN_IH_INT_EN [8:8];
    }
}

fields! {
    /// DOORBELL_SELFRING_GPA_APER_CNTL.
    pub(crate) struct SelfringCntl {
        /// Aperture in use.
        EN [0:0];
        /// 1 as in the kernel.
        MODE [1:1];
        /// Size code.
        SIZE [19:8];
    }
}

fields! {
    /// BIF_FB_EN.
    pub(crate) struct FbEn {
        /// Reads of BAR0 reach VRAM.
        READ [0:0];
        /// Writes of BAR0 reach VRAM.
        WRITE [1:1];
    }
}

impl FbEn {
    /// Both directions: 3.
    pub(crate) const ON: Self = Self::new().with(Self::READ, 1).with(Self::WRITE, 1);
}
