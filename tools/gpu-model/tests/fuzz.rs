// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A driver and its users that do anything, for as long as RKFD_FUZZ_SECONDS says (a minute unless it says):
//! packets, page tables, queue images, registers, flushes, memory that goes away.
//!
//! The seed is printed; RKFD_FUZZ_SEED=N repeats a run from its start. A failure is made smaller before it is reported.
#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing
)]

mod common;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::heap::{Counting, Meter, GROWTH};
use common::proc::Proc;
use common::queue::UserQueue;
use common::{Bench, Sys};
use gpu_model::asic::{GFX906, GFX90A};
use gpu_model::vm::range::Reading;
use gpu_model::vm::HubId;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

#[global_allocator]
static HEAP: Counting = Counting;

/// Pages of the process whose table entries change.
const PAGES: u64 = 48;

/// One thing that a driver or a user does.
#[derive(Debug, Clone)]
enum Op {
    /// Packets in a user queue, and a doorbell.
    User(usize, Vec<u32>),
    /// A doorbell that says anything.
    Bell(usize, u32),
    /// Packets in the scheduler's queue.
    Hiq(Vec<u32>),
    /// Packets in the kernel interface queue.
    Kiq(Vec<u32>),
    /// A page-table entry, and whether what the host wrote is flushed.
    Pte(u64, u64, bool),
    /// A directory entry above it.
    Pde(u64, u64, bool),
    /// A dword of a queue image.
    Mqd(usize, u64, u32),
    /// VM_INVALIDATE_ENGn_REQ of a hub.
    Flush(bool, u64, u32),
    /// VM_INVALIDATE_ENGn_ADDR_RANGE of a hub.
    Range(bool, u64, [u32; 2]),
    /// Whether ranges are read by their size bit.
    Reading(bool),
    /// The list of all queues.
    RunList(bool),
    /// UNMAP_QUEUES and QUERY_STATUS: action, filter.
    Unmap(u32, u32),
    /// A register.
    Register(u64, u32),
    /// Memory that the VMM takes away, or gives back.
    Memory(u64, bool),
    /// Bus mastering.
    Master(bool),
    /// The device works for a while.
    Run(u8, u32),
}

/// Dwords that look like packets often enough to get past the header.
fn packets() -> impl Strategy<Value = Vec<u32>> {
    let op = prop::sample::select(vec![
        0x10u32, 0x15, 0x1e, 0x22, 0x23, 0x37, 0x3c, 0x3f, 0x40, 0x46, 0x49, 0x50, 0x58, 0x68,
        0x76, 0x79, 0x98, 0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5,
    ]);
    let dword = prop_oneof![
        2 => any::<u32>(),
        3 => (op, 0u32..24).prop_map(|(op, n)| (3 << 30) | (n << 16) | (op << 8)),
        2 => 0u32..64,
        2 => Just(0x7000u32),
        2 => (0u32..PAGES as u32).prop_map(|n| n << 12),
        1 => (0u32..17, 0u32..5).prop_map(|(op, sub)| op | (sub << 8)),
    ];
    vec(dword, 1..48)
}

fn entry() -> impl Strategy<Value = u64> {
    let flags = prop_oneof![Just(0x77u64), Just(0x75), Just(1), Just(3), 0u64..0x80];
    let kind = prop_oneof![5 => Just(0u64), 1 => Just(1 << 54), 1 => Just(1 << 56), 1 => Just(9 << 59), 1 => Just(1 << 51)];
    let frame = prop_oneof![
        3 => (0u64..4096).prop_map(|n| 0x1_0000_0000 + (n << 12)),
        3 => (0u64..16384).prop_map(|n| n << 12),
        1 => any::<u64>().prop_map(|n| n & 0xffff_ffff_f000),
    ];
    prop_oneof![
        6 => (flags, kind, frame).prop_map(|(f, k, at)| f | k | at),
        1 => any::<u64>(),
        1 => Just(0),
    ]
}

fn register() -> impl Strategy<Value = u64> {
    // Queue slots, GRBM_GFX_CNTL, MEC_CNTL, soft reset, hubs, SDMA, PASID tables; or any.
    prop_oneof![
        3 => (0xc914u64..0xc9fc).prop_map(|r| r & !3),
        2 => prop::sample::select(vec![0x8088u64, 0x8234, 0xc20c, 0xc210, 0xc76c, 0x8020, 0x49a8, 0x3b2a8]),
        1 => (0xa100u64..0xa5f0).prop_map(|r| r & !3),
        1 => (0x4980u64..0x5980).prop_map(|r| r & !3),
        1 => (0x3080u64..0x31ff).prop_map(|r| r & !3),
        1 => (0u64..0x8_0000).prop_map(|r| r & !3),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let value = || prop_oneof![any::<u32>(), 0u32..16, (0u32..32).prop_map(|n| 1 << n)];
    prop_oneof![
        6 => (0usize..4, packets()).prop_map(|(q, p)| Op::User(q, p)),
        2 => (0usize..4, value()).prop_map(|(q, v)| Op::Bell(q, v)),
        1 => packets().prop_map(Op::Hiq),
        1 => packets().prop_map(Op::Kiq),
        4 => (0..PAGES, entry(), any::<bool>()).prop_map(|(n, e, f)| Op::Pte(n, e, f)),
        1 => (0..PAGES, entry(), any::<bool>()).prop_map(|(n, e, f)| Op::Pde(n, e, f)),
        3 => (0usize..4, 0u64..512, value()).prop_map(|(q, dw, v)| Op::Mqd(q, dw, v)),
        3 => (any::<bool>(), 0u64..18, value()).prop_map(|(hub, e, v)| Op::Flush(hub, e, v)),
        1 => (any::<bool>(), 0u64..18, [any::<u32>(), any::<u32>()])
            .prop_map(|(hub, e, r)| Op::Range(hub, e, r)),
        1 => any::<bool>().prop_map(Op::Reading),
        2 => any::<bool>().prop_map(Op::RunList),
        2 => (0u32..4, 0u32..4).prop_map(|(a, s)| Op::Unmap(a, s)),
        2 => (register(), value()).prop_map(|(r, v)| Op::Register(r, v)),
        1 => (0u64..64, any::<bool>()).prop_map(|(n, there)| Op::Memory(n, there)),
        1 => any::<bool>().prop_map(Op::Master),
        8 => (1u8..40, 0u32..400_000).prop_map(|(n, ns)| Op::Run(n, ns)),
    ]
}

/// A device with user queues of all kinds.
struct World {
    b: Bench,
    queues: Vec<UserQueue>,
    list: Vec<u32>,
    buffer: Sys,
    fence: Sys,
    /// VRAM offsets of table entries: leaf entries, directory entries.
    ptes: Vec<u64>,
    pdes: Vec<u64>,
}

impl World {
    fn new(gfx906: bool) -> Self {
        let mut b = Bench::quiet(if gfx906 { &GFX906 } else { &GFX90A }).schedule();
        let mut p = Proc::new(&mut b, 0xa1, 0);
        p.retry = true;
        let aql = p.queue(&mut b).into_aql(&mut b);
        let queues = vec![
            p.queue(&mut b),
            p.queue(&mut b),
            aql,
            p.sdma_queue(&mut b, 0, 0),
        ];
        let (va, _) = p.page(&mut b, PAGES * 4096);
        let at = |n: u64| va + n * 4096;
        let ptes = (0..PAGES).map(|n| p.pte_at(&mut b, at(n))).collect();
        let pdes = (0..PAGES).map(|n| p.pde_at(&mut b, at(n))).collect();
        let mut list = p.map_process(&b, 4);
        for q in &queues {
            list.extend(q.map_queues());
        }
        let (buffer, fence) = (b.alloc_sys(65536), b.alloc_sys(4096));
        let mut world = Self {
            b,
            queues,
            list,
            buffer,
            fence,
            ptes,
            pdes,
        };
        world.run_list(false);
        world.turns(50, 1000);
        world.b.no_errors();
        world
    }

    fn turns(&mut self, n: u32, ns: u32) {
        for _ in 0..n {
            self.b.advance(ns.into());
            let _ = self.b.gpu.step();
        }
    }

    fn run_list(&mut self, chain: bool) {
        let (at, mut words) = (self.buffer.gart, self.list.clone());
        let run = |size: usize, flags: u32| {
            [
                0xc002_a500,
                at as u32,
                (at >> 32) as u32,
                size as u32 | (1 << 23) | (1 << 24) | flags,
            ]
        };
        if chain {
            words.extend(run(words.len() + 4, 1 << 20));
        }
        self.b.set_words(self.buffer.bus, &words);
        self.b.submit_hiq(&run(words.len(), 0));
    }

    fn flush_host(&mut self, flush: bool) {
        if flush {
            self.b.hdp_flush();
        }
    }

    fn apply(&mut self, op: &Op) {
        let b = &mut self.b;
        match op {
            Op::User(n, words) => {
                let Some(q) = self.queues.get_mut(*n) else {
                    return;
                };
                if q.aql {
                    let count = (words.len() as u64).div_ceil(16);
                    b.set_words(q.ring, words);
                    q.wptr += count;
                    b.set64(q.ptrs + 64, q.wptr);
                    b.bell(q.doorbell, q.wptr.wrapping_sub(1));
                } else {
                    q.push(b, words);
                    q.ring_bell(b);
                }
            }
            Op::Bell(n, v) => {
                if let Some(q) = self.queues.get(*n) {
                    b.bell(q.doorbell, u64::from(*v));
                }
            }
            Op::Hiq(words) => b.submit_hiq(words),
            Op::Kiq(words) => b.submit_kiq(words),
            Op::Pte(n, entry, flush) | Op::Pde(n, entry, flush) => {
                let table = if matches!(op, Op::Pte(..)) {
                    &self.ptes
                } else {
                    &self.pdes
                };
                if let Some(&at) = table.get(*n as usize) {
                    b.vram_write(at, &entry.to_le_bytes());
                    self.flush_host(*flush);
                }
            }
            Op::Mqd(n, dw, v) => {
                if let Some(q) = self.queues.get(*n) {
                    b.set32(q.mqd.bus + dw * 4, *v);
                }
            }
            Op::Flush(mm, engine, v) => {
                let (vm, _) = b.hubs()[usize::from(*mm)];
                b.wr(vm + 0x18c + 4 * engine, *v);
            }
            Op::Range(mm, engine, [low, high]) => {
                let (vm, _) = b.hubs()[usize::from(*mm)];
                b.wr(vm + 0x21c + 8 * engine, *low);
                b.wr(vm + 0x220 + 8 * engine, *high);
            }
            Op::Reading(size_bit) => {
                b.gpu.soc.set_ranges(if *size_bit {
                    Reading::SizeBit
                } else {
                    Reading::Refuse
                });
            }
            Op::RunList(chain) => self.run_list(*chain),
            Op::Unmap(action, select) => {
                let (lo, hi) = (self.fence.gart as u32, (self.fence.gart >> 32) as u32);
                b.submit_hiq(&[0xc004_a300, action | (select << 4), 0xa1, 0, 0, 0]);
                b.submit_hiq(&[0xc005_a400, 2 << 30, 0, lo, hi, 100, 0]);
            }
            Op::Register(at, v) => {
                b.wr(*at, *v);
                b.rd(*at);
            }
            Op::Memory(n, there) => {
                let (at, size) = (common::RAM_BUS + n * 65536, 65536);
                let _ = b.gpu.soc.mem.dma_unmap(at, size);
                if *there {
                    let file = b.ram_file();
                    let _ = b
                        .gpu
                        .soc
                        .mem
                        .dma_map(at, size, Some((file, n * 65536)), true);
                }
            }
            Op::Master(on) => b.gpu.soc.mem.set_bus_master(*on),
            Op::Run(n, ns) => self.turns(u32::from(*n), *ns),
        }
    }

    /// What has to hold whatever was done.
    fn check(&mut self) -> Result<(), TestCaseError> {
        let gpu = &self.b.gpu;
        prop_assert!(gpu.hws.mapped().len() <= 64 + 8 * self.b.sdma_bases.len());
        prop_assert!(gpu.soc.log.errors().count() <= 1024);
        prop_assert!(gpu.hws.runlist().is_none_or(|l| l.retired() <= 8192));
        for hub in [HubId::Gfx, HubId::Mm] {
            for vmid in 0..16 {
                prop_assert!(gpu.soc.hub(hub).space(vmid).len() <= 16_384);
            }
        }
        prop_assert!(gpu.soc.rung() <= 4096);
        Ok(())
    }
}

/// Runs one sequence on a fresh device.
fn run(gfx906: bool, ops: &[Op]) -> Result<(), TestCaseError> {
    let mut world = World::new(gfx906);
    let meter = Meter::start();
    for op in ops {
        world.apply(op);
        world.check()?;
    }
    let most = meter.most();
    prop_assert!(most < GROWTH, "{most} bytes more");
    // A reset makes a device of it that works.
    world.b.gpu.device_reset();
    // Waves may still leave their units, and VRAM be on its way to be lost.
    world.b.run_steps(100);
    prop_assert_eq!(world.b.rd(0x378c), 64);
    let stats = &world.b.gpu.soc.log.stats;
    prop_assert_eq!(stats.queue_maps, stats.queue_unmaps);
    Ok(())
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

#[test]
fn anything_at_all() {
    let seconds = number("RKFD_FUZZ_SECONDS").unwrap_or(60);
    let seed = number("RKFD_FUZZ_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |t| t.as_nanos() as u64)
    });
    println!("RKFD_FUZZ_SEED={seed}, {seconds} s");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    let strategy = (any::<bool>(), vec(op(), 20..400));
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut count = 0;
    // One at least, however short the time.
    while count == 0 || Instant::now() < end {
        let tree = strategy.new_tree(&mut runner).expect("a sequence");
        let (gfx906, ops) = tree.current();
        // A panic is a failure as well, and is made smaller like the others.
        match runner.run_one(tree, |(gfx906, ops)| run(gfx906, &ops)) {
            Ok(_) => count += 1,
            Err(TestError::Fail(why, smallest)) => {
                panic!("RKFD_FUZZ_SEED={seed}, sequence {count}: {why}\nsmallest: {smallest:#?}")
            }
            Err(TestError::Abort(why)) => panic!("{why}: {gfx906} {ops:?}"),
        }
    }
    println!("{count} sequences");
}
