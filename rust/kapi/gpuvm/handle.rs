// SPDX-License-Identifier: GPL-2.0

//! References to an address space, which outlive its ranges. The suite `rkfd_gpuvm` tests it.

use core::ptr::NonNull;

use kernel::bindings;

/// Names an address space, to make [`MapReservation`](super::MapReservation) while others change it.
///
/// # Invariants
///
/// The pointer is a `drm_gpuvm` that [`GpuVm::new`](super::GpuVm::new) made, and this value owns one of its references.
pub(crate) struct Handle(NonNull<bindings::drm_gpuvm>);

// SAFETY: Address spaces are reference-counted and may be released anywhere.
unsafe impl Send for Handle {}
// SAFETY: Gives no access but to what has locks of its own.
unsafe impl Sync for Handle {}

impl Handle {
    /// # Safety
    ///
    /// [`GpuVm::new`](super::GpuVm::new) made `vm`, and one of its references becomes the result's.
    pub(super) unsafe fn from_raw(vm: NonNull<bindings::drm_gpuvm>) -> Self {
        // INVARIANT: By the requirement of this function.
        Self(vm)
    }

    /// The address space as C has it, live as long as `self`.
    pub(super) fn as_raw(&self) -> *mut bindings::drm_gpuvm {
        self.0.as_ptr()
    }

    /// Frees what mappings of objects left that have no range any more.
    pub(super) fn clean_up(&self) {
        // SAFETY: By the type invariant; made in immediate mode. The caller may sleep, as wherever ranges are dropped.
        unsafe { bindings::drm_gpuvm_bo_deferred_cleanup(self.as_raw()) };
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariant.
        unsafe { bindings::drm_gpuvm_get(self.as_raw()) };
        // INVARIANT: The new value owns the reference taken above.
        Self(self.0)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::drm_gpuvm_put(self.as_raw()) };
    }
}
