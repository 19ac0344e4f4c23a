// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Scalar ALU, program control and scalar memory.

use super::bits;
use super::DecodeError;
use super::Fields;
use crate::inst::Ext;
use crate::inst::Inst;
use crate::inst::Mem;
use crate::inst::Operand;
use crate::tables::Ty;

impl Fields<'_> {
    /// Takes the literal, if an operand is one.
    fn with_literal(&self, mut inst: Inst) -> Result<Inst, DecodeError> {
        if inst.src.contains(&Operand::Literal) {
            inst.literal = self.high()?;
            inst.size = 8;
        }
        Ok(inst)
    }

    pub(super) fn sop1(&self) -> Result<Inst, DecodeError> {
        let mut inst = self.inst(4);
        if self.row.dst[0] != Ty::None {
            inst.dst = self.sdst(bits(self.low, 22, 16), self.row.dst[0].regs())?;
        }
        if self.row.src[0] != Ty::None {
            inst.src[0] = self.ssrc(bits(self.low, 7, 0), self.row.src[0].regs())?;
        }
        if matches!(
            self.row.name,
            "s_movrels_b32" | "s_movrels_b64" | "s_setpc_b64" | "s_rfe_b64" | "s_cbranch_join"
        ) {
            self.need(matches!(inst.src[0], Operand::S(_)), "SSRC0")?;
        }
        self.with_literal(inst)
    }

    pub(super) fn sop2(&self) -> Result<Inst, DecodeError> {
        let mut inst = self.inst(4);
        if self.row.dst[0] != Ty::None {
            inst.dst = self.sdst(bits(self.low, 22, 16), self.row.dst[0].regs())?;
        }
        inst.src[0] = self.ssrc(bits(self.low, 7, 0), self.row.src[0].regs())?;
        inst.src[1] = self.ssrc(bits(self.low, 15, 8), self.row.src[1].regs())?;
        self.with_literal(inst)
    }

    pub(super) fn sopc(&self) -> Result<Inst, DecodeError> {
        let mut inst = self.inst(4);
        inst.src[0] = self.ssrc(bits(self.low, 7, 0), self.row.src[0].regs())?;
        if self.row.src[1] == Ty::GprIdx {
            inst.imm = bits(self.low, 15, 8) as i32;
        } else {
            inst.src[1] = self.ssrc(bits(self.low, 15, 8), self.row.src[1].regs())?;
        }
        self.with_literal(inst)
    }

    pub(super) fn sopk(&self) -> Result<Inst, DecodeError> {
        let mut inst = self.inst(4);
        inst.imm = i32::from(self.low as u16 as i16);
        let place = bits(self.low, 22, 16);
        if self.row.dst[0] != Ty::None {
            inst.dst = self.sdst(place, self.row.dst[0].regs())?;
        }
        for at in 0..2 {
            match self.row.src[at] {
                Ty::B32 | Ty::B64 => inst.src[at] = self.sdst(place, self.row.src[at].regs())?,
                Ty::Literal => inst.src[at] = Operand::Literal,
                _ => {}
            }
        }
        self.with_literal(inst)
    }

    pub(super) fn sopp(&self) -> Result<Inst, DecodeError> {
        let mut inst = self.inst(4);
        inst.imm = i32::from(self.low as u16 as i16);
        let none = self.row.src[0] == Ty::None;
        self.need(!none || inst.imm == 0, "SIMM16")?;
        Ok(inst)
    }

    pub(super) fn smem(&self) -> Result<Inst, DecodeError> {
        let high = self.high()?;
        let mut inst = self.inst(8);
        let row = self.row;
        let mut mem = Mem {
            glc: bits(self.low, 16, 16) != 0,
            imm: bits(self.low, 17, 17) != 0,
            ..Mem::default()
        };
        let data = bits(self.low, 12, 6);
        let has_data = row.dst[0] != Ty::None || row.src[1] != Ty::None;
        let probe = row.src[0] == Ty::Uimm;
        // LLVM knows neither M0 nor EXEC as data of scalar memory.
        let excluded = matches!(data, 124 | 126 | 127);
        self.need(!(has_data && excluded && !probe), "SDATA")?;
        if row.dst[0] != Ty::None {
            inst.dst = self.sdst(data, row.dst[0].regs())?;
        }
        let base = match (row.dst[0], row.src[0], row.src[1]) {
            (_, Ty::None, _) => {
                self.need(!mem.imm, "IMM")?;
                inst.ext = Ext::Mem(mem);
                return Ok(inst);
            }
            (_, Ty::Uimm, base) => {
                inst.imm = data as i32;
                base
            }
            (_, base, Ty::None) => base,
            (_, data_ty, base) => {
                inst.src[2] = self.sdst(data, data_ty.regs())?;
                base
            }
        };
        inst.src[0] = self.sdst(bits(self.low, 5, 0) << 1, base.regs())?;
        let soffset_en = bits(self.low, 14, 14) != 0;
        if mem.imm {
            let offset = bits(high, 20, 0) as i32;
            // Sign-extended from 21 bits.
            mem.offset = (offset << 11) >> 11;
        }
        if soffset_en {
            inst.src[1] = self.sdst(bits(high, 31, 25), 1)?;
        } else if !mem.imm {
            inst.src[1] = self.sdst(bits(high, 6, 0), 1)?;
        }
        inst.ext = Ext::Mem(mem);
        Ok(inst)
    }
}
