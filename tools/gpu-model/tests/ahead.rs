// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Several dispatches of one AQL queue at once.

mod common;

use common::fixture::Fixture;
use common::kernel::*;
use gpu_model::asic::{Asic, GFX906, GFX90A};

const BOTH: [&Asic; 2] = [&GFX90A, &GFX906];
/// Header: waits for all before it.
const BARRIER: u32 = 1 << 8;
/// Address of the data in s[4:5], 0 in v0.
const BEGIN: &str = "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\nv_mov_b32 v0, 0\n";
/// Waits until dword 0 of the data is not 0, then stores 1 in dword 1.
const WAITS: &str = "again: global_load_dword v1, v0, s[4:5] glc\ns_waitcnt vmcnt(0)\n\
    v_readfirstlane_b32 s6, v1\ns_cmp_eq_u32 s6, 0\ns_cbranch_scc1 again\nv_mov_b32 v2, 1\n\
    global_store_dword v0, v2, s[4:5] offset:4\ns_endpgm";
/// Stores 7 in dword 0.
const OPENS: &str = "v_mov_b32 v2, 7\nglobal_store_dword v0, v2, s[4:5]\ns_endpgm";
/// Copies dword 1 to dword 2.
const COPIES: &str = "global_load_dword v1, v0, s[4:5] offset:4\ns_waitcnt vmcnt(0)\n\
    global_store_dword v0, v1, s[4:5] offset:8\ns_endpgm";

/// Places of the signals.
const SIGNALS: [u64; 3] = [DONE, 0x100, 0x140];

/// Dispatches programs in the order of the ring, with these bits in their headers beside the type.
fn dispatch(f: &mut Fixture, asic: &Asic, programs: &[(&str, u32)]) {
    for (number, (program, bits)) in programs.iter().enumerate() {
        let code = CODE + 0x1000 * number as u64;
        let kernel = Launch::new(&format!("{BEGIN}{program}"), 1, 1);
        kernel.put(&f.b, asic, f.bus + code);
        f.b.set64(f.bus + SIGNALS[number] + 8, 1);
        let mut p = kernel.packet(f.va + code, f.va + KERNARG, f.va + SIGNALS[number]);
        p[0] = (p[0] & !BARRIER) | bits;
        let slot = (f.q.wptr + number as u64) % (f.q.dwords / 16);
        f.b.set_words(f.q.ring + slot * 64, &p);
    }
    f.q.wptr += programs.len() as u64;
    f.b.set64(f.q.ptrs + 64, f.q.wptr);
    f.b.bell(f.q.doorbell, f.q.wptr - 1);
}

fn signals(f: &Fixture) -> [u64; 3] {
    SIGNALS.map(|at| f.b.ram64(f.bus + at + 8))
}

fn read_index(f: &Fixture) -> u64 {
    f.b.ram64(f.q.ptrs + 1024 + 128)
}

/// The first kernel waits for the second, which only comes if it need not wait for the first.
#[test]
fn dispatches_without_the_barrier_bit_run_together() {
    if without_llvm("dispatches at once") {
        return;
    }
    for asic in BOTH {
        let mut f = fixture(asic, 2, false, false);
        let all = [(WAITS, 0), (OPENS, 0), (COPIES, BARRIER)];
        dispatch(&mut f, asic, &all);
        f.b.run();
        // The last one has waited for both.
        assert_eq!(data(&f, 3), [7, 1, 1], "{}", asic.name);
        assert_eq!(signals(&f), [0; 3]);
        assert_eq!(read_index(&f), 3);
        for slot in 0..3 {
            assert_eq!(f.b.ram32(f.q.ring + slot * 64) & 0xff, 1);
        }
        f.b.no_errors();
    }
}

#[test]
fn a_signal_is_completed_before_earlier_ones_and_the_read_index_waits() {
    if without_llvm("completion order") {
        return;
    }
    for asic in BOTH {
        let mut f = fixture(asic, 2, false, false);
        // The second one has nothing to do with the first.
        dispatch(&mut f, asic, &[(WAITS, 0), (COPIES, 0)]);
        for _ in 0..10_000 {
            f.b.run_steps(1);
            if signals(&f)[1] == 0 {
                break;
            }
        }
        assert_eq!(signals(&f)[..2], [1, 0], "{}", asic.name);
        assert_eq!(read_index(&f), 0);
        assert_eq!(f.b.ram32(f.q.ring + 64) & 0xff, 2, "the packet stays");
        // The first goes on; nothing of the second happens again.
        f.b.set32(f.bus + DATA, 7);
        f.b.run();
        assert_eq!(signals(&f)[..2], [0, 0]);
        assert_eq!(read_index(&f), 2);
        assert_eq!(data(&f, 3), [7, 1, 0]);
        f.b.no_errors();
    }
}

#[test]
fn the_barrier_bit_keeps_a_dispatch_until_those_before_it_are_complete() {
    if without_llvm("barrier bit") {
        return;
    }
    for asic in BOTH {
        let mut f = fixture(asic, 2, false, false);
        dispatch(&mut f, asic, &[(WAITS, 0), (OPENS, BARRIER)]);
        f.b.run_steps(2_000);
        assert_eq!(data(&f, 2), [0, 0], "{}", asic.name);
        assert_eq!(signals(&f)[..2], [1, 1]);
        f.b.set32(f.bus + DATA, 3);
        f.b.run();
        assert_eq!(data(&f, 2), [7, 1]);
        assert_eq!((signals(&f)[..2].to_vec(), read_index(&f)), (vec![0, 0], 2));
        f.b.no_errors();
    }
}

/// The slots of a queue's private memory are those of one dispatch.
#[test]
fn a_second_dispatch_with_private_memory_waits() {
    if without_llvm("private memory") {
        return;
    }
    for asic in BOTH {
        let mut f = fixture(asic, 2, false, false);
        // The queue has 2 slots of 1 KiB, 16 bytes for each work-item.
        let (va, _) = f.p.page(&mut f.b, 4096);
        let object = f.q.ptrs + 1024;
        let resource = [va as u32, (va >> 32) as u32 | (1 << 31), 4096, 0x00ea_4fac];
        f.b.set32(object + 140, 2 | (1 << 12));
        f.b.set_words(object + 144, &resource);
        f.b.set64(object + 160, va);
        f.b.set32(object + 176, 16);
        dispatch(&mut f, asic, &[(WAITS, 0), (OPENS, 0)]);
        for slot in 0..2 {
            f.b.set32(f.q.ring + slot * 64 + 24, 16);
        }
        f.b.run_steps(2_000);
        assert_eq!(data(&f, 2), [0, 0], "{}", asic.name);
        assert_eq!(signals(&f)[..2], [1, 1]);
        f.b.set32(f.bus + DATA, 3);
        f.b.run();
        assert_eq!(data(&f, 2), [7, 1]);
        assert_eq!((signals(&f)[..2].to_vec(), read_index(&f)), (vec![0, 0], 2));
        f.b.no_errors();
    }
}

/// All of them are saved, and all go on.
#[test]
fn a_preemption_takes_all_dispatches_of_a_queue() {
    if without_llvm("preemption of several") {
        return;
    }
    for asic in BOTH {
        let mut f = fixture(asic, 1, false, true);
        dispatch(&mut f, asic, &[(WAITS, 0), (WAITS, 0), (COPIES, 0)]);
        for _ in 0..10_000 {
            f.b.run_steps(1);
            if signals(&f)[2] == 0 {
                break;
            }
        }
        assert_eq!(signals(&f), [1, 1, 0]);
        let fence = f.b.unmap(3, 0, 0);
        for _ in 0..1000 {
            f.b.run_steps(1);
            if f.b.ram64(fence.bus) == 100 {
                break;
            }
        }
        assert_eq!(f.b.ram64(fence.bus), 100);
        f.b.set32(f.bus + DATA, 7);
        let list = f.list.clone();
        f.b.run_list(&list, false, 1);
        f.b.run();
        assert_eq!(signals(&f), [0; 3], "{}", asic.name);
        assert_eq!(read_index(&f), 3);
        // The copy was made before anything was stored, and not again.
        assert_eq!(data(&f, 3), [7, 1, 0]);
        f.b.no_errors();
    }
}
