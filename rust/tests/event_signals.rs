// SPDX-License-Identifier: GPL-2.0

//! What signals an event, and what a wait learns of it: ages, interrupts, faults.

use core::cell::Cell;
use kernel::prelude::*;

use super::event_fixtures::{
    memory_fault,
    Page,
    World, //
};
use crate::event::{
    payload::{
        HwExceptionData,
        Payload, //
    },
    table::{
        next_age,
        Kind,
        Status,
        SIGNAL_LIMIT, //
    }, //
};

#[kunit_tests(rkfd_event_age)]
mod age {
    use super::*;

    #[test]
    fn ages_step_by_one_per_signal() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let id = world.auto()?;
        for age in 1..5 {
            let waiter = world.wait_age(&[id], age)?;
            assert_eq!(world.table.status(&waiter, true), Status::Pending);
            world.table.set(id)?;
            assert_eq!(world.table.status(&waiter, true), Status::Complete);
            assert_eq!(world.ages(&waiter), [Some(age + 1), None]);
            world.table.unregister(waiter, false);
        }
        Ok(())
    }

    #[test]
    fn a_missed_signal_completes_the_wait_at_once() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let id = world.auto()?;
        let other = world.wait(&[id])?;
        world.table.set(id)?;
        world.table.unregister(other, false);
        // The signal was consumed, but the age tells that there was one.
        let waiter = world.wait_age(&[id], 1)?;
        assert_eq!(world.table.status(&waiter, true), Status::Complete);
        assert_eq!(world.ages(&waiter), [Some(2), None]);
        world.table.unregister(waiter, false);
        Ok(())
    }

    #[test]
    fn age_zero_asks_for_none_and_gets_none() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let id = world.auto()?;
        world.table.set(id)?;
        assert!(world.is_signalled(id)?);
        let waiter = world.wait(&[id])?;
        assert_eq!(world.table.status(&waiter, true), Status::Pending);
        world.table.set(id)?;
        assert_eq!(world.ages(&waiter), [None, None]);
        world.table.unregister(waiter, false);
        Ok(())
    }

    #[test]
    fn ages_belong_to_signal_events_only() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let memory = world.table.create(Kind::Memory, false)?;
        let waiter = world.wait_age(&[memory], 41)?;
        assert_eq!(world.table.status(&waiter, true), Status::Pending);
        world.table.unregister(waiter, false);
        Ok(())
    }

    #[test]
    fn reserved_ages_do_not_come_again() {
        assert_eq!(next_age(1), 2);
        assert_eq!(next_age(2), 3);
        assert_eq!(next_age(u64::MAX - 1), u64::MAX);
        assert_eq!(next_age(u64::MAX), 2);
    }
}

#[kunit_tests(rkfd_event_interrupt)]
mod interrupt {
    use super::*;

    #[test]
    fn the_slot_selects_the_event() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let page = Page::new();
        let (a, b) = (world.signal()?, world.signal()?);
        page.packet(b);
        assert_eq!(world.interrupt(&page, b), 1);
        assert!(page.idle());
        assert!(world.is_signalled(b)? && !world.is_signalled(a)?);
        Ok(())
    }

    #[test]
    fn an_interrupt_without_a_slot_write_signals_nothing() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let page = Page::new();
        let id = world.signal()?;
        assert_eq!(world.interrupt(&page, id), 0);
        assert!(!world.is_signalled(id)?);
        Ok(())
    }

    #[test]
    fn a_wrong_id_signals_every_written_slot() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let page = Page::new();
        let ids = [world.signal()?, world.signal()?, world.signal()?];
        let [a, b, c] = ids;
        page.packet(a);
        page.packet(c);
        for wrong in [0, 4095, SIGNAL_LIMIT, 0x00ff_ffff, u32::MAX] {
            assert_eq!(
                world.interrupt(&page, wrong),
                if wrong == 0 { 2 } else { 0 }
            );
        }
        assert!(world.is_signalled(a)? && !world.is_signalled(b)? && world.is_signalled(c)?);
        Ok(())
    }

    #[test]
    fn a_late_interrupt_finds_the_slots_of_others() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let page = Page::new();
        let (a, b) = (world.signal()?, world.signal()?);
        page.packet(b);
        // The slot of `a` was consumed by an earlier interrupt.
        assert_eq!(world.interrupt(&page, a), 1);
        assert!(world.is_signalled(b)?);
        Ok(())
    }

    /// A process must not make the interrupts of others late by waits that never end.
    #[test]
    fn interrupts_visit_each_waiter_once() -> Result {
        const WAITERS: usize = 500;
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let page = Page::new();
        let (a, b, never) = (world.signal()?, world.auto()?, world.signal()?);
        let mut waiters = KVVec::new();
        for _ in 0..WAITERS {
            waiters.push(world.wait(&[a, b, never, a])?, GFP_KERNEL)?;
        }
        for round in 0..100 {
            page.packet(a);
            page.packet(b);
            // No event has this id.
            assert_eq!(world.interrupt(&page, 0), 2);
            page.packet(a);
            assert_eq!(world.interrupt(&page, a), 1);
            if round == 50 {
                waiters.push(world.wait(&[never, b])?, GFP_KERNEL)?;
            }
        }
        // By each of two events, and the late one by one.
        assert_eq!(world.table.visits(), 2 * WAITERS + 1);
        let activated_at_once = 1;
        assert_eq!(wakes.get() as usize, 2 * WAITERS + 1 - activated_at_once);
        for waiter in &waiters {
            assert_eq!(world.table.status(waiter, true), Status::Pending);
            assert_eq!(world.table.status(waiter, false), Status::Complete);
        }
        world.table.set(never)?;
        assert_eq!(world.table.visits(), 3 * WAITERS + 2);
        for waiter in waiters {
            assert_eq!(world.table.status(&waiter, true), Status::Complete);
            world.table.unregister(waiter, false);
        }
        Ok(())
    }

    #[test]
    fn slots_without_events_are_left_alone() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let page = Page::new();
        let id = world.signal()?;
        world.table.destroy(id)?;
        page.packet(id);
        assert_eq!(world.interrupt(&page, id), 0);
        assert!(!page.idle());
        Ok(())
    }

    #[test]
    fn debug_events_are_signalled_by_their_slot() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let page = Page::new();
        let id = world.table.create(Kind::Debug, false)?;
        page.packet(id);
        assert_eq!(world.interrupt(&page, id), 1);
        assert!(world.is_signalled(id)?);
        Ok(())
    }
}

#[kunit_tests(rkfd_event_fault)]
mod fault {
    use super::*;

    #[test]
    fn every_memory_event_gets_the_fault() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let first = world.table.create(Kind::Memory, false)?;
        let hardware = world.table.create(Kind::HwException, false)?;
        let second = world.table.create(Kind::Memory, true)?;
        let waiter = world.wait(&[first, hardware, second])?;
        assert_eq!(world.table.raise(memory_fault(0x7000)), 2);
        let mut found = KVec::new();
        for result in world.table.results(&waiter) {
            found.push(result, GFP_KERNEL)?;
        }
        assert_eq!(
            found.as_slice(),
            [(0, memory_fault(0x7000)), (2, memory_fault(0x7000))]
        );
        world.table.unregister(waiter, false);
        assert!(!world.is_signalled(hardware)?);
        Ok(())
    }

    #[test]
    fn a_fault_before_the_wait_is_reported_with_its_data() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let id = world.table.create(Kind::Memory, false)?;
        world.table.raise(memory_fault(0x1000));
        world.table.raise(memory_fault(0x2000));
        let waiter = world.wait(&[id])?;
        let mut results = world.table.results(&waiter);
        assert_eq!(results.next(), Some((0, memory_fault(0x2000))));
        assert_eq!(results.next(), None);
        drop(results);
        world.table.unregister(waiter, false);
        Ok(())
    }

    #[test]
    fn a_lost_gpu_reaches_hardware_exception_events_only() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let memory = world.table.create(Kind::Memory, false)?;
        let hardware = world.table.create(Kind::HwException, false)?;
        let lost = Payload::HwException(HwExceptionData {
            memory_lost: 1,
            gpu_id: 5,
            ..HwExceptionData::default()
        });
        assert_eq!(world.table.raise(lost), 1);
        assert!(world.is_signalled(hardware)? && !world.is_signalled(memory)?);
        Ok(())
    }

    #[test]
    fn nothing_is_raised_without_a_kind() -> Result {
        let wakes = Cell::new(0);
        let mut world = World::new(&wakes);
        let id = world.signal()?;
        assert_eq!(world.table.raise(Payload::None), 0);
        assert_eq!(world.table.raise(Payload::Age(9)), 0);
        assert!(!world.is_signalled(id)?);
        Ok(())
    }
}
