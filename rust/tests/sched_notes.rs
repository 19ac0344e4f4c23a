// SPDX-License-Identifier: GPL-2.0

//! What the interrupt thread leaves to the worker. The test is both.

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
    failure::{
        Failure,
        ResetHook, //
    },
    fake::{
        create,
        finish,
        process,
        setup, //
    },
    notes::{
        Halt,
        CAPACITY, //
    },
    params::QueueUpdate,
    steps::{
        destroy,
        note_halt, //
    },
};

/// Counts queues that stopped at a bad packet, and remembers the last.
struct Heard {
    count: Atomic<u32>,
    doorbell: Atomic<u32>,
}

impl ResetHook for Heard {
    fn wedged(&self, _failure: &Failure) {}

    fn queue_halted(&self, halt: &Halt) {
        self.count.add(1, Relaxed);
        self.doorbell.store(halt.doorbell, Relaxed);
    }
}

#[kunit_tests(rkfd_sched_notes)]
mod cases {
    use super::*;

    #[test]
    fn halt_is_in_force_for_the_next_change_and_reported_once() -> Result {
        let (fake, sched) = setup()?;
        let heard = Arc::new(
            Heard {
                count: Atomic::new(0),
                doorbell: Atomic::new(0),
            },
            GFP_KERNEL,
        )?;
        sched.core.set_reset_hook(Some(heard.clone()));
        let proc = sched.attach(process(1))?;
        let (bad, good) = (create(&sched, proc, 1)?, create(&sched, proc, 2)?);
        sched.converge();
        // Nobody acted on it, and the runtime that was told already changes the queue.
        assert!(note_halt(&sched, 1, 1));
        assert_eq!(fake.mapped(), 2);
        let refused = sched.begin_update(proc, bad, QueueUpdate::default());
        assert_eq!(refused.err(), Some(EACCES));
        let _ = sched.begin_update(proc, good, QueueUpdate::default())?;
        sched.converge();
        assert_eq!(fake.mapped(), 1);
        assert!(note_halt(&sched, 1, 1));
        sched.act_on_notes();
        assert_eq!(
            (heard.count.load(Relaxed), heard.doorbell.load(Relaxed)),
            (1, 1)
        );
        sched.core.set_reset_hook(None);
        finish(&fake, sched)
    }

    #[test]
    fn note_is_not_taken_for_a_later_queue_with_the_doorbell() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let first = create(&sched, proc, 1)?;
        sched.converge();
        assert!(note_halt(&sched, 1, 1));
        destroy(&sched, proc, first)?;
        create(&sched, proc, 1)?;
        sched.act_on_notes();
        sched.converge();
        assert_eq!(
            (fake.mapped(), sched.core.counters.snapshot().halts),
            (1, 0)
        );
        finish(&fake, sched)
    }

    #[test]
    fn process_that_faulted_is_evicted_by_the_worker() -> Result {
        let (fake, sched) = setup()?;
        let (bad, good) = (sched.attach(process(1))?, sched.attach(process(2))?);
        create(&sched, bad, 1)?;
        create(&sched, good, 2)?;
        sched.converge();
        assert!(sched.note_fault(bad));
        sched.converge();
        assert_eq!(fake.mapped_of(1), 1);
        sched.act_on_notes();
        sched.converge();
        assert_eq!((fake.mapped_of(1), fake.mapped_of(2)), (0, 1));
        // One that has gone meanwhile.
        assert!(sched.note_fault(bad));
        let _ = sched.begin_detach(bad, true);
        sched.converge();
        sched.act_on_notes();
        assert_eq!(fake.mapped_of(2), 1);
        finish(&fake, sched)
    }

    #[test]
    fn notes_are_bounded_and_each_is_there_once() -> Result {
        let (fake, sched) = setup()?;
        // CAST: Small.
        let capacity = CAPACITY as u32;
        for n in 0..capacity {
            assert!(note_halt(&sched, 1, n) && sched.note_fault(u64::from(n)));
        }
        assert!(note_halt(&sched, 1, 0) && sched.note_fault(0));
        assert!(!note_halt(&sched, 1, capacity) && !sched.note_fault(u64::from(capacity)));
        // None of them is of anybody.
        sched.act_on_notes();
        assert!(note_halt(&sched, 1, capacity) && sched.note_fault(u64::from(capacity)));
        sched.act_on_notes();
        finish(&fake, sched)
    }
}
