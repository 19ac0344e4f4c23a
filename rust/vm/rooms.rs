// SPDX-License-Identifier: GPL-2.0

//! The [rooms](super::room) of a GPU, as far as [eviction](super::evict) has to know them. Tested by
//! `rkfd_mirror_migrate_live` and e2e migrate-evict.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
    time::Delta, //
};

use crate::kapi::{
    dmem::{
        Charge,
        Limit,
        Protection, //
    },
    log::monotonic_ns,
    task::MmKey, //
};

/// What memory of the process that asks for room may be taken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// None: of others alone. Pages that have just moved in are not to leave for those that follow.
    Others,
    /// Its rooms, whose pages are as good in system memory.
    All,
}

/// A room that has memory.
pub(super) struct Entry {
    /// The frame of pages that it is for.
    frame: usize,
    /// The process that it was made for.
    owner: Option<MmKey>,
    /// What is charged for it.
    group: Arc<Charge>,
    /// When it was filled last, in nanoseconds of the monotonic clock.
    used: Atomic<i64>,
}

impl Entry {
    /// A room for `frame`, made for the process `owner`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(frame: usize, group: Arc<Charge>, owner: Option<MmKey>) -> Result<Arc<Self>> {
        let entry = Self {
            frame,
            owner,
            group,
            used: Atomic::new(monotonic_ns()),
        };
        Ok(Arc::new(entry, GFP_KERNEL)?)
    }

    /// The frame of pages that it is for.
    pub(super) fn frame(&self) -> usize {
        self.frame
    }

    /// Whether it was made for the current process.
    pub(super) fn is_of_current(&self) -> bool {
        self.owner.is_some_and(MmKey::is_current)
    }

    /// When it was filled last, in nanoseconds of the monotonic clock.
    pub(super) fn last_use(&self) -> i64 {
        self.used.load(Relaxed)
    }

    /// So long ago.
    pub(super) fn age(&self) -> Delta {
        Delta::from_nanos(monotonic_ns() - self.last_use())
    }

    /// As [`Charge::protection`].
    pub(super) fn protection(&self, limit: Option<&Limit>, ignore_low: bool) -> Protection {
        self.group.protection(limit, ignore_low)
    }
}

/// All rooms of a GPU.
#[pin_data]
pub(super) struct Rooms {
    /// In no order.
    #[pin]
    list: Mutex<KVVec<Arc<Entry>>>,
}

impl Rooms {
    /// None.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self { list <- new_mutex!(KVVec::new(), "rkfd_rooms") })
    }

    /// From now on a room can be evicted; ended by [`Self::remove`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn add(&self, entry: Arc<Entry>) -> Result {
        Ok(self.list.lock().push(entry, GFP_KERNEL)?)
    }

    /// The memory of a room is given back.
    pub(super) fn remove(&self, entry: &Arc<Entry>) {
        let mut list = self.list.lock();
        let at = list.iter().position(|known| Arc::ptr_eq(known, entry));
        let removed = at.and_then(|at| list.remove(at).ok());
        drop(list);
        drop(removed);
    }

    /// Whether a room has its memory still.
    pub(super) fn has(&self, entry: &Arc<Entry>) -> bool {
        let list = self.list.lock();
        let mut known = list.iter();
        known.any(|known| Arc::ptr_eq(known, entry))
    }

    /// The room of `frame` is filled further.
    pub(super) fn note_use(&self, frame: usize) {
        let list = self.list.lock();
        if let Some(entry) = list.iter().find(|entry| entry.frame == frame) {
            entry.used.store(monotonic_ns(), Relaxed);
        }
    }

    /// All that there are now.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn snapshot(&self) -> Result<KVVec<Arc<Entry>>> {
        let list = self.list.lock();
        let mut all = KVVec::with_capacity(list.len(), GFP_KERNEL)?;
        for entry in list.iter() {
            all.push(entry.clone(), GFP_KERNEL)?;
        }
        Ok(all)
    }
}
