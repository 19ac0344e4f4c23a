// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Fields of the graphics block and of queue descriptors' registers.

use super::fields::check;
use crate::hw::regs::{gc, hqd};

#[test]
fn graphics_block() {
    check(
        "GRBM_GFX_CNTL",
        gc::GrbmGfxCntl::FIELDS,
        &[
            ("PIPEID", 0x00000003),
            ("MEID", 0x0000000C),
            ("VMID", 0x000000F0),
            ("QUEUEID", 0x00000700),
        ],
    );
    check(
        "GRBM_GFX_INDEX",
        gc::GrbmGfxIndex::FIELDS,
        &[
            ("INSTANCE", 0x000000FF),
            ("SH", 0x0000FF00),
            ("SE", 0x00FF0000),
            ("SH_BROADCAST", 0x20000000),
            ("INSTANCE_BROADCAST", 0x40000000),
            ("SE_BROADCAST", 0x80000000),
        ],
    );
    check(
        "GRBM_SOFT_RESET",
        gc::GrbmSoftReset::FIELDS,
        &[
            ("CP", 0x00000001),
            ("RLC", 0x00000004),
            ("GFX", 0x00010000),
            ("CPF", 0x00020000),
            ("CPC", 0x00040000),
            ("CPG", 0x00080000),
        ],
    );
    check(
        "CP_MEC_CNTL",
        gc::CpMecCntl::FIELDS,
        &[
            ("INVALIDATE_ICACHE", 0x00000010),
            ("ME1_PIPE_RESET", 0x000F0000),
            ("ME2_PIPE_RESET", 0x00300000),
            ("ME2_HALT", 0x10000000),
            ("ME2_STEP", 0x20000000),
            ("ME1_HALT", 0x40000000),
            ("ME1_STEP", 0x80000000),
        ],
    );
    check(
        "CP_PQ_WPTR_POLL_CNTL",
        gc::PqWptrPollCntl::FIELDS,
        &[
            ("PERIOD", 0x000000FF),
            ("DISABLE_PEND_REQ_ONE_SHOT", 0x20000000),
            ("POLL_ACTIVE", 0x40000000),
            ("EN", 0x80000000),
        ],
    );
    check(
        "CP_IQ_WAIT_TIME1",
        gc::IqWaitTime1::FIELDS,
        &[
            ("IB_OFFLOAD", 0x000000FF),
            ("ATOMIC_OFFLOAD", 0x0000FF00),
            ("WRM_OFFLOAD", 0x00FF0000),
            ("GWS", 0xFF000000),
        ],
    );
    check(
        "CP_IQ_WAIT_TIME2",
        gc::IqWaitTime2::FIELDS,
        &[
            ("QUE_SLEEP", 0x000000FF),
            ("SCH_WAVE", 0x0000FF00),
            ("SEM_REARM", 0x00FF0000),
            ("DEQ_RETRY", 0xFF000000),
        ],
    );
    check(
        "CPC_INT_CNTL",
        gc::CpcInt::FIELDS,
        &[
            ("CMP_QUERY_STATUS", 0x00001000),
            ("DEQUEUE_REQUEST", 0x00002000),
            ("CP_ECC_ERROR", 0x00004000),
            ("SUA_VIOLATION", 0x00008000),
            ("GPF", 0x00010000),
            ("WRM_POLL_TIMEOUT", 0x00020000),
            ("PRIV_REG", 0x00800000),
            ("OPCODE_ERROR", 0x01000000),
            ("TIME_STAMP", 0x04000000),
            ("RESERVED_BIT_ERROR", 0x08000000),
            ("GENERIC2", 0x20000000),
            ("GENERIC1", 0x40000000),
            ("GENERIC0", 0x80000000),
        ],
    );
    check(
        "CP_PQ_STATUS",
        gc::PqStatus::FIELDS,
        &[
            ("DOORBELL_UPDATED", 0x00000001),
            ("DOORBELL_ENABLE", 0x00000002),
        ],
    );
    check(
        "RLC_CP_SCHEDULERS",
        gc::RlcCpSchedulers::FIELDS,
        &[
            ("SCHEDULER0", 0x000000FF),
            ("SCHEDULER1", 0x0000FF00),
            ("SCHEDULER2", 0x00FF0000),
            ("SCHEDULER3", 0xFF000000),
        ],
    );
    check(
        "SH_MEM_CONFIG",
        gc::ShMemConfig::FIELDS,
        &[
            ("ADDRESS_MODE", 0x00000001),
            ("ALIGNMENT_MODE", 0x00000018),
            ("F8_MODE", 0x00000100),
            ("PRECISION_MODE", 0x00000200),
            ("RETRY_DISABLE", 0x00001000),
            ("PRIVATE_NV", 0x00002000),
        ],
    );
    check(
        "SH_MEM_BASES",
        gc::ShMemBases::FIELDS,
        &[("PRIVATE_BASE", 0x0000FFFF), ("SHARED_BASE", 0xFFFF0000)],
    );
    check(
        "SQ_CMD",
        gc::SqCmd::FIELDS,
        &[
            ("CMD", 0x00000007),
            ("MODE", 0x00000070),
            ("CHECK_VMID", 0x00000080),
            ("DATA", 0x00000F00),
            ("WAVE_ID", 0x000F0000),
            ("SIMD_ID", 0x00300000),
            ("QUEUE_ID", 0x07000000),
            ("VM_ID", 0xF0000000),
        ],
    );
    check(
        "CP_HPD_STATUS0",
        gc::HpdStatus0::FIELDS,
        &[
            ("QUEUE_STATE", 0x0000001F),
            ("MAPPED_QUEUE", 0x000000E0),
            ("QUEUE_AVAILABLE", 0x0000FF00),
            ("FETCHING_MQD", 0x00010000),
        ],
    );
    check(
        "SPI_GDBG_PER_VMID_CNTL",
        gc::SpiGdbgPerVmid::FIELDS,
        &[
            ("STALL_VMID", 0x00000001),
            ("LAUNCH_MODE", 0x00000006),
            ("TRAP_EN", 0x00000008),
            ("EXCP_EN", 0x00001FF0),
            ("EXCP_REPLACE", 0x00002000),
            ("TRAP_ON_START", 0x00004000),
            ("TRAP_ON_END", 0x00008000),
        ],
    );
    check(
        "RLC_SAFE_MODE",
        gc::RlcSafeMode::FIELDS,
        &[
            ("CMD", 0x00000001),
            ("MESSAGE", 0x0000001E),
            ("RESPONSE", 0x00000F00),
        ],
    );
    check(
        "TCP_WATCH0_CNTL",
        gc::TcpWatchCntl::FIELDS,
        &[
            ("MASK", 0x00FFFFFF),
            ("VMID", 0x0F000000),
            ("ATC", 0x10000000),
            ("MODE", 0x60000000),
            ("VALID", 0x80000000),
        ],
    );
    check(
        "COMPUTE_PGM_RSRC2",
        gc::ComputePgmRsrc2::FIELDS,
        &[
            ("SCRATCH_EN", 0x00000001),
            ("USER_SGPR", 0x0000003E),
            ("TRAP_PRESENT", 0x00000040),
        ],
    );
    check(
        "COMPUTE_RESOURCE_LIMITS",
        gc::ComputeResourceLimits::FIELDS,
        &[("FORCE_SIMD_DIST", 0x00800000)],
    );
}

#[test]
fn queue_descriptor() {
    check(
        "CP_HQD_ACTIVE",
        hqd::HqdActive::FIELDS,
        &[("ACTIVE", 0x00000001), ("BUSY_GATE", 0x00000002)],
    );
    check(
        "CP_HQD_VMID",
        hqd::HqdVmid::FIELDS,
        &[
            ("VMID", 0x0000000F),
            ("IB_VMID", 0x00000F00),
            ("VQID", 0x03FF0000),
        ],
    );
    check(
        "CP_HQD_PERSISTENT_STATE",
        hqd::PersistentState::FIELDS,
        &[
            ("PRELOAD_REQ", 0x00000001),
            ("PRELOAD_SIZE", 0x0003FF00),
            ("RESTORE_ACTIVE", 0x10000000),
            ("RELAUNCH_WAVES", 0x20000000),
            ("QSWITCH_MODE", 0x40000000),
            ("DISP_ACTIVE", 0x80000000),
        ],
    );
    check(
        "CP_HQD_QUANTUM",
        hqd::HqdQuantum::FIELDS,
        &[
            ("EN", 0x00000001),
            ("SCALE", 0x00000010),
            ("DURATION", 0x00003F00),
            ("ACTIVE", 0x80000000),
        ],
    );
    check(
        "CP_HQD_PQ_DOORBELL_CONTROL",
        hqd::DoorbellControl::FIELDS,
        &[
            ("MODE", 0x00000001),
            ("BIF_DROP", 0x00000002),
            ("OFFSET", 0x0FFFFFFC),
            ("SOURCE", 0x10000000),
            ("SCHD_HIT", 0x20000000),
            ("EN", 0x40000000),
            ("HIT", 0x80000000),
        ],
    );
    check(
        "CP_HQD_PQ_CONTROL",
        hqd::PqControl::FIELDS,
        &[
            ("QUEUE_SIZE", 0x0000003F),
            ("WPTR_CARRY", 0x00000040),
            ("RPTR_CARRY", 0x00000080),
            ("RPTR_BLOCK_SIZE", 0x00003F00),
            ("QUEUE_FULL_EN", 0x00004000),
            ("PQ_EMPTY", 0x00008000),
            ("WPP_CLAMP_EN", 0x00010000),
            ("ENDIAN_SWAP", 0x00060000),
            ("MIN_AVAIL_SIZE", 0x00300000),
            ("TMZ", 0x00400000),
            ("EXE_DISABLE", 0x00800000),
            ("CACHE_POLICY", 0x01000000),
            ("SLOT_BASED_WPTR", 0x06000000),
            ("NO_UPDATE_RPTR", 0x08000000),
            ("UNORD_DISPATCH", 0x10000000),
            ("ROQ_PQ_IB_FLIP", 0x20000000),
            ("PRIV_STATE", 0x40000000),
            ("KMD_QUEUE", 0x80000000),
        ],
    );
    check(
        "CP_HQD_IB_CONTROL",
        hqd::IbControl::FIELDS,
        &[
            ("IB_SIZE", 0x000FFFFF),
            ("MIN_IB_AVAIL_SIZE", 0x00300000),
            ("IB_EXE_DISABLE", 0x00800000),
            ("IB_CACHE_POLICY", 0x01000000),
            ("PROCESSING_IB", 0x80000000),
        ],
    );
    check(
        "CP_HQD_DEQUEUE_REQUEST",
        hqd::DequeueRequest::FIELDS,
        &[
            ("DEQUEUE_REQ", 0x00000007),
            ("IQ_REQ_PEND", 0x00000010),
            ("DEQUEUE_INT", 0x00000100),
        ],
    );
    check(
        "CP_HQD_EOP_RPTR",
        hqd::EopRptr::FIELDS,
        &[
            ("RPTR", 0x00001FFF),
            ("RESET_FETCHER", 0x10000000),
            ("DEQUEUE_PEND", 0x20000000),
            ("RPTR_EQ_CSMD_WPTR", 0x40000000),
            ("INIT_FETCHER", 0x80000000),
        ],
    );
    check(
        "CP_HQD_EOP_CONTROL",
        hqd::EopControl::FIELDS,
        &[
            ("EOP_SIZE", 0x0000003F),
            ("PROCESSING_EOP", 0x00000100),
            ("HALT_FETCHER", 0x00200000),
        ],
    );
    check(
        "CP_HQD_AQL_CONTROL",
        hqd::AqlControl::FIELDS,
        &[
            ("CONTROL0", 0x00007FFF),
            ("CONTROL0_EN", 0x00008000),
            ("CONTROL1", 0x7FFF0000),
            ("CONTROL1_EN", 0x80000000),
        ],
    );
    check(
        "CP_HQD_ERROR",
        hqd::HqdError::FIELDS,
        &[
            ("EDC_ERROR_ID", 0x0000000F),
            ("SUA_ERROR", 0x00000010),
            ("AQL_ERROR", 0x00000020),
            ("PQ_UTCL1_ERROR", 0x00000100),
            ("IB_UTCL1_ERROR", 0x00000200),
            ("EOP_UTCL1_ERROR", 0x00000400),
            ("IQ_UTCL1_ERROR", 0x00000800),
            ("RRPT_UTCL1_ERROR", 0x00001000),
            ("WPP_UTCL1_ERROR", 0x00002000),
            ("SEM_UTCL1_ERROR", 0x00004000),
            ("DMA_SRC_UTCL1_ERROR", 0x00008000),
            ("DMA_DST_UTCL1_ERROR", 0x00010000),
            ("SR_UTCL1_ERROR", 0x00020000),
            ("QU_UTCL1_ERROR", 0x00040000),
            ("TC_UTCL1_ERROR", 0x00080000),
        ],
    );
    check(
        "CP_MQD_CONTROL",
        hqd::MqdControl::FIELDS,
        &[
            ("VMID", 0x0000000F),
            ("PRIV_STATE", 0x00000100),
            ("PROCESSING_MQD", 0x00001000),
            ("EXE_DISABLE", 0x00800000),
        ],
    );
}
