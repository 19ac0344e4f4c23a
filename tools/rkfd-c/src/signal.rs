// SPDX-License-Identifier: GPL-2.0 OR MIT
//! HSA signals: values that AQL packets decrement.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::time::Duration;

use library::signal;

use crate::error::given;
use crate::error::guard;
use crate::error::release;
use crate::error::Failure;
use crate::error::Result;
use crate::event::Event;
use crate::gpu::Vm;

/// An array of signals, in one buffer.
#[derive(Debug)]
pub struct Signals(signal::Signals);

fn position(index: u32) -> usize {
    // CAST: 32 bits into 64.
    index as usize
}

fn of(signals: Option<&Signals>) -> Result<&signal::Signals> {
    Ok(&given(signals, "signals")?.0)
}

/// Allocates `count` signals with value 0.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_signals_new(
    vm: Option<&Vm>,
    count: u32,
    signals: Option<&mut MaybeUninit<Option<Box<Signals>>>>,
) -> c_int {
    guard(|| {
        let out = given(signals, "signals")?;
        out.write(None);
        let vm = given(vm, "vm")?;
        if count == 0 {
            return Err(Failure::invalid("No signals"));
        }
        let made = signal::Signals::new(&vm.device, position(count))?;
        out.write(Some(Box::new(Signals(made))));
        Ok(())
    })
}

/// Frees signals; NULL is allowed. A packet that still completes one faults, so wait first.
///
/// MT-Unsafe race:signals: no other call may use the handle meanwhile or later.
#[no_mangle]
pub extern "C" fn rkfd_signals_free(signals: Option<Box<Signals>>) {
    release(signals);
}

/// Lets packets of another GPU of the process wait for the signals and complete them, until they are freed: their addresses
/// are the same there. Success where they are shared already.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_signals_share(signals: Option<&Signals>, vm: Option<&Vm>) -> c_int {
    guard(|| Ok(of(signals)?.share(&given(vm, "vm")?.device)?))
}

/// A signal's address for packets; 0 for NULL and where there is no such signal.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_signals_address(signals: Option<&Signals>, index: u32) -> u64 {
    signals
        .and_then(|s| s.0.address(position(index)).ok())
        .unwrap_or(0)
}

/// Reads a signal's value, and sees everything that its packet wrote. -ERANGE where there is no such signal.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_signals_load(
    signals: Option<&Signals>,
    index: u32,
    value: Option<&mut MaybeUninit<i64>>,
) -> c_int {
    guard(|| {
        let (signals, value) = (of(signals)?, given(value, "value")?);
        value.write(signals.load(position(index))?);
        Ok(())
    })
}

/// Sets a signal's value, after everything written before. Where threads sleep in rkfd_signals_wait_below() for it, its
/// event is raised.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_signals_store(signals: Option<&Signals>, index: u32, value: i64) -> c_int {
    guard(|| Ok(of(signals)?.store(position(index), value)?))
}

/// Lets each completion of a signal raise an event, too. The event must outlive the packets.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_signals_attach(
    signals: Option<&Signals>,
    index: u32,
    event: Option<&Event>,
) -> c_int {
    guard(|| {
        let signals = of(signals)?;
        Ok(signals.attach(position(index), given(event, "event")?.signal()?)?)
    })
}

/// Waits until a signal's value is below `bound`; for `limit_ms` at most, then -ETIMEDOUT. `value`, unless NULL, receives
/// the value seen. Spins for a moment, then sleeps: until the event is raised that was attached to the signal, or for short
/// times where none was.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_signals_wait_below(
    signals: Option<&Signals>,
    index: u32,
    bound: i64,
    limit_ms: u32,
    value: Option<&mut MaybeUninit<i64>>,
) -> c_int {
    guard(|| {
        let limit = Duration::from_millis(limit_ms.into());
        let seen = of(signals)?.wait_below(position(index), bound, limit)?;
        if let Some(value) = value {
            value.write(seen);
        }
        Ok(())
    })
}
