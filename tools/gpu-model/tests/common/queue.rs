// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Queues: MQDs, rings, doorbells.

use super::proc::Proc;
use super::{Bench, Sys};

pub struct KernelQueue {
    ring: Sys,
    wb: Sys,
    pub mqd: Sys,
    dwords: u64,
    pub wptr: u64,
    doorbell: u64,
}

#[allow(clippy::too_many_arguments)]
fn mqd(
    at: u64,
    ring: u64,
    log2_dw: u32,
    rptr: u64,
    wptr: u64,
    bell: u64,
    eop: u64,
    control: u32,
) -> Vec<u32> {
    let mut m = vec![0u32; 512];
    m[0] = 0xc031_0800;
    m[11] = 1;
    for i in [23, 24, 26, 27, 39, 40, 41, 42] {
        m[i] = 0xffff_ffff;
    }
    m[128] = at as u32;
    m[129] = (at >> 32) as u32;
    m[132] = 0x5301;
    m[135] = 0x111;
    m[136] = (ring >> 8) as u32;
    m[137] = (ring >> 40) as u32;
    m[139] = rptr as u32;
    m[140] = (rptr >> 32) as u32;
    m[141] = wptr as u32;
    m[142] = (wptr >> 32) as u32;
    m[143] = bell as u32;
    m[145] = (log2_dw - 1) | (5 << 8) | (1 << 28) | control;
    m[149] = 0x00b0_0000;
    m[160] = 1 << 14;
    m[162] = 0x100;
    m[165] = (eop >> 8) as u32;
    m[166] = (eop >> 40) as u32;
    m[167] = 9;
    m
}

impl KernelQueue {
    fn new(b: &mut Bench, doorbell: u64) -> Self {
        let dwords = 512;
        let ring = b.alloc_sys(dwords * 4);
        let wb = b.alloc_sys(4096);
        let eop = b.alloc_sys(4096);
        let at = b.alloc_sys(4096);
        let image = mqd(
            at.gart,
            ring.gart,
            9,
            wb.gart,
            wb.gart + 8,
            doorbell,
            eop.gart,
            3 << 30,
        );
        b.set_words(at.bus, &image);
        Self {
            ring,
            wb,
            mqd: at,
            dwords,
            wptr: 0,
            doorbell,
        }
    }

    pub fn rptr(&self, b: &Bench) -> u32 {
        b.ram32(self.wb.bus)
    }
}

impl Bench {
    /// Section 3.5, sequence A: me 2, pipe 1, queue 0.
    pub fn start_kiq(&mut self) {
        let q = KernelQueue::new(self, 0);
        let m = self.words(q.mqd.bus, 256);
        let s = self.rd(0x3b2a8) & !0xff;
        self.wr(0x3b2a8, s | 0x48);
        self.wr(0x3b2a8, s | 0xc8);
        self.wr(0x8088, (2 << 2) | 1);
        let v = self.rd(0xc20c) & 0x7fff_ffff;
        self.wr(0xc20c, v);
        let dw = |i: u64| 0xc914 + (i - 128) * 4;
        for i in [165, 166, 167, 143] {
            self.wr(dw(i), m[i as usize]);
        }
        assert_eq!(self.rd(dw(130)) & 1, 0);
        for i in [128, 129, 162, 136, 137, 145, 139, 140, 141, 142] {
            self.wr(dw(i), m[i as usize]);
        }
        self.wr(0xc170, 0);
        self.wr(0xc174, 0x450);
        self.wr(dw(143), m[143] | (1 << 30));
        for i in [182, 183, 131, 132] {
            self.wr(dw(i), m[i as usize]);
        }
        self.wr(dw(130), 1);
        self.wr(0x8088, 0);
        let p = self.rd(0xc2e0);
        self.wr(0xc2e0, p | 2);
        self.kiq = Some(q);
        self.run();
        self.no_errors();
    }

    pub fn submit_kiq(&mut self, packet: &[u32]) {
        let mut q = self.kiq.take().unwrap();
        self.submit(&mut q, packet);
        self.kiq = Some(q);
    }

    /// The HIQ through the KIQ: me 2, pipe 0, queue 0, doorbell id 0x40 of the kernel page.
    pub fn start_hiq(&mut self) {
        let q = KernelQueue::new(self, 0x40 * 8);
        let (m, w) = (q.mqd.gart, q.wb.gart + 8);
        self.submit_kiq(&[
            0xc005_a200,
            (1 << 29) | (1 << 26) | (1 << 18),
            0x40 * 8,
            m as u32,
            (m >> 32) as u32,
            w as u32,
            (w >> 32) as u32,
        ]);
        self.run();
        self.no_errors();
        self.wr(0x8088, 2 << 2);
        assert_eq!(self.rd(0xc91c) & 1, 1, "HIQ is active");
        self.wr(0x8088, 0);
        self.hiq = Some(q);
    }

    fn submit(&mut self, q: &mut KernelQueue, packet: &[u32]) {
        let mut pos = q.wptr % q.dwords;
        while pos + packet.len() as u64 > q.dwords {
            self.set32(q.ring.bus + pos * 4, 0xffff_1000);
            q.wptr += 1;
            pos = q.wptr % q.dwords;
        }
        self.set_words(q.ring.bus + pos * 4, packet);
        q.wptr += packet.len() as u64;
        self.set64(q.wb.bus + 8, q.wptr);
        self.bell(q.doorbell, q.wptr);
    }

    pub fn submit_hiq(&mut self, packet: &[u32]) {
        let mut q = self.hiq.take().unwrap();
        self.submit(&mut q, packet);
        self.hiq = Some(q);
    }

    /// SET_RESOURCES: KFD's VMIDs, queues 2..7 of each MEC1 pipe, 4 s.
    pub fn set_resources(&mut self) {
        let vmids = if self.tf { 0xfff8 } else { 0xff00 };
        self.submit_hiq(&[
            0xc006_a000,
            vmids | (40 << 16) | (1 << 29),
            0xfcfc_fcfc,
            0,
            !0,
            !0,
            0,
            0,
        ]);
        self.run();
    }

    pub fn run_list(&mut self, ib: &[u32], chain: bool, processes: u32) -> Sys {
        let buf = self.alloc_sys(65536);
        let mut words = ib.to_vec();
        if chain {
            let size = words.len() as u32 + 4;
            words.extend([
                0xc002_a500,
                buf.gart as u32,
                (buf.gart >> 32) as u32,
                size | (1 << 20) | (1 << 22) | (1 << 23) | (processes << 24),
            ]);
        }
        self.set_words(buf.bus, &words);
        self.submit_hiq(&[
            0xc002_a500,
            buf.gart as u32,
            (buf.gart >> 32) as u32,
            words.len() as u32 | (1 << 23) | (processes << 24),
        ]);
        buf
    }

    /// UNMAP_QUEUES (all dynamic) and QUERY_STATUS; returns the fence.
    pub fn unmap(&mut self, sel: u32, action: u32, arg: u32) -> Sys {
        let fence = self.alloc_sys(4096);
        self.set64(fence.bus, 10);
        self.submit_hiq(&[0xc004_a300, action | (sel << 4), arg, 0, 0, 0]);
        self.submit_hiq(&[
            0xc005_a400,
            2 << 30,
            0,
            fence.gart as u32,
            (fence.gart >> 32) as u32,
            100,
            0,
        ]);
        fence
    }
}

pub struct UserQueue {
    pub va: u64,
    pub ring: u64,
    pub dwords: u64,
    /// rptr at +0, wptr at +64 (bus).
    pub ptrs: u64,
    pub ptrs_va: u64,
    pub mqd: Sys,
    /// Byte offset in BAR2.
    pub doorbell: u64,
    pub wptr: u64,
    pub sdma: Option<u32>,
    pub aql: bool,
    /// Context save area: bus address, bytes of control stack.
    pub save: (u64, u32),
}

impl UserQueue {
    pub fn new(b: &mut Bench, p: &mut Proc, id: u64) -> Self {
        let dwords = 1024;
        let (va, ring) = p.page(b, dwords * 4);
        let (ptrs_va, ptrs) = p.page(b, 4096);
        let (eop, _) = p.page(b, 4096);
        let at = b.alloc_sys(4096);
        let doorbell = p.doorbells + id * 8;
        let image = mqd(at.gart, va, 10, ptrs_va, ptrs_va + 64, doorbell, eop, 0);
        b.set_words(at.bus, &image);
        Self {
            va,
            ring,
            dwords,
            ptrs,
            ptrs_va,
            mqd: at,
            doorbell,
            wptr: 0,
            sdma: None,
            aql: false,
            save: (0, 0),
        }
    }

    /// Turns a fresh queue into an AQL queue.
    pub fn into_aql(mut self, b: &mut Bench) -> Self {
        let control = b.ram32(self.mqd.bus + 145 * 4);
        b.set32(
            self.mqd.bus + 145 * 4,
            control | (1 << 27) | (2 << 25) | (1 << 14) | (1 << 16),
        );
        b.set32(self.mqd.bus + 181 * 4, 1);
        let db = b.ram32(self.mqd.bus + 143 * 4);
        b.set32(self.mqd.bus + 143 * 4, db | 2);
        for i in 0..self.dwords / 16 {
            b.set32(self.ring + i * 64, 1);
        }
        self.aql = true;
        self
    }

    /// Gives a fresh queue a context save area for one compute unit, as CREATE_QUEUE does.  The MQD moves, since its
    /// control stack lies behind it.
    pub fn with_cwsr(self, b: &mut Bench, p: &mut Proc) -> Self {
        let stack = 0x1000u32;
        // VGPRs, SGPRs, LDS and hardware registers.
        let vgprs = if b.tf { 0x8_0000 } else { 0x4_0000 };
        let size = stack + vgprs + 0x4000 + 0x1_0000 + 0x1000;
        self.with_save_area(b, p, stack, size)
    }

    /// With a save area of `size` bytes, of which `stack` are its control stack.
    pub fn with_save_area(mut self, b: &mut Bench, p: &mut Proc, stack: u32, size: u32) -> Self {
        let (area_va, area) = p.page(b, size.into());
        let mut image = b.words(self.mqd.bus, 512);
        self.mqd = b.alloc_sys(4096 + u64::from(stack));
        image[128] = self.mqd.gart as u32;
        image[129] = (self.mqd.gart >> 32) as u32;
        image[132] |= 1 << 30;
        image[171] = area_va as u32;
        image[172] = (area_va >> 32) as u32;
        image[174] = stack;
        image[175] = stack;
        image[176] = stack;
        image[177] = size;
        b.set_words(self.mqd.bus, &image);
        self.save = (area, stack);
        self
    }

    pub fn new_sdma(b: &mut Bench, p: &mut Proc, engine: u32, id: u64) -> Self {
        let dwords = 1024;
        let (va, ring) = p.page(b, dwords * 4);
        let (ptrs_va, ptrs) = p.page(b, 4096);
        let at = b.alloc_sys(4096);
        let doorbell = p.doorbells + id * 8;
        let mut m = vec![0u32; 128];
        m[0] = (10 << 1) | (1 << 12) | (6 << 16);
        m[1] = (va >> 8) as u32;
        m[2] = (va >> 40) as u32;
        m[8] = (ptrs_va >> 32) as u32;
        m[9] = ptrs_va as u32;
        m[10] = 1 << 8;
        m[22] = doorbell as u32;
        m[27] = 0xf;
        m[126] = engine;
        b.set_words(at.bus, &m);
        Self {
            va,
            ring,
            dwords,
            ptrs,
            ptrs_va,
            mqd: at,
            doorbell,
            wptr: 0,
            sdma: Some(engine),
            aql: false,
            save: (0, 0),
        }
    }

    pub fn map_queues(&self) -> Vec<u32> {
        let engine = match self.sdma {
            None => 0,
            Some(e @ 0..=1) => (2 + e) << 26,
            Some(e) => (1 << 2) | (e << 26),
        };
        let (m, w) = (self.mqd.gart, self.ptrs_va + 64);
        vec![
            0xc005_a200,
            (1 << 29) | (1 << 4) | engine,
            self.doorbell as u32,
            m as u32,
            (m >> 32) as u32,
            w as u32,
            (w >> 32) as u32,
        ]
    }

    /// Stores packets and the write pointer, without ringing.
    pub fn push(&mut self, b: &mut Bench, words: &[u32]) {
        for w in words {
            b.set32(self.ring + self.wptr % self.dwords * 4, *w);
            self.wptr += 1;
        }
        let unit = if self.sdma.is_some() { 4 } else { 1 };
        b.set64(self.ptrs + 64, self.wptr * unit);
    }

    pub fn ring_bell(&self, b: &mut Bench) {
        let unit = if self.sdma.is_some() { 4 } else { 1 };
        b.bell(self.doorbell, self.wptr * unit);
    }

    pub fn send(&mut self, b: &mut Bench, words: &[u32]) {
        self.push(b, words);
        self.ring_bell(b);
        b.run();
    }

    /// Puts an AQL packet at an index and rings.
    pub fn send_aql(&mut self, b: &mut Bench, packet: &[u32; 16]) {
        let i = self.wptr % (self.dwords / 16);
        b.set_words(self.ring + i * 64, packet);
        self.wptr += 1;
        b.set64(self.ptrs + 64, self.wptr);
        b.bell(self.doorbell, self.wptr - 1);
        b.run();
    }
}

/// WRITE_DATA of one dword to memory.
pub fn write_data(va: u64, v: u32) -> Vec<u32> {
    vec![
        0xc003_3700,
        (5 << 8) | (1 << 20),
        va as u32,
        (va >> 32) as u32,
        v,
    ]
}

/// RELEASE_MEM: 64-bit data, interrupt after write confirm.
pub fn release_mem(va: u64, data: u64, ctx: u32) -> Vec<u32> {
    vec![
        0xc006_4900,
        0x14 | (5 << 8),
        (2 << 24) | (2 << 29),
        va as u32,
        (va >> 32) as u32,
        data as u32,
        (data >> 32) as u32,
        ctx,
    ]
}

/// INDIRECT_BUFFER.
pub fn indirect(va: u64, dwords: u32, chain: bool) -> Vec<u32> {
    vec![
        0xc002_3f00,
        va as u32,
        (va >> 32) as u32,
        dwords | (u32::from(chain) << 20) | (1 << 23),
    ]
}

/// WAIT_REG_MEM until a dword of memory equals a value.
pub fn wait_mem(va: u64, value: u32) -> Vec<u32> {
    vec![
        0xc005_3c00,
        3 | (1 << 4),
        va as u32,
        (va >> 32) as u32,
        value,
        !0,
        4,
    ]
}
