// SPDX-License-Identifier: GPL-2.0

//! CREATE_EVENT, DESTROY_EVENT, SET_EVENT, RESET_EVENT, WAIT_EVENTS.

use super::call::Call;
use crate::{
    event::{
        payload::Payload,
        table::{
            Kind,
            Status,
            WaitItem, //
        },
        wait::{
            WaitError,
            WAIT_LIST_LIMIT, //
        },
    },
    kfd::uapi::{
        CreateEvent,
        EventData,
        EventId,
        WaitEvents,
        MMAP_TYPE_EVENTS,
        WAIT_COMPLETE,
        WAIT_FAIL,
        WAIT_TIMEOUT, //
    },
};
use kernel::{
    prelude::*,
    transmute::AsBytes,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

/// Creates an event; the first call of a process that wants signal events brings the signal page.
///
/// # Errors
///
/// - `EINVAL`: the page is set already, or the handle names no suitable buffer.
/// - `ENOMEM`: a signal event without a page; no memory.
/// - `ENOSPC`: too many events.
pub(super) fn create_event(call: &Call<'_>, args: &mut CreateEvent) -> Result {
    if args.page_offset != 0 {
        call.process.set_signal_page(args.page_offset)?;
    }
    args.page_offset = 0;
    let kind = Kind::from_user(args.event_type);
    let id = call.process.events.create(kind, args.auto_reset != 0)?;
    args.event_id = id;
    args.trigger_data = id;
    if kind.has_slot() {
        args.slot_index = id;
        args.page_offset = MMAP_TYPE_EVENTS;
    }
    Ok(())
}

/// Destroys an event; waits for it fail.
///
/// # Errors
///
/// Those of [`Events::destroy`](crate::event::Events::destroy).
pub(super) fn destroy_event(call: &Call<'_>, args: &mut EventId) -> Result {
    call.process.events.destroy(args.event_id)
}

/// Signals an event.
///
/// # Errors
///
/// Those of [`Events::set`](crate::event::Events::set).
pub(super) fn set_event(call: &Call<'_>, args: &mut EventId) -> Result {
    call.process.events.set(args.event_id)
}

/// Takes a signal back.
///
/// # Errors
///
/// Those of [`Events::reset`](crate::event::Events::reset).
pub(super) fn reset_event(call: &Call<'_>, args: &mut EventId) -> Result {
    call.process.events.reset(args.event_id)
}

/// Sleeps until events are signalled.
///
/// # Errors
///
/// - `ENOMEM`: more than 4096 entries, or no memory.
/// - `EFAULT`: the list cannot be read or written.
/// - `EINVAL`: an unknown event.
/// - `EIO`: an event of the list was destroyed.
/// - `ERESTARTSYS`: a Unix signal; the time-out was replaced by what is left of it.
pub(super) fn wait_events(call: &Call<'_>, args: &mut WaitEvents) -> Result {
    let outcome = wait(call, args);
    args.wait_result = match outcome {
        Ok(result) => result,
        Err(_) => WAIT_FAIL,
    };
    outcome.map(|_| ())
}

fn wait(call: &Call<'_>, args: &mut WaitEvents) -> Result<u32> {
    if args.num_events > WAIT_LIST_LIMIT {
        return Err(ENOMEM);
    }
    let count = usize::try_from(args.num_events)?;
    let items = read_list(args.events_ptr, count)?;
    let all = args.wait_for_all != 0;
    let waited = match call.process.events.wait(&items, all, args.timeout) {
        Ok(waited) => waited,
        Err(WaitError::Destroyed) => return Err(EIO),
        Err(WaitError::Interrupted(left)) => {
            if let Some(left) = left {
                args.timeout = left;
            }
            return Err(ERESTARTSYS);
        }
        Err(WaitError::Other(error)) => return Err(error),
    };
    if waited.status != Status::Complete {
        return Ok(WAIT_TIMEOUT);
    }
    for (position, payload) in &waited.results {
        write_payload(args.events_ptr, *position, payload)?;
    }
    Ok(WAIT_COMPLETE)
}

fn read_list(address: u64, count: usize) -> Result<KVVec<WaitItem>> {
    let mut items = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
    let address = usize::try_from(address)?;
    let len = count * core::mem::size_of::<EventData>();
    let mut reader = UserSlice::new(UserPtr::from_addr(address), len).reader();
    for _ in 0..count {
        let entry: EventData = reader.read()?;
        let [age_low, age_high, ..] = entry.data;
        items
            .push_within_capacity(WaitItem {
                id: entry.event_id,
                last_age: u64::from(age_high) << 32 | u64::from(age_low),
            })
            .map_err(|_| ENOMEM)?;
    }
    Ok(items)
}

/// Writes what one event reports. Entries without a report stay as they are: user space tells a
/// report by its GPU id.
fn write_payload(list: u64, position: usize, payload: &Payload) -> Result {
    let offset = position * core::mem::size_of::<EventData>();
    let address = usize::try_from(list)?.checked_add(offset).ok_or(EFAULT)?;
    let bytes = match payload {
        Payload::None => return Ok(()),
        Payload::Memory(data) => data.as_bytes(),
        Payload::HwException(data) => data.as_bytes(),
        Payload::Age(age) => AsBytes::as_bytes(age),
    };
    UserSlice::new(UserPtr::from_addr(address), bytes.len())
        .writer()
        .write_slice(bytes)
}
