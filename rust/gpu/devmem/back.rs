// SPDX-License-Identifier: GPL-2.0

//! All pages come back from VRAM, for its end or for sleep. Suites: `rkfd_mirror_migrate_live`, native migrate_hold.

use kernel::{
    prelude::*,
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    },
};

use super::Trigger;
use crate::{
    gpu::{
        access::Hw,
        Gpu, //
    },
    kapi::devmem::Hold,
};

/// Pause after a round in which no page came back; twice as long after each one that follows.
const PAUSE: Delta = Delta::from_millis(1);
/// It does not grow any more after so many rounds.
const MAX_DOUBLINGS: u32 = 9;
/// So long pages are brought back before the system sleeps.
const BEFORE_SLEEP: Delta = Delta::from_secs(20);
/// Pause between two messages about pages that do not come back.
const PATIENCE: Delta = Delta::from_secs(10);

impl Gpu {
    /// The GPU is about to end: brings all pages back, as long as it answers, however long that takes. Whatever ends by this is
    /// told from a hang by its messages. Nothing moves in afterwards.
    pub(crate) fn bring_pages_back_for_good(&self) {
        self.device_pages().close(self.dev());
        if !self.bring_pages_back(None) {
            dev_err!(
                self.dev(),
                "memory of programs that was in VRAM is lost; they get SIGBUS where they touch it\n"
            );
        }
    }

    /// The system is about to sleep: brings all pages back. Nothing moves in before [`DevicePages::wake`](super::pages::DevicePages::wake).
    ///
    /// # Errors
    ///
    /// `EBUSY`: pages do not come back in time. All goes on as before.
    pub(crate) fn bring_pages_back_for_sleep(&self) -> Result {
        self.device_pages().close(self.dev());
        if self.bring_pages_back(Some(BEFORE_SLEEP)) {
            return Ok(());
        }
        self.device_pages().wake();
        Err(EBUSY)
    }

    /// Brings pages back, round after round, for `limit` at most. Returns whether none is left.
    fn bring_pages_back(&self, limit: Option<Delta>) -> bool {
        let Some(hold) = self.device_pages().hold() else {
            return true;
        };
        let start: Instant<Monotonic> = Instant::now();
        let (mut idle, mut told) = (0_u32, PATIENCE);
        loop {
            // Where memory for the list is short, there may be some.
            if !hold.is_in_use().unwrap_or(true) {
                return true;
            }
            let Ok(hw) = self.enter() else {
                return false;
            };
            if self.device_pages().is_lost() {
                return false;
            }
            let moved = self.bring_round_back(&hw, &hold);
            drop(hw);
            let waited = start.elapsed();
            if limit.is_some_and(|limit| waited > limit) {
                return false;
            }
            if waited > told {
                dev_warn!(
                    self.dev(),
                    "memory of programs does not come back from VRAM yet\n"
                );
                told = waited + PATIENCE;
            }
            if moved > 0 {
                idle = 0;
            } else {
                fsleep(PAUSE * (1i64 << idle.min(MAX_DOUBLINGS)));
                idle += 1;
            }
        }
    }

    /// Brings back what can be had at the moment. Returns how many pages have come.
    fn bring_round_back(&self, hw: &Hw, hold: &Hold) -> usize {
        let (mut from, mut moved) = (0, 0);
        while let Some(frame) = hold.next_frame(from) {
            // What fails here is tried again.
            moved += self
                .bring_frame_back(hw, hold, frame, Trigger::End)
                .unwrap_or(0);
            from = frame + 1;
            if hw.is_lost() {
                break;
            }
        }
        moved
    }
}
