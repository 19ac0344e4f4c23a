// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Invalidation engines take their time: what a driver does that does not wait, or does not wait there.

mod common;

use common::fixture::{inject, Fixture};
use common::queue::write_data;
use common::Bench;
use gpu_model::asic::{GFX906, GFX90A};
use gpu_model::inject::Kind;

/// Moves the fixture's page to other memory; returns (old, new) bus addresses.  The translation is cached.
fn moved(f: &mut Fixture) -> (u64, u64) {
    let va = f.va;
    f.q.send(&mut f.b, &write_data(va, 1));
    assert_eq!(f.b.ram32(f.bus), 1);
    let new = f.b.alloc_ram(4096);
    f.p.set_pte(&mut f.b, va, new | 0x77);
    (f.bus, new)
}

const REQ: u64 = 0x18c;
const ACK: u64 = 0x1d4;
const ALL: u32 = 0x7c_0000;

#[test]
fn a_request_is_acknowledged_late_and_only_by_its_engine() {
    for asic in [&GFX90A, &GFX906] {
        let mut f = Fixture::new(asic, 0x41, 4096);
        let (old, new) = moved(&mut f);
        let vmid = f.b.first_vmid();
        let gfx = f.b.hubs()[0].0;
        f.b.wr(gfx + REQ + 4 * 17, (1 << vmid) | (2 << 16) | ALL);
        // A driver that does not wait still meets the old page.
        assert_eq!(f.b.rd(gfx + ACK + 4 * 17) & (1 << vmid), 0);
        let va = f.va;
        f.q.send(&mut f.b, &write_data(va, 2));
        assert_eq!((f.b.ram32(old), f.b.ram32(new)), (2, 0), "{}", asic.name);
        f.b.await_ack(gfx, 17, 1 << vmid);
        // Another engine has acknowledged nothing.
        assert_eq!(f.b.rd(gfx + ACK + 4 * 16), 0);
        f.q.send(&mut f.b, &write_data(va, 3));
        assert_eq!((f.b.ram32(old), f.b.ram32(new)), (2, 3));
        f.b.no_errors();
    }
}

#[test]
fn a_heavyweight_request_takes_longer_and_a_reserved_one_is_none() {
    let mut f = Fixture::new(&GFX90A, 0x41, 4096);
    let gfx = f.b.hubs()[0].0;
    let mut took = Vec::new();
    for kind in [0, 1, 2] {
        f.b.wr(gfx + REQ, (1 << 3) | (kind << 16) | ALL);
        let mut us = 0;
        while f.b.rd(gfx + ACK) & (1 << 3) == 0 {
            f.b.advance(1000);
            us += 1;
            assert!(us < 10_000);
        }
        took.push(us);
    }
    assert!(
        took[0] > 0 && took[0] == took[1] && took[2] > took[1],
        "{took:?}"
    );
    f.b.no_errors();
    f.b.wr(gfx + REQ, (1 << 3) | (3 << 16) | ALL);
    f.b.expect_errors(&["invalidate-type"]);
}

#[test]
fn a_request_before_the_last_one_is_done() {
    let mut f = Fixture::new(&GFX90A, 0x41, 4096);
    let gfx = f.b.hubs()[0].0;
    f.b.wr(gfx + REQ, (1 << 3) | ALL);
    // Another engine is free.
    f.b.wr(gfx + REQ + 4, (1 << 3) | ALL);
    f.b.no_errors();
    f.b.wr(gfx + REQ, (1 << 4) | ALL);
    f.b.expect_errors(&["invalidate-busy"]);
    f.b.await_ack(gfx, 0, 1 << 4);
    f.b.wr(gfx + REQ, (1 << 3) | ALL);
    f.b.no_errors();
}

#[test]
fn a_range_must_cover_everything() {
    let mut f = Fixture::new(&GFX90A, 0x41, 4096);
    let gfx = f.b.hubs()[0].0;
    // ADDR_RANGE of engine 5.
    f.b.wr(gfx + 0x21c + 8 * 5, 0x0000_ffff);
    f.b.wr(gfx + REQ + 4 * 5, (1 << 3) | ALL);
    f.b.expect_errors(&["invalidate-range"]);
    // The rule's absence excuses requests of contexts that are off, no others.
    f.b.gpu.soc.rules.switch_off("flush-range").unwrap();
    f.b.await_ack(gfx, 5, 1 << 3);
    let vmid = f.b.first_vmid();
    f.b.wr(gfx + REQ + 4 * 5, (1 << vmid) | ALL);
    f.b.expect_errors(&["invalidate-range"]);
}

#[test]
fn without_the_rule_a_request_of_a_context_that_is_off_needs_no_range() {
    for rule in [true, false] {
        let mut b = Bench::new(&GFX90A);
        if !rule {
            b.gpu.soc.rules.switch_off("flush-range").unwrap();
        }
        let gfx = b.hubs()[0].0;
        b.wr(gfx + REQ + 4 * 17, 1 | ALL);
        b.await_ack(gfx, 17, 1);
        if rule {
            b.expect_errors(&["invalidate-range"]);
        } else {
            b.no_errors();
        }
    }
}

#[test]
fn an_engine_that_never_answers() {
    for asic in [&GFX90A, &GFX906] {
        let mut f = Fixture::new(asic, 0x41, 4096);
        let (old, new) = moved(&mut f);
        let vmid = f.b.first_vmid();
        inject(&mut f.b, Kind::DeafTlb, None, None);
        let gfx = f.b.hubs()[0].0;
        let va = f.va;
        for _ in 0..2 {
            // Asked again after its time-out, as a driver may.
            f.b.wr(gfx + REQ + 4 * 17, (1 << vmid) | (2 << 16) | ALL);
            f.b.run_for(1_000_000_000);
            assert_eq!(f.b.rd(gfx + ACK + 4 * 17), 0);
        }
        f.q.send(&mut f.b, &write_data(va, 2));
        assert_eq!((f.b.ram32(old), f.b.ram32(new)), (2, 0));
        f.b.gpu.soc.inject.clear();
        f.b.flush_vmid(vmid);
        f.q.send(&mut f.b, &write_data(va, 3));
        assert_eq!((f.b.ram32(old), f.b.ram32(new)), (2, 3));
        f.b.no_errors();
    }
}

#[test]
fn a_kiq_that_never_answers_an_invalidation() {
    let mut f = Fixture::new(&GFX90A, 0x41, 4096);
    let at = f.b.alloc_sys(4096);
    inject(&mut f.b, Kind::DeafTlb, None, None);
    f.b.submit_kiq(&[0xc000_9800, 1 | (1 << 4) | (0x41 << 5) | (2 << 29)]);
    f.b.submit_kiq(&write_data(at.gart, 7));
    f.b.run_for(100_000_000);
    assert_eq!(f.b.ram32(at.bus), 0);
    f.b.gpu.soc.inject.clear();
    f.b.run_for(10_000_000);
    assert_eq!(f.b.ram32(at.bus), 7);
    f.b.no_errors();
}

/// What executes waves has its own translations: the driver is to free nothing before they are gone.
#[test]
fn a_request_is_acknowledged_when_the_threads_that_execute_have_seen_it() {
    let mut f = Fixture::new(&GFX90A, 0x41, 4096);
    let (old, new) = moved(&mut f);
    let vmid = f.b.first_vmid();
    let gfx = f.b.hubs()[0].0;
    let mut executor = f.b.gpu.soc.spaces.register();
    executor.pass();
    f.b.wr(gfx + REQ, (1 << vmid) | ALL);
    f.b.run_for(10_000_000);
    assert_eq!(f.b.rd(gfx + ACK), 0, "it may use the old page");
    // The engine has begun all the same: the packet engines use the new one.
    let va = f.va;
    f.q.send(&mut f.b, &write_data(va, 2));
    assert_eq!((f.b.ram32(old), f.b.ram32(new)), (1, 2));
    executor.pass();
    f.b.await_ack(gfx, 0, 1 << vmid);
    // A pause and an end are seen by nobody.
    executor.pause();
    f.b.wr(gfx + REQ, (1 << vmid) | ALL);
    f.b.await_ack(gfx, 0, 1 << vmid);
    executor.pass();
    drop(executor);
    f.b.wr(gfx + REQ, (1 << vmid) | ALL);
    f.b.await_ack(gfx, 0, 1 << vmid);
    f.b.no_errors();
}
