// SPDX-License-Identifier: GPL-2.0

//! Fences: the end of work that a device was given, and how it went.
//!
//! A [`PendingFence`] is the right and the duty to signal: it cannot be forgotten, for dropping it signals that the
//! work was given up. A [`Fence`] is a reference that any thread may wait for. Fences need nothing of this module once
//! they are signalled, so they may outlive it: their operations have neither `wait` nor `release`, and C takes the
//! table from a fence that is signalled.
//!
//! C header: [`include/linux/dma-fence.h`](srctree/include/linux/dma-fence.h)

use core::{
    marker::PhantomData,
    mem::MaybeUninit,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    prelude::*,
    time::Jiffies,
    types::NotThreadSafe, //
};

use crate::bindings as rkfd;

/// What describes fences until they are signalled.
static OPS: bindings::dma_fence_ops = {
    let mut ops: bindings::dma_fence_ops = pin_init::zeroed();
    ops.get_driver_name = Some(driver_name);
    ops.get_timeline_name = Some(timeline_name);
    ops
};

/// `dma_fence_ops::get_driver_name`.
///
/// # Safety
///
/// None; C's signature.
unsafe extern "C" fn driver_name(_fence: *mut bindings::dma_fence) -> *const c_char {
    c"rkfd".as_char_ptr()
}

/// `dma_fence_ops::get_timeline_name`.
///
/// # Safety
///
/// None; C's signature.
unsafe extern "C" fn timeline_name(_fence: *mut bindings::dma_fence) -> *const c_char {
    c"copy".as_char_ptr()
}

/// An order of fences: each is signalled after those with smaller numbers.
pub(crate) struct FenceContext(u64);

impl FenceContext {
    /// An order without fences.
    pub(crate) fn new() -> Self {
        // SAFETY: No preconditions.
        Self(unsafe { bindings::dma_fence_context_alloc(1) })
    }
}

/// Memory of a fence. Taken beforehand, for where work is handed over nothing may be allocated.
pub(crate) struct FenceMemory(KBox<MaybeUninit<bindings::dma_fence>>);

impl FenceMemory {
    /// Takes memory.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(KBox::new_uninit(GFP_KERNEL_ACCOUNT)?))
    }

    /// Makes it the fence with `number` in the order of `context`.
    pub(crate) fn init(self, context: &FenceContext, number: u64) -> PendingFence {
        let fence = KBox::into_raw(self.0).cast::<bindings::dma_fence>();
        // SAFETY: The memory is large enough and has no other user; without a lock of its own the fence has one inside.
        // The table is static.
        unsafe {
            bindings::dma_fence_init64(fence, &OPS, core::ptr::null_mut(), context.0, number);
        }
        // SAFETY: A box is not null.
        let fence = unsafe { NonNull::new_unchecked(fence) };
        // INVARIANT: The first reference is ours. When the last goes, C frees the memory, which is from `kmalloc`.
        PendingFence(Some(Fence(fence)))
    }
}

/// The right and the duty to signal a fence. Dropping it signals `ECANCELED`.
pub(crate) struct PendingFence(Option<Fence>);

impl PendingFence {
    /// A reference to wait for.
    pub(crate) fn fence(&self) -> Option<Fence> {
        self.0.clone()
    }

    /// The work has ended, with `result`.
    pub(crate) fn signal(mut self, result: Result) {
        self.complete(result);
    }

    fn complete(&mut self, result: Result) {
        let Some(fence) = self.0.take() else {
            return;
        };
        let raw = fence.0.as_ptr();
        // SAFETY: By the type invariant of `Fence`. Only this value signals the fence, and it is not signalled
        // yet, so the error is not read.
        unsafe {
            if let Err(e) = result {
                (*raw).error = e.to_errno();
            }
            bindings::dma_fence_signal(raw);
        }
    }
}

impl Drop for PendingFence {
    fn drop(&mut self) {
        self.complete(Err(ECANCELED));
    }
}

/// A reference to a fence.
///
/// # Invariants
///
/// The pointer is an initialised fence, and this value owns one of its references.
pub(crate) struct Fence(NonNull<bindings::dma_fence>);

// SAFETY: Fences are reference-counted and may be released anywhere.
unsafe impl Send for Fence {}
// SAFETY: All that a shared reference allows takes the fence's own lock.
unsafe impl Sync for Fence {}

impl Fence {
    pub(super) fn as_raw(&self) -> *mut bindings::dma_fence {
        self.0.as_ptr()
    }

    /// How the work went, if it has ended.
    pub(crate) fn result(&self) -> Option<Result> {
        // SAFETY: By the type invariant.
        match unsafe { bindings::dma_fence_get_status(self.0.as_ptr()) } {
            0 => None,
            status if status < 0 => Some(Err(Error::from_errno(status))),
            _ => Some(Ok(())),
        }
    }

    /// Sleeps until it is signalled or `timeout` jiffies have passed. Returns how the work went, if it has ended.
    pub(crate) fn wait(&self, timeout: Jiffies) -> Option<Result> {
        let timeout = c_long::try_from(timeout).unwrap_or(c_long::MAX);
        // SAFETY: By the type invariant.
        unsafe { bindings::dma_fence_wait_timeout(self.0.as_ptr(), false, timeout) };
        self.result()
    }
}

impl Clone for Fence {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariant.
        unsafe { rkfd::rkfd_fence_get(self.0.as_ptr()) };
        // INVARIANT: Referenced above.
        Self(self.0)
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { rkfd::rkfd_fence_put(self.0.as_ptr()) };
    }
}

/// While it lives, the thread is one that fences wait for: lockdep reports what may wait for a fence itself, memory
/// reclaim included.
pub(crate) struct Signalling {
    cookie: bool,
    _thread: PhantomData<NotThreadSafe>,
}

impl Signalling {
    /// From here on.
    pub(crate) fn begin() -> Self {
        Self {
            // SAFETY: No preconditions; ended by the same thread.
            cookie: unsafe { rkfd::rkfd_fence_begin_signalling() },
            _thread: PhantomData,
        }
    }
}

impl Drop for Signalling {
    fn drop(&mut self) {
        // SAFETY: From `begin`, in the same thread.
        unsafe { rkfd::rkfd_fence_end_signalling(self.cookie) };
    }
}
