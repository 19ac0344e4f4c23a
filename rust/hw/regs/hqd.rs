// SPDX-License-Identifier: GPL-2.0

//! Hardware queue descriptor: the register window of one queue slot.
//!
//! The window shows the slot that GRBM_GFX_CNTL selects. It mirrors dwords 128 to 183 of the MQD
//! one to one (`v9_structs.h`, `gc_9_0_offset.h`), which [`WINDOW`] states as data: loading a queue
//! by registers is a walk over the table. Dword 144 has no register.

use super::super::bits::fields;
use super::gc::SEG0;
use super::Reg;

pub(crate) use super::slot::{
    Slot,
    PIPES_PER_MEC,
    QUEUES_PER_PIPE,
    SLOTS_PER_MEC, //
};

/// One register of the window and the MQD dword that it mirrors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HqdReg {
    /// Name as in `gc_9_0_offset.h`.
    pub(crate) name: &'static str,
    /// The register.
    pub(crate) reg: Reg,
    /// Index of the dword in the MQD.
    pub(crate) mqd_dw: usize,
}

/// Declares the registers and the table in one go.
macro_rules! window {
    ($($name:ident = $offset:literal <=> $dw:literal;)*) => {
        $(
            #[doc = concat!("Mirrors MQD dword ", stringify!($dw), ".")]
            pub(crate) const $name: Reg = Reg::new(SEG0, $offset);
        )*

        /// The window in ascending order, which is also the order of loading.
        pub(crate) const WINDOW: &[HqdReg] = &[
            $(HqdReg { name: stringify!($name), reg: $name, mqd_dw: $dw },)*
        ];
    };
}

window! {
    CP_MQD_BASE_ADDR = 0x1245 <=> 128;
    CP_MQD_BASE_ADDR_HI = 0x1246 <=> 129;
    CP_HQD_ACTIVE = 0x1247 <=> 130;
    CP_HQD_VMID = 0x1248 <=> 131;
    CP_HQD_PERSISTENT_STATE = 0x1249 <=> 132;
    CP_HQD_PIPE_PRIORITY = 0x124a <=> 133;
    CP_HQD_QUEUE_PRIORITY = 0x124b <=> 134;
    CP_HQD_QUANTUM = 0x124c <=> 135;
    CP_HQD_PQ_BASE = 0x124d <=> 136;
    CP_HQD_PQ_BASE_HI = 0x124e <=> 137;
    CP_HQD_PQ_RPTR = 0x124f <=> 138;
    CP_HQD_PQ_RPTR_REPORT_ADDR = 0x1250 <=> 139;
    CP_HQD_PQ_RPTR_REPORT_ADDR_HI = 0x1251 <=> 140;
    CP_HQD_PQ_WPTR_POLL_ADDR = 0x1252 <=> 141;
    CP_HQD_PQ_WPTR_POLL_ADDR_HI = 0x1253 <=> 142;
    CP_HQD_PQ_DOORBELL_CONTROL = 0x1254 <=> 143;
    CP_HQD_PQ_CONTROL = 0x1256 <=> 145;
    CP_HQD_IB_BASE_ADDR = 0x1257 <=> 146;
    CP_HQD_IB_BASE_ADDR_HI = 0x1258 <=> 147;
    CP_HQD_IB_RPTR = 0x1259 <=> 148;
    CP_HQD_IB_CONTROL = 0x125a <=> 149;
    CP_HQD_IQ_TIMER = 0x125b <=> 150;
    CP_HQD_IQ_RPTR = 0x125c <=> 151;
    CP_HQD_DEQUEUE_REQUEST = 0x125d <=> 152;
    CP_HQD_DMA_OFFLOAD = 0x125e <=> 153;
    CP_HQD_SEMA_CMD = 0x125f <=> 154;
    CP_HQD_MSG_TYPE = 0x1260 <=> 155;
    CP_HQD_ATOMIC0_PREOP_LO = 0x1261 <=> 156;
    CP_HQD_ATOMIC0_PREOP_HI = 0x1262 <=> 157;
    CP_HQD_ATOMIC1_PREOP_LO = 0x1263 <=> 158;
    CP_HQD_ATOMIC1_PREOP_HI = 0x1264 <=> 159;
    CP_HQD_HQ_STATUS0 = 0x1265 <=> 160;
    CP_HQD_HQ_CONTROL0 = 0x1266 <=> 161;
    CP_MQD_CONTROL = 0x1267 <=> 162;
    CP_HQD_HQ_STATUS1 = 0x1268 <=> 163;
    CP_HQD_HQ_CONTROL1 = 0x1269 <=> 164;
    CP_HQD_EOP_BASE_ADDR = 0x126a <=> 165;
    CP_HQD_EOP_BASE_ADDR_HI = 0x126b <=> 166;
    CP_HQD_EOP_CONTROL = 0x126c <=> 167;
    CP_HQD_EOP_RPTR = 0x126d <=> 168;
    CP_HQD_EOP_WPTR = 0x126e <=> 169;
    CP_HQD_EOP_EVENTS = 0x126f <=> 170;
    CP_HQD_CTX_SAVE_BASE_ADDR_LO = 0x1270 <=> 171;
    CP_HQD_CTX_SAVE_BASE_ADDR_HI = 0x1271 <=> 172;
    CP_HQD_CTX_SAVE_CONTROL = 0x1272 <=> 173;
    CP_HQD_CNTL_STACK_OFFSET = 0x1273 <=> 174;
    CP_HQD_CNTL_STACK_SIZE = 0x1274 <=> 175;
    CP_HQD_WG_STATE_OFFSET = 0x1275 <=> 176;
    CP_HQD_CTX_SAVE_SIZE = 0x1276 <=> 177;
    CP_HQD_GDS_RESOURCE_STATE = 0x1277 <=> 178;
    CP_HQD_ERROR = 0x1278 <=> 179;
    CP_HQD_EOP_WPTR_MEM = 0x1279 <=> 180;
    CP_HQD_AQL_CONTROL = 0x127a <=> 181;
    CP_HQD_PQ_WPTR_LO = 0x127b <=> 182;
    CP_HQD_PQ_WPTR_HI = 0x127c <=> 183;
}

fields! {
    /// CP_HQD_ACTIVE.
    pub(crate) struct HqdActive {
        /// The slot fetches.
        ACTIVE [0:0];
        /// Busy gating.
        BUSY_GATE [1:1];
    }
}

fields! {
    /// CP_HQD_VMID.
    pub(crate) struct HqdVmid {
        /// VMID of the ring.
        VMID [3:0];
        /// VMID of indirect buffers.
        IB_VMID [11:8];
        /// Virtual queue id.
        VQID [25:16];
    }
}

fields! {
    /// CP_HQD_PERSISTENT_STATE.
    pub(crate) struct PersistentState {
        /// Preload shader state.
        PRELOAD_REQ [0:0];
        /// State to preload; 0x53 everywhere in the kernel.
        PRELOAD_SIZE [17:8];
        /// A restore runs.
        RESTORE_ACTIVE [28:28];
        /// Waves must be launched again.
        RELAUNCH_WAVES [29:29];
        /// Save waves on a queue switch (CWSR).
        QSWITCH_MODE [30:30];
        /// A dispatch runs.
        DISP_ACTIVE [31:31];
    }
}

fields! {
    /// CP_HQD_QUANTUM.
    pub(crate) struct HqdQuantum {
        /// Use the quantum.
        EN [0:0];
        /// Unit.
        SCALE [4:4];
        /// Length.
        DURATION [13:8];
        /// Running.
        ACTIVE [31:31];
    }
}

fields! {
    /// CP_HQD_PQ_DOORBELL_CONTROL.
    pub(crate) struct DoorbellControl {
        /// Mode.
        MODE [0:0];
        /// Drop doorbells in the bus interface.
        BIF_DROP [1:1];
        /// Dword index in BAR2.
        OFFSET [27:2];
        /// Source.
        SOURCE [28:28];
        /// Scheduler hit.
        SCHD_HIT [29:29];
        /// Doorbell in use.
        EN [30:30];
        /// A doorbell arrived.
        HIT [31:31];
    }
}

fields! {
    /// CP_HQD_PQ_CONTROL.
    pub(crate) struct PqControl {
        /// Ring of 2^(n+1) dwords.
        QUEUE_SIZE [5:0];
        /// Write pointer carry.
        WPTR_CARRY [6:6];
        /// Read pointer carry.
        RPTR_CARRY [7:7];
        /// Read pointer write-back granularity.
        RPTR_BLOCK_SIZE [13:8];
        /// Report a full queue.
        QUEUE_FULL_EN [14:14];
        /// Empty.
        PQ_EMPTY [15:15];
        /// Clamp the write pointer.
        WPP_CLAMP_EN [16:16];
        /// Endianness.
        ENDIAN_SWAP [18:17];
        /// Prefetch threshold.
        MIN_AVAIL_SIZE [21:20];
        /// Trusted memory (gfx942).
        TMZ [22:22];
        /// Stop executing.
        EXE_DISABLE [23:23];
        /// Cache policy.
        CACHE_POLICY [24:24];
        /// 2 = the write pointer counts 64-byte packets (AQL).
        SLOT_BASED_WPTR [26:25];
        /// Microcode, not hardware, keeps the read pointer (AQL).
        NO_UPDATE_RPTR [27:27];
        /// Dispatches may overlap.
        UNORD_DISPATCH [28:28];
        /// Fetch FIFO order.
        ROQ_PQ_IB_FLIP [29:29];
        /// Privileged queue.
        PRIV_STATE [30:30];
        /// Kernel queue.
        KMD_QUEUE [31:31];
    }
}

fields! {
    /// CP_HQD_IB_CONTROL: configuration and, while an indirect buffer runs, part of its state.
    pub(crate) struct IbControl {
        /// Size of the indirect buffer in dwords.
        IB_SIZE [19:0];
        /// Prefetch threshold.
        MIN_IB_AVAIL_SIZE [21:20];
        /// Set in descriptors of all but kernel rings, as amdkfd does; the headers name it and no source says more.
        IB_EXE_DISABLE [23:23];
        /// Cache policy.
        IB_CACHE_POLICY [24:24];
        /// An indirect buffer runs.
        PROCESSING_IB [31:31];
    }
}

fields! {
    /// CP_HQD_DEQUEUE_REQUEST.
    pub(crate) struct DequeueRequest {
        /// See the constants of this type.
        DEQUEUE_REQ [2:0];
        /// A request of the interrupt queue is pending.
        IQ_REQ_PEND [4:4];
        /// Interrupt when done.
        DEQUEUE_INT [8:8];
    }
}

impl DequeueRequest {
    /// No request.
    pub(crate) const NONE: Self = Self::new();
    /// Let running waves finish.
    pub(crate) const DRAIN: Self = Self::new().with(Self::DEQUEUE_REQ, 1);
    /// Kill running waves.
    pub(crate) const RESET_WAVES: Self = Self::new().with(Self::DEQUEUE_REQ, 2);
    /// Save running waves (CWSR).
    pub(crate) const SAVE_WAVES: Self = Self::new().with(Self::DEQUEUE_REQ, 3);
}

fields! {
    /// CP_HQD_EOP_RPTR.
    pub(crate) struct EopRptr {
        /// Read pointer.
        RPTR [12:0];
        /// Reset the fetcher.
        RESET_FETCHER [28:28];
        /// Dequeue pending.
        DEQUEUE_PEND [29:29];
        /// Equal to the write pointer.
        RPTR_EQ_CSMD_WPTR [30:30];
        /// Initialise the fetcher; set when a queue is loaded by registers.
        INIT_FETCHER [31:31];
    }
}

fields! {
    /// CP_HQD_EOP_CONTROL.
    pub(crate) struct EopControl {
        /// Ring of 2^(n+1) dwords; 0xA at most.
        EOP_SIZE [5:0];
        /// Processing.
        PROCESSING_EOP [8:8];
        /// Halt the fetcher.
        HALT_FETCHER [21:21];
    }
}

fields! {
    /// CP_HQD_HQ_STATUS0.
    pub(crate) struct HqStatus0 {
        /// Dequeue progress.
        DEQUEUE_STATUS [1:0];
        /// Dequeue retries.
        DEQUEUE_RETRY_CNT [3:2];
        /// Caches hold dirty lines.
        TCL2_DIRTY [8:8];
        /// Has the CP set up DISPATCH_PTR, for the debugger; set by KFD.
        SETUP_DISPATCH_PTR [14:14];
        /// Idle.
        QUEUE_IDLE [30:30];
        /// Doorbell update message.
        DB_UPDATED_MSG_EN [31:31];
    }
}

fields! {
    /// CP_HQD_AQL_CONTROL.
    pub(crate) struct AqlControl {
        /// 1 = AQL packets.
        CONTROL0 [14:0];
        /// Enable.
        CONTROL0_EN [15:15];
        /// Second value.
        CONTROL1 [30:16];
        /// Enable.
        CONTROL1_EN [31:31];
    }
}

fields! {
    /// CP_HQD_ERROR.
    pub(crate) struct HqdError {
        /// Error-correction source.
        EDC_ERROR_ID [3:0];
        /// Signal error.
        SUA_ERROR [4:4];
        /// AQL packet error.
        AQL_ERROR [5:5];
        /// Translation error at the ring.
        PQ_UTCL1_ERROR [8:8];
        /// Translation error at an indirect buffer.
        IB_UTCL1_ERROR [9:9];
        /// Translation error at the EOP buffer.
        EOP_UTCL1_ERROR [10:10];
        /// Translation error of the interrupt queue.
        IQ_UTCL1_ERROR [11:11];
        /// Translation error of the read pointer report.
        RRPT_UTCL1_ERROR [12:12];
        /// Translation error of the write pointer poll.
        WPP_UTCL1_ERROR [13:13];
        /// Translation error of a semaphore.
        SEM_UTCL1_ERROR [14:14];
        /// Translation error of a DMA source.
        DMA_SRC_UTCL1_ERROR [15:15];
        /// Translation error of a DMA destination.
        DMA_DST_UTCL1_ERROR [16:16];
        /// Translation error of save and restore.
        SR_UTCL1_ERROR [17:17];
        /// Translation error of a queue update.
        QU_UTCL1_ERROR [18:18];
        /// Translation error of a cache operation.
        TC_UTCL1_ERROR [19:19];
    }
}

fields! {
    /// CP_MQD_CONTROL.
    pub(crate) struct MqdControl {
        /// VMID of the MQD's address.
        VMID [3:0];
        /// Privileged accesses.
        PRIV_STATE [8:8];
        /// The MQD is being processed.
        PROCESSING_MQD [12:12];
        /// Stop.
        EXE_DISABLE [23:23];
    }
}
