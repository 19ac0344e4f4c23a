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
    quiesce::Pause,
    shape::Shape, //
};
use crate::{
    hw::num::index,
    kapi::hmm::{
        AddressSpaceUser,
        Change,
        Interval,
        Memory,
        Snapshot,
        Watch, //
    },
    vm::mirrored::{
        Part,
        Shown,
        Tables,
        GRANULE, //
    },
};

/// GPU addresses of a window, from a multiple of it on.
pub(crate) const WINDOW: u64 = 32 * GRANULE;
// CAST: Far below 2^32.
const GRANULES: usize = (WINDOW / GRANULE) as usize;

/// How often memory is looked for that changes at the same time.
const MAX_ATTEMPTS: usize = 16;

/// What is known of a window.
pub(super) struct State {
    granules: [Granule; GRANULES],
    /// The mirror or the address space ends: nothing is shown any more.
    ended: bool,
    /// Changes that met granules that somebody wants.
    changes: u64,
}

/// Who learns of the changes of a window.
pub(super) struct Watcher {
    pause: Arc<Pause>,
    shape: Shape,
    /// GPU addresses: those of the mirror between two multiples of [`WINDOW`].
    range: Range<u64>,
}

/// A window.
pub(super) type Window = Interval<Watcher>;

/// What somebody wants of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// What there is.
    Some,
    /// All that was asked for.
    All,
}

impl State {
    /// Bytes that are shown, those in leaves of 2 MiB, and changes.
    pub(super) fn usage(&self) -> (u64, u64, u64) {
        let mut bytes = 0;
        let mut huge = 0;
        for shown in self.granules.iter().filter_map(|g| g.shown.as_ref()) {
            bytes += shown.len();
            if shown.is_huge() {
                huge += shown.len();
            }
        }
        (bytes, huge, self.changes)
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
        va: u64,
    ) -> Result<Arc<Window>> {
        let whole = va & !(WINDOW - 1);
        let bounds = shape.gpu();
        let range = whole.max(bounds.start)..(whole + WINDOW).min(bounds.end);
        let watcher = Self {
            pause: pause.clone(),
            shape,
            range: range.clone(),
        };
        let state = State {
            granules: [const { Granule::NEW }; GRANULES],
            ended: false,
            changes: 0,
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

    /// Numbers of the granules that a change meets.
    fn met(&self, change: &Change) -> Range<usize> {
        let first = self.shape.gpu_address(change.first);
        let last = self.shape.gpu_address(change.last);
        self.number(first)..self.number(last) + 1
    }

    /// Whether `cpu`, the program's addresses, meets what the GPU has at `asked`.
    fn overlap(&self, cpu: &Range<usize>, asked: &Range<u64>) -> bool {
        self.shape.gpu_address(cpu.start) < asked.end
            && asked.start <= self.shape.gpu_address(cpu.end - 1)
    }

    /// Adds what there is of `range` to a snapshot; whether something of `asked` is not there. One page that cannot be
    /// had (the file is shorter, it is poisoned, or it has just gone) does not keep those around it from being shown.
    fn add(
        &self,
        snapshot: &mut Snapshot<'_, Self>,
        range: Range<usize>,
        write: bool,
        asked: &Range<u64>,
    ) -> Result<bool> {
        let mut lacks = false;
        let mut at = range.start;
        let mut pages = (range.end - range.start) / PAGE_SIZE;
        while at < range.end {
            let end = range.end.min(at + pages * PAGE_SIZE);
            match snapshot.add(at..end, write) {
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
            if core::mem::replace(&mut granule.stale, false) {
                drop(granule.shown.take());
            }
        }
    }
}

impl Watch for Watcher {
    type State = State;

    fn changes(&self, state: &mut State, change: &Change, may_wait: bool) -> bool {
        let met = self.met(change);
        let granules = state.granules.get_mut(met).unwrap_or_default();
        if !may_wait {
            return granules.iter().any(|granule| granule.shown.is_some());
        }
        let mut unsettled = false;
        for granule in granules {
            // Even where all has ended: who was first may not have taken it away yet.
            if granule.shown.is_some() || (granule.wanted && !state.ended) {
                granule.stale = true;
                unsettled = true;
            }
        }
        state.changes += u64::from(unsettled);
        if change.is_end {
            // There is nothing to be found again, and no queue is to wait for it.
            state.ended = true;
        }
        unsettled
    }

    fn settle(&self, state: &Mutex<State>, _change: &Change) {
        let ended = state.lock().ended;
        if !ended {
            self.pause.stop();
        }
        self.hide(&mut state.lock());
        if !ended {
            self.pause.refill_soon();
        }
    }
}

/// Finds and shows what a window has.
pub(super) trait Fill {
    /// Shows the memory of the granule with GPU address `va`. With [`Want::All`] all of `asked`, GPU addresses of the
    /// granule, is to be shown.
    ///
    /// # Errors
    ///
    /// - `EFAULT`: there is no memory somewhere, or none that the GPU can use, and all was wanted.
    /// - `ESRCH`: the mirror or the address space has ended.
    /// - `EAGAIN`: the memory does not stop changing.
    /// - `EOPNOTSUPP`: the machine gives the GPU copies of memory.
    /// - `ENOMEM`, `EINTR`; `ENODEV`, `EIO`, `ETIMEDOUT`: the GPU is gone, lost, or did not answer.
    fn fill(&self, user: &AddressSpaceUser, va: u64, asked: &Range<u64>, want: Want) -> Result;

    /// Shows again what is missing.
    ///
    /// # Errors
    ///
    /// As [`Self::fill`].
    fn refill(&self, user: &AddressSpaceUser) -> Result;

    /// Ends all access through the window, for good.
    fn end(&self);
}

impl Fill for Arc<Window> {
    fn fill(&self, user: &AddressSpaceUser, va: u64, asked: &Range<u64>, want: Want) -> Result {
        let watch = self.watch();
        let number = watch.number(va);
        let granule = watch.granule(number);
        for _ in 0..MAX_ATTEMPTS {
            {
                let mut state = self.state().lock();
                if state.ended {
                    return Err(ESRCH);
                }
                // From here on a change is told to the queues.
                state.granules.get_mut(number).ok_or(EINVAL)?.wanted = true;
            }
            match show(self, user, number, &granule, asked) {
                Ok(lacks) if lacks && want == Want::All => return Err(EFAULT),
                Ok(_) => return Ok(()),
                Err(error) if error == EAGAIN => {}
                Err(error) => return Err(error),
            }
        }
        Err(EAGAIN)
    }

    fn refill(&self, user: &AddressSpaceUser) -> Result {
        let mut from = 0;
        loop {
            let next = self.state().lock().next_missing(from);
            let Some(number) = next else { return Ok(()) };
            let granule = self.watch().granule(number);
            match self.fill(user, granule.start, &(0..0), Want::Some) {
                // The mirror is being destroyed.
                Err(error) if error == ESRCH => return Ok(()),
                done => done?,
            }
            from = number + 1;
        }
    }

    fn end(&self) {
        let mut state = self.state().lock();
        state.ended = true;
        for granule in &mut state.granules {
            granule.wanted = false;
            granule.stale = true;
        }
        self.watch().hide(&mut state);
    }
}

/// Finds the memory of a granule and writes its entries; whether something of `asked` cannot be shown.
fn show(
    window: &Arc<Window>,
    user: &AddressSpaceUser,
    number: usize,
    granule: &Range<u64>,
    asked: &Range<u64>,
) -> Result<bool> {
    let watch = window.watch();
    let vm = watch.pause.vm();
    let may_write = watch.shape.rights.write;
    let mut snapshot = window.snapshot(user);
    let mut lacks = false;
    let cpu = watch.shape.cpu_range(granule);
    let mut at = cpu.start;
    // May take as long as user space wants: without access to the device, whose removal would wait.
    while at < cpu.end {
        let (memory, end) = user.memory_at(at..cpu.end);
        // Written by the GPU or not: a page that is shared until it is written is the program's own from now on, for no
        // fault would tell that the GPU wants to write it.
        let gaps = match memory {
            Memory::None | Memory::Unusable => watch.overlap(&(at..end), asked),
            Memory::Writable => watch.add(&mut snapshot, at..end, may_write, asked)?,
            Memory::Readable => watch.add(&mut snapshot, at..end, false, asked)?,
        };
        lacks |= gaps;
        at = end;
    }
    // What earlier changes left, before more of it is needed.
    vm.reap();
    let hw = vm.gpu().enter()?;
    let mut parts = KVVec::new();
    for segment in snapshot.segments() {
        let write = may_write && segment.writable;
        let dma = hw.dma().pages(hw.dev(), &segment.pages, write)?;
        let va = watch.shape.gpu_address(segment.start);
        let access = watch.shape.rights.access(write);
        parts.push(Part::new(vm, va, dma, access)?, GFP_KERNEL_ACCOUNT)?;
    }
    let mut shown = Some(Shown::new(parts));
    let mut tables = Tables::new();
    for _ in 0..MAX_ATTEMPTS {
        let mut short = false;
        let result = snapshot.commit(may_write, |state| {
            let ended = state.ended;
            let place = state.granules.get_mut(number).ok_or(EINVAL)?;
            if ended || place.stale {
                return Err(EAGAIN);
            }
            let new = shown.as_ref().ok_or(EINVAL)?;
            match vm.show(&hw, &mut tables, granule, new) {
                Err(error) if error == EAGAIN => {
                    short = true;
                    Err(error)
                }
                Err(error) => {
                    // It shows nothing any more.
                    drop(place.shown.take());
                    Err(error)
                }
                Ok(()) => Ok(core::mem::replace(&mut place.shown, shown.take())),
            }
        });
        match result {
            // What it showed before, at other bus addresses perhaps: no entry names them any more.
            Ok(old) => {
                drop(old);
                return Ok(lacks);
            }
            Err(error) if error == EAGAIN && short => vm.fill(&hw, &mut tables)?,
            Err(error) => return Err(error),
        }
    }
    Err(EAGAIN)
}
