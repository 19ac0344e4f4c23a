// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Loops of matrix instructions.

use super::super::Workload;

/// All of them.
pub(super) const LOOPS: &[Workload] = &[
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
