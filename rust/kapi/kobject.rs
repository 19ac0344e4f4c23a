// SPDX-License-Identifier: GPL-2.0

//! Directories in sysfs with read-only text files.
//!
//! A [`Text`] is the content of a file; it may be replaced at any time, and a reader sees one version of it,
//! never a mixture. A [`Directory`] disappears when it is dropped: the drop waits for readers
//! that are inside, and readers that still hold the file open get `ENODEV` from then on.
//!
//! C headers: [`include/linux/kobject.h`](srctree/include/linux/kobject.h),
//! [`include/linux/sysfs.h`](srctree/include/linux/sysfs.h)

use crate::bindings as rkfd;
use core::ptr::NonNull;
use kernel::{
    bindings,
    device::Device,
    error::to_result,
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    str::CString,
    sync::{
        Arc,
        Mutex, //
    },
    types::Opaque, //
};

/// All users may read.
const FILE_MODE: bindings::umode_t = 0o444;

/// Content of a file, at most one page.
#[pin_data]
pub(crate) struct Text {
    #[pin]
    content: Mutex<KVVec<u8>>,
}

impl Text {
    /// A text.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(content: KVVec<u8>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self { content <- new_mutex!(content, "rkfd_sysfs_text") }),
            GFP_KERNEL,
        )
    }

    /// Replaces the text; returns whether it changed.
    pub(crate) fn set(&self, content: KVVec<u8>) -> bool {
        let mut old = self.content.lock();
        if old.as_slice() == content.as_slice() {
            return false;
        }
        *old = content;
        true
    }

    /// Copies the text to `buffer` and returns its length. What does not fit is cut off.
    fn read(&self, buffer: &mut [u8]) -> usize {
        let content = self.content.lock();
        let len = content.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(content.iter()) {
            *to = *from;
        }
        len
    }
}

/// A file of a directory.
struct File {
    attr: Opaque<bindings::attribute>,
    text: Arc<Text>,
}

/// What the kobject lies in; freed by its release function.
struct Node {
    kobj: Opaque<bindings::kobject>,
    files: KVec<File>,
}

impl Node {
    const SYSFS_OPS: bindings::sysfs_ops = bindings::sysfs_ops {
        show: Some(Self::show),
        ..pin_init::zeroed()
    };

    const KTYPE: bindings::kobj_type = bindings::kobj_type {
        release: Some(Self::release),
        sysfs_ops: &Self::SYSFS_OPS,
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// Called by sysfs with an attribute of a [`File`] and a buffer of one page.
    unsafe extern "C" fn show(
        _kobj: *mut bindings::kobject,
        attr: *mut bindings::attribute,
        buffer: *mut c_char,
    ) -> isize {
        // SAFETY: Only attributes of `File`s are registered for this ktype, and sysfs keeps the
        // directory in place during the call.
        let file = unsafe { &*kernel::container_of!(Opaque::cast_from(attr), File, attr) };
        // SAFETY: sysfs passes one zeroed page that has no other user.
        let buffer = unsafe { core::slice::from_raw_parts_mut(buffer.cast::<u8>(), PAGE_SIZE) };
        isize::try_from(file.text.read(buffer)).unwrap_or(0)
    }

    /// # Safety
    ///
    /// Called once by the kobject core with a kobject of a [`Node`] that came from a `KBox`.
    unsafe extern "C" fn release(kobj: *mut bindings::kobject) {
        let node = kernel::container_of!(Opaque::cast_from(kobj), Node, kobj);
        // SAFETY: `Directory::new` made the node with `KBox::into_raw`, and the last reference is
        // gone.
        drop(unsafe { KBox::from_raw(node.cast_mut()) });
    }
}

/// Where a directory is made.
#[derive(Clone, Copy)]
pub(crate) enum Parent<'a> {
    /// Under a device.
    Device(&'a Device),
    /// Under another directory.
    Directory(&'a Directory),
}

/// A directory, until dropped. Drop what lies in it first.
///
/// # Invariants
///
/// `node` came from `KBox::into_raw` and holds one reference; the kobject was added.
pub(crate) struct Directory {
    node: NonNull<Node>,
}

// SAFETY: The kobject core has its own locks, `Node` is otherwise immutable.
unsafe impl Send for Directory {}
// SAFETY: There is no shared access but to `Node`, which is immutable beside what the kobject core locks.
unsafe impl Sync for Directory {}

impl Directory {
    /// Makes directory `name` with `files`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an empty name; `ENOMEM`, `EEXIST`, or what sysfs reports.
    pub(crate) fn new(
        parent: Parent<'_>,
        name: kernel::fmt::Arguments<'_>,
        files: &[(&'static CStr, Arc<Text>)],
    ) -> Result<Self> {
        let name = CString::try_from_fmt(name)?;
        // The kobject core would report it as an error of the kernel.
        if name.to_bytes().is_empty() {
            return Err(EINVAL);
        }
        let mut list = KVec::with_capacity(files.len(), GFP_KERNEL)?;
        for (file_name, text) in files {
            // SAFETY: All zeroes is a valid `attribute`.
            let mut attr: bindings::attribute = unsafe { core::mem::zeroed() };
            attr.name = file_name.as_char_ptr();
            attr.mode = FILE_MODE;
            // SAFETY: Sets the lock class of the attribute.
            unsafe { rkfd::rkfd_sysfs_attr_init(&mut attr) };
            list.push_within_capacity(File {
                attr: Opaque::new(attr),
                text: text.clone(),
            })
            .map_err(|_| ENOMEM)?;
        }
        let node = KBox::new(
            Node {
                kobj: Opaque::zeroed(),
                files: list,
            },
            GFP_KERNEL,
        )?;
        let node = KBox::into_raw(node);
        let parent = match parent {
            Parent::Device(device) => {
                // `Device` is `repr(transparent)` over `Opaque<struct device>`.
                let raw: *mut bindings::device = core::ptr::from_ref(device).cast_mut().cast();
                // SAFETY: The device is valid while the borrow lasts; the address of a field is
                // taken.
                unsafe { &raw mut (*raw).kobj }
            }
            Parent::Directory(directory) => directory.kobj(),
        };
        // SAFETY: `node` is fresh, the type is static, `parent` is a live kobject, and the format takes
        // one string and gets one.
        let ret = unsafe {
            bindings::kobject_init_and_add(
                (*node).kobj.get(),
                &Node::KTYPE,
                parent,
                c"%s".as_char_ptr(),
                name.as_char_ptr(),
            )
        };
        if let Err(error) = to_result(ret) {
            // SAFETY: The kobject is initialised; this drops its only reference and frees the node.
            unsafe { bindings::kobject_put((*node).kobj.get()) };
            return Err(error);
        }
        // INVARIANT: Made and added above.
        let directory = Self {
            node: NonNull::new(node).ok_or(ENOMEM)?,
        };
        // SAFETY: By the type invariant the node is valid.
        for file in unsafe { &(*node).files } {
            // SAFETY: The attribute stays where it is as long as the directory; the list is never
            // changed again.
            to_result(unsafe {
                bindings::sysfs_create_file_ns(directory.kobj(), file.attr.get(), core::ptr::null())
            })?;
        }
        Ok(directory)
    }

    fn kobj(&self) -> *mut bindings::kobject {
        // SAFETY: By the type invariant the node is valid.
        unsafe { (*self.node.as_ptr()).kobj.get() }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let kobj = self.kobj();
        // SAFETY: By the type invariant the kobject was added and one reference is ours. Deleting it
        // waits for readers of its files.
        unsafe {
            bindings::kobject_del(kobj);
            bindings::kobject_put(kobj);
        }
    }
}
