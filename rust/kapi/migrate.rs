// SPDX-License-Identifier: GPL-2.0

//! Moves of a program's pages between system memory and [device-private memory](super::devmem), a range at a time.
//!
//! A move goes through states, each of which is made from the one before and is a value:
//!
//! | State | What holds |
//! | --- | --- |
//! | [`Collected`] | the pages that can move are locked, and nobody has them mapped: who touches one waits |
//! | [`Placed`] | each has a destination, or stays; destinations are new, and locked, too |
//! | [`Copied`] | destinations have what the sources have |
//! | [`Moved`] | the program has the destinations, but for what the kernel refused; nobody has mapped them yet |
//!
//! Dropping the last one, or any other, maps the pages again and unlocks them: what was not moved is where it was, with its
//! contents, whatever the state.
//!
//! Pages of a device can be collected without a program, too ([`Collected::of_frame`]): those that are left when the device
//! goes, wherever they are mapped. A page that has moved to the system is marked while it is locked, for there may be a
//! reference of it still, by which it would be found again.
//!
//! # Locks
//!
//! The mmap lock, where there is a program, is held for reading over all states, and the pages are locked. So a thread has one such value at a time,
//! and waits for nothing meanwhile that waits for a page or for user space. Memory may be allocated. Notifiers run within
//! setup and commit.
//!
//! C header: [`include/linux/migrate.h`](srctree/include/linux/migrate.h)

use core::{
    marker::PhantomData,
    ops::Range, //
};

use kernel::{
    bindings,
    error::to_result,
    mm::MmapReadGuard,
    new_mutex,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

use super::{
    devmem::{
        Fault,
        Hold,
        Region,
        Vacancy, //
    },
    pages::Pages, //
};
use crate::bindings::rkfd_migrate_info as Info;

/// Pages that lie side by side, in the memory of the device and in the list of a [`Job`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Number of the first page of the device.
    pub(crate) number: usize,
    /// The first page of the list.
    pub(crate) page: usize,
    /// How many.
    pub(crate) count: usize,
}

/// What has to be copied.
pub(crate) struct Job {
    /// The pages of the system, of which each has a run. They can be copied until the move ends.
    pub(crate) pages: Arc<Pages>,
    /// Where they are in the memory of the device.
    pub(crate) runs: KVVec<Run>,
    /// Keeps the destinations from another use, as long as they may be written.
    pub(crate) kept: Destinations,
}

/// References of pages that are written.
///
/// # Invariants
///
/// A reference of each page is of this value.
pub(crate) struct Destinations(KVVec<*mut bindings::page>);

// SAFETY: References may be given back by any thread.
unsafe impl Send for Destinations {}

impl Drop for Destinations {
    fn drop(&mut self) {
        for page in &self.0 {
            // SAFETY: By the type invariant.
            unsafe { crate::bindings::rkfd_page_put(*page) };
        }
    }
}

/// A move, whatever its state.
///
/// # Invariants
///
/// - `info` was set up and not finished. It has the addresses of `from` and `to`, which have a word for each of its pages.
/// - The mmap lock is held for reading as long as this lives, if `info` has a VMA.
/// - `sources` is what the sources are of, if they are a device's; it is mapped as long as this lives.
/// - Until it is committed, each word of `to` that is not 0 stands for a page that is locked, of which this value owns the
///   lock and a reference.
struct Migration<'a> {
    info: Info,
    from: KVVec<c_ulong>,
    to: KVVec<c_ulong>,
    is_committed: bool,
    /// Of pages that were given to be copied: whether they may be.
    may_copy: Option<Arc<Mutex<bool>>>,
    sources: Option<&'a Region>,
    /// Pages that move, and for which there was no destination.
    refused: usize,
    _locked: PhantomData<&'a ()>,
}

impl<'a> Migration<'a> {
    /// # Safety
    ///
    /// `info` has a VMA, whose address space is locked for reading for `'a`, a range of addresses and a pagemap that is
    /// mapped. If it has a page of a fault, that is being handled for `'a`. Without a VMA `from` has the numbers of page
    /// frames of the pagemap, as many as the range has pages. `sources` is its region, where sources are a device's.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the range is not of the VMA, or that has no pages that can move. `ENOMEM`. `EOPNOTSUPP`.
    unsafe fn new(
        mut info: Info,
        mut from: KVVec<c_ulong>,
        sources: Option<&'a Region>,
    ) -> Result<Self> {
        let len = info.end.checked_sub(info.start).ok_or(EINVAL)?;
        let pages = len >> PAGE_SHIFT;
        from.resize(pages, 0, GFP_KERNEL)?;
        let mut to = KVVec::from_elem(0, pages, GFP_KERNEL)?;
        (info.from, info.to) = (from.as_mut_ptr(), to.as_mut_ptr());
        info.pages = pages;
        // SAFETY: By the requirements of this function; both arrays are as long as the range.
        to_result(unsafe { crate::bindings::rkfd_migrate_setup(&raw mut info) })?;
        // INVARIANT: Set up just now, without destinations.
        Ok(Self {
            info,
            from,
            to,
            is_committed: false,
            may_copy: None,
            sources,
            refused: 0,
            _locked: PhantomData,
        })
    }

    /// How many pages it has.
    fn len(&self) -> usize {
        self.info.pages
    }

    /// Whether a page moves; what is not there yet does, where it can.
    fn moves(&self, index: usize) -> bool {
        let word = self.from.get(index).filter(|_| index < self.len());
        // SAFETY: Looks at a word.
        word.is_some_and(|word| unsafe { crate::bindings::rkfd_migrate_moves(*word) })
    }

    /// The page of a word; null without one.
    fn page(words: &[c_ulong], index: usize) -> *mut bindings::page {
        let word = words.get(index).copied().unwrap_or(0);
        // SAFETY: Arithmetic on the number of a page, which has a `struct page`.
        unsafe { crate::bindings::rkfd_migrate_page(word) }
    }

    /// Where a page that moves is now; null if it is not there yet.
    fn source(&self, index: usize) -> *mut bindings::page {
        Self::page(&self.from, index)
    }

    /// Where it goes; null if it stays.
    fn destination(&self, index: usize) -> *mut bindings::page {
        Self::page(&self.to, index)
    }

    /// The number of the page of the device that a word stands for, whose source is there.
    fn number(&self, index: usize) -> usize {
        // SAFETY: It is a page of a pagemap of this module: sources of a device have no other owner.
        unsafe { crate::bindings::rkfd_device_page_number(self.source(index)) }
    }

    /// Whether the content of a source has moved away earlier.
    fn has_left(&self, index: usize) -> bool {
        let sources = self.sources;
        sources.is_some_and(|region| region.has_left(self.number(index)))
    }

    /// Gives a page a destination.
    ///
    /// # Safety
    ///
    /// `page` is locked, and the caller owns the lock and a reference, which this value gets. The page at `index` moves
    /// and has no destination; nothing is committed.
    unsafe fn place(&mut self, index: usize, page: *mut bindings::page) {
        // SAFETY: The page is valid.
        let word = unsafe { crate::bindings::rkfd_migrate_word(page) };
        if let Some(to) = self.to.get_mut(index) {
            // INVARIANT: By the requirements of this function.
            *to = word;
        }
    }

    /// What has to be copied; `None` if nothing has.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn job(&mut self) -> Result<Option<Job>> {
        let mut pages = KVVec::new();
        let mut runs: KVVec<Run> = KVVec::new();
        let mut kept = Destinations(KVVec::with_capacity(self.len(), GFP_KERNEL)?);
        for index in 0..self.len() {
            let (from, to) = (self.source(index), self.destination(index));
            if from.is_null() || to.is_null() {
                continue;
            }
            let (system, device) = if self.info.out {
                (to, from)
            } else {
                (from, to)
            };
            // SAFETY: It is a page of a pagemap of this module: sources have no other owner, and destinations are made so.
            let number = unsafe { crate::bindings::rkfd_device_page_number(device) };
            let page = pages.len();
            pages.push(system, GFP_KERNEL)?;
            match runs.last_mut() {
                Some(last) if last.number + last.count == number => last.count += 1,
                _ => runs.push(
                    Run {
                        number,
                        page,
                        count: 1,
                    },
                    GFP_KERNEL,
                )?,
            }
            // There is room, so that no reference is forgotten.
            kept.0.push(to, GFP_KERNEL)?;
            // INVARIANT: The reference is of `kept`.
            // SAFETY: By the type invariant the destination has a reference.
            unsafe { crate::bindings::rkfd_page_get(to) };
        }
        if runs.is_empty() {
            return Ok(None);
        }
        let may_copy = Arc::pin_init(new_mutex!(true, "rkfd_migrate"), GFP_KERNEL)?;
        self.may_copy = Some(may_copy.clone());
        // SAFETY: All are locked by this value, which has a reference of each, and takes the permission away before it
        // gives them back.
        let pages = unsafe { Pages::of_migration(pages, may_copy) };
        Ok(Some(Job {
            pages: Arc::new(pages, GFP_KERNEL)?,
            runs,
            kept,
        }))
    }

    /// From now on nobody copies.
    fn end_copies(&mut self) {
        if let Some(may_copy) = self.may_copy.take() {
            *may_copy.lock() = false;
        }
    }

    fn commit(&mut self) {
        self.end_copies();
        // SAFETY: By the type invariants it is set up, the mmap lock is held, and the destinations are locked.
        unsafe { crate::bindings::rkfd_migrate_commit(&raw mut self.info) };
        self.is_committed = true;
        let Some(region) = self.sources else { return };
        for index in (0..self.len()).filter(|index| self.has_moved(*index)) {
            region.note_left(self.number(index));
        }
    }

    /// Whether a page has moved that is committed.
    fn has_moved(&self, index: usize) -> bool {
        self.moves(index) && !self.destination(index).is_null()
    }
}

impl Drop for Migration<'_> {
    fn drop(&mut self) {
        self.end_copies();
        if !self.is_committed {
            for index in 0..self.len() {
                let page = self.destination(index);
                if let Some(word) = self.to.get_mut(index) {
                    *word = 0;
                }
                if !page.is_null() {
                    // SAFETY: By the type invariant lock and reference are of this value, whose word of it is gone.
                    unsafe { crate::bindings::rkfd_page_unlock_put(page) };
                }
            }
        }
        // SAFETY: By the type invariants, and there are no destinations but what was committed.
        unsafe { crate::bindings::rkfd_migrate_finish(&raw mut self.info) };
    }
}

/// Pages that are locked and mapped by nobody.
pub(crate) struct Collected<'a>(Migration<'a>);

impl<'a> Collected<'a> {
    /// Those of a range of system memory, and what of it was never touched. `vacancy` is of the pagemap that they are to go
    /// to.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no whole pages, or not within one mapping of the program, or one whose pages do not move: memory of files, or
    /// what is to stay where it is (mlock). `ENOMEM`.
    pub(crate) fn of_system(
        lock: &'a MmapReadGuard<'_>,
        range: Range<usize>,
        vacancy: &Vacancy,
    ) -> Result<Self> {
        let vma = vma_of(lock, &range)?;
        // SAFETY: The VMA is there while the lock is held.
        if !unsafe { crate::bindings::rkfd_migrate_may_leave(vma) } {
            return Err(EINVAL);
        }
        let info = Info {
            vma,
            start: range.start,
            end: range.end,
            pagemap: vacancy.owner()?,
            ..Info::default()
        };
        // SAFETY: The lock is held for `'a`, and a vacancy counts as a live page.
        unsafe { Migration::new(info, KVVec::new(), None) }.map(Self)
    }

    /// The mapping with `address`, if its pages may go to a device at all, at the moment.
    pub(crate) fn may_leave(lock: &MmapReadGuard<'_>, address: usize) -> Option<Range<usize>> {
        let vma = lock.vma_lookup(address)?;
        // SAFETY: The VMA is there while the lock is held.
        let may = unsafe { crate::bindings::rkfd_migrate_may_leave(vma.as_ptr()) };
        may.then(|| vma.start()..vma.end())
    }

    /// Those of a range that are of a device.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no whole pages, or not within one mapping of the program. `ENOMEM`.
    pub(crate) fn of_device(
        lock: &'a MmapReadGuard<'_>,
        range: Range<usize>,
        device: &'a Hold,
    ) -> Result<Self> {
        let info = Info {
            vma: vma_of(lock, &range)?,
            start: range.start,
            end: range.end,
            pagemap: device.owner(),
            out: true,
            ..Info::default()
        };
        // SAFETY: The lock is held for `'a`, and so is the pagemap, by `device`.
        unsafe { Migration::new(info, KVVec::new(), Some(device.region())) }.map(Self)
    }

    /// Those of frame `frame` of a device, whatever programs have them. Sleeps; no mmap lock is needed.
    ///
    /// # Errors
    ///
    /// `ENOENT`: no program has any. `ENOMEM`.
    pub(crate) fn of_frame(device: &'a Hold, frame: usize) -> Result<Self> {
        let mut from = KVVec::new();
        for number in device.pages_in_use(frame)? {
            from.push(device.first() + number, GFP_KERNEL)?;
        }
        if from.is_empty() {
            return Err(ENOENT);
        }
        let info = Info {
            end: from.len() << PAGE_SHIFT,
            pagemap: device.owner(),
            out: true,
            ..Info::default()
        };
        // SAFETY: `device` holds the pagemap, which has these pages.
        unsafe { Migration::new(info, from, Some(device.region())) }.map(Self)
    }

    /// Those of a device that lie about one that the CPU has touched: a range of `around` bytes, a power of two, as far as
    /// the mapping goes.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn of_fault(fault: &'a Fault<'_>, around: usize) -> Result<Self> {
        let mut info = Info {
            pagemap: fault.owner(),
            ..Info::default()
        };
        // SAFETY: The fault is being handled.
        unsafe { crate::bindings::rkfd_fault_range(fault.as_raw(), around, &raw mut info) };
        // SAFETY: The memory manager holds the lock while a fault is handled, and its page is live.
        unsafe { Migration::new(info, KVVec::new(), Some(fault.region())) }.map(Self)
    }

    /// How many pages move, if they get destinations.
    pub(crate) fn moving(&self) -> usize {
        (0..self.0.len()).filter(|i| self.0.moves(*i)).count()
    }

    /// Places them in a frame of a device: the first page of the range at page `first` of the frame, and so on. What was
    /// never touched only with `holes`; it is not copied, and has what the room has. Pages of several programs that are one
    /// for having the same content (KSM) stay.
    pub(crate) fn into_device(
        mut self,
        vacancy: &Vacancy,
        first: usize,
        holes: bool,
    ) -> Placed<'a> {
        let this = &mut self.0;
        for index in 0..this.len() {
            if !this.moves(index) || (this.source(index).is_null() && !holes) {
                continue;
            }
            let word = this.from.get(index).copied().unwrap_or(0);
            // SAFETY: The page of a word that moves is locked by this value.
            if unsafe { crate::bindings::rkfd_migrate_is_merged(word) } {
                continue;
            }
            match vacancy.folio(first.saturating_add(index)) {
                // SAFETY: The folio is locked, and it hands lock and reference over; the page moves.
                Ok(folio) => unsafe { this.place(index, folio.into_page()) },
                // There is no page left, and it stays.
                Err(_) => this.refused += 1,
            }
        }
        Placed(self.0)
    }

    /// Places them in new pages of system memory, that of `fault` first, if there is one. Returns also whether that one has a
    /// place, if it moves at all. What has moved away stays where it is.
    pub(crate) fn into_system(mut self, fault: Option<&Fault<'_>>) -> (Placed<'a>, bool) {
        let this = &mut self.0;
        let wanted = fault.and_then(|fault| fault.address().checked_sub(this.info.start));
        let wanted = wanted.map_or(this.len(), |offset| offset >> PAGE_SHIFT);
        let others = (0..this.len()).filter(|index| *index != wanted);
        for index in Iterator::chain(core::iter::once(wanted), others) {
            if !this.moves(index) || this.source(index).is_null() || this.has_left(index) {
                continue;
            }
            let address = this.info.start + (index << PAGE_SHIFT);
            // SAFETY: The VMA is there, for the mmap lock is held, and has the address.
            let page = unsafe {
                crate::bindings::rkfd_migrate_alloc(this.info.vma, address, index == wanted)
            };
            if page.is_null() {
                this.refused += 1;
                continue;
            }
            // SAFETY: The page is new and locked, and the page at `index` moves.
            unsafe { this.place(index, page) };
        }
        let is_placed = !this.moves(wanted) || !this.destination(wanted).is_null();
        (Placed(self.0), is_placed)
    }
}

/// Pages that have destinations, or stay.
pub(crate) struct Placed<'a>(Migration<'a>);

impl<'a> Placed<'a> {
    /// Has `copy` do the copying, if there is something to copy. It returns the destinations when they have what the
    /// sources have, and nobody writes them any more.
    ///
    /// # Errors
    ///
    /// Nothing moves. `ENOMEM`, and those of `copy`.
    pub(crate) fn copy(
        mut self,
        copy: impl FnOnce(Job) -> Result<Destinations>,
    ) -> Result<Copied<'a>> {
        if let Some(job) = self.0.job()? {
            let kept = copy(job)?;
            // Who has a reference of a page keeps it from moving on.
            drop(kept);
        }
        Ok(Copied(self.0))
    }
}

/// Pages whose destinations have what they have.
pub(crate) struct Copied<'a>(Migration<'a>);

impl<'a> Copied<'a> {
    /// Makes the destinations the pages of the program. What somebody has a reference of stays.
    pub(crate) fn commit(mut self) -> Moved<'a> {
        self.0.commit();
        Moved(self.0)
    }
}

/// Pages that have moved.
#[must_use = "dropping gives them to the program"]
pub(crate) struct Moved<'a>(Migration<'a>);

impl Moved<'_> {
    /// How many have.
    pub(crate) fn count(&self) -> usize {
        let this = &self.0;
        (0..this.len()).filter(|at| this.has_moved(*at)).count()
    }

    /// How many were not there before, and are now, as the device's memory has them.
    pub(crate) fn holes(&self) -> usize {
        let this = &self.0;
        let is_new = |at: &usize| this.has_moved(*at) && this.source(*at).is_null();
        (0..this.len()).filter(is_new).count()
    }

    /// How many stay for want of a page where they were to go.
    pub(crate) fn refused(&self) -> usize {
        self.0.refused
    }
}

/// The mapping of the program that has all of `range`, whole pages.
///
/// # Errors
///
/// `EINVAL`: none has, or it is not whole pages.
fn vma_of(lock: &MmapReadGuard<'_>, range: &Range<usize>) -> Result<*mut bindings::vm_area_struct> {
    let vma = lock.vma_lookup(range.start).ok_or(EINVAL)?;
    let is_whole = (range.start | range.end) % PAGE_SIZE == 0;
    if !is_whole || range.is_empty() || range.start < vma.start() || range.end > vma.end() {
        return Err(EINVAL);
    }
    Ok(vma.as_ptr())
}
