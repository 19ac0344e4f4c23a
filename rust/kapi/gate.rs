// SPDX-License-Identifier: GPL-2.0

//! A sleepable gate in front of a value that goes away while references to its owner remain.
//!
//! A [`Gate`] holds a value that many threads use and one thread takes away. Users enter, may sleep,
//! may enter again (nest), and leave by dropping the [`GateGuard`]. [`Gate::close`] refuses new
//! users, waits for those inside and hands the value back.
//!
//! It is `Revocable` with SRCU in place of RCU. The lock rule that follows: the caller of `close`
//! must hold nothing that a user inside the gate may wait for.

use core::cell::UnsafeCell;
use kernel::{
    new_srcu,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed, //
        },
        srcu,
        Srcu, //
    },
};

/// The gate is open: the value is there.
const OPEN: i32 = 0;
/// The gate is closed, or is being closed: no thread may enter.
const CLOSED: i32 = 1;

/// Holds a value until it is closed.
///
/// # Invariants
///
/// - `value` is `Some` while `state` is [`OPEN`].
/// - `value` is only written by the one caller that changed `state` to [`CLOSED`], after all
///   readers that saw [`OPEN`] have left.
#[pin_data]
pub(crate) struct Gate<T> {
    #[pin]
    srcu: Srcu,
    state: Atomic<i32>,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: A `Gate` is the value plus synchronisation; the value may be dropped elsewhere.
unsafe impl<T: Send> Send for Gate<T> {}
// SAFETY: Shared access gives `&T` (`T: Sync`) and `close` moves the value out (`T: Send`).
unsafe impl<T: Send + Sync> Sync for Gate<T> {}

impl<T> Gate<T> {
    /// Makes an open gate that holds `value`.
    pub(crate) fn new(value: T) -> impl PinInit<Self, Error> {
        // INVARIANT: The gate is open and the value is there.
        try_pin_init!(Self {
            srcu <- new_srcu!("rkfd_gate"),
            state: Atomic::new(OPEN),
            value: UnsafeCell::new(Some(value)),
        })
    }

    /// Enters the gate; `None` once it is closed. May sleep inside, may nest.
    pub(crate) fn enter(&self) -> Option<GateGuard<'_, T>> {
        let reader = self.srcu.read_lock();
        if self.state.load(Acquire) != OPEN {
            return None;
        }
        // SAFETY: The gate was seen open inside the read-side section, so by the type invariant
        // `value` is not written before this section ends, and the guard ends it.
        let value = unsafe { &*self.value.get() }.as_ref()?;
        Some(GateGuard {
            value,
            _reader: reader,
        })
    }

    /// Whether the gate is still open. The answer may be stale when it arrives.
    pub(crate) fn is_open(&self) -> bool {
        self.state.load(Relaxed) == OPEN
    }

    /// Closes the gate, waits until all users have left and returns the value.
    ///
    /// Only the first call returns it; a call that comes later, or at the same time, returns `None`
    /// at once.
    pub(crate) fn close(&self) -> Option<T> {
        self.state.cmpxchg(OPEN, CLOSED, Full).ok()?;
        // Readers that enter from here on see `CLOSED`: the grace period orders the store above
        // before their loads.
        self.srcu.synchronize();
        // SAFETY: This caller made the transition, and every reader that saw the gate open has
        // left, so by the type invariant no other thread touches `value`.
        unsafe { &mut *self.value.get() }.take()
    }
}

/// Proof that the gate is open, and access to what it holds.
///
/// Must be dropped where it was made (it is not `Send`) and must not be leaked: a leaked guard
/// blocks [`Gate::close`] forever.
pub(crate) struct GateGuard<'a, T> {
    value: &'a T,
    _reader: srcu::Guard<'a>,
}

impl<T> core::ops::Deref for GateGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
    }
}
