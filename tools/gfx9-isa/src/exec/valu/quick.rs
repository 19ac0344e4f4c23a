// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Vector ALU instructions in their most frequent form, prepared once.
//!
//! Without selected parts, exchanged lanes, output modifiers and flushes, an instruction is its kernel on rows of the
//! register file.  What depends on MODE is one comparison: where it fails, the general way is taken.

use super::check_mask;
use super::Action;
use super::Cx;
use super::Ext;
use super::Fk;
use super::Form;
use super::Inst;
use super::KFlag;
use super::Operand;
use super::Source;
use super::Ty;
use super::Wave;
use super::K32;
use crate::exec::constant;
use crate::tables::Enc;
use crate::wave::excp;
use crate::wave::mode;
use crate::wave::reg;
use crate::wave::Place;

/// The kernel and what its flags are for.
#[derive(Clone, Copy)]
enum Run {
    Lanes(K32),
    Carry(KFlag, u8),
    Compare(K32, u8, bool),
}

/// A prepared instruction.
#[derive(Clone, Copy)]
pub(in crate::exec) struct Quick {
    run: Run,
    src: [Source; 3],
    dst: Option<u16>,
    /// Bits of MODE that count, and what they must be.
    gate: (u32, u32),
    /// The scalar register pair with the lane mask.
    mask: u8,
    relation: u8,
    clamp: bool,
}

fn row(operand: Operand) -> Option<u16> {
    match operand {
        Operand::V(number) => Some(number.into()),
        Operand::A(number) => Some(256 + u16::from(number)),
        _ => None,
    }
}

/// Source `at`, which is one register or constant of 32 bits.
fn source(inst: &Inst, at: usize, fk: Fk) -> Option<Source> {
    let operand = inst.src[at];
    let plain = |place| {
        Some(Source {
            place,
            change: None,
        })
    };
    if operand == Operand::None || matches!(inst.row.src[at], Ty::None | Ty::Mask) {
        return plain(Place::Value(0));
    }
    if inst.row.src[at] != Ty::B32 {
        return None;
    }
    let place = match operand {
        Operand::S(125) | Operand::Special(_) | Operand::None => return None,
        Operand::S(code) => Place::Scalar(code),
        Operand::Const(code) => Place::Value(constant(code, Ty::B32) as u32),
        Operand::Literal => Place::Value(inst.literal),
        Operand::V(_) | Operand::A(_) => Place::Row(row(operand)?),
    };
    let bit = 1 << at;
    let (neg, abs) = (inst.mods.neg & bit != 0, inst.mods.abs & bit != 0);
    if fk == Fk::Int || !(neg || abs) {
        return plain(place);
    }
    let keep = if abs { 0x7FFF_FFFF } else { !0 };
    let flip = if neg { 0x8000_0000 } else { 0 };
    Some(Source {
        place,
        change: Some((keep, flip)),
    })
}

/// The lane mask that is written.
fn mask_code(inst: &Inst, operand: Operand) -> Option<u8> {
    check_mask(inst, operand).ok()?;
    match operand {
        Operand::S(code) => Some(code),
        _ => None,
    }
}

impl Quick {
    /// The instruction in this form, if it has it.
    pub(in crate::exec) fn new(inst: &Inst, action: &Action) -> Option<Quick> {
        let plain = inst.ext == Ext::None
            && matches!(inst.form, Form::E32 | Form::E64)
            && inst.mods.omod == 0
            && inst.mods.op_sel == 0
            && !(inst.row.enc == Enc::Vop3 && inst.row.has(b's'));
        if !plain {
            return None;
        }
        let (run, kinds, result, accumulate) = match *action {
            Action::V32 {
                run,
                dst,
                src,
                accumulate,
                keep_high: false,
            } => (Run::Lanes(run), src, dst, accumulate),
            Action::Carry(run) => {
                let out = mask_code(inst, inst.sdst)?;
                (Run::Carry(run, out), [Fk::Int; 3], Fk::Int, false)
            }
            Action::Compare(compare) => {
                let [a, b] = compare.operands();
                let out = mask_code(inst, inst.dst)?;
                let run = Run::Compare(compare.narrow()?, out, compare.writes_exec);
                (run, [a, b, Fk::Int], Fk::Int, false)
            }
            _ => return None,
        };
        let known = |fk: Fk| matches!(fk, Fk::Int | Fk::Sign | Fk::F32);
        if !kinds.into_iter().chain([result]).all(known) {
            return None;
        }
        let float = kinds.contains(&Fk::F32) || result == Fk::F32;
        if result == Fk::F32 && inst.mods.clamp {
            return None;
        }
        let mut gate = (mode::GPR_IDX_EN | mode::VSKIP, 0);
        if float {
            // Denormals stay as they are, and nothing traps.
            gate = (gate.0 | 0x30 | excp::ALL << excp::MODE_SHIFT, 0x30);
        }
        let mut src = [
            source(inst, 0, kinds[0])?,
            source(inst, 1, kinds[1])?,
            source(inst, 2, kinds[2])?,
        ];
        if accumulate {
            src[2] = Source {
                place: Place::Row(row(inst.dst)?),
                change: None,
            };
        }
        let mask = match (inst.row.src[2], inst.src[2]) {
            (Ty::Mask, Operand::S(125)) => return None,
            (Ty::Mask, Operand::S(code)) => code,
            (Ty::Mask, _) => return None,
            _ => reg::VCC,
        };
        let relation = match action {
            Action::Compare(compare) => compare.relation(),
            _ => 0,
        };
        let dst = match run {
            Run::Compare(..) => None,
            _ => Some(row(inst.dst)?),
        };
        Some(Quick {
            run,
            src,
            dst,
            gate,
            mask,
            relation,
            clamp: inst.mods.clamp,
        })
    }

    /// Executes it; false if MODE demands the general way.
    #[inline]
    pub(in crate::exec) fn execute(&self, wave: &mut Wave) -> bool {
        if wave.mode & self.gate.0 != self.gate.1 || wave.tracks_exceptions {
            return false;
        }
        let cx = Cx::new(wave.mode, self.clamp, wave.pair(self.mask), self.relation);
        let exec = wave.exec();
        match self.run {
            Run::Lanes(run) => {
                wave.compute(&self.src, self.dst, exec, |src, dst, _| {
                    run.run(&cx, src, dst);
                });
            }
            Run::Carry(run, out) => {
                wave.compute(&self.src, self.dst, exec, |src, dst, flags| {
                    run.run(&cx, src, dst, flags);
                });
                let mask = wave.flagged() & exec;
                wave.set_pair(out, mask);
            }
            Run::Compare(run, out, writes_exec) => {
                wave.compute(&self.src, None, exec, |src, _, flags| {
                    run.run(&cx, src, flags);
                });
                let mask = wave.flagged() & exec;
                wave.set_pair(out, mask);
                if writes_exec {
                    wave.set_pair(reg::EXEC, mask);
                }
            }
        }
        true
    }
}
