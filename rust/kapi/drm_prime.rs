// SPDX-License-Identifier: GPL-2.0

//! Import of shared buffers by a DRM driver's ioctl: what the kernel crate's table of a driver lacks.
//!
//! [`drm::Driver`] has no callback for it, and its table is a constant of the kernel crate. [`PrimeDriver`] is a copy of
//! the table with the callback, which a device gets before it is registered.
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
    drm_file::raw_device,
    gem::Object,
    mappable::Mappable, //
};

/// How often a probe looks for the table that another one is copying.
const MAX_LOOKS: u32 = 1000;

/// The table of driver `D`, whose objects hold a `T`, with import of buffers that were shared by it. To be stored in a
/// `static`: devices have a pointer to it until the module goes.
pub(crate) struct PrimeDriver<D, T> {
    table: SetOnce<Table>,
    _types: PhantomData<fn() -> (D, T)>,
}

/// As `drm_driver`.
struct Table(bindings::drm_driver);

// SAFETY: Never changes once it is stored.
unsafe impl Send for Table {}
// SAFETY: As above.
unsafe impl Sync for Table {}

impl<D: drm::Driver, T: Mappable> PrimeDriver<D, T> {
    /// Not copied yet.
    pub(crate) const fn new() -> Self {
        Self {
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
                // SAFETY: Nobody else uses the device yet. The table differs from the one it has, that of `D`, in one
                // callback; it stays for as long as the module.
                unsafe { (*raw).driver = &table.0 };
                return Ok(());
            }
            // SAFETY: The device has a table, a constant.
            let mut table = unsafe { *(*raw).driver };
            table.gem_prime_import = Some(Self::import);
            if !self.table.populate(Table(table)) {
                // The probe of another device is at it.
                fsleep(Delta::from_micros(10));
            }
        }
        Err(EBUSY)
    }

    /// `drm_driver::gem_prime_import`: an object of this device gets another handle.
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
        let object = dma_buf.ok().and_then(|buf| Object::<T>::of_dma_buf(&buf));
        match object.and_then(|object| object.raw_of(dev)) {
            Some(object) => object,
            None => EINVAL.to_ptr(),
        }
    }
}
