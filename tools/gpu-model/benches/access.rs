// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What an access by GPU address costs, in time of the processor: other programs beside it do not count.
//!
//! The pages lie in VRAM behind four levels of tables of 4 KiB pages, and all of them are in the shared cache when the
//! clock starts.
#![allow(missing_docs, reason = "criterion's macros make public items")]
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark that cannot be set up is to end"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use gfx9_isa::env::{Memory, Wide};
use gpu_model::asic::Asic;
use gpu_model::clock::Clock;
use gpu_model::device::Gpu;
use gpu_model::mem::Phys;
use gpu_model::server::make_vram;
use gpu_model::soc::NoMsi;
use gpu_model::trace::Log;
use gpu_model::vm::executor::Executor;
use gpu_model::vm::hub::vm;
use gpu_model::vm::window::{PageCache, Place, Window};
use gpu_model::vm::{Access, Client, HubId, CID_TCP};
use nix::time::{clock_gettime, ClockId};

const VRAM: u64 = 64 << 20;
const VMID: u8 = 8;
/// Where the pages are for the GPU.
const BASE: u64 = 0x10_0000_0000;
/// Pages that are mapped.
const PAGES: u64 = 512;
/// Tables of the four levels, one behind the other, and the pages behind them.
const TABLES: u64 = 0x10_0000;
const DATA: u64 = 0x20_0000;

/// Time that the thread has run.
struct Processor;

fn ran() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .unwrap()
        .into()
}

impl Measurement for Processor {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        ran()
    }
    fn end(&self, start: Duration) -> Duration {
        ran().saturating_sub(start)
    }
    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }
    fn zero(&self) -> Duration {
        Duration::ZERO
    }
    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }
    fn formatter(&self) -> &dyn ValueFormatter {
        static WALL: WallTime = WallTime;
        WALL.formatter()
    }
}

const CLIENT: Client = Client {
    hub: HubId::Gfx,
    vmid: VMID,
    cid: CID_TCP,
};

/// A device with [`PAGES`] pages of one address space, all of them translated once.
fn device() -> Gpu {
    let asic = Asic::by_name("gfx906").unwrap();
    let clock = Clock::Real(Instant::now());
    let mut gpu = Gpu::new(
        asic,
        asic.board,
        make_vram(VRAM).unwrap(),
        VRAM,
        clock,
        Log::new(64, None, false),
        Box::new(NoMsi),
    )
    .unwrap();
    let put =
        |gpu: &Gpu, at: u64, v: u64| gpu.soc.mem.write(Phys::Vram(at), &v.to_le_bytes()).unwrap();
    for level in 0..3 {
        let index = (BASE >> (39 - 9 * level)) & 0x1FF;
        let table = TABLES + level * 0x1000;
        for slot in 0..512 {
            put(&gpu, table + slot * 8, 0);
        }
        put(&gpu, table + index * 8, (table + 0x1000) | 1);
    }
    for page in 0..512 {
        let entry = (DATA + page * 0x1000) | 0x71;
        put(&gpu, TABLES + 0x3000 + page * 8, entry);
    }
    let hub = gpu.soc.hub_mut(HubId::Gfx);
    let v = u32::from(VMID);
    for (r, value) in [
        (vm::PT_BASE + 2 * v, TABLES as u32 | 1),
        (vm::PT_BASE + 2 * v + 1, 0),
        (vm::PT_END + 2 * v, u32::MAX),
        (vm::PT_END + 2 * v + 1, 0xF),
        (vm::CONTEXT_CNTL + v, 1 | (3 << 1)),
    ] {
        hub.write_vm(r, value);
    }
    for page in 0..PAGES {
        gpu.soc.vm_read_u32(CLIENT, BASE + page * 0x1000).unwrap();
    }
    gpu
}

/// Addresses of dwords: `pages` pages in turn.
fn addresses(pages: u64) -> Vec<u64> {
    (0..1024)
        .map(|i| BASE + (i % pages) * 0x1000 + (i * 68) % 0x1000)
        .collect()
}

/// The packet engines, under the big lock.
fn engines(c: &mut Criterion<Processor>) {
    let mut gpu = device();
    let mut group = c.benchmark_group("engine");
    let at = addresses(32);
    group.throughput(Throughput::Elements(at.len() as u64));
    group.bench_function("read_u32", |b| {
        b.iter(|| {
            at.iter().fold(0u32, |sum, &va| {
                sum.wrapping_add(gpu.soc.vm_read_u32(CLIENT, black_box(va)).unwrap())
            })
        });
    });
    group.bench_function("write_u32", |b| {
        b.iter(|| {
            for &va in &at {
                gpu.soc
                    .vm_write(CLIENT, black_box(va), &7u32.to_le_bytes())
                    .unwrap();
            }
        });
    });
}

/// A wave, without the lock.
fn waves(c: &mut Criterion<Processor>) {
    let gpu = device();
    let mut executor = Executor::new(&gpu.soc.mem, &gpu.soc.spaces);
    let mut cache = PageCache::default();
    let mut group = c.benchmark_group("wave");
    let at = addresses(32);
    group.throughput(Throughput::Elements(at.len() as u64));
    // 32 pages fit into the cache of the wave, and all of them miss where it is not asked.
    let mut window = executor.window(CLIENT, true, &mut cache);
    let value = |window: &Window<'_>, place| match place {
        Place::Memory(frame) => window.map().load::<u32>(frame).unwrap(),
        Place::Nothing | Place::Own(_) => 0,
    };
    group.bench_function("load_own_cache", |b| {
        b.iter(|| {
            at.iter().fold(0u32, |sum, &va| {
                let (place, _) = window.translate(black_box(va), Access::Read).unwrap();
                sum.wrapping_add(value(&window, place))
            })
        });
    });
    group.bench_function("load_shared_cache", |b| {
        b.iter(|| {
            at.iter().fold(0u32, |sum, &va| {
                let va = black_box(va);
                let (place, _) = window.translate_shared(va, Access::Read).unwrap();
                sum.wrapping_add(value(&window, place))
            })
        });
    });
    let lanes: Vec<Wide> = at
        .chunks_exact(64)
        .map(|chunk| std::array::from_fn(|lane| chunk[lane]))
        .collect();
    let mut rows = [[0u32; 64]];
    group.bench_function("global_load_dword", |b| {
        b.iter(|| {
            for address in &lanes {
                window
                    .load(black_box(address), u64::MAX, 4, &mut rows)
                    .unwrap();
            }
            black_box(rows[0][63])
        });
    });
    group.bench_function("global_store_dword", |b| {
        b.iter(|| {
            for address in &lanes {
                window
                    .store(black_box(address), u64::MAX, 4, &rows)
                    .unwrap();
            }
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(Processor);
    targets = engines, waves
}
criterion_main!(benches);
