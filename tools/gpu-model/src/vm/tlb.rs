// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A translation cache that keeps stale entries until it is told to drop them, as hardware does.

use std::collections::HashMap;

use super::walk::Page;

/// Entries per VMID; a full set is emptied, which hardware may do at any time.
const MAX_ENTRIES: usize = 8192;

/// Page sizes that are cached, as log2 bytes, smallest first.
const SIZES: [u32; 3] = [12, 21, 30];

/// Which of a hub's two levels of caches.  An access looks in the first, then in the second, which refills the
/// first: dropping one of them alone leaves translations in use that should be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    /// The clients' own caches.
    pub l1: bool,
    /// The hub's cache.
    pub l2: bool,
}

impl Levels {
    /// Both.
    pub const ALL: Levels = Levels { l1: true, l2: true };

    fn any(self) -> bool {
        self.l1 || self.l2
    }
}

#[derive(Debug)]
struct Entry {
    page: Page,
    held: Levels,
}

/// Cached final translations of one hub.
#[derive(Debug, Default)]
pub struct Tlb {
    sets: [HashMap<(u32, u64), Entry>; 16],
}

impl Tlb {
    /// The cached page that holds `va`.
    pub fn lookup(&mut self, vmid: u8, va: u64) -> Option<Page> {
        let set = self.sets.get_mut(usize::from(vmid))?;
        if set.is_empty() {
            return None;
        }
        let size = SIZES.iter().find(|&&s| set.contains_key(&(s, va >> s)))?;
        let entry = set.get_mut(&(*size, va >> size))?;
        entry.held.l1 = true;
        Some(entry.page)
    }

    /// As [`Tlb::lookup`], but the caches do not notice.
    pub fn peek(&self, vmid: u8, va: u64) -> Option<Page> {
        let set = self.sets.get(usize::from(vmid))?;
        SIZES
            .iter()
            .find_map(|&s| set.get(&(s, va >> s)).map(|e| e.page))
    }

    /// Remembers a valid translation.
    pub fn insert(&mut self, vmid: u8, va: u64, page: Page) {
        let Some(set) = self.sets.get_mut(usize::from(vmid)) else {
            return;
        };
        if set.len() >= MAX_ENTRIES {
            set.clear();
        }
        // Pages of unusual sizes (flat tables with big blocks) are cached as their 4 KiB parts.
        let shift = if SIZES.contains(&page.shift) {
            page.shift
        } else {
            12
        };
        let page = page.narrowed(va, shift);
        let held = Levels::ALL;
        set.insert((shift, va >> shift), Entry { page, held });
    }

    /// Drops all entries of the VMIDs whose bits are set.
    pub fn invalidate(&mut self, vmids: u16) {
        self.invalidate_levels(vmids, Levels::ALL);
    }

    /// Drops the entries of the VMIDs whose bits are set from some levels.
    pub fn invalidate_levels(&mut self, vmids: u16, from: Levels) {
        for (v, set) in self.sets.iter_mut().enumerate() {
            if (vmids >> v) & 1 != 0 {
                set.retain(|_, e| {
                    e.held.l1 &= !from.l1;
                    e.held.l2 &= !from.l2;
                    e.held.any()
                });
            }
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.invalidate(0xFFFF);
    }

    /// Entries held for a VMID.
    pub fn len(&self, vmid: u8) -> usize {
        self.sets.get(usize::from(vmid)).map_or(0, HashMap::len)
    }
}
