// SPDX-License-Identifier: GPL-2.0

//! The scheduler proper: numbered changes to the desired state, and the worker that applies them.

use kernel::{
    fmt,
    new_mutex,
    prelude::*,
    rbtree::{
        RBTreeNode,
        RBTreeNodeReservation, //
    },
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    },
    time::msecs_to_jiffies,
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};

use super::{
    engine::Engine,
    mqd::{
        MqdMem,
        SdmaMqds, //
    },
    params::{
        Config,
        EvictCause,
        ProcessParams,
        QueueUpdate,
        MAX_PRIORITY, //
    },
    platform::Platform,
    record::{
        PendingUpdate,
        Phase,
        ProcRec,
        QueueHold,
        QueueRec,
        QueueSpec, //
    },
    runlist::ListBuffer,
    sdma::SdmaPool,
    state::{
        Load,
        State, //
    },
    stats::Counters, //
};
use crate::{
    hw::num::is_aligned,
    kapi::{
        waitqueue::{
            new_waitqueue,
            Sleep,
            WaitQueue,
            Woken, //
        },
        workqueue::OwnedQueue, //
    }, //
};

/// Whether the scheduler takes changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Health {
    /// Yes.
    Running,
    /// The firmware does not answer; changes are refused with `EIO` until a reset.
    Wedged,
    /// The device was removed or the scheduler shut down; changes are refused with `ENODEV`.
    Gone,
}

impl Health {
    const fn raw(self) -> u32 {
        // CAST: The discriminant of a fieldless enum.
        self as u32
    }

    const fn from_raw(raw: u32) -> Self {
        match raw {
            0 => Self::Running,
            1 => Self::Wedged,
            _ => Self::Gone,
        }
    }

    /// What a change is answered with.
    fn check(self) -> Result {
        match self {
            Self::Running => Ok(()),
            Self::Wedged => Err(EIO),
            Self::Gone => Err(ENODEV),
        }
    }
}

/// Why the hardware did not follow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    /// The fence of a preemption did not come. `refused` is what the HIQ's descriptor says.
    Timeout {
        /// Doorbell of a queue that refused, or 0.
        refused: u32,
    },
    /// The firmware gave up on a queue.
    Refused {
        /// Its doorbell, as the firmware wrote it.
        doorbell: u32,
    },
    /// The firmware does not take packets.
    RingFull,
    /// Packets could not be built; a driver bug, or the device is gone.
    Build(Error),
    /// The device is lost or gone.
    Device(Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout { refused: 0 } => f.write_str("no answer to a preemption in time"),
            Self::Timeout { refused } => write!(
                f,
                "no answer to a preemption in time, queue {refused:#x} refused it"
            ),
            Self::Refused { doorbell } => {
                write!(f, "queue {doorbell:#x} refused preemption")
            }
            Self::RingFull => f.write_str("the firmware takes no packets"),
            Self::Build(error) => write!(f, "no packets could be built ({error:?})"),
            Self::Device(error) => write!(f, "the device does not answer ({error:?})"),
        }
    }
}

/// Told when the scheduler gives up on the firmware, so that somebody can reset the device.
///
/// Called by the worker without any lock of the scheduler. After the reset
/// [`Machine::after_reset`] takes the scheduler into service again.
pub(crate) trait ResetHook: Send + Sync {
    /// The scheduler is wedged.
    fn wedged(&self, failure: &Failure);
}

/// A destroyed queue or detached process that may still be on the hardware.
#[derive(Debug)]
#[must_use = "memory of the hardware may only be released after the wait"]
pub(super) enum Pending {
    /// The hardware never had it or was done with it.
    Done,
    /// Wait for this change.
    Change(u64),
}

/// State and worker of a scheduler.
#[pin_data]
pub(crate) struct Machine {
    pub(super) platform: Arc<dyn Platform>,
    pub(super) config: Config,
    pub(super) counters: Counters,
    pub(super) sdma: Arc<SdmaPool>,
    sdma_mqds: Arc<SdmaMqds>,
    /// Source of ids of processes and queues.
    next_id: Atomic<u64>,
    health: Atomic<u32>,
    /// Changes up to this one are applied.
    applied: Atomic<u64>,
    /// Hardware and desired state agreed after this change.
    settled: Atomic<u64>,
    /// Newest change that somebody waits for.
    urgent: Atomic<u64>,
    /// Wakes up on changes of `applied`, `health` and `urgent`.
    #[pin]
    events: WaitQueue,
    #[pin]
    hook: Mutex<Option<Arc<dyn ResetHook>>>,
    #[pin]
    pub(super) engine: Mutex<Engine>,
    #[pin]
    pub(super) state: Mutex<State>,
    #[pin]
    converge: Work<Machine, 0>,
    #[pin]
    reap: Work<Machine, 1>,
}

impl_has_work! {
    impl HasWork<Self, 0> for Machine { self.converge }
    impl HasWork<Self, 1> for Machine { self.reap }
}

impl WorkItem<0> for Machine {
    type Pointer = Arc<Machine>;

    fn run(this: Arc<Machine>) {
        this.converge();
    }
}

impl WorkItem<1> for Machine {
    type Pointer = Arc<Machine>;

    fn run(this: Arc<Machine>) {
        let garbage = this.state.lock().take_garbage();
        // Frees without any lock of the scheduler.
        drop(garbage);
    }
}

impl Machine {
    /// Makes a scheduler that runs, or, without a `queue`, one that its owner drives by
    /// [`Machine::converge`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENOSPC`, `ETIMEDOUT` if the firmware does not answer, `EIO`, `ENODEV`.
    pub(super) fn new(
        platform: Arc<dyn Platform>,
        config: Config,
        queue: Option<OwnedQueue>,
    ) -> Result<Arc<Self>> {
        let asic = platform.asic();
        let sdma = SdmaPool::new(asic.sdma_engines())?;
        let sdma_mqds = SdmaMqds::new(&*platform)?;
        let mut engine = Engine::new(&*platform)?;
        let mut state = State::new(queue);
        state.ib = Some(ListBuffer::new(&*platform, ListBuffer::FIRST_DWORDS)?);
        engine.start(&*platform, &config)?;
        Arc::pin_init(
            try_pin_init!(Self {
                platform,
                config,
                counters: Counters::new(),
                sdma,
                sdma_mqds,
                next_id: Atomic::new(1),
                health: Atomic::new(Health::Running.raw()),
                applied: Atomic::new(0),
                settled: Atomic::new(0),
                urgent: Atomic::new(0),
                events <- new_waitqueue!("rkfd_sched_events"),
                hook <- new_mutex!(None, "rkfd_sched_hook"),
                engine <- new_mutex!(engine, "rkfd_sched_engine"),
                state <- new_mutex!(state, "rkfd_sched_state"),
                converge <- new_work!("rkfd_sched_converge"),
                reap <- new_work!("rkfd_sched_reap"),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Whether changes are taken.
    pub(crate) fn health(&self) -> Health {
        Health::from_raw(self.health.load(Acquire))
    }

    /// Figures of the desired state.
    pub(crate) fn load(&self) -> Load {
        self.state.lock().load()
    }

    /// Whom to tell when the scheduler is wedged.
    pub(crate) fn set_reset_hook(&self, hook: Option<Arc<dyn ResetHook>>) {
        let old = core::mem::replace(&mut *self.hook.lock(), hook);
        drop(old);
    }

    fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Relaxed)
    }

    // ---- the worker ----

    /// Asks the worker to run. `urgent`: somebody waits, or will, for `change`.
    fn kick(self: &Arc<Self>, state: &State, change: u64, urgent: bool) {
        self.counters.changes.inc();
        if urgent {
            // Changes are numbered under the state lock, which the caller holds, so they only grow.
            self.urgent.store(change, Release);
            self.events.wake_all();
        }
        if let Some(queue) = &state.queue {
            // Already queued is fine: it has not looked at the state yet.
            if queue.enqueue::<Arc<Self>, 0>(self.clone()).is_err() {
                self.counters.coalesced.inc();
            }
        }
    }

    /// Moves the hardware to the desired state. Returns when both agree or the scheduler is wedged.
    pub(super) fn converge(self: &Arc<Self>) {
        let mut engine = self.engine.lock();
        if self.health() != Health::Running {
            return;
        }
        let result = engine.converge(self);
        drop(engine);
        if let Err(failure) = result {
            self.give_up(&failure);
        }
        self.reap_later();
    }

    fn reap_later(self: &Arc<Self>) {
        let state = self.state.lock();
        if state.has_garbage() {
            if let Some(queue) = &state.queue {
                // Already queued is fine: it takes what is there when it runs.
                let _ = queue.enqueue::<Arc<Self>, 1>(self.clone());
            }
        }
    }

    /// Tells sleepers what is applied.
    pub(super) fn publish(&self, applied: u64) {
        if applied > self.applied.load(Relaxed) {
            self.applied.store(applied, Release);
            self.events.wake_all();
        }
    }

    /// Notes that hardware and desired state agree after `change`.
    pub(super) fn publish_settled(&self, change: u64) {
        self.settled.store(change, Release);
        self.events.wake_all();
    }

    /// Waits a moment for further additions, or until somebody is in a hurry.
    pub(super) fn gather(&self) {
        let applied = self.applied.load(Relaxed);
        let _ = self.events.wait(
            Sleep::Uninterruptible,
            msecs_to_jiffies(self.config.gather_ms).max(1),
            || self.urgent.load(Acquire) > applied || self.health() != Health::Running,
        );
    }

    /// Stops using hardware that does not follow.
    fn give_up(self: &Arc<Self>, failure: &Failure) {
        let gone = matches!(failure, Failure::Device(error) | Failure::Build(error) if *error == ENODEV);
        let health = if gone { Health::Gone } else { Health::Wedged };
        {
            let mut state = self.state.lock();
            match gone {
                // Nothing runs on a device that is not there.
                true => {
                    state.all_stopped();
                    // No descriptor can be written any more; nobody needs them.
                    let _ = state.settle();
                }
                false => state.lose(),
            }
            self.health.store(health.raw(), Release);
        }
        self.events.wake_all();
        if gone {
            return;
        }
        self.platform
            .complain(fmt!("{failure}; giving up until a reset"));
        let hook = self.hook.lock().clone();
        if let Some(hook) = hook {
            hook.wedged(failure);
        }
    }

    /// Waits until `change` is applied.
    ///
    /// # Errors
    ///
    /// - `EIO`: the scheduler is wedged. `ENODEV`: it is gone.
    /// - `EINTR`: the caller was killed (only with [`Sleep::Killable`]).
    /// - `ETIMEDOUT`: the worker does not come round; should not happen, it is bounded itself.
    pub(super) fn wait(&self, change: u64, sleep: Sleep) -> Result {
        self.wait_for(&self.applied, change, sleep)
    }

    fn wait_for(&self, reached: &Atomic<u64>, change: u64, sleep: Sleep) -> Result {
        let woken = self.events.wait(
            sleep,
            msecs_to_jiffies(self.config.converge_ms()).max(1),
            || reached.load(Acquire) >= change || self.health() != Health::Running,
        );
        if reached.load(Acquire) >= change {
            return Ok(());
        }
        self.health().check()?;
        match woken {
            Woken::Killed => Err(EINTR),
            Woken::TimedOut | Woken::Met => Err(ETIMEDOUT),
        }
    }

    /// Stops the hardware side and refuses further changes. Idempotent; bounded.
    ///
    /// Afterwards nothing of the scheduler runs any more, and records are freed as their owners let
    /// go of them.
    pub(super) fn shutdown(self: &Arc<Self>) {
        let queue = {
            let mut state = self.state.lock();
            if state.stopping {
                return;
            }
            state.stopping = true;
            state.queue.take()
        };
        // Finishes what runs; nothing can be queued any more.
        drop(queue);
        let result = {
            let mut engine = self.engine.lock();
            match self.health() {
                Health::Running => engine.stop(self),
                _ => Ok(()),
            }
        };
        if let Err(failure) = result {
            self.platform
                .complain(fmt!("shut down without the firmware's consent: {failure}"));
        }
        let garbage = {
            let mut state = self.state.lock();
            // The caller goes on to take the device's access to memory away.
            state.all_stopped();
            let applied = state.settle();
            self.health.store(Health::Gone.raw(), Release);
            if let Ok(applied) = applied {
                self.publish(applied);
            }
            state.take_garbage()
        };
        self.events.wake_all();
        drop(garbage);
        self.set_reset_hook(None);
    }

    /// Takes the scheduler into service again after the device was reset: nothing runs on it and
    /// the HIQ is not connected.
    ///
    /// # Errors
    ///
    /// As [`Machine::new`]; the scheduler stays wedged then. `ENODEV` if it is gone.
    pub(crate) fn after_reset(self: &Arc<Self>) -> Result {
        {
            let mut engine = self.engine.lock();
            if self.health() == Health::Gone {
                return Err(ENODEV);
            }
            engine.forget()?;
            engine.start(&*self.platform, &self.config)?;
            let mut state = self.state.lock();
            state.all_stopped();
            let applied = state.settle()?;
            self.health.store(Health::Running.raw(), Release);
            self.counters.resets.inc();
            self.publish(applied);
            let change = state.next_change();
            self.kick(&state, change, false);
        }
        self.events.wake_all();
        self.reap_later();
        Ok(())
    }

    /// Sends QUERY_STATUS alone and waits for its fence.
    ///
    /// # Errors
    ///
    /// As [`Machine::wait`]; `ETIMEDOUT` if the firmware does not answer.
    pub(super) fn ping(&self) -> Result {
        self.health().check()?;
        self.engine
            .lock()
            .handshake(&*self.platform, &self.config)
    }

    // ---- processes ----

    /// Adds a process. Returns its id.
    ///
    /// # Errors
    ///
    /// `EINVAL`: PASID 0. `EBUSY`: the PASID is attached. `ENOMEM`, `EIO`, `ENODEV`.
    pub(super) fn attach(&self, params: ProcessParams) -> Result<u64> {
        self.health().check()?;
        check_trap(&params)?;
        if params.pasid == 0 {
            return Err(EINVAL);
        }
        let id = self.new_id();
        let pasid = params.pasid;
        let node = RBTreeNode::new(id, ProcRec::new(params), GFP_KERNEL)?;
        let mut state = self.state.lock();
        if state.stopping {
            return Err(ENODEV);
        }
        if state.has_pasid(pasid) {
            drop(state);
            return Err(EBUSY);
        }
        state.procs.insert(node);
        Ok(id)
    }

    /// Changes what MAP_PROCESS installs. Queues that run are mapped anew soon.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the trap handler is misaligned. `ESRCH`, `EIO`, `ENODEV`.
    pub(super) fn update_process(
        self: &Arc<Self>,
        proc: u64,
        f: impl FnOnce(&mut ProcessParams),
    ) -> Result {
        self.health().check()?;
        let mut state = self.state.lock();
        let change = state.next_change();
        let rec = state.proc_mut(proc)?;
        let before = rec.params.values();
        f(&mut rec.params);
        let checked = check_trap(&rec.params);
        if checked.is_err() {
            rec.params.set_values(before);
        }
        // The identity of a process is not a parameter.
        rec.params.pasid = before.pasid;
        checked?;
        let mut stale = false;
        for queue in rec.queues.values_mut() {
            stale |= queue.require_off(change);
        }
        if stale {
            self.kick(&state, change, false);
        }
        Ok(())
    }

    /// Dooms a process with all its queues.
    pub(super) fn doom_process(self: &Arc<Self>, proc: u64, orphan: bool) -> Pending {
        let mut state = self.state.lock();
        let change = state.next_change();
        let Ok(rec) = state.proc_mut(proc) else {
            return Pending::Done;
        };
        rec.doomed = true;
        rec.orphan = orphan;
        let mut wait = false;
        for queue in rec.queues.values_mut() {
            wait |= queue.require_off(change);
        }
        self.doomed(state, change, wait)
    }

    /// Common end of dooming.
    fn doomed(
        self: &Arc<Self>,
        mut state: kernel::sync::lock::Guard<'_, State, kernel::sync::lock::mutex::MutexBackend>,
        change: u64,
        wait: bool,
    ) -> Pending {
        if wait {
            self.kick(&state, change, true);
            return Pending::Change(change);
        }
        // Errors of descriptors do not matter here; the worker sees them again.
        let _ = state.settle();
        drop(state);
        self.reap_later();
        Pending::Done
    }

    /// Takes all queues of a process off the hardware and forgets it.
    ///
    /// # Errors
    ///
    /// As [`Machine::wait`], except that a scheduler that is gone has reached the goal. After an error
    /// the record, with all that it keeps alive, stays until the hardware is done with it.
    pub(super) fn detach(self: &Arc<Self>, proc: u64) -> Result {
        let result = match self.doom_process(proc, false) {
            Pending::Done => Ok(()),
            Pending::Change(change) => self.wait(change, Sleep::Killable),
        };
        let node = {
            let mut state = self.state.lock();
            let node = state.collect_proc(proc);
            if node.is_none() {
                state.disown_proc(proc);
            }
            node
        };
        let done = node.is_some();
        drop(node);
        match result {
            Err(_) if done => Ok(()),
            result => result,
        }
    }

    // ---- queues ----

    /// Adds a queue. Never waits for a preemption (unless coalescing is off).
    ///
    /// # Errors
    ///
    /// `EINVAL`: the descriptor cannot be encoded. `ENOSPC`: no slot (see [`State::admit`]) or no
    /// memory of the device. `ESRCH`, `ENOMEM`, `EIO`, `ENODEV`.
    pub(super) fn create_queue(
        self: &Arc<Self>,
        proc: u64,
        mut spec: QueueSpec,
        hold: QueueHold,
    ) -> Result<u64> {
        self.health().check()?;
        check_spec(&spec)?;
        spec.trap = self.state.lock().proc_mut(proc)?.params.tba != 0;
        let mqd = MqdMem::new(&*self.platform, &self.sdma_mqds, &spec)?;
        let active = spec.is_active();
        let rec = QueueRec {
            spec,
            mqd,
            phase: Phase::Created,
            doomed: false,
            orphan: false,
            update: None,
            need: None,
            hold,
        };
        let id = self.new_id();
        let mut node = Some(RBTreeNode::new(id, rec, GFP_KERNEL)?);
        // A buffer that the state did not take, or gave back; freed without the lock.
        let mut spare = None;
        loop {
            let mut state = self.state.lock();
            if state.stopping {
                return Err(ENODEV);
            }
            state.proc_mut(proc)?;
            state.swap_buffer(&mut spare);
            let need = state.list_dwords(self.platform.asic(), 1);
            if need > state.list_capacity() {
                drop(state);
                spare = Some(ListBuffer::new(&*self.platform, need.saturating_mul(2))?);
                continue;
            }
            state.admit(proc, active, spec.kind.is_compute(), self.platform.asic(), &self.config)?;
            let change = state.next_change();
            let evicted = {
                let rec = state.proc_mut(proc)?;
                if let Some(node) = node.take() {
                    rec.queues.insert(node);
                }
                rec.is_evicted()
            };
            if active && !evicted {
                self.kick(&state, change, !self.config.coalesce);
                drop(state);
                if !self.config.coalesce {
                    self.wait_settled(change)?;
                }
            }
            return Ok(id);
        }
    }

    /// Waits until the hardware is as `change` and all earlier ones want it.
    fn wait_settled(&self, change: u64) -> Result {
        self.wait_for(&self.settled, change, Sleep::Killable)
    }

    /// Changes a queue. Returns the change to wait for.
    ///
    /// # Errors
    ///
    /// `EINVAL`: bad values. `ENOENT`: no such queue. `ENOMEM`, `EIO`, `ENODEV`.
    pub(super) fn begin_update(
        self: &Arc<Self>,
        proc: u64,
        queue: u64,
        update: QueueUpdate,
    ) -> Result<Pending> {
        self.health().check()?;
        let keep = match update.keep {
            Some(keep) => Some((keep, RBTreeNodeReservation::new(GFP_KERNEL)?)),
            None => None,
        };
        let mut state = self.state.lock();
        let change = state.next_change();
        let rec = state.queue_mut(proc, queue)?;
        // A change that is not in force yet is built upon.
        let mut spec = rec.update.as_ref().map_or(rec.spec, |update| update.spec);
        spec.ring_base = update.ring_base.unwrap_or(spec.ring_base);
        spec.ring_size = update.ring_size.unwrap_or(spec.ring_size);
        spec.percent = update.percent.unwrap_or(spec.percent);
        spec.priority = update.priority.unwrap_or(spec.priority);
        spec.cu_mask = update.cu_mask.or(spec.cu_mask);
        let checked =
            check_spec(&spec).and_then(|()| MqdMem::check(self.platform.asic(), &spec));
        if let Err(error) = checked {
            // What the caller brought is dropped without the lock.
            drop(state);
            return Err(error);
        }
        let unused = match rec.update.take() {
            Some(old) if keep.is_none() => {
                rec.update = Some(PendingUpdate {
                    spec,
                    keep: old.keep,
                });
                None
            }
            old => {
                rec.update = Some(PendingUpdate { spec, keep });
                old
            }
        };
        let wait = rec.require_off(change);
        if !wait {
            state.settle()?;
        }
        self.kick(&state, change, wait);
        drop(state);
        // A keep-alive that never came into force.
        drop(unused);
        self.reap_later();
        Ok(match wait {
            true => Pending::Change(change),
            false => Pending::Done,
        })
    }

    /// Changes a queue and waits until the change is in force.
    ///
    /// # Errors
    ///
    /// As [`Machine::begin_update`] and [`Machine::wait`].
    pub(super) fn update_queue(
        self: &Arc<Self>,
        proc: u64,
        queue: u64,
        update: QueueUpdate,
    ) -> Result {
        match self.begin_update(proc, queue, update)? {
            Pending::Done => Ok(()),
            Pending::Change(change) => self.wait(change, Sleep::Killable),
        }
    }

    /// Dooms a queue.
    pub(super) fn doom_queue(self: &Arc<Self>, proc: u64, queue: u64, orphan: bool) -> Pending {
        let mut state = self.state.lock();
        let change = state.next_change();
        let Ok(rec) = state.queue_mut(proc, queue) else {
            return Pending::Done;
        };
        rec.doomed = true;
        rec.orphan = orphan;
        let wait = rec.require_off(change);
        self.doomed(state, change, wait)
    }

    /// Takes a queue off the hardware and forgets it. A queue that is not there is no error.
    ///
    /// # Errors
    ///
    /// As [`Machine::detach`].
    pub(super) fn destroy_queue(self: &Arc<Self>, proc: u64, queue: u64) -> Result {
        let result = match self.doom_queue(proc, queue, false) {
            Pending::Done => Ok(()),
            Pending::Change(change) => self.wait(change, Sleep::Killable),
        };
        let node = {
            let mut state = self.state.lock();
            let node = state.collect_queue(queue);
            if node.is_none() {
                state.disown_queue(proc, queue);
            }
            node
        };
        let done = node.is_some();
        // Frees descriptor, doorbell and mappings without any lock of the scheduler.
        drop(node);
        match result {
            Err(_) if done => Ok(()),
            result => result,
        }
    }

    // ---- eviction ----

    /// Notes a cause to keep the queues of a process from running. Returns the change to wait for.
    ///
    /// # Errors
    ///
    /// `ESRCH`, `EOVERFLOW`, `EIO`, `ENODEV`.
    pub(super) fn begin_evict(
        self: &Arc<Self>,
        proc: u64,
        cause: EvictCause,
    ) -> Result<Pending> {
        let health = self.health();
        let mut state = self.state.lock();
        let change = state.next_change();
        let rec = state.proc_mut(proc)?;
        let first = !rec.is_evicted();
        rec.evict(cause)?;
        if first {
            self.counters.evictions.inc();
        }
        let mut wait = false;
        for queue in rec.queues.values_mut() {
            wait |= queue.require_off(change);
        }
        if !wait {
            return Ok(Pending::Done);
        }
        // The cause is counted even if the hardware cannot follow, so that `restore` balances it.
        health.check()?;
        self.kick(&state, change, true);
        Ok(Pending::Change(change))
    }

    /// Takes the queues of a process off the hardware until [`Machine::restore`]. Allocates nothing.
    ///
    /// The cause counts even if an error is returned.
    ///
    /// # Errors
    ///
    /// As [`Machine::begin_evict`] and [`Machine::wait`].
    pub(super) fn evict(self: &Arc<Self>, proc: u64, cause: EvictCause) -> Result {
        match self.begin_evict(proc, cause)? {
            Pending::Done => Ok(()),
            Pending::Change(change) => self.wait(change, Sleep::Uninterruptible),
        }
    }

    /// Takes back one [`Machine::evict`]. When no cause is left the queues run again soon.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the cause does not hold. `ESRCH`, `EIO`, `ENODEV`.
    pub(super) fn restore(self: &Arc<Self>, proc: u64, cause: EvictCause) -> Result {
        let mut state = self.state.lock();
        let change = state.next_change();
        let rec = state.proc_mut(proc)?;
        if rec.restore(cause)? {
            self.counters.restores.inc();
            if rec.wanted_queues() > 0 {
                self.kick(&state, change, false);
            }
        }
        drop(state);
        self.health().check()
    }
}

/// Checks what no descriptor encoder checks.
fn check_spec(spec: &QueueSpec) -> Result {
    // MAP_QUEUES names the write pointer by dwords.
    if spec.priority > MAX_PRIORITY || spec.percent > 100 || !is_aligned(spec.wptr, 4) {
        return Err(EINVAL);
    }
    Ok(())
}

/// Checks what MAP_PROCESS names in units of 256 bytes.
fn check_trap(params: &ProcessParams) -> Result {
    if !is_aligned(params.tba, 256) || !is_aligned(params.tma, 256) {
        return Err(EINVAL);
    }
    Ok(())
}
