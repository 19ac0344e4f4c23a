// SPDX-License-Identifier: GPL-2.0

//! Character devices with a major number of their own, and mappings of device memory.
//!
//! What `miscdevice` is for the misc major: the private data of an open file is a Rust value, the file
//! operations are methods. In addition all opens share one `address_space`, so that
//! [`CharDevice::unmap`] takes the mappings of all processes away.
//!
//! C header: [`include/linux/cdev.h`](srctree/include/linux/cdev.h)

use crate::bindings as rkfd;
use core::{
    marker::{
        PhantomData,
        PhantomPinned, //
    },
    ptr::NonNull,
};
use kernel::{
    bindings,
    error::{
        from_err_ptr,
        to_result, //
    },
    mm::virt::VmaNew,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        atomic::{
            AtomicFlag,
            Full,
            Relaxed, //
        },
        Arc, //
    },
    types::{
        ForeignOwnable,
        Opaque, //
    },
};

/// An open file of a character device.
pub(crate) trait FileOps: Send + Sync + Sized + 'static {
    /// What all open files share.
    type Context: Send + Sync + 'static;

    /// Opens a file.
    fn open(context: &Arc<Self::Context>) -> Result<KBox<Self>>;

    /// A command with its argument.
    fn ioctl(&self, command: u32, argument: usize) -> Result<isize>;

    /// Maps memory; the caller holds the mmap lock for writing.
    fn mmap(&self, request: MmapRequest<'_>) -> Result;
}

/// The shared inode of all opens.
///
/// # Invariants
///
/// `inode` came from `rkfd_inode_new`.
struct SharedInode(NonNull<bindings::inode>);

impl SharedInode {
    fn new() -> Result<Self> {
        // SAFETY: No requirement.
        let inode = from_err_ptr(unsafe { rkfd::rkfd_inode_new() })?;
        // INVARIANT: As required.
        Ok(Self(NonNull::new(inode).ok_or(ENOMEM)?))
    }

    fn mapping(&self) -> *mut bindings::address_space {
        // SAFETY: By the type invariant the inode is valid.
        unsafe { (*self.0.as_ptr()).i_mapping }
    }
}

impl Drop for SharedInode {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; dropped once.
        unsafe { rkfd::rkfd_inode_free(self.0.as_ptr()) };
    }
}

/// A reserved device number.
struct Region(bindings::dev_t);

impl Region {
    fn new(name: &'static CStr) -> Result<Self> {
        let mut devt = 0;
        // SAFETY: `devt` is a place for the result, `name` is static.
        to_result(unsafe { bindings::alloc_chrdev_region(&mut devt, 0, 1, name.as_char_ptr()) })?;
        Ok(Self(devt))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: Reserved in `new`.
        unsafe { bindings::unregister_chrdev_region(self.0, 1) };
    }
}

/// A character device with minor 0.
///
/// The module cannot go while a file is open, so everything here outlives every file.
///
/// # Invariants
///
/// `cdev` is initialised, and was added if `added`.
#[pin_data(PinnedDrop)]
pub(crate) struct CharDevice<T: FileOps> {
    #[pin]
    cdev: Opaque<bindings::cdev>,
    /// Files can be opened.
    added: AtomicFlag,
    context: Arc<T::Context>,
    inode: SharedInode,
    region: Region,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: The C parts have their own locks; the context is `Send + Sync`.
unsafe impl<T: FileOps> Send for CharDevice<T> {}
// SAFETY: Shared access reaches the C parts through functions that lock, `added` is atomic, the context is `Sync`.
unsafe impl<T: FileOps> Sync for CharDevice<T> {}

impl<T: FileOps> CharDevice<T> {
    /// Reserves a free major number for a device. No file can be opened yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or `EBUSY` if no major number is free.
    pub(crate) fn new(name: &'static CStr, context: Arc<T::Context>) -> Result<Pin<KBox<Self>>> {
        let region = Region::new(name)?;
        // INVARIANT: Initialised, and not added.
        KBox::try_pin_init(
            try_pin_init!(Self {
                context,
                inode: SharedInode::new()?,
                region,
                cdev <- Opaque::ffi_init(|slot: *mut bindings::cdev| {
                    // SAFETY: `slot` is valid for writes and stays in place.
                    unsafe { bindings::cdev_init(slot, &FileVTable::<T>::OPS) };
                    // SAFETY: Initialised above.
                    unsafe {
                        (*slot).owner =
                            kernel::module::this_module::<crate::LocalModule>().as_ptr();
                    }
                }),
                added: AtomicFlag::new(false),
                _pin: PhantomPinned,
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Lets files be opened from here on. The module must not fail to load after this, for an open file does not
    /// keep it then.
    ///
    /// # Errors
    ///
    /// `EBUSY` if that was done already, `ENOMEM`.
    pub(crate) fn add(&self) -> Result {
        if self.added.xchg(true, Full) {
            return Err(EBUSY);
        }
        // INVARIANT: Added, or not and `added` says so; it is not dropped meanwhile.
        // SAFETY: By the type invariant `cdev` is initialised, and the exchange above says that it was not added.
        // The number was reserved in `new`.
        let ret = unsafe { bindings::cdev_add(self.cdev.get(), self.region.0, 1) };
        to_result(ret).inspect_err(|_| self.added.store(false, Relaxed))
    }

    /// The device number.
    pub(crate) fn devt(&self) -> bindings::dev_t {
        self.region.0
    }

    /// A file as a program that opens the device has it. The device must outlive it and its mappings.
    ///
    /// # Errors
    ///
    /// Of [`FileOps::open`], and `ENOMEM`.
    #[cfg(rkfd_kunit)]
    pub(crate) fn test_file(&self) -> Result<super::kunit::TestFile> {
        let data = T::open(&self.context)?.into_foreign();
        // SAFETY: The operations are those of files that own a `T`; the caller keeps the device.
        let file = unsafe {
            super::kunit::TestFile::new(&FileVTable::<T>::OPS, data, self.inode.mapping())
        };
        file.inspect_err(|_| {
            // SAFETY: Made above, and no file has it.
            drop(unsafe { KBox::<T>::from_foreign(data) });
        })
    }

    /// Takes away what files mapped from `offset`, `len` bytes (0: all that follows). The next
    /// access faults again.
    pub(crate) fn unmap(&self, offset: u64, len: u64) {
        // Offsets use all 64 bits; C carries them in a signed type and shifts them as unsigned.
        // CAST: Same bits.
        let (offset, len) = (offset as i64, len as i64);
        // SAFETY: The mapping belongs to our inode.
        unsafe { bindings::unmap_mapping_range(self.inode.mapping(), offset, len, 1) };
    }
}

#[pinned_drop]
impl<T: FileOps> PinnedDrop for CharDevice<T> {
    fn drop(self: Pin<&mut Self>) {
        if self.added.load(Relaxed) {
            // SAFETY: Added by the type invariant.
            unsafe { bindings::cdev_del(self.cdev.get()) };
        }
    }
}

struct FileVTable<T>(PhantomData<T>);

impl<T: FileOps> FileVTable<T> {
    const OPS: bindings::file_operations = bindings::file_operations {
        owner: kernel::module::this_module::<crate::LocalModule>().as_ptr(),
        open: Some(Self::open),
        release: Some(Self::release),
        unlocked_ioctl: Some(Self::ioctl),
        #[cfg(CONFIG_COMPAT)]
        compat_ioctl: bindings::compat_ptr_ioctl,
        mmap: Some(Self::mmap),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// Called by the VFS for a [`CharDevice<T>`].
    unsafe extern "C" fn open(inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: `chrdev_open` set `i_cdev` to the cdev that was added, which lies in a `CharDevice<T>`
        // and stays there while the file holds the module.
        let device = unsafe {
            let cdev = rkfd::rkfd_inode_cdev(inode);
            &*kernel::container_of!(Opaque::cast_from(cdev), CharDevice<T>, cdev)
        };
        match T::open(&device.context) {
            Ok(data) => {
                // SAFETY: The file is being opened and has no other user yet.
                unsafe {
                    (*file).f_mapping = device.inode.mapping();
                    (*file).private_data = data.into_foreign();
                }
                0
            }
            Err(error) => error.to_errno(),
        }
    }

    /// # Safety
    ///
    /// Called by the VFS once, for a file that `open` succeeded for.
    unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: `open` stored the pointer, and this is its last use.
        drop(unsafe { KBox::<T>::from_foreign((*file).private_data) });
        0
    }

    /// # Safety
    ///
    /// Called by the VFS between `open` and `release`.
    unsafe extern "C" fn ioctl(file: *mut bindings::file, command: c_uint, arg: c_ulong) -> c_long {
        // SAFETY: `open` stored the pointer and `release` has not been called.
        let data = unsafe { KBox::<T>::borrow((*file).private_data) };
        match data.ioctl(command, arg) {
            Ok(value) => value,
            // CAST: An errno fits.
            Err(error) => error.to_errno() as c_long,
        }
    }

    /// # Safety
    ///
    /// Called by the VFS between `open` and `release`, with a VMA that is being set up.
    unsafe extern "C" fn mmap(
        file: *mut bindings::file,
        vma: *mut bindings::vm_area_struct,
    ) -> c_int {
        // SAFETY: `open` stored the pointer and `release` has not been called.
        let data = unsafe { KBox::<T>::borrow((*file).private_data) };
        // SAFETY: The VMA is being set up.
        let vma = unsafe { VmaNew::from_raw(vma) };
        match data.mmap(MmapRequest { vma }) {
            Ok(()) => 0,
            Err(error) => error.to_errno(),
        }
    }
}

/// A mapping that user space asks for.
pub(crate) struct MmapRequest<'a> {
    vma: &'a VmaNew,
}

impl MmapRequest<'_> {
    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.vma.end() - self.vma.start()
    }

    /// The mapping that is being set up.
    #[cfg(rkfd_kunit)]
    pub(super) fn vma(&self) -> *mut bindings::vm_area_struct {
        self.vma.as_ptr()
    }

    /// Offset in the file, bytes.
    pub(crate) fn offset(&self) -> u64 {
        // SAFETY: The VMA is valid while borrowed.
        let pgoff = unsafe { (*self.vma.as_ptr()).vm_pgoff };
        // CAST: `unsigned long` is 64 bits wide where this driver runs.
        (pgoff as u64) << PAGE_SHIFT
    }

    /// Makes this a mapping of `memory`: uncached, not inherited by children, not dumped.
    ///
    /// A private mapping that can be written would be copied on write, which device memory cannot be: its
    /// stores would never reach the device, and the memory manager stops the machine where such a page is
    /// inserted. One that is only read is taken and stays unwritable.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a private mapping with write access.
    pub(crate) fn map_io<M: IoMemory>(self, memory: Arc<M>) -> Result {
        let vma = self.vma.as_ptr();
        // SAFETY: The VMA is valid while borrowed.
        let flags = unsafe { (*vma).__bindgen_anon_2.vm_flags };
        let private = flags & bindings::VM_SHARED == 0;
        if private && flags & bindings::VM_WRITE != 0 {
            return Err(EINVAL);
        }
        // SAFETY: The VMA is being set up, so flags and operations may be set. From here on it is not
        // copied on write: it is shared, or it lost the right to become writable. The private data owns
        // the reference and `close` drops it.
        unsafe {
            rkfd::rkfd_vma_set_io(vma, private);
            (*vma).vm_private_data = memory.into_foreign();
            (*vma).vm_ops = &IoVmOps::<M>::OPS;
        }
        Ok(())
    }
}

/// Device memory that can go away.
pub(crate) trait IoMemory: Send + Sync + 'static {
    /// Calls `insert` with the bus address of page `page` of the file while that is valid. What takes
    /// the memory away first makes this fail and then unmaps. What was inserted before a failure is taken away
    /// again.
    ///
    /// # Errors
    ///
    /// `EAGAIN` has the thread access it anew; any other error becomes a bus error of it.
    fn with_page(&self, page: u64, insert: &mut dyn FnMut(u64)) -> Result;
}

struct IoVmOps<M>(PhantomData<M>);

impl<M: IoMemory> IoVmOps<M> {
    const OPS: bindings::vm_operations_struct = bindings::vm_operations_struct {
        open: Some(Self::open),
        close: Some(Self::close),
        fault: Some(Self::fault),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// Called by the memory manager when a VMA of `map_io` was copied.
    unsafe extern "C" fn open(vma: *mut bindings::vm_area_struct) {
        // SAFETY: The private data is that of the original VMA, which holds a reference.
        let memory = unsafe { Arc::<M>::borrow((*vma).vm_private_data) };
        // The copy owns a reference of its own; `close` drops it.
        let _ = Arc::from(memory).into_foreign();
    }

    /// # Safety
    ///
    /// Called by the memory manager when a VMA of `map_io` goes.
    unsafe extern "C" fn close(vma: *mut bindings::vm_area_struct) {
        // SAFETY: The VMA owns the reference; this is its last use.
        drop(unsafe { Arc::<M>::from_foreign((*vma).vm_private_data) });
    }

    /// # Safety
    ///
    /// Called by the memory manager on an access to a VMA of `map_io`.
    unsafe extern "C" fn fault(fault: *mut bindings::vm_fault) -> bindings::vm_fault_t {
        // SAFETY: The fault and its VMA are valid during the call.
        let (vma, address, pgoff) = unsafe {
            let place = &(*fault).__bindgen_anon_1;
            (place.vma, place.address, place.pgoff)
        };
        // SAFETY: The VMA owns a reference.
        let memory = unsafe { Arc::<M>::borrow((*vma).vm_private_data) };
        let mut result = bindings::vm_fault_reason_VM_FAULT_SIGBUS;
        // CAST: `unsigned long` is 64 bits wide where this driver runs.
        let inserted = memory.with_page(pgoff as u64, &mut |bus| {
            // CAST: `unsigned long` is 64 bits wide where this driver runs.
            let pfn = (bus >> PAGE_SHIFT) as c_ulong;
            // SAFETY: `map_io` gave the VMA VM_PFNMAP and VM_IO and made sure that it is not copied on
            // write, neither of which is taken back; the address lies in it, and the page belongs
            // to the device during this call.
            result = unsafe { bindings::vmf_insert_pfn(vma, address, pfn) };
        });
        let Err(error) = inserted else { return result };
        // SAFETY: The VMA is valid and locked by the memory manager, and the function looks whether the page lies
        // in it.
        unsafe { bindings::zap_special_vma_range(vma, address, PAGE_SIZE) };
        if error == EAGAIN {
            bindings::vm_fault_reason_VM_FAULT_NOPAGE
        } else {
            bindings::vm_fault_reason_VM_FAULT_SIGBUS
        }
    }
}
