// SPDX-License-Identifier: GPL-2.0

//! The gate in front of the hardware, the end of its access to memory, and the rate limit of messages.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc,
        Completion,
        Mutex, //
    }, //
};

use crate::{
    gpu::access::Reach,
    kapi::{
        gate::Gate,
        log::{
            monotonic_ns,
            RateLimit, //
        },
        workqueue::OwnedQueue, //
    }, //
};

/// Longer than another thread takes to begin.
const PATIENCE_NS: i64 = 20_000_000_000;

/// Counts how often it was dropped.
struct Probe {
    value: u32,
    drops: Arc<Mutex<u32>>,
}

impl Drop for Probe {
    fn drop(&mut self) {
        *self.drops.lock() += 1;
    }
}

fn counter() -> Result<Arc<Mutex<u32>>> {
    Arc::pin_init(new_mutex!(0, "rkfd_test_drops"), GFP_KERNEL)
}

fn gate(drops: &Arc<Mutex<u32>>) -> Result<Arc<Gate<Probe>>> {
    Arc::pin_init(
        Gate::new(Probe {
            value: 0x5a,
            drops: drops.clone(),
        }),
        GFP_KERNEL,
    )
}

/// What two threads tell each other.
#[pin_data]
struct Meeting {
    #[pin]
    closing: Completion,
    #[pin]
    closed: Completion,
    /// 1 once `close` has returned.
    returned: Atomic<i32>,
}

fn meeting() -> Result<Arc<Meeting>> {
    Arc::pin_init(
        try_pin_init!(Meeting {
            closing <- Completion::new(),
            closed <- Completion::new(),
            returned: Atomic::new(0),
        }? Error),
        GFP_KERNEL,
    )
}

#[kunit_tests(rkfd_gpu_gate)]
mod cases {
    use super::*;

    #[test]
    fn value_is_reached_and_guards_nest() -> Result {
        let drops = counter()?;
        let gate = gate(&drops)?;
        let outer = gate.enter().ok_or(ENODEV)?;
        let inner = gate.enter().ok_or(ENODEV)?;
        assert_eq!((outer.value, inner.value), (0x5a, 0x5a));
        drop(outer);
        assert_eq!(inner.value, 0x5a);
        assert!(gate.is_open());
        assert_eq!(*drops.lock(), 0);
        Ok(())
    }

    #[test]
    fn close_hands_the_value_back_once() -> Result {
        let drops = counter()?;
        let gate = gate(&drops)?;
        let value = gate.close().ok_or(ENODEV)?;
        assert!(!gate.is_open());
        assert!(gate.enter().is_none());
        assert!(gate.close().is_none());
        assert_eq!(*drops.lock(), 0);
        drop(value);
        assert_eq!(*drops.lock(), 1);
        drop(gate);
        assert_eq!(*drops.lock(), 1);
        Ok(())
    }

    #[test]
    fn dropping_an_open_gate_drops_the_value() -> Result {
        let drops = counter()?;
        drop(gate(&drops)?);
        assert_eq!(*drops.lock(), 1);
        Ok(())
    }

    #[test]
    fn close_waits_for_who_is_inside() -> Result {
        let drops = counter()?;
        let gate = gate(&drops)?;
        let meeting = meeting()?;
        let inside = gate.enter().ok_or(ENODEV)?;

        let (its_gate, its_meeting) = (gate.clone(), meeting.clone());
        // The kernel warns of its own unbound queue.
        let queue = OwnedQueue::new(c"rkfd-test", 1)?;
        queue.try_spawn(GFP_KERNEL, move || {
            its_meeting.closing.complete_all();
            drop(its_gate.close());
            its_meeting.returned.store(1, kernel::sync::atomic::Release);
            its_meeting.closed.complete_all();
        })?;
        meeting.closing.wait_for_completion();
        // Newcomers are refused as soon as the other thread has begun to close.
        let start = monotonic_ns();
        while gate.enter().is_some() {
            assert!(monotonic_ns() - start < PATIENCE_NS);
            kernel::time::delay::fsleep(kernel::time::Delta::from_micros(10));
        }
        // This thread is inside: the value is there and `close` has not returned.
        assert_eq!(inside.value, 0x5a);
        assert_eq!(meeting.returned.load(kernel::sync::atomic::Acquire), 0);
        assert_eq!(*drops.lock(), 0);
        drop(inside);
        meeting.closed.wait_for_completion();
        assert_eq!(meeting.returned.xchg(2, Full), 1);
        assert_eq!(*drops.lock(), 1);
        Ok(())
    }

    #[test]
    fn messages_pass_in_bursts_and_are_counted() -> Result {
        const SECOND: i64 = 1_000_000_000;
        let limit = RateLimit::new();
        for _ in 0..10 {
            assert_eq!(limit.pass_at(SECOND), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(limit.pass_at(5 * SECOND), None);
        }
        // A new window opens five seconds after the old one did, and says what it missed.
        assert_eq!(limit.pass_at(6 * SECOND), Some(7));
        assert_eq!(limit.pass_at(6 * SECOND), Some(0));
        Ok(())
    }

    #[test]
    fn the_end_of_the_access_is_known_only_after_it_is_there() -> Result {
        let reach = Reach::new();
        let mut cuts = 0;
        assert!(!reach.has_ended());
        let first = reach.end(|| {
            assert!(!reach.has_ended());
            cuts += 1;
        });
        assert!(first && reach.has_ended());
        // Nothing is cut twice by those who come later.
        assert!(!reach.end(|| cuts += 1));
        assert_eq!(cuts, 1);
        Ok(())
    }

    #[test]
    fn who_comes_while_the_access_is_being_ended_ends_it_too() -> Result {
        let reach = Reach::new();
        let mut cuts = 0;
        let mut inner = false;
        let outer = reach.end(|| inner = reach.end(|| cuts += 1));
        // One of the two is the first, and nobody relied on what the other had not done yet.
        assert_eq!((inner, outer, cuts), (true, false, 1));
        assert!(reach.has_ended());
        Ok(())
    }
}
