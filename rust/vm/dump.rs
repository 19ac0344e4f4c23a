// SPDX-License-Identifier: GPL-2.0

//! What an address space maps, for people.

use core::fmt::{
    self,
    Write, //
};

use super::{
    pt::Leaf,
    Vm, //
};
use crate::hw::pte::{
    Aperture,
    Level, //
};

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
        let attrs = self.first.attrs;
        let aperture = match attrs.aperture {
            Aperture::Vram => "vram",
            Aperture::System { snooped: true } => "system snooped",
            Aperture::System { snooped: false } => "system",
        };
        write!(
            f,
            "  {:#014x}-{:#014x} -> {:#014x} {} {}{}{} {:?}, {} x 4K, {} x 2M, {} x 1G",
            self.first.va,
            self.first.va + self.len - 1,
            self.first.pa,
            aperture,
            if attrs.access.read { 'r' } else { '-' },
            if attrs.access.write { 'w' } else { '-' },
            if attrs.access.execute { 'x' } else { '-' },
            attrs.mtype,
            self.small,
            self.large,
            self.largest
        )
    }
}

impl Vm {
    /// Writes the mappings and the page table, decoded. Operations on the address space wait.
    ///
    /// # Errors
    ///
    /// Those of `f`.
    pub(crate) fn dump(&self, f: &mut dyn Write) -> fmt::Result {
        let state = self.state.lock();
        writeln!(
            f,
            "PASID {} page table base {:#x}: {} mappings, tables PTB {} PDB0 {} PDB1 {} PDB2 {}",
            self.pasid(),
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
