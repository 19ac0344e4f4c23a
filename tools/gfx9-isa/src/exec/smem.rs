// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Scalar memory.

use super::illegal;
use super::memory;
use super::scalar;
use super::Exception;
use crate::env::AtomicOp;
use crate::env::Env;
use crate::inst::Ext;
use crate::inst::Inst;
use crate::inst::Operand;
use crate::tables::Row;
use crate::tables::Ty;
use crate::wave::Wave;

/// What an opcode does.
#[derive(Clone, Copy)]
pub(super) enum Action {
    Load { buffer: bool },
    Store { buffer: bool },
    Atomic { op: AtomicOp, buffer: bool },
    Clock { constant: bool },
    Nothing,
}

/// The action of a row.
pub(super) fn bind(row: &Row) -> Option<Action> {
    let name = row.name.strip_prefix("s_")?;
    if let Some(rest) = name.strip_prefix("memtime") {
        return rest.is_empty().then_some(Action::Clock { constant: false });
    }
    if name == "memrealtime" {
        return Some(Action::Clock { constant: true });
    }
    if name.starts_with("dcache_") || name.starts_with("atc_probe") {
        return Some(Action::Nothing);
    }
    if name.starts_with("scratch_") {
        return None;
    }
    let (name, buffer) = match name.strip_prefix("buffer_") {
        Some(rest) => (rest, true),
        None => (name, false),
    };
    if let Some(op) = name.strip_prefix("atomic_") {
        let op = memory::atomic(op.strip_suffix("_x2").unwrap_or(op))?;
        return Some(Action::Atomic { op, buffer });
    }
    if name.starts_with("load_") {
        return Some(Action::Load { buffer });
    }
    name.starts_with("store_")
        .then_some(Action::Store { buffer })
}

/// Where the access begins, and how many bytes of a buffer follow.
fn address(wave: &Wave, inst: &Inst, buffer: bool) -> Result<(u64, u64), Exception> {
    let Ext::Mem(mem) = inst.ext else {
        return Err(illegal(inst, "no offset"));
    };
    let code = match inst.src[0] {
        Operand::S(125) => return Err(illegal(inst, "the operand 125 does not exist")),
        Operand::S(code) => code,
        _ => return Err(illegal(inst, "no base")),
    };
    let register = match inst.src[1] {
        Operand::None => 0,
        operand => scalar(wave, inst, operand, Ty::B32)?,
    };
    if !buffer {
        let base = wave.pair(code);
        let offset = (i64::from(mem.offset) as u64).wrapping_add(register);
        return Ok((base.wrapping_add(offset) & !3, u64::MAX));
    }
    let (base, high) = (wave.pair(code), wave.pair(code.wrapping_add(2)));
    let stride = base >> 48 & 0x3FFF;
    let records = high & 0xFFFF_FFFF;
    let size = if stride == 0 {
        records
    } else {
        records * stride
    };
    let offset = (mem.offset as u64 & 0x1F_FFFF) + register;
    let offset = offset & !3;
    let base = base & 0xFFFF_FFFF_FFFF;
    let left = size.saturating_sub(offset);
    Ok((base.wrapping_add(offset) & !3, left))
}

/// The scalar registers of the data.
fn data_code(inst: &Inst, operand: Operand) -> Result<usize, Exception> {
    match operand {
        Operand::S(125) | Operand::None => Err(illegal(inst, "the data has no register")),
        Operand::S(code) => Ok(code.into()),
        _ => Err(illegal(inst, "the data is no scalar register")),
    }
}

fn registers(wave: &Wave, code: usize, count: usize) -> [u32; 16] {
    let mut data = [0; 16];
    for (slot, at) in data.iter_mut().take(count).zip(code..) {
        *slot = wave.sgpr.get(at).copied().unwrap_or(0);
    }
    data
}

fn write(wave: &mut Wave, code: usize, data: &[u32]) {
    for (value, at) in data.iter().zip(code..) {
        // Trap temporaries belong to the trap handler.
        if matches!(at, 108..=123) && !wave.privileged() {
            continue;
        }
        if let Some(slot) = wave.sgpr.get_mut(at) {
            *slot = *value;
        }
    }
}

/// Executes one of them.
///
/// # Errors
/// Where memory faults.
pub(super) fn execute(
    wave: &mut Wave,
    inst: &Inst,
    env: &mut Env<'_>,
    action: Action,
) -> Result<(), Exception> {
    let row = inst.row;
    match action {
        Action::Nothing => Ok(()),
        Action::Clock { constant } => {
            let code = data_code(inst, inst.dst)?;
            let now = env.messages.clock(constant);
            write(wave, code, &[now as u32, (now >> 32) as u32]);
            Ok(())
        }
        Action::Load { buffer } => {
            let (from, left) = address(wave, inst, buffer)?;
            let code = data_code(inst, inst.dst)?;
            let count = row.dst[0].regs();
            let mut data = [0; 16];
            // Dwords behind the end of a buffer are 0.
            let inside = count.min((left / 4).min(16) as usize);
            env.memory.scalar_load(from, &mut data[..inside])?;
            write(wave, code, &data[..count]);
            Ok(())
        }
        Action::Store { buffer } => {
            let (to, left) = address(wave, inst, buffer)?;
            let code = data_code(inst, inst.src[2])?;
            let count = row.src[0].regs();
            let data = registers(wave, code, count);
            let inside = count.min((left / 4).min(16) as usize);
            env.memory.scalar_store(to, &data[..inside])?;
            Ok(())
        }
        Action::Atomic { op, buffer } => {
            let (at, left) = address(wave, inst, buffer)?;
            let code = data_code(inst, inst.dst)?;
            let compare = op == AtomicOp::CmpSwap;
            let count = row.dst[0].regs() / if compare { 2 } else { 1 };
            let bytes = 4 * count as u64;
            if left < bytes {
                return Ok(());
            }
            if at % bytes != 0 {
                return Err(Exception::Violation { address: at });
            }
            let data = registers(wave, code, 4);
            let value = |first: usize| {
                let low = u64::from(data[first]);
                if count == 2 {
                    low | u64::from(data[first + 1]) << 32
                } else {
                    low
                }
            };
            let (one, two) = (value(0), value(count));
            let mut address = [0; 64];
            address[0] = at;
            let mut old = [0; 64];
            let wide = |value: u64| {
                let mut all = [0; 64];
                all[0] = value;
                all
            };
            env.memory.atomic(
                op,
                &address,
                1,
                bytes as u32,
                [&wide(one), &wide(two)],
                &mut old,
            )?;
            if matches!(inst.ext, Ext::Mem(mem) if mem.glc) {
                let old = [old[0] as u32, (old[0] >> 32) as u32];
                write(wave, code, &old[..count]);
            }
            Ok(())
        }
    }
}
