// SPDX-License-Identifier: GPL-2.0

//! An address space of a GPU with the queues in it, and what keeps them off memory of a process that changes.
//!
//! # Locks
//!
//! [`Space::vm`] is taken inside the memory manager and comes before the locks of the address space: nothing is allocated
//! or freed under it. [`Space::process`] is an innermost spinlock, for the interrupt thread and the scheduler take it when
//! they report.

use core::ops::Range;

use kernel::{
    new_mutex, new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            AtomicFlag,
            Full,
            Relaxed, //
        },
        Arc,
        Mutex,
        SpinLock, //
    },
};

use crate::{
    gpu::Gpu,
    kapi::log::dev_limited,
    sched::{
        EvictCause,
        SchedProcess,
        Scheduler, //
    },
    vm::Vm,
};

/// An address space of a GPU and the queues in it.
#[pin_data]
pub(crate) struct Space {
    gpu: Arc<Gpu>,
    sched: Arc<Scheduler>,
    /// The owner of the queues, as the scheduler knows it; from the first queue on.
    #[pin]
    process: SpinLock<Option<Arc<SchedProcess>>>,
    /// The address space, while there is one.
    #[pin]
    vm: Mutex<Option<Arc<Vm>>>,
    /// A fault stopped the queues.
    faulted: AtomicFlag,
    /// The queues are quiesced until memory is found again. Changed by the caller that quiesces them, as is the next.
    quiesced: Atomic<bool>,
    /// The queues did not stop when memory changed.
    evict_failed: Atomic<bool>,
}

impl Space {
    /// On a GPU and its scheduler, without an address space yet.
    pub(crate) fn new(gpu: &Arc<Gpu>, sched: &Arc<Scheduler>) -> impl PinInit<Self> {
        let (gpu, sched) = (gpu.clone(), sched.clone());
        pin_init!(Self {
            gpu,
            sched,
            process <- new_spinlock!(None, "rkfd_space_process"),
            vm <- new_mutex!(None, "rkfd_space_vm"),
            faulted: AtomicFlag::new(false),
            quiesced: Atomic::new(false),
            evict_failed: Atomic::new(false),
        })
    }

    /// The owner of the queues, as the scheduler knows it.
    pub(crate) fn process(&self) -> Option<Arc<SchedProcess>> {
        self.process.lock().clone()
    }

    /// Sets or drops the owner of the queues.
    pub(crate) fn set_process(&self, process: Option<Arc<SchedProcess>>) {
        let old = core::mem::replace(&mut *self.process.lock(), process);
        drop(old);
    }

    /// The address space. Not inside the memory manager: the reference may become the last one.
    pub(crate) fn vm(&self) -> Option<Arc<Vm>> {
        self.vm.lock().clone()
    }

    /// Sets or drops the address space.
    pub(crate) fn set_vm(&self, vm: Option<Arc<Vm>>) {
        let old = core::mem::replace(&mut *self.vm.lock(), vm);
        drop(old);
    }

    /// Whether the address space maps memory that a process has at addresses of `range`.
    pub(super) fn maps_user(&self, range: &Range<u64>) -> bool {
        let vm = self.vm.lock();
        // The reference stays where it is: the last one to go would free memory in here.
        vm.as_ref().is_some_and(|vm| vm.maps_user(range))
    }

    /// Whether the queues are quiesced until memory is found again.
    pub(super) fn is_quiesced(&self) -> bool {
        self.quiesced.load(Relaxed)
    }

    /// Says whether the queues are quiesced, and returns what was said before; the caller keeps others from doing so.
    pub(super) fn set_quiesced(&self, quiesced: bool) -> bool {
        let before = self.quiesced.load(Relaxed);
        self.quiesced.store(quiesced, Relaxed);
        before
    }

    /// Sees to it that no queue uses memory that changes; `first`: the queues run.
    pub(super) fn quiesce(&self, pid: i32, first: bool) {
        if first {
            self.evict_failed.store(!self.evict(pid), Relaxed);
        }
        if self.evict_failed.load(Relaxed) {
            self.zap_userptr(pid);
        }
    }

    /// Takes the queues off the hardware because pages change; false if they do not stop.
    fn evict(&self, pid: i32) -> bool {
        let Some(process) = self.process() else {
            return true;
        };
        match self.sched.evict(&process, EvictCause::Userptr) {
            Ok(()) => true,
            // Nothing runs: it is being forgotten, or the GPU is gone.
            Err(error) if error == ESRCH || error == ENODEV => true,
            Err(error) => {
                dev_limited!(
                    dev_warn,
                    self.gpu.dev(),
                    "pid {}: queues do not stop while memory changes: {:?}\n",
                    pid,
                    error
                );
                false
            }
        }
    }

    /// Takes [`Self::evict`] back.
    pub(super) fn restore(&self) {
        self.evict_failed.store(false, Relaxed);
        if let Some(process) = self.process() {
            // What fails here has failed and was reported before.
            let _ = self.sched.restore(&process, EvictCause::Userptr);
        }
    }

    /// Takes the entries of memory of processes away, because the queues do not stop. When this returns, the GPU does not
    /// use that memory: one that does not confirm it is given up.
    pub(crate) fn zap_userptr(&self, pid: i32) {
        let vm = self.vm.lock();
        // The reference stays where it is, as above.
        let Some(vm) = &*vm else { return };
        let Err(error) = vm.zap_userptr() else {
            return;
        };
        // A device that is gone or lost reaches no memory.
        if self.gpu.is_gone() || self.gpu.is_lost() {
            return;
        }
        dev_limited!(
            dev_err,
            self.gpu.dev(),
            "pid {}: the GPU does not confirm that it dropped the translations of memory that goes: {:?}\n",
            pid,
            error
        );
        // The memory manager hands the pages to another user when this returns.
        self.gpu
            .give_up("memory of a process goes that the GPU may still use");
    }

    /// Takes the queues off the hardware for good, once, because an access was refused.
    pub(crate) fn stop_on_fault(&self) {
        let Some(process) = self.process() else {
            return;
        };
        if self.faulted.xchg(true, Full) {
            return;
        }
        // Called by the worker that handles the faults of all address spaces. Nor is a wait needed: no memory goes.
        if !self.sched.note_fault(&process) {
            // The next fault tries again.
            self.faulted.store(false, Relaxed);
        }
    }
}
