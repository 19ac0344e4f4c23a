// SPDX-License-Identifier: GPL-2.0

//! Memory of processes that changes: the entries of a buffer, wherever it is mapped, are written anew or taken away, those
//! of the windows that changed alone.
//!
//! A buffer of such memory has one [`Mapping`], of which [`Vm::bind`] may have left parts.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    bo::{
        Backing,
        Bo, //
    },
    pt::{
        Chain,
        Reserve, //
    },
    rewrite::{
        Rewrite,
        Rewritten, //
    },
    stale,
    store::VramStore,
    State,
    Vm,
    MAX_ATTEMPTS, //
};
use crate::gpu::Hw;

impl Vm {
    /// Brings the entries of `bo` up to date, if it is mapped and its pages changed, or its entries were taken away. What
    /// they show already stays.
    ///
    /// # Errors
    ///
    /// After each of them the entries may name what the buffer was.
    ///
    /// - `ENOMEM`: no memory for page tables.
    /// - `EAGAIN`: others change the neighbourhood, or the pages, all the time.
    /// - `EINVAL`, `EIO`: what the DMA layer reports for the pages.
    /// - `ENODEV`, `EIO`, `ETIMEDOUT`: the GPU is gone, lost, or did not answer.
    pub(crate) fn refresh(&self, bo: &Bo) -> Result {
        let movable = bo.object().movable();
        let _reserved = movable.map(|_| bo.object().reserve_uninterrupted());
        let hw = self.gpu.enter()?;
        self.refresh_reserved(&hw, bo)
    }

    /// As [`Self::refresh`], with the reservation of memory that moves.
    pub(super) fn refresh_reserved(&self, hw: &Hw, bo: &Bo) -> Result {
        let store = VramStore::new(&self.gpu, Some(hw));
        let mut reserve = Reserve::new();
        let mut backing: Option<Arc<Backing>> = None;
        let mut known: Option<Arc<Backing>> = None;

        // What turns out to be missing is made without the lock, and everything is looked at again.
        for _ in 0..MAX_ATTEMPTS {
            let mut state = self.state.lock();
            let Some((_, mapping)) = state.mapping_of(bo) else {
                return Ok(());
            };
            if mapping.is_of(bo.version()) {
                return Ok(());
            }
            let Some(current) = backing.as_ref() else {
                let known = known.take().or_else(|| mapping.backing());
                drop(state);
                let found = bo.backing(&self.gpu, hw, known.as_deref())?;
                backing = Some(Arc::new(found, GFP_KERNEL_ACCOUNT)?);
                continue;
            };
            // While the lock is held the mapping has it, too: no memory is given back here.
            let shown = mapping.shown();
            let rewrite = Rewrite {
                bo,
                shown: shown.as_deref(),
                wanted: current,
            };
            let need = state.missing_for_rewrite(rewrite)?;
            if !reserve.covers(need) {
                drop(state);
                reserve.fill(&store, self.gpu.asic().pte, need)?;
                continue;
            }
            let written = bo.commit(current.version, || {
                state.rewrite(&store, &mut reserve, rewrite)
            });
            drop(shown);
            let Rewritten { changed, pages } = match written {
                // The pages of the process have changed.
                Err(e) if e == EAGAIN => {
                    drop(state);
                    known = backing.take();
                    continue;
                }
                written => written?,
            };
            if current.is_of_user() {
                self.gpu.note_rewritten(pages);
            }
            hw.hdp_flush();
            let old = mapping.set_backing(backing.take());
            // A range that was unmapped without a flush may still be cached.
            let flushed = if changed.stale || state.flush_owed {
                self.flush(&mut state, changed.retired)
            } else {
                Ok(())
            };
            if flushed.is_err() {
                // The TLB may hide the entries, or know them already: they go, but their memory stays listed until a
                // flush succeeds. This reports its failure itself.
                mapping.set_cleared();
                let _ = self.clear_parts(&mut state, &store, bo);
            }
            drop(state);
            self.reap();
            if let (Err(_), Some(old)) = (&flushed, old) {
                // The device answers, but not to this: it may still use the old addresses.
                stale::keep_until_unbind(&self.gpu, old);
            }
            return flushed;
        }
        Err(EAGAIN)
    }

    /// Takes the entries of `bo` away, if it is mapped: an access faults. What is mapped stays listed, and
    /// [`Self::refresh`] writes its entries again.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` and others: the GPU did not confirm.
    pub(crate) fn zap(&self, bo: &Bo) -> Result {
        let hw = self.gpu.enter().ok();
        let store = VramStore::new(&self.gpu, hw.as_deref());
        let mut state = self.state.lock();
        let Some((_, mapping)) = state.mapping_of(bo) else {
            return Ok(());
        };
        mapping.set_cleared();
        let cleared = self.clear_parts(&mut state, &store, bo);
        drop(state);
        self.reap();
        cleared
    }

    /// Removes the entries of all parts of `bo` and everything that may be cached of them.
    fn clear_parts(&self, state: &mut State, store: &VramStore<'_>, bo: &Bo) -> Result {
        let State { tree, ranges, .. } = state;
        let mut retired = Chain::new();
        let mut cleared = Ok(false);
        ranges.for_each_of(bo.object(), |entry| {
            let Ok(stale) = &mut cleared else { return };
            let len = entry.range.end - entry.range.start;
            // No leaf reaches over the boundary of a range, so no table is needed.
            match tree.unmap(store, &mut Reserve::new(), entry.range.start, len) {
                Ok(changed) => {
                    *stale |= changed.stale;
                    retired.append(changed.retired);
                }
                Err(error) => cleared = Err(error),
            }
        });
        store.finish();
        let stale = cleared.inspect_err(|_| {
            // Some are gone: the next flush is for them, too.
            state.flush_owed = true;
            state
                .pending_free
                .append(core::mem::replace(&mut retired, Chain::new()));
        })?;
        if stale || state.flush_owed {
            self.flush(state, retired)?;
        }
        Ok(())
    }

    /// Has the GPU drop the translations that it did not confirm to have dropped before, if there are such. They may be of
    /// ranges that are listed no more, and of memory that has another owner by now.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` and others: the GPU did not confirm.
    pub(crate) fn settle_flush(&self) -> Result {
        let mut state = self.state.lock();
        let settled = if state.flush_owed {
            self.flush(&mut state, Chain::new())
        } else {
            Ok(())
        };
        drop(state);
        self.reap();
        settled
    }

    /// The buffers of memory of processes that are mapped. One that is mapped in parts may come more than once.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EAGAIN`: others map more of them all the time.
    pub(crate) fn user_buffers(&self) -> Result<KVVec<Arc<Bo>>> {
        let mut buffers: KVVec<Arc<Bo>> = KVVec::new();
        for _ in 0..MAX_ATTEMPTS {
            let state = self.state.lock();
            let mappings = || state.ranges.iter().filter(|entry| entry.data.is_user());
            let count = mappings().count();
            if count <= buffers.capacity() {
                for entry in mappings() {
                    // There is room.
                    let _ = buffers.push_within_capacity(entry.data.buffer().clone());
                }
                return Ok(buffers);
            }
            drop(state);
            buffers.reserve(count, GFP_KERNEL_ACCOUNT)?;
        }
        Err(EAGAIN)
    }
}
