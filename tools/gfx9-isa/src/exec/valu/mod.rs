// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Vector ALU.
//!
//! An instruction is executed in four steps: its sources are fetched as arrays of 64 lanes, with selections, lane
//! exchange, signs and flushes applied; a kernel computes all lanes, active or not; the result is flushed, scaled and
//! clamped; the active lanes are written.  Kernels are plain loops over arrays, which the compiler vectorises.

mod cmp;
mod convert;
mod division;
mod double;
mod dpp;
mod fetch;
mod finish;
mod half;
mod int;
mod packed;
mod quick;
mod raise;
mod single;
mod special;

use super::illegal;
use super::scalar;
use super::Exception;
use crate::fp;
use crate::inst::Ext;
use crate::inst::Form;
use crate::inst::Inst;
use crate::inst::Operand;
use crate::lanes;
use crate::simd;
use crate::simd::KFlag;
use crate::simd::K32;
use crate::simd::K64;
use crate::tables::Enc;
use crate::tables::Row;
use crate::tables::Ty;
use crate::wave::excp;
use crate::wave::mode;
use crate::wave::reg;
use crate::wave::Source;
use crate::wave::Wave;

/// What kernels know beside their operands.
#[derive(Clone, Copy)]
pub(crate) struct Cx {
    /// Rounding of `f32`.
    round32: u32,
    /// Rounding of `f16` and `f64`, for `f16` with saturation.
    round16: u32,
    round64: u32,
    clamp: bool,
    ieee: bool,
    /// VCC or the third source as a lane mask.
    mask: u64,
    /// What makes a comparison true.
    relation: u8,
    mode: u32,
}

/// How signs and denormals of an operand are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fk {
    /// No float.
    Int,
    /// The sign is changed, denormals stay.
    Sign,
    F16,
    F32,
    /// Denormals are flushed in every mode.
    F32Flushed,
    F64,
}

/// What an opcode does.
#[derive(Clone, Copy)]
pub(super) enum Action {
    V32 {
        run: K32,
        dst: Fk,
        src: [Fk; 3],
        /// The destination is the third source.
        accumulate: bool,
        /// The upper half of the destination stays.
        keep_high: bool,
    },
    V64 {
        run: K64,
        dst: Fk,
        src: [Fk; 3],
        accumulate: bool,
    },
    Carry(KFlag),
    Compare(cmp::Compare),
    Packed(packed::Packed),
    Special(special::Function),
}

/// Each lane of a 32-bit kernel.
macro_rules! each32 {
    (|$cx:pat_param, $a:pat_param, $b:pat_param, $c:pat_param| $body:expr) => {
        $crate::exec::valu::lanes32!(|cx, s, d| {
            for i in 0..64 {
                let ($cx, $a, $b, $c) = (cx, s[0][i], s[1][i], s[2][i]);
                d[i] = $body;
            }
        })
    };
}

/// A 32-bit kernel.
macro_rules! lanes32 {
    (|$cx:pat_param, $s:pat_param, $d:pat_param| $body:block) => {
        $crate::simd::twice!(
            K32,
            (
                $cx => &$crate::exec::Cx,
                $s => [&$crate::env::Lanes; 3],
                $d => &mut $crate::env::Lanes
            ),
            $body
        )
    };
}

/// A 64-bit kernel.
macro_rules! lanes64 {
    (|$cx:pat_param, $s:pat_param, $d:pat_param| $body:block) => {
        $crate::simd::twice!(
            K64,
            (
                $cx => &$crate::exec::Cx,
                $s => [&$crate::env::Wide; 3],
                $d => &mut $crate::env::Wide
            ),
            $body
        )
    };
}

/// Each lane of a 64-bit kernel.
macro_rules! each64 {
    (|$cx:pat_param, $a:pat_param, $b:pat_param, $c:pat_param| $body:expr) => {
        $crate::exec::valu::lanes64!(|cx, s, d| {
            for i in 0..64 {
                let ($cx, $a, $b, $c) = (cx, s[0][i], s[1][i], s[2][i]);
                d[i] = $body;
            }
        })
    };
}

/// Each lane of a 32-bit kernel in the common mode, nearest even: `$near` for the host's float, whose NaNs are then
/// replaced by `$nan`; and `$other` for the other modes.  With a second expression, `$fused`, that one is for
/// processors that have a fused multiply-add.
macro_rules! rounded32 {
    (|$cx:pat_param, $a:pat_param, $b:pat_param, $c:pat_param| $near:expr, $nan:expr, $other:expr) => {
        $crate::exec::valu::rounded32!(|$cx, $a, $b, $c| $near, $near, $nan, $other)
    };
    (|$cx:pat_param, $a:pat_param, $b:pat_param, $c:pat_param| $near:expr, $fused:expr, $nan:expr, $other:expr) => {
        $crate::simd::twice!(
            K32,
            (
                cx => &$crate::exec::Cx,
                s => [&$crate::env::Lanes; 3],
                d => &mut $crate::env::Lanes
            ),
            { $crate::exec::valu::rounded32!(@body cx, s, d, $cx, $a, $b, $c, $near, $nan, $other) },
            { $crate::exec::valu::rounded32!(@body cx, s, d, $cx, $a, $b, $c, $fused, $nan, $other) }
        )
    };
    (@body $xcx:ident, $s:ident, $d:ident, $cx:pat_param, $a:pat_param, $b:pat_param, $c:pat_param, $near:expr, $nan:expr, $other:expr) => {
        if $xcx.round32 == 0 {
            let mut nans = 0;
            for i in 0..64 {
                let ($a, $b, $c) = ($s[0][i], $s[1][i], $s[2][i]);
                let value: f32 = $near;
                nans |= u32::from(value.is_nan());
                $d[i] = value.to_bits();
            }
            if nans != 0 {
                for i in 0..64 {
                    let ($a, $b, $c) = ($s[0][i], $s[1][i], $s[2][i]);
                    if $crate::fp::is_nan32($d[i]) {
                        $d[i] = $crate::fp::nan32($nan);
                    }
                }
            }
        } else {
            for i in 0..64 {
                let ($cx, $a, $b, $c) = ($xcx, $s[0][i], $s[1][i], $s[2][i]);
                $d[i] = $other;
            }
        }
    };
}

pub(super) use convert::from_f8;
pub(super) use quick::Quick;

use each32;
use each64;
use lanes32;
use lanes64;
use rounded32;

fn v32(run: K32, dst: Fk, src: [Fk; 3]) -> Action {
    Action::V32 {
        run,
        dst,
        src,
        accumulate: false,
        keep_high: false,
    }
}

fn v64(run: K64, dst: Fk, src: [Fk; 3]) -> Action {
    Action::V64 {
        run,
        dst,
        src,
        accumulate: false,
    }
}

impl Action {
    /// The destination is the addend.
    fn accumulating(mut self) -> Self {
        match &mut self {
            Action::V32 { accumulate, .. } | Action::V64 { accumulate, .. } => *accumulate = true,
            _ => {}
        }
        self
    }

    /// The upper half of the destination stays.
    fn keeping_high(mut self) -> Self {
        if let Action::V32 { keep_high, .. } = &mut self {
            *keep_high = true;
        }
        self
    }
}

/// The action of a row.
pub(super) fn bind(row: &'static Row) -> Option<Action> {
    if row.enc == Enc::Vopc {
        return cmp::bind(row.name).map(Action::Compare);
    }
    if row.enc == Enc::Vop3p || row.name == "v_pk_fmac_f16" {
        return packed::bind(row.name).map(Action::Packed);
    }
    special::bind(row.name)
        .map(Action::Special)
        .or_else(|| int::bind(row.name))
        .or_else(|| single::bind(row.name))
        .or_else(|| half::bind(row.name))
        .or_else(|| double::bind(row.name))
        .or_else(|| convert::bind(row.name))
        .or_else(|| division::bind(row.name))
}

impl Cx {
    #[inline]
    fn new(mode: u32, clamp: bool, mask: u64, relation: u8) -> Self {
        let round64 = mode >> 2 & 3;
        let saturate = if mode & mode::FP16_OVFL != 0 {
            fp::SATURATE
        } else {
            0
        };
        Self {
            round32: mode & 3,
            round16: round64 | saturate,
            round64,
            clamp,
            ieee: mode & mode::IEEE != 0,
            mask,
            relation,
            mode,
        }
    }
}

/// Adds the index of relative addressing to the VGPRs of the operand classes that M0 selects.
fn index_registers(wave: &Wave, inst: &mut Inst) {
    let m0 = wave.m0();
    let (index, classes) = (m0 as u8, m0 >> 12);
    // Out of range, a source reads v0; the writes of such a destination are dropped.
    let moved = |operand: Operand| match operand {
        Operand::V(number) => Operand::V(number.checked_add(index).unwrap_or(0)),
        Operand::A(number) => Operand::A(number.checked_add(index).unwrap_or(0)),
        other => other,
    };
    for (at, source) in inst.src.iter_mut().take(3).enumerate() {
        if classes >> at & 1 != 0 {
            *source = moved(*source);
        }
    }
    if classes & 8 != 0 {
        inst.dst = match inst.dst {
            Operand::V(number) | Operand::A(number) if number.checked_add(index).is_none() => {
                Operand::None
            }
            other => moved(other),
        };
    }
}

/// The lane mask that an instruction reads: the third source, or VCC.
fn lane_mask(wave: &Wave, inst: &Inst) -> Result<u64, Exception> {
    match (inst.row.src[2], inst.src[2]) {
        (Ty::Mask, operand) => scalar(wave, inst, operand, Ty::B64),
        _ => Ok(wave.vcc()),
    }
}

/// Executes one of them; returns the exceptions of floats that MODE lets trap.
///
/// # Errors
/// Where an operand is none that exists.
pub(super) fn execute(wave: &mut Wave, inst: &Inst, action: Action) -> Result<u32, Exception> {
    let mut raised = 0;
    let mut moved;
    let inst = if wave.mode & mode::GPR_IDX_EN != 0 {
        moved = *inst;
        index_registers(wave, &mut moved);
        &moved
    } else {
        inst
    };
    let relation = match action {
        Action::Compare(compare) => compare.relation(),
        _ => 0,
    };
    let mask = lane_mask(wave, inst)?;
    let cx = Cx::new(wave.mode, inst.mods.clamp, mask, relation);
    let active = fetch::active(wave, inst);
    match action {
        Action::V32 {
            run,
            dst,
            src,
            accumulate,
            keep_high,
        } => {
            let mut tmp = [[0; 64]; 3];
            let mut out = [0; 64];
            let [t0, t1, t2] = &mut tmp;
            let a = fetch::narrow(wave, inst, 0, src[0], t0)?;
            let b = fetch::narrow(wave, inst, 1, src[1], t1)?;
            let c = if accumulate {
                fetch::destination(wave, inst, src[2], t2)?
            } else {
                fetch::narrow(wave, inst, 2, src[2], t2)?
            };
            run.run(&cx, [a, b, c], &mut out);
            if raise::wanted(wave) {
                let (mut up, mut down) = ([0; 64], [0; 64]);
                run.run(&raise::rounding(&cx, 1), [a, b, c], &mut up);
                run.run(&raise::rounding(&cx, 2), [a, b, c], &mut down);
                let raise = raise::Raise::new(wave, inst.row.name, dst, src);
                for lane in lanes::each(active) {
                    let operands = [a, b, c].map(|source| u64::from(source[lane]));
                    let results = [&out, &up, &down].map(|result| u64::from(result[lane]));
                    raised |= raise.lane(operands, results);
                }
            }
            finish::narrow(wave, inst, &mut out, dst, active, keep_high);
        }
        Action::V64 {
            run,
            dst,
            src,
            accumulate,
        } => {
            let mut tmp = [[0; 64]; 3];
            let mut out = [0; 64];
            for at in 0..3 {
                let ty = inst.row.src[at];
                tmp[at] = if accumulate && at == 2 {
                    fetch::wide(wave, inst, inst.dst, inst.row.dst[0], at, src[2])?
                } else if ty == Ty::None || inst.src[at] == Operand::None {
                    [0; 64]
                } else {
                    fetch::wide(wave, inst, inst.src[at], ty, at, src[at])?
                };
            }
            let sources = [&tmp[0], &tmp[1], &tmp[2]];
            run.run(&cx, sources, &mut out);
            if raise::wanted(wave) {
                let (mut up, mut down) = ([0; 64], [0; 64]);
                run.run(&raise::rounding(&cx, 1), sources, &mut up);
                run.run(&raise::rounding(&cx, 2), sources, &mut down);
                let raise = raise::Raise::new(wave, inst.row.name, dst, src);
                for lane in lanes::each(active) {
                    let operands = sources.map(|source| source[lane]);
                    raised |= raise.lane(operands, [out[lane], up[lane], down[lane]]);
                }
            }
            finish::wide(wave, inst, &mut out, dst, active);
        }
        Action::Carry(run) => {
            let mut tmp = [[0; 64]; 2];
            let (mut out, mut flags) = ([0; 64], [0; 64]);
            let [t0, t1] = &mut tmp;
            let a = fetch::narrow(wave, inst, 0, Fk::Int, t0)?;
            let b = fetch::narrow(wave, inst, 1, Fk::Int, t1)?;
            run.run(&cx, [a, b, a], &mut out, &mut flags);
            let mask = simd::signs(&flags) & active;
            let Operand::S(code) = inst.sdst else {
                return Err(illegal(inst, "the carry has no destination"));
            };
            check_mask(inst, inst.sdst)?;
            finish::narrow(wave, inst, &mut out, Fk::Int, active, false);
            // A lane that DPP leaves out keeps its carry.
            let kept = if matches!(inst.ext, Ext::Dpp(_)) {
                wave.pair(code) & wave.exec() & !active
            } else {
                0
            };
            wave.set_pair(code, mask | kept);
        }
        Action::Compare(compare) => {
            check_mask(inst, inst.dst)?;
            let mask = cmp::run(wave, inst, &cx, compare)? & active;
            let Operand::S(code) = inst.dst else {
                return Err(illegal(inst, "the result has no destination"));
            };
            wave.set_pair(code, mask);
            if compare.writes_exec {
                wave.set_pair(reg::EXEC, mask);
            }
        }
        Action::Packed(action) => packed::execute(wave, inst, &cx, active, action)?,
        Action::Special(function) => function(wave, inst, &cx, active)?,
    }
    wave.trapsts |= raised;
    Ok(raised & wave.mode >> excp::MODE_SHIFT)
}

/// Refuses lane masks that are no register pair which the wave may write.
fn check_mask(inst: &Inst, operand: Operand) -> Result<(), Exception> {
    match operand {
        Operand::S(108..=125) | Operand::S(127) => {
            Err(illegal(inst, "the lane mask has no such destination"))
        }
        Operand::S(_) => Ok(()),
        _ => Err(illegal(inst, "the lane mask has no destination")),
    }
}
