// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Instructions that other tests leave out: 16-bit floats one by one, mixed precision, packed `f32`, sums of absolute
//! differences, cube maps, 8-bit floats, global wave sync.

#![allow(
    clippy::precedence,
    clippy::needless_range_loop,
    clippy::type_complexity,
    clippy::unwrap_used,
    clippy::panic,
    reason = "fields are shifted and masked, and lanes counted, everywhere"
)]

mod common;

use common::assemble;
use common::machine::Machine;
use common::seed;
use common::without_llvm;
use common::Random;
use gfx9_isa::env::Gws;
use gfx9_isa::env::GwsOp;
use gfx9_isa::exec::Flow;
use gfx9_isa::inst::Asic;
use gfx9_isa::wave::mode;
use gfx9_isa::wave::reg;
use half::f16;
use rustc_apfloat::ieee::Double;
use rustc_apfloat::ieee::Half;
use rustc_apfloat::Float;
use rustc_apfloat::FloatConvert;

/// Denormals kept, nearest even.
const PLAIN: u32 = 0xF0;

fn half_of(bits: u32) -> f64 {
    f16::from_bits(bits as u16).to_f64()
}

/// The nearest one; `half` forgets the lower half of a double.
fn to_half(value: f64) -> u32 {
    let exact = Double::from_bits(value.to_bits().into());
    let near: Half = exact.convert(&mut false).value;
    near.to_bits() as u32
}

fn is_nan16(bits: u32) -> bool {
    bits & 0x7FFF > 0x7C00
}

/// Executes an instruction for every 16-bit value in v1 and compares v0.
fn every_half(text: &str, expected: impl Fn(u32) -> u32, float: bool) {
    let mut machine = Machine::new(Asic::Gfx90a);
    machine.wave.mode = PLAIN;
    let code = assemble(Asic::Gfx90a, text);
    for first in (0..0x1_0000).step_by(64) {
        machine.set(1, std::array::from_fn(|lane| first + lane as u32));
        machine.wave.pc = 0;
        machine.step(&code).unwrap();
        for (lane, found) in machine.get(0).into_iter().enumerate() {
            let value = first + lane as u32;
            let expected = expected(value);
            let nans = float && is_nan16(found) && is_nan16(expected);
            assert!(
                found == expected || nans,
                "{text} of {value:#06x}: {found:#x}, not {expected:#x}"
            );
        }
    }
}

#[test]
fn functions_of_every_half() {
    if without_llvm("halves") {
        return;
    }
    type Exact = fn(f64) -> f64;
    let cases: [(&str, Exact); 9] = [
        ("rcp_f16", |x| 1.0 / x),
        ("sqrt_f16", f64::sqrt),
        ("rsq_f16", |x| 1.0 / x.sqrt()),
        ("log_f16", f64::log2),
        ("exp_f16", f64::exp2),
        ("floor_f16", f64::floor),
        ("ceil_f16", f64::ceil),
        ("trunc_f16", f64::trunc),
        ("rndne_f16", f64::round_ties_even),
    ];
    for (name, exact) in cases {
        let text = format!("v_{name}_e32 v0, v1");
        every_half(&text, |x| to_half(exact(half_of(x))), true);
    }
    // The fraction stays below 1.
    let fract = |x: u32| {
        let value = half_of(x);
        if value.is_finite() {
            to_half(value - value.floor()).min(0x3BFF)
        } else {
            0x7E00
        }
    };
    every_half("v_fract_f16_e32 v0, v1", fract, true);
    // Mantissa and exponent make up the number.
    let mantissa = |x: u32| {
        let value = half_of(x);
        if value == 0.0 || !value.is_finite() {
            return x;
        }
        let mut part = value.abs();
        while part >= 1.0 {
            part /= 2.0;
        }
        while part < 0.5 {
            part *= 2.0;
        }
        to_half(part.copysign(value))
    };
    every_half("v_frexp_mant_f16_e32 v0, v1", mantissa, true);
    let exponent = |x: u32| {
        let value = half_of(x).abs();
        if value == 0.0 || !value.is_finite() {
            return 0;
        }
        (value.log2().floor() as i32 + 1) as u32 & 0xFFFF
    };
    every_half("v_frexp_exp_i16_f16_e32 v0, v1", exponent, false);
    // Turns: the values of quarter turns, and 0 beyond 256.
    let sine = |x: u32| {
        let value = half_of(x);
        if !value.is_finite() {
            return 0x7E00;
        }
        if value.abs() > 256.0 {
            return 0;
        }
        to_half((value.fract() * std::f64::consts::TAU).sin())
    };
    every_half("v_sin_f16_e32 v0, v1", sine, true);
    let mut machine = Machine::new(Asic::Gfx90a);
    for (turns, sine, cosine) in [(0.25, 1.0, 0.0), (0.5, 0.0, -1.0), (1.0, 0.0, 1.0)] {
        machine.set(1, [to_half(turns); 64]);
        machine
            .asm("v_sin_f16_e32 v0, v1\nv_cos_f16_e32 v2, v1")
            .unwrap();
        assert!((half_of(machine.get(0)[0]) - sine).abs() < 1e-3);
        assert!((half_of(machine.get(2)[0]) - cosine).abs() < 1e-3);
    }
}

#[test]
fn conversions_of_every_half() {
    if without_llvm("conversions") {
        return;
    }
    let single = |x: u32| f16::from_bits(x as u16).to_f32().to_bits();
    let quiet = |x: u32| {
        if is_nan16(x) {
            single(x) | 0x40_0000
        } else {
            single(x)
        }
    };
    every_half("v_cvt_f32_f16_e32 v0, v1", quiet, false);
    let unsigned = |x: u32| u32::from(half_of(x) as u16);
    every_half("v_cvt_u16_f16_e32 v0, v1", unsigned, false);
    let signed = |x: u32| u32::from(half_of(x) as i16 as u16);
    every_half("v_cvt_i16_f16_e32 v0, v1", signed, false);
    let norm = |x: u32, least: f64, most: f64| {
        let value = half_of(x);
        if value.is_nan() {
            return 0;
        }
        (value.clamp(least, 1.0) * most).round_ties_even() as i32 as u32 & 0xFFFF
    };
    every_half(
        "v_cvt_norm_i16_f16_e32 v0, v1",
        |x| norm(x, -1.0, 32767.0),
        false,
    );
    every_half(
        "v_cvt_norm_u16_f16_e32 v0, v1",
        |x| norm(x, 0.0, 65535.0),
        false,
    );
    every_half("v_cvt_f16_u16_e32 v0, v1", |x| to_half(x.into()), true);
    let from_signed = |x: u32| to_half((x as u16 as i16).into());
    every_half("v_cvt_f16_i16_e32 v0, v1", from_signed, true);
    // Denormals count as 0 where the mode says so.
    let mut machine = Machine::new(Asic::Gfx906);
    machine.wave.mode = 0x30;
    machine.set(1, [0x8001; 64]);
    machine
        .asm("v_cvt_f32_f16_e32 v0, v1\nv_rcp_f16_e32 v2, v1")
        .unwrap();
    assert_eq!(
        (machine.get(0)[0], machine.get(2)[0]),
        (0x8000_0000, 0xFC00)
    );
}

/// Numbers whose products and sums are exact on 64 bits.
fn moderate(random: &mut Random) -> u32 {
    let half = |random: &mut Random| {
        let sign = random.below(2) << 15;
        sign | (10 + random.below(10)) << 10 | random.below(1024)
    };
    half(random) | half(random) << 16
}

#[test]
fn mixed_precision_takes_either_half_or_all() {
    if without_llvm("mixed precision") {
        return;
    }
    let mut random = Random(seed());
    let mut machine = Machine::new(Asic::Gfx90a);
    machine.wave.mode = PLAIN;
    for op_sel in 0..8u32 {
        for signs in 0..8u32 {
            let bit = |mask: u32, at: u32| mask >> at & 1;
            let inputs: [[u32; 64]; 3] =
                std::array::from_fn(|_| std::array::from_fn(|_| moderate(&mut random)));
            for (at, input) in inputs.iter().enumerate() {
                machine.set(1 + at, *input);
            }
            let old = 0xABCD_1234;
            machine.set(0, [old; 64]);
            machine.set(4, [old; 64]);
            let modifiers = format!(
                "op_sel:[{},{},{}] op_sel_hi:[1,1,1]",
                bit(op_sel, 0),
                bit(op_sel, 1),
                bit(op_sel, 2)
            );
            let sign = |at: u32| if bit(signs, at) != 0 { "-" } else { "" };
            let operands = format!("{}v1, {}|v2|, {}v3", sign(0), sign(1), sign(2));
            machine
                .asm(&format!(
                    "v_fma_mixlo_f16 v0, {operands} {modifiers}\nv_fma_mixhi_f16 v4, {operands} {modifiers}\nv_fma_mix_f32 v5, {operands} {modifiers}"
                ))
                .unwrap();
            for lane in 0..64 {
                let value = |at: u32| {
                    let word = inputs[at as usize][lane] >> (16 * bit(op_sel, at));
                    let value = half_of(word & 0xFFFF);
                    let value = if at == 1 { value.abs() } else { value };
                    if bit(signs, at) != 0 {
                        -value
                    } else {
                        value
                    }
                };
                let exact = value(0) * value(1) + value(2);
                assert_eq!(machine.get(0)[lane], old & 0xFFFF_0000 | to_half(exact));
                assert_eq!(machine.get(4)[lane], old & 0xFFFF | to_half(exact) << 16);
                assert_eq!(machine.get(5)[lane], (exact as f32).to_bits());
            }
        }
    }
    // Whole registers are `f32`, also beside halves.
    machine.set(1, [1.5f32.to_bits(); 64]);
    machine.set(2, [to_half(4.0) << 16 | to_half(2.0); 64]);
    machine.set(3, [0.125f32.to_bits(); 64]);
    machine
        .asm("v_fma_mix_f32 v0, v1, v2, v3 op_sel:[0,1,0] op_sel_hi:[0,1,0]")
        .unwrap();
    assert_eq!(f32::from_bits(machine.get(0)[0]), 6.125);
}

#[test]
fn packed_singles_choose_and_negate_their_halves() {
    if without_llvm("packed singles") {
        return;
    }
    let mut random = Random(seed());
    let mut machine = Machine::new(Asic::Gfx90a);
    machine.wave.mode = PLAIN;
    let pairs: [[u64; 64]; 3] = std::array::from_fn(|_| {
        std::array::from_fn(|_| {
            let mut single = || {
                let value = f64::from(random.below(2000)) / 64.0 - 15.0;
                u64::from((value as f32).to_bits())
            };
            single() | single() << 32
        })
    });
    for (at, pair) in pairs.iter().enumerate() {
        machine.set_wide(2 + 2 * at, pair);
    }
    let of = |at: usize, lane: usize, high: bool| {
        f32::from_bits((pairs[at][lane] >> if high { 32 } else { 0 }) as u32)
    };
    machine
        .asm("v_pk_fma_f32 v[8:9], v[2:3], v[4:5], v[6:7] op_sel:[1,0,0] op_sel_hi:[0,1,1] neg_lo:[0,1,0] neg_hi:[1,0,0]\nv_pk_mul_f32 v[10:11], v[2:3], v[4:5] op_sel_hi:[0,1]\nv_pk_add_f32 v[12:13], v[2:3], v[4:5] neg_lo:[0,1]\nv_pk_mov_b32 v[14:15], v[2:3], v[4:5] op_sel:[1,0]\nv_pk_fma_f32 v[2:3], v[2:3], v[2:3], v[2:3] op_sel:[1,1,1] op_sel_hi:[0,0,0]")
        .unwrap();
    for lane in 0..64 {
        let found =
            |number: usize| [0, 1].map(|half| f32::from_bits(machine.get(number + half)[lane]));
        let (low, high) = (false, true);
        let fused = [
            of(0, lane, high).mul_add(-of(1, lane, low), of(2, lane, low)),
            (-of(0, lane, low)).mul_add(of(1, lane, high), of(2, lane, high)),
        ];
        assert_eq!(found(8), fused);
        let product = [false, true].map(|half| of(0, lane, low) * of(1, lane, half));
        assert_eq!(found(10), product);
        let sum = [
            of(0, lane, low) - of(1, lane, low),
            of(0, lane, high) + of(1, lane, high),
        ];
        assert_eq!(found(12), sum);
        assert_eq!(found(14), [of(0, lane, high), of(1, lane, low)]);
        // All sources are read before the first result is written.
        let own = |half: bool| of(0, lane, half).mul_add(of(0, lane, half), of(0, lane, half));
        assert_eq!(found(2), [own(high), own(low)]);
    }
}

#[test]
fn sums_of_absolute_differences_slide_over_eight_bytes() {
    if without_llvm("differences") {
        return;
    }
    let mut random = Random(seed());
    let mut machine = Machine::new(Asic::Gfx906);
    for _ in 0..8 {
        let mut wide = || -> [u64; 64] {
            // Zeros and equal bytes are frequent.
            std::array::from_fn(|_| random.next() & random.next() & random.next())
        };
        let (a, b, c, d) = (wide(), wide(), wide(), wide());
        machine.set_wide(2, &a);
        machine.set(4, b.map(|x| x as u32));
        machine.set_wide(6, &c);
        machine.set_wide(8, &d);
        // A register of its own for the reference of 64 bits.
        machine
            .asm("v_qsad_pk_u16_u8 v[10:11], v[2:3], v4, v[6:7]\nv_mqsad_pk_u16_u8 v[12:13], v[2:3], v4, v[6:7]\nv_mqsad_u32_u8 v[14:17], v[2:3], v4, v[6:9]\nv_msad_u8 v18, v2, v4, v6\nv_sad_hi_u8 v19, v2, v4, v6\nv_sad_u16 v20, v2, v4, v6")
            .unwrap();
        for lane in 0..64 {
            let (bytes, reference) = (a[lane].to_le_bytes(), (b[lane] as u32).to_le_bytes());
            let sum = |from: usize, masked: bool| -> u32 {
                (0..4)
                    .filter(|at| !masked || reference[*at] != 0)
                    .map(|at| u32::from(bytes[from + at].abs_diff(reference[at])))
                    .sum()
            };
            for from in 0..4 {
                let half = |x: u64| (x >> (16 * from)) as u16;
                let plain = half(c[lane]).saturating_add(sum(from, false) as u16);
                assert_eq!(half(machine.get_wide(10)[lane]), plain);
                let masked = half(c[lane]).saturating_add(sum(from, true) as u16);
                assert_eq!(half(machine.get_wide(12)[lane]), masked);
                let addend = [
                    c[lane] as u32,
                    (c[lane] >> 32) as u32,
                    d[lane] as u32,
                    (d[lane] >> 32) as u32,
                ];
                let total = addend[from].wrapping_add(sum(from, true));
                assert_eq!(machine.get(14 + from)[lane], total);
            }
            let addend = c[lane] as u32;
            assert_eq!(machine.get(18)[lane], addend.wrapping_add(sum(0, true)));
            assert_eq!(
                machine.get(19)[lane],
                addend.wrapping_add(sum(0, false) << 16)
            );
            let halves = [0, 16].map(|at| {
                let of = |x: u64| (x >> at) as u16;
                u32::from(of(a[lane]).abs_diff(of(b[lane])))
            });
            assert_eq!(
                machine.get(20)[lane],
                addend.wrapping_add(halves[0] + halves[1])
            );
        }
    }
}

#[test]
fn cube_maps_have_six_faces() {
    if without_llvm("cube maps") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx906);
    machine.wave.mode = PLAIN;
    // Direction; face, s, t, major axis times 2.
    let cases: [([f32; 3], [f32; 4]); 8] = [
        ([4.0, 1.0, 2.0], [0.0, -2.0, -1.0, 8.0]),
        ([-4.0, 1.0, 2.0], [1.0, 2.0, -1.0, -8.0]),
        ([1.0, 4.0, 2.0], [2.0, 1.0, 2.0, 8.0]),
        ([1.0, -4.0, 2.0], [3.0, 1.0, -2.0, -8.0]),
        ([1.0, 2.0, 4.0], [4.0, 1.0, -2.0, 8.0]),
        ([1.0, 2.0, -4.0], [5.0, -1.0, -2.0, -8.0]),
        // Of equal ones z counts before y, and y before x.
        ([3.0, 3.0, 3.0], [4.0, 3.0, -3.0, 6.0]),
        ([3.0, 3.0, 1.0], [2.0, 3.0, 1.0, 6.0]),
    ];
    for (direction, expected) in cases {
        for (at, part) in direction.into_iter().enumerate() {
            machine.set(1 + at, [part.to_bits(); 64]);
        }
        machine
            .asm("v_cubeid_f32 v4, v1, v2, v3\nv_cubesc_f32 v5, v1, v2, v3\nv_cubetc_f32 v6, v1, v2, v3\nv_cubema_f32 v7, v1, v2, v3")
            .unwrap();
        let found = [4, 5, 6, 7].map(|number| f32::from_bits(machine.get(number)[9]));
        assert_eq!(found, expected, "{direction:?}");
    }
}

/// All values of an 8-bit format by code, from its definition.
fn values_of_8(mantissa: u32) -> Vec<f64> {
    let bias = if mantissa == 3 { 8 } else { 16 };
    (0..128u32)
        .map(|code| {
            let (field, fraction) = (code >> mantissa, code & ((1 << mantissa) - 1));
            let unit = f64::from(fraction) / f64::from(1 << mantissa);
            if field == 0 {
                unit * 2f64.powi(1 - bias)
            } else {
                (1.0 + unit) * 2f64.powi(field as i32 - bias)
            }
        })
        .collect()
}

#[test]
fn eight_bit_floats_are_rounded_to_the_nearest() {
    if without_llvm("8-bit floats") {
        return;
    }
    let mut random = Random(seed());
    let mut machine = Machine::new(Asic::Gfx942);
    machine.wave.mode = PLAIN;
    for (name, mantissa) in [("fp8", 3), ("bf8", 2)] {
        let values = values_of_8(mantissa);
        // Both directions agree on every code.
        machine.set(1, std::array::from_fn(|lane| lane as u32 * 4));
        for code in 0..=255u32 {
            machine.set(1, [code; 64]);
            machine
                .asm(&format!(
                    "v_cvt_f32_{name}_e32 v2, v1\nv_cvt_pk_{name}_f32 v3, v2, v2"
                ))
                .unwrap();
            let found = f32::from_bits(machine.get(2)[0]);
            if code == 0x80 {
                assert!(found.is_nan());
            } else {
                let sign = if code & 0x80 != 0 { -1.0 } else { 1.0 };
                assert_eq!(f64::from(found), sign * values[(code & 0x7F) as usize]);
            }
            assert_eq!(machine.get(3)[0] & 0xFF, code, "{name}");
        }
        let most = values[127];
        for round in 0..200 {
            let inputs: [u32; 64] = std::array::from_fn(|_| {
                let exponent = 127 - 20 + random.below(if round % 2 == 0 { 40 } else { 26 });
                let bits = random.next() as u32;
                let ties = if round % 3 == 0 {
                    0xFFF0_0000 >> (mantissa - 2)
                } else {
                    !0
                };
                (bits & 0x807F_FFFF | exponent << 23) & ties
            });
            machine.set(1, inputs);
            machine.set(3, [0x1234_5678; 64]);
            machine
                .asm(&format!("v_cvt_pk_{name}_f32 v3, v1, -v1 op_sel:[0,0,1]"))
                .unwrap();
            for lane in 0..64 {
                let value = f64::from(f32::from_bits(inputs[lane]));
                let magnitude = value.abs();
                // One step beyond the greatest number, where the result would be infinite.
                let next = 2.0 * most - values[126];
                let mut codes: Vec<(f64, u32)> = values.iter().copied().zip(0..).collect();
                codes.push((next, 128));
                let nearest = codes
                    .into_iter()
                    .min_by(|(x, i), (y, j)| {
                        let distance = |z: f64| (z - magnitude).abs();
                        distance(*x)
                            .total_cmp(&distance(*y))
                            .then((i % 2).cmp(&(j % 2)))
                    })
                    .unwrap()
                    .1;
                let with = |negative: bool| match nearest {
                    0 => 0,
                    128 => 0x80,
                    code => code | u32::from(negative) << 7,
                };
                let expected = with(value < 0.0) << 16 | with(value > 0.0) << 24 | 0x5678;
                assert_eq!(machine.get(3)[lane], expected, "{name} of {value}");
            }
        }
        // Infinity and what is too great, with saturation and without.
        machine.set(1, [f32::INFINITY.to_bits(); 64]);
        machine.set(2, [(-1e9f32).to_bits(); 64]);
        let convert = format!("v_cvt_pk_{name}_f32 v3, v1, v2");
        machine.asm(&convert).unwrap();
        assert_eq!(machine.get(3)[0] & 0xFFFF, 0x8080);
        machine.wave.mode |= mode::FP16_OVFL;
        machine.asm(&convert).unwrap();
        assert_eq!(machine.get(3)[0] & 0xFFFF, 0xFF7F);
        machine.wave.mode = PLAIN;
        // Random rounding goes up as often as the random number says; the byte is that of op_sel.
        let below = 1.0 + 1.0 / f64::from(2 << mantissa);
        machine.set(1, [(below as f32).to_bits(); 64]);
        machine.set(2, std::array::from_fn(|lane| (lane as u32) << 26));
        machine.set(3, [0; 64]);
        machine
            .asm(&format!("v_cvt_sr_{name}_f32 v3, v1, v2 op_sel:[0,0,1,0]"))
            .unwrap();
        let one = 0x40;
        for lane in 0..64 {
            let up = u32::from(lane >= 32);
            let found = machine.get(3)[lane];
            assert_eq!(found >> 8 & 0xFF, one + up, "{name} lane {lane}");
            assert_eq!(found & 0xFFFF_00FF, 0);
        }
    }
}

#[test]
fn global_wave_sync_hands_on_resource_and_value() {
    if without_llvm("global wave sync") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx90a);
    machine.wave.sgpr[usize::from(reg::M0)] = 5 << 16;
    machine.set(0, std::array::from_fn(|lane| 100 + lane as u32));
    machine.wave.set_pair(reg::EXEC, 0xFFF0);
    machine
        .asm("ds_gws_init v0 offset:60 gds\nds_gws_sema_v gds\nds_gws_sema_br v0 gds\nds_gws_sema_p gds\nds_gws_sema_release_all gds")
        .unwrap();
    // Six bits count; the value is that of the first active lane.
    assert_eq!(machine.host.synced[0], (GwsOp::Init, 1, 104));
    let ops: Vec<GwsOp> = machine.host.synced.iter().map(|(op, ..)| *op).collect();
    let all = [
        GwsOp::Init,
        GwsOp::SemaV,
        GwsOp::SemaBr,
        GwsOp::SemaP,
        GwsOp::SemaReleaseAll,
    ];
    assert_eq!(ops, all);
    // A wave that waits stays at its instruction.
    machine.host.answer = Gws::Wait;
    let code = assemble(Asic::Gfx90a, "ds_gws_barrier v0 gds");
    machine.wave.pc = 64;
    for tried in 1..4 {
        assert_eq!(machine.step(&code), Ok(Flow::Wait));
        assert_eq!((machine.wave.pc, machine.wave.gws_ticket), (64, tried));
    }
    machine.host.answer = Gws::Go;
    assert_eq!(machine.step(&code), Ok(Flow::Next));
    assert_eq!((machine.wave.pc, machine.wave.gws_ticket), (72, 0));
}
