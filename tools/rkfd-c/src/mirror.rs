// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Mirrors: memory of the program at GPU addresses of an address space.

use std::ffi::c_int;
use std::ffi::c_void;
use std::mem::MaybeUninit;

use library::native;
use library::native::abi;
use library::native::Filling;
use library::native::Rights;

use crate::error::given;
use crate::error::guard;
use crate::error::release;
use crate::error::Failure;
use crate::error::Result;
use crate::native::rights_of;
use crate::native::size_of_memory;
use crate::native::Space;
use crate::native::RKFD_RANGE_EXECUTE;
use crate::native::RKFD_RANGE_READ;
use crate::native::RKFD_RANGE_WRITE;
use crate::sized::answer;
use crate::sized::grows;
use crate::sized::read;

/// A mirror shows memory when it is made, and again after each change while the queues of the address space wait.
pub const RKFD_FILLING_AT_ONCE: u32 = 0;
/// It shows memory when the GPU accesses it; the access is repeated until then, and no queue waits for a change. Where the
/// GPU can, and chosen before the first queue of the address space.
pub const RKFD_FILLING_ON_ACCESS: u32 = 1;

/// All memory of the program, also what comes later, at the addresses that it has for the program.
pub const RKFD_MIRROR_WHOLE: u32 = 1;

/// Memory of the program at GPU addresses of an address space.
#[derive(Debug)]
pub struct Mirror(pub(crate) native::Mirror);

/// What memory to show, and where: set `size` and all others to 0, then what is to differ.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MirrorOptions {
    /// sizeof(struct rkfd_mirror_options).
    pub size: u32,
    /// RKFD_RANGE_*: what the GPU may do. It writes only where the program may, too.
    pub rights: u32,
    /// First byte of the memory, a multiple of 4096; NULL for all memory.
    pub memory: *mut c_void,
    /// Bytes, a multiple of 4096; 0 for all memory.
    pub bytes: u64,
    /// GPU address of the first byte, a multiple of 4096; 0 for all memory.
    pub address: u64,
    /// RKFD_FILLING_*; for all memory RKFD_FILLING_ON_ACCESS.
    pub filling: u32,
    /// RKFD_MIRROR_WHOLE or 0.
    pub flags: u32,
}

/// What a mirror is, what the GPU can reach by it now, and what happened to it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorInfo {
    /// sizeof(struct rkfd_mirror_info); set it before the call.
    pub size: u32,
    /// RKFD_RANGE_*.
    pub rights: u32,
    /// RKFD_FILLING_*.
    pub filling: u32,
    /// RKFD_MIRROR_WHOLE or 0.
    pub flags: u32,
    /// Address of the memory's first byte for the program; of all memory the first that can be shown.
    pub memory: u64,
    /// GPU address of that byte.
    pub address: u64,
    /// Bytes of the range, whether there is memory or not.
    pub bytes: u64,
    /// Bytes of the largest page that the GPU can have here: 2 MiB where `memory` and `address` differ by a multiple of that.
    pub leaf: u64,
    /// Bytes that the GPU can reach now.
    pub shown: u64,
    /// How many of them in pages of 2 MiB.
    pub shown_huge: u64,
    /// Changes of memory that was shown or about to be.
    pub changes: u64,
    /// Accesses that memory was shown for.
    pub faults: u64,
    /// How many of the bytes of `shown` are in VRAM of the GPU. From version 0.8 on.
    pub shown_vram: u64,
    /// Ranges of it with a hint where memory is to be (RKFD_MIGRATE_KEEP). From version 0.9 on.
    pub hints: u64,
}

grows! {
    MirrorOptions, "rkfd_mirror_options", 40;
    MirrorInfo, "rkfd_mirror_info", 80;
}

/// What options ask for.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// A range.
    Range {
        memory: *mut c_void,
        len: usize,
        address: u64,
        rights: Rights,
        filling: Filling,
    },
    /// All memory.
    Whole(Rights),
}

fn request_of(options: &MirrorOptions) -> Result<Request> {
    let rights = rights_of(options.rights)?;
    let filling = match options.filling {
        RKFD_FILLING_AT_ONCE => Filling::AtOnce,
        RKFD_FILLING_ON_ACCESS => Filling::OnAccess,
        other => {
            return Err(Failure::invalid(format!(
                "No way to fill a mirror: {other}"
            )))
        }
    };
    let ranged = !options.memory.is_null() || options.bytes != 0 || options.address != 0;
    match options.flags {
        0 => Ok(Request::Range {
            memory: options.memory,
            len: size_of_memory(options.bytes)?,
            address: options.address,
            rights,
            filling,
        }),
        RKFD_MIRROR_WHOLE if ranged => Err(Failure::invalid("A mirror of all memory has no range")),
        RKFD_MIRROR_WHOLE if filling != Filling::OnAccess => Err(Failure::invalid(
            "A mirror of all memory is filled by accesses",
        )),
        RKFD_MIRROR_WHOLE => Ok(Request::Whole(rights)),
        other => Err(Failure::invalid(format!(
            "No flags of a mirror: {other:#x}"
        ))),
    }
}

/// The driver's answer in this library's terms.
fn info_of(query: &abi::MirrorQuery, leaf: u64) -> MirrorInfo {
    let has = |flag| query.flags & flag != 0;
    MirrorInfo {
        size: 0,
        rights: match (has(abi::MIRROR_READ_ONLY), has(abi::MIRROR_EXECUTE)) {
            (false, _) => RKFD_RANGE_WRITE,
            (true, false) => RKFD_RANGE_READ,
            (true, true) => RKFD_RANGE_EXECUTE,
        },
        filling: match has(abi::MIRROR_FAULT) {
            false => RKFD_FILLING_AT_ONCE,
            true => RKFD_FILLING_ON_ACCESS,
        },
        flags: match has(abi::MIRROR_WHOLE) {
            false => 0,
            true => RKFD_MIRROR_WHOLE,
        },
        memory: query.address,
        address: query.gpu_address,
        bytes: query.length,
        leaf,
        shown: query.bytes,
        shown_huge: query.huge_bytes,
        changes: query.changes,
        faults: query.faults,
        shown_vram: query.vram_bytes,
        hints: query.hints,
    }
}

/// Shows memory of the program at GPU addresses of an address space: `bytes` bytes from `memory` on, or all of it. Whatever
/// is there is shown, be it private, shared or of a file; nothing is pinned. CPU and GPU see the same: where the program
/// unmaps, protects, moves or discards memory, or the kernel swaps it out, the GPU does not reach it any more before that
/// happens, and reaches afterwards what is there then. An access to where there is no memory is a fault: see
/// rkfd_space_fault(). An address space has any number of mirrors, of the same memory, too, or one of all memory.
///
/// In a mirror of all memory any pointer is good, to the stack, a global variable or what is allocated or mapped later,
/// without a further call. Where something is bound (rkfd_space_bind), that has the address until it is unbound.
///
/// -EINVAL for unknown rights, filling or flags; for an address or a size that is no multiple of 4096, or a size of 0; for
/// GPU addresses that cannot be bound; for all memory with a range, or not filled by accesses. -E2BIG where the structure is
/// of a newer header and asks for what this library does not know. -EOVERFLOW where a range passes the last address there is,
/// -EFAULT for memory where no program can have any. -EADDRINUSE where something is bound, or mirrored, at one of the
/// GPU addresses, or all memory is; for all memory, where there is a mirror. -EOPNOTSUPP where accesses are to fill it, and
/// the GPU cannot repeat them; -EBUSY where they are to, and the address space has had a queue whose accesses are not
/// repeated. -EXDEV in a child of fork, whose memory is not what the address space shows.
///
/// MT-Safe.
///
/// # Safety
/// `options` points to as many bytes as its `size` says. Until the mirror is freed, packets may read the memory and, with
/// RKFD_RANGE_WRITE, write it: what they touch, and when, is the caller's concern.
#[no_mangle]
pub unsafe extern "C" fn rkfd_mirror_new(
    space: Option<&Space>,
    options: *const MirrorOptions,
    mirror: Option<&mut MaybeUninit<Option<Box<Mirror>>>>,
) -> c_int {
    guard(|| {
        let out = given(mirror, "mirror")?;
        out.write(None);
        let space = given(space, "space")?;
        // SAFETY: the caller's promise.
        let made = match request_of(&unsafe { read(options) }?)? {
            Request::Range {
                memory,
                len,
                address,
                rights,
                filling,
            } => {
                // SAFETY: the caller's promise for what packets do with the range.
                unsafe { space.0.mirror(memory.cast(), len, address, rights, filling) }
            }
            // SAFETY: the caller's promise for what packets do with any memory.
            Request::Whole(rights) => unsafe { space.0.mirror_all(rights) },
        }?;
        out.write(Some(Box::new(Mirror(made))));
        Ok(())
    })
}

/// Ends a mirror; NULL is allowed. When this returns, the GPU does not reach the memory by it any more, and its GPU
/// addresses are free. rkfd_space_close() does not end it.
///
/// MT-Unsafe race:mirror: no other call may use the handle meanwhile or later.
#[no_mangle]
pub extern "C" fn rkfd_mirror_free(mirror: Option<Box<Mirror>>) {
    release(mirror);
}

/// Describes a mirror. What it shows may have changed when this returns.
///
/// MT-Safe.
///
/// # Safety
/// `info` points to as many bytes as its `size` says.
#[no_mangle]
pub unsafe extern "C" fn rkfd_mirror_describe(
    mirror: Option<&Mirror>,
    info: *mut MirrorInfo,
) -> c_int {
    guard(|| {
        let mirror = given(mirror, "mirror")?;
        // SAFETY: the caller's promise.
        let info = unsafe { answer(info) }?;
        info.give(info_of(&mirror.0.query()?, mirror.0.leaf()));
        Ok(())
    })
}

/// Shows all memory at `bytes` bytes from GPU address `address` on: what was mapped there after a mirror was filled at once,
/// and what no access has found yet. -EINVAL where these are no whole pages of the mirror, or none; -EFAULT where somewhere
/// there is no memory, or none that the GPU can use: what lies before it is shown then.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_mirror_populate(mirror: Option<&Mirror>, address: u64, bytes: u64) -> c_int {
    guard(|| {
        let mirror = given(mirror, "mirror")?;
        Ok(mirror.0.populate(address, size_of_memory(bytes)?)?)
    })
}

#[cfg(test)]
mod tests {
    use std::ptr::null;
    use std::ptr::null_mut;

    use nix::errno::Errno;

    use super::*;

    const SOMEWHERE: u64 = 0x5000;

    fn range() -> MirrorOptions {
        MirrorOptions {
            size: 0,
            rights: RKFD_RANGE_WRITE,
            memory: std::ptr::without_provenance_mut(0x7000),
            bytes: 0x2000,
            address: SOMEWHERE,
            filling: RKFD_FILLING_AT_ONCE,
            flags: 0,
        }
    }

    fn whole() -> MirrorOptions {
        MirrorOptions {
            memory: null_mut(),
            bytes: 0,
            address: 0,
            filling: RKFD_FILLING_ON_ACCESS,
            flags: RKFD_MIRROR_WHOLE,
            ..range()
        }
    }

    #[test]
    fn null_is_refused_and_freed() {
        let invalid = -(Errno::EINVAL as c_int);
        let mut mirror = MaybeUninit::uninit();
        // SAFETY: NULL is allowed.
        unsafe {
            assert_eq!(rkfd_mirror_new(None, null(), None), invalid);
            assert_eq!(rkfd_mirror_new(None, null(), Some(&mut mirror)), invalid);
            assert_eq!(rkfd_mirror_describe(None, null_mut()), invalid);
        }
        // SAFETY: every call writes it.
        assert!(unsafe { mirror.assume_init() }.is_none());
        assert_eq!(rkfd_mirror_populate(None, SOMEWHERE, 0x1000), invalid);
        rkfd_mirror_free(None);
    }

    #[test]
    fn options_are_a_range_or_all_memory() {
        for (rights, filling, want) in [
            (
                RKFD_RANGE_READ,
                RKFD_FILLING_AT_ONCE,
                (Rights::Read, Filling::AtOnce),
            ),
            (
                RKFD_RANGE_WRITE,
                RKFD_FILLING_ON_ACCESS,
                (Rights::Write, Filling::OnAccess),
            ),
            (
                RKFD_RANGE_EXECUTE,
                RKFD_FILLING_AT_ONCE,
                (Rights::Execute, Filling::AtOnce),
            ),
        ] {
            let options = MirrorOptions {
                rights,
                filling,
                ..range()
            };
            let (rights, filling) = want;
            assert_eq!(
                request_of(&options).unwrap(),
                Request::Range {
                    memory: options.memory,
                    len: 0x2000,
                    address: SOMEWHERE,
                    rights,
                    filling,
                }
            );
        }
        assert_eq!(request_of(&whole()).unwrap(), Request::Whole(Rights::Write));
    }

    #[test]
    fn options_that_no_mirror_has_are_refused() {
        for options in [
            MirrorOptions {
                rights: 3,
                ..range()
            },
            MirrorOptions {
                filling: 2,
                ..range()
            },
            MirrorOptions {
                flags: 2,
                ..range()
            },
            MirrorOptions {
                flags: RKFD_MIRROR_WHOLE,
                ..range()
            },
            MirrorOptions {
                flags: 3,
                ..whole()
            },
            MirrorOptions {
                rights: 3,
                ..whole()
            },
            MirrorOptions {
                bytes: 0x1000,
                ..whole()
            },
            MirrorOptions {
                address: 0x1000,
                ..whole()
            },
            MirrorOptions {
                memory: range().memory,
                ..whole()
            },
            MirrorOptions {
                filling: RKFD_FILLING_AT_ONCE,
                ..whole()
            },
        ] {
            assert_eq!(
                request_of(&options).unwrap_err().errno(),
                Errno::EINVAL,
                "{options:?}"
            );
        }
    }

    #[test]
    fn what_the_driver_tells_is_told_in_numbers_of_this_library() {
        for (flags, rights, filling, whole) in [
            (
                abi::MIRROR_POPULATED,
                RKFD_RANGE_WRITE,
                RKFD_FILLING_AT_ONCE,
                0,
            ),
            (
                abi::MIRROR_POPULATED | abi::MIRROR_READ_ONLY,
                RKFD_RANGE_READ,
                RKFD_FILLING_AT_ONCE,
                0,
            ),
            (
                abi::MIRROR_FAULT | abi::MIRROR_READ_ONLY | abi::MIRROR_EXECUTE,
                RKFD_RANGE_EXECUTE,
                RKFD_FILLING_ON_ACCESS,
                0,
            ),
            (
                abi::MIRROR_FAULT | abi::MIRROR_WHOLE,
                RKFD_RANGE_WRITE,
                RKFD_FILLING_ON_ACCESS,
                RKFD_MIRROR_WHOLE,
            ),
        ] {
            let query = abi::MirrorQuery {
                id: 9,
                flags,
                address: 1,
                gpu_address: 2,
                length: 3,
                bytes: 5,
                huge_bytes: 6,
                changes: 7,
                faults: 8,
                vram_bytes: 10,
                hints: 11,
            };
            let want = MirrorInfo {
                size: 0,
                rights,
                filling,
                flags: whole,
                memory: 1,
                address: 2,
                bytes: 3,
                leaf: 4,
                shown: 5,
                shown_huge: 6,
                changes: 7,
                faults: 8,
                shown_vram: 10,
                hints: 11,
            };
            assert_eq!(info_of(&query, 4), want);
        }
    }
}
