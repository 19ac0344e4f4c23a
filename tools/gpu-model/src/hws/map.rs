// SPDX-License-Identifier: GPL-2.0 OR MIT
//! MAP_QUEUES: connecting one queue.

use super::{Mapped, Target};
use crate::cp::hqd::{f, r};
use crate::cp::mqd::Expect;
use crate::cp::pm4::Packet;
use crate::cp::queue::Role;
use crate::cp::slot::{SlotId, SLOTS};
use crate::decode;
use crate::device::{Gpu, BAR2_SIZE};
use crate::soc::DoorbellTarget;
use crate::trace::Reason;
use crate::vm::access::VmError;

/// Why a queue was not connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotMapped {
    /// All suitable slots are taken.
    NoSlot,
    /// The packet or the MQD is wrong; reported.
    Refused,
    /// The MQD lies on the bus, and bus mastering is off.
    Blocked,
}

impl From<VmError> for NotMapped {
    fn from(e: VmError) -> Self {
        match e {
            // In the kernel's address space nothing else is tried again.
            VmError::Retry => NotMapped::Blocked,
            VmError::Fault => NotMapped::Refused,
        }
    }
}

/// Engine a MAP_QUEUES or UNMAP_QUEUES names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineSel {
    /// Compute.
    Compute,
    /// The scheduler's own queue.
    Hiq,
    /// SDMA engine.
    Sdma(usize),
    /// Graphics or a value that means nothing.
    Other,
}

/// Decodes engine_sel and extended_engine_sel.
pub fn engine_sel(dw1: u32) -> EngineSel {
    let (ext, sel) = ((dw1 >> 2) & 3, (dw1 >> 26) & 7);
    match (ext, sel) {
        (0, 0) => EngineSel::Compute,
        (0, 1) => EngineSel::Hiq,
        (0, 2 | 3) => EngineSel::Sdma(sel as usize - 2),
        (1, n) => EngineSel::Sdma(n as usize),
        (2, n) => EngineSel::Sdma(8 + n as usize),
        _ => EngineSel::Other,
    }
}

impl Gpu {
    fn refuse(&mut self, rule: &'static str, p: &Packet, why: String) -> NotMapped {
        let text = format!(
            "{why}: {}",
            decode::pm4::decode(self.soc.asic, &p.words).text()
        );
        self.soc.protocol_error(rule, text);
        NotMapped::Refused
    }

    /// Connects the queue of a MAP_QUEUES packet for the process in `vmid`.
    ///
    /// # Errors
    /// No slot is free, the packet is wrong, or the MQD cannot be read now.
    pub fn map_queue(
        &mut self,
        p: &Packet,
        pasid: u16,
        vmid: u8,
        reason: Reason,
    ) -> Result<(), NotMapped> {
        let control = p.dw(1);
        let is_static = matches!((control >> 21) & 7, 2 | 3);
        let reason = if is_static { Reason::Static } else { reason };
        let doorbell = (p.dw(2) & f::DOORBELL_OFFSET) >> 2;
        let (mqd, wptr_addr) = (p.qw(3), p.qw(5));
        if control >> 29 != 1 {
            return Err(self.refuse("map-queues", p, "num_queues is not 1".into()));
        }
        if (control >> 4) & 3 != 1 {
            return Err(self.refuse(
                "map-queues",
                p,
                "a run list cannot name the slot (queue_sel)".into(),
            ));
        }
        if mqd & 3 != 0 || wptr_addr & 7 != 0 {
            return Err(self.refuse("unaligned", p, "MQD or write pointer address".into()));
        }
        let engine = engine_sel(control);
        // It has survived since the last run list, or since the last window.
        let kept = |m: &Mapped| {
            (m.is_static && is_static || m.stayed)
                && (m.doorbell, m.mqd, m.pasid) == (doorbell, mqd, pasid)
                && !m.by_kiq
        };
        if let Some(m) = self.hws.mapped.iter().find(|m| kept(m)) {
            if let Target::Compute(slot) = m.target {
                self.cp.keep(slot);
            }
            return Ok(());
        }
        self.check_doorbell(p, doorbell, engine)?;
        let target = match engine {
            EngineSel::Compute => {
                let slot = self.free_compute_slot().ok_or(NotMapped::NoSlot)?;
                let e = Expect {
                    mqd,
                    doorbell,
                    wptr_addr,
                    user: true,
                };
                self.connect_compute(slot, Role::User, &e, vmid, reason)?;
                Target::Compute(slot)
            }
            EngineSel::Sdma(engine) => {
                if engine >= self.sdma.len() {
                    return Err(self.refuse(
                        "map-queues",
                        p,
                        format!("there is no SDMA engine {engine}"),
                    ));
                }
                let rlc = self.free_rlc(engine).ok_or(NotMapped::NoSlot)?;
                let e = Expect {
                    mqd,
                    doorbell,
                    wptr_addr,
                    user: true,
                };
                self.sdma_connect((engine, rlc), &e, vmid, reason)?;
                Target::Sdma(engine, rlc)
            }
            EngineSel::Hiq | EngineSel::Other => {
                return Err(self.refuse("map-queues", p, "engine_sel in a run list".into()));
            }
        };
        self.hws.mapped.push(Mapped {
            target,
            mqd,
            doorbell,
            pasid,
            vmid,
            is_static,
            by_kiq: false,
            stayed: false,
        });
        Ok(())
    }

    fn check_doorbell(
        &mut self,
        p: &Packet,
        doorbell: u32,
        engine: EngineSel,
    ) -> Result<(), NotMapped> {
        let byte = u64::from(doorbell) * 4;
        if byte + 8 > BAR2_SIZE || byte % 8 != 0 {
            return Err(self.refuse("doorbell-range", p, format!("doorbell byte {byte:#x}")));
        }
        let goes_to = self.soc.doorbell_target(byte);
        let fits = match engine {
            EngineSel::Sdma(n) => goes_to == DoorbellTarget::Sdma(n),
            _ => goes_to == DoorbellTarget::Cp,
        };
        if !fits {
            let why =
                format!("doorbell byte {byte:#x} is routed to {goes_to:?}, not to {engine:?}");
            return Err(self.refuse("doorbell-routing", p, why));
        }
        if self.doorbell_taken(doorbell, None) {
            return Err(self.refuse(
                "doorbell-duplicate",
                p,
                format!("doorbell byte {byte:#x} is already connected"),
            ));
        }
        Ok(())
    }

    /// The next free slot of the pool, spreading queues over the pipes.
    fn free_compute_slot(&self) -> Option<SlotId> {
        let mask = self.hws.resources.map_or(0, |r| r.queue_mask);
        let order = (0..8).flat_map(|queue| (0..SLOTS / 8).map(move |pipe| pipe * 8 + queue));
        order
            .filter(|i| (mask >> i) & 1 != 0)
            .filter_map(SlotId::from_index)
            .find(|&s| !self.cp.hqd(s).active())
    }

    /// Loads an MQD into a slot and starts it.
    ///
    /// # Errors
    /// The MQD cannot be read.
    pub fn connect_compute(
        &mut self,
        slot: SlotId,
        role: Role,
        e: &Expect,
        vmid: u8,
        reason: Reason,
    ) -> Result<(), NotMapped> {
        self.load_mqd(slot, e)?;
        let h = self.cp.hqd_mut(slot);
        let vm = h.reg(r::VMID) & !0xF | u32::from(vmid & 0xF);
        h.set(r::VMID, vm);
        let db = h.reg(r::DOORBELL) & !(f::DOORBELL_OFFSET | f::DOORBELL_HIT);
        h.set(
            r::DOORBELL,
            db | (e.doorbell << 2) & f::DOORBELL_OFFSET | f::DOORBELL_EN,
        );
        h.set_pair(r::WPTR_POLL, e.wptr_addr);
        self.start_queue(slot, role, true, reason);
        if self.cp.hqd(slot).run().is_none() {
            return Err(NotMapped::Refused);
        }
        if e.user {
            self.resume_queue(slot, e.mqd);
        }
        Ok(())
    }
}
