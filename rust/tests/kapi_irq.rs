// SPDX-License-Identifier: GPL-2.0

//! An interrupt with a thread and a watchdog, of no device.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        msecs_to_jiffies,
        Delta, //
    },
};

use crate::kapi::{
    irq::{
        Handler,
        Simulated, //
    },
    kunit::SimulatedIrq,
    waitqueue::{
        new_waitqueue,
        Sleep,
        WaitQueue,
        Woken, //
    },
    workqueue::OwnedQueue, //
};

/// A period that no test lives to see the end of.
const NEVER: Delta = Delta::from_millis(3_600_000);
/// A short one.
const SHORT: Delta = Delta::from_millis(2);
/// Longer than any wait here takes that is to succeed.
const LONG_MS: u32 = 30_000;

/// Counts what it is called for.
#[pin_data]
struct Counted {
    interrupts: Atomic<i32>,
    /// Handlers that began, and that ended.
    begun: Atomic<i32>,
    handled: Atomic<i32>,
    /// The most that were under way at a time.
    most_inside: Atomic<i32>,
    /// Interrupts that the last handler found at its beginning.
    found: Atomic<i32>,
    /// How often it was asked whether it is overdue.
    asked: Atomic<i32>,
    overdue: Atomic<bool>,
    /// Handlers do not wait.
    go_on: Atomic<bool>,
    /// Woken when anything of this changes.
    #[pin]
    changed: WaitQueue,
}

impl Counted {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                interrupts: Atomic::new(0),
                begun: Atomic::new(0),
                handled: Atomic::new(0),
                most_inside: Atomic::new(0),
                found: Atomic::new(0),
                asked: Atomic::new(0),
                overdue: Atomic::new(false),
                go_on: Atomic::new(false),
                changed <- new_waitqueue!("rkfd_test_changed"),
            }),
            GFP_KERNEL,
        )
    }

    /// Interrupts and handlers that ended so far.
    fn counts(&self) -> (i32, i32) {
        (self.interrupts.load(Acquire), self.handled.load(Acquire))
    }

    /// Ends the wait of handlers that are under way, and of all others.
    fn release(&self) {
        self.go_on.store(true, Release);
        self.changed.wake_all();
    }

    /// Waits until `condition` holds; false if it does not come to that.
    fn until(&self, condition: impl FnMut() -> bool) -> bool {
        let timeout = msecs_to_jiffies(LONG_MS);
        self.changed
            .wait(Sleep::Uninterruptible, timeout, condition)
            == Woken::Met
    }
}

impl Handler for Counted {
    fn interrupt(&self) {
        self.interrupts.fetch_add(1, Full);
    }

    fn is_overdue(&self) -> bool {
        self.asked.fetch_add(1, Full);
        self.changed.wake_all();
        // Once: the handler may take a while to begin.
        self.overdue.xchg(false, Full)
    }

    fn handle(&self) {
        let inside = self.begun.fetch_add(1, Full) + 1 - self.handled.load(Acquire);
        if inside > self.most_inside.load(Relaxed) {
            self.most_inside.store(inside, Relaxed);
        }
        self.found.store(self.interrupts.load(Acquire), Release);
        self.changed.wake_all();
        let _ = self.until(|| self.go_on.load(Acquire));
        self.handled.fetch_add(1, Full);
        self.changed.wake_all();
    }
}

#[kunit_tests(rkfd_kapi_irq)]
mod tests {
    use super::*;

    #[test]
    fn a_message_runs_both_handlers_the_second_in_its_thread() -> Result {
        let (irq, counted) = (SimulatedIrq::new()?, Counted::new()?);
        let line = Simulated::new(&irq, counted.clone(), NEVER)?;
        assert_eq!(counted.counts(), (0, 0));
        irq.raise()?;
        // The second one waits, and this thread does not wait for it.
        assert_eq!(counted.counts(), (1, 0));
        assert!(counted.until(|| counted.begun.load(Acquire) == 1));
        assert_eq!(counted.counts(), (1, 0));
        counted.release();
        assert!(counted.until(|| counted.handled.load(Acquire) == 1));
        assert_eq!(counted.found.load(Acquire), 1);
        drop(line);
        assert_eq!(counted.counts(), (1, 1));
        // The first period is not over.
        assert_eq!(counted.asked.load(Acquire), 0);
        Ok(())
    }

    #[test]
    fn what_comes_meanwhile_is_handled_afterwards_and_once() -> Result {
        let (irq, counted) = (SimulatedIrq::new()?, Counted::new()?);
        let line = Simulated::new(&irq, counted.clone(), NEVER)?;
        irq.raise()?;
        assert!(counted.until(|| counted.begun.load(Acquire) == 1));
        for _ in 0..3 {
            irq.raise()?;
        }
        assert_eq!(counted.counts(), (4, 0));
        counted.release();
        // The drop waits for what was asked for.
        drop(line);
        assert_eq!(counted.counts(), (4, 2));
        assert_eq!(counted.found.load(Acquire), 4);
        assert_eq!(counted.most_inside.load(Acquire), 1);
        Ok(())
    }

    #[test]
    fn a_lost_message_is_found_by_the_watchdog() -> Result {
        let (irq, counted) = (SimulatedIrq::new()?, Counted::new()?);
        counted.release();
        let line = Simulated::new(&irq, counted.clone(), SHORT)?;
        // It asks again and again, and wakes nobody without a reason.
        assert!(counted.until(|| counted.asked.load(Acquire) >= 3));
        assert_eq!((counted.counts(), counted.begun.load(Acquire)), ((0, 0), 0));
        counted.overdue.store(true, Release);
        assert!(counted.until(|| counted.handled.load(Acquire) == 1));
        drop(line);
        // No message has come.
        assert_eq!(counted.counts(), (0, 1));
        // Nobody asks any more.
        let asked = counted.asked.load(Acquire);
        fsleep(Delta::from_millis(20));
        assert_eq!(counted.asked.load(Acquire), asked);
        Ok(())
    }

    #[test]
    fn the_drop_waits_for_the_handler_and_detaches_it() -> Result {
        let (irq, counted) = (SimulatedIrq::new()?, Counted::new()?);
        let line = Simulated::new(&irq, counted.clone(), SHORT)?;
        irq.raise()?;
        assert!(counted.until(|| counted.begun.load(Acquire) == 1));
        let queue = OwnedQueue::new(c"rkfd_test", 1)?;
        let other = counted.clone();
        queue.try_spawn(GFP_KERNEL, move || {
            // A drop that does not wait is over by then.
            fsleep(Delta::from_millis(20));
            other.release();
        })?;
        drop(line);
        assert_eq!(counted.handled.load(Acquire), 1);
        drop(queue);
        // Neither handler nor watchdog is left.
        irq.raise()?;
        assert_eq!(counted.counts(), (1, 1));
        assert!(Arc::into_unique_or_drop(counted).is_some());
        Ok(())
    }

    #[test]
    fn an_interrupt_may_get_another_handler_after_the_drop() -> Result {
        let irq = SimulatedIrq::new()?;
        let (first, second) = (Counted::new()?, Counted::new()?);
        first.release();
        second.release();
        let line = Simulated::new(&irq, first.clone(), NEVER)?;
        irq.raise()?;
        drop(line);
        assert_eq!((first.counts(), second.counts()), ((1, 1), (0, 0)));
        let line = Simulated::new(&irq, second.clone(), NEVER)?;
        irq.raise()?;
        drop(line);
        assert_eq!((first.counts(), second.counts()), ((1, 1), (1, 1)));
        assert!(Arc::into_unique_or_drop(first).is_some());
        assert!(Arc::into_unique_or_drop(second).is_some());
        Ok(())
    }
}
