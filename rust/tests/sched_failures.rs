// SPDX-License-Identifier: GPL-2.0

//! Firmware that hangs, refuses or vanishes, and orderly ends. The test is the worker.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

use super::{
    changes::pending::Pending,
    desired::queue::QueueHold,
    failure::{
        Failure,
        ResetHook, //
    },
    fake::{
        config,
        create,
        doorbell,
        finish,
        process,
        scheduler,
        sdma,
        setup,
        Fake,
        Mode,
        Token, //
    },
    lifecycle::Lifecycle,
    params::{
        EvictCause,
        QueueUpdate,
        UpdateError, //
    },
    steps::destroy,
    worker::Worker, //
};
use crate::hw::asic::GFX90A;

use super::fake::Event::{
    Fence,
    HiqOff,
    List,
    Process,
    Queue,
    Reset,
    UnmapAll,
    UnmapQueues, //
};

/// Remembers what a [`ResetHook`] hears.
struct Heard {
    count: Atomic<u32>,
    pasid: Atomic<u32>,
    doorbell: Atomic<u32>,
}

impl Heard {
    fn new() -> Result<Arc<Self>> {
        let heard = Self {
            count: Atomic::new(0),
            pasid: Atomic::new(0),
            doorbell: Atomic::new(0),
        };
        Ok(Arc::new(heard, GFP_KERNEL)?)
    }

    fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    fn last(&self) -> (u32, u32) {
        (self.pasid.load(Relaxed), self.doorbell.load(Relaxed))
    }
}

impl ResetHook for Heard {
    fn wedged(&self, _failure: &Failure) {}

    fn queue_hung(&self, pasid: u16, doorbell: u32) {
        self.pasid.store(pasid.into(), Relaxed);
        self.doorbell.store(doorbell, Relaxed);
        self.count.add(1, Relaxed);
    }
}

#[kunit_tests(rkfd_sched_failures)]
mod failures {
    use super::*;

    #[test]
    fn dead_firmware_fails_the_bring_up() -> Result {
        let fake = Fake::new(&GFX90A)?;
        fake.set_mode(Mode::Dead);
        assert_eq!(scheduler(&fake, config()).err(), Some(ETIMEDOUT));
        assert_eq!(fake.blocks(), 0);
        fake.set_mode(Mode::Lost);
        assert_eq!(scheduler(&fake, config()).err(), Some(EIO));
        Ok(())
    }

    #[test]
    fn shutdown_without_work_only_disconnects() -> Result {
        let (fake, sched) = setup()?;
        sched.shutdown();
        assert_eq!(fake.log().as_slice(), &[HiqOff]);
        sched.shutdown();
        assert!(fake.log().is_empty());
        finish(&fake, sched)
    }

    #[test]
    fn every_preemption_has_a_fence_of_its_own() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 0)?;
        let _ = fake.fences();
        for n in 1..40 {
            let queue = create(&sched, proc, n)?;
            sched.converge();
            destroy(&sched, proc, queue)?;
        }
        let fences = fake.fences();
        assert!(fences.len() > 70);
        for (i, (addr, value)) in fences.iter().enumerate() {
            for (earlier_addr, earlier) in fences.iter().take(i) {
                assert!(earlier < value);
                // Not even the place of the one before.
                assert!(i < 1 || earlier_addr != addr || i > 1);
            }
        }
        finish(&fake, sched)
    }

    #[test]
    fn missing_fence_wedges_and_later_calls_fail_at_once() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let queue = create(&sched, proc, 1)?;
        sched.converge();
        let blocks = fake.blocks();
        fake.set_mode(Mode::KeepsFences);
        let Pending::Change(change) = sched.begin_destroy(proc, queue, true) else {
            return Err(EINVAL);
        };
        sched.converge();
        assert_eq!(sched.core.life(), Lifecycle::Wedged);
        let waited = fake.elapsed();
        assert!((9_000_000..9_100_000).contains(&waited));
        assert_eq!(sched.core.counters.snapshot().timeouts, 1);
        let sleep = crate::kapi::waitqueue::Sleep::Uninterruptible;
        assert_eq!(sched.core.wait(change, sleep).err(), Some(EIO));
        assert_eq!(create(&sched, proc, 2).err(), Some(EIO));
        assert_eq!(sched.attach(process(2)).err(), Some(EIO));
        assert_eq!(sched.evict(proc, EvictCause::Svm).err(), Some(EIO));
        assert_eq!(sched.ping().err(), Some(EIO));
        // What the hardware may still use stays.
        assert_eq!(fake.blocks(), blocks);
        assert_eq!(fake.elapsed(), waited);
        finish_wedged(&fake, sched)
    }

    #[test]
    fn reset_brings_everything_back() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let queue = create(&sched, proc, 1)?;
        create(&sched, proc, 2)?;
        sched.converge();
        fake.set_mode(Mode::KeepsFences);
        let _ = sched.begin_destroy(proc, queue, true);
        sched.converge();
        assert_eq!(sched.core.life(), Lifecycle::Wedged);

        fake.reset();
        let _ = fake.log();
        sched.after_reset()?;
        assert_eq!(sched.core.life(), Lifecycle::Running);
        // The late fence of the lost preemption disturbs nothing.
        fake.release_fences();
        sched.converge();
        let log = fake.log();
        assert_eq!(log.get(2).copied(), Some(Fence));
        assert_eq!(
            log.get(3..),
            Some(
                &[
                    List { processes: 1 },
                    Process {
                        pasid: 1,
                        queues: 1
                    },
                    Queue(2)
                ][..]
            )
        );
        assert_eq!(sched.core.load().queues, 1);
        create(&sched, proc, 3)?;
        sched.converge();
        assert_eq!(fake.mapped(), 2);
        finish(&fake, sched)
    }

    #[test]
    fn queue_that_refuses_is_reset_and_others_go_on() -> Result {
        let (fake, sched) = setup()?;
        let heard = Heard::new()?;
        let hook: Arc<dyn ResetHook> = heard.clone();
        sched.core.set_reset_hook(Some(hook));
        let guilty = sched.attach(process(1))?;
        let innocent = sched.attach(process(2))?;
        let hung = create(&sched, guilty, 1)?;
        create(&sched, innocent, 2)?;
        sched.converge();
        let _ = fake.log();

        fake.set_mode(Mode::Refuses(doorbell(1).dword()));
        create(&sched, innocent, 3)?;
        sched.converge();
        assert_eq!(
            fake.log().as_slice(),
            &[
                UnmapAll,
                Fence,
                Reset(1),
                Fence,
                UnmapAll,
                Fence,
                List { processes: 1 },
                Process {
                    pasid: 2,
                    queues: 2
                },
                Queue(2),
                Queue(3),
            ]
        );
        assert_eq!(sched.core.life(), Lifecycle::Running);
        assert_eq!(heard.last(), (1, doorbell(1).dword()));
        assert_eq!(heard.count(), 1);
        let stats = sched.core.counters.snapshot();
        assert_eq!((stats.refusals, stats.queue_resets), (1, 1));
        // The queue is gone for good, and destroying it is no matter.
        sched.converge();
        assert!(fake.log().is_empty());
        destroy(&sched, guilty, hung)?;
        assert_eq!(heard.count(), 1);
        finish(&fake, sched)
    }

    #[test]
    fn queue_that_refuses_its_destruction_is_reset() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let queue = create(&sched, proc, 1)?;
        create(&sched, proc, 2)?;
        sched.converge();
        let _ = fake.log();
        fake.set_mode(Mode::Refuses(doorbell(1).dword()));
        destroy(&sched, proc, queue)?;
        assert_eq!(
            fake.log().as_slice(),
            &[
                UnmapQueues(1, 1),
                Fence,
                Reset(1),
                Fence,
                UnmapQueues(1, 1),
                Fence
            ]
        );
        assert_eq!(fake.mapped(), 1);
        assert_eq!(sched.core.load().queues, 1);
        finish(&fake, sched)
    }

    #[test]
    fn queue_that_was_reset_takes_no_changes() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let queue = create(&sched, proc, 1)?;
        sched.converge();
        fake.set_mode(Mode::Refuses(doorbell(1).dword()));
        let _ = sched.begin_evict(proc, EvictCause::Svm)?;
        sched.converge();
        sched.restore(proc, EvictCause::Svm)?;
        for update in [
            QueueUpdate {
                percent: Some(100),
                ..QueueUpdate::default()
            },
            QueueUpdate {
                cu_mask: Some([1; 8]),
                ..QueueUpdate::default()
            },
        ] {
            let refused = sched.update_queue(proc, queue, update).err();
            assert_eq!(refused, Some(UpdateError::Refused(EACCES)));
        }
        // Its neighbours do.
        let other = create(&sched, proc, 2)?;
        sched.update_queue(proc, other, QueueUpdate::default())?;
        destroy(&sched, proc, queue)?;
        finish(&fake, sched)
    }

    #[test]
    fn sdma_queue_that_is_named_is_not_taken_for_stopped() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let hold = QueueHold {
            keep: Some(Token::keep(&count)?),
            ..QueueHold::default()
        };
        let queue = sched.create_queue(proc, sdma(1, 0, 0), hold)?;
        sched.converge();
        let _ = fake.log();
        fake.set_mode(Mode::Refuses(doorbell(1).dword()));
        let _ = sched.begin_destroy(proc, queue, true);
        sched.converge();
        // No packet resets it, so it may still run.
        assert_eq!(fake.log().as_slice(), &[UnmapAll, Fence]);
        assert_eq!(sched.core.life(), Lifecycle::Wedged);
        assert_eq!(sched.core.counters.snapshot().queue_resets, 0);
        assert_eq!(count.load(Relaxed), 1);
        finish_wedged(&fake, sched)
    }

    #[test]
    fn all_attempts_of_a_preemption_share_its_time() -> Result {
        // The firmware may take nine tenths of the time-out over each queue.
        for (queues, life) in [(4, Lifecycle::Running), (8, Lifecycle::Wedged)] {
            let (fake, sched) = setup()?;
            let proc = sched.attach(process(1))?;
            // A queue with doorbell 0 could not be named.
            for n in 1..=queues {
                create(&sched, proc, n)?;
            }
            sched.converge();
            fake.set_mode(Mode::AllRefuse(8_100_000));
            let _ = sched.begin_evict(proc, EvictCause::Svm)?;
            sched.converge();
            assert_eq!(sched.core.life(), life);
            assert!(fake.elapsed() / 1000 < u64::from(sched.core.config.converge_ms()));
            match life {
                Lifecycle::Running => finish(&fake, sched)?,
                _ => finish_wedged(&fake, sched)?,
            }
        }
        Ok(())
    }

    #[test]
    fn as_many_resets_as_are_allowed_bring_a_preemption_to_its_end() -> Result {
        for (queues, life) in [(8, Lifecycle::Running), (9, Lifecycle::Wedged)] {
            let (fake, sched) = setup()?;
            let proc = sched.attach(process(1))?;
            for n in 1..=queues {
                create(&sched, proc, n)?;
            }
            sched.converge();
            fake.set_mode(Mode::AllRefuse(1000));
            let _ = sched.begin_evict(proc, EvictCause::Svm)?;
            sched.converge();
            assert_eq!(sched.core.life(), life);
            assert_eq!(sched.core.counters.snapshot().queue_resets, 8);
            match life {
                Lifecycle::Running => finish(&fake, sched)?,
                _ => finish_wedged(&fake, sched)?,
            }
        }
        Ok(())
    }

    #[test]
    fn scheduler_that_is_being_brought_back_does_not_sleep() -> Result {
        let (fake, sched) = setup()?;
        let hook: Arc<dyn ResetHook> = Heard::new()?;
        sched.core.set_reset_hook(Some(hook));
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        sched.converge();
        fake.set_mode(Mode::KeepsFences);
        let _ = sched.begin_evict(proc, EvictCause::Svm)?;
        sched.converge();
        assert_eq!(sched.suspend().err(), Some(EBUSY));
        assert!(!sched.core.life().is_suspended());
        fake.reset();
        sched.after_reset()?;
        sched.suspend()?;
        // A reset that comes too late must not connect to hardware that stands still.
        assert_eq!(sched.after_reset().err(), Some(EBUSY));
        assert!(sched.core.life().is_suspended());
        let _ = fake.log();
        sched.resume()?;
        sched.restore(proc, EvictCause::Svm)?;
        sched.converge();
        assert_eq!(fake.mapped(), 1);
        finish(&fake, sched)
    }

    #[test]
    fn scheduler_out_of_service_sleeps_and_stays_so() -> Result {
        for abandoned in [false, true] {
            let (fake, sched) = setup()?;
            if abandoned {
                let hook: Arc<dyn ResetHook> = Heard::new()?;
                sched.core.set_reset_hook(Some(hook));
            }
            let proc = sched.attach(process(1))?;
            let queue = create(&sched, proc, 1)?;
            sched.converge();
            fake.set_mode(Mode::KeepsFences);
            let _ = sched.begin_evict(proc, EvictCause::Svm)?;
            sched.converge();
            if abandoned {
                sched.abandon();
            }
            sched.suspend()?;
            assert!(sched.core.life().is_suspended());
            sched.resume()?;
            assert_eq!(sched.core.life(), Lifecycle::Wedged);
            assert_eq!(create(&sched, proc, 2).err(), Some(EIO));
            assert_eq!(sched.core.wave_state(proc, queue).err(), Some(EIO));
            finish_wedged(&fake, sched)?;
        }
        Ok(())
    }

    #[test]
    fn abandoned_scheduler_refuses_changes() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        sched.converge();
        sched.abandon();
        assert_eq!(create(&sched, proc, 2).err(), Some(EIO));
        assert_eq!(sched.detach(proc).err(), Some(EIO));
        finish_wedged(&fake, sched)
    }

    #[test]
    fn queue_that_survives_its_reset_wedges() -> Result {
        let (fake, sched) = setup()?;
        let heard = Heard::new()?;
        let hook: Arc<dyn ResetHook> = heard.clone();
        sched.core.set_reset_hook(Some(hook));
        let proc = sched.attach(process(1))?;
        let queue = create(&sched, proc, 1)?;
        sched.converge();
        fake.set_mode(Mode::Stubborn(doorbell(1).dword()));
        let _ = sched.begin_destroy(proc, queue, true);
        sched.converge();
        assert_eq!(sched.core.life(), Lifecycle::Recovering);
        assert_eq!(sched.core.counters.snapshot().refusals, 1);
        assert_eq!(sched.core.counters.snapshot().queue_resets, 0);
        assert_eq!(sched.core.counters.snapshot().timeouts, 0);
        assert_eq!(fake.elapsed(), 0);
        // Its owner was told, and is not told again when the engines were reset for it.
        assert_eq!(heard.count(), 1);
        fake.reset();
        let doorbell = doorbell(1).dword();
        sched.recover(&[], &Failure::Refused { doorbell })?;
        sched.converge();
        assert_eq!(heard.count(), 1);
        finish(&fake, sched)
    }

    #[test]
    fn refusal_of_an_unknown_queue_wedges() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let queue = create(&sched, proc, 1)?;
        sched.converge();
        let _ = fake.log();
        fake.set_mode(Mode::Refuses(0x7777));
        let _ = sched.begin_destroy(proc, queue, true);
        sched.converge();
        assert_eq!(sched.core.life(), Lifecycle::Wedged);
        assert_eq!(fake.log().as_slice(), &[UnmapAll, Fence]);
        finish_wedged(&fake, sched)
    }

    #[test]
    fn hung_shutdown_keeps_memory_until_the_hardware_is_stopped() -> Result {
        let (fake, sched) = setup()?;
        let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let mut params = process(1);
        params.keep = Some(Token::keep(&count)?);
        let proc = sched.attach(params)?;
        let queue = create(&sched, proc, 1)?;
        sched.converge();
        fake.set_mode(Mode::KeepsFences);
        sched.shutdown();
        assert_eq!(sched.core.life(), Lifecycle::Unreleased);
        // A reset that was under way comes too late.
        fake.reset();
        assert_eq!(sched.after_reset().err(), Some(ENODEV));
        assert_eq!(sched.core.life(), Lifecycle::Unreleased);
        assert_eq!(sched.destroy_queue(proc, queue).err(), Some(EIO));
        assert_eq!(sched.detach(proc).err(), Some(EIO));
        assert_eq!(count.load(Relaxed), 1);
        assert!(fake.blocks() > 1);
        fake.reset();
        sched.release();
        assert_eq!(sched.core.life(), Lifecycle::Gone);
        assert_eq!(count.load(Relaxed), 0);
        sched.release();
        finish(&fake, sched)
    }

    #[test]
    fn lost_device_wedges_without_the_full_wait() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let queue = create(&sched, proc, 1)?;
        sched.converge();
        fake.set_mode(Mode::Lost);
        let _ = sched.begin_destroy(proc, queue, true);
        sched.converge();
        assert_eq!(sched.core.life(), Lifecycle::Wedged);
        assert!(fake.elapsed() < 200_000);
        finish_wedged(&fake, sched)
    }

    #[test]
    fn removed_device_answers_enodev_and_frees_everything() -> Result {
        let (fake, sched) = setup()?;
        let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let mut params = process(1);
        params.keep = Some(Token::keep(&count)?);
        let proc = sched.attach(params)?;
        let queue = create(&sched, proc, 1)?;
        sched.converge();
        fake.set_mode(Mode::Gone);
        assert!(matches!(
            sched.begin_destroy(proc, queue, false),
            Pending::Change(_)
        ));
        sched.converge();
        assert_eq!(sched.core.life(), Lifecycle::Gone);
        assert_eq!(create(&sched, proc, 2).err(), Some(ENODEV));
        assert_eq!(sched.restore(proc, EvictCause::Svm).err(), Some(EINVAL));
        assert_eq!(sched.evict(proc, EvictCause::Svm).err(), None);
        // The goal of a removal is reached without the device.
        sched.destroy_queue(proc, queue)?;
        sched.detach(proc)?;
        assert_eq!(count.load(Relaxed), 0);
        assert_eq!(sched.after_reset().err(), Some(ENODEV));
        fake.reset();
        finish(&fake, sched)
    }

    #[test]
    fn handles_may_outlive_the_shutdown() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let queue = create(&sched, proc, 1)?;
        sched.converge();
        let _ = fake.log();
        sched.shutdown();
        assert_eq!(fake.log().as_slice(), &[UnmapAll, Fence, HiqOff]);
        assert_eq!(sched.attach(process(2)).err(), Some(ENODEV));
        assert_eq!(create(&sched, proc, 2).err(), Some(ENODEV));
        sched.destroy_queue(proc, queue)?;
        sched.detach(proc)?;
        sched.detach(proc)?;
        assert_eq!(sched.core.load().processes, 0);
        finish(&fake, sched)
    }

    #[test]
    fn ping_takes_one_fence() -> Result {
        let (fake, sched) = setup()?;
        sched.ping()?;
        sched.ping()?;
        assert_eq!(fake.log().as_slice(), &[Fence, Fence]);
        finish(&fake, sched)
    }
}

/// As [`finish`] for a scheduler that lost its firmware.
fn finish_wedged(fake: &Arc<Fake>, sched: Arc<Worker>) -> Result {
    fake.reset();
    finish(fake, sched)
}
