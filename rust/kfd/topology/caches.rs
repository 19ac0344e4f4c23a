// SPDX-License-Identifier: GPL-2.0

//! The files of caches. `sibling_map` must be their last key.

use super::{
    facts::GpuFacts,
    text::{
        File,
        Lines, //
    },
};
use crate::{
    hw::asic::Cache,
    kapi::sysinfo::CpuCache, //
};
use kernel::prelude::*;

/// Bits of a cache's `type`.
mod cache_type {
    pub(super) const DATA: u32 = 1;
    pub(super) const INSTRUCTION: u32 = 2;
    pub(super) const CPU: u32 = 4;
    pub(super) const HSACU: u32 = 8;
}

/// Files of all instances of one kind of cache: one per group of compute units that share it at level 1,
/// one for the device beyond.
///
/// # Errors
///
/// `ENOMEM`.
pub(super) fn of_gpu(
    list: &mut KVec<File>,
    gpu: &GpuFacts,
    cache: &Cache,
    first_processor: u32,
) -> Result {
    let (shader, units) = (&gpu.asic.shader, &gpu.silicon.units);
    if cache.level > 1 {
        // The map counts from the first unit that works.
        let unused = (0..shader.engines)
            .map(|engine| units.mask(engine))
            .find(|mask| *mask != 0)
            .map_or(0, u32::trailing_zeros);
        let siblings = (0..shader.engines).flat_map(|engine| {
            let mask = units.mask(engine) >> if engine == 0 { unused } else { 0 };
            (0..32).map(move |cu| mask >> cu & 1 != 0)
        });
        let processor = first_processor.wrapping_add(unused);
        return list
            .push(gpu_cache(cache, processor, siblings)?, GFP_KERNEL)
            .map_err(Error::from);
    }
    let shared = cache.cu_shared.clamp(1, 31);
    for engine in 0..shader.engines {
        let engine_base = first_processor.wrapping_add(engine * shader.max_cu_per_array);
        for group in 0..shader.max_cu_per_array.div_ceil(shared) {
            let first = group * shared;
            let members = units.mask(engine) >> first & ((1 << shared) - 1);
            if members == 0 {
                continue;
            }
            let unused = members.trailing_zeros();
            let siblings = (0..32).map(|cu| members >> unused >> cu & 1 != 0);
            let processor = engine_base.wrapping_add(first + unused);
            list.push(gpu_cache(cache, processor, siblings)?, GFP_KERNEL)?;
        }
    }
    Ok(())
}

/// The file of a CPU's cache.
///
/// # Errors
///
/// `ENOMEM`.
pub(super) fn of_cpu(cache: &CpuCache) -> Result<File> {
    let mut kind = cache_type::CPU;
    if cache.data {
        kind |= cache_type::DATA;
    }
    if cache.instructions {
        kind |= cache_type::INSTRUCTION;
    }
    CacheFile {
        processor: cache.processor,
        level: cache.level,
        size_kib: cache.size / 1024,
        line: cache.line,
        lines_per_tag: cache.lines_per_tag,
        ways: cache.ways,
        kind,
    }
    .file(
        cache
            .sharers
            .iter()
            .flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 != 0)),
    )
}

/// The file of a GPU's cache.
fn gpu_cache(cache: &Cache, processor: u32, siblings: impl Iterator<Item = bool>) -> Result<File> {
    let kind = if cache.instruction {
        cache_type::INSTRUCTION
    } else {
        cache_type::DATA
    };
    CacheFile {
        processor,
        level: cache.level,
        size_kib: cache.size_kib,
        line: cache.line,
        // Not documented.
        lines_per_tag: 0,
        ways: 0,
        kind: kind | cache_type::HSACU,
    }
    .file(siblings)
}

struct CacheFile {
    processor: u32,
    level: u32,
    size_kib: u32,
    line: u32,
    lines_per_tag: u32,
    ways: u32,
    kind: u32,
}

impl CacheFile {
    fn file(&self, siblings: impl Iterator<Item = bool>) -> Result<File> {
        let mut file = Lines::new();
        file.property("processor_id_low", self.processor)?;
        file.property("level", self.level)?;
        file.property("size", self.size_kib)?;
        file.property("cache_line_size", self.line)?;
        file.property("cache_lines_per_tag", self.lines_per_tag)?;
        file.property("association", self.ways)?;
        file.property("latency", 0u32)?;
        file.property("type", self.kind)?;
        file.bits("sibling_map", siblings)?;
        Ok(file.finish())
    }
}
