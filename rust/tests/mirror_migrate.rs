// SPDX-License-Identifier: GPL-2.0

//! Memory of mirrors that moves to VRAM and back, on every GPU that was probed; skipped where there is none, or where the
//! kernel has no pages for it. The program is the test. What the GPU would find is read in page tables, and in the VRAM.

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

use super::{
    gpu_live::on_each,
    gpu_moves::{
        page_of,
        word, //
    },
    vm_live_bench::{
        eventually,
        Bench, //
    }, //
};
use crate::{
    driver::power,
    gpu::Gpu,
    hw::pte::Aperture,
    kapi::kunit::{
        skip,
        UserMemory, //
    },
    kfd::facade,
    mirror::{
        Filling,
        Mirrors,
        Place,
        Request,
        Rights, //
    },
};

pub(super) const PAGE: u64 = 0x1000;
pub(super) const HUGE: u64 = 0x20_0000;
/// Pages of 2 MiB.
pub(super) const ALL: u64 = HUGE / PAGE;
/// Where the program has its memory: a multiple of 2 MiB.
pub(super) const CPU: u64 = 0x6000_0000_0000;
/// A multiple of 64 MiB.
pub(super) const VA: u64 = 0x7000_0000_0000;
/// Pages that come back with one that the CPU touches.
pub(super) const AROUND: u64 = 16;

pub(super) const AT_ONCE: Filling = Filling {
    at_once: true,
    on_access: false,
};
pub(super) const ON_ACCESS: Filling = Filling {
    at_once: false,
    on_access: true,
};
pub(super) const IN: Place = Place::Vram { fill: false };

/// A mirror of memory of the test, whose mirrors end when this is dropped.
pub(super) struct Scene {
    pub(super) bench: Bench,
    pub(super) mirrors: Arc<Mirrors>,
    pub(super) id: u32,
    len: u64,
    memory: Option<UserMemory>,
}

impl Scene {
    /// `None`, and the test is skipped, where nothing moves. The first `pages` pages were written in round 1.
    pub(super) fn new(
        gpu: &Arc<Gpu>,
        len: u64,
        pages: u64,
        filling: Filling,
    ) -> Result<Option<Self>> {
        if !gpu.device_pages().may_populate() {
            skip(c"the kernel has no device-private memory");
            return Ok(None);
        }
        let memory = UserMemory::at(CPU, usize::try_from(len)?)?;
        for page in 0..pages {
            write(page, 1)?;
        }
        let bench = Bench::new(gpu)?;
        let sched = facade()?.scheduler(gpu).ok_or(ENODEV)?;
        let mirrors = Mirrors::new(&bench.vm, &sched, None)?;
        let request = Request {
            cpu: CPU,
            gpu: VA,
            len,
            rights: Rights {
                write: true,
                execute: false,
            },
            filling,
        };
        let id = mirrors.create(&request)?.id();
        Ok(Some(Self {
            bench,
            mirrors,
            id,
            len,
            memory: Some(memory),
        }))
    }

    /// Moves all, and returns how many pages have moved and how many have not.
    pub(super) fn migrate(&self, place: Place) -> Result<(u64, u64)> {
        let (tally, result) =
            self.mirrors
                .migrate(&self.bench.device, self.id, VA, self.len, place);
        result?;
        Ok((tally.moved / PAGE, tally.stayed / PAGE))
    }

    /// How many pages are shown, and how many of them are in VRAM.
    pub(super) fn shown(&self) -> Result<(u64, u64)> {
        let usage = self.mirrors.find(self.id)?.usage();
        Ok((usage.bytes / PAGE, usage.vram / PAGE))
    }

    /// Where in VRAM the GPU finds a page, which it may write.
    pub(super) fn vram_of(&self, page: u64) -> Result<u64> {
        let (pa, attrs) = self.bench.walk(VA + page * PAGE)?.ok_or(ENOENT)?;
        assert_eq!(attrs.aperture, Aperture::Vram);
        assert!(attrs.access.read && attrs.access.write);
        Ok(pa - self.bench.gpu.info().fb.offset)
    }

    pub(super) fn is_in_system(&self, page: u64) -> Result<bool> {
        let (_, attrs) = self.bench.walk(VA + page * PAGE)?.ok_or(ENOENT)?;
        Ok(attrs.aperture == Aperture::System { snooped: true })
    }

    /// Whether the GPU finds in a page what it got in round `round`.
    pub(super) fn gpu_has(&self, page: u64, round: u64) -> Result<bool> {
        Ok(read_vram(self, page)?[..] == page_of(word(round, page))?[..])
    }

    /// Writes a page as the GPU does.
    pub(super) fn gpu_write(&self, page: u64, round: u64) -> Result {
        let at = self.vram_of(page)?;
        let hw = self.bench.gpu.enter()?;
        hw.vram_write(at, &page_of(word(round, page))?)?;
        hw.hdp_flush();
        Ok(())
    }

    /// The memory goes. Returns whether nothing of it is left in VRAM.
    pub(super) fn end(mut self) -> Result<bool> {
        if let Some(memory) = self.memory.take() {
            memory.unmap();
        }
        let pages = self.bench.gpu.device_pages();
        Ok(self.shown()?.1 == 0 && pages.live() == 0)
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

fn slice(page: u64) -> Result<UserSlice> {
    let address = usize::try_from(CPU + page * PAGE)?;
    Ok(UserSlice::new(UserPtr::from_addr(address), PAGE_SIZE))
}

/// Writes a page as the program does.
pub(super) fn write(page: u64, round: u64) -> Result {
    slice(page)?
        .writer()
        .write_slice(&page_of(word(round, page))?)
}

/// Reads a page as the program does.
fn read(page: u64) -> Result<KVVec<u8>> {
    let mut bytes = KVVec::from_elem(0_u8, PAGE_SIZE, GFP_KERNEL)?;
    slice(page)?.reader().read_slice(&mut bytes)?;
    Ok(bytes)
}

/// Whether the program finds in a page what it got in round `round`.
pub(super) fn has(page: u64, round: u64) -> Result<bool> {
    Ok(read(page)?[..] == page_of(word(round, page))?[..])
}

/// Whether it does in all of `pages` pages.
pub(super) fn has_all(pages: u64, round: u64) -> Result<bool> {
    for page in 0..pages {
        if !has(page, round)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What the GPU finds in a page.
pub(super) fn read_vram(scene: &Scene, page: u64) -> Result<KVVec<u8>> {
    let mut seen = KVVec::from_elem(0_u8, PAGE_SIZE, GFP_KERNEL)?;
    let at = scene.vram_of(page)?;
    scene.bench.gpu.enter()?.vram_read(at, &mut seen)?;
    Ok(seen)
}

#[kunit_tests(rkfd_mirror_migrate_live)]
mod suite {
    use super::*;

    #[test]
    fn memory_that_moves_is_shown_where_it_is() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, HUGE, ALL, ON_ACCESS)? else {
                return Ok(());
            };
            assert_eq!(scene.shown()?, (0, 0));
            assert_eq!(scene.migrate(IN)?, (ALL, 0));
            assert_eq!(scene.shown()?, (ALL, ALL));
            // Small pages that lie side by side.
            assert_eq!(scene.mirrors.find(scene.id)?.usage().huge, HUGE);
            assert_eq!(scene.vram_of(0)? % HUGE, 0);
            for page in 0..ALL {
                assert!(scene.gpu_has(page, 1)?);
                scene.gpu_write(page, 2)?;
            }
            // Again is nothing.
            assert_eq!(scene.migrate(IN)?, (0, 0));
            assert_eq!(scene.migrate(Place::System)?, (ALL, 0));
            assert_eq!(scene.shown()?, (ALL, 0));
            assert!(scene.is_in_system(0)? && scene.is_in_system(ALL - 1)?);
            assert!(has_all(ALL, 2)?);
            assert_eq!(scene.migrate(Place::System)?, (0, 0));
            assert!(scene.end()?);
            Ok(())
        })
    }

    #[test]
    fn what_the_cpu_touches_comes_back_and_the_rest_stays() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, HUGE, ALL, ON_ACCESS)? else {
                return Ok(());
            };
            assert_eq!(scene.migrate(IN)?, (ALL, 0));
            scene.gpu_write(33, 2)?;
            assert!(has(33, 2)?);
            // Its granule is found anew.
            assert_eq!(scene.shown()?, (0, 0));
            scene.mirrors.service(VA + 100 * PAGE, true, false)?;
            assert_eq!(scene.shown()?, (ALL, ALL - AROUND));
            assert!(scene.is_in_system(32)? && scene.is_in_system(47)?);
            assert!(scene.gpu_has(31, 1)? && scene.gpu_has(48, 1)?);
            // An access to what has come back brings nothing else out.
            scene.mirrors.service(VA + 33 * PAGE, true, false)?;
            assert_eq!(scene.shown()?, (ALL, ALL - AROUND));
            // It goes to another room, for its pages in the first one were given.
            let live = gpu.device_pages().live();
            assert_eq!(scene.migrate(IN)?, (AROUND, 0));
            assert_eq!(gpu.device_pages().live() as u64, live as u64 + AROUND);
            assert_eq!(scene.shown()?, (ALL, ALL));
            assert!(scene.gpu_has(33, 2)? && scene.gpu_has(34, 1)?);
            assert_ne!(scene.vram_of(33)? / HUGE, scene.vram_of(48)? / HUGE);
            assert!(has(33, 2)? && has(34, 1)? && has(500, 1)?);
            assert!(scene.end()?);
            Ok(())
        })
    }

    #[test]
    fn a_page_that_is_missing_brings_no_neighbour_out() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, AROUND * PAGE, 0, ON_ACCESS)? else {
                return Ok(());
            };
            let others = (0..AROUND).filter(|page| *page != 5);
            others.clone().try_for_each(|page| write(page, 1))?;
            assert_eq!(scene.migrate(IN)?, (AROUND - 1, 0));
            assert_eq!(scene.shown()?, (AROUND - 1, AROUND - 1));
            scene.mirrors.service(VA + 5 * PAGE, true, false)?;
            assert_eq!(scene.shown()?, (AROUND, AROUND - 1));
            assert!(scene.is_in_system(5)?);
            for page in others {
                assert!(scene.gpu_has(page, 1)?);
            }
            assert!(scene.end()?);
            Ok(())
        })
    }

    #[test]
    fn what_is_nowhere_moves_if_that_is_wanted_and_reads_as_zero() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, 64 * PAGE, 3, ON_ACCESS)? else {
                return Ok(());
            };
            // It was read, and never written.
            read(10)?;
            // What the room is going to be made of has had another user.
            let block = gpu.vram().alloc(HUGE, HUGE)?;
            gpu.enter()?.vram_fill(block.offset(), HUGE, 0x5a)?;
            drop(block);
            assert_eq!(scene.migrate(IN)?, (3, 0));
            assert_eq!(scene.migrate(Place::Vram { fill: true })?, (61, 0));
            assert_eq!(scene.shown()?, (64, 64));
            for page in 3..64 {
                assert!(read_vram(&scene, page)?.iter().all(|byte| *byte == 0));
            }
            scene.gpu_write(10, 4)?;
            assert!(has(10, 4)? && has(2, 1)?);
            assert!(read(11)?.iter().all(|byte| *byte == 0));
            assert!(scene.end()?);
            Ok(())
        })
    }

    #[test]
    fn a_mirror_that_is_kept_is_shown_again_without_an_access() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, 64 * PAGE, 64, AT_ONCE)? else {
                return Ok(());
            };
            assert_eq!(scene.shown()?, (64, 0));
            assert_eq!(scene.migrate(IN)?, (64, 0));
            assert_eq!(scene.shown()?, (64, 64));
            scene.gpu_write(20, 2)?;
            assert!(has(20, 2)?);
            eventually(|| scene.shown() == Ok((64, 64 - AROUND)))?;
            assert_eq!(scene.migrate(Place::System)?, (64 - AROUND, 0));
            assert_eq!(scene.shown()?, (64, 0));
            assert!(has(20, 2)? && has(50, 1)?);
            assert!(scene.end()?);
            Ok(())
        })
    }

    #[test]
    fn all_comes_back_before_the_gpu_sleeps_and_none_goes_in_meanwhile() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, HUGE, ALL, ON_ACCESS)? else {
                return Ok(());
            };
            assert_eq!(scene.migrate(IN)?, (ALL, 0));
            scene.gpu_write(7, 2)?;
            power::prepare(gpu)?;
            assert_eq!(scene.shown()?, (0, 0));
            assert_eq!(gpu.device_pages().live(), 0);
            assert_eq!(scene.migrate(IN), Err(ENODEV));
            assert!(has(7, 2)? && has(6, 1)? && has(ALL - 1, 1)?);
            power::complete(gpu);
            assert_eq!(scene.migrate(IN)?, (ALL, 0));
            assert!(scene.gpu_has(7, 2)?);
            assert!(scene.end()?);
            Ok(())
        })
    }

    #[test]
    fn a_part_that_is_none_of_the_mirror_is_refused() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu, 4 * PAGE, 4, ON_ACCESS)? else {
                return Ok(());
            };
            let device = &scene.bench.device;
            let refused = |id, at, len| scene.mirrors.migrate(device, id, at, len, IN).1.err();
            assert_eq!(refused(scene.id + 1, VA, PAGE), Some(ENOENT));
            assert_eq!(refused(scene.id, VA - PAGE, PAGE), Some(EINVAL));
            assert_eq!(refused(scene.id, VA, 5 * PAGE), Some(EINVAL));
            assert_eq!(refused(scene.id, VA + 8, PAGE), Some(EINVAL));
            assert_eq!(refused(scene.id, VA, 0), Some(EINVAL));
            // A hole is stepped over.
            UserMemory::part(CPU + PAGE, PAGE_SIZE).unmap();
            assert_eq!(scene.migrate(IN)?, (3, 0));
            assert!(has(0, 1)? && has(2, 1)? && has(3, 1)?);
            assert!(scene.end()?);
            Ok(())
        })
    }
}
