// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Compiled kernels on a GPU, every result compared with the same on the CPU, as TAP.
//!
//! The kernels are those of `tools/selftests/kernels`, compiled for the GPU into the directory that `RKFD_KERNELS` names,
//! below which each GPU has its own. Arguments choose cases by parts of their names. `KFD_REQUIRE_GPU` makes it a failure
//! that there is no GPU; `TAP_PATIENCE` multiplies the time that waits may take.

// A case fails by a panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod tap;

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread;

use rkfd::code::arguments::Value;
use rkfd::code::dispatch::Dispatch;
use rkfd::code::dispatch::Kernargs;
use rkfd::code::error::CodeError;
use rkfd::code::program::Kernel;
use rkfd::code::program::Program;
use rkfd::code::target::Target;
use rkfd::device::Device;
use rkfd::error::Error;
use rkfd::memory::Buffer;
use rkfd::memory::Kind;
use rkfd::packet::aql::Barrier;
use rkfd::packet::aql::BarrierKind;
use rkfd::packet::aql::Scope;
use rkfd::queue::Queue;
use rkfd::queue::QueueKind;
use rkfd::queue::QueueOptions;
use rkfd::signal::Signals;

use tap::patience;
use tap::Case;

const CASES: &[Case] = &[
    ("a vector is added: HIP", vector_add),
    ("a vector is added: assembly", vector_add_by_hand),
    ("OpenCL C with group memory of the launch's size", opencl),
    ("lanes through LDS, read and waited for by hand", lanes),
    ("what a launch says of itself, and variables", geometry),
    ("reduction", reduction),
    ("histogram", histogram),
    ("transpose", transpose),
    ("prefix scan in three launches", scan),
    ("matrices by tiles in LDS", gemm),
    ("matrices by MFMA", gemm_mfma),
    ("loops that diverge", collatz),
    ("recursion", recursion),
    ("16 KiB of private memory for each work-item", scratch),
    (
        "counters that CPU and GPU add to at the same time",
        shared_counters,
    ),
    ("a million and some work-items", many),
    ("group memory that the launch sizes", reverse),
    ("launches that depend on each other", chain),
    (
        "queues that wait for each other by barrier packets",
        across_queues,
    ),
    ("eight queues at once", many_queues),
    ("eight processes at once", many_processes),
    ("programs and launches that cannot be", refused),
];

/// A queue with what launches need.
struct Bench {
    device: Arc<Device>,
    queue: Queue,
    kernargs: Kernargs,
    done: Signals,
}

impl Bench {
    fn new(device: &Arc<Device>) -> Self {
        Self {
            device: device.clone(),
            queue: Queue::new(device, QueueOptions::new(QueueKind::Aql)).unwrap(),
            kernargs: Kernargs::new(device, 1 << 20).unwrap(),
            done: Signals::new(device, 1).unwrap(),
        }
    }

    /// Launches a kernel behind all others.
    fn launch(&self, dispatch: Dispatch<'_>) {
        self.queue.dispatch(&dispatch, &self.kernargs).unwrap();
    }

    /// Launches a kernel, and waits for its end.
    fn run(&self, dispatch: Dispatch<'_>) {
        self.done.store(0, 1).unwrap();
        self.launch(dispatch.completion(self.done.address(0).unwrap()));
        self.await_end();
    }

    /// Waits for the end of the launch that has the signal.
    fn await_end(&self) {
        let value = self.done.wait_below(0, 1, patience());
        if let Err(e) = value {
            panic!("{e}; the queue: {:?}", self.queue.error());
        }
    }

    fn memory(&self, bytes: usize) -> Buffer {
        Buffer::new(&self.device, Kind::Gtt, bytes).unwrap()
    }

    fn vram(&self, bytes: usize) -> Buffer {
        Buffer::new(&self.device, Kind::Vram, bytes).unwrap()
    }
}

fn kernel_file(device: &Device, name: &str) -> Vec<u8> {
    let root = env::var_os("RKFD_KERNELS")
        .expect("RKFD_KERNELS names the directory of the compiled kernels");
    let target = Target::from_version(device.gfx()).expect("a GPU that is known");
    let path = PathBuf::from(root)
        .join(target.processor().unwrap())
        .join(name);
    fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn load(device: &Arc<Device>, name: &str) -> Arc<Program> {
    Program::load(device, &kernel_file(device, name)).unwrap()
}

fn hip(device: &Arc<Device>, kernel: &str) -> Kernel {
    load(device, "hip.co").kernel(kernel).unwrap()
}

/// Numbers without a pattern, the same each time.
fn noise(count: usize) -> Vec<u32> {
    let mut state = 0x1234_5678_u32;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state
        })
        .collect()
}

/// Small whole numbers, whose sums and products are exact.
fn small_floats(count: usize) -> Vec<f32> {
    noise(count).iter().map(|n| (n % 15) as f32 - 7.0).collect()
}

/// Others of them.
fn other_floats(count: usize) -> Vec<f32> {
    small_floats(count + 11)
        .into_iter()
        .rev()
        .take(count)
        .collect()
}

trait Number: Copy + PartialEq + std::fmt::Debug {
    const BYTES: usize;
    fn put(self, to: &mut Vec<u8>);
    fn get(from: &[u8]) -> Self;
}

macro_rules! number {
    ($($ty:ty)*) => { $(
        impl Number for $ty {
            const BYTES: usize = size_of::<$ty>();
            fn put(self, to: &mut Vec<u8>) {
                to.extend(self.to_le_bytes());
            }
            fn get(from: &[u8]) -> Self {
                Self::from_le_bytes(from.try_into().unwrap())
            }
        }
    )* };
}

number!(u8 u32 u64 f32 f64);

fn fill<T: Number>(buffer: &Buffer, values: &[T]) {
    let mut bytes = Vec::new();
    values.iter().for_each(|v| v.put(&mut bytes));
    buffer.write_bytes(0, &bytes).unwrap();
}

fn contents<T: Number>(buffer: &Buffer, count: usize) -> Vec<T> {
    let mut bytes = vec![0; count * T::BYTES];
    buffer.read_bytes(0, &mut bytes).unwrap();
    bytes.chunks_exact(T::BYTES).map(T::get).collect()
}

/// Compares, and names the first difference.
fn same<T: Number>(found: &[T], wanted: &[T]) {
    assert_eq!(found.len(), wanted.len());
    let wrong = found.iter().zip(wanted).position(|(f, w)| f != w);
    if let Some(at) = wrong {
        let count = found.iter().zip(wanted).filter(|(f, w)| f != w).count();
        panic!(
            "{count} of {} differ, the first at {at}: {:?} instead of {:?}",
            wanted.len(),
            found[at],
            wanted[at]
        );
    }
}

fn line(items: usize, group: u16) -> ([u32; 3], [u16; 3]) {
    ([u32::try_from(items).unwrap(), 1, 1], [group, 1, 1])
}

fn along(kernel: &Kernel, items: usize, group: u16) -> Dispatch<'_> {
    let (grid, group) = line(items, group);
    Dispatch::new(kernel).grid(grid).group(group)
}

fn vector_add(device: &Arc<Device>) {
    let bench = Bench::new(device);
    let kernel = hip(device, "vector_add");
    // The last work-group is not whole; results in each kind of memory.
    let n = 1000;
    let (a, b) = (small_floats(n), other_floats(n));
    let wanted: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    let (left, right) = (bench.memory(4 * n), bench.vram(4 * n));
    fill(&left, &a);
    fill(&right, &b);
    device.flush_host_data_path();
    for out in [bench.memory(4 * n + 4), bench.vram(4 * n + 4)] {
        fill(&out, &vec![0xdead_beef_u32; n + 1]);
        device.flush_host_data_path();
        bench.run(
            along(&kernel, n, 256)
                .argument(&left)
                .argument(&right)
                .argument(&out)
                .argument(n as u32),
        );
        same(&contents::<f32>(&out, n), &wanted);
        assert_eq!(out.read_u32(4 * n).unwrap(), 0xdead_beef, "behind the end");
    }
}

fn vector_add_by_hand(device: &Arc<Device>) {
    let bench = Bench::new(device);
    let kernel = load(device, "assembly.co").kernel("vadd_by_hand").unwrap();
    let n = 640;
    let (a, b) = (small_floats(n), other_floats(n));
    let wanted: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    let (left, right, out) = (
        bench.memory(4 * n),
        bench.memory(4 * n),
        bench.memory(4 * n),
    );
    fill(&left, &a);
    fill(&right, &b);
    let addresses = [&left, &right, &out]
        .map(|b| b.address().to_le_bytes())
        .concat();
    bench.run(along(&kernel, n, 64).raw_arguments(&addresses));
    same(&contents::<f32>(&out, n), &wanted);
}

fn opencl(device: &Arc<Device>) {
    let bench = Bench::new(device);
    let kernel = load(device, "opencl.co").kernel("weighted").unwrap();
    assert_eq!(kernel.program().object().version(), 4);
    let n = 512;
    let input = noise(n);
    let (from, to) = (bench.memory(4 * n), bench.memory(4 * n));
    fill(&from, &input);
    bench.run(
        along(&kernel, n, 128)
            .argument(&to)
            .argument(&from)
            .argument(Value::Local(4 * 128))
            .argument(Value::Local(4 * 128))
            .argument(n as u32),
    );
    let weights = [1u32, 10, 100, 1000];
    let wanted: Vec<u32> = (0..n)
        .map(|i| input[i ^ 1].wrapping_mul(weights[(i ^ 2) % 4]))
        .collect();
    same(&contents(&to, n), &wanted);
}

fn lanes(device: &Arc<Device>) {
    let bench = Bench::new(device);
    let kernel = hip(device, "lanes");
    let out = bench.memory(4 * 1024);
    bench.run(along(&kernel, 1024, 256).argument(&out));
    let wanted: Vec<u32> = (0..1024u32)
        .map(|i| (i % 256) ^ 1)
        .map(|neighbour| neighbour % 64 + 100 * (neighbour / 64))
        .collect();
    same(&contents(&out, 1024), &wanted);
}

fn geometry(device: &Arc<Device>) {
    let bench = Bench::new(device);
    let program = load(device, "hip.co");
    let kernel = program.kernel("geometry").unwrap();
    let out = bench.memory(4 * 8 * 6);
    let variable = program.symbol("answer").unwrap();
    assert_eq!(variable.size, 4);
    // Three work-groups in x, the last of 4 work-items; two in y, the last of one.
    bench.run(
        Dispatch::new(&kernel)
            .grid([36, 9, 1])
            .group([16, 8, 1])
            .argument(&out),
    );
    let primes = [2u32, 3, 5, 7];
    let mut wanted: Vec<u32> = Vec::new();
    for y in 0..2 {
        for x in 0..3 {
            let size = [if x == 2 { 4 } else { 16 }, if y == 1 { 1 } else { 8 }, 1];
            wanted.extend(size);
            wanted.extend([36, 9, 1, 42, primes[x + y]]);
        }
    }
    same(&contents(&out, wanted.len()), &wanted);
}

fn reduction(device: &Arc<Device>) {
    let bench = Bench::new(device);
    let kernel = hip(device, "reduce");
    let input = noise(100_003);
    let (from, sum) = (bench.memory(4 * input.len()), bench.memory(8));
    fill(&from, &input);
    bench.run(
        along(&kernel, 256 * 16, 256)
            .argument(&sum)
            .argument(&from)
            .argument(input.len() as u32),
    );
    let wanted: u64 = input.iter().map(|n| u64::from(*n)).sum();
    assert_eq!(sum.read_u64(0).unwrap(), wanted);
}

fn histogram(device: &Arc<Device>) {
    let bench = Bench::new(device);
    let kernel = hip(device, "histogram");
    let input: Vec<u8> = noise(60_001)
        .iter()
        .map(|n| ((n >> 8) & (n >> 20)) as u8)
        .collect();
    let (from, bins) = (bench.memory(input.len()), bench.memory(4 * 256));
    fill(&from, &input);
    bench.run(
        along(&kernel, 256 * 8, 256)
            .argument(&bins)
            .argument(&from)
            .argument(input.len() as u32),
    );
    let mut wanted = vec![0u32; 256];
    input.iter().for_each(|n| wanted[usize::from(*n)] += 1);
    same(&contents(&bins, 256), &wanted);
}

fn transpose(device: &Arc<Device>) {
    let bench = Bench::new(device);
    let kernel = hip(device, "transpose");
    let (width, height) = (97, 130);
    let input = small_floats(width * height);
    let (from, to) = (bench.memory(4 * input.len()), bench.memory(4 * input.len()));
    fill(&from, &input);
    let grid = [
        width.div_ceil(32) as u32 * 32,
        height.div_ceil(32) as u32 * 8,
        1,
    ];
    bench.run(
        Dispatch::new(&kernel)
            .grid(grid)
            .group([32, 8, 1])
            .argument(&to)
            .argument(&from)
            .argument(width as u32)
            .argument(height as u32),
    );
    let wanted: Vec<f32> = (0..width * height)
        .map(|i| input[(i % height) * width + i / height])
        .collect();
    same(&contents(&to, wanted.len()), &wanted);
}

fn scan(device: &Arc<Device>) {
    let bench = Bench::new(device);
    let program = load(device, "hip.co");
    let (blocks, add) = (
        program.kernel("scan_blocks").unwrap(),
        program.kernel("scan_add").unwrap(),
    );
    let n = 256 * 100 + 77;
    let input = noise(n);
    let groups = n.div_ceil(256);
    let (data, sums, top) = (
        bench.memory(4 * n),
        bench.memory(4 * groups),
        bench.memory(4),
    );
    fill(&data, &input);
    bench.launch(
        along(&blocks, groups * 256, 256)
            .argument(&data)
            .argument(&sums)
            .argument(n as u32),
    );
    bench.launch(
        along(&blocks, 256, 256)
            .argument(&sums)
            .argument(&top)
            .argument(groups as u32),
    );
    bench.run(
        along(&add, groups * 256, 256)
            .argument(&data)
            .argument(&sums)
            .argument(n as u32),
    );
    let mut sum = 0u32;
    let wanted: Vec<u32> = input
        .iter()
        .map(|n| {
            sum = sum.wrapping_add(*n);
            sum
        })
        .collect();
    same(&contents(&data, n), &wanted);
}

fn product(a: &[f32], b: &[f32], n: usize) -> Vec<f32> {
    let element =
        |row: usize, column: usize| (0..n).map(|k| a[row * n + k] * b[k * n + column]).sum();
    (0..n * n).map(|i| element(i / n, i % n)).collect()
}

fn multiply(device: &Arc<Device>, name: &str, group: [u16; 3], grid: [u32; 3], n: usize) {
    let bench = Bench::new(device);
    let kernel = hip(device, name);
    let (a, b) = (small_floats(n * n), other_floats(n * n));
    let [c, left, right] = [(); 3].map(|()| bench.memory(4 * n * n));
    fill(&left, &a);
    fill(&right, &b);
    bench.run(
        Dispatch::new(&kernel)
            .grid(grid)
            .group(group)
            .argument(&c)
            .argument(&left)
            .argument(&right)
            .argument(n as u32),
    );
    same(&contents(&c, n * n), &product(&a, &b, n));
}

fn gemm(device: &Arc<Device>) {
    multiply(device, "gemm", [16, 16, 1], [80, 80, 1], 80);
}

fn gemm_mfma(device: &Arc<Device>) {
    if device.gfx() != 90010 {
        // The compiler leaves the kernel out for others.
        assert!(load(device, "hip.co").kernel("gemm_mfma").is_err());
        return;
    }
    multiply(device, "gemm_mfma", [64, 1, 1], [64 * 5, 5, 1], 80);
}

fn collatz(device: &Arc<Device>) {
    let bench = Bench::new(device);
    let kernel = hip(device, "collatz");
    let n = 5000;
    let out = bench.memory(4 * n);
    bench.run(along(&kernel, n, 256).argument(&out).argument(n as u32));
    let steps = |start: u64| {
        let (mut value, mut count) = (start, 0u32);
        while value != 1 && count != 1001 {
            value = if value % 2 == 1 {
                3 * value + 1
            } else {
                value / 2
            };
            count += 1;
        }
        count
    };
    let wanted: Vec<u32> = (1..=n as u64).map(steps).collect();
    same(&contents(&out, n), &wanted);
}

fn tree(depth: u32, seed: u32) -> u32 {
    let own: Vec<u32> = (0..4u32)
        .map(|i| seed.wrapping_mul(i + 1).wrapping_add(depth))
        .collect();
    let at = |n: u32| own[(seed.wrapping_add(n) % 4) as usize];
    if depth == 0 {
        return at(0);
    }
    tree(depth - 1, at(0))
        .wrapping_add(tree(depth - 1, at(1)))
        .wrapping_add(at(2))
}

fn recursion(device: &Arc<Device>) {
    let bench = Bench::new(device);
    let kernel = hip(device, "recursion");
    assert!(kernel.code().descriptor.uses_dynamic_stack());
    let n = 256;
    let out = bench.memory(4 * n);
    bench.run(along(&kernel, n, 64).argument(&out).argument(4u32));
    let wanted: Vec<u32> = (0..n as u32).map(|i| tree(4 + i % 3, i)).collect();
    same(&contents(&out, n), &wanted);
    assert!(bench.queue.scratch_bytes() >= 16384);
}

fn scratch(device: &Arc<Device>) {
    let bench = Bench::new(device);
    let program = load(device, "hip.co");
    let kernel = program.kernel("scratch").unwrap();
    assert!(kernel.code().descriptor.private_bytes >= 16384);
    // Other work before it, so that memory comes while the queue is in use.
    let add = program.kernel("step").unwrap();
    let (out, data) = (bench.memory(4 * 192), bench.memory(4 * 256));
    bench.launch(
        along(&add, 256, 256)
            .argument(&data)
            .argument(256u32)
            .argument(5u32),
    );
    assert_eq!(bench.queue.scratch_bytes(), 0);
    bench.run(along(&kernel, 192, 64).argument(&out).argument(1365u32));
    let wanted: Vec<u32> = (0..192u32)
        .map(|i| {
            let mut own = vec![0; 4096];
            (0..4096u32).for_each(|n| own[(n.wrapping_mul(1365) % 4096) as usize] = n ^ i);
            (0..4096u32).step_by(64).fold(0u32, |sum, n| {
                sum.wrapping_mul(31)
                    .wrapping_add(own[((n + i) % 4096) as usize])
            })
        })
        .collect();
    same(&contents(&out, 192), &wanted);
    same(&contents(&data, 256), &[5u32; 256]);
}

fn shared_counters(device: &Arc<Device>) {
    let bench = Bench::new(device);
    let kernel = hip(device, "shared_counters");
    // Fine-grained, as system memory of the kernel is here.
    let memory = bench.memory(64);
    let (items, rounds, own) = (256u32, 16u32, 4000u64);
    bench.done.store(0, 1).unwrap();
    bench.launch(
        along(&kernel, items as usize, 64)
            .argument(Value::Address(memory.address()))
            .argument(Value::Address(memory.address() + 16))
            .argument(Value::Address(memory.address() + 32))
            .argument(rounds)
            .completion(bench.done.address(0).unwrap()),
    );
    let at = |offset: usize| memory.address() as usize + offset;
    // SAFETY: aligned words of the buffer, which outlives them; the GPU's accesses are atomic, too.
    let (integer, single, twice) = unsafe {
        (
            AtomicU64::from_ptr(at(0) as *mut u64),
            AtomicU32::from_ptr(at(16) as *mut u32),
            AtomicU64::from_ptr(at(32) as *mut u64),
        )
    };
    for _ in 0..own {
        integer.fetch_add(1, Ordering::Relaxed);
        let add = |bits| Some((f32::from_bits(bits) + 1.0).to_bits());
        single
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .unwrap();
        let add = |bits| Some((f64::from_bits(bits) + 0.5).to_bits());
        twice
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .unwrap();
    }
    bench.await_end();
    let gpu = u64::from(items * rounds);
    assert_eq!(integer.load(Ordering::Acquire), ((gpu * 3) << 20) + own);
    let sum = (gpu + own) as f64;
    assert_eq!(
        f64::from(f32::from_bits(single.load(Ordering::Acquire))),
        sum
    );
    assert_eq!(f64::from_bits(twice.load(Ordering::Acquire)), sum / 2.0);
}

fn many(device: &Arc<Device>) {
    let bench = Bench::new(device);
    let kernel = hip(device, "many");
    let n = (1 << 20) + 37;
    let out = bench.memory(4 * n);
    bench.run(along(&kernel, n, 256).argument(&out).argument(n as u32));
    let hash = |i: u32| {
        let x = (i ^ (i >> 16)).wrapping_mul(0x7feb_352d);
        let x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
        x ^ (x >> 16)
    };
    let wanted: Vec<u32> = (0..n as u32).map(hash).collect();
    same(&contents(&out, n), &wanted);
}

fn reverse(device: &Arc<Device>) {
    let bench = Bench::new(device);
    let kernel = hip(device, "reverse");
    let input = noise(4 * 192);
    let data = bench.memory(4 * input.len());
    fill(&data, &input);
    bench.run(
        along(&kernel, input.len(), 192)
            .dynamic_group_bytes(4 * 192)
            .argument(&data),
    );
    let wanted: Vec<u32> = input
        .chunks(192)
        .flat_map(|c| c.iter().rev().copied())
        .collect();
    same(&contents(&data, input.len()), &wanted);
}

/// What `step` makes of 0 in so many rounds.
fn stepped(rounds: u32) -> u32 {
    (0..rounds).fold(0u32, |x, round| x.wrapping_mul(3).wrapping_add(round))
}

/// Launches `rounds` steps, one behind the other, by the barrier bit or by barrier packets, and waits for the last.
fn run_chain(bench: &Bench, kernel: &Kernel, rounds: u32, packets: bool) {
    let n = 1024;
    let data = bench.memory(4 * n);
    bench.done.store(0, 1).unwrap();
    for round in 0..rounds {
        let mut dispatch = along(kernel, n, 256)
            .argument(&data)
            .argument(n as u32)
            .argument(round)
            .barrier(!packets)
            .scopes(Scope::Agent, Scope::Agent);
        if round + 1 == rounds {
            dispatch = dispatch
                .scopes(Scope::Agent, Scope::System)
                .completion(bench.done.address(0).unwrap());
        }
        bench
            .queue
            .stage_dispatch(&dispatch, &bench.kernargs)
            .unwrap();
        if packets {
            let barrier = Barrier {
                kind: BarrierKind::And,
                dependencies: [0; 5],
                completion: 0,
            };
            let (packet, header) = barrier.encode().unwrap();
            bench.queue.stage_aql(&packet, header).unwrap();
        }
    }
    bench.queue.flush();
    bench.await_end();
    same(&contents(&data, n), &vec![stepped(rounds); n]);
}

fn chain(device: &Arc<Device>) {
    let mut bench = Bench::new(device);
    let kernel = hip(device, "step");
    // More than the ring has.
    for packets in [false, true] {
        run_chain(&bench, &kernel, 100, packets);
        bench.kernargs.clear();
    }
}

fn across_queues(device: &Arc<Device>) {
    let benches = [Bench::new(device), Bench::new(device)];
    let kernel = hip(device, "step");
    let n = 512;
    let data = benches[0].memory(4 * n);
    let rounds = 20u32;
    // The queues take turns: each step ends in a signal that the other queue's barrier waits for.
    let turns = Signals::new(device, rounds as usize).unwrap();
    for round in 0..rounds {
        turns.store(round as usize, 1).unwrap();
    }
    for round in 0..rounds {
        let bench = &benches[round as usize % 2];
        if let Some(before) = round.checked_sub(1) {
            let mut dependencies = [0; 5];
            dependencies[2] = turns.address(before as usize).unwrap();
            let barrier = Barrier {
                kind: BarrierKind::And,
                dependencies,
                completion: 0,
            };
            let (packet, header) = barrier.encode().unwrap();
            bench.queue.submit_aql(&packet, header).unwrap();
        }
        bench.launch(
            along(&kernel, n, 128)
                .argument(&data)
                .argument(n as u32)
                .argument(round)
                .completion(turns.address(round as usize).unwrap()),
        );
    }
    turns
        .wait_below(rounds as usize - 1, 1, patience())
        .unwrap();
    same(&contents(&data, n), &vec![stepped(rounds); n]);
}

fn many_queues(device: &Arc<Device>) {
    let kernel = hip(device, "step");
    thread::scope(|scope| {
        for n in 0..8 {
            let kernel = &kernel;
            scope.spawn(move || run_chain(&Bench::new(device), kernel, 20 + n, n % 2 == 0));
        }
    });
}

fn many_processes(_device: &Arc<Device>) {
    let this = env::current_exe().unwrap();
    let number = CASES
        .iter()
        .position(|(name, _)| name.starts_with("launches that"))
        .unwrap();
    let children: Vec<_> = (0..8)
        .map(|_| {
            Command::new(&this)
                .args(["--case", &number.to_string()])
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}

fn code_error<T: std::fmt::Debug>(result: rkfd::error::Result<T>) -> CodeError {
    match result.unwrap_err() {
        Error::Code(error) => error,
        other => panic!("{other:?}"),
    }
}

fn refused(device: &Arc<Device>) {
    let bench = Bench::new(device);
    assert!(matches!(
        code_error(Program::load(device, b"no")),
        CodeError::Elf(_)
    ));
    let mut other = kernel_file(device, "hip.co");
    // The machine in e_flags.
    other[48] = if other[48] == 0x2f { 0x3f } else { 0x2f };
    let wrong = code_error(Program::load(device, &other));
    assert!(matches!(wrong, CodeError::WrongIsa { .. }), "{wrong}");
    let program = load(device, "hip.co");
    assert!(matches!(
        code_error(program.kernel("none")),
        CodeError::NoKernel { .. }
    ));
    assert!(matches!(
        code_error(program.symbol("none")),
        CodeError::NoSymbol(_)
    ));
    let kernel = program.kernel("step").unwrap();
    let launch =
        |dispatch: Dispatch<'_>| code_error(bench.queue.dispatch(&dispatch, &bench.kernargs));
    let data = bench.memory(4096);
    let with =
        |dispatch: Dispatch<'_>| launch(dispatch.argument(&data).argument(1u32).argument(2u32));
    for (wrong, text) in [
        (with(along(&kernel, 0, 64)), "Work-items in a dimension"),
        (with(along(&kernel, 64, 0)), "Work-items in a dimension"),
        (
            with(along(&kernel, 2048, 512)),
            "Work-items of a work-group: 512 where 256",
        ),
        (
            with(along(&kernel, 64, 64).dynamic_group_bytes(65537)),
            "group memory: 65537 where 65536",
        ),
        (
            launch(along(&kernel, 64, 64)),
            "0 arguments where the kernel has 3",
        ),
        (
            with(along(&kernel, 64, 64).argument(1u32)),
            "4 arguments where the kernel has 3",
        ),
        (
            launch(
                along(&kernel, 64, 64)
                    .argument(1u64)
                    .argument(1u64)
                    .argument(1u32),
            ),
            "Argument 1: 8 bytes where it has 4",
        ),
        (
            launch(
                along(&kernel, 64, 64)
                    .argument(Value::Local(4))
                    .argument(1u32)
                    .argument(1u32),
            ),
            "Argument 0: global_buffer takes no size",
        ),
    ] {
        assert!(wrong.to_string().contains(text), "{wrong}: {text}");
    }
    let fits = along(&kernel, 64, 64)
        .argument(&data)
        .argument(64u32)
        .argument(2u32);
    assert!(bench
        .queue
        .dispatch(&fits.clone().private_bytes(1 << 20), &bench.kernargs)
        .is_err());
    // Nothing of all that went into the queue.
    assert_eq!(bench.queue.write_pointer(), 0);
    bench.run(fits);
    same(&contents(&data, 65), &[vec![2u32; 64], vec![0]].concat());
}

fn main() {
    tap::main(CASES);
}
