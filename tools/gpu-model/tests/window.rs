// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A wave's memory: programs of the instruction set against pages of an address space.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::os::unix::fs::FileExt;

use common::pages::{frame, va, Pages, CLIENT, R, RAM_BUS, SYSTEM, V, W, X};
use gfx9_isa::decode::Decoder;
use gfx9_isa::env::{AtomicOp, Env, Gws, GwsOp, Memory, MemoryFault, Messages, Wide};
use gfx9_isa::exec::{Exception, Executor as Isa, Flow};
use gfx9_isa::inst::Asic;
use gfx9_isa::wave::{reg, Wave};
use gpu_model::mem::Phys;
use gpu_model::vm::executor::Executor;
use gpu_model::vm::walk::WalkFault;
use gpu_model::vm::window::{Fault, PageCache, Window};
use gpu_model::vm::Access;

struct NoMessages;

impl Messages for NoMessages {
    fn send(&mut self, _: u16, _: u32, _: bool) -> Option<u64> {
        None
    }
    fn clock(&mut self, _: bool) -> u64 {
        0
    }
    fn gws(&mut self, _: GwsOp, _: u32, _: u32, _: &mut u64) -> Gws {
        Gws::Go
    }
    fn instructions_changed(&mut self) {}
}

/// out[n] = in[n] + n; counter += 1 per lane; s[8:9] = in[2], in[3].
const PROGRAM: [u32; 14] = [
    0x2404_0082, // v_lshlrev_b32 v2, 2, v0
    0xdc50_8000,
    0x0300_0002, // global_load_dword v3, v2, s[0:1]
    0xbf8c_0f70, // s_waitcnt vmcnt(0)
    0x6806_0103, // v_add_u32 v3, v3, v0
    0xdc70_8000,
    0x0002_0302, // global_store_dword v2, v3, s[2:3]
    0x7e08_0280, // v_mov_b32 v4, 0
    0x7e0a_0281, // v_mov_b32 v5, 1
    0xdd09_8000,
    0x0604_0504, // global_atomic_add v6, v4, v5, s[4:5] glc
    0xc006_0200,
    0x0000_0008, // s_load_dwordx2 s[8:9], s[0:1], 0x8
    0xbf81_0000, // s_endpgm
];

const CODE: u64 = 0;
const IN: u64 = 1;
const OUT: u64 = 2;
const COUNTER: u64 = 4;

struct Bench {
    pages: Pages,
    wave: Wave,
    executor: Executor,
    cache: PageCache,
    decoder: Decoder,
    isa: Isa,
}

impl Bench {
    /// The program in a page that can only be executed, its input in one that can only be read, its output across two
    /// pages, the second of them on the bus.
    fn new(asic: Asic, retry: bool) -> Self {
        let pages = Pages::new(retry);
        pages.map(CODE, frame(10) | V | X);
        pages.map(IN, frame(3) | V | R);
        pages.map(OUT, frame(7) | V | R | W);
        pages.map(OUT + 1, RAM_BUS | SYSTEM | V | R | W);
        pages.map(COUNTER, frame(1) | V | R | W);
        for (n, word) in PROGRAM.iter().enumerate() {
            let at = Phys::Vram(frame(10) + 4 * n as u64);
            pages.bus.write(at, &word.to_le_bytes()).unwrap();
        }
        for n in 0..64u64 {
            let at = Phys::Vram(frame(3) + 4 * n);
            let word = 1000 * n as u32;
            pages.bus.write(at, &word.to_le_bytes()).unwrap();
        }
        for n in [1, 7] {
            pages.fill(n, 0);
        }
        let mut wave = Wave::new(asic);
        wave.pc = va(CODE);
        wave.set_pair(reg::EXEC, u64::MAX);
        wave.set_pair(0, va(IN));
        wave.set_pair(2, va(OUT) + 0xf80);
        wave.set_pair(4, va(COUNTER) + 0x10);
        *wave.vgpr_mut(0, false).unwrap() = std::array::from_fn(|lane| lane as u32);
        Self {
            executor: Executor::new(&pages.bus, &pages.spaces),
            cache: PageCache::default(),
            decoder: Decoder::new(asic),
            isa: Isa::new(asic),
            pages,
            wave,
        }
    }

    /// Runs to the end or to a fault.
    fn run(&mut self) -> Result<(), (Exception, Option<Fault>)> {
        loop {
            let mut window = self.executor.window(CLIENT, true, &mut self.cache);
            let mut words = [0; 2];
            if let Err(e) = window.fetch(self.wave.pc, &mut words) {
                return Err((e.into(), window.take_fault()));
            }
            let inst = self.decoder.decode(&words).unwrap();
            let mut env = Env {
                memory: &mut window,
                lds: &mut [],
                messages: &mut NoMessages,
            };
            match self.isa.execute(&mut self.wave, &inst, &mut env) {
                Ok(Flow::End) => return Ok(()),
                Ok(Flow::Next) => {}
                Ok(flow) => panic!("{flow:?}"),
                Err(e) => return Err((e, window.take_fault())),
            }
            // Far more often than a wave would.
            self.executor.quiesce();
        }
    }

    /// A word of the output.
    fn out(&self, n: u64) -> u32 {
        let at = 0xf80 + 4 * n;
        if at < 0x1000 {
            return self.pages.word(frame(7) + at);
        }
        let mut word = [0; 4];
        self.pages.ram.read_at(&mut word, at - 0x1000).unwrap();
        u32::from_le_bytes(word)
    }

    fn assert_done(&self) {
        for n in 0..64 {
            assert_eq!(self.out(n), 1001 * n as u32, "{n}");
        }
        assert_eq!(self.pages.word(frame(1) + 0x10), 64);
        let before = self.wave.vgpr(6, false);
        assert_eq!(*before, std::array::from_fn(|lane| lane as u32));
        assert_eq!(self.wave.pair(8), 2000 | (3000 << 32));
    }
}

fn denied(result: Result<(), (Exception, Option<Fault>)>) -> Fault {
    let (e, fault) = result.unwrap_err();
    let fault = fault.unwrap();
    let expected = if fault.retry {
        MemoryFault::Retry { address: fault.va }
    } else {
        MemoryFault::Denied { address: fault.va }
    };
    assert!(matches!(e, Exception::Memory(e) if e == expected), "{e:?}");
    fault
}

#[test]
fn a_program_runs_on_the_pages_of_its_address_space() {
    for asic in [Asic::Gfx906, Asic::Gfx90a] {
        let mut b = Bench::new(asic, false);
        b.run().unwrap();
        b.assert_done();
    }
}

#[test]
fn a_store_to_a_page_that_can_only_be_read_is_refused_and_changes_nothing() {
    let mut b = Bench::new(Asic::Gfx90a, false);
    b.pages.map(OUT + 1, RAM_BUS | SYSTEM | V | R);
    let fault = denied(b.run());
    assert_eq!(
        fault,
        Fault {
            client: CLIENT,
            va: va(OUT + 1),
            access: Access::Write,
            why: None,
            retry: false,
        }
    );
    // The lanes before the one that faulted can be written, but were not.
    assert!((0..64).all(|n| b.out(n) == 0));
    assert_eq!(b.wave.pc, va(CODE) + 4 * 5);
}

#[test]
fn an_instruction_that_retries_runs_again_when_the_page_is_there() {
    let mut b = Bench::new(Asic::Gfx90a, true);
    b.pages.map(OUT + 1, 0);
    for _ in 0..2 {
        let fault = denied(b.run());
        assert_eq!(fault.why, Some(WalkFault::InvalidPte(0)));
        assert!(fault.retry && fault.va == va(OUT + 1) && fault.access == Access::Write);
        assert_eq!(b.out(0) | b.out(63), 0, "the instruction has not begun");
    }
    b.pages.map(OUT + 1, RAM_BUS | SYSTEM | V | R | W);
    b.run().unwrap();
    b.assert_done();
}

#[test]
fn code_needs_the_permission_to_execute_and_not_to_read() {
    let mut b = Bench::new(Asic::Gfx90a, false);
    b.pages.map(CODE, frame(10) | V | R | W);
    let fault = denied(b.run());
    assert_eq!((fault.access, fault.why), (Access::Execute, None));
    assert_eq!(fault.va, va(CODE));
}

#[test]
fn an_access_to_the_bus_waits_while_bus_mastering_is_off() {
    let mut b = Bench::new(Asic::Gfx90a, false);
    b.pages.bus.set_bus_master(false);
    b.executor.quiesce();
    let fault = denied(b.run());
    assert_eq!((fault.why, fault.retry), (Some(WalkFault::Blocked), true));
    b.pages.bus.set_bus_master(true);
    b.executor.quiesce();
    b.run().unwrap();
    b.assert_done();
}

#[test]
fn a_dma_unmap_is_over_when_the_executor_has_passed_a_quiescent_point() {
    let mut b = Bench::new(Asic::Gfx90a, false);
    b.run().unwrap();
    let (retired, done) = b.pages.bus.dma_retire(RAM_BUS, 4096);
    done.unwrap();
    assert!(!retired.is_over());
    // The page of the wave's cache is in a map that is gone.
    b.executor.quiesce();
    assert!(retired.is_over());
    b.wave.pc = va(CODE);
    let fault = denied(b.run());
    assert_eq!(fault.va, va(OUT + 1));
    let nowhere = WalkFault::Nowhere {
        entry: 0x60,
        target: Phys::Bus(RAM_BUS),
        level: u32::MAX,
    };
    assert_eq!((fault.why, fault.retry), (Some(nowhere), false));
}

fn with_window(pages: &Pages, f: impl FnOnce(&mut Window<'_>)) {
    let mut cache = PageCache::default();
    let mut executor = Executor::new(&pages.bus, &pages.spaces);
    f(&mut executor.window(CLIENT, true, &mut cache));
}

/// Every width, at every place in a dword and across the end of a page, is the bytes that memory has.
#[test]
fn accesses_of_every_width_meet_the_bytes_that_memory_has() {
    let pages = Pages::new(false);
    pages.map(0, frame(9) | V | R | W);
    pages.map(1, frame(2) | V | R | W);
    let byte = |n: u64| (n * 7 + 3) as u8;
    let at = |n: u64| {
        Phys::Vram(if n < 0x1000 {
            frame(9) + n
        } else {
            frame(2) + n - 0x1000
        })
    };
    with_window(&pages, |window| {
        for bytes in [1u32, 2, 4, 8, 12, 16] {
            for first in 0xfe0..0x1008u64 {
                for n in 0xfd0..0x1030 {
                    pages.bus.write(at(n), &[byte(n)]).unwrap();
                }
                let mut address: Wide = [0; 64];
                address[5] = va(0) + first;
                let mut rows = [[0xffff_ffffu32; 64]; 4];
                window.load(&address, 1 << 5, bytes, &mut rows).unwrap();
                let expected: Vec<u8> = (first..first + u64::from(bytes)).map(byte).collect();
                let mut found: Vec<u8> = rows.iter().flat_map(|r| r[5].to_le_bytes()).collect();
                let rest = found.split_off(bytes.next_multiple_of(4) as usize);
                assert!(rest.iter().all(|b| *b == 0xff));
                let pad = found.split_off(bytes as usize);
                assert!(pad.iter().all(|b| *b == 0), "{bytes} at {first:#x}");
                assert_eq!(found, expected, "{bytes} at {first:#x}");
                assert!(rows.iter().all(|r| r[4] == u32::MAX), "another lane");
                // Back again, with all bits changed.
                for row in &mut rows {
                    row[5] = !row[5];
                }
                window.store(&address, 1 << 5, bytes, &rows).unwrap();
                for n in 0xfd0..0x1030 {
                    let inside = (first..first + u64::from(bytes)).contains(&n);
                    let mut now = [0];
                    pages.bus.read(at(n), &mut now).unwrap();
                    assert_eq!(
                        now[0],
                        if inside { !byte(n) } else { byte(n) },
                        "{first:#x} {n:#x}"
                    );
                }
            }
        }
    });
}

#[test]
fn a_page_of_nothing_reads_zero_and_drops_what_is_written() {
    let pages = Pages::new(false);
    // The bit of partially resident textures, without a valid entry.
    pages.map(0, 1 << 51);
    let address = [va(0); 64];
    with_window(&pages, |window| {
        let mut row = [[7; 64]];
        window.store(&address, u64::MAX, 4, &row).unwrap();
        window.load(&address, u64::MAX, 4, &mut row).unwrap();
        assert_eq!(row, [[0; 64]]);
        let mut old = [7; 64];
        let one = [1; 64];
        window
            .atomic(AtomicOp::Add, &address, u64::MAX, 8, [&one, &one], &mut old)
            .unwrap();
        assert_eq!(old, [0; 64]);
    });
}

#[test]
fn the_highest_lane_wins_a_store_and_atomics_go_in_order() {
    let pages = Pages::new(false);
    pages.map(0, frame(0) | V | R | W);
    pages.fill(0, 0);
    let address = [va(0) + 8; 64];
    with_window(&pages, |window| {
        let rows = [std::array::from_fn(|lane| lane as u32 + 1)];
        window.store(&address, u64::MAX >> 4, 4, &rows).unwrap();
        assert_eq!(pages.word(frame(0) + 8), 60);
        let data: Wide = std::array::from_fn(|lane| lane as u64);
        let mut old = [0; 64];
        window
            .atomic(AtomicOp::Swap, &address, !1, 4, [&data, &data], &mut old)
            .unwrap();
        let expected: Wide = std::array::from_fn(|lane| match lane {
            0 => 0,
            1 => 60,
            n => n as u64 - 1,
        });
        assert_eq!((old, pages.word(frame(0) + 8)), (expected, 63));
        let crooked = [va(0) + 6; 64];
        let refused = window.atomic(AtomicOp::Swap, &crooked, 2, 4, [&data, &data], &mut old);
        assert_eq!(refused, Err(MemoryFault::Denied { address: va(0) + 6 }));
    });
}

/// What a wave stores is seen by the device at once, also where the host data path keeps the page.
#[test]
fn a_store_reaches_the_pages_that_the_host_data_path_keeps() {
    let pages = Pages::new(false);
    pages.map(0, frame(4) | V | R | W);
    pages.fill(4, 1);
    let kept = || {
        let mut word = [0; 4];
        let at = Phys::Vram(frame(4) + 0x20);
        pages.bus.read_hosted(at, &mut word).unwrap();
        u32::from_le_bytes(word)
    };
    assert_eq!(kept(), 1);
    pages
        .bus
        .write_hosted(frame(4) + 0x20, &[2, 0, 0, 0])
        .unwrap();
    assert_eq!(kept(), 1, "the host has not flushed");
    with_window(&pages, |window| {
        let address = [va(0) + 0x20; 64];
        window.store(&address, 1, 4, &[[3; 64]]).unwrap();
        assert_eq!(kept(), 3);
        let four = [4; 64];
        let mut old = [0; 64];
        window
            .atomic(AtomicOp::Swap, &address, 1, 4, [&four, &four], &mut old)
            .unwrap();
        assert_eq!((kept(), old[0]), (4, 3));
        window.scalar_store(va(0) + 0x1c, &[5, 6]).unwrap();
        assert_eq!(kept(), 6);
    });
}

/// A page that the wave has read is not thereby one that it may write, and the cache of one address space says nothing
/// of another.
#[test]
fn the_cache_of_a_wave_grants_nothing() {
    let pages = Pages::new(false);
    pages.map(0, frame(0) | V | R);
    pages.fill(0, 1);
    let mut cache = PageCache::default();
    let mut executor = Executor::new(&pages.bus, &pages.spaces);
    let mut window = executor.window(CLIENT, true, &mut cache);
    window.translate(va(0), Access::Read).unwrap();
    for access in [Access::Write, Access::Atomic, Access::Execute] {
        let fault = window.translate(va(0), access).unwrap_err();
        assert_eq!((fault.why, fault.access), (None, access));
    }
    let other = gpu_model::vm::Client { vmid: 3, ..CLIENT };
    let mut window = executor.window(other, true, &mut cache);
    let fault = window.translate(va(0), Access::Read).unwrap_err();
    assert_eq!(fault.why, Some(WalkFault::Disabled));
}
