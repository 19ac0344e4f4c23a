// SPDX-License-Identifier: GPL-2.0

//! The GPU page table of one address space: a four-level tree and its shadow.
//!
//! Levels from the root down are named PDB2, PDB1, PDB0 (page directory blocks) and PTB (page
//! table block). Each table has 512 entries of eight bytes and fills one 4 KiB page. Pages of
//! 4 KiB hang off a PTB; pages of 2 MiB take the place of a PTB in a PDB0, pages of 1 GiB that of a PDB0
//! in a PDB1. How an entry looks in each place differs between ASICs and is the business of [`Flavour`].
//!
//! This module computes; it neither locks nor knows hardware. Tables live in a [`Store`]. Every
//! entry written there has a copy (*shadow*) in system memory, so that nothing is ever read back
//! over the bus, a large page can be split, and a table that became empty is recognised.
//!
//! An update takes three steps, and the types insist on them:
//!
//! 1. [`Tree::missing`] counts the tables that an update lacks; [`Reserve::fill`] allocates and
//!    initialises them. Only this step can fail, and it needs no lock.
//! 2. [`Tree::map`] and [`Tree::unmap`] change entries. They allocate nothing.
//! 3. They return a [`Changed`], which owns the tables that left the tree. The caller invalidates
//!    the TLB if it says so, and only then drops the tables.
//!
//! *Fragment*: a field of a leaf entry that says 2^n naturally aligned, physically contiguous
//! pages have the same attributes, so that a TLB may cover them with one entry. A fragment must
//! never reach over a page that is not mapped so, hence changing one page rewrites its fragment.

use kernel::prelude::*;

use crate::hw::pte::{
    self,
    Entry,
    Flavour,
    Level,
    Meaning,
    PageAttrs, //
};

mod table;
mod update;

pub(crate) use pte::{
    ENTRIES,
    PAGE, //
};
pub(crate) use table::{
    slot,
    Chain,
    Reserve,
    Store,
    Table,
    TableCount, //
};
pub(crate) use update::{
    Changed,
    Missing, //
};

/// Bytes of a page that a PDB0 entry maps.
pub(crate) const HUGE: u64 = Level::Pdb0.span();

/// Bytes of a page that a PDB1 entry maps.
pub(crate) const GIB: u64 = Level::Pdb1.span();

/// First byte above the addresses that four levels of nine bits can name.
pub(crate) const VA_END: u64 = 1 << pte::VA_BITS;

/// Physically contiguous memory: `len` bytes from `addr`, both multiples of [`PAGE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Physical (VRAM) or bus (system) address, as the entry wants it.
    pub(crate) addr: u64,
    /// Length in bytes.
    pub(crate) len: u64,
}

/// What [`Tree::visit`] reports of a mapped page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    /// First virtual address.
    pub(crate) va: u64,
    /// [`Level::Ptb`] for a page of 4 KiB, [`Level::Pdb0`] for one of 2 MiB, [`Level::Pdb1`] for one of 1 GiB.
    pub(crate) level: Level,
    /// Physical or bus address.
    pub(crate) pa: u64,
    /// Everything else that the entry says.
    pub(crate) attrs: PageAttrs,
}

/// One entry on the way to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// That of the table that has it.
    pub(crate) level: Level,
    /// Where that table is, as an entry of a directory has it.
    pub(crate) table: u64,
    /// Which of the table's entries it is.
    pub(crate) index: usize,
    /// What was written there.
    pub(crate) entry: Entry,
    /// What it says.
    pub(crate) meaning: Meaning,
}

/// A page table.
pub(crate) struct Tree<B> {
    flavour: Flavour,
    root: KBox<Table<B>>,
    /// Tables per level, by [`slot`].
    tables: [usize; 4],
}

impl<B> Tree<B> {
    /// Makes an empty table: a root whose entries are all invalid.
    ///
    /// # Errors
    ///
    /// Those of [`Store::alloc`], and `ENOMEM`.
    pub(crate) fn new<S: Store<Block = B>>(store: &S, flavour: Flavour) -> Result<Self> {
        let root = Table::new(store, Level::Pdb2, flavour)?;
        store.publish();
        Ok(Self {
            flavour,
            root,
            tables: [0, 0, 0, 1],
        })
    }

    /// The block that holds the root.
    pub(crate) fn root(&self) -> &B {
        self.root.block()
    }

    /// Tables of `level` in the tree; the root counts.
    pub(crate) fn tables(&self, level: Level) -> usize {
        // PANIC: `slot` is below 4.
        self.tables[slot(level)]
    }

    /// All tables in the tree.
    pub(crate) fn total_tables(&self) -> usize {
        self.tables.iter().sum()
    }

    /// The leaf that maps `va`, if any.
    pub(crate) fn lookup(&self, va: u64) -> Option<Leaf> {
        if va >= VA_END {
            return None;
        }
        let mut table = &*self.root;
        loop {
            let level = table.level();
            let index = level.index(va);
            match table.child(index) {
                Some(child) => table = child,
                None => {
                    return leaf(
                        self.flavour,
                        level,
                        va & !(level.span() - 1),
                        table.entry(index),
                    )
                }
            }
        }
    }

    /// Calls `f` for each entry that a walk for `va` reads, from the root down. Address bits above the 48th are ignored.
    /// `S` is the store that holds the tables.
    ///
    /// # Errors
    ///
    /// The first error of `f`, which ends the walk.
    pub(crate) fn walk<S: Store<Block = B>, E>(
        &self,
        va: u64,
        f: &mut dyn FnMut(Step) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut table = &*self.root;
        loop {
            let level = table.level();
            let index = level.index(va);
            let entry = table.entry(index);
            f(Step {
                level,
                table: S::pa(table.block()),
                index,
                entry,
                meaning: self.flavour.decode(level, entry),
            })?;
            match table.child(index) {
                Some(child) => table = child,
                None => return Ok(()),
            }
        }
    }

    /// Calls `f` for each mapped page, in ascending order of addresses.
    ///
    /// # Errors
    ///
    /// The first error of `f`, which ends the walk.
    pub(crate) fn visit<E>(&self, f: &mut dyn FnMut(Leaf) -> Result<(), E>) -> Result<(), E> {
        Self::visit_table(self.flavour, &self.root, 0, f)
    }

    fn visit_table<E>(
        flavour: Flavour,
        table: &Table<B>,
        base: u64,
        f: &mut dyn FnMut(Leaf) -> Result<(), E>,
    ) -> Result<(), E> {
        let level = table.level();
        let mut va = base;
        for index in 0..ENTRIES {
            if let Some(child) = table.child(index) {
                Self::visit_table(flavour, child, va, f)?;
            } else if let Some(leaf) = leaf(flavour, level, va, table.entry(index)) {
                f(leaf)?;
            }
            va += level.span();
        }
        Ok(())
    }
}

/// The page that `entry`, found at `level`, maps at `va`.
fn leaf(flavour: Flavour, level: Level, va: u64, entry: Entry) -> Option<Leaf> {
    match flavour.decode(level, entry) {
        Meaning::Page { pa, attrs } => Some(Leaf {
            va,
            level,
            pa,
            attrs,
        }),
        _ => None,
    }
}
