// SPDX-License-Identifier: GPL-2.0

//! What an open file has beside memory: queues, their doorbells, and what is reported about them.
//!
//! # Locks
//!
//! `Context::state` comes before the locks of the address space and of the scheduler. Memory is allocated under it, so
//! it is not taken inside the memory manager; no user memory is touched under it. It is not held while a queue
//! leaves the hardware, with one exception: the end of the file, when no other thread can call.
//!
//! `Context::user` is innermost but for memory allocation. `Context::eviction` is taken inside the memory manager, see
//! [`userptr`]; `Context::state` comes before it.
//!
//! The locks of [`Notices`] are innermost spinlocks, for the interrupt thread takes them.

use kernel::{
    impl_has_work,
    mm::Mm,
    new_mutex, new_work,
    prelude::*,
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
        Work,
        WorkItem, //
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
    gpu::{
        registry::{
            registry,
            Registry, //
        },
        retry::FaultToken,
        VmFault, //
    },
    kapi::{
        drm_file::{
            DrmDevice,
            OpenFile, //
        },
        task::{
            current_mm,
            MmKey,
            ThreadGroup, //
        },
        userpages::Watcher, //
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
        request::Properties,
        space::Space,
        userptr::{
            self,
            Change,
            Eviction,
            Owner,
            Watch, //
        }, //
    },
    sched::{
        SchedProcess,
        Scheduler, //
    },
    vm::{
        Bo,
        DoorbellWindow,
        Interface,
        UserAccount,
        UserMemory,
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

/// The address space of the CPU whose memory ranges show.
struct User {
    key: MmKey,
    /// Keeps `key` from naming another one.
    _mm: ARef<Mm>,
    account: Arc<UserAccount>,
    watcher: Arc<dyn Watcher>,
}

/// What an open file has beside memory.
#[pin_data]
pub(in crate::drm) struct Context {
    vm: Arc<Vm>,
    /// Memory of the program that the address space shows.
    mirrors: Arc<Mirrors>,
    sched: Arc<Scheduler>,
    /// Has the workers; not looked for inside the memory manager.
    registry: Arc<Registry>,
    tenants: Arc<Tenants>,
    /// The process that opened the file, for messages.
    group: ThreadGroup,
    #[pin]
    state: Mutex<State>,
    /// The address space and the queues in it.
    #[pin]
    space: Space,
    /// The owner of the memory that ranges show, from the first of them on.
    #[pin]
    user: Mutex<Option<User>>,
    /// Whether the queues wait for such memory.
    #[pin]
    eviction: Mutex<Eviction>,
    /// Ends that.
    #[pin]
    restore: Work<Self>,
    /// The file is closed.
    ended: Atomic<bool>,
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
        let mirrors = Mirrors::new(vm, sched, None)?;
        let registry = registry()?;
        let space = Space::new(vm.gpu(), sched);
        let context = Arc::pin_init(
            pin_init!(Self {
                vm: vm.clone(),
                mirrors,
                sched: sched.clone(),
                registry,
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
                space <- space,
                user <- new_mutex!(None, "rkfd_context_user"),
                eviction <- new_mutex!(Eviction::new(), "rkfd_context_eviction"),
                restore <- new_work!("Context::restore"),
                ended: Atomic::new(false),
                notices <- Notices::new(),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        context.space.set_vm(Some(vm.clone()));
        Ok(context)
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

    /// Memory of the caller from `address` on, for buffers of this file.
    ///
    /// # Errors
    ///
    /// - `EXDEV`: the file shows memory of another address space of the CPU.
    /// - `EINVAL`: the caller has none.
    /// - `ENOMEM`.
    pub(super) fn user_memory(self: &Arc<Self>, address: u64) -> Result<UserMemory> {
        let (mm, key) = current_mm().ok_or(EINVAL)?;
        let mut user = self.user.lock();
        if user.is_none() {
            *user = Some(User {
                key,
                _mm: ARef::from(&**mm),
                account: UserAccount::new()?,
                watcher: Watch::over(self, key)?,
            });
        }
        match &*user {
            Some(known) if known.key == key => Ok(UserMemory {
                address,
                watcher: known.watcher.clone(),
                account: known.account.clone(),
            }),
            _ => Err(EXDEV),
        }
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

    /// Has the GPU repeat accesses of the queues that the page tables do not allow, until mirrors have shown what they need.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the GPU cannot, or not for one address space alone.
    /// - `EBUSY`: there has been a queue, whose accesses are not repeated.
    /// - `ENOMEM`.
    pub(super) fn repeat_accesses(&self) -> Result {
        if !self.vm.gpu().asic().xnack_per_process {
            return Err(EOPNOTSUPP);
        }
        // No queue comes meanwhile.
        let state = self.state.lock();
        let done = if self.mirrors.serves_accesses() {
            Ok(())
        } else if self.space.process().is_some() {
            Err(EBUSY)
        } else {
            self.mirrors.serve_accesses()
        };
        drop(state);
        done
    }

    /// Makes a queue with `memory`; it runs soon.
    ///
    /// # Errors
    ///
    /// - `ENOSPC`: too many queues.
    /// - `EUSERS`: other files have all doorbells.
    /// - `ENOMEM`: no SDMA queue left; no memory.
    /// - `EBUSY`: no doorbell of that kind left.
    /// - `EINTR`: the caller was killed while the GPU was being reset.
    /// - `EINVAL`, `EPERM`, `EIO`, `ENODEV`: those of the scheduler.
    pub(super) fn create_queue<'a>(
        &self,
        dev: &DrmDevice,
        file: impl Into<OpenFile<'a>>,
        properties: &Properties,
        memory: Arc<QueueMemory>,
    ) -> Result<(u32, Doorbell)> {
        let gpu = self.vm.gpu();
        // Without the lock.
        self.sched.await_reset()?;
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
        if let Some(known) = self.space.process() {
            return Ok(known);
        }
        let params = address_space::params(&self.vm, self.mirrors.serves_accesses(), 0, 0)?;
        let known = self.sched.attach(params)?;
        let (tenants, group) = (self.tenants.clone(), &self.group);
        if let Err(error) = eviction::follow(&self.vm, &self.sched, &known, tenants, group) {
            // It has no queue, so this only forgets it.
            let _ = self.sched.detach(&known);
            return Err(error);
        }
        // Before it has a queue: if memory changes just now, none is to run.
        drop(self.mirrors.set_process(Some(known.clone())));
        userptr::publish(self, &self.space, &known);
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

    /// The process that opened the file: its id in the initial namespace.
    pub(in crate::drm) fn pid(&self) -> i32 {
        self.group.pid()
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
        // Work that is under way ends soon. It is not waited for: it may wait for the thread that closes the file.
        self.ended.store(true, Relaxed);
        let process = self.space.process();
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
                    // What the queues hold is not unmapped, but its pages may go.
                    self.space.zap_userptr(self.group.pid());
                    false
                }
            };
        }
        state.queues.clear(|_| stopped);
        self.space.set_process(None);
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
        // Nothing is mapped that could change. The watcher knows this file.
        self.space.set_vm(None);
        let user = self.user.lock().take();
        drop(user);
    }
}

impl_has_work! {
    impl HasWork<Self> for Context { self.restore }
}

impl WorkItem for Context {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        userptr::restore(&this);
    }
}

impl Owner for Context {
    // Another process may have the file.
    const ENDS_WITH_MEMORY: bool = false;

    fn eviction(&self) -> &Mutex<Eviction> {
        &self.eviction
    }

    fn spaces(&self) -> impl Iterator<Item = &Space> {
        core::iter::once(&self.space)
    }

    fn buffers(&self) -> Result<KVVec<Arc<Bo>>> {
        self.vm.user_buffers()
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    fn pid(&self) -> i32 {
        self.group.pid()
    }

    fn report(&self, _space: usize, _change: Change) {
        // A thread that waits for work does not see the difference.
    }

    fn schedule(self: &Arc<Self>) {
        if !self.has_ended() {
            self.registry.refill::<_, 0>(self.clone());
        }
    }
}

impl Tenant for Context {
    fn group(&self) -> &ThreadGroup {
        &self.group
    }

    fn has_queues(&self) -> bool {
        self.space.process().is_some()
    }

    fn interrupt(&self, id: u32) {
        self.notices.interrupt(id);
    }

    fn interrupts_lost(&self) {
        self.notices.interrupts_lost();
    }

    fn repeats(&self, fault: &VmFault, token: FaultToken) -> Option<FaultToken> {
        if !self.mirrors.serves_accesses() {
            return Some(token);
        }
        self.mirrors.serve_soon(fault, token);
        None
    }

    fn faulted(&self, fault: &VmFault) -> bool {
        self.space.stop_on_fault();
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
