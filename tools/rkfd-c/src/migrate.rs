// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Migration: memory of mirrors goes to VRAM and back.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use library::native::abi;
use library::native::Migration;
use library::native::Moved;
use library::native::Place;

use crate::error::given;
use crate::error::guard;
use crate::error::Failure;
use crate::error::Result;
use crate::mirror::Mirror;
use crate::native::size_of_memory;
use crate::sized::grows;
use crate::sized::read;

/// Memory is to be where the driver thinks best. No place to move to.
pub const RKFD_PLACE_POLICY: u32 = 0;
/// Memory is to be in VRAM of the address space's GPU.
pub const RKFD_PLACE_VRAM: u32 = 1;
/// Memory is to be in system memory.
pub const RKFD_PLACE_SYSTEM: u32 = 2;
/// Memory is to be where it is. No place to move to.
pub const RKFD_PLACE_STAY: u32 = 3;

/// Of an address space: memory of mirrors can be moved to VRAM (rkfd_mirror_migrate()).
pub const RKFD_SPACE_MIGRATES: u64 = 1;
/// Accesses of the GPU move memory where hints say so (RKFD_MIGRATE_KEEP), in mirrors that accesses fill.
pub const RKFD_SPACE_MOVES_BY_ACCESS: u64 = 2;

/// What is there moves now.
pub const RKFD_MIGRATE_NOW: u32 = 1;
/// The place is noted for later accesses of the GPU: see rkfd_mirror_migrate().
pub const RKFD_MIGRATE_KEEP: u32 = 2;
/// With RKFD_MIGRATE_NOW to RKFD_PLACE_VRAM: also pages of the program that have no memory yet, which then are zeroes in VRAM.
pub const RKFD_MIGRATE_FILL: u32 = 4;

/// Ranges of one mirror that have a hint.
pub const RKFD_MIRROR_MAX_HINTS: u32 = 4096;

/// Which memory of a mirror is to move where: set `size` and all others to 0, then what is to differ.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MigrateOptions {
    /// sizeof(struct rkfd_migrate_options).
    pub size: u32,
    /// RKFD_MIGRATE_*, of which NOW or KEEP.
    pub flags: u32,
    /// GPU address of the first byte, a multiple of 4096.
    pub address: u64,
    /// Bytes, a multiple of 4096.
    pub bytes: u64,
    /// RKFD_PLACE_*.
    pub place: u32,
    /// With RKFD_MIGRATE_KEEP: log2 of the bytes that move at once, 16 to 21; 0: the driver's choice.
    pub granularity: u32,
}

grows! {
    MigrateOptions, "rkfd_migrate_options", 32;
}

/// The driver's features in this library's terms.
pub(crate) fn features_of(info: &abi::DeviceInfo) -> u64 {
    let flag = |theirs, ours| if info.features & theirs != 0 { ours } else { 0 };
    flag(abi::FEATURE_MIGRATION, RKFD_SPACE_MIGRATES)
        | flag(abi::FEATURE_MOVES_BY_ACCESS, RKFD_SPACE_MOVES_BY_ACCESS)
}

fn migration_of(options: &MigrateOptions) -> Result<Migration> {
    let place = match options.place {
        RKFD_PLACE_POLICY => Place::Policy,
        RKFD_PLACE_VRAM => Place::Vram,
        RKFD_PLACE_SYSTEM => Place::System,
        RKFD_PLACE_STAY => Place::Stay,
        other => return Err(Failure::invalid(format!("No place of memory: {other}"))),
    };
    let known = RKFD_MIGRATE_NOW | RKFD_MIGRATE_KEEP | RKFD_MIGRATE_FILL;
    if options.flags & !known != 0 {
        return Err(Failure::invalid(format!(
            "No flags of a migration: {:#x}",
            options.flags
        )));
    }
    let has = |flag| options.flags & flag != 0;
    Ok(Migration {
        place,
        now: has(RKFD_MIGRATE_NOW),
        keep: has(RKFD_MIGRATE_KEEP),
        fill: has(RKFD_MIGRATE_FILL),
        granularity: options.granularity,
    })
}

/// Moves memory of a range of a mirror to where it is to be, or has that place noted, or both. Program and GPU see the same
/// bytes at the same addresses before, meanwhile and afterwards. What is in VRAM the GPU uses there; an access of the CPU, or
/// of the kernel for the program, brings the pages around it back to system memory. Only memory of the program's own can move
/// (private and anonymous, not locked or pinned): all else stays, which is no error, and holes in the program's memory are
/// stepped over.
///
/// `*moved` is how many bytes were moved, also where the call fails after a part of them, and `*stayed` how many are there and
/// elsewhere than they should be; what is where it should be counts in neither. Either may be NULL.
///
/// With RKFD_MIGRATE_KEEP the place is noted for the range, in place of what was noted there (RKFD_PLACE_POLICY: nothing more is),
/// before anything moves, and stays noted where that fails. Alone it moves nothing, and both numbers are 0. The hint is one of
/// addresses of this mirror, whatever memory is there later; other mirrors have their own. In a mirror that accesses fill, and where
/// RKFD_SPACE_MOVES_BY_ACCESS is set, an access of the GPU that finds memory of the program's own in the system under
/// RKFD_PLACE_VRAM has the block around it, of 2 to the power of `granularity` bytes and aligned in GPU addresses, moved to VRAM
/// that nobody uses, and waits for that; where there is none, it uses the memory in place. What CPU and GPU use in turn within
/// a tenth of a second stays in the system for a while. The other places have accesses move nothing. Elsewhere hints have no effect.
///
/// -EINVAL for unknown flags or an unknown place; without RKFD_MIGRATE_NOW and RKFD_MIGRATE_KEEP; for RKFD_MIGRATE_NOW to
/// RKFD_PLACE_POLICY or RKFD_PLACE_STAY; for RKFD_MIGRATE_FILL without RKFD_MIGRATE_NOW to RKFD_PLACE_VRAM; for a granularity
/// that there is not; where these are no whole pages of the mirror, or none. -E2BIG where the structure is of a newer header and
/// asks for what this library does not know. -EOPNOTSUPP for RKFD_PLACE_VRAM where nothing can be moved there, and for
/// RKFD_MIGRATE_KEEP where the driver speaks a version of the native interface before 6. -ENOSPC where the mirror would have more
/// than RKFD_MIRROR_MAX_HINTS ranges with a hint. -ENOMEM where there is no room, by VRAM or by the limit of the program's control
/// group, which hints do not meet. -EXDEV in a child of fork. -ETIMEDOUT where the GPU did not stop using memory, -EIO where it does not answer.
///
/// MT-Safe.
///
/// # Safety
/// `options` points to as many bytes as its `size` says.
#[no_mangle]
pub unsafe extern "C" fn rkfd_mirror_migrate(
    mirror: Option<&Mirror>,
    options: *const MigrateOptions,
    moved: Option<&mut MaybeUninit<u64>>,
    stayed: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    guard(|| {
        let mut told = Moved::default();
        // SAFETY: the caller's promise.
        let result = unsafe { migrate(mirror, options, &mut told) };
        if let Some(moved) = moved {
            moved.write(told.moved);
        }
        if let Some(stayed) = stayed {
            stayed.write(told.stayed);
        }
        result
    })
}

/// As [`rkfd_mirror_migrate`].
///
/// # Safety
/// As there.
unsafe fn migrate(
    mirror: Option<&Mirror>,
    options: *const MigrateOptions,
    told: &mut Moved,
) -> Result<()> {
    let mirror = given(mirror, "mirror")?;
    // SAFETY: the caller's promise.
    let options = unsafe { read(options) }?;
    let (how, bytes) = (migration_of(&options)?, size_of_memory(options.bytes)?);
    match mirror.0.migrate(options.address, bytes, how) {
        Ok(all) => {
            *told = all;
            Ok(())
        }
        Err(partly) => {
            *told = partly.told;
            Err(partly.error.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::null;

    use nix::errno::Errno;

    use super::*;

    fn into_vram() -> MigrateOptions {
        MigrateOptions {
            size: 32,
            flags: RKFD_MIGRATE_NOW,
            address: 0x5000,
            bytes: 0x2000,
            place: RKFD_PLACE_VRAM,
            granularity: 0,
        }
    }

    #[test]
    fn options_of_a_migration_are_a_place_and_what_is_to_be_done() {
        let places = [Place::Policy, Place::Vram, Place::System, Place::Stay];
        for (place, want) in (0..).zip(places) {
            for flags in 0..8 {
                let options = MigrateOptions {
                    flags,
                    place,
                    granularity: 17,
                    ..into_vram()
                };
                let want = Migration {
                    place: want,
                    now: flags & RKFD_MIGRATE_NOW != 0,
                    keep: flags & RKFD_MIGRATE_KEEP != 0,
                    fill: flags & RKFD_MIGRATE_FILL != 0,
                    granularity: 17,
                };
                assert_eq!(migration_of(&options).unwrap(), want);
            }
        }
        for options in [
            MigrateOptions {
                flags: 9,
                ..into_vram()
            },
            MigrateOptions {
                place: 4,
                ..into_vram()
            },
        ] {
            let error = migration_of(&options).unwrap_err();
            assert_eq!(error.errno(), Errno::EINVAL, "{options:?}");
        }
    }

    #[test]
    fn numbers_are_those_of_the_driver() {
        let places = [
            RKFD_PLACE_POLICY,
            RKFD_PLACE_VRAM,
            RKFD_PLACE_SYSTEM,
            RKFD_PLACE_STAY,
        ];
        let theirs = [
            abi::PLACE_POLICY,
            abi::PLACE_VRAM,
            abi::PLACE_SYSTEM,
            abi::PLACE_STAY,
        ];
        assert_eq!(places, theirs);
        assert_eq!(RKFD_MIRROR_MAX_HINTS, abi::MIRROR_MAX_HINTS);
    }

    #[test]
    fn features_of_others_are_not_told() {
        for (theirs, ours) in [
            (0, 0),
            (1, 0),
            (abi::FEATURE_MIGRATION, RKFD_SPACE_MIGRATES),
            (abi::FEATURE_MOVES_BY_ACCESS, RKFD_SPACE_MOVES_BY_ACCESS),
            (u32::MAX, 3),
        ] {
            let info = abi::DeviceInfo {
                features: theirs,
                ..abi::DeviceInfo::default()
            };
            assert_eq!(features_of(&info), ours);
        }
    }

    #[test]
    fn null_is_refused_and_tells_nothing_moved() {
        let invalid = -(Errno::EINVAL as c_int);
        let (mut moved, mut stayed) = (MaybeUninit::new(1), MaybeUninit::new(1));
        // SAFETY: NULL is allowed, and the last call's structure has the size that it says.
        unsafe {
            assert_eq!(rkfd_mirror_migrate(None, null(), None, None), invalid);
            let (moved, stayed) = (Some(&mut moved), Some(&mut stayed));
            assert_eq!(
                rkfd_mirror_migrate(None, &into_vram(), moved, stayed),
                invalid
            );
        }
        // SAFETY: both were written before.
        let told = unsafe { (moved.assume_init(), stayed.assume_init()) };
        assert_eq!(told, (0, 0));
    }
}
