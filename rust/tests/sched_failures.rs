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
    fake::{
        config,
        create,
        doorbell,
        finish,
        machine,
        process,
        sdma,
        setup,
        Fake,
        Mode,
        Token, //
    },
    health::{
        Failure,
        Health,
        ResetHook, //
    },
    machine::{
        Machine,
        Pending, //
    },
    params::{
        EvictCause,
        QueueUpdate,
        UpdateError, //
    },
    record::QueueHold,
    steps::destroy, //
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
    UnmapProcess,
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
        assert_eq!(machine(&fake, config()).err(), Some(ETIMEDOUT));
        assert_eq!(fake.blocks(), 0);
        fake.set_mode(Mode::Lost);
        assert_eq!(machine(&fake, config()).err(), Some(EIO));
        Ok(())
    }

    #[test]
    fn shutdown_without_work_only_disconnects() -> Result {
        let (fake, machine) = setup()?;
        machine.shutdown();
        assert_eq!(fake.log().as_slice(), &[HiqOff]);
        machine.shutdown();
        assert!(fake.log().is_empty());
        finish(&fake, machine)
    }

    #[test]
    fn every_preemption_has_a_fence_of_its_own() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        create(&machine, proc, 0)?;
        let _ = fake.fences();
        for n in 1..40 {
            let queue = create(&machine, proc, n)?;
            machine.converge();
            destroy(&machine, proc, queue)?;
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
        finish(&fake, machine)
    }

    #[test]
    fn missing_fence_wedges_and_later_calls_fail_at_once() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let queue = create(&machine, proc, 1)?;
        machine.converge();
        let blocks = fake.blocks();
        fake.set_mode(Mode::KeepsFences);
        let Pending::Change(change) = machine.doom_queue(proc, queue, true) else {
            return Err(EINVAL);
        };
        machine.converge();
        assert_eq!(machine.health(), Health::Wedged);
        let waited = fake.elapsed();
        assert!((9_000_000..9_100_000).contains(&waited));
        assert_eq!(machine.counters.snapshot().timeouts, 1);
        let sleep = crate::kapi::waitqueue::Sleep::Uninterruptible;
        assert_eq!(machine.wait(change, sleep).err(), Some(EIO));
        assert_eq!(create(&machine, proc, 2).err(), Some(EIO));
        assert_eq!(machine.attach(process(2)).err(), Some(EIO));
        assert_eq!(machine.evict(proc, EvictCause::Svm).err(), Some(EIO));
        assert_eq!(machine.ping().err(), Some(EIO));
        // What the hardware may still use stays.
        assert_eq!(fake.blocks(), blocks);
        assert_eq!(fake.elapsed(), waited);
        finish_wedged(&fake, machine)
    }

    #[test]
    fn reset_brings_everything_back() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let queue = create(&machine, proc, 1)?;
        create(&machine, proc, 2)?;
        machine.converge();
        fake.set_mode(Mode::KeepsFences);
        let _ = machine.doom_queue(proc, queue, true);
        machine.converge();
        assert_eq!(machine.health(), Health::Wedged);

        fake.reset();
        let _ = fake.log();
        machine.after_reset()?;
        assert_eq!(machine.health(), Health::Running);
        // The late fence of the lost preemption disturbs nothing.
        fake.release_fences();
        machine.converge();
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
        assert_eq!(machine.load().queues, 1);
        create(&machine, proc, 3)?;
        machine.converge();
        assert_eq!(fake.mapped(), 2);
        finish(&fake, machine)
    }

    #[test]
    fn queue_that_refuses_is_reset_and_others_go_on() -> Result {
        let (fake, machine) = setup()?;
        let heard = Heard::new()?;
        let hook: Arc<dyn ResetHook> = heard.clone();
        machine.set_reset_hook(Some(hook));
        let guilty = machine.attach(process(1))?;
        let innocent = machine.attach(process(2))?;
        let hung = create(&machine, guilty, 1)?;
        create(&machine, innocent, 2)?;
        machine.converge();
        let _ = fake.log();

        fake.set_mode(Mode::Refuses(doorbell(1).dword()));
        create(&machine, innocent, 3)?;
        machine.converge();
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
        assert_eq!(machine.health(), Health::Running);
        assert_eq!(heard.last(), (1, doorbell(1).dword()));
        assert_eq!(heard.count(), 1);
        let stats = machine.counters.snapshot();
        assert_eq!((stats.refusals, stats.queue_resets), (1, 1));
        // The queue is gone for good, and destroying it is no matter.
        machine.converge();
        assert!(fake.log().is_empty());
        destroy(&machine, guilty, hung)?;
        assert_eq!(heard.count(), 1);
        finish(&fake, machine)
    }

    #[test]
    fn queue_that_refuses_its_destruction_is_reset() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let queue = create(&machine, proc, 1)?;
        create(&machine, proc, 2)?;
        machine.converge();
        let _ = fake.log();
        fake.set_mode(Mode::Refuses(doorbell(1).dword()));
        destroy(&machine, proc, queue)?;
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
        assert_eq!(machine.load().queues, 1);
        finish(&fake, machine)
    }

    #[test]
    fn queue_that_was_reset_takes_no_changes() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let queue = create(&machine, proc, 1)?;
        machine.converge();
        fake.set_mode(Mode::Refuses(doorbell(1).dword()));
        let _ = machine.begin_evict(proc, EvictCause::Svm)?;
        machine.converge();
        machine.restore(proc, EvictCause::Svm)?;
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
            let refused = machine.update_queue(proc, queue, update).err();
            assert_eq!(refused, Some(UpdateError::Refused(EACCES)));
        }
        // Its neighbours do.
        let other = create(&machine, proc, 2)?;
        machine.update_queue(proc, other, QueueUpdate::default())?;
        destroy(&machine, proc, queue)?;
        finish(&fake, machine)
    }

    #[test]
    fn sdma_queue_that_is_named_is_not_taken_for_stopped() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let hold = QueueHold {
            keep: Some(Token::keep(&count)?),
            ..QueueHold::default()
        };
        let queue = machine.create_queue(proc, sdma(1, 0, 0), hold)?;
        machine.converge();
        let _ = fake.log();
        fake.set_mode(Mode::Refuses(doorbell(1).dword()));
        let _ = machine.doom_queue(proc, queue, true);
        machine.converge();
        // No packet resets it, so it may still run.
        assert_eq!(fake.log().as_slice(), &[UnmapAll, Fence]);
        assert_eq!(machine.health(), Health::Wedged);
        assert_eq!(machine.counters.snapshot().queue_resets, 0);
        assert_eq!(count.load(Relaxed), 1);
        finish_wedged(&fake, machine)
    }

    #[test]
    fn all_attempts_of_a_preemption_share_its_time() -> Result {
        // The firmware may take nine tenths of the time-out over each queue.
        for (queues, health) in [(4, Health::Running), (8, Health::Wedged)] {
            let (fake, machine) = setup()?;
            let proc = machine.attach(process(1))?;
            // A queue with doorbell 0 could not be named.
            for n in 1..=queues {
                create(&machine, proc, n)?;
            }
            machine.converge();
            fake.set_mode(Mode::AllRefuse(8_100_000));
            let _ = machine.begin_evict(proc, EvictCause::Svm)?;
            machine.converge();
            assert_eq!(machine.health(), health);
            assert!(fake.elapsed() / 1000 < u64::from(machine.config.converge_ms()));
            match health {
                Health::Running => finish(&fake, machine)?,
                _ => finish_wedged(&fake, machine)?,
            }
        }
        Ok(())
    }

    #[test]
    fn as_many_resets_as_are_allowed_bring_a_preemption_to_its_end() -> Result {
        for (queues, health) in [(8, Health::Running), (9, Health::Wedged)] {
            let (fake, machine) = setup()?;
            let proc = machine.attach(process(1))?;
            for n in 1..=queues {
                create(&machine, proc, n)?;
            }
            machine.converge();
            fake.set_mode(Mode::AllRefuse(1000));
            let _ = machine.begin_evict(proc, EvictCause::Svm)?;
            machine.converge();
            assert_eq!(machine.health(), health);
            assert_eq!(machine.counters.snapshot().queue_resets, 8);
            match health {
                Health::Running => finish(&fake, machine)?,
                _ => finish_wedged(&fake, machine)?,
            }
        }
        Ok(())
    }

    #[test]
    fn scheduler_that_is_being_brought_back_does_not_sleep() -> Result {
        let (fake, machine) = setup()?;
        let hook: Arc<dyn ResetHook> = Heard::new()?;
        machine.set_reset_hook(Some(hook));
        let proc = machine.attach(process(1))?;
        create(&machine, proc, 1)?;
        machine.converge();
        fake.set_mode(Mode::KeepsFences);
        let _ = machine.begin_evict(proc, EvictCause::Svm)?;
        machine.converge();
        assert_eq!(machine.suspend().err(), Some(EBUSY));
        assert!(!machine.is_parked());
        fake.reset();
        machine.after_reset()?;
        machine.suspend()?;
        // A reset that comes too late must not connect to hardware that stands still.
        assert_eq!(machine.after_reset().err(), Some(EBUSY));
        assert!(machine.is_parked());
        let _ = fake.log();
        machine.resume()?;
        machine.restore(proc, EvictCause::Svm)?;
        machine.converge();
        assert_eq!(fake.mapped(), 1);
        finish(&fake, machine)
    }

    #[test]
    fn scheduler_out_of_service_sleeps_and_stays_so() -> Result {
        for abandoned in [false, true] {
            let (fake, machine) = setup()?;
            if abandoned {
                let hook: Arc<dyn ResetHook> = Heard::new()?;
                machine.set_reset_hook(Some(hook));
            }
            let proc = machine.attach(process(1))?;
            let queue = create(&machine, proc, 1)?;
            machine.converge();
            fake.set_mode(Mode::KeepsFences);
            let _ = machine.begin_evict(proc, EvictCause::Svm)?;
            machine.converge();
            if abandoned {
                machine.abandon();
            }
            machine.suspend()?;
            assert!(machine.is_parked());
            machine.resume()?;
            assert_eq!(machine.health(), Health::Wedged);
            assert_eq!(create(&machine, proc, 2).err(), Some(EIO));
            assert_eq!(machine.wave_state(proc, queue).err(), Some(EIO));
            finish_wedged(&fake, machine)?;
        }
        Ok(())
    }

    #[test]
    fn abandoned_scheduler_refuses_changes() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        create(&machine, proc, 1)?;
        machine.converge();
        machine.abandon();
        assert_eq!(create(&machine, proc, 2).err(), Some(EIO));
        assert_eq!(machine.detach(proc).err(), Some(EIO));
        finish_wedged(&fake, machine)
    }

    #[test]
    fn queue_that_survives_its_reset_wedges() -> Result {
        let (fake, machine) = setup()?;
        let heard = Heard::new()?;
        let hook: Arc<dyn ResetHook> = heard.clone();
        machine.set_reset_hook(Some(hook));
        let proc = machine.attach(process(1))?;
        let queue = create(&machine, proc, 1)?;
        machine.converge();
        fake.set_mode(Mode::Stubborn(doorbell(1).dword()));
        let _ = machine.doom_queue(proc, queue, true);
        machine.converge();
        assert_eq!(machine.health(), Health::Wedged);
        assert_eq!(machine.counters.snapshot().refusals, 1);
        assert_eq!(machine.counters.snapshot().queue_resets, 0);
        assert_eq!(machine.counters.snapshot().timeouts, 0);
        assert_eq!(fake.elapsed(), 0);
        // Its owner was told, and is not told again when the engines were reset for it.
        assert_eq!(heard.count(), 1);
        fake.reset();
        let doorbell = doorbell(1).dword();
        machine.recover(&[], &Failure::Refused { doorbell })?;
        machine.converge();
        assert_eq!(heard.count(), 1);
        finish(&fake, machine)
    }

    #[test]
    fn refusal_of_an_unknown_queue_wedges() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let queue = create(&machine, proc, 1)?;
        machine.converge();
        let _ = fake.log();
        fake.set_mode(Mode::Refuses(0x7777));
        let _ = machine.doom_queue(proc, queue, true);
        machine.converge();
        assert_eq!(machine.health(), Health::Wedged);
        assert_eq!(fake.log().as_slice(), &[UnmapProcess(1), Fence]);
        finish_wedged(&fake, machine)
    }

    #[test]
    fn hung_shutdown_keeps_memory_until_the_hardware_is_stopped() -> Result {
        let (fake, machine) = setup()?;
        let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let mut params = process(1);
        params.keep = Some(Token::keep(&count)?);
        let proc = machine.attach(params)?;
        let queue = create(&machine, proc, 1)?;
        machine.converge();
        fake.set_mode(Mode::KeepsFences);
        machine.shutdown();
        assert_eq!(machine.health(), Health::Wedged);
        // A reset that was under way comes too late.
        fake.reset();
        assert_eq!(machine.after_reset().err(), Some(ENODEV));
        assert_eq!(machine.health(), Health::Wedged);
        assert_eq!(machine.destroy_queue(proc, queue).err(), Some(EIO));
        assert_eq!(machine.detach(proc).err(), Some(EIO));
        assert_eq!(count.load(Relaxed), 1);
        assert!(fake.blocks() > 1);
        fake.reset();
        machine.release();
        assert_eq!(machine.health(), Health::Gone);
        assert_eq!(count.load(Relaxed), 0);
        machine.release();
        finish(&fake, machine)
    }

    #[test]
    fn lost_device_wedges_without_the_full_wait() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let queue = create(&machine, proc, 1)?;
        machine.converge();
        fake.set_mode(Mode::Lost);
        let _ = machine.doom_queue(proc, queue, true);
        machine.converge();
        assert_eq!(machine.health(), Health::Wedged);
        assert!(fake.elapsed() < 200_000);
        finish_wedged(&fake, machine)
    }

    #[test]
    fn removed_device_answers_enodev_and_frees_everything() -> Result {
        let (fake, machine) = setup()?;
        let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let mut params = process(1);
        params.keep = Some(Token::keep(&count)?);
        let proc = machine.attach(params)?;
        let queue = create(&machine, proc, 1)?;
        machine.converge();
        fake.set_mode(Mode::Gone);
        assert!(matches!(
            machine.doom_queue(proc, queue, false),
            Pending::Change(_)
        ));
        machine.converge();
        assert_eq!(machine.health(), Health::Gone);
        assert_eq!(create(&machine, proc, 2).err(), Some(ENODEV));
        assert_eq!(machine.restore(proc, EvictCause::Svm).err(), Some(EINVAL));
        assert_eq!(machine.evict(proc, EvictCause::Svm).err(), None);
        // The goal of a removal is reached without the device.
        machine.destroy_queue(proc, queue)?;
        machine.detach(proc)?;
        assert_eq!(count.load(Relaxed), 0);
        assert_eq!(machine.after_reset().err(), Some(ENODEV));
        fake.reset();
        finish(&fake, machine)
    }

    #[test]
    fn handles_may_outlive_the_shutdown() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let queue = create(&machine, proc, 1)?;
        machine.converge();
        let _ = fake.log();
        machine.shutdown();
        assert_eq!(fake.log().as_slice(), &[UnmapAll, Fence, HiqOff]);
        assert_eq!(machine.attach(process(2)).err(), Some(ENODEV));
        assert_eq!(create(&machine, proc, 2).err(), Some(ENODEV));
        machine.destroy_queue(proc, queue)?;
        machine.detach(proc)?;
        machine.detach(proc)?;
        assert_eq!(machine.load().processes, 0);
        finish(&fake, machine)
    }

    #[test]
    fn ping_takes_one_fence() -> Result {
        let (fake, machine) = setup()?;
        machine.ping()?;
        machine.ping()?;
        assert_eq!(fake.log().as_slice(), &[Fence, Fence]);
        finish(&fake, machine)
    }
}

/// As [`finish`] for a scheduler that lost its firmware.
fn finish_wedged(fake: &Arc<Fake>, machine: Arc<Machine>) -> Result {
    fake.reset();
    finish(fake, machine)
}
