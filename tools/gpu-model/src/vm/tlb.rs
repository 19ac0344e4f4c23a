// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A translation cache that keeps stale entries until it is told to drop them, as hardware does.

use std::collections::HashMap;

use super::walk::Page;

/// Entries per VMID; a full set is emptied, which hardware may do at any time.
const MAX_ENTRIES: usize = 8192;

/// Page sizes that are cached, as log2 bytes, smallest first.
const SIZES: [u32; 3] = [12, 21, 30];

/// Cached final translations of one hub.
#[derive(Debug, Default)]
pub struct Tlb {
    sets: [HashMap<(u32, u64), Page>; 16],
}

impl Tlb {
    /// The cached page that holds `va`.
    pub fn lookup(&self, vmid: u8, va: u64) -> Option<Page> {
        let set = self.sets.get(usize::from(vmid))?;
        if set.is_empty() {
            return None;
        }
        SIZES.iter().find_map(|&s| set.get(&(s, va >> s)).copied())
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
        set.insert((shift, va >> shift), page);
    }

    /// Drops all entries of the VMIDs whose bits are set.
    pub fn invalidate(&mut self, vmids: u16) {
        for (v, set) in self.sets.iter_mut().enumerate() {
            if (vmids >> v) & 1 != 0 {
                set.clear();
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
