// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Writes that are under way when a driver flushes: only a heavyweight flush waits for them.

mod common;

use common::fixture::Fixture;
use gpu_model::asic::{Asic, GFX906, GFX90A};
use gpu_model::device::Step;
use gpu_model::vm::range::Reading;

/// Bytes of the copy: three stretches of a queue.
const BYTES: u64 = 384 << 10;
/// What its first stretch moves.
const STRETCH: u64 = 128 << 10;
/// What hardware has translated ahead.
const PIECE: u64 = 16 << 10;
const REQ: u64 = 0x18c;
/// ADDR_RANGE of engine 17.
const RANGE: u64 = 0x21c + 8 * 17;
const ALL: u32 = 0x7c_0000;

/// A fixture whose queue copies BYTES of 0x5a, and has done a stretch; SDMA or DMA_DATA.
fn copying(asic: &'static Asic, sdma: bool) -> Fixture {
    let mut f = Fixture::with(asic, 0x48, 2 * BYTES, |b, p, _| {
        if sdma {
            p.sdma_queue(b, 0, 0)
        } else {
            p.queue(b)
        }
    });
    let to = f.va + BYTES;
    start(&mut f, sdma, to);
    f
}

/// Has the queue begin to copy BYTES of 0x5a from the page.
fn start(f: &mut Fixture, sdma: bool, to: u64) {
    let va = f.va;
    f.b.ram_write(f.bus, &vec![0x5a; BYTES as usize]);
    let addresses = [va as u32, (va >> 32) as u32, to as u32, (to >> 32) as u32];
    if sdma {
        f.q.push(&mut f.b, &[1, BYTES as u32 - 1, 0]);
        f.q.push(&mut f.b, &addresses);
    } else {
        f.q.push(&mut f.b, &[0xc005_5000, 0]);
        f.q.push(&mut f.b, &addresses);
        f.q.push(&mut f.b, &[BYTES as u32]);
    }
    f.q.ring_bell(&mut f.b);
    assert_eq!(f.b.gpu.step(), Step::Busy);
}

/// Moves what is still to be written to other memory; returns its bus address.
fn move_rest(f: &mut Fixture) -> u64 {
    let new = f.b.alloc_ram(BYTES - STRETCH);
    for at in (0..BYTES - STRETCH).step_by(4096) {
        f.p.set_pte(&mut f.b, f.va + BYTES + STRETCH + at, (new + at) | 0x77);
    }
    new
}

/// Flushes the process in both hubs, without letting the device run.
fn flush(f: &mut Fixture, kind: u32) {
    let vmid = f.b.first_vmid();
    for (vm, _) in f.b.hubs() {
        f.b.wr(vm + REQ + 4 * 17, (1 << vmid) | (kind << 16) | ALL);
        f.b.await_ack(vm, 17, 1 << vmid);
    }
}

/// Flushes the process in both hubs by INVALIDATE_TLBS, which the KIQ runs before the copy goes on.
fn flush_by_kiq(f: &mut Fixture, kind: u32) {
    let pasid = u32::from(f.p.pasid);
    f.b.submit_kiq(&[0xc000_9800, 1 | (1 << 4) | (pasid << 5) | (kind << 29)]);
}

/// As `flush`, of a range that is read by its size bit.
fn flush_range(f: &mut Fixture, kind: u32, [low, high]: [u32; 2]) {
    f.b.gpu.soc.set_ranges(Reading::SizeBit);
    for (vm, _) in f.b.hubs() {
        f.b.wr(vm + RANGE, low);
        f.b.wr(vm + RANGE + 4, high);
    }
    flush(f, kind);
}

/// ADDR_RANGE of a page, or of four from a multiple of four on.
fn range(va: u64, four: bool) -> [u32; 2] {
    let bits = if four { 3 } else { 0 };
    [(va >> 11) as u32 | bits, (va >> 43) as u32]
}

fn has_copy(f: &Fixture, bus: u64, bytes: u64) -> bool {
    let mut seen = vec![0; bytes as usize];
    f.b.ram_read(bus, &mut seen);
    assert!(seen.iter().all(|b| *b == seen[0]), "all or nothing");
    seen[0] == 0x5a
}

/// Where the part that was translated ahead and the part behind it have landed: at the old place, at the new one.
fn landed(f: &Fixture, new: u64) -> [(bool, bool); 2] {
    let old = f.bus + BYTES + STRETCH;
    let rest = BYTES - STRETCH - PIECE;
    [(0, PIECE), (PIECE, rest)].map(|(at, n)| (has_copy(f, old + at, n), has_copy(f, new + at, n)))
}

#[test]
fn a_flush_that_is_not_heavyweight_does_not_wait_for_writes() {
    for asic in [&GFX90A, &GFX906] {
        for sdma in [false, true] {
            for kind in [0, 1, 2] {
                let mut f = copying(asic, sdma);
                let new = move_rest(&mut f);
                flush(&mut f, kind);
                f.b.run();
                let heavy = kind == 2;
                let want = [(!heavy, heavy), (false, true)];
                assert_eq!(landed(&f, new), want, "{} {sdma} {kind}", asic.name);
                f.b.no_errors();
            }
        }
    }
}

#[test]
fn a_flush_by_the_kiq_waits_as_its_type_says() {
    for asic in [&GFX90A, &GFX906] {
        for sdma in [false, true] {
            for kind in [0, 1, 2] {
                let mut f = copying(asic, sdma);
                let new = move_rest(&mut f);
                let flushes = f.b.gpu.soc.log.stats.tlb_invalidations;
                flush_by_kiq(&mut f, kind);
                f.b.run();
                assert_eq!(f.b.gpu.soc.log.stats.tlb_invalidations, flushes + 2);
                let heavy = kind == 2;
                let want = [(!heavy, heavy), (false, true)];
                assert_eq!(landed(&f, new), want, "{} {sdma} {kind}", asic.name);
                f.b.no_errors();
            }
        }
    }
}

#[test]
fn without_the_rule_no_write_is_late() {
    let mut f = copying(&GFX90A, true);
    f.b.gpu.soc.rules.switch_off("late-writes").unwrap();
    // The part that was translated when the rule was on.
    assert_eq!(f.b.gpu.step(), Step::Busy);
    let new = f.b.alloc_ram(PIECE);
    let last = f.va + 2 * BYTES - PIECE;
    for at in (0..PIECE).step_by(4096) {
        f.p.set_pte(&mut f.b, last + at, (new + at) | 0x77);
    }
    flush(&mut f, 1);
    f.b.run();
    assert!(has_copy(&f, new, PIECE));
    assert!(!has_copy(&f, f.bus + 2 * BYTES - PIECE, PIECE));
}

#[test]
fn a_queue_that_has_left_has_no_write_under_way() {
    let mut f = copying(&GFX90A, true);
    let fence = f.b.unmap(3, 0, 0);
    f.b.run();
    assert_eq!(f.b.ram64(fence.bus), 100);
    let new = move_rest(&mut f);
    flush(&mut f, 1);
    f.resume();
    let old = f.bus + BYTES + STRETCH;
    let moved = f.b.ram32(old);
    // What ran until it left is where it was; nothing is written there afterwards.
    f.b.ram_write(old, &vec![0; (BYTES - STRETCH) as usize]);
    f.b.run();
    assert!([0, 0x5a5a_5a5a].contains(&moved));
    assert!(!has_copy(&f, old, BYTES - STRETCH));
    assert!(has_copy(&f, new + BYTES - STRETCH - PIECE, PIECE));
    f.b.no_errors();
}

/// The driver has flushed lightly and given the memory back: the write that is under way finds nothing there.
#[test]
fn memory_that_goes_after_a_light_flush_is_still_written() {
    for (kind, errors) in [(1, &["late-write"][..]), (2, &[])] {
        let mut f = copying(&GFX90A, true);
        let old = f.bus + BYTES + STRETCH;
        move_rest(&mut f);
        flush(&mut f, kind);
        f.b.gpu.soc.mem.dma_unmap(old, PIECE).unwrap();
        f.b.run();
        f.b.expect_errors(errors);
    }
}

/// A heavyweight flush waits for the writes to what it drops, and for no others.
#[test]
fn a_heavyweight_flush_of_a_range_waits_for_the_writes_to_it() {
    for sdma in [false, true] {
        // What is flushed, and which of the four pages under way land at the new place.
        for (kind, from, four, fresh) in [
            (2, 0, true, [true; 4]),
            (1, 0, true, [false; 4]),
            (2, PIECE, true, [false; 4]),
            (2, 4096, false, [false, true, false, false]),
        ] {
            let mut f = copying(&GFX90A, sdma);
            let new = move_rest(&mut f);
            let at = f.va + BYTES + STRETCH + from;
            flush_range(&mut f, kind, range(at, four));
            f.b.run();
            let old = f.bus + BYTES + STRETCH;
            for (page, fresh) in (0..4u64).zip(fresh) {
                let landed = [old, new].map(|at| has_copy(&f, at + page * 4096, 4096));
                assert_eq!(landed, [!fresh, fresh], "{sdma} {kind} {from:#x} {page}");
            }
            // What had not been translated goes to where it is now.
            assert!(has_copy(&f, new + PIECE, BYTES - STRETCH - PIECE));
            f.b.no_errors();
        }
    }
}

/// The driver has flushed what lies beside the memory that it gives back.
#[test]
fn memory_that_goes_after_a_flush_beside_it_is_still_written() {
    for (from, errors) in [(PIECE, &["late-write"][..]), (0, &[])] {
        let mut f = copying(&GFX90A, true);
        let old = f.bus + BYTES + STRETCH;
        move_rest(&mut f);
        let at = f.va + BYTES + STRETCH + from;
        flush_range(&mut f, 2, range(at, true));
        f.b.gpu.soc.mem.dma_unmap(old, PIECE).unwrap();
        f.b.run();
        f.b.expect_errors(errors);
    }
}

/// The page that is flushed is a part of the large one that the writes were translated by.
#[test]
fn a_heavyweight_flush_of_another_part_of_a_large_page_waits_too() {
    for (kind, late) in [(1, true), (2, false)] {
        let mut f = Fixture::with(&GFX90A, 0x48, BYTES, |b, p, _| p.sdma_queue(b, 0, 0));
        let to = 0x7200_0020_0000u64;
        let slot = f.p.pde_at(&mut f.b, to);
        let (old, new) = (32u64 << 20, 34u64 << 20);
        let map = |f: &mut Fixture, at: u64| {
            f.b.vram_write(at, &vec![0; BYTES as usize]);
            f.b.vram_write(slot, &(at | 0x71).to_le_bytes());
            f.b.hdp_flush();
        };
        map(&mut f, old);
        start(&mut f, true, to);
        map(&mut f, new);
        flush_range(&mut f, kind, range(to + (2 << 20) - 4096, false));
        f.b.run();
        let landed = [old, new].map(|at| {
            let mut seen = [0];
            f.b.vram_read(at + STRETCH, &mut seen);
            seen[0] == 0x5a
        });
        assert_eq!(landed, [late, !late]);
        // What follows is translated afresh.
        let mut seen = [0];
        f.b.vram_read(new + BYTES - 1, &mut seen);
        assert_eq!(seen, [0x5a]);
        f.b.no_errors();
    }
}
