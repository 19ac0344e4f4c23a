// SPDX-License-Identifier: GPL-2.0

//! Wait queues whose waits are bounded, and killable where a user waits.
//!
//! [`CondVar`](kernel::sync::CondVar) ties every wait to a lock and offers no killable sleep. A
//! [`WaitQueue`] is the C idiom `wait_event_timeout()`: the condition is a closure over atomics,
//! checked after the task is on the queue, so that a wake-up between check and sleep is not lost.
//!
//! C header: [`include/linux/wait.h`](srctree/include/linux/wait.h)

use kernel::{
    bindings,
    ffi::{
        c_int,
        c_long,
        c_uint, //
    },
    prelude::*,
    str::CStr,
    sync::LockClassKey,
    time::Jiffies,
    types::Opaque, //
};

use core::{
    marker::PhantomPinned,
    ptr, //
};

/// Makes a [`WaitQueue`] initialiser with a lock class of its own.
macro_rules! new_waitqueue {
    ($name:literal) => {
        $crate::kapi::waitqueue::WaitQueue::new(
            ::kernel::c_str!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(crate) use new_waitqueue;

/// What may end a wait early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// Only the condition and the time-out.
    Uninterruptible,
    /// A fatal signal too: the sleeper is a user task that may be killed.
    Killable,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The condition holds.
    Met,
    /// The time is over and the condition does not hold.
    TimedOut,
    /// A fatal signal is pending and the condition does not hold.
    Killed,
}

/// A `struct wait_queue_head`.
///
/// # Invariants
///
/// The head is initialised and pinned.
#[pin_data]
pub(crate) struct WaitQueue {
    #[pin]
    head: Opaque<bindings::wait_queue_head>,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: The head carries its own spinlock and no thread affinity.
unsafe impl Send for WaitQueue {}
// SAFETY: All operations on the head take its spinlock.
unsafe impl Sync for WaitQueue {}

impl WaitQueue {
    /// Makes an empty queue; see [`new_waitqueue!`].
    pub(crate) fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        // INVARIANT: The C initialiser runs on the pinned place.
        pin_init!(Self {
            // SAFETY: `slot` is valid for the call; `name` and `key` live forever.
            head <- Opaque::ffi_init(|slot| unsafe {
                bindings::__init_waitqueue_head(slot, name.as_char_ptr(), key.as_ptr())
            }),
            _pin: PhantomPinned,
        })
    }

    /// The queue, for [`event_file`](super::event_file).
    pub(super) fn as_raw(&self) -> *mut bindings::wait_queue_head {
        self.head.get()
    }

    /// Sleeps until `condition` holds, `timeout` jiffies have passed, or (if `sleep` allows it) the
    /// task is killed.
    ///
    /// `condition` runs while the task is marked as sleeping, so it must not sleep: it may read
    /// atomics and nothing else.
    pub(crate) fn wait(
        &self,
        sleep: Sleep,
        timeout: Jiffies,
        condition: impl FnMut() -> bool,
    ) -> Woken {
        let mut left = c_long::try_from(timeout).unwrap_or(c_long::MAX);
        self.wait_until(sleep, condition, || {
            if left <= 0 {
                return true;
            }
            // SAFETY: The task is in a sleeping state on a queue, which is what this call expects.
            left = unsafe { bindings::schedule_timeout(left) };
            false
        })
    }

    /// As [`WaitQueue::wait`], uninterruptibly and for `timeout` microseconds, which need not be a
    /// multiple of the tick.
    pub(crate) fn wait_us(&self, timeout: u64, condition: impl FnMut() -> bool) -> Woken {
        // SAFETY: May be called in any context once time-keeping is up.
        let now = unsafe { bindings::ktime_get() };
        let nanoseconds = i64::try_from(timeout.saturating_mul(1000)).unwrap_or(i64::MAX);
        let mut end = now.saturating_add(nanoseconds);
        let mut over = false;
        self.wait_until(Sleep::Uninterruptible, condition, || {
            if over {
                return true;
            }
            // SAFETY: The task is in a sleeping state on a queue, which is what this call expects;
            // `end` outlives the call.
            let woken = unsafe {
                bindings::schedule_hrtimeout(&raw mut end, bindings::hrtimer_mode_HRTIMER_MODE_ABS)
            };
            over = woken == 0;
            false
        })
    }

    /// Sleeps by `nap` until `condition` holds, `nap` says that the time is over, or the task is
    /// killed. `nap` is called with the task in a sleeping state.
    fn wait_until(
        &self,
        sleep: Sleep,
        mut condition: impl FnMut() -> bool,
        mut nap: impl FnMut() -> bool,
    ) -> Woken {
        kernel::task::might_sleep();
        if condition() {
            return Woken::Met;
        }
        let state = match sleep {
            Sleep::Uninterruptible => bindings::TASK_UNINTERRUPTIBLE,
            Sleep::Killable => bindings::TASK_KILLABLE,
        };
        let entry = Opaque::<bindings::wait_queue_entry>::uninit();
        // SAFETY: `entry` is writable memory, and this frame is not left before `finish_wait`.
        unsafe { bindings::init_wait_entry(entry.get(), 0) };
        let woken = loop {
            // SAFETY: The head is initialised by the type invariant, the entry above.
            // CAST: Task states are small.
            let signal = unsafe {
                bindings::prepare_to_wait_event(self.head.get(), entry.get(), state as c_int)
            };
            if condition() {
                break Woken::Met;
            }
            if signal != 0 {
                break Woken::Killed;
            }
            if nap() {
                break Woken::TimedOut;
            }
        };
        // SAFETY: Head and entry are initialised, see the loop; afterwards nothing refers to `entry`.
        unsafe { bindings::finish_wait(self.head.get(), entry.get()) };
        woken
    }

    /// Wakes all sleepers so that they look at their conditions again.
    ///
    /// What makes a condition true must be stored before this call.
    pub(crate) fn wake_all(&self) {
        // SAFETY: The head is initialised by the type invariant.
        // CAST: `TASK_NORMAL` is a small mask.
        unsafe {
            bindings::__wake_up(
                self.head.get(),
                bindings::TASK_NORMAL as c_uint,
                0,
                ptr::null_mut(),
            )
        };
    }
}
