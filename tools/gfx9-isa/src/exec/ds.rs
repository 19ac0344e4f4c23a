// SPDX-License-Identifier: GPL-2.0 OR MIT
//! LDS, exchange of lanes through it, and global wave sync.

use super::illegal;
use super::lds;
use super::memory;
use super::memory::Half;
use super::Exception;
use super::Flow;
use crate::env::AtomicOp;
use crate::env::Env;
use crate::env::Gws;
use crate::env::GwsOp;
use crate::env::Lanes;
use crate::inst::Ext;
use crate::inst::Inst;
use crate::inst::Mem;
use crate::inst::Operand;
use crate::lanes::each;
use crate::tables::Row;
use crate::wave::Wave;

/// What an opcode does.
#[derive(Clone, Copy)]
pub(super) enum Action {
    Read {
        bytes: u32,
        signed: bool,
        half: Half,
    },
    Write {
        bytes: u32,
        high: bool,
    },
    /// Two accesses of `bytes`, whose offsets count in `stride`.
    Read2 {
        bytes: u32,
        stride: u32,
    },
    Write2 {
        bytes: u32,
        stride: u32,
    },
    Exchange2 {
        bytes: u32,
        stride: u32,
    },
    Atomic {
        op: AtomicOp,
        wide: bool,
    },
    /// As [`Action::Atomic`], with data from LDS.
    Src2 {
        op: AtomicOp,
        wide: bool,
    },
    /// The address is M0 and the lane's number.
    ReadByLane,
    WriteByLane,
    Swizzle,
    Permute,
    Bpermute,
    Append,
    Consume,
    Gws(GwsOp),
    Nothing,
}

fn gws(name: &str) -> Option<GwsOp> {
    Some(match name {
        "init" => GwsOp::Init,
        "barrier" => GwsOp::Barrier,
        "sema_v" => GwsOp::SemaV,
        "sema_br" => GwsOp::SemaBr,
        "sema_p" => GwsOp::SemaP,
        "sema_release_all" => GwsOp::SemaReleaseAll,
        _ => return None,
    })
}

fn pair(name: &str) -> Option<(u32, u32)> {
    Some(match name {
        "2_b32" => (4, 4),
        "2_b64" => (8, 8),
        "2st64_b32" => (4, 256),
        "2st64_b64" => (8, 512),
        _ => return None,
    })
}

fn atomic(name: &str) -> Option<Action> {
    let (op, ty) = name.rsplit_once('_')?;
    let wide = ty.ends_with("64");
    let signed = ty.starts_with('i');
    let float = ty.starts_with('f');
    let op = match op {
        "add" if float => AtomicOp::AddFloat,
        "add" => AtomicOp::Add,
        "sub" => AtomicOp::Sub,
        "rsub" => AtomicOp::Rsub,
        "inc" => AtomicOp::Inc,
        "dec" => AtomicOp::Dec,
        "min" if float => AtomicOp::MinFloat,
        "max" if float => AtomicOp::MaxFloat,
        "min" if signed => AtomicOp::SMin,
        "max" if signed => AtomicOp::SMax,
        "min" => AtomicOp::UMin,
        "max" => AtomicOp::UMax,
        "and" => AtomicOp::And,
        "or" => AtomicOp::Or,
        "xor" => AtomicOp::Xor,
        "mskor" => AtomicOp::MskOr,
        "cmpst" if float => AtomicOp::CmpSwapFloat,
        "cmpst" => AtomicOp::CmpSwap,
        "wrxchg" => AtomicOp::Swap,
        "wrap" => AtomicOp::Wrap,
        "condxchg32" => AtomicOp::CondXchg,
        "pk_add" if ty == "f16" => AtomicOp::PkAddF16,
        "pk_add" => AtomicOp::PkAddBf16,
        _ => return None,
    };
    Some(Action::Atomic { op, wide })
}

/// The action of a row.
pub(super) fn bind(row: &Row) -> Option<Action> {
    let name = row.name.strip_prefix("ds_")?;
    if let Some(op) = name.strip_prefix("gws_") {
        return gws(op).map(Action::Gws);
    }
    if let Some((op, ty)) = name.split_once("_src2_") {
        let wide = ty.ends_with("64");
        return match (op, atomic(&format!("{op}_{ty}"))) {
            ("write", _) => Some(Action::Src2 {
                op: AtomicOp::Swap,
                wide,
            }),
            (_, Some(Action::Atomic { op, wide })) => Some(Action::Src2 { op, wide }),
            _ => None,
        };
    }
    if name == "ordered_count" {
        return None;
    }
    match name {
        "nop" => return Some(Action::Nothing),
        "swizzle_b32" => return Some(Action::Swizzle),
        "permute_b32" => return Some(Action::Permute),
        "bpermute_b32" => return Some(Action::Bpermute),
        "append" => return Some(Action::Append),
        "consume" => return Some(Action::Consume),
        "read_addtid_b32" => return Some(Action::ReadByLane),
        "write_addtid_b32" => return Some(Action::WriteByLane),
        _ => {}
    }
    if let Some((bytes, stride)) = name.strip_prefix("read").and_then(pair) {
        return Some(Action::Read2 { bytes, stride });
    }
    if let Some((bytes, stride)) = name.strip_prefix("write").and_then(pair) {
        return Some(Action::Write2 { bytes, stride });
    }
    let exchange = name.strip_prefix("wrxchg");
    let exchange = exchange.map(|rest| rest.replace("_rtn", ""));
    if let Some((bytes, stride)) = exchange.as_deref().and_then(pair) {
        return Some(Action::Exchange2 { bytes, stride });
    }
    let (plain, half) = if let Some(plain) = name.strip_suffix("_d16_hi") {
        (plain, Half::High)
    } else if let Some(plain) = name.strip_suffix("_d16") {
        (plain, Half::Low)
    } else {
        (name, Half::Whole)
    };
    let access = |bytes, signed| Action::Read {
        bytes,
        signed,
        half,
    };
    let store = |bytes| Action::Write {
        bytes,
        high: half == Half::High,
    };
    Some(match plain {
        "read_u8" => access(1, false),
        "read_i8" => access(1, true),
        "read_u16" => access(2, false),
        "read_i16" => access(2, true),
        "read_b32" => access(4, false),
        "read_b64" => access(8, false),
        "read_b96" => access(12, false),
        "read_b128" => access(16, false),
        "write_b8" => store(1),
        "write_b16" => store(2),
        "write_b32" => store(4),
        "write_b64" => store(8),
        "write_b96" => store(12),
        "write_b128" => store(16),
        _ => return atomic(&name.replace("_rtn", "")),
    })
}

fn register(operand: Operand) -> Option<(usize, bool)> {
    match operand {
        Operand::V(number) => Some((number.into(), false)),
        Operand::A(number) => Some((number.into(), true)),
        _ => None,
    }
}

/// Register `at` of the tuple `operand`; 0 where there is none.
pub(super) fn value(wave: &Wave, operand: Operand, at: usize) -> Lanes {
    match register(operand) {
        Some((number, acc)) => *wave.vgpr(number + at, acc),
        None => [0; 64],
    }
}

fn put(wave: &mut Wave, inst: &Inst, at: usize, lanes: u64, data: &Lanes) {
    if let Some((number, acc)) = register(inst.dst) {
        wave.write_vgpr(number + at, acc, lanes, data);
    }
}

/// Where a `src2` instruction writes, and where its data is: as many dwords farther as the offset says, or, if its bit 15
/// is set, the upper 15 bits of the address.  Both are signed.
pub(super) fn src2(address: u32, offset: u16) -> (u64, u64) {
    let (to, dwords) = if offset & 0x8000 != 0 {
        (address & 0x1_FFFF, (address as i32) >> 17)
    } else {
        (address, i32::from((offset << 1) as i16 >> 1))
    };
    let from = to.wrapping_add((dwords * 4) as u32);
    (to.into(), from.into())
}

/// The lane that `lane` reads by the pattern of `ds_swizzle_b32`.
fn swizzled(pattern: u32, lane: usize) -> usize {
    if pattern & 0x8000 != 0 {
        return (lane & !3) + (pattern >> (2 * (lane & 3)) & 3) as usize;
    }
    let (and, or, xor) = (pattern & 31, pattern >> 5 & 31, pattern >> 10 & 31);
    let within = (lane as u32 & 31 & and | or) ^ xor;
    (lane & 32) + within as usize
}

fn exchange_lanes(wave: &mut Wave, inst: &Inst, mem: &Mem, action: Action) {
    let exec = wave.exec();
    let address = value(wave, inst.src[0], 0);
    let mut out = [0; 64];
    let target = |lane: usize| ((address[lane].wrapping_add(mem.offset as u32) >> 2) & 63) as usize;
    match action {
        Action::Swizzle => {
            for (lane, slot) in out.iter_mut().enumerate() {
                let source = swizzled(mem.offset as u32, lane);
                if exec >> source & 1 != 0 {
                    *slot = address[source];
                }
            }
        }
        Action::Bpermute => {
            let data = value(wave, inst.src[1], 0);
            for (lane, slot) in out.iter_mut().enumerate() {
                let source = target(lane);
                if exec >> source & 1 != 0 {
                    *slot = data[source];
                }
            }
        }
        _ => {
            let data = value(wave, inst.src[1], 0);
            for lane in each(exec) {
                out[target(lane)] = data[lane];
            }
        }
    }
    put(wave, inst, 0, exec, &out);
}

/// Global wave sync: the value is that of the first active lane.
fn sync(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, op: GwsOp, mem: &Mem) -> Flow {
    let exec = wave.exec();
    let data = value(wave, inst.src[0], 0);
    let value = data[(exec.trailing_zeros() & 63) as usize];
    let resource = ((wave.m0() >> 16 & 63) + (mem.offset as u32 & 63)) & 63;
    match env.messages.gws(op, resource, value, &mut wave.gws_ticket) {
        Gws::Go => {
            wave.gws_ticket = 0;
            Flow::Next
        }
        Gws::Wait => Flow::Wait,
    }
}

/// Executes one of them.
///
/// # Errors
/// Where the global data share, which does not exist, is meant, or an atomic is not aligned.
pub(super) fn execute(
    wave: &mut Wave,
    inst: &Inst,
    env: &mut Env<'_>,
    action: Action,
) -> Result<Flow, Exception> {
    let Ext::Mem(mem) = inst.ext else {
        return Err(illegal(inst, "no offset"));
    };
    if let Action::Gws(op) = action {
        return Ok(sync(wave, inst, env, op, &mem));
    }
    if mem.gds {
        return Err(illegal(inst, "there is no global data share"));
    }
    let exec = wave.exec();
    let lds = &mut *env.lds;
    let offset = mem.offset as u64 & 0xFFFF;
    let base = value(wave, inst.src[0], 0);
    // Compilers move constants into the offset also where what is left for the base is negative.
    let from = |lane: usize, offset: u64| u64::from(base[lane].wrapping_add(offset as u32));
    let at = |lane: usize| from(lane, offset);
    let second = |stride: u32| {
        [
            (offset & 0xFF) * u64::from(stride),
            (offset >> 8) * u64::from(stride),
        ]
    };
    match action {
        Action::Nothing | Action::Gws(_) => {}
        Action::Swizzle | Action::Permute | Action::Bpermute => {
            exchange_lanes(wave, inst, &mem, action);
        }
        Action::Read {
            bytes,
            signed,
            half,
        } => {
            let mut rows = [[0; 64]; 4];
            if exec == u64::MAX && bytes >= 4 && lds::read_all(lds, &base, offset, bytes, &mut rows)
            {
                for (at, row) in rows.iter().take(bytes as usize / 4).enumerate() {
                    put(wave, inst, at, exec, row);
                }
                return Ok(Flow::Next);
            }
            for dword in 0..bytes.div_ceil(4) {
                let old = value(wave, inst.dst, dword as usize);
                let mut out = [0; 64];
                for lane in each(exec) {
                    let address = at(lane) + 4 * u64::from(dword);
                    let found = lds::read(lds, address, bytes);
                    let clears = wave.d16_clears;
                    out[lane] = memory::loaded(found, old[lane], bytes, signed, half, clears);
                }
                put(wave, inst, dword as usize, exec, &out);
            }
        }
        Action::Write { bytes, high } => {
            if exec == u64::MAX && bytes >= 4 {
                let rows: [Lanes; 4] = match bytes {
                    4 => [value(wave, inst.src[1], 0), [0; 64], [0; 64], [0; 64]],
                    _ => std::array::from_fn(|at| value(wave, inst.src[1], at)),
                };
                if lds::write_all(lds, &base, offset, bytes, &rows) {
                    return Ok(Flow::Next);
                }
            }
            for dword in 0..bytes.div_ceil(4) {
                let data = value(wave, inst.src[1], dword as usize);
                let shift = if high { 16 } else { 0 };
                for lane in each(exec) {
                    let address = at(lane) + 4 * u64::from(dword);
                    lds::write(lds, address, bytes, data[lane] >> shift);
                }
            }
        }
        Action::Read2 { bytes, stride } => {
            let dwords = bytes / 4;
            let mut out = [[0; 64]; 4];
            for (place, offset) in second(stride).into_iter().enumerate() {
                let rows = &mut out[place * dwords as usize..];
                if exec == u64::MAX && lds::read_all(lds, &base, offset, bytes, rows) {
                    continue;
                }
                for dword in 0..dwords as usize {
                    for lane in each(exec) {
                        let address = from(lane, offset) + 4 * dword as u64;
                        out[place * dwords as usize + dword][lane] = lds::read(lds, address, 4);
                    }
                }
            }
            for (at, row) in out.iter().take(2 * dwords as usize).enumerate() {
                put(wave, inst, at, exec, row);
            }
        }
        Action::Write2 { bytes, stride } => {
            let dwords = bytes as usize / 4;
            for (place, offset) in second(stride).into_iter().enumerate() {
                if exec == u64::MAX {
                    let mut rows = [[0; 64]; 2];
                    for (dword, row) in rows.iter_mut().take(dwords).enumerate() {
                        *row = value(wave, inst.src[1 + place], dword);
                    }
                    if lds::write_all(lds, &base, offset, bytes, &rows) {
                        continue;
                    }
                }
                for dword in 0..dwords {
                    let data = value(wave, inst.src[1 + place], dword);
                    for lane in each(exec) {
                        let address = from(lane, offset) + 4 * dword as u64;
                        lds::write(lds, address, 4, data[lane]);
                    }
                }
            }
        }
        Action::Exchange2 { bytes, stride } => {
            let dwords = bytes as usize / 4;
            let wide = dwords == 2;
            let mut out = [[0; 64]; 4];
            for lane in each(exec) {
                for (place, offset) in second(stride).into_iter().enumerate() {
                    let data = wide_value(wave, inst.src[1 + place], lane, wide);
                    let address = from(lane, offset);
                    let old = lds::modify(lds, address, AtomicOp::Swap, wide, [data, 0]);
                    out[place * dwords][lane] = old as u32;
                    if wide {
                        out[place * dwords + 1][lane] = (old >> 32) as u32;
                    }
                }
            }
            for (at, row) in out.iter().take(2 * dwords).enumerate() {
                put(wave, inst, at, exec, row);
            }
        }
        Action::Atomic { op, wide } => {
            let size = if wide { 8 } else { 4 };
            if let Some(lane) = each(exec).find(|lane| at(*lane) % size != 0) {
                return Err(Exception::Violation { address: at(lane) });
            }
            let mut out = [[0; 64]; 2];
            // Compare and swap has the compared value first here, the other way round than in memory.
            let swapped = matches!(op, AtomicOp::CmpSwap | AtomicOp::CmpSwapFloat);
            for lane in each(exec) {
                let mut data = [1, 2].map(|from| wide_value(wave, inst.src[from], lane, wide));
                if swapped {
                    data.reverse();
                }
                let old = lds::modify(lds, at(lane), op, wide, data);
                out[0][lane] = old as u32;
                out[1][lane] = (old >> 32) as u32;
            }
            put(wave, inst, 0, exec, &out[0]);
            if wide {
                put(wave, inst, 1, exec, &out[1]);
            }
        }
        Action::Src2 { op, wide } => {
            let size = if wide { 8 } else { 4 };
            let places = |lane: usize| src2(base[lane], offset as u16);
            let crooked = |lane: &usize| {
                let (to, from) = places(*lane);
                to % size != 0 || from % size != 0
            };
            if let Some(lane) = each(exec).find(crooked) {
                let (address, _) = places(lane);
                return Err(Exception::Violation { address });
            }
            for lane in each(exec) {
                let (to, from) = places(lane);
                let data = lds::read_value(lds, from, wide);
                lds::modify(lds, to, op, wide, [data, 0]);
            }
        }
        Action::ReadByLane => {
            let mut out = [0; 64];
            let from = u64::from(wave.m0() & 0xFFFF) + offset;
            for lane in each(exec) {
                out[lane] = lds::read(lds, from + 4 * lane as u64, 4);
            }
            put(wave, inst, 0, exec, &out);
        }
        Action::WriteByLane => {
            let data = value(wave, inst.src[1], 0);
            let to = u64::from(wave.m0() & 0xFFFF) + offset;
            for lane in each(exec) {
                lds::write(lds, to + 4 * lane as u64, 4, data[lane]);
            }
        }
        Action::Append | Action::Consume => {
            let address = u64::from(wave.m0() & 0xFFFF) + offset;
            let count = u64::from(exec.count_ones());
            let op = if matches!(action, Action::Append) {
                AtomicOp::Add
            } else {
                AtomicOp::Sub
            };
            if exec != 0 {
                let old = lds::modify(lds, address, op, false, [count, 0]);
                put(wave, inst, 0, exec, &[old as u32; 64]);
            }
        }
    }
    Ok(Flow::Next)
}

fn wide_value(wave: &Wave, operand: Operand, lane: usize, wide: bool) -> u64 {
    let Some((number, acc)) = register(operand) else {
        return 0;
    };
    let low = u64::from(wave.vgpr(number, acc)[lane]);
    if wide {
        low | u64::from(wave.vgpr(number + 1, acc)[lane]) << 32
    } else {
        low
    }
}
