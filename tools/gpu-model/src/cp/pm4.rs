// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Fetching PM4 packets and choosing who runs them.

use super::eop::exception;
use super::hqd::{f, r};
use super::queue::{Outcome, Role, Run};
use super::slot::SlotId;
use crate::device::Gpu;
use crate::feed::DwordRing;
use crate::vm::access::VmError;
use crate::waves::front::Stand;

/// Packet opcodes (`soc15d.h`).
#[expect(missing_docs, reason = "hardware names")]
pub mod op {
    pub const NOP: u8 = 0x10;
    pub const DISPATCH_DIRECT: u8 = 0x15;
    pub const DISPATCH_INDIRECT: u8 = 0x16;
    pub const ATOMIC_MEM: u8 = 0x1E;
    pub const COND_EXEC: u8 = 0x22;
    pub const PRED_EXEC: u8 = 0x23;
    pub const WRITE_DATA: u8 = 0x37;
    pub const WAIT_REG_MEM: u8 = 0x3C;
    pub const INDIRECT_BUFFER: u8 = 0x3F;
    pub const COPY_DATA: u8 = 0x40;
    pub const EVENT_WRITE: u8 = 0x46;
    pub const RELEASE_MEM: u8 = 0x49;
    pub const DMA_DATA: u8 = 0x50;
    pub const ACQUIRE_MEM: u8 = 0x58;
    pub const SET_CONFIG_REG: u8 = 0x68;
    pub const SET_SH_REG: u8 = 0x76;
    pub const SET_UCONFIG_REG: u8 = 0x79;
    pub const INVALIDATE_TLBS: u8 = 0x98;
    pub const SET_RESOURCES: u8 = 0xA0;
    pub const MAP_PROCESS: u8 = 0xA1;
    pub const MAP_QUEUES: u8 = 0xA2;
    pub const UNMAP_QUEUES: u8 = 0xA3;
    pub const QUERY_STATUS: u8 = 0xA4;
    pub const RUN_LIST: u8 = 0xA5;
}

/// Longest packet: count field 0x3FFE.
const MAX_DWORDS: u64 = 0x4000;
/// Indirect buffers may nest this deep.
const MAX_NESTING: usize = super::mqd::MAX_FRAMES;

/// Length of a packet in dwords, from its header.
pub fn length(header: u32) -> u64 {
    match header >> 30 {
        // Type 2 is a one-dword filler; NOP with the largest count likewise.
        2 => 1,
        3 if (header >> 8) & 0xFF == u32::from(op::NOP) && (header >> 16) & 0x3FFF == 0x3FFF => 1,
        _ => u64::from((header >> 16) & 0x3FFF) + 2,
    }
}

/// A fetched packet.
#[derive(Debug)]
pub struct Packet {
    /// Opcode.
    pub op: u8,
    /// All dwords, the header first; only the header of a NOP.
    pub words: Vec<u32>,
    /// Its length in dwords.
    pub len: u64,
}

impl Packet {
    /// A dword; 0 beyond the end (checked against the packet's minimum length before use).
    pub fn dw(&self, i: usize) -> u32 {
        self.words.get(i).copied().unwrap_or(0)
    }

    /// A 64-bit value in two dwords.
    pub fn qw(&self, i: usize) -> u64 {
        u64::from(self.dw(i)) | (u64::from(self.dw(i + 1)) << 32)
    }
}

impl Gpu {
    /// Dwords left in the stream the queue reads now.
    fn available(run: &Run) -> u64 {
        match run.frames.last() {
            Some(fr) => u64::from(fr.size.saturating_sub(fr.pos)),
            None => run.pending(),
        }
    }

    fn fetch(&mut self, run: &Run, skip: u64, out: &mut [u32]) -> Result<(), VmError> {
        let c = run.fetcher();
        if let Some(fr) = run.frames.last() {
            return self.soc.vm_read_dwords(
                c,
                fr.base.wrapping_add((u64::from(fr.pos) + skip) * 4),
                out,
            );
        }
        let ring = DwordRing {
            base: run.base,
            len: run.len,
        };
        self.soc
            .fetch_ring(c, ring, run.rptr.wrapping_add(skip), out)
    }

    /// Moves the stream on by some dwords.
    pub fn advance(run: &mut Run, n: u64) {
        run.traced = false;
        run.progress = 0;
        run.ahead = None;
        run.in_dma = false;
        match run.frames.last_mut() {
            Some(fr) => fr.pos = u64::from(fr.pos).saturating_add(n).min(u64::from(fr.size)) as u32,
            None => run.rptr = run.rptr.wrapping_add(n.min(run.pending())),
        }
        // Finished buffers return to their callers.
        while run.frames.last().is_some_and(|fr| fr.pos >= fr.size) {
            run.frames.pop();
        }
    }

    fn fetch_stall(&mut self, slot: SlotId, run: &Run, e: VmError) -> Outcome {
        match e {
            VmError::Retry => Outcome::Wait,
            VmError::Fault => {
                let bit = if run.frames.is_empty() {
                    f::ERROR_PQ
                } else {
                    f::ERROR_IB
                };
                let h = self.cp.hqd_mut(slot);
                h.set(r::ERROR, h.reg(r::ERROR) | bit);
                Outcome::Halt("packet fetch faulted")
            }
        }
    }

    /// Runs one packet of a PM4 stream.
    pub fn pm4_step(&mut self, slot: SlotId, run: &mut Run) -> Outcome {
        let available = Self::available(run);
        if available == 0 {
            Self::advance(run, 0);
            return Outcome::Done;
        }
        let mut header = [0];
        if let Err(e) = self.fetch(run, 0, &mut header) {
            return self.fetch_stall(slot, run, e);
        }
        let [header] = header;
        let len = length(header);
        let kind = header >> 30;
        let opcode = ((header >> 8) & 0xFF) as u8;
        if len > available {
            return self.short_packet(slot, run, header, len, available);
        }
        if len > MAX_DWORDS {
            return self.bad_packet(slot, run, exception::UNSUPPORTED_PACKET, "packet too long");
        }
        let nop = kind == 2 || kind == 3 && opcode == op::NOP;
        let mut words = vec![0; if nop { 1 } else { len as usize }];
        if let Err(e) = self.fetch(run, 0, &mut words) {
            return self.fetch_stall(slot, run, e);
        }
        if !run.traced {
            let origin = self.origin_of(run);
            self.soc.log.packet(
                self.soc.clock.now_ns(),
                run.ring(),
                origin,
                &words,
                len as usize,
            );
            run.traced = true;
            if kind == 3 && run.role != Role::User {
                self.check_reserved(run, &words);
            }
        }
        if nop {
            Self::advance(run, len);
            return Outcome::Done;
        }
        if kind != 3 {
            return self.bad_packet(
                slot,
                run,
                exception::UNSUPPORTED_PACKET,
                "packet is not of type 3",
            );
        }
        let packet = Packet {
            op: opcode,
            words,
            len,
        };
        let outcome = self.run_packet(slot, run, &packet);
        if outcome == Outcome::Done {
            Self::advance(run, len);
        }
        outcome
    }

    fn short_packet(
        &mut self,
        slot: SlotId,
        run: &Run,
        header: u32,
        len: u64,
        available: u64,
    ) -> Outcome {
        if !run.frames.is_empty() {
            return self.bad_packet(
                slot,
                run,
                exception::UNSUPPORTED_PACKET,
                "packet runs beyond its indirect buffer",
            );
        }
        if run.role != Role::User {
            let text = format!("header {header:#010x} needs {len} dwords, WPTR allows {available}");
            self.queue_mistake(slot, run, "packet-beyond-wptr", text);
            return Outcome::Halt("packet beyond WPTR");
        }
        // A user may publish a packet in pieces.
        Outcome::Wait
    }

    fn run_packet(&mut self, slot: SlotId, run: &mut Run, p: &Packet) -> Outcome {
        let scheduler = matches!(p.op, op::SET_RESOURCES..=op::RUN_LIST | op::INVALIDATE_TLBS);
        if scheduler {
            if run.role == Role::User || !run.is_trusted() {
                return self.bad_packet(
                    slot,
                    run,
                    exception::UNSUPPORTED_PACKET,
                    "scheduler packet of a user",
                );
            }
            return self.scheduler_packet(slot, run, p);
        }
        // End-of-pipe events and flushes wait for the waves before them, and so does the next dispatch.
        let waits = matches!(
            p.op,
            op::DISPATCH_DIRECT
                | op::DISPATCH_INDIRECT
                | op::RELEASE_MEM
                | op::EVENT_WRITE
                | op::ACQUIRE_MEM
        );
        if waits && !self.settle_flight(run) {
            return Outcome::Wait;
        }
        match p.op {
            op::WRITE_DATA => self.write_data(slot, run, p),
            op::INDIRECT_BUFFER => self.indirect_buffer(slot, run, p),
            op::RELEASE_MEM => self.release_mem(slot, run, p),
            op::WAIT_REG_MEM => self.wait_reg_mem(slot, run, p),
            op::COPY_DATA => self.copy_data(slot, run, p),
            op::ATOMIC_MEM => self.atomic_mem(slot, run, p),
            op::DMA_DATA => self.dma_data(slot, run, p),
            op::COND_EXEC => self.cond_exec(slot, run, p),
            op::PRED_EXEC => self.pred_exec(run, p),
            op::SET_SH_REG => self.set_registers(slot, run, p, 0x2C00),
            op::SET_UCONFIG_REG => self.set_registers(slot, run, p, 0xC000),
            op::SET_CONFIG_REG => self.set_registers(slot, run, p, 0x2000),
            op::EVENT_WRITE => self.event_write(slot, run, p),
            // Caches are not modelled: memory is always coherent at packet boundaries.
            op::ACQUIRE_MEM => Outcome::Done,
            op::DISPATCH_DIRECT => {
                let dims = [p.dw(1), p.dw(2), p.dw(3)];
                self.dispatch_pm4(slot, run, p.words.len() >= 5, (dims, p.dw(4)))
            }
            op::DISPATCH_INDIRECT => self.dispatch_indirect(slot, run, p),
            _ => self.bad_packet(
                slot,
                run,
                exception::UNSUPPORTED_PACKET,
                "opcode not supported",
            ),
        }
    }

    /// Forgets the last DISPATCH_DIRECT of a queue if it is over; returns whether there is none any more.
    pub(crate) fn settle_flight(&mut self, run: &mut Run) -> bool {
        if let Some(flight) = &run.flight {
            if !matches!(flight.stand, Stand::Done(_) | Stand::Told) {
                return false;
            }
            run.flight = None;
        }
        true
    }

    /// DISPATCH_INDIRECT as MECs have it: the dimensions are in memory, at an address in the packet.
    fn dispatch_indirect(&mut self, slot: SlotId, run: &mut Run, p: &Packet) -> Outcome {
        let whole = p.words.len() >= 4;
        let mut dims = [0; 3];
        // Dimensions that are not there read as zeros, and dispatch nothing; the access has raised its fault.
        if whole
            && self
                .soc
                .vm_read_dwords(run.client(), p.qw(1) & !3, &mut dims)
                == Err(VmError::Retry)
        {
            return Outcome::Wait;
        }
        self.dispatch_pm4(slot, run, whole, (dims, p.dw(3)))
    }

    /// Dispatches what the registers describe, with these dimensions and this initiator; `whole`: the packet has them.
    fn dispatch_pm4(
        &mut self,
        slot: SlotId,
        run: &mut Run,
        whole: bool,
        what: ([u32; 3], u32),
    ) -> Outcome {
        if !whole {
            return self.bad_packet(
                slot,
                run,
                exception::UNSUPPORTED_PACKET,
                "short dispatch packet",
            );
        }
        if run.draining {
            return Outcome::Wait;
        }
        self.soc.log.stats.dispatches += 1;
        match self.pm4_kernel(slot, run, what) {
            Ok(Some(kernel)) => run.flight = Some(self.start_kernel(kernel)),
            Ok(None) => {}
            Err(why) => return self.bad_packet(slot, run, exception::CODE, why),
        }
        Outcome::Done
    }

    fn indirect_buffer(&mut self, slot: SlotId, run: &mut Run, p: &Packet) -> Outcome {
        if p.words.len() < 4 {
            return self.bad_packet(
                slot,
                run,
                exception::UNSUPPORTED_PACKET,
                "short INDIRECT_BUFFER",
            );
        }
        let base = u64::from(p.dw(1) & !3) | (u64::from(p.dw(2) & 0xFFFF) << 32);
        let size = p.dw(3) & 0xF_FFFF;
        let chain = (p.dw(3) >> 20) & 1 != 0;
        // A buffer that is not privileged stays in its space.
        let vmid = if run.is_trusted() && run.vmid == 0 {
            (p.dw(3) >> 24) as u8 & 0xF
        } else {
            run.space()
        };
        let frame = super::queue::Frame {
            base,
            size,
            pos: 0,
            vmid,
        };
        if chain && !run.frames.is_empty() {
            if let Some(top) = run.frames.last_mut() {
                *top = frame;
            }
            if size == 0 {
                Self::advance(run, 0);
            }
            // A buffer that chains to itself must not keep the other queues waiting.
            run.traced = false;
            return Outcome::Yield;
        }
        if run.frames.len() >= MAX_NESTING {
            return self.bad_packet(
                slot,
                run,
                exception::UNSUPPORTED_PACKET,
                "indirect buffers nested too deep",
            );
        }
        // The caller continues behind this packet.
        Self::advance(run, p.len);
        if size != 0 {
            run.frames.push(frame);
        }
        Outcome::Yield
    }
}
