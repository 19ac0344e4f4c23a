// SPDX-License-Identifier: GPL-2.0 OR MIT
//! 6: a kernel. Its dispatch packet, field by field.

use std::env;
use std::error::Error;
use std::fs;
use std::time::Duration;

use rkfd::code::program::Program;
use rkfd::device::Device;
use rkfd::memory::{Buffer, Kind};
use rkfd::packet::aql::{KernelDispatch, Scope};
use rkfd::queue::{Queue, QueueKind, QueueOptions};
use rkfd::signal::Signals;

const LIMIT: Duration = Duration::from_secs(60);
const N: u32 = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let file = env::args().nth(1).ok_or("a file of kernels")?;
    let device = Device::first()?;
    let queue = Queue::new(&device, QueueOptions::new(QueueKind::Aql))?;
    let done = Signals::new(&device, 1)?;
    let program = Program::load(&device, &fs::read(file)?)?;
    let kernel = program.kernel("saxpy")?;
    let code = kernel.code();
    let x = Buffer::new(&device, Kind::Gtt, 4 * N as usize)?;
    let y = Buffer::new(&device, Kind::Gtt, 4 * N as usize)?;
    for i in 0..N {
        x.write_u32(4 * i as usize, (i as f32).to_bits())?;
        y.write_u32(4 * i as usize, ((N - i) as f32).to_bits())?;
    }

    // What the source names, each value on its own alignment.
    let kernargs = Buffer::new(&device, Kind::Gtt, code.kernarg_bytes() as usize)?;
    kernargs.write_u32(0, N)?;
    kernargs.write_u32(4, 2.5f32.to_bits())?;
    kernargs.write_u64(8, x.address())?;
    kernargs.write_u64(16, y.address())?;

    let (packet, header) = KernelDispatch {
        grid: [1024, 1, 1],
        group: [256, 1, 1],
        private_bytes: code.descriptor.private_bytes,
        group_bytes: code.descriptor.group_bytes,
        kernel_object: kernel.address(),
        kernargs: kernargs.address(),
        completion: done.address(0)?,
        barrier: true,
        acquire: Scope::System,
        release: Scope::System,
    }
    .encode()?;
    done.store(0, 1)?;
    queue.stage_aql(&packet, header)?;
    queue.flush();
    done.wait_below(0, 1, LIMIT)?;

    let value = |i: u32| y.read_u32(4 * i as usize).map(f32::from_bits);
    for i in 0..N {
        assert_eq!(value(i)?, 2.5 * i as f32 + (N - i) as f32);
    }
    let last = value(N - 1)?;
    println!("saxpy: {N} values correct, the last one is {last}");
    Ok(())
}
