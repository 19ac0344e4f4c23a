// SPDX-License-Identifier: GPL-2.0

//! Accesses that the GPU repeats until their memory is shown.

use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    },
    workqueue::WorkItem, //
};

use super::Mirrors;
use crate::{
    gpu::{
        mirrors::{
            Counter,
            Other,
            Step, //
        },
        retry::FaultToken,
        VmFault, //
    },
    kapi::trace::errno,
    mirror::{
        accesses::{
            Accesses,
            Verdict,
            Waiting,
            LANES, //
        },
        laps::Laps, //
    },
    trace,
    vm::pt::PAGE, //
};

/// So long an access waits whose queue is about to leave the hardware.
const LEAVE: Delta = Delta::from_millis(4);
/// So long an access waits that could not be looked at to the end, and twice as long after each failure that follows.
const PAUSE: Delta = Delta::from_millis(1);
/// It does not grow any more after so many failures.
const MAX_DOUBLINGS: u32 = 8;

/// Makes a work item of a lane.
macro_rules! lane {
    ($($number:literal)*) => {$(
        impl WorkItem<$number> for Mirrors {
            type Pointer = Arc<Self>;

            fn run(this: Arc<Self>) {
                this.run_lane($number);
            }
        }
    )*};
}

lane!(0 1 2 3);
const _: () = assert!(LANES == 4, "each lane has a work item");

impl Mirrors {
    /// Serves accesses that the GPU repeats from now on.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn serve_accesses(&self) -> Result {
        let room = Accesses::room()?;
        let unused = self.accesses.lock().open(room);
        drop(unused);
        Ok(())
    }

    /// Whether accesses that the GPU repeats are served.
    pub(crate) fn serves_accesses(&self) -> bool {
        self.accesses.lock().is_open()
    }

    /// Takes an access that the GPU repeats, and looks at it soon. Neither sleeps nor allocates.
    pub(crate) fn serve_soon(self: &Arc<Self>, fault: &VmFault, token: FaultToken) {
        self.figures().add(Counter::Accesses, 1);
        let lane = self.accesses.lock().push(fault, token);
        let item = || self.clone();
        match lane {
            Some(0) => self.registry.refill::<_, 0>(item()),
            Some(1) => self.registry.refill::<_, 1>(item()),
            Some(2) => self.registry.refill::<_, 2>(item()),
            Some(_) => self.registry.refill::<_, 3>(item()),
            None => {}
        }
    }

    /// A queue has ended: no access that was reported up to now is held against the program.
    pub(crate) fn note_queue_end(&self) {
        self.accesses.lock().note_end();
    }

    /// Looks at accesses until none waits that another lane does not look at.
    fn run_lane(&self, lane: usize) {
        let mut looked_at = 0;
        loop {
            let next = self.accesses.lock().next(lane);
            match next {
                Ok(waiting) => self.look_at(waiting),
                Err(crowded) => {
                    self.figures().note(Other::Lane, looked_at);
                    // Without the lock: they are repeated at once.
                    return drop(crowded);
                }
            }
            looked_at += 1;
        }
    }

    /// Shows what an access needs, or refuses it. It is repeated when this returns.
    fn look_at(&self, waiting: Waiting) {
        let access = &waiting.fault.fault;
        let (address, write, execute) = (access.address, access.write, access.execute);
        let (gpu, figures) = (self.vm().gpu(), self.figures());
        let laps = Laps::of_access(waiting.since);
        let result = self.find_for(address, write, execute, &laps);
        let is_served = result.is_ok();
        trace::mirror_serve(
            gpu.id(),
            self.vm().pasid(),
            address,
            write,
            laps.bytes(),
            laps.us(),
            errno(&result),
        );
        match result {
            Ok(()) => {
                let counter = match laps.bytes() {
                    0 => Counter::Found,
                    _ => Counter::Shown,
                };
                figures.add(counter, 1);
                self.accesses.lock().note_served(&waiting.fault);
            }
            Err(error) if is_final(error) => {
                let verdict = self.accesses.lock().judge(&waiting);
                match verdict {
                    Verdict::Repeat => figures.add(Counter::Doubted, 1),
                    Verdict::Refuse => {
                        figures.add(Counter::Refused, 1);
                        gpu.ih().refuse(&waiting.fault);
                    }
                    Verdict::Leave => fsleep(LEAVE),
                }
            }
            // The file is closed, or nothing is repeated any more.
            Err(_) if self.list.lock().closed || self.pause.vm().gpu().enter().is_err() => {}
            Err(error) => {
                pr_debug!("access to {:#x} waits: {:?}\n", address, error);
                figures.add(Counter::Failed, 1);
                let before = self.accesses.lock().note_failure();
                fsleep(PAUSE * (1i64 << before.min(MAX_DOUBLINGS)));
            }
        }
        drop(waiting);
        if is_served {
            laps.lap(Step::Resume);
            laps.record(figures);
        }
    }

    /// [`Self::find_for`] an access that is not the GPU's.
    ///
    /// # Errors
    ///
    /// As there.
    #[cfg(rkfd_kunit)]
    pub(crate) fn service(&self, address: u64, write: bool, execute: bool) -> Result {
        let laps = Laps::of_access(kernel::time::Instant::now());
        self.find_for(address, write, execute, &laps)
    }

    /// Serves an access of the GPU to `address` that its page tables do not allow: where a mirror has memory that may be
    /// accessed so, it is shown when this returns, and the access can be repeated. Takes no lock of another address
    /// space, and may wait for user space.
    ///
    /// # Errors
    ///
    /// - `EFAULT`: no mirror is there, or it has no memory there, or none that the GPU can use; or a buffer has the address,
    ///   whose entries do not allow the access.
    /// - `EPERM`: there is memory, but the access is not allowed.
    /// - `ESRCH`: the program whose memory it is has ended.
    /// - Others as those of [`Self::create`].
    fn find_for(&self, address: u64, write: bool, execute: bool, laps: &Laps) -> Result {
        let mirror = {
            let list = self.list.lock();
            let mut mirrors = list.mirrors.iter();
            mirrors
                .find(|mirror| mirror.gpu().contains(&address))
                .cloned()
        };
        let mirror = mirror.ok_or(EFAULT)?;
        let page = address & !(PAGE - 1);
        let vm = self.pause.vm();
        if mirror.is_whole() && vm.has_buffers(page..page + PAGE) {
            // It may be newer than the report.
            return if vm.allows(page, write, execute) {
                vm.forget_missing()
            } else {
                Err(EFAULT)
            };
        }
        let rights = mirror.rights_at(page).ok_or(EPERM)?;
        if (write && !rights.write) || (execute && !rights.execute) {
            return Err(EPERM);
        }
        mirror.serve(page, write, laps)
    }
}

/// Whether an access that is answered so is not to be repeated for ever.
fn is_final(error: Error) -> bool {
    [EFAULT, EPERM, ESRCH, EINVAL, EOPNOTSUPP].contains(&error)
}
