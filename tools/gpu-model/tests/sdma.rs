// SPDX-License-Identifier: GPL-2.0 OR MIT
//! SDMA queues: connection, every packet, write-back, faults.

mod common;

use common::fixture::Fixture;
use gpu_model::asic::{Asic, GFX906, GFX90A};
use gpu_model::device::Step;

fn fixture(asic: &'static Asic, engine: u32) -> Fixture {
    Fixture::with(asic, 0x41, 0x10000, |b, p, _| p.sdma_queue(b, engine, 0))
}

fn lo(a: u64) -> u32 {
    a as u32
}
fn hi(a: u64) -> u32 {
    (a >> 32) as u32
}

#[test]
fn every_engine_copies_and_traps_with_its_client() {
    let gfx90a = [(0, 8), (1, 9), (2, 1), (3, 4), (4, 5)];
    let gfx906 = [(0, 8), (1, 9)];
    let all = gfx90a.map(|engine| (&GFX90A, engine));
    let all = all
        .into_iter()
        .chain(gfx906.map(|engine| (&GFX906, engine)));
    for (asic, (engine, client)) in all {
        let mut f = fixture(asic, engine);
        let (a, d) = (f.va, f.va + 0x4000);
        let pattern: Vec<u8> = (0..5000u32).map(|i| (i * 7 % 251) as u8).collect();
        f.b.ram_write(f.bus + 3, &pattern);
        f.q.send(&mut f.b, &[1, 4999, 0, lo(a + 3), hi(a), lo(d + 1), hi(d)]);
        let mut got = vec![0; 5000];
        f.b.ram_read(f.bus + 0x4001, &mut got);
        assert!(
            got == pattern,
            "engine {engine}: {:?}",
            f.b.gpu.soc.log.records().rev().take(6).collect::<Vec<_>>()
        );
        f.q.send(&mut f.b, &[5, lo(a + 0x8000), hi(a), 0x77, 6, 0xf123_4567]);
        assert_eq!(f.b.ram32(f.bus + 0x8000), 0x77);
        let ivs = f.b.irqs();
        assert_eq!(ivs.len(), 1);
        assert_eq!(
            (ivs[0].client, ivs[0].source, ivs[0].data[0]),
            (client, 224, 0x0123_4567),
            "{} engine {engine}",
            asic.name
        );
        let vmid = f.b.first_vmid();
        assert_eq!((ivs[0].pasid, ivs[0].vmid, ivs[0].mm), (0x41, vmid, true));
        // Byte read pointer, 64 bits, not wrapped.
        assert_eq!(f.b.ram64(f.q.ptrs), 13 * 4);
        f.b.no_errors();
    }
}

/// COPY_LINEAR_SUB_WIND of one column of bytes, `rows` rows, both sides with this pitch.
fn column(src: u64, dst: u64, pitch: u32, rows: u32) -> [u32; 13] {
    let zp = (pitch - 1) << 13;
    [
        1 | (4 << 8),
        lo(src),
        hi(src),
        0,
        zp,
        pitch * rows - 1,
        lo(dst),
        hi(dst),
        0,
        zp,
        pitch * rows - 1,
        (rows - 1) << 16,
        0,
    ]
}

#[test]
fn a_turn_of_narrow_rows_is_short() {
    let mut f = fixture(&GFX90A, 0);
    let (a, d) = (f.va, f.va + 0x8000);
    let pattern: Vec<u8> = (0..0x4000u32).map(|i| (i * 7 % 251) as u8).collect();
    f.b.ram_write(f.bus, &pattern);
    f.q.push(&mut f.b, &column(a, d, 1, 0x4000));
    f.q.ring_bell(&mut f.b);
    let (mut busy, mut before) = (true, 0);
    while busy {
        busy = f.b.gpu.step() == Step::Busy;
        let now = f.b.gpu.soc.log.stats.sdma_bytes;
        assert!(now - before <= 256, "{} rows in one turn", now - before);
        before = now;
    }
    assert_eq!(before, 0x4000);
    let mut got = vec![0; 0x4000];
    f.b.ram_read(f.bus + 0x8000, &mut got);
    assert!(got == pattern);
    f.b.no_errors();
}

#[test]
fn a_turn_ends_with_the_first_row_that_faults() {
    let mut f = fixture(&GFX90A, 0);
    // Sixteen rows in pages that nobody has mapped; the last of them is followed by a fence.
    let away = 0x7700_0000_0000;
    f.q.push(&mut f.b, &column(away, f.va, 4096, 16));
    f.q.push(&mut f.b, &[5, lo(f.va + 0x8000), hi(f.va), 0x77]);
    f.q.ring_bell(&mut f.b);
    let (mut busy, mut before) = (true, 0);
    while busy {
        busy = f.b.gpu.step() == Step::Busy;
        let now = f.b.gpu.soc.log.stats.faults_no_retry;
        assert!(now - before <= 1, "{} faults in one turn", now - before);
        before = now;
    }
    assert_eq!(before, 16);
    assert_eq!(f.b.ram32(f.bus + 0x8000), 0x77, "the queue goes on");
    f.b.no_errors();
}

#[test]
fn packets_do_what_they_say() {
    let mut f = fixture(&GFX90A, 0);
    let (a, bus) = (f.va, f.bus);
    // WRITE.
    f.q.send(&mut f.b, &[2, lo(a), hi(a), 2, 11, 22, 33]);
    assert_eq!(f.b.words(bus, 3), [11, 22, 33]);
    // Broadcast copy.
    f.q.send(
        &mut f.b,
        &[
            1 | (1 << 27),
            11,
            0,
            lo(a),
            hi(a),
            lo(a + 0x100),
            hi(a),
            lo(a + 0x200),
            hi(a),
        ],
    );
    assert_eq!(f.b.words(bus + 0x100, 3), [11, 22, 33]);
    assert_eq!(f.b.words(bus + 0x200, 3), [11, 22, 33]);
    // CONST_FILL, dwords: (count >> 2) + 1 of them.
    f.q.send(
        &mut f.b,
        &[11 | (2 << 30), lo(a + 0x300), hi(a), 0xa5a5_5a5a, 15],
    );
    assert_eq!(
        f.b.words(bus + 0x300, 5),
        [0xa5a5_5a5a, 0xa5a5_5a5a, 0xa5a5_5a5a, 0xa5a5_5a5a, 0]
    );
    // ATOMIC ADD64 of -1.
    f.b.set64(bus + 0x400, 0x1_0000_0000);
    f.q.send(
        &mut f.b,
        &[10 | (47 << 25), lo(a + 0x400), hi(a), !0, !0, 0, 0, 0],
    );
    assert_eq!(f.b.ram64(bus + 0x400), 0xffff_ffff);
    // PTEPDE: entry i = flags | value + i * increment.
    f.q.send(
        &mut f.b,
        &[12, lo(a + 0x500), hi(a), 0x73, 0, 0x5000, 1, 0x1000, 0, 2],
    );
    assert_eq!(
        [
            f.b.ram64(bus + 0x500),
            f.b.ram64(bus + 0x508),
            f.b.ram64(bus + 0x510),
            f.b.ram64(bus + 0x518)
        ],
        [0x1_0000_5073, 0x1_0000_6073, 0x1_0000_7073, 0]
    );
    // TIMESTAMP get global: 100 MHz clock.
    let now = f.b.gpu.soc.clock.ticks();
    f.q.send(&mut f.b, &[13 | (2 << 8), lo(a + 0x600), hi(a)]);
    assert_eq!(f.b.ram64(bus + 0x600), now);
    // COND_EXE: skips three dwords unless the value matches.
    f.b.set32(bus + 0x700, 1);
    f.q.send(
        &mut f.b,
        &[9, lo(a + 0x700), hi(a), 2, 4, 5, lo(a + 0x704), hi(a), 9, 0],
    );
    assert_eq!(f.b.ram32(bus + 0x704), 0);
    f.q.send(
        &mut f.b,
        &[9, lo(a + 0x700), hi(a), 1, 4, 5, lo(a + 0x704), hi(a), 9, 0],
    );
    assert_eq!(f.b.ram32(bus + 0x704), 9);
    // Counted NOP.
    f.q.send(&mut f.b, &[3 << 16, 6, 6, 6, 5, lo(a + 0x708), hi(a), 8]);
    assert_eq!(f.b.ram32(bus + 0x708), 8);
    // Sub-window: 2 x 2 dwords from (1,1) of a 4-wide image to (0,0) of an 8-wide one.
    for i in 0..16u32 {
        f.b.set32(bus + 0x1000 + 4 * u64::from(i), i);
    }
    let src = a + 0x1000;
    let dst = a + 0x2000;
    f.q.send(
        &mut f.b,
        &[
            1 | (4 << 8) | (2 << 29),
            lo(src),
            hi(src),
            1 | (1 << 16),
            3 << 13,
            15,
            lo(dst),
            hi(dst),
            0,
            7 << 13,
            63,
            1 | (1 << 16),
            0,
        ],
    );
    assert_eq!(f.b.words(bus + 0x2000, 2), [5, 6]);
    assert_eq!(f.b.words(bus + 0x2020, 2), [9, 10]);
    // INDIRECT: ends on an 8-dword boundary.
    f.b.set_words(bus + 0x3000, &[5, lo(a + 0x3800), hi(a), 99]);
    while f.q.wptr % 8 != 2 {
        f.q.push(&mut f.b, &[0]);
    }
    f.q.send(&mut f.b, &[4, lo(a + 0x3000), hi(a), 4, 0, 0]);
    assert_eq!(f.b.ram32(bus + 0x3800), 99);
    assert_eq!(f.b.ram64(f.q.ptrs), f.q.wptr * 4);
    f.b.no_errors();
}

#[test]
fn poll_waits_and_can_be_preempted() {
    let mut f = fixture(&GFX90A, 1);
    let a = f.va;
    f.q.send(
        &mut f.b,
        &[
            8 | (3 << 28) | (1 << 31),
            lo(a),
            hi(a),
            5,
            0xff,
            0xfff << 16,
            5,
            lo(a + 64),
            hi(a),
            1,
        ],
    );
    f.b.run_for(10_000_000);
    assert_eq!(f.b.ram32(f.bus + 64), 0);
    let fence = f.b.unmap(3, 0, 0);
    f.b.run();
    assert_eq!(f.b.ram64(fence.bus), 100);
    // Saved in front of the poll.
    assert_eq!(f.b.ram64(f.q.mqd.bus + 12), 0);
    f.b.set32(f.bus, 5);
    let list = f.list.clone();
    f.b.run_list(&list, false, 1);
    f.b.run();
    assert_eq!(f.b.ram32(f.bus + 64), 1);
    f.b.no_errors();
}

/// ROCr puts such a packet, of register 0, in front of its copies.
#[test]
fn a_poll_that_always_succeeds_reads_nothing() {
    for asic in [&GFX90A, &GFX906] {
        let mut f = fixture(asic, 0);
        // FENCE behind it.
        f.q.send(
            &mut f.b,
            &[8, 0, 0x8000_0000, 0, 0, 0, 5, lo(f.va), hi(f.va), 0x600d],
        );
        assert_eq!(f.b.ram32(f.bus), 0x600d);
        assert_eq!(f.b.gpu.soc.log.stats.user_errors, 0);
        f.b.no_errors();
    }
}

#[test]
fn user_queues_may_not_write_registers() {
    let mut f = fixture(&GFX90A, 0);
    f.q.send(&mut f.b, &[14 | (0xf << 28), 0xc040, 0x1234]);
    assert_eq!(f.b.rd(0x30100), 0);
    let ivs = f.b.irqs();
    assert_eq!(ivs.iter().map(|v| v.source).collect::<Vec<_>>(), [247]);
    assert_eq!(f.b.gpu.soc.log.stats.user_errors, 1);
    f.b.no_errors();
}

#[test]
fn retry_fault_comes_from_the_mmhub_and_the_copy_resumes() {
    let mut f = fixture(&GFX90A, 0);
    f.b.unmap(3, 0, 0);
    f.b.run();
    f.p.retry = true;
    let mut list = f.p.map_process(&f.b, 1);
    list.extend(f.q.map_queues());
    f.b.run_list(&list, false, 1);
    let va = 0x7100_0000_0000u64;
    f.q.send(&mut f.b, &[2, lo(va), hi(va), 0, 0x600d]);
    let ivs = f.b.irqs();
    assert_eq!(ivs.len(), 1);
    assert_eq!((ivs[0].client, ivs[0].source, ivs[0].mm), (0x12, 0, true));
    assert_eq!(
        (u64::from(ivs[0].data[0]) << 12) | (u64::from(ivs[0].data[1] & 0xf) << 44),
        va
    );
    // WRITE and RETRY.
    assert_eq!(ivs[0].data[1] & 0xf0, 0xa0);
    let page = f.b.alloc_ram(4096);
    f.p.set_pte(&mut f.b, va, page | 0x77);
    f.b.flush_vmid(3);
    f.b.release_cam(ivs[0].data[2] & 0x3ff);
    f.b.run_for(5_000_000);
    assert_eq!(f.b.ram32(page), 0x600d);
    f.b.no_errors();
}

#[test]
fn gfx906_limits_the_byte_count_to_22_bits() {
    let mut f = fixture(&GFX906, 1);
    let a = f.va;
    f.b.set64(f.bus, 0x1122_3344_5566_7788);
    f.q.send(
        &mut f.b,
        &[1, 0xffc0_0000 | 7, 0, lo(a), hi(a), lo(a + 64), hi(a)],
    );
    assert_eq!(f.b.ram64(f.bus + 64), 0x1122_3344_5566_7788);
    assert_eq!(f.b.ram64(f.bus + 72), 0);
    f.b.no_errors();
}

#[test]
fn registers_out_of_reach_are_mistakes_of_the_user() {
    for (register, allowed) in [(0x30100u32, true), (0xc914, false), (0x10000, false)] {
        // POLL_REG_WRITE_MEM and POLL_REGMEM of a register that is 0.
        for poll in [false, true] {
            let mut f = fixture(&GFX90A, 0);
            f.b.set32(f.bus, 0x55);
            let words = if poll {
                vec![8 | (3 << 28), register, 0, 0, !0, 0xfff << 16]
            } else {
                vec![8 | (1 << 8), register, lo(f.va), hi(f.va)]
            };
            f.q.send(&mut f.b, &words);
            // FENCE.
            f.q.send(&mut f.b, &[5, lo(f.va + 8), hi(f.va), 1]);
            f.b.no_errors();
            assert_eq!(f.b.gpu.soc.log.stats.user_errors, u64::from(!allowed));
            assert_eq!(f.b.ram32(f.bus + 8), u32::from(allowed));
            let copied = allowed && !poll;
            assert_eq!(f.b.ram32(f.bus), if copied { 0 } else { 0x55 });
        }
    }
}

/// A WRITE of megabytes does not hold up the others, and is taken up again where a preemption stopped it.
#[test]
fn a_long_write_goes_on_where_it_was() {
    let mut f = fixture(&GFX90A, 0);
    let count = 80_000u32;
    let (ib_va, ib) = f.p.page(&mut f.b, 0x60000);
    let (to_va, to) = f.p.page(&mut f.b, 0x60000);
    let mut words = vec![2, lo(to_va), hi(to_va), count - 1];
    words.extend((0..count).map(|i| i * 7 + 1));
    f.b.set_words(ib, &words);
    // INDIRECT ends at a multiple of eight dwords.
    let size = words.len() as u32;
    f.q.push(&mut f.b, &[0, 0, 4, lo(ib_va), hi(ib_va), size, 0, 0]);
    f.q.ring_bell(&mut f.b);
    let written = |f: &Fixture| f.b.ram32(to + 4 * u64::from(count - 1)) != 0;
    while f.b.ram32(to) == 0 {
        let _ = f.b.gpu.step();
    }
    assert!(!written(&f), "one step writes a part");
    f.preempt();
    f.resume();
    assert!(written(&f));
    let got = f.b.words(to, count as usize);
    assert!(got.iter().zip(0..).all(|(w, i)| *w == i * 7 + 1));
    f.b.no_errors();
}

/// `mmhub_client_ids_*` of `gmc_v9_0.c`.
#[test]
fn a_fault_names_the_engine() {
    for (asic, cids) in [
        (&GFX90A, &[256u32, 257, 258, 259, 260][..]),
        (&GFX906, &[15, 46][..]),
    ] {
        for (engine, &cid) in cids.iter().enumerate() {
            let mut f = fixture(asic, engine as u32);
            // FENCE to a page that is not there.
            let va = f.va + 0x10_0000;
            f.q.send(&mut f.b, &[5, lo(va), hi(va), 1]);
            let status = f.b.hubs()[1].0 + 0x2c;
            assert_eq!(
                (f.b.rd(status) >> 9) & 0x1ff,
                cid,
                "{} SDMA{engine}",
                asic.name
            );
            f.b.no_errors();
        }
    }
}
