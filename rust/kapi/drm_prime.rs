// SPDX-License-Identifier: GPL-2.0

//! Import of shared buffers by a DRM driver's ioctl, and what `fdinfo` shows: what the kernel crate's table of a driver
//! lacks.
//!
//! [`drm::Driver`] has no callbacks for them, and its tables, that of the driver and that of its files, are constants of the
//! kernel crate. [`PrimeDriver`] has copies of the tables with the callbacks, which a device gets before it is registered.
//!
//! What is imported needs an open file of a node that programs reach: `e2e/conformance-dmabuf` tests it, and
//! `e2e/conformance-memory` what `fdinfo` shows.
//!
//! C header: [`include/drm/drm_drv.h`](srctree/include/drm/drm_drv.h)

use core::marker::PhantomData;

use kernel::{
    bindings, drm,
    prelude::*,
    sync::SetOnce,
    time::{
        delay::fsleep,
        Delta, //
    },
};

use super::{
    dma_buf::DmaBuf,
    drm_fdinfo,
    drm_file::raw_device,
    gem::{
        Object,
        ObjectDriver, //
    },
};

/// How often a probe looks for the table that another one is copying.
const MAX_LOOKS: u32 = 1000;

/// A driver that makes objects of what others share.
pub(crate) trait Importer: ObjectDriver + Sized {
    /// An object of `dev` for a buffer of another driver. Called with locks of the DRM core, without reservations.
    ///
    /// # Errors
    ///
    /// Becomes the error of the import.
    fn adopt(dev: &drm::Device<Self>, dma_buf: &DmaBuf) -> Result<Object<Self::Held>>;
}

/// The table of driver `D` with import of buffers that were shared, and with `fdinfo`. To be stored in a `static`: devices
/// have a pointer to it until the module goes.
pub(crate) struct PrimeDriver<D> {
    files: SetOnce<Files>,
    table: SetOnce<Table>,
    _types: PhantomData<fn() -> D>,
}

/// As `file_operations`.
struct Files(bindings::file_operations);

// SAFETY: Never changes once it is stored.
unsafe impl Send for Files {}
// SAFETY: Never changes once it is stored, so shared access only reads.
unsafe impl Sync for Files {}

/// As `drm_driver`.
struct Table(bindings::drm_driver);

// SAFETY: Never changes once it is stored.
unsafe impl Send for Table {}
// SAFETY: Never changes once it is stored, so shared access only reads.
unsafe impl Sync for Table {}

impl<D: Importer> PrimeDriver<D> {
    /// Not copied yet.
    pub(crate) const fn new() -> Self {
        Self {
            files: SetOnce::new(),
            table: SetOnce::new(),
            _types: PhantomData,
        }
    }

    /// Gives `dev` the table.
    ///
    /// # Errors
    ///
    /// `EBUSY`: another probe does not get it done.
    pub(crate) fn install(&'static self, dev: &drm::UnregisteredDevice<D>) -> Result {
        let raw = raw_device(dev).as_ptr();
        for _ in 0..MAX_LOOKS {
            if let Some(table) = self.table.as_ref() {
                // SAFETY: The device has no other user yet. The table differs from the one it has, that of `D`, in
                // callbacks for any driver with such objects; it stays for as long as the module.
                unsafe { (*raw).driver = &table.0 };
                return Ok(());
            }
            // SAFETY: The device has a table, a constant.
            let mut table = unsafe { *(*raw).driver };
            let stored = match self.files.as_ref() {
                None => {
                    // SAFETY: Every driver's table has one of its files, another constant.
                    let mut files = unsafe { *table.fops };
                    files.show_fdinfo = Some(bindings::drm_show_fdinfo);
                    self.files.populate(Files(files))
                }
                Some(files) => {
                    table.fops = &files.0;
                    table.gem_prime_import = Some(Self::import);
                    table.show_fdinfo = Some(drm_fdinfo::show::<D::Held>);
                    self.table.populate(Table(table))
                }
            };
            if !stored {
                // The probe of another device is at it.
                fsleep(Delta::from_micros(10));
            }
        }
        Err(EBUSY)
    }

    /// `drm_driver::gem_prime_import`: an object of this device gets another handle, and a buffer of another driver an
    /// object of its own. The DRM core has noted the buffer of a handle, and gives that where the handle is exported.
    ///
    /// # Safety
    ///
    /// Called by the DRM core with a device that [`Self::install`] was called for, and a `dma_buf` that the caller
    /// holds.
    unsafe extern "C" fn import(
        dev: *mut bindings::drm_device,
        dma_buf: *mut bindings::dma_buf,
    ) -> *mut bindings::drm_gem_object {
        // SAFETY: The caller holds the buffer; this takes the reference that `from_raw` expects.
        let dma_buf = unsafe {
            bindings::get_file((*dma_buf).file);
            DmaBuf::from_raw(dma_buf)
        };
        let object = dma_buf.and_then(|buf| match Object::<D::Held>::of_dma_buf(&buf) {
            Some(object) => Ok(object),
            // SAFETY: The device is one of `D`, for which `install` is called alone, and the caller holds it.
            None => D::adopt(unsafe { drm::Device::from_raw(dev) }, &buf),
        });
        match object.and_then(|object| object.raw_of(dev).ok_or(EINVAL)) {
            Ok(object) => object,
            Err(e) => e.to_ptr(),
        }
    }
}
