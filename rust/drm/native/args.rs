// SPDX-License-Identifier: GPL-2.0

//! What calls have in common: the device, the file, and how arguments in user memory are read.

use kernel::{
    drm,
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

use crate::{
    drm::{
        client::Client,
        device::RkfdDrm, //
    },
    hw::num::index,
    kapi::{
        abi::Plain,
        task::fatal_signal_pending, //
    },
};

/// The device of a call.
pub(super) type Device = drm::Device<RkfdDrm>;
/// The open file of a call.
pub(super) type File = drm::File<Client>;

/// Largest distance of two elements of an array.
const MAX_STRIDE: u32 = 256;

/// User memory of `len` bytes at `address`.
///
/// # Errors
///
/// `EFAULT` if no address is that large.
pub(super) fn user_slice(address: u64, len: usize) -> Result<UserSlice> {
    let address = usize::try_from(address).map_err(|_| EFAULT)?;
    Ok(UserSlice::new(UserPtr::from_addr(address), len))
}

/// Why an array was refused: the error, and the element at fault, where one is.
pub(super) type ArrayError = (Error, Option<u32>);

/// Reads `count` elements that are `stride` bytes apart from user memory and calls `f` with each and its number.
///
/// # Errors
///
/// - `EINVAL`: `stride` is too small, too large, or not a multiple of 8.
/// - `EFAULT`: the array cannot be read.
/// - `E2BIG`: an element has something in the bytes behind `T`.
/// - `EINTR`: the caller is being killed.
/// - `ENOMEM`, and those of `f`.
pub(super) fn for_each_element<T: Plain + FromBytes + AsBytes + Default>(
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
pub(super) fn require_zero(fields: &[u32]) -> Result {
    if fields.iter().any(|field| *field != 0) {
        return Err(EINVAL);
    }
    Ok(())
}
