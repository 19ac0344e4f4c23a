// SPDX-License-Identifier: GPL-2.0

//! One access of the GPU to a mirror: its memory moves to VRAM if the program wants it there, and is shown where it is then.
//!
//! What moves is the block around the page that the hint asks for, to VRAM that is free: an access evicts nothing, and waits
//! for no one who does. Where it finds no room, or the memory has bounced ([`bounces`](super::bounces)), it is served in the
//! system, as without a hint. What fails on the way is no error of the access either.

use core::{
    cell::Cell,
    ops::Range, //
};

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    bounces::Answer,
    hints::Hinted,
    laps::Laps,
    migrate::{
        In,
        Moving, //
    },
    range::Mirror,
    report::{
        AccessReport,
        MoveReport, //
    },
    window::{
        Fill,
        Miss,
        Window, //
    },
};
use crate::{
    gpu::{
        devmem::{
            PageOwner,
            Trigger, //
        },
        mirrors::{
            Counter,
            Step, //
        }, //
    },
    kapi::{
        hmm::{
            AddressSpaceUser,
            Find,
            Memory,
            Seen, //
        },
        migrate::Collected, //
    },
    vm::{
        mirrored::GRANULE,
        pt::PAGE,
        room::Room, //
    },
};

/// How often an access is looked at whose rules or hints change meanwhile.
const MAX_ATTEMPTS: usize = 16;

impl Mirror {
    /// Shows what an access to GPU address `va` of the mirror needs, which the mirror allows.
    ///
    /// # Errors
    ///
    /// - `EFAULT`: there is no memory, or none that the GPU can use.
    /// - `EPERM`: the program may not write there.
    /// - Others are those of [`Fill::fill`].
    pub(super) fn serve(&self, va: u64, write: bool, laps: &Laps) -> Result {
        let user = self.memory().enter()?;
        let (memory, _) = user.memory_at(self.shape().cpu_range(&(va..va + 1)));
        match memory {
            Memory::None | Memory::Unusable => return Err(EFAULT),
            Memory::Readable if write => return Err(EPERM),
            Memory::Readable | Memory::Writable => {}
        }
        let window = self.window(&user, va)?;
        laps.lap(Step::Resolve);
        let told = AccessReport::new(self.rules(), va & !(PAGE - 1));
        for _ in 0..MAX_ATTEMPTS {
            let Some(mut miss) = window.miss(va, write)? else {
                told.end();
                return Ok(());
            };
            told.begin(write);
            let hinted = self.hint_at(&user, miss.page);
            if let Some(block) = hinted.and_then(|hinted| hinted.block(miss.page, &miss.around)) {
                if let Some(around) = self.bring_in(&user, &window, &miss, &block, &told) {
                    miss.around = around;
                    miss.rest_moves = true;
                }
            } else {
                // What is wanted in VRAM beside it moves when it is accessed itself.
                miss.rest_moves = self.may_move_in() && !window.waits(miss.page);
            }
            if window.serve(&user, &miss, laps)? {
                told.end();
                return Ok(());
            }
        }
        Err(EAGAIN)
    }

    /// Where memory at GPU address `va` is to be, and what of its granule with it; `None`: wherever it is.
    fn hint_at(&self, user: &AddressSpaceUser, va: u64) -> Option<Hinted> {
        let Some(rules) = self.rules() else {
            return self.hints().at(va);
        };
        let (whole, start) = (self.gpu(), va & !(GRANULE - 1));
        let granule = start.max(whole.start)..(start + GRANULE).min(whole.end);
        let wanted = rules.wanted(va, &granule);
        let hint = wanted.hint?;
        let cpu = self.shape().cpu_range(&(va..va + 1));
        if wanted.unasked.is_some() && user.is_heap_or_stack(cpu.start) {
            return None;
        }
        Some(Hinted {
            range: wanted.range,
            hint,
        })
    }

    /// Whether accesses move memory.
    fn may_move_in(&self) -> bool {
        self.request().filling.on_access && self.vm().gpu().device_pages().may_populate()
    }

    /// Moves to VRAM what an access is to find there: `block`, GPU addresses. Returns what is to be found around the access, GPU
    /// addresses; `None`: as without a hint.
    fn bring_in(
        &self,
        user: &AddressSpaceUser,
        window: &Arc<Window>,
        miss: &Miss,
        block: &Range<u64>,
        told: &AccessReport<'_>,
    ) -> Option<Range<u64>> {
        if !self.may_move_in() {
            return None;
        }
        let gpu = self.vm().gpu();
        // What of the granule the mapping has with the page, if it can move at all.
        let cpu = self.shape().cpu_range(&(miss.page..miss.page + PAGE));
        let mapping = Collected::may_leave(&user.lock(), cpu.start)?;
        let whole = self.shape().cpu_range(block);
        let cpu = whole.start.max(mapping.start)..whole.end.min(mapping.end);
        let part = self.shape().gpu_address(cpu.start)..self.shape().gpu_address(cpu.end - 1) + 1;
        if self.rules().is_some() && self.vm().has_buffers(part.clone()) {
            // These have memory of the program, perhaps this memory, found in the system each time it moves.
            return None;
        }
        let near = part.start.max(miss.around.start)..part.end.min(miss.around.end);
        let arrival = Arrival {
            mirror: self,
            user,
            window,
            page: miss.page..miss.page + PAGE,
            lacks_room: Cell::new(false),
            has_moved: Cell::new(false),
            report: MoveReport::new(self.rules(), part.clone(), false, Trigger::Access),
        };
        let figures = gpu.mirrors();
        if arrival.has_arrived() {
            return Some(near);
        }
        match window.ask_to_move(miss.page) {
            Answer::Move => {}
            Answer::Bounced => {
                figures.add(Counter::Bounced, 1);
                figures.add(Counter::HeldBack, 1);
                return None;
            }
            Answer::Wait => {
                figures.add(Counter::HeldBack, 1);
                return None;
            }
        }
        let result = arrival.run(&part, &near);
        arrival.report.note(result);
        if arrival.has_moved.get() {
            told.note_moved();
        }
        match result {
            Ok(()) => Some(near),
            Err(error) => {
                pr_debug!(
                    "{:#x} does not move for an access: {:?}\n",
                    miss.page,
                    error
                );
                if arrival.lacks_room.get() {
                    figures.add(Counter::NoRoom, 1);
                }
                None
            }
        }
    }
}

/// An access whose memory moves to VRAM.
struct Arrival<'a> {
    mirror: &'a Mirror,
    user: &'a AddressSpaceUser,
    window: &'a Arc<Window>,
    /// GPU addresses of its page.
    page: Range<u64>,
    /// There was no room.
    lacks_room: Cell<bool>,
    /// Some pages have moved.
    has_moved: Cell<bool>,
    report: MoveReport<'a>,
}

impl Arrival<'_> {
    /// Moves `part`, GPU addresses of one mapping and granule; what is nowhere yet only of `near`, which is in it, and has the
    /// page. What is held by somebody stays.
    ///
    /// # Errors
    ///
    /// Those of [`Moving::move_in`]. The page is where it was.
    fn run(&self, part: &Range<u64>, near: &Range<u64>) -> Result {
        if near != part {
            self.move_in(part, false)?;
        }
        // CAST: `usize` is at most 64 bits wide.
        if (self.look(near).device as u64) < (near.end - near.start) / PAGE {
            self.unless_arrived(self.move_in(near, true))?;
        }
        let seen = self.look(&self.page);
        if seen.device == 0 && seen.system == 0 {
            // It is in the VRAM of another GPU, or swapped out, and comes first.
            self.touch(near);
            self.unless_arrived(self.move_in(near, false))?;
        }
        Ok(())
    }

    /// What fails beside the page is no matter.
    fn unless_arrived(&self, result: Result) -> Result {
        match result {
            Err(_) if self.has_arrived() => Ok(()),
            result => result,
        }
    }

    fn move_in(&self, part: &Range<u64>, fill: bool) -> Result {
        let moving = Moving {
            window: self.window,
            user: self.user,
            cpu: self.mirror.shape().cpu_range(part),
            part,
            report: &self.report,
        };
        let how = In {
            fill,
            trigger: Trigger::Access,
            room: &|| self.room(),
        };
        let mut pages = 0;
        let result = moving.move_in(&how, &mut pages);
        if pages > 0 {
            self.has_moved.set(true);
        }
        result
    }

    fn room(&self) -> Result<(Room, usize)> {
        let credit = self.mirror.hints().credit();
        let gpu = self.mirror.vm().gpu();
        let room = Room::of_free(gpu, credit, self.mirror.memory().key());
        room.inspect_err(|_| self.lacks_room.set(true))
    }

    /// Where the pages of `range` are, GPU addresses.
    fn look(&self, range: &Range<u64>) -> Seen {
        let cpu = self.mirror.shape().cpu_range(range);
        let device = self.mirror.vm().gpu().device_pages().hold();
        let seen = self.window.look(self.user, cpu, device);
        seen.unwrap_or_default()
    }

    fn has_arrived(&self) -> bool {
        self.look(&self.page).device > 0
    }

    /// Has pages of `near`, GPU addresses, faulted in.
    fn touch(&self, near: &Range<u64>) {
        let (device, _ownerless) = match self.mirror.vm().gpu().device_pages().owner() {
            PageOwner::Known(hold) => (Some(hold), None),
            unknown => (None, Some(unknown)),
        };
        let cpu = self.mirror.shape().cpu_range(near);
        let mut snapshot = self.window.snapshot(self.user).with_device(device);
        // What cannot be had is found when it is shown.
        let _ = snapshot.touch(cpu, Find::Readable);
    }
}
