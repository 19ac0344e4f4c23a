// SPDX-License-Identifier: GPL-2.0

//! Room in VRAM for pages of programs: 2 MiB at a time, of which the pages are taken one by one.
//!
//! It is cleared before its first page is taken, and counts as a buffer does: in the budget of the GPU and against the
//! control group of the task that made it, or that has credit for it. It does not move; its pages do, and it ends with the last of them.

use kernel::{
    prelude::*,
    sync::Arc, //
};

pub(crate) use super::credit::Credit;
use super::{
    bo::FreeNotice,
    credit::Lent,
    evict::Residency,
    mirrored::GRANULE,
    rooms::{
        Entry,
        Whose, //
    }, //
};
use crate::{
    gpu::{
        account::Charge,
        mirrors::Counter,
        Gpu,
        Hw,
        VramBlocks, //
    },
    kapi::{
        devmem,
        dmem,
        drm_file::DrmDevice,
        task::{
            current_mm,
            MmKey, //
        }, //
    },
};

const _: () = assert!(
    devmem::FRAME as u64 == GRANULE,
    "a room is a frame of pages"
);

/// Has a room known to eviction, as long as this lives.
struct Listed {
    residency: Arc<Residency>,
    entry: Arc<Entry>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.residency.rooms().remove(&self.entry);
    }
}

/// 2 MiB of VRAM, from a multiple of it on.
pub(crate) struct Room {
    /// First: what is given back is not looked for any more.
    _listed: Listed,
    _blocks: VramBlocks,
    /// Given back after it.
    _charge: Charge,
    /// Likewise.
    _group: Lent,
    /// After all: what was evicted may come back.
    _notice: FreeNotice,
}

impl devmem::Room for Room {}

impl Room {
    /// Makes room that is clear, for the caller, where buffers and rooms of others make room for it if they have to. The caller
    /// has no reservation of an object and not the mmap lock. Returns also the frame of pages that it is for.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`: no memory, or the budget or a limit of the caller's group is used up, and nothing can be evicted.
    /// - `EINTR`: the caller is being killed.
    /// - `ENODEV`, `EIO`, `ETIMEDOUT`: the GPU is gone, lost, or its copy engine does not stop.
    pub(crate) fn new(gpu: &Arc<Gpu>, dev: &DrmDevice) -> Result<(Self, usize)> {
        let residency = Residency::of(gpu, dev)?;
        let hw = gpu.enter()?;
        let owner = current_mm().map(|(_, key)| key);
        gpu.with_room(dev, &hw, GRANULE, Whose::Others, |group| {
            Self::make(gpu, &hw, &residency, group.into(), owner)
        })
    }

    /// Makes room that is clear of VRAM that is free, charged to `credit`, for the process `owner`. Nothing makes room for it.
    /// Returns also the frame of pages that it is for.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`: no memory, nothing is free, the budget is used up, or there is no credit.
    /// - `ENODEV`, `EIO`, `ETIMEDOUT`: as [`Self::new`].
    pub(crate) fn of_free(
        gpu: &Arc<Gpu>,
        credit: &Arc<Credit>,
        owner: MmKey,
    ) -> Result<(Self, usize)> {
        // It is known where there is credit.
        let residency = Residency::known(gpu).ok_or(ENOMEM)?;
        let hw = gpu.enter()?;
        let group = credit.lend(gpu).ok_or(ENOMEM)?;
        Self::make(gpu, &hw, &residency, group, Some(owner))
    }

    /// Makes it of what is free.
    fn make(
        gpu: &Arc<Gpu>,
        hw: &Hw,
        residency: &Arc<Residency>,
        group: Lent,
        owner: Option<MmKey>,
    ) -> Result<(Self, usize)> {
        let charge = gpu.vram_budget().charge(GRANULE)?;
        let blocks = match gpu.vram().alloc_blocks(GRANULE, true) {
            Err(e) if e == ENOSPC => return Err(ENOMEM),
            blocks => blocks?,
        };
        let frame = frame_of(&blocks)?;
        let blocks = match gpu.clear_vram(hw, blocks) {
            Err(e) if e == ETIMEDOUT => {
                // The engine keeps the memory, so that it is not to be had by others.
                gpu.keep_until_unbind((charge, group));
                gpu.mirrors().add(Counter::Kept, GRANULE);
                return Err(e);
            }
            blocks => blocks?,
        };
        let entry = Entry::new(frame, group.charge().clone(), owner)?;
        residency.rooms().add(entry.clone())?;
        let room = Self {
            _listed: Listed {
                residency: residency.clone(),
                entry,
            },
            _blocks: blocks,
            _charge: charge,
            _group: group,
            _notice: FreeNotice::new(gpu),
        };
        Ok((room, frame))
    }
}

/// Charges the caller's group for rooms that workers may make for it, `rooms` in all, as far as its limit goes.
///
/// # Errors
///
/// `ENOMEM`; `ENODEV`: the GPU is gone. What there is of credit stays.
pub(crate) fn top_up(credit: &Arc<Credit>, gpu: &Gpu, dev: &DrmDevice, rooms: u64) -> Result {
    let residency = Residency::of(gpu, dev)?;
    credit.top_up(gpu, residency.credits(), rooms, dmem::is_of_root())
}

/// As [`top_up`], for the rooms that rules want. The program may access memory besides, for which it has rooms as well, if its
/// group is the root.
///
/// # Errors
///
/// As there.
pub(crate) fn top_up_for_rules(
    credit: &Arc<Credit>,
    gpu: &Gpu,
    dev: &DrmDevice,
    rooms: u64,
) -> Result {
    let is_of_root = dmem::is_of_root();
    let rooms = if is_of_root { u64::MAX } else { rooms };
    let residency = Residency::of(gpu, dev)?;
    let paid = credit.top_up(gpu, residency.credits(), rooms, is_of_root);
    // What is not wanted any more.
    credit.limit_to(rooms);
    paid
}

/// As [`top_up`], as if the caller's group were not the root.
#[cfg(rkfd_kunit)]
pub(crate) fn top_up_below_root(
    credit: &Arc<Credit>,
    gpu: &Gpu,
    dev: &DrmDevice,
    rooms: u64,
) -> Result {
    let residency = Residency::of(gpu, dev)?;
    credit.top_up(gpu, residency.credits(), rooms, false)
}

/// Gives back what is not used of a credit, for good.
pub(crate) fn end_credit(credit: &Arc<Credit>, gpu: &Gpu) {
    credit.limit_to(0);
    if let Some(residency) = Residency::known(gpu) {
        residency.credits().remove(credit);
    }
}

/// The room of `frame` of a GPU is filled further.
pub(crate) fn note_use(gpu: &Gpu, frame: usize) {
    if let Some(residency) = Residency::known(gpu) {
        residency.rooms().note_use(frame);
    }
}

/// The frame of pages that memory is for.
///
/// # Errors
///
/// `EIO`: it is none, which the allocator excludes.
fn frame_of(blocks: &VramBlocks) -> Result<usize> {
    let span = blocks.span(0).ok_or(EIO)?;
    if span.start % GRANULE != 0 || span.size != GRANULE {
        return Err(EIO);
    }
    Ok(usize::try_from(span.start / GRANULE)?)
}
