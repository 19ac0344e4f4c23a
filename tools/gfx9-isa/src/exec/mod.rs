// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Execution of one instruction by one wave.
//!
//! [`Executor`] binds each row of the tables to what it does, once.  [`Executor::execute`] applies an instruction to a
//! [`Wave`].  An instruction that faults has changed nothing and may run again, except that stores of several dwords
//! to private memory may have happened in part; repeating them is harmless.

mod buffer;
mod control;
pub mod cost;
mod ds;
mod format;
mod fused;
mod lds;
mod mai;
mod memory;
mod salu;
mod smem;
mod straight;
mod sums;
pub mod touch;
mod typed;
mod valu;
mod vmem;

use crate::env::Env;
use crate::env::MemoryFault;
use crate::inst::Asic;
use crate::inst::Inst;
use crate::inst::Operand;
use crate::tables::rows;
use crate::tables::Enc;
use crate::tables::Row;
use crate::tables::Ty;
use crate::wave::mode;
use crate::wave::Wave;

pub(crate) use valu::Cx;

/// What follows an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The instruction at PC.
    Next,
    /// The instruction at PC, read anew: the instruction cache is invalid.
    Refetch,
    /// The instruction has raised these exceptions of floats ([`crate::wave::excp`]), which MODE lets trap; PC is behind
    /// it.
    Math(u32),
    /// The wave has sent this message; PC is behind the instruction.
    Message(u16),
    /// The wave has ended.
    End,
    /// The wave has ended after its context was saved; its group is not complete.
    Saved,
    /// The wave waits for the others of its group; PC is behind the barrier.
    Barrier,
    /// The wave yields for that many times 64 clocks.
    Sleep(u16),
    /// The wave enters its trap handler with this id; PC is that of the instruction.
    Trap(u8),
    /// The wave halts; PC is behind the instruction.
    Halt,
    /// The wave waits for global wave sync; PC is that of the instruction.
    Wait,
}

/// Why an instruction was not executed; the wave is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exception {
    /// The instruction is illegal in this form or state.
    #[error("{name} is illegal: {why}")]
    Illegal {
        /// Mnemonic.
        name: &'static str,
        /// Reason.
        why: &'static str,
    },
    /// The instruction is not implemented.
    #[error("{name} is not implemented")]
    Unimplemented {
        /// Mnemonic.
        name: &'static str,
    },
    /// A memory access faulted.
    #[error("A memory access faulted: {0:x?}")]
    Memory(MemoryFault),
    /// A memory access violates the rules of its address space (alignment of atomics, canonical addresses).
    #[error("{address:#x} is no address that the instruction can access")]
    Violation {
        /// Address.
        address: u64,
    },
}

impl From<MemoryFault> for Exception {
    fn from(fault: MemoryFault) -> Self {
        Exception::Memory(fault)
    }
}

/// What an opcode does.
#[derive(Clone, Copy)]
enum Action {
    Missing,
    Scalar(salu::Function),
    Control(control::Function),
    Smem(smem::Action),
    Vector(valu::Action),
    Mai(mai::Action),
    Ds(ds::Action),
    Vmem(memory::Kind),
    Typed(typed::Action),
    /// Cache control: memory is coherent.
    Nothing,
}

fn bind(row: &'static Row) -> Action {
    let action = match row.enc {
        Enc::Sop1 | Enc::Sop2 | Enc::Sopc | Enc::Sopk | Enc::Sopp => {
            match control::bind(row.name) {
                Some(action) => Some(Action::Control(action)),
                None => salu::bind(row.name).map(Action::Scalar),
            }
        }
        Enc::Smem => smem::bind(row).map(Action::Smem),
        Enc::Mai => mai::bind(row).map(Action::Mai),
        Enc::Vop1 | Enc::Vop2 | Enc::Vopc | Enc::Vop3 | Enc::Vop3p => {
            valu::bind(row).map(Action::Vector)
        }
        Enc::Ds => ds::bind(row).map(Action::Ds),
        Enc::Mubuf if row.has(b'C') => Some(Action::Nothing),
        Enc::Flat | Enc::Scratch | Enc::Global | Enc::Mubuf | Enc::Mtbuf => {
            match typed::bind(row) {
                Some(action) => Some(Action::Typed(action)),
                None => memory::kind(row).map(Action::Vmem),
            }
        }
    };
    action.unwrap_or(Action::Missing)
}

/// Executes instructions of one ASIC.
pub struct Executor {
    asic: Asic,
    actions: Vec<Action>,
}

impl Executor {
    /// The executor for `asic`.
    pub fn new(asic: Asic) -> Self {
        Self {
            asic,
            actions: rows().map(bind).collect(),
        }
    }

    /// Mnemonics of the ASIC that are decoded but not executed.
    pub fn unimplemented(&self) -> Vec<&'static str> {
        rows()
            .zip(&self.actions)
            .filter(|(row, action)| {
                row.asics & self.asic.bit() != 0 && matches!(action, Action::Missing)
            })
            .map(|(row, _)| row.name)
            .collect()
    }

    /// Executes `inst`, which stands at the wave's PC, and moves PC.
    ///
    /// # Errors
    /// Where the instruction raises an exception; the wave has not changed then.
    pub fn execute(
        &self,
        wave: &mut Wave,
        inst: &Inst,
        env: &mut Env<'_>,
    ) -> Result<Flow, Exception> {
        step(wave, inst, env, self.action(inst))
    }

    /// What the instruction's opcode does.
    fn action(&self, inst: &Inst) -> Action {
        let action = self.actions.get(usize::from(inst.id)).copied();
        action.unwrap_or(Action::Missing)
    }

    /// The instruction with what can be known of it before it is executed.
    pub(crate) fn prepare(&self, inst: Inst) -> Prepared {
        let action = self.action(&inst);
        let quick = match &action {
            Action::Vector(action) => valu::Quick::new(&inst, action),
            _ => None,
        };
        Prepared {
            inst,
            action,
            quick,
        }
    }
}

/// An instruction with what can be known of it before it is executed.
#[derive(Clone, Copy)]
pub(crate) struct Prepared {
    /// The instruction.
    pub(crate) inst: Inst,
    action: Action,
    quick: Option<valu::Quick>,
}

impl Prepared {
    /// As [`Executor::execute`].
    #[inline]
    pub(crate) fn execute(&self, wave: &mut Wave, env: &mut Env<'_>) -> Result<Flow, Exception> {
        if let Some(quick) = &self.quick {
            if quick.execute(wave) {
                wave.pc = wave.pc.wrapping_add(u64::from(self.inst.size));
                return Ok(Flow::Next);
            }
        }
        step(wave, &self.inst, env, self.action)
    }
}

fn step(
    wave: &mut Wave,
    inst: &Inst,
    env: &mut Env<'_>,
    action: Action,
) -> Result<Flow, Exception> {
    let next = wave.pc.wrapping_add(u64::from(inst.size));
    let skipped = wave.mode & mode::VSKIP != 0;
    let flow = match action {
        Action::Missing => {
            return Err(Exception::Unimplemented {
                name: inst.row.name,
            })
        }
        Action::Control(function) => return function(wave, inst, env, next),
        Action::Scalar(function) => {
            salu::execute(wave, inst, function)?;
            Flow::Next
        }
        Action::Smem(action) => {
            smem::execute(wave, inst, env, action)?;
            Flow::Next
        }
        _ if skipped => Flow::Next,
        Action::Vector(action) => match valu::execute(wave, inst, action)? {
            0 => Flow::Next,
            raised => Flow::Math(raised),
        },
        Action::Mai(action) => {
            mai::execute(wave, inst, action)?;
            Flow::Next
        }
        Action::Ds(action) => {
            let flow = ds::execute(wave, inst, env, action)?;
            if flow == Flow::Wait {
                return Ok(flow);
            }
            flow
        }
        Action::Vmem(kind) => {
            vmem::execute(wave, inst, env, kind)?;
            Flow::Next
        }
        Action::Typed(action) => {
            typed::execute(wave, inst, env, action)?;
            Flow::Next
        }
        Action::Nothing => Flow::Next,
    };
    wave.pc = next;
    Ok(flow)
}

fn illegal(inst: &Inst, why: &'static str) -> Exception {
    Exception::Illegal {
        name: inst.row.name,
        why,
    }
}

/// An inline constant as an operand of kind `ty`.
fn constant(code: u8, ty: Ty) -> u64 {
    const F16: [u16; 9] = [
        0x3800, 0xB800, 0x3C00, 0xBC00, 0x4000, 0xC000, 0x4400, 0xC400, 0x3118,
    ];
    const F32: [u32; 9] = [
        0x3F00_0000,
        0xBF00_0000,
        0x3F80_0000,
        0xBF80_0000,
        0x4000_0000,
        0xC000_0000,
        0x4080_0000,
        0xC080_0000,
        0x3E22_F983,
    ];
    const F64: [u64; 9] = [
        0x3FE0_0000_0000_0000,
        0xBFE0_0000_0000_0000,
        0x3FF0_0000_0000_0000,
        0xBFF0_0000_0000_0000,
        0x4000_0000_0000_0000,
        0xC000_0000_0000_0000,
        0x4010_0000_0000_0000,
        0xC010_0000_0000_0000,
        0x3FC4_5F30_6DC9_C882,
    ];
    match code {
        128..=192 => u64::from(code) - 128,
        193..=208 => (192 - i64::from(code)) as u64,
        _ => {
            let at = usize::from(code.wrapping_sub(240)).min(8);
            match ty {
                Ty::F16 | Ty::I16 | Ty::Pk16 => u64::from(F16[at]),
                Ty::B64 | Ty::Mask => F64[at],
                _ => u64::from(F32[at]),
            }
        }
    }
}

/// A scalar operand of kind `ty`: 32 bits zero-extended, or 64.
///
/// # Errors
/// Where the operand is none that exists.
fn scalar(wave: &Wave, inst: &Inst, operand: Operand, ty: Ty) -> Result<u64, Exception> {
    let wide = ty.regs() > 1;
    let value = match operand {
        Operand::S(125) => return Err(illegal(inst, "the operand 125 does not exist")),
        Operand::S(code) if wide => wave.pair(code),
        Operand::S(code) => wave.sgpr[usize::from(code & 127)].into(),
        Operand::Const(code) => constant(code, ty),
        Operand::Literal => match (ty, inst.row.name.as_bytes()) {
            // A literal is the high half of a double, and sign-extended as a 64-bit signed integer.
            (Ty::B64, [.., b'f', b'6', b'4']) => u64::from(inst.literal) << 32,
            (Ty::B64, [.., b'i', b'6', b'4']) => i64::from(inst.literal as i32) as u64,
            _ => inst.literal.into(),
        },
        Operand::Special(code) => {
            let base = |bits: u32| u64::from(bits & 0xFFFF) << 48;
            let (shared, private) = (wave.sh_mem_bases >> 16, wave.sh_mem_bases);
            match code {
                235 => base(shared),
                236 => base(shared) | 0xFFFF_FFFF,
                237 => base(private),
                238 => base(private) | 0xFFFF_FFFF,
                251 => u64::from(wave.vcc() == 0),
                252 => u64::from(wave.exec() == 0),
                253 => u64::from(wave.scc),
                _ => return Err(illegal(inst, "only graphics has this operand")),
            }
        }
        Operand::None | Operand::V(_) | Operand::A(_) => {
            return Err(illegal(inst, "a scalar operand is missing"))
        }
    };
    Ok(if wide { value } else { value & 0xFFFF_FFFF })
}

/// Writes a scalar destination of one or two registers.
///
/// # Errors
/// Where the operand is none that exists.
fn write_scalar(
    wave: &mut Wave,
    inst: &Inst,
    operand: Operand,
    wide: bool,
    value: u64,
) -> Result<(), Exception> {
    match operand {
        Operand::S(125) => Err(illegal(inst, "the operand 125 does not exist")),
        // Trap temporaries belong to the trap handler.
        Operand::S(108..=123) if !wave.privileged() => Ok(()),
        Operand::S(code) if wide => {
            wave.set_pair(code, value);
            Ok(())
        }
        Operand::S(code) => {
            wave.sgpr[usize::from(code & 127)] = value as u32;
            Ok(())
        }
        _ => Err(illegal(inst, "a scalar destination is missing")),
    }
}
