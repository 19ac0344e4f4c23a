// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The text of an instruction, as LLVM's disassembler writes it.

mod fields;
mod operand;

use crate::inst::Asic;
use crate::inst::Ext;
use crate::inst::Form;
use crate::inst::Inst;
use crate::inst::Mem;
use crate::inst::Operand;
use crate::tables::Enc;
use crate::tables::Ty;
use std::fmt::Write as _;

/// The text of `inst` on `asic`.
pub fn text(inst: &Inst, asic: Asic) -> String {
    let mut out = Out {
        text: inst.row.name.to_owned(),
        first: true,
        inst,
        asic,
    };
    match inst.row.enc {
        Enc::Sop1 | Enc::Sop2 | Enc::Sopc | Enc::Sopk | Enc::Sopp => out.scalar(),
        Enc::Smem => out.smem(),
        Enc::Vop1 | Enc::Vop2 | Enc::Vopc | Enc::Vop3 | Enc::Vop3p => out.vector(),
        Enc::Mai => out.mai(),
        Enc::Ds => out.ds(),
        Enc::Flat | Enc::Scratch | Enc::Global => out.flat(),
        Enc::Mubuf | Enc::Mtbuf => out.buffer(),
    }
    out.text
}

/// A text that grows.
struct Out<'a> {
    text: String,
    first: bool,
    inst: &'a Inst,
    asic: Asic,
}

impl Out<'_> {
    fn put(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// One more operand.
    fn arg(&mut self, text: &str) {
        self.put(if self.first { " " } else { ", " });
        self.first = false;
        self.put(text);
    }

    fn operand(&mut self, operand: Operand, ty: Ty) {
        let text = operand::text(operand, ty, self.inst.literal);
        self.arg(&text);
    }

    fn flag(&mut self, on: bool, name: &str) {
        if on {
            self.put(" ");
            self.put(name);
        }
    }

    fn scalar(&mut self) {
        let inst = self.inst;
        let row = inst.row;
        if row.dst[0] != Ty::None {
            self.operand(inst.dst, row.dst[0]);
        }
        let imm = inst.imm as u16;
        for (at, ty) in row.src.into_iter().enumerate() {
            let text = match ty {
                Ty::None => continue,
                Ty::Imm16 => format!("{imm:#x}"),
                Ty::Uimm => fields::uimm16(imm),
                Ty::Jump => imm.to_string(),
                Ty::EndImm if imm == 0 => continue,
                Ty::EndImm => imm.to_string(),
                Ty::HwReg => fields::hwreg(imm, self.asic),
                Ty::GprIdx => fields::gpr_idx(imm),
                Ty::WaitCnt => fields::waitcnt(imm),
                Ty::Msg => fields::message(imm),
                ty => operand::text(inst.src[at], ty, inst.literal),
            };
            self.arg(&text);
        }
    }

    fn mem(&self) -> Mem {
        match self.inst.ext {
            Ext::Mem(mem) => mem,
            _ => Mem::default(),
        }
    }

    fn smem(&mut self) {
        let inst = self.inst;
        let row = inst.row;
        let mem = self.mem();
        if row.dst[0] != Ty::None {
            self.operand(inst.dst, row.dst[0]);
        }
        if row.src[0] == Ty::None {
            return;
        }
        let mut base = row.src[0];
        if base == Ty::Uimm {
            let number = fields::uimm16(inst.imm as u16);
            self.arg(&number);
            base = row.src[1];
        } else if row.src[1] != Ty::None {
            self.operand(inst.src[2], row.src[0]);
            base = row.src[1];
        }
        self.operand(inst.src[0], base);
        let register = inst.src[1] != Operand::None;
        if register {
            self.operand(inst.src[1], Ty::B32);
        }
        if mem.imm {
            let offset = fields::signed_hex(mem.offset);
            if register {
                let _ = write!(self.text, " offset:{offset}");
            } else {
                self.arg(&offset);
            }
        }
        self.flag(mem.glc && row.has(b'g'), "glc");
    }

    fn vector(&mut self) {
        let inst = self.inst;
        let row = inst.row;
        let suffixed = (row.has(b'3') && row.has(b'e') && row.sources() > 0)
            || (row.has(b'e') && row.src[0] == Ty::Pk16);
        match inst.form {
            Form::E32 if suffixed => self.put("_e32"),
            Form::E64 if suffixed => self.put("_e64"),
            Form::Sdwa => self.put("_sdwa"),
            Form::Dpp => self.put("_dpp"),
            _ => {}
        }
        if row.dst[0] != Ty::None {
            let ty = if row.enc == Enc::Vopc {
                Ty::B64
            } else {
                row.dst[0]
            };
            self.operand(inst.dst, ty);
        }
        if row.dst[1] == Ty::Mask {
            self.operand(inst.sdst, Ty::B64);
        }
        for (at, ty) in row.src.into_iter().enumerate() {
            if ty != Ty::None {
                let ty = if ty == Ty::Mask { Ty::B64 } else { ty };
                self.modified(at, ty);
            }
        }
        self.vector_mods();
    }

    /// A source with its modifiers.
    fn modified(&mut self, at: usize, ty: Ty) {
        let inst = self.inst;
        let operand = inst.src[at];
        let mods = &inst.mods;
        let bit = 1 << at;
        let packed = inst.row.enc == Enc::Vop3p && inst.row.has(b'p');
        let plain = operand::text(operand, ty, inst.literal);
        if packed {
            return self.arg(&plain);
        }
        let (neg, abs) = (mods.neg & bit != 0, mods.abs & bit != 0);
        let constant = matches!(operand, Operand::Const(_));
        let text = match (neg, abs) {
            (false, false) => plain,
            (true, false) if constant => format!("neg({plain})"),
            (true, false) => format!("-{plain}"),
            (false, true) => format!("|{plain}|"),
            (true, true) => format!("-|{plain}|"),
        };
        if mods.sext & bit != 0 {
            self.arg(&format!("sext({text})"));
        } else {
            self.arg(&text);
        }
    }

    fn select(&mut self, name: &str, mask: u8, count: usize) {
        let bits: Vec<&str> = (0..count)
            .map(|at| if mask >> at & 1 != 0 { "1" } else { "0" })
            .collect();
        let _ = write!(self.text, " {name}:[{}]", bits.join(","));
    }

    fn vector_mods(&mut self) {
        let inst = self.inst;
        let row = inst.row;
        let mods = inst.mods;
        let count = row.sources();
        let all = (1 << count) - 1;
        if row.enc == Enc::Vop3p {
            let packed = row.has(b'p');
            if mods.op_sel != 0 {
                self.select("op_sel", mods.op_sel, count);
            }
            let default = if packed { all } else { 0 };
            if mods.op_sel_hi != default {
                self.select("op_sel_hi", mods.op_sel_hi, count);
            }
            if packed && mods.neg != 0 {
                self.select("neg_lo", mods.neg, count);
            }
            if packed && mods.abs != 0 {
                self.select("neg_hi", mods.abs, count);
            }
        } else if mods.op_sel != 0 {
            if row.name.starts_with("v_cvt_sr_") {
                return self.select("op_sel", mods.op_sel, 4);
            }
            let bits = (mods.op_sel & all) | (mods.op_sel >> 3 << count);
            self.select("op_sel", bits, count + 1);
        }
        self.flag(mods.clamp, "clamp");
        match mods.omod {
            1 => self.put(" mul:2"),
            2 => self.put(" mul:4"),
            3 => self.put(" div:2"),
            _ => {}
        }
        match inst.ext {
            Ext::Sdwa(sdwa) => {
                let text = fields::sdwa(&sdwa, row);
                self.put(&text);
            }
            Ext::Dpp(dpp) => {
                let text = fields::dpp(&dpp);
                self.put(&text);
            }
            _ => {}
        }
    }

    fn mai(&mut self) {
        let inst = self.inst;
        let row = inst.row;
        self.operand(inst.dst, row.dst[0]);
        for (at, ty) in row.src.into_iter().enumerate() {
            if ty != Ty::None {
                self.operand(inst.src[at], ty);
            }
        }
        let Ext::Mai { cbsz, abid, blgp } = inst.ext else {
            return;
        };
        for (name, value) in [("cbsz", cbsz), ("abid", abid)] {
            if value != 0 {
                let _ = write!(self.text, " {name}:{value}");
            }
        }
        if blgp != 0 {
            if row.has(b'n') {
                self.select("neg", blgp, 3);
            } else {
                let _ = write!(self.text, " blgp:{blgp}");
            }
        }
    }

    fn ds(&mut self) {
        let inst = self.inst;
        let row = inst.row;
        let mem = self.mem();
        if row.dst[0] != Ty::None {
            self.operand(inst.dst, row.dst[0]);
        }
        let mut next = 1;
        for ty in row.src {
            match ty {
                Ty::None => break,
                Ty::Addr => self.operand(inst.src[0], Ty::B32),
                ty => {
                    self.operand(inst.src[next], ty);
                    next += 1;
                }
            }
        }
        let offset = mem.offset as u16;
        if row.has(b'2') {
            let (first, second) = (offset & 0xFF, offset >> 8);
            if first != 0 {
                let _ = write!(self.text, " offset0:{first}");
            }
            if second != 0 {
                let _ = write!(self.text, " offset1:{second}");
            }
        } else if offset != 0 {
            if row.name == "ds_swizzle_b32" {
                let text = fields::swizzle(offset);
                let _ = write!(self.text, " offset:{text}");
            } else {
                let _ = write!(self.text, " offset:{offset}");
            }
        }
        // Only gfx906 has a data share to name; GWS is always there.
        let named = self.asic == Asic::Gfx906 || row.has(b'G');
        self.flag(mem.gds && named, "gds");
    }

    fn cache(&mut self, mem: &Mem) {
        let names = if self.asic == Asic::Gfx942 {
            ["sc0", "nt", "sc1"]
        } else {
            ["glc", "slc", "scc"]
        };
        self.flag(mem.glc, names[0]);
        self.flag(mem.slc, names[1]);
        self.flag(mem.scc, names[2]);
    }

    fn flat(&mut self) {
        let inst = self.inst;
        let row = inst.row;
        let mem = self.mem();
        let scratch = row.enc == Enc::Scratch;
        if inst.dst != Operand::None {
            self.operand(inst.dst, row.dst[0]);
        }
        match inst.src[0] {
            Operand::None => self.arg("off"),
            address => {
                let wide = row.enc == Enc::Flat
                    || (row.enc == Enc::Global && inst.src[2] == Operand::None);
                self.operand(address, if wide { Ty::B64 } else { Ty::B32 });
            }
        }
        if row.src[0] != Ty::None {
            self.operand(inst.src[1], row.src[0]);
        }
        if row.enc != Enc::Flat {
            match inst.src[2] {
                Operand::None => self.arg("off"),
                base => self.operand(base, if scratch { Ty::B32 } else { Ty::B64 }),
            }
        }
        if mem.offset != 0 {
            let _ = write!(self.text, " offset:{}", mem.offset);
        }
        self.cache(&mem);
        self.flag(mem.lds && !row.has(b'l'), "lds");
    }

    fn buffer(&mut self) {
        let inst = self.inst;
        let row = inst.row;
        let mem = self.mem();
        if row.has(b'C') {
            let scoped = self.asic == Asic::Gfx942;
            self.flag(mem.glc && scoped, "sc0");
            self.flag(mem.scc && scoped, "sc1");
            return;
        }
        let data = if row.src[0] != Ty::None {
            (inst.src[1], row.src[0])
        } else {
            (inst.dst, row.dst[0])
        };
        if data.0 != Operand::None {
            let regs = data.1.regs() + usize::from(mem.tfe);
            let text = operand::register(data.0, regs);
            self.arg(&text);
        }
        match inst.src[0] {
            Operand::None if !row.has(b'L') && (mem.lds || data.0 != Operand::None) => {
                self.arg("off");
            }
            Operand::None => {}
            address => {
                let two = mem.idxen && mem.offen;
                self.operand(address, if two { Ty::B64 } else { Ty::B32 });
            }
        }
        self.operand(inst.src[2], Ty::B128);
        self.operand(inst.src[3], Ty::B32);
        if row.enc == Enc::Mtbuf {
            let text = fields::buffer_format(mem.format);
            self.put(&text);
        }
        self.flag(mem.idxen, "idxen");
        self.flag(mem.offen, "offen");
        if mem.offset != 0 {
            let _ = write!(self.text, " offset:{}", mem.offset);
        }
        self.flag(row.has(b'L'), "lds");
        self.cache(&mem);
        self.flag(mem.tfe, "tfe");
        self.flag(mem.lds && !row.has(b'L'), "lds");
    }
}
