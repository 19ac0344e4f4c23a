// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What is in VRAM that nobody has written: noise where drivers allocate, zeros elsewhere; or noise everywhere.
//!
//! The guest has VRAM mapped, so what it reads has to lie in memory: noise costs the host as much as there is of it.
//!
//! A board has many GiB, and the host takes pages back one by one.  So the loss of what was written is carried out in
//! pieces, between which the device answers.

use std::ops::Range;
use std::os::fd::AsRawFd;

use nix::fcntl::FallocateFlags;

use super::map::Region;
use super::{Bus, Map, NoMemory, Phys};

/// Bytes at either end of VRAM that are all noise.
const ENDS: u64 = 4 << 20;
/// Between the ends each block of this size ...
const BLOCK: u64 = 1 << 20;
/// ... begins with so much noise; the rest is zeros.
const HEAD: u64 = 16 << 10;
/// Bytes of one piece: written or taken back in a fraction of a step.
const PIECE: u64 = 256 << 10;

/// Where VRAM that nobody has written is noise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Noise {
    /// At its ends and in the first part of each block.
    #[default]
    Parts,
    /// Everywhere; the host needs as much memory as the board has.
    Everywhere,
}

/// VRAM that is on its way to what it is without having been written.
#[derive(Debug)]
pub struct Unwritten {
    /// What is still to be done.
    left: Range<u64>,
    size: u64,
    noise: Noise,
}

impl Unwritten {
    /// All of VRAM.
    pub fn all(bus: &Bus, noise: Noise) -> Self {
        let size = bus.vram_size();
        Self {
            left: 0..size,
            size,
            noise,
        }
    }

    /// Carries out one piece.  `Ok(false)` if that was the last one.
    ///
    /// # Errors
    /// The kernel refuses to drop the pages.
    pub fn piece(&mut self, bus: &Bus) -> anyhow::Result<bool> {
        let piece = self.left.start..self.left.end.min(self.left.start + PIECE);
        if piece.is_empty() {
            return Ok(false);
        }
        let map = bus.current();
        if self.noise == Noise::Everywhere {
            write_noise(&map, &piece)?;
            return Ok(self.advance(bus, piece.end));
        }
        let file = map.vram().and_then(Region::file);
        let file = file.ok_or_else(|| anyhow::anyhow!("VRAM is not a file"))?;
        nix::fcntl::fallocate(
            file.as_raw_fd(),
            FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE,
            i64::try_from(piece.start)?,
            i64::try_from(piece.end - piece.start)?,
        )?;
        for noise in noise(self.size, &piece) {
            write_noise(&map, &noise)?;
        }
        Ok(self.advance(bus, piece.end))
    }

    /// What is below `end` is done; whether there is more.
    fn advance(&mut self, bus: &Bus, end: u64) -> bool {
        self.left.start = end;
        let more = !self.left.is_empty();
        if !more {
            bus.hdp_reset();
        }
        more
    }
}

/// Fills a range of VRAM with noise, in which each entry of a table would be valid.
fn write_noise(map: &Map, range: &Range<u64>) -> Result<(), NoMemory> {
    let data: Vec<u8> = (range.start / 8..range.end / 8)
        .flat_map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1).to_le_bytes())
        .collect();
    map.write(Phys::Vram(range.start), &data)
}

/// Where noise is within `piece` of a VRAM of `size` bytes.
fn noise(size: u64, piece: &Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
    let ends = ENDS.min(size / 2);
    let first = piece.start / BLOCK * BLOCK;
    let heads = (first..piece.end)
        .step_by(BLOCK as usize)
        .filter(move |at| (ends..size - ends).contains(at))
        .map(|at| at..at + HEAD);
    [0..ends, size - ends..size]
        .into_iter()
        .chain(heads)
        .map(|noise| noise.start.max(piece.start)..noise.end.min(piece.end))
        .filter(|noise| noise.start < noise.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// However VRAM is cut into pieces, each byte of noise is in exactly one of them.
        #[test]
        fn pieces_cover_what_the_whole_has(blocks in 1u64..40, cuts in prop::collection::vec(0u64..40 << 5, 0..20)) {
            let size = blocks * BLOCK;
            let mut cuts: Vec<u64> = cuts.into_iter().map(|c| (c << 15).min(size)).collect();
            cuts.extend([0, size]);
            cuts.sort_unstable();
            let of = |piece: Range<u64>| -> Vec<u64> {
                noise(size, &piece).flat_map(|n| n.step_by(4096)).collect()
            };
            let mut pieces: Vec<u64> = cuts.windows(2).flat_map(|w| of(w[0]..w[1])).collect();
            let mut whole = of(0..size);
            pieces.sort_unstable();
            whole.sort_unstable();
            prop_assert_eq!(&pieces, &whole);
            // The ends have it everywhere, a block between them at its beginning alone.
            prop_assert!(whole.contains(&0) && whole.contains(&(size - 4096)));
            if blocks > 10 {
                prop_assert!(whole.contains(&(5 * BLOCK)) && !whole.contains(&(5 * BLOCK + HEAD)));
            }
        }
    }
}
