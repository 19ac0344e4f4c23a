// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A translation cache that keeps stale entries until it is told to drop them, as hardware does.

use std::collections::HashMap;

use super::walk::{Directories, Page};

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

    fn any(self) -> bool {
        self.l1 || self.l2
    }
}

#[derive(Debug)]
struct Entry {
    page: Page,
    held: Levels,
}

/// Directory entries of one VMID: by level from the root, and by the number of the part they cover.
#[derive(Debug, Default)]
pub struct PdeCache {
    entries: HashMap<(u32, u64), u64>,
}

impl Directories for PdeCache {
    fn get(&self, level: u32, pfn: u64, covers: u32) -> Option<u64> {
        self.entries.get(&(level, pfn >> covers)).copied()
    }

    fn put(&mut self, level: u32, pfn: u64, covers: u32, entry: u64) {
        if self.entries.len() >= MAX_ENTRIES {
            self.entries.clear();
        }
        self.entries.insert((level, pfn >> covers), entry);
    }
}

impl PdeCache {
    /// Drops the entries of the levels whose bits are set; level 2 from the root holds PDE0.
    fn drop_levels(&mut self, pdes: u8) {
        self.entries
            .retain(|&(level, _), _| (pdes >> 2u32.saturating_sub(level)) & 1 == 0);
    }
}

/// Cached final translations and directory entries of one hub.
#[derive(Debug, Default)]
pub struct Tlb {
    sets: [HashMap<(u32, u64), Entry>; 16],
    directories: [PdeCache; 16],
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

    /// The directory entries of a VMID.
    pub fn directories(&mut self, vmid: u8) -> &mut PdeCache {
        // A VMID has four bits.
        &mut self.directories[usize::from(vmid & 0xF)]
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
        let held = Levels {
            pdes: 0,
            ..Levels::ALL
        };
        set.insert((shift, va >> shift), Entry { page, held });
    }

    /// Drops all entries of the VMIDs whose bits are set.
    pub fn invalidate(&mut self, vmids: u16) {
        self.invalidate_levels(vmids, Levels::ALL);
    }

    /// Drops the entries of the VMIDs whose bits are set from some levels.
    pub fn invalidate_levels(&mut self, vmids: u16, from: Levels) {
        let both = self.sets.iter_mut().zip(&mut self.directories);
        for (v, (set, directories)) in both.enumerate() {
            if (vmids >> v) & 1 != 0 {
                directories.drop_levels(from.pdes);
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
