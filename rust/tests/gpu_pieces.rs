// SPDX-License-Identifier: GPL-2.0

//! Scattered copies between VRAM and system memory, on every GPU that was probed; skipped where there is none. Each byte
//! of both sides is compared by the CPU, those that no piece names, too.

use kernel::{
    prelude::*,
    sizes::{
        SZ_1M,
        SZ_4K, //
    },
    sync::Arc, //
};

use super::{
    gpu_live::on_each,
    gpu_moves::{
        page_of,
        word, //
    }, //
};
use crate::{
    driver::power,
    gpu::{
        clear::{
            Landed,
            ENGINE_MIN, //
        },
        mirrors::Counter,
        moves::Direction,
        pieces::{
            CopyingPieces,
            Piece,
            Pieces,
            MOST_BYTES, //
        },
        Gpu,
        Hw,
        VramBlock, //
    },
    kapi::pages::{
        Pages,
        Transfer, //
    },
    kfd::facade,
    sched::Scheduler, //
};

// CAST: Constants.
const PAGE: u64 = SZ_4K as u64;
const MIB: u64 = SZ_1M as u64;

/// VRAM and pages, both of which have runs of the same lengths with a page between any two: in the pages in order, in
/// VRAM in the opposite one.
struct Scene {
    block: VramBlock,
    pages: Arc<Pages>,
    runs: KVVec<Piece>,
}

impl Scene {
    fn new(gpu: &Gpu, lens: &[usize]) -> Result<Self> {
        let all = lens.iter().sum::<usize>() + lens.len() + 1;
        let block = gpu.vram().alloc(all as u64 * PAGE, PAGE)?;
        let mut runs = KVVec::with_capacity(lens.len(), GFP_KERNEL)?;
        let (mut page, mut above) = (1, all - 1);
        for count in lens.iter().copied() {
            above -= count;
            let vram = block.offset() + above as u64 * PAGE;
            runs.push(Piece { vram, page, count }, GFP_KERNEL)?;
            page += count + 1;
            above -= 1;
        }
        Ok(Self {
            block,
            pages: Arc::new(Pages::alloc(all)?, GFP_KERNEL)?,
            runs,
        })
    }

    /// Which page of the other side belongs to page `index` of this side, which is VRAM or the pages.
    fn partner(&self, index: u64, of_vram: bool) -> Option<u64> {
        self.runs.iter().find_map(|run| {
            let (page, vram) = (run.page as u64, (run.vram - self.block.offset()) / PAGE);
            let (here, there) = if of_vram { (vram, page) } else { (page, vram) };
            let within = index.checked_sub(here)?;
            (within < run.count as u64).then_some(there + within)
        })
    }

    fn len(&self) -> u64 {
        self.pages.len() as u64
    }

    fn fill_vram(&self, hw: &Hw, round: u64) -> Result {
        for i in 0..self.len() {
            hw.vram_write(self.block.offset() + i * PAGE, &page_of(word(round, i))?)?;
        }
        Ok(())
    }

    fn fill_pages(&self, round: u64) -> Result {
        for i in 0..self.len() {
            let bytes = page_of(word(round, i))?;
            self.pages
                .copy(usize::try_from(i * PAGE)?, Transfer::Write(&bytes))?;
        }
        Ok(())
    }

    /// Whether the VRAM has what was filled in in round `own`, and in the runs what the pages had in round `copied`, if any.
    fn vram_has(&self, hw: &Hw, own: u64, copied: Option<u64>) -> Result<bool> {
        let mut seen = KVVec::from_elem(0_u8, SZ_4K, GFP_KERNEL)?;
        for i in 0..self.len() {
            hw.vram_read(self.block.offset() + i * PAGE, &mut seen)?;
            let expected = match (self.partner(i, true), copied) {
                (Some(page), Some(round)) => word(round, page),
                _ => word(own, i),
            };
            if seen[..] != page_of(expected)?[..] {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Likewise the pages.
    fn pages_have(&self, own: u64, copied: Option<u64>) -> Result<bool> {
        let mut seen = KVVec::from_elem(0_u8, SZ_4K, GFP_KERNEL)?;
        for i in 0..self.len() {
            self.pages
                .copy(usize::try_from(i * PAGE)?, Transfer::Read(&mut seen))?;
            let expected = match (self.partner(i, false), copied) {
                (Some(place), Some(round)) => word(round, place),
                _ => word(own, i),
            };
            if seen[..] != page_of(expected)?[..] {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn begin<'a>(
        &self,
        gpu: &'a Gpu,
        hw: &'a Hw,
        direction: Direction,
    ) -> Result<CopyingPieces<'a, Arc<Pages>>> {
        let mut list = KVVec::new();
        for run in &self.runs {
            list.push(*run, GFP_KERNEL)?;
        }
        let what = Pieces {
            pages: self.pages.clone(),
            list,
            direction,
            owner: self.pages.clone(),
        };
        gpu.copy_pieces(hw, what)
    }
}

/// Whether all was copied.
fn is_done<K>(landed: &Landed<K>) -> bool {
    matches!(landed, Landed::Done(_))
}

/// Bytes that the CPU has copied.
fn by_cpu(gpu: &Gpu) -> u64 {
    gpu.mirrors().count(Counter::CopiedByCpu)
}

/// Copies out and in, and looks at each page of both sides. Returns whether all were right, and the jobs that it took.
/// What takes no job is noted as copied by the CPU.
fn there_and_back(gpu: &Gpu, lens: &[usize]) -> Result<(bool, u64)> {
    let hw = gpu.enter()?;
    let scene = Scene::new(gpu, lens)?;
    scene.fill_vram(&hw, 1)?;
    scene.fill_pages(2)?;
    let jobs = gpu.copy().status().jobs;
    let copied = by_cpu(gpu);
    let mut right = is_done(&scene.begin(gpu, &hw, Direction::Out)?.land());
    right &= scene.pages_have(2, Some(1))? && scene.vram_has(&hw, 1, None)?;
    scene.fill_pages(3)?;
    right &= is_done(&scene.begin(gpu, &hw, Direction::In)?.land());
    right &= scene.vram_has(&hw, 1, Some(3))? && scene.pages_have(3, None)?;
    let jobs = gpu.copy().status().jobs - jobs;
    let bytes = lens.iter().sum::<usize>() as u64 * PAGE;
    let without = if jobs == 0 { 2 * bytes } else { 0 };
    right &= by_cpu(gpu) - copied == without;
    Ok((right, jobs))
}

fn scheduler(gpu: &Arc<Gpu>) -> Result<Arc<Scheduler>> {
    facade()?.scheduler(gpu).ok_or(ENODEV)
}

#[kunit_tests(rkfd_gpu_pieces_live)]
mod suite {
    use super::*;

    #[test]
    fn each_page_goes_there_and_back() -> Result {
        on_each(|gpu| {
            // Odd runs, one that no packet holds, and pages without neighbours; each way.
            let odd = [1, 3, 17, 128, 2, 64, 1, 5, 300];
            assert_eq!(there_and_back(gpu, &odd)?, (true, 2));
            assert_eq!(there_and_back(gpu, &[1300])?, (true, 2));
            assert_eq!(there_and_back(gpu, &[1; 700])?, (true, 2 * 44));
            Ok(())
        })
    }

    #[test]
    fn a_few_pages_are_no_job() -> Result {
        on_each(|gpu| {
            assert_eq!(there_and_back(gpu, &[1])?, (true, 0));
            let most = usize::try_from(ENGINE_MIN / PAGE)?;
            assert_eq!(there_and_back(gpu, &[3, most - 4])?, (true, 0));
            assert_eq!(there_and_back(gpu, &[3, most - 3])?, (true, 2));
            Ok(())
        })
    }

    #[test]
    fn without_the_engine_the_cpu_copies() -> Result {
        on_each(|gpu| {
            let sched = scheduler(gpu)?;
            power::suspend(gpu, &sched)?;
            let copied = there_and_back(gpu, &[1, 80, 33]);
            power::resume(gpu, &sched)?;
            assert_eq!(copied?, (true, 0));
            Ok(())
        })
    }

    #[test]
    fn what_a_reset_cancels_is_copied_all_the_same() -> Result {
        on_each(|gpu| {
            let sched = scheduler(gpu)?;
            sched.suspend()?;
            let result: Result<(bool, bool)> = (|| {
                let hw = gpu.enter()?;
                let scene = Scene::new(gpu, &[700, 1, 900])?;
                scene.fill_vram(&hw, 1)?;
                scene.fill_pages(2)?;
                let copying = scene.begin(gpu, &hw, Direction::Out)?;
                gpu.reset_engines(sched.unload_ms(), None, &mut KVec::new(), || {})?;
                let landed = copying.land();
                Ok((is_done(&landed), scene.pages_have(2, Some(1))?))
            })();
            sched.resume()?;
            assert_eq!(result, Ok((true, true)));
            Ok(())
        })
    }

    #[test]
    fn a_copy_that_is_dropped_waits_for_the_engine() -> Result {
        on_each(|gpu| {
            let hw = gpu.enter()?;
            let scene = Scene::new(gpu, &[512, 512, 512])?;
            scene.fill_vram(&hw, 1)?;
            drop(scene.begin(gpu, &hw, Direction::Out)?);
            let status = gpu.copy().status();
            assert_eq!(status.written, status.done);
            // Nobody else has them.
            assert!(Arc::into_unique_or_drop(scene.pages).is_some());
            Ok(())
        })
    }

    #[test]
    fn what_is_not_within_both_sides_is_refused() -> Result {
        on_each(|gpu| {
            let hw = gpu.enter()?;
            let block = gpu.vram().alloc(4 * PAGE, PAGE)?;
            let refused = |all: usize, list: &[Piece]| -> Result<Option<Error>> {
                let pages = Arc::new(Pages::alloc(all)?, GFP_KERNEL)?;
                let mut pieces = KVVec::new();
                pieces.extend_from_slice(list, GFP_KERNEL)?;
                let what = Pieces {
                    pages,
                    list: pieces,
                    direction: Direction::Out,
                    owner: (),
                };
                Ok(gpu.copy_pieces(&hw, what).err())
            };
            let piece = |vram: u64, page: usize, count: usize| Piece { vram, page, count };
            let (first, end) = (block.offset(), gpu.vram().total());
            assert_eq!(refused(4, &[piece(first, 0, 4)])?, None);
            assert_eq!(refused(4, &[])?, Some(EINVAL));
            for wrong in [
                piece(first, 0, 0),
                piece(first, 4, 1),
                piece(first, 0, 5),
                piece(first, 1, usize::MAX),
                piece(first, usize::MAX, 1),
                piece(first + 8, 0, 1),
                piece(end, 0, 1),
                piece(end - PAGE, 0, 2),
                piece(u64::MAX - PAGE + 1, 0, 1),
            ] {
                assert_eq!(refused(4, &[piece(first, 0, 1), wrong])?, Some(EINVAL));
            }
            let most = usize::try_from(MOST_BYTES / PAGE)?;
            assert_eq!(refused(most, &[piece(first, most - 4, 4)])?, None);
            assert_eq!(refused(most + 1, &[piece(first, 0, 1)])?, Some(EINVAL));
            Ok(())
        })
    }

    #[test]
    fn the_window_has_all_its_room_again() -> Result {
        on_each(|gpu| {
            let hw = gpu.enter()?;
            let block = gpu.vram().alloc(MIB, PAGE)?;
            let pages = Pages::alloc(usize::try_from(MOST_BYTES / PAGE)?)?;
            let pages = Arc::new(pages, GFP_KERNEL)?;
            // More in all than the GART has.
            for _ in 0..40 {
                let jobs = gpu.copy().status().jobs;
                let mut list = KVVec::new();
                let all = Piece {
                    vram: block.offset(),
                    page: 7,
                    count: usize::try_from(MIB / PAGE)?,
                };
                list.push(all, GFP_KERNEL)?;
                let what = Pieces {
                    pages: pages.clone(),
                    list,
                    direction: Direction::In,
                    owner: (),
                };
                assert!(is_done(&gpu.copy_pieces(&hw, what)?.land()));
                assert_eq!(gpu.copy().status().jobs, jobs + 1);
            }
            Ok(())
        })
    }
}
