// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Buffers, of MUBUF and MTBUF: the resource descriptor, and where the lanes' accesses are.
//!
//! A swizzled buffer interleaves the dwords of as many records as its index stride says, as private memory does those of
//! lanes.  So an access that is wider than a dword, or crosses from one dword into the next, is in several pieces, each
//! with an address and a range check of its own.

use super::illegal;
use super::scalar;
use super::vmem::check;
use super::vmem::lanes_of;
use super::vmem::Targets;
use super::Exception;
use crate::inst::Inst;
use crate::inst::Mem;
use crate::inst::Operand;
use crate::lanes::each;
use crate::tables::Ty;
use crate::wave::Wave;

/// The resource descriptor of a buffer, in four scalar registers.
pub(super) fn resource(wave: &Wave, inst: &Inst) -> Result<[u64; 2], Exception> {
    match inst.src[2] {
        Operand::S(125) => Err(illegal(inst, "the operand 125 does not exist")),
        Operand::S(code) => Ok([wave.pair(code), wave.pair(code.wrapping_add(2))]),
        _ => Err(illegal(inst, "no resource")),
    }
}

/// A buffer as an instruction uses it.
pub(super) struct Buffer {
    base: u64,
    /// Bytes, or records where they are indexed.
    records: u64,
    stride: u64,
    /// Records whose dwords are interleaved, if they are.
    interleaved: Option<u64>,
    add_lane: bool,
    soffset: u64,
    idxen: bool,
    /// Of each lane.
    index: [u64; 64],
    offset: [u64; 64],
}

impl Buffer {
    /// `converts`: the instruction has a data format, or the resource has.
    ///
    /// # Errors
    /// The resource is none, or not that of a buffer.
    pub(super) fn new(
        wave: &Wave,
        inst: &Inst,
        mem: &Mem,
        converts: bool,
    ) -> Result<Self, Exception> {
        let words = resource(wave, inst)?;
        let third = (words[1] >> 32) as u32;
        if third >> 30 != 0 {
            return Err(illegal(inst, "the resource is no buffer"));
        }
        let add_lane = third >> 23 & 1 != 0;
        let mut stride = words[0] >> 48 & 0x3FFF;
        // Instructions that convert have a data format there.
        if add_lane && !converts {
            stride |= u64::from(third >> 15 & 15) << 14;
        }
        let swizzle = words[0] >> 63 != 0;
        let (first, second) = (
            lanes_of(wave, inst.src[0], 0),
            lanes_of(wave, inst.src[0], 1),
        );
        let index = std::array::from_fn(|lane| {
            let index = if mem.idxen { u64::from(first[lane]) } else { 0 };
            index + if add_lane { lane as u64 } else { 0 }
        });
        let offset = std::array::from_fn(|lane| {
            let vector = match (mem.offen, mem.idxen) {
                (false, _) => 0,
                (true, false) => first[lane],
                (true, true) => second[lane],
            };
            u64::from(vector.wrapping_add(mem.offset as u32))
        });
        Ok(Self {
            base: words[0] & 0xFFFF_FFFF_FFFF,
            records: words[1] & 0xFFFF_FFFF,
            stride,
            interleaved: swizzle.then_some(8u64 << (third >> 21 & 3)),
            add_lane,
            soffset: scalar(wave, inst, inst.src[3], Ty::B32)?,
            idxen: mem.idxen,
            index,
            offset,
        })
    }

    /// How the lanes' accesses to `bytes` bytes fall apart: the size of the pieces, or `None` if each is in one piece.
    pub(super) fn pieces(&self, exec: u64, bytes: u32) -> Option<u32> {
        self.interleaved?;
        let unit = u64::from(bytes.min(4));
        let straight = each(exec).all(|lane| self.offset[lane] % 4 + unit <= 4);
        match (straight, bytes) {
            (true, ..=4) => None,
            (true, _) => Some(4),
            (false, _) => Some(1),
        }
    }

    /// Where the lanes access `bytes` bytes, from the byte `from` of their accesses on, in one piece.
    pub(super) fn targets(&self, exec: u64, from: u32, bytes: u32) -> Targets {
        let mut targets = Targets::of_buffer(exec);
        for lane in each(exec) {
            let index = self.index[lane];
            let offset = self.offset[lane] + u64::from(from);
            let linear = match self.interleaved {
                Some(count) => {
                    let (high, low) = (index / count, index % count);
                    (high * self.stride + offset / 4 * 4) * count + low * 4 + offset % 4
                }
                None => offset + self.stride * index,
            };
            targets.address[lane] = self.base.wrapping_add(self.soffset).wrapping_add(linear);
            for (dword, inside) in targets.inside.iter_mut().enumerate() {
                let size = u64::from(bytes.min(4));
                let end = offset + self.soffset + 4 * dword as u64 + size;
                let good = if self.add_lane && !self.idxen {
                    true
                } else if self.idxen && self.stride != 0 {
                    index < self.records && (self.interleaved.is_none() || offset < self.stride)
                } else {
                    end <= self.records
                };
                *inside |= u64::from(good) << lane;
            }
        }
        targets
    }

    /// Does an access to `bytes` bytes in pieces of `size`.  `access` gets the lanes that are in the range of the buffer and
    /// where they are, the dword of the data, and the shift within it.
    ///
    /// # Errors
    /// An address is none, or those of `access`.
    pub(super) fn by_pieces(
        &self,
        exec: u64,
        bytes: u32,
        size: u32,
        mut access: impl FnMut(&Targets, usize, u32) -> Result<(), Exception>,
    ) -> Result<(), Exception> {
        for from in (0..bytes).step_by(size.max(1) as usize) {
            let mut targets = self.targets(exec, from, size);
            targets.global &= targets.inside[0];
            check(&targets)?;
            if targets.global != 0 {
                access(&targets, from as usize / 4, from % 4 * 8)?;
            }
        }
        Ok(())
    }
}
