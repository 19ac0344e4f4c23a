// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Buffers that the CPU and the GPU see at the same address.

pub(crate) mod allocation;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use nix::errno::Errno;
use nix::sys::mman::ProtFlags;

use self::allocation::Allocation;
use crate::abi::alloc;
use crate::device::Device;
use crate::device::DOORBELL_SLICE;
use crate::error::Error;
use crate::error::Result;
use crate::sys::Mapping;
use crate::sys::PAGE;

/// 2 MiB: buffers of this size and more are aligned to it, so that the GPU can use large pages.
const LARGE: usize = 2 << 20;

/// Where a buffer's memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On the GPU, mapped by the CPU too.
    Vram,
    /// On the GPU, not mapped by the CPU.
    VramPrivate,
    /// In system memory of the kernel.
    Gtt,
    /// In memory of this process: anonymous ([`Buffer::new`]) or the caller's ([`Buffer::over`]).
    Userptr,
    /// The doorbells that this process has on the GPU, [`DOORBELL_SLICE`] bytes. CPU and GPU ring one by a store of 8 bytes;
    /// nobody reads them.
    Doorbell,
    /// The page of registers that the driver lets programs write to, [`PAGE`] bytes. A store of any dword to its first one
    /// flushes the host data path; nobody reads it.
    MmioRemap,
}

impl Kind {
    /// A name for readers.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Vram => "VRAM",
            Kind::VramPrivate => "private VRAM",
            Kind::Gtt => "GTT",
            Kind::Userptr => "userptr",
            Kind::Doorbell => "doorbells",
            Kind::MmioRemap => "the register page",
        }
    }

    /// Bytes that it has, where that is no choice.
    fn fixed_size(self) -> Option<usize> {
        match self {
            Kind::Doorbell => Some(DOORBELL_SLICE),
            Kind::MmioRemap => Some(PAGE),
            _ => None,
        }
    }

    /// Part of the GPU's address space for registers, not memory.
    fn is_device(self) -> bool {
        self.fixed_size().is_some()
    }
}

/// How far the GPU's caches keep memory in step with others'.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Coherence {
    /// Coarse-grained: at the ends of packets, where these ask for it.
    #[default]
    AtPackets,
    /// Fine-grained: with the CPU, while packets run.
    Fine,
    /// Fine-grained, and with other GPUs (`EXT_COHERENT`).
    Extended,
}

/// What memory to allocate, and how the GPU may use it.
#[derive(Clone, Copy, Debug)]
pub struct BufferOptions {
    /// Where it lies.
    pub kind: Kind,
    /// Bytes; rounded up to whole pages.
    pub size: usize,
    /// The address for CPU and GPU, a multiple of a page; `None`: any that is free.
    pub address: Option<u64>,
    /// How far it is coherent.
    pub coherence: Coherence,
    /// The GPU's caches do not keep it at all.
    pub uncached: bool,
    /// The GPU may write to it.
    pub writable: bool,
    /// The GPU may execute from it.
    pub executable: bool,
    /// VRAM in one piece.
    pub contiguous: bool,
}

impl BufferOptions {
    /// Memory that the GPU may read, write and execute; in system memory it is fine-grained and uncached, as rings and
    /// signals have to be. Doorbells and the register page are as the driver has them.
    pub fn new(kind: Kind, size: usize) -> Self {
        let system = matches!(kind, Kind::Gtt | Kind::Userptr);
        Self {
            kind,
            size,
            address: None,
            coherence: if system || kind.is_device() {
                Coherence::Fine
            } else {
                Coherence::AtPackets
            },
            uncached: system,
            writable: true,
            executable: !kind.is_device(),
            contiguous: false,
        }
    }

    /// Flags of ALLOC_MEMORY_OF_GPU.
    fn flags(&self) -> u32 {
        let when = |condition: bool, flag: u32| if condition { flag } else { 0 };
        let kind = match self.kind {
            Kind::Vram => alloc::VRAM | alloc::PUBLIC,
            Kind::VramPrivate => alloc::VRAM,
            Kind::Gtt => alloc::GTT,
            Kind::Userptr => alloc::USERPTR,
            Kind::Doorbell => alloc::DOORBELL,
            Kind::MmioRemap => alloc::MMIO_REMAP,
        };
        alloc::NO_SUBSTITUTE
            | kind
            | when(self.coherence == Coherence::Fine, alloc::COHERENT)
            | when(
                self.coherence == Coherence::Extended,
                alloc::COHERENT | alloc::EXT_COHERENT,
            )
            | when(self.uncached, alloc::UNCACHED)
            | when(self.writable, alloc::WRITABLE)
            | when(self.executable, alloc::EXECUTABLE)
            | when(self.contiguous, alloc::CONTIGUOUS)
    }
}

/// How the CPU reaches a buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    /// By one store of 4 or 8 bytes.
    Store,
    /// In any way.
    Any,
}

/// Where `/dev/kfd` shows the process's doorbells on a GPU: the upper two bits say that it is doorbells, the next 16 whose.
/// CREATE_QUEUE returns the same, with the place of the queue's doorbell in the lowest bits.
fn mmap_offset_of_doorbells(gpu_id: u32) -> u64 {
    (3 << 62) | (u64::from(gpu_id) << 46)
}

/// A buffer, mapped on its GPU and on those that it is shared with; freed when dropped.
///
/// A buffer that a queue uses cannot be unmapped; [`crate::queue::Queue`] therefore owns its own.
#[derive(Debug)]
pub struct Buffer {
    /// Further GPUs that it is mapped on.
    shared: Mutex<Vec<Arc<Device>>>,
    allocation: Allocation,
    // Given back to the system only after the kernel has freed it: fields are dropped in their order.
    memory: Mapping,
    kind: Kind,
}

impl Buffer {
    /// Allocates at least `size` bytes (whole pages) and maps them on the GPU and, except for private VRAM, the CPU.
    ///
    /// # Errors
    /// [`Error::Call`] with the errno of the step that failed; nothing is left behind then.
    pub fn new(device: &Arc<Device>, kind: Kind, size: usize) -> Result<Self> {
        Self::with(device, &BufferOptions::new(kind, size))
    }

    /// Allocates memory as `options` say.
    ///
    /// # Errors
    /// [`Error::Argument`] for no bytes, for contiguous memory that is not VRAM, for an address that is none of a page, and for
    /// doorbells or the register page in another size than they have or to be used in another way; [`Error::Call`] with the
    /// errno of the step that failed, such as `EEXIST` of mmap where something is at the address already, `EINVAL` where it
    /// is none that the GPU has, or `ENOMEM` where the GPU has no register page.
    pub fn with(device: &Arc<Device>, options: &BufferOptions) -> Result<Self> {
        if options.size == 0 {
            return Err(Error::Argument("An empty buffer"));
        }
        let vram = matches!(options.kind, Kind::Vram | Kind::VramPrivate);
        if options.contiguous && !vram {
            return Err(Error::Argument("Only VRAM is contiguous or not"));
        }
        let size = options
            .size
            .checked_next_multiple_of(PAGE)
            .ok_or(Error::Argument("A buffer beyond the address space"))?;
        if options.kind.fixed_size().is_some_and(|fixed| fixed != size) {
            return Err(Error::Argument(
                "Doorbells are 8192 bytes, and the register page is 4096",
            ));
        }
        let ordinary = BufferOptions::new(options.kind, size);
        if options.kind.is_device() && options.flags() != ordinary.flags() {
            return Err(Error::Argument(
                "Doorbells and registers are written and uncached, and nothing else",
            ));
        }
        let memory = match (options.kind, options.address) {
            (Kind::Userptr, None) => Mapping::anonymous(size)?,
            (Kind::Userptr, Some(at)) => Mapping::anonymous_at(at, size)?,
            (_, None) => Mapping::reserve(size, if size >= LARGE { LARGE } else { PAGE })?,
            (_, Some(at)) => Mapping::reserve_at(at, size)?,
        };
        Self::in_place(device, options, memory)
    }

    /// Lets the GPU see `size` bytes of the caller's own memory, at its own address. Both are multiples of a page.
    ///
    /// What a child of `fork` has of such memory is the caller's concern.
    ///
    /// # Errors
    /// [`Error::Argument`] where the range is not one of whole pages; [`Error::Call`], such as EFAULT where nothing is
    /// mapped.
    ///
    /// # Safety
    /// The range stays mapped for reading and writing until the buffer is dropped. The GPU, and this type's functions,
    /// may write to it at any time: nobody holds a reference to it that forbids that.
    pub unsafe fn over(device: &Arc<Device>, start: *mut u8, size: usize) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::over_with(device, start, &BufferOptions::new(Kind::Userptr, size)) }
    }

    /// As [`Buffer::over`], as `options` say; kind and address are not looked at. Memory that the process may only read can
    /// be had where the GPU may not write either.
    ///
    /// # Errors
    /// As [`Buffer::over`]; `EPERM` where the GPU may write and the process may not.
    ///
    /// # Safety
    /// As [`Buffer::over`], though memory that the GPU may not write need not be mapped for writing if nobody writes to it
    /// through the buffer.
    pub unsafe fn over_with(
        device: &Arc<Device>,
        start: *mut u8,
        options: &BufferOptions,
    ) -> Result<Self> {
        // SAFETY: the caller's promise, for as long as the buffer lives.
        let memory = unsafe { Mapping::lent(start, options.size) }?;
        let options = BufferOptions {
            kind: Kind::Userptr,
            contiguous: false,
            ..*options
        };
        Self::in_place(device, &options, memory)
    }

    /// Makes a buffer at the addresses of `memory`.
    fn in_place(device: &Arc<Device>, options: &BufferOptions, memory: Mapping) -> Result<Self> {
        let kind = options.kind;
        // CAST: addresses and sizes of a 64-bit process.
        let va = memory.address() as u64;
        let source = if kind == Kind::Userptr { va } else { 0 };
        let size = memory.size() as u64;
        // From here on, dropping the buffer undoes what was done.
        let buffer = Self {
            shared: Mutex::new(Vec::new()),
            allocation: Allocation::new(device, va, size, source, options.flags())?,
            memory,
            kind,
        };
        let offset = buffer.allocation.mmap_offset;
        match kind {
            Kind::Userptr => {}
            Kind::VramPrivate => {
                buffer
                    .memory
                    .replace_by_file(device.render(), offset, ProtFlags::PROT_NONE)?
            }
            Kind::Vram | Kind::Gtt => {
                let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
                buffer
                    .memory
                    .replace_by_file(device.render(), offset, prot)?;
            }
            // The driver's own file shows these, and nobody reads them.
            Kind::Doorbell => buffer.memory.replace_by_file(
                device.kfd().as_fd(),
                mmap_offset_of_doorbells(device.id()),
                ProtFlags::PROT_WRITE,
            )?,
            Kind::MmioRemap => buffer.memory.replace_by_file(
                device.kfd().as_fd(),
                offset,
                ProtFlags::PROT_WRITE,
            )?,
        }
        buffer.allocation.map(device)?;
        Ok(buffer)
    }

    /// Maps the buffer on another GPU of this process as well, at the same address; nothing happens where it is already.
    ///
    /// # Errors
    /// [`Error::Call`], where that GPU does not reach memory of this kind: doorbells and registers are each GPU's own.
    pub fn share(&self, device: &Arc<Device>) -> Result<()> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(self.allocation.device(), device)
            || shared.iter().any(|d| Arc::ptr_eq(d, device))
        {
            return Ok(());
        }
        self.allocation.map(device)?;
        shared.push(device.clone());
        Ok(())
    }

    /// Whether the kernel keeps the buffer mapped on its GPU, as it does for a queue whose memory it is. Where it does not,
    /// the GPU does not reach the buffer afterwards.
    pub(crate) fn is_held(&self) -> bool {
        match self.allocation.unmap(self.allocation.device()) {
            Ok(()) => false,
            // Not mapped there, or the GPU is gone.
            Err(e) => !matches!(e.errno(), Some(Errno::EINVAL | Errno::ENODEV)),
        }
    }

    /// Address for GPU and CPU.
    pub fn address(&self) -> u64 {
        self.memory.address() as u64 // CAST: a 64-bit process.
    }

    /// Size in bytes.
    pub fn size(&self) -> usize {
        self.memory.size()
    }

    /// The kernel's handle.
    pub fn handle(&self) -> u64 {
        self.allocation.handle()
    }

    /// Where the memory lies.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Where `len` bytes begin that the CPU reaches in this way.
    fn range(&self, offset: usize, len: usize, access: Access) -> Result<*mut u8> {
        let end = offset.checked_add(len);
        let inside = end.is_some_and(|end| end <= self.size());
        let reached = match self.kind {
            Kind::Vram | Kind::Gtt | Kind::Userptr => true,
            Kind::VramPrivate => false,
            Kind::Doorbell | Kind::MmioRemap => access == Access::Store,
        };
        if !inside || !reached {
            return Err(Error::OutOfRange {
                offset,
                len,
                size: self.size(),
            });
        }
        // SAFETY: the offset lies inside the mapping.
        Ok(unsafe { self.memory.as_ptr().add(offset) })
    }

    /// Where a `T` is.
    fn at<T>(&self, offset: usize, access: Access) -> Result<*mut T> {
        let at = self.range(offset, size_of::<T>(), access)?.cast::<T>();
        if !at.is_aligned() {
            return Err(Error::OutOfRange {
                offset,
                len: size_of::<T>(),
                size: self.size(),
            });
        }
        Ok(at)
    }

    /// Reads a dword that the GPU may be writing.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], also for private VRAM, doorbells and registers.
    pub fn read_u32(&self, offset: usize) -> Result<u32> {
        let p = self.at::<u32>(offset, Access::Any)?;
        // SAFETY: `at` returned an aligned address inside memory mapped for reading.
        Ok(unsafe { p.read_volatile() })
    }

    /// Reads a qword that the GPU may be writing.
    ///
    /// # Errors
    /// As [`Buffer::read_u32`].
    pub fn read_u64(&self, offset: usize) -> Result<u64> {
        let p = self.at::<u64>(offset, Access::Any)?;
        // SAFETY: as in `read_u32`.
        Ok(unsafe { p.read_volatile() })
    }

    /// Writes a dword.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], also for private VRAM.
    pub fn write_u32(&self, offset: usize, value: u32) -> Result<()> {
        let p = self.at::<u32>(offset, Access::Store)?;
        // SAFETY: `at` returned an aligned address inside memory mapped for writing.
        unsafe { p.write_volatile(value) };
        Ok(())
    }

    /// Writes a qword.
    ///
    /// # Errors
    /// As [`Buffer::write_u32`].
    pub fn write_u64(&self, offset: usize, value: u64) -> Result<()> {
        let p = self.at::<u64>(offset, Access::Store)?;
        // SAFETY: as in `write_u32`.
        unsafe { p.write_volatile(value) };
        Ok(())
    }

    /// Copies bytes into the buffer. Those that the GPU reads meanwhile it may see in part.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], also for private VRAM, and for doorbells and registers, which take stores of one size only.
    pub fn write_bytes(&self, offset: usize, from: &[u8]) -> Result<()> {
        let to = self.range(offset, from.len(), Access::Any)?;
        // SAFETY: `range` returned memory of that length which is mapped for writing; nobody has a reference to it.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        Ok(())
    }

    /// Copies bytes out of the buffer. Those that the GPU writes meanwhile are there in part.
    ///
    /// # Errors
    /// As [`Buffer::read_u32`].
    pub fn read_bytes(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        let from = self.range(offset, to.len(), Access::Any)?;
        // SAFETY: as in `write_bytes`, mapped for reading; `to` is memory of this program alone.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    /// Writes dwords one after the other.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn write_dwords(&self, offset: usize, values: &[u32]) -> Result<()> {
        for (i, v) in values.iter().enumerate() {
            self.write_u32(offset + 4 * i, *v)?;
        }
        Ok(())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let shared = self
            .shared
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let shared = std::mem::take(shared);
        for device in &shared {
            let _ = self.allocation.unmap(device);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_memory_has_the_flags_of_the_runtimes() {
        for (kind, flags) in [
            (Kind::Vram, 0xf000_0001),
            (Kind::VramPrivate, 0xd000_0001),
            (Kind::Gtt, 0xd600_0002),
            (Kind::Userptr, 0xd600_0004),
            (Kind::Doorbell, 0x9400_0008),
            (Kind::MmioRemap, 0x9400_0010),
        ] {
            assert_eq!(BufferOptions::new(kind, 1).flags(), flags, "{kind:?}");
        }
    }

    #[test]
    fn each_choice_is_a_flag_of_its_own() {
        let plain = BufferOptions {
            writable: false,
            executable: false,
            ..BufferOptions::new(Kind::VramPrivate, 1)
        };
        let bare = alloc::VRAM | alloc::NO_SUBSTITUTE;
        assert_eq!(plain.flags(), bare);
        for (options, flags) in [
            (
                BufferOptions {
                    writable: true,
                    ..plain
                },
                alloc::WRITABLE,
            ),
            (
                BufferOptions {
                    executable: true,
                    ..plain
                },
                alloc::EXECUTABLE,
            ),
            (
                BufferOptions {
                    uncached: true,
                    ..plain
                },
                alloc::UNCACHED,
            ),
            (
                BufferOptions {
                    contiguous: true,
                    ..plain
                },
                alloc::CONTIGUOUS,
            ),
            (
                BufferOptions {
                    coherence: Coherence::Fine,
                    ..plain
                },
                alloc::COHERENT,
            ),
            (
                BufferOptions {
                    coherence: Coherence::Extended,
                    ..plain
                },
                alloc::COHERENT | alloc::EXT_COHERENT,
            ),
        ] {
            assert_eq!(options.flags(), bare | flags);
        }
    }
}
