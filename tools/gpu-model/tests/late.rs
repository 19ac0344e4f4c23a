// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What hardware does later, or in another order, than a driver might expect.

mod common;

use common::direct::{hqd, one, slot};
use common::fixture::Fixture;
use common::queue::{release_mem, write_data};
use gpu_model::asic::{GFX906, GFX90A};
use gpu_model::device::Step;

#[test]
fn active_is_polled_after_a_dequeue_request() {
    for asic in [&GFX90A, &GFX906] {
        let (mut b, _p, q, _, _) = one(asic);
        let s = slot(0, 2);
        b.hqd_load(s, &q, 9);
        b.run();
        assert!(b.hqd_active(s));
        b.wr(0x8088, s.select());
        b.wr(hqd(152), 1);
        assert_eq!(b.rd(hqd(130)) & 1, 1, "not yet");
        let mut us = 0;
        while b.rd(hqd(130)) & 1 != 0 {
            b.advance(10_000);
            us += 10;
            assert!(us < 10_000);
        }
        b.wr(0x8088, 0);
        b.no_errors();
    }
}

#[test]
fn a_slot_that_is_loaded_before_its_queue_has_left() {
    let (mut b, _p, q, _, _) = one(&GFX90A);
    let s = slot(0, 2);
    b.hqd_load(s, &q, 9);
    b.run();
    b.wr(0x8088, s.select());
    b.wr(hqd(152), 1);
    // The next queue's ring, without looking at ACTIVE.
    b.wr(hqd(136), 0x1234);
    b.wr(0x8088, 0);
    b.expect_errors(&["hqd-write"]);
}

#[test]
fn active_is_polled_after_a_queue_reset_and_after_a_pipe_reset() {
    for pipe in [false, true] {
        let (mut b, _p, q, _, _) = one(&GFX90A);
        let s = slot(0, 2);
        b.hqd_load(s, &q, 9);
        b.run();
        b.wr(0x8088, s.select());
        if pipe {
            b.wr(0x8234, 1 << 16);
            b.wr(0x8234, 0);
        } else {
            b.wr(0xc76c, 1);
        }
        assert_eq!(b.rd(hqd(130)) & 1, 1, "not yet");
        b.wr(0x8088, 0);
        b.run_for(1_000_000);
        assert!(!b.hqd_active(s));
        b.no_errors();
    }
}

/// CONTEXT_STATUS: SELECTED and IDLE.
#[test]
fn sdma_idle_is_polled() {
    const STATUS: u64 = 0x11;
    for asic in [&GFX90A, &GFX906] {
        let (mut b, mut p, _, va, bus) = one(asic);
        for engine in 0..b.sdma_bases.len() as u32 {
            let mut q = p.sdma_queue(&mut b, engine, 0);
            let c = (engine, 1);
            b.sdma_load(c, &q, 9);
            let value = 1 + engine;
            q.send(&mut b, &[5, va as u32, (va >> 32) as u32, value]);
            assert_eq!(b.ram32(bus), value);
            assert_eq!(b.rlc_reg(c, STATUS) & 5, 4, "nothing is left to do");
            let rb = b.rlc_reg(c, 0);
            b.rlc_write(c, 0, rb & !1);
            assert_eq!(b.rlc_reg(c, STATUS) & 5, 1, "not yet");
            b.run();
            assert_eq!(b.rlc_reg(c, STATUS) & 5, 1, "time has to pass");
            let mut us = 0;
            while b.rlc_reg(c, STATUS) & 4 == 0 {
                b.advance(10_000);
                b.run();
                us += 10;
                assert!(us < 10_000, "{}", asic.name);
            }
            assert!(us >= 50, "{us} us");
        }
        b.no_errors();
    }
}

/// SDMA COPY linear.
fn copy(src: u64, dst: u64, bytes: u32) -> [u32; 7] {
    [
        1,
        bytes - 1,
        0,
        src as u32,
        (src >> 32) as u32,
        dst as u32,
        (dst >> 32) as u32,
    ]
}

/// The second half of the page, to which the first one is copied.
fn destination(f: &Fixture, bytes: u64) -> Vec<u8> {
    let mut now = vec![0; bytes as usize];
    f.b.ram_read(f.bus + bytes, &mut now);
    now
}

/// Somebody else's data where a copy goes; returns it.
fn reuse(f: &Fixture, bytes: u64, byte: u8) -> Vec<u8> {
    let data = vec![byte; bytes as usize];
    f.b.ram_write(f.bus + bytes, &data);
    data
}

/// Of somebody else's data the end is lost, for the copy has gone on; its beginning was copied before.
fn assert_clobbered(f: &Fixture, bytes: u64, data: &[u8]) {
    let now = destination(f, bytes);
    let kept = now.iter().zip(data).take_while(|(a, b)| a == b).count();
    assert!(0 < kept && kept < data.len(), "{kept:#x} bytes are left");
    assert!(now[kept..].iter().all(|b| *b == 0x5a), "the copy's source");
}

#[test]
fn a_halted_sdma_engine_ends_the_copy_that_it_has_begun() {
    const BYTES: u64 = 1 << 20;
    for asic in [&GFX90A, &GFX906] {
        let mut f = Fixture::with(asic, 0x48, 2 * BYTES, |b, p, _| p.sdma_queue(b, 0, 0));
        let va = f.va;
        f.b.ram_write(f.bus, &vec![0x5a; BYTES as usize]);
        f.q.push(&mut f.b, &copy(va, va + BYTES, BYTES as u32));
        f.q.push(&mut f.b, &[5, va as u32, (va >> 32) as u32, 1]);
        f.q.ring_bell(&mut f.b);
        assert_eq!(f.b.gpu.step(), Step::Busy, "a part of the copy");
        let halt = f.b.sdma_bases[0] + 0x2a * 4;
        f.b.wr(halt, 1);
        let status = f.b.sdma_bases[0] + 0x25 * 4;
        assert_eq!(f.b.rd(status) & 1, 0, "STATUS_REG.IDLE");
        // A driver that does not look at it gives the destination back now.
        let reused = reuse(&f, BYTES, 0x11);
        f.b.run();
        assert_clobbered(&f, BYTES, &reused);
        assert_eq!(f.b.rd(status) & 1, 1, "{}", asic.name);
        let reused = reuse(&f, BYTES, 0x22);
        f.b.run_for(5_000_000);
        assert!(destination(&f, BYTES) == reused, "{}", asic.name);
        assert_eq!(
            f.b.ram32(f.bus),
            0x5a5a_5a5a,
            "the next packet does not run"
        );
        f.b.wr(halt, 0);
        f.b.run();
        assert_eq!(f.b.ram32(f.bus), 1);
        assert!(destination(&f, BYTES) == reused);
        f.b.no_errors();
    }
}

#[test]
fn a_halted_micro_engine_ends_the_dma_that_it_has_begun() {
    const BYTES: u64 = 1 << 20;
    let mut f = Fixture::new(&GFX90A, 0x48, 2 * BYTES);
    let (va, to) = (f.va, f.va + BYTES);
    f.b.ram_write(f.bus, &vec![0x5a; BYTES as usize]);
    let mut packets = vec![
        0xc005_5000,
        0,
        va as u32,
        (va >> 32) as u32,
        to as u32,
        (to >> 32) as u32,
        BYTES as u32,
    ];
    packets.extend(write_data(va, 1));
    f.q.push(&mut f.b, &packets);
    f.q.ring_bell(&mut f.b);
    assert_eq!(f.b.gpu.step(), Step::Busy);
    f.b.wr(0x8234, 1 << 30);
    // A driver that takes it for stopped gives the destination back now.
    let reused = reuse(&f, BYTES, 0x11);
    f.b.run();
    assert_clobbered(&f, BYTES, &reused);
    let reused = reuse(&f, BYTES, 0x22);
    f.b.run_for(5_000_000);
    assert!(destination(&f, BYTES) == reused);
    assert_eq!(
        f.b.ram32(f.bus),
        0x5a5a_5a5a,
        "the next packet does not run"
    );
    f.b.wr(0x8234, 0);
    f.b.run();
    assert_eq!(f.b.ram32(f.bus), 1);
    assert!(destination(&f, BYTES) == reused);
    f.b.no_errors();
}

#[test]
fn a_queue_in_a_retry_fault_leaves_late() {
    for (sdma, early) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut f = Fixture::with(&GFX90A, 0x48, 4096, |b, p, _| {
            p.retry = true;
            if sdma {
                p.sdma_queue(b, 0, 0)
            } else {
                p.queue(b)
            }
        });
        let va = f.va + 0x10_0000;
        let packet = if sdma {
            vec![5, va as u32, (va >> 32) as u32, 1]
        } else {
            write_data(va, 1)
        };
        f.q.send(&mut f.b, &packet);
        let page = f.b.alloc_ram(4096);
        let vmid = f.b.first_vmid();
        let fence = f.b.unmap(3, 0, 0);
        f.b.run();
        assert_eq!(f.b.ram64(fence.bus), 10, "the driver has to wait");
        if early {
            // Who does not gives the address to something else: what has been waiting writes there.
            f.p.set_pte(&mut f.b, va, page | 0x77);
            f.b.flush_vmid(vmid);
            f.b.run_for(5_000_000);
            assert_eq!((f.b.ram32(page), f.b.ram64(fence.bus)), (1, 100));
            f.b.no_errors();
            continue;
        }
        f.b.run_for(5_000_000);
        assert_eq!(f.b.ram64(fence.bus), 100);
        f.p.set_pte(&mut f.b, va, page | 0x77);
        f.b.flush_vmid(vmid);
        f.b.run_for(5_000_000);
        assert_eq!(f.b.ram32(page), 0, "it has left");
        f.b.no_errors();
        // One that faults no more leaves at once.
        let list = f.list.clone();
        f.b.run_list(&list, false, 1);
        f.b.run_for(5_000_000);
        assert_eq!(f.b.ram32(page), 1);
        f.preempt();
        f.b.no_errors();
    }
}

#[test]
fn an_interrupt_without_write_confirmation_comes_before_the_data() {
    for asic in [&GFX90A, &GFX906] {
        let mut f = Fixture::new(asic, 0x48, 4096);
        let va = f.va;
        f.b.irqs();
        // int_sel 2: the data is there.
        f.q.send(&mut f.b, &release_mem(va, 1, 9));
        assert_eq!((f.b.irqs().len(), f.b.ram64(f.bus)), (1, 1));
        let mut packet = release_mem(va, 2, 9);
        packet[2] = (1 << 24) | (2 << 29);
        f.q.send(&mut f.b, &packet);
        assert_eq!(
            (f.b.irqs().len(), f.b.ram64(f.bus)),
            (1, 1),
            "{}",
            asic.name
        );
        f.b.run_for(1_000_000);
        assert_eq!((f.b.irqs().len(), f.b.ram64(f.bus)), (0, 2));
        f.b.no_errors();
    }
}
