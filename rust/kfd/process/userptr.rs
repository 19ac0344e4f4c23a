// SPDX-License-Identifier: GPL-2.0

//! Memory of the process that GPUs use, and what happens when the process changes it.
//!
//! Nothing is pinned. Before pages change (munmap, mremap, fork, mprotect, madvise, reclaim) the memory
//! manager calls [`Watch::invalidated`], which takes the queues of the process off the hardware. Soon after,
//! [`Process::restore_queues`] finds the new pages, writes the page tables and lets the queues run again.
//! Where no memory is left, the entries stay invalid: a wave that goes there faults.
//!
//! A thread that changes memory without pause could keep the queues away for ever: each time their pages
//! are found, they have changed again. Once that is seen, changes are held back a little, until the queues
//! have been restored and have run for [`LEAST_RUN`].
//!
//! # Locks
//!
//! [`Eviction`] is locked inside the memory manager, perhaps because memory is short. Nothing is allocated
//! under it, and of other locks only the scheduler's are taken.

use super::Process;
use crate::{
    kapi::userpages::Watcher,
    sched::{
        EvictCause,
        SchedProcess, //
    },
    vm::{
        Bo,
        BoKind, //
    },
};
use kernel::{
    impl_has_work,
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    },
    workqueue::WorkItem, //
};

/// So long further changes are awaited before queues run again.
const SETTLE: Delta = Delta::from_millis(1);
/// How often the pages are looked for in one go.
const MAX_ATTEMPTS: usize = 8;
/// So long queues run between two evictions when changes are held back.
const LEAST_RUN: Delta = Delta::from_millis(10);
/// So long a change is held back at most for the pages to be found.
const MOST_DELAY: Delta = Delta::from_millis(50);
/// Queues that ran so long do not starve any more.
const CALM: Delta = Delta::from_millis(1000);

/// Whether the queues of a process wait for pages.
pub(super) struct Eviction {
    active: bool,
    /// Counts changes of pages.
    changes: u64,
    /// Pages changed while they were being looked for, time and again.
    starving: bool,
    /// When the queues were last restored.
    restored: Option<Instant<Monotonic>>,
}

impl Eviction {
    pub(super) const fn new() -> Self {
        Self {
            active: false,
            changes: 0,
            starving: false,
            restored: None,
        }
    }

    /// How long the queues that run are to be left alone; none where nothing starves.
    fn left_to_run(&mut self) -> Option<Delta> {
        let ran = self.restored?.elapsed();
        if self.active || !self.starving {
            return None;
        }
        if ran >= CALM {
            self.starving = false;
        }
        (ran < LEAST_RUN).then(|| LEAST_RUN - ran)
    }
}

/// Watches the buffers of a process.
pub(crate) struct Watch(Arc<Process>);

impl Watch {
    /// For buffers of `process`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn over(process: &Arc<Process>) -> Result<Arc<dyn Watcher>> {
        Ok(Arc::new(Self(process.clone()), GFP_KERNEL)?)
    }
}

impl Watcher for Watch {
    fn before_change(&self) {
        let eviction = &self.0.eviction;
        let step = Delta::from_millis(1);
        let mut delay = Delta::ZERO;
        loop {
            {
                let eviction = eviction.lock();
                if !eviction.active || !eviction.starving {
                    break;
                }
            }
            // Where the caller holds the mmap lock, nobody finds pages meanwhile: hence the bound.
            if delay >= MOST_DELAY {
                return;
            }
            fsleep(step);
            delay += step;
        }
        let rest = eviction.lock().left_to_run();
        if let Some(rest) = rest {
            fsleep(rest);
        }
    }

    fn invalidated(&self) {
        let process = &self.0;
        let mut eviction = process.eviction.lock();
        eviction.changes += 1;
        // Whoever comes second waits here for the first to get the queues off.
        if !eviction.active {
            eviction.active = true;
            for device in &process.devices {
                device.evict(process.pid());
            }
        }
        drop(eviction);
        process.table.enqueue::<0>(process.clone());
    }
}

impl_has_work! {
    impl HasWork<Self> for Process { self.restore }
}

impl WorkItem for Process {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        fsleep(SETTLE);
        if !this.restore_queues() {
            this.table.enqueue::<0>(this.clone());
        }
    }
}

impl Process {
    /// Makes a process known to the scheduler of GPU `index` visible to [`Watch`].
    pub(super) fn publish(&self, index: usize, known: &Arc<SchedProcess>) {
        let eviction = self.eviction.lock();
        if let Some(device) = self.devices.get(index) {
            device.set_sched_process(Some(known.clone()));
            if eviction.active {
                device.evict(self.pid());
            }
        }
    }

    /// Finds the pages of all buffers again and lets the queues run; false: has to be repeated.
    fn restore_queues(&self) -> bool {
        for _ in 0..MAX_ATTEMPTS {
            let seen = {
                let eviction = self.eviction.lock();
                if !eviction.active {
                    return true;
                }
                eviction.changes
            };
            match self.find_pages() {
                Ok(true) => {}
                // The process ends.
                Ok(false) => return true,
                Err(error) => {
                    self.eviction.lock().starving = true;
                    pr_debug!("pid {}: pages not found yet: {:?}\n", self.pid(), error);
                    return false;
                }
            }
            let mut eviction = self.eviction.lock();
            if eviction.changes == seen {
                eviction.active = false;
                eviction.restored = Some(Instant::now());
                for device in &self.devices {
                    device.restore();
                }
                return true;
            }
            eviction.starving = true;
        }
        false
    }

    /// Brings every buffer and page table up to date; false if the process ends.
    fn find_pages(&self) -> Result<bool> {
        let mut buffers: KVVec<Arc<Bo>> = KVVec::new();
        {
            let state = self.state.lock();
            for (_, allocation) in state.devices.iter().flat_map(|d| d.allocations.iter()) {
                if allocation.bo.kind() == BoKind::Userptr && state.is_mapped(&allocation.bo) {
                    buffers.push(allocation.bo.clone(), GFP_KERNEL)?;
                }
            }
        }
        // Without the lock: who serves the faults may be a thread of the process that wants it.
        for bo in &buffers {
            match bo.find_pages() {
                Err(error) if error == ESRCH => return Ok(false),
                // There is no memory, or not for this use.
                Err(error) if error == EFAULT || error == EPERM => {}
                result => result?,
            }
        }
        let state = self.state.lock();
        for vm in state.devices.iter().filter_map(|device| device.vm().ok()) {
            for bo in &buffers {
                match vm.refresh(bo) {
                    Err(error) if error == ENOMEM || error == EAGAIN => return Err(error),
                    // A GPU that does not answer runs no queues either.
                    _ => {}
                }
            }
        }
        // Their last references, should they have been freed meanwhile.
        drop(state);
        drop(buffers);
        Ok(!self.has_ended())
    }
}

impl super::ProcessDevice {
    /// Takes the queues off the hardware because pages change.
    fn evict(&self, pid: i32) {
        let Some(process) = self.sched_process() else {
            return;
        };
        match self.device().sched().evict(&process, EvictCause::Userptr) {
            // Nothing runs: it is being forgotten, or the GPU is gone.
            Ok(()) => {}
            Err(error) if error == ESRCH || error == ENODEV => {}
            Err(error) => pr_warn!(
                "pid {}: queues on GPU {:#x} do not stop while memory changes: {:?}\n",
                pid,
                self.gpu_id(),
                error
            ),
        }
    }

    /// Takes [`Self::evict`] back.
    fn restore(&self) {
        if let Some(process) = self.sched_process() {
            // What fails here has failed before, and was said then.
            let _ = self.device().sched().restore(&process, EvictCause::Userptr);
        }
    }
}
