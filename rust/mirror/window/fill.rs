// SPDX-License-Identifier: GPL-2.0

//! What a window shows: how it is found, and how its entries are written.

use core::ops::Range;

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

use super::Window;
use crate::{
    gpu::{
        devmem::PageOwner,
        mirrors::{
            Counter,
            Step, //
        }, //
    },
    kapi::{
        hmm::{
            AddressSpaceUser,
            Find,
            Found,
            Memory, //
        },
        log::monotonic_ns,
        migrate::Run,
        task::current_task, //
    },
    mirror::{
        bounces::{
            Answer,
            Bounces, //
        },
        laps::{
            Entries,
            Laps, //
        }, //
    },
    vm::{
        mirrored::{
            Part,
            Shown,
            Tables, //
        },
        pt::PAGE,
        Vm, //
    },
};

/// How often memory is looked for that changes at the same time.
const MAX_ATTEMPTS: usize = 16;

/// How much of the memory is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mirror) enum Want {
    /// What there is.
    Some,
    /// All that was asked for.
    All,
    /// What is there already: nothing is made for it.
    Present,
}

/// An access to a page that is not shown so.
pub(in crate::mirror) struct Miss {
    /// First byte of the page, GPU address.
    pub(in crate::mirror) page: u64,
    /// It is to be written.
    pub(in crate::mirror) write: bool,
    /// What is found around it, GPU addresses of its granule.
    pub(in crate::mirror) around: Range<u64>,
    /// What is beside that moves to VRAM when it is accessed, as far as hints want it.
    pub(in crate::mirror) rest_moves: bool,
    /// Which rules and hints the access met.
    edition: u64,
}

/// Finds and shows what a window has.
pub(in crate::mirror) trait Fill {
    /// The address space of the GPU.
    fn vm(&self) -> &Arc<Vm>;

    /// Whether queues wait while something of the granule with GPU address `va` is not shown.
    fn is_kept(&self, va: u64) -> bool;

    /// Where pages of the granule with GPU address `va` have moved to at last.
    fn room(&self, va: u64) -> Option<(usize, u64)>;

    /// Notes that.
    fn note_room(&self, va: u64, room: (usize, u64));

    /// While the result is there, the current task moves pages of the granule with GPU address `va`: changes that it makes are
    /// not taken for those of others.
    fn mover(&self, va: u64) -> Mover<'_>;

    /// Notes that pages of the granule with GPU address `va` have moved to VRAM.
    fn note_moved_in(&self, va: u64);

    /// Whether memory of the granule with GPU address `va` may move to VRAM, some of which an access finds in the system.
    fn ask_to_move(&self, va: u64) -> Answer;

    /// Whether memory of the granule with GPU address `va` stays in the system for a while, as it has moved too often.
    fn waits(&self, va: u64) -> bool;

    /// Memory of `range`, GPU addresses, is to move to VRAM when it is accessed: what shows some of it in the system goes, and
    /// nothing waits because it came out.
    fn expect_moves(&self, range: &Range<u64>);

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

    /// Begins with an access to the page at GPU address `va`. `None`: it is shown so.
    ///
    /// # Errors
    ///
    /// `ESRCH`: the mirror or the address space has ended.
    fn miss(&self, va: u64, write: bool) -> Result<Option<Miss>>;

    /// Shows the page of an access, with what lies around it, and what the program has of the rest of the granule at the moment.
    /// Returns whether that is done; else rules or hints have changed since the access was met.
    ///
    /// # Errors
    ///
    /// As [`Self::fill`].
    fn serve(&self, user: &AddressSpaceUser, miss: &Miss, laps: &Laps) -> Result<bool>;

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

    fn mover(&self, va: u64) -> Mover<'_> {
        let number = self.watch().number(va);
        let mut state = self.state().lock();
        let granule = state.granules.get_mut(number);
        // The changes of a second one count as those of others, until its own move is noted.
        let is_free = granule.is_some_and(|granule| {
            granule.bounces.begin();
            let is_free = granule.mover.is_none();
            granule.mover.get_or_insert(current_task());
            is_free
        });
        drop(state);
        Mover {
            window: self,
            number: is_free.then_some(number),
        }
    }

    fn note_moved_in(&self, va: u64) {
        let mut state = self.state().lock();
        if let Some(granule) = state.granules.get_mut(self.watch().number(va)) {
            granule.bounces.note_in(monotonic_ns());
        }
    }

    fn ask_to_move(&self, va: u64) -> Answer {
        let mut state = self.state().lock();
        let granule = state.granules.get_mut(self.watch().number(va));
        granule.map_or(Answer::Wait, |granule| granule.bounces.ask(monotonic_ns()))
    }

    fn waits(&self, va: u64) -> bool {
        let state = self.state().lock();
        let granule = state.granules.get(self.watch().number(va));
        granule.is_none_or(|granule| granule.bounces.waits(monotonic_ns()))
    }

    fn expect_moves(&self, range: &Range<u64>) {
        let part = self.watch().part(range);
        let mut state = self.state().lock();
        // What is being found by the old hints is found once more.
        state.edition += 1;
        for granule in state.granules.get_mut(part).unwrap_or_default() {
            granule.bounces = Bounces::NEW;
            granule.stale |= granule.shows_system(range);
        }
        self.watch().hide(&mut state);
    }

    fn fill(&self, user: &AddressSpaceUser, va: u64, asked: &Range<u64>, want: Want) -> Result {
        let watch = self.watch();
        let number = watch.number(va);
        let granule = watch.granule(number);
        // What rules keep is shown beside what they want in VRAM.
        let rest_moves =
            want == Want::Present || (want == Want::Some && watch.pause.rules().is_some());
        let laps = Laps::of_fill();
        for _ in 0..MAX_ATTEMPTS {
            let (edition, waits) = {
                let mut state = self.state().lock();
                if state.ended {
                    return Err(ESRCH);
                }
                // Under the lock: what rules of before kept says nothing about those that `rules_changed` has announced.
                let keeps = watch.keeps(&granule);
                // From here on a change stops the queues, if they wait for it.
                let edition = state.edition;
                let known = state.granules.get_mut(number).ok_or(EINVAL)?;
                known.wanted = keeps;
                (edition, known.bounces.waits(monotonic_ns()))
            };
            let around = match want {
                Want::Some | Want::All => granule.clone(),
                Want::Present => va..va,
            };
            let wish = Wish {
                asked,
                around: &around,
                rest_moves: rest_moves && !waits,
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

    fn miss(&self, va: u64, write: bool) -> Result<Option<Miss>> {
        let watch = self.watch();
        let number = watch.number(va);
        let granule = watch.granule(number);
        let page = va & !(PAGE - 1);
        let mut state = self.state().lock();
        if state.ended {
            return Err(ESRCH);
        }
        let known = state.granules.get(number).ok_or(EINVAL)?;
        if watch.finds(known, page, write) {
            // For another access, perhaps to another page.
            return Ok(None);
        }
        let around = state.around(number, page).ok_or(EINVAL)?;
        Ok(Some(Miss {
            page,
            write,
            around: around.start.max(granule.start)..around.end.min(granule.end),
            rest_moves: false,
            edition: state.edition,
        }))
    }

    fn serve(&self, user: &AddressSpaceUser, miss: &Miss, laps: &Laps) -> Result<bool> {
        let watch = self.watch();
        let (page, write) = (miss.page, miss.write);
        let number = watch.number(page);
        let granule = watch.granule(number);
        for _ in 0..MAX_ATTEMPTS {
            {
                let state = self.state().lock();
                if state.ended {
                    return Err(ESRCH);
                }
                let known = state.granules.get(number).ok_or(EINVAL)?;
                if watch.finds(known, page, write) {
                    return Ok(true);
                }
                if state.edition != miss.edition {
                    return Ok(false);
                }
            }
            let wish = Wish {
                asked: &(page..page + PAGE),
                around: &miss.around,
                rest_moves: miss.rest_moves,
                write,
                awaited: true,
                edition: miss.edition,
                laps,
            };
            match show(self, user, number, &granule, &wish) {
                Ok(true) => return Err(EFAULT),
                Ok(false) => {
                    watch.pause.vm().forget_missing()?;
                    return Ok(true);
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

/// While it is there, a task moves pages of a granule.
pub(in crate::mirror) struct Mover<'a> {
    window: &'a Arc<Window>,
    /// That of the granule where it is known to do so.
    number: Option<usize>,
}

impl Drop for Mover<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut state = self.window.state().lock();
        if let Some(granule) = state.granules.get_mut(number) {
            granule.mover = None;
        }
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
    /// Of what is there elsewhere, that which hints want in VRAM, and which can move, is shown only if it is there.
    rest_moves: bool,
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
    let (device, _ownerless) = match vm.gpu().device_pages().owner() {
        PageOwner::Known(hold) => (Some(hold), None),
        unknown => (None, Some(unknown)),
    };
    let mut snapshot = window.snapshot(user).with_device(device);
    let mut lacks = false;
    let cpu = watch.shape.cpu_range(granule);
    let mut at = cpu.start;
    // May take as long as user space wants: without access to the device, whose removal would wait.
    while at < cpu.end {
        let (memory, end) = user.memory_at(at..cpu.end);
        let (rule, end) = watch.rule(at..end);
        let (moves, end) = match memory {
            Memory::Readable | Memory::Writable if wish.rest_moves => watch.moves(user, at..end),
            _ => (false, end),
        };
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
                let nowhere = at..at;
                let near = if moves && !wish.awaited {
                    &nowhere
                } else {
                    &around
                };
                watch.add(&mut snapshot, at..end, find, (near, moves), asked)?
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
            // Entries are memory of a device that may be without power soon; found again when it is awake.
            if vm.gpu().is_asleep() {
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
