// SPDX-License-Identifier: GPL-2.0

//! Lists of ranges that are mapped and unmapped together: all of them, or none.
//!
//! A range maps any whole pages of a buffer; a buffer may be mapped in any number of places. What a range of the list
//! covers is replaced, and of older ranges that it cuts the rest stays. No leaf of the page table reaches over the
//! boundary of a range: the entries of a range can be changed without a table for its neighbours.
//!
//! Everything that may fail for want of memory is done before the first entry is written. Ranges of one list do not
//! overlap, so their order means nothing, and those that map are written first: no table that they need leaves the tree
//! on account of those that unmap.
//!
//! Memory of a process is mapped if its pages are what they were when the list was made ready. Where they have changed, the
//! range is listed without entries, as [`Vm::refresh`] leaves it where no memory is, and the watcher is notified.
//!
//! What is left to fail is a GPU that does not confirm that it dropped translations. Then the ranges of the list are
//! unmapped, and what they showed before is kept until the device is unbound.

use core::ops::Range;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    bo::{
        Backing,
        Bo,
        Memory, //
    },
    mapping::Mapping,
    pt::{
        Chain,
        Changed,
        Missing,
        Reserve, //
    },
    sort::sort_by_key,
    stale,
    store::{
        TableBlock,
        VramStore, //
    },
    va,
    State,
    Vm,
    MAX_ATTEMPTS, //
};
use crate::{
    gpu::Hw,
    kapi::{
        exec::{
            with_locked,
            Locking,
            Wait, //
        },
        gpuvm::{
            MapReservation,
            Removed, //
        }, //
    },
    trace, //
};

/// A range of a list, and what becomes of it.
pub(crate) struct Bind {
    /// GPU addresses, whole pages.
    range: Range<u64>,
    /// Which buffer of the list's, and from which byte on; `None` unmaps.
    part: Option<Part>,
    /// Where the caller has it in the list.
    index: u32,
}

#[derive(Clone, Copy)]
struct Part {
    source: usize,
    offset: u64,
}

/// Why a list was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BindError {
    /// The reason.
    pub(crate) error: Error,
    /// The range of the caller's list that is at fault, where one is.
    pub(crate) index: Option<u32>,
}

impl From<Error> for BindError {
    fn from(error: Error) -> Self {
        Self { error, index: None }
    }
}

impl Bind {
    /// Unmaps what is mapped in `len` bytes at `va`.
    ///
    /// # Errors
    ///
    /// Those of [`va::check`].
    pub(crate) fn unmap(index: u32, va: u64, len: u64) -> Result<Self> {
        Ok(Self {
            range: va::check(va, len)?,
            part: None,
            index,
        })
    }

    /// Maps `len` bytes from byte `offset` on of buffer `source` of the list at `va`; `bo` is that buffer.
    ///
    /// # Errors
    ///
    /// Those of [`va::check`]; `EINVAL`: `offset` is not a multiple of 4 KiB, or the part leaves the buffer.
    pub(crate) fn map(
        index: u32,
        va: u64,
        len: u64,
        source: usize,
        bo: &Bo,
        offset: u64,
    ) -> Result<Self> {
        let range = va::check(va, len)?;
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if offset % super::pt::PAGE != 0 || end > bo.size() {
            return Err(EINVAL);
        }
        Ok(Self {
            range,
            part: Some(Part { source, offset }),
            index,
        })
    }

    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn refuse(&self, error: Error) -> BindError {
        BindError {
            error,
            index: Some(self.index),
        }
    }
}

/// What one range needs to be listed.
struct Ready {
    room: MapReservation<Memory, Arc<Mapping>>,
    /// `None` unmaps.
    mapping: Option<Arc<Mapping>>,
}

/// Where the buffers of a list lie.
type Backings = KVVec<Arc<Backing>>;

impl Ready {
    /// Whether the range is to be listed without entries.
    fn lacks_pages(&self) -> bool {
        self.mapping
            .as_ref()
            .is_some_and(|mapping| mapping.is_cleared())
    }
}

impl State {
    /// Counts the tables that the list needs at most.
    fn missing_for(&self, list: &[Bind], backings: &Backings) -> Result<Missing> {
        let mut missing = Missing::new();
        for bind in list {
            let start = bind.range.start;
            match &bind.part {
                Some(part) => {
                    let backing = backings.get(part.source).ok_or(EINVAL)?;
                    if backing.is_of_user() {
                        // Its pages may have changed when the entries are written.
                        missing.add(self.tree.missing_for_unmap(start, bind.len()));
                    }
                    if !backing.covers(part.offset, bind.len()) {
                        continue;
                    }
                    backing.for_each_part(part.offset, bind.len(), |at, runs| {
                        self.tree.count_missing(&mut missing, start + at, runs);
                        Ok(())
                    })?;
                }
                None => missing.add(self.tree.missing_for_unmap(start, bind.len())),
            }
        }
        Ok(missing)
    }

    /// Refuses a list that would change what a queue uses, or what is not a buffer's.
    fn check_unused(&self, list: &[Bind]) -> Result<(), BindError> {
        for bind in list {
            if self.meets_reserved(&bind.range) {
                return Err(bind.refuse(EADDRINUSE));
            }
            if self
                .ranges
                .iter_in(bind.range.clone())
                .any(|entry| entry.data.is_held())
            {
                return Err(bind.refuse(EBUSY));
            }
        }
        Ok(())
    }

    /// Writes the entries of the whole list. Of `ready`, notes which ranges have none, because pages have changed.
    ///
    /// # Errors
    ///
    /// Those of the page table for arguments that [`Bind`] and [`Backing`] exclude. Some entries are written then.
    fn write_list(
        &mut self,
        store: &VramStore<'_>,
        reserve: &mut Reserve<TableBlock>,
        list: &[Bind],
        sources: &[Arc<Bo>],
        backings: &Backings,
        ready: &[Option<Ready>],
    ) -> Result<Changed<TableBlock>> {
        let tree = &mut self.tree;
        let mut all = Changed::new();
        let mut add = |changed: Changed<TableBlock>| {
            all.stale |= changed.stale;
            all.retired.append(changed.retired);
        };
        for (bind, ready) in list.iter().zip(ready) {
            let Some(part) = &bind.part else { continue };
            let backing = backings.get(part.source).ok_or(EINVAL)?;
            let bo = sources.get(part.source).ok_or(EINVAL)?;
            // One buffer at a time: each has a lock of its own.
            let written = if !backing.covers(part.offset, bind.len()) {
                Err(EAGAIN)
            } else {
                bo.commit(backing.version, || {
                    backing.for_each_part(part.offset, bind.len(), |at, runs| {
                        let va = bind.range.start + at;
                        add(tree.map(store, reserve, va, runs, backing.attrs)?);
                        Ok(())
                    })
                })
            };
            match written {
                Err(error) if error == EAGAIN && backing.is_of_user() => {
                    let mapping = ready.as_ref().and_then(|ready| ready.mapping.as_ref());
                    mapping.ok_or(EINVAL)?.set_cleared();
                }
                written => written?,
            }
        }
        for (bind, ready) in list.iter().zip(ready) {
            if bind.part.is_none() || ready.as_ref().is_some_and(Ready::lacks_pages) {
                add(tree.unmap(store, reserve, bind.range.start, bind.len())?);
            }
        }
        store.finish();
        Ok(all)
    }

    /// Lists the ranges; returns the number of a buffer that lacks pages, if one does. What they replace is added to
    /// `removed`, which has room for one more each.
    fn list_ranges(
        &mut self,
        list: &[Bind],
        ready: &mut KVVec<Option<Ready>>,
        removed: &mut KVVec<Removed<Arc<Mapping>>>,
    ) -> Result<Option<usize>> {
        let mut lacks = None;
        for (bind, ready) in list.iter().zip(ready.iter_mut()) {
            let ready = ready.take().ok_or(EINVAL)?;
            if ready.lacks_pages() {
                lacks = bind.part.map(|part| part.source);
            }
            let Ready { room, mapping } = ready;
            let range = bind.range.clone();
            let old = match (mapping, &bind.part) {
                (Some(mapping), Some(part)) => {
                    self.ranges.map(room, range, part.offset, mapping)?
                }
                _ => self.ranges.unmap(room, range)?,
            };
            removed.push_within_capacity(old).map_err(|_| ENOMEM)?;
        }
        Ok(lacks)
    }
}

impl Vm {
    /// Maps and unmaps the ranges of `list`, which name buffers of `sources`: all of them, or none. When this returns,
    /// the GPU can use what is mapped, and no wave can reach what is not any more. Sorts the list.
    ///
    /// Bounded by the length of the list; other operations on the address space wait meanwhile.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: ranges of the list overlap; a buffer is VRAM of another GPU.
    /// - `EBUSY`: a queue uses what would be replaced or unmapped.
    /// - `EADDRINUSE`: a range meets one of [`Self::reserve`].
    /// - `ENOMEM`: no memory for page tables or to note the ranges.
    /// - `EAGAIN`: others change the neighbourhood all the time.
    /// - `ENODEV`, `EIO`: the GPU is gone or lost, or the file is closed.
    /// - `ETIMEDOUT`: the GPU did not confirm the change. Nothing is mapped in the ranges of the list then.
    pub(crate) fn bind(
        self: &Arc<Self>,
        sources: &[Arc<Bo>],
        list: &mut [Bind],
    ) -> Result<(), BindError> {
        sort_by_key(list, |bind| bind.range.start);
        for pair in list.windows(2) {
            if let [first, second] = pair {
                if first.range.end > second.range.start {
                    let later = if first.index > second.index {
                        first
                    } else {
                        second
                    };
                    return Err(later.refuse(EINVAL));
                }
            }
        }
        let mut removed = KVVec::new();
        // Memory does not move before its ranges are listed.
        let room = u32::try_from(sources.len()).unwrap_or(0);
        let bound = with_locked(
            Wait::Uninterruptible,
            room,
            |locking: &mut Locking<'_, Memory>| {
                for bo in sources {
                    if bo.object().movable().is_some() {
                        locking.lock(bo.object())?;
                    }
                }
                Ok(())
            },
            |_| -> Result<Option<usize>, BindError> {
                let lacks = self.bind_locked(sources, list, &mut removed);
                self.trace_binds(list, lacks.as_ref().err());
                let lacks = lacks?;
                self.note_displaced(sources.iter());
                Ok(lacks)
            },
        )?;
        // One owner has all memory of processes here.
        if let Ok(Some(bo)) = bound.map(|lacks| lacks.and_then(|source| sources.get(source))) {
            bo.tell_missing();
        }
        // Without access to the device, for which a reset waits: memory of a process is not given back before changes of
        // it that are under way, which may wait for the reset.
        drop(removed);
        bound.map(|_| ())
    }

    /// Records what became of each range of a list.
    fn trace_binds(&self, list: &[Bind], failure: Option<&BindError>) {
        if !trace::vm_map_enabled() && !trace::vm_unmap_enabled() {
            return;
        }
        let (gpu_id, pasid) = (self.gpu.id(), self.pasid());
        let result = failure.map_or(0, |failure| failure.error.to_errno());
        for bind in list {
            let record = match bind.part {
                Some(_) => trace::vm_map,
                None => trace::vm_unmap,
            };
            record(gpu_id, pasid, bind.range.start, bind.len(), result);
        }
    }

    /// The rest of [`Self::bind`], with the reservations of memory that moves. What it takes out is left to the caller.
    /// Returns the number of a buffer that lacks pages, if one does.
    fn bind_locked(
        &self,
        sources: &[Arc<Bo>],
        list: &[Bind],
        removed: &mut KVVec<Removed<Arc<Mapping>>>,
    ) -> Result<Option<usize>, BindError> {
        let hw = self.gpu.enter()?;
        let backings = self.backings(&hw, sources)?;
        let mut ready = self.ready(sources, list, &backings)?;
        removed
            .reserve(2 * list.len(), GFP_KERNEL_ACCOUNT)
            .map_err(Error::from)?;
        let store = VramStore::new(&self.gpu, Some(&hw));
        let mut reserve = Reserve::new();
        for _ in 0..MAX_ATTEMPTS {
            let mut state = self.state.lock();
            if state.closed {
                return Err(ENODEV.into());
            }
            state.check_unused(list)?;
            let need = state.missing_for(list, &backings)?.need();
            if !reserve.covers(need) {
                drop(state);
                reserve.fill(&store, self.gpu.asic().pte, need)?;
                continue;
            }
            let done = state
                .write_list(&store, &mut reserve, list, sources, &backings, &ready)
                .and_then(|written| {
                    hw.hdp_flush();
                    let lacks = state.list_ranges(list, &mut ready, removed)?;
                    if written.stale || state.flush_owed {
                        self.flush(&mut state, written.retired)?;
                    }
                    Ok(lacks)
                });
            if done.is_err() {
                self.retract_list(&mut state, &store, list, removed);
            }
            drop(state);
            self.reap();
            return done.map_err(|error| {
                // What was mapped before may be reached by old translations.
                stale::keep_until_unbind(&self.gpu, core::mem::take(removed));
                error.into()
            });
        }
        Err(EAGAIN.into())
    }

    /// Finds where the buffers lie.
    fn backings(&self, hw: &Hw, sources: &[Arc<Bo>]) -> Result<Backings> {
        let mut backings = KVVec::with_capacity(sources.len(), GFP_KERNEL_ACCOUNT)?;
        for bo in sources {
            let backing = Arc::new(bo.backing(&self.gpu, hw, None)?, GFP_KERNEL_ACCOUNT)?;
            backings.push(backing, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(backings)
    }

    /// Makes what the ranges need to be listed.
    fn ready(
        &self,
        sources: &[Arc<Bo>],
        list: &[Bind],
        backings: &Backings,
    ) -> Result<KVVec<Option<Ready>>> {
        let mut ready = KVVec::with_capacity(list.len(), GFP_KERNEL_ACCOUNT)?;
        for bind in list {
            let one = match &bind.part {
                Some(part) => {
                    let bo = sources.get(part.source).ok_or(EINVAL)?;
                    let mapping = Mapping::new(bo.begin_use(), bind.range.start)?;
                    let backing = backings.get(part.source).ok_or(EINVAL)?;
                    drop(mapping.set_backing(Some(backing.clone())));
                    Ready {
                        room: MapReservation::to_map(&self.ranges, bo.object())?,
                        mapping: Some(mapping),
                    }
                }
                None => Ready {
                    room: MapReservation::to_unmap(&self.ranges)?,
                    mapping: None,
                },
            };
            ready.push(Some(one), GFP_KERNEL_ACCOUNT)?;
        }
        Ok(ready)
    }

    /// Takes the ranges of a list out after a failure half way. The GPU may know old translations.
    fn retract_list(
        &self,
        state: &mut State,
        store: &VramStore<'_>,
        list: &[Bind],
        removed: &mut KVVec<Removed<Arc<Mapping>>>,
    ) {
        let mut retired = Chain::new();
        for bind in list.iter().filter(|bind| bind.part.is_some()) {
            // No leaf reaches over the range, so no table is needed, and nothing fails.
            let changed =
                state
                    .tree
                    .unmap(store, &mut Reserve::new(), bind.range.start, bind.len());
            if let Ok(changed) = changed {
                retired.append(changed.retired);
            }
            let listed = state.ranges.containing(bind.range.start);
            if listed.is_some_and(|entry| entry.range == bind.range) {
                let gone = state.ranges.remove(bind.range.start);
                // There is room for two per range.
                drop(removed.push_within_capacity(gone));
            }
        }
        store.finish();
        // Once more: this may have been what the GPU missed. It reports its failure itself.
        let _ = self.flush(state, retired);
    }
}
