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
    laps::{
        self,
        Entries,
        Laps,
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
    gpu::{
        devmem::Sight,
        mirrors::{
            Counter,
            MirrorFigures,
            Step, //
        }, //
    },
    hw::num::index,
    kapi::{
        hmm::{
            AddressSpaceUser,
            Change,
            Find,
            Found,
            Interval,
            Memory,
            Snapshot,
            Watch, //
        },
        migrate::Run, //
    },
    vm::{
        mirrored::{
            Part,
            Shown,
            Tables,
            GRANULE, //
        },
        pt::PAGE,
        Vm, //
    },
};

/// GPU addresses of a window, from a multiple of it on.
pub(crate) const WINDOW: u64 = 32 * GRANULE;
// CAST: Far below 2^32.
const GRANULES: usize = (WINDOW / GRANULE) as usize;

/// How often memory is looked for that changes at the same time.
const MAX_ATTEMPTS: usize = 16;

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
    granules: [Granule; GRANULES],
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
    /// GPU addresses: those of the mirror between two multiples of [`WINDOW`].
    range: Range<u64>,
}

/// A window.
pub(super) type Window = Interval<Watcher>;

/// How much of the memory is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// What there is.
    Some,
    /// All that was asked for.
    All,
    /// What is there already: nothing is made for it.
    Present,
}

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

    /// Adds what there is of `range` to a snapshot: of what lies beside `around` only the pages that are there; whether
    /// something of `asked` cannot be had.
    fn add(
        &self,
        snapshot: &mut Snapshot<'_, Self>,
        range: Range<usize>,
        find: Find,
        around: &Range<usize>,
        asked: &Range<u64>,
    ) -> Result<bool> {
        if around.start <= range.start && range.end <= around.end {
            return self.find(range, asked, |part| snapshot.add(part, find));
        }
        let low = around.start.clamp(range.start, range.end);
        let high = around.end.clamp(low, range.end);
        let lacks = self.find(low..high, asked, |part| snapshot.touch(part, find))?;
        // All at once: what is one folio is to be one leaf.
        self.find(range, &(0..0), |part| snapshot.add(part, Find::Present))?;
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
        let mut unsettled = false;
        for granule in granules {
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
            let why = if change.is_unmap {
                Hidden::Unmapped
            } else {
                Hidden::Change
            };
            rules.hidden(&(first..last + 1), why);
        }
        self.hide(&mut state.lock());
        if waits {
            self.pause.refill_soon();
        }
    }
}

/// Finds and shows what a window has.
pub(super) trait Fill {
    /// The address space of the GPU.
    fn vm(&self) -> &Arc<Vm>;

    /// Whether queues wait while something of the granule with GPU address `va` is not shown.
    fn is_kept(&self, va: u64) -> bool;

    /// Where pages of the granule with GPU address `va` have moved to at last.
    fn room(&self, va: u64) -> Option<(usize, u64)>;

    /// Notes that.
    fn note_room(&self, va: u64, room: (usize, u64));

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

    /// Shows the page at GPU address `va` for an access, with what lies around it, and what the program has of the rest of the
    /// granule at the moment.
    ///
    /// # Errors
    ///
    /// As [`Self::fill`].
    fn serve(&self, user: &AddressSpaceUser, va: u64, write: bool, laps: &Laps) -> Result;

    /// Shows again what is missing.
    ///
    /// # Errors
    ///
    /// As [`Self::fill`].
    fn refill(&self, user: &AddressSpaceUser) -> Result;

    /// Whether something of `range`, GPU addresses, is shown that queues rely on.
    fn is_relied_on(&self, range: &Range<u64>) -> bool;

    /// The rules of `range` are other ones: what was shown by the old ones goes. What is wanted is missing until
    /// [`Self::refill`].
    fn rules_changed(&self, range: &Range<u64>);

    /// Ends all access through the window, for good.
    fn end(&self);
}

impl Fill for Arc<Window> {
    fn vm(&self) -> &Arc<Vm> {
        self.watch().pause.vm()
    }

    fn is_kept(&self, va: u64) -> bool {
        let watch = self.watch();
        watch.keeps(&watch.granule(watch.number(va)))
    }

    fn room(&self, va: u64) -> Option<(usize, u64)> {
        let state = self.state().lock();
        state.granules.get(self.watch().number(va))?.room
    }

    fn note_room(&self, va: u64, room: (usize, u64)) {
        let mut state = self.state().lock();
        if let Some(granule) = state.granules.get_mut(self.watch().number(va)) {
            granule.room = Some(room);
        }
    }

    fn fill(&self, user: &AddressSpaceUser, va: u64, asked: &Range<u64>, want: Want) -> Result {
        let watch = self.watch();
        let number = watch.number(va);
        let granule = watch.granule(number);
        let laps = Laps::of_fill();
        for _ in 0..MAX_ATTEMPTS {
            let edition = {
                let mut state = self.state().lock();
                if state.ended {
                    return Err(ESRCH);
                }
                // Under the lock: what rules of before kept says nothing about those that `rules_changed` has announced.
                let keeps = watch.keeps(&granule);
                // From here on a change stops the queues, if they wait for it.
                state.granules.get_mut(number).ok_or(EINVAL)?.wanted = keeps;
                state.edition
            };
            let around = match want {
                Want::Some | Want::All => granule.clone(),
                Want::Present => va..va,
            };
            let wish = Wish {
                asked,
                around: &around,
                write: watch.shape.rights.write,
                awaited: false,
                edition,
                laps: &laps,
            };
            match show(self, user, number, &granule, &wish) {
                Ok(lacks) => {
                    laps.record(watch.figures());
                    return if lacks && want == Want::All {
                        Err(EFAULT)
                    } else {
                        Ok(())
                    };
                }
                Err(error) if error == EAGAIN => watch.figures().add(Counter::Retries, 1),
                Err(error) => return Err(error),
            }
        }
        Err(EAGAIN)
    }

    fn serve(&self, user: &AddressSpaceUser, va: u64, write: bool, laps: &Laps) -> Result {
        let watch = self.watch();
        let number = watch.number(va);
        let granule = watch.granule(number);
        let page = va & !(PAGE - 1);
        let mut around = None;
        let mut begun = false;
        for _ in 0..MAX_ATTEMPTS {
            let (around, edition) = {
                let mut state = self.state().lock();
                if state.ended {
                    return Err(ESRCH);
                }
                let known = state.granules.get(number).ok_or(EINVAL)?;
                if watch.finds(known, page, write) {
                    // For another access, perhaps to another page.
                    return Ok(());
                }
                if around.is_none() {
                    around = state.around(number, page);
                }
                (around.as_ref().ok_or(EINVAL)?, state.edition)
            };
            let rules = watch.pause.rules();
            if !core::mem::replace(&mut begun, true) {
                if let Some(rules) = rules {
                    rules.access_begins(page, write);
                }
            }
            let wish = Wish {
                asked: &(page..page + PAGE),
                around: &(around.start.max(granule.start)..around.end.min(granule.end)),
                write,
                awaited: true,
                edition,
                laps,
            };
            match show(self, user, number, &granule, &wish) {
                Ok(true) => return Err(EFAULT),
                Ok(false) => {
                    watch.pause.vm().forget_missing()?;
                    if let Some(rules) = rules {
                        rules.access_ends(page);
                    }
                    return Ok(());
                }
                Err(error) if error == EAGAIN => watch.figures().add(Counter::Retries, 1),
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

    fn is_relied_on(&self, range: &Range<u64>) -> bool {
        let part = self.watch().part(range);
        let state = self.state().lock();
        let part = state.granules.get(part).unwrap_or_default();
        part.iter().any(|granule| {
            let shown = granule.shown.as_ref();
            granule.wanted && shown.is_some_and(|shown| !shown.is_empty())
        })
    }

    fn rules_changed(&self, range: &Range<u64>) {
        let part = self.watch().part(range);
        let mut state = self.state().lock();
        state.edition += 1;
        for number in part {
            let keeps = self.watch().keeps(&self.watch().granule(number));
            if let Some(granule) = state.granules.get_mut(number) {
                granule.stale |= granule.shown.is_some();
                granule.wanted &= keeps;
            }
        }
        self.watch().hide(&mut state);
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

/// Where in VRAM pages are that lie side by side: the first byte, and how many.
fn bytes_of(run: &Run) -> (u64, u64) {
    // CAST: `usize` is at most 64 bits wide.
    (run.number as u64 * PAGE, run.count as u64 * PAGE)
}

/// What is to be found of a granule.
struct Wish<'a> {
    /// What the caller looks for. GPU addresses, as the next.
    asked: &'a Range<u64>,
    /// Where pages are faulted in. Elsewhere those are shown that are there.
    around: &'a Range<u64>,
    /// They are to be written, where the program may.
    write: bool,
    /// An access waits for it.
    awaited: bool,
    /// Which rules it is found by: those that hold then, or newer ones.
    edition: u64,
    /// What it takes.
    laps: &'a Laps,
}

/// Finds the memory of a granule and writes its entries; whether something that was asked for cannot be shown.
fn show(
    window: &Arc<Window>,
    user: &AddressSpaceUser,
    number: usize,
    granule: &Range<u64>,
    wish: &Wish<'_>,
) -> Result<bool> {
    let watch = window.watch();
    let asked = wish.asked;
    let around = watch.shape.cpu_range(wish.around);
    let vm = watch.pause.vm();
    let may_write = watch.shape.rights.write;
    // One that is gone has nothing to be shown to, and is not to bring back what is in VRAM of another one.
    drop(vm.gpu().enter()?);
    let (device, _blind) = match vm.gpu().device_pages().sight() {
        Sight::Pages(hold) => (Some(hold), None),
        blind => (None, Some(blind)),
    };
    let mut snapshot = window.snapshot(user).with_device(device);
    let mut lacks = false;
    let cpu = watch.shape.cpu_range(granule);
    let mut at = cpu.start;
    // May take as long as user space wants: without access to the device, whose removal would wait.
    while at < cpu.end {
        let (memory, end) = user.memory_at(at..cpu.end);
        let (rule, end) = watch.rule(at..end);
        let writes = rule.rights.is_some_and(|rights| rights.write);
        // Written by the GPU or not, where it does not repeat accesses: a page that is shared until it is written is the
        // program's own from now on, for no access shows that the GPU wants to write it.
        let find = match memory {
            _ if !rule.kept && !wish.awaited => Find::Present,
            Memory::Writable if wish.write && writes => Find::Writable,
            _ => Find::Readable,
        };
        lacks |= match memory {
            _ if rule.rights.is_none() => watch.overlap(&(at..end), asked),
            Memory::None | Memory::Unusable => watch.overlap(&(at..end), asked),
            Memory::Readable | Memory::Writable => {
                watch.add(&mut snapshot, at..end, find, &around, asked)?
            }
        };
        at = end;
    }
    wish.laps.lap(Step::Pages);
    // What earlier changes left, before more of it is needed.
    vm.reap();
    let hw = vm.gpu().enter()?;
    let mut parts = KVVec::new();
    for segment in snapshot.segments() {
        // One of one piece, as pieces were added one by one.
        let (rule, _) = watch.rule(segment.start..segment.start + PAGE_SIZE);
        let rights = rule.rights.ok_or(EAGAIN)?;
        let write = rights.write && segment.writable;
        let va = watch.shape.gpu_address(segment.start);
        let access = rights.access(write);
        let part = match &segment.found {
            Found::System(pages) => {
                Part::new(vm, va, hw.dma().pages(hw.dev(), pages, write)?, access)
            }
            Found::Device(runs) => Part::vram(vm, va, runs.iter().map(bytes_of), access),
        };
        parts.push(part?, GFP_KERNEL_ACCOUNT)?;
    }
    let shown = Shown::new(parts);
    let entries = Entries::of(&shown);
    let mut shown = Some(shown);
    wish.laps.lap(Step::Map);
    let mut tables = Tables::new();
    for _ in 0..MAX_ATTEMPTS {
        let mut short = false;
        let result = snapshot.commit(may_write, |state| {
            let (ended, edition) = (state.ended, state.edition);
            let place = state.granules.get_mut(number).ok_or(EINVAL)?;
            if ended || place.stale || edition != wish.edition {
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
                Ok(()) => {
                    // The GPU goes on before this returns: what sees that finds the access counted.
                    state.served += u64::from(wish.awaited && !lacks);
                    Ok(core::mem::replace(&mut place.shown, shown.take()))
                }
            }
        });
        match result {
            // What it showed before, at other bus addresses perhaps: no entry names them any more.
            Ok(old) => {
                drop(old);
                wish.laps.bound(entries);
                return Ok(lacks);
            }
            Err(error) if error == EAGAIN && short => vm.fill(&hw, &mut tables)?,
            Err(error) => return Err(error),
        }
    }
    Err(EAGAIN)
}
