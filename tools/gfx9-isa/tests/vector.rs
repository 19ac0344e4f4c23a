// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Vector instructions, assembled by LLVM and executed, against plain references per lane.

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
use common::random_lanes;
use common::seed;
use common::without_llvm;
use common::Random;
use gfx9_isa::env::Lanes;
use gfx9_isa::exec::Exception;
use gfx9_isa::exec::Executor;
use gfx9_isa::inst::Asic;
use gfx9_isa::wave::reg;

#[test]
fn what_is_not_implemented_is_known() {
    let graphics = |name: &str| {
        name == "ds_ordered_count"
            || name == "buffer_store_lds_dword"
            || name == "v_screen_partition_4se_b32"
            || name.starts_with("s_scratch_")
            || name == "s_rfe_restore_b64"
    };
    for asic in Asic::ALL {
        let left: Vec<&str> = Executor::new(asic)
            .unimplemented()
            .into_iter()
            .filter(|name| !graphics(name))
            .collect();
        assert!(left.is_empty(), "{}: {left:?}", asic.name());
    }
}

#[test]
fn an_unimplemented_instruction_names_itself() {
    if without_llvm("unimplemented") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx90a);
    let error = machine.asm("v_screen_partition_4se_b32_e32 v0, v1");
    assert_eq!(
        error,
        Err(Exception::Unimplemented {
            name: "v_screen_partition_4se_b32"
        })
    );
}

type Reference = fn(u32, u32, u32) -> u32;

fn low24(x: u32) -> u64 {
    u64::from(x & 0xFF_FFFF)
}

fn sign24(x: u32) -> i64 {
    i64::from((x << 8) as i32 >> 8)
}

const INTEGERS: &[(&str, Reference)] = &[
    ("v_add_u32_e64 v0, v1, v2", |a, b, _| a.wrapping_add(b)),
    ("v_add_u32_e64 v0, v1, v2 clamp", |a, b, _| a.saturating_add(b)),
    ("v_sub_u32_e64 v0, v1, v2 clamp", |a, b, _| a.saturating_sub(b)),
    ("v_subrev_u32_e32 v0, v1, v2", |a, b, _| b.wrapping_sub(a)),
    ("v_add_i32 v0, v1, v2 clamp", |a, b, _| (a as i32).saturating_add(b as i32) as u32),
    ("v_sub_i32 v0, v1, v2 clamp", |a, b, _| (a as i32).saturating_sub(b as i32) as u32),
    ("v_mul_lo_u32 v0, v1, v2", |a, b, _| a.wrapping_mul(b)),
    ("v_mul_hi_u32 v0, v1, v2", |a, b, _| ((u64::from(a) * u64::from(b)) >> 32) as u32),
    ("v_mul_hi_i32 v0, v1, v2", |a, b, _| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32),
    ("v_mul_u32_u24_e32 v0, v1, v2", |a, b, _| (low24(a) * low24(b)) as u32),
    ("v_mul_hi_i32_i24_e32 v0, v1, v2", |a, b, _| ((sign24(a) * sign24(b)) >> 32) as u32),
    ("v_mad_i32_i24 v0, v1, v2, v3", |a, b, c| ((sign24(a) * sign24(b)) as u32).wrapping_add(c)),
    ("v_lshlrev_b32_e32 v0, v1, v2", |a, b, _| b << (a % 32)),
    ("v_ashrrev_i32_e32 v0, v1, v2", |a, b, _| ((b as i32) >> (a % 32)) as u32),
    ("v_bfi_b32 v0, v1, v2, v3", |a, b, c| c ^ (a & (b ^ c))),
    ("v_bfe_u32 v0, v1, 5, 9", |a, _, _| (a >> 5) % 512),
    ("v_bfe_i32 v0, v1, 5, 9", |a, _, _| ((a << 18) as i32 >> 23) as u32),
    ("v_bfe_u32 v0, v1, 28, 9", |a, _, _| a >> 28),
    ("v_bfm_b32 v0, 7, 4", |_, _, _| 0x7F0),
    ("v_alignbit_b32 v0, v1, v2, 13", |a, b, _| b >> 13 | a << 19),
    ("v_alignbyte_b32 v0, v1, v2, 3", |a, b, _| b >> 24 | a << 8),
    ("v_perm_b32 v0, v1, v2, v3", |a, b, c| {
        let bytes = [b.to_le_bytes(), a.to_le_bytes()].concat();
        u32::from_le_bytes(c.to_le_bytes().map(|sel| match sel {
            0..=7 => bytes[usize::from(sel)],
            8..=11 => if bytes[usize::from(sel - 8) * 2 + 1] & 0x80 != 0 { 255 } else { 0 },
            12 => 0,
            _ => 255,
        }))
    }),
    ("v_sad_u8 v0, v1, v2, v3", |a, b, c| {
        let pairs = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
        c.wrapping_add(pairs.map(|(x, y)| u32::from(x.abs_diff(y))).sum())
    }),
    ("v_lerp_u8 v0, v1, v2, v3", |a, b, c| {
        let (a, b, c) = (a.to_le_bytes(), b.to_le_bytes(), c.to_le_bytes());
        u32::from_le_bytes(std::array::from_fn(|at| {
            ((u16::from(a[at]) + u16::from(b[at]) + u16::from(c[at] & 1)) / 2) as u8
        }))
    }),
    ("v_med3_i32 v0, v1, v2, v3", |a, b, c| {
        let mut all = [a as i32, b as i32, c as i32];
        all.sort_unstable();
        all[1] as u32
    }),
    ("v_min3_u32 v0, v1, v2, v3", |a, b, c| a.min(b).min(c)),
    ("v_ffbh_u32_e32 v0, v1", |a, _, _| if a == 0 { u32::MAX } else { a.leading_zeros() }),
    ("v_ffbh_i32_e32 v0, v1", |a, _, _| {
        let bits = (0..32).rev().map(|bit| a >> bit & 1);
        let sign = a >> 31;
        bits.enumerate().find(|(_, bit)| *bit != sign).map_or(u32::MAX, |(at, _)| at as u32)
    }),
    ("v_ffbl_b32_e32 v0, v1", |a, _, _| if a == 0 { u32::MAX } else { a.trailing_zeros() }),
    ("v_bfrev_b32_e32 v0, v1", |a, _, _| a.reverse_bits()),
    ("v_bcnt_u32_b32 v0, v1, v2", |a, b, _| a.count_ones().wrapping_add(b)),
    ("v_add3_u32 v0, v1, v2, v3", |a, b, c| a.wrapping_add(b).wrapping_add(c)),
    ("v_lshl_or_b32 v0, v1, 4, v3", |a, _, c| a << 4 | c),
    ("v_xad_u32 v0, v1, v2, v3", |a, b, c| (a ^ b).wrapping_add(c)),
    ("v_cvt_pk_i16_i32 v0, v1, v2", |a, b, _| {
        let half = |x: u32| (x as i32).clamp(-32768, 32767) as u16;
        u32::from(half(a)) | u32::from(half(b)) << 16
    }),
    ("v_sat_pk_u8_i16_e32 v0, v1", |a, _, _| {
        let half = |x: u32| u32::from((x as u16 as i16).clamp(0, 255) as u16);
        half(a) | half(a >> 16) << 8
    }),
    ("v_add_u16_e32 v0, v1, v2", |a, b, _| u32::from((a as u16).wrapping_add(b as u16))),
    ("v_add_i16 v0, v1, v2 clamp", |a, b, _| {
        0xABCD_0000 | u32::from((a as i16).saturating_add(b as i16) as u16)
    }),
    ("v_add_i16 v0, v1, v2 op_sel:[1,0,1]", |a, b, _| {
        u32::from(((a >> 16) as u16).wrapping_add(b as u16)) << 16 | 0x1234
    }),
    ("v_mad_u16 v0, v1, v2, v3", |a, b, c| {
        0xABCD_0000 | u32::from((a as u16).wrapping_mul(b as u16).wrapping_add(c as u16))
    }),
    ("v_ashrrev_i16_e32 v0, v1, v2", |a, b, _| u32::from(((b as i16) >> (a % 16)) as u16)),
    ("v_pk_add_u16 v0, v1, v2 clamp", |a, b, _| {
        let half = |at: u32| u32::from(((a >> at) as u16).saturating_add((b >> at) as u16));
        half(0) | half(16) << 16
    }),
    ("v_pk_sub_i16 v0, v1, v2 op_sel:[1,0] op_sel_hi:[0,1]", |a, b, _| {
        let low = ((a >> 16) as u16).wrapping_sub(b as u16);
        let high = (a as u16).wrapping_sub((b >> 16) as u16);
        u32::from(low) | u32::from(high) << 16
    }),
    ("v_pk_lshlrev_b16 v0, v1, v2", |a, b, _| {
        let half = |at: u32| u32::from(((b >> at) as u16) << (a >> at & 15));
        half(0) | half(16) << 16
    }),
    ("v_dot4_i32_i8 v0, v1, v2, v3", |a, b, c| {
        let pairs = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
        let sum: i32 = pairs.map(|(x, y)| i32::from(x as i8) * i32::from(y as i8)).sum();
        (sum as u32).wrapping_add(c)
    }),
    ("v_dot8_u32_u4 v0, v1, v2, v3 clamp", |a, b, c| {
        let sum: u64 = (0..8).map(|at| u64::from(a >> (4 * at) & 15) * u64::from(b >> (4 * at) & 15)).sum();
        (sum + u64::from(c)).min(0xFFFF_FFFF) as u32
    }),
    ("v_dot2_i32_i16 v0, v1, v2, v3 clamp", |a, b, c| {
        let half = |x: u32, at: u32| i64::from((x >> at) as u16 as i16);
        let sum = half(a, 0) * half(b, 0) + half(a, 16) * half(b, 16) + i64::from(c as i32);
        sum.clamp(i32::MIN.into(), i32::MAX.into()) as u32
    }),
    ("v_or_b32_sdwa v0, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:BYTE_3 src1_sel:WORD_0", |a, b, _| {
        (a >> 24 | b & 0xFFFF) << 16
    }),
    ("v_or_b32_sdwa v0, sext(v1), v2 dst_sel:BYTE_2 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_1 src1_sel:DWORD", |a, b, _| {
        let value = (a >> 8) as u8 as i8 as u32 | b;
        0xABCD_1234 & !0xFF_0000 | (value & 0xFF) << 16
    }),
    ("v_mov_b32_sdwa v0, v1 dst_sel:BYTE_1 dst_unused:UNUSED_SEXT src0_sel:BYTE_0", |a, _, _| {
        ((a as u8 as i8 as i32) << 8) as u32
    }),
    ("v_mov_b32_e32 v0, 0xdeadbeef", |_, _, _| 0xDEAD_BEEF),
    ("v_and_b32_e32 v0, -5, v1", |a, _, _| a & 0xFFFF_FFFB),
    ("v_add_f32_e32 v0, 1.0, v3\nv_mov_b32_e32 v0, 0.15915494", |_, _, _| 0x3E22_F983),
];

#[test]
fn integers_are_what_the_references_say() {
    if without_llvm("integers") {
        return;
    }
    let mut random = Random(seed());
    let mut machine = Machine::new(Asic::Gfx90a);
    for (text, reference) in INTEGERS {
        for round in 0..4 {
            let [a, b, c] = std::array::from_fn(|_| random_lanes(&mut random));
            let exec = if round == 0 { u64::MAX } else { random.next() };
            machine.wave.set_pair(reg::EXEC, exec);
            machine.set(0, [0xABCD_1234; 64]);
            machine.set(1, a);
            machine.set(2, b);
            machine.set(3, c);
            machine.asm(text).unwrap();
            let found = machine.get(0);
            for lane in 0..64 {
                let expected = if exec >> lane & 1 != 0 {
                    reference(a[lane], b[lane], c[lane])
                } else {
                    0xABCD_1234
                };
                assert_eq!(
                    found[lane], expected,
                    "{text}: {:#x} {:#x} {:#x}",
                    a[lane], b[lane], c[lane]
                );
            }
        }
    }
}

#[test]
fn carries_and_masks_cover_all_lanes() {
    if without_llvm("carries") {
        return;
    }
    let mut random = Random(seed());
    let mut machine = Machine::new(Asic::Gfx906);
    let (a, b) = (random_lanes(&mut random), random_lanes(&mut random));
    let exec = random.next();
    machine.set(1, a);
    machine.set(2, b);
    machine.wave.set_pair(reg::EXEC, exec);
    machine.wave.set_pair(reg::VCC, u64::MAX);
    machine.asm("v_add_co_u32_e32 v0, vcc, v1, v2\nv_addc_co_u32_e64 v3, s[4:5], v1, v2, vcc\nv_cmp_lt_i32_e64 s[6:7], v1, v2\nv_cmpx_gt_u32_e32 vcc, v1, v2").unwrap();
    let of = |f: &dyn Fn(usize) -> bool| {
        (0..64).fold(0u64, |mask, lane| mask | u64::from(f(lane)) << lane) & exec
    };
    let carry = of(&|lane| a[lane].checked_add(b[lane]).is_none());
    let second =
        of(&|lane| u64::from(a[lane]) + u64::from(b[lane]) + (carry >> lane & 1) > 0xFFFF_FFFF);
    assert_eq!(machine.wave.pair(4), second);
    assert_eq!(
        machine.wave.pair(6),
        of(&|lane| (a[lane] as i32) < b[lane] as i32)
    );
    assert_eq!(machine.wave.vcc(), of(&|lane| a[lane] > b[lane]));
    assert_eq!(machine.wave.exec(), machine.wave.vcc());
}

#[test]
fn a_scan_by_dpp_is_a_prefix_sum() {
    if without_llvm("DPP") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx906);
    let values: Lanes = std::array::from_fn(|lane| (lane as u32 * 7 + 3) % 31);
    machine.set(0, values);
    let steps = [
        "row_shr:1 row_mask:0xf bank_mask:0xf",
        "row_shr:2 row_mask:0xf bank_mask:0xf",
        "row_shr:4 row_mask:0xf bank_mask:0xe",
        "row_shr:8 row_mask:0xf bank_mask:0xc",
        "row_bcast:15 row_mask:0xa bank_mask:0xf",
        "row_bcast:31 row_mask:0xc bank_mask:0xf",
    ];
    let program = steps
        .map(|step| format!("v_add_u32_dpp v0, v0, v0 {step}"))
        .join("\n");
    machine.asm(&program).unwrap();
    let mut sum = 0;
    for (lane, found) in machine.get(0).into_iter().enumerate() {
        sum += values[lane];
        assert_eq!(found, sum, "lane {lane}");
    }
}

#[test]
fn dpp_reads_the_lanes_of_the_table() {
    if without_llvm("DPP lanes") {
        return;
    }
    type Source = fn(usize) -> Option<usize>;
    let cases: [(&str, Source); 10] = [
        ("quad_perm:[3,2,0,1]", |l| {
            Some(l / 4 * 4 + [3, 2, 0, 1][l % 4])
        }),
        ("row_shl:3", |l| (l % 16 + 3 < 16).then_some(l + 3)),
        ("row_shr:5", |l| (l % 16 >= 5).then(|| l - 5)),
        ("row_ror:6", |l| Some(l / 16 * 16 + (l % 16 + 10) % 16)),
        ("wave_shl:1", |l| (l < 63).then_some(l + 1)),
        ("wave_rol:1", |l| Some((l + 1) % 64)),
        ("wave_shr:1", |l| l.checked_sub(1)),
        ("wave_ror:1", |l| Some((l + 63) % 64)),
        ("row_mirror", |l| Some(l / 16 * 16 + 15 - l % 16)),
        ("row_half_mirror", |l| Some(l / 8 * 8 + 7 - l % 8)),
    ];
    for (name, source) in cases {
        for bound in ["", " bound_ctrl:1"] {
            let mut machine = Machine::new(Asic::Gfx906);
            let exec = 0xFFFF_FF0F_FFFF_7FF7;
            machine.wave.set_pair(reg::EXEC, exec);
            machine.set(0, [99; 64]);
            machine.set(1, std::array::from_fn(|lane| 1000 + lane as u32));
            let text = format!("v_mov_b32_dpp v0, v1 {name} row_mask:0xb bank_mask:0xf{bound}");
            machine.asm(&text).unwrap();
            for (lane, found) in machine.get(0).into_iter().enumerate() {
                let from = source(lane).filter(|from| exec >> from & 1 != 0);
                let written = exec >> lane & 1 != 0 && lane / 16 != 2;
                let expected = match (written, from) {
                    (true, Some(from)) => 1000 + from as u32,
                    (true, None) if !bound.is_empty() => 0,
                    _ => 99,
                };
                assert_eq!(found, expected, "{text} lane {lane}");
            }
        }
    }
}

#[test]
fn lanes_are_read_and_written_one_by_one() {
    if without_llvm("lanes") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx906);
    machine.set(1, std::array::from_fn(|lane| 100 + lane as u32));
    machine.set(0, [7; 64]);
    machine.wave.set_pair(reg::EXEC, 0xF0);
    machine
        .asm("v_readfirstlane_b32 s4, v1\nv_readlane_b32 s5, v1, 63\nv_writelane_b32 v0, s5, 2\nv_mbcnt_lo_u32_b32 v2, -1, 0\nv_mbcnt_hi_u32_b32 v2, -1, v2\ns_mov_b64 exec, 0\nv_readfirstlane_b32 s6, v1")
        .unwrap();
    assert_eq!(machine.wave.sgpr[4..7], [104, 163, 100]);
    assert_eq!(machine.get(0)[1..4], [7, 163, 7]);
    assert_eq!(machine.get(2)[4..8], [4, 5, 6, 7]);
}

#[test]
fn registers_are_indexed_relative_to_m0() {
    if without_llvm("relative") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx906);
    for number in 0..8 {
        machine.set(number, [number as u32; 64]);
    }
    machine.wave.sgpr[0] = 3;
    machine
        .asm("s_set_gpr_idx_on s0, gpr_idx(SRC0)\nv_mov_b32_e32 v20, v2\ns_set_gpr_idx_mode gpr_idx(DST)\nv_mov_b32_e32 v20, v1\ns_set_gpr_idx_off\nv_mov_b32_e32 v24, v2")
        .unwrap();
    assert_eq!(
        (machine.get(20)[0], machine.get(23)[0], machine.get(24)[0]),
        (5, 1, 2)
    );
}
