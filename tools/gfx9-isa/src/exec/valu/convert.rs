// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Conversions.

use super::each32;
use super::each64;
use super::v32;
use super::v64;
use super::Action;
use super::Fk;
use super::K32;
use super::K64;
use crate::fp;

const INT: [Fk; 3] = [Fk::Int; 3];
const SINGLE: [Fk; 3] = [Fk::F32; 3];
const HALF: [Fk; 3] = [Fk::F16; 3];
const DOUBLE: [Fk; 3] = [Fk::F64; 3];

fn f(x: u32) -> f32 {
    f32::from_bits(x)
}

/// Nearest integer of a number within ±1 (or 0 to 1) times `most`; NaN is 0.
fn norm(value: f64, least: f64, most: f64) -> u32 {
    let scaled = value.clamp(least, 1.0) * most;
    if scaled.is_nan() {
        0
    } else {
        scaled.round_ties_even() as i32 as u32 & 0xFFFF
    }
}

fn to_byte(x: u32) -> u32 {
    let value = f(x);
    if value.is_nan() {
        0
    } else {
        u32::from(value.round_ties_even().clamp(0.0, 255.0) as u8)
    }
}

fn set_byte(value: u32, at: u32, old: u32) -> u32 {
    let shift = 8 * (at & 3);
    old & !(0xFF << shift) | value << shift
}

/// Toward zero, which no finite number leaves to infinity.
fn rtz(x: u32) -> u32 {
    fp::f32_to_f16(x, 3)
}

/// `f32` from an 8-bit float without infinities, whose bias is one higher than usual: 0x80 is the only NaN.
pub(in super::super) fn from_f8(x: u32, mantissa: u32) -> f32 {
    let x = x & 0xFF;
    if x == 0x80 {
        return f32::from_bits(fp::NAN32);
    }
    let sign = if x & 0x80 != 0 { -1.0 } else { 1.0 };
    let exponent = (x & 0x7F) >> mantissa;
    let fraction = x & ((1 << mantissa) - 1);
    let bias = if mantissa == 3 { 8 } else { 16 };
    let (whole, power) = if exponent == 0 {
        (fraction, 1 - bias)
    } else {
        (fraction | 1 << mantissa, exponent as i32 - bias)
    };
    let scale = f32::from_bits(((127 + power - mantissa as i32) as u32) << 23);
    sign * whole as f32 * scale
}

/// The action of a mnemonic.
pub(super) fn bind(name: &str) -> Option<Action> {
    single(name)
        .or_else(|| from_integer(name))
        .or_else(|| half(name))
        .or_else(|| double(name))
}

fn single(name: &str) -> Option<Action> {
    let run: K32 = match name {
        "v_cvt_u32_f32" => each32!(|_, a, _, _| f(a) as u32),
        "v_cvt_i32_f32" => each32!(|_, a, _, _| f(a) as i32 as u32),
        "v_cvt_rpi_i32_f32" => {
            each32!(|_, a, _, _| (f64::from(f(a)) + 0.5).floor() as i32 as u32)
        }
        "v_cvt_flr_i32_f32" => each32!(|_, a, _, _| f(a).floor() as i32 as u32),
        "v_cvt_pknorm_i16_f32" => each32!(|_, a, b, _| {
            norm(f(a).into(), -1.0, 32767.0) | norm(f(b).into(), -1.0, 32767.0) << 16
        }),
        "v_cvt_pknorm_u16_f32" => each32!(|_, a, b, _| {
            norm(f(a).into(), 0.0, 65535.0) | norm(f(b).into(), 0.0, 65535.0) << 16
        }),
        "v_cvt_pkrtz_f16_f32" => each32!(|_, a, b, _| rtz(a) | rtz(b) << 16),
        "v_cvt_pk_u8_f32" => {
            let run: K32 = each32!(|_, a, b, c| set_byte(to_byte(a), b, c));
            return Some(v32(run, Fk::Int, [Fk::F32, Fk::Int, Fk::Int]));
        }
        "v_cvt_pkaccum_u8_f32" => {
            let run: K32 = each32!(|_, a, b, c| set_byte(to_byte(a), b, c));
            return Some(v32(run, Fk::Int, [Fk::F32, Fk::Int, Fk::Int]).accumulating());
        }
        "v_cvt_f16_f32" => {
            let run: K32 = each32!(|cx, a, _, _| fp::f32_to_f16(a, cx.round16));
            return Some(v32(run, Fk::F16, SINGLE));
        }
        _ => return None,
    };
    Some(v32(run, Fk::Int, SINGLE))
}

fn from_integer(name: &str) -> Option<Action> {
    let run: K32 = match name {
        "v_cvt_f32_i32" => {
            each32!(|cx, a, _, _| fp::f64_to_f32(f64::from(a as i32), cx.round32))
        }
        "v_cvt_f32_u32" => each32!(|cx, a, _, _| fp::f64_to_f32(f64::from(a), cx.round32)),
        "v_cvt_f32_ubyte0" => each32!(|_, a, _, _| ((a & 0xFF) as f32).to_bits()),
        "v_cvt_f32_ubyte1" => each32!(|_, a, _, _| ((a >> 8 & 0xFF) as f32).to_bits()),
        "v_cvt_f32_ubyte2" => each32!(|_, a, _, _| ((a >> 16 & 0xFF) as f32).to_bits()),
        "v_cvt_f32_ubyte3" => each32!(|_, a, _, _| ((a >> 24) as f32).to_bits()),
        "v_cvt_off_f32_i4" => {
            each32!(|_, a, _, _| (((a << 28) as i32 >> 28) as f32 / 16.0).to_bits())
        }
        "v_cvt_f32_fp8" => each32!(|_, a, _, _| from_f8(a, 3).to_bits()),
        "v_cvt_f32_bf8" => each32!(|_, a, _, _| from_f8(a, 2).to_bits()),
        _ => return None,
    };
    Some(v32(run, Fk::F32, INT))
}

fn half(name: &str) -> Option<Action> {
    let run: K32 = match name {
        "v_cvt_f32_f16" => {
            let run: K32 = each32!(|_, a, _, _| {
                let quiet = if fp::is_nan16(a) { 0x40_0000 } else { 0 };
                fp::f16_to_f32(a) | quiet
            });
            return Some(v32(run, Fk::F32, HALF));
        }
        "v_cvt_u16_f16" => each32!(|_, a, _, _| u32::from(fp::f16_value(a) as u16)),
        "v_cvt_i16_f16" => each32!(|_, a, _, _| u32::from(fp::f16_value(a) as i16 as u16)),
        "v_cvt_norm_i16_f16" => each32!(|_, a, _, _| norm(fp::f16_value(a), -1.0, 32767.0)),
        "v_cvt_norm_u16_f16" => each32!(|_, a, _, _| norm(fp::f16_value(a), 0.0, 65535.0)),
        "v_cvt_pknorm_i16_f16" => each32!(|_, a, b, _| {
            norm(fp::f16_value(a), -1.0, 32767.0) | norm(fp::f16_value(b), -1.0, 32767.0) << 16
        }),
        "v_cvt_pknorm_u16_f16" => each32!(|_, a, b, _| {
            norm(fp::f16_value(a), 0.0, 65535.0) | norm(fp::f16_value(b), 0.0, 65535.0) << 16
        }),
        "v_cvt_f16_u16" => {
            let run: K32 = each32!(|cx, a, _, _| fp::f64_to_f16(f64::from(a & 0xFFFF), cx.round16));
            return Some(v32(run, Fk::F16, INT));
        }
        "v_cvt_f16_i16" => {
            let run: K32 =
                each32!(|cx, a, _, _| fp::f64_to_f16(f64::from(a as u16 as i16), cx.round16));
            return Some(v32(run, Fk::F16, INT));
        }
        _ => return None,
    };
    Some(v32(run, Fk::Int, HALF))
}

fn double(name: &str) -> Option<Action> {
    let (run, dst, src): (K64, Fk, [Fk; 3]) = match name {
        "v_cvt_i32_f64" => (
            each64!(|_, a, _, _| u64::from(f64::from_bits(a) as i32 as u32)),
            Fk::Int,
            DOUBLE,
        ),
        "v_cvt_u32_f64" => (
            each64!(|_, a, _, _| u64::from(f64::from_bits(a) as u32)),
            Fk::Int,
            DOUBLE,
        ),
        "v_cvt_f64_i32" => (
            each64!(|_, a, _, _| f64::from(a as u32 as i32).to_bits()),
            Fk::F64,
            INT,
        ),
        "v_cvt_f64_u32" => (
            each64!(|_, a, _, _| f64::from(a as u32).to_bits()),
            Fk::F64,
            INT,
        ),
        "v_cvt_f32_f64" => (
            each64!(|cx, a, _, _| u64::from(fp::f64_to_f32(f64::from_bits(a), cx.round64))),
            Fk::F32,
            DOUBLE,
        ),
        "v_cvt_f64_f32" => (
            each64!(|_, a, _, _| f64::from(f(a as u32)).to_bits()),
            Fk::F64,
            SINGLE,
        ),
        "v_cvt_pk_f32_fp8" => (
            each64!(|_, a, _, _| {
                let a = a as u32;
                u64::from(from_f8(a, 3).to_bits()) | u64::from(from_f8(a >> 8, 3).to_bits()) << 32
            }),
            Fk::Int,
            INT,
        ),
        "v_cvt_pk_f32_bf8" => (
            each64!(|_, a, _, _| {
                let a = a as u32;
                u64::from(from_f8(a, 2).to_bits()) | u64::from(from_f8(a >> 8, 2).to_bits()) << 32
            }),
            Fk::Int,
            INT,
        ),
        _ => return None,
    };
    Some(v64(run, dst, src))
}
