// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A queue that the GPU does not let go. Nobody can use the GPU afterwards, so the case is there only where
//! `LIBRARY_NO_RECOVERY` is set; it needs the device model, and a driver that does not mend the GPU (`gpu_recovery=0`).

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use nix::errno::Errno;
use rkfd::backoff::wait_until;
use rkfd::device::Device;
use rkfd::queue::QueueKind;
use rkfd::signal::Signals;

use crate::barrier;
use crate::errno;
use crate::queue;
use crate::tap::patience;

/// What the device model answers.
fn model(arguments: &[&str]) -> String {
    let mut command = Command::new("rkfdctl");
    let output = command.arg("model").args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

/// The doorbells of the queues that the device model knows.
fn doorbells() -> BTreeSet<u64> {
    model(&["queues"])
        .split("\"doorbell\":")
        .skip(1)
        .filter_map(|rest| {
            let digits = rest.trim_start().split(|c: char| !c.is_ascii_digit());
            digits.into_iter().next()?.parse().ok()
        })
        .collect()
}

/// A queue that cannot be destroyed and is dropped: its memory stays, and the GPU uses it.
pub fn kept(device: &Arc<Device>) {
    let before = doorbells();
    let mut queue = queue(device, QueueKind::Aql);
    let signals = Signals::new(device, 1).unwrap();
    signals.store(0, 2).unwrap();
    let (packet, header) = barrier(signals.address(0).unwrap());
    queue.submit_aql(&packet, header).unwrap();
    signals.wait_below(0, 2, patience()).unwrap();
    queue.drain(patience()).unwrap();
    let new: Vec<u64> = doorbells().difference(&before).copied().collect();
    let [doorbell] = new[..] else {
        panic!("not one new queue: {new:?}");
    };
    model(&["fault", "ignore-reset", "--doorbell", &doorbell.to_string()]);
    // One that the GPU knows of and does not come to.
    assert_eq!(queue.submit_aql(&packet, header).unwrap(), 1);
    // At the second time the kernel does not know the queue any more. The GPU has it nevertheless.
    assert_eq!(errno(queue.destroy()), Errno::EIO);
    assert_eq!(errno(queue.destroy()), Errno::EIO);
    // CAST: addresses of a 64-bit process.
    let ring = queue.ring_address() as usize as *mut u32;
    let written = queue.write_pointer_address() as usize as *mut u64;
    let read = queue.read_pointer_address() as usize as *mut u64;
    drop(queue);
    // SAFETY: aligned, inside the ring and the queue's object, which are there until the process ends: that is what this
    // is to show.
    let (header_of_second, written, read) = unsafe {
        (
            AtomicU32::from_ptr(ring.add(16)),
            AtomicU64::from_ptr(written),
            AtomicU64::from_ptr(read),
        )
    };
    assert_eq!(
        header_of_second.load(Ordering::Acquire) & 0xffff,
        header.into()
    );
    assert_eq!(written.load(Ordering::Acquire), 2);
    assert_eq!(read.load(Ordering::Acquire), 1);
    assert_eq!(signals.load(0).unwrap(), 1);
    model(&["clear-faults"]);
    signals.wait_below(0, 1, patience()).unwrap();
    wait_until("the read index", patience(), || {
        let seen = read.load(Ordering::Acquire);
        Ok((seen == 2, seen))
    })
    .unwrap();
}
