// SPDX-License-Identifier: GPL-2.0

//! SVM: attributes of ranges of the program's memory.

use core::ops::Range;

use super::call::Call;
use crate::{
    kapi::{
        drm_file::DrmDevice,
        hmm::{
            AddressSpace,
            AddressSpaceUser, //
        },
    },
    kfd::{
        command::Argument,
        svm::{
            attributes::{
                Access,
                Change,
                Destination,
                Effect,
                GpuName,
                SYSTEM,
                UNDEFINED, //
            },
            has_memory, //
        },
        uapi::Svm, //
    },
    mirror::{
        Mirrors,
        Place, //
    },
    vm::pt::PAGE, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

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
///   the same, but for `ENOMEM` and `EINTR` in a few cases. A prefetch to a GPU that moves nothing is no error.
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
    let svm = &call.process.svm;
    let attributes = svm.lock_attributes();
    let changed = attributes.change(&user, &range, &changes);
    let effect = match changed {
        Ok(effect) => effect,
        // Attributes have ended, of memory that may still be shown.
        Err(error) if error == EFAULT => Effect {
            maps: true,
            places: false,
        },
        Err(error) => return Err(error),
    };
    let mirrors = || call.process.devices.iter().filter_map(|d| d.mirrors());
    if effect.maps {
        mirrors().for_each(|mirrors| mirrors.withdraw_by_rules(&range));
    }
    if effect.places {
        mirrors().for_each(|mirrors| mirrors.expect_moves_by_rules(&range));
    }
    (0..call.process.devices.len()).for_each(|number| pay_for_accesses(call, number));
    let mut done = changed.map(|_| ());
    // What the list says last.
    let prefetch = changes.iter().rev().find_map(|change| match change {
        Change::Prefetch(location) => Some(*location),
        _ => None,
    });
    if let Some(location) = prefetch.filter(|_| done.is_ok()) {
        done = move_prefetched(call, &range, location);
    }
    if effect.maps {
        for mirrors in mirrors() {
            done = done.and(mirrors.show_by_rules(&range));
        }
    }
    done
}

/// What shows memory of the process to GPU number `number`, and the device that room in its VRAM is made for; `None` before
/// ACQUIRE_VM.
fn mirrors_of(call: &Call<'_>, number: usize) -> Option<(Arc<Mirrors>, DrmDevice)> {
    let mirrors = call.process.devices.get(number)?.mirrors()?;
    let state = call.process.state.lock();
    let render = state.device(number).and_then(|device| device.render());
    Some((mirrors, render.ok()?.device()))
}

/// Charges the caller's group for the VRAM of GPU number `number` that accesses may move memory to, where they are repeated, as
/// far as the limit of the group goes.
pub(super) fn pay_for_accesses(call: &Call<'_>, number: usize) {
    let svm = &call.process.svm;
    let Some(device) = call.process.devices.get(number) else {
        return;
    };
    if !svm.xnack() {
        return;
    }
    if let Some((mirrors, drm)) = mirrors_of(call, number) {
        let gpu = GpuName {
            id: device.gpu_id(),
            number,
        };
        mirrors.pay_for_rules(&drm, svm.rooms_for(gpu));
    }
}

/// Moves memory of `range` to `location`, which its attributes have it prefetched to, as far as it can move.
///
/// # Errors
///
/// - `EINTR`: the caller is being killed.
/// - `ENOMEM`, `EIO`, `ETIMEDOUT`: some does not come to the system.
fn move_prefetched(call: &Call<'_>, range: &Range<u64>, location: u32) -> Result {
    let gpu = if location == SYSTEM {
        None
    } else {
        let (number, _) = call.process.device(location)?;
        Some(GpuName {
            id: location,
            number,
        })
    };
    let mut done = Ok(());
    let mut at = range.start;
    while at < range.end {
        let (destination, end) = call.process.svm.destination(&(at..range.end), gpu);
        let part = at..end.max(at + PAGE);
        match (destination, gpu) {
            (Some(Destination::Vram), Some(gpu)) => {
                // What finds no room, or cannot move, stays where it is.
                let out = bring_out(call, &part, Some(gpu.number));
                let moved = bring_in(call, &part, gpu.number);
                if [out, moved].contains(&Err(EINTR)) {
                    return Err(EINTR);
                }
            }
            (Some(_), _) => done = done.and(bring_out(call, &part, None)),
            // The program has unmapped it.
            (None, _) => {}
        }
        at = part.end;
    }
    done
}

/// Moves what is in VRAM of `range` to the system, but for that of GPU number `but`.
///
/// # Errors
///
/// The first of those of [`move_prefetched`].
fn bring_out(call: &Call<'_>, range: &Range<u64>, but: Option<usize>) -> Result {
    let mut done = Ok(());
    for (number, device) in call.process.devices.iter().enumerate() {
        // Where there are no pages nothing is to be made to look for some.
        let has_pages = device.device().gpu().device_pages().hold().is_some();
        if Some(number) == but || !has_pages {
            continue;
        }
        let Some((mirrors, drm)) = mirrors_of(call, number) else {
            continue;
        };
        let moved = match mirrors.prefetch(&drm, range, Place::System) {
            Err(error) if ![ENOMEM, EINTR, EIO, ETIMEDOUT].contains(&error) => {
                pr_debug!(
                    "{:#x} does not come to the system: {:?}\n",
                    range.start,
                    error
                );
                Ok(())
            }
            moved => moved,
        };
        done = done.and(moved);
    }
    done
}

/// Moves what can move of `range` to the VRAM of GPU number `number`, also what is nowhere yet.
///
/// # Errors
///
/// Those of [`Mirrors::prefetch`].
fn bring_in(call: &Call<'_>, range: &Range<u64>, number: usize) -> Result {
    let device = call.process.devices.get(number).ok_or(EINVAL)?;
    if !device.device().gpu().device_pages().may_populate() {
        return Ok(());
    }
    let Some((mirrors, drm)) = mirrors_of(call, number) else {
        return Ok(());
    };
    mirrors.prefetch(&drm, range, Place::Vram { fill: true })
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
