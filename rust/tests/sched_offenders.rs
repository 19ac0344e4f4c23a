// SPDX-License-Identifier: GPL-2.0

//! Processes whose queues refuse to be preempted again and again. The test is the worker.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

use super::{
    config::{
        Config,
        Hurry,
        Policy, //
    },
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
        sdma,
        setup_with,
        Event,
        Fake,
        Mode, //
    },
    lifecycle::Lifecycle,
    params::{
        EvictCause,
        QueueUpdate, //
    },
    steps::{
        destroy,
        evict,
        restore, //
    },
    worker::Worker, //
};

/// Counts hung queues by the PASID of their process, 1 or 2.
pub(super) struct Heard {
    hung: [Atomic<u32>; 2],
    /// Doorbell of the queue for which the engines have to be reset.
    wedged_by: Atomic<u32>,
}

impl Heard {
    pub(super) fn of(sched: &Worker) -> Result<Arc<Self>> {
        let heard = Self {
            hung: [Atomic::new(0), Atomic::new(0)],
            wedged_by: Atomic::new(0),
        };
        let heard = Arc::new(heard, GFP_KERNEL)?;
        let hook: Arc<dyn ResetHook> = heard.clone();
        sched.core.set_reset_hook(Some(hook));
        Ok(heard)
    }

    pub(super) fn counts(&self) -> (u32, u32) {
        let [first, second] = &self.hung;
        (first.load(Relaxed), second.load(Relaxed))
    }
}

impl ResetHook for Heard {
    fn wedged(&self, failure: &Failure) {
        let named = failure.named_queue().unwrap_or(0);
        self.wedged_by.store(named, Relaxed);
    }

    fn queue_hung(&self, pasid: u16, _doorbell: u32) {
        if let Some(count) = self.hung.get(usize::from(pasid) - 1) {
            count.add(1, Relaxed);
        }
    }
}

/// Has the queue with doorbell `n` of `proc` refuse a preemption.
pub(super) fn refuse(fake: &Fake, sched: &Arc<Worker>, proc: u64, n: u32) -> Result {
    fake.set_mode(Mode::Refuses(doorbell(n).dword()));
    evict(sched, proc, EvictCause::Memory)?;
    fake.set_mode(Mode::Good);
    restore(sched, proc, EvictCause::Memory)
}

/// The time that the firmware gives a queue in two attempts, microseconds.
const LATENCY_US: u64 = 8_100_000;

/// Lets the firmware wait for the queue with doorbell `n` while queue `new` of `proc` is added. Returns how long that
/// took, microseconds.
fn add_while_one_refuses(
    fake: &Fake,
    sched: &Arc<Worker>,
    proc: u64,
    n: u32,
    new: u32,
) -> Result<u64> {
    let before = fake.elapsed();
    fake.set_mode(Mode::WaitsFor(doorbell(n).dword(), LATENCY_US));
    create(sched, proc, new)?;
    sched.converge();
    fake.set_mode(Mode::Good);
    Ok(fake.elapsed() - before)
}

/// Whether `took` microseconds are `bound` and little more.
fn is_about(took: u64, bound: u64) -> bool {
    took >= bound && took < bound + bound / 10
}

/// The end of one occasion and a moment.
pub(super) fn next_occasion(fake: &Fake, sched: &Worker) {
    fake.pass(sched.core.config.cycle_us() + 1);
}

#[kunit_tests(rkfd_sched_offenders)]
mod offenders {
    use super::*;

    #[test]
    fn process_whose_queues_refuse_twice_is_barred() -> Result {
        for policy in [Policy::Oversubscribe, Policy::Direct] {
            let (fake, sched) = setup_with(Config { policy, ..config() })?;
            let heard = Heard::of(&sched)?;
            let (bad, good) = (sched.attach(process(1))?, sched.attach(process(2))?);
            for n in 1..=3 {
                create(&sched, bad, n)?;
            }
            let innocent = create(&sched, good, 4)?;
            sched.converge();
            refuse(&fake, &sched, bad, 1)?;
            // Once may be a mistake: the others run, and there may be more.
            assert_eq!(heard.counts(), (1, 0));
            let third = create(&sched, bad, 5)?;
            sched.converge();
            assert_eq!((fake.mapped_of(1), fake.mapped_of(2)), (3, 1));
            assert_eq!(fake.warnings("refused preemption twice"), 0);

            next_occasion(&fake, &sched);
            refuse(&fake, &sched, bad, 2)?;
            sched.converge();
            assert_eq!((fake.mapped_of(1), fake.mapped_of(2)), (0, 1));
            // Each of its queues is reported, once.
            assert_eq!(heard.counts(), (4, 0));
            assert_eq!(create(&sched, bad, 6).err(), Some(EPERM));
            let update = sched.begin_update(bad, third, QueueUpdate::default());
            assert_eq!(update.err(), Some(EACCES));
            assert_eq!(fake.warnings("(pasid 1) refused preemption twice"), 1);
            assert_eq!(fake.warnings("refused preemption twice"), 1);

            // Nobody else is concerned, and what is left of the process comes to its end.
            create(&sched, good, 6)?;
            let _ = sched.begin_update(good, innocent, QueueUpdate::default())?;
            sched.converge();
            assert_eq!(fake.mapped_of(2), 2);
            let _ = sched.begin_detach(bad, true);
            sched.converge();
            assert_eq!(heard.counts(), (4, 0));
            assert_eq!(sched.core.load().processes, 1);
            // Another process with the same PASID is another process.
            let again = sched.attach(process(1))?;
            create(&sched, again, 7)?;
            assert_eq!(sched.core.life(), Lifecycle::Running);
            finish(&fake, sched)?;
        }
        Ok(())
    }

    #[test]
    fn known_offender_costs_others_little() -> Result {
        let (fake, sched) = setup_with(config())?;
        let (bad, good) = (sched.attach(process(1))?, sched.attach(process(2))?);
        for n in 1..=3 {
            create(&sched, bad, n)?;
        }
        create(&sched, good, 4)?;
        sched.converge();
        let config = &sched.core.config;
        let (awaited, bound) = (
            config.hurry_us(Hurry::Awaited),
            config.hurry_us(Hurry::Record),
        );
        assert!(bound < awaited && awaited <= LATENCY_US / 4);
        let first = add_while_one_refuses(&fake, &sched, good, 1, 5)?;
        assert!(is_about(first, awaited));
        assert_eq!((fake.mapped_of(1), fake.mapped_of(2)), (2, 2));

        // On the same occasion it is no second one, but costs less.
        let again = add_while_one_refuses(&fake, &sched, good, 2, 6)?;
        assert!(is_about(again, bound));
        assert_eq!((fake.mapped_of(1), fake.mapped_of(2)), (1, 3));
        next_occasion(&fake, &sched);
        let second = add_while_one_refuses(&fake, &sched, good, 3, 7)?;
        assert!(is_about(second, bound));
        assert_eq!((fake.mapped_of(1), fake.mapped_of(2)), (0, 4));
        assert_eq!(create(&sched, bad, 8).err(), Some(EPERM));
        let stats = sched.core.counters.snapshot();
        assert_eq!((stats.refusals, stats.timeouts), (3, 0));
        assert_eq!((stats.queue_resets, stats.early_resets), (3, 3));
        finish(&fake, sched)
    }

    #[test]
    fn time_without_a_processor_is_not_the_queues() -> Result {
        let (fake, sched) = setup_with(config())?;
        let (slow, good) = (sched.attach(process(1))?, sched.attach(process(2))?);
        create(&sched, slow, 1)?;
        create(&sched, good, 2)?;
        sched.converge();
        let lost = 2 * sched.core.config.hurry_us(Hurry::Awaited);
        let before = fake.elapsed();
        // It leaves a moment after the thread that waits for it has a processor again.
        fake.set_mode(Mode::Slow(lost + 50_000));
        fake.stall(lost);
        create(&sched, good, 3)?;
        sched.converge();
        assert!(is_about(fake.elapsed() - before, lost + 50_000));
        assert_eq!((fake.mapped_of(1), fake.mapped_of(2)), (1, 2));
        let stats = sched.core.counters.snapshot();
        assert_eq!((stats.queue_resets, stats.refusals), (0, 0));
        finish(&fake, sched)
    }

    #[test]
    fn queue_has_all_its_time_while_nobody_else_waits() -> Result {
        for policy in [Policy::Oversubscribe, Policy::Direct] {
            let (fake, sched) = setup_with(Config { policy, ..config() })?;
            let (bad, idle) = (sched.attach(process(1))?, sched.attach(process(2))?);
            let first = create(&sched, bad, 1)?;
            create(&sched, bad, 2)?;
            let theirs = create(&sched, idle, 4)?;
            sched.converge();
            // It has nothing that runs or is to run.
            destroy(&sched, idle, theirs)?;
            let doorbell = doorbell(1).dword();
            let (latency, mode) = match policy {
                Policy::Direct => (sched.core.config.unload_us(), Mode::Refuses(doorbell)),
                _ => (LATENCY_US, Mode::WaitsFor(doorbell, LATENCY_US)),
            };
            fake.set_mode(mode);
            let before = fake.elapsed();
            let _ = sched.begin_destroy(bad, first, true);
            create(&sched, bad, 5)?;
            sched.converge();
            assert!(is_about(fake.elapsed() - before, latency));
            let stats = sched.core.counters.snapshot();
            assert_eq!((stats.queue_resets, stats.early_resets), (1, 0));
            finish(&fake, sched)?;
        }
        Ok(())
    }

    #[test]
    fn memory_manager_does_not_wait_for_long_either() -> Result {
        for policy in [Policy::Oversubscribe, Policy::Direct] {
            let (fake, sched) = setup_with(Config { policy, ..config() })?;
            let proc = sched.attach(process(1))?;
            create(&sched, proc, 1)?;
            sched.converge();
            let doorbell = doorbell(1).dword();
            fake.set_mode(match policy {
                Policy::Direct => Mode::Refuses(doorbell),
                _ => Mode::WaitsFor(doorbell, LATENCY_US),
            });
            let before = fake.elapsed();
            evict(&sched, proc, EvictCause::Userptr)?;
            let bound = sched.core.config.hurry_us(Hurry::Awaited);
            assert!(is_about(fake.elapsed() - before, bound));
            assert_eq!(sched.core.counters.snapshot().early_resets, 1);
            finish(&fake, sched)?;
        }
        Ok(())
    }

    #[test]
    fn eviction_of_others_waits_no_longer_than_they_are_given() -> Result {
        // Each preemption asks all queues.
        let (fake, sched) = setup_with(Config {
            targeted: false,
            ..config()
        })?;
        let (bad, good) = (sched.attach(process(1))?, sched.attach(process(2))?);
        for n in 1..=2 {
            create(&sched, bad, n)?;
        }
        create(&sched, good, 3)?;
        sched.converge();
        for (refuses, hurry) in [(1, Hurry::Awaited), (2, Hurry::Record)] {
            let before = fake.elapsed();
            fake.set_mode(Mode::WaitsFor(doorbell(refuses).dword(), LATENCY_US));
            evict(&sched, good, EvictCause::Userptr)?;
            assert!(is_about(
                fake.elapsed() - before,
                sched.core.config.hurry_us(hurry)
            ));
            fake.set_mode(Mode::Good);
            restore(&sched, good, EvictCause::Userptr)?;
            sched.converge();
            assert_eq!(fake.mapped_of(2), 1);
        }
        let stats = sched.core.counters.snapshot();
        assert_eq!((stats.early_resets, stats.timeouts), (2, 0));
        finish(&fake, sched)
    }

    #[test]
    fn first_refusal_costs_others_little_without_firmware() -> Result {
        let policy = Policy::Direct;
        let (fake, sched) = setup_with(Config { policy, ..config() })?;
        let (bad, good) = (sched.attach(process(1))?, sched.attach(process(2))?);
        let queue = create(&sched, bad, 1)?;
        create(&sched, good, 2)?;
        sched.converge();
        fake.set_mode(Mode::Refuses(doorbell(1).dword()));
        let before = fake.elapsed();
        let _ = sched.begin_destroy(bad, queue, true);
        sched.converge();
        let bound = sched.core.config.hurry_us(Hurry::Awaited);
        assert!(is_about(fake.elapsed() - before, bound));
        assert_eq!((fake.mapped_of(1), fake.mapped_of(2)), (0, 1));
        finish(&fake, sched)
    }

    #[test]
    fn queue_that_only_a_reset_of_the_engines_ends_is_not_waited_for() -> Result {
        for with_sdma in [false, true] {
            let (fake, sched) = setup_with(config())?;
            let heard = Heard::of(&sched)?;
            let (bad, good) = (sched.attach(process(1))?, sched.attach(process(2))?);
            match with_sdma {
                true => {
                    let _ = sched.create_queue(bad, sdma(1, 1, 0), QueueHold::default())?;
                    let _ = sched.create_queue(good, sdma(3, 1, 1), QueueHold::default())?;
                }
                false => {
                    create(&sched, bad, 1)?;
                }
            }
            create(&sched, good, 2)?;
            sched.converge();
            let dword = doorbell(1).dword();
            fake.set_mode(Mode::WaitsInVain(dword, LATENCY_US));
            let before = fake.elapsed();
            create(&sched, good, 4)?;
            sched.converge();
            let bound = sched.core.config.hurry_us(Hurry::Awaited);
            assert!(is_about(fake.elapsed() - before, bound));
            assert_eq!(heard.wedged_by.load(Relaxed), dword);
            assert_eq!(sched.core.life(), Lifecycle::Recovering);
            let stats = sched.core.counters.snapshot();
            assert_eq!((stats.refusals, stats.queue_resets), (1, 0));
            assert_eq!((stats.timeouts, stats.early_resets), (0, 0));

            fake.reset();
            let failure = Failure::Refused { doorbell: dword };
            sched.recover(&[], &failure)?;
            sched.converge();
            // Only that queue is lost, and it is one refusal.
            assert_eq!((fake.mapped_of(1), heard.counts()), (0, (1, 0)));
            assert_eq!(fake.mapped_of(2), if with_sdma { 3 } else { 2 });
            create(&sched, bad, 5)?;
            finish(&fake, sched)?;
        }
        Ok(())
    }

    #[test]
    fn queue_that_is_named_after_it_was_reset_is_reset_once() -> Result {
        let (fake, sched) = setup_with(config())?;
        let proc = sched.attach(process(1))?;
        for n in 1..=3 {
            create(&sched, proc, n)?;
        }
        sched.converge();
        refuse(&fake, &sched, proc, 1)?;
        sched.converge();
        // The firmware names the queue that is off already, once.
        fake.set_mode(Mode::Names(doorbell(1).dword()));
        create(&sched, proc, 4)?;
        sched.converge();
        assert_eq!(sched.core.life(), Lifecycle::Running);
        assert_eq!(
            (fake.mapped(), sched.core.counters.snapshot().queue_resets),
            (3, 1)
        );
        finish(&fake, sched)
    }

    #[test]
    fn change_of_others_does_not_wait_for_a_known_offender() -> Result {
        let policy = Policy::Direct;
        let (fake, sched) = setup_with(Config { policy, ..config() })?;
        let (bad, good) = (sched.attach(process(1))?, sched.attach(process(2))?);
        for n in 1..=2 {
            create(&sched, bad, n)?;
        }
        create(&sched, good, 3)?;
        sched.converge();
        refuse(&fake, &sched, bad, 1)?;
        sched.converge();
        // The offender's change is older.
        fake.set_mode(Mode::Refuses(doorbell(2).dword()));
        let _ = fake.log();
        let _ = sched.begin_evict(bad, EvictCause::Memory)?;
        let _ = sched.begin_evict(good, EvictCause::Memory)?;
        let before = fake.elapsed();
        sched.converge();
        let log = fake.log();
        let order = log.iter().filter_map(|event| match event {
            Event::Dequeue(n, _) => Some(*n),
            _ => None,
        });
        assert!(order.eq([3, 2]));
        let bound = sched.core.config.hurry_us(Hurry::Record);
        assert!(is_about(fake.elapsed() - before, bound));
        finish(&fake, sched)
    }

    #[test]
    fn queues_are_not_to_blame_for_a_dead_firmware() -> Result {
        let (fake, sched) = setup_with(config())?;
        let _heard = Heard::of(&sched)?;
        for pasid in [1, 2] {
            let proc = sched.attach(process(pasid))?;
            create(&sched, proc, pasid.into())?;
        }
        sched.converge();
        fake.set_mode(Mode::Dead);
        let third = sched.attach(process(3))?;
        create(&sched, third, 3)?;
        sched.converge();
        assert_eq!(sched.core.life(), Lifecycle::Recovering);
        let stats = sched.core.counters.snapshot();
        assert_eq!(
            (stats.timeouts, stats.refusals, stats.early_resets),
            (1, 0, 0)
        );
        fake.reset();
        sched.recover(&[], &Failure::Timeout { refused: 0 })?;
        sched.converge();
        assert_eq!(fake.mapped(), 3);
        finish(&fake, sched)
    }

    #[test]
    fn queue_that_leaves_slowly_does_not_refuse() -> Result {
        let (fake, sched) = setup_with(config())?;
        let (proc, other) = (sched.attach(process(1))?, sched.attach(process(2))?);
        for n in 1..=2 {
            create(&sched, proc, n)?;
        }
        sched.converge();
        let slow = |us, new| -> Result<u64> {
            let before = fake.elapsed();
            fake.set_mode(Mode::Slow(us));
            create(&sched, proc, new)?;
            sched.converge();
            Ok(fake.elapsed() - before)
        };
        assert!(slow(LATENCY_US, 3)? >= LATENCY_US);
        assert_eq!(sched.core.counters.snapshot().refusals, 0);
        // While somebody waits, for as long as a save may take at worst.
        create(&sched, other, 6)?;
        sched.converge();
        let most = sched.core.config.hurry_us(Hurry::Awaited) - 2_000;
        assert!(slow(most, 7)? >= most);
        assert_eq!(sched.core.counters.snapshot().refusals, 0);
        refuse(&fake, &sched, proc, 1)?;
        sched.converge();
        next_occasion(&fake, &sched);
        // With a record, too, long as its waves are: they are saved.
        let half = sched.core.config.hurry_us(Hurry::Record) / 2;
        assert!(slow(half, 4)? >= half);
        next_occasion(&fake, &sched);
        assert!(slow(half, 5)? >= half);
        let stats = sched.core.counters.snapshot();
        assert_eq!((stats.refusals, stats.queue_resets), (1, 1));
        assert_eq!((fake.mapped_of(1), fake.mapped_of(2)), (5, 1));
        finish(&fake, sched)
    }

    #[test]
    fn refusals_of_one_preemption_are_one_occasion() -> Result {
        let (fake, sched) = setup_with(config())?;
        let proc = sched.attach(process(1))?;
        for n in 1..=4 {
            create(&sched, proc, n)?;
        }
        sched.converge();
        fake.set_mode(Mode::AllRefuse(8_100_000));
        evict(&sched, proc, EvictCause::Memory)?;
        fake.set_mode(Mode::Good);
        assert_eq!(sched.core.counters.snapshot().queue_resets, 4);
        restore(&sched, proc, EvictCause::Memory)?;
        create(&sched, proc, 5)?;
        sched.converge();
        assert_eq!(fake.mapped_of(1), 1);
        finish(&fake, sched)
    }
}
