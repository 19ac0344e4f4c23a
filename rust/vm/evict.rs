// SPDX-License-Identifier: GPL-2.0

//! Room in VRAM: whose buffers go to system memory when it is short.
//!
//! A process that makes a buffer and finds no room takes that of others: first of those whose queues do not run, the
//! buffer that was used longest ago first; then of those whose queues have run longest since they were last restored.
//! Pages of programs are victims as buffers are whose queues do not run, a [room](super::rooms) of 2 MiB at a time: what was
//! used longest ago is that whose pages moved in longest ago. For a buffer a process loses rooms of its own, too, for its
//! pages are as good in system memory; for pages that are to move in it does not.
//! Queues that have not run for [`LEAST_RUN`] are not stopped; where only such are left, the allocation waits, for a
//! bounded time. Buffers of the process that asks stay, so that one alone gets no more than there is.
//!
//! Where it is the limit of its control group that stands against a buffer, though VRAM is free, those of that group make
//! room by the same order, also those of the process itself; other groups' stay. In both cases what a group has by
//! its `dmem.min` stays, and what it has by its `dmem.low` as long as anything else can go. Before all of it goes what is
//! charged to the group for rooms that there are not yet ([`credit`](super::credit)).
//!
//! What was evicted serves its queues from system memory: [`restore`](super::restore) maps it there and lets them run,
//! soon and whether or not there is room. It is brought back into room that is free, for which nothing is evicted. So a
//! working set that fits nowhere costs speed, and two that do not fit together do not evict each other by turns.
//!
//! Not moved are: what is mapped by an address space that was not claimed (see [`Residency::join`]), and all that is no
//! buffer: page tables, descriptors of queues, the table of the GART, firmware. VRAM has no importers but of
//! this driver, which move with the object.
//!
//! While the GPU sleeps nothing moves. The system freezes programs and the workers that restore, before, so that none
//! ask; those that do nevertheless wait, and are restored behind the sleep.
//!
//! # Locks
//!
//! [`Residency::turn`] is held while room is made or memory restored, and while the GPU goes to sleep or wakes. It
//! comes before the reservations of objects, so it is not waited for with one held. Below the reservation of a victim:
//! that of [`Eviction`](super::standing::Eviction), under which queues are stopped, and then, one after the other,
//! those of the address spaces. [`Residency::spaces`] comes before the objects' lists of mappings alone: freeing VRAM
//! takes it, which the scheduler does, too, while others wait for it with [`Eviction`](super::standing::Eviction) held.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::Full,
        barrier,
        Arc,
        Mutex, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};

use super::{
    bo::{
        moving::Vacant,
        Memory, //
    },
    credit::Credits,
    rooms::{
        Entry,
        Rooms,
        Whose, //
    },
    standing::Standing,
    victims::{
        Hold,
        Next,
        Short,
        Victims,
        LEAST_RUN, //
    },
    Vm, //
};
use crate::{
    gpu::{
        Gpu,
        Hw, //
    },
    kapi::{
        dmem::{
            Charge,
            Protection,
            Refused, //
        },
        drm_file::DrmDevice,
        gem::Object,
        lru::ObjectLru,
        resv::Resv,
        task::fatal_signal_pending, //
    },
};

/// How often an allocation looks for victims, after it waited for others to have run so long, or among those that were
/// behind others.
const ROUNDS: usize = 20;

/// The address spaces and buffers of one GPU, as far as they can be evicted.
#[pin_data]
pub(crate) struct Residency {
    lru: Arc<ObjectLru<Memory>>,
    /// Held to make room, and to restore.
    #[pin]
    turn: Mutex<()>,
    /// Address spaces that were claimed and are not closed. Nothing is allocated under it: the scheduler's work takes it
    /// when it frees VRAM, and memory that is short may wait for the scheduler.
    #[pin]
    spaces: Mutex<KVVec<Arc<Vm>>>,
    #[pin]
    rooms: Rooms,
    /// What groups have paid for rooms that there may be.
    #[pin]
    credits: Credits,
}

/// What became of an attempt to make room.
enum Made<R> {
    /// There was room.
    Room(R),
    /// Others have to run for so long before they can be stopped.
    Wait(Delta),
    /// Others are to be looked at: those that were used longest ago are behind them now, or another group is at its limit.
    Others,
    /// There is nothing to take room from.
    Nothing,
}

impl Residency {
    /// That of `gpu`, whose objects are those of `dev`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn of(gpu: &Gpu, dev: &DrmDevice) -> Result<Arc<Self>> {
        gpu.upper(|| {
            let lru = ObjectLru::new(dev)?;
            Arc::pin_init(
                pin_init!(Self {
                    lru,
                    turn <- new_mutex!((), "rkfd_turn"),
                    spaces <- new_mutex!(KVVec::new(), "rkfd_spaces"),
                    rooms <- Rooms::new(),
                    credits <- Credits::new(),
                }),
                GFP_KERNEL,
            )
        })
    }

    /// That of `gpu`, if there is one yet.
    pub(super) fn known(gpu: &Gpu) -> Option<Arc<Self>> {
        gpu.upper(|| Err(ENOENT)).ok()
    }

    /// Held to make room, and to restore.
    pub(super) fn turn(&self) -> &Mutex<()> {
        &self.turn
    }

    /// The rooms of pages.
    pub(super) fn rooms(&self) -> &Rooms {
        &self.rooms
    }

    /// What groups have paid for rooms that there may be.
    pub(super) fn credits(&self) -> &Credits {
        &self.credits
    }

    /// From now on buffers that `vm` maps can be evicted; ended by [`Self::leave`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn join(&self, vm: &Arc<Vm>) -> Result {
        let mut room = KVVec::new();
        loop {
            let mut spaces = self.spaces.lock();
            if spaces.iter().any(|known| Arc::ptr_eq(known, vm)) {
                return Ok(());
            }
            if spaces.len() < spaces.capacity() {
                return spaces.push_within_capacity(vm.clone()).map_err(|_| ENOMEM);
            }
            if room.capacity() > spaces.len() {
                for known in spaces.drain_all() {
                    room.push_within_capacity(known).map_err(|_| ENOMEM)?;
                }
                room.push_within_capacity(vm.clone()).map_err(|_| ENOMEM)?;
                let old = core::mem::replace(&mut *spaces, room);
                drop(spaces);
                drop(old);
                return Ok(());
            }
            // As much again, so that this comes to an end however many join.
            let wanted = 2 * spaces.len() + 1;
            drop(spaces);
            room.reserve(wanted, GFP_KERNEL_ACCOUNT)?;
        }
    }

    /// The address space ends: what it maps stays where it is.
    pub(super) fn leave(&self, vm: &Vm) {
        let mut spaces = self.spaces.lock();
        let at = spaces.iter().position(|known| core::ptr::eq(&**known, vm));
        let left = at.and_then(|at| spaces.remove(at).ok());
        drop(spaces);
        // Without the lock, although the caller has another reference.
        drop(left);
    }

    /// The address spaces that map `object`; `None` if one of them cannot be stopped. New ones do not appear while the
    /// reservation is held; without it the answer is a guess.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn spaces_of(&self, object: &Object<Memory>) -> Result<Option<KVVec<Arc<Vm>>>> {
        let mut count = 0;
        object.for_each_space(|_| count += 1);
        let mut found = KVVec::with_capacity(count, GFP_KERNEL)?;
        let mut complete = true;
        let spaces = self.spaces.lock();
        object.for_each_space(|key| {
            let vm = spaces.iter().find(|vm| vm.key() == key);
            // There is room for all, unless one appeared.
            complete &= vm.is_some_and(|vm| found.push_within_capacity(vm.clone()).is_ok());
        });
        drop(spaces);
        Ok(complete.then_some(found))
    }

    /// How `object` can be evicted at this moment, by who is short as `short` says; with `ignore_low` also what only its
    /// group's `dmem.low` protects.
    fn hold_of(&self, object: &Object<Memory>, short: &Short, ignore_low: bool) -> Result<Hold> {
        let Some(movable) = object.movable() else {
            return Ok(Hold::Fixed);
        };
        let Some(charge) = movable.charge() else {
            return Ok(Hold::Fixed);
        };
        if matches!(short, Short::Memory) && movable.is_of_current() {
            return Ok(Hold::Fixed);
        }
        match charge.protection(short.limit(), ignore_low) {
            Protection::None => {}
            Protection::Low => return Ok(Hold::Low),
            Protection::Full => return Ok(Hold::Fixed),
        }
        let Some(spaces) = self.spaces_of(object)? else {
            return Ok(Hold::Fixed);
        };
        let mut hold = Hold::Idle;
        for vm in &spaces {
            let Standing::Running(ran) = vm.standing() else {
                continue;
            };
            if ran < LEAST_RUN {
                return Ok(Hold::Protected(LEAST_RUN - ran));
            }
            hold = match hold {
                // The one that has run least of all that have to stop.
                Hold::Busy(least) if least < ran => Hold::Busy(least),
                _ => Hold::Busy(ran),
            };
        }
        Ok(hold)
    }

    /// Evicts one buffer or room after the other, until `attempt` succeeds; its `ENOMEM` means that it is still `short`, `EAGAIN`
    /// likewise, but of something else. The caller has [`Self::turn`].
    fn make_room<R>(
        &self,
        (gpu, dev, hw): (&Arc<Gpu>, &DrmDevice, &Hw),
        short: &mut Short,
        whose: Whose,
        attempt: &mut impl FnMut(&mut Short) -> Result<R>,
    ) -> Result<Made<R>> {
        let mut victims = Victims::new(self.lru.snapshot(dev)?, self.rooms.snapshot()?)?;
        let mut ignore_low = false;
        loop {
            let hold_of = |object: &Object<Memory>| self.hold_of(object, short, ignore_low);
            let next = victims.next(short, whose, ignore_low, hold_of)?;
            let evicted = match next {
                Next::Buffer(object) => self.evict(gpu, hw, object),
                Next::Room(entry) => self.evict_room(gpu, hw, entry),
                Next::Low => {
                    ignore_low = true;
                    continue;
                }
                Next::Wait(left) => {
                    return Ok(match victims.touch_fixed() {
                        true => Made::Others,
                        false => Made::Wait(left),
                    });
                }
                Next::Nothing => {
                    return Ok(match victims.touch_fixed() {
                        true => Made::Others,
                        false => Made::Nothing,
                    });
                }
            };
            match evicted {
                Ok(()) => {}
                Err(error) if error == EINTR => return Err(error),
                // Its queues do not stop, or there is no system memory for it: the next one.
                Err(_) if !hw.is_lost() => continue,
                Err(_) => return Err(EIO),
            }
            match attempt(short) {
                Err(error) if error == ENOMEM => {}
                Err(error) if error == EAGAIN => return Ok(Made::Others),
                result => return result.map(Made::Room),
            }
        }
    }

    /// Moves the pages of a room to system memory, with which the room ends. The memory manager takes the entries away that
    /// show them, for which queues stop where accesses are not repeated.
    ///
    /// # Errors
    ///
    /// Those of [`Gpu::evict_frame`]. Where some pages stay, because they are in use elsewhere, that is no error.
    fn evict_room(&self, gpu: &Gpu, hw: &Hw, room: &Arc<Entry>) -> Result {
        if !self.rooms.has(room) {
            return Ok(());
        }
        gpu.evict_frame(hw, room.frame())
    }

    /// Moves `object` to system memory. The queues of address spaces that map it stop first, and are restored soon.
    ///
    /// # Errors
    ///
    /// The object is where it was, and queues that were stopped are restored.
    ///
    /// - `EALREADY`: it is there.
    /// - `EBUSY`: it is mapped by an address space that cannot be stopped.
    /// - Those of the scheduler, of `Movable::find_system`, and of `Movable::move_out`.
    pub(crate) fn evict(&self, gpu: &Arc<Gpu>, hw: &Hw, object: &Object<Memory>) -> Result {
        let movable = object.movable().ok_or(EINVAL)?;
        let reserved = object.reserve_uninterrupted();
        let resv = reserved.resv();
        if !movable.is_home() {
            return Err(EALREADY);
        }
        // First: no queues are stopped where there is none.
        let place = movable.find_system(hw)?;
        let vacant = self.vacate(resv)?;
        movable.move_out(gpu, hw, resv, &vacant, place)?;
        // It is not looked for among what is in VRAM any more.
        object.unlist();
        Ok(())
    }

    /// Stops the queues of address spaces that map the object of `resv`, takes the entries of all mappings away, and zaps
    /// what the CPU maps.
    ///
    /// # Errors
    ///
    /// `EBUSY`: an address space that cannot be stopped maps it. `ENOMEM`. Those of the scheduler and of
    /// [`Vm::vacate`](super::Vm::vacate).
    pub(super) fn vacate(&self, resv: Resv<'_, Memory>) -> Result<Vacant> {
        let object = resv.object();
        let spaces = self.spaces_of(object)?.ok_or(EBUSY)?;
        for vm in &spaces {
            vm.stop_for_move()?;
        }
        for vm in &spaces {
            vm.vacate(resv)?;
        }
        resv.zap();
        Ok(Vacant::confirmed())
    }
}

/// Buffers are below, and ask for room by these.
impl Gpu {
    /// The list of the buffers in VRAM, which are objects of `dev`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn buffers_in_vram(&self, dev: &DrmDevice) -> Result<Arc<ObjectLru<Memory>>> {
        Ok(Residency::of(self, dev)?.lru.clone())
    }

    /// Charges `size` bytes of VRAM to the caller's control group, and runs `alloc`, which takes as much. Where the group is at
    /// its limit, memory of it is evicted, buffers of the caller as well; where `alloc` fails for want of room, that of others. The
    /// caller's own rooms are evicted as `whose` says. The caller has no reservation of an object, and not the mmap lock.
    ///
    /// Bounded: each buffer, and each room, is moved once a round, of which there are [`ROUNDS`], and others are waited for about a second.
    ///
    /// # Errors
    ///
    /// Those of `alloc`; `ENOMEM`: the group is at its limit, and nothing of it can be evicted; `EINTR`: the caller is being
    /// killed.
    pub(super) fn with_room<R>(
        self: &Arc<Self>,
        dev: &DrmDevice,
        hw: &Hw,
        size: u64,
        whose: Whose,
        mut alloc: impl FnMut(Arc<Charge>) -> Result<R>,
    ) -> Result<R> {
        if size > self.vram_budget().limit() {
            return Err(ENOMEM);
        }
        let charge = match self.charge_group(size) {
            Ok(charge) => charge,
            Err(Refused::Error(error)) => return Err(error),
            Err(Refused::Limit(limit)) => {
                let mut charge = |short: &mut Short| match self.charge_group(size) {
                    Ok(charge) => Ok(charge),
                    Err(Refused::Error(error)) => Err(error),
                    Err(Refused::Limit(limit)) => Err(short.move_to(limit)),
                };
                self.evict_until(dev, hw, Short::Group(limit), whose, &mut charge)?
            }
        };
        let charge = Arc::new(charge, GFP_KERNEL)?;
        let result = match alloc(charge.clone()) {
            Err(error) if error == ENOMEM => {
                self.evict_until(dev, hw, Short::Memory, whose, &mut |_: &mut Short| {
                    alloc(charge.clone())
                })
            }
            result => result,
        };
        // The limit was lowered meanwhile.
        result.map_err(|error| if error == EDQUOT { ENOMEM } else { error })
    }

    /// Charges `size` bytes of VRAM to the caller's control group. What is charged to it for rooms that there are not yet gives
    /// way.
    ///
    /// # Errors
    ///
    /// See [`Refused`].
    fn charge_group(&self, size: u64) -> Result<Charge, Refused> {
        loop {
            let refused = match self.dmem().charge(size) {
                Err(Refused::Limit(limit)) => limit,
                result => return result,
            };
            let residency = Residency::known(self);
            if !residency.is_some_and(|known| known.credits.give_way(&refused, size)) {
                return Err(Refused::Limit(refused));
            }
        }
    }

    /// Evicts what `short` allows until `attempt` succeeds.
    ///
    /// # Errors
    ///
    /// Those of `attempt`, where `EAGAIN` stands for `ENOMEM`; `EINTR`: the caller is being killed.
    fn evict_until<R>(
        self: &Arc<Self>,
        dev: &DrmDevice,
        hw: &Hw,
        mut short: Short,
        whose: Whose,
        attempt: &mut impl FnMut(&mut Short) -> Result<R>,
    ) -> Result<R> {
        let residency = Residency::of(self, dev)?;
        for _ in 0..ROUNDS {
            let turn = residency.turn.lock();
            let made = if self.is_asleep() {
                // A thread that is not frozen waits.
                Ok(Made::Wait(LEAST_RUN))
            } else {
                residency.make_room((self, dev, hw), &mut short, whose, attempt)
            };
            drop(turn);
            match made? {
                Made::Room(room) => return Ok(room),
                Made::Nothing => break,
                Made::Others => {}
                Made::Wait(left) => fsleep(left),
            }
            if fatal_signal_pending() {
                return Err(EINTR);
            }
        }
        // What was given back meanwhile.
        attempt(&mut short).map_err(|error| if error == EAGAIN { ENOMEM } else { error })
    }

    /// VRAM of a buffer was freed: what was evicted may come back. Allocates nothing.
    pub(super) fn room_is_back(&self) {
        // Pairs with the exchange in `Vm::restore_in_turn`.
        barrier::smp_mb(Full);
        let Some(residency) = Residency::known(self) else {
            return;
        };
        for vm in residency.spaces.lock().iter() {
            vm.restore_if_displaced();
        }
    }
}

/// Puts `gpu` to sleep, or wakes it, by `f`: no memory moves meanwhile, and none while it sleeps.
///
/// A GPU that sleeps may be without power: neither its copy engine nor its BAR moves anything. What is to be restored
/// meanwhile stays as it is until [`wake`].
pub(crate) fn while_nothing_moves<R>(gpu: &Gpu, f: impl FnOnce() -> R) -> R {
    let residency = Residency::known(gpu);
    let _turn = residency.as_deref().map(|residency| residency.turn.lock());
    f()
}

/// `gpu` and its scheduler work again: restores what could not be restored while it slept. Allocates nothing.
pub(crate) fn wake(gpu: &Gpu) {
    gpu.room_is_back();
}

/// Evicts `bo`, and keeps workers from restoring memory while `f` runs.
///
/// # Errors
///
/// Those of [`Residency::evict`] and of `f`.
#[cfg(rkfd_kunit)]
pub(crate) fn evicted_in_test<R>(bo: &super::Bo, f: impl FnOnce() -> Result<R>) -> Result<R> {
    let gpu = bo.gpu();
    let hw = gpu.enter()?;
    let residency = Residency::known(gpu).ok_or(ENOENT)?;
    let _turn = residency.turn.lock();
    residency.evict(gpu, &hw, bo.object())?;
    f()
}
