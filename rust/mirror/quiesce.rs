// SPDX-License-Identifier: GPL-2.0

//! Whether the queues of an address space wait for memory that changed.

use kernel::{
    impl_has_work, new_mutex, new_work,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};

use super::rules::Rules;
use crate::{
    gpu::{
        registry::{
            registry,
            Registry, //
        },
        Gpu, //
    },
    kapi::log::dev_limited,
    sched::{
        EvictCause,
        SchedProcess,
        Scheduler, //
    },
    vm::Vm,
};

/// So long further changes are awaited before queues run again; twice as long after each failure.
const SETTLE: Delta = Delta::from_millis(1);
/// The pause does not grow any more after so many failures.
const MAX_DOUBLINGS: u32 = 8;

/// How often memory is looked for in one go.
const MAX_ATTEMPTS: usize = 8;

/// Whether the queues wait.
struct Quiesce {
    /// They do.
    stopped: bool,
    /// Counts changes of memory.
    changes: u64,
    /// How often memory could not be found, one time after the other.
    failures: u32,
    /// The address space as the scheduler knows it, once it has queues.
    process: Option<Arc<SchedProcess>>,
}

impl Quiesce {
    /// Without queues.
    const fn new() -> Self {
        Self {
            stopped: false,
            changes: 0,
            failures: 0,
            process: None,
        }
    }

    /// There are queues from now on, or none any more.
    fn set_process(
        &mut self,
        gpu: &Gpu,
        sched: &Scheduler,
        process: Option<Arc<SchedProcess>>,
    ) -> Option<Arc<SchedProcess>> {
        let old = core::mem::replace(&mut self.process, process);
        if self.stopped {
            self.evict(gpu, sched);
        }
        old
    }

    /// Memory changes: when this returns, no queue runs until [`Self::restore`]. Whether there are queues that ran.
    fn stop(&mut self, gpu: &Gpu, sched: &Scheduler) -> bool {
        self.changes += 1;
        let first = !core::mem::replace(&mut self.stopped, true);
        if first {
            self.evict(gpu, sched);
        }
        first && self.process.is_some()
    }

    fn evict(&self, gpu: &Gpu, sched: &Scheduler) {
        let Some(process) = &self.process else { return };
        match sched.evict(process, EvictCause::Svm) {
            Ok(()) => {}
            // Nothing runs: it is being forgotten, or the GPU is gone.
            Err(error) if error == ESRCH || error == ENODEV => {}
            // The entries go all the same: the waves fault.
            Err(error) => dev_limited!(
                dev_warn,
                gpu.dev(),
                "queues do not stop while memory of a mirror changes: {:?}\n",
                error
            ),
        }
    }

    /// The moment, if queues wait.
    fn waiting(&self) -> Option<u64> {
        self.stopped.then_some(self.changes)
    }

    /// Lets the queues run, if nothing has changed since `seen`.
    fn restore(&mut self, sched: &Scheduler, seen: u64) -> bool {
        if self.changes != seen {
            return false;
        }
        self.stopped = false;
        self.failures = 0;
        if let Some(process) = &self.process {
            // What fails here has failed and was reported before.
            let _ = sched.restore(process, EvictCause::Svm);
        }
        true
    }

    /// Memory could not be found.
    fn note_failure(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// How long to wait before memory is looked for.
    fn pause(&self) -> Delta {
        SETTLE * (1i64 << self.failures.min(MAX_DOUBLINGS))
    }
}

/// Finds the memory of an address space again.
pub(super) trait Refill: Send + Sync {
    /// Shows again what changes have taken away.
    ///
    /// # Errors
    ///
    /// `ENODEV`: the address space ends. Others: has to be repeated.
    fn refill(&self) -> Result;
}

/// Has the queues of an address space wait while memory changes.
#[pin_data]
pub(super) struct Pause {
    vm: Arc<Vm>,
    sched: Arc<Scheduler>,
    registry: Arc<Registry>,
    /// Decides what the GPU may do, if not each mirror for itself.
    rules: Option<Arc<dyn Rules>>,
    /// Taken inside the memory manager: nothing is allocated under it.
    #[pin]
    quiesce: Mutex<Quiesce>,
    /// From the first mirror on until the file is closed.
    #[pin]
    refill: Mutex<Option<Arc<dyn Refill>>>,
    #[pin]
    restore: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Pause { self.restore }
}

impl WorkItem for Pause {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let pause = this.quiesce.lock().pause();
        fsleep(pause);
        if !this.restore_queues() {
            this.refill_soon();
        }
    }
}

impl Pause {
    /// Of the queues of `vm`, which has none yet.
    ///
    /// # Errors
    ///
    /// `ENODEV` while the module is being unloaded, `ENOMEM`.
    pub(super) fn new(
        vm: &Arc<Vm>,
        sched: &Arc<Scheduler>,
        rules: Option<Arc<dyn Rules>>,
    ) -> Result<Arc<Self>> {
        let registry = registry()?;
        Arc::pin_init(
            pin_init!(Self {
                vm: vm.clone(),
                sched: sched.clone(),
                registry,
                rules,
                quiesce <- new_mutex!(Quiesce::new(), "rkfd_quiesce"),
                refill <- new_mutex!(None, "rkfd_quiesce_refill"),
                restore <- new_work!("Pause::restore"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The address space.
    pub(super) fn vm(&self) -> &Arc<Vm> {
        &self.vm
    }

    /// Decides what the GPU may do, if not each mirror for itself.
    pub(super) fn rules(&self) -> Option<&dyn Rules> {
        self.rules.as_deref()
    }

    /// Sets what finds memory again; `None`: nothing does.
    pub(super) fn set_refill(&self, refill: Option<Arc<dyn Refill>>) {
        let old = core::mem::replace(&mut *self.refill.lock(), refill);
        drop(old);
    }

    /// The address space has queues from now on, or none any more. The old value is to be dropped where that is allowed.
    pub(super) fn set_process(
        &self,
        process: Option<Arc<SchedProcess>>,
    ) -> Option<Arc<SchedProcess>> {
        let mut quiesce = self.quiesce.lock();
        quiesce.set_process(self.vm.gpu(), &self.sched, process)
    }

    /// Takes the queues off the hardware, because memory changes.
    pub(super) fn stop(&self) {
        // A second caller waits here for the first to get them off.
        let mut quiesce = self.quiesce.lock();
        if quiesce.stop(self.vm.gpu(), &self.sched) {
            self.report(false);
        }
    }

    fn report(&self, run: bool) {
        if let Some(rules) = self.rules() {
            rules.queues_run(run);
        }
    }

    /// Has the memory found again that [`Self::stop`] was called for. Allocates nothing.
    pub(super) fn refill_soon(self: &Arc<Self>) {
        self.registry.refill(self.clone());
    }

    /// Finds memory again and lets the queues run now, unless it changes again: so a thread that changes memory all the time
    /// does not keep them from running. What fails is up to the worker, which was told.
    pub(super) fn restore_now(&self) {
        let _ = self.restore_queues();
    }

    /// Finds memory again and lets the queues run; false: has to be repeated.
    fn restore_queues(&self) -> bool {
        for _ in 0..MAX_ATTEMPTS {
            let Some(seen) = self.quiesce.lock().waiting() else {
                return true;
            };
            let Some(refill) = self.refill.lock().clone() else {
                return true;
            };
            match refill.refill() {
                Ok(()) => {}
                // A GPU that does not answer runs no queues either.
                Err(_) if self.vm.gpu().enter().is_err() => {}
                Err(error) if error == ENODEV => return true,
                Err(error) => {
                    pr_debug!("memory of a mirror is not found yet: {:?}\n", error);
                    self.quiesce.lock().note_failure();
                    return false;
                }
            }
            let mut quiesce = self.quiesce.lock();
            if quiesce.restore(&self.sched, seen) {
                if quiesce.process.is_some() {
                    self.report(true);
                }
                return true;
            }
        }
        self.quiesce.lock().note_failure();
        false
    }
}
