// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The side of the VMM: whatever it reads, writes and maps, the function stays the one that it is.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::fixture::Fixture;
use common::queue::{wait_mem, write_data};
use common::{Bench, RAM_BUS};
use gpu_model::asic::GFX90A;
use gpu_model::clock::Clock;
use gpu_model::device::Gpu;
use gpu_model::pci::{ConfigSpace, Subsystem};
use gpu_model::server::{make_vram, serve, Backend, Shared};
use gpu_model::soc::NoMsi;
use gpu_model::trace::Log;
use proptest::collection::vec;
use proptest::prelude::*;
use vfio_user::{Client, DmaMapFlags, DmaUnmapFlags, ServerBackend};

const VRAM: u64 = 64 << 20;
const BAR0: u32 = 0;
const BAR2: u32 = 2;
const BAR5: u32 = 5;
const CONFIG: u32 = 7;
/// Bytes of configuration space, BAR2 and BAR5.
const SPACE: u64 = 4096;
const DOORBELLS: u64 = 2 << 20;
const REGISTERS: u64 = 512 << 10;

fn device() -> (Arc<Shared>, File) {
    let vram = make_vram(VRAM).unwrap();
    let gpu = Gpu::new(
        &GFX90A,
        GFX90A.board,
        vram.try_clone().unwrap(),
        VRAM,
        Clock::Real(Instant::now()),
        Log::new(1024, None, false),
        Box::new(NoMsi),
    );
    (Shared::new(gpu.unwrap()), vram)
}

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

/// An offset in a space of `size` bytes, often near its ends, and now and then outside.
fn offset(size: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..size,
        2 => 0..64u64,
        1 => (size - 16)..(size + 16),
        1 => any::<u64>(),
    ]
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
    let mut f = Fixture::new(&GFX90A, 0x45, 4096);
    f.preempt();
    let mut other = f.p.queue(&mut f.b);
    let bell = DOORBELL_BAR + other.doorbell;
    f.p.set_pte(&mut f.b, BELL_PAGE, (bell & !0xfff) | 0x77);
    f.p.set_pte(&mut f.b, FLUSH_PAGE, (REGISTER_BAR + 0x7f000) | 0x77);
    let mut list = f.p.map_process(&f.b, 2);
    list.extend(f.q.map_queues());
    list.extend(other.map_queues());
    f.b.run_list(&list, false, 1);
    f.b.run();
    // The self-ring aperture.
    f.b.wr(0x3480 + 0xf4 * 4, DOORBELL_BAR as u32);
    f.b.wr(0x3480 + 0xf3 * 4, 0);
    f.b.wr(0x3480 + 0xf5 * 4, 3);
    // The first queue waits for memory, then flushes and rings for the other one.
    other.push(&mut f.b, &write_data(f.va + 8, 7));
    f.q.push(&mut f.b, &wait_mem(f.va, 1));
    f.q.push(&mut f.b, &write_data(FLUSH_PAGE, 0));
    let wptr = other.wptr as u32;
    f.q.send(&mut f.b, &write_data(BELL_PAGE + (bell & 0xfff), wptr));
    f.b.no_errors();
    let (ram, at) = (f.b.ram_file(), f.bus - RAM_BUS);
    let Bench { gpu, now, .. } = f.b;
    let shared = Shared::new(gpu);
    let mut backend = Backend::new(Arc::clone(&shared), Subsystem::default());
    let mut set = |at: u64, value: u32| {
        let bytes = value.to_le_bytes();
        backend.region_write(CONFIG, at, &bytes).unwrap();
        shared.lock().soc.bars
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
    ram.write_all_at(&1u32.to_le_bytes(), at).unwrap();
    now.fetch_add(5_000_000, std::sync::atomic::Ordering::Relaxed);
    for _ in 0..1000 {
        let _ = shared.lock().step();
    }
    let mut word = [0; 4];
    ram.read_exact_at(&mut word, at + 8).unwrap();
    assert_eq!(u32::from_le_bytes(word), 7);
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

/// Something that a VMM does.
#[derive(Debug, Clone)]
enum Op {
    Read(u32, u64, usize),
    Write(u32, u64, Vec<u8>),
    Map {
        at: u64,
        size: u64,
        offset: u64,
        file: bool,
        write: bool,
    },
    Unmap {
        at: u64,
        size: u64,
        all: bool,
    },
    Irqs {
        index: u32,
        flags: u32,
        count: u32,
    },
    Reset,
}

fn region() -> impl Strategy<Value = (u32, u64)> {
    prop_oneof![
        3 => Just((CONFIG, SPACE)),
        2 => Just((BAR5, REGISTERS)),
        1 => Just((BAR2, DOORBELLS)),
        1 => Just((BAR0, VRAM)),
        1 => (0u32..12).prop_map(|r| (r, SPACE)),
    ]
    .prop_flat_map(|(r, size)| offset(size).prop_map(move |at| (r, at)))
}

fn op() -> impl Strategy<Value = Op> {
    // Addresses that meet each other, in pages and not.
    let place = || prop_oneof![4 => (0u64..32).prop_map(|n| n << 12), 1 => any::<u64>()];
    let size =
        || prop_oneof![4 => (0u64..16).prop_map(|n| n << 12), 1 => any::<u64>(), 1 => 0u64..5000];
    prop_oneof![
        4 => (region(), 0usize..17).prop_map(|((r, at), n)| Op::Read(r, at, n)),
        4 => (region(), vec(any::<u8>(), 0..17)).prop_map(|((r, at), d)| Op::Write(r, at, d)),
        2 => (place(), size(), place(), any::<bool>(), any::<bool>())
            .prop_map(|(at, size, offset, file, write)| Op::Map { at, size, offset, file, write }),
        2 => (place(), size(), prop::bool::weighted(0.1)).prop_map(|(at, size, all)| Op::Unmap { at, size, all }),
        1 => (0u32..6, any::<u32>(), 0u32..3).prop_map(|(index, flags, count)| Op::Irqs { index, flags, count }),
        1 => Just(Op::Reset),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// No order of requests upsets the device, and DMA mappings are those that a list of pages would be.
    #[test]
    fn requests_in_any_order(ops in vec(op(), 1..120)) {
        let (shared, _vram) = device();
        let mut backend = Backend::new(Arc::clone(&shared), Subsystem::default());
        let ram = make_vram(1 << 20).unwrap();
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
                    let file = file.then(|| ram.try_clone().unwrap());
                    backend.dma_map(flags, offset, at, size, file).unwrap();
                }
                Op::Unmap { at, size, all } => {
                    let flags = if all { DmaUnmapFlags::UNMAP_ALL } else { DmaUnmapFlags::empty() };
                    backend.dma_unmap(flags, at, size).unwrap();
                    let gpu = shared.lock();
                    let end = at.saturating_add(size);
                    let left: Vec<_> = gpu.soc.mem.dma_ranges().into_iter().filter(|r| all || r.start < end && at < r.end).collect();
                    prop_assert_eq!(left, vec![]);
                }
                Op::Irqs { index, flags, count } => backend.set_irqs(index, flags, 0, count, Vec::new()).unwrap(),
                Op::Reset => {
                    backend.reset().unwrap();
                    let mut all = vec![0; SPACE as usize];
                    backend.region_read(CONFIG, 0, &mut all).unwrap();
                    prop_assert_eq!(all, read(&config()));
                }
            }
            let _ = shared.lock().step();
            // Mappings do not overlap.
            let gpu = shared.lock();
            let mut end = 0;
            for range in gpu.soc.mem.dma_ranges() {
                prop_assert!(range.start >= end && range.start < range.end, "{:?}", range);
                end = range.end;
            }
        }
        backend.reset().unwrap();
        backend.region_write(CONFIG, 4, &[6, 0]).unwrap();
        let mut size = [0; 4];
        backend.region_read(BAR5, 0x378c, &mut size).unwrap();
        prop_assert_eq!(u32::from_le_bytes(size), (VRAM >> 20) as u32);
    }
}

/// Waits until the server listens.
fn connect(socket: &std::path::Path) -> Client {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match Client::new(socket) {
            Ok(client) => return client,
            Err(e) => assert!(Instant::now() < end, "{e}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// What comes over the socket is what the backend says: each message of one client, against a backend of its own.
    #[test]
    fn messages_say_what_the_backend_says(ops in vec(op(), 1..80)) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("dev");
        let (shared, vram) = device();
        let server = std::thread::spawn({
            let (shared, socket) = (Arc::clone(&shared), socket.clone());
            move || serve(&socket, &shared, &vram, Subsystem::default())
        });
        let mut client = connect(&socket);
        let (mine, _vram) = device();
        let mut backend = Backend::new(mine, Subsystem::default());
        let ram = make_vram(1 << 20).unwrap();
        let inside = |r: u32, at: u64, n: usize| {
            let size = match r { CONFIG => SPACE, BAR5 => REGISTERS, BAR2 => DOORBELLS, _ => 0 };
            n > 0 && at.checked_add(n as u64).is_some_and(|end| end <= size)
        };
        for op in ops {
            match op {
                // Clocks and counters of the registers differ between two devices.
                Op::Read(r, at, n) if inside(r, at, n) => {
                    let (mut a, mut b) = (vec![0x5a; n], vec![0xa5; n]);
                    client.region_read(r, at, &mut a).unwrap();
                    backend.region_read(r, at, &mut b).unwrap();
                    if r != BAR5 {
                        prop_assert_eq!(a, b);
                    }
                }
                Op::Write(r, at, data) if inside(r, at, data.len()) => {
                    client.region_write(r, at, &data).unwrap();
                    backend.region_write(r, at, &data).unwrap();
                }
                Op::Map { at, size, offset, file: true, write: _ } => {
                    let fd = std::os::fd::AsRawFd::as_raw_fd(&ram);
                    client.dma_map(offset, at, size, fd).unwrap();
                }
                Op::Unmap { at, size, all: false } => client.dma_unmap(at, size).unwrap(),
                Op::Reset => {
                    client.reset().unwrap();
                    backend.reset().unwrap();
                }
                _ => {}
            }
        }
        client.reset().unwrap();
        let mut size = [0; 4];
        client.region_read(BAR5, 0x378c, &mut size).unwrap();
        prop_assert_eq!(u32::from_le_bytes(size), (VRAM >> 20) as u32);
        client.shutdown().unwrap();
        drop(client);
        server.join().expect("no panic").expect("an orderly end");
        prop_assert!(shared.lock().latency.access.count() > 0);
    }
}
