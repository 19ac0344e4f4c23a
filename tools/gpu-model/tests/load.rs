// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A device that has as much to do as it can have: how long steps take, and how long a trapped access waits.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::kernel::{without_llvm, Launch};
use common::proc::Proc;
use common::queue::{indirect, wait_mem, write_data, UserQueue};
use common::Bench;
use gpu_model::asic::GFX90A;
use gpu_model::board::Board;
use gpu_model::device::{Gpu, Step};
use gpu_model::server::{Shared, STEP};
use parking_lot::MutexGuard;

/// Bytes that each queue copies from and to.
const PAGE: u64 = 128 << 10;

/// A device with busy queues: 24 of DMA_DATA that go on for ever, and 8 of SDMA copies that are rung again.
fn busy() -> (Bench, Vec<UserQueue>) {
    let mut b = Bench::quiet(&GFX90A).schedule();
    let mut p = Proc::new(&mut b, 0x61, 0);
    let (mut list, mut compute, mut sdma) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..24 {
        let (va, bus) = p.page(&mut b, 2 * PAGE);
        let (ib, ib_bus) = p.page(&mut b, 4096);
        let to = va + PAGE;
        let mut words = Vec::new();
        for _ in 0..8 {
            words.extend([
                0xc005_5000,
                0,
                va as u32,
                (va >> 32) as u32,
                to as u32,
                (to >> 32) as u32,
                PAGE as u32,
            ]);
        }
        let chain = words.len() as u32 + 4;
        words.extend(indirect(ib, chain, true));
        b.set_words(ib_bus, &words);
        b.set32(bus, 1);
        let mut q = p.queue(&mut b);
        q.push(&mut b, &indirect(ib, chain, false));
        list.extend(q.map_queues());
        compute.push(q);
    }
    for i in 0..8 {
        let (va, _) = p.page(&mut b, 2 * PAGE);
        let mut q = p.sdma_queue(&mut b, i % 5, u64::from(i));
        let to = va + PAGE;
        let copy = [
            1,
            PAGE as u32 - 1,
            0,
            va as u32,
            (va >> 32) as u32,
            to as u32,
            (to >> 32) as u32,
        ];
        let mut ring = copy.repeat(146);
        ring.extend([0, 0]);
        b.set_words(q.ring, &ring);
        q.wptr = 0;
        list.extend(q.map_queues());
        sdma.push(q);
    }
    let mut all = p.map_process(&b, 32);
    all.extend(list);
    b.run_list(&all, false, 1);
    b.run_steps(200);
    b.no_errors();
    for q in &compute {
        q.ring_bell(&mut b);
    }
    (b, sdma)
}

/// What the queues of [`busy`] have moved so far.
fn moved(b: &Bench) -> u64 {
    b.gpu.soc.log.stats.cp_dma_bytes + b.gpu.soc.log.stats.sdma_bytes
}

/// Bytes that are moved between two looks at what else there is to do.
const PIECE: u64 = 16 << 10;

#[test]
fn a_step_ends_when_an_access_waits() {
    let (mut b, mut sdma) = busy();
    for q in &mut sdma {
        q.wptr = 1024;
        q.ring_bell(&mut b);
    }
    let callers = b.gpu.soc.callers().clone();
    let long = Duration::from_secs(3600);
    callers.wait(|| {
        let mut before = moved(&b);
        for _ in 0..400 {
            assert_eq!(b.gpu.step_within(long), Step::Busy);
            let now = moved(&b);
            assert!(now - before <= PIECE, "{} bytes in a step", now - before);
            before = now;
        }
    });
    // Nobody waits any more: the first step may end a round, the second one is a whole one.
    let before = moved(&b);
    for _ in 0..2 {
        assert_eq!(b.gpu.step_within(long), Step::Busy);
    }
    assert!(moved(&b) - before > 24 * PIECE);
    // So too when the time is over.
    let before = moved(&b);
    assert_eq!(b.gpu.step_within(Duration::ZERO), Step::Busy);
    assert!(moved(&b) - before <= PIECE);
    b.no_errors();
}

/// Nobody waits: a step ends when its time is over, and not when all queues have had their turns.  How much of a turn is done
/// after that, the test above tells.
#[test]
fn a_step_ends_when_its_time_is_over() {
    assert_eq!(STEP, Duration::from_micros(100));
    let (mut b, mut sdma) = busy();
    for q in &mut sdma {
        q.wptr = 1024;
        q.ring_bell(&mut b);
    }
    // The first step may end a round that others have begun, the second one is a whole one.
    let mut whole = 0;
    for _ in 0..2 {
        let before = moved(&b);
        assert_eq!(b.gpu.step_within(Duration::from_secs(3600)), Step::Busy);
        whole = moved(&b) - before;
    }
    assert!(whole > 24 * PIECE, "{whole} bytes in a round");
    let (mut early, mut shortest) = (0, Duration::MAX);
    for _ in 0..100 {
        let (begun, before) = (Instant::now(), moved(&b));
        assert_eq!(b.gpu.step_within(STEP), Step::Busy);
        if moved(&b) - before < whole {
            early += 1;
        } else {
            shortest = shortest.min(begun.elapsed());
        }
    }
    // A machine may be fast enough for whole rounds.
    assert!(early > 0 || shortest < STEP, "a round takes {shortest:?}");
    b.no_errors();
}

/// Steps that end early must not always serve the same queues.
#[test]
fn all_queues_get_on_when_every_step_ends_early() {
    let (mut b, mut sdma) = busy();
    let rptrs = |b: &Bench, all: &[UserQueue]| -> Vec<u64> {
        all.iter().map(|q| b.ram64(q.ptrs)).collect()
    };
    for q in &mut sdma {
        q.wptr = 1024;
        q.ring_bell(&mut b);
    }
    let before = rptrs(&b, &sdma);
    let packets = b.gpu.soc.log.stats.packets_compute;
    let callers = b.gpu.soc.callers().clone();
    callers.wait(|| {
        // A copy of 128 KiB takes 8 steps of a queue, and there are 32 of them.
        for _ in 0..2 * 8 * 32 {
            let _ = b.gpu.step_within(Duration::from_secs(3600));
        }
    });
    for (before, now) in before.iter().zip(rptrs(&b, &sdma)) {
        assert!(now > *before, "a queue of SDMA stands still");
    }
    assert!(b.gpu.soc.log.stats.packets_compute >= packets + 24);
    b.no_errors();
}

/// What the driver asks KIQ and HIQ for does not wait for the turns of all other queues, even if every step ends early; nor do
/// the others stand still.
#[test]
fn the_queues_of_the_driver_wait_for_nobody() {
    let (mut b, mut sdma) = busy();
    for q in &mut sdma {
        q.wptr = 1024;
        q.ring_bell(&mut b);
    }
    let kiq = b.alloc_sys(4096);
    let callers = b.gpu.soc.callers().clone();
    let before = moved(&b);
    callers.wait(|| {
        let step = |b: &mut Bench| {
            assert_eq!(b.gpu.step_within(Duration::from_secs(3600)), Step::Busy);
        };
        for value in 1..=50 {
            // A flush of the process and its fence; of each queue a step runs one packet.
            b.submit_kiq(&[0xc000_9800, 1 | (1 << 4) | (0x61 << 5) | (2 << 29)]);
            b.submit_kiq(&write_data(kiq.gart, value));
            step(&mut b);
            assert_eq!(b.ram32(kiq.bus), value - 1);
            step(&mut b);
            assert_eq!(b.ram32(kiq.bus), value);
            b.submit_hiq(&[
                0xc005_a400,
                2 << 30,
                0,
                kiq.gart as u32 + 8,
                (kiq.gart >> 32) as u32,
                value,
                0,
            ]);
            step(&mut b);
            assert_eq!(b.ram64(kiq.bus + 8), u64::from(value));
        }
    });
    // One of the others in each step, too; some of their packets move nothing.
    let moved = (moved(&b) - before) / PIECE;
    assert!((100..=150).contains(&moved), "{moved} pieces in 150 steps");
    b.no_errors();
}

/// A step that ended early has not looked at all queues: the times at which those want to be looked at again are kept.
#[test]
fn a_queue_that_waits_is_not_forgotten_by_steps_that_end_early() {
    let mut b = Bench::scheduled(&GFX90A);
    let mut p = Proc::new(&mut b, 0x61, 0);
    let (va, bus) = p.page(&mut b, 4096);
    let mut queues: Vec<UserQueue> = (0..8).map(|_| p.queue(&mut b)).collect();
    let mut list = p.map_process(&b, 8);
    for q in &queues {
        list.extend(q.map_queues());
    }
    b.run_list(&list, false, 1);
    b.run();
    for (i, q) in (0..).zip(&mut queues) {
        q.push(&mut b, &wait_mem(va, 1));
        q.push(&mut b, &write_data(va + 64 + 4 * i, 5));
        q.ring_bell(&mut b);
    }
    let callers = b.gpu.soc.callers().clone();
    let next = callers.wait(|| {
        (0..1000)
            .find_map(|_| match b.gpu.step_within(Duration::from_secs(3600)) {
                Step::Idle(next) => Some(next),
                Step::Busy => None,
            })
            .expect("the device comes to rest")
    });
    let now = b.gpu.soc.clock.now_ns();
    assert!(
        next.is_some_and(|t| t > now && t <= now + 2_000_000),
        "{next:?}"
    );
    b.set32(bus, 1);
    b.run_for(4_000_000);
    assert_eq!(b.words(bus + 64, 8), [5; 8]);
    b.no_errors();
}

/// A device with one compute unit and 16 AQL queues, each with a save area and a wave with 128 registers that goes on for
/// ever.  They are not connected.
fn saving() -> (Bench, Proc, Vec<UserQueue>) {
    let board = Board {
        compute_units: 1,
        ..GFX90A.board
    };
    let mut b = Bench::on_board(&GFX90A, board).schedule();
    let mut p = Proc::new(&mut b, 0x61, 0);
    let (code, bus) = p.page(&mut b, 4096);
    let mut kernel = Launch::new("loop: s_branch loop", 64, 64);
    kernel.vgprs = 128;
    kernel.put(&b, &GFX90A, bus);
    let mut queues = Vec::new();
    for _ in 0..16 {
        let q = p.queue(&mut b).into_aql(&mut b).with_cwsr(&mut b, &mut p);
        let object = q.ptrs_va + 1024;
        b.set64(q.mqd.bus + 139 * 4, object + 128);
        b.set32(q.ptrs + 1024 + 136, 128);
        b.set_words(q.ring, &kernel.packet(code, 0, 0));
        b.set64(q.ptrs + 64, 1);
        queues.push(q);
    }
    (b, p, queues)
}

fn listed(b: &Bench, p: &Proc, queues: &[UserQueue]) -> Vec<u32> {
    let mut list = p.map_process(b, queues.len() as u32);
    list.extend(queues.iter().flat_map(UserQueue::map_queues));
    list
}

/// Queues that a run list or UNMAP_QUEUES names, or a window of time slicing, come and go one by one.
#[test]
fn a_step_connects_or_saves_one_queue_when_an_access_waits() {
    if without_llvm("one queue at a time") {
        return;
    }
    for slices in [false, true] {
        let (mut b, p, queues) = saving();
        let list = listed(&b, &p, &queues);
        let long = Duration::from_secs(3600);
        let callers = b.gpu.soc.callers().clone();
        let count = |b: &Bench| {
            let mapped = b.gpu.hws.mapped();
            mapped.iter().filter(|m| !m.by_kiq).count()
        };
        callers.wait(|| {
            // One at a time until all are there, or gone.
            let until = |b: &mut Bench, all: usize| {
                let mut steps = 0;
                while count(b) != all {
                    let before = count(b);
                    let _ = b.gpu.step_within(long);
                    assert!(before.abs_diff(count(b)) <= 1, "{before} to {}", count(b));
                    steps += 1;
                    assert!(steps < 100, "{} queues", count(b));
                }
            };
            b.run_list(&list, slices, 1);
            until(&mut b, 16);
            if slices {
                b.run_steps(64);
                b.advance(200_000_000);
                let rotations = b.gpu.soc.log.stats.rotations;
                until(&mut b, 0);
                assert_eq!(b.gpu.soc.log.stats.rotations, rotations + 1);
                until(&mut b, 16);
            }
            b.run_steps(64);
            assert_eq!(b.gpu.waves.dispatcher.figures().1, 16, "waves");
            let fence = b.unmap(3, 0, 0);
            until(&mut b, 1);
            assert_eq!(b.ram64(fence.bus), 10);
            until(&mut b, 0);
            let _ = b.gpu.step_within(long);
            assert_eq!(b.ram64(fence.bus), 100);
        });
        b.no_errors();
    }
}

/// The same with the worker and with threads that execute: accesses of the guest get in between.
#[test]
fn accesses_are_served_before_the_last_queue_is_saved() {
    if without_llvm("accesses beside a preemption") {
        return;
    }
    let (mut b, p, queues) = saving();
    b.gpu.waves.spawn(2).unwrap();
    let list = listed(&b, &p, &queues);
    let buffer = b.run_list(&list, false, 1);
    let fence = b.alloc_sys(4096);
    // The driver goes on with memory; what it rings is passed on below.
    let gpu = std::mem::replace(&mut b.gpu, Bench::quiet(&GFX90A).gpu);
    let shared = Shared::new(gpu);
    let worker = std::thread::spawn({
        let shared = Arc::clone(&shared);
        move || shared.run_worker()
    });
    let ring = |b: &Bench| {
        let wptr = b.hiq.as_ref().unwrap().wptr.to_le_bytes();
        shared.trapped(|gpu| gpu.doorbell_write(0x40 * 8, &wptr));
        shared.wake();
    };
    let begun = Instant::now();
    // What an access finds: queues that are connected, and whether the fence is written.
    let look = |b: &Bench| {
        assert!(begun.elapsed() < Duration::from_secs(60));
        b.now.fetch_add(1000, Ordering::Relaxed);
        shared.wake();
        shared.trapped(|gpu| {
            let mapped = gpu.hws.mapped().iter().filter(|m| !m.by_kiq).count();
            (mapped, b.ram64(fence.bus) == 100)
        })
    };
    // An access may come late, however long the device waits for it, but not each time.
    let between = (0..20).any(|_| {
        let waves = || shared.lock().waves.dispatcher.figures().1;
        while look(&b).0 < 16 || waves() < 16 {
            std::thread::sleep(Duration::from_millis(1));
        }
        b.set64(fence.bus, 10);
        b.submit_hiq(&[0xc004_a300, 3 << 4, 0, 0, 0, 0]);
        let (lo, hi) = (fence.gart as u32, (fence.gart >> 32) as u32);
        b.submit_hiq(&[0xc005_a400, 2 << 30, 0, lo, hi, 100, 0]);
        ring(&b);
        let mut some = false;
        loop {
            let (mapped, done) = look(&b);
            some |= (1..16).contains(&mapped) && !done;
            if done {
                break;
            }
        }
        let (lo, hi) = (buffer.gart as u32, (buffer.gart >> 32) as u32);
        let size = list.len() as u32 | (1 << 23) | (1 << 24);
        b.submit_hiq(&[0xc002_a500, lo, hi, size]);
        ring(&b);
        some
    });
    assert!(between, "all queues leave while the device answers nobody");
    let errors = shared.lock().soc.log.total_errors();
    assert_eq!(errors, 0);
    shared.stop();
    worker.join().unwrap();
}

/// With steps that end early, and with such as there were before, which give each queue a stretch.
#[test]
#[ignore = "prints figures of this machine"]
fn figures_under_full_load() {
    for early in [false, true] {
        print_figures(early);
    }
}

fn print_figures(early: bool) {
    let (b, mut sdma) = busy();
    let Bench { gpu, .. } = b;
    let shared = Shared::new(gpu);
    let over = Arc::new(AtomicBool::new(false));
    let worker = std::thread::spawn({
        let (shared, over) = (Arc::clone(&shared), Arc::clone(&over));
        move || {
            if early {
                return shared.run_worker();
            }
            while !over.load(Ordering::Relaxed) {
                let mut gpu = shared.lock();
                let _ = gpu.step_within(Duration::from_secs(3600));
                MutexGuard::unlock_fair(gpu);
            }
        }
    });
    let access = |access: &mut dyn FnMut(&mut Gpu)| {
        if early {
            return shared.trapped(access);
        }
        // Nobody tells the step of it.
        let begun = Instant::now();
        let mut gpu = shared.lock();
        access(&mut gpu);
        gpu.latency.access.note(begun.elapsed());
    };
    let end = Instant::now() + Duration::from_secs(4);
    let mut rung = Instant::now();
    while Instant::now() < end {
        if rung.elapsed() > Duration::from_millis(20) {
            rung = Instant::now();
            for q in &mut sdma {
                q.wptr += 1024;
                let bell = (q.wptr * 4).to_le_bytes();
                access(&mut |gpu| gpu.doorbell_write(q.doorbell, &bell));
            }
        }
        std::thread::sleep(Duration::from_micros(50));
        access(&mut |gpu| gpu.mmio_read(0x378c, &mut [0; 4]));
    }
    let gpu = shared.lock();
    let stats = gpu.soc.log.stats.clone();
    let latency = gpu.latency;
    drop(gpu);
    over.store(true, Ordering::Relaxed);
    shared.stop();
    worker.join().unwrap();
    println!("steps that end early: {early}");
    for (what, of) in [("steps", latency.step), ("accesses", latency.access)] {
        println!("{what}: {}", serde_json::to_string(&of).unwrap());
    }
    let moved = (stats.cp_dma_bytes + stats.sdma_bytes) >> 20;
    println!("moved: {moved} MB");
}
