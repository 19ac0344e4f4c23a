// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The steps of division: fused multiply-add with scaling, and the fix-up.  The scaling itself has a second result
//! and stands with the special instructions.

use super::lanes32;
use super::lanes64;
use super::v32;
use super::v64;
use super::Action;
use super::Fk;
use super::K32;
use super::K64;
use crate::fp;

/// What of a format the steps need.
pub(super) struct Format {
    /// Bits of the mantissa.
    mantissa: u32,
    /// Greatest biased exponent, that of infinity.
    pub(super) most: i64,
}

/// 16 bits.
pub(super) const HALF: Format = Format {
    mantissa: 10,
    most: 31,
};
/// 32 bits.
pub(super) const SINGLE: Format = Format {
    mantissa: 23,
    most: 255,
};
/// 64 bits.
pub(super) const DOUBLE: Format = Format {
    mantissa: 52,
    most: 2047,
};

impl Format {
    /// The biased exponent.
    pub(super) fn exponent(&self, x: u64) -> i64 {
        (x >> self.mantissa) as i64 & self.most
    }

    /// The bit of the sign.
    pub(super) fn sign(&self) -> u64 {
        (self.most as u64 + 1) << self.mantissa
    }

    /// All but the sign.
    pub(super) fn magnitude(&self, x: u64) -> u64 {
        x & (self.sign() - 1)
    }

    /// Positive infinity.
    pub(super) fn infinity(&self) -> u64 {
        (self.most as u64) << self.mantissa
    }

    /// Whether `x` is a NaN.
    pub(super) fn is_nan(&self, x: u64) -> bool {
        x & !self.sign() > self.infinity()
    }

    /// The bit that makes a NaN quiet.
    pub(super) fn quiet(&self) -> u64 {
        1 << (self.mantissa - 1)
    }

    /// The quotient `q` of `n / d`, where it is not what the steps before have computed.
    fn fix_up(&self, q: u64, d: u64, n: u64) -> u64 {
        if self.is_nan(n) {
            return n | self.quiet();
        }
        if self.is_nan(d) {
            return d | self.quiet();
        }
        let sign = (n ^ d) & self.sign();
        let (num, den) = (n & !self.sign(), d & !self.sign());
        let (zero, infinity) = (0, self.infinity());
        if (num == zero && den == zero) || (num == infinity && den == infinity) {
            return infinity | self.quiet();
        }
        if den == zero || num == infinity {
            return sign | infinity;
        }
        if num == zero || den == infinity {
            return sign;
        }
        if self.is_nan(q) {
            return sign | infinity;
        }
        sign | q & !self.sign()
    }
}

/// What `v_div_scale` returns: `value` scaled by two to the power, and whether `v_div_fmas` scales the result.
pub(super) struct Scale {
    pub(super) power: i32,
    pub(super) flag: bool,
    /// There is no quotient.
    pub(super) nan: bool,
}

/// The scaling of `value`, which is the denominator `d` or the numerator `n`.
fn scale(format: &Format, value: u64, d: u64, n: u64, step: i32, far: i64) -> Scale {
    let (num, den) = (n & !format.sign(), d & !format.sign());
    let none = |flag| Scale {
        power: 0,
        flag,
        nan: false,
    };
    let up = |flag| Scale {
        power: step,
        flag,
        nan: false,
    };
    if num == 0 || den == 0 {
        return Scale {
            power: 0,
            flag: false,
            nan: true,
        };
    }
    let (ne, de) = (format.exponent(n), format.exponent(d));
    let is_den = value == d;
    let delta = ne - de;
    // The exponent from which on 1 / d is denormal.
    let tiny = format.most - 2;
    if delta >= far {
        return if is_den { up(true) } else { none(true) };
    }
    if de == 0 {
        return up(false);
    }
    if de >= tiny && delta <= -far {
        // The quotient grows, and goes down again at the end.
        let power = if is_den { -step } else { 0 };
        return Scale {
            power,
            flag: true,
            nan: false,
        };
    }
    if de >= tiny {
        return Scale {
            power: -step,
            flag: false,
            nan: false,
        };
    }
    if delta <= -far {
        return if is_den { none(true) } else { up(true) };
    }
    if ne <= i64::from(format.mantissa) + 1 {
        return up(false);
    }
    none(false)
}

/// The scaling for 32 bits.
pub(super) fn scale32(value: u32, d: u32, n: u32) -> Scale {
    scale(&SINGLE, value.into(), d.into(), n.into(), 64, 96)
}

/// The scaling for 64 bits.
pub(super) fn scale64(value: u64, d: u64, n: u64) -> Scale {
    scale(&DOUBLE, value, d, n, 128, 768)
}

/// `a * b + c` times two to the power, rounded once where nothing is lost before.
fn fmas32(a: u32, b: u32, c: u32, scaled: bool, mode: u32) -> u32 {
    if !scaled {
        return fp::fma32(a, b, c, mode);
    }
    // Numbers with a great addend were scaled down, and go up again.
    let power = if c >> 23 & 0xFF > 127 { 64 } else { -64 };
    let value = |x: u32| f64::from(f32::from_bits(x));
    let exact = fp::fma_odd(value(a), value(b), value(c));
    if exact.is_nan() {
        return fp::nan32([a, b, c]);
    }
    let factor = f64::from_bits(((1023 + power) as u64) << 52);
    fp::f64_to_f32(exact * factor, mode)
}

fn fmas64(a: u64, b: u64, c: u64, scaled: bool, mode: u32) -> u64 {
    if !scaled {
        return fp::fma64(a, b, c, mode);
    }
    let power = if DOUBLE.exponent(c) > 1023 { 128 } else { -128 };
    fp::fma64_scaled(a, b, c, power, mode)
}

/// The action of a mnemonic.
pub(super) fn bind(name: &str) -> Option<Action> {
    let narrow = |run: K32, fk| Some(v32(run, fk, [fk; 3]));
    match name {
        "v_div_fixup_f32" => narrow(
            lanes32!(|_, s, d| {
                for (lane, slot) in d.iter_mut().enumerate() {
                    let (q, d, n) = (s[0][lane], s[1][lane], s[2][lane]);
                    *slot = SINGLE.fix_up(q.into(), d.into(), n.into()) as u32;
                }
            }),
            Fk::F32,
        ),
        "v_div_fixup_f16" | "v_div_fixup_legacy_f16" => narrow(
            lanes32!(|_, s, d| {
                for (lane, slot) in d.iter_mut().enumerate() {
                    let (q, d, n) = (s[0][lane], s[1][lane], s[2][lane]);
                    *slot = HALF.fix_up(q.into(), d.into(), n.into()) as u32;
                }
            }),
            Fk::F16,
        ),
        "v_div_fmas_f32" => narrow(
            lanes32!(|cx, s, d| {
                for (lane, slot) in d.iter_mut().enumerate() {
                    let scaled = cx.mask >> lane & 1 != 0;
                    *slot = fmas32(s[0][lane], s[1][lane], s[2][lane], scaled, cx.round32);
                }
            }),
            Fk::F32,
        ),
        "v_div_fixup_f64" => {
            let run: K64 = lanes64!(|_, s, d| {
                for (lane, slot) in d.iter_mut().enumerate() {
                    *slot = DOUBLE.fix_up(s[0][lane], s[1][lane], s[2][lane]);
                }
            });
            Some(v64(run, Fk::F64, [Fk::F64; 3]))
        }
        "v_div_fmas_f64" => {
            let run: K64 = lanes64!(|cx, s, d| {
                for (lane, slot) in d.iter_mut().enumerate() {
                    let scaled = cx.mask >> lane & 1 != 0;
                    *slot = fmas64(s[0][lane], s[1][lane], s[2][lane], scaled, cx.round64);
                }
            });
            Some(v64(run, Fk::F64, [Fk::F64; 3]))
        }
        _ => None,
    }
}
