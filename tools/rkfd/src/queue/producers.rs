// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Many producers of one AQL ring, without a lock.
//!
//! A producer takes its places with one addition to the write index, waits until the GPU has read what was there a lap
//! ago, writes its packets and stores each header last, with release order. So places are had in the order of the
//! additions: nobody overtakes a producer that waits. The write index may run ahead of what is valid, and by more than
//! the ring; the GPU stops at a header of type INVALID and looks again at the next doorbell.
//!
//! The doorbell takes the highest index that is valid. Producers ring it concurrently, so the highest may be stored
//! before a lower one: whoever stored looks once more, and stores again where a higher one came meanwhile.
//!
//! A producer whose limit ends while it waits has places that it will not use. They are *given up*: the next call that
//! finds room for them puts empty packets there. See [`Ring::give_up`] for why none is left behind.
//!
//! The algorithm knows nothing of the ring's memory, so that the tests run it without a GPU.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

/// A 64-bit word that threads and the GPU share.
pub trait Word {
    /// As [`AtomicU64::load`].
    fn load(&self, order: Ordering) -> u64;
    /// As [`AtomicU64::store`].
    fn store(&self, value: u64, order: Ordering);
    /// As [`AtomicU64::fetch_add`].
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    /// As [`AtomicU64::fetch_max`].
    fn fetch_max(&self, value: u64, order: Ordering) -> u64;
}

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }

    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        AtomicU64::fetch_add(self, value, order)
    }

    fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        AtomicU64::fetch_max(self, value, order)
    }
}

/// Ranges of places.
pub type Places = Vec<Range<u64>>;

/// What producers share: a ring and its indices.
pub trait Ring {
    /// Its words.
    type Word: Word;

    /// Packets of the ring.
    fn packets(&self) -> u64;
    /// Places taken: the write index, in memory that the GPU reads.
    fn taken(&self) -> &Self::Word;
    /// Packets read: the read index, in memory that the GPU writes.
    fn read(&self) -> &Self::Word;
    /// One more than the highest index that is valid.
    fn highest(&self) -> &Self::Word;
    /// How many packets were made valid.
    fn published(&self) -> &Self::Word;
    /// How many of them the GPU was told of, at least.
    fn told(&self) -> &Self::Word;
    /// How many ranges of places were given up and are not filled yet.
    fn gaps(&self) -> &Self::Word;
    /// Works on these ranges, behind a lock.
    fn with_gaps<T>(&self, work: impl FnOnce(&mut Places) -> T) -> T;
    /// Stores a packet that does nothing at `index`, and its header with release order; nothing where one is valid there.
    fn store_empty(&self, index: u64);
    /// Orders everything stored before and after, and pushes out write-combined stores.
    fn fence(&self);
    /// Stores to the doorbell.
    fn ring_doorbell(&self, index: u64);

    /// Whether the GPU has read what was in the places before `end` a lap ago.
    fn has_room(&self, end: u64, read: u64) -> bool {
        // CAST: a difference of two indices that are close; negative where the GPU is further.
        end.wrapping_sub(read).wrapping_sub(self.packets()) as i64 <= 0
    }

    /// Takes `count` places, at most as many as the ring has, and returns the first of them when there is room. `pause`
    /// gets the read index at each look that finds none.
    ///
    /// # Errors
    /// That of `pause`; the places are given up then.
    fn take<E>(&self, count: u64, mut pause: impl FnMut(u64) -> Result<(), E>) -> Result<u64, E> {
        let first = self.taken().fetch_add(count, Ordering::AcqRel);
        let end = first.wrapping_add(count);
        loop {
            let read = self.read().load(Ordering::Acquire);
            if self.has_room(end, read) {
                return Ok(first);
            }
            // What is valid makes room only if the GPU knows of it.
            self.announce();
            if let Err(error) = pause(read) {
                self.give_up(first..end);
                return Err(error);
            }
        }
    }

    /// The packet at `index` is valid: its header was stored.
    fn publish(&self, index: u64) {
        self.highest()
            .fetch_max(index.wrapping_add(1), Ordering::AcqRel);
        self.published().fetch_add(1, Ordering::AcqRel);
    }

    /// Tells the GPU of all that is valid. Returns whether there was anything to tell.
    fn announce(&self) -> bool {
        let mut rang = false;
        loop {
            let published = self.published().load(Ordering::Acquire);
            if self.told().load(Ordering::Acquire) < published {
                rang = true;
                self.ring_highest();
                self.told().fetch_max(published, Ordering::AcqRel);
            } else {
                self.fence();
            }
            // After a fence that follows the packets: see `give_up`.
            if !self.fill() {
                return rang;
            }
        }
    }

    /// Stores the highest valid index to the doorbell, so that it is the last that is stored.
    fn ring_highest(&self) {
        loop {
            let highest = self.highest().load(Ordering::Acquire);
            self.fence();
            self.ring_doorbell(highest.wrapping_sub(1));
            self.fence();
            if self.highest().load(Ordering::Acquire) == highest {
                return;
            }
        }
    }

    /// Leaves places to be filled with empty packets.
    ///
    /// Either this call fills them, or a later one does, before any packet behind them would have to wait for it: a
    /// producer behind found its room by the read index and announces its packet after a fence; this call marks the
    /// places before a fence and looks at the read index after it. So either that producer sees the mark, or this call
    /// sees the read index that the producer saw, which is room for these places, too.
    fn give_up(&self, places: Range<u64>) {
        self.with_gaps(|gaps| {
            gaps.push(places);
            self.count_gaps(gaps);
        });
        self.announce();
    }

    /// Puts empty packets where places were given up and there is room now. Returns whether it put any.
    fn fill(&self) -> bool {
        if self.gaps().load(Ordering::Acquire) == 0 {
            return false;
        }
        self.with_gaps(|gaps| {
            let read = self.read().load(Ordering::Acquire);
            let mut filled = false;
            for places in gaps.iter_mut() {
                while places.start != places.end
                    && self.has_room(places.start.wrapping_add(1), read)
                {
                    self.store_empty(places.start);
                    self.publish(places.start);
                    places.start = places.start.wrapping_add(1);
                    filled = true;
                }
            }
            gaps.retain(|places| places.start != places.end);
            self.count_gaps(gaps);
            filled
        })
    }

    /// Notes how many ranges there are, with the lock that guards them.
    fn count_gaps(&self, gaps: &Places) {
        // CAST: a length.
        self.gaps().store(gaps.len() as u64, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
