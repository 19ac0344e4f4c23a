// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Stores of waves to the device's own BARs: doorbells, and the HDP flush page.

mod common;

use common::fixture::Fixture;
use common::kernel::*;
use common::queue::{write_data, UserQueue};
use gpu_model::asic::{Asic, GFX906, GFX90A};
use gpu_model::vm::own::BarAddresses;

const BOTH: [&Asic; 2] = [&GFX90A, &GFX906];
/// Where BAR2 and BAR5 are on the bus.
const DOORBELLS: u64 = 0xfe60_0000;
const REGISTERS: u64 = 0xfe80_0000;
/// Where the process sees a page of doorbells, and the page of the HDP flush.
const BELL_PAGE: u64 = 0x7500_0000_0000;
const FLUSH_PAGE: u64 = 0x7500_0010_0000;

/// s[8:9] = v[2:3] = address, s[10:11] = v[4:5] = value, as the data has them.
const ARGUMENTS: &str = "s_load_dwordx2 s[4:5], s[0:1], 0x0\n\
    s_waitcnt lgkmcnt(0)\n\
    s_load_dwordx4 s[8:11], s[4:5], 0x0\n\
    s_waitcnt lgkmcnt(0)\n\
    v_mov_b32 v2, s8\n\
    v_mov_b32 v3, s9\n\
    v_mov_b32 v4, s10\n\
    v_mov_b32 v5, s11\n";

/// Runs a program with an address and a value.
fn run(f: &mut Fixture, asic: &Asic, program: &str, lanes: u32, at: u64, value: u64) {
    f.b.set64(f.bus + DATA, at);
    f.b.set64(f.bus + DATA + 8, value);
    f.b.set64(f.bus + DONE + 8, 1);
    let program = format!("{ARGUMENTS}{program}\ns_endpgm");
    launch(f, asic, &Launch::new(&program, lanes, lanes));
}

/// A process with an AQL queue and one for packets, whose doorbell it sees at the address that is returned.
fn two_queues(asic: &'static Asic) -> (Fixture, UserQueue, u64) {
    let mut f = fixture(asic, 4, false, false);
    f.b.unmap(3, 0, 0);
    let other = f.p.queue(&mut f.b);
    let mut list = f.p.map_process(&f.b, 2);
    list.extend(f.q.map_queues());
    list.extend(other.map_queues());
    f.b.run_list(&list, false, 1);
    f.b.run();
    // The self-ring aperture.
    f.b.wr(0x3480 + 0xf4 * 4, DOORBELLS as u32);
    f.b.wr(0x3480 + 0xf3 * 4, 0);
    f.b.wr(0x3480 + 0xf5 * 4, 3);
    let bell = DOORBELLS + other.doorbell;
    f.p.set_pte(&mut f.b, BELL_PAGE, (bell & !0xfff) | 0x77);
    (f, other, BELL_PAGE + (bell & 0xfff))
}

#[test]
fn a_kernel_rings_the_doorbell_of_another_queue() {
    if without_llvm("doorbells of kernels") {
        return;
    }
    for asic in BOTH {
        let (mut f, mut other, bell) = two_queues(asic);
        let words = write_data(f.va + DATA + 0x100, 0x51);
        other.push(&mut f.b, &words);
        let store = "global_store_dwordx2 v[2:3], v[4:5], off";
        run(&mut f, asic, store, 1, bell, other.wptr);
        assert_eq!(f.b.ram32(f.bus + DATA + 0x100), 0x51, "{}", asic.name);
        assert!(is_done(&f));
        f.b.no_errors();
    }
}

/// The scalar unit's stores, which the trap handlers of the runtime use, go there as well.
#[test]
fn a_scalar_store_rings_a_doorbell() {
    if without_llvm("doorbells by scalar stores") {
        return;
    }
    let (mut f, mut other, bell) = two_queues(&GFX90A);
    let words = write_data(f.va + DATA + 0x100, 0x52);
    other.push(&mut f.b, &words);
    // A store of 32 bits is the whole doorbell of a queue of packets as long as its index has no more.
    let store = "s_store_dword s10, s[8:9], 0x0";
    run(&mut f, &GFX90A, store, 1, bell, other.wptr);
    assert_eq!(f.b.ram32(f.bus + DATA + 0x100), 0x52);
    f.b.no_errors();
}

/// Were it not the highest lane's store that comes last, the queue would stop after an earlier packet.
#[test]
fn lanes_ring_in_ascending_order() {
    if without_llvm("order of doorbells") {
        return;
    }
    for asic in BOTH {
        let (mut f, mut other, bell) = two_queues(asic);
        let mut ends = Vec::new();
        for n in 0..8 {
            let words = write_data(f.va + DATA + 0x100 + 4 * n, 0x60 + n as u32);
            other.push(&mut f.b, &words);
            ends.push(other.wptr);
        }
        let step = ends[1] - ends[0];
        assert!(ends.windows(2).all(|pair| pair[1] - pair[0] == step));
        // Lane n stores the end of packet n.
        let store = format!(
            "v_mul_u32_u24 v6, {step}, v0\nv_add_u32 v4, v4, v6\n\
             global_store_dwordx2 v[2:3], v[4:5], off"
        );
        run(&mut f, asic, &store, 8, bell, ends[0]);
        let seen = f.b.words(f.bus + DATA + 0x100, 8);
        let want: Vec<u32> = (0..8).map(|n| 0x60 + n).collect();
        assert_eq!(seen, want, "{}", asic.name);
        f.b.no_errors();
    }
}

/// More stores than may be on their way at once: none is lost, and none comes twice.
#[test]
fn a_kernel_that_rings_often_waits_for_the_device() {
    if without_llvm("many doorbells") {
        return;
    }
    let (mut f, other, bell) = two_queues(&GFX90A);
    let before = f.b.gpu.soc.log.stats.doorbells;
    let store = "s_movk_i32 s12, 0x28\nagain:\n\
        global_store_dwordx2 v[2:3], v[4:5], off\n\
        s_sub_u32 s12, s12, 1\ns_cmp_lg_u32 s12, 0\ns_cbranch_scc1 again";
    run(&mut f, &GFX90A, store, 64, bell, other.wptr);
    assert!(is_done(&f));
    // One more is that of the dispatch.
    assert_eq!(f.b.gpu.soc.log.stats.doorbells - before, 40 * 64 + 1);
    f.b.no_errors();
}

/// A mistake of the program, not of the driver.
#[test]
fn what_is_no_store_faults_at_doorbells() {
    if without_llvm("loads from doorbells") {
        return;
    }
    for access in [
        "global_load_dword v6, v[2:3], off",
        "global_atomic_add v[2:3], v4, off",
        "s_load_dword s12, s[8:9], 0x0",
    ] {
        let (mut f, other, bell) = two_queues(&GFX90A);
        let stats = |f: &Fixture| {
            let stats = &f.b.gpu.soc.log.stats;
            (stats.faults_no_retry, stats.waves_failed)
        };
        let before = stats(&f);
        run(&mut f, &GFX90A, access, 1, bell, other.wptr);
        let (faults, failed) = stats(&f);
        assert_eq!((faults - before.0, failed - before.1), (1, 1), "{access}");
        assert!(f.b.gpu.soc.log.stats.user_errors > 0);
        f.b.no_errors();
    }
}

/// As a PTE that the host has written shows: without the flush the device goes on with the old page.
#[test]
fn a_kernel_flushes_what_the_host_has_written() {
    if without_llvm("HDP flush of kernels") {
        return;
    }
    let store = "global_store_dword v[2:3], v4, off";
    // The second dword of the page is that of registers, which flushes no memory.
    for (offset, flushes) in [(0, true), (4, false)] {
        let mut f = fixture(&GFX90A, 4, false, false);
        let bars = BarAddresses {
            registers: REGISTERS,
            ..f.b.gpu.soc.bars()
        };
        f.b.gpu.soc.set_bars(bars);
        f.p.set_pte(&mut f.b, FLUSH_PAGE, (REGISTERS + 0x7f000) | 0x77);
        let page = 0x10000;
        let (va, old) = (f.va + DATA + page, f.bus + DATA + page);
        let vmid = f.b.first_vmid();
        run(&mut f, &GFX90A, store, 1, va, 1);
        let new = f.b.alloc_ram(4096);
        let at = f.p.pte_at(&mut f.b, va);
        f.b.vram_write(at, &(new | 0x77).to_le_bytes());
        f.b.flush_vmid_only(vmid);
        run(&mut f, &GFX90A, store, 1, va, 2);
        assert_eq!((f.b.ram32(old), f.b.ram32(new)), (2, 0), "the old page");
        run(&mut f, &GFX90A, store, 1, FLUSH_PAGE + offset, 0);
        f.b.flush_vmid_only(vmid);
        run(&mut f, &GFX90A, store, 1, va, 3);
        let want = if flushes { (2, 3) } else { (3, 0) };
        assert_eq!((f.b.ram32(old), f.b.ram32(new)), want, "offset {offset}");
        f.b.no_errors();
    }
}
