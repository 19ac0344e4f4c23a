// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Events: what packets, the CPU or the driver raise and a thread sleeps on.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use library::device::Device;
use library::event;
use library::event::Awaited;
use library::event::Waited;
use library::exception::Exception;
use library::exception::ExceptionEvent;
use nix::errno::Errno;

use crate::error::array;
use crate::error::given;
use crate::error::guard;
use crate::error::release;
use crate::error::Failure;
use crate::error::Result;
use crate::gpu::Vm;
use crate::sized::answer;
use crate::sized::grows;

/// A memory access of this process's queues that no page backs or permits.
pub const RKFD_EXCEPTION_MEMORY: u32 = 0;
/// A queue that hung, a GPU that was reset or is lost.
pub const RKFD_EXCEPTION_HARDWARE: u32 = 1;

/// An event: a signal event, which packets and the CPU raise, or an exception event, which only the driver does.
#[derive(Debug)]
pub struct Event {
    device: Arc<Device>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Signal(event::Event),
    Exception(ExceptionEvent),
}

/// What the driver tells of an exception. Fields of the other kind are 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExceptionInfo {
    /// sizeof(struct rkfd_exception_info); set it before the call.
    pub size: u32,
    /// RKFD_EXCEPTION_*.
    pub kind: u32,
    /// Memory: the page's address.
    pub address: u64,
    /// The GPU's id.
    pub gpu_id: u32,
    /// Memory: 1 where there was no page.
    pub not_present: u32,
    /// Memory: 1 for a write to a page that must not be written.
    pub read_only: u32,
    /// Memory: 1 for an instruction from a page that must not be executed.
    pub no_execute: u32,
    /// Memory: 1 where the address is not exact.
    pub imprecise: u32,
    /// Memory: 0 for an ordinary fault, else KFD_MEM_ERR_* of the kernel's header.
    pub cause: u32,
    /// Hardware: 0 for a reset of the GPU, 1 for one of an engine.
    pub reset_type: u32,
    /// Hardware: 0 for a hang, 1 for a memory error.
    pub reset_cause: u32,
    /// Hardware: 1 where the contents of VRAM are gone.
    pub memory_lost: u32,
    /// 0.
    pub reserved: u32,
}

grows! {
    ExceptionInfo, "rkfd_exception_info", 56;
}

impl Event {
    /// The signal event that packets and the CPU may raise.
    pub(crate) fn signal(&self) -> Result<&event::Event> {
        match &self.kind {
            Kind::Signal(event) => Ok(event),
            Kind::Exception(_) => Err(Failure::invalid("Only the driver raises this event")),
        }
    }

    fn awaited(&self) -> &dyn Awaited {
        match &self.kind {
            Kind::Signal(event) => event,
            Kind::Exception(event) => event,
        }
    }
}

fn info_of(exception: Exception) -> ExceptionInfo {
    match exception {
        Exception::Memory {
            not_present,
            read_only,
            no_execute,
            imprecise,
            cause,
            address,
            gpu_id,
        } => ExceptionInfo {
            kind: RKFD_EXCEPTION_MEMORY,
            gpu_id,
            address,
            not_present: not_present.into(),
            read_only: read_only.into(),
            no_execute: no_execute.into(),
            imprecise: imprecise.into(),
            cause,
            ..Default::default()
        },
        Exception::Hardware {
            reset_type,
            reset_cause,
            memory_lost,
            gpu_id,
        } => ExceptionInfo {
            kind: RKFD_EXCEPTION_HARDWARE,
            gpu_id,
            reset_type,
            reset_cause,
            memory_lost: memory_lost.into(),
            ..Default::default()
        },
    }
}

fn sleep(device: &Device, events: &[&dyn Awaited], all: bool, limit_ms: u32) -> Result<()> {
    let limit = Duration::from_millis(limit_ms.into());
    match event::wait(device, events, all, limit)? {
        Waited::Complete => Ok(()),
        Waited::TimedOut => {
            let text = match events {
                [one] => format!("Waited {limit_ms} ms for event {}", one.id()),
                more => format!("Waited {limit_ms} ms for {} events", more.len()),
            };
            Err(Failure::new(Errno::ETIMEDOUT, text))
        }
    }
}

/// Creates a signal event. With `auto_reset` (not 0), a wait that it satisfies also resets it.
///
/// Packets of any GPU that the process made an event for may raise it.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_event_new(
    vm: Option<&Vm>,
    auto_reset: c_int,
    event: Option<&mut MaybeUninit<Option<Box<Event>>>>,
) -> c_int {
    guard(|| {
        let out = given(event, "event")?;
        out.write(None);
        let device = given(vm, "vm")?.device.clone();
        let kind = Kind::Signal(event::Event::new(&device, auto_reset != 0)?);
        out.write(Some(Box::new(Event { device, kind })));
        Ok(())
    })
}

/// Creates an exception event (RKFD_EXCEPTION_* kind). It stays raised once it is. Give it back with rkfd_event_free.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_exception_new(
    vm: Option<&Vm>,
    kind: u32,
    event: Option<&mut MaybeUninit<Option<Box<Event>>>>,
) -> c_int {
    guard(|| {
        let out = given(event, "event")?;
        out.write(None);
        let device = given(vm, "vm")?.device.clone();
        let kind = Kind::Exception(match kind {
            RKFD_EXCEPTION_MEMORY => ExceptionEvent::memory(&device)?,
            RKFD_EXCEPTION_HARDWARE => ExceptionEvent::hardware(&device)?,
            other => return Err(Failure::invalid(format!("No kind of exception: {other}"))),
        });
        out.write(Some(Box::new(Event { device, kind })));
        Ok(())
    })
}

/// Destroys an event; NULL is allowed. A packet that still raises it wakes nobody.
///
/// MT-Unsafe race:event: no other call may use the handle meanwhile or later.
#[no_mangle]
pub extern "C" fn rkfd_event_free(event: Option<Box<Event>>) {
    release(event);
}

/// The event's id: what a packet stores at its slot and gives its interrupt as context. 0 for NULL.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_event_id(event: Option<&Event>) -> u32 {
    event.map_or(0, |e| e.awaited().id())
}

/// Address of a signal event's slot. 0 for NULL, and for an exception event.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_event_slot(event: Option<&Event>) -> u64 {
    event
        .and_then(|e| e.signal().ok())
        .map_or(0, event::Event::slot_address)
}

/// Raises a signal event from the CPU.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_event_set(event: Option<&Event>) -> c_int {
    guard(|| Ok(given(event, "event")?.signal()?.set()?))
}

/// Takes a signal event back.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_event_reset(event: Option<&Event>) -> c_int {
    guard(|| Ok(given(event, "event")?.signal()?.reset()?))
}

/// Sleeps until the event is raised, for `limit_ms` at most: then -ETIMEDOUT. -EIO where it was destroyed meanwhile.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_event_wait(event: Option<&Event>, limit_ms: u32) -> c_int {
    guard(|| {
        let event = given(event, "event")?;
        sleep(&event.device, &[event.awaited()], true, limit_ms)
    })
}

/// Sleeps until all (`all` is not 0) or any of `count` events are raised, signals and exceptions of any GPU among each
/// other; for `limit_ms` at most, then -ETIMEDOUT. -EIO where one was destroyed meanwhile.
///
/// Each auto-reset event that was raised is reset by that, even where any one would have done: which it was is for the
/// memory to tell that its packets write. An event without auto-reset, and an exception, can be asked by a wait of 0 ms.
///
/// MT-Safe.
///
/// # Safety
/// `events` points to that many events.
#[no_mangle]
pub unsafe extern "C" fn rkfd_events_wait(
    events: *const Option<&Event>,
    count: u32,
    all: c_int,
    limit_ms: u32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let events = unsafe { array(events, count, "events") }?;
        let events = events
            .iter()
            .map(|&event| given(event, "One of the events"))
            .collect::<Result<Vec<&Event>>>()?;
        let first = given(events.first(), "events")?;
        let awaited: Vec<&dyn Awaited> = events.iter().map(|e| e.awaited()).collect();
        sleep(&first.device, &awaited, all != 0, limit_ms)
    })
}

/// Sleeps until an exception event is raised, as rkfd_event_wait, and tells what happened.
///
/// MT-Safe.
///
/// # Safety
/// `info` points to as many bytes as its `size` says.
#[no_mangle]
pub unsafe extern "C" fn rkfd_exception_wait(
    event: Option<&Event>,
    limit_ms: u32,
    info: *mut ExceptionInfo,
) -> c_int {
    guard(|| {
        let event = given(event, "event")?;
        // SAFETY: the caller's promise.
        let info = unsafe { answer(info) }?;
        let Kind::Exception(exception) = &event.kind else {
            return Err(Failure::invalid("The event is not one of an exception"));
        };
        match exception.wait(Duration::from_millis(limit_ms.into()))? {
            Some(what) => {
                info.give(info_of(what));
                Ok(())
            }
            None => Err(Failure::new(
                Errno::ETIMEDOUT,
                format!("Waited {limit_ms} ms for an exception"),
            )),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_events_are_refused() {
        let invalid = -(Errno::EINVAL as c_int);
        let none: [Option<&Event>; 1] = [None];
        // SAFETY: one element, and none.
        unsafe {
            assert_eq!(rkfd_events_wait(none.as_ptr(), 1, 0, 0), invalid);
            assert_eq!(rkfd_events_wait(none.as_ptr(), 0, 0, 0), invalid);
            assert_eq!(rkfd_events_wait(std::ptr::null(), 1, 0, 0), invalid);
        }
        assert_eq!(rkfd_exception_new(None, 0, None), invalid);
        // SAFETY: NULL is allowed.
        let waited = unsafe { rkfd_exception_wait(None, 0, std::ptr::null_mut()) };
        assert_eq!(waited, invalid);
    }

    #[test]
    fn exceptions_keep_their_fields_apart() {
        let memory = info_of(Exception::Memory {
            not_present: true,
            read_only: false,
            no_execute: true,
            imprecise: false,
            cause: 3,
            address: 0x1000,
            gpu_id: 7,
        });
        let expected = ExceptionInfo {
            kind: RKFD_EXCEPTION_MEMORY,
            gpu_id: 7,
            address: 0x1000,
            not_present: 1,
            no_execute: 1,
            cause: 3,
            ..Default::default()
        };
        assert_eq!(memory, expected);
        let hardware = info_of(Exception::Hardware {
            reset_type: 1,
            reset_cause: 2,
            memory_lost: true,
            gpu_id: 7,
        });
        let expected = ExceptionInfo {
            kind: RKFD_EXCEPTION_HARDWARE,
            gpu_id: 7,
            reset_type: 1,
            reset_cause: 2,
            memory_lost: 1,
            ..Default::default()
        };
        assert_eq!(hardware, expected);
    }
}
