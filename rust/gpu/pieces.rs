// SPDX-License-Identifier: GPL-2.0

//! Copies between VRAM and system memory of which no two pages need be neighbours.
//!
//! As in [`moves`](super::moves), the copy engine does it, or the CPU: where there is little to copy, the engine takes no
//! jobs, is stopped half way, or the GART has no room. The pages of the system's side are one list, which the GART shows
//! as a whole, so that a run of pages that lie side by side in the list and in VRAM is one packet. What was begun by the
//! engine and cancelled is done again by the CPU: the source does not change meanwhile.
//!
//! A copy that is under way is a value, [`CopyingPieces`]: the caller does something else, and lands it. It owns what
//! the engine may reach, as [`InFlight`] has it.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    access::Hw,
    clear::{
        InFlight,
        Landed,
        ENGINE_MIN, //
    },
    copy::{
        CopyPart,
        JOB_BYTES,
        MAX_PARTS,
        PART_BYTES, //
    },
    gart::GartWindow,
    mirrors::Counter,
    moves::{
        CpuBuffer,
        Direction, //
    },
    Gpu, //
};
use crate::{
    hw::pte::PAGE,
    kapi::pages::Pages, //
};

/// Bytes of system memory that one copy has at most: what the GART shows at a time.
pub(crate) const MOST_BYTES: u64 = JOB_BYTES;

/// Pages that lie side by side on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// First byte in VRAM.
    pub(crate) vram: u64,
    /// The first page of the list.
    pub(crate) page: usize,
    /// How many pages.
    pub(crate) count: usize,
}

impl Piece {
    /// Bytes.
    fn size(&self) -> u64 {
        // CAST: `usize` is at most 64 bits wide.
        self.count as u64 * PAGE
    }

    /// Where it begins in the list, in bytes.
    fn place(&self) -> u64 {
        // CAST: `usize` is at most 64 bits wide.
        self.page as u64 * PAGE
    }
}

/// What is copied. The sources do not change meanwhile, and nothing is a destination twice.
pub(crate) struct Pieces<K> {
    /// The system's side, not more than [`MOST_BYTES`]; there may be pages in it that no piece names.
    pub(crate) pages: Arc<Pages>,
    /// The pieces.
    pub(crate) list: KVVec<Piece>,
    /// Which side is the source.
    pub(crate) direction: Direction,
    /// What both sides stay with.
    pub(crate) owner: K,
}

impl<K> Pieces<K> {
    /// # Errors
    ///
    /// `EINVAL`: nothing to copy, or not within VRAM and pages.
    fn check(&self, gpu: &Gpu) -> Result {
        // CAST: `usize` is at most 64 bits wide.
        let all = self.pages.size() as u64;
        let valid = |piece: &Piece| {
            // Neither product nor sum overflows: no count is larger than that of the pages.
            let end = piece.page.checked_add(piece.count);
            let inside = piece.count != 0 && end.is_some_and(|end| end <= self.pages.len());
            let vram = gpu.vram().total();
            inside
                && piece.vram % PAGE == 0
                && vram
                    .checked_sub(piece.size())
                    .is_some_and(|last| piece.vram <= last)
        };
        if self.list.is_empty() || all > MOST_BYTES || !self.list.iter().all(valid) {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Bytes to copy.
    fn size(&self) -> u64 {
        self.list.iter().map(Piece::size).sum()
    }

    fn copy_by_cpu(&self, hw: &Hw) -> Result {
        let mut buffer = CpuBuffer::new()?;
        for piece in &self.list {
            let place = usize::try_from(piece.place())?;
            buffer.copy(
                hw,
                self.direction,
                piece.vram,
                &self.pages,
                place,
                piece.size(),
            )?;
        }
        Ok(())
    }
}

/// What the engine may reach while it copies.
struct Reached<K> {
    what: Pieces<K>,
    window: Option<GartWindow>,
}

/// A copy that is under way. Dropped, it waits for the engine and is not completed.
#[must_use = "dropping waits for the engine"]
pub(crate) struct CopyingPieces<'a, K: Send + 'static> {
    gpu: &'a Gpu,
    hw: &'a Hw,
    /// All that is copied.
    bytes: u64,
    flight: InFlight<'a, Reached<K>>,
    /// The engine has got all of it.
    submitted: bool,
}

impl Gpu {
    /// Begins to copy. Sleeps; bounded.
    ///
    /// # Errors
    ///
    /// Nothing was copied.
    ///
    /// `EINVAL`: nothing to copy, not within VRAM and pages, or more than [`MOST_BYTES`].
    pub(crate) fn copy_pieces<'a, K: Send + 'static>(
        &'a self,
        hw: &'a Hw,
        what: Pieces<K>,
    ) -> Result<CopyingPieces<'a, K>> {
        what.check(self)?;
        // What the CPU wrote through the BAR is in memory from here on.
        hw.hdp_flush();
        let window = match what.size() {
            small if small < ENGINE_MIN => None,
            _ => self.show_pieces(hw, &what).ok(),
        };
        let shown = window.as_ref().map(GartWindow::gpu_addr);
        let bytes = what.size();
        let mut flight = InFlight::new(self, hw, Reached { what, window });
        let submitted =
            shown.is_some_and(|shown| self.submit_pieces(hw, shown, &mut flight).is_ok());
        Ok(CopyingPieces {
            gpu: self,
            hw,
            bytes,
            flight,
            submitted,
        })
    }

    fn show_pieces<K>(&self, hw: &Hw, what: &Pieces<K>) -> Result<GartWindow> {
        let is_destination = what.direction == Direction::Out;
        let dma = hw.dma().pages(hw.dev(), &what.pages, is_destination)?;
        // CAST: `usize` is at most 64 bits wide.
        let size = what.pages.size() as u64;
        self.gart().show(hw, &Arc::new(dma, GFP_KERNEL)?, 0, size)
    }

    /// Hands all pieces to the engine; the GART shows the list at `shown`.
    fn submit_pieces<K: Send + 'static>(
        &self,
        hw: &Hw,
        shown: u64,
        flight: &mut InFlight<'_, Reached<K>>,
    ) -> Result {
        // What comes next: a piece, and how much of it was handed over.
        let (mut next, mut done) = (0, 0);
        flight.each(|Reached { what, .. }| {
            let mut job = [CopyPart::default(); MAX_PARTS];
            let mut count = 0;
            for part in &mut job {
                let Some(piece) = what.list.get(next) else {
                    break;
                };
                let bytes = PART_BYTES.min(piece.size() - done);
                let (local, system) = (
                    self.vram().mc(piece.vram + done),
                    shown + piece.place() + done,
                );
                let (from, to) = match what.direction {
                    Direction::Out => (local, system),
                    Direction::In => (system, local),
                };
                *part = CopyPart { from, to, bytes };
                count += 1;
                done += bytes;
                if done == piece.size() {
                    (next, done) = (next + 1, 0);
                }
            }
            match job.get(..count) {
                Some(job) if count != 0 => self.copy().copy_parts(hw, job).map(Some),
                _ => Ok(None),
            }
        })
    }
}

impl<K: Send + 'static> CopyingPieces<'_, K> {
    /// Waits for the end of the copy and gives the owner back. Where the engine did not do all, the CPU does.
    ///
    /// `Done`: CPU and GPU read in the destination what the source has. `Cancelled`: the destination has no meaning,
    /// and the engine does not touch it any more; the error is the CPU's: `ENOMEM`, or `EIO` where the device is lost. In any case the source is as it was.
    pub(crate) fn land(self) -> Landed<K> {
        let figures = self.gpu.mirrors();
        let (reached, is_done) = match self.flight.land() {
            Landed::Done(reached) => (reached, self.submitted),
            Landed::Cancelled(reached, _) => (reached, false),
            Landed::Failed(e) => {
                // Of a device that is lost nothing is kept.
                if e == ETIMEDOUT {
                    figures.add(Counter::Kept, self.bytes);
                }
                return Landed::Failed(e);
            }
        };
        let Reached { what, window } = reached;
        drop(window);
        let copied = if is_done {
            Ok(())
        } else {
            what.copy_by_cpu(self.hw)
        };
        // Nor does the CPU read what it had read before.
        self.hw.hdp_flush();
        match copied {
            Ok(()) => {
                if !is_done {
                    figures.add(Counter::CopiedByCpu, self.bytes);
                }
                Landed::Done(what.owner)
            }
            Err(e) => Landed::Cancelled(what.owner, e),
        }
    }
}
