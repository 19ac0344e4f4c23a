// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Loops of loads, stores and atomics, on memory and LDS.

use super::super::Workload;

/// All of them.
pub(super) const LOOPS: &[Workload] = &[
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
        name: "lds_atomics",
        class: "LDS atomics",
        text: "loop:\n \
             ds_add_u32 v0, v8 offset:0\n \
             ds_add_u32 v0, v9 offset:256\n \
             ds_add_u32 v0, v10 offset:512\n \
             ds_add_u32 v0, v11 offset:768\n \
             s_branch loop",
        words: &[
            0xD800_0000,
            0x0000_0800,
            0xD800_0100,
            0x0000_0900,
            0xD800_0200,
            0x0000_0A00,
            0xD800_0300,
            0x0000_0B00,
            0xBF82_FFF7,
        ],
        instructions: 5,
        bytes: 2048,
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
        name: "buffer_load",
        class: "buffer loads, dword",
        text: "loop:\n \
             buffer_load_dword v8, v0, s[12:15], 0 offen offset:0\n \
             buffer_load_dword v9, v0, s[12:15], 0 offen offset:256\n \
             buffer_load_dword v10, v0, s[12:15], 0 offen offset:512\n \
             buffer_load_dword v11, v0, s[12:15], 0 offen offset:768\n \
             buffer_load_dword v12, v0, s[12:15], 0 offen offset:1024\n \
             buffer_load_dword v13, v0, s[12:15], 0 offen offset:1280\n \
             buffer_load_dword v14, v0, s[12:15], 0 offen offset:1536\n \
             buffer_load_dword v15, v0, s[12:15], 0 offen offset:1792\n \
             v_add_u32_e32 v0, 0x800, v0\n \
             v_and_b32_e32 v0, 0x3fffff, v0\n \
             s_branch loop",
        words: &[
            0xE050_1000,
            0x8003_0800,
            0xE050_1100,
            0x8003_0900,
            0xE050_1200,
            0x8003_0A00,
            0xE050_1300,
            0x8003_0B00,
            0xE050_1400,
            0x8003_0C00,
            0xE050_1500,
            0x8003_0D00,
            0xE050_1600,
            0x8003_0E00,
            0xE050_1700,
            0x8003_0F00,
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
        name: "buffer_store",
        class: "buffer stores, dword",
        text: "loop:\n \
             buffer_store_dword v8, v0, s[12:15], 0 offen offset:0\n \
             buffer_store_dword v9, v0, s[12:15], 0 offen offset:256\n \
             buffer_store_dword v10, v0, s[12:15], 0 offen offset:512\n \
             buffer_store_dword v11, v0, s[12:15], 0 offen offset:768\n \
             buffer_store_dword v12, v0, s[12:15], 0 offen offset:1024\n \
             buffer_store_dword v13, v0, s[12:15], 0 offen offset:1280\n \
             buffer_store_dword v14, v0, s[12:15], 0 offen offset:1536\n \
             buffer_store_dword v15, v0, s[12:15], 0 offen offset:1792\n \
             v_add_u32_e32 v0, 0x800, v0\n \
             v_and_b32_e32 v0, 0x3fffff, v0\n \
             s_branch loop",
        words: &[
            0xE070_1000,
            0x8003_0800,
            0xE070_1100,
            0x8003_0900,
            0xE070_1200,
            0x8003_0A00,
            0xE070_1300,
            0x8003_0B00,
            0xE070_1400,
            0x8003_0C00,
            0xE070_1500,
            0x8003_0D00,
            0xE070_1600,
            0x8003_0E00,
            0xE070_1700,
            0x8003_0F00,
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
        name: "format_load",
        class: "buffer loads with conversion, 4 x 8 bits",
        text: "loop:\n \
             tbuffer_load_format_xyzw v[8:11], v0, s[12:15], 0 format:[BUF_DATA_FORMAT_8_8_8_8,BUF_NUM_FORMAT_UNORM] offen offset:0\n \
             tbuffer_load_format_xyzw v[12:15], v0, s[12:15], 0 format:[BUF_DATA_FORMAT_8_8_8_8,BUF_NUM_FORMAT_UNORM] offen offset:256\n \
             tbuffer_load_format_xyzw v[16:19], v0, s[12:15], 0 format:[BUF_DATA_FORMAT_8_8_8_8,BUF_NUM_FORMAT_UNORM] offen offset:512\n \
             tbuffer_load_format_xyzw v[20:23], v0, s[12:15], 0 format:[BUF_DATA_FORMAT_8_8_8_8,BUF_NUM_FORMAT_UNORM] offen offset:768\n \
             v_add_u32_e32 v0, 0x400, v0\n \
             v_and_b32_e32 v0, 0x3fffff, v0\n \
             s_branch loop",
        words: &[
            0xE851_9000,
            0x8003_0800,
            0xE851_9100,
            0x8003_0C00,
            0xE851_9200,
            0x8003_1000,
            0xE851_9300,
            0x8003_1400,
            0x6800_00FF,
            0x0000_0400,
            0x2600_00FF,
            0x003F_FFFF,
            0xBF82_FFF3,
        ],
        instructions: 7,
        bytes: 1024,
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
];
