// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The bus and the address spaces under several threads: no use of what is unmapped or invalidated.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;

use common::pages::{frame, va, Pages, CLIENT, R, V, VMID, W};
use gpu_model::mem::{Bus, Map, Phys};
use gpu_model::server::make_vram;
use gpu_model::vm::executor::Executor;
use gpu_model::vm::space::Space;
use gpu_model::vm::tlb::Levels;
use gpu_model::vm::window::{PageCache, Place};
use gpu_model::vm::{Access, HubId};
use proptest::prelude::*;

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

/// What a page reads that the driver has taken back.
const POISON: u32 = 0xdead_dead;

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

#[test]
fn an_invalidation_is_acknowledged_at_the_next_quiescent_point() {
    let pages = Pages::new(false);
    pages.fill(0, 1);
    pages.map(0, frame(0) | V | R);
    let mut cache = PageCache::default();
    let mut executor = Executor::new(&pages.bus, &pages.spaces);
    let invalidate = || pages.spaces.invalidate(HubId::Gfx, 1 << VMID, Levels::ALL);
    assert!(pages.spaces.acknowledged(invalidate()), "it is paused");
    let mut window = executor.window(CLIENT, true, &mut cache);
    window.translate(va(0), Access::Read).unwrap();
    let first = invalidate();
    assert!(!pages.spaces.acknowledged(first), "a translation is in use");
    let second = invalidate();
    executor.quiesce();
    assert!(pages.spaces.acknowledged(first) && pages.spaces.acknowledged(second));
    let third = invalidate();
    assert!(!pages.spaces.acknowledged(third));
    executor.pause();
    assert!(pages.spaces.acknowledged(third));
    executor.quiesce();
    let last = invalidate();
    assert!(!pages.spaces.acknowledged(last));
    drop(executor);
    assert!(pages.spaces.acknowledged(last), "it is gone");
}

/// A cache that an invalidation takes an entry from: the wave's own goes at once, whatever the levels.
#[test]
fn levels_mean_the_same_to_a_wave_as_to_the_packet_engines() {
    let l1 = Levels {
        l1: true,
        l2: false,
        pdes: 0,
    };
    let l2 = Levels {
        l1: false,
        l2: true,
        pdes: 7,
    };
    // L2 and later L1 is as good as both at once, L1 and later L2 is not: the access between refills.
    for (order, stale) in [([l1, l2], true), ([l2, l1], false)] {
        let pages = Pages::new(false);
        let (mut cache, mut executor) = (
            PageCache::default(),
            Executor::new(&pages.bus, &pages.spaces),
        );
        let mut look = || {
            let (place, _) = executor
                .window(CLIENT, true, &mut cache)
                .translate(va(3), Access::Read)
                .unwrap();
            place
        };
        pages.map(3, frame(0) | V | R);
        let old = look();
        pages.map(3, frame(1) | V | R);
        for levels in order {
            assert_eq!(look(), old, "nothing has been dropped from both");
            pages.spaces.invalidate(HubId::Gfx, 1 << VMID, levels);
        }
        assert_eq!(look() == old, stale);
    }
}

/// What a driver flushes that has changed the entry of a page.
type Flush = fn(&Pages, u64);

fn everything(pages: &Pages, _page: u64) {
    pages.flush();
}

fn the_page(pages: &Pages, page: u64) {
    pages.flush_page(page);
}

fn the_next_page(pages: &Pages, page: u64) {
    pages.flush_page(page + 1);
}

/// How a reader gets at a page.
type Reader = fn(&Space, &Map, u64, &AtomicBool) -> Option<Phys>;

fn in_order(space: &Space, map: &Map, va: u64, stop: &AtomicBool) -> Option<Phys> {
    by_walk(space, map, va, stop, false)
}

fn epoch_after_the_walk(space: &Space, map: &Map, va: u64, stop: &AtomicBool) -> Option<Phys> {
    by_walk(space, map, va, stop, true)
}

/// What [`Space::translate`] does, with an invalidation between walk and insertion.
fn by_walk(space: &Space, map: &Map, va: u64, stop: &AtomicBool, late: bool) -> Option<Phys> {
    if let Some(page) = space.lookup(va) {
        return page.phys;
    }
    let before = space.epoch();
    let page = space.walk(map, before, va).ok()?;
    // Not for ever: the driver may be waiting for this reader's quiescent point.
    for _ in 0..20 {
        if space.epoch() != before || stop.load(Ordering::Acquire) {
            break;
        }
        thread::yield_now();
    }
    let epoch = if late { space.epoch() } else { before };
    space.insert(epoch, va, page);
    page.phys
}

#[derive(Debug, Clone, Copy)]
enum Op {
    /// The page gets another frame.
    Move(u64),
    /// The page goes away, and comes back with another frame.
    Remap(u64),
    /// An invalidation of one level that means nothing by itself.
    Noise(bool),
}

const PAGES: u64 = 6;

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..PAGES).prop_map(Op::Move),
        2 => (0..PAGES).prop_map(Op::Remap),
        1 => any::<bool>().prop_map(Op::Noise),
    ]
}

/// A driver that moves pages, as `ops` say, and poisons what it has taken back once that is acknowledged; one reader
/// through windows and one through `reader`; `flush` follows each change of an entry.  Returns how many reads found what is not the page's, after all of `ops` at
/// least once and either a finding or `rounds` rounds of them.
fn stale_reads(ops: &[Op], flush: Flush, reader: Reader, rounds: u32) -> u64 {
    let pages = Pages::new(true);
    let stale = AtomicU64::new(0);
    let reads = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    // Of each page the frame; all other frames are poisoned.
    let mut frames: Vec<u64> = (0..PAGES).collect();
    for n in 0..2 * PAGES {
        pages.fill(n, if n < PAGES { n as u32 } else { POISON });
    }
    for page in 0..PAGES {
        pages.map(page, frame(page) | V | R | W);
    }
    pages.flush();
    let judge = |page: u64, found: u32| {
        // Poison, or what another page has put there since.
        if u64::from(found) != page {
            stale.fetch_add(1, Ordering::Relaxed);
        }
        reads.fetch_add(1, Ordering::Relaxed);
    };
    thread::scope(|s| {
        s.spawn(|| {
            let mut cache = PageCache::default();
            let mut executor = Executor::new(&pages.bus, &pages.spaces);
            while !stop.load(Ordering::Acquire) {
                let mut window = executor.window(CLIENT, true, &mut cache);
                for page in (0..PAGES).cycle().take(50) {
                    if let Ok((Place::Memory(at), _)) = window.translate(va(page), Access::Read) {
                        judge(page, window.map().load(at).unwrap());
                    }
                }
                executor.quiesce();
            }
        });
        s.spawn(|| {
            let mut me = pages.spaces.register();
            while !stop.load(Ordering::Acquire) {
                let space = pages.space();
                for page in 0..PAGES {
                    me.pass();
                    let map = pages.bus.pin();
                    if let Some(at) = reader(space, &map, va(page), &stop) {
                        judge(page, map.load(map.find(at, false).unwrap().0).unwrap());
                    }
                }
                me.pause();
            }
        });
        for round in 0.. {
            for &op in ops {
                let (page, away) = match op {
                    Op::Move(page) => (page, false),
                    Op::Remap(page) => (page, true),
                    Op::Noise(first) => {
                        let levels = Levels {
                            l1: first,
                            l2: !first,
                            pdes: 0,
                        };
                        pages.spaces.invalidate(HubId::Gfx, 1 << VMID, levels);
                        continue;
                    }
                };
                let old = frames[page as usize];
                let new = (0..2 * PAGES).find(|n| !frames.contains(n)).unwrap();
                pages.fill(new, page as u32);
                if away {
                    pages.map(page, 0);
                    flush(&pages, page);
                    pages.fill(old, POISON);
                }
                pages.map(page, frame(new) | V | R | W);
                flush(&pages, page);
                pages.fill(old, POISON);
                frames[page as usize] = new;
            }
            let found = stale.load(Ordering::Relaxed) != 0;
            let busy = reads.load(Ordering::Relaxed) > 100;
            if found || (busy && round + 1 >= rounds) {
                break;
            }
        }
        stop.store(true, Ordering::Release);
    });
    stale.into_inner()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(8) })]
    #[test]
    fn no_reader_sees_an_old_translation_after_the_acknowledgement(
        ops in proptest::collection::vec(op(), 1..40)
    ) {
        prop_assert_eq!(stale_reads(&ops, everything, in_order, 4), 0);
        prop_assert_eq!(stale_reads(&ops, the_page, in_order, 4), 0);
    }
}

/// The property test finds the mistakes that it is there for.
#[test]
fn an_epoch_that_is_read_after_the_walk_is_found() {
    let ops = [Op::Move(0), Op::Remap(1), Op::Move(2)];
    // Of a page that is dropped alone a walk is hardly ever under way; `tests/epochs` has that order, too.
    let found = stale_reads(&ops, everything, epoch_after_the_walk, 10_000);
    assert_ne!(found, 0);
}

#[test]
fn a_driver_that_flushes_the_next_page_is_found() {
    let ops = [Op::Move(0), Op::Remap(1), Op::Move(2)];
    assert_ne!(stale_reads(&ops, the_next_page, in_order, 10_000), 0);
}
