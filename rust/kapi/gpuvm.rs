// SPDX-License-Identifier: GPL-2.0

//! Which part of which object is mapped where in a GPU's address space: `drm_gpuvm`.
//!
//! [`kernel::drm::gpuvm`] takes objects of the kernel crate's own types only, whose callbacks are fixed there, and can
//! neither look a range up nor list them. [`GpuVm`] holds ranges of objects of this driver. A range carries a value
//! that stays with each part when it is split.
//!
//! Nothing is allocated while ranges change: [`MapReservation`] is what one change needs, made before. Nothing is freed
//! either: what a change took out is in [`Removed`], to be dropped when no lock is held and the hardware does not
//! reach the memory any more. The value of a range must keep what the hardware reaches; the object's own reference may
//! be given up earlier by another thread.
//!
//! # Locks
//!
//! The ranges are protected by `&mut GpuVm`. The objects' lists of mappings have a mutex each
//! (`DRM_GPUVM_IMMEDIATE_MODE`), which is innermost, and nothing is allocated under it.
//!
//! C header: [`include/drm/drm_gpuvm.h`](srctree/include/drm/drm_gpuvm.h)

use core::{
    marker::PhantomData,
    ops::Range,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    sync::Mutex,
    types::Opaque, //
};

use self::{
    node::{
        Chain,
        Node, //
    },
    reservation::Link, //
};
use super::{
    drm_file::DrmDevice,
    gem::Object,
    mappable::Mappable, //
};

mod find;
mod handle;
mod node;
mod reservation;
mod spaces;

pub(crate) use self::{
    find::Entry,
    handle::Handle,
    reservation::MapReservation,
    spaces::SpaceKey, //
};

/// The ranges of an address space, parts of objects that hold a `T`, each with a `D`.
///
/// # Invariants
///
/// Every `drm_gpuva` in `vm` is the first field of a `Node<D>` from a `KBox`, and maps an object that is an
/// [`Object<T>`].
pub(crate) struct GpuVm<T: Mappable, D: Clone> {
    vm: Handle,
    bounds: Range<u64>,
    _types: PhantomData<(Object<T>, KBox<Node<D>>)>,
}

/// Ranges that a change took out. Dropping frees them and may release objects.
#[must_use = "to be dropped where objects may be released"]
pub(crate) struct Removed<D> {
    nodes: Chain<D>,
    /// What was left of the room.
    _unused: Chain<D>,
    // After the others.
    vm: Handle,
}

impl<D> Removed<D> {
    /// The values of the ranges. A range that was cut counts, too.
    #[cfg_attr(not(rkfd_kunit), expect(dead_code, reason = "seen by tests"))]
    pub(crate) fn values(&self) -> impl Iterator<Item = &D> {
        let mut next = self.nodes.0.as_deref();
        core::iter::from_fn(move || {
            let node = next?;
            next = node.next.as_deref();
            Some(node.data.as_ref())
        })
        .flatten()
    }
}

impl<D> Drop for Removed<D> {
    fn drop(&mut self) {
        while self.nodes.pop().is_some() {}
        self.vm.clean_up();
    }
}

/// What the steps of one change share.
struct Change<T: Mappable, D: Clone> {
    room: Chain<D>,
    link: Option<Link<T>>,
    data: Option<D>,
    removed: Chain<D>,
}

impl<T: Mappable, D: Clone> GpuVm<T, D> {
    const OPS: bindings::drm_gpuvm_ops = {
        let mut ops: bindings::drm_gpuvm_ops = pin_init::zeroed();
        ops.vm_free = Some(Self::free);
        ops.vm_bo_alloc = Some(Self::alloc_link);
        ops.sm_step_map = Some(Self::step_map);
        ops.sm_step_unmap = Some(Self::step_unmap);
        ops.sm_step_remap = Some(Self::step_remap);
        ops
    };

    /// Makes an address space of the addresses in `bounds` without ranges.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `bounds` is empty, `ENOMEM`.
    pub(crate) fn new(dev: &DrmDevice, name: &'static CStr, bounds: Range<u64>) -> Result<Self> {
        if bounds.is_empty() {
            return Err(EINVAL);
        }
        let memory = KBox::new(Opaque::<bindings::drm_gpuvm>::zeroed(), GFP_KERNEL_ACCOUNT)?;
        // SAFETY: The device is live.
        let common = unsafe { bindings::drm_gpuvm_resv_object_alloc(dev.as_raw()) };
        if common.is_null() {
            return Err(ENOMEM);
        }
        let vm = KBox::into_raw(memory).cast::<bindings::drm_gpuvm>();
        // SAFETY: `vm` is zeroed memory that stays where it is until `free`; the other arguments are valid, the
        // range does not wrap, and none of it is reserved.
        unsafe {
            bindings::drm_gpuvm_init(
                vm,
                name.as_char_ptr(),
                bindings::drm_gpuvm_flags_DRM_GPUVM_IMMEDIATE_MODE,
                dev.as_raw(),
                common,
                bounds.start,
                bounds.end - bounds.start,
                0,
                0,
                &Self::OPS,
            );
        }
        // SAFETY: The address space has a reference of its own.
        unsafe { bindings::drm_gem_object_put(common) };
        Ok(Self {
            // SAFETY: From a `KBox`, and initialised above with one reference, which is ours.
            vm: unsafe { Handle::from_raw(NonNull::new_unchecked(vm)) },
            // INVARIANT: No `drm_gpuva` yet.
            bounds,
            _types: PhantomData,
        })
    }

    /// Memory for the link between address space and object, charged to the caller's control group. Without an
    /// operation of its own C frees it by `kfree`.
    ///
    /// # Safety
    ///
    /// None; called by C.
    unsafe extern "C" fn alloc_link() -> *mut bindings::drm_gpuvm_bo {
        let link = KBox::new(
            Opaque::<bindings::drm_gpuvm_bo>::zeroed(),
            GFP_KERNEL_ACCOUNT,
        );
        link.map_or(core::ptr::null_mut(), |link| KBox::into_raw(link).cast())
    }

    /// Its name.
    pub(crate) fn handle(&self) -> &Handle {
        &self.vm
    }

    /// Called when the last reference is gone.
    ///
    /// # Safety
    ///
    /// Called by C for an address space made by [`Self::new`].
    unsafe extern "C" fn free(vm: *mut bindings::drm_gpuvm) {
        // SAFETY: From a `KBox` in `new`; `Opaque` is transparent.
        drop(unsafe { KBox::from_raw(vm.cast::<Opaque<bindings::drm_gpuvm>>()) });
    }

    /// Maps the bytes from `offset` on of the object that `room` was made for to `range`. What the range mapped
    /// before is taken out; of ranges that it cuts, the rest stays with its data.
    ///
    /// # Errors
    ///
    /// `EINVAL`, and nothing has changed: the range is empty, leaves the address space, the part leaves the object, or
    /// `room` was made for another address space, or to unmap.
    pub(crate) fn map(
        &mut self,
        mut room: MapReservation<T, D>,
        range: Range<u64>,
        offset: u64,
        data: D,
    ) -> Result<Removed<D>> {
        self.check(&room, &range)?;
        let len = range.end - range.start;
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        let size = room.link.as_ref().ok_or(EINVAL)?.object.size();
        if end > u64::try_from(size)? {
            return Err(EINVAL);
        }
        let link = room.link.take().ok_or(EINVAL)?;
        let request = bindings::drm_gpuvm_map_req {
            map: bindings::drm_gpuva_op_map {
                va: bindings::drm_gpuva_op_map__bindgen_ty_1 {
                    addr: range.start,
                    range: len,
                },
                gem: bindings::drm_gpuva_op_map__bindgen_ty_2 {
                    offset,
                    obj: link.object.as_raw(),
                },
            },
        };
        self.change(room, Some((link, data)), |vm, change| {
            // SAFETY: The address space is live and ours alone; `change` is what the steps expect.
            to_result(unsafe { bindings::drm_gpuvm_sm_map(vm, change, &request) })
        })
    }

    /// Takes out what is mapped in `range`; of ranges that it cuts, the rest stays with its data.
    ///
    /// # Errors
    ///
    /// `EINVAL`, and nothing has changed: the range is empty, leaves the address space, or `room` was made for
    /// another one.
    pub(crate) fn unmap(
        &mut self,
        room: MapReservation<T, D>,
        range: Range<u64>,
    ) -> Result<Removed<D>> {
        self.check(&room, &range)?;
        self.change(room, None, |vm, change| {
            let len = range.end - range.start;
            // SAFETY: The address space is live and ours alone; `change` is what the steps expect.
            to_result(unsafe { bindings::drm_gpuvm_sm_unmap(vm, change, range.start, len) })
        })
    }

    /// Takes the range out that contains `address`, as a whole. Needs no room.
    pub(crate) fn remove(&mut self, address: u64) -> Removed<D> {
        let end = address.checked_add(1);
        let va = end.and_then(|end| self.first_in(address..end));
        let mut removed = self.nothing();
        if let Some(va) = va {
            // SAFETY: A range of ours, hence from the tree.
            unsafe {
                bindings::drm_gpuva_remove(va.as_ptr());
                removed.nodes.push(Self::take_out(va.as_ptr()));
            }
        }
        removed
    }

    fn nothing(&self) -> Removed<D> {
        Removed {
            nodes: Chain(None),
            _unused: Chain(None),
            vm: self.vm.clone(),
        }
    }

    /// Takes everything out. Needs no room.
    pub(crate) fn clear(&mut self) -> Removed<D> {
        let mut removed = self.nothing();
        while let Some(va) = self.first_in(self.bounds.clone()) {
            // SAFETY: A range of ours, hence from the tree.
            unsafe {
                bindings::drm_gpuva_remove(va.as_ptr());
                removed.nodes.push(Self::take_out(va.as_ptr()));
            }
        }
        removed
    }

    fn check(&self, room: &MapReservation<T, D>, range: &Range<u64>) -> Result {
        let inside = self.bounds.start <= range.start && range.end <= self.bounds.end;
        if range.is_empty() || !inside || room.vm.as_raw() != self.vm.as_raw() {
            return Err(EINVAL);
        }
        Ok(())
    }

    fn change(
        &mut self,
        mut room: MapReservation<T, D>,
        new: Option<(Link<T>, D)>,
        run: impl FnOnce(*mut bindings::drm_gpuvm, *mut c_void) -> Result,
    ) -> Result<Removed<D>> {
        let (link, data) = new.unzip();
        let mut change = Change {
            room: core::mem::replace(&mut room.nodes, Chain(None)),
            link,
            data,
            removed: Chain(None),
        };
        let done = run(self.vm.as_raw(), (&raw mut change).cast());
        // The link of a range that was made is not the last one; another is freed with `Removed`.
        drop(change.link);
        let removed = Removed {
            nodes: change.removed,
            _unused: change.room,
            vm: self.vm.clone(),
        };
        done.map(|()| removed)
    }

    /// Unlinks a range that left the tree from its object.
    ///
    /// # Safety
    ///
    /// `va` was in the tree of a `GpuVm<T, D>`, is not any more, and is linked.
    unsafe fn take_out(va: *mut bindings::drm_gpuva) -> KBox<Node<D>> {
        // SAFETY: By the requirements of this function; immediate mode, and the object's mutex is not held.
        unsafe { bindings::drm_gpuva_unlink_defer(va) };
        // SAFETY: By the type invariant of `GpuVm`; C has forgotten it.
        unsafe { KBox::from_raw(va.cast::<Node<D>>()) }
    }

    /// Puts a range that is in the tree into the list of its object.
    ///
    /// # Safety
    ///
    /// `va` is in the tree and not linked; `vm_bo` links this address space to the object of `va`, and is live.
    unsafe fn link(va: *mut bindings::drm_gpuva, vm_bo: *mut bindings::drm_gpuvm_bo) {
        // SAFETY: `vm_bo` keeps the object, whose mutex was initialised with it.
        let list: &Mutex<()> = unsafe { Mutex::from_raw(&raw mut (*(*vm_bo).obj).gpuva.lock) };
        let _guard = list.lock();
        // SAFETY: By the requirements of this function, and the mutex of the list is held.
        unsafe { bindings::drm_gpuva_link(va, vm_bo) };
    }

    /// A node of the room, with its data, for C. `None` if the room is used up.
    fn take_node(change: &mut Change<T, D>, data: Option<D>) -> Option<*mut bindings::drm_gpuva> {
        let mut node = change.room.pop()?;
        node.data = Some(data?);
        Some(KBox::into_raw(node).cast())
    }

    /// # Safety
    ///
    /// Called by C within [`Self::map`], with its `Change`.
    unsafe extern "C" fn step_map(op: *mut bindings::drm_gpuva_op, change: *mut c_void) -> c_int {
        // SAFETY: By the requirement of this function; C keeps no other reference to it meanwhile.
        let change = unsafe { &mut *change.cast::<Change<T, D>>() };
        let data = change.data.take();
        let Some(vm_bo) = change.link.as_ref().map(|link| link.vm_bo.as_ptr()) else {
            return EINVAL.to_errno();
        };
        let Some(va) = Self::take_node(change, data) else {
            return EAGAIN.to_errno();
        };
        // SAFETY: `op` is a map operation for the address space that `vm_bo` belongs to; the steps before made its
        // range free; `va` is zeroed and stays where it is.
        unsafe {
            // INVARIANT: From a `KBox`, with data; the object is that of `link`, an `Object<T>`.
            bindings::drm_gpuva_map((*vm_bo).vm, va, &(*op).__bindgen_anon_1.map);
            Self::link(va, vm_bo);
        }
        0
    }

    /// # Safety
    ///
    /// Called by C within [`Self::map`] or [`Self::unmap`], with their `Change`.
    unsafe extern "C" fn step_unmap(op: *mut bindings::drm_gpuva_op, change: *mut c_void) -> c_int {
        // SAFETY: By the requirement of this function; C keeps no other reference to it meanwhile.
        let change = unsafe { &mut *change.cast::<Change<T, D>>() };
        // SAFETY: `op` is an unmap operation that names a range of this address space.
        let node = unsafe {
            let unmap = &(*op).__bindgen_anon_1.unmap;
            bindings::drm_gpuva_unmap(unmap);
            Self::take_out(unmap.va)
        };
        change.removed.push(node);
        0
    }

    /// # Safety
    ///
    /// As [`Self::step_unmap`].
    unsafe extern "C" fn step_remap(op: *mut bindings::drm_gpuva_op, change: *mut c_void) -> c_int {
        // SAFETY: By the requirement of this function; C keeps no other reference to it meanwhile.
        let change = unsafe { &mut *change.cast::<Change<T, D>>() };
        // SAFETY: `op` is a remap operation; its range is one of this address space, in a node with data.
        let (remap, old, data) = unsafe {
            let remap = &(*op).__bindgen_anon_1.remap;
            let old = (*remap.unmap).va;
            (remap, old, (*old.cast::<Node<D>>()).data.clone())
        };
        let mut parts = [core::ptr::null_mut(); 2];
        for (part, wanted) in parts.iter_mut().zip([remap.prev, remap.next]) {
            if !wanted.is_null() {
                // The room is enough for one part before and one behind the range of a change, which are all there
                // can be: a range that is cut on both sides is the only one.
                match Self::take_node(change, data.clone()) {
                    Some(va) => *part = va,
                    None => return EAGAIN.to_errno(),
                }
            }
        }
        let [prev, next] = parts;
        // SAFETY: The nodes are zeroed, stay where they are, and are there where the operation wants them.
        unsafe {
            // INVARIANT: From a `KBox`, with data; the object is that of the old range.
            bindings::drm_gpuva_remap(prev, next, remap);
            let vm_bo = (*old).vm_bo;
            for va in [prev, next] {
                if !va.is_null() {
                    // The old range, which is still linked, keeps `vm_bo`.
                    Self::link(va, vm_bo);
                }
            }
            change.removed.push(Self::take_out(old));
        }
        0
    }
}

impl<T: Mappable, D: Clone> Drop for GpuVm<T, D> {
    fn drop(&mut self) {
        // Frees the links, too; that of a `MapReservation` goes with it, and then the address space of C.
        drop(self.clear());
    }
}
