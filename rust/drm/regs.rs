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

/// First register of the graphics block, in dwords; the same on all supported ASICs.
const GC: u32 = 0x2000;
/// STATUS_REG of an SDMA engine, in dwords from its base.
const SDMA_STATUS: u32 = 0x25;

/// Status registers that debuggers read (`soc15_allowed_read_registers`).
const STATUS: [Reg; 16] = [
    gc::GRBM_STATUS,
    gc::GRBM_STATUS2,
    gc::GRBM_STATUS_SE0,
    // GRBM_STATUS_SE1 to SE3.
    Reg::new(GC, 0x0006),
    Reg::new(GC, 0x000e),
    Reg::new(GC, 0x000f),
    gc::CP_STAT,
    // CP_STALLED_STAT1 to 3.
    Reg::new(GC, 0x019d),
    Reg::new(GC, 0x019e),
    Reg::new(GC, 0x019c),
    // CP_CPF_BUSY_STAT, CP_CPF_STALLED_STAT1.
    Reg::new(GC, 0x0088),
    Reg::new(GC, 0x0089),
    gc::CP_CPF_STATUS,
    gc::CP_CPC_BUSY_STAT,
    // CP_CPC_STALLED_STAT1.
    Reg::new(GC, 0x0086),
    gc::CP_CPC_STATUS,
];
/// Debug switches of the depth block, of which there is none.
const DB_DEBUG2: Reg = Reg::new(GC, 0x060d);

/// Reads the register at absolute dword `offset`, if user space may.
///
/// # Errors
///
/// `EFAULT` if it may not (upstream's choice), `EIO` if the device is lost.
pub(super) fn read_allowed(hw: &Hw, offset: u32) -> Result<u32> {
    if offset == gc::GB_ADDR_CONFIG.dword() {
        return gfx::gb_addr_config(hw);
    }
    if offset == DB_DEBUG2.dword() {
        return Ok(0);
    }
    let sdma = hw.asic().sdma.engines.iter().take(2);
    let sdma = sdma.map(|base| Reg::new(*base, SDMA_STATUS));
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
