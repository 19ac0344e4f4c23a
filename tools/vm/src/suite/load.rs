// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the machine's processors do during a run: it decides whether another VM may begin, and tells afterwards whether
//! the run waited for processors or for time-outs.

use std::fmt::Write as _;
use std::fs;
use std::num::NonZero;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use std::time::Instant;

/// Pause between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Over how much time idleness is measured.
const WINDOW: Duration = Duration::from_secs(4);
/// How long a VM that has begun has the idle time for itself: it boots, and only then shows what it takes.
const SETTLE: Duration = Duration::from_secs(8);
/// How much of one processor must be idle for another VM to begin.
const IDLE: f64 = 0.4;
/// VMs for each processor, at most: one that waits now may compute in a moment.
const PER_PROCESSOR: usize = 3;
/// VMs at a time.
const MOST: usize = 8;
/// Lines of the table, at most.
const LINES: usize = 30;

/// How many VMs run side by side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    processors: usize,
}

impl Pace {
    /// That of this machine.
    pub(super) fn of_machine() -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        Self { processors }
    }

    /// As many as there may ever be.
    pub(super) fn most(self) -> usize {
        (self.processors * PER_PROCESSOR).min(MOST)
    }

    /// As many as there are most of the time: half as many again as there are processors.
    pub(super) fn usual(self) -> usize {
        (self.processors + self.processors.div_ceil(2)).min(self.most())
    }

    /// Whether one more VM may begin where so many run, the latest since that time, and so many processors were idle.
    /// One for each processor always may; the others where most of those wait for time-outs.
    pub(super) fn admits(self, running: usize, since: Duration, idle: f64) -> bool {
        let idle = since >= SETTLE && idle >= IDLE;
        running < self.most() && (running < self.processors || idle)
    }
}

/// Processor time since the machine came up, of all processors together, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ticks {
    idle: u64,
    all: u64,
}

impl Ticks {
    /// The first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal; what follows is counted in
    /// these already.
    fn of(table: &str) -> Option<Self> {
        let rest = table.lines().next()?.strip_prefix("cpu ")?;
        let fields = rest.split_whitespace().take(8);
        let fields: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self {
            idle: fields.get(3)? + fields.get(4)?,
            all: fields.iter().sum(),
        })
    }

    /// The part of the time since `before` in which processors were idle.
    fn idle_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        // CAST: Exact below 2^53 ticks.
        self.idle.saturating_sub(before.idle) as f64 / all as f64
    }
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Since the run began.
    at: Duration,
    ticks: Ticks,
    /// How many VMs there were.
    vms: usize,
}

/// What was seen of the processors.
#[derive(Debug)]
pub(super) struct Load {
    start: Instant,
    processors: usize,
    samples: Mutex<Vec<Sample>>,
    over: AtomicBool,
}

impl Load {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            processors: Pace::of_machine().processors,
            samples: Mutex::default(),
            over: AtomicBool::new(false),
        }
    }

    /// Looks until [`Load::end`]; `vms` counts the VMs.
    pub(super) fn watch(&self, vms: impl Fn() -> usize) {
        while !self.over.load(Ordering::Relaxed) {
            self.look(vms());
            thread::sleep(INTERVAL);
        }
    }

    /// The run is over.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    fn look(&self, vms: usize) {
        let table = fs::read_to_string("/proc/stat").unwrap_or_default();
        if let Some(ticks) = Ticks::of(&table) {
            let at = self.start.elapsed();
            super::lock(&self.samples).push(Sample { at, ticks, vms });
        }
    }

    /// How many processors were idle just now, on the average of some seconds: 0 as long as that is not known.
    pub(super) fn idle(&self) -> f64 {
        idle(&super::lock(&self.samples), self.processors)
    }

    /// The table of the whole run, for people.
    pub(super) fn table(&self) -> String {
        table(&super::lock(&self.samples), self.processors)
    }
}

fn idle(samples: &[Sample], processors: usize) -> f64 {
    let Some(last) = samples.last() else {
        return 0.0;
    };
    let early = samples
        .iter()
        .rev()
        .find(|sample| sample.at + WINDOW <= last.at);
    // CAST: Few.
    early.map_or(0.0, |early| {
        last.ticks.idle_since(early.ticks) * processors as f64
    })
}

fn table(samples: &[Sample], processors: usize) -> String {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        return String::new();
    };
    let all = last.at.saturating_sub(first.at);
    // CAST: Few.
    let busy =
        |from: Sample, to: Sample| (1.0 - to.ticks.idle_since(from.ticks)) * processors as f64;
    let mut text = format!(
        "\n{processors} processors, {:.2} of them busy in {:.0} s: {:.0} s of processor time, {:.0} s idle\n",
        busy(*first, *last),
        all.as_secs_f64(),
        busy(*first, *last) * all.as_secs_f64(),
        // CAST: Few.
        (processors as f64 - busy(*first, *last)) * all.as_secs_f64(),
    );
    let _ = writeln!(text, "{:>8} {:>8} {:>8}", "until s", "busy", "VMs");
    let step = samples.len().div_ceil(LINES).max(2);
    let mut from = *first;
    for part in samples.chunks(step) {
        let Some(to) = part.last().copied() else {
            continue;
        };
        let vms: usize = part.iter().map(|sample| sample.vms).sum();
        // CAST: Few.
        let vms = vms as f64 / part.len() as f64;
        let until = to.at.as_secs_f64();
        let _ = writeln!(text, "{until:>8.0} {:>8.2} {vms:>8.1}", busy(from, to));
        from = to;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(idle: &[u64]) -> Vec<Sample> {
        let mut ticks = Ticks::default();
        let mut all = Vec::new();
        for (second, idle) in idle.iter().enumerate() {
            ticks.idle += idle;
            ticks.all += 200;
            all.push(Sample {
                at: Duration::from_secs(second as u64),
                ticks,
                vms: 2,
            });
        }
        all
    }

    #[test]
    fn the_kernels_table_is_read() {
        let text = "cpu  100 5 30 400 50 6 7 8 99 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n";
        let ticks = Ticks {
            idle: 450,
            all: 606,
        };
        assert_eq!(Ticks::of(text), Some(ticks));
        for bad in [
            "",
            "cpu  1 2 3\n",
            "cpu0 1 2 3 4 5 6 7 8\n",
            "cpu  1 2 3 x 5\n",
        ] {
            assert_eq!(Ticks::of(bad), None, "{bad}");
        }
    }

    #[test]
    fn idleness_is_that_of_the_latest_seconds() {
        assert_eq!(idle(&samples(&[200, 200, 200]), 2), 0.0, "too few to tell");
        assert_eq!(idle(&samples(&[0, 0, 0, 0, 200, 200, 200, 200]), 2), 2.0);
        assert_eq!(idle(&samples(&[200, 200, 200, 200, 0, 0, 0, 0]), 2), 0.0);
        assert_eq!(idle(&samples(&[200, 0, 100, 0, 100, 0, 100]), 2), 0.5);
    }

    #[test]
    fn more_than_one_vm_a_processor_begin_where_processors_are_idle() {
        let pace = Pace { processors: 2 };
        let (now, later) = (Duration::ZERO, SETTLE);
        assert_eq!((pace.usual(), pace.most()), (3, 6));
        assert!(pace.admits(0, now, 0.0) && pace.admits(1, now, 0.0));
        assert!(!pace.admits(2, later, 0.0) && !pace.admits(2, later, IDLE / 2.0));
        assert!(pace.admits(2, later, IDLE) && pace.admits(5, later, 2.0));
        assert!(!pace.admits(2, now, 2.0), "the latest one still boots");
        assert!(!pace.admits(6, later, 2.0));
        assert_eq!(Pace { processors: 64 }.most(), MOST);
    }

    #[test]
    fn the_table_says_how_busy_processors_were() {
        let text = table(&samples(&[0, 0, 200, 200]), 2);
        assert!(
            text.contains("2 processors, 0.67 of them busy in 3 s: 2 s"),
            "{text}"
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[3..],
            ["       1     2.00      2.0", "       3     0.00      2.0"]
        );
        assert_eq!(table(&[], 2), "");
    }
}
