// SPDX-License-Identifier: GPL-2.0

//! SVM: attributes of ranges of the program's memory.

use core::ops::Range;

use super::call::Call;
use crate::{
    kapi::hmm::{
        AddressSpace,
        AddressSpaceUser, //
    },
    kfd::{
        command::Argument,
        svm::{
            attributes::{
                Access,
                Change,
                SYSTEM,
                UNDEFINED, //
            },
            has_memory, //
        },
        uapi::Svm, //
    },
    vm::pt::PAGE, //
};
use kernel::prelude::*;

/// Bytes of one attribute.
const ATTRIBUTE: usize = 8;

/// Operations.
mod op {
    pub(super) const SET_ATTR: u32 = 0;
    pub(super) const GET_ATTR: u32 = 1;
}

/// Types of attributes.
mod kind {
    pub(super) const PREFERRED_LOC: u32 = 0;
    pub(super) const PREFETCH_LOC: u32 = 1;
    pub(super) const ACCESS: u32 = 2;
    pub(super) const ACCESS_IN_PLACE: u32 = 3;
    pub(super) const NO_ACCESS: u32 = 4;
    pub(super) const SET_FLAGS: u32 = 5;
    pub(super) const CLR_FLAGS: u32 = 6;
    pub(super) const GRANULARITY: u32 = 7;
}

/// Sets or reports attributes of a range.
///
/// # Errors
///
/// - `EINVAL`: attributes beyond the argument; a range of no whole pages, or none, or from address 0 on; an unknown
///   operation, attribute or GPU; no address space yet.
/// - `EOVERFLOW`: the range wraps around.
/// - `EFAULT`: somewhere there is nothing, or no memory of the kernel's.
/// - `EADDRINUSE`: a buffer is mapped there.
/// - `EOPNOTSUPP`: the machine gives the GPU copies of memory.
/// - `ENOMEM`, `EINTR`, `EAGAIN`; `ENODEV`, `EIO`, `ETIMEDOUT`: the GPU is gone, lost, or did not answer. The attributes are set all
///   the same, but for `ENOMEM` and `EINTR` in a few cases.
pub(super) fn svm(call: &Call<'_>, argument: &mut Argument) -> Result {
    let args: Svm = argument.read()?;
    let fixed = core::mem::size_of::<Svm>();
    let bytes = usize::try_from(args.num_attrs)?
        .checked_mul(ATTRIBUTE)
        .ok_or(EINVAL)?;
    let end = fixed.checked_add(bytes).ok_or(EINVAL)?;
    if argument.user_size() < end {
        return Err(EINVAL);
    }
    if args.start == 0 || args.size == 0 || args.start % PAGE != 0 || args.size % PAGE != 0 {
        return Err(EINVAL);
    }
    let list = argument.user_mut().get_mut(fixed..end).ok_or(EINVAL)?;
    match args.op {
        op::SET_ATTR => set(call, &args, list),
        op::GET_ATTR => get(call, &args, list),
        _ => Err(EINVAL),
    }
}

/// A word of an attribute.
fn word(attribute: &[u8], at: usize) -> Result<u32> {
    let bytes = attribute.get(at..at + 4).ok_or(EINVAL)?;
    Ok(u32::from_ne_bytes(bytes.try_into().map_err(|_| EINVAL)?))
}

/// What an attribute of SET_ATTR changes.
fn change_of(call: &Call<'_>, attribute: &[u8]) -> Result<Change> {
    let (kind, value) = (word(attribute, 0)?, word(attribute, 4)?);
    let location = |value: u32| -> Result<u32> {
        if value != SYSTEM {
            call.process.device(value)?;
        }
        Ok(value)
    };
    let access = |access| -> Result<Change> {
        let (number, _) = call.process.device(value)?;
        Ok(Change::Access(number, access))
    };
    match kind {
        kind::PREFERRED_LOC if value == UNDEFINED => Ok(Change::Preferred(value)),
        kind::PREFERRED_LOC => Ok(Change::Preferred(location(value)?)),
        kind::PREFETCH_LOC => Ok(Change::Prefetch(location(value)?)),
        kind::ACCESS => access(Access::Anywhere),
        kind::ACCESS_IN_PLACE => access(Access::InPlace),
        kind::NO_ACCESS => access(Access::None),
        kind::SET_FLAGS => Ok(Change::SetFlags(value)),
        kind::CLR_FLAGS => Ok(Change::ClearFlags(value)),
        kind::GRANULARITY => Ok(Change::Granularity(value)),
        _ => Err(EINVAL),
    }
}

/// The range of a call, all of which is memory of the program's that no buffer has, and the program.
fn range_of(call: &Call<'_>, args: &Svm) -> Result<(Range<u64>, AddressSpaceUser)> {
    let mut acquired = false;
    let end = args.start.checked_add(args.size);
    let mut meets = false;
    for (number, _) in call.process.devices.iter().enumerate() {
        let vm = {
            let state = call.process.state.lock();
            state.device(number).and_then(|device| device.vm().cloned())
        };
        let Ok(vm) = vm else { continue };
        acquired = true;
        meets |= end.is_some_and(|end| vm.has_buffers(args.start..end));
    }
    if !acquired {
        return Err(EINVAL);
    }
    let range = args.start..end.ok_or(EOVERFLOW)?;
    let user = AddressSpace::of_caller().ok_or(EINVAL)?.enter()?;
    if !has_memory(&user, &range) {
        return Err(EFAULT);
    }
    if meets {
        return Err(EADDRINUSE);
    }
    Ok((range, user))
}

fn set(call: &Call<'_>, args: &Svm, list: &[u8]) -> Result {
    let mut changes = KVec::with_capacity(list.len() / ATTRIBUTE, GFP_KERNEL_ACCOUNT)?;
    for attribute in list.chunks_exact(ATTRIBUTE) {
        changes.push(change_of(call, attribute)?, GFP_KERNEL_ACCOUNT)?;
    }
    let (range, user) = range_of(call, args)?;
    let attributes = call.process.svm.lock_attributes();
    let mut done = match attributes.change(&user, &range, &changes) {
        Ok(false) => return Ok(()),
        Ok(true) => Ok(()),
        // Attributes have ended, of memory that may still be shown.
        Err(error) if error == EFAULT => Err(error),
        Err(error) => return Err(error),
    };
    for mirrors in call.process.devices.iter().filter_map(|d| d.mirrors()) {
        done = done.and(mirrors.apply_rules(&range));
    }
    done
}

fn get(call: &Call<'_>, args: &Svm, list: &mut [u8]) -> Result {
    let (range, _user) = range_of(call, args)?;
    let summary = call.process.svm.summary(&range);
    for attribute in list.chunks_exact_mut(ATTRIBUTE) {
        let (mut kind, mut value) = (word(attribute, 0)?, word(attribute, 4)?);
        match kind {
            kind::PREFERRED_LOC => value = summary.preferred,
            kind::PREFETCH_LOC => value = summary.prefetch,
            kind::ACCESS => {
                let (number, _) = call.process.device(value)?;
                kind = match summary.access_of(number) {
                    Access::Anywhere => kind::ACCESS,
                    Access::InPlace => kind::ACCESS_IN_PLACE,
                    Access::None => kind::NO_ACCESS,
                };
            }
            kind::SET_FLAGS => value = summary.all_flags,
            kind::CLR_FLAGS => value = !summary.any_flags,
            kind::GRANULARITY => value = u32::from(summary.granularity),
            // Those that ACCESS is answered by among them.
            _ => return Err(EINVAL),
        }
        let (low, high) = attribute.split_at_mut(ATTRIBUTE / 2);
        low.copy_from_slice(&kind.to_ne_bytes());
        high.copy_from_slice(&value.to_ne_bytes());
    }
    Ok(())
}
