// SPDX-License-Identifier: GPL-2.0

//! Memory of processes that queues use, and what happens when a process changes it.
//!
//! Nothing is pinned. Before pages change (munmap, mremap, fork, mprotect, madvise, reclaim) the memory manager calls
//! [`Watch::invalidated`], which takes the queues of the [`Owner`] off the GPUs that map the buffer; queues on other GPUs go
//! on. Soon after, [`restore`] finds the new pages, writes the page tables and lets the queues run again. What did not change
//! is neither looked for nor written again. Where no memory is left, there are no entries: a wave that goes there faults.
//!
//! Where the queues do not stop, because the scheduler is out of order, the entries of all such memory are taken away
//! before the pages go. While page tables cannot be written the queues stay off; where that lasts, the entries are taken
//! away, and only a GPU that does not even confirm that stays without queues.
//!
//! A thread that changes memory without pause could keep the queues away for ever: each time their pages are found, they
//! have changed again. Once that is seen, changes of the process by itself are held back a little, until the queues have
//! been restored and have run for a while (`LEAST_RUN`). The time counts from when the pages are looked for, and from when
//! the queues were restored, so that a change of many ranges, as a fork is one, does not wait for each of them.
//!
//! # Locks
//!
//! [`Eviction`] is locked inside the memory manager, perhaps because memory is short. Nothing is allocated under it. Of
//! other locks those of the scheduler are taken, and that of [`Space`]'s address space, then those of
//! [`Vm`](crate::vm::Vm).

use core::ops::Range;

use kernel::{
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    time::{
        delay::fsleep,
        Delta,
        Instant, //
    },
};

use super::space::Space;
use crate::{
    kapi::{
        task::MmKey,
        userpages::Watcher, //
    },
    sched::SchedProcess,
    vm::Bo,
};

mod eviction;

pub(crate) use self::eviction::Eviction;

/// How often the pages are looked for in one go.
const MAX_ATTEMPTS: usize = 8;
/// After so many failures memory that cannot be mapped is done without.
const GIVE_UP: u32 = 6;

/// What becomes of the queues in a [`Space`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// They are off the hardware, because memory changes.
    Evicted,
    /// They run again.
    Restored,
    /// It takes longer until they do.
    Delayed,
}

/// The owner of queues that use memory of a process.
pub(crate) trait Owner: Send + Sync + Sized + 'static {
    /// The end of the address space that the memory is of is the end of the owner, which learns of it by other means,
    /// before pages are freed. If not, that end is a change as any other.
    const ENDS_WITH_MEMORY: bool;

    /// Whether the queues wait for pages.
    fn eviction(&self) -> &Mutex<Eviction>;

    /// Where the queues are: always the same, in the same order.
    fn spaces(&self) -> impl Iterator<Item = &Space>;

    /// The buffers that are made of memory of the process.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn buffers(&self) -> Result<KVVec<Arc<Bo>>>;

    /// Whether the queues are gone for good.
    fn has_ended(&self) -> bool;

    /// Process id in the initial namespace, for messages.
    fn pid(&self) -> i32;

    /// Reports a change of the queues in the space with a number. Does not sleep, and allocates nothing.
    fn report(&self, space: usize, change: Change);

    /// Has [`restore`] run soon, by a thread that may wait for user space. Allocates nothing.
    fn schedule(self: &Arc<Self>);
}

/// Watches the buffers of an [`Owner`].
pub(crate) struct Watch<O: Owner> {
    owner: Arc<O>,
    /// The owner references it, so that it names no other.
    key: MmKey,
}

impl<O: Owner> Watch<O> {
    /// For buffers of `owner` that are made of memory of the address space `key`, which the owner references.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn over(owner: &Arc<O>, key: MmKey) -> Result<Arc<dyn Watcher>> {
        let owner = owner.clone();
        Ok(Arc::new(Self { owner, key }, GFP_KERNEL_ACCOUNT)?)
    }
}

impl<O: Owner> Watcher for Watch<O> {
    fn address_space(&self) -> MmKey {
        self.key
    }

    fn learns_of_end(&self) -> bool {
        O::ENDS_WITH_MEMORY
    }

    fn before_change(&self) {
        let eviction = self.owner.eviction();
        // Where the caller holds the mmap lock, no pages can be found meanwhile: hence the bound.
        while eviction.lock().holds_back() {
            fsleep(Delta::from_millis(1));
        }
        let rest = eviction.lock().left_to_run();
        if let Some(rest) = rest {
            fsleep(rest);
        }
    }

    fn invalidated(&self, range: Range<u64>) {
        change_pages(&self.owner, |space| space.maps_user(&range));
    }

    fn missing(&self) {
        // Which GPU lacks them is not known here.
        change_pages(&self.owner, |_| true);
    }
}

/// Keeps the queues off in those spaces that `is_concerned` by a change of pages, until [`restore`].
fn change_pages<O: Owner>(owner: &Arc<O>, is_concerned: impl Fn(&Space) -> bool) {
    let mut eviction = owner.eviction().lock();
    eviction.changes += 1;
    eviction.active = true;
    // A second caller waits for the lock until the first got the queues off.
    for (number, space) in owner.spaces().enumerate() {
        if !is_concerned(space) {
            continue;
        }
        let first = !space.set_quiesced(true);
        space.quiesce(owner.pid(), first);
        if first && space.process().is_some() {
            owner.report(number, Change::Evicted);
        }
    }
    drop(eviction);
    owner.schedule();
}

/// Makes `known`, the owner as the scheduler of `space` knows it, visible to [`Watch`].
pub(crate) fn publish<O: Owner>(owner: &O, space: &Space, known: &Arc<SchedProcess>) {
    let eviction = owner.eviction().lock();
    space.set_process(Some(known.clone()));
    if space.is_quiesced() {
        space.quiesce(owner.pid(), true);
    }
    drop(eviction);
}

/// Finds the pages that changed and lets the queues run again; if that cannot be done now, once more later.
pub(crate) fn restore<O: Owner>(owner: &Arc<O>) {
    let pause = owner.eviction().lock().pause();
    fsleep(pause);
    if restore_queues(&**owner) {
        return;
    }
    for (number, space) in owner.spaces().enumerate() {
        if space.is_quiesced() && space.process().is_some() {
            owner.report(number, Change::Delayed);
        }
    }
    owner.schedule();
}

/// Finds the pages of all buffers again and lets the queues run; false: has to be repeated.
fn restore_queues<O: Owner>(owner: &O) -> bool {
    for _ in 0..MAX_ATTEMPTS {
        let (seen, failures) = {
            let mut eviction = owner.eviction().lock();
            if !eviction.active {
                return true;
            }
            eviction.looked = Some(Instant::now());
            (eviction.changes, eviction.failures)
        };
        match find_pages(owner, failures >= GIVE_UP) {
            Ok(true) => {}
            // The owner ends.
            Ok(false) => return true,
            Err(error) => {
                let mut eviction = owner.eviction().lock();
                // Only changes are worth being held back.
                eviction.starving |= error == EAGAIN;
                eviction.failures = failures.saturating_add(1);
                pr_debug!("pid {}: pages not found yet: {:?}\n", owner.pid(), error);
                return false;
            }
        }
        let mut eviction = owner.eviction().lock();
        if eviction.changes == seen {
            eviction.active = false;
            eviction.failures = 0;
            eviction.restored = Some(Instant::now());
            for (number, space) in owner.spaces().enumerate() {
                if !space.set_quiesced(false) {
                    continue;
                }
                space.restore();
                if space.process().is_some() {
                    owner.report(number, Change::Restored);
                }
            }
            return true;
        }
        eviction.starving = true;
    }
    let mut eviction = owner.eviction().lock();
    eviction.failures = eviction.failures.saturating_add(1);
    false
}

/// Brings every buffer and page table up to date; false if the owner ends. With `give_up` buffers that cannot be mapped
/// lose their entries. What no buffer names any more, after an unmapping that the GPU did not confirm, it has confirmed by
/// then.
fn find_pages<O: Owner>(owner: &O, give_up: bool) -> Result<bool> {
    let buffers = owner.buffers()?;
    let mut vms = KVec::new();
    for vm in owner.spaces().filter_map(Space::vm) {
        vms.push(vm, GFP_KERNEL_ACCOUNT)?;
    }
    // Without a lock of the owner's: the thread that serves the faults may want it.
    for bo in &buffers {
        if owner.has_ended() {
            return Ok(false);
        }
        if !vms.iter().any(|vm| vm.is_mapped(bo)) {
            continue;
        }
        match bo.find_pages() {
            Err(error) if error == ESRCH && O::ENDS_WITH_MEMORY => return Ok(false),
            // There is no memory, not for this use, or not any more.
            Err(error) if error == EFAULT || error == EPERM || error == ESRCH => {}
            result => result?,
        }
    }
    // Without a lock, too: this waits for the hardware. What is unmapped meanwhile is left alone.
    for vm in &vms {
        for bo in &buffers {
            match vm.refresh(bo) {
                Ok(()) => {}
                // A GPU that does not answer runs no queues either.
                Err(_) if vm.gpu().enter().is_err() => {}
                // The entries name pages that may have another owner by now: no queue may run.
                Err(error) if error == ENOMEM || error == EAGAIN || !give_up => {
                    return Err(error);
                }
                Err(_) => vm.zap(bo)?,
            }
        }
        match vm.settle_flush() {
            Err(error) if vm.gpu().enter().is_ok() => return Err(error),
            _ => {}
        }
    }
    Ok(!owner.has_ended())
}
