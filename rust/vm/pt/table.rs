// SPDX-License-Identifier: GPL-2.0

//! One table with its shadow, and the lists that move tables in and out of a tree.

use kernel::prelude::*;

use crate::hw::pte::{
    Aperture,
    Entry,
    Flavour,
    Level,
    ENTRIES, //
};

/// The index of `level` in arrays indexed by level: its distance from the leaves.
pub(crate) const fn slot(level: Level) -> usize {
    match level {
        Level::Ptb => 0,
        Level::Pdb0 => 1,
        Level::Pdb1 => 2,
        Level::Pdb2 => 3,
    }
}

/// The memory that holds tables, and the path on which the CPU writes it.
pub(crate) trait Store {
    /// One page of it. Dropping gives it back.
    type Block;

    /// Allocates a page. Its content does not matter.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the memory is exhausted, `ENODEV` if the device is gone.
    fn alloc(&self) -> Result<Self::Block>;

    /// Writes entries from index `first` on. Writes nothing if the device is gone: its tables do
    /// not matter any more.
    fn write(&self, block: &Self::Block, first: usize, entries: &[u64]);

    /// Makes all earlier writes visible to the GPU before any later one.
    fn publish(&self);

    /// The address of `block` for use in an entry of a directory.
    fn pa(block: &Self::Block) -> u64;
}

/// One table: its memory, a copy of its entries, and the tables below it.
pub(crate) struct Table<B> {
    level: Level,
    block: B,
    /// Copy of what `block` holds; always [`ENTRIES`] long.
    entries: KVec<u64>,
    /// Tables below, by index; [`ENTRIES`] long for directories, empty for a PTB.
    children: KVec<Option<KBox<Table<B>>>>,
    /// Entries that are not invalid.
    live: usize,
    /// Link of [`Chain`].
    next: Option<KBox<Table<B>>>,
}

impl<B> Table<B> {
    /// Allocates a table of invalid entries. The caller publishes. System memory is charged to the caller's
    /// control group, for user space decides how many tables there are.
    pub(super) fn new<S: Store<Block = B>>(
        store: &S,
        level: Level,
        flavour: Flavour,
    ) -> Result<KBox<Self>> {
        let entries = KVec::from_elem(flavour.unmapped(level).raw(), ENTRIES, GFP_KERNEL_ACCOUNT)?;
        let mut children = KVec::new();
        if level != Level::Ptb {
            children.reserve(ENTRIES, GFP_KERNEL_ACCOUNT)?;
            for _ in 0..ENTRIES {
                children.push(None, GFP_KERNEL_ACCOUNT)?;
            }
        }
        let block = store.alloc()?;
        store.write(&block, 0, &entries);
        Ok(KBox::new(
            Self {
                level,
                block,
                entries,
                children,
                live: 0,
                next: None,
            },
            GFP_KERNEL_ACCOUNT,
        )?)
    }

    pub(super) fn level(&self) -> Level {
        self.level
    }

    pub(super) fn block(&self) -> &B {
        &self.block
    }

    pub(super) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// The entry at `index`, which is below [`ENTRIES`].
    pub(super) fn entry(&self, index: usize) -> Entry {
        // PANIC: `entries` is `ENTRIES` long.
        Entry::from_raw(self.entries[index])
    }

    /// Changes the shadow of one entry; [`Self::store`] writes it out.
    pub(super) fn set_entry(&mut self, flavour: Flavour, index: usize, entry: Entry) {
        let invalid = flavour.unmapped(self.level);
        let before = self.entry(index) != invalid;
        let after = entry != invalid;
        // PANIC: `entries` is `ENTRIES` long.
        self.entries[index] = entry.raw();
        self.live = self.live + usize::from(after) - usize::from(before);
    }

    /// Writes the shadow of entries `first..end` to memory.
    pub(super) fn store<S: Store<Block = B>>(&self, store: &S, first: usize, end: usize) {
        if let Some(entries) = self.entries.get(first..end) {
            if !entries.is_empty() {
                store.write(&self.block, first, entries);
            }
        }
    }

    pub(super) fn child(&self, index: usize) -> Option<&Table<B>> {
        self.children.get(index)?.as_deref()
    }

    pub(super) fn child_mut(&mut self, index: usize) -> Option<&mut Table<B>> {
        self.children.get_mut(index)?.as_deref_mut()
    }

    /// Puts `child` below entry `index`, whose shadow then points to it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if this is a PTB or the address of `child` fits no entry.
    pub(super) fn attach<S: Store<Block = B>>(
        &mut self,
        flavour: Flavour,
        index: usize,
        child: KBox<Table<B>>,
    ) -> Result {
        let entry = flavour
            .table(self.level, S::pa(&child.block), Aperture::Vram)
            .map_err(|_| EINVAL)?;
        let place = self.children.get_mut(index).ok_or(EINVAL)?;
        *place = Some(child);
        self.set_entry(flavour, index, entry);
        Ok(())
    }

    /// Takes the table below entry `index` away and makes the entry invalid, in the shadow.
    pub(super) fn detach(&mut self, flavour: Flavour, index: usize) -> Option<KBox<Table<B>>> {
        let child = self.children.get_mut(index)?.take()?;
        self.set_entry(flavour, index, flavour.unmapped(self.level));
        Some(child)
    }
}

/// A stack of tables outside a tree. Moving tables in and out allocates nothing.
pub(crate) struct Chain<B> {
    head: Option<KBox<Table<B>>>,
    len: usize,
}

impl<B> Chain<B> {
    /// Makes an empty chain.
    pub(crate) const fn new() -> Self {
        Self { head: None, len: 0 }
    }

    /// Number of tables.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, mut table: KBox<Table<B>>) {
        table.next = self.head.take();
        self.head = Some(table);
        self.len += 1;
    }

    pub(super) fn pop(&mut self) -> Option<KBox<Table<B>>> {
        let mut table = self.head.take()?;
        self.head = table.next.take();
        self.len -= 1;
        Some(table)
    }

    /// Moves all tables of `other` here.
    pub(crate) fn append(&mut self, mut other: Chain<B>) {
        while let Some(table) = other.pop() {
            self.push(table);
        }
    }
}

impl<B> Drop for Chain<B> {
    fn drop(&mut self) {
        // One by one: the default drop of a linked list recurses as deep as the list is long.
        while self.pop().is_some() {}
    }
}

/// How many tables an update needs, by [`slot`]; the root is never among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableCount(pub(crate) [usize; 3]);

/// Tables ready to enter a tree: allocated, filled with invalid entries, visible to the GPU.
pub(crate) struct Reserve<B> {
    chains: [Chain<B>; 3],
}

impl<B> Reserve<B> {
    const LEVELS: [Level; 3] = [Level::Ptb, Level::Pdb0, Level::Pdb1];

    /// Makes an empty reserve.
    pub(crate) const fn new() -> Self {
        Self {
            chains: [Chain::new(), Chain::new(), Chain::new()],
        }
    }

    /// Allocates tables until the reserve covers `need`.
    ///
    /// # Errors
    ///
    /// Those of [`Store::alloc`], and `ENOMEM`. What was allocated stays in the reserve.
    pub(crate) fn fill<S: Store<Block = B>>(
        &mut self,
        store: &S,
        flavour: Flavour,
        need: TableCount,
    ) -> Result {
        let mut written = false;
        for ((chain, level), want) in self.chains.iter_mut().zip(Self::LEVELS).zip(need.0) {
            while chain.len() < want {
                chain.push(Table::new(store, level, flavour)?);
                written = true;
            }
        }
        if written {
            store.publish();
        }
        Ok(())
    }

    /// Whether it holds what `need` asks for.
    pub(crate) fn covers(&self, need: TableCount) -> bool {
        self.chains.iter().zip(need.0).all(|(c, n)| c.len() >= n)
    }

    /// Tables of `level` that are left.
    #[cfg_attr(not(rkfd_kunit), expect(dead_code, reason = "seen by tests"))]
    pub(crate) fn len(&self, level: Level) -> usize {
        self.chains.get(slot(level)).map_or(0, Chain::len)
    }

    pub(super) fn take(&mut self, level: Level) -> Option<KBox<Table<B>>> {
        self.chains.get_mut(slot(level))?.pop()
    }
}
