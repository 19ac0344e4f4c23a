// SPDX-License-Identifier: GPL-2.0

//! Mirrors: a range of a program's memory that a GPU address space shows at a range of its own.
//!
//! A [`Mirror`] belongs to an address space of one GPU ([`Vm`](crate::vm::Vm)), and shows whatever the program has in
//! its range, which may be nothing. Nothing is pinned. All mirrors of an address space are in its [`Mirrors`].
//!
//! A mirror is cut into *windows* of 64 MiB of GPU addresses, each with a notifier of its own, so that a change of memory
//! disturbs only readers nearby, and these into *granules* of 2 MiB. A granule is found, shown and taken away as a
//! whole. A window is made when memory is first found in it.
//!
//! # When memory changes
//!
//! The memory manager announces a change of pages before it takes place. Then the granules that it meets become
//! stale: from then on nothing that was found in the window before is written into page tables. The queues of the
//! address space are taken off the hardware, the entries are taken away, and the GPU confirms that it dropped its
//! translations. Soon after, [`Mirrors`] finds what the program has there now, and the queues run again. Where nothing
//! is left, the entries stay invalid: a wave that goes there faults.
//!
//! So no wave meets an entry that is missing for a moment only, which a GPU without retry faults would report as an error.
//! With retry faults the queues go on, and a fault ends in a lane of [`Mirrors`].
//!
//! # Locks
//!
//! In this order: the list of windows of a mirror (allocates under it, is never taken inside the memory manager); the
//! update lock of a window; `Quiesce`, under which queues are taken off, with the locks of the scheduler below; the
//! lock of [`Vm`](crate::vm::Vm) and those of the GPU. The update lock and `Quiesce` are never held together. Nothing is
//! allocated under the update lock and those below it. [`Rules`] may be asked under the update lock and have a lock of their own,
//! the innermost.

mod access;
mod accesses;
mod bounces;
mod granule;
mod hint_table;
mod hints;
mod laps;
mod migrate;
mod quiesce;
mod range;
mod report;
mod rules;
mod shape;
mod show;
mod space;
mod window;

#[cfg(rkfd_kunit)]
pub(crate) use self::{
    accesses::{
        Accesses,
        Verdict,
        Waiting,
        LANES, //
    },
    bounces::{
        Answer,
        Bounces,
        FIRST_WAIT,
        LONGEST_WAIT,
        SOON, //
    },
    hints::{
        Hinted,
        Hints,
        MAX_RANGES, //
    },
};
pub(crate) use self::{
    hints::Hint,
    migrate::Place,
    rules::{
        Hidden,
        Rule,
        Rules,
        Wanted, //
    },
    shape::{
        Filling,
        Request,
        Rights, //
    },
    space::Mirrors, //
};
