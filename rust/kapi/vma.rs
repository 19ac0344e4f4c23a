// SPDX-License-Identifier: GPL-2.0

//! User mappings of GEM objects: faults and foreign access.
//!
//! A mapping consists of frame numbers without reference counts (`VM_PFNMAP`), inserted on fault.
//! Nothing else of a VMA is touched after `mmap`, so that `mremap`, splitting and fork work by
//! themselves. When the device goes, the DRM core removes all frames; faults then end in `SIGBUS`.
//!
//! C header: [`include/linux/mm.h`](srctree/include/linux/mm.h)

use kernel::{
    bindings,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*, //
};

use super::mappable::{
    Inner,
    Mappable,
    Transfer, //
};

/// Pages that one fault maps at most: the one asked for and those that follow.
const FAULT_AROUND: usize = 32;

/// The operations of mappings of objects that hold a `T`.
pub(super) const fn ops<T: Mappable>() -> bindings::vm_operations_struct {
    let mut ops: bindings::vm_operations_struct = pin_init::zeroed();
    ops.open = Some(bindings::drm_gem_vm_open);
    ops.close = Some(bindings::drm_gem_vm_close);
    ops.fault = Some(fault::<T>);
    ops.access = Some(access::<T>);
    ops
}

/// `drm_gem_object_funcs::mmap`: checks a new mapping and sets its attributes.
///
/// # Safety
///
/// Called by the DRM core for an object made by [`super::gem::Object::<T>::new`] and a VMA that is
/// being set up, with the mmap lock held for writing.
pub(super) unsafe extern "C" fn mmap<T: Mappable>(
    obj: *mut bindings::drm_gem_object,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    // SAFETY: `obj` is embedded in an `Inner<T>` that the caller holds.
    let inner = unsafe { Inner::<T>::from_gem(obj) };
    // SAFETY: The VMA is valid and locked by the caller.
    let flags = unsafe { (*vma).__bindgen_anon_2.vm_flags };
    let private = flags & bindings::VM_SHARED == 0;
    let accessible = flags & (bindings::VM_READ | bindings::VM_WRITE | bindings::VM_EXEC) != 0;
    // A private mapping that may become writable would be copied on write, which frames without
    // reference counts cannot be. The user library reserves addresses with private mappings that
    // allow nothing; those are taken and stay unwritable.
    if private && flags & bindings::VM_MAYWRITE != 0 && accessible {
        return EINVAL.to_errno();
    }
    match inner.data().may_mmap() {
        Ok(caching) => {
            // SAFETY: The VMA is valid and locked by the caller, who is setting it up, so its flags may change.
            unsafe { crate::bindings::rkfd_vma_prepare(vma, caching.raw(), private) };
            0
        }
        Err(e) => e.to_errno(),
    }
}

/// The page of the object that `address` of a mapping shows.
///
/// # Safety
///
/// `vma` is a valid mapping of `obj`, locked at least for reading.
unsafe fn page_index(
    obj: *mut bindings::drm_gem_object,
    vma: *mut bindings::vm_area_struct,
    address: usize,
) -> Option<usize> {
    // SAFETY: Both are valid by the requirements of this function.
    let (start, pgoff, node) = unsafe {
        (
            (*vma).__bindgen_anon_1.__bindgen_anon_1.vm_start,
            (*vma).vm_pgoff,
            (*obj).vma_node.vm_node.start,
        )
    };
    // CAST: `usize` is at most 64 bits wide.
    let first = (pgoff as u64).checked_sub(node)?;
    let first = usize::try_from(first).ok()?;
    first.checked_add(address.checked_sub(start)? >> PAGE_SHIFT)
}

/// `vm_operations_struct::fault`.
///
/// # Safety
///
/// Called by the memory manager for a VMA that [`mmap`] set up.
unsafe extern "C" fn fault<T: Mappable>(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    // SAFETY: The fault, its VMA and the object that the VMA holds are valid during the call.
    let (vma, address, obj) = unsafe {
        let vma = (*vmf).__bindgen_anon_1.vma;
        let obj = (*vma).vm_private_data.cast::<bindings::drm_gem_object>();
        (vma, (*vmf).__bindgen_anon_1.address, obj)
    };
    let mut registered = 0;
    // Frames may only be inserted while the device is registered: the DRM core waits for the end of
    // this section before it removes all frames.
    // SAFETY: The object's device lives as long as the object.
    if !unsafe { bindings::drm_dev_enter((*obj).dev, &mut registered) } {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    }
    // SAFETY: The memory manager holds the VMA lock, and the object holds a `T`.
    let result = unsafe {
        let moves = Inner::<T>::from_gem(obj).data().moving_caching().is_some();
        let answer = if moves {
            crate::bindings::rkfd_fault_reserve(vmf, obj)
        } else {
            0
        };
        if answer != 0 {
            // Without the reservation, and perhaps without the VMA lock.
            answer
        } else {
            let result = insert::<T>(obj, vma, address);
            if moves {
                bindings::dma_resv_unlock((*obj).resv);
            }
            result
        }
    };
    // SAFETY: Entered above.
    unsafe { bindings::drm_dev_exit(registered) };
    result
}

/// Maps the page at `address` and some that follow.
///
/// # Safety
///
/// As [`page_index`], and `obj` is embedded in an `Inner<T>`.
unsafe fn insert<T: Mappable>(
    obj: *mut bindings::drm_gem_object,
    vma: *mut bindings::vm_area_struct,
    address: usize,
) -> bindings::vm_fault_t {
    let sigbus = bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    // SAFETY: By the requirements of this function.
    let (inner, first) = unsafe { (Inner::<T>::from_gem(obj), page_index(obj, vma, address)) };
    let Some(first) = first else {
        return sigbus;
    };
    let Ok(begin) = inner.data().begin_fault() else {
        return sigbus;
    };
    let Ok(pfn) = inner.data().pfn(first) else {
        return sigbus;
    };
    let address = address & !(PAGE_SIZE - 1);
    let caching = inner.data().moving_caching();
    let put = |address, pfn| match caching {
        // SAFETY: The VMA is a locked PFN mapping that is not copied on write, and the address is in it.
        None => unsafe { bindings::vmf_insert_pfn(vma, address, pfn) },
        // SAFETY: The VMA is a locked PFN mapping that is not copied on write, and the address is in it.
        Some(caching) => unsafe {
            crate::bindings::rkfd_fault_insert(vma, address, pfn, caching.raw())
        },
    };
    let result = put(address, pfn);
    if result != bindings::vm_fault_reason_VM_FAULT_NOPAGE {
        return result;
    }
    // SAFETY: By the requirements of this function the VMA is valid and locked.
    let end = unsafe { (*vma).__bindgen_anon_1.__bindgen_anon_1.vm_end };
    let mut inserted = PAGE_SIZE;
    for i in 1..FAULT_AROUND {
        let next = address + i * PAGE_SIZE;
        if next >= end {
            break;
        }
        let Ok(pfn) = inner.data().pfn(first + i) else {
            break;
        };
        // A failure here is no failure of the fault.
        if put(next, pfn) != bindings::vm_fault_reason_VM_FAULT_NOPAGE {
            break;
        }
        inserted += PAGE_SIZE;
    }
    if inner.data().is_revoked_since(begin) {
        // The thread accesses it anew.
        // SAFETY: The VMA is valid and locked by the memory manager, and the range lies in it.
        unsafe { bindings::zap_special_vma_range(vma, address, inserted) };
    }
    result
}

/// `vm_operations_struct::access`: a debugger, or `/proc/PID/mem`, reads or writes.
///
/// # Safety
///
/// Called by the memory manager for a VMA that [`mmap`] set up, with `len` bytes at `buf`.
unsafe extern "C" fn access<T: Mappable>(
    vma: *mut bindings::vm_area_struct,
    address: c_ulong,
    buf: *mut c_void,
    len: c_int,
    write: c_int,
) -> c_int {
    // SAFETY: The VMA is valid and locked, and holds the object.
    let (resv, inner, page, end) = unsafe {
        let obj = (*vma).vm_private_data.cast::<bindings::drm_gem_object>();
        (
            (*obj).resv,
            Inner::<T>::from_gem(obj),
            page_index(obj, vma, address),
            (*vma).__bindgen_anon_1.__bindgen_anon_1.vm_end,
        )
    };
    let (Some(page), Ok(len)) = (page, usize::try_from(len)) else {
        return EFAULT.to_errno();
    };
    let len = len.min(end.saturating_sub(address));
    let offset = (page << PAGE_SHIFT) + address % PAGE_SIZE;
    let transfer = if write != 0 {
        // SAFETY: The caller's buffer has at least `len` bytes.
        Transfer::Write(unsafe { core::slice::from_raw_parts(buf.cast::<u8>(), len) })
    } else {
        // SAFETY: The caller's buffer has at least `len` bytes, and is lent for writing.
        Transfer::Read(unsafe { core::slice::from_raw_parts_mut(buf.cast::<u8>(), len) })
    };
    let moves = inner.data().moving_caching().is_some();
    if moves {
        // The mmap lock comes before.
        // SAFETY: The object is live.
        unsafe { bindings::dma_resv_lock(resv, core::ptr::null_mut()) };
    }
    let result = inner.data().transfer(offset, transfer);
    if moves {
        // SAFETY: Locked above.
        unsafe { bindings::dma_resv_unlock(resv) };
    }
    match result {
        Ok(()) => c_int::try_from(len).unwrap_or(0),
        Err(e) => e.to_errno(),
    }
}
