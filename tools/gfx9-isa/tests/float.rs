// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Floating point in vector instructions: modes, division, estimates and exceptions, against plain references per lane.

#![allow(
    clippy::precedence,
    clippy::needless_range_loop,
    clippy::bool_assert_comparison,
    clippy::type_complexity,
    clippy::unwrap_used,
    clippy::panic,
    reason = "fields are shifted and masked, and lanes counted, everywhere"
)]

mod common;

use common::floats;
use common::machine::Machine;
use common::random_lanes;
use common::seed;
use common::without_llvm;
use common::Random;
use gfx9_isa::env::Lanes;
use gfx9_isa::exec::Flow;
use gfx9_isa::inst::Asic;
use gfx9_isa::wave::excp;
use gfx9_isa::wave::mode;
use gfx9_isa::wave::reg;

#[test]
fn mode_bits_change_results() {
    if without_llvm("mode") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx906);
    let one = 1.0f32.to_bits();
    let mut first = |mode: u32, a: u32, b: u32, text: &str| {
        machine.wave.mode = mode;
        machine.set(1, [a; 64]);
        machine.set(2, [b; 64]);
        machine.asm(text).unwrap();
        machine.get(0)[5]
    };
    let keep = 0xF0;
    let add = "v_add_f32_e32 v0, v1, v2";
    // 1 + 2^-25 lies between 1 and its successor.
    let tiny = 0x3300_0000;
    assert_eq!(first(keep, one, tiny, add), one);
    assert_eq!(first(keep | 1, one, tiny, add), one + 1);
    assert_eq!(first(keep | 2, one, tiny | 1 << 31, add), one - 1);
    assert_eq!(first(keep | 3, one, tiny | 1 << 31, add), one - 1);
    // Denormals: kept, flushed at the input, flushed at the output.
    assert_eq!(first(keep, 5, 0, add), 5);
    assert_eq!(first(0xE0, 5, 0, add), 0);
    assert_eq!(first(0xC0, 0x8000_0005, 0x8000_0000, add), 0x8000_0000);
    let half_of = "v_mul_f32_e32 v0, 0.5, v1";
    assert_eq!(first(keep, 0x0080_0000, 0, half_of), 0x0040_0000);
    assert_eq!(first(0xD0, 0x0080_0000, 0, half_of), 0);
    // mad flushes in every mode, fma does not.
    assert_eq!(first(keep, 5, 0, "v_mad_f32 v0, v1, 1.0, 0"), 0);
    assert_eq!(first(keep, 5, 0, "v_fma_f32 v0, v1, 1.0, 0"), 5);
    // The output modifier counts only with flushed denormals and without IEEE.
    let doubled = "v_add_f32_e64 v0, v1, v2 mul:2";
    assert_eq!(first(0xC0, one, one, doubled), 4.0f32.to_bits());
    assert_eq!(first(keep, one, one, doubled), 2.0f32.to_bits());
    assert_eq!(
        first(0xC0 | mode::IEEE, one, one, doubled),
        2.0f32.to_bits()
    );
    // Clamp, and what it makes of NaN.
    let clamped = "v_add_f32_e64 v0, v1, v2 clamp";
    assert_eq!(first(keep, one, one, clamped), one);
    assert_eq!(first(keep, (-1.0f32).to_bits(), 0, clamped), 0);
    assert_eq!(first(keep | mode::DX10_CLAMP, 0x7FC0_0000, 0, clamped), 0);
    assert_eq!(first(keep, 0x7FC0_0000, 0, clamped), 0x7FC0_0000);
    // A signalling NaN is made quiet by max only with IEEE.
    let max = "v_max_f32_e32 v0, v1, v1";
    assert_eq!(first(keep | mode::IEEE, 0x7F80_0001, 0, max), 0x7FC0_0001);
    // The rounding of halves is that of doubles.
    let narrow = "v_cvt_f16_f32_e32 v0, v1";
    let above = 0x3F80_0001;
    assert_eq!(first(keep | 1, above, 0, narrow), 0x3C00);
    assert_eq!(first(keep | 4, above, 0, narrow), 0x3C01);
    let big = 1e6f32.to_bits();
    assert_eq!(first(keep, big, 0, narrow), 0x7C00);
    assert_eq!(first(keep | mode::FP16_OVFL, big, 0, narrow), 0x7BFF);
}

#[test]
fn division_sequences_are_exact() {
    if without_llvm("division") {
        return;
    }
    // What LLVM emits for an IEEE division.
    let single = "v_div_scale_f32 v3, s[4:5], v2, v2, v1
        v_rcp_f32_e32 v4, v3
        v_fma_f32 v5, -v3, v4, 1.0
        v_fma_f32 v4, v5, v4, v4
        v_div_scale_f32 v5, vcc, v1, v2, v1
        v_mul_f32_e32 v6, v5, v4
        v_fma_f32 v7, -v3, v6, v5
        v_fma_f32 v6, v7, v4, v6
        v_fma_f32 v3, -v3, v6, v5
        v_div_fmas_f32 v3, v3, v4, v6
        v_div_fixup_f32 v0, v3, v2, v1";
    let mut random = Random(seed());
    let mut machine = Machine::new(Asic::Gfx90a);
    for _ in 0..30 {
        let (a, b) = (floats(&mut random), random_lanes(&mut random));
        machine.wave.set_pair(reg::EXEC, u64::MAX);
        machine.set(1, a);
        machine.set(2, b);
        machine.asm(single).unwrap();
        for (lane, found) in machine.get(0).into_iter().enumerate() {
            let quotient = f32::from_bits(a[lane]) / f32::from_bits(b[lane]);
            let found = f32::from_bits(found);
            let same = found.to_bits() == quotient.to_bits();
            assert!(
                same || (found.is_nan() && quotient.is_nan()),
                "{:#x} / {:#x}: {:#x} {:#x}",
                a[lane],
                b[lane],
                found.to_bits(),
                quotient.to_bits()
            );
        }
    }
    let double = "v_div_scale_f64 v[6:7], s[4:5], v[4:5], v[4:5], v[2:3]
        v_rcp_f64_e32 v[8:9], v[6:7]
        v_fma_f64 v[10:11], -v[6:7], v[8:9], 1.0
        v_fma_f64 v[8:9], v[8:9], v[10:11], v[8:9]
        v_fma_f64 v[10:11], -v[6:7], v[8:9], 1.0
        v_fma_f64 v[8:9], v[8:9], v[10:11], v[8:9]
        v_div_scale_f64 v[10:11], vcc, v[2:3], v[4:5], v[2:3]
        v_mul_f64 v[12:13], v[10:11], v[8:9]
        v_fma_f64 v[6:7], -v[6:7], v[12:13], v[10:11]
        v_div_fmas_f64 v[6:7], v[6:7], v[8:9], v[12:13]
        v_div_fixup_f64 v[0:1], v[6:7], v[4:5], v[2:3]";
    for _ in 0..30 {
        let mut wide = || -> [u64; 64] {
            std::array::from_fn(|_| match random.below(4) {
                0 => random.next() & !(0x7FF << 52) | u64::from(random.below(4)) << 52,
                1 => random.next() & !(0x7FF << 52) | u64::from(2040 + random.below(7)) << 52,
                _ => random.next(),
            })
        };
        let (a, b) = (wide(), wide());
        machine.set_wide(2, &a);
        machine.set_wide(4, &b);
        machine.asm(double).unwrap();
        for (lane, found) in machine.get_wide(0).into_iter().enumerate() {
            let quotient = f64::from_bits(a[lane]) / f64::from_bits(b[lane]);
            let same = found == quotient.to_bits();
            assert!(
                same || (f64::from_bits(found).is_nan() && quotient.is_nan()),
                "{:#x} / {:#x}: {found:#x} {:#x}",
                a[lane],
                b[lane],
                quotient.to_bits()
            );
        }
    }
}

#[test]
fn estimates_are_within_one_unit() {
    if without_llvm("estimates") {
        return;
    }
    type Exact = fn(f64) -> f64;
    let cases: [(&str, Exact); 5] = [
        ("v_rcp_f32_e32 v0, v1", |x| 1.0 / x),
        ("v_rsq_f32_e32 v0, v1", |x| 1.0 / x.sqrt()),
        ("v_sqrt_f32_e32 v0, v1", f64::sqrt),
        ("v_exp_f32_e32 v0, v1", f64::exp2),
        ("v_log_f32_e32 v0, v1", f64::log2),
    ];
    let mut random = Random(seed());
    let mut machine = Machine::new(Asic::Gfx90a);
    for (text, exact) in cases {
        let values: Lanes =
            std::array::from_fn(|_| (0.01 + random.below(100_000) as f32 / 1000.0).to_bits());
        machine.set(1, values);
        machine.asm(text).unwrap();
        for (lane, found) in machine.get(0).into_iter().enumerate() {
            let expected = exact(f32::from_bits(values[lane]).into()) as f32;
            assert!(found.abs_diff(expected.to_bits()) <= 1, "{text}");
        }
    }
    machine.set(1, [0; 64]);
    machine
        .asm("v_rcp_f32_e32 v0, v1\nv_log_f32_e32 v2, v1")
        .unwrap();
    assert_eq!(machine.get(0)[0], f32::INFINITY.to_bits());
    assert_eq!(machine.get(2)[0], f32::NEG_INFINITY.to_bits());
}

#[test]
fn bits_of_two_over_pi_make_a_constant() {
    if without_llvm("trig_preop") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx90a);
    machine.set_wide(2, &[1.0f64.to_bits(); 64]);
    machine
        .asm("v_trig_preop_f64 v[0:1], v[2:3], 0\nv_trig_preop_f64 v[4:5], v[2:3], 1\nv_add_f64 v[6:7], v[0:1], v[4:5]")
        .unwrap();
    let (first, second) = (machine.get_wide(0)[0], machine.get_wide(4)[0]);
    let exact = std::f64::consts::FRAC_2_PI;
    assert!(f64::from_bits(first) <= exact);
    // The host's constant is rounded, this one cut.
    assert!(exact - f64::from_bits(first) <= 2f64.powi(-53));
    assert!(f64::from_bits(second) < 2f64.powi(-53));
    assert_eq!(machine.get_wide(6)[0], exact.to_bits());
}

/// What LLVM's software floats raise, as bits of TRAPSTS.
fn raised_by(status: rustc_apfloat::Status) -> u32 {
    use rustc_apfloat::Status;
    let bit = |of: Status, bit: u32| if status.contains(of) { bit } else { 0 };
    bit(Status::INVALID_OP, excp::INVALID)
        | bit(Status::OVERFLOW, excp::OVERFLOW)
        | bit(Status::INEXACT, excp::INEXACT)
}

#[test]
fn floats_raise_what_llvms_do() {
    use rustc_apfloat::ieee::Double;
    use rustc_apfloat::ieee::Single;
    use rustc_apfloat::Float;
    use rustc_apfloat::Round;
    if without_llvm("exceptions") {
        return;
    }
    const MODES: [Round; 4] = [
        Round::NearestTiesToEven,
        Round::TowardPositive,
        Round::TowardNegative,
        Round::TowardZero,
    ];
    // DENORMAL has no counterpart, and UNDERFLOW another definition.
    const COMPARED: u32 = excp::INVALID | excp::OVERFLOW | excp::INEXACT;
    let mut random = Random(seed());
    let mut machine = Machine::new(Asic::Gfx90a);
    machine.wave.tracks_exceptions = true;
    let mut seen = 0;
    for (mode, round) in (0..).zip(MODES) {
        for _ in 0..300 {
            machine.wave.mode = 0xF0 | mode | mode << 2;
            let [a, b, c] = std::array::from_fn(|_| floats(&mut random)[0]);
            let [x, y, z] = [a, b, c].map(|bits| Single::from_bits(bits.into()));
            let wide = |x: u32, y: u32| u64::from(x) << 32 | u64::from(y);
            let (d, e, f) = (wide(a, b), wide(b, c), wide(c, a));
            let [u, v, w] = [d, e, f].map(|bits| Double::from_bits(bits.into()));
            for (at, value) in [a, b, c].into_iter().enumerate() {
                machine.set(1 + at, [value; 64]);
            }
            for (at, value) in [d, e, f].into_iter().enumerate() {
                machine.set_wide(4 + 2 * at, &[value; 64]);
            }
            let cases = [
                ("v_add_f32_e32 v0, v1, v2", x.add_r(y, round).status),
                ("v_mul_f32_e32 v0, v1, v2", x.mul_r(y, round).status),
                ("v_fma_f32 v0, v1, v2, v3", x.mul_add_r(y, z, round).status),
                (
                    "v_add_f64 v[10:11], v[4:5], v[6:7]",
                    u.add_r(v, round).status,
                ),
                (
                    "v_mul_f64 v[10:11], v[4:5], v[6:7]",
                    u.mul_r(v, round).status,
                ),
                (
                    "v_fma_f64 v[10:11], v[4:5], v[6:7], v[8:9]",
                    u.mul_add_r(v, w, round).status,
                ),
            ];
            for (text, status) in cases {
                machine.wave.trapsts = 0;
                machine.asm(text).unwrap();
                let found = machine.wave.trapsts;
                let expected = raised_by(status);
                // LLVM has no overflow where the result is cut to the greatest number.
                let cut = mode != 0 && expected & excp::OVERFLOW == 0;
                let compared = COMPARED & !if cut { excp::OVERFLOW } else { 0 };
                assert_eq!(
                    found & compared,
                    expected,
                    "{text} mode {mode}: {a:#x} {b:#x} {c:#x}, {found:#x}"
                );
                seen |= found;
            }
        }
    }
    assert_eq!(seen & COMPARED, COMPARED);
    assert!(seen & excp::DENORMAL != 0 && seen & excp::UNDERFLOW != 0);
}

#[test]
fn enabled_exceptions_trap_behind_their_instruction() {
    if without_llvm("traps of floats") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx906);
    let code = common::assemble(Asic::Gfx906, "v_rcp_f32_e32 v0, v1");
    let mut step = |mode: u32, exec: u64, value: f32| {
        machine.wave.mode = mode;
        machine.wave.set_pair(reg::EXEC, exec);
        machine.wave.trapsts = 0;
        machine.wave.pc = 8;
        let mut lanes = [1.0f32.to_bits(); 64];
        lanes[7] = value.to_bits();
        machine.set(1, lanes);
        let flow = machine.step(&code).unwrap();
        (
            flow,
            machine.wave.trapsts,
            machine.wave.pc,
            machine.get(0)[7],
        )
    };
    let traps = excp::DIV0 << excp::MODE_SHIFT;
    let infinity = f32::INFINITY.to_bits();
    let all = u64::MAX;
    // The result is written, and PC is behind the instruction.
    assert_eq!(
        step(0xF0 | traps, all, 0.0),
        (Flow::Math(excp::DIV0), excp::DIV0, 12, infinity)
    );
    // Inactive lanes raise nothing; what is not enabled does not trap.
    assert_eq!(
        step(0xF0 | traps, all - 0x80, 0.0),
        (Flow::Next, 0, 12, infinity)
    );
    let other = excp::INVALID << excp::MODE_SHIFT;
    assert_eq!(
        step(0xF0 | other, all, 0.0),
        (Flow::Next, excp::DIV0, 12, infinity)
    );
    assert_eq!(step(0xF0, all, 0.0).1, 0);
    let invalid = step(0xF0 | other, all, f32::from_bits(0x7F80_0001));
    assert_eq!(
        (invalid.0, invalid.1),
        (Flow::Math(excp::INVALID), excp::INVALID)
    );
}
