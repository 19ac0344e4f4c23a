// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Operands.

use crate::inst::Operand;
use crate::tables::Ty;

/// The inline float constants from operand code 240 on, and their `f16`, `f32` and `f64` encodings.
const FLOATS: [(&str, u16, u32); 9] = [
    ("0.5", 0x3800, 0x3F00_0000),
    ("-0.5", 0xB800, 0xBF00_0000),
    ("1.0", 0x3C00, 0x3F80_0000),
    ("-1.0", 0xBC00, 0xBF80_0000),
    ("2.0", 0x4000, 0x4000_0000),
    ("-2.0", 0xC000, 0xC000_0000),
    ("4.0", 0x4400, 0x4080_0000),
    ("-4.0", 0xC400, 0xC080_0000),
    ("0.15915494", 0x3118, 0x3E22_F983),
];

/// Registers `code..code + regs` of a file whose letter is `letter`.
fn tuple(letter: &str, code: usize, regs: usize) -> String {
    if regs <= 1 {
        format!("{letter}{code}")
    } else {
        format!("{letter}[{code}:{}]", code + regs - 1)
    }
}

fn scalar(code: u8, regs: usize) -> String {
    let pair = regs == 2;
    let name = match code {
        0..=101 => return tuple("s", code.into(), regs),
        108..=123 => return tuple("ttmp", usize::from(code) - 108, regs),
        102 if pair => "flat_scratch",
        104 if pair => "xnack_mask",
        106 if pair => "vcc",
        126 if pair => "exec",
        102 => "flat_scratch_lo",
        103 => "flat_scratch_hi",
        104 => "xnack_mask_lo",
        105 => "xnack_mask_hi",
        106 => "vcc_lo",
        107 => "vcc_hi",
        124 => "m0",
        126 => "exec_lo",
        127 => "exec_hi",
        _ => "null",
    };
    name.to_owned()
}

/// A register that begins a tuple of `regs`.
pub(super) fn register(operand: Operand, regs: usize) -> String {
    match operand {
        Operand::S(code) => scalar(code, regs),
        Operand::V(number) => tuple("v", number.into(), regs),
        Operand::A(number) => tuple("a", number.into(), regs),
        _ => String::new(),
    }
}

fn constant(code: u8, ty: Ty) -> String {
    match code {
        128..=192 => (i32::from(code) - 128).to_string(),
        193..=208 => (192 - i32::from(code)).to_string(),
        _ => {
            let Some((text, half, _)) = FLOATS.get(usize::from(code.wrapping_sub(240))) else {
                return String::new();
            };
            match ty {
                Ty::I16 => format!("{half:#x}"),
                Ty::B64 | Ty::Mask if code == 248 => "0.15915494309189532".to_owned(),
                _ => (*text).to_owned(),
            }
        }
    }
}

fn literal(value: u32, ty: Ty) -> String {
    let small = |value: i32| (-16..=64).contains(&value).then(|| value.to_string());
    match ty {
        Ty::B64 | Ty::Mask => format!("{value:#x}"),
        Ty::Pk16 => {
            let float = FLOATS.iter().find(|(_, bits, _)| u32::from(*bits) == value);
            match (small(value as i32), float) {
                (Some(text), _) => text,
                (None, Some((text, _, _))) => (*text).to_owned(),
                _ => format!("{value:#x}"),
            }
        }
        Ty::F16 | Ty::I16 => {
            let half = value as u16;
            let float = FLOATS.iter().find(|(_, bits, _)| *bits == half);
            let whole = if ty == Ty::I16 {
                value as i32
            } else {
                i32::from(half as i16)
            };
            match (small(whole), float) {
                (Some(text), _) => text,
                (None, Some((text, _, _))) if ty != Ty::I16 => (*text).to_owned(),
                _ => format!("{half:#x}"),
            }
        }
        _ => {
            let float = FLOATS.iter().find(|(_, _, bits)| *bits == value);
            match (small(value as i32), float) {
                (Some(text), _) => text,
                (None, Some((text, _, _))) => (*text).to_owned(),
                _ => format!("{value:#x}"),
            }
        }
    }
}

/// The text of `operand`, which is of kind `ty`.
pub(super) fn text(operand: Operand, ty: Ty, value: u32) -> String {
    match operand {
        Operand::None => String::new(),
        Operand::S(_) | Operand::V(_) | Operand::A(_) => register(operand, ty.regs()),
        Operand::Const(code) => constant(code, ty),
        Operand::Literal => literal(value, ty),
        Operand::Special(code) => match code {
            235 => "src_shared_base",
            236 => "src_shared_limit",
            237 => "src_private_base",
            238 => "src_private_limit",
            239 => "src_pops_exiting_wave_id",
            251 => "src_vccz",
            252 => "src_execz",
            253 => "src_scc",
            _ => "src_lds_direct",
        }
        .to_owned(),
    }
}
