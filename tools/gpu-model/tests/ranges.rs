// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Invalidations of ranges, read by their size bit: what a range touches is dropped, all else stays as stale as it is.

mod common;

use common::fixture::Fixture;
use common::proc::Proc;
use common::queue::{write_data, UserQueue};
use common::Bench;
use gpu_model::asic::{Asic, GFX906, GFX90A};
use gpu_model::trace::{Event, Record};
use gpu_model::vm::range::{Range, Reading};

/// Address of page 0: a multiple of 1 GiB.
const BASE: u64 = 0x7100_0000_0000;
const PAGE: u64 = 4096;
/// Registers of engine 17: request, and what it is about.
const REQ: u64 = 0x18c + 4 * 17;
const RANGE: u64 = 0x21c + 8 * 17;
const ALL: u32 = 0x7c_0000;
/// Of a request: translations of both levels, without directory entries; the first level; the second.
const TRANSLATIONS: u32 = 0x44_0000;
const L1: u32 = 0x40_0000;
const L2: u32 = 0x04_0000;
const GFX: usize = 0;
const MM: usize = 1;
const NONE: [u64; 0] = [];

/// ADDR_RANGE of a page.
fn page(va: u64) -> [u32; 2] {
    [(va >> 11) as u32 & !1, (va >> 43) as u32]
}

/// ADDR_RANGE of 2, 4, 8, ... pages, from a multiple of this on.
fn pages(va: u64, count: u64) -> [u32; 2] {
    assert!(count.is_power_of_two() && count > 1 && (va / PAGE) % count == 0);
    let [low, high] = page(va + (count / 2 - 1) * PAGE);
    [low | 1, high]
}

/// A process with a queue of each hub.
struct Driver {
    b: Bench,
    p: Proc,
    queues: [UserQueue; 2],
    stored: u32,
}

/// Where a page was, and is: bus addresses.
#[derive(Clone, Copy)]
struct Moved {
    va: u64,
    old: u64,
    new: u64,
}

impl Driver {
    fn new(asic: &'static Asic) -> Self {
        let mut b = Bench::scheduled(asic);
        b.gpu.soc.set_ranges(Reading::SizeBit);
        let mut p = Proc::new(&mut b, 0x41, 0);
        let queues = [p.queue(&mut b), p.sdma_queue(&mut b, 0, 0)];
        let mut list = p.map_process(&b, 2);
        for q in &queues {
            list.extend(q.map_queues());
        }
        b.run_list(&list, false, 1);
        b.run();
        b.no_errors();
        Self {
            b,
            p,
            queues,
            stored: 0,
        }
    }

    /// Stores a word that no other store has, by a queue of this hub.
    fn store(&mut self, hub: usize, va: u64) -> u32 {
        self.stored += 1;
        let packet = match hub {
            GFX => write_data(va, self.stored),
            _ => vec![5, va as u32, (va >> 32) as u32, self.stored],
        };
        self.queues[hub].send(&mut self.b, &packet);
        self.stored
    }

    /// Maps pages, has both hubs cache them, and moves them to other memory.
    fn moved(&mut self, numbers: impl IntoIterator<Item = u64>) -> Vec<Moved> {
        let mut all = Vec::new();
        for n in numbers {
            let (old, new) = (self.b.alloc_ram(PAGE), self.b.alloc_ram(PAGE));
            let va = BASE + n * PAGE;
            self.p.set_pte(&mut self.b, va, old | 0x77);
            for hub in [GFX, MM] {
                let word = self.store(hub, va);
                assert_eq!(self.b.ram32(old), word);
            }
            all.push(Moved { va, old, new });
        }
        for page in &all {
            self.p.set_pte(&mut self.b, page.va, page.new | 0x77);
        }
        all
    }

    /// Whether a store by a queue of this hub goes to the new place of a page; else it goes to the old one.
    fn is_fresh(&mut self, hub: usize, page: Moved) -> bool {
        let word = self.store(hub, page.va);
        let found = [page.old, page.new].map(|at| self.b.ram32(at) == word);
        assert_ne!(found[0], found[1], "one of both");
        found[1]
    }

    /// Numbers of the pages whose stores go to their new places.
    fn fresh(&mut self, hub: usize, all: &[Moved]) -> Vec<u64> {
        let fresh = all.iter().filter(|page| self.is_fresh(hub, **page));
        fresh.map(|page| (page.va - BASE) / PAGE).collect()
    }

    /// Has engine 17 of a hub begin what these bits and this range say.
    fn request(&mut self, hub: usize, bits: u32, [low, high]: [u32; 2]) {
        let (vm, vmid) = (self.b.hubs()[hub].0, self.b.first_vmid());
        self.b.wr(vm + RANGE, low);
        self.b.wr(vm + RANGE + 4, high);
        self.b.wr(vm + REQ, (1 << vmid) | bits);
    }

    fn wait(&mut self, hub: usize) {
        let (vm, vmid) = (self.b.hubs()[hub].0, self.b.first_vmid());
        self.b.await_ack(vm, 17, 1 << vmid);
    }

    fn flush(&mut self, hub: usize, range: [u32; 2]) {
        self.request(hub, ALL, range);
        self.wait(hub);
    }
}

#[test]
fn what_the_registers_say() {
    let number = 0x7_1000_0000u64;
    for (low, high, first, last) in [
        // S clear: the only page.
        (0, 0, 0, 0),
        (0x2000_0000, 0xe, number, number),
        (0xffff_fffe, 0x1f, 0xf_ffff_ffff, 0xf_ffff_ffff),
        // The bits of HI32 that are none.
        (0x2000_0006, 0xffff_ffee, number + 3, number + 3),
        // S set: two pages, four, 512.
        (0x2000_0001, 0xe, number, number + 1),
        (0x2000_0003, 0xe, number, number + 3),
        (0x2000_0009, 0xe, number + 4, number + 5),
        (0x2000_01ff, 0xe, number, number + 511),
        // Half of everything, and everything in two ways.
        (0xffff_ffff, 0x07, 0, 0x7_ffff_ffff),
        (0xffff_ffff, 0x17, 0x8_0000_0000, 0xf_ffff_ffff),
        (0xffff_ffff, 0x0f, 0, 0xf_ffff_ffff),
        (0xffff_ffff, 0x1f, 0, 0xf_ffff_ffff),
    ] {
        let range = Range::by_size_bit([low, high]);
        assert_eq!(range, Range { first, last }, "{high:#x}:{low:#x}");
    }
    assert!(Range::by_size_bit([u32::MAX, 0x1f]).is_all());
    // Of an address of the upper half 48 bits count.
    let range = Range::by_size_bit(page(0x8000_0000_5000));
    assert!(range.touches(0xffff_8000_0000_5fff, 12));
    assert!(!range.touches(0xffff_8000_0000_6000, 12));
    assert!(!range.touches(0x5000, 12));
}

#[test]
fn a_flush_of_a_page_is_one_of_that_page() {
    for asic in [&GFX90A, &GFX906] {
        let mut d = Driver::new(asic);
        let all = d.moved(0..8);
        d.flush(GFX, page(all[3].va));
        let said = "pages 0x710000003 to 0x710000003";
        let is_said =
            |r: &Record| matches!(&r.event, Some(Event::Note { text, .. }) if text.contains(said));
        assert!(d.b.gpu.soc.log.records().any(is_said), "it is traced");
        assert_eq!(d.fresh(GFX, &all), [3], "{}", asic.name);
        d.flush(GFX, page(all[6].va));
        assert_eq!(d.fresh(GFX, &all), [3, 6]);
        // The other hub has been asked for nothing.
        assert_eq!(d.fresh(MM, &all), NONE);
        d.flush(MM, page(all[0].va));
        assert_eq!(d.fresh(MM, &all), [0]);
        assert_eq!(d.fresh(GFX, &all), [3, 6]);
        d.b.no_errors();
    }
}

/// A driver that is off by one: no error tells, the data does.
#[test]
fn a_flush_of_the_neighbour_leaves_the_old_translation_in_use() {
    for asic in [&GFX90A, &GFX906] {
        for hub in [GFX, MM] {
            let mut d = Driver::new(asic);
            let moved = d.moved([5])[0];
            for wrong in [page(moved.va + PAGE), page(moved.va - PAGE)] {
                d.flush(hub, wrong);
                assert!(!d.is_fresh(hub, moved), "{} {hub}", asic.name);
            }
            d.flush(hub, page(moved.va));
            assert!(d.is_fresh(hub, moved));
            d.b.no_errors();
        }
    }
}

#[test]
fn a_range_of_pages_ends_where_it_ends() {
    for count in [2, 4, 8] {
        let mut d = Driver::new(&GFX90A);
        let all = d.moved(0..24);
        d.flush(GFX, pages(BASE + 8 * PAGE, count));
        let within: Vec<u64> = (8..8 + count).collect();
        assert_eq!(d.fresh(GFX, &all), within, "{count} pages");
        d.b.no_errors();
    }
}

#[test]
fn all_ones_are_everything() {
    // In the second pair the top bit of the page number is the lowest zero.
    for range in [[0xffff_ffff, 0x1f], [0xffff_ffff, 0x0f]] {
        let mut d = Driver::new(&GFX906);
        // Two pages far from each other.
        let all = d.moved([0, 0x10_0000]);
        // Without S it is the last page of all.
        d.flush(GFX, [0xffff_fffe, 0x1f]);
        assert_eq!(d.fresh(GFX, &all), NONE);
        d.flush(GFX, range);
        assert_eq!(d.fresh(GFX, &all), [0, 0x10_0000]);
        d.b.no_errors();
    }
}

/// What an engine comes up with is page 0.
#[test]
fn a_driver_that_sets_no_range_flushes_next_to_nothing() {
    let mut d = Driver::new(&GFX90A);
    let all = d.moved([0, 1]);
    d.flush(GFX, [0, 0]);
    assert_eq!(d.fresh(GFX, &all), NONE);
    d.b.no_errors();
}

#[test]
fn a_range_is_flushed_late_and_as_it_was_when_it_was_asked_for() {
    let mut d = Driver::new(&GFX90A);
    let all = d.moved(0..4);
    let vm = d.b.hubs()[GFX].0;
    // Another engine has another range at the same time.
    let (low, high) = (page(all[2].va)[0], page(all[2].va)[1]);
    d.b.wr(vm + RANGE - 8, low);
    d.b.wr(vm + RANGE - 4, high);
    d.request(GFX, ALL, page(all[1].va));
    d.b.wr(vm + REQ - 4, (1 << d.b.first_vmid()) | (2 << 16) | ALL);
    d.b.wr(vm + RANGE, page(all[3].va)[0]);
    assert_eq!(d.fresh(GFX, &all), NONE, "nobody has waited");
    d.wait(GFX);
    assert_eq!(d.fresh(GFX, &all), [1], "the heavyweight one takes longer");
    d.b.await_ack(vm, 16, 1 << d.b.first_vmid());
    assert_eq!(d.fresh(GFX, &all), [1, 2]);
    d.b.no_errors();
}

#[test]
fn levels_count_in_a_range_as_in_everything() {
    let mut d = Driver::new(&GFX90A);
    let all = d.moved(0..3);
    for (bits, n, fresh) in [
        (L2, 0, &NONE[..]),
        // The first level of another page.
        (L1, 1, &[]),
        (L1, 0, &[0]),
        // The other way round the access between refills the first level.
        (L2, 1, &[0]),
        (TRANSLATIONS, 2, &[0, 2]),
        (L1, 1, &[0, 1, 2]),
    ] {
        d.request(GFX, bits, page(all[n].va));
        d.wait(GFX);
        assert_eq!(d.fresh(GFX, &all), fresh, "{bits:#x} of page {n}");
    }
    d.b.no_errors();
}

#[test]
fn a_large_page_goes_as_a_whole() {
    for asic in [&GFX90A, &GFX906] {
        let mut d = Driver::new(asic);
        let va = BASE + (2 << 20);
        let slot = d.p.pde_at(&mut d.b, va);
        let (old, new) = (32u64 << 20, 34u64 << 20);
        let map = |d: &mut Driver, at: u64| {
            // With translate_further the entry is a leaf as long as F is clear, else P makes it one.
            let p = if d.b.tf { 0 } else { 1 << 54 };
            d.b.vram_write(slot, &(at | 0x71 | p).to_le_bytes());
            d.b.hdp_flush();
        };
        let at = |d: &mut Driver| {
            let word = d.store(GFX, va + 0x12_3450);
            let found = [old, new].map(|page| {
                let mut bytes = [0; 4];
                d.b.vram_read(page + 0x12_3450, &mut bytes);
                u32::from_le_bytes(bytes) == word
            });
            assert_ne!(found[0], found[1]);
            if found[1] {
                new
            } else {
                old
            }
        };
        map(&mut d, old);
        assert_eq!(at(&mut d), old);
        map(&mut d, new);
        for beside in [
            page(va - PAGE),
            page(va + (2 << 20)),
            pages(va - (2 << 20), 512),
        ] {
            d.flush(GFX, beside);
            assert_eq!(at(&mut d), old, "{} {beside:x?}", asic.name);
        }
        // Its last part, which has never been accessed.
        d.flush(GFX, page(va + (2 << 20) - PAGE));
        assert_eq!(at(&mut d), new, "{}", asic.name);
        // A range that is larger.
        map(&mut d, old);
        assert_eq!(at(&mut d), new);
        d.flush(GFX, pages(BASE, 2048));
        assert_eq!(at(&mut d), old);
        d.b.no_errors();
    }
}

/// A page table is taken out of its directory and freed: as long as no flush covers it, it is walked, with whatever it
/// has now.
#[test]
fn a_freed_table_is_walked_until_a_flush_covers_it() {
    for asic in [&GFX90A, &GFX906] {
        let mut d = Driver::new(asic);
        let reach = 2 << 20;
        // An access caches the way there; the pages behind it have never been accessed.
        d.moved([0]);
        let (freed, used) = (d.b.alloc_ram(PAGE), d.b.alloc_ram(PAGE));
        let old = d.p.pte_at(&mut d.b, BASE);
        let table = d.b.alloc_vram(PAGE);
        for n in 1..8u64 {
            d.b.vram_write(old + n * 8, &(freed | 0x77).to_le_bytes());
            d.b.vram_write(table + n * 8, &(used | 0x77).to_le_bytes());
        }
        let slot = d.p.pde_at(&mut d.b, BASE);
        let mut entry = [0; 8];
        d.b.vram_read(slot, &mut entry);
        let flags = u64::from_le_bytes(entry) & !0xffff_ffff_ffc0;
        d.b.vram_write(slot, &(table | flags).to_le_bytes());
        d.b.hdp_flush();
        let mut number = 0;
        let mut walks_the_old_one = |d: &mut Driver| {
            number += 1;
            let word = d.store(GFX, BASE + number * PAGE);
            let found = [freed, used].map(|at| d.b.ram32(at) == word);
            assert_ne!(found[0], found[1]);
            found[0]
        };
        assert!(walks_the_old_one(&mut d));
        d.flush(GFX, page(BASE + reach));
        assert!(walks_the_old_one(&mut d), "beside it, {}", asic.name);
        d.request(GFX, TRANSLATIONS, pages(BASE, 512));
        d.wait(GFX);
        assert!(walks_the_old_one(&mut d), "translations alone");
        // PDE1 and PDE2 lead to it, but are not it.
        d.request(GFX, 6 << 19, page(BASE));
        d.wait(GFX);
        assert!(walks_the_old_one(&mut d), "the directories above");
        // Whichever of its pages it is.
        d.flush(GFX, page(BASE + reach - PAGE));
        assert!(!walks_the_old_one(&mut d), "{}", asic.name);
        d.b.no_errors();
    }
}

/// Without the option a range is a mistake, and as good as everything.
#[test]
fn a_range_is_refused_by_default() {
    let mut d = Driver::new(&GFX90A);
    d.b.gpu.soc.set_ranges(Reading::default());
    let all = d.moved(0..3);
    d.flush(GFX, page(all[1].va));
    d.b.expect_errors(&["invalidate-range"]);
    assert_eq!(d.fresh(GFX, &all), [0, 1, 2]);
    assert_eq!(d.fresh(MM, &all), NONE);
    d.flush(MM, [0xffff_ffff, 0x1f]);
    assert_eq!(d.fresh(MM, &all), [0, 1, 2]);
    d.b.no_errors();
    // With it, what the scheduler drops is everything all the same.
    let mut f = Fixture::new(&GFX90A, 0x41, PAGE);
    f.b.gpu.soc.set_ranges(Reading::SizeBit);
    let va = f.va;
    f.q.send(&mut f.b, &write_data(va, 1));
    let new = f.b.alloc_ram(PAGE);
    f.p.set_pte(&mut f.b, va, new | 0x77);
    f.b.submit_kiq(&[0xc000_9800, 1 | (1 << 4) | (0x41 << 5) | (2 << 29)]);
    f.b.run();
    f.q.send(&mut f.b, &write_data(va, 2));
    assert_eq!((f.b.ram32(f.bus), f.b.ram32(new)), (1, 2));
    f.b.no_errors();
}
