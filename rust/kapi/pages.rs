// SPDX-License-Identifier: GPL-2.0

//! Arrays of pages, and their mapping for the kernel. Devices reach them by [`dma_map`](super::dma_map).
//!
//! C header: [`include/linux/mm.h`](srctree/include/linux/mm.h)

use core::ptr::NonNull;

use kernel::{
    bindings,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        Arc,
        Mutex,
        MutexGuard, //
    },
};

use super::{
    memcg::MemoryGroup,
    task::fatal_signal_pending, //
};

/// Pages taken at once where the allocator can: 2 MiB, so that the GPU can map them as one.
const LARGE_ORDER: u32 = 9;
/// The next best: 64 KiB.
const MEDIUM_ORDER: u32 = 4;

/// A copy between a kernel buffer and an object.
pub(crate) enum Transfer<'a> {
    /// From the object.
    Read(&'a mut [u8]),
    /// To the object.
    Write(&'a [u8]),
}

impl Transfer<'_> {
    /// Bytes to copy.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Read(buffer) => buffer.len(),
            Self::Write(buffer) => buffer.len(),
        }
    }
}

/// Whose the pages are.
enum Origin {
    /// Each page was allocated and is ours.
    Allocated,
    /// The pages belong to a process, which may unmap or replace them at any time. Only their frame numbers
    /// are of use.
    User,
    /// The pages are locked by a move, which has references of them. Their content may be copied while the value behind
    /// the lock says so; the lock is held meanwhile.
    Moving(Arc<Mutex<bool>>),
}

/// A sequence of pages, in the order in which they follow each other in a buffer.
///
/// # Invariants
///
/// All pointers point to a `struct page`. If `origin` says allocated, this object owns a reference
/// to each of these pages. If it says moving, and that they may be copied, they are in use and locked.
pub(crate) struct Pages {
    pages: KVVec<*mut bindings::page>,
    origin: Origin,
}

// SAFETY: Pages may be freed and unpinned in any context that may sleep.
unsafe impl Send for Pages {}
// SAFETY: Shared access only reads the array; the content of the pages is shared with users and
// devices anyway and only accessed by copies that tolerate races.
unsafe impl Sync for Pages {}

impl Pages {
    /// Allocates `count` zeroed pages, charged to the memory control group of the caller.
    ///
    /// # Errors
    ///
    /// `EINVAL` for none, `ENOMEM`, `EINTR` if the caller is being killed.
    pub(crate) fn alloc(count: usize) -> Result<Self> {
        Self::alloc_for(&MemoryGroup::of_current(), count)
    }

    /// Allocates `count` zeroed pages, charged to `group`, at whose limit no process is killed. The list of them,
    /// a pointer a page, is charged to the group of the caller.
    ///
    /// # Errors
    ///
    /// Those of [`Self::alloc`].
    pub(crate) fn alloc_for(group: &MemoryGroup, count: usize) -> Result<Self> {
        if count == 0 {
            return Err(EINVAL);
        }
        let mut this = Self {
            pages: KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?,
            origin: Origin::Allocated,
        };
        let mut orders = [LARGE_ORDER, MEDIUM_ORDER, 0].into_iter();
        let mut order = LARGE_ORDER;
        while this.pages.len() < count {
            let left = count - this.pages.len();
            let block = if left >> order != 0 {
                // SAFETY: Allocation has no precondition but that sleeping is allowed, which it
                // is in every caller (`GFP_KERNEL_ACCOUNT` above).
                let first = group.charged(|| unsafe { crate::bindings::rkfd_alloc_pages(order) });
                NonNull::new(first)
            } else {
                None
            };
            match block {
                Some(first) => {
                    for i in 0..1usize << order {
                        // The helper split the block, so each of its pages, whose `struct page`s
                        // follow each other, has a reference of its own.
                        let page = first.as_ptr().wrapping_add(i);
                        // INVARIANT: The page is ours; capacity was reserved above, so that the
                        // push cannot fail and forget it.
                        this.pages.push(page, GFP_KERNEL_ACCOUNT)?;
                    }
                }
                None if order == 0 => return Err(ENOMEM),
                None => order = orders.find(|smaller| *smaller < order).unwrap_or(0),
            }
            if fatal_signal_pending() {
                return Err(EINTR);
            }
        }
        Ok(this)
    }

    /// The pages that a process had at `frames`, the result of `rkfd_user_fault`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for none, `ENOMEM`.
    pub(super) fn of_user(frames: &[c_ulong]) -> Result<Self> {
        if frames.is_empty() {
            return Err(EINVAL);
        }
        let mut pages = KVVec::with_capacity(frames.len(), GFP_KERNEL_ACCOUNT)?;
        for frame in frames {
            // SAFETY: Arithmetic on the frame number, which was found to have a `struct page`.
            let page = unsafe { crate::bindings::rkfd_user_page(*frame) };
            pages.push(page, GFP_KERNEL_ACCOUNT)?;
        }
        // INVARIANT: All of them are a `struct page`, and none is owned.
        Ok(Self {
            pages,
            origin: Origin::User,
        })
    }

    /// Pages that are moved, which can be copied until `may_copy` says that they cannot.
    ///
    /// # Safety
    ///
    /// Each of `pages` is in use, and locked, while `may_copy` is true.
    pub(super) unsafe fn of_migration(
        pages: KVVec<*mut bindings::page>,
        may_copy: Arc<Mutex<bool>>,
    ) -> Self {
        // INVARIANT: By the requirements of this function.
        Self {
            pages,
            origin: Origin::Moving(may_copy),
        }
    }

    /// Notes that pages of a process may differ from what is on disk or in swap, because a device may write
    /// them: reclaim discards what it takes for unchanged.
    ///
    /// # Safety
    ///
    /// The process has the pages mapped, and their invalidation is held back during the call.
    pub(super) unsafe fn mark_dirty(&self) {
        // CAST: `usize` is as wide as `unsigned long`.
        let count = self.pages.len() as c_ulong;
        // SAFETY: The array holds `count` pages, which the C function does not change. By the caller's promise
        // they are in use by their process and stay so.
        unsafe { crate::bindings::rkfd_mark_dirty(self.as_ptr(), count) };
    }

    /// # Errors
    ///
    /// `EPERM` unless the pages are ours.
    fn check_owned(&self) -> Result {
        match self.origin {
            Origin::Allocated => Ok(()),
            Origin::Moving(_) => Err(EPERM),
            Origin::User => Err(EPERM),
        }
    }

    /// The content stays where it is as long as the result lives.
    ///
    /// # Errors
    ///
    /// `EPERM` unless the pages are ours, or are being moved.
    fn hold(&self) -> Result<Option<MutexGuard<'_, bool>>> {
        let Origin::Moving(may_copy) = &self.origin else {
            return self.check_owned().map(|()| None);
        };
        let may_copy = may_copy.lock();
        if !*may_copy {
            return Err(EPERM);
        }
        Ok(Some(may_copy))
    }

    /// Number of pages.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Bytes.
    pub(crate) fn size(&self) -> usize {
        self.pages.len() << PAGE_SHIFT
    }

    /// The array, of [`Pages::len`] entries, for C functions that read it.
    pub(super) fn as_ptr(&self) -> *mut *mut bindings::page {
        self.pages.as_ptr().cast_mut()
    }

    /// Frame number of page `index`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such page, `EPERM` if it is not ours.
    pub(crate) fn pfn(&self, index: usize) -> Result<usize> {
        self.check_owned()?;
        let page = *self.pages.get(index).ok_or(EINVAL)?;
        // SAFETY: By the type invariant the page is valid.
        Ok(unsafe { crate::bindings::rkfd_page_to_pfn(page) })
    }

    /// Copies between a buffer and the bytes from `offset` on. Races with users and devices are
    /// possible and harmless: bytes are copied, nothing is interpreted.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range leaves the pages, `EPERM` if they are not ours, nor are being moved.
    pub(crate) fn copy(&self, offset: usize, mut transfer: Transfer<'_>) -> Result {
        let _held = self.hold()?;
        let len = transfer.len();
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if end > self.size() {
            return Err(EINVAL);
        }
        let mut done = 0;
        while done < len {
            let at = offset + done;
            let page = *self.pages.get(at >> PAGE_SHIFT).ok_or(EINVAL)?;
            let inside = at % PAGE_SIZE;
            let part = (PAGE_SIZE - inside).min(len - done);
            // SAFETY: By the type invariant the page is valid, for it is ours, or is being moved.
            let addr = unsafe { bindings::kmap_local_page(page) };
            let ptr = addr.cast::<u8>().wrapping_add(inside);
            match &mut transfer {
                Transfer::Read(dst) => {
                    if let Some(dst) = dst.get_mut(done..done + part) {
                        // SAFETY: `part` bytes from `ptr` lie in the mapped page; `dst` is a
                        // buffer of the same length elsewhere.
                        unsafe { core::ptr::copy(ptr, dst.as_mut_ptr(), part) };
                    }
                }
                Transfer::Write(src) => {
                    if let Some(src) = src.get(done..done + part) {
                        // SAFETY: `part` bytes from `ptr` lie in the mapped page; `src` is a
                        // buffer of the same length elsewhere.
                        unsafe { core::ptr::copy(src.as_ptr(), ptr, part) };
                    }
                }
            }
            // SAFETY: The most recent local mapping of this thread.
            unsafe { bindings::kunmap_local(addr) };
            done += part;
        }
        Ok(())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        match &self.origin {
            Origin::Allocated => {
                for page in self.pages.iter() {
                    // SAFETY: By the type invariant we own a reference to this single page.
                    unsafe { bindings::__free_pages(*page, 0) };
                }
            }
            Origin::User | Origin::Moving(_) => {}
        }
    }
}

/// A contiguous mapping of [`Pages`] for the kernel.
///
/// # Invariants
///
/// `addr` maps all of `pages`.
pub(crate) struct Vmap {
    addr: NonNull<u8>,
    pages: Arc<Pages>,
}

// SAFETY: A kernel mapping is valid in every context and may be unmapped in any that may sleep.
unsafe impl Send for Vmap {}
// SAFETY: All access is volatile and to memory that users share.
unsafe impl Sync for Vmap {}

impl Vmap {
    /// Maps `pages`.
    ///
    /// # Errors
    ///
    /// `EPERM` if the pages are not ours, `ENOMEM`.
    pub(crate) fn new(pages: Arc<Pages>) -> Result<Self> {
        pages.check_owned()?;
        let count = c_uint::try_from(pages.len())?;
        // SAFETY: The array holds `count` valid pages; the C function reads it only.
        let addr = unsafe { crate::bindings::rkfd_vmap(pages.as_ptr(), count) };
        // INVARIANT: Mapped just now.
        Ok(Self {
            addr: NonNull::new(addr.cast()).ok_or(ENOMEM)?,
            pages,
        })
    }

    /// Bytes.
    pub(crate) fn size(&self) -> usize {
        self.pages.size()
    }

    fn word(&self, offset: usize) -> Result<*mut u64> {
        let end = offset.checked_add(8).ok_or(EINVAL)?;
        if end > self.size() || offset % 8 != 0 {
            return Err(EINVAL);
        }
        Ok(self.addr.as_ptr().wrapping_add(offset).cast())
    }

    /// Reads 64 bits at byte `offset`, untorn.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `offset` is outside or not a multiple of eight.
    pub(crate) fn read64(&self, offset: usize) -> Result<u64> {
        let ptr = self.word(offset)?;
        // SAFETY: `word` checked range and alignment; by the type invariant the mapping is there.
        Ok(unsafe { ptr.read_volatile() })
    }

    /// Writes 64 bits at byte `offset`, untorn.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `offset` is outside or not a multiple of eight.
    pub(crate) fn write64(&self, offset: usize, value: u64) -> Result {
        let ptr = self.word(offset)?;
        // SAFETY: `word` checked range and alignment; by the type invariant the mapping is there.
        unsafe { ptr.write_volatile(value) };
        Ok(())
    }
}

impl Drop for Vmap {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this is a mapping of ours, and it has no other owner.
        unsafe { crate::bindings::rkfd_vunmap(self.addr.as_ptr().cast()) };
    }
}

/// Bytes of memory that the machine has.
pub(crate) fn total_ram() -> u64 {
    // SAFETY: Reads counters only.
    unsafe { crate::bindings::rkfd_total_ram() }
}
