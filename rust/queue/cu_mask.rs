// SPDX-License-Identifier: GPL-2.0

//! Compute unit masks.
//!
//! User space numbers compute units round the shader engines: bit 0 is the first unit of engine 0, bit 1
//! the first of engine 1, and so on. Hardware takes one mask per engine, in which units that are
//! fused off are the high bits.

use crate::hw::asic::ShaderArray;

/// Engines for which a queue descriptor has a mask.
pub(crate) const ENGINES: usize = 8;

/// Spreads the first `count` bits of `mask` over the engines of `shader`. Bits beyond the active units
/// are ignored; units that the mask does not name are off.
pub(crate) fn per_engine(mask: &[u32], count: u32, shader: &ShaderArray) -> [u32; ENGINES] {
    let mut engines = [0; ENGINES];
    let bit = |index: u32| {
        mask.get(crate::hw::num::index(index / 32))
            .is_some_and(|word| word >> (index % 32) & 1 != 0)
    };
    let limit = count.min(shader.active_cu);
    let mut index = 0;
    for unit in 0..shader.max_cu_per_array {
        for (engine, word) in (0..shader.engines).zip(engines.iter_mut()) {
            if unit >= shader.active_cu_of(engine) {
                continue;
            }
            if index >= limit {
                return engines;
            }
            if bit(index) {
                *word |= 1 << unit;
            }
            index += 1;
        }
    }
    engines
}
