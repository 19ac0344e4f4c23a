// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Fields of words.

use proptest::prelude::*;

use crate::hw::bits::{fields, Overflow};
use crate::hw::num;
use crate::hw::regs::hqd::{DoorbellControl, PqControl};

fields! {
    /// A word with a gap.
    struct Sample {
        /// Lowest bit.
        FLAG [0:0];
        /// Middle.
        MIDDLE [11:4];
        /// Up to the highest bit.
        TOP [31:28];
    }
}

#[test]
fn setting_a_field_leaves_the_others() {
    let word = Sample::from_raw(0xFFFF_FFFF).with(Sample::MIDDLE, 0x5A);
    assert_eq!(word.raw(), 0xFFFF_F5AF);
    assert_eq!(word.get(Sample::MIDDLE), 0x5A);
    assert_eq!(word.get(Sample::TOP), 0xF);
    assert!(word.is_set(Sample::FLAG));
    assert_eq!(word.with_flag(Sample::FLAG, false).raw(), 0xFFFF_F5AE);
}

#[test]
fn the_widest_value_fits_and_the_next_does_not() {
    assert_eq!(
        Sample::new()
            .try_with(Sample::MIDDLE, 0xFF)
            .map(Sample::raw),
        Ok(0xFF0)
    );
    assert_eq!(
        Sample::new().try_with(Sample::MIDDLE, 0x100),
        Err(Overflow {
            field: "MIDDLE",
            value: 0x100
        })
    );
}

#[test]
fn undeclared_bits_are_the_gap() {
    assert_eq!(Sample::from_raw(u32::MAX).undeclared(), 0x0FFF_F00E);
    assert_eq!(Sample::from_raw(0xF000_0FF1).undeclared(), 0);
}

#[test]
fn words_print_their_fields() {
    let word = PqControl::new()
        .with(PqControl::QUEUE_SIZE, 9)
        .with(PqControl::PRIV_STATE, 1);
    assert_eq!(word.to_string(), "0x40000009 QUEUE_SIZE=0x9 PRIV_STATE=0x1");
    assert_eq!(DoorbellControl::new().to_string(), "0x00000000");
}

#[test]
fn alignment_stops_at_the_end_of_the_range() {
    assert_eq!(num::align_up(0, 0x1000), Some(0));
    assert_eq!(num::align_up(1, 0x1000), Some(0x1000));
    assert_eq!(num::align_up(0x1000, 0x1000), Some(0x1000));
    assert_eq!(num::align_up(u64::MAX, 0x1000), None);
    assert_eq!(num::low_mask(64), u64::MAX);
    assert_eq!(num::low_mask(0), 0);
}

proptest! {
    #[test]
    fn halves_join_again(value: u64) {
        prop_assert_eq!(num::join(num::lo32(value), num::hi32(value)), value);
    }

    #[test]
    fn fields_round_trip_in_any_word(raw: u32, value in 0u32..=0xFF) {
        let word = Sample::from_raw(raw).with(Sample::MIDDLE, value);
        prop_assert_eq!(word.get(Sample::MIDDLE), value);
        prop_assert_eq!(word.raw() & !0xFF0, raw & !0xFF0);
    }
}
