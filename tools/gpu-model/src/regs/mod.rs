// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Storage of the register file: plain registers and the banks that GRBM_GFX_CNTL and GRBM_GFX_INDEX select.
//!
//! Numbers are absolute dword indices, offsets as in the gc_9_0, nbio_7_4, mp and athub headers of Linux.

pub mod array;
pub mod dispatch;

use std::collections::HashMap;

/// Bytes of BAR5.
pub const BAR5_SIZE: u64 = 512 * 1024;
const DWORDS: usize = 0x2_0000;

/// GC registers (segment 0 at 0x2000, segment 1 at 0xA000).
#[expect(missing_docs, reason = "hardware names")]
pub mod gc {
    pub const GRBM_SOFT_RESET: u32 = 0x2008;
    pub const GRBM_GFX_CNTL: u32 = 0x2022;
    pub const CP_MEC_CNTL: u32 = 0x208D;
    pub const CC_GC_SHADER_ARRAY_CONFIG: u32 = 0x226F;
    pub const GC_USER_SHADER_ARRAY_CONFIG: u32 = 0x2270;
    pub const SH_MEM_BASES: u32 = 0x230A;
    pub const SH_MEM_CONFIG: u32 = 0x230D;
    pub const SQ_SHADER_TBA_LO: u32 = 0x231C;
    pub const SQ_SHADER_TMA_HI: u32 = 0x231F;
    pub const SQ_CMD: u32 = 0x237B;
    pub const SPI_CSQ_WF_ACTIVE_STATUS: u32 = 0x24DB;
    pub const GB_ADDR_CONFIG: u32 = 0x263E;
    pub const COMPUTE_FIRST: u32 = 0x2E00;
    pub const COMPUTE_LAST: u32 = 0x2E7F;
    pub const CP_INT_CNTL_RING0: u32 = 0x306A;
    pub const CP_PQ_WPTR_POLL_CNTL: u32 = 0x3083;
    pub const CP_PQ_WPTR_POLL_CNTL1: u32 = 0x3084;
    pub const CP_ME1_PIPE0_INT_CNTL: u32 = 0x3085;
    pub const CP_ME2_PIPE3_INT_CNTL: u32 = 0x308C;
    pub const CP_IQ_WAIT_TIME1: u32 = 0x30AF;
    pub const CP_IQ_WAIT_TIME2: u32 = 0x30B0;
    pub const CPC_INT_CNTL: u32 = 0x30B4;
    pub const CPC_INT_STATUS: u32 = 0x30B5;
    pub const CP_PQ_STATUS: u32 = 0x30B8;
    pub const SPI_GDBG_PER_VMID_CNTL: u32 = 0x31D3;
    pub const SPI_COMPUTE_QUEUE_RESET: u32 = 0x31DB;
    pub const CP_HPD_STATUS0: u32 = 0x3241;
    pub const HQD_FIRST: u32 = 0x3245;
    pub const HQD_LAST: u32 = 0x327F;
    pub const TCP_WATCH0_CNTL: u32 = 0x32A2;
    pub const SCRATCH_REG0: u32 = 0xC040;
    pub const GRBM_GFX_INDEX: u32 = 0xC200;
    pub const RLC_SAFE_MODE: u32 = 0xEC05;
    pub const RLC_GPU_CLOCK_COUNT_LSB: u32 = 0xEC24;
    pub const RLC_GPU_CLOCK_COUNT_MSB: u32 = 0xEC25;
    pub const RLC_CAPTURE_GPU_CLOCK_COUNT: u32 = 0xEC26;
    pub const RLC_CP_SCHEDULERS: u32 = 0xECAA;
    pub const CP_MEC_ME1_UCODE_ADDR: u32 = 0xF81A;
}

/// NBIO registers outside segment 2, and offsets inside it.
#[expect(missing_docs, reason = "hardware names")]
pub mod nbio {
    pub const MM_INDEX: u32 = 0x00;
    pub const MM_DATA: u32 = 0x01;
    pub const MM_INDEX_HI: u32 = 0x06;
    pub const PCIE_INDEX: u32 = 0x0C;
    pub const PCIE_DATA: u32 = 0x0D;
    pub const PCIE_INDEX2: u32 = 0x0E;
    pub const PCIE_DATA2: u32 = 0x0F;
    pub const PCIE_INDEX2_HI: u32 = 0x11;
    /// The first of 16 that firmware of the board leaves its state in (segment 1 at 0x14).
    pub const BIOS_SCRATCH_0: u32 = 0x4C;
    pub const BIOS_SCRATCH_7: u32 = BIOS_SCRATCH_0 + 7;
    pub const DOORBELL_APER_EN: u32 = 0xC0;
    pub const CONFIG_MEMSIZE: u32 = 0xC3;
    pub const SELFRING_HIGH: u32 = 0xF3;
    pub const SELFRING_LOW: u32 = 0xF4;
    pub const SELFRING_CNTL: u32 = 0xF5;
    pub const HDP_MEM_COHERENCY_FLUSH: u32 = 0xF7;
    pub const BIF_FB_EN: u32 = 0xFF;
    pub const GPU_HDP_FLUSH_REQ: u32 = 0x106;
    pub const GPU_HDP_FLUSH_DONE: u32 = 0x107;
    pub const REMAP_HDP_MEM_FLUSH: u32 = 0x12D;
    pub const REMAP_HDP_REG_FLUSH: u32 = 0x12E;
}

/// Mailbox registers, offsets from the MP0/MP1 base.
#[expect(missing_docs, reason = "hardware names")]
pub mod mp {
    pub const MP0_C2PMSG_33: u32 = 0x61;
    pub const MP0_C2PMSG_35: u32 = 0x63;
    pub const MP0_C2PMSG_64: u32 = 0x80;
    pub const MP0_C2PMSG_81: u32 = 0x91;
    pub const MP1_C2PMSG_66: u32 = 0x282;
    pub const MP1_C2PMSG_82: u32 = 0x292;
    pub const MP1_C2PMSG_90: u32 = 0x29A;
}

/// ATHUB offsets.
#[expect(missing_docs, reason = "hardware names")]
pub mod athub {
    pub const UPDATE_STATUS: u32 = 0x0B;
    pub const VMID_PASID: u32 = 0x0C;
    pub const VMID_PASID_MM: u32 = 0x3D;
    pub const VALID: u32 = 1 << 31;
}

/// Indices of the registers that exist once per VMID.
#[expect(missing_docs, reason = "hardware names")]
pub mod sh_mem {
    pub const BASES: usize = 0;
    pub const CONFIG: usize = 1;
    pub const TBA_LO: usize = 2;
    pub const TBA_HI: usize = 3;
    pub const TMA_LO: usize = 4;
    pub const TMA_HI: usize = 5;
    pub const GDBG: usize = 6;
    pub const COUNT: usize = 7;
}

/// SH registers: each queue has its own (`PACKET3_SET_SH_REG_START` and `_END` of Linux).
pub fn is_sh_register(r: u32) -> bool {
    (0x2C00..0x3000).contains(&r)
}

/// User-config registers, which any queue may touch (`PACKET3_SET_UCONFIG_REG_START`).
pub fn is_user_register(r: u32) -> bool {
    (0xC000..0xD000).contains(&r)
}

/// Most shader engines of an ASIC.
const MAX_ENGINES: usize = 8;

/// SH_MEM_CONFIG.RETRY_DISABLE.
pub const RETRY_DISABLE: u32 = 1 << 12;

/// Indirect registers (outside BAR5) that are remembered at most.
const MAX_INDIRECT: usize = 4096;

/// Register storage.
#[derive(Debug)]
pub struct RegFile {
    plain: Vec<u32>,
    per_vmid: [[u32; sh_mem::COUNT]; 16],
    int_cntl: [u32; 8],
    user_array_config: [u32; MAX_ENGINES],
    indirect: HashMap<u64, u32>,
    /// 64-bit clock captured by RLC_CAPTURE_GPU_CLOCK_COUNT.
    pub clock_capture: u64,
}

impl Default for RegFile {
    fn default() -> Self {
        Self {
            plain: vec![0; DWORDS],
            per_vmid: [[0; sh_mem::COUNT]; 16],
            int_cntl: [0; 8],
            user_array_config: [0; MAX_ENGINES],
            indirect: HashMap::new(),
            clock_capture: 0,
        }
    }
}

impl RegFile {
    /// Stored value of a register.
    pub fn plain(&self, r: u32) -> u32 {
        self.plain.get(r as usize).copied().unwrap_or(0)
    }

    /// Stores a register.
    pub fn set_plain(&mut self, r: u32, v: u32) {
        if let Some(d) = self.plain.get_mut(r as usize) {
            *d = v;
        }
    }

    /// A per-VMID register, by its index in [`sh_mem`].
    pub fn per_vmid(&self, vmid: u8, i: usize) -> u32 {
        self.per_vmid
            .get(usize::from(vmid))
            .and_then(|b| b.get(i))
            .copied()
            .unwrap_or(0)
    }

    /// Stores a per-VMID register.
    pub fn set_per_vmid(&mut self, vmid: u8, i: usize, v: u32) {
        if let Some(d) = self
            .per_vmid
            .get_mut(usize::from(vmid))
            .and_then(|b| b.get_mut(i))
        {
            *d = v;
        }
    }

    /// CPC_INT_CNTL of a pipe (0..=3 MEC1, 4..=7 MEC2).
    pub fn int_cntl(&self, pipe: usize) -> u32 {
        self.int_cntl.get(pipe).copied().unwrap_or(0)
    }

    /// Stores CPC_INT_CNTL of a pipe.
    pub fn set_int_cntl(&mut self, pipe: usize, v: u32) {
        if let Some(d) = self.int_cntl.get_mut(pipe) {
            *d = v;
        }
    }

    /// GC_USER_SHADER_ARRAY_CONFIG of an engine.
    pub fn user_array_config(&self, engine: usize) -> u32 {
        self.user_array_config.get(engine).copied().unwrap_or(0)
    }

    /// Stores GC_USER_SHADER_ARRAY_CONFIG of an engine.
    pub fn set_user_array_config(&mut self, engine: usize, v: u32) {
        if let Some(d) = self.user_array_config.get_mut(engine) {
            *d = v;
        }
    }

    /// A register beyond BAR5, by byte address.
    pub fn indirect(&self, addr: u64) -> u32 {
        self.indirect.get(&addr).copied().unwrap_or(0)
    }

    /// Stores a register beyond BAR5.
    pub fn set_indirect(&mut self, addr: u64, v: u32) {
        if self.indirect.len() < MAX_INDIRECT || self.indirect.contains_key(&addr) {
            self.indirect.insert(addr, v);
        }
    }
}
