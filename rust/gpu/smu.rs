// SPDX-License-Identifier: GPL-2.0

//! The power controller (SMU): messages through its mailbox.
//!
//! Source: `vega20_smumgr.c`, `smu_cmn.c`, `aldebaran_ppt.c`.

use kernel::prelude::*;

use super::access::Hw;
use crate::hw::{
    regs::{
        mp::{
            MP1_SMN_C2PMSG_66,
            MP1_SMN_C2PMSG_82,
            MP1_SMN_C2PMSG_90,
            SMU_MSG_GFX_DEVICE_DRIVER_RESET,
            SMU_OK,
            SMU_RESET_MODE1, //
        }, //
    },
    timeouts::SMU_MS, //
};

/// Sends message `id`; no caller may wait for an answer to another one.
fn send(hw: &Hw, id: u32, argument: u32) {
    hw.write(MP1_SMN_C2PMSG_90, 0);
    hw.write(MP1_SMN_C2PMSG_82, argument);
    hw.write(MP1_SMN_C2PMSG_66, id);
}

/// Waits for the answer to the last message. Sleeps.
fn answer(hw: &Hw) -> Result<u32> {
    hw.wait(SMU_MS * 1000, || {
        let response = hw.read(MP1_SMN_C2PMSG_90);
        Ok((response != 0).then_some(response))
    })
}

/// Sends message `id` and returns what it yields. Sleeps. The caller sees to it that it is alone.
///
/// # Errors
///
/// - `ETIMEDOUT`: no answer, or the controller is not done with an earlier message.
/// - `EOPNOTSUPP`: the controller refuses.
/// - `EIO`: the device is lost.
pub(super) fn ask(hw: &Hw, id: u32, argument: u32) -> Result<u32> {
    answer(hw)?;
    send(hw, id, argument);
    if answer(hw)? != SMU_OK {
        return Err(EOPNOTSUPP);
    }
    Ok(hw.read(MP1_SMN_C2PMSG_82))
}

/// Asks for a mode-1 reset. The controller resets itself with the rest, so no response can be waited
/// for.
pub(super) fn reset(hw: &Hw) {
    send(hw, SMU_MSG_GFX_DEVICE_DRIVER_RESET, SMU_RESET_MODE1);
}
