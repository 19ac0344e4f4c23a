// SPDX-License-Identifier: GPL-2.0

//! MQD of a compute queue: user PM4 and AQL queues, HIQ and debug queue, KIQ.

use core::ops::RangeInclusive;

use super::super::asic::AsicDesc;
use super::super::cwsr::SavedState;
use super::super::doorbell::DoorbellOffset;
use super::super::num;
use super::super::pte;
use super::super::regs::gc::{
    ComputePgmRsrc2,
    ComputeResourceLimits, //
};
use super::super::regs::hqd::{
    AqlControl,
    DoorbellControl,
    EopControl,
    HqStatus0,
    HqdActive,
    HqdError,
    HqdQuantum,
    HqdVmid,
    IbControl,
    MqdControl,
    PersistentState,
    PqControl, //
};
use super::cu_mask::CuMask;
use super::layout::{
    compute as at,
    COMPUTE_DWORDS,
    KERNEL_RING_DWORDS, //
};
use super::{
    check,
    check_ring,
    MqdError, //
};

/// First dword of every compute MQD.
const HEADER: u32 = 0xC031_0800;
/// State that is preloaded on a connect; the same in all drivers.
const PRELOAD_SIZE: u32 = 0x53;
/// Largest EOP_SIZE: hardware counts outstanding events in 8 bits.
const EOP_SIZE_MAX: u32 = 0xA;
/// RPTR_BLOCK_SIZE of KFD queues.
const RPTR_BLOCK_USER: u32 = 5;
/// RPTR_BLOCK_SIZE of kernel rings: log2 of the dwords of a page, less one.
const RPTR_BLOCK_KERNEL: u32 = 9;
/// COMPUTE_MISC_RESERVED of kernel rings.
const MISC_RESERVED_KERNEL: u32 = 3;
/// What a queue carries and its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueFormat {
    /// User queue with PM4 packets.
    Pm4,
    /// User queue with AQL packets.
    Aql,
    /// HIQ, or the debug queue, which differs only in its place.
    Hiq,
    /// KIQ; the only queue that is active in memory and loaded by registers.
    Kiq,
}

/// End-of-pipe buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Eop {
    /// Address, a multiple of 256.
    pub(crate) base: u64,
    /// Length in bytes, at least 8; hardware uses the next power of two, at most 8 KiB.
    pub(crate) bytes: u32,
}

/// Save area of waves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cwsr {
    /// Address in the queue's VMID, a multiple of 4096.
    pub(crate) base: u64,
    /// Bytes of the control stack.
    pub(crate) ctl_stack: u32,
    /// Bytes of control stack and wave state; hardware uses whole pages of them.
    pub(crate) bytes: u32,
}

/// Description of a compute queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueConfig {
    /// What it carries.
    pub(crate) format: QueueFormat,
    /// Address of the MQD in VMID 0, a multiple of 4.
    pub(crate) mqd: u64,
    /// Address of the ring, a multiple of 256.
    pub(crate) ring: u64,
    /// Length of the ring in bytes, a power of two.
    pub(crate) ring_bytes: u32,
    /// Where the read pointer is reported, a multiple of 4.
    pub(crate) rptr_report: u64,
    /// Where the write pointer is read, a multiple of 8.
    pub(crate) wptr_poll: u64,
    /// Doorbell.
    pub(crate) doorbell: DoorbellOffset,
    /// End-of-pipe buffer.
    pub(crate) eop: Option<Eop>,
    /// Save area; without it a preemption drains waves.
    pub(crate) cwsr: Option<Cwsr>,
    /// The process has a trap handler.
    pub(crate) trap_handler: bool,
    /// KFD priority, 0 to 15.
    pub(crate) priority: u32,
    /// Compute units that the queue may use.
    pub(crate) cu_mask: CuMask,
    /// The queue uses global wave sync and waves must be spread over SIMDs.
    pub(crate) gws: bool,
    /// A profiler holds the device.
    pub(crate) perfcount: bool,
}

impl QueueConfig {
    /// A queue of the given format with everything optional left out.
    pub(crate) const fn new(format: QueueFormat, doorbell: DoorbellOffset) -> Self {
        Self {
            format,
            mqd: 0,
            ring: 0,
            ring_bytes: super::MIN_RING_BYTES,
            rptr_report: 0,
            wptr_poll: 0,
            doorbell,
            eop: None,
            cwsr: None,
            trap_handler: false,
            priority: 0,
            cu_mask: CuMask::ALL,
            gws: false,
            perfcount: false,
        }
    }
}

/// CP_HQD_PIPE_PRIORITY for a KFD priority: 0 low up to 6, 1 medium up to 10, 2 high.
pub(crate) const fn pipe_priority(priority: u32) -> u32 {
    match priority {
        0..=6 => 0,
        7..=10 => 1,
        _ => 2,
    }
}

/// A checked description, from which the dwords of the MQD follow.
///
/// # Invariants
///
/// The addresses of `config` are aligned and have 48 bits, its sizes fit their registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ComputeMqd {
    config: QueueConfig,
    force_simd_dist: bool,
}

impl ComputeMqd {
    /// Checks a description.
    ///
    /// # Errors
    ///
    /// See [`MqdError`]; the fields are checked in the order of [`QueueConfig`].
    pub(crate) fn new(asic: &AsicDesc, config: QueueConfig) -> Result<Self, MqdError> {
        check("mqd", config.mqd, 4)?;
        check("ring", config.ring, 256)?;
        check_ring(config.ring_bytes)?;
        check("rptr report", config.rptr_report, 4)?;
        check("wptr poll", config.wptr_poll, 8)?;
        if let Some(eop) = config.eop {
            check("eop", eop.base, 256)?;
            if eop.bytes < 8 {
                return Err(MqdError::Size {
                    field: "eop",
                    bytes: eop.bytes,
                });
            }
        }
        if let Some(cwsr) = config.cwsr {
            check("cwsr", cwsr.base, 4096)?;
            check_cwsr(asic, &cwsr)?;
        }
        if config.priority > 15 {
            return Err(MqdError::Priority(config.priority));
        }
        // INVARIANT: All of `config` was checked above.
        Ok(Self {
            config,
            force_simd_dist: config.gws && asic.force_simd_dist,
        })
    }

    /// The description.
    pub(crate) const fn config(&self) -> &QueueConfig {
        &self.config
    }

    /// Dwords that [`ComputeMqd::write`] stores: kernel rings append four.
    pub(crate) const fn dwords(&self) -> usize {
        match self.config.format {
            QueueFormat::Kiq => KERNEL_RING_DWORDS,
            _ => COMPUTE_DWORDS,
        }
    }

    /// Stores the whole image of a queue that never ran, dword by dword in ascending order.
    pub(crate) fn write(&self, mut put: impl FnMut(usize, u32)) {
        for dw in 0..self.dwords() {
            put(dw, self.word(dw));
        }
    }

    /// Stores what a change of the description touches, keeping what hardware saved.
    ///
    /// The queue must not be mapped. Pointers, the place in an indirect buffer, wave state and carry bits stay as they are.
    pub(crate) fn update(
        &self,
        mut read: impl FnMut(usize) -> u32,
        mut put: impl FnMut(usize, u32),
    ) {
        let control = PqControl::from_raw(self.word(at::CP_HQD_PQ_CONTROL));
        let saved = PqControl::from_raw(read(at::CP_HQD_PQ_CONTROL));
        put(
            at::CP_HQD_PQ_CONTROL,
            control
                .with(PqControl::WPTR_CARRY, saved.get(PqControl::WPTR_CARRY))
                .with(PqControl::RPTR_CARRY, saved.get(PqControl::RPTR_CARRY))
                .with(PqControl::PQ_EMPTY, saved.get(PqControl::PQ_EMPTY))
                .raw(),
        );
        let limits = ComputeResourceLimits::from_raw(read(at::COMPUTE_RESOURCE_LIMITS))
            .with_flag(ComputeResourceLimits::FORCE_SIMD_DIST, self.force_simd_dist);
        put(at::COMPUTE_RESOURCE_LIMITS, limits.raw());
        // The other bits of this register are a shader's.
        let rsrc2 = ComputePgmRsrc2::from_raw(read(at::COMPUTE_PGM_RSRC2))
            .with_flag(ComputePgmRsrc2::TRAP_PRESENT, self.config.trap_handler);
        put(at::COMPUTE_PGM_RSRC2, rsrc2.raw());
        for dw in UPDATED {
            put(dw, self.word(dw));
        }
        for dw in at::STATIC_THREAD_MGMT {
            put(dw, self.word(dw));
        }
    }

    /// Stores that nothing is under way: no packet, indirect buffer, dispatch or wave that an earlier
    /// preemption saved. Pointers, and registers of shaders that packets have set, stay as they are.
    pub(crate) fn void(&self, mut put: impl FnMut(usize, u32)) {
        for dw in VOIDED.into_iter().flatten() {
            put(dw, self.word(dw));
        }
    }

    /// Value of dword `dw` of a queue that never ran.
    pub(crate) fn word(&self, dw: usize) -> u32 {
        let config = &self.config;
        let kiq = config.format == QueueFormat::Kiq;
        let ring = config.ring >> 8;
        match dw {
            at::HEADER => HEADER,
            at::COMPUTE_PIPELINESTAT_ENABLE => 1,
            at::COMPUTE_PERFCOUNT_ENABLE => u32::from(config.perfcount),
            at::COMPUTE_PGM_RSRC2 => ComputePgmRsrc2::new()
                .with_flag(ComputePgmRsrc2::TRAP_PRESENT, config.trap_handler)
                .raw(),
            at::COMPUTE_RESOURCE_LIMITS => ComputeResourceLimits::new()
                .with_flag(ComputeResourceLimits::FORCE_SIMD_DIST, self.force_simd_dist)
                .raw(),
            at::COMPUTE_STATIC_THREAD_MGMT_SE0 => config.cu_mask.0[0],
            at::COMPUTE_STATIC_THREAD_MGMT_SE1 => config.cu_mask.0[1],
            at::COMPUTE_STATIC_THREAD_MGMT_SE2 => config.cu_mask.0[2],
            at::COMPUTE_STATIC_THREAD_MGMT_SE3 => config.cu_mask.0[3],
            at::COMPUTE_STATIC_THREAD_MGMT_SE4 => config.cu_mask.0[4],
            at::COMPUTE_STATIC_THREAD_MGMT_SE5 => config.cu_mask.0[5],
            at::COMPUTE_STATIC_THREAD_MGMT_SE6 => config.cu_mask.0[6],
            at::COMPUTE_STATIC_THREAD_MGMT_SE7 => config.cu_mask.0[7],
            at::COMPUTE_MISC_RESERVED if kiq => MISC_RESERVED_KERNEL,
            at::DYNAMIC_CU_MASK_ADDR_LO if kiq => num::lo32(self.dynamic_cu_mask()),
            at::DYNAMIC_CU_MASK_ADDR_HI if kiq => num::hi32(self.dynamic_cu_mask()),
            at::CP_MQD_BASE_ADDR_LO => num::lo32(config.mqd),
            at::CP_MQD_BASE_ADDR_HI => num::hi32(config.mqd),
            at::CP_HQD_ACTIVE => HqdActive::new().with_flag(HqdActive::ACTIVE, kiq).raw(),
            at::CP_HQD_PERSISTENT_STATE => PersistentState::new()
                .with(PersistentState::PRELOAD_REQ, 1)
                .with(PersistentState::PRELOAD_SIZE, PRELOAD_SIZE)
                .with_flag(PersistentState::QSWITCH_MODE, config.cwsr.is_some())
                .raw(),
            at::CP_HQD_PIPE_PRIORITY => pipe_priority(config.priority),
            at::CP_HQD_QUANTUM => QUANTUM.raw(),
            at::CP_HQD_PQ_BASE_LO => num::lo32(ring),
            at::CP_HQD_PQ_BASE_HI => num::hi32(ring),
            at::CP_HQD_PQ_RPTR_REPORT_ADDR_LO => num::lo32(config.rptr_report),
            at::CP_HQD_PQ_RPTR_REPORT_ADDR_HI => num::hi32(config.rptr_report),
            at::CP_HQD_PQ_WPTR_POLL_ADDR_LO => num::lo32(config.wptr_poll),
            at::CP_HQD_PQ_WPTR_POLL_ADDR_HI => num::hi32(config.wptr_poll),
            at::CP_HQD_PQ_DOORBELL_CONTROL => DoorbellControl::new()
                .with(DoorbellControl::OFFSET, config.doorbell.dword())
                .with_flag(DoorbellControl::BIF_DROP, config.format == QueueFormat::Aql)
                .with_flag(DoorbellControl::EN, kiq)
                .raw(),
            at::CP_HQD_PQ_CONTROL => self.pq_control().raw(),
            at::CP_HQD_IB_CONTROL => IbControl::new()
                .with(IbControl::MIN_IB_AVAIL_SIZE, 3)
                .with_flag(IbControl::IB_EXE_DISABLE, !kiq)
                .raw(),
            at::CP_HQD_HQ_STATUS0 => HqStatus0::new()
                .with_flag(HqStatus0::SETUP_DISPATCH_PTR, !kiq)
                .raw(),
            at::CP_MQD_CONTROL => MqdControl::new().with(MqdControl::PRIV_STATE, 1).raw(),
            at::CP_HQD_EOP_BASE_ADDR_LO => num::lo32(self.eop().base >> 8),
            at::CP_HQD_EOP_BASE_ADDR_HI => num::hi32(self.eop().base >> 8),
            at::CP_HQD_EOP_CONTROL => eop_control(self.eop().bytes).raw(),
            at::CP_HQD_CTX_SAVE_BASE_ADDR_LO => num::lo32(self.cwsr().base),
            at::CP_HQD_CTX_SAVE_BASE_ADDR_HI => num::hi32(self.cwsr().base),
            at::CP_HQD_CNTL_STACK_OFFSET
            | at::CP_HQD_CNTL_STACK_SIZE
            | at::CP_HQD_WG_STATE_OFFSET => self.cwsr().ctl_stack,
            at::CP_HQD_CTX_SAVE_SIZE => whole_pages(self.cwsr().bytes),
            at::CP_HQD_AQL_CONTROL => AqlControl::new()
                .with_flag(AqlControl::CONTROL0, config.format == QueueFormat::Aql)
                .raw(),
            DYNAMIC_CU_MASK | DYNAMIC_RB_MASK if kiq => u32::MAX,
            _ => 0,
        }
    }

    fn pq_control(&self) -> PqControl {
        let dwords = self.config.ring_bytes / 4;
        let base = PqControl::new().with(PqControl::QUEUE_SIZE, dwords.trailing_zeros() - 1);
        let user = base
            .with(PqControl::RPTR_BLOCK_SIZE, RPTR_BLOCK_USER)
            .with(PqControl::UNORD_DISPATCH, 1);
        match self.config.format {
            QueueFormat::Pm4 => user,
            QueueFormat::Aql => user
                .with(PqControl::NO_UPDATE_RPTR, 1)
                .with(PqControl::SLOT_BASED_WPTR, 2)
                .with(PqControl::QUEUE_FULL_EN, 1)
                .with(PqControl::WPP_CLAMP_EN, 1),
            QueueFormat::Hiq => user
                .with(PqControl::PRIV_STATE, 1)
                .with(PqControl::KMD_QUEUE, 1),
            QueueFormat::Kiq => base
                .with(PqControl::RPTR_BLOCK_SIZE, RPTR_BLOCK_KERNEL)
                .with(PqControl::PRIV_STATE, 1)
                .with(PqControl::KMD_QUEUE, 1),
        }
    }

    /// The EOP buffer; zero where there is none.
    fn eop(&self) -> Eop {
        self.config.eop.unwrap_or(Eop { base: 0, bytes: 0 })
    }

    /// The save area; zero where there is none.
    fn cwsr(&self) -> Cwsr {
        self.config.cwsr.unwrap_or(Cwsr {
            base: 0,
            ctl_stack: 0,
            bytes: 0,
        })
    }

    /// Address of the dynamic CU mask behind the MQD of a kernel ring.
    fn dynamic_cu_mask(&self) -> u64 {
        // The MQD has 48 bits by the type invariant, so that this cannot overflow.
        self.config.mqd + num::widen(num::len32(DYNAMIC_CU_MASK)) * 4
    }
}

/// Dword of `v9_mqd_allocation.dynamic_cu_mask`.
const DYNAMIC_CU_MASK: usize = COMPUTE_DWORDS + 2;
/// Dword of `v9_mqd_allocation.dynamic_rb_mask`.
const DYNAMIC_RB_MASK: usize = COMPUTE_DWORDS + 3;

/// Quantum of every queue: 0x111.
const QUANTUM: HqdQuantum = HqdQuantum::new()
    .with(HqdQuantum::EN, 1)
    .with(HqdQuantum::SCALE, 1)
    .with(HqdQuantum::DURATION, 1);

/// What preemption saves of work under way. The part behind the registers is the microcode's own.
const VOIDED: [RangeInclusive<usize>; 9] = [
    at::COMPUTE_RESTART_X..=at::COMPUTE_RESTART_Z,
    at::COMPUTE_DISPATCH_ID..=at::COMPUTE_WAVE_RESTORE_CONTROL,
    at::CP_MQD_CONNECT_END_WF_COUNT..=at::CP_MQD_CONNECT_END_IB_RPTR,
    at::CP_PQ_EXE_STATUS_LO..=at::CP_PACKET_EXE_STATUS_HI,
    at::CP_HQD_PERSISTENT_STATE..=at::CP_HQD_PERSISTENT_STATE,
    at::CP_HQD_IB_BASE_ADDR_LO..=at::CP_HQD_IB_CONTROL,
    at::CP_HQD_DEQUEUE_REQUEST..=at::CP_HQD_MSG_TYPE,
    at::CP_HQD_CNTL_STACK_OFFSET..=at::CP_HQD_WG_STATE_OFFSET,
    at::CP_HQD_PQ_WPTR_HI + 1..=COMPUTE_DWORDS - 1,
];

/// Dwords that an update stores beside those with bits of others and the CU mask.
///
/// CP_HQD_IB_CONTROL is not among them, unlike in amdkfd's `update_mqd`: it holds IB_SIZE and PROCESSING_IB of an indirect
/// buffer that a preemption interrupted, and nothing that a description can change.
const UPDATED: [usize; 15] = [
    at::COMPUTE_PERFCOUNT_ENABLE,
    at::CP_HQD_VMID,
    at::CP_HQD_PIPE_PRIORITY,
    at::CP_HQD_PQ_BASE_LO,
    at::CP_HQD_PQ_BASE_HI,
    at::CP_HQD_PQ_RPTR_REPORT_ADDR_LO,
    at::CP_HQD_PQ_RPTR_REPORT_ADDR_HI,
    at::CP_HQD_PQ_WPTR_POLL_ADDR_LO,
    at::CP_HQD_PQ_WPTR_POLL_ADDR_HI,
    at::CP_HQD_PQ_DOORBELL_CONTROL,
    at::CP_HQD_IQ_TIMER,
    at::CP_HQD_EOP_BASE_ADDR_LO,
    at::CP_HQD_EOP_BASE_ADDR_HI,
    at::CP_HQD_EOP_CONTROL,
    at::CP_HQD_CTX_SAVE_CONTROL,
];

/// CP_HQD_EOP_CONTROL of a buffer: EOP_SIZE = min(0xA, log2(bytes / 8)), rounded up; 0 without a buffer.
///
/// Buffers are mapped in whole pages, so from a page on the next power of two is mapped as well, up to the 8 KiB
/// that are the most.
pub(crate) const fn eop_control(bytes: u32) -> EopControl {
    if bytes < 8 {
        return EopControl::new();
    }
    let size = (bytes / 8).next_power_of_two().trailing_zeros();
    EopControl::new().with(
        EopControl::EOP_SIZE,
        if size > EOP_SIZE_MAX {
            EOP_SIZE_MAX
        } else {
            size
        },
    )
}

/// Page of the sizes that hardware takes.
const PAGE: u32 = num::lo32(pte::PAGE);

/// `bytes` without what does not fill a page, which the register does not name.
const fn whole_pages(bytes: u32) -> u32 {
    bytes & !(PAGE - 1)
}

/// Checks the sizes of a save area against the ASIC.
fn check_cwsr(asic: &AsicDesc, cwsr: &Cwsr) -> Result<(), MqdError> {
    if cwsr.ctl_stack == 0 || cwsr.ctl_stack % PAGE != 0 || cwsr.ctl_stack > asic.cwsr.ctl_stack {
        return Err(MqdError::Size {
            field: "control stack",
            bytes: cwsr.ctl_stack,
        });
    }
    // How much the device's own compute units need is checked where queues are accepted.
    let bytes = whole_pages(cwsr.bytes);
    if bytes <= cwsr.ctl_stack || bytes > asic.cwsr_max {
        return Err(MqdError::Size {
            field: "cwsr area",
            bytes: cwsr.bytes,
        });
    }
    Ok(())
}

/// What hardware and microcode leave in an MQD when a queue is unmapped.
///
/// The values are copies of untrusted memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Readback {
    /// Slot state; not 0 in memory only for the KIQ.
    pub(crate) active: bool,
    /// VMID that the scheduler had assigned.
    pub(crate) vmid: u32,
    /// Ring read pointer in dwords.
    pub(crate) rptr: u32,
    /// 64-bit write pointer.
    pub(crate) wptr: u64,
    /// AQL read index.
    pub(crate) read_index: u64,
    /// Error bits.
    pub(crate) error: HqdError,
    /// Control stack size.
    pub(crate) cntl_stack_size: u32,
    /// First used byte of the control stack.
    pub(crate) cntl_stack_offset: u32,
    /// End of the wave state.
    pub(crate) wg_state_offset: u32,
}

impl Readback {
    /// Reads the values from an MQD.
    pub(crate) fn read(mut read: impl FnMut(usize) -> u32) -> Self {
        Self {
            active: HqdActive::from_raw(read(at::CP_HQD_ACTIVE)).is_set(HqdActive::ACTIVE),
            vmid: HqdVmid::from_raw(read(at::CP_HQD_VMID)).get(HqdVmid::VMID),
            rptr: read(at::CP_HQD_PQ_RPTR),
            wptr: num::join(read(at::CP_HQD_PQ_WPTR_LO), read(at::CP_HQD_PQ_WPTR_HI)),
            read_index: num::join(read(at::CP_MQD_READINDEX_LO), read(at::CP_MQD_READINDEX_HI)),
            error: HqdError::from_raw(read(at::CP_HQD_ERROR)),
            cntl_stack_size: read(at::CP_HQD_CNTL_STACK_SIZE),
            cntl_stack_offset: read(at::CP_HQD_CNTL_STACK_OFFSET),
            wg_state_offset: read(at::CP_HQD_WG_STATE_OFFSET),
        }
    }

    /// Saved wave state of a queue created with `cwsr`; `None` if the words make no sense.
    pub(crate) const fn saved_state(&self, cwsr: &Cwsr) -> Option<SavedState> {
        SavedState::new(
            self.cntl_stack_size,
            self.cntl_stack_offset,
            self.wg_state_offset,
            cwsr.ctl_stack,
            cwsr.bytes,
        )
    }
}

/// Doorbell word of the queue that refused to be preempted, from dword 240 of the HIQ's MQD.
///
/// 0 means that all queues obeyed. Whether the firmware stores a dword index or an id is not
/// documented; the driver must clear the dword after reading it.
pub(crate) const HUNG_DOORBELL: usize = at::QUEUE_DOORBELL_ID0;
