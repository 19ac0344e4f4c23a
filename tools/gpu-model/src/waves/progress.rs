// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A dispatch under way: its groups by what they wait for, and how they leave the compute units.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::job::{Dispatch, Frozen, Job, Resting, Slots};
use super::units::Units;

/// How far a dispatch is.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) dispatch: Arc<Dispatch>,
    /// Number of the next group that begins, and how many there are.
    pub(super) next: u64,
    pub(super) total: u64,
    /// Groups that have begun and not ended.
    pub(super) resident: u64,
    /// Of these, those that somebody executes.
    pub(super) running: u64,
    /// A wave has failed, so no further group begins.
    pub(super) failed: bool,
    /// Groups that can go on, each with its place in the order of all that can.
    ready: VecDeque<(u64, Job)>,
    /// Groups that wait for translations.  So many of the first of them may try again, and since when in that order.
    waiting: VecDeque<Job>,
    tries: usize,
    tried_at: u64,
    halted: Vec<Job>,
    /// Groups that wait for a unit, after they were taken off.
    resting: VecDeque<Resting>,
    /// The same of those that are being taken off, or were when that was given up: in the order of their ids.
    off: BTreeMap<([u32; 3], u64), Resting>,
    /// How many of these there have been, which tells those with the same id from each other.
    taken_off: u64,
    /// Slots of private memory in use.
    slots: Slots,
}

impl Progress {
    /// A dispatch that begins or goes on.
    pub(super) fn new(serial: u64, frozen: Frozen) -> Self {
        let Frozen {
            kernel,
            next,
            failed,
            groups,
            slots,
        } = frozen;
        let total = kernel.count().unwrap_or(u64::MAX);
        Self {
            next: next.min(total),
            total,
            resident: groups.len() as u64,
            running: 0,
            failed,
            ready: VecDeque::new(),
            waiting: VecDeque::new(),
            tries: 0,
            tried_at: 0,
            halted: Vec::new(),
            resting: groups,
            off: BTreeMap::new(),
            taken_off: 0,
            slots,
            dispatch: Arc::new(Dispatch::new(serial, kernel)),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.next == self.total && self.resident == 0
    }

    /// A group may begin, or one that was taken off go on.
    pub(super) fn wants_units(&self) -> bool {
        let fresh = self.next < self.total && !self.failed;
        !self.dispatch.is_frozen() && (self.rests() || fresh)
    }

    fn rests(&self) -> bool {
        !self.resting.is_empty() || !self.off.is_empty()
    }

    /// Takes a group that was taken off.
    pub(super) fn take_resting(&mut self) -> Option<Resting> {
        let first = self.resting.pop_front();
        first.or_else(|| self.off.pop_first().map(|(_, group)| group))
    }

    /// Takes slots of private memory for `waves` waves.
    pub(super) fn take_slots(&mut self, waves: u32) -> Option<Vec<u32>> {
        match self.dispatch.kernel.scratch {
            Some(scratch) => self.slots.take(scratch.slots, waves),
            None => Some(Vec::new()),
        }
    }

    pub(super) fn give_slots_back(&mut self, slots: &[u32]) {
        self.slots.set(slots, false);
    }

    /// The place of the next group that can go on in the order of all that can; `None` if none of this dispatch can.
    pub(super) fn turn(&self) -> Option<u64> {
        if self.dispatch.is_frozen() {
            return None;
        }
        let tried = (self.tries > 0).then_some(self.tried_at);
        let ready = self.ready.front().map(|(turn, _)| *turn);
        tried.into_iter().chain(ready).min()
    }

    /// Takes the next group that can go on.
    pub(super) fn resume(&mut self) -> Option<Job> {
        let ready = self.ready.front().map(|(turn, _)| *turn);
        if self.tries > 0 && ready.is_none_or(|turn| self.tried_at < turn) {
            self.tries -= 1;
            let mut job = self.waiting.pop_front()?;
            job.group.0.retry();
            return Some(job);
        }
        self.ready.pop_front().map(|(_, job)| job)
    }

    pub(super) fn put_ready(&mut self, turn: u64, job: Job) {
        self.ready.push_back((turn, job));
    }

    pub(super) fn put_waiting(&mut self, job: Job) {
        self.waiting.push_back(job);
    }

    pub(super) fn put_halted(&mut self, job: Job) {
        self.halted.push(job);
    }

    /// Groups wait for translations, and do not try again yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.len() > self.tries
    }

    /// Lets them try again.
    pub(super) fn retry(&mut self, turn: u64) {
        if self.tries == 0 {
            self.tried_at = turn;
        }
        self.tries = self.waiting.len();
    }

    /// Groups on units that nobody executes.
    pub(super) fn seated(&self) -> impl Iterator<Item = &Job> {
        let ready = self.ready.iter().map(|(_, job)| job);
        ready.chain(&self.waiting).chain(&self.halted)
    }

    /// Groups without a unit.
    pub(super) fn without_unit(&self) -> impl Iterator<Item = &Resting> {
        self.resting.iter().chain(self.off.values())
    }

    fn take_seated(&mut self) -> Option<Job> {
        if let Some(job) = self.waiting.pop_front() {
            self.tries = self.tries.saturating_sub(1);
            return Some(job);
        }
        let halted = self.halted.pop();
        halted.or_else(|| self.ready.pop_front().map(|(_, job)| job))
    }
}

/// A dispatch that is taken off: nobody executes it, and its groups leave the compute units a part at a time.
#[derive(Debug)]
pub struct Leaving(Progress);

impl Leaving {
    /// `dispatch` is one that nobody executes any more.
    pub(super) fn new(mut dispatch: Progress) -> Self {
        let seated = dispatch.seated().size_hint().0;
        dispatch.resting.reserve(seated);
        Self(dispatch)
    }

    /// It is not taken off after all.
    pub(super) fn into_progress(self) -> Progress {
        self.0
    }

    /// Takes the next group off its unit, or puts it where it belongs among those that are off.  False if all are.
    pub(super) fn unseat(&mut self, units: &mut Units) -> bool {
        let Self(of) = self;
        if let Some(job) = of.take_seated() {
            units.release(&job.place);
            let [x, y, z] = job.id;
            let group = Resting {
                id: job.id,
                group: job.group,
                slots: job.slots,
            };
            of.off.insert(([z, y, x], of.taken_off), group);
            of.taken_off += 1;
            true
        } else if let Some((_, group)) = of.off.pop_first() {
            of.resting.push_back(group);
            true
        } else {
            false
        }
    }

    /// Takes a group off its unit that is not to go on, or one that is off; `None` if there are no more.
    pub(super) fn kill(&mut self, units: &mut Units) -> Option<Killed> {
        let Self(of) = self;
        match of.take_seated() {
            Some(job) => {
                units.release(&job.place);
                Some(Killed::Seated(job))
            }
            None => of.take_resting().map(Killed::Resting),
        }
    }

    /// What is left when all groups are off their units.
    pub fn end(self) -> Frozen {
        let Self(of) = self;
        Frozen {
            kernel: of.dispatch.kernel.clone(),
            next: of.next,
            failed: of.failed,
            groups: of.resting,
            slots: of.slots,
        }
    }
}

/// A group that does not go on, whose memory is given back with this value.
#[expect(dead_code, reason = "it is only dropped")]
pub(super) enum Killed {
    Seated(Job),
    Resting(Resting),
}
