// SPDX-License-Identifier: GPL-2.0

//! Facts that differ between devices of one ASIC: working compute units, microcode versions, clocks.
//!
//! No two of these follow from the ASIC: cards of one ASIC differ in all of them.

use kernel::prelude::*;

use super::{
    access::Hw,
    smu, //
};
use crate::hw::{
    regs::{
        gc::{
            self,
            ShaderArrayConfig,
            UcodeAddr, //
        },
        mp::SMU_ENGINE_CLOCK, //
    },
    shader::ComputeUnits, //
};

/// Facts of one device. Numbers that the device does not report are 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silicon {
    /// Compute units that work.
    pub(crate) units: ComputeUnits,
    /// Version of the MEC microcode.
    pub(crate) mec_firmware: u32,
    /// Version of the SDMA microcode.
    pub(crate) sdma_firmware: u32,
    /// Highest engine clock in MHz.
    pub(crate) engine_clock_mhz: u32,
    /// Highest memory clock in MHz.
    pub(crate) memory_clock_mhz: u32,
}

impl Silicon {
    /// Asks the device. Sleeps; at most two tenths of a second, if the power controller does not answer.
    ///
    /// # Errors
    ///
    /// `EIO`: no compute unit works, or the device is lost.
    pub(super) fn probe(hw: &Hw) -> Result<Self> {
        let asic = hw.asic();
        let units = ComputeUnits::without(&asic.shader, |engine| {
            let _bank = hw.select_engine(engine);
            [
                gc::CC_GC_SHADER_ARRAY_CONFIG,
                gc::GC_USER_SHADER_ARRAY_CONFIG,
            ]
            .iter()
            .map(|reg| {
                ShaderArrayConfig::from_raw(hw.read(*reg)).get(ShaderArrayConfig::INACTIVE_CUS)
            })
            .fold(0, |all, these| all | these)
        });
        let mec = UcodeAddr::from_raw(hw.read(gc::CP_MEC_ME1_UCODE_ADDR)).get(UcodeAddr::MEC);
        let sdma = asic.sdma.engine(0).map_or(0, |engine| {
            UcodeAddr::from_raw(hw.read(engine.ucode_addr())).get(UcodeAddr::SDMA)
        });
        hw.check_alive()?;
        if units.count() == 0 {
            dev_err!(hw.dev(), "all compute units are fused off\n");
            return Err(EIO);
        }

        let [engine_clock_mhz, memory_clock_mhz] = Self::clocks(hw)?;
        Ok(Self {
            units,
            mec_firmware: mec,
            sdma_firmware: sdma,
            engine_clock_mhz,
            memory_clock_mhz,
        })
    }

    /// Engine and memory clock in MHz.
    fn clocks(hw: &Hw) -> Result<[u32; 2]> {
        let asic = hw.asic();
        let mut clocks = [0; 2];
        for (clock, id) in clocks
            .iter_mut()
            .zip([SMU_ENGINE_CLOCK, asic.smu_memory_clock])
        {
            match smu::ask(hw, asic.smu_max_frequency, id << 16) {
                Ok(mhz) => *clock = mhz,
                Err(e) if e == EIO => return Err(e),
                Err(e) => {
                    dev_info!(
                        hw.dev(),
                        "the power controller does not report clocks: {:?}\n",
                        e
                    );
                    break;
                }
            }
        }
        Ok(clocks)
    }
}
