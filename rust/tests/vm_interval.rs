// SPDX-License-Identifier: GPL-2.0

//! The interval map.

use kernel::prelude::*;

use crate::vm::interval::{
    IntervalMap,
    Slot, //
};

fn insert(map: &mut IntervalMap<u32>, start: u64, end: u64, value: u32) -> Result {
    map.insert(Slot::new()?, start..end, value)
}

#[kunit_tests(rkfd_vm_interval)]
mod cases {
    use super::*;

    #[test]
    fn empty_map_finds_nothing() -> Result {
        let mut map = IntervalMap::<u32>::new();
        assert!(map.is_empty());
        assert!(map.containing(0).is_none());
        assert!(map.first_overlap(0..u64::MAX).is_none());
        assert!(map.remove(0).is_none());
        assert!(map.pop_first().is_none());
        assert_eq!(map.iter().count(), 0);
        Ok(())
    }

    #[test]
    fn contains_start_but_not_end() -> Result {
        let mut map = IntervalMap::new();
        insert(&mut map, 0x1000, 0x3000, 7)?;
        assert!(map.containing(0xfff).is_none());
        assert_eq!(map.containing(0x1000), Some((0x1000..0x3000, &7)));
        assert_eq!(map.containing(0x2fff), Some((0x1000..0x3000, &7)));
        assert!(map.containing(0x3000).is_none());
        Ok(())
    }

    #[test]
    fn every_kind_of_overlap_is_refused() -> Result {
        let mut map = IntervalMap::new();
        insert(&mut map, 0x4000, 0x8000, 1)?;
        for (start, end) in [
            (0x4000, 0x8000),
            (0x3000, 0x4001),
            (0x7fff, 0x9000),
            (0x5000, 0x6000),
            (0x0, 0x1_0000),
            (0x4000, 0x4001),
        ] {
            assert_eq!(insert(&mut map, start, end, 2), Err(EINVAL));
            assert_eq!(map.first_overlap(start..end), Some((0x4000..0x8000, &1)));
        }
        assert_eq!(map.len(), 1);
        Ok(())
    }

    #[test]
    fn neighbours_may_touch() -> Result {
        let mut map = IntervalMap::new();
        insert(&mut map, 0x4000, 0x8000, 1)?;
        insert(&mut map, 0x3000, 0x4000, 2)?;
        insert(&mut map, 0x8000, 0x9000, 3)?;
        assert_eq!(map.len(), 3);
        let mut values = KVec::new();
        for (range, value) in map.iter() {
            values.push((range.start, range.end, *value), GFP_KERNEL)?;
        }
        assert_eq!(
            &values[..],
            &[
                (0x3000, 0x4000, 2),
                (0x4000, 0x8000, 1),
                (0x8000, 0x9000, 3)
            ]
        );
        Ok(())
    }

    #[test]
    fn empty_and_reversed_ranges_are_refused() -> Result {
        let mut map = IntervalMap::new();
        assert_eq!(insert(&mut map, 5, 5, 1), Err(EINVAL));
        assert_eq!(insert(&mut map, 6, 5, 1), Err(EINVAL));
        assert!(map.is_empty());
        insert(&mut map, 0, 10, 1)?;
        assert!(map.first_overlap(5..5).is_none());
        Ok(())
    }

    #[test]
    fn first_overlap_is_the_lowest() -> Result {
        let mut map = IntervalMap::new();
        insert(&mut map, 0x3000, 0x4000, 3)?;
        insert(&mut map, 0x1000, 0x2000, 1)?;
        insert(&mut map, 0x5000, 0x6000, 5)?;
        assert_eq!(map.first_overlap(0..u64::MAX), Some((0x1000..0x2000, &1)));
        assert_eq!(
            map.first_overlap(0x2000..0x9000),
            Some((0x3000..0x4000, &3))
        );
        assert!(map.first_overlap(0x2000..0x3000).is_none());
        assert!(map.first_overlap(0x6000..u64::MAX).is_none());
        Ok(())
    }

    #[test]
    fn removal_needs_the_exact_start() -> Result {
        let mut map = IntervalMap::new();
        insert(&mut map, 0x1000, 0x3000, 1)?;
        assert!(map.remove(0x2000).is_none());
        assert!(map.remove(0).is_none());
        assert_eq!(map.remove(0x1000), Some((0x1000..0x3000, 1)));
        assert!(map.is_empty());
        insert(&mut map, 0x2000, 0x3000, 2)?;
        assert_eq!(map.containing(0x2000), Some((0x2000..0x3000, &2)));
        Ok(())
    }

    #[test]
    fn many_ranges_stay_apart() -> Result {
        let mut map = IntervalMap::new();
        // Odd pages in an order that is neither ascending nor descending.
        for i in 0..200u64 {
            let page = (i * 73) % 200;
            let start = page * 0x2000 + 0x1000;
            insert(&mut map, start, start + 0x1000, page as u32)?;
        }
        assert_eq!(map.len(), 200);
        for page in 0..200u64 {
            let start = page * 0x2000 + 0x1000;
            let value = page as u32;
            assert_eq!(
                map.containing(start + 0x800),
                Some((start..start + 0x1000, &value))
            );
            assert!(map.containing(start - 1).is_none());
            assert_eq!(insert(&mut map, start - 1, start + 1, 0), Err(EINVAL));
        }
        let mut last = 0;
        while let Some((range, _)) = map.pop_first() {
            assert!(range.start >= last);
            last = range.end;
        }
        assert_eq!(last, 200 * 0x2000);
        assert!(map.is_empty());
        Ok(())
    }
}
