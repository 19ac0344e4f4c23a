// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Floats of 16 bits.

use super::each32;
use super::fetch::flush16;
use super::v32;
use super::Action;
use super::Cx;
use super::Fk;
use super::K32;
use crate::fp;
use std::f64::consts::TAU;

const ALL: [Fk; 3] = [Fk::F16; 3];

fn f(x: u32) -> f64 {
    fp::f16_value(x)
}

fn sub(a: u32, b: u32, mode: u32) -> u32 {
    if fp::is_nan16(b) {
        return fp::nan16([a, b, 0]);
    }
    fp::add16_mode(a, b ^ 0x8000, mode)
}

/// Product and sum rounded one after the other.
fn mad(cx: &Cx, a: u32, b: u32, c: u32) -> u32 {
    if fp::is_nan16(a) || fp::is_nan16(b) || fp::is_nan16(c) {
        return fp::nan16([a, b, c]);
    }
    let product = fp::mul16(a, b, cx.round16);
    let product = if cx.mode & 0x80 == 0 {
        flush16(product)
    } else {
        product
    };
    fp::add16_mode(product, c, cx.round16)
}

/// A function of one operand whose host value is rounded.
fn unary(x: u32, value: f64, mode: u32) -> u32 {
    if fp::is_nan16(x) {
        return fp::nan16([x, 0, 0]);
    }
    if value.is_nan() {
        return fp::NAN16;
    }
    fp::f64_to_f16(value, mode)
}

fn turn(x: u32, function: fn(f64) -> f64, far: u32) -> u32 {
    let value = f(x);
    if !value.is_finite() {
        return fp::nan16([x, 0, 0]);
    }
    if value.abs() > 256.0 {
        return far;
    }
    unary(x, function((value - value.trunc()) * TAU), 0)
}

fn fract(x: u32) -> u32 {
    let value = f(x);
    if !value.is_finite() {
        return fp::nan16([x, 0, 0]);
    }
    fp::f64_to_f16(value - value.floor(), 0).min(0x3BFF)
}

fn frexp_mant(x: u32) -> u32 {
    let value = f(x);
    if fp::is_nan16(x) {
        return fp::nan16([x, 0, 0]);
    }
    if value == 0.0 || value.is_infinite() {
        return x;
    }
    let bits = value.to_bits();
    let mantissa = f64::from_bits(bits & !(0x7FF << 52) | 1022 << 52);
    fp::f64_to_f16(mantissa, 0)
}

fn frexp_exp(x: u32) -> u32 {
    let value = f(x);
    if value == 0.0 || !value.is_finite() {
        return 0;
    }
    ((value.to_bits() >> 52 & 0x7FF) as i32 - 1022) as u32 & 0xFFFF
}

fn ldexp(x: u32, power: u32, mode: u32) -> u32 {
    let power = i32::from(power as u16 as i16).clamp(-100, 100);
    let value = f(x);
    if value == 0.0 || !value.is_finite() {
        return if fp::is_nan16(x) {
            fp::nan16([x, 0, 0])
        } else {
            x
        };
    }
    let factor = f64::from_bits(((1023 + power) as u64) << 52);
    fp::f64_to_f16(value * factor, mode)
}

fn median(cx: &Cx, a: u32, b: u32, c: u32) -> u32 {
    if fp::is_nan16(a) || fp::is_nan16(b) || fp::is_nan16(c) {
        return fp::min16(fp::min16(a, b, cx.ieee), c, cx.ieee);
    }
    let (low, high) = (fp::min16(a, b, false), fp::max16(a, b, false));
    fp::min16(high, fp::max16(low, c, false), false)
}

/// Kernels that packed instructions share.
pub(super) fn kernel(name: &str) -> Option<K32> {
    Some(match name {
        "add_f16" => each32!(|cx, a, b, _| fp::add16_mode(a, b, cx.round16)),
        "sub_f16" => each32!(|cx, a, b, _| sub(a, b, cx.round16)),
        "subrev_f16" => each32!(|cx, a, b, _| sub(b, a, cx.round16)),
        "mul_f16" => each32!(|cx, a, b, _| fp::mul16(a, b, cx.round16)),
        "fma_f16" | "fmac_f16" => each32!(|cx, a, b, c| fp::fma16(a, b, c, cx.round16)),
        "min_f16" => each32!(|cx, a, b, _| fp::min16(a, b, cx.ieee)),
        "max_f16" => each32!(|cx, a, b, _| fp::max16(a, b, cx.ieee)),
        _ => return None,
    })
}

/// The action of a mnemonic.
pub(super) fn bind(name: &str) -> Option<Action> {
    if let Some(run) = kernel(name.strip_prefix("v_")?) {
        return Some(v32(run, Fk::F16, ALL));
    }
    let run: K32 = match name {
        "v_fma_legacy_f16" => each32!(|cx, a, b, c| fp::fma16(a, b, c, cx.round16)),
        "v_mad_f16" | "v_mac_f16" | "v_madmk_f16" | "v_madak_f16" | "v_mad_legacy_f16" => {
            each32!(|cx, a, b, c| mad(cx, a, b, c))
        }
        "v_min3_f16" => {
            each32!(|cx, a, b, c| fp::min16(fp::min16(a, b, cx.ieee), c, cx.ieee))
        }
        "v_max3_f16" => {
            each32!(|cx, a, b, c| fp::max16(fp::max16(a, b, cx.ieee), c, cx.ieee))
        }
        "v_med3_f16" => each32!(|cx, a, b, c| median(cx, a, b, c)),
        "v_rcp_f16" => each32!(|_, a, _, _| unary(a, 1.0 / f(a), 0)),
        "v_sqrt_f16" => each32!(|_, a, _, _| unary(a, f(a).sqrt(), 0)),
        "v_rsq_f16" => each32!(|_, a, _, _| unary(a, 1.0 / f(a).sqrt(), 0)),
        "v_log_f16" => each32!(|_, a, _, _| unary(a, f(a).log2(), 0)),
        "v_exp_f16" => each32!(|_, a, _, _| unary(a, f(a).exp2(), 0)),
        "v_sin_f16" => each32!(|_, a, _, _| turn(a, f64::sin, 0)),
        "v_cos_f16" => each32!(|_, a, _, _| turn(a, f64::cos, 0x3C00)),
        "v_frexp_mant_f16" => each32!(|_, a, _, _| frexp_mant(a)),
        "v_floor_f16" => each32!(|_, a, _, _| unary(a, f(a).floor(), 0)),
        "v_ceil_f16" => each32!(|_, a, _, _| unary(a, f(a).ceil(), 0)),
        "v_trunc_f16" => each32!(|_, a, _, _| unary(a, f(a).trunc(), 0)),
        "v_rndne_f16" => each32!(|_, a, _, _| unary(a, f(a).round_ties_even(), 0)),
        "v_fract_f16" => each32!(|_, a, _, _| fract(a)),
        "v_frexp_exp_i16_f16" => {
            let run: K32 = each32!(|_, a, _, _| frexp_exp(a));
            return Some(v32(run, Fk::Int, ALL));
        }
        "v_ldexp_f16" => {
            let run: K32 = each32!(|cx, a, b, _| ldexp(a, b, cx.round16));
            return Some(v32(run, Fk::F16, [Fk::F16, Fk::Int, Fk::Int]));
        }
        _ => return None,
    };
    let action = v32(run, Fk::F16, ALL);
    Some(match name {
        "v_mac_f16" => action.accumulating().keeping_high(),
        "v_madmk_f16" | "v_madak_f16" => action.keeping_high(),
        _ => action,
    })
}
