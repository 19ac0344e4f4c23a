// SPDX-License-Identifier: GPL-2.0

//! Where the dwords of an MQD are (`v9_structs.h`).

use super::super::num;
use super::super::regs::hqd;

/// Dwords of a compute MQD.
pub(crate) const COMPUTE_DWORDS: usize = 512;
/// Dwords of a compute MQD followed by the four words that kernel rings append
/// (`v9_mqd_allocation`).
pub(crate) const KERNEL_RING_DWORDS: usize = COMPUTE_DWORDS + 4;
/// Dwords of an SDMA MQD.
pub(crate) const SDMA_DWORDS: usize = 128;
/// Bytes of a compute MQD.
pub(crate) const COMPUTE_BYTES: usize = COMPUTE_DWORDS * 4;
/// Bytes of an SDMA MQD.
pub(crate) const SDMA_BYTES: usize = SDMA_DWORDS * 4;

/// A named dword of an MQD, for dumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// Name as in `v9_structs.h`.
    pub(crate) name: &'static str,
    /// Index of the dword.
    pub(crate) dw: usize,
}

/// Declares indices and the table of their names.
macro_rules! layout {
    ($($name:ident = $dw:literal;)*) => {
        $(
            #[doc = concat!("Dword ", stringify!($dw), ".")]
            pub(crate) const $name: usize = $dw;
        )*

        /// Names of the dwords, in ascending order.
        pub(crate) const FIELDS: &[Named] = &[
            $(Named { name: stringify!($name), dw: $name },)*
        ];
    };
}

/// Compute MQD.
pub(crate) mod compute {
    use super::Named;

    layout! {
        HEADER = 0;
        COMPUTE_DISPATCH_INITIATOR = 1;
        COMPUTE_DIM_X = 2;
        COMPUTE_DIM_Y = 3;
        COMPUTE_DIM_Z = 4;
        COMPUTE_START_X = 5;
        COMPUTE_START_Y = 6;
        COMPUTE_START_Z = 7;
        COMPUTE_NUM_THREAD_X = 8;
        COMPUTE_NUM_THREAD_Y = 9;
        COMPUTE_NUM_THREAD_Z = 10;
        COMPUTE_PIPELINESTAT_ENABLE = 11;
        COMPUTE_PERFCOUNT_ENABLE = 12;
        COMPUTE_PGM_LO = 13;
        COMPUTE_PGM_HI = 14;
        COMPUTE_PGM_RSRC1 = 19;
        COMPUTE_PGM_RSRC2 = 20;
        COMPUTE_VMID = 21;
        COMPUTE_RESOURCE_LIMITS = 22;
        COMPUTE_STATIC_THREAD_MGMT_SE0 = 23;
        COMPUTE_STATIC_THREAD_MGMT_SE1 = 24;
        COMPUTE_TMPRING_SIZE = 25;
        COMPUTE_STATIC_THREAD_MGMT_SE2 = 26;
        COMPUTE_STATIC_THREAD_MGMT_SE3 = 27;
        COMPUTE_RESTART_X = 28;
        COMPUTE_RESTART_Y = 29;
        COMPUTE_RESTART_Z = 30;
        COMPUTE_THREAD_TRACE_ENABLE = 31;
        COMPUTE_MISC_RESERVED = 32;
        COMPUTE_DISPATCH_ID = 33;
        COMPUTE_THREADGROUP_ID = 34;
        COMPUTE_RELAUNCH = 35;
        COMPUTE_WAVE_RESTORE_ADDR_LO = 36;
        COMPUTE_WAVE_RESTORE_ADDR_HI = 37;
        COMPUTE_WAVE_RESTORE_CONTROL = 38;
        COMPUTE_STATIC_THREAD_MGMT_SE4 = 39;
        COMPUTE_STATIC_THREAD_MGMT_SE5 = 40;
        COMPUTE_STATIC_THREAD_MGMT_SE6 = 41;
        COMPUTE_STATIC_THREAD_MGMT_SE7 = 42;
        COMPUTE_USER_DATA_0 = 65;
        CP_MQD_CONNECT_END_WF_COUNT = 92;
        CP_MQD_CONNECT_END_PQ_RPTR = 93;
        CP_MQD_CONNECT_END_PQ_WPTR = 94;
        CP_MQD_CONNECT_END_IB_RPTR = 95;
        CP_MQD_READINDEX_LO = 96;
        CP_MQD_READINDEX_HI = 97;
        CP_MQD_SAVE_START_TIME_LO = 98;
        CP_MQD_SAVE_START_TIME_HI = 99;
        CP_MQD_SAVE_END_TIME_LO = 100;
        CP_MQD_SAVE_END_TIME_HI = 101;
        CP_MQD_RESTORE_START_TIME_LO = 102;
        CP_MQD_RESTORE_START_TIME_HI = 103;
        CP_MQD_RESTORE_END_TIME_LO = 104;
        CP_MQD_RESTORE_END_TIME_HI = 105;
        DISABLE_QUEUE = 106;
        CP_PQ_EXE_STATUS_LO = 114;
        CP_PQ_EXE_STATUS_HI = 115;
        CP_PACKET_ID_LO = 116;
        CP_PACKET_ID_HI = 117;
        CP_PACKET_EXE_STATUS_LO = 118;
        CP_PACKET_EXE_STATUS_HI = 119;
        CTX_SAVE_BASE_ADDR_LO = 124;
        CTX_SAVE_BASE_ADDR_HI = 125;
        DYNAMIC_CU_MASK_ADDR_LO = 126;
        DYNAMIC_CU_MASK_ADDR_HI = 127;
        CP_MQD_BASE_ADDR_LO = 128;
        CP_MQD_BASE_ADDR_HI = 129;
        CP_HQD_ACTIVE = 130;
        CP_HQD_VMID = 131;
        CP_HQD_PERSISTENT_STATE = 132;
        CP_HQD_PIPE_PRIORITY = 133;
        CP_HQD_QUEUE_PRIORITY = 134;
        CP_HQD_QUANTUM = 135;
        CP_HQD_PQ_BASE_LO = 136;
        CP_HQD_PQ_BASE_HI = 137;
        CP_HQD_PQ_RPTR = 138;
        CP_HQD_PQ_RPTR_REPORT_ADDR_LO = 139;
        CP_HQD_PQ_RPTR_REPORT_ADDR_HI = 140;
        CP_HQD_PQ_WPTR_POLL_ADDR_LO = 141;
        CP_HQD_PQ_WPTR_POLL_ADDR_HI = 142;
        CP_HQD_PQ_DOORBELL_CONTROL = 143;
        CP_HQD_PQ_CONTROL = 145;
        CP_HQD_IB_BASE_ADDR_LO = 146;
        CP_HQD_IB_BASE_ADDR_HI = 147;
        CP_HQD_IB_RPTR = 148;
        CP_HQD_IB_CONTROL = 149;
        CP_HQD_IQ_TIMER = 150;
        CP_HQD_IQ_RPTR = 151;
        CP_HQD_DEQUEUE_REQUEST = 152;
        CP_HQD_DMA_OFFLOAD = 153;
        CP_HQD_SEMA_CMD = 154;
        CP_HQD_MSG_TYPE = 155;
        CP_HQD_HQ_STATUS0 = 160;
        CP_HQD_HQ_CONTROL0 = 161;
        CP_MQD_CONTROL = 162;
        CP_HQD_HQ_STATUS1 = 163;
        CP_HQD_HQ_CONTROL1 = 164;
        CP_HQD_EOP_BASE_ADDR_LO = 165;
        CP_HQD_EOP_BASE_ADDR_HI = 166;
        CP_HQD_EOP_CONTROL = 167;
        CP_HQD_EOP_RPTR = 168;
        CP_HQD_EOP_WPTR = 169;
        CP_HQD_EOP_DONE_EVENTS = 170;
        CP_HQD_CTX_SAVE_BASE_ADDR_LO = 171;
        CP_HQD_CTX_SAVE_BASE_ADDR_HI = 172;
        CP_HQD_CTX_SAVE_CONTROL = 173;
        CP_HQD_CNTL_STACK_OFFSET = 174;
        CP_HQD_CNTL_STACK_SIZE = 175;
        CP_HQD_WG_STATE_OFFSET = 176;
        CP_HQD_CTX_SAVE_SIZE = 177;
        CP_HQD_GDS_RESOURCE_STATE = 178;
        CP_HQD_ERROR = 179;
        CP_HQD_EOP_WPTR_MEM = 180;
        CP_HQD_AQL_CONTROL = 181;
        CP_HQD_PQ_WPTR_LO = 182;
        CP_HQD_PQ_WPTR_HI = 183;
        SET_RESOURCES_HEADER = 228;
        QUEUE_DOORBELL_ID0 = 240;
    }

    /// CU mask dwords of shader engines 0 to 7; the numbering has a hole.
    pub(crate) const STATIC_THREAD_MGMT: [usize; 8] = [
        COMPUTE_STATIC_THREAD_MGMT_SE0,
        COMPUTE_STATIC_THREAD_MGMT_SE1,
        COMPUTE_STATIC_THREAD_MGMT_SE2,
        COMPUTE_STATIC_THREAD_MGMT_SE3,
        COMPUTE_STATIC_THREAD_MGMT_SE4,
        COMPUTE_STATIC_THREAD_MGMT_SE5,
        COMPUTE_STATIC_THREAD_MGMT_SE6,
        COMPUTE_STATIC_THREAD_MGMT_SE7,
    ];
}

/// SDMA MQD.
pub(crate) mod sdma {
    use super::Named;

    layout! {
        RB_CNTL = 0;
        RB_BASE = 1;
        RB_BASE_HI = 2;
        RB_RPTR = 3;
        RB_RPTR_HI = 4;
        RB_WPTR = 5;
        RB_WPTR_HI = 6;
        RB_WPTR_POLL_CNTL = 7;
        RB_RPTR_ADDR_HI = 8;
        RB_RPTR_ADDR_LO = 9;
        IB_CNTL = 10;
        IB_RPTR = 11;
        IB_OFFSET = 12;
        IB_BASE_LO = 13;
        IB_BASE_HI = 14;
        IB_SIZE = 15;
        SKIP_CNTL = 16;
        CONTEXT_STATUS = 17;
        DOORBELL = 18;
        STATUS = 19;
        DOORBELL_LOG = 20;
        WATERMARK = 21;
        DOORBELL_OFFSET = 22;
        CSA_ADDR_LO = 23;
        CSA_ADDR_HI = 24;
        IB_SUB_REMAIN = 25;
        PREEMPT = 26;
        DUMMY_REG = 27;
        RB_WPTR_POLL_ADDR_HI = 28;
        RB_WPTR_POLL_ADDR_LO = 29;
        RB_AQL_CNTL = 30;
        MINOR_PTR_UPDATE = 31;
        MIDCMD_DATA0 = 32;
        MIDCMD_CNTL = 41;
        UTILIZATION_LO = 44;
        UTILIZATION_HI = 45;
        SDMA_ENGINE_ID = 126;
        SDMA_QUEUE_ID = 127;
    }
}

/// Whether the table is strictly ascending and ends inside `dwords`.
const fn is_ordered(fields: &[Named], dwords: usize) -> bool {
    let mut i = 1;
    while i < fields.len() {
        if fields[i - 1].dw >= fields[i].dw {
            return false;
        }
        i += 1;
    }
    !fields.is_empty() && fields[fields.len() - 1].dw < dwords
}

/// Whether dwords 128 to 183 mirror the register window in order.
const fn mirrors_window() -> bool {
    let window = hqd::WINDOW;
    let mut i = 0;
    while i < window.len() {
        let reg = window[i].reg.dword() - hqd::CP_MQD_BASE_ADDR.dword();
        if num::index(reg) + compute::CP_MQD_BASE_ADDR_LO != window[i].mqd_dw {
            return false;
        }
        i += 1;
    }
    window.len() == 55
}

const _: () = assert!(COMPUTE_BYTES == 2048);
const _: () = assert!(SDMA_BYTES == 512);
const _: () = assert!(is_ordered(compute::FIELDS, COMPUTE_DWORDS));
const _: () = assert!(is_ordered(sdma::FIELDS, SDMA_DWORDS));
const _: () = assert!(mirrors_window());
