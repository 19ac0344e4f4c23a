// SPDX-License-Identifier: GPL-2.0

//! Shared virtual memory of `/dev/kfd`: which GPU of a process may access which of its memory, by attributes of ranges.
//!
//! Each GPU of the process has one mirror of all memory, at the addresses of the program. What it may show is asked of
//! [`Svm`] range by range ([`OnGpu`]), so attributes are split and joined without a change of mirrors.
//!
//! Without repeated accesses (XNACK off) memory is shown when an attribute allows it, and shown again after each change while
//! the queues of that GPU wait; memory without attributes is out of reach. With them all memory may be accessed
//! unless an attribute says otherwise, and is shown when it is.
//!
//! PREFETCH_LOC moves memory in the call that sets it. With repeated accesses an access moves memory to the VRAM of its GPU,
//! where the attributes say so ([`Attributes::hint`]): also what has none, but for heap and stack of the program.
//!
//! Attributes end when the program unmaps the memory, before munmap returns: what is mapped there later has none.
//!
//! # Locks
//!
//! `attribute_lock` is held during a whole SET_ATTR, and comes before those of mirrors; memory of the program may be
//! waited for under it, and others make room in VRAM for it. `ranges` is taken inside the memory manager, and innermost:
//! nothing is allocated or freed under it.

use core::ops::Range;

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex,
        MutexGuard, //
    },
};

pub(crate) mod attributes;
mod rules;

use self::attributes::{
    flags,
    Access,
    Attributes,
    Change,
    Destination,
    Effect,
    GpuName,
    List,
    Ranges,
    Summary, //
};
pub(crate) use self::rules::OnGpu;
use crate::{
    kapi::{
        hmm::{
            self,
            AddressSpaceUser,
            Interval,
            Watch, //
        },
        log::RateLimit,
        task::ThreadGroup, //
    },
    mirror::{
        Hint,
        Mirrors,
        Rights, //
    },
    vm::{
        mirrored::GRANULE,
        pt::PAGE,
        va, //
    },
};

/// What mirrors have: rules say less.
pub(crate) const RIGHTS: Rights = Rights {
    write: true,
    execute: true,
};

/// Attributes of a process's memory.
#[pin_data]
pub(crate) struct Svm {
    group: ThreadGroup,
    /// The GPUs of the process, a bit each.
    gpus: u64,
    /// Accesses are repeated.
    xnack: Atomic<bool>,
    #[pin]
    attribute_lock: Mutex<()>,
    #[pin]
    ranges: Mutex<Ranges>,
    /// Learns of unmappings, from the first attribute on. Set under `attribute_lock`, but for the end.
    #[pin]
    watch: Mutex<Option<Arc<Interval<Unmappings>>>>,
}

/// Attributes, locked to change them.
pub(crate) struct AttributeLock<'a> {
    svm: &'a Arc<Svm>,
    _held: MutexGuard<'a, ()>,
}

/// Learns of unmappings.
struct Unmappings(Arc<Svm>);

impl Watch for Unmappings {
    type State = ();

    fn changes(&self, _state: &mut (), change: &hmm::Change, _may_wait: bool) -> bool {
        if change.is_unmap {
            // CAST: `usize` is at most 64 bits wide.
            let range = change.first as u64..change.last as u64 + 1;
            self.0.unmapped(&range);
        }
        // No thread has to be waited for.
        false
    }

    fn settle(&self, _state: &Mutex<()>, _change: &hmm::Change) {}
}

impl Svm {
    /// Of the caller, with this many GPUs: no attributes, no repeated accesses.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(gpus: usize) -> Result<Arc<Self>> {
        let gpus = u32::try_from(gpus)?;
        Arc::pin_init(
            pin_init!(Self {
                group: ThreadGroup::current(),
                gpus: 1u64.checked_shl(gpus).map_or(u64::MAX, |above| above - 1),
                xnack: Atomic::new(false),
                attribute_lock <- new_mutex!((), "rkfd_svm_attribute_lock"),
                ranges <- new_mutex!(Ranges::new(), "rkfd_svm_ranges"),
                watch <- new_mutex!(None, "rkfd_svm_watch"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Whether accesses are repeated.
    pub(crate) fn xnack(&self) -> bool {
        self.xnack.load(Relaxed)
    }

    /// Says whether accesses are repeated. The mirrors are to be made anew.
    pub(crate) fn set_xnack(&self, xnack: bool) {
        self.xnack.store(xnack, Relaxed);
    }

    /// What memory has while no attribute of it is set.
    fn unset(&self) -> Attributes {
        Attributes::unset(if self.xnack() { self.gpus } else { 0 })
    }

    /// Locks the attributes to change them.
    pub(crate) fn lock_attributes(self: &Arc<Self>) -> AttributeLock<'_> {
        AttributeLock {
            svm: self,
            _held: self.attribute_lock.lock(),
        }
    }

    /// What GET_ATTR reports of `range`.
    pub(crate) fn summary(&self, range: &Range<u64>) -> Summary {
        let unset = self.unset();
        self.ranges.lock().summary(range, &unset)
    }

    /// Whether something of `range` has attributes.
    pub(crate) fn meets(&self, range: &Range<u64>) -> bool {
        self.ranges.lock().meets(range)
    }

    /// Whether GPU number `gpu` has all of `range` before it accesses it, as a queue needs it that saves waves there.
    pub(crate) fn keeps_for(&self, gpu: usize, range: &Range<u64>) -> bool {
        self.ranges.lock().all(range, |attributes| {
            attributes.access_of(gpu) != Access::None
                && attributes.has(flags::GPU_ALWAYS_MAPPED)
                && !attributes.has(flags::GPU_RO)
        })
    }

    /// Where the latest prefetch, to `gpu` (`None`: to the system), brings memory from the first of `range` on, and where in it
    /// its attributes end.
    pub(crate) fn destination(
        &self,
        range: &Range<u64>,
        gpu: Option<GpuName>,
    ) -> (Option<Destination>, u64) {
        let (unset, xnack) = (self.unset(), self.xnack());
        let ranges = self.ranges.lock();
        let (attributes, end) = ranges.at(range, &unset, |attributes| *attributes);
        (attributes.destination(gpu, xnack), end)
    }

    /// How many rooms there can be for memory with attributes that moves to the VRAM of `gpu` when that accesses it.
    pub(crate) fn rooms_for(&self, gpu: GpuName) -> u64 {
        let wants = |of: &Attributes| matches!(of.hint(gpu), Some(Hint::Vram { .. }));
        self.ranges.lock().pieces(GRANULE, wants)
    }

    /// Has the memory shown on one GPU that has attributes.
    ///
    /// # Errors
    ///
    /// The first of [`Mirrors::apply_rules`].
    pub(crate) fn apply_all(&self, mirrors: &Mirrors) -> Result {
        let mut applied = Ok(());
        let mut from = va::USER_START;
        loop {
            let next = self.ranges.lock().next(from);
            let Some(range) = next else { return applied };
            applied = applied.and(mirrors.apply_rules(&range));
            from = range.end;
        }
    }

    /// The program unmaps memory.
    fn unmapped(&self, range: &Range<u64>) {
        if !self.ranges.lock().remove(range) {
            static LIMIT: RateLimit = RateLimit::new();
            if LIMIT.pass().is_some() {
                pr_warn!(
                    "pid {}: no room to forget the attributes of unmapped memory at {:#x}\n",
                    self.group.pid(),
                    range.start
                );
            }
        }
    }

    /// The process ends. No attribute is set any more.
    pub(crate) fn close(&self) {
        let watch = self.watch.lock().take();
        // Waits for changes that are being told.
        drop(watch);
    }
}

impl AttributeLock<'_> {
    /// Changes attributes of `range`, which the program has all of. Returns what is to change besides.
    ///
    /// # Errors
    ///
    /// - `EFAULT`: somewhere there is nothing, or no memory of the kernel's. The attributes of the range have ended, and page tables
    ///   are to change.
    /// - `ENOMEM`, `EINTR`.
    pub(crate) fn change(
        &self,
        user: &AddressSpaceUser,
        range: &Range<u64>,
        changes: &[Change],
    ) -> Result<Effect> {
        let svm = self.svm;
        self.begin_watch(user)?;
        let unset = svm.unset();
        loop {
            let room = svm.ranges.lock().room();
            let new = List::with_capacity(room, GFP_KERNEL_ACCOUNT)?;
            let done = svm.ranges.lock().change(new, range, &unset, changes);
            match done {
                Ok((old, effect)) => {
                    drop(old);
                    // What was unmapped before the list was changed was not noted.
                    if !has_memory(user, range) {
                        svm.unmapped(range);
                        return Err(EFAULT);
                    }
                    return Ok(effect);
                }
                // Unmapping has cut ranges meanwhile.
                Err(small) => drop(small),
            }
        }
    }

    /// Learns of unmappings from now on.
    fn begin_watch(&self, user: &AddressSpaceUser) -> Result {
        if self.svm.watch.lock().is_some() {
            return Ok(());
        }
        // CAST: Addresses of programs, of 64 bits where this driver runs.
        let range = va::USER_START as usize..(va::USER_END - PAGE) as usize;
        let watch = Interval::new(user, range, Unmappings(self.svm.clone()), ())?;
        let old = self.svm.watch.lock().replace(watch);
        drop(old);
        Ok(())
    }
}

/// Makes the mirror of all memory of the caller, on which attributes decide, in place of that of another mode. Nothing is shown
/// yet.
///
/// # Errors
///
/// - `ENODEV`: the process ends.
/// - `ENOMEM`; `ENOSPC` after very many changes.
pub(crate) fn make_mirror(mirrors: &Arc<Mirrors>, xnack: bool) -> Result {
    mirrors.destroy_all();
    if xnack {
        mirrors.serve_accesses()?;
    }
    mirrors.create_whole(RIGHTS, xnack)?;
    Ok(())
}

/// Whether the program has memory in all of `range`.
pub(crate) fn has_memory(user: &AddressSpaceUser, range: &Range<u64>) -> bool {
    // CAST: Addresses of programs, of 64 bits where this driver runs.
    user.has_memory(range.start as usize..range.end as usize)
}
