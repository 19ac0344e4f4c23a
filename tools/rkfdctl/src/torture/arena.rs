// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The memory of a lane as it is: operations on it by the kernel's calls, and what the CPU finds there.

use std::ffi::c_int;
use std::ffi::c_void;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;

use anyhow::bail;
use anyhow::Context;
use nix::errno::Errno;
use nix::libc;
use nix::sys::memfd::memfd_create;
use nix::sys::memfd::MFdFlags;
use nix::sys::wait::waitpid;
use nix::sys::wait::WaitStatus;
use nix::unistd::fork;
use nix::unistd::ForkResult;
use rkfd::sys::PAGE;

use super::persist;
use super::plan::Advice;
use super::shadow::Access;
use super::shadow::Shadow;
use super::shadow::STRIPE;
use super::shadow::STRIPES;
use super::tally::Tally;

/// Pages that a child writes after it has compared its memory.
const SCRIBBLED: usize = 24;
/// Attempts at a fork while there is no memory for it.
const FORKS: u32 = 20;

/// A range of addresses, of which each page shows memory of the program's own, a page of a file, or nothing.
///
/// What is at its addresses changes all the time, so no reference to it is ever made.
#[derive(Debug)]
pub struct Arena {
    start: usize,
    pages: usize,
    file: File,
    /// Where a child says which stripe was wrong: shared with it.
    verdict: *mut u64,
}

// SAFETY: an arena owns its addresses, and the page of the verdict; all access is by raw pointers through `&self` of the
// one thread that has it.
unsafe impl Send for Arena {}

fn done(result: c_int) -> Result<(), Errno> {
    Errno::result(result).map(drop)
}

fn protection(access: Access) -> c_int {
    match access {
        Access::None => libc::PROT_NONE,
        Access::Read => libc::PROT_READ,
        Access::Write => libc::PROT_READ | libc::PROT_WRITE,
    }
}

impl Arena {
    /// `pages` pages from `start` on, where nothing may be, and a file of `file` pages.
    ///
    /// The addresses must be where the kernel puts nothing of its own accord: holes are made there, and filled again.
    pub fn new(start: usize, pages: usize, file: usize) -> anyhow::Result<Self> {
        let memfd = memfd_create(c"rkfdctl torture", MFdFlags::MFD_CLOEXEC).context("memfd")?;
        let memfd = File::from(memfd);
        // CAST: a size in memory.
        memfd.set_len((file * PAGE) as u64).context("ftruncate")?;
        // SAFETY: no address is asked for, so nothing is replaced.
        let verdict = unsafe {
            let (prot, flags) = (
                protection(Access::Write),
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            );
            libc::mmap(std::ptr::null_mut(), PAGE, prot, flags, -1, 0)
        };
        if verdict == libc::MAP_FAILED {
            return Err(Errno::last()).context("mmap");
        }
        let arena = Self {
            start,
            pages,
            file: memfd,
            verdict: verdict.cast(),
        };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: nothing that exists is replaced.
        let at = unsafe { libc::mmap(arena.at(0), pages * PAGE, libc::PROT_NONE, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            let errno = Errno::last();
            // Not its own, so not to be unmapped.
            std::mem::forget(arena);
            return Err(errno).with_context(|| format!("mmap at {start:#x}"));
        }
        Ok(arena)
    }

    /// First address.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.pages
    }

    fn at(&self, page: usize) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.start + page * PAGE)
    }

    /// New memory of the program's own.
    pub fn map_private(&self, first: usize, count: usize, access: Access) -> Result<(), Errno> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        self.map(first, count, access, flags, -1, 0)
    }

    /// Pages of the file from `from` on.
    pub fn map_shared(
        &self,
        first: usize,
        count: usize,
        from: usize,
        access: Access,
    ) -> Result<(), Errno> {
        let fd = self.file.as_raw_fd();
        self.map(first, count, access, libc::MAP_SHARED, fd, from * PAGE)
    }

    fn map(
        &self,
        first: usize,
        count: usize,
        access: Access,
        flags: c_int,
        fd: c_int,
        offset: usize,
    ) -> Result<(), Errno> {
        let (prot, flags) = (protection(access), flags | libc::MAP_FIXED);
        // CAST: a size in memory.
        let offset = offset as libc::off_t;
        // SAFETY: the range is the arena's own (holes of it are where nobody else maps anything), and no references exist.
        let at = unsafe { libc::mmap(self.at(first), count * PAGE, prot, flags, fd, offset) };
        if at == libc::MAP_FAILED {
            Err(Errno::last())
        } else {
            Ok(())
        }
    }

    /// The pages show nothing any more.
    pub fn unmap(&self, first: usize, count: usize) -> Result<(), Errno> {
        // SAFETY: the range is the arena's own, and no references exist.
        done(unsafe { libc::munmap(self.at(first), count * PAGE) })
    }

    /// Moves what pages show to others.
    pub fn relocate(&self, from: usize, count: usize, to: usize) -> Result<(), Errno> {
        let len = count * PAGE;
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: both ranges are the arena's own, and no references exist.
        let at = unsafe { libc::mremap(self.at(from), len, len, flags, self.at(to)) };
        if at == libc::MAP_FAILED {
            Err(Errno::last())
        } else {
            Ok(())
        }
    }

    /// What the program may do with pages.
    pub fn protect(&self, first: usize, count: usize, access: Access) -> Result<(), Errno> {
        // SAFETY: the range is the arena's own, and no references exist.
        done(unsafe { libc::mprotect(self.at(first), count * PAGE, protection(access)) })
    }

    /// MADV_DONTNEED.
    pub fn discard(&self, first: usize, count: usize) -> Result<(), Errno> {
        self.madvise(first, count, libc::MADV_DONTNEED)
    }

    /// MADV_FREE.
    pub fn free(&self, first: usize, count: usize) -> Result<(), Errno> {
        self.madvise(first, count, libc::MADV_FREE)
    }

    /// Advice that changes no content, and that the kernel may refuse.
    pub fn advise(&self, first: usize, count: usize, advice: Advice) -> Result<(), Errno> {
        let advice = match advice {
            Advice::Huge => libc::MADV_HUGEPAGE,
            Advice::Small => libc::MADV_NOHUGEPAGE,
            Advice::Collapse => libc::MADV_COLLAPSE,
            Advice::Cold => libc::MADV_COLD,
            Advice::PageOut => libc::MADV_PAGEOUT,
        };
        self.madvise(first, count, advice)
    }

    fn madvise(&self, first: usize, count: usize, advice: c_int) -> Result<(), Errno> {
        // SAFETY: the range is the arena's own, and no references exist.
        done(unsafe { libc::madvise(self.at(first), count * PAGE, advice) })
    }

    /// Punches a hole into the file.
    pub fn punch(&self, first: usize, count: usize) -> Result<(), Errno> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (fd, from, len) = (self.file.as_raw_fd(), first * PAGE, count * PAGE);
        // CAST: sizes in memory.
        // SAFETY: the descriptor is open.
        done(unsafe { libc::fallocate(fd, mode, from as libc::off_t, len as libc::off_t) })
    }

    /// Stores bytes in a page that the program may write.
    pub fn store(&self, page: usize, offset: usize, bytes: &[u8]) {
        debug_assert!(page < self.pages && offset + bytes.len() <= PAGE);
        let at = self.at(page).cast::<u8>().wrapping_add(offset);
        // SAFETY: the page is the arena's own and writable, as the caller says; no reference to it exists.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
    }

    /// Loads bytes of a page that the program may read, and that nobody writes there.
    pub fn load(&self, page: usize, offset: usize, bytes: &mut [u8]) {
        debug_assert!(page < self.pages && offset + bytes.len() <= PAGE);
        let at = self.at(page).cast::<u8>().wrapping_add(offset);
        // SAFETY: the page is the arena's own and readable, as the caller says.
        unsafe { std::ptr::copy_nonoverlapping(at.cast_const(), bytes.as_mut_ptr(), bytes.len()) };
    }

    /// A child of `fork` compares the stripes of all pages for which `stable` holds, and then writes to some pages of its
    /// own, which the parent must not notice. Says whether there was memory for a child.
    pub fn fork(
        &self,
        shadow: &Shadow,
        tally: &Tally,
        stable: impl Fn(usize, usize) -> bool,
    ) -> anyhow::Result<bool> {
        // All that needs memory is done before.
        let mut looks = Vec::new();
        let mut scribbles = Vec::new();
        for page in 0..shadow.pages() {
            let Some(bytes) = shadow
                .bytes(page)
                .filter(|_| shadow.access(page) >= Access::Read)
            else {
                continue;
            };
            looks.extend(
                (0..STRIPES)
                    .filter(|stripe| stable(page, *stripe))
                    .filter_map(|s| Some((page, s, bytes.get(s * STRIPE..(s + 1) * STRIPE)?))),
            );
            if shadow.private(page) && shadow.access(page) == Access::Write {
                scribbles.push(page);
            }
        }
        let step = scribbles.len() / SCRIBBLED + 1;
        let child = || -> c_int {
            let mut found = [0; STRIPE];
            for (page, stripe, wanted) in &looks {
                self.load(*page, stripe * STRIPE, &mut found);
                if found != **wanted {
                    // CAST: small numbers.
                    let place = (page * STRIPES + stripe) as u64 + 1;
                    // SAFETY: a page of its own, shared with the parent, which reads it when the child has ended.
                    unsafe { self.verdict.write_volatile(place) };
                    return 1;
                }
            }
            for page in scribbles.iter().step_by(step) {
                for stripe in 0..STRIPES {
                    self.store(*page, stripe * STRIPE, &[0xa5; STRIPE]);
                }
            }
            0
        };
        // SAFETY: as in the child.
        unsafe { self.verdict.write_volatile(0) };
        let forked = persist(tally, FORKS, || {
            // SAFETY: the child calls nothing but `_exit`, and neither allocates nor takes a lock.
            match unsafe { fork() }? {
                ForkResult::Child => {
                    let status = child();
                    // SAFETY: ends the child without anything that belongs to the parent.
                    unsafe { libc::_exit(status) }
                }
                ForkResult::Parent { child } => Ok(child),
            }
        });
        let pid = match forked {
            Ok(pid) => pid,
            Err(Errno::ENOMEM | Errno::EAGAIN) => return Ok(false),
            Err(errno) => return Err(errno).context("fork"),
        };
        match waitpid(pid, None).context("waitpid")? {
            WaitStatus::Exited(_, 0) => Ok(true),
            WaitStatus::Exited(_, 1) => {
                // SAFETY: the child has ended.
                let place = unsafe { self.verdict.read_volatile() }.saturating_sub(1);
                let stripes = STRIPES as u64; // CAST: a small constant.
                bail!(
                    "a child of fork finds wrong bytes in page {} at {:#x}",
                    place / stripes,
                    place % stripes * STRIPE as u64 // CAST: as above.
                )
            }
            other => bail!("a child of fork ends with {other:?}"),
        }
    }

    /// The addresses of pages, for who describes them.
    pub fn range(&self, first: usize, count: usize) -> Range<usize> {
        self.start + first * PAGE..self.start + (first + count) * PAGE
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: both are the arena's own, which ends here.
        unsafe {
            libc::munmap(self.at(0), self.pages * PAGE);
            libc::munmap(self.verdict.cast(), PAGE);
        }
    }
}
