// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Directory entries are cached, and a page is there as a whole or not at all.

mod common;

use std::os::unix::fs::FileExt;

use common::fixture::Fixture;
use common::queue::write_data;
use common::{Bench, MIB, RAM, RAM_BUS};
use gpu_model::asic::{GFX906, GFX90A};
use gpu_model::mem::Phys;
use gpu_model::server::make_vram;

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

/// A process, which retries or does not, with a queue.
fn with_retry(b: Bench, retry: bool) -> Fixture {
    Fixture::on(b, 0x47, 4096, |b, p, _| {
        p.retry = retry;
        p.queue(b)
    })
}

/// Maps a page of 2 MiB, or of 1 GiB, and has the queue write to its beginning, of which memory is there.  Returns the
/// address that was written.
fn write_to_huge(f: &mut Fixture, gigabyte: bool, place: Phys) -> u64 {
    let va = 0x7200_4000_0000u64;
    let slot = if gigabyte {
        f.p.pde1_at(&mut f.b, va)
    } else {
        f.p.pde_at(&mut f.b, va)
    };
    // A directory entry that is a page has P; a leaf entry of a translate-further table is one.
    let p = if f.b.tf && !gigabyte { 0 } else { 1 << 54 };
    let entry = match place {
        Phys::Vram(at) => at | 0x71,
        Phys::Bus(at) => at | 0x73,
    };
    f.b.vram_write(slot, &(entry | p).to_le_bytes());
    f.b.flush_vmid(f.b.first_vmid());
    f.b.irqs();
    f.q.send(&mut f.b, &write_data(va + 0x100, 0xfeed));
    va + 0x100
}

/// The write has gone nowhere: a fault that is not retried, latched and told, and a mistake of the driver's.
fn is_refused(f: &mut Fixture, va: u64) {
    f.b.expect_errors(&["pte-to-nowhere"]);
    let vmid = f.b.first_vmid();
    // VM_L2_PROTECTION_FAULT_STATUS: no valid entry, no write permission, client CPC, a write, VMID.
    let gfx = f.b.hubs()[0].0;
    let status = f.b.rd(gfx + 0x2c);
    assert_eq!(status, (5 << 4) | (5 << 9) | (1 << 18) | (vmid << 20));
    let address = u64::from(f.b.rd(gfx + 0x30)) | (u64::from(f.b.rd(gfx + 0x34)) << 32);
    assert_eq!(address, va >> 12);
    let vectors = f.b.irqs();
    assert_eq!(vectors.len(), 1, "{vectors:x?}");
    let v = &vectors[0];
    // UTCL2; a write, without RETRY (0x80).
    assert_eq!((v.client, v.source, v.mm), (0x1b, 0, false));
    assert_eq!((v.ring_id, v.vmid, v.pasid), (0x28, vmid, 0x47));
    let page = [(va >> 12) as u32, ((va >> 44) as u32 & 0xf) | 0x20];
    assert_eq!(v.data[..2], page);
}

#[test]
fn a_huge_page_that_runs_off_memory_is_none() {
    const END: u64 = RAM_BUS + RAM;
    for asic in [&GFX90A, &GFX906] {
        for (inside, retry) in [(true, false), (false, false), (false, true)] {
            let mut f = with_retry(Bench::scheduled(asic), retry);
            if !inside {
                // The last page is gone.
                f.b.gpu.soc.mem.dma_unmap(END - 4096, 4096).unwrap();
            }
            let at = END - (2 << 20);
            let va = write_to_huge(&mut f, false, Phys::Bus(at));
            let seen = f.b.ram32(at + 0x100);
            assert_eq!(seen == 0xfeed, inside, "{}", asic.name);
            if inside {
                f.b.no_errors();
                assert!(f.b.irqs().is_empty());
            } else {
                is_refused(&mut f, va);
            }
        }
    }
}

/// VRAM ends in the middle of its last 2 MiB.
#[test]
fn a_huge_page_over_the_end_of_vram_is_none() {
    for asic in [&GFX90A, &GFX906] {
        for (at, inside) in [(60, true), (62, false)] {
            let b = Bench::with_vram(asic, 63 * MIB).schedule();
            let mut f = with_retry(b, false);
            let va = write_to_huge(&mut f, false, Phys::Vram(at * MIB));
            let mut seen = [0; 4];
            f.b.vram_read(at * MIB + 0x100, &mut seen);
            let written = u32::from_le_bytes(seen) == 0xfeed;
            assert_eq!(written, inside, "{} {at}", asic.name);
            if inside {
                f.b.no_errors();
                assert!(f.b.irqs().is_empty());
            } else {
                is_refused(&mut f, va);
            }
        }
    }
}

#[test]
fn a_page_of_a_gigabyte_is_there_as_a_whole() {
    const BUS: u64 = 0x2_0000_0000;
    const GIB: u64 = 1 << 30;
    for asic in [&GFX90A, &GFX906] {
        // All of it on the bus, all but its last page, and the beginning of VRAM, which has 64 MiB.
        for (place, there) in [
            (Phys::Bus(BUS), GIB),
            (Phys::Bus(BUS), GIB - 4096),
            (Phys::Vram(0), 0),
        ] {
            let mut f = with_retry(Bench::scheduled(asic), false);
            // Nothing of it is touched but the page that is written.
            let memory = make_vram(GIB).unwrap();
            let file = memory.try_clone().unwrap();
            if there != 0 {
                let mem = &f.b.gpu.soc.mem;
                mem.dma_map(BUS, there, Some((file, 0)), true).unwrap();
            }
            let va = write_to_huge(&mut f, true, place);
            let mut seen = [0; 4];
            memory.read_exact_at(&mut seen, 0x100).unwrap();
            let inside = there == GIB;
            let written = u32::from_le_bytes(seen) == 0xfeed;
            assert_eq!(written, inside, "{} {there:#x}", asic.name);
            if inside {
                f.b.no_errors();
                // Its end is a part of the page, too.
                let end = va + GIB - 0x200;
                f.q.send(&mut f.b, &write_data(end, 0xbeef));
                memory.read_exact_at(&mut seen, GIB - 0x100).unwrap();
                assert_eq!(u32::from_le_bytes(seen), 0xbeef);
                f.b.no_errors();
            } else {
                is_refused(&mut f, va);
            }
        }
    }
}
