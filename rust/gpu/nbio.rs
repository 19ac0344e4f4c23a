// SPDX-License-Identifier: GPL-2.0

//! Bus interface and host data path: what lets the CPU reach VRAM and doorbells reach their block.
//!
//! Source: `nbio_v7_4.c`, `hdp_v4_0.c`, `amdgpu_device.c`.

use kernel::prelude::*;

use super::access::Hw;
use crate::hw::{
    num::{
        hi32,
        lo32, //
    },
    regs::{
        hdp::{
            self,
            MiscCntl, //
        },
        nbio::{
            self,
            DoorbellRange,
            FbEn,
            InterruptCntl,
            SelfringCntl, //
        },
        Reg, //
    }, //
};

/// VRAM bytes as the device reports them.
///
/// # Errors
///
/// `EIO` if it reports nothing, or does not answer: not posted, in reset, or gone.
pub(super) fn vram_size(hw: &Hw) -> Result<u64> {
    let raw = hw.read(nbio::RCC_CONFIG_MEMSIZE);
    nbio::vram_bytes(raw).ok_or_else(|| {
        dev_err!(
            hw.dev(),
            "RCC_CONFIG_MEMSIZE reads {:#x}; the device is not posted, in reset or gone\n",
            raw
        );
        EIO
    })
}

/// Silicon revision.
pub(super) fn revision(hw: &Hw) -> u32 {
    hw.read(hw.asic().revision) >> 24 & 0xf
}

/// Opens BAR0 and BAR2 and routes the doorbells of SDMA engines and interrupt rings.
///
/// # Errors
///
/// `ENODEV` if the ASIC description names more SDMA engines than there are range registers.
pub(super) fn init(hw: &Hw) -> Result {
    let asic = hw.asic();
    hw.modify(nbio::BIF_FB_EN, |raw| raw | FbEn::ON.raw());

    // The flush registers re-appear in a page of their own, which user space may map.
    let remap = asic.hdp_remap;
    hw.write(nbio::REMAP_HDP_MEM_FLUSH_CNTL, remap + hdp::REMAP_MEM_FLUSH);
    hw.write(nbio::REMAP_HDP_REG_FLUSH_CNTL, remap + hdp::REMAP_REG_FLUSH);

    hw.write(nbio::RCC_DOORBELL_APER_EN, 1);
    let bar = hw.doorbell_bus_addr();
    hw.write(nbio::DOORBELL_SELFRING_GPA_APER_BASE_LOW, lo32(bar));
    hw.write(nbio::DOORBELL_SELFRING_GPA_APER_BASE_HIGH, hi32(bar));
    hw.write(
        nbio::DOORBELL_SELFRING_GPA_APER_CNTL,
        SelfringCntl::new()
            .with(SelfringCntl::EN, 1)
            .with(SelfringCntl::MODE, 1)
            .raw(),
    );
    for engine in 0..asic.sdma_engines() {
        let reg = sdma_range(engine).ok_or(ENODEV)?;
        hw.write(reg, asic.doorbell.sdma_range(engine).raw());
    }
    hw.write(nbio::BIF_IH_DOORBELL_RANGE, asic.doorbell.ih_range().raw());
    Ok(())
}

fn sdma_range(engine: u32) -> Option<Reg> {
    nbio::SDMA_DOORBELL_RANGE
        .get(crate::hw::num::index(engine))
        .copied()
}

/// Disables the doorbell aperture.
pub(super) fn shutdown(hw: &Hw) {
    for engine in 0..hw.asic().sdma_engines() {
        if let Some(reg) = sdma_range(engine) {
            hw.write(reg, DoorbellRange::new().raw());
        }
    }
    hw.write(nbio::BIF_IH_DOORBELL_RANGE, DoorbellRange::new().raw());
    hw.write(nbio::DOORBELL_SELFRING_GPA_APER_CNTL, 0);
    hw.write(nbio::RCC_DOORBELL_APER_EN, 0);
}

/// Sets the host data path up for VRAM at GPU address `fb_base`.
pub(super) fn hdp_init(hw: &Hw, fb_base: u64) {
    let watermark = hw.asic().hdp_watermark;
    hw.modify(hdp::HDP_MISC_CNTL, |raw| {
        let mut value = MiscCntl::from_raw(raw).with(MiscCntl::FLUSH_INVALIDATE_CACHE, 1);
        if let Some(level) = watermark {
            value = value.with(MiscCntl::READ_BUFFER_WATERMARK, level);
        }
        value.raw()
    });
    hw.write(hdp::HDP_NONSURFACE_BASE, lo32(fb_base >> 8));
    hw.write(hdp::HDP_NONSURFACE_BASE_HI, lo32(fb_base >> 40));
    hw.hdp_flush();
}

/// Sets the page that the interrupt handler reads when it has nothing to do.
pub(super) fn ih_control(hw: &Hw, dummy_page: u64) {
    hw.write(nbio::INTERRUPT_CNTL2, lo32(dummy_page >> 8));
    hw.modify(nbio::INTERRUPT_CNTL, |raw| {
        InterruptCntl::from_raw(raw)
            .with(InterruptCntl::IH_DUMMY_RD_OVERRIDE, 0)
            .with(InterruptCntl::IH_REQ_NONSNOOP_EN, 0)
            .raw()
    });
}
