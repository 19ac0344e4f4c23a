// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Interrupts of the command processor.

use super::queue::{Outcome, Run};
use super::slot::SlotId;
use crate::device::Gpu;
use crate::ih::{client, Iv};
use crate::regs::gc;

/// Interrupt sources of client GRBM_CP (`irqsrcs_gfx_9_0.h`).
pub mod source {
    /// End of pipe.
    pub const EOP: u8 = 181;
    /// Bad opcode.
    pub const BAD_OPCODE: u8 = 183;
    /// Privileged register.
    pub const PRIV_REG: u8 = 184;
    /// Query status.
    pub const QUERY_STATUS: u8 = 199;
    /// A doorbell that is attached to no queue.
    pub const VM_DOORBELL: u8 = 200;
}

/// Exception codes in a bad-opcode interrupt (KFD exception numbers).
pub mod exception {
    /// Packet not supported.
    pub const UNSUPPORTED_PACKET: u32 = 20;
    /// Code object not acceptable.
    pub const CODE: u32 = 18;
}

/// CP_INT_CNTL_RING0.CP_VM_DOORBELL_WR_INT_ENABLE; the pipes of the compute engines have no enable for it.
const VM_DOORBELL_ENABLE: u32 = 1 << 11;

/// CPC_INT_CNTL enable of a source.
fn enable_bit(source: u8) -> u32 {
    match source {
        source::EOP => 26,
        source::BAD_OPCODE => 24,
        source::PRIV_REG => 23,
        _ => 12,
    }
}

impl Gpu {
    /// Raises an interrupt of a queue if its pipe has the source enabled.
    pub fn cp_interrupt(&mut self, slot: SlotId, vmid: u8, source: u8, data: u32) {
        if (self.regs.int_cntl(slot.pipe_index()) >> enable_bit(source)) & 1 == 0 {
            return;
        }
        let iv = Iv {
            client: client::GRBM_CP,
            source,
            ring_id: slot.ring_id(),
            vmid,
            mm: false,
            data: [data, 0, 0, 0],
        };
        self.ih_post(0, iv);
    }

    /// Raises the interrupt for a doorbell (dword index) of no queue that is known.  It belongs to no queue, so to no
    /// slot and no VMID; that the doorbell comes along is a choice.
    pub fn unattached_doorbell(&mut self, doorbell: u32) {
        if self.regs.plain(gc::CP_INT_CNTL_RING0) & VM_DOORBELL_ENABLE == 0 {
            return;
        }
        let iv = Iv {
            client: client::GRBM_CP,
            source: source::VM_DOORBELL,
            data: [doorbell, 0, 0, 0],
            ..Iv::default()
        };
        self.ih_post(0, iv);
    }

    /// A packet the queue may not or cannot run: interrupt, and the queue stops in front of it.
    pub fn bad_packet(&mut self, slot: SlotId, run: &Run, code: u32, why: &'static str) -> Outcome {
        let id = (run.doorbell / 2) & 0x3FF;
        self.cp_interrupt(slot, run.vmid, source::BAD_OPCODE, id | (code << 10));
        self.queue_mistake(slot, run, "bad-packet", why.to_string());
        Outcome::Halt(why)
    }

    /// A register outside what a user queue may read and write.
    pub fn privilege_fault(&mut self, slot: SlotId, run: &Run, register: u32) -> Outcome {
        self.cp_interrupt(slot, run.vmid, source::PRIV_REG, (run.doorbell / 2) & 0x3FF);
        self.queue_mistake(
            slot,
            run,
            "privileged-register",
            format!("register dword {register:#x}"),
        );
        Outcome::Halt("privileged register")
    }

    /// Books a mistake to whoever feeds the queue: the driver or a user.
    pub fn queue_mistake(&mut self, slot: SlotId, run: &Run, rule: &'static str, text: String) {
        let text = format!(
            "{slot} {:?} doorbell {:#x} vmid {}: {text}",
            run.role, run.doorbell, run.vmid
        );
        if run.role == super::queue::Role::User {
            self.user_error(rule, text);
        } else {
            self.protocol_error(rule, text);
        }
    }
}
