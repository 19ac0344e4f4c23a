// SPDX-License-Identifier: GPL-2.0 OR MIT
//! 5: a signal. The first AQL packets do nothing but wait for a signal and complete another one.

use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

use rkfd::device::Device;
use rkfd::event::{Event, Waited};
use rkfd::queue::{Queue, QueueKind, QueueOptions};
use rkfd::signal::Signals;

const GATE: usize = 0;
const DONE: usize = 1;
const LIMIT: Duration = Duration::from_secs(60);

/// Type BARRIER_AND (3), barrier bit (8), acquire (9) and release (11) of the system (2).
const HEADER: u16 = 3 | (1 << 8) | (2 << 9) | (2 << 11);

/// Puts an address into two dwords of a packet.
fn put(packet: &mut [u32; 16], dword: usize, address: u64) {
    packet[dword] = address as u32; // CAST: the low half.
    packet[dword + 1] = (address >> 32) as u32;
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::first()?;
    let queue = Queue::new(&device, QueueOptions::new(QueueKind::Aql))?;
    let signals = Signals::new(&device, 2)?;

    // Polled: nothing but loads of memory.
    let mut packet = [0; 16];
    signals.store(DONE, 1)?;
    put(&mut packet, 14, signals.address(DONE)?); // completion_signal
    queue.stage_aql(&packet, HEADER)?;
    queue.flush();
    let mut ms = 0;
    while signals.load(DONE)? > 0 {
        assert!(ms < LIMIT.as_millis());
        sleep(Duration::from_millis(1));
        ms += 1;
    }
    println!("polled: the signal is {}", signals.load(DONE)?);
    assert_eq!(signals.load(DONE)?, 0);

    // Asleep: the completion raises an event. Before, the packet waits for the program.
    let event = Event::new(&device, true)?;
    signals.attach(DONE, &event)?;
    signals.store(GATE, 1)?;
    signals.store(DONE, 1)?;
    put(&mut packet, 2, signals.address(GATE)?); // dep_signal[0]
    queue.stage_aql(&packet, HEADER)?;
    queue.flush();
    let value = signals.load(DONE)?;
    println!("the gate is shut: the signal is {value}");
    assert_eq!(value, 1);
    signals.store(GATE, 0)?;
    assert_eq!(event.wait(LIMIT)?, Waited::Complete);
    let value = signals.load(DONE)?;
    println!("asleep until the event: the signal is {value}");
    assert_eq!(value, 0);
    Ok(())
}
