// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The part of an address space that an invalidation is about.
//!
//! What VM_INVALIDATE_ENGn_ADDR_RANGE says apart from "everything" is settled by no source: [`Reading`] is how it is taken.

/// All bits of a page number: addresses have 48 bits, of which the registers hold all but those within a page.
const NUMBERS: u64 = (1 << 36) - 1;
/// S_BIT of ADDR_RANGE_LO32.
const S_BIT: u32 = 1 << 0;
/// LOGI_PAGE_ADDR_RANGE_HI5 of ADDR_RANGE_HI32.
pub const HI5: u32 = 0x1F;
/// log2 bytes of a page.
const PAGE_SHIFT: u32 = 12;

/// Pages of 4 KiB that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Number of the first one.
    pub first: u64,
    /// Number of the last one, not before the first.
    pub last: u64,
}

impl Range {
    /// The whole address space.
    pub const ALL: Range = Range {
        first: 0,
        last: NUMBERS,
    };

    /// The range of a pair of ADDR_RANGE registers (LO32, HI32), read as PCI Express ATS reads the S bit.  Clear, the
    /// page number is that of the only page.  Set, the lowest zero bit of the number and the ones below it tell the
    /// size: with the lowest zero at bit n the range has 2^(n + 1) pages and begins at a multiple of that.  A number
    /// without a zero is everything.
    pub fn by_size_bit([low, high]: [u32; 2]) -> Range {
        let number = u64::from(low >> 1) | (u64::from(high & HI5) << 31);
        let size_bits = if low & S_BIT != 0 {
            // The addition turns the lowest zero into a one and the ones below it into zeros.
            (number ^ (number + 1)) & NUMBERS
        } else {
            0
        };
        Range {
            first: number & !size_bits,
            last: number | size_bits,
        }
    }

    /// Whether this is the whole address space.
    pub fn is_all(self) -> bool {
        self == Range::ALL
    }

    /// Whether the range has a page of those in the naturally aligned block of `1 << shift` bytes, at least a page, that
    /// holds `va`.
    pub fn touches(self, va: u64, shift: u32) -> bool {
        // Of a canonical address in the upper half the page number has ones above the bits that count.
        let number = (va >> PAGE_SHIFT) & NUMBERS;
        let within = (1u64 << shift.saturating_sub(PAGE_SHIFT)) - 1;
        number & !within <= self.last && self.first <= number | within
    }
}

/// How requests to invalidation engines are taken whose ADDR_RANGE is not all ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reading {
    /// As a mistake of the driver; everything is dropped.
    #[default]
    Refuse,
    /// As [`Range::by_size_bit`] says.
    SizeBit,
}

impl Reading {
    /// The reading of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn by_name(name: &str) -> Result<Reading, String> {
        match name {
            "refuse" => Ok(Reading::Refuse),
            "size-bit" => Ok(Reading::SizeBit),
            _ => Err(format!("unknown reading {name}; known: refuse, size-bit")),
        }
    }

    /// What a request drops, by the registers (LO32, HI32) of its engine.
    pub fn range(self, registers: [u32; 2]) -> Range {
        match self {
            Reading::Refuse => Range::ALL,
            Reading::SizeBit => Range::by_size_bit(registers),
        }
    }
}
