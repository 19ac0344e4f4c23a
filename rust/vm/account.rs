// SPDX-License-Identifier: GPL-2.0

//! What a process's own memory is charged for: each page once, however many buffers are made of it.

use core::ops::Range;

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

use super::coverage::{
    Boundaries,
    Coverage, //
};
use crate::gpu::account::{
    self,
    Charge, //
};

struct State {
    covered: Coverage,
    /// As much as `covered` covers.
    charge: Charge,
}

/// The pages of an address space that buffers are made of, and their charge to the budget of the machine.
///
/// Pages that several processes share are charged to each of them.
#[pin_data]
pub(crate) struct UserAccount {
    /// Innermost. Memory is neither allocated nor freed under it.
    #[pin]
    state: Mutex<State>,
}

impl UserAccount {
    /// Of an address space without buffers.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let state = State {
            covered: Coverage::new(),
            charge: account::system().all.charge_module(0)?,
        };
        Arc::pin_init(
            pin_init!(Self { state <- new_mutex!(state, "rkfd_user_account") }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Charges the addresses of `range`, which is not empty, that no other charge of this account covers.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: no memory, or the machine's budget is spent.
    pub(crate) fn charge(self: &Arc<Self>, range: Range<u64>) -> Result<UserCharge> {
        let mut room = Boundaries::new()?;
        let mut state = self.state.lock();
        let State { covered, charge } = &mut *state;
        let grown = covered.add(&range, &mut room);
        let charged = charge.resize(charge.amount() + grown);
        let undone = charged.map_err(|error| (error, covered.remove(&range)));
        drop(state);
        drop(room);
        match undone {
            Ok(()) => Ok(UserCharge {
                account: self.clone(),
                range,
            }),
            Err((error, _)) => Err(error),
        }
    }

    /// Bytes charged.
    #[cfg(rkfd_kunit)]
    pub(crate) fn amount(&self) -> u64 {
        self.state.lock().charge.amount()
    }
}

/// A range that is charged; dropping gives back what no other charge covers.
pub(crate) struct UserCharge {
    account: Arc<UserAccount>,
    range: Range<u64>,
}

impl Drop for UserCharge {
    fn drop(&mut self) {
        let mut state = self.account.state.lock();
        let State { covered, charge } = &mut *state;
        let (shrunk, removed) = covered.remove(&self.range);
        // Less is never refused.
        let _ = charge.resize(charge.amount().saturating_sub(shrunk));
        drop(state);
        drop(removed);
    }
}
