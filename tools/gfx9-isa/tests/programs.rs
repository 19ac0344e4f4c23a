// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Memory instructions, scalar code and small programs, assembled by LLVM.

#![allow(
    clippy::precedence,
    clippy::needless_range_loop,
    clippy::bool_assert_comparison,
    clippy::type_complexity,
    clippy::unwrap_used,
    clippy::panic,
    reason = "fields are shifted and masked, and lanes counted, everywhere"
)]

mod common;

use common::machine::Machine;
use common::machine::BASE;
use common::without_llvm;
use gfx9_isa::exec::Exception;
use gfx9_isa::exec::Flow;
use gfx9_isa::inst::Asic;
use gfx9_isa::wave::reg;

fn with_base(asic: Asic) -> Machine {
    let mut machine = Machine::new(asic);
    machine.wave.set_pair(0, BASE);
    for index in 0..1024 {
        machine.memory.set_word(index, index as u32);
    }
    machine
}

#[test]
fn scalar_code_adds_in_a_loop() {
    if without_llvm("loop") {
        return;
    }
    let mut machine = with_base(Asic::Gfx906);
    machine
        .asm("s_mov_b32 s4, 0\ns_movk_i32 s5, 100\nloop:\ns_load_dword s6, s[0:1], 0x10\ns_waitcnt lgkmcnt(0)\ns_add_u32 s4, s4, s6\ns_sub_u32 s5, s5, 1\ns_cmp_lg_u32 s5, 0\ns_cbranch_scc1 loop\ns_store_dword s4, s[0:1], 0x40")
        .unwrap();
    assert_eq!(machine.memory.word(16), 400);
}

#[test]
fn scalar_results_and_condition_codes() {
    if without_llvm("scalar") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx90a);
    let mut run = |text: &str| {
        machine.asm(text).unwrap();
        (machine.wave.sgpr[2], machine.wave.sgpr[3], machine.wave.scc)
    };
    assert_eq!(
        run("s_mov_b32 s0, -1\ns_add_u32 s2, s0, 2\ns_addc_u32 s3, 0, 0"),
        (1, 1, false)
    );
    assert_eq!(run("s_mov_b32 s0, 0x7fffffff\ns_add_i32 s2, s0, 1").2, true);
    assert_eq!(
        run("s_mov_b32 s0, 0x12345678\ns_bfe_u32 s2, s0, 0x80008").0,
        0x56
    );
    assert_eq!(
        run("s_mov_b32 s0, 0x1234f678\ns_bfe_i32 s2, s0, 0x80008").0,
        0xFFFF_FFF6
    );
    assert_eq!(
        run("s_flbit_i32 s2, -1\ns_flbit_i32_b32 s3, 0x100").0,
        u32::MAX
    );
    assert_eq!(
        run("s_mov_b64 s[2:3], -2\ns_ashr_i64 s[2:3], s[2:3], 1"),
        (u32::MAX, u32::MAX, true)
    );
    assert_eq!(
        run("s_bitreplicate_b64_b32 s[2:3], 0x80000001"),
        (3, 0xC000_0000, true)
    );
    assert_eq!(run("s_min_i32 s2, 5, 5").2, false);
    assert_eq!(run("s_mul_hi_i32 s2, -2, 3").0, u32::MAX);
    assert_eq!(
        run("s_movk_i32 s2, -3\ns_mulk_i32 s2, 7").0,
        (-21i32) as u32
    );
    assert_eq!(run("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 6\ns_getreg_b32 s2, hwreg(HW_REG_MODE, 1, 2)").0, 3);
    assert_eq!(run("s_mov_b64 s[2:3], src_private_base").1, 0x0002_0000);
    assert_eq!(run("s_mov_b64 s[2:3], 1.0").1, 0x3FF0_0000);
    assert_eq!(run("s_wqm_b64 s[2:3], 0x102").0, 0xF0F);
    assert_eq!(
        run("s_mov_b32 s0, 0x11112222\ns_pack_lh_b32_b16 s2, s0, 0x33334444").0,
        0x3333_2222
    );
}

#[test]
fn calls_return() {
    if without_llvm("calls") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx906);
    machine
        .asm("s_mov_b32 s4, 1\ns_call_b64 s[30:31], function\ns_add_u32 s4, s4, 10\ns_endpgm\nfunction:\ns_add_u32 s4, s4, 100\ns_setpc_b64 s[30:31]")
        .unwrap();
    assert_eq!(machine.wave.sgpr[4], 111);
}

#[test]
fn lanes_diverge_and_meet() {
    if without_llvm("divergence") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx906);
    machine.set(0, std::array::from_fn(|lane| lane as u32));
    // Each lane counts its number down by a loop of its own length.
    machine
        .asm("v_mov_b32_e32 v1, 0\ns_mov_b64 s[4:5], exec\nloop:\nv_cmp_lt_u32_e32 vcc, v1, v0\ns_and_b64 exec, exec, vcc\ns_cbranch_execz done\nv_add_u32_e32 v1, 1, v1\ns_branch loop\ndone:\ns_mov_b64 exec, s[4:5]\nv_lshlrev_b32_e32 v1, 1, v1")
        .unwrap();
    for (lane, found) in machine.get(1).into_iter().enumerate() {
        assert_eq!(found, 2 * lane as u32);
    }
}

#[test]
fn global_memory_by_all_forms() {
    if without_llvm("global") {
        return;
    }
    let mut machine = with_base(Asic::Gfx90a);
    machine.set(0, std::array::from_fn(|lane| 4 * lane as u32));
    let addresses = std::array::from_fn(|lane| BASE + 0x800 + 16 * lane as u64);
    machine.set_wide(2, &addresses);
    machine
        .asm("global_load_dword v4, v0, s[0:1] offset:8\nflat_load_dwordx4 v[8:11], v[2:3]\nglobal_store_dwordx2 v[2:3], v[8:9], off offset:-2048\nglobal_load_sbyte v5, v0, s[0:1] offset:1023\nglobal_load_short_d16_hi v6, v0, s[0:1]")
        .unwrap();
    for lane in 0..64 {
        assert_eq!(machine.get(4)[lane], lane as u32 + 2);
        assert_eq!(machine.get(11)[lane], 0x200 + 4 * lane as u32 + 3);
        assert_eq!(machine.memory.word(4 * lane + 1), 0x201 + 4 * lane as u32);
        assert_eq!(machine.get(5)[lane], 0);
        assert_eq!(machine.get(6)[lane], machine.memory.word(lane) << 16);
    }
}

#[test]
fn atomics_return_what_was_there() {
    if without_llvm("atomics") {
        return;
    }
    let mut machine = with_base(Asic::Gfx90a);
    machine.set(0, [0; 64]);
    machine.set(1, [3; 64]);
    machine
        .asm("global_atomic_add v2, v0, v1, s[0:1] offset:16 glc")
        .unwrap();
    let mut old = machine.get(2);
    old.sort_unstable();
    let expected: Vec<u32> = (0..64).map(|lane| 4 + 3 * lane).collect();
    assert_eq!(old.to_vec(), expected);
    assert_eq!(machine.memory.word(4), 4 + 192);
    // Compare and swap has the new value first in memory, second in LDS.
    machine.set(4, [77; 64]);
    machine.set(5, [5; 64]);
    machine
        .asm("global_atomic_cmpswap v6, v0, v[4:5], s[0:1] offset:20 glc")
        .unwrap();
    assert_eq!(
        (machine.memory.word(5), machine.get(6)[0], machine.get(6)[1]),
        (77, 5, 77)
    );
    machine.lds[8] = 5;
    machine
        .asm("ds_cmpst_rtn_b32 v6, v0, v5, v4 offset:8")
        .unwrap();
    assert_eq!(
        (machine.lds[8], machine.get(6)[0], machine.get(6)[1]),
        (77, 5, 77)
    );
    machine.memory.set_word(8, 1.5f32.to_bits());
    machine.set(1, [0.25f32.to_bits(); 64]);
    machine
        .asm("global_atomic_add_f32 v0, v1, s[0:1] offset:32")
        .unwrap();
    assert_eq!(f32::from_bits(machine.memory.word(8)), 17.5);
    machine.set(0, [2; 64]);
    let error = machine.asm("global_atomic_add v0, v1, s[0:1]");
    assert_eq!(error, Err(Exception::Violation { address: BASE + 2 }));
}

#[test]
fn a_fault_changes_nothing() {
    if without_llvm("faults") {
        return;
    }
    let mut machine = with_base(Asic::Gfx90a);
    let far = std::array::from_fn(|lane| if lane == 40 { 64 } else { BASE });
    machine.set_wide(2, &far);
    machine.set_wide(4, &[7; 64]);
    assert!(matches!(
        machine.asm("global_load_dword v4, v[2:3], off"),
        Err(Exception::Memory(_))
    ));
    assert_eq!((machine.wave.pc, machine.get(4)), (0, [7; 64]));
    let before = machine.memory.bytes.clone();
    assert!(machine.asm("global_atomic_add v[2:3], v4, off").is_err());
    assert!(machine.asm("global_store_dword v[2:3], v4, off").is_err());
    assert_eq!(machine.memory.bytes, before);
    // Without lanes there is no access.
    machine.wave.set_pair(reg::EXEC, 0);
    machine.asm("global_load_dword v4, v[2:3], off").unwrap();
    // No aperture is meant by global instructions.
    machine.wave.set_pair(reg::EXEC, 1);
    machine.set_wide(2, &[0x0001_0000_0000_0010; 64]);
    let error = machine.asm("global_load_dword v4, v[2:3], off");
    assert!(matches!(error, Err(Exception::Violation { .. })));
}

#[test]
fn flat_addresses_reach_three_spaces() {
    if without_llvm("flat") {
        return;
    }
    let mut machine = with_base(Asic::Gfx906);
    machine.wave.set_pair(reg::FLAT_SCRATCH, BASE + 0x4000);
    machine.lds[0x24..0x28].copy_from_slice(&0xAABB_CCDDu32.to_le_bytes());
    let addresses = std::array::from_fn(|lane| match lane % 3 {
        0 => BASE + 4 * lane as u64,
        1 => 0x0001_0000_0000_0020,
        _ => 0x0002_0000_0000_0008,
    });
    machine.set_wide(2, &addresses);
    // Private memory is interleaved by dwords of the lanes.
    for lane in 0..64 {
        machine
            .memory
            .set_word(0x1000 + 3 * 64 + lane, 5000 + lane as u32);
    }
    machine.asm("flat_load_dword v4, v[2:3] offset:4").unwrap();
    for (lane, found) in machine.get(4).into_iter().enumerate() {
        let expected = match lane % 3 {
            0 => lane as u32 + 1,
            1 => 0xAABB_CCDD,
            _ => 5000 + lane as u32,
        };
        assert_eq!(found, expected, "lane {lane}");
    }
}

#[test]
fn scratch_by_resource_equals_scratch_by_address() {
    if without_llvm("scratch") {
        return;
    }
    let mut machine = with_base(Asic::Gfx942);
    machine.wave.set_pair(reg::FLAT_SCRATCH, BASE + 0x4000);
    machine.set(2, std::array::from_fn(|lane| 9000 + lane as u32));
    machine.set(3, std::array::from_fn(|lane| 100 + lane as u32));
    machine.wave.sgpr[9] = 16;
    machine
        .asm("scratch_store_dwordx2 off, v[2:3], s9 offset:8")
        .unwrap();
    for lane in 0..64 {
        assert_eq!(
            machine.memory.word(0x1000 + 6 * 64 + lane),
            9000 + lane as u32
        );
        assert_eq!(
            machine.memory.word(0x1000 + 7 * 64 + lane),
            100 + lane as u32
        );
    }
    // The resource that the runtime makes of the same memory.
    let base = BASE + 0x4000;
    let words = [
        base as u32,
        (base >> 32) as u32 | 1 << 31,
        0x8000,
        0x00EA_4FAC,
    ];
    machine.wave.sgpr[4..8].copy_from_slice(&words);
    machine.set(3, [16; 64]);
    machine.asm("buffer_load_dword v5, v3, s[4:7], 0 offen offset:8\nbuffer_load_dword v6, off, s[4:7], s9 offset:12").unwrap();
    for lane in 0..64 {
        assert_eq!(machine.get(5)[lane], 9000 + lane as u32);
    }
    // SOFFSET counts in bytes, outside of the interleaving.
    assert_eq!(machine.get(6)[0], machine.memory.word(0x1000 + 3 * 64 + 4));
}

#[test]
fn buffers_end_where_their_records_end() {
    if without_llvm("buffers") {
        return;
    }
    let mut machine = with_base(Asic::Gfx906);
    machine.wave.sgpr[4..8].copy_from_slice(&[BASE as u32, 0, 100, 0]);
    machine.set(0, std::array::from_fn(|lane| 4 * lane as u32));
    machine.asm("buffer_load_dwordx2 v[2:3], v0, s[4:7], 0 offen\ns_buffer_load_dwordx4 s[8:11], s[4:7], 0x58").unwrap();
    for lane in 0..64u32 {
        let word = |at: u32| if at < 25 { at } else { 0 };
        assert_eq!(machine.get(2)[lane as usize], word(lane));
        assert_eq!(machine.get(3)[lane as usize], word(lane + 1));
    }
    assert_eq!(machine.wave.sgpr[8..12], [22, 23, 24, 0]);
    machine.wave.sgpr[4..8].copy_from_slice(&[BASE as u32, 8 << 16, 10, 0]);
    machine.set(0, std::array::from_fn(|lane| lane as u32));
    machine
        .asm("buffer_load_dword v2, v0, s[4:7], 0 idxen offset:4")
        .unwrap();
    assert_eq!(
        machine.get(2)[..12],
        [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 0, 0]
    );
}

/// The base may be negative: base and offset add up on 32 bits.
#[test]
fn addresses_in_lds_wrap() {
    if without_llvm("addresses in LDS") {
        return;
    }
    for exec in [u64::MAX, 7] {
        let mut machine = Machine::new(Asic::Gfx90a);
        machine.wave.set_pair(reg::EXEC, exec);
        let base = |lane: usize| (4 * lane as u32).wrapping_sub(512);
        machine.set(0, std::array::from_fn(base));
        machine.set(2, std::array::from_fn(|lane| 1000 + lane as u32));
        machine.set(4, std::array::from_fn(|lane| 77 + lane as u32));
        machine
            .asm(
                "ds_write2st64_b32 v0, v2, v4 offset0:2 offset1:3\nds_add_u32 v0, v2 offset:512\n\
                 ds_read_b32 v6, v0 offset:512\nds_read2st64_b32 v[8:9], v0 offset0:2 offset1:3\n\
                 ds_read_u8 v10, v0 offset:768\nds_write_b8 v0, v4 offset:1024\nds_read_u8 v12, v0 offset:1024",
            )
            .unwrap();
        for lane in (0..64).filter(|lane| exec >> lane & 1 != 0) {
            let found = [6, 8, 9, 10, 12].map(|number| machine.get(number)[lane]);
            let (first, second) = (1000 + lane as u32, 77 + lane as u32);
            assert_eq!(found, [2 * first, 2 * first, second, second, second]);
        }
    }
}

#[test]
fn lds_in_all_widths_and_lanes_through_it() {
    if without_llvm("LDS") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx90a);
    machine.set(0, std::array::from_fn(|lane| 16 * lane as u32));
    machine.set(1, std::array::from_fn(|lane| 0x1000 + lane as u32));
    machine.set(2, std::array::from_fn(|lane| 0x2000 + lane as u32));
    machine.set(9, std::array::from_fn(|lane| 4 * (63 - lane as u32)));
    machine
        .asm("ds_write2_b32 v0, v1, v2 offset0:1 offset1:3\nds_read_b128 v[4:7], v0\nds_read_u16_d16_hi v8, v0 offset:4\nds_bpermute_b32 v10, v9, v1\nds_permute_b32 v11, v9, v1\nds_swizzle_b32 v12, v1 offset:swizzle(SWAP,1)\nds_read_b32 v13, v0 offset:65532")
        .unwrap();
    for lane in 0..64usize {
        let read: Vec<u32> = (4..8).map(|number| machine.get(number)[lane]).collect();
        assert_eq!(read, [0, 0x1000 + lane as u32, 0, 0x2000 + lane as u32]);
        assert_eq!(machine.get(8)[lane], (0x1000 + lane as u32) << 16);
        assert_eq!(machine.get(10)[lane], 0x1000 + 63 - lane as u32);
        assert_eq!(machine.get(11)[lane], 0x1000 + 63 - lane as u32);
        assert_eq!(machine.get(12)[lane], 0x1000 + (lane as u32 ^ 1));
        assert_eq!(machine.get(13)[lane], 0);
    }
    machine.wave.sgpr[usize::from(reg::M0)] = 2048;
    machine.wave.set_pair(reg::EXEC, 0x7);
    machine
        .asm("ds_append v3 offset:4\nds_append v4 offset:4\nds_consume v5 offset:4")
        .unwrap();
    assert_eq!([3, 4, 5].map(|number| machine.get(number)[1]), [0, 3, 6]);
}

#[test]
fn messages_traps_and_waits_reach_the_machine() {
    if without_llvm("messages") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx906);
    machine
        .asm("s_mov_b32 m0, 0x1234\ns_sendmsg sendmsg(MSG_INTERRUPT)\ns_memtime s[4:5]")
        .unwrap();
    assert_eq!(machine.host.sent, [(1, 0x1234)]);
    assert_eq!(machine.wave.pair(4), 1);
    let mut flow = |text: &str| {
        let code = common::assemble(Asic::Gfx906, text);
        machine.wave.pc = 0x100;
        let flow = machine.step(&code).unwrap();
        (flow, machine.wave.pc)
    };
    assert_eq!(flow("s_barrier"), (Flow::Barrier, 0x104));
    assert_eq!(flow("s_sleep 5"), (Flow::Sleep(5), 0x104));
    assert_eq!(flow("s_trap 2"), (Flow::Trap(2), 0x100));
    assert_eq!(flow("s_sethalt 1"), (Flow::Halt, 0x104));
}

/// Lanes below a bound go one way of a fork, those below another one one way of a fork within it.
#[test]
fn forks_let_the_fewer_lanes_go_first_and_join() {
    if without_llvm("forks") {
        return;
    }
    let program = |outer: u32, inner: u32| {
        format!(
            "v_mbcnt_lo_u32_b32 v0, -1, 0\nv_mbcnt_hi_u32_b32 v0, -1, v0\nv_mov_b32_e32 v1, 0\n\
             s_mov_b32 s28, 0\ns_mov_b32 s22, 0\ns_getpc_b64 s[24:25]\nhere:\ns_add_u32 s24, s24, other-here\n\
             s_addc_u32 s25, s25, 0\nv_cmp_gt_u32_e64 s[30:31], {outer}, v0\n\
             s_cbranch_i_fork s[30:31], low\ns_mul_i32 s22, s22, 10\ns_add_u32 s22, s22, 1\n\
             v_add_u32_e32 v1, 1, v1\ns_branch outer\n\
             low:\ns_getreg_b32 s21, hwreg(HW_REG_MODE, 29, 3)\n\
             v_cmp_gt_u32_e64 s[30:31], {inner}, v0\ns_cbranch_g_fork s[30:31], s[24:25]\n\
             s_mul_i32 s22, s22, 10\ns_add_u32 s22, s22, 2\nv_add_u32_e32 v1, 2, v1\ns_branch inner\n\
             other:\ns_mul_i32 s22, s22, 10\ns_add_u32 s22, s22, 3\nv_add_u32_e32 v1, 4, v1\n\
             inner:\ns_cbranch_join s21\n\
             outer:\ns_cbranch_join s28\ns_getreg_b32 s23, hwreg(HW_REG_MODE, 29, 3)\ns_endpgm"
        )
    };
    // Bounds, and the ways in the order in which they are gone.
    for (outer, inner, order) in [
        (64, 0, 2),
        (64, 64, 3),
        (0, 0, 1),
        (20, 0, 21),
        (20, 20, 31),
        (50, 0, 12),
        (20, 5, 321),
        (20, 15, 231),
        (50, 10, 132),
        (50, 40, 123),
        (32, 16, 321),
    ] {
        let mut machine = Machine::new(Asic::Gfx906);
        machine.asm(&program(outer, inner)).unwrap();
        let wave = &machine.wave;
        assert_eq!(wave.sgpr[22], order, "{outer} {inner}");
        assert_eq!(wave.sgpr[23], 0, "the stack is empty");
        for (lane, value) in machine.get(1).into_iter().enumerate() {
            let lane = lane as u32;
            let want = match (lane < outer, lane < inner) {
                (false, _) => 1,
                (true, false) => 2,
                (true, true) => 4,
            };
            assert_eq!(value, want, "{outer} {inner}: lane {lane}");
        }
    }
}

#[test]
fn measured_loops_are_what_their_text_says() {
    if without_llvm("workloads") {
        return;
    }
    for workload in gfx9_isa::workload::workloads() {
        let words = common::assemble(Asic::Gfx90a, workload.text);
        assert_eq!(words, workload.words, "{}", workload.name);
        let lines = workload.text.lines().map(str::trim);
        let turn = lines.skip_while(|line| *line != "loop:").skip(1);
        let end = |line: &&str| line.starts_with("s_branch") || line.starts_with("s_cbranch");
        let count = turn.take_while(|line| !end(line)).count() + 1;
        assert_eq!(count as u32, workload.instructions, "{}", workload.name);
        let mut bench = gfx9_isa::workload::Bench::new(workload);
        assert_eq!(bench.run(5000), Ok(()), "{}", workload.name);
    }
}
