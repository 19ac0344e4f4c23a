// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Queues that the driver loads and takes away by registers, without the scheduler.
//!
//! Sequences: `kgd_gfx_v9_hqd_load`, `kgd_gfx_v9_hqd_destroy`, `gfx_v9_0_kiq_init_register` and
//! `allocate_vmid` (nocpsch) of Linux.  What they rely on is checked when a queue is set active.

use super::hqd::{f, r};
use super::queue::Role;
use super::slot::SlotId;
use crate::device::Gpu;
use crate::hws::Target;
use crate::ih::reg as ihreg;
use crate::regs::{athub, gc, sh_mem};
use crate::soc::{DoorbellTarget, Soc};
use crate::trace::{Reason, Seat};
use crate::vm::HubId;

/// Registers that the engine reads once, when the queue becomes active.
const LATCHED: [(usize, usize, &str); 9] = [
    (r::MQD_BASE, 2, "CP_MQD_BASE_ADDR"),
    (r::VMID, 1, "CP_HQD_VMID"),
    (r::PERSISTENT_STATE, 1, "CP_HQD_PERSISTENT_STATE"),
    (r::PQ_BASE, 2, "CP_HQD_PQ_BASE"),
    (r::PQ_RPTR, 1, "CP_HQD_PQ_RPTR"),
    (r::PQ_CONTROL, 1, "CP_HQD_PQ_CONTROL"),
    (r::IB_BASE, 4, "CP_HQD_IB_BASE_ADDR..CP_HQD_IB_CONTROL"),
    (r::MQD_CONTROL, 1, "CP_MQD_CONTROL"),
    (r::AQL_CONTROL, 1, "CP_HQD_AQL_CONTROL"),
];

/// CP_HQD_EOP_RPTR.INIT_FETCHER.
const INIT_FETCHER: u32 = 1 << 31;
/// How long a queue takes to answer a dequeue request; ACTIVE has to be polled.
const DEQUEUE_NS: u64 = 100_000;
/// CP_HQD_PERSISTENT_STATE.PRELOAD_REQ.
const PRELOAD_REQ: u32 = 1 << 0;

impl Soc {
    /// What a driver that hands out VMIDs itself has left undone for one.
    pub fn check_vmid(&self, vmid: u8) -> Vec<String> {
        let v = u32::from(vmid & 0xF);
        let mut wrong = Vec::new();
        let mut rule = |bad: bool, text: String| {
            if bad {
                wrong.push(text);
            }
        };
        let (atc, os) = (self.asic.athub, self.asic.osssys);
        let maps = [
            ("ATC_VMID", atc + athub::VMID_PASID + v),
            ("ATC_VMID (MMHUB)", atc + athub::VMID_PASID_MM + v),
        ]
        .map(|(n, reg)| (n, self.regs.plain(reg)));
        let pasid = maps[0].1 as u16;
        for (name, value) in maps {
            rule(
                value & athub::VALID == 0 || value as u16 != pasid || pasid == 0,
                format!("{name} {vmid} PASID mapping is {value:#010x}"),
            );
        }
        let pending = self.regs.plain(atc + athub::UPDATE_STATUS) & (0x1_0001 << v);
        rule(
            pending != 0,
            format!("ATC_VMID_PASID_MAPPING_UPDATE_STATUS {pending:#x} was not acknowledged"),
        );
        for (name, lut) in [
            ("IH_VMID_LUT", ihreg::VMID_LUT),
            ("IH_VMID_LUT_MM", ihreg::VMID_LUT_MM),
        ] {
            let value = self.regs.plain(os + lut + v) as u16;
            rule(
                value != pasid,
                format!("{name} {vmid} is {value:#x}, the PASID {pasid:#x}"),
            );
        }
        let roots = [HubId::Gfx, HubId::Mm].map(|id| (id, self.hub(id).context(vmid)));
        for (id, ctx) in roots {
            rule(
                !ctx.enabled || ctx.base & 1 == 0,
                format!(
                    "{id:?} hub: context {} with root {:#x}",
                    if ctx.enabled { "on" } else { "off" },
                    ctx.base
                ),
            );
        }
        rule(
            roots[0].1.base != roots[1].1.base,
            "the hubs have different roots".into(),
        );
        let config = self.regs.per_vmid(vmid, sh_mem::CONFIG);
        rule(
            config & 1 != 0 || (config >> 3) & 3 != 3,
            format!("SH_MEM_CONFIG {config:#x} is not 64-bit unaligned mode"),
        );
        let bases = self.regs.per_vmid(vmid, sh_mem::BASES);
        rule(bases == 0, "SH_MEM_BASES is 0".into());
        wrong
    }
}

impl Gpu {
    /// A live queue's register that the engine has latched is written with another value: reported and dropped.
    pub(super) fn latched_write(&mut self, slot: SlotId, i: usize, v: u32) -> bool {
        let hit = LATCHED
            .iter()
            .find(|(first, n, _)| (*first..first + n).contains(&i));
        let Some((_, _, name)) = hit else {
            return false;
        };
        self.sync_pointers(slot);
        let old = self.cp.hqd(slot).reg(i);
        let register = format!("{slot}: {name} (+{i:#x})");
        self.soc.report_latched("hqd-write", &register, old, v);
        true
    }

    /// CP_HQD_ACTIVE is written.
    pub(super) fn write_active(&mut self, slot: SlotId, v: u32) {
        let was = self.cp.hqd(slot).active();
        let h = self.cp.hqd_mut(slot);
        h.set(r::ACTIVE, v & 3);
        match (was, v & 1 != 0) {
            (false, true) => self.activate_by_register(slot),
            (true, false) => {
                let text =
                    format!("{slot}: HQD_ACTIVE cleared by a write instead of a dequeue request");
                self.soc.protocol_error("hqd-active", text);
                self.sync_pointers(slot);
                self.kill_queue(slot, Reason::Register);
                self.hws_slot_was_reset(slot);
            }
            // A load begins: what was asked of the queue before is void.
            (false, false) => h.poll_wptr = false,
            (true, true) => {}
        }
    }

    fn activate_by_register(&mut self, slot: SlotId) {
        let role = self.role_by_rlc(slot);
        let wrong = self.check_load(slot, role);
        let h = self.cp.hqd(slot);
        let registers = format!(
            "VMID {} PQ_BASE {:#x} PQ_CONTROL {:#010x} DOORBELL {:#010x} RPTR {:#x} WPTR {:#x}",
            h.reg(r::VMID) & 0xF,
            h.pair(r::PQ_BASE) << 8,
            h.reg(r::PQ_CONTROL),
            h.reg(r::DOORBELL),
            h.reg(r::PQ_RPTR),
            h.pair(r::PQ_WPTR_LO),
        );
        self.soc.report_load(&slot.to_string(), wrong, &registers);
        self.cwsr_check(slot, role);
        let h = self.cp.hqd_mut(slot);
        let poll = std::mem::take(&mut h.poll_wptr);
        h.set(r::EOP_RPTR, h.reg(r::EOP_RPTR) & !INIT_FETCHER);
        let mqd = h.pair(r::MQD_BASE) & !3;
        let preload = h.reg(r::PERSISTENT_STATE) & PRELOAD_REQ != 0;
        self.start_queue(slot, role, poll, Reason::Register);
        if !self.cp.hqd(slot).active() {
            return;
        }
        match role {
            Role::Hiq => self.hws.loaded_hiq(slot, mqd),
            Role::Kiq => {}
            Role::User => {
                let h = self.cp.hqd(slot);
                let (doorbell, vmid) = (h.doorbell(), (h.reg(r::VMID) & 0xF) as u8);
                self.soc.learn_loaded(doorbell, vmid, HubId::Gfx);
                if self.has_mqd(mqd) {
                    if preload {
                        self.load_sh(slot, mqd);
                    }
                    self.resume_queue(slot, mqd);
                }
            }
        }
    }

    /// What contradicts the contract in the registers of a slot that is set active.
    fn check_load(&self, slot: SlotId, role: Role) -> Vec<(&'static str, String)> {
        let h = self.cp.hqd(slot);
        let mut wrong = Vec::new();
        let mut rule = |bad: bool, name: &'static str, text: &str| {
            if bad {
                wrong.push((name, text.to_string()));
            }
        };
        let doorbell = h.reg(r::DOORBELL);
        let byte = u64::from(doorbell & f::DOORBELL_OFFSET);
        let vmid = (h.reg(r::VMID) & 0xF) as u8;
        let privileged = h.reg(r::PQ_CONTROL) & f::PRIV_STATE != 0;
        let scheduled = self
            .hws
            .resources()
            .is_some_and(|res| (res.queue_mask >> slot.index()) & 1 != 0);
        rule(
            self.soc.rules.load_running && self.mec_halted(slot),
            "hqd-load",
            "the engine is halted or in reset (CP_MEC_CNTL, GRBM_SOFT_RESET)",
        );
        rule(
            h.reg(r::DEQUEUE) & 7 != 0,
            "hqd-load",
            "CP_HQD_DEQUEUE_REQUEST is pending",
        );
        rule(
            doorbell & f::DOORBELL_EN == 0,
            "hqd-load",
            "the doorbell is not enabled",
        );
        rule(
            vmid != 0
                && h.reg(r::EOP_CONTROL) & 0x3F != 0
                && h.reg(r::EOP_RPTR) & INIT_FETCHER == 0,
            "hqd-load",
            "the EOP fetcher was not started (CP_HQD_EOP_RPTR.INIT_FETCHER)",
        );
        rule(
            vmid == 0 && !privileged,
            "hqd-privilege",
            "a queue without PRIV_STATE in VMID 0",
        );
        rule(
            scheduled && role == Role::User,
            "hqd-owner",
            "SET_RESOURCES gave this slot to the scheduler",
        );
        wrong.extend(self.check_loaded_doorbell(byte, DoorbellTarget::Cp, Seat::Compute(slot)));
        wrong.extend(self.soc.check_loaded_space(vmid, "hqd-vmid"));
        wrong
    }

    /// Whether a connected queue other than the one in `except` listens to a doorbell.
    pub fn doorbell_taken(&self, doorbell: u32, except: Option<Seat>) -> bool {
        let compute = self.cp.iter().any(|(s, h)| {
            h.active() && h.doorbell() == doorbell && except != Some(Seat::Compute(s))
        });
        compute
            || self.sdma.iter().enumerate().any(|(engine, e)| {
                e.contexts().any(|(block, c)| {
                    c.doorbell == doorbell && except != Some(Seat::Sdma { engine, block })
                })
            })
    }

    /// CP_PQ_WPTR_POLL_CNTL1: read the memory write pointer of MEC1 queues once.
    pub fn one_shot_poll(&mut self, mask: u32) {
        for i in (0..32).filter(|i| (mask >> i) & 1 != 0) {
            let Some(slot) = SlotId::from_index(i) else {
                continue;
            };
            let h = self.cp.hqd(slot);
            let doorbell = h.reg(r::DOORBELL);
            let why = if doorbell & f::DOORBELL_EN == 0 {
                "before its doorbell is enabled: a doorbell in between is lost"
            } else if h.pair(r::WPTR_POLL) & !7 == 0 && h.reg(r::VMID) & 0xF != 0 {
                "without CP_HQD_PQ_WPTR_POLL_ADDR"
            } else {
                ""
            };
            if !why.is_empty() {
                self.soc
                    .protocol_error("wptr-poll", format!("{slot}: one-shot poll {why}"));
            }
            let h = self.cp.hqd_mut(slot);
            match &mut h.run {
                Some(run) => run.poll_wptr = true,
                None => h.poll_wptr = true,
            }
        }
        self.soc.kick();
    }

    /// CP_HQD_DEQUEUE_REQUEST is written.
    pub(super) fn write_dequeue(&mut self, slot: SlotId, v: u32) {
        let now = self.soc.clock.now_ns();
        let request = v & 7;
        let h = self.cp.hqd_mut(slot);
        h.set(r::DEQUEUE, v);
        h.dequeue_at = None;
        if request == 0 || !h.active() {
            self.release_waves();
            return;
        }
        let (doorbell, vmid) = (h.doorbell(), h.reg(r::VMID) & 0xF);
        let delay = self.soc.inject.preempt_delay_ns(doorbell).max(DEQUEUE_NS);
        self.cp.hqd_mut(slot).dequeue_at = Some(now.saturating_add(delay));
        let list = self.soc.regs.plain(gc::RLC_CP_SCHEDULERS).to_le_bytes();
        let [_, scheduler1, ..] = list;
        let owned = |m: &crate::hws::Mapped| m.target == Target::Compute(slot) && !m.by_kiq;
        if request > 3 {
            let text = format!("{slot}: request {request} of CP_HQD_DEQUEUE_REQUEST means nothing");
            self.soc.protocol_error("hqd-dequeue", text);
        }
        if vmid == 0 && scheduler1 == slot.scheduler_code() {
            let text =
                format!("{slot}: the HIQ is dequeued while RLC_CP_SCHEDULERS.scheduler1 names it");
            self.soc.protocol_error("hqd-dequeue", text);
        }
        if !self.hws_seems_dead() && self.hws.mapped().iter().any(owned) {
            let text = format!(
                "{slot}: doorbell {doorbell:#x} was mapped by a run list, not by registers"
            );
            self.soc.protocol_error("hqd-owner", text);
        }
        self.settle_dequeue(slot);
        self.soc.kick();
    }

    /// Answers a dequeue request when its time has come and the engine is able to.
    pub fn settle_dequeue(&mut self, slot: SlotId) {
        let h = self.cp.hqd(slot);
        let Some(at) = h.dequeue_at else { return };
        let (doorbell, request) = (h.doorbell(), h.reg(r::DEQUEUE) & 7);
        let held = request != 2 && self.drain(slot);
        let h = self.cp.hqd(slot);
        let dead = held
            || self.mec_halted(slot)
            || h.reset_at.is_some()
            || self.soc.inject.refuses_preempt(doorbell)
            || self.soc.inject.hws_hung() && self.hws.hiq().is_some_and(|(s, _)| s == slot);
        if dead || self.soc.clock.now_ns() < at {
            return;
        }
        // ACTIVE stays as long as somebody executes a batch of its waves, or they are being saved.
        if !self.hold_waves(slot) {
            return;
        }
        let mqd = self.cp.hqd(slot).pair(r::MQD_BASE) & !3;
        if request != 2 && self.has_mqd(mqd) && !self.is_saved(slot, mqd) {
            return;
        }
        self.flush_rptr(slot);
        self.sync_pointers(slot);
        if let Some(mut run) = self.stop_queue(slot, Reason::Register) {
            // A queue loaded without an MQD has nowhere to be saved to.
            if self.has_mqd(mqd) {
                self.save_queue(slot, mqd, &mut run, request == 2);
            }
            self.waves.let_go(*run);
        }
        self.hws_slot_was_reset(slot);
    }

    /// CP_PQ_WPTR_POLL_CNTL.EN: the engine looks for write pointers by itself.
    pub fn poll_write_pointers(&mut self, now: u64) -> Option<u64> {
        const EN: u32 = 1 << 31;
        const PERIOD_NS: u64 = 1_000_000;
        if self.soc.regs.plain(gc::CP_PQ_WPTR_POLL_CNTL) & EN == 0 {
            return None;
        }
        if now >= self.cp.poll_at {
            self.cp.poll_at = now + PERIOD_NS;
            for i in 0..super::slot::SLOTS {
                let Some(slot) = SlotId::from_index(i) else {
                    continue;
                };
                let h = self.cp.hqd_mut(slot);
                let pollable = h.pair(r::WPTR_POLL) & !7 != 0;
                if let Some(run) = h.run.as_mut().filter(|_| pollable) {
                    run.poll_wptr = true;
                }
            }
        }
        Some(self.cp.poll_at)
    }

    /// Status of the queue's timer: it runs while a packet waits.
    pub(super) fn iq_timer(&self, slot: SlotId) -> u32 {
        const ACTIVE: u32 = 1 << 31;
        let h = self.cp.hqd(slot);
        let now = self.soc.clock.now_ns();
        let waits = h
            .run
            .as_ref()
            .is_some_and(|run| run.has_work() && run.pace.not_before > now);
        let stored = h.reg(r::IQ_TIMER) & !ACTIVE;
        if waits {
            stored | ACTIVE
        } else {
            stored
        }
    }

    /// SPI_CSQ_WF_ACTIVE_STATUS: which MEC1 slots hold a queue.
    pub fn slotted_queues(&self) -> u32 {
        self.cp
            .iter()
            .take(32)
            .filter(|(_, h)| h.run.is_some())
            .fold(0, |m, (s, _)| m | (1 << s.index()))
    }
}
