// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Events: what a packet raises and a thread sleeps on.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::time::Duration;

use library::event;
use library::event::Waited;
use nix::errno::Errno;

use crate::error::given;
use crate::error::guard;
use crate::error::release;
use crate::error::Failure;
use crate::gpu::Vm;

/// A signal event.
#[derive(Debug)]
pub struct Event(pub(crate) event::Event);

/// Creates an event. With `auto_reset` (not 0), a wait that it satisfies also resets it.
///
/// The slots of all events of a process lie in one page, on the GPU of the first of them: -EINVAL for another GPU.
#[no_mangle]
pub extern "C" fn rkfd_event_new(
    vm: Option<&Vm>,
    auto_reset: c_int,
    event: Option<&mut MaybeUninit<Option<Box<Event>>>>,
) -> c_int {
    guard(|| {
        let out = given(event, "event")?;
        out.write(None);
        let made = event::Event::new(&given(vm, "vm")?.device, auto_reset != 0)?;
        out.write(Some(Box::new(Event(made))));
        Ok(())
    })
}

/// Destroys an event; NULL is allowed. A packet that still raises it wakes nobody.
#[no_mangle]
pub extern "C" fn rkfd_event_free(event: Option<Box<Event>>) {
    release(event);
}

/// The event's id: what a packet stores at its slot and gives its interrupt as context. 0 for NULL.
#[no_mangle]
pub extern "C" fn rkfd_event_id(event: Option<&Event>) -> u32 {
    event.map_or(0, |e| e.0.id())
}

/// Address of the event's slot. 0 for NULL.
#[no_mangle]
pub extern "C" fn rkfd_event_slot(event: Option<&Event>) -> u64 {
    event.map_or(0, |e| e.0.slot_address())
}

/// Raises the event from the CPU.
#[no_mangle]
pub extern "C" fn rkfd_event_set(event: Option<&Event>) -> c_int {
    guard(|| Ok(given(event, "event")?.0.set()?))
}

/// Takes the event back.
#[no_mangle]
pub extern "C" fn rkfd_event_reset(event: Option<&Event>) -> c_int {
    guard(|| Ok(given(event, "event")?.0.reset()?))
}

/// Sleeps until the event is raised, for `limit_ms` at most: then -ETIMEDOUT. -EIO where it was destroyed meanwhile.
#[no_mangle]
pub extern "C" fn rkfd_event_wait(event: Option<&Event>, limit_ms: u32) -> c_int {
    guard(|| {
        let event = given(event, "event")?;
        match event.0.wait(Duration::from_millis(limit_ms.into()))? {
            Waited::Complete => Ok(()),
            Waited::TimedOut => Err(Failure::new(
                Errno::ETIMEDOUT,
                format!("Waited {limit_ms} ms for event {}", event.0.id()),
            )),
        }
    })
}
