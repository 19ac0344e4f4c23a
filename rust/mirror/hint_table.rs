// SPDX-License-Identifier: GPL-2.0

//! The hints of a mirror, and what the program's control group has paid ahead for the VRAM that they want.

use core::ops::Range;

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

use super::hints::{
    Hint,
    Hinted,
    Hints, //
};
use crate::{
    gpu::Gpu,
    kapi::drm_file::DrmDevice,
    vm::room::{
        end_credit,
        top_up,
        top_up_for_rules,
        Credit, //
    },
};

struct State {
    hints: Hints,
    /// There is no mirror any more.
    ended: bool,
}

/// Where a program wants memory of a mirror to be.
#[pin_data]
pub(super) struct HintTable {
    credit: Arc<Credit>,
    /// Memory is allocated and charged under it.
    #[pin]
    state: Mutex<State>,
}

impl HintTable {
    /// No hints.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Arc<Self>> {
        let state = State {
            hints: Hints::new(),
            ended: false,
        };
        let credit = Credit::new()?;
        Arc::pin_init(
            pin_init!(Self {
                credit,
                state <- new_mutex!(state, "rkfd_hints"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Notes what holds for `range`, GPU addresses; `None`: nothing. For what is to be in VRAM the caller's group is charged, as
    /// far as its limit goes.
    ///
    /// # Errors
    ///
    /// Those of [`Hints::note`]; `ENOENT`: the mirror has ended.
    pub(super) fn note(
        &self,
        gpu: &Gpu,
        dev: &DrmDevice,
        range: &Range<u64>,
        hint: Option<Hint>,
    ) -> Result {
        let mut state = self.state.lock();
        if state.ended {
            return Err(ENOENT);
        }
        state.hints.note(range, hint)?;
        let rooms = state.hints.granules_for_vram();
        match hint {
            Some(Hint::Vram { .. }) => {
                // What cannot be charged does not move in by accesses, and the hint holds all the same.
                if let Err(error) = top_up(&self.credit, gpu, dev, rooms) {
                    pr_debug!("no credit for hints: {:?}\n", error);
                }
            }
            _ => self.credit.limit_to(rooms),
        }
        Ok(())
    }

    /// Charges the caller's group for `rooms` rooms that rules want, in place of hints, as far as its limit goes.
    pub(super) fn pay_for_rules(&self, gpu: &Gpu, dev: &DrmDevice, rooms: u64) {
        let state = self.state.lock();
        if state.ended {
            return;
        }
        // What cannot be charged does not move in by accesses.
        if let Err(error) = top_up_for_rules(&self.credit, gpu, dev, rooms) {
            pr_debug!("no credit for rules: {:?}\n", error);
        }
    }

    /// What rooms for the mirror's memory are charged to.
    pub(super) fn credit(&self) -> &Arc<Credit> {
        &self.credit
    }

    /// How many ranges there are.
    pub(super) fn len(&self) -> usize {
        self.state.lock().hints.len()
    }

    /// The first range that ends above `va`.
    pub(super) fn next_from(&self, va: u64) -> Option<Hinted> {
        self.state.lock().hints.next_from(va).cloned()
    }

    /// What holds at `va`.
    pub(super) fn at(&self, va: u64) -> Option<Hinted> {
        self.state.lock().hints.at(va).cloned()
    }

    /// As [`Hints::wants_vram`].
    pub(super) fn wants_vram(&self, range: &Range<u64>) -> (bool, u64) {
        self.state.lock().hints.wants_vram(range)
    }

    /// The mirror ends: what the group has paid and nobody uses is given back.
    pub(super) fn end(&self, gpu: &Gpu) {
        let mut state = self.state.lock();
        state.ended = true;
        state.hints = Hints::new();
        end_credit(&self.credit, gpu);
    }
}
