// SPDX-License-Identifier: GPL-2.0

//! Device-private memory without a device: pages that are given out and come back, and what ends with them. No page is
//! mapped by anybody here, as none was moved.

use core::ops::Range;

use kernel::{
    new_mutex, new_spinlock,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};

use crate::kapi::{
    devmem::{
        has_device_page,
        is_free,
        module_references,
        Answer,
        CpuFault,
        DeviceFolio,
        Fault,
        Keeper,
        Pagemap,
        Room,
        Vacancy,
        FRAME,
        PAGES, //
    },
    kunit::skip,
    workqueue::OwnedQueue, //
};

/// Frames of a pagemap here.
const FRAMES: usize = 4;

/// No page is where a CPU could touch it.
struct Untouched;

impl CpuFault for Untouched {
    fn bring_back(&self, _fault: &Fault<'_>) -> Answer {
        Answer::Lost
    }
}

/// A pagemap of as many frames.
fn pagemap(keeper: &Keeper, frames: usize) -> Result<Pagemap> {
    Pagemap::new(keeper, frames, Arc::new(Untouched, GFP_KERNEL)?)
}

/// What became of the rooms of a test.
struct Rooms {
    dropped: Atomic<i32>,
    /// Those that were dropped when the region was not there any more.
    too_late: Atomic<i32>,
    /// The first address of the region.
    start: u64,
}

struct Tracked(Arc<Rooms>);

impl Room for Tracked {}

impl Drop for Tracked {
    fn drop(&mut self) {
        // The worker may sleep.
        kernel::task::might_sleep();
        if !has_device_page(self.0.start) {
            self.0.too_late.add(1, Relaxed);
        }
        self.0.dropped.add(1, Relaxed);
    }
}

/// A pagemap, what ends it, and what becomes of its rooms.
struct Subject {
    pagemap: Pagemap,
    rooms: Arc<Rooms>,
    // After the pagemap, which has to be closed before.
    keeper: Keeper,
}

impl Subject {
    /// `None`, and the test is skipped, where the kernel has no such memory.
    fn new() -> Result<Option<Self>> {
        let keeper = Keeper::new()?;
        let pagemap = match pagemap(&keeper, FRAMES) {
            Err(e) if e == EOPNOTSUPP => {
                skip(c"the kernel has no device-private memory");
                return Ok(None);
            }
            pagemap => pagemap?,
        };
        let rooms = Rooms {
            dropped: Atomic::new(0),
            too_late: Atomic::new(0),
            start: pagemap.range().start,
        };
        Ok(Some(Self {
            pagemap,
            rooms: Arc::new(rooms, GFP_KERNEL)?,
            keeper,
        }))
    }

    fn room(&self) -> Result<KBox<dyn Room>> {
        Ok(KBox::new(Tracked(self.rooms.clone()), GFP_KERNEL)?)
    }

    fn vacancy(&self, frame: usize) -> Result<Vacancy> {
        self.pagemap.vacancy(frame, self.room()?)
    }

    /// Rooms that were dropped until now.
    fn dropped(&self) -> i32 {
        self.keeper.settle();
        self.rooms.dropped.load(Relaxed)
    }

    /// Ends it. Returns whether nothing is left, where `rooms` were made.
    fn end(self, rooms: i32) -> bool {
        let Self {
            pagemap,
            rooms: seen,
            keeper,
        } = self;
        let (range, live) = (pagemap.range(), pagemap.live());
        drop(pagemap);
        keeper.settle();
        let dropped = (seen.dropped.load(Relaxed), seen.too_late.load(Relaxed));
        live == 0 && dropped == (rooms, 0) && keeper.regions() == 0 && is_gone(&range)
    }
}

/// Whether nothing of a region is left.
fn is_gone(range: &Range<u64>) -> bool {
    is_free(range) && !has_device_page(range.start)
}

#[kunit_tests(rkfd_devmem)]
mod suite {
    use super::*;

    #[test]
    fn a_region_is_at_addresses_of_its_own() -> Result {
        let Some(one) = Subject::new()? else {
            return Ok(());
        };
        let Some(other) = Subject::new()? else {
            return Ok(());
        };
        let (first, second) = (one.pagemap.range(), other.pagemap.range());
        for range in [&first, &second] {
            assert_eq!(range.end - range.start, (FRAMES * FRAME) as u64);
            assert_eq!(range.start % FRAME as u64, 0);
            assert!(!is_free(range));
            assert!(has_device_page(range.start) && has_device_page(range.end - 1));
        }
        assert!(first.end <= second.start || second.end <= first.start);
        assert!(one.end(0));
        assert!(has_device_page(second.start));
        assert!(other.end(0));
        Ok(())
    }

    #[test]
    fn a_room_ends_with_its_last_page_and_not_before() -> Result {
        let Some(subject) = Subject::new()? else {
            return Ok(());
        };
        let vacancy = subject.vacancy(1)?;
        let (first, last) = (vacancy.folio(0)?, vacancy.folio(PAGES - 1)?);
        assert_eq!((first.number(), last.number()), (PAGES, PAGES + PAGES - 1));
        assert_eq!(subject.pagemap.live(), 3);
        drop(first);
        assert_eq!(subject.dropped(), 0);
        // Nor while it is being filled.
        drop(last);
        assert_eq!((subject.dropped(), subject.pagemap.live()), (0, 1));
        let third = vacancy.folio(5)?;
        drop(vacancy);
        assert_eq!((subject.dropped(), subject.pagemap.live()), (0, 1));
        drop(third);
        assert_eq!((subject.dropped(), subject.pagemap.live()), (1, 0));
        assert!(subject.end(1));
        Ok(())
    }

    #[test]
    fn a_page_is_given_once_to_each_room() -> Result {
        let Some(subject) = Subject::new()? else {
            return Ok(());
        };
        for round in 1..=3 {
            let vacancy = subject.vacancy(0)?;
            for place in [0, 1, 63, 64, PAGES - 1] {
                drop(vacancy.folio(place)?);
                // Its memory has been another's.
                assert_eq!(vacancy.folio(place).err(), Some(EBUSY));
            }
            let page = vacancy.folio(3)?;
            assert_eq!(vacancy.folio(3).err(), Some(EBUSY));
            drop(page);
            drop(vacancy.folio(2)?);
            drop(vacancy);
            assert_eq!(subject.dropped(), round);
        }
        assert!(subject.end(3));
        Ok(())
    }

    #[test]
    fn all_pages_of_all_frames_can_be_in_use() -> Result {
        let Some(subject) = Subject::new()? else {
            return Ok(());
        };
        let mut pages: KVVec<DeviceFolio> = KVVec::new();
        for frame in 0..FRAMES {
            let vacancy = subject.vacancy(frame)?;
            for place in 0..PAGES {
                pages.push(vacancy.folio(place)?, GFP_KERNEL)?;
            }
        }
        assert_eq!(subject.pagemap.live(), FRAMES * PAGES);
        for (number, page) in pages.iter().enumerate() {
            assert_eq!(page.number(), number);
        }
        drop(pages);
        assert_eq!(subject.dropped(), 4);
        assert!(subject.end(4));
        Ok(())
    }

    #[test]
    fn what_is_dropped_half_way_leaves_nothing() -> Result {
        let Some(subject) = Subject::new()? else {
            return Ok(());
        };
        // Without pages.
        drop(subject.vacancy(0)?);
        assert_eq!(subject.dropped(), 1);
        // The vacancy last.
        let vacancy = subject.vacancy(0)?;
        drop((vacancy.folio(0)?, vacancy));
        // Several at a time.
        let (second, third) = (subject.vacancy(1)?, subject.vacancy(2)?);
        drop((second, third));
        assert_eq!((subject.dropped(), subject.pagemap.live()), (4, 0));
        assert!(subject.end(4));
        Ok(())
    }

    #[test]
    fn what_does_not_exist_is_refused() -> Result {
        let keeper = Keeper::new()?;
        assert_eq!(pagemap(&keeper, 0).err(), Some(EINVAL));
        assert_eq!(pagemap(&keeper, usize::MAX).err(), Some(EINVAL));
        assert_eq!(keeper.regions(), 0);
        drop(keeper);
        let Some(subject) = Subject::new()? else {
            return Ok(());
        };
        assert_eq!(subject.vacancy(FRAMES).err(), Some(EINVAL));
        assert_eq!(subject.dropped(), 1);
        let vacancy = subject.vacancy(0)?;
        assert_eq!(subject.vacancy(0).err(), Some(EBUSY));
        assert_eq!(subject.dropped(), 2);
        assert_eq!(vacancy.folio(PAGES).err(), Some(EINVAL));
        assert_eq!(vacancy.folio(usize::MAX).err(), Some(EINVAL));
        assert_eq!(subject.pagemap.live(), 1);
        drop(vacancy);
        subject.keeper.settle();
        assert!(subject.end(3));
        Ok(())
    }

    #[test]
    fn a_frame_is_filled_further_while_it_has_its_room() -> Result {
        let Some(subject) = Subject::new()? else {
            return Ok(());
        };
        let vacancy = subject.vacancy(2)?;
        let serial = vacancy.serial();
        let page = vacancy.folio(7)?;
        drop(vacancy);
        // Another room's, and no frame at all.
        assert!(subject.pagemap.reopen(2, serial + 1).is_none());
        assert!(subject.pagemap.reopen(1, serial).is_none());
        assert!(subject.pagemap.reopen(FRAMES, serial).is_none());
        let again = subject.pagemap.reopen(2, serial).ok_or(EINVAL)?;
        assert_eq!(again.serial(), serial);
        drop(page);
        // It has been given out, though not by this one.
        assert_eq!(again.folio(7).err(), Some(EBUSY));
        let page = again.folio(8)?;
        drop(again);
        assert_eq!(subject.dropped(), 0);
        drop(page);
        // Before the worker has seen it, and after that.
        assert!(subject.pagemap.reopen(2, serial).is_none());
        assert_eq!(subject.dropped(), 1);
        assert!(subject.pagemap.reopen(2, serial).is_none());
        let next = subject.vacancy(2)?;
        assert_ne!(next.serial(), serial);
        assert!(subject.pagemap.reopen(2, serial).is_none());
        drop(next);
        subject.keeper.settle();
        assert!(subject.end(2));
        Ok(())
    }

    #[test]
    fn pages_come_back_where_nobody_may_sleep() -> Result {
        let Some(subject) = Subject::new()? else {
            return Ok(());
        };
        let vacancy = subject.vacancy(0)?;
        let mut pages = KVVec::new();
        for place in 0..8 {
            pages.push(vacancy.folio(place)?, GFP_KERNEL)?;
        }
        drop(vacancy);
        let lock = Arc::pin_init(new_spinlock!((), "rkfd_test_page_table"), GFP_KERNEL)?;
        let guard = lock.lock();
        while let Some(page) = pages.pop() {
            drop(page);
        }
        drop(guard);
        assert_eq!(subject.dropped(), 1);
        assert!(subject.end(1));
        Ok(())
    }

    #[test]
    fn the_region_goes_last_and_the_module_stays_until_then() -> Result {
        let references = module_references();
        let Some(subject) = Subject::new()? else {
            return Ok(());
        };
        assert_eq!(module_references(), references);
        let vacancy = subject.vacancy(3)?;
        let page = vacancy.folio(3)?;
        let serial = vacancy.serial();
        subject.pagemap.close();
        subject.pagemap.close();
        assert_eq!(module_references(), references + 1);
        // No supply, and yet whoever is inside gets to the end.
        assert_eq!(subject.vacancy(0).err(), Some(ENODEV));
        assert!(subject.pagemap.reopen(3, serial).is_none());
        drop(vacancy.folio(4)?);
        drop(vacancy);
        assert_eq!(subject.dropped(), 1);
        assert_eq!(subject.pagemap.live(), 1);
        let Subject {
            pagemap,
            rooms,
            keeper,
        } = subject;
        let range = pagemap.range();
        drop(pagemap);
        keeper.settle();
        assert!(has_device_page(range.start) && !is_free(&range));
        assert_eq!((keeper.regions(), module_references()), (1, references + 1));
        drop(page);
        // Waits for it.
        drop(keeper);
        assert!(is_gone(&range));
        assert_eq!(module_references(), references);
        assert_eq!(rooms.dropped.load(Relaxed), 2);
        assert_eq!(rooms.too_late.load(Relaxed), 0);
        Ok(())
    }

    #[test]
    fn one_without_pages_needs_no_module() -> Result {
        let references = module_references();
        let Some(subject) = Subject::new()? else {
            return Ok(());
        };
        drop(subject.vacancy(0)?);
        subject.keeper.settle();
        subject.pagemap.close();
        assert_eq!(module_references(), references);
        assert!(subject.end(1));
        Ok(())
    }

    #[test]
    fn a_keeper_waits_for_pages() -> Result {
        let Some(subject) = Subject::new()? else {
            return Ok(());
        };
        let Subject {
            pagemap,
            rooms,
            keeper,
        } = subject;
        let range = pagemap.range();
        let room: KBox<dyn Room> = KBox::new(Tracked(rooms.clone()), GFP_KERNEL)?;
        let vacancy = pagemap.vacancy(0, room)?;
        drop(pagemap);
        let queue = OwnedQueue::new(c"rkfd_test", 1)?;
        queue.try_spawn(GFP_KERNEL, move || {
            // So that the other one waits, as a rule.
            kernel::time::delay::fsleep(kernel::time::Delta::from_millis(5));
            drop(vacancy);
        })?;
        drop(keeper);
        assert!(is_gone(&range));
        assert_eq!(rooms.dropped.load(Relaxed), 1);
        Ok(())
    }

    #[test]
    fn a_last_page_and_a_further_one_meet() -> Result {
        const ROUNDS: i32 = 300;
        let Some(subject) = Subject::new()? else {
            return Ok(());
        };
        let Subject {
            pagemap,
            rooms,
            keeper,
        } = subject;
        let pagemap = Arc::new(pagemap, GFP_KERNEL)?;
        let found = Arc::new(Atomic::new(0_i32), GFP_KERNEL)?;
        let queue = OwnedQueue::new(c"rkfd_test", 1)?;
        for round in 1..=ROUNDS {
            let room: KBox<dyn Room> = KBox::new(Tracked(rooms.clone()), GFP_KERNEL)?;
            let vacancy = pagemap.vacancy(0, room)?;
            let serial = vacancy.serial();
            let (other, seen) = (pagemap.clone(), rooms.clone());
            let in_time = found.clone();
            let done: Arc<Mutex<bool>> =
                Arc::pin_init(new_mutex!(false, "rkfd_test_done"), GFP_KERNEL)?;
            let result = done.clone();
            queue.try_spawn(GFP_KERNEL, move || {
                let again = other.reopen(0, serial);
                // Who has a vacancy has the room.
                *result.lock() = again.is_none() || seen.dropped.load(Relaxed) == round - 1;
                in_time.add(i32::from(again.is_some()), Relaxed);
                drop(again);
            })?;
            drop(vacancy);
            queue.flush();
            keeper.settle();
            assert!(*done.lock());
            assert_eq!(rooms.dropped.load(Relaxed), round);
        }
        assert_eq!(pagemap.live(), 0);
        let range = pagemap.range();
        drop(pagemap);
        // The closure of the last round may still have it.
        drop(queue);
        drop(keeper);
        assert!(is_gone(&range));
        assert_eq!(rooms.too_late.load(Relaxed), 0);
        Ok(())
    }

    #[test]
    fn a_page_is_as_large_as_the_kernels() {
        assert_eq!(PAGES * PAGE_SIZE, FRAME);
    }
}
