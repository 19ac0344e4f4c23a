// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The scheduler packets of the HIQ and the KIQ.

use super::map::{engine_sel, EngineSel, NotMapped};
use super::{Mapped, Resources, Target};
use crate::cp::eop::source;
use crate::cp::hqd::f;
use crate::cp::mqd::{Expect, MEC};
use crate::cp::pm4::{op, Packet};
use crate::cp::queue::{Outcome, Role, Run};
use crate::cp::slot::SlotId;
use crate::decode;
use crate::device::Gpu;
use crate::trace::Reason;
use crate::vm::access::VmError;

/// Unit of SET_RESOURCES.unmap_latency.
const LATENCY_UNIT_NS: u64 = 100_000_000;

/// Reserved bits of what an UNMAP_QUEUES names, which depends on queue_sel.
fn reserved_of_unmap(words: &[u32]) -> Vec<(usize, u32)> {
    let control = words.get(1).copied().unwrap_or(0);
    // Action 3 has a write pointer in dword 3.
    let last = if control & 3 == 3 { 2 } else { 5 };
    let (last, reserved) = match (control >> 4) & 3 {
        0 => (last, 0xF000_0003),
        1 => (2, 0xFFFF_0000),
        _ => return Vec::new(),
    };
    let found = |i: usize| words.get(i).map(|w| (i, w & reserved));
    (2..=last)
        .filter_map(found)
        .filter(|(_, bits)| *bits != 0)
        .collect()
}

/// How long a queue may keep a preemption waiting before the driver may take the scheduler for dead: longer than the
/// memory system or a save ever takes.
const STUCK_NS: u64 = 200_000_000;

impl Gpu {
    /// Whether a driver must take the scheduler for dead, and so may take its queues off by registers.
    pub fn hws_seems_dead(&self) -> bool {
        self.hws.silent || self.hws.gave_up || self.soc.inject.hws_hung() || self.hws_is_stuck()
    }

    /// Whether a preemption waits for a queue that will not leave, for so long that a driver may give up on both.
    fn hws_is_stuck(&self) -> bool {
        let now = self.soc.clock.now_ns();
        self.hws.unmap.as_ref().is_some_and(|unmap| {
            !unmap.refused.is_empty() && now >= unmap.ready.saturating_add(STUCK_NS)
        })
    }

    /// Reports reserved bits and a wrong length of a scheduler packet.
    pub fn check_layout(&mut self, stream: &str, words: &[u32]) {
        let Some(&header) = words.first() else { return };
        let opcode = ((header >> 8) & 0xFF) as u8;
        let Some(spec) = decode::pm4::spec(self.soc.asic, opcode) else {
            return;
        };
        let mut bits = spec.reserved(words);
        if opcode == op::UNMAP_QUEUES {
            bits.extend(reserved_of_unmap(words));
        }
        let wrong_len = spec.len != 0 && spec.len != words.len();
        if bits.is_empty() && !wrong_len {
            return;
        }
        let text = decode::pm4::decode(self.soc.asic, words).text();
        for (dw, mask) in bits {
            self.soc.protocol_error(
                "reserved-bits",
                format!("{stream}: dword {dw} bits {mask:#010x}: {text}"),
            );
        }
        if wrong_len {
            let text = format!(
                "{stream}: {} dwords instead of {}: {text}",
                words.len(),
                spec.len
            );
            self.soc.protocol_error("packet-length", text);
        }
    }

    /// Reserved-bit check of packets on kernel queues.
    pub fn check_reserved(&mut self, run: &Run, words: &[u32]) {
        let opcode = words.first().map_or(0, |h| ((h >> 8) & 0xFF) as u8);
        if matches!(
            opcode,
            op::SET_RESOURCES..=op::RUN_LIST | op::INVALIDATE_TLBS
        ) {
            let name = if run.role == Role::Kiq { "KIQ" } else { "HIQ" };
            self.check_layout(name, words);
        }
    }

    fn misplaced(&mut self, run: &Run, p: &Packet) -> Outcome {
        let text = decode::pm4::decode(self.soc.asic, &p.words).text();
        self.soc
            .protocol_error("misplaced-packet", format!("on the {:?}: {text}", run.role));
        Outcome::Done
    }

    /// Runs a scheduler packet of the HIQ or KIQ.
    pub fn scheduler_packet(&mut self, slot: SlotId, run: &mut Run, p: &Packet) -> Outcome {
        match (p.op, run.role) {
            (op::SET_RESOURCES, _) => self.set_resources(slot, run, p),
            (op::RUN_LIST, Role::Hiq) => self.run_list(run, p),
            (op::MAP_QUEUES, Role::Kiq) => self.kiq_map_queues(p),
            (op::UNMAP_QUEUES, _) => self.unmap_queues(run, p),
            (op::QUERY_STATUS, _) => self.query_status(slot, run, p),
            // The answer is that the ring goes on.
            (op::INVALIDATE_TLBS, _) if self.soc.inject.deaf_tlb() => Outcome::Wait,
            (op::INVALIDATE_TLBS, _) => self.invalidate_tlbs(run, p),
            _ => self.misplaced(run, p),
        }
    }

    fn set_resources(&mut self, slot: SlotId, run: &Run, p: &Packet) -> Outcome {
        let kind = p.dw(1) >> 29;
        if run.role == Role::Kiq {
            // The KIQ form sets the pool of kernel queues, which this model does not hand out.
            if kind != 0 {
                return self.misplaced(run, p);
            }
            return Outcome::Done;
        }
        let r = Resources {
            vmid_mask: p.dw(1) as u16,
            queue_mask: p.qw(2),
            unmap_latency_ns: u64::from((p.dw(1) >> 16) & 0xFF) * LATENCY_UNIT_NS,
            xnack_check: (p.dw(1) >> 28) & 1 != 0,
        };
        let mut wrong = Vec::new();
        if kind != 1 && kind != 4 {
            wrong.push("queue_type");
        }
        if r.vmid_mask == 0 || r.vmid_mask & 1 != 0 {
            wrong.push("vmid_mask");
        }
        if r.queue_mask == 0 {
            wrong.push("queue_mask is empty");
        }
        if self.hws.runlist.is_some() {
            wrong.push("a run list is active");
        }
        if self
            .hws
            .hiq
            .is_some_and(|(s, _)| (r.queue_mask >> s.index()) & 1 != 0)
        {
            wrong.push("queue_mask contains the HIQ's own slot");
        }
        if !wrong.is_empty() {
            let text = decode::pm4::decode(self.soc.asic, &p.words).text();
            self.soc
                .protocol_error("set-resources", format!("{}: {text}", wrong.join(", ")));
        }
        self.hws.resources = Some(r);
        self.hws.home = Some(slot);
        Outcome::Done
    }

    fn query_status(&mut self, slot: SlotId, run: &Run, p: &Packet) -> Outcome {
        if let Some(list) = &mut self.hws.runlist {
            list.release_buffer();
        }
        let command = p.dw(1) >> 30;
        let (addr, data) = (p.qw(3), p.qw(5));
        let swallowed = command != 0 && self.soc.inject.take_fence(run.doorbell);
        self.hws.silent |= swallowed;
        if command != 0 && !swallowed {
            if addr & 7 != 0 {
                let text = decode::pm4::decode(self.soc.asic, &p.words).text();
                self.soc
                    .protocol_error("unaligned", format!("fence address: {text}"));
            }
            if self.soc.vm_write(MEC, addr & !7, &data.to_le_bytes()) == Err(VmError::Retry) {
                return Outcome::Wait;
            }
        }
        if command == 0 || command == 3 {
            self.cp_interrupt(slot, 0, source::QUERY_STATUS, p.dw(1) & 0x0FFF_FFFF);
        }
        Outcome::Done
    }

    /// MAP_QUEUES on the KIQ: the packet names the slot.
    fn kiq_map_queues(&mut self, p: &Packet) -> Outcome {
        let control = p.dw(1);
        let engine = engine_sel(control);
        let text = decode::pm4::decode(self.soc.asic, &p.words).text();
        let slot = SlotId::new(
            1 + ((control >> 18) & 1) as u8,
            ((control >> 16) & 3) as u8,
            ((control >> 13) & 7) as u8,
        );
        let (role, Some(slot)) = (
            if engine == EngineSel::Hiq {
                Role::Hiq
            } else {
                Role::User
            },
            slot,
        ) else {
            return Outcome::Done;
        };
        let doorbell = (p.dw(2) & f::DOORBELL_OFFSET) >> 2;
        let wrong = if !matches!(engine, EngineSel::Hiq | EngineSel::Compute) {
            Some("engine_sel")
        } else if (control >> 4) & 3 != 0 {
            Some("queue_sel on the KIQ must name the slot")
        } else if control >> 29 != 1 {
            Some("num_queues is not 1")
        } else if self.cp.hqd(slot).active() {
            Some("the slot is in use")
        } else if self.soc.doorbell_target(u64::from(doorbell) * 4)
            != crate::soc::DoorbellTarget::Cp
        {
            Some("the doorbell is not routed to the CP")
        } else {
            None
        };
        if let Some(why) = wrong {
            self.soc
                .protocol_error("map-queues", format!("{why}: {text}"));
            return Outcome::Done;
        }
        let (mqd, wptr_addr) = (p.qw(3), p.qw(5));
        let e = Expect {
            mqd,
            doorbell,
            wptr_addr,
            user: false,
        };
        let vmid = ((control >> 8) & 0xF) as u8;
        match self.connect_compute(slot, role, &e, vmid, Reason::Map) {
            Ok(()) => {
                let m = Mapped {
                    target: Target::Compute(slot),
                    mqd,
                    doorbell,
                    pasid: 0,
                    vmid,
                    is_static: true,
                    by_kiq: true,
                    stayed: false,
                };
                self.hws.mapped.push(m);
                if role == Role::Hiq {
                    self.hws.hiq = Some((slot, mqd));
                }
                Outcome::Done
            }
            Err(NotMapped::Blocked) => Outcome::Wait,
            Err(NotMapped::Refused | NotMapped::NoSlot) => Outcome::Done,
        }
    }
}
