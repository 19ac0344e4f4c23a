// SPDX-License-Identifier: GPL-2.0

//! GPU address spaces: page tables, buffers, and which buffer is mapped where.
//!
//! A [`Vm`] is one address space of one GPU: a page table, a PASID by which hardware names it, and
//! a map of what is mapped. It belongs to an open file of the render node and knows no process. A
//! [`Bo`] is memory that can be mapped into a `Vm`.
//!
//! # When memory may be freed
//!
//! The GPU caches translations. Memory that was mapped may be given to another owner only when
//! the entries are gone *and* the TLB was invalidated. Code cannot forget the second half:
//! unmapping yields [`Stale`], which does not give its content back before the flush went well.
//! If a flush fails although the device answers, the memory is kept until the device is unbound.
//!
//! # Locks
//!
//! [`Vm::state`] is held during a whole operation, TLB flush included, so that a mapping that was
//! made after an unmapping never meets a translation from before it. Nothing is allocated under
//! it: an operation finds out what it needs, releases the lock, allocates, and looks again. Order:
//! [`Vm::state`], then that of the pages of a process, then those of the lists of mappings that `drm_gpuvm` keeps in the
//! objects, then that of a mapping's contents, then the GPU's locks (KIQ and below).
//! Memory that moves is mapped with the reservation of its object held, which comes before all of these; see [`evict`] and
//! [`restore`] for what comes before it, and for [`Vm::eviction`].
//! [`Vm::zap_userptr`] and [`Vm::maps_user`] take it inside the memory manager, so no tables are freed under it either:
//! the VRAM allocator allocates under its lock. [`Vm::reap`] frees them.

use core::ops::Range;

use kernel::{
    new_mutex,
    new_spinlock,
    new_work,
    prelude::*,
    rbtree::RBTree,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc,
        Mutex,
        SpinLock, //
    },
    workqueue::Work, //
};

use crate::{
    gpu::{
        Gpu,
        Pasid, //
    },
    hw::pte::{
        self,
        Aperture, //
    },
    kapi::{
        drm_file::DrmDevice,
        gem::Object,
        gpuvm::{
            GpuVm,
            Handle,
            SpaceKey, //
        },
        log::dev_limited,
        trace::errno,
        workqueue::OwnedQueue, //
    },
    trace, //
};

pub(crate) mod account;
pub(crate) mod bind;
pub(crate) mod bo;
pub(crate) mod coverage;
mod credit;
mod dump;
pub(crate) mod evict;
pub(crate) mod file;
mod map;
mod mapping;
pub(crate) mod mirrored;
pub(crate) mod pt;
mod refresh;
mod restore;
mod rewrite;
pub(crate) mod room;
mod rooms;
mod sort;
pub(crate) mod stale;
mod standing;
mod store;
pub(crate) mod va;
mod vacate;
mod victims;

pub(crate) use self::{
    account::UserAccount,
    bo::{
        Bo,
        BoArgs,
        BoFlags,
        BoKind,
        BoVmap,
        DoorbellWindow,
        SharedMemory,
        UserMemory, //
    },
    mapping::{
        MappingHold,
        MappingInfo, //
    },
    standing::{
        MoveMonitor,
        Moved,
        VmQueues, //
    },
    va::SizeRule, //
};

use self::{
    bo::Memory,
    mapping::Mapping,
    pt::{
        Chain,
        Reserve,
        Store,
        Tree, //
    },
    stale::Stale,
    standing::Eviction,
    store::{
        TableBlock,
        VramStore, //
    },
};

/// How often an operation looks again after it found that it needs more tables than before.
/// Another thread must have changed the neighbourhood each time.
const MAX_ATTEMPTS: usize = 16;

/// What a [`Vm`] maps.
struct State {
    tree: Tree<TableBlock>,
    ranges: GpuVm<Memory, Arc<Mapping>>,
    /// Ends of ranges whose entries are not those of buffers, by start.
    reserved: RBTree<u64, u64>,
    /// So are those of all else that no buffer has, see [`Vm::reserve_rest`].
    rest_reserved: bool,
    /// A flush failed: entries were removed that the TLB may still hold.
    flush_owed: bool,
    /// Tables out of the tree: to be freed once no flush is owed, without the lock.
    pending_free: Chain<TableBlock>,
    /// The file is closed; nothing can be mapped any more.
    closed: bool,
}

impl State {
    /// Where `bo` is mapped.
    fn mapping_of(&self, bo: &Bo) -> Option<(u64, Arc<Mapping>)> {
        let mut found = None;
        self.ranges.for_each_of(bo.object(), |entry| {
            // Another buffer may be of the same memory.
            if core::ptr::eq(entry.data.bo(), bo) {
                found = Some((entry.range.start, entry.data.clone()));
            }
        });
        found
    }

    /// Whether `bo` is mapped at `wanted`; false where it is to be.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: it is mapped elsewhere, or `wanted` overlaps another mapping.
    /// - `ENODEV`: nothing can be mapped any more.
    fn is_target(&self, bo: &Bo, wanted: &Range<u64>) -> Result<bool> {
        match self.mapping_of(bo) {
            Some((va, _)) if va != wanted.start => Err(EINVAL),
            Some(_) => Ok(true),
            None if self.closed => Err(ENODEV),
            None if self.ranges.first_overlap(wanted.clone()).is_some()
                || self.meets_reserved(wanted) =>
            {
                Err(EINVAL)
            }
            None => Ok(false),
        }
    }
}

/// Which interface changes an address space. Only one does, so that neither meets what the other left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Interface {
    /// `/dev/kfd`: whole buffers, at one address each.
    Kfd = 1,
    /// The render node's own calls.
    Native = 2,
}

/// One address space of one GPU.
#[pin_data(PinnedDrop)]
pub(crate) struct Vm {
    gpu: Arc<Gpu>,
    page_table_base: u64,
    /// The name of [`State::ranges`].
    ranges: Handle,
    /// The [`Interface`] that changes it; 0 for none yet.
    interface: Atomic<u32>,
    #[pin]
    state: Mutex<State>,
    /// Whether its queues are stopped because memory moves.
    #[pin]
    eviction: Mutex<Eviction>,
    /// Memory of it may not be where it belongs. Set and cleared under [`Self::eviction`] or [`evict::Residency::turn`]; read
    /// without where VRAM is freed, for the former is held while queues stop, and the scheduler frees VRAM, too.
    displaced: Atomic<bool>,
    /// Some of what is displaced could not be charged to a control group, see [`Vm::bring_home`].
    owed: Atomic<bool>,
    /// Ends that.
    #[pin]
    restore: Work<Self>,
    /// Where it runs, from the claim to the end.
    #[pin]
    restorer: SpinLock<Option<OwnedQueue>>,
    /// It is listed in [`evict::Residency`], where what makes room looks.
    joined: Atomic<bool>,
    // After `state`: the name of the address space outlives its tables.
    pasid: Pasid,
}

impl Vm {
    /// Makes an empty address space, for files of `dev`.
    ///
    /// # Errors
    ///
    /// `ENODEV`, `EIO` if the GPU is gone or lost; `ENOSPC` if all PASIDs are in use; `ENOMEM`.
    pub(crate) fn new(gpu: &Arc<Gpu>, dev: &DrmDevice) -> Result<Arc<Self>> {
        let hw = gpu.enter()?;
        let tree = Tree::new(&VramStore::new(gpu, Some(&hw)), gpu.asic().pte)?;
        let page_table_base =
            pte::page_table_base(VramStore::pa(tree.root()), Aperture::Vram).map_err(|_| EINVAL)?;
        Self::prepare(gpu, dev)?;
        let ranges = GpuVm::new(dev, c"rkfd", va::USER_START..va::USER_END)?;
        let handle = ranges.handle().clone();
        let state = State {
            tree,
            ranges,
            reserved: RBTree::new(),
            rest_reserved: false,
            flush_owed: false,
            pending_free: Chain::new(),
            closed: false,
        };
        Arc::pin_init(
            try_pin_init!(Self {
                gpu: gpu.clone(),
                page_table_base,
                ranges: handle,
                interface: Atomic::new(0),
                state <- new_mutex!(state, "rkfd_vm"),
                eviction <- new_mutex!(Eviction::new(), "rkfd_vm_eviction"),
                displaced: Atomic::new(false),
                owed: Atomic::new(false),
                restore <- new_work!("Vm::restore"),
                restorer <- new_spinlock!(None, "rkfd_vm_restorer"),
                joined: Atomic::new(false),
                pasid: gpu.pasids().alloc()?,
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The GPU.
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// The number by which hardware names the address space; never 0.
    pub(crate) fn pasid(&self) -> u16 {
        self.pasid.get()
    }

    /// Which one it is.
    fn key(&self) -> SpaceKey {
        self.ranges.key()
    }

    /// Leaves the address space to one interface, for good. From here on its memory may be evicted.
    ///
    /// # Errors
    ///
    /// `EBUSY`: it is left to the other one. `ENOMEM`.
    pub(crate) fn claim(self: &Arc<Self>, interface: Interface) -> Result {
        // CAST: The discriminant of a fieldless enum.
        let wanted = interface as u32;
        match self.interface.cmpxchg(0, wanted, Full) {
            Ok(_) => self.join(),
            // What the first claim did, unless that failed.
            Err(owner) if owner == wanted => self.join(),
            Err(_) => Err(EBUSY),
        }
    }

    /// What MAP_PROCESS takes: the address of the root and its flags.
    pub(crate) fn page_table_base(&self) -> u64 {
        self.page_table_base
    }

    /// Takes the entries of all memory of processes away, as [`Self::zap`] does. Neither allocates nor
    /// frees, so that the memory manager may wait for it.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` and others: the GPU did not confirm.
    pub(crate) fn zap_userptr(&self) -> Result {
        let hw = self.gpu.enter().ok();
        let store = VramStore::new(&self.gpu, hw.as_deref());
        let mut state = self.state.lock();
        let State {
            tree,
            ranges,
            flush_owed,
            pending_free,
            ..
        } = &mut *state;
        for entry in ranges.iter() {
            if entry.data.bo().kind() != BoKind::Userptr {
                continue;
            }
            entry.data.set_cleared();
            // Whole mappings cut no large page, so no table is needed.
            let len = entry.range.end - entry.range.start;
            let changed = tree.unmap(&store, &mut Reserve::new(), entry.range.start, len)?;
            // Tables go with the next flush that may free them.
            *flush_owed |= changed.stale;
            pending_free.append(changed.retired);
        }
        store.finish();
        // If the firmware does not answer now, it is not asked again, but registers are written.
        self.gpu
            .flush_tlb(self.pasid())
            .or_else(|_| self.gpu.flush_tlb(self.pasid()))
    }

    /// Whether memory that a process has at addresses of `range` is mapped, with or without entries. Entries are written
    /// only while the pages stay: once this says no for pages that change, none will name what they were. While a flush is
    /// owed, translations of what was mapped may be cached. Neither allocates nor frees, so that the memory manager may
    /// wait for it.
    ///
    /// Looks at each mapping.
    pub(crate) fn maps_user(&self, range: &Range<u64>) -> bool {
        let state = self.state.lock();
        let mut all = state.ranges.iter();
        state.flush_owed
            || all.any(|entry| {
                let len = entry.range.end - entry.range.start;
                entry.data.is_over(entry.offset, len, range)
            })
    }

    /// Unmaps `bo`. When this returns, no wave can reach its memory through this address space.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `bo` is not mapped.
    /// - `EBUSY`: a queue uses the mapping.
    /// - `ETIMEDOUT` and others: the GPU did not confirm. The mapping stays listed, although the
    ///   GPU finds no new translation, and the call can be repeated.
    ///
    /// After the device is gone, unmapping succeeds.
    pub(crate) fn unmap(&self, bo: &Bo) -> Result {
        let hw = self.gpu.enter().ok();
        let store = VramStore::new(&self.gpu, hw.as_deref());
        let mut state = self.state.lock();
        let (va, mapping) = state.mapping_of(bo).ok_or(EINVAL)?;
        if mapping.is_held() {
            return Err(EBUSY);
        }
        // Should the flush fail, the mapping stays listed without them.
        mapping.set_cleared();
        let cleared = self.clear(&mut state, &store, va, bo.size());
        let gpu_id = self.gpu.id();
        trace::vm_unmap(gpu_id, self.pasid(), va, bo.size(), errno(&cleared));
        cleared?;
        let removed = state.ranges.remove(va);
        drop(state);
        // Outside the lock: this may be the last reference to the buffer.
        drop(removed);
        self.reap();
        Ok(())
    }

    /// Removes the entries of a range and everything that may be cached of them.
    fn clear(&self, state: &mut State, store: &VramStore<'_>, va: u64, len: u64) -> Result {
        // Whole mappings cut no large page, so no table is needed.
        let changed = state.tree.unmap(store, &mut Reserve::new(), va, len)?;
        store.finish();
        if changed.stale || state.flush_owed {
            self.flush(state, changed.retired)?;
        }
        Ok(())
    }

    /// Invalidates the TLB. From then on `retired` and what earlier failures left can be freed, by [`Self::reap`]: not
    /// here, since the lock is taken inside the memory manager and the VRAM allocator allocates under its own.
    fn flush(&self, state: &mut State, retired: Chain<TableBlock>) -> Result {
        let pending_free = core::mem::replace(&mut state.pending_free, Chain::new());
        match Stale::new((retired, pending_free)).flush(&self.gpu, self.pasid()) {
            Ok((retired, pending_free)) => {
                state.flush_owed = false;
                state.pending_free.append(retired);
                state.pending_free.append(pending_free);
                Ok(())
            }
            Err((e, stale)) => {
                dev_limited!(
                    dev_err,
                    self.gpu.dev(),
                    "PASID {}: the TLB flush failed ({:?}); memory is kept\n",
                    self.pasid(),
                    e
                );
                let (retired, pending_free) = stale.keep();
                state.pending_free.append(retired);
                state.pending_free.append(pending_free);
                state.flush_owed = true;
                Err(e)
            }
        }
    }

    /// Frees tables that left the tree, if no flush is owed. Not under locks that are taken inside the memory manager.
    pub(crate) fn reap(&self) {
        let mut state = self.state.lock();
        if state.flush_owed {
            return;
        }
        let free = core::mem::replace(&mut state.pending_free, Chain::new());
        drop(state);
        drop(free);
    }

    /// In how many ranges `object` is mapped.
    pub(crate) fn count_ranges(&self, object: &Object<Memory>) -> u64 {
        let state = self.state.lock();
        let mut count = 0;
        state.ranges.for_each_of(object, |_| count += 1);
        count
    }

    /// Whether `bo` is mapped.
    pub(crate) fn is_mapped(&self, bo: &Bo) -> bool {
        self.state.lock().mapping_of(bo).is_some()
    }

    /// The mapping that contains `va`.
    #[cfg_attr(not(rkfd_kunit), expect(dead_code, reason = "seen by tests"))]
    pub(crate) fn lookup(&self, va: u64) -> Option<MappingInfo> {
        let state = self.state.lock();
        Some(state.ranges.containing(va)?.data.info())
    }

    /// Keeps the mapping at `va` from being unmapped while the result lives.
    ///
    /// # Errors
    ///
    /// `EINVAL` if nothing is mapped there or `rule` is not met.
    pub(crate) fn hold(&self, va: u64, rule: SizeRule) -> Result<MappingHold> {
        let state = self.state.lock();
        let entry = state.ranges.containing(va).ok_or(EINVAL)?;
        if !rule.admits(entry.range, va) {
            return Err(EINVAL);
        }
        Ok(entry.data.hold())
    }

    /// Number of mappings, and of page tables.
    #[cfg_attr(not(rkfd_kunit), expect(dead_code, reason = "seen by tests"))]
    pub(crate) fn usage(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.ranges.iter().count(), state.tree.total_tables())
    }

    /// Ends the address space, in whatever state it and the device are: unmaps everything and
    /// refuses new mappings. Mappings that queues hold lose their entries, too; their memory stays
    /// until the queues are gone. Later calls do nothing.
    pub(crate) fn close(&self) {
        self.leave();
        let hw = self.gpu.enter().ok();
        let store = VramStore::new(&self.gpu, hw.as_deref());
        let mut state = self.state.lock();
        if core::mem::replace(&mut state.closed, true) {
            return;
        }
        let cleared = self.clear(&mut state, &store, 0, pt::VA_END);
        let removed = state.ranges.clear();
        let pending_free = core::mem::replace(&mut state.pending_free, Chain::new());
        drop(state);
        // A reset waits for the access to end, and changes of memory of a process, whose end is awaited below, for the reset.
        drop(hw);
        match cleared {
            Ok(()) => drop((removed, pending_free)),
            // The device answers, but not to this: it may still use the memory.
            Err(_) => stale::keep_until_unbind(&self.gpu, (removed, pending_free)),
        }
    }
}

#[pinned_drop]
impl PinnedDrop for Vm {
    fn drop(self: Pin<&mut Self>) {
        self.close();
    }
}
