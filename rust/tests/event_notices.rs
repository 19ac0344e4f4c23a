// SPDX-License-Identifier: GPL-2.0

//! Reports for the events of a process: what is noted, and that noting waits for nobody.

use kernel::{
    impl_has_work, new_work,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc, //
    },
    time::msecs_to_jiffies,
    workqueue::{
        Work,
        WorkItem, //
    },
};

use super::event_fixtures::memory_fault;
use crate::{
    event::{
        notices::Notices,
        payload::Payload,
        table::{
            Kind,
            SignalPage,
            Status,
            WaitItem,
            IDLE_SLOT,
            SIGNAL_LIMIT, //
        },
        Events, //
    },
    hw::num::index,
    kapi::{
        waitqueue::{
            new_waitqueue,
            Sleep,
            WaitQueue,
            Woken, //
        },
        workqueue::OwnedQueue, //
    },
};

/// A signal page of a few slots that any thread may use.
struct Page([Atomic<u64>; 8]);

impl Page {
    fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self([const { Atomic::new(IDLE_SLOT) }; 8]),
            GFP_KERNEL,
        )?)
    }

    fn packet(&self, id: u32) {
        if let Some(slot) = self.0.get(index(id)) {
            slot.store(1, Relaxed);
        }
    }
}

impl SignalPage for Page {
    fn load(&self, slot: u32) -> u64 {
        self.0
            .get(index(slot))
            .map_or(IDLE_SLOT, |s| s.load(Relaxed))
    }

    fn set_idle(&self, slot: u32) {
        if let Some(slot) = self.0.get(index(slot)) {
            slot.store(IDLE_SLOT, Relaxed);
        }
    }
}

/// A thread that reports, as the interrupt thread does.
#[pin_data]
struct Reporter {
    #[pin]
    events: Events,
    /// Interrupt with this id; `None`: some were lost, and a fault.
    id: Atomic<u32>,
    #[pin]
    work: Work<Self>,
    done: Atomic<bool>,
    #[pin]
    reported: WaitQueue,
}

impl_has_work! {
    impl HasWork<Self> for Reporter { self.work }
}

impl WorkItem for Reporter {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        match this.id.load(Relaxed) {
            LOST => {
                this.events.lost();
                this.events.raise(memory_fault(0x9000));
            }
            id => this.events.interrupt(id),
        }
        this.done.store(true, Release);
        this.reported.wake_all();
    }
}

/// In place of an id: interrupts were lost, and there was a fault.
const LOST: u32 = u32::MAX;

impl Reporter {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                events <- Events::new(),
                id: Atomic::new(0),
                work <- new_work!("rkfd_test_reporter"),
                done: Atomic::new(false),
                reported <- new_waitqueue!("rkfd_test_reported"),
            }),
            GFP_KERNEL,
        )
    }

    /// Has another thread report `id` while this one has the table; whether it got through.
    fn report_meanwhile(self: &Arc<Self>, queue: &OwnedQueue, id: u32) -> bool {
        let mut woken = Woken::TimedOut;
        self.done.store(false, Relaxed);
        self.id.store(id, Relaxed);
        self.events.with_table_held(|| {
            let _ = queue.enqueue(self.clone());
            woken = self
                .reported
                .wait(Sleep::Uninterruptible, msecs_to_jiffies(20_000), || {
                    self.done.load(Acquire)
                });
        });
        woken == Woken::Met
    }

    fn is_signalled(&self, id: u32) -> Result<Option<Payload>> {
        let items = [WaitItem { id, last_age: 0 }];
        let Ok(waited) = self.events.wait(&items, true, 0) else {
            return Err(EIO);
        };
        Ok((waited.status == Status::Complete)
            .then(|| waited.results.first().map_or(Payload::None, |r| r.1)))
    }
}

#[kunit_tests(rkfd_event_notices)]
mod cases {
    use super::*;

    #[test]
    fn ids_that_meet_are_one_and_others_stay_apart() -> Result {
        let mut notices = Notices::new();
        assert!(notices.is_empty());
        for id in [63, 64, 1, 64, SIGNAL_LIMIT - 1] {
            notices.interrupt(id);
        }
        assert!(!notices.is_empty() && !notices.scan);
        let taken = notices.take();
        assert!(taken.ids.iter().eq([1, 63, 64, SIGNAL_LIMIT - 1]));
        assert_eq!(taken.payloads().count(), 0);
        assert!(notices.is_empty() && notices.ids.iter().next().is_none());
        Ok(())
    }

    #[test]
    fn an_id_of_no_event_asks_for_all_slots() {
        for wrong in [0, SIGNAL_LIMIT, 0x00ff_ffff, u32::MAX] {
            let mut notices = Notices::new();
            notices.interrupt(wrong);
            assert!(!notices.is_empty() && notices.scan);
            assert!(notices.ids.iter().next().is_none());
        }
    }

    #[test]
    fn the_latest_payload_of_each_kind_is_kept() {
        let mut notices = Notices::new();
        notices.raise(Payload::Age(5));
        assert!(notices.is_empty());
        notices.raise(memory_fault(0x1000));
        notices.raise(memory_fault(0x2000));
        let hang = Payload::HwException(Default::default());
        notices.raise(hang);
        assert!(notices.payloads().eq([memory_fault(0x2000), hang]));
    }

    #[test]
    fn a_report_does_not_wait_for_a_thread_that_has_the_table() -> Result {
        let queue = OwnedQueue::unhurried(c"rkfd-test", 1)?;
        let reporter = Reporter::new()?;
        let events = &reporter.events;
        let page = Page::new()?;
        events.set_page(page.clone())?;
        let signal = events.create(Kind::Signal, true)?;
        let memory = events.create(Kind::Memory, true)?;
        for _ in 0..100 {
            page.packet(signal);
            assert!(reporter.report_meanwhile(&queue, signal));
            // Whoever had the table has entered it.
            assert_eq!(reporter.is_signalled(signal)?, Some(Payload::None));
            assert_eq!(reporter.is_signalled(signal)?, None);

            page.packet(signal);
            assert!(reporter.report_meanwhile(&queue, LOST));
            assert_eq!(reporter.is_signalled(signal)?, Some(Payload::None));
            assert_eq!(reporter.is_signalled(memory)?, Some(memory_fault(0x9000)));
            assert_eq!(reporter.is_signalled(memory)?, None);
        }
        drop(queue);
        events.shutdown();
        Ok(())
    }

    #[test]
    fn lost_interrupts_are_made_up_for_by_the_slots() -> Result {
        let reporter = Reporter::new()?;
        let events = &reporter.events;
        // No page: nothing to look at.
        events.lost();
        let page = Page::new()?;
        events.set_page(page.clone())?;
        let (a, b) = (
            events.create(Kind::Signal, false)?,
            events.create(Kind::Signal, false)?,
        );
        page.packet(b);
        events.lost();
        assert_eq!(reporter.is_signalled(a)?, None);
        assert_eq!(reporter.is_signalled(b)?, Some(Payload::None));
        Ok(())
    }

    #[test]
    fn events_that_faults_signal_are_counted() -> Result {
        let reporter = Reporter::new()?;
        let events = &reporter.events;
        let other = events.create(Kind::HwException, false)?;
        assert!(!events.has_memory_events());
        let memory = events.create(Kind::Memory, false)?;
        assert!(events.has_memory_events());
        events.destroy(other)?;
        assert!(events.has_memory_events());
        events.destroy(memory)?;
        assert!(!events.has_memory_events());
        assert_eq!(events.destroy(memory), Err(EINVAL));
        events.create(Kind::Memory, false)?;
        events.shutdown();
        assert!(!events.has_memory_events());
        Ok(())
    }
}
