// SPDX-License-Identifier: GPL-2.0 OR MIT
//! SDMA queues at work: doorbells, turns, and the pointers in memory.

use super::context::Context;
use super::regs::{q, BLOCKS, DOORBELL_ENABLE, FIRST_RLC};
use crate::cp::queue::Outcome;
use crate::device::{Gpu, Wake};
use crate::feed::{rung_to, Feed, Pace, Pointers, Queue, STRETCH_PACKETS};
use crate::vm::Client;

/// How often RB_WPTR_POLL_CNTL makes the engine look for a write pointer.
const WPTR_PERIOD_NS: u64 = 1_000_000;
/// All contexts of an engine, a bit each.
const ALL: u16 = (1 << BLOCKS) - 1;

impl Gpu {
    /// RB_WPTR written by register.
    pub fn sdma_wptr_register(&mut self, engine: usize, block: usize) {
        let wptr = self.sdma_pair(engine, block, q::RB_WPTR);
        // MINOR_PTR_UPDATE brackets a two-register update.
        if self.sdma_q(engine, block, q::MINOR_PTR_UPDATE) & 1 == 0 {
            if let Some(c) = self.sdma_context(engine, block) {
                c.wptr = wptr / 4;
            }
            self.soc.kick();
        }
    }

    /// A doorbell routed to an engine.
    pub fn sdma_doorbell(&mut self, engine: usize, byte: u64, value: u64, wide: bool) -> bool {
        for block in 0..BLOCKS {
            let enabled = self.sdma_q(engine, block, q::DOORBELL) & DOORBELL_ENABLE != 0;
            let offset = u64::from(self.sdma_q(engine, block, q::DOORBELL_OFFSET) & 0x0FFF_FFFC);
            if !enabled || offset != byte {
                continue;
            }
            let context = self.sdma.get_mut(engine).and_then(|e| e.context_mut(block));
            let Some(c) = context else { continue };
            let new = rung_to(c.wptr, value, wide, 4);
            let (ahead, len) = (new.wrapping_sub(c.rptr), c.len);
            let wrong = (ahead > len || value % 4 != 0).then(|| {
                format!("SDMA{engine}: doorbell value {value:#x} is {ahead:#x} dwords ahead of RPTR, ring {len:#x}")
            });
            self.soc.ring(c, new, block < FIRST_RLC, wrong);
            return true;
        }
        false
    }

    /// How many packets a queue may run now.
    fn sdma_due(&mut self, (engine, block): Seat, now: u64, wake: &mut Wake) -> Option<usize> {
        // A halt stops the microcode, not the copy that it has started.
        let halted = self.sdma_halted(engine);
        let c = self.sdma_context(engine, block)?;
        if halted && c.progress == 0 {
            return None;
        }
        if c.poll_at.is_some_and(|t| now >= t) {
            c.poll_wptr = true;
            c.poll_at = Some(now + WPTR_PERIOD_NS);
        }
        if let Some(t) = c.poll_at {
            wake.at(t);
        }
        if let Some(t) = c.stop_at {
            // Only what it is in the middle of is still run.
            if t > now {
                wake.at(t);
            }
            if c.between_packets() {
                return None;
            }
        }
        if !c.has_work() {
            return None;
        }
        let (not_before, doorbell) = (c.pace.not_before, c.doorbell);
        if self.soc.inject.queue_hung(doorbell) {
            return None;
        }
        if not_before > now {
            wake.at(not_before);
            return None;
        }
        Some(STRETCH_PACKETS)
    }

    fn sdma_one(&mut self, engine: usize, c: &mut Context) -> Outcome {
        if c.poll_wptr {
            let addr = self.sdma_wptr_addr(engine, c);
            if addr != 0 {
                match self.soc.fetch_pointer(c.client(), addr) {
                    // A doorbell may be ahead of what is polled; the pointer does not go back.
                    Ok(v) if c.poll_at.is_some() && c.wptr.wrapping_sub(v / 4) <= c.len => {}
                    Ok(v) => c.wptr = v / 4,
                    Err(outcome) => return outcome,
                }
            }
            c.poll_wptr = false;
        }
        if c.ib.is_none() && c.pending() == 0 {
            return if c.report_due {
                Outcome::Wait
            } else {
                Outcome::Done
            };
        }
        self.sdma_packet(engine, c)
    }

    fn sdma_wptr_addr(&self, engine: usize, c: &Context) -> u64 {
        let block = (0..BLOCKS).find(|&b| {
            self.sdma_q(engine, b, q::DOORBELL_OFFSET) >> 2 == c.doorbell
                && self.sdma_q(engine, b, q::DOORBELL) & DOORBELL_ENABLE != 0
        });
        block.map_or(0, |b| {
            (u64::from(self.sdma_q(engine, b, q::WPTR_POLL_ADDR_HI)) << 32)
                | u64::from(self.sdma_q(engine, b, q::WPTR_POLL_ADDR_LO))
        })
    }

    fn sdma_report(&mut self, engine: usize, block: usize, c: &mut Context) {
        if c.ib.is_some() || c.reported == Some(c.rptr) {
            return;
        }
        let rb = self.sdma_q(engine, block, q::RB_CNTL);
        let addr = (u64::from(self.sdma_q(engine, block, q::RPTR_ADDR_HI)) << 32)
            | u64::from(self.sdma_q(engine, block, q::RPTR_ADDR_LO) & !3);
        let enabled = (rb >> 12) & 1 != 0 && addr != 0;
        let bytes = (c.rptr * 4).to_le_bytes();
        self.soc
            .report_pointer(c, enabled.then_some((addr, bytes.as_slice())));
    }
}

impl Queue for Context {
    fn has_work(&self) -> bool {
        Context::has_work(self)
    }

    fn pace(&mut self) -> &mut Pace {
        &mut self.pace
    }

    fn client(&self) -> Client {
        Context::client(self)
    }

    fn pointers(&mut self) -> Pointers<'_> {
        Pointers {
            rptr: self.rptr,
            wptr: &mut self.wptr,
            reported: &mut self.reported,
            report_due: &mut self.report_due,
        }
    }
}

/// Engine and context.
type Seat = (usize, usize);

/// The SDMA engines: the contexts of each take turns.
#[derive(Debug)]
pub struct Copies;

impl Feed for Copies {
    type Seat = Seat;
    type Queue = Context;

    fn begin_round(gpu: &mut Gpu) -> bool {
        let resumed = gpu.sdma.iter().any(|e| e.round != 0);
        for engine in 0..gpu.sdma.len() {
            gpu.sdma_settle_stops(engine);
        }
        if !resumed {
            for e in &mut gpu.sdma {
                e.round = ALL;
                e.next = (e.next + 1) % BLOCKS;
            }
        }
        resumed
    }

    fn seats(gpu: &Gpu) -> Vec<Seat> {
        let engines = gpu.sdma.iter().enumerate();
        engines
            .flat_map(|(engine, e)| e.blocks_to_serve().map(move |block| (engine, block)))
            .collect()
    }

    fn leave_round(gpu: &mut Gpu, (engine, block): Seat) {
        if let Some(e) = gpu.sdma.get_mut(engine) {
            e.round &= !(1 << block);
        }
    }

    fn goes_on(_: &mut Gpu, _: Seat) -> bool {
        false
    }

    fn end_round(gpu: &mut Gpu) {
        for e in &mut gpu.sdma {
            e.round = 0;
        }
    }

    fn due(gpu: &mut Gpu, seat: Seat, now: u64, wake: &mut Wake) -> Option<usize> {
        gpu.sdma_due(seat, now, wake)
    }

    fn take(gpu: &mut Gpu, (engine, block): Seat) -> Option<Context> {
        gpu.sdma.get_mut(engine)?.contexts.get_mut(block)?.take()
    }

    fn packet(gpu: &mut Gpu, (engine, _): Seat, c: &mut Context) -> Outcome {
        gpu.sdma_one(engine, c)
    }

    fn permits(gpu: &Gpu, (engine, _): Seat, c: &Context) -> bool {
        let halted = gpu.sdma_halted(engine) && c.progress == 0;
        let drained = c.stop_at.is_some() && c.between_packets();
        !halted && !drained
    }

    fn report(gpu: &mut Gpu, (engine, block): Seat, c: &mut Context, _: Outcome, _: usize) {
        gpu.sdma_report(engine, block, c);
    }

    fn halted(gpu: &mut Gpu, (engine, block): Seat, c: &Context, why: &'static str) {
        gpu.sdma_trace(engine, block, c, "HALT", why.to_string());
    }

    fn put_back(gpu: &mut Gpu, (engine, block): Seat, c: Context) {
        let engine = gpu.sdma.get_mut(engine);
        if let Some(place) = engine.and_then(|e| e.contexts.get_mut(block)) {
            *place = Some(c);
        }
    }
}
