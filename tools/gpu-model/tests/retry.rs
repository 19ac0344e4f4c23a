// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Retry faults of many waves, queues and hubs: each page is reported once while it is outstanding, and what waited is
//! carried out exactly once.

mod common;

use std::collections::BTreeSet;

use common::fixture::Fixture;
use common::kernel::*;
use common::queue::write_data;
use common::SeenIv;
use gpu_model::asic::{Asic, GFX906, GFX90A};

const BOTH: [&Asic; 2] = [&GFX90A, &GFX906];
/// Where nothing is mapped at first.
const LATE: u64 = 0x7400_0000_0000;
const PAGE: u64 = 4096;
/// Valid, system, snooped, and: executable, readable, writable.
const ALL: u64 = 0x77;
const READ_ONLY: u64 = 0x27;
/// Entries of the CAM.
const CAM: usize = 64;
/// Each lane of group n adds 1 to the first dword of page n / 2 of the data.
const ADD: &str = "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\ns_lshr_b32 s6, s2, 1\n\
    s_lshl_b32 s6, s6, 12\nv_mov_b32 v0, s6\nv_mov_b32 v1, 1\nglobal_atomic_add v0, v1, s[4:5]\ns_endpgm";

/// A retry fault: hub, page, the bits of the access, and entry of the CAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Retry {
    mm: bool,
    page: u64,
    access: u32,
    cam: u32,
}

fn retry(iv: &SeenIv) -> Option<Retry> {
    (matches!(iv.client, 0x1b | 0x12) && iv.data[1] & 0x80 != 0).then(|| Retry {
        mm: iv.mm,
        page: (u64::from(iv.data[0]) << 12) | (u64::from(iv.data[1] & 0xf) << 44),
        access: iv.data[1] & 0x70,
        cam: iv.data[2] & 0x3ff,
    })
}

/// What has been reported since the last time, of this process.
fn faults(f: &mut Fixture) -> Vec<Retry> {
    f.b.run_for(5_000_000);
    let ivs = f.b.irqs();
    let found: Vec<_> = ivs
        .iter()
        .filter_map(|iv| {
            let fault = retry(iv)?;
            assert_eq!((iv.source, iv.pasid), (0, u32::from(f.p.pasid)));
            Some(fault)
        })
        .collect();
    let entries: BTreeSet<_> = found.iter().map(|fault| fault.cam).collect();
    assert_eq!(entries.len(), found.len(), "{found:x?}");
    found
}

fn pages(faults: &[Retry]) -> Vec<u64> {
    let mut pages: Vec<_> = faults.iter().map(|fault| fault.page).collect();
    pages.sort_unstable();
    pages
}

/// Maps pages at these addresses, flushes once and releases the entries; returns the pages' places.
fn serve(f: &mut Fixture, faults: &[Retry], bits: u64) -> Vec<(u64, u64)> {
    let frames: Vec<_> = faults
        .iter()
        .map(|fault| {
            let frame = f.b.alloc_ram(PAGE);
            f.p.set_pte(&mut f.b, fault.page, frame | bits);
            (fault.page, frame)
        })
        .collect();
    f.b.flush_vmid(f.b.first_vmid());
    release(f, faults);
    frames
}

fn release(f: &mut Fixture, faults: &[Retry]) {
    for fault in faults {
        f.b.release_cam(fault.cam);
    }
}

fn unmap(f: &mut Fixture) {
    let fence = f.b.unmap(3, 0, 0);
    f.b.run_for(10_000_000);
    assert_eq!(f.b.ram64(fence.bus), 100);
}

/// More pages than the CAM has entries, and two waves at each.
#[test]
fn each_page_of_many_waves_is_reported_once() {
    if without_llvm("many pages") {
        return;
    }
    for asic in BOTH {
        let count = CAM + 32;
        let mut f = fixture(asic, 8, true, false);
        f.b.set64(f.bus + KERNARG, LATE);
        submit(&mut f, asic, &Launch::new(ADD, 64, 64 * 2 * count as u32));
        let first = faults(&mut f);
        assert_eq!(
            first.len(),
            CAM,
            "{}: as many as there are entries",
            asic.name
        );
        assert!(faults(&mut f).is_empty(), "none of them again");
        let mut frames = serve(&mut f, &first, ALL);
        let rest = faults(&mut f);
        assert_eq!(rest.len(), count - CAM, "{}: what had no entry", asic.name);
        assert!(!is_done(&f));
        frames.extend(serve(&mut f, &rest, ALL));
        assert!(faults(&mut f).is_empty());
        assert!(is_done(&f));
        let wanted: Vec<_> = (0..count as u64).map(|n| LATE + n * PAGE).collect();
        frames.sort_unstable();
        assert_eq!(frames.iter().map(|f| f.0).collect::<Vec<_>>(), wanted);
        for (page, frame) in frames {
            assert_eq!(f.b.ram32(frame), 128, "{}: {page:#x}", asic.name);
        }
        f.b.no_errors();
        assert_eq!(f.b.gpu.soc.log.stats.user_errors, 0);
    }
}

/// An instruction whose lanes need many pages changes nothing until all are there.
#[test]
fn an_atomic_of_many_pages_is_carried_out_once() {
    if without_llvm("an atomic of many pages") {
        return;
    }
    let program =
        "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\nv_lshlrev_b32 v0, 12, v0\n\
        v_mov_b32 v1, 1\nglobal_atomic_add v0, v1, s[4:5]\ns_endpgm";
    for asic in BOTH {
        let mut f = fixture(asic, 1, true, false);
        f.b.set64(f.bus + KERNARG, LATE);
        submit(&mut f, asic, &Launch::new(program, 64, 64));
        let mut frames = Vec::new();
        while !is_done(&f) {
            let new = faults(&mut f);
            assert!(frames.iter().all(|(_, frame)| f.b.ram32(*frame) == 0) || new.is_empty());
            assert!(frames.len() < 64 || new.is_empty());
            frames.extend(serve(&mut f, &new, ALL));
        }
        frames.sort_unstable();
        let wanted: Vec<_> = (0..64).map(|lane| LATE + lane * PAGE).collect();
        assert_eq!(frames.iter().map(|f| f.0).collect::<Vec<_>>(), wanted);
        assert!(frames.iter().all(|(_, frame)| f.b.ram32(*frame) == 1));
        f.b.no_errors();
    }
}

/// A page is there for reading first, then for writing as well.
#[test]
fn fetches_scalar_loads_and_upgrades_retry() {
    if without_llvm("fetches that retry") {
        return;
    }
    let program =
        "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\ns_load_dword s6, s[4:5], 0x0\n\
        s_waitcnt lgkmcnt(0)\nv_mov_b32 v0, 0\nv_mov_b32 v1, s6\n\
        global_store_dword v0, v1, s[4:5] offset:4\ns_endpgm";
    for asic in BOTH {
        let mut f = fixture(asic, 1, true, false);
        let (code, data) = (LATE, LATE + PAGE);
        f.b.set64(f.bus + KERNARG, data);
        let kernel = Launch::new(program, 64, 64);
        kernel.put(&f.b, asic, f.bus + CODE);
        // The first instruction, from the descriptor.
        f.b.set64(f.bus + CODE + 16, code.wrapping_sub(f.va + CODE));
        let packet = kernel.packet(f.va + CODE, f.va + KERNARG, f.va + DONE);
        f.b.set_words(f.q.ring, &packet);
        f.q.wptr += 1;
        f.b.set64(f.q.ptrs + 64, f.q.wptr);
        f.b.bell(f.q.doorbell, f.q.wptr - 1);
        let seen = faults(&mut f);
        assert_eq!(
            (pages(&seen), seen[0].access),
            (vec![code], 0x10),
            "a fetch"
        );
        let frame = f.b.alloc_ram(PAGE);
        f.b.set_words(frame, &assemble(asic, program));
        f.p.set_pte(&mut f.b, code, frame | ALL);
        f.b.flush_vmid(f.b.first_vmid());
        release(&mut f, &seen);
        let seen = faults(&mut f);
        assert_eq!((pages(&seen), seen[0].access), (vec![data], 0x40), "a read");
        let frame = f.b.alloc_ram(PAGE);
        f.b.set32(frame, 0xabcd);
        f.p.set_pte(&mut f.b, data, frame | READ_ONLY);
        f.b.flush_vmid(f.b.first_vmid());
        release(&mut f, &seen);
        let seen = faults(&mut f);
        assert_eq!(
            (pages(&seen), seen[0].access),
            (vec![data], 0x20),
            "a write"
        );
        assert_eq!(f.b.words(frame, 2), [0xabcd, 0]);
        f.p.set_pte(&mut f.b, data, frame | ALL);
        f.b.flush_vmid(f.b.first_vmid());
        release(&mut f, &seen);
        assert!(faults(&mut f).is_empty());
        assert!(is_done(&f));
        assert_eq!(f.b.words(frame, 2), [0xabcd, 0xabcd], "{}", asic.name);
        f.b.no_errors();
    }
}

#[test]
fn waves_that_wait_are_saved_and_wait_again() {
    if without_llvm("saved waves that wait") {
        return;
    }
    for asic in BOTH {
        let mut f = fixture(asic, 1, true, true);
        f.b.set64(f.bus + KERNARG, LATE);
        submit(&mut f, asic, &Launch::new(ADD, 64, 64 * 4));
        let both = vec![LATE, LATE + PAGE];
        let seen = faults(&mut f);
        assert_eq!(pages(&seen), both, "{}", asic.name);
        unmap(&mut f);
        // Nothing accesses a page for a queue that has left.
        release(&mut f, &seen);
        assert!(faults(&mut f).is_empty());
        let list = f.list.clone();
        f.b.run_list(&list, false, 1);
        let seen = faults(&mut f);
        assert_eq!(pages(&seen), both, "they come to the same instruction");
        unmap(&mut f);
        let frames = serve(&mut f, &seen, ALL);
        f.b.run_list(&list, false, 1);
        assert!(faults(&mut f).is_empty(), "the pages have come meanwhile");
        assert!(is_done(&f));
        for (_, frame) in frames {
            assert_eq!(f.b.ram32(frame), 128, "{}", asic.name);
        }
        f.b.no_errors();
    }
}

/// The CAM tells pages apart by hub and address space, not by queue.
#[test]
fn queues_that_wait_for_one_page_share_its_entry() {
    let mut f = Fixture::with(&GFX90A, 0x48, PAGE, |b, p, _| {
        p.retry = true;
        p.queue(b)
    });
    f.preempt();
    let mut queues: Vec<_> = (0..4).map(|_| f.p.queue(&mut f.b)).collect();
    let mut copier = f.p.sdma_queue(&mut f.b, 0, 0);
    let mut list = f.p.map_process(&f.b, 5);
    for queue in queues.iter().chain([&copier]) {
        list.extend(queue.map_queues());
    }
    f.b.run_list(&list, false, 1);
    f.b.run();
    for (number, queue) in queues.iter_mut().enumerate() {
        let number = number as u32;
        queue.send(
            &mut f.b,
            &write_data(LATE + 4 * u64::from(number), 10 + number),
        );
    }
    let at = LATE + 16;
    copier.send(&mut f.b, &[5, at as u32, (at >> 32) as u32, 14]);
    let mut seen = faults(&mut f);
    seen.sort_unstable();
    let found: Vec<_> = seen.iter().map(|s| (s.mm, s.page, s.access)).collect();
    assert_eq!(found, [(false, LATE, 0x20), (true, LATE, 0x20)]);
    // One hub's entry says nothing of the other's.
    release(&mut f, &seen[1..]);
    let again = faults(&mut f);
    assert_eq!(again.len(), 1);
    assert!(again[0].mm);
    let frame = f.b.alloc_ram(PAGE);
    f.p.set_pte(&mut f.b, LATE, frame | ALL);
    f.b.flush_vmid(f.b.first_vmid());
    release(&mut f, &[seen[0], again[0]]);
    assert!(faults(&mut f).is_empty());
    assert_eq!(f.b.words(frame, 5), [10, 11, 12, 13, 14]);
    f.b.no_errors();
}
