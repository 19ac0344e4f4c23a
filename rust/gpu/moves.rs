// SPDX-License-Identifier: GPL-2.0

//! Copies of whole buffers between VRAM and system memory.
//!
//! The copy engine does it in parts of up to [`JOB_BYTES`], each of which the GART shows meanwhile; where it takes no jobs,
//! is stopped half way, or the GART has no room, and for small buffers, the CPU does. A part is repeated as a whole:
//! the source does not change while it is copied, so that a part that was half done is no harm.

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
    copy::JOB_BYTES,
    Gpu,
    VramBlocks, //
};
use crate::kapi::{
    dma_map::DmaMap,
    pages::{
        Pages,
        Transfer, //
    }, //
};

pub(crate) use super::direction::Direction;

/// Bytes that the CPU copies at once.
const CPU_STEP: usize = 64 << 10;

/// What is copied: VRAM and pages of the same size, and the source does not change meanwhile.
pub(crate) struct Move {
    /// The VRAM.
    pub(crate) vram: Arc<VramBlocks>,
    /// The pages.
    pub(crate) pages: Arc<Pages>,
    /// Which of them is the source.
    pub(crate) direction: Direction,
}

impl Gpu {
    /// Copies. When this returns, the CPU and the GPU read in the destination what the source has.
    ///
    /// Sleeps; bounded by the size and by the time that a job may take.
    ///
    /// # Errors
    ///
    /// The destination has no meaning, and the source is as it was.
    ///
    /// - `EINVAL`: the sizes differ.
    /// - `ENOMEM`.
    /// - `EIO`: the device is lost.
    /// - `ETIMEDOUT`: the copy engine does not stop; it keeps source and destination.
    pub(crate) fn copy_memory(&self, hw: &Hw, what: &Move) -> Result {
        // CAST: `usize` is at most 64 bits wide.
        let size = what.pages.size() as u64;
        if what.vram.spans().map(|span| span.size).sum::<u64>() != size {
            return Err(EINVAL);
        }
        // What the CPU wrote through the BAR is in memory from here on.
        hw.hdp_flush();
        let dma = if size >= ENGINE_MIN {
            let dma = hw.dma().pages(hw.dev(), &what.pages, true);
            dma.ok().and_then(|dma| Arc::new(dma, GFP_KERNEL).ok())
        } else {
            None
        };
        let mut at = 0;
        while at < size {
            let len = JOB_BYTES.min(size - at);
            let done = match &dma {
                Some(dma) => self.copy_by_engine(hw, what, dma, at, len)?,
                None => false,
            };
            if !done {
                self.copy_by_cpu(hw, what, at, len)?;
            }
            at += len;
        }
        // Nor does the CPU read what it had read before.
        hw.hdp_flush();
        Ok(())
    }

    /// Copies a part; false if the engine did not, and does not touch the memory any more.
    fn copy_by_engine(
        &self,
        hw: &Hw,
        what: &Move,
        dma: &Arc<DmaMap>,
        at: u64,
        len: u64,
    ) -> Result<bool> {
        let Ok(window) = self.gart().show(hw, dma, at, len) else {
            return Ok(false);
        };
        let shown = window.gpu_addr();
        let kept = (what.vram.clone(), what.pages.clone(), window);
        let mut flight = InFlight::new(self, hw, kept);
        let mut done = 0;
        let submitted = flight.each(|(vram, ..)| {
            if done == len {
                return Ok(None);
            }
            let (offset, follow) = vram.locate(at + done).ok_or(EINVAL)?;
            let part = follow.min(len - done);
            let (local, system) = (vram.mc(offset), shown + done);
            done += part;
            let (from, to) = match what.direction {
                Direction::Out => (local, system),
                Direction::In => (system, local),
            };
            self.copy().copy(hw, from, to, part).map(Some)
        });
        match flight.land() {
            Landed::Done(_) => Ok(submitted.is_ok()),
            Landed::Cancelled(..) => Ok(false),
            Landed::Failed(e) => Err(e),
        }
    }

    fn copy_by_cpu(&self, hw: &Hw, what: &Move, at: u64, len: u64) -> Result {
        let mut buffer = CpuBuffer::new()?;
        let mut done = 0;
        while done < len {
            let (offset, follow) = what.vram.locate(at + done).ok_or(EINVAL)?;
            let part = follow.min(len - done);
            let place = usize::try_from(at + done)?;
            buffer.copy(hw, what.direction, offset, &what.pages, place, part)?;
            done += part;
        }
        Ok(())
    }
}

/// What the CPU copies by, between VRAM and pages.
pub(super) struct CpuBuffer(KVVec<u8>);

impl CpuBuffer {
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Self> {
        Ok(Self(KVVec::from_elem(0, CPU_STEP, GFP_KERNEL)?))
    }

    /// Copies `len` bytes between the VRAM from byte `offset` on and the pages from byte `place` on.
    ///
    /// # Errors
    ///
    /// `EINVAL`: not within both. `EIO`: the device is lost.
    pub(super) fn copy(
        &mut self,
        hw: &Hw,
        direction: Direction,
        offset: u64,
        pages: &Pages,
        place: usize,
        len: u64,
    ) -> Result {
        let len = usize::try_from(len)?;
        let mut done = 0;
        while done < len {
            let part = CPU_STEP.min(len - done);
            let bytes = self.0.get_mut(..part).ok_or(EINVAL)?;
            // CAST: `usize` is at most 64 bits wide.
            let offset = offset + done as u64;
            match direction {
                Direction::Out => {
                    hw.vram_read(offset, bytes)?;
                    pages.copy(place + done, Transfer::Write(bytes))?;
                }
                Direction::In => {
                    pages.copy(place + done, Transfer::Read(bytes))?;
                    hw.vram_write(offset, bytes)?;
                }
            }
            done += part;
        }
        Ok(())
    }
}
