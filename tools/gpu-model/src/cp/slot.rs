// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Names of hardware queue slots.

/// Slots of both micro-engines.
pub const SLOTS: usize = 64;

/// One hardware queue slot: micro-engine 1 or 2, pipe 0..=3, queue 0..=7.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlotId(u8);

impl SlotId {
    /// A slot by its GRBM_GFX_CNTL fields; `None` if `me` is not a compute engine.
    pub fn new(me: u8, pipe: u8, queue: u8) -> Option<Self> {
        (matches!(me, 1 | 2) && pipe < 4 && queue < 8)
            .then(|| Self((me - 1) * 32 + pipe * 8 + queue))
    }

    /// A slot by its number, the bit in SET_RESOURCES' queue mask.
    pub fn from_index(i: usize) -> Option<Self> {
        u8::try_from(i).ok().filter(|_| i < SLOTS).map(Self)
    }

    /// `mec * 32 + pipe * 8 + queue`.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Micro-engine, 1 or 2.
    pub fn me(self) -> u8 {
        1 + self.0 / 32
    }

    /// Pipe within the micro-engine.
    pub fn pipe(self) -> u8 {
        self.0 / 8 % 4
    }

    /// Queue within the pipe.
    pub fn queue(self) -> u8 {
        self.0 % 8
    }

    /// Pipe counted over both engines, 0..=7.
    pub fn pipe_index(self) -> usize {
        usize::from(self.0 / 8)
    }

    /// The ring_id of interrupt vectors of this slot.
    pub fn ring_id(self) -> u8 {
        (self.queue() << 4) | (self.me() << 2) | self.pipe()
    }

    /// The byte that names this slot in RLC_CP_SCHEDULERS.
    pub fn scheduler_code(self) -> u8 {
        0x80 | (self.me() << 5) | (self.pipe() << 3) | self.queue()
    }
}

impl std::fmt::Display for SlotId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "me{} pipe{} queue{}",
            self.me(),
            self.pipe(),
            self.queue()
        )
    }
}
