// SPDX-License-Identifier: GPL-2.0

//! How long memory of a granule stays in the system that has moved to VRAM and has come out at once, because the CPU
//! touched it: as both use it, it serves both best where both reach it. Tested by `rkfd_mirror_hints`.

/// Memory has bounced that comes out so soon after it moved in. Nanoseconds, as all here.
pub(crate) const SOON: i64 = 100_000_000;
/// So long it stays after the first time, and twice as long after each that follows.
pub(crate) const FIRST_WAIT: i64 = 10_000_000;
/// It stays no longer than that.
pub(crate) const LONGEST_WAIT: i64 = 10_000_000_000;
/// After so many times the wait has reached [`LONGEST_WAIT`].
const MAX_DOUBLINGS: u32 = 10;

const _: () = assert!(
    FIRST_WAIT << MAX_DOUBLINGS >= LONGEST_WAIT,
    "the wait grows to its bound"
);

/// Whether memory may move in that an access wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It may.
    Move,
    /// It has bounced, and is to stay for a while from now on.
    Bounced,
    /// It is to stay still.
    Wait,
}

/// What is known of the moves of a granule. All times are of the monotonic clock.
pub(crate) struct Bounces {
    /// When memory moved in last, if it is not known what became of it.
    moved_in: Option<i64>,
    /// When some came out first after that, perhaps.
    came_out: Option<i64>,
    /// When others first moved some since a move in began.
    changed: Option<i64>,
    /// How often it has bounced, one time after the other.
    count: u32,
    /// Nothing moves in before.
    until: i64,
}

impl Bounces {
    /// Nothing has moved.
    pub(crate) const NEW: Self = Self {
        moved_in: None,
        came_out: None,
        changed: None,
        count: 0,
        until: i64::MIN,
    };

    /// Memory is about to move, in perhaps.
    pub(crate) fn begin(&mut self) {
        self.changed = None;
    }

    /// Memory has moved in since [`Self::begin`]. The CPU may have touched it before this is noted.
    pub(crate) fn note_in(&mut self, now: i64) {
        self.moved_in = Some(now);
        self.came_out = self.changed.take();
    }

    /// Others move memory, perhaps out.
    pub(crate) fn note_change(&mut self, now: i64) {
        self.changed.get_or_insert(now);
        if self.moved_in.is_some() {
            self.came_out.get_or_insert(now);
        }
    }

    /// Whether memory may move in, of which some was found in the system.
    pub(crate) fn ask(&mut self, now: i64) -> Answer {
        if let Some((moved_in, came_out)) = self.moved_in.zip(self.came_out) {
            *self = Self {
                moved_in: None,
                came_out: None,
                ..*self
            };
            if came_out.saturating_sub(moved_in) < SOON {
                let wait = FIRST_WAIT << self.count.min(MAX_DOUBLINGS);
                self.count = self.count.saturating_add(1);
                self.until = now.saturating_add(wait.min(LONGEST_WAIT));
                return Answer::Bounced;
            }
            self.count = 0;
        }
        if self.waits(now) {
            Answer::Wait
        } else {
            Answer::Move
        }
    }

    /// Whether nothing moves in for now.
    pub(crate) fn waits(&self, now: i64) -> bool {
        now < self.until
    }
}
