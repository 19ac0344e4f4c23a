// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The side of the VMM: whatever it reads, writes and maps, the function stays the one that it is.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "common/vmm.rs"]
mod vmm;

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use common::fixture::Fixture;
use common::heap::{Counting, Meter, GROWTH};
use common::queue::{wait_mem, write_data};
use common::Bench;
use gpu_model::asic::GFX90A;
use gpu_model::device::Gpu;
use gpu_model::mem::Phys;
use gpu_model::pci::{ConfigSpace, Subsystem};
use gpu_model::server::{make_vram, Backend, Shared};
use proptest::collection::vec;
use proptest::prelude::*;
use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend};
use vmm::*;

#[global_allocator]
static HEAP: Counting = Counting;

fn config() -> ConfigSpace {
    ConfigSpace::new(&GFX90A, VRAM, Subsystem::default())
}

fn read(config: &ConfigSpace) -> Vec<u8> {
    let mut all = vec![0; SPACE as usize];
    config.read(0, &mut all);
    all
}

/// Writable bits, found out by writing.
fn writable() -> Vec<u8> {
    let (mut ones, mut zeros) = (config(), config());
    // Byte by byte, for some values of the power state are refused.
    for at in 0..SPACE {
        ones.write(at, &[0xff]);
        zeros.write(at, &[0]);
    }
    read(&ones)
        .iter()
        .zip(read(&zeros))
        .map(|(a, b)| a ^ b)
        .collect()
}

proptest! {
    /// Reading gives back the writable bits that were written, and the others as they always were.
    #[test]
    fn configuration_space_is_its_writable_bits(writes in vec((0..SPACE + 8, vec(any::<u8>(), 0..9)), 1..60)) {
        let mask = writable();
        let (mut space, mut want) = (config(), read(&config()));
        for (at, data) in writes {
            space.write(at, &data);
            for (at, byte) in (at..).zip(data) {
                // PMCSR: D1 and D2 are not there, and a write of them changes nothing of the state.
                let refused = at == 0x4c && !matches!(byte & 3, 0 | 3);
                let at = at as usize;
                if let (Some(old), Some(mask)) = (want.get_mut(at), mask.get(at)) {
                    let new = *old & !mask | byte & mask;
                    *old = if refused { new & !3 | *old & 3 } else { new };
                }
            }
            prop_assert_eq!(&read(&space), &want);
            prop_assert_eq!(space.bus_master(), want[4] & 4 != 0);
            prop_assert_eq!(space.asleep(), want[0x4c] & 3 == 3);
            // A BAR has an address while memory decoding is on, and none while it is sized.
            let dword = |at: usize| u32::from_le_bytes(want[at..at + 4].try_into().unwrap());
            let bars = space.bars().map(|b| (b.doorbells, b.registers));
            let low = |at| u64::from(dword(at) & !0xf);
            let here = (low(0x18) | (u64::from(dword(0x1c)) << 32), low(0x24));
            prop_assert_eq!(bars, (want[4] & 2 != 0).then_some(here));
        }
        // Identity, class, capability list, and the kind and size of BARs.
        let fresh = read(&config());
        let all = read(&space);
        for range in [0..4, 8..12, 0x2c..0x30, 0x34..0x35, 0x48..0x4c, 0x50..0x58, 0xa0..0xa2] {
            prop_assert_eq!(&all[range.clone()], &fresh[range]);
        }
        for (at, kind) in [(0x10, 0xcu8), (0x18, 0x4), (0x24, 0)] {
            space.write(at, &[0xff; 4]);
            prop_assert_eq!(read(&space)[at as usize] & 0xf, kind);
        }
    }
}

/// While a guest sizes the BARs, with memory decoding off, queues go on and reach doorbells and flush page where these were.
#[test]
fn queues_reach_the_bars_while_they_are_sized() {
    const DOORBELL_BAR: u64 = 0xfe60_0000;
    const REGISTER_BAR: u64 = 0xfe80_0000;
    const BELL_PAGE: u64 = 0x7500_0000_0000;
    const FLUSH_PAGE: u64 = 0x7500_0010_0000;
    const LATE_PAGE: u64 = 0x7500_0020_0000;
    let mut f = Fixture::new(&GFX90A, 0x45, 4096);
    f.preempt();
    f.p.retry = true;
    let mut other = f.p.queue(&mut f.b);
    let mut third = f.p.queue(&mut f.b);
    let late = f.p.pte_at(&mut f.b, LATE_PAGE);
    let page = f.b.alloc_ram(4096);
    let bell = DOORBELL_BAR + other.doorbell;
    f.p.set_pte(&mut f.b, BELL_PAGE, (bell & !0xfff) | 0x77);
    f.p.set_pte(&mut f.b, FLUSH_PAGE, (REGISTER_BAR + 0x7f000) | 0x77);
    let mut list = f.p.map_process(&f.b, 3);
    for q in [&f.q, &other, &third] {
        list.extend(q.map_queues());
    }
    f.b.run_list(&list, false, 1);
    f.b.run();
    // The self-ring aperture.
    f.b.wr(0x3480 + 0xf4 * 4, DOORBELL_BAR as u32);
    f.b.wr(0x3480 + 0xf3 * 4, 0);
    f.b.wr(0x3480 + 0xf5 * 4, 3);
    // The third queue waits for a page.
    third.push(&mut f.b, &write_data(LATE_PAGE + 4, 9));
    third.send(&mut f.b, &write_data(f.va + 16, 10));
    // The first queue waits for memory, then flushes and rings for the other one.
    other.push(&mut f.b, &write_data(f.va + 8, 7));
    f.q.push(&mut f.b, &wait_mem(f.va, 1));
    f.q.push(&mut f.b, &write_data(FLUSH_PAGE, 0));
    let wptr = other.wptr as u32;
    f.q.send(&mut f.b, &write_data(BELL_PAGE + (bell & 0xfff), wptr));
    f.b.no_errors();
    // Memory stays with the driver.
    let gpu = std::mem::replace(&mut f.b.gpu, Bench::quiet(&GFX90A).gpu);
    let shared = Shared::new(gpu);
    let stats = |shared: &Shared| shared.lock().soc.log.stats.clone();
    assert_eq!(stats(&shared).faults_retry, 1);
    let mut backend = Backend::new(Arc::clone(&shared), Subsystem::default());
    let mut set = |at: u64, value: u32| {
        let bytes = value.to_le_bytes();
        backend.region_write(CONFIG, at, &bytes).unwrap();
        shared.lock().soc.bars()
    };
    set(0x18, DOORBELL_BAR as u32);
    set(0x1c, 0);
    set(0x24, REGISTER_BAR as u32);
    let here = set(4, 6);
    assert_eq!(
        (here.doorbells, here.registers),
        (DOORBELL_BAR, REGISTER_BAR)
    );
    // Decoding goes off, the device stays a bus master.
    assert_eq!(set(4, 4), here);
    for bar in [0x18, 0x1c, 0x24] {
        assert_eq!(set(bar, u32::MAX), here);
    }
    f.b.set32(f.bus, 1);
    let go_on = |b: &mut Bench| {
        b.advance(5_000_000);
        for _ in 0..1000 {
            let _ = shared.lock().step();
        }
    };
    let replays = stats(&shared).replays;
    go_on(&mut f.b);
    assert_eq!(f.b.ram32(f.bus + 8), 7);
    assert!(stats(&shared).replays > replays, "it tries again");
    // What the third one waits for is mapped, and flushed where the registers were.
    f.b.vram_write(late, &(page | 0x77).to_le_bytes());
    let flush = |gpu: &mut Gpu| gpu.mmio_write(0x7f000, &[0; 4]);
    assert_eq!((f.b.ram32(page + 4), f.b.ram32(f.bus + 16)), (0, 0));
    flush(&mut shared.lock());
    go_on(&mut f.b);
    assert_eq!((f.b.ram32(page + 4), f.b.ram32(f.bus + 16)), (9, 10));
    let gpu = shared.lock();
    assert_eq!(gpu.soc.log.stats.user_errors, 0);
    assert_eq!(gpu.soc.log.errors().count(), 0);
    drop(gpu);
    // The next place counts from when decoding is on again.
    set(0x18, 0xfe40_0000);
    set(0x1c, 0);
    set(0x24, 0xfe90_0000);
    let there = set(4, 6);
    assert_eq!(
        (there.doorbells, there.registers),
        (0xfe40_0000, 0xfe90_0000)
    );
}

/// A part of the bus that is mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    start: u64,
    end: u64,
    /// Where it lies in the file, if there is one.
    file: Option<u64>,
    write: bool,
}

/// What is mapped for DMA: a plain list, by ascending address.
#[derive(Default)]
struct Mapped(Vec<Piece>);

/// Bytes of the file that is mapped.
const FILE: u64 = 1 << 20;

impl Mapped {
    fn map(&mut self, at: u64, size: u64, file: Option<u64>, write: bool) {
        let Some(end) = at.checked_add(size).filter(|_| size > 0) else {
            return;
        };
        let free = self.0.iter().all(|p| p.end <= at || end <= p.start);
        let whole = |o: u64| o % 4096 == 0 && o.checked_add(size).is_some_and(|e| e <= FILE);
        if free && file.is_none_or(whole) {
            let start = at;
            self.0.push(Piece {
                start,
                end,
                file,
                write,
            });
            self.0.sort_by_key(|p| p.start);
        }
    }

    /// False if it cuts a page of a mapping; nothing is unmapped then.
    fn unmap(&mut self, at: u64, size: u64) -> bool {
        let end = at.saturating_add(size);
        let mut left = Vec::new();
        for p in &self.0 {
            if p.end <= at || end <= p.start {
                left.push(p.clone());
                continue;
            }
            if p.start < at {
                left.push(Piece {
                    end: at,
                    ..p.clone()
                });
            }
            if end < p.end {
                let file = p.file.map(|o| o + (end - p.start));
                left.push(Piece {
                    start: end,
                    file,
                    ..p.clone()
                });
            }
            let inside = |cut: u64| p.start < cut && cut < p.end && (cut - p.start) % 4096 != 0;
            if inside(at) || inside(end) {
                return false;
            }
        }
        self.0 = left;
        true
    }

    /// The device finds what the file has there, and nothing else.
    fn check(&self, shared: &Shared, file: &File) {
        let gpu = shared.lock();
        let mem = &gpu.soc.mem;
        let ranges: Vec<_> = self.0.iter().map(|p| p.start..p.end).collect();
        assert_eq!(mem.dma_ranges(), ranges);
        let master = mem.bus_master();
        mem.set_bus_master(true);
        for p in &self.0 {
            for at in [p.start, p.start.midpoint(p.end), p.end - 1] {
                let len = 16.min(p.end - at) as usize;
                let (mut found, mut want) = ([0; 16], [0; 16]);
                let there = mem.read(Phys::Bus(at), &mut found[..len]).is_ok();
                // The device drives 48 address bits.
                let reached = p.file.is_some() && (at + len as u64 - 1) >> 48 == 0;
                assert_eq!(there, reached, "{p:x?}");
                let writable = mem.exists(Phys::Bus(at), true);
                assert_eq!(writable, reached && p.write, "{p:x?}");
                if let Some(file_at) = p.file.filter(|_| reached) {
                    file.read_exact_at(&mut want[..len], file_at + (at - p.start))
                        .unwrap();
                    assert_eq!(found, want, "{p:x?} at {at:#x}");
                }
            }
            for beside in [p.start.wrapping_sub(1), p.end] {
                let mapped = self
                    .0
                    .iter()
                    .any(|p| p.file.is_some() && (p.start..p.end).contains(&beside));
                assert_eq!(
                    mem.exists(Phys::Bus(beside), false),
                    mapped && beside >> 48 == 0
                );
            }
        }
        mem.set_bus_master(master);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// No order of requests upsets the device, and DMA mappings are those that a list of pages would be.
    #[test]
    fn requests_in_any_order(ops in vec(op(), 1..120)) {
        let (shared, _vram) = device();
        let meter = Meter::start();
        let mut backend = Backend::new(Arc::clone(&shared), Subsystem::default());
        let ram = make_vram(FILE).unwrap();
        // Each dword says where it is.
        let words = (0..FILE as u32 / 4).flat_map(|n| (n ^ 0x5a5a_0000).to_le_bytes());
        ram.write_all_at(&words.collect::<Vec<u8>>(), 0).unwrap();
        let mut mapped = Mapped::default();
        for op in ops {
            match op {
                Op::Read(r, at, n) => {
                    let mut data = vec![0xa5; n];
                    backend.region_read(r, at, &mut data).unwrap();
                    if r == CONFIG {
                        let mut want = vec![0xff; n];
                        let all = |i: u64| at.checked_add(i).filter(|&a| a < SPACE);
                        for (i, byte) in (0..).zip(&mut want) {
                            if let Some(at) = all(i) {
                                backend.region_read(CONFIG, at, std::slice::from_mut(byte)).unwrap();
                            }
                        }
                        prop_assert_eq!(data, want);
                    }
                }
                Op::Write(r, at, data) => backend.region_write(r, at, &data).unwrap(),
                Op::Map { at, size, offset, file, write } => {
                    let flags = if write { DmaMapFlags::READ | DmaMapFlags::WRITE } else { DmaMapFlags::READ };
                    mapped.map(at, size, file.then_some(offset), write);
                    let file = file.then(|| ram.try_clone().unwrap());
                    backend.dma_map(flags, offset, at, size, file).unwrap();
                }
                Op::Unmap { at, size, all } => {
                    let flags = if all { DmaUnmapFlags::UNMAP_ALL } else { DmaUnmapFlags::empty() };
                    let done = backend.dma_unmap(flags, at, size).map_err(|e| e.kind());
                    let fits = all || mapped.unmap(at, size);
                    if all {
                        mapped = Mapped::default();
                    }
                    prop_assert_eq!(done, if fits { Ok(()) } else { Err(ErrorKind::InvalidInput) });
                }
                Op::Irqs { index, flags, count, event: _ } => {
                    backend.set_irqs(index, flags, 0, count, Vec::new()).unwrap();
                }
                Op::Reset => {
                    backend.reset().unwrap();
                    let mut all = vec![0; SPACE as usize];
                    backend.region_read(CONFIG, 0, &mut all).unwrap();
                    prop_assert_eq!(all, read(&config()));
                }
            }
            let _ = shared.lock().step();
            mapped.check(&shared, &ram);
        }
        backend.reset().unwrap();
        backend.region_write(CONFIG, 4, &[6, 0]).unwrap();
        let mut size = [0; 4];
        backend.region_read(BAR5, 0x378c, &mut size).unwrap();
        prop_assert_eq!(u32::from_le_bytes(size), (VRAM >> 20) as u32);
        prop_assert!(meter.most() < GROWTH, "{} bytes more", meter.most());
    }
}
