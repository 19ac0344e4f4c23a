// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The checker of LDS: what it reports, and what it does not.

#![allow(
    clippy::precedence,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may panic, that is how it fails; fields are clearer without parentheses"
)]

mod common;

use common::assemble;
use common::machine::Flat;
use common::machine::Host as Sink;
use common::machine::BASE;
use common::without_llvm;
use gfx9_isa::decode::Decoder;
use gfx9_isa::exec::touch::How;
use gfx9_isa::exec::touch::Touches;
use gfx9_isa::exec::Flow;
use gfx9_isa::group::Event;
use gfx9_isa::group::Group;
use gfx9_isa::group::Host;
use gfx9_isa::inst::Asic;
use gfx9_isa::inst::Inst;
use gfx9_isa::observe::Observer;
use gfx9_isa::processor::Processor;
use gfx9_isa::races::Checker;
use gfx9_isa::races::Finding;
use gfx9_isa::races::Mistake;
use gfx9_isa::wave::reg;
use gfx9_isa::wave::Wave;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

const CODE: u64 = 0x8000;
const WAVES: usize = 4;
/// Bytes of LDS: a dword for each lane of the four waves.
const LDS: usize = 1024;

/// Runs `program` on four waves of 64 lanes; v0 is the number of the work-item, s2 that of the wave.
fn check(program: &str, seed: u64) -> Vec<Finding> {
    let mut memory = Flat::new(1 << 16);
    for (index, word) in assemble(Asic::Gfx90a, program).into_iter().enumerate() {
        memory.set_word(CODE as usize / 4 + index, word);
    }
    let wave = |number: usize| {
        let mut wave = Wave::new(Asic::Gfx90a);
        wave.pc = BASE + CODE;
        wave.set_pair(reg::EXEC, u64::MAX);
        wave.set_pair(0, BASE);
        wave.sgpr[2] = number as u32;
        for (lane, slot) in wave.vgpr_mut(0, false).unwrap().iter_mut().enumerate() {
            *slot = (64 * number + lane) as u32;
        }
        wave.sh_mem_bases = 0x1_0002;
        wave
    };
    let mut group = Group::new((0..WAVES).map(wave).collect(), LDS, seed);
    let (mut processor, mut sink) = (Processor::new(Asic::Gfx90a), Sink::default());
    let mut checker = Checker::new(&Arc::default(), LDS, true);
    let mut findings = Vec::new();
    loop {
        let mut host = Host {
            processor: &mut processor,
            memory: &mut memory,
            messages: &mut sink,
        };
        // Slices of the group go on where the one before has ended.
        let event = group.observe(&mut host, 50, &mut checker);
        findings.extend(checker.take());
        match event {
            Event::Budget | Event::Stalled => {}
            Event::Done => return findings,
            other => panic!("{other:?}"),
        }
    }
}

/// The offset of a finding's instruction, what is wrong, with the offset of the other one, and how it accesses.
fn brief(finding: &Finding) -> (u64, String, How) {
    let offset = |pc: u64| pc - BASE - CODE;
    let what = match finding.mistake {
        Mistake::Race { pc, how, .. } => format!("{} at {}", how.word(), offset(pc)),
        Mistake::Unwritten => "unwritten".to_owned(),
        Mistake::Beyond => "beyond".to_owned(),
    };
    (offset(finding.pc), what, finding.how)
}

/// Each work-item writes its dword and reads that of the work-item at the other end.
fn mirror(between: &str) -> String {
    format!(
        "v_lshlrev_b32_e32 v1, 2, v0\nds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\n{between}\n\
         v_xor_b32_e32 v2, 0x3fc, v1\nds_read_b32 v3, v2\ns_waitcnt lgkmcnt(0)\n{between}\n\
         ds_write_b32 v1, v3\ns_endpgm"
    )
}

#[test]
fn barriers_order_what_is_before_and_behind_them() {
    if without_llvm("races") {
        return;
    }
    for seed in 0..20 {
        assert_eq!(check(&mirror("s_barrier"), seed), [], "seed {seed}");
        let findings = check(&mirror("s_nop 0"), seed);
        assert!(!findings.is_empty(), "seed {seed}");
        for finding in &findings {
            let Mistake::Race { wave, .. } = finding.mistake else {
                // Whoever comes first reads what nobody has written.
                assert_eq!(finding.mistake, Mistake::Unwritten);
                continue;
            };
            assert_eq!(wave + finding.wave, WAVES - 1, "{finding:?}");
        }
        let briefs: BTreeSet<_> = findings.iter().map(brief).map(|brief| brief.1).collect();
        // The first write (4 bytes behind a shift), and the read or the second write (behind a literal).
        assert!(
            briefs.contains("write at 4") || briefs.contains("read at 28"),
            "{briefs:?}"
        );
    }
}

#[test]
fn a_second_barrier_is_missed_where_it_is_missing() {
    if without_llvm("races") {
        return;
    }
    // What is read behind the first barrier is overwritten by waves that are faster.
    let program = "v_lshlrev_b32_e32 v1, 2, v0\nv_xor_b32_e32 v2, 0x3fc, v1\nds_write_b32 v1, v0\n\
        s_waitcnt lgkmcnt(0)\ns_barrier\nds_read_b32 v3, v2\ns_waitcnt lgkmcnt(0)\nds_write_b32 v1, v3\ns_endpgm";
    for seed in 0..20 {
        let findings: Vec<_> = check(program, seed).iter().map(brief).collect();
        assert!(!findings.is_empty(), "seed {seed}");
        for (at, what, how) in findings {
            let known = [
                (28, "write at 40", How::Read),
                (40, "read at 28", How::Write),
            ];
            assert!(
                known.contains(&(at, what.as_str(), how)),
                "{at} {what} {how:?}"
            );
        }
    }
}

#[test]
fn atomics_do_not_race_and_pass_on_what_was_written_before() {
    if without_llvm("races") {
        return;
    }
    // The first wave clears a counter and a flag.  All count; the third writes a value and raises the flag, which the
    // others wait for before they read it.
    let program = "v_mov_b32_e32 v1, 0\nv_mov_b32_e32 v2, 1\nv_mov_b32_e32 v3, 7\ns_cmp_lg_u32 s2, 0\n\
        s_cbranch_scc1 cleared\nds_write_b64 v1, v[10:11]\ns_waitcnt lgkmcnt(0)\ncleared:\ns_barrier\n\
        ds_add_u32 v1, v2\ns_cmp_lg_u32 s2, 2\ns_cbranch_scc1 wait\nds_write_b32 v1, v3 offset:8\n\
        ds_or_b32 v1, v2 offset:4\ns_endpgm\nwait:\nds_add_rtn_u32 v4, v1, v1 offset:4\n\
        s_waitcnt lgkmcnt(0)\nv_readfirstlane_b32 s5, v4\ns_cmp_eq_u32 s5, 0\ns_cbranch_scc1 wait\n\
        ds_read_b32 v5, v1 offset:8\ns_endpgm";
    for seed in 0..20 {
        assert_eq!(check(program, seed), [], "seed {seed}");
    }
    // A plain store beside them is another matter.
    let program = "v_mov_b32_e32 v1, 0\nds_write_b32 v1, v1\nds_add_u32 v1, v1\ns_endpgm";
    let found = check(program, 1);
    assert!(
        found
            .iter()
            .any(|f| matches!(f.mistake, Mistake::Race { .. })),
        "{found:?}"
    );
}

#[test]
fn atomics_on_memory_order_waves() {
    if without_llvm("races") {
        return;
    }
    // The first wave writes and raises a flag in memory, for which the others wait.
    let program =
        "v_mov_b32_e32 v1, 0\nv_mov_b32_e32 v2, 1\ns_cmp_lg_u32 s2, 0\ns_cbranch_scc1 wait\n\
        ds_write_b32 v1, v2\nglobal_atomic_or v1, v2, s[0:1]\ns_endpgm\nwait:\n\
        global_atomic_or v4, v1, v1, s[0:1] glc\ns_waitcnt vmcnt(0)\nv_readfirstlane_b32 s5, v4\n\
        s_cmp_eq_u32 s5, 0\ns_cbranch_scc1 wait\nds_read_b32 v5, v1\ns_endpgm";
    for seed in 0..20 {
        assert_eq!(check(program, seed), [], "seed {seed}");
    }
}

#[test]
fn bytes_of_a_dword_are_apart() {
    if without_llvm("races") {
        return;
    }
    // Each wave writes one byte of the first dwords; all read them behind a barrier.
    let program =
        "v_and_b32_e32 v1, 63, v0\nv_lshlrev_b32_e32 v1, 2, v1\nv_add_u32_e32 v2, s2, v1\n\
        ds_write_b8 v2, v0\ns_waitcnt lgkmcnt(0)\ns_barrier\nds_read_b32 v3, v1\ns_endpgm";
    assert_eq!(check(program, 3), []);
    // Halves are not where two waves write each.
    let program = "v_mov_b32_e32 v1, 0\ns_and_b32 s3, s2, 2\nv_mov_b32_e32 v2, s3\nds_write_b16 v2, v1\ns_endpgm";
    let found: Vec<_> = check(program, 3).iter().map(brief).collect();
    assert_eq!(found, [(12, "write at 12".to_owned(), How::Write)]);
}

#[test]
fn reads_of_what_nobody_has_written_and_beyond_the_allocation_are_found() {
    if without_llvm("races") {
        return;
    }
    let own = "v_lshlrev_b32_e32 v1, 2, v0\nds_write_b32 v1, v0\n";
    for (access, what, how, address) in [
        (
            "v_mov_b32_e32 v1, 0x3fe\nds_read_u16 v2, v1",
            None,
            How::Read,
            0,
        ),
        (
            "v_mov_b32_e32 v1, 0x3fe\nds_read_b32 v2, v1",
            Some("beyond"),
            How::Read,
            LDS,
        ),
        (
            "v_mov_b32_e32 v1, 0x3fc\nds_write_b64 v1, v[2:3]",
            Some("beyond"),
            How::Write,
            LDS,
        ),
        (
            "v_mov_b32_e32 v1, -1\nds_add_u32 v1, v2 offset:5",
            None,
            How::Atomic,
            0,
        ),
        (
            "v_mov_b32_e32 v1, 0x500\nds_write_b8 v1, v2",
            Some("beyond"),
            How::Write,
            0x500,
        ),
        // By FLAT, whose aperture of LDS is at 1 << 48 here.
        (
            "v_mov_b32_e32 v2, 0x440\nv_mov_b32_e32 v3, 0x10000\nflat_load_ubyte v4, v[2:3]",
            Some("beyond"),
            How::Read,
            0x440,
        ),
    ] {
        let program = format!("{own}s_waitcnt lgkmcnt(0)\ns_barrier\n{access}\ns_endpgm");
        let found = check(&program, 5);
        let found: Vec<_> = found
            .iter()
            .filter(|f| !matches!(f.mistake, Mistake::Race { .. }))
            .collect();
        match what {
            None => assert!(found.is_empty(), "{access}: {found:?}"),
            Some(what) => {
                let [finding] = found[..] else {
                    panic!("{access}: {found:?}");
                };
                let (_, found, found_how) = brief(finding);
                assert_eq!(
                    (found.as_str(), found_how, finding.address),
                    (what, how, address as u64)
                );
            }
        }
    }
    let found: Vec<_> = check(
        "v_lshlrev_b32_e32 v1, 2, v0\nds_read_b32 v2, v1\ns_endpgm",
        5,
    );
    let [finding] = found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(
        (finding.mistake, finding.how),
        (Mistake::Unwritten, How::Read)
    );
}

#[test]
fn a_group_that_was_not_watched_before_is_given_the_benefit_of_the_doubt() {
    let mut checker = Checker::new(&Arc::default(), 16, false);
    let mut wave = Wave::new(Asic::Gfx90a);
    let [_, _, read] = instructions();
    wave.set_pair(reg::EXEC, 1);
    step(&mut checker, &mut wave, (0, 8, 4), &read, Flow::Next);
    assert_eq!(checker.take(), []);
}

/// `s_barrier`, `ds_write_b8 v1, v2` and `ds_read_b32 v3, v1`.
fn instructions() -> [Inst; 3] {
    let decoder = Decoder::new(Asic::Gfx90a);
    let words: [&[u32]; 3] = [
        &[0xBF8A_0000],
        &[0xD83C_0000, 0x0000_0201],
        &[0xD86C_0000, 0x0300_0001],
    ];
    words.map(|words| decoder.decode(words).unwrap())
}

/// Lets the wave `number` execute an instruction at `pc` on the LDS address `at`.
fn step(
    checker: &mut Checker,
    wave: &mut Wave,
    (number, at, pc): (usize, u32, u64),
    inst: &Inst,
    flow: Flow,
) {
    wave.pc = pc;
    wave.vgpr_mut(1, false).unwrap()[0] = at;
    checker.turn(number);
    checker.before(wave, inst);
    checker.after(wave, inst, Ok(flow));
}

/// What a wave does: an access (whether it writes, byte of LDS), or a barrier.
type Step = Option<(bool, u32)>;

fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let phase = || prop::collection::vec((any::<bool>(), 0u32..16), 0..4);
    let wave = move || prop::collection::vec(phase(), 3);
    let program = |phases: Vec<Vec<(bool, u32)>>| {
        let steps = phases
            .into_iter()
            .flat_map(|phase| phase.into_iter().map(Some).chain([None]));
        steps.collect::<Vec<Step>>()
    };
    prop::collection::vec(wave().prop_map(program), 3)
}

proptest! {
    /// Of programs without atomics the checker finds each dword with a race, in whatever order the waves execute, and
    /// nothing else.
    #[test]
    fn races_are_found_in_each_order_and_no_others(steps in steps(), order in prop::collection::vec(any::<prop::sample::Index>(), 200)) {
        let [barrier, write, read] = instructions();
        let mut checker = Checker::new(&Arc::new(Touches::default()), 16, false);
        let mut wave = Wave::new(Asic::Gfx90a);
        wave.set_pair(reg::EXEC, 1);
        // How far each wave is, and through how many barriers.
        let mut done = [(0, 0); 3];
        let mut order = order.iter().cycle();
        while done.iter().zip(&steps).any(|((at, _), steps)| *at < steps.len()) {
            let least = done.iter().map(|(_, barriers)| *barriers).min().unwrap();
            let ready: Vec<usize> = (0..3).filter(|n| done[*n].0 < steps[*n].len() && done[*n].1 == least).collect();
            let number = *order.next().unwrap().get(&ready);
            let (at, barriers) = done[number];
            let pc = 1000 * number as u64 + at as u64;
            match steps[number][at] {
                Some((true, to)) => step(&mut checker, &mut wave, (number, to, pc), &write, Flow::Next),
                Some((false, from)) => step(&mut checker, &mut wave, (number, from & !3, pc), &read, Flow::Next),
                None => step(&mut checker, &mut wave, (number, 0, pc), &barrier, Flow::Barrier),
            }
            done[number] = (at + 1, barriers + usize::from(steps[number][at].is_none()));
        }
        // Wave, phase, bytes, whether it writes.
        let mut accesses = Vec::new();
        for (number, steps) in steps.iter().enumerate() {
            let mut phase = 0;
            for step in steps {
                match step {
                    Some((true, at)) => accesses.push((number, phase, *at..at + 1, true)),
                    Some((false, at)) => accesses.push((number, phase, at & !3..(at & !3) + 4, false)),
                    None => phase += 1,
                }
            }
        }
        let mut racy = BTreeSet::new();
        for (wave, phase, bytes, writes) in &accesses {
            for (other, other_phase, other_bytes, other_writes) in &accesses {
                let both = bytes.start.max(other_bytes.start)..bytes.end.min(other_bytes.end);
                if wave != other && phase == other_phase && (*writes || *other_writes) && !both.is_empty() {
                    racy.insert(u64::from(both.start / 4));
                }
            }
        }
        let found = checker.take();
        let dwords: BTreeSet<u64> = found.iter().map(|finding| finding.address / 4).collect();
        prop_assert_eq!(dwords, racy);
        for finding in &found {
            let Mistake::Race { wave, pc, .. } = finding.mistake else {
                return Err(TestCaseError::fail(format!("{finding:?}")));
            };
            prop_assert_eq!((pc / 1000) as usize, wave);
            prop_assert!(wave != finding.wave);
            let phase = |pc: u64| {
                let steps = &steps[(pc / 1000) as usize];
                steps.iter().take((pc % 1000) as usize).filter(|step| step.is_none()).count()
            };
            prop_assert_eq!(phase(pc), phase(finding.pc));
        }
    }
}
