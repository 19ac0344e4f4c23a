// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What there is to save of the dispatches of a queue, whose waves have been taken off, and the entries of its control
//! stack: both a part at a time.

use super::front::Flight;
use super::job::{Frozen, Resting};
use super::saved::{group_words, head_words};

/// Groups of a dispatch that was taken off.
pub(super) fn groups_of(flight: &Flight) -> impl ExactSizeIterator<Item = &Resting> {
    let frozen = flight.frozen.as_ref();
    frozen
        .map(|frozen| frozen.groups.iter())
        .unwrap_or_default()
}

/// Bytes that the trap handler of a driver saves of a group, beside its waves' own: those of a wave, and those of the
/// group.  Vector, scalar and hardware registers (128 bytes) of each wave, and once the LDS of a group
/// (`cwsr_trap_handler_gfx9.asm`).
fn hardware(frozen: &Frozen) -> (u32, u32) {
    let demand = frozen.kernel.demand();
    (demand.vgprs * 256 + demand.sgprs * 4 + 128, demand.lds)
}

/// How much there is to save of the dispatches of a queue.
#[derive(Debug, Default)]
pub struct Measure {
    /// Words of each dispatch, without their number; the last one is being measured.
    pub(super) words: Vec<usize>,
    /// Its next group.
    group: usize,
    /// What hardware saves of each of its waves and groups.
    each: (u32, u32),
    waves: u32,
    hardware: u32,
}

impl Measure {
    /// Goes on by at most `groups` groups.  Returns whether there are more.
    pub fn measure<'a>(
        &mut self,
        mut flights: impl Iterator<Item = &'a Flight>,
        groups: usize,
    ) -> bool {
        let mut left = groups;
        let mut flight = match self.words.len().checked_sub(1) {
            Some(measured) => flights.nth(measured),
            None => self.next(&mut flights),
        };
        while let Some(of) = flight {
            let all = groups_of(of);
            let count = all.len();
            for group in all.skip(self.group).take(left) {
                let waves = group.group.0.len() as u32;
                self.waves += waves;
                // A user may have changed what was read back, so that there is more of it than units hold.
                let bytes = waves.saturating_mul(self.each.0);
                self.hardware = self
                    .hardware
                    .saturating_add(bytes.saturating_add(self.each.1));
                if let Some(words) = self.words.last_mut() {
                    *words += group_words(group);
                }
                self.group += 1;
                left -= 1;
            }
            if self.group < count {
                return true;
            }
            flight = self.next(&mut flights);
        }
        false
    }

    fn next<'a>(&mut self, flights: &mut impl Iterator<Item = &'a Flight>) -> Option<&'a Flight> {
        let flight = flights.next()?;
        self.words.push(head_words(flight));
        self.group = 0;
        self.each = flight.frozen.as_ref().map_or((0, 0), hardware);
        Some(flight)
    }

    /// Bytes of all.
    pub fn bytes(&self) -> usize {
        4 * (self.words.len() + self.words.iter().sum::<usize>())
    }

    /// Waves of all.
    pub fn waves(&self) -> u32 {
        self.waves
    }

    /// Bytes that the trap handler of a driver saves of them.
    pub fn hardware_bytes(&self) -> u32 {
        self.hardware
    }
}

/// The entries of the control stack for the waves of a queue: HW_ID, and the number in the group.
#[derive(Debug, Default)]
pub struct Entries {
    flight: usize,
    group: usize,
}

impl Entries {
    /// Appends those of at most `groups` groups.  Returns whether there are more.
    pub fn put<'a>(
        &mut self,
        flights: impl Iterator<Item = &'a Flight>,
        groups: usize,
        to: &mut Vec<u32>,
    ) -> bool {
        let mut left = groups;
        for flight in flights.skip(self.flight) {
            let all = groups_of(flight);
            let count = all.len();
            for group in all.skip(self.group).take(left) {
                let group = &group.group.0;
                for wave in 0..group.len() {
                    let id = group.wave(wave).map_or(0, |w| w.hw_id);
                    to.extend([id, wave as u32]);
                }
                self.group += 1;
                left -= 1;
            }
            if self.group < count {
                return true;
            }
            self.flight += 1;
            self.group = 0;
        }
        false
    }
}
