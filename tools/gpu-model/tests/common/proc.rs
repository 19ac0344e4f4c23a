// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A GPU process: page tables as the driver writes them, and the packets that describe it.

use super::{queue::UserQueue, Bench};

pub const RW: u64 = 0x70; // X | R | W

pub struct Proc {
    pub pasid: u16,
    /// VRAM offset of the root (PDB2).
    pub root: u64,
    pub doorbells: u64,
    pub retry: bool,
    /// Resources of global wave sync.
    pub gws: u32,
    next_va: u64,
    next_id: u64,
}

impl Proc {
    pub fn new(b: &mut Bench, pasid: u16, slice: u64) -> Self {
        let root = b.alloc_vram(4096);
        b.vram_write(root, &[0; 4096]);
        // User addresses above 2^40, so that PQ_BASE_HI is not 0.
        Self {
            pasid,
            root,
            doorbells: 0x10_0000 + slice * 0x2000,
            retry: false,
            gws: 0,
            next_va: 0x7000_0000_0000,
            next_id: 0,
        }
    }

    fn table(b: &mut Bench, at: u64, flags: u64) -> u64 {
        let mut e = [0; 8];
        b.vram_read(at, &mut e);
        let old = u64::from_le_bytes(e);
        if old & 1 != 0 {
            return old & 0xffff_ffff_ffc0;
        }
        let t = b.alloc_vram(4096);
        b.vram_write(t, &[0; 4096]);
        b.vram_write(at, &(t | 1 | flags).to_le_bytes());
        b.hdp_flush();
        t
    }

    /// VRAM offset of the 4 KiB PTE of an address, building tables.
    pub fn pte_at(&self, b: &mut Bench, va: u64) -> u64 {
        let i = |s: u32| ((va >> s) & 0x1ff) * 8;
        // With translate_further: PDB1 entries carry BFS 9, PDB0 entries carry F.
        let (bfs, f) = if b.tf { (9 << 59, 1 << 56) } else { (0, 0) };
        let pdb1 = Self::table(b, self.root + i(39), 0);
        let pdb0 = Self::table(b, pdb1 + i(30), bfs);
        let ptb = Self::table(b, pdb0 + i(21), f);
        ptb + i(12)
    }

    pub fn set_pte(&self, b: &mut Bench, va: u64, pte: u64) {
        let at = self.pte_at(b, va);
        b.vram_write(at, &pte.to_le_bytes());
        b.hdp_flush();
    }

    /// VRAM offset of the PDB0 entry of an address, building the tables above.
    pub fn pde_at(&self, b: &mut Bench, va: u64) -> u64 {
        let i = |s: u32| ((va >> s) & 0x1ff) * 8;
        let bfs = if b.tf { 9 << 59 } else { 0 };
        let pdb1 = Self::table(b, self.root + i(39), 0);
        Self::table(b, pdb1 + i(30), bfs) + i(21)
    }

    /// VRAM offset of the PDB1 entry of an address, building the table above.
    pub fn pde1_at(&self, b: &mut Bench, va: u64) -> u64 {
        Self::table(b, self.root + ((va >> 39) & 0x1ff) * 8, 0) + ((va >> 30) & 0x1ff) * 8
    }

    /// Maps guest RAM at an address of its own.
    pub fn map_ram(&mut self, b: &mut Bench, bus: u64, size: u64) -> u64 {
        let va = self.next_va;
        self.next_va += size.next_multiple_of(4096) + 4096;
        for p in (0..size).step_by(4096) {
            self.set_pte(b, va + p, (bus + p) | 7 | RW);
        }
        va
    }

    /// A page of guest RAM, mapped: (GPU address, bus address).
    pub fn page(&mut self, b: &mut Bench, size: u64) -> (u64, u64) {
        let bus = b.alloc_ram(size);
        (self.map_ram(b, bus, size), bus)
    }

    pub fn queue(&mut self, b: &mut Bench) -> UserQueue {
        let id = self.next_id;
        self.next_id += 1;
        UserQueue::new(b, self, id)
    }

    pub fn sdma_queue(&mut self, b: &mut Bench, engine: u32, n: u64) -> UserQueue {
        let id = 0x100 + 0xa * u64::from(engine) + (n & 1) * 512 + (n >> 1);
        UserQueue::new_sdma(b, self, engine, id)
    }

    /// MAP_PROCESS of this ASIC.
    pub fn map_process(&self, b: &Bench, queues: u32) -> Vec<u32> {
        let mut p = vec![0u32; if b.tf { 21 } else { 16 }];
        p[0] = if b.tf { 0xc013_a100 } else { 0xc00e_a100 };
        p[1] = u32::from(self.pasid) | (10 << 25);
        p[2] = (self.root | 1) as u32;
        p[3] = (self.root >> 32) as u32;
        p[4] = 0x0001_0002;
        p[5] = if self.retry { 0x18 } else { 0x1018 };
        p[13] = self.gws | (1 << 7) | (queues << 22);
        p
    }
}
