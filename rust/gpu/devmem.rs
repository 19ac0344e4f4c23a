// SPDX-License-Identifier: GPL-2.0

//! Pages of programs in VRAM: how they get there, and how they come back when the CPU touches one.
//!
//! A page in VRAM belongs to its program as any other. What the CPU touches is brought back to system memory by
//! [`CpuFaults`], with its neighbours, in the thread that touches it and whoever's program that is: here nobody knows.
//! After the end of the GPU that is impossible, and the program gets SIGBUS. Who reports moves of a program is listed by its address
//! space ([`Witness`]). [`DevicePages`] are all that there are of a GPU.
//!
//! Locks: the memory manager holds the mmap lock of the program and locks of pages. Nothing here takes a lock that is held
//! while a page or user space is waited for.

use core::ops::Range;

use kernel::{
    new_spinlock,
    prelude::*,
    sizes::{
        SZ_4K,
        SZ_64K, //
    },
    sync::{
        Arc,
        SpinLock, //
    },
    time::{
        Instant,
        Monotonic, //
    },
};

use super::{
    access::Hw,
    clear::Landed,
    mirrors::{
        Counter,
        MoveLaps,
        MoveStep, //
    },
    moves::Direction,
    pieces::{
        Piece,
        Pieces, //
    },
    Gpu, //
};
use crate::{
    hw::pte::PAGE,
    kapi::{
        devmem::{
            Answer,
            CpuFault,
            Fault,
            Hold,
            KeeperHandle,
            Vacancy,
            FRAME, //
        },
        hmm::AddressSpaceUser,
        migrate::{
            Collected,
            Copied,
            Destinations,
            Job,
            Placed, //
        },
        task::MmKey,
        trace::errno, //
    },
    trace,
};

mod back;
mod pages;
mod witness;

use self::pages::Ready;
pub(crate) use self::{
    pages::{
        BringBack,
        DevicePages,
        PageOwner,
        Population, //
    },
    witness::{
        Movement,
        Stage,
        Trigger,
        Witness, //
    },
};

/// Bytes that come back when the CPU touches one of them.
const AROUND: usize = SZ_64K;

/// Where pages go that move to VRAM.
pub(crate) struct Target<'a> {
    /// Of a frame.
    pub(crate) vacancy: &'a Vacancy,
    /// Page of the frame that the first page of the range goes to, and so on.
    pub(crate) first: usize,
    /// What was never touched moves, too, and shows what the room has.
    pub(crate) holes: bool,
}

/// Has a witness told of moves of a program's memory, as long as this lives.
pub(crate) struct Told {
    gpu: Arc<Gpu>,
    key: u64,
}

impl Drop for Told {
    fn drop(&mut self) {
        self.gpu.device_pages().witnesses().remove(self.key);
    }
}

/// What has moved to VRAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MovedIn {
    /// Pages.
    pub(crate) pages: usize,
    /// Those that would have moved, but the frame had no page for them.
    pub(crate) refused: usize,
}

/// Brings pages back that the CPU touches, until [`BringBack::end`].
#[pin_data]
pub(crate) struct CpuFaults {
    #[pin]
    gpu: SpinLock<Option<Arc<Gpu>>>,
}

impl CpuFaults {
    /// For pages in the VRAM of `gpu`, which it keeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Result<Arc<Self>> {
        let gpu = Some(gpu.clone());
        Arc::pin_init(
            pin_init!(Self { gpu <- new_spinlock!(gpu, "rkfd_cpu_faults") }),
            GFP_KERNEL,
        )
    }
}

impl BringBack for CpuFaults {
    fn end(&self) {
        let gpu = self.gpu.lock().take();
        drop(gpu);
    }
}

impl CpuFault for CpuFaults {
    fn bring_back(&self, fault: &Fault<'_>) -> Answer {
        let gpu = self.gpu.lock().clone();
        let Some(gpu) = gpu else {
            return Answer::Lost;
        };
        let Ok(hw) = gpu.enter() else {
            return Answer::Lost;
        };
        if gpu.device_pages().is_lost() {
            return Answer::Lost;
        }
        let (program, around) = fault.around(AROUND);
        let witness = gpu.device_pages().witnesses().of(program);
        let tell = |stage| {
            if let Some(witness) = &witness {
                witness.memory_moves(&Movement {
                    // CAST: `usize` is at most 64 bits wide.
                    range: around.start as u64..around.end as u64,
                    is_out: true,
                    trigger: Trigger::Fault,
                    stage,
                });
            }
        };
        tell(Stage::Begins);
        let start = Instant::now();
        let result = gpu.answer(&hw, fault);
        tell(Stage::Ended(result.map(|_| ())));
        gpu.note_move(&Note {
            direction: Direction::Out,
            trigger: Trigger::Fault,
            address: fault.address(),
            asked: AROUND,
            start,
            result,
        });
        match result {
            // What could not move this time does when it is touched again.
            Ok(_) => Answer::Repeat,
            Err(e) => refused(e),
        }
    }
}

/// The answer to an access whose page did not come because of `error`.
fn refused(error: Error) -> Answer {
    match error {
        e if e == ENOMEM => Answer::OutOfMemory,
        // The page is where it was, and the engine that did not stop gets no more jobs: next time the CPU copies.
        e if e == ETIMEDOUT => Answer::Repeat,
        _ => Answer::Lost,
    }
}

/// A move that is over.
struct Note {
    direction: Direction,
    trigger: Trigger,
    /// Address of the program's; of the VRAM where no program is known.
    address: usize,
    /// Bytes.
    asked: usize,
    start: Instant<Monotonic>,
    /// How many pages have moved.
    result: Result<usize>,
}

impl Gpu {
    /// Has `witness` told when memory of `program` comes back from VRAM because the CPU touches it; of several witnesses of one
    /// program the one that came first.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn tell_of_moves(
        self: &Arc<Self>,
        program: MmKey,
        witness: Arc<dyn Witness>,
    ) -> Result<Told> {
        let key = self.device_pages().witnesses().add(program, witness)?;
        Ok(Told {
            gpu: self.clone(),
            key,
        })
    }

    /// From now on pages of programs may move in.
    ///
    /// # Errors
    ///
    /// - `ENODEV`: the GPU sleeps, or has ended.
    /// - `EOPNOTSUPP`: the kernel or the machine does not allow it.
    /// - `ENOMEM`.
    pub(crate) fn populate(self: &Arc<Self>) -> Result<Population<'_>> {
        let make = |keeper: &KeeperHandle| {
            let faults = CpuFaults::new(self)?;
            Ready::new(self.dev(), self.vram().total(), keeper, faults)
        };
        self.device_pages().populate(make)
    }

    /// Moves pages to VRAM: the first page of the range to page `first` of the frame that `vacancy` is of, and so on. What
    /// was never touched moves with `holes`, and shows what the room has. Others stay.
    ///
    /// # Errors
    ///
    /// Nothing has moved. `ENOMEM`, `EIO`: the device is lost; `ETIMEDOUT`: the copy engine does not stop.
    pub(crate) fn move_in(
        &self,
        hw: &Hw,
        collected: Collected<'_>,
        vacancy: &Vacancy,
        first: usize,
        holes: bool,
    ) -> Result<MovedIn> {
        let mut laps = MoveLaps::begin(Direction::In);
        let placed = collected.into_device(vacancy, first, holes);
        laps.lap(MoveStep::Place);
        let copied = self.copy_placed(hw, placed, Direction::In)?;
        laps.lap(MoveStep::Copy);
        let moved = copied.commit();
        // CAST: `usize` is at most 64 bits wide.
        let new = moved.holes() as u64 * PAGE;
        self.mirrors().add(Counter::Holes, new);
        let result = MovedIn {
            pages: moved.count(),
            refused: moved.refused(),
        };
        drop(moved);
        laps.lap(MoveStep::Finish);
        if result.pages != 0 {
            laps.record(self.mirrors());
        }
        Ok(result)
    }

    /// Has `find` collect pages, and notes how long that takes.
    fn collect<'m>(
        &self,
        direction: Direction,
        find: impl FnOnce() -> Result<Collected<'m>>,
    ) -> Result<Collected<'m>> {
        let mut laps = MoveLaps::begin(direction);
        let collected = find()?;
        laps.lap(MoveStep::Collect);
        if collected.moving() != 0 {
            laps.record(self.mirrors());
        }
        Ok(collected)
    }

    /// Moves what a program has of a range of one of its mappings to VRAM, as [`Self::move_in`]. The caller holds no lock.
    ///
    /// # Errors
    ///
    /// Nothing has moved. `EINVAL`: the mapping ends within the range, or its pages do not move; `ENODEV`: the GPU is gone.
    /// Those of [`Self::move_in`].
    pub(crate) fn bring_in(
        &self,
        user: &AddressSpaceUser,
        range: &Range<usize>,
        to: &Target<'_>,
        trigger: Trigger,
    ) -> Result<MovedIn> {
        let start = Instant::now();
        let result = {
            let lock = user.lock();
            let hw = self.enter()?;
            let find = || Collected::of_system(&lock, range.clone(), to.vacancy);
            let collected = self.collect(Direction::In, find);
            collected.and_then(|all| self.move_in(&hw, all, to.vacancy, to.first, to.holes))
        };
        self.note_move(&Note {
            direction: Direction::In,
            trigger,
            address: range.start,
            asked: range.len(),
            start,
            result: result.map(|moved| moved.pages),
        });
        result
    }

    /// Moves what a program has in VRAM of a range of one of its mappings to the system. The caller holds no lock. Returns how
    /// many pages have moved.
    ///
    /// # Errors
    ///
    /// As [`Self::bring_in`].
    pub(crate) fn bring_out(
        &self,
        user: &AddressSpaceUser,
        range: &Range<usize>,
        device: &Hold,
    ) -> Result<usize> {
        let start = Instant::now();
        let result = {
            let lock = user.lock();
            let hw = self.enter()?;
            let find = || Collected::of_device(&lock, range.clone(), device);
            let collected = self.collect(Direction::Out, find);
            collected.and_then(|all| self.move_out(&hw, all, None))
        };
        self.note_move(&Note {
            direction: Direction::Out,
            trigger: Trigger::Request,
            address: range.start,
            asked: range.len(),
            start,
            result,
        });
        result
    }

    /// Moves the pages of a frame to the system, whatever programs have them, so that others can have its VRAM. What of it is free
    /// is given back when this returns. The caller has neither an mmap lock nor a reservation.
    ///
    /// # Errors
    ///
    /// Nothing has moved. `ENOENT`: no program has any. `ENOMEM`, `EIO`, `ETIMEDOUT`: see [`Self::move_in`].
    pub(crate) fn evict_frame(&self, hw: &Hw, frame: usize) -> Result {
        let device = self.device_pages().hold().ok_or(ENOENT)?;
        let result = self.bring_frame_back(hw, &device, frame, Trigger::Eviction);
        self.device_pages().settle();
        result.map(|_| ())
    }

    /// Moves the pages of a frame to the system, whatever programs have them. Returns how many have moved.
    ///
    /// # Errors
    ///
    /// Nothing has moved. `ENOENT`: no program has any. `ENOMEM`, `EIO`, `ETIMEDOUT`: see [`Self::move_in`].
    fn bring_frame_back(
        &self,
        hw: &Hw,
        device: &Hold,
        frame: usize,
        trigger: Trigger,
    ) -> Result<usize> {
        let start = Instant::now();
        let collected = self.collect(Direction::Out, || Collected::of_frame(device, frame))?;
        let asked = collected.moving() * SZ_4K;
        let result = self.move_out(hw, collected, None);
        self.note_move(&Note {
            direction: Direction::Out,
            trigger,
            address: frame * FRAME,
            asked,
            start,
            result,
        });
        result
    }

    /// # Errors
    ///
    /// Nothing has moved. `ENOMEM`, which stands for want of a page for that of `fault`, too.
    fn move_out(
        &self,
        hw: &Hw,
        collected: Collected<'_>,
        fault: Option<&Fault<'_>>,
    ) -> Result<usize> {
        let mut laps = MoveLaps::begin(Direction::Out);
        let (placed, is_placed) = collected.into_system(fault);
        if !is_placed {
            return Err(ENOMEM);
        }
        laps.lap(MoveStep::Place);
        let copied = self.copy_placed(hw, placed, Direction::Out)?;
        laps.lap(MoveStep::Copy);
        let moved = copied.commit();
        let count = moved.count();
        drop(moved);
        laps.lap(MoveStep::Finish);
        if count != 0 {
            laps.record(self.mirrors());
        }
        Ok(count)
    }

    fn answer(&self, hw: &Hw, fault: &Fault<'_>) -> Result<usize> {
        let collected = self.collect(Direction::Out, || Collected::of_fault(fault, AROUND))?;
        self.move_out(hw, collected, Some(fault))
    }

    /// Counts and traces.
    fn note_move(&self, note: &Note) {
        let pages = note.result.unwrap_or(0);
        // CAST: `usize` is at most 64 bits wide.
        let (moved, asked) = (pages as u64 * PAGE, note.asked as u64);
        let counter = match (note.direction, note.trigger) {
            (Direction::In, _) => Counter::MovedIn,
            // No access does.
            (Direction::Out, Trigger::Access | Trigger::Request) => Counter::MovedOut,
            (Direction::Out, Trigger::Fault) => Counter::MovedOutByFault,
            (Direction::Out, Trigger::Eviction) => Counter::MovedOutForRoom,
            (Direction::Out, Trigger::End) => Counter::MovedOutAtEnd,
        };
        self.mirrors().add(counter, moved);
        if note.trigger == Trigger::Access {
            self.mirrors().add(Counter::MovedInByAccess, moved);
        }
        let us = u64::try_from(note.start.elapsed().as_nanos()).unwrap_or(0) / 1000;
        trace::mirror_migrate(
            self.id(),
            note.direction == Direction::Out,
            // CAST: The number of a variant.
            note.trigger as u32,
            // CAST: As above.
            note.address as u64,
            asked,
            moved,
            us,
            errno(&note.result),
        );
    }

    /// Copies what was placed, by the engine or by the CPU.
    ///
    /// # Errors
    ///
    /// Nothing moves. `ENOMEM`; `EIO`: the device is lost; `ETIMEDOUT`: the copy engine does not stop, and keeps the
    /// destinations.
    pub(crate) fn copy_placed<'m>(
        &self,
        hw: &Hw,
        placed: Placed<'m>,
        direction: Direction,
    ) -> Result<Copied<'m>> {
        placed.copy(|job| self.copy_job(hw, job, direction))
    }

    fn copy_job(&self, hw: &Hw, job: Job, direction: Direction) -> Result<Destinations> {
        let mut list = KVVec::with_capacity(job.runs.len(), GFP_KERNEL)?;
        for run in &job.runs {
            let piece = Piece {
                // CAST: `usize` is at most 64 bits wide.
                vram: run.number as u64 * PAGE,
                page: run.page,
                count: run.count,
            };
            list.push(piece, GFP_KERNEL)?;
        }
        let what = Pieces {
            pages: job.pages,
            list,
            direction,
            owner: job.kept,
        };
        match self.copy_pieces(hw, what)?.land() {
            Landed::Done(kept) => Ok(kept),
            Landed::Cancelled(_, e) => Err(e),
            Landed::Failed(e) => Err(e),
        }
    }
}
