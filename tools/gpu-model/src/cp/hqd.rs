// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The register window of a hardware queue, and the register writes that act.

use super::queue::{Role, Run};
use super::slot::SlotId;
use crate::device::Gpu;
use crate::regs::gc;
use crate::sdma::Engine;
use crate::trace::Reason;
use crate::vm::hub::EXECUTORS_NS;

/// GRBM_SOFT_RESET.CP, GFX and CPC: each takes all queues down.
const SOFT_RESET_QUEUES: u32 = 1 | (1 << 16) | (1 << 18);
/// How long a reset of a queue or of a pipe takes; ACTIVE has to be polled.
const RESET_NS: u64 = 100_000;
/// Registers in the window (0x1245..=0x127F).
pub const COUNT: usize = 0x3B;

/// Indices into the window; the register is 0x1245 plus the index, the MQD dword 128 plus the index.
#[expect(missing_docs, reason = "hardware names")]
pub mod r {
    pub const MQD_BASE: usize = 0;
    pub const ACTIVE: usize = 2;
    pub const VMID: usize = 3;
    pub const PERSISTENT_STATE: usize = 4;
    pub const PIPE_PRIORITY: usize = 5;
    pub const QUEUE_PRIORITY: usize = 6;
    pub const QUANTUM: usize = 7;
    pub const PQ_BASE: usize = 8;
    pub const PQ_RPTR: usize = 10;
    pub const RPTR_REPORT: usize = 11;
    pub const WPTR_POLL: usize = 13;
    pub const DOORBELL: usize = 15;
    pub const PQ_CONTROL: usize = 17;
    pub const IB_BASE: usize = 18;
    pub const IB_RPTR: usize = 20;
    pub const IB_CONTROL: usize = 21;
    pub const IQ_TIMER: usize = 22;
    pub const DEQUEUE: usize = 24;
    pub const HQ_STATUS0: usize = 32;
    pub const MQD_CONTROL: usize = 34;
    pub const EOP_BASE: usize = 37;
    pub const EOP_CONTROL: usize = 39;
    pub const EOP_RPTR: usize = 40;
    pub const EOP_WPTR: usize = 41;
    pub const EOP_EVENTS: usize = 42;
    pub const CTX_SAVE_BASE: usize = 43;
    pub const CNTL_STACK_OFFSET: usize = 46;
    pub const CNTL_STACK_SIZE: usize = 47;
    pub const WG_STATE_OFFSET: usize = 48;
    pub const CTX_SAVE_SIZE: usize = 49;
    pub const ERROR: usize = 51;
    pub const AQL_CONTROL: usize = 53;
    pub const PQ_WPTR_LO: usize = 54;
    pub const PQ_WPTR_HI: usize = 55;
}

/// Register fields used by the model.
#[expect(missing_docs, reason = "hardware names")]
pub mod f {
    pub const DOORBELL_EN: u32 = 1 << 30;
    pub const DOORBELL_HIT: u32 = 1 << 31;
    pub const DOORBELL_OFFSET: u32 = 0x0FFF_FFFC;
    pub const PQ_EMPTY: u32 = 1 << 15;
    pub const PRIV_STATE: u32 = 1 << 30;
    pub const KMD_QUEUE: u32 = 1 << 31;
    pub const QSWITCH_MODE: u32 = 1 << 30;
    pub const NO_UPDATE_RPTR: u32 = 1 << 27;
    pub const ERROR_PQ: u32 = 1 << 8;
    pub const ERROR_IB: u32 = 1 << 9;
}

/// One hardware queue slot.
#[derive(Debug)]
pub struct Hqd {
    /// The register window.
    pub(super) regs: [u32; COUNT],
    /// COMPUTE_* registers of the queue, from 0xE00.
    pub(super) sh: [u32; 128],
    /// Execution state while ACTIVE.
    pub(super) run: Option<Box<Run>>,
    /// A one-shot read of the memory write pointer was asked for.
    pub(super) poll_wptr: bool,
    /// When a pending dequeue request may be answered.
    pub(super) dequeue_at: Option<u64>,
    /// When a reset of the queue or its pipe has taken it down, and which.
    pub(super) reset_at: Option<(u64, &'static str)>,
}

impl Default for Hqd {
    fn default() -> Self {
        Self {
            regs: [0; COUNT],
            sh: [0; 128],
            run: None,
            poll_wptr: false,
            dequeue_at: None,
            reset_at: None,
        }
    }
}

impl Hqd {
    /// A register.
    pub fn reg(&self, i: usize) -> u32 {
        self.regs.get(i).copied().unwrap_or(0)
    }

    /// Stores a register.
    pub fn set(&mut self, i: usize, v: u32) {
        if let Some(d) = self.regs.get_mut(i) {
            *d = v;
        }
    }

    /// A 64-bit register pair.
    pub fn pair(&self, i: usize) -> u64 {
        u64::from(self.reg(i)) | (u64::from(self.reg(i + 1)) << 32)
    }

    /// Stores a pair.
    pub fn set_pair(&mut self, i: usize, v: u64) {
        self.set(i, v as u32);
        self.set(i + 1, (v >> 32) as u32);
    }

    /// Shows the indirect buffer that the queue is in: base, size and position in dwords. Only the outer of two
    /// has registers; the inner one goes to the MQD's private part when the queue leaves.
    pub fn show_frame(&mut self, frame: Option<(u64, u32, u32)>) {
        const PROCESSING_IB: u32 = 1 << 31;
        let control = self.reg(r::IB_CONTROL) & 0x7FF0_0000;
        match frame {
            Some((base, size, pos)) => {
                self.set_pair(r::IB_BASE, base);
                self.set(r::IB_RPTR, pos);
                self.set(r::IB_CONTROL, control | size & 0xF_FFFF | PROCESSING_IB);
            }
            None => self.set(r::IB_CONTROL, control),
        }
    }

    /// The queue that is connected.
    pub fn run(&self) -> Option<&Run> {
        self.run.as_deref()
    }

    /// A COMPUTE_* register of the queue, by its offset from 0xE00.
    pub fn sh(&self, i: usize) -> u32 {
        self.sh.get(i).copied().unwrap_or(0)
    }

    /// Doorbell dword index.
    pub fn doorbell(&self) -> u32 {
        (self.reg(r::DOORBELL) & f::DOORBELL_OFFSET) >> 2
    }

    /// Which of several ready queues is first: that of the pipe with the higher priority, then the queue with the
    /// higher one.
    pub fn priority(&self) -> (u32, u32) {
        (
            self.reg(r::PIPE_PRIORITY) & 3,
            self.reg(r::QUEUE_PRIORITY) & 0xF,
        )
    }

    /// ACTIVE is set.
    pub fn active(&self) -> bool {
        self.reg(r::ACTIVE) & 1 != 0
    }
}

impl Gpu {
    fn bank(&mut self, what: &str, i: u32) -> Option<SlotId> {
        let slot = self.soc.selected_slot();
        if slot.is_none() {
            let sel = self.soc.regs.plain(gc::GRBM_GFX_CNTL);
            let text =
                format!("{what} {i:#x} with GRBM_GFX_CNTL {sel:#x}: no compute engine selected");
            self.soc.protocol_error("bank", text);
        }
        slot
    }

    /// Reads a register of the selected queue.
    pub fn hqd_reg_read(&mut self, i: u32) -> u32 {
        let Some(slot) = self.bank("read of HQD register", i) else {
            return 0;
        };
        self.settle_reset(slot);
        self.settle_dequeue(slot);
        self.sync_pointers(slot);
        match i as usize {
            r::IQ_TIMER => self.iq_timer(slot),
            r::PQ_CONTROL => self.pq_control(slot),
            i => self.cp.hqd(slot).reg(i),
        }
    }

    /// CP_HQD_PQ_CONTROL; the hardware keeps PQ_EMPTY of a connected queue up to date.
    fn pq_control(&self, slot: SlotId) -> u32 {
        let h = self.cp.hqd(slot);
        let control = h.reg(r::PQ_CONTROL);
        match &h.run {
            Some(run) if run.ring_empty() => control | f::PQ_EMPTY,
            Some(_) => control & !f::PQ_EMPTY,
            None => control,
        }
    }

    /// Reads a COMPUTE_* register of the selected queue.
    pub fn compute_reg_read(&mut self, i: u32) -> u32 {
        self.soc.selected_slot().map_or(0, |s| {
            self.cp.hqd(s).sh.get(i as usize).copied().unwrap_or(0)
        })
    }

    /// Writes a COMPUTE_* register of the selected queue.
    pub fn compute_reg_write(&mut self, i: u32, v: u32) {
        if let Some(slot) = self.bank("write of COMPUTE register", i) {
            self.set_compute_reg(slot, i, v);
        }
    }

    /// Writes a COMPUTE_* register of a queue.
    pub fn set_compute_reg(&mut self, slot: SlotId, i: u32, v: u32) {
        if let Some(d) = self.cp.hqd_mut(slot).sh.get_mut(i as usize) {
            *d = v;
        }
    }

    /// Writes a register of the selected queue.
    pub fn hqd_reg_write(&mut self, i: u32, v: u32) {
        let Some(slot) = self.bank("write of HQD register", i) else {
            return;
        };
        let i = i as usize;
        let active = self.cp.hqd(slot).active();
        match i {
            r::ACTIVE => self.write_active(slot, v),
            r::DEQUEUE => self.write_dequeue(slot, v),
            _ if active && self.latched_write(slot, i, v) => {}
            r::PQ_WPTR_LO | r::PQ_WPTR_HI => {
                self.cp.hqd_mut(slot).set(i, v);
                let wptr = self.cp.hqd(slot).pair(r::PQ_WPTR_LO);
                if let Some(run) = &mut self.cp.hqd_mut(slot).run {
                    run.wptr = wptr;
                }
                self.soc.kick();
            }
            _ => self.cp.hqd_mut(slot).set(i, v),
        }
    }

    /// Which role the RLC's scheduler list gives a slot that is loaded by registers.
    pub(super) fn role_by_rlc(&self, slot: SlotId) -> Role {
        let list = self.soc.regs.plain(gc::RLC_CP_SCHEDULERS).to_le_bytes();
        let code = slot.scheduler_code();
        match list {
            [kiq, ..] if kiq == code => Role::Kiq,
            [_, hiq, ..] if hiq == code => Role::Hiq,
            _ => Role::User,
        }
    }

    /// CP_MEC_CNTL: halt bits and pipe resets.
    pub fn mec_cntl(&mut self, v: u32) {
        self.soc.regs.set_plain(gc::CP_MEC_CNTL, v);
        for me in [1, 2] {
            if (v >> Self::halt_bit(me)) & 1 != 0 {
                self.hws.microcode_ended(|home| home.me() == me);
            }
        }
        for pipe in 0..8usize {
            if Self::pipe_reset_bit(pipe).is_some_and(|bit| (v >> bit) & 1 != 0) {
                self.hws.microcode_ended(|home| home.pipe_index() == pipe);
                for q in 0..8 {
                    if let Some(slot) = SlotId::from_index(pipe * 8 + q) {
                        if !self
                            .soc
                            .inject
                            .refuses_pipe_reset(self.cp.hqd(slot).doorbell())
                        {
                            self.begin_reset(slot, "pipe reset");
                        }
                    }
                }
            }
        }
        // The scheduler may have been taking queues off.
        self.release_waves();
        self.soc.kick();
    }

    /// Whether the micro-engine of a slot is halted, or held in reset: a reset bit acts until it is taken back.
    pub fn mec_halted(&self, slot: SlotId) -> bool {
        let v = self.soc.regs.plain(gc::CP_MEC_CNTL);
        (v >> Self::halt_bit(slot.me())) & 1 != 0 || self.mec_in_reset(slot)
    }

    /// Whether the pipe of a slot is held in reset.
    pub fn mec_in_reset(&self, slot: SlotId) -> bool {
        let v = self.soc.regs.plain(gc::CP_MEC_CNTL);
        Self::pipe_reset_bit(slot.pipe_index()).is_some_and(|bit| (v >> bit) & 1 != 0)
            || self.soc.regs.plain(gc::GRBM_SOFT_RESET) & SOFT_RESET_QUEUES != 0
    }

    /// MECn_PIPEm_RESET: the first engine's pipes are bits 16 to 19, two of the second's 20 and 21.
    fn pipe_reset_bit(pipe: usize) -> Option<usize> {
        (pipe < 6).then_some(16 + pipe)
    }

    /// MEC_ME1_HALT or MEC_ME2_HALT.
    fn halt_bit(me: u8) -> u32 {
        if me == 1 {
            30
        } else {
            28
        }
    }

    /// SPI_COMPUTE_QUEUE_RESET of the selected queue.
    pub fn queue_reset(&mut self, v: u32) {
        if v & 1 == 0 {
            return;
        }
        if let Some(slot) = self.bank("write of SPI_COMPUTE_QUEUE_RESET", v) {
            if !self
                .soc
                .inject
                .refuses_queue_reset(self.cp.hqd(slot).doorbell())
            {
                self.begin_reset(slot, "queue reset");
            }
        }
    }

    /// GRBM_SOFT_RESET.
    pub fn soft_reset(&mut self, v: u32) {
        self.soc.regs.set_plain(gc::GRBM_SOFT_RESET, v);
        if v & SOFT_RESET_QUEUES != 0 {
            self.hold_all_waves();
            for i in 0..super::slot::SLOTS {
                if let Some(slot) = SlotId::from_index(i) {
                    self.reset_slot(slot, "soft reset");
                }
            }
            self.hws = Default::default();
            // It does not reach SDMA.
            let copying: Vec<u32> = self
                .sdma
                .iter()
                .flat_map(Engine::contexts)
                .map(|(_, context)| context.doorbell)
                .collect();
            self.soc.inject.clear_hangs_except(&copying);
            if self.soc.inject.take_vram_loss() {
                // In no parts: the device is there, and the next access has to find it so.
                self.lose_vram();
                while self.lose_some_vram() {}
            }
        }
        self.soc.kick();
    }

    /// A reset of a queue or its pipe has begun: the queue stops at once, ACTIVE clears when it is through.
    fn begin_reset(&mut self, slot: SlotId, why: &'static str) {
        let at = self.soc.clock.now_ns().saturating_add(RESET_NS);
        let h = self.cp.hqd_mut(slot);
        if h.active() && h.reset_at.is_none() {
            h.reset_at = Some((at, why));
        }
        self.soc.kick();
    }

    /// Completes a reset whose time has come; returns when a pending one is through.
    pub fn settle_reset(&mut self, slot: SlotId) -> Option<u64> {
        let (at, why) = self.cp.hqd(slot).reset_at?;
        let now = self.soc.clock.now_ns();
        if now < at {
            return Some(at);
        }
        if !self.hold_waves(slot) {
            return Some(now.saturating_add(EXECUTORS_NS));
        }
        self.reset_slot(slot, why);
        None
    }

    /// Kills a queue without saving anything to memory.
    fn reset_slot(&mut self, slot: SlotId, why: &'static str) {
        self.cp.hqd_mut(slot).reset_at = None;
        if !self.cp.hqd(slot).active() {
            return;
        }
        let doorbell = self.cp.hqd(slot).doorbell();
        self.sync_pointers(slot);
        self.trace_sched(slot, "RESET", why.to_string());
        self.kill_queue(slot, Reason::Reset);
        self.soc.inject.queue_was_reset(doorbell);
        self.hws_slot_was_reset(slot);
    }
}
