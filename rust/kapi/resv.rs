// SPDX-License-Identifier: GPL-2.0

//! The reservation of a GEM object: the lock of its placement, and the fences of its users.
//!
//! `dma_resv` is a wound-wait mutex with a list of fences. One object is locked by [`Object::reserve`], several by
//! [`exec`](super::exec). Either way the proof is a [`Resv`], and what may only be done with the lock held is a method of it,
//! or takes one as an argument.
//!
//! # Locks
//!
//! The mmap lock comes before, memory may be allocated under it, and reclaim may be entered; so it is not waited for
//! in reclaim, where [`Object::try_reserve`] is allowed. User memory is not accessed under it.
//!
//! C header: [`include/linux/dma-resv.h`](srctree/include/linux/dma-resv.h)

use core::marker::PhantomData;

use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    time::Jiffies,
    types::NotThreadSafe, //
};

use super::{
    fence::Fence,
    gem::Object,
    mappable::Mappable, //
};

/// What a fence of an object stands for, and so what waits for it. Each includes those before it.
#[cfg_attr(
    not(rkfd_kunit),
    expect(dead_code, reason = "queues have no fences yet")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// Memory management of the kernel. All users wait for it.
    Kernel,
    /// A write.
    Write,
    /// A read.
    Read,
    /// Use that only moving or freeing the memory waits for.
    Bookkeep,
}

impl Usage {
    const fn raw(self) -> bindings::dma_resv_usage {
        match self {
            Self::Kernel => bindings::dma_resv_usage_DMA_RESV_USAGE_KERNEL,
            Self::Write => bindings::dma_resv_usage_DMA_RESV_USAGE_WRITE,
            Self::Read => bindings::dma_resv_usage_DMA_RESV_USAGE_READ,
            Self::Bookkeep => bindings::dma_resv_usage_DMA_RESV_USAGE_BOOKKEEP,
        }
    }
}

/// Proof that this thread holds the reservation of an object for `'a`.
///
/// # Invariants
///
/// The reservation of `object` is locked by this thread, and is not unlocked before the end of `'a`.
pub(crate) struct Resv<'a, T: Mappable> {
    object: &'a Object<T>,
    _thread: PhantomData<NotThreadSafe>,
}

impl<T: Mappable> Clone for Resv<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Mappable> Copy for Resv<'_, T> {}

impl<'a, T: Mappable> Resv<'a, T> {
    /// # Safety
    ///
    /// This thread holds the reservation of `object`, and keeps it for `'a`.
    pub(super) unsafe fn new(object: &'a Object<T>) -> Self {
        // INVARIANT: By the requirement of this function.
        Self {
            object,
            _thread: PhantomData,
        }
    }

    /// The object.
    pub(crate) fn object(self) -> &'a Object<T> {
        self.object
    }

    /// Takes the frames of all user mappings of the object away. The next access faults, and waits for the reservation.
    pub(crate) fn zap(self) {
        // SAFETY: The object is live, and its device has its inode until its end.
        unsafe { crate::bindings::rkfd_gem_zap(self.object.as_raw()) };
    }

    /// Reserves slots for `count` fences. They are gone when the reservation is unlocked.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[cfg_attr(
        not(rkfd_kunit),
        expect(dead_code, reason = "queues have no fences yet")
    )]
    pub(crate) fn reserve_fences(self, count: u32) -> Result<FenceSlots<'a, T>> {
        if count != 0 {
            // SAFETY: By the type invariant the reservation is locked, and the object live.
            to_result(unsafe { bindings::dma_resv_reserve_fences(self.object.resv(), count) })?;
        }
        Ok(FenceSlots {
            resv: self,
            left: count,
        })
    }

    /// Whether all fences up to `usage` are signalled.
    #[cfg_attr(
        not(rkfd_kunit),
        expect(dead_code, reason = "queues have no fences yet")
    )]
    pub(crate) fn is_idle(self, usage: Usage) -> bool {
        // SAFETY: The reference keeps the object, and that its reservation.
        unsafe { bindings::dma_resv_test_signaled(self.object.resv(), usage.raw()) }
    }

    /// Sleeps until all fences up to `usage` are signalled.
    ///
    /// # Errors
    ///
    /// - `ETIMEDOUT`: some are not after `timeout` jiffies.
    /// - `ERESTARTSYS`: a signal came.
    #[cfg_attr(
        not(rkfd_kunit),
        expect(dead_code, reason = "queues have no fences yet")
    )]
    pub(crate) fn wait(self, usage: Usage, timeout: Jiffies) -> Result {
        let timeout = c_ulong::try_from(timeout).unwrap_or(c_ulong::MAX >> 1);
        // SAFETY: The reference keeps the object, and that its reservation.
        let left = unsafe {
            bindings::dma_resv_wait_timeout(self.object.resv(), usage.raw(), true, timeout)
        };
        match left {
            0 => Err(ETIMEDOUT),
            left if left < 0 => Err(c_int::try_from(left).map_or(EIO, Error::from_errno)),
            _ => Ok(()),
        }
    }
}

/// Slots for fences in a reservation that is locked.
pub(crate) struct FenceSlots<'a, T: Mappable> {
    resv: Resv<'a, T>,
    left: u32,
}

impl<T: Mappable> FenceSlots<'_, T> {
    /// Adds `fence`, which stands for `usage`. Allocates nothing.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: the slots are used up.
    #[cfg_attr(
        not(rkfd_kunit),
        expect(dead_code, reason = "queues have no fences yet")
    )]
    pub(crate) fn add(&mut self, fence: &Fence, usage: Usage) -> Result {
        self.left = self.left.checked_sub(1).ok_or(ENOSPC)?;
        // SAFETY: The reservation is locked by the type invariant of `Resv`, and has a slot left; the call takes a
        // reference of its own.
        unsafe {
            bindings::dma_resv_add_fence(self.resv.object.resv(), fence.as_raw(), usage.raw());
        }
        Ok(())
    }
}

/// The reservation of one object, locked; dropping unlocks it.
pub(crate) struct Reserved<'a, T: Mappable> {
    object: &'a Object<T>,
    _thread: PhantomData<NotThreadSafe>,
}

impl<T: Mappable> Reserved<'_, T> {
    /// The proof.
    pub(crate) fn resv(&self) -> Resv<'_, T> {
        // SAFETY: Locked by the function that made `self`, in this thread, and unlocked when `self` is dropped.
        unsafe { Resv::new(self.object) }
    }
}

impl<T: Mappable> Drop for Reserved<'_, T> {
    fn drop(&mut self) {
        // SAFETY: Locked by this thread when `self` was made.
        unsafe { bindings::dma_resv_unlock(self.object.resv()) };
    }
}

impl<T: Mappable> Object<T> {
    /// The raw reservation. Objects of this driver never share one.
    pub(super) fn resv(&self) -> *mut bindings::dma_resv {
        // SAFETY: The object is live; `drm_gem_private_object_init` set the pointer, which does not change.
        unsafe { (*self.as_raw()).resv }
    }

    /// Locks the reservation of this object. The thread must hold no other one: several are locked by
    /// [`exec`](super::exec).
    ///
    /// # Errors
    ///
    /// `EINTR`: a signal came.
    #[cfg_attr(not(rkfd_kunit), expect(dead_code, reason = "seen by tests"))]
    pub(crate) fn reserve(&self) -> Result<Reserved<'_, T>> {
        // SAFETY: The object is live; without a context it is an ordinary lock.
        let result = unsafe {
            bindings::ww_mutex_lock_interruptible(
                &raw mut (*self.resv()).lock,
                core::ptr::null_mut(),
            )
        };
        to_result(result)?;
        Ok(Reserved {
            object: self,
            _thread: PhantomData,
        })
    }

    /// As [`Self::reserve`], without being disturbed by signals: for the end of an object, and for threads of the kernel.
    pub(crate) fn reserve_uninterrupted(&self) -> Reserved<'_, T> {
        // SAFETY: The object is live by the type invariant of `Object`. Without a context the lock cannot fail.
        unsafe { bindings::dma_resv_lock(self.resv(), core::ptr::null_mut()) };
        Reserved {
            object: self,
            _thread: PhantomData,
        }
    }

    /// Locks the reservation, unless it is locked already. Does not sleep; the thread may hold others.
    #[cfg_attr(not(rkfd_kunit), expect(dead_code, reason = "seen by tests"))]
    pub(crate) fn try_reserve(&self) -> Option<Reserved<'_, T>> {
        // SAFETY: The object is live; without a context it is an ordinary lock.
        let locked = unsafe {
            bindings::ww_mutex_trylock(&raw mut (*self.resv()).lock, core::ptr::null_mut())
        };
        if locked == 0 {
            // No value is made, for dropping it would unlock what another thread holds.
            return None;
        }
        Some(Reserved {
            object: self,
            _thread: PhantomData,
        })
    }
}
