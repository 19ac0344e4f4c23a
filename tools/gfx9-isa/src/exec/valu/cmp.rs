// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Comparisons: each gives one bit per lane.

use super::each32;
use super::each64;
use super::fetch;
use super::Cx;
use super::Exception;
use super::Fk;
use super::Wave;
use super::K32;
use super::K64;
use crate::fp;
use crate::inst::Inst;
use crate::simd;

/// Bits of a relation: which of four outcomes make it true.
const LESS: u8 = 1;
const EQUAL: u8 = 2;
const GREATER: u8 = 4;
const UNORDERED: u8 = 8;

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    F16,
    F32,
    F64,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    Class16,
    Class32,
    Class64,
}

/// Its kernel: the result is 0 or all ones per lane.
#[derive(Clone, Copy)]
enum Run {
    Narrow(K32),
    Wide(K64),
}

/// A comparison.
#[derive(Clone, Copy)]
pub(in crate::exec) struct Compare {
    kind: Kind,
    run: Run,
    relation: u8,
    /// The result is also the new EXEC.
    pub(super) writes_exec: bool,
}

fn relation(name: &str, float: bool) -> Option<u8> {
    let not = 15;
    Some(match name {
        "f" => 0,
        "lt" => LESS,
        "eq" => EQUAL,
        "le" => LESS | EQUAL,
        "gt" => GREATER,
        "lg" => LESS | GREATER,
        "ne" => LESS | GREATER,
        "ge" => GREATER | EQUAL,
        "o" => LESS | EQUAL | GREATER,
        "u" => UNORDERED,
        "nge" => not ^ (GREATER | EQUAL),
        "nlg" => not ^ (LESS | GREATER),
        "ngt" => not ^ GREATER,
        "nle" => not ^ (LESS | EQUAL),
        "neq" => not ^ EQUAL,
        "nlt" => not ^ LESS,
        "tru" if float => not,
        "t" => not,
        _ => return None,
    })
}

/// The comparison of a mnemonic.
pub(super) fn bind(name: &str) -> Option<Compare> {
    let (writes_exec, rest) = match name.strip_prefix("v_cmpx_") {
        Some(rest) => (true, rest),
        None => (false, name.strip_prefix("v_cmp_")?),
    };
    let (what, ty) = rest.rsplit_once('_')?;
    let class = what == "class";
    let kind = match (ty, class) {
        ("f16", false) => Kind::F16,
        ("f32", false) => Kind::F32,
        ("f64", false) => Kind::F64,
        ("i16", _) => Kind::I16,
        ("u16", _) => Kind::U16,
        ("i32", _) => Kind::I32,
        ("u32", _) => Kind::U32,
        ("i64", _) => Kind::I64,
        ("u64", _) => Kind::U64,
        ("f16", true) => Kind::Class16,
        ("f32", true) => Kind::Class32,
        ("f64", true) => Kind::Class64,
        _ => return None,
    };
    let relation = if class {
        0
    } else {
        relation(what, ty.starts_with('f'))?
    };
    let run = match kernel32(kind) {
        Some(run) => Run::Narrow(run),
        None => Run::Wide(kernel64(kind)),
    };
    Some(Compare {
        kind,
        run,
        relation,
        writes_exec,
    })
}

impl Compare {
    /// Which outcomes make it true.
    pub(super) fn relation(&self) -> u8 {
        self.relation
    }

    /// How its operands are treated.
    pub(super) fn operands(&self) -> [Fk; 2] {
        match self.kind {
            Kind::F16 => [Fk::F16, Fk::F16],
            Kind::F32 => [Fk::F32, Fk::F32],
            Kind::F64 => [Fk::F64, Fk::F64],
            Kind::Class16 | Kind::Class32 | Kind::Class64 => [Fk::Sign, Fk::Int],
            _ => [Fk::Int, Fk::Int],
        }
    }

    /// The kernel, if it is one on 32 bits.
    pub(super) fn narrow(&self) -> Option<K32> {
        match self.run {
            Run::Narrow(run) => Some(run),
            Run::Wide(_) => None,
        }
    }
}

/// The outcome of comparing numbers.
fn ordered<T: PartialOrd>(a: T, b: T) -> u8 {
    u8::from(a < b) * LESS + u8::from(a == b) * EQUAL + u8::from(a > b) * GREATER
}

fn float<T: PartialOrd + Copy>(a: T, b: T) -> u8 {
    let outcome = ordered(a, b);
    if outcome == 0 {
        UNORDERED
    } else {
        outcome
    }
}

/// The class of a float whose fields are given, as a bit of the mask of `v_cmp_class`.
fn class(negative: bool, exponent: u64, most: u64, mantissa: u64, quiet: u64) -> u32 {
    let sided = |minus: u32, plus: u32| 1 << if negative { minus } else { plus };
    if exponent == most && mantissa != 0 {
        return if mantissa & quiet == 0 { 1 } else { 2 };
    }
    if exponent == most {
        sided(2, 9)
    } else if exponent != 0 {
        sided(3, 8)
    } else if mantissa != 0 {
        sided(4, 7)
    } else {
        sided(5, 6)
    }
}

fn class16(x: u32) -> u32 {
    let x = u64::from(x);
    class(x >> 15 & 1 != 0, x >> 10 & 31, 31, x & 0x3FF, 0x200)
}

fn class32(x: u32) -> u32 {
    let x = u64::from(x);
    class(x >> 31 != 0, x >> 23 & 255, 255, x & 0x7F_FFFF, 1 << 22)
}

fn class64(x: u64) -> u32 {
    let mantissa = x & ((1 << 52) - 1);
    class(x >> 63 != 0, x >> 52 & 0x7FF, 0x7FF, mantissa, 1 << 51)
}

fn f32_of(x: u32) -> f32 {
    f32::from_bits(x)
}

/// Whether the outcome is one of those that make the comparison true, as 0 or all ones.
#[inline(always)]
fn truth(cx: &Cx, outcome: u8) -> u32 {
    u32::from(outcome & cx.relation != 0).wrapping_neg()
}

/// The kernel for 32 bits, or nothing for kinds of 64.
fn kernel32(kind: Kind) -> Option<K32> {
    Some(match kind {
        Kind::F16 => {
            each32!(|cx, a, b, _| truth(cx, float(fp::f16_value(a), fp::f16_value(b))))
        }
        Kind::F32 => each32!(|cx, a, b, _| truth(cx, float(f32_of(a), f32_of(b)))),
        Kind::I16 => each32!(|cx, a, b, _| truth(cx, ordered(a as i16, b as i16))),
        Kind::U16 => each32!(|cx, a, b, _| truth(cx, ordered(a as u16, b as u16))),
        Kind::I32 => each32!(|cx, a, b, _| truth(cx, ordered(a as i32, b as i32))),
        Kind::U32 => each32!(|cx, a, b, _| truth(cx, ordered(a, b))),
        Kind::Class16 => {
            each32!(|_, a, b, _| u32::from(class16(a) & b != 0).wrapping_neg())
        }
        Kind::Class32 => {
            each32!(|_, a, b, _| u32::from(class32(a) & b != 0).wrapping_neg())
        }
        Kind::F64 | Kind::I64 | Kind::U64 | Kind::Class64 => return None,
    })
}

fn kernel64(kind: Kind) -> K64 {
    match kind {
        Kind::F64 => {
            each64!(|cx, a, b, _| truth(cx, float(f64::from_bits(a), f64::from_bits(b))).into())
        }
        Kind::I64 => each64!(|cx, a, b, _| truth(cx, ordered(a as i64, b as i64)).into()),
        Kind::U64 => each64!(|cx, a, b, _| truth(cx, ordered(a, b)).into()),
        _ => each64!(|_, a, b, _| u32::from(class64(a) & b as u32 != 0).wrapping_neg().into()),
    }
}

/// The result of all lanes.
///
/// # Errors
/// Where an operand is none that exists.
pub(super) fn run(wave: &Wave, inst: &Inst, cx: &Cx, compare: Compare) -> Result<u64, Exception> {
    let kinds = compare.operands();
    let mut flags = [0; 64];
    match compare.run {
        Run::Wide(run) => {
            let ty = inst.row.src;
            let a = fetch::wide(wave, inst, inst.src[0], ty[0], 0, kinds[0])?;
            let b = fetch::wide(wave, inst, inst.src[1], ty[1], 1, kinds[1])?;
            let mut out = [0; 64];
            run.run(cx, [&a, &b, &a], &mut out);
            for (slot, value) in flags.iter_mut().zip(out) {
                *slot = value as u32;
            }
        }
        Run::Narrow(run) => {
            let (mut t0, mut t1) = ([0; 64], [0; 64]);
            let a = if compare.kind == Kind::Class16 {
                // The class of a denormal is that of a denormal in every mode.
                fetch::unflushed(wave, inst, 0, Fk::F16, &mut t0)?
            } else {
                fetch::narrow(wave, inst, 0, kinds[0], &mut t0)?
            };
            let b = fetch::narrow(wave, inst, 1, kinds[1], &mut t1)?;
            run.run(cx, [a, b, a], &mut flags);
        }
    }
    Ok(simd::signs(&flags))
}
