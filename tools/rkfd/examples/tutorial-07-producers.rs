// SPDX-License-Identifier: GPL-2.0 OR MIT
//! 7: producers. Four threads put packets into one ring, without a lock.

use std::env;
use std::error::Error;
use std::fs;
use std::thread;
use std::time::Duration;

use rkfd::code::program::Program;
use rkfd::device::Device;
use rkfd::memory::{Buffer, Kind};
use rkfd::packet::aql::{KernelDispatch, Scope};
use rkfd::queue::{Queue, QueueKind, QueueOptions};
use rkfd::signal::Signals;

const LIMIT: Duration = Duration::from_secs(60);
const PRODUCERS: usize = 4;
const LAUNCHES: u32 = 32;
const KERNARG: usize = 512;

fn produce(queue: &Queue, packet: &[u32; 16], header: u16) -> rkfd::error::Result<()> {
    for _ in 0..LAUNCHES {
        for place in queue.reserve_aql(1, LIMIT)? {
            place.publish(packet, header)?;
        }
        queue.flush();
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let file = env::args().nth(1).ok_or("a file of kernels")?;
    let device = Device::first()?;
    let queue = Queue::new(&device, QueueOptions::new(QueueKind::Aql))?;
    let done = Signals::new(&device, PRODUCERS)?;
    let kernel = Program::load(&device, &fs::read(file)?)?.kernel("tally")?;
    assert!(kernel.code().kernarg_bytes() as usize <= KERNARG);
    let counts = Buffer::new(&device, Kind::Gtt, 4096)?;
    let kernargs = Buffer::new(&device, Kind::Gtt, PRODUCERS * KERNARG)?;
    let mut packets = Vec::new();
    for p in 0..PRODUCERS {
        let at = p * KERNARG;
        kernargs.write_u64(at, counts.address())?;
        kernargs.write_u32(at + 8, p.try_into()?)?;
        done.store(p, LAUNCHES.into())?;
        let dispatch = KernelDispatch {
            grid: [1; 3],
            group: [1; 3],
            private_bytes: 0,
            group_bytes: 0,
            kernel_object: kernel.address(),
            kernargs: kernargs.address() + at as u64, // CAST: a small offset.
            completion: done.address(p)?,
            barrier: false, // kernels may overlap
            acquire: Scope::System,
            release: Scope::System,
        };
        packets.push(dispatch.encode()?);
    }
    let ring = &queue;
    thread::scope(|scope| {
        let threads: Vec<_> = packets
            .iter()
            .map(|(packet, header)| scope.spawn(move || produce(ring, packet, *header)))
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a producer panicked")??;
        }
        Ok::<(), Box<dyn Error>>(())
    })?;
    for p in 0..PRODUCERS {
        done.wait_below(p, 1, LIMIT)?;
        assert_eq!(counts.read_u32(4 * p)?, LAUNCHES);
    }
    let places = queue.ring_bytes() / 64;
    print!("{PRODUCERS} threads, {LAUNCHES} launches each, one ring of {places} places: ");
    println!("each launch ran once");
    Ok(())
}
