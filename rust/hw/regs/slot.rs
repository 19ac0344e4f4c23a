// SPDX-License-Identifier: GPL-2.0

//! Queue slots of the compute micro engines, by their numbers.

/// Slots of one pipe.
pub(crate) const QUEUES_PER_PIPE: u32 = 8;
/// Pipes of one micro engine.
pub(crate) const PIPES_PER_MEC: u32 = 4;
/// Slots of one micro engine.
pub(crate) const SLOTS_PER_MEC: u32 = QUEUES_PER_PIPE * PIPES_PER_MEC;

/// A queue slot of a compute micro engine.
///
/// # Invariants
///
/// `me` is 1 or 2, `pipe` below 4, `queue` below 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot {
    me: u8,
    pipe: u8,
    queue: u8,
}

impl Slot {
    /// Where amdgpu puts the KIQ: me 2, pipe 1, queue 0 (`amdgpu_gfx.c`).
    pub(crate) const KIQ: Self = Self {
        me: 2,
        pipe: 1,
        queue: 0,
    };
    /// Where KFD puts the HIQ: me 2, pipe 0, queue 0 (KFD pipe 4, `kfd_priv.h`).
    pub(crate) const HIQ: Self = Self {
        me: 2,
        pipe: 0,
        queue: 0,
    };

    /// The slot with the given coordinates, if it exists.
    pub(crate) const fn new(me: u8, pipe: u8, queue: u8) -> Option<Self> {
        if (me == 1 || me == 2) && pipe < 4 && queue < 8 {
            // INVARIANT: Checked in the line above.
            Some(Self { me, pipe, queue })
        } else {
            None
        }
    }

    /// The slot with number `mec * 32 + pipe * 8 + queue`, mec counted from 0: the bit position in
    /// the queue mask of SET_RESOURCES.
    pub(crate) const fn from_bit(bit: u32) -> Option<Self> {
        if bit >= 2 * SLOTS_PER_MEC {
            return None;
        }
        // CAST: All three quotients are below 64 by the check above.
        Self::new(
            (bit / SLOTS_PER_MEC) as u8 + 1,
            (bit / QUEUES_PER_PIPE % PIPES_PER_MEC) as u8,
            (bit % QUEUES_PER_PIPE) as u8,
        )
    }

    /// Micro engine, 1 or 2.
    pub(crate) const fn me(self) -> u32 {
        // CAST: Lossless.
        self.me as u32
    }

    /// Pipe, 0 to 3.
    pub(crate) const fn pipe(self) -> u32 {
        // CAST: Lossless.
        self.pipe as u32
    }

    /// Queue of the pipe, 0 to 7.
    pub(crate) const fn queue(self) -> u32 {
        // CAST: Lossless.
        self.queue as u32
    }

    /// Bit position in the queue mask of SET_RESOURCES.
    pub(crate) const fn bit(self) -> u32 {
        (self.me() - 1) * SLOTS_PER_MEC + self.pipe() * QUEUES_PER_PIPE + self.queue()
    }

    /// Bit of this slot in CP_PQ_WPTR_POLL_CNTL1.
    pub(crate) const fn poll_mask(self) -> u32 {
        1 << (self.pipe() * QUEUES_PER_PIPE + self.queue())
    }
}
