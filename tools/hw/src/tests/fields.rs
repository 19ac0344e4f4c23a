// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Bits of every register field, as masks of the register headers.
//!
//! The driver declares bit ranges; the headers state masks. A field that moves by one bit, or is
//! dropped from its register, fails here.

use crate::hw::bits::Field;
use crate::hw::regs::{athub, hdp, hub, nbio, osssys, sdma};

/// Compares all fields of a word, in order.
pub(super) fn check<T>(register: &str, fields: &[Field<T>], masks: &[(&str, u32)]) {
    let declared: Vec<_> = fields
        .iter()
        .map(|field| (field.name(), field.mask()))
        .collect();
    assert_eq!(declared, masks, "{register}");
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
