// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Results: flush, output modifier, clamp, placement within the register.

use super::fetch::flush16;
use super::fetch::flush32;
use super::fetch::flush64;
use super::mode;
use super::Fk;
use super::Operand;
use super::Ty;
use super::Wave;
use crate::env::Lanes;
use crate::env::Wide;
use crate::fp;
use crate::inst::Ext;
use crate::inst::Inst;
use crate::inst::Sdwa;
use crate::tables::Enc;

/// The output modifier as a factor; it counts only where denormal results are flushed and IEEE is off.
fn factor(wave: &Wave, inst: &Inst, flushed: bool) -> Option<f64> {
    if wave.mode & mode::IEEE != 0 || !flushed {
        return None;
    }
    match inst.mods.omod {
        1 => Some(2.0),
        2 => Some(4.0),
        3 => Some(0.5),
        _ => None,
    }
}

/// Multiplies by `factor`; zeros and denormals become +0.
fn scale32(x: u32, factor: f64) -> u32 {
    if fp::is_nan32(x) {
        return x;
    }
    if x & 0x7F80_0000 == 0 {
        return 0;
    }
    flush32(fp::f64_to_f32(f64::from(f32::from_bits(x)) * factor, 0))
}

fn scale16(x: u32, factor: f64) -> u32 {
    if fp::is_nan16(x) {
        return x;
    }
    if x & 0x7C00 == 0 {
        return 0;
    }
    flush16(fp::f64_to_f16(fp::f16_value(x) * factor, 0))
}

fn scale64(x: u64, factor: f64) -> u64 {
    if fp::is_nan64(x) {
        return x;
    }
    if flush64(x) << 1 == 0 {
        return 0;
    }
    flush64((f64::from_bits(x) * factor).to_bits())
}

/// 0 to 1; NaN becomes 0 if `dx10`.
pub(super) fn clamp32(x: u32, dx10: bool) -> u32 {
    if fp::is_nan32(x) {
        return if dx10 { 0 } else { x };
    }
    if x >> 31 != 0 {
        0
    } else {
        x.min(0x3F80_0000)
    }
}

/// As [`clamp32`].
pub(super) fn clamp16(x: u32, dx10: bool) -> u32 {
    if fp::is_nan16(x) {
        return if dx10 { 0 } else { x };
    }
    if x & 0x8000 != 0 {
        0
    } else {
        x.min(0x3C00)
    }
}

fn clamp64(x: u64, dx10: bool) -> u64 {
    if fp::is_nan64(x) {
        return if dx10 { 0 } else { x };
    }
    if x >> 63 != 0 {
        0
    } else {
        x.min(0x3FF0_0000_0000_0000)
    }
}

/// Flushes, scales and clamps one register of floats.
pub(super) fn float32(wave: &Wave, inst: &Inst, out: &mut Lanes, fk: Fk) {
    let half = fk == Fk::F16;
    let flush = match fk {
        Fk::Int | Fk::Sign | Fk::F64 => return,
        Fk::F16 => wave.mode & 0x80 == 0,
        Fk::F32 => wave.mode & 0x20 == 0,
        Fk::F32Flushed => true,
    };
    if flush && half {
        out.iter_mut().for_each(|x| *x = flush16(*x));
    } else if flush {
        out.iter_mut().for_each(|x| *x = flush32(*x));
    }
    if let Some(factor) = factor(wave, inst, flush) {
        let scale = if half { scale16 } else { scale32 };
        out.iter_mut().for_each(|x| *x = scale(*x, factor));
    }
    if inst.mods.clamp {
        let dx10 = wave.mode & mode::DX10_CLAMP != 0;
        let clamp = if half { clamp16 } else { clamp32 };
        out.iter_mut().for_each(|x| *x = clamp(*x, dx10));
    }
}

fn float64(wave: &Wave, inst: &Inst, out: &mut Wide) {
    let flush = wave.mode & 0x80 == 0;
    if flush {
        out.iter_mut().for_each(|x| *x = flush64(*x));
    }
    if let Some(factor) = factor(wave, inst, flush) {
        out.iter_mut().for_each(|x| *x = scale64(*x, factor));
    }
    if inst.mods.clamp {
        let dx10 = wave.mode & mode::DX10_CLAMP != 0;
        out.iter_mut().for_each(|x| *x = clamp64(*x, dx10));
    }
}

/// Puts a result into the byte or word of SDWA.
fn place(sdwa: &Sdwa, value: u32, old: u32) -> u32 {
    let (shift, width) = match sdwa.dst_sel {
        sel @ 0..=3 => (8 * u32::from(sel), 8),
        4 => (0, 16),
        5 => (16, 16),
        _ => return value,
    };
    let mask = ((1u32 << width) - 1) << shift;
    let field = value << shift & mask;
    match sdwa.dst_unused {
        0 => field,
        1 => {
            let up = 32 - shift - width;
            ((field << up) as i32 >> up) as u32
        }
        _ => old & !mask | field,
    }
}

/// Writes a result of 32 bits.
pub(super) fn narrow(
    wave: &mut Wave,
    inst: &Inst,
    out: &mut Lanes,
    fk: Fk,
    lanes: u64,
    keep_high: bool,
) {
    float32(wave, inst, out, fk);
    let (number, acc) = match inst.dst {
        Operand::V(number) => (usize::from(number), false),
        Operand::A(number) => (usize::from(number), true),
        _ => return,
    };
    let single = inst.row.enc == Enc::Vop3 && inst.row.has(b's');
    let half = single && inst.row.dst[0] == Ty::B32 && is_half(inst);
    if let Ext::Sdwa(sdwa) = inst.ext {
        let old = wave.vgpr(number, acc);
        for (slot, old) in out.iter_mut().zip(old) {
            *slot = place(&sdwa, *slot, *old);
        }
    } else if half || keep_high {
        let shift = if half && inst.mods.op_sel & 8 != 0 {
            16
        } else {
            0
        };
        let mask = 0xFFFF << shift;
        let old = wave.vgpr(number, acc);
        for (slot, old) in out.iter_mut().zip(old) {
            *slot = old & !mask | *slot << shift & mask;
        }
    }
    wave.write_vgpr(number, acc, lanes, out);
}

/// Whether an instruction with `op_sel` has a result of 16 bits: the last type of its name tells.
fn is_half(inst: &Inst) -> bool {
    let name = inst.row.name;
    let packs = name.starts_with("v_cvt_pk") || name.starts_with("v_pack");
    let mixed = matches!(name, "v_mad_u32_u16" | "v_mad_i32_i16");
    !packs
        && !mixed
        && ["_f16", "_i16", "_u16"]
            .iter()
            .any(|end| name.ends_with(end))
}

/// Writes a result of 64 bits, or its low half where the destination has 32.
pub(super) fn wide(wave: &mut Wave, inst: &Inst, out: &mut Wide, fk: Fk, lanes: u64) {
    let mut low = [0; 64];
    if inst.row.dst[0].regs() == 1 {
        for (slot, value) in low.iter_mut().zip(out.iter()) {
            *slot = *value as u32;
        }
        return narrow(wave, inst, &mut low, fk, lanes, false);
    }
    if fk == Fk::F64 {
        float64(wave, inst, out);
    }
    let Operand::V(number) = inst.dst else {
        return;
    };
    let mut high = [0; 64];
    for (at, value) in out.iter().enumerate() {
        low[at] = *value as u32;
        high[at] = (*value >> 32) as u32;
    }
    wave.write_vgpr(number.into(), false, lanes, &low);
    wave.write_vgpr(usize::from(number) + 1, false, lanes, &high);
}
