// SPDX-License-Identifier: GPL-2.0

//! Device classes and their virtual devices.
//!
//! C header: [`include/linux/device/class.h`](srctree/include/linux/device/class.h)

use crate::bindings as rkfd;
use kernel::{
    bindings,
    device::Device,
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*,
    types::Opaque, //
};

/// Access mode of the device nodes of a class: all users may read and write.
const NODE_MODE: bindings::umode_t = 0o666;

/// A registered class.
///
/// # Invariants
///
/// `class` is registered.
#[pin_data(PinnedDrop)]
pub(crate) struct Class {
    #[pin]
    class: Opaque<bindings::class>,
}

// SAFETY: The driver core has its own locks; a class may be unregistered by any thread.
unsafe impl Send for Class {}
// SAFETY: Shared access only creates devices, under the locks of the driver core.
unsafe impl Sync for Class {}

impl Class {
    /// Registers a class; its device nodes are open to all users.
    ///
    /// # Errors
    ///
    /// `EBUSY`: there is one of this name, of another driver.
    pub(crate) fn new(name: &'static CStr) -> Result<Pin<KBox<Self>>> {
        // The driver core would find out too, with a warning and a stack dump.
        // SAFETY: `name` is a string.
        if unsafe { rkfd::rkfd_class_exists(name.as_char_ptr()) } {
            return Err(EBUSY);
        }
        KBox::try_pin_init(
            try_pin_init!(Self {
                class <- Opaque::try_ffi_init(|slot: *mut bindings::class| {
                    // SAFETY: `slot` is valid for writes; all zeroes is a valid `class`.
                    unsafe { slot.write(core::mem::zeroed()) };
                    // SAFETY: Initialised above, and registered only below: there is no other user.
                    unsafe {
                        (*slot).name = name.as_char_ptr();
                        (*slot).devnode = Some(Self::devnode);
                    }
                    // SAFETY: The class is filled in, stays in place and is unregistered on drop.
                    to_result(unsafe { bindings::class_register(slot) })
                }),
            }),
            GFP_KERNEL,
        )
    }

    /// # Safety
    ///
    /// Called by devtmpfs and uevents with a valid `mode` or null.
    unsafe extern "C" fn devnode(
        _dev: *const bindings::device,
        mode: *mut bindings::umode_t,
    ) -> *mut c_char {
        if !mode.is_null() {
            // SAFETY: The caller passes a place for the mode.
            unsafe { *mode = NODE_MODE };
        }
        core::ptr::null_mut()
    }
}

#[pinned_drop]
impl PinnedDrop for Class {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Registered by the type invariant.
        unsafe { bindings::class_unregister(self.class.get()) };
    }
}

/// A device without hardware, in a class of its own.
///
/// # Invariants
///
/// `device` is what `device_create` returned for `devt` in `class`.
pub(crate) struct ClassDevice {
    device: *mut bindings::device,
    devt: bindings::dev_t,
    // Last: the device goes before its class.
    class: Pin<KBox<Class>>,
}

// SAFETY: The driver core has its own locks; a device may be unregistered by any thread.
unsafe impl Send for ClassDevice {}
// SAFETY: Shared access only gives a `&Device`, and that type is `Sync`.
unsafe impl Sync for ClassDevice {}

impl ClassDevice {
    /// Creates `/sys/devices/virtual/CLASS/NAME` and, by devtmpfs, `/dev/NAME` for `devt`.
    ///
    /// # Errors
    ///
    /// What the driver core reports.
    pub(crate) fn new(
        class: Pin<KBox<Class>>,
        devt: bindings::dev_t,
        name: &'static CStr,
    ) -> Result<Self> {
        // SAFETY: The class is registered, the format takes one string and gets one.
        let device = from_err_ptr(unsafe {
            bindings::device_create(
                class.class.get(),
                core::ptr::null_mut(),
                devt,
                core::ptr::null_mut(),
                c"%s".as_char_ptr(),
                name.as_char_ptr(),
            )
        })?;
        // INVARIANT: Just created.
        Ok(Self {
            device,
            devt,
            class,
        })
    }

    /// The device.
    pub(crate) fn device(&self) -> &Device {
        // SAFETY: By the type invariant the device is valid until `self` is dropped.
        unsafe { Device::from_raw(self.device) }
    }
}

impl Drop for ClassDevice {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the device exists in the class.
        unsafe { bindings::device_destroy(self.class.class.get(), self.devt) };
    }
}
