// SPDX-License-Identifier: GPL-2.0 OR MIT
//! System calls as they are, with any argument.

use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::libc;

/// Bytes of the largest argument that a command word can name.
const LARGEST: usize = 1 << 14;

/// Room for any argument.
#[repr(C, align(16))]
pub struct Argument(pub [u32; LARGEST / 4]);

impl Argument {
    /// Zeroes.
    pub fn new() -> Box<Self> {
        Box::new(Self([0; LARGEST / 4]))
    }
}

/// 0 or the errno.
fn answer(result: libc::c_int) -> i32 {
    if result < 0 {
        Errno::last_raw()
    } else {
        0
    }
}

/// A call with an argument that may lie anywhere; returns 0 or the errno.
///
/// # Safety
/// `argument` is readable and writable for as many bytes as the command word says, or is an address without memory; the
/// same holds for pointers inside it and what the call does with them.
pub unsafe fn ioctl(fd: BorrowedFd<'_>, command: u32, argument: u64) -> i32 {
    // SAFETY: the caller's promise.
    answer(unsafe { libc::ioctl(fd.as_raw_fd(), libc::c_ulong::from(command), argument) })
}

/// Maps a file where the kernel likes; `Err` is the errno.
pub fn map(
    fd: BorrowedFd<'_>,
    len: usize,
    prot: i32,
    flags: i32,
    offset: u64,
) -> Result<usize, i32> {
    // CAST: the kernel reads the bits of an offset, not the sign.
    let offset = offset as libc::off_t;
    // SAFETY: no address is asked for (callers do not pass MAP_FIXED), so nothing existing is replaced.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            prot,
            flags,
            fd.as_raw_fd(),
            offset,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(Errno::last_raw());
    }
    Ok(start.addr())
}

/// Gives pages back. Returns 0 or the errno.
///
/// # Safety
/// Nobody accesses the pages any more.
pub unsafe fn unmap(start: usize, len: usize) -> i32 {
    // SAFETY: the caller's promise.
    answer(unsafe { libc::munmap(at(start), len) })
}

/// Replaces pages by new anonymous ones. Returns 0 or the errno.
///
/// # Safety
/// The range is the caller's, who bears that its contents change.
pub unsafe fn renew(start: usize, len: usize) -> i32 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the caller's promise; the old mapping goes and the new one comes in one step.
    let new = unsafe { libc::mmap(at(start), len, prot, flags, -1, 0) };
    if new == libc::MAP_FAILED {
        Errno::last_raw()
    } else {
        0
    }
}

/// Moves the pages of one range to another and leaves the first one empty. Returns 0 or the errno.
///
/// # Safety
/// As [`renew`], of both ranges, which do not overlap.
pub unsafe fn move_pages(from: usize, len: usize, to: usize) -> i32 {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    // SAFETY: the caller's promise.
    let new = unsafe { libc::mremap(at(from), len, len, flags, at(to)) };
    if new == libc::MAP_FAILED {
        Errno::last_raw()
    } else {
        0
    }
}

/// Advises about pages. Returns 0 or the errno.
///
/// # Safety
/// The range is the caller's, who bears that its contents are lost.
pub unsafe fn advise(start: usize, len: usize, advice: i32) -> i32 {
    // SAFETY: the caller's promise.
    answer(unsafe { libc::madvise(at(start), len, advice) })
}

/// Changes what may be done with pages. Returns 0 or the errno.
///
/// # Safety
/// Nobody accesses the range in a way that is not allowed any more.
pub unsafe fn protect(start: usize, len: usize, prot: i32) -> i32 {
    // SAFETY: the caller's promise.
    answer(unsafe { libc::mprotect(at(start), len, prot) })
}

/// The address as a pointer of a system call.
pub fn at(address: usize) -> *mut libc::c_void {
    std::ptr::with_exposed_provenance_mut(address)
}
