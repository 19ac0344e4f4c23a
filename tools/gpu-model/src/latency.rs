// SPDX-License-Identifier: GPL-2.0 OR MIT
//! How long things take that somebody waits for: a histogram in powers of two.

use std::time::Duration;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// Buckets: bucket `n` has durations below 2^n ns; the last one has all that are longer, from about 1 s on.
const BUCKETS: usize = 32;

/// Durations that were measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latency {
    buckets: [u64; BUCKETS],
    count: u64,
    longest_ns: u64,
}

impl Latency {
    /// Adds a measurement.
    pub fn note(&mut self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let n = (u64::BITS - ns.leading_zeros()) as usize;
        if let Some(bucket) = self.buckets.get_mut(n.min(BUCKETS - 1)) {
            *bucket += 1;
        }
        self.count += 1;
        self.longest_ns = self.longest_ns.max(ns);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest, in nanoseconds.
    pub fn longest_ns(&self) -> u64 {
        self.longest_ns
    }

    /// What `per_mille` of a thousand measurements do not exceed, in nanoseconds, rounded up to a power of two, and to
    /// the longest at most.
    pub fn at(&self, per_mille: u64) -> u64 {
        let rank = (self.count * per_mille).div_ceil(1000);
        let mut seen = 0;
        for (n, bucket) in self.buckets.iter().enumerate() {
            seen += bucket;
            if seen >= rank {
                return (1u64 << n).min(self.longest_ns);
            }
        }
        self.longest_ns
    }
}

impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut s = serializer.serialize_struct("Latency", 5)?;
        s.serialize_field("count", &self.count)?;
        for (name, per_mille) in [("p50_ns", 500), ("p99_ns", 990), ("p999_ns", 999)] {
            s.serialize_field(name, &self.at(per_mille))?;
        }
        s.serialize_field("max_ns", &self.longest_ns)?;
        s.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_bounds() {
        let mut l = Latency::default();
        assert_eq!((l.at(500), l.longest_ns()), (0, 0));
        for us in 1..=1000 {
            l.note(Duration::from_micros(us));
        }
        assert_eq!((l.count(), l.longest_ns()), (1000, 1_000_000));
        for per_mille in [1, 500, 990, 999, 1000] {
            let exact = per_mille * 1000;
            assert!(
                (exact..=2 * exact).contains(&l.at(per_mille)),
                "{per_mille}"
            );
        }
        assert_eq!(l.at(1000), 1_000_000);
        l.note(Duration::MAX);
        assert_eq!((l.at(1000), l.longest_ns()), (1 << 31, u64::MAX));
    }
}
