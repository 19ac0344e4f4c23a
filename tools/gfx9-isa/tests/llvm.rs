// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Decoder and text against LLVM's disassembler, in both directions: what it accepts decodes to the same text, and
//! what it refuses is refused.  `ISA_SWEEP=N` takes N times as many samples, `ISA_SEED=N` others.

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

use common::disassemble;
use common::kills_llvm;
use common::seed;
use common::sweep;
use common::without_llvm;
use common::Random;
use gfx9_isa::decode::Decoder;
use gfx9_isa::inst::Asic;
use gfx9_isa::text::text;
use std::collections::BTreeMap;

/// Instructions that serve graphics only; they are no part of the tables.
fn is_graphics(text: &str) -> bool {
    ["v_interp_", "exp ", "image_"]
        .iter()
        .any(|start| text.starts_with(start))
}

/// What LLVM 19 decodes although the field has no such register: lane masks written to read-only operands, and
/// scalars as factors of matrices.
fn is_oddity(text: &str) -> bool {
    let scalar = [", src_", ", null"].iter().any(|name| text.contains(name));
    let masked = [
        "v_cndmask_b32_e64",
        "v_addc_co_u32_e64",
        "v_subb_co_u32_e64",
        "v_subbrev_co_u32_e64",
    ];
    let matrix = text.starts_with("v_mfma_") || text.starts_with("v_smfmac_");
    let masked = masked.iter().any(|name| text.starts_with(name));
    let mut arguments = text.split(", ").skip(1);
    let second = arguments.next().unwrap_or("");
    let last = text.rsplit(", ").next().unwrap_or("");
    let lane = text.starts_with("v_readlane_b32 src_")
        || (text.starts_with("v_readlane")
            && second.starts_with("src_")
            && second != "src_lds_direct");
    let lane = lane || (text.starts_with("v_mqsad_u32_u8") && last.starts_with("src_"));
    text.contains("_e64 src_")
        || ((matrix && scalar) || (masked && last.starts_with("src_")) || lane)
}

/// A source operand of 9 bits, of the kinds that instructions accept most.
fn source(random: &mut Random) -> u32 {
    match random.below(16) {
        0..=6 => 256 + random.below(128) * 2,
        7 => 256 + random.below(256),
        8 | 9 => random.below(26) * 4,
        10 => random.below(128),
        11 | 12 => 128 + random.below(81),
        13 => 240 + random.below(9),
        14 => 0,
        _ => 200 + random.below(56),
    }
}

/// Zero half of the time; a field of `bits` bits.
fn sparse(random: &mut Random, bits: u32) -> u32 {
    if random.once_in(2) {
        0
    } else {
        random.below(1 << bits)
    }
}

fn register(random: &mut Random) -> u32 {
    match random.below(8) {
        0..=4 => random.below(64) * 4,
        5 => random.below(256),
        6 => 250 + random.below(6),
        _ => 0,
    }
}

fn scalar(random: &mut Random) -> u32 {
    match random.below(8) {
        0..=3 => random.below(26) * 4,
        4 => 96 + random.below(32),
        5 => 106,
        _ => random.below(128),
    }
}

fn source8(random: &mut Random) -> u32 {
    match random.below(6) {
        0..=2 => scalar(random),
        3 => 128 + random.below(81),
        4 => 255,
        _ => random.below(256),
    }
}

/// An SDWA or DPP word.
fn exchange(random: &mut Random) -> u32 {
    if random.once_in(2) {
        let ctrl =
            [0xE4, 0x1B, 0x101, 0x11F, 0x125, 0x130, 0x140, 0x143, 0x153][random.below(9) as usize];
        let ctrl = if random.once_in(4) {
            random.below(512)
        } else {
            ctrl
        };
        return register(random) | ctrl << 8 | sparse(random, 5) << 19 | random.below(256) << 24;
    }
    let select = |random: &mut Random| {
        if random.once_in(8) {
            random.below(8)
        } else {
            random.below(7)
        }
    };
    let low = register(random) | select(random) << 8 | random.below(3) << 11;
    let mods = sparse(random, 3) << 13 | sparse(random, 3) << 19 | sparse(random, 3) << 27;
    let scalars = u32::from(random.once_in(8)) << 23 | u32::from(random.once_in(8)) << 31;
    low | mods | scalars | select(random) << 16 | select(random) << 24
}

/// The encodings: how many opcodes each has, and a word pair of an opcode.
type Sampler = fn(&mut Random, u32) -> [u32; 2];
const FAMILIES: [(&str, u32, Sampler); 15] = [
    ("SOP1", 256, |r, op| {
        [
            0x17D << 23 | scalar(r) << 16 | op << 8 | source8(r),
            r.next() as u32,
        ]
    }),
    ("SOP2", 96, |r, op| {
        [
            2 << 30 | op << 23 | scalar(r) << 16 | source8(r) << 8 | source8(r),
            r.next() as u32,
        ]
    }),
    ("SOPC", 128, |r, op| {
        [
            0x17E << 23 | op << 16 | source8(r) << 8 | source8(r),
            r.next() as u32,
        ]
    }),
    ("SOPK", 29, |r, op| {
        let imm = if r.once_in(4) {
            r.below(70)
        } else if r.once_in(2) {
            r.below(64) | 31 << 11
        } else {
            r.below(65536)
        };
        [
            0xB << 28 | op << 23 | scalar(r) << 16 | imm,
            r.next() as u32,
        ]
    }),
    ("SOPP", 128, |r, op| {
        let imm = match r.below(4) {
            0 => 0,
            1 => r.below(16) | r.below(8) << 4,
            2 => r.below(256),
            _ => r.below(65536),
        };
        [0x17F << 23 | op << 16 | imm, 0]
    }),
    ("SMEM", 256, |r, op| {
        let kind = [1 << 17, 1 << 17 | 1 << 16, 0, 1 << 14, 1 << 14 | 1 << 17];
        let kind = kind[r.below(5) as usize];
        let offset = if kind & 1 << 17 != 0 {
            r.below(1 << 21)
        } else {
            scalar(r)
        };
        let register = if kind & 1 << 14 != 0 { scalar(r) } else { 0 };
        let low = 0x30 << 26 | op << 18 | kind | scalar(r) << 6 | scalar(r) >> 1;
        [low, offset | register << 25]
    }),
    ("VOP1", 256, |r, op| {
        let src = source(r);
        let low = 0x3F << 25 | register(r) << 17 | op << 9;
        match r.below(4) {
            0 => [low | 249 + r.below(2), exchange(r)],
            1 => [low | 255, r.next() as u32],
            _ => [low | src, r.next() as u32],
        }
    }),
    ("VOP2", 62, |r, op| {
        let low = op << 25 | register(r) << 17 | register(r) << 9;
        match r.below(4) {
            0 => [low | 249 + r.below(2), exchange(r)],
            1 => [low | 255, r.next() as u32],
            _ => [low | source(r), r.next() as u32],
        }
    }),
    ("VOPC", 256, |r, op| {
        let low = 0x3E << 25 | op << 17 | register(r) << 9;
        match r.below(4) {
            0 => [low | 249 + r.below(2), exchange(r)],
            1 => [low | 255, r.next() as u32],
            _ => [low | source(r), r.next() as u32],
        }
    }),
    ("VOP3", 1024, |r, op| {
        let third = if r.once_in(2) { source(r) } else { scalar(r) };
        let third = if r.once_in(3) { 0 } else { third };
        let second = if r.once_in(4) { 0 } else { source(r) };
        let mods = sparse(r, 8) << 8;
        let high = source(r) | second << 9 | third << 18;
        let mods_high = sparse(r, 2) << 27 | sparse(r, 3) << 29;
        let (mods, mods_high) = if r.once_in(3) {
            (0, 0)
        } else {
            (mods, mods_high)
        };
        [0x34 << 26 | op << 16 | mods | register(r), high | mods_high]
    }),
    ("VOP3P", 128, |r, op| {
        let third = if r.once_in(3) { 0 } else { source(r) };
        let high = source(r) | source(r) << 9 | third << 18;
        let (mods, mods_high) = (sparse(r, 8) << 8, sparse(r, 5) << 27);
        [
            0x1A7 << 23 | op << 16 | mods | register(r),
            high | mods_high,
        ]
    }),
    ("DS", 256, |r, op| {
        let fields = |r: &mut Random| if r.once_in(2) { 0 } else { register(r) };
        let high = register(r) | fields(r) << 8 | fields(r) << 16 | fields(r) << 24;
        let flags = u32::from(r.once_in(4)) << 16 | u32::from(r.once_in(4)) << 25;
        [0x36 << 26 | op << 17 | flags | sparse(r, 16), high]
    }),
    ("FLAT", 512, |r, op| {
        let saddr = match r.below(4) {
            0 => 0x7F,
            1 => 0,
            _ => scalar(r),
        };
        let high = register(r) | register(r) << 8 | saddr << 16;
        let high = high | u32::from(r.once_in(4)) << 23 | register(r) << 24;
        let flags = sparse(r, 2) << 16 | u32::from(r.once_in(4)) << 25;
        let flags = flags | u32::from(r.once_in(4)) << 13;
        [
            0x37 << 26 | (op & 127) << 18 | (op >> 7) << 14 | flags | sparse(r, 13),
            high,
        ]
    }),
    ("MUBUF", 128, |r, op| {
        let high = register(r) | register(r) << 8 | (scalar(r) / 4) << 16;
        let high = high | u32::from(r.once_in(4)) << 23 | source8(r) << 24;
        let flags = sparse(r, 4) << 12 | u32::from(r.once_in(8)) << 16 | sparse(r, 1) << 17;
        [0x38 << 26 | op << 18 | flags | sparse(r, 12), high]
    }),
    ("MTBUF", 16, |r, op| {
        let high = register(r) | register(r) << 8 | (scalar(r) / 4) << 16;
        let high = high | sparse(r, 3) << 21 | source8(r) << 24;
        let flags = sparse(r, 3) << 12 | r.below(128) << 19;
        [0x3A << 26 | op << 15 | flags | sparse(r, 12), high]
    }),
];

/// Compares both sides over the samples and shows what differs, by mnemonic.
fn compare(asic: Asic, groups: &[Vec<u32>]) -> (usize, usize) {
    let decoder = Decoder::new(asic);
    let mut differences: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let (mut accepted, mut refused) = (0, 0);
    let groups: Vec<Vec<u32>> = groups
        .iter()
        .filter(|words| !kills_llvm(words))
        .cloned()
        .collect();
    for (words, theirs) in groups.iter().zip(disassemble(asic, &groups)) {
        let ours = decoder.decode(words);
        let whole = ours.is_ok_and(|inst| usize::from(inst.size) == words.len() * 4);
        let ours = match &ours {
            Ok(inst) if whole => Some(text(inst, asic)),
            _ => None,
        };
        let theirs = theirs.filter(|text| !is_graphics(text) && !is_oddity(text));
        if theirs.is_some() {
            accepted += 1;
        } else {
            refused += 1;
        }
        if ours != theirs {
            let name = |text: &Option<String>| {
                text.as_ref().map_or("-".to_owned(), |text| {
                    text.split(' ').next().unwrap_or("").to_owned()
                })
            };
            let key = format!("{} / {}", name(&ours), name(&theirs));
            let entry = differences.entry(key).or_insert_with(|| {
                let hex: Vec<String> = words.iter().map(|word| format!("{word:08x}")).collect();
                let ours = ours
                    .clone()
                    .unwrap_or_else(|| format!("{:?}", decoder.decode(words).err()));
                (
                    0,
                    format!("{} ours `{ours}` LLVM `{theirs:?}`", hex.join(" ")),
                )
            });
            entry.0 += 1;
        }
    }
    let total: usize = differences.values().map(|(count, _)| count).sum();
    let list: Vec<String> = differences
        .iter()
        .take(400)
        .map(|(key, (count, example))| format!("{count} x {key}: {example}"))
        .collect();
    assert!(
        differences.is_empty(),
        "{}: {total} of {} differ\n{}",
        asic.name(),
        groups.len(),
        list.join("\n")
    );
    (accepted, refused)
}

/// `samples` of every opcode value of every encoding.
fn opcodes(asic: Asic, samples: usize) {
    let mut random = Random(seed());
    let decoder = Decoder::new(asic);
    let mut groups = Vec::new();
    for (name, count, sampler) in FAMILIES {
        for op in 0..count {
            for _ in 0..samples {
                let words = sampler(&mut random, op);
                let long = matches!(
                    name,
                    "SMEM" | "VOP3" | "VOP3P" | "DS" | "FLAT" | "MUBUF" | "MTBUF"
                );
                // Of the others the first word decides how long they are; whoever is wrong there differs.
                let size = decoder.decode(&words).map_or(8, |inst| inst.size);
                let length = if long { 2 } else { usize::from(size) / 4 };
                groups.push(words[..length].to_vec());
            }
        }
    }
    let (accepted, refused) = compare(asic, &groups);
    eprintln!(
        "{}: {accepted} instructions with the same text, {refused} refused by both",
        asic.name()
    );
    assert!(accepted > groups.len() / 8, "the samples test nothing");
}

#[test]
fn every_opcode_of_gfx906_is_llvms() {
    if !without_llvm("gfx906") {
        opcodes(Asic::Gfx906, 8 * sweep());
    }
}

#[test]
fn every_opcode_of_gfx90a_is_llvms() {
    if !without_llvm("gfx90a") {
        opcodes(Asic::Gfx90a, 8 * sweep());
    }
}

#[test]
fn every_opcode_of_gfx942_is_llvms() {
    if !without_llvm("gfx942") {
        opcodes(Asic::Gfx942, 8 * sweep());
    }
}

#[test]
fn random_words_mean_what_llvm_says() {
    if without_llvm("random words") {
        return;
    }
    for asic in Asic::ALL {
        let mut random = Random(seed() ^ 0x5EED);
        let groups: Vec<Vec<u32>> = (0..6000 * sweep())
            .map(|_| {
                let length = 1 + random.below(3) as usize;
                (0..length).map(|_| random.next() as u32).collect()
            })
            .collect();
        compare(asic, &groups);
    }
}

#[test]
fn what_llvm_assembles_has_the_same_text() {
    if without_llvm("assembler") {
        return;
    }
    for asic in Asic::ALL {
        let mut random = Random(seed() ^ 0xA53);
        let decoder = Decoder::new(asic);
        let mut lines: Vec<String> = Vec::new();
        for (_, count, sampler) in FAMILIES {
            for op in 0..count {
                for _ in 0..6 * sweep() {
                    if let Ok(inst) = decoder.decode(&sampler(&mut random, op)) {
                        lines.push(text(&inst, asic));
                    }
                }
            }
        }
        // Fields that the text does not tell are chosen by the assembler, as in all programs.
        let encodings = common::assemble_lines(asic, &lines);
        let mut same = 0;
        for (line, words) in lines.iter().zip(encodings) {
            let Some(words) = words else {
                continue;
            };
            match decoder.decode(&words) {
                Ok(inst) => assert_eq!(&text(&inst, asic), line, "{words:x?}"),
                Err(error) => panic!("{line}: {words:x?}: {error}"),
            }
            same += 1;
        }
        eprintln!("{}: {same} of {} lines", asic.name(), lines.len());
        assert!(same > lines.len() * 9 / 10, "{same} of {}", lines.len());
    }
}

#[test]
fn rare_fields_are_llvms_too() {
    if without_llvm("rare fields") {
        return;
    }
    for asic in Asic::ALL {
        // Every message with every operation and stream.
        let mut groups: Vec<Vec<u32>> = (0..0x400).map(|imm| vec![0xBF90_0000 | imm]).collect();
        // Conversions from 8-bit floats with every selection for the result.
        for op in 84..88 {
            for sel in 0..8 * 4 {
                let high = 1 | sel << 8 | 6 << 16;
                groups.push(vec![0x3F << 25 | 2 << 17 | op << 9 | 249, high]);
            }
        }
        compare(asic, &groups);
    }
}
