// SPDX-License-Identifier: GPL-2.0

//! What looks at a region from outside: it stays meanwhile, whatever becomes of its pages. Tested by
//! `rkfd_mirror_migrate_live`.

use core::fmt::{
    self,
    Write, //
};

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

use super::{
    region::{
        Frame,
        Region, //
    },
    FRAME,
    PAGES, //
};
use crate::bindings::rkfd_pagemap as RawPagemap;

/// A region that stays mapped as long as this lives: its pages can be told from others, and looked at.
///
/// # Invariants
///
/// `owner` is the pagemap of `region`, which is mapped: this value is one of its holds.
pub(crate) struct Hold {
    region: Arc<Region>,
    owner: *mut RawPagemap,
    frames: usize,
}

// SAFETY: The pagemap is bound to no thread.
unsafe impl Send for Hold {}
// SAFETY: Shared access compares the pointer, and asks functions that any thread may call.
unsafe impl Sync for Hold {}

impl Hold {
    /// `None` once the region has ended.
    pub(super) fn new(region: &Arc<Region>) -> Option<Self> {
        let mut table = region.table.lock();
        let owner = table.mapped.as_ref()?.raw.as_ptr();
        table.holds += 1;
        let frames = table.frames.len();
        drop(table);
        // INVARIANT: Counted just now.
        Some(Self {
            region: region.clone(),
            owner,
            frames,
        })
    }

    /// What its pages have as their owner.
    pub(in crate::kapi) fn owner(&self) -> *mut RawPagemap {
        self.owner
    }

    /// The region.
    pub(in crate::kapi) fn region(&self) -> &Region {
        &self.region
    }

    /// Number of the page frame of the region's first page.
    pub(in crate::kapi) fn first(&self) -> usize {
        // CAST: `usize` is 64 bits wide where this driver runs.
        self.region.start as usize / PAGE_SIZE
    }

    /// The number of the page with number `frame` among those of the machine; `None` if it is not of the region.
    pub(in crate::kapi) fn number(&self, frame: usize) -> Option<usize> {
        let number = frame.checked_sub(self.first());
        number.filter(|number| *number < self.frames * PAGES)
    }

    /// The first frame from `from` on that has live pages.
    pub(crate) fn next_frame(&self, from: usize) -> Option<usize> {
        let table = self.region.table.lock();
        let mut frames = table.frames.iter().enumerate().skip(from);
        frames.find(|(_, frame)| frame.live != 0).map(|(at, _)| at)
    }

    /// The numbers of the pages of a frame that programs have at the moment: not those whose contents have left, and none that
    /// only a copy engine may write.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn pages_in_use(&self, frame: usize) -> Result<KVVec<usize>> {
        let mut numbers = KVVec::with_capacity(PAGES, GFP_KERNEL)?;
        let (given, left) = {
            let table = self.region.table.lock();
            let Some(frame) = table.frames.get(frame) else {
                return Ok(numbers);
            };
            (frame.given, frame.left)
        };
        let places = 0..PAGES;
        for place in places.filter(|at| Frame::has(&given, *at) && !Frame::has(&left, *at)) {
            let number = frame * PAGES + place;
            // SAFETY: The pagemap is mapped by the type invariant, and has this page, which was in use once.
            if unsafe { crate::bindings::rkfd_device_page_is_used(self.owner, number) } {
                numbers.push(number, GFP_KERNEL)?;
            }
        }
        Ok(numbers)
    }

    /// Whether programs have pages of the region.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn is_in_use(&self) -> Result<bool> {
        let mut from = 0;
        while let Some(frame) = self.next_frame(from) {
            if !self.pages_in_use(frame)?.is_empty() {
                return Ok(true);
            }
            from = frame + 1;
        }
        Ok(false)
    }

    /// Writes which addresses the pages have, and how many pages each frame has: live ones, those that were given out, and
    /// those whose contents have left.
    ///
    /// # Errors
    ///
    /// Those of `f`.
    pub(crate) fn show(&self, f: &mut dyn Write) -> fmt::Result {
        let start = self.region.start;
        // CAST: `usize` is at most 64 bits wide.
        let end = start + (self.frames * FRAME) as u64;
        writeln!(f, "region {start:#x}-{:#x}", end - 1)?;
        let (live, holds, closed) = {
            let table = self.region.table.lock();
            // Not this one.
            (table.live, table.holds.saturating_sub(1), table.closed)
        };
        writeln!(f, "live {live}")?;
        writeln!(f, "holds {holds}")?;
        writeln!(f, "closed {}", u32::from(closed))?;
        let mut from = 0;
        while let Some(at) = self.next_frame(from) {
            let counts = {
                let table = self.region.table.lock();
                table.frames.get(at).map(|frame| {
                    let count = |bits: &[u64]| bits.iter().map(|w| w.count_ones()).sum::<u32>();
                    let (given, left) = (count(&frame.given), count(&frame.left));
                    (frame.serial, frame.live, given, left)
                })
            };
            if let Some((serial, live, given, left)) = counts {
                writeln!(
                    f,
                    "room {at} serial {serial} live {live} given {given} left {left}"
                )?;
            }
            from = at + 1;
        }
        Ok(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut table = self.region.table.lock();
        table.holds = table.holds.saturating_sub(1);
        self.region.settle(&table);
    }
}
