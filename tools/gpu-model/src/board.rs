// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What differs between boards with the same ASIC: fused-off compute units, firmware, clocks.

use serde::Serialize;

use crate::asic::Asic;

/// Compute units that an INACTIVE_CUS field has bits for.
pub const UNIT_BITS: u32 = 16;
/// Width of CP_MEC_ME1_UCODE_ADDR.UCODE_ADDR.
pub const MEC_VERSION_BITS: u32 = 17;

/// A board.  Firmware versions and clocks of 0 are unknown ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Board {
    /// Compute units that are not fused off, of all engines.
    pub compute_units: u32,
    /// Version of the MEC firmware.
    pub mec_firmware: u32,
    /// Version of the SDMA firmware.
    pub sdma_firmware: u32,
    /// Highest engine clock in MHz.
    pub engine_clock: u32,
    /// Highest memory clock in MHz.
    pub memory_clock: u32,
}

/// Low `bits` set.
pub fn ones(bits: u32) -> u32 {
    1u32.checked_shl(bits).map_or(u32::MAX, |bit| bit - 1)
}

impl Board {
    /// Whether such a board can be made of this ASIC.
    ///
    /// # Errors
    /// The first thing that cannot be, in words.
    pub fn check(&self, asic: &Asic) -> Result<(), String> {
        let units = asic.engines * asic.units_per_engine;
        for (what, value, least, most) in [
            ("number of compute units", self.compute_units, 1, units),
            (
                "version of the MEC firmware",
                self.mec_firmware,
                0,
                ones(MEC_VERSION_BITS),
            ),
            (
                "version of the SDMA firmware",
                self.sdma_firmware,
                0,
                ones(asic.sdma_layout.ucode_addr_bits),
            ),
        ] {
            if !(least..=most).contains(&value) {
                let name = asic.name;
                return Err(format!(
                    "the {what} of {name} must be from {least} to {most}, not {value}"
                ));
            }
        }
        Ok(())
    }

    /// Units of an engine that work: equal shares, the first engines have the rest.
    pub fn active_units(&self, asic: &Asic, engine: u32) -> u32 {
        let rest = self.compute_units % asic.engines;
        self.compute_units / asic.engines + u32::from(engine < rest)
    }

    /// INACTIVE_CUS of an engine, a bit per unit.
    ///
    /// The fused units lie elsewhere in each engine and apart from each other, so that a driver that takes the
    /// highest for them, or one mask for all engines, goes wrong.  Bits of units that the die does not have are set.
    pub fn inactive_units(&self, asic: &Asic, engine: u32) -> u32 {
        let physical = asic.units_per_engine;
        let fused = physical.saturating_sub(self.active_units(asic, engine));
        // 5 has no factor in common with 14 or 16, so no unit is met twice.
        let units = (0..fused).map(|k| (engine * 3 + k * 5) % physical);
        units.fold(ones(UNIT_BITS) & !ones(physical), |mask, unit| {
            mask | (1 << unit)
        })
    }
}
