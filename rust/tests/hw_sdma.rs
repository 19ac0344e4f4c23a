// SPDX-License-Identifier: GPL-2.0

//! KUnit: SDMA packets and the load of a user queue.
//!
//! Outside a module build (`MODULE` unset) the same cases run as ordinary tests on the host.

#[cfg_attr(MODULE, kernel::macros::kunit_tests(rkfd_hw_sdma))]
mod tests {
    use crate::hw::asic::GFX906;
    use crate::hw::asic::GFX90A;
    use crate::hw::sdma;

    #[test]
    fn copies_count_bytes_less_one() {
        assert_eq!(
            sdma::copy(0x12_3456_7000, 0x34_5678_9000, 4096, true),
            Ok([1, 4095, 0, 0x3456_7000, 0x12, 0x5678_9000, 0x34])
        );
    }

    #[test]
    fn the_count_field_depends_on_the_generation() {
        let copy = |bytes, long| sdma::copy(0, 0, bytes, long).is_ok();
        assert!(!copy(0, true));
        assert!(copy(1 << 22, false));
        assert!(!copy((1 << 22) + 1, false));
        assert!(copy(1 << 30, true));
        assert!(!copy((1 << 30) + 1, true));
        assert_eq!(sdma::max_bytes(GFX90A.sdma.long_count), 1 << 30);
        assert_eq!(sdma::max_bytes(GFX906.sdma.long_count), 1 << 22);
    }

    #[test]
    fn fills_write_whole_dwords() {
        assert_eq!(
            sdma::fill(0x1000, 0xDEAD_BEEF, 8, true),
            Ok([0x8000_000B, 0x1000, 0, 0xDEAD_BEEF, 7])
        );
        assert!(sdma::fill(0x1000, 0, 6, true).is_err());
    }

    #[test]
    fn fence_and_trap_signal_an_event() {
        assert_eq!(
            sdma::fence(0x7F00_0000_1008, 9),
            Some([5, 0x1008, 0x7F00, 9])
        );
        assert_eq!(sdma::fence(0x1002, 9), None);
        assert_eq!(sdma::trap(0x0FFF_FFFF), Some([6, 0x0FFF_FFFF]));
        assert_eq!(sdma::trap(0x1000_0000), None);
    }

    #[test]
    fn entries_are_generated_in_bulk() {
        assert_eq!(
            sdma::generate_entries(0x2000, 0x0200_0000_0000_0071, 0x1_0000_5000, 0x1000, 512),
            Ok([12, 0x2000, 0, 0x71, 0x0200_0000, 0x5000, 1, 0x1000, 0, 511])
        );
        assert!(sdma::generate_entries(0, 0, 0, 0, 0).is_err());
        assert!(sdma::generate_entries(0, 0, 0, 0, 1 << 19).is_ok());
        assert!(sdma::generate_entries(0, 0, 0, 0, (1 << 19) + 1).is_err());
    }

    #[test]
    fn engine_registers_move_between_generations() {
        let byte = |asic: &crate::hw::asic::AsicDesc, engine, queue| {
            let rlc = asic.sdma.engine(engine)?.rlc(queue)?;
            Some(rlc.rb_cntl().byte())
        };
        // Engine bases 0x4980 and 0x78000; RLC blocks at 0x140 + n * 0x60 or 0x130 + n * 0x58.
        assert_eq!(byte(&GFX906, 0, 0), Some(0x4980 + 4 * 0x140));
        assert_eq!(byte(&GFX906, 1, 7), Some(0x6180 + 4 * 0x3e0));
        assert_eq!(byte(&GFX90A, 2, 0), Some(0x7_8000 + 4 * 0x130));
        assert_eq!(byte(&GFX90A, 4, 7), Some(0x7_A000 + 4 * 0x398));
        assert_eq!(byte(&GFX90A, 4, 8), None);
        assert_eq!(byte(&GFX90A, 5, 0), None);
        assert_eq!(byte(&GFX906, 2, 0), None);
    }
}
