// SPDX-License-Identifier: GPL-2.0

//! Ioctl tables with holes.
//!
//! [`kernel::declare_drm_ioctls!`] wants dense numbers of structures that the kernel crate binds.
//! Here a table is an array indexed by the driver's command number, in which [`HOLE`]s answer
//! `EINVAL`, as the DRM core does for what a driver lacks.
//!
//! C header: [`include/drm/drm_ioctl.h`](srctree/include/drm/drm_ioctl.h)

use kernel::{
    bindings,
    drm::{
        self,
        ioctl::DrmIoctlDescriptor, //
    },
    prelude::*,
    transmute::FromBytes,
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};

use super::abi::Plain;

/// First number of driver commands.
const COMMAND_BASE: u32 = 0x40;

/// One command of a driver.
///
/// # Safety
///
/// The table that holds its descriptor belongs to `Driver`.
pub(crate) unsafe trait Ioctl {
    /// The driver.
    type Driver: drm::Driver;
    /// The argument, which user space writes and nothing reads back. Any bytes are valid.
    type Arg: FromBytes + Copy;
    /// Number among the driver's commands.
    const NR: u32;
    /// Name for debug messages of the DRM core.
    const NAME: &'static CStr;

    /// Runs the command for `file`, while the device is registered.
    ///
    /// Unbinding waits for it, of this device and of all others; so it leaves user memory alone, whose
    /// faults may be served late or never, and returns what is to be written there.
    ///
    /// # Errors
    ///
    /// Becomes the error of the system call.
    fn run(
        dev: &drm::Device<Self::Driver, drm::Registered>,
        arg: Self::Arg,
        file: &drm::File<<Self::Driver as drm::Driver>::File>,
    ) -> Result<Reply>;
}

/// What a command writes to user memory when no thread waits for it any more.
pub(crate) struct Reply {
    address: u64,
    bytes: KVec<u8>,
}

impl Reply {
    /// `bytes` for user address `address`.
    pub(crate) fn new(address: u64, bytes: KVec<u8>) -> Self {
        Self { address, bytes }
    }

    /// Writes it.
    ///
    /// # Errors
    ///
    /// `EFAULT`.
    pub(crate) fn copy_out(&self) -> Result {
        let address = usize::try_from(self.address).map_err(|_| EFAULT)?;
        UserSlice::new(UserPtr::from_addr(address), self.bytes.len())
            .writer()
            .write_slice(&self.bytes)
    }
}

/// A number without command.
pub(crate) const HOLE: DrmIoctlDescriptor = DrmIoctlDescriptor {
    cmd: 0,
    flags: 0,
    func: None,
    name: core::ptr::null(),
};

/// The descriptor of a command that render nodes allow and that takes an argument in.
pub(crate) const fn render<I: Ioctl>() -> DrmIoctlDescriptor {
    DrmIoctlDescriptor {
        cmd: drm::ioctl::IOW::<I::Arg>(COMMAND_BASE + I::NR),
        flags: drm::ioctl::RENDER_ALLOW,
        func: Some(dispatch::<I>),
        name: kernel::str::as_char_ptr_in_const_context(I::NAME),
    }
}

/// `drm_ioctl_t` of a command.
///
/// # Safety
///
/// Called by the DRM core through a table of `I::Driver`, with an argument of the size that the
/// descriptor says.
unsafe extern "C" fn dispatch<I: Ioctl>(
    dev: *mut bindings::drm_device,
    data: *mut c_void,
    file: *mut bindings::drm_file,
) -> c_int {
    // SAFETY: The DRM core calls for a device that was registered, and by the requirement of
    // `Ioctl` it is one of that driver.
    let dev: &drm::Device<I::Driver, drm::Ioctl> = unsafe { drm::Device::from_raw(dev) };
    let Some(guard) = dev.registration_guard() else {
        return ENODEV.to_errno();
    };
    // SAFETY: The DRM core copied the argument into a buffer of at least the size that the
    // descriptor says; any bytes are a valid `Arg`.
    let arg = unsafe { data.cast::<I::Arg>().read_unaligned() };
    // SAFETY: The file is open and of the device's driver.
    let file = unsafe { drm::File::from_raw(file) };
    let reply = I::run(&guard, arg, file);
    // The DRM core's unplugging waits for the guards of all devices.
    drop(guard);
    match reply.and_then(|reply| reply.copy_out()) {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    }
}

/// One command of a driver whose argument goes both ways, and that may take as long as user space wants: it may
/// touch user memory.
///
/// The size of the argument is in the command word: what a caller does not send is 0, what the driver does not know is
/// not looked at.
///
/// # Safety
///
/// The table that holds its descriptor belongs to `Driver`.
pub(crate) unsafe trait Call {
    /// The driver.
    type Driver: drm::Driver;
    /// The argument.
    type Arg: Plain;
    /// Number among the driver's commands.
    const NR: u32;
    /// Name for debug messages of the DRM core.
    const NAME: &'static CStr;

    /// Runs the command for `file`. The device may be unplugged meanwhile, which does not wait for the command. User
    /// space gets what is in `arg` afterwards, also with an error.
    ///
    /// # Errors
    ///
    /// Becomes the error of the system call.
    fn run(
        dev: &drm::Device<Self::Driver>,
        file: &drm::File<<Self::Driver as drm::Driver>::File>,
        arg: &mut Self::Arg,
    ) -> Result;
}

/// Whether the device of a [`Call`] is being, or was, taken away: it will not serve another call.
pub(crate) fn is_unplugged<D: drm::Driver>(dev: &drm::Device<D>) -> bool {
    let raw = super::drm_file::raw_device(dev);
    // SAFETY: The same device, and one of `D`. It was registered before the calling file could be opened.
    let dev: &drm::Device<D, drm::Ioctl> = unsafe { drm::Device::from_raw(raw.as_ptr()) };
    dev.registration_guard().is_none()
}

/// The descriptor of a command that render nodes allow and whose argument goes both ways.
pub(crate) const fn render_call<C: Call>() -> DrmIoctlDescriptor {
    DrmIoctlDescriptor {
        cmd: drm::ioctl::IOWR::<C::Arg>(COMMAND_BASE + C::NR),
        flags: drm::ioctl::RENDER_ALLOW,
        func: Some(dispatch_call::<C>),
        name: kernel::str::as_char_ptr_in_const_context(C::NAME),
    }
}

/// `drm_ioctl_t` of a [`Call`].
///
/// # Safety
///
/// Called by the DRM core through a table of `C::Driver`, with an argument of the size that the
/// descriptor says.
unsafe extern "C" fn dispatch_call<C: Call>(
    dev: *mut bindings::drm_device,
    data: *mut c_void,
    file: *mut bindings::drm_file,
) -> c_int {
    // SAFETY: By the requirement of `Call` the device is one of that driver; the open file keeps it.
    let dev: &drm::Device<C::Driver> = unsafe { drm::Device::from_raw(dev) };
    // SAFETY: The file is open and of the device's driver.
    let file = unsafe { drm::File::from_raw(file) };
    // SAFETY: The DRM core has a buffer of at least the size that the descriptor says, with what the caller sent and
    // zeroes; any bytes are a valid `Arg`.
    let mut arg = unsafe { data.cast::<C::Arg>().read_unaligned() };
    let result = C::run(dev, file, &mut arg);
    // SAFETY: The buffer of the DRM core has at least the size of an `Arg`, which has no padding.
    unsafe { data.cast::<C::Arg>().write_unaligned(arg) };
    match result {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    }
}
