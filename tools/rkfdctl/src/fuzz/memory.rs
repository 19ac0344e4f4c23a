// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Buffers, and memory of the process beneath them.

use std::os::fd::AsFd;
use std::sync::Arc;

use nix::libc;
use rkfd::abi;
use rkfd::abi::alloc;
use rkfd::sys::Mapping;
use rkfd::sys::PAGE;

use super::kinds::Kind;
use super::process::Buffer;
use super::process::GTT;
use super::process::USERPTR;
use super::process::VRAM;
use super::raw;
use super::tally::errno_name;
use super::thread::Thread;
use super::thread::CHURNED;

/// Most buffers that lie about in a process.
const BUFFERS: usize = 48;
/// Flags of doorbell buffers and of the page of registers.
const DOORBELLS: u32 = alloc::DOORBELL | alloc::WRITABLE | alloc::NO_SUBSTITUTE | alloc::COHERENT;
const REGISTERS: u32 = alloc::MMIO_REMAP | alloc::WRITABLE | alloc::NO_SUBSTITUTE | alloc::COHERENT;

impl Thread<'_> {
    fn any_buffer(&mut self) -> Option<Buffer> {
        let objects = self.process.objects();
        let at = self.dice.index(objects.buffers.len())?;
        objects.buffers.get(at).cloned()
    }

    pub(super) fn any_handle(&mut self) -> u64 {
        let right = self.any_buffer().map_or(0, |buffer| buffer.handle);
        if self.dice.odd() && self.dice.one_in(2) {
            // Of another GPU, or of none.
            return right ^ (0x5555 << 32);
        }
        self.dice.w64(right)
    }

    /// Some whole pages of the thread's own memory: offset and length in bytes.
    fn some_pages(&mut self) -> (usize, usize) {
        // CAST: below 64.
        let first = self.dice.below(CHURNED as u64) as usize;
        let count = 1 + self.dice.below((CHURNED - first) as u64) as usize;
        (first * PAGE, count * PAGE)
    }

    pub fn alloc(&mut self) {
        if self.process.objects().buffers.len() >= BUFFERS {
            return self.free();
        }
        let flags = self
            .dice
            .pick(&[GTT, GTT, VRAM, VRAM, USERPTR, USERPTR, DOORBELLS, REGISTERS])
            .unwrap_or(GTT);
        let pages = match flags {
            DOORBELLS => 2,
            REGISTERS => 1,
            _ => self.dice.pick(&[1, 1, 2, 3, 16, 17, 64, 256]).unwrap_or(1),
        };
        let mut size = pages * PAGE;
        let (mut at, mut range) = (0, None);
        if flags == USERPTR {
            let (offset, len) = self.some_pages();
            size = len;
            at = self.churned.address() + offset;
            range = Some(self.churned.clone());
        } else if let Ok(reserved) = Mapping::reserve(size, PAGE) {
            at = reserved.address();
            range = Some(Arc::new(reserved));
        }
        let dice = &mut self.dice;
        let mut arg = abi::AllocMemory {
            va_addr: dice.w64(at as u64),     // CAST: an address.
            size: dice.w64(size as u64),      // CAST: a length.
            mmap_offset: dice.w64(at as u64), // CAST: an address.
            gpu_id: dice.w32(self.process.plan.target.gpu_id),
            flags: if dice.odd() {
                flags ^ (1 << dice.below(32))
            } else {
                flags
            },
            ..Default::default()
        };
        // A size that is just about there would leave no memory to the others; such a one that is not there will do.
        if (1 << 26..1 << 40).contains(&arg.size) {
            arg.size = 1 << 40;
        }
        if self
            .process
            .call(Kind::Alloc, abi::ALLOC_MEMORY_OF_GPU, &mut arg)
            == 0
        {
            let buffer = Buffer {
                handle: arg.handle,
                va: arg.va_addr,
                size: arg.size,
                flags: arg.flags,
                mmap_offset: arg.mmap_offset,
                range,
            };
            self.process.objects().buffers.push(buffer);
        }
    }

    pub fn free(&mut self) {
        let buffer = {
            let mut objects = self.process.objects();
            let at = self.dice.index(objects.buffers.len());
            at.map(|at| objects.buffers.swap_remove(at))
        };
        let Some(buffer) = buffer.filter(|_| !self.dice.odd()) else {
            let mut arg = abi::FreeMemory {
                handle: self.any_handle(),
            };
            self.process
                .call(Kind::Free, abi::FREE_MEMORY_OF_GPU, &mut arg);
            return;
        };
        if !self.dice.one_in(4) {
            self.unmap_handle(buffer.handle);
        }
        let mut arg = abi::FreeMemory {
            handle: buffer.handle,
        };
        if self
            .process
            .call(Kind::Free, abi::FREE_MEMORY_OF_GPU, &mut arg)
            != 0
        {
            // It is mapped, or a queue's.
            self.process.objects().buffers.push(buffer);
        }
    }

    fn unmap_handle(&mut self, handle: u64) {
        let ids = [self.process.plan.target.gpu_id];
        let mut arg = abi::UnmapMemory {
            handle,
            device_ids_array_ptr: ids.as_ptr().addr() as u64, // CAST: an address.
            n_devices: 1,
            n_success: 0,
        };
        self.process
            .call(Kind::Unmap, abi::UNMAP_MEMORY_FROM_GPU, &mut arg);
    }

    pub fn map(&mut self) {
        let ids = [self.dice.w32(self.process.plan.target.gpu_id); 2];
        let mut arg = abi::MapMemory {
            handle: self.any_handle(),
            device_ids_array_ptr: self.pointer(ids.as_ptr().addr()),
            n_devices: self.some_devices(),
            n_success: self.dice.w32(0),
        };
        self.process
            .call(Kind::Map, abi::MAP_MEMORY_TO_GPU, &mut arg);
    }

    pub fn unmap(&mut self) {
        let ids = [self.dice.w32(self.process.plan.target.gpu_id); 2];
        let mut arg = abi::UnmapMemory {
            handle: self.any_handle(),
            device_ids_array_ptr: self.pointer(ids.as_ptr().addr()),
            n_devices: self.some_devices(),
            n_success: self.dice.w32(0),
        };
        self.process
            .call(Kind::Unmap, abi::UNMAP_MEMORY_FROM_GPU, &mut arg);
    }

    /// How many GPUs a list names: more than there are would be read from behind it.
    fn some_devices(&mut self) -> u32 {
        if self.dice.odd() {
            self.dice.pick(&[0, 2]).unwrap_or(1)
        } else {
            1
        }
    }

    /// Maps a buffer for the CPU. What nobody has written yet is zero, or what this process wrote.
    pub fn look(&mut self) {
        let Some(buffer) = self
            .any_buffer()
            .filter(|buffer| buffer.flags & (alloc::GTT | alloc::VRAM) != 0)
        else {
            return;
        };
        let offset = self.dice.w64(buffer.mmap_offset);
        // CAST: sizes of buffers that exist.
        let len = if self.dice.odd() {
            PAGE * 7
        } else {
            buffer.size as usize
        };
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let start = match raw::map(self.process.render(), len, prot, libc::MAP_SHARED, offset) {
            Err(errno) => return self.process.answered(Kind::RenderMmap, errno, ""),
            Ok(start) => start,
        };
        self.process.answered(Kind::RenderMmap, 0, "");
        let mark = self.process.mark();
        if offset == buffer.mmap_offset
            && len as u64 == buffer.size
            && buffer.flags & alloc::DOORBELL == 0
        {
            for _ in 0..8 {
                let at = self.dice.below(buffer.size / 4) as usize; // CAST: below a length.
                let word = raw::at(start).cast::<u32>().wrapping_add(at);
                // SAFETY: a word of a mapping of that size, which others may write at the same time.
                let found = unsafe { word.read_volatile() };
                // Rings and pointers of queues that were end as buffers, too.
                let own = found == 0 || found & 0xffff_0000 == mark || buffer.size == PAGE as u64; // CAST: a length.
                if !own {
                    self.process.report(&format!(
                        "dword {at} of a buffer of this process is {found:#010x}"
                    ));
                }
                // SAFETY: as above.
                unsafe { word.write_volatile(mark | at as u32 & 0xffff) }; // CAST: its lower half.
            }
        }
        // SAFETY: a mapping that nobody else knows, used for the last time.
        let errno = unsafe { raw::unmap(start, len) };
        if errno != 0 {
            self.process
                .report(&format!("munmap of a buffer: {}", errno_name(errno)));
        }
    }

    pub fn render_mmap(&mut self) {
        let offset = if self.dice.one_in(2) {
            self.dice.any() & 0xffff_ffff_f000
        } else {
            self.dice.w64(0x1000)
        };
        let len = PAGE << self.dice.below(6);
        let fd = self.process.render();
        let errno = match raw::map(fd, len, libc::PROT_READ, libc::MAP_SHARED, offset) {
            Err(errno) => errno,
            // SAFETY: a mapping that nobody else knows.
            Ok(start) => unsafe { raw::unmap(start, len) },
        };
        self.process.answered(Kind::RenderMmap, errno, "");
    }

    /// Does to memory beneath buffers what the kernel and programs do.
    pub fn churn(&mut self) {
        let (offset, len) = self.some_pages();
        let start = self.churned.address() + offset;
        let process = self.process;
        match self.dice.below(5) {
            0 | 1 => {
                let advice = self.dice.pick(&[
                    libc::MADV_DONTNEED,
                    libc::MADV_FREE,
                    libc::MADV_COLD,
                    libc::MADV_PAGEOUT,
                    libc::MADV_WILLNEED,
                    libc::MADV_HUGEPAGE,
                    libc::MADV_NOHUGEPAGE,
                ]);
                // SAFETY: memory that only this thread accesses, and whose contents do not matter.
                let errno =
                    unsafe { raw::advise(start, len, advice.unwrap_or(libc::MADV_DONTNEED)) };
                process.answered(Kind::Madvise, errno, "");
            }
            2 => {
                let less = self
                    .dice
                    .pick(&[libc::PROT_NONE, libc::PROT_READ])
                    .unwrap_or(libc::PROT_READ);
                for prot in [less, libc::PROT_READ | libc::PROT_WRITE] {
                    // SAFETY: as above; it is accessed below, when it may be.
                    let errno = unsafe { raw::protect(start, len, prot) };
                    process.answered(Kind::Mprotect, errno, "");
                }
            }
            3 => {
                // SAFETY: as above.
                process.answered(Kind::Remap, unsafe { raw::renew(start, len) }, "");
            }
            _ => {
                let to = self.other.address() + offset;
                // SAFETY: as above, of both ranges.
                process.answered(Kind::Mremap, unsafe { raw::move_pages(start, len, to) }, "");
            }
        }
        for page in (0..len).step_by(PAGE) {
            // SAFETY: a word of the thread's own memory, which may be written again.
            unsafe {
                raw::at(start + page)
                    .cast::<u32>()
                    .write_volatile(process.mark())
            };
        }
    }

    /// A buffer over memory that goes while the GPU has it.
    pub fn transient(&mut self) {
        let len = PAGE << self.dice.below(5);
        let Ok(memory) = Mapping::anonymous(len) else {
            return;
        };
        let at = memory.address() as u64; // CAST: an address.
        let mut arg = abi::AllocMemory {
            va_addr: at,
            size: len as u64, // CAST: a length.
            mmap_offset: at,
            gpu_id: self.process.plan.target.gpu_id,
            flags: USERPTR,
            ..Default::default()
        };
        if self
            .process
            .call(Kind::Alloc, abi::ALLOC_MEMORY_OF_GPU, &mut arg)
            != 0
        {
            return;
        }
        let ids = [self.process.plan.target.gpu_id];
        let mut map = abi::MapMemory {
            handle: arg.handle,
            device_ids_array_ptr: ids.as_ptr().addr() as u64, // CAST: an address.
            n_devices: 1,
            n_success: 0,
        };
        self.process
            .call(Kind::Map, abi::MAP_MEMORY_TO_GPU, &mut map);
        drop(memory);
        self.process.answered(Kind::Munmap, 0, "");
        let buffer = Buffer {
            handle: arg.handle,
            va: at,
            size: arg.size,
            flags: USERPTR,
            mmap_offset: 0,
            range: None,
        };
        self.process.objects().buffers.push(buffer);
    }

    /// Another file of this process, or one of nobody's.
    pub fn acquire_vm(&mut self) {
        use std::os::fd::AsRawFd;
        let fds = [
            self.process.render.as_raw_fd(),
            self.process.kfd.as_fd().as_raw_fd(),
            0,
            9999,
        ];
        let fd = self.dice.pick(&fds).unwrap_or(0);
        let mut arg = abi::AcquireVm {
            drm_fd: self.dice.w32(fd as u32), // CAST: the kernel reads the bits.
            gpu_id: self.dice.w32(self.process.plan.target.gpu_id),
        };
        self.process
            .call(Kind::AcquireVm, abi::ACQUIRE_VM, &mut arg);
    }
}
