// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Whatever a driver or a user writes: no panic, no endless loop, bounded memory.

mod common;

use common::heap::{Counting, Meter, GROWTH};
use common::proc::Proc;
use common::queue::write_data;
use common::Bench;
use gpu_model::asic::{GFX906, GFX90A};
use gpu_model::mem::{Bus, Phys};
use gpu_model::server::make_vram;
use gpu_model::vm::hub::Context;
use gpu_model::vm::walk::{walk, WalkFault};
use proptest::collection::vec;
use proptest::prelude::*;

#[global_allocator]
static HEAP: Counting = Counting;

/// A device with user queues of all kinds; errors are not echoed.
fn device(gfx906: bool) -> (Bench, Proc, Vec<common::queue::UserQueue>) {
    let mut b = Bench::quiet(if gfx906 { &GFX906 } else { &GFX90A }).schedule();
    let mut p = Proc::new(&mut b, 0xa1, 0);
    p.retry = true;
    let aql = p.queue(&mut b);
    let aql = aql.into_aql(&mut b);
    let queues = vec![p.queue(&mut b), p.sdma_queue(&mut b, 0, 0), aql];
    let mut list = p.map_process(&b, 3);
    for q in &queues {
        list.extend(q.map_queues());
    }
    b.run_list(&list, true, 1);
    b.run();
    b.no_errors();
    (b, p, queues)
}

/// Runs for a bounded number of turns: random packets may keep a queue busy for ever.
fn turns(b: &mut Bench, n: usize) {
    for _ in 0..n {
        b.advance(50_000);
        let _ = b.gpu.step();
    }
}

/// Few cases, since each brings up a device; PROPTEST_CASES asks for more.
fn cases() -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 48;
    }
    config
}

/// Dwords that look like packets often enough to get past the header.
fn packetish() -> impl Strategy<Value = u32> {
    let ops = prop::sample::select(vec![
        0x10u32, 0x15, 0x1e, 0x22, 0x23, 0x37, 0x3c, 0x3f, 0x40, 0x46, 0x49, 0x50, 0x58, 0x68,
        0x76, 0x79, 0x98, 0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xff,
    ]);
    prop_oneof![
        2 => any::<u32>(),
        3 => (ops, 0u32..24).prop_map(|(op, n)| (3 << 30) | (n << 16) | (op << 8)),
        2 => 0u32..64,
        1 => Just(0x7000u32),
        1 => (0u32..17, 0u32..5).prop_map(|(op, sub)| op | (sub << 8)),
    ]
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn random_packets_on_user_queues(words in vec(packetish(), 1..400), which in 0usize..3, gfx906: bool) {
        let (mut b, _, mut queues) = device(gfx906);
        let meter = Meter::start();
        let q = &mut queues[which];
        if q.aql {
            b.set_words(q.ring, &words);
            b.set64(q.ptrs + 64, (words.len() as u64).div_ceil(16));
            b.bell(q.doorbell, (words.len() as u64).div_ceil(16));
        } else {
            q.push(&mut b, &words);
            q.ring_bell(&mut b);
        }
        turns(&mut b, 200);
        // Whatever it did, the driver can take it away, and another queue works.
        let fence = b.unmap(3, 0, 0);
        turns(&mut b, 200);
        prop_assert_eq!(b.ram64(fence.bus), 100);
        prop_assert!(meter.most() < GROWTH, "{} bytes more", meter.most());
    }

    #[test]
    fn random_packets_on_kernel_queues(words in vec(packetish(), 1..200), kiq: bool) {
        let (mut b, _, _) = device(false);
        let meter = Meter::start();
        if kiq { b.submit_kiq(&words) } else { b.submit_hiq(&words) }
        turns(&mut b, 300);
        prop_assert!(meter.most() < GROWTH, "{} bytes more", meter.most());
    }

    #[test]
    fn random_run_lists(words in vec(packetish(), 4..300), chain: bool) {
        let (mut b, _, _) = device(false);
        let meter = Meter::start();
        b.unmap(3, 0, 0);
        b.run_list(&words, chain, 4);
        turns(&mut b, 300);
        prop_assert!(meter.most() < GROWTH, "{} bytes more", meter.most());
    }

    #[test]
    fn random_registers_and_doorbells(
        ops in vec((0u8..4, any::<u32>(), prop_oneof![any::<u32>(), 0u32..8, Just(0x8000_0000u32)]), 1..600),
    ) {
        let (mut b, _, mut queues) = device(false);
        let meter = Meter::start();
        queues[0].send(&mut b, &write_data(0x7000_0000_0000, 1));
        for (kind, at, v) in ops {
            match kind {
                0 => { b.rd(u64::from(at % 0x80000) & !3); }
                1 => b.wr(u64::from(at % 0x80000) & !3, v),
                2 => b.bell(u64::from(at % 0x200000) & !7, u64::from(v)),
                _ => b.bell32(u64::from(at % 0x200000) & !3, v),
            }
            let _ = b.gpu.step();
        }
        turns(&mut b, 100);
        b.gpu.device_reset();
        // VRAM may still be on its way to be lost.
        turns(&mut b, 100);
        prop_assert_eq!(b.rd(0x378c), 64);
        prop_assert!(meter.most() < GROWTH, "{} bytes more", meter.most());
    }

    #[test]
    fn random_queue_images(image in vec(any::<u32>(), 512), sdma: bool) {
        let (mut b, p, queues) = device(false);
        let meter = Meter::start();
        b.unmap(3, 0, 0);
        b.run();
        let q = &queues[usize::from(sdma)];
        b.set_words(q.mqd.bus, &image);
        let mut list = p.map_process(&b, 1);
        list.extend(q.map_queues());
        b.run_list(&list, false, 1);
        turns(&mut b, 100);
        b.bell(q.doorbell, 64);
        turns(&mut b, 100);
        prop_assert!(meter.most() < GROWTH, "{} bytes more", meter.most());
    }
}

/// What leaks a little each time does not show in a sequence that is run once.  The first half fills what has a limit: the
/// trace, the errors, the queues that a run list remembers.
#[test]
fn the_same_for_a_long_time_takes_no_more_memory() {
    const ROUNDS: u32 = 6000;
    /// Two dwords in each round would be more; what is measured is a tenth of that.
    const LITTLE: usize = 8 * ROUNDS as usize;
    let (mut b, p, mut queues) = device(false);
    let mut list = p.map_process(&b, 3);
    list.extend(queues.iter().flat_map(common::queue::UserQueue::map_queues));
    let size = list.len() as u32 + 4;
    let buffer = b.run_list(&list, true, 1);
    let (lo, hi) = (buffer.gart as u32, (buffer.gart >> 32) as u32);
    let mut round = |b: &mut Bench, n: u32| {
        b.submit_hiq(&[0xc002_a500, lo, hi, size | (1 << 23) | (1 << 24)]);
        turns(b, 4);
        // A page that is not there, and packets that are none.
        queues[0].push(b, &write_data(0x7600_0000_0000 + u64::from(n) * 4096, 1));
        queues[0].push(b, &[0xc000_ff00, n]);
        queues[0].ring_bell(b);
        queues[1].push(b, &[0x55, n]);
        queues[1].ring_bell(b);
        // Doorbells of nobody, registers of nothing.
        b.bell(0x1f_0000 + u64::from(n % 8192) * 8, 1);
        b.wr(0x7_0000 + u64::from(n % 4096) * 4, n);
        // The invalidations of a driver, and pages that come and go.
        b.wr(0xa100 + 0x18c + 68, (1 << 8) | (2 << 16) | 0x7c_0000);
        b.submit_kiq(&[0xc000_9800, 1 | (1 << 4) | (0xa1 << 5) | (2 << 29)]);
        turns(b, 8);
        // By the names of four queues, others each time; of a process; of all.
        let names = (0..4).map(|i| 0x10_0000 + ((4 * n + i) % 0x1_0000) * 8);
        b.submit_hiq(&[&[0xc004_a300, 4 << 29][..], &names.collect::<Vec<_>>()].concat());
        b.submit_hiq(&[0xc004_a300, 1 << 4, 0x100 + n % 0x1000, 0, 0, 0]);
        b.submit_hiq(&[0xc004_a300, 3 << 4, 0, 0, 0, 0]);
        turns(b, 8);
    };
    for n in 0..ROUNDS {
        round(&mut b, n);
    }
    let maps = b.gpu.soc.log.stats.queue_maps;
    let meter = Meter::start();
    for n in ROUNDS..2 * ROUNDS {
        round(&mut b, n);
    }
    let most = meter.most();
    // It is what it says: queues come, fault and go each time.
    let stats = &b.gpu.soc.log.stats;
    let maps = stats.queue_maps - maps;
    assert!(maps >= 3 * u64::from(ROUNDS), "{maps} queues connected");
    println!("{most} bytes more in {ROUNDS} rounds");
    assert!(most < LITTLE, "{most} bytes more");
}

/// A second walker, written as the format is told: level by level, no generality.
fn naive(vram: &[u64], root: u64, va: u64, tf: bool) -> Option<(bool, u64, u64)> {
    let at = |table: u64, i: u64| vram.get((table / 8 + i) as usize).copied().unwrap_or(0);
    let i = |s: u32| (va >> s) & 0x1ff;
    let addr = 0x0000_ffff_ffff_f000u64;
    let page = |e: u64, size: u64| Some((e & 2 != 0, (e & addr) + (va & (size - 1)), e & 0x70));
    let pde2 = at(root, i(39));
    if pde2 & 1 == 0 {
        return None;
    }
    let pde1 = at(pde2 & addr, i(30));
    if pde1 & 1 == 0 {
        return None;
    }
    if (pde1 >> 54) & 1 != 0 {
        return page(pde1, 1 << 30);
    }
    let pde0 = at(pde1 & addr, i(21));
    if pde0 & 1 == 0 {
        return None;
    }
    let leads_on = if tf {
        (pde0 >> 56) & 1 != 0
    } else {
        (pde0 >> 54) & 1 == 0
    };
    if !leads_on {
        return page(pde0, 1 << 21);
    }
    let pte = at(pde0 & addr, i(12));
    if pte & 1 == 0 {
        return None;
    }
    page(pte, 1 << 12)
}

proptest! {
    #[test]
    fn walker_agrees_with_a_naive_one(
        tf: bool,
        maps in vec((0u64..64, 0u8..3, any::<u16>(), 1u64..8), 1..40),
        probes in vec((0u64..64, any::<u32>()), 1..40),
    ) {
        let meter = Meter::start();
        // Tables are 4 KiB each in 2 MiB of VRAM, handed out one after another.
        let mut vram = vec![0u64; 1 << 18];
        let mut next = 1u64;
        let region = |n: u64| ((n / 16) << 39) | ((n / 4 % 4) << 30) | ((n % 4) << 21);
        let table = |vram: &mut Vec<u64>, slot: usize, flags: u64, next: &mut u64| {
            if vram[slot] & 1 == 0 {
                vram[slot] = (*next * 4096) | 1 | flags;
                *next += 1;
            }
            (vram[slot] & 0xffff_ffff_f000) as usize / 8
        };
        for (n, kind, page, perms) in maps {
            let va = region(n) | (u64::from(page % 512) << 12);
            let i = |s: u32| ((va >> s) & 0x1ff) as usize;
            let flags = (perms << 4) | 3;
            let l1 = table(&mut vram, i(39), 0, &mut next);
            let slot1 = l1 + i(30);
            if kind == 2 && vram[slot1] & 1 == 0 {
                vram[slot1] = (u64::from(page) << 30) & 0xffff_ffff_ffff | flags | (1 << 54);
            }
            if (vram[slot1] >> 54) & 1 != 0 {
                continue;
            }
            let l0 = table(&mut vram, slot1, if tf { 9 << 59 } else { 0 }, &mut next);
            let slot0 = l0 + i(21);
            if kind == 1 && vram[slot0] & 1 == 0 {
                vram[slot0] = (u64::from(page) << 21) | flags | if tf { 0 } else { 1 << 54 };
            }
            let is_page = vram[slot0] & 1 != 0
                && if tf { (vram[slot0] >> 56) & 1 == 0 } else { (vram[slot0] >> 54) & 1 != 0 };
            if is_page {
                continue;
            }
            let ptb = table(&mut vram, slot0, if tf { 1 << 56 } else { 0 }, &mut next);
            vram[ptb + i(12)] = (u64::from(page) << 12) | flags;
        }
        let file = make_vram(2 << 20).unwrap();
        let mem = Bus::new(file, 2 << 20).unwrap();
        let bytes: Vec<u8> = vram.iter().flat_map(|v| v.to_le_bytes()).collect();
        mem.write(Phys::Vram(0), &bytes).unwrap();
        let ctx = Context {
            enabled: true,
            depth: if tf { 2 } else { 3 },
            block_size: if tf { 9 } else { 0 },
            retry: false,
            base: 1,
            start: 0,
            end: 0xf_ffff_ffff,
            cntl: 0,
        };
        for (n, low) in probes {
            let va = region(n) | u64::from(low) & 0x1f_ffff;
            let got = match walk(&mem.current(), &ctx, 0, va, &mut ()) {
                Ok(p) => {
                    let off = va & ((1 << p.shift) - 1);
                    p.phys.map(|at| match at {
                        Phys::Vram(a) => (false, a + off, p.perms),
                        Phys::Bus(a) => (true, a + off, p.perms),
                    })
                }
                Err(WalkFault::InvalidPde(_) | WalkFault::InvalidPte(_)) => None,
                Err(e) => return Err(TestCaseError::fail(format!("{va:#x}: {e:?}"))),
            };
            prop_assert_eq!(got, naive(&vram, 0, va, tf), "va {:#x}", va);
        }
        prop_assert!(meter.most() < GROWTH, "{} bytes more", meter.most());
    }
}

/// A value that a register of a queue might get: real addresses, flags, small numbers, anything.
fn registerish() -> impl Strategy<Value = u32> {
    prop_oneof![
        3 => any::<u32>(),
        3 => 0u32..16,
        1 => Just(0x7000_0000u32),
        1 => Just(0x70u32),
        1 => (0u32..32).prop_map(|bit| 1 << bit),
        1 => Just(0xffff_ffffu32),
        1 => (0u32..64).prop_map(|n| 0x10_0000 + 8 * n),
        1 => Just(0x0000_c03fu32),
    ]
}

proptest! {
    #![proptest_config(cases())]

    /// Slots and SDMA contexts written at random, under queues that the scheduler has connected there: whatever the
    /// driver does, the model goes on, and a reset makes a working device of it.
    #[test]
    fn random_queue_registers(
        gfx906: bool,
        ops in vec((0u8..12, any::<u32>(), registerish()), 1..500),
    ) {
        let (mut b, _, queues) = device(gfx906);
        let meter = Meter::start();
        let sdma = b.sdma_bases.clone();
        for (kind, at, v) in ops {
            match kind {
                // GRBM_GFX_CNTL, then a register of the selected slot.
                0 => b.wr(0x8088, at & 0x7ff),
                1..=4 => b.wr(0xc914 + u64::from(at % 0x3b) * 4, v),
                // ACTIVE and DEQUEUE_REQUEST more often than chance would.
                5 => b.wr(0xc91c, v & 3),
                6 => b.wr(0xc970, v & 0x107),
                7 => {
                    let base = sdma[at as usize % sdma.len()];
                    b.wr(base + u64::from((at >> 8) % 0x410) * 4, v);
                }
                // MEC_CNTL, wptr polls, queue reset, schedulers, soft reset, SDMA halt.
                8 => {
                    let r = [0x8234u64, 0xc20c, 0xc210, 0xc76c, 0x3b2a8, 0x8020, sdma[0] + 0x2a * 4];
                    b.wr(r[at as usize % r.len()], v);
                }
                // ATC and IH tables, hub registers.
                9 => {
                    let r = [0x3080u64, 0x4280, 0xa100, 0xa5ac, 0x69a00, 0x6ae00];
                    b.wr(r[at as usize % r.len()] + u64::from((at >> 8) % 0x100) * 4, v);
                }
                10 => b.bell(queues[at as usize % queues.len()].doorbell, u64::from(v)),
                _ => { b.rd(0xc914 + u64::from(at % 0x3b) * 4); }
            }
            if at % 3 == 0 {
                b.advance(u64::from(v % 5_000_000));
                let _ = b.gpu.step();
            }
        }
        turns(&mut b, 100);
        b.gpu.device_reset();
        turns(&mut b, 100);
        b.gpu.soc.log.clear_errors();
        prop_assert_eq!(b.rd(0x378c), 64);
        prop_assert_eq!(b.gpu.soc.log.stats.queue_maps, b.gpu.soc.log.stats.queue_unmaps);
        prop_assert!(meter.most() < GROWTH, "{} bytes more", meter.most());
    }

    /// The control socket answers every line with one JSON object.
    #[test]
    fn random_control_lines(
        cmd in prop_oneof![
            "[a-z-]{0,16}",
            prop::sample::select(vec!["stats", "trace", "queues", "vm", "errors", "fault", "faults", "doorbells", "clear-faults"])
                .prop_map(str::to_string),
        ],
        key in prop::sample::select(vec!["max", "vmid", "kind", "count", "ms", "doorbell", "last_ms", "va"]),
        value in any::<i64>(),
        raw in "\\PC{0,64}",
    ) {
        let (mut b, _, _) = device(false);
        let meter = Meter::start();
        for line in [format!("{{\"cmd\":\"{cmd}\",\"{key}\":{value}}}"), raw] {
            let reply = gpu_model::control::answer(&mut b.gpu, &line);
            prop_assert!(reply["ok"].is_boolean(), "{line}: {reply}");
            prop_assert_eq!(reply["ok"] == false, reply["error"].is_string());
            prop_assert!(reply.get("id").is_none());
        }
        // Whatever came of it, the answer says whose it is.
        let line = format!("{{\"cmd\":\"{cmd}\",\"{key}\":{value},\"id\":[1,\"x\"]}}");
        let reply = gpu_model::control::answer(&mut b.gpu, &line);
        prop_assert_eq!(&reply["id"], &serde_json::json!([1, "x"]), "{}", line);
        turns(&mut b, 20);
        prop_assert!(meter.most() < GROWTH, "{} bytes more", meter.most());
    }
}
