// SPDX-License-Identifier: GPL-2.0

//! Charges of device memory to control groups. A thread of the kernel is in the root group, whose only limit is that of
//! the counter.

use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

use crate::kapi::{
    dmem::{
        Charge,
        Limit,
        Protection,
        Refused,
        Region, //
    },
    kunit::skip,
};

/// What a group without a limit may have: `PAGE_COUNTER_MAX`.
// CAST: A page size.
const MOST: u64 = i64::MAX as u64 / PAGE_SIZE as u64;

/// A region of its own, where the kernel has groups.
fn region() -> Option<(kernel::sync::Arc<Region>, Charge)> {
    let region = Region::new(c"rkfd/kunit/vram", 1 << 20).expect("no region");
    let root = charge(&region, 0).expect("no group");
    if !root.is_counted() {
        skip(c"the kernel has no groups of device memory");
        return None;
    }
    Some((region, root))
}

fn charge(region: &Region, size: u64) -> Result<Charge> {
    Ok(region.charge(size)?)
}

fn limit(region: &Region, size: u64) -> Option<Limit> {
    match region.charge(size) {
        Err(Refused::Limit(limit)) => Some(limit),
        _ => None,
    }
}

#[kunit_tests(rkfd_kapi_dmem)]
mod suite {
    use super::*;

    #[test]
    fn what_is_charged_counts_until_it_is_dropped() {
        let Some((region, _root)) = region() else {
            return;
        };
        let most = charge(&region, MOST - 4096).expect("the first");
        assert_eq!(most.size(), MOST - 4096);
        assert_eq!(charge(&region, 4097).err(), Some(EAGAIN));
        let last = charge(&region, 4096).expect("the rest");
        // To the byte.
        assert_eq!(charge(&region, 1).err(), Some(EAGAIN));
        drop(last);
        assert_eq!(charge(&region, 4097).err(), Some(EAGAIN));
        drop(charge(&region, 4096).expect("the rest again"));
        drop(most);
        drop(charge(&region, MOST).expect("all"));
    }

    #[test]
    fn the_group_whose_limit_is_hit_is_named() {
        let Some((region, root)) = region() else {
            return;
        };
        let one = limit(&region, MOST + 1).expect("no limit");
        let other = limit(&region, MOST + 2).expect("no limit");
        assert!(one.is(&other));
        // Nothing is left of what was refused.
        drop(charge(&region, MOST).expect("all"));
        // What is charged to the group itself can be taken for it, and for others what has no protection.
        let charged = charge(&region, 1).expect("a byte");
        for limit in [Some(&one), None] {
            assert_eq!(charged.protection(limit, false), Protection::None);
            assert_eq!(charged.protection(limit, true), Protection::None);
        }
        drop(charged);
        // What is nothing is no more than `dmem.min`.
        assert_eq!(root.protection(None, true), Protection::Full);
    }

    #[test]
    fn regions_are_counted_apart() {
        let (Some((first, of_first)), Some((second, of_second))) = (region(), region()) else {
            return;
        };
        let all = charge(&first, MOST).expect("all of one");
        let others = charge(&second, MOST).expect("all of the other");
        assert!(all.is_of_group_of(&of_first) && others.is_of_group_of(&of_second));
        assert!(!all.is_of_group_of(&others));
        assert_eq!(charge(&first, 1).err(), Some(EAGAIN));
    }

    #[test]
    fn a_charge_outlives_its_region() {
        let Some((region, root)) = region() else {
            return;
        };
        let charged = charge(&region, 4096).expect("a page");
        region.unregister();
        region.unregister();
        assert_eq!(charge(&region, 4096).err(), Some(ENODEV));
        assert_eq!(charge(&region, 0).err(), Some(ENODEV));
        drop(region);
        assert!(charged.is_of_group_of(&root));
        drop(charged);
    }

    #[test]
    fn a_region_of_nothing_is_refused() {
        assert_eq!(Region::new(c"rkfd/kunit/none", 0).err(), Some(EINVAL));
    }
}
