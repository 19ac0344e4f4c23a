// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Events: what a packet raises and a thread sleeps on.
//!
//! A packet stores the event's id in the event's slot and then raises an interrupt with the same id. The slots are one
//! GTT buffer per process that the first CREATE_EVENT hands to the kernel; it cannot be freed before the process ends.
//! It is mapped on each GPU that an event was made for, so packets of any of these GPUs may raise any event.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use nix::errno::Errno;

use crate::abi;
use crate::abi::wait_result;
use crate::device::Device;
use crate::error::Error;
use crate::error::Result;
use crate::memory::Buffer;
use crate::memory::Kind;
use crate::sys;

/// Bytes of the slot page: 4096 slots of 8 bytes.
const PAGE_BYTES: usize = 0x8000;

/// The slots.
#[derive(Debug)]
struct EventPage {
    buffer: Buffer,
}

/// The slots of the process with that id. A child of `fork` inherits the value, but neither the memory nor the kernel's
/// idea of the process.
static PAGE: Mutex<Option<(u32, Arc<EventPage>)>> = Mutex::new(None);

/// What a thread can sleep on.
pub trait Awaited {
    /// Its id in the kernel.
    fn id(&self) -> u32;
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The condition came true.
    Complete,
    /// It did not in time.
    TimedOut,
}

/// A signal event; destroyed when dropped.
#[derive(Debug)]
pub struct Event {
    device: Arc<Device>,
    page: Arc<EventPage>,
    id: u32,
    slot: u32,
}

impl Event {
    /// Creates a signal event. With `auto_reset`, a wait that it satisfies also resets it.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn new(device: &Arc<Device>, auto_reset: bool) -> Result<Self> {
        let mut known = PAGE.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        if known.as_ref().is_some_and(|(owner, _)| *owner != process) {
            // The parent's: what its end would unmap and free is not here, or is something else.
            std::mem::forget(known.take());
        }
        let mut arg = abi::CreateEvent {
            event_type: abi::event_type::SIGNAL,
            auto_reset: auto_reset.into(),
            ..Default::default()
        };
        let page = match &*known {
            Some((_, page)) => {
                page.buffer.share(device)?;
                page.clone()
            }
            None => {
                let page = Arc::new(EventPage {
                    buffer: Buffer::new(device, Kind::Gtt, PAGE_BYTES)?,
                });
                arg.event_page_offset = page.buffer.handle();
                page
            }
        };
        device
            .kfd()
            .plain("CREATE_EVENT", abi::CREATE_EVENT, &mut arg)?;
        *known = Some((process, page.clone()));
        Ok(Self {
            device: device.clone(),
            page,
            id: arg.event_id,
            slot: arg.event_slot_index,
        })
    }

    /// The id: what a packet stores in the slot and gives its interrupt as context.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The slot's address.
    pub fn slot_address(&self) -> u64 {
        self.page.buffer.address() + u64::from(self.slot) * 8
    }

    /// Signals the event from the CPU.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn set(&self) -> Result<()> {
        raise(&self.device, self.id)
    }

    /// Takes the signal back.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn reset(&self) -> Result<()> {
        let mut arg = abi::ResetEvent {
            event_id: self.id,
            pad: 0,
        };
        self.device
            .kfd()
            .plain("RESET_EVENT", abi::RESET_EVENT, &mut arg)
    }

    /// Sleeps until the event's age is another than `age`, and stores it there; [`FIRST_AGE`] is what to begin with. Each
    /// signal makes the event older, so none is missed between two calls, whoever else waits and resets it.
    ///
    /// # Errors
    /// [`Error::Call`]; EIO where the event was destroyed meanwhile.
    pub fn wait_past(&self, age: &mut u64, timeout: Duration) -> Result<Waited> {
        wait_past(&self.device, self.id, age, timeout)
    }

    /// Sleeps until the event is signalled.
    ///
    /// # Errors
    /// [`Error::Call`]; EIO where the event was destroyed meanwhile.
    pub fn wait(&self, timeout: Duration) -> Result<Waited> {
        wait(&self.device, &[self], true, timeout)
    }
}

impl Awaited for Event {
    fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let mut arg = abi::DestroyEvent {
            event_id: self.id,
            pad: 0,
        };
        let _ = self
            .device
            .kfd()
            .plain("DESTROY_EVENT", abi::DESTROY_EVENT, &mut arg);
    }
}

/// Sleeps until all or any of `events` are signalled; for none of them, not at all.
///
/// Each auto-reset event that was signalled is reset by that, even where any one would have done; which it was is for
/// the memory to tell that its packets write. Events that reset only by [`Event::reset`] can be asked one by one.
///
/// # Errors
/// [`Error::Call`]; EIO where an event was destroyed meanwhile.
pub fn wait(
    device: &Device,
    events: &[&dyn Awaited],
    all: bool,
    timeout: Duration,
) -> Result<Waited> {
    let mut entries: Vec<abi::EventData> = events
        .iter()
        .map(|e| abi::EventData {
            event_id: e.id(),
            ..Default::default()
        })
        .collect();
    wait_data(device, &mut entries, all, timeout)
}

/// The age of an event that was never signalled.
pub const FIRST_AGE: u64 = 1;

/// As [`Event::wait_past`], for the event with that id.
pub(crate) fn wait_past(
    device: &Device,
    id: u32,
    age: &mut u64,
    timeout: Duration,
) -> Result<Waited> {
    let mut entry = [abi::EventData {
        event_id: id,
        last_event_age: *age,
        ..Default::default()
    }];
    let waited = wait_data(device, &mut entry, true, timeout)?;
    // 0 would ask for the next signal, whatever came before.
    *age = entry[0].last_event_age.max(FIRST_AGE);
    Ok(waited)
}

/// Raises the event with that id.
pub(crate) fn raise(device: &Device, id: u32) -> Result<()> {
    let mut arg = abi::SetEvent {
        event_id: id,
        pad: 0,
    };
    device.kfd().plain("SET_EVENT", abi::SET_EVENT, &mut arg)
}

/// As [`wait`], on entries whose payloads the kernel fills.
pub(crate) fn wait_data(
    device: &Device,
    entries: &mut [abi::EventData],
    all: bool,
    timeout: Duration,
) -> Result<Waited> {
    let num_events =
        u32::try_from(entries.len()).map_err(|_| Error::Argument("Too many events"))?;
    let mut arg = abi::WaitEvents {
        events_ptr: entries.as_mut_ptr() as u64, // CAST: an address.
        num_events,
        wait_for_all: all.into(),
        timeout: millis(timeout),
        wait_result: 0,
    };
    loop {
        // SAFETY: the pointer names `num_events` entries that live across the call.
        match unsafe { sys::call(&**device.kfd(), abi::WAIT_EVENTS, &mut arg) } {
            // The kernel stored the time that remains.
            Err(Errno::EINTR) => {}
            Err(errno) => {
                return Err(Error::Call {
                    call: "WAIT_EVENTS",
                    errno,
                })
            }
            Ok(()) if arg.wait_result == wait_result::COMPLETE => return Ok(Waited::Complete),
            Ok(()) if arg.wait_result == wait_result::TIMEOUT => return Ok(Waited::TimedOut),
            Ok(()) => {
                return Err(Error::Call {
                    call: "WAIT_EVENTS",
                    errno: Errno::EIO,
                })
            }
        }
    }
}

/// A wait in the kernel's milliseconds: never shorter than asked for, and below the largest value, which means for ever.
fn millis(timeout: Duration) -> u32 {
    u32::try_from(timeout.as_nanos().div_ceil(1_000_000))
        .unwrap_or(u32::MAX)
        .min(u32::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_rounded_up_and_end() {
        assert_eq!(millis(Duration::ZERO), 0);
        assert_eq!(millis(Duration::from_nanos(1)), 1);
        assert_eq!(millis(Duration::from_millis(7)), 7);
        assert_eq!(millis(Duration::from_micros(7001)), 8);
        assert_eq!(millis(Duration::MAX), u32::MAX - 1);
    }
}
