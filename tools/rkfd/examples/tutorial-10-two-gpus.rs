// SPDX-License-Identifier: GPL-2.0 OR MIT
//! 10: two GPUs. The graph of 8, A and B on the one GPU, C and D on the other, ordered by signals alone.

use std::env;
use std::error::Error;
use std::fs;
use std::time::Duration;

use rkfd::code::dispatch::{Dispatch, Kernargs};
use rkfd::code::program::{Kernel, Program};
use rkfd::code::target::Target;
use rkfd::device::{Device, Kfd};
use rkfd::memory::{Buffer, Kind};
use rkfd::packet::aql::{Barrier, BarrierKind};
use rkfd::queue::{Queue, QueueKind, QueueOptions};
use rkfd::signal::Signals;

const LIMIT: Duration = Duration::from_secs(60);
const ITEMS: u32 = 256;
const BYTES: usize = 4 * ITEMS as usize;

/// A launch of a kernel that takes pointers and then numbers, and completes a signal.
fn node<'k>(kernel: &'k Kernel, done: u64, pointers: &[u64], numbers: &[u32]) -> Dispatch<'k> {
    let dispatch = Dispatch::new(kernel).completion(done);
    let dispatch = dispatch.grid([ITEMS, 1, 1]).group([256, 1, 1]);
    let dispatch = pointers.iter().fold(dispatch, |d, p| d.argument(*p));
    numbers.iter().fold(dispatch, |d, n| d.argument(*n))
}

fn behind(queue: &Queue, one: u64, other: u64) -> rkfd::error::Result<()> {
    let barrier = Barrier {
        kind: BarrierKind::And,
        dependencies: [one, other, 0, 0, 0],
        completion: 0,
    };
    let (packet, header) = barrier.encode()?;
    queue.stage_aql(&packet, header).map(drop)
}

fn main() -> Result<(), Box<dyn Error>> {
    let file = fs::read(env::args().nth(1).ok_or("a file of kernels")?)?;
    let kfd = Kfd::open()?;
    let gpus = kfd.gpus()?;
    let second = gpus.get(1).ok_or("this needs two GPUs")?;
    let (first, second) = (Device::open(&kfd, &gpus[0])?, Device::open(&kfd, second)?);
    for (n, gpu) in [&first, &second].into_iter().enumerate() {
        let name = Target::of_device(gpu).and_then(|target| target.processor());
        println!("GPU {n}: {}", name.ok_or("an unknown GPU")?);
    }
    let left = Queue::new(&first, QueueOptions::new(QueueKind::Aql))?;
    let right = Queue::new(&second, QueueOptions::new(QueueKind::Aql))?;
    let scale = Program::load(&first, &file)?.kernel("scale")?;
    let program = Program::load(&second, &file)?;
    let (scale_too, join) = (program.kernel("scale")?, program.kernel("join")?);
    let done = Signals::new(&first, 4)?;
    let data = Buffer::new(&first, Kind::Gtt, 5 * BYTES)?;
    done.share(&second)?;
    data.share(&second)?;
    let (kernargs, kernargs_too) = (Kernargs::new(&first, 4096)?, Kernargs::new(&second, 4096)?);
    let [a, b, c, d, input] = [0, 1, 2, 3, 4].map(|n| data.address() + n * BYTES as u64);
    let s: Vec<u64> = (0..4).flat_map(|n| done.address(n)).collect();
    (0..4).try_for_each(|n| done.store(n, 1))?;
    (0..ITEMS).try_for_each(|i| data.write_u32(4 * BYTES + 4 * i as usize, i))?;
    behind(&right, s[0], 0)?;
    right.stage_dispatch(&node(&scale_too, s[2], &[c, a], &[5, 0]), &kernargs_too)?;
    behind(&right, s[1], s[2])?;
    right.stage_dispatch(&node(&join, s[3], &[d, b, c], &[]), &kernargs_too)?;
    right.flush();
    left.stage_dispatch(&node(&scale, s[0], &[a, input], &[3, 0]), &kernargs)?;
    left.stage_dispatch(&node(&scale, s[1], &[b, a], &[2, 1]), &kernargs)?;
    left.flush();
    done.wait_below(3, 1, LIMIT)?;
    let result = |i: u32| data.read_u32(3 * BYTES + 4 * i as usize);
    for i in 0..ITEMS {
        assert_eq!(result(i)?, (2 * 3 * i + 1) * 1000 + 5 * 3 * i);
    }
    let last = result(ITEMS - 1)?;
    println!("{ITEMS} values correct, the last one is {last}");
    Ok(())
}
