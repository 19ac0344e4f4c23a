// SPDX-License-Identifier: GPL-2.0

//! Processes: one object per address space, shared by all opens of `/dev/kfd` in it.
//!
//! A process object begins with the first open and ends when its address space does (exit, kill, exec):
//! closing the file does not stop queues, as user space may close and open again. A descriptor answers
//! `EBADF` to other thread groups, to its own after exec, and once the address space is gone: what a call
//! does to memory it does in the address space whose end is watched.
//!
//! The end runs in [`Process::mm_released`], before the pages of the address space are freed: queues
//! first, so that the GPU stops touching them, then events, then memory.
//!
//! # Locks
//!
//! `ProcessTable::entries` is taken for moments only, to look up, insert or remove: never around the mmap lock
//! (watching an address space takes it), which whoever serves a fault may keep others waiting for as long as
//! he wants, nor around an allocation, which may wait for a process to end. The opens and exits of all
//! processes need `entries`.
//!
//! Whoever holds the mmap lock (mmap, fault handlers, [changes of pages](userptr)) must not take
//! `Process::state`, under which memory is allocated; `entries` and `state` are never held together. Under
//! `state` no user memory is touched and no page of a process looked for: user space may serve such a fault
//! (userfaultfd, FUSE) by a thread that waits for `state`, or never.
//!
//! `state` is not held either while queues leave the hardware, which may take as long as a time-out does, with
//! three exceptions: the end of the process, when nobody else can call; the first queue on a GPU, which waits
//! for an eviction that is under way; and CREATE_QUEUE where changes are not collected (`coalesce=0`), whose
//! purpose is to wait.

use super::device::{
    Device,
    ProcessDevice, //
};
use crate::{
    event::{
        table::{
            SignalPage,
            IDLE_SLOT, //
        },
        Events,
        SIGNAL_PAGE_SIZE, //
    },
    hw::num::index,
    kapi::task::{
        current_mm,
        in_compat_syscall,
        MmKey,
        MmRelease,
        MmWatch,
        ThreadGroup, //
    },
    kapi::workqueue::OwnedQueue,
    vm::{
        Bo,
        BoVmap,
        UserAccount, //
    },
};
use kernel::{
    mm::Mm,
    new_mutex,
    new_work,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
    workqueue::{
        HasWork,
        Work,
        WorkItem, //
    }, //
};

mod exception;
mod state;
mod userptr;
use exception::Failures;
pub(crate) use exception::Reasons;
pub(crate) use state::{
    Allocation,
    DeviceState,
    Handle,
    State, //
};
use userptr::Eviction;
pub(crate) use userptr::Watch;

/// Work of one process: to restore its queues, and to report failures.
const WORK_ITEMS: u16 = 2;

/// A process.
#[pin_data]
pub(crate) struct Process {
    key: MmKey,
    /// Also keeps `key` from naming another address space.
    mm: ARef<Mm>,
    /// Who opened the device first, for people.
    group: ThreadGroup,
    table: Arc<ProcessTable>,
    /// Set once, when the address space ends.
    ended: Atomic<bool>,
    /// The events; a lock of their own, because interrupts reach them.
    #[pin]
    pub(crate) events: Events,
    /// Pays for memory of the process that buffers are made of.
    pub(crate) account: Arc<UserAccount>,
    /// The GPUs that existed when the process began, in the order of the topology.
    pub(crate) devices: KVec<Pin<KBox<ProcessDevice>>>,
    /// All else.
    #[pin]
    pub(crate) state: Mutex<State>,
    /// Whether queues wait for pages that changed.
    #[pin]
    eviction: Mutex<Eviction>,
    /// Ends that.
    #[pin]
    restore: Work<Self>,
    /// A runtime handles failures of queues; changed under `state`.
    runtime_enabled: Atomic<bool>,
    /// What it has to be told.
    #[pin]
    failures: Mutex<Failures>,
    /// Tells it.
    #[pin]
    report: Work<Self, 1>,
    /// Where `restore` and `report` run; taken away at the end. Its own, because both may wait for a fault
    /// that another thread of the process serves as late as it wants, as with userfaultfd. Nothing is
    /// allocated under the lock.
    #[pin]
    queue: Mutex<Option<OwnedQueue>>,
}

impl Process {
    fn new(
        mm: &Mm,
        key: MmKey,
        table: &Arc<ProcessTable>,
        devices: &[Arc<Device>],
    ) -> Result<Arc<Self>> {
        let mut list = KVec::with_capacity(devices.len(), GFP_KERNEL_ACCOUNT)?;
        let mut states = KVec::with_capacity(devices.len(), GFP_KERNEL_ACCOUNT)?;
        for device in devices {
            list.push(ProcessDevice::new(device.clone())?, GFP_KERNEL_ACCOUNT)?;
            states.push(DeviceState::new(), GFP_KERNEL_ACCOUNT)?;
        }
        Arc::pin_init(
            try_pin_init!(Self {
                key,
                mm: mm.into(),
                group: ThreadGroup::current(),
                table: table.clone(),
                ended: Atomic::new(false),
                events <- Events::new(),
                account: UserAccount::new()?,
                devices: list,
                state <- new_mutex!(State::new(states), "rkfd_process"),
                eviction <- new_mutex!(Eviction::new(), "rkfd_eviction"),
                restore <- new_work!("Process::restore"),
                runtime_enabled: Atomic::new(false),
                failures <- new_mutex!(Failures::new(), "rkfd_failures"),
                report <- new_work!("Process::report"),
                queue <- new_mutex!(
                    Some(OwnedQueue::unhurried(c"rkfd-process", WORK_ITEMS)?),
                    "rkfd_process_queue"
                ),
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Whether the caller may use a descriptor of this process that `opener` opened.
    ///
    /// # Errors
    ///
    /// `EBADF`: another thread group or address space, or the address space that opened it is gone.
    pub(crate) fn check_caller(&self, opener: &ThreadGroup) -> Result {
        // After exec the group is the same, and the old address space may live on with somebody who shared
        // it (vfork, CLONE_VM).
        if !opener.is_current() || !self.key.is_current() || self.ended.load(Relaxed) {
            return Err(EBADF);
        }
        Ok(())
    }

    /// Whether the address space has ended.
    fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// Process id in the initial namespace, for messages.
    pub(crate) fn pid(&self) -> i32 {
        self.group.pid()
    }

    /// The GPU with `gpu_id` and its place in [`State::devices`].
    ///
    /// # Errors
    ///
    /// `EINVAL`: none of this process.
    pub(crate) fn device(&self, gpu_id: u32) -> Result<(usize, &ProcessDevice)> {
        self.devices
            .iter()
            .enumerate()
            .find(|(_, d)| d.gpu_id() == gpu_id)
            .map(|(index, d)| (index, &**d))
            .ok_or(EINVAL)
    }

    /// Makes the buffer with `handle` the signal page.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: there is a page already; no such buffer; it is too small or not system memory.
    /// - `ENODEV`: its GPU has no address space yet.
    pub(crate) fn set_signal_page(&self, handle: u64) -> Result {
        let mut state = self.state.lock();
        if self.events.has_page() {
            return Err(EINVAL);
        }
        let wanted = Handle::decode(handle);
        let (index, _) = self.device(wanted.gpu_id)?;
        state.device(index)?.vm()?;
        let allocation = state.allocation(index, wanted.index).ok_or(EINVAL)?;
        if allocation.bo.size() < SIGNAL_PAGE_SIZE {
            return Err(EINVAL);
        }
        let page = SignalBuffer {
            map: allocation.bo.vmap()?,
            _bo: allocation.bo.clone(),
        };
        self.events.set_page(Arc::new(page, GFP_KERNEL_ACCOUNT)?)?;
        state.signal_handle = handle;
        Ok(())
    }

    /// Whether a runtime handles failures of queues.
    pub(crate) fn is_runtime_enabled(&self) -> bool {
        self.runtime_enabled.load(Relaxed)
    }

    /// Says whether a runtime handles failures of queues; `_state` keeps others from doing so.
    pub(crate) fn set_runtime_enabled(&self, _state: &mut State, enabled: bool) {
        self.runtime_enabled.store(enabled, Relaxed);
    }

    /// Takes the queues on `device` off the hardware after a fault that nobody can mend.
    pub(crate) fn stop_on_fault(&self, device: &Device) {
        if let Ok((_, own)) = self.device(device.gpu_id()) {
            own.stop_on_fault(self.pid());
        }
    }

    /// Has work `ID` run soon. Allocates nothing.
    fn enqueue<const ID: u64>(self: &Arc<Self>)
    where
        Self: HasWork<Self, ID> + WorkItem<ID, Pointer = Arc<Self>>,
    {
        let queue = self.queue.lock();
        if let Some(queue) = &*queue {
            // It may be waiting already.
            let _ = queue.enqueue::<_, ID>(self.clone());
        }
    }

    /// Ends all that the process has: queues, events, memory. May be called more than once.
    ///
    /// Not called by work of the process, which it waits for: that work gives the address space back to
    /// be ended by somebody else.
    fn teardown(&self) {
        if self.ended.xchg(true, kernel::sync::atomic::Full) {
            return;
        }
        let queue = self.queue.lock().take();
        // Nothing of it waits for user space any more, whose memory it cannot get hold of.
        drop(queue);
        let mut state = self.state.lock();
        state.stop_queues(self);
        let memory = state.take_memory();
        drop(state);
        self.events.shutdown();
        for (device, state) in self.devices.iter().zip(&memory) {
            if let Ok(vm) = state.vm() {
                device.device().clear_process(vm.pasid());
            }
            device.release();
        }
        // Address spaces and buffers: nothing of the GPU runs on them any more.
        drop(memory);
    }
}

impl MmRelease for Process {
    fn mm_released(&self) {
        drop(self.table.remove(self.key));
        self.teardown();
    }
}

/// The signal page of a process: words of a buffer in system memory.
struct SignalBuffer {
    map: BoVmap,
    _bo: Arc<Bo>,
}

impl SignalPage for SignalBuffer {
    fn load(&self, slot: u32) -> u64 {
        // Slots lie inside: the size was checked when the page was set.
        self.map.read64(index(slot) * 8).unwrap_or(IDLE_SLOT)
    }

    fn set_idle(&self, slot: u32) {
        let _ = self.map.write64(index(slot) * 8, IDLE_SLOT);
    }
}

struct Entry {
    process: Arc<Process>,
    _watch: MmWatch,
}

/// All processes of the module.
#[pin_data]
pub(crate) struct ProcessTable {
    #[pin]
    entries: Mutex<RBTree<MmKey, Entry>>,
}

impl ProcessTable {
    /// An empty table.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                entries <- new_mutex!(RBTree::new(), "rkfd_processes"),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// The process of the caller, made with `devices()` if this is its first open.
    ///
    /// # Errors
    ///
    /// - `EPERM`: the caller is a 32-bit program.
    /// - `EINVAL`: the caller has no address space.
    /// - `ENOMEM`: no memory.
    pub(crate) fn open(
        self: &Arc<Self>,
        devices: impl FnOnce() -> Result<KVec<Arc<Device>>>,
    ) -> Result<Arc<Process>> {
        if in_compat_syscall() {
            return Err(EPERM);
        }
        let (mm, key) = current_mm().ok_or(EINVAL)?;
        if let Some(process) = self.find(key) {
            return Ok(process);
        }
        let process = Process::new(&mm, key, self, &devices()?)?;
        // The end, of which this tells, does not come before the return: the caller runs in the address
        // space. So it always finds the entry.
        let watch = MmWatch::new(&mm, process.clone())?;
        let entry = Entry {
            process,
            _watch: watch,
        };
        self.insert(key, entry)
    }

    /// The process of the address space `key`.
    fn find(&self, key: MmKey) -> Option<Arc<Process>> {
        let entries = self.entries.lock();
        entries.get(&key).map(|entry| entry.process.clone())
    }

    /// Inserts `new` and returns its process, or that of the same address space which another thread has
    /// inserted meanwhile; `new`, which nobody has seen, then goes again.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn insert(&self, key: MmKey, new: Entry) -> Result<Arc<Process>> {
        let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get(&key) {
            let first = entry.process.clone();
            drop(entries);
            // Outside the lock; its watch ends untold.
            drop(new);
            return Ok(first);
        }
        let process = new.process.clone();
        entries.insert(node.into_node(key, new));
        Ok(process)
    }

    fn remove(&self, key: MmKey) -> Option<Entry> {
        self.entries.lock().remove(&key)
    }

    /// Whether the thread group with this id of the initial namespace has opened the device.
    pub(crate) fn has_pid(&self, pid: i32) -> bool {
        let entries = self.entries.lock();
        let mut all = entries.values();
        all.any(|entry| entry.process.pid() == pid)
    }

    /// Ends every process. For the end of the module, when no file is open.
    pub(crate) fn shutdown(&self) {
        let entries = core::mem::take(&mut *self.entries.lock());
        for entry in entries.values() {
            entry.process.teardown();
        }
        // The watches end.
        drop(entries);
        crate::kapi::task::mm_watch_barrier();
    }
}
