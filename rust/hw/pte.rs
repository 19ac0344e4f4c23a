// SPDX-License-Identifier: GPL-2.0

//! Page-table format of gfx9: entries, levels, memory types.
//!
//! A GPU virtual address has 48 bits; four levels of 512 entries translate it, from the root (PDB2)
//! over PDB1 and PDB0 to PTB with 4 KiB pages. Two flavours differ in how the hardware sees the
//! third level. *Plain* tables (gfx906) mark a huge page in a directory with the P bit.
//! *Translate-further* tables (gfx90a, gfx942) tell the hardware that the tree ends at PDB0 with
//! 2 MiB leaves; a PDB0 entry that points to 4 KiB pages carries the F bit, a 2 MiB page carries
//! neither F nor P. Source: `amdgpu_vm.h`, `gmc_v9_0.c`, `amdgpu_vm_pt.c`.
//!
//! Here is what the bits of an entry mean; [`level`] has the shape of the tree, [`mtype`] the choice of memory types.

use core::fmt;

use super::num;

mod level;
mod mtype;

pub(crate) use level::{
    fragment,
    is_canonical,
    Level,
    ENTRIES,
    MAX_PFN,
    PAGE,
    TABLE_BYTES,
    VA_BITS, //
};
pub(crate) use mtype::{
    Coherence,
    Memory,
    Mtype,
    MtypePolicy, //
};

const VALID: u64 = 1 << 0;
const SYSTEM: u64 = 1 << 1;
const SNOOPED: u64 = 1 << 2;
const TMZ: u64 = 1 << 3;
const EXECUTABLE: u64 = 1 << 4;
const READABLE: u64 = 1 << 5;
const WRITEABLE: u64 = 1 << 6;
const ACCESS: u64 = EXECUTABLE | READABLE | WRITEABLE;
const FRAGMENT_SHIFT: u32 = 7;
const FRAGMENT_MASK: u64 = 0x1f;
const PRT: u64 = 1 << 51;
const PDE_PTE: u64 = 1 << 54;
const LOG: u64 = 1 << 55;
const TRANSLATE_FURTHER: u64 = 1 << 56;
const MTYPE_SHIFT: u32 = 57;
const BFS_SHIFT: u32 = 59;
const PAGE_ADDRESS: u64 = 0x0000_ffff_ffff_f000;
const TABLE_ADDRESS: u64 = 0x0000_ffff_ffff_ffc0;

/// Block fragment size of PDB1 entries in translate-further tables: 2^9 pages.
const BFS_2M: u64 = 9;

/// Forces a fault where a missing entry would be retried: V, S and T without any access.
///
/// `AMDGPU_VM_NORETRY_FLAGS_TF`; works in both flavours, at PTB only.
pub(crate) const NO_RETRY: Entry = Entry(VALID | SYSTEM | PRT);

/// Address space of the address in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aperture {
    /// VRAM: address minus FB base plus FB offset.
    Vram,
    /// Bus address, accessed with or without snooping of CPU caches.
    System {
        /// Snoop CPU caches.
        snooped: bool,
    },
}

impl Aperture {
    const fn bits(self) -> u64 {
        match self {
            Self::Vram => 0,
            Self::System { snooped: false } => SYSTEM,
            Self::System { snooped: true } => SYSTEM | SNOOPED,
        }
    }

    const fn of(raw: u64) -> Self {
        if raw & SYSTEM == 0 {
            Self::Vram
        } else {
            Self::System {
                snooped: raw & SNOOPED != 0,
            }
        }
    }
}

/// Permissions of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    /// Loads.
    pub(crate) read: bool,
    /// Stores and atomics.
    pub(crate) write: bool,
    /// Instruction fetch.
    pub(crate) execute: bool,
}

impl Access {
    /// Everything.
    pub(crate) const RWX: Self = Self {
        read: true,
        write: true,
        execute: true,
    };
    /// Loads and stores.
    pub(crate) const RW: Self = Self {
        read: true,
        write: true,
        execute: false,
    };
    /// Loads only.
    pub(crate) const RO: Self = Self {
        read: true,
        write: false,
        execute: false,
    };

    const fn bits(self) -> u64 {
        // CAST: A `bool` is 0 or 1.
        self.execute as u64 * EXECUTABLE
            + self.read as u64 * READABLE
            + self.write as u64 * WRITEABLE
    }

    const fn of(raw: u64) -> Self {
        Self {
            read: raw & READABLE != 0,
            write: raw & WRITEABLE != 0,
            execute: raw & EXECUTABLE != 0,
        }
    }
}

/// Everything about a page but its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageAttrs {
    /// Address space.
    pub(crate) aperture: Aperture,
    /// Permissions.
    pub(crate) access: Access,
    /// Memory type.
    pub(crate) mtype: Mtype,
    /// Fragment exponent, see [`fragment`]; above 31 is cut to 31.
    pub(crate) fragment: u32,
}

/// An address cannot be put into an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PteError {
    /// The address is not a multiple of the page or table size.
    Misaligned(u64),
    /// The address has more than 48 bits.
    TooWide(u64),
    /// Entries of this level cannot be a page, or cannot point to a table.
    WrongLevel(Level),
}

impl fmt::Display for PteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misaligned(address) => write!(f, "address {address:#x} is misaligned"),
            Self::TooWide(address) => write!(f, "address {address:#x} exceeds 48 bits"),
            Self::WrongLevel(level) => write!(f, "{level:?} entries cannot be that"),
        }
    }
}

/// A 64-bit entry of any level.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Entry(u64);

impl Entry {
    /// An entry that maps nothing and is retried where retry is on.
    pub(crate) const EMPTY: Self = Self(0);

    /// Entry as read from a table.
    pub(crate) const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Entry as written to a table.
    pub(crate) const fn raw(self) -> u64 {
        self.0
    }

    /// Whether the V bit is set.
    pub(crate) const fn is_valid(self) -> bool {
        self.0 & VALID != 0
    }

    /// Whether this entry forces a fault, see [`NO_RETRY`].
    pub(crate) const fn is_no_retry(self) -> bool {
        self.0 & NO_RETRY.0 == NO_RETRY.0 && self.0 & ACCESS == 0
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({self})")
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)?;
        for (bit, name) in [
            (VALID, "V"),
            (SYSTEM, "S"),
            (SNOOPED, "C"),
            (TMZ, "Z"),
            (EXECUTABLE, "X"),
            (READABLE, "R"),
            (WRITEABLE, "W"),
            (PRT, "T"),
            (PDE_PTE, "P"),
            (LOG, "L"),
            (TRANSLATE_FURTHER, "F"),
        ] {
            if self.0 & bit != 0 {
                write!(f, " {name}")?;
            }
        }
        Ok(())
    }
}

/// What an entry means at its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Nothing mapped.
    Invalid,
    /// Reads as zero, drops writes, never faults.
    Prt,
    /// Faults even where retry is on.
    NoRetry,
    /// Points to a table of the next level.
    Table {
        /// Address of the table.
        pa: u64,
        /// Address space of the table.
        aperture: Aperture,
    },
    /// Maps a page of the level's span.
    Page {
        /// Address of the page.
        pa: u64,
        /// Its attributes.
        attrs: PageAttrs,
    },
    /// Not a combination that the driver ever writes.
    Malformed,
}

/// How the third level is presented to hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// gfx906.
    Plain,
    /// gfx90a and gfx942.
    TranslateFurther,
}

impl Flavour {
    /// VM_CONTEXTn_CNTL.PAGE_TABLE_DEPTH of user contexts.
    pub(crate) const fn page_table_depth(self) -> u32 {
        match self {
            Self::Plain => 3,
            Self::TranslateFurther => 2,
        }
    }

    /// VM_CONTEXTn_CNTL.BLOCK_SIZE of user contexts.
    pub(crate) const fn block_size(self) -> u32 {
        match self {
            Self::Plain => 0,
            Self::TranslateFurther => 9,
        }
    }

    /// Entry of `level` that points to a table of the next level at `pa`.
    ///
    /// # Errors
    ///
    /// `WrongLevel` at PTB; `Misaligned` unless `pa` is a multiple of 64; `TooWide` beyond 48 bits.
    pub(crate) const fn table(
        self,
        level: Level,
        pa: u64,
        aperture: Aperture,
    ) -> Result<Entry, PteError> {
        if pa >> VA_BITS != 0 {
            return Err(PteError::TooWide(pa));
        }
        if pa & !TABLE_ADDRESS != 0 {
            return Err(PteError::Misaligned(pa));
        }
        let extra = match (self, level) {
            (_, Level::Ptb) => return Err(PteError::WrongLevel(level)),
            (Self::TranslateFurther, Level::Pdb1) => BFS_2M << BFS_SHIFT,
            (Self::TranslateFurther, Level::Pdb0) => TRANSLATE_FURTHER,
            _ => 0,
        };
        Ok(Entry(pa | aperture.bits() | VALID | extra))
    }

    /// Entry of `level` that maps the page at `pa`.
    ///
    /// # Errors
    ///
    /// `WrongLevel` at the root; `Misaligned` unless `pa` is a multiple of the level's span;
    /// `TooWide` beyond 48 bits.
    pub(crate) const fn page(
        self,
        level: Level,
        pa: u64,
        attrs: PageAttrs,
    ) -> Result<Entry, PteError> {
        if !level.may_be_page() {
            return Err(PteError::WrongLevel(level));
        }
        if pa >> VA_BITS != 0 {
            return Err(PteError::TooWide(pa));
        }
        if !num::is_aligned(pa, level.span()) {
            return Err(PteError::Misaligned(pa));
        }
        let fragment = if attrs.fragment > 31 {
            31
        } else {
            attrs.fragment
        };
        // CAST: The discriminants are 0 to 3.
        let mtype = (attrs.mtype as u64) << MTYPE_SHIFT;
        let extra = match (self, level) {
            (_, Level::Ptb) | (Self::TranslateFurther, Level::Pdb0) => 0,
            _ => PDE_PTE,
        };
        Ok(Entry(
            pa | attrs.aperture.bits()
                | attrs.access.bits()
                | (num::widen(fragment) << FRAGMENT_SHIFT)
                | mtype
                | extra
                | VALID,
        ))
    }

    /// Entry of `level` for an unmapped address that the driver manages.
    ///
    /// A PTB entry carries EXECUTABLE, which keeps the priority of faults right; an invalid leaf at
    /// PDB0 of translate-further tables has address bit 12 set (`gmc_v9_0_get_vm_pde`).
    pub(crate) const fn unmapped(self, level: Level) -> Entry {
        match (self, level) {
            (_, Level::Ptb) => Entry(EXECUTABLE),
            (Self::TranslateFurther, Level::Pdb0) => Entry(PAGE),
            _ => Entry(0),
        }
    }

    /// What `entry` means at `level`. Never trusts its input.
    pub(crate) const fn decode(self, level: Level, entry: Entry) -> Meaning {
        let raw = entry.0;
        if raw & VALID == 0 {
            return if raw & PRT != 0 {
                Meaning::Prt
            } else {
                Meaning::Invalid
            };
        }
        if matches!(level, Level::Ptb) && entry.is_no_retry() {
            return Meaning::NoRetry;
        }
        let page = match (self, level) {
            (_, Level::Ptb) => true,
            (Self::TranslateFurther, Level::Pdb0) => raw & TRANSLATE_FURTHER == 0,
            (_, Level::Pdb2) => {
                if raw & PDE_PTE != 0 {
                    return Meaning::Malformed;
                }
                false
            }
            _ => raw & PDE_PTE != 0,
        };
        if !page {
            return Meaning::Table {
                pa: raw & TABLE_ADDRESS,
                aperture: Aperture::of(raw),
            };
        }
        let pa = raw & PAGE_ADDRESS;
        if !num::is_aligned(pa, level.span()) {
            return Meaning::Malformed;
        }
        Meaning::Page {
            pa,
            attrs: PageAttrs {
                aperture: Aperture::of(raw),
                access: Access::of(raw),
                mtype: Mtype::from_bits(raw >> MTYPE_SHIFT),
                fragment: num::lo32((raw >> FRAGMENT_SHIFT) & FRAGMENT_MASK),
            },
        }
    }
}

/// Value of PAGE_TABLE_BASE and MAP_PROCESS for a root at `pa`.
///
/// # Errors
///
/// `Misaligned` unless `pa` is a multiple of 4 KiB; `TooWide` beyond 48 bits.
pub(crate) const fn page_table_base(pa: u64, aperture: Aperture) -> Result<u64, PteError> {
    if pa >> VA_BITS != 0 {
        return Err(PteError::TooWide(pa));
    }
    if !num::is_aligned(pa, TABLE_BYTES) {
        return Err(PteError::Misaligned(pa));
    }
    Ok(pa | aperture.bits() | VALID)
}

/// PTE of the flat table of VMID 0 (GART): a page of system memory, uncached by default.
///
/// # Errors
///
/// As [`Flavour::page`].
pub(crate) const fn gart(bus: u64, mtype: Mtype) -> Result<Entry, PteError> {
    Flavour::Plain.page(
        Level::Ptb,
        bus,
        PageAttrs {
            aperture: Aperture::System { snooped: true },
            access: Access::RWX,
            mtype,
            fragment: 0,
        },
    )
}

/// Physical address as page tables see VRAM at offset `offset`, given the FB offset of the hub.
pub(crate) const fn vram_pa(offset: u64, fb_offset: u64) -> Option<u64> {
    match offset.checked_add(fb_offset) {
        Some(pa) if pa >> VA_BITS == 0 => Some(pa),
        _ => None,
    }
}
