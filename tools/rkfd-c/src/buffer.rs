// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Memory that CPU and GPU see at one address.

use std::ffi::c_int;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use library::memory;
use library::memory::Kind;

use crate::error::given;
use crate::error::guard;
use crate::error::release;
use crate::error::Failure;
use crate::gpu::Vm;

/// VRAM that the CPU can reach, too.
pub const RKFD_BUFFER_VRAM: u32 = 0;
/// VRAM for the GPU alone.
pub const RKFD_BUFFER_VRAM_PRIVATE: u32 = 1;
/// System memory of the kernel.
pub const RKFD_BUFFER_GTT: u32 = 2;
/// Anonymous memory of the process. (rkfd_buffer_wrap takes memory that is there already.)
pub const RKFD_BUFFER_USERPTR: u32 = 3;

/// Memory, mapped on its GPU, and on those that it is shared with, for reading, writing and executing.
#[derive(Debug)]
pub struct Buffer(memory::Buffer);

/// Allocates at least `size` bytes (whole pages, RKFD_BUFFER_* kind) and maps them on the GPU and, except for private
/// VRAM, the CPU. Memory of the kernel comes cleared; a child of fork does not have it.
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
        let kind = match kind {
            RKFD_BUFFER_VRAM => Kind::Vram,
            RKFD_BUFFER_VRAM_PRIVATE => Kind::VramPrivate,
            RKFD_BUFFER_GTT => Kind::Gtt,
            RKFD_BUFFER_USERPTR => Kind::Userptr,
            other => return Err(Failure::invalid(format!("No kind of buffer: {other}"))),
        };
        let size = usize::try_from(size)
            .map_err(|_| Failure::invalid("A buffer beyond the address space"))?;
        let made = memory::Buffer::new(&vm.device, kind, size)?;
        out.write(Some(Box::new(Buffer(made))));
        Ok(())
    })
}

/// Lets the GPU see memory that the program has: `size` bytes at `memory`, both multiples of 4096 (else -EINVAL). CPU and
/// GPU see it at the same address. -EFAULT where nothing is mapped. rkfd_buffer_free leaves the memory as it is.
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
        let size = usize::try_from(size)
            .map_err(|_| Failure::invalid("A buffer beyond the address space"))?;
        // SAFETY: the caller's promise. What C does with its memory meanwhile is no concern of Rust's aliasing rules:
        // this library keeps no reference into it.
        let made = unsafe { memory::Buffer::over(&vm.device, memory.cast(), size) }?;
        out.write(Some(Box::new(Buffer(made))));
        Ok(())
    })
}

/// Maps a buffer on another GPU as well, at the same address, until it is freed. Success where it is mapped there. Memory
/// of the kernel and of the process can be shared; whether a GPU reaches another's VRAM is for the driver to say.
#[no_mangle]
pub extern "C" fn rkfd_buffer_share(buffer: Option<&Buffer>, vm: Option<&Vm>) -> c_int {
    guard(|| {
        let buffer = given(buffer, "buffer")?;
        Ok(buffer.0.share(&given(vm, "vm")?.device)?)
    })
}

/// Unmaps and frees a buffer; NULL is allowed. Whatever still uses it on the GPU faults, so wait first.
#[no_mangle]
pub extern "C" fn rkfd_buffer_free(buffer: Option<Box<Buffer>>) {
    release(buffer);
}

/// Where the CPU reaches the buffer; NULL for private VRAM, and for NULL.
#[no_mangle]
pub extern "C" fn rkfd_buffer_cpu(buffer: Option<&Buffer>) -> *mut c_void {
    match buffer {
        // CAST: a 64-bit process. The mapping was made for C to use; this library keeps no reference into it.
        Some(b) if b.0.kind() != Kind::VramPrivate => b.0.address() as usize as *mut c_void,
        _ => null_mut(),
    }
}

/// The buffer's address for packets; 0 for NULL.
#[no_mangle]
pub extern "C" fn rkfd_buffer_gpu(buffer: Option<&Buffer>) -> u64 {
    buffer.map_or(0, |b| b.0.address())
}

/// The buffer's size in bytes; 0 for NULL.
#[no_mangle]
pub extern "C" fn rkfd_buffer_size(buffer: Option<&Buffer>) -> u64 {
    // CAST: a 64-bit process.
    buffer.map_or(0, |b| b.0.size() as u64)
}
