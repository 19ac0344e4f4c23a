// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Loops of scalar and vector ALU instructions.

use super::super::Workload;

/// All of them.
pub(super) const LOOPS: &[Workload] = &[
    Workload {
        name: "s_alu",
        class: "scalar ALU",
        text: "loop:\n \
             s_add_u32 s4, s4, s5\n \
             s_addc_u32 s6, s6, 0\n \
             s_xor_b32 s7, s6, s4\n \
             s_lshl_b32 s8, s7, 3\n \
             s_and_b64 s[10:11], s[4:5], s[6:7]\n \
             s_cmp_lg_u32 s8, s4\n \
             s_cselect_b32 s5, 3, 7\n \
             s_add_u32 s4, s4, s5\n \
             s_addc_u32 s6, s6, 0\n \
             s_xor_b32 s7, s6, s4\n \
             s_lshl_b32 s8, s7, 3\n \
             s_and_b64 s[10:11], s[4:5], s[6:7]\n \
             s_cmp_lg_u32 s8, s4\n \
             s_cselect_b32 s5, 3, 7\n \
             s_branch loop",
        words: &[
            0x8004_0504,
            0x8206_8006,
            0x8807_0406,
            0x8E08_8307,
            0x868A_0604,
            0xBF07_0408,
            0x8505_8783,
            0x8004_0504,
            0x8206_8006,
            0x8807_0406,
            0x8E08_8307,
            0x868A_0604,
            0xBF07_0408,
            0x8505_8783,
            0xBF82_FFF1,
        ],
        instructions: 15,
        bytes: 0,
        flops: 0,
    },
    Workload {
        name: "f32_fma",
        class: "f32 ALU",
        text: "loop:\n \
             v_fma_f32 v8, v1, v2, v8\n \
             v_fma_f32 v9, v1, v2, v9\n \
             v_fma_f32 v10, v1, v2, v10\n \
             v_fma_f32 v11, v1, v2, v11\n \
             v_fma_f32 v12, v1, v2, v12\n \
             v_fma_f32 v13, v1, v2, v13\n \
             v_fma_f32 v14, v1, v2, v14\n \
             v_fma_f32 v15, v1, v2, v15\n \
             v_fma_f32 v16, v1, v2, v16\n \
             v_fma_f32 v17, v1, v2, v17\n \
             v_fma_f32 v18, v1, v2, v18\n \
             v_fma_f32 v19, v1, v2, v19\n \
             v_fma_f32 v20, v1, v2, v20\n \
             v_fma_f32 v21, v1, v2, v21\n \
             v_fma_f32 v22, v1, v2, v22\n \
             v_fma_f32 v23, v1, v2, v23\n \
             s_branch loop",
        words: &[
            0xD1CB_0008,
            0x0422_0501,
            0xD1CB_0009,
            0x0426_0501,
            0xD1CB_000A,
            0x042A_0501,
            0xD1CB_000B,
            0x042E_0501,
            0xD1CB_000C,
            0x0432_0501,
            0xD1CB_000D,
            0x0436_0501,
            0xD1CB_000E,
            0x043A_0501,
            0xD1CB_000F,
            0x043E_0501,
            0xD1CB_0010,
            0x0442_0501,
            0xD1CB_0011,
            0x0446_0501,
            0xD1CB_0012,
            0x044A_0501,
            0xD1CB_0013,
            0x044E_0501,
            0xD1CB_0014,
            0x0452_0501,
            0xD1CB_0015,
            0x0456_0501,
            0xD1CB_0016,
            0x045A_0501,
            0xD1CB_0017,
            0x045E_0501,
            0xBF82_FFDF,
        ],
        instructions: 17,
        bytes: 0,
        flops: 0,
    },
    Workload {
        name: "f32_mix",
        class: "f32 ALU",
        text: "loop:\n \
             v_add_f32_e32 v8, v1, v8\n \
             v_mul_f32_e32 v9, v2, v8\n \
             v_fma_f32 v10, -v9, v1, v10\n \
             v_max_f32_e32 v11, v9, v10\n \
             v_sub_f32_e32 v12, 1.0, v11\n \
             v_mul_f32_e32 v13, s4, v12\n \
             v_fma_f32 v14, v13, v12, v2\n \
             v_min_f32_e32 v8, v14, v13\n \
             v_add_f32_e32 v8, v1, v8\n \
             v_mul_f32_e32 v9, v2, v8\n \
             v_fma_f32 v10, -v9, v1, v10\n \
             v_max_f32_e32 v11, v9, v10\n \
             v_sub_f32_e32 v12, 1.0, v11\n \
             v_mul_f32_e32 v13, s4, v12\n \
             v_fma_f32 v14, v13, v12, v2\n \
             v_min_f32_e32 v8, v14, v13\n \
             s_add_u32 s5, s5, 1\n \
             s_cmp_lg_u32 s5, 0\n \
             s_branch loop",
        words: &[
            0x0210_1101,
            0x0A12_1102,
            0xD1CB_000A,
            0x242A_0309,
            0x1616_1509,
            0x0418_16F2,
            0x0A1A_1804,
            0xD1CB_000E,
            0x040A_190D,
            0x1410_1B0E,
            0x0210_1101,
            0x0A12_1102,
            0xD1CB_000A,
            0x242A_0309,
            0x1616_1509,
            0x0418_16F2,
            0x0A1A_1804,
            0xD1CB_000E,
            0x040A_190D,
            0x1410_1B0E,
            0x8005_8105,
            0xBF07_8005,
            0xBF82_FFE9,
        ],
        instructions: 19,
        bytes: 0,
        flops: 0,
    },
    Workload {
        name: "f32_counted",
        class: "f32 ALU, short loops",
        text: "start:\n \
             s_mov_b32 s5, 100\n \
             loop:\n \
             v_fma_f32 v8, v1, v2, v8\n \
             v_fma_f32 v9, v1, v2, v9\n \
             v_add_f32_e32 v10, v8, v9\n \
             v_mul_f32_e32 v11, v10, v2\n \
             s_sub_u32 s5, s5, 1\n \
             s_cmp_lg_u32 s5, 0\n \
             s_cbranch_scc1 loop\n \
             s_branch start",
        words: &[
            0xBE85_00FF,
            0x0000_0064,
            0xD1CB_0008,
            0x0422_0501,
            0xD1CB_0009,
            0x0426_0501,
            0x0214_1308,
            0x0A16_050A,
            0x8085_8105,
            0xBF07_8005,
            0xBF85_FFF7,
            0xBF82_FFF4,
        ],
        instructions: 7,
        bytes: 0,
        flops: 0,
    },
    Workload {
        name: "i32",
        class: "integer ALU",
        text: "loop:\n \
             v_add_u32_e32 v8, v1, v8\n \
             v_xor_b32_e32 v9, v8, v2\n \
             v_lshlrev_b32_e32 v10, 3, v9\n \
             v_mul_lo_u32 v11, v10, v1\n \
             v_bfe_u32 v12, v11, 4, 12\n \
             v_lshl_add_u32 v13, v12, 2, v8\n \
             v_and_b32_e32 v14, v13, v9\n \
             v_alignbit_b32 v15, v14, v13, 7\n \
             v_add_u32_e32 v8, v1, v8\n \
             v_xor_b32_e32 v9, v8, v2\n \
             v_lshlrev_b32_e32 v10, 3, v9\n \
             v_mul_lo_u32 v11, v10, v1\n \
             v_bfe_u32 v12, v11, 4, 12\n \
             v_lshl_add_u32 v13, v12, 2, v8\n \
             v_and_b32_e32 v14, v13, v9\n \
             v_alignbit_b32 v15, v14, v13, 7\n \
             s_branch loop",
        words: &[
            0x6810_1101,
            0x2A12_0508,
            0x2414_1283,
            0xD285_000B,
            0x0002_030A,
            0xD1C8_000C,
            0x0231_090B,
            0xD1FD_000D,
            0x0421_050C,
            0x261C_130D,
            0xD1CE_000F,
            0x021E_1B0E,
            0x6810_1101,
            0x2A12_0508,
            0x2414_1283,
            0xD285_000B,
            0x0002_030A,
            0xD1C8_000C,
            0x0231_090B,
            0xD1FD_000D,
            0x0421_050C,
            0x261C_130D,
            0xD1CE_000F,
            0x021E_1B0E,
            0xBF82_FFE7,
        ],
        instructions: 17,
        bytes: 0,
        flops: 0,
    },
    Workload {
        name: "compare",
        class: "comparisons, selections, carries",
        text: "loop:\n \
             v_cmp_lt_f32_e32 vcc, v1, v2\n \
             v_cndmask_b32_e32 v8, v1, v2, vcc\n \
             v_cmp_gt_u32_e32 vcc, v8, v1\n \
             v_cndmask_b32_e32 v9, v8, v2, vcc\n \
             v_add_co_u32_e32 v10, vcc, v9, v1\n \
             v_addc_co_u32_e32 v11, vcc, v10, v2, vcc\n \
             v_cmp_lt_f32_e32 vcc, v1, v2\n \
             v_cndmask_b32_e32 v8, v1, v2, vcc\n \
             v_cmp_gt_u32_e32 vcc, v8, v1\n \
             v_cndmask_b32_e32 v9, v8, v2, vcc\n \
             v_add_co_u32_e32 v10, vcc, v9, v1\n \
             v_addc_co_u32_e32 v11, vcc, v10, v2, vcc\n \
             s_branch loop",
        words: &[
            0x7C82_0501,
            0x0010_0501,
            0x7D98_0308,
            0x0012_0508,
            0x3214_0309,
            0x3816_050A,
            0x7C82_0501,
            0x0010_0501,
            0x7D98_0308,
            0x0012_0508,
            0x3214_0309,
            0x3816_050A,
            0xBF82_FFF3,
        ],
        instructions: 13,
        bytes: 0,
        flops: 0,
    },
    Workload {
        name: "f64_fma",
        class: "f64 ALU",
        text: "loop:\n \
             v_fma_f64 v[8:9], v[24:25], v[26:27], v[8:9]\n \
             v_fma_f64 v[10:11], v[24:25], v[26:27], v[10:11]\n \
             v_fma_f64 v[12:13], v[24:25], v[26:27], v[12:13]\n \
             v_fma_f64 v[14:15], v[24:25], v[26:27], v[14:15]\n \
             v_fma_f64 v[16:17], v[24:25], v[26:27], v[16:17]\n \
             v_fma_f64 v[18:19], v[24:25], v[26:27], v[18:19]\n \
             v_fma_f64 v[20:21], v[24:25], v[26:27], v[20:21]\n \
             v_fma_f64 v[22:23], v[24:25], v[26:27], v[22:23]\n \
             s_branch loop",
        words: &[
            0xD1CC_0008,
            0x0422_3518,
            0xD1CC_000A,
            0x042A_3518,
            0xD1CC_000C,
            0x0432_3518,
            0xD1CC_000E,
            0x043A_3518,
            0xD1CC_0010,
            0x0442_3518,
            0xD1CC_0012,
            0x044A_3518,
            0xD1CC_0014,
            0x0452_3518,
            0xD1CC_0016,
            0x045A_3518,
            0xBF82_FFEF,
        ],
        instructions: 9,
        bytes: 0,
        flops: 0,
    },
    Workload {
        name: "pk_f16",
        class: "packed f16",
        text: "loop:\n \
             v_pk_fma_f16 v8, v1, v2, v8\n \
             v_pk_fma_f16 v9, v1, v2, v9\n \
             v_pk_fma_f16 v10, v1, v2, v10\n \
             v_pk_fma_f16 v11, v1, v2, v11\n \
             v_pk_fma_f16 v12, v1, v2, v12\n \
             v_pk_fma_f16 v13, v1, v2, v13\n \
             v_pk_fma_f16 v14, v1, v2, v14\n \
             v_pk_fma_f16 v15, v1, v2, v15\n \
             s_branch loop",
        words: &[
            0xD38E_4008,
            0x1C22_0501,
            0xD38E_4009,
            0x1C26_0501,
            0xD38E_400A,
            0x1C2A_0501,
            0xD38E_400B,
            0x1C2E_0501,
            0xD38E_400C,
            0x1C32_0501,
            0xD38E_400D,
            0x1C36_0501,
            0xD38E_400E,
            0x1C3A_0501,
            0xD38E_400F,
            0x1C3E_0501,
            0xBF82_FFEF,
        ],
        instructions: 9,
        bytes: 0,
        flops: 0,
    },
    Workload {
        name: "pk_f32",
        class: "packed f32",
        text: "loop:\n \
             v_pk_fma_f32 v[8:9], v[28:29], v[30:31], v[8:9]\n \
             v_pk_fma_f32 v[10:11], v[28:29], v[30:31], v[10:11]\n \
             v_pk_fma_f32 v[12:13], v[28:29], v[30:31], v[12:13]\n \
             v_pk_fma_f32 v[14:15], v[28:29], v[30:31], v[14:15]\n \
             v_pk_fma_f32 v[16:17], v[28:29], v[30:31], v[16:17]\n \
             v_pk_fma_f32 v[18:19], v[28:29], v[30:31], v[18:19]\n \
             v_pk_fma_f32 v[20:21], v[28:29], v[30:31], v[20:21]\n \
             v_pk_fma_f32 v[22:23], v[28:29], v[30:31], v[22:23]\n \
             s_branch loop",
        words: &[
            0xD3B0_4008,
            0x1C22_3D1C,
            0xD3B0_400A,
            0x1C2A_3D1C,
            0xD3B0_400C,
            0x1C32_3D1C,
            0xD3B0_400E,
            0x1C3A_3D1C,
            0xD3B0_4010,
            0x1C42_3D1C,
            0xD3B0_4012,
            0x1C4A_3D1C,
            0xD3B0_4014,
            0x1C52_3D1C,
            0xD3B0_4016,
            0x1C5A_3D1C,
            0xBF82_FFEF,
        ],
        instructions: 9,
        bytes: 0,
        flops: 0,
    },
    Workload {
        name: "special",
        class: "reciprocals, exponentials, conversions",
        text: "loop:\n \
             v_rcp_f32_e32 v8, v1\n \
             v_exp_f32_e32 v9, v1\n \
             v_sqrt_f32_e32 v10, v1\n \
             v_cvt_f16_f32_e32 v11, v1\n \
             v_cvt_i32_f32_e32 v12, v1\n \
             v_log_f32_e32 v13, v1\n \
             s_branch loop",
        words: &[
            0x7E10_4501,
            0x7E12_4101,
            0x7E14_4F01,
            0x7E16_1501,
            0x7E18_1101,
            0x7E1A_4301,
            0xBF82_FFF9,
        ],
        instructions: 7,
        bytes: 0,
        flops: 0,
    },
    Workload {
        name: "dpp",
        class: "lane exchange by DPP",
        text: "loop:\n \
             v_add_u32_dpp v8, v1, v8 row_shr:1 row_mask:0xf bank_mask:0xf\n \
             v_add_u32_dpp v9, v1, v9 row_shr:2 row_mask:0xf bank_mask:0xf\n \
             v_mov_b32_dpp v10, v1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf\n \
             s_branch loop",
        words: &[
            0x6810_10FA,
            0xFF01_1101,
            0x6812_12FA,
            0xFF01_1201,
            0x7E14_02FA,
            0xFF00_B101,
            0xBF82_FFF9,
        ],
        instructions: 4,
        bytes: 0,
        flops: 0,
    },
    Workload {
        name: "sdwa",
        class: "parts of registers by SDWA",
        text: "loop:\n \
             v_add_u32_sdwa v8, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:WORD_1\n \
             v_add_u32_sdwa v9, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_0 src1_sel:BYTE_3\n \
             v_mul_f32_sdwa v10, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD\n \
             v_add_u16_sdwa v11, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_0 src1_sel:WORD_1\n \
             s_branch loop",
        words: &[
            0x6810_04F9,
            0x0501_0601,
            0x6812_04F9,
            0x0304_0601,
            0x0A14_04F9,
            0x0606_0601,
            0x4C16_04F9,
            0x0504_1501,
            0xBF82_FFF7,
        ],
        instructions: 5,
        bytes: 0,
        flops: 0,
    },
];
