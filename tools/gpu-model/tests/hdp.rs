// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the host writes to VRAM through BAR0 reaches the device at an HDP flush.

mod common;

use common::fixture::Fixture;
use common::proc::Proc;
use common::queue::{write_data, UserQueue};
use common::{Bench, Sys, FB};
use gpu_model::asic::{GFX906, GFX90A};
use gpu_model::mem::Phys;

#[test]
fn a_pte_that_was_not_flushed_is_not_seen() {
    for asic in [&GFX90A, &GFX906] {
        let mut f = Fixture::new(asic, 0x45, 4096);
        let (va, vmid) = (f.va, f.b.first_vmid());
        f.q.send(&mut f.b, &write_data(va, 1));
        let new = f.b.alloc_ram(4096);
        let at = f.p.pte_at(&mut f.b, va);
        f.b.vram_write(at, &(new | 0x77).to_le_bytes());
        f.b.flush_vmid_only(vmid);
        f.q.send(&mut f.b, &write_data(va, 2));
        assert_eq!((f.b.ram32(f.bus), f.b.ram32(new)), (2, 0), "the old page");
        f.b.hdp_flush();
        f.b.flush_vmid_only(vmid);
        f.q.send(&mut f.b, &write_data(va, 3));
        assert_eq!((f.b.ram32(f.bus), f.b.ram32(new)), (2, 3), "{}", asic.name);
        f.b.no_errors();
    }
}

/// INVALIDATE_TLBS by the KIQ, in both hubs.
fn invalidate(b: &mut Bench, pasid: u32) {
    b.submit_kiq(&[0xc000_9800, 1 | (1 << 4) | (pasid << 5) | (2 << 29)]);
    b.run();
}

/// A driver that tells the device that its tables are written, and has forgotten the flush.
#[test]
fn a_pte_that_was_not_flushed_before_an_invalidation() {
    for asic in [&GFX90A, &GFX906] {
        for (flush, rule) in [(true, true), (false, true), (false, false)] {
            let mut f = Fixture::new(asic, 0x45, 4096);
            if !rule {
                f.b.gpu.soc.rules.switch_off("pte-flush").unwrap();
            }
            let va = f.va;
            f.q.send(&mut f.b, &write_data(va, 1));
            let new = f.b.alloc_ram(4096);
            let at = f.p.pte_at(&mut f.b, va);
            f.b.vram_write(at, &(new | 0x77).to_le_bytes());
            if flush {
                f.b.hdp_flush();
            }
            invalidate(&mut f.b, 0x45);
            f.b.no_errors();
            f.q.send(&mut f.b, &write_data(va, 2));
            let pages = (f.b.ram32(f.bus), f.b.ram32(new));
            assert_eq!(pages, if flush { (1, 2) } else { (2, 0) }, "{}", asic.name);
            if flush || !rule {
                f.b.no_errors();
            } else {
                f.b.expect_errors(&["hdp-flush"]);
            }
        }
    }
}

/// What a driver does in between, and what a program does meanwhile, is nobody's mistake.
#[test]
fn a_pte_that_is_about_to_be_flushed() {
    let mut f = Fixture::new(&GFX90A, 0x45, 4096);
    f.preempt();
    let mut p2 = Proc::new(&mut f.b, 0x46, 1);
    let (va2, bus2) = p2.page(&mut f.b, 4096);
    let mut q2 = p2.queue(&mut f.b);
    let mut list = f.p.map_process(&f.b, 1);
    list.extend(f.q.map_queues());
    list.extend(p2.map_process(&f.b, 1));
    list.extend(q2.map_queues());
    f.b.run_list(&list, false, 2);
    f.b.run();
    let va = f.va;
    f.q.send(&mut f.b, &write_data(va, 1));
    q2.send(&mut f.b, &write_data(va2, 1));
    let new = f.b.alloc_ram(4096);
    let at = f.p.pte_at(&mut f.b, va);
    // The last change of the process is complete; its next one has begun.
    invalidate(&mut f.b, 0x45);
    f.b.vram_write(at, &(new | 0x77).to_le_bytes());
    f.q.send(&mut f.b, &write_data(va, 2));
    assert_eq!((f.b.ram32(f.bus), f.b.ram32(new)), (2, 0));
    f.b.no_errors();
    // Another process is invalidated, and a VMID, which says nothing of whose tables are written.
    invalidate(&mut f.b, 0x46);
    let vmid = f.b.first_vmid();
    f.b.flush_vmid_only(vmid);
    f.q.send(&mut f.b, &write_data(va, 3));
    q2.send(&mut f.b, &write_data(va2, 3));
    assert_eq!(
        (f.b.ram32(f.bus), f.b.ram32(new), f.b.ram32(bus2)),
        (3, 0, 3)
    );
    f.b.no_errors();
    f.b.hdp_flush();
    invalidate(&mut f.b, 0x45);
    f.q.send(&mut f.b, &write_data(va, 4));
    assert_eq!((f.b.ram32(f.bus), f.b.ram32(new)), (3, 4));
    // What the device writes itself needs no flush.
    let old = f.bus | 0x77;
    f.b.gpu
        .soc
        .mem
        .write(Phys::Vram(at), &old.to_le_bytes())
        .unwrap();
    invalidate(&mut f.b, 0x45);
    f.q.send(&mut f.b, &write_data(va, 5));
    assert_eq!((f.b.ram32(f.bus), f.b.ram32(new)), (5, 4));
    f.b.no_errors();
}

/// Writes the entry of a page of the GART.
fn set_gart(b: &Bench, gart: u64, bus: u64) {
    b.vram_write(b.gart_entry(gart), &(bus | 0x77).to_le_bytes());
}

/// Writes a dword by the KIQ.
fn write_by_kiq(b: &mut Bench, va: u64, v: u32) {
    b.submit_kiq(&write_data(va, v));
    b.run();
}

/// Only the driver uses the kernel's address space, so a request to an invalidation engine tells as much of it as
/// INVALIDATE_TLBS of a process.
#[test]
fn an_entry_of_the_gart_that_was_not_flushed_before_a_request() {
    for asic in [&GFX90A, &GFX906] {
        for (flush, rule) in [(true, true), (false, true), (false, false)] {
            let mut b = Bench::scheduled(asic);
            if !rule {
                b.gpu.soc.rules.switch_off("pte-flush").unwrap();
            }
            let page = b.alloc_sys(4096);
            write_by_kiq(&mut b, page.gart, 1);
            let new = b.alloc_ram(4096);
            set_gart(&b, page.gart, new);
            if flush {
                b.hdp_flush();
            }
            b.flush_vmid_only(0);
            b.no_errors();
            write_by_kiq(&mut b, page.gart, 2);
            let pages = (b.ram32(page.bus), b.ram32(new));
            assert_eq!(pages, if flush { (1, 2) } else { (2, 0) }, "{}", asic.name);
            if flush || !rule {
                b.no_errors();
            } else {
                b.expect_errors(&["hdp-flush"]);
            }
        }
    }
}

/// Threads of a driver write entries of pages of their own, each flushes what it has written, and uses it then.
#[test]
fn an_entry_of_the_gart_that_another_thread_is_about_to_flush() {
    let mut b = Bench::scheduled(&GFX90A);
    let (mine, other) = (b.alloc_sys(4096), b.alloc_sys(4096));
    write_by_kiq(&mut b, mine.gart, 1);
    write_by_kiq(&mut b, other.gart, 1);
    let new = [b.alloc_ram(4096), b.alloc_ram(4096)];
    set_gart(&b, mine.gart, new[0]);
    b.hdp_flush();
    // The other thread begins between flush and request.
    set_gart(&b, other.gart, new[1]);
    b.flush_vmid_only(0);
    write_by_kiq(&mut b, mine.gart, 2);
    assert_eq!((b.ram32(mine.bus), b.ram32(new[0])), (1, 2));
    b.hdp_flush();
    b.flush_vmid_only(0);
    write_by_kiq(&mut b, other.gart, 2);
    assert_eq!((b.ram32(other.bus), b.ram32(new[1])), (1, 2));
    b.no_errors();
}

#[test]
fn each_way_to_flush_works_and_no_other() {
    // Remapped, BIF register, request of a client; the register flush is none of memory.
    for (register, flushes) in [
        (0x7f000u64, true),
        (0x385c, true),
        (0x3898, true),
        (0x7f004, false),
    ] {
        let mut f = Fixture::new(&GFX90A, 0x45, 4096);
        let (va, vmid) = (f.va, f.b.first_vmid());
        f.q.send(&mut f.b, &write_data(va, 1));
        let new = f.b.alloc_ram(4096);
        let at = f.p.pte_at(&mut f.b, va);
        f.b.vram_write(at, &(new | 0x77).to_le_bytes());
        let before = f.b.gpu.soc.log.stats.hdp_flushes;
        f.b.wr(register, 0);
        let counted = f.b.gpu.soc.log.stats.hdp_flushes - before;
        f.b.flush_vmid_only(vmid);
        f.q.send(&mut f.b, &write_data(va, 2));
        assert_eq!(f.b.ram32(new) == 2, flushes, "{register:#x}");
        assert_eq!(counted, u64::from(flushes), "{register:#x}");
        f.b.no_errors();
    }
}

/// A queue whose MQD lies in VRAM.
fn in_vram(b: &mut Bench, p: &mut Proc, sdma: bool) -> (UserQueue, u64) {
    let mut q = if sdma {
        p.sdma_queue(b, 0, 0)
    } else {
        p.queue(b)
    };
    let at = b.alloc_vram(8192);
    let mut image = b.words(q.mqd.bus, 512);
    q.mqd.gart = FB + at;
    if !sdma {
        image[128] = q.mqd.gart as u32;
        image[129] = (q.mqd.gart >> 32) as u32;
    }
    let bytes: Vec<u8> = image.iter().flat_map(|w| w.to_le_bytes()).collect();
    b.vram_write(at, &bytes);
    b.hdp_flush();
    (q, at)
}

/// Takes all queues off, without a fence: allocating one would flush.
fn unmap(b: &mut Bench) {
    b.submit_hiq(&[0xc004_a300, 3 << 4, 0, 0, 0, 0]);
    b.run();
    b.no_errors();
}

/// Submits a run list again that is in memory.
fn run_again(b: &mut Bench, ib: &Sys, dwords: usize) {
    b.submit_hiq(&[
        0xc002_a500,
        ib.gart as u32,
        (ib.gart >> 32) as u32,
        dwords as u32 | (1 << 23) | (1 << 24),
    ]);
    b.run();
}

#[test]
fn an_mqd_that_was_not_flushed() {
    // With the flush, without it, and without the rule.
    let drivers = [(true, true), (false, true), (false, false)];
    for (asic, sdma) in [
        (&GFX90A, false),
        (&GFX906, false),
        (&GFX90A, true),
        (&GFX906, true),
    ] {
        // Somebody else flushes before the driver writes, once or often, or nobody does.
        for others in [0, 1, 5] {
            for (flush, rule) in drivers {
                let mut b = Bench::scheduled(asic);
                if !rule {
                    b.gpu.soc.rules.switch_off("mqd-flush").unwrap();
                }
                let mut p = Proc::new(&mut b, 0x46, 0);
                let (q, at) = in_vram(&mut b, &mut p, sdma);
                let mut list = p.map_process(&b, 1);
                list.extend(q.map_queues());
                let ib = b.run_list(&list, false, 1);
                b.run();
                unmap(&mut b);
                for _ in 0..others {
                    b.hdp_flush();
                }
                // A new priority; another ring.
                let ring = (q.va >> 8) as u32;
                let (dw, old, new) = if sdma { (1, ring, 0x10) } else { (134, 0, 9) };
                b.vram_write(at + dw * 4, &u32::to_le_bytes(new));
                if flush {
                    b.hdp_flush();
                }
                run_again(&mut b, &ib, list.len());
                let seen = if sdma {
                    b.rlc_reg((0, 0), 1)
                } else {
                    b.wr(0x8088, common::fixture::FIRST);
                    let seen = b.rd(common::direct::hqd(134));
                    b.wr(0x8088, 0);
                    seen
                };
                let case = format!("{} {sdma} {others} {flush} {rule}", asic.name);
                if flush || !rule {
                    b.no_errors();
                    assert_eq!(seen, new, "{case}");
                } else {
                    b.expect_errors(&["hdp-flush"]);
                    assert_eq!(seen, old, "{case}: it runs with what was there before");
                }
            }
        }
    }
}

/// What the device writes into an MQD needs no flush, nor does memory that was an MQD and is something else now.
#[test]
fn an_mqd_that_needs_no_flush() {
    for asic in [&GFX90A, &GFX906] {
        let mut b = Bench::scheduled(asic);
        let mut p = Proc::new(&mut b, 0x46, 0);
        let (mut q, at) = in_vram(&mut b, &mut p, false);
        let (va, bus) = p.page(&mut b, 4096);
        let mut list = p.map_process(&b, 1);
        list.extend(q.map_queues());
        let ib = b.run_list(&list, false, 1);
        b.run();
        for round in 1..4 {
            q.send(&mut b, &write_data(va, round));
            b.hdp_flush();
            // Its pointers go to the MQD, behind the flush.
            unmap(&mut b);
            run_again(&mut b, &ib, list.len());
            b.no_errors();
            assert_eq!(b.ram32(bus), round);
        }
        unmap(&mut b);
        let mut saved = [0; 2048];
        b.vram_read(at, &mut saved);
        // The memory is given to a program, and comes back.
        b.vram_write(at, &[0xee; 2048]);
        b.run_for(1_000_000);
        b.hdp_flush();
        b.vram_write(at, &[0xdd; 2048]);
        b.no_errors();
        b.vram_write(at, &saved);
        b.hdp_flush();
        run_again(&mut b, &ib, list.len());
        b.no_errors();
        q.send(&mut b, &write_data(va, 9));
        assert_eq!(b.ram32(bus), 9, "{}", asic.name);
        b.no_errors();
    }
}

#[test]
fn vram_is_noise_at_first_and_after_a_reset() {
    let mut b = Bench::new(&GFX90A);
    let noisy = |b: &Bench, at: u64| {
        let mut page = [0u8; 4096];
        b.vram_read(at, &mut page);
        page.chunks(8).all(|w| w != [0; 8])
    };
    let places = [0, 4096, (64 << 20) - 4096, 5 << 20, 40 << 20];
    assert!(places.iter().all(|&at| noisy(&b, at)));
    b.vram_write(5 << 20, &[0; 8192]);
    // Mode-1 reset through the PSP.
    b.wr(0x58200, 0x0007_0000);
    b.run();
    assert!(places.iter().all(|&at| noisy(&b, at)));
}
