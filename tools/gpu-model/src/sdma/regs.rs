// SPDX-License-Identifier: GPL-2.0 OR MIT
//! SDMA registers (`sdma0_4_2_offset.h`, `sdma_4_4_0_offset.h`) and the writes that act.

use super::context::Context;
use super::SPAN;
use crate::asic::SdmaLayout;
use crate::board::ones;
use crate::device::Gpu;

/// Queue blocks: GFX, PAGE, RLC0..RLC7.
pub const BLOCKS: usize = 10;
/// First RLC block.
pub const FIRST_RLC: usize = 2;

/// Register offsets inside a queue block.
#[expect(missing_docs, reason = "hardware names")]
pub mod q {
    pub const RB_CNTL: u32 = 0x00;
    pub const RB_BASE: u32 = 0x01;
    pub const RB_RPTR: u32 = 0x03;
    pub const RB_WPTR: u32 = 0x05;
    pub const RB_WPTR_HI: u32 = 0x06;
    pub const WPTR_POLL_CNTL: u32 = 0x07;
    pub const RPTR_ADDR_HI: u32 = 0x08;
    pub const RPTR_ADDR_LO: u32 = 0x09;
    pub const IB_RPTR: u32 = 0x0B;
    pub const IB_OFFSET: u32 = 0x0C;
    pub const IB_BASE: u32 = 0x0D;
    pub const IB_SIZE: u32 = 0x0F;
    pub const DOORBELL: u32 = 0x12;
    pub const DOORBELL_OFFSET: u32 = 0x2B;
    pub const WPTR_POLL_ADDR_HI: u32 = 0x32;
    pub const WPTR_POLL_ADDR_LO: u32 = 0x33;
    pub const MINOR_PTR_UPDATE: u32 = 0x35;
}
/// Registers that hold the indirect buffer a queue was in.
pub const IB_REGISTERS: [u32; 5] = [
    q::IB_RPTR,
    q::IB_OFFSET,
    q::IB_BASE,
    q::IB_BASE + 1,
    q::IB_SIZE,
];
/// STATUS_REG within an engine.
pub const STATUS_REG: u32 = 0x25;
/// STATUS_REG.IDLE.
const STATUS_REG_IDLE: u32 = 1 << 0;
/// UCODE_ADDR within an engine.
pub const UCODE_ADDR: u32 = 0;
/// CONTEXT_STATUS within a block.
pub const CONTEXT_STATUS: u32 = 0x11;
/// CONTEXT_STATUS.SELECTED.
pub const STATUS_SELECTED: u32 = 1 << 0;
/// CONTEXT_STATUS.IDLE.
pub const STATUS_IDLE: u32 = 1 << 2;
/// RB_CNTL.RB_ENABLE.
pub const RB_ENABLE: u32 = 1 << 0;
/// DOORBELL.ENABLE.
pub const DOORBELL_ENABLE: u32 = 1 << 28;
/// RB_WPTR_POLL_CNTL.ENABLE and F32_POLL_ENABLE: hardware or microcode looks for the write pointer in memory.
pub const POLL_ENABLE: u32 = (1 << 0) | (1 << 2);
/// CNTL.TRAP_ENABLE.
pub const TRAP_ENABLE: u32 = 1 << 0;
/// CNTL fields without which an engine neither switches to user queues nor translates their addresses.
pub const USER_QUEUES: [(u32, &str); 2] =
    [(1 << 1, "UTC_L1_ENABLE"), (1 << 18, "AUTO_CTXSW_ENABLE")];

/// F32_CNTL.HALT.
pub const F32_HALT: u32 = 1 << 0;
/// F32_CNTL.RESET.
pub const F32_RESET: u32 = 1 << 8;

/// First register of a queue block.
pub fn block_base(l: &SdmaLayout, block: usize) -> u32 {
    match block {
        0 => 0x80,
        1 => l.page,
        n => l.rlc0 + (n - FIRST_RLC) as u32 * l.stride,
    }
}

/// The block and the offset in it of a register.
pub fn block_of(l: &SdmaLayout, r: u32) -> Option<(usize, u32)> {
    (0..BLOCKS).find_map(|b| {
        r.checked_sub(block_base(l, b))
            .filter(|&o| o < l.stride)
            .map(|o| (b, o))
    })
}

impl Gpu {
    /// The engine and offset that a register index names.
    pub fn sdma_register(&self, r: u32) -> Option<(usize, u32)> {
        self.soc
            .asic
            .sdma
            .iter()
            // Engines 2 to 4 lie closer together than the largest register file: the last base counts.
            .rposition(|e| (e.base..e.base + SPAN as u32).contains(&r))
            .and_then(|i| self.soc.asic.sdma.get(i).map(|e| (i, r - e.base)))
    }

    /// Reads an SDMA register.
    pub fn sdma_reg_read(&mut self, engine: usize, r: u32) -> u32 {
        if let Some((block, _)) = block_of(&self.soc.asic.sdma_layout, r) {
            self.sdma_settle_stop(engine, block);
            self.sdma_sync(engine, block);
        }
        let value = self.sdma.get(engine).map_or(0, |e| e.reg(r));
        if r == STATUS_REG && self.sdma_moves(engine) {
            return value & !STATUS_REG_IDLE;
        }
        value
    }

    /// Whether an engine is in the middle of a copy.
    fn sdma_moves(&self, engine: usize) -> bool {
        self.sdma.get(engine).is_some_and(|e| {
            let moves =
                |c: &Context| c.progress != 0 && !c.pace.retrying && c.pace.halted.is_none();
            e.contexts.iter().flatten().any(moves)
        })
    }

    /// Writes an SDMA register.
    pub fn sdma_reg_write(&mut self, engine: usize, r: u32, v: u32) {
        if let Some((block, o)) = block_of(&self.soc.asic.sdma_layout, r) {
            self.sdma_write_block(engine, block, o, v);
            return;
        }
        let layout = &self.soc.asic.sdma_layout;
        let is_f32_cntl = r == layout.f32_cntl;
        let bits = match r {
            UCODE_ADDR => ones(layout.ucode_addr_bits),
            _ if is_f32_cntl && !layout.f32_reset => !F32_RESET,
            _ => u32::MAX,
        };
        if let Some(e) = self.sdma.get_mut(engine) {
            e.set(r, v & bits);
        }
        if is_f32_cntl && v & bits & F32_RESET != 0 {
            self.sdma_reset(engine);
        }
        self.soc.kick();
    }
}
