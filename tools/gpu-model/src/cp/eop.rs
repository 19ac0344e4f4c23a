// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Interrupts of the command processor.

use super::hqd::r;
use super::queue::{Outcome, Run};
use super::slot::SlotId;
use crate::device::Gpu;
use crate::ih::{client, Iv};
use crate::regs::gc;
use crate::vm::access::VmResult;
use crate::vm::Client;

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

/// Dwords of a record in an EOP buffer.  Its format is the microcode's own: what the model writes means nothing to
/// anybody, but it is written.
const EOP_RECORD: u32 = 8;
/// "EOPR".
const EOP_MAGIC: u32 = 0x5250_4F45;
/// CP_HQD_EOP_RPTR.RPTR and CP_HQD_EOP_WPTR.WPTR.
const EOP_PTR: u32 = 0x1FFF;

impl Gpu {
    /// Writes the record of an end-of-pipe event into the queue's EOP buffer, if it has one.  The event has not
    /// happened before [`Gpu::eop_done`]: what is replayed until then writes the same place.
    ///
    /// # Errors
    /// Nothing was written.
    pub fn eop_record(&mut self, slot: SlotId, run: &Run, data: u64) -> VmResult<()> {
        let h = self.cp.hqd(slot);
        let base = (h.pair(r::EOP_BASE) & 0xFF_FFFF_FFFF) << 8;
        let dwords = 2u32 << (h.reg(r::EOP_CONTROL) & 0x3F).min(12);
        if base == 0 || dwords < EOP_RECORD {
            return Ok(());
        }
        let at = h.reg(r::EOP_WPTR) & EOP_PTR & (dwords - 1) & !(EOP_RECORD - 1);
        let (serial, ticks) = (h.reg(r::EOP_EVENTS), self.soc.clock.ticks());
        let words = [
            EOP_MAGIC,
            run.doorbell,
            serial,
            u32::from(run.vmid),
            ticks as u32,
            (ticks >> 32) as u32,
            data as u32,
            (data >> 32) as u32,
        ];
        // The buffer is the queue's, whosever packet it is.
        let c = Client {
            vmid: run.vmid,
            ..run.client()
        };
        self.soc
            .vm_write_dwords(c, base + u64::from(at) * 4, &words)
    }

    /// An end-of-pipe event is over: the pointers of the EOP buffer move on.
    pub fn eop_done(&mut self, slot: SlotId) {
        let h = self.cp.hqd_mut(slot);
        let dwords = 2u32 << (h.reg(r::EOP_CONTROL) & 0x3F).min(12);
        if h.pair(r::EOP_BASE) & 0xFF_FFFF_FFFF == 0 || dwords < EOP_RECORD {
            return;
        }
        let next = (h.reg(r::EOP_WPTR) & EOP_PTR & (dwords - 1) & !(EOP_RECORD - 1)) + EOP_RECORD;
        let next = next & (dwords - 1);
        for i in [r::EOP_RPTR, r::EOP_WPTR] {
            h.set(i, h.reg(i) & !EOP_PTR | next);
        }
        h.set(r::EOP_EVENTS, h.reg(r::EOP_EVENTS).wrapping_add(1));
        self.soc.log.stats.eop_records += 1;
    }

    /// Raises an interrupt of a queue if its pipe has the source enabled.
    pub fn cp_interrupt(&mut self, slot: SlotId, vmid: u8, source: u8, data: u32) {
        if (self.soc.regs.int_cntl(slot.pipe_index()) >> enable_bit(source)) & 1 == 0 {
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
        self.soc.ih_post(0, iv);
    }

    /// Raises the interrupt for a doorbell (dword index) of no queue that is known.  It belongs to no queue, so to no
    /// slot and no VMID; that the doorbell comes along is a choice.
    pub fn unattached_doorbell(&mut self, doorbell: u32) {
        if self.soc.regs.plain(gc::CP_INT_CNTL_RING0) & VM_DOORBELL_ENABLE == 0 {
            return;
        }
        let iv = Iv {
            client: client::GRBM_CP,
            source: source::VM_DOORBELL,
            data: [doorbell, 0, 0, 0],
            ..Iv::default()
        };
        self.soc.ih_post(0, iv);
    }

    /// A packet the queue may not or cannot run: interrupt, and the queue stops in front of it.
    pub fn bad_packet(&mut self, slot: SlotId, run: &Run, code: u32, why: &'static str) -> Outcome {
        let id = (run.doorbell / 2) & 0x3FF;
        self.cp_interrupt(slot, run.space(), source::BAD_OPCODE, id | (code << 10));
        self.queue_mistake(slot, run, "bad-packet", why.to_string());
        Outcome::Halt(why)
    }

    /// A register outside what a user queue may read and write.
    pub fn privilege_fault(&mut self, slot: SlotId, run: &Run, register: u32) -> Outcome {
        self.cp_interrupt(
            slot,
            run.space(),
            source::PRIV_REG,
            (run.doorbell / 2) & 0x3FF,
        );
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
            run.role,
            run.doorbell,
            run.space()
        );
        if run.role == super::queue::Role::User || run.space() != run.vmid {
            self.soc.user_error(rule, text);
        } else {
            self.soc.protocol_error(rule, text);
        }
    }
}
