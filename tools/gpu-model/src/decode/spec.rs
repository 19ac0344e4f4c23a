// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Packet layouts as data: used to print packets and to find reserved bits that are set.

use super::Decoded;

/// One field of a packet.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    name: &'static str,
    dw: u8,
    hi: u8,
    lo: u8,
    wide: bool,
}

/// A field inside one dword.
pub const fn f(name: &'static str, dw: u8, hi: u8, lo: u8) -> Field {
    Field {
        name,
        dw,
        hi,
        lo,
        wide: false,
    }
}

/// A whole dword.
pub const fn d(name: &'static str, dw: u8) -> Field {
    f(name, dw, 31, 0)
}

/// A 64-bit value whose low `lo` bits must be zero.
pub const fn q(name: &'static str, dw: u8, lo: u8) -> Field {
    Field {
        name,
        dw,
        hi: 63,
        lo,
        wide: true,
    }
}

impl Field {
    fn value(self, raw: &[u32]) -> u64 {
        let at = |i: u8| raw.get(usize::from(i)).copied().map_or(0, u64::from);
        if self.wide {
            let v = at(self.dw) | (at(self.dw + 1) << 32);
            v & u64::MAX.checked_shl(u32::from(self.lo)).unwrap_or(0)
        } else {
            (at(self.dw) >> self.lo) & ((1u64 << (self.hi - self.lo + 1)) - 1)
        }
    }

    fn mask(self, dw: u8) -> u32 {
        if self.wide {
            return match dw {
                d if d == self.dw => u32::MAX << self.lo,
                d if d == self.dw + 1 => u32::MAX,
                _ => 0,
            };
        }
        if dw != self.dw {
            return 0;
        }
        (((1u64 << (self.hi - self.lo + 1)) - 1) << self.lo) as u32
    }
}

/// A packet.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// Opcode.
    pub op: u8,
    /// Name.
    pub name: &'static str,
    /// Exact length in dwords, 0 if it varies.
    pub len: usize,
    /// Fields.
    pub fields: &'static [Field],
}

impl Spec {
    /// Decodes the fields.
    pub fn decode(&self, raw: &[u32]) -> Decoded {
        let mut out = Decoded::named(self.name);
        for field in self.fields {
            if usize::from(field.dw) < raw.len() {
                out.field(field.name, field.value(raw));
            }
        }
        out
    }

    /// Bits set outside every field, as (dword, bits).  The header dword is not looked at.
    pub fn reserved(&self, raw: &[u32]) -> Vec<(usize, u32)> {
        raw.iter()
            .enumerate()
            .skip(1)
            .filter_map(|(i, &w)| {
                let dw = u8::try_from(i).ok()?;
                let known = self.fields.iter().fold(0, |m, f| m | f.mask(dw));
                (w & !known != 0).then_some((i, w & !known))
            })
            .collect()
    }
}
