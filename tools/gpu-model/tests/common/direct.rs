// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Queues without the scheduler: the register sequences of amdkfd's nocpsch path.

use super::proc::Proc;
use super::queue::UserQueue;
use super::Bench;
use gpu_model::asic::Asic;
use gpu_model::inject::Kind;

/// Byte address of the HQD register of an MQD dword.
pub fn hqd(mqd_dw: u64) -> u64 {
    0xc914 + (mqd_dw - 128) * 4
}

const ATC: u64 = 0x3080;
const IH: u64 = 0x4280;

/// A MEC1 slot.
#[derive(Debug, Clone, Copy)]
pub struct Slot {
    pub pipe: u32,
    pub queue: u32,
}

pub const fn slot(pipe: u32, queue: u32) -> Slot {
    Slot { pipe, queue }
}

impl Slot {
    pub fn select(self) -> u32 {
        (1 << 2) | self.pipe | (self.queue << 8)
    }
}

/// A device that is up and hears doorbells; it has no scheduler.
pub fn ready(asic: &'static Asic) -> Bench {
    let mut b = Bench::new(asic);
    b.bring_up();
    b.wr(0xc2e0, 2);
    b
}

/// A fault of one queue.
pub fn inject(b: &mut Bench, kind: Kind, doorbell: u64, ms: Option<u64>) {
    super::fixture::inject(b, kind, Some((doorbell / 4) as u32), ms);
}

/// A process with a page, a queue, and VMID 9.
pub fn one(asic: &'static Asic) -> (Bench, Proc, UserQueue, u64, u64) {
    let mut b = ready(asic);
    let mut p = Proc::new(&mut b, 0x71, 0);
    let (va, bus) = p.page(&mut b, 0x3000);
    let q = p.queue(&mut b);
    b.give_vmid(9, &p);
    (b, p, q, va, bus)
}

impl Bench {
    /// set_pasid_vmid_mapping; PASID 0 takes the mapping away.
    pub fn map_pasid(&mut self, vmid: u32, pasid: u32) {
        let v = if pasid == 0 { 0 } else { pasid | (1 << 31) };
        for (atc, bit, lut) in [(0xc, vmid, 0), (0x3d, vmid + 16, 0x10)] {
            self.wr(ATC + 4 * u64::from(atc + vmid), v);
            assert_eq!(
                (self.rd(ATC + 4 * 0xb) >> bit) & 1,
                1,
                "the update completes"
            );
            self.wr(ATC + 4 * 0xb, 1 << bit);
            assert_eq!((self.rd(ATC + 4 * 0xb) >> bit) & 1, 0);
            self.wr(IH + 4 * u64::from(lut + vmid), v);
        }
    }

    /// program_sh_mem_settings.
    pub fn sh_mem(&mut self, vmid: u32, config: u32, bases: u32) {
        self.wr(0x8088, vmid << 4);
        self.wr(0x8c34, config);
        self.wr(0x8c28, bases);
        self.wr(0x8088, 0);
    }

    /// set_vm_context_page_table_base and kfd_flush_tlb.
    pub fn set_root(&mut self, vmid: u32, root: u64) {
        for (vm, _) in self.hubs() {
            self.wr(vm + 0x2ac + 8 * u64::from(vmid), (root | 1) as u32);
            self.wr(vm + 0x2b0 + 8 * u64::from(vmid), (root >> 32) as u32);
        }
        self.flush_vmid(vmid);
    }

    /// allocate_vmid.
    pub fn give_vmid(&mut self, vmid: u32, p: &Proc) {
        self.map_pasid(vmid, p.pasid.into());
        self.sh_mem(vmid, if p.retry { 0x18 } else { 0x1018 }, 0x0001_0002);
        self.set_root(vmid, p.root);
    }

    /// kgd_gfx_v9_hqd_load, from the MQD in memory.
    pub fn hqd_load(&mut self, s: Slot, q: &UserQueue, vmid: u32) {
        self.set32(q.mqd.bus + 131 * 4, vmid);
        self.wr(0x8088, s.select());
        let m = self.words(q.mqd.bus, 256);
        for dw in 128..=183u64 {
            self.wr(hqd(dw), m[dw as usize]);
        }
        self.wr(hqd(143), m[143] | (1 << 30));
        let size = 2u64 << (m[145] & 0x3f);
        let saved = u64::from(m[182]);
        let mut wptr = u64::from(m[138]) & (size - 1);
        if saved & (size - 1) < wptr {
            wptr += size;
        }
        wptr += (saved & !(size - 1)) + (u64::from(m[183]) << 32);
        self.wr(hqd(182), wptr as u32);
        self.wr(hqd(183), (wptr >> 32) as u32);
        let at = q.ptrs_va + 64;
        self.wr(hqd(141), at as u32);
        self.wr(hqd(142), (at >> 32) as u32);
        self.wr(0xc210, 1 << (s.pipe * 8 + s.queue));
        self.wr(hqd(168), m[168] | (1 << 31));
        self.wr(hqd(130), m[130] | 1);
        self.wr(0x8088, 0);
    }

    pub fn hqd_active(&mut self, s: Slot) -> bool {
        self.hqd_reg(s, 130) & 1 != 0
    }

    pub fn hqd_reg(&mut self, s: Slot, dw: u64) -> u32 {
        self.wr(0x8088, s.select());
        let v = self.rd(hqd(dw));
        self.wr(0x8088, 0);
        v
    }

    /// kgd_gfx_v9_hqd_destroy: 1 drain, 2 reset, 3 save; whether the queue left within the time.
    pub fn hqd_destroy(&mut self, s: Slot, request: u32, ns: u64) -> bool {
        self.wr(0x8088, s.select());
        self.wr(hqd(152), request);
        self.wr(0x8088, 0);
        // An answer takes a while, however fast the queue is.
        for _ in 0..=ns.max(500_000) / 500_000 {
            if !self.hqd_active(s) {
                return true;
            }
            self.run_for(500_000);
        }
        false
    }

    fn rlc(&self, engine: u32, n: u32) -> u64 {
        let (first, stride) = if self.tf {
            (0x130, 0x58)
        } else {
            (0x140, 0x60)
        };
        self.sdma_bases[engine as usize] + 4 * u64::from(first + n * stride)
    }

    /// A register of an RLC context.
    pub fn rlc_reg(&mut self, (engine, n): (u32, u32), r: u64) -> u32 {
        let at = self.rlc(engine, n) + 4 * r;
        self.rd(at)
    }

    pub fn rlc_write(&mut self, (engine, n): (u32, u32), r: u64, v: u32) {
        let at = self.rlc(engine, n) + 4 * r;
        self.wr(at, v);
    }

    /// kgd_arcturus_hqd_sdma_load, with the write pointer that user space has stored.
    pub fn sdma_load(&mut self, c: (u32, u32), q: &UserQueue, vmid: u32) {
        let m = self.words(q.mqd.bus, 128);
        let rb = m[0] | (vmid << 24);
        self.rlc_write(c, 0, rb & !1);
        assert_eq!(self.rlc_reg(c, 0x11) & 4, 4, "CONTEXT_STATUS.IDLE");
        self.rlc_write(c, 0x2b, m[22]);
        self.rlc_write(c, 0x12, m[18] | (1 << 28));
        self.rlc_write(c, 3, m[3]);
        self.rlc_write(c, 4, m[4]);
        self.rlc_write(c, 0x35, 1);
        let wptr = self.ram64(q.ptrs + 64);
        self.rlc_write(c, 5, wptr as u32);
        self.rlc_write(c, 6, (wptr >> 32) as u32);
        self.rlc_write(c, 0x35, 0);
        self.rlc_write(c, 1, m[1]);
        self.rlc_write(c, 2, m[2]);
        self.rlc_write(c, 9, m[9]);
        self.rlc_write(c, 8, m[8]);
        self.rlc_write(c, 0, rb | 1);
    }

    /// kgd_arcturus_hqd_sdma_destroy; whether the queue came to rest within the time.
    pub fn sdma_destroy(&mut self, c: (u32, u32), q: &UserQueue, ns: u64) -> bool {
        let rb = self.rlc_reg(c, 0);
        self.rlc_write(c, 0, rb & !1);
        let mut idle = false;
        for _ in 0..=ns.max(500_000) / 500_000 {
            idle = self.rlc_reg(c, 0x11) & 4 != 0;
            if idle {
                break;
            }
            self.run_for(500_000);
        }
        if !idle {
            return false;
        }
        self.rlc_write(c, 0x12, 0);
        let rb = self.rlc_reg(c, 0);
        self.rlc_write(c, 0, rb | 1);
        let rptr = [self.rlc_reg(c, 3), self.rlc_reg(c, 4)];
        self.set_words(q.mqd.bus + 12, &rptr);
        true
    }
}
