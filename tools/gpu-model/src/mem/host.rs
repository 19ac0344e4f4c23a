// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The host data path: what the CPU writes through BAR0 reaches memory at some time, surely at an HDP flush.
//!
//! BAR0 is mapped into the guest, so the model does not see these writes.  It sees to it that the structures which a
//! driver writes and the device reads (page tables, MQDs) are old until the flush: a page of VRAM that the device has
//! read one from is kept as it was then, and read again after the next flush only.  What the device itself writes
//! is in both.
//!
//! Reader and writer meet without a lock as long as the page is not kept.  The reader marks the page and then copies
//! it, the writer stores and then looks for the mark, each with a full fence between the two steps.  So either the
//! writer sees the mark and brings the copy up to date, or the copy has been made after the store.

use std::collections::HashMap;
use std::sync::atomic::{fence, AtomicU64, Ordering};

use parking_lot::Mutex;

/// Bytes of a page that is kept.
const PAGE: u64 = 4096;
/// Most pages kept; others are always up to date, as if hardware had drained its buffer.
const MAX_PAGES: usize = 16384;

/// A page as the device sees it.
type Copy = Box<[u8; PAGE as usize]>;

/// Pages of VRAM as they were when the device first read them since the last flush.
#[derive(Debug)]
pub(super) struct HostPath {
    pages: Mutex<HashMap<u64, Copy>>,
    /// A bit for each page of VRAM: it may be kept.
    marks: Box<[AtomicU64]>,
}

impl HostPath {
    /// For `size` bytes of VRAM.
    pub(super) fn new(size: u64) -> Self {
        let words = size.div_ceil(PAGE * u64::from(u64::BITS));
        Self {
            pages: Mutex::default(),
            marks: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn mark(&self, page: u64) -> Option<(&AtomicU64, u64)> {
        let bits = u64::from(u64::BITS);
        let word = self.marks.get(usize::try_from(page / bits).ok()?)?;
        Some((word, 1 << (page % bits)))
    }

    fn forget(&self, pages: &mut HashMap<u64, Copy>) {
        for (word, bit) in pages.keys().filter_map(|&page| self.mark(page)) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
        pages.clear();
    }

    /// The host's writes arrive.
    pub(super) fn flush(&self) {
        self.forget(&mut self.pages.lock());
    }

    /// Whether the page of a VRAM offset may be kept.  The caller has stored and executed a full fence.
    pub(super) fn is_marked(&self, offset: u64) -> bool {
        self.mark(offset / PAGE)
            .is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// The device has written `len` bytes at a VRAM offset; `load` reads memory.
    pub(super) fn written(&self, offset: u64, len: u64, load: impl Fn(u64, &mut [u8])) {
        // Pairs with the fence in `read`.
        fence(Ordering::SeqCst);
        let end = offset.saturating_add(len);
        let mut at = offset;
        while at < end {
            let stop = end.min((at / PAGE + 1) * PAGE);
            if self.is_marked(at) {
                // What is there now, not what the caller wrote: another writer may have been faster, and the copy
                // must end as memory does.
                let mut pages = self.pages.lock();
                let (first, last) = ((at % PAGE) as usize, ((stop - 1) % PAGE) as usize);
                let kept = pages.get_mut(&(at / PAGE));
                if let Some(kept) = kept.and_then(|p| p.get_mut(first..=last)) {
                    load(at, kept);
                }
            }
            at = stop;
        }
    }

    /// Reads a part of one page, as of the last flush.  `load` reads the whole page; false if it does not exist.
    pub(super) fn read(
        &self,
        offset: u64,
        buf: &mut [u8],
        load: impl FnOnce(u64, &mut [u8]) -> bool,
    ) -> bool {
        let mut pages = self.pages.lock();
        let page = offset / PAGE;
        if !pages.contains_key(&page) {
            if pages.len() >= MAX_PAGES {
                self.forget(&mut pages);
            }
            let Some((word, bit)) = self.mark(page) else {
                return false;
            };
            word.fetch_or(bit, Ordering::Relaxed);
            // Pairs with the fence in `written`.
            fence(Ordering::SeqCst);
            let mut copy = Box::new([0u8; PAGE as usize]);
            if !load(page * PAGE, copy.as_mut_slice()) {
                word.fetch_and(!bit, Ordering::Relaxed);
                return false;
            }
            pages.insert(page, copy);
        }
        let inside = (offset % PAGE) as usize;
        let kept = pages
            .get(&page)
            .and_then(|p| p.get(inside..inside + buf.len()));
        if let Some(kept) = kept {
            buf.copy_from_slice(kept);
        }
        kept.is_some()
    }
}
