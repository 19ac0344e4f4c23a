// SPDX-License-Identifier: GPL-2.0 OR MIT
//! How workers end, and what they leave.

use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use super::Crew;
use crate::backoff::wait_until;
use crate::error::Result;
use crate::tasks::area::Area;
use crate::tasks::layout::closed;

/// When workers end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// When all tasks that are there have run.
    Drained,
    /// When each has run the task that it has in hand. The others are left, and never run.
    AtOnce,
}

impl Crew {
    /// Takes no new tasks, and has the workers end.
    pub(in crate::tasks) fn begin_end(&self, stop: Stop) {
        // Closed before workers see that they are to end, so that none of them misses a task that was taken before.
        if !self.stopping.load(Ordering::Acquire) {
            for area in &self.areas {
                area.view.set_closed(closed::CLOSING);
            }
        }
        if stop == Stop::AtOnce {
            self.at_once.store(true, Ordering::Release);
        }
        self.stopping.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Waits for the end that was begun.
    pub(in crate::tasks) fn finish_end(&self) {
        loop {
            // A worker that dies hires another one, so there may be new ones.
            let Some(thread) = self.threads().pop() else {
                break;
            };
            let _ = thread.join();
        }
        for area in &self.areas {
            area.view.set_closed(closed::ENDED);
        }
        self.ends.tell();
    }

    /// The same, for `limit` at most.
    pub(in crate::tasks) fn finish_end_within(&self, limit: Duration) -> Result<()> {
        // One that dies is finished when the one in its place is in the list.
        let ended = || {
            let ended = self.threads().iter().all(JoinHandle::is_finished);
            Ok((ended, self.left()))
        };
        wait_until("the workers to end", limit, ended)?;
        self.finish_end();
        Ok(())
    }

    /// Tasks that were handed over and have not ended: in rings, in line and in hand. While workers run, or others hand
    /// tasks over, it may be off by those that move.
    pub(in crate::tasks) fn left(&self) -> u64 {
        let in_rings = self.areas.iter().map(Area::ready);
        let in_line = self.in_line.iter().map(|line| line.load(Ordering::Acquire));
        let in_hand = self.stations.iter().filter(|of| of.held().is_some());
        // CAST: counts of what is in memory.
        in_rings.sum::<u64>() + in_line.sum::<usize>() as u64 + in_hand.count() as u64
    }
}
