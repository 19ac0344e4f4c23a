// SPDX-License-Identifier: GPL-2.0

//! The waiters of a table, and the lists by which events find theirs.
//!
//! A waiter that named an event twice is in the event's lists once, by the first of its entries that
//! does; the others are its *twins*. What a signal does to a waiter it does once: the waiter then moves to
//! the list of those that were signalled, where no later signal looks. Hence the visits are bounded by what the
//! process itself put into its wait lists, however many signals there are: the interrupt thread, which makes
//! them, serves other processes too.

use crate::kapi::slots::{
    Slots,
    Spare, //
};
use kernel::prelude::*;

/// How to wake the thread behind a waiter.
pub(crate) trait Wake {
    /// Wakes it; it looks at [`Table::status`](super::Table::status) again.
    fn wake(&self);
}

/// Names an entry of a waiter.
#[derive(Clone, Copy)]
struct Link {
    waiter: u32,
    entry: usize,
}

/// The waiters of an event. Both lists begin with the newest, and follow [`Entry::older`].
pub(super) struct Lists {
    /// Those that no signal has reached yet.
    waiting: Option<Link>,
    /// Those that came before the latest signal.
    signalled: Option<Link>,
}

impl Lists {
    /// No waiters.
    pub(super) const fn new() -> Self {
        Self {
            waiting: None,
            signalled: None,
        }
    }
}

/// One item of a waiter's list.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// Id of the event; 0 once it was destroyed.
    pub(super) event: u32,
    pub(super) activated: bool,
    pub(super) with_age: bool,
    /// The first of the waiter's entries that names the event: it is in one of the event's lists.
    pub(super) first: bool,
    /// That list is [`Lists::signalled`]: this and its twins are activated.
    signalled: bool,
    /// Neighbours in that list.
    newer: Option<Link>,
    older: Option<Link>,
    /// Another entry of the same waiter that names the same event.
    twin: Option<usize>,
}

/// Memory for the entries of a waiter, allocated where that is allowed and charged to the caller.
pub(crate) struct WaitEntries(KVVec<Entry>);

impl WaitEntries {
    /// For `count` entries.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(count: usize) -> Result<Self> {
        Ok(Self(KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?))
    }

    /// For how many entries it is.
    pub(super) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

/// A waiter; made and seen by [`Table`](super::Table) only.
pub(crate) struct Waiter<W> {
    wake: W,
    pub(super) entries: KVVec<Entry>,
    pub(super) activated: usize,
    /// An event of the list is gone.
    pub(super) failed: bool,
}

impl<W> Waiter<W> {
    /// One without entries.
    pub(super) fn new(wake: W, entries: WaitEntries) -> Self {
        let WaitEntries(entries) = entries;
        Self {
            wake,
            entries,
            activated: 0,
            failed: false,
        }
    }

    /// Calls `f` for entry `first` and its twins.
    fn with_twins(&mut self, first: usize, mut f: impl FnMut(&mut Entry)) {
        let mut next = Some(first);
        while let Some(entry) = next.and_then(|at| self.entries.get_mut(at)) {
            next = entry.twin;
            f(entry);
        }
    }

    /// Whether entry `first` or one of its twins is activated.
    pub(super) fn has_activated(&mut self, first: usize) -> bool {
        let mut found = false;
        self.with_twins(first, |entry| found |= entry.activated);
        found
    }
}

/// All waiters of a table.
pub(super) struct Waiters<W> {
    slots: Slots<Waiter<W>>,
    /// How often signals have looked at a waiter.
    #[cfg(rkfd_kunit)]
    visits: usize,
}

impl<W: Wake> Waiters<W> {
    /// None.
    pub(super) const fn new() -> Self {
        Self {
            slots: Slots::new(0),
            #[cfg(rkfd_kunit)]
            visits: 0,
        }
    }

    #[cfg(rkfd_kunit)]
    pub(super) fn visits(&self) -> usize {
        self.visits
    }

    /// See [`Slots::shortage`].
    pub(super) fn shortage(&self) -> Option<usize> {
        self.slots.shortage()
    }

    /// See [`Slots::grow`].
    pub(super) fn grow(&mut self, spare: Spare<Waiter<W>>) -> Spare<Waiter<W>> {
        self.slots.grow(spare)
    }

    /// The waiter of that number.
    pub(super) fn get(&self, waiter: u32) -> Option<&Waiter<W>> {
        self.slots.get(waiter)
    }

    fn entry_mut(&mut self, link: Link) -> Option<&mut Entry> {
        self.slots.get_mut(link.waiter)?.entries.get_mut(link.entry)
    }

    /// Takes a waiter in and gives it a number.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn insert(&mut self, waiter: Waiter<W>) -> Result<u32> {
        self.slots.insert(waiter, u32::MAX)
    }

    /// Takes a waiter out, whose entries then have to be unlinked.
    pub(super) fn remove(&mut self, waiter: u32) -> Option<Waiter<W>> {
        self.slots.remove(waiter)
    }

    /// Adds an entry for `event`, which has `lists`, to the newest waiter, which has room for it. No
    /// event was signalled since that was taken in.
    pub(super) fn add_entry(
        &mut self,
        waiter: u32,
        lists: &mut Lists,
        event: u32,
        activated: bool,
        with_age: bool,
    ) {
        let Some(registered) = self.slots.get_mut(waiter) else {
            return;
        };
        let link = Link {
            waiter,
            entry: registered.entries.len(),
        };
        // A new waiter is the newest: an entry of this waiter is the newest or there is none.
        let newest = lists.waiting;
        let twin = newest.filter(|link| link.waiter == waiter);
        let mut entry = Entry {
            event,
            activated,
            with_age,
            first: twin.is_none(),
            signalled: false,
            newer: None,
            older: newest.filter(|_| twin.is_none()),
            twin: None,
        };
        if let Some(first) = twin.and_then(|link| registered.entries.get_mut(link.entry)) {
            entry.twin = first.twin.replace(link.entry);
        }
        registered.activated += usize::from(activated);
        // The capacity is there.
        let _ = registered.entries.push_within_capacity(entry);
        if twin.is_none() {
            lists.waiting = Some(link);
            if let Some(older) = newest.and_then(|link| self.entry_mut(link)) {
                older.newer = Some(link);
            }
        }
    }

    /// Activates the entries of all that wait and wakes them; they count as signalled then. Returns whether
    /// there was an entry to activate.
    pub(super) fn signal(&mut self, lists: &mut Lists) -> bool {
        let newest = lists.waiting.take();
        let mut next = newest;
        let mut oldest = None;
        let mut taken = false;
        while let Some(link) = next {
            let Some(waiter) = self.slots.get_mut(link.waiter) else {
                break;
            };
            let Some(entry) = waiter.entries.get_mut(link.entry) else {
                break;
            };
            #[cfg(rkfd_kunit)]
            {
                self.visits += 1;
            }
            next = entry.older;
            oldest = Some(link);
            entry.signalled = true;
            let mut activated = 0;
            waiter.with_twins(link.entry, |entry| {
                activated += usize::from(!entry.activated);
                entry.activated = true;
            });
            if activated != 0 {
                waiter.activated += activated;
                waiter.wake.wake();
                taken = true;
            }
        }
        // They go before those that were signalled already, as one piece: they are newer.
        if let Some(oldest) = oldest {
            let earlier = core::mem::replace(&mut lists.signalled, newest);
            if let Some(entry) = self.entry_mut(oldest) {
                entry.older = earlier;
            }
            if let Some(entry) = earlier.and_then(|link| self.entry_mut(link)) {
                entry.newer = Some(oldest);
            }
        }
        taken
    }

    /// Fails all that wait for an event, signalled or not, because it is gone.
    pub(super) fn fail(&mut self, lists: Lists) {
        for newest in [lists.waiting, lists.signalled] {
            let mut next = newest;
            while let Some(link) = next {
                let Some(waiter) = self.slots.get_mut(link.waiter) else {
                    break;
                };
                next = waiter.entries.get(link.entry).and_then(|e| e.older);
                // The id may come again, for an event that has nothing to do with the waiter.
                waiter.with_twins(link.entry, |entry| {
                    entry.event = 0;
                    entry.first = false;
                });
                waiter.failed = true;
                waiter.wake.wake();
            }
        }
    }

    /// Takes `entry` of a waiter that was removed out of the event's lists.
    pub(super) fn unlink(&mut self, lists: &mut Lists, entry: &Entry) {
        // Neighbours in the list belong to other waiters.
        match entry.newer {
            Some(newer) => {
                if let Some(newer) = self.entry_mut(newer) {
                    newer.older = entry.older;
                }
            }
            None if entry.signalled => lists.signalled = entry.older,
            None => lists.waiting = entry.older,
        }
        if let Some(older) = entry.older.and_then(|older| self.entry_mut(older)) {
            older.newer = entry.newer;
        }
    }
}
