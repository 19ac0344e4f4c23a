// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Vector memory and LDS.

use super::bits;
use super::DecodeError;
use super::Fields;
use crate::inst::Asic;
use crate::inst::Ext;
use crate::inst::Inst;
use crate::inst::Mem;
use crate::inst::Operand;
use crate::tables::Enc;
use crate::tables::Ty;

/// SADDR that names no register.
const OFF: u32 = 0x7F;

impl Fields<'_> {
    pub(super) fn ds(&self) -> Result<Inst, DecodeError> {
        let high = self.high()?;
        let mut inst = self.inst(8);
        let row = self.row;
        let acc = self.asic.has_acc() && bits(self.low, 25, 25) != 0;
        let mem = Mem {
            offset: bits(self.low, 15, 0) as i32,
            gds: bits(self.low, 16, 16) != 0,
            ..Mem::default()
        };
        let named = row.has(b'g') || row.has(b'G');
        self.need(!mem.gds || named, "GDS")?;
        self.need(mem.gds || !row.has(b'G'), "GDS")?;
        let data = [
            bits(high, 7, 0),
            bits(high, 15, 8),
            bits(high, 23, 16),
            bits(high, 31, 24),
        ];
        let src2 = row.name.contains("_src2_");
        self.need(!src2 || bits(self.low, 25, 25) == 0, "ACC")?;
        let mut next = 1;
        let mut used = [false; 4];
        for ty in row.src {
            match ty {
                Ty::None => break,
                Ty::Addr => {
                    inst.src[0] = self.vgpr(data[0], 1, acc && row.has(b'G'))?;
                    used[0] = true;
                }
                ty => {
                    let number = *data.get(next).unwrap_or(&0);
                    inst.src[next] = self.vgpr(number, ty.regs(), acc)?;
                    used[next] = true;
                    next += 1;
                }
            }
        }
        if row.dst[0] != Ty::None {
            inst.dst = self.vgpr(data[3], row.dst[0].regs(), acc)?;
            used[3] = true;
        }
        let clean = (0..4).all(|at| used[at] || data[at] == 0);
        self.need(clean, "unused")?;
        if row.name == "ds_nop" {
            self.need(self.low & 0x0201_FFFF == 0, "unused")?;
        }
        inst.ext = Ext::Mem(mem);
        Ok(inst)
    }

    pub(super) fn flat(&self) -> Result<Inst, DecodeError> {
        let high = self.high()?;
        let mut inst = self.inst(8);
        let row = self.row;
        let gfx942 = self.asic == Asic::Gfx942;
        let acc = self.asic.has_acc() && bits(high, 23, 23) != 0;
        let bit13 = bits(self.low, 13, 13) != 0;
        let mut mem = Mem {
            glc: bits(self.low, 16, 16) != 0,
            slc: bits(self.low, 17, 17) != 0,
            scc: self.asic.has_acc() && bits(self.low, 25, 25) != 0,
            lds: row.has(b'l'),
            ..Mem::default()
        };
        let scratch = row.enc == Enc::Scratch;
        let saddr = bits(high, 22, 16);
        let offset = bits(self.low, 12, 0) as i32;
        mem.offset = if row.enc == Enc::Flat {
            self.need(saddr == 0, "SADDR")?;
            self.need(!bit13, "LDS")?;
            offset
        } else {
            // Signed, 13 bits.
            (offset << 19) >> 19
        };
        if bit13 && !(gfx942 && scratch) {
            let loads = matches!(row.op, 16..=20);
            self.need(!gfx942 && loads && row.enc != Enc::Flat, "LDS")?;
            self.need(bits(high, 23, 23) == 0, "NV")?;
            mem.lds = true;
        }
        self.need(!(mem.scc && row.has(b'b')), "SCC")?;
        let has_saddr = row.enc != Enc::Flat && saddr != OFF;
        let address = bits(high, 7, 0);
        inst.src[0] = match row.enc {
            Enc::Flat => self.vgpr(address, 2, false)?,
            Enc::Global if has_saddr => self.vgpr(address, 1, false)?,
            Enc::Global => self.vgpr(address, 2, false)?,
            _ if gfx942 && !bit13 => Operand::None,
            _ if !gfx942 && has_saddr => Operand::None,
            _ => self.vgpr(address, 1, false)?,
        };
        if has_saddr {
            inst.src[2] = self.sdst(saddr, if scratch { 1 } else { 2 })?;
        }
        if row.src[0] != Ty::None {
            inst.src[1] = self.vgpr(bits(high, 15, 8), row.src[0].regs(), acc)?;
        }
        let returns = row.dst[0] != Ty::None && (mem.glc || !row.has(b'A')) && !mem.lds;
        if returns {
            inst.dst = self.vgpr(bits(high, 31, 24), row.dst[0].regs(), acc)?;
        }
        self.need(!(acc && mem.lds), "ACC")?;
        inst.ext = Ext::Mem(mem);
        Ok(inst)
    }

    pub(super) fn mubuf(&self) -> Result<Inst, DecodeError> {
        let high = self.high()?;
        let mem = Mem {
            offset: bits(self.low, 11, 0) as i32,
            glc: bits(self.low, 14, 14) != 0,
            slc: bits(self.low, 17, 17) != 0,
            scc: self.asic.has_acc() && bits(self.low, 15, 15) != 0,
            lds: bits(self.low, 16, 16) != 0,
            ..Mem::default()
        };
        let row = self.row;
        if row.has(b'C') {
            let mut inst = self.inst(8);
            self.need(!mem.glc || row.has(b'g'), "GLC")?;
            let bit15 = bits(self.low, 15, 15) != 0;
            self.need(!bit15 || row.has(b'B'), "SCC")?;
            self.need(!mem.lds, "LDS")?;
            self.need(bits(self.low, 13, 12) == 0, "IDXEN")?;
            self.need(bits(high, 23, 23) == 0, "TFE")?;
            inst.ext = Ext::Mem(mem);
            return Ok(inst);
        }
        let to_lds = row.has(b'l');
        let from_lds = row.has(b'L');
        self.need(!mem.lds || to_lds || from_lds, "LDS")?;
        self.need(mem.lds || !from_lds, "LDS")?;
        let plain = bits(self.low, 13, 12) == 0;
        self.need(plain || !from_lds, "IDXEN")?;
        self.need(!(mem.scc && row.has(b'b')), "SCC")?;
        self.buffer(mem, high)
    }

    pub(super) fn mtbuf(&self) -> Result<Inst, DecodeError> {
        let high = self.high()?;
        let mem = Mem {
            offset: bits(self.low, 11, 0) as i32,
            glc: bits(self.low, 14, 14) != 0,
            slc: bits(high, 22, 22) != 0,
            scc: self.asic.has_acc() && bits(high, 21, 21) != 0,
            format: bits(self.low, 25, 19) as u8,
            ..Mem::default()
        };
        self.buffer(mem, high)
    }

    /// What MUBUF and MTBUF share.
    fn buffer(&self, mut mem: Mem, high: u32) -> Result<Inst, DecodeError> {
        let mut inst = self.inst(8);
        let row = self.row;
        mem.idxen = bits(self.low, 13, 13) != 0;
        mem.offen = bits(self.low, 12, 12) != 0;
        let bit23 = bits(high, 23, 23) != 0;
        let acc = self.asic.has_acc() && bit23;
        mem.tfe = bit23 && !acc;
        let atomic = row.has(b'A');
        let address = usize::from(mem.idxen) + usize::from(mem.offen);
        if address > 0 {
            inst.src[0] = self.vgpr(bits(high, 7, 0), address, false)?;
        }
        let data = bits(high, 15, 8);
        let extra = usize::from(mem.tfe);
        if row.src[0] != Ty::None {
            inst.src[1] = self.vgpr(data, row.src[0].regs() + extra, acc)?;
        }
        if row.dst[0] != Ty::None && (!atomic || mem.glc) && !mem.lds {
            inst.dst = self.vgpr(data, row.dst[0].regs() + extra, acc)?;
        }
        self.need(!(acc && mem.lds), "ACC")?;
        let typed = row.enc == Enc::Mtbuf;
        self.need(!(mem.tfe && (atomic || mem.lds || typed)), "TFE")?;
        inst.src[2] = self.sdst(bits(high, 20, 16) << 2, 4)?;
        inst.src[3] = self.ssrc(bits(high, 31, 24), 1)?;
        self.need(inst.src[3] != Operand::Literal, "SOFFSET")?;
        inst.ext = Ext::Mem(mem);
        Ok(inst)
    }
}
