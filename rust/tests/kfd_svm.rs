// SPDX-License-Identifier: GPL-2.0

//! Attributes of ranges, against a table of pages.

use core::ops::Range;

use kernel::prelude::*;

use crate::{
    kfd::svm::attributes::{
        flags,
        Access,
        Attributes,
        Change,
        Destination,
        Effect,
        GpuName,
        List,
        Ranges,
        Summary,
        SYSTEM,
        UNDEFINED, //
    },
    mirror::Hint,
};

const PAGE: u64 = 0x1000;
/// Of memory without attributes, where no GPU may access it.
const UNSET: Attributes = Attributes::unset(0);

/// Two GPUs.
const FIRST: GpuName = GpuName {
    id: 0x1111,
    number: 0,
};
const SECOND: GpuName = GpuName {
    id: 0x2222,
    number: 1,
};

/// SET_ATTR for pages; what is to change besides.
fn change(ranges: &mut Ranges, pages: Range<u64>, changes: &[Change]) -> Result<Effect> {
    let room = List::with_capacity(ranges.room(), GFP_KERNEL)?;
    let range = pages.start * PAGE..pages.end * PAGE;
    let done = ranges.change(room, &range, &UNSET, changes);
    done.map(|(_, effect)| effect).map_err(|_| ENOMEM)
}

/// As [`change`]; whether page tables are to change.
fn set(ranges: &mut Ranges, pages: Range<u64>, changes: &[Change]) -> Result<bool> {
    Ok(change(ranges, pages, changes)?.maps)
}

/// Attributes after changes of [`UNSET`].
fn attributes_of(changes: &[Change]) -> Result<Attributes> {
    let mut ranges = Ranges::new();
    set(&mut ranges, 0..1, changes)?;
    let entry = ranges.entries().first().ok_or(ENOENT)?;
    Ok(entry.attributes)
}

/// What moves at once to VRAM.
fn vram(reach: u64) -> Option<Hint> {
    Some(Hint::Vram { reach: Some(reach) })
}

fn remove(ranges: &mut Ranges, pages: Range<u64>) -> bool {
    ranges.remove(&(pages.start * PAGE..pages.end * PAGE))
}

fn summary(ranges: &Ranges, pages: Range<u64>) -> Summary {
    ranges.summary(&(pages.start * PAGE..pages.end * PAGE), &UNSET)
}

/// First and last page of each entry.
fn pages_of(ranges: &Ranges) -> Result<KVec<(u64, u64)>> {
    let mut pages = KVec::new();
    for entry in ranges.entries() {
        pages.push((entry.start / PAGE, entry.end / PAGE), GFP_KERNEL)?;
    }
    Ok(pages)
}

#[kunit_tests(rkfd_kfd_svm)]
mod cases {
    use super::*;

    #[test]
    fn ranges_are_split_and_joined() -> Result {
        let mut ranges = Ranges::new();
        assert!(set(
            &mut ranges,
            10..20,
            &[Change::Access(0, Access::Anywhere)]
        )?);
        assert_eq!(&*pages_of(&ranges)?, &[(10, 20)]);
        // In the midst, at either end, and beyond.
        set(&mut ranges, 13..15, &[Change::SetFlags(flags::GPU_EXEC)])?;
        assert_eq!(&*pages_of(&ranges)?, &[(10, 13), (13, 15), (15, 20)]);
        set(&mut ranges, 18..23, &[Change::Granularity(3)])?;
        assert_eq!(
            &*pages_of(&ranges)?,
            &[(10, 13), (13, 15), (15, 18), (18, 20), (20, 23)]
        );
        // Alike again.
        set(&mut ranges, 13..15, &[Change::ClearFlags(flags::GPU_EXEC)])?;
        assert_eq!(&*pages_of(&ranges)?, &[(10, 18), (18, 20), (20, 23)]);
        // Over gaps and all.
        let all = [
            Change::Access(0, Access::None),
            Change::Granularity(9),
            Change::Preferred(SYSTEM),
        ];
        set(&mut ranges, 5..30, &all)?;
        assert_eq!(&*pages_of(&ranges)?, &[(5, 30)]);
        Ok(())
    }

    #[test]
    fn what_is_unmapped_has_no_attributes() -> Result {
        let mut ranges = Ranges::new();
        set(&mut ranges, 10..20, &[Change::Granularity(1)])?;
        assert!(remove(&mut ranges, 12..14));
        assert_eq!(&*pages_of(&ranges)?, &[(10, 12), (14, 20)]);
        assert!(remove(&mut ranges, 11..16));
        assert_eq!(&*pages_of(&ranges)?, &[(10, 11), (16, 20)]);
        assert!(remove(&mut ranges, 0..10));
        assert!(remove(&mut ranges, 20..90));
        assert_eq!(&*pages_of(&ranges)?, &[(10, 11), (16, 20)]);
        assert!(remove(&mut ranges, 0..100));
        assert_eq!(ranges.entries().len(), 0);
        Ok(())
    }

    #[test]
    fn a_list_without_room_stays_as_it_is() -> Result {
        let mut ranges = Ranges::new();
        let none = List::new();
        let refused = ranges.change(none, &(0..PAGE), &UNSET, &[Change::Granularity(1)]);
        assert!(refused.is_err());
        set(&mut ranges, 0..10_000, &[Change::Granularity(1)])?;
        // Every second page goes, until there is no room to cut any further.
        let mut cuts = 0;
        while remove(&mut ranges, 2 * cuts + 1..2 * cuts + 2) {
            cuts += 1;
        }
        // As much as was spare, at least.
        assert!(cuts >= 64);
        assert_eq!(ranges.entries().len() as u64, cuts + 1);
        let last = ranges
            .entries()
            .last()
            .map(|entry| (entry.start, entry.end));
        assert_eq!(last, Some((2 * cuts * PAGE, 10_000 * PAGE)));
        // Where nothing is cut, none is needed.
        assert!(remove(&mut ranges, 2 * cuts..10_000));
        assert_eq!(ranges.entries().len() as u64, cuts);
        Ok(())
    }

    #[test]
    fn what_parts_have_in_common_is_reported() -> Result {
        let mut ranges = Ranges::new();
        let unset = summary(&ranges, 0..5);
        assert_eq!((unset.preferred, unset.prefetch), (UNDEFINED, UNDEFINED));
        assert_eq!((unset.all_flags, unset.granularity), (0x3, 9));
        assert_eq!(unset.access_of(0), Access::None);
        let first = [
            Change::Preferred(7),
            Change::Prefetch(7),
            Change::Access(0, Access::Anywhere),
            Change::Access(1, Access::InPlace),
            Change::SetFlags(0x18),
            Change::Granularity(100),
        ];
        set(&mut ranges, 10..12, &first)?;
        let one = summary(&ranges, 10..12);
        assert_eq!((one.preferred, one.prefetch), (7, 7));
        assert_eq!((one.all_flags, one.any_flags), (0x1b, 0x1b));
        assert_eq!(one.granularity, 0x3f);
        assert_eq!(one.access_of(0), Access::Anywhere);
        assert_eq!(one.access_of(1), Access::InPlace);
        assert_eq!(one.access_of(2), Access::None);
        let second = [
            Change::Preferred(7),
            Change::Prefetch(SYSTEM),
            Change::Access(0, Access::InPlace),
            Change::Access(1, Access::InPlace),
            Change::ClearFlags(0x1),
            Change::Granularity(4),
        ];
        set(&mut ranges, 12..14, &second)?;
        // What has no attributes of its own does not count.
        let both = summary(&ranges, 0..20);
        assert_eq!((both.preferred, both.prefetch), (7, UNDEFINED));
        assert_eq!((both.all_flags, both.any_flags), (0x2, 0x1b));
        assert_eq!(both.granularity, 4);
        assert_eq!(both.access_of(0), Access::None);
        assert_eq!(both.access_of(1), Access::InPlace);
        Ok(())
    }

    #[test]
    fn page_tables_change_only_where_they_show_it() -> Result {
        let mut ranges = Ranges::new();
        for change in [
            Change::Preferred(7),
            Change::Prefetch(7),
            Change::Granularity(1),
            Change::SetFlags(0x24),
            Change::ClearFlags(0x3),
            Change::Access(0, Access::None),
        ] {
            assert!(!set(&mut ranges, 10..20, &[change])?);
        }
        assert!(set(
            &mut ranges,
            12..13,
            &[Change::Access(3, Access::InPlace)]
        )?);
        assert!(!set(
            &mut ranges,
            12..13,
            &[Change::Access(3, Access::Anywhere)]
        )?);
        for flag in [flags::GPU_RO, flags::GPU_EXEC, flags::GPU_ALWAYS_MAPPED] {
            assert!(set(&mut ranges, 5..15, &[Change::SetFlags(flag)])?);
            assert!(!set(&mut ranges, 5..15, &[Change::SetFlags(flag)])?);
        }
        Ok(())
    }

    #[test]
    fn preference_comes_before_access_in_where_memory_is_to_be() -> Result {
        const HUGE: u64 = 512 * PAGE;
        let both = |access| [Change::Access(0, access), Change::Access(1, access)];
        let of = |access: Access, location: u32| -> Result<(Option<Hint>, Option<Hint>)> {
            let [first, second] = both(access);
            let attributes = attributes_of(&[first, second, Change::Preferred(location)])?;
            Ok((attributes.hint(FIRST), attributes.hint(SECOND)))
        };
        let (here, stay) = (vram(HUGE), Some(Hint::Stay));
        assert_eq!(of(Access::Anywhere, UNDEFINED)?, (here, here));
        assert_eq!(of(Access::InPlace, UNDEFINED)?, (stay, stay));
        assert_eq!(of(Access::None, UNDEFINED)?, (None, None));
        assert_eq!(of(Access::Anywhere, FIRST.id)?, (here, here));
        assert_eq!(of(Access::InPlace, FIRST.id)?, (here, stay));
        assert_eq!(of(Access::None, FIRST.id)?, (None, None));
        let system = Some(Hint::System);
        assert_eq!(of(Access::Anywhere, SYSTEM)?, (system, system));
        assert_eq!(of(Access::InPlace, SYSTEM)?, (system, system));
        // Where accesses do not fault none moves.
        let mapped = [
            Change::Access(0, Access::Anywhere),
            Change::SetFlags(flags::GPU_ALWAYS_MAPPED),
        ];
        assert_eq!(attributes_of(&mapped)?.hint(FIRST), None);
        for (exponent, pages) in [(0, 16), (4, 16), (5, 32), (8, 256), (9, 512), (0x3f, 512)] {
            let changes = [
                Change::Access(0, Access::Anywhere),
                Change::Granularity(exponent),
            ];
            let attributes = attributes_of(&changes)?;
            assert_eq!(attributes.hint(FIRST), vram(pages * PAGE));
            assert_eq!(u32::from(attributes.granularity), exponent);
        }
        Ok(())
    }

    #[test]
    fn what_another_gpu_uses_in_place_is_prefetched_to_the_system() -> Result {
        let of = |other: Access, location: u32, repeats: bool| -> Result<Option<Destination>> {
            let attributes = attributes_of(&[
                Change::Access(0, Access::InPlace),
                Change::Access(1, other),
                Change::Prefetch(location),
            ])?;
            let gpu = (location != SYSTEM).then_some(FIRST);
            Ok(attributes.destination(gpu, repeats))
        };
        let (vram, system) = (Some(Destination::Vram), Some(Destination::System));
        assert_eq!(of(Access::None, FIRST.id, false)?, vram);
        assert_eq!(of(Access::Anywhere, FIRST.id, false)?, system);
        assert_eq!(of(Access::InPlace, FIRST.id, false)?, system);
        assert_eq!(of(Access::None, FIRST.id, true)?, vram);
        assert_eq!(of(Access::Anywhere, FIRST.id, true)?, vram);
        assert_eq!(of(Access::InPlace, FIRST.id, true)?, system);
        assert_eq!(of(Access::None, SYSTEM, false)?, system);
        // What has been unmapped since.
        assert_eq!(UNSET.destination(Some(FIRST), false), None);
        assert_eq!(UNSET.destination(None, false), None);
        Ok(())
    }

    #[test]
    fn places_change_only_where_preference_or_access_does() -> Result {
        let mut ranges = Ranges::new();
        let mut places = |changes: &[Change]| -> Result<bool> {
            Ok(change(&mut ranges, 10..20, changes)?.places)
        };
        assert!(!places(&[Change::Granularity(3), Change::SetFlags(0x18)])?);
        assert!(!places(&[Change::Prefetch(FIRST.id)])?);
        assert!(places(&[Change::Preferred(FIRST.id)])?);
        assert!(!places(&[Change::Preferred(FIRST.id)])?);
        assert!(places(&[Change::Access(1, Access::Anywhere)])?);
        assert!(places(&[Change::Access(1, Access::InPlace)])?);
        assert!(!places(&[Change::Access(1, Access::InPlace)])?);
        assert!(places(&[Change::Access(1, Access::None)])?);
        Ok(())
    }

    #[test]
    fn what_lies_around_an_address_and_is_alike_is_found() -> Result {
        let mut ranges = Ranges::new();
        set(&mut ranges, 10..20, &[Change::Granularity(3)])?;
        set(&mut ranges, 12..14, &[Change::SetFlags(flags::GPU_RO)])?;
        set(&mut ranges, 30..40, &[Change::Granularity(4)])?;
        let around = |page: u64, bounds: Range<u64>| {
            let bounds = bounds.start * PAGE..bounds.end * PAGE;
            let of = |attributes: &Attributes| attributes.granularity;
            let (value, range) = ranges.around(page * PAGE, &bounds, &UNSET, of);
            (value, range.start / PAGE, range.end / PAGE)
        };
        assert_eq!(around(13, 0..64), (3, 10, 20));
        assert_eq!(around(13, 11..15), (3, 11, 15));
        assert_eq!(around(10, 0..64), (3, 10, 20));
        assert_eq!(around(0, 0..64), (9, 0, 10));
        assert_eq!(around(25, 0..64), (9, 20, 30));
        assert_eq!(around(39, 0..64), (4, 30, 40));
        assert_eq!(around(40, 0..64), (9, 40, 64));
        let gap = |page: u64| {
            let gap = ranges.gap(page * PAGE);
            gap.map(|gap| (gap.start / PAGE, gap.end / PAGE))
        };
        assert_eq!(gap(9), Some((0, 10)));
        assert_eq!(gap(10), None);
        assert_eq!(gap(13), None);
        assert_eq!(gap(20), Some((20, 30)));
        assert_eq!(gap(40), Some((40, u64::MAX / PAGE)));
        // Of 16 pages: the first two have something of 10 to 20, the last two of 30 to 40.
        let pieces = |least| ranges.pieces(16 * PAGE, |of| of.granularity >= least);
        assert_eq!((pieces(0), pieces(4), pieces(5)), (3, 2, 0));
        Ok(())
    }

    #[test]
    fn random_changes_agree_with_a_table_of_pages() -> Result {
        const PAGES: usize = 64;
        let mut ranges = Ranges::new();
        let mut table: [Option<Attributes>; PAGES] = [None; PAGES];
        let mut state = 0x2545_f491_4f6c_dd1du64;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 20) % below
        };
        for _ in 0..2000 {
            let start = random(PAGES as u64);
            let end = start + 1 + random(PAGES as u64 - start);
            let flag = 1 << random(8);
            let part = start as usize..end as usize;
            match random(4) {
                0 => {
                    assert!(remove(&mut ranges, start..end));
                    for page in table.get_mut(part).unwrap_or_default() {
                        *page = None;
                    }
                }
                1 => {
                    set(&mut ranges, start..end, &[Change::SetFlags(flag)])?;
                    for page in table.get_mut(part).unwrap_or_default() {
                        page.get_or_insert(UNSET).flags |= flag;
                    }
                }
                _ => {
                    set(&mut ranges, start..end, &[Change::ClearFlags(flag)])?;
                    for page in table.get_mut(part).unwrap_or_default() {
                        page.get_or_insert(UNSET).flags &= !flag;
                    }
                }
            }
            for (number, page) in table.iter().enumerate() {
                let at = number as u64 * PAGE;
                assert_eq!(ranges.meets(&(at..at + PAGE)), page.is_some());
                let (found, end) = ranges.at(&(at..PAGES as u64 * PAGE), &UNSET, |a| a.flags);
                let want = page.unwrap_or(UNSET).flags;
                assert_eq!(found, want);
                // As far as it is the same, and no further.
                let rest = table.get(number..).unwrap_or_default();
                let same = |page: &&Option<Attributes>| page.unwrap_or(UNSET).flags == want;
                let count = rest.iter().take_while(same).count() as u64;
                assert_eq!(end, at + count * PAGE);
            }
            for pair in ranges.entries().windows(2) {
                if let [low, high] = pair {
                    assert!(low.end <= high.start);
                    assert!(low.end < high.start || low.attributes != high.attributes);
                }
            }
        }
        Ok(())
    }
}
