// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Packed instructions: two 16-bit or two 32-bit values per operand, mixed precision, dot products.

use super::each32;
use super::fetch;
use super::finish;
use super::half;
use super::int;
use super::single;
use super::Cx;
use super::Exception;
use super::Fk;
use super::Operand;
use super::Ty;
use super::Wave;
use super::K32;
use crate::env::Lanes;
use crate::fp;
use crate::inst::Inst;

type Dot = fn(u32, u32, u32, bool) -> u32;

/// What an opcode does.
#[derive(Clone, Copy)]
pub(in crate::exec) enum Packed {
    /// Both halves by one kernel.
    Halves { run: K32, fk: Fk, accumulate: bool },
    /// Both dwords of a pair by one kernel.
    Singles(K32),
    /// Two dwords are moved.
    Move,
    /// A product and sum whose operands are of either precision; to 32 bits or to one half.
    Mix(Option<bool>),
    /// A dot product.
    Dot(Dot, Fk),
}

/// Both products and the addend, rounded once; denormals count as 0.
pub(super) fn dot2_f32(a: u32, b: u32, c: u32) -> u32 {
    let half = |x: u32| fp::f16_value(fetch::flush16(x & 0xFFFF));
    let products = [half(a) * half(b), half(a >> 16) * half(b >> 16)];
    let c = fetch::flush32(c);
    let addend = f64::from(f32::from_bits(c));
    // Each product has 22 bits: the sum of both is exact in most cases, and rounded to odd in the others.
    let sum = fp::add_odd(fp::add_odd(products[0], products[1]), addend);
    if sum.is_nan() {
        if fp::is_nan32(c) {
            return c | 0x40_0000;
        }
        return fp::NAN32;
    }
    fetch::flush32(fp::f64_to_f32(sum, 0))
}

/// The sum of products of signed fields of `bits` bits.
fn dot_signed(a: u32, b: u32, c: u32, bits: u32, clamp: bool) -> u32 {
    let field = |x: u32, at: u32| i64::from((x << (32 - bits - at)) as i32 >> (32 - bits));
    let products = (0..32 / bits).map(|at| field(a, at * bits) * field(b, at * bits));
    let sum = products.sum::<i64>() + i64::from(c as i32);
    if clamp {
        sum.clamp(i32::MIN.into(), i32::MAX.into()) as u32
    } else {
        sum as u32
    }
}

fn dot_unsigned(a: u32, b: u32, c: u32, bits: u32, clamp: bool) -> u32 {
    let mask = (1u32 << bits) - 1;
    let field = |x: u32, at: u32| u64::from(x >> at & mask);
    let products = (0..32 / bits).map(|at| field(a, at * bits) * field(b, at * bits));
    let sum = products.sum::<u64>() + u64::from(c);
    if clamp {
        sum.min(0xFFFF_FFFF) as u32
    } else {
        sum as u32
    }
}

/// Dot product of two signed halves.
pub(super) fn dot2_i32(a: u32, b: u32, c: u32, clamp: bool) -> u32 {
    dot_signed(a, b, c, 16, clamp)
}

/// Dot product of four signed bytes.
pub(super) fn dot4_i32(a: u32, b: u32, c: u32, clamp: bool) -> u32 {
    dot_signed(a, b, c, 8, clamp)
}

/// Dot product of eight signed nibbles.
pub(super) fn dot8_i32(a: u32, b: u32, c: u32, clamp: bool) -> u32 {
    dot_signed(a, b, c, 4, clamp)
}

fn halves(run: K32, fk: Fk) -> Packed {
    Packed::Halves {
        run,
        fk,
        accumulate: false,
    }
}

fn integer(name: &str) -> Option<K32> {
    use int::i16_of;
    use int::signed16;
    use int::u16_of;
    use int::unsigned16;
    Some(match name {
        "mad_i16" => each32!(|cx, a, b, c| signed16(cx.clamp, i16_of(a) * i16_of(b) + i16_of(c))),
        "mad_u16" => {
            each32!(|cx, a, b, c| unsigned16(cx.clamp, u16_of(a) * u16_of(b) + u16_of(c)))
        }
        "mul_lo_u16" => each32!(|_, a, b, _| unsigned16(false, u16_of(a) * u16_of(b))),
        "add_i16" => each32!(|cx, a, b, _| signed16(cx.clamp, i16_of(a) + i16_of(b))),
        "sub_i16" => each32!(|cx, a, b, _| signed16(cx.clamp, i16_of(a) - i16_of(b))),
        "add_u16" => each32!(|cx, a, b, _| unsigned16(cx.clamp, u16_of(a) + u16_of(b))),
        "sub_u16" => each32!(|cx, a, b, _| unsigned16(cx.clamp, u16_of(a) - u16_of(b))),
        "lshlrev_b16" => each32!(|_, a, b, _| (b << (a & 15)) & 0xFFFF),
        "lshrrev_b16" => each32!(|_, a, b, _| (b & 0xFFFF) >> (a & 15)),
        "ashrrev_i16" => each32!(|_, a, b, _| signed16(false, i16_of(b) >> (a & 15))),
        "max_i16" => each32!(|_, a, b, _| signed16(false, i16_of(a).max(i16_of(b)))),
        "min_i16" => each32!(|_, a, b, _| signed16(false, i16_of(a).min(i16_of(b)))),
        "max_u16" => each32!(|_, a, b, _| u16_of(a).max(u16_of(b)) as u32),
        "min_u16" => each32!(|_, a, b, _| u16_of(a).min(u16_of(b)) as u32),
        _ => return None,
    })
}

/// The action of a mnemonic.
pub(super) fn bind(name: &str) -> Option<Packed> {
    let single: Option<K32> = match name {
        "v_pk_fma_f32" => Some(single::fused()),
        "v_pk_mul_f32" => Some(single::product()),
        "v_pk_add_f32" => Some(single::sum()),
        _ => None,
    };
    if let Some(run) = single {
        return Some(Packed::Singles(run));
    }
    Some(match name {
        "v_pk_mov_b32" => Packed::Move,
        "v_fma_mix_f32" => Packed::Mix(None),
        "v_fma_mixlo_f16" => Packed::Mix(Some(false)),
        "v_fma_mixhi_f16" => Packed::Mix(Some(true)),
        "v_dot2_f32_f16" => Packed::Dot(|a, b, c, _| dot2_f32(a, b, c), Fk::F32Flushed),
        "v_dot2_i32_i16" => Packed::Dot(dot2_i32, Fk::Int),
        "v_dot4_i32_i8" => Packed::Dot(dot4_i32, Fk::Int),
        "v_dot8_i32_i4" => Packed::Dot(dot8_i32, Fk::Int),
        "v_dot2_u32_u16" => Packed::Dot(|a, b, c, k| dot_unsigned(a, b, c, 16, k), Fk::Int),
        "v_dot4_u32_u8" => Packed::Dot(|a, b, c, k| dot_unsigned(a, b, c, 8, k), Fk::Int),
        "v_dot8_u32_u4" => Packed::Dot(|a, b, c, k| dot_unsigned(a, b, c, 4, k), Fk::Int),
        "v_pk_fmac_f16" => Packed::Halves {
            run: half::kernel("fma_f16")?,
            fk: Fk::F16,
            accumulate: true,
        },
        _ => {
            let name = name.strip_prefix("v_pk_")?;
            match half::kernel(name) {
                Some(run) => halves(run, Fk::F16),
                None => halves(integer(name)?, Fk::Int),
            }
        }
    })
}

/// One half of each lane, with its sign changed and denormals flushed as for `fk`.
fn half_of(wave: &Wave, value: &Lanes, high: bool, negate: bool, fk: Fk) -> Lanes {
    let shift = if high { 16 } else { 0 };
    let flip = if negate { 0x8000 } else { 0 };
    let flush = fk == Fk::F16 && wave.mode & 0x40 == 0;
    let mut out = *value;
    for slot in &mut out {
        let half = (*slot >> shift & 0xFFFF) ^ flip;
        *slot = if flush { fetch::flush16(half) } else { half };
    }
    out
}

fn source(wave: &Wave, inst: &Inst, at: usize) -> Result<Lanes, Exception> {
    let mut tmp = [0; 64];
    if at >= inst.row.sources() {
        return Ok(tmp);
    }
    let mut plain = *inst;
    plain.mods.neg = 0;
    plain.mods.abs = 0;
    fetch::whole(wave, &plain, at, &mut tmp).copied()
}

/// Executes one of them.
///
/// # Errors
/// Where an operand is none that exists.
pub(super) fn execute(
    wave: &mut Wave,
    inst: &Inst,
    cx: &Cx,
    lanes: u64,
    action: Packed,
) -> Result<(), Exception> {
    let mods = inst.mods;
    let bit = |mask: u8, at: usize| mask >> at & 1 != 0;
    match action {
        Packed::Halves {
            run,
            fk,
            accumulate,
        } => {
            let mut whole = [source(wave, inst, 0)?, source(wave, inst, 1)?, [0; 64]];
            whole[2] = match (accumulate, inst.dst) {
                (false, _) => source(wave, inst, 2)?,
                (true, Operand::V(number)) => *wave.vgpr(number.into(), false),
                (true, _) => [0; 64],
            };
            let op_sel_hi = if accumulate { 7 } else { mods.op_sel_hi };
            let parts = [(mods.op_sel, mods.neg), (op_sel_hi, mods.abs)].map(|(sel, neg)| {
                let part = |at: usize| half_of(wave, &whole[at], bit(sel, at), bit(neg, at), fk);
                let operands = [part(0), part(1), part(2)];
                let mut out = [0; 64];
                run.run(cx, [&operands[0], &operands[1], &operands[2]], &mut out);
                finish::float32(wave, inst, &mut out, fk);
                out
            });
            let mut out = parts[0];
            for (slot, high) in out.iter_mut().zip(&parts[1]) {
                *slot = *slot & 0xFFFF | high << 16;
            }
            if let Operand::V(number) = inst.dst {
                wave.write_vgpr(number.into(), false, lanes, &out);
            }
        }
        Packed::Singles(_) | Packed::Move => singles(wave, inst, cx, lanes, action)?,
        Packed::Mix(half) => mix(wave, inst, cx, lanes, half)?,
        Packed::Dot(dot, fk) => {
            let mut operands = [source(wave, inst, 0)?, source(wave, inst, 1)?];
            let mut addend = source(wave, inst, 2)?;
            let packed_halves = inst.row.name.contains("dot2");
            for (at, operand) in operands.iter_mut().enumerate() {
                for slot in operand.iter_mut().filter(|_| packed_halves) {
                    let part = |high: bool| if high { *slot >> 16 } else { *slot & 0xFFFF };
                    let (low, high) = (part(bit(mods.op_sel, at)), part(bit(mods.op_sel_hi, at)));
                    let flip = |on: bool| if on && fk != Fk::Int { 0x8000 } else { 0 };
                    let low = low ^ flip(bit(mods.neg, at));
                    *slot = low | (high ^ flip(bit(mods.abs, at))) << 16;
                }
            }
            if fk != Fk::Int && bit(mods.neg, 2) {
                addend.iter_mut().for_each(|x| *x ^= 0x8000_0000);
            }
            let mut out = [0; 64];
            for lane in 0..64 {
                let (a, b) = (operands[0][lane], operands[1][lane]);
                out[lane] = dot(a, b, addend[lane], mods.clamp);
            }
            finish::narrow(wave, inst, &mut out, fk, lanes, false);
        }
    }
    Ok(())
}

/// Operations on pairs of registers.
fn singles(
    wave: &mut Wave,
    inst: &Inst,
    cx: &Cx,
    lanes: u64,
    action: Packed,
) -> Result<(), Exception> {
    let mods = inst.mods;
    let bit = |mask: u8, at: usize| mask >> at & 1 != 0;
    let mut plain = *inst;
    plain.mods.neg = 0;
    plain.mods.abs = 0;
    let mut whole = [[0; 64]; 3];
    for at in 0..inst.row.sources().min(3) {
        whole[at] = fetch::wide(wave, &plain, inst.src[at], Ty::Pk32, at, Fk::Int)?;
    }
    let dword = |at: usize, high: bool, negate: bool| {
        let flush = wave.mode & 0x10 == 0 && !matches!(action, Packed::Move);
        let flip = if negate { 0x8000_0000 } else { 0 };
        let mut out = [0; 64];
        for (slot, value) in out.iter_mut().zip(&whole[at]) {
            let value = (value >> if high { 32 } else { 0 }) as u32 ^ flip;
            *slot = if flush { fetch::flush32(value) } else { value };
        }
        out
    };
    let parts = match action {
        Packed::Singles(run) => {
            [(mods.op_sel, mods.neg), (mods.op_sel_hi, mods.abs)].map(|(sel, neg)| {
                let part = |at: usize| dword(at, bit(sel, at), bit(neg, at));
                let operands = [part(0), part(1), part(2)];
                let mut out = [0; 64];
                run.run(cx, [&operands[0], &operands[1], &operands[2]], &mut out);
                finish::float32(wave, inst, &mut out, Fk::F32);
                out
            })
        }
        _ => [
            dword(0, bit(mods.op_sel, 0), false),
            dword(1, bit(mods.op_sel, 1), false),
        ],
    };
    if let Operand::V(number) = inst.dst {
        wave.write_vgpr(number.into(), false, lanes, &parts[0]);
        wave.write_vgpr(usize::from(number) + 1, false, lanes, &parts[1]);
    }
    Ok(())
}

/// A product and sum of operands that are `f32`, or a half that is converted.
fn mix(
    wave: &mut Wave,
    inst: &Inst,
    cx: &Cx,
    lanes: u64,
    half: Option<bool>,
) -> Result<(), Exception> {
    let mods = inst.mods;
    let mut operands = [[0; 64]; 3];
    for (at, operand) in operands.iter_mut().enumerate() {
        let bit = 1 << at;
        *operand = source(wave, inst, at)?;
        let converted = mods.op_sel_hi & bit != 0;
        let shift = if mods.op_sel & bit != 0 { 16 } else { 0 };
        let keep = if mods.abs & bit != 0 { 0x7FFF_FFFF } else { !0 };
        let flip = if mods.neg & bit != 0 { 0x8000_0000 } else { 0 };
        let (flush16, flush32) = (wave.mode & 0x40 == 0, wave.mode & 0x10 == 0);
        for slot in operand.iter_mut() {
            let value = if converted {
                let value = *slot >> shift & 0xFFFF;
                fp::f16_to_f32(if flush16 {
                    fetch::flush16(value)
                } else {
                    value
                })
            } else if flush32 {
                fetch::flush32(*slot)
            } else {
                *slot
            };
            *slot = value & keep ^ flip;
        }
    }
    let mut out = [0; 64];
    let [a, b, c] = &operands;
    for lane in 0..64 {
        let (a, b, c) = (a[lane], b[lane], c[lane]);
        out[lane] = if half.is_none() {
            fp::fma32(a, b, c, cx.round32)
        } else {
            let value = |x: u32| f64::from(f32::from_bits(x));
            let exact = fp::fma_odd(value(a), value(b), value(c));
            if exact.is_nan() {
                fp::f32_to_f16(fp::nan32([a, b, c]), 0)
            } else {
                fp::f64_to_f16(exact, cx.round16)
            }
        };
    }
    let Some(high) = half else {
        finish::narrow(wave, inst, &mut out, Fk::F32, lanes, false);
        return Ok(());
    };
    finish::float32(wave, inst, &mut out, Fk::F16);
    if let Operand::V(number) = inst.dst {
        let old = wave.vgpr(number.into(), false);
        for (slot, old) in out.iter_mut().zip(old) {
            *slot = if high {
                old & 0xFFFF | *slot << 16
            } else {
                old & 0xFFFF_0000 | *slot & 0xFFFF
            };
        }
        wave.write_vgpr(number.into(), false, lanes, &out);
    }
    Ok(())
}
