// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Connected queues at work: doorbells, turns, and the pointers in memory.

use super::hqd::{f, r};
use super::queue::{Outcome, Role, Run};
use super::slot::{SlotId, SLOTS};
use crate::device::{Gpu, Wake};
use crate::feed::{Stretch, STRETCH_PACKETS};
use crate::regs::gc;
use crate::trace::{Origin, Ring};
use crate::vm::access::VmError;

/// Mistakes of user programs that the log file gets; the counter and the trace go on.
const MAX_NOTES: u64 = 1000;
/// Packets in a turn of a queue without a quantum, and the larger unit of CP_HQD_QUANTUM.
const TURN: usize = STRETCH_PACKETS;

impl Gpu {
    /// A doorbell in the CP's part of a BAR2 page.
    pub fn cp_doorbell(&mut self, byte: u64, value: u64, wide: bool) -> bool {
        let hit = self.cp.iter().find_map(|(s, h)| {
            let db = h.reg(r::DOORBELL);
            let mine = u64::from(db & f::DOORBELL_OFFSET) == byte && db & f::DOORBELL_EN != 0;
            (h.active() && mine).then_some(s)
        });
        let Some(slot) = hit else { return false };
        if self.regs.plain(gc::CP_PQ_STATUS) & 2 == 0 {
            let text =
                format!("{slot}: doorbell {byte:#x} while CP_PQ_STATUS.DOORBELL_ENABLE is 0");
            self.protocol_error("doorbell-enable", text);
            return true;
        }
        let h = self.cp.hqd_mut(slot);
        h.set(r::DOORBELL, h.reg(r::DOORBELL) | f::DOORBELL_HIT);
        let Some(run) = &mut h.run else { return true };
        let old = run.wptr;
        let new = if wide {
            value
        } else {
            old & !0xFFFF_FFFF | value
        };
        let new = if run.aql { new.wrapping_add(1) } else { new };
        if run.aql && new.wrapping_sub(old) > u64::MAX / 2 {
            // A late doorbell of another producer; the index never goes back.
            return true;
        }
        run.wptr = new;
        run.pace.rung();
        let (role, aql, len, rptr) = (run.role, run.aql, run.len, run.rptr);
        // CP_HQD_PQ_RPTR wraps: a ring that is filled to the last dword looks empty and would be dropped whole.
        if !aql && new.wrapping_sub(rptr) >= len {
            let text = format!(
                "{slot} {role:?}: WPTR {new:#x} is a ring ({len:#x}) or more beyond RPTR {rptr:#x}"
            );
            if role == Role::User {
                self.user_error("wptr-beyond-ring", text);
            } else {
                self.protocol_error("wptr-beyond-ring", text);
            }
        }
        true
    }

    /// Counts a mistake of a user program.
    pub fn user_error(&mut self, rule: &'static str, text: String) {
        self.log.stats.user_errors += 1;
        if self.log.stats.user_errors <= MAX_NOTES {
            let line = format!(
                "user error t={}us {rule}: {text}",
                self.clock.now_ns() / 1000
            );
            self.log.note(&line);
        }
        self.log.event(
            self.clock.now_ns(),
            Ring::Device,
            Origin::default(),
            "USER_ERROR",
            format!("{rule}: {text}"),
        );
    }

    /// Goes on with the round in which every active queue gets a turn, or begins one.  Returns whether one had work.
    pub fn cp_run(&mut self, now: u64, wake: &mut Wake) -> bool {
        if let Some(t) = self.poll_write_pointers(now) {
            wake.at(t);
        }
        let turn = self.cp.turn.take();
        let resumed = self.cp.round != 0;
        if !resumed {
            self.cp.round = u64::MAX;
            self.cp.next = (self.cp.next + 1) % SLOTS;
        }
        let mut ran = false;
        for slot in self.cp_order(turn) {
            self.cp.round &= !(1 << slot.index());
            let runs = self.cp_turn(slot, turn, now, wake);
            ran |= runs;
            if self.cp.turn.is_some() {
                // It is continued before the others get theirs.
                self.cp.round |= 1 << slot.index();
                return true;
            }
            if runs && self.pressed() {
                wake.busy();
                return true;
            }
        }
        self.cp.round = 0;
        if resumed {
            // When those that had their turn in an earlier step want the next one is not known here.
            wake.busy();
        }
        ran
    }

    /// The slots of the round that have something to do: a turn that was begun is ended first; then by priority; among
    /// queues of one priority it goes round.
    fn cp_order(&self, turn: Option<(SlotId, usize)>) -> Vec<SlotId> {
        let start = turn.map_or(self.cp.next, |(slot, _)| slot.index());
        let mut order: Vec<SlotId> = (0..SLOTS)
            .filter_map(|i| SlotId::from_index((start + i) % SLOTS))
            .filter(|s| (self.cp.round >> s.index()) & 1 != 0)
            .filter(|&s| {
                let h = self.cp.hqd(s);
                h.run.is_some() || h.dequeue_at.is_some() || h.reset_at.is_some()
            })
            .collect();
        order.sort_by_key(|&s| {
            let begun = turn.is_some_and(|(t, _)| t == s);
            std::cmp::Reverse((begun, self.cp.hqd(s).priority()))
        });
        order
    }

    /// Gives a queue its turn; returns whether it had work.
    fn cp_turn(
        &mut self,
        slot: SlotId,
        turn: Option<(SlotId, usize)>,
        now: u64,
        wake: &mut Wake,
    ) -> bool {
        if let Some(t) = self.cp.hqd(slot).dequeue_at {
            self.settle_dequeue(slot);
            if t > now {
                wake.at(t);
            }
        }
        if let Some(t) = self.settle_reset(slot) {
            wake.at(t);
            return false;
        }
        let Some(run) = &self.cp.hqd(slot).run else {
            return false;
        };
        if !run.has_work() {
            return false;
        }
        let (not_before, doorbell, role) = (run.pace.not_before, run.doorbell, run.role);
        let halted = self.mec_halted(slot);
        if halted && (!run.in_dma || self.mec_in_reset(slot)) {
            return false;
        }
        if self.inject.queue_hung(doorbell) && role == Role::User {
            self.learn_pointers(slot);
            return false;
        }
        if role == Role::Hiq && self.inject.hws_hung() {
            return false;
        }
        if not_before > now {
            wake.at(not_before);
            return false;
        }
        let left = match turn {
            // The packet under way is all that a halted engine ends.
            _ if halted => 1,
            Some((s, left)) if s == slot => left,
            _ => self.turn(slot),
        };
        self.run_slot(slot, left, now, wake);
        true
    }

    /// Packets of one turn, from CP_HQD_QUANTUM: EN, SCALE (a unit of 64 packets, else of 8) and DURATION.
    fn turn(&self, slot: SlotId) -> usize {
        let q = self.cp.hqd(slot).reg(r::QUANTUM);
        if q & 1 == 0 {
            return TURN;
        }
        let unit = if (q >> 4) & 1 != 0 { TURN } else { TURN / 8 };
        unit * ((q >> 8) & 0x3F).max(1) as usize
    }

    /// Runs a stretch of a turn that has `left` packets left.
    fn run_slot(&mut self, slot: SlotId, mut left: usize, now: u64, wake: &mut Wake) {
        let Some(mut run) = self.cp.hqd_mut(slot).run.take() else {
            return;
        };
        let mut stretch = Stretch::begin(self, left);
        let outcome = loop {
            if run.report_due {
                self.report_rptr(&mut run, slot);
            }
            let outcome = self.run_one(slot, &mut run);
            left = left.saturating_sub(1);
            let more = stretch.goes_on(self, outcome, &mut run.pace);
            if !more || !run.has_work() {
                break outcome;
            }
        };
        if outcome == Outcome::Done && run.has_work() && left > 0 {
            self.cp.turn = Some((slot, left));
        }
        let active = self.cp.hqd(slot).active();
        if active {
            self.report_rptr(&mut run, slot);
        }
        let has_work = run.has_work();
        if let Some(why) = run.pace.end(outcome, has_work, now, wake) {
            self.trace_sched(slot, "HALT", why.to_string());
        }
        // A packet of this queue may have taken the slot away; then the state is gone with it.
        if active {
            self.cp.hqd_mut(slot).run = Some(run);
        } else {
            self.drop_flights(&mut run);
        }
    }

    fn run_one(&mut self, slot: SlotId, run: &mut Run) -> Outcome {
        if run.fetch_rptr || run.poll_wptr {
            if let Err(out) = self.fetch_pointers(slot, run) {
                return out;
            }
        }
        if let Some(mqd) = run.restore {
            if let Err(out) = self.cwsr_restore(slot, run, mqd) {
                return out;
            }
        }
        if run.frames.is_empty() && run.pending() == 0 {
            // Only the read pointer is left to be reported.
            return if run.report_due || run.flight.is_some() {
                Outcome::Wait
            } else {
                Outcome::Done
            };
        }
        if run.aql && run.frames.is_empty() {
            self.aql_step(slot, run)
        } else {
            self.pm4_step(slot, run)
        }
    }

    /// A queue that hangs does so in a packet: what was rung before it was connected is in its registers.
    fn learn_pointers(&mut self, slot: SlotId) {
        let unknown = |run: &Run| run.pace.halted.is_none() && (run.fetch_rptr || run.poll_wptr);
        let Some(mut run) = self.cp.hqd_mut(slot).run.take_if(|run| unknown(run)) else {
            return;
        };
        // Memory that is not there is for the queue to meet when it goes on.
        let _ = self.fetch_pointers(slot, &mut run);
        self.cp.hqd_mut(slot).run = Some(run);
    }

    fn fetch_pointers(&mut self, slot: SlotId, run: &mut Run) -> Result<(), Outcome> {
        let h = self.cp.hqd(slot);
        let (wptr_addr, rptr_addr) = (h.pair(r::WPTR_POLL), h.pair(r::RPTR_REPORT));
        let stop = |e| match e {
            VmError::Retry => Outcome::Wait,
            VmError::Fault => Outcome::Halt("pointer memory faulted"),
        };
        if run.fetch_rptr {
            if rptr_addr != 0 || run.vmid == 0 {
                let index = self
                    .vm_read_u64(run.fetcher(), rptr_addr & !7)
                    .map_err(stop)?;
                // A queue that left while its index could not be written knows better than memory.
                let ahead = u64::from((run.rptr as u32).wrapping_sub(index as u32));
                let ahead = if ahead <= run.len { ahead } else { 0 };
                run.rptr = index.wrapping_add(ahead);
                run.reported = Some(index);
            }
            run.started = run.rptr;
            run.fetch_rptr = false;
        }
        if run.poll_wptr {
            if wptr_addr & !7 != 0 || run.vmid == 0 {
                let wptr = self
                    .vm_read_u64(run.fetcher(), wptr_addr & !7)
                    .map_err(stop)?;
                if !run.aql {
                    run.rptr = wptr.wrapping_sub(wptr.wrapping_sub(run.rptr) & (run.len - 1));
                    run.started = run.rptr;
                }
                run.wptr = wptr;
            }
            run.poll_wptr = false;
        }
        Ok(())
    }

    /// Writes the read pointer to memory if it moved.
    pub(super) fn report_rptr(&mut self, run: &mut Run, slot: SlotId) {
        // Inside an indirect buffer the packet that called it has not retired.
        if run.reported == Some(run.rptr) || !run.frames.is_empty() {
            return;
        }
        let h = self.cp.hqd(slot);
        let addr = h.pair(r::RPTR_REPORT) & !3;
        let before = run.reported;
        run.reported = Some(run.rptr);
        // A queue that has run nothing yet has nothing to report.
        let idle = run.rptr == run.started && run.pending() > 0;
        if (addr == 0 && run.vmid != 0) || (before.is_none() && idle) {
            return;
        }
        let c = run.client();
        let done = if run.aql {
            self.vm_write(c, addr & !7, &run.rptr.to_le_bytes())
        } else {
            let wrapped = (run.rptr & (run.len - 1)) as u32;
            self.vm_write(c, addr, &wrapped.to_le_bytes())
        };
        run.report_due = done == Err(VmError::Retry);
        if run.report_due {
            run.reported = before;
        }
    }
}
