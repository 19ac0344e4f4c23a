// SPDX-License-Identifier: GPL-2.0

//! Memory that goes to another place.

use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        Instant,
        Monotonic, //
    }, //
};

use super::{
    memory::Memory,
    place::{
        Movable,
        Place, //
    }, //
};
use crate::{
    gpu::{
        moves::{
            Direction,
            Move, //
        },
        Gpu,
        Hw, //
    },
    kapi::{
        resv::Resv,
        trace::errno, //
    },
    trace, //
};

/// Nothing reaches the memory of an object: its page-table entries are gone and flushed, and its frames zapped. Made by
/// [`evict`](crate::vm::evict) alone.
pub(in crate::vm) struct Vacant(());

impl Vacant {
    /// To be called once all of that is done.
    pub(in crate::vm) fn confirmed() -> Self {
        Self(())
    }
}

impl Movable {
    /// Takes system memory for it, which the GPU reaches: queues are to run from there. The owner's control group pays for
    /// it, not that of the process that wants the room.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`, `EINTR`: no system memory, or no more for the group; or the caller is being killed.
    /// - What the DMA layer reports for memory that the GPU does not reach.
    pub(in crate::vm) fn find_system(&self, hw: &Hw) -> Result<Arc<Place>> {
        let place = Place::system(self.size(), self.group())?;
        if let Place::System { pages, .. } = &*place {
            // Mapped anew by each address space, with rights of its own.
            drop(hw.dma().pages(hw.dev(), pages, true)?);
        }
        Ok(place)
    }

    /// Copies it to `new`, which [`Self::find_system`] gave. No entry of a page table and no frame of the CPU shows it:
    /// `_vacant` says so.
    ///
    /// # Errors
    ///
    /// It is where it was.
    ///
    /// - `EALREADY`: it is there.
    /// - Those of [`Gpu::copy_memory`].
    pub(in crate::vm) fn move_out(
        &self,
        gpu: &Arc<Gpu>,
        hw: &Hw,
        resv: Resv<'_, Memory>,
        _vacant: &Vacant,
        new: Arc<Place>,
    ) -> Result {
        let old = self.place();
        let Place::Vram { blocks, .. } = &*old else {
            return Err(EALREADY);
        };
        if let Place::System { pages, .. } = &*new {
            let all = Move {
                vram: blocks.clone(),
                pages: pages.clone(),
                direction: Direction::Out,
            };
            self.copy(gpu, hw, &all)?;
        }
        self.set(resv, new)
    }

    /// Takes room in VRAM for it. Cleared: should the copy end half way, no process finds there what others left.
    ///
    /// # Errors
    ///
    /// Those of [`Movable::charge_again`] and [`Place::vram`].
    pub(in crate::vm) fn find_room(&self, gpu: &Arc<Gpu>, hw: &Hw) -> Result<Arc<Place>> {
        Place::vram(gpu, hw, self.charge_again(gpu)?, self.is_contiguous())
    }

    /// Copies it to `new`, which [`Self::find_room`] gave. As [`Self::move_out`] else.
    ///
    /// # Errors
    ///
    /// Those of [`Self::move_out`].
    pub(in crate::vm) fn move_in(
        &self,
        gpu: &Arc<Gpu>,
        hw: &Hw,
        resv: Resv<'_, Memory>,
        _vacant: &Vacant,
        new: Arc<Place>,
    ) -> Result {
        let old = self.place();
        let Place::System { pages, .. } = &*old else {
            return Err(EALREADY);
        };
        if let Place::Vram { blocks, .. } = &*new {
            let all = Move {
                vram: blocks.clone(),
                pages: pages.clone(),
                direction: Direction::In,
            };
            self.copy(gpu, hw, &all)?;
        }
        self.set(resv, new)
    }

    /// Copies it, and records that.
    fn copy(&self, gpu: &Gpu, hw: &Hw, all: &Move) -> Result {
        let began = Instant::<Monotonic>::now();
        let result = gpu.copy_memory(hw, all);
        if trace::bo_move_enabled() {
            let us = u64::try_from(began.elapsed().as_micros_ceil()).unwrap_or(0);
            let out = matches!(all.direction, Direction::Out);
            trace::bo_move(gpu.id(), out, self.size(), us, errno(&result));
        }
        result
    }

    fn set(&self, resv: Resv<'_, Memory>, place: Arc<Place>) -> Result {
        // The reservation of another object protects nothing here.
        let own = resv.object().movable().ok_or(EINVAL)?;
        if !core::ptr::eq(&**own, self) {
            return Err(EINVAL);
        }
        drop(self.replace(place));
        Ok(())
    }
}
