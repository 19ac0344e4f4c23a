// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Loads and stores of buffers with conversion: `tbuffer_*_format_*`, whose format is in the instruction, and
//! `buffer_*_format_*`, which take format and selection of components from the resource.
//!
//! An element is accessed as a whole: it is in the range of the buffer or not.  A load gives 0 for components that the
//! element has not, and a store puts 0 where the instruction has none.

use super::buffer;
use super::buffer::Buffer;
use super::format::Format;
use super::illegal;
use super::lds;
use super::memory;
use super::memory::Half;
use super::vmem;
use super::Exception;
use crate::env::Env;
use crate::env::Lanes;
use crate::inst::Ext;
use crate::inst::Inst;
use crate::inst::Mem;
use crate::lanes::each;
use crate::tables::Enc;
use crate::tables::Row;
use crate::wave::Wave;

/// What an opcode does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Action {
    store: bool,
    /// Components of the registers.
    count: usize,
    /// [`Half::Low`]: two components in each register; [`Half::High`]: one, in the upper half.
    half: Half,
}

impl Action {
    /// Bytes that the registers hold, which tells roughly how much is moved.
    pub(super) fn bytes(self) -> u32 {
        let size = if self.half == Half::Whole { 4 } else { 2 };
        size * self.count as u32
    }

    /// Whether memory is written.
    pub(super) fn is_store(self) -> bool {
        self.store
    }
}

/// The action of a row of MUBUF or MTBUF, if it converts.
pub(super) fn bind(row: &Row) -> Option<Action> {
    let (_, name) = row.name.split_once('_')?;
    let (what, name) = name.split_once("_format_")?;
    let (components, half) = if let Some(rest) = name.strip_prefix("d16_hi_") {
        (rest, Half::High)
    } else if let Some(rest) = name.strip_prefix("d16_") {
        (rest, Half::Low)
    } else {
        (name, Half::Whole)
    };
    Some(Action {
        store: what == "store",
        count: components.len(),
        half,
    })
}

/// The format, and which component of the element each one of the registers is (4 to 7, or 0 and 1 for the values).
fn conversion(wave: &Wave, inst: &Inst, mem: &Mem) -> Result<(Format, [u32; 4]), Exception> {
    let (format, select) = if inst.row.enc == Enc::Mtbuf {
        (mem.format, [4, 5, 6, 7])
    } else {
        let third = (buffer::resource(wave, inst)?[1] >> 32) as u32;
        let format = third >> 15 & 15 | (third >> 12 & 7) << 4;
        let select = [0, 3, 6, 9].map(|shift| third >> shift & 7);
        (format as u8, select)
    };
    let format = Format::new(format).map_err(|why| illegal(inst, why))?;
    Ok((format, select))
}

/// Executes one of them.
///
/// # Errors
/// Where memory faults, an address is none, or the format does not exist.
pub(super) fn execute(
    wave: &mut Wave,
    inst: &Inst,
    env: &mut Env<'_>,
    action: Action,
) -> Result<(), Exception> {
    let Ext::Mem(mem) = inst.ext else {
        return Err(illegal(inst, "no offset"));
    };
    if mem.tfe {
        return Err(illegal(inst, "a fault status is not returned"));
    }
    let exec = wave.exec();
    if exec == 0 {
        return Ok(());
    }
    let (format, select) = conversion(wave, inst, &mem)?;
    let bytes = format.bytes();
    let dwords = bytes.div_ceil(4) as usize;
    let buffer = Buffer::new(wave, inst, &mem, true)?;
    if buffer.pieces(exec, bytes).is_some() {
        return Err(illegal(inst, "the element is not in one piece"));
    }
    let mut targets = buffer.targets(exec, 0, bytes);
    // Without a format there is no buffer, and nothing is in its range.
    let whole = targets.inside.iter().take(dwords);
    let lanes = match dwords {
        0 => 0,
        _ => whole.fold(targets.global, |lanes, inside| lanes & inside),
    };
    targets.global = lanes;
    vmem::check(&targets)?;
    let mut data = [[0; 64]; 4];
    if action.store {
        if lanes == 0 {
            return Ok(());
        }
        let from: [Lanes; 4] = std::array::from_fn(|at| {
            if at < action.count {
                vmem::lanes_of(wave, inst.src[1], at)
            } else {
                [0; 64]
            }
        });
        for lane in each(lanes) {
            let value = |at: usize| match action.half {
                Half::Whole => from[at][lane],
                Half::Low => format.widen(from[at / 2][lane] >> (16 * (at % 2))),
                Half::High => format.widen(from[at][lane] >> 16),
            };
            let mut components = [0; 4];
            for (at, from) in select.into_iter().take(action.count).enumerate() {
                if let Some(to) = from.checked_sub(4) {
                    components[to as usize & 3] = value(at);
                }
            }
            for (row, word) in data.iter_mut().zip(format.write(components)) {
                row[lane] = word;
            }
        }
        let from = &data[..dwords];
        return Ok(env.memory.store(&targets.address, lanes, bytes, from)?);
    }
    if lanes != 0 {
        let to = &mut data[..dwords];
        env.memory.load(&targets.address, lanes, bytes, to)?;
    }
    for lane in each(exec) {
        let components = format.read(std::array::from_fn(|at| data[at][lane]));
        let value = |from: u32| match from {
            1 => format.one(),
            4..=7 => components[from as usize - 4],
            _ => 0,
        };
        for (row, from) in data.iter_mut().zip(select) {
            row[lane] = value(from);
        }
    }
    if mem.lds {
        // The instruction's offset counts in both addresses.
        let base = u64::from(wave.m0() & 0xFFFF).wrapping_add(i64::from(mem.offset) as u64);
        for lane in each(exec) {
            let to = base.wrapping_add(4 * lane as u64);
            lds::write(env.lds, to, 4, data[0][lane]);
        }
        return Ok(());
    }
    put(wave, inst, action, format, &data);
    Ok(())
}

/// Writes the components that were loaded to the registers.
fn put(wave: &mut Wave, inst: &Inst, action: Action, format: Format, data: &[Lanes; 4]) {
    let Some((number, acc)) = vmem::register(inst.dst) else {
        return;
    };
    let exec = wave.exec();
    if action.half == Half::Whole {
        for (at, row) in data.iter().take(action.count).enumerate() {
            wave.write_vgpr(number + at, acc, exec, row);
        }
        return;
    }
    for (at, pair) in data.chunks(2).take(action.count.div_ceil(2)).enumerate() {
        let mut row = *wave.vgpr(number + at, acc);
        let both = action.count > 2 * at + 1;
        for (lane, slot) in row.iter_mut().enumerate() {
            let low = format.narrow(pair[0][lane]);
            *slot = if both {
                low | format.narrow(pair[1][lane]) << 16
            } else {
                memory::loaded(low, *slot, 2, false, action.half, wave.d16_clears)
            };
        }
        wave.write_vgpr(number + at, acc, exec, &row);
    }
}
