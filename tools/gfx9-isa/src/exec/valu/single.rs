// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Floats of 32 bits.

use super::each32;
use super::fetch::flush32;
use super::rounded32;
use super::v32;
use super::Action;
use super::Cx;
use super::Fk;
use super::K32;
use crate::fp;
use std::f64::consts::TAU;

const ALL: [Fk; 3] = [Fk::F32; 3];
const FLUSHED: [Fk; 3] = [Fk::F32Flushed; 3];

fn f(x: u32) -> f32 {
    f32::from_bits(x)
}

fn negate(x: u32) -> u32 {
    x ^ 0x8000_0000
}

/// The sum with one operand negated, unless it is a NaN.
fn sub(cx: &Cx, a: u32, b: u32) -> u32 {
    if fp::is_nan32(b) {
        return fp::nan32([a, b, 0]);
    }
    fp::add32_mode(a, negate(b), cx.round32)
}

/// The sum.
pub(super) fn sum() -> K32 {
    rounded32!(
        |cx, a, b, _| f(a) + f(b),
        [a, b, 0],
        fp::add32_mode(a, b, cx.round32)
    )
}

/// The product.
pub(super) fn product() -> K32 {
    rounded32!(
        |cx, a, b, _| f(a) * f(b),
        [a, b, 0],
        fp::mul32_mode(a, b, cx.round32)
    )
}

/// The fused multiply-add.
pub(super) fn fused() -> K32 {
    rounded32!(
        |cx, a, b, c| f(fp::fma32_near(a, b, c)),
        f(a).mul_add(f(b), f(c)),
        [a, b, c],
        fp::fma32(a, b, c, cx.round32)
    )
}

/// Zero times anything is +0.
fn mul_legacy(a: u32, b: u32, mode: u32) -> u32 {
    if a << 1 == 0 || b << 1 == 0 {
        0
    } else {
        fp::mul32_mode(a, b, mode)
    }
}

/// Product and sum rounded one after the other, denormals flushed.
fn mad(a: u32, b: u32, c: u32, mode: u32) -> u32 {
    let product = flush32(fp::mul32_mode(a, b, mode));
    if fp::is_nan32(a) || fp::is_nan32(b) || fp::is_nan32(c) {
        return fp::nan32([a, b, c]);
    }
    fp::add32_mode(product, c, mode)
}

fn mad_legacy(a: u32, b: u32, c: u32, mode: u32) -> u32 {
    if a << 1 == 0 || b << 1 == 0 {
        return fp::add32_mode(0, c, mode);
    }
    mad(a, b, c, mode)
}

/// A function of one operand whose host value is rounded to nearest.
fn unary(x: u32, value: f64) -> u32 {
    if fp::is_nan32(x) {
        return fp::nan32([x, 0, 0]);
    }
    if value.is_nan() {
        return fp::NAN32;
    }
    (value as f32).to_bits()
}

/// Sine and cosine of revolutions; beyond 256 of them they are those of 0.
fn turn(x: u32, function: fn(f64) -> f64, far: u32) -> u32 {
    let value = f(x);
    if fp::is_nan32(x) || value.is_infinite() {
        return fp::nan32([x, 0, 0]);
    }
    if value.abs() > 256.0 {
        return far;
    }
    let turns = f64::from(value);
    unary(x, function((turns - turns.trunc()) * TAU))
}

fn fract(x: u32) -> u32 {
    let value = f(x);
    if !value.is_finite() {
        return fp::nan32([x, 0, 0]);
    }
    let part = f64::from(value) - f64::from(value).floor();
    (part as f32).to_bits().min(0x3F7F_FFFF)
}

/// A NaN is made quiet, everything else goes through `function`.
fn integral(x: u32, function: fn(f32) -> f32) -> u32 {
    if fp::is_nan32(x) {
        return fp::nan32([x, 0, 0]);
    }
    function(f(x)).to_bits()
}

/// Mantissa in ±[0.5, 1).
fn frexp_mant(x: u32) -> u32 {
    let value = f(x);
    if fp::is_nan32(x) {
        return fp::nan32([x, 0, 0]);
    }
    if value == 0.0 || value.is_infinite() {
        return x;
    }
    let normal = if x & 0x7F80_0000 == 0 {
        (value * 16_777_216.0).to_bits()
    } else {
        x
    };
    normal & 0x807F_FFFF | 126 << 23
}

fn frexp_exp(x: u32) -> u32 {
    let value = f(x);
    if value == 0.0 || !value.is_finite() {
        return 0;
    }
    let (bits, extra) = if x & 0x7F80_0000 == 0 {
        ((value * 16_777_216.0).to_bits(), 24)
    } else {
        (x, 0)
    };
    ((bits >> 23 & 0xFF) as i32 - 126 - extra) as u32
}

/// `x * 2^power`, rounded once.
fn ldexp(x: u32, power: i32, mode: u32) -> u32 {
    if fp::is_nan32(x) {
        return fp::nan32([x, 0, 0]);
    }
    let value = f64::from(f(x));
    if value == 0.0 || value.is_infinite() {
        return x;
    }
    // Beyond 400 every value of 32 bits over- or underflows.
    let power = power.clamp(-400, 400);
    let factor = f64::from_bits(((1023 + power) as u64) << 52);
    fp::f64_to_f32(value * factor, mode)
}

fn median(cx: &Cx, a: u32, b: u32, c: u32) -> u32 {
    if fp::is_nan32(a) || fp::is_nan32(b) || fp::is_nan32(c) {
        return fp::min32(fp::min32(a, b, cx.ieee), c, cx.ieee);
    }
    let (low, high) = (fp::min32(a, b, false), fp::max32(a, b, false));
    fp::min32(high, fp::max32(low, c, false), false)
}

/// The face of a cube map, its coordinates and its axis.
fn cube(a: u32, b: u32, c: u32) -> [f32; 4] {
    let (x, y, z) = (f(a), f(b), f(c));
    if z.abs() >= x.abs() && z.abs() >= y.abs() {
        let side = z < 0.0;
        let s = if side { -x } else { x };
        [if side { 5.0 } else { 4.0 }, s, -y, 2.0 * z]
    } else if y.abs() >= x.abs() {
        let side = y < 0.0;
        let t = if side { -z } else { z };
        [if side { 3.0 } else { 2.0 }, x, t, 2.0 * y]
    } else {
        let side = x < 0.0;
        let s = if side { z } else { -z };
        [if side { 1.0 } else { 0.0 }, s, -y, 2.0 * x]
    }
}

/// The action of a mnemonic.
pub(super) fn bind(name: &str) -> Option<Action> {
    arithmetic(name)
        .or_else(|| functions(name))
        .or_else(|| flushed(name))
}

fn arithmetic(name: &str) -> Option<Action> {
    let run: K32 = match name {
        "v_add_f32" => sum(),
        "v_sub_f32" => rounded32!(|cx, a, b, _| f(a) - f(b), [a, b, 0], sub(cx, a, b)),
        "v_subrev_f32" => rounded32!(|cx, a, b, _| f(b) - f(a), [b, a, 0], sub(cx, b, a)),
        "v_mul_f32" => product(),
        "v_mul_legacy_f32" => each32!(|cx, a, b, _| mul_legacy(a, b, cx.round32)),
        "v_fma_f32" | "v_fmac_f32" | "v_fmamk_f32" | "v_fmaak_f32" => fused(),
        "v_min_f32" => each32!(|cx, a, b, _| fp::min32(a, b, cx.ieee)),
        "v_max_f32" => each32!(|cx, a, b, _| fp::max32(a, b, cx.ieee)),
        "v_min3_f32" => {
            each32!(|cx, a, b, c| fp::min32(fp::min32(a, b, cx.ieee), c, cx.ieee))
        }
        "v_max3_f32" => {
            each32!(|cx, a, b, c| fp::max32(fp::max32(a, b, cx.ieee), c, cx.ieee))
        }
        "v_med3_f32" => each32!(|cx, a, b, c| median(cx, a, b, c)),
        "v_cubeid_f32" => each32!(|_, a, b, c| cube(a, b, c)[0].to_bits()),
        "v_cubesc_f32" => each32!(|_, a, b, c| cube(a, b, c)[1].to_bits()),
        "v_cubetc_f32" => each32!(|_, a, b, c| cube(a, b, c)[2].to_bits()),
        "v_cubema_f32" => each32!(|_, a, b, c| cube(a, b, c)[3].to_bits()),
        "v_ldexp_f32" => {
            let run: K32 = each32!(|cx, a, b, _| ldexp(a, b as i32, cx.round32));
            return Some(v32(run, Fk::F32, [Fk::F32, Fk::Int, Fk::Int]));
        }
        _ => return None,
    };
    let action = v32(run, Fk::F32, ALL);
    Some(if name == "v_fmac_f32" {
        action.accumulating()
    } else {
        action
    })
}

fn functions(name: &str) -> Option<Action> {
    let run: K32 = match name {
        "v_fract_f32" => each32!(|_, a, _, _| fract(a)),
        "v_trunc_f32" => each32!(|_, a, _, _| integral(a, f32::trunc)),
        "v_ceil_f32" => each32!(|_, a, _, _| integral(a, f32::ceil)),
        "v_rndne_f32" => each32!(|_, a, _, _| integral(a, f32::round_ties_even)),
        "v_floor_f32" => each32!(|_, a, _, _| integral(a, f32::floor)),
        "v_frexp_mant_f32" => each32!(|_, a, _, _| frexp_mant(a)),
        "v_sin_f32" => each32!(|_, a, _, _| turn(a, f64::sin, 0)),
        "v_cos_f32" => each32!(|_, a, _, _| turn(a, f64::cos, 0x3F80_0000)),
        "v_frexp_exp_i32_f32" => {
            let run: K32 = each32!(|_, a, _, _| frexp_exp(a));
            return Some(v32(run, Fk::Int, ALL));
        }
        _ => return None,
    };
    Some(v32(run, Fk::F32, ALL))
}

/// Instructions that flush denormals in every mode.
fn flushed(name: &str) -> Option<Action> {
    let run: K32 = match name {
        "v_mad_f32" | "v_mac_f32" | "v_madmk_f32" | "v_madak_f32" => {
            each32!(|cx, a, b, c| mad(a, b, c, cx.round32))
        }
        "v_mad_legacy_f32" => each32!(|cx, a, b, c| mad_legacy(a, b, c, cx.round32)),
        "v_rcp_f32" | "v_rcp_iflag_f32" => each32!(|_, a, _, _| unary(a, 1.0 / f64::from(f(a)))),
        "v_rsq_f32" => each32!(|_, a, _, _| unary(a, 1.0 / f64::from(f(a)).sqrt())),
        "v_exp_f32" | "v_exp_legacy_f32" => each32!(|_, a, _, _| unary(a, f64::from(f(a)).exp2())),
        "v_log_f32" | "v_log_legacy_f32" => each32!(|_, a, _, _| unary(a, f64::from(f(a)).log2())),
        "v_sqrt_f32" => {
            let run: K32 = each32!(|_, a, _, _| unary(a, f64::from(f(a)).sqrt()));
            return Some(v32(run, Fk::F32, ALL));
        }
        _ => return None,
    };
    let action = v32(run, Fk::F32Flushed, FLUSHED);
    Some(if name == "v_mac_f32" {
        action.accumulating()
    } else {
        action
    })
}
