// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Matrix instructions against a plain product, with the layouts of the ISA written out per shape.

#![allow(
    clippy::precedence,
    clippy::needless_range_loop,
    clippy::bool_assert_comparison,
    clippy::type_complexity,
    clippy::unwrap_used,
    clippy::panic,
    reason = "fields are shifted and masked, and lanes counted, everywhere"
)]

mod common;

use common::machine::Machine;
use common::seed;
use common::without_llvm;
use common::Random;
use gfx9_isa::inst::Asic;

/// A shape: rows (and columns), inner length, blocks; formats of A and B.
struct Case {
    asic: Asic,
    name: &'static str,
    dims: [usize; 3],
    formats: [&'static str; 2],
}

const fn case(
    asic: Asic,
    name: &'static str,
    dims: [usize; 3],
    formats: [&'static str; 2],
) -> Case {
    Case {
        asic,
        name,
        dims,
        formats,
    }
}

use Asic::Gfx90a as A;
use Asic::Gfx942 as N;

const CASES: [Case; 31] = [
    case(A, "v_mfma_f32_32x32x8f16", [32, 8, 1], ["f16"; 2]),
    case(A, "v_mfma_f32_32x32x4f16", [32, 4, 2], ["f16"; 2]),
    case(A, "v_mfma_f32_16x16x16f16", [16, 16, 1], ["f16"; 2]),
    case(A, "v_mfma_f32_16x16x4f16", [16, 4, 4], ["f16"; 2]),
    case(A, "v_mfma_f32_4x4x4f16", [4, 4, 16], ["f16"; 2]),
    case(A, "v_mfma_i32_32x32x8i8", [32, 8, 1], ["i8"; 2]),
    case(A, "v_mfma_i32_4x4x4i8", [4, 4, 16], ["i8"; 2]),
    case(A, "v_mfma_f32_32x32x2f32", [32, 2, 1], ["f32"; 2]),
    case(A, "v_mfma_f32_32x32x1f32", [32, 1, 2], ["f32"; 2]),
    case(A, "v_mfma_f32_16x16x1f32", [16, 1, 4], ["f32"; 2]),
    case(A, "v_mfma_f32_16x16x4f32", [16, 4, 1], ["f32"; 2]),
    case(A, "v_mfma_f32_16x16x16bf16_1k", [16, 16, 1], ["bf16"; 2]),
    case(A, "v_mfma_f32_32x32x4bf16_1k", [32, 4, 2], ["bf16"; 2]),
    case(A, "v_mfma_f32_32x32x4bf16", [32, 4, 1], ["bf16"; 2]),
    case(A, "v_mfma_f32_4x4x2bf16", [4, 2, 16], ["bf16"; 2]),
    case(N, "v_mfma_f32_32x32x8_f16", [32, 8, 1], ["f16"; 2]),
    case(N, "v_mfma_f32_16x16x16_f16", [16, 16, 1], ["f16"; 2]),
    case(N, "v_mfma_f32_4x4x4_16b_f16", [4, 4, 16], ["f16"; 2]),
    case(N, "v_mfma_f32_32x32x4_2b_bf16", [32, 4, 2], ["bf16"; 2]),
    case(N, "v_mfma_f32_16x16x16_bf16", [16, 16, 1], ["bf16"; 2]),
    case(N, "v_mfma_f32_16x16x8_xf32", [16, 8, 1], ["f32"; 2]),
    case(N, "v_mfma_f32_32x32x4_xf32", [32, 4, 1], ["f32"; 2]),
    case(N, "v_mfma_i32_32x32x16_i8", [32, 16, 1], ["i8"; 2]),
    case(N, "v_mfma_i32_16x16x32_i8", [16, 32, 1], ["i8"; 2]),
    case(N, "v_mfma_f32_16x16x1_4b_f32", [16, 1, 4], ["f32"; 2]),
    case(
        N,
        "v_mfma_f32_16x16x32_fp8_fp8",
        [16, 32, 1],
        ["fp8", "fp8"],
    ),
    case(
        N,
        "v_mfma_f32_16x16x32_bf8_fp8",
        [16, 32, 1],
        ["bf8", "fp8"],
    ),
    case(
        N,
        "v_mfma_f32_16x16x32_fp8_bf8",
        [16, 32, 1],
        ["fp8", "bf8"],
    ),
    case(
        N,
        "v_mfma_f32_32x32x16_fp8_fp8",
        [32, 16, 1],
        ["fp8", "fp8"],
    ),
    case(
        N,
        "v_mfma_f32_32x32x16_bf8_fp8",
        [32, 16, 1],
        ["bf8", "fp8"],
    ),
    case(
        N,
        "v_mfma_f32_32x32x16_bf8_bf8",
        [32, 16, 1],
        ["bf8", "bf8"],
    ),
];

const SPARSE: [Case; 8] = [
    case(N, "v_smfmac_f32_16x16x32_f16", [16, 32, 1], ["f16"; 2]),
    case(N, "v_smfmac_f32_32x32x16_f16", [32, 16, 1], ["f16"; 2]),
    case(N, "v_smfmac_f32_16x16x32_bf16", [16, 32, 1], ["bf16"; 2]),
    case(N, "v_smfmac_f32_32x32x16_bf16", [32, 16, 1], ["bf16"; 2]),
    case(N, "v_smfmac_i32_16x16x64_i8", [16, 64, 1], ["i8"; 2]),
    case(N, "v_smfmac_i32_32x32x32_i8", [32, 32, 1], ["i8"; 2]),
    case(
        N,
        "v_smfmac_f32_16x16x64_fp8_bf8",
        [16, 64, 1],
        ["fp8", "bf8"],
    ),
    case(
        N,
        "v_smfmac_f32_32x32x32_bf8_fp8",
        [32, 32, 1],
        ["bf8", "fp8"],
    ),
];

/// Bits of an element.
fn bits(format: &str) -> usize {
    match format {
        "f32" => 32,
        "f16" | "bf16" => 16,
        _ => 8,
    }
}

/// A small integer; the 8-bit floats have exponents that are biased by one more than usual.
fn encode(format: &str, value: i32) -> u32 {
    let small = |mantissa: u32, bias: i32| {
        let magnitude = value.unsigned_abs();
        let Some(exponent) = magnitude.checked_ilog2() else {
            return 0;
        };
        let fraction = (magnitude << mantissa >> exponent) & ((1 << mantissa) - 1);
        let sign = u32::from(value < 0) << 7;
        sign | ((exponent as i32 + bias) as u32) << mantissa | fraction
    };
    match format {
        "f16" => u32::from(half::f16::from_f32(value as f32).to_bits()),
        "bf16" => (value as f32).to_bits() >> 16,
        "fp8" => small(3, 8),
        "bf8" => small(2, 16),
        "i8" => u32::from(value as i8 as u8),
        _ => (value as f32).to_bits(),
    }
}

impl Case {
    /// Elements of an input per lane.
    fn per_lane(&self) -> usize {
        let [dim, inner, blocks] = self.dims;
        dim * inner * blocks / 64
    }

    /// Registers of a tuple of `elements` elements.
    fn regs(&self, which: usize, elements: usize) -> usize {
        elements * bits(self.formats[which]) / 32
    }

    /// Registers of the result.
    fn results(&self) -> usize {
        let [dim, _, blocks] = self.dims;
        dim * dim * blocks / 64
    }

    /// Lane and element of row `x` of an input.
    fn input(&self, x: usize, block: usize, k: usize) -> (usize, usize) {
        let [dim, _, blocks] = self.dims;
        let per_lane = self.per_lane();
        if blocks > 1 {
            (x + dim * block, k)
        } else {
            (x + dim * (k / per_lane), k % per_lane)
        }
    }

    /// Lane and register of the result.
    fn output(&self, i: usize, j: usize, block: usize) -> (usize, usize) {
        match self.dims[0] {
            32 => (j + 32 * (i / 4 % 2), 16 * block + i / 8 * 4 + i % 4),
            16 => (j + 16 * (i / 4), 4 * block + i % 4),
            _ => (j + 4 * block, i),
        }
    }

    fn is_float(&self) -> bool {
        self.formats[0] != "i8"
    }

    /// The bits of an integer as result.
    fn number(&self, value: i32) -> u32 {
        if self.is_float() {
            (value as f32).to_bits()
        } else {
            value as u32
        }
    }
}

fn tuple(first: usize, count: usize) -> String {
    if count == 1 {
        format!("v{first}")
    } else {
        format!("v[{first}:{}]", first + count - 1)
    }
}

/// Puts an element into the registers from `first` on.
fn put(machine: &mut Machine, first: usize, bits: usize, place: (usize, usize), value: u32) {
    let (lane, local) = place;
    let at = local * bits;
    let mut row = machine.get(first + at / 32);
    row[lane] |= value << (at % 32);
    machine.set(first + at / 32, row);
}

/// A matrix per block, rows of small integers that all formats have.
fn matrix(random: &mut Random, dims: [usize; 3]) -> Vec<Vec<Vec<i32>>> {
    let [dim, inner, blocks] = dims;
    let mut element = || random.below(15) as i32 - 7;
    (0..blocks)
        .map(|_| {
            (0..dim)
                .map(|_| (0..inner).map(|_| element()).collect())
                .collect()
        })
        .collect()
}

#[test]
fn small_integers_multiply_exactly_in_every_shape() {
    if without_llvm("matrices") {
        return;
    }
    let mut random = Random(seed());
    for case in CASES {
        for broadcast in [None, Some((1, 1)), Some((2, 3))] {
            let [dim, inner, blocks] = case.dims;
            if broadcast.is_some_and(|(cbsz, _)| 1 << cbsz > blocks) {
                continue;
            }
            let mut machine = Machine::new(case.asic);
            let (a, b) = (
                matrix(&mut random, case.dims),
                matrix(&mut random, case.dims),
            );
            for block in 0..blocks {
                for x in 0..dim {
                    for k in 0..inner {
                        let place = case.input(x, block, k);
                        for (which, (first, m)) in [(0, &a), (8, &b)].into_iter().enumerate() {
                            let format = case.formats[which];
                            let value = encode(format, m[block][x][k]);
                            put(&mut machine, first, bits(format), place, value);
                        }
                    }
                }
            }
            let fields = broadcast.map_or(String::new(), |(cbsz, abid)| {
                format!(" cbsz:{cbsz} abid:{abid}")
            });
            let text = format!(
                "{} {}, {}, {}, {}{fields}",
                case.name,
                tuple(32, case.results()),
                tuple(0, case.regs(0, case.per_lane())),
                tuple(8, case.regs(1, case.per_lane())),
                if case.is_float() { "1.0" } else { "1" },
            );
            machine.wave.set_pair(126, 0);
            machine.asm(&text).unwrap();
            for block in 0..blocks {
                for i in 0..dim {
                    for j in 0..dim {
                        let from =
                            broadcast.map_or(block, |(cbsz, abid)| (block >> cbsz << cbsz) + abid);
                        let sum: i32 = (0..inner).map(|k| a[from][i][k] * b[block][j][k]).sum();
                        let (lane, register) = case.output(i, j, block);
                        let found = machine.get(32 + register)[lane];
                        let expected = case.number(1 + sum);
                        assert_eq!(found, expected, "{text} block {block} [{i}][{j}]");
                    }
                }
            }
        }
    }
}

#[test]
fn sparse_factors_are_put_where_their_indices_say() {
    if without_llvm("sparse matrices") {
        return;
    }
    let mut random = Random(seed());
    for case in SPARSE {
        for field in [0, 1] {
            let [dim, inner, _] = case.dims;
            let mut machine = Machine::new(case.asic);
            let mut a = vec![vec![0; inner]; dim];
            let b = &matrix(&mut random, case.dims)[0];
            let of_b = case.formats[1];
            for x in 0..dim {
                for k in 0..inner {
                    let value = encode(of_b, b[x][k]);
                    put(&mut machine, 8, bits(of_b), case.input(x, 0, k), value);
                }
                // Of each four elements of A two are there.
                for four in 0..inner / 4 {
                    let first = random.below(3);
                    let second = first + 1 + random.below(3 - first);
                    let (lane, local) = case.input(x, 0, 4 * four);
                    for (step, index) in [first, second].into_iter().enumerate() {
                        let value = random.below(15) as i32 - 7;
                        a[x][4 * four + index as usize] = value;
                        let stored = local / 2 + step;
                        let of_a = case.formats[0];
                        let place = (lane, stored);
                        put(&mut machine, 0, bits(of_a), place, encode(of_a, value));
                        let width = if bits(of_a) == 8 { 16 } else { 8 };
                        let at = field * width + 2 * stored;
                        let mut row = machine.get(20);
                        row[lane] |= index << at;
                        machine.set(20, row);
                    }
                }
            }
            for register in 0..case.results() {
                machine.set(32 + register, [case.number(5); 64]);
            }
            let text = format!(
                "{} {}, {}, {}, v20 abid:{field}",
                case.name,
                tuple(32, case.results()),
                tuple(0, case.regs(0, case.per_lane() / 2)),
                tuple(8, case.regs(1, case.per_lane())),
            );
            machine.asm(&text).unwrap();
            for i in 0..dim {
                for j in 0..dim {
                    let sum: i32 = (0..inner).map(|k| a[i][k] * b[j][k]).sum();
                    let (lane, register) = case.output(i, j, 0);
                    let found = machine.get(32 + register)[lane];
                    assert_eq!(found, case.number(5 + sum), "{text} [{i}][{j}]");
                }
            }
        }
    }
}

#[test]
fn doubles_multiply_and_permutations_move_lanes_of_b() {
    if without_llvm("double matrices") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx90a);
    let a: [u64; 64] = std::array::from_fn(|lane| (lane as f64 * 0.5).to_bits());
    let b: [u64; 64] = std::array::from_fn(|lane| (lane as f64 - 20.0).to_bits());
    machine.set_wide(0, &a);
    machine.set_wide(2, &b);
    machine
        .asm("v_mfma_f64_16x16x4f64 v[8:15], v[0:1], v[2:3], 0")
        .unwrap();
    for i in 0..16 {
        for j in 0..16 {
            let sum: f64 = (0..4)
                .map(|k| f64::from_bits(a[i + 16 * k]) * f64::from_bits(b[j + 16 * k]))
                .sum();
            let found = machine.get_wide(8 + 2 * (i / 4))[j + 16 * (i % 4)];
            assert_eq!(f64::from_bits(found), sum, "[{i}][{j}]");
        }
    }
    machine
        .asm("v_mfma_f64_4x4x4f64 v[8:9], v[0:1], v[2:3], 0")
        .unwrap();
    for block in 0..4 {
        for i in 0..4 {
            for j in 0..4 {
                let lane = |x: usize, k: usize| x + 4 * block + 16 * k;
                let sum: f64 = (0..4)
                    .map(|k| f64::from_bits(a[lane(i, k)]) * f64::from_bits(b[lane(j, k)]))
                    .sum();
                let found = machine.get_wide(8)[j + 4 * block + 16 * i];
                assert_eq!(f64::from_bits(found), sum, "block {block} [{i}][{j}]");
            }
        }
    }
    // One block of ones times B: each column is B's, permuted.
    machine.set(0, [1f32.to_bits(); 64]);
    machine.set(1, std::array::from_fn(|lane| (lane as f32).to_bits()));
    machine
        .asm("v_mfma_f32_4x4x1f32 v[8:11], v0, v1, 0 blgp:3")
        .unwrap();
    for (lane, found) in machine.get(8).into_iter().enumerate() {
        assert_eq!(f32::from_bits(found), ((lane + 16) % 64) as f32);
    }
}

#[test]
fn halves_flush_denormals_and_sum_in_groups_of_four() {
    if without_llvm("half matrices") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx90a);
    let pack = |low: u32, high: u32| low | high << 16;
    // Denormal inputs count as 0.
    machine.set(0, [pack(0x0001, 0x3C00); 64]);
    machine.set(1, [0; 64]);
    machine.set(2, [pack(0x7BFF, 0x3C00); 64]);
    machine.set(3, [0; 64]);
    machine
        .asm("v_mfma_f32_4x4x4f16 v[8:11], v[0:1], v[2:3], 0")
        .unwrap();
    assert_eq!(f32::from_bits(machine.get(8)[0]), 1.0);
    // (2^24 + 1) is rounded before 1 + 1 is added to it.
    let (big, one) = (0x6C00, 0x3C00);
    machine.set(0, [pack(big, one); 64]);
    machine.set(1, [pack(one, one); 64]);
    machine.set(2, [pack(big, one); 64]);
    machine.set(3, [pack(one, one); 64]);
    machine
        .asm("v_mfma_f32_4x4x4f16 v[8:11], v[0:1], v[2:3], 0")
        .unwrap();
    assert_eq!(f32::from_bits(machine.get(8)[0]), 16_777_218.0);
}
