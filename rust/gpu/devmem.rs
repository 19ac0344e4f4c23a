// SPDX-License-Identifier: GPL-2.0

//! Pages of programs in VRAM: how they get there, and how they come back when the CPU touches one.
//!
//! A page in VRAM belongs to its program as any other. What the CPU touches is brought back to system memory by
//! [`CpuFaults`], with its neighbours, in the thread that touches it and whoever's program that is: here nobody knows.
//! After the end of the GPU that is impossible, and the program gets SIGBUS.
//!
//! Locks: the memory manager holds the mmap lock of the program and locks of pages. Nothing here takes a lock that is held
//! while a page or user space is waited for.

use kernel::{
    new_spinlock,
    prelude::*,
    sizes::SZ_64K,
    sync::{
        Arc,
        SpinLock, //
    },
};

use super::{
    access::Hw,
    clear::Landed,
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
            Vacancy, //
        },
        migrate::{
            Collected,
            Copied,
            Destinations,
            Job,
            Placed, //
        },
    },
};

/// Bytes that come back when the CPU touches one of them.
const AROUND: usize = SZ_64K;

/// Brings pages back that the CPU touches, until [`Self::end`].
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

    /// The VRAM is out of reach: what is left there is lost.
    pub(crate) fn end(&self) {
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
        let collected = match Collected::of_fault(fault, AROUND) {
            Ok(collected) => collected,
            Err(e) => return refused(e),
        };
        let (placed, is_placed) = collected.into_system(fault);
        if !is_placed {
            return Answer::OutOfMemory;
        }
        match gpu.copy_placed(&hw, placed, Direction::Out) {
            // What could not move this time does when it is touched again.
            Ok(copied) => drop(copied.commit()),
            Err(e) => return refused(e),
        }
        Answer::Repeat
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

impl Gpu {
    /// Moves pages to VRAM: the first page of the range to page `first` of the frame that `vacancy` is of, and so on. What
    /// was never touched moves with `holes`, and shows what the room has. Returns how many have moved; others stay.
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
    ) -> Result<usize> {
        let placed = collected.into_device(vacancy, first, holes);
        let moved = self.copy_placed(hw, placed, Direction::In)?.commit();
        Ok(moved.count())
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
            Landed::Cancelled(_) => Err(EIO),
            Landed::Failed(e) => Err(e),
        }
    }
}
