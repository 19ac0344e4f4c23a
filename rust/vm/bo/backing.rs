// SPDX-License-Identifier: GPL-2.0

//! Where a buffer lies for one GPU.
//!
//! A buffer is a row of *pieces*, each of which has its memory, or none, and changes as a whole. Most buffers are one piece.
//! One of memory of a process has a piece per window of its pages (`kapi/userpages.rs`): two states of such a buffer share
//! the pieces that did not change, so that only the entries of the others have to be written.

use core::ops::Range;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::Place;
use crate::{
    hw::pte::PageAttrs,
    kapi::dma_map::{
        DmaImport,
        DmaMap,
        DmaRun, //
    },
    vm::pt::Run,
};

/// Appends a run, or lengthens the last one.
pub(in crate::vm) fn push_run(runs: &mut KVVec<Run>, addr: u64, len: u64) -> Result {
    match runs.last_mut() {
        Some(last) if last.addr + last.len == addr => last.len += len,
        _ => runs.push(Run { addr, len }, GFP_KERNEL_ACCOUNT)?,
    }
    Ok(())
}

/// Keeps memory where the device reaches it.
pub(super) enum Dma {
    /// A mapping of its own.
    Own(DmaMap),
    /// Part of a mapping that serves all buffers of registers or doorbells.
    Part(
        #[expect(dead_code, reason = "kept, not used")] Arc<DmaMap>,
        [DmaRun; 1],
    ),
    /// Memory of another driver.
    Import(Arc<DmaImport>),
}

impl Dma {
    fn runs(&self) -> &[DmaRun] {
        match self {
            Self::Own(map) => map.runs(),
            Self::Part(_, run) => run,
            Self::Import(import) => import.runs(),
        }
    }
}

/// The memory of a piece; keeps it where it is.
pub(super) struct Extent {
    runs: KVVec<Run>,
    /// Where each run begins in the piece.
    starts: KVVec<u64>,
    /// Which memory of the piece it is.
    version: u64,
    _dma: Option<Dma>,
}

impl Extent {
    /// `len` bytes that lie in `runs`.
    ///
    /// # Errors
    ///
    /// `EIO`: the runs have other than `len` bytes. `ENOMEM`.
    pub(super) fn new(runs: KVVec<Run>, dma: Option<Dma>, version: u64, len: u64) -> Result<Self> {
        // What is mapped must be what was asked for, byte by byte.
        let mut starts = KVVec::with_capacity(runs.len(), GFP_KERNEL_ACCOUNT)?;
        let mut end = 0;
        for run in &runs {
            starts.push(end, GFP_KERNEL_ACCOUNT)?;
            end += run.len;
        }
        if end != len {
            return Err(EIO);
        }
        Ok(Self {
            runs,
            starts,
            version,
            _dma: dma,
        })
    }

    /// `len` bytes that a device has mapped.
    ///
    /// # Errors
    ///
    /// Those of [`Self::new`].
    pub(super) fn of_dma(dma: Dma, version: u64, len: u64) -> Result<Self> {
        let mut runs = KVVec::new();
        for run in dma.runs() {
            push_run(&mut runs, run.addr, run.len)?;
        }
        Self::new(runs, Some(dma), version, len)
    }

    /// Whether it is the memory that the piece has, or had, under that number.
    pub(super) fn is_of(&self, version: u64) -> bool {
        self.version == version
    }

    /// As [`Backing::for_each_part`], within the piece. There are at most three calls.
    fn for_each_part(
        &self,
        offset: u64,
        len: u64,
        mut f: impl FnMut(u64, &[Run]) -> Result,
    ) -> Result {
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        let mut at = offset;
        // The run that `offset` lies in.
        let mut next = self.starts.partition_point(|start| *start <= offset);
        next = next.checked_sub(1).ok_or(EINVAL)?;
        while at < end {
            let (run, start) = self
                .runs
                .get(next)
                .zip(self.starts.get(next))
                .ok_or(EINVAL)?;
            let run_end = start + run.len;
            if at == *start && run_end <= end {
                // All runs that lie in the part as a whole.
                let mut last = self.starts.partition_point(|start| *start < end);
                if self.end_of(last - 1)? > end {
                    last -= 1;
                }
                f(at - offset, self.runs.get(next..last).ok_or(EINVAL)?)?;
                at = self.end_of(last - 1)?;
                next = last;
                continue;
            }
            if run_end <= at {
                return Err(EINVAL);
            }
            let part = Run {
                addr: run.addr + (at - start),
                len: run_end.min(end) - at,
            };
            f(at - offset, &[part])?;
            at += part.len;
            next += 1;
        }
        Ok(())
    }

    /// Where a run ends in the piece.
    fn end_of(&self, run: usize) -> Result<u64> {
        let (start, run) = self.starts.get(run).zip(self.runs.get(run)).ok_or(EINVAL)?;
        Ok(start + run.len)
    }
}

/// A part of a buffer that has its memory, or none, as a whole.
pub(super) struct Piece {
    /// Bytes of the buffer.
    range: Range<u64>,
    memory: Option<Arc<Extent>>,
}

impl Piece {
    /// Bytes `range` of the buffer, and their memory, which is as long.
    pub(super) fn new(range: Range<u64>, memory: Option<Arc<Extent>>) -> Self {
        Self { range, memory }
    }

    /// Whether both have the same memory.
    fn is_as(&self, other: &Self) -> bool {
        match (&self.memory, &other.memory) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (None, None) => true,
            _ => false,
        }
    }
}

/// A part of a buffer whose entries are to be written, or taken away.
pub(in crate::vm) struct Difference {
    /// Bytes of the buffer.
    pub(in crate::vm) range: Range<u64>,
    /// There is memory to show.
    pub(in crate::vm) has_memory: bool,
}

/// Where a buffer lies for one GPU; keeps it there.
pub(in crate::vm) struct Backing {
    /// One behind the other, all of the buffer.
    pieces: KVVec<Piece>,
    /// What the entries say beside the address.
    pub(in crate::vm) attrs: PageAttrs,
    /// Which pages of the process these are, for [`BoKind::Userptr`](super::BoKind::Userptr); how often memory has moved.
    pub(in crate::vm) version: u64,
    is_of_user: bool,
    /// The place of memory that moves.
    _place: Option<Arc<Place>>,
}

impl Backing {
    /// A buffer of `pieces`, in order.
    pub(super) fn new(
        pieces: KVVec<Piece>,
        attrs: PageAttrs,
        version: u64,
        is_of_user: bool,
        place: Option<Arc<Place>>,
    ) -> Self {
        Self {
            pieces,
            attrs,
            version,
            is_of_user,
            _place: place,
        }
    }

    /// Whether these are pages of a process, which may change, or be none.
    pub(in crate::vm) fn is_of_user(&self) -> bool {
        self.is_of_user
    }

    /// The memory of piece `index`.
    pub(super) fn extent(&self, index: usize) -> Option<&Arc<Extent>> {
        self.pieces.get(index)?.memory.as_ref()
    }

    /// The pieces that have bytes of `part`, with their numbers.
    fn pieces_in<'a>(&'a self, part: &Range<u64>) -> impl Iterator<Item = (usize, &'a Piece)> + 'a {
        let end = part.end;
        let first = self
            .pieces
            .partition_point(|piece| piece.range.end <= part.start);
        let pieces = self.pieces.iter().enumerate().skip(first);
        pieces.take_while(move |(_, piece)| piece.range.start < end)
    }

    /// Whether all of `len` bytes from byte `offset` on have memory.
    pub(in crate::vm) fn covers(&self, offset: u64, len: u64) -> bool {
        let part = offset..offset.saturating_add(len);
        let within = self
            .pieces
            .last()
            .is_some_and(|last| part.end <= last.range.end);
        within
            && self
                .pieces_in(&part)
                .all(|(_, piece)| piece.memory.is_some())
    }

    /// Calls `f(at, runs)` for the runs that `len` bytes from byte `offset` on lie in, cut to these bytes and at the
    /// boundaries of pieces, in order; `at` counts from `offset`. Pieces without memory are left out. Allocates nothing.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the part leaves the buffer; that of `f`, which ends the walk.
    pub(in crate::vm) fn for_each_part(
        &self,
        offset: u64,
        len: u64,
        mut f: impl FnMut(u64, &[Run]) -> Result,
    ) -> Result {
        let part = offset..offset.checked_add(len).ok_or(EINVAL)?;
        if self.pieces.last().ok_or(EINVAL)?.range.end < part.end {
            return Err(EINVAL);
        }
        for (_, piece) in self.pieces_in(&part) {
            let Some(extent) = &piece.memory else {
                continue;
            };
            let first = piece.range.start.max(part.start);
            let len = piece.range.end.min(part.end) - first;
            extent.for_each_part(first - piece.range.start, len, |at, runs| {
                f(first - offset + at, runs)
            })?;
        }
        Ok(())
    }

    /// The parts of `len` bytes from byte `offset` on whose entries differ from those for `shown`; all, if there are no
    /// entries.
    pub(in crate::vm) fn differences<'a>(
        &'a self,
        shown: Option<&'a Self>,
        offset: u64,
        len: u64,
    ) -> impl Iterator<Item = Difference> + 'a {
        let part = offset..offset.saturating_add(len);
        let pieces = self.pieces_in(&part);
        let changed = pieces.filter(move |(index, piece)| {
            let before = shown.and_then(|shown| shown.pieces.get(*index));
            !before.is_some_and(|before| before.is_as(piece))
        });
        changed.map(move |(_, piece)| Difference {
            range: piece.range.start.max(part.start)..piece.range.end.min(part.end),
            has_memory: piece.memory.is_some(),
        })
    }
}
