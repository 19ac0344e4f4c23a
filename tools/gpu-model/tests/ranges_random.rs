// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Cached translations and directory entries, random ranges of invalidations, and a reference that knows no more than
//! what is cached and which pages a range has.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;

use common::pages::{frame, Pages, BASE, CLIENT, R, V, VMID};
use gpu_model::mem::Phys;
use gpu_model::vm::executor::Executor;
use gpu_model::vm::hub::Context;
use gpu_model::vm::range::Range;
use gpu_model::vm::space::Setup;
use gpu_model::vm::tlb::Levels;
use gpu_model::vm::window::{PageCache, Place};
use gpu_model::vm::{Access, HubId};
use proptest::prelude::*;

/// Parts of 2 MiB, each with two tables of which one is in use, or a large page.
const PARTS: u64 = 4;
/// Pages of a part that are accessed.
const PAGES: [u64; 7] = [0, 1, 2, 3, 255, 256, 511];
const PER_PART: u64 = 512;
/// The directory of the parts: third table of `Pages`.
const DIRECTORY: u64 = 0x10_2000;
const TABLES: u64 = 0x11_0000;
/// VRAM offsets of two frames of 2 MiB.
const LARGE: [u64; 2] = [0x40_0000, 0x60_0000];
const P: u64 = 1 << 54;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Directory {
    Table(u64),
    Large(usize),
}

#[derive(Debug, Clone)]
enum Op {
    /// A page of a table moves from one of its frames to the other.
    Move(u64, u64, usize),
    /// A part gets a table or a large page.
    Link(u64, Directory),
    /// An access to a page, by a wave or by a packet engine.
    Look(u64, usize, bool),
    /// An invalidation: the registers, both levels of translations, PDE0.
    Flush([u32; 2], bool, bool, bool),
}

fn ranges() -> impl Strategy<Value = [u32; 2]> {
    let near = (0..PARTS * PER_PART).prop_map(|n| n + BASE / 4096);
    let one = near
        .clone()
        .prop_map(|n| [(n << 1) as u32, (n >> 31) as u32]);
    let some = (near, 1u32..13).prop_map(|(n, log2)| {
        let n = ((n >> log2) << log2) | ((1 << (log2 - 1)) - 1);
        [(n << 1) as u32 | 1, (n >> 31) as u32]
    });
    prop_oneof![
        3 => one,
        4 => some,
        1 => Just([u32::MAX, 0x1f]),
        1 => [any::<u32>(), any::<u32>()],
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let directory = prop_oneof![
        (0u64..2).prop_map(Directory::Table),
        (0usize..2).prop_map(Directory::Large),
    ];
    let mostly = || prop::bool::weighted(0.8);
    prop_oneof![
        3 => (0..PARTS, 0u64..2, 0..PAGES.len()).prop_map(|(p, t, n)| Op::Move(p, t, n)),
        1 => (0..PARTS, directory).prop_map(|(p, d)| Op::Link(p, d)),
        6 => (0..PARTS, 0..PAGES.len(), any::<bool>()).prop_map(|(p, n, w)| Op::Look(p, n, w)),
        3 => (ranges(), mostly(), mostly(), mostly())
            .prop_map(|(r, l1, l2, pde0)| Op::Flush(r, l1, l2, pde0)),
    ]
}

/// Whether a range has a page, said as simply as possible.
fn has([low, high]: [u32; 2], page: u64) -> bool {
    let number = (u64::from(high & 0x1f) << 31) + u64::from(low / 2);
    if low % 2 == 0 {
        return page == number;
    }
    let (mut size, mut rest) = (2, number);
    while rest % 2 == 1 {
        size *= 2;
        rest /= 2;
    }
    page / size == number / size
}

/// Whether a range has a page of a part.
fn has_some(range: [u32; 2], part: u64) -> bool {
    let first = BASE / 4096 + part * PER_PART;
    (first..first + PER_PART).any(|page| has(range, page))
}

/// A cached translation: where it leads, and the levels that hold it.
#[derive(Debug, Clone, Copy)]
struct Cached {
    to: u64,
    l1: bool,
    l2: bool,
}

impl Cached {
    fn new(to: u64) -> Self {
        Self {
            to,
            l1: true,
            l2: true,
        }
    }

    /// What an access finds, which refills the first level.
    fn used(&mut self) -> u64 {
        self.l1 = true;
        self.to
    }

    /// Whether it is held after an invalidation that it is asked for.
    fn survives(&mut self, l1: bool, l2: bool) -> bool {
        self.l1 &= !l1;
        self.l2 &= !l2;
        self.l1 || self.l2
    }
}

/// What tables hold and what is cached of them.
#[derive(Debug)]
struct Reference {
    linked: [Directory; PARTS as usize],
    moved: BTreeMap<(u64, u64, usize), u64>,
    pages: BTreeMap<(u64, usize), Cached>,
    large: BTreeMap<u64, Cached>,
    tables: BTreeMap<u64, u64>,
}

impl Reference {
    /// VRAM offset that an access to a page finds.
    fn look(&mut self, part: u64, n: usize) -> u64 {
        if let Some(page) = self.pages.get_mut(&(part, n)) {
            return page.used();
        }
        if let Some(large) = self.large.get_mut(&part) {
            return large.used() + PAGES[n] * 4096;
        }
        let cached = self.tables.get(&part).map(|t| Directory::Table(*t));
        match cached.unwrap_or(self.linked[part as usize]) {
            Directory::Table(table) => {
                self.tables.insert(part, table);
                let to = self.place(part, table, n);
                self.pages.insert((part, n), Cached::new(to));
                to
            }
            Directory::Large(which) => {
                self.large.insert(part, Cached::new(LARGE[which]));
                LARGE[which] + PAGES[n] * 4096
            }
        }
    }

    /// VRAM offset where a table has a page.
    fn place(&self, part: u64, table: u64, n: usize) -> u64 {
        let moved = self.moved.get(&(part, table, n)).unwrap_or(&0);
        frame(((part * 2 + table) * PAGES.len() as u64 + n as u64) * 2 + moved)
    }

    fn flush(&mut self, range: [u32; 2], l1: bool, l2: bool, pde0: bool) {
        self.pages.retain(|&(part, n), page| {
            let number = BASE / 4096 + part * PER_PART + PAGES[n];
            !has(range, number) || page.survives(l1, l2)
        });
        self.large
            .retain(|&part, page| !has_some(range, part) || page.survives(l1, l2));
        self.tables
            .retain(|&part, _| !(pde0 && has_some(range, part)));
    }
}

/// The same machine twice.
struct World {
    pages: Pages,
    executor: Executor,
    cache: PageCache,
    reference: Reference,
}

impl World {
    fn new() -> Self {
        let pages = Pages::new(false);
        let executor = Executor::new(&pages.bus, &pages.spaces);
        let mut world = Self {
            pages,
            executor,
            cache: PageCache::default(),
            reference: Reference {
                linked: [Directory::Table(0); PARTS as usize],
                moved: BTreeMap::new(),
                pages: BTreeMap::new(),
                large: BTreeMap::new(),
                tables: BTreeMap::new(),
            },
        };
        for part in 0..PARTS {
            world.link(part, Directory::Table(0));
            for (table, n) in (0..2).flat_map(|t| (0..PAGES.len()).map(move |n| (t, n))) {
                world.write(part, table, n);
            }
        }
        world.pages.flush();
        world
    }

    fn table(part: u64, table: u64) -> u64 {
        TABLES + (part * 2 + table) * 0x1000
    }

    fn link(&mut self, part: u64, to: Directory) {
        self.reference.linked[part as usize] = to;
        let entry = match to {
            Directory::Table(table) => Self::table(part, table) | V,
            Directory::Large(which) => LARGE[which] | V | R | P,
        };
        self.pages.put(DIRECTORY + part * 8, entry);
    }

    fn write(&mut self, part: u64, table: u64, n: usize) {
        let to = self.reference.place(part, table, n);
        let slot = Self::table(part, table) + PAGES[n] * 8;
        self.pages.put(slot, to | V | R);
    }

    /// VRAM offset where a page is found, by a wave with a cache of its own or by the shared cache.
    fn look(&mut self, part: u64, n: usize, wave: bool) -> u64 {
        let va = BASE + (part * PER_PART + PAGES[n]) * 4096;
        if wave {
            let mut window = self.executor.window(CLIENT, true, &mut self.cache);
            let (place, _) = window.translate(va, Access::Read).unwrap();
            let Place::Memory(found) = place else {
                panic!("{place:?}");
            };
            let map = self.pages.bus.pin();
            // The frames of VRAM lie in a row.
            let (first, _) = map.find(Phys::Vram(0), false).unwrap();
            let offset = (0..8 << 20)
                .step_by(4096)
                .find(|at| first.offset(*at) == found);
            return offset.unwrap();
        }
        let found = self.pages.space().translate(&self.pages.bus.pin(), va);
        let page = found.unwrap().page;
        match page.phys {
            Some(Phys::Vram(at)) => at + va % (1 << page.shift),
            other => panic!("{other:?}"),
        }
    }

    fn apply(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match *op {
            Op::Move(part, table, n) => {
                let moved = self.reference.moved.entry((part, table, n)).or_default();
                *moved ^= 1;
                self.write(part, table, n);
            }
            Op::Link(part, to) => self.link(part, to),
            Op::Look(part, n, wave) => self.compare(part, n, wave)?,
            Op::Flush(range, l1, l2, pde0) => {
                let levels = Levels {
                    l1,
                    l2,
                    pdes: u8::from(pde0),
                };
                let range_read = Range::by_size_bit(range);
                self.pages
                    .spaces
                    .invalidate_range(HubId::Gfx, 1 << VMID, levels, range_read);
                self.reference.flush(range, l1, l2, pde0);
            }
        }
        Ok(())
    }

    fn compare(&mut self, part: u64, n: usize, wave: bool) -> Result<(), TestCaseError> {
        let expected = self.reference.look(part, n);
        let found = self.look(part, n, wave);
        prop_assert_eq!(found, expected, "part {}, page {}", part, PAGES[n]);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]
    #[test]
    fn what_is_cached_is_what_the_reference_says(ops in proptest::collection::vec(op(), 1..120)) {
        let mut world = World::new();
        for op in &ops {
            world.apply(op)?;
        }
        for (part, n) in (0..PARTS).flat_map(|p| (0..PAGES.len()).map(move |n| (p, n))) {
            world.compare(part, n, n % 2 == 0)?;
        }
    }
}

/// Flat tables can have pages of sizes that are cached in parts of 4 KiB: a range that has one of them drops all.
#[test]
fn a_page_that_is_cached_in_parts_goes_as_a_whole() {
    let pages = Pages::new(false);
    let table = TABLES;
    pages.space().set_up(Setup {
        context: Context {
            enabled: true,
            depth: 0,
            // 16 KiB.
            block_size: 2,
            retry: false,
            base: table | V,
            start: BASE >> 12,
            end: (BASE >> 12) + 511,
            cntl: 0,
        },
        fb_offset: 0,
    });
    // Of the parts of the first page and of the first one of the second page.
    let look = || {
        let map = pages.bus.pin();
        [0, 1, 2, 3, 4].map(|n: u64| {
            let found = pages.space().translate(&map, BASE + n * 4096).unwrap();
            assert_eq!(found.page.shift, if found.hit { 12 } else { 14 });
            let offset = (n * 4096) % (1 << found.page.shift);
            found.page.phys.map(|p| p.offset(offset))
        })
    };
    let at = |frames: [u64; 5]| frames.map(|n| Some(Phys::Vram(frame(n))));
    pages.put(table, frame(0) | V | R);
    pages.put(table + 8, frame(4) | V | R);
    assert_eq!(look(), at([0, 1, 2, 3, 4]));
    pages.put(table, frame(8) | V | R);
    pages.put(table + 8, frame(12) | V | R);
    assert_eq!(look(), at([0, 1, 2, 3, 4]));
    let n = (BASE >> 12) + 2;
    let third = Range::by_size_bit([(n << 1) as u32, (n >> 31) as u32]);
    pages
        .spaces
        .invalidate_range(HubId::Gfx, 1 << VMID, Levels::ALL, third);
    assert_eq!(look(), at([8, 9, 10, 11, 4]));
}
