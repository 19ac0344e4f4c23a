// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What vector memory instructions of all encodings have in common.

use crate::env::AtomicOp;
use crate::tables::Row;

/// What is done at the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Load {
        bytes: u32,
        signed: bool,
        half: Half,
    },
    Store {
        bytes: u32,
        /// The data is in the upper half of the register.
        high: bool,
    },
    Atomic {
        op: AtomicOp,
        wide: bool,
    },
}

/// Which half of the register a 16-bit load writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    Whole,
    Low,
    High,
}

/// The operation whose name follows `atomic_`, without its width.
pub(super) fn atomic(name: &str) -> Option<AtomicOp> {
    Some(match name {
        "swap" => AtomicOp::Swap,
        "cmpswap" => AtomicOp::CmpSwap,
        "add" => AtomicOp::Add,
        "sub" => AtomicOp::Sub,
        "smin" => AtomicOp::SMin,
        "umin" => AtomicOp::UMin,
        "smax" => AtomicOp::SMax,
        "umax" => AtomicOp::UMax,
        "and" => AtomicOp::And,
        "or" => AtomicOp::Or,
        "xor" => AtomicOp::Xor,
        "inc" => AtomicOp::Inc,
        "dec" => AtomicOp::Dec,
        "add_f32" | "add_f64" => AtomicOp::AddFloat,
        "min_f64" => AtomicOp::MinFloat,
        "max_f64" => AtomicOp::MaxFloat,
        "pk_add_f16" => AtomicOp::PkAddF16,
        "pk_add_bf16" => AtomicOp::PkAddBf16,
        _ => return None,
    })
}

/// What a row of FLAT, GLOBAL, SCRATCH or MUBUF does.
pub(super) fn kind(row: &Row) -> Option<Kind> {
    let (_, name) = row.name.split_once('_')?;
    if let Some(op) = name.strip_prefix("atomic_") {
        let wide = row.dst[0].regs() == 2;
        let op = atomic(op.strip_suffix("_x2").unwrap_or(op))?;
        return Some(Kind::Atomic { op, wide });
    }
    if let Some(what) = name.strip_prefix("store_") {
        let (what, high) = match what.strip_suffix("_d16_hi") {
            Some(what) => (what, true),
            None => (what, false),
        };
        let bytes = match what {
            "byte" => 1,
            "short" => 2,
            "dword" => 4,
            "dwordx2" => 8,
            "dwordx3" => 12,
            "dwordx4" => 16,
            _ => return None,
        };
        return Some(Kind::Store { bytes, high });
    }
    let what = name.strip_prefix("load_")?;
    let what = what.strip_prefix("lds_").unwrap_or(what);
    let (what, half) = if let Some(what) = what.strip_suffix("_d16_hi") {
        (what, Half::High)
    } else if let Some(what) = what.strip_suffix("_d16") {
        (what, Half::Low)
    } else {
        (what, Half::Whole)
    };
    let (bytes, signed) = match what {
        "ubyte" => (1, false),
        "sbyte" => (1, true),
        "ushort" | "short" => (2, false),
        "sshort" => (2, true),
        "dword" => (4, false),
        "dwordx2" => (8, false),
        "dwordx3" => (12, false),
        "dwordx4" => (16, false),
        _ => return None,
    };
    Some(Kind::Load {
        bytes,
        signed,
        half,
    })
}

/// What a load of one register puts there: `value` as loaded, `old` as the register was.
pub(super) fn loaded(
    value: u32,
    old: u32,
    bytes: u32,
    signed: bool,
    half: Half,
    clears: bool,
) -> u32 {
    let extended = match (bytes, signed) {
        (1, true) => i32::from(value as u8 as i8) as u32,
        (2, true) => i32::from(value as u16 as i16) as u32,
        _ => value,
    };
    let kept = if clears { 0 } else { old };
    match half {
        Half::Whole => extended,
        Half::Low => kept & 0xFFFF_0000 | extended & 0xFFFF,
        Half::High => kept & 0xFFFF | extended << 16,
    }
}
