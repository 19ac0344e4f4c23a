// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Global wave sync: barriers and semaphores for the waves of all groups of a process.
//!
//! MAP_PROCESS gives a process its resources (on hardware: GDS_GWS_VMIDn).  What is in them outlives a dispatch, for a
//! kernel of its own initialises them, and it outlives a preemption.

use std::collections::VecDeque;

use gfx9_isa::env::{Gws, GwsOp};
use parking_lot::Mutex;

/// Resources that there are; an instruction names one by six bits.
const COUNT: usize = 64;
/// Processes whose resources are kept: as many as VMIDs.
const PROCESSES: usize = 16;

/// Which resources the waves of a kernel may use: those of a process, up to a number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// PASID of the process.
    pub pasid: u16,
    /// Its resources, from 0 on.
    pub count: u8,
}

#[derive(Debug, Clone, Copy, Default)]
struct Resource {
    /// Waves that a barrier still waits for, beside the last one.
    missing: u32,
    /// Credits of a semaphore.
    credits: u64,
    /// How often all waves that wait were let go.
    rounds: u64,
}

impl Resource {
    fn operate(&mut self, op: GwsOp, value: u32, ticket: &mut u64) -> Gws {
        // 0 is no ticket.
        let round = self.rounds + 1;
        let released = *ticket != 0 && *ticket != round;
        let first = *ticket == 0;
        *ticket = 0;
        match op {
            GwsOp::Init => {
                self.missing = value;
                self.credits = 0;
            }
            GwsOp::SemaV => self.credits = self.credits.saturating_add(1),
            GwsOp::SemaBr => self.credits = self.credits.saturating_add(u64::from(value)),
            GwsOp::SemaReleaseAll => self.rounds += 1,
            GwsOp::Barrier | GwsOp::SemaP if released => {}
            GwsOp::Barrier if first && self.missing == 0 => {
                self.missing = value;
                self.rounds += 1;
            }
            GwsOp::SemaP if self.credits > 0 => self.credits -= 1,
            GwsOp::Barrier | GwsOp::SemaP => {
                if first && op == GwsOp::Barrier {
                    self.missing -= 1;
                }
                *ticket = round;
                return Gws::Wait;
            }
        }
        Gws::Go
    }
}

/// The resources of a device.
#[derive(Debug, Default)]
pub struct Resources(Mutex<VecDeque<(u16, [Resource; COUNT])>>);

impl Resources {
    /// One operation of a wave; see [`gfx9_isa::env::Messages::gws`].
    pub fn operate(
        &self,
        share: Share,
        op: GwsOp,
        (resource, value): (u32, u32),
        ticket: &mut u64,
    ) -> Gws {
        if resource >= u32::from(share.count) {
            // Nobody would ever let it go.
            return Gws::Wait;
        }
        let mut all = self.0.lock();
        let at = all.iter().position(|(pasid, _)| *pasid == share.pasid);
        let at = at.unwrap_or_else(|| {
            if all.len() == PROCESSES {
                all.pop_front();
            }
            all.push_back((share.pasid, [Resource::default(); COUNT]));
            all.len() - 1
        });
        let found = all
            .get_mut(at)
            .and_then(|(_, of)| of.get_mut(resource as usize));
        found.map_or(Gws::Wait, |found| found.operate(op, value, ticket))
    }

    /// The process has no resources any more.
    pub fn forget(&self, pasid: u16) {
        self.0.lock().retain(|(of, _)| *of != pasid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: Share = Share { pasid: 7, count: 4 };

    fn arrive(sync: &Resources, ticket: &mut u64) -> bool {
        sync.operate(SHARE, GwsOp::Barrier, (1, 2), ticket) == Gws::Go
    }

    #[test]
    fn a_barrier_lets_all_go_with_the_last_and_begins_anew() {
        let sync = Resources::default();
        let mut tickets = [0; 3];
        assert_eq!(
            sync.operate(SHARE, GwsOp::Init, (1, 2), &mut tickets[0]),
            Gws::Go
        );
        for _ in 0..3 {
            // Trying again is no second arrival.
            for _ in 0..3 {
                assert!(!arrive(&sync, &mut tickets[0]));
                assert!(!arrive(&sync, &mut tickets[1]));
            }
            assert!(arrive(&sync, &mut tickets[2]));
            // One of them is at the next barrier before the other has noticed.
            assert!(arrive(&sync, &mut tickets[0]));
            assert!(!arrive(&sync, &mut tickets[0]));
            assert!(arrive(&sync, &mut tickets[1]));
            assert!(!arrive(&sync, &mut tickets[1]));
            assert!(arrive(&sync, &mut tickets[2]));
            assert!(arrive(&sync, &mut tickets[0]));
            assert!(arrive(&sync, &mut tickets[1]));
            assert_eq!(tickets, [0; 3]);
        }
    }

    #[test]
    fn semaphores_count_and_release() {
        let sync = Resources::default();
        let mut tickets = [0; 2];
        let mut operate = |op, value, wave: usize| {
            sync.operate(SHARE, op, (3, value), &mut tickets[wave]) == Gws::Go
        };
        assert!(!operate(GwsOp::SemaP, 0, 0));
        assert!(operate(GwsOp::SemaV, 0, 1));
        assert!(operate(GwsOp::SemaP, 0, 0));
        assert!(!operate(GwsOp::SemaP, 0, 0));
        assert!(operate(GwsOp::SemaBr, 2, 1));
        assert!(operate(GwsOp::SemaP, 0, 0));
        assert!(operate(GwsOp::SemaP, 0, 1));
        assert!(!operate(GwsOp::SemaP, 0, 1));
        assert!(operate(GwsOp::SemaReleaseAll, 0, 0));
        assert!(operate(GwsOp::SemaP, 0, 1));
        assert!(!operate(GwsOp::SemaP, 0, 1));
    }

    #[test]
    fn processes_do_not_meet_and_none_is_without_a_share() {
        let sync = Resources::default();
        let other = Share { pasid: 8, count: 4 };
        let mut ticket = 0;
        assert_eq!(
            sync.operate(SHARE, GwsOp::SemaV, (0, 0), &mut ticket),
            Gws::Go
        );
        assert_eq!(
            sync.operate(other, GwsOp::SemaP, (0, 0), &mut ticket),
            Gws::Wait
        );
        for share in [Share::default(), Share { pasid: 7, count: 3 }] {
            assert_eq!(sync.operate(share, GwsOp::SemaV, (3, 0), &mut 0), Gws::Wait);
        }
        sync.forget(7);
        assert_eq!(sync.operate(SHARE, GwsOp::SemaP, (0, 0), &mut 0), Gws::Wait);
        // Processes that are gone take no memory for ever.
        for pasid in 100..200 {
            sync.operate(Share { pasid, count: 1 }, GwsOp::SemaV, (0, 0), &mut 0);
        }
        assert!(sync.0.lock().len() <= PROCESSES);
    }
}
