// SPDX-License-Identifier: GPL-2.0 OR MIT
//! SDMA queues that the driver enables and disables by registers (`kgd_hqd_sdma_load`,
//! `kgd_arcturus_hqd_sdma_load`, `sdma_v4_0_gfx_resume` and their counterparts of Linux).

use super::context::Context;
use super::regs::{q, BLOCKS, CONTEXT_STATUS, DOORBELL_ENABLE, FIRST_RLC, IB_REGISTERS, RB_ENABLE};
use crate::device::Gpu;
use crate::hws::Target;
use crate::soc::DoorbellTarget;
use crate::trace::{Reason, Seat};
use crate::vm::HubId;

/// How long a queue takes to stop once RB_ENABLE is cleared; CONTEXT_STATUS.IDLE has to be polled.
const STOP_NS: u64 = 100_000;

/// Name of a queue context.
fn context_name(engine: usize, block: usize) -> String {
    match block {
        0 => format!("SDMA{engine} GFX"),
        1 => format!("SDMA{engine} PAGE"),
        n => format!("SDMA{engine} RLC{}", n - FIRST_RLC),
    }
}

impl Gpu {
    /// A register of a queue block is written.
    pub(super) fn sdma_write_block(&mut self, engine: usize, block: usize, o: u32, v: u32) {
        let old = self.sdma_q(engine, block, o);
        let live = self.sdma_context(engine, block).is_some();
        let latched = (q::RB_BASE..q::RB_WPTR).contains(&o);
        match o {
            CONTEXT_STATUS => {}
            q::RB_CNTL => self.sdma_write_rb_cntl(engine, block, v),
            _ if latched && live && block >= FIRST_RLC => {
                self.sdma_sync(engine, block);
                let old = self.sdma_q(engine, block, o);
                let register = format!("{}: +{o:#x}", context_name(engine, block));
                self.soc.report_latched("sdma-write", &register, old, v);
            }
            q::RB_WPTR | q::RB_WPTR_HI => {
                self.sdma_set_q(engine, block, o, v);
                self.sdma_wptr_register(engine, block);
                self.sdma_unpark(engine, block);
            }
            q::MINOR_PTR_UPDATE => {
                self.sdma_set_q(engine, block, o, v);
                if old & 1 != 0 {
                    self.sdma_wptr_register(engine, block);
                }
            }
            q::DOORBELL => {
                self.sdma_set_q(engine, block, o, v);
                self.sdma_unpark(engine, block);
            }
            q::DOORBELL_OFFSET => {
                self.sdma_set_q(engine, block, o, v);
                if let Some(c) = self.sdma_context(engine, block) {
                    c.doorbell = (v >> 2) & 0x3FF_FFFF;
                }
            }
            _ => self.sdma_set_q(engine, block, o, v),
        }
    }

    fn sdma_write_rb_cntl(&mut self, engine: usize, block: usize, v: u32) {
        let name = context_name(engine, block);
        let rlc = block.checked_sub(FIRST_RLC);
        let old = self.sdma_q(engine, block, q::RB_CNTL);
        let target = rlc.map(|n| Target::Sdma(engine, n));
        let owner = self.hws.mapped().iter().find(|m| Some(m.target) == target);
        if let (Some(m), false) = (owner.copied(), self.hws_seems_dead()) {
            let text = format!(
                "{name}: RB_CNTL = {v:#010x}, but the scheduler has mapped doorbell {:#x} there",
                m.doorbell
            );
            self.soc.protocol_error("hqd-owner", text);
        }
        let stopping = self
            .sdma_context(engine, block)
            .map(|c| c.stop_at.is_some());
        match (stopping, v & RB_ENABLE != 0) {
            (Some(false), true) => {
                if rlc.is_some() && v != old {
                    let text = format!("{name}: RB_CNTL {old:#010x} -> {v:#010x} while enabled");
                    self.soc.protocol_error("sdma-write", text);
                } else {
                    self.sdma_set_q(engine, block, q::RB_CNTL, v);
                }
            }
            (Some(true), true) => {
                let text = format!("{name}: enabled while CONTEXT_STATUS is not IDLE");
                self.soc.protocol_error("sdma-load", text);
            }
            (Some(false), false) => {
                self.sdma_set_q(engine, block, q::RB_CNTL, v);
                self.sdma_begin_stop(engine, block);
            }
            (Some(true), false) => self.sdma_set_q(engine, block, q::RB_CNTL, v),
            (None, false) => self.sdma_set_q(engine, block, q::RB_CNTL, v),
            (None, true) => {
                self.sdma_set_q(engine, block, q::RB_CNTL, v);
                // What a former queue left in the buffer registers is not this queue's.
                for r in IB_REGISTERS {
                    self.sdma_set_q(engine, block, r, 0);
                }
                self.sdma_enable(engine, block);
            }
        }
    }

    /// Starts a queue whose RB_ENABLE is set.  A user queue without a doorbell stays parked: that is the state in
    /// which `kgd_hqd_sdma_destroy` leaves a context.
    fn sdma_enable(&mut self, engine: usize, block: usize) {
        let parked =
            block >= FIRST_RLC && self.sdma_q(engine, block, q::DOORBELL) & DOORBELL_ENABLE == 0;
        if parked {
            return;
        }
        if block >= FIRST_RLC {
            let wrong = self.sdma_check_load(engine, block);
            let registers = format!(
                "RB_CNTL {:#010x} RB_BASE {:#x} RPTR {:#x} WPTR {:#x} DOORBELL_OFFSET {:#x}",
                self.sdma_q(engine, block, q::RB_CNTL),
                self.sdma_pair(engine, block, q::RB_BASE) << 8,
                self.sdma_pair(engine, block, q::RB_RPTR),
                self.sdma_pair(engine, block, q::RB_WPTR),
                self.sdma_q(engine, block, q::DOORBELL_OFFSET),
            );
            let name = context_name(engine, block);
            self.soc.report_load(&name, wrong, &registers);
        }
        self.sdma_start(engine, block, false, Reason::Register);
        if let Some(c) = self.sdma_context(engine, block) {
            let (doorbell, vmid) = (c.doorbell, c.vmid);
            self.soc.learn_loaded(doorbell, vmid, HubId::Mm);
        }
    }

    /// A parked queue gets a doorbell or a write pointer.
    fn sdma_unpark(&mut self, engine: usize, block: usize) {
        let enabled = self.sdma_q(engine, block, q::RB_CNTL) & RB_ENABLE != 0;
        if enabled && block >= FIRST_RLC && self.sdma_context(engine, block).is_none() {
            self.sdma_enable(engine, block);
        }
    }

    fn sdma_check_load(&self, engine: usize, block: usize) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        let mut rule = |bad: bool, name: &'static str, text: &str| {
            if bad {
                wrong.push((name, text.to_string()));
            }
        };
        let rb = self.sdma_q(engine, block, q::RB_CNTL);
        let vmid = ((rb >> 24) & 0xF) as u8;
        let byte = u64::from(self.sdma_q(engine, block, q::DOORBELL_OFFSET) & 0x0FFF_FFFC);
        let rptr = self.sdma_pair(engine, block, q::RB_RPTR);
        let wptr = self.sdma_pair(engine, block, q::RB_WPTR);
        let bytes = 4u64 << ((rb >> 1) & 0x1F);
        rule(
            self.sdma_halted(engine),
            "sdma-halted",
            "F32_CNTL.HALT is set",
        );
        rule(
            self.sdma_q(engine, block, q::MINOR_PTR_UPDATE) & 1 != 0,
            "sdma-load",
            "MINOR_PTR_UPDATE is still set",
        );
        rule(
            wptr.wrapping_sub(rptr) > bytes || (wptr | rptr) % 4 != 0,
            "sdma-load",
            "the pointers are more than a ring apart or not dword aligned",
        );
        rule(
            vmid == 0 && (rb >> 23) & 1 == 0,
            "sdma-load",
            "a queue without RB_PRIV in VMID 0",
        );
        let seat = Seat::Sdma { engine, block };
        wrong.extend(self.check_loaded_doorbell(byte, DoorbellTarget::Sdma(engine), seat));
        wrong.extend(self.sdma_not_ready(engine).map(|t| ("sdma-cntl", t)));
        wrong.extend(self.soc.check_loaded_space(vmid, "sdma-vmid"));
        wrong
    }

    fn sdma_begin_stop(&mut self, engine: usize, block: usize) {
        let now = self.soc.clock.now_ns();
        let Some(doorbell) = self.sdma_context(engine, block).map(|c| c.doorbell) else {
            return;
        };
        let takes = self.soc.inject.preempt_delay_ns(doorbell).max(STOP_NS);
        let at = now.saturating_add(takes);
        if let Some(c) = self.sdma_context(engine, block) {
            c.stop_at = Some(at);
        }
        self.sdma_settle_stop(engine, block);
        self.soc.kick();
    }

    /// Whether a disabled queue has come to rest between two packets of its ring.
    fn sdma_at_rest(&self, c: &Context) -> bool {
        c.between_packets() || c.pace.halted.is_some() || self.soc.inject.queue_hung(c.doorbell)
    }

    /// Completes a stop by register when the queue is able to.
    pub fn sdma_settle_stop(&mut self, engine: usize, block: usize) {
        let context = self.sdma.get(engine).and_then(|e| e.contexts.get(block));
        let Some(c) = context.and_then(Option::as_ref) else {
            return;
        };
        let due = c.stop_at.is_some_and(|t| self.soc.clock.now_ns() >= t);
        if due && self.sdma_at_rest(c) && !self.soc.inject.refuses_preempt(c.doorbell) {
            self.sdma_stop(engine, block, Reason::Register);
            if block >= FIRST_RLC {
                self.hws_forget(Target::Sdma(engine, block - FIRST_RLC));
            }
        }
    }

    /// Settles all stops of an engine.
    pub(super) fn sdma_settle_stops(&mut self, engine: usize) {
        for block in 0..BLOCKS {
            self.sdma_settle_stop(engine, block);
        }
    }
}
