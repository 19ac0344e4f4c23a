// SPDX-License-Identifier: GPL-2.0

//! A workqueue of one's own.
//!
//! The kernel crate knows the system queues only, whose work cannot be waited for: code of an
//! unloading module might still run in them. An [`OwnedQueue`] finishes its work when dropped; unless made
//! by [`OwnedQueue::unhurried`] or [`OwnedQueue::leisurely`] it keeps a rescuer thread, so that work that memory reclaim waits for makes
//! progress.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use kernel::{
    bindings,
    prelude::*,
    str::CStr,
    workqueue::Queue, //
};

use core::ptr::NonNull;

/// An unbound `struct workqueue_struct`, destroyed on drop.
///
/// Must not be dropped by one of its own work items: the drop waits for them.
///
/// # Invariants
///
/// The pointer is valid and owned.
pub(crate) struct OwnedQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: Workqueues may be used and destroyed by any thread.
unsafe impl Send for OwnedQueue {}
// SAFETY: Queueing work takes the queue's own locks.
unsafe impl Sync for OwnedQueue {}

impl OwnedQueue {
    /// Makes a queue that runs up to `max_active` items at a time, also under memory pressure.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(name: &'static CStr, max_active: u16) -> Result<Self> {
        let flags = bindings::wq_flags_WQ_UNBOUND | bindings::wq_flags_WQ_MEM_RECLAIM;
        Self::with_flags(name, max_active, flags)
    }

    /// Makes a queue for work that memory reclaim does not wait for: it may have to wait for memory
    /// itself, and needs no thread of its own. It is frozen as in [`OwnedQueue::freezable`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn unhurried(name: &'static CStr, max_active: u16) -> Result<Self> {
        let flags = bindings::wq_flags_WQ_UNBOUND | bindings::wq_flags_WQ_FREEZABLE;
        Self::with_flags(name, max_active, flags)
    }

    /// Makes a queue for work that memory reclaim does not wait for, and that runs at any time: the queue can be
    /// dropped while the system sleeps, too.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn leisurely(name: &'static CStr, max_active: u16) -> Result<Self> {
        Self::with_flags(name, max_active, bindings::wq_flags_WQ_UNBOUND)
    }

    /// As [`OwnedQueue::new`], for items that must not run while devices sleep: before the system
    /// suspends, those that run come to their end, and others wait until it is awake.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn freezable(name: &'static CStr, max_active: u16) -> Result<Self> {
        let flags = bindings::wq_flags_WQ_UNBOUND
            | bindings::wq_flags_WQ_MEM_RECLAIM
            | bindings::wq_flags_WQ_FREEZABLE;
        Self::with_flags(name, max_active, flags)
    }

    fn with_flags(name: &'static CStr, max_active: u16, flags: bindings::wq_flags) -> Result<Self> {
        // SAFETY: The format takes exactly the one string that follows.
        let queue = unsafe {
            bindings::alloc_workqueue_noprof(
                c"%s".as_char_ptr(),
                flags,
                max_active.into(),
                name.as_char_ptr(),
            )
        };
        // INVARIANT: A non-null result is a valid queue that is ours.
        NonNull::new(queue).map(Self).ok_or(ENOMEM)
    }

    /// Waits until what is queued now was done, and has come to its end. Not for one of its own work items.
    pub(crate) fn flush(&self) {
        // SAFETY: The queue is valid by the type invariant.
        unsafe { bindings::__flush_workqueue(self.0.as_ptr()) };
    }
}

impl core::ops::Deref for OwnedQueue {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        // SAFETY: Valid by the type invariant for as long as `self` is borrowed.
        unsafe { Queue::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for OwnedQueue {
    fn drop(&mut self) {
        // SAFETY: The queue is ours by the type invariant, and `&mut self` proves that no
        // work is queued any more. The call finishes what is queued.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) };
    }
}
