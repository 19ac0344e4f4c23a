// SPDX-License-Identifier: GPL-2.0

//! Reset of a device that nobody uses any more.
//!
//! A GPU is reset between two lives, never under its users: the driver is unbound from the device,
//! the last act of the old [`Gpu`](super::Gpu) is this reset, and a new probe finds the device as
//! after power-on. All memory of the device is lost; processes were told when it went.
//!
//! The reset is mode 1, of the whole chip. gfx90a takes it as a message to the power controller,
//! gfx906 as a command of the security processor. Source: `aldebaran_ppt.c`, `psp_v11_0.c`,
//! `amdgpu_device.c` (`amdgpu_device_mode1_reset`).

use kernel::{
    prelude::*,
    time::{
        delay::fsleep,
        Delta, //
    },
};

use super::access::Hw;
use crate::{
    hw::{
        regs::mp::{
            MP0_SMN_C2PMSG_64,
            MP1_SMN_C2PMSG_66,
            MP1_SMN_C2PMSG_82,
            MP1_SMN_C2PMSG_90,
            PSP_MODE1_RESET,
            READY,
            SMU_MSG_GFX_DEVICE_DRIVER_RESET,
            SMU_RESET_MODE1, //
        },
        timeouts::{
            BOOT_READY_MS,
            MODE1_SETTLE_MS,
            RESET_READY_MS, //
        }, //
    },
    kapi::pci::SavedState, //
};

/// Resets the device behind `hw`, which must be the only access to it. Sleeps for a second or so.
///
/// # Errors
///
/// `EIO` if the device does not answer before, `ETIMEDOUT` if not afterwards.
pub(super) fn mode1(hw: &Hw) -> Result {
    hw.check_alive()?;
    let saved = SavedState::new(hw.pdev())?;
    if hw.asic().reset_by_smu {
        // The controller resets itself with the rest, so no response can be waited for.
        hw.write(MP1_SMN_C2PMSG_90, 0);
        hw.write(MP1_SMN_C2PMSG_82, SMU_RESET_MODE1);
        hw.write(MP1_SMN_C2PMSG_66, SMU_MSG_GFX_DEVICE_DRIVER_RESET);
    } else {
        hw.poll(MP0_SMN_C2PMSG_64, READY, READY, BOOT_READY_MS * 1000)?;
        hw.write(MP0_SMN_C2PMSG_64, PSP_MODE1_RESET);
    }
    fsleep(Delta::from_millis(i64::from(MODE1_SETTLE_MS)));
    drop(saved);
    hw.wait_for_answer(RESET_READY_MS * 1000)
}
