// SPDX-License-Identifier: GPL-2.0

//! The two translation hubs: programming at probe, and TLB invalidation by register.
//!
//! Order of the steps: `gfxhub_v1_0.c`, `mmhub_v1_7.c`, `gmc_v9_0.c`.

use kernel::prelude::*;

use super::access::Hw;
use crate::hw::{
    asic::VMIDS,
    pte::{
        Flavour,
        MAX_PFN, //
    },
    regs::{
        athub,
        hub::{
            fb_address,
            fb_top,
            page_words,
            ContextCntl,
            FaultCntl,
            FaultCntl2,
            FaultStatus,
            FlushType,
            HubLayout,
            InvalidateReq,
            L1TlbCntl,
            L2Cntl,
            L2Cntl2,
            L2Cntl3,
            L2Cntl4,
            AGP_BOT_OFF,
            APERTURE_SHIFT,
            DRIVER_ENGINE,
            INVALIDATE_ENGINES,
            RANGE_ALL, //
        }, //
    },
    timeouts::TLB_FLUSH_MS, //
};
use crate::kapi::log::dev_limited;

/// Where VRAM is, as firmware has set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FbLocation {
    /// First GPU address of VRAM.
    pub(crate) base: u64,
    /// Last GPU address of VRAM.
    pub(crate) top: u64,
    /// What page tables count VRAM from.
    pub(crate) offset: u64,
}

/// What is wrong with the location of VRAM that a device reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misplaced {
    /// The two hubs do not name the same place.
    Disagree,
    /// The registers are not set.
    Unset,
    /// The end lies before the start, or the place is too small.
    TooSmall,
    /// The end lies beyond what hubs or page tables can address.
    TooHigh,
}

impl Misplaced {
    const fn text(self) -> &'static str {
        match self {
            Self::Disagree => "the hubs disagree",
            Self::Unset => "it is not set; was the device posted?",
            Self::TooSmall => "it does not hold all of VRAM",
            Self::TooHigh => "it ends beyond 48 bits",
        }
    }
}

/// Judges where two hubs place `vram` bytes of VRAM, each as base and last address, and what page
/// tables count from.
///
/// # Errors
///
/// Why it cannot be so.
pub(crate) fn judge(
    gfx: (u64, u64),
    mm: (u64, u64),
    offset: u64,
    vram: u64,
) -> Result<FbLocation, Misplaced> {
    let (base, top) = mm;
    if gfx != mm {
        return Err(Misplaced::Disagree);
    }
    if base == 0 && top == fb_top(0) {
        return Err(Misplaced::Unset);
    }
    let last = vram.saturating_sub(1);
    if top.checked_sub(base).is_none_or(|room| room < last) {
        return Err(Misplaced::TooSmall);
    }
    // Page tables carry addresses of 48 bits.
    let fits = |start: u64| start.checked_add(last).is_some_and(|end| end < 1 << 48);
    if !fits(base) || !fits(offset) {
        return Err(Misplaced::TooHigh);
    }
    Ok(FbLocation { base, top, offset })
}

/// Reads the location of VRAM from the registers.
///
/// # Errors
///
/// `EIO` if it cannot be so, see [`Misplaced`]: firmware has not run, or the device is broken.
pub(super) fn fb_location(hw: &Hw, vram: u64) -> Result<FbLocation> {
    let [gfx, mm] = hw.asic().hubs();
    let read = |hub: &HubLayout| {
        (
            fb_address(hw.read(hub.fb_location_base())),
            fb_top(hw.read(hub.fb_location_top())),
        )
    };
    let (of_gfx, of_mm) = (read(gfx), read(mm));
    let offset = fb_address(hw.read(gfx.fb_offset()));
    hw.check_alive()?;
    judge(of_gfx, of_mm, offset, vram).map_err(|wrong| {
        dev_err!(
            hw.dev(),
            "place of {} MiB of VRAM: {}; {} {:#x}..{:#x}, {} {:#x}..{:#x}, offset {:#x}\n",
            vram >> 20,
            wrong.text(),
            mm.name,
            of_mm.0,
            of_mm.1,
            gfx.name,
            of_gfx.0,
            of_gfx.1,
            offset
        );
        EIO
    })
}

/// Addresses that the hubs need.
pub(super) struct HubSetup {
    /// VRAM.
    pub(super) fb: FbLocation,
    /// First address of the GART window.
    pub(super) gart_start: u64,
    /// Last address of the GART window.
    pub(super) gart_end: u64,
    /// GART table, as an entry-like value with the valid bit.
    pub(super) gart_base: u64,
    /// Page in VRAM that stands in for system aperture accesses to nowhere, as page tables count.
    pub(super) scratch_page: u64,
    /// Bus address of a page in system memory that answers faulting accesses.
    pub(super) dummy_page: u64,
    /// Missing pages are retried where a VMID allows it.
    pub(super) retry: bool,
}

/// Sends faulting accesses to the default page instead of stopping the hub.
pub(super) fn enable_fault_defaults(hw: &Hw) {
    for hub in hw.asic().hubs() {
        hw.modify(hub.fault_cntl(), |raw| {
            FaultCntl::from_raw(raw).with_defaults().raw()
        });
    }
}

/// Programs both hubs: VMID 0 sees VRAM and the GART, VMIDs 1 to 15 expect page tables.
pub(super) fn program(hw: &Hw, setup: &HubSetup) {
    for hub in hw.asic().hubs() {
        program_one(hw, hub, setup);
    }
}

fn program_one(hw: &Hw, hub: &HubLayout, setup: &HubSetup) {
    let asic = hw.asic();
    let write_page = |reg, address| {
        let [lo, hi] = page_words(address);
        hw.write(reg, lo);
        hw.write(crate::hw::regs::Reg::nth(reg, 1), hi);
    };
    let shifted = |address: u64, shift: u32| crate::hw::num::lo32(address >> shift);

    // GART.
    hw.write_pair(hub.page_table_base(0), setup.gart_base);
    write_page(hub.page_table_start(0), setup.gart_start);
    write_page(hub.page_table_end(0), setup.gart_end);

    // System aperture: VRAM, no AGP.
    hw.write(hub.agp_base(), 0);
    hw.write(hub.agp_bot(), AGP_BOT_OFF);
    hw.write(hub.agp_top(), 0);
    hw.write(hub.aperture_low(), shifted(setup.fb.base, APERTURE_SHIFT));
    hw.write(hub.aperture_high(), shifted(setup.fb.top, APERTURE_SHIFT));
    hw.write_pair(hub.aperture_default_addr(), setup.scratch_page >> 12);
    hw.write_pair(hub.fault_default_addr(), setup.dummy_page >> 12);
    hw.modify(hub.fault_cntl2(), |raw| {
        FaultCntl2::from_raw(raw)
            .with(FaultCntl2::ACTIVE_PAGE_MIGRATION_PTE_READ_RETRY, 1)
            .raw()
    });

    // Caches.
    hw.write(hub.l1_tlb_cntl(), L1TlbCntl::DRIVER.raw());
    hw.modify(hub.l2_cntl(), |raw| L2Cntl::from_raw(raw).enabled().raw());
    hw.modify(hub.l2_cntl2(), |raw| raw | L2Cntl2::INVALIDATE.raw());
    let further = asic.pte == Flavour::TranslateFurther;
    hw.write(hub.l2_cntl3(), L2Cntl3::driver(further).raw());
    hw.write(hub.l2_cntl4(), L2Cntl4::DRIVER.raw());

    // VMID 0.
    hw.write(hub.context_cntl(0), ContextCntl::KERNEL.raw());

    // No identity mapping.
    write_page(hub.identity_low(), u64::MAX >> 16 & !0xfff);
    write_page(hub.identity_high(), 0);
    write_page(hub.identity_offset(), 0);

    // VMIDs of users; the scheduler only changes the base.
    let context = ContextCntl::user(
        asic.pte.page_table_depth(),
        asic.pte.block_size(),
        setup.retry,
    );
    for vmid in 1..VMIDS {
        hw.write(hub.context_cntl(vmid), context.raw());
        write_page(hub.page_table_start(vmid), 0);
        write_page(hub.page_table_end(vmid), (MAX_PFN - 1) << 12);
    }
}

/// Lets invalidations cover everything; before the first one. At power-on their range is empty.
pub(super) fn cover_all(hw: &Hw) {
    for hub in hw.asic().hubs() {
        for engine in 0..INVALIDATE_ENGINES {
            hw.write(hub.invalidate_range(engine), RANGE_ALL[0]);
            hw.write(hub.invalidate_range(engine).nth(1), RANGE_ALL[1]);
        }
    }
}

/// Lets faults of all VMIDs raise interrupts; after the interrupt rings are up.
pub(super) fn enable_fault_interrupts(hw: &Hw, retry: bool) {
    let pte = hw.asic().pte;
    let user = ContextCntl::user(pte.page_table_depth(), pte.block_size(), retry);
    for hub in hw.asic().hubs() {
        hw.write(
            hub.context_cntl(0),
            ContextCntl::KERNEL.with_interrupts().raw(),
        );
        for vmid in 1..VMIDS {
            hw.write(hub.context_cntl(vmid), user.with_interrupts().raw());
        }
    }
}

/// The fault that a hub has latched since the last call, if any; clears it.
pub(super) fn take_fault_status(hw: &Hw, hub: &HubLayout) -> Option<FaultStatus> {
    let status = hw.read(hub.fault_status());
    if status == 0 || status == u32::MAX {
        return None;
    }
    hw.modify(hub.fault_cntl(), |raw| {
        FaultCntl::from_raw(raw)
            .with(FaultCntl::CLEAR_STATUS, 1)
            .raw()
    });
    Some(FaultStatus::from_raw(status))
}

/// Turns translation and fault interrupts off, at removal.
pub(super) fn quiesce(hw: &Hw) {
    for hub in hw.asic().hubs() {
        for vmid in 0..VMIDS {
            hw.write(hub.context_cntl(vmid), 0);
        }
        hw.modify(hub.l1_tlb_cntl(), |raw| {
            L1TlbCntl::from_raw(raw)
                .with(L1TlbCntl::ENABLE_L1_TLB, 0)
                .raw()
        });
        hw.modify(hub.l2_cntl(), |raw| {
            L2Cntl::from_raw(raw).with(L2Cntl::ENABLE_L2_CACHE, 0).raw()
        });
    }
}

/// Drops what both hubs cache for `vmid`. Sleeps.
///
/// # Errors
///
/// `ETIMEDOUT` if a hub does not answer, `EIO` if the device is lost.
pub(super) fn flush_vmid(hw: &Hw, vmid: u32, kind: FlushType) -> Result {
    let _lock = hw.tlb_lock();
    for hub in hw.asic().hubs() {
        flush_one(hw, hub, vmid, kind).inspect_err(|e| {
            dev_limited!(
                dev_err,
                hw.dev(),
                "{} does not answer a TLB flush of VMID {}: {:?}\n",
                hub.name,
                vmid,
                e
            )
        })?;
    }
    Ok(())
}

fn flush_one(hw: &Hw, hub: &HubLayout, vmid: u32, kind: FlushType) -> Result {
    let timeout = TLB_FLUSH_MS * 1000;
    let engine = DRIVER_ENGINE;
    if hub.flush_needs_semaphore {
        hw.poll(hub.invalidate_sem(engine), 1, 1, timeout)?;
    }
    let request = InvalidateReq::vmid(vmid, kind);
    hw.write(hub.invalidate_req(engine), request.raw());
    if hub.flush_needs_readback {
        let _ = hw.read(hub.invalidate_req(engine));
    }
    let bit = request.get(InvalidateReq::PER_VMID);
    let done = hw.poll(hub.invalidate_ack(engine), bit, bit, timeout);
    if hub.flush_needs_semaphore {
        hw.write(hub.invalidate_sem(engine), 0);
    }
    done.map(|_| ())
}

/// VMIDs that stand for `pasid` at the moment, one bit each.
pub(super) fn vmids_of(hw: &Hw, pasid: u16) -> u16 {
    let mut mask = 0;
    for vmid in 1..VMIDS {
        let mapping = athub::PasidMapping::from_raw(hw.read(athub::pasid_mapping(vmid)));
        if mapping.maps(pasid) {
            mask |= 1 << vmid;
        }
    }
    if hw.is_lost() {
        return 0;
    }
    mask
}
