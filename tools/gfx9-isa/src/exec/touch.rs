// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Which bytes of LDS instructions access, for checkers.

use super::ds;
use super::ds::Action;
use super::memory;
use super::memory::Kind;
use super::smem;
use super::typed;
use super::vmem;
use crate::inst::Ext;
use crate::inst::Inst;
use crate::inst::Mem;
use crate::lanes::each;
use crate::tables::rows;
use crate::tables::Enc;
use crate::tables::Row;
use crate::wave::Wave;

/// How LDS is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// A load.
    Read,
    /// A store.
    Write,
    /// A read-modify-write operation.
    Atomic,
}

impl How {
    /// In a word.
    pub const fn word(self) -> &'static str {
        match self {
            How::Read => "read",
            How::Write => "write",
            How::Atomic => "atomic",
        }
    }
}

/// An access of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Byte of the group's LDS.
    pub address: u64,
    /// How many bytes.
    pub bytes: u32,
    /// How.
    pub how: How,
}

/// What an opcode may do.
#[derive(Clone, Copy)]
enum Shape {
    Nothing,
    Ds(Action),
    /// FLAT: lanes whose addresses are in the aperture of LDS.
    Flat(Kind),
    /// An atomic on memory.
    Atomic,
    /// A load that may go to LDS.
    Load,
}

fn shape(row: &'static Row) -> Shape {
    match row.enc {
        Enc::Ds => ds::bind(row).map_or(Shape::Nothing, Shape::Ds),
        Enc::Smem => match smem::bind(row) {
            Some(smem::Action::Atomic { .. }) => Shape::Atomic,
            _ => Shape::Nothing,
        },
        Enc::Flat => memory::kind(row).map_or(Shape::Nothing, Shape::Flat),
        Enc::Scratch | Enc::Global | Enc::Mubuf | Enc::Mtbuf => match memory::kind(row) {
            Some(Kind::Atomic { .. }) => Shape::Atomic,
            Some(Kind::Load { .. }) => Shape::Load,
            _ if typed::bind(row).is_some_and(|action| !action.is_store()) => Shape::Load,
            _ => Shape::Nothing,
        },
        _ => Shape::Nothing,
    }
}

/// Tells which bytes of LDS instructions access.
pub struct Touches {
    shapes: Vec<Shape>,
}

impl Default for Touches {
    fn default() -> Self {
        Self {
            shapes: rows().map(shape).collect(),
        }
    }
}

/// What an instruction does to LDS, and whether waves may meet by it elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Accesses, by lanes and in their order.
    pub lds: Vec<Touch>,
    /// It is an atomic on memory, or global wave sync: what waves tell each other by it is known to nobody.
    pub meets: bool,
}

impl Touches {
    /// What `inst` does when `wave` executes it in its present state; `to` is overwritten.
    pub fn of(&self, wave: &Wave, inst: &Inst, to: &mut Touched) {
        to.lds.clear();
        to.meets = false;
        let Ext::Mem(mem) = inst.ext else {
            return;
        };
        match self.shapes.get(usize::from(inst.id)) {
            None | Some(Shape::Nothing) => {}
            Some(Shape::Atomic) => to.meets = true,
            Some(Shape::Load) if mem.lds => {
                // Each lane has a dword, from M0 and the instruction's offset on.
                let base = u64::from(wave.m0() & 0xFFFF);
                let base = base.wrapping_add(i64::from(mem.offset) as u64);
                by_lane(wave.exec(), base, How::Write, to);
            }
            Some(Shape::Load) => {}
            Some(Shape::Ds(Action::Gws(_))) => to.meets = true,
            Some(Shape::Ds(_)) if mem.gds => {}
            Some(Shape::Ds(action)) => shared(wave, inst, &mem, *action, to),
            Some(Shape::Flat(kind)) => {
                let Ok(targets) = vmem::flat(wave, inst, &mem, wave.exec()) else {
                    return;
                };
                let (bytes, how) = match *kind {
                    Kind::Load { bytes, .. } => (bytes, How::Read),
                    Kind::Store { bytes, .. } => (bytes, How::Write),
                    Kind::Atomic { wide, .. } => (if wide { 8 } else { 4 }, How::Atomic),
                };
                to.meets = how == How::Atomic && targets.global != 0;
                for lane in each(targets.lds) {
                    let address = targets.address[lane];
                    to.lds.push(Touch {
                        address,
                        bytes,
                        how,
                    });
                }
            }
        }
    }
}

/// A dword for each lane, one after the other.
fn by_lane(exec: u64, base: u64, how: How, to: &mut Touched) {
    to.lds.extend(each(exec).map(|lane| Touch {
        address: base.wrapping_add(4 * lane as u64),
        bytes: 4,
        how,
    }));
}

fn shared(wave: &Wave, inst: &Inst, mem: &Mem, action: Action, to: &mut Touched) {
    let exec = wave.exec();
    let offset = mem.offset as u32 & 0xFFFF;
    let base = ds::value(wave, inst.src[0], 0);
    let lds = &mut to.lds;
    let mut all = |offset: u32, bytes: u32, how: How| {
        lds.extend(each(exec).map(|lane| Touch {
            address: base[lane].wrapping_add(offset).into(),
            bytes,
            how,
        }));
    };
    let wide_bytes = |wide: bool| if wide { 8 } else { 4 };
    let mut pair = |bytes: u32, stride: u32, how: How| {
        for number in [offset & 0xFF, offset >> 8] {
            all(number * stride, bytes, how);
        }
    };
    match action {
        Action::Read2 { bytes, stride } => pair(bytes, stride, How::Read),
        Action::Write2 { bytes, stride } => pair(bytes, stride, How::Write),
        Action::Exchange2 { bytes, stride } => pair(bytes, stride, How::Atomic),
        Action::Read { bytes, .. } => all(offset, bytes, How::Read),
        Action::Write { bytes, .. } => all(offset, bytes, How::Write),
        Action::Atomic { wide, .. } => all(offset, wide_bytes(wide), How::Atomic),
        Action::Src2 { wide, .. } => {
            for lane in each(exec) {
                let (address, from) = ds::src2(base[lane], offset as u16);
                for (address, how) in [(from, How::Read), (address, How::Atomic)] {
                    lds.push(Touch {
                        address,
                        bytes: wide_bytes(wide),
                        how,
                    });
                }
            }
        }
        Action::ReadByLane | Action::WriteByLane => {
            let from = u64::from(wave.m0() & 0xFFFF) + u64::from(offset);
            let reads = matches!(action, Action::ReadByLane);
            let how = if reads { How::Read } else { How::Write };
            by_lane(exec, from, how, to);
        }
        Action::Append | Action::Consume if exec != 0 => lds.push(Touch {
            address: u64::from(wave.m0() & 0xFFFF) + u64::from(offset),
            bytes: 4,
            how: How::Atomic,
        }),
        Action::Append
        | Action::Consume
        | Action::Swizzle
        | Action::Permute
        | Action::Bpermute
        | Action::Gws(_)
        | Action::Nothing => {}
    }
}
