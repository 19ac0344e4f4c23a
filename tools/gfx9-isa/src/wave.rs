// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The state of one wave of 64 lanes.

use crate::env::Lanes;
use crate::inst::Asic;

/// Operand codes of scalar registers with a name.
pub mod reg {
    /// FLAT_SCRATCH_LO; the high half follows.
    pub const FLAT_SCRATCH: u8 = 102;
    /// XNACK_MASK_LO.
    pub const XNACK_MASK: u8 = 104;
    /// VCC_LO.
    pub const VCC: u8 = 106;
    /// The first trap temporary.
    pub const TTMP0: u8 = 108;
    /// M0.
    pub const M0: u8 = 124;
    /// EXEC_LO.
    pub const EXEC: u8 = 126;
}

/// Bits of STATUS.
pub mod status {
    /// The wave runs its trap handler.
    pub const PRIV: u32 = 1 << 5;
    /// The wave belongs to a group of several.
    pub const IN_TG: u32 = 1 << 11;
    /// The wave is halted.
    pub const HALT: u32 = 1 << 13;
    /// Conditional debug flag of the user.
    pub const COND_DBG_USER: u32 = 1 << 20;
    /// Conditional debug flag of the system.
    pub const COND_DBG_SYS: u32 = 1 << 21;
}

/// Bits of MODE beside rounding (3:0) and denormals (7:4).
pub mod mode {
    /// Clamping turns NaN into 0.
    pub const DX10_CLAMP: u32 = 1 << 8;
    /// Signalling NaNs are made quiet.
    pub const IEEE: u32 = 1 << 9;
    /// Finite overflow to 16 bits gives the greatest number.
    pub const FP16_OVFL: u32 = 1 << 23;
    /// Relative addressing of VGPRs.
    pub const GPR_IDX_EN: u32 = 1 << 27;
    /// Vector instructions are skipped.
    pub const VSKIP: u32 = 1 << 28;
}

/// Lanes of one register, aligned for vector units of the host.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Row(pub Lanes);

/// One wave.
#[derive(Clone)]
pub struct Wave {
    asic: Asic,
    /// Address of the next instruction.
    pub pc: u64,
    /// Scalar registers by operand code: SGPRs, VCC, trap temporaries, M0, EXEC.
    pub sgpr: [u32; 128],
    /// Scalar condition code.
    pub scc: bool,
    /// MODE.
    pub mode: u32,
    /// STATUS without the bits that are derived (SCC, EXECZ, VCCZ).
    pub status: u32,
    /// TRAPSTS.
    pub trapsts: u32,
    /// HW_ID.
    pub hw_id: u32,
    /// GPR_ALLOC.
    pub gpr_alloc: u32,
    /// LDS_ALLOC.
    pub lds_alloc: u32,
    /// IB_STS.
    pub ib_sts: u32,
    /// SH_MEM_BASES: the apertures of LDS (31:16) and private memory (15:0).
    pub sh_mem_bases: u32,
    /// TBA and TMA, as the registers have them (address >> 8).
    pub trap_base: [u32; 4],
    /// XCC_ID.
    pub xcc_id: u32,
    /// Whether 16-bit loads clear the other half of the register (chips with SRAM-ECC).
    pub d16_clears: bool,
    /// Allocated VGPRs and AccVGPRs.
    limits: [usize; 2],
    vgpr: Vec<Row>,
}

/// VGPRs of each kind that instructions can name.
const FILE: usize = 256;

impl Wave {
    /// A wave with all registers 0 and as many VGPRs as there can be.
    pub fn new(asic: Asic) -> Self {
        let files = if asic.has_acc() { 2 } else { 1 };
        Self {
            asic,
            pc: 0,
            sgpr: [0; 128],
            scc: false,
            mode: 0xC0 | 0x30 | mode::DX10_CLAMP | mode::IEEE,
            status: 0,
            trapsts: 0,
            hw_id: 0,
            gpr_alloc: 0,
            lds_alloc: 0,
            ib_sts: 0,
            sh_mem_bases: 0x0001_0002,
            trap_base: [0; 4],
            xcc_id: 0,
            d16_clears: asic.has_acc(),
            limits: [FILE, if asic.has_acc() { FILE } else { 0 }],
            vgpr: vec![Row([0; 64]); files * FILE],
        }
    }

    /// The ASIC.
    pub fn asic(&self) -> Asic {
        self.asic
    }

    /// Sets how many VGPRs and AccVGPRs are allocated; at most what the ASIC has.
    pub fn set_limits(&mut self, vgprs: usize, agprs: usize) {
        let agprs_most = if self.asic.has_acc() { FILE } else { 0 };
        self.limits = [vgprs.clamp(1, FILE), agprs.min(agprs_most)];
    }

    /// A pair of scalar registers.
    pub fn pair(&self, code: u8) -> u64 {
        let at = |code: u8| u64::from(self.sgpr[usize::from(code & 127)]);
        at(code) | at(code.wrapping_add(1)) << 32
    }

    /// Writes a pair of scalar registers.
    pub fn set_pair(&mut self, code: u8, value: u64) {
        self.sgpr[usize::from(code & 127)] = value as u32;
        self.sgpr[usize::from(code.wrapping_add(1) & 127)] = (value >> 32) as u32;
    }

    /// EXEC: the active lanes.
    pub fn exec(&self) -> u64 {
        self.pair(reg::EXEC)
    }

    /// VCC.
    pub fn vcc(&self) -> u64 {
        self.pair(reg::VCC)
    }

    /// M0.
    pub fn m0(&self) -> u32 {
        self.sgpr[usize::from(reg::M0)]
    }

    /// Whether the wave runs its trap handler.
    pub fn privileged(&self) -> bool {
        self.status & status::PRIV != 0
    }

    /// STATUS with its derived bits.
    pub fn full_status(&self) -> u32 {
        let flag = |on: bool, bit: u32| u32::from(on) << bit;
        let derived = 1 | 1 << 9 | 1 << 10;
        self.status & !derived
            | flag(self.scc, 0)
            | flag(self.exec() == 0, 9)
            | flag(self.vcc() == 0, 10)
    }

    /// A VGPR (`acc`: AccVGPR) as source; what is not allocated reads as the first.
    pub fn vgpr(&self, number: usize, acc: bool) -> &Lanes {
        let limit = self.limits[usize::from(acc)];
        let number = if number < limit { number } else { 0 };
        let at = number + if acc && self.asic.has_acc() { FILE } else { 0 };
        &self.vgpr[at].0
    }

    /// A VGPR (`acc`: AccVGPR) as destination; `None` if it is not allocated: such writes are dropped.
    pub fn vgpr_mut(&mut self, number: usize, acc: bool) -> Option<&mut Lanes> {
        if number >= self.limits[usize::from(acc)] {
            return None;
        }
        let at = number + if acc { FILE } else { 0 };
        self.vgpr.get_mut(at).map(|row| &mut row.0)
    }

    /// Writes the lanes in `lanes`.
    pub fn write_vgpr(&mut self, number: usize, acc: bool, lanes: u64, value: &Lanes) {
        let Some(register) = self.vgpr_mut(number, acc) else {
            return;
        };
        if lanes == u64::MAX {
            *register = *value;
            return;
        }
        for (at, (old, new)) in register.iter_mut().zip(value).enumerate() {
            let keep = ((lanes >> at & 1) as u32).wrapping_sub(1);
            *old = (*old & keep) | (new & !keep);
        }
    }
}
