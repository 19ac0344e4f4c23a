// SPDX-License-Identifier: GPL-2.0

//! From a flat mask of compute units to the masks of the shader engines.

use super::super::asic::ShaderArray;

/// Shader engines that an MQD can name.
pub(crate) const MAX_ENGINES: usize = 8;
/// Shader arrays of an engine that a mask can name: 16 bits each.
const MAX_ARRAYS: u32 = 2;
/// Compute units of an array that a mask can name.
const CU_PER_ARRAY: u32 = 16;

/// COMPUTE_STATIC_THREAD_MGMT of shader engines 0 to 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CuMask(pub(crate) [u32; MAX_ENGINES]);

impl CuMask {
    /// Every compute unit.
    pub(crate) const ALL: Self = Self([u32::MAX; MAX_ENGINES]);
}

/// Spreads the first `bits` bits of `mask` round-robin over the shader engines.
///
/// Bit 0 becomes the first unit of engine 0, bit 1 the first of engine 1, and so on; with two
/// arrays per engine the second arrays follow before the second units. An engine that has fewer
/// active units drops out of the round once they are used up, because hardware numbers active units
/// from 0. Bits beyond the active units are ignored, missing ones are off
/// (`mqd_symmetrically_map_cu_mask`).
pub(crate) fn spread(shader: &ShaderArray, mask: &[u32], bits: u32) -> CuMask {
    let mut out = [0; MAX_ENGINES];
    let bits = bits.min(shader.active_cu);
    let mut bit = 0;
    for cu in 0..CU_PER_ARRAY {
        for array in 0..shader.arrays_per_engine.min(MAX_ARRAYS) {
            for (engine, word) in (0..shader.engines).zip(out.iter_mut()) {
                if active_in_array(shader, engine, array) <= cu {
                    continue;
                }
                if bit >= bits {
                    return CuMask(out);
                }
                if is_set(mask, bit) {
                    *word |= 1 << (cu + array * CU_PER_ARRAY);
                }
                bit += 1;
            }
        }
    }
    CuMask(out)
}

/// Active units of one array of an engine.
fn active_in_array(shader: &ShaderArray, engine: u32, array: u32) -> u32 {
    let active = shader.active_cu_of(engine);
    let arrays = shader.arrays_per_engine.max(1);
    let share = active / arrays;
    if array < active % arrays {
        share + 1
    } else {
        share
    }
}

/// Bit `bit` of a mask of 32-bit words; bits beyond its end are off.
fn is_set(mask: &[u32], bit: u32) -> bool {
    mask.get(super::num::index(bit / 32))
        .is_some_and(|word| (word >> (bit % 32)) & 1 != 0)
}
