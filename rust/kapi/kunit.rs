// SPDX-License-Identifier: GPL-2.0

//! What the KUnit macros do not offer.
//!
//! C header: [`include/kunit/test.h`](srctree/include/kunit/test.h)

use core::ptr::NonNull;

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    error::{
        from_err_ptr,
        to_result, //
    },
    faux,
    fs::LocalFile,
    prelude::*,
    sync::aref::ARef,
    task::Task,
    types::NotThreadSafe, //
};

use super::{
    task::ThreadGroup,
    waitqueue::WaitQueue, //
};

mod exporter;

pub(crate) use self::exporter::{
    Answers,
    Asked,
    Exporter, //
};

/// Marks the running test as skipped. The test goes on and should return.
pub(crate) fn skip(reason: &'static CStr) {
    // SAFETY: `reason` is a string; the function does nothing outside a test.
    unsafe { crate::bindings::rkfd_kunit_skip(reason.as_char_ptr()) };
}

/// A device without hardware that can map memory for DMA, as long as this lives.
pub(crate) struct DmaDevice(faux::Registration);

impl DmaDevice {
    /// Registers a device with 64 address bits.
    ///
    /// # Errors
    ///
    /// `ENODEV` if it cannot be registered, and what the DMA layer says of the mask.
    pub(crate) fn new(name: &CStr) -> Result<Self> {
        let this = Self(faux::Registration::new(name, None)?);
        // `Device` is `repr(transparent)` over `Opaque<struct device>`.
        let raw: *mut bindings::device = core::ptr::from_ref(this.device()).cast_mut().cast();
        // SAFETY: The device is registered, has no other user, and has no mask of its own; the field that
        // the pointer names lives as long as the device.
        unsafe { (*raw).dma_mask = &raw mut (*raw).coherent_dma_mask };
        // SAFETY: The device is registered and has a mask since the line above; nothing has been mapped yet.
        to_result(unsafe { bindings::dma_set_mask_and_coherent(raw, u64::MAX) })?;
        Ok(this)
    }

    /// The device.
    pub(crate) fn device(&self) -> &Device<Bound> {
        let faux: &faux::Device<Bound> = self.0.as_ref();
        faux.as_ref()
    }
}

/// Which processes see what is written to a mapping of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// All that map it.
    Shared,
    /// Its process alone.
    Private {
        /// It may be written.
        writable: bool,
    },
}

/// An open file that no path leads to.
///
/// # Invariants
///
/// The pointer is a file, and this value owns one of its references.
pub(crate) struct TestFile(NonNull<bindings::file>);

impl TestFile {
    /// Makes one for reading and writing, whose pages are those of `mapping`; null: none. On failure `data` is still the
    /// caller's.
    ///
    /// # Safety
    ///
    /// `ops` are of this module and fit `data`, which they own until `release`, and `mapping` is null or lives longer than
    /// every use of the file.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENFILE`.
    pub(super) unsafe fn new(
        ops: &'static bindings::file_operations,
        data: *mut c_void,
        mapping: *mut bindings::address_space,
    ) -> Result<Self> {
        // SAFETY: By the requirements of this function.
        let file = from_err_ptr(unsafe { crate::bindings::rkfd_kunit_file(ops, data, mapping) })?;
        // INVARIANT: The new file has one reference.
        Ok(Self(NonNull::new(file).ok_or(ENOMEM)?))
    }
}

impl TestFile {
    /// The file, as it is found behind a descriptor.
    pub(crate) fn behind_descriptor(&self) -> ARef<LocalFile> {
        // SAFETY: By the type invariant; the position of the file is not used.
        unsafe { LocalFile::from_raw_file(self.0.as_ptr()) }.into()
    }

    fn operations(&self) -> &bindings::file_operations {
        // SAFETY: By the type invariant; the operations of a file are static.
        unsafe { &*(*self.0.as_ptr()).f_op }
    }

    /// What `read` of `len` bytes to `address` returns.
    ///
    /// # Errors
    ///
    /// That of the call; `EINVAL` if the file cannot be read.
    pub(crate) fn read(&self, address: u64, len: usize) -> Result<usize> {
        let read = self.operations().read.ok_or(EINVAL)?;
        let to = core::ptr::without_provenance_mut(usize::try_from(address)?);
        let mut offset = 0;
        // SAFETY: The operation of this file, which is open. An address of user space may be any.
        transferred(unsafe { read(self.0.as_ptr(), to, len, &raw mut offset) })
    }

    /// What `write` of `len` bytes from `address` returns.
    ///
    /// # Errors
    ///
    /// That of the call; `EINVAL` if the file cannot be written.
    pub(crate) fn write(&self, address: u64, len: usize) -> Result<usize> {
        let write = self.operations().write.ok_or(EINVAL)?;
        let from = core::ptr::without_provenance(usize::try_from(address)?);
        let mut offset = 0;
        // SAFETY: The operation of this file, which is open. An address of user space may be any.
        transferred(unsafe { write(self.0.as_ptr(), from, len, &raw mut offset) })
    }

    /// What `poll` returns, and whether the poll waits on `queue` alone.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the file cannot be polled.
    pub(crate) fn poll(&self, queue: &WaitQueue) -> Result<(u32, bool)> {
        let poll = self.operations().poll.ok_or(EINVAL)?;
        let mut seen = Polled {
            table: bindings::poll_table_struct {
                _qproc: Some(Polled::note),
                _key: !0,
            },
            queue: core::ptr::null_mut(),
            count: 0,
        };
        // SAFETY: The operation of this file, which is open; the table is the first field of what `note` expects, and
        // outlives the call.
        let mask = unsafe { poll(self.0.as_ptr(), (&raw mut seen).cast()) };
        Ok((mask, seen.count == 1 && seen.queue == queue.as_raw()))
    }

    /// Waits until files that the current thread, one of the kernel, has closed are released.
    pub(crate) fn settle() {
        // SAFETY: No preconditions but that the caller may sleep.
        unsafe { bindings::flush_delayed_fput() };
    }
}

/// A poll of a file, as the file sees it.
#[repr(C)]
struct Polled {
    table: bindings::poll_table_struct,
    queue: *mut bindings::wait_queue_head,
    count: u32,
}

impl Polled {
    /// # Safety
    ///
    /// Called by the file with the table of a [`Polled`].
    unsafe extern "C" fn note(
        _file: *mut bindings::file,
        queue: *mut bindings::wait_queue_head,
        table: *mut bindings::poll_table_struct,
    ) {
        // SAFETY: The table is the first field; the caller of the file's operation has lent all of it.
        let this = unsafe { &mut *table.cast::<Self>() };
        this.queue = queue;
        this.count += 1;
    }
}

/// The result of a system call.
fn transferred(returned: isize) -> Result<usize> {
    usize::try_from(returned)
        .map_err(|_| Error::from_errno(c_int::try_from(returned).unwrap_or(c_int::MIN)))
}

impl Drop for TestFile {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::fput(self.0.as_ptr()) };
    }
}

/// Memory of the address space that the running test has for itself: private and anonymous, if it is not of a file. It
/// goes with the test at the latest.
pub(crate) struct UserMemory {
    address: usize,
    len: usize,
}

impl UserMemory {
    /// Maps `len` bytes, which have not been touched.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the kernel refuses.
    pub(crate) fn new(len: usize) -> Result<Self> {
        Self::map(0, len, true)
    }

    /// As [`UserMemory::new`], where nothing is mapped now.
    ///
    /// # Errors
    ///
    /// As [`UserMemory::new`].
    pub(crate) fn at(address: u64, len: usize) -> Result<Self> {
        Self::map(usize::try_from(address)?, len, true)
    }

    /// As [`UserMemory::new`], not to be written.
    ///
    /// # Errors
    ///
    /// As [`UserMemory::new`].
    pub(crate) fn read_only(len: usize) -> Result<Self> {
        Self::map(0, len, false)
    }

    fn map(address: usize, len: usize, writable: bool) -> Result<Self> {
        // SAFETY: Maps memory of the running test, which has no other; outside a test it returns 0.
        let found = unsafe { crate::bindings::rkfd_kunit_map_user(address, len, writable) };
        if found == 0 || (address != 0 && found != address) {
            return Err(ENOMEM);
        }
        Ok(Self {
            address: found,
            len,
        })
    }

    /// Maps `len` bytes of a file from byte `offset`, as [`Sharing`] says.
    ///
    /// # Errors
    ///
    /// Those of `mmap`.
    pub(crate) fn of_file(
        file: &TestFile,
        len: usize,
        sharing: Sharing,
        offset: u64,
    ) -> Result<Self> {
        let (writable, shared) = match sharing {
            Sharing::Shared => (true, true),
            Sharing::Private { writable } => (writable, false),
        };
        let offset = usize::try_from(offset)?;
        // SAFETY: The file is open; maps it for the running test, which has no other address space.
        let found = unsafe {
            crate::bindings::rkfd_kunit_map_file(file.0.as_ptr(), len, writable, shared, offset)
        };
        let address = from_err_ptr(core::ptr::without_provenance_mut::<u8>(found))?.addr();
        Ok(Self { address, len })
    }

    /// A part of what another one has mapped.
    pub(crate) fn part(address: u64, len: usize) -> Self {
        // CAST: `unsigned long` is 64 bits wide where this driver runs.
        let address = address as usize;
        Self { address, len }
    }

    /// First byte.
    pub(crate) fn address(&self) -> u64 {
        // CAST: `usize` is at most 64 bits wide.
        self.address as u64
    }

    /// Unmaps it, as a program does.
    pub(crate) fn unmap(self) {
        // SAFETY: Memory of the running test that nothing of the kernel refers to.
        unsafe { crate::bindings::rkfd_kunit_unmap_user(self.address, self.len) };
    }
}

/// A fatal signal that is pending for the running test, as long as this lives.
pub(crate) struct FatalSignal(NotThreadSafe);

impl FatalSignal {
    /// Sends it.
    pub(crate) fn send() -> Self {
        // SAFETY: A test runs in a thread of the kernel of its own, which handles no signals.
        unsafe { crate::bindings::rkfd_kunit_kill() };
        Self(NotThreadSafe)
    }
}

impl Drop for FatalSignal {
    fn drop(&mut self) {
        // SAFETY: As this value is bound to its thread, it is the one that got the signal.
        unsafe { crate::bindings::rkfd_kunit_clear_signals() };
    }
}

/// An interrupt that no device sends.
///
/// # Invariants
///
/// The number is of an interrupt descriptor that this value has allocated.
pub(crate) struct SimulatedIrq(c_uint);

impl SimulatedIrq {
    /// Allocates one.
    ///
    /// # Errors
    ///
    /// `ENOMEM` and `ENOSPC` of the interrupt core.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: No preconditions; the new descriptor has no other user.
        let irq = unsafe { crate::bindings::rkfd_kunit_irq_alloc() };
        // INVARIANT: Allocated above; what is negative is an error.
        Ok(Self(
            c_uint::try_from(irq).map_err(|_| Error::from_errno(irq))?,
        ))
    }

    /// Its number.
    pub(super) fn number(&self) -> c_uint {
        self.0
    }

    /// Sends it. The first handler has run when this returns.
    ///
    /// # Errors
    ///
    /// What the interrupt core reports.
    pub(crate) fn raise(&self) -> Result {
        // SAFETY: By the type invariant; the function may be called in any context.
        to_result(unsafe { crate::bindings::rkfd_kunit_irq_raise(self.0) })
    }
}

impl Drop for SimulatedIrq {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; what requests the interrupt borrows `self`, so none of it is left.
        unsafe { crate::bindings::rkfd_kunit_irq_free(self.0) };
    }
}

/// A process of the kernel that does nothing, and ends when this is dropped.
///
/// # Invariants
///
/// The task is a thread of the kernel that only this value ends.
pub(crate) struct Bystander(ARef<Task>);

impl Bystander {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// `ENOMEM` and what else the kernel says.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: No preconditions; the new thread has no other user.
        let task = from_err_ptr(unsafe { crate::bindings::rkfd_kunit_thread() })?;
        let task = NonNull::new(task.cast::<Task>()).ok_or(ENOMEM)?;
        // INVARIANT: As above.
        // SAFETY: `Task` is transparent over `struct task_struct`, and the function has taken a reference for the caller.
        Ok(Self(unsafe { ARef::from_raw(task) }))
    }

    /// The process.
    pub(crate) fn group(&self) -> ThreadGroup {
        ThreadGroup::of(self.0.clone())
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { crate::bindings::rkfd_kunit_thread_end(self.0.as_ptr()) };
    }
}

/// Bytes of the machine's memory that is free at the moment.
pub(crate) fn free_memory() -> u64 {
    let mut info = bindings::sysinfo::default();
    // SAFETY: Fills the structure.
    unsafe { bindings::si_meminfo(&raw mut info) };
    // CAST: `unsigned long` is at most 64 bits wide.
    info.freeram as u64 * u64::from(info.mem_unit)
}
