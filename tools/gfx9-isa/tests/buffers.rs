// SPDX-License-Identifier: GPL-2.0 OR MIT
//! MUBUF with offsets of the lanes, against each lane's bytes: where all lanes are in the range of the buffer, and where
//! some are not, which takes another way.

#![allow(
    clippy::precedence,
    clippy::unwrap_used,
    reason = "a test may panic, that is how it fails; binary fields are clearer without parentheses"
)]

mod common;

use common::machine::Machine;
use common::machine::BASE;
use common::seed;
use common::without_llvm;
use common::Random;
use gfx9_isa::exec::Exception;
use gfx9_isa::inst::Asic;
use gfx9_isa::wave::reg;

/// Byte of the memory where the buffer begins, SOFFSET, and the instruction's offset.
const FIRST: usize = 256;
const SOFFSET: usize = 64;
const OFFSET: usize = 20;

/// Name, registers, bytes, and whether the value is sign-extended.
const LOADS: [(&str, &str, usize, bool); 8] = [
    ("buffer_load_ubyte", "v2", 1, false),
    ("buffer_load_sbyte", "v2", 1, true),
    ("buffer_load_ushort", "v2", 2, false),
    ("buffer_load_sshort", "v2", 2, true),
    ("buffer_load_dword", "v2", 4, false),
    ("buffer_load_dwordx2", "v[2:3]", 8, false),
    ("buffer_load_dwordx3", "v[2:4]", 12, false),
    ("buffer_load_dwordx4", "v[2:5]", 16, false),
];
const STORES: [(&str, &str, usize); 6] = [
    ("buffer_store_byte", "v2", 1),
    ("buffer_store_short", "v2", 2),
    ("buffer_store_dword", "v2", 4),
    ("buffer_store_dwordx2", "v[2:3]", 8),
    ("buffer_store_dwordx3", "v[2:4]", 12),
    ("buffer_store_dwordx4", "v[2:5]", 16),
];

/// A machine, and how many bytes its buffer has.
struct Case {
    machine: Machine,
    records: usize,
    exec: u64,
}

impl Case {
    /// `inside`: all lanes are in the range of the buffer, whatever they access.  The offsets are 32 bytes apart, so that
    /// lanes do not meet.
    fn new(random: &mut Random, inside: bool, offen: bool) -> Self {
        let mut machine = Machine::new(Asic::Gfx90a);
        for byte in &mut machine.memory.bytes {
            *byte = random.next() as u8;
        }
        let crooked = random.below(13);
        let flip = random.below(64);
        let offset = |lane: usize| 32 * (lane as u32 ^ flip) + crooked;
        machine.set(0, std::array::from_fn(offset));
        for number in 2..6 {
            machine.set(number, std::array::from_fn(|_| random.next() as u32));
        }
        let records = match (inside, offen) {
            (true, _) => 4096,
            // Also in the middle of an access.
            (false, true) => 512 + random.below(1024) as usize,
            (false, false) => SOFFSET + OFFSET + random.below(16) as usize,
        };
        machine.wave.sgpr[4] = BASE as u32 + FIRST as u32;
        machine.wave.sgpr[5] = (BASE >> 32) as u32;
        machine.wave.sgpr[6] = records as u32;
        machine.wave.sgpr[8] = SOFFSET as u32;
        let exec = match random.below(3) {
            0 => u64::MAX,
            1 => random.next(),
            // The last lanes are out of range and take no part.
            _ => random.next() & 0xFFFF,
        };
        machine.wave.set_pair(reg::EXEC, exec);
        Self {
            machine,
            records,
            exec,
        }
    }

    /// Where the lane's dword `at` is, if it is accessed: `bytes` of it.
    fn place(&self, lane: usize, offen: bool, at: usize, bytes: usize) -> Option<usize> {
        let vector = if offen {
            self.machine.get(0)[lane] as usize
        } else {
            0
        };
        let offset = vector + OFFSET + SOFFSET + 4 * at;
        let inside = offset + bytes.min(4) <= self.records;
        (inside && self.exec >> lane & 1 != 0).then_some(FIRST + offset)
    }
}

fn address(offen: bool) -> &'static str {
    if offen {
        "v0, s[4:7], s8 offen offset:20"
    } else {
        "off, s[4:7], s8 offset:20"
    }
}

#[test]
fn loads_give_the_bytes_that_are_in_range() {
    if without_llvm("buffer loads") {
        return;
    }
    let mut random = Random(seed());
    for (name, list, bytes, signed) in LOADS {
        for round in 0..32 {
            let (inside, offen) = (round % 2 == 0, round % 4 < 2);
            let mut case = Case::new(&mut random, inside, offen);
            let before: Vec<_> = (2..6).map(|number| case.machine.get(number)).collect();
            let text = format!("{name} {list}, {}", address(offen));
            case.machine.asm(&text).unwrap();
            for lane in 0..64 {
                for (at, old) in before.iter().enumerate() {
                    let found = case.machine.get(2 + at)[lane];
                    let loaded = at < bytes.div_ceil(4) && case.exec >> lane & 1 != 0;
                    let want = match case.place(lane, offen, at, bytes) {
                        _ if !loaded => old[lane],
                        None => 0,
                        Some(from) => {
                            let mut word = [0; 4];
                            let size = bytes.min(4);
                            let memory = &case.machine.memory.bytes;
                            word[..size].copy_from_slice(&memory[from..from + size]);
                            let unused = 32 - 8 * size as u32;
                            let value = u32::from_le_bytes(word) << unused;
                            if signed {
                                (value as i32 >> unused) as u32
                            } else {
                                value >> unused
                            }
                        }
                    };
                    let records = case.records;
                    assert_eq!(found, want, "{text} lane {lane} dword {at} of {records}");
                }
            }
        }
    }
}

#[test]
fn stores_change_the_bytes_that_are_in_range() {
    if without_llvm("buffer stores") {
        return;
    }
    let mut random = Random(seed());
    for (name, list, bytes) in STORES {
        for round in 0..32 {
            let (inside, offen) = (round % 2 == 0, round % 4 < 2);
            let mut case = Case::new(&mut random, inside, offen);
            let mut want = case.machine.memory.bytes.clone();
            for lane in 0..64 {
                for at in 0..bytes.div_ceil(4) {
                    if let Some(to) = case.place(lane, offen, at, bytes) {
                        let size = bytes.min(4);
                        let word = case.machine.get(2 + at)[lane].to_le_bytes();
                        want[to..to + size].copy_from_slice(&word[..size]);
                    }
                }
            }
            let text = format!("{name} {list}, {}", address(offen));
            case.machine.asm(&text).unwrap();
            assert!(
                case.machine.memory.bytes == want,
                "{text} of {}",
                case.records
            );
        }
    }
}

/// Offsets wrap at 32 bits, before the base is added.
#[test]
fn offsets_of_lanes_wrap() {
    if without_llvm("buffer offsets") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx90a);
    machine.memory.set_word(3, 0x1234);
    machine.wave.sgpr[4] = BASE as u32;
    machine.wave.sgpr[5] = (BASE >> 32) as u32;
    machine.wave.sgpr[6] = u32::MAX;
    machine.set(0, [12u32.wrapping_sub(32); 64]);
    let text = "buffer_load_dword v2, v0, s[4:7], 0 offen offset:32";
    machine.asm(text).unwrap();
    assert_eq!(machine.get(2), [0x1234; 64]);
    // What is no buffer is refused, whichever way it would take.
    machine.wave.sgpr[7] = 1 << 30;
    let refused = machine.asm(text);
    assert!(matches!(refused, Err(Exception::Illegal { .. })));
}
