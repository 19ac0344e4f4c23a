// SPDX-License-Identifier: GPL-2.0 OR MIT
//! UNMAP_QUEUES: preempting, resetting, giving up on queues.

use super::map::{engine_sel, EngineSel};
use super::{Mapped, PendingUnmap, Target};
use crate::cp::mqd::{MEC, REFUSED_DW};
use crate::cp::pm4::Packet;
use crate::cp::queue::{Outcome, Role, Run};
use crate::cp::slot::SlotId;
use crate::decode;
use crate::device::Gpu;
use crate::sdma::regs::FIRST_RLC;
use crate::trace::Reason;

/// Preemption limit when SET_RESOURCES named none.
const DEFAULT_LATENCY_NS: u64 = 1_000_000_000;

/// How long a queue takes to leave that is in a retry fault.
const RETRY_NS: u64 = 2_000_000;

/// Doorbells (dword indices) of an UNMAP_QUEUES by doorbell; it has room for four.
fn doorbells(p: &Packet) -> Vec<u32> {
    let n = (p.dw(1) >> 29).min(4) as usize;
    (0..n).map(|i| (p.dw(2 + i) & 0x0FFF_FFFC) >> 2).collect()
}

impl Gpu {
    /// Whether a queue refuses to leave, and how long it takes otherwise.
    pub(super) fn preempt_answer(&self, m: &Mapped, reset: bool) -> (bool, u64) {
        // The microcode that would stop the HIQ is the one that hangs.
        let dead = self.soc.inject.hws_hung()
            && self
                .hws
                .hiq
                .is_some_and(|(s, _)| m.target == Target::Compute(s));
        if reset {
            return (self.soc.inject.refuses_queue_reset(m.doorbell), 0);
        }
        let least = if self.retrying(m.target) { RETRY_NS } else { 0 };
        let delay = self.soc.inject.preempt_delay_ns(m.doorbell).max(least);
        let refuses = dead || self.soc.inject.refuses_preempt(m.doorbell) || self.is_held(m.target);
        (refuses, delay)
    }

    /// Whether waves that cannot be saved keep a queue on its slot.
    fn is_held(&self, target: Target) -> bool {
        matches!(target, Target::Compute(slot) if self.holds_waves(slot))
    }

    /// Asks a queue to leave: one whose waves cannot be saved starts no further ones.
    pub(super) fn ask_to_leave(&mut self, target: Target) {
        if let Target::Compute(slot) = target {
            self.drain(slot);
        }
    }

    /// Whether a queue that refused because of its waves has none any more.
    fn is_drained(&self, m: &Mapped) -> bool {
        let Target::Compute(slot) = m.target else {
            return false;
        };
        let run = self.cp.hqd(slot).run();
        run.is_some_and(|run| run.draining) && !self.preempt_answer(m, false).0
    }

    /// Queues that have not left after all may start dispatches again, and execute those that they have.
    fn end_draining(&mut self) {
        for run in self.cp.runs_mut() {
            run.draining = false;
        }
        self.release_waves();
    }

    /// The unmap that a queue of the driver has in progress.
    fn pending_unmap(&mut self, role: Role) -> &mut Option<PendingUnmap> {
        match role {
            Role::Hiq => &mut self.hws.unmap,
            Role::Kiq | Role::User => &mut self.hws.kiq_unmap,
        }
    }

    /// Whether a queue can be taken off its slot without waiting for those who execute its waves, which are asked to give
    /// them back.
    fn lets_go(&self, target: Target) -> bool {
        match target {
            Target::Compute(slot) => self.hold_waves(slot),
            Target::Sdma(..) => true,
        }
    }

    /// Whether what a queue is doing is in its save area, or is a piece that is saved with its MQD; if not, a save begins
    /// or goes on.
    fn is_saved_to_leave(&mut self, m: &Mapped, reason: Reason) -> bool {
        match m.target {
            Target::Compute(slot) if reason != Reason::Reset => self.is_saved(slot, m.mqd),
            _ => true,
        }
    }

    /// Takes queues off their slots, one after the other, until the step has to end.  Returns how it goes on if some are
    /// left: at once, or when those who execute their waves have given them back, or their waves are saved.
    pub(super) fn take_off(&mut self, leaving: &[Mapped], reason: Reason) -> Option<Outcome> {
        let free = |m: &&Mapped| self.lets_go(m.target);
        let free: Vec<_> = leaving.iter().filter(free).copied().collect();
        let (mut off, mut saves) = (0, 0);
        for m in &free {
            if self.is_saved_to_leave(m, reason) {
                self.disconnect(m, reason);
                if reason == Reason::Reset {
                    self.soc.inject.queue_was_reset(m.doorbell);
                }
                off += 1;
            } else {
                saves += 1;
            }
            if self.soc.pressed() {
                break;
            }
        }
        if off == leaving.len() {
            None
        } else if off + saves == free.len() {
            Some(Outcome::Wait)
        } else {
            Some(Outcome::Yield)
        }
    }

    /// Whether a queue waits for a page: what is under way in the memory system has to come back first.
    fn retrying(&self, target: Target) -> bool {
        match target {
            Target::Compute(slot) => self.cp.hqd(slot).run().is_some_and(|r| r.pace.retrying),
            Target::Sdma(engine, rlc) => {
                let engine = self.sdma.get(engine);
                engine
                    .and_then(|e| e.context(rlc + FIRST_RLC))
                    .is_some_and(|c| c.pace.retrying)
            }
        }
    }

    /// How long a queue may take to leave.
    pub(super) fn preempt_limit_ns(&self) -> u64 {
        match self.hws.resources {
            Some(r) if r.unmap_latency_ns != 0 => r.unmap_latency_ns,
            _ => DEFAULT_LATENCY_NS,
        }
    }

    /// Queues that were taken away by name do not come back with the windows of the same run list.
    fn retire(&mut self, doorbells: &[u32], pasid: Option<u16>) {
        if let Some(list) = &mut self.hws.runlist {
            list.retire(doorbells, pasid);
        }
    }

    fn unmap_targets(&self, p: &Packet, role: Role) -> Vec<Mapped> {
        let control = p.dw(1);
        let doorbells = doorbells(p);
        let engine = engine_sel(control);
        let selected = |m: &&Mapped| {
            if m.by_kiq != (role == Role::Kiq) {
                return false;
            }
            match (control >> 4) & 3 {
                0 => doorbells.contains(&m.doorbell),
                1 => u32::from(m.pasid) == p.dw(2) & 0xFFFF,
                // Compute as engine stands for all queues of the run list; an SDMA engine for its own only.
                sel => {
                    let mine = match (engine, m.target) {
                        (EngineSel::Sdma(n), Target::Sdma(e, _)) => n == e,
                        (EngineSel::Sdma(_), Target::Compute(_)) => false,
                        _ => true,
                    };
                    mine && (sel == 2 || !m.is_static)
                }
            }
        };
        self.hws.mapped.iter().filter(selected).copied().collect()
    }

    /// Runs UNMAP_QUEUES; may take several calls.
    pub fn unmap_queues(&mut self, run: &mut Run, p: &Packet) -> Outcome {
        let now = self.soc.clock.now_ns();
        let targets = self.unmap_targets(p, run.role);
        let reset = p.dw(1) & 3 == 1;
        let mut pending = self.pending_unmap(run.role).take();
        if run.progress == 0 {
            run.progress = 1;
            self.check_unmap(run.role, p);
            if run.role == Role::Hiq {
                self.soc.log.stats.preemptions += 1;
                self.look_again();
            }
            let limit = self.preempt_limit_ns();
            let mut refused = Vec::new();
            let mut wait = 0;
            for m in &targets {
                if !reset {
                    self.ask_to_leave(m.target);
                }
                let (refuses, delay) = self.preempt_answer(m, reset);
                if refuses || delay > limit {
                    refused.push(m.doorbell);
                } else {
                    wait = wait.max(delay);
                }
            }
            pending = Some(PendingUnmap {
                ready: now + wait,
                deadline: now + if refused.is_empty() { wait } else { limit },
                refused,
            });
        }
        let Some(mut pending) = pending else {
            return Outcome::Done;
        };
        // What somebody resets meanwhile is not waited for.
        pending.refused.retain(|doorbell| {
            let stays = |m: &Mapped| m.doorbell == *doorbell && !self.is_drained(m);
            targets.iter().any(stays)
        });
        let end = if pending.refused.is_empty() {
            pending.ready
        } else {
            pending.deadline
        };
        // All were asked at once: those that answer do not wait for those that refuse.
        if now >= pending.ready || run.role != Role::Hiq {
            let reason = if reset { Reason::Reset } else { Reason::Unmap };
            let leaves = |m: &&Mapped| !pending.refused.contains(&m.doorbell);
            let leaving: Vec<_> = targets.iter().filter(leaves).copied().collect();
            if let Some(outcome) = self.take_off(&leaving, reason) {
                *self.pending_unmap(run.role) = Some(pending);
                run.pace.look_often();
                return outcome;
            }
        }
        if now < end && run.role == Role::Hiq {
            self.hws.unmap = Some(pending);
            return Outcome::Wait;
        }
        if run.role == Role::Hiq {
            match (p.dw(1) >> 4) & 3 {
                0 => self.retire(&doorbells(p), None),
                1 => self.retire(&[], Some(p.dw(2) as u16)),
                _ => self.hws.runlist = None,
            }
        }
        self.end_draining();
        if let Some(&doorbell) = pending.refused.first() {
            self.log_refusal(doorbell, run.role);
        }
        // What neither a reset of its queue nor of its pipe frees is the driver's, and the scheduler's work is over.
        let stuck = |m: &Mapped| {
            pending.refused.contains(&m.doorbell) && (reset || matches!(m.target, Target::Sdma(..)))
        };
        self.hws.gave_up |= run.role == Role::Hiq && targets.iter().any(stuck);
        // The driver has been told; that it maps such a queue again is a mistake.
        for m in &mut self.hws.mapped {
            m.stayed &= !pending.refused.contains(&m.doorbell);
        }
        self.release_idle_processes();
        Outcome::Done
    }

    fn check_unmap(&mut self, role: Role, p: &Packet) {
        let bad = if role == Role::Hiq && self.hws.resources.is_none() {
            "before SET_RESOURCES"
        } else if (p.dw(1) >> 4) & 3 == 0 && !(1..=4).contains(&(p.dw(1) >> 29)) {
            "by doorbell with num_queues outside 1..4"
        } else if p.dw(1) & 3 == 3 && role == Role::Hiq {
            "action 3 on the HIQ"
        } else {
            return;
        };
        let text = format!(
            "{bad}: {}",
            decode::pm4::decode(self.soc.asic, &p.words).text()
        );
        self.soc.protocol_error("unmap-queues", text);
    }

    /// Tells the driver which queue would not stop: HIQ MQD, queue_doorbell_id0.
    fn log_refusal(&mut self, doorbell: u32, role: Role) {
        if let Some((slot, mqd)) = self.hws.hiq {
            if role == Role::Hiq {
                // A failing write has been reported.
                let _ = self
                    .soc
                    .vm_write_dwords(MEC, mqd + REFUSED_DW * 4, &[doorbell]);
            }
            self.trace_sched(
                slot,
                "PREEMPT_FAILED",
                format!("queue with doorbell {doorbell:#x} did not stop"),
            );
        }
    }

    /// Disconnects a queue and writes its state back.
    pub fn disconnect(&mut self, m: &Mapped, reason: Reason) {
        match m.target {
            Target::Compute(slot) => {
                self.flush_rptr(slot);
                self.sync_pointers(slot);
                if let Some(mut run) = self.stop_queue(slot, reason) {
                    self.save_queue(slot, m.mqd, &mut run, reason == Reason::Reset);
                    self.waves.let_go(*run);
                }
            }
            Target::Sdma(engine, rlc) => self.sdma_disconnect(engine, rlc, m.mqd, reason),
        }
        self.hws.mapped.retain(|x| x.target != m.target);
        if self
            .hws
            .hiq
            .is_some_and(|(s, _)| m.target == Target::Compute(s))
        {
            self.hws.hiq = None;
            self.hws.unmap = None;
        }
    }

    /// A slot was reset by register: the scheduler forgets the queue.
    pub fn hws_slot_was_reset(&mut self, slot: SlotId) {
        if self.hws.hiq.is_some_and(|(s, _)| s == slot) {
            self.hws.hiq = None;
            self.hws.unmap = None;
        }
        // Who was taking queues off may do so no longer.
        self.release_waves();
        self.hws_forget(Target::Compute(slot));
    }

    /// Somebody else took a queue off its slot: the scheduler forgets it.
    pub fn hws_forget(&mut self, target: Target) {
        self.hws.mapped.retain(|m| m.target != target);
        self.release_idle_processes();
    }
}
