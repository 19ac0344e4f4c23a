// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Vector ALU.

use super::bits;
use super::DecodeError;
use super::Fields;
use crate::inst::Asic;
use crate::inst::Dpp;
use crate::inst::Ext;
use crate::inst::Form;
use crate::inst::Inst;
use crate::inst::Operand;
use crate::inst::Sdwa;
use crate::tables::Enc;
use crate::tables::Ty;

/// Operand code of VCC.
const VCC: u8 = 106;

impl Fields<'_> {
    /// A source of 9 bits.
    fn vsrc(&self, code: u32, ty: Ty) -> Result<Operand, DecodeError> {
        if code >= 256 {
            self.vgpr(code - 256, ty.regs(), false)
        } else if code == 254 && ty.regs() == 1 {
            Ok(Operand::Special(254))
        } else {
            self.ssrc(code, ty.regs())
        }
    }

    fn vdst(&self, inst: &mut Inst, number: u32) -> Result<(), DecodeError> {
        inst.dst = match self.row.dst[0] {
            Ty::None => Operand::None,
            Ty::Addr => Operand::A(number as u8),
            Ty::Sgpr => self.sdst(self.lane_dst(number)?, 1)?,
            ty => self.vgpr(number, ty.regs(), false)?,
        };
        Ok(())
    }

    fn lane_dst(&self, number: u32) -> Result<u32, DecodeError> {
        self.need(number < 128, "SDST")?;
        Ok(number)
    }

    pub(super) fn vop1(&self) -> Result<Inst, DecodeError> {
        let mut inst = self.inst(4);
        inst.form = Form::E32;
        let (dst, src) = (bits(self.low, 24, 17), bits(self.low, 8, 0));
        if self.row.src[0] == Ty::None {
            self.need(dst == 0, "VDST")?;
            self.need(src == 0, "SRC0")?;
            return Ok(inst);
        }
        self.vdst(&mut inst, dst)?;
        match self.row.src[0] {
            Ty::Addr => {
                self.need(src >= 256, "SRC0")?;
                inst.src[0] = Operand::A((src - 256) as u8);
                return Ok(inst);
            }
            _ if self.row.name == "v_swap_b32" => self.need(src >= 256, "SRC0")?,
            _ if self.row.name == "v_readfirstlane_b32" => {
                self.need(src >= 256 || src == 254, "SRC0")?;
            }
            _ => {}
        }
        self.first_source(inst, src)
    }

    pub(super) fn vop2(&self) -> Result<Inst, DecodeError> {
        let mut inst = self.inst(4);
        inst.form = Form::E32;
        self.vdst(&mut inst, bits(self.low, 24, 17))?;
        let (first, second) = (bits(self.low, 8, 0), bits(self.low, 16, 9));
        if self.row.has(b'k') {
            // The literal is the second or third source, and may be the first one too.
            inst.src[0] = self.vsrc(first, self.row.src[0])?;
            let register = self.vgpr(second, 1, false)?;
            (inst.src[1], inst.src[2]) = if self.row.src[1] == Ty::Literal {
                (Operand::Literal, register)
            } else {
                (register, Operand::Literal)
            };
            inst.literal = self.high()?;
            inst.size = 8;
            return Ok(inst);
        }
        inst.src[1] = self.vgpr(second, self.row.src[1].regs(), false)?;
        if self.row.dst[1] == Ty::Mask {
            inst.sdst = Operand::S(VCC);
        }
        if self.row.src[2] == Ty::Mask {
            inst.src[2] = Operand::S(VCC);
        }
        self.first_source(inst, first)
    }

    pub(super) fn vopc(&self) -> Result<Inst, DecodeError> {
        let mut inst = self.inst(4);
        inst.form = Form::E32;
        inst.dst = Operand::S(VCC);
        inst.src[1] = self.vgpr(bits(self.low, 16, 9), self.row.src[1].regs(), false)?;
        self.first_source(inst, bits(self.low, 8, 0))
    }

    /// The first source of a 32-bit encoding, which also selects SDWA, DPP and the literal.
    fn first_source(&self, mut inst: Inst, code: u32) -> Result<Inst, DecodeError> {
        match code {
            249 if self.row.has(b'w') => self.sdwa(inst),
            250 if self.row.has(b'd') => self.dpp(inst),
            249 | 250 => Err(self.reserved("SRC0")),
            255 => {
                inst.src[0] = Operand::Literal;
                inst.literal = self.high()?;
                inst.size = 8;
                Ok(inst)
            }
            code => {
                inst.src[0] = self.vsrc(code, self.row.src[0])?;
                Ok(inst)
            }
        }
    }

    /// A source of SDWA: 8 bits, and whether they name a scalar.
    fn sdwa_source(&self, code: u32, scalar: bool) -> Result<Operand, DecodeError> {
        if !scalar {
            return Ok(Operand::V(code as u8));
        }
        let operand = self.ssrc(code, 1)?;
        let good = matches!(operand, Operand::S(_) | Operand::Const(_));
        self.need(good, "SRC")?;
        Ok(operand)
    }

    fn sdwa(&self, mut inst: Inst) -> Result<Inst, DecodeError> {
        let high = self.high()?;
        inst.size = 8;
        inst.form = Form::Sdwa;
        let two = self.row.enc != Enc::Vop1;
        self.need(two || high >> 24 == 0, "SRC1")?;
        inst.src[0] = self.sdwa_source(bits(high, 7, 0), bits(high, 23, 23) != 0)?;
        let mut sdwa = Sdwa {
            dst_sel: 6,
            src_sel: [bits(high, 18, 16) as u8, 6],
            ..Sdwa::default()
        };
        inst.mods.sext = bits(high, 19, 19) as u8;
        inst.mods.neg = bits(high, 20, 20) as u8;
        inst.mods.abs = bits(high, 21, 21) as u8;
        if two {
            let Operand::V(second) = inst.src[1] else {
                return Err(self.reserved("SRC1"));
            };
            inst.src[1] = self.sdwa_source(u32::from(second), bits(high, 31, 31) != 0)?;
            sdwa.src_sel[1] = bits(high, 26, 24) as u8;
            inst.mods.sext |= (bits(high, 27, 27) << 1) as u8;
            inst.mods.neg |= (bits(high, 28, 28) << 1) as u8;
            inst.mods.abs |= (bits(high, 29, 29) << 1) as u8;
        }
        for (at, flag) in [b'0', b'1'].into_iter().enumerate() {
            // Floats have a sign to change, integers are extended.
            let (bit, float) = (1 << at, self.row.has(flag));
            self.need(float || (inst.mods.neg | inst.mods.abs) & bit == 0, "NEG")?;
            self.need(!float || inst.mods.sext & bit == 0, "SEXT")?;
        }
        self.need(sdwa.src_sel.iter().all(|sel| *sel < 7), "SRC_SEL")?;
        if self.row.enc == Enc::Vopc {
            if bits(high, 15, 15) != 0 {
                inst.dst = self.sdst(bits(high, 14, 8), 2)?;
            }
        } else {
            sdwa.dst_sel = bits(high, 10, 8) as u8;
            sdwa.dst_unused = bits(high, 12, 11) as u8;
            inst.mods.clamp = bits(high, 13, 13) != 0;
            inst.mods.omod = bits(high, 15, 14) as u8;
            let name = self.row.name;
            let fixed = ["v_cvt_norm_", "v_cvt_u16_", "v_cvt_i16_"];
            let fixed = fixed.iter().any(|start| name.starts_with(start));
            let from_8_bits = name.ends_with("_fp8") || name.ends_with("_bf8");
            let fixed = fixed || from_8_bits;
            let scales = self.row.has(b'o') && !fixed;
            self.need(inst.mods.omod == 0 || scales, "OMOD")?;
            self.need(sdwa.dst_sel < 7, "DST_SEL")?;
            self.need(sdwa.dst_sel == 6 || !from_8_bits, "DST_SEL")?;
            self.need(sdwa.dst_unused < 3, "DST_UNUSED")?;
        }
        inst.ext = Ext::Sdwa(sdwa);
        Ok(inst)
    }

    fn dpp(&self, mut inst: Inst) -> Result<Inst, DecodeError> {
        let high = self.high()?;
        inst.size = 8;
        inst.form = Form::Dpp;
        let double = self.row.is_double();
        self.need(!double || self.asic.has_acc(), "SRC0")?;
        inst.src[0] = self.vgpr(bits(high, 7, 0), self.row.src[0].regs(), false)?;
        inst.mods.neg = (bits(high, 20, 20) | (bits(high, 22, 22) << 1)) as u8;
        inst.mods.abs = (bits(high, 21, 21) | (bits(high, 23, 23) << 1)) as u8;
        for (at, flag) in [b'0', b'1'].into_iter().enumerate() {
            let ignored = self.row.has([b'x', b'y'][at]);
            let float = self.row.has(flag) || ignored;
            let bits = (inst.mods.neg | inst.mods.abs) >> at & 1;
            self.need(float || bits == 0, "NEG")?;
            if ignored && self.row.has(b'0') {
                inst.mods.sext |= inst.mods.neg & 1 << at;
            }
            if ignored {
                inst.mods.neg &= !(1 << at);
                inst.mods.abs &= !(1 << at);
            }
        }
        let dpp = Dpp {
            ctrl: bits(high, 16, 8) as u16,
            bound_ctrl: bits(high, 19, 19) != 0,
            bank_mask: bits(high, 27, 24) as u8,
            row_mask: bits(high, 31, 28) as u8,
        };
        let broadcast = matches!(dpp.ctrl, 0x150..=0x15F);
        let good = match dpp.ctrl {
            0x000..=0x0FF
            | 0x101..=0x10F
            | 0x111..=0x11F
            | 0x121..=0x12F
            | 0x130
            | 0x134
            | 0x138
            | 0x13C
            | 0x140..=0x143 => !double,
            _ => broadcast && self.asic != Asic::Gfx906,
        };
        self.need(good, "DPP_CTRL")?;
        inst.ext = Ext::Dpp(dpp);
        Ok(inst)
    }

    pub(super) fn vop3(&self) -> Result<Inst, DecodeError> {
        let high = self.high()?;
        let mut inst = self.inst(8);
        inst.form = Form::E64;
        let row = self.row;
        let number = bits(self.low, 7, 0);
        let second_dst = row.dst[1] == Ty::Mask;
        if row.enc == Enc::Vopc {
            inst.dst = self.sdst(self.lane_dst(number)?, 2)?;
        } else {
            self.vdst(&mut inst, number)?;
        }
        let codes = [bits(high, 8, 0), bits(high, 17, 9), bits(high, 26, 18)];
        let fields = ["SRC0", "SRC1", "SRC2"];
        for at in 0..3 {
            let ty = row.src[at];
            inst.src[at] = match ty {
                Ty::None => {
                    self.need(codes[at] == 0, fields[at])?;
                    Operand::None
                }
                Ty::Mask => {
                    // LLVM has no EXEC here.
                    self.need(codes[at] < 126, fields[at])?;
                    self.sdst(codes[at], 2)?
                }
                _ => self.vsrc(codes[at], ty)?,
            };
            self.need(inst.src[at] != Operand::Literal, fields[at])?;
        }
        if row.dst[0] == Ty::None {
            self.need(number == 0, "VDST")?;
        }
        let (mut neg, mut abs) = (bits(high, 31, 29) as u8, bits(self.low, 10, 8) as u8);
        if second_dst {
            inst.sdst = self.sdst(bits(self.low, 14, 8), 2)?;
            abs = 0;
        } else {
            inst.mods.op_sel = bits(self.low, 14, 11) as u8;
        }
        let (mut used, mut ignored) = (0, 0);
        for (at, (flag, ignore)) in [(b'0', b'x'), (b'1', b'y'), (b'2', b'z')]
            .into_iter()
            .enumerate()
        {
            used |= u8::from(row.has(flag)) << at;
            ignored |= u8::from(row.has(ignore)) << at;
        }
        self.need((neg | abs) & !(used | ignored) == 0, "NEG")?;
        // LLVM has sign extension where the other operand is a float.
        if row.has(b'0') && !row.name.starts_with("v_cvt_sr_") {
            inst.mods.sext = neg & ignored;
        }
        let pair = row.sources() == 2 && !row.name.starts_with("v_cvt_sr_");
        self.need(
            !(pair && row.has(b's')) || inst.mods.op_sel & 4 == 0,
            "OP_SEL",
        )?;
        if row.name == "v_mqsad_u32_u8" {
            self.need(codes[2] >= 256, "SRC2")?;
        }
        neg &= used;
        abs &= used;
        inst.mods.neg = neg;
        inst.mods.abs = abs;
        inst.mods.clamp = bits(self.low, 15, 15) != 0;
        self.need(!inst.mods.clamp || row.has(b'c'), "CLAMP")?;
        inst.mods.omod = bits(high, 28, 27) as u8;
        self.need(inst.mods.omod == 0 || row.has(b'o'), "OMOD")?;
        if !row.has(b's') {
            inst.mods.op_sel = 0;
        }
        self.lanes(&inst)?;
        Ok(inst)
    }

    /// The restrictions of the instructions that read and write single lanes.
    fn lanes(&self, inst: &Inst) -> Result<(), DecodeError> {
        match self.row.name {
            "v_readlane_b32" => {
                let vector = matches!(inst.src[0], Operand::V(_) | Operand::Special(254));
                self.need(vector, "SRC0")?;
                self.need(!matches!(inst.src[1], Operand::V(_)), "SRC1")
            }
            "v_writelane_b32" => {
                let vector = |at: usize| matches!(inst.src[at], Operand::V(_));
                self.need(!vector(0), "SRC0")?;
                self.need(!vector(1), "SRC1")
            }
            _ => Ok(()),
        }
    }

    pub(super) fn vop3p(&self) -> Result<Inst, DecodeError> {
        let high = self.high()?;
        let mut inst = self.inst(8);
        inst.form = Form::E64;
        self.vdst(&mut inst, bits(self.low, 7, 0))?;
        let codes = [bits(high, 8, 0), bits(high, 17, 9), bits(high, 26, 18)];
        let fields = ["SRC0", "SRC1", "SRC2"];
        let count = self.row.sources();
        for at in 0..3 {
            if at >= count {
                self.need(codes[at] == 0, fields[at])?;
                continue;
            }
            inst.src[at] = self.vsrc(codes[at], self.row.src[at])?;
            self.need(inst.src[at] != Operand::Literal, fields[at])?;
        }
        let mods = &mut inst.mods;
        mods.neg = bits(high, 31, 29) as u8;
        mods.abs = bits(self.low, 10, 8) as u8;
        mods.clamp = bits(self.low, 15, 15) != 0;
        mods.op_sel = bits(self.low, 13, 11) as u8;
        mods.op_sel_hi = (bits(high, 28, 27) | (bits(self.low, 14, 14) << 2)) as u8;
        let used = (1 << count) - 1;
        let rest = (mods.neg | mods.abs | mods.op_sel) & !used;
        mods.op_sel_hi &= used;
        self.need(rest == 0, "NEG")?;
        Ok(inst)
    }

    pub(super) fn mai(&self) -> Result<Inst, DecodeError> {
        let high = self.high()?;
        let mut inst = self.inst(8);
        inst.form = Form::E64;
        let row = self.row;
        let number = bits(self.low, 7, 0);
        let codes = [bits(high, 8, 0), bits(high, 17, 9), bits(high, 26, 18)];
        let moves = row.name.starts_with("v_accvgpr_");
        // Bit 14 does not count: LLVM's assembler sets it.
        let unused = bits(self.low, 13, 8) | bits(high, 31, 29);
        self.need(!moves || unused == 0, "CBSZ")?;
        match row.name {
            "v_accvgpr_read_b32" => {
                inst.dst = self.vgpr(number, 1, false)?;
                self.need(codes[0] >= 256, "SRC0")?;
                inst.src[0] = self.vgpr(codes[0] & 0xFF, 1, true)?;
                self.need(codes[1] == 0 && codes[2] == 0, "SRC1")?;
                return Ok(inst);
            }
            "v_accvgpr_write_b32" => {
                inst.dst = self.vgpr(number, 1, true)?;
                inst.src[0] = self.vsrc(codes[0], Ty::B32)?;
                self.need(inst.src[0] != Operand::Literal, "SRC0")?;
                self.need(codes[1] == 0 && codes[2] == 0, "SRC1")?;
                return Ok(inst);
            }
            _ => {}
        }
        let acc_cd = bits(self.low, 15, 15) != 0;
        let acc = bits(high, 28, 27);
        inst.dst = self.vgpr(number, row.dst[0].regs(), acc_cd)?;
        for at in 0..2 {
            self.need(codes[at] >= 256, "SRC")?;
            let number = codes[at] & 0xFF;
            inst.src[at] = self.vgpr(number, row.src[at].regs(), acc >> at & 1 != 0)?;
        }
        let sparse = row.src[2] == Ty::B32 && row.dst[0] != Ty::B32;
        inst.src[2] = match codes[2] {
            256.. => self.vgpr(codes[2] & 0xFF, row.src[2].regs(), acc_cd && !sparse)?,
            code => {
                let operand = self.ssrc(code, 1)?;
                let constant = matches!(operand, Operand::Const(_));
                self.need(constant && !sparse, "SRC2")?;
                operand
            }
        };
        inst.ext = Ext::Mai {
            cbsz: bits(self.low, 10, 8) as u8,
            abid: bits(self.low, 14, 11) as u8,
            blgp: bits(high, 31, 29) as u8,
        };
        self.need(!sparse || bits(high, 31, 29) == 0, "BLGP")?;
        Ok(inst)
    }
}
