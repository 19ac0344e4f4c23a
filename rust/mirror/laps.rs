// SPDX-License-Identifier: GPL-2.0

//! How long the steps take of finding memory, showing it and taking it away.

use core::cell::Cell;

use kernel::time::{
    Instant,
    Monotonic, //
};

use super::shape::Shape;
use crate::{
    gpu::mirrors::{
        Counter,
        Leaf,
        MirrorFigures,
        Other,
        Purpose,
        Step,
        STEPS, //
    },
    kapi::hmm::Change,
    trace,
    vm::{
        mirrored::Shown,
        pt::PAGE,
        Vm, //
    },
};

/// How long each step takes of finding memory and showing it.
pub(super) struct Laps {
    purpose: Purpose,
    began: Instant<Monotonic>,
    /// When the last step ended.
    last: Cell<Instant<Monotonic>>,
    /// Nanoseconds of each step that was made, perhaps several times.
    steps: [Cell<Option<u64>>; STEPS],
    entries: Cell<Entries>,
}

/// What the entries of a granule are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entries {
    leaf: Leaf,
    bytes: u64,
}

impl Entries {
    /// Those that show this.
    pub(super) fn of(shown: &Shown) -> Self {
        let leaf = match shown.is_huge() {
            _ if shown.is_empty() => Leaf::None,
            true => Leaf::Huge,
            false => Leaf::Small,
        };
        Self {
            leaf,
            bytes: shown.len(),
        }
    }
}

/// Nanoseconds from `from` to `to`.
fn between(from: Instant<Monotonic>, to: Instant<Monotonic>) -> u64 {
    u64::try_from((to - from).as_nanos()).unwrap_or(0)
}

impl Laps {
    fn new(purpose: Purpose, began: Instant<Monotonic>) -> Self {
        Self {
            purpose,
            began,
            last: Cell::new(began),
            steps: [const { Cell::new(None) }; STEPS],
            entries: Cell::new(Entries::default()),
        }
    }

    /// From now on, for a program or after a change.
    pub(super) fn of_fill() -> Self {
        Self::new(Purpose::Fill, Instant::now())
    }

    /// Of an access that was reported at `since` and is looked at now.
    pub(super) fn of_access(since: Instant<Monotonic>) -> Self {
        let laps = Self::new(Purpose::Access, since);
        laps.lap(Step::Fetch);
        laps
    }

    /// A step ends now, and the next one begins.
    pub(super) fn lap(&self, step: Step) {
        let now = Instant::now();
        let ns = between(self.last.replace(now), now);
        // CAST: The number of a variant.
        if let Some(known) = self.steps.get(step as usize) {
            known.set(Some(known.get().unwrap_or(0).saturating_add(ns)));
        }
    }

    /// A granule shows something: [`Step::Bind`] ends.
    pub(super) fn bound(&self, entries: Entries) {
        self.entries.set(entries);
        self.lap(Step::Bind);
    }

    /// Bytes that the granule shows because of this; 0: nothing was shown.
    pub(super) fn bytes(&self) -> u64 {
        self.entries.get().bytes
    }

    /// Microseconds up to the end of the last step.
    pub(super) fn us(&self) -> u64 {
        between(self.began, self.last.get()) / 1000
    }

    /// All steps were made: they count.
    pub(super) fn record(&self, figures: &MirrorFigures) {
        let Entries { leaf, bytes } = self.entries.get();
        let total = between(self.began, self.last.get());
        let steps = STEP_ORDER.iter().zip(&self.steps);
        for (step, ns) in steps.filter_map(|(step, ns)| Some((step, ns.get()?))) {
            figures.note_time(self.purpose, *step, leaf, ns);
        }
        figures.note_time(self.purpose, Step::Total, leaf, total);
        let counter = match leaf {
            Leaf::None => return,
            Leaf::Small => Counter::SmallBytes,
            Leaf::Huge => Counter::HugeBytes,
        };
        figures.add(counter, bytes);
        figures.note(Other::Pages, bytes / PAGE);
    }
}

/// The steps by number, but for [`Step::Total`], which is last.
const STEP_ORDER: [Step; STEPS - 1] = [
    Step::Fetch,
    Step::Resolve,
    Step::Pages,
    Step::Map,
    Step::Bind,
    Step::Resume,
];

/// Memory of a window changes that is shown, or to be shown.
pub(super) fn note_change(vm: &Vm, shape: &Shape, change: &Change) {
    vm.gpu().mirrors().note_change(change.cause);
    let first = shape.gpu_address(change.first);
    let last = shape.gpu_address(change.last);
    // CAST: The number of a variant.
    let cause = change.cause as u32;
    trace::mirror_change(vm.gpu().id(), vm.pasid(), first, last - first + 1, cause);
}

/// Notes how long it takes until the GPU does not reach memory any more.
pub(super) struct Settling<'f> {
    figures: &'f MirrorFigures,
    began: Instant<Monotonic>,
}

impl<'f> Settling<'f> {
    /// From now until the result is dropped.
    pub(super) fn begin(figures: &'f MirrorFigures) -> Self {
        Self {
            figures,
            began: Instant::now(),
        }
    }
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        let ns = between(self.began, Instant::now());
        self.figures.note(Other::Settle, ns);
    }
}
