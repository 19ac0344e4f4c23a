// SPDX-License-Identifier: GPL-2.0 OR MIT
//! LLVM's assembler and disassembler as a witness.
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    missing_docs,
    reason = "a test may panic; that is how it fails"
)]

pub mod machine;

use gfx9_isa::env::Lanes;
use gfx9_isa::inst::Asic;
use std::collections::HashMap;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Command;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::thread;

/// Stands between two groups of words, so that an unusual length of one does not shift the next.
const SENTINEL: &str = "s_nop 0x2bad";
const SENTINEL_BYTES: &str = "[0xad,0x2b,0x80,0xbf]";

/// The name of LLVM 19's `llvm-mc`; other versions write other texts.
pub fn llvm_mc() -> Option<&'static str> {
    static FOUND: OnceLock<Option<&'static str>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        ["llvm-mc-19", "llvm-mc"].into_iter().find(|name| {
            let output = Command::new(name).arg("--version").output();
            output.is_ok_and(|output| {
                String::from_utf8_lossy(&output.stdout).contains("LLVM version 19.")
            })
        })
    })
}

/// Says why a test is left out.
pub fn without_llvm(test: &str) -> bool {
    let missing = llvm_mc().is_none();
    if missing {
        eprintln!("{test}: skipped, since there is no llvm-mc of LLVM 19");
    }
    missing
}

fn run(args: &[&str], input: &str) -> (String, String) {
    let mut child = Command::new(llvm_mc().unwrap())
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input.as_bytes()).unwrap());
        child.wait_with_output().unwrap()
    });
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// What LLVM makes of each group of words: the text of one instruction that takes all of it, or nothing.
pub fn disassemble(asic: Asic, groups: &[Vec<u32>]) -> Vec<Option<String>> {
    let mut input = String::new();
    for group in groups {
        let bytes: Vec<String> = group
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .map(|byte| format!("{byte:#04x}"))
            .collect();
        let _ = writeln!(input, "[{}]\n{SENTINEL_BYTES}", bytes.join(","));
    }
    let cpu = format!("-mcpu={}", asic.name());
    let args = ["-triple=amdgcn-amd-amdhsa", &cpu, "--disassemble"];
    let (stdout, stderr) = run(&args, &input);
    let refused: HashSet<usize> = stderr
        .lines()
        .filter(|line| line.contains("warning: invalid"))
        .filter_map(|line| line.split(':').nth(1)?.parse::<usize>().ok())
        .map(|line| (line - 1) / 2)
        .collect();
    let mut found = Vec::with_capacity(groups.len());
    let mut group: Vec<&str> = Vec::new();
    for line in stdout.lines() {
        let Some(line) = line.strip_prefix('\t') else {
            continue;
        };
        // Warnings about what an instruction before it has follow as a comment.
        let line = line.split("//").next().unwrap_or("");
        let line = line.split(" ;").next().unwrap_or("").trim();
        if line == SENTINEL {
            // A remark stands in place of an operand that does not exist.
            let whole = group.len() == 1
                && !refused.contains(&found.len())
                && !group.iter().any(|text| text.contains("/*"));
            found.push(whole.then(|| group[0].to_owned()));
            group.clear();
        } else if !line.starts_with('.') {
            group.push(line);
        }
    }
    assert_eq!(found.len(), groups.len(), "llvm-mc: {stderr}");
    found
}

/// What LLVM assembles of each line: its words, or nothing.
pub fn assemble_lines(asic: Asic, lines: &[String]) -> Vec<Option<Vec<u32>>> {
    let cpu = format!("-mcpu={}", asic.name());
    let args = ["-triple=amdgcn-amd-amdhsa", &cpu, "--show-encoding"];
    let (stdout, stderr) = run(&args, &lines.join("\n"));
    let refused: HashSet<usize> = stderr
        .lines()
        .filter(|line| line.contains(": error:"))
        .filter_map(|line| line.split(':').nth(1)?.parse::<usize>().ok())
        .collect();
    let mut encodings = stdout.lines().filter_map(|line| {
        let (_, bytes) = line.split_once("encoding: [")?;
        let bytes: Option<Vec<u8>> = bytes
            .trim_end_matches(']')
            .split(',')
            .map(|byte| u8::from_str_radix(byte.strip_prefix("0x")?, 16).ok())
            .collect();
        let words = bytes.map(|bytes| {
            let word = |part: &[u8]| u32::from_le_bytes(part.try_into().unwrap());
            bytes.chunks(4).map(word).collect::<Vec<u32>>()
        });
        Some(words)
    });
    let found = (1..=lines.len())
        .map(|line| {
            if refused.contains(&line) {
                None
            } else {
                encodings.next().flatten()
            }
        })
        .collect();
    assert!(encodings.next().is_none(), "llvm-mc: {stderr}");
    found
}

/// LLVM 19 dies of reserved selections of SDWA, and of scalar sources there that are neither register nor constant.
pub fn kills_llvm(words: &[u32]) -> bool {
    let [low, high, ..] = *words else {
        return false;
    };
    let sdwa = low >> 31 == 0 && low & 0x1FF == 249;
    let odd = |scalar: u32, code: u32| scalar != 0 && matches!(code & 0xFF, 209..=239 | 249..);
    let source = odd(high >> 23 & 1, high) || odd(high >> 31, low >> 9);
    let select = [8, 16, 24].into_iter().any(|at| high >> at & 7 == 7);
    sdwa && (source || select || high >> 11 & 3 == 3)
}

/// Numbers that depend on the seed only.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u32) -> u32 {
        (self.next() >> 32) as u32 % bound
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u32) -> bool {
        self.below(times) == 0
    }
}

/// The seed: ISA_SEED, or the same each time.
pub fn seed() -> u64 {
    std::env::var("ISA_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(9)
}

/// How many times longer than usual to test: ISA_SWEEP.
pub fn sweep() -> usize {
    std::env::var("ISA_SWEEP")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1)
}

/// As [`assemble_anew`], once per program.
pub fn assemble(asic: Asic, program: &str) -> Vec<u32> {
    type Known = Mutex<HashMap<(Asic, String), Vec<u32>>>;
    static KNOWN: OnceLock<Known> = OnceLock::new();
    let known = KNOWN.get_or_init(Known::default);
    let key = (asic, program.to_owned());
    if let Some(words) = known.lock().unwrap().get(&key) {
        return words.clone();
    }
    let words = assemble_anew(asic, program);
    known.lock().unwrap().insert(key, words.clone());
    words
}

/// The words of a program in LLVM's syntax: the section `.text` of the object file that LLVM makes of it.
fn assemble_anew(asic: Asic, program: &str) -> Vec<u32> {
    let dir = std::env::temp_dir();
    let unique = format!(
        "gfx9-isa-{}-{:?}.o",
        std::process::id(),
        thread::current().id()
    );
    let path = dir.join(unique.replace(['(', ')'], "-"));
    let cpu = format!("-mcpu={}", asic.name());
    let out = path.to_string_lossy().into_owned();
    let args = [
        "-triple=amdgcn-amd-amdhsa",
        &cpu,
        "--filetype=obj",
        "-o",
        &out,
    ];
    let (_, stderr) = run(&args, program);
    let object = std::fs::read(&path).unwrap_or_else(|_| panic!("llvm-mc: {stderr}"));
    let _ = std::fs::remove_file(&path);
    let number = |at: usize, bytes: usize| {
        object[at..at + bytes]
            .iter()
            .rev()
            .fold(0usize, |value, byte| value << 8 | usize::from(*byte))
    };
    // ELF64: the section headers; .text is the only section of code.
    let (table, size, count) = (number(0x28, 8), number(0x3A, 2), number(0x3C, 2));
    let code = (0..count)
        .map(|section| table + section * size)
        .find(|at| number(at + 4, 4) == 1 && number(at + 8, 8) & 4 != 0)
        .map(|at| (number(at + 0x18, 8), number(at + 0x20, 8)));
    let (from, length) = code.unwrap();
    object[from..from + length]
        .chunks(4)
        .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
        .collect()
}

/// Integers, among them many that are near the ends of their range.
pub fn random_lanes(random: &mut Random) -> Lanes {
    std::array::from_fn(|_| match random.below(8) {
        0 => random.below(64),
        1 => u32::MAX - random.below(64),
        2 => 0x8000_0000,
        3 => 1 << random.below(32),
        _ => random.next() as u32,
    })
}

/// Floats of 32 bits, among them denormals, infinities and zeros.
pub fn floats(random: &mut Random) -> Lanes {
    std::array::from_fn(|_| match random.below(8) {
        0 => random.below(0x80_0000),
        1 => 0x7F80_0000 | random.below(2) << 31,
        2 => 0,
        3 => (random.next() as u32) & 0x807F_FFFF,
        _ => (random.next() as u32) & 0x87FF_FFFF | 0x3C00_0000,
    })
}
