// SPDX-License-Identifier: GPL-2.0

//! Buffers that are shared by a descriptor: `dma_buf`.
//!
//! An [`Object`](super::gem::Object) is exported with the operations of its content's type ([`ExportOps`]). There is
//! one table of them for each type, so that a `dma_buf` with these operations is such an object.
//!
//! Buffers of other drivers are imported by `DmaMapper::import`. What other drivers attach to stays where it is: pages can
//! be mapped for any device, and what is no pages cannot be attached. User space maps a `dma_buf` as it maps the object,
//! and the end of the object's device ends both.
//!
//! C header: [`include/linux/dma-buf.h`](srctree/include/linux/dma-buf.h)

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    error::from_err_ptr,
    fs::file::flags::O_CLOEXEC,
    prelude::*,
    types::Opaque, //
};
#[cfg(rkfd_kunit)]
use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::DataDirection, //
};

use super::{
    dma_table,
    mappable::{
        ExportOps,
        Inner,
        Mappable, //
    },
};

/// A reference to a buffer of any driver.
///
/// # Invariants
///
/// The pointer is a `dma_buf`, and this value owns one of its references.
pub(crate) struct DmaBuf(NonNull<bindings::dma_buf>);

// SAFETY: Buffers are reference-counted and may be released anywhere.
unsafe impl Send for DmaBuf {}
// SAFETY: Gives no access but to more references, and what does not change.
unsafe impl Sync for DmaBuf {}

impl DmaBuf {
    /// The buffer behind a descriptor of the current process.
    ///
    /// # Errors
    ///
    /// `EBADF`: no such file. `EINVAL`: no `dma_buf`.
    pub(crate) fn from_fd(fd: u32) -> Result<Self> {
        let fd = c_int::try_from(fd).map_err(|_| EBADF)?;
        // SAFETY: No preconditions.
        let raw = unsafe { bindings::dma_buf_get(fd) };
        // SAFETY: The reference is ours.
        unsafe { Self::from_raw(raw) }
    }

    /// Takes over a reference.
    ///
    /// # Errors
    ///
    /// What `raw` is, if it is one.
    ///
    /// # Safety
    ///
    /// `raw` is an encoded error, or a `dma_buf` with a reference that the caller gives away.
    pub(super) unsafe fn from_raw(raw: *mut bindings::dma_buf) -> Result<Self> {
        // INVARIANT: By the requirement of this function.
        Ok(Self(NonNull::new(from_err_ptr(raw)?).ok_or(EINVAL)?))
    }

    pub(super) fn as_raw(&self) -> *mut bindings::dma_buf {
        self.0.as_ptr()
    }

    /// Bytes.
    pub(crate) fn size(&self) -> u64 {
        // CAST: `usize` is at most 64 bits wide.
        // SAFETY: By the type invariant; it does not change.
        unsafe { (*self.as_raw()).size as u64 }
    }

    /// Waits until buffers that the current thread, one of the kernel, has given up are gone.
    #[cfg(rkfd_kunit)]
    pub(crate) fn settle() {
        // SAFETY: No preconditions but that the caller may sleep, as wherever buffers are dropped.
        unsafe { bindings::flush_delayed_fput() };
    }

    /// Makes a descriptor of the current process. Of `flags` only `O_CLOEXEC` counts.
    ///
    /// # Errors
    ///
    /// `EMFILE`: the process has too many. `ENOMEM`.
    pub(crate) fn into_fd(self, flags: u32) -> Result<u32> {
        // CAST: A single bit, below 31.
        let flags = (flags & O_CLOEXEC) as c_int;
        // SAFETY: By the type invariant.
        let fd = unsafe { bindings::dma_buf_fd(self.as_raw(), flags) };
        let fd = u32::try_from(fd).map_err(|_| Error::from_errno(fd))?;
        // The descriptor has the reference now.
        core::mem::forget(self);
        Ok(fd)
    }
}

impl Clone for DmaBuf {
    fn clone(&self) -> Self {
        // A buffer's references are those of its file.
        // SAFETY: By the type invariant.
        unsafe { bindings::get_file((*self.as_raw()).file) };
        // INVARIANT: Referenced above.
        Self(self.0)
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::dma_buf_put(self.as_raw()) };
    }
}

impl<T: Mappable> ExportOps<T> {
    /// The table of `T`.
    pub(crate) const fn new() -> Self {
        let mut ops: bindings::dma_buf_ops = pin_init::zeroed();
        ops.attach = Some(Self::attach);
        ops.map_dma_buf = Some(Self::map);
        ops.unmap_dma_buf = Some(Self::unmap);
        ops.mmap = Some(bindings::drm_gem_dmabuf_mmap);
        ops.release = Some(bindings::drm_gem_dmabuf_release);
        Self(ops, PhantomData)
    }

    /// The object that is shared as `dma_buf`, without a reference of its own.
    pub(super) fn object_of(&self, dma_buf: &DmaBuf) -> Option<NonNull<bindings::drm_gem_object>> {
        // SAFETY: By the type invariant of `DmaBuf`; neither field changes.
        let (ops, private) = unsafe { ((*dma_buf.as_raw()).ops, (*dma_buf.as_raw()).priv_) };
        if !core::ptr::eq(ops, &self.0) {
            return None;
        }
        NonNull::new(private.cast())
    }

    /// Shares an object.
    ///
    /// # Safety
    ///
    /// `obj` is embedded in an `Inner<T>` and live.
    pub(super) unsafe fn export(
        &'static self,
        obj: *mut bindings::drm_gem_object,
        flags: c_int,
    ) -> *mut bindings::dma_buf {
        let mut info: bindings::dma_buf_export_info = pin_init::zeroed();
        // SAFETY: A live object has a device, and that a driver with file operations.
        unsafe {
            info.owner = (*(*(*(*obj).dev).driver).fops).owner;
            info.size = (*obj).size;
            info.resv = (*obj).resv;
        }
        info.exp_name = c"rkfd".as_char_ptr();
        info.ops = &self.0;
        info.flags = flags;
        info.priv_ = obj.cast();
        // SAFETY: All that the buffer needs is set; the function takes references to device and object, which `release`
        // gives back.
        unsafe { bindings::drm_gem_dmabuf_export((*obj).dev, &mut info) }
    }

    /// `dma_buf_ops::attach`: a device is going to map the buffer.
    ///
    /// # Safety
    ///
    /// Called by C for a buffer that [`Self::export`] made.
    unsafe extern "C" fn attach(
        dma_buf: *mut bindings::dma_buf,
        _attachment: *mut bindings::dma_buf_attachment,
    ) -> c_int {
        // SAFETY: The buffer keeps the object, which is embedded in an `Inner<T>`.
        let inner = unsafe { Inner::<T>::from_gem((*dma_buf).priv_.cast()) };
        match inner.data().pages() {
            Some(_) => 0,
            None => EOPNOTSUPP.to_errno(),
        }
    }

    /// `dma_buf_ops::map_dma_buf`.
    ///
    /// # Safety
    ///
    /// Called by C for an attachment to a buffer that [`Self::export`] made.
    unsafe extern "C" fn map(
        attachment: *mut bindings::dma_buf_attachment,
        dir: bindings::dma_data_direction,
    ) -> *mut bindings::sg_table {
        // SAFETY: An attachment keeps its buffer, and that the object, which is embedded in an `Inner<T>`.
        let (dev, inner) = unsafe {
            let obj = (*(*attachment).dmabuf).priv_.cast();
            ((*attachment).dev, Inner::<T>::from_gem(obj))
        };
        let Some(pages) = inner.data().pages() else {
            return EOPNOTSUPP.to_ptr();
        };
        // SAFETY: An importer detaches its device before that is unbound, and unmaps before; the object keeps the
        // pages.
        match unsafe { dma_table::map_table(dev, pages, dir) } {
            Ok(table) => KBox::into_raw(table).cast(),
            Err(e) => e.to_ptr(),
        }
    }

    /// `dma_buf_ops::unmap_dma_buf`.
    ///
    /// # Safety
    ///
    /// Called by C with a result of [`Self::map`] for the same attachment and direction.
    unsafe extern "C" fn unmap(
        attachment: *mut bindings::dma_buf_attachment,
        table: *mut bindings::sg_table,
        dir: bindings::dma_data_direction,
    ) {
        // SAFETY: From `map`; `Opaque` is transparent.
        let table = unsafe { KBox::from_raw(table.cast::<Opaque<bindings::sg_table>>()) };
        // SAFETY: Mapped by `map` for this device and direction, and not used any more.
        unsafe { dma_table::unmap_table((*attachment).dev, &table, dir) };
    }
}

/// A device of whatever driver that is attached to a buffer.
///
/// # Invariants
///
/// `raw` is an attachment to `dma_buf` of a device that stays bound for `'a`.
#[cfg(rkfd_kunit)]
pub(crate) struct Attachment<'a> {
    raw: NonNull<bindings::dma_buf_attachment>,
    dma_buf: DmaBuf,
    _device: PhantomData<&'a Device<Bound>>,
}

#[cfg(rkfd_kunit)]
impl<'a> Attachment<'a> {
    /// Attaches `dev`.
    ///
    /// # Errors
    ///
    /// What the exporter reports, `ENOMEM`.
    pub(crate) fn new(dma_buf: &DmaBuf, dev: &'a Device<Bound>) -> Result<Self> {
        // `Device` is `repr(transparent)` over `Opaque<struct device>`.
        let dev: *mut bindings::device = core::ptr::from_ref(dev).cast_mut().cast();
        // SAFETY: The buffer is live by the type invariant of `DmaBuf`, the device is bound for `'a`.
        let raw = from_err_ptr(unsafe { bindings::dma_buf_attach(dma_buf.as_raw(), dev) })?;
        Ok(Self {
            // INVARIANT: Attached above.
            raw: NonNull::new(raw).ok_or(EINVAL)?,
            dma_buf: dma_buf.clone(),
            _device: PhantomData,
        })
    }

    /// Maps the buffer, runs `f` with the number of bytes that the device sees, and unmaps it.
    ///
    /// # Errors
    ///
    /// What the exporter reports.
    pub(crate) fn map<R>(&self, f: impl FnOnce(u64) -> R) -> Result<R> {
        let dir = bindings::dma_data_direction::from(DataDirection::Bidirectional);
        // SAFETY: By the type invariant; this thread does not hold the lock of the buffer.
        let table = from_err_ptr(unsafe {
            bindings::dma_buf_map_attachment_unlocked(self.raw.as_ptr(), dir)
        })?;
        // SAFETY: A mapped table, of which this reads the entries that the device sees.
        let len = unsafe {
            let mut sg = (*table).sgl;
            let mut len = 0;
            for _ in 0..(*table).nents {
                len += u64::from(bindings::sg_dma_len(sg));
                sg = bindings::sg_next(sg);
            }
            len
        };
        let result = f(len);
        // SAFETY: Mapped above.
        unsafe { bindings::dma_buf_unmap_attachment_unlocked(self.raw.as_ptr(), table, dir) };
        Ok(result)
    }
}

#[cfg(rkfd_kunit)]
impl Drop for Attachment<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; nothing is mapped.
        unsafe { bindings::dma_buf_detach(self.dma_buf.as_raw(), self.raw.as_ptr()) };
    }
}
