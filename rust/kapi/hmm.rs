// SPDX-License-Identifier: GPL-2.0

//! Ranges of an address space that a device shows: their pages, and when these change.
//!
//! An [`Interval`] watches a range, in which there may be anything or nothing. What a device was given of it is kept in
//! a value of the user's, [`Watch::State`], under the *update lock* of the interval. A [`Snapshot`] is what the pages
//! were at one moment. It becomes entries of a device only by [`Snapshot::commit`], which calls its argument under the
//! update lock and only if nothing of the interval has changed since. So no entry can be written from a snapshot that
//! is out of date.
//!
//! Nothing is pinned and no page is referenced: a page that a snapshot names may have another user a moment later.
//! That is harmless as long as no device uses it, and the commit sees to that.
//!
//! A snapshot that knows the pages of a device ([`Snapshot::with_device`]) has those that the program has there as they
//! are. Where pages are faulted in, they are left alone, but for those that have to be written and may not be, for the
//! program shares them: these come back to the system and become its own.
//!
//! Before pages change, the memory manager calls [`Watch::changes`] under the update lock, at which time all snapshots of
//! the interval become invalid, and then [`Watch::settle`], after which the device must not use them any more.
//!
//! # Locks
//!
//! The update lock is taken inside the memory manager, perhaps because memory is short: nothing is allocated under it,
//! nor under any lock that is taken under it. No [`Interval`] is dropped under it.
//!
//! C headers: [`include/linux/hmm.h`](srctree/include/linux/hmm.h),
//! [`include/linux/mmu_notifier.h`](srctree/include/linux/mmu_notifier.h)

use core::{
    ops::Range,
    pin::Pin, //
};

use kernel::{
    bindings,
    error::to_result,
    mm::{
        Mm,
        MmWithUser,
        MmWithUserAsync,
        MmapReadGuard, //
    },
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        Mutex, //
    },
    types::Opaque, //
};

use super::task::{
    current_mm,
    key_of,
    MmKey, //
};

mod snapshot;

pub(crate) use self::snapshot::{
    Found,
    Seen,
    Snapshot, //
};

/// An address space of a program. It may end while this lives: nothing of it is kept.
pub(crate) struct AddressSpace(ARef<Mm>);

/// An address space that does not end while this lives.
///
/// Its last user may be this value, which may be dropped where the address space cannot end: that happens later then.
pub(crate) struct AddressSpaceUser(ARef<MmWithUserAsync>);

/// What a program has at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Nothing.
    None,
    /// What no device can show: registers, or memory that may not be read.
    Unusable,
    /// Memory that may be read only.
    Readable,
    /// Memory that may be written.
    Writable,
}

/// Which pages of a range are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Find {
    /// Those that the program has now, without a wait for others.
    Present,
    /// All, to be read.
    Readable,
    /// All, to be written.
    Writable,
}

impl AddressSpace {
    /// The caller's; `None` for a thread of the kernel.
    pub(crate) fn of_caller() -> Option<Self> {
        let (mm, _) = current_mm()?;
        Some(Self(ARef::<Mm>::from(&**mm)))
    }

    /// Names it.
    pub(crate) fn key(&self) -> MmKey {
        key_of(&self.0)
    }

    /// Keeps it from ending.
    ///
    /// # Errors
    ///
    /// `ESRCH`: it has ended.
    pub(crate) fn enter(&self) -> Result<AddressSpaceUser> {
        let mm = self.0.mmget_not_zero().ok_or(ESRCH)?;
        Ok(AddressSpaceUser(MmWithUser::into_mmput_async(mm)))
    }
}

impl AddressSpaceUser {
    /// Takes the mmap lock for reading.
    pub(crate) fn lock(&self) -> MmapReadGuard<'_> {
        self.0.mmap_read_lock()
    }

    /// Whether the program has memory, whatever its rights are, in all of `range`. Takes the mmap lock.
    pub(crate) fn has_memory(&self, range: Range<usize>) -> bool {
        // SAFETY: The value in `self` keeps the address space in use.
        unsafe { crate::bindings::rkfd_user_has_memory(self.0.as_raw(), range.start, range.end) }
    }

    /// Whether an address is of the heap that the program has by `brk`, or of the stack of its first thread. Takes the mmap lock.
    pub(crate) fn is_heap_or_stack(&self, address: usize) -> bool {
        // SAFETY: The value in `self` keeps the address space in use.
        unsafe { crate::bindings::rkfd_user_is_heap_or_stack(self.0.as_raw(), address) }
    }

    /// What lies at the first address of `range`, which is not empty, and where in `range` that ends. Takes the mmap lock.
    pub(crate) fn memory_at(&self, range: Range<usize>) -> (Memory, usize) {
        let mut end = range.end;
        // SAFETY: The value in `self` keeps the address space in use.
        let memory = unsafe {
            crate::bindings::rkfd_user_memory(self.0.as_raw(), range.start, &raw mut end)
        };
        let memory = match memory {
            crate::bindings::RKFD_MEMORY_WRITABLE => Memory::Writable,
            crate::bindings::RKFD_MEMORY_READABLE => Memory::Readable,
            crate::bindings::RKFD_MEMORY_UNUSABLE => Memory::Unusable,
            _ => Memory::None,
        };
        (memory, end)
    }
}

/// Why pages change, as the memory manager says. The numbers are those of `rkfd_show_change`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// They are unmapped or moved to other addresses (munmap, mremap).
    Unmap,
    /// Others take their place, or none (madvise, copy on write, large pages made or split, reclaim).
    Clear,
    /// Their rights change (mprotect).
    Protect,
    /// Writes to them are to be noticed.
    SoftDirty,
    /// The address space ends.
    End,
    /// They move to or from memory of a device.
    Migrate,
    /// A device gets them alone, for atomic operations.
    Exclusive,
    /// A cause that is not known here.
    Other,
}

impl Cause {
    fn of(number: c_uint) -> Self {
        match number {
            crate::bindings::RKFD_CHANGE_UNMAP => Self::Unmap,
            crate::bindings::RKFD_CHANGE_CLEAR => Self::Clear,
            crate::bindings::RKFD_CHANGE_PROTECT => Self::Protect,
            crate::bindings::RKFD_CHANGE_SOFT_DIRTY => Self::SoftDirty,
            crate::bindings::RKFD_CHANGE_END => Self::End,
            crate::bindings::RKFD_CHANGE_MIGRATE => Self::Migrate,
            crate::bindings::RKFD_CHANGE_EXCLUSIVE => Self::Exclusive,
            _ => Self::Other,
        }
    }
}

/// A change of pages, as far as it concerns an interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    /// First byte.
    pub(crate) first: usize,
    /// Last byte.
    pub(crate) last: usize,
    /// The address space ends: nothing of it can be found again.
    pub(crate) is_end: bool,
    /// The program unmaps it: what may come to lie there later has nothing to do with it.
    pub(crate) is_unmap: bool,
    /// For figures.
    pub(crate) cause: Cause,
}

/// Shows the pages of an [`Interval`] to a device.
pub(crate) trait Watch: Send + Sync {
    /// What the device was given, under the update lock.
    type State: Send + Unpin;

    /// Pages are about to change; they still are what they were. Every snapshot of the interval is out of date from now
    /// on. Notes in `state` what may not be used any more; true: [`Self::settle`] is to be called.
    ///
    /// With `may_wait` false there is no wait for the device now: true means then that the change cannot take place.
    fn changes(&self, state: &mut Self::State, change: &Change, may_wait: bool) -> bool;

    /// When this returns, the device does not use what [`Self::changes`] noted.
    ///
    /// Runs inside the memory manager, as all under the update lock, which it takes itself.
    fn settle(&self, state: &Mutex<Self::State>, change: &Change);
}

/// The part that the notifier points to.
#[pin_data]
struct Inner<W: Watch> {
    #[pin]
    notifier: Opaque<bindings::mmu_interval_notifier>,
    range: Range<usize>,
    watch: W,
    /// The update lock.
    #[pin]
    state: Mutex<W::State>,
}

// SAFETY: `notifier` is only touched by the MMU notifier core, which has its own locks, and by the functions below, as
// that core asks for. All else is `Send`.
unsafe impl<W: Watch> Send for Inner<W> {}
// SAFETY: The MMU notifier core and the functions below synchronise their use of `notifier`; `state` is behind a lock,
// `range` does not change, and `W` is `Sync`.
unsafe impl<W: Watch> Sync for Inner<W> {}

/// A range of an address space whose changes are watched.
///
/// # Invariants
///
/// The notifier of `inner` is registered.
pub(crate) struct Interval<W: Watch> {
    inner: Pin<KBox<Inner<W>>>,
}

impl<W: Watch> Inner<W> {
    const OPS: bindings::mmu_interval_notifier_ops = bindings::mmu_interval_notifier_ops {
        invalidate: Some(Self::invalidate),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// Called by the MMU notifier core with a notifier that lies in an [`Inner`].
    unsafe extern "C" fn invalidate(
        subscription: *mut bindings::mmu_interval_notifier,
        range: *const bindings::mmu_notifier_range,
        seq: c_ulong,
    ) -> bool {
        // SAFETY: `subscription` is the field of an `Inner`, which unregisters it before it goes and thereby waits for
        // this call.
        let this =
            unsafe { &*kernel::container_of!(Opaque::cast_from(subscription), Self, notifier) };
        // SAFETY: The core lends a valid range.
        let (start, end, may_wait, is_end, is_unmap, cause) = unsafe {
            (
                crate::bindings::rkfd_interval_start(range),
                crate::bindings::rkfd_interval_end(range),
                crate::bindings::rkfd_interval_may_block(range),
                crate::bindings::rkfd_interval_is_end(range),
                crate::bindings::rkfd_interval_is_unmap(range),
                crate::bindings::rkfd_interval_cause(range),
            )
        };
        // The core calls for ranges that meet the interval, but they may reach beyond it, and be no whole pages.
        let change = Change {
            first: start.max(this.range.start),
            // The range may end behind the last byte that there is.
            last: end.wrapping_sub(1).min(this.range.end - 1),
            is_end,
            is_unmap,
            cause: Cause::of(cause),
        };
        let mut state = if may_wait {
            this.state.lock()
        } else {
            match this.state.try_lock() {
                Some(state) => state,
                None => return false,
            }
        };
        let unsettled = this.watch.changes(&mut state, &change, may_wait);
        if unsettled && !may_wait {
            // Nothing changes, so the snapshots stay what they are.
            return false;
        }
        // SAFETY: The arguments of this call, under the lock of `is_current`.
        unsafe { crate::bindings::rkfd_interval_set_seq(subscription, seq) };
        drop(state);
        if unsettled {
            this.watch.settle(&this.state, &change);
        }
        true
    }
}

impl<W: Watch> Interval<W> {
    /// Watches `range`, whole pages, of an address space.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the range is empty or not page-aligned.
    /// - `EFAULT`: it wraps around.
    /// - `ENOMEM`, `EINTR`.
    pub(crate) fn new(
        user: &AddressSpaceUser,
        range: Range<usize>,
        watch: W,
        state: W::State,
    ) -> Result<Arc<Self>> {
        if range.is_empty() || range.start % PAGE_SIZE != 0 || range.end % PAGE_SIZE != 0 {
            return Err(EINVAL);
        }
        let (start, len) = (range.start, range.end - range.start);
        let inner = KBox::pin_init(
            pin_init!(Inner {
                notifier: Opaque::zeroed(),
                range,
                watch,
                state <- new_mutex!(state, "rkfd_interval"),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        // SAFETY: The notifier is pinned, lives until it is unregistered in `drop`, and `user` keeps the address
        // space; the operations are static.
        let ret = unsafe {
            bindings::mmu_interval_notifier_insert(
                inner.notifier.get(),
                user.0.as_raw(),
                start,
                len,
                &Inner::<W>::OPS,
            )
        };
        to_result(ret).map_err(|e| if e == EOVERFLOW { EFAULT } else { e })?;
        // INVARIANT: Registered just now.
        Ok(Arc::new(Self { inner }, GFP_KERNEL_ACCOUNT)?)
    }

    /// What shows the pages.
    pub(crate) fn watch(&self) -> &W {
        &self.inner.watch
    }

    /// The update lock.
    pub(crate) fn state(&self) -> &Mutex<W::State> {
        &self.inner.state
    }

    /// Whether nothing has changed since `seq`.
    fn is_current(&self, _locked: &W::State, seq: c_ulong) -> bool {
        // SAFETY: The notifier is initialised, and the lock is held that `invalidate` takes.
        !unsafe { crate::bindings::rkfd_interval_changed(self.inner.notifier.get(), seq) }
    }
}

impl<W: Watch> Drop for Interval<W> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant it is registered. No lock is held that `invalidate` takes: the update lock is
        // only held by users of a reference.
        unsafe { bindings::mmu_interval_notifier_remove(self.inner.notifier.get()) };
    }
}
