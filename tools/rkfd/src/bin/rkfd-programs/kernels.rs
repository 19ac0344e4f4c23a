// SPDX-License-Identifier: GPL-2.0 OR MIT
//! One kernel at a time.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use rkfd::code::arguments::Value;
use rkfd::code::dispatch::Dispatch;
use rkfd::device::Device;

use crate::bench::along;
use crate::bench::contents;
use crate::bench::fill;
use crate::bench::hip;
use crate::bench::load;
use crate::bench::noise;
use crate::bench::other_floats;
use crate::bench::same;
use crate::bench::small_floats;
use crate::bench::Bench;

pub fn vector_add(device: &Arc<Device>) {
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

pub fn vector_add_by_hand(device: &Arc<Device>) {
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

pub fn opencl(device: &Arc<Device>) {
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

pub fn lanes(device: &Arc<Device>) {
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

pub fn geometry(device: &Arc<Device>) {
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

pub fn reduction(device: &Arc<Device>) {
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

pub fn histogram(device: &Arc<Device>) {
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

pub fn transpose(device: &Arc<Device>) {
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

pub fn scan(device: &Arc<Device>) {
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

pub fn product(a: &[f32], b: &[f32], n: usize) -> Vec<f32> {
    let element =
        |row: usize, column: usize| (0..n).map(|k| a[row * n + k] * b[k * n + column]).sum();
    (0..n * n).map(|i| element(i / n, i % n)).collect()
}

pub fn multiply(device: &Arc<Device>, name: &str, group: [u16; 3], grid: [u32; 3], n: usize) {
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

pub fn gemm(device: &Arc<Device>) {
    multiply(device, "gemm", [16, 16, 1], [80, 80, 1], 80);
}

pub fn gemm_mfma(device: &Arc<Device>) {
    if device.gfx() != 90010 {
        // The compiler leaves the kernel out for others.
        assert!(load(device, "hip.co").kernel("gemm_mfma").is_err());
        return;
    }
    multiply(device, "gemm_mfma", [64, 1, 1], [64 * 5, 5, 1], 80);
}

pub fn collatz(device: &Arc<Device>) {
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

pub fn tree(depth: u32, seed: u32) -> u32 {
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

pub fn recursion(device: &Arc<Device>) {
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

pub fn scratch(device: &Arc<Device>) {
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

pub fn shared_counters(device: &Arc<Device>) {
    let bench = Bench::new(device);
    let kernel = hip(device, "shared_counters");
    // Fine-grained, as system memory of the kernel is here.
    let memory = bench.memory(64);
    // So many that a machine whose atomics are none loses some of them each time.
    let (items, rounds, own) = (256u32, 4000u32, 1_000_000u64);
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

pub fn many(device: &Arc<Device>) {
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

pub fn reverse(device: &Arc<Device>) {
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
