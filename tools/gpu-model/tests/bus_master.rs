// SPDX-License-Identifier: GPL-2.0 OR MIT
//! With bus mastering off nothing leaves the device: queues wait, messages and vectors are lost, nobody is blamed.

mod common;

use std::sync::atomic::Ordering;

use common::fixture::{active, Fixture, FIRST};
use common::proc::Proc;
use common::queue::{indirect, release_mem, wait_mem, write_data, UserQueue};
use common::{Bench, FB};
use gpu_model::asic::{Asic, GFX906, GFX90A};
use gpu_model::board::Board;
use gpu_model::device::Step;

/// Longer than the scheduler waits before it looks again, and than a window.
const WHILE: u64 = 200_000_000;

fn master(b: &mut Bench, on: bool) {
    b.gpu.soc.mem.set_bus_master(on);
}

fn blocked(b: &Bench) -> u64 {
    b.gpu.soc.log.stats.dma_blocked
}

/// A board with one compute unit, whose save areas are small.
fn small(asic: &'static Asic) -> Bench {
    let board = Board {
        compute_units: 1,
        ..asic.board
    };
    Bench::on_board(asic, board).schedule()
}

/// Hands the HIQ packets in a buffer in VRAM, which needs no bus; the offset of the buffer.
fn hiq_in_vram(b: &mut Bench, packets: &[u32]) -> u64 {
    let at = b.alloc_vram(4096);
    b.vram_write(at, &[0; 4096]);
    let bytes: Vec<u8> = packets.iter().flat_map(|w| w.to_le_bytes()).collect();
    b.vram_write(at, &bytes);
    b.submit_hiq(&indirect(FB + at, packets.len() as u32, false));
    at
}

/// As [`hiq_in_vram`], and bus mastering goes off before the first of the packets runs.
fn hiq_without_bus(b: &mut Bench, packets: &[u32]) {
    let gate = b.alloc_vram(4096);
    b.vram_write(gate, &[0; 4]);
    let mut words = wait_mem(FB + gate, 1);
    words.extend(packets);
    hiq_in_vram(b, &words);
    b.run();
    master(b, false);
    b.vram_write(gate, &1u32.to_le_bytes());
    b.run_for(WHILE);
}

/// RUN_LIST of one process.
fn run_list(at: u64, dwords: usize) -> [u32; 4] {
    [
        0xc002_a500,
        at as u32,
        (at >> 32) as u32,
        dwords as u32 | (1 << 23) | (1 << 24),
    ]
}

/// ATOMIC_MEM: adds one to a dword.
fn add_one(va: u64) -> [u32; 9] {
    [
        0xc007_1e00,
        0x4f,
        va as u32,
        (va >> 32) as u32,
        1,
        0,
        0,
        0,
        0,
    ]
}

#[test]
fn queues_wait_and_go_on() {
    for asic in [&GFX90A, &GFX906] {
        let mut f = Fixture::new(asic, 0x42, 4096);
        let va = f.va;
        f.q.send(&mut f.b, &write_data(va, 1));
        f.b.gpu.soc.mem.set_bus_master(false);
        f.q.send(&mut f.b, &write_data(va, 2));
        f.b.run_for(10_000_000);
        assert_eq!(f.b.ram32(f.bus), 1);
        assert!(f.b.gpu.soc.log.stats.dma_blocked > 0);
        let stats = &f.b.gpu.soc.log.stats;
        assert_eq!(
            (stats.faults_retry, stats.faults_no_retry, stats.user_errors),
            (0, 0, 0)
        );
        f.b.gpu.soc.mem.set_bus_master(true);
        f.b.run_for(10_000_000);
        assert_eq!(f.b.ram32(f.bus), 2, "{}", asic.name);
        f.b.no_errors();
    }
}

#[test]
fn vectors_and_messages_are_lost_and_counted() {
    let mut f = Fixture::new(&GFX90A, 0x42, 4096);
    let va = f.va;
    f.b.irqs();
    let msis = f.b.msis.load(Ordering::Relaxed);
    f.b.gpu.soc.mem.set_bus_master(false);
    // A doorbell of no queue raises a vector without any access of a queue.
    f.b.wr(0xc1a8, 1 << 11);
    f.b.bell(0x1f_0008, 1);
    f.b.run();
    let stats = &f.b.gpu.soc.log.stats;
    assert_eq!(
        (stats.msi_blocked, f.b.msis.load(Ordering::Relaxed)),
        (1, msis)
    );
    assert!(stats.dma_blocked >= 2, "the vector and the write pointer");
    f.b.gpu.soc.mem.set_bus_master(true);
    f.q.send(&mut f.b, &release_mem(va, 3, 9));
    assert_eq!(f.b.ram64(f.bus), 3);
    f.b.no_errors();
}

/// The scheduler does not take memory that it cannot read for memory that is gone.
#[test]
fn the_scheduler_does_not_look_meanwhile() {
    for asic in [&GFX90A, &GFX906] {
        for sdma in [false, true] {
            let mut f = Fixture::with(asic, 0x42, 4096, |b, p, _| {
                if sdma {
                    p.sdma_queue(b, 0, 0)
                } else {
                    p.queue(b)
                }
            });
            master(&mut f.b, false);
            f.b.run_for(WHILE);
            assert_eq!(blocked(&f.b), 0, "nothing was tried");
            master(&mut f.b, true);
            f.b.run_for(WHILE);
            f.b.no_errors();
            let va = f.va;
            let packet = if sdma {
                vec![5, va as u32, (va >> 32) as u32, 7]
            } else {
                write_data(va, 7)
            };
            f.q.send(&mut f.b, &packet);
            assert_eq!(f.b.ram32(f.bus), 7, "{}", asic.name);
            // It looks again.
            f.b.set_words(f.q.mqd.bus, &[0x6b6b_6b6b; 512]);
            f.b.run_for(WHILE);
            f.b.expect_errors(&["mqd"]);
        }
    }
}

/// The next part of a fill has been translated when bus mastering goes off: it waits as any other write.
#[test]
fn a_fill_that_is_cut_off_goes_on() {
    const BYTES: u64 = 384 << 10;
    for asic in [&GFX90A, &GFX906] {
        // CONST_FILL, and a copy from VRAM; from a ring on the bus, which waits itself, and from one in VRAM.
        for (copies, ring_in_vram) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut f = Fixture::with(asic, 0x42, BYTES, |b, p, _| p.sdma_queue(b, 0, 0));
            let va = f.va;
            let to = [va as u32, (va >> 32) as u32];
            if copies {
                let from = f.b.alloc_vram(BYTES);
                f.b.vram_write(from, &vec![0x5a; BYTES as usize]);
                let source = 0x7300_0000_0000;
                for at in (0..BYTES).step_by(4096) {
                    f.p.set_pte(&mut f.b, source + at, (from + at) | 0x71);
                }
                let source = [source as u32, (source >> 32) as u32];
                f.q.push(&mut f.b, &[1, BYTES as u32 - 1, 0]);
                f.q.push(&mut f.b, &source);
                f.q.push(&mut f.b, &to);
            } else {
                f.q.push(&mut f.b, &[11 | (2 << 30)]);
                f.q.push(&mut f.b, &to);
                f.q.push(&mut f.b, &[0x5a5a_5a5a, BYTES as u32 - 1]);
            }
            if ring_in_vram {
                let (mut ring, at) = ([0; 4096], f.b.alloc_vram(4096));
                f.b.ram_read(f.q.ring, &mut ring);
                f.b.vram_write(at, &ring);
                f.p.set_pte(&mut f.b, f.q.va, at | 0x71);
                f.b.flush_vmid(f.b.first_vmid());
            }
            f.q.ring_bell(&mut f.b);
            assert_eq!(f.b.gpu.step(), Step::Busy, "a part of it");
            let filled = |f: &Fixture| {
                let mut seen = vec![0; BYTES as usize];
                f.b.ram_read(f.bus, &mut seen);
                seen.iter().filter(|byte| **byte == 0x5a).count() as u64
            };
            let before = filled(&f);
            assert!(before > 0 && before < BYTES, "{before:#x}");
            master(&mut f.b, false);
            f.b.run_for(WHILE);
            assert_eq!(filled(&f), before);
            assert!(blocked(&f.b) > 0);
            master(&mut f.b, true);
            f.b.run_for(WHILE);
            let what = format!("{} {copies} {ring_in_vram}", asic.name);
            assert_eq!(filled(&f), BYTES, "{what}");
            f.b.no_errors();
        }
    }
}

/// More queues than slots, all in the middle of something.
#[test]
fn a_window_does_not_end_meanwhile() {
    const QUEUES: usize = 30;
    for asic in [&GFX90A, &GFX906] {
        let mut b = small(asic);
        let mut p = Proc::new(&mut b, 0x42, 0);
        let (va, bus) = p.page(&mut b, 4096);
        let mut queues: Vec<UserQueue> = Vec::new();
        let mut list = p.map_process(&b, QUEUES as u32);
        for _ in 0..QUEUES {
            let q = p.queue(&mut b).with_cwsr(&mut b, &mut p);
            list.extend(q.map_queues());
            queues.push(q);
        }
        b.run_list(&list, true, 8);
        b.run();
        let counter = |n: usize| 0x100 + 8 * n as u64;
        for (n, q) in queues.iter_mut().enumerate() {
            q.push(&mut b, &wait_mem(va, 1));
            q.push(&mut b, &add_one(va + counter(n)));
            q.ring_bell(&mut b);
        }
        b.run_for(2 * WHILE);
        let windows = b.gpu.soc.log.stats.rotations;
        assert!(windows > 1);
        master(&mut b, false);
        b.run_for(2 * WHILE);
        assert_eq!(b.gpu.soc.log.stats.rotations, windows);
        master(&mut b, true);
        b.run_for(2 * WHILE);
        assert!(b.gpu.soc.log.stats.rotations > windows);
        b.set32(bus, 1);
        b.run_for(4 * WHILE);
        for n in 0..QUEUES {
            assert_eq!(b.ram32(bus + counter(n)), 1, "{} queue {n}", asic.name);
        }
        b.no_errors();
    }
}

/// A preemption that cannot write what the queue was doing: that is lost, the queue is off its slot.
#[test]
fn a_queue_that_cannot_be_saved_leaves() {
    for asic in [&GFX90A, &GFX906] {
        for in_vram in [false, true] {
            let mut at = 0;
            let mut f = Fixture::on(small(asic), 0x42, 4096, |b, p, _| {
                let mut q = p.queue(b).with_cwsr(b, p);
                if in_vram {
                    // The descriptor and the control stack behind it can be written, the save area cannot.
                    at = b.alloc_vram(8192);
                    b.vram_write(at, &[0; 8192]);
                    let mut image = b.words(q.mqd.bus, 512);
                    q.mqd.gart = FB + at;
                    image[128] = q.mqd.gart as u32;
                    image[129] = (q.mqd.gart >> 32) as u32;
                    let bytes: Vec<u8> = image.iter().flat_map(|w| w.to_le_bytes()).collect();
                    b.vram_write(at, &bytes);
                    b.hdp_flush();
                }
                q
            });
            let va = f.va;
            f.q.push(&mut f.b, &add_one(va + 8));
            f.q.push(&mut f.b, &wait_mem(va, 1));
            f.q.send(&mut f.b, &add_one(va + 16));
            assert_eq!(f.b.ram32(f.bus + 8), 1);
            hiq_without_bus(&mut f.b, &[0xc004_a300, 3 << 4, 0, 0, 0, 0]);
            assert!(!active(&mut f.b, FIRST));
            assert!(blocked(&f.b) > 0);
            assert_eq!(f.b.gpu.soc.log.stats.user_errors, 0);
            master(&mut f.b, true);
            f.b.set32(f.bus, 1);
            f.resume();
            f.b.run_for(WHILE);
            // In VRAM the descriptor has the pointers; on the bus it is as it was when the queue was connected.
            let first = if in_vram { 1 } else { 2 };
            let seen = (f.b.ram32(f.bus + 8), f.b.ram32(f.bus + 16));
            assert_eq!(seen, (first, 1), "{} {in_vram}", asic.name);
            assert_eq!(f.b.gpu.soc.log.stats.saves_changed, 0);
            f.b.no_errors();
        }
    }
}

/// What a queue has saved is read when it can be read; it is not taken for changed.
#[test]
fn a_saved_queue_waits_for_its_state() {
    let mut f = Fixture::on(small(&GFX90A), 0x42, 4096, |b, p, _| {
        p.retry = true;
        p.queue(b).with_cwsr(b, p)
    });
    let va = f.va;
    // The state goes to VRAM; the control stack, which names it, is on the bus.
    let base = f.b.words(f.q.mqd.bus + 171 * 4, 2);
    let area = (u64::from(base[0]) | (u64::from(base[1]) << 32)) + u64::from(f.q.save.1);
    let page = f.b.alloc_vram(4096);
    let map = |f: &mut Fixture, entry: u64| {
        f.p.set_pte(&mut f.b, area, entry);
        f.b.flush_vmid(f.b.first_vmid());
    };
    map(&mut f, page | 0x71);
    f.q.push(&mut f.b, &wait_mem(va, 1));
    f.q.send(&mut f.b, &add_one(va + 8));
    f.preempt();
    // It is away at first, so that the queue is connected and waits for it when bus mastering goes off.
    map(&mut f, 0);
    f.resume();
    f.b.run_for(3_000_000);
    master(&mut f.b, false);
    map(&mut f, page | 0x71);
    f.b.run_for(3_000_000);
    assert!(blocked(&f.b) > 0);
    master(&mut f.b, true);
    f.b.set32(f.bus, 1);
    f.b.run_for(3_000_000);
    assert_eq!(f.b.ram32(f.bus + 8), 1);
    assert_eq!(f.b.gpu.soc.log.stats.saves_changed, 0);
    f.b.no_errors();
}

/// A run list, or a descriptor that it names, that cannot be read is read later.
#[test]
fn a_run_list_waits_for_its_memory() {
    for asic in [&GFX90A, &GFX906] {
        for in_vram in [false, true] {
            let mut b = Bench::scheduled(asic);
            let mut p = Proc::new(&mut b, 0x42, 0);
            let (va, bus) = p.page(&mut b, 4096);
            let mut queues: Vec<UserQueue> = (0..3).map(|_| p.queue(&mut b)).collect();
            queues.push(p.sdma_queue(&mut b, 0, 0));
            // A root in system memory is not missing because it cannot be read.
            let root = b.alloc_ram(4096);
            let mut table = [0; 4096];
            b.vram_read(p.root, &mut table);
            b.ram_write(root, &table);
            p.root = root | 2;
            let mut list = p.map_process(&b, queues.len() as u32);
            for q in &queues {
                list.extend(q.map_queues());
            }
            let at = if in_vram {
                let at = b.alloc_vram(4096);
                let bytes: Vec<u8> = list.iter().flat_map(|w| w.to_le_bytes()).collect();
                b.vram_write(at, &bytes);
                FB + at
            } else {
                let buffer = b.alloc_sys(4096);
                b.set_words(buffer.bus, &list);
                buffer.gart
            };
            hiq_without_bus(&mut b, &run_list(at, list.len()));
            assert!(!active(&mut b, FIRST));
            assert!(blocked(&b) > 0);
            b.no_errors();
            master(&mut b, true);
            b.run_for(WHILE);
            for (n, q) in (0u32..).zip(&mut queues) {
                let to = va + 4 * u64::from(n);
                let packet = match q.sdma {
                    Some(_) => vec![5, to as u32, (to >> 32) as u32, 7 + n],
                    None => write_data(to, 7 + n),
                };
                q.send(&mut b, &packet);
            }
            assert_eq!(b.words(bus, 4), [7, 8, 9, 10], "{} {in_vram}", asic.name);
            assert_eq!(b.gpu.soc.log.stats.runlists, 1);
            b.no_errors();
        }
    }
}

/// However far the scheduler has come with a long list, it reads the rest later, and knows all of its doorbells.
#[test]
fn a_run_list_that_is_cut_off_is_read_to_its_end() {
    const QUEUES: usize = 26;
    for steps in 0..8 {
        let mut b = Bench::scheduled(&GFX90A);
        let mut p = Proc::new(&mut b, 0x42, 0);
        let (va, bus) = p.page(&mut b, 4096);
        let mut queues: Vec<UserQueue> = (0..QUEUES).map(|_| p.queue(&mut b)).collect();
        let mut list = p.map_process(&b, QUEUES as u32);
        // A NOP that is longer than what the scheduler reads at once, in front of the queues and between them.
        for (n, q) in queues.iter().enumerate() {
            if n % 13 == 0 {
                list.push(0xc000_1000 | (4998 << 16));
                list.extend([0; 4999]);
            }
            list.extend(q.map_queues());
        }
        let buffer = b.alloc_sys(65536);
        let dwords = list.len() + 4;
        let mut chain = run_list(buffer.gart, dwords);
        chain[3] |= (1 << 20) | (1 << 22);
        list.extend(chain);
        b.set_words(buffer.bus, &list);
        hiq_in_vram(&mut b, &run_list(buffer.gart, dwords));
        b.run_steps(steps);
        master(&mut b, false);
        b.run_for(5_000_000);
        master(&mut b, true);
        b.run_for(5_000_000);
        for (n, q) in (0u32..).zip(&mut queues) {
            q.push(&mut b, &write_data(va + 4 * u64::from(n), 7 + n));
            q.ring_bell(&mut b);
        }
        let stats = &b.gpu.soc.log.stats;
        assert_eq!(stats.doorbells_foreign, 0, "{steps}");
        assert!(stats.doorbells_unmapped > 0, "{steps}");
        b.run_for(2 * WHILE);
        let want: Vec<u32> = (0..QUEUES as u32).map(|n| 7 + n).collect();
        assert_eq!(b.words(bus, QUEUES), want, "{steps}");
        assert_eq!(b.gpu.soc.log.stats.runlists, 1);
        b.no_errors();
    }
}
