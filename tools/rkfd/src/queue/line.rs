// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Who puts packets into a PM4 or SDMA ring, and in which order where there is no room.
//!
//! Whoever finds room has it, so those who need much of it could wait for ever while others take each little that the GPU
//! frees. Hence a line: who waits for room stands in it and gets it in the order of coming, and as long as there is a line,
//! nobody else finds any.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::MutexGuard;
use std::time::Duration;

use super::Queue;
use crate::backoff::wait_until;
use crate::error::Error;
use crate::error::Result;
use crate::ring::Ring;

/// A ring and the line before it.
#[derive(Debug)]
pub(super) struct WriteSide {
    pub(super) ring: Ring,
    /// Numbers of those who wait, in the order of coming.
    line: VecDeque<u64>,
    /// The number of who comes next.
    next: u64,
}

impl WriteSide {
    /// One that nobody waits for.
    pub(super) fn new(ring: Ring) -> Self {
        Self {
            ring,
            line: VecDeque::new(),
            next: 0,
        }
    }

    fn join(&mut self) -> u64 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.line.push_back(number);
        number
    }

    fn leave(&mut self, number: u64) {
        self.line.retain(|other| *other != number);
    }

    /// Whether someone else is before the one with that number, or before one without.
    fn is_behind(&self, number: Option<u64>) -> bool {
        self.line
            .front()
            .copied()
            .is_some_and(|first| Some(first) != number)
    }
}

/// A place in the line, left when dropped.
struct InLine<'q> {
    queue: &'q Queue,
    number: u64,
}

impl<'q> InLine<'q> {
    fn join(queue: &'q Queue) -> Self {
        let mut side = queue.write_side();
        let number = side.join();
        queue.count_line(&side);
        Self { queue, number }
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let mut side = self.queue.write_side();
        side.leave(self.number);
        self.queue.count_line(&side);
    }
}

impl Queue {
    fn count_line(&self, side: &MutexGuard<'_, WriteSide>) {
        self.in_line.store(side.line.len(), Ordering::Release);
    }

    /// Writes dwords of PM4 or SDMA packets and rings the doorbell.
    ///
    /// # Errors
    /// [`Error::RingFull`] where the GPU has to read on first, or others wait for room already; [`Error::Argument`] on an
    /// AQL queue.
    pub fn submit(&self, dwords: &[u32]) -> Result<()> {
        self.stage(dwords)?;
        self.flush();
        Ok(())
    }

    /// Writes dwords of PM4 or SDMA packets, of which the GPU learns with the next [`Queue::flush`]. Those of one call stay
    /// together.
    ///
    /// # Errors
    /// As [`Queue::submit`]; nothing is written then.
    pub fn stage(&self, dwords: &[u32]) -> Result<()> {
        self.demand(false)?;
        self.put(dwords, None)
    }

    /// As [`Queue::stage`], but waits for room, for `limit` at most, in the order in which callers came; while one of them
    /// waits nobody else gets any. What was written before is flushed first, since the GPU makes room only by reading it.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`Error::Argument`] for more dwords than the ring takes, and on an AQL queue. Nothing is written
    /// then.
    pub fn stage_within(&self, dwords: &[u32], limit: Duration) -> Result<()> {
        self.demand(false)?;
        if self.write_side().ring.never_has(dwords.len()) {
            return Err(Error::Argument("More dwords than the ring has room for"));
        }
        match self.put(dwords, None) {
            Err(Error::RingFull { .. }) => {}
            result => return result,
        }
        let place = InLine::join(self);
        wait_until("room in the ring", limit, || {
            self.flush();
            let done = match self.put(dwords, Some(place.number)) {
                Err(Error::RingFull { .. }) => false,
                result => result.map(|()| true)?,
            };
            Ok((done, self.read_pointer()))
        })
    }

    /// Writes dwords where there is room for who has that number in the line, or none.
    fn put(&self, dwords: &[u32], number: Option<u64>) -> Result<()> {
        let mut side = self.write_side();
        if side.is_behind(number) {
            let wanted = side.ring.units_of(dwords.len());
            return Err(Error::RingFull { wanted, free: 0 });
        }
        let spans = side.ring.reserve(dwords.len(), self.read_pointer())?;
        let (first, second) = dwords.split_at(spans.first_dwords);
        self.live.ring.write_dwords(spans.offset, first)?;
        self.live.ring.write_dwords(0, second)?;
        self.written.store(side.ring.written(), Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::QueueKind;

    #[test]
    fn a_line_is_served_in_the_order_of_coming() {
        let mut side = WriteSide::new(Ring::new(QueueKind::Pm4, 4096).unwrap());
        assert!(!side.is_behind(None));
        let (first, second, third) = (side.join(), side.join(), side.join());
        assert!(!side.is_behind(Some(first)));
        for other in [Some(second), Some(third), None] {
            assert!(side.is_behind(other), "{other:?}");
        }
        // One in the middle gives up.
        side.leave(second);
        assert!(side.is_behind(Some(third)));
        side.leave(first);
        assert!(!side.is_behind(Some(third)));
        assert!(side.is_behind(None));
        side.leave(third);
        assert!(!side.is_behind(None));
    }
}
