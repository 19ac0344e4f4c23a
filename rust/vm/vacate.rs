// SPDX-License-Identifier: GPL-2.0

//! Entries of memory that moves: taken away before, and written again behind.
//!
//! A mapping stays listed meanwhile. It gives up where its memory was, so that nothing but the object keeps that place, and
//! says that it has no entries.

use core::ops::Range;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    bo::{
        Backing,
        Bo,
        BoFlags,
        Memory, //
    },
    mapping::Mapping,
    pt::{
        Chain,
        Missing,
        Reserve, //
    },
    stale,
    store::VramStore,
    State,
    Vm,
    MAX_ATTEMPTS, //
};
use crate::kapi::{
    gem::Object,
    resv::Resv, //
};

/// A range without entries.
struct Spot {
    range: Range<u64>,
    offset: u64,
    mapping: Arc<Mapping>,
}

/// Where one object lies, for each kind of use that buffers of it are made for: these are few, while the buffers may be
/// as many as the ranges.
type Backings = KVVec<(BoFlags, Arc<Backing>)>;

impl State {
    /// Notes the ranges of `object` without entries; false if there is no room for all of them.
    fn note_vacant(&self, object: &Object<Memory>, spots: &mut KVVec<Spot>) -> bool {
        spots.clear();
        let mut complete = true;
        self.ranges.for_each_of(object, |entry| {
            if entry.data.is_vacant() {
                let spot = Spot {
                    range: entry.range,
                    offset: entry.offset,
                    mapping: entry.data.clone(),
                };
                complete &= spots.push_within_capacity(spot).is_ok();
            }
        });
        complete
    }
}

fn backing_of<'a>(backings: &'a Backings, mapping: &Mapping) -> Option<&'a Arc<Backing>> {
    let wanted = mapping.bo().flags();
    let found = backings.iter().find(|(flags, _)| *flags == wanted);
    found.map(|(_, backing)| backing)
}

/// Whether the place of some of `spots` is not known.
fn has_unknown(spots: &[Spot], backings: &Backings) -> bool {
    let mut mappings = spots.iter().map(|spot| &spot.mapping);
    mappings.any(|mapping| backing_of(backings, mapping).is_none())
}

impl Vm {
    /// Takes the entries of all ranges of the object away, whose reservation the caller has until [`Self::revive`], and
    /// what the ranges keep of its memory. When this returns, no wave reaches the memory through this address space.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`: nothing has changed.
    /// - `ETIMEDOUT` and others: the GPU did not confirm; what it may reach is kept until it is unbound.
    pub(super) fn vacate(&self, resv: Resv<'_, Memory>) -> Result {
        let object = resv.object();
        let hw = self.gpu.enter().ok();
        let store = VramStore::new(&self.gpu, hw.as_deref());
        let mut kept: KVVec<Arc<Backing>> = KVVec::new();
        let mut attempts = 0..MAX_ATTEMPTS;
        let mut state = loop {
            let state = self.state.lock();
            let mut count = 0;
            state.ranges.for_each_of(object, |_| count += 1);
            if count <= kept.capacity() {
                break state;
            }
            drop(state);
            // Ranges may be split meanwhile.
            attempts.next().ok_or(EAGAIN)?;
            kept.reserve(count, GFP_KERNEL)?;
        };
        let State {
            tree,
            ranges,
            flush_owed,
            ..
        } = &mut *state;
        let mut retired = Chain::new();
        let mut stale = false;
        let mut cleared = Ok(());
        ranges.for_each_of(object, |entry| {
            if let Some(backing) = entry.data.vacate() {
                // There is room for all.
                let _ = kept.push_within_capacity(backing);
            }
            // Whole ranges cut no large page, so no table is needed.
            let len = entry.range.end - entry.range.start;
            match tree.unmap(&store, &mut Reserve::new(), entry.range.start, len) {
                Ok(changed) => {
                    stale |= changed.stale;
                    retired.append(changed.retired);
                }
                Err(error) => cleared = Err(error),
            }
        });
        store.finish();
        let owed = *flush_owed;
        let flushed = if stale || owed {
            self.flush(&mut state, retired)
        } else {
            Ok(())
        };
        drop(state);
        self.reap();
        let result = cleared.and(flushed);
        if result.is_err() {
            stale::keep_until_unbind(&self.gpu, kept);
        }
        // Else dropped here, without the lock: this may free memory.
        result
    }

    /// Writes the entries that [`Self::vacate`] took away, to where the memory is now.
    ///
    /// # Errors
    ///
    /// Entries may be missing still, and the call can be repeated.
    ///
    /// - `ENOMEM`: no memory for page tables.
    /// - `EAGAIN`: others change the neighbourhood all the time.
    /// - `EINVAL`, `EIO`: what the DMA layer reports for system memory.
    /// - `ENODEV`, `EIO`, `ETIMEDOUT`: the GPU is gone, lost, or did not answer.
    pub(super) fn revive(&self, resv: Resv<'_, Memory>) -> Result {
        let object = resv.object();
        let hw = self.gpu.enter()?;
        let store = VramStore::new(&self.gpu, Some(&hw));
        let mut reserve = Reserve::new();
        let mut spots: KVVec<Spot> = KVVec::with_capacity(1, GFP_KERNEL)?;
        let mut backings: Backings = KVVec::new();
        // What turns out to be missing is made without the lock, and everything is looked at again.
        for _ in 0..MAX_ATTEMPTS {
            let mut state = self.state.lock();
            if state.closed {
                return Ok(());
            }
            if !state.note_vacant(object, &mut spots) {
                let mut count = 0;
                state.ranges.for_each_of(object, |_| count += 1);
                drop(state);
                spots.clear();
                spots.reserve(count, GFP_KERNEL)?;
                continue;
            }
            if has_unknown(&spots, &backings) {
                drop(state);
                for spot in &spots {
                    if backing_of(&backings, &spot.mapping).is_none() {
                        let bo = spot.mapping.bo();
                        let backing = bo.backing(&self.gpu, &hw, None)?;
                        let backing = Arc::new(backing, GFP_KERNEL_ACCOUNT)?;
                        backings.push((bo.flags(), backing), GFP_KERNEL)?;
                    }
                }
                continue;
            }
            let mut missing = Missing::new();
            for spot in &spots {
                let backing = backing_of(&backings, &spot.mapping).ok_or(EINVAL)?;
                let (start, len) = (spot.range.start, spot.range.end - spot.range.start);
                backing.for_each_part(spot.offset, len, |at, runs| {
                    state.tree.count_missing(&mut missing, start + at, runs);
                    Ok(())
                })?;
            }
            if !reserve.covers(missing.need()) {
                drop(state);
                reserve.fill(&store, self.gpu.asic().pte, missing.need())?;
                continue;
            }
            let mut retired = Chain::new();
            let mut stale = state.flush_owed;
            for spot in &spots {
                let backing = backing_of(&backings, &spot.mapping).ok_or(EINVAL)?;
                let (start, len) = (spot.range.start, spot.range.end - spot.range.start);
                backing.for_each_part(spot.offset, len, |at, runs| {
                    let changed =
                        state
                            .tree
                            .map(&store, &mut reserve, start + at, runs, backing.attrs)?;
                    stale |= changed.stale;
                    retired.append(changed.retired);
                    Ok(())
                })?;
                // It had none.
                drop(spot.mapping.set_backing(Some(backing.clone())));
            }
            hw.hdp_flush();
            let flushed = if stale {
                self.flush(&mut state, retired)
            } else {
                Ok(())
            };
            drop(state);
            self.reap();
            return flushed;
        }
        Err(EAGAIN)
    }

    /// Calls `f` for each range of memory that moves, under [`Vm::state`]: `f` allocates nothing.
    pub(super) fn for_each_movable(&self, mut f: impl FnMut(&Bo)) {
        for entry in self.state.lock().ranges.iter() {
            let bo = entry.data.bo();
            if bo.object().movable().is_some() {
                f(bo);
            }
        }
    }
}
