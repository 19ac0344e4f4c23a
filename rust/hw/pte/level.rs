// SPDX-License-Identifier: GPL-2.0

//! Which addresses a tree of page tables translates: its levels, and how large the pages and fragments of a mapping
//! may be.
//!
//! Source: `amdgpu_vm.h`, `amdgpu_vm_pt.c`.

use super::super::num;

/// Bytes of the smallest page.
pub(crate) const PAGE: u64 = 0x1000;
/// Entries of a table.
pub(crate) const ENTRIES: usize = 512;
/// Bytes of a table.
pub(crate) const TABLE_BYTES: u64 = 0x1000;
/// Bits of a virtual address.
pub(crate) const VA_BITS: u32 = 48;
/// First page number that no 48-bit address has.
pub(crate) const MAX_PFN: u64 = 1 << (VA_BITS - 12);

/// A level of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Root; an entry covers 512 GiB.
    Pdb2,
    /// An entry covers 1 GiB.
    Pdb1,
    /// An entry covers 2 MiB.
    Pdb0,
    /// An entry covers 4 KiB.
    Ptb,
}

impl Level {
    /// All levels from the root down.
    pub(crate) const ALL: [Self; 4] = [Self::Pdb2, Self::Pdb1, Self::Pdb0, Self::Ptb];

    /// Address bits below the level's index.
    pub(crate) const fn shift(self) -> u32 {
        match self {
            Self::Pdb2 => 39,
            Self::Pdb1 => 30,
            Self::Pdb0 => 21,
            Self::Ptb => 12,
        }
    }

    /// Bytes that one entry covers.
    pub(crate) const fn span(self) -> u64 {
        1 << self.shift()
    }

    /// Index of the entry for `va`; address bits above the 48th are ignored.
    pub(crate) const fn index(self, va: u64) -> usize {
        num::index(num::lo32((va >> self.shift()) & 0x1ff))
    }

    /// Bytes that a table of this level covers.
    pub(crate) const fn table_span(self) -> u64 {
        self.span() << 9
    }

    /// The level below.
    pub(crate) const fn child(self) -> Option<Self> {
        match self {
            Self::Pdb2 => Some(Self::Pdb1),
            Self::Pdb1 => Some(Self::Pdb0),
            Self::Pdb0 => Some(Self::Ptb),
            Self::Ptb => None,
        }
    }

    /// Whether an entry of this level may be a page.
    pub(crate) const fn may_be_page(self) -> bool {
        !matches!(self, Self::Pdb2)
    }

    /// Largest level whose entries can map `len` bytes at `va` to `pa` without splitting: all
    /// three must be multiples of the span. Always a level that may hold pages.
    pub(crate) const fn largest_page(va: u64, pa: u64, len: u64) -> Self {
        let bits = va | pa | len;
        if num::is_aligned(bits, Self::Pdb1.span()) && len != 0 {
            Self::Pdb1
        } else if num::is_aligned(bits, Self::Pdb0.span()) && len != 0 {
            Self::Pdb0
        } else {
            Self::Ptb
        }
    }
}

/// Whether `va` is a canonical 48-bit address, that is, outside the hole.
pub(crate) const fn is_canonical(va: u64) -> bool {
    let top = va >> (VA_BITS - 1);
    top == 0 || top == 0x1_ffff
}

/// Exponent of the largest fragment (2^n pages) usable for every entry of a mapping.
///
/// All entries of a fragment must be contiguous and its start aligned in both spaces.
pub(crate) const fn fragment(va: u64, pa: u64, len: u64) -> u32 {
    let bits = (va | pa | len) >> 12;
    if bits == 0 {
        return 0;
    }
    let n = bits.trailing_zeros();
    if n > 31 {
        31
    } else {
        n
    }
}
