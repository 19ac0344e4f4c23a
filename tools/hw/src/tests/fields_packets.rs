// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Fields of packet words.

use super::fields::check;
use crate::hw::pm4::memory::{
    IndirectBufferDw3, InvalidateTlbsDw1, ReleaseMemDw1, ReleaseMemDw2, WaitRegMemDw1, WriteDataDw1,
};
use crate::hw::pm4::process::{MapProcessDw1, MapProcessDw13};
use crate::hw::pm4::queues::{MapQueuesDw1, UnmapQueuesDw1};
use crate::hw::pm4::schedule::{QueryStatusDw1, RunListDw3, SetResourcesDw1};

#[test]
fn packet_words() {
    check(
        "SET_RESOURCES dw1",
        SetResourcesDw1::FIELDS,
        &[
            ("VMID_MASK", 0x0000FFFF),
            ("UNMAP_LATENCY", 0x00FF0000),
            ("ENB_XNACK_RETRY_DISABLE_CHECK", 0x10000000),
            ("QUEUE_TYPE", 0xE0000000),
        ],
    );
    check(
        "RUN_LIST dw3",
        RunListDw3::FIELDS,
        &[
            ("IB_SIZE", 0x000FFFFF),
            ("CHAIN", 0x00100000),
            ("OFFLOAD_POLLING", 0x00200000),
            ("CHAINED_RUNLIST_IDLE_DISABLE", 0x00400000),
            ("VALID", 0x00800000),
            ("PROCESS_CNT", 0x0F000000),
        ],
    );
    check(
        "QUERY_STATUS dw1",
        QueryStatusDw1::FIELDS,
        &[
            ("CONTEXT_ID", 0x0FFFFFFF),
            ("INTERRUPT_SEL", 0x30000000),
            ("COMMAND", 0xC0000000),
        ],
    );
    check(
        "MAP_PROCESS dw1",
        MapProcessDw1::FIELDS,
        &[
            ("PASID", 0x0000FFFF),
            ("SINGLE_MEMOPS", 0x00010000),
            ("EXEC_CLEANER_SHADER", 0x00020000),
            ("DEBUG_VMID", 0x003C0000),
            ("NEW_DEBUG", 0x00400000),
            ("TMZ", 0x00800000),
            ("DIQ_ENABLE", 0x01000000),
            ("PROCESS_QUANTUM", 0xFE000000),
        ],
    );
    check(
        "MAP_PROCESS dw13",
        MapProcessDw13::FIELDS,
        &[
            ("NUM_GWS", 0x0000007F),
            ("SDMA_ENABLE", 0x00000080),
            ("NUM_OAC", 0x00000F00),
            ("GDS_SIZE_HI", 0x0000F000),
            ("GDS_SIZE", 0x003F0000),
            ("NUM_QUEUES", 0xFFC00000),
        ],
    );
    check(
        "MAP_QUEUES dw1",
        MapQueuesDw1::FIELDS,
        &[
            ("EXTENDED_ENGINE_SEL", 0x0000000C),
            ("QUEUE_SEL", 0x00000030),
            ("VMID", 0x00000F00),
            ("GWS_CONTROL_QUEUE", 0x00001000),
            ("QUEUE", 0x0000E000),
            ("PIPE", 0x00030000),
            ("ME", 0x00040000),
            ("QUEUE_TYPE", 0x00E00000),
            ("ALLOC_FORMAT", 0x03000000),
            ("ENGINE_SEL", 0x1C000000),
            ("NUM_QUEUES", 0xE0000000),
        ],
    );
    check(
        "UNMAP_QUEUES dw1",
        UnmapQueuesDw1::FIELDS,
        &[
            ("ACTION", 0x00000003),
            ("EXTENDED_ENGINE_SEL", 0x0000000C),
            ("QUEUE_SEL", 0x00000030),
            ("ENGINE_SEL", 0x1C000000),
            ("NUM_QUEUES", 0xE0000000),
        ],
    );
    check(
        "WRITE_DATA dw1",
        WriteDataDw1::FIELDS,
        &[
            ("DST_SEL", 0x00000F00),
            ("ADDR_INCR", 0x00010000),
            ("WR_CONFIRM", 0x00100000),
            ("CACHE_POLICY", 0x06000000),
            ("ENGINE_SEL", 0xC0000000),
        ],
    );
    check(
        "INVALIDATE_TLBS dw1",
        InvalidateTlbsDw1::FIELDS,
        &[
            ("DST_SEL", 0x0000000F),
            ("ALL_HUB", 0x00000010),
            ("PASID", 0x001FFFE0),
            ("FLUSH_TYPE", 0xE0000000),
        ],
    );
    check(
        "INDIRECT_BUFFER dw3",
        IndirectBufferDw3::FIELDS,
        &[
            ("SIZE", 0x000FFFFF),
            ("CHAIN", 0x00100000),
            ("OFFLOAD_POLLING", 0x00200000),
            ("VALID", 0x00800000),
            ("VMID", 0x0F000000),
            ("CACHE_POLICY", 0x30000000),
            ("PRIV", 0x80000000),
        ],
    );
    check(
        "WAIT_REG_MEM dw1",
        WaitRegMemDw1::FIELDS,
        &[
            ("FUNCTION", 0x00000007),
            ("MEM_SPACE", 0x00000030),
            ("OPERATION", 0x000000C0),
            ("ENGINE", 0x00000100),
        ],
    );
    check(
        "RELEASE_MEM dw1",
        ReleaseMemDw1::FIELDS,
        &[
            ("EVENT_TYPE", 0x0000003F),
            ("EVENT_INDEX", 0x00000F00),
            ("TCL1_VOL_ACTION", 0x00001000),
            ("TC_VOL_ACTION", 0x00002000),
            ("TC_WB_ACTION", 0x00008000),
            ("TCL1_ACTION", 0x00010000),
            ("TC_ACTION", 0x00020000),
            ("TC_NC_ACTION", 0x00080000),
            ("TC_WC_ACTION", 0x00100000),
            ("TC_MD_ACTION", 0x00200000),
            ("CACHE_POLICY", 0x06000000),
            ("EXECUTE", 0x10000000),
        ],
    );
    check(
        "RELEASE_MEM dw2",
        ReleaseMemDw2::FIELDS,
        &[
            ("DST_SEL", 0x00030000),
            ("INT_SEL", 0x07000000),
            ("DATA_SEL", 0xE0000000),
        ],
    );
}
