// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Exceptions of floats: what TRAPSTS collects and MODE may trap.
//!
//! They are computed beside the result, and only for waves that ask for it ([`Wave::tracks_exceptions`]) or have enabled
//! a trap.  Whether a result is inexact follows from the kernel itself: rounded up and rounded down it is not the same.

use super::division::Format;
use super::division::DOUBLE;
use super::division::HALF;
use super::division::SINGLE;
use super::Cx;
use super::Fk;
use super::Wave;
use crate::wave::excp;

/// Whether anybody wants to know.
#[inline]
pub(super) fn wanted(wave: &Wave) -> bool {
    wave.tracks_exceptions || wave.mode >> excp::MODE_SHIFT & excp::ALL != 0
}

/// How an opcode divides.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Division {
    None,
    /// 1/x, 1/√x, log₂ x: of 0.
    Reciprocal,
    /// As [`Division::Reciprocal`], told as an integer's.
    Integer,
    /// The last step: numerator and denominator are the third and the second operand.
    FixUp,
}

impl Division {
    fn of(name: &str) -> Self {
        if name.starts_with("v_rcp_iflag") {
            Division::Integer
        } else if ["v_rcp_", "v_rsq_", "v_log_"]
            .iter()
            .any(|start| name.starts_with(start))
        {
            Division::Reciprocal
        } else if name.starts_with("v_div_fixup") {
            Division::FixUp
        } else {
            Division::None
        }
    }
}

fn format(fk: Fk) -> Option<&'static Format> {
    match fk {
        Fk::F16 => Some(&HALF),
        Fk::F32 | Fk::F32Flushed => Some(&SINGLE),
        Fk::F64 => Some(&DOUBLE),
        Fk::Int | Fk::Sign => None,
    }
}

/// Context of the same instruction in another rounding mode.
pub(super) fn rounding(cx: &Cx, mode: u32) -> Cx {
    Cx {
        round32: mode,
        round16: mode,
        round64: mode,
        ..*cx
    }
}

/// What the lanes of one instruction raise.
pub(super) struct Raise {
    division: Division,
    dst: Option<&'static Format>,
    src: [Option<&'static Format>; 3],
    /// The result's denormals are flushed.
    flush: bool,
    /// It is rounded to the nearest.
    nearest: bool,
}

impl Raise {
    pub(super) fn new(wave: &Wave, name: &str, dst: Fk, src: [Fk; 3]) -> Self {
        let flush = match dst {
            Fk::F16 | Fk::F64 => wave.mode & 0x80 == 0,
            Fk::F32 => wave.mode & 0x20 == 0,
            Fk::F32Flushed => true,
            Fk::Int | Fk::Sign => false,
        };
        let round = match dst {
            Fk::F16 | Fk::F64 => wave.mode >> 2 & 3,
            _ => wave.mode & 3,
        };
        Self {
            nearest: round == 0,
            division: Division::of(name),
            dst: format(dst),
            src: src.map(format),
            flush,
        }
    }

    /// One lane: operands after signs and flushes, and the result in the wave's mode, rounded up and rounded down.
    pub(super) fn lane(&self, src: [u64; 3], [result, up, down]: [u64; 3]) -> u32 {
        let Some(format) = self.dst else {
            return 0;
        };
        let mut bits = 0;
        let (mut nan, mut finite) = (false, true);
        for (format, x) in self.src.iter().zip(src) {
            let Some(format) = format else {
                continue;
            };
            finite &= format.exponent(x) != format.most;
            if format.is_nan(x) {
                nan = true;
                if x & format.quiet() == 0 {
                    bits |= excp::INVALID;
                }
            } else if format.exponent(x) == 0 && format.magnitude(x) != 0 {
                bits |= excp::DENORMAL;
            }
        }
        if format.is_nan(result) && !nan {
            bits |= excp::INVALID;
        }
        let zero = |at: usize| self.src[at].is_some_and(|format| format.magnitude(src[at]) == 0);
        let by_zero = match self.division {
            Division::None => 0,
            Division::Reciprocal if zero(0) => excp::DIV0,
            Division::Integer if zero(0) => excp::INT_DIV0,
            Division::FixUp if finite && zero(1) && !zero(2) => excp::DIV0,
            _ => 0,
        };
        bits |= by_zero;
        if by_zero != 0 || !finite || format.is_nan(result) {
            return bits;
        }
        // An exact 0 has the sign of the rounding mode.
        let zeros = format.magnitude(up) == 0 && format.magnitude(down) == 0;
        let inexact = up != down && !zeros;
        let infinite = |x: u64| format.magnitude(x) == format.infinity();
        if inexact {
            bits |= excp::INEXACT;
            let beyond = if result & format.sign() == 0 {
                up
            } else {
                down
            };
            let greatest = format.magnitude(result) + 1 == format.infinity();
            // Cut to the greatest number; one that is nearest to it has not overflowed.
            let cut = greatest && infinite(beyond) && !self.nearest;
            if infinite(result) || cut {
                bits |= excp::OVERFLOW;
            }
            if format.exponent(result) == 0 {
                bits |= excp::UNDERFLOW;
            }
        }
        if self.flush && format.exponent(result) == 0 && format.magnitude(result) != 0 {
            bits |= excp::UNDERFLOW | excp::INEXACT;
        }
        bits
    }
}
