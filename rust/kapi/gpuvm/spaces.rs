// SPDX-License-Identifier: GPL-2.0

//! From an object to the address spaces that map it. The suite `rkfd_gpuvm` tests it.

use kernel::{
    bindings,
    sync::Mutex, //
};

use super::handle::Handle;
use crate::kapi::{
    gem::Object,
    mappable::Mappable, //
};

/// Tells address spaces apart while they live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpaceKey(usize);

impl<T: Mappable> Object<T> {
    /// Calls `f` for each address space that maps the object. `f` allocates nothing, frees nothing, and takes no lock.
    pub(crate) fn for_each_space(&self, mut f: impl FnMut(SpaceKey)) {
        let obj = self.as_raw();
        // SAFETY: The object is live, its mutex was initialised with it.
        let list: &Mutex<()> = unsafe { Mutex::from_raw(&raw mut (*obj).gpuva.lock) };
        let _guard = list.lock();
        // SAFETY: The mutex protects the list of links, and each one's list of ranges; links of this driver are made in
        // immediate mode, so that all of the list are live.
        unsafe {
            let head = &raw mut (*obj).gpuva.list;
            let mut entry = (*head).next;
            while entry != head {
                let link = kernel::container_of!(entry, bindings::drm_gpuvm_bo, list.entry.gem);
                let ranges = &raw mut (*link).list.gpuva;
                if (*ranges).next != ranges {
                    f(SpaceKey((*link).vm.addr()));
                }
                entry = (*entry).next;
            }
        }
    }
}

impl Handle {
    /// Which one it is.
    pub(crate) fn key(&self) -> SpaceKey {
        SpaceKey(self.as_raw().addr())
    }
}
