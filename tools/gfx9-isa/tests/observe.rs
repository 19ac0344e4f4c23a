// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What observers see, and what instructions are said to move.

#![allow(
    clippy::unwrap_used,
    clippy::precedence,
    reason = "a test may panic, that is how it fails; binary fields are clearer without parentheses"
)]

mod common;

use common::assemble;
use common::machine::Flat;
use common::machine::Host as Sink;
use common::machine::BASE;
use common::without_llvm;
use gfx9_isa::decode::Decoder;
use gfx9_isa::exec::cost::Class;
use gfx9_isa::exec::cost::Costs;
use gfx9_isa::exec::cost::Traffic;
use gfx9_isa::exec::Exception;
use gfx9_isa::exec::Flow;
use gfx9_isa::group::Event;
use gfx9_isa::group::Group;
use gfx9_isa::group::Host;
use gfx9_isa::inst::Asic;
use gfx9_isa::inst::Inst;
use gfx9_isa::observe::Observer;
use gfx9_isa::processor::Processor;
use gfx9_isa::text::text;
use gfx9_isa::wave::reg;
use gfx9_isa::wave::Wave;

const CODE: u64 = 0x8000;

/// One line for each instruction: wave, offset of PC, text, s4 before and after, whether it was executed.
#[derive(Default)]
struct Lines {
    number: usize,
    before: (u64, u32),
    lines: Vec<(usize, u64, String, u32, u32, bool)>,
}

impl Observer for Lines {
    fn turn(&mut self, number: usize) {
        self.number = number;
    }

    fn before(&mut self, wave: &Wave, _: &Inst) {
        self.before = (wave.pc - BASE - CODE, wave.sgpr[4]);
    }

    fn after(&mut self, wave: &Wave, inst: &Inst, result: Result<Flow, Exception>) {
        let (pc, old) = self.before;
        let text = text(inst, wave.asic());
        let line = (self.number, pc, text, old, wave.sgpr[4], result.is_ok());
        self.lines.push(line);
    }
}

fn group(asic: Asic, program: &str, waves: usize) -> (Group, Flat) {
    let mut memory = Flat::new(1 << 16);
    for (index, word) in assemble(asic, program).into_iter().enumerate() {
        memory.set_word(CODE as usize / 4 + index, word);
    }
    let wave = |_| {
        let mut wave = Wave::new(asic);
        wave.pc = BASE + CODE;
        wave.set_pair(reg::EXEC, u64::MAX);
        wave.set_pair(0, BASE);
        wave
    };
    (Group::new((0..waves).map(wave).collect(), 256, 7), memory)
}

fn observed(program: &str, waves: usize, budget: u64) -> (Vec<Event>, Lines) {
    let (mut group, mut memory) = group(Asic::Gfx90a, program, waves);
    let (mut processor, mut sink) = (Processor::new(Asic::Gfx90a), Sink::default());
    let mut lines = Lines::default();
    let mut events = Vec::new();
    loop {
        let mut host = Host {
            processor: &mut processor,
            memory: &mut memory,
            messages: &mut sink,
        };
        let event = group.observe(&mut host, budget, &mut lines);
        events.push(event);
        if event != Event::Budget {
            return (events, lines);
        }
    }
}

#[test]
fn an_observer_sees_each_instruction_once_in_its_order() {
    if without_llvm("observers") {
        return;
    }
    let program = "s_movk_i32 s4, 2\nloop:\ns_sub_u32 s4, s4, 1\ns_cmp_lg_u32 s4, 0\n\
        s_cbranch_scc1 loop\ns_barrier\ns_endpgm";
    let one = [
        (0, "s_movk_i32 s4, 0x2", 0, 2),
        (4, "s_sub_u32 s4, s4, 1", 2, 1),
        (8, "s_cmp_lg_u32 s4, 0", 1, 1),
        (12, "s_cbranch_scc1 65533", 1, 1),
        (4, "s_sub_u32 s4, s4, 1", 1, 0),
        (8, "s_cmp_lg_u32 s4, 0", 0, 0),
        (12, "s_cbranch_scc1 65533", 0, 0),
        (16, "s_barrier", 0, 0),
        (20, "s_endpgm", 0, 0),
    ];
    // However the budget is divided.
    for budget in [1000, 1] {
        let (events, lines) = observed(program, 2, budget);
        assert_eq!(events.last(), Some(&Event::Done));
        for number in 0..2 {
            let seen: Vec<_> = lines
                .lines
                .iter()
                .filter(|line| line.0 == number)
                .map(|(_, pc, text, old, new, done)| {
                    assert!(done);
                    (*pc, text.as_str(), *old, *new)
                })
                .collect();
            assert_eq!(seen, one, "wave {number}");
        }
        assert_eq!(lines.lines.len(), 2 * one.len());
    }
}

#[test]
fn an_observer_sees_what_could_not_be_executed() {
    if without_llvm("observers of faults") {
        return;
    }
    let program = "s_mov_b64 s[0:1], 0\ns_load_dword s4, s[0:1], 0x40\ns_endpgm";
    let (events, lines) = observed(program, 1, 1000);
    let fault = Event::Fault {
        wave: 0,
        address: 0x40,
        fetch: false,
    };
    assert_eq!(events, [fault]);
    let last = lines.lines.last().unwrap();
    assert_eq!(last.1, 4);
    assert_eq!(last.2, "s_load_dword s4, s[0:1], 0x40");
    assert!(!last.5);
}

/// What an instruction moves, with `address` of each lane in v0.
fn traffic(instruction: &str, exec: u64, address: impl Fn(u32) -> u32) -> (Class, Traffic) {
    let words = assemble(Asic::Gfx90a, instruction);
    let inst = Decoder::new(Asic::Gfx90a).decode(&words).unwrap();
    let mut wave = Wave::new(Asic::Gfx90a);
    wave.set_pair(reg::EXEC, exec);
    *wave.vgpr_mut(0, false).unwrap() = std::array::from_fn(|lane| address(lane as u32));
    (Class::of(inst.row), Costs::default().traffic(&wave, &inst))
}

fn moved(loaded: u64, stored: u64, conflicts: u64) -> Traffic {
    Traffic {
        loaded,
        stored,
        conflicts,
    }
}

#[test]
fn bytes_are_those_of_the_active_lanes() {
    if without_llvm("traffic") {
        return;
    }
    let all = u64::MAX;
    let cases = [
        (
            "global_load_dwordx4 v[4:7], v[0:1], off",
            all,
            Class::Global,
            moved(1024, 0, 0),
        ),
        (
            "global_load_dwordx4 v[4:7], v[0:1], off",
            0xF,
            Class::Global,
            moved(64, 0, 0),
        ),
        (
            "global_store_byte v[0:1], v4, off",
            all,
            Class::Global,
            moved(0, 64, 0),
        ),
        (
            "flat_atomic_add_x2 v[0:1], v[4:5]",
            3,
            Class::Flat,
            moved(16, 16, 0),
        ),
        (
            "buffer_load_ushort v4, v0, s[0:3], 0 offen",
            all,
            Class::Buffer,
            moved(128, 0, 0),
        ),
        (
            "scratch_store_dwordx2 v0, v[4:5], off",
            all,
            Class::Private,
            moved(0, 512, 0),
        ),
        (
            "s_load_dwordx8 s[8:15], s[0:1], 0x0",
            0,
            Class::ScalarMemory,
            moved(32, 0, 0),
        ),
        (
            "s_store_dwordx2 s[8:9], s[0:1], 0x0",
            0,
            Class::ScalarMemory,
            moved(0, 8, 0),
        ),
        ("v_add_u32 v1, v0, v0", all, Class::Vector, moved(0, 0, 0)),
        ("s_add_u32 s0, s1, s2", all, Class::Scalar, moved(0, 0, 0)),
        ("s_waitcnt vmcnt(0)", all, Class::Control, moved(0, 0, 0)),
        (
            "v_mfma_f32_4x4x1f32 a[0:3], v0, v1, a[0:3]",
            all,
            Class::Matrix,
            moved(0, 0, 0),
        ),
        (
            "ds_bpermute_b32 v1, v0, v2",
            all,
            Class::Lds,
            moved(0, 0, 0),
        ),
    ];
    for (instruction, exec, class, want) in cases {
        let found = traffic(instruction, exec, |lane| 4 * lane);
        assert_eq!(found, (class, want), "{instruction}");
    }
}

#[test]
fn lanes_of_one_bank_conflict() {
    if without_llvm("conflicts") {
        return;
    }
    let all = u64::MAX;
    type Address = fn(u32) -> u32;
    let cases: [(&str, u64, Address, Traffic); 14] = [
        // One after the other: each bank once in a pass.
        ("ds_read_b32 v1, v0", all, |l| 4 * l, moved(256, 0, 0)),
        ("ds_write_b64 v0, v[2:3]", all, |l| 8 * l, moved(0, 512, 0)),
        (
            "ds_read_b128 v[4:7], v0",
            all,
            |l| 16 * l,
            moved(1024, 0, 0),
        ),
        // Every other dword: two lanes for each bank that is used, in two passes.
        ("ds_read_b32 v1, v0", all, |l| 8 * l, moved(256, 0, 2)),
        ("ds_read_b32 v1, v0", 0xFFFF, |l| 8 * l, moved(64, 0, 0)),
        ("ds_read_b32 v1, v0", 0x1_FFFF, |l| 8 * l, moved(68, 0, 1)),
        // All in one bank.
        ("ds_write_b32 v0, v2", all, |l| 128 * l, moved(0, 256, 62)),
        (
            "ds_write_b32 v0, v2 offset:64",
            all,
            |l| 128 * l,
            moved(0, 256, 62),
        ),
        // A column of a padded matrix.
        ("ds_read_b32 v1, v0", all, |l| 132 * l, moved(256, 0, 0)),
        // One dword for all, and its bytes.
        ("ds_read_b32 v1, v0", all, |_| 64, moved(256, 0, 0)),
        ("ds_read_u8 v1, v0", all, |l| l, moved(64, 0, 0)),
        // Atomics come one after the other.
        ("ds_add_u32 v0, v2", all, |_| 64, moved(256, 256, 62)),
        (
            "ds_read2_b32 v[4:5], v0 offset1:1",
            all,
            |l| 8 * l,
            moved(512, 0, 4),
        ),
        (
            "ds_read2st64_b32 v[4:5], v0 offset1:1",
            all,
            |l| 4 * l,
            moved(512, 0, 0),
        ),
    ];
    for (instruction, exec, address, want) in cases {
        let found = traffic(instruction, exec, address);
        assert_eq!(found, (Class::Lds, want), "{instruction} {exec:#x}");
    }
}
