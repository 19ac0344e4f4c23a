// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Sums of products as gfx942's matrix units fuse them.
//!
//! A group of products is summed with a fixed number of fractional bits below its greatest exponent, then together
//! with the accumulator, and rounded once to nearest even.  Groups follow each other in ascending k: 4 products of
//! XF32, 8 of 16-bit floats, 16 of 8-bit ones, of which those of even and odd k are first summed apart.  Denormals are
//! kept.  (After the measurements published with MMA-Sim; exponents of denormals are those of the normalised number.)

use super::sums::Block;
use super::sums::ELEMENTS;
use super::valu::from_f8;
use crate::fp;
use crate::simd::by_level;
use crate::simd::level;
use crate::simd::Level;

/// The format of a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    F16,
    Bf16,
    /// 32 bits of which the lowest 13 do not count.
    Xf32,
    Fp8,
    Bf8,
}

impl Format {
    /// One of the 8-bit formats.
    pub(super) fn of_8(name: &str) -> Option<Self> {
        match name {
            "fp8" => Some(Format::Fp8),
            "bf8" => Some(Format::Bf8),
            _ => None,
        }
    }

    /// Bits of an element in registers.
    pub(super) fn bits(self) -> usize {
        match self {
            Format::F16 | Format::Bf16 => 16,
            Format::Xf32 => 32,
            Format::Fp8 | Format::Bf8 => 8,
        }
    }

    /// An element, in the lowest bits of a word, as `f32`.
    pub(super) fn value(self) -> fn(u32) -> u32 {
        match self {
            Format::F16 => |word| fp::f16_to_f32(word & 0xFFFF),
            Format::Bf16 => |word| word << 16,
            // A NaN stays one.
            Format::Xf32 => |word| match fp::is_nan32(word) {
                true => word | 0x40_0000,
                false => word & !0x1FFF,
            },
            Format::Fp8 => |word| from_f8(word, 3).to_bits(),
            Format::Bf8 => |word| from_f8(word, 2).to_bits(),
        }
    }

    /// Bits of a mantissa, with the one before the point; one format of 8 bits stands for both.
    fn precision(self) -> i32 {
        match self {
            Format::F16 | Format::Xf32 => 11,
            Format::Bf16 => 8,
            Format::Fp8 | Format::Bf8 => 4,
        }
    }

    /// Products of a group.
    fn group(self) -> usize {
        match self {
            Format::Xf32 => 4,
            Format::F16 | Format::Bf16 => 8,
            Format::Fp8 | Format::Bf8 => 16,
        }
    }

    /// Whether even and odd products are summed apart.
    fn splits(self) -> bool {
        self.bits() == 8
    }
}

/// 2¹²⁸: from here on a product counts as infinite.
const HUGE: f64 = f64::from_bits(0x47F0_0000_0000_0000);

/// The exponent of a number that is neither 0 nor infinite, on 64 bits a normal one.
fn exponent(x: f64) -> i32 {
    (x.to_bits() >> 52 & 0x7FF) as i32 - 1023
}

fn power_of_two(power: i32) -> f64 {
    f64::from_bits(((1023 + power.clamp(-1022, 1023)) as u64) << 52)
}

/// Times two to the power, rounded down.
fn shift(value: i64, power: i32) -> i64 {
    if power >= 0 {
        value << power.min(63)
    } else {
        value >> (-power).min(63)
    }
}

/// A product: its value and the sum of its factors' exponents.
#[derive(Clone, Copy)]
struct Product {
    value: f64,
    exponent: i32,
}

impl Product {
    fn new([a, b]: [f32; 2]) -> Self {
        let (a, b) = (f64::from(a), f64::from(b));
        Self {
            value: a * b,
            exponent: exponent(a) + exponent(b),
        }
    }
}

/// The sum of products with 24 bits behind the point of the greatest exponent, and that exponent; `None` where all are
/// 0.
fn aligned(products: impl Iterator<Item = Product> + Clone) -> Option<(i64, i32)> {
    let present = products.filter(|product| product.value != 0.0);
    let most = present.clone().map(|product| product.exponent).max()?;
    let scale = power_of_two(24 - most);
    // What falls out at the right is truncated towards 0, as the conversion does.
    let sum = present.map(|product| (product.value * scale) as i64).sum();
    Some((sum, most))
}

/// One group with the accumulator `c`.
fn group(c: f32, products: &[Product], splits: bool) -> f32 {
    let finite = |product: &Product| product.value.abs() < HUGE;
    if !c.is_finite() || !products.iter().all(finite) {
        let special = |value: f64| {
            if value.abs() < HUGE {
                0.0
            } else if value.is_nan() {
                value
            } else {
                f64::INFINITY.copysign(value)
            }
        };
        let start = if c.is_finite() { 0.0 } else { f64::from(c) };
        let sum = products.iter().fold(start, |sum, p| sum + special(p.value));
        return if sum.is_nan() {
            f32::from_bits(fp::NAN32)
        } else {
            sum as f32
        };
    }
    let every = |from: usize| products.iter().copied().skip(from).step_by(2);
    let sum = if splits {
        joined(aligned(every(0)), aligned(every(1)))
    } else {
        aligned(products.iter().copied())
    };
    accumulated(c, sum, splits)
}

/// The sums of even and odd products, aligned downwards.
fn joined(even: Option<(i64, i32)>, odd: Option<(i64, i32)>) -> Option<(i64, i32)> {
    match (even, odd) {
        (Some((even, e)), Some((odd, o))) => {
            let most = e.max(o);
            Some((shift(even, e - most) + shift(odd, o - most), most))
        }
        (one, None) => one,
        (None, one) => one,
    }
}

/// The finite accumulator `c` with a sum of products.
fn accumulated(c: f32, sum: Option<(i64, i32)>, splits: bool) -> f32 {
    let Some((sum, most)) = sum else {
        return 0.0 + c;
    };
    let wide = f64::from(c);
    let of_c = exponent(wide);
    let (total, top) = if c == 0.0 || (splits && of_c < most - 25) {
        (sum << 7, most)
    } else {
        let top = most.max(of_c);
        let mantissa = (wide * power_of_two(23 - of_c)) as i64;
        let addend = shift(mantissa, of_c - top + 1) << 7;
        (shift(sum, most - top + 7) + addend, top)
    };
    (total as f64 * power_of_two(top - 31)) as f32
}

/// The exponent of a factor that is 0, and one that is below all sums of exponents but those with it.
const ZERO: i32 = -20_000;
const NOTHING: i32 = -10_000;

/// Finite factors of one block as integers and exponents.
pub(super) struct Split {
    mantissa: Integers,
    exponent: Integers,
    /// The greatest exponent.
    most: i32,
}

type Integers = [i32; ELEMENTS];

impl Split {
    /// The first `used` values, which are those of `format`; `None` if one of them is not finite.
    pub(super) fn new(values: &Block, used: usize, format: Format) -> Option<Self> {
        let mut split = Self {
            mantissa: [0; ELEMENTS],
            exponent: [ZERO; ELEMENTS],
            most: ZERO,
        };
        for (at, bits) in values.iter().enumerate().take(used) {
            let value = f64::from(f32::from_bits(*bits));
            if !value.is_finite() {
                return None;
            }
            if value != 0.0 {
                let power = exponent(value);
                let scale = power_of_two(format.precision() - 1 - power);
                split.mantissa[at] = (value * scale) as i32;
                split.exponent[at] = power;
                split.most = split.most.max(power);
            }
        }
        Some(split)
    }
}

/// One group of factors of a row of A.
struct Left {
    /// Mantissa, exponent and row of B.
    factors: [(i32, i32, usize); 16],
    count: usize,
}

by_level!(
    /// The sums of products of `left` with the `n` columns of B and their greatest exponents, as [`aligned`] has them;
    /// `scale` is what brings a product to 24 bits behind the point.
    align_row, (left: &Left, b: &Split, n: usize, scale: i32, sums: &mut [i32; 32], tops: &mut [i32; 32]), {
        *sums = [0; 32];
        *tops = [2 * ZERO; 32];
        let present = left.factors.iter().take(left.count).filter(|(mantissa, ..)| *mantissa != 0);
        for (_, exponent, row) in present.clone() {
            let exponents = &b.exponent[row * n..][..n];
            for (top, other) in tops.iter_mut().zip(exponents) {
                *top = (*top).max(exponent + other);
            }
        }
        for (mantissa, exponent, row) in present {
            let exponents = &b.exponent[row * n..][..n];
            let mantissas = &b.mantissa[row * n..][..n];
            for j in 0..n {
                let product = mantissa * mantissas[j];
                let right = (tops[j] - (exponent + exponents[j])).min(31);
                let magnitude = (product.unsigned_abs() << scale) >> right;
                let sign = product >> 31;
                sums[j] += (magnitude as i32 ^ sign) - sign;
            }
        }
    }
);

/// Adds `count` products to a row of `n` accumulators; `factor` tells where each one's factor of A and row of B are.
pub(super) fn sum_row(
    sums: &mut [u32],
    count: usize,
    format: Format,
    [a, b]: [&Split; 2],
    factor: impl Fn(usize) -> (usize, usize),
) {
    let n = sums.len().min(32);
    let size = format.group().min(count).max(1);
    let splits = format.splits();
    let scale = 24 - 2 * (format.precision() - 1);
    let (mut aligned, mut tops) = ([[0; 32]; 2], [[0; 32]; 2]);
    for first in (0..count).step_by(size) {
        let used = size.min(count - first);
        let halves = if splits { 2 } else { 1 };
        for half in 0..halves {
            let mut left = Left {
                factors: [(0, 0, 0); 16],
                count: 0,
            };
            for t in (first + half..first + used).step_by(halves) {
                let (at, row) = factor(t);
                left.factors[left.count] = (a.mantissa[at], a.exponent[at], row);
                left.count += 1;
            }
            align_row(&left, b, n, scale, &mut aligned[half], &mut tops[half]);
        }
        for (j, sum) in sums.iter_mut().enumerate().take(n) {
            let part = |half: usize| {
                let top = tops[half][j];
                (top > NOTHING).then_some((i64::from(aligned[half][j]), top))
            };
            let all = if splits {
                joined(part(0), part(1))
            } else {
                part(0)
            };
            let c = f32::from_bits(*sum);
            *sum = if c.is_finite() {
                accumulated(c, all, splits).to_bits()
            } else if c.is_nan() {
                fp::NAN32
            } else {
                *sum
            };
        }
    }
}

/// Whether products of two blocks stay below what counts as infinite.
pub(super) fn in_range(a: &Split, b: &Split) -> bool {
    // A product is less than four times what its exponents say.
    a.most + b.most < 126
}

/// The accumulator after `count` products, whose factors `factors` gives.
pub(super) fn sum(
    start: f32,
    count: usize,
    format: Format,
    factors: impl Fn(usize) -> [f32; 2],
) -> f32 {
    let mut products = [Product {
        value: 0.0,
        exponent: 0,
    }; 16];
    let size = format.group().min(count).max(1);
    let mut sum = start;
    for first in (0..count).step_by(size) {
        let used = size.min(count - first);
        for (at, product) in products.iter_mut().enumerate().take(used) {
            *product = Product::new(factors(first + at));
        }
        sum = group(sum, &products[..used], format.splits());
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(start: f32, pairs: &[[f32; 2]], format: Format) -> f32 {
        sum(start, pairs.len(), format, |at| pairs[at])
    }

    #[test]
    fn groups_keep_24_bits_below_their_greatest_product() {
        // 2^-25 falls out beside 1, 2^-24 does not; both signs are truncated towards 0.
        let tiny = |power: i32| [2f32.powi(power), 1.0];
        assert_eq!(of(-1.0, &[[1.0, 1.0], tiny(-25)], Format::F16), 0.0);
        assert_eq!(
            of(-1.0, &[[1.0, 1.0], tiny(-24)], Format::F16),
            2f32.powi(-24)
        );
        assert_eq!(
            of(1.0, &[[-1.0, 1.0], [-(2f32.powi(-25)), 1.0]], Format::F16),
            0.0
        );
        // A new group starts from a rounded accumulator.
        let mut pairs = vec![[1.0, 1.0]; 1];
        pairs.resize(8, [0.0, 0.0]);
        pairs.push(tiny(-25));
        assert_eq!(of(-1.0, &pairs, Format::F16), 2f32.powi(-25));
    }

    #[test]
    fn the_accumulator_is_aligned_downwards() {
        // Beside a product of 1, an accumulator loses what is below 2^-24, towards minus infinity.
        let c = -(2f32.powi(-25));
        let expected = 1.0 - 2f32.powi(-24);
        assert_eq!(of(c, &[[1.0, 1.0]], Format::Bf16), expected);
        assert_eq!(of(-c, &[[1.0, 1.0]], Format::Bf16), 1.0);
        // 8-bit formats drop it where it is more than 25 exponents below.
        let c = -(2f32.powi(-26));
        assert_eq!(of(c, &[[1.0, 1.0]], Format::Fp8), 1.0);
        assert_eq!(of(c, &[[1.0, 1.0]], Format::F16), expected);
        // Products that all are 0 leave it as it is.
        assert_eq!(of(1e-40, &[[0.0, 1.0]], Format::Xf32), 1e-40);
    }

    #[test]
    fn rows_are_what_their_elements_are() {
        let mut state = 1u64;
        let mut random = || {
            state = state
                .wrapping_mul(0x5851_F42D_4C95_7F2D)
                .wrapping_add(0x1405_7B7E_F767_814F);
            (state >> 33) as u32
        };
        for format in [
            Format::F16,
            Format::Bf16,
            Format::Xf32,
            Format::Fp8,
            Format::Bf8,
        ] {
            for round in 0..40 {
                let (n, count) = (16, 32);
                let mut block = || {
                    let mut block = [0; ELEMENTS];
                    for slot in &mut block[..n * count] {
                        *slot = loop {
                            // Zeros, numbers near each other, and all others.
                            let word = match random() % 4 {
                                0 => 0,
                                1 => random() & 0x8007_8007,
                                _ => random() ^ random() << 16,
                            };
                            let value = f32::from_bits((format.value())(word));
                            if value.abs() < 1e15 {
                                break value.to_bits();
                            }
                        };
                    }
                    block
                };
                let (a, b) = (block(), block());
                let mut sums: Vec<u32> = (0..n as u32).map(|_| random() & 0xBFFF_FFFF).collect();
                if round % 4 == 0 {
                    sums[3] = 0xFF80_0000;
                    sums[4] = 0x7F80_0001;
                    sums[5] = 0;
                }
                let expected: Vec<u32> = (0..n)
                    .map(|j| {
                        let factors = |t: usize| [a[t * n], b[t * n + j]].map(f32::from_bits);
                        sum(f32::from_bits(sums[j]), count, format, factors).to_bits()
                    })
                    .collect();
                let split = |block: &Block| Split::new(block, n * count, format).unwrap();
                let (x, y) = (split(&a), split(&b));
                assert!(in_range(&x, &y));
                sum_row(&mut sums, count, format, [&x, &y], |t| (t * n, t));
                assert_eq!(sums, expected, "{format:?}");
            }
        }
    }

    #[test]
    fn infinities_and_nans_follow_the_rules() {
        let inf = f32::INFINITY;
        assert_eq!(of(1.0, &[[inf, 1.0]], Format::F16), inf);
        assert!(of(-inf, &[[inf, 1.0]], Format::F16).is_nan());
        assert!(of(1.0, &[[inf, 0.0]], Format::F16).is_nan());
        // A product beyond the range counts as infinite, whatever the sum would be.
        let big = 2f32.powi(64);
        assert_eq!(of(-1e38, &[[big, big]], Format::Bf16), inf);
        assert!(of(0.0, &[[big, big], [-big, big]], Format::Bf16).is_nan());
    }
}
