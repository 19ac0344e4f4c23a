// SPDX-License-Identifier: GPL-2.0

//! Anonymous files that a process reads events from.
//!
//! What `eventfd` is for a counter: a descriptor without a path, whose private data is a Rust value and whose file
//! operations are methods. Reads never sleep; a program that wants to sleep polls.
//!
//! That a descriptor is made, and what a program sees of it, is what `e2e/conformance-smi` tests.
//!
//! C header: [`include/linux/anon_inodes.h`](srctree/include/linux/anon_inodes.h)

use super::waitqueue::WaitQueue;
use crate::bindings as rkfd;
use core::marker::PhantomData;
use kernel::{
    bindings,
    prelude::*,
    types::ForeignOwnable,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

/// Bits of `__poll_t` of a file that can be read (`include/uapi/linux/eventpoll.h`: EPOLLIN, EPOLLRDNORM).
const READABLE: bindings::__poll_t = 0x1 | 0x40;

/// An open file. Its drop is the file's release.
pub(crate) trait EventFile: Send + Sync + Sized + 'static {
    /// Moves what there is to user space; returns the number of bytes.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if there is nothing, `EFAULT`.
    fn read(&self, to: UserSlice) -> Result<usize>;

    /// Takes a command; returns the number of bytes that it took.
    fn write(&self, from: UserSlice) -> Result<usize>;

    /// Whether a read finds something. Called while the task is about to sleep: must not sleep.
    fn is_readable(&self) -> bool;

    /// The threads that sleep until a read finds something. Must not be freed before the file is.
    fn waiters(&self) -> &WaitQueue;
}

/// Opens a file for reading and writing, and returns its descriptor, which a call to exec leaves open. `name` is what
/// `/proc/PID/fd` shows.
///
/// # Errors
///
/// - `EMFILE`, `ENFILE`: too many open files, of the process or of the machine.
/// - `ENOMEM`: no memory.
pub(crate) fn open<T: EventFile>(name: &'static CStr, file: KBox<T>) -> Result<u32> {
    let data = file.into_foreign();
    // CAST: A small flag.
    let flags = bindings::O_RDWR as c_int;
    // SAFETY: The name and the operations are static. The private data is what the operations expect; the file
    // owns it from here on if the call succeeds.
    let fd =
        unsafe { rkfd::anon_inode_getfd(name.as_char_ptr(), &FileVTable::<T>::OPS, data, flags) };
    u32::try_from(fd).map_err(|_| {
        // SAFETY: It came from `into_foreign` above, and without a file there is no other reference.
        drop(unsafe { KBox::<T>::from_foreign(data) });
        Error::from_errno(fd)
    })
}

/// As [`open`], for a test: without a descriptor.
///
/// # Errors
///
/// `ENFILE`, `ENOMEM`.
#[cfg(rkfd_kunit)]
pub(crate) fn test_file<T: EventFile>(file: KBox<T>) -> Result<super::kunit::TestFile> {
    let data = file.into_foreign();
    // SAFETY: The operations are those of files that own a `T`, and have no pages.
    let file =
        unsafe { super::kunit::TestFile::new(&FileVTable::<T>::OPS, data, core::ptr::null_mut()) };
    file.inspect_err(|_| {
        // SAFETY: Made above, and no file has it.
        drop(unsafe { KBox::<T>::from_foreign(data) });
    })
}

struct FileVTable<T>(PhantomData<T>);

impl<T: EventFile> FileVTable<T> {
    const OPS: bindings::file_operations = bindings::file_operations {
        owner: kernel::module::this_module::<crate::LocalModule>().as_ptr(),
        read: Some(Self::read),
        write: Some(Self::write),
        poll: Some(Self::poll),
        release: Some(Self::release),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// Called by the VFS once, for a file of [`open`].
    unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: `open` stored the pointer, and this is its last use: all that poll have left the wait queue, since an
        // epoll instance drops its entries before the release and `poll(2)` holds the file.
        drop(unsafe { KBox::<T>::from_foreign((*file).private_data) });
        0
    }

    /// # Safety
    ///
    /// Called by the VFS before `release`.
    unsafe extern "C" fn read(
        file: *mut bindings::file,
        to: *mut c_char,
        len: usize,
        _offset: *mut bindings::loff_t,
    ) -> isize {
        // SAFETY: `open` stored the pointer and `release` has not been called.
        let data = unsafe { KBox::<T>::borrow((*file).private_data) };
        transferred(data.read(UserSlice::new(UserPtr::from_ptr(to.cast()), len)))
    }

    /// # Safety
    ///
    /// Called by the VFS before `release`.
    unsafe extern "C" fn write(
        file: *mut bindings::file,
        from: *const c_char,
        len: usize,
        _offset: *mut bindings::loff_t,
    ) -> isize {
        // SAFETY: `open` stored the pointer and `release` has not been called.
        let data = unsafe { KBox::<T>::borrow((*file).private_data) };
        let from = UserPtr::from_ptr(from.cast_mut().cast());
        transferred(data.write(UserSlice::new(from, len)))
    }

    /// # Safety
    ///
    /// Called by the VFS before `release`.
    unsafe extern "C" fn poll(
        file: *mut bindings::file,
        table: *mut bindings::poll_table_struct,
    ) -> bindings::__poll_t {
        // SAFETY: `open` stored the pointer and `release` has not been called.
        let data = unsafe { KBox::<T>::borrow((*file).private_data) };
        // SAFETY: File and table are valid during the call. The queue lives as long as the file does, and what
        // waits on it holds the file or is an entry of an epoll instance, which goes before the file's release.
        unsafe { bindings::poll_wait(file, data.waiters().as_raw(), table) };
        if data.is_readable() {
            READABLE
        } else {
            0
        }
    }
}

/// What a read or write system call returns.
fn transferred(result: Result<usize>) -> isize {
    match result {
        // The VFS limits lengths to less than this.
        Ok(len) => isize::try_from(len).unwrap_or(isize::MAX),
        // CAST: An errno fits.
        Err(error) => error.to_errno() as isize,
    }
}
