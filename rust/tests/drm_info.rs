// SPDX-License-Identifier: GPL-2.0

//! The device information of the render node, at the places where libraries look for it.

use kernel::prelude::*;

use crate::{
    drm::info::{
        device,
        Identity, //
    },
    gpu::silicon::Silicon,
    hw::{
        asic::{
            AsicDesc,
            GFX906,
            GFX90A, //
        },
        shader::ComputeUnits, //
    },
};

/// Offsets in `struct drm_amdgpu_info_device`, in 32-bit words, as a C compiler gives them.
mod at {
    pub(super) const FAMILY: usize = 4;
    pub(super) const NUM_SHADER_ENGINES: usize = 5;
    pub(super) const GPU_COUNTER_FREQ: usize = 7;
    pub(super) const MAX_ENGINE_CLOCK: usize = 8;
    pub(super) const MAX_MEMORY_CLOCK: usize = 10;
    pub(super) const CU_ACTIVE_NUMBER: usize = 12;
    pub(super) const CU_BITMAP: usize = 14;
    pub(super) const IDS_FLAGS: usize = 34;
    pub(super) const VIRTUAL_ADDRESS_OFFSET: usize = 36;
    pub(super) const VIRTUAL_ADDRESS_MAX: usize = 38;
    pub(super) const VIRTUAL_ADDRESS_ALIGNMENT: usize = 40;
    pub(super) const PTE_FRAGMENT_SIZE: usize = 41;
    pub(super) const GART_PAGE_SIZE: usize = 42;
    pub(super) const VRAM_TYPE: usize = 44;
    pub(super) const VRAM_BIT_WIDTH: usize = 45;
    pub(super) const WAVE_FRONT_SIZE: usize = 60;
    pub(super) const NUM_CU_PER_SH: usize = 62;
    pub(super) const HIGH_VA_OFFSET: usize = 84;
    pub(super) const HIGH_VA_MAX: usize = 86;
    pub(super) const MIN_ENGINE_CLOCK: usize = 92;
    pub(super) const MIN_MEMORY_CLOCK: usize = 94;
    pub(super) const WORDS: usize = 110;
}

/// A device with `count` units of `asic`.
fn identity(asic: &AsicDesc, count: u32) -> Identity {
    Identity {
        device_id: 0x740f,
        revision: 1,
        pci_revision: 2,
        silicon: Silicon {
            units: ComputeUnits::even(&asic.shader, count),
            mec_firmware: 0,
            sdma_firmware: 0,
            engine_clock_mhz: 1700,
            memory_clock_mhz: 1600,
        },
    }
}

fn long(words: &[u32], at: usize) -> Option<u64> {
    Some(u64::from(*words.get(at)?) | u64::from(*words.get(at + 1)?) << 32)
}

#[kunit_tests(rkfd_drm_info)]
mod cases {
    use super::*;

    #[test]
    fn words_are_where_c_puts_them() -> Result {
        let answer = device(&GFX90A, &identity(&GFX90A, 104))?;
        let words = answer.words();
        assert_eq!(words.len(), at::WORDS);
        assert_eq!(words.get(..4), Some([0x740f, 1, 0x3d, 2].as_slice()));
        for (at, want) in [
            (at::FAMILY, 141),
            (at::NUM_SHADER_ENGINES, 8),
            (at::GPU_COUNTER_FREQ, 100_000),
            (at::CU_ACTIVE_NUMBER, 104),
            (at::VIRTUAL_ADDRESS_ALIGNMENT, 0x1000),
            (at::PTE_FRAGMENT_SIZE, 0x20_0000),
            (at::GART_PAGE_SIZE, 0x1000),
            (at::VRAM_TYPE, 6),
            (at::VRAM_BIT_WIDTH, 4096),
            (at::WAVE_FRONT_SIZE, 64),
            (at::NUM_CU_PER_SH, 14),
        ] {
            assert_eq!((at, words.get(at)), (at, Some(&want)));
        }
        for (at, want) in [
            (at::MAX_ENGINE_CLOCK, 1_700_000),
            (at::MAX_MEMORY_CLOCK, 1_600_000),
            // Nobody asks for the lowest.
            (at::MIN_ENGINE_CLOCK, 0),
            (at::MIN_MEMORY_CLOCK, 0),
            (at::IDS_FLAGS, 0),
            (at::VIRTUAL_ADDRESS_OFFSET, 0x1_0000),
            (at::VIRTUAL_ADDRESS_MAX, 0x8000_0000_0000),
            (at::HIGH_VA_OFFSET, 0xffff_8000_0000_0000),
            (at::HIGH_VA_MAX, 0xffff_ffff_ffbf_0000),
        ] {
            assert_eq!((at, long(words, at)), (at, Some(want)));
        }
        Ok(())
    }

    #[test]
    fn unit_bitmap_counts_the_active_units() -> Result {
        for (asic, count) in [(&GFX90A, 104), (&GFX906, 61)] {
            let answer = device(asic, &identity(asic, count))?;
            let bitmap = answer.words().get(at::CU_BITMAP..at::CU_BITMAP + 16);
            let bitmap = bitmap.ok_or(EINVAL)?;
            let units: u32 = bitmap.iter().map(|word| word.count_ones()).sum();
            assert_eq!(units, count);
            assert_eq!(answer.words().get(at::CU_ACTIVE_NUMBER), Some(&count));
            // Engine n lies in row n % 4, column n / 4.
            for engine in 0..16u32 {
                let place = (engine % 4 * 4 + engine / 4) as usize;
                let there = bitmap.get(place).is_some_and(|word| *word != 0);
                assert!(there == (engine < asic.shader.engines));
            }
        }
        Ok(())
    }
}
