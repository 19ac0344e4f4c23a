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

/// Where an element lies: lane and element (or register).
type Place = fn(usize, usize, usize) -> (usize, usize);

struct Case {
    name: &'static str,
    /// Rows (and columns), inner length, blocks.
    dims: [usize; 3],
    /// Bits of an input element, registers of inputs and result.
    bits: usize,
    regs: [usize; 2],
    /// Row, block, k of an input.
    input: Place,
    /// Row, column, block of the result.
    output: Place,
}

const CASES: [Case; 8] = [
    Case {
        name: "v_mfma_f32_32x32x8f16",
        dims: [32, 8, 1],
        bits: 16,
        regs: [2, 16],
        input: |i, _, k| (i + 32 * (k / 4), k % 4),
        output: |i, j, _| (j + 32 * (i / 4 % 2), i / 8 * 4 + i % 4),
    },
    Case {
        name: "v_mfma_f32_32x32x4f16",
        dims: [32, 4, 2],
        bits: 16,
        regs: [2, 32],
        input: |i, b, k| (i + 32 * b, k),
        output: |i, j, b| (j + 32 * (i / 4 % 2), 16 * b + i / 8 * 4 + i % 4),
    },
    Case {
        name: "v_mfma_f32_16x16x16f16",
        dims: [16, 16, 1],
        bits: 16,
        regs: [2, 4],
        input: |i, _, k| (i + 16 * (k / 4), k % 4),
        output: |i, j, _| (j + 16 * (i / 4), i % 4),
    },
    Case {
        name: "v_mfma_f32_16x16x4f16",
        dims: [16, 4, 4],
        bits: 16,
        regs: [2, 16],
        input: |i, b, k| (i + 16 * b, k),
        output: |i, j, b| (j + 16 * (i / 4), 4 * b + i % 4),
    },
    Case {
        name: "v_mfma_f32_4x4x4f16",
        dims: [4, 4, 16],
        bits: 16,
        regs: [2, 4],
        input: |i, b, k| (i + 4 * b, k),
        output: |i, j, b| (j + 4 * b, i),
    },
    Case {
        name: "v_mfma_i32_32x32x8i8",
        dims: [32, 8, 1],
        bits: 8,
        regs: [1, 16],
        input: |i, _, k| (i + 32 * (k / 4), k % 4),
        output: |i, j, _| (j + 32 * (i / 4 % 2), i / 8 * 4 + i % 4),
    },
    Case {
        name: "v_mfma_f32_32x32x2f32",
        dims: [32, 2, 1],
        bits: 32,
        regs: [1, 16],
        input: |i, _, k| (i + 32 * k, 0),
        output: |i, j, _| (j + 32 * (i / 4 % 2), i / 8 * 4 + i % 4),
    },
    Case {
        name: "v_mfma_f32_16x16x16bf16_1k",
        dims: [16, 16, 1],
        bits: 16,
        regs: [2, 4],
        input: |i, _, k| (i + 16 * (k / 4), k % 4),
        output: |i, j, _| (j + 16 * (i / 4), i % 4),
    },
];

fn encode(name: &str, bits: usize, value: i32) -> u32 {
    if name.contains("bf16") {
        (value as f32).to_bits() >> 16
    } else if bits == 16 {
        u32::from(half::f16::from_f32(value as f32).to_bits())
    } else if bits == 8 {
        u32::from(value as i8 as u8)
    } else {
        (value as f32).to_bits()
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
            let mut machine = Machine::new(Asic::Gfx90a);
            let mut matrix = || -> Vec<Vec<Vec<i32>>> {
                let element = |random: &mut Random| random.below(15) as i32 - 7;
                let row = |random: &mut Random| (0..inner).map(|_| element(random)).collect();
                (0..blocks)
                    .map(|_| (0..dim).map(|_| row(&mut random)).collect())
                    .collect()
            };
            let (a, b) = (matrix(), matrix());
            for block in 0..blocks {
                for x in 0..dim {
                    for k in 0..inner {
                        let place = (case.input)(x, block, k);
                        let value =
                            |m: &Vec<Vec<Vec<i32>>>| encode(case.name, case.bits, m[block][x][k]);
                        put(&mut machine, 0, case.bits, place, value(&a));
                        put(&mut machine, 4, case.bits, place, value(&b));
                    }
                }
            }
            let fields = broadcast.map_or(String::new(), |(cbsz, abid)| {
                format!(" cbsz:{cbsz} abid:{abid}")
            });
            let text = format!(
                "{} {}, {}, {}, 1{fields}",
                case.name,
                tuple(32, case.regs[1]),
                tuple(0, case.regs[0]),
                tuple(4, case.regs[0])
            );
            let float = case.bits != 8;
            let text = if float {
                text.replace(", 1", ", 1.0").replace("1.0.0", "1.0")
            } else {
                text
            };
            machine.wave.set_pair(126, 0);
            machine.asm(&text).unwrap();
            for block in 0..blocks {
                for i in 0..dim {
                    for j in 0..dim {
                        let from =
                            broadcast.map_or(block, |(cbsz, abid)| (block >> cbsz << cbsz) + abid);
                        let sum: i32 = (0..inner).map(|k| a[from][i][k] * b[block][j][k]).sum();
                        let (lane, register) = (case.output)(i, j, block);
                        let found = machine.get(32 + register)[lane];
                        let expected = if float {
                            (1.0 + sum as f32).to_bits()
                        } else {
                            (1 + sum) as u32
                        };
                        assert_eq!(found, expected, "{text} block {block} [{i}][{j}]");
                    }
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
