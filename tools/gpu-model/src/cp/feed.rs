// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Connected queues at work: doorbells, turns, and the pointers in memory.

use super::hqd::{f, r, Hqd};
use super::queue::{Outcome, Role, Run};
use super::slot::{SlotId, SLOTS};
use crate::device::{Gpu, Wake};
use crate::feed::{rung_to, Feed, Pace, Pointers, Queue, STRETCH_PACKETS};
use crate::regs::gc;
use crate::vm::Client;

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
        if self.soc.regs.plain(gc::CP_PQ_STATUS) & 2 == 0 {
            let text =
                format!("{slot}: doorbell {byte:#x} while CP_PQ_STATUS.DOORBELL_ENABLE is 0");
            self.soc.protocol_error("doorbell-enable", text);
            return true;
        }
        let h = self.cp.hqd_mut(slot);
        h.set(r::DOORBELL, h.reg(r::DOORBELL) | f::DOORBELL_HIT);
        let Some(run) = &mut h.run else { return true };
        let old = run.wptr;
        let new = rung_to(old, value, wide, 1);
        let new = if run.aql { new.wrapping_add(1) } else { new };
        if run.aql && new.wrapping_sub(old) > u64::MAX / 2 {
            // A late doorbell of another producer; the index never goes back.
            return true;
        }
        let (role, len, rptr) = (run.role, run.len, run.rptr);
        // CP_HQD_PQ_RPTR wraps: a ring that is filled to the last dword looks empty and would be dropped whole.
        let wrong = (!run.aql && new.wrapping_sub(rptr) >= len).then(|| {
            format!(
                "{slot} {role:?}: WPTR {new:#x} is a ring ({len:#x}) or more beyond RPTR {rptr:#x}"
            )
        });
        self.soc.ring(run, new, role != Role::User, wrong);
        true
    }

    /// The queues of the driver, KIQ and HIQ, get a stretch in each step: they have pipes of their own, which the queues of
    /// programs do not keep busy.
    pub(crate) fn serve_driver(&mut self, now: u64, wake: &mut Wake) {
        let slots: Vec<SlotId> = self
            .cp
            .iter()
            .filter(|(_, h)| is_drivers(h))
            .map(|(slot, _)| slot)
            .collect();
        for slot in slots {
            self.turn::<Compute>(slot, now, wake);
        }
    }

    /// The slots of the round that have something to do: a turn that was begun is ended first; then by priority; among
    /// queues of one priority it goes round. Those of the driver take no part.
    fn cp_order(&self) -> Vec<SlotId> {
        let turn = self.cp.begun;
        let start = turn.map_or(self.cp.next, |(slot, _)| slot.index());
        let mut order: Vec<SlotId> = (0..SLOTS)
            .filter_map(|i| SlotId::from_index((start + i) % SLOTS))
            .filter(|s| (self.cp.round >> s.index()) & 1 != 0)
            .filter(|&s| {
                let h = self.cp.hqd(s);
                !is_drivers(h)
                    && (h.run.is_some() || h.dequeue_at.is_some() || h.reset_at.is_some())
            })
            .collect();
        order.sort_by_key(|&s| {
            let begun = turn.is_some_and(|(t, _)| t == s);
            std::cmp::Reverse((begun, self.cp.hqd(s).priority()))
        });
        order
    }

    /// How many packets the queue of a slot may run now.
    fn cp_due(&mut self, slot: SlotId, now: u64, wake: &mut Wake) -> Option<usize> {
        if let Some(t) = self.cp.hqd(slot).dequeue_at {
            self.settle_dequeue(slot);
            if t > now {
                wake.at(t);
            }
        }
        if let Some(t) = self.settle_reset(slot) {
            wake.at(t);
            return None;
        }
        let Some(run) = &self.cp.hqd(slot).run else {
            return None;
        };
        if !run.has_work() || run.saving.is_some() {
            return None;
        }
        let (not_before, doorbell, role) = (run.pace.not_before, run.doorbell, run.role);
        let halted = self.mec_halted(slot);
        if halted && (!run.in_dma || self.mec_in_reset(slot)) {
            return None;
        }
        if self.soc.inject.queue_hung(doorbell) && role == Role::User {
            self.learn_pointers(slot);
            return None;
        }
        if role == Role::Hiq && self.soc.inject.hws_hung() {
            return None;
        }
        if not_before > now {
            wake.at(not_before);
            return None;
        }
        match self.cp.begun {
            // The packet under way is all that a halted engine ends.
            _ if halted => Some(1),
            Some((s, left)) if s == slot => Some(left),
            _ => Some(self.cp_quantum(slot)),
        }
    }

    /// Packets of one turn, from CP_HQD_QUANTUM: EN, SCALE (a unit of 64 packets, else of 8) and DURATION.
    fn cp_quantum(&self, slot: SlotId) -> usize {
        let q = self.cp.hqd(slot).reg(r::QUANTUM);
        if q & 1 == 0 {
            return TURN;
        }
        let unit = if (q >> 4) & 1 != 0 { TURN } else { TURN / 8 };
        unit * ((q >> 8) & 0x3F).max(1) as usize
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
        if run.fetch_rptr {
            if rptr_addr != 0 || run.vmid == 0 {
                let index = self.soc.fetch_pointer(run.fetcher(), rptr_addr)?;
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
                let wptr = self.soc.fetch_pointer(run.fetcher(), wptr_addr)?;
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
        // A queue that has run nothing yet has nothing to report.
        let idle = run.rptr == run.started && run.pending() > 0;
        let nowhere = (addr == 0 && run.vmid != 0) || (run.reported.is_none() && idle);
        let wrapped = (run.rptr & (run.len - 1)) as u32;
        let (index, wrapped) = (run.rptr.to_le_bytes(), wrapped.to_le_bytes());
        let to = if run.aql {
            (addr & !7, index.as_slice())
        } else {
            (addr, wrapped.as_slice())
        };
        self.soc.report_pointer(run, (!nowhere).then_some(to));
    }
}

/// Whether the queue of a slot is one of the driver's.
fn is_drivers(h: &Hqd) -> bool {
    h.run().is_some_and(|run| run.role != Role::User)
}

impl Queue for Run {
    fn has_work(&self) -> bool {
        Run::has_work(self)
    }

    fn pace(&mut self) -> &mut Pace {
        &mut self.pace
    }

    fn client(&self) -> Client {
        Run::client(self)
    }

    fn pointers(&mut self) -> Pointers<'_> {
        Pointers {
            rptr: self.rptr,
            wptr: &mut self.wptr,
            reported: &mut self.reported,
            report_due: &mut self.report_due,
        }
    }
}

/// The compute micro-engines: their queues have priorities and quanta.
#[derive(Debug)]
pub struct Compute;

impl Feed for Compute {
    type Seat = SlotId;
    type Queue = Box<Run>;

    fn begin_round(gpu: &mut Gpu) -> bool {
        gpu.cp.begun = gpu.cp.turn.take();
        let resumed = gpu.cp.round != 0;
        if !resumed {
            gpu.cp.round = u64::MAX;
            gpu.cp.next = (gpu.cp.next + 1) % SLOTS;
        }
        resumed
    }

    fn seats(gpu: &Gpu) -> Vec<SlotId> {
        gpu.cp_order()
    }

    fn leave_round(gpu: &mut Gpu, slot: SlotId) {
        gpu.cp.round &= !(1 << slot.index());
    }

    fn goes_on(gpu: &mut Gpu, slot: SlotId) -> bool {
        let more = gpu.cp.turn.is_some();
        if more {
            gpu.cp.round |= 1 << slot.index();
        }
        more
    }

    fn end_round(gpu: &mut Gpu) {
        gpu.cp.round = 0;
    }

    fn due(gpu: &mut Gpu, slot: SlotId, now: u64, wake: &mut Wake) -> Option<usize> {
        gpu.cp_due(slot, now, wake)
    }

    fn take(gpu: &mut Gpu, slot: SlotId) -> Option<Box<Run>> {
        gpu.cp.hqd_mut(slot).run.take()
    }

    fn packet(gpu: &mut Gpu, slot: SlotId, run: &mut Box<Run>) -> Outcome {
        if run.report_due {
            gpu.report_rptr(run, slot);
        }
        gpu.run_one(slot, run)
    }

    fn permits(_: &Gpu, _: SlotId, _: &Box<Run>) -> bool {
        true
    }

    fn report(gpu: &mut Gpu, slot: SlotId, run: &mut Box<Run>, outcome: Outcome, left: usize) {
        let in_round = run.role == Role::User;
        if in_round && outcome == Outcome::Done && run.has_work() && left > 0 {
            gpu.cp.turn = Some((slot, left));
        }
        if gpu.cp.hqd(slot).active() {
            gpu.report_rptr(run, slot);
        }
    }

    fn halted(gpu: &mut Gpu, slot: SlotId, _: &Box<Run>, why: &'static str) {
        gpu.trace_sched(slot, "HALT", why.to_string());
    }

    fn put_back(gpu: &mut Gpu, slot: SlotId, mut run: Box<Run>) {
        // A packet of this queue may have taken the slot away; then the state is gone with it.
        if gpu.cp.hqd(slot).active() {
            gpu.cp.hqd_mut(slot).run = Some(run);
        } else {
            gpu.drop_flights(&mut run);
        }
    }
}
