// SPDX-License-Identifier: GPL-2.0

//! Resets of the whole device.
//!
//! There are two, and the gentler one comes first:
//!
//! - [`engines`] resets the command processor and stops the copy engines. Memory, translation and
//!   interrupts stay, so the driver stays bound and everything that was allocated stays valid.
//!   Source: `gfx_v9_0.c` (`soft_reset`). It is the same on all ASICs. A copy engine that is in the middle of a packet
//!   is reset in addition, see [`sdma::reset`]; only gfx90a has a bit for that.
//! - [`mode1`] resets the whole chip, and all its memory is lost. It is done between two lives,
//!   never under users: the driver is unbound from the device, the last act of the old
//!   [`Gpu`](super::Gpu) is this reset, and a new probe finds the device as after power-on. Where an
//!   earlier driver left an engine at work that nothing else stops it is the first act of the new one.
//!   gfx90a takes it as a message to the power controller, gfx906 as a command of the security
//!   processor. Source: `aldebaran_ppt.c`, `psp_v11_0.c`, `amdgpu_device.c`
//!   (`amdgpu_device_mode1_reset`). Upstream prefers BACO on gfx906 where the power controller's
//!   firmware can do it, and mode 2 on a gfx90a whose CPU hangs on XGMI; neither exists here.

use kernel::{
    prelude::*,
    time::{
        delay::fsleep,
        Delta, //
    },
};

use super::{
    access::Hw,
    sdma,
    smu, //
};
use crate::{
    hw::{
        regs::{
            gc::{
                self,
                CpMecCntl,
                GrbmSoftReset, //
            },
            mp::{
                MP0_SMN_C2PMSG_64,
                PSP_MODE1_RESET,
                READY, //
            },
        },
        timeouts::{
            BOOT_READY_MS,
            MODE1_SETTLE_MS,
            RESET_READY_MS, //
        }, //
    },
    kapi::pci::SavedState, //
};

/// Resets the device behind `hw`, which must be the only access to it, and leaves it without bus
/// mastering. Sleeps for a second or so.
///
/// # Errors
///
/// `EIO` if the device does not answer before, `ETIMEDOUT` if not afterwards, or if it is as it was.
pub(super) fn mode1(hw: &Hw) -> Result {
    hw.check_alive()?;
    let saved = SavedState::new(hw.pdev())?;
    hw.write(gc::SCRATCH_REG7, NOT_RESET);
    if hw.asic().reset_by_smu {
        smu::reset(hw);
    } else {
        hw.poll(MP0_SMN_C2PMSG_64, READY, READY, BOOT_READY_MS * 1000)?;
        hw.write(MP0_SMN_C2PMSG_64, PSP_MODE1_RESET);
    }
    fsleep(Delta::from_millis(i64::from(MODE1_SETTLE_MS)));
    drop(saved);
    hw.wait_for_answer(RESET_READY_MS * 1000)?;
    match hw.read(gc::SCRATCH_REG7) {
        NOT_RESET => Err(ETIMEDOUT),
        _ => Ok(()),
    }
}

/// What a register that is not used holds for as long as the chip is not reset.
const NOT_RESET: u32 = 0x5e7_d0e5;

/// Time that the bits of GRBM_SOFT_RESET stay set, and that the blocks get afterwards.
const SOFT_RESET_US: i64 = 50;

/// Resets compute and stops the copy engines; both must be started anew. No user queue may be
/// needed any more.
///
/// # Errors
///
/// `EIO` if the device does not answer afterwards.
pub(super) fn engines(hw: &Hw) -> Result {
    sdma::halt(hw);
    compute(hw)
}

/// Resets compute, with the scheduler firmware, and leaves the copy engines alone.
///
/// # Errors
///
/// As [`engines`].
pub(super) fn compute(hw: &Hw) -> Result {
    hw.write(gc::RLC_CNTL, 0);
    hw.write(gc::CP_MEC_CNTL, CpMecCntl::HALT.raw());
    let blocks = GrbmSoftReset::new()
        .with(GrbmSoftReset::CP, 1)
        .with(GrbmSoftReset::CPC, 1)
        .with(GrbmSoftReset::GFX, 1)
        .raw();
    for change in [
        |raw, blocks| raw | blocks,
        |raw: u32, blocks: u32| raw & !blocks,
    ] {
        hw.modify(gc::GRBM_SOFT_RESET, |raw| change(raw, blocks));
        let _ = hw.read(gc::GRBM_SOFT_RESET);
        fsleep(Delta::from_micros(SOFT_RESET_US));
    }
    hw.check_alive()
}
