// SPDX-License-Identifier: GPL-2.0

//! GEM objects around values that say what their pages are.
//!
//! [`kernel::drm::gem::Object`] offers no `mmap`, and each one carries a shmem file. [`Object`] is a
//! bare GEM object. It has an offset on the DRM node; a file may map it there while it has a handle of the
//! object ([`Object::create_handle`]), which user space may close by itself, and which ends with the file. By the
//! handle it can be shared as a [`DmaBuf`].
//!
//! C header: [`include/drm/drm_gem.h`](srctree/include/drm/drm_gem.h)

use core::{
    ops::Deref,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    drm,
    error::to_result,
    fs::file::flags::O_RDWR,
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

use super::{
    dma_buf::DmaBuf,
    drm_file::{
        DrmDevice,
        DrmFile,
        OnlyDriver,
        OpenFile, //
    },
    lru::{
        ObjectLru,
        MOST, //
    },
    mappable::{
        Inner,
        Mappable, //
    },
    vma, //
};

/// A driver whose objects all hold the same type.
///
/// # Safety
///
/// Every GEM object that a file of its devices has a handle of was made by [`Object::<Self::Held>::new`].
pub(crate) unsafe trait ObjectDriver: OnlyDriver {
    /// What they hold.
    type Held: Mappable;
}

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
        funcs.export = Some(Self::export);
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
        Self::with_lru(dev, size, data, None)
    }

    /// As [`Self::new`]; `lru` is the list that it may be in, from the first [`Self::touch`] on. A list of another device is
    /// none.
    ///
    /// # Errors
    ///
    /// Those of [`Self::new`].
    pub(crate) fn with_lru(
        dev: &DrmDevice,
        size: usize,
        data: T,
        lru: Option<Arc<ObjectLru<T>>>,
    ) -> Result<Self> {
        if size == 0 || size % PAGE_SIZE != 0 {
            return Err(EINVAL);
        }
        let inner = KBox::new(
            Inner {
                obj: Opaque::zeroed(),
                data,
                lru: lru.filter(|lru| lru.is_of(dev)),
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
        // SAFETY: The object was initialised above, and `this` has a reference.
        to_result(unsafe { bindings::drm_gem_create_mmap_offset(this.as_raw()) })?;
        Ok(this)
    }

    /// Takes over a reference from C.
    ///
    /// # Safety
    ///
    /// `raw` is a live object that [`Self::new`] made, and the caller gives one of its references up.
    pub(super) unsafe fn from_raw(raw: NonNull<bindings::drm_gem_object>) -> Self {
        // SAFETY: By the requirement of this function; the object keeps its device.
        let dev = unsafe { DrmDevice::from_raw((*raw.as_ptr()).dev) };
        // INVARIANT: By the requirement of this function.
        Self {
            inner: raw.cast(),
            dev,
        }
    }

    /// The object was used: it becomes the last one of its list, if it has one.
    pub(crate) fn touch(&self) {
        // SAFETY: By the type invariant the object is live.
        if let Some(lru) = unsafe { &self.inner.as_ref().lru } {
            // SAFETY: The object is live and holds a `T`; `with_lru` has compared the device, and the object keeps
            // the list.
            unsafe { lru.move_to_tail(self.inner.cast()) };
        }
    }

    /// Takes it out of its list, until the next [`Self::touch`].
    pub(crate) fn unlist(&self) {
        // SAFETY: By the type invariant the object is live.
        unsafe { bindings::drm_gem_lru_remove(self.as_raw()) };
    }

    pub(super) fn as_raw(&self) -> *mut bindings::drm_gem_object {
        // SAFETY: By the type invariant the object is live.
        unsafe { self.inner.as_ref() }.obj.get()
    }

    /// Called when the last reference is gone.
    ///
    /// # Safety
    ///
    /// Called by the DRM core for an object made by [`Self::new`].
    unsafe extern "C" fn free(obj: *mut bindings::drm_gem_object) {
        // SAFETY: The object's last reference is gone, so it has no other user.
        unsafe { bindings::drm_gem_object_release(obj) };
        // SAFETY: Leaked from a `KBox` in `new`; `obj` is its first field.
        drop(unsafe { KBox::from_raw(obj.cast::<Inner<T>>()) });
    }

    /// Bytes, whole pages.
    pub(crate) fn size(&self) -> usize {
        // SAFETY: The object is live; its size does not change.
        unsafe { (*self.as_raw()).size }
    }

    /// The offset at which the object can be mapped from its DRM node.
    pub(crate) fn mmap_offset(&self) -> u64 {
        // SAFETY: The object is live and got an offset in `new`.
        unsafe { bindings::drm_vma_node_offset_addr(&raw mut (*self.as_raw()).vma_node) }
    }

    /// Maps the object as the DRM core does when a file of the node is mapped.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the mapping is larger than the object, else as [`vma::mmap`].
    #[cfg(rkfd_kunit)]
    pub(crate) fn map_in_test(&self, request: super::chrdev::MmapRequest<'_>) -> Result {
        let obj = self.as_raw();
        // SAFETY: The object is live, and the mapping is being set up.
        to_result(unsafe { bindings::drm_gem_mmap_obj(obj, (*obj).size, request.vma()) })
    }

    /// `drm_gem_object_funcs::export`.
    ///
    /// # Safety
    ///
    /// Called by the DRM core for an object made by [`Self::new`].
    unsafe extern "C" fn export(
        obj: *mut bindings::drm_gem_object,
        flags: c_int,
    ) -> *mut bindings::dma_buf {
        // SAFETY: `obj` is embedded in an `Inner<T>` that the caller holds.
        let inner = unsafe { Inner::<T>::from_gem(obj) };
        match inner.data().may_export() {
            // SAFETY: `obj` is embedded in an `Inner<T>` that the caller holds, so it is live.
            Ok(()) => unsafe { T::export_ops().export(obj, flags) },
            Err(e) => e.to_ptr(),
        }
    }

    /// Shares the object without a handle.
    ///
    /// # Errors
    ///
    /// Those of [`Mappable::may_export`]; `ENOMEM`, `ENFILE`.
    #[cfg(rkfd_kunit)]
    pub(crate) fn share(&self) -> Result<DmaBuf> {
        // SAFETY: The object is live, and embedded in an `Inner<T>`.
        let raw = unsafe { Self::export(self.as_raw(), 0) };
        // SAFETY: The result's reference is ours.
        unsafe { DmaBuf::from_raw(raw) }
    }

    /// Shares the object, of which `file` has `handle`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the file is one of another device, or user space has closed the handle.
    /// - Those of [`Mappable::may_export`]; `ENOMEM`, `ENFILE`.
    pub(crate) fn export_handle<D: OnlyDriver>(
        &self,
        file: &DrmFile<D>,
        handle: u32,
        writable: bool,
    ) -> Result<DmaBuf> {
        if file.as_raw_device() != self.dev.as_raw() {
            return Err(EINVAL);
        }
        let flags = if writable { O_RDWR } else { 0 };
        // SAFETY: The file is open, and both are of one device.
        let raw = unsafe {
            bindings::drm_gem_prime_handle_to_dmabuf(
                self.dev.as_raw(),
                file.as_raw().as_ptr(),
                handle,
                flags,
            )
        };
        // SAFETY: The result's reference is ours.
        let dma_buf = unsafe { DmaBuf::from_raw(raw) }.map_err(|e| match e {
            e if e == ENOENT => EINVAL,
            e => e,
        })?;
        // The number may name another object by now.
        if T::export_ops().object_of(&dma_buf).map(NonNull::as_ptr) != Some(self.as_raw()) {
            return Err(EINVAL);
        }
        Ok(dma_buf)
    }

    /// The object that is shared as `dma_buf`, if it is one with a `T`.
    pub(crate) fn of_dma_buf(dma_buf: &DmaBuf) -> Option<Self> {
        let obj = T::export_ops().object_of(dma_buf)?;
        // SAFETY: The buffer keeps the object, and that its device, which this takes a reference of.
        let dev = unsafe { DrmDevice::from_raw((*obj.as_ptr()).dev) };
        // SAFETY: The buffer keeps the object, so it has a reference to add to.
        unsafe { bindings::drm_gem_object_get(obj.as_ptr()) };
        // INVARIANT: Referenced above; exported with the operations for `T`, hence embedded in an `Inner<T>`.
        Some(Self {
            inner: obj.cast(),
            dev,
        })
    }

    /// A reference for C, if the object is one of `dev`.
    pub(super) fn raw_of(
        &self,
        dev: *mut bindings::drm_device,
    ) -> Option<*mut bindings::drm_gem_object> {
        if self.dev.as_raw() != dev {
            return None;
        }
        // SAFETY: The object is live; this takes the reference of the result.
        unsafe { bindings::drm_gem_object_get(self.as_raw()) };
        Some(self.as_raw())
    }

    /// Gives the object a handle in `file`, which may map the object as long as it has one.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the file is one of another device, `ENOMEM`, `ENOSPC`.
    pub(crate) fn create_handle<'a>(&self, file: impl Into<OpenFile<'a>>) -> Result<u32> {
        let file = file.into();
        if file.as_raw_device() != self.dev.as_raw() {
            return Err(EINVAL);
        }
        let mut handle = 0;
        // SAFETY: The file is open, the object live, and both are of one device.
        to_result(unsafe {
            bindings::drm_gem_handle_create(file.as_raw(), self.as_raw(), &mut handle)
        })?;
        Ok(handle)
    }

    /// The object with `handle` in `file`, if there is one.
    pub(crate) fn of_handle<F>(file: &drm::File<F>, handle: u32) -> Option<Self>
    where
        F: drm::file::DriverFile,
        F::Driver: ObjectDriver<Held = T>,
    {
        let file = OpenFile::from(file);
        // SAFETY: The file is open.
        let obj = unsafe { bindings::drm_gem_object_lookup(file.as_raw(), handle) };
        let obj = NonNull::new(obj)?;
        // SAFETY: The object is live, and keeps its device.
        let dev = unsafe { DrmDevice::from_raw((*obj.as_ptr()).dev) };
        // INVARIANT: The lookup took the reference; by the requirement of `ObjectDriver` the object is an `Inner<T>`.
        Some(Self {
            inner: obj.cast(),
            dev,
        })
    }

    /// Takes `handle` from `file`, if it still is one of this object: user space may have closed it, and the
    /// number may since name another. Mappings that exist stay.
    ///
    /// A file whose user closes handles while this runs may lose a handle of another of its own objects.
    pub(crate) fn delete_handle<D: OnlyDriver>(&self, file: &DrmFile<D>, handle: u32) {
        let raw = file.as_raw().as_ptr();
        // SAFETY: The file is open.
        let named = unsafe { bindings::drm_gem_object_lookup(raw, handle) };
        if named.is_null() {
            return;
        }
        // SAFETY: The lookup took this reference.
        unsafe { bindings::drm_gem_object_put(named) };
        // Only compared: `self` keeps its object, so that no other can have the address.
        if named == self.as_raw() {
            // Fails if the handle was closed meanwhile.
            // SAFETY: The file is open.
            let _ = unsafe { bindings::drm_gem_handle_delete(raw, handle) };
        }
    }
}

impl<T: Mappable> ObjectLru<T> {
    /// References of the objects, at most 4096, the one that was used longest ago first. None if `dev` is another device.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn snapshot(&self, dev: &DrmDevice) -> Result<KVVec<Object<T>>> {
        let mut objects = KVVec::with_capacity(MOST, GFP_KERNEL)?;
        self.take_each(dev, |raw| {
            // SAFETY: By the type invariant of the list an object that holds a `T`; the reference is ours.
            let object = unsafe { Object::from_raw(raw) };
            // There is room for all.
            let _ = objects.push_within_capacity(object);
        })?;
        Ok(objects)
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
