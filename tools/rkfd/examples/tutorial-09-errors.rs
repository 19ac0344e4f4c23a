// SPDX-License-Identifier: GPL-2.0 OR MIT
//! 9: errors. A launch that the library refuses, a packet that the GPU does, and a kernel that reads what is not mapped.

use std::env;
use std::error::Error;
use std::fs;
use std::time::Duration;

use rkfd::code::dispatch::{Dispatch, Kernargs};
use rkfd::code::program::Program;
use rkfd::device::Device;
use rkfd::exception::{Exception, ExceptionEvent};
use rkfd::memory::{Buffer, Kind};
use rkfd::queue::error::Reason;
use rkfd::queue::{Queue, QueueKind, QueueOptions};

const LIMIT: Duration = Duration::from_secs(60);
/// Type AGENT_DISPATCH: work for who serves a queue in software, which no GPU does.
const AGENT_DISPATCH: u16 = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let file = env::args().nth(1).ok_or("a file of kernels")?;
    let device = Device::first()?;
    let queue = Queue::new(&device, QueueOptions::new(QueueKind::Aql))?;
    let peek = Program::load(&device, &fs::read(file)?)?.kernel("peek")?;
    let kernargs = Kernargs::new(&device, 4096)?;
    let out = Buffer::new(&device, Kind::Gtt, 4096)?;
    let gone = Buffer::new(&device, Kind::Gtt, 4096)?;
    let from = gone.address() + 0x123 * 4;

    // What the library can see is refused before anything is in the ring.
    let dispatch = Dispatch::new(&peek).argument(&out);
    let refused = queue.dispatch(&dispatch, &kernargs).err();
    println!(
        "refused: {}",
        refused.ok_or("launched without an argument")?
    );

    // What the packet processor does not run stops the queue for good.
    queue.stage_aql(&[0; 16], AGENT_DISPATCH)?;
    queue.flush();
    let error = queue.wait_error(LIMIT)?;
    println!(
        "stopped at packet {}: {}",
        error.packet,
        error.reason().text()
    );
    assert_eq!((error.reason(), error.packet), (Reason::PacketFormat, 0));
    let waited = queue.drain(LIMIT);
    assert!(matches!(waited, Err(rkfd::error::Error::QueueFailed(_))));
    drop(queue);

    // A kernel that leaves the address space: the GPU tells the page, by an event.
    let fault = ExceptionEvent::memory(&device)?;
    let queue = Queue::new(&device, QueueOptions::new(QueueKind::Aql))?;
    drop(gone);
    queue.dispatch(&dispatch.argument(from), &kernargs)?;
    match fault.wait(LIMIT)? {
        Some(Exception::Memory {
            address,
            not_present: true,
            ..
        }) => {
            println!("fault at {address:#x}: no page is there");
            assert_eq!(address, from & !0xfff);
        }
        other => return Err(format!("no fault of that kind: {other:?}").into()),
    }
    Ok(())
}
