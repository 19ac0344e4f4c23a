// SPDX-License-Identifier: GPL-2.0

//! Words of the command processor: its engines, interrupts, doorbells and waits.

use super::super::super::bits::fields;
use super::super::slot::Slot;

fields! {
    /// CP_MEC_ME1_UCODE_ADDR and SDMA's UCODE_ADDR. The last step of a loader leaves the version of
    /// what was loaded there (`gfx_v9_0_cp_compute_load_microcode`, `sdma_v4_0_load_microcode`).
    pub(crate) struct UcodeAddr {
        /// MEC: address, or version.
        MEC [16:0];
        /// SDMA: address, or version; bit 13 reads 0 before gfx90a.
        SDMA [13:0];
    }
}

fields! {
    /// CP_MEC_CNTL.
    pub(crate) struct CpMecCntl {
        /// Drop the instruction cache.
        INVALIDATE_ICACHE [4:4];
        /// Reset of the four pipes of MEC1, one bit each.
        ME1_PIPE_RESET [19:16];
        /// Reset of pipes 0 and 1 of MEC2.
        ME2_PIPE_RESET [21:20];
        /// Stop MEC2.
        ME2_HALT [28:28];
        /// Single step MEC2.
        ME2_STEP [29:29];
        /// Stop MEC1.
        ME1_HALT [30:30];
        /// Single step MEC1.
        ME1_STEP [31:31];
    }
}

impl CpMecCntl {
    /// Both engines run.
    pub(crate) const RUN: Self = Self::new();

    /// Both engines stopped and reset: 0x503F0010.
    pub(crate) const HALT: Self = Self::new()
        .with(Self::INVALIDATE_ICACHE, 1)
        .with(Self::ME1_PIPE_RESET, 0xf)
        .with(Self::ME2_PIPE_RESET, 0x3)
        .with(Self::ME2_HALT, 1)
        .with(Self::ME1_HALT, 1);

    /// Reset of the pipe of a slot, the fallback after a failed queue reset. MEC2 has bits for its
    /// first two pipes only, which are those of the kernel's queues.
    pub(crate) const fn reset_pipe(slot: Slot) -> Self {
        match slot.me() {
            1 => Self::new().with(Self::ME1_PIPE_RESET, 1 << (slot.pipe() & 3)),
            _ => Self::new().with(Self::ME2_PIPE_RESET, 1 << (slot.pipe() & 1)),
        }
    }
}

fields! {
    /// CP_PQ_WPTR_POLL_CNTL.
    pub(crate) struct PqWptrPollCntl {
        /// Poll period.
        PERIOD [7:0];
        /// No one-shot while a request is pending.
        DISABLE_PEND_REQ_ONE_SHOT [29:29];
        /// A poll runs.
        POLL_ACTIVE [30:30];
        /// Periodic polling.
        EN [31:31];
    }
}

fields! {
    /// CP_IQ_WAIT_TIME1.
    pub(crate) struct IqWaitTime1 {
        /// Indirect buffer offload.
        IB_OFFLOAD [7:0];
        /// Atomic offload.
        ATOMIC_OFFLOAD [15:8];
        /// WAIT_REG_MEM offload.
        WRM_OFFLOAD [23:16];
        /// Global wave sync.
        GWS [31:24];
    }
}

fields! {
    /// CP_IQ_WAIT_TIME2.
    pub(crate) struct IqWaitTime2 {
        /// Wait between dequeue retries; 0x40 after reset, 1 in KFD from GC 9.4.1 on.
        QUE_SLEEP [7:0];
        /// Grace period before waves are saved, in 1000 cycles.
        SCH_WAVE [15:8];
        /// Semaphore rearm.
        SEM_REARM [23:16];
        /// Dequeue retry.
        DEQ_RETRY [31:24];
    }
}

fields! {
    /// CP_INT_CNTL_RING0.
    pub(crate) struct CpInt {
        /// A doorbell that no connected queue has, source 200.
        CP_VM_DOORBELL_WR [11:11];
    }
}

fields! {
    /// CPC_INT_CNTL, CPC_INT_STATUS and CP_MEn_PIPEm_INT_CNTL share these positions.
    pub(crate) struct CpcInt {
        /// QUERY_STATUS completed.
        CMP_QUERY_STATUS [12:12];
        /// Dequeue request done.
        DEQUEUE_REQUEST [13:13];
        /// Error correction.
        CP_ECC_ERROR [14:14];
        /// Signal violation.
        SUA_VIOLATION [15:15];
        /// General page fault.
        GPF [16:16];
        /// WAIT_REG_MEM timed out.
        WRM_POLL_TIMEOUT [17:17];
        /// Privileged register touched.
        PRIV_REG [23:23];
        /// Bad opcode.
        OPCODE_ERROR [24:24];
        /// End of pipe.
        TIME_STAMP [26:26];
        /// Reserved bit set in a packet.
        RESERVED_BIT_ERROR [27:27];
        /// Generic interrupt 2, source 176.
        GENERIC2 [29:29];
        /// Generic interrupt 1.
        GENERIC1 [30:30];
        /// Generic interrupt 0.
        GENERIC0 [31:31];
    }
}

impl CpcInt {
    /// What the driver enables on each pipe: end of pipe and bad opcode, 0x05000000.
    pub(crate) const DRIVER: Self = Self::new()
        .with(Self::TIME_STAMP, 1)
        .with(Self::OPCODE_ERROR, 1);

    /// What the KIQ writes into CPC_INT_STATUS to raise its fence interrupt: 0x20000000.
    pub(crate) const KIQ_FENCE: Self = Self::new().with(Self::GENERIC2, 1);
}

fields! {
    /// CP_PQ_STATUS.
    pub(crate) struct PqStatus {
        /// A doorbell arrived while the engine slept.
        DOORBELL_UPDATED [0:0];
        /// Doorbells wake the engine.
        DOORBELL_ENABLE [1:1];
    }
}

fields! {
    /// CP_MEC_DOORBELL_RANGE_LOWER and UPPER.
    pub(crate) struct MecDoorbellRange {
        /// Dword index; the whole word is thus the byte offset in BAR2.
        DOORBELL [27:2];
    }
}

fields! {
    /// RLC_CP_SCHEDULERS: slot codes of the schedulers, see [`scheduler_code`].
    pub(crate) struct RlcCpSchedulers {
        /// Slot of the KIQ.
        SCHEDULER0 [7:0];
        /// Slot of a directly loaded HIQ.
        SCHEDULER1 [15:8];
        /// Unused here.
        SCHEDULER2 [23:16];
        /// Unused here.
        SCHEDULER3 [31:24];
    }
}

/// Slot code without the valid bit: `me << 5 | pipe << 3 | queue`.
///
/// The KIQ sequence writes the code first without, then with [`SCHEDULER_VALID`].
pub(crate) const fn scheduler_code(me: u32, pipe: u32, queue: u32) -> u32 {
    ((me & 3) << 5) | ((pipe & 3) << 3) | (queue & 7)
}

/// Marks a slot code as valid.
pub(crate) const SCHEDULER_VALID: u32 = 0x80;

fields! {
    /// CP_HPD_STATUS0: state of a pipe.
    pub(crate) struct HpdStatus0 {
        /// State machine.
        QUEUE_STATE [4:0];
        /// Slot being mapped.
        MAPPED_QUEUE [7:5];
        /// Free slots, one bit each.
        QUEUE_AVAILABLE [15:8];
        /// MQD fetch in progress.
        FETCHING_MQD [16:16];
    }
}
