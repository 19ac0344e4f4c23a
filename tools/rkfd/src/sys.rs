// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The only place that makes raw system calls.

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::libc;
use nix::sys::mman;
use nix::sys::mman::MapFlags;
use nix::sys::mman::ProtFlags;

use crate::error::Error;
use crate::error::Result;

/// Size of a CPU and GPU page in bytes.
pub const PAGE: usize = 4096;

/// Structures that the kernel reads and writes: plain integers, no padding.
///
/// # Safety
/// Every bit pattern must be a valid value, and the structure must have the size that its command word says.
pub unsafe trait Argument {}

macro_rules! arguments {
    ($($ty:ident),*) => { $(
        // SAFETY: a `repr(C)` structure of integers whose layout `abi` asserts; the command word carries its size.
        unsafe impl Argument for crate::abi::$ty {}
    )* };
}

arguments!(
    GetVersion,
    CreateQueue,
    DestroyQueue,
    SetMemoryPolicy,
    GetClockCounters,
    GetAperturesNew,
    UpdateQueue,
    CreateEvent,
    DestroyEvent,
    SetEvent,
    ResetEvent,
    WaitEvents,
    SetScratchBackingVa,
    GetTileConfig,
    SetTrapHandler,
    AcquireVm,
    AllocMemory,
    FreeMemory,
    MapMemory,
    UnmapMemory,
    SetCuMask,
    GetQueueWaveState,
    SetXnackMode,
    SmiEvents,
    AvailableMemory,
    RuntimeEnable
);

/// Makes one call on `fd`, without repeating it.
///
/// # Errors
/// The errno. The kernel may have written to `arg` even then.
///
/// # Safety
/// Pointers inside `arg` must be valid for what the call does with them.
pub unsafe fn call<T: Argument>(
    fd: impl AsFd,
    command: u32,
    arg: &mut T,
) -> std::result::Result<(), Errno> {
    debug_assert_eq!(((command >> 16) & 0x3fff) as usize, size_of::<T>());
    let raw = fd.as_fd().as_raw_fd();
    // SAFETY: `arg` is a valid, exclusive structure of the size in the command word (contract of `Argument`); the
    // caller vouches for the pointers in it.
    let rc = unsafe { libc::ioctl(raw, libc::c_ulong::from(command), std::ptr::from_mut(arg)) };
    Errno::result(rc).map(drop)
}

/// Makes one call and repeats it where a Unix signal interrupted it or the kernel says to try again.
///
/// # Errors
/// [`Error::Call`].
///
/// # Safety
/// As [`call`].
pub unsafe fn call_again<T: Argument>(
    fd: impl AsFd,
    name: &'static str,
    command: u32,
    arg: &mut T,
) -> Result<()> {
    loop {
        // SAFETY: the caller's promise.
        match unsafe { call(fd.as_fd(), command, arg) } {
            Ok(()) => return Ok(()),
            // Pages that changed while they were looked up are EAGAIN; libhsakmt repeats both, too.
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(errno) => return Err(Error::Call { call: name, errno }),
        }
    }
}

/// Takes a descriptor that a call handed out.
///
/// # Safety
/// It is open, and nobody else closes it.
pub unsafe fn own_descriptor(number: u32) -> OwnedFd {
    // CAST: descriptors are small.
    // SAFETY: the caller's promise.
    unsafe { OwnedFd::from_raw_fd(number as i32) }
}

/// A range of this process's address space that it owns, or that it was lent.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    lent: bool,
}

// SAFETY: a mapping is plain memory; access to its bytes goes through volatile operations of its owner.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `len` bytes at a multiple of `align` without backing them.
    ///
    /// # Errors
    /// [`Error::Call`] with mmap's errno.
    pub fn reserve(len: usize, align: usize) -> Result<Self> {
        let align = align.max(PAGE);
        let slack = len
            .checked_add(align)
            .ok_or(Error::Argument("A buffer larger than the address space"))?;
        let whole = Self::anonymous_with(slack, ProtFlags::PROT_NONE)?;
        let skip = whole.start.as_ptr().align_offset(align);
        if skip > align {
            return Err(Error::Argument("An alignment that is no power of two"));
        }
        whole.trim(skip, len)
    }

    /// Reserves `len` bytes at `address`, where nothing may be, without backing them.
    ///
    /// # Errors
    /// [`Error::Argument`] where the range is not one of whole pages; [`Error::Call`] with mmap's errno, `EEXIST` where
    /// something is there.
    pub fn reserve_at(address: u64, len: usize) -> Result<Self> {
        Self::anonymous_fixed(address, len, ProtFlags::PROT_NONE)
    }

    /// Anonymous zeroed memory at `address` that a child does not inherit.
    ///
    /// # Errors
    /// As [`Mapping::reserve_at`].
    pub fn anonymous_at(address: u64, len: usize) -> Result<Self> {
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let mapping = Self::anonymous_fixed(address, len, prot)?;
        mapping.keep_from_children();
        Ok(mapping)
    }

    fn anonymous_fixed(address: u64, len: usize, prot: ProtFlags) -> Result<Self> {
        let odd = Error::Argument("Memory that is not whole pages");
        let start = usize::try_from(address).ok().and_then(NonZeroUsize::new);
        let (Some(at), Some(size)) = (start, NonZeroUsize::new(len)) else {
            return Err(odd);
        };
        if at.get() % PAGE != 0 || len % PAGE != 0 {
            return Err(odd);
        }
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE | MapFlags::MAP_FIXED_NOREPLACE;
        // SAFETY: nothing that exists is replaced.
        let start = unsafe { mman::mmap_anonymous(Some(at), size, prot, flags) }
            .map_err(mmap_error)?
            .cast::<u8>();
        let mapping = Self {
            start,
            len,
            lent: false,
        };
        // A kernel that does not know the flag takes the address for a wish.
        if mapping.address() != at.get() {
            return Err(mmap_error(Errno::EEXIST));
        }
        Ok(mapping)
    }

    /// Memory of somebody else's, who unmaps it.
    ///
    /// # Errors
    /// [`Error::Argument`] where the range is not one of whole pages.
    ///
    /// # Safety
    /// The range stays mapped for reading and writing as long as the value lives, and bears that its bytes change at
    /// any time.
    pub unsafe fn lent(start: *mut u8, len: usize) -> Result<Self> {
        let whole = len != 0 && start.addr() % PAGE == 0 && len % PAGE == 0;
        let start = NonNull::new(start)
            .filter(|_| whole && start.addr().checked_add(len).is_some())
            .ok_or(Error::Argument("Memory that is not whole pages"))?;
        Ok(Self {
            start,
            len,
            lent: true,
        })
    }

    /// Anonymous zeroed memory that a child does not inherit.
    ///
    /// # Errors
    /// [`Error::Call`] with mmap's errno.
    pub fn anonymous(len: usize) -> Result<Self> {
        let mapping = Self::anonymous_with(len, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)?;
        mapping.keep_from_children();
        Ok(mapping)
    }

    fn anonymous_with(len: usize, prot: ProtFlags) -> Result<Self> {
        let size = NonZeroUsize::new(len).ok_or(Error::Argument("An empty mapping"))?;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: no address is asked for, so nothing existing is replaced.
        let start = unsafe { mman::mmap_anonymous(None, size, prot, flags) }.map_err(mmap_error)?;
        Ok(Self {
            start: start.cast(),
            len,
            lent: false,
        })
    }

    /// Keeps `len` bytes from `skip` on and gives back the rest.
    fn trim(self, skip: usize, len: usize) -> Result<Self> {
        let (start, total) = (self.start, self.len);
        std::mem::forget(self);
        // SAFETY: the three parts lie inside the mapping that `self` owned, which is forgotten; the outer two are
        // unmapped once, the middle one gets a new owner.
        unsafe {
            let kept = start.add(skip);
            if skip > 0 {
                mman::munmap(start.cast::<c_void>(), skip).map_err(mmap_error)?;
            }
            let tail = total - skip - len;
            if tail > 0 {
                mman::munmap(kept.add(len).cast::<c_void>(), tail).map_err(mmap_error)?;
            }
            Ok(Self {
                start: kept,
                len,
                lent: false,
            })
        }
    }

    /// Puts a file's range in the place of this mapping. `offset` may use all 64 bits.
    ///
    /// # Errors
    /// [`Error::Call`] with mmap's errno.
    pub fn replace_by_file(&self, fd: impl AsFd, offset: u64, prot: ProtFlags) -> Result<()> {
        // CAST: the type bits of a doorbell offset lie in the sign bit; the kernel reads the bits, not the sign.
        let offset = offset as libc::off_t;
        let address = NonZeroUsize::new(self.address()).ok_or(Error::Argument("A mapping at 0"))?;
        let size = NonZeroUsize::new(self.len).ok_or(Error::Argument("An empty mapping"))?;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
        // SAFETY: the range is this mapping's own; all access to it is by raw pointer, so nothing dangles.
        unsafe { mman::mmap(Some(address), size, prot, flags, fd, offset) }.map_err(mmap_error)?;
        self.keep_from_children();
        Ok(())
    }

    /// Maps a range of a device file at an address of the kernel's choice. `offset` may use all 64 bits.
    ///
    /// # Errors
    /// [`Error::Call`] with mmap's errno.
    pub fn of_device(fd: impl AsFd, len: usize, offset: u64) -> Result<Self> {
        let raw = fd.as_fd().as_raw_fd();
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // CAST: the type bits of a doorbell offset lie in the sign bit; the kernel reads the bits, not the sign.
        let offset = offset as libc::off_t;
        // SAFETY: no address is asked for, so nothing existing is replaced.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                prot,
                libc::MAP_SHARED,
                raw,
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(mmap_error(Errno::last()));
        }
        let start = NonNull::new(start.cast()).ok_or(Error::Argument("A mapping at 0"))?;
        Ok(Self {
            start,
            len,
            lent: false,
        })
    }

    fn keep_from_children(&self) {
        // SAFETY: the range is this mapping's own. Failing leaves it inherited, which is the default.
        let _ =
            unsafe { mman::madvise(self.start.cast(), self.len, mman::MmapAdvise::MADV_DONTFORK) };
    }

    /// First address.
    pub fn address(&self) -> usize {
        self.start.as_ptr().addr()
    }

    /// First byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Length in bytes, never 0.
    pub fn size(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.lent {
            return;
        }
        // SAFETY: the range is owned by this value, which ends here.
        let _ = unsafe { mman::munmap(self.start.cast(), self.len) };
    }
}

fn mmap_error(errno: Errno) -> Error {
    Error::Call {
        call: "mmap",
        errno,
    }
}

/// Makes everything stored before visible to a device that is told of it afterwards.
///
/// Rings may lie in write-combined memory, whose stores a later uncached store does not push out by itself.
pub fn publish() {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is part of the x86-64 baseline and touches no register.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_aligned() {
        for align in [PAGE, 1 << 16, 2 << 20] {
            let m = Mapping::reserve(3 * PAGE, align).unwrap();
            assert_eq!(m.address() % align, 0);
            assert_eq!(m.size(), 3 * PAGE);
        }
    }

    #[test]
    fn a_chosen_address_is_had_where_nothing_is() {
        // Where neither programs nor the kernel put anything by themselves.
        let free = 0x0d00_0000_0000;
        let m = Mapping::reserve_at(free, 2 * PAGE).unwrap();
        assert_eq!((m.address() as u64, m.size()), (free, 2 * PAGE));
        let taken = Mapping::anonymous_at(free + PAGE as u64, PAGE).unwrap_err();
        assert_eq!(taken.errno(), Some(Errno::EEXIST));
        drop(m);
        let m = Mapping::anonymous_at(free, PAGE).unwrap();
        // SAFETY: one page that this test owns.
        unsafe { m.as_ptr().write_volatile(7) };
        for (at, len) in [(0, PAGE), (free + 8, PAGE), (free, PAGE + 8), (free, 0)] {
            assert!(matches!(
                Mapping::reserve_at(at, len),
                Err(Error::Argument(_))
            ));
        }
    }

    #[test]
    fn anonymous_memory_can_be_written() {
        let m = Mapping::anonymous(PAGE).unwrap();
        // SAFETY: one page that this test owns.
        unsafe {
            m.as_ptr().write_volatile(7);
            assert_eq!(m.as_ptr().read_volatile(), 7);
        }
    }

    #[test]
    fn lent_memory_is_whole_pages_and_outlives_its_mapping() {
        let owner = Mapping::anonymous(2 * PAGE).unwrap();
        let at = owner.as_ptr();
        for (start, len) in [
            (std::ptr::null_mut(), PAGE),
            (at, 0),
            (at, PAGE + 8),
            (at.wrapping_add(8), PAGE),
            (at, usize::MAX & !(PAGE - 1)),
        ] {
            // SAFETY: what is refused is not used.
            assert!(unsafe { Mapping::lent(start, len) }.is_err());
        }
        // SAFETY: two pages that live longer.
        let lent = unsafe { Mapping::lent(at, 2 * PAGE) }.unwrap();
        assert_eq!((lent.as_ptr(), lent.size()), (at, 2 * PAGE));
        drop(lent);
        // SAFETY: the pages are still the owner's.
        unsafe {
            at.add(PAGE).write_volatile(9);
            assert_eq!(at.add(PAGE).read_volatile(), 9);
        }
    }

    #[test]
    fn a_refused_call_says_which() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let mut arg = crate::abi::GetVersion::default();
        // SAFETY: the argument has no pointers.
        let err = unsafe { call_again(&null, "GET_VERSION", crate::abi::GET_VERSION, &mut arg) }
            .unwrap_err();
        assert_eq!(err.errno(), Some(Errno::ENOTTY));
        assert!(err.to_string().starts_with("GET_VERSION: ENOTTY"));
    }
}
