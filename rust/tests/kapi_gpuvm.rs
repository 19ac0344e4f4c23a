// SPDX-License-Identifier: GPL-2.0

//! Ranges of GPU address spaces: splitting, replacing, the list of an object's mappings, and who is released when.

use core::ops::Range;

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

use super::vm_live_bench::FakeDevice;
use crate::kapi::{
    gem::Object,
    gpuvm::{
        GpuVm,
        MapReservation,
        SpaceKey, //
    },
    mappable::{
        ExportOps,
        Mappable,
        Region,
        Transfer,
        UserCaching, //
    },
    pages::Pages, //
};

const PAGE: u64 = 0x1000;

/// Content of an object that counts how many live.
struct Content(Arc<Atomic<i32>>);

impl Drop for Content {
    fn drop(&mut self) {
        self.0.add(-1, Relaxed);
    }
}

impl Mappable for Content {
    fn may_mmap(&self) -> Result<UserCaching> {
        Err(EPERM)
    }

    fn pfn(&self, _index: usize) -> Result<usize> {
        Err(EPERM)
    }

    fn transfer(&self, _offset: usize, _transfer: Transfer<'_>) -> Result {
        Err(EPERM)
    }

    fn export_ops() -> &'static ExportOps<Self> {
        static OPS: ExportOps<Content> = ExportOps::new();
        &OPS
    }

    fn may_export(&self) -> Result {
        Err(EPERM)
    }

    fn pages(&self) -> Option<&Arc<Pages>> {
        None
    }

    fn region(&self) -> Option<Region> {
        None
    }
}

/// A value of a range that counts how many live.
#[derive(Clone)]
struct Value(Arc<Tag>);

struct Tag {
    number: u64,
    live: Arc<Atomic<i32>>,
}

impl Drop for Tag {
    fn drop(&mut self) {
        self.live.add(-1, Relaxed);
    }
}

type Space = GpuVm<Content, Value>;

/// A device, and counts of what lives.
struct Bench {
    objects: Arc<Atomic<i32>>,
    values: Arc<Atomic<i32>>,
    fake: FakeDevice,
}

impl Bench {
    fn new() -> Result<Self> {
        Ok(Self {
            objects: Arc::new(Atomic::new(0), GFP_KERNEL)?,
            values: Arc::new(Atomic::new(0), GFP_KERNEL)?,
            fake: FakeDevice::new()?,
        })
    }

    fn space(&self, pages: u64) -> Result<Space> {
        GpuVm::new(&self.fake.device, c"rkfd-kunit", 0..pages * PAGE)
    }

    fn object(&self, pages: u64) -> Result<Object<Content>> {
        self.objects.add(1, Relaxed);
        let size = usize::try_from(pages * PAGE)?;
        Object::new(&self.fake.device, size, Content(self.objects.clone()))
    }

    fn value(&self, number: u64) -> Result<Value> {
        let tag = Tag {
            number,
            live: self.values.clone(),
        };
        let value = Value(Arc::new(tag, GFP_KERNEL)?);
        self.values.add(1, Relaxed);
        Ok(value)
    }

    /// Objects and values that live.
    fn live(&self) -> (i32, i32) {
        (self.objects.load(Relaxed), self.values.load(Relaxed))
    }

    /// Maps pages `at` to those of `object` from `first` on.
    fn map(
        &self,
        space: &mut Space,
        object: &Object<Content>,
        at: Range<u64>,
        first: u64,
        number: u64,
    ) -> Result<KVec<u64>> {
        let room = MapReservation::to_map(space.handle(), object)?;
        let value = self.value(number)?;
        let at = at.start * PAGE..at.end * PAGE;
        let removed = space.map(room, at, first * PAGE, value)?;
        numbers(removed.values())
    }

    fn unmap(&self, space: &mut Space, at: Range<u64>) -> Result<KVec<u64>> {
        let room = MapReservation::to_unmap(space.handle())?;
        let removed = space.unmap(room, at.start * PAGE..at.end * PAGE)?;
        numbers(removed.values())
    }
}

/// Sorts a short list.
fn sort<T: Ord>(list: &mut [T]) {
    for end in 1..list.len() {
        for at in (1..=end).rev() {
            if list[at] < list[at - 1] {
                list.swap(at, at - 1);
            }
        }
    }
}

fn numbers<'a>(values: impl Iterator<Item = &'a Value>) -> Result<KVec<u64>> {
    let mut list = KVec::new();
    for value in values {
        list.push(value.0.number, GFP_KERNEL)?;
    }
    sort(&mut list);
    Ok(list)
}

/// Ranges as (first page, end, first page in the object, number).
fn all(space: &Space) -> Result<KVec<(u64, u64, u64, u64)>> {
    let mut list = KVec::new();
    for entry in space.iter() {
        let (start, end) = (entry.range.start / PAGE, entry.range.end / PAGE);
        list.push(
            (start, end, entry.offset / PAGE, entry.data.0.number),
            GFP_KERNEL,
        )?;
    }
    Ok(list)
}

/// Ranges of `object`, ascending.
fn of(space: &Space, object: &Object<Content>) -> Result<KVec<(u64, u64)>> {
    let mut list = KVec::with_capacity(96, GFP_KERNEL)?;
    let mut full = false;
    space.for_each_of(object, |entry| {
        // Nothing is allocated under the lock of the list.
        let pages = (entry.range.start / PAGE, entry.range.end / PAGE);
        full |= list.push_within_capacity(pages).is_err();
    });
    assert!(!full);
    sort(&mut list);
    Ok(list)
}

#[kunit_tests(rkfd_gpuvm)]
mod cases {
    use super::*;

    #[test]
    fn a_range_is_found_until_it_is_unmapped() -> Result {
        let bench = Bench::new()?;
        let mut space = bench.space(64)?;
        let object = bench.object(8)?;
        assert!(bench.map(&mut space, &object, 10..14, 2, 7)?.is_empty());
        for page in 0..64 {
            let found = space.containing(page * PAGE + 5).map(|e| e.data.0.number);
            assert_eq!(found, (10..14).contains(&page).then_some(7));
        }
        let entry = space.first_overlap(0..64 * PAGE).ok_or(EINVAL)?;
        assert_eq!(entry.range, 10 * PAGE..14 * PAGE);
        assert_eq!(entry.offset, 2 * PAGE);
        assert!(space.first_overlap(14 * PAGE..64 * PAGE).is_none());
        assert!(space.first_overlap(0..10 * PAGE).is_none());
        assert!(space.first_overlap(11 * PAGE..11 * PAGE).is_none());
        assert_eq!(&*of(&space, &object)?, &[(10, 14)]);
        assert_eq!(&*bench.unmap(&mut space, 0..64)?, &[7]);
        assert!(space.iter().next().is_none());
        assert!(of(&space, &object)?.is_empty());
        Ok(())
    }

    #[test]
    fn a_hole_leaves_both_ends_with_their_value() -> Result {
        let bench = Bench::new()?;
        let mut space = bench.space(64)?;
        let object = bench.object(16)?;
        let _ = bench.map(&mut space, &object, 20..36, 0, 1)?;
        assert_eq!(&*bench.unmap(&mut space, 24..30)?, &[1]);
        assert_eq!(&*all(&space)?, &[(20, 24, 0, 1), (30, 36, 10, 1)]);
        assert_eq!(&*of(&space, &object)?, &[(20, 24), (30, 36)]);
        assert_eq!(bench.live(), (1, 1));
        // Nothing there: nothing changes.
        assert!(bench.unmap(&mut space, 24..30)?.is_empty());
        assert_eq!(&*bench.unmap(&mut space, 23..31)?, &[1, 1]);
        assert_eq!(&*all(&space)?, &[(20, 23, 0, 1), (31, 36, 11, 1)]);
        Ok(())
    }

    #[test]
    fn mapping_replaces_what_was_there() -> Result {
        let bench = Bench::new()?;
        let mut space = bench.space(64)?;
        let (a, b) = (bench.object(64)?, bench.object(64)?);
        let _ = bench.map(&mut space, &a, 0..10, 0, 1)?;
        let _ = bench.map(&mut space, &a, 10..20, 10, 2)?;
        let _ = bench.map(&mut space, &a, 30..40, 0, 3)?;
        let removed = bench.map(&mut space, &b, 5..35, 1, 4)?;
        assert_eq!(&*removed, &[1, 2, 3]);
        let now = [(0, 5, 0, 1), (5, 35, 1, 4), (35, 40, 5, 3)];
        assert_eq!(&*all(&space)?, &now);
        assert_eq!(&*of(&space, &a)?, &[(0, 5), (35, 40)]);
        // The second value went with its only range.
        assert_eq!(bench.live(), (2, 3));
        // In the middle of one range of the same object: three ranges.
        assert_eq!(&*bench.map(&mut space, &b, 10..12, 6, 5)?, &[4]);
        assert_eq!(&*of(&space, &b)?, &[(5, 10), (10, 12), (12, 35)]);
        assert_eq!(
            space.containing(12 * PAGE).map(|e| e.offset),
            Some(8 * PAGE)
        );
        Ok(())
    }

    #[test]
    fn objects_and_values_live_as_long_as_their_ranges() -> Result {
        let bench = Bench::new()?;
        let mut one = bench.space(64)?;
        let mut two = bench.space(64)?;
        let object = bench.object(4)?;
        let _ = bench.map(&mut one, &object, 0..4, 0, 1)?;
        let _ = bench.map(&mut two, &object, 8..10, 2, 2)?;
        assert_eq!(&*of(&one, &object)?, &[(0, 4)]);
        assert_eq!(&*of(&two, &object)?, &[(8, 10)]);
        drop(object);
        assert_eq!(bench.live(), (1, 2));
        let room = MapReservation::to_unmap(one.handle())?;
        let removed = one.unmap(room, 0..64 * PAGE)?;
        // Until it is dropped nothing is released.
        assert_eq!(bench.live(), (1, 2));
        drop(removed);
        assert_eq!(bench.live(), (1, 1));
        // An address space that ends gives up what it has, the room of another change may be left over.
        let other = bench.object(4)?;
        let room: MapReservation<Content, Value> = MapReservation::to_map(two.handle(), &other)?;
        drop(other);
        drop(two);
        assert_eq!(bench.live(), (1, 0));
        drop(room);
        assert_eq!(bench.live(), (0, 0));
        drop(one);
        Ok(())
    }

    #[test]
    fn bad_changes_are_refused_and_change_nothing() -> Result {
        let bench = Bench::new()?;
        assert_eq!(bench.space(0).err(), Some(EINVAL));
        let mut space = bench.space(64)?;
        let object = bench.object(4)?;
        let _ = bench.map(&mut space, &object, 10..14, 0, 1)?;
        let bad: [(Range<u64>, u64); 6] = [
            (12..12, 0),
            (Range { start: 13, end: 12 }, 0),
            (62..66, 0),
            (12..14, 3),
            (12..14, u64::MAX / PAGE - 1),
            (0..64, 0),
        ];
        for (at, first) in bad {
            let result = bench.map(&mut space, &object, at, first, 2);
            assert_eq!(result.err(), Some(EINVAL));
        }
        for at in [12..12, Range { start: 13, end: 12 }, 62..66] {
            assert_eq!(bench.unmap(&mut space, at).err(), Some(EINVAL));
        }
        // The room of another address space, and one without an object.
        let other = bench.space(64)?;
        let room = MapReservation::to_map(other.handle(), &object)?;
        let value = bench.value(3)?;
        assert_eq!(space.map(room, 0..PAGE, 0, value).err(), Some(EINVAL));
        let room = MapReservation::to_unmap(space.handle())?;
        let value = bench.value(3)?;
        assert_eq!(space.map(room, 0..PAGE, 0, value).err(), Some(EINVAL));
        assert_eq!(&*all(&space)?, &[(10, 14, 0, 1)]);
        assert_eq!(bench.live(), (1, 1));
        Ok(())
    }

    /// What a page of the reference shows: an object by number, its page, the value.
    type Cell = Option<(usize, u64, u64)>;

    #[test]
    fn random_changes_agree_with_a_table_of_pages() -> Result {
        const PAGES: u64 = 96;
        let bench = Bench::new()?;
        let mut space = bench.space(PAGES)?;
        let mut objects = KVec::new();
        for pages in [1, 7, 64] {
            objects.push((bench.object(pages)?, pages), GFP_KERNEL)?;
        }
        let mut table: KVec<Cell> = KVec::from_elem(None, PAGES as usize, GFP_KERNEL)?;
        let mut state = 0x2545_f491_4f6c_dd1du64;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        for number in 0..4000 {
            let which = random(4) as usize;
            let pages = objects.get(which).map_or(PAGES, |(_, pages)| *pages);
            let len = 1 + random(pages);
            let start = random(PAGES - len + 1);
            let at = start..start + len;
            match objects.get(which) {
                Some((object, pages)) => {
                    let first = random(pages - len + 1);
                    let _ = bench.map(&mut space, object, at, first, number)?;
                    for page in 0..len {
                        table[(start + page) as usize] = Some((which, first + page, number));
                    }
                }
                None => {
                    let _ = bench.unmap(&mut space, at)?;
                    for page in 0..len {
                        table[(start + page) as usize] = None;
                    }
                }
            }
            let mut seen = 0;
            let mut listed = [0usize; 3];
            for entry in space.iter() {
                let first = entry.range.start / PAGE;
                for page in first..entry.range.end / PAGE {
                    let cell = table[page as usize].ok_or(EINVAL)?;
                    assert_eq!(cell.1, entry.offset / PAGE + page - first);
                    assert_eq!(cell.2, entry.data.0.number);
                    seen += 1;
                }
                let cell = table[first as usize].ok_or(EINVAL)?;
                listed[cell.0] += 1;
            }
            assert_eq!(seen, table.iter().filter(|cell| cell.is_some()).count());
            if number % 64 == 0 {
                for ((object, _), listed) in objects.iter().zip(listed) {
                    assert_eq!(of(&space, object).map(|ranges| ranges.len()), Ok(listed));
                }
            }
        }
        drop(space);
        assert_eq!(bench.live(), (3, 0));
        drop(objects);
        assert_eq!(bench.live(), (0, 0));
        Ok(())
    }

    /// Spaces that map `object`, by what tells them apart.
    fn spaces(object: &Object<Content>) -> Result<KVec<SpaceKey>> {
        let mut list = KVec::with_capacity(8, GFP_KERNEL)?;
        let mut full = false;
        object.for_each_space(|key| full |= list.push_within_capacity(key).is_err());
        assert!(!full);
        Ok(list)
    }

    #[test]
    fn an_object_finds_each_space_that_maps_it_once() -> Result {
        let bench = Bench::new()?;
        let (mut one, mut other) = (bench.space(64)?, bench.space(64)?);
        let (object, stranger) = (bench.object(8)?, bench.object(8)?);
        let (first, second) = (one.handle().key(), other.handle().key());
        assert_ne!(first, second);
        assert!(spaces(&object)?.is_empty());
        bench.map(&mut one, &object, 10..14, 0, 1)?;
        assert_eq!(&*spaces(&object)?, &[first]);
        // Twice in the same space is one space; and those of another object are not found.
        bench.map(&mut one, &object, 20..24, 2, 2)?;
        bench.map(&mut other, &stranger, 10..14, 0, 3)?;
        assert_eq!(&*spaces(&object)?, &[first]);
        assert_eq!(&*spaces(&stranger)?, &[second]);
        bench.map(&mut other, &object, 20..24, 0, 4)?;
        let found = spaces(&object)?;
        assert_eq!(found.len(), 2);
        assert!(found.contains(&first) && found.contains(&second));
        // A space that maps a part of it still does; one that maps nothing of it any more does not.
        bench.unmap(&mut one, 10..22)?;
        assert_eq!(spaces(&object)?.len(), 2);
        bench.unmap(&mut one, 22..24)?;
        assert_eq!(&*spaces(&object)?, &[second]);
        // Nor does one that is about to map it, though it knows the object already, and knows it still when the last
        // range is gone.
        let room: MapReservation<Content, Value> = MapReservation::to_map(one.handle(), &object)?;
        assert_eq!(&*spaces(&object)?, &[second]);
        bench.map(&mut one, &object, 10..14, 0, 5)?;
        assert_eq!(spaces(&object)?.len(), 2);
        bench.unmap(&mut one, 10..14)?;
        assert_eq!(&*spaces(&object)?, &[second]);
        drop(room);
        assert_eq!(&*spaces(&object)?, &[second]);
        drop(other);
        assert!(spaces(&object)?.is_empty() && spaces(&stranger)?.is_empty());
        Ok(())
    }
}
