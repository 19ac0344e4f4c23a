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
        Policy, //
    },
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
        evict,
        restore, //
    },
    worker::Worker, //
};

/// Counts hung queues by the PASID of their process, 1 or 2.
struct Heard([Atomic<u32>; 2]);

impl Heard {
    fn of(sched: &Worker) -> Result<Arc<Self>> {
        let heard = Arc::new(Self([Atomic::new(0), Atomic::new(0)]), GFP_KERNEL)?;
        let hook: Arc<dyn ResetHook> = heard.clone();
        sched.core.set_reset_hook(Some(hook));
        Ok(heard)
    }

    fn counts(&self) -> (u32, u32) {
        let [first, second] = &self.0;
        (first.load(Relaxed), second.load(Relaxed))
    }
}

impl ResetHook for Heard {
    fn wedged(&self, _failure: &Failure) {}

    fn queue_hung(&self, pasid: u16, _doorbell: u32) {
        if let Some(count) = self.0.get(usize::from(pasid) - 1) {
            count.add(1, Relaxed);
        }
    }
}

/// Has the queue with doorbell `n` of `proc` refuse a preemption.
fn refuse(fake: &Fake, sched: &Arc<Worker>, proc: u64, n: u32) -> Result {
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

/// The end of one occasion and a moment.
fn next_occasion(fake: &Fake, sched: &Worker) {
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
        let first = add_while_one_refuses(&fake, &sched, good, 1, 5)?;
        assert!(first >= LATENCY_US);
        assert_eq!((fake.mapped_of(1), fake.mapped_of(2)), (2, 2));

        // On the same occasion it is no second one, but costs less.
        let bound = sched.core.config.record_us();
        let again = add_while_one_refuses(&fake, &sched, good, 2, 6)?;
        assert!(again >= bound && again < bound + bound / 10);
        assert_eq!((fake.mapped_of(1), fake.mapped_of(2)), (1, 3));
        next_occasion(&fake, &sched);
        let second = add_while_one_refuses(&fake, &sched, good, 3, 7)?;
        assert!(second >= bound && second < bound + bound / 10);
        assert_eq!((fake.mapped_of(1), fake.mapped_of(2)), (0, 4));
        assert_eq!(create(&sched, bad, 8).err(), Some(EPERM));
        let stats = sched.core.counters.snapshot();
        assert_eq!((stats.refusals, stats.timeouts), (3, 0));
        assert_eq!((stats.queue_resets, stats.early_resets), (3, 2));
        finish(&fake, sched)
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
        let (took, bound) = (fake.elapsed() - before, sched.core.config.record_us());
        assert!(took >= bound && took < bound + bound / 10);
        finish(&fake, sched)
    }

    #[test]
    fn queue_that_leaves_slowly_does_not_refuse() -> Result {
        let (fake, sched) = setup_with(config())?;
        let proc = sched.attach(process(1))?;
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
        refuse(&fake, &sched, proc, 1)?;
        sched.converge();
        next_occasion(&fake, &sched);
        // With a record, too, long as its waves are: they are saved.
        let half = sched.core.config.record_us() / 2;
        assert!(slow(half, 4)? >= half);
        next_occasion(&fake, &sched);
        assert!(slow(half, 5)? >= half);
        let stats = sched.core.counters.snapshot();
        assert_eq!((stats.refusals, stats.queue_resets), (1, 1));
        assert_eq!(fake.mapped(), 4);
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
