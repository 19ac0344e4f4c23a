// SPDX-License-Identifier: GPL-2.0 OR MIT
//! 8: a graph. A, then B and C, then D, on two queues of one GPU, ordered by barrier packets.

use std::env;
use std::error::Error;
use std::fs;
use std::time::Duration;

use rkfd::code::dispatch::{Dispatch, Kernargs};
use rkfd::code::program::{Kernel, Program};
use rkfd::device::Device;
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

/// Has what comes later in a queue wait for two signals, or for one where the other is 0.
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
    let file = env::args().nth(1).ok_or("a file of kernels")?;
    let device = Device::first()?;
    let left = Queue::new(&device, QueueOptions::new(QueueKind::Aql))?;
    let right = Queue::new(&device, QueueOptions::new(QueueKind::Aql))?;
    let done = Signals::new(&device, 4)?;
    let kernargs = Kernargs::new(&device, 4096)?;
    let data = Buffer::new(&device, Kind::Gtt, 5 * BYTES)?;
    let program = Program::load(&device, &fs::read(file)?)?;
    let (scale, join) = (program.kernel("scale")?, program.kernel("join")?);
    let [a, b, c, d, input] = [0, 1, 2, 3, 4].map(|n| data.address() + n * BYTES as u64);
    let s: Vec<u64> = (0..4).flat_map(|n| done.address(n)).collect();
    (0..4).try_for_each(|n| done.store(n, 1))?;
    (0..ITEMS).try_for_each(|i| data.write_u32(4 * BYTES + 4 * i as usize, i))?;

    // The right half first: it is there before what it waits for.
    behind(&right, s[0], 0)?;
    right.stage_dispatch(&node(&scale, s[2], &[c, a], &[5, 0]), &kernargs)?;
    behind(&right, s[1], s[2])?;
    right.stage_dispatch(&node(&join, s[3], &[d, b, c], &[]), &kernargs)?;
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
    println!("A, then B and C, then D: {ITEMS} values correct, the last one is {last}");
    Ok(())
}
