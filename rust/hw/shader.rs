// SPDX-License-Identifier: GPL-2.0

//! The shader array: its shape, which all devices of an ASIC share, and the compute units of one
//! device, of which some are fused off.

use super::cwsr;

/// Shader engines that a queue descriptor can name, and the most that an ASIC has.
pub(crate) const MAX_ENGINES: usize = 8;

/// Shape of the shader array of an ASIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShaderArray {
    /// Shader engines.
    pub(crate) engines: u32,
    /// Shader arrays per engine; the thunk divides by it twice, so it must be 1.
    pub(crate) arrays_per_engine: u32,
    /// Physical compute units per array.
    pub(crate) max_cu_per_array: u32,
    /// SIMDs per compute unit.
    pub(crate) simd_per_cu: u32,
    /// Waves per SIMD.
    pub(crate) waves_per_simd: u32,
    /// Vector register bytes per compute unit.
    pub(crate) vgpr_bytes_per_cu: u32,
    /// Local data share in KiB.
    pub(crate) lds_kib: u32,
    /// Lanes of a wave.
    pub(crate) wave_front: u32,
    /// Scratch slots per compute unit.
    pub(crate) scratch_slots_per_cu: u32,
}

impl ShaderArray {
    /// Shader arrays of the device, `array_count` of the topology.
    pub(crate) const fn array_count(&self) -> u32 {
        self.engines * self.arrays_per_engine
    }

    /// Compute units on the die, fused off or not.
    pub(crate) const fn physical_units(&self) -> u32 {
        self.array_count() * self.max_cu_per_array
    }

    /// Sizes of the area into which the waves of `units` compute units of `num_xcc` XCCs are saved.
    pub(crate) const fn save_area(&self, units: u32, num_xcc: u32) -> cwsr::Sizes {
        cwsr::sizes(
            units / num_xcc,
            self.engines,
            self.vgpr_bytes_per_cu,
            num_xcc,
        )
    }
}

/// The compute units of a device that work: one mask per shader engine, a bit per physical unit.
///
/// Which are fused off differs from device to device, and between the engines of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ComputeUnits {
    masks: [u32; MAX_ENGINES],
}

impl ComputeUnits {
    /// The units that remain of `shader`, given those of each engine that do not work: INACTIVE_CUS of
    /// CC_GC_SHADER_ARRAY_CONFIG and GC_USER_SHADER_ARRAY_CONFIG (`gfx_v9_0_get_cu_active_bitmap`).
    pub(crate) fn without(shader: &ShaderArray, inactive: impl Fn(u32) -> u32) -> Self {
        let there = (1u32 << shader.max_cu_per_array.min(31)) - 1;
        let mut masks = [0; MAX_ENGINES];
        for (engine, mask) in (0..shader.engines).zip(&mut masks) {
            *mask = there & !inactive(engine);
        }
        Self { masks }
    }

    /// `count` units, as evenly as can be, the first of each engine.
    #[cfg(any(test, rkfd_kunit))]
    pub(crate) fn even(shader: &ShaderArray, count: u32) -> Self {
        Self::without(shader, |engine| {
            let extra = u32::from(engine < count % shader.engines);
            !((1 << (count / shader.engines + extra)) - 1)
        })
    }

    /// The units of `engine`; none of one that does not exist.
    pub(crate) fn mask(&self, engine: u32) -> u32 {
        let mask = self.masks.get(super::num::index(engine));
        mask.copied().unwrap_or(0)
    }

    /// How many units `engine` has.
    pub(crate) fn of(&self, engine: u32) -> u32 {
        self.mask(engine).count_ones()
    }

    /// How many units there are.
    pub(crate) fn count(&self) -> u32 {
        self.masks.iter().map(|mask| mask.count_ones()).sum()
    }
}
