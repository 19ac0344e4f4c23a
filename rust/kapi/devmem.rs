// SPDX-License-Identifier: GPL-2.0

//! Device-private memory: a `struct page` for each page of a device's memory, which the CPU does not map.
//!
//! A [`Pagemap`] takes physical addresses that the machine has nothing at, and describes the memory of one device by the
//! pages there: byte `n` of the memory belongs to page `n / PAGE_SIZE`. The pages go by *frames* of [`FRAME`] bytes. A
//! frame in use has a [`Room`], which stands for the device's memory and all that is charged for it, and which nothing
//! here looks into. A page is given out once, by [`Vacancy::folio`], and again only when the whole frame was empty, its
//! room was dropped, and a new one was brought. So the memory of a page that is new has had no other user since its room was made.
//!
//! A frame is kept by its *live pages*: the folios that the memory manager has of it, whoever has mapped them, and each
//! [`Vacancy`], by which it is being filled. When the last one goes, which may be under a spinlock of a page table, a
//! worker is told, and that drops the room.
//!
//! # End
//!
//! [`Pagemap::close`] ends the supply of pages. The region is unmapped when no page is live any more, all rooms were
//! dropped and there is no [`Hold`], by a worker of the [`Keeper`], which the module has one of and which waits for that when it is dropped. The
//! memory manager calls this module for each page that it gives back; so where pages are left when a pagemap is closed,
//! the module cannot be unloaded before they are gone.
//!
//! # Locks
//!
//! The table of frames is behind a spinlock, with interrupts off, that is taken under those of page tables. The work is
//! queued under it, nothing else happens there: no room is dropped and nothing is allocated.
//!
//! C header: [`include/linux/memremap.h`](srctree/include/linux/memremap.h)

use kernel::{
    page::PAGE_SIZE,
    sizes::SZ_2M, //
};

mod hold;
mod keeper;
mod pagemap;
mod region;

#[cfg(rkfd_kunit)]
pub(crate) use self::pagemap::DeviceFolio;
pub(super) use self::region::Region;
pub(crate) use self::{
    hold::Hold,
    keeper::{
        Keeper,
        KeeperHandle, //
    },
    pagemap::{
        Pagemap,
        Vacancy, //
    },
    region::{
        CpuFault,
        Fault, //
    }, //
};

/// Bytes of a frame.
pub(crate) const FRAME: usize = SZ_2M;
/// Pages of a frame.
pub(crate) const PAGES: usize = FRAME / PAGE_SIZE;

/// What stands for the memory of a frame. Dropped when the frame has no live page any more, by a worker that may sleep.
pub(crate) trait Room: Send {}

/// How an access of the CPU ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is repeated, and finds the page, or comes again.
    Repeat,
    /// There is no memory for the page.
    OutOfMemory,
    /// The content is lost: SIGBUS.
    Lost,
}

/// References that keep the module from being unloaded.
#[cfg(rkfd_kunit)]
pub(crate) fn module_references() -> i32 {
    // SAFETY: No preconditions.
    unsafe { crate::bindings::rkfd_kunit_module_references() }
}

/// Whether the machine has nothing at these addresses.
#[cfg(rkfd_kunit)]
pub(crate) fn is_free(range: &core::ops::Range<u64>) -> bool {
    // SAFETY: Looks at a list of the kernel.
    unsafe { crate::bindings::rkfd_kunit_region_is_free(range.start, range.end - range.start) }
}

/// Whether there is a page of a device at this address.
#[cfg(rkfd_kunit)]
pub(crate) fn has_device_page(address: u64) -> bool {
    // SAFETY: Looks at a list of the kernel; any address will do.
    unsafe { crate::bindings::rkfd_kunit_has_device_page(address) }
}
