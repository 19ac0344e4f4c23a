// SPDX-License-Identifier: GPL-2.0

//! Words of shaders: their address modes, waves, watch points and compute units.

use super::super::super::bits::fields;
use super::super::super::num;

fields! {
    /// CC_GC_SHADER_ARRAY_CONFIG and GC_USER_SHADER_ARRAY_CONFIG.
    pub(crate) struct ShaderArrayConfig {
        /// One bit per physical compute unit of the array that does not work.
        INACTIVE_CUS [31:16];
    }
}

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
    /// SQ_CONFIG1 of gfx90a and gfx942.
    pub(crate) struct SqConfig1 {
        /// Leave the XNACK check to the scheduler, which then keeps modes apart.
        DISABLE_XNACK_CHECK_IN_RETRY_DISABLE [12:12];
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
