// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Immediates and modifiers with a text of their own.

use crate::inst::Asic;
use crate::inst::Dpp;
use crate::inst::Sdwa;
use crate::tables::Enc;
use crate::tables::Row;
use crate::tables::Ty;

/// An unsigned immediate.
pub(super) fn uimm16(imm: u16) -> String {
    if imm <= 64 {
        imm.to_string()
    } else {
        format!("{imm:#x}")
    }
}

/// A signed number in hexadecimal.
pub(super) fn signed_hex(value: i32) -> String {
    if value < 0 {
        format!("-{:#x}", value.unsigned_abs())
    } else {
        format!("{value:#x}")
    }
}

/// The hardware register of `s_getreg_b32` and its bits.
pub(super) fn hwreg(imm: u16, asic: Asic) -> String {
    let (id, offset, size) = (imm & 63, imm >> 6 & 31, (imm >> 11) + 1);
    let name = match id {
        1 => "HW_REG_MODE",
        2 => "HW_REG_STATUS",
        3 => "HW_REG_TRAPSTS",
        4 => "HW_REG_HW_ID",
        5 => "HW_REG_GPR_ALLOC",
        6 => "HW_REG_LDS_ALLOC",
        7 => "HW_REG_IB_STS",
        15 => "HW_REG_SH_MEM_BASES",
        16 => "HW_REG_TBA_LO",
        17 => "HW_REG_TBA_HI",
        18 => "HW_REG_TMA_LO",
        19 => "HW_REG_TMA_HI",
        20 if asic == Asic::Gfx942 => "HW_REG_XCC_ID",
        21 if asic == Asic::Gfx942 => "HW_REG_SQ_PERF_SNAPSHOT_DATA",
        22 if asic == Asic::Gfx942 => "HW_REG_SQ_PERF_SNAPSHOT_DATA1",
        23 if asic == Asic::Gfx942 => "HW_REG_SQ_PERF_SNAPSHOT_PC_LO",
        24 if asic == Asic::Gfx942 => "HW_REG_SQ_PERF_SNAPSHOT_PC_HI",
        _ => "",
    };
    let name = if name.is_empty() {
        id.to_string()
    } else {
        name.to_owned()
    };
    if offset == 0 && size == 32 {
        format!("hwreg({name})")
    } else {
        format!("hwreg({name}, {offset}, {size})")
    }
}

/// The operand classes of relative VGPR addressing.
pub(super) fn gpr_idx(imm: u16) -> String {
    if imm > 15 {
        return format!("{imm:#x}");
    }
    let names: Vec<&str> = ["SRC0", "SRC1", "SRC2", "DST"]
        .into_iter()
        .enumerate()
        .filter(|(at, _)| imm >> at & 1 != 0)
        .map(|(_, name)| name)
        .collect();
    format!("gpr_idx({})", names.join(","))
}

/// The counters of `s_waitcnt`.
pub(super) fn waitcnt(imm: u16) -> String {
    let counters = [
        ("vmcnt", (imm & 15) | (imm >> 14 << 4), 63),
        ("expcnt", imm >> 4 & 7, 7),
        ("lgkmcnt", imm >> 8 & 15, 15),
    ];
    let all = counters.iter().all(|(_, value, most)| value == most);
    let texts: Vec<String> = counters
        .iter()
        .filter(|(_, value, most)| all || value != most)
        .map(|(name, value, _)| format!("{name}({value})"))
        .collect();
    texts.join(" ")
}

/// The message of `s_sendmsg`.
pub(super) fn message(imm: u16) -> String {
    let (id, op, stream) = (imm & 15, imm >> 4 & 7, imm >> 8 & 3);
    let name = match id {
        1 => "MSG_INTERRUPT",
        2 => "MSG_GS",
        3 => "MSG_GS_DONE",
        4 => "MSG_SAVEWAVE",
        5 => "MSG_STALL_WAVE_GEN",
        6 => "MSG_HALT_WAVES",
        7 => "MSG_ORDERED_PS_DONE",
        8 => "MSG_EARLY_PRIM_DEALLOC",
        9 => "MSG_GS_ALLOC_REQ",
        10 => "MSG_GET_DOORBELL",
        15 => "MSG_SYSMSG",
        _ => "",
    };
    let geometry = ["GS_OP_NOP", "GS_OP_CUT", "GS_OP_EMIT", "GS_OP_EMIT_CUT"];
    let system = [
        "",
        "SYSMSG_OP_ECC_ERR_INTERRUPT",
        "SYSMSG_OP_REG_RD",
        // HOST_TRAP_ACK, which these ASICs do not have.
        "",
        "SYSMSG_OP_TTRACE_PC",
    ];
    let op_at = usize::from(op);
    let op_name = match id {
        2 if op != 0 => geometry.get(op_at),
        3 => geometry.get(op_at),
        15 => system.get(op_at).filter(|name| !name.is_empty()),
        _ => None,
    };
    let takes_op = matches!(id, 2 | 3 | 15);
    let takes_stream = id == 2 || (id == 3 && op != 0);
    let valid = !name.is_empty()
        && (op_name.is_some() || (!takes_op && op == 0))
        && (takes_stream || stream == 0);
    match op_name {
        _ if !valid => {}
        Some(op) if takes_stream => return format!("sendmsg({name}, {op}, {stream})"),
        Some(op) => return format!("sendmsg({name}, {op})"),
        None => return format!("sendmsg({name})"),
    }
    if imm & !0x37F == 0 {
        format!("sendmsg({id}, {op}, {stream})")
    } else {
        imm.to_string()
    }
}

/// The pattern of `ds_swizzle_b32`.
pub(super) fn swizzle(imm: u16) -> String {
    if imm & 0xFF00 == 0x8000 {
        let lane = |at: u16| imm >> (2 * at) & 3;
        return format!(
            "swizzle(QUAD_PERM,{},{},{},{})",
            lane(0),
            lane(1),
            lane(2),
            lane(3)
        );
    }
    if imm & 0x8000 != 0 {
        return imm.to_string();
    }
    let (and, or, xor) = (imm & 31, imm >> 5 & 31, imm >> 10 & 31);
    if and == 31 && or == 0 && xor.count_ones() == 1 {
        return format!("swizzle(SWAP,{xor})");
    }
    if and == 31 && or == 0 && xor > 0 && (xor + 1).is_power_of_two() {
        return format!("swizzle(REVERSE,{})", xor + 1);
    }
    let group = 32 - and;
    if group > 1 && group.is_power_of_two() && or < group && xor == 0 {
        return format!("swizzle(BROADCAST,{group},{or})");
    }
    let (low, high) = (or ^ xor, (and | or) ^ xor);
    let pattern: String = (0..5)
        .rev()
        .map(|bit| match (low >> bit & 1, high >> bit & 1) {
            (0, 0) => '0',
            (1, 1) => '1',
            (0, _) => 'p',
            _ => 'i',
        })
        .collect();
    format!("swizzle(BITMASK_PERM,\"{pattern}\")")
}

/// The selections of SDWA.
pub(super) fn sdwa(sdwa: &Sdwa, row: &Row) -> String {
    const SELECT: [&str; 8] = [
        "BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD", "",
    ];
    const UNUSED: [&str; 4] = ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE", ""];
    let select = |sel: u8| SELECT[usize::from(sel & 7)];
    let mut text = String::new();
    // What writes a pair, or converts from 8-bit floats, writes all of it.
    let whole = row.dst[0] == Ty::B64 || row.name.ends_with("_fp8") || row.name.ends_with("_bf8");
    if row.enc != Enc::Vopc && !whole {
        text += " dst_sel:";
        text += select(sdwa.dst_sel);
        text += " dst_unused:";
        text += UNUSED[usize::from(sdwa.dst_unused & 3)];
    }
    text += " src0_sel:";
    text += select(sdwa.src_sel[0]);
    if row.enc != Enc::Vop1 {
        text += " src1_sel:";
        text += select(sdwa.src_sel[1]);
    }
    text
}

/// The controls of DPP.
pub(super) fn dpp(dpp: &Dpp) -> String {
    let ctrl = dpp.ctrl;
    let low = ctrl & 15;
    let lanes = match ctrl {
        0x000..=0x0FF => format!(
            "quad_perm:[{},{},{},{}]",
            ctrl & 3,
            ctrl >> 2 & 3,
            ctrl >> 4 & 3,
            ctrl >> 6 & 3
        ),
        0x101..=0x10F => format!("row_shl:{low}"),
        0x111..=0x11F => format!("row_shr:{low}"),
        0x121..=0x12F => format!("row_ror:{low}"),
        0x130 => "wave_shl:1".to_owned(),
        0x134 => "wave_rol:1".to_owned(),
        0x138 => "wave_shr:1".to_owned(),
        0x13C => "wave_ror:1".to_owned(),
        0x140 => "row_mirror".to_owned(),
        0x141 => "row_half_mirror".to_owned(),
        0x142 => "row_bcast:15".to_owned(),
        0x143 => "row_bcast:31".to_owned(),
        _ => format!("row_newbcast:{low}"),
    };
    let mut text = format!(
        " {lanes} row_mask:{:#x} bank_mask:{:#x}",
        dpp.row_mask, dpp.bank_mask
    );
    if dpp.bound_ctrl {
        text += " bound_ctrl:1";
    }
    text
}

/// The format of MTBUF.
pub(super) fn buffer_format(format: u8) -> String {
    const DATA: [&str; 16] = [
        "INVALID",
        "8",
        "16",
        "8_8",
        "32",
        "16_16",
        "10_11_11",
        "11_11_10",
        "10_10_10_2",
        "2_10_10_10",
        "8_8_8_8",
        "32_32",
        "16_16_16_16",
        "32_32_32",
        "32_32_32_32",
        "RESERVED_15",
    ];
    const NUMBER: [&str; 8] = [
        "UNORM",
        "SNORM",
        "USCALED",
        "SSCALED",
        "UINT",
        "SINT",
        "RESERVED_6",
        "FLOAT",
    ];
    let (data, number) = (usize::from(format & 15), usize::from(format >> 4 & 7));
    let mut parts = Vec::new();
    if data != 1 {
        parts.push(format!("BUF_DATA_FORMAT_{}", DATA[data]));
    }
    if number != 0 {
        parts.push(format!("BUF_NUM_FORMAT_{}", NUMBER[number]));
    }
    if parts.is_empty() {
        String::new()
    } else {
        format!(" format:[{}]", parts.join(","))
    }
}
