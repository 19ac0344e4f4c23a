// SPDX-License-Identifier: GPL-2.0

//! Failures of queues that were not reported to the runtime of the process yet.

use kernel::prelude::*;

use crate::event::reasons::Reasons;

/// So often memory for a report may be absent.
const MAX_ABSENT: u32 = 8;

/// A queue that failed.
#[derive(Clone, Copy)]
pub(super) struct Failed {
    /// The GPU, as the process numbers them.
    pub(super) device: usize,
    /// Id in the slice.
    pub(super) doorbell: u32,
    /// Bits of [`Reasons`].
    pub(super) reasons: u64,
    /// How often memory for the report was absent.
    absent: u32,
}

/// At most one entry per doorbell.
pub(super) struct Failures(KVec<Failed>);

impl Failures {
    /// None.
    pub(super) const fn new() -> Self {
        Self(KVec::new())
    }

    /// Adds reasons for which the queue with a doorbell failed. Does not wait for memory: reclaim may have to
    /// wait for the interrupt thread.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn add(&mut self, device: usize, doorbell: u32, reasons: Reasons) -> Result {
        let mut list = self.0.iter_mut();
        if let Some(failed) = list.find(|f| f.device == device && f.doorbell == doorbell) {
            failed.reasons |= reasons.bits();
            return Ok(());
        }
        let failed = Failed {
            device,
            doorbell,
            reasons: reasons.bits(),
            absent: 0,
        };
        Ok(self.0.push(failed, GFP_NOWAIT)?)
    }

    /// Drops what is known of a doorbell.
    pub(super) fn forget(&mut self, device: usize, doorbell: u32) {
        self.0
            .retain(|failed| failed.device != device || failed.doorbell != doorbell);
    }

    /// The oldest.
    pub(super) fn first(&self) -> Option<Failed> {
        self.0.first().copied()
    }

    fn position(&self, of: &Failed) -> Option<usize> {
        let mut list = self.0.iter();
        list.position(|f| f.device == of.device && f.doorbell == of.doorbell)
    }

    /// Notes that memory for the report of `failed` was absent; whether another attempt is due.
    pub(super) fn is_worth_another_attempt(&mut self, failed: &Failed) -> bool {
        let at = self.position(failed);
        let Some(entry) = at.and_then(|at| self.0.get_mut(at)) else {
            return false;
        };
        entry.absent += 1;
        entry.absent <= MAX_ABSENT
    }

    /// The reasons of `failed` are done with. Those that came since stay.
    pub(super) fn done(&mut self, failed: &Failed) {
        let Some(at) = self.position(failed) else {
            return;
        };
        if let Some(entry) = self.0.get_mut(at) {
            entry.reasons &= !failed.reasons;
            if entry.reasons == 0 {
                let _ = self.0.remove(at);
            }
        }
    }
}
