// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The decoded form of an instruction.

use crate::tables::Row;

/// The ASIC whose instruction set is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asic {
    /// Vega 20 (MI50, MI60).
    Gfx906,
    /// MI200.
    Gfx90a,
    /// MI300.
    Gfx942,
}

impl Asic {
    /// All of them.
    pub const ALL: [Asic; 3] = [Asic::Gfx906, Asic::Gfx90a, Asic::Gfx942];

    /// The bit in [`Row::asics`].
    pub const fn bit(self) -> u8 {
        match self {
            Asic::Gfx906 => crate::tables::G906,
            Asic::Gfx90a => crate::tables::G90A,
            Asic::Gfx942 => crate::tables::G942,
        }
    }

    /// LLVM's name.
    pub const fn name(self) -> &'static str {
        match self {
            Asic::Gfx906 => "gfx906",
            Asic::Gfx90a => "gfx90a",
            Asic::Gfx942 => "gfx942",
        }
    }

    /// Whether there are AccVGPRs and packed `f32`, and tuples of VGPRs begin at even numbers.
    pub const fn has_acc(self) -> bool {
        !matches!(self, Asic::Gfx906)
    }
}

/// One operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// There is none.
    None,
    /// Scalar register by operand code: 0..=101 SGPR, 102..=107 FLAT_SCRATCH, XNACK_MASK and VCC, 108..=123 trap
    /// temporaries, 124 M0, 126 and 127 EXEC.
    S(u8),
    /// VGPR.
    V(u8),
    /// AccVGPR.
    A(u8),
    /// Inline constant by operand code: 128..=208 integers, 240..=248 floats.
    Const(u8),
    /// The literal, [`Inst::literal`].
    Literal,
    /// Apertures (235..=238), VCCZ, EXECZ, SCC (251..=253) and what only graphics has (239, 254).
    Special(u8),
}

/// The form of a vector ALU instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Not vector ALU.
    Other,
    /// 32 bits.
    E32,
    /// 64 bits.
    E64,
    /// With sub-dword operands.
    Sdwa,
    /// With lanes exchanged.
    Dpp,
}

/// Modifiers of vector ALU instructions; bit `n` of a mask is source `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mods {
    /// Negate (VOP3P: for the low result).
    pub neg: u8,
    /// Magnitude (VOP3P: negate for the high result).
    pub abs: u8,
    /// Sign-extend (SDWA).
    pub sext: u8,
    /// Clamp the result.
    pub clamp: bool,
    /// 0: none, 1: times 2, 2: times 4, 3: half.
    pub omod: u8,
    /// Halves of the sources, bit 3: of the destination (VOP3P: for the low result).
    pub op_sel: u8,
    /// Halves of the sources for the high result.
    pub op_sel_hi: u8,
}

/// Fields of SDWA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sdwa {
    /// 0..=3 byte, 4 and 5 word, 6 dword.
    pub dst_sel: u8,
    /// 0 pad with 0, 1 sign-extend, 2 preserve.
    pub dst_unused: u8,
    /// Selection of the sources.
    pub src_sel: [u8; 2],
}

/// Fields of DPP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dpp {
    /// Which lane each lane reads.
    pub ctrl: u16,
    /// Rows that are written.
    pub row_mask: u8,
    /// Banks that are written.
    pub bank_mask: u8,
    /// Lanes without a source read 0 instead of being left out.
    pub bound_ctrl: bool,
}

/// Fields of memory instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mem {
    /// Offset in bytes: signed or not as the encoding has it (DS: both bytes).
    pub offset: i32,
    /// Return the old value; on other than atomics a cache hint (`sc0` on gfx942).
    pub glc: bool,
    /// Cache hint (`nt` on gfx942).
    pub slc: bool,
    /// Cache hint (`sc1` on gfx942).
    pub scc: bool,
    /// The data goes to or comes from LDS.
    pub lds: bool,
    /// DS: global data share.
    pub gds: bool,
    /// MUBUF: the VGPR holds an index.
    pub idxen: bool,
    /// MUBUF: the VGPR holds an offset.
    pub offen: bool,
    /// MUBUF: a fault status goes to one more VGPR.
    pub tfe: bool,
    /// SMEM: [`Mem::offset`] counts.
    pub imm: bool,
    /// MTBUF: data format (bits 3:0) and number format (6:4).
    pub format: u8,
}

/// Fields that only some encodings have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ext {
    /// None of these.
    None,
    /// SDWA.
    Sdwa(Sdwa),
    /// DPP.
    Dpp(Dpp),
    /// Memory.
    Mem(Mem),
    /// Broadcast and permutation fields of matrix instructions.
    Mai {
        /// Blocks of A per broadcast group, as an exponent.
        cbsz: u8,
        /// Block of the group whose A is broadcast.
        abid: u8,
        /// Permutation of B's lanes, or negation (`f64` on gfx942).
        blgp: u8,
    },
}

/// A decoded instruction.
#[derive(Clone, Copy, Debug)]
pub struct Inst {
    /// The opcode's row.
    pub row: &'static Row,
    /// Number of the row in [`crate::tables::rows`].
    pub id: u16,
    /// Size in bytes: 4 or 8.
    pub size: u8,
    /// Form.
    pub form: Form,
    /// Destination; for memory the data that comes back.
    pub dst: Operand,
    /// Second destination (carry, scale flag).
    pub sdst: Operand,
    /// Sources.  DS: address, data, data.  FLAT: address, data, scalar address.  MUBUF: address, data, resource,
    /// offset.  SMEM: base, offset register, data.
    pub src: [Operand; 4],
    /// Immediate of SOPK and SOPP, sign-extended; its low half as encoded.
    pub imm: i32,
    /// Literal.
    pub literal: u32,
    /// Modifiers.
    pub mods: Mods,
    /// Further fields.
    pub ext: Ext,
}
