// SPDX-License-Identifier: GPL-2.0

//! The mirror of all memory where [`Rules`](crate::mirror::Rules) decide what the GPU may do, and where memory is to be.
//!
//! Who changes rules says so afterwards: first everywhere what is to go ([`Mirrors::withdraw_by_rules`]), then what is to
//! be shown ([`Mirrors::show_by_rules`]). Moves that the program asks for are in between, so that what moves is shown once.
//! Tested by `rkfd_mirror_rules_live`.

use core::ops::Range;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::Mirrors;
use crate::{
    kapi::drm_file::DrmDevice,
    mirror::{
        hints::Hint,
        migrate::Place,
        range::Mirror, //
    },
    vm::pt::PAGE, //
};

impl Mirrors {
    /// The mirror of all memory, and what it has of `range`, GPU addresses; `None`: nothing.
    fn whole(&self, range: &Range<u64>) -> Option<(Arc<Mirror>, Range<u64>)> {
        let list = self.list.lock();
        let mirror = list.mirrors.iter().find(|mirror| mirror.is_whole());
        let mirror = mirror.cloned();
        drop(list);
        let mirror = mirror?;
        let whole = mirror.gpu();
        let part = range.start.max(whole.start)..range.end.min(whole.end);
        (!part.is_empty()).then_some((mirror, part))
    }

    /// The rules of `range`, GPU addresses, have changed. When this returns, the GPU reaches nothing that they do not allow,
    /// and finds what is to be shown before it is accessed, as far as there is memory. Queues that rely on what is shown
    /// there wait meanwhile.
    ///
    /// # Errors
    ///
    /// Those of [`Self::show_by_rules`].
    pub(crate) fn apply_rules(&self, range: &Range<u64>) -> Result {
        self.withdraw_by_rules(range);
        self.show_by_rules(range)
    }

    /// The rules of `range`, GPU addresses, have changed. When this returns, the GPU reaches nothing that they do not allow.
    /// Queues that rely on what was shown there wait until it is found again. [`Self::show_by_rules`] follows.
    pub(crate) fn withdraw_by_rules(&self, range: &Range<u64>) {
        if self.pause.rules().is_none() {
            return;
        }
        if let Some((mirror, range)) = self.whole(range) {
            self.withdraw(&mirror, &range);
        }
    }

    /// Shows what of `range`, GPU addresses, is by rules to be shown before it is accessed, as far as there is memory: which may
    /// take as long as user space wants.
    ///
    /// # Errors
    ///
    /// What is missing is found later.
    ///
    /// - `ESRCH`: the program has ended.
    /// - Others as those of [`Self::create`].
    pub(crate) fn show_by_rules(&self, range: &Range<u64>) -> Result {
        let Some(rules) = self.pause.rules() else {
            return Ok(());
        };
        let Some((mirror, range)) = self.whole(range) else {
            return Ok(());
        };
        let on_access = mirror.request().filling.on_access;
        self.accesses.lock().note_shown(&range);
        let mut filled = Ok(());
        let mut at = range.start;
        while at < range.end {
            let (rule, end) = rules.rule(&(at..range.end));
            let end = end.max(at + PAGE);
            if rule.rights.is_some() && (rule.kept || !on_access) {
                filled = filled.and(mirror.populate(&(at..end), false));
            }
            at = end;
        }
        filled
    }

    /// Rules want memory of `range`, GPU addresses, elsewhere than before. What is to move to VRAM when it is accessed, and is
    /// shown in the system, is not shown any more, and waits no longer because it came out. Nothing moves. Where accesses are
    /// not repeated nothing changes.
    pub(crate) fn expect_moves_by_rules(&self, range: &Range<u64>) {
        let Some(rules) = self.pause.rules() else {
            return;
        };
        let Some((mirror, range)) = self.whole(range) else {
            return;
        };
        if !mirror.request().filling.on_access {
            return;
        }
        let mut at = range.start;
        while at < range.end {
            let wanted = rules.wanted(at, &(at..range.end));
            let part = at..wanted.range.end.max(at + PAGE);
            if matches!(wanted.hint, Some(Hint::Vram { .. })) {
                self.take_away(&mirror, &part, |mirror| mirror.expect_moves(&part));
            }
            at = part.end;
        }
    }

    /// Moves what the program has at `range`, GPU addresses, as far as it can move, and shows what has moved.
    ///
    /// # Errors
    ///
    /// Those of [`Mirror::migrate`]. Where all memory is not shown nothing moves, and there is no error.
    pub(crate) fn prefetch(&self, dev: &DrmDevice, range: &Range<u64>, place: Place) -> Result {
        let Some((mirror, range)) = self.whole(range) else {
            return Ok(());
        };
        self.accesses.lock().note_shown(&range);
        let moved = mirror.migrate(dev, &range, place, None);
        self.pause.restore_now();
        moved
    }

    /// Charges the caller's group for VRAM that accesses may move memory to, `rooms` rooms in all, as far as its limit goes; a
    /// group without limits is charged when rooms are made.
    pub(crate) fn pay_for_rules(&self, dev: &DrmDevice, rooms: u64) {
        if let Some((mirror, _)) = self.whole(&(0..u64::MAX)) {
            mirror.hints().pay_for_rules(self.vm().gpu(), dev, rooms);
        }
    }
}
