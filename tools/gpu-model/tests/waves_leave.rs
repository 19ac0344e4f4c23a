// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Kernels that leave the compute units and come back: saves, resets, quanta, and threads that execute meanwhile.

mod common;

use common::kernel::*;
use common::queue::release_mem;
use gpu_model::asic::{Asic, GFX906, GFX90A};

const BOTH: [&Asic; 2] = [&GFX90A, &GFX906];

/// Adds 1 to a dword as often as s6 says, in a loop with LDS and a barrier.
fn long(rounds: u32) -> Launch {
    let program = format!(
        "s_mov_b32 m0, -1\ns_movk_i32 s6, {rounds}\nv_mov_b32 v5, 0\nv_lshlrev_b32 v4, 2, v0\n\
         ds_write_b32 v4, v5\nloop:\nds_read_b32 v5, v4\ns_waitcnt lgkmcnt(0)\nv_add_u32 v5, 1, v5\n\
         ds_write_b32 v4, v5\ns_waitcnt lgkmcnt(0)\ns_barrier\ns_sub_u32 s6, s6, 1\ns_cmp_lg_u32 s6, 0\n\
         s_cbranch_scc1 loop\ns_lshl_b32 s3, s2, 7\nv_add_u32 v1, s3, v0\n{ADDRESS}\
         global_atomic_add v[2:3], v5, off\ns_endpgm"
    );
    let mut kernel = Launch::new(&program, 128, 1280);
    kernel.lds = 512;
    kernel
}

#[test]
fn a_kernel_is_saved_in_the_middle_and_goes_on() {
    if without_llvm("save") {
        return;
    }
    for asic in BOTH {
        let mut f = fixture(asic, 1, false, true);
        submit(&mut f, asic, &long(20_000));
        let mut cuts = 0;
        while !is_done(&f) {
            f.b.run_steps(8);
            if is_done(&f) {
                break;
            }
            // Without waiting for the queue to have nothing to do, which it never has.
            let fence = f.b.unmap(3, 0, 0);
            for _ in 0..1000 {
                f.b.run_steps(1);
                if f.b.ram64(fence.bus) == 100 {
                    break;
                }
            }
            assert_eq!(f.b.ram64(fence.bus), 100);
            if is_done(&f) {
                break;
            }
            let dw = |i: u64| f.b.ram32(f.q.mqd.bus + i * 4);
            let (stack, state) = (dw(175) - dw(174), dw(176) - dw(175));
            assert!(stack >= 8 && state > 0);
            if stack > 8 {
                cuts += 1;
                let waves = stack / 8 - 1;
                assert!(
                    waves % 2 == 0 && state > waves * 24 * 256,
                    "{waves} waves in {state:#x} bytes"
                );
            }
            let list = f.list.clone();
            f.b.run_list(&list, false, 1);
        }
        assert!(cuts > 3, "{cuts}");
        assert_eq!(
            data(&f, 1281),
            [vec![20_000; 1280], vec![0]].concat(),
            "{}",
            asic.name
        );
        assert_eq!(f.b.gpu.soc.log.stats.saves_changed, 0);
        f.b.no_errors();
    }
}

/// On hardware the trap handler writes all registers of each wave, and the LDS of the group.
#[test]
fn saved_waves_take_what_hardware_would() {
    if without_llvm("sizes") {
        return;
    }
    for asic in BOTH {
        for waves in [2, 8] {
            let mut f = fixture(asic, 1, false, true);
            let mut kernel = Launch::new("loop:\ns_branch loop", 64 * waves, 64 * waves);
            kernel.lds = 512;
            kernel.put(&f.b, asic, f.bus + CODE);
            // GRANULATED_WAVEFRONT_SGPR_COUNT: 112.
            let rsrc1 = f.b.ram32(f.bus + CODE + 48);
            f.b.set32(f.bus + CODE + 48, rsrc1 & !(0xf << 6) | (13 << 6));
            let p = kernel.packet(f.va + CODE, f.va + KERNARG, f.va + DONE);
            f.b.set_words(f.q.ring, &p);
            f.q.wptr = 1;
            f.b.set64(f.q.ptrs + 64, 1);
            f.b.bell(f.q.doorbell, 0);
            f.b.run_steps(100);
            let fence = f.b.unmap(3, 0, 0);
            f.b.run_steps(50);
            assert_eq!(f.b.ram64(fence.bus), 100);
            let dw = |i: u64| f.b.ram32(f.q.mqd.bus + i * 4);
            let (stack, state) = (dw(175) - dw(174), dw(176) - dw(175));
            // 24 vector registers of 64 lanes, scalar registers, hardware registers; LDS.
            let hardware = waves * (24 * 256 + 112 * 4 + 128) + 512;
            assert_eq!((stack, state), (8 * (1 + waves), hardware), "{}", asic.name);
            f.b.no_errors();
        }
    }
}

/// MEC_ME1_HALT stops the engine, not what it has begun.
#[test]
fn waves_go_on_while_the_engine_is_halted() {
    if without_llvm("halt") {
        return;
    }
    for asic in BOTH {
        let mut f = fixture(asic, 1, false, true);
        submit(&mut f, asic, &long(20_000));
        f.b.run_steps(8);
        assert!(f.b.gpu.waves.dispatcher.figures().1 > 0, "waves are there");
        assert_eq!(data(&f, 1), [0]);
        f.b.wr(0x8234, 1 << 30);
        // Barrier-AND without dependencies, with a signal.
        let signal = DONE + 0x40;
        f.b.set64(f.bus + signal + 8, 1);
        let mut p = [0u32; 16];
        let at = f.va + signal;
        (p[0], p[14], p[15]) = (3 | (1 << 8), at as u32, (at >> 32) as u32);
        f.b.set_words(f.q.ring + 64, &p);
        f.q.wptr += 1;
        f.b.set64(f.q.ptrs + 64, f.q.wptr);
        f.b.bell(f.q.doorbell, f.q.wptr - 1);
        let want = [vec![20_000; 1280], vec![0]].concat();
        for _ in 0..100_000 {
            if data(&f, 1280) == want[..1280] {
                break;
            }
            f.b.run_steps(8);
        }
        assert_eq!(data(&f, 1281), want, "{}", asic.name);
        f.b.run_for(5_000_000);
        assert!(!is_done(&f), "the engine would complete the packet");
        assert_eq!(f.b.ram64(f.bus + signal + 8), 1, "nor is there a next one");
        f.b.wr(0x8234, 0);
        f.b.run_for(5_000_000);
        assert!(is_done(&f));
        assert_eq!(f.b.ram64(f.bus + signal + 8), 0);
        f.b.no_errors();
    }
}

#[test]
fn a_reset_kills_the_waves() {
    if without_llvm("reset") {
        return;
    }
    let asic = &GFX90A;
    let mut f = fixture(asic, 1, false, true);
    submit(
        &mut f,
        asic,
        &Launch::new("loop:\ns_branch loop", 64, 64 * 100),
    );
    f.b.run_steps(100);
    assert_eq!(f.b.gpu.waves.dispatcher.figures().1, 32, "the unit is full");
    let fence = f.b.unmap(3, 1, 0);
    f.b.run_steps(50);
    assert_eq!(f.b.ram64(fence.bus), 100);
    assert_eq!(f.b.gpu.waves.dispatcher.figures().1, 0);
    assert!(!is_done(&f));
    f.b.no_errors();
}

/// Thirty queues on 24 slots, each with a kernel that takes longer than a window.
#[test]
fn kernels_share_the_device_by_quanta() {
    if without_llvm("quanta") {
        return;
    }
    let asic = &GFX90A;
    let board = gpu_model::board::Board {
        compute_units: 1,
        ..asic.board
    };
    let b = common::Bench::on_board(asic, board).schedule();
    let mut f = common::fixture::Fixture::on(b, 0x61, 0x10000, |b, p, _| p.queue(b));
    f.preempt();
    let program = "s_mov_b32 s4, 0\ns_mov_b32 s6, 100000\nloop:\ns_add_u32 s4, s4, 1\n\
        s_sub_u32 s6, s6, 1\ns_cmp_lg_u32 s6, 0\ns_cbranch_scc1 loop\n\
        v_mov_b32 v2, s0\nv_mov_b32 v3, s1\nv_mov_b32 v0, s4\n\
        global_atomic_add v[2:3], v0, off\ns_endpgm";
    f.b.set_words(f.bus + 0x4000, &assemble(asic, program));
    let entry = (f.va + 0x4000) >> 8;
    let mut queues = Vec::new();
    f.list = f.p.map_process(&f.b, 30);
    for i in 0..30u64 {
        let mut q = f.p.queue(&mut f.b).with_cwsr(&mut f.b, &mut f.p);
        f.list.extend(q.map_queues());
        let out = f.va + 4 * i;
        q.push(&mut f.b, &sh(0x204, &[0, 0, 0, 1, 1, 1]));
        q.push(&mut f.b, &sh(0x20c, &[entry as u32, (entry >> 32) as u32]));
        q.push(&mut f.b, &sh(0x212, &[2, 2 << 1]));
        q.push(&mut f.b, &sh(0x22d, &[9]));
        q.push(&mut f.b, &sh(0x240, &[out as u32, (out >> 32) as u32]));
        q.push(&mut f.b, &[0xc003_1500, 1, 1, 1, 0x21]);
        q.push(&mut f.b, &release_mem(f.va + 0x1000 + 8 * i, 1, 0));
        queues.push(q);
    }
    let list = f.list.clone();
    f.b.run_list(&list, true, 1);
    let mut saved = 0;
    let done =
        |f: &common::fixture::Fixture| (0..30).all(|i| f.b.ram64(f.bus + 0x1000 + 8 * i) == 1);
    for _ in 0..10_000 {
        f.b.advance(5_000_000);
        f.b.run_steps(5);
        let waves = |q: &common::queue::UserQueue| {
            let dw = |i: u64| f.b.ram32(q.mqd.bus + i * 4);
            dw(175) - dw(174) > 8
        };
        saved += queues.iter().filter(|q| waves(q)).count();
        if done(&f) {
            break;
        }
    }
    assert!(done(&f));
    assert_eq!(f.b.words(f.bus, 31), [vec![100_000; 30], vec![0]].concat());
    assert!(saved > 0 && f.b.gpu.soc.log.stats.rotations > 1, "{saved}");
    assert_eq!(f.b.gpu.soc.log.stats.saves_changed, 0);
    f.b.no_errors();
}

/// Without a save area the waves are waited for, and no further dispatch begins meanwhile.
#[test]
fn a_queue_that_cannot_save_its_waves_drains() {
    if without_llvm("drain") {
        return;
    }
    let asic = &GFX90A;
    let mut f = fixture(asic, 1, false, false);
    let program = format!(
        "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\nwait:\n\
         s_load_dword s6, s[4:5], 0x1000 glc\ns_waitcnt lgkmcnt(0)\ns_cmp_lg_u32 s6, 5\n\
         s_cbranch_scc1 wait\n{}",
        store_each("v_add_u32 v0, 1, v0")
    );
    let kernel = Launch::new(&program, 64, 64);
    f.b.set64(f.bus + DONE + 8, 2);
    submit(&mut f, asic, &kernel);
    submit(&mut f, asic, &kernel);
    f.b.run_steps(100);
    let fence = f.b.unmap(3, 0, 0);
    f.b.run_steps(100);
    assert_eq!(f.b.ram64(fence.bus), 10, "the queue is still there");
    f.b.set32(f.bus + DATA + 0x1000, 5);
    for _ in 0..20 {
        f.b.advance(1_000_000);
        f.b.run_steps(20);
    }
    assert_eq!(f.b.ram64(fence.bus), 100);
    assert_eq!(f.b.ram64(f.bus + DONE + 8), 1, "one dispatch has run");
    assert_eq!(data(&f, 64), (1..65).collect::<Vec<_>>());
    f.resume();
    f.b.run_for(3_000_000);
    assert!(is_done(&f));
    f.b.no_errors();
}

/// The same with threads that execute.
#[test]
fn threads_execute_what_the_device_would() {
    if without_llvm("threads") {
        return;
    }
    for asic in BOTH {
        let mut f = fixture(asic, 1, false, true);
        f.b.gpu.waves.spawn(2).unwrap();
        submit(&mut f, asic, &long(2_000));
        let mut cut = 0;
        let begun = std::time::Instant::now();
        while !is_done(&f) {
            assert!(begun.elapsed().as_secs() < 60, "{}", asic.name);
            f.b.run_for(200_000);
            cut += 1;
            if cut % 16 == 0 && !is_done(&f) {
                f.preempt();
                f.resume();
            }
            std::thread::yield_now();
        }
        assert_eq!(
            data(&f, 1281),
            [vec![2_000; 1280], vec![0]].concat(),
            "{}",
            asic.name
        );
        f.b.no_errors();
    }
}
