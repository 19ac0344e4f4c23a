// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Figures over many round trips.

use std::time::Duration;

/// Durations, sorted.
#[derive(Debug)]
pub struct Samples(Vec<Duration>);

impl Samples {
    /// Takes measurements.
    pub fn new(mut durations: Vec<Duration>) -> Self {
        durations.sort();
        Self(durations)
    }

    /// The smallest value that at least `percent` of the samples do not exceed; 0 without samples.
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// A duration in microseconds, for a reader.
pub fn micros(d: Duration) -> String {
    format!("{:.1} µs", d.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_by_nearest_rank() {
        let s = Samples::new((1..=200).rev().map(Duration::from_micros).collect());
        assert_eq!(s.percentile(50), Duration::from_micros(100));
        assert_eq!(s.percentile(99), Duration::from_micros(198));
        assert_eq!(s.percentile(100), Duration::from_micros(200));
        assert_eq!(
            Samples::new(vec![Duration::from_micros(7)]).percentile(50),
            Duration::from_micros(7)
        );
        assert_eq!(Samples::new(Vec::new()).percentile(99), Duration::ZERO);
    }
}
