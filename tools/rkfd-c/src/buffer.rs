// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Memory that CPU and GPU see at one address.

use std::ffi::c_int;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Arc;

use library::memory;
use library::memory::Coherence;
use library::memory::Kind;

use crate::error::given;
use crate::error::guard;
use crate::error::release;
use crate::error::Failure;
use crate::error::Result;
use crate::gpu::Vm;
use crate::sized::answer;
use crate::sized::grows;
use crate::sized::read;

/// VRAM that the CPU can reach, too.
pub const RKFD_BUFFER_VRAM: u32 = 0;
/// VRAM for the GPU alone.
pub const RKFD_BUFFER_VRAM_PRIVATE: u32 = 1;
/// System memory of the kernel.
pub const RKFD_BUFFER_GTT: u32 = 2;
/// Anonymous memory of the process. (rkfd_buffer_wrap takes memory that is there already.)
pub const RKFD_BUFFER_USERPTR: u32 = 3;
/// The doorbells that the process has on the GPU, RKFD_DOORBELL_BYTES of them. The CPU and packets or kernels of the GPU ring
/// that of a queue, which is at `doorbell_offset` of struct rkfd_queue_info, by a store of 8 bytes. Nobody reads them.
pub const RKFD_BUFFER_DOORBELL: u32 = 4;
/// The page of registers that the driver lets programs write to, RKFD_MMIO_REMAP_BYTES: a store of 4 bytes to its start, by
/// the CPU or the GPU, flushes the host data path, so that what the CPU stored to VRAM before is there for the GPU. Nobody
/// reads it.
pub const RKFD_BUFFER_MMIO_REMAP: u32 = 5;

/// Bytes of RKFD_BUFFER_DOORBELL.
pub const RKFD_DOORBELL_BYTES: u32 = 8192;
/// Bytes of RKFD_BUFFER_MMIO_REMAP.
pub const RKFD_MMIO_REMAP_BYTES: u32 = 4096;

/// Coarse-grained: what the GPU wrote is seen when its packet has ended and released it, no earlier.
pub const RKFD_COHERENCE_PACKETS: u32 = 0;
/// Fine-grained: coherent with the CPU while packets run.
pub const RKFD_COHERENCE_FINE: u32 = 1;
/// Fine-grained, with other GPUs as well.
pub const RKFD_COHERENCE_EXTENDED: u32 = 2;

/// The GPU may not write to the memory.
pub const RKFD_BUFFER_READ_ONLY: u32 = 1;
/// The GPU may not execute from it: waves that come there fault, with `no_execute` of struct rkfd_exception_info.
pub const RKFD_BUFFER_NO_EXECUTE: u32 = 2;
/// The GPU's caches do not keep it.
pub const RKFD_BUFFER_UNCACHED: u32 = 4;
/// VRAM in one piece.
pub const RKFD_BUFFER_CONTIGUOUS: u32 = 8;

/// What memory to allocate: set `size`, call rkfd_buffer_defaults(), then change what is to differ.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferOptions {
    /// sizeof(struct rkfd_buffer_options).
    pub size: u32,
    /// RKFD_BUFFER_VRAM, _VRAM_PRIVATE, _GTT, _USERPTR, _DOORBELL or _MMIO_REMAP.
    pub kind: u32,
    /// Bytes; rounded up to whole pages.
    pub bytes: u64,
    /// The address for CPU and GPU, a multiple of 4096 where nothing is mapped; 0: any.
    pub address: u64,
    /// USERPTR: memory that the program has, as for rkfd_buffer_wrap(). NULL: new memory. (`address` is 0 with it.)
    pub memory: *mut c_void,
    /// RKFD_COHERENCE_*.
    pub coherence: u32,
    /// RKFD_BUFFER_READ_ONLY, _NO_EXECUTE, _UNCACHED, _CONTIGUOUS.
    pub flags: u32,
}

grows! {
    BufferOptions, "rkfd_buffer_options", 40;
}

/// Memory, mapped on its GPU, and on those that it is shared with.
#[derive(Debug)]
pub struct Buffer(pub(crate) Arc<memory::Buffer>);

fn kind_of(number: u32) -> Result<Kind> {
    match number {
        RKFD_BUFFER_VRAM => Ok(Kind::Vram),
        RKFD_BUFFER_VRAM_PRIVATE => Ok(Kind::VramPrivate),
        RKFD_BUFFER_GTT => Ok(Kind::Gtt),
        RKFD_BUFFER_USERPTR => Ok(Kind::Userptr),
        RKFD_BUFFER_DOORBELL => Ok(Kind::Doorbell),
        RKFD_BUFFER_MMIO_REMAP => Ok(Kind::MmioRemap),
        other => Err(Failure::invalid(format!("No kind of buffer: {other}"))),
    }
}

fn bytes_of(size: u64) -> Result<usize> {
    usize::try_from(size).map_err(|_| Failure::invalid("A buffer beyond the address space"))
}

fn options_of(from: &BufferOptions) -> Result<memory::BufferOptions> {
    const FLAGS: u32 = RKFD_BUFFER_READ_ONLY
        | RKFD_BUFFER_NO_EXECUTE
        | RKFD_BUFFER_UNCACHED
        | RKFD_BUFFER_CONTIGUOUS;
    let has = |flag: u32| from.flags & flag != 0;
    if from.flags & !FLAGS != 0 {
        let text = format!("No flags of a buffer: {:#x}", from.flags & !FLAGS);
        return Err(Failure::invalid(text));
    }
    Ok(memory::BufferOptions {
        kind: kind_of(from.kind)?,
        size: bytes_of(from.bytes)?,
        address: (from.address != 0).then_some(from.address),
        coherence: match from.coherence {
            RKFD_COHERENCE_PACKETS => Coherence::AtPackets,
            RKFD_COHERENCE_FINE => Coherence::Fine,
            RKFD_COHERENCE_EXTENDED => Coherence::Extended,
            other => return Err(Failure::invalid(format!("No coherence: {other}"))),
        },
        uncached: has(RKFD_BUFFER_UNCACHED),
        writable: !has(RKFD_BUFFER_READ_ONLY),
        executable: !has(RKFD_BUFFER_NO_EXECUTE),
        contiguous: has(RKFD_BUFFER_CONTIGUOUS),
    })
}

fn defaults(kind: u32, bytes: u64) -> Result<BufferOptions> {
    let of = memory::BufferOptions::new(kind_of(kind)?, bytes_of(bytes)?);
    Ok(BufferOptions {
        size: size_of::<BufferOptions>() as u32, // CAST: a constant.
        kind,
        bytes,
        address: 0,
        memory: null_mut(),
        coherence: match of.coherence {
            Coherence::AtPackets => RKFD_COHERENCE_PACKETS,
            Coherence::Fine => RKFD_COHERENCE_FINE,
            Coherence::Extended => RKFD_COHERENCE_EXTENDED,
        },
        flags: if of.uncached { RKFD_BUFFER_UNCACHED } else { 0 }
            | if of.executable {
                0
            } else {
                RKFD_BUFFER_NO_EXECUTE
            },
    })
}

/// Sets options, whose `size` is set, to those of rkfd_buffer_new(): the GPU may read, write and execute; memory of the
/// system is fine-grained and uncached, VRAM neither. Doorbells and the register page have these options alone.
///
/// MT-Safe.
///
/// # Safety
/// `options` points to as many bytes as its `size` says.
#[no_mangle]
pub unsafe extern "C" fn rkfd_buffer_defaults(
    kind: u32,
    bytes: u64,
    options: *mut BufferOptions,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { answer(options) }?.give(defaults(kind, bytes)?);
        Ok(())
    })
}

/// Allocates memory as `options` say, and maps it on the GPU and, except for private VRAM, the CPU. -EEXIST where something
/// is at the address already; -EPERM for memory of the program that it may only read, unless the GPU may not write, either;
/// -EINVAL for what can never be, such as an address that the GPU does not have.
///
/// MT-Safe.
///
/// # Safety
/// `options` points to as many bytes as its `size` says. Memory of the program stays mapped until the buffer is freed.
#[no_mangle]
pub unsafe extern "C" fn rkfd_buffer_create(
    vm: Option<&Vm>,
    options: *const BufferOptions,
    buffer: Option<&mut MaybeUninit<Option<Box<Buffer>>>>,
) -> c_int {
    guard(|| {
        let out = given(buffer, "buffer")?;
        out.write(None);
        let vm = given(vm, "vm")?;
        // SAFETY: the caller's promise.
        let from = unsafe { read(options) }?;
        let options = options_of(&from)?;
        let made = if from.memory.is_null() {
            memory::Buffer::with(&vm.device, &options)?
        } else if options.kind != Kind::Userptr || options.address.is_some() || options.contiguous {
            let text = "Memory of the program is of kind USERPTR, at its own address, as it is";
            return Err(Failure::invalid(text));
        } else {
            // SAFETY: the caller's promise; see `rkfd_buffer_wrap`.
            unsafe { memory::Buffer::over_with(&vm.device, from.memory.cast(), &options) }?
        };
        out.write(Some(Box::new(Buffer(Arc::new(made)))));
        Ok(())
    })
}

/// Allocates at least `size` bytes (whole pages, RKFD_BUFFER_* kind) and maps them on the GPU, for reading, writing and
/// executing, and, except for private VRAM, on the CPU. Memory of the kernel comes cleared; a child of fork does not have it.
/// Doorbells and the register page are there already: the buffer shows them, and they are as large as they are (-EINVAL).
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_buffer_new(
    vm: Option<&Vm>,
    kind: u32,
    size: u64,
    buffer: Option<&mut MaybeUninit<Option<Box<Buffer>>>>,
) -> c_int {
    guard(|| {
        let out = given(buffer, "buffer")?;
        out.write(None);
        let vm = given(vm, "vm")?;
        let made = memory::Buffer::new(&vm.device, kind_of(kind)?, bytes_of(size)?)?;
        out.write(Some(Box::new(Buffer(Arc::new(made)))));
        Ok(())
    })
}

/// Lets the GPU see memory that the program has: `size` bytes at `memory`, both multiples of 4096 (else -EINVAL). CPU and
/// GPU see it at the same address. -EFAULT where nothing is mapped. rkfd_buffer_free leaves the memory as it is.
///
/// MT-Safe.
///
/// # Safety
/// The memory stays mapped for reading and writing until the buffer is freed.
#[no_mangle]
pub unsafe extern "C" fn rkfd_buffer_wrap(
    vm: Option<&Vm>,
    memory: *mut c_void,
    size: u64,
    buffer: Option<&mut MaybeUninit<Option<Box<Buffer>>>>,
) -> c_int {
    guard(|| {
        let out = given(buffer, "buffer")?;
        out.write(None);
        let vm = given(vm, "vm")?;
        let size = bytes_of(size)?;
        // SAFETY: the caller's promise. What C does with its memory meanwhile is no concern of Rust's aliasing rules:
        // this library keeps no reference into it.
        let made = unsafe { memory::Buffer::over(&vm.device, memory.cast(), size) }?;
        out.write(Some(Box::new(Buffer(Arc::new(made)))));
        Ok(())
    })
}

/// Maps a buffer on another GPU as well, at the same address, until it is freed. Success where it is mapped there. Memory
/// of the kernel and of the process can be shared; whether a GPU reaches another's VRAM is for the driver to say. Doorbells
/// and registers are each GPU's own (-EINVAL).
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_buffer_share(buffer: Option<&Buffer>, vm: Option<&Vm>) -> c_int {
    guard(|| {
        let buffer = given(buffer, "buffer")?;
        Ok(buffer.0.share(&given(vm, "vm")?.device)?)
    })
}

/// Unmaps and frees a buffer; NULL is allowed. Whatever still uses it on the GPU faults, so wait first. One that a service for
/// kernels was offered (rkfd_host_offer()) stays as long as that.
///
/// MT-Unsafe race:buffer: no other call may use the handle meanwhile or later.
#[no_mangle]
pub extern "C" fn rkfd_buffer_free(buffer: Option<Box<Buffer>>) {
    release(buffer);
}

/// Where the CPU reaches the buffer; NULL for private VRAM, and for NULL. Doorbells and the register page are mapped for
/// writing only.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_buffer_cpu(buffer: Option<&Buffer>) -> *mut c_void {
    match buffer {
        // CAST: a 64-bit process. The mapping was made for C to use; this library keeps no reference into it.
        Some(b) if b.0.kind() != Kind::VramPrivate => b.0.address() as usize as *mut c_void,
        _ => null_mut(),
    }
}

/// The buffer's address for packets; 0 for NULL.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_buffer_gpu(buffer: Option<&Buffer>) -> u64 {
    buffer.map_or(0, |b| b.0.address())
}

/// The buffer's size in bytes; 0 for NULL.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_buffer_size(buffer: Option<&Buffer>) -> u64 {
    // CAST: a 64-bit process.
    buffer.map_or(0, |b| b.0.size() as u64)
}
