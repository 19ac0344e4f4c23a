// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Bits of every register field, as masks of the register headers.
//!
//! The driver declares bit ranges; the headers state masks. A field that moves by one bit, or is
//! dropped from its register, fails here.

use crate::hw::bits::Field;
use crate::hw::pm4::memory::{
    IndirectBufferDw3, InvalidateTlbsDw1, ReleaseMemDw1, ReleaseMemDw2, WaitRegMemDw1, WriteDataDw1,
};
use crate::hw::pm4::process::{MapProcessDw1, MapProcessDw13};
use crate::hw::pm4::queues::{MapQueuesDw1, UnmapQueuesDw1};
use crate::hw::pm4::schedule::{QueryStatusDw1, RunListDw3, SetResourcesDw1};
use crate::hw::regs::{athub, gc, hdp, hqd, hub, nbio, osssys, sdma};

/// Compares all fields of a word, in order.
fn check<T>(register: &str, fields: &[Field<T>], masks: &[(&str, u32)]) {
    let declared: Vec<_> = fields
        .iter()
        .map(|field| (field.name(), field.mask()))
        .collect();
    assert_eq!(declared, masks, "{register}");
}

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

#[test]
fn translation_hub() {
    check(
        "VM_CONTEXT1_CNTL",
        hub::ContextCntl::FIELDS,
        &[
            ("ENABLE", 0x00000001),
            ("PAGE_TABLE_DEPTH", 0x00000006),
            ("BLOCK_SIZE", 0x00000078),
            ("RETRY", 0x00000080),
            ("RETRY_OTHER", 0x00000100),
            ("RANGE_INT", 0x00000200),
            ("RANGE_DEFAULT", 0x00000400),
            ("DUMMY_INT", 0x00000800),
            ("DUMMY_DEFAULT", 0x00001000),
            ("PDE0_INT", 0x00002000),
            ("PDE0_DEFAULT", 0x00004000),
            ("VALID_INT", 0x00008000),
            ("VALID_DEFAULT", 0x00010000),
            ("READ_INT", 0x00020000),
            ("READ_DEFAULT", 0x00040000),
            ("WRITE_INT", 0x00080000),
            ("WRITE_DEFAULT", 0x00100000),
            ("EXECUTE_INT", 0x00200000),
            ("EXECUTE_DEFAULT", 0x00400000),
        ],
    );
    check(
        "VM_INVALIDATE_ENG0_REQ",
        hub::InvalidateReq::FIELDS,
        &[
            ("PER_VMID", 0x0000FFFF),
            ("FLUSH_TYPE", 0x00030000),
            ("L2_PTES", 0x00040000),
            ("L2_PDE0", 0x00080000),
            ("L2_PDE1", 0x00100000),
            ("L2_PDE2", 0x00200000),
            ("L1_PTES", 0x00400000),
            ("CLEAR_FAULT_STATUS", 0x00800000),
        ],
    );
    check(
        "VM_INVALIDATE_ENG0_ACK",
        hub::InvalidateAck::FIELDS,
        &[("PER_VMID", 0x0000FFFF), ("SEMAPHORE", 0x00010000)],
    );
    check(
        "VM_L2_CNTL",
        hub::L2Cntl::FIELDS,
        &[
            ("ENABLE_L2_CACHE", 0x00000001),
            ("ENABLE_L2_FRAGMENT_PROCESSING", 0x00000002),
            ("L2_PDE0_CACHE_TAG_GENERATION_MODE", 0x00000100),
            ("ENABLE_DEFAULT_PAGE_OUT_TO_SYSTEM_MEMORY", 0x00000800),
            ("PDE_FAULT_CLASSIFICATION", 0x00040000),
            ("CONTEXT1_IDENTITY_ACCESS_MODE", 0x00180000),
            ("IDENTITY_MODE_FRAGMENT_SIZE", 0x03E00000),
        ],
    );
    check(
        "VM_L2_CNTL2",
        hub::L2Cntl2::FIELDS,
        &[
            ("INVALIDATE_ALL_L1_TLBS", 0x00000001),
            ("INVALIDATE_L2_CACHE", 0x00000002),
        ],
    );
    check(
        "VM_L2_CNTL3",
        hub::L2Cntl3::FIELDS,
        &[
            ("BANK_SELECT", 0x0000003F),
            ("L2_CACHE_UPDATE_MODE", 0x000000C0),
            ("L2_CACHE_BIGK_FRAGMENT_SIZE", 0x000F8000),
            ("L2_CACHE_BIGK_ASSOCIATIVITY", 0x00100000),
            ("L2_CACHE_4K_ASSOCIATIVITY", 0x80000000),
        ],
    );
    check(
        "VM_L2_CNTL4",
        hub::L2Cntl4::FIELDS,
        &[
            ("L2_CACHE_4K_PARTITION_COUNT", 0x0000003F),
            ("VMC_TAP_PDE_REQUEST_PHYSICAL", 0x00000040),
            ("VMC_TAP_PTE_REQUEST_PHYSICAL", 0x00000080),
        ],
    );
    check(
        "VM_L2_PROTECTION_FAULT_CNTL",
        hub::FaultCntl::FIELDS,
        &[
            ("CLEAR_STATUS", 0x00000001),
            ("ALLOW_SUBSEQUENT", 0x00000002),
            ("RANGE_DEFAULT", 0x00000004),
            ("PDE0_DEFAULT", 0x00000008),
            ("PDE1_DEFAULT", 0x00000010),
            ("PDE2_DEFAULT", 0x00000020),
            ("TRANSLATE_FURTHER_DEFAULT", 0x00000040),
            ("NACK_DEFAULT", 0x00000080),
            ("DUMMY_DEFAULT", 0x00000100),
            ("VALID_DEFAULT", 0x00000200),
            ("READ_DEFAULT", 0x00000400),
            ("WRITE_DEFAULT", 0x00000800),
            ("EXECUTE_DEFAULT", 0x00001000),
            ("CLIENT_ID_NO_RETRY_INT", 0x1FFFE000),
            ("OTHER_NO_RETRY_INT", 0x20000000),
            ("CRASH_ON_NO_RETRY", 0x40000000),
            ("CRASH_ON_RETRY", 0x80000000),
        ],
    );
    check(
        "VM_L2_PROTECTION_FAULT_CNTL2",
        hub::FaultCntl2::FIELDS,
        &[
            ("ACTIVE_PAGE_MIGRATION_PTE", 0x00020000),
            ("ACTIVE_PAGE_MIGRATION_PTE_READ_RETRY", 0x00040000),
            ("ENABLE_RETRY_FAULT_INTERRUPT", 0x00080000),
        ],
    );
    check(
        "VM_L2_PROTECTION_FAULT_STATUS",
        hub::FaultStatus::FIELDS,
        &[
            ("MORE_FAULTS", 0x00000001),
            ("WALKER_ERROR", 0x0000000E),
            ("PERMISSION_FAULTS", 0x000000F0),
            ("MAPPING_ERROR", 0x00000100),
            ("CID", 0x0003FE00),
            ("RW", 0x00040000),
            ("ATOMIC", 0x00080000),
            ("VMID", 0x00F00000),
            ("VF", 0x01000000),
            ("VFID", 0x1E000000),
            ("UCE", 0x20000000),
            ("FED", 0x40000000),
        ],
    );
    check(
        "MC_VM_MX_L1_TLB_CNTL",
        hub::L1TlbCntl::FIELDS,
        &[
            ("ENABLE_L1_TLB", 0x00000001),
            ("SYSTEM_ACCESS_MODE", 0x00000018),
            ("SYSTEM_APERTURE_UNMAPPED_ACCESS", 0x00000020),
            ("ENABLE_ADVANCED_DRIVER_MODEL", 0x00000040),
            ("MTYPE", 0x00001800),
            ("ATC_EN", 0x00002000),
        ],
    );
}

#[test]
fn interrupt_handler() {
    check(
        "IH_RB_CNTL",
        osssys::RbCntl::FIELDS,
        &[
            ("RB_ENABLE", 0x00000001),
            ("RB_SIZE", 0x0000003E),
            ("RB_GPU_TS_ENABLE", 0x00000080),
            ("WPTR_WRITEBACK_ENABLE", 0x00000100),
            ("RB_FULL_DRAIN_ENABLE", 0x00000200),
            ("FULL_DRAIN_CLEAR", 0x00000400),
            ("WPTR_OVERFLOW_ENABLE", 0x00010000),
            ("ENABLE_INTR", 0x00020000),
            ("MC_SWAP", 0x000C0000),
            ("MC_SNOOP", 0x00100000),
            ("RPTR_REARM", 0x00200000),
            ("MC_RO", 0x00400000),
            ("MC_VMID", 0x0F000000),
            ("MC_SPACE", 0x70000000),
            ("WPTR_OVERFLOW_CLEAR", 0x80000000),
        ],
    );
    check(
        "IH_RB_WPTR",
        osssys::RbWptr::FIELDS,
        &[
            ("OVERFLOW", 0x00000001),
            ("OFFSET", 0x0003FFFC),
            ("LEFT_NONE", 0x00040000),
            ("MAY_OVERFLOW", 0x00080000),
        ],
    );
    check(
        "IH_DOORBELL_RPTR",
        osssys::IhDoorbell::FIELDS,
        &[("OFFSET", 0x03FFFFFF), ("ENABLE", 0x10000000)],
    );
    check(
        "IH_RETRY_INT_CAM_CNTL",
        osssys::RetryIntCamCntl::FIELDS,
        &[
            ("CAM_SIZE", 0x0000001F),
            ("ENABLE", 0x00010000),
            ("BACK_PRESSURE_ENABLE", 0x00020000),
        ],
    );
    check(
        "IH_CHICKEN",
        osssys::Chicken::FIELDS,
        &[
            ("MC_SPACE_FBPA_ENABLE", 0x00000008),
            ("MC_SPACE_GPA_ENABLE", 0x00000010),
        ],
    );
}

#[test]
fn sdma_engine() {
    check(
        "SDMA0_CNTL",
        sdma::Cntl::FIELDS,
        &[
            ("TRAP_ENABLE", 0x00000001),
            ("UTC_L1_ENABLE", 0x00000002),
            ("SEM_WAIT_INT_ENABLE", 0x00000004),
            ("MIDCMD_PREEMPT_ENABLE", 0x00000020),
            ("MIDCMD_WORLDSWITCH_ENABLE", 0x00020000),
            ("AUTO_CTXSW_ENABLE", 0x00040000),
            ("CTXEMPTY_INT_ENABLE", 0x10000000),
            ("FROZEN_INT_ENABLE", 0x20000000),
            ("IB_PREEMPT_INT_ENABLE", 0x40000000),
        ],
    );
    check(
        "SDMA0_F32_CNTL",
        sdma::F32Cntl::FIELDS,
        &[
            ("HALT", 0x00000001),
            ("STEP", 0x00000002),
            ("RESET", 0x00000100),
        ],
    );
    check(
        "SDMA0_RLC0_RB_CNTL",
        sdma::RbCntl::FIELDS,
        &[
            ("RB_ENABLE", 0x00000001),
            ("RB_SIZE", 0x0000003E),
            ("RB_SWAP_ENABLE", 0x00000200),
            ("RPTR_WRITEBACK_ENABLE", 0x00001000),
            ("RPTR_WRITEBACK_TIMER", 0x001F0000),
            ("RB_PRIV", 0x00800000),
            ("RB_VMID", 0x0F000000),
        ],
    );
    check(
        "SDMA0_GFX_IB_CNTL",
        sdma::IbCntl::FIELDS,
        &[
            ("IB_ENABLE", 0x00000001),
            ("IB_SWAP_ENABLE", 0x00000010),
            ("SWITCH_INSIDE_IB", 0x00000100),
            ("CMD_VMID", 0x000F0000),
        ],
    );
    check(
        "SDMA0_RLC0_DOORBELL",
        sdma::Doorbell::FIELDS,
        &[("ENABLE", 0x10000000), ("CAPTURED", 0x40000000)],
    );
    check(
        "SDMA0_RLC0_DOORBELL_OFFSET",
        sdma::DoorbellOffset::FIELDS,
        &[("OFFSET", 0x0FFFFFFC)],
    );
    check(
        "SDMA0_RLC0_CONTEXT_STATUS",
        sdma::ContextStatus::FIELDS,
        &[
            ("SELECTED", 0x00000001),
            ("IDLE", 0x00000004),
            ("EXPIRED", 0x00000008),
            ("EXCEPTION", 0x00000070),
            ("CTXSW_ABLE", 0x00000080),
            ("CTXSW_READY", 0x00000100),
            ("PREEMPTED", 0x00000200),
            ("PREEMPT_DISABLE", 0x00000400),
        ],
    );
    check(
        "SDMA0_FREEZE",
        sdma::Freeze::FIELDS,
        &[
            ("PREEMPT", 0x00000001),
            ("FREEZE", 0x00000010),
            ("FROZEN", 0x00000020),
            ("F32_FREEZE", 0x00000040),
        ],
    );
    check(
        "SDMA0_STATUS_REG",
        sdma::Status::FIELDS,
        &[
            ("IDLE", 0x00000001),
            ("REG_IDLE", 0x00000002),
            ("RB_EMPTY", 0x00000004),
            ("RB_FULL", 0x00000008),
            ("CONTEXT_EMPTY", 0x00008000),
            ("INT_IDLE", 0x40000000),
        ],
    );
}

#[test]
fn bus_interface() {
    check(
        "BIF_SDMA0_DOORBELL_RANGE",
        nbio::DoorbellRange::FIELDS,
        &[("OFFSET", 0x00000FFC), ("SIZE", 0x001F0000)],
    );
    check(
        "INTERRUPT_CNTL",
        nbio::InterruptCntl::FIELDS,
        &[
            ("IH_DUMMY_RD_OVERRIDE", 0x00000001),
            ("IH_REQ_NONSNOOP_EN", 0x00000008),
            ("GEN_IH_INT_EN", 0x00000100),
        ],
    );
    check(
        "DOORBELL_SELFRING_GPA_APER_CNTL",
        nbio::SelfringCntl::FIELDS,
        &[
            ("EN", 0x00000001),
            ("MODE", 0x00000002),
            ("SIZE", 0x000FFF00),
        ],
    );
    check(
        "BIF_FB_EN",
        nbio::FbEn::FIELDS,
        &[("READ", 0x00000001), ("WRITE", 0x00000002)],
    );
}

#[test]
fn pasid_mapping() {
    check(
        "ATC_VMID0_PASID_MAPPING",
        athub::PasidMapping::FIELDS,
        &[
            ("PASID", 0x0000FFFF),
            ("NO_INVALIDATION", 0x40000000),
            ("VALID", 0x80000000),
        ],
    );
}

#[test]
fn host_data_path() {
    check(
        "HDP_MISC_CNTL",
        hdp::MiscCntl::FIELDS,
        &[
            ("FLUSH_INVALIDATE_CACHE", 0x00000001),
            ("READ_BUFFER_WATERMARK", 0x0000C000),
        ],
    );
}

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
