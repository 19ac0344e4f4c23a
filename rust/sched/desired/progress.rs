// SPDX-License-Identifier: GPL-2.0

//! Whether a queue makes progress, from one sample of its pointers to the next.
//!
//! A queue is only judged while it sits in a slot. One that waits for its turn neither makes progress nor
//! stands still; its time runs on only if it is found where it was, [`SIGHTINGS`] times.

use crate::{
    hw::num::widen,
    sched::params::{
        QueueKind,
        QueueSpec, //
    }, //
};

/// How often a queue must have been seen with the same pointer before it counts as stuck, beside
/// the time.
const SIGHTINGS: u32 = 3;
/// Pointers of a queue, as the registers of its slot show them.
#[derive(Clone, Copy, Debug)]
pub(in crate::sched) struct Pointers {
    /// Read pointer.
    pub(in crate::sched) rptr: u64,
    /// Write pointer.
    pub(in crate::sched) wptr: u64,
    /// The hardware says that the pointers are equal because there is work for all of the ring.
    pub(in crate::sched) full: bool,
    /// Where it is in an indirect buffer, dwords: the read pointer is past the packet that called that.
    pub(in crate::sched) in_buffer: Option<u32>,
}

impl Pointers {
    /// Whether they say that a queue as `spec` describes it has work.
    ///
    /// The write pointer counts on, the read pointer of a compute queue wraps at the ring's size. For
    /// AQL the one counts packets, and whether the other does depends on the microcode, so that only
    /// what is work either way counts. An AQL ring may be full, which pointers alone do not show.
    pub(in crate::sched) fn have_work(&self, spec: &QueueSpec) -> bool {
        let dwords = widen(spec.ring_size / 4);
        let packets = widen(spec.ring_size / 64);
        let differ = |a: u64, b: u64, size: u64| match size {
            0 => false,
            size => a % size != b % size,
        };
        let (rptr, wptr) = (self.rptr, self.wptr);
        if self.in_buffer.is_some() {
            return true;
        }
        match spec.kind {
            QueueKind::Pm4 => differ(rptr, wptr, dwords),
            QueueKind::Aql => {
                self.full
                    || differ(rptr, wptr, packets) && differ(rptr, wptr.wrapping_mul(16), dwords)
            }
            QueueKind::Sdma(_) => rptr != wptr,
        }
    }
}

/// What the watchdog remembers of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::sched) struct Progress {
    /// Read pointer, and the position in an indirect buffer, of the last sample, if the queue had work.
    at: Option<(u64, Option<u32>)>,
    /// When it was first seen there, in microseconds.
    since: u64,
    sightings: u32,
    reported: bool,
}

impl Progress {
    /// Notes what was seen at `now`. Returns for how many microseconds a queue has stood still that
    /// became stuck by this sample.
    pub(in crate::sched) fn sample(
        &mut self,
        now: u64,
        limit: u64,
        pointers: &Pointers,
        work: bool,
    ) -> Option<u64> {
        let at = Some((pointers.rptr, pointers.in_buffer));
        if !work || self.at != at {
            *self = Self {
                at: at.filter(|_| work),
                since: now,
                sightings: 1,
                reported: false,
            };
            return None;
        }
        self.sightings = self.sightings.saturating_add(1);
        let stood = now.saturating_sub(self.since);
        if self.reported || self.sightings < SIGHTINGS || stood < limit {
            return None;
        }
        self.reported = true;
        Some(stood)
    }

    /// Puts a report off until after the next sample.
    pub(in crate::sched) fn put_off(&mut self) {
        self.reported = false;
    }
}
