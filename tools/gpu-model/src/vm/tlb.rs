// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The parts of a translation cache that keeps stale entries until it is told to drop them, as hardware does.
//!
//! Each hub has two levels of caches for final translations.  One set of entries stands for both: an entry knows which
//! of the levels hold it, and is gone when none does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use rustc_hash::FxHashMap;

use super::range::Range;
use super::walk::Page;

/// Entries of a [`Set`], and directory entries of an address space.  What is full is emptied, which hardware may do at
/// any time.
const MAX_ENTRIES: usize = 1024;
const MAX_DIRECTORIES: usize = 8192;

/// Page sizes that are cached, as log2 bytes, smallest first.
pub(super) const SIZES: [u32; 3] = [12, 21, 30];

/// Which of a hub's two levels of caches.  An access looks in the first, then in the second, which refills the
/// first: dropping one of them alone leaves translations in use that should be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    /// The clients' own caches.
    pub l1: bool,
    /// The hub's cache.
    pub l2: bool,
    /// Directory entries, a bit per level: bit 0 those that lead to the last level of tables (PDE0).
    pub pdes: u8,
}

impl Levels {
    /// Both.
    pub const ALL: Levels = Levels {
        l1: true,
        l2: true,
        pdes: 7,
    };
}

#[derive(Debug)]
struct Entry {
    page: Page,
    l1: AtomicBool,
    l2: bool,
}

/// A directory entry, and the pages (log2) that it covers.
#[derive(Debug, Clone, Copy)]
struct Directory {
    entry: u64,
    covers: u32,
}

/// Directory entries of one VMID: by level from the root, and by the number of the part they cover.
#[derive(Debug, Default)]
pub(super) struct PdeCache {
    entries: HashMap<(u32, u64), Directory>,
}

impl PdeCache {
    /// The entry of a level (counted from the root) for a part.
    pub(super) fn get(&self, level: u32, part: u64) -> Option<u64> {
        self.entries.get(&(level, part)).map(|d| d.entry)
    }

    /// Keeps an entry; `covers` is log2 of the pages of a part.
    pub(super) fn put(&mut self, level: u32, part: u64, covers: u32, entry: u64) {
        if self.entries.len() >= MAX_DIRECTORIES {
            self.entries.clear();
        }
        self.entries
            .insert((level, part), Directory { entry, covers });
    }

    /// Drops the entries of the levels whose bits are set that cover an address of the range; level 2 from the root
    /// holds PDE0.
    pub(super) fn drop_levels(&mut self, pdes: u8, range: Range) {
        self.entries.retain(|&(level, part), directory| {
            let shift = 12 + directory.covers;
            let asked = (pdes >> 2u32.saturating_sub(level)) & 1 != 0;
            !(asked && range.touches(part << shift, shift))
        });
    }
}

/// Some final translations of one VMID, by size and page number.
#[derive(Debug, Default)]
pub(super) struct Set {
    entries: FxHashMap<(u32, u64), Entry>,
}

impl Set {
    /// The translation of the page with this number in units of `1 << shift`.  The access refills the first level.
    pub(super) fn lookup(&self, shift: u32, number: u64) -> Option<Page> {
        let entry = self.entries.get(&(shift, number))?;
        // A store to a line that many threads read is dear.
        if !entry.l1.load(Ordering::Relaxed) {
            entry.l1.store(true, Ordering::Relaxed);
        }
        Some(entry.page)
    }

    /// As [`Set::lookup`], but the caches do not notice.
    pub(super) fn peek(&self, shift: u32, number: u64) -> Option<Page> {
        self.entries.get(&(shift, number)).map(|e| e.page)
    }

    /// Remembers a valid translation, in both levels.
    pub(super) fn insert(&mut self, number: u64, page: Page) {
        if self.entries.len() >= MAX_ENTRIES {
            self.entries.clear();
        }
        let entry = Entry {
            page,
            l1: AtomicBool::new(true),
            l2: true,
        };
        self.entries.insert((page.shift, number), entry);
    }

    /// Drops the entries of pages that have an address of the range from some levels.
    pub(super) fn invalidate(&mut self, from: Levels, range: Range) {
        if from.l1 && from.l2 && range.is_all() {
            self.entries.clear();
        } else if from.l1 || from.l2 {
            self.entries.retain(|&(shift, number), e| {
                // The page as the tables have it goes as a whole, also where it is cached in parts.
                if !range.touches(number << shift, e.page.whole) {
                    return true;
                }
                *e.l1.get_mut() &= !from.l1;
                e.l2 &= !from.l2;
                *e.l1.get_mut() || e.l2
            });
        }
    }

    /// Entries held.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
