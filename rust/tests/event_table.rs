// SPDX-License-Identifier: GPL-2.0

//! Ids of events, and waits as a state machine, without threads.

use core::cell::Cell;
use kernel::prelude::*;

use super::event_fixtures::{
    World, //
};
use crate::event::{
    table::{
        Kind,
        Status,
        FIRST_OTHER_ID,
        SIGNAL_LIMIT, //
    }, //
};

#[kunit_tests(rkfd_event_ids)]
mod ids {
    use super::*;

    #[test]
    fn signal_ids_begin_at_one_and_fill_holes() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        assert_eq!(world.signal(), Ok(1));
        assert_eq!(world.signal(), Ok(2));
        assert_eq!(world.table.create(Kind::Debug, false), Ok(3));
        world.table.destroy(2)?;
        assert_eq!(world.signal(), Ok(2));
        assert_eq!(world.signal(), Ok(4));
        Ok(())
    }

    #[test]
    fn other_ids_have_a_range_of_their_own() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        assert_eq!(world.table.create(Kind::Memory, false), Ok(FIRST_OTHER_ID));
        assert_eq!(
            world.table.create(Kind::HwException, false),
            Ok(FIRST_OTHER_ID + 1)
        );
        assert_eq!(
            world.table.create(Kind::Other(7), false),
            Ok(FIRST_OTHER_ID + 2)
        );
        assert_eq!(world.signal(), Ok(1));
        assert_eq!(world.table.signal_count(), 1);
        assert_eq!(world.table.len(), 4);
        Ok(())
    }

    #[test]
    fn the_page_is_full_after_4095_events() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        for id in 1..SIGNAL_LIMIT {
            assert_eq!(world.signal(), Ok(id));
        }
        assert_eq!(world.signal(), Err(ENOSPC));
        world.table.destroy(4095)?;
        assert_eq!(world.signal(), Ok(4095));
        Ok(())
    }

    #[test]
    fn unknown_ids_are_refused() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let id = world.signal()?;
        for wrong in [0, id + 1, SIGNAL_LIMIT, FIRST_OTHER_ID, u32::MAX] {
            assert_eq!(world.table.set(wrong), Err(EINVAL));
            assert_eq!(world.table.reset(wrong), Err(EINVAL));
            assert_eq!(world.table.destroy(wrong), Err(EINVAL));
            assert_eq!(world.wait(&[id, wrong]).err(), Some(EINVAL));
        }
        Ok(())
    }

    #[test]
    fn only_signal_events_are_set_by_the_cpu() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        for kind in [Kind::Debug, Kind::Memory, Kind::HwException, Kind::Other(1)] {
            let id = world.table.create(kind, false)?;
            assert_eq!(world.table.set(id), Err(EINVAL));
            assert_eq!(world.table.reset(id), Err(EINVAL));
        }
        Ok(())
    }

    #[test]
    fn kinds_by_number() {
        assert_eq!(Kind::from_user(0), Kind::Signal);
        assert_eq!(Kind::from_user(3), Kind::HwException);
        assert_eq!(Kind::from_user(5), Kind::Debug);
        assert_eq!(Kind::from_user(8), Kind::Memory);
        assert_eq!(Kind::from_user(99), Kind::Other(99));
        assert!(Kind::Debug.has_slot() && !Kind::Memory.has_slot());
    }
}

#[kunit_tests(rkfd_event_wait)]
mod wait {
    use super::*;

    #[test]
    fn a_set_event_stays_set() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let id = world.signal()?;
        assert!(!world.is_signalled(id)?);
        world.table.set(id)?;
        assert!(world.is_signalled(id)?);
        assert!(world.is_signalled(id)?);
        world.table.reset(id)?;
        assert!(!world.is_signalled(id)?);
        Ok(())
    }

    #[test]
    fn an_auto_reset_event_is_consumed_once() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let id = world.auto()?;
        world.table.set(id)?;
        world.table.set(id)?;
        assert!(world.is_signalled(id)?);
        assert!(!world.is_signalled(id)?);
        Ok(())
    }

    #[test]
    fn an_auto_reset_event_wakes_all_who_wait_and_none_later() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let id = world.auto()?;
        let first = world.wait(&[id])?;
        let second = world.wait(&[id])?;
        world.table.set(id)?;
        assert_eq!(wakes.get(), 2);
        assert_eq!(world.table.status(&first, true), Status::Complete);
        assert_eq!(world.table.status(&second, true), Status::Complete);
        assert!(!world.is_signalled(id)?);
        // Nobody waits any more: the next signal is kept.
        world.table.set(id)?;
        assert!(world.is_signalled(id)?);
        world.table.unregister(first, false);
        world.table.unregister(second, false);
        Ok(())
    }

    #[test]
    fn any_needs_one_and_all_needs_every_entry() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let (a, b) = (world.signal()?, world.signal()?);
        let waiter = world.wait(&[a, b])?;
        assert_eq!(world.table.status(&waiter, false), Status::Pending);
        world.table.set(b)?;
        assert_eq!(world.table.status(&waiter, false), Status::Complete);
        assert_eq!(world.table.status(&waiter, true), Status::Pending);
        world.table.set(a)?;
        assert_eq!(world.table.status(&waiter, true), Status::Complete);
        world.table.unregister(waiter, false);
        Ok(())
    }

    #[test]
    fn an_empty_list_is_complete_for_all_and_any() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let waiter = world.wait(&[])?;
        assert_eq!(world.table.status(&waiter, true), Status::Complete);
        assert_eq!(world.table.status(&waiter, false), Status::Complete);
        world.table.unregister(waiter, false);
        Ok(())
    }

    #[test]
    fn an_entry_remembers_its_signal_after_a_reset() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let id = world.signal()?;
        let waiter = world.wait(&[id])?;
        world.table.set(id)?;
        world.table.reset(id)?;
        assert_eq!(world.table.status(&waiter, true), Status::Complete);
        assert!(!world.is_signalled(id)?);
        world.table.unregister(waiter, false);
        Ok(())
    }

    #[test]
    fn destroying_an_event_fails_its_waits_and_no_others() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let (a, b) = (world.signal()?, world.signal()?);
        let both = world.wait(&[a, b])?;
        let other = world.wait(&[b])?;
        world.table.destroy(a)?;
        assert_eq!(wakes.get(), 1);
        assert_eq!(world.table.status(&both, false), Status::Failed);
        assert_eq!(world.table.status(&other, false), Status::Pending);
        world.table.unregister(both, false);
        world.table.unregister(other, false);
        Ok(())
    }

    #[test]
    fn a_new_event_with_an_old_id_wakes_no_old_waiter() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let id = world.signal()?;
        let old = world.wait(&[id])?;
        world.table.destroy(id)?;
        assert_eq!(world.signal(), Ok(id));
        wakes.set(0);
        world.table.set(id)?;
        assert_eq!(wakes.get(), 0);
        assert_eq!(world.table.status(&old, false), Status::Failed);
        world.table.unregister(old, false);
        Ok(())
    }

    #[test]
    fn a_refused_list_consumes_nothing() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let id = world.auto()?;
        world.table.set(id)?;
        assert_eq!(world.wait(&[id, 999]).err(), Some(EINVAL));
        assert!(world.is_signalled(id)?);
        Ok(())
    }

    #[test]
    fn an_interrupted_wait_gives_back_what_it_consumed() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let (auto, never) = (world.auto()?, world.signal()?);
        world.table.set(auto)?;
        let waiter = world.wait(&[auto, never])?;
        assert_eq!(world.table.status(&waiter, true), Status::Pending);
        world.table.unregister(waiter, true);
        assert!(world.is_signalled(auto)?);
        // Without that it is gone.
        world.table.set(auto)?;
        let waiter = world.wait(&[auto, never])?;
        world.table.unregister(waiter, false);
        assert!(!world.is_signalled(auto)?);
        Ok(())
    }

    #[test]
    fn waiters_leave_in_any_order() -> Result {
        let wakes = Cell::new(0);
        for leaves in 0..4 {
            let mut world = World::new(&wakes);
            let (id, never) = (world.signal()?, world.signal()?);
            let mut waiters = KVec::new();
            for _ in 0..4 {
                waiters.push(world.wait(&[id, never, id])?, GFP_KERNEL)?;
            }
            let gone = waiters.remove(leaves).map_err(|_| EINVAL)?;
            world.table.unregister(gone, false);
            waiters.push(world.wait(&[never, id])?, GFP_KERNEL)?;
            wakes.set(0);
            world.table.set(id)?;
            world.table.set(id)?;
            assert_eq!(wakes.get(), 4);
            for waiter in &waiters {
                assert_eq!(world.table.status(waiter, false), Status::Complete);
                assert_eq!(world.table.status(waiter, true), Status::Pending);
            }
            world.table.set(never)?;
            while let Some(waiter) = waiters.pop() {
                assert_eq!(world.table.status(&waiter, true), Status::Complete);
                world.table.unregister(waiter, false);
            }
            world.table.set(id)?;
            world.table.destroy(id)?;
        }
        Ok(())
    }

    /// Waiters on `id` that leave after some have heard of it, from the lists of both kinds.
    #[test]
    fn waiters_leave_in_any_order_between_signals() -> Result {
        let wakes = Cell::new(0);
        for leaves in 0..9 {
            for signals in 0..4 {
                let mut world = World::new(&wakes);
                let (id, never) = (world.signal()?, world.signal()?);
                let mut waiters = KVec::new();
                for round in 0..3 {
                    for _ in 0..3 {
                        waiters.push(world.wait(&[never, id])?, GFP_KERNEL)?;
                    }
                    if round < signals {
                        world.table.set(id)?;
                        world.table.reset(id)?;
                    }
                }
                let gone = waiters.remove(leaves).map_err(|_| EINVAL)?;
                world.table.unregister(gone, false);
                // Who has heard hears no more; who has not does.
                let asleep = 3 * (3 - signals.min(3)) - usize::from(leaves / 3 >= signals);
                wakes.set(0);
                let visits = world.table.visits();
                world.table.set(id)?;
                assert_eq!(wakes.get() as usize, asleep);
                assert_eq!(world.table.visits() - visits, asleep);
                for waiter in &waiters {
                    assert_eq!(world.table.status(waiter, false), Status::Complete);
                    assert_eq!(world.table.status(waiter, true), Status::Pending);
                }
                // All that are left are in the list of those that have heard, each once.
                wakes.set(0);
                world.table.destroy(id)?;
                assert_eq!(wakes.get(), 8);
                for waiter in &waiters {
                    assert_eq!(world.table.status(waiter, false), Status::Failed);
                }
                while let Some(waiter) = waiters.pop() {
                    world.table.unregister(waiter, true);
                }
                wakes.set(0);
                world.table.destroy(never)?;
                assert_eq!(wakes.get(), 0);
            }
        }
        Ok(())
    }

    #[test]
    fn destroying_an_event_fails_who_has_heard_and_who_has_not() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let (id, never) = (world.signal()?, world.signal()?);
        let heard = world.wait(&[id, never, id])?;
        world.table.set(id)?;
        world.table.reset(id)?;
        let waits = world.wait(&[id, never])?;
        wakes.set(0);
        world.table.destroy(id)?;
        assert_eq!(wakes.get(), 2);
        assert_eq!(world.signal(), Ok(id));
        let next = world.wait(&[id])?;
        for waiter in [heard, waits] {
            assert_eq!(world.table.status(&waiter, false), Status::Failed);
            world.table.unregister(waiter, true);
        }
        // They did not take the next event of the same id along.
        wakes.set(0);
        world.table.set(id)?;
        assert_eq!(wakes.get(), 1);
        assert_eq!(world.table.status(&next, true), Status::Complete);
        world.table.unregister(next, false);
        Ok(())
    }

    #[test]
    fn a_repeated_signal_is_kept_though_those_that_heard_the_first_stay() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let (id, never) = (world.auto()?, world.signal()?);
        let waiter = world.wait(&[id, never])?;
        world.table.set(id)?;
        assert!(!world.is_signalled(id)?);
        world.table.set(id)?;
        assert_eq!(wakes.get(), 1);
        assert!(world.is_signalled(id)?);
        assert_eq!(world.table.status(&waiter, true), Status::Pending);
        // Interrupted, it gives its own back as well.
        world.table.unregister(waiter, true);
        assert!(world.is_signalled(id)?);
        assert!(!world.is_signalled(id)?);
        Ok(())
    }

    #[test]
    fn a_long_list_of_one_event_wakes_once() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let id = world.auto()?;
        let never = world.signal()?;
        let mut ids = KVVec::from_elem(id, 4096, GFP_KERNEL)?;
        *ids.last_mut().ok_or(EINVAL)? = never;
        let waiter = world.wait(&ids)?;
        world.table.set(id)?;
        assert_eq!(wakes.get(), 1);
        assert_eq!(world.table.status(&waiter, true), Status::Pending);
        world.table.set(never)?;
        assert_eq!(world.table.status(&waiter, true), Status::Complete);
        world.table.unregister(waiter, true);
        assert!(world.is_signalled(id)?);
        Ok(())
    }

    #[test]
    fn a_wait_has_nothing_to_do_with_the_next_event_of_the_same_id() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let id = world.auto()?;
        world.table.set(id)?;
        let waiter = world.wait(&[id, id])?;
        world.table.destroy(id)?;
        assert_eq!(world.table.status(&waiter, false), Status::Failed);
        assert_eq!(world.auto()?, id);
        let other = world.wait(&[id])?;
        world.table.unregister(waiter, true);
        assert_eq!(world.table.status(&other, true), Status::Pending);
        world.table.set(id)?;
        assert_eq!(world.table.status(&other, true), Status::Complete);
        world.table.unregister(other, false);
        Ok(())
    }

    #[test]
    fn an_event_named_twice_counts_twice() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let id = world.auto()?;
        let waiter = world.wait(&[id, id])?;
        world.table.set(id)?;
        assert_eq!(world.table.status(&waiter, true), Status::Complete);
        world.table.unregister(waiter, false);
        // A signal that was there before is taken by the first entry alone.
        world.table.set(id)?;
        let waiter = world.wait(&[id, id])?;
        assert_eq!(world.table.status(&waiter, false), Status::Complete);
        assert_eq!(world.table.status(&waiter, true), Status::Pending);
        world.table.unregister(waiter, false);
        Ok(())
    }

    #[test]
    fn a_waiter_that_left_is_not_woken() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let id = world.signal()?;
        let waiter = world.wait(&[id])?;
        world.table.unregister(waiter, false);
        world.table.set(id)?;
        assert_eq!(wakes.get(), 0);
        Ok(())
    }

    #[test]
    fn clear_fails_every_wait() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let signal = world.signal()?;
        let memory = world.table.create(Kind::Memory, false)?;
        let waiter = world.wait(&[signal, memory])?;
        world.table.clear();
        assert_eq!(world.table.status(&waiter, false), Status::Failed);
        assert_eq!(world.table.len(), 0);
        world.table.unregister(waiter, false);
        Ok(())
    }
}
