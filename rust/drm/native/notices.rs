// SPDX-License-Identifier: GPL-2.0

//! What was reported of an address space, and the counters that tell its program.
//!
//! An event is a counter with a condition. Its number is its *slot*: packets and waves that raise an interrupt with
//! that number as context id signal it. All other conditions signal every event that has them.
//!
//! The locks are innermost spinlocks and held for moments, for the interrupt thread takes them. Nothing is allocated
//! under them.

use kernel::{
    new_condvar, new_spinlock,
    prelude::*,
    sync::{
        CondVar,
        CondVarTimeoutResult,
        SpinLock, //
    },
    time::Jiffies,
};

use super::uapi::FaultRecord;
use crate::{
    hw::ih::Fault,
    kapi::{
        eventfd::EventFd,
        log::monotonic_ns,
        slots::{
            Slots,
            Spare, //
        }, //
    },
};

/// Slots are below this; 0 is none, because interrupts without a context id carry 0.
pub(super) const SLOT_LIMIT: u32 = 4096;
/// Faults that are kept.
pub(super) const FAULT_LIMIT: usize = 64;

/// When an event is signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// An interrupt carries its slot.
    Signal,
    /// An access was refused.
    Fault,
    /// A queue failed: it stopped at a bad packet, a wave failed, or it hung and was reset.
    Queue,
    /// The GPU is reset, out of service or gone.
    Reset,
}

/// An event.
struct Event {
    condition: Condition,
    counter: EventFd,
}

/// The newest faults that are not read yet.
struct Faults {
    /// In the order of their time; never more than [`FAULT_LIMIT`].
    records: KVec<FaultRecord>,
    /// Those that found no room.
    dropped: u64,
}

/// What was reported.
#[pin_data]
pub(super) struct Notices {
    #[pin]
    events: SpinLock<Slots<Event>>,
    #[pin]
    faults: SpinLock<Faults>,
    /// Counts reports, for threads that sleep until memory changes.
    #[pin]
    reports: SpinLock<u64>,
    #[pin]
    reported: CondVar,
}

impl Notices {
    /// Nothing, and no event.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            events <- new_spinlock!(Slots::new(1), "rkfd_native_events"),
            faults <- new_spinlock!(
                Faults { records: KVec::new(), dropped: 0 },
                "rkfd_native_faults"
            ),
            reports <- new_spinlock!(0, "rkfd_native_reports"),
            reported <- new_condvar!("rkfd_native_reported"),
        })
    }

    /// How many reports came so far.
    pub(super) fn count(&self) -> u64 {
        *self.reports.lock()
    }

    /// Sleeps until there are more than `seen` reports, at most `left`. May return early.
    pub(super) fn sleep(&self, seen: u64, left: Jiffies) -> CondVarTimeoutResult {
        let mut reports = self.reports.lock();
        if *reports != seen {
            return CondVarTimeoutResult::Woken { jiffies: left };
        }
        self.reported.wait_interruptible_timeout(&mut reports, left)
    }

    fn wake(&self) {
        *self.reports.lock() += 1;
        self.reported.notify_all();
    }

    /// Makes room for faults.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn reserve(&self) -> Result {
        let records = KVec::with_capacity(FAULT_LIMIT, GFP_KERNEL_ACCOUNT)?;
        let old = core::mem::replace(&mut self.faults.lock().records, records);
        drop(old);
        Ok(())
    }

    /// Adds an event; returns its slot.
    ///
    /// # Errors
    ///
    /// - `ENOSPC`: no slot left.
    /// - `ENOMEM`.
    pub(super) fn add(&self, condition: Condition, counter: EventFd) -> Result<u32> {
        let event = Event { condition, counter };
        let mut events = self.events.lock();
        while let Some(count) = events.shortage() {
            drop(events);
            let spare = Spare::new(count)?;
            events = self.events.lock();
            let old = events.grow(spare);
            drop(events);
            drop(old);
            events = self.events.lock();
        }
        events.insert(event, SLOT_LIMIT)
    }

    /// Takes the event with a slot out.
    ///
    /// # Errors
    ///
    /// `ENOENT`: there is none.
    pub(super) fn remove(&self, slot: u32) -> Result {
        let event = self.events.lock().remove(slot);
        // Without the lock: the last reference frees.
        event.map(drop).ok_or(ENOENT)
    }

    /// An interrupt with context id `id` came. One without an id says nothing: it may be of any owner.
    pub(super) fn interrupt(&self, id: u32) {
        if id == 0 {
            self.interrupts_lost();
            return;
        }
        {
            let events = self.events.lock();
            if let Some(event) = events.get(id) {
                if event.condition == Condition::Signal {
                    event.counter.signal();
                }
            }
        }
        self.wake();
    }

    /// Interrupts were lost: signals each event that may have missed one.
    pub(super) fn interrupts_lost(&self) {
        self.raise(Condition::Signal);
    }

    /// Signals all events with a condition; whether there is one.
    pub(super) fn raise(&self, condition: Condition) -> bool {
        let mut any = false;
        let events = self.events.lock();
        for (_, event) in events.iter() {
            if event.condition == condition {
                event.counter.signal();
                any = true;
            }
        }
        drop(events);
        self.wake();
        any
    }

    /// Notes that an access was refused; whether an event tells.
    pub(super) fn fault(&self, fault: &Fault) -> bool {
        let record = FaultRecord::new(fault, monotonic_ns());
        {
            let mut faults = self.faults.lock();
            if faults.records.push_within_capacity(record).is_err() {
                faults.dropped += 1;
            }
        }
        self.raise(Condition::Fault)
    }

    /// Counts faults that were not kept.
    pub(super) fn faults_dropped(&self, count: u64) {
        self.faults.lock().dropped += count;
    }

    /// Moves the oldest faults, at most `most`, to `to`, which has capacity for them; returns how many found no room
    /// since this was asked last.
    pub(super) fn take_faults(&self, to: &mut KVec<FaultRecord>, most: usize) -> u64 {
        let mut faults = self.faults.lock();
        let count = faults.records.len().min(most);
        for _ in 0..count {
            if let Ok(record) = faults.records.remove(0) {
                // There is room.
                let _ = to.push_within_capacity(record);
            }
        }
        core::mem::take(&mut faults.dropped)
    }

    /// Drops all events: no thread can wait any more.
    pub(super) fn clear(&self) {
        let events = core::mem::replace(&mut *self.events.lock(), Slots::new(1));
        drop(events);
    }
}
