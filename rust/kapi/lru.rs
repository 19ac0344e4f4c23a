// SPDX-License-Identifier: GPL-2.0

//! The objects of a device in the order of their use: `drm_gem_lru`.
//!
//! A list has no references. An object leaves it at its end, before its content goes, so that a walk of the list gets a
//! reference or skips the object.
//!
//! Lock order: the list's lock (`drm_device::gem_lru_mutex`) is innermost.
//!
//! C header: [`include/drm/drm_gem.h`](srctree/include/drm/drm_gem.h)

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

use super::drm_file::DrmDevice;

/// Objects that one walk takes at most.
pub(crate) const MOST: usize = 4096;

/// Objects of one device that hold a `T`, the one that was used longest ago first.
///
/// # Invariants
///
/// Every object in the list holds a `T`, is of the device at `dev`, and keeps the list.
#[pin_data]
pub(crate) struct ObjectLru<T> {
    #[pin]
    raw: Opaque<bindings::drm_gem_lru>,
    /// Only compared: the list does not keep its device.
    dev: *mut bindings::drm_device,
    _types: PhantomData<fn() -> T>,
}

// SAFETY: The list is changed with the device's lock held.
unsafe impl<T> Send for ObjectLru<T> {}
// SAFETY: Shared access changes the list with the device's lock held, too; `dev` is only compared.
unsafe impl<T> Sync for ObjectLru<T> {}

impl<T> ObjectLru<T> {
    /// An empty list for objects of `dev`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(dev: &DrmDevice) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                raw <- Opaque::ffi_init(|lru| {
                    // SAFETY: Memory for a list, which does not move.
                    unsafe { bindings::drm_gem_lru_init(lru) }
                }),
                dev: dev.as_raw(),
                _types: PhantomData,
            }),
            GFP_KERNEL,
        )
    }

    /// Whether objects of `dev` may be in it.
    pub(super) fn is_of(&self, dev: &DrmDevice) -> bool {
        self.dev == dev.as_raw()
    }

    /// Makes `object` the one that was used last.
    ///
    /// # Safety
    ///
    /// `object` is live, holds a `T`, is of the list's device, and keeps this list until it has left it.
    pub(super) unsafe fn move_to_tail(&self, object: NonNull<bindings::drm_gem_object>) {
        // INVARIANT: By the requirements of this function.
        // SAFETY: By the requirements of this function the object is live and of the device whose lock guards the list,
        // which is initialised and does not move.
        unsafe { bindings::drm_gem_lru_move_tail(self.raw.get(), object.as_ptr()) };
    }

    /// Calls `f` with a reference of each object, at most 4096, the one that was used longest ago first; `f` owns it. None
    /// if `dev` is another device.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn take_each(
        &self,
        dev: &DrmDevice,
        mut f: impl FnMut(NonNull<bindings::drm_gem_object>),
    ) -> Result {
        if !self.is_of(dev) {
            return Ok(());
        }
        let mut raw: KVVec<*mut bindings::drm_gem_object> = KVVec::with_capacity(MOST, GFP_KERNEL)?;
        let room = c_uint::try_from(MOST)?;
        // SAFETY: The device is live, the list one of its, and there is memory for as many pointers.
        let count = unsafe {
            crate::bindings::rkfd_lru_take(dev.as_raw(), self.raw.get(), raw.as_mut_ptr(), room)
        };
        let count = usize::try_from(count).unwrap_or(0).min(MOST);
        // SAFETY: The helper has written as many pointers, which need no drop.
        let taken = unsafe { core::slice::from_raw_parts(raw.as_ptr(), count) };
        for raw in taken {
            if let Some(raw) = NonNull::new(*raw) {
                f(raw);
            }
        }
        Ok(())
    }
}
