// SPDX-License-Identifier: GPL-2.0

//! A part of a mirror that learns of changes on its own.

use core::ops::Range;

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

use super::{
    granule::Granule,
    hint_table::HintTable,
    hints::Hint,
    laps::{
        self,
        Settling, //
    },
    quiesce::Pause,
    rules::{
        Hidden,
        Rule, //
    },
    shape::Shape, //
};
use crate::{
    gpu::mirrors::MirrorFigures,
    hw::num::index,
    kapi::{
        hmm::{
            AddressSpaceUser,
            Cause,
            Change,
            Find,
            Interval,
            Snapshot,
            Watch, //
        },
        log::monotonic_ns,
        migrate::Collected,
        task::current_task, //
    },
    vm::{
        mirrored::GRANULE,
        pt::PAGE, //
    },
};

mod fill;

pub(super) use self::fill::{
    Fill,
    Miss,
    Want, //
};

/// GPU addresses of a window, from a multiple of it on.
pub(crate) const WINDOW: u64 = 32 * GRANULE;
// CAST: Far below 2^32.
const GRANULES: usize = (WINDOW / GRANULE) as usize;

/// What a mirror shows, and how often that changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Bytes that the GPU can reach now.
    pub(crate) bytes: u64,
    /// Those of them in leaves of 2 MiB.
    pub(crate) huge: u64,
    /// Changes of memory that was, or was to be, shown.
    pub(crate) changes: u64,
    /// Accesses that memory was shown for.
    pub(crate) served: u64,
    /// Those of the bytes that are in VRAM.
    pub(crate) vram: u64,
}

/// How memory is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// As one leaf of 2 MiB.
    pub(super) huge: bool,
    /// It is in VRAM.
    pub(super) vram: bool,
}

/// What is known of a window.
pub(super) struct State {
    /// As many as a window has: of its own, for they are too large for the stack of a thread that makes a window.
    granules: KVec<Granule>,
    /// The mirror or the address space ends: nothing is shown any more.
    ended: bool,
    /// How often rules have changed.
    edition: u64,
    /// Changes that met granules that are wanted.
    changes: u64,
    /// Accesses that memory was shown for.
    served: u64,
}

/// Is notified of the changes of a window.
pub(super) struct Watcher {
    pause: Arc<Pause>,
    shape: Shape,
    hints: Arc<HintTable>,
    /// GPU addresses: those of the mirror between two multiples of [`WINDOW`].
    range: Range<u64>,
}

/// A window.
pub(super) type Window = Interval<Watcher>;

impl State {
    /// Adds what is shown.
    pub(super) fn count(&self, usage: &mut Usage) {
        for shown in self.granules.iter().filter_map(|g| g.shown.as_ref()) {
            usage.bytes += shown.len();
            usage.vram += shown.vram_len();
            if shown.is_huge() {
                usage.huge += shown.len();
            }
        }
        usage.changes += self.changes;
        usage.served += self.served;
    }

    /// Calls `f` with what each granule shows, in ascending order, and how.
    pub(super) fn for_each_shown(&self, f: &mut dyn FnMut(Range<u64>, Look)) {
        for shown in self.granules.iter().filter_map(|g| g.shown.as_ref()) {
            let huge = shown.is_huge();
            let ranges = shown.ranges();
            ranges.for_each(|(range, vram)| f(range, Look { huge, vram }));
        }
    }

    /// What is found around an access to `va` in granule `number`, GPU addresses.
    fn around(&mut self, number: usize, va: u64) -> Option<Range<u64>> {
        let neighbours = [number.checked_sub(1), number.checked_add(1)];
        let mut neighbours = neighbours.iter().flatten();
        let streamed =
            neighbours.any(|at| self.granules.get(*at).is_some_and(Granule::is_streamed));
        let granule = self.granules.get_mut(number)?;
        Some(granule.around(va, streamed))
    }

    /// The next granule from `from` on that is to be found again.
    fn next_missing(&self, from: usize) -> Option<usize> {
        if self.ended {
            return None;
        }
        let mut granules = self.granules.iter().enumerate().skip(from);
        let found = granules.find(|(_, granule)| granule.is_missing());
        found.map(|(number, _)| number)
    }
}

impl Watcher {
    /// Makes the window that contains GPU address `va` of a mirror.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EINTR`.
    pub(super) fn window(
        pause: &Arc<Pause>,
        user: &AddressSpaceUser,
        shape: Shape,
        hints: &Arc<HintTable>,
        va: u64,
    ) -> Result<Arc<Window>> {
        let whole = va & !(WINDOW - 1);
        let bounds = shape.gpu();
        let range = whole.max(bounds.start)..(whole + WINDOW).min(bounds.end);
        let watcher = Self {
            pause: pause.clone(),
            shape,
            hints: hints.clone(),
            range: range.clone(),
        };
        let mut granules = KVec::with_capacity(GRANULES, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..GRANULES {
            granules.push(Granule::NEW, GFP_KERNEL_ACCOUNT)?;
        }
        let state = State {
            granules,
            ended: false,
            edition: 0,
            changes: 0,
            served: 0,
        };
        Interval::new(user, shape.cpu_range(&range), watcher, state)
    }

    /// Number of the granule with a GPU address.
    fn number(&self, va: u64) -> usize {
        index(u32::try_from((va % WINDOW) / GRANULE).unwrap_or(0))
    }

    /// GPU addresses of granule `number`.
    fn granule(&self, number: usize) -> Range<u64> {
        // CAST: Below `GRANULES`.
        let start = (self.range.start & !(WINDOW - 1)) + number as u64 * GRANULE;
        start.max(self.range.start)..(start + GRANULE).min(self.range.end)
    }

    /// What holds from the first of `cpu` on, the program's addresses, and where in it that ends.
    fn rule(&self, cpu: Range<usize>) -> (Rule, usize) {
        let Some(rules) = self.pause.rules() else {
            let rule = Rule {
                rights: Some(self.shape.rights),
                kept: true,
            };
            return (rule, cpu.end);
        };
        let first = self.shape.gpu_address(cpu.start);
        let last = self.shape.gpu_address(cpu.end - 1);
        let (rule, end) = rules.rule(&(first..last + 1));
        (rule, self.shape.cpu_range(&(first..end)).end)
    }

    /// Whether memory from the first of `cpu` on, the program's addresses of one mapping, moves to VRAM when it is accessed, and
    /// where in it that ends.
    fn moves(&self, user: &AddressSpaceUser, cpu: Range<usize>) -> (bool, usize) {
        if !self.shape.filling.on_access {
            return (false, cpu.end);
        }
        let first = self.shape.gpu_address(cpu.start);
        let last = self.shape.gpu_address(cpu.end - 1);
        let range = first..last + 1;
        let (wanted, end) = match self.pause.rules() {
            Some(rules) => {
                let wanted = rules.wanted(first, &range);
                let in_vram = matches!(wanted.hint, Some(Hint::Vram { .. }));
                let end = wanted.range.end;
                let (in_vram, end) = match wanted.unasked {
                    Some(unasked) if in_vram && user.is_heap_or_stack(cpu.start) => {
                        (false, end.min(unasked.end))
                    }
                    _ => (in_vram, end),
                };
                (in_vram, end.max(first + PAGE).min(range.end))
            }
            None => self.hints.wants_vram(&range),
        };
        let moves = wanted && Collected::may_leave(&user.lock(), cpu.start).is_some();
        (moves, self.shape.cpu_range(&(first..end)).end)
    }

    /// Whether queues wait while something of a granule, GPU addresses, is not shown.
    fn keeps(&self, granule: &Range<u64>) -> bool {
        let Some(rules) = self.pause.rules() else {
            return !self.shape.filling.on_access;
        };
        let mut at = granule.start;
        while at < granule.end {
            let (rule, end) = rules.rule(&(at..granule.end));
            if rule.rights.is_some() && rule.kept {
                return true;
            }
            at = end.max(at + PAGE);
        }
        false
    }

    /// Numbers of the granules that `range`, GPU addresses, has here.
    fn part(&self, range: &Range<u64>) -> Range<usize> {
        let start = range.start.max(self.range.start);
        let end = range.end.min(self.range.end);
        if start < end {
            self.number(start)..self.number(end - 1) + 1
        } else {
            0..0
        }
    }

    /// Counts for people.
    fn figures(&self) -> &MirrorFigures {
        self.pause.vm().gpu().mirrors()
    }

    /// Numbers of the granules that a change meets.
    fn met(&self, change: &Change) -> Range<usize> {
        let first = self.shape.gpu_address(change.first);
        let last = self.shape.gpu_address(change.last);
        self.number(first)..self.number(last) + 1
    }

    /// Whether the GPU finds an entry for an access to `page`. Buffers may have replaced what a mirror of all memory shows.
    fn finds(&self, known: &Granule, page: u64, write: bool) -> bool {
        known.shows(page, write)
            && (!self.shape.is_whole() || self.pause.vm().allows(page, write, false))
    }

    /// Whether `cpu`, the program's addresses, meets what the GPU has at `asked`.
    fn overlap(&self, cpu: &Range<usize>, asked: &Range<u64>) -> bool {
        self.shape.gpu_address(cpu.start) < asked.end
            && asked.start <= self.shape.gpu_address(cpu.end - 1)
    }

    /// Has `find` look at `range`, piece by piece where it fails for a piece; whether something of `asked` cannot be had.
    /// One page that cannot be had (the file is shorter, it is poisoned, or it has just gone) does not keep those around it
    /// from being shown.
    fn find(
        &self,
        range: Range<usize>,
        asked: &Range<u64>,
        mut find: impl FnMut(Range<usize>) -> Result,
    ) -> Result<bool> {
        let mut lacks = false;
        let mut at = range.start;
        let mut pages = (range.end - range.start) / PAGE_SIZE;
        while at < range.end {
            let end = range.end.min(at + pages * PAGE_SIZE);
            match find(at..end) {
                Ok(()) => {
                    at = end;
                    pages *= 2;
                }
                Err(error) if error != EFAULT && error != EPERM => return Err(error),
                Err(_) if pages > 1 => pages /= 2,
                Err(_) => {
                    lacks |= self.overlap(&(at..end), asked);
                    at = end;
                }
            }
        }
        Ok(lacks)
    }

    /// Adds what there is of `range` to a snapshot: of what lies beside `around` only the pages that are there, and only those in
    /// VRAM if the rest is to move when it is accessed; whether something of `asked` cannot be had.
    fn add(
        &self,
        snapshot: &mut Snapshot<'_, Self>,
        range: Range<usize>,
        find: Find,
        (around, rest_moves): (&Range<usize>, bool),
        asked: &Range<u64>,
    ) -> Result<bool> {
        if around.start <= range.start && range.end <= around.end {
            return self.find(range, asked, |part| snapshot.add(part, find));
        }
        let low = around.start.clamp(range.start, range.end);
        let high = around.end.clamp(low, range.end);
        let lacks = self.find(low..high, asked, |part| snapshot.touch(part, find))?;
        // All at once: what is one folio is to be one leaf.
        self.find(range, &(0..0), |part| {
            if rest_moves {
                snapshot.add_of_device(part, &(low..high))
            } else {
                snapshot.add(part, Find::Present)
            }
        })?;
        Ok(lacks)
    }

    /// Takes away what stale granules show. Their memory is unmapped for the device before this returns.
    fn hide(&self, state: &mut State) {
        let goes = |granule: &Granule| {
            let shown = granule.shown.as_ref();
            granule.stale && shown.is_some_and(|shown| !shown.is_empty())
        };
        if state.granules.iter().any(goes) {
            let granules = state.granules.iter().enumerate();
            let going = granules.filter(|(_, granule)| goes(granule));
            self.pause
                .vm()
                .hide(going.map(|(number, _)| self.granule(number)));
        }
        for granule in &mut state.granules {
            granule.hide();
        }
    }
}

impl Watch for Watcher {
    type State = State;

    fn changes(&self, state: &mut State, change: &Change, may_wait: bool) -> bool {
        let rules = self.pause.rules();
        if change.is_end && rules.is_some_and(|rules| rules.learns_of_end()) {
            // Nothing is shown any more, but what is stays until the queues are off.
            state.ended = true;
            return false;
        }
        let met = self.met(change);
        let granules = state.granules.get_mut(met).unwrap_or_default();
        if !may_wait {
            return granules.iter().any(|granule| granule.shown.is_some());
        }
        let moves = change.cause == Cause::Migrate;
        let mut unsettled = false;
        for granule in granules {
            if moves && granule.mover != Some(current_task()) {
                granule.bounces.note_change(monotonic_ns());
            }
            // Even where all has ended: the first change may not have taken it away yet.
            if granule.shown.is_some() || (granule.wanted && !state.ended) {
                granule.stale = true;
                unsettled = true;
            }
        }
        if unsettled {
            state.changes += 1;
            laps::note_change(self.pause.vm(), &self.shape, change);
        }
        if change.is_end {
            // There is nothing to be found again, and no queue is to wait for it.
            state.ended = true;
        }
        unsettled
    }

    fn settle(&self, state: &Mutex<State>, change: &Change) {
        let is_shown = |granule: &Granule| {
            let shown = granule.shown.as_ref();
            shown.is_some_and(|shown| !shown.is_empty())
        };
        let _settling = Settling::begin(self.figures());
        let (waits, shown) = {
            let state = state.lock();
            let met = state.granules.get(self.met(change)).unwrap_or_default();
            // Else the next access has it found.
            let waits = !state.ended && met.iter().any(|granule| granule.wanted);
            let shown = met.iter().any(is_shown);
            (waits, shown)
        };
        if waits {
            self.pause.stop();
        }
        if let Some(rules) = self.pause.rules().filter(|_| shown) {
            let first = self.shape.gpu_address(change.first);
            let last = self.shape.gpu_address(change.last);
            let why = match change.cause {
                _ if change.is_unmap => Hidden::Unmapped,
                Cause::Migrate => Hidden::Migration,
                _ => Hidden::Change,
            };
            rules.hidden(&(first..last + 1), why);
        }
        self.hide(&mut state.lock());
        if waits {
            self.pause.refill_soon();
        }
    }
}
