// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Instructions that read or write other than one register per lane.

use super::division;
use super::double;
use super::fetch;
use super::finish;
use super::illegal;
use super::int;
use super::mode;
use super::scalar;
use super::Cx;
use super::Exception;
use super::Fk;
use super::Operand;
use super::Ty;
use super::Wave;
use crate::exec::write_scalar;
use crate::fp;
use crate::inst::Inst;

pub(super) type Function = fn(&mut Wave, &Inst, &Cx, u64) -> Result<(), Exception>;

fn vector(inst: &Inst, operand: Operand) -> Result<usize, Exception> {
    match operand {
        Operand::V(number) => Ok(number.into()),
        _ => Err(illegal(inst, "the operand is no VGPR")),
    }
}

/// The lane that a scalar operand names.
fn lane(wave: &Wave, inst: &Inst) -> Result<usize, Exception> {
    Ok((scalar(wave, inst, inst.src[1], Ty::B32)? & 63) as usize)
}

fn read_lane(wave: &mut Wave, inst: &Inst, lane: usize) -> Result<(), Exception> {
    let number = vector(inst, inst.src[0])?;
    let value = wave.vgpr(number, false)[lane];
    write_scalar(wave, inst, inst.dst, false, value.into())
}

fn write_lane(wave: &mut Wave, inst: &Inst) -> Result<(), Exception> {
    let value = scalar(wave, inst, inst.src[0], Ty::B32)? as u32;
    let lane = lane(wave, inst)?;
    if let Operand::V(number) = inst.dst {
        if let Some(register) = wave.vgpr_mut(number.into(), false) {
            register[lane] = value;
        }
    }
    Ok(())
}

fn swap(wave: &mut Wave, inst: &Inst, lanes: u64) -> Result<(), Exception> {
    let other = vector(inst, inst.src[0])?;
    let Operand::V(number) = inst.dst else {
        return Ok(());
    };
    let (a, b) = (*wave.vgpr(number.into(), false), *wave.vgpr(other, false));
    wave.write_vgpr(number.into(), false, lanes, &b);
    wave.write_vgpr(other, false, lanes, &a);
    Ok(())
}

/// 32 by 32 bits plus 64, with the carry out of the sum.
fn mad64(wave: &mut Wave, inst: &Inst, lanes: u64, signed: bool) -> Result<(), Exception> {
    super::check_mask(inst, inst.sdst)?;
    let src = |at: usize| {
        let ty = inst.row.src[at];
        fetch::wide(wave, inst, inst.src[at], ty, at, Fk::Int)
    };
    let (a, b, c) = (src(0)?, src(1)?, src(2)?);
    let mut out = [0; 64];
    let mut mask = 0u64;
    for lane in 0..64 {
        let (value, carry) = if signed {
            let product = i64::from(a[lane] as u32 as i32) * i64::from(b[lane] as u32 as i32);
            let (sum, over) = product.overflowing_add(c[lane] as i64);
            let limit = if c[lane] >> 63 != 0 {
                i64::MIN
            } else {
                i64::MAX
            };
            let sum = if over && inst.mods.clamp { limit } else { sum };
            (sum as u64, over)
        } else {
            let (sum, over) = (a[lane] * b[lane]).overflowing_add(c[lane]);
            let sum = if over && inst.mods.clamp {
                u64::MAX
            } else {
                sum
            };
            (sum, over)
        };
        out[lane] = value;
        mask |= u64::from(carry) << lane;
    }
    finish::wide(wave, inst, &mut out, Fk::Int, lanes);
    write_scalar(wave, inst, inst.sdst, true, mask & lanes)
}

fn div_scale32(wave: &mut Wave, inst: &Inst, cx: &Cx, lanes: u64) -> Result<(), Exception> {
    super::check_mask(inst, inst.sdst)?;
    let mut tmp = [[0; 64]; 3];
    let [t0, t1, t2] = &mut tmp;
    let value = fetch::narrow(wave, inst, 0, Fk::F32, t0)?;
    let den = fetch::narrow(wave, inst, 1, Fk::F32, t1)?;
    let num = fetch::narrow(wave, inst, 2, Fk::F32, t2)?;
    let mut out = [0; 64];
    let mut mask = 0u64;
    for lane in 0..64 {
        let scale = division::scale32(value[lane], den[lane], num[lane]);
        let factor = f64::from_bits(((1023 + scale.power) as u64) << 52);
        let scaled = f64::from(f32::from_bits(value[lane])) * factor;
        out[lane] = if scale.nan {
            fp::NAN32
        } else if scale.power == 0 || scaled.is_nan() {
            value[lane]
        } else {
            fp::f64_to_f32(scaled, cx.round32)
        };
        mask |= u64::from(scale.flag) << lane;
    }
    finish::narrow(wave, inst, &mut out, Fk::F32, lanes, false);
    write_scalar(wave, inst, inst.sdst, true, mask & lanes)
}

fn div_scale64(wave: &mut Wave, inst: &Inst, cx: &Cx, lanes: u64) -> Result<(), Exception> {
    super::check_mask(inst, inst.sdst)?;
    let src = |at: usize| fetch::wide(wave, inst, inst.src[at], Ty::B64, at, Fk::F64);
    let (value, den, num) = (src(0)?, src(1)?, src(2)?);
    let mut out = [0; 64];
    let mut mask = 0u64;
    for lane in 0..64 {
        let scale = division::scale64(value[lane], den[lane], num[lane]);
        out[lane] = if scale.nan {
            fp::NAN64
        } else if scale.power == 0 || fp::is_nan64(value[lane]) {
            value[lane]
        } else {
            double::ldexp(value[lane], scale.power, cx.round64)
        };
        mask |= u64::from(scale.flag) << lane;
    }
    finish::wide(wave, inst, &mut out, Fk::F64, lanes);
    write_scalar(wave, inst, inst.sdst, true, mask & lanes)
}

/// `v_mqsad_u32_u8`, whose addend and result are four registers.
fn masked_sad(wave: &mut Wave, inst: &Inst, lanes: u64) -> Result<(), Exception> {
    let a = fetch::wide(wave, inst, inst.src[0], Ty::B64, 0, Fk::Int)?;
    let mut tmp = [0; 64];
    let b = *fetch::narrow(wave, inst, 1, Fk::Int, &mut tmp)?;
    let addend = vector(inst, inst.src[2])?;
    let number = vector(inst, inst.dst)?;
    let c: [[u32; 64]; 4] = std::array::from_fn(|at| *wave.vgpr(addend + at, false));
    let mut out = [[0; 64]; 4];
    for lane in 0..64 {
        let sums = int::masked_quad(a[lane], b[lane], c.map(|row| row[lane]));
        for (row, sum) in out.iter_mut().zip(sums) {
            row[lane] = sum;
        }
    }
    for (at, row) in out.iter().enumerate() {
        wave.write_vgpr(number + at, false, lanes, row);
    }
    Ok(())
}

/// Dot products that accumulate in the destination.
fn dot_accumulate(
    wave: &mut Wave,
    inst: &Inst,
    lanes: u64,
    dot: fn(u32, u32, u32, bool) -> u32,
    fk: Fk,
) -> Result<(), Exception> {
    let mut tmp = [[0; 64]; 3];
    let [t0, t1, t2] = &mut tmp;
    let mut whole = *inst;
    // The operands are whole registers here, whatever a constant means in them.
    whole.mods.neg = 0;
    whole.mods.abs = 0;
    let a = fetch::whole(wave, &whole, 0, t0)?;
    let b = fetch::whole(wave, &whole, 1, t1)?;
    let c = fetch::destination(wave, inst, Fk::Int, t2)?;
    let mut out = [0; 64];
    for lane in 0..64 {
        out[lane] = dot(a[lane], b[lane], c[lane], inst.mods.clamp);
    }
    finish::narrow(wave, inst, &mut out, fk, lanes, false);
    Ok(())
}

/// Conversion of one value to 8 bits with random rounding (`pair` false), or of two to nearest even: the result goes to
/// the byte or half that `op_sel` names, and the rest of the register stays.
fn to_8_bits(
    wave: &mut Wave,
    inst: &Inst,
    lanes: u64,
    mantissa: u32,
    pair: bool,
) -> Result<(), Exception> {
    let saturate = wave.mode & mode::FP16_OVFL != 0;
    let mut tmp = [[0; 64]; 2];
    let [t0, t1] = &mut tmp;
    let a = *fetch::narrow(wave, inst, 0, Fk::F32, t0)?;
    let of_b = if pair { Fk::F32 } else { Fk::Int };
    let b = *fetch::narrow(wave, inst, 1, of_b, t1)?;
    let number = vector(inst, inst.dst)?;
    let (shift, mask) = if pair {
        (u32::from(inst.mods.op_sel >> 3 & 1) * 16, 0xFFFF)
    } else {
        (u32::from(inst.mods.op_sel >> 2 & 3) * 8, 0xFF)
    };
    let mut out = *wave.vgpr(number, false);
    for lane in 0..64 {
        let value = if pair {
            let near = |x: u32| fp::f32_to_f8(x, mantissa, 0, saturate);
            near(a[lane]) | near(b[lane]) << 8
        } else {
            fp::f32_to_f8_random(a[lane], b[lane], mantissa, saturate)
        };
        out[lane] = out[lane] & !(mask << shift) | value << shift;
    }
    wave.write_vgpr(number, false, lanes, &out);
    Ok(())
}

/// The function of a mnemonic.
pub(super) fn bind(name: &str) -> Option<Function> {
    let function: Function = match name {
        "v_nop" => |_, _, _, _| Ok(()),
        "v_clrexcp" => |w, _, _, _| {
            w.trapsts &= !0x7F;
            Ok(())
        },
        "v_readfirstlane_b32" => |w, i, _, _| {
            let first = w.exec().trailing_zeros() & 63;
            read_lane(w, i, first as usize)
        },
        "v_readlane_b32" => |w, i, _, _| {
            let lane = lane(w, i)?;
            read_lane(w, i, lane)
        },
        "v_writelane_b32" => |w, i, _, _| write_lane(w, i),
        "v_swap_b32" => |w, i, _, lanes| swap(w, i, lanes),
        "v_mad_u64_u32" => |w, i, _, lanes| mad64(w, i, lanes, false),
        "v_mad_i64_i32" => |w, i, _, lanes| mad64(w, i, lanes, true),
        "v_div_scale_f32" => div_scale32,
        "v_div_scale_f64" => div_scale64,
        "v_cvt_pk_fp8_f32" => |w, i, _, lanes| to_8_bits(w, i, lanes, 3, true),
        "v_cvt_pk_bf8_f32" => |w, i, _, lanes| to_8_bits(w, i, lanes, 2, true),
        "v_cvt_sr_fp8_f32" => |w, i, _, lanes| to_8_bits(w, i, lanes, 3, false),
        "v_cvt_sr_bf8_f32" => |w, i, _, lanes| to_8_bits(w, i, lanes, 2, false),
        "v_mqsad_u32_u8" => |w, i, _, lanes| masked_sad(w, i, lanes),
        "v_dot2c_f32_f16" => |w, i, _, lanes| {
            if i.mods.neg | i.mods.abs != 0 {
                return Err(illegal(i, "packed operands have no sign to change"));
            }
            dot_accumulate(
                w,
                i,
                lanes,
                |a, b, c, _| super::packed::dot2_f32(a, b, c),
                Fk::F32Flushed,
            )
        },
        "v_dot2c_i32_i16" => {
            |w, i, _, lanes| dot_accumulate(w, i, lanes, super::packed::dot2_i32, Fk::Int)
        }
        "v_dot4c_i32_i8" => {
            |w, i, _, lanes| dot_accumulate(w, i, lanes, super::packed::dot4_i32, Fk::Int)
        }
        "v_dot8c_i32_i4" => {
            |w, i, _, lanes| dot_accumulate(w, i, lanes, super::packed::dot8_i32, Fk::Int)
        }
        _ => return None,
    };
    Some(function)
}
