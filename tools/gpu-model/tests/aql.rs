// SPDX-License-Identifier: GPL-2.0 OR MIT
//! AQL packets, signals and queue errors, byte by byte.

mod common;

use common::direct::hqd;
use common::fixture::{Fixture, FIRST};
use common::queue::{indirect, write_data};
use common::Bench;
use gpu_model::asic::GFX90A;

/// With two pages, for signals and mailboxes and for indirect buffers.
fn fixture() -> Fixture {
    fixture_with(false)
}

fn fixture_with(retry: bool) -> Fixture {
    Fixture::with(&GFX90A, 0x31, 0x2000, |b, p, (va, bus)| {
        p.retry = retry;
        let q = p.queue(b).into_aql(b);
        // amd_queue_t around the pointers: write index at +56, read index at +128.
        let obj = q.ptrs_va + 1024;
        b.set64(q.mqd.bus + 139 * 4, obj + 128);
        b.set64(q.mqd.bus + 141 * 4, q.ptrs_va + 64);
        b.set32(q.ptrs + 1024 + 136, 128);
        b.set64(q.ptrs + 1024 + 192, va + 0x800);
        // The inactive signal: mailbox at 0xa00, event 77.
        signal(b, bus + 0x800, 0, va + 0xa00, 77);
        q
    })
}

fn signal(b: &mut Bench, at: u64, value: u64, mailbox: u64, event: u32) {
    b.set64(at, 1);
    b.set64(at + 8, value);
    b.set64(at + 16, mailbox);
    b.set32(at + 24, event);
}

fn barrier(kind: u32, deps: &[u64], completion: u64) -> [u32; 16] {
    let mut p = [0; 16];
    p[0] = kind | (1 << 8) | (2 << 9) | (2 << 11);
    for (i, d) in deps.iter().enumerate() {
        p[2 + 2 * i] = *d as u32;
        p[3 + 2 * i] = (*d >> 32) as u32;
    }
    p[14] = completion as u32;
    p[15] = (completion >> 32) as u32;
    p
}

fn read_index(f: &Fixture) -> u64 {
    f.b.ram64(f.q.ptrs + 1024 + 128)
}

#[test]
fn barrier_and_waits_for_all_and_completes_its_signal() {
    let mut f = fixture();
    signal(&mut f.b, f.bus, 1, 0, 0);
    signal(&mut f.b, f.bus + 64, 1, 0, 0);
    signal(&mut f.b, f.bus + 128, 1, f.va + 0xf00, 42);
    f.b.set64(f.bus + 0xf00, u64::MAX);
    let p = barrier(3, &[f.va, f.va + 64], f.va + 128);
    f.q.send_aql(&mut f.b, &p);
    f.b.run_for(3_000_000);
    assert_eq!(f.b.ram64(f.bus + 136), 1);
    f.b.set64(f.bus + 8, 0);
    f.b.run_for(3_000_000);
    assert_eq!(f.b.ram64(f.bus + 136), 1, "one dependency is left");
    f.b.set64(f.bus + 72, 0);
    f.b.run_for(3_000_000);
    assert_eq!(f.b.ram64(f.bus + 136), 0);
    assert_eq!(f.b.ram64(f.bus + 0xf00), 42);
    assert!(f.b.ram64(f.bus + 128 + 40) >= f.b.ram64(f.bus + 128 + 32));
    assert_ne!(f.b.ram64(f.bus + 128 + 32), 0);
    assert_eq!(read_index(&f), 1);
    // The slot is invalid again.
    assert_eq!(f.b.ram32(f.q.ring) & 0xff, 1);
    let ivs = f.b.irqs();
    assert_eq!(ivs.len(), 1);
    assert_eq!(
        (ivs[0].client, ivs[0].source, ivs[0].data[0], ivs[0].pasid),
        (0x14, 181, 42, 0x31)
    );
    f.b.no_errors();
}

#[test]
fn barrier_or_needs_one() {
    let mut f = fixture();
    signal(&mut f.b, f.bus, 5, 0, 0);
    signal(&mut f.b, f.bus + 64, 0, 0, 0);
    signal(&mut f.b, f.bus + 128, 7, 0, 0);
    let p = barrier(5, &[f.va, f.va + 64], f.va + 128);
    f.q.send_aql(&mut f.b, &p);
    assert_eq!(f.b.ram64(f.bus + 136), 6);
    // No mailbox, no interrupt.
    assert!(f.b.irqs().is_empty());
    f.b.no_errors();
}

/// A dependency is met at 0 only: a signal that went below is as far from it as one above.
#[test]
fn barriers_wait_for_zero_and_not_for_less() {
    for kind in [3, 5] {
        let mut f = fixture();
        let less = -1i64;
        signal(&mut f.b, f.bus, less as u64, 0, 0);
        signal(&mut f.b, f.bus + 128, 1, 0, 0);
        f.q.send_aql(&mut f.b, &barrier(kind, &[f.va], f.va + 128));
        f.b.run_for(3_000_000);
        assert_eq!((read_index(&f), f.b.ram64(f.bus + 136)), (0, 1), "{kind}");
        f.b.set64(f.bus + 8, 0);
        f.b.run_for(3_000_000);
        assert_eq!((read_index(&f), f.b.ram64(f.bus + 136)), (1, 0), "{kind}");
        f.b.no_errors();
    }
}

#[test]
fn producers_that_wait_for_room_do_not_stop_the_queue() {
    let mut f = fixture();
    f.preempt();
    // The ring is full, and six more producers have taken an index and wait for room.
    let ring = f.q.dwords / 16;
    for i in 0..ring {
        f.b.set_words(f.q.ring + i * 64, &barrier(3, &[], 0));
    }
    f.b.set64(f.q.ptrs + 64, ring + 6);
    f.resume();
    assert_eq!(read_index(&f), ring, "what lies in the ring has run");
    // They find room and ring, not in order; the late one changes nothing.
    for i in 0..6 {
        f.b.set_words(f.q.ring + i * 64, &barrier(3, &[], 0));
    }
    f.b.bell(f.q.doorbell, ring + 5);
    f.b.bell(f.q.doorbell, ring - 1);
    f.b.run_for(5_000_000);
    assert_eq!(read_index(&f), ring + 6);
    f.b.run_for(5_000_000);
    assert_eq!(read_index(&f), ring + 6, "and no packet runs twice");
    f.b.no_errors();
}

/// CP_HQD_PQ_CONTROL.PQ_EMPTY (bit 15), as a watchdog asks for it.
#[test]
fn a_full_ring_is_not_empty() {
    let mut f = fixture();
    let empty = |f: &mut Fixture| {
        f.b.wr(0x8088, FIRST);
        let v = f.b.rd(hqd(145));
        f.b.wr(0x8088, 0);
        assert_eq!(v & !(1 << 15), f.b.ram32(f.q.mqd.bus + 145 * 4));
        (v >> 15) & 1
    };
    assert_eq!(empty(&mut f), 1);
    // The first packet waits for its signal.
    signal(&mut f.b, f.bus, 1, 0, 0);
    f.q.send_aql(&mut f.b, &barrier(3, &[f.va], 0));
    assert_eq!(empty(&mut f), 0);
    let ring = f.q.dwords / 16;
    for _ in 1..ring {
        f.q.send_aql(&mut f.b, &barrier(3, &[], 0));
    }
    f.b.wr(0x8088, FIRST);
    let (wptr, rptr) = (f.b.rd(hqd(182)), f.b.rd(hqd(138)));
    assert_eq!(u64::from(wptr - rptr), ring);
    assert_eq!(empty(&mut f), 0, "all of the ring is work");
    f.b.set64(f.bus + 8, 0);
    f.b.run_for(5_000_000);
    assert_eq!((read_index(&f), empty(&mut f)), (ring, 1));
    f.b.no_errors();
}

#[test]
fn an_index_that_went_back_is_no_work() {
    let mut f = fixture();
    f.preempt();
    let obj = f.q.ptrs + 1024;
    f.b.set64(obj + 128, 3);
    f.b.set64(f.q.ptrs + 64, 2);
    for i in 0..4 {
        f.b.set_words(f.q.ring + i * 64, &barrier(3, &[], 0));
    }
    f.resume();
    f.b.run_for(5_000_000);
    assert_eq!(read_index(&f), 3);
    assert_eq!(f.b.ram32(f.q.ring + 3 * 64) & 0xff, 3);
    f.b.bell(f.q.doorbell, 3);
    f.b.run_for(5_000_000);
    assert_eq!(read_index(&f), 4);
    f.b.no_errors();
}

#[test]
fn an_invalid_header_holds_the_queue() {
    let mut f = fixture();
    signal(&mut f.b, f.bus, 1, 0, 0);
    // The producer reserves index 0 and publishes index 1 first.
    let p = barrier(3, &[], f.va);
    f.b.set_words(f.q.ring + 64, &p);
    f.q.wptr = 2;
    f.b.set64(f.q.ptrs + 64, 2);
    f.b.bell(f.q.doorbell, 1);
    f.b.run_for(5_000_000);
    assert_eq!(f.b.ram64(f.bus + 8), 1);
    let first = barrier(3, &[], 0);
    f.b.set_words(f.q.ring, &first);
    f.b.run_for(5_000_000);
    assert_eq!(f.b.ram64(f.bus + 8), 0);
    assert_eq!(read_index(&f), 2);
    f.b.no_errors();
}

#[test]
fn vendor_packet_runs_a_pm4_buffer() {
    let mut f = fixture();
    signal(&mut f.b, f.bus, 1, 0, 0);
    let words = write_data(f.va + 0x400, 0xabcd_0123);
    f.b.set_words(f.bus + 0x1000, &words);
    let jump = indirect(f.va + 0x1000, 5, false);
    let mut p = barrier(0, &[], f.va);
    p[0] |= 1 << 16;
    p[1..5].copy_from_slice(&jump);
    p[5] = 0xa;
    f.q.send_aql(&mut f.b, &p);
    assert_eq!(f.b.ram32(f.bus + 0x400), 0xabcd_0123);
    assert_eq!(f.b.ram64(f.bus + 8), 0);
    assert_eq!(read_index(&f), 1);
    f.b.no_errors();
}

#[test]
fn errors_stop_the_queue_until_the_runtime_mends_them() {
    let mut f = fixture();
    signal(&mut f.b, f.bus, 1, 0, 0);
    f.b.set64(f.bus + 0xa00, u64::MAX);
    // A dispatch with no dimensions: value 2.
    let mut p = barrier(2, &[], f.va);
    p[1] = 64 | (1 << 16);
    p[2] = 1;
    f.q.send_aql(&mut f.b, &p);
    assert_eq!(f.b.ram64(f.bus + 0x808), 2);
    assert_eq!(f.b.ram64(f.bus + 0xa00), 77);
    let ivs = f.b.irqs();
    assert_eq!(ivs.iter().map(|v| v.source).collect::<Vec<_>>(), [181, 183]);
    assert_eq!(ivs[0].data[0], 77);
    // Doorbell id 0 of the slice, exception 16.
    assert_eq!(ivs[1].data[0], 16 << 10);
    assert_eq!(read_index(&f), 0);

    // Preempted and mapped again it still waits.
    f.b.unmap(3, 0, 0);
    f.b.run();
    let list = f.list.clone();
    f.b.run_list(&list, false, 1);
    f.b.run_for(5_000_000);
    assert_eq!(read_index(&f), 0);
    assert!(f.b.irqs().is_empty());

    // Mended: replaced by a barrier, signal back to 0.
    let ok = barrier(3, &[], f.va);
    f.b.set_words(f.q.ring, &ok);
    f.b.set64(f.bus + 0x808, 0);
    f.b.run_for(5_000_000);
    assert_eq!(read_index(&f), 1);
    assert_eq!(f.b.ram64(f.bus + 8), 0);
    f.b.no_errors();
    assert_eq!(f.b.gpu.soc.log.stats.user_errors, 1);
}

fn dispatch(group: [u32; 3], lds: u32, object: u64) -> [u32; 16] {
    let mut p = barrier(2, &[], 0);
    p[0] |= 3 << 16;
    p[1] = group[0] | (group[1] << 16);
    p[2] = group[2];
    p[3..6].copy_from_slice(&[64, 1, 1]);
    p[7] = lds;
    p[8] = object as u32;
    p[9] = (object >> 32) as u32;
    p
}

/// A code object whose page is on its way is not a bad one.
#[test]
fn a_dispatch_waits_for_the_page_of_its_code() {
    let mut f = fixture_with(true);
    let object = 0x7400_0000_0000u64;
    f.q.send_aql(&mut f.b, &dispatch([64, 1, 1], 0, object));
    let iv = f.b.irqs().pop().unwrap();
    assert_eq!((iv.client, iv.data[1] & (1 << 7)), (0x1b, 1 << 7), "{iv:?}");
    f.b.run_for(5_000_000);
    assert_eq!(f.b.ram64(f.bus + 0x808), 0);
    let page = f.b.alloc_ram(4096);
    f.p.set_pte(&mut f.b, object, page | 0x77);
    let vmid = f.b.first_vmid();
    f.b.flush_vmid(vmid);
    f.b.release_cam(iv.data[2]);
    f.b.run_for(5_000_000);
    // Its instructions are zeros: v_cndmask_b32_e32 v0, s0, v0, up to the end of the page and then nothing.
    assert_eq!(f.b.ram64(f.bus + 0x808), 0, "the code object is none");
    let ivs = f.b.irqs();
    let faults = ivs.iter().filter(|iv| iv.client == 0x1b).count();
    assert!(faults > 0, "the wave runs out of the page: {ivs:?}");
    f.b.no_errors();
}

#[test]
fn each_bad_packet_has_its_code() {
    let cases: [(&str, [u32; 16], u64, u32); 6] = [
        ("null code", dispatch([64, 1, 1], 0, 0), 0x8, 18),
        ("workgroup", dispatch([1024, 2, 1], 0, 0), 0x40, 21),
        ("lds", dispatch([64, 1, 1], 65537, 0), 0x4, 17),
        ("agent dispatch", barrier(4, &[], 0), 0x20, 20),
        ("unknown type", barrier(9, &[], 0), 0x20, 20),
        ("vendor format", barrier(0, &[], 0), 0x100, 23),
    ];
    for (name, packet, value, exception) in cases {
        let mut f = fixture();
        f.q.send_aql(&mut f.b, &packet);
        assert_eq!(f.b.ram64(f.bus + 0x808), value, "{name}");
        let iv = f.b.irqs().pop().unwrap();
        assert_eq!((iv.source, iv.data[0] >> 10), (183, exception), "{name}");
        f.b.no_errors();
    }
}

/// A packet marked INVALID and the read index go together, whenever the queue is taken away.
#[test]
fn the_read_index_is_exact_after_a_preemption_with_work_left() {
    let mut f = fixture();
    // Ten barriers run, the eleventh waits; the queue is preempted in its first turn or any later one.
    let gate = f.va + 0x400;
    f.b.set64(f.bus + 0x408, 1);
    for round in 0..3u64 {
        let done = f.va + 0x40;
        f.b.set64(f.bus + 0x48, 100);
        for _ in 0..10 {
            let i = f.q.wptr % (f.q.dwords / 16);
            f.b.set_words(f.q.ring + i * 64, &barrier(3, &[], done));
            f.q.wptr += 1;
        }
        let i = f.q.wptr % (f.q.dwords / 16);
        f.b.set_words(f.q.ring + i * 64, &barrier(3, &[gate], done));
        f.q.wptr += 1;
        f.b.set64(f.q.ptrs + 64, f.q.wptr);
        // All of it is there when the queue connects, so one turn runs packets and leaves some.
        f.b.unmap(3, 0, 0);
        f.b.run();
        let list = f.list.clone();
        f.b.run_list(&list, false, 1);
        f.b.run();
        assert_eq!(f.b.ram64(f.bus + 0x48), 90);
        let fence = f.b.unmap(3, 0, 0);
        f.b.run();
        assert_eq!(f.b.ram64(fence.bus), 100);
        assert_eq!(read_index(&f), round * 11 + 10);
        f.b.set64(f.bus + 0x408, 0);
        f.b.run_list(&list, false, 1);
        f.b.run_for(3_000_000);
        assert_eq!(f.b.ram64(f.bus + 0x48), 89);
        assert_eq!(read_index(&f), round * 11 + 11);
        f.b.set64(f.bus + 0x408, 1);
    }
    f.b.no_errors();
}

/// hsa_amd_barrier_value_packet_t: (value & mask) compared with a number, signed.
#[test]
fn barrier_value_waits_for_its_condition() {
    // Condition, mask, reference, a value that does not do, one that does.
    let cases: [(u32, u64, i64, i64, i64); 6] = [
        (0, u64::MAX, -7, 7, -7),
        (0, 0xff, 0x34, 0x1235, 0x1234),
        (1, u64::MAX, 5, 5, 6),
        (2, u64::MAX, 1, 1, -1),
        (2, i64::MAX as u64, 1, 1, 0),
        (3, u64::MAX, 9, 8, 9),
    ];
    for (condition, mask, reference, no, yes) in cases {
        let mut f = fixture();
        f.b.set64(f.bus + 8, no as u64);
        signal(&mut f.b, f.bus + 0x40, 1, f.va + 0x100, 9);
        let mut p = [0u32; 16];
        p[0] = (1 << 8) | (2 << 16);
        for (i, v) in [
            (2, f.va),
            (4, reference as u64),
            (6, mask),
            (14, f.va + 0x40),
        ] {
            p[i] = v as u32;
            p[i + 1] = (v >> 32) as u32;
        }
        p[8] = condition;
        f.q.send_aql(&mut f.b, &p);
        f.b.run_for(3_000_000);
        assert_eq!(
            (read_index(&f), f.b.ram64(f.bus + 0x48)),
            (0, 1),
            "{condition}"
        );
        f.b.set64(f.bus + 8, yes as u64);
        f.b.run_for(3_000_000);
        assert_eq!(
            (read_index(&f), f.b.ram64(f.bus + 0x48)),
            (1, 0),
            "{condition}"
        );
        // Mailbox, then interrupt.
        assert_eq!(f.b.ram64(f.bus + 0x100), 9);
        assert_eq!(f.b.irqs()[0].data[0], 9);
        f.b.no_errors();
    }
    // Without a signal there is nothing to wait for; condition 4 does not exist.
    let mut f = fixture();
    let mut p = [0u32; 16];
    p[0] = 2 << 16;
    f.q.send_aql(&mut f.b, &p);
    assert_eq!(read_index(&f), 1);
    p[8] = 4;
    f.q.send_aql(&mut f.b, &p);
    assert_eq!(read_index(&f), 1);
    assert_eq!(f.b.ram64(f.bus + 0x808), 0x100);
    f.b.no_errors();
}
