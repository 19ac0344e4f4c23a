// SPDX-License-Identifier: GPL-2.0 OR MIT
//! PM4 packets that every compute queue may carry.

use super::atomics::Atomic;
use super::eop::{exception, source};
use super::pm4::Packet;
use super::queue::{Outcome, Role, Run};
use super::slot::SlotId;
use crate::device::Gpu;
use crate::regs::dispatch::Writer;
use crate::regs::{gc, is_sh_register, is_user_register};
use crate::vm::access::{VmError, VmResult};
use crate::vm::Access;

/// What an access that failed means for the packet: replay it, or go on without the data.
fn dropped(r: VmResult<()>) -> Outcome {
    match r {
        Ok(()) | Err(VmError::Fault) => Outcome::Done,
        Err(VmError::Retry) => Outcome::Wait,
    }
}

/// Evaluates FUNCTION of WAIT_REG_MEM and POLL_REGMEM.
pub fn compare(function: u32, value: u32, reference: u32) -> bool {
    match function & 7 {
        1 => value < reference,
        2 => value <= reference,
        3 => value == reference,
        4 => value != reference,
        5 => value >= reference,
        6 => value > reference,
        _ => true,
    }
}

impl Gpu {
    fn short(&mut self, slot: SlotId, run: &Run, p: &Packet, need: usize) -> Option<Outcome> {
        (p.words.len() < need).then(|| {
            self.bad_packet(
                slot,
                run,
                exception::UNSUPPORTED_PACKET,
                "packet is too short for its opcode",
            )
        })
    }

    /// The first of `count` registers that a queue must not read or write.  User queues reach SH registers (their
    /// own) and the user-config space only.
    fn out_of_reach(run: &Run, register: u32, count: u32) -> Option<u32> {
        let privileged = run.is_trusted();
        (register..register.saturating_add(count))
            .find(|&r| !privileged && !is_sh_register(r) && !is_user_register(r))
    }

    fn write_register(&mut self, slot: SlotId, register: u32, value: u32) {
        match register {
            // SH registers belong to the queue that runs, not to the one GRBM_GFX_CNTL selects.
            gc::COMPUTE_FIRST..=gc::COMPUTE_LAST => {
                self.set_compute_reg(slot, register - gc::COMPUTE_FIRST, value)
            }
            _ => self.reg_write(register, value, Writer::Cp(slot)),
        }
    }

    fn read_register(&mut self, slot: SlotId, register: u32) -> u32 {
        match register {
            gc::COMPUTE_FIRST..=gc::COMPUTE_LAST => self
                .cp
                .hqd(slot)
                .sh
                .get((register - gc::COMPUTE_FIRST) as usize)
                .copied()
                .unwrap_or(0),
            _ => self.reg_read(register),
        }
    }

    pub(super) fn write_data(&mut self, slot: SlotId, run: &mut Run, p: &Packet) -> Outcome {
        if let Some(out) = self.short(slot, run, p, 5) {
            return out;
        }
        let control = p.dw(1);
        let data = p.words.get(4..).unwrap_or(&[]);
        let fixed = (control >> 16) & 1 != 0;
        match (control >> 8) & 0xF {
            0 => {
                let base = p.dw(2) & 0x3_FFFF;
                for (i, &v) in data.iter().enumerate() {
                    let reg = if fixed { base } else { base + i as u32 };
                    if let Some(bad) = Self::out_of_reach(run, reg, 1) {
                        return self.privilege_fault(slot, run, bad);
                    }
                    self.write_register(slot, reg, v);
                }
                Outcome::Done
            }
            1 | 2 | 5 => {
                let addr = u64::from(p.dw(2) & !3) | (u64::from(p.dw(3)) << 32);
                if fixed {
                    let last = data.last().copied().unwrap_or(0);
                    return dropped(self.soc.vm_write_dwords(run.client(), addr, &[last]));
                }
                if self.fence_dropped(run) {
                    return Outcome::Done;
                }
                dropped(self.soc.vm_write_dwords(run.client(), addr, data))
            }
            // GDS and ADC state are not modelled as memory.
            _ => Outcome::Done,
        }
    }

    /// The drop-fences injection applies to end-of-pipe and status writes only; WRITE_DATA is one on the KIQ.
    fn fence_dropped(&mut self, run: &Run) -> bool {
        run.role == Role::Kiq && self.soc.inject.take_fence(run.doorbell)
    }

    pub(super) fn release_mem(&mut self, slot: SlotId, run: &mut Run, p: &Packet) -> Outcome {
        if let Some(out) = self.short(slot, run, p, 8) {
            return out;
        }
        let control = p.dw(2);
        let (int_sel, data_sel) = ((control >> 24) & 7, control >> 29);
        let addr = u64::from(p.dw(3) & !3) | (u64::from(p.dw(4)) << 32);
        let c = run.client();
        // Without write confirmation the interrupt does not wait for the data: here it always comes first.
        let overtakes = int_sel == 1 && data_sel != 0;
        if overtakes && run.progress == 0 {
            self.cp_interrupt(slot, run.space(), source::EOP, p.dw(7));
            run.progress = 1;
            return Outcome::Wait;
        }
        if self.eop_record(slot, run, p.qw(5)) == Err(VmError::Retry) {
            return Outcome::Wait;
        }
        let dropped_fence = data_sel != 0 && self.soc.inject.take_fence(run.doorbell);
        if !dropped_fence {
            let done = match data_sel {
                1 => self.soc.vm_write(c, addr, &p.dw(5).to_le_bytes()),
                2 => self.soc.vm_write(c, addr & !7, &p.qw(5).to_le_bytes()),
                3 | 4 => {
                    let ticks = self.soc.clock.ticks();
                    self.soc.vm_write(c, addr & !7, &ticks.to_le_bytes())
                }
                _ => Ok(()),
            };
            if done == Err(VmError::Retry) {
                return Outcome::Wait;
            }
        }
        self.eop_done(slot);
        // 1 and 2 always interrupt; 4 sends the context id likewise; 5 and 6 compare first, which memory written
        // by this very packet satisfies.
        if !overtakes && matches!(int_sel, 1 | 2 | 4 | 5 | 6) {
            self.cp_interrupt(slot, run.space(), source::EOP, p.dw(7));
        }
        Outcome::Done
    }

    pub(super) fn wait_reg_mem(&mut self, slot: SlotId, run: &mut Run, p: &Packet) -> Outcome {
        if let Some(out) = self.short(slot, run, p, 7) {
            return out;
        }
        let control = p.dw(1);
        let (function, memory, operation) =
            (control & 7, (control >> 4) & 3 == 1, (control >> 6) & 3);
        let (reference, mask) = (p.dw(4), p.dw(5));
        let value = if operation == 1 {
            // Write the request register once, then wait on the acknowledge register.
            let (request, ack) = (p.dw(2) & 0x3_FFFF, p.dw(3) & 0x3_FFFF);
            let bad = [request, ack]
                .into_iter()
                .find_map(|r| Self::out_of_reach(run, r, 1));
            if let Some(bad) = bad {
                return self.privilege_fault(slot, run, bad);
            }
            if run.progress == 0 {
                self.write_register(slot, request, reference);
                run.progress = 1;
            }
            self.read_register(slot, ack)
        } else if memory {
            let addr = u64::from(p.dw(2) & !3) | (u64::from(p.dw(3)) << 32);
            match self.soc.vm_read_u32(run.client(), addr) {
                Ok(v) => v,
                Err(VmError::Retry) => return Outcome::Wait,
                // Polling a page that will never come would flood the interrupt ring.
                Err(VmError::Fault) => return Outcome::Halt("WAIT_REG_MEM faulted"),
            }
        } else {
            let register = p.dw(2) & 0x3_FFFF;
            if let Some(bad) = Self::out_of_reach(run, register, 1) {
                return self.privilege_fault(slot, run, bad);
            }
            self.read_register(slot, register)
        };
        if compare(
            function,
            value & mask,
            reference & if operation == 1 { mask } else { u32::MAX },
        ) {
            Outcome::Done
        } else {
            Outcome::Wait
        }
    }

    pub(super) fn copy_data(&mut self, slot: SlotId, run: &mut Run, p: &Packet) -> Outcome {
        if let Some(out) = self.short(slot, run, p, 6) {
            return out;
        }
        let control = p.dw(1);
        let wide = (control >> 16) & 1 != 0;
        let c = run.client();
        let src_addr = p.qw(2);
        // Both sides are checked before anything is read: reading may have effects.
        let count = 1 + u32::from(wide);
        let sides = [
            (control & 0xF == 0).then(|| p.dw(2) & 0x3_FFFF),
            ((control >> 8) & 0xF == 0).then(|| p.dw(4) & 0x3_FFFF),
        ];
        let bad = sides
            .into_iter()
            .flatten()
            .find_map(|r| Self::out_of_reach(run, r, count));
        if let Some(bad) = bad {
            return self.privilege_fault(slot, run, bad);
        }
        let value = match control & 0xF {
            0 => {
                let reg = p.dw(2) & 0x3_FFFF;
                let lo = u64::from(self.read_register(slot, reg));
                if wide {
                    lo | (u64::from(self.read_register(slot, reg + 1)) << 32)
                } else {
                    lo
                }
            }
            1 | 2 => {
                let got = if wide {
                    self.soc.vm_read_u64(c, src_addr & !7)
                } else {
                    self.soc.vm_read_u32(c, src_addr & !3).map(u64::from)
                };
                match got {
                    Ok(v) => v,
                    Err(VmError::Retry) => return Outcome::Wait,
                    Err(VmError::Fault) => 0,
                }
            }
            5 => src_addr,
            9 => self.soc.clock.ticks(),
            _ => 0,
        };
        match (control >> 8) & 0xF {
            0 => {
                let reg = p.dw(4) & 0x3_FFFF;
                self.write_register(slot, reg, value as u32);
                if wide {
                    self.write_register(slot, reg + 1, (value >> 32) as u32);
                }
                Outcome::Done
            }
            1 | 2 | 5 => {
                let dst = p.qw(4);
                dropped(if wide {
                    self.soc.vm_write(c, dst & !7, &value.to_le_bytes())
                } else {
                    self.soc
                        .vm_write(c, dst & !3, &(value as u32).to_le_bytes())
                })
            }
            _ => Outcome::Done,
        }
    }

    pub(super) fn atomic_mem(&mut self, slot: SlotId, run: &mut Run, p: &Packet) -> Outcome {
        if let Some(out) = self.short(slot, run, p, 9) {
            return out;
        }
        let control = p.dw(1);
        let Some(atomic) = Atomic::decode(control & 0x7F) else {
            return self.bad_packet(
                slot,
                run,
                exception::UNSUPPORTED_PACKET,
                "atomic operation not supported",
            );
        };
        let align = if atomic.wide { 7 } else { 3 };
        let (addr, src, cmp) = (p.qw(2) & !align, p.qw(4), p.qw(6));
        match self.soc.vm_atomic(run.client(), addr, atomic.wide, |old| {
            atomic.apply(old, src, cmp)
        }) {
            Ok(old) => {
                // COMMAND 1 repeats until the comparison holds.
                let again = (control >> 8) & 0xF == 1
                    && old != if atomic.wide { cmp } else { cmp & 0xFFFF_FFFF };
                if again {
                    Outcome::Wait
                } else {
                    Outcome::Done
                }
            }
            Err(VmError::Retry) => Outcome::Wait,
            Err(VmError::Fault) => Outcome::Done,
        }
    }

    pub(super) fn dma_data(&mut self, slot: SlotId, run: &mut Run, p: &Packet) -> Outcome {
        if let Some(out) = self.short(slot, run, p, 7) {
            return out;
        }
        let (control, command) = (p.dw(1), p.dw(6));
        // The wider of the two documented count fields; its upper bits are zero in the narrow form.
        let total = u64::from(command & 0x03FF_FFFF);
        let (src_sel, dst_sel) = ((control >> 29) & 3, (control >> 20) & 3);
        if dst_sel == 1 || src_sel == 1 {
            return Outcome::Done;
        }
        let (src, dst) = (p.qw(2), p.qw(4));
        let (src_fixed, dst_fixed) = ((command >> 28) & 1 != 0, (command >> 29) & 1 != 0);
        if total == 0 {
            return Outcome::Done;
        }
        let c = run.client();
        let pattern = p.dw(2).to_le_bytes();
        let at =
            |base: u64, fixed: bool, from: u64| if fixed { base } else { base.wrapping_add(from) };
        let (mut progress, mut ahead) = (run.progress, run.ahead.take());
        let outcome = self.soc.transfer(&mut progress, total, |gpu, part| {
            let mut buf = vec![0u8; part.len as usize];
            if src_sel == 2 {
                for (b, i) in buf.iter_mut().zip(part.from as usize..) {
                    *b = pattern.get(i % 4).copied().unwrap_or(0);
                }
            } else {
                let from = at(src, src_fixed, part.from);
                if gpu.vm_read(c, from, &mut buf) == Err(VmError::Retry) {
                    return Err(VmError::Retry);
                }
            }
            let to = at(dst, dst_fixed, part.from);
            let written = if dst_fixed {
                gpu.vm_write(c, to, &buf)
            } else {
                gpu.write_part(c, &mut ahead, to, (&buf, part.next))
            };
            if written != Err(VmError::Retry) {
                gpu.log.stats.cp_dma_bytes += part.len;
            }
            written
        });
        run.in_dma |= progress != run.progress;
        (run.progress, run.ahead) = (progress, ahead.filter(|_| outcome == Outcome::Yield));
        outcome
    }

    pub(super) fn cond_exec(&mut self, slot: SlotId, run: &mut Run, p: &Packet) -> Outcome {
        if let Some(out) = self.short(slot, run, p, 5) {
            return out;
        }
        let addr = p.qw(1) & !3;
        match self.soc.vm_read_u32(run.client(), addr) {
            Ok(0) => {
                // Skip the packets that depend on it; advance() stops at the end of the stream.
                Self::advance(run, p.len + u64::from(p.dw(4) & 0x3FFF));
                Outcome::Yield
            }
            Ok(_) | Err(VmError::Fault) => Outcome::Done,
            Err(VmError::Retry) => Outcome::Wait,
        }
    }

    pub(super) fn pred_exec(&mut self, run: &mut Run, p: &Packet) -> Outcome {
        let (select, count) = (p.dw(1) >> 24, u64::from(p.dw(1) & 0x3FFF));
        // There is one XCC, number 0.
        if select & 1 == 0 {
            Self::advance(run, p.len + count);
            return Outcome::Yield;
        }
        Outcome::Done
    }

    pub(super) fn set_registers(
        &mut self,
        slot: SlotId,
        run: &mut Run,
        p: &Packet,
        space: u32,
    ) -> Outcome {
        if let Some(out) = self.short(slot, run, p, 3) {
            return out;
        }
        let first = space + (p.dw(1) & 0xFFFF);
        for (i, &v) in p.words.iter().skip(2).enumerate() {
            let reg = first + i as u32;
            if let Some(bad) = Self::out_of_reach(run, reg, 1) {
                return self.privilege_fault(slot, run, bad);
            }
            self.write_register(slot, reg, v);
        }
        Outcome::Done
    }

    pub(super) fn event_write(&mut self, slot: SlotId, run: &mut Run, p: &Packet) -> Outcome {
        if let Some(out) = self.short(slot, run, p, 2) {
            return out;
        }
        // Flushes and partial flushes are immediate: nothing of the queue is in flight between packets.  A sample
        // event with an address gets zeros.
        if p.words.len() >= 4 && (p.dw(1) >> 8) & 0xF == 2 {
            let addr = p.qw(2) & !7;
            if let Err(VmError::Retry) = self.soc.vm_probe(run.client(), addr, 8, Access::Write) {
                return Outcome::Wait;
            }
            return dropped(self.soc.vm_write(run.client(), addr, &[0; 8]));
        }
        Outcome::Done
    }
}
