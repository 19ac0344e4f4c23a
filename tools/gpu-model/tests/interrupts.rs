// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The interrupt rings: format, order, re-arming, overflow.

mod common;

use common::fixture::Fixture;
use common::queue::{release_mem, write_data, UserQueue};
use common::Bench;
use gpu_model::asic::{GFX906, GFX90A};
use gpu_model::inject::{Injection, Kind};
use std::sync::atomic::Ordering;

fn fixture() -> (Bench, UserQueue, u64) {
    let f = Fixture::new(&GFX90A, 0x91, 4096);
    (f.b, f.q, f.va)
}

#[test]
fn messages_stop_until_the_read_pointer_moves() {
    let (mut b, mut q, va) = fixture();
    let sent = |b: &Bench| b.msis.load(Ordering::Relaxed);
    let start = sent(&b);
    for i in 1..=5 {
        q.send(&mut b, &release_mem(va, 0, i));
    }
    assert_eq!(
        sent(&b) - start,
        1,
        "RPTR_REARM: one message until the driver answers"
    );
    let seen = b.irqs();
    assert_eq!(
        seen.iter().map(|v| v.data[0]).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5]
    );
    assert!(seen.windows(2).all(|w| w[0].timestamp <= w[1].timestamp));
    assert_eq!(sent(&b) - start, 1);
    q.send(&mut b, &release_mem(va, 0, 6));
    assert_eq!(sent(&b) - start, 2);
    // A partial acknowledgement is answered by another message at once.
    q.send(&mut b, &release_mem(va, 0, 7));
    assert_eq!(sent(&b) - start, 2);
    b.bell32(0x178 * 8, 6 * 32);
    assert_eq!(sent(&b) - start, 3);
    b.no_errors();
}

/// The vector is in the ring and its write pointer in memory; only the message is missing.
#[test]
fn a_lost_message_leaves_its_vector_in_the_ring() {
    let (mut b, mut q, va) = fixture();
    let sent = |b: &Bench| b.msis.load(Ordering::Relaxed);
    let start = sent(&b);
    assert!(b.gpu.soc.inject.add(Injection {
        kind: Kind::DropMsi,
        doorbell: None,
        count: Some(1),
        ms: None,
    }));
    q.send(&mut b, &release_mem(va, 0, 21));
    q.send(&mut b, &release_mem(va, 0, 22));
    // The ring waits for its read pointer, so no further message repairs the loss.
    assert_eq!(sent(&b) - start, 0);
    assert_eq!(b.gpu.soc.log.stats.msi_dropped, 1);
    let seen: Vec<u32> = b.irqs().iter().map(|v| v.data[0]).collect();
    assert_eq!(seen, [21, 22]);
    q.send(&mut b, &release_mem(va, 0, 23));
    assert_eq!(sent(&b) - start, 1, "the fault is spent");
    b.no_errors();
}

#[test]
fn timestamps_do_not_go_back_with_the_clock() {
    let (mut b, mut q, va) = fixture();
    b.advance(1_000_000);
    let now = b.now.load(Ordering::Relaxed);
    q.send(&mut b, &release_mem(va, 0, 1));
    b.now.store(0, Ordering::Relaxed);
    q.send(&mut b, &release_mem(va, 0, 2));
    let seen = b.irqs();
    assert!(seen[1].timestamp >= seen[0].timestamp);
    assert_eq!(seen[0].timestamp, now / 10);
}

/// More interrupts than the 8192 entries of the ring take, and no answer.
fn overflow(b: &mut Bench, q: &mut UserQueue, va: u64) {
    for _ in 0..(8192 + 10) / 50 + 1 {
        for i in 0..50 {
            q.push(b, &release_mem(va, 0, i));
        }
        q.ring_bell(b);
        b.run();
    }
}

#[test]
fn overflow_is_flagged_and_cleared() {
    let (mut b, mut q, va) = fixture();
    overflow(&mut b, &mut q, va);
    let wptr = b.rd(0x4490);
    assert_eq!(wptr & 1, 1);
    assert!(b.gpu.soc.log.stats.ih_overflows > 0);
    // The driver restarts behind the overwritten entry and catches up in two steps.
    let start = (wptr & 0x3_fffc) + 32;
    b.bell32(0x178 * 8, (start + 4096) & 0x3_ffff);
    b.bell32(0x178 * 8, wptr & 0x3_fffc);
    // OVERFLOW_CLEAR pulse.
    let c = b.rd(0x4480);
    b.wr(0x4480, c | (1 << 31));
    b.wr(0x4480, c);
    assert_eq!(b.rd(0x4490) & 1, 0);
    b.no_errors();
}

/// OVERFLOW_CLEAR works by its step from 0 to 1; a driver that leaves it set hears of no further overflow.
#[test]
fn overflow_is_cleared_by_a_step_and_masked_by_a_level() {
    let (mut b, mut q, va) = fixture();
    let flagged = |b: &mut Bench| b.rd(0x4490) & 1;
    let catch_up = |b: &mut Bench| {
        let wptr = b.rd(0x4490) & 0x3_fffc;
        b.bell32(0x178 * 8, (wptr + 32 + 4096) & 0x3_ffff);
        b.bell32(0x178 * 8, wptr);
    };
    overflow(&mut b, &mut q, va);
    assert_eq!(flagged(&mut b), 1);
    catch_up(&mut b);
    let c = b.rd(0x4480);
    b.wr(0x4480, c | (1 << 31));
    assert_eq!(flagged(&mut b), 0);
    let counted = b.gpu.soc.log.stats.ih_overflows;
    overflow(&mut b, &mut q, va);
    assert!(b.gpu.soc.log.stats.ih_overflows > counted);
    assert_eq!(flagged(&mut b), 0, "masked while the bit is set");
    b.wr(0x4480, c);
    overflow(&mut b, &mut q, va);
    assert_eq!(flagged(&mut b), 1);
    // A write that leaves the bit as it is does nothing.
    b.wr(0x4480, c);
    assert_eq!(flagged(&mut b), 1);
    b.wr(0x4480, c | (1 << 31));
    assert_eq!(flagged(&mut b), 0);
    b.wr(0x4480, c);
    b.gpu.soc.log.clear_errors();
}

#[test]
fn the_pipe_gates_end_of_pipe_interrupts() {
    let (mut b, mut q, va) = fixture();
    b.wr(0x8088, 1 << 2);
    b.wr(0xc2d0, 1 << 24);
    b.wr(0x8088, 0);
    q.send(&mut b, &release_mem(va, 0, 1));
    assert!(b.irqs().is_empty());
    b.no_errors();
}

#[test]
fn ring_1_announces_itself_on_ring_0() {
    let (mut b, mut q, _) = fixture();
    // No CAM: retry faults go to ring 1.
    b.wr(0x4280 + 0xea * 4, 0);
    let ring = b.alloc_ram(4096);
    b.wr(0x44b4, (ring >> 8) as u32);
    b.wr(0x44b8, (ring >> 40) as u32);
    b.wr(0x44b0, (10 << 1) | (1 << 16) | (1 << 28) | 1);
    // XNACK on for VMID 3.
    b.wr(0x8088, 3 << 4);
    b.wr(0x8c34, 0x18);
    b.wr(0x8088, 0);
    q.send(&mut b, &release_mem(0x7700_0000_0000, 0, 1));
    let seen = b.irqs();
    assert_eq!((seen[0].client, seen[0].source, seen[0].ring_id), (0, 0, 1));
    assert_eq!(b.rd(0x44c0), 32);
    let w = b.words(ring, 8);
    assert_eq!(
        (w[0] & 0xff, (w[0] >> 8) & 0xff, w[5] & 0x80),
        (0x1b, 0, 0x80)
    );
    b.no_errors();
}

/// With MC_SPACE 4 a ring is reached by translation.  What cannot be written is reported, and posts no further vector
/// that could not be written either.
#[test]
fn a_ring_without_translation_is_reported_and_survived() {
    let (mut b, mut q, va) = fixture();
    let (cntl, base, hi) = (b.rd(0x4480), b.rd(0x4484), b.rd(0x4488));
    let status = b.hubs()[1].0 + 0x2c;
    // In the GART, where nothing is mapped; the write-back address lies outside of it.
    b.wr(0x4484, 0x1ff0_0000 >> 8);
    b.wr(0x4488, 0);
    b.wr(0x4480, (cntl & !(7 << 28)) | (4 << 28));
    assert_eq!(b.rd(status), 0);
    q.send(&mut b, &release_mem(va, 7, 1));
    b.expect_errors(&["ih-nowhere", "ih-nowhere"]);
    // The fault is latched, as a write of VMID 0 without the retry that a user would get.
    assert_eq!(b.rd(status) & ((1 << 18) | (0xf << 20) | 1), (1 << 18) | 1);
    // Back at its bus address the ring works.
    b.wr(0x4484, base);
    b.wr(0x4488, hi);
    b.wr(0x4480, cntl);
    q.send(&mut b, &release_mem(va, 7, 2));
    b.no_errors();
    assert_eq!(b.irqs().last().map(|iv| iv.data[0]), Some(2));
}

/// After a mode-1 reset a driver may still have a fault in hand that it took from the ring before.
#[test]
fn a_cam_entry_that_a_reset_took_may_be_released_once() {
    for asic in [&GFX90A, &GFX906] {
        let mut f = Fixture::with(asic, 0x51, 4096, |b, p, _| {
            p.retry = true;
            p.queue(b)
        });
        let va = f.va + 0x10_0000;
        f.b.irqs();
        f.q.send(&mut f.b, &write_data(va, 1));
        let cam = f.b.irqs()[0].data[2] & 0x3ff;
        f.b.wr(0x58200, 0x0007_0000);
        f.b.run_for(100_000_000);
        f.b.bring_up();
        f.b.release_cam(cam);
        f.b.no_errors();
        f.b.release_cam(cam);
        f.b.expect_errors(&["cam-release"]);
    }
}
