// SPDX-License-Identifier: GPL-2.0

//! Graphics and compute block: GRBM, CP/MEC, SQ/SPI, GDS, RLC.
//!
//! Source: `gc_9_0_offset.h`, `gc_9_4_2_offset.h`, `gc_9_4_3_offset.h` and their `sh_mask`
//! companions; the three agree on everything here unless an item says otherwise. Registers marked
//! *banked* show the instance selected by [`GRBM_GFX_CNTL`].

use super::super::bits::fields;
use super::slot::Slot;
use super::Reg;

mod cp;
mod shader;
pub(crate) use cp::{
    scheduler_code,
    CpInt,
    CpMecCntl,
    CpcInt,
    HpdStatus0,
    IqWaitTime1,
    IqWaitTime2,
    MecDoorbellRange,
    PqStatus,
    PqWptrPollCntl,
    RlcCpSchedulers,
    UcodeAddr,
    SCHEDULER_VALID, //
};
pub(crate) use shader::{
    ComputePgmRsrc2,
    ComputeResourceLimits,
    ShMemBases,
    ShMemConfig,
    ShaderArrayConfig,
    SpiGdbgPerVmid,
    SqCmd,
    SqConfig1,
    TcpWatchCntl, //
};

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
    /// Busy bits of shader engine 1.
    GRBM_STATUS_SE1 = SEG0 + 0x0006;
    /// Busy bits of shader engine 2.
    GRBM_STATUS_SE2 = SEG0 + 0x000e;
    /// Busy bits of shader engine 3.
    GRBM_STATUS_SE3 = SEG0 + 0x000f;
    /// Block resets, see [`GrbmSoftReset`].
    GRBM_SOFT_RESET = SEG0 + 0x0008;
    /// Selects the queue slot or VMID that banked registers show, see [`GrbmGfxCntl`].
    GRBM_GFX_CNTL = SEG0 + 0x0022;
    /// MEC status.
    CP_CPC_STATUS = SEG0 + 0x0084;
    /// MEC busy detail.
    CP_CPC_BUSY_STAT = SEG0 + 0x0085;
    /// What the CPC waits for.
    CP_CPC_STALLED_STAT1 = SEG0 + 0x0086;
    /// MEC fetcher status.
    CP_CPF_STATUS = SEG0 + 0x0087;
    /// Parts of the CPF that work.
    CP_CPF_BUSY_STAT = SEG0 + 0x0088;
    /// What the CPF waits for.
    CP_CPF_STALLED_STAT1 = SEG0 + 0x0089;
    /// Halts and resets the MECs, see [`CpMecCntl`].
    CP_MEC_CNTL = SEG0 + 0x008d;
    /// Command processor status.
    CP_STAT = SEG0 + 0x01a0;
    /// What the CP waits for.
    CP_STALLED_STAT1 = SEG0 + 0x019d;
    /// What the CP waits for.
    CP_STALLED_STAT2 = SEG0 + 0x019e;
    /// What the CP waits for.
    CP_STALLED_STAT3 = SEG0 + 0x019c;
    /// Debug switches of the depth block, which compute devices lack.
    DB_DEBUG2 = SEG0 + 0x060d;
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
    /// Interrupt enables of the command processor as a whole, see [`CpInt`].
    CP_INT_CNTL_RING0 = SEG0 + 0x106a;
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

/// Name of a register of this block.
pub(super) fn name(reg: Reg) -> Option<&'static str> {
    let entry = NAMES.iter().find(|entry| entry.0 == reg)?;
    Some(entry.1)
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

impl Slot {
    /// Value of GRBM_GFX_CNTL that shows this slot.
    pub(crate) const fn select(self) -> GrbmGfxCntl {
        GrbmGfxCntl::new()
            .with(GrbmGfxCntl::MEID, self.me())
            .with(GrbmGfxCntl::PIPEID, self.pipe())
            .with(GrbmGfxCntl::QUEUEID, self.queue())
    }

    /// Code of this slot in RLC_CP_SCHEDULERS, valid bit included: 0xC8 for the KIQ.
    pub(crate) const fn scheduler_code(self) -> u32 {
        scheduler_code(self.me(), self.pipe(), self.queue()) | SCHEDULER_VALID
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
    /// GRBM_CNTL.
    pub(crate) struct GrbmCntl {
        /// Cycles until a register read is given up; 0xFF in the driver.
        READ_TIMEOUT [7:0];
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
