// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Words to instructions.
//!
//! [`Decoder`] holds, for one ASIC, which row each opcode of each encoding has.  Fields that an opcode does not use
//! must be 0 where LLVM's disassembler wants them to be 0; what it refuses is refused here.

mod memory;
mod scalar;
mod vector;

use crate::inst::Asic;
use crate::inst::Ext;
use crate::inst::Form;
use crate::inst::Inst;
use crate::inst::Mods;
use crate::inst::Operand;
use crate::tables::rows;
use crate::tables::Enc;
use crate::tables::Row;

/// Why words are no instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The code ends inside of an instruction.
    #[error("The code ends inside of an instruction")]
    Truncated,
    /// No encoding begins like this.
    #[error("{0:#010x} begins no encoding")]
    Encoding(u32),
    /// The ASIC has no such opcode.
    #[error("There is no opcode {op} in {enc:?}")]
    Opcode {
        /// Encoding.
        enc: Enc,
        /// Opcode.
        op: u16,
    },
    /// A field has a value that is reserved for this opcode.
    #[error("{name} has a reserved value in the field {field}")]
    Field {
        /// Mnemonic.
        name: &'static str,
        /// Field.
        field: &'static str,
    },
}

/// The decoder of one ASIC.
#[derive(Debug)]
pub struct Decoder {
    asic: Asic,
    /// Row of each opcode plus one; 0 where there is none.
    by_op: Vec<u16>,
    rows: Vec<&'static Row>,
}

/// What is common to decoding all encodings: the words and the row.
struct Fields<'a> {
    asic: Asic,
    row: &'static Row,
    id: u16,
    low: u32,
    words: &'a [u32],
}

const fn bits(word: u32, high: u32, low: u32) -> u32 {
    (word >> low) & (u32::MAX >> (31 - (high - low)))
}

impl Fields<'_> {
    /// The second word.
    fn high(&self) -> Result<u32, DecodeError> {
        self.words.get(1).copied().ok_or(DecodeError::Truncated)
    }

    fn reserved(&self, field: &'static str) -> DecodeError {
        DecodeError::Field {
            name: self.row.name,
            field,
        }
    }

    /// Refuses the instruction unless `good`.
    fn need(&self, good: bool, field: &'static str) -> Result<(), DecodeError> {
        if good {
            Ok(())
        } else {
            Err(self.reserved(field))
        }
    }

    /// An instruction of `size` bytes without operands.
    fn inst(&self, size: u8) -> Inst {
        Inst {
            row: self.row,
            id: self.id,
            size,
            form: Form::Other,
            dst: Operand::None,
            sdst: Operand::None,
            src: [Operand::None; 4],
            imm: 0,
            literal: 0,
            mods: Mods::default(),
            ext: Ext::None,
        }
    }

    /// A VGPR or, with `acc`, AccVGPR that begins a tuple of `regs`.
    fn vgpr(&self, number: u32, regs: usize, acc: bool) -> Result<Operand, DecodeError> {
        self.need(number as usize + regs <= 256, "VGPR")?;
        let number = number as u8;
        Ok(if acc {
            Operand::A(number)
        } else {
            Operand::V(number)
        })
    }

    /// A scalar destination of `regs` registers.
    fn sdst(&self, code: u32, regs: usize) -> Result<Operand, DecodeError> {
        match sgpr_tuple(code as u8 & 0x7F, regs) {
            Some(code) => Ok(Operand::S(code)),
            None => Err(self.reserved("SDST")),
        }
    }

    /// A scalar source of `regs` registers: 8 bits of operand code.
    fn ssrc(&self, code: u32, regs: usize) -> Result<Operand, DecodeError> {
        match code as u8 {
            code @ 0..=127 => match sgpr_tuple(code, regs) {
                Some(code) => Ok(Operand::S(code)),
                None => Err(self.reserved("SSRC")),
            },
            code @ (128..=208 | 240..=248) => Ok(Operand::Const(code)),
            code @ (235..=239 | 251..=253) => Ok(Operand::Special(code)),
            255 => Ok(Operand::Literal),
            _ => Err(self.reserved("SSRC")),
        }
    }
}

/// Where `regs` scalar registers begin that are named by `code`: low bits of the number of a tuple do not count.
fn sgpr_tuple(code: u8, regs: usize) -> Option<u8> {
    let align = match regs {
        0 | 1 => 1,
        2 => 2,
        _ => 4,
    };
    let named = match code {
        102..=107 | 124..=127 => code,
        _ => code / align * align,
    };
    let last = usize::from(named) + regs.max(1) - 1;
    let good = match named {
        0..=101 => last <= if regs > 1 { 105 } else { 101 },
        125 => true,
        102..=107 | 124..=127 => {
            regs <= 2 && (named == 125 || (named % align == 0 && (regs == 1 || named != 124)))
        }
        _ => last <= 123,
    };
    good.then_some(named)
}

impl Decoder {
    /// The decoder for `asic`.
    pub fn new(asic: Asic) -> Self {
        let mut by_op = vec![0; Enc::SPACE];
        let all: Vec<&'static Row> = rows().collect();
        for (at, row) in all.iter().enumerate() {
            if row.asics & asic.bit() == 0 {
                continue;
            }
            let mut set = |place: usize| {
                if let Some(slot) = by_op.get_mut(place) {
                    *slot = at as u16 + 1;
                }
            };
            if matches!(row.enc, Enc::Vop1 | Enc::Vop2 | Enc::Vopc) {
                if row.has(b'3') {
                    set(Enc::Vop3.base() + usize::from(row.vop3_op()));
                }
                if !row.has(b'e') {
                    continue;
                }
            }
            set(row.enc.base() + usize::from(row.op));
        }
        Self {
            asic,
            by_op,
            rows: all,
        }
    }

    /// The ASIC.
    pub fn asic(&self) -> Asic {
        self.asic
    }

    fn fields<'a>(&self, enc: Enc, op: u32, words: &'a [u32]) -> Result<Fields<'a>, DecodeError> {
        let op = op as u16;
        let none = DecodeError::Opcode { enc, op };
        let place = enc.base() + usize::from(op);
        let id = self.by_op.get(place).copied().unwrap_or(0);
        let id = id.checked_sub(1).ok_or(none)?;
        let row = *self.rows.get(usize::from(id)).ok_or(none)?;
        Ok(Fields {
            asic: self.asic,
            row,
            id,
            low: words.first().copied().ok_or(DecodeError::Truncated)?,
            words,
        })
    }

    /// The instruction at the beginning of `words`.
    ///
    /// # Errors
    /// Where the words are no instruction of the ASIC, or too few.
    pub fn decode(&self, words: &[u32]) -> Result<Inst, DecodeError> {
        let low = *words.first().ok_or(DecodeError::Truncated)?;
        let of = |enc, op| self.fields(enc, op, words);
        if low >> 31 == 0 {
            return match bits(low, 30, 25) {
                0x3E => of(Enc::Vopc, bits(low, 24, 17))?.vopc(),
                0x3F => of(Enc::Vop1, bits(low, 16, 9))?.vop1(),
                op => of(Enc::Vop2, op)?.vop2(),
            };
        }
        if low >> 30 == 2 {
            return match low >> 23 {
                0x17D => of(Enc::Sop1, bits(low, 15, 8))?.sop1(),
                0x17E => of(Enc::Sopc, bits(low, 22, 16))?.sopc(),
                0x17F => of(Enc::Sopp, bits(low, 22, 16))?.sopp(),
                top if top >> 5 == 0xB => of(Enc::Sopk, bits(low, 27, 23))?.sopk(),
                _ => of(Enc::Sop2, bits(low, 29, 23))?.sop2(),
            };
        }
        match low >> 26 {
            0x30 => of(Enc::Smem, bits(low, 25, 18))?.smem(),
            0x34 if low >> 23 == 0x1A7 => {
                let fields = of(Enc::Vop3p, bits(low, 22, 16))?;
                match fields.row.enc {
                    Enc::Mai => fields.mai(),
                    _ => fields.vop3p(),
                }
            }
            0x34 => of(Enc::Vop3, bits(low, 25, 16))?.vop3(),
            0x36 => of(Enc::Ds, bits(low, 24, 17))?.ds(),
            0x37 => match bits(low, 15, 14) {
                0 => of(Enc::Flat, bits(low, 24, 18))?.flat(),
                1 => of(Enc::Scratch, bits(low, 24, 18))?.flat(),
                2 => of(Enc::Global, bits(low, 24, 18))?.flat(),
                _ => Err(DecodeError::Encoding(low)),
            },
            0x38 => of(Enc::Mubuf, bits(low, 24, 18))?.mubuf(),
            0x3A => of(Enc::Mtbuf, bits(low, 18, 15))?.mtbuf(),
            _ => Err(DecodeError::Encoding(low)),
        }
    }
}
