// SPDX-License-Identifier: GPL-2.0

//! What is charged: a process's own memory, each page once, and page tables.

use kernel::prelude::*;

use crate::{
    gpu::account::{
        Budget,
        TableBudget, //
    },
    vm::{
        coverage::{
            Boundaries,
            Coverage, //
        },
        UserAccount, //
    },
};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

fn add(coverage: &mut Coverage, start: u64, end: u64) -> Result<u64> {
    Ok(coverage.add(&(start..end), &mut Boundaries::new()?))
}

#[kunit_tests(rkfd_vm_account)]
mod cases {
    use super::*;

    #[test]
    fn what_is_covered_already_does_not_grow_the_union() -> Result {
        let mut coverage = Coverage::new();
        assert_eq!(add(&mut coverage, 10, 20)?, 10);
        assert_eq!(add(&mut coverage, 10, 20)?, 0);
        assert_eq!(add(&mut coverage, 5, 12)?, 5);
        assert_eq!(add(&mut coverage, 30, 40)?, 10);
        // The hole between.
        assert_eq!(add(&mut coverage, 0, 50)?, 5 + 10 + 10);
        assert_eq!(coverage.remove(&(10..20)).0, 0);
        assert_eq!(coverage.remove(&(0..50)).0, 5 + 10 + 10);
        assert_eq!(coverage.remove(&(10..20)).0, 8);
        assert_eq!(coverage.remove(&(5..12)).0, 7);
        assert_eq!(coverage.remove(&(30..40)).0, 10);
        assert_eq!(coverage.boundaries(), 0);
        Ok(())
    }

    #[test]
    fn ranges_that_touch_are_apart() -> Result {
        let mut coverage = Coverage::new();
        assert_eq!(add(&mut coverage, 10, 20)?, 10);
        assert_eq!(add(&mut coverage, 20, 30)?, 10);
        assert_eq!(coverage.boundaries(), 3);
        assert_eq!(coverage.remove(&(10..20)).0, 10);
        assert_eq!(coverage.boundaries(), 2);
        assert_eq!(coverage.remove(&(20..30)).0, 10);
        assert_eq!(coverage.boundaries(), 0);
        Ok(())
    }

    /// Against counts per place.
    #[test]
    fn unions_agree_with_counting_place_by_place() -> Result {
        const PLACES: usize = 48;
        let mut counts = [0u32; PLACES];
        let mut coverage = Coverage::new();
        let mut ranges: KVec<(usize, usize)> = KVec::new();
        let mut seed = 0x2545_f491u32;
        let mut next = |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 17;
            seed ^= seed << 5;
            seed as usize % below
        };
        for _ in 0..3000 {
            if ranges.len() < 12 && next(2) == 0 {
                let start = next(PLACES - 1);
                let end = start + 1 + next(PLACES - 1 - start);
                let places = counts.get_mut(start..end).ok_or(EINVAL)?;
                let want = places.iter().filter(|count| **count == 0).count();
                places.iter_mut().for_each(|count| *count += 1);
                assert_eq!(add(&mut coverage, start as u64, end as u64)?, want as u64);
                ranges.push((start, end), GFP_KERNEL)?;
            } else if !ranges.is_empty() {
                let (start, end) = ranges.remove(next(ranges.len())).map_err(|_| EINVAL)?;
                let places = counts.get_mut(start..end).ok_or(EINVAL)?;
                places.iter_mut().for_each(|count| *count -= 1);
                let want = places.iter().filter(|count| **count == 0).count();
                let (shrunk, _) = coverage.remove(&(start as u64..end as u64));
                assert_eq!(shrunk, want as u64);
            }
        }
        for (start, end) in &ranges {
            drop(coverage.remove(&(*start as u64..*end as u64)));
        }
        assert_eq!(coverage.boundaries(), 0);
        Ok(())
    }

    #[test]
    fn a_page_is_charged_once_however_often_it_is_registered() -> Result {
        let account = UserAccount::new()?;
        let mut charges = KVec::new();
        for _ in 0..100 {
            charges.push(account.charge(0x10_0000..0x10_0000 + MIB)?, GFP_KERNEL)?;
            assert_eq!(account.amount(), MIB);
        }
        let above = account.charge(0x18_0000..0x18_0000 + MIB)?;
        assert_eq!(account.amount(), MIB + MIB / 2);
        drop(charges);
        assert_eq!(account.amount(), MIB);
        drop(above);
        assert_eq!(account.amount(), 0);
        Ok(())
    }

    #[test]
    fn what_the_machine_has_not_is_refused_and_not_charged() -> Result {
        let account = UserAccount::new()?;
        let charge = account.charge(0..PAGE)?;
        assert_eq!(account.charge(0..1 << 60).err(), Some(ENOMEM));
        assert_eq!(account.amount(), PAGE);
        let next = account.charge(PAGE..3 * PAGE)?;
        assert_eq!(account.amount(), 3 * PAGE);
        drop((charge, next));
        assert_eq!(account.amount(), 0);
        Ok(())
    }

    #[test]
    fn a_charge_that_changes_its_size_counts_as_one_part() -> Result {
        let budget = Budget::new(10 * MIB, 2 * MIB)?;
        let mut charge = budget.charge(0)?;
        assert_eq!(budget.available(), 10 * MIB);
        for size in [1, MIB, 2 * MIB, 2 * MIB + 1, 7 * MIB, 3 * MIB, 2 * MIB, 1] {
            charge.resize(size)?;
            let units = size.next_multiple_of(2 * MIB);
            assert_eq!(
                (budget.used(), budget.available()),
                (size, 10 * MIB - units)
            );
        }
        assert_eq!(charge.resize(10 * MIB + 1), Err(ENOMEM));
        assert_eq!((charge.amount(), budget.used()), (1, 1));
        drop(charge);
        assert_eq!((budget.used(), budget.available()), (0, 10 * MIB));
        Ok(())
    }

    #[test]
    fn tables_take_the_reserve_and_then_whole_units_of_what_buffers_have() -> Result {
        let budget = Budget::new(6 * MIB, 2 * MIB)?;
        let tables = TableBudget::new(&budget, 2 * PAGE)?;
        let mut charges = KVec::new();
        for _ in 0..2 {
            charges.push(tables.charge(PAGE)?, GFP_KERNEL)?;
            assert_eq!((budget.used(), budget.available()), (0, 6 * MIB));
        }
        // One more, and as many as fit into the unit that it takes.
        for _ in 0..2 * MIB / PAGE {
            charges.push(tables.charge(PAGE)?, GFP_KERNEL)?;
            assert_eq!((budget.used(), budget.available()), (2 * MIB, 4 * MIB));
        }
        let buffers = budget.charge(3 * MIB)?;
        // Not a whole unit is left.
        assert_eq!(tables.charge(PAGE).err(), Some(ENOMEM));
        assert_eq!(tables.used(), 2 * MIB + 2 * PAGE);
        drop(buffers);
        charges.push(tables.charge(PAGE)?, GFP_KERNEL)?;
        assert_eq!(budget.used(), 4 * MIB);
        drop(charges);
        assert_eq!((tables.used(), budget.used()), (0, 0));
        assert_eq!(budget.available(), 6 * MIB);
        Ok(())
    }
}
