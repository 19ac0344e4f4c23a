// SPDX-License-Identifier: GPL-2.0

//! Memory that belongs in VRAM, and is in system memory while VRAM is short.
//!
//! [`Movable`] says where the bytes are at present. That changes only with the reservation of the object held, and what
//! relies on it holds the reservation, too: to write page-table entries, insert frames for the CPU, or copy. A place
//! is freed when nothing names it any more: neither the object, nor a mapping whose entries may still point to it.

use kernel::{
    new_spinlock,
    page::PAGE_SHIFT,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    },
};

use crate::{
    gpu::{
        account::{
            self,
            Charge, //
        },
        Gpu,
        Hw,
        VramBlocks, //
    },
    kapi::{
        dmem,
        log::monotonic_ns,
        memcg::MemoryGroup,
        pages::Pages,
        task::{
            current_mm,
            MmKey, //
        }, //
    }, //
};

/// Where bytes are, with what was charged for it.
pub(crate) enum Place {
    /// In VRAM.
    Vram {
        /// The memory.
        blocks: Arc<VramBlocks>,
        /// Given back after it.
        _charge: Charge,
        /// Likewise.
        group: Arc<dmem::Charge>,
        /// After all: what was evicted may come back.
        _notice: FreeNotice,
    },
    /// In system memory.
    System {
        /// The memory.
        pages: Arc<Pages>,
        /// Given back after it.
        _charges: [Charge; 2],
    },
}

/// Announces, when dropped, that VRAM was freed.
pub(crate) struct FreeNotice(Arc<Gpu>);

impl FreeNotice {
    /// Of VRAM of `gpu`.
    pub(in crate::vm) fn new(gpu: &Arc<Gpu>) -> Self {
        Self(gpu.clone())
    }
}

impl Drop for FreeNotice {
    fn drop(&mut self) {
        self.0.room_is_back();
    }
}

impl Place {
    /// VRAM that is clear, as much as `group` is charged for.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`: no memory, or the budget is used up.
    /// - `EINTR`, `EIO`, `ETIMEDOUT`: as [`Gpu::clear_vram`].
    pub(super) fn vram(
        gpu: &Arc<Gpu>,
        hw: &Hw,
        group: Arc<dmem::Charge>,
        contiguous: bool,
    ) -> Result<Arc<Self>> {
        let size = group.size();
        let charge = gpu.vram_budget().charge(size)?;
        let blocks = match gpu.vram().alloc_blocks(size, contiguous) {
            Err(e) if e == ENOSPC => return Err(ENOMEM),
            blocks => blocks?,
        };
        let blocks = gpu.clear_vram(hw, blocks)?;
        let place = Self::Vram {
            blocks: Arc::new(blocks, GFP_KERNEL_ACCOUNT)?,
            _charge: charge,
            group,
            _notice: FreeNotice(gpu.clone()),
        };
        Ok(Arc::new(place, GFP_KERNEL_ACCOUNT)?)
    }

    /// System memory that is clear, whose pages are charged to `group`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, which the limit of `group` may be; `EINTR`: the caller is being killed.
    pub(super) fn system(size: u64, group: &MemoryGroup) -> Result<Arc<Self>> {
        let system = account::system();
        let charges = [
            system.all.charge_module(size)?,
            system.allocated.charge_module(size)?,
        ];
        let count = usize::try_from(size >> PAGE_SHIFT).map_err(|_| ENOMEM)?;
        let place = Self::System {
            pages: Arc::new(Pages::alloc_for(group, count)?, GFP_KERNEL_ACCOUNT)?,
            _charges: charges,
        };
        Ok(Arc::new(place, GFP_KERNEL_ACCOUNT)?)
    }
}

/// `EDQUOT`: the limit of a group; or what else stands against a charge.
fn refused(refused: dmem::Refused) -> Error {
    match refused {
        dmem::Refused::Limit(_) => EDQUOT,
        dmem::Refused::Error(error) => error,
    }
}

/// The place at one moment.
struct Now {
    place: Arc<Place>,
    /// How often it has changed.
    moves: u64,
}

/// Where the memory of an object is.
#[pin_data]
pub(crate) struct Movable {
    size: u64,
    contiguous: bool,
    /// The process that made it.
    owner: Option<MmKey>,
    /// What pays for it in system memory: the group of the process that made it.
    group: MemoryGroup,
    /// What pays for it in VRAM: the same for device memory. Nothing is charged by this.
    payer: dmem::Charge,
    /// See [`Self::last_use`].
    used: Atomic<i64>,
    /// Innermost; read anywhere, changed with the reservation held.
    #[pin]
    now: SpinLock<Now>,
}

impl Movable {
    /// VRAM that is clear, whole pages, as much as the caller's group is charged for; one block if `contiguous`.
    ///
    /// # Errors
    ///
    /// `EDQUOT`: the limit of the group was lowered meanwhile. Those of [`Bo::new`](super::Bo::new).
    pub(super) fn new(
        gpu: &Arc<Gpu>,
        hw: &Hw,
        charge: Arc<dmem::Charge>,
        contiguous: bool,
    ) -> Result<Arc<Self>> {
        let size = charge.size();
        let payer = gpu.dmem().charge(0).map_err(refused)?;
        let place = Place::vram(gpu, hw, charge, contiguous)?;
        Arc::pin_init(
            pin_init!(Self {
                size,
                contiguous,
                owner: current_mm().map(|(_, key)| key),
                group: MemoryGroup::of_current(),
                payer,
                used: Atomic::new(monotonic_ns()),
                now <- new_spinlock!(Now { place, moves: 0 }, "rkfd_place"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Whether it is one block in VRAM.
    pub(super) fn is_contiguous(&self) -> bool {
        self.contiguous
    }

    /// Whether the current process made it.
    pub(crate) fn is_of_current(&self) -> bool {
        self.owner.is_some_and(MmKey::is_current)
    }

    /// It was used now.
    pub(in crate::vm) fn note_use(&self) {
        self.used.store(monotonic_ns(), Relaxed);
    }

    /// When it was made or brought back, in nanoseconds of the monotonic clock: the order of the list that it is in.
    pub(in crate::vm) fn last_use(&self) -> i64 {
        self.used.load(Relaxed)
    }

    /// What pays for it in system memory.
    pub(super) fn group(&self) -> &MemoryGroup {
        &self.group
    }

    /// What its group is charged for it, while it is in VRAM.
    pub(crate) fn charge(&self) -> Option<Arc<dmem::Charge>> {
        match &*self.now.lock().place {
            Place::Vram { group, .. } => Some(group.clone()),
            Place::System { .. } => None,
        }
    }

    /// Charges it again, to the group of the process that made it.
    ///
    /// # Errors
    ///
    /// `EDQUOT`: the group is at its limit, or the caller cannot charge it: it is neither that process nor of that group,
    /// which the workers of the kernel are of the root group only. `ENOMEM`, `ENODEV`: see [`dmem::Refused`].
    pub(super) fn charge_again(&self, gpu: &Gpu) -> Result<Arc<dmem::Charge>> {
        let charge = gpu.dmem().charge(self.size).map_err(refused)?;
        // A process that has changed its group pays from there.
        if !self.is_of_current() && !charge.is_of_group_of(&self.payer) {
            return Err(EDQUOT);
        }
        Ok(Arc::new(charge, GFP_KERNEL)?)
    }

    /// Where it is. Does not change while the reservation of the object is held.
    pub(crate) fn place(&self) -> Arc<Place> {
        self.now.lock().place.clone()
    }

    /// Whether it is where it belongs.
    pub(crate) fn is_home(&self) -> bool {
        matches!(*self.now.lock().place, Place::Vram { .. })
    }

    /// How often it has moved.
    pub(super) fn moves(&self) -> u64 {
        self.now.lock().moves
    }

    /// It is at `place` from here on. Returns where it was, which is to be dropped without locks: this may free memory.
    pub(super) fn replace(&self, place: Arc<Place>) -> Arc<Place> {
        let mut now = self.now.lock();
        now.moves += 1;
        core::mem::replace(&mut now.place, place)
    }
}
