// SPDX-License-Identifier: GPL-2.0

//! The scheduler with its worker: callers that wait, records that are reaped, threads that meet.

use kernel::{
    fmt,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

use super::{
    config::Config,
    desired::queue::QueueHold,
    diag::dump,
    failure::{
        Failure,
        ResetHook, //
    },
    fake::{
        config,
        create,
        doorbell,
        finish,
        pm4,
        process,
        setup,
        working_scheduler,
        Event,
        Fake,
        Mode,
        Token, //
    },
    lifecycle::Lifecycle,
    params::{
        EvictCause,
        QueueUpdate, //
    },
    sdma_ids::{
        SdmaPool,
        QUEUES_PER_ENGINE, //
    },
    worker::Worker, //
};
use crate::{
    hw::asic::GFX90A,
    kapi::waitqueue::Sleep, //
};

#[kunit_tests(rkfd_sched_worker)]
mod worker {
    use super::*;

    #[test]
    fn destroy_returns_when_the_queue_is_off() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = working_scheduler(&fake, config())?;
        let proc = sched.attach(process(1))?;
        for n in 0..20 {
            let queue = create(&sched, proc, n)?;
            sched.destroy_queue(proc, queue)?;
            assert_eq!(fake.mapped(), 0);
            // Again is no error.
            sched.destroy_queue(proc, queue)?;
        }
        assert_eq!(sched.core.load().queues, 0);
        finish(&fake, sched)
    }

    #[test]
    fn create_without_coalescing_returns_when_the_queue_runs() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = working_scheduler(
            &fake,
            Config {
                coalesce: false,
                ..config()
            },
        )?;
        let proc = sched.attach(process(1))?;
        let _ = fake.log();
        for n in 1..=3 {
            create(&sched, proc, n)?;
            // CAST: A small number.
            assert_eq!(fake.mapped(), n as usize);
        }
        let lists = fake
            .log()
            .iter()
            .filter(|event| matches!(event, Event::List { .. }))
            .count();
        assert_eq!(lists, 3);
        finish(&fake, sched)
    }

    #[test]
    fn detach_takes_one_preemption() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = working_scheduler(
            &fake,
            Config {
                coalesce: false,
                ..config()
            },
        )?;
        let proc = sched.attach(process(1))?;
        for n in 0..10 {
            create(&sched, proc, n)?;
        }
        let before = sched.core.counters.snapshot().preemptions;
        sched.detach(proc)?;
        assert_eq!(sched.core.counters.snapshot().preemptions, before + 1);
        assert_eq!(fake.mapped(), 0);
        assert_eq!(sched.core.load().processes, 0);
        sched.detach(proc)?;
        finish(&fake, sched)
    }

    #[test]
    fn evict_and_restore_wait_as_documented() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = working_scheduler(
            &fake,
            Config {
                coalesce: false,
                ..config()
            },
        )?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        for _ in 0..10 {
            sched.evict(proc, EvictCause::Userptr)?;
            assert_eq!(fake.mapped(), 0);
            sched.restore(proc, EvictCause::Userptr)?;
        }
        assert_eq!(
            sched.evict(proc + 1, EvictCause::Userptr).err(),
            Some(ESRCH)
        );
        finish(&fake, sched)
    }

    #[test]
    fn update_returns_when_in_force() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = working_scheduler(
            &fake,
            Config {
                coalesce: false,
                ..config()
            },
        )?;
        let proc = sched.attach(process(1))?;
        let queue = create(&sched, proc, 1)?;
        let update = QueueUpdate {
            percent: Some(0),
            ..QueueUpdate::default()
        };
        sched.update_queue(proc, queue, update)?;
        assert_eq!(fake.mapped(), 0);
        sched.destroy_queue(proc, queue)?;
        finish(&fake, sched)
    }

    #[test]
    fn orphans_are_reaped() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = working_scheduler(&fake, config())?;
        let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        for pasid in 1..=5 {
            let mut params = process(pasid);
            params.keep = Some(Token::keep(&count)?);
            let proc = sched.attach(params)?;
            let hold = QueueHold {
                keep: Some(Token::keep(&count)?),
                ..QueueHold::default()
            };
            sched.create_queue(proc, pm4(pasid.into()), hold)?;
            // As dropping the handle does.
            let _ = sched.begin_detach(proc, true);
        }
        // Shutting down finishes the worker and the reaper.
        sched.shutdown();
        assert_eq!(count.load(Relaxed), 0);
        finish(&fake, sched)
    }

    #[test]
    fn sleeper_gets_eio_when_the_firmware_hangs() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = working_scheduler(
            &fake,
            Config {
                coalesce: false,
                ..config()
            },
        )?;
        let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let proc = sched.attach(process(1))?;
        let hold = QueueHold {
            keep: Some(Token::keep(&count)?),
            ..QueueHold::default()
        };
        let queue = sched.create_queue(proc, pm4(1), hold)?;
        fake.set_mode(Mode::KeepsFences);
        assert_eq!(sched.destroy_queue(proc, queue).err(), Some(EIO));
        assert_eq!(sched.core.life(), Lifecycle::Wedged);
        // The hardware may still use it.
        assert_eq!(count.load(Relaxed), 1);
        fake.reset();
        sched.after_reset()?;
        let change = sched.core.state.lock().newest_change();
        sched.core.wait(change, Sleep::Uninterruptible)?;
        sched.shutdown();
        assert_eq!(count.load(Relaxed), 0);
        finish(&fake, sched)
    }

    #[test]
    fn queue_whose_creator_gave_up_does_not_stay() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = working_scheduler(
            &fake,
            Config {
                coalesce: false,
                ..config()
            },
        )?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        fake.set_mode(Mode::KeepsFences);
        assert_eq!(create(&sched, proc, 2).err(), Some(EIO));
        assert_eq!(sched.core.load().queues, 1);
        // Nobody has the turn.
        fake.reset();
        sched.after_reset()?;
        create(&sched, proc, 3)?;
        assert_eq!(sched.core.load().queues, 2);
        finish(&fake, sched)
    }

    /// Hears of a queue that hung and waits for the scheduler, as somebody does for whom memory is
    /// being reclaimed.
    struct Waits {
        sched: Arc<Worker>,
        proc: u64,
        heard: Atomic<u32>,
        failed: Atomic<u32>,
    }

    impl ResetHook for Waits {
        fn wedged(&self, _failure: &Failure) {}

        fn queue_hung(&self, _pasid: u16, _doorbell: u32) {
            let evicted = self.sched.evict(self.proc, EvictCause::Userptr);
            self.failed.add(u32::from(evicted.is_err()), Relaxed);
            self.heard.add(1, Relaxed);
        }
    }

    #[test]
    fn who_hears_of_a_hang_may_wait_for_the_scheduler() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = working_scheduler(&fake, config())?;
        let guilty = sched.attach(process(1))?;
        let innocent = sched.attach(process(2))?;
        let hook = Arc::new(
            Waits {
                sched: sched.clone(),
                proc: innocent,
                heard: Atomic::new(0),
                failed: Atomic::new(0),
            },
            GFP_KERNEL,
        )?;
        sched.core.set_reset_hook(Some(hook.clone()));
        create(&sched, guilty, 1)?;
        create(&sched, innocent, 2)?;
        let change = sched.core.state.lock().newest_change();
        sched.core.wait_settled(change)?;
        fake.set_mode(Mode::Refuses(doorbell(1).dword()));
        sched.evict(guilty, EvictCause::Userptr)?;
        for _ in 0..1000 {
            if hook.heard.load(Relaxed) > 0 {
                break;
            }
            fsleep(Delta::from_millis(10));
        }
        assert_eq!(hook.heard.load(Relaxed), 1);
        assert_eq!(hook.failed.load(Relaxed), 0);
        drop(hook);
        // Takes back the hook, which has the scheduler.
        finish(&fake, sched)
    }

    #[test]
    fn a_turn_does_not_wait_for_a_change_that_nobody_applies() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = working_scheduler(
            &fake,
            Config {
                coalesce: false,
                ..config()
            },
        )?;
        let proc = sched.attach(process(1))?;
        let idle = sched.attach(process(2))?;
        create(&sched, proc, 0)?;
        // It has no queue that would have to stop, so nobody calls the worker for it.
        sched.evict(idle, EvictCause::Userptr)?;
        sched.end_serialized()?;
        sched.restore(idle, EvictCause::Userptr)?;
        sched.end_serialized()?;
        finish(&fake, sched)
    }

    #[test]
    fn shutdown_ends_the_gathering() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = working_scheduler(
            &fake,
            Config {
                gather_us: 1_000_000_000,
                ..config()
            },
        )?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 0)?;
        create(&sched, proc, 1)?;
        finish(&fake, sched)
    }

    #[test]
    fn burst_shares_one_preemption_and_urgency_ends_it() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = working_scheduler(
            &fake,
            Config {
                gather_us: 10_000_000,
                ..config()
            },
        )?;
        let proc = sched.attach(process(1))?;
        let first = create(&sched, proc, 0)?;
        let settle = || {
            let change = sched.core.state.lock().newest_change();
            sched.core.wait_settled(change)
        };
        settle()?;
        for n in 1..64 {
            create(&sched, proc, n)?;
        }
        // The additions would wait for long; the removal is urgent and takes them along.
        sched.destroy_queue(proc, first)?;
        settle()?;
        let stats = sched.core.counters.snapshot();
        assert_eq!((stats.runlists, stats.preemptions), (2, 1));
        assert_eq!(fake.mapped(), 63);
        finish(&fake, sched)
    }
}

/// Text that a test collects.
struct Text(KVec<u8>);

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0
            .extend_from_slice(text.as_bytes(), GFP_KERNEL)
            .map_err(|_| fmt::Error)
    }
}

impl Text {
    /// Runs `dump` into a new text.
    fn of(dump: impl FnOnce(&mut Self) -> fmt::Result) -> Result<Self> {
        let mut text = Self(KVec::new());
        dump(&mut text).map_err(|_| EIO)?;
        Ok(text)
    }

    /// Lines that begin with `start`.
    fn starts(&self, start: &str) -> usize {
        let text = core::str::from_utf8(&self.0).unwrap_or("");
        text.lines().filter(|line| line.starts_with(start)).count()
    }

    /// Lines that contain all of `parts`.
    fn count(&self, parts: &[&str]) -> usize {
        let text = core::str::from_utf8(&self.0).unwrap_or("");
        text.lines()
            .filter(|line| parts.iter().all(|part| line.contains(part)))
            .count()
    }
}

#[kunit_tests(rkfd_sched_dump)]
mod dumps {
    use super::*;

    #[test]
    fn runlist_shows_each_packet_once() -> Result {
        let (fake, sched) = setup()?;
        let empty = Text::of(|f| dump::runlist(&sched.core, f))?;
        assert_eq!(empty.count(&["no runlist is active"]), 1);
        let proc = sched.attach(process(0x77))?;
        for n in 1..=25 {
            create(&sched, proc, n)?;
        }
        sched.converge();
        let text = Text::of(|f| dump::runlist(&sched.core, f))?;
        assert_eq!(text.count(&["MAP_PROCESS", "pasid 119", "queues 25"]), 1);
        assert_eq!(text.count(&["MAP_QUEUES"]), 25);
        // Doorbell 25 is byte 200.
        assert_eq!(text.count(&["MAP_QUEUES", "doorbell 0xc8 "]), 1);
        assert_eq!(text.count(&["RUN_LIST", "chain"]), 1);
        assert_eq!(text.count(&["1 processes, 25 queues, takes turns"]), 1);
        finish(&fake, sched)
    }

    #[test]
    fn descriptors_show_state_and_words() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(3))?;
        create(&sched, proc, 1)?;
        sched.converge();
        create(&sched, proc, 2)?;
        let text = Text::of(|f| dump::mqds(&sched.core, f))?;
        assert_eq!(text.count(&["queue", "pm4 mapped", "doorbell 0x8 "]), 1);
        assert_eq!(text.count(&["queue", "pm4 created", "doorbell 0x10 "]), 1);
        assert_eq!(text.count(&["HEADER", "0xc0310800"]), 2);
        let _ = sched.begin_evict(proc, EvictCause::Memory)?;
        let text = Text::of(|f| dump::mqds(&sched.core, f))?;
        assert_eq!(text.count(&["pasid 3", "evicted: memory x1"]), 1);
        finish(&fake, sched)
    }

    #[test]
    fn slots_show_what_the_hardware_says() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(3))?;
        create(&sched, proc, 1)?;
        create(&sched, proc, 2)?;
        sched.converge();
        let text = Text::of(|f| dump::hqds(&sched.core, f))?;
        assert_eq!(text.count(&["me 1 pipe 0 q 2", "0x8 "]), 1);
        assert_eq!(text.count(&["me 1 pipe 0 q 3", "0x10 "]), 1);
        assert_eq!(text.count(&["24 slots idle"]), 1);
        fake.set_mode(Mode::Lost);
        let text = Text::of(|f| dump::hqds(&sched.core, f))?;
        assert_eq!(text.count(&["does not answer"]), 1);
        fake.set_mode(Mode::Good);
        finish(&fake, sched)
    }

    #[test]
    fn report_comes_line_by_line() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(3))?;
        create(&sched, proc, 1)?;
        sched.converge();
        let whole = Text::of(|f| dump::hqds(&sched.core, f))?;
        let mut lines = Text(KVec::new());
        let mut count = 0;
        dump::report(&sched.core, &mut |line| {
            use fmt::Write;
            count += 1;
            let _ = lines.write_str(line);
            let _ = lines.write_str("\n");
        });
        assert_eq!(lines.0.as_slice(), whole.0.as_slice());
        // Heading, one queue, the idle ones.
        assert_eq!(count, 3);
        finish(&fake, sched)
    }

    #[test]
    fn statistics_are_complete() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(3))?;
        create(&sched, proc, 1)?;
        sched.converge();
        let text = Text::of(|f| dump::stats(&sched.core, f))?;
        assert_eq!(text.count(&["health running"]), 1);
        // 21 dwords of MAP_PROCESS, 7 of MAP_QUEUES.
        assert_eq!(text.count(&["runlist_dwords 28"]), 1);
        assert_eq!(text.count(&["on_hardware 1"]), 1);
        for name in [
            "creates 1",
            "updates 0",
            "destroys 0",
            "runlists 1",
            "packets ",
            "dwords ",
            "preemptions 0",
            "evictions 0",
            "restores 0",
            "resets 0",
            "queues 1",
            "processes 1",
        ] {
            assert_eq!(text.starts(name), 1);
        }
        // Each line is a name and a value, for programs to read.
        assert_eq!(text.count(&["  "]), 0);
        finish(&fake, sched)
    }
}

#[kunit_tests(rkfd_sched_sdma)]
mod sdma_ids {
    use super::*;

    #[test]
    fn ids_spread_over_engines() -> Result {
        let pool = SdmaPool::new(5)?;
        let slots = [
            pool.alloc(None)?,
            pool.alloc(None)?,
            pool.alloc(None)?,
            pool.alloc(None)?,
            pool.alloc(None)?,
            pool.alloc(None)?,
        ];
        for (i, slot) in slots.iter().enumerate() {
            // CAST: A small index.
            assert_eq!(slot.place().engine, i as u32 % 5);
            assert_eq!(slot.place().queue, i as u32 / 5);
        }
        assert_eq!(pool.in_use(), 6);
        Ok(())
    }

    #[test]
    fn exhaustion_is_reported_and_ids_come_back() -> Result {
        let pool = SdmaPool::new(2)?;
        let mut slots = KVec::new();
        for _ in 0..2 * QUEUES_PER_ENGINE {
            slots.push(pool.alloc(None)?, GFP_KERNEL)?;
        }
        assert_eq!(pool.alloc(None).err(), Some(ENOSPC));
        assert_eq!(pool.alloc(Some(1)).err(), Some(ENOSPC));
        let freed = slots.pop().ok_or(EINVAL)?;
        let (engine, queue) = (freed.place().engine, freed.place().queue);
        drop(freed);
        let again = pool.alloc(None)?;
        assert_eq!((again.place().engine, again.place().queue), (engine, queue));
        drop(again);
        drop(slots);
        assert_eq!(pool.in_use(), 0);
        Ok(())
    }

    #[test]
    fn lowest_id_of_the_first_engines_is_taken() -> Result {
        let pool = SdmaPool::new(5)?;
        let mut slots = KVec::new();
        for n in 0..2 * QUEUES_PER_ENGINE {
            let slot = pool.alloc_spread(2)?;
            assert_eq!((slot.place().queue, slot.place().engine), (n / 2, n % 2));
            // No more than one at a time, so that others find the rest.
            assert_eq!(pool.in_use(), n + 1);
            slots.push(slot, GFP_KERNEL)?;
        }
        assert_eq!(pool.alloc_spread(2).err(), Some(ENOSPC));
        assert_eq!(pool.alloc_spread(0).err(), Some(ENOSPC));
        assert_eq!(pool.alloc_spread(9)?.place().engine, 2);
        Ok(())
    }

    #[test]
    fn engine_can_be_chosen() -> Result {
        let pool = SdmaPool::new(5)?;
        let first = pool.alloc(Some(4))?;
        let second = pool.alloc(Some(4))?;
        assert_eq!((first.place().engine, first.place().queue), (4, 0));
        assert_eq!((second.place().engine, second.place().queue), (4, 1));
        assert_eq!(pool.alloc(Some(5)).err(), Some(EINVAL));
        drop(first);
        let third = pool.alloc(Some(4))?;
        assert_eq!(third.place().queue, 0);
        Ok(())
    }
}
