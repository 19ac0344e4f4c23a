// SPDX-License-Identifier: GPL-2.0

//! Callers that wait while the device is reset, with a worker.

use kernel::{
    prelude::*,
    sync::{
        Arc,
        Completion, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};

use super::{
    failure::{
        Failure,
        ResetHook, //
    },
    fake::{
        config,
        create,
        finish,
        process,
        working_scheduler,
        Fake,
        Mode, //
    },
    lifecycle::Lifecycle,
    params::QueueUpdate,
    worker::Worker, //
};
use crate::{
    hw::asic::GFX90A,
    kapi::workqueue::OwnedQueue, //
};

/// Resets the device when the scheduler gives up, after a while.
struct Revives {
    fake: Arc<Fake>,
    sched: Arc<Worker>,
}

impl Revives {
    /// To be taken away at the end: it keeps the scheduler.
    fn new(fake: &Arc<Fake>, sched: &Arc<Worker>) -> Result<Arc<Self>> {
        let hook = Self {
            fake: fake.clone(),
            sched: sched.clone(),
        };
        Ok(Arc::new(hook, GFP_KERNEL)?)
    }
}

impl ResetHook for Revives {
    fn wedged(&self, _failure: &Failure) {
        // Long enough for whoever would not wait to be gone.
        fsleep(Delta::from_millis(30));
        self.fake.reset();
        if let Err(error) = self.sched.after_reset() {
            pr_err!("no reset: {:?}\n", error);
        }
    }
}

/// Resets the device when it is told to.
#[pin_data]
struct RevivesLater {
    fake: Arc<Fake>,
    sched: Arc<Worker>,
    #[pin]
    told: Completion,
}

impl ResetHook for RevivesLater {
    fn wedged(&self, _failure: &Failure) {
        self.told.wait_for_completion();
        self.fake.reset();
        if let Err(error) = self.sched.after_reset() {
            pr_err!("no reset: {:?}\n", error);
        }
    }
}

/// The end of a scheduler whose chip is reset, because no reset of the engines helped.
#[pin_data]
struct ChipReset {
    fake: Arc<Fake>,
    sched: Arc<Worker>,
    /// The caller that met the failure is back.
    #[pin]
    answered: Completion,
    /// The scheduler is gone.
    #[pin]
    released: Completion,
    #[pin]
    work: Work<ChipReset>,
}

impl_has_work! {
    impl HasWork<Self> for ChipReset { self.work }
}

impl WorkItem for ChipReset {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.sched.shutdown();
        this.answered.wait_for_completion();
        this.fake.reset();
        this.sched.release();
        this.released.complete_all();
    }
}

/// Has the chip reset when the scheduler gives up.
struct Rebinds {
    job: Arc<ChipReset>,
    queue: Arc<OwnedQueue>,
}

impl ResetHook for Rebinds {
    fn wedged(&self, _failure: &Failure) {
        let _ = self.queue.enqueue(self.job.clone());
    }
}

/// Waits until everything is as the newest change wants it.
fn settled(sched: &Worker) -> Result {
    let newest = sched.core.state.lock().newest_change();
    sched.core.wait_settled(newest)
}

#[kunit_tests(rkfd_sched_revival)]
mod revival {
    use super::*;

    #[test]
    fn who_did_no_wrong_waits_through_a_reset() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = working_scheduler(&fake, config())?;
        let proc = sched.attach(process(1))?;
        let (gone, kept) = (create(&sched, proc, 1)?, create(&sched, proc, 2)?);
        settled(&sched)?;
        sched
            .core
            .set_reset_hook(Some(Revives::new(&fake, &sched)?));
        fake.set_mode(Mode::KeepsFences);
        assert_eq!(sched.destroy_queue(proc, gone), Ok(()));
        assert_eq!(
            (sched.core.life(), sched.core.load().queues),
            (Lifecycle::Running, 1)
        );
        settled(&sched)?;
        fake.set_mode(Mode::KeepsFences);
        let update = QueueUpdate {
            percent: Some(50),
            ..QueueUpdate::default()
        };
        sched
            .update_queue(proc, kept, update)
            .map_err(Error::from)?;
        let percent = sched.core.state.lock().queue_mut(proc, kept)?.spec.percent;
        assert_eq!((sched.core.life(), percent), (Lifecycle::Running, 50));
        settled(&sched)?;
        // Where nobody brings the scheduler back there is nothing to wait for.
        sched.core.set_reset_hook(None);
        fake.set_mode(Mode::KeepsFences);
        assert_eq!(sched.destroy_queue(proc, kept), Err(EIO));
        assert_eq!(sched.core.life(), Lifecycle::Wedged);
        fake.reset();
        sched.after_reset()?;
        finish(&fake, sched)
    }

    #[test]
    fn who_comes_during_a_reset_waits_for_its_end() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = working_scheduler(&fake, config())?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        settled(&sched)?;
        // Nothing to wait for.
        sched.core.await_reset()?;
        let (device, revived) = (fake.clone(), sched.clone());
        let hook = Arc::pin_init(
            pin_init!(RevivesLater {
                fake: device,
                sched: revived,
                told <- Completion::new(),
            }),
            GFP_KERNEL,
        )?;
        sched.core.set_reset_hook(Some(hook.clone()));
        fake.set_mode(Mode::KeepsFences);
        create(&sched, proc, 2)?;
        while sched.core.life() != Lifecycle::Recovering {
            assert!(sched.core.life().takes_changes());
            fsleep(Delta::from_millis(1));
        }
        assert_eq!(create(&sched, proc, 3).err(), Some(EIO));
        let queue = OwnedQueue::new(c"rkfd-test-reset", 1)?;
        let teller = hook.clone();
        queue.try_spawn(GFP_KERNEL, move || {
            // Long enough for whoever would not wait to be gone.
            fsleep(Delta::from_millis(30));
            teller.told.complete_all();
        })?;
        sched.core.await_reset()?;
        assert_eq!(sched.core.life(), Lifecycle::Running);
        let third = create(&sched, proc, 3)?;
        drop((queue, hook));
        settled(&sched)?;
        assert_eq!((fake.mapped(), sched.core.load().queues), (3, 3));
        // Nor is there where nobody brings the scheduler back.
        sched.core.set_reset_hook(None);
        fake.set_mode(Mode::KeepsFences);
        assert_eq!(sched.destroy_queue(proc, third), Err(EIO));
        assert_eq!(sched.core.life(), Lifecycle::Wedged);
        sched.core.await_reset()?;
        fake.reset();
        sched.after_reset()?;
        finish(&fake, sched)
    }

    #[test]
    fn who_waits_learns_that_the_chip_is_reset() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = working_scheduler(&fake, config())?;
        let (device, ends) = (fake.clone(), sched.clone());
        let job = Arc::pin_init(
            pin_init!(ChipReset {
                fake: device,
                sched: ends,
                answered <- Completion::new(),
                released <- Completion::new(),
                work <- new_work!("rkfd_test_chip_reset"),
            }),
            GFP_KERNEL,
        )?;
        // The hook goes in the job, and must not have the last reference then.
        let queue = Arc::new(OwnedQueue::new(c"rkfd-test-reset", 1)?, GFP_KERNEL)?;
        let proc = sched.attach(process(1))?;
        let only = create(&sched, proc, 1)?;
        settled(&sched)?;
        let hook = Rebinds {
            job: job.clone(),
            queue: queue.clone(),
        };
        sched.core.set_reset_hook(Some(Arc::new(hook, GFP_KERNEL)?));
        // The list ends with its only queue, and no answer comes.
        fake.set_mode(Mode::KeepsFences);
        assert_eq!(sched.destroy_queue(proc, only), Err(EIO));
        assert_eq!(create(&sched, proc, 2).err(), Some(EIO));
        job.answered.complete_all();
        job.released.wait_for_completion();
        drop((job, queue));
        assert_eq!(sched.core.life(), Lifecycle::Gone);
        finish(&fake, sched)
    }
}
