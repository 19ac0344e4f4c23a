// SPDX-License-Identifier: GPL-2.0

//! What a change of ranges needs, allocated before it. The suite `rkfd_gpuvm` tests it.

use core::ptr::NonNull;

use kernel::{
    bindings,
    prelude::*,
    types::Opaque, //
};

use super::{
    handle::Handle,
    node::{
        Chain,
        Node, //
    }, //
};
use crate::kapi::{
    gem::Object,
    mappable::Mappable, //
};

/// Ranges that one change adds at most: the new one, and what it leaves of others before and behind it.
const MOST_ADDED: usize = 3;

/// What one change needs: memory for ranges, and the link between address space and object.
pub(crate) struct MapReservation<T: Mappable, D: Clone> {
    pub(super) nodes: Chain<D>,
    pub(super) link: Option<Link<T>>,
    // After the others.
    pub(super) vm: Handle,
}

/// That an object is known to an address space.
///
/// # Invariants
///
/// `vm_bo` links `object` to a `drm_gpuvm`, is in the object's list, and this value owns one of its references.
pub(super) struct Link<T: Mappable> {
    pub(super) vm_bo: NonNull<bindings::drm_gpuvm_bo>,
    pub(super) object: Object<T>,
}

// SAFETY: Its parts may be released by any thread; what it names has locks of its own.
unsafe impl<T: Mappable> Send for Link<T> {}

impl<T: Mappable> Drop for Link<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; the address space is in immediate mode.
        unsafe { bindings::drm_gpuvm_bo_put_deferred(self.vm_bo.as_ptr()) };
    }
}

impl<T: Mappable, D: Clone> Drop for MapReservation<T, D> {
    fn drop(&mut self) {
        if self.link.take().is_some() {
            self.vm.clean_up();
        }
    }
}

impl<T: Mappable, D: Clone> MapReservation<T, D> {
    /// For unmapping.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn to_unmap(vm: &Handle) -> Result<Self> {
        let mut nodes = Chain(None);
        for _ in 0..MOST_ADDED {
            let node = Node {
                va: Opaque::zeroed(),
                data: None,
                next: None,
            };
            nodes.push(KBox::new(node, GFP_KERNEL_ACCOUNT)?);
        }
        Ok(Self {
            nodes,
            link: None,
            vm: vm.clone(),
        })
    }

    /// For mapping parts of `object`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn to_map(vm: &Handle, object: &Object<T>) -> Result<Self> {
        let mut room = Self::to_unmap(vm)?;
        // SAFETY: A `Handle` owns a reference of its address space, an `Object` one of the object.
        let new = unsafe { bindings::drm_gpuvm_bo_create(vm.as_raw(), object.as_raw()) };
        if new.is_null() {
            return Err(ENOMEM);
        }
        // SAFETY: Just made, in no list; the address space is in immediate mode, and the object's mutex is not held.
        let vm_bo = unsafe { bindings::drm_gpuvm_bo_obtain_prealloc(new) };
        room.link = Some(Link {
            // INVARIANT: In the object's list now, the one made above or an older one, with a reference for us.
            // SAFETY: Not null.
            vm_bo: unsafe { NonNull::new_unchecked(vm_bo) },
            object: object.clone(),
        });
        Ok(room)
    }
}
