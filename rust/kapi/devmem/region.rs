// SPDX-License-Identifier: GPL-2.0

//! The frames of a device's memory, what is live of each, and the end of all. Suite: `rkfd_devmem`.

use core::{
    ops::Range,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    error::from_err_ptr,
    impl_has_work,
    mm::virt::VmaRef,
    new_spinlock_irq, new_work,
    prelude::*,
    sync::{
        Arc,
        SpinLockIrq, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};

use super::{
    keeper::{
        KeeperHandle,
        Member,
        ModuleReference, //
    },
    Answer,
    Room,
    FRAME,
    PAGES, //
};
use crate::{
    bindings::{
        rkfd_migrate_info as Info,
        rkfd_pagemap as RawPagemap, //
    },
    kapi::{
        task::{
            key_of,
            MmKey, //
        },
        workqueue::OwnedQueue, //
    },
};

/// Words of a bit per page of a frame.
const WORDS: usize = PAGES.div_ceil(64);

/// An access of the CPU to a page of a device, which the memory manager waits with for its end.
///
/// # Invariants
///
/// The fault is being handled as long as this lives, and its page is of the pagemap at `owner`, which is that of `region`.
pub(crate) struct Fault<'a> {
    raw: NonNull<bindings::vm_fault>,
    owner: NonNull<RawPagemap>,
    region: &'a Region,
}

impl<'a> Fault<'a> {
    /// The fault.
    pub(in crate::kapi) fn as_raw(&self) -> *mut bindings::vm_fault {
        self.raw.as_ptr()
    }

    /// The owner of the page.
    pub(in crate::kapi) fn owner(&self) -> *mut RawPagemap {
        self.owner.as_ptr()
    }

    /// What the page is of.
    pub(in crate::kapi) fn region(&self) -> &'a Region {
        self.region
    }

    /// The first address of the page.
    pub(crate) fn address(&self) -> usize {
        // SAFETY: By the type invariant.
        unsafe { crate::bindings::rkfd_fault_address(self.raw.as_ptr()) }
    }

    /// Whose memory it is about, and what of it lies about the page: a range of `around` bytes, a power of two, as far as the
    /// mapping goes.
    pub(crate) fn around(&self, around: usize) -> (MmKey, Range<usize>) {
        let mut info = Info::default();
        // SAFETY: By the type invariant.
        unsafe { crate::bindings::rkfd_fault_range(self.raw.as_ptr(), around, &raw mut info) };
        // SAFETY: The mapping is there while the fault is handled, and its address space has a user, which touches it.
        let vma = unsafe { VmaRef::from_raw(info.vma) };
        (key_of(vma.mm()), info.start..info.end)
    }
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
pub(super) struct Mapped {
    pub(super) raw: NonNull<RawPagemap>,
    region: Option<Arc<Region>>,
    // Last: the keeper's wait ends when the rest is gone.
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
pub(super) struct Frame {
    pub(super) room: Option<KBox<dyn Room>>,
    /// Of the room, or of the last one.
    pub(super) serial: u64,
    /// Live pages, and vacancies.
    pub(super) live: usize,
    /// The pages that were given out since the room came.
    pub(super) given: [u64; WORDS],
    /// Those of them whose contents have moved to the system.
    pub(super) left: [u64; WORDS],
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
        left: [0; WORDS],
        is_due: false,
        next_due: None,
    };

    /// Notes that page `place` is given out.
    ///
    /// # Errors
    ///
    /// `EINVAL`: there is no such page. `EBUSY`: it was given out.
    pub(super) fn give(&mut self, place: usize) -> Result {
        let bit = 1 << (place % 64);
        let word = self.given.get_mut(place / 64).filter(|_| place < PAGES);
        let word = word.ok_or(EINVAL)?;
        if *word & bit != 0 {
            return Err(EBUSY);
        }
        *word |= bit;
        Ok(())
    }

    /// Whether page `place` has a bit in `bits`.
    pub(super) fn has(bits: &[u64; WORDS], place: usize) -> bool {
        let word = bits.get(place / 64);
        word.is_some_and(|word| word & (1 << (place % 64)) != 0)
    }
}

/// All frames of a region.
pub(super) struct Table {
    /// `None` before the region is complete and when it has ended.
    pub(super) mapped: Option<Mapped>,
    pub(super) frames: KVVec<Frame>,
    /// The sum of all frames.
    pub(super) live: usize,
    /// [Holds](super::hold::Hold), by which it stays.
    pub(super) holds: usize,
    /// The first of the frames that are due.
    due: Option<usize>,
    /// Of the latest room.
    pub(super) serial: u64,
    pub(super) closed: bool,
    /// Where pages were left when the pagemap was closed.
    pub(super) module: Option<ModuleReference>,
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
        self.closed && self.live == 0 && self.holds == 0 && self.due.is_none()
    }
}

/// What a [`Pagemap`] stands for, as long as it has pages.
#[pin_data]
pub(in crate::kapi) struct Region {
    queue: Arc<OwnedQueue>,
    faults: Arc<dyn CpuFault>,
    /// Physical address of the first page.
    pub(super) start: u64,
    #[pin]
    pub(super) table: SpinLockIrq<Table>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Region { self.work }
}

impl Region {
    /// Maps one; see [`Pagemap::new`](super::pagemap::Pagemap::new).
    ///
    /// # Errors
    ///
    /// As there.
    pub(super) fn new(
        keeper: &KeeperHandle,
        frames: usize,
        faults: Arc<dyn CpuFault>,
    ) -> Result<Arc<Self>> {
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
            holds: 0,
            due: None,
            serial: 0,
            closed: false,
            module: None,
        };
        let region = Arc::pin_init(
            pin_init!(Self {
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
            crate::bindings::rkfd_pagemap_attach(raw, Some(Self::freed), Some(Self::fault), data)
        };
        // INVARIANT: Attached to this region.
        mapped.region = Some(region.clone());
        region.table.lock().mapped = Some(mapped);
        Ok(region)
    }

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
                region: this,
            }),
            _ => Answer::Lost,
        };
        match answer {
            Answer::Repeat => 0,
            Answer::OutOfMemory => bindings::vm_fault_reason_VM_FAULT_OOM,
            Answer::Lost => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
        }
    }

    /// Notes that the content of a page has moved to the system, whatever references of the page are left. The page is
    /// locked.
    pub(in crate::kapi) fn note_left(&self, number: usize) {
        let mut table = self.table.lock();
        let frame = table.frames.get_mut(number / PAGES);
        let place = number % PAGES;
        if let Some(word) = frame.and_then(|frame| frame.left.get_mut(place / 64)) {
            *word |= 1 << (place % 64);
        }
    }

    /// Whether that was noted. The page is locked, so the answer stays right.
    pub(in crate::kapi) fn has_left(&self, number: usize) -> bool {
        let table = self.table.lock();
        let frame = table.frames.get(number / PAGES);
        frame.is_some_and(|frame| Frame::has(&frame.left, number % PAGES))
    }

    /// Counts `count` pages of a frame as not live any more.
    pub(super) fn give_back(&self, frame: usize, count: usize) {
        let mut table = self.table.lock();
        table.give_back(frame, count);
        self.settle(&table);
    }

    /// Has the worker look at the table if there is something for it.
    ///
    /// The table is still locked, so that a worker which has ended the region was not told too late.
    pub(super) fn settle(&self, table: &Table) {
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
