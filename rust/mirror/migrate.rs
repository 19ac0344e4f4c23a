// SPDX-License-Identifier: GPL-2.0

//! Moves of what a mirror shows between system memory and the VRAM of its GPU.
//!
//! A part of a granule is moved at a time, what one mapping of the program has of it. Its move announces a change as any
//! other does, so that its entries go, in this mirror and in others; afterwards it is shown where it is then. What a move
//! cannot have stays, and is no error.
//!
//! Pages of a granule go to a room of 2 MiB, each to the place that it has in its 2 MiB of GPU addresses: a granule that has
//! moved as a whole is one leaf. A page of a room is given once. So where a page of the room was given before, and has come
//! back, there is another room for it.

use core::ops::Range;

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc,
    time::{
        Instant,
        Monotonic, //
    },
};

use super::{
    range::Mirror,
    report::MoveReport,
    window::{
        Fill,
        Want,
        Window, //
    },
};
use crate::{
    gpu::{
        devmem::{
            Population,
            Target,
            Trigger, //
        },
        mirrors::Counter,
    },
    kapi::{
        devmem::Vacancy,
        drm_file::DrmDevice,
        hmm::{
            AddressSpaceUser,
            Memory, //
        },
        migrate::Collected,
        task::fatal_signal_pending, //
    },
    vm::{
        mirrored::GRANULE,
        pt::PAGE,
        room::{
            self,
            Room, //
        }, //
    },
};

/// Where memory is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the VRAM of the GPU; with `fill` also pages that are nowhere yet.
    Vram {
        /// All of it.
        fill: bool,
    },
    /// In system memory.
    System,
}

impl Place {
    /// The place of pages that are somewhere.
    fn only_what_is(self) -> Self {
        match self {
            Self::Vram { .. } => Self::Vram { fill: false },
            Self::System => self,
        }
    }
}

/// What became of a move, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// It has moved.
    pub(crate) moved: u64,
    /// It is there, and elsewhere.
    pub(crate) stayed: u64,
}

impl Mirror {
    /// Moves what the program has at GPU addresses `range` of the mirror, up to what fails. `tally` grows by what has moved and
    /// what has not, also where there is an error; without one nothing is looked at behind that.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: nothing moves to VRAM on this machine.
    /// - `ENOMEM`: no room in VRAM, or no memory; `ESRCH`: the mirror or the program has ended; `EINTR`: the caller is being
    ///   killed; `EAGAIN`: the memory does not stop changing.
    /// - `ENODEV`, `EIO`, `ETIMEDOUT`: the GPU is gone, lost, or did not answer.
    pub(super) fn migrate(
        &self,
        dev: &DrmDevice,
        range: &Range<u64>,
        place: Place,
        tally: Option<&mut Tally>,
    ) -> Result {
        let mut untold = Tally::default();
        let (tally, is_told) = match tally {
            Some(tally) => (tally, true),
            None => (&mut untold, false),
        };
        let before = tally.stayed;
        let result = self.migrate_parts(dev, range, place, tally, is_told);
        let stayed = tally.stayed.saturating_sub(before);
        self.vm().gpu().mirrors().add(Counter::Stayed, stayed);
        result
    }

    /// As [`Self::migrate`], where somebody is told of `tally` if `is_told`.
    fn migrate_parts(
        &self,
        dev: &DrmDevice,
        range: &Range<u64>,
        place: Place,
        tally: &mut Tally,
        is_told: bool,
    ) -> Result {
        let user = self.memory().enter()?;
        let report = |range| {
            let is_out = place == Place::System;
            MoveReport::new(self.rules(), range, is_out, Trigger::Request)
        };
        // One for each mapping of the program.
        let mut told = report(0..0);
        let mut result = Ok(());
        let mut va = range.start;
        while va < range.end {
            if fatal_signal_pending() {
                return Err(EINTR);
            }
            let rest = self.shape().cpu_range(&(va..range.end));
            let (memory, end) = user.memory_at(rest);
            let end = self.shape().gpu_address(end - 1) + 1;
            if matches!(memory, Memory::None | Memory::Unusable) {
                va = end;
                continue;
            }
            if !told.covers(va) {
                told = report(va..end);
            }
            let part = va..end.min((va & !(GRANULE - 1)) + GRANULE);
            let window = self.window(&user, va)?;
            let moving = Moving {
                window: &window,
                user: &user,
                cpu: self.shape().cpu_range(&part),
                part: &part,
                report: &told,
            };
            match result {
                Ok(()) => {
                    result = moving.run(dev, place, tally);
                    told.note(result);
                }
                Err(_) if !is_told => return result,
                // What follows is looked at, to be told.
                Err(_) => tally.stayed += moving.elsewhere(place.only_what_is()).unwrap_or(0),
            }
            va = part.end;
        }
        result
    }
}

/// A part of a granule that moves.
pub(super) struct Moving<'a> {
    pub(super) window: &'a Arc<Window>,
    pub(super) user: &'a AddressSpaceUser,
    /// Addresses of the program.
    pub(super) cpu: Range<usize>,
    /// GPU addresses.
    pub(super) part: &'a Range<u64>,
    /// What it is told of as.
    pub(super) report: &'a MoveReport<'a>,
}

/// What moves in, and where it finds room.
pub(super) struct In<'a> {
    /// Also pages that are nowhere yet.
    pub(super) fill: bool,
    /// For figures.
    pub(super) trigger: Trigger,
    /// Makes room, where that which was made before has none.
    pub(super) room: &'a dyn Fn() -> Result<(Room, usize)>,
}

impl Moving<'_> {
    /// How many bytes are there, elsewhere than they are to be.
    fn elsewhere(&self, place: Place) -> Result<u64> {
        let gpu = self.window.vm().gpu();
        let device = gpu.device_pages().hold();
        let seen = self.window.look(self.user, self.cpu.clone(), device)?;
        let pages = match place {
            // What is nowhere is to be there, too.
            Place::Vram { fill: true } => self.pages().saturating_sub(seen.device),
            Place::Vram { fill: false } => seen.system,
            Place::System => seen.device,
        };
        // CAST: `usize` is at most 64 bits wide.
        Ok(pages as u64 * PAGE)
    }

    fn pages(&self) -> usize {
        self.cpu.len() / PAGE_SIZE
    }

    fn run(&self, dev: &DrmDevice, place: Place, tally: &mut Tally) -> Result {
        if self.elsewhere(place)? == 0 {
            return Ok(());
        }
        let mut pages = 0;
        let result = match place {
            Place::Vram { fill } => {
                let gpu = self.window.vm().gpu();
                let how = In {
                    fill,
                    trigger: Trigger::Request,
                    room: &|| Room::new(gpu, dev),
                };
                self.move_in(&how, &mut pages)
            }
            Place::System => self.move_out(&mut pages),
        };
        // Where that fails, an access or the next look for what is missing finds it.
        let _ = self.show();
        let stayed = self.elsewhere(place.only_what_is()).unwrap_or(0);
        tally.stayed += stayed;
        // What has come back meanwhile, or because it is shared and the GPU may write it, has not moved after all.
        // CAST: `usize` is at most 64 bits wide.
        let moved = pages as u64 * PAGE;
        tally.moved += moved.min((self.part.end - self.part.start).saturating_sub(stayed));
        result
    }

    /// A frame of pages to move to: that of the last time, or a new one.
    fn vacancy(
        &self,
        population: &Population<'_>,
        how: &In<'_>,
        known: Option<(usize, u64)>,
    ) -> Result<Vacancy> {
        let known = known.and_then(|(frame, serial)| population.reopen(frame, serial));
        let gpu = self.window.vm().gpu();
        if let Some(vacancy) = known {
            room::note_use(gpu, vacancy.frame());
            return Ok(vacancy);
        }
        let began = Instant::<Monotonic>::now();
        let (room, frame) = (how.room)()?;
        let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(0);
        gpu.mirrors().note_room(ns);
        let room = KBox::new(room, GFP_KERNEL_ACCOUNT)?;
        population.vacancy(frame, room)
    }

    /// Moves to VRAM what can move. `pages` grows by those that do, also where there is an error.
    ///
    /// # Errors
    ///
    /// Those of `how.room`; others are those of [`Mirror::migrate`].
    pub(super) fn move_in(&self, how: &In<'_>, pages: &mut usize) -> Result {
        // Before others make room for it.
        if Collected::may_leave(&self.user.lock(), self.cpu.start).is_none() {
            return Ok(());
        }
        let before = *pages;
        let _mover = self.window.mover(self.part.start);
        let result = self.move_in_unnoted(how, pages);
        if *pages > before {
            self.window.note_moved_in(self.part.start);
        }
        result
    }

    fn move_in_unnoted(&self, how: &In<'_>, pages: &mut usize) -> Result {
        let gpu = self.window.vm().gpu();
        let first = usize::try_from(self.part.start % GRANULE / PAGE)?;
        let mut known = self.window.room(self.part.start);
        loop {
            let was_known = known.is_some();
            let population = gpu.populate()?;
            let vacancy = self.vacancy(&population, how, known.take())?;
            let target = Target {
                vacancy: &vacancy,
                first,
                holes: how.fill,
            };
            self.report.begin();
            let moved = match gpu.bring_in(self.user, &self.cpu, &target, how.trigger) {
                // The mapping is another one by now, or of memory that does not move.
                Err(e) if e == EINVAL => return Ok(()),
                moved => moved?,
            };
            *pages += moved.pages;
            self.window
                .note_room(self.part.start, (vacancy.frame(), vacancy.serial()));
            // Their pages in the room were given before.
            if moved.refused == 0 || !was_known {
                return Ok(());
            }
        }
    }

    /// As [`Self::move_in`].
    fn move_out(&self, pages: &mut usize) -> Result {
        let gpu = self.window.vm().gpu();
        let Some(device) = gpu.device_pages().hold() else {
            return Ok(());
        };
        let _mover = self.window.mover(self.part.start);
        self.report.begin();
        *pages += match gpu.bring_out(self.user, &self.cpu, &device) {
            Err(e) if e == EINVAL => 0,
            moved => moved?,
        };
        Ok(())
    }

    /// Shows what is there now.
    fn show(&self) -> Result {
        let want = if self.window.is_kept(self.part.start) {
            Want::Some
        } else {
            Want::Present
        };
        self.window
            .fill(self.user, self.part.start, self.part, want)
    }
}
