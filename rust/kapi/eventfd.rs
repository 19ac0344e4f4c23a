// SPDX-License-Identifier: GPL-2.0

//! Counters that a program gave as a descriptor (`eventfd`), to be told of something.
//!
//! A test of the kernel has no descriptors, so what a counter counts is tested by `e2e/native-events`.
//!
//! C header: [`include/linux/eventfd.h`](srctree/include/linux/eventfd.h)

use core::ptr::NonNull;

use kernel::{
    bindings,
    error::from_err_ptr,
    prelude::*, //
};

use crate::bindings as rkfd;

/// A counter.
///
/// # Invariants
///
/// The pointer is a live `eventfd_ctx`, and this value owns one of its references.
pub(crate) struct EventFd(NonNull<bindings::eventfd_ctx>);

// SAFETY: Counters are reference-counted, have a lock of their own and may be released anywhere.
unsafe impl Send for EventFd {}
// SAFETY: Shared access only signals, under the lock of the counter.
unsafe impl Sync for EventFd {}

impl EventFd {
    /// The counter behind a descriptor of the caller's.
    ///
    /// # Errors
    ///
    /// - `EBADF`: no such descriptor.
    /// - `EINVAL`: not an eventfd.
    pub(crate) fn from_fd(fd: i32) -> Result<Self> {
        // SAFETY: Looks a number up, whatever it is.
        let raw = from_err_ptr(unsafe { rkfd::eventfd_ctx_fdget(fd) })?;
        // INVARIANT: The call took a reference.
        Ok(Self(NonNull::new(raw).ok_or(EINVAL)?))
    }

    /// Adds one and wakes the waiters. Neither sleeps nor allocates.
    pub(crate) fn signal(&self) {
        // SAFETY: By the type invariant the counter is live.
        unsafe { rkfd::eventfd_signal_mask(self.0.as_ptr(), 0) };
    }
}

impl Drop for EventFd {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this reference is ours.
        unsafe { rkfd::eventfd_ctx_put(self.0.as_ptr()) };
    }
}
