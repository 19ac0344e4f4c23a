// SPDX-License-Identifier: GPL-2.0

//! The fake device of the scheduler's suites as the scheduler sees it: its memory, registers, doorbell and time.

use kernel::{
    fmt,
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};

use super::{
    backend::hiq::RING_DWORDS,
    fake::{
        doorbell,
        nth,
        Event,
        Fake,
        Hiq,
        Mode,
        MQD_HEADER,
        WAIT_TIME2, //
    },
    fake_mem::{
        Block,
        Mem, //
    },
    platform::{
        DeviceMem,
        Domain,
        Platform, //
    }, //
};
use crate::{
    gpu::{
        conduct::Standing,
        vmid::VmidContext, //
    },
    hw::{
        asic::AsicDesc,
        doorbell::DoorbellOffset,
        mqd::layout::compute as at,
        num::join,
        regs::{
            gc::CP_IQ_WAIT_TIME2,
            hqd::{
                self,
                Slot, //
            },
            Reg, //
        }, //
    }, //
};

/// Collects text.
struct Lines<'a>(&'a mut KVec<u8>);

impl fmt::Write for Lines<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0
            .extend_from_slice(text.as_bytes(), GFP_KERNEL)
            .map_err(|_| fmt::Error)
    }
}

impl Platform for Fake {
    fn asic(&self) -> &'static AsicDesc {
        self.inner.asic
    }

    fn standing(&self) -> Result<Standing> {
        self.inner.callers.standing()
    }

    fn alloc(&self, size: usize, place: Domain) -> Result<Arc<dyn DeviceMem>> {
        if self.inner.mode() == Mode::Gone {
            return Err(ENODEV);
        }
        let size = size.next_multiple_of(4096);
        // A page stays free between blocks, so that an overrun hits nothing.
        // CAST: Sizes are small.
        let addr = self.inner.next_addr.fetch_add(size as u64 + 4096, Relaxed);
        let block = Block::new(addr, size, place)?;
        let mem: Arc<dyn DeviceMem> = Arc::new(Mem::new(&block, &self.inner), GFP_KERNEL)?;
        self.inner.blocks.lock().push(block, GFP_KERNEL)?;
        Ok(mem)
    }

    fn hiq_doorbell(&self) -> DoorbellOffset {
        doorbell(0x200)
    }

    fn map_hiq(&self, mqd: u64, wptr: u64) -> Result {
        let word = |dw: usize| self.inner.load(mqd + dw as u64 * 4).unwrap_or(0); // CAST: Small.
        let wide = |dw: usize| join(word(dw), word(dw + 1));
        let mut state = self.inner.state.lock();
        if word(0) != MQD_HEADER || wide(at::CP_HQD_PQ_WPTR_POLL_ADDR_LO) != wptr {
            self.inner.breach(&mut state, "descriptor of the HIQ");
        }
        state.hiq = Some(Hiq {
            ring: wide(at::CP_HQD_PQ_BASE_LO) << 8,
            rptr_report: wide(at::CP_HQD_PQ_RPTR_REPORT_ADDR_LO),
            mqd,
            rptr: 0,
        });
        Ok(())
    }

    fn unmap_hiq(&self) -> Result {
        let mut state = self.inner.state.lock();
        state.hiq = None;
        self.inner.note(&mut state, Event::HiqOff);
        Ok(())
    }

    fn read(&self, reg: Reg) -> Result<u32> {
        self.check()?;
        if reg == CP_IQ_WAIT_TIME2 {
            return Ok(WAIT_TIME2);
        }
        let state = self.inner.state.lock();
        if !state.regs.in_use() {
            return Ok(self.inner.read_copy(&state, reg));
        }
        Ok(self.inner.read_plain(&state, reg))
    }

    fn write(&self, reg: Reg, value: u32) -> Result {
        self.check()?;
        let mut state = self.inner.state.lock();
        self.inner.write_plain(&mut state, reg, value);
        Ok(())
    }

    fn write_slot(&self, slot: Slot, writes: &[(Reg, u32)]) -> Result {
        self.check()?;
        let mut state = self.inner.state.lock();
        self.inner.write_banked(&mut state, slot, writes);
        Ok(())
    }

    fn reset_slot(&self, slot: Slot, _timeout: u64) -> Result {
        self.check()?;
        let mut state = self.inner.state.lock();
        if !state.regs.in_use() {
            return self.inner.reset_mapped(&mut state, slot);
        }
        self.inner.reset_banked(&mut state, slot)
    }

    fn bind_vmid(&self, vmid: u32, context: &VmidContext) -> Result {
        self.check()?;
        let mut state = self.inner.state.lock();
        self.inner.bind(&mut state, vmid, context);
        Ok(())
    }

    fn unbind_vmid(&self, vmid: u32) -> Result {
        self.check()?;
        let mut state = self.inner.state.lock();
        self.inner.unbind(&mut state, vmid);
        Ok(())
    }

    fn read_slot(&self, slot: Slot, regs: &[Reg], words: &mut [u32]) -> Result {
        self.check()?;
        let nth = nth(slot);
        let state = self.inner.state.lock();
        if state.regs.in_use() {
            for (word, reg) in words.iter_mut().zip(regs) {
                *word = state.regs.slot(slot, *reg);
            }
            return Ok(());
        }
        let queue = match slot.me() {
            1 => state.mapped.get(nth).copied(),
            _ => None,
        };
        let queue = queue.filter(|queue| {
            let held = state.held;
            !held.is_some_and(|held| held.has_left(queue.doorbell))
        });
        for (word, reg) in words.iter_mut().zip(regs) {
            *word = match (queue, *reg) {
                (_, hqd::CP_HQD_PQ_RPTR) if slot == Slot::HIQ => {
                    let rptr = state.hiq.map_or(0, |hiq| hiq.rptr);
                    // CAST: The remainder is below the ring's size.
                    (rptr % u64::from(RING_DWORDS)) as u32
                }
                (Some(_), hqd::CP_HQD_ACTIVE) => 1,
                (Some(queue), hqd::CP_HQD_PQ_DOORBELL_CONTROL) => doorbell(queue.doorbell).field(),
                (Some(queue), hqd::CP_HQD_PQ_RPTR) => state.pointers_of(queue.doorbell).0,
                (Some(queue), hqd::CP_HQD_PQ_WPTR_LO) => state.pointers_of(queue.doorbell).1,
                (Some(queue), hqd::CP_HQD_IB_CONTROL) => hqd::IbControl::new()
                    .with_flag(
                        hqd::IbControl::PROCESSING_IB,
                        state.buffer_of(queue.doorbell).is_some(),
                    )
                    .raw(),
                (Some(queue), hqd::CP_HQD_IB_RPTR) => state.buffer_of(queue.doorbell).unwrap_or(0),
                (Some(queue), hqd::CP_HQD_PQ_CONTROL) => hqd::PqControl::new()
                    .with_flag(
                        hqd::PqControl::PQ_EMPTY,
                        state.empty.contains(&queue.doorbell),
                    )
                    .raw(),
                _ => 0,
            };
        }
        Ok(())
    }

    fn ring_hiq(&self, wptr: u64) -> Result {
        let mut state = self.inner.state.lock();
        state.doorbells += 1;
        match state.mode {
            Mode::Gone => return Err(ENODEV),
            Mode::Dead | Mode::Lost => {}
            _ => self.inner.consume(&mut state, wptr),
        }
        Ok(())
    }

    fn check(&self) -> Result {
        match self.inner.mode() {
            Mode::Lost => Err(EIO),
            Mode::Gone => Err(ENODEV),
            _ => Ok(()),
        }
    }

    fn err(&self, what: fmt::Arguments<'_>) {
        // Errors that a test provokes are no errors of the run.
        pr_info!("scheduler under test: {what}\n");
    }

    fn warn(&self, what: fmt::Arguments<'_>) {
        use fmt::Write;
        let mut state = self.inner.state.lock();
        // A line that finds no memory fails the test that looks for it.
        let _ = writeln!(Lines(&mut state.warnings), "{what}");
    }

    fn now(&self) -> u64 {
        self.inner.clock.load(Relaxed)
    }

    fn pause(&self, us: u64) {
        let stall = self.inner.stall.xchg(0, Relaxed);
        self.inner.clock.add(us + stall, Relaxed);
        let mut state = self.inner.state.lock();
        if let Some((addr, value)) = state.on_pause.take() {
            self.inner.store(addr, value);
        }
        self.inner.end_held(&mut state, false);
        self.inner.end_leaving(&mut state);
    }
}
