// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Directory entries are cached, and a page is there as a whole or not at all.

mod common;

use common::fixture::Fixture;
use common::queue::write_data;
use gpu_model::asic::{GFX906, GFX90A};

#[test]
fn a_table_that_is_freed_before_the_flush_is_still_walked() {
    for asic in [&GFX90A, &GFX906] {
        let mut f = Fixture::new(asic, 0x47, 4096);
        let (va, vmid) = (f.va, f.b.first_vmid());
        f.q.send(&mut f.b, &write_data(va, 1));
        // Another page of the same table: not cached, but its directory entry is.
        let next = va + 0x5_0000;
        let (old, new) = (f.b.alloc_ram(4096), f.b.alloc_ram(4096));
        let at = f.p.pte_at(&mut f.b, next);
        f.b.vram_write(at, &(old | 0x77).to_le_bytes());
        // A second table takes the place of the first, which is freed.
        let table = f.b.alloc_vram(4096);
        let mut entries = [0; 4096];
        f.b.vram_read(at & !0xfff, &mut entries);
        f.b.vram_write(table, &entries);
        f.b.vram_write(table | (at & 0xfff), &(new | 0x77).to_le_bytes());
        let pde = f.p.pde_at(&mut f.b, next);
        let mut entry = [0; 8];
        f.b.vram_read(pde, &mut entry);
        let flags = u64::from_le_bytes(entry) & !0xffff_ffff_f000;
        f.b.vram_write(pde, &(table | flags).to_le_bytes());
        f.b.hdp_flush();
        f.q.send(&mut f.b, &write_data(next, 2));
        assert_eq!((f.b.ram32(old), f.b.ram32(new)), (2, 0), "{}", asic.name);
        // Only the translations are dropped: L1_PTES and L2_PTES.
        let gfx = f.b.hubs()[0].0;
        f.b.wr(
            gfx + 0x18c + 68,
            (1 << vmid) | (2 << 16) | (1 << 18) | (1 << 22),
        );
        f.b.await_ack(gfx, 17, 1 << vmid);
        f.q.send(&mut f.b, &write_data(next, 3));
        assert_eq!((f.b.ram32(old), f.b.ram32(new)), (3, 0));
        f.b.flush_vmid(vmid);
        f.q.send(&mut f.b, &write_data(next, 4));
        assert_eq!((f.b.ram32(old), f.b.ram32(new)), (3, 4));
        f.b.no_errors();
    }
}

#[test]
fn a_huge_page_that_runs_off_memory_is_none() {
    for asic in [&GFX90A, &GFX906] {
        for inside in [true, false] {
            let mut f = Fixture::new(asic, 0x47, 4096);
            let va = 0x7200_0020_0000u64;
            let pde = f.p.pde_at(&mut f.b, va);
            let flags = if f.b.tf { 0x73 } else { 0x73 | (1 << 54) };
            // The last 2 MiB of guest RAM, or the 2 MiB that begin with its last.
            let bus = common::RAM_BUS + common::RAM - if inside { 2 << 20 } else { 0 };
            let bus = if inside { bus } else { bus - (2 << 20) };
            if !inside {
                f.b.gpu.soc.mem.dma_unmap_all();
                let ram = f.b.ram_file();
                f.b.gpu
                    .soc
                    .mem
                    .dma_map(common::RAM_BUS, common::RAM - 4096, Some((ram, 0)), true)
                    .unwrap();
            }
            f.b.vram_write(pde, &(bus | flags).to_le_bytes());
            f.b.hdp_flush();
            f.b.flush_vmid(f.b.first_vmid());
            f.q.send(&mut f.b, &write_data(va + 0x100, 0xfeed));
            let seen = f.b.ram32(bus + 0x100);
            if inside {
                f.b.no_errors();
                assert_eq!(seen, 0xfeed, "{}", asic.name);
            } else {
                f.b.expect_errors(&["pte-to-nowhere"]);
                assert_ne!(seen, 0xfeed);
            }
        }
    }
}
