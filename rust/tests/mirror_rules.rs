// SPDX-License-Identifier: GPL-2.0

//! Mirrors of all memory where rules decide where memory is to be, and what they are told of moves, on every GPU that was
//! probed; skipped where there is none, or where nothing moves. The accesses are made up, as in `rkfd_mirror_live`; the program
//! is the test.

use core::ops::Range;

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

use super::{
    gpu_live::on_each,
    mirror_migrate::{
        has,
        has_all,
        write,
        ALL,
        AROUND,
        CPU,
        HUGE,
        PAGE, //
    },
    vm_live_bench::Bench,
};
use crate::{
    gpu::{
        devmem::{
            Movement,
            Stage,
            Trigger,
            Witness, //
        },
        Gpu, //
    },
    hw::pte::Aperture,
    kapi::{
        kunit::{
            skip,
            UserMemory, //
        },
        task::current_mm, //
    },
    kfd::facade,
    mirror::{
        Hidden,
        Hint,
        Mirrors,
        Place,
        Rights,
        Rule,
        Rules,
        Wanted, //
    },
};

const RW: Rights = Rights {
    write: true,
    execute: false,
};
const WHOLE: Hint = Hint::Vram { reach: Some(HUGE) };
const FILL: Place = Place::Vram { fill: true };
/// More than a test is told.
const ROOM: usize = 64;

/// What the rules are told. Pages are counted from the first of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// An access to a page begins.
    Begins(u64),
    /// It ends, and whether memory has moved for it.
    Ends(u64, bool),
    /// So many pages from one on move, out or in, and why.
    Moves(u64, u64, bool, Trigger),
    /// They have.
    Moved(Result),
    /// Memory is not shown any more.
    Hides(Hidden),
}

/// Rules that say the same of all memory.
#[pin_data]
struct Same {
    #[pin]
    says: Mutex<(Option<Hint>, bool)>,
    #[pin]
    told: Mutex<KVVec<Event>>,
}

impl Same {
    fn new(hint: Option<Hint>, kept: bool) -> Result<Arc<Self>> {
        let told = KVVec::with_capacity(ROOM, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                says <- new_mutex!((hint, kept), "rkfd_test_says"),
                told <- new_mutex!(told, "rkfd_test_told"),
            }),
            GFP_KERNEL,
        )
    }

    /// From now on they say this.
    fn say(&self, hint: Option<Hint>) {
        self.says.lock().0 = hint;
    }

    /// What they were told since the last time.
    fn take(&self) -> Result<KVVec<Event>> {
        let fresh = KVVec::with_capacity(ROOM, GFP_KERNEL)?;
        Ok(core::mem::replace(&mut *self.told.lock(), fresh))
    }

    /// Allocates nothing.
    fn note(&self, event: Event) {
        let _ = self.told.lock().push_within_capacity(event);
    }

    fn note_move(&self, movement: &Movement) {
        let Range { start, end } = movement.range;
        self.note(match movement.stage {
            Stage::Begins => Event::Moves(
                (start - CPU) / PAGE,
                (end - start) / PAGE,
                movement.is_out,
                movement.trigger,
            ),
            Stage::Ended(result) => Event::Moved(result),
        });
    }
}

impl Rules for Same {
    fn rule(&self, range: &Range<u64>) -> (Rule, u64) {
        let kept = self.says.lock().1;
        let rights = Some(RW);
        (Rule { rights, kept }, range.end)
    }

    fn wanted(&self, _va: u64, bounds: &Range<u64>) -> Wanted {
        Wanted {
            range: bounds.clone(),
            hint: self.says.lock().0,
            unasked: None,
        }
    }

    fn learns_of_end(&self) -> bool {
        false
    }

    fn hidden(&self, _range: &Range<u64>, why: Hidden) {
        self.note(Event::Hides(why));
    }

    fn access_begins(&self, page: u64, _write: bool) {
        self.note(Event::Begins((page - CPU) / PAGE));
    }

    fn access_ends(&self, page: u64, moved: bool) {
        self.note(Event::Ends((page - CPU) / PAGE, moved));
    }

    fn memory_moves(&self, movement: &Movement) {
        self.note_move(movement);
    }

    fn queues_run(&self, _run: bool) {}
}

impl Witness for Same {
    fn memory_moves(&self, movement: &Movement) {
        self.note_move(movement);
    }
}

/// A mirror of all memory with rules, and memory of the test in it.
struct Scene {
    bench: Bench,
    rules: Arc<Same>,
    mirrors: Arc<Mirrors>,
    range: Range<u64>,
    memory: Option<UserMemory>,
}

impl Scene {
    /// `None`, and the test is skipped, where nothing moves. The first `written` pages of `pages` were written in round 1.
    fn new(
        gpu: &Arc<Gpu>,
        pages: u64,
        written: u64,
        hint: Option<Hint>,
        on_access: bool,
    ) -> Result<Option<Self>> {
        if !gpu.device_pages().may_populate() {
            skip(c"the kernel has no device-private memory");
            return Ok(None);
        }
        let memory = UserMemory::at(CPU, usize::try_from(pages * PAGE)?)?;
        for page in 0..written {
            write(page, 1)?;
        }
        let bench = Bench::new(gpu)?;
        let sched = facade()?.scheduler(gpu).ok_or(ENODEV)?;
        let rules = Same::new(hint, !on_access)?;
        let mirrors = Mirrors::new(&bench.vm, &sched, Some(rules.clone()))?;
        let this = Self {
            bench,
            rules,
            mirrors,
            range: CPU..CPU + pages * PAGE,
            memory: Some(memory),
        };
        this.mirrors.create_whole(RW, on_access)?;
        this.mirrors.pay_for_rules(&this.bench.device, 0);
        Ok(Some(this))
    }

    fn access(&self, page: u64) -> Result {
        self.mirrors.service(CPU + page * PAGE, true, false)
    }

    fn prefetch(&self, place: Place) -> Result {
        self.mirrors
            .prefetch(&self.bench.device, &self.range, place)
    }

    /// Whether a page is shown in VRAM; `None`: it is not shown.
    fn is_in_vram(&self, page: u64) -> Result<Option<bool>> {
        let found = self.bench.walk(CPU + page * PAGE)?;
        Ok(found.map(|(_, attrs)| attrs.aperture == Aperture::Vram))
    }

    /// The memory goes. Returns whether nothing of it is left in VRAM.
    fn end(mut self) -> bool {
        if let Some(memory) = self.memory.take() {
            memory.unmap();
        }
        self.bench.gpu.device_pages().live() == 0
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.mirrors.close();
        if let Some(memory) = self.memory.take() {
            memory.unmap();
        }
    }
}

#[kunit_tests(rkfd_mirror_rules_live)]
mod suite {
    use super::*;

    #[test]
    fn an_access_moves_what_rules_want_and_is_told_of() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, ALL, ALL, Some(WHOLE), true)? else {
                return Ok(());
            };
            scene.access(37)?;
            assert_eq!(scene.is_in_vram(0)?, Some(true));
            assert_eq!(scene.is_in_vram(ALL - 1)?, Some(true));
            let told = [
                Event::Begins(37),
                Event::Moves(0, ALL, false, Trigger::Access),
                Event::Moved(Ok(())),
                Event::Ends(37, true),
            ];
            assert_eq!(scene.rules.take()?[..], told);
            // What is shown is not looked for.
            scene.access(38)?;
            assert!(scene.rules.take()?.is_empty());
            assert!(has_all(ALL, 1)?);
            assert!(scene.end());
            Ok(())
        })
    }

    #[test]
    fn an_access_moves_nothing_where_rules_do_not_want_it() -> Result {
        on_each(|gpu| {
            for hint in [None, Some(Hint::System), Some(Hint::Stay)] {
                let Some(scene) = Scene::new(gpu, ALL, ALL, hint, true)? else {
                    return Ok(());
                };
                scene.access(37)?;
                assert_eq!(scene.is_in_vram(37)?, Some(false));
                let told = [Event::Begins(37), Event::Ends(37, false)];
                assert_eq!(scene.rules.take()?[..], told);
                assert!(scene.end());
            }
            Ok(())
        })
    }

    #[test]
    fn what_is_shown_in_the_system_moves_when_rules_want_it_elsewhere() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, ALL, ALL, None, true)? else {
                return Ok(());
            };
            scene.access(3)?;
            scene.rules.say(Some(WHOLE));
            // Nobody has said so yet.
            scene.access(3)?;
            assert_eq!(scene.is_in_vram(3)?, Some(false));
            scene.mirrors.expect_moves_by_rules(&scene.range);
            assert_eq!(scene.is_in_vram(3)?, None);
            scene.access(3)?;
            assert_eq!(scene.is_in_vram(3)?, Some(true));
            // What is there stays shown.
            scene.mirrors.expect_moves_by_rules(&scene.range);
            assert_eq!(scene.is_in_vram(3)?, Some(true));
            assert!(has_all(ALL, 1)?);
            assert!(scene.end());
            Ok(())
        })
    }

    #[test]
    fn a_prefetch_moves_all_and_is_told_of_once_for_a_mapping() -> Result {
        on_each(|gpu| {
            for on_access in [true, false] {
                let Some(scene) = Scene::new(gpu, 2 * ALL, 8, None, on_access)? else {
                    return Ok(());
                };
                scene.prefetch(FILL)?;
                for page in [0, 7, 8, ALL, 2 * ALL - 1] {
                    assert_eq!(scene.is_in_vram(page)?, Some(true));
                }
                let told = [
                    Event::Moves(0, 2 * ALL, false, Trigger::Request),
                    Event::Moved(Ok(())),
                ];
                assert_eq!(scene.rules.take()?[..], told);
                // All is there.
                scene.prefetch(FILL)?;
                assert!(scene.rules.take()?.is_empty());
                scene.prefetch(Place::System)?;
                let told = [
                    Event::Moves(0, 2 * ALL, true, Trigger::Request),
                    Event::Hides(Hidden::Migration),
                    Event::Hides(Hidden::Migration),
                    Event::Moved(Ok(())),
                ];
                assert_eq!(scene.rules.take()?[..], told);
                assert!(has_all(8, 1)?);
                assert_eq!(scene.is_in_vram(7)?, Some(false));
                scene.prefetch(Place::System)?;
                assert!(scene.rules.take()?.is_empty());
                assert!(scene.end());
            }
            Ok(())
        })
    }

    #[test]
    fn what_the_cpu_touches_is_told_to_the_witness_of_its_program() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, ALL, ALL, None, true)? else {
                return Ok(());
            };
            let (_, program) = current_mm().ok_or(EINVAL)?;
            let told = gpu.tell_of_moves(program, scene.rules.clone())?;
            scene.prefetch(FILL)?;
            drop(scene.rules.take()?);
            assert!(has(5, 1)?);
            let events = [
                Event::Moves(0, AROUND, true, Trigger::Fault),
                Event::Hides(Hidden::Migration),
                Event::Moved(Ok(())),
            ];
            assert_eq!(scene.rules.take()?[..], events);
            drop(told);
            assert!(has(AROUND, 1)?);
            // It is not shown since the first touch, and there is no witness.
            assert!(scene.rules.take()?.is_empty());
            assert!(scene.end());
            Ok(())
        })
    }
}
