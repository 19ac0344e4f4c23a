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
//! [`Pagemap::close`] ends the supply of pages. The region is unmapped when no page is live any more and all rooms were
//! dropped, by a worker of the [`Keeper`], which the module has one of and which waits for that when it is dropped. The
//! memory manager calls this module for each page that it gives back; so where pages are left when a pagemap is closed,
//! the module cannot be unloaded before they are gone.
//!
//! # Locks
//!
//! The table of frames is behind a spinlock, with interrupts off, that is taken under those of page tables. The work is
//! queued under it, nothing else happens there: no room is dropped and nothing is allocated.
//!
//! C header: [`include/linux/memremap.h`](srctree/include/linux/memremap.h)

use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::Range,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    error::from_err_ptr,
    impl_has_work,
    new_spinlock_irq,
    new_work,
    page::PAGE_SIZE,
    prelude::*,
    sizes::SZ_2M,
    sync::{
        Arc,
        SpinLockIrq, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

use super::workqueue::OwnedQueue;
use crate::bindings::rkfd_pagemap as RawPagemap;

mod keeper;

pub(crate) use self::keeper::Keeper;
use self::keeper::{
    Member,
    ModuleReference, //
};

/// Bytes of a frame.
pub(crate) const FRAME: usize = SZ_2M;
/// Pages of a frame.
pub(crate) const PAGES: usize = FRAME / PAGE_SIZE;
/// Words of a bit per page of a frame.
const WORDS: usize = PAGES.div_ceil(64);

/// What stands for the memory of a frame. Dropped when the frame has no live page any more, by a worker that may sleep.
pub(crate) trait Room: Send {}

/// An access of the CPU to a page of a device, which the memory manager waits with for its end.
///
/// # Invariants
///
/// The fault is being handled as long as this lives, and its page is of the pagemap at `owner`.
pub(crate) struct Fault<'a> {
    raw: NonNull<bindings::vm_fault>,
    owner: NonNull<RawPagemap>,
    _handled: PhantomData<&'a ()>,
}

impl Fault<'_> {
    /// The fault.
    pub(super) fn as_raw(&self) -> *mut bindings::vm_fault {
        self.raw.as_ptr()
    }

    /// The owner of the page.
    pub(super) fn owner(&self) -> *mut RawPagemap {
        self.owner.as_ptr()
    }

    /// The first address of the page.
    pub(super) fn address(&self) -> usize {
        // SAFETY: By the type invariant.
        unsafe { crate::bindings::rkfd_fault_address(self.raw.as_ptr()) }
    }
}

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

/// What brings pages back that the CPU touches.
pub(crate) trait CpuFault: Send + Sync {
    /// Moves the page to system memory. Sleeps, with the mmap lock held for reading and the page locked.
    fn bring_back(&self, fault: &Fault<'_>) -> Answer;
}

/// Pages that are mapped for a region.
///
/// # Invariants
///
/// `raw` is a pagemap that this value owns. What it is attached to is the region at `region`, if there is one; without
/// one no page was ever in use.
struct Mapped {
    raw: NonNull<RawPagemap>,
    region: Option<Arc<Region>>,
    // Last: who waits for it goes on when the rest is gone.
    _member: Member,
}

// SAFETY: A pagemap is bound to no thread.
unsafe impl Send for Mapped {}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. `region` is dropped after this, so it is there as long as pages are given back.
        unsafe { crate::bindings::rkfd_pagemap_delete(self.raw.as_ptr()) };
    }
}

/// One frame.
///
/// Without a room it is as [`Frame::EMPTY`] but for the serial number.
struct Frame {
    room: Option<KBox<dyn Room>>,
    /// Of the room, or of the last one.
    serial: u64,
    /// Live pages, and vacancies.
    live: usize,
    /// The pages that were given out since the room came.
    given: [u64; WORDS],
    /// Nothing is live any more, and the worker has not seen it yet.
    is_due: bool,
    /// The next one that is due.
    next_due: Option<usize>,
}

impl Frame {
    const EMPTY: Self = Self {
        room: None,
        serial: 0,
        live: 0,
        given: [0; WORDS],
        is_due: false,
        next_due: None,
    };

    /// Notes that page `place` is given out.
    ///
    /// # Errors
    ///
    /// `EINVAL`: there is no such page. `EBUSY`: it was given out.
    fn give(&mut self, place: usize) -> Result {
        let bit = 1 << (place % 64);
        let word = self.given.get_mut(place / 64).filter(|_| place < PAGES);
        let word = word.ok_or(EINVAL)?;
        if *word & bit != 0 {
            return Err(EBUSY);
        }
        *word |= bit;
        Ok(())
    }
}

/// All frames of a region.
struct Table {
    /// `None` before the region is complete and when it has ended.
    mapped: Option<Mapped>,
    frames: KVVec<Frame>,
    /// The sum of all frames.
    live: usize,
    /// The first of the frames that are due.
    due: Option<usize>,
    /// Of the latest room.
    serial: u64,
    closed: bool,
    /// Where pages were left when the pagemap was closed.
    module: Option<ModuleReference>,
}

impl Table {
    /// Counts `count` pages of a frame as not live any more.
    fn give_back(&mut self, number: usize, count: usize) {
        let Some(frame) = self.frames.get_mut(number) else {
            return;
        };
        frame.live = frame.live.saturating_sub(count);
        self.live = self.live.saturating_sub(count);
        if frame.live == 0 && !frame.is_due {
            frame.is_due = true;
            frame.next_due = self.due.replace(number);
        }
    }

    /// The room of a frame that is due, which is empty from then on.
    fn take_due(&mut self) -> Option<KBox<dyn Room>> {
        // One that is due has a room, so that this ends with the list.
        let frame = self.frames.get_mut(self.due?)?;
        let emptied = Frame {
            serial: frame.serial,
            ..Frame::EMPTY
        };
        let old = core::mem::replace(frame, emptied);
        self.due = old.next_due;
        old.room
    }

    /// Whether the region is to be unmapped.
    fn is_over(&self) -> bool {
        self.closed && self.live == 0 && self.due.is_none()
    }
}

/// What a [`Pagemap`] stands for, as long as it has pages.
#[pin_data]
struct Region {
    queue: Arc<OwnedQueue>,
    faults: Arc<dyn CpuFault>,
    /// Physical address of the first page.
    start: u64,
    #[pin]
    table: SpinLockIrq<Table>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Region { self.work }
}

impl Region {
    /// Called by the memory manager when pages are not used any more.
    ///
    /// # Safety
    ///
    /// `data` is a [`Region`] that is there until this returns.
    unsafe extern "C" fn freed(data: *mut c_void, first: c_ulong, count: c_ulong) {
        // SAFETY: By the requirements of this function.
        let this = unsafe { &*data.cast::<Self>() };
        this.give_back(first / PAGES, count);
    }

    /// Called by the memory manager when the CPU touches a page.
    ///
    /// # Safety
    ///
    /// `data` is a [`Region`] that is there until this returns, and the fault at `vmf` is at one of its pages and is
    /// being handled.
    unsafe extern "C" fn fault(data: *mut c_void, vmf: *mut bindings::vm_fault) -> c_uint {
        // SAFETY: By the requirements of this function.
        let this = unsafe { &*data.cast::<Self>() };
        let owner = this.table.lock().mapped.as_ref().map(|mapped| mapped.raw);
        let answer = match (NonNull::new(vmf), owner) {
            // INVARIANT: By the requirements of this function.
            (Some(raw), Some(owner)) => this.faults.bring_back(&Fault {
                raw,
                owner,
                _handled: PhantomData,
            }),
            _ => Answer::Lost,
        };
        match answer {
            Answer::Repeat => 0,
            Answer::OutOfMemory => bindings::vm_fault_reason_VM_FAULT_OOM,
            Answer::Lost => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
        }
    }

    /// Counts `count` pages of a frame as not live any more.
    fn give_back(&self, frame: usize, count: usize) {
        let mut table = self.table.lock();
        table.give_back(frame, count);
        self.settle(&table);
    }

    /// Has the worker look at the table if there is something for it.
    ///
    /// The table is still locked, so that a worker which has ended the region was not told too late.
    fn settle(&self, table: &Table) {
        if table.due.is_none() && !table.is_over() {
            return;
        }
        if let Some(Mapped {
            region: Some(this), ..
        }) = &table.mapped
        {
            // It may be queued already.
            let _ = self.queue.enqueue(this.clone());
        }
    }
}

impl WorkItem for Region {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        loop {
            let room = this.table.lock().take_due();
            // Its memory may get another room as soon as it is dropped.
            let Some(room) = room else { break };
            drop(room);
        }
        let mut table = this.table.lock();
        if !table.is_over() {
            return;
        }
        let (mapped, module) = (table.mapped.take(), table.module.take());
        drop(table);
        drop(mapped);
        drop(module);
    }
}

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
    pub(crate) fn new(keeper: &Keeper, frames: usize, faults: Arc<dyn CpuFault>) -> Result<Self> {
        let size = frames.checked_mul(FRAME).filter(|size| *size != 0);
        // CAST: `usize` is at most 64 bits wide.
        let size = size.ok_or(EINVAL)? as u64;
        let mut table = KVVec::with_capacity(frames, GFP_KERNEL)?;
        for _ in 0..frames {
            table.push(Frame::EMPTY, GFP_KERNEL)?;
        }
        // SAFETY: The size is a multiple of 2 MiB.
        let raw = from_err_ptr(unsafe { crate::bindings::rkfd_pagemap_new(size) })?;
        // INVARIANT: Made just now, and no page is in use.
        let mut mapped = Mapped {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            region: None,
            _member: Member::new(&keeper.regions),
        };
        // SAFETY: By the type invariant it is a pagemap.
        let start = unsafe { crate::bindings::rkfd_pagemap_start(raw) };
        let table = Table {
            mapped: None,
            frames: table,
            live: 0,
            due: None,
            serial: 0,
            closed: false,
            module: None,
        };
        let region = Arc::pin_init(
            pin_init!(Region {
                queue: keeper.queue.clone(),
                faults,
                start,
                table <- new_spinlock_irq!(table, "rkfd_devmem"),
                work <- new_work!("rkfd_devmem"),
            }),
            GFP_KERNEL,
        )?;
        let data = Arc::as_ptr(&region).cast_mut().cast();
        // SAFETY: `mapped` keeps the region until its pages are unmapped, and neither function is called after that.
        unsafe {
            crate::bindings::rkfd_pagemap_attach(
                raw,
                Some(Region::freed),
                Some(Region::fault),
                data,
            )
        };
        // INVARIANT: Attached to this region.
        mapped.region = Some(region.clone());
        region.table.lock().mapped = Some(mapped);
        Ok(Self { region })
    }

    /// The physical addresses of the pages.
    pub(crate) fn range(&self) -> Range<u64> {
        let frames = self.region.table.lock().frames.len();
        // CAST: `usize` is at most 64 bits wide.
        self.region.start..self.region.start + (frames * FRAME) as u64
    }

    /// How many pages are live, and vacancies.
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
    /// The number of the room, by which the frame can be [filled further](Pagemap::reopen).
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// What the pages of its pagemap have as their owner.
    pub(super) fn owner(&self) -> Result<*mut RawPagemap> {
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
        // SAFETY: The pagemap stays, for it has a live page, and it has this page, which was given to nobody else.
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

/// A page of device-private memory that is new: locked, and nobody else has it. Dropping gives it back.
///
/// # Invariants
///
/// `page` is a page of a pagemap, which is locked and of which this value owns the lock and a reference. `number` is its
/// number there.
pub(crate) struct DeviceFolio {
    page: *mut bindings::page,
    number: usize,
}

impl DeviceFolio {
    /// Its number: where it lies in the memory of the device, in pages.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// The page, with lock and reference.
    pub(super) fn into_page(self) -> *mut bindings::page {
        ManuallyDrop::new(self).page
    }
}

impl Drop for DeviceFolio {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. As it counts as a live page, its pagemap is there.
        unsafe { crate::bindings::rkfd_page_unlock_put(self.page) };
    }
}

/// References that keep the module from being unloaded.
#[cfg(rkfd_kunit)]
pub(crate) fn module_references() -> i32 {
    // SAFETY: No preconditions.
    unsafe { crate::bindings::rkfd_kunit_module_references() }
}

/// Whether the machine has nothing at these addresses.
#[cfg(rkfd_kunit)]
pub(crate) fn is_free(range: &Range<u64>) -> bool {
    // SAFETY: Looks at a list of the kernel.
    unsafe { crate::bindings::rkfd_kunit_region_is_free(range.start, range.end - range.start) }
}

/// Whether there is a page of a device at this address.
#[cfg(rkfd_kunit)]
pub(crate) fn has_device_page(address: u64) -> bool {
    // SAFETY: Looks at a list of the kernel; any address will do.
    unsafe { crate::bindings::rkfd_kunit_has_device_page(address) }
}
