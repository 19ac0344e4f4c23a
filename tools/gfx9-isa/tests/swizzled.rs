// SPDX-License-Identifier: GPL-2.0 OR MIT
//! MUBUF on swizzled buffers, byte by byte: private memory as the runtime describes it, and records that are interleaved.

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

/// SOFFSET, which counts outside of the swizzling, and the instruction's offset, which counts within it.
const SOFFSET: usize = 512;
const OFFSET: usize = 8;

/// Name without `load_` or `store_`, registers, bytes.
const LOADS: [(&str, &str, usize); 6] = [
    ("ubyte", "v2", 1),
    ("ushort", "v2", 2),
    ("dword", "v2", 4),
    ("dwordx2", "v[2:3]", 8),
    ("dwordx3", "v[2:4]", 12),
    ("dwordx4", "v[2:5]", 16),
];
const STORES: [(&str, &str, usize); 6] = [
    ("byte", "v2", 1),
    ("short", "v2", 2),
    ("dword", "v2", 4),
    ("dwordx2", "v[2:3]", 8),
    ("dwordx3", "v[2:4]", 12),
    ("dwordx4", "v[2:5]", 16),
];

/// A swizzled buffer.
#[derive(Clone, Copy, Debug)]
enum Layout {
    /// The lane's number is the index, and 64 records are interleaved: private memory.
    Private,
    /// The index is the lane's number, from a register, and 8 records of 32 bytes are interleaved.
    Records,
}

impl Layout {
    const STRIDE: usize = 32;

    fn operands(self) -> &'static str {
        match self {
            Layout::Private => "v1, s[4:7], s8 offen offset:8",
            Layout::Records => "v[0:1], s[4:7], s8 idxen offen offset:8",
        }
    }

    fn describe(self, machine: &mut Machine) {
        let (second, records, fourth) = match self {
            // Data format and number format are those that ROCr gives.
            Layout::Private => (1 << 31, 0x10000, 0x00EA_4FAC),
            Layout::Records => (1 << 31 | (Self::STRIDE as u32) << 16, 60, 0),
        };
        machine.wave.sgpr[4] = BASE as u32;
        machine.wave.sgpr[5] = (BASE >> 32) as u32 | second;
        machine.wave.sgpr[6] = records;
        machine.wave.sgpr[7] = fourth;
        machine.wave.sgpr[8] = SOFFSET as u32;
    }

    /// Where byte `offset` of a lane is, if it is in the range of the buffer.
    fn byte(self, lane: usize, offset: usize) -> Option<usize> {
        let (dword, within) = (offset / 4, offset % 4);
        match self {
            Layout::Private => Some(SOFFSET + dword * 256 + lane * 4 + within),
            Layout::Records => {
                let at = (lane / 8 * Self::STRIDE + dword * 4) * 8 + lane % 8 * 4 + within;
                (lane < 60 && offset < Self::STRIDE).then_some(SOFFSET + at)
            }
        }
    }
}

/// A machine, and where each lane's access begins.
fn machine(random: &mut Random, layout: Layout) -> (Machine, [usize; 64], u64) {
    let mut machine = Machine::new(Asic::Gfx90a);
    for byte in &mut machine.memory.bytes {
        *byte = random.next() as u8;
    }
    // In half of the cases all lanes are aligned.
    let fine = 4 - 3 * random.below(2);
    let offset: [u32; 64] = std::array::from_fn(|_| random.below(20 / fine) * fine);
    machine.set(0, std::array::from_fn(|lane| lane as u32));
    machine.set(1, offset);
    for number in 2..6 {
        machine.set(number, std::array::from_fn(|_| random.next() as u32));
    }
    layout.describe(&mut machine);
    let exec = if random.below(2) == 0 {
        u64::MAX
    } else {
        random.next()
    };
    machine.wave.set_pair(reg::EXEC, exec);
    (machine, offset.map(|at| at as usize + OFFSET), exec)
}

/// The bytes of a lane's registers.
fn value(machine: &Machine, lane: usize) -> Vec<u8> {
    (2..6)
        .flat_map(|number| machine.get(number)[lane].to_le_bytes())
        .collect()
}

#[test]
fn loads_find_each_byte_at_its_place() {
    if without_llvm("swizzled loads") {
        return;
    }
    let mut random = Random(seed());
    for layout in [Layout::Private, Layout::Records] {
        for (name, list, bytes) in LOADS {
            for _ in 0..16 {
                let (mut machine, offset, exec) = machine(&mut random, layout);
                let before: Vec<_> = (0..64).map(|lane| value(&machine, lane)).collect();
                let text = format!("buffer_load_{name} {list}, {}", layout.operands());
                machine.asm(&text).unwrap();
                for lane in 0..64 {
                    let mut want = before[lane].clone();
                    if exec >> lane & 1 != 0 {
                        want[..bytes.next_multiple_of(4)].fill(0);
                        for (at, byte) in want.iter_mut().take(bytes).enumerate() {
                            let from = layout.byte(lane, offset[lane] + at);
                            *byte = from.map_or(0, |from| machine.memory.bytes[from]);
                        }
                    }
                    let found = value(&machine, lane);
                    let offset = offset[lane];
                    assert_eq!(found, want, "{text}, {layout:?}, lane {lane} at {offset}");
                }
            }
        }
    }
}

#[test]
fn stores_put_each_byte_at_its_place() {
    if without_llvm("swizzled stores") {
        return;
    }
    let mut random = Random(seed());
    for layout in [Layout::Private, Layout::Records] {
        for (name, list, bytes) in STORES {
            for _ in 0..16 {
                let (mut machine, offset, exec) = machine(&mut random, layout);
                let mut want = machine.memory.bytes.clone();
                for lane in (0..64).filter(|lane| exec >> lane & 1 != 0) {
                    for (at, byte) in value(&machine, lane).into_iter().take(bytes).enumerate() {
                        if let Some(to) = layout.byte(lane, offset[lane] + at) {
                            want[to] = byte;
                        }
                    }
                }
                let text = format!("buffer_store_{name} {list}, {}", layout.operands());
                machine.asm(&text).unwrap();
                let same = machine.memory.bytes == want;
                assert!(same, "{text}, {layout:?}");
            }
        }
    }
}

/// What is not in one piece cannot be changed at once.
#[test]
fn atomics_are_on_one_dword() {
    if without_llvm("swizzled atomics") {
        return;
    }
    let mut random = Random(seed());
    let layout = Layout::Private;
    let (mut machine, ..) = machine(&mut random, layout);
    machine.wave.set_pair(reg::EXEC, 1 << 5);
    machine.set(1, [4; 64]);
    let at = layout.byte(5, 4 + OFFSET).unwrap();
    let old = machine.memory.word(at / 4);
    let add = machine.get(2)[5];
    let text = format!("buffer_atomic_add v2, {}", layout.operands());
    machine.asm(&text).unwrap();
    assert_eq!(machine.memory.word(at / 4), old.wrapping_add(add));
    let before = machine.memory.bytes.clone();
    let text = format!("buffer_atomic_add_x2 v[2:3], {}", layout.operands());
    let refused = machine.asm(&text);
    let address = BASE + at as u64;
    assert!(
        matches!(refused, Err(Exception::Violation { address: a }) if a == address),
        "{refused:?}"
    );
    machine.set(1, [6; 64]);
    let text = format!("buffer_atomic_add v2, {}", layout.operands());
    let refused = machine.asm(&text);
    assert!(
        matches!(refused, Err(Exception::Violation { .. })),
        "{refused:?}"
    );
    assert!(machine.memory.bytes == before, "nothing has changed");
}
