// SPDX-License-Identifier: GPL-2.0

//! Tables by lowest free index.

use kernel::prelude::*;

use crate::kapi::slots::{
    Slots,
    Spare, //
};

#[kunit_tests(rkfd_kapi_slots)]
mod cases {
    use super::*;

    #[test]
    fn slots_give_the_lowest_free_index_from_the_first_on() -> Result {
        let mut slots = Slots::new(3);
        for want in 3..6 {
            assert_eq!(slots.insert(want, 6), Ok(want));
        }
        assert_eq!(slots.insert(9, 6), Err(ENOSPC));
        assert_eq!(slots.remove(4), Some(4));
        assert_eq!(slots.remove(4), None);
        assert_eq!((slots.len(), slots.end()), (2, 6));
        assert_eq!(slots.insert(40, 6), Ok(4));
        assert!(slots.iter().eq([(3, &3), (4, &40), (5, &5)]));
        assert_eq!(slots.get(0), None);
        Ok(())
    }

    #[test]
    fn memory_comes_from_outside() -> Result {
        let mut slots = Slots::new(1);
        assert_eq!(slots.shortage(), Some(2));
        drop(slots.grow(Spare::new(4)?));
        for value in 1..4 {
            assert!(slots.shortage().is_none());
            assert_eq!(slots.insert(value, 100)?, value);
        }
        assert_eq!(slots.shortage(), Some(8));
        assert_eq!(slots.remove(2), Some(2));
        assert!(slots.shortage().is_none());
        drop(slots.grow(Spare::new(8)?));
        // One that comes too late changes nothing.
        drop(slots.grow(Spare::new(2)?));
        assert_eq!(
            (slots.get(1), slots.get(2), slots.get(3)),
            (Some(&1), None, Some(&3))
        );
        assert_eq!(slots.insert(7, 100)?, 2);
        Ok(())
    }
}
