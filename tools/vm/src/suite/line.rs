// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What is to be run in VMs, and when the next one begins.

use std::fs;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

/// Pause between two looks at what [`Line::next`] waits for beside memory.
const INTERVAL: Duration = Duration::from_millis(500);

/// Things to do, each with the memory that it takes: the first one that fits is next, and one that is
/// larger than the machine gets it alone.
pub(super) struct Line<T> {
    state: Mutex<LineState<T>>,
    changed: Condvar,
}

struct LineState<T> {
    waiting: Vec<(u64, T)>,
    free: u64,
    running: usize,
    /// When the latest one began.
    begun: Instant,
}

impl<T> Line<T> {
    pub(super) fn new(waiting: Vec<(u64, T)>, free: u64) -> Self {
        Self {
            state: Mutex::new(LineState {
                waiting,
                free,
                running: 0,
                begun: Instant::now(),
            }),
            changed: Condvar::new(),
        }
    }

    /// The next one, as soon as there is room for it and `admits` says so, which is asked again and again with how many
    /// run and how long ago the latest one began; none where nothing waits.
    pub(super) fn next(&self, admits: impl Fn(usize, Duration) -> bool) -> Option<(u64, T)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.waiting.is_empty() {
                return None;
            }
            let free = state.free;
            let fitting = state.waiting.iter().position(|(size, _)| *size <= free);
            if let Some(at) = fitting.or((state.running == 0).then_some(0)) {
                if admits(state.running, state.begun.elapsed()) {
                    let (size, work) = state.waiting.remove(at);
                    // What is too large for the machine takes all of it.
                    let size = size.min(free);
                    state.free -= size;
                    state.running += 1;
                    state.begun = Instant::now();
                    return Some((size, work));
                }
            }
            let waited = self.changed.wait_timeout(state, INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Gives back what [`Line::next`] took.
    pub(super) fn done(&self, size: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.free += size;
        state.running -= 1;
        drop(state);
        self.changed.notify_all();
    }

    /// How many run.
    pub(super) fn running(&self) -> usize {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.running
    }
}

/// Memory that this machine can give to VMs, in MiB; some remains for the host itself.
pub(super) fn available_memory() -> u64 {
    let table = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    memory_of(&table) / 10 * 9
}

/// `MemAvailable` of the table, in MiB; where it is missing, enough for anything.
fn memory_of(table: &str) -> u64 {
    let mut lines = table.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(1 << 30, |kib| kib / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering;
    use std::thread;

    fn always(_running: usize, _since: Duration) -> bool {
        true
    }

    #[test]
    fn what_fits_is_next_and_what_never_fits_runs_alone() {
        let line = Line::new(vec![(6, 'a'), (5, 'b'), (2, 'c'), (99, 'd')], 8);
        assert_eq!(line.next(always), Some((6, 'a')));
        assert_eq!(line.next(always), Some((2, 'c')));
        line.done(6);
        assert_eq!(line.next(always), Some((5, 'b')));
        line.done(5);
        line.done(2);
        assert_eq!(line.next(always), Some((8, 'd')));
        assert_eq!(line.next(always), None);
    }

    #[test]
    fn one_that_does_not_fit_waits_for_room() {
        let line = Line::new(vec![(6, 'a'), (5, 'b')], 8);
        let (size, _) = line.next(always).unwrap();
        thread::scope(|scope| {
            let second = scope.spawn(|| line.next(always));
            line.done(size);
            assert_eq!(second.join().unwrap(), Some((5, 'b')));
        });
    }

    #[test]
    fn one_that_is_not_admitted_waits_although_there_is_room() {
        let line = Line::new(vec![(1, 'a'), (1, 'b')], 8);
        let quiet = AtomicBool::new(false);
        let admits = |running, _since| running == 0 || quiet.load(Ordering::SeqCst);
        assert_eq!(line.next(admits), Some((1, 'a')));
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                let next = line.next(admits);
                (next, quiet.load(Ordering::SeqCst))
            });
            thread::sleep(INTERVAL / 4);
            assert_eq!(line.running(), 1);
            quiet.store(true, Ordering::SeqCst);
            assert_eq!(second.join().unwrap(), (Some((1, 'b')), true));
        });
        assert_eq!(line.running(), 2);
    }

    #[test]
    fn available_memory_is_read() {
        assert_eq!(
            memory_of("MemTotal: 9 kB\nMemAvailable:   2097152 kB\n"),
            2048
        );
        assert!(memory_of("") > 1 << 20);
    }
}
