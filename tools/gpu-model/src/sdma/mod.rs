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
    contexts: [Option<Context>; BLOCKS],
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

    /// The enabled contexts that are still to have their turn in the round that goes on, in order.
    fn blocks_to_serve(&self) -> impl Iterator<Item = usize> + '_ {
        (0..BLOCKS)
            .map(|i| (self.next + i) % BLOCKS)
            .filter(|&b| (self.round >> b) & 1 != 0 && self.context(b).is_some())
    }

    /// The enabled queue of a block.
    pub fn context(&self, block: usize) -> Option<&Context> {
        self.contexts.get(block)?.as_ref()
    }

    fn context_mut(&mut self, block: usize) -> Option<&mut Context> {
        self.contexts.get_mut(block)?.as_mut()
    }

    /// All enabled queues by their blocks.
    pub fn contexts(&self) -> impl Iterator<Item = (usize, &Context)> {
        let contexts = self.contexts.iter().enumerate();
        contexts.filter_map(|(block, c)| c.as_ref().map(|c| (block, c)))
    }

    /// All enabled queues, for change.
    pub(crate) fn contexts_mut(&mut self) -> impl Iterator<Item = &mut Context> {
        self.contexts.iter_mut().flatten()
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
