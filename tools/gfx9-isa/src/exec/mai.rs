// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Matrix instructions.
//!
//! D = A x B + C for independent blocks, whatever EXEC and MODE are.  Where the elements lie follows from the shape:
//! see [`Shape`].  How sums are rounded differs by type and is told at [`Kind`].

use super::constant;
use super::fused;
use super::fused::Format;
use super::illegal;
use super::sums;
use super::sums::Block;
use super::sums::Wide;
use super::sums::ELEMENTS;
use super::Exception;
use crate::env::Lanes;
use crate::fp;
use crate::inst::Asic;
use crate::inst::Ext;
use crate::inst::Inst;
use crate::inst::Operand;
use crate::tables::Row;
use crate::tables::Ty;
use crate::wave::Wave;

/// Types of the elements, and with them the order of the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Fused multiply-adds in ascending k.
    F32,
    F64,
    /// Exact, wrapping.
    I8,
    /// gfx90a: groups of four products, summed as a tree, each sum rounded and flushed.
    F16,
    Bf16Pairs,
    Bf16Quads,
    /// gfx942: fused groups of products of these formats, see [`super::fused`].
    Fused(Format, Format),
}

/// Rows, columns, inner length, blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) blocks: usize,
}

/// What an opcode does.
#[derive(Clone, Copy)]
pub(super) enum Action {
    Read,
    Write,
    Multiply {
        kind: KindOf,
        shape: Shape,
        /// Of each four factors of A two are stored, with their places.
        sparse: bool,
    },
}

/// Registers of the greatest result.
const ROWS: usize = 32;

/// A kind that other modules carry but do not look into.
#[derive(Clone, Copy)]
pub(super) struct KindOf(Kind);

fn number(text: &mut &str) -> Option<usize> {
    let end = text
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    *text = rest;
    digits.parse().ok()
}

/// The action of a row: the name tells shape and types.
pub(super) fn bind(row: &Row) -> Option<Action> {
    match row.name {
        "v_accvgpr_read_b32" => return Some(Action::Read),
        "v_accvgpr_write_b32" => return Some(Action::Write),
        _ => {}
    }
    let dense = row.name.strip_prefix("v_mfma_");
    let rest = dense.or_else(|| row.name.strip_prefix("v_smfmac_"))?;
    let sparse = dense.is_none();
    let (_, mut rest) = rest.split_once('_')?;
    let m = number(&mut rest)?;
    rest = rest.strip_prefix('x')?;
    let n = number(&mut rest)?;
    rest = rest.strip_prefix('x')?;
    let k = number(&mut rest)?;
    let mut blocks = None;
    if let Some(mut part) = rest.strip_prefix('_') {
        // gfx942's names tell the number of blocks.
        if let Some(count) = number(&mut part) {
            blocks = Some(count);
            part = part.strip_prefix("b_")?;
        }
        rest = part;
    }
    let new_names = row.asics == crate::tables::G942;
    let kind = match rest {
        "f32" => Kind::F32,
        "f64" => Kind::F64,
        "i8" => Kind::I8,
        "f16" if !new_names => Kind::F16,
        "bf16" if !new_names => Kind::Bf16Pairs,
        "bf16_1k" => Kind::Bf16Quads,
        "xf32" => Kind::Fused(Format::Xf32, Format::Xf32),
        "f16" => Kind::Fused(Format::F16, Format::F16),
        "bf16" => Kind::Fused(Format::Bf16, Format::Bf16),
        _ => {
            let (a, b) = rest.split_once('_')?;
            Kind::Fused(Format::of_8(a)?, Format::of_8(b)?)
        }
    };
    // All 64 lanes hold the result: its registers tell how many blocks there are.
    let words = if kind == Kind::F64 { 2 } else { 1 };
    let found = row.dst[0].regs() / words * 64 / (m * n);
    let blocks = blocks.unwrap_or(found);
    let shape = Shape { m, n, k, blocks };
    (blocks == found && blocks > 0).then_some(Action::Multiply {
        kind: KindOf(kind),
        shape,
        sparse,
    })
}

impl Shape {
    /// Lane and element of row `x` (of `dim`) and inner index `k` of an input.
    fn input(&self, dim: usize, x: usize, block: usize, k: usize) -> (usize, usize) {
        let groups = 64 / (dim * self.blocks);
        let per_lane = (self.k / groups).max(1);
        let lane = x + dim * (block + self.blocks * (k / per_lane));
        (lane, k % per_lane)
    }

    /// Lane and register of element `i`, `j` of a result of 32 bits.
    fn output(&self, i: usize, j: usize, block: usize) -> (usize, usize) {
        let rows = 64 / self.n;
        let per_group = 64usize.div_ceil(self.m * self.n / 4);
        let lane = block % per_group * self.n + i / 4 % rows * per_group * self.n + j;
        let register = if per_group == 1 {
            block * (self.m * self.n / 64) + i / (4 * rows) * 4 + i % 4
        } else {
            // Small blocks lie side by side in the lanes.
            block / per_group * 4 + i % 4
        };
        (lane & 63, register)
    }

    /// Lane and register pair of a result of 64 bits.
    fn output64(&self, i: usize, j: usize, block: usize) -> (usize, usize) {
        let rows = 64 / self.n;
        let per_group = 64usize.div_ceil(self.m * self.n);
        let lane = block % per_group * self.n + i % rows * per_group * self.n + j;
        (lane & 63, if per_group == 1 { i / rows } else { 0 })
    }
}

fn register(operand: Operand) -> Option<(usize, bool)> {
    match operand {
        Operand::V(number) => Some((number.into(), false)),
        Operand::A(number) => Some((number.into(), true)),
        _ => None,
    }
}

/// The lane of B that is read in place of `lane`.
fn permuted(blgp: u8, lane: usize) -> usize {
    match blgp {
        1 => lane % 32,
        2 => lane % 32 + 32,
        3 => (lane + 16) % 64,
        4 => lane % 16,
        5 => lane % 16 + 16,
        6 => lane % 16 + 32,
        7 => lane % 16 + 48,
        _ => lane,
    }
}

/// Rows of registers, copied so that results may take their place.
struct Tuple([Lanes; 4]);

impl Tuple {
    /// The rows of a factor, with lanes exchanged.
    fn new(wave: &Wave, operand: Operand, regs: usize, permutation: u8) -> Option<Self> {
        let (number, acc) = register(operand)?;
        let mut rows = [[0; 64]; 4];
        for (at, row) in rows.iter_mut().enumerate().take(regs) {
            let from = wave.vgpr(number + at, acc);
            *row = match permutation {
                0 => *from,
                _ => std::array::from_fn(|lane| from[permuted(permutation, lane) & 63]),
            };
        }
        Some(Self(rows))
    }

    /// One block of factors whose elements have `bits` bits; `value` converts what is shifted to the lowest bits.
    fn factors(
        &self,
        shape: &Shape,
        dim: usize,
        block: usize,
        bits: usize,
        value: fn(u32) -> u32,
        to: &mut Block,
    ) {
        for (k, to) in to.chunks_exact_mut(dim).take(shape.k).enumerate() {
            let (lane, local) = shape.input(dim, 0, block, k);
            let row = &self.0[local * bits / 32 & 3];
            let shift = local * bits % 32;
            for (to, word) in to.iter_mut().zip(row.iter().skip(lane)) {
                *to = value(word >> shift);
            }
        }
    }

    /// As [`Tuple::factors`], of 64 bits.
    fn doubles(&self, shape: &Shape, dim: usize, block: usize, flip: u64, to: &mut Wide) {
        for (k, to) in to.chunks_exact_mut(dim).take(shape.k).enumerate() {
            let (lane, _) = shape.input(dim, 0, block, k);
            for (to, at) in to.iter_mut().zip(lane..) {
                let bits = u64::from(self.0[0][at & 63]) | u64::from(self.0[1][at & 63]) << 32;
                *to = bits ^ flip;
            }
        }
    }
}

/// What a matrix instruction works on.
struct Operands<'a> {
    shape: &'a Shape,
    a: Tuple,
    b: Tuple,
    /// Block of A that each group of blocks shares, and blocks per group.
    broadcast: (usize, usize),
    /// Signs of A, B and C that are changed, as bits.
    negate: u8,
    /// Where the stored factors of a sparse A belong: two bits each, per lane.
    places: Option<Lanes>,
}

impl Operands<'_> {
    fn a_block(&self, block: usize) -> usize {
        let (from, group) = self.broadcast;
        if group == 1 {
            block
        } else {
            block / group * group + from
        }
    }

    /// Adds the products to the rows `out`, on 32 bits.
    fn narrow(&self, kind: Kind, out: &mut [Lanes; ROWS]) {
        let shape = self.shape;
        let (bits, value): (usize, fn(u32) -> u32) = match kind {
            Kind::I8 => (8, |word| i32::from(word as u8 as i8) as u32),
            Kind::F16 => (16, |word| sums::factor16(word).to_bits()),
            Kind::Bf16Pairs | Kind::Bf16Quads => (16, |word| sums::factor_bf16(word).to_bits()),
            Kind::F32 | Kind::F64 => (32, |word| word),
            Kind::Fused(a, b) => return self.fused(a, b, out),
        };
        if self.places.is_some() {
            return self.sparse_bytes(out);
        }
        let flushed = matches!(kind, Kind::F16 | Kind::Bf16Pairs | Kind::Bf16Quads);
        let (mut a, mut b) = ([0; ELEMENTS], [0; ELEMENTS]);
        let (mut start, mut sums) = ([0; ELEMENTS], [0; ELEMENTS]);
        for block in 0..shape.blocks {
            let from = self.a_block(block);
            self.a.factors(shape, shape.m, from, bits, value, &mut a);
            self.b.factors(shape, shape.n, block, bits, value, &mut b);
            let used = shape.m * shape.n;
            for (i, start) in start[..used].chunks_exact_mut(shape.n).enumerate() {
                let (lane, row) = shape.output(i, 0, block);
                start.copy_from_slice(&out[row][lane..][..shape.n]);
            }
            if flushed {
                for start in &mut start[..used] {
                    if f32::from_bits(*start).is_subnormal() {
                        *start = 0;
                    }
                }
            }
            sums[..used].copy_from_slice(&start[..used]);
            match kind {
                Kind::F32 | Kind::F64 => sums::sum_f32(shape, &a, &b, &mut sums),
                Kind::I8 => sums::sum_i32(shape, &a, &b, &mut sums),
                Kind::F16 => sums::sum_f16(shape, &a, &b, &mut sums),
                Kind::Bf16Pairs => sums::sum_bf16(shape, 2, &a, &b, &mut sums),
                Kind::Bf16Quads | Kind::Fused(..) => sums::sum_bf16(shape, 4, &a, &b, &mut sums),
            }
            if kind != Kind::I8 {
                for (at, sum) in sums[..used].iter_mut().enumerate() {
                    if fp::is_nan32(*sum) {
                        let (i, j) = (at / shape.n, at % shape.n);
                        *sum = if flushed {
                            fp::NAN32
                        } else {
                            // Which NaN it is follows from the order of the operands.
                            (0..shape.k).fold(start[at], |sum, k| {
                                fp::fma32_near(a[k * shape.m + i], b[k * shape.n + j], sum)
                            })
                        };
                    }
                }
            }
            for (i, sums) in sums[..used].chunks_exact(shape.n).enumerate() {
                let (lane, row) = shape.output(i, 0, block);
                out[row][lane..][..shape.n].copy_from_slice(sums);
            }
        }
    }

    /// The factors of A in the order in which they are stored, with the inner index of each.
    fn stored(
        &self,
        bits: usize,
        value: fn(u32) -> u32,
        a: &mut Block,
        index: &mut Block,
    ) -> usize {
        let shape = self.shape;
        let groups = 64 / shape.m;
        let per_lane = shape.k / groups;
        let stored = per_lane / 2;
        let places = self.places.unwrap_or([0; 64]);
        for t in 0..groups * stored {
            let (group, s) = (t / stored, t % stored);
            let row = &self.a.0[s * bits / 32 & 3];
            for i in 0..shape.m {
                let lane = i + shape.m * group;
                let place = places[lane & 63] >> (2 * s) & 3;
                a[t * shape.m + i] = value(row[lane & 63] >> (s * bits % 32));
                index[t * shape.m + i] = (group * per_lane + s / 2 * 4) as u32 + place;
            }
        }
        groups * stored
    }

    /// Sparse products of bytes.
    fn sparse_bytes(&self, out: &mut [Lanes; ROWS]) {
        let shape = self.shape;
        let byte = |word: u32| i32::from(word as u8 as i8) as u32;
        let (mut a, mut b, mut index) = ([0; ELEMENTS], [0; ELEMENTS], [0; ELEMENTS]);
        let count = self.stored(8, byte, &mut a, &mut index);
        self.b.factors(shape, shape.n, 0, 8, byte, &mut b);
        for i in 0..shape.m {
            for j in 0..shape.n {
                let (lane, row) = shape.output(i, j, 0);
                out[row][lane] = (0..count).fold(out[row][lane], |sum, t| {
                    let at = t * shape.m + i;
                    let y = b[index[at] as usize * shape.n + j];
                    sum.wrapping_add(a[at].wrapping_mul(y))
                });
            }
        }
    }

    /// Products and sums as gfx942 fuses them.
    fn fused(&self, of_a: Format, of_b: Format, out: &mut [Lanes; ROWS]) {
        let shape = self.shape;
        let (mut a, mut b, mut index) = ([0; ELEMENTS], [0; ELEMENTS], [0; ELEMENTS]);
        for block in 0..shape.blocks {
            let from = self.a_block(block);
            let count = if self.places.is_some() {
                self.stored(of_a.bits(), of_a.value(), &mut a, &mut index)
            } else {
                let bits = of_a.bits();
                self.a
                    .factors(shape, shape.m, from, bits, of_a.value(), &mut a);
                for (k, index) in index.chunks_exact_mut(shape.m).take(shape.k).enumerate() {
                    index.fill(k as u32);
                }
                shape.k
            };
            let bits = of_b.bits();
            self.b
                .factors(shape, shape.n, block, bits, of_b.value(), &mut b);
            let used = (count * shape.m, shape.k * shape.n);
            let x = fused::Split::new(&a, used.0, of_a);
            let y = fused::Split::new(&b, used.1, of_b);
            if let (Some(x), Some(y)) = (&x, &y) {
                if fused::in_range(x, y) {
                    for i in 0..shape.m {
                        let (lane, row) = shape.output(i, 0, block);
                        let sums = &mut out[row][lane..][..shape.n];
                        fused::sum_row(sums, count, of_a, [x, y], |t| {
                            let at = t * shape.m + i;
                            (at, index[at] as usize)
                        });
                    }
                    continue;
                }
            }
            for i in 0..shape.m {
                for j in 0..shape.n {
                    let (lane, row) = shape.output(i, j, block);
                    let factors = |t: usize| {
                        let at = t * shape.m + i;
                        let y = b[index[at] as usize * shape.n + j];
                        [a[at], y].map(f32::from_bits)
                    };
                    let sum = fused::sum(f32::from_bits(out[row][lane]), count, of_a, factors);
                    out[row][lane] = sum.to_bits();
                }
            }
        }
    }

    /// As [`Operands::narrow`], on 64 bits.
    fn wide(&self, out: &mut [Lanes; ROWS]) {
        let shape = self.shape;
        let sign = |bit: u32| u64::from(self.negate >> bit & 1) << 63;
        let (mut a, mut b) = ([0; 256], [0; 256]);
        let mut start = [0; 256];
        for block in 0..shape.blocks {
            let from = self.a_block(block);
            self.a.doubles(shape, shape.m, from, sign(0), &mut a);
            self.b.doubles(shape, shape.n, block, sign(1), &mut b);
            let used = shape.m * shape.n;
            for (at, start) in start[..used].iter_mut().enumerate() {
                let (lane, pair) = shape.output64(at / shape.n, at % shape.n, block);
                let word = |half: usize| u64::from(out[2 * pair + half][lane]);
                *start = (word(0) | word(1) << 32) ^ sign(2);
            }
            let mut sums = start;
            sums::sum_f64(shape, &a, &b, &mut sums);
            for (at, sum) in sums[..used].iter_mut().enumerate() {
                let (i, j) = (at / shape.n, at % shape.n);
                if fp::is_nan64(*sum) {
                    *sum = (0..shape.k).fold(start[at], |sum, k| {
                        fp::fma64(a[k * shape.m + i], b[k * shape.n + j], sum, 0)
                    });
                }
                let (lane, pair) = shape.output64(i, j, block);
                out[2 * pair][lane] = *sum as u32;
                out[2 * pair + 1][lane] = (*sum >> 32) as u32;
            }
        }
    }
}

/// Executes one of them.
///
/// # Errors
/// Where a field has a value that the shape does not allow.
pub(super) fn execute(wave: &mut Wave, inst: &Inst, action: Action) -> Result<(), Exception> {
    let Action::Multiply {
        kind: KindOf(kind),
        shape,
        sparse,
    } = action
    else {
        return transfer(wave, inst);
    };
    let Ext::Mai { cbsz, abid, blgp } = inst.ext else {
        return Err(illegal(inst, "no broadcast fields"));
    };
    let negates = inst.row.has(b'n') && wave.asic() == Asic::Gfx942;
    let group = if sparse { 1 } else { 1usize << cbsz };
    if group > shape.blocks || (!sparse && cbsz > 0 && usize::from(abid) >= group) {
        return Err(illegal(inst, "the broadcast exceeds the blocks"));
    }
    if kind == Kind::F64 && blgp != 0 && !negates {
        return Err(illegal(inst, "doubles are not permuted"));
    }
    let permutation = if negates || sparse { 0 } else { blgp };
    let factor = |at: usize, permutation: u8| {
        Tuple::new(wave, inst.src[at], inst.row.src[at].regs(), permutation)
    };
    let (Some(a), Some(b)) = (factor(0, 0), factor(1, permutation)) else {
        return Err(illegal(inst, "a factor is no register"));
    };
    let operands = Operands {
        shape: &shape,
        a,
        b,
        broadcast: (abid.into(), group),
        negate: if negates { blgp } else { 0 },
        places: sparse.then(|| {
            let row = register(inst.src[2]).map_or([0; 64], |(at, acc)| *wave.vgpr(at, acc));
            let wide = matches!(kind, Kind::I8 | Kind::Fused(Format::Fp8 | Format::Bf8, _));
            let (bits, fields) = if wide { (16, 2) } else { (8, 4) };
            let field = if cbsz == 0 {
                u32::from(abid) % fields
            } else {
                0
            };
            row.map(|word| word >> (bits * field))
        }),
    };
    let fixed = match inst.src[2] {
        Operand::Const(code) if kind == Kind::F64 => constant(code, Ty::B64),
        Operand::Const(code) => constant(code, Ty::B32),
        _ => 0,
    };
    // The addend's rows become those of the result.
    let regs = inst.row.dst[0].regs().min(ROWS);
    let mut out = [[0; 64]; ROWS];
    let addend = if sparse { inst.dst } else { inst.src[2] };
    if let Some((number, acc)) = register(addend) {
        for (at, row) in out.iter_mut().enumerate().take(regs) {
            *row = *wave.vgpr(number + at, acc);
        }
    } else {
        for (at, row) in out.iter_mut().enumerate().take(regs) {
            let high = kind == Kind::F64 && at % 2 == 1;
            *row = [(fixed >> if high { 32 } else { 0 }) as u32; 64];
        }
    }
    if kind == Kind::F64 {
        operands.wide(&mut out);
    } else {
        operands.narrow(kind, &mut out);
    }
    if let Some((number, acc)) = register(inst.dst) {
        for (at, row) in out.iter().enumerate().take(regs) {
            wave.write_vgpr(number + at, acc, u64::MAX, row);
        }
    }
    Ok(())
}

/// `v_accvgpr_read_b32` and `v_accvgpr_write_b32`.
fn transfer(wave: &mut Wave, inst: &Inst) -> Result<(), Exception> {
    let value = match register(inst.src[0]) {
        Some((number, acc)) => *wave.vgpr(number, acc),
        None => [super::scalar(wave, inst, inst.src[0], Ty::B32)? as u32; 64],
    };
    if let Some((number, acc)) = register(inst.dst) {
        let exec = wave.exec();
        wave.write_vgpr(number, acc, exec, &value);
    }
    Ok(())
}
