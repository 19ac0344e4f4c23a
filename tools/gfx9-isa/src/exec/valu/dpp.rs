// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Lane exchange by DPP: where each lane reads, as a table for each control.

use crate::inst::Dpp;
use std::sync::LazyLock;

/// Controls that an instruction can have.
const CONTROLS: u16 = 512;
/// In [`Sources::lane`]: there is none.
const NONE: u8 = 64;

/// Where the lanes read under one control.
struct Sources {
    lane: [u8; 64],
    /// Lanes that read another one, or themselves.
    has: u64,
}

static NOWHERE: Sources = Sources {
    lane: [NONE; 64],
    has: 0,
};

/// The lane that `lane` reads, or nothing beyond the ends.
fn source(ctrl: u16, lane: usize) -> Option<usize> {
    let (row, within) = (lane & !15, lane & 15);
    let n = usize::from(ctrl & 15);
    let inside = |at: Option<usize>| at.filter(|at| *at < 16).map(|at| row + at);
    match ctrl {
        0x000..=0x0FF => Some((lane & !3) + usize::from(ctrl >> (2 * (lane & 3)) & 3)),
        0x101..=0x10F => inside(Some(within + n)),
        0x111..=0x11F => inside(within.checked_sub(n)),
        0x121..=0x12F => Some(row + (within + 16 - n) % 16),
        0x130 => Some(lane + 1).filter(|at| *at < 64),
        0x134 => Some((lane + 1) % 64),
        0x138 => lane.checked_sub(1),
        0x13C => Some((lane + 63) % 64),
        0x140 => Some(row + 15 - within),
        0x141 => Some((lane & !7) + 7 - (lane & 7)),
        0x142 => row.checked_sub(1),
        0x143 => (lane >= 32).then_some(31),
        0x150..=0x15F => Some(row + n),
        _ => None,
    }
}

impl Sources {
    fn new(ctrl: u16) -> Self {
        let mut sources = Self {
            lane: [NONE; 64],
            has: 0,
        };
        for (lane, slot) in sources.lane.iter_mut().enumerate() {
            if let Some(from) = source(ctrl, lane) {
                // A lane's number.
                *slot = from as u8;
                sources.has |= 1 << lane;
            }
        }
        sources
    }

    fn of(ctrl: u16) -> &'static Self {
        static ALL: LazyLock<Vec<Sources>> =
            LazyLock::new(|| (0..CONTROLS).map(Sources::new).collect());
        ALL.get(usize::from(ctrl)).unwrap_or(&NOWHERE)
    }
}

/// The lanes of the rows and banks that are written.
fn enabled(dpp: &Dpp) -> u64 {
    let rows = (0..4).filter(|row| dpp.row_mask >> row & 1 != 0);
    let rows = rows.fold(0, |mask: u64, row| mask | 0xFFFF << (16 * row));
    let banks = (0..4).filter(|bank| dpp.bank_mask >> bank & 1 != 0);
    let banks = banks.fold(0, |mask: u64, bank| mask | 0xF << (4 * bank));
    rows & banks.wrapping_mul(0x0001_0001_0001_0001)
}

/// The lanes of `exec` that the instruction writes.
pub(super) fn active(dpp: &Dpp, exec: u64) -> u64 {
    let sources = Sources::of(dpp.ctrl);
    let valid = if dpp.bound_ctrl {
        u64::MAX
    } else if exec == u64::MAX {
        sources.has
    } else {
        let from = sources.lane.iter().enumerate();
        let bits = from.map(|(lane, from)| (exec >> (from & 63) & 1) << lane);
        sources.has & bits.fold(0, |mask, bit| mask | bit)
    };
    exec & enabled(dpp) & valid
}

/// Exchanges lanes; those without an active source get 0.
pub(super) fn exchange<T: Copy + Default>(dpp: &Dpp, exec: u64, value: &mut [T; 64]) {
    let sources = Sources::of(dpp.ctrl);
    // The last one is what those without a source read.
    let mut old = [T::default(); 65];
    for (lane, (slot, value)) in old.iter_mut().zip(value.iter()).enumerate() {
        if exec >> lane & 1 != 0 {
            *slot = *value;
        }
    }
    for (slot, from) in value.iter_mut().zip(&sources.lane) {
        *slot = old[usize::from(*from).min(64)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that looks random.
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (*state ^ *state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x ^ x >> 27
    }

    /// Lane by lane, without tables.
    fn by_lane(dpp: &Dpp, exec: u64, value: &[u64; 64]) -> (u64, [u64; 64]) {
        let mut active = 0;
        let mut out = [0; 64];
        for (lane, slot) in out.iter_mut().enumerate() {
            let from = source(dpp.ctrl, lane).filter(|from| exec >> from & 1 != 0);
            if let Some(from) = from {
                *slot = value[from];
            }
            let row = dpp.row_mask >> (lane / 16) & 1 != 0;
            let bank = dpp.bank_mask >> (lane / 4 % 4) & 1 != 0;
            let written = row && bank && (from.is_some() || dpp.bound_ctrl);
            active |= u64::from(written && exec >> lane & 1 != 0) << lane;
        }
        (active, out)
    }

    #[test]
    fn tables_say_what_each_lane_reads() {
        let mut state = 1;
        for ctrl in (0..CONTROLS).chain([CONTROLS, u16::MAX]) {
            for round in 0..8 {
                let masks = random(&mut state);
                let dpp = Dpp {
                    ctrl,
                    row_mask: if round < 4 { 15 } else { masks as u8 & 15 },
                    bank_mask: if round < 4 {
                        15
                    } else {
                        (masks >> 8) as u8 & 15
                    },
                    bound_ctrl: round % 2 == 1,
                };
                let exec = if round % 4 < 2 {
                    u64::MAX
                } else {
                    random(&mut state)
                };
                let value: [u64; 64] = std::array::from_fn(|_| random(&mut state));
                let (want_active, want) = by_lane(&dpp, exec, &value);
                assert_eq!(active(&dpp, exec), want_active, "{dpp:?} exec {exec:#x}");
                let mut wide = value;
                exchange(&dpp, exec, &mut wide);
                assert_eq!(wide, want, "{dpp:?} exec {exec:#x}");
                let mut narrow = value.map(|value| value as u32);
                exchange(&dpp, exec, &mut narrow);
                assert_eq!(
                    narrow,
                    want.map(|value| value as u32),
                    "{dpp:?} exec {exec:#x}"
                );
            }
        }
    }
}
