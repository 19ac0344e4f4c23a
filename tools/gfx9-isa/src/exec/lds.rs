// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The local data share of a group as bytes.

use crate::env::AtomicOp;
use crate::env::Lanes;
use crate::lanes;
use crate::simd;

/// Up to four bytes; those beyond the allocation are 0.
pub(super) fn read(lds: &[u8], address: u64, bytes: u32) -> u32 {
    let from = usize::try_from(address).unwrap_or(usize::MAX);
    let end = from.saturating_add(bytes.min(4) as usize);
    let Some(found) = lds.get(from..end) else {
        return 0;
    };
    let mut word = [0; 4];
    for (slot, byte) in word.iter_mut().zip(found) {
        *slot = *byte;
    }
    u32::from_le_bytes(word)
}

/// Four bytes, or eight if `wide`; dwords beyond the allocation are 0.
pub(super) fn read_value(lds: &[u8], address: u64, wide: bool) -> u64 {
    let low = u64::from(read(lds, address, 4));
    if wide {
        low | u64::from(read(lds, address + 4, 4)) << 32
    } else {
        low
    }
}

/// Up to four bytes; what lies beyond the allocation is dropped.
pub(super) fn write(lds: &mut [u8], address: u64, bytes: u32, value: u32) {
    let from = usize::try_from(address).unwrap_or(usize::MAX);
    let end = from.saturating_add(bytes.min(4) as usize);
    if let Some(found) = lds.get_mut(from..end) {
        for (slot, byte) in found.iter_mut().zip(value.to_le_bytes()) {
            *slot = byte;
        }
    }
}

/// Applies an operation; beyond the allocation the old value is 0 and nothing is written.
pub(super) fn modify(
    lds: &mut [u8],
    address: u64,
    op: AtomicOp,
    wide: bool,
    data: [u64; 2],
) -> u64 {
    let size = if wide { 8 } else { 4 };
    let inside = address
        .checked_add(size)
        .is_some_and(|end| end <= lds.len() as u64);
    if !inside {
        return 0;
    }
    let old = read_value(lds, address, wide);
    let new = op.apply(wide, old, data[0], data[1]);
    write(lds, address, 4, new as u32);
    if wide {
        write(lds, address + 4, 4, (new >> 32) as u32);
    }
    old
}

/// The part of LDS from `offset` on, if the accesses of all lanes to `bytes` bytes there are inside.
fn inside<'a>(lds: &'a mut [u8], base: &Lanes, offset: u64, bytes: u32) -> Option<&'a mut [u8]> {
    let part = lds.get_mut(usize::try_from(offset).ok()?..)?;
    let end = u64::from(simd::greatest(base)) + u64::from(bytes);
    (end <= part.len() as u64).then_some(part)
}

/// Reads whole dwords for all lanes; false where a lane is outside of the allocation.
pub(super) fn read_all(
    lds: &mut [u8],
    base: &Lanes,
    offset: u64,
    bytes: u32,
    to: &mut [Lanes],
) -> bool {
    let Some(part) = inside(lds, base, offset, bytes) else {
        return false;
    };
    let size = bytes as usize;
    if simd::steps32(base, bytes) {
        let from = part.get(base[0] as usize..).unwrap_or(&[]);
        lanes::unpack(from.get(..64 * size).unwrap_or(from), bytes, to);
    } else {
        for (lane, at) in base.iter().enumerate() {
            let from = part.get(*at as usize..).and_then(|from| from.get(..size));
            lanes::load(from.unwrap_or(&[]), lane, to);
        }
    }
    true
}

/// Writes whole dwords of all lanes; false, with nothing written, where a lane is outside of the allocation.
pub(super) fn write_all(
    lds: &mut [u8],
    base: &Lanes,
    offset: u64,
    bytes: u32,
    data: &[Lanes],
) -> bool {
    let Some(part) = inside(lds, base, offset, bytes) else {
        return false;
    };
    let size = bytes as usize;
    if simd::steps32(base, bytes) {
        let to = part.get_mut(base[0] as usize..).unwrap_or(&mut []);
        let end = (64 * size).min(to.len());
        lanes::pack(data, bytes, &mut to[..end]);
    } else {
        for (lane, at) in base.iter().enumerate() {
            let to = part.get_mut(*at as usize..);
            if let Some(to) = to.and_then(|to| to.get_mut(..size)) {
                lanes::store(data, lane, to);
            }
        }
    }
    true
}
