// SPDX-License-Identifier: GPL-2.0

//! Entries of buffers: what is written where a buffer is mapped, and where its memory is another than its entries show.

use kernel::prelude::*;

use super::{
    bo::{
        Backing,
        Bo, //
    },
    pt::{
        Changed,
        Missing,
        Reserve,
        TableCount,
        Tree,
        PAGE, //
    },
    store::{
        TableBlock,
        VramStore, //
    },
    State, //
};
use crate::kapi::gpuvm::Entry;

/// Those that take entries away come last, so that no table leaves the tree that the others need: it would have to be made
/// without the lock, and the pages found unchanged, once more.
const ORDER: [bool; 2] = [true, false];

/// The entries of a buffer, wherever it is mapped, as they are and as they are to be.
#[derive(Clone, Copy)]
pub(super) struct Rewrite<'a> {
    pub(super) bo: &'a Bo,
    /// `None` if there are no entries.
    pub(super) shown: Option<&'a Backing>,
    pub(super) wanted: &'a Backing,
}

impl<'a> Rewrite<'a> {
    /// What a range shows of it.
    fn at<D>(&self, entry: Entry<'_, D>) -> Stretch<'a> {
        Stretch {
            va: entry.range.start,
            offset: entry.offset,
            len: entry.range.end - entry.range.start,
            shown: self.shown,
            wanted: self.wanted,
        }
    }
}

/// What was written.
pub(super) struct Rewritten {
    pub(super) changed: Changed<TableBlock>,
    /// Pages whose entries were written or taken away.
    pub(super) pages: u64,
}

impl Rewritten {
    fn new() -> Self {
        Self {
            changed: Changed::new(),
            pages: 0,
        }
    }

    fn add(&mut self, changed: Changed<TableBlock>) {
        self.changed.stale |= changed.stale;
        self.changed.retired.append(changed.retired);
    }
}

/// Bytes of a buffer at an address.
#[derive(Clone, Copy)]
struct Stretch<'a> {
    va: u64,
    /// The first of them.
    offset: u64,
    len: u64,
    /// What the entries show; `None` if they are not of this buffer.
    shown: Option<&'a Backing>,
    wanted: &'a Backing,
}

impl Stretch<'_> {
    /// Adds to `missing` the tables that [`Self::write`] needs.
    fn count_missing(&self, tree: &Tree<TableBlock>, missing: &mut Missing) -> Result {
        for part in self.wanted.differences(self.shown, self.offset, self.len) {
            let va = self.va + (part.range.start - self.offset);
            let len = part.range.end - part.range.start;
            if !part.has_memory {
                missing.add(tree.missing_for_unmap(va, len));
                continue;
            }
            self.wanted
                .for_each_part(part.range.start, len, |at, runs| {
                    tree.count_missing(missing, va + at, runs);
                    Ok(())
                })?;
        }
        Ok(())
    }

    /// Writes the entries that differ of the parts that have memory, or takes those away of the others.
    ///
    /// # Errors
    ///
    /// Those of [`Tree::map`], of which `EAGAIN` cannot happen if `reserve` covers the need. Some entries may be written
    /// then.
    fn write(
        &self,
        tree: &mut Tree<TableBlock>,
        store: &VramStore<'_>,
        reserve: &mut Reserve<TableBlock>,
        has_memory: bool,
        all: &mut Rewritten,
    ) -> Result {
        for part in self.wanted.differences(self.shown, self.offset, self.len) {
            if part.has_memory != has_memory {
                continue;
            }
            let va = self.va + (part.range.start - self.offset);
            let len = part.range.end - part.range.start;
            if has_memory {
                self.wanted
                    .for_each_part(part.range.start, len, |at, runs| {
                        all.add(tree.map(store, reserve, va + at, runs, self.wanted.attrs)?);
                        Ok(())
                    })?;
            } else {
                all.add(tree.unmap(store, reserve, va, len)?);
            }
            all.pages += len / PAGE;
        }
        Ok(())
    }
}

impl State {
    /// Counts the tables that [`Self::write`] needs.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the buffer has fewer than `len` bytes.
    pub(super) fn missing_for_write(
        &self,
        va: u64,
        wanted: &Backing,
        len: u64,
    ) -> Result<TableCount> {
        let mut missing = Missing::new();
        let whole = Stretch {
            va,
            offset: 0,
            len,
            shown: None,
            wanted,
        };
        whole.count_missing(&self.tree, &mut missing)?;
        Ok(missing.need())
    }

    /// Writes the entries of a whole mapping of `len` bytes at `va`. Where there is no memory, what a mirror of all memory
    /// shows goes.
    ///
    /// # Errors
    ///
    /// Those of [`Tree::map`], of which `EAGAIN` cannot happen if `reserve` covers the need.
    pub(super) fn write(
        &mut self,
        store: &VramStore<'_>,
        reserve: &mut Reserve<TableBlock>,
        va: u64,
        wanted: &Backing,
        len: u64,
    ) -> Result<Changed<TableBlock>> {
        let whole = Stretch {
            va,
            offset: 0,
            len,
            shown: None,
            wanted,
        };
        let mut all = Rewritten::new();
        let mut written = Ok(());
        for has_memory in ORDER {
            if written.is_ok() {
                written = whole.write(&mut self.tree, store, reserve, has_memory, &mut all);
            }
        }
        if written.is_err() {
            // The range is in no list. Tables for leaves that reach out of it are in the reserve, or have been used.
            if let Ok(gone) = self.tree.unmap(store, reserve, va, len) {
                all.add(gone);
            }
        }
        store.finish();
        self.settle(written, all).map(|all| all.changed)
    }

    /// Counts the tables that [`Self::rewrite`] needs.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a range shows more than the buffer has.
    pub(super) fn missing_for_rewrite(&self, rewrite: Rewrite<'_>) -> Result<TableCount> {
        let mut missing = Missing::new();
        let mut counted = Ok(());
        self.ranges.for_each_of(rewrite.bo.object(), |entry| {
            if counted.is_ok() {
                counted = rewrite.at(entry).count_missing(&self.tree, &mut missing);
            }
        });
        counted.map(|()| missing.need())
    }

    /// Writes the entries that differ, in all ranges that show the buffer; none where there is no memory.
    ///
    /// # Errors
    ///
    /// Those of [`Tree::map`], of which `EAGAIN` cannot happen if `reserve` covers the need. Some entries may be written
    /// then.
    pub(super) fn rewrite(
        &mut self,
        store: &VramStore<'_>,
        reserve: &mut Reserve<TableBlock>,
        rewrite: Rewrite<'_>,
    ) -> Result<Rewritten> {
        let Self { tree, ranges, .. } = self;
        let mut all = Rewritten::new();
        let mut written = Ok(());
        for has_memory in ORDER {
            ranges.for_each_of(rewrite.bo.object(), |entry| {
                if written.is_ok() {
                    written = rewrite
                        .at(entry)
                        .write(tree, store, reserve, has_memory, &mut all);
                }
            });
        }
        store.finish();
        self.settle(written, all)
    }

    /// What was written, if all was; else what left the tree is to be freed behind the next flush.
    fn settle(&mut self, written: Result, all: Rewritten) -> Result<Rewritten> {
        if let Err(error) = written {
            self.flush_owed |= all.changed.stale;
            self.pending_free.append(all.changed.retired);
            return Err(error);
        }
        Ok(all)
    }
}
