// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Branches, traps, messages, hardware registers, relative addressing: what reads or writes more than operands.

use super::illegal;
use super::scalar;
use super::write_scalar;
use super::Exception;
use super::Flow;
use crate::env::Env;
use crate::inst::Inst;
use crate::inst::Operand;
use crate::tables::Ty;
use crate::wave::mode;
use crate::wave::reg;
use crate::wave::status;
use crate::wave::Wave;

/// Executes an instruction whose successor is at the last argument; moves PC itself.
pub(super) type Function = fn(&mut Wave, &Inst, &mut Env<'_>, u64) -> Result<Flow, Exception>;

/// PC has 48 bits, sign-extended, and is a multiple of 4.
fn canonical(pc: u64) -> u64 {
    ((pc << 16) as i64 >> 16) as u64 & !3
}

fn go(wave: &mut Wave, pc: u64) -> Result<Flow, Exception> {
    wave.pc = canonical(pc);
    Ok(Flow::Next)
}

fn target(inst: &Inst, next: u64) -> u64 {
    next.wrapping_add((i64::from(inst.imm) * 4) as u64)
}

fn branch(wave: &mut Wave, inst: &Inst, next: u64, taken: bool) -> Result<Flow, Exception> {
    go(wave, if taken { target(inst, next) } else { next })
}

fn then(wave: &mut Wave, next: u64, flow: Flow) -> Result<Flow, Exception> {
    wave.pc = canonical(next);
    Ok(flow)
}

fn source(wave: &Wave, inst: &Inst, at: usize) -> Result<u64, Exception> {
    scalar(wave, inst, inst.src[at], inst.row.src[at])
}

fn send(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>) {
    let message = inst.imm as u16;
    let reply = env.messages.send(message, wave.m0(), wave.privileged());
    if let Some(value) = reply {
        // GET_DOORBELL answers in the low half only.
        if message & 15 == 10 {
            wave.sgpr[usize::from(reg::EXEC)] = value as u32;
        } else {
            wave.set_pair(reg::EXEC, value);
        }
    }
}

/// A hardware register as `s_getreg_b32` shows it; unknown ones are 0.
fn hardware_register(wave: &Wave, id: u32) -> u32 {
    match id {
        1 => wave.mode,
        2 => wave.full_status(),
        3 => wave.trapsts,
        4 => wave.hw_id,
        5 => wave.gpr_alloc,
        6 => wave.lds_alloc,
        7 => wave.ib_sts,
        8 => wave.pc as u32,
        9 => (wave.pc >> 32) as u32,
        15 => wave.sh_mem_bases,
        16..=19 => wave.trap_base[(id - 16) as usize],
        20 => wave.xcc_id,
        _ => 0,
    }
}

/// The bits of a hardware register that `s_setreg` names: id, mask, shift.
fn register_field(inst: &Inst) -> (u32, u32, u32) {
    let imm = u32::from(inst.imm as u16);
    let (offset, size) = (imm >> 6 & 31, (imm >> 11) + 1);
    let mask = ((1u64 << size) - 1) << offset;
    (imm & 63, mask as u32, offset)
}

fn set_register(wave: &mut Wave, inst: &Inst, value: u32) {
    let (id, mask, offset) = register_field(inst);
    let merge = |old: u32| old & !mask | value << offset & mask;
    let privileged = wave.privileged();
    match id {
        1 => wave.mode = merge(wave.mode),
        2 if privileged => {
            let merged = merge(wave.full_status());
            wave.scc = merged & 1 != 0;
            wave.status = merged;
        }
        3 => wave.trapsts = merge(wave.trapsts),
        7 if privileged => wave.ib_sts = merge(wave.ib_sts),
        16..=19 if privileged => {
            let at = (id - 16) as usize;
            wave.trap_base[at] = merge(wave.trap_base[at]);
        }
        _ => {}
    }
}

/// The scalar register `m0` above (or at) that of `operand`, for relative moves.
fn relative(wave: &Wave, inst: &Inst, operand: Operand, wide: bool) -> Result<Operand, Exception> {
    let Operand::S(code) = operand else {
        return Err(illegal(inst, "a relative move needs a register"));
    };
    let at = u64::from(code) + u64::from(wave.m0());
    let last = at + u64::from(wide);
    if last > 107 {
        return Err(illegal(inst, "the relative register does not exist"));
    }
    Ok(Operand::S(at as u8))
}

fn movrels(wave: &mut Wave, inst: &Inst, next: u64) -> Result<Flow, Exception> {
    let ty = inst.row.src[0];
    let from = relative(wave, inst, inst.src[0], ty == Ty::B64)?;
    let value = scalar(wave, inst, from, ty)?;
    write_scalar(wave, inst, inst.dst, ty == Ty::B64, value)?;
    go(wave, next)
}

fn movreld(wave: &mut Wave, inst: &Inst, next: u64) -> Result<Flow, Exception> {
    let ty = inst.row.src[0];
    let to = relative(wave, inst, inst.dst, ty == Ty::B64)?;
    let value = source(wave, inst, 0)?;
    write_scalar(wave, inst, to, ty == Ty::B64, value)?;
    go(wave, next)
}

/// The stack of forks in scalar registers: MODE has the number of its entries, each of which is a mask and an address.
fn stack(wave: &Wave) -> u8 {
    (wave.mode >> mode::CSP) as u8 & 7
}

fn set_stack(wave: &mut Wave, entries: u8) {
    wave.mode = wave.mode & !(7 << mode::CSP) | u32::from(entries & 7) << mode::CSP;
}

/// Goes to `to` with the lanes of `mask` and on with the others; if there are both, the way that more lanes take waits on
/// the stack.
fn fork(wave: &mut Wave, mask: u64, to: u64, next: u64) -> Result<Flow, Exception> {
    let exec = wave.exec();
    let (taken, passed) = (mask & exec, !mask & exec);
    if taken == exec {
        return go(wave, to);
    }
    if passed == exec {
        return go(wave, next);
    }
    let (lanes, pc, later, resume) = if passed.count_ones() < taken.count_ones() {
        (passed, next, taken, to)
    } else {
        (taken, to, passed, next)
    };
    let entries = stack(wave);
    wave.set_pair(4 * entries, later);
    wave.set_pair(4 * entries + 2, resume);
    set_stack(wave, entries + 1);
    wave.set_pair(reg::EXEC, lanes);
    go(wave, pc)
}

/// Goes the way that waits on the stack, or on if that has `saved` entries.
fn rejoin(wave: &mut Wave, saved: u64, next: u64) -> Result<Flow, Exception> {
    let entries = stack(wave);
    if u64::from(entries) == saved {
        return go(wave, next);
    }
    let entries = entries.wrapping_sub(1) & 7;
    let (lanes, pc) = (wave.pair(4 * entries), wave.pair(4 * entries + 2));
    set_stack(wave, entries);
    wave.set_pair(reg::EXEC, lanes);
    go(wave, pc)
}

/// M0 for relative VGPR addressing: the index in 7:0, the operand classes in 15:12.
fn set_index(wave: &mut Wave, index: Option<u64>, classes: Option<i32>) {
    let m0 = &mut wave.sgpr[usize::from(reg::M0)];
    if let Some(index) = index {
        *m0 = *m0 & !0xFF | index as u32 & 0xFF;
    }
    if let Some(classes) = classes {
        *m0 = *m0 & !0xF000 | (classes as u32 & 15) << 12;
    }
}

fn debug_flags(wave: &Wave) -> (bool, bool) {
    (
        wave.status & status::COND_DBG_SYS != 0,
        wave.status & status::COND_DBG_USER != 0,
    )
}

/// The function of a mnemonic.
pub(super) fn bind(name: &str) -> Option<Function> {
    let function: Function = match name {
        "s_nop" | "s_wakeup" | "s_setprio" | "s_incperflevel" | "s_decperflevel"
        | "s_ttracedata" | "s_waitcnt" | "s_setkill" => |w, _, _, next| go(w, next),
        "s_endpgm" | "s_endpgm_ordered_ps_done" => |w, _, _, next| then(w, next, Flow::End),
        "s_endpgm_saved" => |w, _, _, next| then(w, next, Flow::Saved),
        "s_branch" => |w, i, _, next| branch(w, i, next, true),
        "s_cbranch_scc0" => |w, i, _, next| {
            let taken = !w.scc;
            branch(w, i, next, taken)
        },
        "s_cbranch_scc1" => |w, i, _, next| {
            let taken = w.scc;
            branch(w, i, next, taken)
        },
        "s_cbranch_vccz" => |w, i, _, next| {
            let taken = w.vcc() == 0;
            branch(w, i, next, taken)
        },
        "s_cbranch_vccnz" => |w, i, _, next| {
            let taken = w.vcc() != 0;
            branch(w, i, next, taken)
        },
        "s_cbranch_execz" => |w, i, _, next| {
            let taken = w.exec() == 0;
            branch(w, i, next, taken)
        },
        "s_cbranch_execnz" => |w, i, _, next| {
            let taken = w.exec() != 0;
            branch(w, i, next, taken)
        },
        "s_cbranch_cdbgsys" => |w, i, _, next| {
            let taken = debug_flags(w).0;
            branch(w, i, next, taken)
        },
        "s_cbranch_cdbguser" => |w, i, _, next| {
            let taken = debug_flags(w).1;
            branch(w, i, next, taken)
        },
        "s_cbranch_cdbgsys_or_user" => |w, i, _, next| {
            let (sys, user) = debug_flags(w);
            branch(w, i, next, sys || user)
        },
        "s_cbranch_cdbgsys_and_user" => |w, i, _, next| {
            let (sys, user) = debug_flags(w);
            branch(w, i, next, sys && user)
        },
        "s_cbranch_g_fork" => |w, i, _, next| {
            let (mask, to) = (source(w, i, 0)?, source(w, i, 1)?);
            fork(w, mask, to, next)
        },
        "s_cbranch_i_fork" => |w, i, _, next| {
            let mask = source(w, i, 0)?;
            fork(w, mask, target(i, next), next)
        },
        "s_cbranch_join" => |w, i, _, next| {
            let saved = source(w, i, 0)?;
            rejoin(w, saved, next)
        },
        "s_barrier" => |w, _, _, next| then(w, next, Flow::Barrier),
        "s_sethalt" => |w, i, _, next| {
            w.status = w.status & !status::HALT | (i.imm as u32 & 1) << 13;
            let halted = i.imm & 1 != 0 && !w.privileged();
            then(w, next, if halted { Flow::Halt } else { Flow::Next })
        },
        "s_sleep" => |w, i, _, next| then(w, next, Flow::Sleep(i.imm as u16 & 0x7F)),
        "s_sendmsg" => |w, i, env, next| {
            send(w, i, env);
            then(w, next, Flow::Message(i.imm as u16))
        },
        "s_sendmsghalt" => |w, i, env, next| {
            send(w, i, env);
            w.status |= status::HALT;
            then(w, next, Flow::Halt)
        },
        "s_trap" => |_, i, _, _| Ok(Flow::Trap(i.imm as u8)),
        "s_icache_inv" => |w, _, env, next| {
            env.messages.instructions_changed();
            then(w, next, Flow::Refetch)
        },
        "s_set_gpr_idx_off" => |w, _, _, next| {
            w.mode &= !mode::GPR_IDX_EN;
            go(w, next)
        },
        "s_set_gpr_idx_mode" => |w, i, _, next| {
            set_index(w, None, Some(i.imm));
            go(w, next)
        },
        "s_set_gpr_idx_on" => |w, i, _, next| {
            let index = source(w, i, 0)?;
            set_index(w, Some(index), Some(i.imm));
            w.mode |= mode::GPR_IDX_EN;
            go(w, next)
        },
        "s_set_gpr_idx_idx" => |w, i, _, next| {
            let index = source(w, i, 0)?;
            set_index(w, Some(index), None);
            go(w, next)
        },
        "s_setvskip" => |w, i, _, next| {
            let (value, bit) = (source(w, i, 0)?, source(w, i, 1)?);
            let on = value >> (bit & 31) & 1 != 0;
            w.mode = w.mode & !mode::VSKIP | if on { mode::VSKIP } else { 0 };
            go(w, next)
        },
        "s_getpc_b64" => |w, i, _, next| {
            write_scalar(w, i, i.dst, true, next)?;
            go(w, next)
        },
        "s_setpc_b64" => |w, i, _, _| {
            let to = source(w, i, 0)?;
            go(w, to)
        },
        "s_swappc_b64" => |w, i, _, next| {
            let to = source(w, i, 0)?;
            write_scalar(w, i, i.dst, true, next)?;
            go(w, to)
        },
        "s_call_b64" => |w, i, _, next| {
            write_scalar(w, i, i.dst, true, next)?;
            go(w, target(i, next))
        },
        "s_rfe_b64" => |w, i, _, _| {
            if !w.privileged() {
                return Err(illegal(i, "the wave runs no trap handler"));
            }
            let to = source(w, i, 0)?;
            w.status &= !status::PRIV;
            let halted = w.status & status::HALT != 0;
            then(w, to, if halted { Flow::Halt } else { Flow::Next })
        },
        "s_movrels_b32" | "s_movrels_b64" => |w, i, _, next| movrels(w, i, next),
        "s_movreld_b32" | "s_movreld_b64" => |w, i, _, next| movreld(w, i, next),
        "s_getreg_b32" => |w, i, _, next| {
            let (id, mask, offset) = register_field(i);
            let value = (hardware_register(w, id) & mask) >> offset;
            write_scalar(w, i, i.dst, false, value.into())?;
            go(w, next)
        },
        "s_setreg_b32" => |w, i, _, next| {
            let value = source(w, i, 1)?;
            set_register(w, i, value as u32);
            go(w, next)
        },
        "s_setreg_imm32_b32" => |w, i, _, next| {
            set_register(w, i, i.literal);
            go(w, next)
        },
        _ => return None,
    };
    Some(function)
}
