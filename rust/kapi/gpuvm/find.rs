// SPDX-License-Identifier: GPL-2.0

//! Which ranges an address space has. The suite `rkfd_gpuvm` tests it.

use core::{
    ops::Range,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    sync::Mutex, //
};

use super::{
    node::Node,
    GpuVm, //
};
use crate::kapi::{
    gem::Object,
    mappable::Mappable, //
};

/// What a range maps.
pub(crate) struct Entry<'a, D> {
    /// Its addresses.
    pub(crate) range: Range<u64>,
    /// Where the first byte lies in the object.
    pub(crate) offset: u64,
    /// The value that came with it.
    pub(crate) data: &'a D,
}

impl<T: Mappable, D: Clone> GpuVm<T, D> {
    /// The first `drm_gpuva` that shares an address with `range`.
    pub(super) fn first_in(&self, range: Range<u64>) -> Option<NonNull<bindings::drm_gpuva>> {
        if range.is_empty() {
            return None;
        }
        let len = range.end - range.start;
        // SAFETY: The address space is live; it does not change while `self` is borrowed.
        NonNull::new(unsafe { bindings::drm_gpuva_find_first(self.vm.as_raw(), range.start, len) })
    }

    /// # Safety
    ///
    /// `va` is in this address space, which does not change for `'a`.
    unsafe fn entry<'a>(va: NonNull<bindings::drm_gpuva>) -> Option<Entry<'a, D>> {
        // SAFETY: By the type invariant the node is live, and by the requirement it stays.
        let (start, len, offset, data) = unsafe {
            let node = va.cast::<Node<D>>().as_ref();
            let va = node.va.get();
            ((*va).va.addr, (*va).va.range, (*va).gem.offset, &node.data)
        };
        Some(Entry {
            range: start..start + len,
            offset,
            data: data.as_ref()?,
        })
    }

    /// The first range that shares an address with `range`.
    pub(crate) fn first_overlap(&self, range: Range<u64>) -> Option<Entry<'_, D>> {
        let va = self.first_in(range)?;
        // SAFETY: Ours, and `self` is borrowed as long as the result lives.
        unsafe { Self::entry(va) }
    }

    /// The range that contains `address`.
    pub(crate) fn containing(&self, address: u64) -> Option<Entry<'_, D>> {
        self.first_overlap(address..address.checked_add(1)?)
    }

    /// The ranges that share an address with `range`, in ascending order.
    pub(crate) fn iter_in(&self, range: Range<u64>) -> impl Iterator<Item = Entry<'_, D>> {
        let mut rest = range;
        core::iter::from_fn(move || {
            let entry = self.first_overlap(rest.clone())?;
            rest.start = entry.range.end;
            Some(entry)
        })
    }

    /// All ranges, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry<'_, D>> {
        self.iter_in(self.bounds.clone())
    }

    /// Calls `f` for each range of this address space that maps `object`, in no order.
    pub(crate) fn for_each_of(&self, object: &Object<T>, mut f: impl FnMut(Entry<'_, D>)) {
        let obj = object.as_raw();
        // SAFETY: The object is live, its mutex was initialised with it.
        let list: &Mutex<()> = unsafe { Mutex::from_raw(&raw mut (*obj).gpuva.lock) };
        let guard = list.lock();
        // SAFETY: Both are live, and the mutex of the list is held.
        let vm_bo = unsafe { bindings::drm_gpuvm_bo_find(self.vm.as_raw(), obj) };
        if vm_bo.is_null() {
            return;
        }
        // SAFETY: A live link; its list is protected by the mutex. All of its members are ranges of this address space.
        unsafe {
            let head = &raw mut (*vm_bo).list.gpuva;
            let mut entry = (*head).next;
            while entry != head {
                let va = kernel::container_of!(entry, bindings::drm_gpuva, gem.entry);
                if let Some(entry) = NonNull::new(va).and_then(|va| Self::entry(va)) {
                    f(entry);
                }
                entry = (*entry).next;
            }
        }
        drop(guard);
        // If this is the last reference, of a `MapReservation` that is gone, the next change frees the link.
        // SAFETY: Found above with a reference; the mutex is not held; immediate mode.
        unsafe { bindings::drm_gpuvm_bo_put_deferred(vm_bo) };
    }
}
