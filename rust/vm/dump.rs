// SPDX-License-Identifier: GPL-2.0

//! What an address space maps, for people and for `rkfdctl mem`.

use core::fmt::{
    self,
    Write, //
};

use super::{
    bo::{
        Bo,
        Place, //
    },
    pt::{
        Leaf,
        Step, //
    },
    store::VramStore,
    Vm, //
};
use crate::hw::pte::{
    Aperture,
    Level,
    Meaning,
    PageAttrs, //
};

/// What an entry says of a page, but for its address.
struct Attributes(PageAttrs);

impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(attrs) = self;
        let aperture = match attrs.aperture {
            Aperture::Vram => "vram",
            Aperture::System { snooped: true } => "system snooped",
            Aperture::System { snooped: false } => "system",
        };
        write!(
            f,
            "{} {}{}{} {:?}",
            aperture,
            if attrs.access.read { 'r' } else { '-' },
            if attrs.access.write { 'w' } else { '-' },
            if attrs.access.execute { 'x' } else { '-' },
            attrs.mtype,
        )
    }
}

/// One entry of a walk: `PDB0 table 0x… index N entry 0x…`, and what it says.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Pdb2 => "PDB2",
            Level::Pdb1 => "PDB1",
            Level::Pdb0 => "PDB0",
            Level::Ptb => "PTB",
        };
        write!(
            f,
            "{:<4} table {:#014x} index {:<3} entry {:#018x} ",
            level,
            self.table,
            self.index,
            self.entry.raw()
        )?;
        match self.meaning {
            Meaning::Invalid => f.write_str("invalid"),
            Meaning::Prt => f.write_str("prt"),
            Meaning::NoRetry => f.write_str("no-retry"),
            Meaning::Malformed => f.write_str("malformed"),
            Meaning::Table { pa, .. } => write!(f, "to table {pa:#014x}"),
            Meaning::Page { pa, attrs } => write!(
                f,
                "to page {:#014x} of {:#x} bytes {} fragment {}",
                pa,
                self.level.span(),
                Attributes(attrs),
                attrs.fragment
            ),
        }
    }
}

/// Where the memory of a buffer is, as words of its line.
fn write_place(f: &mut dyn Write, bo: &Bo) -> fmt::Result {
    let Some(movable) = bo.object().movable() else {
        return Ok(());
    };
    match &*movable.place() {
        Place::Vram { blocks, .. } => write!(f, " in {} pieces", blocks.spans().count()),
        Place::System { .. } => f.write_str(" evicted"),
    }
}

/// Pages that follow each other in both spaces with the same attributes.
struct Stretch {
    first: Leaf,
    len: u64,
    small: u64,
    large: u64,
    /// Pages of 1 GiB.
    largest: u64,
}

impl Stretch {
    fn new(leaf: Leaf) -> Self {
        let mut stretch = Self {
            first: leaf,
            len: 0,
            small: 0,
            large: 0,
            largest: 0,
        };
        stretch.extend(leaf);
        stretch
    }

    fn extend(&mut self, leaf: Leaf) {
        self.len += leaf.level.span();
        let count = match leaf.level {
            Level::Ptb => &mut self.small,
            Level::Pdb0 => &mut self.large,
            _ => &mut self.largest,
        };
        *count += 1;
    }

    fn continues(&self, leaf: &Leaf) -> bool {
        let (a, b) = (self.first.attrs, leaf.attrs);
        leaf.va == self.first.va + self.len
            && leaf.pa == self.first.pa + self.len
            && (a.aperture, a.access, a.mtype) == (b.aperture, b.access, b.mtype)
    }
}

impl fmt::Display for Stretch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "  {:#014x}-{:#014x} -> {:#014x} {}, {} x 4K, {} x 2M, {} x 1G",
            self.first.va,
            self.first.va + self.len - 1,
            self.first.pa,
            Attributes(self.first.attrs),
            self.small,
            self.large,
            self.largest
        )
    }
}

impl Vm {
    /// Writes each entry that a walk for `va` reads, as the driver has written it, and the range that shows a buffer there.
    /// Operations on the address space wait.
    ///
    /// # Errors
    ///
    /// Those of `f`.
    pub(crate) fn dump_walk(&self, f: &mut dyn Write, va: u64) -> fmt::Result {
        let state = self.state.lock();
        writeln!(
            f,
            "PASID {} address {:#x} page table base {:#x}",
            self.pasid(),
            va,
            self.page_table_base()
        )?;
        state
            .tree
            .walk::<VramStore<'_>, _>(va, &mut |step| writeln!(f, "{step}"))?;
        let Some(entry) = state.ranges.containing(va) else {
            return writeln!(f, "no buffer");
        };
        let (range, bo) = (entry.range, entry.data.bo());
        write!(
            f,
            "{:#014x}-{:#014x} {:?} from byte {:#x}",
            range.start,
            range.end - 1,
            bo.kind(),
            entry.offset + (va - range.start)
        )?;
        write_place(f, bo)?;
        writeln!(f)
    }

    /// Writes the mappings and the page table, decoded; `pid` is the process that opened the file. Operations on the
    /// address space wait.
    ///
    /// # Errors
    ///
    /// Those of `f`.
    pub(crate) fn dump(&self, f: &mut dyn Write, pid: i32) -> fmt::Result {
        let state = self.state.lock();
        writeln!(
            f,
            "PASID {} pid {} page table base {:#x}: {} mappings, tables PTB {} PDB0 {} PDB1 {} PDB2 {}",
            self.pasid(),
            pid,
            self.page_table_base(),
            state.ranges.iter().count(),
            state.tree.tables(Level::Ptb),
            state.tree.tables(Level::Pdb0),
            state.tree.tables(Level::Pdb1),
            state.tree.tables(Level::Pdb2)
        )?;
        for entry in state.ranges.iter() {
            let (range, mapping) = (entry.range, entry.data);
            let bo = mapping.bo();
            write!(
                f,
                "{:#014x}-{:#014x} {:?}",
                range.start,
                range.end - 1,
                bo.kind()
            )?;
            let flags = bo.flags();
            for (set, name) in [
                (flags.coherent, "coherent"),
                (flags.uncached, "uncached"),
                (flags.public, "public"),
                (flags.contiguous, "contiguous"),
                (bo.gpu().id() != self.gpu().id(), "of another GPU"),
                (mapping.is_held(), "in use by a queue"),
            ] {
                if set {
                    write!(f, " {name}")?;
                }
            }
            if let Some(address) = bo.userptr() {
                write!(f, " from {address:#x}")?;
            }
            write_place(f, bo)?;
            writeln!(f)?;
        }
        writeln!(f, "page table:")?;
        let mut stretch: Option<Stretch> = None;
        state.tree.visit(&mut |leaf| {
            match &mut stretch {
                Some(stretch) if stretch.continues(&leaf) => stretch.extend(leaf),
                _ => {
                    if let Some(done) = stretch.replace(Stretch::new(leaf)) {
                        writeln!(f, "{done}")?;
                    }
                }
            }
            Ok(())
        })?;
        match stretch {
            Some(done) => writeln!(f, "{done}"),
            None => Ok(()),
        }
    }
}
