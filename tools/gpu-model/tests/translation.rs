// SPDX-License-Identifier: GPL-2.0 OR MIT
//! GPU virtual memory seen through queues: pages of all sizes, permissions, faults, stale translations.

mod common;

use common::fixture::Fixture;
use common::queue::write_data;
use common::SeenIv;
use gpu_model::asic::{Asic, GFX906, GFX90A};

fn fixture(asic: &'static Asic, retry: bool) -> Fixture {
    Fixture::with(asic, 0x51, 4096, |b, p, _| {
        p.retry = retry;
        p.queue(b)
    })
}

fn address(iv: &SeenIv) -> u64 {
    (u64::from(iv.data[0]) << 12) | (u64::from(iv.data[1] & 0xf) << 44)
}

/// COPY_DATA of 32 bits, memory to memory.
fn copy(src: u64, dst: u64) -> Vec<u32> {
    vec![
        0xc004_4000,
        1 | (5 << 8) | (1 << 20),
        src as u32,
        (src >> 32) as u32,
        dst as u32,
        (dst >> 32) as u32,
    ]
}

#[test]
fn huge_pages_of_both_flavours() {
    for asic in [&GFX90A, &GFX906] {
        let mut f = fixture(asic, false);
        // 2 MiB of VRAM at 32 MiB, entry in PDB0.
        let va = 0x7200_0020_0000u64;
        let pte4k = f.p.pte_at(&mut f.b, va);
        let mut e = [0; 8];
        // The PDB0 entry that now leads to the PTB: replace it by a page.
        let ptb = pte4k & !0xfff;
        let slot = (0..64u64 << 20)
            .step_by(8)
            .find(|&o| {
                f.b.vram_read(o, &mut e);
                let v = u64::from_le_bytes(e);
                v & 1 != 0 && v & 0xffff_ffff_f000 == ptb
            })
            .unwrap();
        let page = 32u64 << 20;
        let leaf = if f.b.tf {
            page | 0x71
        } else {
            page | 0x71 | (1 << 54)
        };
        f.b.vram_write(slot, &leaf.to_le_bytes());
        f.b.flush_vmid(f.b.first_vmid());
        f.q.send(&mut f.b, &write_data(va + 0x12_3450, 0xfeed));
        let mut got = [0; 4];
        f.b.vram_read(page + 0x12_3450, &mut got);
        assert_eq!(u32::from_le_bytes(got), 0xfeed, "{}", asic.name);
        f.b.no_errors();
    }
}

#[test]
fn no_retry_fault_is_latched_reported_and_dropped() {
    let mut f = fixture(&GFX90A, false);
    let va = 0x7300_0000_5000u64;
    f.q.send(&mut f.b, &write_data(va + 8, 1));
    f.q.send(&mut f.b, &copy(va + 0x1_0000, f.va + 64));
    f.q.send(&mut f.b, &write_data(f.va, 2));
    // The queue went on.
    assert_eq!(f.b.ram32(f.bus), 2);
    let ivs = f.b.irqs();
    assert_eq!(ivs.len(), 2);
    assert_eq!(
        (ivs[0].client, ivs[0].source, ivs[0].vmid, ivs[0].pasid),
        (0x1b, 0, 3, 0x51)
    );
    assert_eq!(address(&ivs[0]), va);
    assert_eq!(ivs[0].data[1] & 0xf0, 0x20);
    assert_eq!(ivs[1].data[1] & 0xf0, 0x40);
    assert_eq!(
        [ivs[0].ring_id, ivs[1].ring_id],
        [0x28, 0x18],
        "not present"
    );
    // STATUS: first fault, MORE_FAULTS, write, VMID 3; ADDR: page number.
    let status = f.b.rd(0xa12c);
    assert_eq!(status & 1, 1);
    assert_eq!(((status >> 18) & 1, (status >> 20) & 0xf), (1, 3));
    assert_eq!(
        u64::from(f.b.rd(0xa130)) | (u64::from(f.b.rd(0xa134)) << 32),
        va >> 12
    );
    // CLEAR_STATUS.
    let v = f.b.rd(0xa11c);
    f.b.wr(0xa11c, v | 1);
    assert_eq!(f.b.rd(0xa12c), 0);
    f.b.no_errors();
    assert_eq!(f.b.gpu.soc.log.stats.user_errors, 2);
}

#[test]
fn retry_fault_replays_until_the_page_is_there() {
    let mut f = fixture(&GFX90A, true);
    let va = 0x7400_0000_0000u64;
    f.q.send(&mut f.b, &write_data(va, 0xaaaa));
    f.b.run_for(20_000_000);
    let ivs = f.b.irqs();
    // The CAM lets one through, however often the access replays.
    assert_eq!(ivs.len(), 1);
    assert_eq!(ivs[0].data[1] & 0xf0, 0xa0);
    assert_eq!(address(&ivs[0]), va);
    let cam = ivs[0].data[2] & 0x3ff;
    // Released without a page: it faults again.
    f.b.release_cam(cam);
    f.b.run_for(5_000_000);
    let again = f.b.irqs();
    assert_eq!(again.len(), 1);
    let page = f.b.alloc_ram(4096);
    f.p.set_pte(&mut f.b, va, page | 0x77);
    f.b.flush_vmid(f.b.first_vmid());
    f.b.release_cam(again[0].data[2] & 0x3ff);
    f.b.run_for(5_000_000);
    assert_eq!(f.b.ram32(page), 0xaaaa);
    assert!(f.b.irqs().is_empty());
    f.b.no_errors();
    assert_eq!(f.b.gpu.soc.log.stats.user_errors, 0);
}

#[test]
fn a_read_only_page_retries_writes() {
    let mut f = fixture(&GFX90A, true);
    let va = 0x7400_0000_0000u64;
    let page = f.b.alloc_ram(4096);
    f.b.set32(page, 5);
    f.p.set_pte(&mut f.b, va, page | 7 | 0x20);
    f.q.send(&mut f.b, &copy(va, f.va));
    assert_eq!(f.b.ram32(f.bus), 5);
    f.q.send(&mut f.b, &write_data(va, 6));
    let ivs = f.b.irqs();
    assert_eq!(ivs[0].data[1] & 0xf0, 0xa0);
    assert_eq!(
        ivs[0].ring_id, 0x20,
        "a page is there, it may not be written"
    );
    f.p.set_pte(&mut f.b, va, page | 0x77);
    // Without a flush the cached read-only translation stays in force.
    f.b.release_cam(ivs[0].data[2] & 0x3ff);
    f.b.run_for(5_000_000);
    assert_eq!(f.b.ram32(page), 5);
    let ivs = f.b.irqs();
    f.b.flush_vmid(f.b.first_vmid());
    f.b.release_cam(ivs[0].data[2] & 0x3ff);
    f.b.run_for(5_000_000);
    assert_eq!(f.b.ram32(page), 6);
    f.b.no_errors();
}

#[test]
fn the_no_retry_entry_ends_the_retrying() {
    let mut f = fixture(&GFX90A, true);
    let va = 0x7400_0000_0000u64;
    f.q.send(&mut f.b, &write_data(va, 1));
    let cam = f.b.irqs()[0].data[2] & 0x3ff;
    f.p.set_pte(&mut f.b, va, 0x0008_0000_0000_0003);
    f.b.flush_vmid(f.b.first_vmid());
    f.b.release_cam(cam);
    f.b.run_for(5_000_000);
    let ivs = f.b.irqs();
    assert_eq!(ivs.len(), 1);
    assert_eq!(ivs[0].data[1] & 0xf0, 0x20);
    f.q.send(&mut f.b, &write_data(f.va, 3));
    assert_eq!(f.b.ram32(f.bus), 3);
    f.b.no_errors();
}

#[test]
fn gfx906_retries_by_its_context_bit() {
    let mut f = fixture(&GFX906, true);
    f.q.send(&mut f.b, &write_data(0x7400_0000_0000, 1));
    assert_eq!(f.b.irqs()[0].data[1] & 0x80, 0x80);
    f.b.no_errors();
}

#[test]
fn prt_pages_read_zero_and_swallow_writes() {
    let mut f = fixture(&GFX90A, false);
    let va = 0x7400_0000_0000u64;
    f.p.set_pte(&mut f.b, va, 1 << 51);
    f.b.set32(f.bus, 7);
    f.q.send(&mut f.b, &write_data(va, 1));
    f.q.send(&mut f.b, &copy(va, f.va));
    assert_eq!(f.b.ram32(f.bus), 0);
    assert!(f.b.irqs().is_empty());
    f.b.no_errors();
}

#[test]
fn stale_translations_stay_until_they_are_invalidated() {
    let mut f = fixture(&GFX90A, false);
    let va = 0x7400_0000_0000u64;
    let (one, two) = (f.b.alloc_ram(4096), f.b.alloc_ram(4096));
    f.p.set_pte(&mut f.b, va, one | 0x77);
    f.q.send(&mut f.b, &write_data(va, 1));
    f.p.set_pte(&mut f.b, va, two | 0x77);
    f.q.send(&mut f.b, &write_data(va, 2));
    assert_eq!((f.b.ram32(one), f.b.ram32(two)), (2, 0));
    // By PASID through the KIQ, all hubs, heavyweight.
    f.b.submit_kiq(&[0xc000_9800, 1 | (1 << 4) | (0x51 << 5) | (2 << 29)]);
    f.b.run();
    f.q.send(&mut f.b, &write_data(va, 3));
    assert_eq!((f.b.ram32(one), f.b.ram32(two)), (2, 3));
    f.b.no_errors();
}

#[test]
fn one_hub_does_not_flush_the_other() {
    let mut f = fixture(&GFX90A, false);
    let va = 0x7400_0000_0000u64;
    let (one, two) = (f.b.alloc_ram(4096), f.b.alloc_ram(4096));
    f.p.set_pte(&mut f.b, va, one | 0x77);
    f.q.send(&mut f.b, &write_data(va, 1));
    f.p.set_pte(&mut f.b, va, two | 0x77);
    // MMHUB only, by registers.
    let vmid = f.b.first_vmid();
    f.b.wr(0x6ae00 + 0x18c, (1 << vmid) | 0x7c_0000);
    f.b.await_ack(0x6ae00, 0, 1 << vmid);
    f.q.send(&mut f.b, &write_data(va, 2));
    assert_eq!((f.b.ram32(one), f.b.ram32(two)), (2, 0));
    f.b.wr(0xa100 + 0x18c, (1 << vmid) | 0x7c_0000);
    f.b.await_ack(0xa100, 0, 1 << vmid);
    f.q.send(&mut f.b, &write_data(va, 3));
    assert_eq!(f.b.ram32(two), 3);
    f.b.no_errors();
}

#[test]
fn entries_to_nowhere_and_malformed_entries_are_protocol_errors() {
    let mut f = fixture(&GFX90A, false);
    let va = 0x7400_0000_0000u64;
    // A bus address that is not RAM.
    f.p.set_pte(&mut f.b, va, 0x77_0000_0000 | 0x77);
    f.q.send(&mut f.b, &write_data(va, 1));
    f.b.expect_errors(&["pte-to-nowhere"]);
    // VRAM beyond the end.
    f.p.set_pte(&mut f.b, va + 0x1000, (1 << 30) | 0x71);
    f.q.send(&mut f.b, &write_data(va + 0x1000, 1));
    f.b.expect_errors(&["pte-to-nowhere"]);
    // A directory entry that leads nowhere.
    f.b.vram_write(
        f.p.root + 8 * ((0x7500_0000_0000u64 >> 39) & 0x1ff),
        &(0x40_0000_0001u64).to_le_bytes(),
    );
    f.b.hdp_flush();
    f.q.send(&mut f.b, &write_data(0x7500_0000_0000, 1));
    f.b.expect_errors(&["pte-to-nowhere"]);
    // A PDB1 entry without its block fragment size.
    let pdb1 = f.b.alloc_vram(4096);
    f.b.vram_write(pdb1, &[0; 4096]);
    f.b.vram_write(pdb1, &(pdb1 | 1).to_le_bytes());
    f.b.vram_write(
        f.p.root + 8 * ((0x7600_0000_0000u64 >> 39) & 0x1ff),
        &(pdb1 | 1).to_le_bytes(),
    );
    f.b.hdp_flush();
    f.q.send(&mut f.b, &write_data(0x7600_0000_0000, 1));
    f.b.expect_errors(&["malformed-pte"]);
}

#[test]
fn guest_memory_may_go_away_under_a_mapping() {
    let mut f = fixture(&GFX90A, false);
    f.b.gpu
        .soc
        .mem
        .dma_unmap(common::RAM_BUS, common::RAM)
        .unwrap();
    f.q.ring_bell(&mut f.b);
    f.q.send(&mut f.b, &write_data(f.va, 1));
    let rules: Vec<_> = f.b.gpu.soc.log.errors().map(|e| e.rule).collect();
    assert!(
        !rules.is_empty()
            && rules
                .iter()
                .all(|r| *r == "pte-to-nowhere" || *r == "ih-nowhere"),
        "{rules:?}"
    );
}

/// The caches have two levels: a translation is gone when both have dropped it, the second one first.
#[test]
fn an_invalidation_of_one_level_leaves_stale_translations() {
    const L1: u32 = 1 << 22;
    const L2: u32 = 1 << 18;
    // What is invalidated, with 0 for an access in between.
    let cases: [(&[u32], bool); 6] = [
        (&[L1], true),
        (&[L2], true),
        (&[L2, L1], false),
        (&[L1 | L2], false),
        (&[L2, 0, L1], false),
        (&[L1, 0, L2], true),
    ];
    for (steps, stale) in cases {
        let mut f = fixture(&GFX90A, false);
        let (old, new) = (f.b.alloc_ram(4096), f.b.alloc_ram(4096));
        let va = 0x7400_0000_0000u64;
        f.p.set_pte(&mut f.b, va, old | 0x77);
        f.q.send(&mut f.b, &write_data(va, 1));
        f.p.set_pte(&mut f.b, va, new | 0x77);
        let vmid = f.b.first_vmid();
        for &levels in steps {
            if levels == 0 {
                f.q.send(&mut f.b, &write_data(va, 2));
            } else {
                f.b.wr(0xa100 + 0x18c + 68, (1 << vmid) | (2 << 16) | levels);
                f.b.await_ack(0xa100, 17, 1 << vmid);
            }
        }
        f.q.send(&mut f.b, &write_data(va + 4, 3));
        let at = if stale { old } else { new };
        assert_eq!(f.b.ram32(at + 4), 3, "{steps:x?}");
        f.b.no_errors();
    }
}

#[test]
fn a_part_of_guest_memory_may_go_away() {
    use gpu_model::mem::Phys;
    let f = fixture(&GFX90A, false);
    let mem = &f.b.gpu.soc.mem;
    let hole = common::RAM_BUS + 0x10_0000;
    mem.write(Phys::Bus(hole - 4), &[1; 4]).unwrap();
    mem.write(Phys::Bus(hole + 0x2000), &[2; 4]).unwrap();
    assert_eq!(mem.dma_unmap(hole, 0x2000).unwrap(), 1);
    let ranges: Vec<_> = mem.dma_ranges();
    assert_eq!(
        ranges,
        [
            common::RAM_BUS..hole,
            hole + 0x2000..common::RAM_BUS + common::RAM
        ]
    );
    let mut word = [0; 4];
    for (at, what) in [(hole - 4, 1), (hole + 0x2000, 2)] {
        mem.read(Phys::Bus(at), &mut word).unwrap();
        assert_eq!(word, [what; 4], "the same memory as before");
    }
    for at in [hole, hole + 0x1fff] {
        assert!(!mem.exists(Phys::Bus(at), false));
    }
    // Not inside of a page: the map stays as it is.
    for (at, size) in [
        (hole - 0x1000, 0x800),
        (hole - 0x1800, 0x1800),
        (hole + 0x2000, 0x1234),
        (hole + 0x2800, 0x800),
        (common::RAM_BUS - 0x1000, 0x1001),
        (hole + 0x1fff, common::RAM - 0x20_0000),
    ] {
        let refused = mem.dma_unmap(at, size).unwrap_err().to_string();
        assert!(refused.contains("inside of a page"), "{refused}");
        assert_eq!(mem.dma_ranges(), ranges, "{at:#x}+{size:#x}");
    }
    // One that is taken whole may end anywhere beyond.
    assert_eq!(mem.dma_unmap(hole + 0x2000 - 5, u64::MAX).unwrap(), 1);
    assert_eq!(mem.dma_ranges(), ranges[..1]);
    mem.read(Phys::Bus(hole - 4), &mut word).unwrap();
    assert_eq!(word, [1; 4]);
    // Pages are those of the mapping, wherever it begins.
    let ram = f.b.ram_file();
    let odd = 0x8000_0800;
    mem.dma_map(odd, 0x3000, Some((ram, 0)), true).unwrap();
    assert!(mem.dma_unmap(odd + 0x800, 0x1000).is_err());
    assert_eq!(mem.dma_unmap(odd + 0x1000, 0x1000).unwrap(), 1);
    let left = [odd..odd + 0x1000, odd + 0x2000..odd + 0x3000];
    assert_eq!(mem.dma_ranges()[..2], left);
    assert_eq!(mem.dma_unmap(odd, 0x3000).unwrap(), 2);
    // The hole is there to be mapped again.
    let ram = f.b.ram_file();
    f.b.gpu
        .soc
        .mem
        .dma_map(hole, 0x2000, Some((ram, 0)), true)
        .unwrap();
}
