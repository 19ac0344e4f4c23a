// SPDX-License-Identifier: GPL-2.0

//! Callers that wait while the device is reset, with a worker.

use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
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
use crate::hw::asic::GFX90A;

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
}
