// SPDX-License-Identifier: GPL-2.0 OR MIT
//! PM4 layouts (`soc15d.h`, `kfd_pm4_headers_ai.h`, `kfd_pm4_headers_aldebaran.h`).

use super::spec::{d, f, q, Field, Spec};
use super::Decoded;
use crate::asic::Asic;
use crate::cp::pm4::{length, op};

const SET_RESOURCES: &[Field] = &[
    f("vmid_mask", 1, 15, 0),
    f("unmap_latency", 1, 23, 16),
    f("enb_xnack_retry_disable_check", 1, 28, 28),
    f("queue_type", 1, 31, 29),
    q("queue_mask", 2, 0),
    q("gws_mask", 4, 0),
    f("oac_mask", 6, 15, 0),
    f("gds_heap_base", 7, 9, 0),
    f("gds_heap_size", 7, 20, 11),
];

const RUN_LIST: &[Field] = &[
    q("ib_base", 1, 2),
    f("ib_size", 3, 19, 0),
    f("chain", 3, 20, 20),
    f("offload_polling", 3, 21, 21),
    f("chained_runlist_idle_disable", 3, 22, 22),
    f("valid", 3, 23, 23),
    f("process_cnt", 3, 27, 24),
];

const MAP_PROCESS_V9: &[Field] = &[
    f("pasid", 1, 15, 0),
    f("exec_cleaner_shader", 1, 17, 17),
    f("debug_vmid", 1, 21, 18),
    f("new_debug", 1, 22, 22),
    f("diq_enable", 1, 24, 24),
    f("process_quantum", 1, 31, 25),
    q("page_table_base", 2, 0),
    d("sh_mem_bases", 4),
    d("sh_mem_config", 5),
    q("tba", 6, 0),
    q("tma", 8, 0),
    q("gds_addr", 11, 0),
    f("num_gws", 13, 6, 0),
    f("sdma_enable", 13, 7, 7),
    f("num_oac", 13, 11, 8),
    f("gds_size_hi", 13, 15, 12),
    f("gds_size", 13, 21, 16),
    f("num_queues", 13, 31, 22),
    q("completion_signal", 14, 0),
];

const MAP_PROCESS_ALDEBARAN: &[Field] = &[
    f("pasid", 1, 15, 0),
    f("single_memops", 1, 16, 16),
    f("exec_cleaner_shader", 1, 17, 17),
    f("debug_vmid", 1, 21, 18),
    f("new_debug", 1, 22, 22),
    f("tmz", 1, 23, 23),
    f("diq_enable", 1, 24, 24),
    f("process_quantum", 1, 31, 25),
    q("page_table_base", 2, 0),
    d("sh_mem_bases", 4),
    d("sh_mem_config", 5),
    q("tba", 6, 0),
    q("tma", 8, 0),
    q("gds_addr", 11, 0),
    f("num_gws", 13, 6, 0),
    f("sdma_enable", 13, 7, 7),
    f("num_oac", 13, 11, 8),
    f("gds_size_hi", 13, 15, 12),
    f("gds_size", 13, 21, 16),
    f("num_queues", 13, 31, 22),
    d("spi_gdbg_per_vmid_cntl", 14),
    d("tcp_watch_cntl0", 15),
    d("tcp_watch_cntl1", 16),
    d("tcp_watch_cntl2", 17),
    d("tcp_watch_cntl3", 18),
    q("completion_signal", 19, 0),
];

const MAP_QUEUES: &[Field] = &[
    f("extended_engine_sel", 1, 3, 2),
    f("queue_sel", 1, 5, 4),
    f("vmid", 1, 11, 8),
    f("gws_control_queue", 1, 12, 12),
    f("queue", 1, 15, 13),
    f("pipe", 1, 17, 16),
    f("me", 1, 18, 18),
    f("queue_type", 1, 23, 21),
    f("alloc_format", 1, 25, 24),
    f("engine_sel", 1, 28, 26),
    f("num_queues", 1, 31, 29),
    f("check_disable", 2, 1, 1),
    f("doorbell_offset", 2, 27, 2),
    q("mqd_addr", 3, 0),
    q("wptr_addr", 5, 0),
];

const UNMAP_QUEUES: &[Field] = &[
    f("action", 1, 1, 0),
    f("extended_engine_sel", 1, 3, 2),
    f("queue_sel", 1, 5, 4),
    f("engine_sel", 1, 28, 26),
    f("num_queues", 1, 31, 29),
    d("pasid_or_doorbell0", 2),
    d("doorbell1", 3),
    d("doorbell2", 4),
    d("doorbell3", 5),
];

const QUERY_STATUS: &[Field] = &[
    f("context_id", 1, 27, 0),
    f("interrupt_sel", 1, 29, 28),
    f("command", 1, 31, 30),
    d("pasid_or_doorbell", 2),
    q("fence_addr", 3, 0),
    q("fence_data", 5, 0),
];

const SPECS: &[Spec] = &[
    Spec {
        op: op::NOP,
        name: "NOP",
        len: 0,
        fields: &[],
    },
    Spec {
        op: 0x11,
        name: "SET_BASE",
        len: 0,
        fields: &[],
    },
    Spec {
        op: 0x12,
        name: "CLEAR_STATE",
        len: 0,
        fields: &[],
    },
    Spec {
        op: op::DISPATCH_DIRECT,
        name: "DISPATCH_DIRECT",
        len: 5,
        fields: &[
            d("dim_x", 1),
            d("dim_y", 2),
            d("dim_z", 3),
            d("initiator", 4),
        ],
    },
    Spec {
        op: op::DISPATCH_INDIRECT,
        name: "DISPATCH_INDIRECT",
        len: 4,
        fields: &[q("addr", 1, 0), d("initiator", 3)],
    },
    Spec {
        op: op::ATOMIC_MEM,
        name: "ATOMIC_MEM",
        len: 9,
        fields: &[
            f("atomic", 1, 6, 0),
            f("command", 1, 11, 8),
            f("cache_policy", 1, 26, 25),
            q("addr", 2, 0),
            q("src", 4, 0),
            q("compare", 6, 0),
            f("loop_interval", 8, 12, 0),
        ],
    },
    Spec {
        op: op::COND_EXEC,
        name: "COND_EXEC",
        len: 5,
        fields: &[q("addr", 1, 2), d("reserved", 3), f("exec_count", 4, 13, 0)],
    },
    Spec {
        op: op::PRED_EXEC,
        name: "PRED_EXEC",
        len: 2,
        fields: &[f("exec_count", 1, 13, 0), f("xcc_select", 1, 31, 24)],
    },
    Spec {
        op: op::WRITE_DATA,
        name: "WRITE_DATA",
        len: 0,
        fields: &[
            f("dst_sel", 1, 11, 8),
            f("addr_incr", 1, 16, 16),
            f("resume_vf", 1, 19, 19),
            f("wr_confirm", 1, 20, 20),
            f("cache_policy", 1, 26, 25),
            f("engine", 1, 31, 30),
            q("addr", 2, 0),
            d("data0", 4),
            d("data1", 5),
        ],
    },
    Spec {
        op: op::WAIT_REG_MEM,
        name: "WAIT_REG_MEM",
        len: 7,
        fields: &[
            f("function", 1, 2, 0),
            f("mem_space", 1, 5, 4),
            f("operation", 1, 7, 6),
            f("engine", 1, 8, 8),
            q("addr", 2, 0),
            d("reference", 4),
            d("mask", 5),
            f("poll_interval", 6, 15, 0),
            f("offload", 6, 31, 31),
        ],
    },
    Spec {
        op: op::INDIRECT_BUFFER,
        name: "INDIRECT_BUFFER",
        len: 4,
        fields: &[
            q("ib_base", 1, 2),
            f("ib_size", 3, 19, 0),
            f("chain", 3, 20, 20),
            f("offload_polling", 3, 21, 21),
            f("volatile", 3, 22, 22),
            f("valid", 3, 23, 23),
            f("vmid", 3, 27, 24),
            f("cache_policy", 3, 29, 28),
            f("priv", 3, 31, 31),
        ],
    },
    Spec {
        op: op::COPY_DATA,
        name: "COPY_DATA",
        len: 6,
        fields: &[
            f("src_sel", 1, 3, 0),
            f("dst_sel", 1, 11, 8),
            f("src_cache_policy", 1, 14, 13),
            f("count_sel", 1, 16, 16),
            f("wr_confirm", 1, 20, 20),
            f("dst_cache_policy", 1, 26, 25),
            f("pq_exe_status", 1, 29, 29),
            q("src", 2, 0),
            q("dst", 4, 0),
        ],
    },
    Spec {
        op: op::EVENT_WRITE,
        name: "EVENT_WRITE",
        len: 0,
        fields: &[
            f("event_type", 1, 5, 0),
            f("event_index", 1, 11, 8),
            f("offload", 1, 31, 31),
            q("addr", 2, 0),
        ],
    },
    Spec {
        op: op::RELEASE_MEM,
        name: "RELEASE_MEM",
        len: 0,
        fields: &[
            f("event_type", 1, 5, 0),
            f("event_index", 1, 11, 8),
            f("cache_actions", 1, 21, 12),
            f("cache_policy", 1, 26, 25),
            f("eop_exec", 1, 28, 28),
            f("dst_sel", 2, 17, 16),
            f("int_sel", 2, 26, 24),
            f("data_sel", 2, 31, 29),
            q("addr", 3, 0),
            q("data", 5, 0),
            d("int_ctxid", 7),
        ],
    },
    Spec {
        op: op::DMA_DATA,
        name: "DMA_DATA",
        len: 7,
        fields: &[
            f("engine", 1, 0, 0),
            f("dst_sel", 1, 21, 20),
            f("src_sel", 1, 30, 29),
            f("cp_sync", 1, 31, 31),
            q("src", 2, 0),
            q("dst", 4, 0),
            f("byte_count", 6, 25, 0),
            f("flags", 6, 31, 26),
        ],
    },
    Spec {
        op: op::ACQUIRE_MEM,
        name: "ACQUIRE_MEM",
        len: 7,
        fields: &[
            d("coher_cntl", 1),
            q("size", 2, 0),
            q("base", 4, 0),
            f("poll_interval", 6, 15, 0),
        ],
    },
    Spec {
        op: op::SET_CONFIG_REG,
        name: "SET_CONFIG_REG",
        len: 0,
        fields: &[f("offset", 1, 15, 0), d("value0", 2)],
    },
    Spec {
        op: op::SET_SH_REG,
        name: "SET_SH_REG",
        len: 0,
        fields: &[f("offset", 1, 15, 0), d("value0", 2)],
    },
    Spec {
        op: op::SET_UCONFIG_REG,
        name: "SET_UCONFIG_REG",
        len: 0,
        fields: &[f("offset", 1, 15, 0), d("value0", 2)],
    },
    Spec {
        op: op::INVALIDATE_TLBS,
        name: "INVALIDATE_TLBS",
        len: 2,
        fields: &[
            f("dst_sel", 1, 3, 0),
            f("all_hub", 1, 4, 4),
            f("pasid", 1, 20, 5),
            f("flush_type", 1, 31, 29),
        ],
    },
    Spec {
        op: op::SET_RESOURCES,
        name: "SET_RESOURCES",
        len: 8,
        fields: SET_RESOURCES,
    },
    Spec {
        op: op::MAP_QUEUES,
        name: "MAP_QUEUES",
        len: 7,
        fields: MAP_QUEUES,
    },
    Spec {
        op: op::UNMAP_QUEUES,
        name: "UNMAP_QUEUES",
        len: 6,
        fields: UNMAP_QUEUES,
    },
    Spec {
        op: op::QUERY_STATUS,
        name: "QUERY_STATUS",
        len: 7,
        fields: QUERY_STATUS,
    },
    Spec {
        op: op::RUN_LIST,
        name: "RUN_LIST",
        len: 4,
        fields: RUN_LIST,
    },
];

static MAP_PROCESS_SPECS: [Spec; 2] = [
    Spec {
        op: op::MAP_PROCESS,
        name: "MAP_PROCESS",
        len: 16,
        fields: MAP_PROCESS_V9,
    },
    Spec {
        op: op::MAP_PROCESS,
        name: "MAP_PROCESS",
        len: 21,
        fields: MAP_PROCESS_ALDEBARAN,
    },
];

/// The layout of an opcode on an ASIC.
pub fn spec(asic: &Asic, opcode: u8) -> Option<&'static Spec> {
    if opcode == op::MAP_PROCESS {
        return MAP_PROCESS_SPECS
            .iter()
            .find(|s| s.len == asic.map_process_dw);
    }
    SPECS.iter().find(|s| s.op == opcode)
}

/// Decodes a packet.
pub fn decode(asic: &Asic, raw: &[u32]) -> Decoded {
    let Some(&header) = raw.first() else {
        return Decoded::named("EMPTY");
    };
    match header >> 30 {
        3 => {}
        2 => return Decoded::named("TYPE2"),
        _ => {
            let mut out = Decoded::named("BAD_TYPE");
            out.field("header", u64::from(header));
            return out;
        }
    }
    let opcode = ((header >> 8) & 0xFF) as u8;
    match spec(asic, opcode) {
        Some(s) if opcode == op::NOP => {
            let mut out = Decoded::named(s.name);
            out.field("dwords", length(header));
            out
        }
        Some(s) => s.decode(raw),
        None => {
            let mut out = Decoded::named(format!("OP_{opcode:#04x}"));
            out.field("dwords", length(header));
            out
        }
    }
}
