// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The page-table walker, a function of registers and memory only.
//!
//! Formats: `amdgpu_vm.h` and `gmc_v9_0.c` of Linux.

use super::hub::Context;
use super::Access;
use crate::mem::{Map, Phys};

/// PTE and PDE bits.
pub mod bits {
    /// Valid.
    pub const V: u64 = 1 << 0;
    /// System memory.
    pub const S: u64 = 1 << 1;
    /// Executable.
    pub const X: u64 = 1 << 4;
    /// Readable.
    pub const R: u64 = 1 << 5;
    /// Writable.
    pub const W: u64 = 1 << 6;
    /// Partially resident texture: reads zero, writes vanish.
    pub const T: u64 = 1 << 51;
    /// This PDE is a PTE.
    pub const P: u64 = 1 << 54;
    /// This leaf PTE points to a further table.
    pub const F: u64 = 1 << 56;
    /// Address field of a PTE.
    pub const PTE_ADDR: u64 = 0x0000_FFFF_FFFF_F000;
    /// Address field of a PDE.
    pub const PDE_ADDR: u64 = 0x0000_FFFF_FFFF_FFC0;
}
use bits::{F, P, PDE_ADDR, PTE_ADDR, R, S, T, V, W, X};

/// A translated page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// First byte of the page; `None` for a PRT page, which reads zero and drops writes.
    pub phys: Option<Phys>,
    /// log2 of the page size.
    pub shift: u32,
    /// log2 of the size of the page in the tables, of which this may be a part.
    pub whole: u32,
    /// The permission bits R, W and X of the entry.
    pub perms: u64,
}

impl Page {
    /// The part of size `1 << shift` that holds `va`.
    pub fn narrowed(self, va: u64, shift: u32) -> Page {
        if shift >= self.shift {
            return self;
        }
        let off = va & ((1 << self.shift) - 1) & !((1 << shift) - 1);
        Page {
            phys: self.phys.map(|p| p.offset(off)),
            shift,
            ..self
        }
    }

    /// Whether the entry permits the access.
    pub fn permits(self, access: Access) -> bool {
        self.phys.is_none() || self.perms & access.needs() == access.needs()
    }
}

/// Why a walk failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkFault {
    /// The context is disabled.
    Disabled,
    /// Outside START..END or not a canonical address.
    Range,
    /// A directory entry is invalid; the number counts levels from the root.
    InvalidPde(u32),
    /// The leaf entry is invalid.
    InvalidPte(u64),
    /// The leaf entry is one that forces a fault without retry.
    ForcedNoRetry(u64),
    /// A table or page lies at a place where nothing answers.  This is a mistake of whoever wrote the entry.
    Nowhere {
        /// The entry (or root pointer) at fault.
        entry: u64,
        /// Where it points to.
        target: Phys,
        /// Levels below the root.
        level: u32,
    },
    /// A table lies on the bus, and bus mastering is off.
    Blocked,
    /// An entry that the format forbids.
    Malformed {
        /// The entry.
        entry: u64,
        /// Levels below the root.
        level: u32,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// Bits of a page number that are significant at 48 address bits.
const VA_MASK: u64 = 0x0000_FFFF_FFFF_FFFF;

/// Directory entries that a walk may use instead of those in memory, and where it leaves those it has read.
pub trait Directories {
    /// The cached entry of a level (counted from the root) that covers a page number.
    fn get(&self, level: u32, pfn: u64, covers: u32) -> Option<u64>;
    /// Keeps a valid entry that leads to a table.
    fn put(&mut self, level: u32, pfn: u64, covers: u32, entry: u64);
}

/// No cache.
impl Directories for () {
    fn get(&self, _: u32, _: u64, _: u32) -> Option<u64> {
        None
    }
    fn put(&mut self, _: u32, _: u64, _: u32, _: u64) {}
}

/// Walks the tables of `ctx` for `va`.
///
/// `fb_offset` is subtracted from VRAM addresses in entries.  Permissions are not checked here, so that a cached
/// translation and a fresh one take the same path.
///
/// # Errors
/// See [`WalkFault`].
pub fn walk(
    mem: &Map,
    ctx: &Context,
    fb_offset: u64,
    va: u64,
    dirs: &mut impl Directories,
) -> Result<Page, WalkFault> {
    if !ctx.enabled {
        return Err(WalkFault::Disabled);
    }
    let top = va >> 47;
    if top != 0 && top != 0x1_FFFF {
        return Err(WalkFault::Range);
    }
    let pfn = (va & VA_MASK) >> 12;
    if pfn < ctx.start || pfn > ctx.end {
        return Err(WalkFault::Range);
    }
    let mut entry = ctx.base;
    let mut index_base = pfn;
    if ctx.depth == 0 {
        // A flat table starts at START; deeper trees are indexed by the address itself.
        index_base = pfn - ctx.start;
    }
    if entry & V == 0 {
        return Err(WalkFault::InvalidPde(0));
    }
    let mut level = 0;
    loop {
        let below = ctx.depth.saturating_sub(level);
        // Pages (log2) that one entry of this level covers.
        let covers = if below == 0 {
            ctx.block_size
        } else {
            ctx.block_size + 9 * below
        };
        let index = if level == 0 && ctx.depth == 0 {
            index_base >> covers
        } else {
            (index_base >> covers) & 0x1FF
        };
        let table = target(entry, PDE_ADDR, fb_offset);
        let slot = table.offset(index * 8);
        let cached = dirs.get(level, pfn, covers);
        let next = match cached {
            Some(cached) => cached,
            None => entry_at(mem, slot, ctx.base, entry, level)?,
        };
        if below == 0 {
            if ctx.block_size != 0 && next & (F | V) == F | V {
                dirs.put(level, pfn, covers, next);
            }
            return leaf(mem, next, fb_offset, pfn, level, ctx);
        }
        if next & V == 0 {
            return if next & T != 0 && next & P != 0 {
                Ok(Page {
                    phys: None,
                    shift: 12 + covers,
                    whole: 12 + covers,
                    perms: 0,
                })
            } else {
                Err(WalkFault::InvalidPde(level))
            };
        }
        if next & P != 0 {
            return page(next, fb_offset, 12 + covers, level);
        }
        // The block fragment size tells the hardware how much a leaf entry covers.
        if below == 1 && ctx.block_size != 0 && next >> 59 != u64::from(ctx.block_size) {
            let why = "block fragment size does not match PAGE_TABLE_BLOCK_SIZE";
            return Err(WalkFault::Malformed {
                entry: next,
                level,
                why,
            });
        }
        dirs.put(level, pfn, covers, next);
        entry = next;
        level += 1;
    }
}

/// Reads the entry in a slot of the table that `parent` points to, of the tree with this root.
fn entry_at(mem: &Map, slot: Phys, root: u64, parent: u64, level: u32) -> Result<u64, WalkFault> {
    mem.read_entry(slot, root).map_err(|_| {
        if mem.blocked(slot) {
            return WalkFault::Blocked;
        }
        WalkFault::Nowhere {
            entry: parent,
            target: slot,
            level,
        }
    })
}

/// The leaf level: a page, or with F a table of 4 KiB pages.
fn leaf(
    mem: &Map,
    entry: u64,
    fb_offset: u64,
    pfn: u64,
    level: u32,
    ctx: &Context,
) -> Result<Page, WalkFault> {
    let block_size = ctx.block_size;
    if block_size == 0 || entry & F == 0 || entry & V == 0 {
        if block_size != 0 && entry & (V | P) == V | P {
            let why = "P set in a translate-further leaf entry";
            return Err(WalkFault::Malformed { entry, level, why });
        }
        return finish(entry, fb_offset, 12 + block_size, level);
    }
    let table = target(entry, PDE_ADDR, fb_offset);
    let slot = table.offset((pfn & ((1 << block_size) - 1)) * 8);
    let pte = entry_at(mem, slot, ctx.base, entry, level + 1)?;
    finish(pte, fb_offset, 12, level + 1)
}

fn finish(pte: u64, fb_offset: u64, shift: u32, level: u32) -> Result<Page, WalkFault> {
    if pte & V == 0 {
        return if pte & T != 0 {
            Ok(Page {
                phys: None,
                shift,
                whole: shift,
                perms: 0,
            })
        } else {
            Err(WalkFault::InvalidPte(pte))
        };
    }
    if pte & (T | S) == T | S && pte & (R | W | X) == 0 {
        return Err(WalkFault::ForcedNoRetry(pte));
    }
    page(pte, fb_offset, shift, level)
}

fn page(pte: u64, fb_offset: u64, shift: u32, level: u32) -> Result<Page, WalkFault> {
    let at = target(pte, PTE_ADDR, fb_offset);
    let base = match at {
        Phys::Vram(a) | Phys::Bus(a) => a,
    };
    if base & ((1 << shift) - 1) != 0 {
        let why = "page address is not aligned to the page size";
        return Err(WalkFault::Malformed {
            entry: pte,
            level,
            why,
        });
    }
    Ok(Page {
        phys: Some(at),
        shift,
        whole: shift,
        perms: pte & (R | W | X),
    })
}

fn target(entry: u64, mask: u64, fb_offset: u64) -> Phys {
    let a = entry & mask;
    if entry & S != 0 {
        Phys::Bus(a)
    } else {
        Phys::Vram(a.wrapping_sub(fb_offset))
    }
}
