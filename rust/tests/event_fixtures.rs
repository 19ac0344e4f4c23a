// SPDX-License-Identifier: GPL-2.0

//! A table of events without threads: wake-ups are counted, and the signal page is an array.

use core::cell::Cell;
use kernel::prelude::*;

use crate::event::{
    payload::{
        MemoryExceptionData,
        Payload, //
    },
    table::{
        Kind,
        SignalPage,
        Status,
        Table,
        WaitEntries,
        WaitItem,
        WaiterId,
        Wake,
        IDLE_SLOT, //
    }, //
};

/// Counts wake-ups.
#[derive(Clone, Copy)]
pub(super) struct Counter<'a>(pub(super) &'a Cell<u32>);

impl Wake for Counter<'_> {
    fn wake(&self) {
        self.0.set(self.0.get() + 1);
    }
}

/// A signal page of a few slots; the others read as idle.
pub(super) struct Page(pub(super) [Cell<u64>; 8]);

impl Page {
    pub(super) fn new() -> Self {
        Self([const { Cell::new(IDLE_SLOT) }; 8])
    }

    /// What a RELEASE_MEM of 32 bits leaves.
    pub(super) fn packet(&self, id: u32) {
        if let Some(slot) = self.0.get(crate::hw::num::index(id)) {
            slot.set(0xffff_ffff_0000_0000 | u64::from(id));
        }
    }

    pub(super) fn idle(&self) -> bool {
        self.0.iter().all(|slot| slot.get() == IDLE_SLOT)
    }
}

impl SignalPage for Page {
    fn load(&self, slot: u32) -> u64 {
        self.0
            .get(crate::hw::num::index(slot))
            .map_or(IDLE_SLOT, Cell::get)
    }

    fn set_idle(&self, slot: u32) {
        if let Some(slot) = self.0.get(crate::hw::num::index(slot)) {
            slot.set(IDLE_SLOT);
        }
    }
}

/// A table with its wake counter.
pub(super) struct World<'a> {
    pub(super) table: Table<Counter<'a>>,
    pub(super) wakes: &'a Cell<u32>,
}

impl<'a> World<'a> {
    pub(super) fn new(wakes: &'a Cell<u32>) -> Self {
        Self {
            table: Table::new(),
            wakes,
        }
    }

    pub(super) fn signal(&mut self) -> Result<u32> {
        self.table.create(Kind::Signal, false)
    }

    pub(super) fn auto(&mut self) -> Result<u32> {
        self.table.create(Kind::Signal, true)
    }

    pub(super) fn wait(&mut self, ids: &[u32]) -> Result<WaiterId> {
        self.wait_age(ids, 0)
    }

    pub(super) fn wait_age(&mut self, ids: &[u32], last_age: u64) -> Result<WaiterId> {
        let mut items = KVec::new();
        for id in ids {
            items.push(WaitItem { id: *id, last_age }, GFP_KERNEL)?;
        }
        let entries = WaitEntries::new(items.len())?;
        self.table.register(&items, entries, Counter(self.wakes))
    }

    /// Whether a wait on `id` alone would end at once; leaves nothing behind but consumes.
    pub(super) fn is_signalled(&mut self, id: u32) -> Result<bool> {
        let waiter = self.wait(&[id])?;
        let status = self.table.status(&waiter, true);
        self.table.unregister(waiter, false);
        Ok(status == Status::Complete)
    }

    /// One interrupt; how many events it signalled.
    pub(super) fn interrupt(&mut self, page: &Page, id: u32) -> usize {
        self.table.interrupt(page, [id], false)
    }

    pub(super) fn ages(&self, waiter: &WaiterId) -> [Option<u64>; 2] {
        let mut ages = [None; 2];
        for (position, payload) in self.table.results(waiter) {
            if let (Some(age), Payload::Age(value)) = (ages.get_mut(position), payload) {
                *age = Some(value);
            }
        }
        ages
    }
}

pub(super) fn memory_fault(va: u64) -> Payload {
    Payload::Memory(MemoryExceptionData {
        not_present: 1,
        va,
        gpu_id: 77,
        ..MemoryExceptionData::default()
    })
}
