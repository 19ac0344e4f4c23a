// SPDX-License-Identifier: GPL-2.0 OR MIT
//! LDS: stores of two values, by all lanes and by some; data from LDS.

#![allow(
    clippy::unwrap_used,
    clippy::precedence,
    reason = "a test may panic, that is how it fails; binary fields are clearer without parentheses"
)]

mod common;

use common::machine::Machine;
use common::seed;
use common::without_llvm;
use common::Random;
use gfx9_isa::exec::Exception;
use gfx9_isa::inst::Asic;
use gfx9_isa::wave::reg;

/// Dwords of LDS after `instruction`, with `address` of each lane in v0, and in v2 to v5 a hundred times the register's
/// number plus the lane's.
fn stored(instruction: &str, exec: u64, address: impl Fn(u32) -> u32) -> Vec<u32> {
    let mut machine = Machine::new(Asic::Gfx90a);
    machine.set(0, std::array::from_fn(|lane| address(lane as u32)));
    for number in 2..6 {
        let value = |lane: usize| (100 * number + lane) as u32;
        machine.set(number, std::array::from_fn(value));
    }
    machine.wave.set_pair(reg::EXEC, exec);
    machine.asm(instruction).unwrap();
    let dwords = machine.lds.chunks(4);
    dwords
        .map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap()))
        .collect()
}

#[test]
fn two_values_are_stored_by_the_active_lanes() {
    if without_llvm("two values") {
        return;
    }
    let all = u64::MAX;
    for exec in [all, all >> 1, 0xFF00_FF00_0F0F_1234] {
        let lane_of = |at: usize, stride: usize| {
            let lane = at / stride;
            (lane < 64 && exec >> lane & 1 != 0).then_some(lane as u32)
        };
        let found = stored("ds_write2_b32 v0, v2, v4 offset1:1", exec, |lane| 8 * lane);
        for (at, value) in found.iter().enumerate() {
            let want = lane_of(at, 2).map_or(0, |lane| [200, 400][at % 2] + lane);
            assert_eq!(*value, want, "dword {at}, exec {exec:#x}");
        }
        let pairs = "ds_write2_b64 v0, v[2:3], v[4:5] offset0:1 offset1:0";
        let found = stored(pairs, exec, |lane| 16 * lane);
        for (at, value) in found.iter().enumerate() {
            let want = lane_of(at, 4).map_or(0, |lane| [400, 500, 200, 300][at % 4] + lane);
            assert_eq!(*value, want, "dword {at}, exec {exec:#x}");
        }
    }
    // The value of one lane lies beyond the end: it is dropped, the others are not.
    let found = stored("ds_write2st64_b32 v0, v2, v4 offset1:1", all, |lane| {
        if lane == 63 {
            4096 - 256
        } else {
            4 * lane
        }
    });
    for (at, value) in found.iter().enumerate() {
        let want = match at {
            0..=62 => 200 + at as u32,
            64..=126 => 400 + at as u32 - 64,
            960 => 263,
            _ => 0,
        };
        assert_eq!(*value, want, "dword {at}");
    }
}

/// What is at the first place afterwards, from what was at both.
type Combined = fn(u64, u64) -> u64;

const SRC2: [(&str, u32, Combined); 20] = [
    ("add_src2_u32", 4, |a, b| a.wrapping_add(b)),
    ("sub_src2_u32", 4, |a, b| a.wrapping_sub(b)),
    ("rsub_src2_u32", 4, |a, b| b.wrapping_sub(a)),
    ("inc_src2_u32", 4, |a, b| if a >= b { 0 } else { a + 1 }),
    (
        "dec_src2_u32",
        4,
        |a, b| {
            if a == 0 || a > b {
                b
            } else {
                a - 1
            }
        },
    ),
    ("min_src2_i32", 4, |a, b| {
        (a as u32 as i32).min(b as u32 as i32) as u64
    }),
    ("max_src2_i32", 4, |a, b| {
        (a as u32 as i32).max(b as u32 as i32) as u64
    }),
    ("min_src2_u32", 4, |a, b| a.min(b)),
    ("max_src2_u32", 4, |a, b| a.max(b)),
    ("and_src2_b32", 4, |a, b| a & b),
    ("or_src2_b32", 4, |a, b| a | b),
    ("xor_src2_b32", 4, |a, b| a ^ b),
    ("write_src2_b32", 4, |_, b| b),
    ("add_src2_u64", 8, |a, b| a.wrapping_add(b)),
    ("rsub_src2_u64", 8, |a, b| b.wrapping_sub(a)),
    ("min_src2_i64", 8, |a, b| (a as i64).min(b as i64) as u64),
    ("max_src2_u64", 8, |a, b| a.max(b)),
    ("xor_src2_b64", 8, |a, b| a ^ b),
    ("inc_src2_u64", 8, |a, b| if a >= b { 0 } else { a + 1 }),
    ("write_src2_b64", 8, |_, b| b),
];

fn place(lds: &[u8], at: u32, bytes: u32) -> u64 {
    let mut word = [0; 8];
    let (at, bytes) = (at as usize, bytes as usize);
    word[..bytes].copy_from_slice(&lds[at..at + bytes]);
    u64::from_le_bytes(word)
}

/// The data lies as many dwords farther as the offset says, or, with bit 15 of it, the address' upper bits.
#[test]
fn data_comes_from_another_place_of_lds() {
    if without_llvm("src2") {
        return;
    }
    let mut random = Random(seed());
    for (name, bytes, combined) in SRC2 {
        let step = |lane: u32| 512 + bytes * lane;
        // Dwords from the one place to the other.
        for distance in [256i32, -128] {
            let offset = distance as u32 & 0x7FFF;
            let by_address = |lane: u32| step(lane) | (distance as u32) << 17;
            for (offset, address) in [
                (offset, &step as &dyn Fn(u32) -> u32),
                (0x8000, &by_address as &dyn Fn(u32) -> u32),
            ] {
                let mut machine = Machine::new(Asic::Gfx906);
                for byte in &mut machine.lds {
                    // Few values, so that some places are equal.
                    *byte = (random.next() & 0x81) as u8;
                }
                let before = machine.lds.clone();
                machine.set(0, std::array::from_fn(|lane| address(lane as u32)));
                let exec = 0xF0F0_FFFF_1234_5678;
                machine.wave.set_pair(reg::EXEC, exec);
                machine
                    .asm(&format!("ds_{name} v0 offset:{offset}"))
                    .unwrap();
                let mut want = before;
                for lane in (0..64).filter(|lane| exec >> lane & 1 != 0) {
                    let to = step(lane);
                    let from = to.wrapping_add_signed(4 * distance);
                    let value = combined(place(&want, to, bytes), place(&want, from, bytes));
                    let (to, bytes) = (to as usize, bytes as usize);
                    want[to..to + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
                }
                assert!(
                    machine.lds == want,
                    "{name} by {distance}, offset {offset:#x}"
                );
            }
        }
    }
}

#[test]
fn floats_from_another_place_are_compared_and_added() {
    if without_llvm("src2 of floats") {
        return;
    }
    for (name, want) in [("add", 1.25f32), ("min", -0.25), ("max", 1.5)] {
        let mut machine = Machine::new(Asic::Gfx906);
        machine.lds[..4].copy_from_slice(&1.5f32.to_le_bytes());
        machine.lds[40..44].copy_from_slice(&(-0.25f32).to_le_bytes());
        machine.wave.set_pair(reg::EXEC, 1);
        machine
            .asm(&format!("ds_{name}_src2_f32 v0 offset:10"))
            .unwrap();
        assert_eq!(machine.lds[..4], want.to_le_bytes(), "{name}");
    }
}

#[test]
fn a_place_that_is_not_aligned_is_refused() {
    if without_llvm("unaligned src2") {
        return;
    }
    for (text, address) in [
        ("ds_add_src2_u32 v0 offset:8", 2),
        // The second place is at 4.
        ("ds_add_src2_u64 v0 offset:1", 0),
    ] {
        let mut machine = Machine::new(Asic::Gfx906);
        machine.set(0, [address; 64]);
        let refused = Exception::Violation {
            address: address.into(),
        };
        assert_eq!(machine.asm(text), Err(refused), "{text}");
        assert!(machine.lds.iter().all(|byte| *byte == 0));
    }
}
