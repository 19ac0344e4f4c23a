// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Memory atomics as the L2 performs them; operation codes are `TC_OP` of vega10_enum.h.

/// An atomic operation on 32 or 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Atomic {
    /// 64-bit operands.
    pub wide: bool,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Swap,
    CmpSwap,
    Add,
    Sub,
    Smin,
    Umin,
    Smax,
    Umax,
    And,
    Or,
    Xor,
    Inc,
    Dec,
}

impl Atomic {
    /// Decodes an operation code.  Codes from 64 on do not return the old value, which makes no difference here;
    /// floating-point forms and CLAMP_SUB are not decoded.
    pub fn decode(code: u32) -> Option<Self> {
        let low = code & 0x3F;
        let wide = low & 0x20 != 0;
        let kind = match low & 0x1F {
            0x07 => Kind::Swap,
            0x08 => Kind::CmpSwap,
            0x0F => Kind::Add,
            0x10 => Kind::Sub,
            0x11 => Kind::Smin,
            0x12 => Kind::Umin,
            0x13 => Kind::Smax,
            0x14 => Kind::Umax,
            0x15 => Kind::And,
            0x16 => Kind::Or,
            0x17 => Kind::Xor,
            0x18 => Kind::Inc,
            0x19 => Kind::Dec,
            _ => return None,
        };
        (code < 128).then_some(Self { wide, kind })
    }

    /// The new value of a word; for 32-bit operations only the low halves count.
    pub fn apply(self, old: u64, src: u64, cmp: u64) -> u64 {
        if self.wide {
            self.combine(old, src, cmp, old as i64 as i128, src as i64 as i128)
        } else {
            let (old, src, cmp) = (old & 0xFFFF_FFFF, src & 0xFFFF_FFFF, cmp & 0xFFFF_FFFF);
            self.combine(
                old,
                src,
                cmp,
                i128::from(old as u32 as i32),
                i128::from(src as u32 as i32),
            ) & 0xFFFF_FFFF
        }
    }

    fn combine(self, old: u64, src: u64, cmp: u64, sold: i128, ssrc: i128) -> u64 {
        match self.kind {
            Kind::Swap => src,
            Kind::CmpSwap => {
                if old == cmp {
                    src
                } else {
                    old
                }
            }
            Kind::Add => old.wrapping_add(src),
            Kind::Sub => old.wrapping_sub(src),
            Kind::Smin => {
                if ssrc < sold {
                    src
                } else {
                    old
                }
            }
            Kind::Umin => old.min(src),
            Kind::Smax => {
                if ssrc > sold {
                    src
                } else {
                    old
                }
            }
            Kind::Umax => old.max(src),
            Kind::And => old & src,
            Kind::Or => old | src,
            Kind::Xor => old ^ src,
            Kind::Inc => {
                if old >= src {
                    0
                } else {
                    old + 1
                }
            }
            Kind::Dec => {
                if old == 0 || old > src {
                    src
                } else {
                    old - 1
                }
            }
        }
    }
}
