// SPDX-License-Identifier: GPL-2.0

//! GEM objects that only exist to be mapped.
//!
//! [`kernel::drm::gem::Object`] offers no `mmap`, and each one carries a shmem file. [`Object`] is a
//! bare GEM object around a value that says what its pages are. It has an offset on the DRM node
//! at which files that were allowed to may map it, and no handles.
//!
//! C header: [`include/drm/drm_gem.h`](srctree/include/drm/drm_gem.h)

use core::{
    ops::Deref,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    error::to_result,
    page::PAGE_SIZE,
    prelude::*,
    types::Opaque, //
};

use super::{
    drm_file::{
        DrmDevice,
        FileTag, //
    },
    mappable::{
        Inner,
        Mappable, //
    },
    vma, //
};

/// A reference to a GEM object that holds a `T`.
///
/// # Invariants
///
/// `inner` is a live object of `dev`, and this value owns one of its references.
pub(crate) struct Object<T: Mappable> {
    inner: NonNull<Inner<T>>,
    // Last: the object's last reference needs its device.
    dev: DrmDevice,
}

// SAFETY: A reference to a `Send` and `Sync` value; GEM objects may be released anywhere.
unsafe impl<T: Mappable> Send for Object<T> {}
// SAFETY: Gives shared access to a `Sync` value only.
unsafe impl<T: Mappable> Sync for Object<T> {}

impl<T: Mappable> Object<T> {
    const VM_OPS: bindings::vm_operations_struct = vma::ops::<T>();

    const FUNCS: bindings::drm_gem_object_funcs = {
        let mut funcs: bindings::drm_gem_object_funcs = pin_init::zeroed();
        funcs.free = Some(Self::free);
        funcs.mmap = Some(vma::mmap::<T>);
        funcs.vm_ops = &Self::VM_OPS;
        funcs
    };

    /// Makes an object of `size` bytes with an offset to map it at.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `size` is not a positive multiple of the page size, `ENOMEM`.
    pub(crate) fn new(dev: &DrmDevice, size: usize, data: T) -> Result<Self> {
        if size == 0 || size % PAGE_SIZE != 0 {
            return Err(EINVAL);
        }
        let inner = KBox::new(
            Inner {
                obj: Opaque::zeroed(),
                data,
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        let inner = NonNull::from(KBox::leak(inner));
        // SAFETY: The object is not shared yet and stays where it is until `free`.
        unsafe {
            let obj = (*inner.as_ptr()).obj.get();
            (*obj).funcs = &Self::FUNCS;
            bindings::drm_gem_private_object_init(dev.as_raw(), obj, size);
        }
        // INVARIANT: Initialised above with one reference, which is ours. From here on dropping
        // `this` undoes everything.
        let this = Self {
            inner,
            dev: dev.clone(),
        };
        // SAFETY: The object is valid.
        to_result(unsafe { bindings::drm_gem_create_mmap_offset(this.as_raw()) })?;
        Ok(this)
    }

    fn as_raw(&self) -> *mut bindings::drm_gem_object {
        // SAFETY: By the type invariant the object is live.
        unsafe { self.inner.as_ref() }.obj.get()
    }

    /// Called when the last reference is gone.
    ///
    /// # Safety
    ///
    /// Called by the DRM core for an object made by [`Self::new`].
    unsafe extern "C" fn free(obj: *mut bindings::drm_gem_object) {
        // SAFETY: The object is valid, and nobody else uses it.
        unsafe { bindings::drm_gem_object_release(obj) };
        // SAFETY: Leaked from a `KBox` in `new`; `obj` is its first field.
        drop(unsafe { KBox::from_raw(obj.cast::<Inner<T>>()) });
    }

    /// The offset at which the object can be mapped from its DRM node.
    pub(crate) fn mmap_offset(&self) -> u64 {
        // SAFETY: The object is live and got an offset in `new`.
        unsafe { bindings::drm_vma_node_offset_addr(&raw mut (*self.as_raw()).vma_node) }
    }

    /// Lets the file behind `tag` map the object, until [`Self::revoke`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn allow(&self, tag: FileTag) -> Result {
        // SAFETY: The object is live; the tag is only compared.
        to_result(unsafe {
            bindings::drm_vma_node_allow(&raw mut (*self.as_raw()).vma_node, tag.as_raw())
        })
    }

    /// Undoes one [`Self::allow`]; mappings that exist stay.
    pub(crate) fn revoke(&self, tag: FileTag) {
        // SAFETY: As in `allow`.
        unsafe { bindings::drm_vma_node_revoke(&raw mut (*self.as_raw()).vma_node, tag.as_raw()) };
    }

    /// Whether the file behind `tag` may map the object.
    #[cfg(rkfd_kunit)]
    pub(crate) fn is_allowed(&self, tag: FileTag) -> bool {
        // SAFETY: As in `allow`.
        unsafe {
            bindings::drm_vma_node_is_allowed(&raw mut (*self.as_raw()).vma_node, tag.as_raw())
        }
    }

    /// A number that no other live object has.
    pub(crate) fn key(&self) -> usize {
        self.inner.as_ptr().addr()
    }
}

impl<T: Mappable> Clone for Object<T> {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariant the object is live.
        unsafe { bindings::drm_gem_object_get(self.as_raw()) };
        // INVARIANT: The new value owns the reference taken above.
        Self {
            inner: self.inner,
            dev: self.dev.clone(),
        }
    }
}

impl<T: Mappable> Drop for Object<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant we own this reference.
        unsafe { bindings::drm_gem_object_put(self.as_raw()) };
    }
}

impl<T: Mappable> Deref for Object<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the type invariant the object is live.
        &unsafe { self.inner.as_ref() }.data
    }
}
