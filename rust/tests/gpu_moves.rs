// SPDX-License-Identifier: GPL-2.0

//! Copies between VRAM and system memory, on every GPU that was probed; skipped where there is none. Each byte is
//! compared by the CPU.

use kernel::{
    prelude::*,
    sizes::{
        SZ_1M,
        SZ_4K, //
    },
    sync::Arc, //
};

use super::gpu_live::on_each;
use crate::{
    driver::power,
    gpu::{
        clear::ENGINE_MIN,
        copy::JOB_BYTES,
        moves::{
            Direction,
            Move, //
        },
        Gpu, //
    },
    kapi::pages::{
        Pages,
        Transfer, //
    },
    kfd::facade,
};

// CAST: Constants.
const PAGE: u64 = SZ_4K as u64;
const MIB: u64 = SZ_1M as u64;

/// What page `index` holds in all its words: no two pages the same, nor the same page of two rounds.
pub(super) fn word(round: u64, index: u64) -> u64 {
    (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (round << 56)
}

/// A page of words.
pub(super) fn page_of(word: u64) -> Result<KVVec<u8>> {
    let mut bytes = KVVec::with_capacity(SZ_4K, GFP_KERNEL)?;
    for _ in 0..SZ_4K / 8 {
        bytes.extend_from_slice(&word.to_ne_bytes(), GFP_KERNEL)?;
    }
    Ok(bytes)
}

/// VRAM and pages of `size` bytes.
fn pair(gpu: &Arc<Gpu>, size: u64) -> Result<Move> {
    let pages = Pages::alloc(usize::try_from(size / PAGE)?)?;
    Ok(Move {
        vram: Arc::new(gpu.vram().alloc_blocks(size, false)?, GFP_KERNEL)?,
        pages: Arc::new(pages, GFP_KERNEL)?,
        direction: Direction::Out,
    })
}

/// Fills the VRAM, copies it out, overwrites it, copies it back, and looks at both.
fn there_and_back(gpu: &Arc<Gpu>, size: u64) -> Result {
    let hw = gpu.enter()?;
    let mut both = pair(gpu, size)?;
    let pages = size / PAGE;
    for i in 0..pages {
        let (at, _) = both.vram.locate(i * PAGE).ok_or(EINVAL)?;
        hw.vram_write(at, &page_of(word(1, i))?)?;
    }
    gpu.copy_memory(&hw, &both)?;
    let mut seen = KVVec::from_elem(0_u8, SZ_4K, GFP_KERNEL)?;
    for i in 0..pages {
        let place = usize::try_from(i * PAGE)?;
        both.pages.copy(place, Transfer::Read(&mut seen))?;
        assert_eq!(seen[..], page_of(word(1, i))?[..]);
        both.pages
            .copy(place, Transfer::Write(&page_of(word(2, i))?))?;
    }
    both.direction = Direction::In;
    gpu.copy_memory(&hw, &both)?;
    for i in 0..pages {
        let (at, _) = both.vram.locate(i * PAGE).ok_or(EINVAL)?;
        hw.vram_read(at, &mut seen)?;
        assert_eq!(seen[..], page_of(word(2, i))?[..]);
    }
    Ok(())
}

#[kunit_tests(rkfd_gpu_moves_live)]
mod suite {
    use super::*;

    #[test]
    fn each_byte_goes_there_and_back() -> Result {
        on_each(|gpu| {
            // By the CPU, by one job, and by several.
            for size in [PAGE, ENGINE_MIN - PAGE, ENGINE_MIN, JOB_BYTES + MIB + PAGE] {
                let jobs = gpu.copy().status().jobs;
                there_and_back(gpu, size)?;
                assert_eq!((gpu.copy().status().jobs > jobs), (size >= ENGINE_MIN));
            }
            Ok(())
        })
    }

    #[test]
    fn without_the_engine_the_cpu_copies() -> Result {
        on_each(|gpu| {
            let sched = facade()?.scheduler(gpu).ok_or(ENODEV)?;
            power::suspend(gpu, &sched)?;
            let copied = there_and_back(gpu, MIB);
            power::resume(gpu, &sched)?;
            copied
        })
    }

    #[test]
    fn sizes_that_differ_are_refused() -> Result {
        on_each(|gpu| {
            let hw = gpu.enter()?;
            let mut both = pair(gpu, MIB)?;
            both.pages = Arc::new(Pages::alloc(1)?, GFP_KERNEL)?;
            assert_eq!(gpu.copy_memory(&hw, &both), Err(EINVAL));
            Ok(())
        })
    }

    #[test]
    fn the_window_has_all_its_room_again() -> Result {
        on_each(|gpu| {
            // More in all than the GART has.
            for _ in 0..40 {
                let hw = gpu.enter()?;
                let both = pair(gpu, JOB_BYTES)?;
                let jobs = gpu.copy().status().jobs;
                gpu.copy_memory(&hw, &both)?;
                assert!(gpu.copy().status().jobs > jobs);
            }
            Ok(())
        })
    }
}
