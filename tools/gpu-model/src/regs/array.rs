// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Which compute units work: registers that GRBM_GFX_INDEX banks by shader engine and array.

use std::ops::Range;

use super::gc;
use crate::board::{ones, UNIT_BITS};
use crate::soc::Soc;

/// GRBM_GFX_INDEX after a reset: the three broadcast bits.
pub const GFX_INDEX_RESET: u32 = 0xE000_0000;
const SH_BROADCAST: u32 = 1 << 29;
const SE_BROADCAST: u32 = 1 << 31;
/// INACTIVE_CUS.
const SHIFT: u32 = 16;

impl Soc {
    /// The engines that GRBM_GFX_INDEX selects.  Each has one array, and the units of an array share these registers,
    /// so INSTANCE_INDEX does not matter.
    fn selected_engines(&mut self, r: u32) -> Option<Range<u32>> {
        let index = self.regs.plain(gc::GRBM_GFX_INDEX);
        let (engine, array) = ((index >> 16) & 0xFF, (index >> 8) & 0xFF);
        let engines = if index & SE_BROADCAST != 0 {
            0..self.asic.engines
        } else {
            engine..engine + 1
        };
        if engines.end <= self.asic.engines && (index & SH_BROADCAST != 0 || array == 0) {
            return Some(engines);
        }
        let text = format!(
            "register byte {:#x} while GRBM_GFX_INDEX = {index:#010x} names no shader array ({} engines with one each)",
            r * 4,
            self.asic.engines
        );
        self.protocol_error("bank", text);
        None
    }

    /// Compute units that work: neither fused off nor given up by the driver.
    pub fn active_units(&self) -> u32 {
        let working = |engine: u32| {
            let given_up = self.regs.user_array_config(engine as usize) >> SHIFT;
            (!(self.board.inactive_units(self.asic, engine) | given_up) & ones(UNIT_BITS))
                .count_ones()
        };
        (0..self.asic.engines).map(working).sum()
    }

    /// Reads CC_GC_SHADER_ARRAY_CONFIG or GC_USER_SHADER_ARRAY_CONFIG: of the first array, if all are selected.
    pub fn shader_array_read(&mut self, r: u32) -> u32 {
        let Some(engines) = self.selected_engines(r) else {
            return ones(UNIT_BITS) << SHIFT;
        };
        let engine = engines.start;
        if r == gc::CC_GC_SHADER_ARRAY_CONFIG {
            self.board.inactive_units(self.asic, engine) << SHIFT
        } else {
            self.regs.user_array_config(engine as usize)
        }
    }

    /// Writes one of them: only units that the driver gives up can be written, fuses cannot.
    pub fn shader_array_write(&mut self, r: u32, v: u32) {
        if r == gc::CC_GC_SHADER_ARRAY_CONFIG {
            let text = format!("write of {v:#x} to CC_GC_SHADER_ARRAY_CONFIG");
            self.protocol_error("read-only", text);
            return;
        }
        for engine in self.selected_engines(r).into_iter().flatten() {
            let fields = ones(UNIT_BITS) << SHIFT;
            self.regs.set_user_array_config(engine as usize, v & fields);
        }
    }
}
