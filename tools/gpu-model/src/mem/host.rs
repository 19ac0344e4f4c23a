// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The host data path: what the CPU writes through BAR0 reaches memory at some time, surely at an HDP flush.
//!
//! BAR0 is mapped into the guest, so the model does not see these writes.  It sees to it that the structures which a
//! driver writes and the device reads (page tables, MQDs) are old until the flush: a page of VRAM that the device has
//! read one from is kept as it was then, and read again after the next flush only.  What the device itself writes
//! is in both.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Bytes of a page that is kept.
const PAGE: u64 = 4096;
/// Most pages kept; others are always up to date, as if hardware had drained its buffer.
const MAX_PAGES: usize = 16384;

/// A page as the device sees it.
type Copy = Box<[u8; PAGE as usize]>;

/// Pages of VRAM as they were when the device first read them since the last flush.
#[derive(Debug, Default)]
pub struct HostPath {
    pages: Mutex<HashMap<u64, Copy>>,
}

impl HostPath {
    /// The host's writes arrive.
    pub fn flush(&self) {
        self.pages.lock().clear();
    }

    /// The device writes `data` at a VRAM offset.
    pub fn written(&self, offset: u64, data: &[u8]) {
        let mut pages = self.pages.lock();
        if pages.is_empty() {
            return;
        }
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let inside = (at % PAGE) as usize;
            let n = rest.len().min(PAGE as usize - inside);
            let (now, later) = rest.split_at(n);
            let kept = pages
                .get_mut(&(at / PAGE))
                .and_then(|p| p.get_mut(inside..inside + n));
            if let Some(kept) = kept {
                kept.copy_from_slice(now);
            }
            rest = later;
            at += n as u64;
        }
    }

    /// Reads a part of one page, as of the last flush.  `load` reads the whole page; false if it does not exist.
    pub fn read(
        &self,
        offset: u64,
        buf: &mut [u8],
        load: impl FnOnce(u64, &mut [u8]) -> bool,
    ) -> bool {
        let mut pages = self.pages.lock();
        let page = offset / PAGE;
        if !pages.contains_key(&page) {
            let mut copy = Box::new([0u8; PAGE as usize]);
            if !load(page * PAGE, copy.as_mut_slice()) {
                return false;
            }
            if pages.len() >= MAX_PAGES {
                pages.clear();
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
