// SPDX-License-Identifier: GPL-2.0 OR MIT
//! 4: a mirror. The GPU gets memory of the program, at the address that it has for the program.

use std::env;
use std::error::Error;
use std::ffi::CStr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

use nix::errno::Errno;
use rkfd::native::{Filling, QueueKind, Rights, Space};
use rkfd::sys::Mapping;

const LIMIT_MS: u32 = 60_000;
const PAGE: usize = 4096;
const QUEUE_AT: u64 = 0x2_0000_0000;
const TEXT: &CStr = c"no buffer, no copy of the library's";

fn main() -> Result<(), Box<dyn Error>> {
    let node = env::args().nth(1);
    let memory = Mapping::anonymous(2 * PAGE)?;
    let from = memory.as_ptr();
    let to = from.wrapping_add(PAGE);
    let fence = to.wrapping_add(64).cast::<u32>();

    let space = Space::open(node.as_deref().unwrap_or("/dev/dri/renderD128"))?;
    let show = |filling| {
        let at = from as u64;
        // SAFETY: only the packets below use the memory, and pointers alone do meanwhile.
        unsafe { space.mirror(from, 2 * PAGE, at, Rights::Write, filling) }
    };
    let (mirror, filled) = match show(Filling::OnAccess) {
        Err(e) if e.errno() == Some(Errno::EOPNOTSUPP) => (show(Filling::AtOnce)?, "at once"),
        other => (other?, "by accesses"),
    };
    let queue = space.queue(QueueKind::Sdma, QUEUE_AT)?;

    let bytes = TEXT.to_bytes_with_nul();
    // SAFETY: the text fits the page, and no packet runs yet.
    unsafe { from.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    let halves = |pointer: usize| [pointer as u32, (pointer >> 32) as u32];
    let mut packets = vec![1, 64 - 1, 0]; // COPY, linear: how many bytes, less 1; 0
    packets.extend([halves(from as usize), halves(to as usize)].concat());
    packets.push(5); // FENCE
    packets.extend(halves(fence as usize));
    packets.push(1);
    queue.submit(&packets)?;
    // SAFETY: aligned, in memory that is mapped; all access to it is atomic.
    let fence = unsafe { AtomicU32::from_ptr(fence) };
    let mut ms = 0;
    while fence.load(Ordering::Acquire) != 1 {
        assert!(ms < LIMIT_MS);
        sleep(Duration::from_millis(1));
        ms += 1;
    }
    let shown = mirror.query()?.bytes;
    // SAFETY: the packets are done, and the page ends in zeros.
    let copied = unsafe { CStr::from_ptr(to.cast()) };
    println!("filled {filled}; the GPU reaches {shown} bytes");
    println!("copied by pointers: {}", copied.to_str()?);
    assert!(copied == TEXT && shown > 0);

    drop(memory);
    let shown = mirror.query()?.bytes;
    println!("after munmap it reaches {shown}");
    assert_eq!(shown, 0);
    Ok(())
}
