// SPDX-License-Identifier: GPL-2.0

//! Registers that user space may read.

use kernel::prelude::*;

use crate::{
    gpu::{
        gfx,
        Hw, //
    },
    hw::regs::{
        gc,
        Reg, //
    },
};

/// Status registers that debuggers read (`soc15_allowed_read_registers`).
const STATUS: [Reg; 16] = [
    gc::GRBM_STATUS,
    gc::GRBM_STATUS2,
    gc::GRBM_STATUS_SE0,
    gc::GRBM_STATUS_SE1,
    gc::GRBM_STATUS_SE2,
    gc::GRBM_STATUS_SE3,
    gc::CP_STAT,
    gc::CP_STALLED_STAT1,
    gc::CP_STALLED_STAT2,
    gc::CP_STALLED_STAT3,
    gc::CP_CPF_BUSY_STAT,
    gc::CP_CPF_STALLED_STAT1,
    gc::CP_CPF_STATUS,
    gc::CP_CPC_BUSY_STAT,
    gc::CP_CPC_STALLED_STAT1,
    gc::CP_CPC_STATUS,
];

/// Reads the register at absolute dword `offset`, if user space may.
///
/// # Errors
///
/// `EFAULT` if it may not (upstream's choice), `EIO` if the device is lost.
pub(crate) fn read_allowed(hw: &Hw, offset: u32) -> Result<u32> {
    if offset == gc::GB_ADDR_CONFIG.dword() {
        return gfx::gb_addr_config(hw);
    }
    if offset == gc::DB_DEBUG2.dword() {
        return Ok(0);
    }
    let sdma = (0..2).filter_map(|n| hw.asic().sdma.engine(n));
    let sdma = sdma.map(|engine| engine.status());
    let reg = Iterator::chain(STATUS.into_iter(), sdma)
        .find(|reg| reg.dword() == offset)
        .ok_or(EFAULT)?;
    read(hw, reg)
}

/// Reads a register that user space may see.
///
/// # Errors
///
/// `EIO` if the device is lost.
fn read(hw: &Hw, reg: Reg) -> Result<u32> {
    let value = hw.read(reg);
    if hw.is_lost() {
        return Err(EIO);
    }
    Ok(value)
}
