// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What instructions move, for profiles: their class, bytes, and conflicts in the banks of LDS.
//!
//! LDS has 32 banks of one dword each, and serves 128 bytes of them in a pass: 32 lanes of an instruction that accesses
//! one dword per lane, 16 of one with two, 8 of one with more.  Lanes of a pass that read or write one dword together
//! need it once, those of an atomic one after the other.  Each further dword of the same bank needs another pass, which is
//! what counts as a conflict.  Hardware may choose the lanes of a pass otherwise for wide accesses; the number of passes
//! of an access without conflicts is the same.

use super::ds;
use super::memory;
use super::memory::Kind;
use super::smem;
use super::typed;
use crate::inst::Ext;
use crate::inst::Inst;
use crate::inst::Operand;
use crate::lanes::each;
use crate::tables::rows;
use crate::tables::Enc;
use crate::tables::Row;
use crate::wave::Wave;

/// Banks of LDS.
const BANKS: usize = 32;

/// Kinds of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Scalar ALU.
    Scalar,
    /// SOPP: branches, waits, barriers, messages.
    Control,
    /// Scalar memory.
    ScalarMemory,
    /// Vector ALU.
    Vector,
    /// Matrix instructions.
    Matrix,
    /// LDS.
    Lds,
    /// FLAT.
    Flat,
    /// GLOBAL.
    Global,
    /// Buffers.
    Buffer,
    /// SCRATCH.
    Private,
}

impl Class {
    /// All of them.
    pub const ALL: [Class; 10] = [
        Class::Scalar,
        Class::Control,
        Class::ScalarMemory,
        Class::Vector,
        Class::Matrix,
        Class::Lds,
        Class::Flat,
        Class::Global,
        Class::Buffer,
        Class::Private,
    ];

    /// The class of an opcode.
    pub const fn of(row: &Row) -> Self {
        match row.enc {
            Enc::Sop1 | Enc::Sop2 | Enc::Sopc | Enc::Sopk => Class::Scalar,
            Enc::Sopp => Class::Control,
            Enc::Smem => Class::ScalarMemory,
            Enc::Vop1 | Enc::Vop2 | Enc::Vopc | Enc::Vop3 | Enc::Vop3p => Class::Vector,
            Enc::Mai => Class::Matrix,
            Enc::Ds => Class::Lds,
            Enc::Flat => Class::Flat,
            Enc::Global => Class::Global,
            Enc::Mubuf | Enc::Mtbuf => Class::Buffer,
            Enc::Scratch => Class::Private,
        }
    }

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Scalar => "scalar",
            Class::Control => "control",
            Class::ScalarMemory => "scalar-memory",
            Class::Vector => "vector",
            Class::Matrix => "matrix",
            Class::Lds => "lds",
            Class::Flat => "flat",
            Class::Global => "global",
            Class::Buffer => "buffer",
            Class::Private => "private",
        }
    }
}

/// What one instruction of a wave moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes read from memory or LDS.
    pub loaded: u64,
    /// Bytes written there.  What an atomic changes counts in both.
    pub stored: u64,
    /// Passes through LDS beyond those that the access needs without conflicts.
    pub conflicts: u64,
}

/// What an opcode moves.
#[derive(Clone, Copy)]
enum Shape {
    Nothing,
    /// So many bytes once.
    Once {
        loaded: u64,
        stored: u64,
    },
    /// So many bytes for each active lane.
    Lanes {
        loaded: u64,
        stored: u64,
    },
    /// LDS: accesses of `bytes` bytes per lane; two of them, whose offsets count in `stride`, if there is one.
    Lds {
        bytes: u32,
        stride: Option<u32>,
        loads: bool,
        stores: bool,
    },
}

fn lds(action: ds::Action) -> Shape {
    let shape = |bytes, stride, loads, stores| Shape::Lds {
        bytes,
        stride,
        loads,
        stores,
    };
    match action {
        ds::Action::Read { bytes, .. } => shape(bytes, None, true, false),
        ds::Action::Write { bytes, .. } => shape(bytes, None, false, true),
        ds::Action::Read2 { bytes, stride } => shape(bytes, Some(stride), true, false),
        ds::Action::Write2 { bytes, stride } => shape(bytes, Some(stride), false, true),
        ds::Action::Exchange2 { bytes, stride } => shape(bytes, Some(stride), true, true),
        ds::Action::Atomic { wide, .. } => shape(if wide { 8 } else { 4 }, None, true, true),
        ds::Action::Src2 { wide, .. } => {
            let bytes = if wide { 8 } else { 4 };
            Shape::Lanes {
                loaded: 2 * bytes,
                stored: bytes,
            }
        }
        ds::Action::ReadByLane => Shape::Lanes {
            loaded: 4,
            stored: 0,
        },
        ds::Action::WriteByLane => Shape::Lanes {
            loaded: 0,
            stored: 4,
        },
        ds::Action::Append | ds::Action::Consume => Shape::Once {
            loaded: 4,
            stored: 4,
        },
        ds::Action::Swizzle
        | ds::Action::Permute
        | ds::Action::Bpermute
        | ds::Action::Gws(_)
        | ds::Action::Nothing => Shape::Nothing,
    }
}

fn shape(row: &'static Row) -> Shape {
    let dwords = |ty: crate::tables::Ty| 4 * ty.regs() as u64;
    match row.enc {
        Enc::Smem => match smem::bind(row) {
            Some(smem::Action::Load { .. }) => Shape::Once {
                loaded: dwords(row.dst[0]),
                stored: 0,
            },
            Some(smem::Action::Store { .. }) => Shape::Once {
                loaded: 0,
                stored: dwords(row.src[0]),
            },
            Some(smem::Action::Atomic { .. }) => {
                let bytes = if row.name.ends_with("_x2") { 8 } else { 4 };
                Shape::Once {
                    loaded: bytes,
                    stored: bytes,
                }
            }
            Some(smem::Action::Clock { .. } | smem::Action::Nothing) | None => Shape::Nothing,
        },
        Enc::Ds => ds::bind(row).map_or(Shape::Nothing, lds),
        Enc::Flat | Enc::Scratch | Enc::Global | Enc::Mubuf | Enc::Mtbuf => {
            if let Some(action) = typed::bind(row) {
                // What the registers hold: how big an element is depends on the format.
                let bytes = action.bytes().into();
                let (loaded, stored) = if action.is_store() {
                    (0, bytes)
                } else {
                    (bytes, 0)
                };
                return Shape::Lanes { loaded, stored };
            }
            match memory::kind(row) {
                Some(Kind::Load { bytes, .. }) => Shape::Lanes {
                    loaded: bytes.into(),
                    stored: 0,
                },
                Some(Kind::Store { bytes, .. }) => Shape::Lanes {
                    loaded: 0,
                    stored: bytes.into(),
                },
                Some(Kind::Atomic { wide, .. }) => {
                    let bytes = if wide { 8 } else { 4 };
                    Shape::Lanes {
                        loaded: bytes,
                        stored: bytes,
                    }
                }
                None => Shape::Nothing,
            }
        }
        _ => Shape::Nothing,
    }
}

/// Tells what instructions move.
pub struct Costs {
    shapes: Vec<Shape>,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            shapes: rows().map(shape).collect(),
        }
    }
}

impl Costs {
    /// What `inst` moves when `wave` executes it in its present state.
    pub fn traffic(&self, wave: &Wave, inst: &Inst) -> Traffic {
        let lanes = u64::from(wave.exec().count_ones());
        match self.shapes.get(usize::from(inst.id)) {
            None | Some(Shape::Nothing) => Traffic::default(),
            Some(&Shape::Once { loaded, stored }) => Traffic {
                loaded,
                stored,
                conflicts: 0,
            },
            Some(&Shape::Lanes { loaded, stored }) => Traffic {
                loaded: loaded * lanes,
                stored: stored * lanes,
                conflicts: 0,
            },
            Some(&Shape::Lds {
                bytes,
                stride,
                loads,
                stores,
            }) => {
                let Ext::Mem(mem) = inst.ext else {
                    return Traffic::default();
                };
                let offset = mem.offset as u32 & 0xFFFF;
                let together = loads != stores;
                let (accesses, conflicts) = match stride {
                    None => (1, conflicts(wave, inst, offset, bytes, together)),
                    Some(stride) => {
                        let [first, second] = [offset & 0xFF, offset >> 8]
                            .map(|at| conflicts(wave, inst, at * stride, bytes, together));
                        (2, first + second)
                    }
                };
                let moved = accesses * lanes * u64::from(bytes);
                Traffic {
                    loaded: if loads { moved } else { 0 },
                    stored: if stores { moved } else { 0 },
                    conflicts,
                }
            }
        }
    }
}

/// Conflicts of one access to LDS; `together`: lanes share a dword.
fn conflicts(wave: &Wave, inst: &Inst, offset: u32, bytes: u32, together: bool) -> u64 {
    let Operand::V(number) = inst.src[0] else {
        return 0;
    };
    let base = wave.vgpr(number.into(), false);
    let exec = wave.exec();
    let dwords = bytes.div_ceil(4);
    let lanes = match dwords {
        0 | 1 => 32,
        2 => 16,
        _ => 8,
    };
    let mut sum = 0;
    for first in (0..64).step_by(lanes) {
        let active = exec >> first & ((1 << lanes) - 1);
        let mut seen = [0u32; BANKS];
        let mut count = 0;
        let mut depth = [0u64; BANKS];
        for lane in each(active) {
            let at = base[first + lane].wrapping_add(offset) / 4;
            for dword in (0..dwords).map(|n| at.wrapping_add(n)) {
                if together && seen.iter().take(count).any(|known| *known == dword) {
                    continue;
                }
                // A pass has at most 32 dwords, so there is room for each.
                if let Some(slot) = seen.get_mut(count) {
                    *slot = dword;
                    count += 1;
                }
                depth[dword as usize % BANKS] += 1;
            }
        }
        let deepest = depth.iter().max().copied().unwrap_or(0);
        sum += deepest.saturating_sub(1);
    }
    sum
}
