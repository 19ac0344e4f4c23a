// SPDX-License-Identifier: GPL-2.0

//! Events of one process: what user space creates and waits for, and what the GPU signals.
//!
//! [`table`] is the state machine, [`payload`] what an event carries, [`notices`] what was reported and not
//! entered yet, [`wait`] the sleep of a caller. This module adds the locks and the signal page. [`tenants`] finds the
//! owner of an address space that a GPU reports something of, [`faults`] holds its faults until they are handled.
//!
//! # Locks
//!
//! The interrupt thread serves all processes, so it does not wait for a lock that a thread of one of them may
//! hold for long, be it because that thread was preempted. Reports ([`Events::interrupt`], [`Events::lost`],
//! [`Events::raise`]) are noted under `Events::notices`, a spinlock that is held for a few instructions. Then
//! a thread that gets `Events::inner`, a mutex, without waiting enters them into the table. Where another thread has
//! it, that thread looks for notices once more after it has given the mutex back ([`Events::settle`]), and
//! enters them. So none stays behind: a report that finds the mutex taken was noted before that look.
//!
//! `Events::inner` is taken with the process lock held or without it, never the other way round. Order:
//! `inner`, then `notices` or a waiter's own lock. Under none of them is memory allocated, since the scheduler
//! reports, too, and reclaim may wait for the scheduler.

pub(crate) mod faults;
pub(crate) mod notices;
pub(crate) mod payload;
pub(crate) mod reasons;
pub(crate) mod table;
pub(crate) mod tenants;
pub(crate) mod wait;
mod waitpoint;

use crate::kapi::slots::Spare;
use kernel::{
    new_mutex, new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex,
        MutexGuard,
        SpinLock, //
    },
};
use notices::Notices;
use payload::Payload;
use table::{
    Kind,
    SignalPage,
    Table,
    SIGNAL_LIMIT, //
};
use waitpoint::WaitPoint;

/// Smallest signal page, in bytes.
pub(crate) const SIGNAL_PAGE_SIZE: u64 = 8 * SIGNAL_LIMIT as u64;

/// A signal page in kernel reach.
pub(crate) type Page = Arc<dyn SignalPageBox>;

/// An owned signal page that any thread may use.
pub(crate) trait SignalPageBox: SignalPage + Send + Sync {}

impl<T: SignalPage + Send + Sync> SignalPageBox for T {}

struct Inner {
    table: Table<Arc<WaitPoint>>,
    page: Option<Page>,
}

impl Inner {
    fn enter(&mut self, notices: &Notices) {
        if let Some(page) = &self.page {
            self.table
                .interrupt(&**page, notices.ids.iter(), notices.scan);
        }
        for payload in notices.payloads() {
            self.table.raise(payload);
        }
    }
}

/// The events of one process.
#[pin_data]
pub(crate) struct Events {
    #[pin]
    notices: SpinLock<Notices>,
    #[pin]
    inner: Mutex<Inner>,
    /// Events that memory faults signal, for messages.
    memory_events: Atomic<i32>,
}

/// The table, locked. Dropping it enters what was reported meanwhile.
struct Locked<'a> {
    // In this order: `settle` takes the lock.
    inner: MutexGuard<'a, Inner>,
    _settle: Settle<'a>,
}

struct Settle<'a>(&'a Events);

impl Drop for Settle<'_> {
    fn drop(&mut self) {
        self.0.settle();
    }
}

impl core::ops::Deref for Locked<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl core::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

impl Events {
    /// No event, no page.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            notices <- new_spinlock!(Notices::new(), "rkfd_event_notices"),
            inner <- new_mutex!(Inner { table: Table::new(), page: None }, "rkfd_events"),
            memory_events: Atomic::new(0),
        })
    }

    fn lock(&self) -> Locked<'_> {
        Locked {
            inner: self.inner.lock(),
            _settle: Settle(self),
        }
    }

    /// Enters what was reported, unless a thread has the table, which does so then.
    fn settle(&self) {
        while !self.notices.lock().is_empty() {
            let Some(mut inner) = self.inner.try_lock() else {
                return;
            };
            let notices = self.notices.lock().take();
            inner.enter(&notices);
            drop(inner);
            // A thread that reported while the lock was held has left it to this thread.
        }
    }

    fn note(&self, add: impl FnOnce(&mut Notices)) {
        add(&mut self.notices.lock());
        self.settle();
    }

    /// Whether the signal page is set.
    pub(crate) fn has_page(&self) -> bool {
        self.lock().page.is_some()
    }

    /// Sets the signal page and makes every slot idle.
    ///
    /// # Errors
    ///
    /// `EBUSY`: there is one already.
    pub(crate) fn set_page(&self, page: Page) -> Result {
        let mut inner = self.lock();
        if inner.page.is_some() {
            return Err(EBUSY);
        }
        for slot in 0..SIGNAL_LIMIT {
            page.set_idle(slot);
        }
        inner.page = Some(page);
        Ok(())
    }

    /// CREATE_EVENT; returns the id.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`: no signal page yet (events with a slot), or no memory.
    /// - `ENOSPC`: no id left.
    pub(crate) fn create(&self, kind: Kind, auto_reset: bool) -> Result<u32> {
        let mut inner = self.lock();
        while let Some(count) = inner.table.event_shortage(kind) {
            drop(inner);
            let spare = Spare::new(count)?;
            inner = self.lock();
            let old = inner.table.grow_events(kind, spare);
            drop(inner);
            drop(old);
            inner = self.lock();
        }
        let Inner { table, page } = &mut *inner;
        if !kind.has_slot() {
            let id = table.create(kind, auto_reset)?;
            if kind == Kind::Memory {
                self.memory_events.add(1, Relaxed);
            }
            return Ok(id);
        }
        let page = page.as_ref().ok_or(ENOMEM)?;
        let id = table.create(kind, auto_reset)?;
        // The id may have belonged to an event that a late packet signals.
        page.set_idle(id);
        Ok(id)
    }

    /// DESTROY_EVENT.
    ///
    /// # Errors
    ///
    /// Those of [`Table::destroy`].
    pub(crate) fn destroy(&self, id: u32) -> Result {
        let mut inner = self.lock();
        if inner.table.kind(id) == Some(Kind::Memory) {
            self.memory_events.add(-1, Relaxed);
        }
        inner.table.destroy(id)
    }

    /// SET_EVENT.
    ///
    /// # Errors
    ///
    /// Those of [`Table::set`].
    pub(crate) fn set(&self, id: u32) -> Result {
        self.lock().table.set(id)
    }

    /// RESET_EVENT.
    ///
    /// # Errors
    ///
    /// Those of [`Table::reset`].
    pub(crate) fn reset(&self, id: u32) -> Result {
        self.lock().table.reset(id)
    }

    /// An interrupt of this process with context id `id` arrived. Does not wait for threads of the process.
    pub(crate) fn interrupt(&self, id: u32) {
        self.note(|notices| notices.interrupt(id));
    }

    /// Interrupts were lost, perhaps some of this process: signals every event whose slot was written. Does not
    /// wait for threads of the process.
    pub(crate) fn lost(&self) {
        self.note(Notices::lost);
    }

    /// Signals all events of the payload's kind. Does not wait for threads of the process.
    pub(crate) fn raise(&self, payload: Payload) {
        self.note(|notices| notices.raise(payload));
    }

    /// Whether the process has an event that memory faults signal.
    pub(crate) fn has_memory_events(&self) -> bool {
        self.memory_events.load(Relaxed) > 0
    }

    /// Destroys every event and drops the page.
    pub(crate) fn shutdown(&self) {
        let page = {
            let mut inner = self.lock();
            inner.table.clear();
            self.memory_events.store(0, Relaxed);
            inner.page.take()
        };
        drop(page);
    }

    /// Runs `f` while the calling thread has the table.
    #[cfg(rkfd_kunit)]
    pub(crate) fn with_table_held(&self, f: impl FnOnce()) {
        let inner = self.lock();
        f();
        drop(inner);
    }
}
