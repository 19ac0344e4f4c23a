// SPDX-License-Identifier: GPL-2.0 OR MIT
//! How workers sleep until there is a task, and threads until one has ended.

use std::sync::atomic::fence;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::device::Device;
use crate::error::Result;
use crate::event::Event;
use crate::event::Waited;
use crate::event::FIRST_AGE;

/// Wakes workers.
#[derive(Debug)]
pub(super) enum Bell {
    /// An event that kernels raise by an interrupt, those of all GPUs the same one. The others only have the page of
    /// events mapped on their GPUs.
    Event { event: Event, _others: Vec<Event> },
    /// There is no GPU: how often it was rung.
    Own(Mutex<u64>, Condvar),
}

impl Bell {
    pub(super) fn new(gpus: &[Arc<Device>]) -> Result<Self> {
        let mut events = gpus
            .iter()
            .map(|gpu| Event::new(gpu, true))
            .collect::<Result<Vec<_>>>()?;
        if events.is_empty() {
            return Ok(Self::Own(Mutex::new(0), Condvar::new()));
        }
        Ok(Self::Event {
            event: events.remove(0),
            _others: events,
        })
    }

    /// The event: the address of its slot, and its id.
    pub(super) fn event(&self) -> Option<(u64, u32)> {
        match self {
            Self::Event { event, .. } => Some((event.slot_address(), event.id())),
            Self::Own(..) => None,
        }
    }

    /// What a worker begins with.
    pub(super) fn first_age(&self) -> u64 {
        match self {
            Self::Event { .. } => FIRST_AGE,
            Self::Own(rung, _) => *rung.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Wakes all who sleep, and those who are about to.
    pub(super) fn ring(&self) {
        match self {
            // Where this fails the GPU's driver is gone; workers look by themselves now and then.
            Self::Event { event, .. } => drop(event.set()),
            Self::Own(rung, wake) => {
                *rung.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                wake.notify_all();
            }
        }
    }

    /// Sleeps until it is rung once more than `age` says. Returns whether it was.
    pub(super) fn wait(&self, age: &mut u64, limit: Duration) -> bool {
        match self {
            Self::Event { event, .. } => match event.wait_past(age, limit) {
                Ok(waited) => waited == Waited::Complete,
                Err(_) => {
                    // No driver any more. Do not become a busy loop.
                    std::thread::sleep(limit.min(Duration::from_millis(10)));
                    false
                }
            },
            Self::Own(rung, wake) => {
                let guard = rung.lock().unwrap_or_else(PoisonError::into_inner);
                let (guard, _) = wake
                    .wait_timeout_while(guard, limit, |rung| *rung == *age)
                    .unwrap_or_else(PoisonError::into_inner);
                let woken = *guard != *age;
                *age = *guard;
                woken
            }
        }
    }
}

/// Tells threads that tasks have ended.
#[derive(Debug, Default)]
pub(super) struct Ends {
    waiters: AtomicU32,
    lock: Mutex<()>,
    ended: Condvar,
}

impl Ends {
    /// A future was completed.
    pub(super) fn tell(&self) {
        // Either this sees the waiter, or the waiter sees the future: each looks after a fence that follows its store.
        fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::Relaxed) != 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.ended.notify_all();
        }
    }

    /// Waits while `is_open`, for `limit` at most: spins for a moment, then sleeps.
    pub(super) fn wait(&self, limit: Duration, is_open: impl Fn() -> bool) {
        let mut backoff = Backoff::new();
        while backoff.is_spinning() {
            if !is_open() {
                return;
            }
            backoff.pause(limit);
        }
        self.waiters.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let result = self.ended.wait_timeout_while(guard, limit, |()| is_open());
        drop(result);
        self.waiters.fetch_sub(1, Ordering::Relaxed);
    }
}
