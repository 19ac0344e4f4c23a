// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Pages that the packet engines have used last: what a look-up in the cache that all share would find.
//!
//! As the pages of a wave, each is good as long as the epoch of its address space is the one that it was found in.

use super::space::{Epoch, Space, Translation};
use super::walk::Page;
use super::HubId;

/// Pages that are kept.
const ENTRIES: usize = 64;
/// log2 of the part of a page that an entry is found by.
const PART: u32 = 12;

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Whose address space.
    of: (HubId, u8),
    /// The part, counted from address 0.
    number: u64,
    epoch: Epoch,
    page: Page,
}

/// The pages, by the low bits of their numbers.
#[derive(Debug)]
pub struct Recent(Box<[Option<Entry>; ENTRIES]>);

impl Default for Recent {
    fn default() -> Self {
        Self(Box::new([None; ENTRIES]))
    }
}

impl Recent {
    fn slot(number: u64) -> usize {
        number as usize % ENTRIES
    }

    /// The page that holds an address of a space.
    #[inline]
    pub fn find(&self, of: (HubId, u8), space: &Space, va: u64) -> Option<Page> {
        let number = va >> PART;
        let entry = self.0[Self::slot(number)].as_ref()?;
        let hit = entry.number == number && entry.of == of && entry.epoch == space.epoch();
        hit.then_some(entry.page)
    }

    /// Keeps what a translation of the address has found.
    pub fn keep(&mut self, of: (HubId, u8), va: u64, found: Translation) {
        let number = va >> PART;
        self.0[Self::slot(number)] = Some(Entry {
            of,
            number,
            epoch: found.epoch,
            page: found.page,
        });
    }
}
