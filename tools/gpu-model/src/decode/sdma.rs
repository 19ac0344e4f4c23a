// SPDX-License-Identifier: GPL-2.0 OR MIT
//! SDMA layouts (`vega10_sdma_pkt_open.h`).

use super::Decoded;
use crate::asic::Asic;

/// Decodes a packet.
pub fn decode(_asic: &Asic, raw: &[u32]) -> Decoded {
    let w = |i: usize| raw.get(i).copied().map_or(0, u64::from);
    let qw = |i: usize| w(i) | (w(i + 1) << 32);
    let (op, sub) = (w(0) & 0xFF, (w(0) >> 8) & 0xFF);
    let (name, fields): (&str, Vec<(&str, u64)>) = match (op, sub) {
        (0, _) => ("SDMA_NOP", vec![("count", (w(0) >> 16) & 0x3FFF)]),
        (1, 0) if (w(0) >> 27) & 1 != 0 => (
            "SDMA_COPY_BROADCAST",
            vec![
                ("bytes", w(1) + 1),
                ("src", qw(3)),
                ("dst", qw(5)),
                ("dst2", qw(7)),
            ],
        ),
        (1, 0) => (
            "SDMA_COPY",
            vec![("bytes", w(1) + 1), ("src", qw(3)), ("dst", qw(5))],
        ),
        (1, 4) => (
            "SDMA_COPY_SUB_WINDOW",
            vec![("src", qw(1)), ("dst", qw(6)), ("rect", w(11))],
        ),
        (2, 0) => (
            "SDMA_WRITE",
            vec![
                ("dst", qw(1)),
                ("dwords", (w(3) & 0xF_FFFF) + 1),
                ("data0", w(4)),
            ],
        ),
        (4, _) => (
            "SDMA_INDIRECT",
            vec![
                ("base", qw(1)),
                ("size", w(3) & 0xF_FFFF),
                ("vmid", (w(0) >> 16) & 0xF),
            ],
        ),
        (5, _) => ("SDMA_FENCE", vec![("addr", qw(1)), ("data", w(3))]),
        (6, _) => ("SDMA_TRAP", vec![("context", w(1) & 0x0FFF_FFFF)]),
        (7, _) => ("SDMA_SEMAPHORE", vec![("addr", qw(1))]),
        (8, 0) => (
            "SDMA_POLL_REGMEM",
            vec![
                ("hdp_flush", (w(0) >> 26) & 1),
                ("func", (w(0) >> 28) & 7),
                ("memory", w(0) >> 31),
                ("addr", qw(1)),
                ("value", w(3)),
                ("mask", w(4)),
            ],
        ),
        (9, _) => (
            "SDMA_COND_EXE",
            vec![
                ("addr", qw(1)),
                ("reference", w(3)),
                ("count", w(4) & 0x3FFF),
            ],
        ),
        (10, _) => (
            "SDMA_ATOMIC",
            vec![
                ("atomic", w(0) >> 25),
                ("addr", qw(1)),
                ("src", qw(3)),
                ("compare", qw(5)),
            ],
        ),
        (11, 0) => (
            "SDMA_CONST_FILL",
            vec![("dst", qw(1)), ("data", w(3)), ("count", w(4))],
        ),
        (12, 0) => (
            "SDMA_PTEPDE",
            vec![
                ("addr", qw(1)),
                ("flags", qw(3)),
                ("value", qw(5)),
                ("increment", qw(7)),
                ("entries", (w(9) & 0x7_FFFF) + 1),
            ],
        ),
        (13, 1) => ("SDMA_TIMESTAMP_GET", vec![("addr", qw(1))]),
        (13, 2) => ("SDMA_TIMESTAMP_GET_GLOBAL", vec![("addr", qw(1))]),
        (13, _) => ("SDMA_TIMESTAMP_SET", vec![("value", qw(1))]),
        (14, _) => (
            "SDMA_SRBM_WRITE",
            vec![("register", w(1) & 0x3_FFFF), ("data", w(2))],
        ),
        (15, _) => ("SDMA_PRE_EXE", vec![("count", w(1) & 0x3FFF)]),
        (16, _) => ("SDMA_DUMMY_TRAP", vec![]),
        _ => ("SDMA_UNKNOWN", vec![("op", op), ("sub_op", sub)]),
    };
    let mut d = Decoded::named(name);
    for (k, v) in fields {
        d.field(k, v);
    }
    d
}
