// SPDX-License-Identifier: GPL-2.0

//! Pages of a program that move to VRAM and come back, on every GPU that was probed; skipped where there is none. The
//! program is the test. What is in VRAM is read and written by the CPU through the BAR, as the GPU would.

use kernel::{
    prelude::*,
    sizes::{
        SZ_2M,
        SZ_4K,
        SZ_64K, //
    },
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
    }, //
};
use crate::{
    gpu::{
        clear::Landed,
        devmem::{
            BringBack,
            CpuFaults, //
        },
        mirrors::MoveStep,
        moves::Direction,
        pieces::{
            Piece,
            Pieces, //
        },
        Gpu,
        Hw,
        VramBlock, //
    },
    kapi::{
        devmem::{
            Keeper,
            Pagemap,
            Room,
            Vacancy,
            FRAME,
            PAGES, //
        },
        hmm::{
            AddressSpace,
            AddressSpaceUser, //
        },
        kunit::{
            skip,
            UserMemory, //
        },
        migrate::Collected,
        pages::Transfer, //
    },
};

// CAST: Constants.
const PAGE: u64 = SZ_4K as u64;
/// A multiple of 2 MiB.
const VA: u64 = 0x7000_0000_0000;
/// Pages of the program.
const ALL: usize = 64;
/// Pages that come back at a time.
const AROUND: usize = SZ_64K / SZ_4K;
/// Where the pages of the program lie in their frame.
const FIRST: usize = 96;

struct Held(#[expect(dead_code, reason = "given back when dropped")] VramBlock);

impl Room for Held {}

/// Memory of the test, and the pages of a GPU.
struct Scene {
    memory: UserMemory,
    user: AddressSpaceUser,
    pagemap: Pagemap,
    faults: Arc<CpuFaults>,
    // After the pagemap.
    keeper: Keeper,
}

/// A frame that is being filled, and where it is in VRAM.
struct Place {
    vacancy: Vacancy,
    vram: u64,
}

impl Place {
    /// First byte of page `index` of the program.
    fn at(&self, index: usize) -> u64 {
        self.vram + (FIRST + index) as u64 * PAGE
    }
}

impl Scene {
    /// `None`, and the test is skipped, where the kernel has no such memory.
    fn new(gpu: &Arc<Gpu>) -> Result<Option<Self>> {
        let memory = UserMemory::at(VA, ALL * SZ_4K)?;
        let user = AddressSpace::of_caller().ok_or(EINVAL)?.enter()?;
        let keeper = Keeper::new()?;
        let faults = CpuFaults::new(gpu)?;
        let frames = usize::try_from(gpu.vram().total())? / FRAME;
        let pagemap = match Pagemap::new(&keeper, frames, faults.clone()) {
            Err(e) if e == EOPNOTSUPP => {
                skip(c"the kernel has no device-private memory");
                return Ok(None);
            }
            pagemap => pagemap?,
        };
        Ok(Some(Self {
            memory,
            user,
            pagemap,
            faults,
            keeper,
        }))
    }

    /// A frame of the GPU, all zeroes.
    fn place(&self, gpu: &Gpu, hw: &Hw) -> Result<Place> {
        let block = gpu.vram().alloc(SZ_2M as u64, SZ_2M as u64)?;
        let vram = block.offset();
        hw.vram_fill(vram, block.size(), 0)?;
        hw.hdp_flush();
        let frame = usize::try_from(vram)? / FRAME;
        let vacancy = self
            .pagemap
            .vacancy(frame, KBox::new(Held(block), GFP_KERNEL)?)?;
        Ok(Place { vacancy, vram })
    }

    /// Moves all pages that there are, with `holes` also others. Returns how many have moved.
    fn move_in(&self, gpu: &Gpu, hw: &Hw, place: &Place, holes: bool) -> Result<usize> {
        let lock = self.user.lock();
        let collected = Collected::of_system(&lock, range(), &place.vacancy)?;
        let moved = gpu.move_in(hw, collected, &place.vacancy, FIRST, holes)?;
        Ok(moved.pages)
    }

    /// Whether all pages have what they got in round `round`.
    fn has(&self, round: u64) -> Result<bool> {
        for index in 0..ALL {
            if !has_page(index, round)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Ends it. Returns whether nothing is left in VRAM.
    fn end(self) -> bool {
        let Self {
            memory,
            user,
            pagemap,
            faults,
            keeper,
        } = self;
        memory.unmap();
        keeper.settle();
        let live = pagemap.live();
        drop((user, pagemap));
        keeper.settle();
        faults.end();
        live == 0 && keeper.regions() == 0
    }
}

/// The addresses of the program.
fn range() -> core::ops::Range<usize> {
    let start = address(0);
    start..start + ALL * SZ_4K
}

// CAST: `usize` is 64 bits wide where this driver runs.
fn address(index: usize) -> usize {
    VA as usize + index * SZ_4K
}

/// Writes a page as the program does.
fn write(index: usize, round: u64) -> Result {
    let bytes = page_of(word(round, index as u64))?;
    let mut writer = UserSlice::new(UserPtr::from_addr(address(index)), SZ_4K).writer();
    writer.write_slice(&bytes)
}

fn write_all(round: u64) -> Result {
    (0..ALL).try_for_each(|index| write(index, round))
}

/// Reads a page as the program does.
fn read(index: usize) -> Result<KVVec<u8>> {
    let mut bytes = KVVec::from_elem(0_u8, SZ_4K, GFP_KERNEL)?;
    let mut reader = UserSlice::new(UserPtr::from_addr(address(index)), SZ_4K).reader();
    reader.read_slice(&mut bytes)?;
    Ok(bytes)
}

/// How many moves in and out have made each step.
fn steps(gpu: &Gpu) -> [u64; 10] {
    use MoveStep::*;
    let steps = [Room, Collect, Place, Copy, Finish];
    core::array::from_fn(|at| {
        let direction = if at < steps.len() {
            Direction::In
        } else {
            Direction::Out
        };
        gpu.mirrors().moves(direction, steps[at % steps.len()])
    })
}

/// What has come to it since.
fn since(before: &[u64; 10], now: &[u64; 10]) -> [u64; 10] {
    core::array::from_fn(|at| now[at] - before[at])
}

/// Whether the program finds in a page what it got in round `round`.
fn has_page(index: usize, round: u64) -> Result<bool> {
    Ok(read(index)?[..] == page_of(word(round, index as u64))?[..])
}

#[kunit_tests(rkfd_migrate_live)]
mod suite {
    use super::*;

    #[test]
    fn pages_go_to_vram_and_come_back_when_they_are_touched() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu)? else {
                return Ok(());
            };
            write_all(1)?;
            let hw = gpu.enter()?;
            let place = scene.place(gpu, &hw)?;
            let before = steps(gpu);
            assert_eq!(scene.move_in(gpu, &hw, &place, false)?, ALL);
            assert_eq!(scene.pagemap.live(), ALL + 1);
            // It was collected here.
            assert_eq!(since(&before, &steps(gpu)), [0, 0, 1, 1, 1, 0, 0, 0, 0, 0]);
            let mut seen = KVVec::from_elem(0_u8, SZ_4K, GFP_KERNEL)?;
            for index in 0..ALL {
                hw.vram_read(place.at(index), &mut seen)?;
                assert_eq!(seen[..], page_of(word(1, index as u64))?[..]);
                // What the GPU does.
                hw.vram_write(place.at(index), &page_of(word(2, index as u64))?)?;
            }
            hw.hdp_flush();
            let serial = place.vacancy.serial();
            let frame = usize::try_from(place.vram)? / FRAME;
            drop(place);
            // One that is read comes with those around it, and no others.
            let before = steps(gpu);
            assert!(has_page(20, 2)?);
            assert_eq!(scene.pagemap.live(), ALL - AROUND);
            assert_eq!(since(&before, &steps(gpu)), [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]);
            // One that is written, likewise.
            write(50, 3)?;
            assert_eq!(scene.pagemap.live(), ALL - 2 * AROUND);
            assert!(has_page(50, 3)? && has_page(49, 2)? && has_page(51, 2)?);
            write(50, 2)?;
            assert_eq!(scene.pagemap.live(), ALL - 2 * AROUND);
            assert!(scene.has(2)?);
            assert_eq!(scene.pagemap.live(), 0);
            // The room ended with the last page.
            scene.keeper.settle();
            assert!(scene.pagemap.reopen(frame, serial).is_none());
            assert!(scene.end());
            Ok(())
        })
    }

    #[test]
    fn what_is_dropped_in_any_state_stays_where_it_was() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu)? else {
                return Ok(());
            };
            let hw = gpu.enter()?;
            for state in 0..4 {
                write_all(state)?;
                let place = scene.place(gpu, &hw)?;
                let lock = scene.user.lock();
                let collected = Collected::of_system(&lock, range(), &place.vacancy)?;
                assert_eq!(collected.moving(), ALL);
                match state {
                    0 => drop(collected),
                    1 => drop(collected.into_device(&place.vacancy, FIRST, false)),
                    2 => {
                        let placed = collected.into_device(&place.vacancy, FIRST, false);
                        let failed = placed.copy(|job| {
                            assert_eq!((job.pages.len(), job.runs.len()), (ALL, 1));
                            Err(EIO)
                        });
                        assert_eq!(failed.err(), Some(EIO));
                    }
                    _ => {
                        let placed = collected.into_device(&place.vacancy, FIRST, false);
                        drop(gpu.copy_placed(&hw, placed, Direction::In)?);
                    }
                }
                drop(lock);
                assert_eq!(scene.pagemap.live(), 1);
                drop(place);
                assert!(scene.has(state)?);
                scene.keeper.settle();
            }
            assert!(scene.end());
            Ok(())
        })
    }

    #[test]
    fn pages_are_copied_until_the_move_ends_and_not_later() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu)? else {
                return Ok(());
            };
            write_all(1)?;
            let hw = gpu.enter()?;
            let place = scene.place(gpu, &hw)?;
            let lock = scene.user.lock();
            let collected = Collected::of_system(&lock, range(), &place.vacancy)?;
            let mut pages = None;
            let mut seen = KVVec::from_elem(0_u8, SZ_4K, GFP_KERNEL)?;
            let placed = collected.into_device(&place.vacancy, FIRST, false);
            let copied = placed.copy(|job| {
                job.pages.copy(SZ_4K, Transfer::Read(&mut seen))?;
                pages = Some(job.pages.clone());
                Ok(job.kept)
            })?;
            assert_eq!(seen[..], page_of(word(1, 1))?[..]);
            let pages = pages.ok_or(EINVAL)?;
            assert_eq!(pages.pfn(0).err(), Some(EPERM));
            drop(copied);
            let late = pages.copy(SZ_4K, Transfer::Read(&mut seen));
            assert_eq!(late.err(), Some(EPERM));
            // Nor by a copy that was begun earlier, whose owner learns why.
            let mut list = KVVec::new();
            let piece = Piece {
                vram: place.at(0),
                page: 0,
                count: 1,
            };
            list.push(piece, GFP_KERNEL)?;
            let what = Pieces {
                pages,
                list,
                direction: Direction::In,
                owner: 7,
            };
            let landed = gpu.copy_pieces(&hw, what)?.land();
            assert!(matches!(landed, Landed::Cancelled(7, e) if e == EPERM));
            drop(lock);
            drop(place);
            assert!(scene.has(1)?);
            assert!(scene.end());
            Ok(())
        })
    }

    #[test]
    fn what_was_never_touched_moves_if_that_is_wanted() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu)? else {
                return Ok(());
            };
            let hw = gpu.enter()?;
            write(5, 1)?;
            let place = scene.place(gpu, &hw)?;
            assert_eq!(scene.move_in(gpu, &hw, &place, false)?, 1);
            // Back, so that the others are all that there is.
            assert!(has_page(5, 1)?);
            // Its page of the room was given away.
            assert_eq!(scene.move_in(gpu, &hw, &place, true)?, ALL - 1);
            hw.vram_write(place.at(9), &page_of(word(7, 9))?)?;
            hw.hdp_flush();
            assert!(has_page(9, 7)?);
            for index in (0..ALL).filter(|index| ![5, 9].contains(index)) {
                assert!(read(index)?.iter().all(|byte| *byte == 0));
            }
            assert!(has_page(5, 1)?);
            drop(place);
            assert!(scene.end());
            Ok(())
        })
    }

    #[test]
    fn what_has_no_page_in_the_frame_stays() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu)? else {
                return Ok(());
            };
            write_all(1)?;
            let hw = gpu.enter()?;
            let place = scene.place(gpu, &hw)?;
            let lock = scene.user.lock();
            let collected = Collected::of_system(&lock, range(), &place.vacancy)?;
            let first = PAGES - 3;
            let moved = gpu.move_in(&hw, collected, &place.vacancy, first, false)?;
            assert_eq!((moved.pages, moved.refused), (3, ALL - 3));
            drop(lock);
            assert_eq!(scene.pagemap.live(), 4);
            assert!(has_page(ALL - 1, 1)?);
            assert_eq!(scene.pagemap.live(), 4);
            assert!(scene.has(1)?);
            assert_eq!(scene.pagemap.live(), 1);
            drop(place);
            assert!(scene.end());
            Ok(())
        })
    }

    #[test]
    fn only_a_range_of_one_mapping_is_collected() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu)? else {
                return Ok(());
            };
            let hw = gpu.enter()?;
            let place = scene.place(gpu, &hw)?;
            UserMemory::part(VA + 8 * PAGE, SZ_4K).unmap();
            let lock = scene.user.lock();
            let collect = |range| Collected::of_system(&lock, range, &place.vacancy).err();
            for wrong in [
                range(),
                address(8)..address(9),
                address(4)..address(4),
                address(2) + 8..address(4),
                address(2)..address(4) - 8,
                address(ALL - 1)..address(ALL + 1),
            ] {
                assert_eq!(collect(wrong), Some(EINVAL));
            }
            assert_eq!(collect(address(9)..address(ALL)), None);
            drop(lock);
            drop(place);
            assert!(scene.end());
            Ok(())
        })
    }

    #[test]
    fn pages_that_are_unmapped_give_their_room_back() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu)? else {
                return Ok(());
            };
            write_all(1)?;
            let hw = gpu.enter()?;
            let place = scene.place(gpu, &hw)?;
            let available = gpu.vram().available();
            assert_eq!(scene.move_in(gpu, &hw, &place, false)?, ALL);
            drop(place);
            UserMemory::part(VA, SZ_64K).unmap();
            assert_eq!(scene.pagemap.live(), ALL - AROUND);
            scene.keeper.settle();
            assert_eq!(gpu.vram().available(), available);
            UserMemory::part(VA + SZ_64K as u64, (ALL - AROUND) * SZ_4K).unmap();
            assert_eq!(scene.pagemap.live(), 0);
            scene.keeper.settle();
            assert_eq!(gpu.vram().available(), available + SZ_2M as u64);
            assert!(scene.end());
            Ok(())
        })
    }

    #[test]
    fn what_is_out_of_reach_is_an_error_and_never_zeroes() -> Result {
        on_each(|gpu| {
            let Some(scene) = Scene::new(gpu)? else {
                return Ok(());
            };
            write_all(1)?;
            let hw = gpu.enter()?;
            let place = scene.place(gpu, &hw)?;
            assert_eq!(scene.move_in(gpu, &hw, &place, false)?, ALL);
            drop(place);
            assert!(has_page(0, 1)?);
            scene.faults.end();
            assert!(has_page(AROUND - 1, 1)?);
            assert_eq!(read(AROUND).err(), Some(EFAULT));
            assert_eq!(write(ALL - 1, 2).err(), Some(EFAULT));
            assert_eq!(scene.pagemap.live(), ALL - AROUND);
            assert!(scene.end());
            Ok(())
        })
    }
}
