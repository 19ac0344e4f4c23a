// SPDX-License-Identifier: GPL-2.0

//! Ranges whose entries are not those of buffers: what reserves one writes its entries itself, part by part.
//!
//! Buffers and such ranges exclude each other, but for one that is all of the address space: there each buffer has the
//! addresses that it is mapped at, with or without entries, and what no buffer has is the other's. The unit is the
//! *granule*: what a range has of 2 MiB, from a multiple of 2 MiB on. Entries of a granule come and go together, so that no
//! leaf of the page table has to be cut, which would take memory, and no fragment reaches out of what goes. A buffer may
//! cut a leaf when it is mapped: the caller has made the table for that.

use core::ops::Range;

use kernel::{
    prelude::*,
    rbtree::RBTreeNode,
    sync::Arc, //
};

use super::{
    bo::{
        self,
        push_run, //
    },
    mapping::Mapping,
    pt::{
        Chain,
        Missing,
        Reserve,
        Run,
        HUGE,
        PAGE, //
    },
    store::{
        TableBlock,
        VramStore, //
    },
    va,
    State,
    Vm, //
};
use crate::{
    gpu::Hw,
    hw::pte::{
        Access,
        Aperture,
        Coherence,
        Memory,
        PageAttrs, //
    },
    kapi::{
        dma_map::DmaMap,
        gpuvm::GpuVm,
        log::dev_limited, //
    },
};

/// Bytes of a granule.
pub(crate) const GRANULE: u64 = HUGE;

/// Page tables that were made beforehand, and those that were missing, see [`Vm::show`].
pub(crate) struct Tables {
    reserve: Reserve<TableBlock>,
    missing: Missing,
}

impl Tables {
    /// None.
    pub(crate) const fn new() -> Self {
        Self {
            reserve: Reserve::new(),
            missing: Missing::new(),
        }
    }
}

/// Memory that a part of a granule shows.
pub(crate) struct Part {
    va: u64,
    runs: KVVec<Run>,
    attrs: PageAttrs,
    /// Of system memory. That VRAM stays is the caller's concern.
    _dma: Option<DmaMap>,
}

impl Part {
    /// What a device has mapped, system memory, for addresses from `va` on.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(vm: &Vm, va: u64, dma: DmaMap, access: Access) -> Result<Self> {
        let mut runs = KVVec::new();
        for run in dma.runs() {
            push_run(&mut runs, run.addr, run.len)?;
        }
        Ok(Self {
            va,
            runs,
            attrs: PageAttrs {
                aperture: Aperture::System { snooped: true },
                access,
                mtype: vm
                    .gpu()
                    .asic()
                    .mtype
                    .mtype(Memory::System, Coherence::Default),
                fragment: 0,
            },
            _dma: Some(dma),
        })
    }

    /// VRAM of the GPU in parts, each given by its first byte and its size, for addresses from `va` on. It has no other use before
    /// the part was hidden.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn vram(
        vm: &Vm,
        va: u64,
        parts: impl Iterator<Item = (u64, u64)>,
        access: Access,
    ) -> Result<Self> {
        let mut runs = KVVec::new();
        for (offset, len) in parts {
            push_run(&mut runs, vm.gpu().vram().pa(offset), len)?;
        }
        Ok(Self {
            va,
            runs,
            attrs: PageAttrs {
                aperture: Aperture::Vram,
                access,
                mtype: vm
                    .gpu()
                    .asic()
                    .mtype
                    .mtype(Memory::Local, Coherence::Default),
                fragment: 0,
            },
            _dma: None,
        })
    }

    fn len(&self) -> u64 {
        self.runs.iter().map(|run| run.len).sum()
    }

    fn is_vram(&self) -> bool {
        self.attrs.aperture == Aperture::Vram
    }

    fn range(&self) -> Range<u64> {
        self.va..self.va + self.len()
    }

    /// Calls `f` with address and runs of what lies in `range`, piece by piece. Allocates nothing.
    ///
    /// # Errors
    ///
    /// That of `f`, which ends the walk.
    fn for_each_in(&self, range: &Range<u64>, mut f: impl FnMut(u64, &[Run]) -> Result) -> Result {
        let whole = self.range();
        if range.start <= whole.start && whole.end <= range.end {
            return f(self.va, self.runs.as_slice());
        }
        let mut at = self.va;
        for run in &self.runs {
            let (start, end) = (at.max(range.start), (at + run.len).min(range.end));
            if start < end {
                let addr = run.addr + (start - at);
                let len = end - start;
                f(start, &[Run { addr, len }])?;
            }
            at += run.len;
        }
        Ok(())
    }
}

/// Which ranges buffers have.
type Buffers = GpuVm<bo::Memory, Arc<Mapping>>;

/// The parts of `range` that no buffer has, in ascending order.
fn gaps(buffers: &Buffers, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
    let mut at = range.start;
    core::iter::from_fn(move || {
        while at < range.end {
            let (end, next) = match buffers.first_overlap(at..range.end) {
                Some(entry) => (entry.range.start.max(at), entry.range.end),
                None => (range.end, range.end),
            };
            let gap = at..end;
            at = next;
            if !gap.is_empty() {
                return Some(gap);
            }
        }
        None
    })
}

/// What a granule shows. The memory can be reached by the device while this lives.
pub(crate) struct Shown {
    parts: KVVec<Part>,
}

impl Shown {
    /// Parts in ascending order.
    pub(crate) fn new(parts: KVVec<Part>) -> Self {
        Self { parts }
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.parts.iter().map(Part::len).sum()
    }

    /// Bytes of VRAM.
    pub(crate) fn vram_len(&self) -> u64 {
        let parts = self.parts.iter();
        parts.filter(|part| part.is_vram()).map(Part::len).sum()
    }

    /// Whether it is one leaf of 2 MiB.
    pub(crate) fn is_huge(&self) -> bool {
        match self.parts.as_slice() {
            [part] => match part.runs.as_slice() {
                [run] => run.len == HUGE && run.addr % HUGE == 0 && part.va % HUGE == 0,
                _ => false,
            },
            _ => false,
        }
    }

    /// GPU addresses of each part, in ascending order, and whether they show VRAM.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (Range<u64>, bool)> + '_ {
        self.parts.iter().map(|part| (part.range(), part.is_vram()))
    }

    /// Whether the entries allow an access to `va`.
    pub(crate) fn allows(&self, va: u64, write: bool) -> bool {
        let mut parts = self.parts.iter();
        let part = parts.find(|part| part.va <= va && va - part.va < part.len());
        part.is_some_and(|part| !write || part.attrs.access.write)
    }

    /// Checks that the parts lie in `granule`, one behind the other.
    fn check(&self, granule: &Range<u64>) -> Result {
        let mut end = granule.start;
        for part in &self.parts {
            if part.va < end || part.va % PAGE != 0 {
                return Err(EIO);
            }
            end = part.va.checked_add(part.len()).ok_or(EIO)?;
        }
        if end > granule.end {
            return Err(EIO);
        }
        Ok(())
    }
}

impl State {
    /// Whether `range` meets one that was reserved.
    pub(super) fn meets_reserved(&self, range: &Range<u64>) -> bool {
        let below = match self.reserved.cursor_lower_bound(&range.start) {
            Some(cursor) if *cursor.current().0 < range.end => return true,
            Some(cursor) => cursor.peek_prev().map(|(_, end)| *end),
            None => self
                .reserved
                .cursor_back()
                .map(|cursor| *cursor.current().1),
        };
        below.is_some_and(|end| end > range.start)
    }

    /// Counts the tables that [`Vm::show`] needs.
    fn missing_for_shown(&self, missing: &mut Missing, shown: &Shown) -> Result {
        for part in &shown.parts {
            for gap in gaps(&self.ranges, part.range()) {
                part.for_each_in(&gap, |va, runs| {
                    self.tree.count_missing(missing, va, runs);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// Writes the entries of what is shown, but for what buffers have; `retired` gets tables that left the tree, also if it
    /// fails half way.
    fn write_shown(
        &mut self,
        store: &VramStore<'_>,
        tables: &mut Reserve<TableBlock>,
        shown: &Shown,
        retired: &mut Chain<TableBlock>,
    ) -> Result {
        let Self {
            tree,
            ranges,
            flush_owed,
            ..
        } = self;
        for part in &shown.parts {
            for gap in gaps(ranges, part.range()) {
                part.for_each_in(&gap, |va, runs| {
                    let changed = tree.map(store, tables, va, runs, part.attrs)?;
                    *flush_owed |= changed.stale;
                    retired.append(changed.retired);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }
}

impl Vm {
    /// Takes `len` bytes at `va` for a caller that writes the entries itself, with [`Self::show`].
    ///
    /// # Errors
    ///
    /// - `EINVAL`: not whole pages of the user range.
    /// - `EADDRINUSE`: a buffer is mapped there, or it is reserved, alone or with all else.
    /// - `ENODEV`: the address space is closed.
    /// - `ENOMEM`.
    pub(crate) fn reserve(&self, va: u64, len: u64) -> Result<Range<u64>> {
        let range = va::check(va, len)?;
        let node = RBTreeNode::new(range.start, range.end, GFP_KERNEL_ACCOUNT)?;
        let mut state = self.state.lock();
        if state.closed {
            return Err(ENODEV);
        }
        if state.rest_reserved
            || state.ranges.first_overlap(range.clone()).is_some()
            || state.meets_reserved(&range)
        {
            return Err(EADDRINUSE);
        }
        let old = state.reserved.insert(node);
        drop(state);
        drop(old);
        Ok(range)
    }

    /// Takes a [`Self::reserve`] back. Nothing is shown there any more.
    pub(crate) fn release(&self, va: u64) {
        let node = self.state.lock().reserved.remove_node(&va);
        drop(node);
    }

    /// Takes all that no buffer has, now or later, for a caller that writes the entries itself, with [`Self::show`].
    /// Where a buffer is mapped, its entries replace what is shown; where it is unmapped there is nothing until it is
    /// shown again.
    ///
    /// # Errors
    ///
    /// - `EADDRINUSE`: something is reserved already.
    /// - `ENODEV`: the address space is closed.
    pub(crate) fn reserve_rest(&self) -> Result {
        let mut state = self.state.lock();
        if state.closed {
            return Err(ENODEV);
        }
        if state.rest_reserved || !state.reserved.is_empty() {
            return Err(EADDRINUSE);
        }
        state.rest_reserved = true;
        Ok(())
    }

    /// Takes [`Self::reserve_rest`] back. Nothing is shown any more.
    pub(crate) fn release_rest(&self) {
        self.state.lock().rest_reserved = false;
    }

    /// Whether a buffer has something of `range`, with or without entries.
    pub(crate) fn has_buffers(&self, range: Range<u64>) -> bool {
        self.state.lock().ranges.first_overlap(range).is_some()
    }

    /// Whether the entry of the page at `va` allows an access.
    pub(crate) fn allows(&self, va: u64, write: bool, execute: bool) -> bool {
        let leaf = self.state.lock().tree.lookup(va);
        leaf.is_some_and(|leaf| {
            let access = leaf.attrs.access;
            access.read && (!write || access.write) && (!execute || access.execute)
        })
    }

    /// Writes the entries of a granule, or what a reserved range has of it; those that it has are replaced where there
    /// are new ones, and stay elsewhere. What buffers have is left alone. Allocates nothing; may be called under locks
    /// that are taken inside the memory manager. When it succeeds the GPU can use what is shown.
    ///
    /// # Errors
    ///
    /// - `EAGAIN`: `tables` are too few. [`Self::fill`] makes what was missing, without such locks.
    /// - `EIO`: the parts are not those of the granule.
    /// - `ENODEV`: the address space is closed.
    /// - `ETIMEDOUT` and others: the GPU did not confirm that it dropped what it knew. The granule shows nothing then, and a
    ///   GPU that does not confirm that either is given up.
    pub(crate) fn show(
        &self,
        hw: &Hw,
        tables: &mut Tables,
        granule: &Range<u64>,
        shown: &Shown,
    ) -> Result {
        shown.check(granule)?;
        let store = VramStore::new(&self.gpu, Some(hw));
        let mut state = self.state.lock();
        if state.closed {
            return Err(ENODEV);
        }
        tables.missing = Missing::new();
        state.missing_for_shown(&mut tables.missing, shown)?;
        if !tables.reserve.covers(tables.missing.need()) {
            return Err(EAGAIN);
        }
        let mut retired = Chain::new();
        let mut result = state.write_shown(&store, &mut tables.reserve, shown, &mut retired);
        store.finish();
        hw.hdp_flush();
        // To be freed by `reap`, after the flush.
        state.pending_free.append(retired);
        if result.is_ok() && state.flush_owed {
            result = self.flush_now(&mut state);
        }
        let Err(error) = result else { return Ok(()) };
        // The caller drops what was shown before, too, and nothing holds that memory.
        let cleared = self.clear_granule(&mut state, &store, granule);
        store.finish();
        let confirmed = cleared.and(self.confirm(&mut state));
        drop(state);
        if let Err(error) = confirmed {
            self.give_up_unconfirmed(error);
        }
        Err(error)
    }

    /// Makes the tables that were missing.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn fill(&self, hw: &Hw, tables: &mut Tables) -> Result {
        let store = VramStore::new(&self.gpu, Some(hw));
        let need = tables.missing.need();
        tables.reserve.fill(&store, self.gpu.asic().pte, need)
    }

    /// Has the GPU look for entries again that it has found missing, also where it remembers that.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` and others: the GPU did not confirm.
    pub(crate) fn forget_missing(&self) -> Result {
        self.flush_now(&mut self.state.lock())
    }

    /// Takes the entries of granules away. When this returns, the GPU reaches nothing through them: one that does not
    /// confirm it is given up. Neither allocates nor frees, so that the memory manager may wait for it.
    pub(crate) fn hide(&self, granules: impl Iterator<Item = Range<u64>>) {
        let hw = self.gpu.enter().ok();
        let store = VramStore::new(&self.gpu, hw.as_deref());
        let mut state = self.state.lock();
        let mut result = Ok(());
        for granule in granules {
            result = result.and(self.clear_granule(&mut state, &store, &granule));
        }
        store.finish();
        result = result.and(self.confirm(&mut state));
        drop(state);
        if let Err(error) = result {
            self.give_up_unconfirmed(error);
        }
    }

    /// Has the GPU drop what it knew, if it has to. Tries twice: firmware that does not answer the first time is not asked
    /// again, but registers are written.
    fn confirm(&self, state: &mut State) -> Result {
        if !state.flush_owed {
            return Ok(());
        }
        self.flush_now(state).or_else(|_| self.flush_now(state))
    }

    /// The GPU may still use memory of a mirror that nothing holds.
    fn give_up_unconfirmed(&self, error: Error) {
        // A device that is gone or lost reaches no memory.
        if self.gpu.is_gone() || self.gpu.is_lost() {
            return;
        }
        dev_limited!(
            dev_err,
            self.gpu.dev(),
            "PASID {}: the GPU does not confirm that it dropped the translations of memory that goes: {:?}\n",
            self.pasid(),
            error
        );
        // The memory manager hands the pages to other users when this returns.
        self.gpu
            .give_up("memory of a mirror goes that the GPU may still use");
    }

    /// Invalidates the TLB without freeing anything.
    fn flush_now(&self, state: &mut State) -> Result {
        self.gpu.flush_tlb(self.pasid())?;
        state.flush_owed = false;
        Ok(())
    }

    /// Removes the entries of a granule, but for those of buffers; the flush is owed.
    fn clear_granule(
        &self,
        state: &mut State,
        store: &VramStore<'_>,
        granule: &Range<u64>,
    ) -> Result {
        let State {
            tree,
            ranges,
            flush_owed,
            pending_free,
            ..
        } = state;
        for gap in gaps(ranges, granule.clone()) {
            // No leaf reaches out of it, so no table is needed: buffers have cut what they met.
            let len = gap.end - gap.start;
            let changed = tree.unmap(store, &mut Reserve::new(), gap.start, len)?;
            *flush_owed |= changed.stale;
            pending_free.append(changed.retired);
        }
        Ok(())
    }
}
