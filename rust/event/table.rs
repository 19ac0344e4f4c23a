// SPDX-License-Identifier: GPL-2.0

//! The events of one process and their waiters, as pure state.
//!
//! Terms: an *event* is signalled by the GPU (through its slot in the signal page and an interrupt), by
//! the CPU (SET_EVENT) or by the driver (faults, resets). A *waiter* is one WAIT_EVENTS call; it
//! has one *entry* per event of its list. Signalling an event *activates* the entries that wait for it.
//! An auto-reset event is consumed by the waiters that it activates. The *age* of an event counts its
//! signals, so that a caller that missed one notices.
//!
//! No lock and no clock in here: [`Events`](super::Events) owns the lock, and unit tests own a table.

use super::payload::Payload;
use crate::kapi::slots::{
    Slots,
    Spare, //
};
use kernel::prelude::*;

mod waiters;

use self::waiters::{
    Lists,
    Waiter,
    Waiters, //
};
pub(crate) use self::waiters::{
    WaitEntries,
    Wake, //
};

/// Slots in the signal page, hence one more than the number of signal events; id 0 is never given out,
/// because interrupts without a context id carry 0.
pub(crate) const SIGNAL_LIMIT: u32 = 4096;
/// Ids of events without a slot start here.
pub(crate) const FIRST_OTHER_ID: u32 = 0x4000_0000;
/// Bound on events without a slot, against exhaustion of kernel memory.
pub(crate) const OTHER_LIMIT: u32 = 65536;
/// Content of a slot that no packet has written.
pub(crate) const IDLE_SLOT: u64 = u64::MAX;

/// What an event stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Signalled by GPU packets and by SET_EVENT; has a slot.
    Signal,
    /// As `Signal`, but not by SET_EVENT.
    Debug,
    /// GPU reset or hang.
    HwException,
    /// Memory fault.
    Memory,
    /// Accepted and never signalled.
    Other(u32),
}

impl Kind {
    /// From the number that user space gives.
    pub(crate) fn from_user(value: u32) -> Self {
        match value {
            0 => Self::Signal,
            3 => Self::HwException,
            5 => Self::Debug,
            8 => Self::Memory,
            other => Self::Other(other),
        }
    }

    /// Whether the event has a slot in the signal page and an id below [`SIGNAL_LIMIT`].
    pub(crate) fn has_slot(self) -> bool {
        matches!(self, Self::Signal | Self::Debug)
    }

    /// Whether SET_EVENT and RESET_EVENT apply (upstream: the signal type alone).
    pub(crate) fn by_cpu(self) -> bool {
        self == Self::Signal
    }
}

/// The signal page, as far as this module needs it.
pub(crate) trait SignalPage {
    /// Reads slot `slot` (below [`SIGNAL_LIMIT`]).
    fn load(&self, slot: u32) -> u64;
    /// Makes slot `slot` idle again.
    fn set_idle(&self, slot: u32);
}

/// One item of a wait list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitItem {
    /// Event id.
    pub(crate) id: u32,
    /// The age that the caller saw last; 0: the caller does not use ages.
    pub(crate) last_age: u64,
}

/// Where a wait stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// The condition holds.
    Complete,
    /// Not yet.
    Pending,
    /// An event of the list was destroyed.
    Failed,
}

/// Handle of a registered waiter.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a waiter stays registered until it is removed"]
pub(crate) struct WaiterId(u32);

/// An event; made and seen by [`Table`] only.
pub(crate) struct Event {
    kind: Kind,
    auto_reset: bool,
    signalled: bool,
    age: u64,
    payload: Payload,
    lists: Lists,
}

/// The events of one process.
pub(crate) struct Table<W> {
    /// Index is the id.
    signals: Slots<Event>,
    /// Index is the id minus [`FIRST_OTHER_ID`].
    others: Slots<Event>,
    waiters: Waiters<W>,
}

impl<W: Wake> Table<W> {
    /// An empty table.
    pub(crate) const fn new() -> Self {
        Self {
            signals: Slots::new(1),
            others: Slots::new(0),
            waiters: Waiters::new(),
        }
    }

    /// Number of events with a slot.
    #[cfg_attr(not(rkfd_kunit), expect(dead_code, reason = "seen by tests"))]
    pub(crate) fn signal_count(&self) -> usize {
        self.signals.len()
    }

    /// Number of all events.
    #[cfg_attr(not(rkfd_kunit), expect(dead_code, reason = "seen by tests"))]
    pub(crate) fn len(&self) -> usize {
        self.signals.len() + self.others.len()
    }

    /// How often signals have looked at a waiter so far.
    #[cfg(rkfd_kunit)]
    pub(crate) fn visits(&self) -> usize {
        self.waiters.visits()
    }

    fn events_like(&mut self, kind: Kind) -> &mut Slots<Event> {
        if kind.has_slot() {
            &mut self.signals
        } else {
            &mut self.others
        }
    }

    /// What [`Self::grow_events`] has to be given so that [`Self::create`] allocates nothing.
    pub(crate) fn event_shortage(&mut self, kind: Kind) -> Option<usize> {
        self.events_like(kind).shortage()
    }

    /// Takes memory for more events; returns memory to be freed.
    pub(crate) fn grow_events(&mut self, kind: Kind, spare: Spare<Event>) -> Spare<Event> {
        self.events_like(kind).grow(spare)
    }

    /// What [`Self::grow_waiters`] has to be given so that [`Self::register`] allocates nothing.
    pub(crate) fn waiter_shortage(&self) -> Option<usize> {
        self.waiters.shortage()
    }

    /// Takes memory for more waiters; returns memory to be freed.
    pub(crate) fn grow_waiters(&mut self, spare: Spare<Waiter<W>>) -> Spare<Waiter<W>> {
        self.waiters.grow(spare)
    }

    /// Creates an event and returns its id, the lowest free one of its range.
    ///
    /// # Errors
    ///
    /// - `ENOSPC`: no id left.
    /// - `ENOMEM`: no memory.
    pub(crate) fn create(&mut self, kind: Kind, auto_reset: bool) -> Result<u32> {
        let event = Event {
            kind,
            auto_reset,
            signalled: false,
            age: 1,
            payload: Payload::None,
            lists: Lists::new(),
        };
        if kind.has_slot() {
            let slot = self.signals.insert(event, SIGNAL_LIMIT)?;
            Ok(slot)
        } else {
            let index = self.others.insert(event, OTHER_LIMIT)?;
            Ok(FIRST_OTHER_ID + index)
        }
    }

    fn with_waiters(&mut self, id: u32) -> Option<(&mut Event, &mut Waiters<W>)> {
        let event = match id.checked_sub(FIRST_OTHER_ID) {
            Some(index) => self.others.get_mut(index),
            None => self.signals.get_mut(id),
        };
        Some((event?, &mut self.waiters))
    }

    fn event_mut(&mut self, id: u32) -> Option<&mut Event> {
        self.with_waiters(id).map(|(event, _)| event)
    }

    fn event(&self, id: u32) -> Option<&Event> {
        match id.checked_sub(FIRST_OTHER_ID) {
            Some(index) => self.others.get(index),
            None => self.signals.get(id),
        }
    }

    /// The kind of event `id`.
    pub(crate) fn kind(&self, id: u32) -> Option<Kind> {
        self.event(id).map(|e| e.kind)
    }

    /// Destroys an event. Waits that name it fail.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no such event.
    pub(crate) fn destroy(&mut self, id: u32) -> Result {
        let event = match id.checked_sub(FIRST_OTHER_ID) {
            Some(index) => self.others.remove(index),
            None => self.signals.remove(id),
        }
        .ok_or(EINVAL)?;
        self.waiters.fail(event.lists);
        Ok(())
    }

    /// Signals event `id` whatever its kind, storing `payload` first if there is one.
    fn signal(&mut self, id: u32, payload: Payload) {
        let Some((event, waiters)) = self.with_waiters(id) else {
            return;
        };
        if payload != Payload::None {
            event.payload = payload;
        }
        event.age = next_age(event.age);
        // An auto-reset event that found a waiter was consumed.
        let taken = waiters.signal(&mut event.lists);
        event.signalled = !(event.auto_reset && taken);
    }

    /// SET_EVENT.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no such event, or not one that the CPU signals.
    pub(crate) fn set(&mut self, id: u32) -> Result {
        if !self.kind(id).ok_or(EINVAL)?.by_cpu() {
            return Err(EINVAL);
        }
        self.signal(id, Payload::None);
        Ok(())
    }

    /// RESET_EVENT.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no such event, or not one that the CPU signals.
    pub(crate) fn reset(&mut self, id: u32) -> Result {
        let event = self.event_mut(id).ok_or(EINVAL)?;
        if !event.kind.by_cpu() {
            return Err(EINVAL);
        }
        event.signalled = false;
        Ok(())
    }

    /// Interrupts with context ids `ids` arrived: signals those events whose slots were written, with `scan` all
    /// events whose slots were written, and returns their number.
    ///
    /// The slot decides, not the interrupt: an id whose slot is idle was signalled by an earlier
    /// interrupt, or is wrong. Then all slots are looked at, too, once for all ids.
    pub(crate) fn interrupt(
        &mut self,
        page: &(impl SignalPage + ?Sized),
        ids: impl IntoIterator<Item = u32>,
        scan: bool,
    ) -> usize {
        let mut signalled = 0;
        let mut scan = scan;
        for id in ids {
            let written = self.signal_from_slot(page, id);
            signalled += usize::from(written);
            scan |= !written;
        }
        if scan {
            for slot in 1..self.signals.end() {
                signalled += usize::from(self.signal_from_slot(page, slot));
            }
        }
        signalled
    }

    /// Signals event `id` if there is one and its slot was written; returns whether that is so.
    ///
    /// The slot becomes idle first: a packet that writes it from now on raises its own interrupt.
    fn signal_from_slot(&mut self, page: &(impl SignalPage + ?Sized), id: u32) -> bool {
        if self.signals.get(id).is_none() || page.load(id) == IDLE_SLOT {
            return false;
        }
        page.set_idle(id);
        self.signal(id, Payload::None);
        true
    }

    /// Signals every event of the kind that `payload` belongs to and returns how many there are.
    pub(crate) fn raise(&mut self, payload: Payload) -> usize {
        let kind = match payload {
            Payload::Memory(_) => Kind::Memory,
            Payload::HwException(_) => Kind::HwException,
            Payload::None | Payload::Age(_) => return 0,
        };
        let mut raised = 0;
        for index in 0..self.others.end() {
            if self.others.get(index).is_some_and(|e| e.kind == kind) {
                self.signal(FIRST_OTHER_ID + index, payload);
                raised += 1;
            }
        }
        raised
    }

    /// Registers a waiter for `items`. Events that are signalled already activate their entries at once
    /// and are consumed if they reset themselves.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: an unknown id. Nothing was consumed.
    /// - `ENOMEM`: `entries` has too little room, or no memory. Nothing was consumed.
    pub(crate) fn register(
        &mut self,
        items: &[WaitItem],
        entries: WaitEntries,
        wake: W,
    ) -> Result<WaiterId> {
        // Everything that can fail comes first.
        if entries.capacity() < items.len() {
            return Err(ENOMEM);
        }
        for item in items {
            self.event(item.id).ok_or(EINVAL)?;
        }
        let waiter = self.waiters.insert(Waiter::new(wake, entries))?;
        for item in items {
            let Some((event, waiters)) = self.with_waiters(item.id) else {
                continue;
            };
            let with_age = event.kind == Kind::Signal && item.last_age != 0;
            let is_active = event.signalled || (with_age && event.age != item.last_age);
            if event.auto_reset {
                event.signalled = false;
            }
            waiters.add_entry(waiter, &mut event.lists, item.id, is_active, with_age);
        }
        Ok(WaiterId(waiter))
    }

    /// Where the wait stands; `all`: every entry must be activated, else one is enough.
    pub(crate) fn status(&self, id: &WaiterId, all: bool) -> Status {
        let Some(waiter) = self.waiters.get(id.0) else {
            return Status::Failed;
        };
        if waiter.failed {
            Status::Failed
        } else if waiter.activated == waiter.entries.len() || (!all && waiter.activated > 0) {
            Status::Complete
        } else {
            Status::Pending
        }
    }

    /// What the caller learns about activated entries: position in the list and payload.
    /// Entries without a payload are left out.
    pub(crate) fn results(
        &self,
        id: &WaiterId,
    ) -> impl Iterator<Item = (usize, Payload)> + use<'_, W> {
        let entries = self.waiters.get(id.0).map(|w| w.entries.as_slice());
        entries
            .unwrap_or_default()
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.activated)
            .filter_map(|(position, entry)| {
                let event = self.event(entry.event)?;
                let payload = if entry.with_age {
                    Payload::Age(event.age)
                } else {
                    event.payload
                };
                (payload != Payload::None).then_some((position, payload))
            })
    }

    /// Removes a waiter. With `give_back`, the auto-reset events that it consumed are signalled again.
    /// Returns memory to be freed.
    pub(crate) fn unregister(&mut self, id: WaiterId, give_back: bool) -> Option<Waiter<W>> {
        let mut waiter = self.waiters.remove(id.0)?;
        for at in 0..waiter.entries.len() {
            let Some(entry) = waiter.entries.get(at).copied().filter(|e| e.first) else {
                continue;
            };
            let Some((event, waiters)) = self.with_waiters(entry.event) else {
                continue;
            };
            waiters.unlink(&mut event.lists, &entry);
            if give_back && event.auto_reset && waiter.has_activated(at) {
                self.signal(entry.event, Payload::None);
            }
        }
        Some(waiter)
    }

    /// Destroys all events; every wait fails.
    pub(crate) fn clear(&mut self) {
        for id in 0..self.signals.end() {
            let _ = self.destroy(id);
        }
        for index in 0..self.others.end() {
            let _ = self.destroy(FIRST_OTHER_ID + index);
        }
    }
}

/// The age after `age`. 0 (caller without ages) and 1 (never signalled) are not used again.
pub(crate) fn next_age(age: u64) -> u64 {
    match age.checked_add(1) {
        None | Some(0 | 1) => 2,
        Some(next) => next,
    }
}
