// SPDX-License-Identifier: GPL-2.0

//! Work, periodic work, and waiting.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Completion,
        Mutex, //
    },
    time::msecs_to_jiffies, //
};

use crate::kapi::{
    kunit::FatalSignal,
    log::monotonic_ns,
    ticker::{
        new_ticker,
        Tick, //
    },
    waitqueue::{
        new_waitqueue,
        Sleep,
        WaitQueue,
        Woken, //
    },
    workqueue::OwnedQueue, //
};

/// Longer than any wait here takes that is to succeed.
const LONG_MS: u32 = 60_000;

/// A flag, and who waits for it.
#[pin_data]
struct Flag {
    #[pin]
    waiters: WaitQueue,
    value: Atomic<i32>,
    #[pin]
    waiting: Completion,
}

impl Flag {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                waiters <- new_waitqueue!("rkfd_test_waiters"),
                value: Atomic::new(0),
                waiting <- Completion::new(),
            }),
            GFP_KERNEL,
        )
    }
}

/// Counts its ticks.
#[pin_data]
struct Counted {
    ticks: Atomic<i32>,
    /// Ticks that are under way.
    inside: Atomic<i32>,
    most_inside: Atomic<i32>,
    #[pin]
    third: Completion,
}

impl Counted {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                ticks: Atomic::new(0),
                inside: Atomic::new(0),
                most_inside: Atomic::new(0),
                third <- Completion::new(),
            }),
            GFP_KERNEL,
        )
    }
}

impl Tick for Counted {
    fn tick(&self) {
        let inside = self.inside.fetch_add(1, Relaxed) + 1;
        if inside > self.most_inside.load(Relaxed) {
            self.most_inside.store(inside, Relaxed);
        }
        if self.ticks.fetch_add(1, Relaxed) == 2 {
            self.third.complete_all();
        }
        self.inside.add(-1, Relaxed);
    }
}

#[kunit_tests(rkfd_waitqueue)]
mod waiting {
    use super::*;

    #[test]
    fn a_wait_for_what_holds_does_not_sleep() -> Result {
        let flag = Flag::new()?;
        let mut asked = 0;
        let woken = flag.waiters.wait(Sleep::Killable, 0, || {
            asked += 1;
            true
        });
        assert_eq!((woken, asked), (Woken::Met, 1));
        assert_eq!(flag.waiters.wait_us(0, || true), Woken::Met);
        Ok(())
    }

    #[test]
    fn a_wait_ends_with_its_time_and_asks_once_more() -> Result {
        let flag = Flag::new()?;
        for sleep in [Sleep::Uninterruptible, Sleep::Killable] {
            for timeout in [0, msecs_to_jiffies(2)] {
                // A wait that went on would end with this.
                let mut asked = 0;
                let woken = flag.waiters.wait(sleep, timeout, || {
                    asked += 1;
                    asked > 100
                });
                assert_eq!(woken, Woken::TimedOut);
            }
        }
        let start = monotonic_ns();
        assert_eq!(flag.waiters.wait_us(3_000, || false), Woken::TimedOut);
        assert!(monotonic_ns() - start >= 3_000_000);
        // What becomes true while the last sleep ends is seen.
        let mut asked = 0;
        let woken = flag.waiters.wait_us(1_000, || {
            asked += 1;
            asked == 3
        });
        assert_eq!(woken, Woken::Met);
        Ok(())
    }

    #[test]
    fn a_killed_task_waits_for_nothing_that_it_need_not_wait_for() -> Result {
        let flag = Flag::new()?;
        let _killed = FatalSignal::send();
        let killable = |condition: fn() -> bool| {
            flag.waiters
                .wait(Sleep::Killable, msecs_to_jiffies(2000), condition)
        };
        assert_eq!(killable(|| false), Woken::Killed);
        // What is there already counts.
        assert_eq!(killable(|| true), Woken::Met);
        assert_eq!(
            flag.waiters
                .wait(Sleep::Uninterruptible, msecs_to_jiffies(2), || false),
            Woken::TimedOut
        );
        Ok(())
    }

    #[test]
    fn a_sleeper_is_woken_by_who_makes_it_true() -> Result {
        let flag = Flag::new()?;
        let queue = OwnedQueue::new(c"rkfd_test", 1)?;
        let other = flag.clone();
        queue.try_spawn(GFP_KERNEL, move || {
            other.waiting.wait_for_completion();
            // A call without a reason wakes nobody for good.
            other.waiters.wake_all();
            other.value.store(1, Release);
            other.waiters.wake_all();
        })?;
        let woken = flag
            .waiters
            .wait(Sleep::Uninterruptible, msecs_to_jiffies(LONG_MS), || {
                flag.waiting.complete_all();
                flag.value.load(Acquire) == 1
            });
        assert_eq!(woken, Woken::Met);
        // Nobody waits, which is no mistake.
        flag.waiters.wake_all();
        Ok(())
    }
}

#[kunit_tests(rkfd_workqueue)]
mod work {
    use super::*;

    #[test]
    fn a_queue_finishes_its_work_before_it_goes() -> Result {
        for make in [
            OwnedQueue::new,
            OwnedQueue::unhurried,
            OwnedQueue::freezable,
        ] {
            let done = Arc::pin_init(new_mutex!(0, "rkfd_test_done"), GFP_KERNEL)?;
            let queue = make(c"rkfd_test", 2)?;
            for _ in 0..20 {
                let done: Arc<Mutex<i32>> = done.clone();
                queue.try_spawn(GFP_KERNEL, move || *done.lock() += 1)?;
            }
            drop(queue);
            assert_eq!(*done.lock(), 20);
        }
        Ok(())
    }

    #[test]
    fn one_at_a_time_keeps_the_order() -> Result {
        let order: Arc<Mutex<KVec<i32>>> =
            Arc::pin_init(new_mutex!(KVec::new(), "rkfd_test_order"), GFP_KERNEL)?;
        let queue = OwnedQueue::new(c"rkfd_test", 1)?;
        for n in 0..10 {
            let order = order.clone();
            queue.try_spawn(GFP_KERNEL, move || {
                let _ = order.lock().push(n, GFP_KERNEL);
            })?;
        }
        drop(queue);
        assert_eq!(order.lock().as_slice(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        Ok(())
    }
}

#[kunit_tests(rkfd_ticker)]
mod ticker {
    use super::*;

    #[test]
    fn it_ticks_again_and_again_until_it_is_dropped() -> Result {
        let counted = Counted::new()?;
        let ticker = KBox::pin_init(
            new_ticker!("rkfd_test_ticker", msecs_to_jiffies(1), counted.clone()),
            GFP_KERNEL,
        )?;
        // It stands still until it is started; a second start changes nothing.
        assert_eq!(counted.ticks.load(Relaxed), 0);
        ticker.start();
        ticker.start();
        counted.third.wait_for_completion();
        drop(ticker);
        // Nothing is under way or to come any more.
        let ticks = counted.ticks.load(Relaxed);
        assert!(ticks >= 3);
        assert_eq!(counted.inside.load(Relaxed), 0);
        assert_eq!(counted.most_inside.load(Relaxed), 1);
        let flag = Flag::new()?;
        assert_eq!(flag.waiters.wait_us(20_000, || false), Woken::TimedOut);
        assert_eq!(counted.ticks.load(Relaxed), ticks);
        Ok(())
    }

    #[test]
    fn one_that_was_not_started_goes_quietly() -> Result {
        let counted = Counted::new()?;
        let ticker = KBox::pin_init(
            // Never a busy loop, also where the period is less than a tick of the clock.
            new_ticker!("rkfd_test_ticker", 0, counted.clone()),
            GFP_KERNEL,
        )?;
        drop(ticker);
        assert_eq!(counted.ticks.load(Relaxed), 0);
        Ok(())
    }
}
