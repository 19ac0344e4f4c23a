// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The bus and the address spaces under several threads: no use of what is unmapped or invalidated.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;

use common::pages::{frame, va, Pages, R, V};
use gpu_model::mem::{Bus, Phys};
use gpu_model::server::make_vram;

const BUS_BASE: u64 = 0x1_0000_0000;

fn bus_with_ram() -> Arc<Bus> {
    let bus = Bus::new(make_vram(2 << 20).unwrap(), 2 << 20).unwrap();
    let ram = make_vram(1 << 20).unwrap();
    bus.dma_map(BUS_BASE, 1 << 20, Some((ram, 0)), true)
        .unwrap();
    Arc::new(bus)
}

#[test]
fn a_dma_unmap_waits_for_the_pins_of_the_maps_that_have_the_range() {
    let bus = bus_with_ram();
    bus.write(Phys::Bus(BUS_BASE), &[7; 4]).unwrap();
    // The pinned map is not the last one before the unmap.
    let pin = bus.pin();
    let more = make_vram(4096).unwrap();
    bus.dma_map(0x9000_0000, 4096, Some((more, 0)), true)
        .unwrap();
    let (retired, done) = bus.dma_retire(BUS_BASE, 1 << 20);
    assert_eq!(done.unwrap(), 1);
    assert!(!retired.is_over(), "the range is pinned");
    let (frame, left) = pin.find(Phys::Bus(BUS_BASE), false).unwrap();
    assert_eq!(
        (pin.load::<u32>(frame).unwrap(), left),
        (0x0707_0707, 1 << 20)
    );
    assert!(!bus.exists(Phys::Bus(BUS_BASE), false), "new accesses miss");
    let left: Vec<_> = bus.dma_ranges().iter().map(|r| (r.start, r.end)).collect();
    assert_eq!(left, [(0x9000_0000, 0x9000_1000)]);
    let waiter = thread::spawn(move || retired.wait());
    drop(pin);
    waiter.join().unwrap();
    bus.dma_unmap_all();
    assert!(bus.dma_ranges().is_empty());
}

#[test]
fn bus_mastering_holds_back_new_pins_only() {
    let bus = bus_with_ram();
    let before = bus.pin();
    bus.set_bus_master(false);
    let at = Phys::Bus(BUS_BASE);
    assert!(before.exists(at, true) && !before.blocked(at));
    let after = bus.pin();
    assert!(!after.exists(at, true) && after.blocked(at));
    assert!(after.exists(Phys::Vram(0), true) && !after.blocked(Phys::Vram(0)));
    assert_ne!(before.generation(), after.generation());
    bus.set_bus_master(true);
    assert!(bus.exists(at, true));
}

/// Each mapping's memory says which one it is: a reader that finds the range finds the memory of one that is or was
/// there when it took its pin, never that of one whose unmap has been waited for.
#[test]
fn readers_see_no_memory_whose_unmap_is_over() {
    const ROUNDS: u32 = 400;
    let bus = bus_with_ram();
    bus.dma_unmap_all();
    // The last mapping whose unmap has been waited for.
    let gone = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let seen = AtomicU64::new(0);
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    let past = gone.load(Ordering::Acquire);
                    let pin = bus.pin();
                    if let Ok((frame, _)) = pin.find(Phys::Bus(BUS_BASE), false) {
                        let number: u32 = pin.load(frame).unwrap();
                        assert!(u64::from(number) > past, "{number} after {past} was gone");
                        // As long as it is pinned it is not over.
                        thread::yield_now();
                        assert!(gone.load(Ordering::Acquire) < u64::from(number));
                        seen.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let mut number = 0u32;
        while number < ROUNDS || seen.load(Ordering::Relaxed) < 100 {
            number += 1;
            let ram = make_vram(4096).unwrap();
            ram.write_at(&number.to_le_bytes(), 0).unwrap();
            bus.dma_map(BUS_BASE, 4096, Some((ram, 0)), true).unwrap();
            thread::yield_now();
            assert_eq!(bus.dma_unmap(BUS_BASE, 4096).unwrap(), 1);
            gone.store(number.into(), Ordering::Release);
        }
        stop.store(true, Ordering::Release);
    });
}

/// An old translation that is walked before an invalidation must not be kept after it.
#[test]
fn a_walk_that_an_invalidation_overtakes_is_not_kept() {
    for late in [false, true] {
        let pages = Pages::new(false);
        pages.fill(0, 1);
        pages.fill(1, 2);
        pages.map(5, frame(0) | V | R);
        let space = pages.space();
        let before = space.epoch();
        let old = space.walk(&pages.bus.pin(), before, va(5)).unwrap();
        pages.map(5, frame(1) | V | R);
        pages.flush();
        // The wrong order is what the rest of this test would not survive.
        let epoch = if late { space.epoch() } else { before };
        space.insert(epoch, va(5), old);
        let now = space.translate(&pages.bus.pin(), va(5)).unwrap();
        let expected = if late { frame(0) } else { frame(1) };
        assert_eq!(now.page.phys, Some(Phys::Vram(expected)), "late: {late}");
        assert_eq!(now.hit, late);
    }
}

/// The same for directory entries: a table that was unlinked is not found again.
#[test]
fn a_directory_entry_that_an_invalidation_overtakes_is_not_kept() {
    let pages = Pages::new(false);
    pages.map(5, frame(0) | V | R);
    let space = pages.space();
    let before = space.epoch();
    let pin = pages.bus.pin();
    pages.flush();
    // This walk began before the flush, and reads all its directories after it.
    space.walk(&pin, before, va(5)).unwrap();
    // The root's entry is taken away; nothing may remember it.
    let root = 0x10_0000 + ((va(5) >> 39) & 0x1ff) * 8;
    pages.bus.write(Phys::Vram(root), &[0; 8]).unwrap();
    assert!(space.walk(&pin, space.epoch(), va(5)).is_err());
}
