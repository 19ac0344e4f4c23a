// SPDX-License-Identifier: GPL-2.0 OR MIT
//! SDMA queue contexts: what they are, connecting, disconnecting. (`feed` lets them run.)

use super::regs::{
    block_base, q, BLOCKS, CONTEXT_STATUS, DOORBELL_ENABLE, F32_HALT, F32_RESET, FIRST_RLC,
    POLL_ENABLE, RB_ENABLE, STATUS_IDLE, STATUS_SELECTED, USER_QUEUES,
};
use crate::cp::mqd::{Expect, MEC};
use crate::cp::queue::Frame;
use crate::device::Gpu;
use crate::feed::{Ahead, DwordRing, Pace};
use crate::hws::map::NotMapped;
use crate::hws::Target;
use crate::trace::{Origin, Reason, Ring, Seat};
use crate::vm::{Client, HubId};

/// Execution state of an enabled queue.
#[derive(Debug, Clone)]
pub struct Context {
    /// VMID.
    pub vmid: u8,
    /// Client id of the engine.
    pub cid: u16,
    /// Doorbell dword index.
    pub doorbell: u32,
    /// Privileged ring.
    pub privileged: bool,
    /// GPU address of the ring.
    pub base: u64,
    /// Ring length in dwords.
    pub len: u64,
    /// Read pointer in dwords, not wrapped.
    pub rptr: u64,
    /// Write pointer in dwords, not wrapped.
    pub wptr: u64,
    /// Last written back.
    pub reported: Option<u64>,
    /// The indirect buffer being run.
    pub ib: Option<Frame>,
    /// The current packet is in the trace already.
    pub traced: bool,
    /// Bytes of the current packet that are done.
    pub progress: u64,
    /// The write pointer must be read from memory first.
    pub poll_wptr: bool,
    /// The write-back has not succeeded yet.
    pub report_due: bool,
    /// Retries of the current POLL_REGMEM.
    pub polls: u32,
    /// The next part of a long transfer.
    pub ahead: Option<Ahead>,
    /// When it runs again.
    pub pace: Pace,
    /// When the write pointer is looked for in memory again (RB_WPTR_POLL_CNTL).
    pub poll_at: Option<u64>,
    /// The driver has cleared RB_ENABLE: stop at this time, or later when the queue is able to.
    pub stop_at: Option<u64>,
}

/// Dwords of an SDMA MQD that are the register block (0..=41).
const MQD_DWORDS: usize = 42;

impl Context {
    /// How accesses of the queue appear to the VM.
    pub fn client(&self) -> Client {
        Client {
            hub: HubId::Mm,
            vmid: self.space(),
            cid: self.cid,
        }
    }

    /// The address space of the packets that run now: that of the queue, or the one that a privileged ring has named
    /// for an indirect buffer.
    pub fn space(&self) -> u8 {
        self.ib.map_or(self.vmid, |ib| ib.vmid)
    }

    /// The packets that run now may do anything.  Those of a buffer in another address space may not.
    pub fn is_trusted(&self) -> bool {
        self.privileged && self.space() == self.vmid
    }

    /// The ring in memory.
    pub fn ring(&self) -> DwordRing {
        DwordRing {
            base: self.base,
            len: self.len,
        }
    }

    /// Dwords ready in the ring.
    pub fn pending(&self) -> u64 {
        let ahead = self.wptr.wrapping_sub(self.rptr);
        if ahead > self.len {
            ahead & (self.len - 1)
        } else {
            ahead
        }
    }

    /// Neither a long packet nor an indirect buffer is half done.  A queue that the driver disables is run up to
    /// here, since the driver saves nothing but the read pointer.
    pub fn between_packets(&self) -> bool {
        self.ib.is_none() && self.progress == 0
    }

    /// There is something to do.
    pub fn has_work(&self) -> bool {
        self.pace.halted.is_none()
            && (self.poll_wptr || self.report_due || self.ib.is_some() || self.pending() > 0)
    }
}

impl Gpu {
    pub(super) fn sdma_q(&self, engine: usize, block: usize, r: u32) -> u32 {
        let base = block_base(&self.soc.asic.sdma_layout, block);
        self.sdma.get(engine).map_or(0, |e| e.reg(base + r))
    }

    pub(super) fn sdma_set_q(&mut self, engine: usize, block: usize, r: u32, v: u32) {
        let base = block_base(&self.soc.asic.sdma_layout, block);
        if let Some(e) = self.sdma.get_mut(engine) {
            e.set(base + r, v);
        }
    }

    pub(super) fn sdma_pair(&self, engine: usize, block: usize, lo: u32) -> u64 {
        u64::from(self.sdma_q(engine, block, lo))
            | (u64::from(self.sdma_q(engine, block, lo + 1)) << 32)
    }

    pub(super) fn sdma_context(&mut self, engine: usize, block: usize) -> Option<&mut Context> {
        self.sdma.get_mut(engine)?.contexts.get_mut(block)?.as_mut()
    }

    pub(super) fn sdma_halted(&self, engine: usize) -> bool {
        self.sdma
            .get(engine)
            .is_none_or(|e| e.reg(self.soc.asic.sdma_layout.f32_cntl) & (F32_HALT | F32_RESET) != 0)
    }

    /// F32_CNTL.RESET: the microcode of one engine begins anew. The packet that a queue was in ends where it is, no queue
    /// of the engine is served until it is enabled again, and the other engines do not notice.
    pub(super) fn sdma_reset(&mut self, engine: usize) {
        for block in 0..BLOCKS {
            let Some((doorbell, stopping)) = self
                .sdma_context(engine, block)
                .map(|c| (c.doorbell, c.stop_at.is_some()))
            else {
                continue;
            };
            if !stopping {
                let text = format!(
                    "SDMA{engine} block {block}: F32_CNTL.RESET while the queue with doorbell {doorbell:#x} is enabled"
                );
                self.soc.protocol_error("sdma-reset", text);
            }
            if self.soc.inject.refuses_pipe_reset(doorbell) {
                continue;
            }
            self.sdma_stop(engine, block, Reason::Reset);
            let rb = self.sdma_q(engine, block, q::RB_CNTL) & !RB_ENABLE;
            self.sdma_set_q(engine, block, q::RB_CNTL, rb);
            self.soc.inject.queue_was_reset(doorbell);
            if block >= FIRST_RLC {
                self.hws_forget(Target::Sdma(engine, block - FIRST_RLC));
            }
        }
    }

    /// What the driver has left out of an engine's CNTL that user queues need.
    pub(super) fn sdma_not_ready(&self, engine: usize) -> Option<String> {
        let cntl = self
            .sdma
            .get(engine)
            .map_or(0, |e| e.reg(self.soc.asic.sdma_layout.cntl));
        let missing: Vec<&str> = USER_QUEUES
            .iter()
            .filter(|(bit, _)| cntl & bit == 0)
            .map(|&(_, name)| name)
            .collect();
        (!missing.is_empty()).then(|| format!("CNTL {cntl:#x} lacks {}", missing.join(", ")))
    }

    /// A free RLC context of an engine.
    pub fn free_rlc(&self, engine: usize) -> Option<usize> {
        let e = self.sdma.get(engine)?;
        (FIRST_RLC..BLOCKS)
            .find(|&b| e.contexts.get(b).is_some_and(Option::is_none))
            .map(|b| b - FIRST_RLC)
    }

    /// Whether an RLC queue has work.
    pub fn sdma_has_work(&self, engine: usize, rlc: usize) -> bool {
        let ctx = self
            .sdma
            .get(engine)
            .and_then(|e| e.contexts.get(rlc + FIRST_RLC));
        ctx.and_then(Option::as_ref).is_some_and(Context::has_work)
    }

    /// Loads an SDMA MQD into an RLC context and starts it.
    ///
    /// # Errors
    /// The MQD cannot be read, or its ring is none.
    pub fn sdma_connect(
        &mut self,
        (engine, rlc): (usize, usize),
        e: &Expect,
        vmid: u8,
        reason: Reason,
    ) -> Result<(), NotMapped> {
        let (mqd, doorbell, wptr) = (e.mqd, e.doorbell, e.wptr_addr);
        let block = rlc + FIRST_RLC;
        let mut m = vec![0u32; 128];
        let stale = self.soc.vm_read_hosted(MEC, mqd, &mut m)?;
        if self.sdma_halted(engine) {
            let text = format!("MQD {mqd:#x} mapped to SDMA{engine}, whose F32_CNTL.HALT is set");
            self.soc.protocol_error("sdma-halted", text);
        }
        if let Some(missing) = self.sdma_not_ready(engine) {
            let text = format!("MQD {mqd:#x} mapped to SDMA{engine}: {missing}");
            self.soc.protocol_error("sdma-cntl", text);
        }
        self.check_flushed(stale, e);
        // The image has the order of the register block up to CONTEXT_STATUS and DOORBELL, then the registers from
        // STATUS (0x28) on.
        for (i, &v) in m.iter().enumerate().take(MQD_DWORDS) {
            let r = mqd_register(self.soc.asic.sdma_layout.stride, i);
            self.sdma_set_q(engine, block, r, v);
        }
        let rb = self.sdma_q(engine, block, q::RB_CNTL);
        if rb & RB_ENABLE != 0 || (rb >> 24) & 0xF != 0 {
            self.soc.protocol_error(
                "sdma-mqd",
                format!("MQD {mqd:#x}: rb_cntl {rb:#x} has RB_ENABLE or RB_VMID set"),
            );
        }
        if (rb >> 23) & 1 != 0 {
            self.soc
                .protocol_error("sdma-mqd", format!("MQD {mqd:#x}: user queue with RB_PRIV"));
        }
        let mqd_doorbell = (self.sdma_q(engine, block, q::DOORBELL_OFFSET) >> 2) & 0x3FF_FFFF;
        if mqd_doorbell != doorbell {
            let text = format!(
                "MQD {mqd:#x}: doorbell_offset {mqd_doorbell:#x}, MAP_QUEUES says {doorbell:#x}"
            );
            self.soc.protocol_error("sdma-mqd", text);
        }
        self.sdma_set_q(
            engine,
            block,
            q::RB_CNTL,
            rb & !(0xF << 24) | (u32::from(vmid & 0xF) << 24) | RB_ENABLE,
        );
        self.sdma_set_q(engine, block, q::DOORBELL, DOORBELL_ENABLE);
        self.sdma_set_q(engine, block, q::DOORBELL_OFFSET, doorbell << 2);
        self.sdma_set_q(engine, block, q::WPTR_POLL_ADDR_HI, (wptr >> 32) as u32);
        self.sdma_set_q(engine, block, q::WPTR_POLL_ADDR_LO, wptr as u32);
        self.sdma_start(engine, block, true, reason);
        if let (Some(&magic), Some(&progress)) = (m.get(PRIVATE_DW), m.get(PRIVATE_DW + 1)) {
            if let Some(c) = self.sdma_context(engine, block) {
                c.progress = if magic == PRIVATE_MAGIC {
                    u64::from(progress)
                } else {
                    0
                };
            }
        }
        match self.sdma_context(engine, block) {
            Some(_) => Ok(()),
            None => Err(NotMapped::Refused),
        }
    }

    /// Starts the queue whose registers are loaded.
    pub fn sdma_start(&mut self, engine: usize, block: usize, poll: bool, reason: Reason) {
        let rb = self.sdma_q(engine, block, q::RB_CNTL);
        let log2 = (rb >> 1) & 0x1F;
        let base = (self.sdma_pair(engine, block, q::RB_BASE) << 8) & 0x00FF_FFFF_FFFF_FFFF;
        if !(6..=28).contains(&log2) || (base == 0 && (rb >> 24) & 0xF != 0) {
            let text = format!("SDMA{engine} block {block}: ring of 2^{log2} dwords at {base:#x}");
            self.soc.protocol_error("sdma-ring", text);
            self.sdma_set_q(engine, block, q::RB_CNTL, rb & !RB_ENABLE);
            return;
        }
        let polls = self.sdma_q(engine, block, q::WPTR_POLL_CNTL) & POLL_ENABLE != 0;
        let ib_size = self.sdma_q(engine, block, q::IB_SIZE) & 0xF_FFFF;
        let ib_pos = self.sdma_q(engine, block, q::IB_OFFSET) & 0xF_FFFF;
        let ib = (ib_size != 0 && ib_pos < ib_size).then(|| Frame {
            base: self.sdma_pair(engine, block, q::IB_BASE),
            size: ib_size,
            pos: ib_pos,
            vmid: ((rb >> 24) & 0xF) as u8,
        });
        let ctx = Context {
            cid: self.soc.asic.sdma.get(engine).map_or(0, |e| e.cid),
            vmid: ((rb >> 24) & 0xF) as u8,
            doorbell: (self.sdma_q(engine, block, q::DOORBELL_OFFSET) >> 2) & 0x3FF_FFFF,
            privileged: (rb >> 23) & 1 != 0 || block < FIRST_RLC,
            base,
            len: 1 << log2,
            rptr: self.sdma_pair(engine, block, q::RB_RPTR) / 4,
            wptr: self.sdma_pair(engine, block, q::RB_WPTR) / 4,
            reported: None,
            ib,
            traced: false,
            progress: 0,
            poll_wptr: poll,
            report_due: false,
            polls: 0,
            ahead: None,
            pace: Pace::default(),
            poll_at: polls.then_some(0),
            stop_at: None,
        };
        let text = format!("ring {base:#x} len {}", ctx.len);
        self.sdma_trace_seat((engine, block), &ctx, true, reason, text);
        if let Some(slot) = self
            .sdma
            .get_mut(engine)
            .and_then(|e| e.contexts.get_mut(block))
        {
            *slot = Some(ctx);
        }
        self.sdma_set_q(engine, block, CONTEXT_STATUS, STATUS_IDLE);
        self.soc.kick();
    }

    /// Identity of a context for the trace.
    pub fn sdma_origin(&self, ctx: &Context) -> Origin {
        Origin {
            vmid: ctx.space(),
            pasid: self.soc.pasid_of(ctx.space(), HubId::Mm),
            doorbell: ctx.doorbell,
        }
    }

    pub(super) fn sdma_trace(
        &mut self,
        engine: usize,
        block: usize,
        ctx: &Context,
        name: &'static str,
        text: String,
    ) {
        let origin = self.sdma_origin(ctx);
        let text = format!(
            "SDMA{engine} block {block} doorbell {:#x}: {text}",
            ctx.doorbell
        );
        self.soc
            .log
            .event(self.soc.clock.now_ns(), Ring::Sched, origin, name, text);
    }

    fn sdma_trace_seat(
        &mut self,
        (engine, block): (usize, usize),
        ctx: &Context,
        connect: bool,
        reason: Reason,
        text: String,
    ) {
        let origin = self.sdma_origin(ctx);
        let seat = (Seat::Sdma { engine, block }, reason);
        self.soc
            .log
            .seat(self.soc.clock.now_ns(), origin, connect, seat, text);
    }

    /// Brings the pointer registers up to date.
    pub fn sdma_sync(&mut self, engine: usize, block: usize) {
        let Some(c) = self.sdma_context(engine, block) else {
            return;
        };
        let busy = c.has_work() || c.stop_at.is_some();
        let (rptr, wptr, ib) = (c.rptr.wrapping_mul(4), c.wptr.wrapping_mul(4), c.ib);
        for (r, v) in [(q::RB_RPTR, rptr), (q::RB_WPTR, wptr)] {
            self.sdma_set_q(engine, block, r, v as u32);
            self.sdma_set_q(engine, block, r + 1, (v >> 32) as u32);
        }
        let fr = ib.unwrap_or(Frame {
            base: 0,
            size: 0,
            pos: 0,
            vmid: 0,
        });
        self.sdma_set_q(engine, block, q::IB_BASE, fr.base as u32);
        self.sdma_set_q(engine, block, q::IB_BASE + 1, (fr.base >> 32) as u32);
        self.sdma_set_q(engine, block, q::IB_SIZE, fr.size);
        self.sdma_set_q(engine, block, q::IB_OFFSET, fr.pos);
        self.sdma_set_q(engine, block, q::IB_RPTR, fr.pos);
        self.sdma_set_q(
            engine,
            block,
            CONTEXT_STATUS,
            if busy { STATUS_SELECTED } else { STATUS_IDLE },
        );
    }

    /// Stops a queue: between packets, at once.
    pub fn sdma_stop(&mut self, engine: usize, block: usize, reason: Reason) {
        self.sdma_sync(engine, block);
        let ctx = self
            .sdma
            .get_mut(engine)
            .and_then(|e| e.contexts.get_mut(block))
            .and_then(Option::take);
        if let Some(ctx) = ctx {
            self.sdma_trace_seat((engine, block), &ctx, false, reason, String::new());
        }
        self.sdma_set_q(engine, block, CONTEXT_STATUS, STATUS_IDLE);
    }

    /// Stops an RLC queue and writes its MQD.
    pub fn sdma_disconnect(&mut self, engine: usize, rlc: usize, mqd: u64, reason: Reason) {
        let block = rlc + FIRST_RLC;
        let progress = self.sdma_context(engine, block).map_or(0, |c| c.progress);
        self.sdma_stop(engine, block, reason);
        let rb = self.sdma_q(engine, block, q::RB_CNTL) & !((0xF << 24) | RB_ENABLE);
        self.sdma_set_q(engine, block, q::RB_CNTL, rb);
        let stride = self.soc.asic.sdma_layout.stride;
        let image: Vec<u32> = (0..MQD_DWORDS)
            .map(|i| self.sdma_q(engine, block, mqd_register(stride, i)))
            .collect();
        // A failing write has been reported by the access.
        let _ = self.soc.vm_write_dwords(MEC, mqd, &image);
        let private = if progress != 0 {
            [PRIVATE_MAGIC, progress as u32]
        } else {
            [0, 0]
        };
        let _ = self
            .soc
            .vm_write_dwords(MEC, mqd + 4 * PRIVATE_DW as u64, &private);
        self.sdma_set_q(engine, block, q::DOORBELL, 0);
    }
}

/// First dword of the model's private part of an SDMA MQD.
const PRIVATE_DW: usize = 48;
const PRIVATE_MAGIC: u32 = 0x4D42_5344;

/// Which block register an SDMA MQD dword holds (`v9_sdma_mqd`).
fn mqd_register(stride: u32, dw: usize) -> u32 {
    // MIDCMD_CNTL follows the nine or eleven MIDCMD_DATA registers.
    let midcmd_cntl = if stride == 0x60 { 0x49 } else { 0x4B };
    match dw as u32 {
        d @ 0..=0x12 => d,
        d @ 0x13..=0x16 => 0x28 + d - 0x13,
        d @ 0x17..=0x18 => 0x2C + d - 0x17,
        d @ 0x19..=0x1D => 0x2F + d - 0x19,
        d @ 0x1E..=0x1F => 0x34 + d - 0x1E,
        d @ 0x20..=0x28 => 0x40 + d - 0x20,
        _ => midcmd_cntl,
    }
}
