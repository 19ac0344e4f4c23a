// SPDX-License-Identifier: GPL-2.0

//! What an open file has beside memory: queues, their doorbells, and what is reported about them.
//!
//! # Locks
//!
//! `Context::state` comes before the locks of the address space and of the scheduler. Memory is allocated under it, so
//! it is not taken inside the memory manager; no user memory is touched under it. It is not held while a queue
//! leaves the hardware, with one exception: the end of the file, when no other thread can call.
//!
//! `Context::process` and the locks of [`Notices`] are innermost spinlocks, for the interrupt thread takes them.

use kernel::{
    new_mutex, new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            AtomicFlag,
            Full,
            Relaxed, //
        },
        Arc,
        Mutex,
        SpinLock, //
    },
};

use super::notices::{
    Condition,
    Notices, //
};
use crate::{
    event::{
        reasons::Reasons,
        tenants::{
            Loss,
            Tenant,
            Tenants, //
        },
    },
    gpu::VmFault,
    kapi::{
        drm_file::{
            DrmDevice,
            OpenFile, //
        },
        task::ThreadGroup, //
    },
    mirror::Mirrors,
    queue::{
        address_space,
        eviction,
        manager::{
            Created,
            Queue,
            QueueManager,
            QueueMemory,
            Target, //
        },
        request::Properties, //
    },
    sched::{
        SchedProcess,
        Scheduler, //
    },
    vm::{
        DoorbellWindow,
        Interface,
        Vm, //
    },
};

/// What the lock of a [`Context`] protects.
struct State {
    /// The GPU's reports about the address space come here.
    is_tenant: bool,
    queues: QueueManager,
    /// From the first queue on.
    doorbells: Option<DoorbellWindow>,
}

/// What an open file has beside memory.
#[pin_data]
pub(in crate::drm) struct Context {
    vm: Arc<Vm>,
    /// Memory of the program that the address space shows.
    mirrors: Arc<Mirrors>,
    sched: Arc<Scheduler>,
    tenants: Arc<Tenants>,
    /// Who opened the file, for people.
    group: ThreadGroup,
    #[pin]
    state: Mutex<State>,
    /// The file as the scheduler knows it, from the first queue on.
    #[pin]
    process: SpinLock<Option<Arc<SchedProcess>>>,
    /// A fault stopped the queues.
    faulted: AtomicFlag,
    /// What was reported.
    #[pin]
    notices: Notices,
}

/// Where a program rings for a queue.
pub(super) struct Doorbell {
    /// Offset in the file of the mapping.
    pub(super) mmap_offset: u64,
    /// Byte in the mapping.
    pub(super) byte: u32,
}

impl Context {
    /// Of a file with address space `vm`: without queues.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `ENODEV` while the module is being unloaded.
    pub(in crate::drm) fn new(
        vm: &Arc<Vm>,
        sched: &Arc<Scheduler>,
        tenants: &Arc<Tenants>,
    ) -> Result<Arc<Self>> {
        let mirrors = Mirrors::new(vm, sched)?;
        Arc::pin_init(
            pin_init!(Self {
                vm: vm.clone(),
                mirrors,
                sched: sched.clone(),
                tenants: tenants.clone(),
                group: ThreadGroup::current(),
                state <- new_mutex!(
                    State {
                        is_tenant: false,
                        queues: QueueManager::new(),
                        doorbells: None,
                    },
                    "rkfd_context"
                ),
                process <- new_spinlock!(None, "rkfd_context_process"),
                faulted: AtomicFlag::new(false),
                notices <- Notices::new(),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The address space.
    pub(super) fn vm(&self) -> &Arc<Vm> {
        &self.vm
    }

    /// Memory of the program that the address space shows.
    pub(super) fn mirrors(&self) -> &Arc<Mirrors> {
        &self.mirrors
    }

    /// Whether the caller belongs to the process that opened the file.
    pub(super) fn is_openers(&self) -> bool {
        self.group.is_current()
    }

    /// What was reported.
    pub(super) fn notices(&self) -> &Notices {
        &self.notices
    }

    fn process(&self) -> Option<Arc<SchedProcess>> {
        self.process.lock().clone()
    }

    /// Leaves the address space to the native interface, and has the GPU's reports about it come here.
    ///
    /// # Errors
    ///
    /// - `EBUSY`: `/dev/kfd` has the address space.
    /// - `ENOMEM`.
    pub(super) fn claim(self: &Arc<Self>) -> Result {
        self.vm.claim(Interface::Native)?;
        let mut state = self.state.lock();
        if !state.is_tenant {
            self.notices.reserve()?;
            self.tenants.set(self.vm.pasid(), self.clone())?;
            state.is_tenant = true;
        }
        Ok(())
    }

    /// Makes a queue with `memory`; it runs soon.
    ///
    /// # Errors
    ///
    /// - `ENOSPC`: too many queues.
    /// - `EUSERS`: other files have all doorbells.
    /// - `ENOMEM`: no SDMA queue left; no memory.
    /// - `EBUSY`: no doorbell of that kind left.
    /// - `EINVAL`, `EIO`, `ENODEV`: those of the scheduler.
    pub(super) fn create_queue<'a>(
        &self,
        dev: &DrmDevice,
        file: impl Into<OpenFile<'a>>,
        properties: &Properties,
        memory: Arc<QueueMemory>,
    ) -> Result<(u32, Doorbell)> {
        let gpu = self.vm.gpu();
        let mut state = self.state.lock();
        if state.doorbells.is_none() {
            let slice = gpu.doorbells().alloc_slice();
            let slice = slice.map_err(|e| if e == ENOSPC { EUSERS } else { e })?;
            let window = DoorbellWindow::new(gpu, dev, slice, file)?;
            state.doorbells = Some(window);
        }
        let State {
            queues, doorbells, ..
        } = &mut *state;
        let window = doorbells.as_ref().ok_or(ENOMEM)?;
        let process = self.attach()?;
        let target = Target {
            device: 0,
            asic: gpu.asic(),
            units: gpu.info().silicon.units,
            sched: &self.sched,
            process: &process,
            doorbells: window.slice(),
        };
        let prepared = queues.prepare(&target, properties, memory)?;
        let Created { id, doorbell } = queues.create(&target, properties, prepared)?;
        let doorbell = Doorbell {
            mmap_offset: window.mmap_offset(),
            byte: doorbell,
        };
        Ok((id, doorbell))
    }

    /// The file as the scheduler knows it; the caller has `state`.
    fn attach(&self) -> Result<Arc<SchedProcess>> {
        if let Some(known) = self.process() {
            return Ok(known);
        }
        let params = address_space::params(&self.vm, false, 0, 0)?;
        let known = self.sched.attach(params)?;
        let (tenants, group) = (self.tenants.clone(), &self.group);
        if let Err(error) = eviction::follow(&self.vm, &self.sched, &known, tenants, group) {
            // It has no queue, so this only forgets it.
            let _ = self.sched.detach(&known);
            return Err(error);
        }
        // Before it has a queue: if memory changes just now, none is to run.
        drop(self.mirrors.set_process(Some(known.clone())));
        *self.process.lock() = Some(known.clone());
        Ok(known)
    }

    /// The queue with an id.
    ///
    /// # Errors
    ///
    /// `ENOENT`.
    pub(super) fn queue(&self, id: u32) -> Result<Arc<Queue>> {
        self.state.lock().queues.find(id).ok_or(ENOENT)
    }

    /// Takes the queue with an id out, to be destroyed without the lock.
    ///
    /// # Errors
    ///
    /// `ENOENT`.
    pub(super) fn take_queue(&self, id: u32) -> Result<Arc<Queue>> {
        self.state.lock().queues.take(id).ok_or(ENOENT)
    }

    /// The file is closed: takes the queues off the hardware and ends the address space. What the hardware may still
    /// use is kept until it does not.
    pub(in crate::drm) fn close(&self) {
        let process = self.process.lock().take();
        let mut state = self.state.lock();
        let mut stopped = true;
        if let Some(process) = &process {
            stopped = match self.sched.detach(process) {
                Ok(()) => true,
                // Nothing runs on a GPU that is gone.
                Err(error) if error == ENODEV => true,
                Err(error) => {
                    pr_warn!(
                        "pid {}: queues of a closed file do not stop: {:?}\n",
                        self.group.pid(),
                        error
                    );
                    false
                }
            };
        }
        state.queues.clear(|_| stopped);
        let doorbells = state.doorbells.take();
        let is_tenant = core::mem::replace(&mut state.is_tenant, false);
        drop(state);
        drop((process, doorbells));
        if is_tenant {
            self.tenants.clear(self.vm.pasid());
        }
        self.notices.clear();
        self.mirrors.close();
        self.vm.close();
    }
}

impl Tenant for Context {
    fn group(&self) -> &ThreadGroup {
        &self.group
    }

    fn has_queues(&self) -> bool {
        self.process.lock().is_some()
    }

    fn interrupt(&self, id: u32) {
        self.notices.interrupt(id);
    }

    fn interrupts_lost(&self) {
        self.notices.interrupts_lost();
    }

    fn faulted(&self, fault: &VmFault) -> bool {
        if let Some(process) = self.process() {
            // Called by the worker that handles everybody's faults: it does not wait.
            if !self.faulted.xchg(true, Full) && !self.sched.note_fault(&process) {
                // The next fault tries again.
                self.faulted.store(false, Relaxed);
            }
        }
        self.notices.fault(&fault.fault)
    }

    fn faults_dropped(&self, count: u64) {
        self.notices.faults_dropped(count);
    }

    fn lost(&self, what: Loss) {
        match what {
            Loss::Queue => self.notices.raise(Condition::Queue),
            Loss::Gpu => self.notices.raise(Condition::Reset),
        };
    }

    fn queue_failed(&self, _doorbell: u32, _reasons: Reasons) -> bool {
        self.notices.raise(Condition::Queue)
    }
}
