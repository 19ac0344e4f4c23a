// SPDX-License-Identifier: GPL-2.0

//! DRM devices and open files without their types, and files that come as descriptors.
//!
//! C headers: [`include/drm/drm_file.h`](srctree/include/drm/drm_file.h),
//! [`include/linux/file.h`](srctree/include/linux/file.h)

use core::{
    marker::PhantomData,
    pin::Pin,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    drm,
    fs::LocalFile,
    prelude::*,
    sync::aref::ARef, //
};

/// A reference to a DRM device.
///
/// # Invariants
///
/// The pointer is a DRM device, and this value owns one of its references.
pub(crate) struct DrmDevice(NonNull<bindings::drm_device>);

// SAFETY: DRM devices are reference-counted and may be released anywhere.
unsafe impl Send for DrmDevice {}
// SAFETY: Gives no access but to more references.
unsafe impl Sync for DrmDevice {}

impl DrmDevice {
    /// Takes a reference to a typed device.
    pub(crate) fn of<D: drm::Driver>(dev: &drm::Device<D>) -> Self {
        // SAFETY: `dev` is a live device.
        unsafe { Self::from_raw(raw_device(dev).as_ptr()) }
    }

    /// Takes a reference.
    ///
    /// # Safety
    ///
    /// `raw` is a live device.
    pub(super) unsafe fn from_raw(raw: *mut bindings::drm_device) -> Self {
        // SAFETY: By the requirement of this function.
        unsafe { bindings::drm_dev_get(raw) };
        // INVARIANT: Referenced above. SAFETY: A live device has an address.
        Self(unsafe { NonNull::new_unchecked(raw) })
    }

    pub(super) fn as_raw(&self) -> *mut bindings::drm_device {
        self.0.as_ptr()
    }

    /// Takes the pages of all user mappings of the device away. The next access to one faults again.
    pub(crate) fn unmap_all(&self) {
        // SAFETY: By the type invariant the device is live; it has had the inode since it was made, and has it until
        // its end.
        unsafe {
            bindings::unmap_mapping_range((*(*self.as_raw()).anon_inode).i_mapping, 0, 0, 1);
        }
    }
}

impl Clone for DrmDevice {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariant.
        unsafe { bindings::drm_dev_get(self.as_raw()) };
        // INVARIANT: The new value owns the reference taken above.
        Self(self.0)
    }
}

impl Drop for DrmDevice {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::drm_dev_put(self.as_raw()) };
    }
}

/// A driver whose open files have an identity.
///
/// # Safety
///
/// It is the only DRM driver that its module registers.
pub(crate) unsafe trait OnlyDriver: drm::Driver {}

/// An open file of driver `D`, kept open.
///
/// # Invariants
///
/// The pointer is a file that `drm_open` opened for a device of `D`, and this value owns one of
/// its references.
pub(crate) struct DrmFile<D: OnlyDriver> {
    file: NonNull<bindings::file>,
    _driver: PhantomData<D>,
}

// SAFETY: Files are reference-counted and may be released anywhere.
unsafe impl<D: OnlyDriver> Send for DrmFile<D> where D::File: Send {}
// SAFETY: Gives shared access to the driver's file data only.
unsafe impl<D: OnlyDriver> Sync for DrmFile<D> where D::File: Sync {}

impl<D: OnlyDriver> DrmFile<D> {
    /// Takes over a reference to a file of any kind.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the file is not one of `D`.
    pub(crate) fn from_file(file: ARef<LocalFile>) -> Result<Self> {
        // SAFETY: The file is valid, and every file has operations.
        let (owner, open) = unsafe {
            let ops = (*file.as_ptr()).f_op;
            ((*ops).owner, (*ops).open)
        };
        // Only operations of a DRM driver open with `drm_open`, and `OnlyDriver` says that the
        // module has no other such driver.
        let ours = kernel::module::this_module::<D::OwnerModule>().as_ptr();
        let drm_open: unsafe extern "C" fn(_, _) -> _ = bindings::drm_open;
        // CAST: The addresses of the functions, which a `usize` holds; they are only compared.
        let is_drm = open.is_some_and(|open| open as usize == drm_open as usize);
        if owner != ours || !is_drm {
            return Err(EINVAL);
        }
        // INVARIANT: Checked above; the reference moves into the value. A `LocalFile` is a `struct file`;
        // that it stays on its thread is for the file position, which is not touched here.
        Ok(Self {
            file: ARef::into_raw(file).cast(),
            _driver: PhantomData,
        })
    }

    /// Whether `file` is this open file, be it by way of another descriptor.
    pub(crate) fn is(&self, file: &LocalFile) -> bool {
        self.file.as_ptr() == file.as_ptr()
    }

    pub(super) fn as_raw(&self) -> NonNull<bindings::drm_file> {
        // SAFETY: By the type invariant `drm_open` set up the file, which stores a `drm_file` there
        // for as long as the file lives.
        unsafe { NonNull::new_unchecked((*self.file.as_ptr()).private_data.cast()) }
    }

    /// The driver's data of the file.
    pub(crate) fn inner(&self) -> Pin<&D::File> {
        // SAFETY: By the type invariant the file is an open one of `D`.
        let file: &drm::File<D::File> = unsafe { drm::File::from_raw(self.as_raw().as_ptr()) };
        file.inner()
    }

    pub(super) fn as_raw_device(&self) -> *mut bindings::drm_device {
        // SAFETY: An open file keeps its minor, and that its device.
        unsafe { (*(*self.as_raw().as_ptr()).minor).dev }
    }

    /// The device that the file was opened on.
    pub(crate) fn device(&self) -> DrmDevice {
        // SAFETY: The open file keeps the device.
        unsafe { DrmDevice::from_raw(self.as_raw_device()) }
    }
}

impl<D: OnlyDriver> Drop for DrmFile<D> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::fput(self.file.as_ptr()) };
    }
}

/// An open file of any driver, while another reference keeps it open.
///
/// # Invariants
///
/// The pointer is a file that is open for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct OpenFile<'a> {
    file: NonNull<bindings::drm_file>,
    _open: PhantomData<&'a bindings::drm_file>,
}

impl OpenFile<'_> {
    pub(super) fn as_raw(self) -> *mut bindings::drm_file {
        self.file.as_ptr()
    }

    pub(super) fn as_raw_device(self) -> *mut bindings::drm_device {
        // SAFETY: By the type invariant the file is open: it keeps its minor, and that its device.
        unsafe { (*(*self.file.as_ptr()).minor).dev }
    }
}

impl<'a, D: OnlyDriver> From<&'a DrmFile<D>> for OpenFile<'a> {
    fn from(file: &'a DrmFile<D>) -> Self {
        // INVARIANT: `file` keeps it open.
        Self {
            file: file.as_raw(),
            _open: PhantomData,
        }
    }
}

impl<'a, F: drm::file::DriverFile> From<&'a drm::File<F>> for OpenFile<'a> {
    fn from(file: &'a drm::File<F>) -> Self {
        // INVARIANT: The file stays open for as long as it is borrowed. `drm::File` is transparent.
        Self {
            file: NonNull::from(file).cast(),
            _open: PhantomData,
        }
    }
}

/// The number of the render node of a registered device, if it has one.
pub(crate) fn render_minor<D: drm::Driver>(dev: &drm::Device<D>) -> Option<u32> {
    // SAFETY: A live device, whose minors stay until its last reference is gone.
    let minor = unsafe { (*raw_device(dev).as_ptr()).render.as_ref() }?;
    u32::try_from(minor.index).ok()
}

/// The C device behind `dev`.
pub(super) fn raw_device<D: drm::Driver>(dev: &drm::Device<D>) -> NonNull<bindings::drm_device> {
    // `drm::Device` is `repr(C)` and starts with its `struct drm_device`.
    NonNull::from(dev).cast()
}
