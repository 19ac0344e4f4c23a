// SPDX-License-Identifier: GPL-2.0 OR MIT
//! SDMA queues that the driver loads itself, by registers.

mod common;

use common::direct::{inject, one};
use gpu_model::asic::{GFX906, GFX90A};
use gpu_model::inject::Kind;

fn lo(a: u64) -> u32 {
    a as u32
}
fn hi(a: u64) -> u32 {
    (a >> 32) as u32
}
fn fence(va: u64, v: u32) -> Vec<u32> {
    vec![5, lo(va), hi(va), v]
}
/// POLL_REGMEM: memory equals, for ever.
fn poll(va: u64, v: u32) -> Vec<u32> {
    vec![
        8 | (3 << 28) | (1 << 31),
        lo(va),
        hi(va),
        v,
        !0,
        (0xfff << 16) | 4,
    ]
}

#[test]
fn sdma_queues_load_run_and_leave() {
    for asic in [&GFX90A, &GFX906] {
        let (mut b, mut p, _, va, bus) = one(asic);
        for engine in 0..b.sdma_bases.len() as u32 {
            let mut q = p.sdma_queue(&mut b, engine, 0);
            let c = (engine, 5);
            q.push(&mut b, &fence(va, 1));
            b.sdma_load(c, &q, 9);
            b.run();
            assert_eq!(b.ram32(bus), 1);
            q.send(&mut b, &fence(va, 2));
            assert_eq!(b.ram32(bus), 2);
            assert_eq!(b.ram64(q.ptrs), 32);
            // Stopped between packets, with one left.
            q.send(&mut b, &poll(va + 8, 1));
            q.send(&mut b, &fence(va, 3));
            assert!(b.sdma_destroy(c, &q, 0));
            assert_eq!(b.words(q.mqd.bus + 12, 2), [32, 0]);
            // RB_ENABLE is set again, but there is no doorbell: nothing runs.
            assert_eq!(b.rlc_reg(c, 0) & 1, 1);
            b.set32(bus + 8, 1);
            b.run_for(5_000_000);
            assert_eq!(b.ram32(bus), 2);
            b.sdma_load((engine, 0), &q, 9);
            b.run_for(5_000_000);
            assert_eq!(b.ram32(bus), 3);
            assert!(b.sdma_destroy((engine, 0), &q, 0));
            b.set64(bus, 0);
            b.set64(bus + 8, 0);
            b.no_errors();
        }
    }
}

#[test]
fn an_sdma_queue_finishes_its_buffer_before_it_is_idle() {
    let (mut b, mut p, _, va, bus) = one(&GFX90A);
    let mut q = p.sdma_queue(&mut b, 2, 0);
    let c = (2, 1);
    let mut ib = poll(va + 8, 1);
    ib.extend(fence(va, 1));
    b.set_words(bus + 0x1000, &ib);
    q.push(&mut b, &[0, 0]);
    q.push(
        &mut b,
        &[4, lo(va + 0x1000), hi(va + 0x1000), ib.len() as u32, 0, 0],
    );
    q.push(&mut b, &fence(va + 4, 2));
    b.sdma_load(c, &q, 9);
    b.run_for(3_000_000);
    // Inside the buffer it cannot leave, and may not be enabled again.
    assert!(!b.sdma_destroy(c, &q, 2_000_000));
    let rb = b.rlc_reg(c, 0);
    assert_eq!((rb & 1, b.rlc_reg(c, 0x11) & 5), (0, 1));
    b.rlc_write(c, 0, rb | 1);
    b.expect_errors(&["sdma-load"]);
    b.set32(bus + 8, 1);
    b.run_for(3_000_000);
    assert_eq!(b.rlc_reg(c, 0x11) & 5, 4);
    assert_eq!(
        b.words(bus, 2),
        [1, 0],
        "the packet behind the buffer waits"
    );
    assert!(b.sdma_destroy(c, &q, 0));
    b.sdma_load(c, &q, 9);
    b.run();
    assert_eq!(b.words(bus, 2), [1, 2]);
    b.no_errors();
}

/// F32_CNTL.RESET, which gfx90a has and gfx906 has not, ends what one engine does, and nothing of another.
#[test]
fn an_engine_is_reset_alone() {
    for asic in [&GFX90A, &GFX906] {
        let (mut b, mut p, _, va, bus) = one(asic);
        let mut queues = Vec::new();
        for engine in 0..2u32 {
            let mut q = p.sdma_queue(&mut b, engine, 0);
            let at = va + 0x1000 * u64::from(engine + 1);
            let mut ib = poll(va + 8, 1);
            ib.extend(fence(va + 4 * u64::from(engine), 1));
            b.set_words(bus + (at - va), &ib);
            q.push(&mut b, &[0, 0]);
            q.push(&mut b, &[4, lo(at), hi(at), ib.len() as u32, 0, 0]);
            b.sdma_load((engine, 1), &q, 9);
            queues.push(q);
        }
        b.run_for(3_000_000);
        // Both are in their buffers and do not come to rest.
        for (engine, q) in (0..2).zip(&queues) {
            assert!(!b.sdma_destroy((engine, 1), q, 2_000_000));
        }
        let cntl = b.sdma_bases[0] + 4 * 0x2a;
        // Halting alone ends nothing.
        b.wr(cntl, 1);
        b.run_for(3_000_000);
        assert_eq!(b.rlc_reg((0, 1), 0x11) & 5, 1);
        b.wr(cntl, 1 | (1 << 8));
        assert_eq!(b.rd(cntl) >> 8, u32::from(asic.sdma_layout.f32_reset));
        b.wr(cntl, 1);
        b.wr(cntl, 0);
        b.run_for(3_000_000);
        let selected = [0, 1].map(|engine| b.rlc_reg((engine, 1), 0x11) & 5);
        let first = if asic.sdma_layout.f32_reset { 4 } else { 1 };
        assert_eq!(selected, [first, 1]);
        // What was ended does not go on when it could.
        b.set32(bus + 8, 1);
        b.run_for(3_000_000);
        assert_eq!(b.words(bus, 2), [u32::from(first == 1), 1]);
        b.no_errors();
    }
}

#[test]
fn sdma_faults_and_wrong_orders() {
    let (mut b, mut p, _, va, bus) = one(&GFX90A);
    let mut q = p.sdma_queue(&mut b, 1, 0);
    let c = (1, 2);
    inject(&mut b, Kind::SlowPreempt, q.doorbell, Some(20));
    b.sdma_load(c, &q, 9);
    assert!(!b.sdma_destroy(c, &q, 10_000_000));
    b.run_for(11_000_000);
    assert!(b.sdma_destroy(c, &q, 0));
    b.gpu.soc.inject.clear();
    inject(&mut b, Kind::IgnorePreempt, q.doorbell, None);
    b.sdma_load(c, &q, 9);
    assert!(!b.sdma_destroy(c, &q, 1_000_000_000));
    b.gpu.soc.inject.clear();
    assert!(b.sdma_destroy(c, &q, 0));
    b.no_errors();
    // MINOR_PTR_UPDATE is forgotten.
    b.sdma_load(c, &q, 9);
    b.rlc_write(c, 0, b.words(q.mqd.bus, 1)[0] | (9 << 24));
    b.run_for(1_000_000);
    b.rlc_write(c, 0x35, 1);
    b.rlc_write(c, 0, b.words(q.mqd.bus, 1)[0] | (9 << 24) | 1);
    b.expect_errors(&["sdma-load"]);
    // Base and size of a live ring.
    b.rlc_write(c, 1, 0x55);
    b.rlc_write(c, 3, 0x40);
    let rb = b.rlc_reg(c, 0);
    b.rlc_write(c, 0, rb ^ 2);
    b.expect_errors(&["sdma-write"; 3]);
    b.rlc_write(c, 0x35, 0);
    q.send(&mut b, &fence(va, 4));
    assert_eq!(b.ram32(bus), 4, "none of it took effect");
    assert!(b.sdma_destroy(c, &q, 0));
    // A doorbell of another engine, a halted engine, VMID 0, no PASID.
    let other = p.sdma_queue(&mut b, 0, 0);
    b.sdma_load(c, &other, 9);
    b.expect_errors(&["doorbell-routing"]);
    assert!(b.sdma_destroy(c, &other, 0));
    let base = b.sdma_bases[1];
    b.wr(base + 0x2a * 4, 1);
    b.sdma_load(c, &q, 9);
    b.expect_errors(&["sdma-halted"]);
    b.wr(base + 0x2a * 4, 0);
    assert!(b.sdma_destroy(c, &q, 0));
    b.sdma_load(c, &q, 0);
    b.expect_errors(&["sdma-load"]);
    assert!(b.sdma_destroy(c, &q, 0));
    b.map_pasid(9, 0);
    b.sdma_load(c, &q, 9);
    b.expect_errors(&["sdma-vmid"; 2]);
}

/// A driver that cannot read the user's write pointer lets the engine do it.
#[test]
fn sdma_queues_poll_their_write_pointer() {
    let (mut b, mut p, _, va, bus) = one(&GFX90A);
    let mut q = p.sdma_queue(&mut b, 0, 0);
    let c = (0, 3);
    q.push(&mut b, &fence(va, 1));
    let at = q.ptrs_va + 64;
    b.rlc_write(c, 0x32, hi(at));
    b.rlc_write(c, 0x33, lo(at));
    // F32_POLL_ENABLE.
    b.rlc_write(c, 7, 0x0040_3004);
    let m = b.words(q.mqd.bus, 128);
    for (r, v) in [
        (0x2b, m[22]),
        (0x12, 1 << 28),
        (1, m[1]),
        (2, m[2]),
        (9, m[9]),
        (8, m[8]),
        (0, m[0] | (9 << 24) | 1),
    ] {
        b.rlc_write(c, r, v);
    }
    b.run();
    assert_eq!(b.ram32(bus), 1);
    // No doorbell: found after a while.
    q.push(&mut b, &fence(va, 2));
    b.run_for(3_000_000);
    assert_eq!(b.ram32(bus), 2);
    // A doorbell that is ahead of memory counts.
    q.send(&mut b, &fence(va, 3));
    assert_eq!(b.ram32(bus), 3);
    assert_eq!(b.ram64(q.ptrs), 48);
    assert!(b.sdma_destroy(c, &q, 0));
    b.no_errors();
}
