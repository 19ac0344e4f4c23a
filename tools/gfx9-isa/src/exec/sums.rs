// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Sums of products of one block of a matrix, by rows of the result, as gfx90a computes them.

use super::mai::Shape;
use crate::fp;
use crate::simd::by_level;
use crate::simd::level;
use crate::simd::Level;

/// A denormal result becomes a zero of its sign.
#[inline(always)]
fn flush(x: f32) -> f32 {
    let bits = x.to_bits();
    let keep = if bits & 0x7F80_0000 == 0 {
        0x8000_0000
    } else {
        !0
    };
    f32::from_bits(bits & keep)
}

/// An `f16` as factor; denormals count as +0.
#[inline(always)]
pub(super) fn factor16(bits: u32) -> f32 {
    let value = f32::from_bits(fp::f16_to_f32(bits & 0xFFFF));
    if bits & 0x7C00 == 0 {
        0.0
    } else {
        value
    }
}

/// A bfloat16 as factor; denormals count as +0.
#[inline(always)]
pub(super) fn factor_bf16(bits: u32) -> f32 {
    if bits & 0x7F80 == 0 {
        0.0
    } else {
        f32::from_bits(bits << 16)
    }
}

/// Elements of one block of a matrix, at most: 32 rows of 32.
pub(super) const ELEMENTS: usize = 1024;

/// One block: of factors by inner index, then row or column; of sums by row, then column.  The elements are those of
/// the kind: `f32` or `i32`, as bits.
pub(super) type Block = [u32; ELEMENTS];

/// The same on 64 bits, at most 16 rows of 16.
pub(super) type Wide = [u64; 256];

by_level!(
    /// Fused multiply-adds in ascending k.
    pub(super) sum_f32, (shape: &Shape, a: &Block, b: &Block, sums: &mut Block), {
        for (i, sums) in sums.chunks_exact_mut(shape.n).take(shape.m).enumerate() {
            for k in 0..shape.k {
                let x = f32::from_bits(a[k * shape.m + i]);
                let b = &b[k * shape.n..][..shape.n];
                for (sum, y) in sums.iter_mut().zip(b) {
                    let fused = x.mul_add(f32::from_bits(*y), f32::from_bits(*sum));
                    *sum = fused.to_bits();
                }
            }
        }
    }
);

by_level!(
    /// As [`sum_f32`].
    pub(super) sum_f64, (shape: &Shape, a: &Wide, b: &Wide, sums: &mut Wide), {
        for (i, sums) in sums.chunks_exact_mut(shape.n).take(shape.m).enumerate() {
            for k in 0..shape.k {
                let x = f64::from_bits(a[k * shape.m + i]);
                let b = &b[k * shape.n..][..shape.n];
                for (sum, y) in sums.iter_mut().zip(b) {
                    let fused = x.mul_add(f64::from_bits(*y), f64::from_bits(*sum));
                    *sum = fused.to_bits();
                }
            }
        }
    }
);

by_level!(
    /// Exact products, wrapping sums.
    pub(super) sum_i32, (shape: &Shape, a: &Block, b: &Block, sums: &mut Block), {
        for (i, sums) in sums.chunks_exact_mut(shape.n).take(shape.m).enumerate() {
            for k in 0..shape.k {
                let x = a[k * shape.m + i];
                let b = &b[k * shape.n..][..shape.n];
                for (sum, y) in sums.iter_mut().zip(b) {
                    *sum = sum.wrapping_add(x.wrapping_mul(*y));
                }
            }
        }
    }
);

by_level!(
    /// Groups of four products of 11 bits, which are exact.
    pub(super) sum_f16, (shape: &Shape, a: &Block, b: &Block, sums: &mut Block), {
        let n = shape.n;
        let f = f32::from_bits;
        for (i, sums) in sums.chunks_exact_mut(n).take(shape.m).enumerate() {
            for k in (0..shape.k).step_by(4) {
                let x: [f32; 4] = std::array::from_fn(|at| f(a[(k + at) * shape.m + i]));
                let (b0, b1) = (&b[k * n..][..n], &b[(k + 1) * n..][..n]);
                let (b2, b3) = (&b[(k + 2) * n..][..n], &b[(k + 3) * n..][..n]);
                for j in 0..n {
                    let low = flush(x[0] * f(b0[j]) + x[1] * f(b1[j]));
                    let high = flush(x[2] * f(b2[j]) + x[3] * f(b3[j]));
                    sums[j] = flush(f(sums[j]) + flush(low + high)).to_bits();
                }
            }
        }
    }
);

by_level!(
    /// Groups of `group` (2 or 4) products of 8 bits, which are exact on 64 bits; so is the sum of two, or it is the
    /// greater one but for bits that do not count on 32.
    pub(super) sum_bf16, (shape: &Shape, group: usize, a: &Block, b: &Block, sums: &mut Block), {
        let n = shape.n;
        let f = |bits: u32| f64::from(f32::from_bits(bits));
        for (i, sums) in sums.chunks_exact_mut(n).take(shape.m).enumerate() {
            for k in (0..shape.k).step_by(group) {
                let x: [f64; 4] = std::array::from_fn(|at| f(a[(k + at % group) * shape.m + i]));
                let row = |at: usize| &b[(k + at % group) * n..][..n];
                let (b0, b1, b2, b3) = (row(0), row(1), row(2), row(3));
                for j in 0..n {
                    let low = flush((x[0] * f(b0[j]) + x[1] * f(b1[j])) as f32);
                    let high = flush((x[2] * f(b2[j]) + x[3] * f(b3[j])) as f32);
                    let dot = if group == 4 { flush(low + high) } else { low };
                    sums[j] = flush(f32::from_bits(sums[j]) + dot).to_bits();
                }
            }
        }
    }
);
