// SPDX-License-Identifier: GPL-2.0

//! Accesses that move memory to VRAM because a hint wants it, on every GPU that was probed; skipped where there is none, or
//! where nothing moves. The accesses are made up, as in `rkfd_mirror_live`; the program is the test.

use kernel::{
    prelude::*,
    time::{
        delay::fsleep,
        Delta, //
    },
};

use super::{
    gpu_live::on_each,
    mirror_migrate::{
        has,
        has_all,
        read_vram,
        Scene,
        ALL,
        AROUND,
        AT_ONCE,
        CPU,
        HUGE,
        IN,
        ON_ACCESS,
        PAGE,
        VA, //
    },
};
use crate::{
    driver::power,
    gpu::{
        mirrors::Counter,
        Gpu, //
    },
    kapi::kunit::UserMemory,
    mirror::{
        Hint,
        Place,
        FIRST_WAIT,
        MAX_RANGES, //
    },
};

const SMALL: Hint = Hint::Vram {
    reach: Some(AROUND * PAGE),
};
const WHOLE: Hint = Hint::Vram { reach: Some(HUGE) };

/// What moves by accesses has done on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    /// Pages.
    moved: u64,
    bounced: u64,
    held_back: u64,
    no_room: u64,
}

fn count(gpu: &Gpu) -> Count {
    let of = |counter| gpu.mirrors().count(counter);
    Count {
        moved: of(Counter::MovedInByAccess) / PAGE,
        bounced: of(Counter::Bounced),
        held_back: of(Counter::HeldBack),
        no_room: of(Counter::NoRoom),
    }
}

impl Scene {
    /// Notes a hint for pages of it.
    fn keep(&self, first: u64, count: u64, hint: Option<Hint>) -> Result {
        let at = VA + first * PAGE;
        self.mirrors
            .keep(&self.bench.device, self.id, at, count * PAGE, hint)
    }

    /// Has an access to a page served.
    fn access(&self, page: u64, write: bool) -> Result {
        self.mirrors.service(VA + page * PAGE, write, false)
    }

    fn is_shown(&self, page: u64) -> Result<bool> {
        Ok(self.bench.walk(VA + page * PAGE)?.is_some())
    }
}

#[kunit_tests(rkfd_mirror_hints_live)]
mod suite {
    use super::*;

    #[test]
    fn an_access_moves_its_block_and_leaves_others_to_others() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, HUGE, ALL, ON_ACCESS)? else {
                return Ok(());
            };
            scene.keep(0, ALL, Some(SMALL))?;
            let before = count(gpu);
            scene.access(37, true)?;
            assert_eq!(scene.shown()?, (AROUND, AROUND));
            assert!(scene.gpu_has(32, 1)? && scene.gpu_has(47, 1)?);
            assert!(!scene.is_shown(31)? && !scene.is_shown(48)?);
            assert_eq!(count(gpu).moved - before.moved, AROUND);
            scene.gpu_write(37, 2)?;
            // Of what is shown nothing is done.
            scene.access(40, true)?;
            assert_eq!(count(gpu).moved - before.moved, AROUND);
            scene.access(500, false)?;
            assert_eq!(scene.shown()?, (2 * AROUND, 2 * AROUND));
            assert!(scene.gpu_has(37, 2)? && scene.gpu_has(500, 1)?);
            assert_eq!(count(gpu).moved - before.moved, 2 * AROUND);
            assert!(has(37, 2)? && has(36, 1)? && has(500, 1)?);
            assert!(scene.end()?);
            Ok(())
        })
    }

    #[test]
    fn an_access_beside_a_hint_leaves_what_is_to_move() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, HUGE, ALL, ON_ACCESS)? else {
                return Ok(());
            };
            scene.keep(ALL / 2, ALL / 2, Some(WHOLE))?;
            let before = count(gpu);
            scene.access(3, false)?;
            assert_eq!(scene.shown()?, (ALL / 2, 0));
            assert!(scene.is_shown(ALL / 2 - 1)? && !scene.is_shown(ALL / 2)?);
            assert_eq!(count(gpu).moved, before.moved);
            scene.access(300, false)?;
            assert_eq!(scene.shown()?, (ALL, ALL / 2));
            assert!(scene.is_shown(3)? && scene.gpu_has(300, 1)?);
            assert!(has_all(ALL, 1)?);
            assert!(scene.end()?);
            Ok(())
        })
    }

    #[test]
    fn a_granule_that_moves_at_once_is_one_leaf() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, HUGE, ALL, ON_ACCESS)? else {
                return Ok(());
            };
            scene.keep(0, ALL, Some(WHOLE))?;
            scene.access(300, false)?;
            assert_eq!(scene.shown()?, (ALL, ALL));
            assert_eq!(scene.mirrors.find(scene.id)?.usage().huge, HUGE);
            for page in 0..ALL {
                assert!(scene.gpu_has(page, 1)?);
            }
            assert!(has_all(ALL, 1)?);
            assert!(scene.end()?);
            Ok(())
        })
    }

    #[test]
    fn without_a_choice_more_moves_with_each_access() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, HUGE, ALL, ON_ACCESS)? else {
                return Ok(());
            };
            scene.keep(0, ALL, Some(Hint::Vram { reach: None }))?;
            scene.access(0, false)?;
            assert_eq!(scene.shown()?, (AROUND, AROUND));
            scene.access(AROUND, false)?;
            assert_eq!(scene.shown()?, (2 * AROUND, 2 * AROUND));
            scene.access(2 * AROUND, false)?;
            assert_eq!(scene.shown()?, (4 * AROUND, 4 * AROUND));
            assert!(has_all(ALL, 1)?);
            assert!(scene.end()?);
            Ok(())
        })
    }

    #[test]
    fn other_hints_move_nothing() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, HUGE, ALL, ON_ACCESS)? else {
                return Ok(());
            };
            let before = count(gpu);
            for hint in [Some(Hint::System), Some(Hint::Stay), None] {
                scene.keep(0, ALL, Some(WHOLE))?;
                scene.keep(0, ALL, hint)?;
                scene.access(3, true)?;
                assert_eq!(scene.shown()?, (ALL, 0));
            }
            assert_eq!(count(gpu), before);
            // What is there already stays there.
            assert_eq!(scene.migrate(IN)?, (ALL, 0));
            scene.keep(0, ALL, Some(Hint::System))?;
            assert_eq!(scene.shown()?, (ALL, ALL));
            assert!(scene.end()?);
            Ok(())
        })
    }

    #[test]
    fn what_is_shown_in_the_system_moves_after_a_hint() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, HUGE, ALL, ON_ACCESS)? else {
                return Ok(());
            };
            scene.access(3, true)?;
            assert_eq!(scene.shown()?, (ALL, 0));
            // Beside it: what is not of the range stays in the system, and does not move with it.
            scene.keep(64, 256, Some(WHOLE))?;
            assert_eq!(scene.shown()?, (0, 0));
            scene.access(64, false)?;
            assert_eq!(scene.shown()?, (ALL, 256));
            assert!(scene.is_in_system(63)? && scene.is_in_system(320)?);
            assert!(scene.gpu_has(64, 1)? && scene.gpu_has(319, 1)?);
            // All that is shown of the range is in VRAM.
            scene.keep(64, 256, Some(SMALL))?;
            assert_eq!(scene.shown()?, (ALL, 256));
            assert!(has_all(ALL, 1)?);
            assert!(scene.end()?);
            Ok(())
        })
    }

    #[test]
    fn what_is_nowhere_is_made_in_vram_near_the_access() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, HUGE, 8, ON_ACCESS)? else {
                return Ok(());
            };
            scene.keep(0, ALL, Some(WHOLE))?;
            scene.access(100, false)?;
            // Its neighbours, and what was written.
            assert_eq!(scene.shown()?, (AROUND + 8, AROUND + 8));
            assert!(read_vram(&scene, 100)?.iter().all(|byte| *byte == 0));
            scene.gpu_write(100, 3)?;
            assert!(has(100, 3)? && has(7, 1)?);
            assert!(scene.end()?);
            Ok(())
        })
    }

    #[test]
    fn memory_that_bounces_is_served_in_place_for_a_while() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, HUGE, ALL, ON_ACCESS)? else {
                return Ok(());
            };
            scene.keep(0, ALL, Some(WHOLE))?;
            let before = count(gpu);
            // Nothing is late on a machine that has other work if it comes first.
            let mut bounced = false;
            for round in 0..20 {
                scene.access(5, true)?;
                if count(gpu).held_back > before.held_back {
                    bounced = true;
                    break;
                }
                scene.gpu_write(5, round)?;
                assert!(has(5, round)?);
            }
            assert!(bounced);
            assert_eq!(count(gpu).bounced - before.bounced, 1);
            // All of it is shown, and no access is reported any more.
            assert_eq!(scene.shown()?.0, ALL);
            assert!(scene.is_in_system(5)?);
            fsleep(Delta::from_nanos(2 * FIRST_WAIT));
            let moved = count(gpu).moved;
            scene.access(5, true)?;
            assert_eq!(count(gpu).moved, moved);
            // A program that says it again has it moved at once.
            scene.keep(0, ALL, Some(WHOLE))?;
            scene.access(5, true)?;
            assert_eq!(scene.shown()?, (ALL, ALL));
            assert_eq!(count(gpu).moved - moved, AROUND);
            assert!(scene.end()?);
            Ok(())
        })
    }

    #[test]
    fn an_access_takes_free_vram_alone() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, HUGE, ALL, ON_ACCESS)? else {
                return Ok(());
            };
            scene.keep(0, ALL, Some(SMALL))?;
            // Rooms of before.
            gpu.device_pages().settle();
            let before = count(gpu);
            let budget = gpu.vram_budget();
            let rest = budget.charge(budget.limit() - budget.used() - HUGE / 2)?;
            scene.access(37, true)?;
            assert_eq!(scene.shown()?, (ALL, 0));
            assert_eq!(count(gpu).no_room - before.no_room, 1);
            assert_eq!(count(gpu).moved, before.moved);
            drop(rest);
            scene.keep(0, ALL, Some(SMALL))?;
            scene.access(37, true)?;
            assert_eq!(scene.shown()?, (AROUND, AROUND));
            // The room is there, and has place for more.
            let rest = budget.charge(budget.limit() - budget.used())?;
            scene.access(300, true)?;
            assert_eq!(scene.shown()?, (2 * AROUND, 2 * AROUND));
            drop(rest);
            assert!(has_all(ALL, 1)?);
            assert!(scene.end()?);
            Ok(())
        })
    }

    #[test]
    fn a_block_ends_with_its_mapping() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, HUGE, ALL, ON_ACCESS)? else {
                return Ok(());
            };
            UserMemory::part(CPU + 40 * PAGE, 0x1000).unmap();
            scene.keep(0, ALL, Some(WHOLE))?;
            scene.access(41, true)?;
            assert_eq!(scene.shown()?, (ALL - 41, ALL - 41));
            scene.access(3, true)?;
            assert_eq!(scene.shown()?, (ALL - 1, ALL - 1));
            assert_eq!(scene.access(40, false), Err(EFAULT));
            assert!(has(39, 1)? && has(41, 1)?);
            assert!(scene.end()?);
            Ok(())
        })
    }

    #[test]
    fn a_mirror_that_is_kept_moves_nothing() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, 64 * PAGE, 64, AT_ONCE)? else {
                return Ok(());
            };
            scene.keep(0, 64, Some(WHOLE))?;
            assert_eq!(scene.shown()?, (64, 0));
            scene.access(3, true)?;
            assert_eq!(scene.shown()?, (64, 0));
            assert!(scene.end()?);
            Ok(())
        })
    }

    #[test]
    fn what_comes_back_before_sleep_moves_in_again_by_accesses() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, HUGE, ALL, ON_ACCESS)? else {
                return Ok(());
            };
            scene.keep(0, ALL, Some(WHOLE))?;
            scene.access(5, true)?;
            scene.gpu_write(5, 2)?;
            let before = count(gpu);
            power::prepare(gpu)?;
            assert_eq!((scene.shown()?, gpu.device_pages().live()), ((0, 0), 0));
            // It is served where it is.
            scene.access(5, true)?;
            assert_eq!(scene.shown()?, (ALL, 0));
            power::complete(gpu);
            scene.keep(0, ALL, Some(WHOLE))?;
            scene.access(5, true)?;
            assert_eq!(scene.shown()?, (ALL, ALL));
            assert!(scene.gpu_has(5, 2)?);
            assert_eq!(count(gpu).bounced, before.bounced);
            assert!(has(5, 2)? && has(6, 1)?);
            assert!(scene.end()?);
            Ok(())
        })
    }

    #[test]
    fn hints_are_refused_as_documented_and_end_with_the_mirror() -> Result {
        on_each(|gpu| {
            let pages = 2 * MAX_RANGES as u64 + 1;
            let Some(scene) = Scene::new(gpu, pages * PAGE, 4, ON_ACCESS)? else {
                return Ok(());
            };
            let device = &scene.bench.device;
            let refused = |id, at, len| scene.mirrors.keep(device, id, at, len, None).err();
            assert_eq!(refused(scene.id + 1, VA, PAGE), Some(ENOENT));
            assert_eq!(refused(scene.id, VA - PAGE, PAGE), Some(EINVAL));
            assert_eq!(refused(scene.id, VA, (pages + 1) * PAGE), Some(EINVAL));
            assert_eq!(refused(scene.id, VA + 8, PAGE), Some(EINVAL));
            assert_eq!(refused(scene.id, VA, 0), Some(EINVAL));
            for page in (0..pages - 1).step_by(2) {
                scene.keep(page, 1, Some(Hint::Stay))?;
            }
            let mirror = scene.mirrors.find(scene.id)?;
            assert_eq!(mirror.hinted_ranges(), MAX_RANGES);
            assert_eq!(scene.keep(pages - 1, 1, Some(Hint::Stay)), Err(ENOSPC));
            scene.keep(0, pages, Some(SMALL))?;
            assert_eq!(mirror.hinted_ranges(), 1);
            scene.access(2, true)?;
            assert_eq!(scene.migrate(Place::System)?.1, 0);
            scene.mirrors.destroy(scene.id)?;
            assert_eq!(mirror.hinted_ranges(), 0);
            assert_eq!(scene.keep(0, 1, None), Err(ENOENT));
            assert!(has(2, 1)? && has(3, 1)?);
            Ok(())
        })
    }
}
