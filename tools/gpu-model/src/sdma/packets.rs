// SPDX-License-Identifier: GPL-2.0 OR MIT
//! SDMA v4 packets (`vega10_sdma_pkt_open.h`, `sdma_v4_0.c`).

use super::context::Context;
use super::regs::TRAP_ENABLE;
use crate::cp::atomics::Atomic;
use crate::cp::packets::compare;
use crate::cp::queue::{Frame, Outcome};
use crate::device::Gpu;
use crate::feed::CHUNK;
use crate::ih::Iv;
use crate::regs::dispatch::Writer;
use crate::regs::{is_user_register, nbio};
use crate::trace::Ring;
use crate::vm::access::{VmError, VmResult};

/// What a row of a sub-window costs at least: a short one takes two translations as well.
const ROW_BYTES: u64 = 512;
/// Dwords of WRITE in front of its data.
const WRITE_HEAD: u64 = 4;
/// Interrupt sources of SDMA clients (`irqsrcs_sdma0_4_0.h`).
mod source {
    pub const TRAP: u8 = 224;
    pub const POLL_TIMEOUT: u8 = 246;
    pub const SRBM_WRITE: u8 = 247;
}

fn ended(r: VmResult<()>) -> Outcome {
    match r {
        Ok(()) | Err(VmError::Fault) => Outcome::Done,
        Err(VmError::Retry) => Outcome::Wait,
    }
}

/// Length of a packet in dwords; 0 for an unknown one.  `dw3` is only used by packets with inline data.
pub fn length(header: u32, dw3: u32) -> u64 {
    let (op, sub) = (header & 0xFF, (header >> 8) & 0xFF);
    match (op, sub) {
        (0, _) => 1 + u64::from((header >> 16) & 0x3FFF),
        (1, 0) => {
            if (header >> 27) & 1 != 0 {
                9
            } else {
                7
            }
        }
        (1, 4) => 13,
        (2, 0) => 4 + u64::from(dw3 & 0xF_FFFF) + 1,
        (4, _) => 6,
        (5, _) => 4,
        (6, _) | (15, _) | (16, _) => 2,
        (7, _) => 3,
        (8, 0) => 6,
        (8, 1) => 4,
        (9, _) => 5,
        (10, _) => 8,
        (11, 0) => 5,
        (11, 1) => 6,
        (12, 0) => 10,
        (12, 1) => 8,
        (12, 2) => 7,
        (13, 0..=2) => 3,
        (14, _) => 3,
        _ => 0,
    }
}

struct Words(Vec<u32>);

impl Words {
    fn dw(&self, i: usize) -> u32 {
        self.0.get(i).copied().unwrap_or(0)
    }
    fn qw(&self, i: usize) -> u64 {
        u64::from(self.dw(i)) | (u64::from(self.dw(i + 1)) << 32)
    }
}

impl Gpu {
    fn sdma_fetch(&mut self, c: &Context, skip: u64, out: &mut [u32]) -> Result<(), VmError> {
        if let Some(fr) = c.ib {
            return self.soc.vm_read_dwords(
                c.client(),
                fr.base.wrapping_add((u64::from(fr.pos) + skip) * 4),
                out,
            );
        }
        self.soc
            .fetch_ring(c.client(), c.ring(), c.rptr.wrapping_add(skip), out)
    }

    fn sdma_advance(c: &mut Context, n: u64) {
        c.traced = false;
        c.progress = 0;
        c.ahead = None;
        c.polls = 0;
        match &mut c.ib {
            Some(fr) => {
                fr.pos = u64::from(fr.pos).saturating_add(n).min(u64::from(fr.size)) as u32;
                if fr.pos >= fr.size {
                    c.ib = None;
                }
            }
            None => c.rptr = c.rptr.wrapping_add(n.min(c.pending())),
        }
    }

    fn sdma_interrupt(&mut self, engine: usize, c: &Context, source: u8, data: u32) {
        let Some(inst) = self.soc.asic.sdma.get(engine) else {
            return;
        };
        let iv = Iv {
            client: inst.client,
            source,
            ring_id: 0,
            vmid: c.space(),
            mm: true,
            data: [data, 0, 0, 0],
        };
        self.soc.ih_post(0, iv);
    }

    fn sdma_bad(&mut self, engine: usize, c: &Context, why: &'static str) -> Outcome {
        let text = format!(
            "SDMA{engine} doorbell {:#x} vmid {}: {why}",
            c.doorbell,
            c.space()
        );
        if c.is_trusted() {
            self.soc.protocol_error("sdma-packet", text);
        } else {
            self.soc.user_error("sdma-packet", text);
        }
        Outcome::Halt(why)
    }

    /// Runs one packet of a context.
    pub fn sdma_packet(&mut self, engine: usize, c: &mut Context) -> Outcome {
        let available =
            c.ib.map_or_else(|| c.pending(), |fr| u64::from(fr.size - fr.pos));
        let mut head = [0u32; 4];
        let n = available.min(4) as usize;
        let stall = |e| match e {
            VmError::Retry => Outcome::Wait,
            VmError::Fault => Outcome::Halt("packet fetch faulted"),
        };
        if let Err(e) = self.sdma_fetch(c, 0, head.get_mut(..n).unwrap_or(&mut [])) {
            return stall(e);
        }
        let [header, _, _, dw3] = head;
        if header & 0xFFFF == 2 && n < 4 {
            return Outcome::Wait;
        }
        let len = length(header, dw3);
        if len == 0 {
            return self.sdma_bad(engine, c, "unknown SDMA packet");
        }
        if header & 0xFF == 0 {
            // A counted NOP may be cut off by the end of the buffer.
            self.sdma_trace_packet(c, &[header], len);
            Self::sdma_advance(c, len);
            return Outcome::Done;
        }
        if len > available {
            // A ring may be filled in pieces; an indirect buffer is complete.
            return if c.ib.is_some() {
                self.sdma_bad(engine, c, "packet runs beyond its buffer")
            } else {
                Outcome::Wait
            };
        }
        if len > c.len && c.ib.is_none() {
            return self.sdma_bad(engine, c, "packet is longer than its ring");
        }
        // Of the data of a long WRITE only the next part.
        let (first, skip) = if header & 0xFFFF == 2 {
            (WRITE_HEAD, c.progress / 4)
        } else {
            (len, 0)
        };
        let rest = (len - first).saturating_sub(skip).min(CHUNK / 4);
        let mut words = vec![0; (first + rest) as usize];
        let (fixed, data) = words.split_at_mut(first as usize);
        let fetched = self
            .sdma_fetch(c, 0, fixed)
            .and_then(|()| self.sdma_fetch(c, first + skip, data));
        if let Err(e) = fetched {
            return stall(e);
        }
        self.sdma_trace_packet(c, &words, len);
        let outcome = self.sdma_execute(engine, c, &Words(words), len);
        if outcome == Outcome::Done {
            Self::sdma_advance(c, len);
        }
        outcome
    }

    fn sdma_trace_packet(&mut self, c: &mut Context, words: &[u32], len: u64) {
        if !c.traced {
            let origin = self.sdma_origin(c);
            self.soc.log.packet(
                self.soc.clock.now_ns(),
                Ring::Sdma,
                origin,
                words,
                len as usize,
            );
            c.traced = true;
        }
    }

    fn sdma_execute(&mut self, engine: usize, c: &mut Context, p: &Words, len: u64) -> Outcome {
        let header = p.dw(0);
        let cl = c.client();
        match (header & 0xFF, (header >> 8) & 0xFF) {
            (1, 0) => self.sdma_copy(c, p),
            (1, 4) => self.sdma_sub_window(engine, c, p),
            (2, 0) => self.sdma_write(c, p, len),
            (4, _) => self.sdma_indirect(engine, c, p, len),
            (5, _) => {
                if self.soc.inject.take_fence(c.doorbell) {
                    return Outcome::Done;
                }
                ended(self.soc.vm_write(cl, p.qw(1) & !3, &p.dw(3).to_le_bytes()))
            }
            (6, _) => {
                let enabled = self
                    .sdma
                    .get(engine)
                    .is_some_and(|e| e.reg(self.soc.asic.sdma_layout.cntl) & TRAP_ENABLE != 0);
                if enabled {
                    self.sdma_interrupt(engine, c, source::TRAP, p.dw(1) & 0x0FFF_FFFF);
                }
                Outcome::Done
            }
            // Semaphores, PRE_EXE for one device and dummy traps have no visible effect here.
            (7, _) | (15, _) | (16, _) => Outcome::Done,
            (8, 0) => self.sdma_poll(engine, c, p),
            (8, 1) => match self.sdma_read_register(engine, c, p.dw(1)) {
                Ok(v) => ended(self.soc.vm_write(cl, p.qw(2) & !3, &v.to_le_bytes())),
                Err(stop) => stop,
            },
            (9, _) => match self.soc.vm_read_u32(cl, p.qw(1) & !3) {
                Err(VmError::Retry) => Outcome::Wait,
                Ok(v) if v == p.dw(3) => Outcome::Done,
                Ok(_) | Err(VmError::Fault) => {
                    Self::sdma_advance(c, len + u64::from(p.dw(4) & 0x3FFF));
                    Outcome::Yield
                }
            },
            (10, _) => self.sdma_atomic(engine, c, p),
            (11, 0) => self.sdma_fill(c, p),
            (12, 0) => self.sdma_ptepde(c, p),
            (13, 0) => Outcome::Done,
            (13, _) => {
                let ticks = self.soc.clock.ticks();
                ended(self.soc.vm_write(cl, p.qw(1) & !7, &ticks.to_le_bytes()))
            }
            (14, _) => {
                if !c.is_trusted() {
                    self.sdma_interrupt(engine, c, source::SRBM_WRITE, p.dw(1) & 0x3_FFFF);
                    return self.sdma_bad(engine, c, "SRBM_WRITE on a user queue");
                }
                self.reg_write(p.dw(1) & 0x3_FFFF, p.dw(2), Writer::Sdma);
                Outcome::Done
            }
            _ => self.sdma_bad(engine, c, "SDMA packet not supported"),
        }
    }

    fn sdma_write(&mut self, c: &mut Context, p: &Words, len: u64) -> Outcome {
        let data = p.0.get(WRITE_HEAD as usize..).unwrap_or(&[]);
        let at = (p.qw(1) & !3).wrapping_add(c.progress);
        if self.soc.vm_write_dwords(c.client(), at, data) == Err(VmError::Retry) {
            return Outcome::Wait;
        }
        c.progress += 4 * data.len() as u64;
        if c.progress >= (len - WRITE_HEAD) * 4 {
            Outcome::Done
        } else {
            Outcome::Yield
        }
    }

    fn sdma_count(&self, field: u32) -> u64 {
        u64::from(field) & ((1 << self.soc.asic.sdma_layout.count_bits) - 1)
    }

    fn sdma_copy(&mut self, c: &mut Context, p: &Words) -> Outcome {
        let total = self.sdma_count(p.dw(1)) + 1;
        let (src, dst) = (p.qw(3), p.qw(5));
        let second = ((p.dw(0) >> 27) & 1 != 0).then(|| p.qw(7));
        let cl = c.client();
        let (mut progress, mut ahead) = (c.progress, c.ahead.take());
        let outcome = self.soc.transfer(&mut progress, total, |gpu, part| {
            let mut buf = vec![0u8; part.len as usize];
            // Each part replays on its own; a read that faults for good leaves zeros, as the default page would.
            if gpu.vm_read(cl, src.wrapping_add(part.from), &mut buf) == Err(VmError::Retry) {
                return Err(VmError::Retry);
            }
            let to = dst.wrapping_add(part.from);
            let written = gpu.write_part(cl, &mut ahead, to, (&buf, part.next));
            if written == Err(VmError::Retry) {
                return written;
            }
            if let Some(second) = second {
                gpu.vm_write(cl, second.wrapping_add(part.from), &buf)?;
            }
            gpu.log.stats.sdma_bytes += part.len;
            Ok(())
        });
        (c.progress, c.ahead) = (progress, ahead.filter(|_| outcome == Outcome::Yield));
        outcome
    }

    fn sdma_sub_window(&mut self, engine: usize, c: &mut Context, p: &Words) -> Outcome {
        let element = 1u64 << (p.dw(0) >> 29);
        let side = |base: usize| {
            let (xy, zp) = (p.dw(base + 2), p.dw(base + 3));
            let (x, y) = (u64::from(xy & 0x3FFF), u64::from((xy >> 16) & 0x3FFF));
            let (z, pitch) = (u64::from(zp & 0x7FF), u64::from(zp >> 13) + 1);
            let slice = u64::from(p.dw(base + 4) & 0x0FFF_FFFF) + 1;
            (p.qw(base), x, y, z, pitch, slice)
        };
        let (src, sx, sy, sz, sp, ss) = side(1);
        let (dst, dx, dy, dz, dp, ds) = side(6);
        let (rx, ry) = (
            u64::from(p.dw(11) & 0x3FFF) + 1,
            u64::from((p.dw(11) >> 16) & 0x3FFF) + 1,
        );
        let rz = u64::from(p.dw(12) & 0x7FF) + 1;
        if element > 16 {
            return self.sdma_bad(engine, c, "sub-window element size");
        }
        // Progress counts rows.
        let rows = ry * rz;
        let cl = c.client();
        let mut buf = vec![0u8; (rx * element) as usize];
        let mut moved = 0;
        let mut faulted = false;
        while c.progress < rows && moved < CHUNK && !faulted {
            let (y, z) = (c.progress % ry, c.progress / ry);
            let from = src.wrapping_add(((sz + z) * ss + (sy + y) * sp + sx) * element);
            let to = dst.wrapping_add(((dz + z) * ds + (dy + y) * dp + dx) * element);
            let read = self.soc.vm_read(cl, from, &mut buf);
            if read == Err(VmError::Retry) {
                return Outcome::Wait;
            }
            let written = self.soc.vm_write(cl, to, &buf);
            if written == Err(VmError::Retry) {
                return Outcome::Wait;
            }
            // A row that faults for good raises an interrupt; the next one waits for the next turn.
            faulted = read.is_err() || written.is_err();
            self.soc.log.stats.sdma_bytes += buf.len() as u64;
            moved += (buf.len() as u64).max(ROW_BYTES);
            c.progress += 1;
        }
        if c.progress >= rows {
            Outcome::Done
        } else {
            Outcome::Yield
        }
    }

    fn sdma_indirect(&mut self, engine: usize, c: &mut Context, p: &Words, len: u64) -> Outcome {
        if c.ib.is_some() {
            return self.sdma_bad(engine, c, "INDIRECT inside an indirect buffer");
        }
        let (base, size) = (p.qw(1), p.dw(3) & 0xF_FFFF);
        if base & 0x1F != 0 || (c.rptr + len) % 8 != 0 {
            return self.sdma_bad(engine, c, "INDIRECT not aligned");
        }
        Self::sdma_advance(c, len);
        let vmid = if c.privileged && c.vmid == 0 {
            (p.dw(0) >> 16) as u8 & 0xF
        } else {
            c.vmid
        };
        c.ib = (size != 0).then_some(Frame {
            base,
            size,
            pos: 0,
            vmid,
        });
        Outcome::Yield
    }

    /// Reads a register by its byte address.  User queues reach the user-config space only.
    fn sdma_read_register(
        &mut self,
        engine: usize,
        c: &Context,
        byte: u32,
    ) -> Result<u32, Outcome> {
        let register = (byte / 4) & 0x3_FFFF;
        if !c.is_trusted() && !is_user_register(register) {
            return Err(self.sdma_bad(engine, c, "privileged register read by a user queue"));
        }
        Ok(self.reg_read(register))
    }

    fn sdma_poll(&mut self, engine: usize, c: &mut Context, p: &Words) -> Outcome {
        let header = p.dw(0);
        let (value, mask, retries) = (p.dw(3), p.dw(4), (p.dw(5) >> 16) & 0xFFF);
        let condition = (header >> 28) & 7;
        // ROCr puts a poll of register 0 for "always" in front of its copies, to have the HDP flushed.
        if condition == 0 && (header >> 26) & 1 == 0 {
            return Outcome::Done;
        }
        let got = if (header >> 26) & 1 != 0 {
            // HDP flush: done and request register addresses.
            let (done, request) = (p.dw(1) / 4, p.dw(2) / 4);
            let nb = self.soc.asic.nbio2;
            if request == nb + nbio::GPU_HDP_FLUSH_REQ && done == nb + nbio::GPU_HDP_FLUSH_DONE {
                self.soc.mem.hdp_flush();
                value
            } else {
                return self.sdma_bad(engine, c, "HDP flush registers");
            }
        } else if header >> 31 != 0 {
            match self.soc.vm_read_u32(c.client(), p.qw(1) & !3) {
                Ok(v) => v,
                Err(VmError::Retry) => return Outcome::Wait,
                Err(VmError::Fault) => return Outcome::Halt("POLL_REGMEM faulted"),
            }
        } else {
            match self.sdma_read_register(engine, c, p.dw(1)) {
                Ok(v) => v,
                Err(stop) => return stop,
            }
        };
        if compare(condition, got & mask, value) {
            return Outcome::Done;
        }
        // 0xFFF retries for ever.
        if retries != 0xFFF {
            c.polls += 1;
            if c.polls > retries {
                self.sdma_interrupt(engine, c, source::POLL_TIMEOUT, 0);
                return Outcome::Done;
            }
        }
        Outcome::Wait
    }

    fn sdma_atomic(&mut self, engine: usize, c: &mut Context, p: &Words) -> Outcome {
        let Some(atomic) = Atomic::decode(p.dw(0) >> 25) else {
            return self.sdma_bad(engine, c, "atomic operation not supported");
        };
        let align = if atomic.wide { 7 } else { 3 };
        let (addr, src, cmp) = (p.qw(1) & !align, p.qw(3), p.qw(5));
        let looping = (p.dw(0) >> 16) & 1 != 0;
        match self.soc.vm_atomic(c.client(), addr, atomic.wide, |old| {
            atomic.apply(old, src, cmp)
        }) {
            Ok(old) if looping && old != if atomic.wide { cmp } else { cmp & 0xFFFF_FFFF } => {
                Outcome::Wait
            }
            Ok(_) | Err(VmError::Fault) => Outcome::Done,
            Err(VmError::Retry) => Outcome::Wait,
        }
    }

    fn sdma_fill(&mut self, c: &mut Context, p: &Words) -> Outcome {
        let count = self.sdma_count(p.dw(4));
        let data = p.dw(3).to_le_bytes();
        // fillsize 2 writes dwords and ignores the low bits of the byte count.
        let (unit, total) = match p.dw(0) >> 30 {
            2 => (4, ((count >> 2) + 1) * 4),
            1 => (2, ((count >> 1) + 1) * 2),
            _ => (1, count + 1),
        };
        let dst = p.qw(1) & !(unit as u64 - 1);
        let cl = c.client();
        let (mut progress, mut ahead) = (c.progress, c.ahead.take());
        let outcome = self.soc.transfer(&mut progress, total, |gpu, part| {
            // The pattern repeats in every part, for parts are of whole units but for the last.
            // `repeat` copies what it has, doubled each time: VRAM is cleared by fills of many MiB.
            let len = part.len as usize;
            let mut buf = data[..unit].repeat(len.div_ceil(unit));
            buf.truncate(len);
            let written = gpu.write_part(
                cl,
                &mut ahead,
                dst.wrapping_add(part.from),
                (&buf, part.next),
            );
            if written != Err(VmError::Retry) {
                gpu.log.stats.sdma_bytes += part.len;
            }
            written
        });
        (c.progress, c.ahead) = (progress, ahead.filter(|_| outcome == Outcome::Yield));
        outcome
    }

    fn sdma_ptepde(&mut self, c: &mut Context, p: &Words) -> Outcome {
        let total = (u64::from(p.dw(9) & 0x7_FFFF) + 1) * 8;
        let (dst, flags, value, step) = (p.qw(1) & !7, p.qw(3), p.qw(5), p.qw(7));
        let cl = c.client();
        let (mut progress, mut ahead) = (c.progress, c.ahead.take());
        let outcome = self.soc.transfer(&mut progress, total, |gpu, part| {
            let buf: Vec<u8> = (part.from / 8..(part.from + part.len) / 8)
                .flat_map(|i| (flags | value.wrapping_add(i.wrapping_mul(step))).to_le_bytes())
                .collect();
            gpu.write_part(
                cl,
                &mut ahead,
                dst.wrapping_add(part.from),
                (&buf, part.next),
            )
        });
        (c.progress, c.ahead) = (progress, ahead.filter(|_| outcome == Outcome::Yield));
        outcome
    }
}
