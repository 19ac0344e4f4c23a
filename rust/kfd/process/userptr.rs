// SPDX-License-Identifier: GPL-2.0

//! Memory of the process that GPUs use, and what happens when the process changes it.
//!
//! Nothing is pinned. Before pages change (munmap, mremap, fork, mprotect, madvise, reclaim) the memory
//! manager calls [`Watch::invalidated`], which takes the queues of the process off the GPUs that map the buffer;
//! queues on other GPUs go on. Soon after, [`Process::restore_queues`] finds the new pages, writes the page
//! tables and lets the queues run again.
//! Where no memory is left, the entries stay invalid: a wave that goes there faults.
//!
//! Where the queues do not stop, because the scheduler is out of order, the entries of all such memory are
//! taken away before the pages go, at the end of the process, too. While page tables cannot be written the
//! queues stay off; where that lasts, the entries are taken away, and only a GPU that does not even confirm
//! that stays without queues.
//!
//! A thread that changes memory without pause could keep the queues away for ever: each time their pages
//! are found, they have changed again. Once that is seen, changes of the process by itself are held back a
//! little, until the queues have been restored and have run for a while (`LEAST_RUN`). The time counts from when the
//! pages are looked for, and from when the queues were restored, so that a change of many ranges, as a fork
//! is one, does not wait for each of them.
//!
//! # Locks
//!
//! [`Eviction`](super::eviction::Eviction) is locked inside the memory manager, perhaps because memory is short.
//! Nothing is allocated under it. Of other locks those of the scheduler are taken, and that of [`ProcessDevice`]'s address
//! space, then those of [`Vm`](crate::vm::Vm).

use core::ops::Range;

use super::shared::Process;
use crate::{
    kapi::{
        log::dev_limited,
        task::MmKey,
        userpages::Watcher, //
    },
    kfd::{
        device::ProcessDevice,
        smi::{
            EvictionTrigger,
            SmiEvent, //
        },
    },
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
        Instant, //
    },
    workqueue::WorkItem, //
};

/// How often the pages are looked for in one go.
const MAX_ATTEMPTS: usize = 8;
/// After so many failures memory that cannot be mapped is done without.
const GIVE_UP: u32 = 6;

/// Watches the buffers of a process.
pub(crate) struct Watch(Arc<Process>);

impl Watch {
    /// For buffers of `process`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn over(process: &Arc<Process>) -> Result<Arc<dyn Watcher>> {
        Ok(Arc::new(Self(process.clone()), GFP_KERNEL_ACCOUNT)?)
    }
}

impl Watcher for Watch {
    fn address_space(&self) -> MmKey {
        // The process references it, and watches its end.
        self.0.key
    }

    fn before_change(&self) {
        let eviction = &self.0.eviction;
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
        self.0.change_pages(|device| device.maps_user(&range));
    }

    fn missing(&self) {
        // Which GPU lacks them is not known here.
        self.0.change_pages(|_| true);
    }
}

impl_has_work! {
    impl HasWork<Self> for Process { self.restore }
}

impl WorkItem for Process {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let pause = this.eviction.lock().pause();
        fsleep(pause);
        if !this.restore_queues() {
            this.report_delay();
            this.enqueue::<0>();
        }
    }
}

impl Process {
    /// Keeps the queues on those GPUs off that `is_concerned` by a change of pages, until [`Self::restore_queues`].
    fn change_pages(self: &Arc<Self>, is_concerned: impl Fn(&ProcessDevice) -> bool) {
        let mut eviction = self.eviction.lock();
        eviction.changes += 1;
        eviction.active = true;
        // Whoever comes second waits for the lock until the first got the queues off.
        for device in &self.devices {
            if !is_concerned(device) {
                continue;
            }
            let first = !device.set_kept_off(true);
            device.keep_off(self.pid(), first);
            if first && device.sched_process().is_some() {
                let off = SmiEvent::QueueEviction(self.group(), EvictionTrigger::Userptr);
                device.device().report(&off);
            }
        }
        drop(eviction);
        self.enqueue::<0>();
    }

    /// Makes a process known to the scheduler of GPU `index` visible to [`Watch`].
    pub(super) fn publish(&self, index: usize, known: &Arc<SchedProcess>) {
        let eviction = self.eviction.lock();
        if let Some(device) = self.devices.get(index) {
            device.set_sched_process(Some(known.clone()));
            if device.is_kept_off() {
                device.keep_off(self.pid(), true);
            }
        }
        drop(eviction);
    }

    /// Reports that the restore of the queues takes longer, for each GPU where they are kept off.
    fn report_delay(&self) {
        for device in &self.devices {
            if device.is_kept_off() && device.sched_process().is_some() {
                let delayed = SmiEvent::QueueRestoreDelayed(self.group());
                device.device().report(&delayed);
            }
        }
    }

    /// Finds the pages of all buffers again and lets the queues run; false: has to be repeated.
    fn restore_queues(&self) -> bool {
        for _ in 0..MAX_ATTEMPTS {
            let (seen, failures) = {
                let mut eviction = self.eviction.lock();
                if !eviction.active {
                    return true;
                }
                eviction.looked = Some(Instant::now());
                (eviction.changes, eviction.failures)
            };
            match self.find_pages(failures >= GIVE_UP) {
                Ok(true) => {}
                // The process ends.
                Ok(false) => return true,
                Err(error) => {
                    let mut eviction = self.eviction.lock();
                    // Only changes are worth being held back.
                    eviction.starving |= error == EAGAIN;
                    eviction.failures = failures.saturating_add(1);
                    pr_debug!("pid {}: pages not found yet: {:?}\n", self.pid(), error);
                    return false;
                }
            }
            let mut eviction = self.eviction.lock();
            if eviction.changes == seen {
                eviction.active = false;
                eviction.failures = 0;
                eviction.restored = Some(Instant::now());
                for device in &self.devices {
                    if !device.set_kept_off(false) {
                        continue;
                    }
                    device.restore();
                    if device.sched_process().is_some() {
                        device
                            .device()
                            .report(&SmiEvent::QueueRestore(self.group()));
                    }
                }
                return true;
            }
            eviction.starving = true;
        }
        let mut eviction = self.eviction.lock();
        eviction.failures = eviction.failures.saturating_add(1);
        false
    }

    /// Brings every buffer and page table up to date; false if the process ends. With `give_up` buffers
    /// that cannot be mapped lose their entries.
    fn find_pages(&self, give_up: bool) -> Result<bool> {
        let mut buffers: KVVec<Arc<Bo>> = KVVec::new();
        {
            let state = self.state.lock();
            for (_, allocation) in state.devices.iter().flat_map(|d| d.allocations.iter()) {
                if allocation.bo.kind() == BoKind::Userptr {
                    buffers.push(allocation.bo.clone(), GFP_KERNEL_ACCOUNT)?;
                }
            }
        }
        // Without the lock: who serves the faults may be a thread of the process that wants it.
        for bo in &buffers {
            if !self.is_mapped(bo) {
                continue;
            }
            match bo.find_pages() {
                Err(error) if error == ESRCH => return Ok(false),
                // There is no memory, or not for this use.
                Err(error) if error == EFAULT || error == EPERM => {}
                result => result?,
            }
        }
        let mut vms = KVec::new();
        {
            let state = self.state.lock();
            for vm in state.devices.iter().filter_map(|device| device.vm().ok()) {
                vms.push(vm.clone(), GFP_KERNEL_ACCOUNT)?;
            }
        }
        // Without the lock, too: this waits for the hardware. What is unmapped meanwhile is left alone.
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
        }
        Ok(!self.has_ended())
    }
}

impl ProcessDevice {
    /// Sees to it that no queue uses memory of the process that changes; `first`: the queues run.
    fn keep_off(&self, pid: i32, first: bool) {
        if first {
            self.set_unstopped(!self.evict(pid));
        }
        if self.is_unstopped() {
            self.zap_userptr(pid);
        }
    }

    /// Takes the queues off the hardware because pages change; false if they do not stop.
    fn evict(&self, pid: i32) -> bool {
        let Some(process) = self.sched_process() else {
            return true;
        };
        match self.device().sched().evict(&process, EvictCause::Userptr) {
            Ok(()) => true,
            // Nothing runs: it is being forgotten, or the GPU is gone.
            Err(error) if error == ESRCH || error == ENODEV => true,
            Err(error) => {
                dev_limited!(
                    dev_warn,
                    self.device().gpu().dev(),
                    "pid {}: queues do not stop while memory changes: {:?}\n",
                    pid,
                    error
                );
                false
            }
        }
    }

    /// Takes [`Self::evict`] back.
    fn restore(&self) {
        self.set_unstopped(false);
        if let Some(process) = self.sched_process() {
            // What fails here has failed and was reported before.
            let _ = self.device().sched().restore(&process, EvictCause::Userptr);
        }
    }
}
