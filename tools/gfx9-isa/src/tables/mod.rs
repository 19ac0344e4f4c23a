// SPDX-License-Identifier: GPL-2.0 OR MIT
//! One row per opcode: the facts from which decoding, text and execution follow.
//!
//! # Signature
//! Destinations, a colon, sources; one letter per operand:
//!
//! | letter | operand | letter | operand |
//! | --- | --- | --- | --- |
//! | `w` `d` `t` `q` | 32, 64, 96, 128 bits | `o` `x` `z` | 256, 512, 1024 bits |
//! | `h` `i` | 16-bit float, 16-bit integer | `p` `P` | two 16-bit values, two `f32` |
//! | `c` | lane mask (SGPR pair; VCC in 32-bit encodings) | `s` | SGPR as destination of a vector instruction |
//! | `a` | address VGPR of DS; AccVGPR of `v_accvgpr_mov_b32` | `k` | 32-bit literal that always follows |
//! | `m` | 16-bit immediate | `j` | branch distance |
//! | `r` | hardware register | `g` | operand classes of relative addressing |
//! | `W` | counters of `s_waitcnt` | `M` | message |
//! | `u` | unsigned immediate | `e` | immediate that is printed unless it is 0 |
//!
//! # Flags
//! | letter | vector ALU | letter | memory |
//! | --- | --- | --- | --- |
//! | `e` `3` `w` `d` | has a 32-bit, 64-bit, SDWA, DPP form | `g` | `glc` allowed (DS: `gds`) |
//! | `0` `1` `2` | `neg` and `abs` of that source | `2` | DS: two offsets |
//! | `x` `y` `z` | their bits of that source are ignored | `G` | DS: always `gds` |
//! | `c` | clamp | `A` | atomic |
//! | `o` | output modifier | `b` | atomic without the `scc` bit |
//! | `s` | `op_sel` | `l` | loads to LDS (MUBUF: also) |
//! | `p` | `op_sel_hi`, `neg_lo`, `neg_hi` | `L` | stores from LDS |
//! | `k` | literal in every form | `C` | cache control; `B`: with `scc` |
//! | `n` | `blgp` negates | | |

mod buffer;
mod ds;
mod flat;
mod scalar;
mod smem;
mod vop12;
mod vop3;
mod vop3p;
mod vopc;

/// Bit of gfx906 in [`Row::asics`].
pub const G906: u8 = 1;
/// Bit of gfx90a in [`Row::asics`].
pub const G90A: u8 = 2;
/// Bit of gfx942 in [`Row::asics`].
pub const G942: u8 = 4;
const ALL: u8 = G906 | G90A | G942;

/// The encoding of an instruction, in which its opcode counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the ISA manuals")]
pub enum Enc {
    Sop1,
    Sop2,
    Sopc,
    Sopk,
    Sopp,
    Smem,
    Vop1,
    Vop2,
    Vopc,
    Vop3,
    Vop3p,
    Mai,
    Ds,
    Flat,
    Scratch,
    Global,
    Mubuf,
    Mtbuf,
}

impl Enc {
    /// Where the opcodes of the encoding begin in one space of all; MAI shares VOP3P's.
    pub(crate) const fn base(self) -> usize {
        match self {
            Enc::Sop1 => 0,
            Enc::Sop2 => 256,
            Enc::Sopc => 384,
            Enc::Sopk => 512,
            Enc::Sopp => 544,
            Enc::Smem => 672,
            Enc::Vop1 => 928,
            Enc::Vop2 => 1184,
            Enc::Vopc => 1248,
            Enc::Vop3 => 1504,
            Enc::Vop3p | Enc::Mai => 2528,
            Enc::Ds => 2656,
            Enc::Flat => 2912,
            Enc::Scratch => 3040,
            Enc::Global => 3168,
            Enc::Mubuf => 3296,
            Enc::Mtbuf => 3424,
        }
    }

    /// Size of the space of all opcodes.
    pub(crate) const SPACE: usize = 3440;
}

/// The kind of one operand: its width, and how a constant in its place is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the table of the module's text explains the letters"
)]
pub enum Ty {
    None,
    B32,
    B64,
    B96,
    B128,
    B256,
    B512,
    B1024,
    F16,
    I16,
    Pk16,
    Pk32,
    Mask,
    Sgpr,
    Addr,
    Literal,
    Imm16,
    Jump,
    HwReg,
    GprIdx,
    WaitCnt,
    Msg,
    Uimm,
    EndImm,
}

impl Ty {
    const fn of(letter: u8) -> Ty {
        match letter {
            b'w' => Ty::B32,
            b'd' => Ty::B64,
            b't' => Ty::B96,
            b'q' => Ty::B128,
            b'o' => Ty::B256,
            b'x' => Ty::B512,
            b'z' => Ty::B1024,
            b'h' => Ty::F16,
            b'i' => Ty::I16,
            b'p' => Ty::Pk16,
            b'P' => Ty::Pk32,
            b'c' => Ty::Mask,
            b's' => Ty::Sgpr,
            b'a' => Ty::Addr,
            b'k' => Ty::Literal,
            b'm' => Ty::Imm16,
            b'j' => Ty::Jump,
            b'r' => Ty::HwReg,
            b'g' => Ty::GprIdx,
            b'W' => Ty::WaitCnt,
            b'M' => Ty::Msg,
            b'u' => Ty::Uimm,
            b'e' => Ty::EndImm,
            _ => Ty::None,
        }
    }

    /// Registers that an operand of this kind takes.
    pub const fn regs(self) -> usize {
        match self {
            Ty::None => 0,
            Ty::B64 | Ty::Pk32 | Ty::Mask => 2,
            Ty::B96 => 3,
            Ty::B128 => 4,
            Ty::B256 => 8,
            Ty::B512 => 16,
            Ty::B1024 => 32,
            _ => 1,
        }
    }
}

/// An opcode.
#[derive(Debug)]
pub struct Row {
    /// Mnemonic without the suffix of its form.
    pub name: &'static str,
    /// Encoding in which [`Row::op`] counts.
    pub enc: Enc,
    /// Opcode.
    pub op: u16,
    /// On which ASICs it exists: [`G906`], [`G90A`], [`G942`].
    pub asics: u8,
    /// Destinations.
    pub dst: [Ty; 2],
    /// Sources.
    pub src: [Ty; 4],
    flags: u64,
}

const fn flag_bit(letter: u8) -> u64 {
    match letter {
        b'0'..=b'9' => 1 << (letter - b'0'),
        b'a'..=b'z' => 1 << (letter - b'a' + 10),
        b'A'..=b'Z' => 1 << (letter - b'A' + 36),
        _ => 0,
    }
}

const fn row(
    enc: Enc,
    name: &'static str,
    op: u16,
    asics: u8,
    signature: &str,
    flags: &str,
) -> Row {
    let mut row = Row {
        name,
        enc,
        op,
        asics,
        dst: [Ty::None; 2],
        src: [Ty::None; 4],
        flags: 0,
    };
    let text = signature.as_bytes();
    let mut at = 0;
    while text[at] != b':' {
        row.dst[at] = Ty::of(text[at]);
        at += 1;
    }
    at += 1;
    let first = at;
    while at < text.len() {
        row.src[at - first] = Ty::of(text[at]);
        at += 1;
    }
    let text = flags.as_bytes();
    let mut at = 0;
    while at < text.len() {
        row.flags |= flag_bit(text[at]);
        at += 1;
    }
    row
}

impl Row {
    /// Whether the row has the flag `letter`; see the module's text.
    pub const fn has(&self, letter: u8) -> bool {
        self.flags & flag_bit(letter) != 0
    }

    /// How many sources there are.
    pub fn sources(&self) -> usize {
        self.src.iter().filter(|ty| **ty != Ty::None).count()
    }

    /// Whether an operand is 64 bits wide, which restricts the DPP forms.
    pub fn is_double(&self) -> bool {
        self.dst[0] == Ty::B64 || self.src.contains(&Ty::B64)
    }

    /// Opcode in the 64-bit vector encoding.
    pub fn vop3_op(&self) -> u16 {
        match self.enc {
            Enc::Vop2 => self.op + 256,
            Enc::Vop1 => self.op + 320,
            _ => self.op,
        }
    }
}

/// The tables of all encodings.
const TABLES: [&[Row]; 18] = [
    scalar::SOP1,
    scalar::SOP2,
    scalar::SOPC,
    scalar::SOPK,
    scalar::SOPP,
    smem::SMEM,
    vop12::VOP1,
    vop12::VOP2,
    vopc::VOPC,
    vop3::VOP3,
    vop3p::VOP3P,
    vop3p::MAI,
    ds::DS,
    flat::FLAT,
    flat::SCRATCH,
    flat::GLOBAL,
    buffer::MUBUF,
    buffer::MTBUF,
];

/// Every row.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    TABLES.iter().flat_map(|table| table.iter())
}
