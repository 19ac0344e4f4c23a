// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Places of an AQL ring: taken, written in place, made valid.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use super::laps::Laps;
use super::producers::Places;
use super::producers::Ring;
use super::Queue;
use crate::backoff::Backoff;
use crate::clock::Deadline;
use crate::error::Error;
use crate::error::Result;
use crate::packet::aql;
use crate::sys;

/// What producers of one process share, beside what the GPU sees.
#[derive(Debug)]
pub(super) struct Producers {
    highest: AtomicU64,
    published: AtomicU64,
    told: AtomicU64,
    gaps: AtomicU64,
    places: Mutex<Places>,
    valid: Laps,
}

impl Producers {
    /// Those of a ring of as many packets.
    pub(super) fn new(packets: usize) -> Self {
        Self {
            highest: AtomicU64::new(0),
            published: AtomicU64::new(0),
            told: AtomicU64::new(0),
            gaps: AtomicU64::new(0),
            places: Mutex::default(),
            valid: Laps::new(packets),
        }
    }

    /// One more than the highest index that is valid.
    pub(super) fn highest(&self) -> u64 {
        self.highest.load(Ordering::Acquire)
    }
}

impl Ring for Queue {
    type Word = AtomicU64;

    fn packets(&self) -> u64 {
        (self.ring_bytes() / aql::BYTES) as u64 // CAST: a size in memory.
    }

    fn taken(&self) -> &AtomicU64 {
        self.live.object.write()
    }

    fn read(&self) -> &AtomicU64 {
        self.live.object.read()
    }

    fn highest(&self) -> &AtomicU64 {
        &self.producers.highest
    }

    fn published(&self) -> &AtomicU64 {
        &self.producers.published
    }

    fn told(&self) -> &AtomicU64 {
        &self.producers.told
    }

    fn gaps(&self) -> &AtomicU64 {
        &self.producers.gaps
    }

    fn with_gaps<T>(&self, work: impl FnOnce(&mut Places) -> T) -> T {
        let places = &self.producers.places;
        work(&mut places.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn store_empty(&self, index: u64) {
        if !self.producers.valid.claim(index) {
            return;
        }
        let mut packet = [0; aql::DWORDS];
        packet[0] = aql::INVALID.into();
        self.store_body(index, &packet);
        self.store_header(index, aql::EMPTY);
    }

    fn fence(&self) {
        sys::publish();
    }

    fn ring_doorbell(&self, index: u64) {
        Queue::ring_doorbell(self, index);
    }
}

impl Queue {
    /// A dword of the place with that index.
    fn dword(&self, index: u64, dword: usize) -> &AtomicU32 {
        // CAST: less than the ring's size.
        let place = (index % self.packets()) as usize * aql::BYTES;
        let offset = place + dword % aql::DWORDS * 4;
        // SAFETY: 4-byte aligned and inside the ring, which lives as long as `self`; threads that write a place one lap
        // after another are ordered by the GPU's read index, and all access is atomic.
        unsafe { AtomicU32::from_ptr((self.ring_address() as usize as *mut u8).add(offset).cast()) }
    }

    fn store_body(&self, index: u64, packet: &[u32; aql::DWORDS]) {
        for (n, value) in packet.iter().enumerate() {
            self.dword(index, n).store(*value, Ordering::Relaxed);
        }
    }

    /// Makes a packet valid, after everything that was stored to it; the upper half of its first dword stays.
    fn store_header(&self, index: u64, header: u16) {
        let first = self.dword(index, 0);
        let upper = first.load(Ordering::Relaxed) & 0xffff_0000;
        sys::publish();
        first.store(upper | u32::from(header), Ordering::Release);
    }

    /// Takes `count` places in a row. Waits for room, for `limit` at most, behind those who came first.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::QueueFailed`]; [`Error::Argument`] for none, for more than the ring has, and on
    /// another kind of queue.
    pub fn reserve_aql(&self, count: u64, limit: Duration) -> Result<Slots<'_>> {
        let first = self.take_aql(count, limit)?;
        Ok(Slots {
            queue: self,
            next: first,
            end: first.wrapping_add(count),
        })
    }

    /// As [`Queue::reserve_aql`], for a caller that keeps account of its places itself: it calls [`Queue::publish_aql`]
    /// for each of them.
    ///
    /// # Errors
    /// As [`Queue::reserve_aql`].
    pub fn take_aql(&self, count: u64, limit: Duration) -> Result<u64> {
        self.demand(true)?;
        if count == 0 || count > self.packets() {
            return Err(Error::Argument("No packets, or more than the ring has"));
        }
        let deadline = Deadline::after(limit);
        let mut backoff = Backoff::new();
        self.take(count, |read| {
            self.check()?;
            let waited = deadline.elapsed();
            if deadline.passed() {
                return Err(Error::TimedOut {
                    what: "room in the ring",
                    seen: read,
                    ms: waited.as_millis(),
                });
            }
            backoff.pause(limit.saturating_sub(waited));
            Ok(())
        })
    }

    /// Where the packet with that index is to be written: 64 bytes. `None` where nobody has taken the place, or where it
    /// was made valid.
    pub fn aql_place(&self, index: u64) -> Option<*mut u8> {
        self.demand(true).ok()?;
        let taken = self.taken().load(Ordering::Acquire);
        let read = self.read().load(Ordering::Acquire);
        // CAST: differences of indices that are close.
        let is_open = (taken.wrapping_sub(index) as i64) > 0
            && (index.wrapping_sub(read) as i64) >= 0
            && self.has_room(index.wrapping_add(1), read);
        (is_open && !self.producers.valid.is_taken(index))
            .then(|| self.dword(index, 0).as_ptr().cast())
    }

    /// Makes the packet valid that was written to a place: its header goes there, last. The GPU learns of it with the next
    /// [`Queue::flush`].
    ///
    /// # Errors
    /// [`Error::Argument`] where the place is not open, which it is not any more once its packet was published, and for a
    /// header of type INVALID.
    pub fn publish_aql(&self, index: u64, header: u16) -> Result<()> {
        demand_type(header)?;
        // Of threads that publish one packet, the one that claims it does.
        if self.aql_place(index).is_none() || !self.producers.valid.claim(index) {
            return Err(NOT_OPEN);
        }
        self.store_header(index, header);
        self.publish(index);
        Ok(())
    }

    /// Writes one AQL packet, its header last, and rings the doorbell. Returns its index.
    ///
    /// # Errors
    /// As [`Queue::stage_aql`].
    pub fn submit_aql(&self, packet: &[u32; aql::DWORDS], header: u16) -> Result<u64> {
        let index = self.stage_aql(packet, header)?;
        self.flush();
        Ok(index)
    }

    /// Writes one AQL packet, of which the GPU learns with the next [`Queue::flush`] at the latest. Returns its index. Waits
    /// for room as long as the queue's options say.
    ///
    /// # Errors
    /// As [`Queue::stage_aql_within`].
    pub fn stage_aql(&self, packet: &[u32; aql::DWORDS], header: u16) -> Result<u64> {
        self.stage_aql_within(packet, header, self.options.full_limit)
    }

    /// As [`Queue::stage_aql`], but waits for `limit` at most.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::QueueFailed`]; [`Error::Argument`] on another kind of queue, and for a header of type
    /// INVALID. Nothing is written then.
    pub fn stage_aql_within(
        &self,
        packet: &[u32; aql::DWORDS],
        header: u16,
        limit: Duration,
    ) -> Result<u64> {
        demand_type(header)?;
        let index = self.take_aql(1, limit)?;
        self.write_aql(index, packet, header)?;
        Ok(index)
    }

    /// Writes the packet of a place that the caller has taken, and makes it valid.
    fn write_aql(&self, index: u64, packet: &[u32; aql::DWORDS], header: u16) -> Result<()> {
        if !self.producers.valid.claim(index) {
            return Err(NOT_OPEN);
        }
        self.store_body(index, &aql::still_invalid(packet));
        self.store_header(index, header);
        self.publish(index);
        Ok(())
    }
}

fn demand_type(header: u16) -> Result<()> {
    if header & 0xff == aql::INVALID {
        return Err(Error::Argument("A header of type INVALID makes no packet"));
    }
    Ok(())
}

const NOT_OPEN: Error = Error::Argument("Not the index of a packet that is open");

/// Places that were taken, in order.
#[derive(Debug)]
pub struct Slots<'q> {
    queue: &'q Queue,
    next: u64,
    end: u64,
}

impl<'q> Iterator for Slots<'q> {
    type Item = Slot<'q>;

    fn next(&mut self) -> Option<Slot<'q>> {
        let index = self.next;
        (index != self.end).then(|| {
            self.next = index.wrapping_add(1);
            Slot {
                queue: self.queue,
                index,
                open: true,
            }
        })
    }
}

impl Drop for Slots<'_> {
    fn drop(&mut self) {
        // Each empties its place.
        for slot in self {
            drop(slot);
        }
    }
}

/// A place that was taken. Dropped without a packet it gets an empty one, so that the GPU does not wait for it.
#[derive(Debug)]
pub struct Slot<'q> {
    queue: &'q Queue,
    index: u64,
    open: bool,
}

impl Slot<'_> {
    /// The packet's index.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Writes the packet, and its header last. The GPU learns of it with the next [`Queue::flush`].
    ///
    /// # Errors
    /// [`Error::Argument`] for a header of type INVALID, whereupon the place gets an empty packet, and where
    /// [`Queue::publish_aql`] published the place.
    pub fn publish(mut self, packet: &[u32; aql::DWORDS], header: u16) -> Result<()> {
        demand_type(header)?;
        self.open = false;
        self.queue.write_aql(self.index, packet, header)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if self.open {
            self.queue.store_empty(self.index);
            self.queue.publish(self.index);
            self.queue.announce();
        }
    }
}
