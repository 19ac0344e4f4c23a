// SPDX-License-Identifier: GPL-2.0 OR MIT
//! In which order a worker visits rings.
//!
//! Rings of a priority get one task each in turn. High priority comes first, but after [`RUN`] tasks of it in a row one of
//! low priority does, if there is any. So a ring that has tasks waits for at most as many tasks of a worker as
//! there are rings, times [`RUN`] + 1.

use super::layout::Priority;

/// Tasks of high priority in a row while there are others.
pub const RUN: u32 = 8;

/// Whose turn it is.
#[derive(Clone, Debug)]
pub struct Rota {
    sources: usize,
    next: [usize; 2],
    run: u32,
}

impl Rota {
    /// For as many sources of each priority, beginning with a certain one.
    pub fn new(sources: usize, first: usize) -> Self {
        let first = first.checked_rem(sources).unwrap_or(0);
        Self {
            sources,
            next: [first; 2],
            run: 0,
        }
    }

    /// Visits sources in turn until one has a task.
    pub fn next<T>(&mut self, mut visit: impl FnMut(Priority, usize) -> Option<T>) -> Option<T> {
        let mut order = Priority::ALL;
        if self.run >= RUN {
            order.reverse();
        }
        for priority in order {
            let first = self.next[priority.index()];
            for n in 0..self.sources {
                let source = (first + n) % self.sources;
                let Some(task) = visit(priority, source) else {
                    continue;
                };
                self.next[priority.index()] = (source + 1) % self.sources;
                self.run = match priority {
                    Priority::High => self.run.saturating_add(1),
                    Priority::Low => 0,
                };
                return Some(task);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the rings have, none with tasks waits for longer than the bound.
        #[test]
        fn no_ring_is_forgotten(
            mut high in prop::collection::vec(0u32..200, 1..6),
            seed in prop::collection::vec(0u32..200, 6),
            first in 0usize..10,
        ) {
            let sources = high.len();
            let mut low: Vec<u32> = seed.into_iter().take(sources).collect();
            let mut rota = Rota::new(sources, first);
            let bound = (sources as u32) * (RUN + 1);
            let mut waited = vec![0u32; 2 * sources];
            let total: u32 = high.iter().chain(&low).sum();
            for _ in 0..total {
                let served = rota.next(|priority, source| {
                    let left = match priority {
                        Priority::High => &mut high[source],
                        Priority::Low => &mut low[source],
                    };
                    *left = left.checked_sub(1)?;
                    Some(priority.index() * sources + source)
                });
                let served = served.unwrap();
                for (n, left) in high.iter().chain(&low).enumerate() {
                    waited[n] = if n == served || *left == 0 { 0 } else { waited[n] + 1 };
                    prop_assert!(waited[n] <= bound, "source {n} waited for {}", waited[n]);
                }
            }
            prop_assert!(rota.next(|_, _| None::<()>).is_none());
            prop_assert!(high.iter().chain(&low).all(|left| *left == 0));
        }
    }

    #[test]
    fn high_priority_comes_first_and_not_alone() {
        let mut rota = Rota::new(1, 0);
        let order: Vec<Priority> = (0..20)
            .filter_map(|_| rota.next(|priority, _| Some(priority)))
            .collect();
        let low: Vec<usize> = (0..20).filter(|n| order[*n] == Priority::Low).collect();
        assert_eq!(low, [8, 17]);
    }
}
