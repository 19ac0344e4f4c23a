// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What implementations of [`crate::env::Memory`] do with lanes of addresses and values.
//!
//! Most accesses of programs are one run of memory: lane after lane, of equal size.  [`run`] finds these, [`unpack`]
//! and [`pack`] move them at once.

use crate::env::Lanes;
use crate::env::Wide;
use crate::simd;
use crate::simd::by_level;
use crate::simd::level;
use crate::simd::Level;

/// The numbers of the lanes in `lanes`, ascending.
pub fn each(mut lanes: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = lanes.trailing_zeros();
        lanes &= lanes.wrapping_sub(1);
        (lane < 64).then_some(lane as usize)
    })
}

/// Where all 64 lanes access `bytes` bytes each, one after the other: the first address.
pub fn run(address: &Wide, lanes: u64, bytes: u32) -> Option<u64> {
    let first = address[0];
    let whole = lanes == u64::MAX
        && first.checked_add(64 * u64::from(bytes)).is_some()
        && simd::steps64(address, bytes.into());
    whole.then_some(first)
}

/// The least address of the lanes in `lanes`, and the first one behind all their accesses; `None` if there is no lane
/// or the accesses wrap around.
pub fn extent(address: &Wide, lanes: u64, bytes: u32) -> Option<(u64, u64)> {
    let (least, most) = bounds(address, lanes);
    (least <= most).then_some(())?;
    Some((least, most.checked_add(bytes.into())?))
}

by_level!(
    /// The least and the greatest value of the lanes in `lanes`.
    bounds, (value: &Wide, lanes: u64) -> (u64, u64), {
        let (mut least, mut most) = (u64::MAX, 0);
        for lane in 0..64 {
            let active = (lanes >> lane & 1).wrapping_neg();
            least = least.min(value[lane] | !active);
            most = most.max(value[lane] & active);
        }
        (least, most)
    }
);

by_level!(
    /// Values of two dwords per lane, one after the other in memory, to two rows.
    spread2, (from: &[u8; 512], to: &mut [Lanes; 2]), {
        for lane in 0..64 {
            for word in 0..2 {
                to[word][lane] = dword(from, 2 * lane + word);
            }
        }
    }
);

by_level!(
    /// As `spread2`, four dwords.
    spread4, (from: &[u8; 1024], to: &mut [Lanes; 4]), {
        for lane in 0..64 {
            for word in 0..4 {
                to[word][lane] = dword(from, 4 * lane + word);
            }
        }
    }
);

by_level!(
    /// The reverse of `spread2`.
    gather2, (from: &[Lanes; 2], to: &mut [u8; 512]), {
        for lane in 0..64 {
            for word in 0..2 {
                set_dword(to, 2 * lane + word, from[word][lane]);
            }
        }
    }
);

by_level!(
    /// The reverse of `spread4`.
    gather4, (from: &[Lanes; 4], to: &mut [u8; 1024]), {
        for lane in 0..64 {
            for word in 0..4 {
                set_dword(to, 4 * lane + word, from[word][lane]);
            }
        }
    }
);

#[inline(always)]
fn dword(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(4 * at..).and_then(|rest| rest.first_chunk()) {
        Some(word) => u32::from_le_bytes(*word),
        None => 0,
    }
}

#[inline(always)]
fn set_dword(bytes: &mut [u8], at: usize, value: u32) {
    let place = bytes.get_mut(4 * at..);
    if let Some(word) = place.and_then(|rest| rest.first_chunk_mut()) {
        *word = value.to_le_bytes();
    }
}

/// Loads one lane: `bytes` bytes, little-endian and zero-extended, to rows of dwords.
#[inline]
pub fn load(from: &[u8], lane: usize, to: &mut [Lanes]) {
    for (part, row) in from.chunks(4).zip(to) {
        let mut word = [0; 4];
        for (slot, byte) in word.iter_mut().zip(part) {
            *slot = *byte;
        }
        if let Some(slot) = row.get_mut(lane) {
            *slot = u32::from_le_bytes(word);
        }
    }
}

/// Stores one lane: as many bytes as `to` has.
#[inline]
pub fn store(from: &[Lanes], lane: usize, to: &mut [u8]) {
    for (part, row) in to.chunks_mut(4).zip(from) {
        let word = row.get(lane).copied().unwrap_or(0).to_le_bytes();
        for (slot, byte) in part.iter_mut().zip(word) {
            *slot = byte;
        }
    }
}

/// The values of all 64 lanes, `bytes` (1, 2, 4, 8, 12 or 16) bytes each, one after the other in `from`, to rows of
/// dwords: little-endian, zero-extended.  What lies behind the end of either is left out.
pub fn unpack(from: &[u8], bytes: u32, to: &mut [Lanes]) {
    match bytes {
        4 => {
            if let Some(row) = to.first_mut() {
                for (slot, word) in row.iter_mut().zip(from.chunks_exact(4)) {
                    *slot = dword(word, 0);
                }
            }
        }
        8 | 16 => {
            if let (8, Some(from), Some(to)) = (bytes, from.first_chunk(), to.first_chunk_mut()) {
                return spread2(from, to);
            }
            if let (16, Some(from), Some(to)) = (bytes, from.first_chunk(), to.first_chunk_mut()) {
                return spread4(from, to);
            }
            unpack_any(from, bytes, to);
        }
        _ => unpack_any(from, bytes, to),
    }
}

fn unpack_any(from: &[u8], bytes: u32, to: &mut [Lanes]) {
    for (lane, part) in from
        .chunks_exact(bytes.max(1) as usize)
        .take(64)
        .enumerate()
    {
        load(part, lane, to);
    }
}

/// The reverse of [`unpack`].
pub fn pack(from: &[Lanes], bytes: u32, to: &mut [u8]) {
    match bytes {
        4 => {
            if let Some(row) = from.first() {
                for (value, word) in row.iter().zip(to.chunks_exact_mut(4)) {
                    set_dword(word, 0, *value);
                }
            }
        }
        8 | 16 => {
            if let (8, Some(from), Some(to)) = (bytes, from.first_chunk(), to.first_chunk_mut()) {
                return gather2(from, to);
            }
            if let (16, Some(from), Some(to)) = (bytes, from.first_chunk(), to.first_chunk_mut()) {
                return gather4(from, to);
            }
            pack_any(from, bytes, to);
        }
        _ => pack_any(from, bytes, to),
    }
}

fn pack_any(from: &[Lanes], bytes: u32, to: &mut [u8]) {
    for (lane, part) in to
        .chunks_exact_mut(bytes.max(1) as usize)
        .take(64)
        .enumerate()
    {
        store(from, lane, part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_and_moved_as_lane_by_lane() {
        for bytes in [1, 2, 4, 8, 12, 16u32] {
            let address = std::array::from_fn(|lane| 0x1000 + lane as u64 * u64::from(bytes));
            assert_eq!(run(&address, u64::MAX, bytes), Some(0x1000));
            assert_eq!(run(&address, u64::MAX - 2, bytes), None);
            let mut odd = address;
            odd[63] += 1;
            assert_eq!(run(&odd, u64::MAX, bytes), None);
            let end = 0x1000 + 64 * u64::from(bytes);
            assert_eq!(extent(&address, u64::MAX, bytes), Some((0x1000, end)));
            assert_eq!(extent(&address, 2, bytes), Some((address[1], address[2])));

            let memory: Vec<u8> = (0..64 * bytes)
                .map(|at| (at * 7 + at / 256) as u8)
                .collect();
            let (mut all, mut each) = ([[0; 64]; 4], [[0; 64]; 4]);
            unpack(&memory, bytes, &mut all);
            for (lane, part) in memory.chunks(bytes as usize).enumerate() {
                load(part, lane, &mut each);
            }
            assert_eq!(all, each, "{bytes} bytes");
            assert_eq!(each[0][5] & 0xFF, memory[5 * bytes as usize].into());
            let mut back = vec![0; memory.len()];
            pack(&all, bytes, &mut back);
            assert_eq!(back, memory, "{bytes} bytes");
        }
        assert_eq!(extent(&[0; 64], 0, 4), None);
        assert_eq!(extent(&[u64::MAX; 64], 1, 4), None);
        assert_eq!(each(1 << 63 | 5).collect::<Vec<_>>(), [0, 2, 63]);
    }
}
