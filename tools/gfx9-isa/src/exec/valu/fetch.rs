// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Sources: registers, constants, sub-dword selection, lane exchange, signs, flushes.

use super::dpp;
use super::illegal;
use super::scalar;
use super::Exception;
use super::Fk;
use super::Operand;
use super::Ty;
use super::Wave;
use crate::env::Lanes;
use crate::env::Wide;
use crate::inst::Ext;
use crate::inst::Inst;

/// The lanes that the instruction writes.
pub(super) fn active(wave: &Wave, inst: &Inst) -> u64 {
    match &inst.ext {
        Ext::Dpp(dpp) => dpp::active(dpp, wave.exec()),
        _ => wave.exec(),
    }
}

/// The byte or word of SDWA, extended.
fn select(value: u32, sel: u8, signed: bool) -> u32 {
    match (sel, signed) {
        (0..=3, false) => value >> (8 * sel) & 0xFF,
        (0..=3, true) => i32::from((value >> (8 * sel)) as u8 as i8) as u32,
        (4 | 5, false) => value >> (16 * (sel - 4)) & 0xFFFF,
        (4 | 5, true) => i32::from((value >> (16 * (sel - 4))) as u16 as i16) as u32,
        _ => value,
    }
}

/// Whether denormal operands of the kind are flushed in this mode.
fn flushes(wave: &Wave, fk: Fk) -> bool {
    match fk {
        Fk::Int | Fk::Sign => false,
        Fk::F32Flushed => true,
        Fk::F32 => wave.mode & 0x10 == 0,
        Fk::F16 | Fk::F64 => wave.mode & 0x40 == 0,
    }
}

/// A denormal becomes a zero of its sign.
pub(super) fn flush16(x: u32) -> u32 {
    if x & 0x7C00 == 0 {
        x & 0x8000
    } else {
        x
    }
}

/// As [`flush16`].
pub(super) fn flush32(x: u32) -> u32 {
    if x & 0x7F80_0000 == 0 {
        x & 0x8000_0000
    } else {
        x
    }
}

/// As [`flush16`].
pub(super) fn flush64(x: u64) -> u64 {
    if x & 0x7FF0_0000_0000_0000 == 0 {
        x & 1 << 63
    } else {
        x
    }
}

/// The lanes of a VGPR operand, or nothing for a scalar.
fn vector(wave: &Wave, operand: Operand) -> Option<&Lanes> {
    match operand {
        Operand::V(number) => Some(wave.vgpr(number.into(), false)),
        Operand::A(number) => Some(wave.vgpr(number.into(), true)),
        _ => None,
    }
}

/// Source `at` on 32 bits.
pub(super) fn narrow<'a>(
    wave: &'a Wave,
    inst: &Inst,
    at: usize,
    fk: Fk,
    tmp: &'a mut Lanes,
) -> Result<&'a Lanes, Exception> {
    let operand = inst.src[at];
    let ty = inst.row.src[at];
    if operand == Operand::None || matches!(ty, Ty::None | Ty::Mask) {
        return Ok(tmp);
    }
    modified(wave, inst, operand, ty, at, fk, tmp)
}

/// The destination as an addend.
pub(super) fn destination<'a>(
    wave: &'a Wave,
    inst: &Inst,
    fk: Fk,
    tmp: &'a mut Lanes,
) -> Result<&'a Lanes, Exception> {
    match vector(wave, inst.dst) {
        Some(lanes) => *tmp = *lanes,
        None => return Ok(tmp),
    }
    if fk == Fk::F16 {
        for slot in tmp.iter_mut() {
            *slot &= 0xFFFF;
        }
    }
    if flushes(wave, fk) {
        flush_lanes(fk, tmp);
    }
    Ok(tmp)
}

fn flush_lanes(fk: Fk, lanes: &mut Lanes) {
    if fk == Fk::F16 {
        for slot in lanes.iter_mut() {
            *slot = flush16(*slot);
        }
    } else {
        for slot in lanes.iter_mut() {
            *slot = flush32(*slot);
        }
    }
}

fn modified<'a>(
    wave: &'a Wave,
    inst: &Inst,
    operand: Operand,
    ty: Ty,
    at: usize,
    fk: Fk,
    tmp: &'a mut Lanes,
) -> Result<&'a Lanes, Exception> {
    let bit = 1 << at;
    let mods = &inst.mods;
    let (neg, abs) = (mods.neg & bit != 0, mods.abs & bit != 0);
    let half = matches!(ty, Ty::F16 | Ty::I16);
    let high = half && inst.row.has(b's') && mods.op_sel & bit != 0;
    let flush = flushes(wave, fk);
    let exchanged = at == 0 && matches!(inst.ext, Ext::Dpp(_));
    let selected = matches!(inst.ext, Ext::Sdwa(_));
    let register = vector(wave, operand);
    if let Some(lanes) = register {
        if !(neg || abs || half || flush || exchanged || selected) {
            return Ok(lanes);
        }
    }
    *tmp = match register {
        Some(lanes) => *lanes,
        None => [scalar(wave, inst, operand, ty)? as u32; 64],
    };
    if let (Ext::Dpp(dpp), true) = (&inst.ext, exchanged) {
        dpp::exchange(dpp, wave.exec(), tmp);
    }
    if let Ext::Sdwa(sdwa) = inst.ext {
        let sel = sdwa.src_sel[at.min(1)];
        let signed = mods.sext & bit != 0;
        for slot in tmp.iter_mut() {
            *slot = select(*slot, sel, signed);
        }
    }
    if half {
        let shift = if high { 16 } else { 0 };
        for slot in tmp.iter_mut() {
            *slot = *slot >> shift & 0xFFFF;
        }
    }
    let sign = if fk == Fk::F16 { 0x8000 } else { 0x8000_0000 };
    let (keep, flip) = (if abs { !sign } else { !0 }, if neg { sign } else { 0 });
    if (neg || abs) && fk != Fk::Int {
        for slot in tmp.iter_mut() {
            *slot = *slot & keep ^ flip;
        }
    }
    if flush {
        flush_lanes(fk, tmp);
    }
    Ok(tmp)
}

/// An operand on 64 bits; what is narrower is zero-extended.
pub(super) fn wide(
    wave: &Wave,
    inst: &Inst,
    operand: Operand,
    ty: Ty,
    at: usize,
    fk: Fk,
) -> Result<Wide, Exception> {
    let mut value = [0; 64];
    if ty.regs() == 1 {
        let mut tmp = [0; 64];
        let lanes = modified(wave, inst, operand, ty, at, fk, &mut tmp)?;
        for (slot, lane) in value.iter_mut().zip(lanes) {
            *slot = u64::from(*lane);
        }
        return Ok(value);
    }
    pair(wave, inst, operand, ty, &mut value)?;
    if at == 0 {
        if let Ext::Dpp(dpp) = &inst.ext {
            dpp::exchange(dpp, wave.exec(), &mut value);
        }
    }
    let bit = 1 << at;
    let sign = if fk == Fk::Int { 0 } else { 1 << 63 };
    let keep = if inst.mods.abs & bit != 0 { !sign } else { !0 };
    let flip = if inst.mods.neg & bit != 0 { sign } else { 0 };
    let flush = flushes(wave, fk);
    for slot in &mut value {
        *slot = *slot & keep ^ flip;
        if flush {
            *slot = flush64(*slot);
        }
    }
    Ok(value)
}

/// The two registers of an operand, or a scalar in every lane.
fn pair(
    wave: &Wave,
    inst: &Inst,
    operand: Operand,
    ty: Ty,
    value: &mut Wide,
) -> Result<(), Exception> {
    let (number, acc) = match operand {
        Operand::V(number) => (usize::from(number), false),
        Operand::A(number) => (usize::from(number), true),
        Operand::None => return Err(illegal(inst, "an operand is missing")),
        operand => {
            // A packed pair has a constant in its low half only.
            let constant = matches!(operand, Operand::Const(_));
            let narrow = if ty == Ty::Pk32 && constant {
                Ty::B32
            } else {
                ty
            };
            *value = [scalar(wave, inst, operand, narrow)?; 64];
            return Ok(());
        }
    };
    let (low, high) = (wave.vgpr(number, acc), wave.vgpr(number + 1, acc));
    for (slot, (low, high)) in value.iter_mut().zip(low.iter().zip(high)) {
        *slot = u64::from(*low) | u64::from(*high) << 32;
    }
    Ok(())
}

/// Source `at` on 16 bits with its sign changed, whatever the mode says of denormals.
pub(super) fn unflushed<'a>(
    wave: &'a Wave,
    inst: &Inst,
    at: usize,
    fk: Fk,
    tmp: &'a mut Lanes,
) -> Result<&'a Lanes, Exception> {
    let mut plain = *inst;
    plain.mods.neg = 0;
    plain.mods.abs = 0;
    *tmp = *narrow(wave, &plain, at, Fk::Int, &mut [0; 64])?;
    let bit = 1 << at;
    let sign = if fk == Fk::F16 { 0x8000 } else { 0x8000_0000 };
    for slot in tmp.iter_mut() {
        if inst.mods.abs & bit != 0 {
            *slot &= !sign;
        }
        if inst.mods.neg & bit != 0 {
            *slot ^= sign;
        }
    }
    Ok(tmp)
}

/// Source `at` with all 32 bits of a register.
pub(super) fn whole<'a>(
    wave: &'a Wave,
    inst: &Inst,
    at: usize,
    tmp: &'a mut Lanes,
) -> Result<&'a Lanes, Exception> {
    let ty = match (inst.src[at], inst.row.src[at]) {
        (Operand::Const(_), ty) => ty,
        _ => Ty::B32,
    };
    modified(wave, inst, inst.src[at], ty, at, Fk::Int, tmp)
}
