// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Workgroups: barriers, LDS, turns by seed, save and restore, events.

#![allow(
    clippy::precedence,
    clippy::needless_range_loop,
    clippy::type_complexity,
    clippy::unwrap_used,
    clippy::panic,
    reason = "fields are shifted and masked, and lanes counted, everywhere"
)]

mod common;

use common::assemble;
use common::machine::Flat;
use common::machine::Host as Sink;
use common::machine::BASE;
use common::without_llvm;
use gfx9_isa::env::AtomicOp;
use gfx9_isa::env::Lanes;
use gfx9_isa::env::Memory;
use gfx9_isa::env::MemoryFault;
use gfx9_isa::env::Wide;
use gfx9_isa::exec::Exception;
use gfx9_isa::group::Event;
use gfx9_isa::group::Group;
use gfx9_isa::group::Host;
use gfx9_isa::group::State;
use gfx9_isa::inst::Asic;
use gfx9_isa::processor::Processor;
use gfx9_isa::processor::Stop;
use gfx9_isa::wave::reg;
use gfx9_isa::wave::Wave;
use proptest::prelude::*;
use std::collections::HashSet;

/// Where code stands in the memory.
const CODE: usize = 0x8000;
const WAVES: usize = 4;

/// Sums 256 numbers in LDS; every work-item writes the sum.
const REDUCTION: &str = "
    v_lshlrev_b32_e32 v1, 2, v0
    global_load_dword v2, v1, s[0:1]
    s_waitcnt vmcnt(0)
    ds_write_b32 v1, v2
    s_movk_i32 s4, 128
loop:
    s_waitcnt lgkmcnt(0)
    s_barrier
    v_cmp_gt_u32_e32 vcc, s4, v0
    s_and_saveexec_b64 s[6:7], vcc
    s_lshl_b32 s5, s4, 2
    v_add_u32_e32 v3, s5, v1
    ds_read_b32 v4, v3
    ds_read_b32 v5, v1
    s_waitcnt lgkmcnt(0)
    v_add_u32_e32 v5, v4, v5
    ds_write_b32 v1, v5
    s_mov_b64 exec, s[6:7]
    s_lshr_b32 s4, s4, 1
    s_cmp_lg_u32 s4, 0
    s_cbranch_scc1 loop
    s_waitcnt lgkmcnt(0)
    s_barrier
    v_mov_b32_e32 v6, 0
    ds_read_b32 v6, v6
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v6, s[0:1] offset:1024
    s_endpgm";

/// Each work-item hands its number to the one at the other end.
const MIRROR: &str = "
    v_lshlrev_b32_e32 v1, 2, v0
    ds_write_b32 v1, v0
    s_waitcnt lgkmcnt(0)
    s_barrier
    v_xor_b32_e32 v2, 0x3fc, v1
    ds_read_b32 v3, v2
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v3, s[0:1] offset:1024
    s_endpgm";

/// Waves race for the numbers of a counter; what each has got depends on the order of their turns.  Uses VCC, M0,
/// AccVGPRs, EXEC and SCC across instructions.
const RACE: &str = "
    v_lshlrev_b32_e32 v1, 2, v0
    v_mov_b32_e32 v2, 0
    v_mov_b32_e32 v3, 1
    v_accvgpr_write_b32 a1, v0
    s_movk_i32 s4, 12
    s_mov_b32 m0, 0x1234
loop:
    v_cmp_gt_u32_e32 vcc, 3, v2
    s_mov_b64 s[8:9], exec
    s_mov_b64 exec, 1
    global_atomic_add v4, v2, v3, s[0:1] glc
    s_waitcnt vmcnt(0)
    s_mov_b64 exec, s[8:9]
    v_readfirstlane_b32 s5, v4
    v_accvgpr_read_b32 v5, a1
    v_mul_lo_u32 v5, v5, 31
    v_add_u32_e32 v5, s5, v5
    v_accvgpr_write_b32 a1, v5
    s_sleep 1
    s_sub_u32 s4, s4, 1
    s_cmp_lg_u32 s4, 0
    s_cbranch_scc1 loop
    v_accvgpr_read_b32 v5, a1
    v_add_u32_e32 v5, m0, v5
    v_cndmask_b32_e32 v5, 0, v5, vcc
    global_store_dword v1, v5, s[0:1] offset:1024
    s_endpgm";

/// A group of `waves` waves that runs `text`, its memory and its processor.
struct Run {
    group: Group,
    memory: Flat,
    processor: Processor,
    sink: Sink,
}

impl Run {
    fn new(text: &str, waves: usize, seed: u64) -> Self {
        let asic = Asic::Gfx90a;
        let mut memory = Flat::new(1 << 16);
        for (at, word) in assemble(asic, text).into_iter().enumerate() {
            memory.set_word(CODE / 4 + at, word);
        }
        for index in 0..256 {
            memory.set_word(index, 3 * index as u32 + 1);
        }
        let wave = |number: usize| {
            let mut wave = Wave::new(asic);
            wave.set_limits(32, 8);
            wave.pc = BASE + CODE as u64;
            wave.set_pair(reg::EXEC, u64::MAX);
            wave.set_pair(0, BASE);
            let ids = std::array::from_fn(|lane| (64 * number + lane) as u32);
            *wave.vgpr_mut(0, false).unwrap() = ids;
            wave
        };
        Self {
            group: Group::new((0..waves).map(wave).collect(), 1024, seed),
            memory,
            processor: Processor::new(asic),
            sink: Sink::default(),
        }
    }

    fn step(&mut self, budget: u64) -> Event {
        let mut host = Host {
            processor: &mut self.processor,
            memory: &mut self.memory,
            messages: &mut self.sink,
        };
        self.group.run(&mut host, budget)
    }

    fn results(&self) -> Vec<u32> {
        (256..512).map(|index| self.memory.word(index)).collect()
    }

    /// Saves the group and goes on with what is restored from it, in a new processor.
    fn through_bytes(&mut self) {
        let bytes = self.group.save();
        assert_eq!(self.group.saved_size(), bytes.len());
        self.group.kill();
        self.group = Group::restore(&bytes).unwrap();
        assert_eq!(self.group.save(), bytes);
        self.processor = Processor::new(Asic::Gfx90a);
    }
}

fn finished(text: &str, seed: u64) -> Vec<u32> {
    let mut run = Run::new(text, WAVES, seed);
    assert_eq!(run.step(1_000_000), Event::Done);
    assert!(run.group.is_over());
    run.results()
}

#[test]
fn barriers_and_lds_join_the_waves() {
    if without_llvm("barriers") {
        return;
    }
    let sum: u32 = (0..256).map(|index| 3 * index + 1).sum();
    for seed in 0..20 {
        assert_eq!(finished(REDUCTION, seed), vec![sum; 256], "seed {seed}");
        let mirrored: Vec<u32> = (0..256).rev().collect();
        assert_eq!(finished(MIRROR, seed), mirrored, "seed {seed}");
    }
}

#[test]
fn the_seed_decides_the_order_and_nothing_else_does() {
    if without_llvm("seeds") {
        return;
    }
    let orders: HashSet<Vec<u32>> = (0..8).map(|seed| finished(RACE, seed)).collect();
    assert!(orders.len() > 1, "all seeds lead to one order");
    for seed in 0..4 {
        let whole = finished(RACE, seed);
        let mut run = Run::new(RACE, WAVES, seed);
        while run.step(1 + seed) != Event::Done {}
        assert_eq!(run.results(), whole, "seed {seed}");
    }
}

#[test]
fn a_group_saved_at_every_instruction_goes_on_exactly() {
    if without_llvm("save") {
        return;
    }
    for text in [REDUCTION, MIRROR, RACE] {
        let whole = finished(text, 5);
        let mut run = Run::new(text, WAVES, 5);
        loop {
            let event = run.step(1);
            run.through_bytes();
            match event {
                Event::Budget => {}
                Event::Done => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(run.results(), whole);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(40)
    })]

    #[test]
    fn saves_at_any_places_change_nothing(
        seed in any::<u64>(),
        which in 0..3usize,
        cuts in prop::collection::vec(1..400u64, 0..12),
    ) {
        if without_llvm("cuts") {
            return Ok(());
        }
        let text = [REDUCTION, MIRROR, RACE][which];
        let mut run = Run::new(text, WAVES, seed);
        for cut in cuts {
            run.step(cut);
            run.through_bytes();
        }
        prop_assert_eq!(run.step(1_000_000), Event::Done);
        prop_assert_eq!(run.results(), finished(text, seed));
    }

    #[test]
    fn damaged_bytes_are_refused_or_run(
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
        end in any::<prop::sample::Index>(),
    ) {
        let mut wave = Wave::new(Asic::Gfx906);
        wave.set_limits(2, 0);
        let mut bytes = Group::new(vec![wave; 2], 64, 1).save();
        prop_assert!(Group::restore(&bytes[..end.index(bytes.len())]).is_err());
        let at = at.index(bytes.len());
        bytes[at] = value;
        if let Ok(mut group) = Group::restore(&bytes) {
            let mut host = Host {
                processor: &mut Processor::new(Asic::Gfx906),
                memory: &mut Flat::new(4096),
                messages: &mut Sink::default(),
            };
            group.run(&mut host, 100);
        }
    }
}

/// Memory whose pages are absent until they are asked for.
struct Absent<'a> {
    memory: &'a mut Flat,
    present: &'a HashSet<u64>,
}

impl Absent<'_> {
    fn need(&self, address: u64) -> Result<(), MemoryFault> {
        if self.present.contains(&(address / 256)) {
            Ok(())
        } else {
            Err(MemoryFault::Retry { address })
        }
    }

    fn need_all(&self, address: &Wide, lanes: u64) -> Result<(), MemoryFault> {
        gfx9_isa::lanes::each(lanes).try_for_each(|lane| self.need(address[lane]))
    }
}

impl Memory for Absent<'_> {
    fn load(
        &mut self,
        address: &Wide,
        lanes: u64,
        bytes: u32,
        data: &mut [Lanes],
    ) -> Result<(), MemoryFault> {
        self.need_all(address, lanes)?;
        self.memory.load(address, lanes, bytes, data)
    }

    fn store(
        &mut self,
        address: &Wide,
        lanes: u64,
        bytes: u32,
        data: &[Lanes],
    ) -> Result<(), MemoryFault> {
        self.need_all(address, lanes)?;
        self.memory.store(address, lanes, bytes, data)
    }

    fn atomic(
        &mut self,
        op: AtomicOp,
        address: &Wide,
        lanes: u64,
        bytes: u32,
        data: [&Wide; 2],
        old: &mut Wide,
    ) -> Result<(), MemoryFault> {
        self.need_all(address, lanes)?;
        self.memory.atomic(op, address, lanes, bytes, data, old)
    }

    fn scalar_load(&mut self, address: u64, data: &mut [u32]) -> Result<(), MemoryFault> {
        self.need(address)?;
        self.memory.scalar_load(address, data)
    }

    fn scalar_store(&mut self, address: u64, data: &[u32]) -> Result<(), MemoryFault> {
        self.need(address)?;
        self.memory.scalar_store(address, data)
    }

    fn code_version(&mut self, _: u64) -> Result<Option<u64>, MemoryFault> {
        Ok(Some(0))
    }
}

#[test]
fn waves_wait_for_translations_and_repeat_their_instruction() {
    if without_llvm("retries") {
        return;
    }
    for text in [REDUCTION, RACE] {
        let mut run = Run::new(text, WAVES, 3);
        let mut present = HashSet::new();
        let mut retries = 0;
        loop {
            let mut host = Host {
                processor: &mut run.processor,
                memory: &mut Absent {
                    memory: &mut run.memory,
                    present: &present,
                },
                messages: &mut run.sink,
            };
            match run.group.run(&mut host, 1_000_000) {
                Event::Retry { wave, address } => {
                    assert_eq!(run.group.state(wave), State::Retry);
                    assert!(present.insert(address / 256));
                    run.group.retry();
                    retries += 1;
                }
                Event::Done => break,
                other => panic!("{other:?}"),
            }
        }
        assert!(retries >= 6, "{retries}");
        if text == REDUCTION {
            assert_eq!(run.results(), finished(text, 3));
        } else {
            // Each increment has happened once.
            assert_eq!(run.memory.word(0), 1 + 12 * WAVES as u32);
        }
    }
}

#[test]
fn faults_illegal_words_messages_and_traps_are_events() {
    if without_llvm("events") {
        return;
    }
    let mut run = Run::new("s_load_dword s4, s[2:3], 0x8\ns_endpgm", 2, 1);
    let Event::Fault {
        wave,
        address: 8,
        fetch: false,
    } = run.step(100)
    else {
        panic!("no fault");
    };
    assert_eq!(run.group.state(wave), State::Halted);
    assert_eq!(run.group.wave(wave).unwrap().pc, BASE + CODE as u64);
    assert!(matches!(run.step(100), Event::Fault { .. }));
    assert_eq!(run.step(100), Event::Stalled);
    run.group.kill();
    assert_eq!(run.step(100), Event::Done);

    let mut run = Run::new("s_setpc_b64 s[2:3]", 1, 1);
    assert!(matches!(
        run.step(100),
        Event::Fault {
            address: 0,
            fetch: true,
            ..
        }
    ));

    // Behind the code there are zeros, which are v_cndmask; an unknown word; an unknown instruction.
    let mut run = Run::new("s_nop 0\n.long 0xffffffff\ns_endpgm", 1, 1);
    assert!(matches!(
        run.step(100),
        Event::Illegal {
            wave: 0,
            why: Stop::Undecodable(_)
        }
    ));
    let mut run = Run::new("s_rfe_b64 s[2:3]\ns_endpgm", 1, 1);
    assert!(matches!(
        run.step(100),
        Event::Illegal {
            why: Stop::Exception(Exception::Illegal {
                name: "s_rfe_b64",
                ..
            }),
            ..
        }
    ));

    let mut run = Run::new(
        "s_mov_b32 m0, 77\ns_sendmsg sendmsg(MSG_INTERRUPT)\ns_endpgm",
        1,
        1,
    );
    let message = Event::Message {
        wave: 0,
        message: 1,
    };
    assert_eq!(run.step(100), message);
    assert_eq!(run.sink.sent, [(1, 77)]);
    assert_eq!(run.step(100), Event::Done);

    // The handler is behind the program: it goes on behind the trap.
    let text = "s_mov_b32 s4, 5\ns_trap 3\ns_add_u32 s4, s4, 1\ns_endpgm\n.p2align 8\ns_bfe_u32 ttmp4, ttmp1, 0x80010\ns_mov_b32 s5, ttmp4\ns_add_u32 ttmp0, ttmp0, 4\ns_addc_u32 ttmp1, ttmp1, 0\ns_rfe_b64 ttmp[0:1]";
    let mut run = Run::new(text, 1, 1);
    assert_eq!(run.step(100), Event::Trap { wave: 0, id: 3 });
    let wave = run.group.wave_mut(0).unwrap();
    let base = (BASE + CODE as u64 + 0x100) >> 8;
    wave.trap_base = [base as u32, (base >> 32) as u32, 0, 0];
    wave.enter_trap(3, false);
    run.group.resume(0);
    assert_eq!(run.step(100), Event::Done);
    let wave = run.group.wave(0).unwrap();
    assert_eq!(
        (wave.sgpr[4], wave.sgpr[5], wave.privileged()),
        (6, 3, false)
    );
}

#[test]
fn killed_waves_are_not_waited_for() {
    if without_llvm("kills") {
        return;
    }
    // Wave 0 never comes to the barrier.
    let text = "v_readfirstlane_b32 s4, v0\ns_cmp_eq_u32 s4, 0\nloop:\ns_cbranch_scc1 loop\ns_barrier\nv_lshlrev_b32_e32 v1, 2, v0\nglobal_store_dword v1, v0, s[0:1] offset:1024\ns_endpgm";
    let mut run = Run::new(text, WAVES, 1);
    assert_eq!(run.step(10_000), Event::Budget);
    assert_eq!(run.group.state(0), State::Ready);
    assert!((1..WAVES).all(|wave| run.group.state(wave) == State::Barrier));
    run.group.kill_wave(0);
    assert_eq!(run.step(10_000), Event::Done);
    assert_eq!(run.results()[64..], (64..256).collect::<Vec<u32>>());
    assert_eq!(run.results()[..64], [0; 64]);
}

#[test]
fn changed_code_is_decoded_anew_when_its_version_changes() {
    if without_llvm("code") {
        return;
    }
    let mut run = Run::new("loop:\ns_add_u32 s4, s4, 1\ns_branch loop", 1, 1);
    run.step(20);
    assert_eq!(run.group.wave(0).unwrap().sgpr[4], 10);
    let two = assemble(Asic::Gfx90a, "s_add_u32 s4, s4, 2");
    run.memory.set_word(CODE / 4, two[0]);
    run.step(20);
    assert_eq!(
        run.group.wave(0).unwrap().sgpr[4],
        20,
        "what is decoded stays"
    );
    run.memory.version = Some(1);
    run.step(20);
    assert_eq!(run.group.wave(0).unwrap().sgpr[4], 40);
    // Without a version nothing is kept from one call to the next.
    run.memory.version = None;
    run.step(20);
    let three = assemble(Asic::Gfx90a, "s_add_u32 s4, s4, 3");
    run.memory.set_word(CODE / 4, three[0]);
    run.step(20);
    assert_eq!(run.group.wave(0).unwrap().sgpr[4], 40 + 20 + 30);

    // An instruction that lies across two pages.
    let mut run = Run::new("s_nop 0", 1, 1);
    let words = assemble(Asic::Gfx90a, "s_mov_b32 s4, 0x12345678\ns_endpgm");
    let at = (CODE + 0x1000) / 4 - 1;
    for (step, word) in words.into_iter().enumerate() {
        run.memory.set_word(at + step, word);
    }
    run.group.wave_mut(0).unwrap().pc = BASE + 4 * at as u64;
    assert_eq!(run.step(100), Event::Done);
    assert_eq!(run.group.wave(0).unwrap().sgpr[4], 0x1234_5678);
}
