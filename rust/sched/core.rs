// SPDX-License-Identifier: GPL-2.0

//! What every part of a scheduler works on: the device, the desired state, how far its changes are applied,
//! and the waits for them.
//!
//! The back ends, the changes and the observers all take a [`SchedCore`]; it knows none of them.

use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex,
        SpinLock, //
    },
    time::{
        msecs_to_jiffies,
        Jiffies, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};

use super::{
    config::Config,
    counters::Counters,
    desired::{
        ib::ListBuffer,
        state::{
            Load,
            Refusal,
            State, //
        }, //
    },
    failure::{
        Failure,
        ResetHook, //
    },
    lifecycle::{
        Event,
        Lifecycle, //
    },
    mqd::SdmaMqds,
    notes::Notes,
    platform::Platform,
    sdma_ids::SdmaPool, //
};
use crate::kapi::{
    waitqueue::{
        new_waitqueue,
        Sleep,
        WaitQueue,
        Woken, //
    },
    workqueue::OwnedQueue, //
};

/// What the parts of a scheduler share.
#[pin_data]
pub(crate) struct SchedCore {
    pub(super) platform: Arc<dyn Platform>,
    pub(super) config: Config,
    pub(super) counters: Counters,
    pub(super) sdma: Arc<SdmaPool>,
    pub(super) sdma_mqds: Arc<SdmaMqds>,
    /// Source of ids of processes and queues.
    next_id: Atomic<u64>,
    /// A [`Lifecycle`]; changes under `state`.
    life: Atomic<u32>,
    /// Changes up to this one are applied.
    applied: Atomic<u64>,
    /// Hardware and desired state agreed after this change.
    settled: Atomic<u64>,
    /// Newest change that has a waiter.
    urgent: Atomic<u64>,
    /// Held while the watchdog reads the hardware's slots.
    #[pin]
    pub(super) watchdog_lock: Mutex<()>,
    /// Wakes up on changes of `applied`, `settled`, `life`, `urgent` and `change_in_progress`.
    #[pin]
    events: WaitQueue,
    #[pin]
    hook: Mutex<Option<Arc<dyn ResetHook>>>,
    /// A [`SerializedChange`] exists.
    change_in_progress: Atomic<bool>,
    #[pin]
    pub(super) state: Mutex<State>,
    /// Left by the interrupt thread.
    #[pin]
    pub(super) notes: SpinLock<Notes>,
    #[pin]
    reap: Work<SchedCore, 1>,
    #[pin]
    report: Work<SchedCore, 2>,
}

impl_has_work! {
    impl HasWork<Self, 1> for SchedCore { self.reap }
    impl HasWork<Self, 2> for SchedCore { self.report }
}

impl WorkItem<1> for SchedCore {
    type Pointer = Arc<SchedCore>;

    fn run(this: Arc<SchedCore>) {
        let garbage = this.state.lock().take_garbage();
        // Frees without any lock of the scheduler.
        drop(garbage);
    }
}

impl WorkItem<2> for SchedCore {
    type Pointer = Arc<SchedCore>;

    fn run(this: Arc<SchedCore>) {
        this.report_hangs();
    }
}

/// The right to make a change, if changes are not collected: one at a time.
///
/// Not a mutex, because a task that waits for it may be killed.
pub(super) struct SerializedChange<'a>(&'a SchedCore);

impl Drop for SerializedChange<'_> {
    fn drop(&mut self) {
        self.0.change_in_progress.store(false, Release);
        self.0.events.wake_all();
    }
}

impl SchedCore {
    /// The core of a scheduler without processes. Its worker runs on `queue`; without one its owner drives it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENOSPC`, `ENODEV`.
    pub(super) fn new(
        platform: Arc<dyn Platform>,
        config: Config,
        queue: Option<OwnedQueue>,
    ) -> Result<Arc<Self>> {
        let sdma = SdmaPool::new(platform.asic().sdma_engines())?;
        let sdma_mqds = SdmaMqds::new(&*platform)?;
        let ib = ListBuffer::new(&*platform, ListBuffer::FIRST_DWORDS)?;
        let queue = match queue {
            Some(queue) => Some(Arc::new(queue, GFP_KERNEL)?),
            None => None,
        };
        let notes = Notes::new(queue.clone());
        let state = State::new(ib, queue);
        Arc::pin_init(
            try_pin_init!(Self {
                platform,
                config,
                counters: Counters::new(),
                sdma,
                sdma_mqds,
                next_id: Atomic::new(1),
                life: Atomic::new(Lifecycle::Running.raw()),
                applied: Atomic::new(0),
                settled: Atomic::new(0),
                urgent: Atomic::new(0),
                watchdog_lock <- new_mutex!((), "rkfd_sched_watchdog"),
                events <- new_waitqueue!("rkfd_sched_events"),
                hook <- new_mutex!(None, "rkfd_sched_hook"),
                change_in_progress: Atomic::new(false),
                state <- new_mutex!(state, "rkfd_sched_state"),
                notes <- new_spinlock!(notes, "rkfd_sched_notes"),
                reap <- new_work!("rkfd_sched_reap"),
                report <- new_work!("rkfd_sched_report"),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Figures of the desired state.
    pub(crate) fn load(&self) -> Load {
        self.state.lock().load()
    }

    /// An id that no process and no queue had before.
    pub(super) fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Relaxed)
    }

    /// Where the scheduler stands.
    pub(crate) fn life(&self) -> Lifecycle {
        Lifecycle::from_raw(self.life.load(Acquire))
    }

    /// Takes the life on by `event`, and returns where the scheduler stood before; `None` if the event must
    /// not happen now. A caller that depends on the life looks again.
    pub(super) fn advance(&self, _state: &mut State, event: Event) -> Option<Lifecycle> {
        // The borrow shows that the state lock is held, so that nothing else changes it meanwhile.
        let before = self.life();
        self.life.store(before.after(event)?.raw(), Release);
        self.events.wake_all();
        Some(before)
    }

    /// Whether changes are taken.
    ///
    /// # Errors
    ///
    /// `EIO`: the hardware does not follow. `ENODEV`: it is gone.
    pub(super) fn check(&self) -> Result {
        match self.life() {
            life if life.takes_changes() => Ok(()),
            life if life.is_out_of_service() => Err(EIO),
            _ => Err(ENODEV),
        }
    }

    /// The hook to call when the hardware does not follow.
    pub(crate) fn set_reset_hook(&self, hook: Option<Arc<dyn ResetHook>>) {
        let old = core::mem::replace(&mut *self.hook.lock(), hook);
        drop(old);
    }

    /// The hook to call when the hardware does not follow.
    pub(super) fn reset_hook(&self) -> Option<Arc<dyn ResetHook>> {
        self.hook.lock().clone()
    }

    /// Stops using hardware that does not follow: sleepers wake up, changes are refused. Called with the
    /// back end locked; the report comes after it, without.
    pub(super) fn mark_failed(&self, failure: &Failure) {
        let reset = self.hook.lock().is_some();
        let mut state = self.state.lock();
        match failure.is_gone() {
            // Nothing runs on a device that is not there.
            true => {
                state.all_stopped();
                // No descriptor can be written any more, and none is needed.
                let _ = state.settle();
                self.advance(&mut state, Event::Released);
            }
            false => {
                state.mark_lost();
                self.advance(&mut state, Event::Failed { reset });
            }
        }
    }

    /// Ends the waits for a reset: there will be none.
    pub(super) fn give_up(&self) {
        self.advance(&mut self.state.lock(), Event::Abandoned);
    }

    /// A refusal of a queue to be preempted that is seen now.
    pub(super) fn refusal(&self) -> Refusal {
        Refusal {
            now: self.platform.now(),
            window: self.config.cycle_us(),
        }
    }

    /// Waits until no other change is under way, if changes are not collected. Never called by evictions,
    /// which memory reclaim waits for.
    ///
    /// # Errors
    ///
    /// `EINTR`: the caller was killed. `EIO`, `ENODEV`: no changes are taken any more.
    pub(super) fn begin_serialized(&self) -> Result<Option<SerializedChange<'_>>> {
        if self.config.coalesce {
            return Ok(None);
        }
        let mut mine = false;
        loop {
            let woken = self.events.wait(Sleep::Killable, self.timeout(), || {
                mine = !self.change_in_progress.xchg(true, Full);
                mine || !self.life().takes_changes()
            });
            if mine {
                return Ok(Some(SerializedChange(self)));
            }
            self.check()?;
            if woken == Woken::Killed {
                return Err(EINTR);
            }
            // Others make theirs, each of which is bounded.
        }
    }

    /// Marks `change` as one that has a waiter.
    pub(super) fn mark_urgent(&self, change: u64) {
        self.urgent.store(change, Release);
        self.events.wake_all();
    }

    /// Reports barred processes.
    pub(super) fn report_barred(&self) {
        let next = || self.state.lock().next_barred();
        while let Some((pid, pasid)) = next() {
            self.platform.warn(fmt!(
                "queues of pid {pid} (pasid {pasid}) refused preemption twice: none of its queues runs any more, and it gets no new ones"
            ));
        }
    }

    /// Reports barred processes, and calls the hook for queues that hung or stopped, without a lock.
    ///
    /// Not for the worker that applies changes: the hook takes locks under which memory is allocated, and so
    /// may wait for an eviction, which waits for that worker.
    pub(super) fn report_hangs(&self) {
        self.report_barred();
        let next = || self.state.lock().next_hang();
        while let Some((pasid, doorbell)) = next() {
            if let Some(hook) = self.reset_hook() {
                hook.queue_hung(pasid, doorbell);
            }
        }
        let next = || self.state.lock().next_halt();
        while let Some(halt) = next() {
            if let Some(hook) = self.reset_hook() {
                hook.queue_halted(&halt);
            }
        }
    }

    /// Leaves to other work items what the worker that applies changes must not do: to free what
    /// is not needed any more, and to report queues that hung or stopped. Both call foreign code.
    pub(super) fn hand_off(self: &Arc<Self>) {
        let state = self.state.lock();
        let (garbage, hangs) = (state.has_garbage(), state.has_pending_report());
        if let Some(queue) = &state.queue {
            // Already queued is fine: it takes what is there when it runs.
            if garbage {
                let _ = queue.enqueue::<Arc<Self>, 1>(self.clone());
            }
            if hangs {
                let _ = queue.enqueue::<Arc<Self>, 2>(self.clone());
            }
            return;
        }
        // Its owner drives it, and is the only one to wait.
        let driven = !self.life().is_shut_down();
        drop(state);
        if driven && hangs {
            self.report_hangs();
        }
    }

    /// Wakes waiters for changes up to `applied`.
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

    /// Whether hardware and desired state agreed after `change`.
    pub(super) fn is_settled(&self, change: u64) -> bool {
        self.settled.load(Acquire) >= change
    }

    /// Waits a moment for further additions, or until a change has a waiter.
    pub(super) fn gather(&self) {
        let applied = self.applied.load(Relaxed);
        let _ = self.events.wait_us(self.config.gather_us.into(), || {
            self.urgent.load(Acquire) > applied || !self.life().takes_changes()
        });
    }

    /// Waits until the hardware is as `change` and all earlier ones want it.
    ///
    /// # Errors
    ///
    /// As [`SchedCore::wait`].
    pub(super) fn wait_settled(&self, change: u64) -> Result {
        self.wait_for(&self.settled, change, Sleep::Killable)
    }

    /// Waits until `change` is applied.
    ///
    /// # Errors
    ///
    /// - `EIO`: the hardware does not follow. `ENODEV`: it is gone.
    /// - `EINTR`: the caller was killed (only with [`Sleep::Killable`]).
    /// - `ETIMEDOUT`: the worker does not come round; should not happen, it is bounded itself, see
    ///   [`Config::converge_ms`].
    pub(super) fn wait(&self, change: u64, sleep: Sleep) -> Result {
        self.wait_for(&self.applied, change, sleep)
    }

    /// Jiffies within which the worker has applied a change or given up.
    fn timeout(&self) -> Jiffies {
        msecs_to_jiffies(self.config.converge_ms()).max(1)
    }

    /// As [`SchedCore::wait`], by a caller that may be killed, except that the wait goes on while the hardware is
    /// being reset: queues that are not at fault come through a reset, and a change of one
    /// comes into force by it.
    pub(super) fn wait_through_reset(&self, change: u64) -> Result {
        let reached = || self.applied.load(Acquire) >= change;
        let out = || {
            let life = self.life();
            !life.takes_changes() && life != Lifecycle::Recovering
        };
        let woken = self
            .events
            .wait(Sleep::Killable, self.timeout(), || reached() || out());
        self.outcome(reached(), woken)
    }

    /// Waits while the hardware is being reset, as changes are refused until it is back. Whether they are taken then is for
    /// [`Self::check`] to say.
    ///
    /// # Errors
    ///
    /// `EINTR`: the caller was killed.
    pub(super) fn await_reset(&self) -> Result {
        let over = || self.life() != Lifecycle::Recovering;
        let woken = self.events.wait(Sleep::Killable, self.timeout(), over);
        if woken == Woken::Killed && !over() {
            return Err(EINTR);
        }
        Ok(())
    }

    fn wait_for(&self, reached: &Atomic<u64>, change: u64, sleep: Sleep) -> Result {
        let woken = self.events.wait(sleep, self.timeout(), || {
            reached.load(Acquire) >= change || !self.life().takes_changes()
        });
        self.outcome(reached.load(Acquire) >= change, woken)
    }

    /// What a wait comes to.
    fn outcome(&self, reached: bool, woken: Woken) -> Result {
        if reached {
            return Ok(());
        }
        self.check()?;
        match woken {
            Woken::Killed => Err(EINTR),
            Woken::TimedOut | Woken::Met => Err(ETIMEDOUT),
        }
    }
}
