// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `vms` in debugfs: address spaces, what they map, and by pages of which size.

use crate::debugfs::number;
use crate::debugfs::value;

/// Addresses that show a buffer, or a part of it.
#[derive(Debug, PartialEq)]
struct Range {
    first: u64,
    last: u64,
    heap: &'static str,
    pieces: Option<u64>,
    /// Pages of 4 KiB, 2 MiB and 1 GiB.
    pages: [u64; 3],
}

/// An address space.
#[derive(Debug, PartialEq)]
pub struct Space {
    pub pasid: u32,
    /// Who opened its file.
    pub pid: Option<u32>,
    /// By address, as the driver has them.
    ranges: Vec<Range>,
}

/// What an address space maps of one kind of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    pub ranges: u64,
    pub mapped: u64,
    pub pieces: Option<u64>,
    /// Pages of 4 KiB, 2 MiB and 1 GiB. Those that continue another buffer's without a gap count for that one.
    pub pages: [u64; 3],
}

/// Kinds of memory, as a table has them.
const HEAPS: [&str; 5] = ["VRAM", "evicted", "system", "process", "device"];

impl Space {
    /// The kinds of memory of which something is mapped.
    pub fn shares(&self) -> Vec<(&'static str, Share)> {
        let mut shares = Vec::new();
        for heap in HEAPS {
            let mut share = Share::default();
            for range in self.ranges.iter().filter(|range| range.heap == heap) {
                share.ranges += 1;
                share.mapped += range.last - range.first + 1;
                if let Some(pieces) = range.pieces {
                    *share.pieces.get_or_insert(0) += pieces;
                }
                for (sum, pages) in share.pages.iter_mut().zip(range.pages) {
                    *sum += pages;
                }
            }
            if share.ranges > 0 {
                shares.push((heap, share));
            }
        }
        shares
    }

    /// The range that holds an address.
    fn at(&mut self, address: u64) -> Option<&mut Range> {
        let mut ranges = self.ranges.iter_mut();
        ranges.find(|range| range.first <= address && address <= range.last)
    }
}

/// The two numbers of `FIRST-LAST`.
fn bounds(word: &str) -> Option<(u64, u64)> {
    let (first, last) = word.split_once('-')?;
    let (first, last) = number(first).zip(number(last))?;
    (first <= last).then_some((first, last))
}

/// Reads `vms`.
pub fn parse(text: &str) -> Vec<Space> {
    let mut spaces: Vec<Space> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line
            .split_whitespace()
            .map(|word| word.trim_end_matches([',', ':']))
            .collect();
        match words.as_slice() {
            ["PASID", pasid, ..] => {
                if let Some(pasid) = number(pasid).and_then(|n| u32::try_from(n).ok()) {
                    spaces.push(Space {
                        pasid,
                        pid: value(&words, "pid").and_then(|n| u32::try_from(n).ok()),
                        ranges: Vec::new(),
                    });
                }
            }
            [range, "->", _, rest @ ..] => {
                let Some((first, _)) = bounds(range) else {
                    continue;
                };
                let Some(range) = spaces.last_mut().and_then(|space| space.at(first)) else {
                    continue;
                };
                for (sum, name) in range.pages.iter_mut().zip(["4K", "2M", "1G"]) {
                    // `N x 4K`.
                    let at = rest.iter().position(|word| *word == name);
                    let count = at.and_then(|at| rest.get(at.checked_sub(2)?));
                    *sum += count.and_then(|word| number(word)).unwrap_or(0);
                }
            }
            [range, kind, rest @ ..] => {
                let Some(((first, last), space)) = bounds(range).zip(spaces.last_mut()) else {
                    continue;
                };
                let heap = match *kind {
                    "Vram" if rest.contains(&"evicted") => "evicted",
                    "Vram" => "VRAM",
                    "System" => "system",
                    "Userptr" => "process",
                    _ => "device",
                };
                space.ranges.push(Range {
                    first,
                    last,
                    heap,
                    // `in N pieces`.
                    pieces: rest
                        .windows(3)
                        .find(|words| words[0] == "in" && words[2] == "pieces")
                        .and_then(|words| number(words[1])),
                    pages: [0; 3],
                });
            }
            _ => {}
        }
    }
    spaces
}

/// What the driver writes.
#[cfg(test)]
pub const EXAMPLE: &str = "\
PASID 33 pid 77 page table base 0x3feed001: 4 mappings, tables PTB 2 PDB0 1 PDB1 1 PDB2 1
0x000100000000-0x0001003fffff Vram coherent in use by a queue in 1 pieces
0x000100400000-0x000100402fff Vram in 3 pieces
0x000200000000-0x00020000ffff System from 0x7f0000000000
0x000300000000-0x000300000fff Vram evicted
page table:
  0x000100000000-0x0001003fffff -> 0x000010000000 vram rw- Rw, 0 x 4K, 2 x 2M, 0 x 1G
  0x000100400000-0x000100401fff -> 0x000000005000 vram rw- Rw, 2 x 4K, 0 x 2M, 0 x 1G
  0x000100402000-0x000100402fff -> 0x000000009000 vram rw- Rw, 1 x 4K, 0 x 2M, 0 x 1G
  0x000200000000-0x00020000ffff -> 0x0000aaaa0000 system snooped rw- Nc, 16 x 4K, 0 x 2M, 0 x 1G
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_space_is_read() {
        let found = parse(EXAMPLE);
        let [space] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!((space.pasid, space.pid), (33, Some(77)));
        let shares = space.shares();
        let names: Vec<&str> = shares.iter().map(|(heap, _)| *heap).collect();
        assert_eq!(names, ["VRAM", "evicted", "system"]);
        let (_, vram) = shares[0];
        assert_eq!(vram.pages, [3, 2, 0]);
        assert_eq!((vram.ranges, vram.pieces), (2, Some(4)));
        assert_eq!(shares[2].1.pieces, None);
    }

    #[test]
    fn nonsense_is_left_out() {
        let found =
            parse("nothing\nPASID x\n0x2000-0x1fff Vram\nPASID 1\n5-3 Vram\n  9-10 -> 3 x 4K\n");
        assert_eq!(
            found,
            [Space {
                pasid: 1,
                pid: None,
                ranges: Vec::new()
            }]
        );
    }
}
