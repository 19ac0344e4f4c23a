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

/// Preemption limit when SET_RESOURCES named none.
const DEFAULT_LATENCY_NS: u64 = 1_000_000_000;

impl Gpu {
    fn unmap_targets(&self, p: &Packet, role: Role) -> Vec<Mapped> {
        let control = p.dw(1);
        let doorbells: Vec<u32> = (0..(control >> 29) as usize)
            .map(|i| (p.dw(2 + i) & 0x0FFF_FFFC) >> 2)
            .collect();
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
        let now = self.clock.now_ns();
        let targets = self.unmap_targets(p, run.role);
        let reset = p.dw(1) & 3 == 1;
        let mut pending = if run.role == Role::Hiq {
            self.hws.unmap.take()
        } else {
            None
        };
        if run.progress == 0 {
            run.progress = 1;
            self.check_unmap(run.role, p);
            let limit = self.hws.resources.map_or(0, |r| r.unmap_latency_ns);
            let limit = if limit == 0 {
                DEFAULT_LATENCY_NS
            } else {
                limit
            };
            let mut refused = Vec::new();
            let mut wait = 0;
            for m in targets.iter().filter(|_| !reset) {
                let delay = self.inject.preempt_delay_ns(m.doorbell);
                if self.inject.refuses_preempt(m.doorbell) || delay > limit {
                    refused.push(m.doorbell);
                    wait = limit;
                } else {
                    wait = wait.max(delay);
                }
            }
            pending = Some(PendingUnmap {
                deadline: now + wait,
                refused,
            });
        }
        let Some(pending) = pending else {
            return Outcome::Done;
        };
        if now < pending.deadline && run.role == Role::Hiq {
            self.hws.unmap = Some(pending);
            return Outcome::Wait;
        }
        for m in &targets {
            if !pending.refused.contains(&m.doorbell) {
                self.disconnect(m);
            }
        }
        if run.role == Role::Hiq && (p.dw(1) >> 4) & 3 >= 2 {
            self.hws.runlist = None;
        }
        if let Some(&doorbell) = pending.refused.first() {
            self.log_refusal(doorbell);
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
        let text = format!("{bad}: {}", decode::pm4::decode(self.asic, &p.words).text());
        self.protocol_error("unmap-queues", text);
    }

    /// Tells the driver which queue would not stop: HIQ MQD, queue_doorbell_id0.
    fn log_refusal(&mut self, doorbell: u32) {
        if let Some((slot, mqd)) = self.hws.hiq {
            // A failing write has been reported.
            let _ = self.vm_write_dwords(MEC, mqd + REFUSED_DW * 4, &[doorbell]);
            self.trace_sched(
                slot,
                "PREEMPT_FAILED",
                format!("queue with doorbell {doorbell:#x} did not stop"),
            );
        }
    }

    /// Disconnects a queue and writes its state back.
    pub fn disconnect(&mut self, m: &Mapped) {
        match m.target {
            Target::Compute(slot) => {
                self.sync_pointers(slot);
                if let Some(run) = self.stop_queue(slot) {
                    self.save_mqd(slot, m.mqd);
                    if run.role == Role::User {
                        self.save_private(m.mqd, &run);
                    }
                }
            }
            Target::Sdma(engine, rlc) => self.sdma_disconnect(engine, rlc, m.mqd),
        }
        self.hws.mapped.retain(|x| x.target != m.target);
        if self
            .hws
            .hiq
            .is_some_and(|(s, _)| m.target == Target::Compute(s))
        {
            self.hws.hiq = None;
        }
    }

    /// A slot was reset by register: the scheduler forgets the queue.
    pub fn hws_slot_was_reset(&mut self, slot: SlotId) {
        self.hws
            .mapped
            .retain(|m| m.target != Target::Compute(slot));
        if self.hws.hiq.is_some_and(|(s, _)| s == slot) {
            self.hws.hiq = None;
        }
        self.release_idle_processes();
    }
}
