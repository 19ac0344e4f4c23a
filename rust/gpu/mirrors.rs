// SPDX-License-Identifier: GPL-2.0

//! What mirrors of a GPU have done, for people and for `rkfdctl mirror`: counters, and how long things took.
//!
//! The figures are the GPU's, so they are still there when the program has ended that they are of. Nothing is ever set
//! back: who wants to know what happened in between reads twice. They are counted without a lock, in notifiers, too.
//!
//! The list of who has mirrors is a lock of its own, under which memory is allocated, and no other lock is taken.

use core::fmt::{
    self,
    Write, //
};

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
    time::{
        Instant,
        Monotonic, //
    },
};

use super::direction::Direction;
use crate::kapi::hmm::Cause;

/// Buckets of a histogram: the last one has all from 2^39 on, which are nine minutes in nanoseconds.
const BUCKETS: usize = 40;
/// Lines for mirrors, and for ranges that are shown, at one reading.
const LINES: usize = 16384;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    /// Accesses that were reported, and are repeated.
    Accesses,
    /// Those that memory was shown for.
    Shown,
    /// Those whose memory was shown already, mostly for another one.
    Found,
    /// Those that nothing allows, and that were repeated to see whether they still are there.
    Doubted,
    /// Those that were refused.
    Refused,
    /// Those that could not be looked at to the end, and were repeated after a pause.
    Failed,
    /// How often memory had changed while it was looked for, which was done again.
    Retries,
    /// Bytes whose entries were written, in leaves of 4 KiB.
    SmallBytes,
    /// … of 2 MiB.
    HugeBytes,
    /// Bytes that have moved to VRAM.
    MovedIn,
    /// Those of them that were nowhere before.
    Holes,
    /// Bytes that have moved back to the system because a program wanted it.
    MovedOut,
    /// … because the CPU has touched them, or others near by.
    MovedOutByFault,
    /// … because the GPU was about to end, or to sleep.
    MovedOutAtEnd,
    /// … because others were to have their VRAM.
    MovedOutForRoom,
    /// Bytes, of those that have moved to VRAM, that an access has moved.
    MovedInByAccess,
    /// How often memory of a granule was found to have come out at once because the CPU touched it.
    Bounced,
    /// Accesses whose memory stayed in the system for that.
    HeldBack,
    /// … for want of free VRAM, or of credit for it.
    NoRoom,
    /// Bytes that programs wanted moved, and that were elsewhere afterwards.
    Stayed,
    /// Bytes that the CPU has copied from or to VRAM, in place of the copy engine.
    CopiedByCpu,
    /// Bytes that nobody gets before unbind, for the copy engine did not stop and may still write them.
    Kept,
}

impl Counter {
    const NAMES: [&str; 22] = [
        "accesses",
        "shown",
        "found",
        "doubted",
        "refused",
        "failed",
        "retries",
        "bytes_4K",
        "bytes_2M",
        "moved_in",
        "holes",
        "moved_out",
        "moved_out_by_fault",
        "moved_out_at_end",
        "moved_out_for_room",
        "moved_in_by_access",
        "bounced",
        "held_back",
        "no_room",
        "stayed",
        "copied_by_cpu",
        "kept",
    ];
}

/// What takes time from an access to its repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// From the interrupt thread to the lane that looks at it.
    Fetch,
    /// Finding the mirror, its rights and the window.
    Resolve,
    /// Finding the pages.
    Pages,
    /// Making them reachable by the GPU.
    Map,
    /// Writing entries.
    Bind,
    /// Flushing, and having the access repeated.
    Resume,
    /// All of it.
    Total,
}

/// How many [`Step`]s there are.
pub(crate) const STEPS: usize = 7;

impl Step {
    const NAMES: [&str; STEPS] = [
        "fetch", "resolve", "pages", "map", "bind", "resume", "total",
    ];
}

/// What the entries became.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Leaf {
    /// They were there already, or there are none.
    #[default]
    None,
    /// Of 4 KiB, some of them at least.
    Small,
    /// One of 2 MiB.
    Huge,
}

impl Leaf {
    const NAMES: [&str; 3] = ["none", "4K", "2M"];
}

/// Why memory is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// For an access.
    Access,
    /// Because a program asked for it, or after a change.
    Fill,
}

impl Purpose {
    const NAMES: [&str; 2] = ["access", "fill"];
}

/// What is not of one access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Other {
    /// Nanoseconds until the GPU did not reach memory any more that changes, in a window.
    Settle,
    /// Accesses that a lane looked at in one go.
    Lane,
    /// Pages of 4 KiB that a granule showed when its entries were written.
    Pages,
}

impl Other {
    const NAMES: [&str; 3] = ["settle", "lane", "pages"];
}

/// What takes time of a move, of which something has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MoveStep {
    /// Finding free VRAM, perhaps after others have lost theirs. Where there was room already, it is not made.
    Room,
    /// Taking the pages out of the program's page table, with all that shows them.
    Collect,
    /// Finding pages where they go.
    Place,
    /// Copying.
    Copy,
    /// Making the new pages the program's.
    Finish,
}

impl MoveStep {
    const NAMES: [&str; 5] = ["room", "collect", "place", "copy", "finish"];
}

/// Names of [`Direction`]: in, and out.
const DIRECTIONS: [&str; 2] = ["in", "out"];

/// How long the steps of a move take.
pub(super) struct MoveLaps {
    direction: Direction,
    last: Instant<Monotonic>,
    /// Nanoseconds of each step that was made.
    steps: [Option<u64>; MoveStep::NAMES.len()],
}

impl MoveLaps {
    /// A move of that direction begins now.
    pub(super) fn begin(direction: Direction) -> Self {
        Self {
            direction,
            last: Instant::now(),
            steps: [None; MoveStep::NAMES.len()],
        }
    }

    /// A step ends now, and the next one begins.
    pub(super) fn lap(&mut self, step: MoveStep) {
        let now = Instant::now();
        let ns = u64::try_from((now - self.last).as_nanos()).unwrap_or(0);
        self.last = now;
        // CAST: The number of a variant.
        if let Some(known) = self.steps.get_mut(step as usize) {
            *known = Some(ns);
        }
    }

    /// Something has moved: the steps that were made count.
    pub(super) fn record(&self, figures: &MirrorFigures) {
        let steps = self.steps.iter().enumerate();
        for (step, ns) in steps.filter_map(|(step, ns)| Some((step, (*ns)?))) {
            figures.note_move(self.direction, step, ns);
        }
    }
}

/// Names of [`Cause`], in its order.
const CAUSES: [&str; 8] = [
    "unmap",
    "clear",
    "protect",
    "soft_dirty",
    "end",
    "migrate",
    "exclusive",
    "other",
];

/// Histograms of steps, before those of [`Other`].
const TIMES: usize = Purpose::NAMES.len() * STEPS * Leaf::NAMES.len();
/// Histograms before those of [`MoveStep`].
const MOVES: usize = TIMES + Other::NAMES.len();

/// How often something was how large, by powers of two.
struct Histogram {
    sum: Atomic<u64>,
    /// Number `n` has those from 2^n on, below the next; the first one 0, too.
    buckets: [Atomic<u64>; BUCKETS],
}

impl Histogram {
    const fn new() -> Self {
        Self {
            sum: Atomic::new(0),
            buckets: [const { Atomic::new(0) }; BUCKETS],
        }
    }

    fn add(&self, value: u64) {
        // CAST: Below 64.
        let at = value.checked_ilog2().unwrap_or(0) as usize;
        self.sum.add(value, Relaxed);
        if let Some(bucket) = self.buckets.get(at.min(BUCKETS - 1)) {
            bucket.add(1, Relaxed);
        }
    }

    /// Writes a line, if there is something: `WHAT sum N buckets 3:17 4:2`.
    fn show(&self, f: &mut dyn Write, what: fmt::Arguments<'_>) -> fmt::Result {
        let counts = self.buckets.iter().map(|bucket| bucket.load(Relaxed));
        let mut counts = counts.enumerate().filter(|(_, count)| *count > 0);
        let Some((first, count)) = counts.next() else {
            return Ok(());
        };
        let sum = self.sum.load(Relaxed);
        write!(f, "{what} sum {sum} buckets {first}:{count}")?;
        for (at, count) in counts {
            write!(f, " {at}:{count}")?;
        }
        writeln!(f)
    }
}

/// Lists mirrors of one address space.
pub(crate) trait MirrorList: Send + Sync {
    /// Writes a line for each mirror, and for each of its ranges that is shown; `room` is for how many lines there is room, which
    /// this makes less.
    ///
    /// # Errors
    ///
    /// Those of `f`.
    fn show(&self, f: &mut dyn Write, room: &mut usize) -> fmt::Result;

    /// Takes away all that the GPU reaches through them. Queues that rely on it wait until it is found again.
    fn hide(&self);
}

/// The figures of a GPU.
#[pin_data]
pub(crate) struct MirrorFigures {
    counters: [Atomic<u64>; Counter::NAMES.len()],
    changes: [Atomic<u64>; CAUSES.len()],
    /// Those of steps by purpose, step and leaf, then those of [`Other`], then those of moves by direction and step.
    histograms: KVVec<Histogram>,
    /// Who has mirrors, and a number that nobody else has.
    #[pin]
    lists: Mutex<KVec<(usize, Arc<dyn MirrorList>)>>,
}

impl MirrorFigures {
    /// Of a GPU without mirrors.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Arc<Self>> {
        let count = MOVES + DIRECTIONS.len() * MoveStep::NAMES.len();
        let mut histograms = KVVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            histograms.push(Histogram::new(), GFP_KERNEL)?;
        }
        Arc::pin_init(
            pin_init!(Self {
                counters: [const { Atomic::new(0) }; Counter::NAMES.len()],
                changes: [const { Atomic::new(0) }; CAUSES.len()],
                histograms,
                lists <- new_mutex!(KVec::new(), "rkfd_mirror_lists"),
            }),
            GFP_KERNEL,
        )
    }

    /// Adds `n` to a counter.
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        // CAST: The number of a variant.
        if let Some(counter) = self.counters.get(counter as usize) {
            counter.add(n, Relaxed);
        }
    }

    /// What a counter has reached.
    #[cfg(rkfd_kunit)]
    pub(crate) fn count(&self, counter: Counter) -> u64 {
        // CAST: The number of a variant.
        let counter = self.counters.get(counter as usize);
        counter.map_or(0, |counter| counter.load(Relaxed))
    }

    /// Memory of a window changes that is shown, or to be shown.
    pub(crate) fn note_change(&self, cause: Cause) {
        // CAST: The number of a variant.
        if let Some(counter) = self.changes.get(cause as usize) {
            counter.add(1, Relaxed);
        }
    }

    /// A step took so many nanoseconds.
    pub(crate) fn note_time(&self, purpose: Purpose, step: Step, leaf: Leaf, ns: u64) {
        // CAST: Numbers of variants.
        let (purpose, step, leaf) = (purpose as usize, step as usize, leaf as usize);
        let at = (purpose * STEPS + step) * Leaf::NAMES.len() + leaf;
        if let Some(histogram) = self.histograms.get(at) {
            histogram.add(ns);
        }
    }

    /// Something else was so large.
    pub(crate) fn note(&self, what: Other, value: u64) {
        // CAST: The number of a variant.
        if let Some(histogram) = self.histograms.get(TIMES + what as usize) {
            histogram.add(value);
        }
    }

    /// Step number `step` of a move took so many nanoseconds.
    fn note_move(&self, direction: Direction, step: usize, ns: u64) {
        let direction = usize::from(direction == Direction::Out);
        let at = MOVES + direction * MoveStep::NAMES.len() + step;
        if let Some(histogram) = self.histograms.get(at) {
            histogram.add(ns);
        }
    }

    /// Free VRAM was found in so many nanoseconds for what moves there.
    pub(crate) fn note_room(&self, ns: u64) {
        // CAST: The number of a variant.
        self.note_move(Direction::In, MoveStep::Room as usize, ns);
    }

    /// How many moves of that direction have made a step.
    #[cfg(rkfd_kunit)]
    pub(crate) fn moves(&self, direction: Direction, step: MoveStep) -> u64 {
        let out = usize::from(direction == Direction::Out);
        // CAST: The number of a variant.
        let at = MOVES + out * MoveStep::NAMES.len() + step as usize;
        let counts = self.histograms.get(at).map(|one| &one.buckets);
        counts.map_or(0, |counts| counts.iter().map(|n| n.load(Relaxed)).sum())
    }

    /// Lists the mirrors of `list`, until [`Self::unlist`] with the same `key`, which nobody else has.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn list(&self, key: usize, list: Arc<dyn MirrorList>) -> Result {
        let mut lists = self.lists.lock();
        Ok(lists.push((key, list), GFP_KERNEL_ACCOUNT)?)
    }

    /// Takes that back, if it was done.
    pub(crate) fn unlist(&self, key: usize) {
        let mut lists = self.lists.lock();
        let at = lists.iter().position(|(other, _)| *other == key);
        let removed = at.and_then(|at| lists.remove(at).ok());
        drop(lists);
        drop(removed);
    }

    /// Who has mirrors, so that no lock is held while they are written out, or hidden.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn lists(&self) -> Result<KVec<Arc<dyn MirrorList>>> {
        let lists = self.lists.lock();
        let mut copy = KVec::with_capacity(lists.len(), GFP_KERNEL)?;
        for (_, list) in lists.iter() {
            copy.push(list.clone(), GFP_KERNEL)?;
        }
        Ok(copy)
    }

    /// Writes all of it.
    ///
    /// # Errors
    ///
    /// Those of `f`, and one where memory is short.
    pub(super) fn show(&self, f: &mut dyn Write) -> fmt::Result {
        for (name, counter) in Counter::NAMES.iter().zip(&self.counters) {
            writeln!(f, "count {name} {}", counter.load(Relaxed))?;
        }
        for (name, counter) in CAUSES.iter().zip(&self.changes) {
            writeln!(f, "change {name} {}", counter.load(Relaxed))?;
        }
        let mut histograms = self.histograms.iter();
        for purpose in Purpose::NAMES {
            for step in Step::NAMES {
                for (leaf, histogram) in Leaf::NAMES.iter().zip(&mut histograms) {
                    histogram.show(f, format_args!("time {purpose} {step} {leaf}"))?;
                }
            }
        }
        for (name, histogram) in Other::NAMES.iter().zip(&mut histograms) {
            histogram.show(f, format_args!("size {name}"))?;
        }
        for direction in DIRECTIONS {
            for (step, histogram) in MoveStep::NAMES.iter().zip(&mut histograms) {
                histogram.show(f, format_args!("move {direction} {step}"))?;
            }
        }
        let lists = self.lists().map_err(|_| fmt::Error)?;
        let mut room = LINES;
        for list in &lists {
            list.show(f, &mut room)?;
        }
        Ok(())
    }
}
