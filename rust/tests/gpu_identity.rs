// SPDX-License-Identifier: GPL-2.0

//! What a device says about its memory is not believed without a look.

use kernel::prelude::*;

use crate::{
    gpu::{
        doorbell::DoorbellManager,
        gart,
        hub::{
            judge,
            FbLocation,
            Misplaced, //
        },
        vram::VramManager, //
    },
    hw::{
        asic::GFX90A,
        regs::{
            hub::{
                fb_address,
                fb_top, //
            },
            nbio::vram_bytes, //
        }, //
    }, //
};

const GIB: u64 = 1 << 30;
/// Where the boot firmware of cards puts VRAM.
const BASE: u64 = 0x80_0000_0000;

/// Both hubs name `base` to `top`.
fn both(base: u64, top: u64, offset: u64, vram: u64) -> Result<FbLocation, Misplaced> {
    judge((base, top), (base, top), offset, vram)
}

#[kunit_tests(rkfd_gpu_identity)]
mod suite {
    use super::*;

    #[test]
    fn a_place_that_fits_is_taken() {
        let place = FbLocation {
            base: BASE,
            top: BASE + GIB - 1,
            offset: 0,
        };
        assert_eq!(both(BASE, BASE + GIB - 1, 0, GIB), Ok(place));
        // The unit of the registers is 16 MiB: the place may be larger than VRAM.
        assert!(both(BASE, BASE + GIB - 1, 0, GIB - (8 << 20)).is_ok());
        assert!(both(0, fb_top(0x3f), 0, GIB).is_ok());
    }

    #[test]
    fn hubs_must_agree() {
        let good = (BASE, BASE + GIB - 1);
        for other in [
            (BASE + (1 << 24), good.1),
            (good.0, good.1 + (1 << 24)),
            (0, fb_top(0)),
        ] {
            assert_eq!(judge(good, other, 0, GIB), Err(Misplaced::Disagree));
            assert_eq!(judge(other, good, 0, GIB), Err(Misplaced::Disagree));
        }
    }

    #[test]
    fn registers_that_nobody_set_are_seen() {
        assert_eq!(both(0, fb_top(0), 0, GIB), Err(Misplaced::Unset));
        assert_eq!(both(0, fb_top(0), 0, 16 << 20), Err(Misplaced::Unset));
    }

    #[test]
    fn the_place_must_hold_all_of_vram() {
        assert_eq!(
            both(BASE, BASE + GIB - 1, 0, GIB + 1),
            Err(Misplaced::TooSmall)
        );
        assert_eq!(both(BASE, BASE - 1, 0, GIB), Err(Misplaced::TooSmall));
        assert_eq!(both(BASE, fb_top(0), 0, 1 << 20), Err(Misplaced::TooSmall));
        assert_eq!(
            both(BASE, BASE + GIB - 1, 0, u64::MAX),
            Err(Misplaced::TooSmall)
        );
    }

    #[test]
    fn all_of_vram_must_be_addressable() {
        let high = fb_address(u32::MAX);
        assert!(both(high, fb_top(u32::MAX), 0, 16 << 20).is_ok());
        assert_eq!(
            both(BASE, BASE + GIB - 1, high, GIB),
            Err(Misplaced::TooHigh)
        );
        // All ones in every register, as a dead device answers, and a size to match.
        assert_eq!(
            both(high, fb_top(u32::MAX), high, GIB),
            Err(Misplaced::TooSmall)
        );
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        assert_eq!(vram_bytes(0), None);
        assert_eq!(vram_bytes(u32::MAX), None);
        assert_eq!(vram_bytes(1024), Some(GIB));
        // The largest value still fits 64 bits, and no place holds it.
        let huge = vram_bytes(u32::MAX - 1).unwrap_or(0);
        assert_eq!(huge, 0xffff_fffe << 20);
        assert_eq!(
            both(BASE, fb_top(u32::MAX), 0, huge),
            Err(Misplaced::TooSmall)
        );
    }

    #[test]
    fn managers_refuse_what_would_wrap() {
        assert_eq!(VramManager::new(0x8000, 0, 0).err(), Some(EINVAL));
        assert_eq!(
            VramManager::new(GIB, u64::MAX - GIB + 1, 0).err(),
            Some(EINVAL)
        );
        assert_eq!(VramManager::new(GIB, 0, u64::MAX).err(), Some(EINVAL));
        assert!(VramManager::new(GIB, BASE, 0).is_ok());
    }

    #[test]
    fn the_gart_finds_no_room_in_a_full_space() {
        assert_eq!(gart::window_start(0, (1 << 47) - 1), None);
        assert_eq!(gart::window_start(0, u64::MAX), None);
        assert!(gart::window_start(BASE, BASE + GIB - 1).is_some());
    }

    #[test]
    fn the_doorbell_bar_is_measured() -> Result {
        let layout = &GFX90A.doorbell;
        for len in [0, 0x1000, 0x2000, 0x3fff] {
            assert_eq!(DoorbellManager::new(layout, len).err(), Some(EINVAL));
        }
        assert_eq!(DoorbellManager::new(layout, 0x4000)?.usage(), (0, 1));
        assert_eq!(DoorbellManager::new(layout, 2 << 20)?.usage(), (0, 255));
        // A BAR that claims to be enormous costs no more than one of a reasonable size.
        assert_eq!(DoorbellManager::new(layout, 1 << 40)?.usage(), (0, 4096));
        Ok(())
    }
}
