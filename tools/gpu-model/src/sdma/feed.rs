// SPDX-License-Identifier: GPL-2.0 OR MIT
//! SDMA queues at work: doorbells, turns, and the pointers in memory.

use super::context::Context;
use super::regs::{q, BLOCKS, DOORBELL_ENABLE, FIRST_RLC};
use crate::cp::queue::Outcome;
use crate::device::{Gpu, Wake};
use crate::feed::{Stretch, STRETCH_PACKETS};
use crate::vm::access::VmError;

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
            self.kick();
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
            let Some(c) = self.sdma_context(engine, block) else {
                continue;
            };
            let new = if wide {
                value / 4
            } else {
                c.wptr & !0x3FFF_FFFF | (value / 4)
            };
            c.wptr = new;
            c.pace.rung();
            let (ahead, len) = (new.wrapping_sub(c.rptr), c.len);
            if ahead > len || value % 4 != 0 {
                let text = format!("SDMA{engine}: doorbell value {value:#x} is {ahead:#x} dwords ahead of RPTR, ring {len:#x}");
                if block >= FIRST_RLC {
                    self.user_error("wptr-beyond-ring", text);
                } else {
                    self.protocol_error("wptr-beyond-ring", text);
                }
            }
            return true;
        }
        false
    }

    /// Goes on with the round in which every enabled queue of every engine gets a turn, or begins one.  Returns whether
    /// one had work.
    pub fn sdma_run(&mut self, now: u64, wake: &mut Wake) -> bool {
        let mut any = false;
        let resumed = self.sdma.iter().any(|e| e.round != 0);
        if !resumed {
            for e in &mut self.sdma {
                e.round = ALL;
                e.next = (e.next + 1) % BLOCKS;
            }
        }
        for engine in 0..self.sdma.len() {
            self.sdma_settle_stops(engine);
            let halted = self.sdma_halted(engine);
            while let Some(block) = self
                .sdma
                .get_mut(engine)
                .and_then(super::Engine::next_block)
            {
                // A halt stops the microcode, not the copy that it has started.
                let copying = |c: &mut Context| c.progress != 0;
                if halted && !self.sdma_context(engine, block).is_some_and(copying) {
                    continue;
                }
                let ran = self.sdma_run_block(engine, block, now, wake);
                any |= ran;
                if ran && self.pressed() {
                    // It may have been the last one: the next step begins a round then.
                    wake.busy();
                    return true;
                }
            }
        }
        if resumed {
            // When those that had their turn in an earlier step want the next one is not known here.
            wake.busy();
        }
        any
    }

    /// Gives a queue its turn; returns whether it had one.
    fn sdma_run_block(&mut self, engine: usize, block: usize, now: u64, wake: &mut Wake) -> bool {
        let Some(c) = self.sdma_context(engine, block) else {
            return false;
        };
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
                return false;
            }
        }
        if !c.has_work() {
            return false;
        }
        let (not_before, doorbell) = (c.pace.not_before, c.doorbell);
        if self.inject.queue_hung(doorbell) {
            return false;
        }
        if not_before > now {
            wake.at(not_before);
            return false;
        }
        let taken = self
            .sdma
            .get_mut(engine)
            .and_then(|e| e.contexts.get_mut(block))
            .and_then(Option::take);
        let Some(mut c) = taken else { return false };
        let mut stretch = Stretch::begin(self, STRETCH_PACKETS);
        let outcome = loop {
            let outcome = self.sdma_one(engine, &mut c);
            let more = stretch.goes_on(self, outcome, &mut c.pace);
            let halted = self.sdma_halted(engine) && c.progress == 0;
            let drained = c.stop_at.is_some() && c.between_packets();
            if !more || halted || !c.has_work() || drained {
                break outcome;
            }
        };
        self.sdma_report(engine, block, &mut c);
        let has_work = c.has_work();
        if let Some(why) = c.pace.end(outcome, has_work, now, wake) {
            self.sdma_trace(engine, block, &c, "HALT", why.to_string());
        }
        if let Some(slot) = self
            .sdma
            .get_mut(engine)
            .and_then(|e| e.contexts.get_mut(block))
        {
            *slot = Some(c);
        }
        true
    }

    fn sdma_one(&mut self, engine: usize, c: &mut Context) -> Outcome {
        if c.poll_wptr {
            let addr = self.sdma_wptr_addr(engine, c);
            if addr != 0 {
                match self.vm_read_u64(c.client(), addr & !7) {
                    // A doorbell may be ahead of what is polled; the pointer does not go back.
                    Ok(v) if c.poll_at.is_some() && c.wptr.wrapping_sub(v / 4) <= c.len => {}
                    Ok(v) => c.wptr = v / 4,
                    Err(VmError::Retry) => return Outcome::Wait,
                    Err(VmError::Fault) => return Outcome::Halt("pointer memory faulted"),
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
        if (rb >> 12) & 1 == 0 || addr == 0 {
            c.reported = Some(c.rptr);
            return;
        }
        let done = self.vm_write(c.client(), addr, &(c.rptr * 4).to_le_bytes());
        c.report_due = done == Err(VmError::Retry);
        if !c.report_due {
            c.reported = Some(c.rptr);
        }
    }
}
