// SPDX-License-Identifier: GPL-2.0

//! How pages of a device's memory are given out. Suite: `rkfd_devmem`.

use core::{
    mem::ManuallyDrop,
    ops::Range, //
};

use kernel::{
    bindings,
    prelude::*,
    sync::Arc, //
};

use super::{
    hold::Hold,
    keeper::{
        KeeperHandle,
        ModuleReference, //
    },
    region::{
        CpuFault,
        Region, //
    },
    Room,
    FRAME,
    PAGES, //
};
use crate::bindings::rkfd_pagemap as RawPagemap;

/// The pages of a device's memory, which is [closed](Self::close) when it is dropped.
pub(crate) struct Pagemap {
    region: Arc<Region>,
}

impl Pagemap {
    /// Maps a region of `frames` frames, whose pages `faults` brings back when the CPU touches them.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no frames, or more than there are addresses.
    /// - `EOPNOTSUPP`: the kernel has no device-private memory.
    /// - `ERANGE`: the machine has no such range of addresses free.
    /// - `ENOMEM`, and what the memory manager says.
    pub(crate) fn new(
        keeper: &KeeperHandle,
        frames: usize,
        faults: Arc<dyn CpuFault>,
    ) -> Result<Self> {
        let region = Region::new(keeper, frames, faults)?;
        Ok(Self { region })
    }

    /// The physical addresses of the pages.
    pub(crate) fn range(&self) -> Range<u64> {
        let frames = self.region.table.lock().frames.len();
        // CAST: `usize` is at most 64 bits wide.
        self.region.start..self.region.start + (frames * FRAME) as u64
    }

    /// Whether the kernel has such memory at all.
    pub(crate) fn exists() -> bool {
        // SAFETY: No preconditions.
        unsafe { crate::bindings::rkfd_pagemap_exists() }
    }

    /// Has the region stay; `None` once it has ended.
    pub(crate) fn hold(&self) -> Option<Hold> {
        Hold::new(&self.region)
    }

    /// How many pages are live, and vacancies.
    #[cfg(rkfd_kunit)]
    pub(crate) fn live(&self) -> usize {
        self.region.table.lock().live
    }

    /// Brings a room to a frame that has none, to fill it with pages.
    ///
    /// # Errors
    ///
    /// The room is dropped.
    ///
    /// - `EINVAL`: there is no such frame.
    /// - `EBUSY`: it has a room.
    /// - `ENODEV`: the pagemap is closed.
    pub(crate) fn vacancy(&self, frame: usize, room: KBox<dyn Room>) -> Result<Vacancy> {
        let mut table = self.region.table.lock();
        let table = &mut *table;
        if table.closed {
            return Err(ENODEV);
        }
        let slot = table.frames.get_mut(frame).ok_or(EINVAL)?;
        if slot.room.is_some() {
            return Err(EBUSY);
        }
        table.serial += 1;
        slot.serial = table.serial;
        slot.room = Some(room);
        slot.live += 1;
        table.live += 1;
        Ok(Vacancy {
            region: self.region.clone(),
            frame,
            serial: table.serial,
        })
    }

    /// Fills a frame further that has the room with number `serial`, and a live page; `None` if it has another one, or
    /// is empty by now, or the pagemap is closed.
    pub(crate) fn reopen(&self, frame: usize, serial: u64) -> Option<Vacancy> {
        let mut table = self.region.table.lock();
        let table = &mut *table;
        let slot = table.frames.get_mut(frame)?;
        if table.closed || slot.serial != serial || slot.live == 0 {
            return None;
        }
        slot.live += 1;
        table.live += 1;
        Some(Vacancy {
            region: self.region.clone(),
            frame,
            serial,
        })
    }

    /// Gives no more pages. The region is unmapped when no page is live any more; until then the module is not unloaded.
    /// Again is nothing.
    pub(crate) fn close(&self) {
        let mut table = self.region.table.lock();
        if table.closed {
            return;
        }
        table.closed = true;
        if table.live != 0 {
            table.module = ModuleReference::take();
        }
        self.region.settle(&table);
    }
}

impl Drop for Pagemap {
    fn drop(&mut self) {
        self.close();
    }
}

/// A frame that is being filled; it has its room as long as this lives. Not dropped under a spinlock.
pub(crate) struct Vacancy {
    region: Arc<Region>,
    frame: usize,
    serial: u64,
}

impl Vacancy {
    /// The frame.
    pub(crate) fn frame(&self) -> usize {
        self.frame
    }

    /// The number of the room, by which the frame can be [filled further](Pagemap::reopen).
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// What the pages of its pagemap have as their owner.
    pub(in crate::kapi) fn owner(&self) -> Result<*mut RawPagemap> {
        let table = self.region.table.lock();
        Ok(table.mapped.as_ref().ok_or(ENODEV)?.raw.as_ptr())
    }

    /// Page `place` of the frame. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL`: there is no such page. `EBUSY`: it was given out since the room came.
    pub(crate) fn folio(&self, place: usize) -> Result<DeviceFolio> {
        let mut table = self.region.table.lock();
        let raw = table.mapped.as_ref().ok_or(ENODEV)?.raw;
        let slot = table.frames.get_mut(self.frame).ok_or(EINVAL)?;
        slot.give(place)?;
        slot.live += 1;
        table.live += 1;
        drop(table);
        let number = self.frame * PAGES + place;
        // SAFETY: The pagemap stays, for it has a live page, and it has this page, which is given out once.
        let page = unsafe { crate::bindings::rkfd_device_page(raw.as_ptr(), number) };
        // INVARIANT: It is locked and has a reference.
        Ok(DeviceFolio { page, number })
    }
}

impl Drop for Vacancy {
    fn drop(&mut self) {
        self.region.give_back(self.frame, 1);
    }
}

/// A page of device-private memory that is new: locked, without another reference. Dropping gives it back.
///
/// # Invariants
///
/// `page` is a page of a pagemap, which is locked and of which this value owns the lock and a reference. `number` is its
/// number there.
pub(crate) struct DeviceFolio {
    page: *mut bindings::page,
    #[cfg_attr(not(rkfd_kunit), expect(dead_code, reason = "seen by tests"))]
    number: usize,
}

impl DeviceFolio {
    /// Its number: where it lies in the memory of the device, in pages.
    #[cfg(rkfd_kunit)]
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// The page, with lock and reference.
    pub(in crate::kapi) fn into_page(self) -> *mut bindings::page {
        ManuallyDrop::new(self).page
    }
}

impl Drop for DeviceFolio {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. As it counts as a live page, its pagemap is there.
        unsafe { crate::bindings::rkfd_page_unlock_put(self.page) };
    }
}
