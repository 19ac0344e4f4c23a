// SPDX-License-Identifier: GPL-2.0 OR MIT
//! 3: a queue. Two packets for a copy engine: one that stores 16 bytes, and one that says so.

use std::env;
use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

use rkfd::native::{Heap, QueueKind, Rights, Space};

const LIMIT_MS: u32 = 60_000;
const PAGE: usize = 4096;
const AT: u64 = 0x1_0000_0000;
const FENCE: usize = 64;
const FENCE_AT: u64 = AT + FENCE as u64;
const QUEUE_AT: u64 = 0x2_0000_0000;

fn low(address: u64) -> u32 {
    address as u32 // CAST: the low half.
}

fn high(address: u64) -> u32 {
    (address >> 32) as u32 // CAST: the high half.
}

fn main() -> Result<(), Box<dyn Error>> {
    let node = env::args().nth(1);
    let space = Space::open(node.as_deref().unwrap_or("/dev/dri/renderD128"))?;
    let bo = space.bo(Heap::System, PAGE)?;
    let mut list = space.list();
    list.map(AT, &bo, 0, PAGE, Rights::Write)?;
    space.bind(&list)?;
    let queue = space.queue(QueueKind::Sdma, QUEUE_AT)?;

    let mut packets = vec![
        2, // WRITE, linear
        low(AT),
        high(AT), // where to
        4 - 1,    // how many dwords follow, less 1
    ];
    for dword in b"Hello from SDMA\0".chunks_exact(4) {
        packets.push(u32::from_le_bytes(dword.try_into()?));
    }
    packets.extend([
        5, // FENCE
        low(FENCE_AT),
        high(FENCE_AT), // where to
        1,              // what is stored when all before is done
    ]);
    queue.submit(&packets)?;

    let mut ms = 0;
    while bo.read_u32(FENCE)? != 1 {
        assert!(ms < LIMIT_MS);
        sleep(Duration::from_millis(1));
        ms += 1;
    }
    let mut text = Vec::new();
    for at in (0..16).step_by(4) {
        text.extend(bo.read_u32(at)?.to_le_bytes());
    }
    let text = String::from_utf8(text)?;
    let text = text.trim_end_matches('\0');
    let fence = bo.read_u32(FENCE)?;
    println!("the fence is {fence}, and the memory says: {text}");
    assert_eq!(text, "Hello from SDMA");
    Ok(())
}
