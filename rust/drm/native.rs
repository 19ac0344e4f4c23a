// SPDX-License-Identifier: GPL-2.0

//! The native interface: the calls of `uapi/rkfd_drm.h`.
//!
//! An open file is an address space with buffers, queues, doorbells and events ([`Context`]). It depends on no process:
//! whoever has the descriptor may call, and two opens by one program share nothing.
//!
//! Calls touch user memory, whose faults may be served late or never. So none of them keeps the device from being
//! unplugged, and no lock is held around such an access.

use kernel::{
    drm,
    drm::ioctl::DrmIoctlDescriptor,
    prelude::*,
    transmute::{
        AsBytes,
        FromBytes, //
    },
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

use super::{
    client::Client,
    device::RkfdDrm, //
};
use crate::{
    hw::num::index,
    kapi::{
        abi::Plain,
        drm_ioctl::{
            render_call,
            Call, //
        },
        task::fatal_signal_pending, //
    },
};

mod bind;
mod buffer;
mod context;
mod event;
mod notices;
mod query;
mod queue;
mod uapi;

pub(super) use self::context::Context;

use self::uapi::nr;

/// One more than the highest number of a call.
pub(super) const END: usize = nr::FAULTS as usize + 1;

type Device = drm::Device<RkfdDrm>;
type File = drm::File<Client>;

/// Declares calls by number, argument and the function that answers.
macro_rules! calls {
    ($($name:ident, $text:literal: $nr:expr, $arg:ty => $run:path;)*) => {
        $(
            #[doc = concat!("The call `", stringify!($name), "`.")]
            struct $name;

            // SAFETY: Named in the table of `RkfdDrm` only.
            unsafe impl Call for $name {
                type Driver = RkfdDrm;
                type Arg = $arg;
                const NR: u32 = $nr;
                const NAME: &'static CStr = $text;

                fn run(dev: &Device, file: &File, arg: &mut $arg) -> Result {
                    $run(dev, file, arg)
                }
            }
        )*

        /// Puts the calls into the driver's table.
        pub(super) const fn add_to<const N: usize>(
            mut table: [DrmIoctlDescriptor; N],
        ) -> [DrmIoctlDescriptor; N] {
            $( table[$nr as usize] = render_call::<$name>(); )*
            table
        }
    };
}

calls! {
    Query, c"RKFD_QUERY": nr::QUERY, uapi::Query => query::query;
    BoCreate, c"RKFD_BO_CREATE": nr::BO_CREATE, uapi::BoCreate => buffer::create;
    BoInfo, c"RKFD_BO_INFO": nr::BO_INFO, uapi::BoInfo => buffer::info;
    Bind, c"RKFD_BIND": nr::BIND, uapi::BindList => bind::bind;
    QueueCreate, c"RKFD_QUEUE_CREATE": nr::QUEUE_CREATE, uapi::QueueCreate => queue::create;
    QueueUpdate, c"RKFD_QUEUE_UPDATE": nr::QUEUE_UPDATE, uapi::QueueUpdate => queue::update;
    QueueDestroy, c"RKFD_QUEUE_DESTROY": nr::QUEUE_DESTROY, uapi::QueueDestroy => queue::destroy;
    EventCreate, c"RKFD_EVENT_CREATE": nr::EVENT_CREATE, uapi::EventCreate => event::create;
    EventDestroy, c"RKFD_EVENT_DESTROY": nr::EVENT_DESTROY, uapi::EventDestroy => event::destroy;
    Wait, c"RKFD_WAIT": nr::WAIT, uapi::Wait => event::wait;
    Faults, c"RKFD_FAULTS": nr::FAULTS, uapi::Faults => event::faults;
}

/// Largest distance of two elements of an array.
const MAX_STRIDE: u32 = 256;

/// User memory of `len` bytes at `address`.
///
/// # Errors
///
/// `EFAULT` if no address is that large.
fn user_slice(address: u64, len: usize) -> Result<UserSlice> {
    let address = usize::try_from(address).map_err(|_| EFAULT)?;
    Ok(UserSlice::new(UserPtr::from_addr(address), len))
}

/// Why an array was refused: the error, and the element at fault, where one is.
type ArrayError = (Error, Option<u32>);

/// Reads `count` elements that are `stride` bytes apart from user memory and calls `f` with each and its number.
///
/// # Errors
///
/// - `EINVAL`: `stride` is too small, too large, or not a multiple of 8.
/// - `EFAULT`: the array cannot be read.
/// - `E2BIG`: an element has something in the bytes behind `T`.
/// - `EINTR`: the caller is being killed.
/// - `ENOMEM`, and those of `f`.
fn for_each_element<T: Plain + FromBytes + AsBytes + Default>(
    address: u64,
    count: u32,
    stride: u32,
    mut f: impl FnMut(u32, T) -> Result,
) -> Result<(), ArrayError> {
    let known = core::mem::size_of::<T>();
    let bytes = read_bytes(address, count, stride, known).map_err(|error| (error, None))?;
    for (number, element) in (0u32..).zip(bytes.chunks_exact(index(stride))) {
        if number % 1024 == 0 && fatal_signal_pending() {
            return Err((EINTR, None));
        }
        let refuse = |error| (error, Some(number));
        let (head, rest) = element.split_at_checked(known).ok_or((EINVAL, None))?;
        if rest.iter().any(|byte| *byte != 0) {
            return Err(refuse(E2BIG));
        }
        let mut value = T::default();
        value.as_bytes_mut().copy_from_slice(head);
        f(number, value).map_err(refuse)?;
    }
    Ok(())
}

fn read_bytes(address: u64, count: u32, stride: u32, known: usize) -> Result<KVVec<u8>> {
    if index(stride) < known || stride > MAX_STRIDE || stride % 8 != 0 {
        return Err(EINVAL);
    }
    let len = index(count) * index(stride);
    let mut bytes = KVVec::from_elem(0, len, GFP_KERNEL_ACCOUNT)?;
    user_slice(address, len)?.reader().read_slice(&mut bytes)?;
    Ok(bytes)
}

/// Demands that fields and flags that mean nothing are 0.
///
/// # Errors
///
/// `EINVAL`.
fn require_zero(fields: &[u32]) -> Result {
    if fields.iter().any(|field| *field != 0) {
        return Err(EINVAL);
    }
    Ok(())
}
