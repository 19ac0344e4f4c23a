// SPDX-License-Identifier: GPL-2.0

//! From a flat mask of compute units to the masks of the shader engines.

use super::super::shader::{
    ComputeUnits,
    MAX_ENGINES, //
};

/// COMPUTE_STATIC_THREAD_MGMT of shader engines 0 to 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CuMask(pub(crate) [u32; MAX_ENGINES]);

impl CuMask {
    /// Every compute unit.
    pub(crate) const ALL: Self = Self([u32::MAX; MAX_ENGINES]);
}

/// Spreads the first `bits` bits of `mask` round-robin over the shader engines.
///
/// Bit 0 becomes the first unit of engine 0, bit 1 the first of engine 1, and so on. An engine that has
/// fewer units than others drops out of the round once they are used up. Within an engine the result
/// counts the units that work, wherever the others are: so does hardware. Bits beyond the units are
/// ignored, missing ones are off (`mqd_symmetrically_map_cu_mask`).
pub(crate) fn spread(units: &ComputeUnits, mask: &[u32], bits: u32) -> CuMask {
    let mut out = [0; MAX_ENGINES];
    let bits = bits.min(units.count());
    let mut bit = 0;
    for unit in 0..u32::BITS {
        for (engine, word) in (0..).zip(out.iter_mut()) {
            if units.of(engine) <= unit {
                continue;
            }
            if bit >= bits {
                return CuMask(out);
            }
            if is_set(mask, bit) {
                *word |= 1 << unit;
            }
            bit += 1;
        }
    }
    CuMask(out)
}

/// Bit `bit` of a mask of 32-bit words; bits beyond its end are off.
fn is_set(mask: &[u32], bit: u32) -> bool {
    mask.get(super::num::index(bit / 32))
        .is_some_and(|word| (word >> (bit % 32)) & 1 != 0)
}
