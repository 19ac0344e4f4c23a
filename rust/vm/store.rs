// SPDX-License-Identifier: GPL-2.0

//! Page tables in VRAM, written by the CPU through BAR0.

use core::cell::Cell;

use kernel::prelude::*;

use super::pt::{
    Store,
    PAGE, //
};
use crate::{
    gpu::{
        account::TableCharge,
        Gpu,
        Hw,
        VramBlock, //
    },
    kapi::log::dev_limited,
};

/// The VRAM of a GPU, with access to it or, if the device is gone, without.
pub(super) struct VramStore<'a> {
    gpu: &'a Gpu,
    hw: Option<&'a Hw>,
    /// Something was written and not published.
    dirty: Cell<bool>,
}

impl<'a> VramStore<'a> {
    pub(super) fn new(gpu: &'a Gpu, hw: Option<&'a Hw>) -> Self {
        Self {
            gpu,
            hw,
            dirty: Cell::new(false),
        }
    }

    /// Publishes if anything was written.
    pub(super) fn finish(&self) {
        if self.dirty.get() {
            self.publish();
        }
    }
}

/// VRAM of a page table, and what was charged for it.
pub(super) struct TableBlock {
    block: VramBlock,
    // After `block`: what is given back must be free.
    _charge: TableCharge,
}

impl Store for VramStore<'_> {
    type Block = TableBlock;

    fn alloc(&self) -> Result<TableBlock> {
        self.hw.ok_or(ENODEV)?;
        let charge = self.gpu.table_budget().charge(PAGE)?;
        let block = self.gpu.vram().alloc(PAGE, PAGE).map_err(|_| ENOMEM)?;
        Ok(TableBlock {
            block,
            _charge: charge,
        })
    }

    fn write(&self, block: &TableBlock, first: usize, entries: &[u64]) {
        let Some(hw) = self.hw else { return };
        self.dirty.set(true);
        // CAST: An index below 512.
        let offset = block.block.offset() + 8 * first as u64;
        match hw.vram_write_u64s(offset, entries) {
            // A lost device has no tables either.
            Ok(()) => {}
            Err(e) if e == EIO => {}
            Err(e) => dev_limited!(
                dev_err,
                self.gpu.dev(),
                "page table at VRAM offset {:#x} cannot be written: {:?}\n",
                offset,
                e
            ),
        }
    }

    fn publish(&self) {
        self.dirty.set(false);
        if let Some(hw) = self.hw {
            hw.hdp_flush();
        }
    }

    fn pa(block: &TableBlock) -> u64 {
        block.block.pa()
    }
}
