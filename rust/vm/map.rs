// SPDX-License-Identifier: GPL-2.0

//! Mapping a whole buffer.

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
    pt::Reserve,
    store::VramStore,
    va,
    State,
    Vm,
    MAX_ATTEMPTS, //
};
use crate::{
    kapi::{
        gpuvm::{
            Handle,
            MapReservation,
            Removed, //
        },
        trace::errno, //
    },
    trace, //
};

/// What a change of the ranges left over.
type Unlisted = Removed<Arc<Mapping>>;

/// A mapping that is not listed yet, and memory to list it.
struct NewMapping {
    mapping: Arc<Mapping>,
    room: MapReservation<Memory, Arc<Mapping>>,
}

impl NewMapping {
    /// From here on `bo` is in use: each change of its pages is reported.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn new(ranges: &Handle, bo: &Arc<Bo>, va: u64) -> Result<Self> {
        Ok(Self {
            mapping: Mapping::new(bo.begin_use(), va)?,
            room: MapReservation::to_map(ranges, bo.object())?,
        })
    }

    /// Lists it. The range is free. What was not needed is to be dropped without the lock.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range leaves the user range, or is longer than the buffer.
    fn insert(self, state: &mut State, range: Range<u64>) -> Result<(Arc<Mapping>, Unlisted)> {
        let mapping = self.mapping;
        let rest = state.ranges.map(self.room, range, 0, mapping.clone())?;
        Ok((mapping, rest))
    }
}

impl Vm {
    /// Maps the whole of `bo` at `va`. Mapping it again where it is mapped succeeds, and writes entries
    /// that were taken away. When this returns, the GPU can use the mapping.
    ///
    /// Pages of a process should have been found, see [`Bo::find_pages`]. Where there are none, an access
    /// faults, and the watcher is notified, in case that they only changed meanwhile.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `va` is not a multiple of 4 KiB, the range leaves the user range or overlaps
    ///   another mapping, `bo` is mapped elsewhere, or it is VRAM of another GPU.
    /// - `ENOMEM`: no memory for page tables.
    /// - `EAGAIN`: others change the neighbourhood all the time.
    /// - `ENODEV`, `EIO`, `ETIMEDOUT`: the GPU is gone, lost, or did not answer.
    /// - Those of [`Bo::adopt`], for memory of another driver that was imported for another GPU.
    pub(crate) fn map(self: &Arc<Self>, bo: &Arc<Bo>, va: u64) -> Result {
        let range = va::check(va, bo.size())?;
        let result = bo.attach(&self.gpu).and_then(|()| self.map_at(bo, range));
        let gpu_id = self.gpu.id();
        trace::vm_map(gpu_id, self.pasid(), va, bo.size(), errno(&result));
        result
    }

    /// Maps the whole of `bo` in `range`, which is as long.
    fn map_at(self: &Arc<Self>, bo: &Arc<Bo>, range: Range<u64>) -> Result {
        // Memory does not move before its mapping is listed.
        let movable = bo.object().movable();
        let _reserved = movable.map(|_| bo.object().reserve_uninterrupted());
        self.map_reserved(bo, range)?;
        self.note_displaced(core::iter::once(bo));
        Ok(())
    }

    /// The rest of [`Self::map`], with the reservation of memory that moves.
    fn map_reserved(&self, bo: &Arc<Bo>, range: Range<u64>) -> Result {
        let va = range.start;
        let hw = self.gpu.enter()?;
        let store = VramStore::new(&self.gpu, Some(&hw));
        let mut reserve = Reserve::new();
        let mut new: Option<NewMapping> = None;
        let mut backing: Option<Arc<Backing>> = None;
        let mut known: Option<Arc<Backing>> = None;

        // What turns out to be missing is made without the lock, and everything is looked at again.
        for _ in 0..MAX_ATTEMPTS {
            let mut state = self.state.lock();
            if state.is_target(bo, &range)? {
                drop(state);
                return self.refresh_reserved(&hw, bo);
            }
            let Some(current) = backing.as_ref().filter(|_| new.is_some()) else {
                drop(state);
                if new.is_none() {
                    // Before the backing is found, so that no change of it is missed.
                    new = Some(NewMapping::new(&self.ranges, bo, va)?);
                }
                let known = known.take();
                let found = bo.backing(&self.gpu, &hw, known.as_deref())?;
                backing = Some(Arc::new(found, GFP_KERNEL_ACCOUNT)?);
                continue;
            };
            let count = state.missing_for_write(va, current, bo.size())?;
            if !reserve.covers(count) {
                drop(state);
                reserve.fill(&store, self.gpu.asic().pte, count)?;
                continue;
            }
            let written = bo.commit(current.version, || {
                state.write(&store, &mut reserve, va, current, bo.size())
            });
            let changed = match written {
                // The pages of the process have changed.
                Err(e) if e == EAGAIN => {
                    drop(state);
                    known = backing.take();
                    continue;
                }
                written => written?,
            };
            hw.hdp_flush();
            let lacks = !current.covers(0, bo.size());
            let ready = new.take().ok_or(EINVAL)?;
            let (mapping, listed) = ready.insert(&mut state, range.clone())?;
            drop(mapping.set_backing(backing.take()));
            // A range that was unmapped without a flush may still be cached.
            let flushed = if changed.stale || state.flush_owed {
                self.flush(&mut state, changed.retired)
            } else {
                Ok(())
            };
            let mut unlisted = None;
            if flushed.is_err() {
                // The TLB may hide the entries, or know them already: they go, but their memory stays listed until a
                // flush succeeds.
                mapping.set_cleared();
                let cleared = self.clear(&mut state, &store, va, bo.size());
                if cleared.is_ok() {
                    unlisted = Some(state.ranges.remove(va));
                }
            }
            drop(state);
            drop((listed, unlisted));
            self.reap();
            if flushed.is_ok() && lacks {
                bo.tell_missing();
            }
            return flushed;
        }
        Err(EAGAIN)
    }
}
