// SPDX-License-Identifier: GPL-2.0 OR MIT
//! An address space without a device: four levels of tables in VRAM, written with literal numbers, and a bus.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use gpu_model::mem::{Bus, Phys};
use gpu_model::server::make_vram;
use gpu_model::vm::hub::Context;
use gpu_model::vm::range::Range;
use gpu_model::vm::space::{Setup, Space, Spaces, Ticket};
use gpu_model::vm::tlb::Levels;
use gpu_model::vm::{Client, HubId};

pub const VRAM: u64 = 8 << 20;
pub const VMID: u8 = 9;
pub const CLIENT: Client = Client {
    hub: HubId::Gfx,
    vmid: VMID,
    cid: 8,
};
/// Address of page 0; the last level of tables has 512.
pub const BASE: u64 = 0x7f_4000_0000;
/// VRAM offset of frame 0.
pub const DATA: u64 = 0x20_0000;
const ROOT: u64 = 0x10_0000;
const LEAVES: u64 = ROOT + 0x3000;
/// Guest memory on the bus.
pub const RAM: u64 = 1 << 20;
pub const RAM_BUS: u64 = 0x1_0000_0000;
/// Valid, and the permissions.
pub const V: u64 = 1;
pub const SYSTEM: u64 = 2;
pub const X: u64 = 0x10;
pub const R: u64 = 0x20;
pub const W: u64 = 0x40;

pub struct Pages {
    pub bus: Arc<Bus>,
    pub spaces: Arc<Spaces>,
    pub ram: File,
}

/// Address of a page.
pub fn va(page: u64) -> u64 {
    BASE + page * 0x1000
}

/// VRAM offset of a frame.
pub fn frame(n: u64) -> u64 {
    DATA + n * 0x1000
}

impl Pages {
    /// Nothing is mapped; faults may retry if `retry`.
    pub fn new(retry: bool) -> Self {
        let bus = Bus::new(make_vram(VRAM).unwrap(), VRAM).unwrap();
        let ram = make_vram(RAM).unwrap();
        let shared = ram.try_clone().unwrap();
        bus.dma_map(RAM_BUS, RAM, Some((shared, 0)), true).unwrap();
        let pages = Self {
            bus: Arc::new(bus),
            spaces: Arc::default(),
            ram,
        };
        for level in 0..3 {
            let index = (BASE >> (39 - 9 * level)) & 0x1ff;
            let table = ROOT + level * 0x1000;
            pages.put(table + index * 8, (table + 0x1000) | V);
        }
        let context = Context {
            enabled: true,
            depth: 3,
            block_size: 0,
            retry,
            base: ROOT | V,
            start: 0,
            end: 0xf_ffff_ffff,
            cntl: 0,
        };
        pages.space().set_up(Setup {
            context,
            fb_offset: 0,
        });
        pages
    }

    pub fn space(&self) -> &Space {
        self.spaces.space(HubId::Gfx, VMID)
    }

    /// Writes an entry of a table, which the walker sees.
    pub fn put(&self, at: u64, v: u64) {
        self.bus.write_hosted(at, &v.to_le_bytes()).unwrap();
        self.bus.hdp_flush();
    }

    /// Writes the entry of a page, as a driver does.
    pub fn map(&self, page: u64, entry: u64) {
        self.put(LEAVES + page * 8, entry);
    }

    /// Drops everything that is cached and waits for the executors.
    pub fn flush(&self) {
        self.await_executors(self.spaces.invalidate(HubId::Gfx, 1 << VMID, Levels::ALL));
    }

    fn await_executors(&self, ticket: Ticket) {
        while !self.spaces.acknowledged(ticket) {
            std::thread::sleep(Duration::from_micros(5));
        }
    }

    /// Drops what is cached of one page, and waits for the executors.
    pub fn flush_page(&self, page: u64) {
        let number = va(page) >> 12;
        let range = Range::by_size_bit([(number << 1) as u32, (number >> 31) as u32]);
        let ticket = self
            .spaces
            .invalidate_range(HubId::Gfx, 1 << VMID, Levels::ALL, range);
        self.await_executors(ticket);
    }

    /// Fills a frame with a word.
    pub fn fill(&self, n: u64, word: u32) {
        let bytes: Vec<u8> = std::iter::repeat_n(word.to_le_bytes(), 1024)
            .flatten()
            .collect();
        self.bus.write(Phys::Vram(frame(n)), &bytes).unwrap();
    }

    /// A word of VRAM.
    pub fn word(&self, at: u64) -> u32 {
        self.bus.read_u32(Phys::Vram(at)).unwrap()
    }
}
