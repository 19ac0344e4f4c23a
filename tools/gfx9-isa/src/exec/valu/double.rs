// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Floats of 64 bits.

use super::each64;
use super::v64;
use super::Action;
use super::Fk;
use super::K64;
use crate::fp;

const ALL: [Fk; 3] = [Fk::F64; 3];

fn f(x: u64) -> f64 {
    f64::from_bits(x)
}

fn unary(x: u64, value: f64) -> u64 {
    if fp::is_nan64(x) {
        return fp::nan64([x, 0, 0]);
    }
    if value.is_nan() {
        return fp::NAN64;
    }
    value.to_bits()
}

fn fract(x: u64) -> u64 {
    if !f(x).is_finite() {
        return fp::nan64([x, 0, 0]);
    }
    (f(x) - f(x).floor()).to_bits().min(0x3FEF_FFFF_FFFF_FFFF)
}

/// A finite number that is not 0: made normal, and the exponent for a mantissa in [0.5, 1).
fn frexp(x: u64) -> (u64, i32) {
    let (bits, extra) = if x & 0x7FF0_0000_0000_0000 == 0 {
        ((f(x) * 18_014_398_509_481_984.0).to_bits(), 54)
    } else {
        (x, 0)
    };
    let exponent = (bits >> 52 & 0x7FF) as i32 - 1022 - extra;
    (bits & !(0x7FF << 52) | 1022 << 52, exponent)
}

fn frexp_mant(x: u64) -> u64 {
    if fp::is_nan64(x) {
        return fp::nan64([x, 0, 0]);
    }
    if f(x) == 0.0 || f(x).is_infinite() {
        return x;
    }
    frexp(x).0
}

fn frexp_exp(x: u64) -> u64 {
    if f(x) == 0.0 || !f(x).is_finite() {
        return 0;
    }
    u64::from(frexp(x).1 as u32)
}

/// `x * 2^power`, rounded once.
pub(super) fn ldexp(x: u64, power: i32, mode: u32) -> u64 {
    if fp::is_nan64(x) {
        return fp::nan64([x, 0, 0]);
    }
    if f(x) == 0.0 || f(x).is_infinite() {
        return x;
    }
    let (mantissa, exponent) = frexp(x);
    let exponent = exponent.saturating_add(power).clamp(-1300, 1300);
    // The mantissa times a power of two that is normal is exact; only the last step rounds.
    let power_of_two = |at: i32| ((1023 + at) as u64) << 52;
    if exponent >= -1020 {
        let half = exponent.min(1000);
        let first = f(mantissa) * f(power_of_two(half));
        return fp::mul64(first.to_bits(), power_of_two(exponent - half), mode);
    }
    let first = f(mantissa) * f(power_of_two(-1000));
    fp::mul64(first.to_bits(), power_of_two(exponent + 1000), mode)
}

/// Bits of 2/pi behind the point, as `v_trig_preop_f64` has them.
const TWO_OVER_PI: [u64; 19] = [
    0xA2F9_836E_4E44_1529,
    0xFC27_57D1_F534_DDC0,
    0xDB62_9599_3C43_9041,
    0xFE51_63AB_DEBB_C561,
    0xB724_6E3A_424D_D2E0,
    0x0649_2EEA_09D1_921C,
    0xFE1D_EB1C_B129_A73E,
    0xE882_35F5_2EBB_4484,
    0xE99C_7026_B45F_7E41,
    0x3991_D639_8353_39F4,
    0x9C84_5F8B_BDF9_283B,
    0x1FF8_97FF_DE05_980F,
    0xEF2F_118B_5A0A_6D1F,
    0x6D36_7ECF_27CB_09B7,
    0x4F46_3F66_9E5F_EA2D,
    0x7527_BAC7_EBE5_F17B,
    0x3D07_39F7_8A52_92EA,
    0x6BFB_5FB1_1F8D_5D08,
    0x5603_3046_FC7B_6BAB,
];

/// 53 bits of 2/pi from bit `from` behind the point on; beyond the constant there are zeros.
fn bits_of_two_over_pi(from: u32) -> u64 {
    (0..53).fold(0, |bits, at| {
        let place = from + at;
        let word = TWO_OVER_PI.get((place / 64) as usize).copied().unwrap_or(0);
        // The constant has 1201 bits.
        let bit = if place < 1201 {
            word >> (63 - place % 64) & 1
        } else {
            0
        };
        bits << 1 | bit
    })
}

fn trig_preop(x: u64, segment: u64) -> u64 {
    let exponent = (x >> 52 & 0x7FF) as u32;
    let shift = 53 * (segment as u32 & 31) + exponent.saturating_sub(1077);
    let mantissa = bits_of_two_over_pi(shift) as f64;
    let scale = -53 - shift as i32 + if exponent >= 1968 { 128 } else { 0 };
    ldexp(mantissa.to_bits(), scale, 3)
}

/// The action of a mnemonic.
pub(super) fn bind(name: &str) -> Option<Action> {
    let run: K64 = match name {
        "v_add_f64" => each64!(|cx, a, b, _| fp::add64(a, b, cx.round64)),
        "v_mul_f64" => each64!(|cx, a, b, _| fp::mul64(a, b, cx.round64)),
        "v_fma_f64" | "v_fmac_f64" => each64!(|cx, a, b, c| fp::fma64(a, b, c, cx.round64)),
        "v_min_f64" => each64!(|cx, a, b, _| fp::min64(a, b, cx.ieee)),
        "v_max_f64" => each64!(|cx, a, b, _| fp::max64(a, b, cx.ieee)),
        "v_trunc_f64" => each64!(|_, a, _, _| unary(a, f(a).trunc())),
        "v_ceil_f64" => each64!(|_, a, _, _| unary(a, f(a).ceil())),
        "v_rndne_f64" => each64!(|_, a, _, _| unary(a, f(a).round_ties_even())),
        "v_floor_f64" => each64!(|_, a, _, _| unary(a, f(a).floor())),
        "v_rcp_f64" => each64!(|_, a, _, _| unary(a, 1.0 / f(a))),
        "v_rsq_f64" => each64!(|_, a, _, _| unary(a, 1.0 / f(a).sqrt())),
        "v_sqrt_f64" => each64!(|_, a, _, _| unary(a, f(a).sqrt())),
        "v_fract_f64" => each64!(|_, a, _, _| fract(a)),
        "v_frexp_mant_f64" => each64!(|_, a, _, _| frexp_mant(a)),
        "v_ldexp_f64" => {
            let run: K64 = each64!(|cx, a, b, _| ldexp(a, b as u32 as i32, cx.round64));
            return Some(v64(run, Fk::F64, [Fk::F64, Fk::Int, Fk::Int]));
        }
        "v_trig_preop_f64" => {
            let run: K64 = each64!(|_, a, b, _| trig_preop(a, b));
            return Some(v64(run, Fk::F64, [Fk::F64, Fk::Int, Fk::Int]));
        }
        "v_frexp_exp_i32_f64" => {
            let run: K64 = each64!(|_, a, _, _| frexp_exp(a));
            return Some(v64(run, Fk::Int, ALL));
        }
        _ => return None,
    };
    let action = v64(run, Fk::F64, ALL);
    Some(if name == "v_fmac_f64" {
        action.accumulating()
    } else {
        action
    })
}
