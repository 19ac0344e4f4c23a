// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Scalar ALU.

use super::scalar;
use super::write_scalar;
use super::Exception;
use crate::inst::Inst;
use crate::inst::Operand;
use crate::tables::Ty;
use crate::wave::reg;
use crate::wave::Wave;

/// What a function reads: 32-bit operands are zero-extended.
pub(super) struct In {
    a: u64,
    b: u64,
    /// The old destination.
    d: u64,
    scc: bool,
    exec: u64,
    imm: i32,
}

/// What it writes.
pub(super) struct Out {
    d: Option<u64>,
    scc: Option<bool>,
    exec: Option<u64>,
}

pub(super) type Function = fn(&In) -> Out;

fn plain(d: u64) -> Out {
    Out {
        d: Some(d),
        scc: None,
        exec: None,
    }
}

fn with(d: u64, scc: bool) -> Out {
    Out {
        d: Some(d),
        scc: Some(scc),
        exec: None,
    }
}

fn flag(scc: bool) -> Out {
    Out {
        d: None,
        scc: Some(scc),
        exec: None,
    }
}

fn keep() -> Out {
    Out {
        d: None,
        scc: None,
        exec: None,
    }
}

/// A result whose condition code tells whether it is 0.
fn n32(value: u64) -> Out {
    with(value & 0xFFFF_FFFF, value as u32 != 0)
}

fn n64(value: u64) -> Out {
    with(value, value != 0)
}

fn s32(value: u64) -> i32 {
    value as u32 as i32
}

fn low(value: i64) -> u64 {
    u64::from(value as u32)
}

fn save_exec(old: u64, exec: u64) -> Out {
    Out {
        d: Some(old),
        scc: Some(exec != 0),
        exec: Some(exec),
    }
}

fn write_exec(exec: u64) -> Out {
    save_exec(exec, exec)
}

/// Bits `offset..offset + width` of `value`, sign-extended if `signed`.
fn field(value: u64, offset: u32, width: u32, signed: bool) -> u64 {
    if width == 0 {
        return 0;
    }
    let value = if signed {
        (value as i64 >> offset) as u64
    } else {
        value >> offset
    };
    if width >= 64 {
        return value;
    }
    let rest = 64 - width;
    if signed {
        ((value << rest) as i64 >> rest) as u64
    } else {
        value << rest >> rest
    }
}

fn bfe32(i: &In, signed: bool) -> Out {
    let value = if signed {
        i64::from(s32(i.a)) as u64
    } else {
        i.a
    };
    let (offset, width) = ((i.b & 31) as u32, (i.b >> 16 & 127) as u32);
    n32(field(value, offset, width, signed))
}

fn bfe64(i: &In, signed: bool) -> Out {
    let (offset, width) = ((i.b & 63) as u32, (i.b >> 16 & 127) as u32);
    n64(field(i.a, offset, width, signed))
}

/// Each group of four bits that has a 1 becomes all ones.
fn wqm(value: u64) -> u64 {
    let any = (value | value >> 1 | value >> 2 | value >> 3) & 0x1111_1111_1111_1111;
    any * 15
}

fn quad_mask(value: u64) -> u64 {
    (0..16).fold(0, |mask, quad| {
        mask | u64::from(value >> (4 * quad) & 15 != 0) << quad
    })
}

/// Leading bits that equal the sign, or -1 where all do.
fn sign_bits(value: i64, width: u32) -> u64 {
    let value = value << (64 - width);
    let same = (value ^ value >> 63) as u64 >> (64 - width) << (64 - width);
    if same == 0 {
        0xFFFF_FFFF
    } else {
        u64::from(same.leading_zeros())
    }
}

fn first(value: u64) -> u64 {
    if value == 0 {
        0xFFFF_FFFF
    } else {
        u64::from(value.trailing_zeros())
    }
}

fn leading(value: u64, width: u32) -> u64 {
    if value == 0 {
        0xFFFF_FFFF
    } else {
        u64::from(value.leading_zeros() - (64 - width))
    }
}

fn shifted_add(i: &In, by: u32) -> Out {
    let sum = (i.a << by) + i.b;
    with(sum & 0xFFFF_FFFF, sum >> 32 != 0)
}

fn imm(i: &In) -> i64 {
    i.imm.into()
}

fn uimm(i: &In) -> u64 {
    u64::from(i.imm as u16)
}

/// The function of a mnemonic.
pub(super) fn bind(name: &str) -> Option<Function> {
    let function: Function = match name {
        "s_mov_b32" | "s_mov_b64" => |i| plain(i.a),
        "s_cmov_b32" | "s_cmov_b64" => |i| if i.scc { plain(i.a) } else { keep() },
        "s_not_b32" => |i| n32(!i.a),
        "s_not_b64" => |i| n64(!i.a),
        "s_wqm_b32" => |i| n32(wqm(i.a)),
        "s_wqm_b64" => |i| n64(wqm(i.a)),
        "s_brev_b32" => |i| plain((i.a as u32).reverse_bits().into()),
        "s_brev_b64" => |i| plain(i.a.reverse_bits()),
        "s_bcnt0_i32_b32" => |i| n32((i.a as u32).count_zeros().into()),
        "s_bcnt0_i32_b64" => |i| n32(i.a.count_zeros().into()),
        "s_bcnt1_i32_b32" | "s_bcnt1_i32_b64" => |i| n32(i.a.count_ones().into()),
        "s_ff0_i32_b32" => |i| plain(first(!i.a & 0xFFFF_FFFF)),
        "s_ff0_i32_b64" => |i| plain(first(!i.a)),
        "s_ff1_i32_b32" | "s_ff1_i32_b64" => |i| plain(first(i.a)),
        "s_flbit_i32_b32" => |i| plain(leading(i.a, 32)),
        "s_flbit_i32_b64" => |i| plain(leading(i.a, 64)),
        "s_flbit_i32" => |i| plain(sign_bits(s32(i.a).into(), 32)),
        "s_flbit_i32_i64" => |i| plain(sign_bits(i.a as i64, 64)),
        "s_sext_i32_i8" => |i| plain(low((i.a as i8).into())),
        "s_sext_i32_i16" => |i| plain(low((i.a as i16).into())),
        "s_bitset0_b32" => |i| plain(i.d & !(1 << (i.a & 31))),
        "s_bitset1_b32" => |i| plain(i.d | 1 << (i.a & 31)),
        "s_bitset0_b64" => |i| plain(i.d & !(1 << (i.a & 63))),
        "s_bitset1_b64" => |i| plain(i.d | 1 << (i.a & 63)),
        "s_and_saveexec_b64" => |i| save_exec(i.exec, i.a & i.exec),
        "s_or_saveexec_b64" => |i| save_exec(i.exec, i.a | i.exec),
        "s_xor_saveexec_b64" => |i| save_exec(i.exec, i.a ^ i.exec),
        "s_andn2_saveexec_b64" => |i| save_exec(i.exec, i.a & !i.exec),
        "s_orn2_saveexec_b64" => |i| save_exec(i.exec, i.a | !i.exec),
        "s_nand_saveexec_b64" => |i| save_exec(i.exec, !(i.a & i.exec)),
        "s_nor_saveexec_b64" => |i| save_exec(i.exec, !(i.a | i.exec)),
        "s_xnor_saveexec_b64" => |i| save_exec(i.exec, !(i.a ^ i.exec)),
        "s_andn1_saveexec_b64" => |i| save_exec(i.exec, !i.a & i.exec),
        "s_orn1_saveexec_b64" => |i| save_exec(i.exec, !i.a | i.exec),
        "s_andn1_wrexec_b64" => |i| write_exec(!i.a & i.exec),
        "s_andn2_wrexec_b64" => |i| write_exec(i.a & !i.exec),
        "s_quadmask_b32" => |i| n32(quad_mask(i.a)),
        "s_quadmask_b64" => |i| n64(quad_mask(i.a)),
        "s_abs_i32" => |i| n32(s32(i.a).unsigned_abs().into()),
        "s_bitreplicate_b64_b32" => {
            |i| plain((0..32).fold(0, |d, bit| d | (i.a >> bit & 1) * 3 << (2 * bit)))
        }
        "s_add_u32" => |i| with(low((i.a + i.b) as i64), (i.a + i.b) >> 32 != 0),
        "s_sub_u32" => |i| with(low(i.a.wrapping_sub(i.b) as i64), i.b > i.a),
        "s_add_i32" => |i| {
            let (sum, over) = s32(i.a).overflowing_add(s32(i.b));
            with(low(sum.into()), over)
        },
        "s_sub_i32" => |i| {
            let (sum, over) = s32(i.a).overflowing_sub(s32(i.b));
            with(low(sum.into()), over)
        },
        "s_addc_u32" => |i| {
            let sum = i.a + i.b + u64::from(i.scc);
            with(low(sum as i64), sum >> 32 != 0)
        },
        "s_subb_u32" => |i| {
            let all = i.b + u64::from(i.scc);
            with(low(i.a.wrapping_sub(all) as i64), all > i.a)
        },
        "s_min_i32" => |i| with(low(s32(i.a).min(s32(i.b)).into()), s32(i.a) < s32(i.b)),
        "s_min_u32" => |i| with(i.a.min(i.b), i.a < i.b),
        "s_max_i32" => |i| with(low(s32(i.a).max(s32(i.b)).into()), s32(i.a) > s32(i.b)),
        "s_max_u32" => |i| with(i.a.max(i.b), i.a > i.b),
        "s_cselect_b32" | "s_cselect_b64" => |i| plain(if i.scc { i.a } else { i.b }),
        "s_and_b32" => |i| n32(i.a & i.b),
        "s_and_b64" => |i| n64(i.a & i.b),
        "s_or_b32" => |i| n32(i.a | i.b),
        "s_or_b64" => |i| n64(i.a | i.b),
        "s_xor_b32" => |i| n32(i.a ^ i.b),
        "s_xor_b64" => |i| n64(i.a ^ i.b),
        "s_andn2_b32" => |i| n32(i.a & !i.b),
        "s_andn2_b64" => |i| n64(i.a & !i.b),
        "s_orn2_b32" => |i| n32(i.a | !i.b),
        "s_orn2_b64" => |i| n64(i.a | !i.b),
        "s_nand_b32" => |i| n32(!(i.a & i.b)),
        "s_nand_b64" => |i| n64(!(i.a & i.b)),
        "s_nor_b32" => |i| n32(!(i.a | i.b)),
        "s_nor_b64" => |i| n64(!(i.a | i.b)),
        "s_xnor_b32" => |i| n32(!(i.a ^ i.b)),
        "s_xnor_b64" => |i| n64(!(i.a ^ i.b)),
        "s_lshl_b32" => |i| n32(i.a << (i.b & 31)),
        "s_lshl_b64" => |i| n64(i.a << (i.b & 63)),
        "s_lshr_b32" => |i| n32(i.a >> (i.b & 31)),
        "s_lshr_b64" => |i| n64(i.a >> (i.b & 63)),
        "s_ashr_i32" => |i| n32(low((s32(i.a) >> (i.b & 31)).into())),
        "s_ashr_i64" => |i| n64((i.a as i64 >> (i.b & 63)) as u64),
        "s_bfm_b32" => |i| plain(low((((1u64 << (i.a & 31)) - 1) << (i.b & 31)) as i64)),
        "s_bfm_b64" => |i| plain(((1u64 << (i.a & 63)) - 1) << (i.b & 63)),
        "s_mul_i32" => |i| plain(low(i.a.wrapping_mul(i.b) as i64)),
        "s_mul_hi_u32" => |i| plain((i.a * i.b) >> 32),
        "s_mul_hi_i32" => |i| plain(low((i64::from(s32(i.a)) * i64::from(s32(i.b))) >> 32)),
        "s_bfe_u32" => |i| bfe32(i, false),
        "s_bfe_i32" => |i| bfe32(i, true),
        "s_bfe_u64" => |i| bfe64(i, false),
        "s_bfe_i64" => |i| bfe64(i, true),
        "s_absdiff_i32" => |i| n32(s32(i.a).wrapping_sub(s32(i.b)).unsigned_abs().into()),
        "s_lshl1_add_u32" => |i| shifted_add(i, 1),
        "s_lshl2_add_u32" => |i| shifted_add(i, 2),
        "s_lshl3_add_u32" => |i| shifted_add(i, 3),
        "s_lshl4_add_u32" => |i| shifted_add(i, 4),
        "s_pack_ll_b32_b16" => |i| plain(i.a & 0xFFFF | (i.b & 0xFFFF) << 16),
        "s_pack_lh_b32_b16" => |i| plain(i.a & 0xFFFF | (i.b >> 16) << 16),
        "s_pack_hh_b32_b16" => |i| plain(i.a >> 16 | (i.b >> 16) << 16),
        "s_cmp_eq_i32" | "s_cmp_eq_u32" | "s_cmp_eq_u64" => |i| flag(i.a == i.b),
        "s_cmp_lg_i32" | "s_cmp_lg_u32" | "s_cmp_lg_u64" => |i| flag(i.a != i.b),
        "s_cmp_gt_i32" => |i| flag(s32(i.a) > s32(i.b)),
        "s_cmp_ge_i32" => |i| flag(s32(i.a) >= s32(i.b)),
        "s_cmp_lt_i32" => |i| flag(s32(i.a) < s32(i.b)),
        "s_cmp_le_i32" => |i| flag(s32(i.a) <= s32(i.b)),
        "s_cmp_gt_u32" => |i| flag(i.a > i.b),
        "s_cmp_ge_u32" => |i| flag(i.a >= i.b),
        "s_cmp_lt_u32" => |i| flag(i.a < i.b),
        "s_cmp_le_u32" => |i| flag(i.a <= i.b),
        "s_bitcmp0_b32" => |i| flag(i.a >> (i.b & 31) & 1 == 0),
        "s_bitcmp1_b32" => |i| flag(i.a >> (i.b & 31) & 1 != 0),
        "s_bitcmp0_b64" => |i| flag(i.a >> (i.b & 63) & 1 == 0),
        "s_bitcmp1_b64" => |i| flag(i.a >> (i.b & 63) & 1 != 0),
        "s_movk_i32" => |i| plain(low(imm(i))),
        "s_cmovk_i32" => |i| if i.scc { plain(low(imm(i))) } else { keep() },
        "s_cmpk_eq_i32" => |i| flag(s32(i.a) == i.imm),
        "s_cmpk_lg_i32" => |i| flag(s32(i.a) != i.imm),
        "s_cmpk_gt_i32" => |i| flag(s32(i.a) > i.imm),
        "s_cmpk_ge_i32" => |i| flag(s32(i.a) >= i.imm),
        "s_cmpk_lt_i32" => |i| flag(s32(i.a) < i.imm),
        "s_cmpk_le_i32" => |i| flag(s32(i.a) <= i.imm),
        "s_cmpk_eq_u32" => |i| flag(i.a == uimm(i)),
        "s_cmpk_lg_u32" => |i| flag(i.a != uimm(i)),
        "s_cmpk_gt_u32" => |i| flag(i.a > uimm(i)),
        "s_cmpk_ge_u32" => |i| flag(i.a >= uimm(i)),
        "s_cmpk_lt_u32" => |i| flag(i.a < uimm(i)),
        "s_cmpk_le_u32" => |i| flag(i.a <= uimm(i)),
        "s_addk_i32" => |i| {
            let (sum, over) = s32(i.d).overflowing_add(i.imm);
            with(low(sum.into()), over)
        },
        "s_mulk_i32" => |i| plain(low(s32(i.d).wrapping_mul(i.imm).into())),
        _ => return None,
    };
    Some(function)
}

/// Executes one of them.
///
/// # Errors
/// Where an operand is none that exists.
pub(super) fn execute(wave: &mut Wave, inst: &Inst, function: Function) -> Result<(), Exception> {
    let row = inst.row;
    let source = |wave: &Wave, at: usize| match (row.src[at], inst.src[at]) {
        (Ty::None | Ty::Imm16, _) | (_, Operand::None) => Ok(0),
        (ty, operand) => scalar(wave, inst, operand, ty),
    };
    let wide = row.dst[0].regs() > 1;
    let old = match inst.dst {
        Operand::None => 0,
        dst => scalar(wave, inst, dst, row.dst[0])?,
    };
    let out = function(&In {
        a: source(wave, 0)?,
        b: source(wave, 1)?,
        d: old,
        scc: wave.scc,
        exec: wave.exec(),
        imm: inst.imm,
    });
    if let Some(value) = out.d {
        write_scalar(wave, inst, inst.dst, wide, value)?;
    }
    if let Some(exec) = out.exec {
        wave.set_pair(reg::EXEC, exec);
    }
    if let Some(scc) = out.scc {
        wave.scc = scc;
    }
    Ok(())
}
