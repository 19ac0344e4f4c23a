// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Vector memory: FLAT, GLOBAL, SCRATCH, MUBUF without conversion.
//!
//! Each lane's address is classified as global, LDS or private; private addresses are interleaved by dwords of the
//! lanes and become global ones.  Loads write registers after all lanes have succeeded.

use super::buffer::Buffer;
use super::illegal;
use super::lds;
use super::memory;
use super::memory::Kind;
use super::scalar;
use super::straight;
use super::Exception;
use crate::env::Env;
use crate::env::Lanes;
use crate::env::Wide;
use crate::inst::Asic;
use crate::inst::Ext;
use crate::inst::Inst;
use crate::inst::Mem;
use crate::inst::Operand;
use crate::lanes::each;
use crate::tables::Enc;
use crate::tables::Ty;
use crate::wave::reg;
use crate::wave::Wave;

/// Where the lanes of an instruction go.
pub(super) struct Targets {
    pub(super) address: Wide,
    /// Lanes that access global memory.
    pub(super) global: u64,
    /// Lanes that access LDS: `address` is an offset there.
    pub(super) lds: u64,
    /// Lanes that access private memory: `address` is an offset there.
    private: u64,
    /// Lanes per dword that are in the range of a buffer; others read 0 and write nothing.
    pub(super) inside: [u64; 4],
}

impl Targets {
    /// In a buffer, for the lanes of `exec`; where, is still to be said.
    pub(super) fn of_buffer(exec: u64) -> Self {
        Self {
            address: [0; 64],
            global: exec,
            lds: 0,
            private: 0,
            inside: [0; 4],
        }
    }
}

pub(super) fn register(operand: Operand) -> Option<(usize, bool)> {
    match operand {
        Operand::V(number) => Some((number.into(), false)),
        Operand::A(number) => Some((number.into(), true)),
        _ => None,
    }
}

pub(super) fn lanes_of(wave: &Wave, operand: Operand, at: usize) -> Lanes {
    match register(operand) {
        Some((number, acc)) => *wave.vgpr(number + at, acc),
        None => [0; 64],
    }
}

/// Whether an address is one of 48 bits, sign-extended.
fn is_canonical(address: u64) -> bool {
    let top = (address as i64) >> 47;
    top == 0 || top == -1
}

fn pair_lanes(wave: &Wave, operand: Operand) -> Wide {
    let (low, high) = (lanes_of(wave, operand, 0), lanes_of(wave, operand, 1));
    std::array::from_fn(|lane| u64::from(low[lane]) | u64::from(high[lane]) << 32)
}

/// FLAT, GLOBAL and SCRATCH.
pub(super) fn flat(wave: &Wave, inst: &Inst, mem: &Mem, exec: u64) -> Result<Targets, Exception> {
    let offset = i64::from(mem.offset) as u64;
    let mut targets = Targets {
        address: [0; 64],
        global: 0,
        lds: 0,
        private: 0,
        inside: [exec; 4],
    };
    if inst.row.enc == Enc::Scratch {
        let base = match inst.src[2] {
            Operand::None => 0,
            operand => scalar(wave, inst, operand, Ty::B32)? as u32,
        };
        let vector = lanes_of(wave, inst.src[0], 0);
        for lane in each(exec) {
            let sum = vector[lane].wrapping_add(base).wrapping_add(offset as u32);
            targets.address[lane] = u64::from(sum);
        }
        targets.private = exec;
        return Ok(targets);
    }
    let address = if inst.row.enc == Enc::Global && inst.src[2] != Operand::None {
        let base = scalar(wave, inst, inst.src[2], Ty::B64)?;
        // The register's offset is unsigned.
        lanes_of(wave, inst.src[0], 0).map(|vector| base.wrapping_add(vector.into()))
    } else {
        pair_lanes(wave, inst.src[0])
    };
    let (shared, private) = (wave.sh_mem_bases >> 16, wave.sh_mem_bases & 0xFFFF);
    for lane in each(exec) {
        let sum = address[lane].wrapping_add(offset);
        targets.address[lane] = sum;
        let top = (sum >> 32) as u32;
        let bit = 1 << lane;
        if inst.row.enc == Enc::Flat && top == shared << 16 {
            targets.lds |= bit;
            targets.address[lane] = sum & 0xFFFF_FFFF;
        } else if inst.row.enc == Enc::Flat && top == private << 16 {
            targets.private |= bit;
            targets.address[lane] = sum & 0xFFFF_FFFF;
        } else {
            targets.global |= bit;
        }
    }
    Ok(targets)
}

/// The global address of byte `offset` of a lane's private memory.
fn private_address(wave: &Wave, lane: usize, offset: u64) -> u64 {
    let base = wave.pair(reg::FLAT_SCRATCH);
    base.wrapping_add(offset / 4 * 256 + 4 * lane as u64 + offset % 4)
}

pub(super) fn check(targets: &Targets) -> Result<(), Exception> {
    match each(targets.global).find(|lane| !is_canonical(targets.address[*lane])) {
        Some(lane) => Err(Exception::Violation {
            address: targets.address[lane],
        }),
        None => Ok(()),
    }
}

/// Loads up to four dwords per lane into `data`.
fn load(
    wave: &Wave,
    env: &mut Env<'_>,
    targets: &Targets,
    bytes: u32,
    data: &mut [Lanes; 4],
) -> Result<(), Exception> {
    let all = targets
        .inside
        .iter()
        .all(|inside| targets.global & !inside == 0);
    if all {
        let count = bytes.div_ceil(4) as usize;
        if targets.global != 0 {
            let to = &mut data[..count];
            env.memory
                .load(&targets.address, targets.global, bytes, to)?;
        }
    } else {
        for dword in 0..bytes.div_ceil(4) as usize {
            let lanes = targets.global & targets.inside[dword];
            let address = targets.address.map(|at| at.wrapping_add(4 * dword as u64));
            if lanes != 0 {
                let to = &mut data[dword..=dword];
                env.memory.load(&address, lanes, bytes.min(4), to)?;
            }
        }
    }
    private(
        wave,
        targets,
        bytes,
        |address, lanes, dword, shift, size| {
            let mut part = [[0; 64]];
            env.memory.load(address, lanes, size, &mut part)?;
            for lane in each(lanes) {
                data[dword][lane] |= part[0][lane] << shift;
            }
            Ok(())
        },
    )?;
    for lane in each(targets.lds) {
        for dword in 0..bytes.div_ceil(4) {
            let at = targets.address[lane] + 4 * u64::from(dword);
            data[dword as usize][lane] = lds::read(env.lds, at, bytes);
        }
    }
    Ok(())
}

/// Splits private accesses into pieces that are contiguous: dwords, or bytes where a lane is not aligned.  `access`
/// gets the addresses, the lanes, the dword of the data, the shift within it and the size of the piece.
fn private(
    wave: &Wave,
    targets: &Targets,
    bytes: u32,
    mut access: impl FnMut(&Wide, u64, usize, u32, u32) -> Result<(), Exception>,
) -> Result<(), Exception> {
    let lanes = targets.private;
    if lanes == 0 {
        return Ok(());
    }
    let unit = bytes.min(4);
    let straight = each(lanes).all(|lane| targets.address[lane] % 4 + u64::from(unit) <= 4);
    let step = if straight { unit } else { 1 };
    for from in (0..bytes).step_by(step as usize) {
        let address = std::array::from_fn(|lane| {
            private_address(wave, lane, targets.address[lane] + u64::from(from))
        });
        if let Some(lane) = each(lanes).find(|lane| !is_canonical(address[*lane])) {
            return Err(Exception::Violation {
                address: address[lane],
            });
        }
        access(&address, lanes, from as usize / 4, from % 4 * 8, step)?;
    }
    Ok(())
}

fn store(
    wave: &Wave,
    env: &mut Env<'_>,
    targets: &Targets,
    bytes: u32,
    data: &[Lanes; 4],
) -> Result<(), Exception> {
    let count = bytes.div_ceil(4) as usize;
    let whole = targets
        .inside
        .iter()
        .all(|inside| targets.global & !inside == 0);
    if whole {
        if targets.global != 0 {
            env.memory
                .store(&targets.address, targets.global, bytes, &data[..count])?;
        }
    } else {
        for dword in 0..count {
            let lanes = targets.global & targets.inside[dword];
            let address = targets.address.map(|at| at.wrapping_add(4 * dword as u64));
            if lanes != 0 {
                let from = &data[dword..=dword];
                env.memory.store(&address, lanes, bytes.min(4), from)?;
            }
        }
    }
    private(
        wave,
        targets,
        bytes,
        |address, lanes, dword, shift, size| {
            let part = [data[dword].map(|value| value >> shift)];
            Ok(env.memory.store(address, lanes, size, &part)?)
        },
    )?;
    for lane in each(targets.lds) {
        for dword in 0..count {
            let at = targets.address[lane] + 4 * dword as u64;
            lds::write(env.lds, at, bytes, data[dword][lane]);
        }
    }
    Ok(())
}

fn atomic(
    wave: &mut Wave,
    inst: &Inst,
    env: &mut Env<'_>,
    mut targets: Targets,
    kind: Kind,
) -> Result<(), Exception> {
    let Kind::Atomic { op, wide } = kind else {
        return Ok(());
    };
    let size = if wide { 8 } else { 4 };
    let all = wave.exec();
    let last = usize::from(wide);
    targets.global &= targets.inside[0] & targets.inside[last];
    if targets.private != 0 && wide {
        // The halves of a private value of 64 bits are apart.
        let address = each(targets.private)
            .next()
            .map_or(0, |lane| targets.address[lane]);
        return Err(Exception::Violation { address });
    }
    for lane in each(targets.private) {
        targets.address[lane] = private_address(wave, lane, targets.address[lane]);
    }
    targets.global |= targets.private;
    check(&targets)?;
    let lanes = targets.global | targets.lds;
    if let Some(lane) = each(lanes).find(|lane| targets.address[*lane] % size != 0) {
        return Err(Exception::Violation {
            address: targets.address[lane],
        });
    }
    let value = |from: usize| -> Wide {
        let low = lanes_of(wave, inst.src[1], from);
        let high = if wide {
            lanes_of(wave, inst.src[1], from + 1)
        } else {
            [0; 64]
        };
        std::array::from_fn(|lane| u64::from(low[lane]) | u64::from(high[lane]) << 32)
    };
    let first = value(0);
    let second = if inst.row.src[0].regs() > inst.row.dst[0].regs() {
        value(inst.row.dst[0].regs())
    } else {
        [0; 64]
    };
    let mut old = [0; 64];
    if targets.global != 0 {
        let data = [&first, &second];
        let address = &targets.address;
        env.memory
            .atomic(op, address, targets.global, size as u32, data, &mut old)?;
    }
    for lane in each(targets.lds) {
        let data = [first[lane], second[lane]];
        old[lane] = lds::modify(env.lds, targets.address[lane], op, wide, data);
    }
    if let Some((number, acc)) = register(inst.dst) {
        wave.write_vgpr(number, acc, all, &old.map(|value| value as u32));
        if wide {
            let high = old.map(|value| (value >> 32) as u32);
            wave.write_vgpr(number + 1, acc, all, &high);
        }
    }
    Ok(())
}

/// The data of a store.
fn stored(wave: &Wave, inst: &Inst, bytes: u32, high: bool) -> [Lanes; 4] {
    let mut data = [[0; 64]; 4];
    for (at, row) in data.iter_mut().take(bytes.div_ceil(4) as usize).enumerate() {
        *row = lanes_of(wave, inst.src[1], at);
        if high {
            row.iter_mut().for_each(|value| *value >>= 16);
        }
    }
    data
}

/// Writes what was loaded to the registers, or to LDS.
fn put(
    wave: &mut Wave,
    inst: &Inst,
    mem: &Mem,
    env: &mut Env<'_>,
    kind: Kind,
    data: &mut [Lanes; 4],
) {
    let Kind::Load {
        bytes,
        signed,
        half,
    } = kind
    else {
        return;
    };
    let exec = wave.exec();
    if mem.lds {
        // The instruction's offset counts in both addresses.
        let base = u64::from(wave.m0() & 0xFFFF).wrapping_add(i64::from(mem.offset) as u64);
        for lane in each(exec) {
            let value = memory::loaded(data[0][lane], 0, bytes, signed, half, true);
            lds::write(env.lds, base.wrapping_add(4 * lane as u64), 4, value);
        }
        return;
    }
    let Some((number, acc)) = register(inst.dst) else {
        return;
    };
    for (at, row) in data.iter_mut().take(bytes.div_ceil(4) as usize).enumerate() {
        if bytes < 4 {
            let old = *wave.vgpr(number, acc);
            for (slot, old) in row.iter_mut().zip(old) {
                *slot = memory::loaded(*slot, old, bytes, signed, half, wave.d16_clears);
            }
        }
        wave.write_vgpr(number + at, acc, exec, row);
    }
}

/// An access to a swizzled buffer whose pieces, of so many bytes, are apart.
fn swizzled(
    wave: &mut Wave,
    inst: &Inst,
    mem: &Mem,
    env: &mut Env<'_>,
    (buffer, size): (&Buffer, u32),
    kind: Kind,
) -> Result<(), Exception> {
    let exec = wave.exec();
    match kind {
        Kind::Load { bytes, .. } => {
            let mut data = [[0; 64]; 4];
            let memory = &mut env.memory;
            buffer.by_pieces(exec, bytes, size, |targets, dword, shift| {
                let mut part = [[0; 64]];
                memory.load(&targets.address, targets.global, size, &mut part)?;
                for lane in each(targets.global) {
                    data[dword][lane] |= part[0][lane] << shift;
                }
                Ok(())
            })?;
            put(wave, inst, mem, env, kind, &mut data);
            Ok(())
        }
        Kind::Store { bytes, high } => {
            let data = stored(wave, inst, bytes, high);
            buffer.by_pieces(exec, bytes, size, |targets, dword, shift| {
                let part = [data[dword].map(|value| value >> shift)];
                Ok(env
                    .memory
                    .store(&targets.address, targets.global, size, &part)?)
            })
        }
        // The halves of a value of 64 bits are apart, or the value is not aligned.
        Kind::Atomic { .. } => {
            let targets = buffer.targets(exec, 0, 4);
            let lanes = targets.global & targets.inside[0];
            match each(lanes).next() {
                Some(lane) => Err(Exception::Violation {
                    address: targets.address[lane],
                }),
                None => Ok(()),
            }
        }
    }
}

/// Executes one of them.
///
/// # Errors
/// Where memory faults or an address is none.
pub(super) fn execute(
    wave: &mut Wave,
    inst: &Inst,
    env: &mut Env<'_>,
    kind: Kind,
) -> Result<(), Exception> {
    let Ext::Mem(mem) = inst.ext else {
        return Err(illegal(inst, "no offset"));
    };
    if mem.tfe {
        return Err(illegal(inst, "a fault status is not returned"));
    }
    if inst.row.has(b'L') {
        return Err(illegal(inst, "stores from LDS are not executed"));
    }
    let exec = wave.exec();
    if exec == 0 {
        return Ok(());
    }
    let plain = match kind {
        Kind::Load { bytes, .. } => (!mem.lds).then_some(bytes),
        Kind::Store { bytes, high } => (!high).then_some(bytes),
        Kind::Atomic { .. } => None,
    };
    if let Some(bytes) = plain {
        if let Some(address) = straight::addresses(wave, inst, &mem, bytes)? {
            let loads = matches!(kind, Kind::Load { .. });
            return match (loads, bytes) {
                (true, ..=4) => straight::load::<1>(wave, inst, env, &address, kind),
                (true, 8) => straight::load::<2>(wave, inst, env, &address, kind),
                (true, 12) => straight::load::<3>(wave, inst, env, &address, kind),
                (true, _) => straight::load::<4>(wave, inst, env, &address, kind),
                (false, ..=4) => straight::store::<1>(wave, inst, env, &address, bytes),
                (false, 8) => straight::store::<2>(wave, inst, env, &address, bytes),
                (false, 12) => straight::store::<3>(wave, inst, env, &address, bytes),
                (false, _) => straight::store::<4>(wave, inst, env, &address, bytes),
            };
        }
    }
    let bytes = match kind {
        Kind::Load { bytes, .. } | Kind::Store { bytes, .. } => bytes,
        Kind::Atomic { wide, .. } => {
            if wide {
                8
            } else {
                4
            }
        }
    };
    let in_buffer = matches!(inst.row.enc, Enc::Mubuf | Enc::Mtbuf);
    let targets = if in_buffer {
        let buffer = Buffer::new(wave, inst, &mem, false)?;
        if let Some(size) = buffer.pieces(exec, bytes) {
            return swizzled(wave, inst, &mem, env, (&buffer, size), kind);
        }
        buffer.targets(exec, 0, bytes)
    } else {
        flat(wave, inst, &mem, exec)?
    };
    let scratch = inst.row.enc == Enc::Scratch;
    if scratch
        && wave.asic() != Asic::Gfx942
        && inst.src[0] == Operand::None
        && inst.src[2] == Operand::None
    {
        return Err(illegal(inst, "there is no address"));
    }
    match kind {
        Kind::Load { bytes, .. } => {
            check(&targets)?;
            let mut data = [[0; 64]; 4];
            load(wave, env, &targets, bytes, &mut data)?;
            put(wave, inst, &mem, env, kind, &mut data);
            Ok(())
        }
        Kind::Store { bytes, high } => {
            check(&targets)?;
            store(wave, env, &targets, bytes, &stored(wave, inst, bytes, high))
        }
        Kind::Atomic { .. } => atomic(wave, inst, env, targets, kind),
    }
}
