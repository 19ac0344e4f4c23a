// SPDX-License-Identifier: GPL-2.0

//! The two translation hubs: GFXHUB for CP, SQ and TCP, MMHUB for SDMA, IH and HDP.
//!
//! Both have the same register file at different places. It consists of three groups whose inner
//! order never changes, so that a [`HubLayout`] is four numbers: the base and where the L2, the
//! memory-controller and the XGMI group begin. Source: `gc_9_0`, `gc_9_4_3`, `mmhub_1_0`,
//! `mmhub_1_7`, `mmhub_1_8_0` offset and `sh_mask` headers; `gfxhub_v1_0.c`, `mmhub_v1_7.c`.

use super::super::bits::fields;
use super::super::num;
use super::Reg;

pub(crate) mod clients;

/// Invalidation engines of a hub.
pub(crate) const INVALIDATE_ENGINES: u32 = 18;
/// The engine that the driver uses from the CPU; the others belong to rings and firmware.
pub(crate) const DRIVER_ENGINE: u32 = 17;

/// Where a hub's registers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HubLayout {
    /// Name for messages.
    pub(crate) name: &'static str,
    /// Dword base of the IP segment.
    pub(crate) base: u32,
    /// Offset of VM_L2_CNTL.
    pub(crate) l2: u32,
    /// Offset of MC_VM_FB_OFFSET.
    pub(crate) mc: u32,
    /// Offset of MC_VM_XGMI_LFB_CNTL; `None` where the hub has none.
    pub(crate) xgmi: Option<u32>,
    /// A flush from the CPU must first acquire the semaphore of its engine (MMHUB of gfx906).
    pub(crate) flush_needs_semaphore: bool,
    /// REQ must be read once after a flush request (GFXHUB of gfx906).
    pub(crate) flush_needs_readback: bool,
    /// The blocks behind the hub.
    pub(crate) clients: &'static [clients::Client],
}

impl HubLayout {
    /// Name of the block whose access FAULT_STATUS describes.
    pub(crate) fn client(&self, status: FaultStatus) -> Option<&'static str> {
        clients::name(
            self.clients,
            status.get(FaultStatus::CID),
            status.is_set(FaultStatus::RW),
        )
    }
}

/// Declares accessors of registers at fixed distances from one of the group anchors.
macro_rules! hub_regs {
    ($($(#[$meta:meta])* $name:ident = $anchor:ident + $offset:literal;)*) => {
        impl HubLayout {
            $(
                $(#[$meta])*
                pub(crate) const fn $name(&self) -> Reg {
                    Reg::new(self.base, self.$anchor + $offset)
                }
            )*
        }
    };
}

hub_regs! {
    /// VM_L2_CNTL, see [`L2Cntl`].
    l2_cntl = l2 + 0x00;
    /// VM_L2_CNTL2, see [`L2Cntl2`].
    l2_cntl2 = l2 + 0x01;
    /// VM_L2_CNTL3, see [`L2Cntl3`].
    l2_cntl3 = l2 + 0x02;
    /// VM_L2_PROTECTION_FAULT_CNTL, see [`FaultCntl`].
    fault_cntl = l2 + 0x07;
    /// VM_L2_PROTECTION_FAULT_CNTL2, see [`FaultCntl2`].
    fault_cntl2 = l2 + 0x08;
    /// VM_L2_PROTECTION_FAULT_STATUS, see [`FaultStatus`].
    fault_status = l2 + 0x0b;
    /// VM_L2_PROTECTION_FAULT_ADDR_LO32: page number of the fault; the high half follows.
    fault_addr = l2 + 0x0c;
    /// VM_L2_PROTECTION_FAULT_DEFAULT_ADDR_LO32: dummy page >> 12; the high half follows.
    fault_default_addr = l2 + 0x0e;
    /// VM_L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR_LO32; the high half follows.
    identity_low = l2 + 0x11;
    /// VM_L2_CONTEXT1_IDENTITY_APERTURE_HIGH_ADDR_LO32; the high half follows.
    identity_high = l2 + 0x13;
    /// VM_L2_CONTEXT_IDENTITY_PHYSICAL_OFFSET_LO32; the high half follows.
    identity_offset = l2 + 0x15;
    /// VM_L2_CNTL4, see [`L2Cntl4`].
    l2_cntl4 = l2 + 0x17;
    /// VM_CONTEXTS_DISABLE.
    contexts_disable = l2 + 0x50;
    /// MC_VM_FB_OFFSET: address >> 24.
    fb_offset = mc + 0x00;
    /// MC_VM_SYSTEM_APERTURE_DEFAULT_ADDR_LSB: scratch page >> 12; MSB (>> 44) follows.
    aperture_default_addr = mc + 0x01;
    /// MC_VM_FB_LOCATION_BASE: address >> 24.
    fb_location_base = mc + 0x15;
    /// MC_VM_FB_LOCATION_TOP: last address >> 24.
    fb_location_top = mc + 0x16;
    /// MC_VM_AGP_TOP: address >> 24.
    agp_top = mc + 0x17;
    /// MC_VM_AGP_BOT: address >> 24.
    agp_bot = mc + 0x18;
    /// MC_VM_AGP_BASE: address >> 24.
    agp_base = mc + 0x19;
    /// MC_VM_SYSTEM_APERTURE_LOW_ADDR: address >> 18.
    aperture_low = mc + 0x1a;
    /// MC_VM_SYSTEM_APERTURE_HIGH_ADDR: address >> 18.
    aperture_high = mc + 0x1b;
    /// MC_VM_MX_L1_TLB_CNTL, see [`L1TlbCntl`].
    l1_tlb_cntl = mc + 0x1c;
}

impl HubLayout {
    /// VM_CONTEXTn_CNTL, see [`ContextCntl`].
    pub(crate) const fn context_cntl(&self, vmid: u32) -> Reg {
        Reg::new(self.base, self.l2 + 0x40 + (vmid & 0xf))
    }

    /// VM_CONTEXTn_PAGE_TABLE_BASE_ADDR_LO32; the high half follows.
    pub(crate) const fn page_table_base(&self, vmid: u32) -> Reg {
        Reg::new(self.base, self.l2 + 0xab + 2 * (vmid & 0xf))
    }

    /// VM_CONTEXTn_PAGE_TABLE_START_ADDR_LO32: page number; the high half follows.
    pub(crate) const fn page_table_start(&self, vmid: u32) -> Reg {
        Reg::new(self.base, self.l2 + 0xcb + 2 * (vmid & 0xf))
    }

    /// VM_CONTEXTn_PAGE_TABLE_END_ADDR_LO32: last page number; the high half follows.
    pub(crate) const fn page_table_end(&self, vmid: u32) -> Reg {
        Reg::new(self.base, self.l2 + 0xeb + 2 * (vmid & 0xf))
    }

    /// VM_INVALIDATE_ENGn_SEM: a read of 1 acquires, a write of 0 releases.
    ///
    /// Engines from [`INVALIDATE_ENGINES`] on do not exist; the number is clamped to the last one.
    pub(crate) const fn invalidate_sem(&self, engine: u32) -> Reg {
        Reg::new(self.base, self.l2 + 0x51 + clamp_engine(engine))
    }

    /// VM_INVALIDATE_ENGn_REQ, see [`InvalidateReq`].
    pub(crate) const fn invalidate_req(&self, engine: u32) -> Reg {
        Reg::new(self.base, self.l2 + 0x63 + clamp_engine(engine))
    }

    /// VM_INVALIDATE_ENGn_ACK, see [`InvalidateAck`].
    pub(crate) const fn invalidate_ack(&self, engine: u32) -> Reg {
        Reg::new(self.base, self.l2 + 0x75 + clamp_engine(engine))
    }

    /// VM_INVALIDATE_ENGn_ADDR_RANGE_LO32; the high half follows.
    pub(crate) const fn invalidate_range(&self, engine: u32) -> Reg {
        Reg::new(self.base, self.l2 + 0x87 + 2 * clamp_engine(engine))
    }

    /// MC_VM_XGMI_LFB_CNTL, see [`XgmiLfbCntl`]; its SIZE register follows.
    pub(crate) const fn xgmi_lfb_cntl(&self) -> Option<Reg> {
        match self.xgmi {
            Some(offset) => Some(Reg::new(self.base, offset)),
            None => None,
        }
    }
}

const fn clamp_engine(engine: u32) -> u32 {
    if engine < INVALIDATE_ENGINES {
        engine
    } else {
        INVALIDATE_ENGINES - 1
    }
}

/// Shift of FB_LOCATION, FB_OFFSET and AGP registers.
pub(crate) const FB_SHIFT: u32 = 24;
/// Shift of the system aperture registers.
pub(crate) const APERTURE_SHIFT: u32 = 18;
/// AGP_BOT that, with AGP_TOP and AGP_BASE 0, turns the AGP aperture off.
pub(crate) const AGP_BOT_OFF: u32 = 0xff_ffff;
/// Low and high word of ADDR_RANGE for "everything".
pub(crate) const RANGE_ALL: [u32; 2] = [0xffff_ffff, 0x1f];

/// Address that a FB_LOCATION_BASE, FB_OFFSET or AGP register names.
pub(crate) const fn fb_address(raw: u32) -> u64 {
    num::widen(raw & 0xff_ffff) << FB_SHIFT
}

/// Last address below FB_LOCATION_TOP.
pub(crate) const fn fb_top(raw: u32) -> u64 {
    fb_address(raw) | 0xff_ffff
}

/// Low and high register word of a page number.
pub(crate) const fn page_words(address: u64) -> [u32; 2] {
    [num::lo32(address >> 12), num::hi32(address >> 12)]
}

/// Address from the low and high word of a page number register.
pub(crate) const fn page_address(lo: u32, hi: u32) -> u64 {
    num::join(lo, hi & 0xf) << 12
}

fields! {
    /// VM_CONTEXTn_CNTL.
    pub(crate) struct ContextCntl {
        /// Context in use.
        ENABLE [0:0];
        /// Levels above the leaf.
        PAGE_TABLE_DEPTH [2:1];
        /// Extra address bits that a leaf covers.
        BLOCK_SIZE [6:3];
        /// Retry instead of faulting on missing or insufficient entries.
        RETRY [7:7];
        /// Retry other faults.
        RETRY_OTHER [8:8];
        /// Range fault interrupt.
        RANGE_INT [9:9];
        /// Range fault goes to the default page.
        RANGE_DEFAULT [10:10];
        /// Dummy page fault interrupt.
        DUMMY_INT [11:11];
        /// Dummy page fault goes to the default page.
        DUMMY_DEFAULT [12:12];
        /// PDE0 fault interrupt.
        PDE0_INT [13:13];
        /// PDE0 fault goes to the default page.
        PDE0_DEFAULT [14:14];
        /// Invalid entry interrupt.
        VALID_INT [15:15];
        /// Invalid entry goes to the default page.
        VALID_DEFAULT [16:16];
        /// Read permission interrupt.
        READ_INT [17:17];
        /// Read permission fault goes to the default page.
        READ_DEFAULT [18:18];
        /// Write permission interrupt.
        WRITE_INT [19:19];
        /// Write permission fault goes to the default page.
        WRITE_DEFAULT [20:20];
        /// Execute permission interrupt.
        EXECUTE_INT [21:21];
        /// Execute permission fault goes to the default page.
        EXECUTE_DEFAULT [22:22];
    }
}

impl ContextCntl {
    /// All faults of the context raise interrupts.
    pub(crate) const fn with_interrupts(self) -> Self {
        self.with(Self::RANGE_INT, 1)
            .with(Self::DUMMY_INT, 1)
            .with(Self::PDE0_INT, 1)
            .with(Self::VALID_INT, 1)
            .with(Self::READ_INT, 1)
            .with(Self::WRITE_INT, 1)
            .with(Self::EXECUTE_INT, 1)
    }

    /// All faulting accesses are answered from the default page.
    pub(crate) const fn with_defaults(self) -> Self {
        self.with(Self::RANGE_DEFAULT, 1)
            .with(Self::DUMMY_DEFAULT, 1)
            .with(Self::PDE0_DEFAULT, 1)
            .with(Self::VALID_DEFAULT, 1)
            .with(Self::READ_DEFAULT, 1)
            .with(Self::WRITE_DEFAULT, 1)
            .with(Self::EXECUTE_DEFAULT, 1)
    }

    /// VMID 0: flat table, no retry.
    pub(crate) const KERNEL: Self = Self::new().with(Self::ENABLE, 1);

    /// VMIDs 1 to 15 with tables of `depth` levels above a leaf of `block_size` extra bits.
    pub(crate) const fn user(depth: u32, block_size: u32, retry: bool) -> Self {
        Self::new()
            .with(Self::ENABLE, 1)
            .with(Self::PAGE_TABLE_DEPTH, depth)
            .with(Self::BLOCK_SIZE, block_size)
            .with_flag(Self::RETRY, retry)
            .with_defaults()
    }
}

/// What an invalidation drops besides the TLB entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushType {
    /// Legacy.
    Legacy = 0,
    /// Waits for nothing.
    Light = 1,
    /// Waits until accesses through old entries have retired; what KFD asks for.
    Heavy = 2,
}

fields! {
    /// VM_INVALIDATE_ENGn_REQ.
    pub(crate) struct InvalidateReq {
        /// VMIDs, one bit each.
        PER_VMID [15:0];
        /// See [`FlushType`].
        FLUSH_TYPE [17:16];
        /// PTEs in the L2.
        L2_PTES [18:18];
        /// PDE0s in the L2.
        L2_PDE0 [19:19];
        /// PDE1s in the L2.
        L2_PDE1 [20:20];
        /// PDE2s in the L2.
        L2_PDE2 [21:21];
        /// PTEs in the L1s.
        L1_PTES [22:22];
        /// Also clear the latched fault.
        CLEAR_FAULT_STATUS [23:23];
    }
}

impl InvalidateReq {
    /// Everything that the hub caches for `vmid`: bits 0x7C0000 beside VMID and type.
    pub(crate) const fn vmid(vmid: u32, kind: FlushType) -> Self {
        Self::new()
            .with(Self::PER_VMID, 1 << (vmid & 0xf))
            // CAST: The discriminants are 0 to 2.
            .with(Self::FLUSH_TYPE, kind as u32)
            .with(Self::L2_PTES, 1)
            .with(Self::L2_PDE0, 1)
            .with(Self::L2_PDE1, 1)
            .with(Self::L2_PDE2, 1)
            .with(Self::L1_PTES, 1)
    }
}

fields! {
    /// VM_INVALIDATE_ENGn_ACK.
    pub(crate) struct InvalidateAck {
        /// Finished VMIDs, one bit each.
        PER_VMID [15:0];
        /// Semaphore state.
        SEMAPHORE [16:16];
    }
}

impl InvalidateAck {
    /// Whether the request for `vmid` is done.
    pub(crate) const fn done(self, vmid: u32) -> bool {
        self.get(Self::PER_VMID) & (1 << (vmid & 0xf)) != 0
    }
}

fields! {
    /// VM_L2_CNTL.
    pub(crate) struct L2Cntl {
        /// L2 in use.
        ENABLE_L2_CACHE [0:0];
        /// Use fragments.
        ENABLE_L2_FRAGMENT_PROCESSING [1:1];
        /// Tag generation.
        L2_PDE0_CACHE_TAG_GENERATION_MODE [8:8];
        /// Route accesses outside the tables to system memory.
        ENABLE_DEFAULT_PAGE_OUT_TO_SYSTEM_MEMORY [11:11];
        /// Classification of PDE faults.
        PDE_FAULT_CLASSIFICATION [18:18];
        /// Identity aperture mode.
        CONTEXT1_IDENTITY_ACCESS_MODE [20:19];
        /// Fragment of identity accesses.
        IDENTITY_MODE_FRAGMENT_SIZE [25:21];
    }
}

impl L2Cntl {
    /// What the driver adds to the reset value: cache and fragments on, identity mode 1.
    pub(crate) const fn enabled(self) -> Self {
        self.with(Self::ENABLE_L2_CACHE, 1)
            .with(Self::ENABLE_L2_FRAGMENT_PROCESSING, 1)
            .with(Self::L2_PDE0_CACHE_TAG_GENERATION_MODE, 0)
            .with(Self::PDE_FAULT_CLASSIFICATION, 0)
            .with(Self::CONTEXT1_IDENTITY_ACCESS_MODE, 1)
            .with(Self::IDENTITY_MODE_FRAGMENT_SIZE, 0)
    }
}

fields! {
    /// VM_L2_CNTL2.
    pub(crate) struct L2Cntl2 {
        /// Drop all L1 entries.
        INVALIDATE_ALL_L1_TLBS [0:0];
        /// Drop the L2.
        INVALIDATE_L2_CACHE [1:1];
    }
}

impl L2Cntl2 {
    /// Drop everything: 3.
    pub(crate) const INVALIDATE: Self = Self::new()
        .with(Self::INVALIDATE_ALL_L1_TLBS, 1)
        .with(Self::INVALIDATE_L2_CACHE, 1);
}

fields! {
    /// VM_L2_CNTL3.
    pub(crate) struct L2Cntl3 {
        /// Bank selection.
        BANK_SELECT [5:0];
        /// Update mode.
        L2_CACHE_UPDATE_MODE [7:6];
        /// Fragment from which an entry counts as big.
        L2_CACHE_BIGK_FRAGMENT_SIZE [19:15];
        /// Big entries share sets.
        L2_CACHE_BIGK_ASSOCIATIVITY [20:20];
        /// Associativity of 4 KiB entries.
        L2_CACHE_4K_ASSOCIATIVITY [31:31];
    }
}

impl L2Cntl3 {
    /// The kernel's default 0x80100007 with the bank and fragment of the page-table flavour.
    pub(crate) const fn driver(translate_further: bool) -> Self {
        let base = Self::from_raw(0x8010_0007);
        if translate_further {
            base.with(Self::BANK_SELECT, 12)
                .with(Self::L2_CACHE_BIGK_FRAGMENT_SIZE, 9)
        } else {
            base.with(Self::BANK_SELECT, 9)
                .with(Self::L2_CACHE_BIGK_FRAGMENT_SIZE, 6)
        }
    }
}

fields! {
    /// VM_L2_CNTL4.
    pub(crate) struct L2Cntl4 {
        /// Partition of 4 KiB entries.
        L2_CACHE_4K_PARTITION_COUNT [5:0];
        /// PDE requests use physical addresses.
        VMC_TAP_PDE_REQUEST_PHYSICAL [6:6];
        /// PTE requests use physical addresses.
        VMC_TAP_PTE_REQUEST_PHYSICAL [7:7];
    }
}

impl L2Cntl4 {
    /// Default 0xC1 with both physical request bits off, as on a discrete GPU: 0x01.
    pub(crate) const DRIVER: Self = Self::from_raw(0xc1)
        .with(Self::VMC_TAP_PDE_REQUEST_PHYSICAL, 0)
        .with(Self::VMC_TAP_PTE_REQUEST_PHYSICAL, 0);
}

fields! {
    /// VM_L2_PROTECTION_FAULT_CNTL.
    pub(crate) struct FaultCntl {
        /// Writing 1 clears the latched fault.
        CLEAR_STATUS [0:0];
        /// Later faults overwrite the latched one.
        ALLOW_SUBSEQUENT [1:1];
        /// Default page for range faults.
        RANGE_DEFAULT [2:2];
        /// Default page for PDE0 faults.
        PDE0_DEFAULT [3:3];
        /// Default page for PDE1 faults.
        PDE1_DEFAULT [4:4];
        /// Default page for PDE2 faults.
        PDE2_DEFAULT [5:5];
        /// Default page for translate-further faults.
        TRANSLATE_FURTHER_DEFAULT [6:6];
        /// Default page for NACKs.
        NACK_DEFAULT [7:7];
        /// Default page for dummy page faults.
        DUMMY_DEFAULT [8:8];
        /// Default page for invalid entries.
        VALID_DEFAULT [9:9];
        /// Default page for read faults.
        READ_DEFAULT [10:10];
        /// Default page for write faults.
        WRITE_DEFAULT [11:11];
        /// Default page for execute faults.
        EXECUTE_DEFAULT [12:12];
        /// Clients without retry interrupts.
        CLIENT_ID_NO_RETRY_INT [28:13];
        /// Other clients without retry interrupts.
        OTHER_NO_RETRY_INT [29:29];
        /// Stop on a fault that is not retried.
        CRASH_ON_NO_RETRY [30:30];
        /// Stop on a retried fault.
        CRASH_ON_RETRY [31:31];
    }
}

impl FaultCntl {
    /// All faults answered from the default page, no crash: bits 2 to 12.
    pub(crate) const fn with_defaults(self) -> Self {
        self.with(Self::RANGE_DEFAULT, 1)
            .with(Self::PDE0_DEFAULT, 1)
            .with(Self::PDE1_DEFAULT, 1)
            .with(Self::PDE2_DEFAULT, 1)
            .with(Self::TRANSLATE_FURTHER_DEFAULT, 1)
            .with(Self::NACK_DEFAULT, 1)
            .with(Self::DUMMY_DEFAULT, 1)
            .with(Self::VALID_DEFAULT, 1)
            .with(Self::READ_DEFAULT, 1)
            .with(Self::WRITE_DEFAULT, 1)
            .with(Self::EXECUTE_DEFAULT, 1)
            .with(Self::CRASH_ON_NO_RETRY, 0)
            .with(Self::CRASH_ON_RETRY, 0)
    }
}

fields! {
    /// VM_L2_PROTECTION_FAULT_CNTL2.
    pub(crate) struct FaultCntl2 {
        /// Page migration in progress.
        ACTIVE_PAGE_MIGRATION_PTE [17:17];
        /// Migrating pages retry reads.
        ACTIVE_PAGE_MIGRATION_PTE_READ_RETRY [18:18];
        /// Interrupt on retried faults.
        ENABLE_RETRY_FAULT_INTERRUPT [19:19];
    }
}

fields! {
    /// VM_L2_PROTECTION_FAULT_STATUS: the first fault since the last clear.
    pub(crate) struct FaultStatus {
        /// More faults followed.
        MORE_FAULTS [0:0];
        /// Level at which the walk ended.
        WALKER_ERROR [3:1];
        /// Missing permissions.
        PERMISSION_FAULTS [7:4];
        /// Range error.
        MAPPING_ERROR [8:8];
        /// Client, see [`HubLayout::client`].
        CID [17:9];
        /// 1 = write.
        RW [18:18];
        /// Atomic access.
        ATOMIC [19:19];
        /// VMID.
        VMID [23:20];
        /// Virtual function.
        VF [24:24];
        /// Number of the virtual function.
        VFID [28:25];
        /// Uncorrectable error.
        UCE [29:29];
        /// Poison.
        FED [30:30];
    }
}

fields! {
    /// MC_VM_MX_L1_TLB_CNTL.
    pub(crate) struct L1TlbCntl {
        /// L1 TLBs in use.
        ENABLE_L1_TLB [0:0];
        /// 3 = VMID 0 inside the aperture bypasses translation.
        SYSTEM_ACCESS_MODE [4:3];
        /// What happens to system accesses outside the aperture.
        SYSTEM_APERTURE_UNMAPPED_ACCESS [5:5];
        /// Advanced driver model.
        ENABLE_ADVANCED_DRIVER_MODEL [6:6];
        /// Memory type of untranslated accesses.
        MTYPE [12:11];
        /// Address translation cache.
        ATC_EN [13:13];
    }
}

impl L1TlbCntl {
    /// What the driver sets: on, mode 3, advanced model, uncached, ATC.
    pub(crate) const DRIVER: Self = Self::new()
        .with(Self::ENABLE_L1_TLB, 1)
        .with(Self::SYSTEM_ACCESS_MODE, 3)
        .with(Self::ENABLE_ADVANCED_DRIVER_MODEL, 1)
        .with(Self::MTYPE, 3)
        .with(Self::ATC_EN, 1);
}

fields! {
    /// MC_VM_XGMI_LFB_CNTL; 0 means a single GPU.
    pub(crate) struct XgmiLfbCntl {
        /// Number of this GPU in its hive.
        LFB_REGION [3:0];
        /// GPUs in the hive less one.
        MAX_REGION [7:4];
    }
}
