// SPDX-License-Identifier: GPL-2.0

//! A process: what its open files, the scheduler's reports and its own work share.

use super::{
    failures::Failures,
    state::{
        DeviceState,
        Handle,
        State, //
    },
    work::Runner,
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
        MmKey,
        ThreadGroup, //
    },
    kfd::{
        device::{
            Device,
            ProcessDevice, //
        },
        smi::SmiEvent,
        svm::Svm, //
    },
    queue::userptr::Eviction,
    vm::{
        Bo,
        BoVmap,
        UserAccount, //
    },
};
use kernel::{
    mm::Mm,
    new_mutex, new_spinlock, new_work,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        Mutex,
        SpinLock, //
    },
    workqueue::{
        HasWork,
        Work,
        WorkItem, //
    },
};

/// A process.
#[pin_data]
pub(crate) struct Process {
    pub(super) key: MmKey,
    /// Also keeps `key` from naming another address space.
    pub(super) mm: ARef<Mm>,
    /// The process that opened the device first, for messages.
    group: ThreadGroup,
    /// Set once, when the address space or the context ends.
    ended: Atomic<bool>,
    /// The events; a lock of their own, because interrupts reach them.
    #[pin]
    pub(crate) events: Events,
    /// Pays for memory of the process that buffers are made of.
    pub(crate) account: Arc<UserAccount>,
    /// The GPUs that existed when the process began, in the order of the topology.
    pub(crate) devices: KVec<Pin<KBox<ProcessDevice>>>,
    /// What the GPUs may do with its memory.
    pub(crate) svm: Arc<Svm>,
    /// All else.
    #[pin]
    pub(crate) state: Mutex<State>,
    /// Whether queues wait for pages that changed.
    #[pin]
    pub(super) eviction: Mutex<Eviction>,
    /// Ends that.
    #[pin]
    pub(super) restore: Work<Self>,
    /// A runtime handles failures of queues; changed under `state`.
    runtime_enabled: Atomic<bool>,
    /// What was not reported to it yet.
    #[pin]
    pub(super) failures: SpinLock<Failures>,
    /// Reports it.
    #[pin]
    pub(super) report: Work<Self, 1>,
    /// Where `restore` and `report` run; taken away at the end.
    #[pin]
    runner: SpinLock<Option<Runner>>,
}

impl Process {
    /// Nothing taken yet of `devices`, by the address space `mm`, which `key` names. Work runs in `runner`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(
        mm: &Mm,
        key: MmKey,
        devices: &[Arc<Device>],
        runner: Runner,
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
                ended: Atomic::new(false),
                events <- Events::new(),
                account: UserAccount::new()?,
                svm: Svm::new(devices.len())?,
                devices: list,
                state <- new_mutex!(State::new(states), "rkfd_process"),
                eviction <- new_mutex!(Eviction::new(), "rkfd_eviction"),
                restore <- new_work!("Process::restore"),
                runtime_enabled: Atomic::new(false),
                failures <- new_spinlock!(Failures::new(), "rkfd_failures"),
                report <- new_work!("Process::report"),
                runner <- new_spinlock!(Some(runner), "rkfd_process_runner"),
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
        // After exec the group is the same, and the old address space may live on with another process that shared
        // it (vfork, CLONE_VM).
        if !opener.is_current() || !self.key.is_current() || self.ended.load(Relaxed) {
            return Err(EBADF);
        }
        Ok(())
    }

    /// The address space.
    pub(crate) fn key(&self) -> MmKey {
        self.key
    }

    /// Whether the address space has ended.
    pub(super) fn is_over(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// The thread group that opened the device first.
    pub(crate) fn group(&self) -> &ThreadGroup {
        &self.group
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

    /// Whether any GPU of the process has `bo` mapped. The caller does not hold the process lock: an address space
    /// is locked while its GPU drops translations.
    pub(crate) fn is_mapped(&self, bo: &Bo) -> bool {
        (0..self.devices.len()).any(|index| {
            let vm = {
                let state = self.state.lock();
                state.device(index).and_then(|d| d.vm().cloned())
            };
            vm.is_ok_and(|vm| vm.is_mapped(bo))
        })
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

    /// Has work `ID` run soon. Allocates nothing.
    pub(super) fn enqueue<const ID: u64>(self: &Arc<Self>)
    where
        Self: HasWork<Self, ID> + WorkItem<ID, Pointer = Arc<Self>>,
    {
        let runner = self.runner.lock();
        if let Some(runner) = &*runner {
            runner.enqueue::<_, ID>(self.clone());
        }
    }

    /// Ends all that the process has: queues, events, memory. May be called more than once. Work that is under way is
    /// waited for if it runs in a queue of the process's own; else it finds the end, and changes nothing any more.
    ///
    /// Not called by work of the process: that work gives the address space back to be ended by another thread.
    pub(super) fn teardown(&self) {
        if self.ended.xchg(true, Full) {
            return;
        }
        let runner = self.runner.lock().take();
        drop(runner);
        let mut state = self.state.lock();
        self.stop_queues(&mut state);
        let memory = state.take_memory();
        drop(state);
        self.svm.close();
        for device in &self.devices {
            // No queue runs, so none misses what is shown.
            if let Some(mirrors) = device.take_mirrors() {
                mirrors.close();
            }
        }
        self.events.shutdown();
        for (device, state) in self.devices.iter().zip(&memory) {
            if let Ok(vm) = state.vm() {
                device.device().tenants().clear(vm.pasid());
                device.device().report(&SmiEvent::ProcessEnd(&self.group));
            }
            device.release();
        }
        // Address spaces and buffers: nothing of the GPU runs on them any more.
        drop(memory);
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
