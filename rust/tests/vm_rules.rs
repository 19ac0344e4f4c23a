// SPDX-License-Identifier: GPL-2.0

//! Address rules, budgets, and how VRAM is cut when there is no large hole.

use kernel::{
    prelude::*,
    sizes::{
        SZ_2M,
        SZ_8M, //
    },
};

use crate::{
    gpu::account::{
        system_limit,
        Budget, //
    },
    vm::{
        stale::Stale,
        va,
        SizeRule, //
    },
};

/// Counts how often it was dropped.
struct Drops<'a>(&'a core::cell::Cell<u32>);

impl Drop for Drops<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

#[kunit_tests(rkfd_vm_rules)]
mod cases {
    use super::*;

    #[test]
    fn user_range_ends_at_47_bits() -> Result {
        assert_eq!(va::check(0x1_0000, 0x1000), Ok(0x1_0000..0x1_1000));
        assert_eq!(va::check(0xf000, 0x1000), Err(EINVAL));
        assert_eq!(va::check(0, 0x1000), Err(EINVAL));
        let end = 1 << 47;
        assert_eq!(va::check(end - 0x1000, 0x1000), Ok(end - 0x1000..end));
        assert_eq!(va::check(end - 0x1000, 0x2000), Err(EINVAL));
        assert_eq!(va::check(end, 0x1000), Err(EINVAL));
        assert_eq!(va::check(0x1_0000, end - 0x1_0000), Ok(0x1_0000..end));
        assert_eq!(va::check(0x1_0000, end), Err(EINVAL));
        Ok(())
    }

    #[test]
    fn addresses_and_sizes_are_whole_pages() -> Result {
        assert_eq!(va::check(0x1_0001, 0x1000), Err(EINVAL));
        assert_eq!(va::check(0x1_0800, 0x1000), Err(EINVAL));
        assert_eq!(va::check(0x1_0000, 0xfff), Err(EINVAL));
        assert_eq!(va::check(0x1_0000, 0), Err(EINVAL));
        Ok(())
    }

    #[test]
    fn sums_that_overflow_are_refused() -> Result {
        assert_eq!(va::check(u64::MAX - 0xfff, 0x1000), Err(EINVAL));
        assert_eq!(va::check(0x1_0000, u64::MAX - 0xfff), Err(EINVAL));
        Ok(())
    }

    #[test]
    fn exact_rule_wants_the_whole_mapping() -> Result {
        let mapping = || 0x10_0000..0x10_4000;
        assert!(SizeRule::Exact(0x4000).admits(mapping(), 0x10_0000));
        assert!(!SizeRule::Exact(0x3000).admits(mapping(), 0x10_0000));
        assert!(!SizeRule::Exact(0x5000).admits(mapping(), 0x10_0000));
        assert!(!SizeRule::Exact(0x3000).admits(mapping(), 0x10_1000));
        assert!(!SizeRule::Exact(0x4000).admits(mapping(), 0x10_1000));
        Ok(())
    }

    #[test]
    fn least_rule_counts_from_the_address() -> Result {
        let mapping = || 0x10_0000..0x10_4000;
        assert!(SizeRule::AtLeast(8).admits(mapping(), 0x10_3ff8));
        assert!(!SizeRule::AtLeast(9).admits(mapping(), 0x10_3ff8));
        assert!(SizeRule::AtLeast(0x4000).admits(mapping(), 0x10_0000));
        assert!(!SizeRule::AtLeast(0x4001).admits(mapping(), 0x10_0000));
        assert!(!SizeRule::AtLeast(0).admits(mapping(), 0x10_4000));
        assert!(!SizeRule::AtLeast(u64::MAX).admits(mapping(), 0x10_0000));
        Ok(())
    }

    #[test]
    fn budget_counts_bytes_and_tells_whole_units() -> Result {
        let budget = Budget::new(10 * MIB, 2 * MIB)?;
        assert_eq!(budget.available(), 10 * MIB);
        let one = budget.charge(1)?;
        assert_eq!(one.amount(), 1);
        assert_eq!(budget.available(), 8 * MIB);
        let two = budget.charge(2 * MIB + 1)?;
        assert_eq!((budget.used(), budget.available()), (2 * MIB + 2, 4 * MIB));
        assert_eq!(budget.charge(8 * MIB - 1).err(), Some(ENOMEM));
        let rest = budget.charge(8 * MIB - 2)?;
        assert_eq!((budget.used(), budget.available()), (10 * MIB, 0));
        assert_eq!(budget.charge(1).err(), Some(ENOMEM));
        drop((one, rest));
        assert_eq!(budget.available(), 6 * MIB);
        drop(two);
        assert_eq!((budget.used(), budget.available()), (0, 10 * MIB));
        Ok(())
    }

    #[test]
    fn small_parts_take_no_more_than_they_are() -> Result {
        let budget = Budget::new(4 * MIB, 2 * MIB)?;
        let mut parts = KVec::new();
        for _ in 0..100 {
            parts.push(budget.charge(4096)?, GFP_KERNEL)?;
        }
        assert_eq!((budget.used(), budget.available()), (100 * 4096, 0));
        parts.push(budget.charge(4 * MIB - 100 * 4096)?, GFP_KERNEL)?;
        assert_eq!(budget.charge(4096).err(), Some(ENOMEM));
        drop(parts);
        assert_eq!((budget.used(), budget.available()), (0, 4 * MIB));
        Ok(())
    }

    #[test]
    fn refused_charge_takes_nothing() -> Result {
        let budget = Budget::new(3 * MIB, 2 * MIB)?;
        // What is left of a unit is not told of.
        assert_eq!(budget.available(), 2 * MIB);
        assert_eq!(budget.charge(3 * MIB + 1).err(), Some(ENOMEM));
        assert_eq!(budget.charge(u64::MAX).err(), Some(ENOMEM));
        assert_eq!(budget.charge(u64::MAX - 2 * MIB).err(), Some(ENOMEM));
        assert_eq!(budget.used(), 0);
        Ok(())
    }

    #[test]
    fn budget_unit_is_a_power_of_two() -> Result {
        assert_eq!(Budget::new(10, 3).err(), Some(EINVAL));
        assert_eq!(Budget::new(10, 0).err(), Some(EINVAL));
        Ok(())
    }

    #[test]
    fn vram_budget_keeps_room_for_page_tables() -> Result {
        let (huge, reserve) = (SZ_2M as u64, SZ_8M as u64);
        let small = Budget::for_vram(GIB, GIB - MIB)?;
        assert_eq!(small.limit(), GIB - MIB - reserve);
        assert_eq!(small.available() % huge, 0);
        // From 128 GiB on, the reserve grows with the VRAM.
        let large = Budget::for_vram(256 * GIB, 256 * GIB)?;
        assert_eq!(large.limit(), 256 * GIB - 16 * MIB);
        assert_eq!(Budget::for_vram(GIB, MIB)?.available(), 0);
        Ok(())
    }

    #[test]
    fn system_limit_leaves_the_machine_some() -> Result {
        // Small machines give half, large ones all but a fixed part.
        assert_eq!(system_limit(2 * GIB), (2 * GIB - 32 * MIB) / 2);
        assert_eq!(system_limit(64 * GIB), 64 * GIB - GIB - (GIB + GIB / 2));
        Ok(())
    }

    #[test]
    fn memory_comes_back_after_a_flush_or_without_a_device() -> Result {
        for flushed in [Ok(()), Err(ENODEV), Err(EIO)] {
            let drops = core::cell::Cell::new(0);
            let value = Stale::new(Drops(&drops)).settle(flushed, || flushed.is_err());
            assert!(value.is_ok());
            assert_eq!(drops.get(), 0);
            drop(value);
            assert_eq!(drops.get(), 1);
        }
        Ok(())
    }

    #[test]
    fn memory_stays_while_the_device_may_use_it() -> Result {
        let drops = core::cell::Cell::new(0);
        let mut stale = Stale::new(Drops(&drops));
        // `EIO` is also what a queue answers that the firmware has ceased to serve.
        for error in [ETIMEDOUT, EBUSY, EIO, ENODEV] {
            stale = match stale.settle(Err(error), || false) {
                Err((e, stale)) if e == error => stale,
                _ => return Err(EINVAL),
            };
            assert_eq!(drops.get(), 0);
        }
        drop(stale.settle(Ok(()), || false));
        assert_eq!(drops.get(), 1);
        // Who forgets to settle loses the memory, and frees nothing that the device may use.
        drop(Stale::new(Drops(&drops)));
        assert_eq!(drops.get(), 1);
        let _kept = Stale::new(Drops(&drops)).keep();
        assert_eq!(drops.get(), 1);
        Ok(())
    }
}
