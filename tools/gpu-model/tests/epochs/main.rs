// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Translations and invalidations in every order in which two threads may take their steps.
//!
//! `tests/spaces.rs` lets threads run beside each other, and finds what happens often enough.  Here loom runs them: it
//! tries the orders of the locks and of the accesses to what is shared, with what weakly ordered memory permits, up to
//! [`PREEMPTIONS`] forced switches.  The sources of address spaces and walker are those of the model, with loom's locks and
//! atomics in place of `gpu_model::sync`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may panic, that is how it fails"
)]

#[allow(dead_code, reason = "the model uses more of it")]
mod mem;
mod sync;
#[allow(dead_code, reason = "the model uses more of them")]
mod vm;

use std::sync::Arc;

use loom::model::Builder;
use loom::thread;
use mem::{Map, Phys};
use vm::hub::Context;
use vm::range::Range;
use vm::space::{Epoch, Registration, Setup, Space, Spaces, Ticket};
use vm::tlb::Levels;
use vm::walk::bits::{R, V};
use vm::walk::Page;
use vm::HubId;

/// Times that a thread is stopped in the middle of what it does.
const PREEMPTIONS: usize = 6;

/// A directory with one entry, and two tables that it may lead to.
const ROOT: u64 = 0x10_0000;
const TABLES: [u64; 2] = [0x11_0000, 0x12_0000];
/// The page that is accessed, and its entry in a table.
const VA: u64 = 5 << 12;
const SLOT: u64 = 5 * 8;
/// What an invalidation is about: the page, or the one behind it.
const THE_PAGE: Range = Range {
    first: VA >> 12,
    last: VA >> 12,
};
const THE_NEXT: Range = Range {
    first: (VA >> 12) + 1,
    last: (VA >> 12) + 1,
};
/// Frames, and what they hold: what the page has always, or what the driver puts there that has taken one back.
const FRAMES: [u64; 3] = [0x20_0000, 0x30_0000, 0x40_0000];
const GOOD: u64 = 1;
const POISON: u64 = 2;

/// A machine in which the page lies in the first frame.
struct World {
    spaces: Arc<Spaces>,
    map: Map,
}

fn pte(frame: usize) -> u64 {
    FRAMES[frame] | V | R
}

fn pde(table: usize) -> u64 {
    TABLES[table] | V
}

impl World {
    fn new() -> Arc<Self> {
        let spaces = Arc::<Spaces>::default();
        spaces.space(HubId::Gfx, 0).set_up(Setup {
            context: Context {
                enabled: true,
                depth: 1,
                block_size: 0,
                base: ROOT | V,
                start: 0,
                end: 511,
            },
            fb_offset: 0,
        });
        let map = Map::new(&[
            (ROOT, pde(0)),
            (TABLES[0] + SLOT, pte(0)),
            (TABLES[1] + SLOT, pte(1)),
            (FRAMES[0], GOOD),
            (FRAMES[1], GOOD),
            (FRAMES[2], POISON),
        ]);
        Arc::new(Self { spaces, map })
    }

    fn space(&self) -> &Space {
        self.spaces.space(HubId::Gfx, 0)
    }

    fn translate(&self) -> (Epoch, Page) {
        let found = self.space().translate(&self.map, VA).unwrap();
        (found.epoch, found.page)
    }

    fn invalidate(&self, range: Range) -> Ticket {
        self.spaces
            .invalidate_range(HubId::Gfx, 1, Levels::ALL, range)
    }

    /// The word that the page holds.
    fn read(&self, page: Page) -> u64 {
        match page.phys {
            Some(Phys::Vram(at)) => self.map.load(at),
            other => panic!("{other:?}"),
        }
    }
}

/// Runs `body` in all orders; within it, threads.
fn in_all_orders(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(body);
}

/// What a thread that translates does; `warm`: what it finds is cached.
type Reader = fn(&World) -> Page;

fn translates(world: &World) -> Page {
    world.translate().1
}

/// The mistake that the order of [`Space::translate`] avoids.
fn reads_the_epoch_after_the_walk(world: &World) -> Page {
    let space = world.space();
    let page = space.walk(&world.map, space.epoch(), VA).unwrap();
    space.insert(space.epoch(), VA, page);
    page
}

/// The driver moves the page and invalidates a range while `reader` translates it. Nobody finds the old frame afterwards.
fn page_moves(reader: Reader, warm: bool, range: Range) {
    in_all_orders(move || {
        let world = World::new();
        if warm {
            world.translate();
        }
        let other = Arc::clone(&world);
        let thread = thread::spawn(move || reader(&other));
        world.map.store(TABLES[0] + SLOT, pte(1));
        world.invalidate(range);
        thread.join().unwrap();
        let (_, page) = world.translate();
        assert_eq!(page.phys, Some(Phys::Vram(FRAMES[1])), "an old translation");
    });
}

#[test]
fn no_old_translation_outlives_an_invalidation() {
    for range in [Range::ALL, THE_PAGE] {
        page_moves(translates, false, range);
        page_moves(translates, true, range);
    }
}

#[test]
#[should_panic(expected = "an old translation")]
fn an_invalidation_of_the_next_page_is_found() {
    page_moves(translates, true, THE_NEXT);
}

#[test]
#[should_panic(expected = "an old translation")]
fn an_epoch_that_is_read_after_the_walk_is_found() {
    page_moves(reads_the_epoch_after_the_walk, false, THE_PAGE);
}

/// The same for a table that is taken out of its directory, and becomes something else after the invalidation.
#[test]
fn no_old_directory_entry_outlives_an_invalidation() {
    for (warm, range) in [(false, Range::ALL), (true, Range::ALL), (false, THE_PAGE)] {
        in_all_orders(move || {
            let world = World::new();
            if warm {
                world.translate();
            }
            let other = Arc::clone(&world);
            let thread = thread::spawn(move || other.translate());
            world.map.store(ROOT, pde(1));
            world.invalidate(range);
            world.map.store(TABLES[0] + SLOT, pte(2));
            thread.join().unwrap();
            // The page itself may be in no cache: what counts is where the directory entry leads.
            let page = world.space().walk(&world.map, world.space().epoch(), VA);
            let phys = page.unwrap().phys;
            assert_eq!(phys, Some(Phys::Vram(FRAMES[1])), "an old directory entry");
            let (_, page) = world.translate();
            assert_eq!(page.phys, phys, "an old translation");
        });
    }
}

/// A wave, with a cache of one page.
struct Wave {
    world: Arc<World>,
    registration: Registration,
    cached: Option<(Epoch, Page)>,
    /// Uses what it has cached whatever the epoch.
    careless: bool,
}

impl Wave {
    fn new(world: &Arc<World>, careless: bool) -> Self {
        Self {
            world: Arc::clone(world),
            registration: world.spaces.register(),
            cached: None,
            careless,
        }
    }

    /// A batch with one access, from a quiescent point on.
    fn batch(&mut self) {
        self.registration.pass();
        let epoch = self.world.space().epoch();
        let good = |cached: &(Epoch, Page)| self.careless || cached.0 == epoch;
        let (_, page) = *match self.cached.filter(good) {
            Some(cached) => self.cached.insert(cached),
            None => self.cached.insert(self.world.translate()),
        };
        assert_eq!(self.world.read(page), GOOD, "a frame that was taken back");
    }
}

/// The driver moves the page, invalidates, and takes the old frame back once that is acknowledged, while a wave has a
/// batch.
fn frame_is_taken_back(pauses: bool, careless: bool, range: Range) {
    in_all_orders(move || {
        let world = World::new();
        // Both levels of caches have the page; the wave has it, or finds it there.
        let mut wave = Wave::new(&world, careless);
        if pauses {
            world.translate();
        } else {
            wave.batch();
        }
        let thread = thread::spawn(move || {
            wave.batch();
            if pauses {
                wave.registration.pause();
                wave.batch();
            }
        });
        world.map.store(TABLES[0] + SLOT, pte(1));
        let ticket = world.invalidate(range);
        if world.spaces.acknowledged(ticket) {
            world.map.store(FRAMES[0], POISON);
        }
        thread.join().unwrap();
    });
}

#[test]
fn an_acknowledged_invalidation_is_seen_by_waves() {
    for range in [Range::ALL, THE_PAGE] {
        frame_is_taken_back(false, false, range);
    }
}

#[test]
fn an_acknowledged_invalidation_is_seen_after_a_pause() {
    frame_is_taken_back(true, false, Range::ALL);
}

#[test]
#[should_panic(expected = "a frame that was taken back")]
fn a_wave_that_does_not_look_at_the_epoch_is_found() {
    frame_is_taken_back(false, true, Range::ALL);
}
