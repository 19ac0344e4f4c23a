// SPDX-License-Identifier: GPL-2.0

//! BO_CREATE and BO_INFO.

use kernel::prelude::*;

use super::{
    args::{
        require_zero, //
        Device,
        File,
    },
    uapi::{
        bo_flags,
        heap,
        BoCreate,
        BoInfo, //
    }, //
};
use crate::{
    kapi::drm_file::DrmDevice,
    vm::{
        Bo,
        BoArgs,
        BoFlags,
        BoKind, //
    },
};

/// What a buffer of a heap is made of.
fn kind(heap: u32) -> Result<BoKind> {
    match heap {
        heap::VRAM => Ok(BoKind::Vram),
        heap::SYSTEM => Ok(BoKind::System),
        _ => Err(EINVAL),
    }
}

/// Makes a buffer, cleared, with a handle in the file. No address shows it yet.
///
/// # Errors
///
/// - `EINVAL`: size 0, unknown heaps or flags.
/// - `ENOMEM`: no memory in the heaps, or limits exceeded.
/// - `ENOSPC`: no handle left.
/// - `EINTR`: the caller is being killed.
/// - `ENODEV`, `EIO`: the GPU is gone or lost.
pub(super) fn create(dev: &Device, file: &File, arg: &mut BoCreate) -> Result {
    if arg.size == 0 || arg.flags & !bo_flags::ALL != 0 {
        return Err(EINVAL);
    }
    require_zero(&[arg.handle])?;
    let first = kind(arg.heap)?;
    let second = match arg.fallback {
        heap::NONE => None,
        other => Some(kind(other)?),
    };
    let has = |flag: u32| arg.flags & flag != 0;
    let flags = BoFlags {
        coherent: has(bo_flags::COHERENT),
        uncached: has(bo_flags::UNCACHED),
        contiguous: has(bo_flags::CONTIGUOUS),
        public: has(bo_flags::CPU_ACCESS),
        // What the GPU may do is a matter of each range.
        ..BoFlags::default()
    };
    let make = |kind| {
        Bo::new(
            dev.gpu(),
            &DrmDevice::of(dev),
            BoArgs {
                kind,
                size: arg.size,
                flags,
                user: None,
                doorbells: None,
            },
        )
    };
    let bo = match (make(first), second) {
        (Err(error), Some(second)) if error == ENOMEM => make(second),
        (made, _) => made,
    }?;
    arg.handle = bo.create_handle(file)?;
    arg.size = bo.size();
    arg.mmap_offset = bo.mmap_offset();
    Ok(())
}

/// Tells what the buffer with a handle is.
///
/// # Errors
///
/// - `EINVAL`: padding that is not 0.
/// - `ENOENT`: no such buffer in this file.
pub(super) fn info(_dev: &Device, file: &File, arg: &mut BoInfo) -> Result {
    require_zero(&[arg.pad])?;
    let object = Bo::of_handle(file, arg.handle).ok_or(ENOENT)?;
    let ranges = file.inner().get_ref().context().vm().count_ranges(&object);
    let in_vram = object.movable().is_some_and(|movable| movable.is_home());
    let bo = Bo::with_rights(object, false, false)?;
    let flags = bo.flags();
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    arg.heap = if in_vram { heap::VRAM } else { heap::SYSTEM };
    arg.flags = flag(flags.coherent, bo_flags::COHERENT)
        | flag(flags.uncached, bo_flags::UNCACHED)
        | flag(flags.contiguous, bo_flags::CONTIGUOUS)
        | flag(flags.public, bo_flags::CPU_ACCESS);
    arg.size = bo.size();
    arg.mmap_offset = bo.mmap_offset();
    arg.ranges = ranges;
    Ok(())
}
