// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Matrix instructions.
//!
//! D = A x B + C for independent blocks, whatever EXEC and MODE are.  Where the elements lie follows from the shape:
//! see [`Shape`].  How sums are rounded differs by type and is told at [`Kind`].

use super::constant;
use super::illegal;
use super::Exception;
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
}

/// Rows, columns, inner length, blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    m: usize,
    n: usize,
    k: usize,
    blocks: usize,
}

/// What an opcode does.
#[derive(Clone, Copy)]
pub(super) enum Action {
    Read,
    Write,
    Multiply { kind: KindOf, shape: Shape },
}

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
    let rest = row.name.strip_prefix("v_mfma_")?;
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
        // The fused dot products of gfx942 are not executed.
        _ => return None,
    };
    // All 64 lanes hold the result: its registers tell how many blocks there are.
    let words = if kind == Kind::F64 { 2 } else { 1 };
    let found = row.dst[0].regs() / words * 64 / (m * n);
    let blocks = blocks.unwrap_or(found);
    let shape = Shape { m, n, k, blocks };
    (blocks == found && blocks > 0).then_some(Action::Multiply {
        kind: KindOf(kind),
        shape,
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

fn flush(x: f32) -> f32 {
    if x.is_subnormal() {
        if x.is_sign_negative() {
            -0.0
        } else {
            0.0
        }
    } else {
        x
    }
}

/// An input of 16 bits; denormals count as +0.
fn narrow(kind: Kind, bits: u32) -> f32 {
    let value = f32::from_bits(if kind == Kind::F16 {
        if bits & 0x7C00 == 0 {
            return 0.0;
        }
        fp::f16_to_f32(bits)
    } else {
        bits << 16
    });
    if value.is_subnormal() {
        0.0
    } else {
        value
    }
}

/// A tuple of registers.
struct Tuple<'a> {
    wave: &'a Wave,
    number: usize,
    acc: bool,
}

impl Tuple<'_> {
    fn word(&self, lane: usize, at: usize) -> u32 {
        self.wave.vgpr(self.number + at, self.acc)[lane]
    }

    /// Element `local` of 16 bits.
    fn half(&self, lane: usize, local: usize) -> u32 {
        self.word(lane, local / 2) >> (16 * (local % 2)) & 0xFFFF
    }

    fn byte(&self, lane: usize, local: usize) -> i32 {
        i32::from((self.word(lane, local / 4) >> (8 * (local % 4))) as u8 as i8)
    }

    fn double(&self, lane: usize, pair: usize) -> u64 {
        u64::from(self.word(lane, 2 * pair)) | u64::from(self.word(lane, 2 * pair + 1)) << 32
    }
}

/// One element of a result on 32 bits: `a(k)` and `b(k)` are lane and element of the inputs.
fn sum32(
    kind: Kind,
    length: usize,
    tuples: [&Tuple<'_>; 2],
    place: impl Fn(usize) -> [(usize, usize); 2],
    start: u32,
) -> u32 {
    let [ta, tb] = tuples;
    match kind {
        Kind::F32 => (0..length).fold(start, |sum, k| {
            let [a, b] = place(k);
            fp::fma32_near(ta.word(a.0, a.1), tb.word(b.0, b.1), sum)
        }),
        Kind::I8 => (0..length).fold(start, |sum, k| {
            let [a, b] = place(k);
            let product = ta.byte(a.0, a.1) * tb.byte(b.0, b.1);
            sum.wrapping_add(product as u32)
        }),
        _ => {
            let group = if kind == Kind::Bf16Pairs { 2 } else { 4 };
            let start = f32::from_bits(start);
            let start = if start.is_subnormal() { 0.0 } else { start };
            let sum = (0..length / group).fold(start, |sum, group_at| {
                let product = |within: usize| {
                    let [a, b] = place(group_at * group + within);
                    let a = narrow(kind, ta.half(a.0, a.1));
                    // Of 8 or 11 bits each: the product is exact in `f64`.
                    f64::from(a) * f64::from(narrow(kind, tb.half(b.0, b.1)))
                };
                let pair = |at: usize| flush(fp::add_odd(product(at), product(at + 1)) as f32);
                let dot = if group == 4 {
                    flush(pair(0) + pair(2))
                } else {
                    pair(0)
                };
                flush(sum + dot)
            });
            if sum.is_nan() {
                fp::NAN32
            } else {
                sum.to_bits()
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
    } = action
    else {
        return transfer(wave, inst);
    };
    let Ext::Mai { cbsz, abid, blgp } = inst.ext else {
        return Err(illegal(inst, "no broadcast fields"));
    };
    let negates = inst.row.has(b'n') && wave.asic() == Asic::Gfx942;
    let group = 1usize << cbsz;
    if group > shape.blocks || (cbsz > 0 && usize::from(abid) >= group) {
        return Err(illegal(inst, "the broadcast exceeds the blocks"));
    }
    if kind == Kind::F64 && blgp != 0 && !negates {
        return Err(illegal(inst, "doubles are not permuted"));
    }
    let tuple =
        |operand: Operand| register(operand).map(|(number, acc)| Tuple { wave, number, acc });
    let (Some(a), Some(b)) = (tuple(inst.src[0]), tuple(inst.src[1])) else {
        return Err(illegal(inst, "a factor is no register"));
    };
    let c = tuple(inst.src[2]);
    let fixed = match inst.src[2] {
        Operand::Const(code) if kind == Kind::F64 => constant(code, Ty::B64),
        Operand::Const(code) => constant(code, Ty::B32),
        _ => 0,
    };
    let regs = inst.row.dst[0].regs();
    let mut out = vec![[0; 64]; regs];
    let permutation = if negates { 0 } else { blgp };
    for block in 0..shape.blocks {
        let a_block = if cbsz == 0 {
            block
        } else {
            block / group * group + usize::from(abid)
        };
        for i in 0..shape.m {
            for j in 0..shape.n {
                let place = |k: usize| {
                    let (lane, local) = shape.input(shape.n, j, block, k);
                    [
                        shape.input(shape.m, i, a_block, k),
                        (permuted(permutation, lane), local),
                    ]
                };
                if kind == Kind::F64 {
                    let (lane, pair) = shape.output64(i, j, block);
                    let sign = |bit: u32| u64::from(negates && blgp >> bit & 1 != 0) << 63;
                    let start = c.as_ref().map_or(fixed, |c| c.double(lane, pair));
                    let sum = (0..shape.k).fold(start ^ sign(2), |sum, k| {
                        let [x, y] = place(k);
                        let (x, y) = (a.double(x.0, x.1), b.double(y.0, y.1));
                        fp::fma64(x ^ sign(0), y ^ sign(1), sum, 0)
                    });
                    out[2 * pair][lane] = sum as u32;
                    out[2 * pair + 1][lane] = (sum >> 32) as u32;
                } else {
                    let (lane, at) = shape.output(i, j, block);
                    let start = c.as_ref().map_or(fixed as u32, |c| c.word(lane, at));
                    out[at][lane] = sum32(kind, shape.k, [&a, &b], place, start);
                }
            }
        }
    }
    if let Some((number, acc)) = register(inst.dst) {
        for (at, row) in out.iter().enumerate() {
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
