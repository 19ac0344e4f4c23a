// SPDX-License-Identifier: GPL-2.0

//! The graphics and compute block: per-VMID state, RLC, and the micro engines.
//!
//! Source: `gfx_v9_0.c` (`constants_init`, `init_compute_vmid`, `rlc_start`, `cp_compute_enable`).

use kernel::prelude::*;

use super::access::Hw;
use crate::hw::{
    asic::VMIDS,
    num::join,
    regs::{
        gc::{
            self,
            CpInt,
            CpMecCntl,
            CpcInt,
            GrbmGfxCntl,
            MecDoorbellRange,
            PqStatus,
            RlcSafeMode,
            ShMemBases,
            ShMemConfig,
            SpiGdbgPerVmid, //
        },
        hqd::{
            self,
            HqdActive,
            Slot,
            PIPES_PER_MEC, //
        }, //
    },
    timeouts::RLC_SAFE_MODE_MS, //
};

/// GRBM_CNTL.READ_TIMEOUT.
const GRBM_READ_TIMEOUT: u32 = 0xff;
/// RLC_CNTL.RLC_ENABLE_F32.
const RLC_ENABLE_F32: u32 = 1;
/// RLC_SPM_MC_CNTL: VMID that no user has.
const RLC_SPM_VMID: u32 = 0xf;
/// MEC1, the micro engine of user queues.
const ME: u32 = 1;

/// Bits of GB_ADDR_CONFIG that the driver sets, and to what, whatever the device was posted with
/// (`gfx_v9_0_gpu_early_init`; the same for both ASICs).
const GB_ADDR_CONFIG_MASK: u32 = 0xf3e7_77ff;
const GB_ADDR_CONFIG_GOLDEN: u32 = 0x2201_4042;

/// How addresses of images are swizzled: pipes, banks, shader engines.
///
/// # Errors
///
/// `EIO` if the device is lost.
pub(crate) fn gb_addr_config(hw: &Hw) -> Result<u32> {
    let posted = hw.read(gc::GB_ADDR_CONFIG);
    if hw.is_lost() {
        return Err(EIO);
    }
    Ok(posted & !GB_ADDR_CONFIG_MASK | GB_ADDR_CONFIG_GOLDEN)
}

/// Starts what compute needs: per-VMID defaults, RLC, micro engines and their interrupts.
pub(super) fn start(hw: &Hw, xnack: bool) {
    let asic = hw.asic();
    hw.modify(gc::GRBM_CNTL, |raw| raw & !0xff | GRBM_READ_TIMEOUT);

    let config = ShMemConfig::for_xnack(xnack).raw();
    for vmid in 0..VMIDS {
        let _bank = hw.select(GrbmGfxCntl::new().with(GrbmGfxCntl::VMID, vmid));
        let bases = if vmid == 0 {
            ShMemBases::new()
        } else {
            ShMemBases::INITIAL
        };
        hw.write(gc::SH_MEM_CONFIG, config);
        hw.write(gc::SH_MEM_BASES, bases.raw());
        if asic.per_vmid_debug && asic.owns_vmid(vmid) {
            // Exceptions of waves reach the trap handler.
            hw.write(
                gc::SPI_GDBG_PER_VMID_CNTL,
                SpiGdbgPerVmid::new().with(SpiGdbgPerVmid::TRAP_EN, 1).raw(),
            );
        }
    }
    // No VMID owns global data share until the scheduler assigns it.
    for vmid in 1..VMIDS {
        hw.write_pair(gc::gds_base(vmid), 0);
        hw.write(gc::gds_gws(vmid), 0);
        hw.write(gc::gds_oa(vmid), 0);
    }

    hw.write(gc::RLC_CNTL, RLC_ENABLE_F32);
    hw.write(gc::RLC_SPM_MC_CNTL, RLC_SPM_VMID);
    hw.write(gc::CP_MEC_CNTL, CpMecCntl::RUN.raw());
    for pipe in 0..PIPES_PER_MEC {
        let bank = GrbmGfxCntl::new()
            .with(GrbmGfxCntl::MEID, ME)
            .with(GrbmGfxCntl::PIPEID, pipe);
        let _bank = hw.select(bank);
        hw.write(gc::CPC_INT_CNTL, CpcInt::DRIVER.raw());
    }
    // Any process can store to doorbells that no queue has, as fast as it likes. Each would raise an interrupt that
    // names neither its owner nor the doorbell.
    hw.modify(gc::CP_INT_CNTL_RING0, |raw| {
        CpInt::from_raw(raw).with(CpInt::CP_VM_DOORBELL_WR, 0).raw()
    });
}

/// Lets doorbells wake the micro engines, after a queue is there to be woken.
pub(super) fn enable_doorbells(hw: &Hw) {
    hw.modify(gc::CP_PQ_STATUS, |raw| {
        PqStatus::from_raw(raw)
            .with(PqStatus::DOORBELL_ENABLE, 1)
            .raw()
    });
}

/// Sets the range of doorbells that wake the micro engines from power gating.
pub(super) fn doorbell_range(hw: &Hw) {
    let [lower, upper] = hw.asic().doorbell.mec_range();
    let mask = MecDoorbellRange::DOORBELL.mask();
    hw.write(gc::CP_MEC_DOORBELL_RANGE_LOWER, lower & mask);
    hw.write(gc::CP_MEC_DOORBELL_RANGE_UPPER, upper & mask);
}

/// Stops the micro engines with all their queues, as a last resort or at removal.
pub(super) fn halt(hw: &Hw) {
    for pipe in 0..PIPES_PER_MEC {
        let bank = GrbmGfxCntl::new()
            .with(GrbmGfxCntl::MEID, ME)
            .with(GrbmGfxCntl::PIPEID, pipe);
        let _bank = hw.select(bank);
        hw.write(gc::CPC_INT_CNTL, 0);
    }
    hw.modify(gc::CP_PQ_STATUS, |raw| {
        PqStatus::from_raw(raw)
            .with(PqStatus::DOORBELL_ENABLE, 0)
            .raw()
    });
    hw.write(gc::CP_MEC_CNTL, CpMecCntl::HALT.raw());
}

/// Resets the queue in `slot`, whatever it does, and waits until the slot is free. Sleeps.
///
/// Source: `amdgpu_amdkfd_gfx_v9.c` (`hqd_reset`), `gfx_v9_0.c` (`set_safe_mode`).
///
/// # Errors
///
/// Those of [`Hw::wait`].
pub(crate) fn reset_queue(hw: &Hw, slot: Slot, timeout_us: u32) -> Result {
    hw.write(gc::RLC_SAFE_MODE, RlcSafeMode::ENTER.raw());
    let entered = hw.poll(
        gc::RLC_SAFE_MODE,
        RlcSafeMode::CMD.mask(),
        0,
        RLC_SAFE_MODE_MS * 1000,
    );
    // An RLC that does not answer is no reason not to try.
    if entered.is_err() {
        dev_warn!(hw.dev(), "the RLC does not enter safe mode\n");
    }
    {
        let _bank = hw.select(slot.select());
        hw.write(gc::SPI_COMPUTE_QUEUE_RESET, 1);
    }
    let done = wait_free(hw, slot, timeout_us);
    hw.write(gc::RLC_SAFE_MODE, RlcSafeMode::LEAVE.raw());
    done
}

/// Waits until no queue is in `slot`. Others may select banks in between: they must not wait for a
/// queue that takes seconds. Sleeps.
///
/// # Errors
///
/// Those of [`Hw::wait`].
pub(super) fn wait_free(hw: &Hw, slot: Slot, timeout_us: u32) -> Result {
    hw.wait(timeout_us, || {
        let _bank = hw.select(slot.select());
        let active = HqdActive::from_raw(hw.read(hqd::CP_HQD_ACTIVE));
        Ok((!active.is_set(HqdActive::ACTIVE)).then_some(()))
    })
}

/// The GPU's free-running clock.
///
/// # Errors
///
/// `EIO` if the device is lost.
pub(super) fn clock(hw: &Hw) -> Result<u64> {
    // One capture at a time: the bank lock serves, for the capture register is as shared.
    let _bank = hw.select(GrbmGfxCntl::new());
    hw.write(gc::RLC_CAPTURE_GPU_CLOCK_COUNT, 1);
    let lo = hw.read(gc::RLC_GPU_CLOCK_COUNT_LSB);
    let hi = hw.read(gc::RLC_GPU_CLOCK_COUNT_MSB);
    if hw.is_lost() {
        return Err(EIO);
    }
    Ok(join(lo, hi))
}
