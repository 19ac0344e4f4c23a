// SPDX-License-Identifier: GPL-2.0

//! Arrays of pages, their kernel mapping, and the allocator of ranges.

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

use crate::kapi::{
    kunit::free_memory,
    mappable::Transfer,
    pages::{
        Pages,
        Vmap, //
    },
    range::RangeAllocator, //
};

/// Bytes of which no neighbours are equal and no page repeats another.
fn pattern(at: usize) -> u8 {
    // CAST: Folds the number to a byte.
    (at ^ at >> 8 ^ at >> 16) as u8
}

#[kunit_tests(rkfd_pages)]
mod pages {
    use super::*;

    #[test]
    fn pages_come_zeroed_and_are_distinct() -> Result {
        assert_eq!(Pages::alloc(0).err(), Some(EINVAL));
        // One, and more than one block of each size that is taken at once.
        for count in [1, 17, 513, 1030] {
            let pages = Pages::alloc(count)?;
            assert_eq!((pages.len(), pages.size()), (count, count * PAGE_SIZE));
            let mut frames = KVVec::new();
            for index in 0..count {
                let frame = pages.pfn(index)?;
                assert!(!frames.contains(&frame));
                frames.push(frame, GFP_KERNEL)?;
            }
            assert_eq!(pages.pfn(count).err(), Some(EINVAL));
            let mut bytes = [0xff; 64];
            for index in 0..count {
                pages.copy(index * PAGE_SIZE, Transfer::Read(&mut bytes))?;
                assert_eq!(bytes, [0; 64]);
            }
        }
        Ok(())
    }

    #[test]
    fn pages_go_back_to_the_machine() -> Result {
        const ROUNDS: u64 = 8;
        let count = (32 << 20) / PAGE_SIZE;
        let before = free_memory();
        for _ in 0..ROUNDS {
            drop(Pages::alloc(count)?);
        }
        // Some of the last ones may lie in lists of the processors, and others use memory meanwhile.
        let lost = before.saturating_sub(free_memory());
        assert!(lost < ROUNDS * (32 << 20) / 2);
        Ok(())
    }

    #[test]
    fn copies_cross_pages_and_stop_at_the_end() -> Result {
        let pages = Pages::alloc(3)?;
        let mut bytes = KVec::from_elem(0, PAGE_SIZE + 100, GFP_KERNEL)?;
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = pattern(at);
        }
        let start = PAGE_SIZE - 50;
        pages.copy(start, Transfer::Write(&bytes))?;
        let mut found = KVec::from_elem(0, bytes.len() + 2, GFP_KERNEL)?;
        pages.copy(start - 1, Transfer::Read(&mut found))?;
        assert_eq!((found[0], found[found.len() - 1]), (0, 0));
        assert_eq!(&found[1..found.len() - 1], &bytes[..]);
        // The last byte is there, the one behind it is not.
        let end = pages.size();
        pages.copy(end - 1, Transfer::Write(&[7]))?;
        let mut one = [0];
        pages.copy(end - 1, Transfer::Read(&mut one))?;
        assert_eq!(one, [7]);
        for (offset, len) in [(end, 1), (end - 1, 2), (usize::MAX, 1), (usize::MAX, 2)] {
            assert_eq!(
                pages.copy(offset, Transfer::Read(&mut found[..len])).err(),
                Some(EINVAL)
            );
        }
        // What leaves the pages is refused as a whole.
        let refused = pages.copy(end - 1, Transfer::Write(&[8, 9]));
        assert_eq!(refused.err(), Some(EINVAL));
        pages.copy(end - 1, Transfer::Read(&mut one))?;
        assert_eq!(one, [7]);
        pages.copy(end, Transfer::Read(&mut []))?;
        Ok(())
    }

    #[test]
    fn the_kernel_mapping_shows_the_pages() -> Result {
        let pages = Arc::new(Pages::alloc(2)?, GFP_KERNEL)?;
        let (map, again) = (Vmap::new(pages.clone())?, Vmap::new(pages.clone())?);
        assert_eq!(map.size(), 2 * PAGE_SIZE);
        map.write64(PAGE_SIZE - 8, 0x1122_3344_5566_7788)?;
        map.write64(PAGE_SIZE, 0x99aa_bbcc_ddee_ff00)?;
        assert_eq!(again.read64(PAGE_SIZE - 8)?, 0x1122_3344_5566_7788);
        let mut bytes = [0; 16];
        pages.copy(PAGE_SIZE - 8, Transfer::Read(&mut bytes))?;
        assert_eq!(bytes[7..9], [0x11, 0x00]);
        for offset in [
            2 * PAGE_SIZE,
            2 * PAGE_SIZE - 4,
            4,
            1,
            usize::MAX,
            usize::MAX - 7,
        ] {
            assert_eq!(map.read64(offset).err(), Some(EINVAL));
            assert_eq!(map.write64(offset, 1).err(), Some(EINVAL));
        }
        // It keeps the pages.
        drop((pages, again));
        assert_eq!(map.read64(PAGE_SIZE)?, 0x99aa_bbcc_ddee_ff00);
        Ok(())
    }
}

#[kunit_tests(rkfd_range)]
mod ranges {
    use super::*;

    #[test]
    fn spaces_that_cannot_be_are_refused() -> Result {
        assert_eq!(RangeAllocator::new(0, 0).err(), Some(EINVAL));
        assert_eq!(RangeAllocator::new(1, u64::MAX).err(), Some(EINVAL));
        let space = RangeAllocator::new(10, 5)?;
        assert_eq!(space.alloc(0).err(), Some(EINVAL));
        assert_eq!(space.alloc(6).err(), Some(ENOSPC));
        assert_eq!(space.alloc(u64::MAX).err(), Some(ENOSPC));
        let all = space.alloc(5)?;
        assert_eq!((all.start(), all.size()), (10, 5));
        assert_eq!(space.alloc(1).err(), Some(ENOSPC));
        Ok(())
    }

    #[test]
    fn ranges_come_from_the_lowest_hole_and_go_back() -> Result {
        let space = RangeAllocator::new(16, 64)?;
        let (first, second) = (space.alloc(3)?, space.alloc(13)?);
        assert_eq!((first.start(), second.start()), (16, 19));
        let third = space.alloc(40)?;
        assert_eq!((third.start(), third.size()), (32, 40));
        drop(first);
        // Too large for the hole.
        assert_eq!(space.alloc(4)?.start(), 72);
        assert_eq!(space.alloc(3)?.start(), 16);
        drop(second);
        assert_eq!(space.alloc(16)?.start(), 16);
        // What is taken keeps the space.
        drop(space);
        assert_eq!(third.size(), 40);
        Ok(())
    }
}
