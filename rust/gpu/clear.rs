// SPDX-License-Identifier: GPL-2.0

//! Clearing VRAM before its next owner sees it.
//!
//! The copy engine fills large blocks, the CPU small ones, for which a job and its interrupt cost more than they
//! save. Where the engine takes no jobs, or is stopped half way, the CPU fills everything: the memory may go to
//! another process, so that "not cleared" is no result.

use kernel::prelude::*;

use super::{
    access::Hw,
    copy::JOB_BYTES,
    Gpu,
    VramBlocks, //
};
use crate::kapi::{
    fence::Fence,
    task::fatal_signal_pending, //
};

/// From how many bytes on the engine fills a block.
pub(crate) const ENGINE_MIN: u64 = 256 << 10;
/// Bytes that the CPU fills at once; in between a lost device, or that the caller is being killed, is noticed.
const CPU_STEP: u64 = 16 << 20;
/// Jobs of one caller that the engine has at a time: how long a caller that is being killed has to wait.
const WINDOW: usize = 8;

/// Storage that the copy engine may write, until [`InFlight::land`] gives it back. Dropped earlier, it waits for the
/// engine.
#[must_use = "dropping waits for the engine"]
pub(crate) struct InFlight<'a, T: Send + 'static> {
    gpu: &'a Gpu,
    hw: &'a Hw,
    /// `None` once it was given back.
    storage: Option<T>,
    jobs: [Option<Fence>; WINDOW],
    next: usize,
    /// Of jobs that are no longer in `jobs`.
    result: Result,
}

/// What became of [`InFlight`] storage.
pub(crate) enum Landed<T> {
    /// All jobs are done.
    Done(T),
    /// Some were not done, for this reason; the engine does not touch the storage any more.
    Cancelled(T, Error),
    /// The engine may still write the storage, which is kept until the device is unbound, or the device is lost.
    Failed(Error),
}

impl<'a, T: Send + 'static> InFlight<'a, T> {
    /// Storage that no job knows yet.
    pub(crate) fn new(gpu: &'a Gpu, hw: &'a Hw, storage: T) -> Self {
        Self {
            gpu,
            hw,
            storage: Some(storage),
            jobs: [const { None }; WINDOW],
            next: 0,
            result: Ok(()),
        }
    }

    /// Calls `submit` for `storage` until it returns `None`, and waits for the oldest job where there are too many.
    ///
    /// # Errors
    ///
    /// Those of `submit`, and of jobs that were waited for.
    pub(crate) fn each(&mut self, mut submit: impl FnMut(&T) -> Result<Option<Fence>>) -> Result {
        loop {
            let Some(fence) = self.storage.as_ref().map_or(Ok(None), &mut submit)? else {
                return Ok(());
            };
            let slot = self.jobs.get_mut(self.next).ok_or(EINVAL)?;
            let oldest = slot.replace(fence);
            self.next = (self.next + 1) % WINDOW;
            if let Some(oldest) = oldest {
                self.wait(&oldest)?;
            }
        }
    }

    fn wait(&mut self, fence: &Fence) -> Result {
        let result = self.gpu.copy().wait(self.hw, fence);
        // Whether the engine may still write is what counts.
        if self.result.is_ok() || self.result == Err(ECANCELED) && result.is_err() {
            self.result = result;
        }
        result
    }

    /// Waits for all jobs and gives the storage back.
    pub(crate) fn land(mut self) -> Landed<T> {
        self.settle().unwrap_or(Landed::Failed(EIO))
    }

    fn settle(&mut self) -> Option<Landed<T>> {
        for i in 0..WINDOW {
            if let Some(fence) = self.jobs.get_mut(i).and_then(Option::take) {
                // Noted there.
                let _ = self.wait(&fence);
            }
        }
        let storage = self.storage.take()?;
        Some(match self.result {
            Ok(()) => Landed::Done(storage),
            Err(e) if e == ECANCELED => Landed::Cancelled(storage, e),
            Err(e) => {
                // At once, if the device is lost.
                self.gpu.keep_until_unbind(storage);
                Landed::Failed(e)
            }
        })
    }
}

impl<T: Send + 'static> Drop for InFlight<'_, T> {
    fn drop(&mut self) {
        drop(self.settle());
    }
}

impl Gpu {
    /// Fills `blocks` with zeroes. When this returns they read as zero for the CPU and for the GPU.
    ///
    /// # Errors
    ///
    /// - `EINTR`: the caller is being killed.
    /// - `EIO`: the device is lost.
    /// - `ETIMEDOUT`: the copy engine does not stop; it keeps the memory.
    pub(crate) fn clear_vram(&self, hw: &Hw, blocks: VramBlocks) -> Result<VramBlocks> {
        let mut flight = InFlight::new(self, hw, blocks);
        let (mut span, mut offset) = (0, 0);
        let submitted = flight.each(|blocks| {
            // A job for the next part of a large block.
            let (at, size) = loop {
                match blocks.span(span) {
                    Some(block) if block.size >= ENGINE_MIN && offset < block.size => {
                        break (block.start + offset, block.size - offset);
                    }
                    Some(_) => (span, offset) = (span + 1, 0),
                    None => return Ok(None),
                }
            };
            if fatal_signal_pending() {
                return Err(EINTR);
            }
            let len = JOB_BYTES.min(size);
            offset += len;
            self.copy().clear(hw, blocks.mc(at), len).map(Some)
        });
        let killed = submitted == Err(EINTR);
        let (blocks, by_cpu) = match flight.land() {
            Landed::Done(_) | Landed::Cancelled(..) if killed => return Err(EINTR),
            Landed::Done(blocks) if submitted.is_ok() => (blocks, ENGINE_MIN),
            Landed::Done(blocks) | Landed::Cancelled(blocks, _) => (blocks, u64::MAX),
            Landed::Failed(e) => return Err(e),
        };
        for block in blocks.spans().filter(|block| block.size < by_cpu) {
            let mut offset = 0;
            while offset < block.size {
                let len = CPU_STEP.min(block.size - offset);
                if fatal_signal_pending() {
                    return Err(EINTR);
                }
                hw.vram_fill(block.start + offset, len, 0)?;
                offset += len;
            }
        }
        hw.hdp_flush();
        Ok(blocks)
    }
}
