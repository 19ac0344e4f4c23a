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
    fake::{
        config,
        create,
        finish,
        process,
        working_machine,
        Fake,
        Mode, //
    },
    health::{
        Failure,
        Health,
        ResetHook, //
    },
    machine::Machine,
    params::QueueUpdate, //
};
use crate::hw::asic::GFX90A;

/// Resets the device when the scheduler gives up, after a while.
struct Revives {
    fake: Arc<Fake>,
    machine: Arc<Machine>,
}

impl Revives {
    /// To be taken away at the end: it keeps the scheduler.
    fn new(fake: &Arc<Fake>, machine: &Arc<Machine>) -> Result<Arc<Self>> {
        let hook = Self {
            fake: fake.clone(),
            machine: machine.clone(),
        };
        Ok(Arc::new(hook, GFP_KERNEL)?)
    }
}

impl ResetHook for Revives {
    fn wedged(&self, _failure: &Failure) {
        // Long enough for whoever would not wait to be gone.
        fsleep(Delta::from_millis(30));
        self.fake.reset();
        if let Err(error) = self.machine.after_reset() {
            pr_err!("no reset: {:?}\n", error);
        }
    }
}

/// Waits until everything is as the newest change wants it.
fn settled(machine: &Machine) -> Result {
    let newest = machine.state.lock().newest_change();
    machine.wait_settled(newest)
}

#[kunit_tests(rkfd_sched_revival)]
mod revival {
    use super::*;

    #[test]
    fn who_did_no_wrong_waits_through_a_reset() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let machine = working_machine(&fake, config())?;
        let proc = machine.attach(process(1))?;
        let (gone, kept) = (create(&machine, proc, 1)?, create(&machine, proc, 2)?);
        settled(&machine)?;
        machine.set_reset_hook(Some(Revives::new(&fake, &machine)?));
        fake.set_mode(Mode::KeepsFences);
        assert_eq!(machine.destroy_queue(proc, gone), Ok(()));
        assert_eq!(
            (machine.health(), machine.load().queues),
            (Health::Running, 1)
        );
        settled(&machine)?;
        fake.set_mode(Mode::KeepsFences);
        let update = QueueUpdate {
            percent: Some(50),
            ..QueueUpdate::default()
        };
        machine
            .update_queue(proc, kept, update)
            .map_err(Error::from)?;
        let percent = machine.state.lock().queue_mut(proc, kept)?.spec.percent;
        assert_eq!((machine.health(), percent), (Health::Running, 50));
        settled(&machine)?;
        // Where nobody brings the scheduler back there is nothing to wait for.
        machine.set_reset_hook(None);
        fake.set_mode(Mode::KeepsFences);
        assert_eq!(machine.destroy_queue(proc, kept), Err(EIO));
        assert_eq!(machine.health(), Health::Wedged);
        fake.reset();
        machine.after_reset()?;
        finish(&fake, machine)
    }
}
