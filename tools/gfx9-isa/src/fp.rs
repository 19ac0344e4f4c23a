// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Floating point that the host does not have: 16-bit formats, rounding modes, NaN rules.
//!
//! Values are bit patterns.  A rounding mode is the ISA's: 0 nearest even, 1 up, 2 down, 3 to zero.
//!
//! # Rounding
//! Results on 16 and 32 bits are first computed as `f64` *rounded to odd*: an inexact result has its last bit set.
//! 53 bits are at least two more than twice what the narrow formats need, so that rounding such a value again, in any
//! mode, gives what rounding the exact result once would give.  Results on 64 bits are computed on 128-bit integers in
//! modes other than nearest even.

/// Default NaN of `f32`.
pub const NAN32: u32 = 0x7FC0_0000;
/// Default NaN of `f64`.
pub const NAN64: u64 = 0x7FF8_0000_0000_0000;
/// Default NaN of `f16`.
pub const NAN16: u32 = 0x7E00;

/// Whether `x` is a NaN.
pub const fn is_nan16(x: u32) -> bool {
    x & 0x7FFF > 0x7C00
}

/// Whether `x` is a NaN.
pub const fn is_nan32(x: u32) -> bool {
    x & 0x7FFF_FFFF > 0x7F80_0000
}

/// Whether `x` is a NaN.
pub const fn is_nan64(x: u64) -> bool {
    x & !(1 << 63) > 0x7FF0_0000_0000_0000
}

/// The NaN that an operation on `x` returns: the first operand that is one, made quiet, else the default.
pub fn nan16(x: [u32; 3]) -> u32 {
    match x.into_iter().find(|x| is_nan16(*x)) {
        Some(nan) => (nan & 0xFFFF) | 0x200,
        None => NAN16,
    }
}

/// As [`nan16`].
pub fn nan32(x: [u32; 3]) -> u32 {
    let first = if is_nan32(x[1]) { x[1] } else { x[2] };
    let first = if is_nan32(x[0]) { x[0] } else { first };
    if is_nan32(first) {
        first | 0x40_0000
    } else {
        NAN32
    }
}

/// As [`nan16`].
pub fn nan64(x: [u64; 3]) -> u64 {
    match x.into_iter().find(|x| is_nan64(*x)) {
        Some(nan) => nan | 1 << 51,
        None => NAN64,
    }
}

/// Exact conversion; NaN payloads stay, also of signalling ones.
pub fn f16_to_f32(x: u32) -> u32 {
    let magnitude = x & 0x7FFF;
    // 2^112 moves the exponent from one bias to the other, denormals included.
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000);
    let special = if magnitude >= 0x7C00 { 0x7F80_0000 } else { 0 };
    (x & 0x8000) << 16 | scaled.to_bits() | special
}

/// The value of an `f16` that is no NaN.
pub fn f16_value(x: u32) -> f64 {
    f64::from(f32::from_bits(f16_to_f32(x)))
}

/// The magnitude of `x`, finite, rounded to a format of `precision` bits whose least normal exponent is `emin`.
pub(crate) fn round_magnitude(x: f64, precision: u32, emin: i32, mode: u32) -> u64 {
    let bits = x.to_bits();
    let negative = bits >> 63 != 0;
    let field = (bits >> 52 & 0x7FF) as i32;
    let fraction = bits & ((1 << 52) - 1);
    let (mantissa, exponent) = if field == 0 {
        (fraction, -1022)
    } else {
        (fraction | 1 << 52, field - 1023)
    };
    let below = (emin - exponent).max(0) as u32;
    let shift = (53 - precision + below).min(60);
    let kept = mantissa >> shift;
    let rest = mantissa & ((1 << shift) - 1);
    let half = 1 << (shift - 1);
    let up = match mode & 3 {
        0 => rest > half || (rest == half && kept & 1 != 0),
        1 => rest != 0 && !negative,
        2 => rest != 0 && negative,
        _ => false,
    };
    let value = kept + u64::from(up);
    let base = (exponent - emin).max(0) as u64;
    let value = value + (base << (precision - 1));
    // Biased exponents run from 1 for `emin` to one below that of infinity, which is odd: 31 or 255.
    let infinity = (3 - 2 * emin) as u64;
    let infinity = infinity << (precision - 1);
    if value < infinity {
        return value;
    }
    match (mode, negative) {
        (0, _) | (1, false) | (2, true) => infinity,
        _ => infinity - 1,
    }
}

/// Beside a rounding mode: a finite result of 16 bits does not become infinite.
pub const SATURATE: u32 = 4;

/// `x`, rounded to odd or exact, as `f32`.
pub fn f64_to_f32(x: f64, mode: u32) -> u32 {
    let sign = (x.to_bits() >> 32) as u32 & 0x8000_0000;
    if x.is_nan() {
        return (x.to_bits() >> 29) as u32 & 0x7F_FFFF | sign | 0x7FC0_0000;
    }
    if x.is_infinite() {
        return sign | 0x7F80_0000;
    }
    sign | round_magnitude(x, 24, -126, mode) as u32
}

/// `x`, rounded to odd or exact, as `f16`.
pub fn f64_to_f16(x: f64, mode: u32) -> u32 {
    let sign = (x.to_bits() >> 48) as u32 & 0x8000;
    if x.is_nan() {
        return (x.to_bits() >> 42) as u32 & 0x3FF | sign | 0x7E00;
    }
    if x.is_infinite() {
        return sign | 0x7C00;
    }
    sign | round_magnitude(x, 11, -14, mode) as u32
}

/// `f32` to `f16`.
pub fn f32_to_f16(x: u32, mode: u32) -> u32 {
    if is_nan32(x) {
        return x >> 16 & 0x8000 | 0x7E00 | x >> 13 & 0x3FF;
    }
    f64_to_f16(f64::from(f32::from_bits(x)), mode)
}

/// `f32` to an 8-bit float with `mantissa` bits of mantissa (3 or 2), without infinities and negative zero, as gfx942
/// has them.  What is too great becomes the greatest number if `saturate`, else NaN, and so does infinity.
pub fn f32_to_f8(x: u32, mantissa: u32, mode: u32, saturate: bool) -> u32 {
    const NAN8: u32 = 0x80;
    if is_nan32(x) {
        return NAN8;
    }
    let sign = x >> 24 & 0x80;
    let emin = if mantissa == 3 { -7 } else { -15 };
    let value = f64::from(f32::from_bits(x));
    let magnitude = if value.is_finite() {
        round_magnitude(value, mantissa + 1, emin, mode)
    } else {
        u64::MAX
    };
    match (magnitude, saturate) {
        (0, _) => 0,
        (..=0x7F, _) => sign | magnitude as u32,
        (_, true) => sign | 0x7F,
        (_, false) => NAN8,
    }
}

/// As [`f32_to_f8`], rounded at random: the upper bits of `random` are added to what falls out of the mantissa.
pub fn f32_to_f8_random(x: u32, random: u32, mantissa: u32, saturate: bool) -> u32 {
    if x & 0x7F80_0000 == 0x7F80_0000 {
        return f32_to_f8(x, mantissa, 3, saturate);
    }
    f32_to_f8(x + (random >> (9 + mantissa)), mantissa, 3, saturate)
}

/// `f32` to bfloat16, to nearest even.
pub fn f32_to_bf16(x: u32) -> u32 {
    if is_nan32(x) {
        return x >> 16 | 0x40;
    }
    (x + 0x7FFF + (x >> 16 & 1)) >> 16
}

/// `sum`, whose exact value is `sum + error`, rounded to odd instead.
fn odd(sum: f64, error: f64) -> f64 {
    let bits = sum.to_bits();
    if error == 0.0 || bits & 1 != 0 || !sum.is_finite() || error.is_nan() {
        return sum;
    }
    let outward = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if outward { bits + 1 } else { bits - 1 })
}

/// `a + b` rounded to odd.
pub fn add_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let part = sum - a;
    odd(sum, (a - (sum - part)) + (b - part))
}

/// `a * b + c` rounded to odd, where `a * b` is exact in `f64`.
pub fn fma_odd(a: f64, b: f64, c: f64) -> f64 {
    add_odd(a * b, c)
}

/// The sum of opposite values is +0, but -0 when rounding down.
fn zero_sum(exact: f64, a: f64, b: f64, mode: u32) -> f64 {
    if exact == 0.0 && mode & 3 == 2 && a.is_sign_negative() != b.is_sign_negative() {
        -0.0
    } else {
        exact
    }
}

fn value32(x: u32) -> f64 {
    f64::from(f32::from_bits(x))
}

/// `a + b` on 32 bits.
pub fn add32_mode(a: u32, b: u32, mode: u32) -> u32 {
    let (x, y) = (value32(a), value32(b));
    let sum = zero_sum(add_odd(x, y), x, y, mode);
    if sum.is_nan() {
        return nan32([a, b, 0]);
    }
    f64_to_f32(sum, mode)
}

/// `a + b` on 32 bits, to nearest even.
pub fn add32(a: u32, b: u32) -> u32 {
    let sum = f32::from_bits(a) + f32::from_bits(b);
    if sum.is_nan() {
        nan32([a, b, 0])
    } else {
        sum.to_bits()
    }
}

/// `a * b` on 32 bits.
pub fn mul32_mode(a: u32, b: u32, mode: u32) -> u32 {
    let product = value32(a) * value32(b);
    if product.is_nan() {
        return nan32([a, b, 0]);
    }
    f64_to_f32(product, mode)
}

/// `a * b + c` on 32 bits, rounded once.
pub fn fma32(a: u32, b: u32, c: u32, mode: u32) -> u32 {
    let (x, y, z) = (value32(a), value32(b), value32(c));
    let product = x * y;
    let sum = zero_sum(add_odd(product, z), product, z, mode);
    if sum.is_nan() {
        return nan32([a, b, c]);
    }
    f64_to_f32(sum, mode)
}

/// `a * b + c` on 32 bits, rounded once, to nearest even.
pub fn fma32_near(a: u32, b: u32, c: u32) -> u32 {
    let sum = fma_odd(value32(a), value32(b), value32(c)) as f32;
    if sum.is_nan() {
        nan32([a, b, c])
    } else {
        sum.to_bits()
    }
}

/// `a * b` on 32 bits, to nearest even.
pub fn mul32(a: u32, b: u32) -> u32 {
    let product = f32::from_bits(a) * f32::from_bits(b);
    if product.is_nan() {
        nan32([a, b, 0])
    } else {
        product.to_bits()
    }
}

/// `a + b` on 16 bits, to nearest even.
pub fn add16(a: u32, b: u32) -> u32 {
    add16_mode(a, b, 0)
}

/// `a + b` on 16 bits.
pub fn add16_mode(a: u32, b: u32, mode: u32) -> u32 {
    fma16(a, 0x3C00, b, mode)
}

/// `a * b` on 16 bits.
pub fn mul16(a: u32, b: u32, mode: u32) -> u32 {
    let product = f16_value(a) * f16_value(b);
    if product.is_nan() {
        return nan16([a, b, 0]);
    }
    f64_to_f16(product, mode)
}

/// `a * b + c` on 16 bits, rounded once.
pub fn fma16(a: u32, b: u32, c: u32, mode: u32) -> u32 {
    let (x, y, z) = (f16_value(a), f16_value(b), f16_value(c));
    let product = x * y;
    let sum = zero_sum(add_odd(product, z), product, z, mode);
    if sum.is_nan() {
        return nan16([a, b, c]);
    }
    f64_to_f16(sum, mode)
}

/// A finite number that is not 0: its mantissa of 53 bits and the exponent of its last bit.
fn split(x: u64) -> (u64, i32) {
    let field = (x >> 52 & 0x7FF) as i32;
    let fraction = x & ((1 << 52) - 1);
    if field == 0 {
        let shift = fraction.leading_zeros().saturating_sub(11);
        (fraction << shift, -1074 - shift as i32)
    } else {
        (fraction | 1 << 52, field - 1075)
    }
}

/// `magnitude * 2^exponent` as `f64`.
fn round128(negative: bool, magnitude: u128, exponent: i32, mode: u32) -> u64 {
    let sign = u64::from(negative) << 63;
    let top = 128 - magnitude.leading_zeros() as i32 + exponent;
    // The last bit's exponent, not below that of denormals.
    let last = (top - 53).max(-1074);
    let shift = last - exponent;
    let (kept, up) = if shift <= 0 {
        ((magnitude << -shift) as u64, false)
    } else if shift >= 128 {
        let up = matches!((mode, negative), (1, false) | (2, true));
        (0, up && magnitude != 0)
    } else {
        let kept = (magnitude >> shift) as u64;
        let rest = magnitude & ((1 << shift) - 1);
        let half = 1 << (shift - 1);
        let up = match mode {
            0 => rest > half || (rest == half && kept & 1 != 0),
            1 => rest != 0 && !negative,
            2 => rest != 0 && negative,
            _ => false,
        };
        (kept, up)
    };
    let value = kept + u64::from(up);
    let bits = value.wrapping_add(((last + 1074) as u64) << 52);
    let infinity = 0x7FF0_0000_0000_0000;
    let bits = if last > 971 || bits >= infinity {
        match (mode, negative) {
            (0, _) | (1, false) | (2, true) => infinity,
            _ => infinity - 1,
        }
    } else {
        bits
    };
    sign | bits
}

/// `a * b + c` on 64 bits, rounded once.
pub fn fma64(a: u64, b: u64, c: u64, mode: u32) -> u64 {
    let near = f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c));
    if near.is_nan() {
        return nan64([a, b, c]);
    }
    if mode == 0 {
        return near.to_bits();
    }
    fma64_scaled(a, b, c, 0, mode)
}

/// `(a * b + c) * 2^power` on 64 bits, rounded once.
pub fn fma64_scaled(a: u64, b: u64, c: u64, power: i32, mode: u32) -> u64 {
    let (x, y, z) = (f64::from_bits(a), f64::from_bits(b), f64::from_bits(c));
    let finite = x.is_finite() && y.is_finite() && z.is_finite();
    if !finite {
        let near = x.mul_add(y, z);
        return if near.is_nan() {
            nan64([a, b, c])
        } else {
            near.to_bits()
        };
    }
    let minus = (a ^ b) >> 63 != 0;
    if x == 0.0 || y == 0.0 {
        let zero = if minus { -0.0 } else { 0.0 };
        if z == 0.0 {
            return zero_sum(zero + z, zero, z, mode).to_bits();
        }
        let (magnitude, exponent) = split(c);
        return round128(c >> 63 != 0, magnitude.into(), exponent + power, mode);
    }
    let ((ma, ea), (mb, eb)) = (split(a), split(b));
    let (product, ep) = (u128::from(ma) * u128::from(mb), ea + eb);
    if z == 0.0 {
        return round128(minus, product, ep + power, mode);
    }
    let (mc, ec) = split(c);
    let top = |magnitude: u128, exponent: i32| 128 - magnitude.leading_zeros() as i32 + exponent;
    let base = top(product, ep).max(top(mc.into(), ec)) - 125;
    // Bits that fall out at the right stick to the last one.
    let place = |magnitude: u128, exponent: i32| {
        let shift = exponent - base;
        match shift {
            0.. => magnitude << shift,
            -127..=-1 => {
                let lost = magnitude & ((1 << -shift) - 1) != 0;
                magnitude >> -shift | u128::from(lost)
            }
            _ => 1,
        }
    };
    let (p, q) = (place(product, ep), place(mc.into(), ec));
    let addend_minus = c >> 63 != 0;
    let (negative, magnitude) = if minus == addend_minus {
        (minus, p + q)
    } else if p >= q {
        (minus, p - q)
    } else {
        (addend_minus, q - p)
    };
    if magnitude == 0 {
        return if mode == 2 { 1 << 63 } else { 0 };
    }
    round128(negative, magnitude, base + power, mode)
}

/// `a + b` on 64 bits.
pub fn add64(a: u64, b: u64, mode: u32) -> u64 {
    if mode == 0 {
        let sum = f64::from_bits(a) + f64::from_bits(b);
        return if sum.is_nan() {
            nan64([a, b, 0])
        } else {
            sum.to_bits()
        };
    }
    if is_nan64(a) || is_nan64(b) {
        return nan64([a, b, 0]);
    }
    fma64(a, 1f64.to_bits(), b, mode)
}

/// `a * b` on 64 bits.
pub fn mul64(a: u64, b: u64, mode: u32) -> u64 {
    if mode == 0 {
        let product = f64::from_bits(a) * f64::from_bits(b);
        return if product.is_nan() {
            nan64([a, b, 0])
        } else {
            product.to_bits()
        };
    }
    fma64(a, b, (a ^ b) & 1 << 63, mode)
}

/// Defines minimum and maximum of one format: one NaN gives way to the other operand, but with `ieee` a signalling
/// one is returned quiet; -0 is below +0.
macro_rules! min_max {
    ($min:ident, $max:ident, $ty:ty, $is_nan:ident, $quiet:expr, $order:expr) => {
        /// The lesser operand.
        pub fn $min(a: $ty, b: $ty, ieee: bool) -> $ty {
            let signalling = |x: $ty| ieee && $is_nan(x) && x & $quiet == 0;
            if signalling(a) || (!signalling(b) && $is_nan(a) && $is_nan(b)) {
                a | $quiet
            } else if signalling(b) {
                b | $quiet
            } else if $is_nan(a) || (!$is_nan(b) && $order(b) < $order(a)) {
                b
            } else {
                a
            }
        }

        /// The greater operand.
        pub fn $max(a: $ty, b: $ty, ieee: bool) -> $ty {
            let signalling = |x: $ty| ieee && $is_nan(x) && x & $quiet == 0;
            if signalling(a) || (!signalling(b) && $is_nan(a) && $is_nan(b)) {
                a | $quiet
            } else if signalling(b) {
                b | $quiet
            } else if $is_nan(a) || (!$is_nan(b) && $order(b) > $order(a)) {
                b
            } else {
                a
            }
        }
    };
}

/// Numbers in the order of what they stand for.
fn order16(x: u32) -> i32 {
    let x = i32::from(x as u16 as i16);
    x ^ (x >> 15 & 0x7FFF)
}

fn order32(x: u32) -> i32 {
    let x = x as i32;
    x ^ ((x >> 31) as u32 >> 1) as i32
}

fn order64(x: u64) -> i64 {
    let x = x as i64;
    x ^ ((x >> 63) as u64 >> 1) as i64
}

min_max!(min16, max16, u32, is_nan16, 0x200, order16);
min_max!(min32, max32, u32, is_nan32, 0x40_0000, order32);
min_max!(min64, max64, u64, is_nan64, 1 << 51, order64);
