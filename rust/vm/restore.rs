// SPDX-License-Identifier: GPL-2.0

//! Queues that stop because memory moves, and run again behind it.
//!
//! An address space is stopped once, however many of its buffers move, and a worker of its own restores it soon: brings back what
//! there is free room for, writes the entries, and lets the queues run. An address space without queues is handled alike,
//! for its queues may be made meanwhile.
//!
//! # Locks
//!
//! [`Residency::turn`](super::evict::Residency::turn), then the reservations of objects, then
//! [`Eviction`](super::standing::Eviction). Under the latter only the scheduler is called, which allocates nothing and waits
//! for the hardware with a bound.

use kernel::{
    impl_has_work,
    prelude::*,
    sync::{
        atomic::{
            Full,
            Relaxed, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta,
        Instant, //
    },
    workqueue::WorkItem, //
};

use super::{
    bo::{
        Bo,
        Memory, //
    },
    evict::Residency,
    sort::sort_by_key,
    standing::{
        Standing,
        VmQueues, //
    },
    victims::LEAST_RUN,
    Vm,
    MAX_ATTEMPTS, //
};
use crate::{
    gpu::{
        Gpu,
        Hw, //
    },
    kapi::{
        drm_file::DrmDevice,
        exec::{
            with_locked,
            Locking,
            Wait, //
        },
        gem::Object,
        log::dev_limited,
        resv::Resv,
        workqueue::OwnedQueue, //
    },
};

/// Where a restore found the memory of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Where it belongs.
    Home,
    /// Some is in system memory, and entries show it there.
    Displaced,
    /// As before: nothing is stopped, and there is no room.
    Waiting,
}

fn is_displaced(object: &Object<Memory>) -> bool {
    object.movable().is_some_and(|movable| !movable.is_home())
}

/// So long more buffers of a stopped address space may be moved before it is restored; twice as long after each failure.
const SETTLE: Delta = Delta::from_millis(2);
/// The pause does not grow any more after so many failures.
const MAX_DOUBLINGS: u32 = 8;

impl_has_work! {
    impl HasWork<Self> for Vm { self.restore }
}

impl WorkItem for Vm {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let pause = {
            let eviction = this.eviction.lock();
            let settle = SETTLE * (1i64 << eviction.failures.min(MAX_DOUBLINGS));
            match eviction.restored {
                // What runs is left alone for a while before it is stopped to be brought back.
                Some(since) if !eviction.stopped && since.elapsed() < LEAST_RUN => {
                    settle + (LEAST_RUN - since.elapsed())
                }
                _ => settle,
            }
        };
        fsleep(pause);
        if let Err(error) = this.restore_now() {
            let failures = {
                let mut eviction = this.eviction.lock();
                eviction.failures = eviction.failures.saturating_add(1);
                eviction.failures
            };
            dev_limited!(
                dev_warn,
                this.gpu.dev(),
                "PASID {}: memory is not restored yet ({} times): {:?}\n",
                this.pasid(),
                failures,
                error
            );
            this.enqueue_restore();
        }
    }
}

impl Vm {
    /// To be called before the first address space of `gpu` is claimed, whose files are those of `dev`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn prepare(gpu: &Gpu, dev: &DrmDevice) -> Result {
        drop(Residency::of(gpu, dev)?);
        Ok(())
    }

    /// Lets its memory be evicted from now on; ended by [`Vm::close`]. Again is nothing, unless it failed before.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn join(self: &Arc<Self>) -> Result {
        if self.joined.load(Relaxed) {
            return Ok(());
        }
        let Some(residency) = Residency::known(&self.gpu) else {
            return Ok(());
        };
        // First: what stops the queues finds where they are restored.
        if self.restorer.lock().is_none() {
            // Memory reclaim does not wait for it. Nor has it a thread of its own: a process that is being killed could
            // not make one, of which the kernel reports an error.
            let queue = OwnedQueue::unhurried(c"rkfd-restore", 1)?;
            let mut restorer = self.restorer.lock();
            let unused = if restorer.is_some() {
                Some(queue)
            } else {
                restorer.replace(queue)
            };
            drop(restorer);
            drop(unused);
        }
        residency.join(self)?;
        self.joined.store(true, Relaxed);
        Ok(())
    }

    /// Ends [`Self::join`]. Waits for the worker.
    pub(super) fn leave(&self) {
        if let Some(residency) = Residency::known(&self.gpu) {
            residency.leave(self);
        }
        let queue = self.restorer.lock().take();
        drop(queue);
        let queues = self.eviction.lock().queues.take();
        drop(queues);
    }

    /// Says which queues use the address space, before the first one runs. While its memory moves they are stopped at once.
    pub(crate) fn set_queues(&self, queues: Arc<dyn VmQueues>) {
        let mut eviction = self.eviction.lock();
        if eviction.stopped {
            // There are none yet that might run on.
            let _ = queues.stop();
        }
        let old = eviction.queues.replace(queues);
        drop(eviction);
        drop(old);
    }

    /// Whether queues have to be stopped before memory of it moves.
    pub(super) fn standing(&self) -> Standing {
        let eviction = self.eviction.lock();
        match (&eviction.queues, eviction.restored) {
            // As if they had just been restored, which will be soon.
            _ if eviction.running_on => Standing::Running(Delta::ZERO),
            _ if eviction.stopped => Standing::Idle,
            (None, _) => Standing::Idle,
            (Some(_), Some(since)) => Standing::Running(since.elapsed()),
            // They were never stopped: none have run longer.
            (Some(_), None) => Standing::Running(Delta::from_millis(i64::from(i32::MAX))),
        }
    }

    /// Stops the queues until the worker restores the address space, which is seen to.
    ///
    /// # Errors
    ///
    /// Those of [`VmQueues::stop`]; `EBUSY`: that failed before. The queues may still run: nothing is moved. They are
    /// restored all the same.
    pub(super) fn stop_for_move(self: &Arc<Self>) -> Result {
        let mut eviction = self.eviction.lock();
        let mut result = Ok(());
        if eviction.running_on {
            result = Err(EBUSY);
        } else if !core::mem::replace(&mut eviction.stopped, true) {
            if let Some(queues) = &eviction.queues {
                result = queues.stop();
            }
            eviction.running_on = result.is_err();
        }
        drop(eviction);
        self.enqueue_restore();
        result
    }

    /// Memory was mapped, whose reservations the caller has: notes whether some of it is displaced, and has the worker see
    /// whether there is room for it.
    pub(super) fn note_displaced<'a>(
        self: &Arc<Self>,
        mut buffers: impl Iterator<Item = &'a Arc<Bo>>,
    ) {
        // After it was listed: what a restore does not find there is noted after that has begun, see `restore_in_turn`.
        if buffers.any(|bo| is_displaced(bo.object())) {
            let mut eviction = self.eviction.lock();
            eviction.mapped = true;
            self.displaced.store(true, Relaxed);
            drop(eviction);
            self.enqueue_restore();
        }
    }

    /// There is room: what was displaced may come back.
    pub(super) fn restore_if_displaced(self: &Arc<Self>) {
        if self.displaced.load(Relaxed) {
            self.enqueue_restore();
        }
    }

    /// Brings back what only the process that made it can have charged to its control group: to be called by the processes
    /// that map memory here, whenever there may be room in the group. Nothing where the workers can do that. The caller has
    /// no lock.
    ///
    /// What cannot be brought back stays where it is, which serves as well.
    pub(crate) fn bring_home(self: &Arc<Self>) {
        if !self.owed.load(Relaxed) {
            return;
        }
        let eviction = self.eviction.lock();
        let left_alone = eviction
            .restored
            .is_some_and(|since| since.elapsed() < LEAST_RUN);
        drop(eviction);
        // As the worker leaves queues alone that have just been restored; a later call does it.
        if left_alone {
            return;
        }
        self.owed.store(false, Relaxed);
        if let Err(error) = self.restore_now() {
            pr_debug!("PASID {}: not restored: {:?}\n", self.pasid(), error);
            self.owed.store(true, Relaxed);
        }
    }

    fn enqueue_restore(self: &Arc<Self>) {
        if let Some(queue) = &*self.restorer.lock() {
            // It may be waiting already.
            let _ = queue.enqueue::<_, 0>(self.clone());
        }
    }

    /// The objects that move and are mapped here, each once.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EAGAIN`: others map more all the time.
    fn movable_objects(&self) -> Result<KVVec<Object<Memory>>> {
        let mut objects: KVVec<Object<Memory>> = KVVec::with_capacity(16, GFP_KERNEL)?;
        let mut attempts = 0..MAX_ATTEMPTS;
        loop {
            let mut missing = 0;
            self.for_each_movable(|bo| {
                if objects.push_within_capacity(bo.object().clone()).is_err() {
                    missing += 1;
                }
            });
            if missing == 0 {
                break;
            }
            attempts.next().ok_or(EAGAIN)?;
            let wanted = objects.len() + missing;
            objects.clear();
            // Some more, for what is mapped meanwhile.
            objects.reserve(wanted + wanted / 4, GFP_KERNEL)?;
        }
        let address = |object: &Object<Memory>| core::ptr::from_ref::<Memory>(object).addr();
        sort_by_key(&mut objects, address);
        let mut last = None;
        objects.retain(|object| last.replace(address(object)) != Some(address(object)));
        Ok(objects)
    }

    /// Brings back what there is room for, writes the entries that are missing, and lets the queues run.
    ///
    /// # Errors
    ///
    /// What was stopped stays so. Those of [`Vm::revive`]; `ENOMEM`.
    fn restore_now(self: &Arc<Self>) -> Result {
        let hw = match self.gpu.enter() {
            Ok(hw) => hw,
            // Nothing runs on it.
            Err(_) => return Ok(()),
        };
        let Some(residency) = Residency::known(&self.gpu) else {
            return Ok(());
        };
        let _turn = residency.turn().lock();
        self.restore_in_turn(&residency, &hw, || ())
    }

    /// As [`Self::restore_now`]; the caller has [`Residency::turn`]. `meanwhile` is called when the reservations are given
    /// back.
    fn restore_in_turn(
        self: &Arc<Self>,
        residency: &Residency,
        hw: &Hw,
        meanwhile: impl FnOnce(),
    ) -> Result {
        // Pairs with the barrier in `Gpu::room_is_back`: room is found below, or what gives it back finds this.
        self.displaced.xchg(true, Full);
        if self.gpu.is_asleep() {
            // What wakes it has held the turn before, and finds this.
            return Ok(());
        }
        // Before the objects are looked up: what is listed after that is noted after this. The lock of the ranges orders
        // the two.
        self.eviction.lock().mapped = false;
        let found = self.restore_objects(residency, hw);
        meanwhile();
        let found = found?;
        let mut eviction = self.eviction.lock();
        if found == Found::Home && !eviction.mapped {
            self.displaced.store(false, Relaxed);
        }
        if found == Found::Waiting {
            return Ok(());
        }
        eviction.failures = 0;
        eviction.running_on = false;
        if core::mem::replace(&mut eviction.stopped, false) {
            eviction.restored = Some(Instant::now());
            if let Some(queues) = &eviction.queues {
                queues.resume();
            }
        }
        Ok(())
    }

    /// Brings back what there is room for, and writes missing entries. No other thread moves memory meanwhile.
    ///
    /// # Errors
    ///
    /// Those of [`Self::restore_now`].
    fn restore_objects(self: &Arc<Self>, residency: &Residency, hw: &Hw) -> Result<Found> {
        let objects = self.movable_objects()?;
        let stopped = self.eviction.lock().stopped;
        if !stopped && !objects.iter().any(|object| self.has_room_for(object)) {
            return Ok(match objects.iter().any(is_displaced) {
                true => Found::Waiting,
                false => Found::Home,
            });
        }
        let room = u32::try_from(objects.len()).unwrap_or(0);
        with_locked(
            Wait::Uninterruptible,
            room,
            |locking: &mut Locking<'_, Memory>| {
                for object in &objects {
                    locking.lock(object)?;
                }
                Ok(())
            },
            |locked| -> Result<Found> {
                let mut found = Found::Home;
                for object in &objects {
                    let resv = locked.resv(object).ok_or(EINVAL)?;
                    if self.has_room_for(object) {
                        self.bring_back(residency, hw, object, resv);
                    }
                    if is_displaced(object) {
                        found = Found::Displaced;
                    }
                    self.revive(resv)?;
                }
                Ok(found)
            },
        )?
    }

    /// What the worker does, now.
    #[cfg(rkfd_kunit)]
    pub(crate) fn restore_in_test(self: &Arc<Self>) -> Result {
        self.restore_now()
    }

    /// As [`Self::restore_in_test`]; `meanwhile` runs when the memory is restored, before that is noted. Returns whether
    /// some is noted as displaced then.
    #[cfg(rkfd_kunit)]
    pub(crate) fn restored_in_test(
        self: &Arc<Self>,
        meanwhile: impl FnOnce() -> Result,
    ) -> Result<bool> {
        let hw = self.gpu.enter()?;
        let residency = Residency::known(&self.gpu).ok_or(ENOENT)?;
        let _turn = residency.turn().lock();
        let mut result = Ok(());
        self.restore_in_turn(&residency, &hw, || result = meanwhile())?;
        result?;
        Ok(self.displaced.load(Relaxed))
    }

    /// Whether the object is displaced, and there is free room for it.
    fn has_room_for(&self, object: &Object<Memory>) -> bool {
        let budget = self.gpu.vram_budget();
        object.movable().is_some_and(|movable| {
            !movable.is_home() && movable.size() <= budget.limit().saturating_sub(budget.used())
        })
    }

    /// Brings an object back. Where that fails, it stays where it is, which serves as well.
    fn bring_back(
        &self,
        residency: &Residency,
        hw: &Hw,
        object: &Object<Memory>,
        resv: Resv<'_, Memory>,
    ) {
        let Some(movable) = object.movable() else {
            return;
        };
        // First: free VRAM may be in pieces that are too small, and then no queues are stopped.
        let moved = movable.find_room(&self.gpu, hw).and_then(|room| {
            let vacant = residency.vacate(resv)?;
            movable.move_in(&self.gpu, hw, resv, &vacant, room)
        });
        match moved {
            Ok(()) => {
                movable.note_use();
                object.touch();
            }
            Err(error) => {
                if error == EDQUOT {
                    self.owed.store(true, Relaxed);
                }
                pr_debug!(
                    "PASID {}: memory stays displaced: {:?}\n",
                    self.pasid(),
                    error
                );
            }
        }
    }
}
