// SPDX-License-Identifier: GPL-2.0

//! Events of one process: what user space creates, waits for and hears of from the GPU.
//!
//! [`table`] is the state machine, [`payload`] what an event carries. This module adds the lock, sleeping
//! and the signal page.
//!
//! # Lock order
//!
//! `Events::inner` is taken with the process lock held or without it, never the other way round. Under it
//! nothing sleeps, nor is memory allocated: the interrupt worker takes it, and the scheduler when it reports,
//! for which reclaim may wait.

pub(crate) mod payload;
pub(crate) mod slots;
pub(crate) mod table;

use kernel::{
    new_condvar, new_mutex,
    prelude::*,
    sync::{
        Arc,
        CondVar,
        CondVarTimeoutResult,
        Mutex, //
    },
    time::{
        msecs_to_jiffies,
        Jiffies, //
    },
};
use payload::Payload;
use slots::Spare;
use table::{
    Kind,
    Room,
    SignalPage,
    Status,
    Table,
    WaitItem,
    Wake,
    SIGNAL_LIMIT, //
};

/// Most entries of one wait list.
pub(crate) const WAIT_LIST_LIMIT: u32 = SIGNAL_LIMIT;
/// Smallest signal page, in bytes.
pub(crate) const SIGNAL_PAGE_SIZE: u64 = 8 * SIGNAL_LIMIT as u64;

/// A time-out that returns at once.
const IMMEDIATE: u32 = 0;
/// A time-out that never comes.
const INFINITE: u32 = u32::MAX;

/// A signal page in kernel reach.
pub(crate) type Page = Arc<dyn SignalPageBox>;

/// An owned signal page that any thread may use.
pub(crate) trait SignalPageBox: SignalPage + Send + Sync {}

impl<T: SignalPage + Send + Sync> SignalPageBox for T {}

/// Where the thread of a wait sleeps.
#[pin_data]
struct WaitPoint {
    #[pin]
    woken: CondVar,
}

impl Wake for Arc<WaitPoint> {
    fn wake(&self) {
        self.woken.notify_all();
    }
}

struct Inner {
    table: Table<Arc<WaitPoint>>,
    page: Option<Page>,
}

/// The events of one process.
#[pin_data]
pub(crate) struct Events {
    #[pin]
    inner: Mutex<Inner>,
}

/// How a wait ended.
pub(crate) struct Waited {
    /// `Complete` or `Pending` (timed out).
    pub(crate) status: Status,
    /// For `Complete`: position in the list and payload of activated entries that have one.
    pub(crate) results: KVVec<(usize, Payload)>,
}

/// A wait that did not end.
pub(crate) enum WaitError {
    /// An event of the list was destroyed.
    Destroyed,
    /// A Unix signal is pending; the value is the time-out left, in ms, where it is finite.
    Interrupted(Option<u32>),
    /// As named.
    Other(Error),
}

impl Events {
    /// No event, no page.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- new_mutex!(Inner { table: Table::new(), page: None }, "rkfd_events"),
        })
    }

    /// Whether the signal page is set.
    pub(crate) fn has_page(&self) -> bool {
        self.inner.lock().page.is_some()
    }

    /// Sets the signal page and makes every slot idle.
    ///
    /// # Errors
    ///
    /// `EBUSY`: there is one already.
    pub(crate) fn set_page(&self, page: Page) -> Result {
        let mut inner = self.inner.lock();
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
        let mut inner = self.inner.lock();
        while let Some(count) = inner.table.event_shortage(kind) {
            drop(inner);
            let spare = Spare::new(count)?;
            inner = self.inner.lock();
            let old = inner.table.grow_events(kind, spare);
            drop(inner);
            drop(old);
            inner = self.inner.lock();
        }
        let Inner { table, page } = &mut *inner;
        if !kind.has_slot() {
            return table.create(kind, auto_reset);
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
    /// `EINVAL`: no such event.
    pub(crate) fn destroy(&self, id: u32) -> Result {
        self.inner.lock().table.destroy(id)
    }

    /// SET_EVENT.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no such event, or none that the CPU signals.
    pub(crate) fn set(&self, id: u32) -> Result {
        self.inner.lock().table.set(id)
    }

    /// RESET_EVENT.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no such event, or none that the CPU signals.
    pub(crate) fn reset(&self, id: u32) -> Result {
        self.inner.lock().table.reset(id)
    }

    /// An interrupt of this process with context id `id` arrived.
    pub(crate) fn interrupt(&self, id: u32) -> usize {
        let mut inner = self.inner.lock();
        let Inner { table, page } = &mut *inner;
        match page {
            Some(page) => table.interrupt(&**page, id),
            None => 0,
        }
    }

    /// Signals all events of the payload's kind; returns how many.
    pub(crate) fn raise(&self, payload: Payload) -> usize {
        self.inner.lock().table.raise(payload)
    }

    /// Destroys every event and forgets the page.
    pub(crate) fn shutdown(&self) {
        let page = {
            let mut inner = self.inner.lock();
            inner.table.clear();
            inner.page.take()
        };
        drop(page);
    }

    /// WAIT_EVENTS: sleeps until one of `items` (or `all`) is signalled, or `timeout_ms` has passed.
    ///
    /// # Errors
    ///
    /// See [`WaitError`]; `Other` is `EINVAL` for an unknown id or `ENOMEM`.
    pub(crate) fn wait(
        &self,
        items: &[WaitItem],
        all: bool,
        timeout_ms: u32,
    ) -> core::result::Result<Waited, WaitError> {
        let point = Arc::pin_init(
            pin_init!(WaitPoint {
                woken <- new_condvar!("rkfd_wait"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
        .map_err(WaitError::Other)?;
        // Room for every result before anything is consumed.
        let mut results = KVVec::with_capacity(items.len(), GFP_KERNEL_ACCOUNT)
            .map_err(|e| WaitError::Other(e.into()))?;

        let room = Room::new(items.len()).map_err(WaitError::Other)?;

        let mut inner = self.inner.lock();
        while let Some(count) = inner.table.waiter_shortage() {
            drop(inner);
            let spare = Spare::new(count).map_err(WaitError::Other)?;
            inner = self.inner.lock();
            let old = inner.table.grow_waiters(spare);
            drop(inner);
            drop(old);
            inner = self.inner.lock();
        }
        let waiter = inner
            .table
            .register(items, room, point.clone())
            .map_err(WaitError::Other)?;

        let mut left = timeout_to_jiffies(timeout_ms);
        let outcome = loop {
            match inner.table.status(&waiter, all) {
                Status::Failed => break Err(WaitError::Destroyed),
                Status::Complete => break Ok(Status::Complete),
                Status::Pending if left == 0 => break Ok(Status::Pending),
                Status::Pending => {}
            }
            match point.woken.wait_interruptible_timeout(&mut inner, left) {
                CondVarTimeoutResult::Woken { jiffies } => left = jiffies,
                CondVarTimeoutResult::Timeout => left = 0,
                CondVarTimeoutResult::Signal { jiffies } => {
                    // What was signalled while the signal came is still delivered.
                    if inner.table.status(&waiter, all) == Status::Complete {
                        break Ok(Status::Complete);
                    }
                    break Err(WaitError::Interrupted(remaining_ms(timeout_ms, jiffies)));
                }
            }
        };

        if matches!(outcome, Ok(Status::Complete)) {
            for result in inner.table.results(&waiter) {
                // The capacity is there.
                let _ = results.push_within_capacity(result);
            }
        }
        let give_back = matches!(outcome, Err(WaitError::Interrupted(_)));
        let waiter = inner.table.unregister(waiter, give_back);
        drop(inner);
        drop(waiter);

        outcome.map(|status| Waited { status, results })
    }
}

/// The time-out of the interface in jiffies. One is added so that at least the time asked for passes.
pub(crate) fn timeout_to_jiffies(ms: u32) -> Jiffies {
    match ms {
        IMMEDIATE => 0,
        // `CondVar` takes everything that is too large for `long` as "for ever".
        INFINITE => Jiffies::MAX,
        finite => msecs_to_jiffies(finite.min(0x7fff_ffff)).saturating_add(1),
    }
}

/// What is left of `timeout_ms` when `jiffies` are left, for the caller that restarts the wait; `None`
/// if the time-out does not change.
pub(crate) fn remaining_ms(timeout_ms: u32, jiffies: Jiffies) -> Option<u32> {
    if timeout_ms == IMMEDIATE || timeout_ms == INFINITE {
        return None;
    }
    Some(crate::kapi::task::jiffies_to_msecs(
        jiffies.saturating_sub(1),
    ))
}
