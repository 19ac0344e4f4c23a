// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The driver's side, written from the hardware contract with literal numbers, over fake guest memory.
//!
//! Nothing here uses the model's own constants: a wrong offset in the model must fail a test.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod direct;
pub mod fixture;
pub mod full;
pub mod heap;
pub mod kernel;
pub mod pages;
pub mod proc;
pub mod queue;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use gpu_model::asic::Asic;
use gpu_model::board::Board;
use gpu_model::clock::Clock;
use gpu_model::device::{Gpu, Step};
use gpu_model::server::make_vram;
use gpu_model::soc::MsiSink;
use gpu_model::trace::Log;

pub const MIB: u64 = 1 << 20;
pub const VRAM: u64 = 64 * MIB;
pub const RAM: u64 = 64 * MIB;
/// Guest RAM is mapped for DMA here, away from 0 so that stray zeros show.
pub const RAM_BUS: u64 = 0x1_0000_0000;
pub const FB: u64 = 0x80_0000_0000;

pub struct CountMsi(pub Arc<AtomicU64>);
impl MsiSink for CountMsi {
    fn raise(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

pub struct Bench {
    pub gpu: Gpu,
    pub now: Arc<AtomicU64>,
    pub msis: Arc<AtomicU64>,
    vram: File,
    vram_size: u64,
    ram: File,
    vram_next: u64,
    ram_next: u64,
    gart_table: u64,
    gart_next: u64,
    /// Byte addresses of MMHUB registers: VM part and MC part.
    mm_vm: u64,
    mm_mc: u64,
    ih_rptr: u64,
    ih_ring: u64,
    ih_wb: u64,
    pub kiq: Option<queue::KernelQueue>,
    pub hiq: Option<queue::KernelQueue>,
    pub tf: bool,
    pub sdma_bases: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenIv {
    pub client: u32,
    pub source: u32,
    pub ring_id: u32,
    pub vmid: u32,
    pub mm: bool,
    pub timestamp: u64,
    pub pasid: u32,
    pub data: [u32; 4],
}

/// An allocation in guest RAM with its GART address.
#[derive(Debug, Clone, Copy)]
pub struct Sys {
    pub bus: u64,
    pub gart: u64,
}

impl Bench {
    pub fn new(asic: &'static Asic) -> Self {
        Self::with(asic, asic.board, VRAM, true)
    }

    /// On a board that is not the usual one.
    pub fn on_board(asic: &'static Asic, board: Board) -> Self {
        Self::with(asic, board, VRAM, true)
    }

    /// With less VRAM than usual, whole MiB, of which the last 16 MiB are there in part.
    pub fn with_vram(asic: &'static Asic, size: u64) -> Self {
        Self::with(asic, asic.board, size, true)
    }

    /// Without error lines on stderr, for tests that make thousands.
    pub fn quiet(asic: &'static Asic) -> Self {
        Self::with(asic, asic.board, VRAM, false)
    }

    /// Brought up to SET_RESOURCES.
    pub fn scheduled(asic: &'static Asic) -> Self {
        Self::new(asic).schedule()
    }

    /// As [`Bench::scheduled`], from a fresh device.
    pub fn schedule(mut self) -> Self {
        self.bring_up();
        self.start_kiq();
        self.start_hiq();
        self.set_resources();
        self.no_errors();
        self
    }

    /// The VMID that the scheduler gives first.
    pub fn first_vmid(&self) -> u32 {
        if self.tf {
            3
        } else {
            8
        }
    }

    fn with(asic: &'static Asic, board: Board, vram_size: u64, echo: bool) -> Self {
        let vram = make_vram(vram_size).unwrap();
        let ram = make_vram(RAM).unwrap();
        let now = Arc::new(AtomicU64::new(1_000_000));
        let msis = Arc::new(AtomicU64::new(0));
        let gpu = Gpu::new(
            asic,
            board,
            vram.try_clone().unwrap(),
            vram_size,
            Clock::Manual(now.clone()),
            Log::new(65536, None, echo),
            Box::new(CountMsi(msis.clone())),
        )
        .unwrap();
        let gfx906 = asic.name == "gfx906";
        let b = Self {
            gpu,
            now,
            msis,
            vram,
            vram_size,
            ram: ram.try_clone().unwrap(),
            vram_next: 2 * MIB,
            ram_next: 0,
            gart_table: 0,
            gart_next: 0,
            mm_vm: if gfx906 { 0x69a00 } else { 0x6ae00 },
            mm_mc: if gfx906 { 0x6a05c } else { 0x6b2ac },
            ih_rptr: 0,
            ih_ring: 0,
            ih_wb: 0,
            kiq: None,
            hiq: None,
            tf: !gfx906,
            sdma_bases: if gfx906 {
                vec![0x4980, 0x6180]
            } else {
                vec![0x4980, 0x6180, 0x78000, 0x79000, 0x7A000]
            },
        };
        b.gpu
            .soc
            .mem
            .dma_map(RAM_BUS, RAM, Some((ram, 0)), true)
            .unwrap();
        b
    }

    // Registers and doorbells.
    pub fn rd(&mut self, byte: u64) -> u32 {
        let mut d = [0; 4];
        self.gpu.mmio_read(byte, &mut d);
        u32::from_le_bytes(d)
    }
    pub fn wr(&mut self, byte: u64, v: u32) {
        self.gpu.mmio_write(byte, &v.to_le_bytes());
    }
    pub fn bell(&mut self, byte: u64, v: u64) {
        self.gpu.doorbell_write(byte, &v.to_le_bytes());
    }
    pub fn bell32(&mut self, byte: u64, v: u32) {
        self.gpu.doorbell_write(byte, &v.to_le_bytes());
    }

    /// Guest RAM as a VMM hands it over.
    pub fn ram_file(&self) -> File {
        self.ram.try_clone().unwrap()
    }

    // Memory, through the files, as the guest sees it.
    pub fn vram_read(&self, off: u64, buf: &mut [u8]) {
        self.vram.read_exact_at(buf, off).unwrap();
    }
    pub fn vram_write(&self, off: u64, buf: &[u8]) {
        self.vram.write_all_at(buf, off).unwrap();
    }
    pub fn ram_read(&self, bus: u64, buf: &mut [u8]) {
        self.ram.read_exact_at(buf, bus - RAM_BUS).unwrap();
    }
    pub fn ram_write(&self, bus: u64, buf: &[u8]) {
        self.ram.write_all_at(buf, bus - RAM_BUS).unwrap();
    }
    pub fn ram32(&self, bus: u64) -> u32 {
        let mut b = [0; 4];
        self.ram_read(bus, &mut b);
        u32::from_le_bytes(b)
    }
    pub fn ram64(&self, bus: u64) -> u64 {
        let mut b = [0; 8];
        self.ram_read(bus, &mut b);
        u64::from_le_bytes(b)
    }
    pub fn set32(&self, bus: u64, v: u32) {
        self.ram_write(bus, &v.to_le_bytes());
    }
    pub fn set64(&self, bus: u64, v: u64) {
        self.ram_write(bus, &v.to_le_bytes());
    }
    pub fn set_words(&self, bus: u64, w: &[u32]) {
        let b: Vec<u8> = w.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.ram_write(bus, &b);
    }
    pub fn words(&self, bus: u64, n: usize) -> Vec<u32> {
        (0..n as u64).map(|i| self.ram32(bus + 4 * i)).collect()
    }

    pub fn alloc_vram(&mut self, size: u64) -> u64 {
        let at = self.vram_next;
        self.vram_next += size.next_multiple_of(4096);
        assert!(self.vram_next <= self.vram_size);
        at
    }
    /// Guest RAM, page aligned, zeroed, without GART mapping.
    pub fn alloc_ram(&mut self, size: u64) -> u64 {
        let at = self.ram_next;
        self.ram_next += size.next_multiple_of(4096);
        assert!(self.ram_next <= RAM);
        RAM_BUS + at
    }
    /// Guest RAM that the kernel side of the GPU sees through the GART.
    pub fn alloc_sys(&mut self, size: u64) -> Sys {
        let bus = self.alloc_ram(size);
        let gart = self.gart_next;
        for p in 0..size.div_ceil(4096) {
            // V | S | C | X | R | W
            let pte = (bus + p * 4096) | 0x77;
            let slot = self.gart_table + (gart / 4096 + p) * 8;
            self.vram_write(slot, &pte.to_le_bytes());
        }
        self.gart_next += size.next_multiple_of(4096);
        self.flush_vmid(0);
        Sys { bus, gart }
    }

    /// VRAM offset of the entry of a page of the GART.
    pub fn gart_entry(&self, gart: u64) -> u64 {
        self.gart_table + gart / 4096 * 8
    }

    /// Takes a page of the GART away.
    pub fn unmap_gart(&mut self, gart: u64) {
        self.vram_write(self.gart_entry(gart), &[0; 8]);
        self.flush_vmid(0);
    }

    // Time and execution.
    pub fn run(&mut self) {
        for _ in 0..100_000 {
            if let Step::Idle(_) = self.gpu.step() {
                return;
            }
        }
        panic!("the device never goes idle");
    }
    /// Runs some steps of a device that has always more to do.
    pub fn run_steps(&mut self, n: usize) {
        for _ in 0..n {
            let _ = self.gpu.step();
        }
    }
    pub fn advance(&mut self, ns: u64) {
        self.now.fetch_add(ns, Ordering::Relaxed);
    }
    /// Runs for some model time, in steps of 100 us.
    pub fn run_for(&mut self, ns: u64) {
        for _ in 0..ns.div_ceil(100_000) {
            self.advance(100_000);
            self.run();
        }
    }

    pub fn errors(&self) -> Vec<String> {
        self.gpu
            .soc
            .log
            .errors()
            .map(|e| format!("{}: {}", e.rule, e.text))
            .collect()
    }
    pub fn no_errors(&self) {
        assert_eq!(self.errors(), Vec::<String>::new());
    }
    /// Expects protocol errors of exactly these rules, and forgets them.
    pub fn expect_errors(&mut self, rules: &[&str]) {
        let got: Vec<&str> = self.gpu.soc.log.errors().map(|e| e.rule).collect();
        assert_eq!(got, rules, "{:?}", self.errors());
        self.gpu.soc.log.clear_errors();
    }

    pub fn hubs(&self) -> [(u64, u64); 2] {
        [(0xa100, 0xa5ac), (self.mm_vm, self.mm_mc)]
    }

    /// Flushes what the host wrote to VRAM.
    pub fn hdp_flush(&mut self) {
        self.wr(0x7f000, 0);
        self.rd(0x7f000);
    }

    /// Flushes what the host wrote, then the translations of a VMID in both hubs.
    pub fn flush_vmid(&mut self, vmid: u32) {
        self.hdp_flush();
        self.flush_vmid_only(vmid);
    }

    pub fn flush_vmid_only(&mut self, vmid: u32) {
        for (vm, _) in self.hubs() {
            // Engine 17: REQ at +0x18c+17*4, ACK at +0x1d4+17*4.
            self.wr(vm + 0x18c + 68, (1 << vmid) | (2 << 16) | 0x7c_0000);
            self.await_ack(vm, 17, 1 << vmid);
        }
    }

    /// Polls VM_INVALIDATE_ENGn_ACK of the hub whose VM registers begin at `vm`.
    pub fn await_ack(&mut self, vm: u64, engine: u64, vmids: u32) {
        let ack = vm + 0x1d4 + 4 * engine;
        let begun = std::time::Instant::now();
        for round in 0u64.. {
            if self.rd(ack) & vmids == vmids {
                return;
            }
            // Threads that execute waves acknowledge, too, when the machine lets them run.
            if round < 1000 {
                self.advance(1000);
            } else if begun.elapsed().as_secs() < 60 {
                std::thread::yield_now();
            } else {
                break;
            }
        }
        panic!("VM_INVALIDATE_ENG{engine}_ACK at {ack:#x} never shows {vmids:#x}");
    }

    /// Section 10, steps 2 to 15.
    pub fn bring_up(&mut self) {
        assert_eq!(self.rd(0x378c), (self.vram_size / MIB) as u32);
        assert_eq!(self.rd(0x58184) >> 31, 1);
        for (_, mc) in self.hubs() {
            assert_eq!(u64::from(self.rd(mc + 0x54)) << 24, FB);
            assert_eq!(
                (u64::from(self.rd(mc + 0x58)) << 24) | 0xff_ffff,
                FB + VRAM - 1
            );
        }
        // Step 6.
        self.wr(0x3934, 0x7f000);
        self.wr(0x3938, 0x7f004);
        self.wr(0x3780, 1);
        for (i, reg) in [0x3bc0u64, 0x3bc4, 0x3bd8, 0x3bdc, 0x3be4]
            .into_iter()
            .enumerate()
            .take(self.sdma_bases.len())
        {
            self.wr(reg, ((0x100 + 0xa * i as u32) << 3) | (20 << 16));
        }
        // Step 7: HDP.
        self.wr(0x3fcc, 1);
        self.wr(0x7f000, 0);
        self.rd(0x7f000);
        self.gart_table = self.alloc_vram(MIB);
        self.vram_write(self.gart_table, &vec![0; MIB as usize]);
        let scratch = self.alloc_vram(4096);
        for (vm, mc) in self.hubs() {
            self.wr(vm + 0x1c, 0x1ffc);
            // Context 0: base, start 0, end 512 MiB.
            let base = self.gart_table | 1;
            self.wr(vm + 0x2ac, base as u32);
            self.wr(vm + 0x2b0, (base >> 32) as u32);
            self.wr(vm + 0x32c, 0);
            self.wr(vm + 0x330, 0);
            self.wr(vm + 0x3ac, 0x1_ffff);
            self.wr(vm + 0x3b0, 0);
            self.wr(mc + 0x64, 0);
            self.wr(mc + 0x60, 0xff_ffff);
            self.wr(mc + 0x5c, 0);
            self.wr(mc + 0x68, (FB >> 18) as u32);
            self.wr(mc + 0x6c, ((FB + VRAM - 1) >> 18) as u32);
            self.wr(mc + 4, (scratch >> 12) as u32);
            self.wr(mc + 8, 0);
            self.wr(mc + 0x70, 1 | (3 << 3) | (1 << 6) | (3 << 11) | (1 << 13));
            self.wr(vm, 0x8_0003);
            self.wr(vm + 4, 3);
            self.wr(vm + 0x100, 1 | 0x7f_fe00);
            for v in 1..16u64 {
                let shape = if self.tf { (2 << 1) | (9 << 3) } else { 3 << 1 };
                // ENABLE, shape, RETRY, interrupt and default enables.
                self.wr(vm + 0x100 + 4 * v, 1 | shape | (1 << 7) | 0x7f_fe00);
                self.wr(vm + 0x32c + 8 * v, 0);
                self.wr(vm + 0x330 + 8 * v, 0);
                self.wr(vm + 0x3ac + 8 * v, 0xffff_ffff);
                self.wr(vm + 0x3b0 + 8 * v, 0xf);
            }
            for e in 0..18u64 {
                self.wr(vm + 0x21c + 8 * e, 0xffff_ffff);
                self.wr(vm + 0x220 + 8 * e, 0x1f);
            }
        }
        self.flush_vmid(0);
        self.ih_init();
        // Step 11.
        for v in 0..16u32 {
            self.wr(0x8088, v << 4);
            self.wr(0x8c34, if v == 0 { 0x18 } else { 0x1018 });
            self.wr(0x8c28, if v == 0 { 0 } else { 0x6000_6000 });
        }
        self.wr(0x8088, 0);
        self.wr(0x3b000, 1);
        self.wr(0x8234, 0);
        // Step 15, and the same for the KIQ's pipe with GENERIC2.
        for pipe in 0..4u32 {
            self.wr(0x8088, (1 << 2) | pipe);
            self.wr(0xc2d0, 0x0500_0000);
        }
        self.wr(0x8088, (2 << 2) | 1);
        self.wr(0xc2d0, 1 << 29);
        self.wr(0x8088, 0);
        // Step 18.
        let f32 = 0x2a * 4;
        let cntl = 0x1c * 4;
        for base in self.sdma_bases.clone() {
            self.wr(base + f32, 0);
            self.wr(base + cntl, 1 | 2 | (1 << 18));
        }
        self.no_errors();
    }

    fn ih_init(&mut self) {
        let ring = self.alloc_ram(256 * 1024);
        let wb = self.alloc_ram(4096);
        self.ih_ring = ring;
        self.ih_wb = wb;
        self.wr(0x4480, 0);
        self.wr(0x4484, (ring >> 8) as u32);
        self.wr(0x4488, (ring >> 40) as u32);
        // Size 2^16 dwords, write-back, overflow enable, bus address, snoop, rearm.
        if self.tf {
            self.wr(0x4280 + 0x18d * 4, 1 << 4);
        }
        let cntl = (16 << 1) | (1 << 8) | (1 << 16) | (1 << 20) | (1 << 21) | (1 << 28);
        self.wr(0x4480, cntl | (1 << 31));
        self.wr(0x4480, cntl);
        self.wr(0x4494, (wb >> 32) as u32);
        self.wr(0x4498, wb as u32);
        self.wr(0x448c, 0);
        self.wr(0x4490, 0);
        self.wr(0x449c, 0x2f0 | (1 << 28));
        self.wr(0x3bc8, (0x2f0 << 2) | (8 << 16));
        self.wr(0x44a0, 0x2f6 | (1 << 28));
        let cam = if self.tf {
            0x4280 + 0xea * 4
        } else {
            0x4280 + 0xe9 * 4
        };
        self.wr(cam, 1 << 16);
        self.wr(0x4480, cntl | 1 | (1 << 7) | (1 << 17));
    }

    /// Reads the interrupt ring as the driver does, and acknowledges by doorbell.
    pub fn irqs(&mut self) -> Vec<SeenIv> {
        let wptr = u64::from(self.ram32(self.ih_wb)) & 0x3_fffc;
        let mut out = Vec::new();
        while self.ih_rptr != wptr {
            let w = self.words(self.ih_ring + self.ih_rptr, 8);
            out.push(SeenIv {
                client: w[0] & 0xff,
                source: (w[0] >> 8) & 0xff,
                ring_id: (w[0] >> 16) & 0xff,
                vmid: (w[0] >> 24) & 0xf,
                mm: w[0] >> 31 != 0,
                timestamp: u64::from(w[1]) | (u64::from(w[2] & 0xffff) << 32),
                pasid: w[3] & 0xffff,
                data: [w[4], w[5], w[6], w[7]],
            });
            self.ih_rptr = (self.ih_rptr + 32) & 0x3_ffff;
        }
        self.bell32(0x178 * 8, wptr as u32);
        out
    }

    pub fn release_cam(&mut self, index: u32) {
        self.bell32(0x17b * 8, index);
    }
}
