// SPDX-License-Identifier: GPL-2.0

//! What control groups pay ahead for [rooms](super::room) that workers make for their programs.
//!
//! The kernel charges device memory to the group of the task that takes it, and a worker is of the root group, which has no
//! limits. So a program of another group is charged in a call of its own, a room at a time, for what workers may take
//! later, as far as the limit goes. A room that ends gives its charge back to the credit that it is of. What is not used
//! gives way where a limit stands against something else of the group. Tested by `rkfd_vm_credit_live`, and with
//! limits by e2e native-hints-room.
//!
//! Locks: that of [`Credits`] comes before that of a credit; both are innermost otherwise. Nothing is charged under them, and
//! nothing allocated under that of a credit.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

use super::mirrored::GRANULE;
use crate::{
    gpu::Gpu,
    kapi::dmem::{
        Charge,
        Limit,
        Protection,
        Refused, //
    },
};

/// All credits of a GPU.
#[pin_data]
pub(super) struct Credits {
    #[pin]
    list: Mutex<KVVec<Arc<Credit>>>,
}

impl Credits {
    /// None.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self { list <- new_mutex!(KVVec::new(), "rkfd_credits") })
    }

    /// Gives `size` bytes of credit back that `limit` counts, as far as there is so much unused. Returns whether there was any.
    pub(super) fn give_way(&self, limit: &Limit, size: u64) -> bool {
        let mut given = 0;
        for credit in self.list.lock().iter() {
            while given < size {
                let Some(charge) = credit.take_below(limit) else {
                    break;
                };
                given += charge.size();
            }
        }
        given > 0
    }

    /// From now on it gives way; ended by [`Self::remove`]. Again is nothing.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn add(&self, credit: &Arc<Credit>) -> Result {
        let mut list = self.list.lock();
        if list.iter().any(|known| Arc::ptr_eq(known, credit)) {
            return Ok(());
        }
        Ok(list.push(credit.clone(), GFP_KERNEL_ACCOUNT)?)
    }

    /// It is not looked for any more.
    pub(super) fn remove(&self, credit: &Arc<Credit>) {
        let mut list = self.list.lock();
        let at = list.iter().position(|known| Arc::ptr_eq(known, credit));
        let removed = at.and_then(|at| list.remove(at).ok());
        drop(list);
        drop(removed);
    }
}

/// What is known of a credit.
struct State {
    /// Charges that no room has, each for one.
    spare: KVVec<Arc<Charge>>,
    /// Rooms that are wanted.
    wanted: usize,
    /// Rooms that there are.
    lent: usize,
    /// Rooms are charged when they are made, to the root group, which is the program's.
    is_of_root: bool,
}

/// Charges of a program's group for rooms that workers make for it.
#[pin_data]
pub(crate) struct Credit {
    #[pin]
    state: Mutex<State>,
}

impl Credit {
    /// For no room.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let state = State {
            spare: KVVec::new(),
            wanted: 0,
            lent: 0,
            is_of_root: false,
        };
        Arc::pin_init(
            pin_init!(Self { state <- new_mutex!(state, "rkfd_credit") }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Rooms are wanted up to `rooms`: charges the caller's group for those that it is not charged for, as far as its limit goes,
    /// and at most for all VRAM; none ahead if it `is_of_root`, the group without limits. Callers do this one after the other.
    /// It gives way from now on, by `credits`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENODEV`. What there is of credit stays.
    pub(super) fn top_up(
        self: &Arc<Self>,
        gpu: &Gpu,
        credits: &Credits,
        rooms: u64,
        is_of_root: bool,
    ) -> Result {
        let most = gpu.vram_budget().limit() / GRANULE;
        let rooms = usize::try_from(rooms.min(most))?;
        credits.add(self)?;
        // So that what rooms give back finds a place.
        let places = if is_of_root { 0 } else { rooms };
        let mut list = KVVec::with_capacity(places, GFP_KERNEL_ACCOUNT)?;
        let mut state = self.state.lock();
        (state.wanted, state.is_of_root) = (rooms, is_of_root);
        for charge in state.spare.drain_all().take(places) {
            list.push_within_capacity(charge).map_err(|_| ENOMEM)?;
        }
        let lacking = places.saturating_sub(state.lent + list.len());
        let old = core::mem::replace(&mut state.spare, list);
        drop(state);
        drop(old);
        for _ in 0..lacking {
            match gpu.dmem().charge(GRANULE) {
                Ok(charge) => self.put(Arc::new(charge, GFP_KERNEL_ACCOUNT)?, false),
                Err(Refused::Limit(_)) => break,
                Err(Refused::Error(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// No more than `rooms` are wanted: gives back what is unused beyond that.
    pub(crate) fn limit_to(&self, rooms: u64) {
        let rooms = usize::try_from(rooms).unwrap_or(usize::MAX);
        loop {
            let mut state = self.state.lock();
            state.wanted = state.wanted.min(rooms);
            let surplus = if state.spare.len() + state.lent > state.wanted {
                state.spare.pop()
            } else {
                None
            };
            drop(state);
            if surplus.is_none() {
                return;
            }
        }
    }

    /// Charges that no room has, and how many rooms there are.
    #[cfg(rkfd_kunit)]
    pub(crate) fn amounts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.spare.len(), state.lent)
    }

    /// Charges a room, for a worker. `None`: there is no credit.
    pub(super) fn lend(self: &Arc<Self>, gpu: &Gpu) -> Option<Lent> {
        let mut state = self.state.lock();
        if state.wanted == 0 {
            return None;
        }
        if state.is_of_root {
            drop(state);
            let charge = gpu.dmem().charge(GRANULE).ok()?;
            let charge = Arc::new(charge, GFP_KERNEL).ok()?;
            return Some(Lent { charge, of: None });
        }
        let charge = state.spare.pop()?;
        state.lent += 1;
        Some(Lent {
            charge,
            of: Some(self.clone()),
        })
    }

    /// Adds a charge that no room has, or has any more if `was_lent`; or gives it back where it is not wanted.
    fn put(&self, charge: Arc<Charge>, was_lent: bool) {
        let mut surplus = Some(charge);
        let mut state = self.state.lock();
        state.lent = state.lent.saturating_sub(usize::from(was_lent));
        if state.spare.len() + state.lent < state.wanted {
            if let Some(charge) = surplus.take() {
                let put = state.spare.push_within_capacity(charge);
                surplus = put.err().map(|full| full.0);
            }
        }
        drop(state);
        drop(surplus);
    }

    /// A charge that no room has, and without which the group at `limit` is charged less.
    fn take_below(&self, limit: &Limit) -> Option<Arc<Charge>> {
        let mut state = self.state.lock();
        let last = state.spare.last()?;
        // All are of one group, but for a program that has changed its own.
        if last.protection(Some(limit), true) == Protection::Full {
            return None;
        }
        state.spare.pop()
    }
}

/// The charge of a room, given back to the credit that it is of when this is dropped.
pub(super) struct Lent {
    charge: Arc<Charge>,
    of: Option<Arc<Credit>>,
}

impl Lent {
    /// What is charged.
    pub(super) fn charge(&self) -> &Arc<Charge> {
        &self.charge
    }
}

impl From<Arc<Charge>> for Lent {
    /// Of no credit: given back to the group.
    fn from(charge: Arc<Charge>) -> Self {
        Self { charge, of: None }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(credit) = self.of.take() {
            credit.put(self.charge.clone(), true);
        }
    }
}
