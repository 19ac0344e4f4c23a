// SPDX-License-Identifier: GPL-2.0

//! Where a program wants memory of a mirror to be, range by range.
//!
//! A hint is of GPU addresses, whatever memory is there. What was noted last holds: a new range cuts the older ones that
//! it meets. Ranges that touch and say the same are one, so that their number depends on what holds where alone, and not
//! on the order in which it was noted. Tested by `rkfd_mirror_hints`.

use core::ops::Range;

use kernel::prelude::*;

use crate::vm::mirrored::GRANULE;

/// Ranges of one mirror at most: `DRM_RKFD_MIRROR_MAX_HINTS`.
pub(crate) const MAX_RANGES: usize = 4096;

/// Where memory is to be that the GPU accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// In the VRAM of this GPU.
    Vram {
        /// Bytes that move at once: a power of two, from 64 KiB to a granule. `None`: the driver's choice.
        reach: Option<u64>,
    },
    /// In system memory.
    System,
    /// Where it is.
    Stay,
}

/// A range and what holds there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hinted {
    /// GPU addresses; not empty.
    pub(crate) range: Range<u64>,
    /// What holds for them.
    pub(crate) hint: Hint,
}

impl Hinted {
    /// What moves at once for an access to `va`, which is in the range: as much as the hint says, or as `choice`, GPU
    /// addresses, from a multiple of that on, and no more than the range. `None`: the hint wants nothing to move.
    pub(crate) fn block(&self, va: u64, choice: &Range<u64>) -> Option<Range<u64>> {
        let Hint::Vram { reach } = self.hint else {
            return None;
        };
        let block = match reach {
            Some(reach) => {
                let start = va & !(reach - 1);
                start..start.saturating_add(reach)
            }
            None => choice.clone(),
        };
        Some(self.range.start.max(block.start)..self.range.end.min(block.end))
    }
}

/// The hints of a mirror.
///
/// # Invariants
///
/// The ranges ascend and do not meet. Those that touch have different hints. There are [`MAX_RANGES`] at most.
pub(crate) struct Hints {
    ranges: KVVec<Hinted>,
}

/// A list that is being made. Each range that is added lies above those before.
struct Joined(KVVec<Hinted>);

impl Joined {
    /// # Errors
    ///
    /// `ENOMEM`: there is no room for it.
    fn add(&mut self, range: Range<u64>, hint: Hint) -> Result {
        if range.is_empty() {
            return Ok(());
        }
        match self.0.last_mut() {
            Some(last) if last.range.end == range.start && last.hint == hint => {
                last.range.end = range.end;
            }
            _ => {
                let added = Hinted { range, hint };
                self.0.push_within_capacity(added).map_err(|_| ENOMEM)?;
            }
        }
        Ok(())
    }
}

impl Hints {
    /// None.
    pub(crate) const fn new() -> Self {
        // INVARIANT: There are no ranges.
        Self {
            ranges: KVVec::new(),
        }
    }

    /// How many ranges there are.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Notes what holds for `range` from now on, which is not empty; `None`: nothing.
    ///
    /// # Errors
    ///
    /// All is as before. `ENOSPC`: there would be more than [`MAX_RANGES`]. `ENOMEM`.
    pub(crate) fn note(&mut self, range: &Range<u64>, hint: Option<Hint>) -> Result {
        // The new range, and one that it cuts in two.
        let room = self.ranges.len() + 2;
        let mut joined = Joined(KVVec::with_capacity(room, GFP_KERNEL_ACCOUNT)?);
        for old in &self.ranges {
            let end = old.range.end.min(range.start);
            joined.add(old.range.start..end, old.hint)?;
        }
        if let Some(hint) = hint {
            joined.add(range.clone(), hint)?;
        }
        for old in &self.ranges {
            let start = old.range.start.max(range.end);
            joined.add(start..old.range.end, old.hint)?;
        }
        if joined.0.len() > MAX_RANGES {
            return Err(ENOSPC);
        }
        // INVARIANT: Parts of the old ranges below and above, which ascend and do not meet, and the new one between them;
        // `add` has joined what touches and is alike. Their number was looked at.
        self.ranges = joined.0;
        Ok(())
    }

    /// The first range that ends above `va`.
    pub(crate) fn next_from(&self, va: u64) -> Option<&Hinted> {
        let at = self.ranges.partition_point(|known| known.range.end <= va);
        self.ranges.get(at)
    }

    /// What holds at `va`.
    pub(crate) fn at(&self, va: u64) -> Option<&Hinted> {
        self.next_from(va).filter(|known| known.range.start <= va)
    }

    /// Whether memory of the first of `range` is to be in VRAM, and where in `range`, which is not empty, that ends.
    pub(crate) fn wants_vram(&self, range: &Range<u64>) -> (bool, u64) {
        match self.next_from(range.start) {
            None => (false, range.end),
            Some(next) if next.range.start > range.start => {
                (false, next.range.start.min(range.end))
            }
            Some(known) => (
                matches!(known.hint, Hint::Vram { .. }),
                known.range.end.min(range.end),
            ),
        }
    }

    /// How many granules have something that is to be in VRAM.
    pub(crate) fn granules_for_vram(&self) -> u64 {
        let (mut count, mut counted_to) = (0, 0);
        for known in &self.ranges {
            if !matches!(known.hint, Hint::Vram { .. }) {
                continue;
            }
            let first = (known.range.start / GRANULE).max(counted_to);
            let end = known.range.end.div_ceil(GRANULE);
            count += end.saturating_sub(first);
            counted_to = end.max(counted_to);
        }
        count
    }
}
