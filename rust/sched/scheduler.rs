// SPDX-License-Identifier: GPL-2.0

//! The handles that the layers above hold and call.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    time::msecs_to_jiffies, //
};

use super::{
    changes::pending::Pending,
    config::{
        Config,
        Policy, //
    },
    desired::queue::QueueHold,
    diag::{
        debugfs::Files,
        trace,
        watchdog::{
            Watchdog,
            SAMPLES, //
        }, //
    },
    failure::{
        Failure,
        ResetHook, //
    },
    mqd::saved::{
        QueueImage,
        WaveState, //
    },
    notes::Halt,
    params::{
        EvictCause,
        ProcessParams,
        QueueSpec,
        QueueUpdate,
        UpdateError, //
    },
    platform::gpu::GpuPlatform,
    sdma_ids::SdmaSlot,
    worker::Worker, //
};
use crate::{
    gpu::{
        salvage::SavedQueue,
        Gpu, //
    },
    hw::{
        pm4::process::Debug,
        timeouts::unmap_latency_ms, //
    },
    kapi::{
        ticker::{
            new_ticker,
            Ticker, //
        },
        workqueue::OwnedQueue, //
    }, //
};

/// Work items that may run at a time: the converging worker, the reaper, the report of hung queues, and what the
/// interrupt thread noted.
const WORKERS: u16 = 4;

/// The scheduler of one GPU.
///
/// Shut down on drop, which must therefore not happen in one of its own work items; those hold the
/// inner state only.
#[pin_data(PinnedDrop)]
pub(crate) struct Scheduler {
    /// Taken at shutdown.
    #[pin]
    files: Mutex<Option<Pin<KBox<Files>>>>,
    /// The watchdog, if there is one; taken at shutdown.
    #[pin]
    watchdog: Mutex<Option<Pin<KBox<Ticker>>>>,
    pub(super) worker: Arc<Worker>,
}

impl Scheduler {
    /// Brings the scheduler of `gpu` up as the module's parameters say.
    ///
    /// # Errors
    ///
    /// As [`Config::from_parameters`] and [`Scheduler::with_config`].
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Result<Arc<Self>> {
        let config = Config {
            mec_firmware: gpu.info().silicon.mec_firmware,
            ..Config::from_parameters()?
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
        let worker = Worker::new(GpuPlatform::new(gpu)?, config, Some(queue))?;
        // A scheduler without its files is better than none.
        let dir = gpu.debugfs();
        let files = dir.and_then(|dir| Files::new(&dir, &worker.core).ok());
        let watchdog = match config.watchdog_ms {
            0 => None,
            limit => {
                let period = msecs_to_jiffies(limit / SAMPLES);
                let ticker = new_ticker!("rkfd_sched_watchdog", period, Watchdog::new(&worker)?);
                let ticker = KBox::pin_init(ticker, GFP_KERNEL)?;
                ticker.start();
                Some(ticker)
            }
        };
        Arc::pin_init(
            pin_init!(Self {
                files <- new_mutex!(files, "rkfd_sched_files"),
                watchdog <- new_mutex!(watchdog, "rkfd_sched_watchdog"),
                worker,
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
        let watchdog = self.watchdog.lock().take();
        // Waits for a sample that is being taken.
        drop(watchdog);
        self.worker.shutdown();
    }

    /// Frees what the hardware may have used. Called after the hardware was stopped, by which all
    /// address spaces and queues are forgotten.
    pub(crate) fn release(&self) {
        self.worker.release();
    }

    /// The hook to call when the hardware does not follow.
    pub(crate) fn set_reset_hook(&self, hook: Option<Arc<dyn ResetHook>>) {
        self.worker.core.set_reset_hook(hook);
    }

    /// Takes the scheduler into service again after the engines were reset because of `failure`.
    /// `saved` is what the queues were doing; those that are at fault do not run again and their
    /// owners are notified, all others go on.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::with_config`]; the scheduler stays wedged then. `ENODEV` if it was shut down,
    /// `EBUSY` if it is suspended.
    pub(crate) fn recover(&self, saved: &[SavedQueue], failure: &Failure) -> Result {
        self.worker.recover(saved, failure)
    }

    /// Notes the processes that a reset of the chip is held against: because of `failure`, or, where that names no SDMA
    /// queue, because those of `saved` refused to stop. To be called before the reset, while the queues are known.
    pub(crate) fn note_chip_reset(&self, saved: &[SavedQueue], failure: &Failure) {
        self.worker.note_chip_reset(saved, failure);
    }

    /// Takes everything off the hardware, disconnects from it, and touches it no more until
    /// [`Scheduler::resume`]. Changes are taken meanwhile, and come into force then. A scheduler that
    /// is out of service stays so.
    ///
    /// # Errors
    ///
    /// Those of [`Worker::suspend`].
    pub(crate) fn suspend(&self) -> Result {
        self.worker.suspend()
    }

    /// Connects to hardware that was brought up anew and goes on. Without [`Scheduler::suspend`]
    /// before nothing happens.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::with_config`]; the scheduler is wedged then.
    pub(crate) fn resume(&self) -> Result {
        self.worker.resume()
    }

    /// Waits while the hardware is being reset: who is about to make a queue comes through it as the queues do that are
    /// there. Bounded; to be called without locks that others need.
    ///
    /// # Errors
    ///
    /// `EINTR`: the caller was killed.
    pub(crate) fn await_reset(&self) -> Result {
        self.worker.core.await_reset()
    }

    /// Whether the hardware did not follow, and [`Scheduler::recover`] has not come yet.
    pub(crate) fn is_wedged(&self) -> bool {
        self.worker.core.life().is_out_of_service()
    }

    /// Stays out of service: changes are refused with `EIO` for good. To be called where the
    /// scheduler will not be brought back.
    pub(crate) fn abandon(&self) {
        self.worker.abandon();
    }

    /// Asks the firmware for an answer: QUERY_STATUS and its fence.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if it does not answer; `EIO`, `ENODEV`.
    #[cfg(rkfd_kunit)]
    pub(crate) fn ping(&self) -> Result {
        self.worker.ping()
    }

    /// Adds a process. What is held against the caller on this GPU is held against it, see
    /// [`Conduct`](crate::gpu::conduct::Conduct).
    ///
    /// # Errors
    ///
    /// Those of [`Worker::attach`].
    pub(crate) fn attach(&self, params: ProcessParams) -> Result<Arc<SchedProcess>> {
        let id = self.worker.attach(params)?;
        // Owns the registration, should the allocation fail.
        let process = SchedProcess {
            worker: self.worker.clone(),
            id,
        };
        Ok(Arc::new(process, GFP_KERNEL_ACCOUNT)?)
    }

    /// Takes all queues of a process off the hardware, in one preemption, and forgets the process.
    /// Again is no error. The wait is bounded, and does not end with the caller's life.
    ///
    /// # Errors
    ///
    /// `EIO` if the scheduler is or becomes wedged. What the process keeps alive stays then until the
    /// hardware is done with it.
    pub(crate) fn detach(&self, process: &SchedProcess) -> Result {
        trace::detached(&process.worker.core, process.id, || {
            process.worker.detach(process.id)
        })
    }

    /// Changes what is installed for the process at the next mapping, which is asked for if the
    /// process has queues on the hardware. The PASID cannot change.
    ///
    /// # Errors
    ///
    /// Those of [`Worker::update_process`].
    pub(crate) fn update_process(
        &self,
        process: &SchedProcess,
        f: impl FnOnce(&mut ProcessParams),
    ) -> Result {
        process.worker.update_process(process.id, f)
    }

    /// Adds a queue. It runs soon, without the caller waiting for it.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: a size, address or priority that no descriptor can carry.
    /// - `ENOSPC`: the limit of queues is reached, or device memory is used up.
    /// - `EPERM`: the caller of [`Self::attach`] is barred from the GPU; or gets no SDMA queues, because one of its own
    ///   took a reset of the chip.
    /// - `ESRCH`: the process was detached.
    /// - `ENOMEM`, `EIO`, `ENODEV`.
    pub(crate) fn create_queue(
        &self,
        process: &Arc<SchedProcess>,
        spec: QueueSpec,
        hold: QueueHold,
    ) -> Result<Arc<SchedQueue>> {
        self.add_queue(process, spec, hold, None)
    }

    /// Adds a queue that goes on where one was when it was checkpointed.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::create_queue`]; `EINVAL`: the image is not that of such a queue.
    #[cfg_attr(
        not(rkfd_kunit),
        expect(dead_code, reason = "waits for the checkpoint ioctls")
    )]
    pub(crate) fn restore_queue(
        &self,
        process: &Arc<SchedProcess>,
        spec: QueueSpec,
        hold: QueueHold,
        image: &QueueImage,
    ) -> Result<Arc<SchedQueue>> {
        self.add_queue(process, spec, hold, Some(image))
    }

    fn add_queue(
        &self,
        process: &Arc<SchedProcess>,
        spec: QueueSpec,
        hold: QueueHold,
        image: Option<&QueueImage>,
    ) -> Result<Arc<SchedQueue>> {
        let id = process.worker.add_queue(process.id, spec, hold, image)?;
        // Owns the queue, should the allocation fail.
        let queue = SchedQueue {
            process: process.clone(),
            id,
        };
        Ok(Arc::new(queue, GFP_KERNEL_ACCOUNT)?)
    }

    /// Changes a queue and waits until the change is in force.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: as [`Scheduler::create_queue`]; the queue is as before.
    /// - `ENOSPC`: the queue would run and no slot or VMID is left (without over-subscription); the
    ///   queue is as before.
    /// - `EACCES`: the queue hung and was reset, or stopped at a bad packet.
    /// - `ENOENT`: destroyed.
    /// - `EINTR`: the caller was killed. If [`UpdateError::Unconfirmed`] says so, the change comes
    ///   into force all the same.
    /// - `ENOMEM`, `EIO`, `ENODEV`.
    pub(crate) fn update_queue(
        &self,
        queue: &SchedQueue,
        update: QueueUpdate,
    ) -> Result<(), UpdateError> {
        let process = &queue.process;
        process.worker.update_queue(process.id, queue.id, update)
    }

    /// Has a compute queue taken off the hardware for good, because it stopped at a packet that cannot be executed: else
    /// it would stop there at each turn. In force for all later changes. Does not sleep: for the interrupt thread.
    /// Returns false if too much was noted that is not acted on yet; the queue stops again when it is mapped next.
    pub(crate) fn note_halt(&self, halt: Halt) -> bool {
        self.worker.note_halt(halt)
    }

    /// Takes a queue off the hardware and forgets it. Again is no error.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::detach`]; `EINTR` if the caller is killed.
    pub(crate) fn destroy_queue(&self, queue: &SchedQueue) -> Result {
        let process = &queue.process;
        trace::destroyed(&process.worker.core, process.id, queue.id, || {
            process.worker.destroy_queue(process.id, queue.id)
        })
    }

    /// The saved waves of a compute queue that does not run: stopped, or its process evicted. The
    /// caller sees to it that nothing starts it meanwhile.
    ///
    /// # Errors
    ///
    /// Those of [`SchedCore::wave_state`](super::core::SchedCore::wave_state).
    pub(crate) fn wave_state(&self, queue: &SchedQueue) -> Result<WaveState> {
        let process = &queue.process;
        process.worker.core.wave_state(process.id, queue.id)
    }

    /// Copies a queue that is off the hardware, for [`Scheduler::restore_queue`].
    ///
    /// # Errors
    ///
    /// `EBUSY`: it is on the hardware; evict its process first. `ENOENT`, `ENOMEM`, `ENODEV`.
    #[cfg_attr(
        not(rkfd_kunit),
        expect(dead_code, reason = "waits for the checkpoint ioctls")
    )]
    pub(crate) fn checkpoint_queue(&self, queue: &SchedQueue) -> Result<QueueImage> {
        let process = &queue.process;
        process.worker.core.checkpoint(process.id, queue.id)
    }

    /// Whether the scheduler is shut down, or is about to be.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.worker.core.life().is_shut_down()
    }

    /// Whether queues that find no slot take turns with others; else they are refused.
    pub(crate) fn takes_turns(&self) -> bool {
        self.worker.core.config.policy == Policy::Oversubscribe
    }

    /// Milliseconds that a queue may take to leave the hardware before it counts as one that refuses.
    pub(crate) fn unload_ms(&self) -> u32 {
        unmap_latency_ms(self.worker.core.config.timeout_ms)
    }

    /// Units of global wave sync that a queue can have: all of the device's, or none where no firmware
    /// shares them out.
    pub(crate) fn num_gws(&self) -> u32 {
        self.worker.num_gws()
    }

    /// Gives the device's global wave sync to a queue, or takes it back, and waits until that is in
    /// force. Queues that have it take turns, so that each has all of it.
    ///
    /// # Errors
    ///
    /// `ENODEV`: the device has none, or no firmware schedules it. `EBUSY`: a queue of the process
    /// has it. `EINVAL`: no queue of the process has it that could give it back, or not a compute
    /// queue. Else as [`Scheduler::update_queue`].
    pub(crate) fn set_gws(&self, queue: &SchedQueue, on: bool) -> Result {
        self.update_queue(
            queue,
            QueueUpdate {
                gws: Some(on),
                ..QueueUpdate::default()
            },
        )?;
        Ok(())
    }

    /// Sets what a debugger wants of a process, and waits until that is in force.
    ///
    /// `debug` are the words of one that is attached, for MAP_PROCESS; all zero without. With `diq` there is a debug
    /// interface queue: MAP_PROCESS says so, and the compute queues of the process are mapped as static ones, which
    /// only an UNMAP_QUEUES of everything takes off.
    ///
    /// # Errors
    ///
    /// `ENODEV`: no firmware schedules the device. `ESRCH`; else as [`Scheduler::update_queue`].
    #[cfg_attr(
        not(rkfd_kunit),
        expect(dead_code, reason = "waits for the debugger ioctls")
    )]
    pub(crate) fn set_debug(&self, process: &SchedProcess, debug: Debug, diq: bool) -> Result {
        process.worker.set_debug(process.id, debug, diq)
    }

    /// Whether the queue sits in a hardware slot at this moment, by the registers.
    ///
    /// # Errors
    ///
    /// Those of [`is_occupied`](super::diag::sample::is_occupied).
    #[cfg(rkfd_kunit)]
    pub(crate) fn is_occupied(&self, queue: &SchedQueue) -> Result<bool> {
        let process = &queue.process;
        super::diag::sample::is_occupied(&process.worker.core, process.id, queue.id)
    }

    /// Takes the queues of a process off the hardware until as many [`Scheduler::restore`]s with the
    /// same cause. Allocates nothing; may be called from an MMU notifier that may block.
    ///
    /// # Errors
    ///
    /// `EIO`: the hardware does not follow and may still use the memory. `ESRCH`: detached.
    /// `ENODEV`: gone. Except for `ESRCH` the cause counts.
    pub(crate) fn evict(&self, process: &SchedProcess, cause: EvictCause) -> Result {
        trace::evicted(&process.worker.core, process.id, cause, || {
            process.worker.evict(process.id, cause)
        })
    }

    /// Has a process evicted soon, because an access was refused. Does not sleep: for the interrupt thread.
    /// Returns false if too much was noted that is not acted on yet.
    pub(crate) fn note_fault(&self, process: &SchedProcess) -> bool {
        process.worker.note_fault(process.id)
    }

    /// Takes back one [`Scheduler::evict`]. The queues run again soon if no cause is left.
    ///
    /// # Errors
    ///
    /// Those of [`Worker::restore`].
    pub(crate) fn restore(&self, process: &SchedProcess, cause: EvictCause) -> Result {
        let result = process.worker.restore(process.id, cause);
        trace::restored(&process.worker.core, process.id, cause, &result);
        result
    }

    /// Takes an SDMA queue id on one of the first `engines` engines: the lowest that is free.
    ///
    /// # Errors
    ///
    /// Those of [`SdmaPool::alloc_spread`](super::sdma_ids::SdmaPool::alloc_spread).
    pub(crate) fn alloc_sdma_spread(&self, engines: u32) -> Result<SdmaSlot> {
        self.worker.core.sdma.alloc_spread(engines)
    }

    /// Takes an SDMA queue id of `engine`, or of the engine that has most to give.
    ///
    /// # Errors
    ///
    /// Those of [`SdmaPool::alloc`](super::sdma_ids::SdmaPool::alloc).
    pub(crate) fn alloc_sdma(&self, engine: Option<u32>) -> Result<SdmaSlot> {
        self.worker.core.sdma.alloc(engine)
    }

    /// Counters.
    #[cfg(rkfd_kunit)]
    pub(crate) fn stats(&self) -> super::counters::SchedStats {
        self.worker.core.counters.snapshot()
    }

    /// Figures of the desired state.
    #[cfg(rkfd_kunit)]
    pub(crate) fn load(&self) -> super::desired::state::Load {
        self.worker.core.load()
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
    worker: Arc<Worker>,
    id: u64,
}

impl Drop for SchedProcess {
    fn drop(&mut self) {
        // No thread waits: the records keep what the hardware needs until it is done.
        let _: Pending = self.worker.begin_detach(self.id, true);
    }
}

/// A queue that the scheduler knows. Dropping destroys it without waiting.
pub(crate) struct SchedQueue {
    process: Arc<SchedProcess>,
    id: u64,
}

impl Drop for SchedQueue {
    fn drop(&mut self) {
        let (worker, proc) = (&self.process.worker, self.process.id);
        // As for processes.
        let _ = trace::destroyed(&worker.core, proc, self.id, || {
            let _: Pending = worker.begin_destroy(proc, self.id, true);
            Ok(())
        });
    }
}
