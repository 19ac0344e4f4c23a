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
