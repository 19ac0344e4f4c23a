// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Which packets of an AQL ring this process has made valid.
//!
//! The ring itself does not tell: the GPU makes a header invalid again when it is done with the packet, and reports its
//! read index some time later. So each place has a word of this process's own, with one more than the index that was
//! valid there last, and the thread that raises it is the one that may write the header.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

/// A word per place.
#[derive(Debug)]
pub(super) struct Laps(Box<[AtomicU64]>);

impl Laps {
    /// For a ring of as many packets, a power of two; none for a queue of another kind.
    pub(super) fn new(packets: usize) -> Self {
        Self((0..packets).map(|_| AtomicU64::new(0)).collect())
    }

    fn place(&self, index: u64) -> Option<&AtomicU64> {
        // CAST: a length, and a remainder below it.
        let place = index.checked_rem(self.0.len() as u64)? as usize;
        self.0.get(place)
    }

    /// Whether the packet with that index, or a later one in its place, was made valid.
    pub(super) fn is_taken(&self, index: u64) -> bool {
        self.place(index)
            .is_none_or(|last| last.load(Ordering::Acquire) > index)
    }

    /// Takes the right to make the packet with that index valid. Returns false where it was taken before.
    pub(super) fn claim(&self, index: u64) -> bool {
        self.place(index)
            .is_some_and(|last| last.fetch_max(index.wrapping_add(1), Ordering::AcqRel) <= index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::Barrier;
    use std::thread;

    #[test]
    fn a_packet_is_claimed_once() {
        let laps = Laps::new(4);
        for index in 0..12 {
            assert!(!laps.is_taken(index), "{index}");
            assert!(laps.claim(index), "{index}");
            assert!(laps.is_taken(index), "{index}");
            assert!(!laps.claim(index), "{index}");
        }
        // Those of earlier laps stay taken; those of later ones are free, even where one in between was never claimed here.
        assert!(laps.is_taken(3) && !laps.claim(3));
        assert!(!laps.is_taken(20) && laps.claim(20));
        assert!(laps.is_taken(16) && !laps.claim(16));
    }

    #[test]
    fn a_queue_of_another_kind_has_none() {
        let laps = Laps::new(0);
        assert!(laps.is_taken(0));
        assert!(!laps.claim(0));
    }

    #[test]
    fn of_threads_that_claim_one_packet_one_succeeds() {
        const THREADS: usize = 4;
        let laps = Laps::new(2);
        for index in 0..500 {
            let (start, won) = (Barrier::new(THREADS), AtomicUsize::new(0));
            thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        start.wait();
                        if laps.claim(index) {
                            won.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            });
            assert_eq!(won.into_inner(), 1, "{index}");
        }
    }
}
