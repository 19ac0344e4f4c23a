// SPDX-License-Identifier: GPL-2.0

//! What a GPU may do where, and where memory is to be, if a mirror of all memory leaves that to another module.
//!
//! A mirror asks when it finds memory, and keeps no copy of the answer. So what changes a rule says so afterwards
//! ([`Mirrors::apply_rules`](super::Mirrors::apply_rules)): then what was shown by the old one goes, and nothing that was
//! found by it is shown any more.

use core::ops::Range;

use super::{
    hints::Hint,
    shape::Rights, //
};
use crate::gpu::devmem::Movement;

/// What holds for some memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// What the GPU may do; `None`: nothing.
    pub(crate) rights: Option<Rights>,
    /// It is shown before it is accessed, and queues wait while it is not, also where accesses are repeated.
    pub(crate) kept: bool,
}

/// Where memory is to be that the GPU accesses, where accesses are repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// GPU addresses for which that holds.
    pub(crate) range: Range<u64>,
    /// Where; `None`: nothing moves.
    pub(crate) hint: Option<Hint>,
    /// The addresses around for which nobody has asked for it, if there are: heap and stack of the program stay where they are.
    pub(crate) unasked: Option<Range<u64>>,
}

/// Why memory is not shown any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// It changes.
    Change,
    /// It moves to or from the VRAM of a GPU.
    Migration,
    /// The program unmaps it.
    Unmapped,
}

/// Decides what the GPU may do, and is notified of what happens.
///
/// Called inside the memory manager, too: what is done here neither waits for a lock under which memory is allocated nor
/// allocates itself.
pub(crate) trait Rules: Send + Sync {
    /// What holds from the first of `range` on, GPU addresses, at least one, and where in it that ends: as far behind as can be
    /// told, since what lies behind becomes other leaves.
    fn rule(&self, range: &Range<u64>) -> (Rule, u64);

    /// Where memory at GPU address `va` is to be, and around it, within `bounds`, which has it.
    fn wanted(&self, va: u64, bounds: &Range<u64>) -> Wanted;

    /// Whether the end of the program is known by other means, before a page of it goes: that then closes the
    /// mirrors, once the queues are off the hardware, which may need memory for that.
    fn learns_of_end(&self) -> bool;

    /// Memory of `range` that was shown is about not to be.
    fn hidden(&self, range: &Range<u64>, why: Hidden);

    /// An access to `page` waits for memory that is looked for now.
    fn access_begins(&self, page: u64, write: bool);

    /// The memory is shown, some of which has `moved` to VRAM for it, and the access is about to be repeated.
    fn access_ends(&self, page: u64, moved: bool);

    /// Memory moves for the mirror.
    fn memory_moves(&self, movement: &Movement);

    /// The queues are off the hardware because memory changes, or run again.
    fn queues_run(&self, run: bool);
}
