// SPDX-License-Identifier: GPL-2.0 OR MIT
//! SDMA engines: registers, queue contexts, scheduling.

pub mod context;
pub mod feed;
pub mod load;
pub mod packets;
pub mod regs;

use context::Context;
use regs::BLOCKS;

use crate::asic::SdmaLayout;

/// Registers of an engine, in dwords.
pub const SPAN: usize = 0x440;

/// One engine.
#[derive(Debug)]
pub struct Engine {
    regs: Vec<u32>,
    /// Queue contexts: GFX, PAGE, RLC0..RLC7.
    pub contexts: [Option<Context>; BLOCKS],
    next: usize,
    /// Contexts that have not had their turn in the round that goes on, a bit each.
    round: u16,
}

impl Engine {
    /// An engine after power-on: halted, its firmware loaded.
    pub fn new(layout: &SdmaLayout, firmware: u32) -> Self {
        let mut e = Self {
            regs: vec![0; SPAN],
            contexts: Default::default(),
            next: 0,
            round: 0,
        };
        e.set(layout.f32_cntl, 1);
        // A loader's last act is to leave the version in the address register.
        e.set(regs::UCODE_ADDR, firmware);
        // STATUS_REG: idle.
        e.set(0x25, 0x4000_8007);
        for b in 0..BLOCKS {
            e.set(
                regs::block_base(layout, b) + regs::CONTEXT_STATUS,
                regs::STATUS_IDLE,
            );
        }
        e
    }

    /// Takes the next context out of the round that goes on.
    fn next_block(&mut self) -> Option<usize> {
        let block = (0..BLOCKS)
            .map(|i| (self.next + i) % BLOCKS)
            .find(|b| (self.round >> b) & 1 != 0)?;
        self.round &= !(1 << block);
        Some(block)
    }

    /// A register.
    pub fn reg(&self, i: u32) -> u32 {
        self.regs.get(i as usize).copied().unwrap_or(0)
    }

    /// Stores a register.
    pub fn set(&mut self, i: u32, v: u32) {
        if let Some(d) = self.regs.get_mut(i as usize) {
            *d = v;
        }
    }
}
