// SPDX-License-Identifier: GPL-2.0

//! Mailboxes of the security processor (MP0) and the power controller (MP1).
//!
//! Source: `mp_11_0_offset.h`, `mp_13_0_2_offset.h`, `psp_v11_0.c`, `psp_v13_0.c`, `vega20_smumgr.c`,
//! `smu_cmn.c`.

use super::regs;

/// Dword base of segment 0.
pub(crate) const SEG0: u32 = 0x1_6000;

regs! { SEG0;
    /// Bit 31: boot firmware is ready.
    MP0_SMN_C2PMSG_33 = 0x61;
    /// Bootloader command; 0x80000000 = ready.
    MP0_SMN_C2PMSG_35 = 0x63;
    /// Ring and reset command; bit 31 = ready.
    MP0_SMN_C2PMSG_64 = 0x80;
    /// Sign of life of the secure OS, not 0 when it runs.
    MP0_SMN_C2PMSG_81 = 0x91;
    /// Message id of the power controller.
    MP1_SMN_C2PMSG_66 = 0x282;
    /// Argument of the message, then its result.
    MP1_SMN_C2PMSG_82 = 0x292;
    /// Response: 0 until there is one.
    MP1_SMN_C2PMSG_90 = 0x29A;
}

/// Ready bit of the MP0 mailboxes.
pub(crate) const READY: u32 = 0x8000_0000;
/// Written to MP0_SMN_C2PMSG_64 for a mode-1 reset by the security processor.
pub(crate) const PSP_MODE1_RESET: u32 = 0x0007_0000;
/// Message of the power controller that resets the device (mode 1, gfx90a and gfx942).
pub(crate) const SMU_MSG_GFX_DEVICE_DRIVER_RESET: u32 = 3;
/// Argument of [`SMU_MSG_GFX_DEVICE_DRIVER_RESET`] for mode 1.
pub(crate) const SMU_RESET_MODE1: u32 = 1;
/// The clock of the shaders in messages to the power controller (`PPCLK_GFXCLK`).
pub(crate) const SMU_ENGINE_CLOCK: u32 = 0;
/// Good answer of the power controller.
pub(crate) const SMU_OK: u32 = 1;
