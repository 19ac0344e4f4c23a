// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Vector memory in its most frequent form: all lanes access global memory, and none of them is refused.

use super::buffer;
use super::memory;
use super::memory::Kind;
use super::scalar;
use super::vmem;
use super::Exception;
use crate::env::Env;
use crate::env::Wide;
use crate::inst::Inst;
use crate::inst::Mem;
use crate::inst::Operand;
use crate::simd;
use crate::tables::Enc;
use crate::tables::Ty;
use crate::wave::Wave;

/// The addresses of a MUBUF instruction without index and swizzling, if the accesses of all lanes to `bytes` bytes are in
/// the range of the buffer, also those of lanes that take no part.
fn of_buffer(wave: &Wave, inst: &Inst, mem: &Mem, bytes: u32) -> Result<Option<Wide>, Exception> {
    let words = buffer::resource(wave, inst)?;
    let third = (words[1] >> 32) as u32;
    let indexed = mem.idxen || words[0] >> 63 != 0 || third >> 23 & 1 != 0;
    if indexed || third >> 30 != 0 {
        return Ok(None);
    }
    let soffset = scalar(wave, inst, inst.src[3], Ty::B32)?;
    let zeros = [0; 64];
    let low = match (mem.offen, inst.src[0]) {
        (true, Operand::V(number)) => wave.vgpr(number.into(), false),
        (true, _) => return Ok(None),
        (false, _) => &zeros,
    };
    let offset = u64::from(mem.offset as u32);
    let last = u64::from(simd::greatest(low)) + offset;
    let records = words[1] & 0xFFFF_FFFF;
    // The sum of both offsets has 32 bits, beyond which it wraps.
    if last > u64::from(u32::MAX) || last + soffset + u64::from(bytes) > records {
        return Ok(None);
    }
    let base = words[0] & 0xFFFF_FFFF_FFFF;
    let base = base.wrapping_add(soffset).wrapping_add(offset);
    let mut address = [0; 64];
    simd::offset(low, base, &mut address);
    Ok(simd::canonical(&address).then_some(address))
}

/// The addresses of a GLOBAL, FLAT or MUBUF instruction, if all of them are those of global memory, also of lanes that
/// take no part.
pub(super) fn addresses(
    wave: &Wave,
    inst: &Inst,
    mem: &Mem,
    bytes: u32,
) -> Result<Option<Wide>, Exception> {
    if inst.row.enc == Enc::Mubuf {
        return of_buffer(wave, inst, mem, bytes);
    }
    let number = match (inst.row.enc, inst.src[0]) {
        (Enc::Global | Enc::Flat, Operand::V(number)) => usize::from(number),
        _ => return Ok(None),
    };
    let offset = i64::from(mem.offset) as u64;
    let mut address = [0; 64];
    let low = wave.vgpr(number, false);
    if inst.row.enc == Enc::Global && inst.src[2] != Operand::None {
        let base = scalar(wave, inst, inst.src[2], Ty::B64)?;
        simd::offset(low, base.wrapping_add(offset), &mut address);
    } else {
        let high = wave.vgpr(number + 1, false);
        simd::join(low, high, offset, &mut address);
    }
    let (shared, private) = (wave.sh_mem_bases >> 16, wave.sh_mem_bases & 0xFFFF);
    let apertures = [u64::from(shared) << 48, u64::from(private) << 48];
    let elsewhere = inst.row.enc == Enc::Flat && simd::in_aperture(&address, apertures);
    Ok((simd::canonical(&address) && !elsewhere).then_some(address))
}

/// A load of `N` dwords, or one of less than a dword, from global memory.
pub(super) fn load<const N: usize>(
    wave: &mut Wave,
    inst: &Inst,
    env: &mut Env<'_>,
    address: &Wide,
    kind: Kind,
) -> Result<(), Exception> {
    let Kind::Load {
        bytes,
        signed,
        half,
    } = kind
    else {
        return Ok(());
    };
    let exec = wave.exec();
    let mut data = [[0; 64]; N];
    env.memory.load(address, exec, bytes, &mut data)?;
    let Some((number, acc)) = vmem::register(inst.dst) else {
        return Ok(());
    };
    if bytes < 4 {
        let old = wave.vgpr(number, acc);
        for (slot, old) in data.iter_mut().flatten().zip(old) {
            *slot = memory::loaded(*slot, *old, bytes, signed, half, wave.d16_clears);
        }
    }
    for (at, row) in data.iter().enumerate() {
        wave.write_vgpr(number + at, acc, exec, row);
    }
    Ok(())
}

/// A store of `N` dwords, or one of less than a dword, to global memory.
pub(super) fn store<const N: usize>(
    wave: &Wave,
    inst: &Inst,
    env: &mut Env<'_>,
    address: &Wide,
    bytes: u32,
) -> Result<(), Exception> {
    let mut data = [[0; 64]; N];
    if let Some((number, acc)) = vmem::register(inst.src[1]) {
        for (at, row) in data.iter_mut().enumerate() {
            *row = *wave.vgpr(number + at, acc);
        }
    }
    Ok(env.memory.store(address, wave.exec(), bytes, &data)?)
}
