// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The service that kernels call by tasks: text output, files, memory.

use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::c_void;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use library::tasks::host as service;
use nix::errno::Errno;

use crate::buffer::Buffer;
use crate::error::given;
use crate::error::guard;
use crate::error::release;
use crate::error::Failure;
use crate::functions::printing;
use crate::functions::Data;
use crate::gpu::Vm;
use crate::program::Program;

/// What kernels can have done for them: text that is printed, files that are read, memory of a heap.
#[derive(Debug)]
pub struct Host(pub(crate) Arc<service::Host>);

/// Called with what a kernel prints: `bytes` bytes, and a zero byte behind them.
pub type PrintCallback =
    Option<unsafe extern "C" fn(data: *mut c_void, text: *const c_char, bytes: u64)>;

/// Where text goes.
struct Printer {
    callback: unsafe extern "C" fn(*mut c_void, *const c_char, u64),
    data: Data,
}

impl Printer {
    fn print(&self, text: &str) {
        let mut bytes = Vec::with_capacity(text.len() + 1);
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(0);
        printing(|| {
            // SAFETY: who made the service has promised that this may be called with `data` from any thread, and does not
            // unwind; the text lives across the call.
            unsafe {
                // CAST: a size in memory.
                (self.callback)(
                    self.data.pointer(),
                    bytes.as_ptr().cast(),
                    text.len() as u64,
                );
            }
        });
    }
}

/// Makes a service, which calls `print` with `data` for each text, from any worker, one text at a time. It is the
/// kernels' of workers that are started with a table that it was added to (rkfd_functions_add_host()), and reaches only what it is
/// offered. `print` may call any function of this library but rkfd_workers_stop() (-EDEADLK); it returns as functions of tasks do.
/// -EINVAL where `print` is NULL.
///
/// MT-Safe.
///
/// # Safety
/// `print` may be called from any thread with `data` as long as there are workers with the service, until
/// rkfd_workers_stop() returned 0 for them.
#[no_mangle]
pub unsafe extern "C" fn rkfd_host_new(
    print: PrintCallback,
    data: *mut c_void,
    host: Option<&mut MaybeUninit<Option<Box<Host>>>>,
) -> c_int {
    guard(|| {
        let out = given(host, "host")?;
        out.write(None);
        let printer = Printer {
            callback: given(print, "print")?,
            data: Data::new(data),
        };
        let made = service::Host::new(move |text| printer.print(text));
        out.write(Some(Box::new(Host(made))));
        Ok(())
    })
}

/// Gives a service back; NULL is allowed. Tables and workers that have it keep it, and what it was offered.
///
/// MT-Unsafe race:host: no other call may use the handle meanwhile or later.
#[no_mangle]
pub extern "C" fn rkfd_host_free(host: Option<Box<Host>>) {
    release(host);
}

/// Lets kernels name a buffer by its addresses: texts are found there, and files are read into it. `vm` is the one that the
/// buffer was made with. The buffer stays as long as the service, also where rkfd_buffer_free() gives the handle back. -EINVAL for
/// memory that the CPU does not reach.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_host_offer(
    host: Option<&Host>,
    vm: Option<&Vm>,
    buffer: Option<&Buffer>,
) -> c_int {
    guard(|| {
        let (host, vm) = (given(host, "host")?, given(vm, "vm")?);
        let buffer = given(buffer, "buffer")?;
        Ok(host.0.offer(&vm.device, buffer.0.clone())?)
    })
}

/// Lets kernels name texts that are part of their program, which stays as long as the service.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_host_offer_program(host: Option<&Host>, program: Option<&Program>) -> c_int {
    guard(|| {
        let (host, program) = (given(host, "host")?, given(program, "program")?);
        host.0.offer_program(program.program.clone());
        Ok(())
    })
}

/// Lets kernels read a file by `number`, which counts from 0. The descriptor may be closed afterwards; its position is neither
/// used nor changed. -EBADF where it is none.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_host_offer_file(
    host: Option<&Host>,
    file: c_int,
    number: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    guard(|| {
        let (host, number) = (given(host, "host")?, given(number, "number")?);
        if file < 0 {
            return Err(Failure::new(Errno::EBADF, "No descriptor"));
        }
        // SAFETY: not -1; used for the number alone, and the kernel says whether it is open.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        let own = file.try_clone_to_owned().map_err(|e| {
            let errno = e.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
            Failure::new(errno, format!("The file: {e}"))
        })?;
        number.write(host.0.offer_file(File::from(own)));
        Ok(())
    })
}

/// Gives kernels a heap, which is offered as well (rkfd_host_offer()). It takes the place of the one before, whose allocations
/// are forgotten. Without one, kernels that allocate fail.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_host_set_heap(
    host: Option<&Host>,
    vm: Option<&Vm>,
    buffer: Option<&Buffer>,
) -> c_int {
    guard(|| {
        let (host, vm) = (given(host, "host")?, given(vm, "vm")?);
        let buffer = given(buffer, "buffer")?;
        Ok(host.0.set_heap(&vm.device, buffer.0.clone())?)
    })
}

/// Bytes of the heap that kernels have now; 0 for NULL.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_host_allocated(host: Option<&Host>) -> u64 {
    host.map_or(0, |host| host.0.allocated())
}

#[cfg(test)]
mod tests;
