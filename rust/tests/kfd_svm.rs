// SPDX-License-Identifier: GPL-2.0

//! Attributes of ranges, against a table of pages.

use core::ops::Range;

use kernel::prelude::*;

use crate::kfd::svm::attributes::{
    flags,
    Access,
    Attributes,
    Change,
    List,
    Ranges,
    Summary,
    SYSTEM,
    UNDEFINED, //
};

const PAGE: u64 = 0x1000;
/// Of memory without attributes, where no GPU may access it.
const UNSET: Attributes = Attributes::unset(0);

/// SET_ATTR for pages; whether page tables are to change.
fn set(ranges: &mut Ranges, pages: Range<u64>, changes: &[Change]) -> Result<bool> {
    let room = List::with_capacity(ranges.room(), GFP_KERNEL)?;
    let range = pages.start * PAGE..pages.end * PAGE;
    let done = ranges.change(room, &range, &UNSET, changes);
    done.map(|(_, maps)| maps).map_err(|_| ENOMEM)
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
