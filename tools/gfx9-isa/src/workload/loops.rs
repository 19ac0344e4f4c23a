// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The loops: one per class of instructions.

use super::Workload;

/// All of them.
pub const WORKLOADS: &[Workload] = &[
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
        name: "lds",
        class: "LDS",
        text: "loop:\n \
             ds_write_b32 v0, v8\n \
             ds_read_b32 v9, v0\n \
             ds_write_b64 v3, v[8:9]\n \
             ds_read_b128 v[12:15], v4\n \
             ds_read_b32 v10, v5 offset:64\n \
             s_waitcnt lgkmcnt(0)\n \
             s_branch loop",
        words: &[
            0xD81A_0000,
            0x0000_0800,
            0xD86C_0000,
            0x0900_0000,
            0xD89A_0000,
            0x0000_0803,
            0xD9FE_0000,
            0x0C00_0004,
            0xD86C_0040,
            0x0A00_0005,
            0xBF8C_C07F,
            0xBF82_FFF4,
        ],
        instructions: 7,
        bytes: 2304,
        flops: 0,
    },
    Workload {
        name: "s_load",
        class: "scalar loads",
        text: "loop:\n \
             s_load_dwordx4 s[8:11], s[0:1], 0x0\n \
             s_load_dwordx2 s[12:13], s[0:1], 0x40\n \
             s_load_dword s14, s[0:1], 0x80\n \
             s_waitcnt lgkmcnt(0)\n \
             s_branch loop",
        words: &[
            0xC00A_0200,
            0x0000_0000,
            0xC006_0300,
            0x0000_0040,
            0xC002_0380,
            0x0000_0080,
            0xBF8C_C07F,
            0xBF82_FFF8,
        ],
        instructions: 5,
        bytes: 28,
        flops: 0,
    },
    Workload {
        name: "load_dword",
        class: "global loads, dword",
        text: "loop:\n \
             global_load_dword v8, v0, s[0:1] offset:0\n \
             global_load_dword v9, v0, s[0:1] offset:256\n \
             global_load_dword v10, v0, s[0:1] offset:512\n \
             global_load_dword v11, v0, s[0:1] offset:768\n \
             global_load_dword v12, v0, s[0:1] offset:1024\n \
             global_load_dword v13, v0, s[0:1] offset:1280\n \
             global_load_dword v14, v0, s[0:1] offset:1536\n \
             global_load_dword v15, v0, s[0:1] offset:1792\n \
             v_add_u32_e32 v0, 0x800, v0\n \
             v_and_b32_e32 v0, 0x3fffff, v0\n \
             s_branch loop",
        words: &[
            0xDC50_8000,
            0x0800_0000,
            0xDC50_8100,
            0x0900_0000,
            0xDC50_8200,
            0x0A00_0000,
            0xDC50_8300,
            0x0B00_0000,
            0xDC50_8400,
            0x0C00_0000,
            0xDC50_8500,
            0x0D00_0000,
            0xDC50_8600,
            0x0E00_0000,
            0xDC50_8700,
            0x0F00_0000,
            0x6800_00FF,
            0x0000_0800,
            0x2600_00FF,
            0x003F_FFFF,
            0xBF82_FFEB,
        ],
        instructions: 11,
        bytes: 2048,
        flops: 0,
    },
    Workload {
        name: "store_dword",
        class: "global stores, dword",
        text: "loop:\n \
             global_store_dword v0, v8, s[0:1] offset:0\n \
             global_store_dword v0, v9, s[0:1] offset:256\n \
             global_store_dword v0, v10, s[0:1] offset:512\n \
             global_store_dword v0, v11, s[0:1] offset:768\n \
             global_store_dword v0, v12, s[0:1] offset:1024\n \
             global_store_dword v0, v13, s[0:1] offset:1280\n \
             global_store_dword v0, v14, s[0:1] offset:1536\n \
             global_store_dword v0, v15, s[0:1] offset:1792\n \
             v_add_u32_e32 v0, 0x800, v0\n \
             v_and_b32_e32 v0, 0x3fffff, v0\n \
             s_branch loop",
        words: &[
            0xDC70_8000,
            0x0000_0800,
            0xDC70_8100,
            0x0000_0900,
            0xDC70_8200,
            0x0000_0A00,
            0xDC70_8300,
            0x0000_0B00,
            0xDC70_8400,
            0x0000_0C00,
            0xDC70_8500,
            0x0000_0D00,
            0xDC70_8600,
            0x0000_0E00,
            0xDC70_8700,
            0x0000_0F00,
            0x6800_00FF,
            0x0000_0800,
            0x2600_00FF,
            0x003F_FFFF,
            0xBF82_FFEB,
        ],
        instructions: 11,
        bytes: 2048,
        flops: 0,
    },
    Workload {
        name: "load_dwordx4",
        class: "global loads, 4 dwords",
        text: "loop:\n \
             global_load_dwordx4 v[8:11], v5, s[0:1] offset:0\n \
             global_load_dwordx4 v[12:15], v5, s[0:1] offset:1024\n \
             global_load_dwordx4 v[16:19], v5, s[0:1] offset:2048\n \
             global_load_dwordx4 v[20:23], v5, s[0:1] offset:3072\n \
             v_add_u32_e32 v5, 0x1000, v5\n \
             v_and_b32_e32 v5, 0x3fffff, v5\n \
             s_branch loop",
        words: &[
            0xDC5C_8000,
            0x0800_0005,
            0xDC5C_8400,
            0x0C00_0005,
            0xDC5C_8800,
            0x1000_0005,
            0xDC5C_8C00,
            0x1400_0005,
            0x680A_0AFF,
            0x0000_1000,
            0x260A_0AFF,
            0x003F_FFFF,
            0xBF82_FFF3,
        ],
        instructions: 7,
        bytes: 4096,
        flops: 0,
    },
    Workload {
        name: "store_dwordx4",
        class: "global stores, 4 dwords",
        text: "loop:\n \
             global_store_dwordx4 v5, v[8:11], s[0:1] offset:0\n \
             global_store_dwordx4 v5, v[12:15], s[0:1] offset:1024\n \
             global_store_dwordx4 v5, v[16:19], s[0:1] offset:2048\n \
             global_store_dwordx4 v5, v[20:23], s[0:1] offset:3072\n \
             v_add_u32_e32 v5, 0x1000, v5\n \
             v_and_b32_e32 v5, 0x3fffff, v5\n \
             s_branch loop",
        words: &[
            0xDC7C_8000,
            0x0000_0805,
            0xDC7C_8400,
            0x0000_0C05,
            0xDC7C_8800,
            0x0000_1005,
            0xDC7C_8C00,
            0x0000_1405,
            0x680A_0AFF,
            0x0000_1000,
            0x260A_0AFF,
            0x003F_FFFF,
            0xBF82_FFF3,
        ],
        instructions: 7,
        bytes: 4096,
        flops: 0,
    },
    Workload {
        name: "copy",
        class: "copy, loads and stores of 4 dwords",
        text: "loop:\n \
             global_load_dwordx4 v[8:11], v5, s[0:1]\n \
             global_load_dwordx4 v[12:15], v5, s[0:1] offset:1024\n \
             s_waitcnt vmcnt(0)\n \
             global_store_dwordx4 v5, v[8:11], s[2:3]\n \
             global_store_dwordx4 v5, v[12:15], s[2:3] offset:1024\n \
             v_add_u32_e32 v5, 0x800, v5\n \
             v_and_b32_e32 v5, 0x1fffff, v5\n \
             s_branch loop",
        words: &[
            0xDC5C_8000,
            0x0800_0005,
            0xDC5C_8400,
            0x0C00_0005,
            0xBF8C_0F70,
            0xDC7C_8000,
            0x0002_0805,
            0xDC7C_8400,
            0x0002_0C05,
            0x680A_0AFF,
            0x0000_0800,
            0x260A_0AFF,
            0x001F_FFFF,
            0xBF82_FFF2,
        ],
        instructions: 8,
        bytes: 4096,
        flops: 0,
    },
    Workload {
        name: "flat",
        class: "flat loads, gathered",
        text: "loop:\n \
             flat_load_dword v8, v[6:7]\n \
             flat_load_dword v9, v[6:7] offset:4\n \
             s_waitcnt vmcnt(0) lgkmcnt(0)\n \
             s_branch loop",
        words: &[
            0xDC50_0000,
            0x0800_0006,
            0xDC50_0004,
            0x0900_0006,
            0xBF8C_0070,
            0xBF82_FFFA,
        ],
        instructions: 4,
        bytes: 512,
        flops: 0,
    },
    Workload {
        name: "atomics",
        class: "global atomics",
        text: "loop:\n \
             global_atomic_add v0, v1, s[0:1]\n \
             global_atomic_add v8, v0, v1, s[0:1] offset:256 glc\n \
             s_branch loop",
        words: &[
            0xDD08_8000,
            0x0000_0100,
            0xDD09_8100,
            0x0800_0100,
            0xBF82_FFFB,
        ],
        instructions: 3,
        bytes: 512,
        flops: 0,
    },
    Workload {
        name: "mfma_f16",
        class: "f16 matrices",
        text: "loop:\n \
             v_mfma_f32_32x32x8f16 a[0:15], v[8:9], v[10:11], a[0:15]\n \
             v_mfma_f32_32x32x8f16 a[16:31], v[8:9], v[10:11], a[16:31]\n \
             v_mfma_f32_16x16x16f16 a[32:35], v[8:9], v[10:11], a[32:35]\n \
             s_branch loop",
        words: &[
            0xD3CC_8000,
            0x0402_1508,
            0xD3CC_8010,
            0x0442_1508,
            0xD3CD_8020,
            0x0482_1508,
            0xBF82_FFF9,
        ],
        instructions: 4,
        bytes: 0,
        flops: 40960,
    },
    Workload {
        name: "mfma_f32",
        class: "f32 matrices",
        text: "loop:\n \
             v_mfma_f32_32x32x2f32 a[0:15], v8, v9, a[0:15]\n \
             v_mfma_f32_16x16x4f32 a[32:35], v8, v9, a[32:35]\n \
             s_branch loop",
        words: &[
            0xD3C4_8000,
            0x0402_1308,
            0xD3C5_8020,
            0x0482_1308,
            0xBF82_FFFB,
        ],
        instructions: 3,
        bytes: 0,
        flops: 6144,
    },
    Workload {
        name: "mfma_f64",
        class: "f64 matrices",
        text: "loop:\n \
             v_mfma_f64_16x16x4f64 a[0:7], v[8:9], v[10:11], a[0:7]\n \
             s_branch loop",
        words: &[0xD3EE_8000, 0x0402_1508, 0xBF82_FFFD],
        instructions: 2,
        bytes: 0,
        flops: 2048,
    },
    Workload {
        name: "gemm_f16",
        class: "f16 GEMM: loads, matrices, loop",
        text: "start:\n \
             s_mov_b32 s5, 128\n \
             v_mov_b32_e32 v16, v5\n \
             loop:\n \
             global_load_dwordx4 v[8:11], v16, s[0:1]\n \
             global_load_dwordx4 v[12:15], v16, s[2:3]\n \
             v_add_u32_e32 v16, 0x400, v16\n \
             s_waitcnt vmcnt(0)\n \
             v_mfma_f32_32x32x8f16 a[0:15], v[8:9], v[12:13], a[0:15]\n \
             v_mfma_f32_32x32x8f16 a[0:15], v[10:11], v[14:15], a[0:15]\n \
             s_sub_u32 s5, s5, 1\n \
             s_cmp_lg_u32 s5, 0\n \
             s_cbranch_scc1 loop\n \
             s_branch start",
        words: &[
            0xBE85_00FF,
            0x0000_0080,
            0x7E20_0305,
            0xDC5C_8000,
            0x0800_0010,
            0xDC5C_8000,
            0x0C02_0010,
            0x6820_20FF,
            0x0000_0400,
            0xBF8C_0F70,
            0xD3CC_8000,
            0x0402_1908,
            0xD3CC_8000,
            0x0402_1D0A,
            0x8085_8105,
            0xBF07_8005,
            0xBF85_FFF2,
            0xBF82_FFEE,
        ],
        instructions: 9,
        bytes: 2048,
        flops: 32768,
    },
];
