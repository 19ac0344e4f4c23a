// SPDX-License-Identifier: GPL-2.0

//! Events and waits as a state machine, without threads.

use core::cell::Cell;
use kernel::prelude::*;

use crate::event::{
    payload::{
        HwExceptionData,
        MemoryExceptionData,
        Payload, //
    },
    slots::{
        Slots,
        Spare, //
    },
    table::{
        next_age,
        Kind,
        Room,
        SignalPage,
        Status,
        Table,
        WaitItem,
        WaiterId,
        Wake,
        FIRST_OTHER_ID,
        IDLE_SLOT,
        SIGNAL_LIMIT, //
    },
};

/// Counts wake-ups.
#[derive(Clone, Copy)]
struct Counter<'a>(&'a Cell<u32>);

impl Wake for Counter<'_> {
    fn wake(&self) {
        self.0.set(self.0.get() + 1);
    }
}

/// A signal page of a few slots; the others read as idle.
struct Page([Cell<u64>; 8]);

impl Page {
    fn new() -> Self {
        Self([const { Cell::new(IDLE_SLOT) }; 8])
    }

    /// What a RELEASE_MEM of 32 bits leaves.
    fn packet(&self, id: u32) {
        if let Some(slot) = self.0.get(crate::hw::num::index(id)) {
            slot.set(0xffff_ffff_0000_0000 | u64::from(id));
        }
    }

    fn idle(&self) -> bool {
        self.0.iter().all(|slot| slot.get() == IDLE_SLOT)
    }
}

impl SignalPage for Page {
    fn load(&self, slot: u32) -> u64 {
        self.0
            .get(crate::hw::num::index(slot))
            .map_or(IDLE_SLOT, Cell::get)
    }

    fn set_idle(&self, slot: u32) {
        if let Some(slot) = self.0.get(crate::hw::num::index(slot)) {
            slot.set(IDLE_SLOT);
        }
    }
}

/// A table with its wake counter.
struct World<'a> {
    table: Table<Counter<'a>>,
    wakes: &'a Cell<u32>,
}

impl<'a> World<'a> {
    fn new(wakes: &'a Cell<u32>) -> Self {
        Self {
            table: Table::new(),
            wakes,
        }
    }

    fn signal(&mut self) -> Result<u32> {
        self.table.create(Kind::Signal, false)
    }

    fn auto(&mut self) -> Result<u32> {
        self.table.create(Kind::Signal, true)
    }

    fn wait(&mut self, ids: &[u32]) -> Result<WaiterId> {
        self.wait_age(ids, 0)
    }

    fn wait_age(&mut self, ids: &[u32], last_age: u64) -> Result<WaiterId> {
        let mut items = KVec::new();
        for id in ids {
            items.push(WaitItem { id: *id, last_age }, GFP_KERNEL)?;
        }
        let room = Room::new(items.len())?;
        self.table.register(&items, room, Counter(self.wakes))
    }

    /// Whether a wait on `id` alone would end at once; leaves nothing behind but consumes.
    fn is_signalled(&mut self, id: u32) -> Result<bool> {
        let waiter = self.wait(&[id])?;
        let status = self.table.status(&waiter, true);
        self.table.unregister(waiter, false);
        Ok(status == Status::Complete)
    }

    fn ages(&self, waiter: &WaiterId) -> [Option<u64>; 2] {
        let mut ages = [None; 2];
        for (position, payload) in self.table.results(waiter) {
            if let (Some(age), Payload::Age(value)) = (ages.get_mut(position), payload) {
                *age = Some(value);
            }
        }
        ages
    }
}

fn memory_fault(va: u64) -> Payload {
    Payload::Memory(MemoryExceptionData {
        not_present: 1,
        va,
        gpu_id: 77,
        ..MemoryExceptionData::default()
    })
}

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
        assert_eq!(world.table.interrupt(&page, b), 1);
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
        assert_eq!(world.table.interrupt(&page, id), 0);
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
                world.table.interrupt(&page, wrong),
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
        assert_eq!(world.table.interrupt(&page, a), 1);
        assert!(world.is_signalled(b)?);
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
        assert_eq!(world.table.interrupt(&page, id), 0);
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
        assert_eq!(world.table.interrupt(&page, id), 1);
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
