// SPDX-License-Identifier: GPL-2.0

//! Faults of one GPU that were reported and not handled yet, as pure state.
//!
//! Of fixed size, so that the interrupt thread, which adds, allocates nothing and is done soon. One address space has at
//! most [`SHARE`] of the places, and its faults are counted beyond that. Where no place is left, an address space that
//! has few of them gets one of an address space that has more, so that a storm of some does not hide the fault of
//! another. Faults of one address space are taken in the order in which they came, and address spaces take turns.
//!
//! The caller that adds one names the receiver, so that a fault never reaches a later owner of the same PASID.

use kernel::prelude::*;

use crate::gpu::VmFault;

/// Places of one GPU; as many as its filter of retry faults has entries.
pub(crate) const CAPACITY: usize = 64;
/// Places of one address space.
pub(crate) const SHARE: usize = CAPACITY / 4;

/// A fault that is not handled yet.
pub(crate) struct Pending<W> {
    /// The owner of the address space.
    pub(crate) tenant: W,
    /// Address and kind.
    pub(crate) fault: VmFault,
    /// Faults of the same address space that followed and found no place.
    pub(crate) dropped: u64,
}

/// What became of a fault. What is handed back is to be dropped without locks.
#[must_use]
pub(crate) enum Added<W> {
    /// It has a place.
    Kept,
    /// This one, the newest of its address space, has none. It is counted with the one before it.
    Dropped(Pending<W>),
    /// It has none, nor has another one of its address space.
    Full(Pending<W>),
}

/// Faults of one GPU that are not handled yet.
pub(crate) struct FaultQueue<W> {
    /// In the order in which they came; never more than [`CAPACITY`].
    entries: KVec<Pending<W>>,
    /// The address space whose turn was last.
    last: u16,
}

impl<W> FaultQueue<W> {
    /// None.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            entries: KVec::with_capacity(CAPACITY, GFP_KERNEL)?,
            last: 0,
        })
    }

    /// Adds a fault in the address space of `tenant`. Allocates nothing.
    pub(crate) fn add(&mut self, tenant: W, fault: VmFault) -> Added<W> {
        let pasid = fault.pasid;
        let new = Pending {
            tenant,
            fault,
            dropped: 0,
        };
        let own = self.count(pasid);
        if own >= SHARE {
            self.note_dropped(pasid, 1);
            return Added::Dropped(new);
        }
        if self.entries.len() < CAPACITY {
            return self.push(new);
        }
        // An address space that gives a place away keeps at least as many as the other one has then.
        let Some(old) = self.take_surplus(own + 2) else {
            if own == 0 {
                return Added::Full(new);
            }
            self.note_dropped(pasid, 1);
            return Added::Dropped(new);
        };
        self.note_dropped(old.fault.pasid, old.dropped + 1);
        match self.push(new) {
            Added::Kept => Added::Dropped(old),
            refused => refused,
        }
    }

    /// Takes the oldest fault of the address space whose turn it is.
    pub(crate) fn take(&mut self) -> Option<Pending<W>> {
        // The next PASID in a circle; of those that are alike the first.
        let first = self.last.wrapping_add(1);
        let all = self.entries.iter().enumerate();
        let (at, _) = all.min_by_key(|(_, entry)| entry.fault.pasid.wrapping_sub(first))?;
        let taken = self.entries.remove(at).ok()?;
        self.last = taken.fault.pasid;
        Some(taken)
    }

    fn count(&self, pasid: u16) -> usize {
        let all = self.entries.iter();
        all.filter(|entry| entry.fault.pasid == pasid).count()
    }

    fn push(&mut self, new: Pending<W>) -> Added<W> {
        match self.entries.push_within_capacity(new) {
            Ok(()) => Added::Kept,
            Err(refused) => Added::Full(refused.0),
        }
    }

    /// Takes the newest fault of the address space that has most, if those are `least` or more.
    fn take_surplus(&mut self, least: usize) -> Option<Pending<W>> {
        let all = self.entries.iter().map(|entry| entry.fault.pasid);
        let most = all.max_by_key(|pasid| self.count(*pasid))?;
        if self.count(most) < least {
            return None;
        }
        let newest = |entry: &Pending<W>| entry.fault.pasid == most;
        let at = self.entries.iter().rposition(newest)?;
        self.entries.remove(at).ok()
    }

    /// Counts `count` faults of `pasid` that have no place with the newest that has one.
    fn note_dropped(&mut self, pasid: u16, count: u64) {
        let mut newest_first = self.entries.iter_mut().rev();
        if let Some(entry) = newest_first.find(|entry| entry.fault.pasid == pasid) {
            entry.dropped += count;
        }
    }
}
