// SPDX-License-Identifier: GPL-2.0

//! The progress watchdog: whom it names, whom not, and how often. The test is the timer.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    time::msecs_to_jiffies, //
};

use super::{
    config::{
        Config,
        Policy, //
    },
    desired::queue::QueueHold,
    diag::watchdog::Watchdog,
    fake::{
        config,
        create,
        pm4,
        process,
        sdma,
        setup_with,
        Event::{
            Fence,
            UnmapAll,
            UnmapQueues, //
        },
        Fake,
        Mode, //
    },
    lifecycle::Lifecycle,
    params::{
        EvictCause,
        QueueKind,
        QueueUpdate, //
    },
    steps::{
        destroy,
        halt, //
    },
    worker::Worker, //
};
use crate::{
    hw::doorbell::SLICE_IDS,
    kapi::ticker::{
        new_ticker,
        Tick, //
    }, //
};

use super::fake::finish;

/// A sample each quarter of the limit, as the timer would.
const SAMPLE_US: u64 = 250_000;

fn setup() -> Result<(Arc<Fake>, Arc<Worker>, Arc<Watchdog>)> {
    watched(Config {
        watchdog_ms: 1000,
        ..config()
    })
}

/// A scheduler that its test drives, and its watchdog.
fn watched(config: Config) -> Result<(Arc<Fake>, Arc<Worker>, Arc<Watchdog>)> {
    let (fake, sched) = setup_with(config)?;
    let watchdog = Watchdog::new(&sched)?;
    Ok((fake, sched, watchdog))
}

/// Samples the hardware `times` times.
fn sample(fake: &Fake, watchdog: &Watchdog, times: u32) {
    for _ in 0..times {
        fake.pass(SAMPLE_US);
        watchdog.sample();
    }
}

fn stuck(sched: &Worker) -> u64 {
    sched.core.counters.snapshot().stuck
}

#[kunit_tests(rkfd_sched_watchdog)]
mod cases {
    use super::*;

    #[test]
    fn queue_that_stands_still_is_named_once() -> Result {
        let (fake, sched, watchdog) = setup()?;
        let proc = sched.attach(process(77))?;
        create(&sched, proc, 1)?;
        create(&sched, proc, 2)?;
        sched.converge();
        fake.set_pointers(1, 0x10, 0x40)?;
        sample(&fake, &watchdog, 4);
        assert_eq!(stuck(&sched), 0);
        sample(&fake, &watchdog, 1);
        assert_eq!(stuck(&sched), 1);
        // Doorbell 1 is byte 8; the registers come after.
        assert_eq!(
            fake.warnings("(pasid 77, doorbell 0x8, me 1 pipe 0 queue 2) has work and makes no progress for 1000 ms: read pointer 0x10, write pointer 0x40"),
            1
        );
        assert_eq!(fake.warnings("CP_HQD_ACTIVE 0x1 CP_HQD_PQ_RPTR 0x10"), 1);
        sample(&fake, &watchdog, 20);
        assert_eq!(stuck(&sched), 1);
        drop(watchdog);
        finish(&fake, sched)
    }

    #[test]
    fn progress_starts_the_time_anew() -> Result {
        let (fake, sched, watchdog) = setup()?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        sched.converge();
        for rptr in 0..10 {
            fake.set_pointers(1, rptr, 0x40)?;
            sample(&fake, &watchdog, 4);
        }
        assert_eq!(stuck(&sched), 0);
        sample(&fake, &watchdog, 1);
        assert_eq!(stuck(&sched), 1);
        // It gets on, and stands still once more.
        fake.set_pointers(1, 0x20, 0x40)?;
        sample(&fake, &watchdog, 5);
        assert_eq!(stuck(&sched), 2);
        drop(watchdog);
        finish(&fake, sched)
    }

    #[test]
    fn idle_queue_is_never_named() -> Result {
        let (fake, sched, watchdog) = setup()?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        let mut aql = pm4(2);
        aql.kind = QueueKind::Aql;
        sched.create_queue(proc, aql, QueueHold::default())?;
        sched.converge();
        // A ring of 0x400 dwords: the write pointer counts on.
        fake.set_pointers(1, 0x10, 0x8410)?;
        // 64 packets: both pointers in packets, then the read pointer in dwords.
        fake.set_pointers(2, 0x05, 0x45)?;
        sample(&fake, &watchdog, 20);
        fake.set_pointers(2, 0x50, 0x45)?;
        sample(&fake, &watchdog, 20);
        assert_eq!(stuck(&sched), 0);
        fake.set_pointers(2, 0x05, 0x46)?;
        sample(&fake, &watchdog, 5);
        assert_eq!(stuck(&sched), 1);
        assert_eq!(fake.warnings("aql queue"), 1);
        drop(watchdog);
        finish(&fake, sched)
    }

    #[test]
    fn full_ring_is_work() -> Result {
        let (fake, sched, watchdog) = setup()?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        let mut aql = pm4(2);
        aql.kind = QueueKind::Aql;
        sched.create_queue(proc, aql, QueueHold::default())?;
        sched.converge();
        // 64 packets of 64, on hardware of which nobody knows whether it marks empty rings.
        fake.set_pointers(2, 0x05, 0x45)?;
        sample(&fake, &watchdog, 20);
        assert_eq!(stuck(&sched), 0);
        // It does: another ring is marked, and this is not.
        fake.mark_empty(1, true)?;
        sample(&fake, &watchdog, 6);
        assert_eq!(stuck(&sched), 1);
        assert_eq!(fake.warnings("aql queue"), 1);
        // Gone through, and idle at the same place.
        fake.mark_empty(2, true)?;
        sample(&fake, &watchdog, 20);
        assert_eq!(stuck(&sched), 1);
        drop(watchdog);
        finish(&fake, sched)
    }

    #[test]
    fn queue_that_stands_in_an_indirect_buffer_is_named() -> Result {
        let (fake, sched, watchdog) = setup()?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        sched.converge();
        // The packet that called the buffer was the last one.
        fake.set_pointers(1, 0x40, 0x40)?;
        for at in 0..10 {
            fake.enter_buffer(1, at)?;
            sample(&fake, &watchdog, 4);
        }
        assert_eq!(stuck(&sched), 0);
        sample(&fake, &watchdog, 1);
        assert_eq!(stuck(&sched), 1);
        assert_eq!(
            fake.warnings("in an indirect buffer of 0 dwords at 0x0, at dword 9"),
            1
        );
        drop(watchdog);
        finish(&fake, sched)
    }

    #[test]
    fn queue_that_stopped_at_a_bad_packet_is_off_and_not_named() -> Result {
        let (fake, sched, watchdog) = setup()?;
        let proc = sched.attach(process(1))?;
        let queue = create(&sched, proc, 1)?;
        create(&sched, proc, 2)?;
        // Its doorbell has the same id, in another slice.
        let other = sched.attach(process(2))?;
        create(&sched, other, 1 + SLICE_IDS)?;
        sched.converge();
        fake.set_pointers(1, 0x10, 0x40)?;
        let _ = fake.log();
        halt(&sched, 1, 1);
        // The interrupts that follow change nothing.
        halt(&sched, 1, 1);
        sched.converge();
        assert_eq!(fake.log().as_slice(), &[UnmapQueues(1, 1), Fence]);
        // However often a list is made.
        create(&sched, proc, 3)?;
        sched.converge();
        assert_eq!((fake.mapped_of(1), fake.mapped_of(2)), (2, 1));
        sample(&fake, &watchdog, 20);
        assert_eq!(stuck(&sched), 0);
        assert_eq!(sched.core.counters.snapshot().halts, 1);
        let update = QueueUpdate {
            percent: Some(50),
            ..QueueUpdate::default()
        };
        let refused = sched.begin_update(proc, queue, update);
        assert_eq!(refused.err(), Some(EACCES));
        // Nobody that is there.
        halt(&sched, 1, 9);
        halt(&sched, 3, 1);
        destroy(&sched, proc, queue)?;
        halt(&sched, 1, 1);
        assert_eq!(sched.core.counters.snapshot().halts, 1);
        drop(watchdog);
        finish(&fake, sched)
    }

    #[test]
    fn report_decodes_registers_and_descriptor() -> Result {
        let (fake, sched, watchdog) = setup()?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        sched.converge();
        fake.set_pointers(1, 0x10, 0x40)?;
        sample(&fake, &watchdog, 5);
        assert_eq!(stuck(&sched), 1);
        assert_eq!(
            fake.warnings("in no indirect buffer, not asked to leave"),
            1
        );
        assert_eq!(
            fake.warnings("pm4 ring of 4096 bytes at 0x7f0000100000, priority 7, share 100 %"),
            1
        );
        // A word that only the descriptor has: the fake device shows no such register.
        assert_eq!(fake.warnings("CP_HQD_EOP_BASE_ADDR"), 1);
        drop(watchdog);
        finish(&fake, sched)
    }

    #[test]
    fn silent_firmware_is_noticed_without_a_change() -> Result {
        let (fake, sched, watchdog) = setup()?;
        // Without a list it has nothing to be silent about.
        fake.set_mode(Mode::Dead);
        watchdog.tick();
        assert_eq!(sched.core.life(), Lifecycle::Running);
        fake.set_mode(Mode::Good);
        let proc = sched.attach(process(1))?;
        let queue = create(&sched, proc, 1)?;
        sched.converge();
        let _ = fake.log();
        watchdog.tick();
        assert_eq!(fake.log().as_slice(), &[Fence]);
        assert_eq!(sched.core.life(), Lifecycle::Running);
        // A list of which nothing is left needs nobody.
        destroy(&sched, proc, queue)?;
        assert_eq!(fake.log().as_slice(), &[UnmapAll, Fence]);
        watchdog.tick();
        assert!(fake.log().is_empty());
        create(&sched, proc, 1)?;
        sched.converge();
        fake.set_mode(Mode::Dead);
        watchdog.tick();
        assert_eq!(sched.core.life(), Lifecycle::Wedged);
        // Once.
        let sent = fake.doorbells();
        watchdog.tick();
        assert_eq!(fake.doorbells(), sent);
        assert_eq!(sched.core.counters.snapshot().timeouts, 1);
        fake.reset();
        sched.after_reset()?;
        sched.converge();
        assert_eq!(fake.mapped(), 1);
        drop(watchdog);
        finish(&fake, sched)
    }

    #[test]
    fn sleeping_hardware_is_not_asked() -> Result {
        let (fake, sched, watchdog) = setup()?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        sched.converge();
        sched.suspend()?;
        let _ = fake.log();
        watchdog.tick();
        assert!(fake.log().is_empty());
        assert_eq!(sched.core.life(), Lifecycle::Suspended);
        sched.resume()?;
        sched.converge();
        drop(watchdog);
        finish(&fake, sched)
    }

    #[test]
    fn queue_off_the_hardware_is_not_judged() -> Result {
        let (fake, sched, watchdog) = setup()?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        sched.converge();
        fake.set_pointers(1, 0x10, 0x40)?;
        sample(&fake, &watchdog, 3);
        let _ = sched.begin_evict(proc, EvictCause::Debugger)?;
        sched.converge();
        sample(&fake, &watchdog, 20);
        sched.restore(proc, EvictCause::Debugger)?;
        sched.converge();
        sample(&fake, &watchdog, 4);
        assert_eq!(stuck(&sched), 0);
        sample(&fake, &watchdog, 1);
        assert_eq!(stuck(&sched), 1);
        drop(watchdog);
        finish(&fake, sched)
    }

    #[test]
    fn many_stuck_queues_are_named_a_few_at_a_time() -> Result {
        let (fake, sched, watchdog) = setup()?;
        let proc = sched.attach(process(1))?;
        for n in 1..=10 {
            create(&sched, proc, n)?;
            fake.set_pointers(n, 1, 2)?;
        }
        sched.converge();
        sample(&fake, &watchdog, 5);
        assert_eq!(stuck(&sched), 4);
        sample(&fake, &watchdog, 1);
        assert_eq!(stuck(&sched), 8);
        sample(&fake, &watchdog, 5);
        assert_eq!(stuck(&sched), 10);
        drop(watchdog);
        finish(&fake, sched)
    }

    #[test]
    fn many_reports_do_not_fill_the_log() -> Result {
        let (fake, sched, watchdog) = setup()?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        sched.converge();
        // A program lets its queue stand still again and again.
        let fills = |rounds: u32| {
            for n in 0..rounds {
                fake.set_pointers(1, 1 + n % 2, 8)?;
                sample(&fake, &watchdog, 5);
            }
            Ok::<(), Error>(())
        };
        fills(40)?;
        assert_eq!(stuck(&sched), 40);
        assert_eq!(fake.warnings("makes no progress"), 16);
        // The next minute tells how many there were.
        fake.pass(60_000_000);
        fills(1)?;
        assert_eq!(fake.warnings("makes no progress"), 17);
        assert_eq!(fake.warnings("24 more queues"), 1);
        drop(watchdog);
        finish(&fake, sched)
    }

    #[test]
    fn rare_samples_need_several_sightings() -> Result {
        let (fake, sched, watchdog) = setup()?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        sched.converge();
        fake.set_pointers(1, 1, 2)?;
        // As if the timer had been held up.
        for sightings in 1..=3 {
            fake.pass(60_000_000);
            watchdog.sample();
            assert_eq!(stuck(&sched), u64::from(sightings == 3));
        }
        drop(watchdog);
        finish(&fake, sched)
    }

    #[test]
    fn zero_turns_it_off() -> Result {
        let (fake, sched, watchdog) = watched(Config {
            watchdog_ms: 0,
            ..config()
        })?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        sched.converge();
        fake.set_pointers(1, 1, 2)?;
        sample(&fake, &watchdog, 20);
        assert_eq!(stuck(&sched), 0);
        drop(watchdog);
        finish(&fake, sched)
    }

    #[test]
    fn queues_loaded_by_registers_are_watched_too() -> Result {
        let (fake, sched, watchdog) = watched(Config {
            watchdog_ms: 1000,
            policy: Policy::Direct,
            ..config()
        })?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        sched.create_queue(proc, sdma(100, 1, 3), QueueHold::default())?;
        sched.converge();
        sample(&fake, &watchdog, 5);
        assert_eq!(stuck(&sched), 0);
        fake.set_sdma_wptr(1, 3, 0x80)?;
        sample(&fake, &watchdog, 5);
        assert_eq!(stuck(&sched), 1);
        assert_eq!(
            fake.warnings("(pasid 1, doorbell 0x320, SDMA 1 queue 3)"),
            1
        );
        assert_eq!(fake.warnings("RB_WPTR 0x80"), 1);
        drop(watchdog);
        finish(&fake, sched)
    }

    /// Counts.
    struct Count(Atomic<u32>);

    impl Tick for Count {
        fn tick(&self) {
            self.0.add(1, Relaxed);
        }
    }

    #[test]
    fn ticker_ticks_until_it_is_dropped() -> Result {
        let count = Arc::new(Count(Atomic::new(0)), GFP_KERNEL)?;
        let ticker = new_ticker!("rkfd_test_ticker", 1, count.clone());
        let ticker = KBox::pin_init(ticker, GFP_KERNEL)?;
        kernel::time::delay::fsleep(kernel::time::Delta::from_millis(20));
        assert_eq!(count.0.load(Relaxed), 0);
        ticker.start();
        // Bounded: 3 ticks take three jiffies.
        for _ in 0..60_000 {
            if count.0.load(Relaxed) >= 3 {
                break;
            }
            kernel::time::delay::fsleep(kernel::time::Delta::from_millis(1));
        }
        drop(ticker);
        let ticks = count.0.load(Relaxed);
        assert!(ticks >= 3);
        // One that is far in the future goes at once.
        let late = new_ticker!(
            "rkfd_test_ticker",
            msecs_to_jiffies(3_600_000),
            count.clone()
        );
        let late = KBox::pin_init(late, GFP_KERNEL)?;
        late.start();
        drop(late);
        assert_eq!(count.0.load(Relaxed), ticks);
        Ok(())
    }
}
