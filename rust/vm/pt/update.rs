// SPDX-License-Identifier: GPL-2.0

//! Changing a page table: map, unmap, split, and the upkeep of fragments.

use kernel::prelude::*;

use super::{
    leaf,
    slot,
    Chain,
    Leaf,
    Reserve,
    Run,
    Store,
    Table,
    TableCount,
    Tree,
    ENTRIES,
    GIB,
    HUGE,
    PAGE,
    VA_END, //
};
use crate::hw::pte::{
    Entry,
    Flavour,
    Level,
    PageAttrs, //
};

/// Largest fragment, as the exponent of the entries of one table: its whole reach. Larger ones would have to be cut in
/// tables that a change does not touch.
const MAX_FRAGMENT: u32 = ENTRIES.ilog2();

/// First address that does not fit an entry.
const ADDR_END: u64 = 1 << 48;

/// What an update leaves to do.
#[must_use = "stale translations may be cached until the TLB is invalidated"]
pub(crate) struct Changed<B> {
    /// Entries that the GPU may have cached were changed or removed: the TLB must be invalidated
    /// before memory that they named, or `retired`, is used for anything else.
    pub(crate) stale: bool,
    /// Tables that left the tree.
    pub(crate) retired: Chain<B>,
}

impl<B> Changed<B> {
    /// Nothing is left to do.
    pub(crate) fn new() -> Self {
        Self {
            stale: false,
            retired: Chain::new(),
        }
    }
}

/// A part of a mapping that entries of one table map: one of a PDB1, some of a PDB0, or some of a PTB.
struct Piece {
    va: u64,
    addr: u64,
    len: u64,
}

impl Piece {
    /// The level of the table whose entries map it.
    fn level(&self) -> Level {
        Level::largest_page(self.va, self.addr, self.len)
    }
}

/// The fragment of an entry that maps its whole span.
const fn whole_fragment(level: Level) -> u32 {
    level.shift() - Level::Ptb.shift()
}

/// Cuts `runs`, laid out from `va` on: into pages of 1 GiB, where both addresses allow them, then into as many pages of
/// 2 MiB as one table has, and elsewhere at multiples of [`HUGE`].
fn pieces(va: u64, runs: &[Run]) -> impl Iterator<Item = Piece> + '_ {
    let mut va = va;
    let mut runs = runs.iter().copied();
    let mut run = Run { addr: 0, len: 0 };
    core::iter::from_fn(move || {
        while run.len == 0 {
            run = runs.next()?;
        }
        // Whole gibibytes that follow here, if any.
        let gibibytes = run.len & !(GIB - 1);
        let len = match Level::largest_page(va, run.addr, gibibytes) {
            Level::Pdb1 => GIB,
            _ => {
                let huge = run.len.min(GIB - va % GIB) & !(HUGE - 1);
                match Level::largest_page(va, run.addr, huge) {
                    Level::Ptb => run.len.min(HUGE - va % HUGE),
                    _ => huge,
                }
            }
        };
        let piece = Piece {
            va,
            addr: run.addr,
            len,
        };
        va += len;
        run.addr += len;
        run.len -= len;
        Some(piece)
    })
}

/// Checks that `runs` from `va` on are whole pages inside the address space.
fn check(va: u64, runs: &[Run]) -> Result {
    let mut end = va;
    for run in runs {
        if run.len == 0 || run.len % PAGE != 0 || run.addr % PAGE != 0 {
            return Err(EINVAL);
        }
        if run.addr.checked_add(run.len).ok_or(EINVAL)? > ADDR_END {
            return Err(EINVAL);
        }
        end = end.checked_add(run.len).ok_or(EINVAL)?;
    }
    check_range(va, end - va)
}

fn check_range(va: u64, len: u64) -> Result {
    let end = va.checked_add(len).ok_or(EINVAL)?;
    if len == 0 || va % PAGE != 0 || len % PAGE != 0 || end > VA_END {
        return Err(EINVAL);
    }
    Ok(())
}

/// What the steps of one update share.
struct Update<'a, S: Store> {
    store: &'a S,
    flavour: Flavour,
    reserve: &'a mut Reserve<S::Block>,
    tables: &'a mut [usize; 4],
    changed: Changed<S::Block>,
}

/// Counts the tables that updates would add, one after the other.
pub(crate) struct Missing {
    need: TableCount,
    /// The last place of a table of each level that was looked at.
    seen: [u64; 3],
}

impl Missing {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self {
            need: TableCount([0; 3]),
            seen: [u64::MAX; 3],
        }
    }

    /// Adds tables that are counted otherwise.
    pub(crate) fn add(&mut self, more: TableCount) {
        for (need, more) in self.need.0.iter_mut().zip(more.0) {
            *need += more;
        }
    }

    /// What was counted.
    pub(crate) fn need(&self) -> TableCount {
        self.need
    }
}

impl<B> Tree<B> {
    /// Counts the tables that [`Self::map`] of the same arguments would add.
    pub(crate) fn missing(&self, va: u64, runs: &[Run]) -> TableCount {
        let mut missing = Missing::new();
        self.count_missing(&mut missing, va, runs);
        missing.need
    }

    /// Adds to `missing` the tables that [`Self::map`] of the same arguments would add after the updates that were
    /// counted before. These have lower addresses; else a table may be counted twice.
    pub(crate) fn count_missing(&self, missing: &mut Missing, va: u64, runs: &[Run]) {
        let Missing { need, seen } = missing;
        for piece in pieces(va, runs) {
            let deepest = piece.level();
            for level in [Level::Pdb1, Level::Pdb0, Level::Ptb] {
                if level > deepest {
                    break;
                }
                let span = piece.va / (level.span() * 512);
                // PANIC: `slot` is below 3 for the levels below the root.
                let slot = slot(level);
                if seen[slot] != span {
                    seen[slot] = span;
                    need.0[slot] += usize::from(!self.has_table(level, piece.va));
                }
            }
        }
    }

    /// Counts the tables that [`Self::unmap`] of the same range would add: a PTB for each 2 MiB that the range
    /// cuts where no PTB is, and a PDB0 before it where that is a part of a page of 1 GiB.
    pub(crate) fn missing_for_unmap(&self, va: u64, len: u64) -> TableCount {
        let mut need = TableCount::default();
        let ends = [va, va.saturating_add(len)];
        for level in [Level::Pdb0, Level::Ptb] {
            // Which table of `level` is made where the page at `at` is cut.
            let made = ends.map(|at| {
                let leaf = self.lookup(at)?;
                let span = level.table_span();
                (leaf.level < level && at % span != 0).then_some(at / span)
            });
            let second = match made {
                [Some(first), Some(last)] => first != last,
                [_, last] => last.is_some(),
            };
            let [first, _] = made;
            // PANIC: `slot` is below 3 for the levels below the root.
            need.0[slot(level)] = usize::from(first.is_some()) + usize::from(second);
        }
        need
    }

    fn has_table(&self, level: Level, va: u64) -> bool {
        let mut table = &*self.root;
        while table.level() < level {
            match table.child(table.level().index(va)) {
                Some(child) => table = child,
                None => return false,
            }
        }
        true
    }

    /// Maps `runs`, one after the other, from `va` on. The fragment
    /// of `attrs` is not looked at. What the range mapped before is replaced.
    ///
    /// # Errors
    ///
    /// `EINVAL` if an address or length is not a multiple of [`PAGE`] or the range leaves the
    /// address space; `EAGAIN` if `reserve` lacks tables (see [`Self::missing`]). Nothing has
    /// changed then.
    pub(crate) fn map<S: Store<Block = B>>(
        &mut self,
        store: &S,
        reserve: &mut Reserve<B>,
        va: u64,
        runs: &[Run],
        attrs: PageAttrs,
    ) -> Result<Changed<B>> {
        check(va, runs)?;
        if !reserve.covers(self.missing(va, runs)) {
            return Err(EAGAIN);
        }
        let mut update = Update {
            store,
            flavour: self.flavour,
            reserve,
            tables: &mut self.tables,
            changed: Changed::new(),
        };
        for piece in pieces(va, runs) {
            update.map_piece(&mut self.root, &piece, attrs)?;
        }
        Ok(update.changed)
    }

    /// Unmaps `len` bytes from `va` on; parts that are not mapped are skipped. Tables that become
    /// empty leave the tree.
    ///
    /// # Errors
    ///
    /// `EINVAL` as for [`Self::map`]; `EAGAIN` if `reserve` lacks tables (see
    /// [`Self::missing_for_unmap`]). Nothing has changed then. A range that cuts no large page,
    /// such as any that was given to one call of [`Self::map`], needs no reserve.
    pub(crate) fn unmap<S: Store<Block = B>>(
        &mut self,
        store: &S,
        reserve: &mut Reserve<B>,
        va: u64,
        len: u64,
    ) -> Result<Changed<B>> {
        check_range(va, len)?;
        if !reserve.covers(self.missing_for_unmap(va, len)) {
            return Err(EAGAIN);
        }
        let mut update = Update {
            store,
            flavour: self.flavour,
            reserve,
            tables: &mut self.tables,
            changed: Changed::new(),
        };
        // The end is inclusive: a whole table ends where `u64` arithmetic on spans still works.
        update.clear(&mut self.root, va, va + len - 1)?;
        Ok(update.changed)
    }
}

impl<S: Store> Update<'_, S> {
    /// Returns the table below `table` at `va`; links one from the reserve if there is none.
    fn step<'t>(
        &mut self,
        table: &'t mut Table<S::Block>,
        va: u64,
    ) -> Result<&'t mut Table<S::Block>> {
        let level = table.level();
        let index = level.index(va);
        if table.child(index).is_none() {
            let below = level.child().ok_or(EINVAL)?;
            let mut child = self.reserve.take(below).ok_or(EAGAIN)?;
            if let Some(old) = self.leaf(table, index) {
                // Neighbours do not belong to one fragment with what is about to differ.
                let (low, high) = carve(self.flavour, table, index, index + 1)?;
                table.store(self.store, low, index);
                table.store(self.store, index + 1, high);
                split(self.flavour, &mut child, old.pa, old.attrs)?;
                child.store(self.store, 0, ENTRIES);
                // The GPU uses the old page until it sees the new table, which must be complete
                // by then.
                self.store.publish();
                self.changed.stale = true;
            }
            table.attach::<S>(self.flavour, index, child)?;
            table.store(self.store, index, index + 1);
            // PANIC: `slot` is below 4.
            self.tables[slot(below)] += 1;
        }
        table.child_mut(index).ok_or(EINVAL)
    }

    fn leaf(&self, table: &Table<S::Block>, index: usize) -> Option<Leaf> {
        leaf(self.flavour, table.level(), 0, table.entry(index))
    }

    /// Whether the GPU may have cached what `table` holds at `index`.
    fn is_set(&self, table: &Table<S::Block>, index: usize) -> bool {
        table.entry(index) != self.flavour.unmapped(table.level())
    }

    fn map_piece(&mut self, root: &mut Table<S::Block>, piece: &Piece, attrs: PageAttrs) -> Result {
        let level = piece.level();
        let mut table = root;
        while table.level() < level {
            table = self.step(table, piece.va)?;
        }
        let first = level.index(piece.va);
        // CAST: A piece has at most as many pages as a table has entries.
        let end = first + (piece.len / level.span()) as usize;
        self.changed.stale |= (first..end).any(|index| self.is_set(table, index));
        let (low, high) = carve(self.flavour, table, first, end)?;
        for index in first..end {
            if let Some(below) = table.detach(self.flavour, index) {
                self.retire(below);
            }
        }
        fill(self.flavour, table, first, end, piece.addr, attrs)?;
        table.store(self.store, low, high);
        Ok(())
    }

    /// Clears the part of `table` between the addresses `va` and `last`, both inclusive and both
    /// inside the table.
    ///
    /// The recursion is as deep as the table is high: four.
    fn clear(&mut self, table: &mut Table<S::Block>, va: u64, last: u64) -> Result {
        let flavour = self.flavour;
        let level = table.level();
        let (first, end) = (level.index(va), level.index(last) + 1);

        if level == Level::Ptb {
            self.changed.stale |= (first..end).any(|index| self.is_set(table, index));
            let (low, high) = carve(flavour, table, first, end)?;
            for index in first..end {
                table.set_entry(flavour, index, flavour.unmapped(level));
            }
            // An empty table is unlinked by the caller, which saves writing it.
            if !table.is_empty() {
                table.store(self.store, low, high);
            }
            return Ok(());
        }

        // Before what they belong to goes.
        let (from, to) = carve(flavour, table, first, end)?;
        table.store(self.store, from, first);
        table.store(self.store, end, to);
        let span = level.span();
        let mut low = va;
        let mut dirty: Option<usize> = None;
        for index in first..end {
            // The part of the range that lies in this entry, ends inclusive.
            let high = last.min(low | (span - 1));
            let cleared = self.clear_entry(table, index, low, high)?;
            // Neighbouring cleared entries go out in one write.
            match (cleared, dirty) {
                (true, None) => dirty = Some(index),
                (false, Some(from)) => {
                    table.store(self.store, from, index);
                    dirty = None;
                }
                _ => {}
            }
            low = high.wrapping_add(1);
        }
        if let Some(from) = dirty {
            table.store(self.store, from, end);
        }
        Ok(())
    }

    /// Clears what lies between `low` and `high`, both inclusive, of one entry of a directory.
    /// Returns whether the entry became invalid and has to be written.
    fn clear_entry(
        &mut self,
        table: &mut Table<S::Block>,
        index: usize,
        low: u64,
        high: u64,
    ) -> Result<bool> {
        let flavour = self.flavour;
        let level = table.level();
        if table.child(index).is_none() {
            if !self.is_set(table, index) {
                return Ok(false);
            }
            if high - low == level.span() - 1 {
                self.changed.stale = true;
                table.set_entry(flavour, index, flavour.unmapped(level));
                return Ok(true);
            }
            // The page is cut: `step` replaces it by a table.
            self.step(table, low)?;
        }
        let empty = match table.child_mut(index) {
            Some(child) => {
                self.clear(child, low, high)?;
                child.is_empty()
            }
            None => false,
        };
        if !empty {
            return Ok(false);
        }
        if let Some(child) = table.detach(flavour, index) {
            self.changed.stale = true;
            self.retire(child);
        }
        Ok(true)
    }

    /// Takes a table that was just detached, with all below it, out of the books.
    fn retire(&mut self, mut table: KBox<Table<S::Block>>) {
        for index in 0..ENTRIES {
            if let Some(child) = table.detach(self.flavour, index) {
                self.retire(child);
            }
        }
        // PANIC: `slot` is below 4.
        self.tables[slot(table.level())] -= 1;
        self.changed.retired.push(table);
    }
}

/// Encodes a page.
fn page(flavour: Flavour, level: Level, pa: u64, attrs: PageAttrs, fragment: u32) -> Result<Entry> {
    flavour
        .page(level, pa, PageAttrs { fragment, ..attrs })
        .map_err(|_| EINVAL)
}

/// Fills `child`, which is empty, with what one entry of its parent mapped from `pa` on.
///
/// # Errors
///
/// Those of [`fill`].
fn split<B>(flavour: Flavour, child: &mut Table<B>, pa: u64, attrs: PageAttrs) -> Result {
    fill(flavour, child, 0, ENTRIES, pa, attrs)
}

/// Fills entries `first..end` of a table with the pages from `pa` on, in fragments as large as
/// alignment and length allow.
///
/// # Errors
///
/// `EINVAL` if `pa` is misaligned or too wide, which [`check`] excludes.
fn fill<B>(
    flavour: Flavour,
    table: &mut Table<B>,
    first: usize,
    end: usize,
    pa: u64,
    attrs: PageAttrs,
) -> Result {
    let level = table.level();
    let mut index = first;
    let mut pa = pa;
    while index < end {
        let exponent = (index | ENTRIES)
            .trailing_zeros()
            .min((pa / level.span()).trailing_zeros())
            .min((end - index).ilog2())
            .min(MAX_FRAGMENT);
        for _ in 0..1usize << exponent {
            let fragment = whole_fragment(level) + exponent;
            let entry = page(flavour, level, pa, attrs, fragment)?;
            table.set_entry(flavour, index, entry);
            index += 1;
            pa += level.span();
        }
    }
    Ok(())
}

/// Prepares a change of entries `first..end` of a table: fragments that reach over either boundary
/// are cut there. Returns the range of entries to write once `first..end` are changed.
fn carve<B>(
    flavour: Flavour,
    table: &mut Table<B>,
    first: usize,
    end: usize,
) -> Result<(usize, usize)> {
    let level = table.level();
    let page_at = |table: &Table<B>, index| leaf(flavour, level, 0, table.entry(index));
    // First entry and end of the fragment that `index` belongs to.
    let fragment_of = |table: &Table<B>, index: usize| {
        let exponent = page_at(table, index).map_or(0, |p| {
            p.attrs
                .fragment
                .saturating_sub(whole_fragment(level))
                .min(MAX_FRAGMENT)
        });
        let start = index & !((1usize << exponent) - 1);
        (start, start + (1usize << exponent))
    };
    let (low, _) = fragment_of(table, first);
    let (_, high) = fragment_of(table, end - 1);
    for (from, to) in [(low, first), (end, high)] {
        if from < to {
            if let Some(p) = page_at(table, from) {
                fill(flavour, table, from, to, p.pa, p.attrs)?;
            }
        }
    }
    Ok((low, high))
}
