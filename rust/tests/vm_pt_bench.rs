// SPDX-License-Identifier: GPL-2.0

//! A simulated VRAM for page tables, and an independent walker.
//!
//! The walker decodes raw entries with bit positions of its own, as the hardware contract gives
//! them, so that an encoding error cannot cancel out.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

use crate::{
    hw::pte::{
        Access,
        Aperture,
        Flavour,
        Level,
        Mtype,
        PageAttrs, //
    },
    vm::pt::{
        Reserve,
        Run,
        Store,
        TableCount,
        Tree,
        PAGE, //
    },
};

/// Where the simulated VRAM lies.
const VRAM: u64 = 0x12_0000_0000;
/// Content of a table that is not allocated: V, S, no access, no such address.
const POISON: u64 = 0xdead_dead_dead_d003;
pub(super) const FLAVOURS: [Flavour; 2] = [Flavour::Plain, Flavour::TranslateFurther];

/// Simulated VRAM.
#[derive(Default)]
struct State {
    /// 512 words per block.
    words: KVVec<u64>,
    free: KVVec<usize>,
    /// Blocks written since the last publish.
    dirty: KVVec<bool>,
    /// Allocations to allow before `ENOMEM`.
    budget: usize,
    live: usize,
    written: usize,
    /// Entries written that point to a table whose content was not published.
    early_links: usize,
}

#[pin_data]
struct Sim {
    #[pin]
    state: Mutex<State>,
}

pub(super) struct Block {
    sim: Arc<Sim>,
    index: usize,
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut state = self.sim.state.lock();
        let words = state.words.iter_mut();
        for word in words.skip(self.index * 512).take(512) {
            *word = POISON;
        }
        let _ = state.free.push(self.index, GFP_KERNEL);
        state.live -= 1;
    }
}

pub(super) struct SimStore(Arc<Sim>);

impl SimStore {
    pub(super) fn new() -> Result<Self> {
        let state = State {
            budget: usize::MAX,
            ..State::default()
        };
        let sim = Arc::pin_init(
            try_pin_init!(Sim {
                state <- new_mutex!(state),
            }? Error),
            GFP_KERNEL,
        )?;
        Ok(Self(sim))
    }

    pub(super) fn live(&self) -> usize {
        self.0.state.lock().live
    }

    pub(super) fn written(&self) -> usize {
        self.0.state.lock().written
    }

    pub(super) fn early_links(&self) -> usize {
        self.0.state.lock().early_links
    }

    pub(super) fn set_budget(&self, allocations: usize) {
        self.0.state.lock().budget = allocations;
    }

    /// The word at a physical address, if it lies in the VRAM.
    pub(super) fn word(&self, pa: u64) -> Option<u64> {
        let index = usize::try_from(pa.checked_sub(VRAM)? / 8).ok()?;
        self.0.state.lock().words.get(index).copied()
    }
}

impl Store for SimStore {
    type Block = Block;

    fn alloc(&self) -> Result<Block> {
        let mut state = self.0.state.lock();
        state.budget = state.budget.checked_sub(1).ok_or(ENOMEM)?;
        let index = match state.free.pop() {
            Some(index) => index,
            None => {
                let index = state.dirty.len();
                state.words.extend_with(512, POISON, GFP_KERNEL)?;
                state.dirty.push(false, GFP_KERNEL)?;
                index
            }
        };
        state.live += 1;
        Ok(Block {
            sim: self.0.clone(),
            index,
        })
    }

    fn write(&self, block: &Block, first: usize, entries: &[u64]) {
        let mut state = self.0.state.lock();
        if let Some(dirty) = state.dirty.get_mut(block.index) {
            *dirty = true;
        }
        state.written += entries.len();
        for (offset, entry) in entries.iter().enumerate() {
            // Ordinary pages of the tests lie below `VRAM`.
            let pa = entry & 0xffff_ffff_f000;
            if entry & 1 != 0 && pa >= VRAM {
                // CAST: The simulated VRAM is small.
                let target = ((pa - VRAM) / PAGE) as usize;
                if state.dirty.get(target) == Some(&true) {
                    state.early_links += 1;
                }
            }
            if let Some(word) = state.words.get_mut(block.index * 512 + first + offset) {
                *word = *entry;
            }
        }
    }

    fn publish(&self) {
        for dirty in self.0.state.lock().dirty.iter_mut() {
            *dirty = false;
        }
    }

    fn pa(block: &Block) -> u64 {
        VRAM + block.index as u64 * PAGE
    }
}

/// What the hardware would find at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) pa: u64,
    pub(super) flags: u64,
    pub(super) fragment: u32,
    /// By an entry of a PDB0.
    pub(super) huge: bool,
    /// By an entry of a PDB1.
    pub(super) giant: bool,
}

/// Walks raw tables as the contract says the hardware does.
pub(super) fn walk(
    store: &SimStore,
    root: u64,
    flavour: Flavour,
    va: u64,
) -> Result<Option<Found>> {
    let further = flavour == Flavour::TranslateFurther;
    let mut table = root;
    for (level, shift) in [39u32, 30, 21, 12].into_iter().enumerate() {
        let index = (va >> shift) & 511;
        let entry = store.word(table + index * 8).ok_or(EIO)?;
        if entry == POISON {
            return Err(EFAULT);
        }
        if entry & 1 == 0 {
            return Ok(None);
        }
        let is_page = match (level, further) {
            (3, _) => true,
            (2, true) => entry & (1 << 56) == 0,
            _ => entry & (1 << 54) != 0,
        };
        if !is_page {
            if level == 1 && further && entry >> 59 != 9 {
                return Err(EPROTO);
            }
            if entry & 2 != 0 {
                return Err(EPROTO);
            }
            table = entry & 0xffff_ffff_ffc0;
            continue;
        }
        if level < 1 {
            return Err(EPROTO);
        }
        if level == 2 && further && entry & (1 << 54) != 0 {
            return Err(EPROTO);
        }
        let offset = va & ((1 << shift) - 1) & !(PAGE - 1);
        return Ok(Some(Found {
            pa: (entry & 0xffff_ffff_f000) + offset,
            flags: entry & 0x0600_0000_0000_007f,
            fragment: ((entry >> 7) & 31) as u32,
            huge: level == 2,
            giant: level == 1,
        }));
    }
    Err(EIO)
}

pub(super) const RW: PageAttrs = PageAttrs {
    aperture: Aperture::System { snooped: true },
    access: Access::RW,
    mtype: Mtype::Uc,
    fragment: 0,
};
/// V, S, C, R, W, MTYPE UC.
pub(super) const RW_FLAGS: u64 = 0x0600_0000_0000_0067;

pub(super) const RX: PageAttrs = PageAttrs {
    aperture: Aperture::Vram,
    access: Access {
        read: true,
        write: false,
        execute: true,
    },
    mtype: Mtype::Rw,
    fragment: 0,
};
/// V, X, R, MTYPE RW.
pub(super) const RX_FLAGS: u64 = 0x0200_0000_0000_0031;

/// A tree in its simulated VRAM.
pub(super) struct Bench {
    pub(super) store: SimStore,
    pub(super) tree: Tree<Block>,
    pub(super) flavour: Flavour,
    /// Whether the last update asked for a TLB flush.
    pub(super) stale: bool,
}

impl Bench {
    pub(super) fn new(flavour: Flavour) -> Result<Self> {
        let store = SimStore::new()?;
        let tree = Tree::new(&store, flavour)?;
        Ok(Self {
            store,
            tree,
            flavour,
            stale: false,
        })
    }

    pub(super) fn need(&self, va: u64, runs: &[Run]) -> TableCount {
        self.tree.missing(va, runs)
    }

    pub(super) fn map(&mut self, va: u64, runs: &[Run], attrs: PageAttrs) -> Result {
        let mut reserve = Reserve::new();
        reserve.fill(&self.store, self.flavour, self.tree.missing(va, runs))?;
        let changed = self.tree.map(&self.store, &mut reserve, va, runs, attrs)?;
        // What `missing` counted is exactly what was used.
        for level in [Level::Ptb, Level::Pdb0, Level::Pdb1] {
            if reserve.len(level) != 0 {
                return Err(E2BIG);
            }
        }
        self.stale = changed.stale;
        Ok(())
    }

    pub(super) fn unmap(&mut self, va: u64, len: u64) -> Result {
        let mut reserve = Reserve::new();
        reserve.fill(
            &self.store,
            self.flavour,
            self.tree.missing_for_unmap(va, len),
        )?;
        let changed = self.tree.unmap(&self.store, &mut reserve, va, len)?;
        self.stale = changed.stale;
        Ok(())
    }

    pub(super) fn at(&self, va: u64) -> Result<Option<Found>> {
        walk(
            &self.store,
            SimStore::pa(self.tree.root()),
            self.flavour,
            va,
        )
    }

    pub(super) fn pa(&self, va: u64) -> Result<Option<u64>> {
        Ok(self.at(va)?.map(|found| found.pa))
    }

    /// Tables by level, leaves first.
    pub(super) fn tables(&self) -> [usize; 4] {
        [Level::Ptb, Level::Pdb0, Level::Pdb1, Level::Pdb2].map(|level| self.tree.tables(level))
    }
}

pub(super) fn run(addr: u64, len: u64) -> [Run; 1] {
    [Run { addr, len }]
}
