// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Integers and bits.

use super::each32;
use super::each64;
use super::lanes32;
use super::v32;
use super::v64;
use super::Action;
use super::Cx;
use super::Fk;
use super::K32;
use super::K64;
use crate::env::Lanes;
use crate::simd;

const NONE: [Fk; 3] = [Fk::Int; 3];

fn s(x: u32) -> i32 {
    x as i32
}

/// 24 bits, zero-extended.
fn u24(x: u32) -> u64 {
    u64::from(x & 0xFF_FFFF)
}

/// 24 bits, sign-extended.
fn i24(x: u32) -> i64 {
    i64::from((x << 8) as i32 >> 8)
}

fn unsigned(cx: &Cx, exact: i64) -> u32 {
    if cx.clamp {
        exact.clamp(0, 0xFFFF_FFFF) as u32
    } else {
        exact as u32
    }
}

fn signed(cx: &Cx, exact: i64) -> u32 {
    if cx.clamp {
        exact.clamp(i32::MIN.into(), i32::MAX.into()) as u32
    } else {
        exact as u32
    }
}

/// 16 bits without sign.
pub(super) fn unsigned16(clamp: bool, exact: i64) -> u32 {
    let exact = if clamp { exact.clamp(0, 0xFFFF) } else { exact };
    exact as u32 & 0xFFFF
}

/// 16 bits with sign.
pub(super) fn signed16(clamp: bool, exact: i64) -> u32 {
    let exact = if clamp {
        exact.clamp(-0x8000, 0x7FFF)
    } else {
        exact
    };
    exact as u32 & 0xFFFF
}

/// 16 bits as signed number.
pub(super) fn i16_of(x: u32) -> i64 {
    i64::from(x as u16 as i16)
}

/// 16 bits as number.
pub(super) fn u16_of(x: u32) -> i64 {
    i64::from(x as u16)
}

fn wide(x: u32) -> i64 {
    x.into()
}

/// One byte.
fn byte(x: u32, at: u32) -> u32 {
    x >> (8 * at) & 0xFF
}

fn sad_u8(a: u32, b: u32) -> u32 {
    (0..4).map(|at| byte(a, at).abs_diff(byte(b, at))).sum()
}

/// Bytes of which the reference (`b`) is 0 do not count.
fn msad_u8(a: u32, b: u32) -> u32 {
    (0..4)
        .filter(|at| byte(b, *at) != 0)
        .map(|at| byte(a, at).abs_diff(byte(b, at)))
        .sum()
}

/// Four sums over windows that slide by a byte, added to 16-bit accumulators with saturation.
fn quad_sad(a: u64, b: u64, c: u64, sum: fn(u32, u32) -> u32) -> u64 {
    (0..4).fold(0, |d, at| {
        let total = u64::from(sum((a >> (8 * at)) as u32, b as u32)) + (c >> (16 * at) & 0xFFFF);
        d | total.min(0xFFFF) << (16 * at)
    })
}

fn perm(a: u32, b: u32, selectors: u32) -> u32 {
    let all = u64::from(a) << 32 | u64::from(b);
    (0..4).fold(0, |d, at| {
        let sign = |bit: u32| if all >> bit & 1 != 0 { 0xFF } else { 0 };
        let value = match byte(selectors, at) {
            sel @ 0..=7 => (all >> (8 * sel)) as u32 & 0xFF,
            sel @ 8..=11 => sign((sel - 8) * 16 + 15),
            12 => 0,
            _ => 0xFF,
        };
        d | value << (8 * at)
    })
}

fn median<T: Ord + Copy>(a: T, b: T, c: T) -> T {
    a.max(b).min(a.min(b).max(c))
}

fn bfe(x: u32, offset: u32, width: u32, signed: bool) -> u32 {
    let (offset, width) = (offset & 31, width & 31);
    if width == 0 {
        return 0;
    }
    let value = if signed {
        (x as i32 >> offset) as u32
    } else {
        x >> offset
    };
    if offset + width >= 32 {
        return value;
    }
    let rest = 32 - width;
    if signed {
        ((value << rest) as i32 >> rest) as u32
    } else {
        value << rest >> rest
    }
}

fn count(found: bool, number: u32) -> u32 {
    if found {
        number
    } else {
        u32::MAX
    }
}

/// The action of a mnemonic.
pub(super) fn bind(name: &str) -> Option<Action> {
    narrow(name)
        .or_else(|| narrow16(name))
        .or_else(|| wide64(name))
}

fn narrow(name: &str) -> Option<Action> {
    let run: K32 = match name {
        "v_not_b32" => each32!(|_, a, _, _| !a),
        "v_bfrev_b32" => each32!(|_, a, _, _| a.reverse_bits()),
        "v_ffbh_u32" => each32!(|_, a, _, _| count(a != 0, a.leading_zeros())),
        "v_ffbl_b32" => each32!(|_, a, _, _| count(a != 0, a.trailing_zeros())),
        "v_ffbh_i32" => each32!(|_, a, _, _| {
            let same = (s(a) ^ s(a) >> 31) as u32;
            count(same != 0, same.leading_zeros())
        }),
        "v_sat_pk_u8_i16" => each32!(|_, a, _, _| {
            let half = |x: u32| i16_of(x).clamp(0, 255) as u32;
            half(a) | half(a >> 16) << 8
        }),
        "v_mul_i32_i24" => each32!(|_, a, b, _| (i24(a) * i24(b)) as u32),
        "v_mul_hi_i32_i24" => each32!(|_, a, b, _| ((i24(a) * i24(b)) >> 32) as u32),
        "v_mul_u32_u24" => each32!(|_, a, b, _| (u24(a) * u24(b)) as u32),
        "v_mul_hi_u32_u24" => each32!(|_, a, b, _| ((u24(a) * u24(b)) >> 32) as u32),
        "v_min_i32" => each32!(|_, a, b, _| s(a).min(s(b)) as u32),
        "v_max_i32" => each32!(|_, a, b, _| s(a).max(s(b)) as u32),
        "v_min_u32" => each32!(|_, a, b, _| a.min(b)),
        "v_max_u32" => each32!(|_, a, b, _| a.max(b)),
        "v_lshrrev_b32" => each32!(|_, a, b, _| b >> (a & 31)),
        "v_ashrrev_i32" => each32!(|_, a, b, _| (s(b) >> (a & 31)) as u32),
        "v_lshlrev_b32" => each32!(|_, a, b, _| b << (a & 31)),
        "v_and_b32" => each32!(|_, a, b, _| a & b),
        "v_or_b32" => each32!(|_, a, b, _| a | b),
        "v_xor_b32" => each32!(|_, a, b, _| a ^ b),
        "v_xnor_b32" => each32!(|_, a, b, _| !(a ^ b)),
        "v_add_u32" => each32!(|cx, a, b, _| unsigned(cx, wide(a) + wide(b))),
        "v_sub_u32" => each32!(|cx, a, b, _| unsigned(cx, wide(a) - wide(b))),
        "v_subrev_u32" => each32!(|cx, a, b, _| unsigned(cx, wide(b) - wide(a))),
        "v_add_i32" => each32!(|cx, a, b, _| signed(cx, i64::from(s(a)) + i64::from(s(b)))),
        "v_sub_i32" => each32!(|cx, a, b, _| signed(cx, i64::from(s(a)) - i64::from(s(b)))),
        "v_mul_lo_u32" => each32!(|_, a, b, _| a.wrapping_mul(b)),
        "v_mul_hi_u32" => each32!(|_, a, b, _| ((u64::from(a) * u64::from(b)) >> 32) as u32),
        "v_mul_hi_i32" => each32!(|_, a, b, _| ((i64::from(s(a)) * i64::from(s(b))) >> 32) as u32),
        "v_mad_i32_i24" => each32!(|cx, a, b, c| signed(cx, i24(a) * i24(b) + i64::from(s(c)))),
        "v_mad_u32_u24" => each32!(|cx, a, b, c| unsigned(cx, (u24(a) * u24(b)) as i64 + wide(c))),
        "v_bfe_u32" => each32!(|_, a, b, c| bfe(a, b, c, false)),
        "v_bfe_i32" => each32!(|_, a, b, c| bfe(a, b, c, true)),
        "v_bfi_b32" => each32!(|_, a, b, c| (a & b) | (!a & c)),
        "v_bfm_b32" => each32!(|_, a, b, _| ((1u32 << (a & 31)) - 1) << (b & 31)),
        "v_lerp_u8" => each32!(|_, a, b, c| (0..4).fold(0, |d, at| {
            let sum = byte(a, at) + byte(b, at) + (byte(c, at) & 1);
            d | (sum >> 1) << (8 * at)
        })),
        "v_alignbit_b32" => {
            each32!(|_, a, b, c| ((u64::from(a) << 32 | u64::from(b)) >> (c & 31)) as u32)
        }
        "v_alignbyte_b32" => {
            each32!(|_, a, b, c| ((u64::from(a) << 32 | u64::from(b)) >> (8 * (c & 3))) as u32)
        }
        "v_min3_i32" => each32!(|_, a, b, c| s(a).min(s(b)).min(s(c)) as u32),
        "v_min3_u32" => each32!(|_, a, b, c| a.min(b).min(c)),
        "v_max3_i32" => each32!(|_, a, b, c| s(a).max(s(b)).max(s(c)) as u32),
        "v_max3_u32" => each32!(|_, a, b, c| a.max(b).max(c)),
        "v_med3_i32" => each32!(|_, a, b, c| median(s(a), s(b), s(c)) as u32),
        "v_med3_u32" => each32!(|_, a, b, c| median(a, b, c)),
        "v_sad_u8" => each32!(|cx, a, b, c| unsigned(cx, wide(sad_u8(a, b)) + wide(c))),
        "v_sad_hi_u8" => {
            each32!(|cx, a, b, c| unsigned(cx, (wide(sad_u8(a, b)) << 16) + wide(c)))
        }
        "v_sad_u16" => each32!(|cx, a, b, c| {
            let low = (a & 0xFFFF).abs_diff(b & 0xFFFF);
            let sum = wide(low) + wide((a >> 16).abs_diff(b >> 16));
            unsigned(cx, sum + wide(c))
        }),
        "v_sad_u32" => each32!(|cx, a, b, c| unsigned(cx, wide(a.abs_diff(b)) + wide(c))),
        "v_msad_u8" => each32!(|cx, a, b, c| unsigned(cx, wide(msad_u8(a, b)) + wide(c))),
        "v_perm_b32" => each32!(|_, a, b, c| perm(a, b, c)),
        "v_xad_u32" => each32!(|_, a, b, c| (a ^ b).wrapping_add(c)),
        "v_lshl_add_u32" => each32!(|_, a, b, c| (a << (b & 31)).wrapping_add(c)),
        "v_add_lshl_u32" => each32!(|_, a, b, c| a.wrapping_add(b) << (c & 31)),
        "v_add3_u32" => each32!(|_, a, b, c| a.wrapping_add(b).wrapping_add(c)),
        "v_lshl_or_b32" => each32!(|_, a, b, c| a << (b & 31) | c),
        "v_and_or_b32" => each32!(|_, a, b, c| a & b | c),
        "v_or3_b32" => each32!(|_, a, b, c| a | b | c),
        "v_bcnt_u32_b32" => each32!(|_, a, b, _| a.count_ones().wrapping_add(b)),
        "v_cvt_pk_u16_u32" => each32!(|_, a, b, _| a.min(0xFFFF) | b.min(0xFFFF) << 16),
        "v_cvt_pk_i16_i32" => each32!(|_, a, b, _| {
            let half = |x: u32| s(x).clamp(-0x8000, 0x7FFF) as u32 & 0xFFFF;
            half(a) | half(b) << 16
        }),
        "v_mad_u32_u16" => each32!(|cx, a, b, c| unsigned(cx, u16_of(a) * u16_of(b) + wide(c))),
        "v_mad_i32_i16" => {
            each32!(|cx, a, b, c| signed(cx, i16_of(a) * i16_of(b) + i64::from(s(c))))
        }
        "v_mbcnt_lo_u32_b32" => lanes32!(|_, s, d| {
            for (lane, slot) in d.iter_mut().enumerate() {
                let below = (1u64 << lane.min(32)) - 1;
                *slot = (s[0][lane] & below as u32)
                    .count_ones()
                    .wrapping_add(s[1][lane]);
            }
        }),
        "v_mbcnt_hi_u32_b32" => lanes32!(|_, s, d| {
            for (lane, slot) in d.iter_mut().enumerate() {
                let below = (1u64 << lane.saturating_sub(32)) - 1;
                *slot = (s[0][lane] & below as u32)
                    .count_ones()
                    .wrapping_add(s[1][lane]);
            }
        }),
        "v_mov_b32" | "v_accvgpr_mov_b32" => {
            return Some(v32(each32!(|_, a, _, _| a), Fk::Int, [Fk::Sign; 3]));
        }
        "v_cndmask_b32" => {
            let run: K32 = lanes32!(|cx, s, d| {
                for lane in 0..64 {
                    let second = simd::flag(cx.mask, lane);
                    d[lane] = s[0][lane] & !second | s[1][lane] & second;
                }
            });
            return Some(v32(run, Fk::Int, [Fk::Sign; 3]));
        }
        _ => return carrying(name),
    };
    Some(v32(run, Fk::Int, NONE))
}

/// Sums and differences with carry out; with clamp the result saturates, to `$limit`.
macro_rules! carry_kernel {
    ($limit:expr, |$a:ident, $b:ident, $carry:pat_param| $body:expr) => {
        Some(Action::Carry($crate::simd::twice!(
            KFlag,
            (cx => &Cx, s => [&Lanes; 3], d => &mut Lanes, flag => &mut Lanes),
            {
                for i in 0..64 {
                    let ($a, $b, $carry) = (s[0][i], s[1][i], (cx.mask >> i) as u32 & 1);
                    let (value, out): (u32, bool) = $body;
                    d[i] = if cx.clamp && out { $limit } else { value };
                    flag[i] = u32::from(out).wrapping_neg();
                }
            }
        )))
    };
}

/// `a + b + carry` with carry out.
fn sum(a: u32, b: u32, carry: u32) -> (u32, bool) {
    let (first, over) = a.overflowing_add(b);
    let (value, again) = first.overflowing_add(carry);
    (value, over | again)
}

/// `a - b - borrow` with borrow out.
fn difference(a: u32, b: u32, borrow: u32) -> (u32, bool) {
    let (first, under) = a.overflowing_sub(b);
    let (value, again) = first.overflowing_sub(borrow);
    (value, under | again)
}

fn carrying(name: &str) -> Option<Action> {
    match name {
        "v_add_co_u32" => carry_kernel!(u32::MAX, |a, b, _| sum(a, b, 0)),
        "v_sub_co_u32" => carry_kernel!(0, |a, b, _| difference(a, b, 0)),
        "v_subrev_co_u32" => carry_kernel!(0, |a, b, _| difference(b, a, 0)),
        "v_addc_co_u32" => carry_kernel!(u32::MAX, |a, b, carry| sum(a, b, carry)),
        "v_subb_co_u32" => carry_kernel!(0, |a, b, carry| difference(a, b, carry)),
        "v_subbrev_co_u32" => carry_kernel!(0, |a, b, carry| difference(b, a, carry)),
        _ => None,
    }
}

fn narrow16(name: &str) -> Option<Action> {
    let run: K32 = match name {
        "v_add_u16" => each32!(|cx, a, b, _| unsigned16(cx.clamp, u16_of(a) + u16_of(b))),
        "v_sub_u16" => each32!(|cx, a, b, _| unsigned16(cx.clamp, u16_of(a) - u16_of(b))),
        "v_subrev_u16" => each32!(|cx, a, b, _| unsigned16(cx.clamp, u16_of(b) - u16_of(a))),
        "v_add_i16" => each32!(|cx, a, b, _| signed16(cx.clamp, i16_of(a) + i16_of(b))),
        "v_sub_i16" => each32!(|cx, a, b, _| signed16(cx.clamp, i16_of(a) - i16_of(b))),
        "v_mul_lo_u16" => each32!(|_, a, b, _| unsigned16(false, u16_of(a) * u16_of(b))),
        "v_lshlrev_b16" => each32!(|_, a, b, _| (b << (a & 15)) & 0xFFFF),
        "v_lshrrev_b16" => each32!(|_, a, b, _| (b & 0xFFFF) >> (a & 15)),
        "v_ashrrev_i16" => each32!(|_, a, b, _| signed16(false, i16_of(b) >> (a & 15))),
        "v_max_u16" => each32!(|_, a, b, _| u16_of(a).max(u16_of(b)) as u32),
        "v_min_u16" => each32!(|_, a, b, _| u16_of(a).min(u16_of(b)) as u32),
        "v_max_i16" => each32!(|_, a, b, _| signed16(false, i16_of(a).max(i16_of(b)))),
        "v_min_i16" => each32!(|_, a, b, _| signed16(false, i16_of(a).min(i16_of(b)))),
        "v_mad_u16" | "v_mad_legacy_u16" => {
            each32!(|cx, a, b, c| unsigned16(cx.clamp, u16_of(a) * u16_of(b) + u16_of(c)))
        }
        "v_mad_i16" | "v_mad_legacy_i16" => {
            each32!(|cx, a, b, c| signed16(cx.clamp, i16_of(a) * i16_of(b) + i16_of(c)))
        }
        "v_min3_i16" => {
            each32!(|_, a, b, c| signed16(false, i16_of(a).min(i16_of(b)).min(i16_of(c))))
        }
        "v_min3_u16" => each32!(|_, a, b, c| u16_of(a).min(u16_of(b)).min(u16_of(c)) as u32),
        "v_max3_i16" => {
            each32!(|_, a, b, c| signed16(false, i16_of(a).max(i16_of(b)).max(i16_of(c))))
        }
        "v_max3_u16" => each32!(|_, a, b, c| u16_of(a).max(u16_of(b)).max(u16_of(c)) as u32),
        "v_med3_i16" => {
            each32!(|_, a, b, c| signed16(false, median(i16_of(a), i16_of(b), i16_of(c))))
        }
        "v_med3_u16" => each32!(|_, a, b, c| median(u16_of(a), u16_of(b), u16_of(c)) as u32),
        "v_pack_b32_f16" => {
            let run: K32 = each32!(|_, a, b, _| a & 0xFFFF | b << 16);
            return Some(v32(run, Fk::Int, [Fk::F16; 3]));
        }
        _ => return None,
    };
    Some(v32(run, Fk::Int, NONE))
}

fn wide64(name: &str) -> Option<Action> {
    let run: K64 = match name {
        "v_mov_b64" => each64!(|_, a, _, _| a),
        "v_lshlrev_b64" => each64!(|_, a, b, _| b << (a & 63)),
        "v_lshrrev_b64" => each64!(|_, a, b, _| b >> (a & 63)),
        "v_ashrrev_i64" => each64!(|_, a, b, _| (b as i64 >> (a & 63)) as u64),
        "v_lshl_add_u64" => each64!(|_, a, b, c| (a << (b & 7)).wrapping_add(c)),
        "v_qsad_pk_u16_u8" => each64!(|_, a, b, c| quad_sad(a, b, c, sad_u8)),
        "v_mqsad_pk_u16_u8" => each64!(|_, a, b, c| quad_sad(a, b, c, msad_u8)),
        _ => return None,
    };
    Some(v64(run, Fk::Int, NONE))
}

/// The sums of `v_mqsad_u32_u8` for one lane.
pub(super) fn masked_quad(a: u64, b: u32, c: [u32; 4]) -> [u32; 4] {
    let mut sums = c;
    for (at, slot) in sums.iter_mut().enumerate() {
        *slot = slot.wrapping_add(msad_u8((a >> (8 * at)) as u32, b));
    }
    sums
}
