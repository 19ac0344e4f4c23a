// SPDX-License-Identifier: GPL-2.0

//! How long what is held against a process holds, and for what else the process has attached. The test is the worker.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    config::{
        Config,
        Policy, //
    },
    desired::queue::QueueHold,
    failure::Failure,
    fake::{
        config,
        create,
        doorbell,
        finish,
        process,
        scheduler,
        sdma,
        setup_with,
        Fake, //
    },
    test_offenders::{
        next_occasion,
        refuse,
        Heard, //
    },
    worker::Worker, //
};
use crate::{
    gpu::{
        conduct::Conducts,
        salvage::{
            Outcome,
            SavedQueue, //
        }, //
    },
    hw::asic::{
        GFX906,
        GFX90A, //
    },
    kapi::kunit::Bystander,
};

/// An SDMA queue of `engine` with doorbell `n`, at most 15 and odd.
fn copy(sched: &Arc<Worker>, proc: u64, n: u32, engine: u32) -> Result<u64> {
    sched.create_queue(proc, sdma(n, engine, n / 2), QueueHold::default())
}

/// A queue with doorbell `n` as it was found before a reset.
fn found(n: u32, outcome: Outcome) -> SavedQueue {
    SavedQueue {
        doorbell: doorbell(n).dword(),
        rptr: 0,
        wptr: 0,
        outcome,
    }
}

#[kunit_tests(rkfd_sched_conduct)]
mod conduct {
    use super::*;

    #[test]
    fn record_is_of_all_that_a_process_has_attached() -> Result {
        for policy in [Policy::Oversubscribe, Policy::Direct] {
            let (fake, sched) = setup_with(Config { policy, ..config() })?;
            let heard = Heard::of(&sched)?;
            let (bad, good) = (Bystander::new()?, Bystander::new()?);
            fake.callers().set(bad.group());
            let (first, second) = (sched.attach(process(1))?, sched.attach(process(2))?);
            fake.callers().set(good.group());
            let other = sched.attach(process(3))?;
            for (proc, n) in [(first, 1), (first, 2), (second, 3), (second, 4), (other, 5)] {
                create(&sched, proc, n)?;
            }
            sched.converge();
            refuse(&fake, &sched, first, 1)?;
            next_occasion(&fake, &sched);
            refuse(&fake, &sched, second, 3)?;
            sched.converge();
            assert_eq!((fake.mapped_of(1), fake.mapped_of(2)), (0, 0));
            // Each of its queues is reported, once, and the process once.
            assert_eq!(heard.counts(), (2, 2));
            assert_eq!(fake.warnings("refused preemption twice"), 1);
            for proc in [first, second] {
                assert_eq!(create(&sched, proc, 6).err(), Some(EPERM));
            }
            fake.callers().set(bad.group());
            let third = sched.attach(process(4))?;
            assert_eq!(create(&sched, third, 6).err(), Some(EPERM));
            // Somebody else is not concerned, with what there is and with what comes.
            create(&sched, other, 6)?;
            fake.callers().set(good.group());
            let further = sched.attach(process(5))?;
            create(&sched, further, 7)?;
            sched.converge();
            assert_eq!((fake.mapped_of(3), fake.mapped_of(5)), (2, 1));
            finish(&fake, sched)?;
        }
        Ok(())
    }

    #[test]
    fn record_outlives_a_scheduler() -> Result {
        let (fake, sched) = setup_with(config())?;
        let (bad, good) = (Bystander::new()?, Bystander::new()?);
        fake.callers().set(bad.group());
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        fake.callers().set(good.group());
        let other = sched.attach(process(2))?;
        create(&sched, other, 2)?;
        sched.converge();
        refuse(&fake, &sched, proc, 1)?;
        sched.converge();
        next_occasion(&fake, &sched);
        let _ = sched.begin_detach(proc, true);
        let _ = sched.begin_detach(other, true);
        sched.converge();
        finish(&fake, sched)?;
        // Of those of whom nothing is attached, only who has a record is known.
        assert_eq!(fake.callers().count(), 1);

        fake.reset();
        let sched = scheduler(&fake, config())?;
        let other = sched.attach(process(2))?;
        create(&sched, other, 2)?;
        fake.callers().set(bad.group());
        let proc = sched.attach(process(1))?;
        for n in [1, 3] {
            create(&sched, proc, n)?;
        }
        sched.converge();
        assert_eq!((fake.mapped_of(1), fake.mapped_of(2)), (2, 1));
        // It is the second occasion.
        refuse(&fake, &sched, proc, 1)?;
        sched.converge();
        assert_eq!((fake.mapped_of(1), fake.mapped_of(2)), (0, 1));
        assert_eq!(create(&sched, proc, 4).err(), Some(EPERM));
        create(&sched, other, 4)?;
        finish(&fake, sched)
    }

    #[test]
    fn record_is_kept_until_its_process_has_ended() -> Result {
        let conducts = Conducts::new()?;
        let (bad, good) = (Bystander::new()?, Bystander::new()?);
        // A clean one for as long as something is attached.
        let (one, two) = (
            conducts.standing(1, &good.group())?,
            conducts.standing(1, &good.group())?,
        );
        assert_eq!(conducts.count(), 1);
        drop(one);
        assert_eq!(conducts.count(), 1);
        drop(two);
        assert_eq!(conducts.count(), 0);

        let standing = conducts.standing(1, &bad.group())?;
        assert!(!standing.note_refusal(5, 10) && standing.has_refused());
        drop(standing);
        assert_eq!(conducts.count(), 1);
        // It is of one GPU and one process.
        assert!(!conducts.standing(2, &bad.group())?.has_refused());
        assert!(!conducts.standing(1, &good.group())?.has_refused());
        let again = conducts.standing(1, &bad.group())?;
        assert!(again.has_refused());
        assert_eq!(conducts.count(), 1);

        // The process ends while something of it is attached, then one of which nothing is.
        drop(bad);
        assert_eq!(conducts.count(), 1);
        drop(again);
        assert_eq!(conducts.count(), 0);
        let standing = conducts.standing(1, &good.group())?;
        assert!(standing.note_chip_reset() && !standing.note_chip_reset());
        drop(standing);
        assert_eq!(conducts.count(), 1);
        drop(good);
        drop(conducts.standing(1, &Bystander::new()?.group())?);
        assert_eq!(conducts.count(), 0);
        Ok(())
    }

    #[test]
    fn copies_of_a_process_that_cost_the_chip_are_over() -> Result {
        let named = Failure::Refused {
            doorbell: doorbell(1).dword(),
        };
        for (asic, failure) in [
            (&GFX906, named),
            (&GFX906, Failure::Timeout { refused: 0 }),
            // Its engines can be reset alone.
            (&GFX90A, named),
        ] {
            let fake = Fake::new(asic)?;
            let sched = scheduler(&fake, config())?;
            let (bad, good) = (Bystander::new()?, Bystander::new()?);
            fake.callers().set(bad.group());
            let proc = sched.attach(process(1))?;
            copy(&sched, proc, 1, 0)?;
            create(&sched, proc, 2)?;
            fake.callers().set(good.group());
            let other = sched.attach(process(2))?;
            copy(&sched, other, 3, 1)?;
            sched.converge();
            let saved = [
                found(1, Outcome::Refused),
                found(2, Outcome::Refused),
                found(3, Outcome::Stopped),
            ];
            sched.note_chip_reset(&saved, &failure);
            sched.note_chip_reset(&saved, &failure);
            let refused = core::ptr::eq(asic, &GFX906);
            let answer = refused.then_some(EPERM);
            assert_eq!(
                fake.warnings("(pasid 1) takes a reset of the chip"),
                usize::from(refused)
            );
            assert_eq!(copy(&sched, proc, 5, 0).err(), answer);
            create(&sched, proc, 7)?;
            fake.callers().set(bad.group());
            let second = sched.attach(process(3))?;
            assert_eq!(copy(&sched, second, 9, 0).err(), answer);
            create(&sched, second, 10)?;
            copy(&sched, other, 11, 1)?;
            // It is one refusal, and nobody else's.
            assert_eq!(
                fake.warnings("takes a reset of the chip"),
                usize::from(refused)
            );
            assert_eq!(fake.warnings("refused preemption twice"), 0);
            finish(&fake, sched)?;
        }
        Ok(())
    }

    #[test]
    fn only_the_named_copy_cost_the_chip() -> Result {
        let fake = Fake::new(&GFX906)?;
        let sched = scheduler(&fake, config())?;
        let (bad, good) = (Bystander::new()?, Bystander::new()?);
        fake.callers().set(bad.group());
        let proc = sched.attach(process(1))?;
        copy(&sched, proc, 1, 0)?;
        fake.callers().set(good.group());
        let other = sched.attach(process(2))?;
        copy(&sched, other, 3, 0)?;
        sched.converge();
        // The other one waited for the engine.
        let saved = [found(1, Outcome::Refused), found(3, Outcome::Refused)];
        let doorbell = doorbell(1).dword();
        sched.note_chip_reset(&saved, &Failure::Refused { doorbell });
        assert_eq!(copy(&sched, proc, 5, 0).err(), Some(EPERM));
        copy(&sched, other, 7, 0)?;
        finish(&fake, sched)
    }
}
