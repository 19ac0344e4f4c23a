// SPDX-License-Identifier: GPL-2.0

//! MIRROR_CREATE, MIRROR_DESTROY, MIRROR_QUERY, MIRROR_POPULATE and MIRROR_MIGRATE.

use kernel::prelude::*;

use super::{
    args::{
        require_zero, //
        Device,
        File,
    },
    uapi::{
        migrate_flags,
        mirror_flags,
        place,
        MirrorCreate,
        MirrorDestroy,
        MirrorMigrate,
        MirrorPopulate,
        MirrorQuery, //
    }, //
};
use crate::{
    kapi::drm_file::DrmDevice,
    mirror::{
        Filling,
        Hint,
        Place,
        Request,
        Rights, //
    },
};

/// What granularities there are: from 64 KiB to 2 MiB, as logarithms.
const GRANULARITY: core::ops::RangeInclusive<u32> = 16..=21;

/// Shows memory of the caller at GPU addresses of the file.
///
/// # Errors
///
/// - `EINVAL`: unknown flags; neither populated nor filled by faults; no whole pages, or none; GPU addresses that cannot be
///   bound; a mirror of all memory with addresses, or that is not filled by faults alone.
/// - `EOPNOTSUPP`: the mirror is filled by faults, and the GPU cannot repeat accesses; or it gets copies of memory.
/// - `EXDEV`: the caller is not of the process that opened the file.
/// - `EOVERFLOW`: a range wraps around.
/// - `EFAULT`: addresses that no program has.
/// - `EADDRINUSE`: a buffer or another mirror has some of the GPU addresses; the mirror is to be of all memory, and there is
///   one.
/// - `EBUSY`: `/dev/kfd` has the address space; the mirror is filled by faults, and the file has had a queue whose accesses are
///   not repeated.
/// - Others are those of [`Mirrors::create`](crate::mirror::Mirrors::create).
pub(super) fn create(_dev: &Device, file: &File, arg: &mut MirrorCreate) -> Result {
    if arg.flags & !mirror_flags::ALL != 0 || arg.leaf != 0 {
        return Err(EINVAL);
    }
    require_zero(&[arg.id])?;
    let filling = Filling {
        at_once: arg.flags & mirror_flags::POPULATED != 0,
        on_access: arg.flags & mirror_flags::FAULT != 0,
    };
    if !filling.at_once && !filling.on_access {
        return Err(EINVAL);
    }
    let whole = arg.flags & mirror_flags::WHOLE != 0;
    if whole
        && (filling.at_once
            || [arg.address, arg.gpu_address, arg.length]
                .iter()
                .any(|v| *v != 0))
    {
        return Err(EINVAL);
    }
    let context = file.inner().get_ref().context();
    if !context.is_openers() {
        return Err(EXDEV);
    }
    context.claim()?;
    if filling.on_access {
        context.repeat_accesses()?;
    }
    let rights = Rights {
        write: arg.flags & mirror_flags::READ_ONLY == 0,
        execute: arg.flags & mirror_flags::EXECUTE != 0,
    };
    let mirror = if whole {
        context.mirrors().create_whole(rights, true)?
    } else {
        context.mirrors().create(&Request {
            cpu: arg.address,
            gpu: arg.gpu_address,
            len: arg.length,
            rights,
            filling,
        })?
    };
    arg.id = mirror.id();
    arg.leaf = mirror.leaf();
    Ok(())
}

/// Ends a mirror.
///
/// # Errors
///
/// - `EINVAL`: padding that is not 0.
/// - `ENOENT`: no such mirror in this file.
pub(super) fn destroy(_dev: &Device, file: &File, arg: &mut MirrorDestroy) -> Result {
    require_zero(&[arg.pad])?;
    let context = file.inner().get_ref().context();
    context.mirrors().destroy(arg.id)
}

/// Tells what a mirror is and what it shows.
///
/// # Errors
///
/// `ENOENT`: no such mirror in this file.
pub(super) fn query(_dev: &Device, file: &File, arg: &mut MirrorQuery) -> Result {
    let mirror = file.inner().get_ref().context().mirrors().find(arg.id)?;
    let request = mirror.request();
    let usage = mirror.usage();
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    *arg = MirrorQuery {
        id: arg.id,
        flags: flag(!request.rights.write, mirror_flags::READ_ONLY)
            | flag(request.rights.execute, mirror_flags::EXECUTE)
            | flag(request.filling.at_once, mirror_flags::POPULATED)
            | flag(request.filling.on_access, mirror_flags::FAULT)
            | flag(mirror.is_whole(), mirror_flags::WHOLE),
        address: request.cpu,
        gpu_address: request.gpu,
        length: request.len,
        bytes: usage.bytes,
        huge_bytes: usage.huge,
        changes: usage.changes,
        faults: usage.served,
        vram_bytes: usage.vram,
        // CAST: `usize` is at most 64 bits wide.
        hints: mirror.hinted_ranges() as u64,
    };
    Ok(())
}

/// Shows all memory of a part of a mirror, also what was mapped after the mirror was made.
///
/// # Errors
///
/// - `EINVAL`: unknown flags; no whole pages of the mirror, or none.
/// - `ENOENT`: no such mirror in this file.
/// - `EFAULT`: somewhere there is no memory, or none that the GPU can use.
/// - `ESRCH`: the program whose memory it is has ended.
/// - Others are those of [`Mirrors::populate`](crate::mirror::Mirrors::populate).
pub(super) fn populate(_dev: &Device, file: &File, arg: &mut MirrorPopulate) -> Result {
    require_zero(&[arg.flags])?;
    let mirrors = file.inner().get_ref().context().mirrors();
    mirrors.populate(arg.id, arg.gpu_address, arg.length)
}

/// Moves memory of a mirror between the VRAM of the GPU and the system, and notes where it is to be when the GPU accesses it: that
/// first, and it holds also where the move fails. Also where there is an error, `moved` and `stayed` tell what has become of the
/// range.
///
/// # Errors
///
/// - `EINVAL`: no flag, or an unknown one; a place that there is none of, or that is none to move to; memory is to be made
///   elsewhere than in VRAM, or later; a granularity that there is none of, or without a hint; no whole pages of the mirror,
///   or none; outputs that are not 0.
/// - `ENOENT`: no such mirror in this file.
/// - `ESRCH`: the program whose memory it is has ended.
/// - `EXDEV`: the caller is not of the process that opened the file.
/// - `EOPNOTSUPP`: nothing moves to VRAM on this machine.
/// - `ENOSPC`: the mirror would have too many ranges with hints.
/// - Others are those of [`Mirrors::migrate`](crate::mirror::Mirrors::migrate).
pub(super) fn migrate(dev: &Device, file: &File, arg: &mut MirrorMigrate) -> Result {
    let has = |flag: u32| arg.flags & flag != 0;
    let (now, keep, fill) = (
        has(migrate_flags::NOW),
        has(migrate_flags::KEEP),
        has(migrate_flags::FILL),
    );
    let moves = matches!(arg.place, place::VRAM | place::SYSTEM);
    if arg.flags & !migrate_flags::ALL != 0
        || !(now || keep)
        || arg.place > place::STAY
        || (now && !moves)
        || (fill && !(now && arg.place == place::VRAM))
        || (arg.granularity != 0 && !(keep && GRANULARITY.contains(&arg.granularity)))
        || arg.moved != 0
        || arg.stayed != 0
    {
        return Err(EINVAL);
    }
    let context = file.inner().get_ref().context();
    if !context.is_openers() {
        return Err(EXDEV);
    }
    let mirrors = context.mirrors();
    mirrors.part_of(arg.id, arg.gpu_address, arg.length)?;
    if arg.place == place::VRAM && !dev.gpu().device_pages().may_populate() {
        return Err(EOPNOTSUPP);
    }
    let device = DrmDevice::of(dev);
    if keep {
        let hint = match arg.place {
            place::VRAM => Some(Hint::Vram {
                reach: (arg.granularity != 0).then(|| 1 << arg.granularity),
            }),
            place::SYSTEM => Some(Hint::System),
            place::STAY => Some(Hint::Stay),
            _ => None,
        };
        mirrors.keep(&device, arg.id, arg.gpu_address, arg.length, hint)?;
    }
    if !now {
        return Ok(());
    }
    let place = if arg.place == place::VRAM {
        Place::Vram { fill }
    } else {
        Place::System
    };
    let (tally, result) = mirrors.migrate(&device, arg.id, arg.gpu_address, arg.length, place);
    (arg.moved, arg.stayed) = (tally.moved, tally.stayed);
    result
}
