// SPDX-License-Identifier: GPL-2.0

//! Graphics and compute block: GRBM, CP/MEC, SQ/SPI, GDS, RLC.
//!
//! Source: `gc_9_0_offset.h`, `gc_9_4_2_offset.h`, `gc_9_4_3_offset.h` and their `sh_mask`
//! companions; the three agree on everything here unless an item says otherwise. Registers marked
//! *banked* show the instance selected by [`GRBM_GFX_CNTL`].

use super::super::bits::fields;
use super::super::num;
use super::Reg;

/// Dword base of GC segment 0.
pub(crate) const SEG0: u32 = 0x2000;
/// Dword base of GC segment 1 (context and user-config space).
pub(crate) const SEG1: u32 = 0xA000;

/// Absolute dword at which SET_SH_REG counts from.
pub(crate) const SH_SPACE: u32 = 0x2C00;
/// First dword after the SH space.
pub(crate) const SH_SPACE_END: u32 = 0x3000;
/// Absolute dword at which SET_UCONFIG_REG counts from.
pub(crate) const UCONFIG_SPACE: u32 = 0xC000;
/// First dword after the user-config space.
pub(crate) const UCONFIG_SPACE_END: u32 = 0x1_0000;
/// Absolute dword at which SET_CONFIG_REG counts from.
pub(crate) const CONFIG_SPACE: u32 = 0x2000;

/// Declares registers and, beside them, the table that [`name`] searches.
macro_rules! gc_regs {
    ($($(#[$meta:meta])* $name:ident = $base:ident + $offset:literal;)*) => {
        $(
            $(#[$meta])*
            pub(crate) const $name: Reg = Reg::new($base, $offset);
        )*

        /// Names of the registers above, for dumps.
        const NAMES: &[(Reg, &str)] = &[$(($name, stringify!($name))),*];
    };
}

gc_regs! {
    /// Read time-out, see [`GrbmCntl`].
    GRBM_CNTL = SEG0 + 0x0000;
    /// Busy bits of RLC, CP front ends and TC.
    GRBM_STATUS2 = SEG0 + 0x0002;
    /// Busy bits of the graphics pipe.
    GRBM_STATUS = SEG0 + 0x0004;
    /// Busy bits of shader engine 0.
    GRBM_STATUS_SE0 = SEG0 + 0x0005;
    /// Block resets, see [`GrbmSoftReset`].
    GRBM_SOFT_RESET = SEG0 + 0x0008;
    /// Selects the queue slot or VMID that banked registers show, see [`GrbmGfxCntl`].
    GRBM_GFX_CNTL = SEG0 + 0x0022;
    /// MEC status.
    CP_CPC_STATUS = SEG0 + 0x0084;
    /// MEC busy detail.
    CP_CPC_BUSY_STAT = SEG0 + 0x0085;
    /// MEC fetcher status.
    CP_CPF_STATUS = SEG0 + 0x0087;
    /// Halts and resets the MECs, see [`CpMecCntl`].
    CP_MEC_CNTL = SEG0 + 0x008d;
    /// Command processor status.
    CP_STAT = SEG0 + 0x01a0;
    /// Halts the graphics micro engines.
    CP_ME_CNTL = SEG0 + 0x01b6;
    /// Fused-off compute units per shader array, see [`ShaderArrayConfig`]; banked by GRBM_GFX_INDEX.
    CC_GC_SHADER_ARRAY_CONFIG = SEG0 + 0x026f;
    /// Compute units that software switched off, see [`ShaderArrayConfig`]; banked by GRBM_GFX_INDEX.
    GC_USER_SHADER_ARRAY_CONFIG = SEG0 + 0x0270;
    /// Banked by VMID, see [`ShMemBases`].
    SH_MEM_BASES = SEG0 + 0x030a;
    /// Banked by VMID, see [`ShMemConfig`].
    SH_MEM_CONFIG = SEG0 + 0x030d;
    /// XNACK check override, see [`SqConfig1`]; gfx90a and gfx942 only.
    SQ_CONFIG1 = SEG0 + 0x037a;
    /// Trap handler address >> 8, low half; banked by VMID.
    SQ_SHADER_TBA_LO = SEG0 + 0x031c;
    /// Trap handler address >> 8, high half; banked by VMID.
    SQ_SHADER_TBA_HI = SEG0 + 0x031d;
    /// Trap handler memory >> 8, low half; banked by VMID.
    SQ_SHADER_TMA_LO = SEG0 + 0x031e;
    /// Trap handler memory >> 8, high half; banked by VMID.
    SQ_SHADER_TMA_HI = SEG0 + 0x031f;
    /// Index of the indirect wave state window.
    SQ_IND_INDEX = SEG0 + 0x0378;
    /// Data of the indirect wave state window.
    SQ_IND_DATA = SEG0 + 0x0379;
    /// Wave control, see [`SqCmd`].
    SQ_CMD = SEG0 + 0x037b;
    /// Wave slot occupancy.
    SPI_CSQ_WF_ACTIVE_STATUS = SEG0 + 0x04db;
    /// Active waves of queue 0.
    SPI_CSQ_WF_ACTIVE_COUNT_0 = SEG0 + 0x04dc;
    /// Address swizzle configuration.
    GB_ADDR_CONFIG = SEG0 + 0x063e;
    /// CPC interrupt detail.
    CPC_INT_INFO = SEG0 + 0x1037;
    /// First doorbell (byte offset) that wakes the MEC, see [`MecDoorbellRange`].
    CP_MEC_DOORBELL_RANGE_LOWER = SEG0 + 0x105c;
    /// Last doorbell (byte offset) that wakes the MEC, see [`MecDoorbellRange`].
    CP_MEC_DOORBELL_RANGE_UPPER = SEG0 + 0x105d;
    /// Periodic polling of write pointers, see [`PqWptrPollCntl`].
    CP_PQ_WPTR_POLL_CNTL = SEG0 + 0x1083;
    /// One-shot poll of the slots in the mask, bit = pipe * 8 + queue.
    CP_PQ_WPTR_POLL_CNTL1 = SEG0 + 0x1084;
    /// Interrupt enables of MEC1 pipe 0, see [`CpcInt`]; pipes 1 to 3 follow.
    CP_ME1_PIPE0_INT_CNTL = SEG0 + 0x1085;
    /// Interrupt enables of MEC2 pipe 0, see [`CpcInt`].
    CP_ME2_PIPE0_INT_CNTL = SEG0 + 0x1089;
    /// Offload waits, see [`IqWaitTime1`].
    CP_IQ_WAIT_TIME1 = SEG0 + 0x10af;
    /// Dequeue waits, see [`IqWaitTime2`].
    CP_IQ_WAIT_TIME2 = SEG0 + 0x10b0;
    /// Interrupt enables of the selected pipe, see [`CpcInt`]; banked.
    CPC_INT_CNTL = SEG0 + 0x10b4;
    /// Interrupt status, see [`CpcInt`]; writing GENERIC2 raises source 178.
    CPC_INT_STATUS = SEG0 + 0x10b5;
    /// Context id of a CPC interrupt.
    CPC_INT_CNTX_ID = SEG0 + 0x10b7;
    /// Doorbell enable of the MEC, see [`PqStatus`].
    CP_PQ_STATUS = SEG0 + 0x10b8;
    /// Instruction cache control of the MEC.
    CP_CPC_IC_BASE_CNTL = SEG0 + 0x10bb;
    /// Wave launch control of the debugger.
    SPI_GDBG_WAVE_CNTL = SEG0 + 0x11d1;
    /// Trap configuration of the debugger.
    SPI_GDBG_TRAP_CONFIG = SEG0 + 0x11d2;
    /// Debug control, banked by VMID, see [`SpiGdbgPerVmid`]. gfx906 has SPI_GDBG_TRAP_MASK here.
    SPI_GDBG_PER_VMID_CNTL = SEG0 + 0x11d3;
    /// Writing 1 resets the selected queue; banked.
    SPI_COMPUTE_QUEUE_RESET = SEG0 + 0x11db;
    /// Fetch FIFO partition of the selected pipe; banked.
    CP_HPD_ROQ_OFFSETS = SEG0 + 0x1240;
    /// State of the selected pipe, see [`HpdStatus0`]; banked.
    CP_HPD_STATUS0 = SEG0 + 0x1241;
    /// First of four watch points, three registers (address high, low, control) each.
    TCP_WATCH0_ADDR_H = SEG0 + 0x12a0;
    /// Low half of the watch address.
    TCP_WATCH0_ADDR_L = SEG0 + 0x12a1;
    /// Control of watch point 0.
    TCP_WATCH0_CNTL = SEG0 + 0x12a2;
    /// GDS base of VMID 0; base and size alternate, two dwords per VMID.
    GDS_VMID0_BASE = SEG0 + 0x1300;
    /// GDS size of VMID 0.
    GDS_VMID0_SIZE = SEG0 + 0x1301;
    /// Global wave sync range of VMID 0, one dword per VMID.
    GDS_GWS_VMID0 = SEG0 + 0x1320;
    /// Ordered append range of VMID 0, one dword per VMID.
    GDS_OA_VMID0 = SEG0 + 0x1330;
    /// Plain storage; the ring self-test writes it.
    SCRATCH_REG0 = SEG1 + 0x2040;
    /// Plain storage.
    SCRATCH_REG7 = SEG1 + 0x2047;
    /// Selects shader engine, array and instance, see [`GrbmGfxIndex`].
    GRBM_GFX_INDEX = SEG1 + 0x2200;
    /// RLC_ENABLE_F32 [0].
    RLC_CNTL = SEG1 + 0x4c00;
    /// RLC status.
    RLC_STAT = SEG1 + 0x4c04;
    /// Safe mode request, see [`RlcSafeMode`].
    RLC_SAFE_MODE = SEG1 + 0x4c05;
    /// Low half of the latched GPU clock.
    RLC_GPU_CLOCK_COUNT_LSB = SEG1 + 0x4c24;
    /// High half of the latched GPU clock.
    RLC_GPU_CLOCK_COUNT_MSB = SEG1 + 0x4c25;
    /// Writing 1 latches the GPU clock.
    RLC_CAPTURE_GPU_CLOCK_COUNT = SEG1 + 0x4c26;
    /// Power state of the graphics block.
    RLC_GPM_STAT = SEG1 + 0x4c40;
    /// Streaming performance monitor memory control.
    RLC_SPM_MC_CNTL = SEG1 + 0x4c71;
    /// Slots that hold schedulers, see [`RlcCpSchedulers`].
    RLC_CP_SCHEDULERS = SEG1 + 0x4caa;
    /// Where the microcode of MEC1 is loaded, see [`UcodeAddr`].
    CP_MEC_ME1_UCODE_ADDR = SEG1 + 0x581a;
}

/// Name of a register of this block or of the HQD window.
pub(crate) fn name(reg: Reg) -> Option<&'static str> {
    if let Some(entry) = NAMES.iter().find(|entry| entry.0 == reg) {
        return Some(entry.1);
    }
    super::hqd::WINDOW
        .iter()
        .find(|entry| entry.reg == reg)
        .map(|entry| entry.name)
}

/// GDS base register of `vmid`; its size register is the next one.
pub(crate) const fn gds_base(vmid: u32) -> Reg {
    GDS_VMID0_BASE.nth(2 * (vmid & 0xf))
}

/// Global wave sync register of `vmid`.
pub(crate) const fn gds_gws(vmid: u32) -> Reg {
    GDS_GWS_VMID0.nth(vmid & 0xf)
}

/// Ordered append register of `vmid`.
pub(crate) const fn gds_oa(vmid: u32) -> Reg {
    GDS_OA_VMID0.nth(vmid & 0xf)
}

/// Registers of watch point `n` (0 to 3): address high, address low, control.
pub(crate) const fn tcp_watch(n: u32) -> [Reg; 3] {
    let first = TCP_WATCH0_ADDR_H.nth(3 * (n & 3));
    [first, first.nth(1), first.nth(2)]
}

fields! {
    /// GRBM_GFX_CNTL: which slot and VMID banked registers show.
    pub(crate) struct GrbmGfxCntl {
        /// Pipe of the MEC.
        PIPEID [1:0];
        /// 1 = MEC1, 2 = MEC2.
        MEID [3:2];
        /// VMID for SH_MEM and SQ_SHADER registers.
        VMID [7:4];
        /// Queue of the pipe.
        QUEUEID [10:8];
    }
}

fields! {
    /// GRBM_GFX_INDEX: which shader engine, array and instance is addressed.
    pub(crate) struct GrbmGfxIndex {
        /// Instance in the array.
        INSTANCE [7:0];
        /// Shader array.
        SH [15:8];
        /// Shader engine.
        SE [23:16];
        /// All arrays.
        SH_BROADCAST [29:29];
        /// All instances.
        INSTANCE_BROADCAST [30:30];
        /// All engines.
        SE_BROADCAST [31:31];
    }
}

impl GrbmGfxIndex {
    /// All of shader engine `engine`, which has one array.
    pub(crate) const fn engine(engine: u32) -> Self {
        Self::new()
            .with(Self::SE, engine)
            .with(Self::INSTANCE_BROADCAST, 1)
    }

    /// Writes reach every instance: 0xE0000000, also the resting value.
    pub(crate) const BROADCAST: Self = Self::new()
        .with(Self::SH_BROADCAST, 1)
        .with(Self::INSTANCE_BROADCAST, 1)
        .with(Self::SE_BROADCAST, 1);
}

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
    /// CC_GC_SHADER_ARRAY_CONFIG and GC_USER_SHADER_ARRAY_CONFIG.
    pub(crate) struct ShaderArrayConfig {
        /// One bit per physical compute unit of the array that does not work.
        INACTIVE_CUS [31:16];
    }
}

fields! {
    /// GRBM_SOFT_RESET.
    pub(crate) struct GrbmSoftReset {
        /// Command processor.
        CP [0:0];
        /// Run list controller.
        RLC [2:2];
        /// Graphics block.
        GFX [16:16];
        /// Compute fetcher.
        CPF [17:17];
        /// Compute engines.
        CPC [18:18];
        /// Graphics front end.
        CPG [19:19];
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
    pub(crate) const fn reset_pipe(slot: super::hqd::Slot) -> Self {
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
    /// SH_MEM_CONFIG.
    pub(crate) struct ShMemConfig {
        /// 0 = 64-bit addresses.
        ADDRESS_MODE [0:0];
        /// 3 = unaligned access allowed.
        ALIGNMENT_MODE [4:3];
        /// 8-bit float mode (gfx942).
        F8_MODE [8:8];
        /// Precision mode (gfx942).
        PRECISION_MODE [9:9];
        /// XNACK off: accesses without a valid translation fault instead of being retried.
        RETRY_DISABLE [12:12];
        /// Private memory is not volatile.
        PRIVATE_NV [13:13];
    }
}

impl ShMemConfig {
    /// 64-bit addresses, unaligned access: 0x18.
    pub(crate) const BASE: Self = Self::new().with(Self::ALIGNMENT_MODE, 3);

    /// Value for a VM that retries faults (`xnack`) or not.
    pub(crate) const fn for_xnack(xnack: bool) -> Self {
        Self::BASE.with_flag(Self::RETRY_DISABLE, !xnack)
    }
}

fields! {
    /// SH_MEM_BASES: address bits 63 to 48 of the private and shared apertures.
    pub(crate) struct ShMemBases {
        /// Scratch aperture.
        PRIVATE_BASE [15:0];
        /// LDS aperture.
        SHARED_BASE [31:16];
    }
}

impl ShMemBases {
    /// The apertures of KFD processes: LDS at 1 << 48, scratch at 2 << 48, hence 0x00010002.
    pub(crate) const KFD: Self = Self::new()
        .with(Self::SHARED_BASE, 1)
        .with(Self::PRIVATE_BASE, 2);

    /// What the kernel writes to KFD VMIDs before the scheduler owns them: 0x60006000.
    pub(crate) const INITIAL: Self = Self::new()
        .with(Self::SHARED_BASE, 0x6000)
        .with(Self::PRIVATE_BASE, 0x6000);

    /// First address of the LDS aperture.
    pub(crate) const fn shared_aperture(self) -> u64 {
        num::widen(self.get(Self::SHARED_BASE)) << 48
    }

    /// First address of the scratch aperture.
    pub(crate) const fn private_aperture(self) -> u64 {
        num::widen(self.get(Self::PRIVATE_BASE)) << 48
    }
}

fields! {
    /// SQ_CMD: acts on waves.
    pub(crate) struct SqCmd {
        /// See the `CMD_` constants.
        CMD [2:0];
        /// See the `MODE_` constants.
        MODE [6:4];
        /// Restrict to VM_ID.
        CHECK_VMID [7:7];
        /// Operand.
        DATA [11:8];
        /// Wave slot.
        WAVE_ID [19:16];
        /// SIMD.
        SIMD_ID [21:20];
        /// Queue.
        QUEUE_ID [26:24];
        /// VMID.
        VM_ID [31:28];
    }
}

impl SqCmd {
    /// CMD: set halt.
    pub(crate) const CMD_SETHALT: u32 = 1;
    /// CMD: save context.
    pub(crate) const CMD_SAVECTX: u32 = 2;
    /// CMD: kill.
    pub(crate) const CMD_KILL: u32 = 3;
    /// CMD: enter debug mode.
    pub(crate) const CMD_DEBUG: u32 = 4;
    /// CMD: trap.
    pub(crate) const CMD_TRAP: u32 = 5;
    /// MODE: one wave.
    pub(crate) const MODE_SINGLE: u32 = 0;
    /// MODE: all waves.
    pub(crate) const MODE_BROADCAST: u32 = 1;

    /// Kills all waves of a VMID.
    pub(crate) const fn kill_vmid(vmid: u32) -> Self {
        Self::new()
            .with(Self::CMD, Self::CMD_KILL)
            .with(Self::MODE, Self::MODE_BROADCAST)
            .with(Self::VM_ID, vmid & 0xf)
    }
}

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

fields! {
    /// SPI_GDBG_PER_VMID_CNTL of gfx90a and gfx942.
    pub(crate) struct SpiGdbgPerVmid {
        /// Stop launching waves.
        STALL_VMID [0:0];
        /// How waves start: 0 normal, 1 halted, 2 killed, 3 single step.
        LAUNCH_MODE [2:1];
        /// Trap handler enable.
        TRAP_EN [3:3];
        /// Exception enables.
        EXCP_EN [12:4];
        /// Replace the shader's exception enables instead of adding to them.
        EXCP_REPLACE [13:13];
        /// Trap when a wave starts.
        TRAP_ON_START [14:14];
        /// Trap when a wave ends.
        TRAP_ON_END [15:15];
    }
}

fields! {
    /// RLC_SAFE_MODE.
    pub(crate) struct RlcSafeMode {
        /// Request; the RLC clears it when done.
        CMD [0:0];
        /// 1 enter, 0 leave.
        MESSAGE [4:1];
        /// Answer.
        RESPONSE [11:8];
    }
}

impl RlcSafeMode {
    /// Request to enter safe mode.
    pub(crate) const ENTER: Self = Self::new().with(Self::CMD, 1).with(Self::MESSAGE, 1);
    /// Request to leave safe mode.
    pub(crate) const LEAVE: Self = Self::new().with(Self::CMD, 1);
}

fields! {
    /// SQ_CONFIG1 of gfx90a and gfx942.
    pub(crate) struct SqConfig1 {
        /// Leave the XNACK check to the scheduler, which then keeps modes apart.
        DISABLE_XNACK_CHECK_IN_RETRY_DISABLE [12:12];
    }
}

fields! {
    /// GRBM_CNTL.
    pub(crate) struct GrbmCntl {
        /// Cycles until a register read is given up; 0xFF in the driver.
        READ_TIMEOUT [7:0];
    }
}

fields! {
    /// TCP_WATCHn_CNTL.
    pub(crate) struct TcpWatchCntl {
        /// Address mask.
        MASK [23:0];
        /// Watched VMID.
        VMID [27:24];
        /// Match translated addresses.
        ATC [28:28];
        /// 0 reads, 1 non-reads, 2 atomics, 3 all.
        MODE [30:29];
        /// In use.
        VALID [31:31];
    }
}

fields! {
    /// COMPUTE_PGM_RSRC2, as far as the MQD carries it.
    pub(crate) struct ComputePgmRsrc2 {
        /// Scratch in use.
        SCRATCH_EN [0:0];
        /// User SGPRs.
        USER_SGPR [5:1];
        /// A trap handler exists.
        TRAP_PRESENT [6:6];
    }
}

fields! {
    /// COMPUTE_RESOURCE_LIMITS, as far as the MQD carries it.
    pub(crate) struct ComputeResourceLimits {
        /// Spread waves over SIMDs by force; GWS queues from GC 9.4.2 on.
        FORCE_SIMD_DIST [23:23];
    }
}

fields! {
    /// GRBM_STATUS, the bits that choose a soft reset.
    pub(crate) struct GrbmStatus {
        /// Texture addresser.
        TA_BUSY [14:14];
        /// Global data share.
        GDS_BUSY [15:15];
        /// Shader processor input.
        SPI_BUSY [22:22];
        /// Command processor coherency.
        CP_COHERENCY_BUSY [28:28];
        /// Command processor.
        CP_BUSY [29:29];
        /// Anything.
        GUI_ACTIVE [31:31];
    }
}
