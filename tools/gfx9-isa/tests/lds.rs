// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Stores of two values to LDS, by all lanes and by some.

#![allow(
    clippy::unwrap_used,
    clippy::precedence,
    reason = "a test may panic, that is how it fails; binary fields are clearer without parentheses"
)]

mod common;

use common::machine::Machine;
use common::without_llvm;
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
