// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The algorithm over rings that are too small, many times over, with threads for producers and GPU.
//!
//! What a place contains is memory like any other, so that ThreadSanitizer (`tests/tsan.rs`) sees an access that indices
//! and headers do not order.

use std::cell::UnsafeCell;
use std::sync::atomic::fence;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::sync::Mutex;
use std::thread;

use super::Places;
use super::Ring;

/// What an empty packet has for contents.
const EMPTY: u64 = 99;

/// A place: its header (0 while it is invalid) and its contents.
struct Slot {
    header: AtomicU64,
    contents: UnsafeCell<u64>,
}

// SAFETY: `contents` belongs to the producer of the place until the header is valid, then to the consumer, until the read
// index passes it: what is tested here.
unsafe impl Sync for Slot {}

struct Fake {
    slots: Vec<Slot>,
    taken: AtomicU64,
    read: AtomicU64,
    highest: AtomicU64,
    published: AtomicU64,
    told: AtomicU64,
    gaps: AtomicU64,
    ranges: Mutex<Places>,
    /// The value, and how often it was stored.
    doorbell: AtomicU64,
    rings: AtomicU64,
}

impl Fake {
    fn new(packets: usize) -> Arc<Self> {
        let word = || AtomicU64::new(0);
        Arc::new(Self {
            slots: (0..packets)
                .map(|_| Slot {
                    header: word(),
                    contents: UnsafeCell::new(0),
                })
                .collect(),
            taken: word(),
            read: word(),
            highest: word(),
            published: word(),
            told: word(),
            gaps: word(),
            ranges: Mutex::new(Places::new()),
            doorbell: AtomicU64::new(u64::MAX),
            rings: word(),
        })
    }

    fn slot(&self, index: u64) -> &Slot {
        &self.slots[usize::try_from(index).unwrap() % self.slots.len()]
    }

    fn write(&self, index: u64, contents: u64) {
        let slot = self.slot(index);
        // SAFETY: the caller has taken the place and found room for it.
        unsafe { *slot.contents.get() = contents };
        slot.header.store(1, Ordering::Release);
    }

    /// Takes a place, waiting for room, and puts a packet there.
    fn produce(&self, contents: u64) {
        let taken: Result<u64, ()> = self.take(1, |_| {
            thread::yield_now();
            Ok(())
        });
        let index = taken.unwrap();
        self.write(index, contents);
        self.publish(index);
        self.announce();
    }

    /// Reads packets until there were `count`. Looks at the ring once per store to the doorbell, as the GPU does.
    fn consume(&self, count: u64) -> Vec<u64> {
        let mut seen = Vec::new();
        let mut rings = 0;
        loop {
            let now = self.rings.load(Ordering::Acquire);
            if now == rings {
                thread::yield_now();
                continue;
            }
            rings = now;
            loop {
                let index = self.read.load(Ordering::Relaxed);
                let slot = self.slot(index);
                if slot.header.load(Ordering::Acquire) == 0 {
                    break;
                }
                // SAFETY: the header is valid, and there is one consumer.
                seen.push(unsafe { *slot.contents.get() });
                slot.header.store(0, Ordering::Relaxed);
                self.read.store(index + 1, Ordering::Release);
                if index + 1 == count {
                    return seen;
                }
            }
        }
    }
}

impl Ring for Fake {
    type Word = AtomicU64;

    fn packets(&self) -> u64 {
        self.slots.len() as u64
    }

    fn taken(&self) -> &AtomicU64 {
        &self.taken
    }

    fn read(&self) -> &AtomicU64 {
        &self.read
    }

    fn highest(&self) -> &AtomicU64 {
        &self.highest
    }

    fn published(&self) -> &AtomicU64 {
        &self.published
    }

    fn told(&self) -> &AtomicU64 {
        &self.told
    }

    fn gaps(&self) -> &AtomicU64 {
        &self.gaps
    }

    fn with_gaps<T>(&self, work: impl FnOnce(&mut Places) -> T) -> T {
        work(&mut self.ranges.lock().unwrap())
    }

    fn store_empty(&self, index: u64) {
        self.write(index, EMPTY);
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn ring_doorbell(&self, index: u64) {
        self.doorbell.store(index, Ordering::Relaxed);
        self.rings.fetch_add(1, Ordering::AcqRel);
    }
}

fn check(body: impl Fn()) {
    for _ in 0..2000 {
        body();
    }
}

#[test]
fn the_doorbell_ends_at_the_highest_index() {
    check(|| {
        let ring = Fake::new(4);
        let other = {
            let ring = ring.clone();
            thread::spawn(move || ring.produce(10))
        };
        ring.produce(11);
        other.join().unwrap();
        assert_eq!(ring.doorbell.load(Ordering::Relaxed), 1);
        assert_eq!(ring.told.load(Ordering::Relaxed), 2);
        assert_eq!(ring.slot(0).header.load(Ordering::Relaxed), 1);
        assert_eq!(ring.slot(1).header.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn every_packet_is_read_once_through_a_ring_that_is_too_small() {
    check(|| {
        let ring = Fake::new(1);
        let producers = [10, 11].map(|contents| {
            let ring = ring.clone();
            thread::spawn(move || ring.produce(contents))
        });
        let mut seen = ring.consume(2);
        for producer in producers {
            producer.join().unwrap();
        }
        seen.sort_unstable();
        assert_eq!(seen, [10, 11]);
    });
}

#[test]
fn places_that_are_given_up_stop_nobody() {
    check(|| {
        let ring = Fake::new(1);
        ring.produce(10);
        let patient = {
            let ring = ring.clone();
            thread::spawn(move || ring.produce(11))
        };
        let hasty = {
            let ring = ring.clone();
            thread::spawn(move || {
                if let Ok(index) = ring.take(1, |_| Err(())) {
                    ring.write(index, 12);
                    ring.publish(index);
                    ring.announce();
                }
            })
        };
        let seen = ring.consume(2);
        patient.join().unwrap();
        hasty.join().unwrap();
        assert_eq!(seen[0], 10);
        // What is left is read without anybody's further help, but for the last place: nobody waits behind that.
        let rest = if ring.gaps.load(Ordering::Relaxed) == 0 {
            ring.consume(3)
        } else {
            Vec::new()
        };
        let all: Vec<u64> = seen.into_iter().chain(rest).collect();
        assert!(all.contains(&11), "{all:?}");
        assert_eq!(ring.taken.load(Ordering::Relaxed), 3);
    });
}

#[test]
#[ignore = "a data race, by which tests/tsan.rs sees that the sanitizer is at work"]
fn a_race() {
    let ring = Fake::new(1);
    let other = ring.clone();
    // No index and no header orders these two.
    let thread = thread::spawn(move || other.write(0, 1));
    ring.write(0, 2);
    thread.join().unwrap();
}
