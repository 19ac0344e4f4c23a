// SPDX-License-Identifier: GPL-2.0

//! GPU address spaces: page tables, buffers, and which buffer is mapped where.
//!
//! A [`Vm`] is one address space of one GPU: a page table, a PASID by which hardware names it, and
//! a map of what is mapped. It belongs to an open file of the render node and knows no process. A
//! [`Bo`] is memory that can be mapped into a `Vm`.
//!
//! # When memory may be freed
//!
//! The GPU caches translations. Memory that was mapped may be given to somebody else only when
//! the entries are gone *and* the TLB was invalidated. Code cannot forget the second half:
//! unmapping yields [`Stale`], which does not give its content back before the flush went well.
//! If a flush fails although the device answers, the memory is kept until the device is unbound.
//!
//! # Locks
//!
//! [`Vm::state`] is held during a whole operation, TLB flush included, so that a mapping that was
//! made after an unmapping never meets a translation from before it. Nothing is allocated under
//! it: an operation finds out what it needs, lets go, allocates, and looks again. Order:
//! [`Vm::state`], then that of a mapping's contents, then that of the pages of a process, then the GPU's
//! locks (KIQ and below). [`Vm::withdraw_user`] takes it inside the memory manager, where not even tables
//! are freed: the VRAM allocator allocates under its lock. [`Grants`] is innermost.

use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        Mutex, //
    },
};

use crate::{
    gpu::{
        Gpu,
        Pasid,
        VramBlock, //
    },
    hw::pte::{
        self,
        Place, //
    },
    kapi::log::dev_limited,
};

pub(crate) mod bo;
mod dump;
pub(crate) mod interval;
mod mapping;
pub(crate) mod pt;
pub(crate) mod stale;
mod store;
pub(crate) mod va;

pub(crate) use self::{
    bo::{
        Bo,
        BoArgs,
        BoFlags,
        BoKind,
        BoVmap,
        Grants, //
    },
    mapping::{
        MappingHold,
        MappingInfo, //
    },
    va::SizeRule, //
};

use self::{
    bo::Placed,
    interval::{
        IntervalMap,
        Slot, //
    },
    mapping::Mapping,
    pt::{
        Chain,
        Changed,
        Reserve,
        Tree, //
    },
    stale::Stale,
    store::VramStore, //
};

/// How often an operation looks again after it found that it needs more tables than before.
/// Another thread must have changed the neighbourhood each time.
const MAX_ATTEMPTS: usize = 16;

/// What a [`Vm`] maps.
struct State {
    tree: Tree<VramBlock>,
    ranges: IntervalMap<Arc<Mapping>>,
    /// Where each buffer is mapped, by [`Bo::id`].
    places: RBTree<u64, u64>,
    /// A flush failed: entries were removed that the TLB may still hold.
    flush_owed: bool,
    /// Tables out of the tree that a failed flush left.
    limbo: Chain<VramBlock>,
    /// The file is closed; nothing can be mapped any more.
    closed: bool,
}

impl State {
    /// Where `bo` is mapped.
    fn mapping_of(&self, bo: &Bo) -> Option<(u64, &Arc<Mapping>)> {
        let va = *self.places.get(&bo.id())?;
        let (_, mapping) = self.ranges.containing(va)?;
        Some((va, mapping))
    }

    /// Writes the entries of a whole mapping of `len` bytes at `va`; none where there is no memory.
    ///
    /// # Errors
    ///
    /// Those of [`Tree::map`], of which `EAGAIN` cannot happen if `reserve` covers the need.
    fn write(
        &mut self,
        store: &VramStore<'_>,
        reserve: &mut Reserve<VramBlock>,
        va: u64,
        placed: &Placed,
        len: u64,
    ) -> Result<Changed<VramBlock>> {
        if placed.runs.is_empty() {
            let changed = self.tree.unmap(store, reserve, va, len);
            store.finish();
            changed
        } else {
            self.tree
                .map(store, reserve, va, &placed.runs, placed.attrs)
        }
    }
}

/// One address space of one GPU.
#[pin_data(PinnedDrop)]
pub(crate) struct Vm {
    gpu: Arc<Gpu>,
    page_table_base: u64,
    #[pin]
    state: Mutex<State>,
    // After `state`: the name of the address space outlives its tables.
    pasid: Pasid,
}

impl Vm {
    /// Makes an empty address space.
    ///
    /// # Errors
    ///
    /// `ENODEV`, `EIO` if the GPU is gone or lost; `ENOSPC` if all PASIDs are in use; `ENOMEM`.
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Result<Arc<Self>> {
        let hw = gpu.enter()?;
        let tree = Tree::new(&VramStore::new(gpu, Some(&hw)), gpu.asic().pte)?;
        let page_table_base =
            pte::page_table_base(tree.root().pa(), Place::Vram).map_err(|_| EINVAL)?;
        let state = State {
            tree,
            ranges: IntervalMap::new(),
            places: RBTree::new(),
            flush_owed: false,
            limbo: Chain::new(),
            closed: false,
        };
        Arc::pin_init(
            try_pin_init!(Self {
                gpu: gpu.clone(),
                page_table_base,
                state <- new_mutex!(state, "rkfd_vm"),
                pasid: gpu.pasids().alloc()?,
            }? Error),
            GFP_KERNEL,
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

    /// What MAP_PROCESS takes: the address of the root and its flags.
    pub(crate) fn page_table_base(&self) -> u64 {
        self.page_table_base
    }

    /// Maps the whole of `bo` at `va`. Mapping it again where it is mapped succeeds, and writes entries
    /// that were taken away. When this returns, the GPU can use the mapping.
    ///
    /// Pages of a process should have been found, see [`Bo::find_pages`]. Where there are none, an access
    /// faults, and the watcher is told, in case that they only changed meanwhile.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `va` is not a multiple of 4 KiB, the range leaves the user range or overlaps
    ///   another mapping, `bo` is mapped elsewhere, or it is VRAM of another GPU.
    /// - `ENOMEM`: no memory for page tables.
    /// - `EAGAIN`: others change the neighbourhood all the time.
    /// - `ENODEV`, `EIO`, `ETIMEDOUT`: the GPU is gone, lost, or did not answer.
    pub(crate) fn map(&self, bo: &Arc<Bo>, va: u64) -> Result {
        let range = va::check(va, bo.size())?;
        if let Some(at) = self.place_of(bo) {
            return self.map_again(bo, at, va);
        }
        let hw = self.gpu.enter()?;
        let store = VramStore::new(&self.gpu, Some(&hw));
        // In use first: from here on each change of the pages is told, so that none is missed.
        let user = bo.begin_use();
        let mapping = Mapping::new(user, va, bo.place(&self.gpu, &hw)?)?;
        let slot = Slot::new()?;
        let place = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let mut reserve = Reserve::new();

        for _ in 0..MAX_ATTEMPTS {
            let mut state = self.state.lock();
            if state.closed {
                return Err(ENODEV);
            }
            if let Some(at) = state.places.get(&bo.id()).copied() {
                drop(state);
                return self.map_again(bo, at, va);
            }
            if state.ranges.first_overlap(range.clone()).is_some() {
                return Err(EINVAL);
            }
            let contents = mapping.contents.lock();
            let placed = &contents.placed;
            let need = state.tree.missing(va, &placed.runs);
            if !reserve.covers(need) {
                drop(contents);
                drop(state);
                reserve.fill(&store, self.gpu.asic().pte, need)?;
                continue;
            }
            let owed = state.flush_owed;
            let is_empty = placed.runs.is_empty();
            let written = bo.commit(placed.version, || {
                state.write(&store, &mut reserve, va, placed, bo.size())
            });
            drop(contents);
            let changed = match written {
                Err(e) if e == EAGAIN => {
                    // The pages of the process have changed.
                    drop(state);
                    let now = bo.place(&self.gpu, &hw)?;
                    let old = core::mem::replace(&mut mapping.contents.lock().placed, now);
                    drop(old);
                    continue;
                }
                written => written?,
            };
            hw.hdp_flush();
            state.ranges.insert(slot, range, mapping)?;
            state.places.insert(place.into_node(bo.id(), va));
            // A range that was unmapped without a flush may still be cached.
            if changed.stale || owed {
                if let Err(e) = self.flush(&mut state, changed.retired) {
                    // The TLB may hide the mapping, or know it already: take the entries back, but
                    // keep the memory listed until a flush succeeds.
                    if self.retract(&mut state, &store, va, bo.size()).is_ok() {
                        let place = state.places.remove_node(&bo.id());
                        let mapping = state.ranges.remove(va);
                        drop(state);
                        drop((place, mapping));
                    }
                    return Err(e);
                }
            }
            drop(state);
            if is_empty {
                bo.tell_changed();
            }
            return Ok(());
        }
        Err(EAGAIN)
    }

    /// [`Self::map`] of a buffer that is mapped at `at`.
    fn map_again(&self, bo: &Bo, at: u64, va: u64) -> Result {
        if at != va {
            return Err(EINVAL);
        }
        self.refresh(bo)
    }

    /// Brings the entries of `bo` up to date, if it is mapped and its pages changed, or its entries were
    /// taken away.
    ///
    /// # Errors
    ///
    /// After each of them the entries may name what the buffer was.
    ///
    /// - `ENOMEM`: no memory for page tables.
    /// - `EAGAIN`: others change the neighbourhood, or the pages, all the time.
    /// - `EINVAL`, `EIO`: what the DMA layer says of the pages.
    /// - `ENODEV`, `EIO`, `ETIMEDOUT`: the GPU is gone, lost, or did not answer.
    pub(crate) fn refresh(&self, bo: &Bo) -> Result {
        if self.is_up_to_date(bo) {
            return Ok(());
        }
        let hw = self.gpu.enter()?;
        let store = VramStore::new(&self.gpu, Some(&hw));
        let mut placed = bo.place(&self.gpu, &hw)?;
        let mut reserve = Reserve::new();

        for _ in 0..MAX_ATTEMPTS {
            let mut state = self.state.lock();
            let Some((va, mapping)) = state.mapping_of(bo) else {
                return Ok(());
            };
            let mapping = mapping.clone();
            if mapping.contents.lock().is_of(placed.version) {
                return Ok(());
            }
            let need = state.tree.missing(va, &placed.runs);
            if !reserve.covers(need) {
                drop(state);
                reserve.fill(&store, self.gpu.asic().pte, need)?;
                continue;
            }
            let written = bo.commit(placed.version, || {
                state.write(&store, &mut reserve, va, &placed, bo.size())
            });
            let changed = match written {
                Err(e) if e == EAGAIN => {
                    drop(state);
                    placed = bo.place(&self.gpu, &hw)?;
                    continue;
                }
                written => written?,
            };
            hw.hdp_flush();
            {
                let mut contents = mapping.contents.lock();
                core::mem::swap(&mut contents.placed, &mut placed);
                contents.cleared = false;
            }
            let flushed = if changed.stale || state.flush_owed {
                self.flush(&mut state, changed.retired)
            } else {
                Ok(())
            };
            if flushed.is_err() {
                // What fails here was reported; nothing is lost, for all is kept.
                let _ = self.retract(&mut state, &store, va, bo.size());
            }
            drop(state);
            if flushed.is_err() {
                // The device answers, but not to this: it may still use the old addresses.
                stale::bury(&self.gpu, placed);
            }
            return flushed;
        }
        Err(EAGAIN)
    }

    /// Takes the entries of `bo` away, if it is mapped: an access faults. The mapping stays, and
    /// [`Self::map`] or [`Self::refresh`] write its entries again.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` and others: the GPU did not confirm.
    pub(crate) fn withdraw(&self, bo: &Bo) -> Result {
        let hw = self.gpu.enter().ok();
        let store = VramStore::new(&self.gpu, hw.as_deref());
        let mut state = self.state.lock();
        let Some((va, mapping)) = state.mapping_of(bo) else {
            return Ok(());
        };
        mapping.contents.lock().cleared = true;
        self.clear(&mut state, &store, va, bo.size())
    }

    /// Takes the entries of all memory of processes away, as [`Self::withdraw`]. Neither allocates nor
    /// frees, so that the memory manager may wait for it.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` and others: the GPU did not confirm.
    pub(crate) fn withdraw_user(&self) -> Result {
        let hw = self.gpu.enter().ok();
        let store = VramStore::new(&self.gpu, hw.as_deref());
        let mut state = self.state.lock();
        let State {
            tree,
            ranges,
            flush_owed,
            limbo,
            ..
        } = &mut *state;
        for (range, mapping) in ranges.iter() {
            if mapping.bo().kind() != BoKind::Userptr {
                continue;
            }
            mapping.contents.lock().cleared = true;
            // Whole mappings cut no large page, so no table is needed.
            let len = range.end - range.start;
            let changed = tree.unmap(&store, &mut Reserve::new(), range.start, len)?;
            // Tables go with the next flush that may free them.
            *flush_owed |= changed.stale;
            limbo.append(changed.retired);
        }
        store.finish();
        // If the firmware does not answer now, it is not asked again, but registers are written.
        self.gpu
            .flush_tlb(self.pasid())
            .or_else(|_| self.gpu.flush_tlb(self.pasid()))
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
        mapping.contents.lock().cleared = true;
        self.clear(&mut state, &store, va, bo.size())?;
        let place = state.places.remove_node(&bo.id());
        let mapping = state.ranges.remove(va);
        drop(state);
        // Outside the lock: this may be the last reference to the buffer.
        drop((place, mapping));
        Ok(())
    }

    /// Takes the entries of the mapping at `va` away after a flush failed.
    fn retract(&self, state: &mut State, store: &VramStore<'_>, va: u64, len: u64) -> Result {
        if let Some((_, mapping)) = state.ranges.containing(va) {
            mapping.contents.lock().cleared = true;
        }
        self.clear(state, store, va, len)
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

    /// Invalidates the TLB; then frees `retired` and what earlier failures left.
    fn flush(&self, state: &mut State, retired: Chain<VramBlock>) -> Result {
        let limbo = core::mem::replace(&mut state.limbo, Chain::new());
        match Stale::new((retired, limbo)).flush(&self.gpu, self.pasid()) {
            Ok(freed) => {
                state.flush_owed = false;
                drop(freed);
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
                let (retired, limbo) = stale.keep();
                state.limbo.append(retired);
                state.limbo.append(limbo);
                state.flush_owed = true;
                Err(e)
            }
        }
    }

    /// Whether `bo` is mapped.
    pub(crate) fn is_mapped(&self, bo: &Bo) -> bool {
        self.state.lock().places.get(&bo.id()).is_some()
    }

    fn place_of(&self, bo: &Bo) -> Option<u64> {
        self.state.lock().places.get(&bo.id()).copied()
    }

    /// Whether nothing is to be done for the entries of `bo`: it is not mapped, or they are right.
    fn is_up_to_date(&self, bo: &Bo) -> bool {
        let version = bo.version();
        self.state
            .lock()
            .mapping_of(bo)
            .is_none_or(|(_, mapping)| mapping.contents.lock().is_of(version))
    }

    /// The mapping that contains `va`.
    #[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "seen by tests"))]
    pub(crate) fn lookup(&self, va: u64) -> Option<MappingInfo> {
        let state = self.state.lock();
        let (_, mapping) = state.ranges.containing(va)?;
        Some(mapping.info())
    }

    /// Keeps the mapping at `va` from being unmapped while the result lives.
    ///
    /// # Errors
    ///
    /// `EINVAL` if nothing is mapped there or `rule` is not met.
    pub(crate) fn hold(&self, va: u64, rule: SizeRule) -> Result<MappingHold> {
        let state = self.state.lock();
        let (range, mapping) = state.ranges.containing(va).ok_or(EINVAL)?;
        if !rule.admits(range, va) {
            return Err(EINVAL);
        }
        Ok(mapping.hold())
    }

    /// Number of mappings, and of page tables.
    #[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "seen by tests"))]
    pub(crate) fn usage(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.ranges.len(), state.tree.total_tables())
    }

    /// Ends the address space, in whatever state it and the device are: unmaps everything and
    /// refuses new mappings. Mappings that queues hold lose their entries, too; their memory stays
    /// until the queues are gone. Later calls do nothing.
    pub(crate) fn close(&self) {
        let hw = self.gpu.enter().ok();
        let store = VramStore::new(&self.gpu, hw.as_deref());
        let mut state = self.state.lock();
        if core::mem::replace(&mut state.closed, true) {
            return;
        }
        let cleared = self.clear(&mut state, &store, 0, pt::VA_END);
        let places = core::mem::replace(&mut state.places, RBTree::new());
        let ranges = core::mem::replace(&mut state.ranges, IntervalMap::new());
        let limbo = core::mem::replace(&mut state.limbo, Chain::new());
        drop(state);
        drop(places);
        match cleared {
            Ok(()) => drop((ranges, limbo)),
            // The device answers, but not to this: it may still use the memory.
            Err(_) => stale::bury(&self.gpu, (ranges, limbo)),
        }
    }
}

#[pinned_drop]
impl PinnedDrop for Vm {
    fn drop(self: Pin<&mut Self>) {
        self.close();
    }
}
