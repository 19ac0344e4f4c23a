// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The compute command processor: hardware queue slots and the packets they run.

pub mod atomics;
pub mod cwsr;
pub mod eop;
pub mod feed;
pub mod hqd;
pub mod load;
pub mod mqd;
pub mod packets;
pub mod pm4;
pub mod queue;
pub mod restoring;
pub mod saving;
pub mod slot;

use hqd::Hqd;
use queue::Run;
use slot::{SlotId, SLOTS};

/// Both micro-engines.
#[derive(Debug)]
pub struct Cp {
    slots: Vec<Hqd>,
    /// Where the round-robin starts.
    next: usize,
    /// The slot whose turn goes on in the next step, and how many packets of it are left.
    turn: Option<(SlotId, usize)>,
    /// The same of the step before: this turn is the first to go on.
    begun: Option<(SlotId, usize)>,
    /// Slots that have not had their turn in the round that goes on, a bit each; 0 between rounds.
    round: u64,
    /// Context saves so far.
    saves: u32,
    /// When write pointers are looked for again.
    poll_at: u64,
}

impl Default for Cp {
    fn default() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Hqd::default()).collect(),
            next: 0,
            turn: None,
            begun: None,
            round: 0,
            saves: 0,
            poll_at: 0,
        }
    }
}

impl Cp {
    /// A slot.
    pub fn hqd(&self, s: SlotId) -> &Hqd {
        // A SlotId is always below SLOTS.
        &self.slots[s.index()]
    }

    /// A slot, for change.
    pub fn hqd_mut(&mut self, s: SlotId) -> &mut Hqd {
        &mut self.slots[s.index()]
    }

    /// A queue that was asked to leave stays after all.
    pub fn keep(&mut self, s: SlotId) {
        if let Some(run) = &mut self.hqd_mut(s).run {
            run.draining = false;
        }
    }

    /// What the connected queues are doing.
    pub fn runs_mut(&mut self) -> impl Iterator<Item = &mut Run> {
        self.slots.iter_mut().filter_map(|h| h.run.as_deref_mut())
    }

    /// All slots with their names.
    pub fn iter(&self) -> impl Iterator<Item = (SlotId, &Hqd)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(i, h)| SlotId::from_index(i).map(|s| (s, h)))
    }
}
