// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Random code and random waves: no panic, no access but through the traits, and an exception changes nothing.

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
use common::machine::BASE;
use common::seed;
use common::sweep;
use common::Random;
use gfx9_isa::decode::Decoder;
use gfx9_isa::env::Env;
use gfx9_isa::exec::Flow;
use gfx9_isa::inst::Asic;
use gfx9_isa::processor::Processor;
use gfx9_isa::processor::Stop;
use gfx9_isa::tables::rows;
use gfx9_isa::tables::Enc;
use gfx9_isa::tables::Row;
use gfx9_isa::text::text;
use gfx9_isa::wave::reg;
use std::process::Command;

/// Registers with random contents; addresses that often lie in memory.
fn shuffle(machine: &mut Machine, random: &mut Random) {
    let wave = &mut machine.wave;
    for code in 0..128 {
        wave.sgpr[code] = match random.below(4) {
            0 => random.below(256),
            1 => BASE as u32 + random.below(4096),
            2 => 0,
            _ => random.next() as u32,
        };
    }
    for acc in [false, true] {
        for number in 0..256 {
            let kind = random.below(4);
            if let Some(lanes) = wave.vgpr_mut(number, acc) {
                for lane in lanes.iter_mut() {
                    *lane = match kind {
                        0 => BASE as u32 + random.below(8192),
                        1 => 0,
                        2 => random.below(8192),
                        _ => random.next() as u32,
                    };
                }
            }
        }
    }
    let exec = match random.below(4) {
        0 => 0,
        1 => u64::MAX,
        _ => random.next(),
    };
    wave.set_pair(reg::EXEC, exec);
    wave.mode = random.next() as u32 & 0x3FF | (random.below(8) << 26);
    wave.status = random.next() as u32;
    wave.set_limits(random.below(300) as usize, random.below(300) as usize);
    wave.pc = random.next() & !3;
}

/// A word pair whose opcode is that of `row` in its own encoding.
fn words(row: &Row, random: &mut Random) -> [u32; 2] {
    let op = u32::from(row.op);
    let noise = random.next() as u32;
    let low = match row.enc {
        Enc::Sop1 => 0x17D << 23 | op << 8 | noise & 0x7F_00FF,
        Enc::Sop2 => 2 << 30 | op << 23 | noise & 0x7F_FFFF,
        Enc::Sopc => 0x17E << 23 | op << 16 | noise & 0xFFFF,
        Enc::Sopk => 0xB << 28 | op << 23 | noise & 0x7F_FFFF,
        Enc::Sopp => 0x17F << 23 | op << 16 | noise & 0xFFFF,
        Enc::Smem => 0x30 << 26 | op << 18 | noise & 0x3_FFFF,
        Enc::Vop1 => 0x3F << 25 | op << 9 | noise & 0x1FE_01FF,
        Enc::Vop2 => op << 25 | noise & 0x1FF_FFFF,
        Enc::Vopc => 0x3E << 25 | op << 17 | noise & 0x1_FFFF,
        Enc::Vop3 => 0x34 << 26 | op << 16 | noise & 0xFFFF,
        Enc::Vop3p | Enc::Mai => 0x1A7 << 23 | op << 16 | noise & 0xFFFF,
        Enc::Ds => 0x36 << 26 | op << 17 | noise & 0x1_FFFF,
        Enc::Flat => 0x37 << 26 | op << 18 | noise & 0x3_1FFF,
        Enc::Scratch => 0x37 << 26 | op << 18 | 1 << 14 | noise & 0x3_3FFF,
        Enc::Global => 0x37 << 26 | op << 18 | 2 << 14 | noise & 0x3_1FFF,
        Enc::Mubuf => 0x38 << 26 | op << 18 | noise & 0x2_7FFF,
        Enc::Mtbuf => 0x3A << 26 | op << 15 | noise & 0x3F8_7FFF,
    };
    // Fields that must be 0 often are.
    let mask = [0xFFFF_FFFF, 0x3_FFFF, 0x1FF, 0xFF00_FFFF, 0xFF][random.below(5) as usize];
    [low, random.next() as u32 & mask]
}

#[test]
fn no_instruction_panics_or_changes_what_it_refuses() {
    let mut random = Random(seed());
    for asic in Asic::ALL {
        let decoder = Decoder::new(asic);
        let mut machine = Machine::new(asic);
        let (mut done, mut refused) = (0, 0);
        let mine = rows().filter(|row| row.asics & asic.bit() != 0);
        for (number, row) in mine.enumerate() {
            if number % 16 == 0 {
                shuffle(&mut machine, &mut random);
            }
            for _ in 0..12 * sweep() {
                let words = words(row, &mut random);
                let Ok(inst) = decoder.decode(&words) else {
                    continue;
                };
                assert!(!text(&inst, asic).is_empty());
                let (pc, sgpr, scc) = (machine.wave.pc, machine.wave.sgpr, machine.wave.scc);
                match machine.step(&words) {
                    Ok(_) => done += 1,
                    Err(_) => {
                        refused += 1;
                        assert_eq!(machine.wave.pc, pc, "{}", row.name);
                        assert_eq!(machine.wave.sgpr, sgpr, "{}", row.name);
                        assert_eq!(machine.wave.scc, scc, "{}", row.name);
                    }
                }
            }
        }
        eprintln!("{}: {done} executed, {refused} refused", asic.name());
        assert!(done > 2000, "{} executes too little", asic.name());
    }
}

/// All registers of a wave and what else instructions change.
fn state(machine: &Machine) -> (u64, [u32; 128], [u32; 5], Vec<u32>) {
    let wave = &machine.wave;
    let flags = [
        wave.scc.into(),
        wave.mode,
        wave.status,
        wave.trapsts,
        wave.ib_sts,
    ];
    let mut rows = Vec::new();
    for (acc, limit) in [false, true].into_iter().zip(wave.limits()) {
        for number in 0..limit {
            rows.extend_from_slice(wave.vgpr(number, acc));
        }
    }
    (wave.pc, wave.sgpr, flags, rows)
}

#[test]
fn prepared_instructions_do_what_others_do() {
    let mut random = Random(seed() ^ 5);
    let mut quick = 0;
    for asic in Asic::ALL {
        let decoder = Decoder::new(asic);
        let mut processor = Processor::new(asic);
        let mut machine = Machine::new(asic);
        let mine = rows().filter(|row| row.asics & asic.bit() != 0);
        for (number, row) in mine.enumerate() {
            if number % 8 == 0 {
                shuffle(&mut machine, &mut random);
                // Modes in which most programs run, and others.
                if random.below(3) > 0 {
                    machine.wave.mode = 0x3F0;
                }
                if random.below(2) > 0 {
                    machine.wave.set_pair(reg::EXEC, u64::MAX);
                }
            }
            for _ in 0..8 * sweep() {
                let words = words(row, &mut random);
                if decoder.decode(&words).is_err() {
                    continue;
                }
                machine.wave.pc = BASE + 0x8000;
                machine.memory.set_word(0x8000 / 4, words[0]);
                machine.memory.set_word(0x8000 / 4 + 1, words[1]);
                let mut other = Machine::new(asic);
                other.wave = machine.wave.clone();
                other.memory.bytes.clone_from(&machine.memory.bytes);
                other.lds.clone_from(&machine.lds);
                other.host.clock = machine.host.clock;
                processor.forget();
                let (done, stop) = processor.run(
                    &mut other.wave,
                    &mut Env {
                        memory: &mut other.memory,
                        lds: &mut other.lds,
                        messages: &mut other.host,
                    },
                    1,
                );
                match machine.step(&words) {
                    Ok(Flow::Next | Flow::Refetch) => assert_eq!((done, stop), (1, Stop::Budget)),
                    Ok(flow) => assert_eq!(stop, Stop::Flow(flow)),
                    Err(error) => assert_eq!((done, stop), (0, Stop::Exception(error))),
                }
                assert!(state(&machine) == state(&other), "{} {words:x?}", row.name);
                assert!(machine.memory.bytes == other.memory.bytes, "{}", row.name);
                assert!(machine.lds == other.lds, "{}", row.name);
                quick += done;
            }
        }
    }
    assert!(quick > 5000, "{quick}");
}

/// A number that follows from what random vector instructions compute.
fn digest() -> u64 {
    let mut random = Random(seed() ^ 9);
    let mut hash = 0u64;
    for asic in Asic::ALL {
        let decoder = Decoder::new(asic);
        let mut machine = Machine::new(asic);
        let vector = |row: &&&Row| {
            use Enc::*;
            let enc = matches!(row.enc, Vop1 | Vop2 | Vopc | Vop3 | Vop3p | Mai);
            enc && row.asics & asic.bit() != 0
        };
        let all: Vec<_> = rows().collect();
        for (number, row) in all.iter().filter(vector).enumerate() {
            if number % 4 == 0 {
                shuffle(&mut machine, &mut random);
                machine.wave.set_limits(256, 256);
            }
            for _ in 0..20 {
                let words = words(row, &mut random);
                if decoder.decode(&words).is_ok() {
                    let _ = machine.step(&words);
                }
            }
            let (_, sgpr, flags, rows) = state(&machine);
            let before = hash;
            for word in sgpr.into_iter().chain(flags).chain(rows) {
                hash = (hash ^ u64::from(word))
                    .wrapping_mul(0x0100_0000_01B3)
                    .rotate_left(5);
            }
            if std::env::var_os("ISA_DIGESTS").is_some() {
                eprintln!("{} {} {before:x} {hash:x}", asic.name(), row.name);
            }
        }
    }
    hash
}

#[test]
fn both_sets_of_kernels_compute_the_same() {
    if std::env::var_os("ISA_DIGEST_ONLY").is_some() {
        eprintln!("digest {:x}", digest());
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "both_sets_of_kernels_compute_the_same",
            "--nocapture",
        ])
        .env("ISA_SIMD", "base")
        .env("ISA_DIGEST_ONLY", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let theirs = text.lines().find_map(|line| line.strip_prefix("digest "));
    assert_eq!(theirs, Some(format!("{:x}", digest()).as_str()), "{text}");
}

#[test]
fn random_words_neither_panic_nor_hang() {
    let mut random = Random(seed() ^ 77);
    for asic in Asic::ALL {
        let decoder = Decoder::new(asic);
        let mut machine = Machine::new(asic);
        shuffle(&mut machine, &mut random);
        for _ in 0..20_000 * sweep() {
            let words = [random.next() as u32, random.next() as u32];
            for length in 0..=2 {
                if let Ok(inst) = decoder.decode(&words[..length]) {
                    assert!(usize::from(inst.size) <= 4 * length);
                }
            }
            let _ = machine.step(&words);
        }
    }
}
