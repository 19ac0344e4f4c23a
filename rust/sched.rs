// SPDX-License-Identifier: GPL-2.0

//! The scheduler: which queues of which processes the GPU runs.
//!
//! The GPU's scheduler firmware (HWS) maps queues to hardware slots (HQDs) and processes to VMIDs.
//! The driver does not tell it single steps: it hands over a *runlist* with everything that should
//! run, or asks it to take queues off the hardware. One [`Scheduler`] per GPU holds the *desired
//! state* (processes, queues, reasons not to run) and lets the hardware converge to it.
//!
//! # How it converges
//!
//! Callers change the desired state under a mutex and get a number for their change. One worker per
//! GPU compares desired and hardware state and takes the next step: nothing, a preemption
//! (UNMAP_QUEUES, QUERY_STATUS and a wait for the fence), or a RUN_LIST. The list is built after the
//! preemption, from the state of that moment, so that all changes that came meanwhile share it.
//!
//! The firmware takes a new runlist only after the old one was unmapped. *Adding work never waits
//! for a preemption* all the same:
//!
//! - creating or restoring a queue returns when the queue is part of the desired state. All errors
//!   that depend on the request (memory, slots, a dead scheduler) are reported then. The worker
//!   activates it: at once if no list is active, else with the next list. A doorbell rung before that
//!   is not lost, because the firmware reads the write pointer from memory when it maps a queue;
//! - additions that would preempt running work wait some milliseconds for further ones, so that a
//!   burst of creations ends in one or two lists.
//!
//! What takes memory away from the hardware (destroy, update, evict) waits until the hardware is
//! done with it. Such a change is not delayed, and if nothing else changed and the firmware is not
//! taking turns, only the queues concerned are unmapped and no new list is needed.
//!
//! # When the hardware does not follow
//!
//! Each wait for the device is bounded. If a fence does not come, or the firmware names a queue that
//! refused preemption, the scheduler is *wedged*: sleepers wake up, later changes fail with `EIO` at
//! once, and what may still be on the hardware keeps its memory. A [`ResetHook`] may reset the device
//! and bring the scheduler back. When the device is removed, changes fail with `ENODEV`.
//!
//! # Locks
//!
//! Outer to inner:
//!
//! 1. `engine`: the HIQ and its fences. Held across waits for the device. Only the worker,
//!    start, shutdown and reset take it: nothing that a user task or page reclaim waits on directly.
//! 2. `state`: the desired state. Never held across a wait. Nothing is allocated or freed under it,
//!    nor under `engine` once the scheduler runs, so that eviction works from MMU notifiers.
//! 3. `SdmaPool::used`, a spinlock.
//!
//! Sleepers wait on atomics, without a lock. Keep-alives are dropped without any of these locks.

mod change;
mod debugfs;
mod device;
mod dump;
mod engine;
mod fence;
mod hiq;
mod machine;
mod mqd;
mod packets;
mod params;
mod platform;
mod record;
mod runlist;
mod sdma;
mod state;
mod stats;

#[cfg(rkfd_kunit)]
#[path = "tests/sched_fake.rs"]
mod fake;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_failures.rs"]
mod test_failures;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_hiq.rs"]
mod test_hiq;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_limits.rs"]
mod test_limits;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_live.rs"]
mod test_live;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_scenes.rs"]
mod test_scenes;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_worker.rs"]
mod test_worker;

pub(crate) use self::{
    machine::{
        Failure,
        ResetHook, //
    },
    params::{
        Config,
        Cwsr,
        EvictCause,
        KeepAlive,
        ProcessParams,
        QueueKind,
        QueueParams,
        QueueUpdate, //
    },
    sdma::SdmaSlot,
    state::Load,
    stats::SchedStats, //
};

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use self::{
    debugfs::Files,
    device::GpuPlatform,
    machine::Machine,
    record::{
        QueueHold,
        QueueSpec,
        SpecKind, //
    }, //
};
use crate::{
    gpu::Gpu,
    kapi::workqueue::OwnedQueue, //
};

/// Work items that may run at a time: the converging worker and the reaper.
const WORKERS: u16 = 2;

/// The scheduler of one GPU.
///
/// Shut down on drop, which must therefore not happen in one of its own work items; those hold the
/// inner state only.
#[pin_data(PinnedDrop)]
pub(crate) struct Scheduler {
    /// Taken at shutdown.
    #[pin]
    files: Mutex<Option<Pin<KBox<Files>>>>,
    machine: Arc<Machine>,
}

impl Scheduler {
    /// Brings the scheduler of `gpu` up with default settings.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::with_config`].
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Result<Arc<Self>> {
        let config = Config {
            mec_firmware: gpu.asic().topology.mec_firmware,
            ..Config::default()
        };
        Self::with_config(gpu, config)
    }

    /// Brings the scheduler of `gpu` up: connects the HIQ, hands VMIDs and slots to the firmware and
    /// waits for its answer.
    ///
    /// # Errors
    ///
    /// - `ETIMEDOUT`: the firmware does not answer.
    /// - `EIO`, `ENODEV`: the device is lost or gone.
    /// - `ENOMEM`, `ENOSPC`: no memory, GART space or doorbell.
    pub(crate) fn with_config(gpu: &Arc<Gpu>, config: Config) -> Result<Arc<Self>> {
        let queue = OwnedQueue::new(c"rkfd-sched", WORKERS)?;
        let machine = Machine::new(GpuPlatform::new(gpu)?, config, Some(queue))?;
        // A scheduler without its files is better than none.
        let dir = gpu.debugfs();
        let files = dir.and_then(|dir| Files::new(&dir, &machine).ok());
        Arc::pin_init(
            pin_init!(Self {
                files <- new_mutex!(files, "rkfd_sched_files"),
                machine,
            }),
            GFP_KERNEL,
        )
    }

    /// Takes everything off the hardware and refuses further changes. Bounded.
    ///
    /// If the firmware does not agree, what the hardware may still use is kept until
    /// [`Scheduler::release`].
    pub(crate) fn shutdown(&self) {
        // Readers hold no lock that the following needs.
        let files = self.files.lock().take();
        drop(files);
        self.machine.shutdown();
    }

    /// Frees what the hardware may have used. Called after the hardware was stopped, by which all
    /// address spaces and queues are forgotten.
    pub(crate) fn release(&self) {
        self.machine.release();
    }

    /// Whom to tell when the scheduler gives up on the firmware.
    pub(crate) fn set_reset_hook(&self, hook: Option<Arc<dyn ResetHook>>) {
        self.machine.set_reset_hook(hook);
    }

    /// Takes the scheduler into service again after the device was reset.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::with_config`].
    #[expect(
        dead_code,
        reason = "for a reset in place; so far a reset binds the device anew"
    )]
    pub(crate) fn after_reset(&self) -> Result {
        self.machine.after_reset()
    }

    /// Asks the firmware for a sign of life: QUERY_STATUS and its fence.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if it does not answer; `EIO`, `ENODEV`.
    #[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "seen by tests"))]
    pub(crate) fn ping(&self) -> Result {
        self.machine.ping()
    }

    /// Adds a process.
    ///
    /// # Errors
    ///
    /// `EINVAL`: PASID 0, or a trap handler that is not 256-byte aligned. `EBUSY`: the PASID is
    /// attached. `ENOMEM`, `EIO`, `ENODEV`.
    pub(crate) fn attach(&self, params: ProcessParams) -> Result<Arc<SchedProcess>> {
        let id = self.machine.attach(params)?;
        // Owns the registration, should the allocation fail.
        let process = SchedProcess {
            machine: self.machine.clone(),
            id,
        };
        Ok(Arc::new(process, GFP_KERNEL)?)
    }

    /// Takes all queues of a process off the hardware, in one preemption, and forgets the process.
    /// Again is no error.
    ///
    /// # Errors
    ///
    /// `EINTR` if the caller is killed, `EIO` if the scheduler is or becomes wedged. What the process
    /// keeps alive stays then until the hardware is done with it.
    pub(crate) fn detach(&self, process: &SchedProcess) -> Result {
        process.machine.detach(process.id)
    }

    /// Changes what is installed for the process at the next mapping, which is asked for if the
    /// process has queues on the hardware. The PASID cannot change.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a trap handler that is not 256-byte aligned. `ESRCH`: detached. `EIO`, `ENODEV`.
    pub(crate) fn update_process(
        &self,
        process: &SchedProcess,
        f: impl FnOnce(&mut ProcessParams),
    ) -> Result {
        process.machine.update_process(process.id, f)
    }

    /// Adds a queue. It runs soon, without the caller waiting for it.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: a size, address or priority that no descriptor can carry.
    /// - `ENOSPC`: the limit of queues is reached, or device memory is used up.
    /// - `ESRCH`: the process was detached.
    /// - `ENOMEM`, `EIO`, `ENODEV`.
    pub(crate) fn create_queue(
        &self,
        process: &Arc<SchedProcess>,
        params: QueueParams,
    ) -> Result<Arc<SchedQueue>> {
        let (kind, slot) = match params.kind {
            QueueKind::Pm4 => (SpecKind::Pm4, None),
            QueueKind::Aql => (SpecKind::Aql, None),
            QueueKind::Sdma(slot) => (
                SpecKind::Sdma {
                    engine: slot.engine(),
                    queue: slot.queue(),
                },
                Some(slot),
            ),
        };
        let spec = QueueSpec {
            kind,
            ring_base: params.ring_base,
            ring_size: params.ring_size,
            rptr: params.rptr,
            wptr: params.wptr,
            eop: params.eop,
            eop_size: params.eop_size,
            cwsr: params.cwsr,
            doorbell: params.doorbell.offset(),
            priority: params.priority,
            percent: params.percent,
            cu_mask: None,
            trap: false,
        };
        let hold = QueueHold {
            _doorbell: Some(params.doorbell),
            _slot: slot,
            keep: params.keep,
        };
        let id = process.machine.create_queue(process.id, spec, hold)?;
        // Owns the queue, should the allocation fail.
        let queue = SchedQueue {
            process: process.clone(),
            id,
        };
        Ok(Arc::new(queue, GFP_KERNEL)?)
    }

    /// Changes a queue and waits until the change is in force.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: as [`Scheduler::create_queue`]; the queue is as before.
    /// - `ENOENT`: destroyed.
    /// - `EINTR`: the caller was killed; the change comes into force all the same.
    /// - `ENOMEM`, `EIO`, `ENODEV`.
    pub(crate) fn update_queue(&self, queue: &SchedQueue, update: QueueUpdate) -> Result {
        let process = &queue.process;
        process.machine.update_queue(process.id, queue.id, update)
    }

    /// Takes a queue off the hardware and forgets it. Again is no error.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::detach`].
    pub(crate) fn destroy_queue(&self, queue: &SchedQueue) -> Result {
        let process = &queue.process;
        process.machine.destroy_queue(process.id, queue.id)
    }

    /// Takes the queues of a process off the hardware until as many [`Scheduler::restore`]s with the
    /// same cause. Allocates nothing; may be called from an MMU notifier that may block.
    ///
    /// # Errors
    ///
    /// `EIO`: the hardware does not follow and may still use the memory. `ESRCH`: detached.
    /// `ENODEV`: gone. Except for `ESRCH` the cause counts.
    pub(crate) fn evict(&self, process: &SchedProcess, cause: EvictCause) -> Result {
        process.machine.evict(process.id, cause)
    }

    /// Takes back one [`Scheduler::evict`]. The queues run again soon if no cause is left.
    ///
    /// # Errors
    ///
    /// `EINVAL`: not evicted for this cause. `ESRCH`, `EIO`, `ENODEV`.
    #[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "seen by tests"))]
    pub(crate) fn restore(&self, process: &SchedProcess, cause: EvictCause) -> Result {
        process.machine.restore(process.id, cause)
    }

    /// Takes an SDMA queue id of `engine`, or of the engine that has most to give.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no such engine. `ENOSPC`: none left.
    pub(crate) fn alloc_sdma(&self, engine: Option<u32>) -> Result<SdmaSlot> {
        self.machine.sdma.alloc(engine)
    }

    /// Counters.
    #[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "seen by tests"))]
    pub(crate) fn stats(&self) -> SchedStats {
        self.machine.counters.snapshot()
    }

    /// Figures of the desired state.
    #[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "seen by tests"))]
    pub(crate) fn load(&self) -> Load {
        self.machine.load()
    }
}

#[pinned_drop]
impl PinnedDrop for Scheduler {
    fn drop(self: Pin<&mut Self>) {
        self.shutdown();
        self.release();
    }
}

/// A process (one address space) that the scheduler knows. Dropping detaches it without waiting.
pub(crate) struct SchedProcess {
    machine: Arc<Machine>,
    id: u64,
}

impl Drop for SchedProcess {
    fn drop(&mut self) {
        // Nobody waits: the records keep what the hardware needs until it is done.
        let _ = self.machine.doom_process(self.id, true);
    }
}

/// A queue that the scheduler knows. Dropping destroys it without waiting.
pub(crate) struct SchedQueue {
    process: Arc<SchedProcess>,
    id: u64,
}

impl Drop for SchedQueue {
    fn drop(&mut self) {
        // As for processes.
        let _ = self
            .process
            .machine
            .doom_queue(self.process.id, self.id, true);
    }
}
