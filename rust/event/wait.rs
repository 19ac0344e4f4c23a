// SPDX-License-Identifier: GPL-2.0

//! WAIT_EVENTS: the sleep of a caller until its wait is over.

use kernel::{
    prelude::*,
    sync::CondVarTimeoutResult,
    time::{
        msecs_to_jiffies,
        Delta,
        Instant,
        Jiffies,
        Monotonic, //
    },
};

use super::{
    payload::Payload,
    table::{
        Status,
        WaitEntries,
        WaitItem,
        SIGNAL_LIMIT, //
    },
    waitpoint::WaitPoint,
    Events, //
};
use crate::kapi::{
    slots::Spare,
    task::jiffies_to_msecs, //
};

/// Most entries of one wait list.
pub(crate) const WAIT_LIST_LIMIT: u32 = SIGNAL_LIMIT;

/// A time-out that returns at once.
const IMMEDIATE: u32 = 0;
/// A time-out that never comes.
const INFINITE: u32 = u32::MAX;

/// How a wait ended.
pub(crate) struct Waited {
    /// `Complete` or `Pending` (timed out).
    pub(crate) status: Status,
    /// For `Complete`: position in the list and payload of activated entries that have one.
    pub(crate) results: KVVec<(usize, Payload)>,
}

/// A wait that did not end.
pub(crate) enum WaitError {
    /// An event of the list was destroyed.
    Destroyed,
    /// A Unix signal is pending; the value is the time-out left, in ms, where it is finite.
    Interrupted(Option<u32>),
    /// As named.
    Other(Error),
}

impl From<Error> for WaitError {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl Events {
    /// WAIT_EVENTS: sleeps until one of `items` (or `all`) is signalled, or `timeout_ms` has passed.
    ///
    /// # Errors
    ///
    /// See [`WaitError`]; `Other` is `EINVAL` for an unknown id or `ENOMEM`.
    pub(crate) fn wait(
        &self,
        items: &[WaitItem],
        all: bool,
        timeout_ms: u32,
    ) -> core::result::Result<Waited, WaitError> {
        let point = WaitPoint::new()?;
        // Room for every result before anything is consumed.
        let mut results = KVVec::with_capacity(items.len(), GFP_KERNEL_ACCOUNT)
            .map_err(|e| WaitError::Other(e.into()))?;
        let entries = WaitEntries::new(items.len())?;

        let mut inner = self.lock();
        while let Some(count) = inner.table.waiter_shortage() {
            drop(inner);
            let spare = Spare::new(count)?;
            inner = self.lock();
            let old = inner.table.grow_waiters(spare);
            drop(inner);
            drop(old);
            inner = self.lock();
        }
        let waiter = inner.table.register(items, entries, point.clone())?;

        let start = Instant::<Monotonic>::now();
        let mut left = TimeLeft::new(timeout_ms);
        let mut interrupted = false;
        let outcome = loop {
            match inner.table.status(&waiter, all) {
                Status::Failed => break Err(WaitError::Destroyed),
                // What was signalled while a Unix signal came is still delivered.
                Status::Complete => break Ok(Status::Complete),
                Status::Pending if interrupted => {
                    break Err(WaitError::Interrupted(remaining_ms(
                        timeout_ms,
                        left.jiffies(),
                    )))
                }
                Status::Pending if left.jiffies() == 0 => break Ok(Status::Pending),
                Status::Pending => {}
            }
            drop(inner);
            let woken = point.sleep(left.jiffies());
            interrupted = matches!(woken, CondVarTimeoutResult::Signal { .. });
            left.slept(&woken, || start.elapsed());
            inner = self.lock();
        };

        if matches!(outcome, Ok(Status::Complete)) {
            for result in inner.table.results(&waiter) {
                // The capacity is there.
                let _ = results.push_within_capacity(result);
            }
        }
        let give_back = matches!(outcome, Err(WaitError::Interrupted(_)));
        let waiter = inner.table.unregister(waiter, give_back);
        drop(inner);
        drop(waiter);

        outcome.map(|status| Waited { status, results })
    }
}

/// The time-out of the interface in jiffies. One is added so that at least the time asked for passes.
pub(crate) fn timeout_to_jiffies(ms: u32) -> Jiffies {
    match ms {
        IMMEDIATE => 0,
        // `CondVar` takes everything that is too large for `long` as "for ever".
        INFINITE => Jiffies::MAX,
        finite => msecs_to_jiffies(finite.min(0x7fff_ffff)).saturating_add(1),
    }
}

/// How long a wait may still sleep.
pub(crate) struct TimeLeft {
    timeout_ms: u32,
    jiffies: Jiffies,
}

impl TimeLeft {
    /// Of a wait that begins.
    pub(crate) fn new(timeout_ms: u32) -> Self {
        Self {
            timeout_ms,
            jiffies: timeout_to_jiffies(timeout_ms),
        }
    }

    /// What the next sleep may take; 0 if the time-out is over.
    pub(crate) fn jiffies(&self) -> Jiffies {
        self.jiffies
    }

    /// Notes how a sleep ended, when `passed` had passed since the wait began.
    ///
    /// Where the tick that counts jiffies is late when a sleep begins, as in a virtual machine whose processors wait
    /// for the host's, the sleep times out before its time. The clock decides whether that is the end.
    pub(crate) fn slept(&mut self, woken: &CondVarTimeoutResult, passed: impl FnOnce() -> Delta) {
        self.jiffies = match woken {
            CondVarTimeoutResult::Woken { jiffies } | CondVarTimeoutResult::Signal { jiffies } => {
                *jiffies
            }
            CondVarTimeoutResult::Timeout => {
                // Longer than any finite time-out is long enough.
                let passed = u32::try_from(passed().as_millis()).unwrap_or(u32::MAX);
                timeout_to_jiffies(self.timeout_ms.saturating_sub(passed))
            }
        };
    }
}

/// What is left of `timeout_ms` when `jiffies` are left, for the caller that restarts the wait; `None`
/// if the time-out does not change.
pub(crate) fn remaining_ms(timeout_ms: u32, jiffies: Jiffies) -> Option<u32> {
    if timeout_ms == IMMEDIATE || timeout_ms == INFINITE {
        return None;
    }
    Some(jiffies_to_msecs(jiffies.saturating_sub(1)))
}
