// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The state of one wave of 64 lanes.

use crate::env::Lanes;
use crate::inst::Asic;
use crate::simd;

/// Operand codes of scalar registers with a name.
pub mod reg {
    /// FLAT_SCRATCH_LO; the high half follows.
    pub const FLAT_SCRATCH: u8 = 102;
    /// XNACK_MASK_LO.
    pub const XNACK_MASK: u8 = 104;
    /// VCC_LO.
    pub const VCC: u8 = 106;
    /// The first trap temporary.
    pub const TTMP0: u8 = 108;
    /// M0.
    pub const M0: u8 = 124;
    /// EXEC_LO.
    pub const EXEC: u8 = 126;
}

/// Bits of STATUS.
pub mod status {
    /// The wave runs its trap handler.
    pub const PRIV: u32 = 1 << 5;
    /// The wave belongs to a group of several.
    pub const IN_TG: u32 = 1 << 11;
    /// The wave is halted.
    pub const HALT: u32 = 1 << 13;
    /// Conditional debug flag of the user.
    pub const COND_DBG_USER: u32 = 1 << 20;
    /// Conditional debug flag of the system.
    pub const COND_DBG_SYS: u32 = 1 << 21;
}

/// Bits of MODE beside rounding (3:0) and denormals (7:4).
pub mod mode {
    /// Clamping turns NaN into 0.
    pub const DX10_CLAMP: u32 = 1 << 8;
    /// Signalling NaNs are made quiet.
    pub const IEEE: u32 = 1 << 9;
    /// Finite overflow to 16 bits gives the greatest number.
    pub const FP16_OVFL: u32 = 1 << 23;
    /// Relative addressing of VGPRs.
    pub const GPR_IDX_EN: u32 = 1 << 27;
    /// Vector instructions are skipped.
    pub const VSKIP: u32 = 1 << 28;
    /// First bit of the number of entries of the stack of forks, which has three.
    pub const CSP: u32 = 29;
}

/// Exceptions of floats: bits of TRAPSTS, and, from [`excp::MODE_SHIFT`] on, of MODE, which lets them trap.
pub mod excp {
    /// No number as result of numbers, or a signalling NaN as operand.
    pub const INVALID: u32 = 1;
    /// A denormal as operand that is not flushed.
    pub const DENORMAL: u32 = 1 << 1;
    /// A division of a number by 0.
    pub const DIV0: u32 = 1 << 2;
    /// The result is beyond the greatest number.
    pub const OVERFLOW: u32 = 1 << 3;
    /// The result is inexact and denormal or 0.
    pub const UNDERFLOW: u32 = 1 << 4;
    /// The result is rounded.
    pub const INEXACT: u32 = 1 << 5;
    /// A division by 0 for integers.
    pub const INT_DIV0: u32 = 1 << 6;
    /// All of them.
    pub const ALL: u32 = 0x7F;
    /// Where their bits begin in MODE.
    pub const MODE_SHIFT: u32 = 12;
}

/// Lanes of one register, aligned for vector units of the host.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Row(pub Lanes);

/// One wave.
#[derive(Clone)]
pub struct Wave {
    asic: Asic,
    /// Address of the next instruction.
    pub pc: u64,
    /// Scalar registers by operand code: SGPRs, VCC, trap temporaries, M0, EXEC.
    pub sgpr: [u32; 128],
    /// Scalar condition code.
    pub scc: bool,
    /// MODE.
    pub mode: u32,
    /// STATUS without the bits that are derived (SCC, EXECZ, VCCZ).
    pub status: u32,
    /// TRAPSTS.
    pub trapsts: u32,
    /// HW_ID.
    pub hw_id: u32,
    /// GPR_ALLOC.
    pub gpr_alloc: u32,
    /// LDS_ALLOC.
    pub lds_alloc: u32,
    /// IB_STS.
    pub ib_sts: u32,
    /// SH_MEM_BASES: the apertures of LDS (31:16) and private memory (15:0).
    pub sh_mem_bases: u32,
    /// TBA and TMA, as the registers have them (address >> 8).
    pub trap_base: [u32; 4],
    /// XCC_ID.
    pub xcc_id: u32,
    /// What the wave has in hand while it waits in global wave sync; 0 elsewhere.
    pub gws_ticket: u64,
    /// Whether 16-bit loads clear the other half of the register (chips with SRAM-ECC).
    pub d16_clears: bool,
    /// Whether TRAPSTS collects exceptions of floats also if MODE lets none of them trap.
    pub tracks_exceptions: bool,
    /// Allocated VGPRs and AccVGPRs.
    limits: [usize; 2],
    /// How many of each kind there are rows for.
    room: [usize; 2],
    /// The rows of all registers, and one more: results are written there, and the row takes the register's place.
    rows: Vec<Row>,
    /// The row of each register: VGPRs, then AccVGPRs.
    row_of: [u16; 2 * FILE],
    /// The row that belongs to no register.
    spare: u16,
    /// Sources of vector instructions that are no register as it is; and what value is in all lanes of them.
    filled: [Row; 3],
    fill: [Option<u32>; 3],
    /// Flags of comparisons and carries.
    flags: Row,
}

/// VGPRs of each kind that instructions can name.
const FILE: usize = 256;

/// Words of a saved wave but for the scalar registers that it may leave out and the vector registers.
const OTHERS: usize = 24 + 128 - reg::FLAT_SCRATCH as usize;
/// Bytes of the longest saved wave.
pub(crate) const LONGEST_SAVED: usize = 4 * (OTHERS + reg::FLAT_SCRATCH as usize + 64 * 2 * FILE);

/// Words that were saved.
pub(crate) struct Words<'a>(pub(crate) &'a [u8]);

impl Words<'_> {
    /// The next one.
    pub(crate) fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*word))
    }

    /// The next one, of 64 bits.
    pub(crate) fn wide(&mut self) -> Option<u64> {
        Some(u64::from(self.word()?) | u64::from(self.word()?) << 32)
    }

    /// The next one, 0 or 1.
    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.word()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// As many bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Option<Vec<u8>> {
        let bytes = self.0.get(..count)?.to_vec();
        self.0 = self.0.get(count..)?;
        Some(bytes)
    }
}

/// Where a source of a vector instruction is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// A register: VGPRs are 0 to 255, AccVGPRs follow.
    Row(u16),
    /// A scalar register.
    Scalar(u8),
    /// A constant.
    Value(u32),
}

/// A source of a vector instruction and what happens to its bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    /// Where it is.
    pub(crate) place: Place,
    /// Bits that stay, and bits that are then inverted.
    pub(crate) change: Option<(u32, u32)>,
}

impl Wave {
    /// A wave with all registers 0 and as many VGPRs as there can be.
    pub fn new(asic: Asic) -> Self {
        Self::with_registers(asic, FILE, FILE)
    }

    /// A wave with all registers 0 and these numbers of VGPRs and AccVGPRs, or as many as the ASIC has.
    pub fn with_registers(asic: Asic, vgprs: usize, agprs: usize) -> Self {
        let agprs_most = if asic.has_acc() { FILE } else { 0 };
        let limits = [vgprs.clamp(1, FILE), agprs.min(agprs_most)];
        let [vgprs, agprs] = limits;
        // Registers without a row are never looked up.
        let row = |at: usize| match at.checked_sub(FILE) {
            None if at < vgprs => at,
            Some(acc) if acc < agprs => vgprs + acc,
            _ => 0,
        };
        Self {
            asic,
            pc: 0,
            sgpr: [0; 128],
            scc: false,
            mode: 0xC0 | 0x30 | mode::DX10_CLAMP | mode::IEEE,
            status: 0,
            trapsts: 0,
            hw_id: 0,
            gpr_alloc: 0,
            lds_alloc: 0,
            ib_sts: 0,
            sh_mem_bases: 0x0001_0002,
            trap_base: [0; 4],
            xcc_id: 0,
            gws_ticket: 0,
            d16_clears: asic.has_acc(),
            tracks_exceptions: false,
            limits,
            room: limits,
            rows: vec![Row([0; 64]); vgprs + agprs + 1],
            row_of: std::array::from_fn(|at| row(at) as u16),
            spare: (vgprs + agprs) as u16,
            filled: [Row([0; 64]); 3],
            fill: [Some(0); 3],
            flags: Row([0; 64]),
        }
    }

    /// The ASIC.
    pub fn asic(&self) -> Asic {
        self.asic
    }

    /// Sets how many VGPRs and AccVGPRs are allocated; at most what the wave was made with.
    pub fn set_limits(&mut self, vgprs: usize, agprs: usize) {
        self.limits = [vgprs.clamp(1, self.room[0]), agprs.min(self.room[1])];
    }

    /// A pair of scalar registers.
    pub fn pair(&self, code: u8) -> u64 {
        let at = |code: u8| u64::from(self.sgpr[usize::from(code & 127)]);
        at(code) | at(code.wrapping_add(1)) << 32
    }

    /// Writes a pair of scalar registers.
    pub fn set_pair(&mut self, code: u8, value: u64) {
        self.sgpr[usize::from(code & 127)] = value as u32;
        self.sgpr[usize::from(code.wrapping_add(1) & 127)] = (value >> 32) as u32;
    }

    /// Enters the trap handler: the PC, which is that of the next instruction or of the trap instruction, goes to the
    /// first two trap temporaries with the trap's number; the handler is at TBA.
    pub fn enter_trap(&mut self, trap: u8, host: bool) {
        let [low, high, ..] = self.trap_base;
        let cause = u32::from(trap) << 16 | u32::from(host) << 24;
        self.sgpr[usize::from(reg::TTMP0)] = self.pc as u32;
        self.sgpr[usize::from(reg::TTMP0) + 1] = (self.pc >> 32) as u32 & 0xFFFF | cause;
        let base = u64::from(low) << 8 | u64::from(high) << 40;
        self.pc = ((base << 16) as i64 >> 16) as u64;
        self.status |= status::PRIV;
    }

    /// How many of the scalar registers below those that are always saved are not 0, or lie before one that is not.
    fn used_scalars(&self) -> usize {
        let named = usize::from(reg::FLAT_SCRATCH);
        let used = (0..named).rev().find(|&at| self.sgpr[at] != 0);
        used.map_or(0, |last| last + 1)
    }

    /// Bytes that [`Wave::save`] appends.
    pub(crate) fn saved_size(&self) -> usize {
        let rows: usize = self.limits.iter().sum();
        4 * (OTHERS + self.used_scalars() + 64 * rows)
    }

    /// Appends all of the wave's state; [`Wave::restore`] reads it.
    pub(crate) fn save(&self, to: &mut Vec<u8>) {
        to.reserve(self.saved_size());
        let mut word = |value: u32| to.extend_from_slice(&value.to_le_bytes());
        word(match self.asic {
            Asic::Gfx906 => 0,
            Asic::Gfx90a => 1,
            Asic::Gfx942 => 2,
        });
        word(self.pc as u32);
        word((self.pc >> 32) as u32);
        // Most waves use few of the scalar registers that instructions can name.
        let named = usize::from(reg::FLAT_SCRATCH);
        let used = self.used_scalars();
        word(used as u32);
        self.sgpr[..used].iter().copied().for_each(&mut word);
        self.sgpr[named..].iter().copied().for_each(&mut word);
        for value in [
            u32::from(self.scc),
            self.mode,
            self.status,
            self.trapsts,
            self.hw_id,
            self.gpr_alloc,
            self.lds_alloc,
            self.ib_sts,
            self.sh_mem_bases,
            self.xcc_id,
            self.gws_ticket as u32,
            (self.gws_ticket >> 32) as u32,
            u32::from(self.d16_clears),
            u32::from(self.tracks_exceptions),
        ] {
            word(value);
        }
        self.trap_base.into_iter().for_each(&mut word);
        for (acc, limit) in [false, true].into_iter().zip(self.limits) {
            word(limit as u32);
            for number in 0..limit {
                self.vgpr(number, acc).iter().copied().for_each(&mut word);
            }
        }
    }

    /// A wave as [`Wave::save`] has written it; `None` if it has not.
    pub(crate) fn restore(from: &mut Words<'_>) -> Option<Self> {
        let asic = *Asic::ALL.get(from.word()? as usize)?;
        let mut wave = Self::new(asic);
        wave.pc = u64::from(from.word()?) | u64::from(from.word()?) << 32;
        let named = usize::from(reg::FLAT_SCRATCH);
        let used = from.word()? as usize;
        if used > named {
            return None;
        }
        for slot in &mut wave.sgpr[..used] {
            *slot = from.word()?;
        }
        for slot in &mut wave.sgpr[named..] {
            *slot = from.word()?;
        }
        wave.scc = from.flag()?;
        wave.mode = from.word()?;
        wave.status = from.word()?;
        wave.trapsts = from.word()?;
        wave.hw_id = from.word()?;
        wave.gpr_alloc = from.word()?;
        wave.lds_alloc = from.word()?;
        wave.ib_sts = from.word()?;
        wave.sh_mem_bases = from.word()?;
        wave.xcc_id = from.word()?;
        wave.gws_ticket = from.wide()?;
        wave.d16_clears = from.flag()?;
        wave.tracks_exceptions = from.flag()?;
        for slot in &mut wave.trap_base {
            *slot = from.word()?;
        }
        for acc in [false, true] {
            let limit = from.word()? as usize;
            let most = wave.limits[usize::from(acc)];
            if limit > most || (limit == 0 && !acc) {
                return None;
            }
            for number in 0..limit {
                for slot in wave.vgpr_mut(number, acc)? {
                    *slot = from.word()?;
                }
            }
            wave.limits[usize::from(acc)] = limit;
        }
        Some(wave)
    }

    /// EXEC: the active lanes.
    pub fn exec(&self) -> u64 {
        self.pair(reg::EXEC)
    }

    /// VCC.
    pub fn vcc(&self) -> u64 {
        self.pair(reg::VCC)
    }

    /// M0.
    pub fn m0(&self) -> u32 {
        self.sgpr[usize::from(reg::M0)]
    }

    /// Whether the wave runs its trap handler.
    pub fn privileged(&self) -> bool {
        self.status & status::PRIV != 0
    }

    /// STATUS with its derived bits.
    pub fn full_status(&self) -> u32 {
        let flag = |on: bool, bit: u32| u32::from(on) << bit;
        let derived = 1 | 1 << 9 | 1 << 10;
        self.status & !derived
            | flag(self.scc, 0)
            | flag(self.exec() == 0, 9)
            | flag(self.vcc() == 0, 10)
    }

    /// How many VGPRs and AccVGPRs are allocated.
    pub fn limits(&self) -> [usize; 2] {
        self.limits
    }

    /// The row of a register as source; what is not allocated reads as the first.
    #[inline]
    fn row(&self, number: usize, acc: bool) -> usize {
        let limit = self.limits[usize::from(acc)];
        let number = if number < limit { number } else { 0 };
        let at = number + if acc && self.limits[1] > 0 { FILE } else { 0 };
        usize::from(self.row_of[at & (2 * FILE - 1)])
    }

    /// A VGPR (`acc`: AccVGPR) as source; what is not allocated reads as the first, without AccVGPRs as the first VGPR.
    #[inline]
    pub fn vgpr(&self, number: usize, acc: bool) -> &Lanes {
        &self.rows[self.row(number, acc)].0
    }

    /// A VGPR (`acc`: AccVGPR) as destination; `None` if it is not allocated: such writes are dropped.
    #[inline]
    pub fn vgpr_mut(&mut self, number: usize, acc: bool) -> Option<&mut Lanes> {
        if number >= self.limits[usize::from(acc)] {
            return None;
        }
        let at = number + if acc { FILE } else { 0 };
        let row = *self.row_of.get(at)?;
        self.rows.get_mut(usize::from(row)).map(|row| &mut row.0)
    }

    /// Writes the lanes in `lanes`.
    #[inline]
    pub fn write_vgpr(&mut self, number: usize, acc: bool, lanes: u64, value: &Lanes) {
        let Some(register) = self.vgpr_mut(number, acc) else {
            return;
        };
        if lanes == u64::MAX {
            *register = *value;
        } else {
            simd::blend(lanes, value, register);
        }
    }

    /// Prepares sources that are no register as it is.
    #[inline]
    fn spread(&mut self, src: &[Source; 3]) {
        for (at, source) in src.iter().enumerate() {
            let (keep, flip) = source.change.unwrap_or((!0, 0));
            let value = match source.place {
                Place::Row(_) if source.change.is_none() => continue,
                Place::Row(row) => {
                    self.fill[at] = None;
                    let row = self.row(usize::from(row) & (FILE - 1), usize::from(row) >= FILE);
                    simd::change(&self.rows[row].0, keep, flip, &mut self.filled[at].0);
                    continue;
                }
                Place::Scalar(code) => self.sgpr[usize::from(code & 127)] & keep ^ flip,
                Place::Value(value) => value & keep ^ flip,
            };
            if self.fill[at] != Some(value) {
                self.fill[at] = Some(value);
                self.filled[at].0 = [value; 64];
            }
        }
    }

    /// Computes a result into the spare row: `run` gets the sources, the result and a row for flags.  The result
    /// replaces the lanes in `lanes` of the register `dst`, if there is one.
    #[inline]
    pub(crate) fn compute(
        &mut self,
        src: &[Source; 3],
        dst: Option<u16>,
        lanes: u64,
        run: impl FnOnce([&Lanes; 3], &mut Lanes, &mut Lanes),
    ) {
        self.spread(src);
        let row = |source: Source| match source {
            Source {
                place: Place::Row(at),
                change: None,
            } => self.row(usize::from(at) & (FILE - 1), usize::from(at) >= FILE),
            _ => usize::MAX,
        };
        let from = src.map(row);
        let spare = usize::from(self.spare);
        let (low, rest) = self.rows.split_at_mut(spare);
        let Some((out, high)) = rest.split_first_mut() else {
            return;
        };
        let filled = &self.filled;
        let pick = |at: usize| -> &Lanes {
            let row = from[at];
            if row < spare {
                low.get(row).map_or(&filled[at].0, |row| &row.0)
            } else {
                // What has been prepared is beyond all rows.
                high.get(row - spare - 1)
                    .map_or(&filled[at].0, |row| &row.0)
            }
        };
        run([pick(0), pick(1), pick(2)], &mut out.0, &mut self.flags.0);
        let Some(dst) = dst.map(usize::from) else {
            return;
        };
        if dst & (FILE - 1) >= self.limits[usize::from(dst >= FILE)] || dst >= self.row_of.len() {
            return;
        }
        if lanes == u64::MAX {
            std::mem::swap(&mut self.row_of[dst], &mut self.spare);
        } else {
            let place = usize::from(self.row_of[dst]);
            let old = if place < spare {
                low.get_mut(place)
            } else {
                high.get_mut(place - spare - 1)
            };
            if let Some(old) = old {
                simd::blend(lanes, &out.0, &mut old.0);
            }
        }
    }

    /// The top bits of the flags that the last computation has left.
    #[inline]
    pub(crate) fn flagged(&self) -> u64 {
        simd::signs(&self.flags.0)
    }
}
