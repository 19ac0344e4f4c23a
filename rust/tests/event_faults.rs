// SPDX-License-Identifier: GPL-2.0

//! Faults that wait for the worker of their GPU: how many, whose, and in which order.

use kernel::prelude::*;

use crate::{
    event::faults::{
        Added,
        FaultQueue,
        CAPACITY,
        SHARE, //
    },
    gpu::VmFault,
    hw::ih::{
        Fault,
        Hub, //
    },
};

/// A fault at page `page`.
fn fault(pasid: u16, page: u64) -> VmFault {
    VmFault {
        pasid,
        vmid: 8,
        timestamp: 0,
        fault: Fault {
            hub: Hub::Gfx,
            address: page << 12,
            execute: false,
            write: true,
            read: false,
            retry: false,
            protection: true,
            cam_index: 0,
        },
    }
}

/// What became of a fault.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Kept,
    /// Whose has no place.
    Dropped(u16),
    Full,
}

/// The receiver is the PASID again.
fn add(queue: &mut FaultQueue<u16>, pasid: u16, page: u64) -> Fate {
    match queue.add(pasid, fault(pasid, page)) {
        Added::Kept => Fate::Kept,
        Added::Dropped(old) => Fate::Dropped(old.tenant),
        Added::Full(_) => Fate::Full,
    }
}

/// PASID, page and how many were dropped behind it.
fn take(queue: &mut FaultQueue<u16>) -> Option<(u16, u64, u64)> {
    let taken = queue.take()?;
    assert_eq!(taken.tenant, taken.fault.pasid);
    Some((taken.tenant, taken.fault.fault.address >> 12, taken.dropped))
}

#[kunit_tests(rkfd_event_faults)]
mod cases {
    use super::*;

    #[test]
    fn a_storm_keeps_its_share_and_is_counted() -> Result {
        let mut queue = FaultQueue::new()?;
        for page in 0..1000 {
            let kept = page < u64::try_from(SHARE)?;
            let wanted = if kept { Fate::Kept } else { Fate::Dropped(7) };
            assert_eq!(add(&mut queue, 7, page), wanted);
        }
        // Another one finds room.
        assert_eq!(add(&mut queue, 9, 1), Fate::Kept);
        assert_eq!(take(&mut queue), Some((7, 0, 0)));
        assert_eq!(take(&mut queue), Some((9, 1, 0)));
        let share = u64::try_from(SHARE)?;
        for page in 1..share {
            // The count is behind the last that came before.
            let dropped = if page == share - 1 { 1000 - share } else { 0 };
            assert_eq!(take(&mut queue), Some((7, page, dropped)));
        }
        assert_eq!(take(&mut queue), None);
        // What was counted is not counted again.
        assert_eq!(add(&mut queue, 7, 5), Fate::Kept);
        assert_eq!(take(&mut queue), Some((7, 5, 0)));
        Ok(())
    }

    #[test]
    fn address_spaces_take_turns() -> Result {
        let mut queue = FaultQueue::new()?;
        for page in 0..5 {
            assert_eq!(add(&mut queue, 300, page), Fate::Kept);
        }
        for (pasid, page) in [(2, 10), (0x7fff, 20), (2, 11)] {
            assert_eq!(add(&mut queue, pasid, page), Fate::Kept);
        }
        let mut order = KVec::new();
        while let Some((pasid, page, _)) = take(&mut queue) {
            order.push((pasid, page), GFP_KERNEL)?;
        }
        let wanted = [
            (2, 10),
            (300, 0),
            (0x7fff, 20),
            (2, 11),
            (300, 1),
            (300, 2),
            (300, 3),
            (300, 4),
        ];
        assert_eq!(order.as_slice(), wanted);
        Ok(())
    }

    #[test]
    fn who_comes_late_gets_a_place_of_those_with_most() -> Result {
        let mut queue = FaultQueue::new()?;
        // Four storms fill it.
        for page in 0..u64::try_from(SHARE)? {
            for pasid in 1..=4 {
                assert_eq!(add(&mut queue, pasid, page), Fate::Kept);
            }
        }
        let mut given = [0; 5];
        let mut page = 0;
        // Until it has as many as the others, but for one.
        while let Fate::Dropped(pasid @ 1..=4) = add(&mut queue, 5, page) {
            if let Some(given) = given.get_mut(usize::from(pasid)) {
                *given += 1;
            }
            page += 1;
        }
        assert_eq!(page, u64::try_from(CAPACITY / 5)?);
        assert!(given.iter().skip(1).all(|given| (3..=4).contains(given)));
        // Those that stay are the oldest, and nothing is lost without a count: the last attempt of the loop is one.
        let (mut next, mut dropped) = ([0; 6], [0; 6]);
        while let Some((pasid, page, more)) = take(&mut queue) {
            let index = usize::from(pasid);
            let (next, dropped) = (
                next.get_mut(index).ok_or(EINVAL)?,
                dropped.get_mut(index).ok_or(EINVAL)?,
            );
            assert_eq!(page, *next);
            *next += 1;
            *dropped += more;
        }
        let share = u64::try_from(SHARE)?;
        let sums = next
            .iter()
            .zip(&dropped)
            .map(|(next, dropped)| next + dropped);
        assert!(sums.skip(1).take(4).all(|sum| sum == share));
        assert_eq!((next.last(), dropped.last()), (Some(&page), Some(&1)));
        Ok(())
    }

    #[test]
    fn where_each_has_one_place_the_next_one_is_handed_back() -> Result {
        let mut queue = FaultQueue::new()?;
        let last = u16::try_from(CAPACITY)?;
        for pasid in 1..=last {
            assert_eq!(add(&mut queue, pasid, 1), Fate::Kept);
        }
        assert_eq!(add(&mut queue, last + 1, 1), Fate::Full);
        assert_eq!(add(&mut queue, 1, 2), Fate::Dropped(1));
        assert_eq!(take(&mut queue), Some((1, 1, 1)));
        assert_eq!(add(&mut queue, last + 1, 1), Fate::Kept);
        Ok(())
    }
}
