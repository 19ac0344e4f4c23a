// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Floating point against LLVM's software floats, in all rounding modes.

#![allow(
    clippy::precedence,
    clippy::needless_range_loop,
    clippy::bool_assert_comparison,
    clippy::type_complexity,
    clippy::unwrap_used,
    clippy::panic,
    reason = "fields are shifted and masked, and lanes counted, everywhere"
)]

use gfx9_isa::fp;
use proptest::prelude::*;
use rustc_apfloat::ieee::Double;
use rustc_apfloat::ieee::Half;
use rustc_apfloat::ieee::Single;
use rustc_apfloat::Float;
use rustc_apfloat::FloatConvert;
use rustc_apfloat::Round;

const MODES: [Round; 4] = [
    Round::NearestTiesToEven,
    Round::TowardPositive,
    Round::TowardNegative,
    Round::TowardZero,
];

/// Equal, or both no number: payloads are another matter.
fn same<F: Float>(ours: u128, theirs: F) -> bool {
    let ours = F::from_bits(ours);
    if theirs.is_nan() {
        ours.is_nan()
    } else {
        ours.to_bits() == theirs.to_bits()
    }
}

/// Bits of which exponents near each other, ends and denormals are frequent.
fn bits64() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (any::<u64>(), 1018u64..1030).prop_map(|(x, e)| x & !(0x7FF << 52) | e << 52),
        (any::<u64>(), 0u64..3).prop_map(|(x, e)| x & !(0x7FF << 52) | e << 52),
        (any::<u64>(), 2045u64..2048).prop_map(|(x, e)| x & !(0x7FF << 52) | e << 52),
        (any::<u64>(), 480u64..560).prop_map(|(x, e)| x & !(0x7FF << 52) | e << 52),
        Just(0),
        Just(1 << 63),
        Just(0x3FF0_0000_0000_0000),
    ]
}

fn bits32() -> impl Strategy<Value = u32> {
    prop_oneof![
        any::<u32>(),
        (any::<u32>(), 120u32..135).prop_map(|(x, e)| x & !(0xFF << 23) | e << 23),
        (any::<u32>(), 0u32..3).prop_map(|(x, e)| x & !(0xFF << 23) | e << 23),
        (any::<u32>(), 253u32..256).prop_map(|(x, e)| x & !(0xFF << 23) | e << 23),
        (any::<u32>(), 50u32..75).prop_map(|(x, e)| x & !(0xFF << 23) | e << 23),
        Just(0),
        Just(0x8000_0000),
        Just(0x3F80_0000),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn sums_and_products_of_64_bits(a in bits64(), b in bits64(), c in bits64()) {
        let (x, y, z) = (Double::from_bits(a.into()), Double::from_bits(b.into()), Double::from_bits(c.into()));
        for (mode, round) in (0..).zip(MODES) {
            prop_assert!(same(fp::add64(a, b, mode).into(), x.add_r(y, round).value), "add {mode}");
            prop_assert!(same(fp::mul64(a, b, mode).into(), x.mul_r(y, round).value), "mul {mode}");
            let fused = x.mul_add_r(y, z, round).value;
            prop_assert!(same(fp::fma64(a, b, c, mode).into(), fused), "fma {mode}");
        }
    }

    #[test]
    fn sums_and_products_of_32_bits(a in bits32(), b in bits32(), c in bits32()) {
        let (x, y, z) = (Single::from_bits(a.into()), Single::from_bits(b.into()), Single::from_bits(c.into()));
        for (mode, round) in (0..).zip(MODES) {
            prop_assert!(same(fp::add32_mode(a, b, mode).into(), x.add_r(y, round).value), "add {mode}");
            prop_assert!(same(fp::mul32_mode(a, b, mode).into(), x.mul_r(y, round).value), "mul {mode}");
            let fused = x.mul_add_r(y, z, round).value;
            prop_assert!(same(fp::fma32(a, b, c, mode).into(), fused), "fma {mode}");
        }
        prop_assert_eq!(fp::add32(a, b), fp::add32_mode(a, b, 0));
        prop_assert_eq!(fp::mul32(a, b), fp::mul32_mode(a, b, 0));
        prop_assert_eq!(fp::fma32_near(a, b, c), fp::fma32(a, b, c, 0));
    }

    #[test]
    fn sums_and_products_of_16_bits(a: u16, b: u16, c: u16) {
        let (x, y, z) = (Half::from_bits(a.into()), Half::from_bits(b.into()), Half::from_bits(c.into()));
        let (a, b, c) = (u32::from(a), u32::from(b), u32::from(c));
        for (mode, round) in (0..).zip(MODES) {
            prop_assert!(same(fp::add16_mode(a, b, mode).into(), x.add_r(y, round).value), "add {mode}");
            prop_assert!(same(fp::mul16(a, b, mode).into(), x.mul_r(y, round).value), "mul {mode}");
            let fused = x.mul_add_r(y, z, round).value;
            prop_assert!(same(fp::fma16(a, b, c, mode).into(), fused), "fma {mode}");
        }
    }

    #[test]
    fn narrowing(a in bits64(), b in bits32()) {
        let mut loses = false;
        for (mode, round) in (0..).zip(MODES) {
            let single: Single = Double::from_bits(a.into()).convert_r(round, &mut loses).value;
            prop_assert!(same(fp::f64_to_f32(f64::from_bits(a), mode).into(), single), "f32 {mode}");
            let half: Half = Single::from_bits(b.into()).convert_r(round, &mut loses).value;
            prop_assert!(same(fp::f32_to_f16(b, mode).into(), half), "f16 {mode}");
        }
    }
}

#[test]
fn a_scaled_sum_is_rounded_once() {
    let one = 1f64.to_bits();
    // 1 + 2^-52 + a little, moved so far down that one bit is lost: just below a tie.
    let sum = fp::fma64_scaled(one, 0x3950_0000_0000_0000, one + 2, -1023, 0);
    assert_eq!(sum, 0x8_0000_0000_0001);
    let below = fp::fma64_scaled(one, 0xB950_0000_0000_0000, one + 1, -1023, 0);
    assert_eq!(below, 0x8_0000_0000_0000);
    let above = fp::fma64_scaled(one, 0x3950_0000_0000_0000, one + 1, -1023, 0);
    assert_eq!(above, 0x8_0000_0000_0001);
    assert_eq!(
        fp::fma64_scaled(0, one, one, 128, 0),
        2f64.powi(128).to_bits()
    );
}

#[test]
fn every_half_converts_exactly_and_back() {
    for x in 0..=0xFFFF {
        let theirs = half::f16::from_bits(x as u16).to_f32();
        let ours = f32::from_bits(fp::f16_to_f32(x));
        assert!(
            ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()),
            "{x:#x}"
        );
        if !fp::is_nan16(x) {
            assert_eq!(fp::f32_to_f16(ours.to_bits(), 0), x);
        }
    }
}

#[test]
fn finite_overflow_saturates_if_asked() {
    let big = 70000f32.to_bits();
    assert_eq!(fp::f32_to_f16(big, 0), 0x7C00);
    assert_eq!(fp::f32_to_f16(big, fp::SATURATE), 0x7BFF);
    assert_eq!(
        fp::f32_to_f16(f32::INFINITY.to_bits(), fp::SATURATE),
        0x7C00
    );
}

#[test]
fn zeros_and_numbers_are_ordered_and_signalling_ones_made_quiet() {
    assert_eq!(fp::min32(0, 0x8000_0000, true), 0x8000_0000);
    assert_eq!(fp::max32(0x8000_0000, 0, true), 0);
    // One NaN gives way, a signalling one does not with IEEE.
    assert_eq!(fp::min32(0x7FC0_0001, 5, true), 5);
    assert_eq!(fp::min32(0x7F80_0001, 5, true), 0x7FC0_0001);
    assert_eq!(fp::min32(0x7F80_0001, 5, false), 5);
    assert_eq!(fp::max16(0x7C01, 0x3C00, true), 0x7E01);
    assert_eq!(fp::max64(1 << 63, 0, false), 0);
}
