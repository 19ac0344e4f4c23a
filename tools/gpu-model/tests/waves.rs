// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Kernels that run: what they leave in memory, how they complete, how they fail.

mod common;

use common::kernel::*;
use common::queue::{release_mem, wait_mem};
use gpu_model::asic::{Asic, GFX906, GFX90A};

const BOTH: [&Asic; 2] = [&GFX90A, &GFX906];

#[test]
fn every_work_item_stores_its_id() {
    if without_llvm("ids") {
        return;
    }
    for asic in BOTH {
        let mut f = fixture(asic, 4, false, false);
        // 1000 work-items: the last group has 40.
        let kernel = Launch::new(&store_each("v_add_u32 v0, s3, v0"), 64, 1000);
        launch(&mut f, asic, &kernel);
        let found = data(&f, 1024);
        let want: Vec<u32> = (0..1024).map(|i| if i < 1000 { i } else { 0 }).collect();
        assert_eq!(found, want, "{}", asic.name);
        assert!(is_done(&f));
        // Mailbox, interrupt, time stamps, read index, header.
        assert_eq!(f.b.ram64(f.bus + 0xf00), 42);
        let ivs = f.b.irqs();
        let seen: Vec<_> = ivs
            .iter()
            .map(|iv| (iv.client, iv.source, iv.data[0]))
            .collect();
        assert_eq!(seen, [(0x14, 181, 42)]);
        let (start, end) = (f.b.ram64(f.bus + DONE + 32), f.b.ram64(f.bus + DONE + 40));
        assert!(start != 0 && end >= start);
        assert_eq!(f.b.ram64(f.q.ptrs + 1024 + 128), 1);
        assert_eq!(f.b.ram32(f.q.ring) & 0xff, 1);
        f.b.no_errors();
    }
}

#[test]
fn ids_of_three_dimensions_count_the_items_of_partial_groups() {
    if without_llvm("dimensions") {
        return;
    }
    for asic in BOTH {
        let mut f = fixture(asic, 4, false, false);
        // Flat id over the grid of 7 x 5 x 3 with groups of 4 x 2 x 2.
        let unpack = if asic.name == "gfx906" {
            ""
        } else {
            "v_bfe_u32 v2, v0, 20, 10\nv_bfe_u32 v1, v0, 10, 10\nv_and_b32 v0, 0x3ff, v0\n"
        };
        let program = format!(
            "{unpack}s_lshl_b32 s3, s3, 1\ns_lshl_b32 s4, s4, 1\ns_lshl_b32 s2, s2, 2\n\
             v_add_u32 v4, s2, v0\nv_add_u32 v5, s3, v1\nv_add_u32 v6, s4, v2\n\
             v_mad_u32_u24 v5, v6, 5, v5\nv_mad_u32_u24 v0, v5, 7, v4\n\
             v_mov_b32 v1, v0\n{ADDRESS}v_add_u32 v0, 1, v0\n\
             global_store_dword v[2:3], v0, off\ns_endpgm"
        );
        let mut kernel = Launch::new(&program, 0, 0);
        kernel.group = [4, 2, 2];
        kernel.grid = [7, 5, 3];
        kernel.rsrc2 = (7 << 7) | (2 << 11);
        launch(&mut f, asic, &kernel);
        let want: Vec<u32> = (0..128).map(|i| if i < 105 { i + 1 } else { 0 }).collect();
        assert_eq!(data(&f, 128), want, "{}", asic.name);
        assert!(is_done(&f));
        f.b.no_errors();
    }
}

/// Each lane writes to LDS; after the barrier it reads what the other end of the group wrote.
#[test]
fn lds_and_barriers_join_the_waves_of_a_group() {
    if without_llvm("lds") {
        return;
    }
    for asic in BOTH {
        let mut f = fixture(asic, 2, false, false);
        let program = format!(
            "s_mov_b32 m0, -1\nv_lshlrev_b32 v4, 2, v0\n\
             s_lshl_b32 s3, s2, 8\nv_add_u32 v1, s3, v0\nv_mul_u32_u24 v5, 3, v1\n\
             ds_write_b32 v4, v5\ns_waitcnt lgkmcnt(0)\ns_barrier\n\
             v_sub_u32 v4, 0x3fc, v4\nds_read_b32 v5, v4\n{ADDRESS}\
             s_waitcnt lgkmcnt(0)\nglobal_store_dword v[2:3], v5, off\ns_endpgm"
        );
        let mut kernel = Launch::new(&program, 256, 1024);
        kernel.lds = 1024;
        launch(&mut f, asic, &kernel);
        let want: Vec<u32> = (0..1024u32)
            .map(|i| 3 * (i / 256 * 256 + 255 - i % 256))
            .collect();
        assert_eq!(data(&f, 1024), want, "{}", asic.name);
        assert!(is_done(&f));
        f.b.no_errors();
    }
}

/// More groups than the one compute unit holds; each adds to one counter.
#[test]
fn atomics_of_all_groups_add_up() {
    if without_llvm("atomics") {
        return;
    }
    for asic in BOTH {
        let mut f = fixture(asic, 1, false, false);
        let program = format!(
            "v_mov_b32 v1, 0\n{ADDRESS}v_mov_b32 v0, 1\nglobal_atomic_add v[2:3], v0, off\ns_endpgm"
        );
        launch(&mut f, asic, &Launch::new(&program, 64, 64 * 500));
        assert_eq!(data(&f, 2), [64 * 500, 0], "{}", asic.name);
        assert!(is_done(&f));
        f.b.no_errors();
    }
}

/// Each group adds to a counter, and reads it when all have: what the first kernel has set up holds for the second.
#[test]
fn groups_meet_in_global_wave_sync() {
    if without_llvm("global wave sync") {
        return;
    }
    for asic in BOTH {
        let mut f = fixture(asic, 4, false, false);
        let init = "v_mov_b32 v4, 9\ns_mov_b32 m0, 0x50000\nds_gws_init v4 gds\n\
             s_waitcnt lgkmcnt(0)\ns_endpgm";
        launch(&mut f, asic, &Launch::new(init, 64, 64));
        assert!(is_done(&f));
        f.b.set64(f.bus + DONE + 8, 1);
        let program = format!(
            "v_mov_b32 v1, 0\n{ADDRESS}v_mov_b32 v0, 1\nglobal_atomic_add v[2:3], v0, off\n\
             s_waitcnt vmcnt(0)\nv_mov_b32 v4, 9\ns_mov_b32 m0, 0x50000\nds_gws_barrier v4 gds\n\
             s_waitcnt lgkmcnt(0)\nglobal_load_dword v6, v[2:3], off glc\ns_add_u32 s3, s2, 1\n\
             v_mov_b32 v1, s3\n{ADDRESS}s_waitcnt vmcnt(0)\nglobal_store_dword v[2:3], v6, off\ns_endpgm"
        );
        launch(&mut f, asic, &Launch::new(&program, 64, 640));
        assert_eq!(
            data(&f, 12),
            [&[640; 11][..], &[0]].concat(),
            "{}",
            asic.name
        );
        assert!(is_done(&f));
        f.b.no_errors();
    }
}

/// Hardware registers of the waves name the units that the mask of the queue permits.
#[test]
fn waves_run_where_the_mask_permits() {
    if without_llvm("masks") {
        return;
    }
    let asic = &GFX90A;
    let mut f = fixture(asic, 8, false, false);
    let kernel = Launch::new(
        &store_each("s_getreg_b32 s6, hwreg(HW_REG_HW_ID)\nv_mov_b32 v0, s6"),
        64,
        640,
    );
    launch(&mut f, asic, &kernel);
    let engines = |f: &common::fixture::Fixture| {
        let mut engines: Vec<u32> = data(f, 640).iter().map(|id| (id >> 13) & 7).collect();
        engines.sort_unstable();
        engines.dedup();
        engines
    };
    assert_eq!(engines(&f), [0, 1, 2, 3, 4, 5, 6, 7]);
    // STATIC_THREAD_MGMT of all engines but 5.
    f.preempt();
    for dw in [23, 24, 26, 27, 39, 41, 42] {
        f.b.set32(f.q.mqd.bus + dw * 4, 0);
    }
    f.resume();
    f.b.set64(f.bus + DONE + 8, 1);
    launch(&mut f, asic, &kernel);
    assert!(is_done(&f));
    assert_eq!(engines(&f), [5]);
    f.b.no_errors();
}

#[test]
fn private_memory_comes_from_the_queue_and_too_little_is_told() {
    if without_llvm("scratch") {
        return;
    }
    for asic in BOTH {
        let mut f = fixture(asic, 1, false, false);
        // s[0:3] descriptor, s[4:5] kernarg, s6 group, s7 wave offset. Stores and reads back by lane.
        let program = "s_mov_b32 s12, s6\ns_mov_b32 s13, s7\n\
            v_mul_u32_u24 v4, 7, v0\n\
            buffer_store_dword v4, off, s[0:3], s13 offset:8\n\
            s_load_dwordx2 s[8:9], s[4:5], 0x0\n\
            s_lshl_b32 s3, s12, 6\nv_add_u32 v1, s3, v0\nv_lshlrev_b32 v1, 2, v1\n\
            s_waitcnt lgkmcnt(0)\nv_mov_b32 v3, s9\nv_add_co_u32 v2, vcc, s8, v1\n\
            v_addc_co_u32 v3, vcc, 0, v3, vcc\n\
            s_mov_b32 s3, 0xea4fac\nbuffer_load_dword v5, off, s[0:3], s13 offset:8\ns_waitcnt vmcnt(0)\n\
            v_add_u32 v5, s12, v5\nglobal_store_dword v[2:3], v5, off\ns_endpgm";
        let mut kernel = Launch::new(program, 64, 640);
        kernel.private = 16;
        kernel.properties = 1 | (1 << 3);
        kernel.users = 6;
        kernel.rsrc2 = 1 | (1 << 7);
        submit(&mut f, asic, &kernel);
        f.b.run_for(3_000_000);
        assert_eq!(f.b.ram64(f.bus + INACTIVE + 8), 1, "insufficient scratch");
        let ivs = f.b.irqs();
        let seen: Vec<_> = ivs.iter().map(|iv| (iv.source, iv.data[0])).collect();
        assert_eq!(seen, [(181, 77)], "no error that anybody else would see");
        assert!(!is_done(&f));
        // The runtime gives it 2 slots of 1 KiB and lets the packet run again.
        let (va, bus) = f.p.page(&mut f.b, 4096);
        let obj = f.q.ptrs + 1024;
        f.b.set32(obj + 140, 2 | (1 << 12));
        f.b.set_words(
            obj + 144,
            &[va as u32, (va >> 32) as u32 | (1 << 31), 4096, 0x00ea_4fac],
        );
        f.b.set64(obj + 160, va);
        f.b.set32(obj + 176, 16);
        f.b.set64(f.bus + INACTIVE + 8, 0);
        f.b.run_for(3_000_000);
        assert!(is_done(&f), "{}", asic.name);
        let want: Vec<u32> = (0..640).map(|i| 7 * (i % 64) + i / 64).collect();
        assert_eq!(data(&f, 640), want, "{}", asic.name);
        // Lane l of slot s: dword 2 of its 16 bytes at s * 1024 + 2 * 256 + 4 * l.
        let slots: Vec<bool> = (0..4)
            .map(|s| f.b.ram32(bus + s * 1024 + 512 + 4 * 3) == 21)
            .collect();
        assert!(slots[0] && !slots[2] && !slots[3], "{slots:?}");
        f.b.no_errors();
    }
}

fn errors_of(
    program: &str,
    asic: &'static Asic,
) -> (u64, Vec<common::SeenIv>, common::fixture::Fixture) {
    let mut f = fixture(asic, 1, false, true);
    submit(&mut f, asic, &Launch::new(program, 64, 64));
    f.b.run_for(5_000_000);
    assert!(!is_done(&f), "a kernel that failed does not complete");
    f.b.no_errors();
    let ivs = f.b.irqs();
    (f.b.ram64(f.bus + INACTIVE + 8), ivs, f)
}

/// Encoding, privileged, 24 bits of data.
fn sq(iv: &common::SeenIv) -> (u32, bool, u32) {
    let [a, b, ..] = iv.data;
    let data = (a & 0xfff) | ((a >> 16) & 0xf000) | ((b << 16) & 0xff_0000);
    ((a >> 26) & 3, a & (1 << 13) != 0, data)
}

#[test]
fn what_a_wave_cannot_do_is_told_and_the_queue_stops() {
    if without_llvm("errors") {
        return;
    }
    // Words, the code of the inactive signal, type of the SQ error, exception.
    let cases: [(&str, u64, Option<u32>, u32); 4] = [
        (".long 0xbf9f0000\ns_endpgm", 0x4000_0000, Some(1), 4),
        ("s_trap 2\ns_endpgm", 0x8000_0000, None, 1),
        ("s_trap 5\ns_endpgm", 0x8000_0000, None, 2),
        // An address outside of 48 bits.
        (
            "v_mov_b32 v2, 0\nv_mov_b32 v3, 0x7fff0000\nglobal_load_dword v1, v[2:3], off\ns_endpgm",
            0x2000_0000,
            Some(2),
            6,
        ),
    ];
    for asic in BOTH {
        for (program, code, error, exception) in cases {
            let (value, ivs, mut f) = errors_of(program, asic);
            assert_eq!(value, code, "{program}: {ivs:x?}");
            let waves: Vec<_> = ivs.iter().filter(|iv| iv.source == 239).collect();
            assert!(waves
                .iter()
                .all(|iv| (0xa..0xe).contains(&iv.client) && iv.pasid == 0x31));
            let words: Vec<_> = waves.into_iter().map(sq).collect();
            let mut want: Vec<_> = error.into_iter().map(|e| (2, false, e << 20)).collect();
            want.push((1, true, 1 << (9 + exception)));
            assert_eq!(words, want, "{program}");
            // The queue can be taken off and reset.
            f.preempt();
            f.b.no_errors();
        }
    }
    // A debugger's trap without debugger is nothing.
    let mut f = fixture(&GFX90A, 1, false, false);
    launch(&mut f, &GFX90A, &Launch::new("s_trap 3\ns_endpgm", 64, 64));
    assert!(is_done(&f));
}

#[test]
fn faults_name_the_address_and_stop_the_queue() {
    if without_llvm("faults") {
        return;
    }
    for asic in BOTH {
        let program =
            "v_mov_b32 v2, 0x1000\nv_mov_b32 v3, 0x7123\nglobal_store_dword v[2:3], v0, off\ns_endpgm";
        let (value, ivs, f) = errors_of(program, asic);
        assert_eq!(value, 0);
        let fault = ivs.iter().find(|iv| iv.client == 0x1b).unwrap();
        assert_eq!(
            (fault.source, fault.pasid, fault.vmid),
            (0, 0x31, f.b.first_vmid())
        );
        let va = (u64::from(fault.data[0]) << 12) | (u64::from(fault.data[1] & 0xf) << 44);
        assert_eq!(va, 0x7123_0000_1000);
        assert_eq!(fault.data[1] & 0xf0, 0x20, "a write that does not retry");
        let words: Vec<_> = ivs.iter().filter(|iv| iv.source == 239).map(sq).collect();
        assert_eq!(words, [(2, false, 2 << 20), (1, true, 1 << 14)]);
    }
}

#[test]
fn a_page_that_comes_late_is_waited_for() {
    if without_llvm("retry") {
        return;
    }
    let asic = &GFX90A;
    let mut f = fixture(asic, 1, true, false);
    let late = 0x7123_0000_1000u64;
    f.b.set64(f.bus + KERNARG, late);
    submit(
        &mut f,
        asic,
        &Launch::new(&store_each("v_add_u32 v0, s3, v0"), 64, 256),
    );
    f.b.run_for(5_000_000);
    let ivs = f.b.irqs();
    let faults: Vec<_> = ivs.iter().filter(|iv| iv.client == 0x1b).collect();
    assert_eq!(faults.len(), 1, "{ivs:x?}");
    assert_eq!(faults[0].data[1] & 0xf0, 0xa0, "a write that retries");
    assert!(!is_done(&f));
    let page = f.b.alloc_ram(4096);
    f.p.set_pte(&mut f.b, late, page | 0x77);
    let vmid = f.b.first_vmid();
    f.b.flush_vmid(vmid);
    f.b.release_cam(faults[0].data[2]);
    f.b.run_for(5_000_000);
    assert!(is_done(&f));
    assert_eq!(f.b.words(page, 256), (0..256).collect::<Vec<_>>());
    f.b.no_errors();
}

#[test]
fn messages_reach_the_driver() {
    if without_llvm("messages") {
        return;
    }
    let mut f = fixture(&GFX906, 1, false, false);
    let program = "s_mov_b32 m0, 0x1234567\ns_sendmsg sendmsg(MSG_INTERRUPT)\ns_endpgm";
    launch(&mut f, &GFX906, &Launch::new(program, 64, 64));
    assert!(is_done(&f));
    let words: Vec<_> =
        f.b.irqs()
            .iter()
            .filter(|iv| iv.source == 239)
            .map(sq)
            .collect();
    assert_eq!(words, [(1, false, 0x23_4567)]);
    f.b.no_errors();
}

/// A PM4 queue goes on behind a dispatch, except for what has to wait for its waves.
#[test]
fn a_dispatch_of_a_pm4_queue() {
    if without_llvm("pm4") {
        return;
    }
    for asic in BOTH {
        let mut f = common::fixture::Fixture::new(asic, 0x31, 0x10000);
        // s[0:1] address, s2 group; waits for a dword that a later packet writes.
        let program = "wait:\ns_load_dword s4, s[0:1], 0x100 glc\ns_waitcnt lgkmcnt(0)\n\
            s_sleep 1\ns_cmp_lg_u32 s4, 77\ns_cbranch_scc1 wait\n\
            s_lshl_b32 s2, s2, 2\nv_mov_b32 v2, s0\nv_mov_b32 v3, s1\nv_add_u32 v2, s2, v2\n\
            v_mov_b32 v0, s2\nglobal_store_dword v[2:3], v0, off\ns_endpgm";
        f.b.set_words(f.bus + 0x4000, &assemble(asic, program));
        let entry = (f.va + 0x4000) >> 8;
        let out = f.va + 0x100;
        f.q.push(&mut f.b, &sh(0x204, &[0, 0, 0, 1, 1, 1]));
        f.q.push(&mut f.b, &sh(0x20c, &[entry as u32, (entry >> 32) as u32]));
        f.q.push(&mut f.b, &sh(0x212, &[2, (2 << 1) | (1 << 7)]));
        f.q.push(&mut f.b, &sh(0x22d, &[9]));
        f.q.push(&mut f.b, &sh(0x240, &[out as u32, (out >> 32) as u32]));
        f.q.push(&mut f.b, &[0xc003_1500, 5, 1, 1, 0x21]);
        f.q.push(&mut f.b, &release_mem(f.va + 0x40, 0xdead_beef, 9));
        let later = common::queue::write_data(f.va + 0x300, 1);
        f.q.push(&mut f.b, &later);
        f.q.ring_bell(&mut f.b);
        f.b.run_steps(200);
        assert_eq!(f.b.ram64(f.bus + 0x40), 0, "the event waits for the waves");
        f.b.set32(f.bus + 0x200, 77);
        f.b.run_for(5_000_000);
        assert_eq!(
            f.b.words(f.bus + 0x100, 6),
            [0, 4, 8, 12, 16, 0],
            "{}",
            asic.name
        );
        assert_eq!(f.b.ram64(f.bus + 0x40), 0xdead_beef);
        assert_eq!(f.b.ram32(f.bus + 0x300), 1);
        f.b.no_errors();
        // What does not wait for waves lets them go on.
        f.b.set32(f.bus + 0x200, 0);
        f.q.push(&mut f.b, &[0xc003_1500, 5, 1, 1, 0x21]);
        let open = common::queue::write_data(f.va + 0x200, 77);
        f.q.push(&mut f.b, &open);
        f.q.push(&mut f.b, &release_mem(f.va + 0x48, 7, 9));
        f.q.push(&mut f.b, &wait_mem(f.va + 0x48, 7));
        f.q.ring_bell(&mut f.b);
        f.b.run_for(5_000_000);
        assert_eq!(f.b.ram64(f.bus + 0x48), 7);
        f.b.no_errors();
    }
}

#[test]
fn a_trap_handler_sees_traps_and_returns() {
    if without_llvm("handler") {
        return;
    }
    for asic in BOTH {
        let mut f = fixture(asic, 1, false, true);
        let handler = "s_bfe_u32 ttmp2, ttmp1, 0x80010\ns_mov_b32 m0, ttmp2\ns_nop 0\n\
            s_sendmsg sendmsg(MSG_INTERRUPT)\ns_add_u32 ttmp0, ttmp0, 4\ns_addc_u32 ttmp1, ttmp1, 0\n\
            s_and_b32 ttmp1, ttmp1, 0xffff\ns_rfe_b64 ttmp[0:1]";
        f.b.set_words(f.bus + 0x6000, &assemble(asic, handler));
        let tba = (f.va + 0x6000) >> 8;
        f.preempt();
        // SQ_SHADER_TBA of MAP_PROCESS, with TRAP_EN.
        f.list[6] = tba as u32;
        f.list[7] = (tba >> 32) as u32 | (1 << 31);
        f.resume();
        launch(
            &mut f,
            asic,
            &Launch::new(&store_each("s_trap 7\nv_add_u32 v0, s3, v0"), 64, 64),
        );
        assert!(is_done(&f));
        assert_eq!(data(&f, 64), (0..64).collect::<Vec<_>>());
        let words: Vec<_> =
            f.b.irqs()
                .iter()
                .filter(|iv| iv.source == 239)
                .map(sq)
                .collect();
        assert_eq!(words, [(1, true, 7)]);
        f.b.no_errors();
    }
}
