// SPDX-License-Identifier: GPL-2.0

//! The scheduler proper: numbered changes to the desired state, and the worker that applies them.

use kernel::{
    new_mutex,
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
        Mutex, //
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
    engine::Engine,
    health::{
        Health,
        ResetHook, //
    },
    mqd::SdmaMqds,
    params::Config,
    platform::Platform,
    runlist::ListBuffer,
    sdma::SdmaPool,
    state::{
        Load,
        State, //
    },
    stats::Counters,
    trace,
    watchdog::Voice, //
};
use crate::{
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
    pub(super) sdma_mqds: Arc<SdmaMqds>,
    /// Source of ids of processes and queues.
    next_id: Atomic<u64>,
    pub(super) health: Atomic<u32>,
    /// Suspended: the hardware is not touched. Changes under `engine`.
    pub(super) parked: Atomic<bool>,
    /// Wedged, and somebody was told or is being told, who may bring the scheduler back. Set under
    /// `engine`.
    pub(super) recovering: Atomic<bool>,
    /// Changes up to this one are applied.
    applied: Atomic<u64>,
    /// Hardware and desired state agreed after this change.
    settled: Atomic<u64>,
    /// Newest change that somebody waits for.
    urgent: Atomic<u64>,
    /// The watchdog's.
    pub(super) voice: Voice,
    /// The hardware was seen to mark a ring as empty.
    pub(super) marks_empty: Atomic<bool>,
    /// Held while the watchdog looks at the hardware; taken alone.
    #[pin]
    pub(super) looks: Mutex<()>,
    /// Wakes up on changes of `applied`, `settled`, `health`, `urgent` and `turn_taken`.
    #[pin]
    pub(super) events: WaitQueue,
    #[pin]
    pub(super) hook: Mutex<Option<Arc<dyn ResetHook>>>,
    /// Somebody has the [`Turn`].
    turn_taken: Atomic<bool>,
    #[pin]
    pub(super) engine: Mutex<Engine>,
    #[pin]
    pub(super) state: Mutex<State>,
    #[pin]
    converge: Work<Machine, 0>,
    #[pin]
    reap: Work<Machine, 1>,
    #[pin]
    tell: Work<Machine, 2>,
}

impl_has_work! {
    impl HasWork<Self, 0> for Machine { self.converge }
    impl HasWork<Self, 1> for Machine { self.reap }
    impl HasWork<Self, 2> for Machine { self.tell }
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

impl WorkItem<2> for Machine {
    type Pointer = Arc<Machine>;

    fn run(this: Arc<Machine>) {
        this.tell_hangs();
    }
}

/// The right to make a change, if changes are not collected: one at a time.
///
/// Not a mutex, because who waits for it may be killed.
pub(super) struct Turn<'a>(&'a Machine);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.turn_taken.store(false, Release);
        self.0.events.wake_all();
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
        let mut engine = Engine::new(&*platform, &config)?;
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
                parked: Atomic::new(false),
                recovering: Atomic::new(false),
                applied: Atomic::new(0),
                settled: Atomic::new(0),
                urgent: Atomic::new(0),
                voice: Voice::new(),
                marks_empty: Atomic::new(false),
                looks <- new_mutex!((), "rkfd_sched_looks"),
                events <- new_waitqueue!("rkfd_sched_events"),
                hook <- new_mutex!(None, "rkfd_sched_hook"),
                turn_taken: Atomic::new(false),
                engine <- new_mutex!(engine, "rkfd_sched_engine"),
                state <- new_mutex!(state, "rkfd_sched_state"),
                converge <- new_work!("rkfd_sched_converge"),
                reap <- new_work!("rkfd_sched_reap"),
                tell <- new_work!("rkfd_sched_tell"),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Figures of the desired state.
    pub(crate) fn load(&self) -> Load {
        self.state.lock().load()
    }

    pub(super) fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Relaxed)
    }

    /// Waits for the caller's turn, if changes are not collected. Never taken by evictions, which
    /// memory reclaim waits for.
    ///
    /// # Errors
    ///
    /// `EINTR`: the caller was killed. `EIO`, `ENODEV`: nobody makes changes any more.
    pub(super) fn turn(&self) -> Result<Option<Turn<'_>>> {
        if self.config.coalesce {
            return Ok(None);
        }
        let mut mine = false;
        loop {
            let woken = self.events.wait(Sleep::Killable, self.patience(), || {
                mine = !self.turn_taken.xchg(true, Full);
                mine || self.health() != Health::Running
            });
            if mine {
                return Ok(Some(Turn(self)));
            }
            self.health().check()?;
            if woken == Woken::Killed {
                return Err(EINTR);
            }
            // Others have their turns, each of which is bounded.
        }
    }

    /// Waits until everything is as the newest change wants it, if changes are not collected.
    ///
    /// # Errors
    ///
    /// As [`Machine::wait`].
    pub(super) fn end_turn(self: &Arc<Self>) -> Result {
        if self.config.coalesce {
            return Ok(());
        }
        let newest = {
            let state = self.state.lock();
            let newest = state.newest_change();
            // Others may have made it, out of turn, and a change that asks nothing of the hardware called
            // nobody.
            if self.settled.load(Acquire) < newest {
                let _ = self.call_worker(&state);
            }
            newest
        };
        self.wait_settled(newest)
    }

    /// Asks the worker to run. `urgent`: somebody waits, or will, for `change`.
    pub(super) fn kick(self: &Arc<Self>, state: &State, change: u64, urgent: bool) {
        self.counters.changes.inc();
        if urgent {
            // Changes are numbered under the state lock, which the caller holds, so they only grow.
            self.urgent.store(change, Release);
            self.events.wake_all();
        }
        if !self.call_worker(state) {
            self.counters.coalesced.inc();
        }
    }

    /// Has the worker look at the state. Returns false if it will anyway: it is queued, and has not
    /// looked yet.
    fn call_worker(self: &Arc<Self>, state: &State) -> bool {
        match &state.queue {
            Some(queue) => queue.enqueue::<Arc<Self>, 0>(self.clone()).is_ok(),
            // Nobody but the owner drives it.
            None => true,
        }
    }

    /// Moves the hardware to the desired state. Returns when both agree or the scheduler is wedged.
    pub(super) fn converge(self: &Arc<Self>) {
        let result = {
            let mut engine = self.engine.lock();
            if self.health() != Health::Running || self.is_parked() {
                return;
            }
            // Who gets the engine next must find it out of service.
            engine
                .converge(self)
                .inspect_err(|failure| self.mark_failed(failure))
        };
        self.hand_off();
        if let Err(failure) = result {
            self.report_failure(&failure);
        }
    }

    /// Tells the hook of queues that hung, without a lock.
    ///
    /// Not for the worker that applies changes: who listens takes locks under which others allocate
    /// memory, and so may wait for an eviction, which waits for that worker.
    fn tell_hangs(&self) {
        let next = || self.state.lock().next_hang();
        while let Some((pasid, doorbell)) = next() {
            let hook = self.hook.lock().clone();
            if let Some(hook) = hook {
                hook.queue_hung(pasid, doorbell);
            }
        }
    }

    /// Leaves to other work items what the worker that applies changes must not do: to free what
    /// nobody needs any more, and to tell of queues that hung. Both call foreign code.
    pub(super) fn hand_off(self: &Arc<Self>) {
        let state = self.state.lock();
        let (garbage, untold) = (state.has_garbage(), state.has_untold());
        if let Some(queue) = &state.queue {
            // Already queued is fine: it takes what is there when it runs.
            if garbage {
                let _ = queue.enqueue::<Arc<Self>, 1>(self.clone());
            }
            if untold {
                let _ = queue.enqueue::<Arc<Self>, 2>(self.clone());
            }
            return;
        }
        // Nobody but the owner drives it, and nobody else waits.
        let driven = !state.stopping;
        drop(state);
        if driven && untold {
            self.tell_hangs();
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
        let _ = self.events.wait_us(self.config.gather_us.into(), || {
            self.urgent.load(Acquire) > applied || self.health() != Health::Running
        });
    }

    /// Waits until the hardware is as `change` and all earlier ones want it.
    ///
    /// # Errors
    ///
    /// As [`Machine::wait`].
    pub(super) fn wait_settled(&self, change: u64) -> Result {
        self.wait_for(&self.settled, change, Sleep::Killable)
    }

    /// Waits until `change` is applied.
    ///
    /// # Errors
    ///
    /// - `EIO`: the scheduler is wedged. `ENODEV`: it is gone.
    /// - `EINTR`: the caller was killed (only with [`Sleep::Killable`]).
    /// - `ETIMEDOUT`: the worker does not come round; should not happen, it is bounded itself, see
    ///   [`Config::converge_ms`].
    pub(super) fn wait(&self, change: u64, sleep: Sleep) -> Result {
        self.wait_for(&self.applied, change, sleep)
    }

    /// Jiffies within which the worker has applied a change or given up.
    fn patience(&self) -> Jiffies {
        msecs_to_jiffies(self.config.converge_ms()).max(1)
    }

    /// As [`Machine::wait`], by a caller who may be killed, except that a scheduler which somebody is bringing
    /// back is waited for: the queues of those who did no wrong come through a reset, and a change of one
    /// comes into force by it.
    pub(super) fn wait_through_reset(&self, change: u64) -> Result {
        let reached = || self.applied.load(Acquire) >= change;
        let out = || self.health() != Health::Running && !self.recovering.load(Acquire);
        let woken = self
            .events
            .wait(Sleep::Killable, self.patience(), || reached() || out());
        self.outcome(reached(), woken)
    }

    fn wait_for(&self, reached: &Atomic<u64>, change: u64, sleep: Sleep) -> Result {
        let woken = self.events.wait(sleep, self.patience(), || {
            reached.load(Acquire) >= change || self.health() != Health::Running
        });
        self.outcome(reached.load(Acquire) >= change, woken)
    }

    /// What a wait comes to.
    fn outcome(&self, reached: bool, woken: Woken) -> Result {
        if reached {
            return Ok(());
        }
        self.health().check()?;
        match woken {
            Woken::Killed => Err(EINTR),
            Woken::TimedOut | Woken::Met => Err(ETIMEDOUT),
        }
    }

    /// Takes everything off the hardware and refuses further changes. Idempotent; bounded.
    ///
    /// Afterwards the worker is gone. If the firmware did not agree, what the hardware may still use
    /// is kept until [`Machine::release`]; else records are freed as their owners let go of them.
    pub(super) fn shutdown(self: &Arc<Self>) {
        let queue = {
            let mut state = self.state.lock();
            if state.stopping {
                return;
            }
            state.stopping = true;
            state.queue.take()
        };
        // The worker shall not wait for further additions.
        self.urgent.store(u64::MAX, Release);
        self.events.wake_all();
        // Finishes what runs; nothing can be queued any more.
        drop(queue);
        let result = {
            let mut engine = self.engine.lock();
            match self.health() {
                // Nothing is on the hardware, and it must not be touched.
                Health::Running if self.is_parked() => Ok(()),
                Health::Running => engine.stop(self),
                Health::Gone => Ok(()),
                // Whatever went wrong was reported then.
                Health::Wedged => {
                    self.set_reset_hook(None);
                    self.stays_out();
                    return;
                }
            }
        };
        self.set_reset_hook(None);
        match result {
            Ok(()) => self.release(),
            Err(failure) => {
                self.platform
                    .complain(fmt!("shut down without the firmware's consent: {failure}"));
                let mut state = self.state.lock();
                state.lose();
                self.health.store(Health::Wedged.raw(), Release);
                drop(state);
                self.events.wake_all();
            }
        }
    }

    /// Frees what the hardware may have used: nothing runs on it any more.
    ///
    /// The end of a [`Machine::shutdown`] to which the firmware agreed. If it did not, whoever stops
    /// the hardware calls this afterwards. Idempotent.
    pub(super) fn release(&self) {
        let garbage = {
            let mut state = self.state.lock();
            state.all_stopped();
            let applied = state.settle();
            self.health.store(Health::Gone.raw(), Release);
            // Without the device no descriptor can be written, and none is needed.
            self.publish(applied.unwrap_or_else(|_| state.newest_change()));
            state.take_garbage()
        };
        self.events.wake_all();
        drop(garbage);
    }

    /// Takes the scheduler into service again after the device was reset: nothing runs on it and
    /// the HIQ is not connected.
    ///
    /// # Errors
    ///
    /// As [`Machine::new`]; the scheduler stays wedged then. `ENODEV` if it is gone, `EBUSY` if the
    /// hardware must not be touched now, because it is suspended.
    pub(crate) fn after_reset(self: &Arc<Self>) -> Result {
        {
            let mut engine = self.engine.lock();
            if self.health() == Health::Gone {
                return Err(ENODEV);
            }
            if self.is_parked() {
                return Err(EBUSY);
            }
            self.restart(&mut engine)?;
        }
        self.hand_off();
        Ok(())
    }

    /// Connects `engine` to hardware on which nothing runs, and goes on.
    pub(super) fn restart(self: &Arc<Self>, engine: &mut Engine) -> Result {
        engine.forget()?;
        engine.start(&*self.platform, &self.config)?;
        trace::all_off(self);
        let mut state = self.state.lock();
        // Somebody has shut it down meanwhile, and will stop the hardware.
        if state.stopping {
            return Err(ENODEV);
        }
        state.all_stopped();
        let applied = state.settle()?;
        // In this order: it counts as out of service for nobody on the way.
        self.health.store(Health::Running.raw(), Release);
        self.recovering.store(false, Release);
        self.publish(applied);
        let change = state.next_change();
        self.kick(&state, change, false);
        drop(state);
        self.events.wake_all();
        Ok(())
    }

    /// Sends QUERY_STATUS alone and waits for its fence.
    ///
    /// # Errors
    ///
    /// As [`Machine::wait`]; `ETIMEDOUT` if the firmware does not answer.
    #[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "seen by tests"))]
    pub(super) fn ping(&self) -> Result {
        self.health().check()?;
        self.engine.lock().handshake(&*self.platform, &self.config)
    }
}
