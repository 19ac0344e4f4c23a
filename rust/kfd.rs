// SPDX-License-Identifier: GPL-2.0

//! The compute interface: `/dev/kfd` and the topology in sysfs.
//!
//! A thin layer: it composes per-device address spaces, schedulers and events into what the
//! interface calls a process ([`process`]), checks what user space asks for ([`ioctl`]) and describes the
//! machine ([`topology`]). Nothing below it knows the word process.

pub(crate) mod command;
pub(crate) mod device;
mod faults;
pub(crate) mod file;
pub(crate) mod interrupt;
pub(crate) mod ioctl;
pub(crate) mod process;
mod queue_args;
pub(crate) mod smi;
pub(crate) mod svm;
mod system;
pub(crate) mod topology;
pub(crate) mod uapi;

use crate::{
    event::tenants::Tenants,
    gpu::Gpu,
    kapi::{
        chrdev::CharDevice,
        class::{
            Class,
            ClassDevice, //
        },
        task::ThreadGroup, //
    },
    sched::Scheduler,
    vm::file::TakeFile,
};
use device::Device;
use file::KfdFile;
use interrupt::Sink;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use smi::{
    EvictionTrigger,
    ResetReport,
    SmiEvent, //
};
use system::System;
use topology::Topology;
use uapi::{
    MMAP_GPU_SHIFT,
    MMAP_TYPE_DOORBELL,
    MMAP_TYPE_MMIO, //
};

/// Name of the class, the device and the device node.
const NAME: &CStr = c"kfd";

kernel::sync::global_lock! {
    // SAFETY: `Registration::new` initialises it, and `facade` is only called by code that runs after
    // that: the PCI driver and the tests of the loaded module.
    unsafe(uninit) static FACADE: Mutex<Option<Arc<Facade>>> = None;
}

/// The interface of the loaded module.
///
/// # Errors
///
/// `ENODEV` while the module is being unloaded.
pub(crate) fn facade() -> Result<Arc<Facade>> {
    FACADE.lock().clone().ok_or(ENODEV)
}

/// The interface, as the rest of the driver uses it.
///
/// Lock order: `node`, then the list of GPUs in [`System`].
#[pin_data]
pub(crate) struct Facade {
    system: Arc<System>,
    /// The parts that only one driver of the machine can have; `None` if that is another one, and until
    /// [`Facade::open`].
    #[pin]
    node: Mutex<Option<Node>>,
}

impl Facade {
    fn new(take_file: TakeFile) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                system: System::new(take_file)?,
                node <- new_mutex!(None, "rkfd_node"),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Takes a GPU into service, whose address spaces belong to `tenants`. Its render node must exist.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what sysfs reports; then the GPU is not in service.
    pub(crate) fn add(
        &self,
        gpu: &Arc<Gpu>,
        sched: &Arc<Scheduler>,
        tenants: &Arc<Tenants>,
    ) -> Result {
        let device = Device::new(gpu, sched, tenants, &self.system.smi)?;
        self.system.list(device.clone())?;
        gpu.set_sink(Some(Sink::new(&device)?));
        self.update_topology()
            .inspect_err(|_| drop(self.remove(gpu)))
    }

    /// The GPUs of this moment.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[cfg(rkfd_kunit)]
    pub(crate) fn devices(&self) -> Result<KVec<Arc<Device>>> {
        self.system.devices()
    }

    /// The scheduler of `gpu`, while it is in service.
    pub(crate) fn scheduler(&self, gpu: &Arc<Gpu>) -> Option<Arc<Scheduler>> {
        self.system
            .device_of(gpu)
            .map(|device| device.sched().clone())
    }

    /// Signals to the process with address space `pasid` on `gpu` that a queue of it hung and was reset.
    pub(crate) fn queue_hung(&self, gpu: &Arc<Gpu>, pasid: u16) {
        if let Some(device) = self.system.device_of(gpu) {
            interrupt::queue_lost(&device, pasid);
        }
    }

    /// Signals to every process with an address space on `gpu` that the GPU is lost.
    pub(crate) fn gpu_lost(&self, gpu: &Arc<Gpu>) {
        if let Some(device) = self.system.device_of(gpu) {
            interrupt::signal_lost(&device);
        }
    }

    /// Reports that a reset of `gpu` begins, for which `cause` is the reason.
    pub(crate) fn reset_begins(&self, gpu: &Gpu, cause: &'static str) -> ResetReport {
        self.system.smi.reset_begins(gpu.id(), cause)
    }

    /// Reports that the queues on `gpu` are off, because the system goes to sleep.
    pub(crate) fn queues_suspended(&self, gpu: &Arc<Gpu>) {
        self.report_queues(gpu, |group| {
            SmiEvent::QueueEviction(group, EvictionTrigger::Suspend)
        });
    }

    /// Reports that they run again.
    pub(crate) fn queues_resumed(&self, gpu: &Arc<Gpu>) {
        self.report_queues(gpu, |group| SmiEvent::QueueRestore(group));
    }

    fn report_queues(&self, gpu: &Arc<Gpu>, event: impl Fn(&ThreadGroup) -> SmiEvent<'_>) {
        if let Some(device) = self.system.device_of(gpu) {
            device.tenants().for_each(|tenant| {
                if tenant.has_queues() {
                    device.report(&event(tenant.group()));
                }
            });
        }
    }

    /// Takes the user mappings of doorbells and registers of `gpu` away. The next access faults and
    /// waits until no reset is under way, see [`Gpu::wait_up`].
    pub(crate) fn revoke(&self, gpu: &Arc<Gpu>) {
        if let Some(node) = &*self.node.lock() {
            for kind in [MMAP_TYPE_DOORBELL, MMAP_TYPE_MMIO] {
                let offset = kind | u64::from(gpu.id()) << MMAP_GPU_SHIFT;
                node.chrdev.unmap(offset, 1 << MMAP_GPU_SHIFT);
            }
        }
    }

    /// Takes a GPU out of service, before its scheduler and its hardware go: it is not found any more,
    /// mappings of its registers are gone, and waiters for its events are woken. Returns it if it was in service.
    pub(crate) fn remove(&self, gpu: &Arc<Gpu>) -> Option<Arc<Device>> {
        let device = self.system.unlist(gpu)?;
        gpu.set_sink(None);
        device.close();
        self.revoke(gpu);
        if let Err(error) = self.update_topology() {
            pr_err!("topology is incomplete: {:?}\n", error);
        }
        interrupt::signal_lost(&device);
        Some(device)
    }

    /// Makes the device node and the topology. Where another driver has them, the module goes on without. The
    /// last step of the load that may fail: once files can be opened, the module must stay.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the registration of the device reports.
    pub(crate) fn open(self: &Arc<Self>) -> Result {
        let node = match Node::new(&self.system) {
            Ok(node) => node,
            Err(error) if error == EBUSY => {
                pr_warn!(
                    "/dev/kfd belongs to another driver (amdgpu?); only render nodes are served\n"
                );
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        *self.node.lock() = Some(node);
        // GPUs that are there already; those that come find the node.
        self.update_topology()?;
        let node = self.node.lock();
        node.as_ref().map_or(Ok(()), |node| node.chrdev.add())
    }

    fn update_topology(&self) -> Result {
        let node = self.node.lock();
        let Some(node) = &*node else { return Ok(()) };
        let mut facts = KVec::new();
        for device in &self.system.devices()? {
            facts.push(*device.facts(), GFP_KERNEL)?;
        }
        let updated = node.topology.update(&facts);
        self.system.set_node_count(node.topology.node_count());
        updated
    }
}

/// The interface, until dropped. GPUs must be gone by then.
pub(crate) struct Registration {
    facade: Arc<Facade>,
}

/// The parts that only one driver of the machine can have.
struct Node {
    // In the order of the drop: nothing to describe, then no device node, then no new opens.
    topology: Pin<KBox<Topology>>,
    _device: ClassDevice,
    chrdev: Pin<KBox<CharDevice<KfdFile>>>,
}

impl Node {
    fn new(system: &Arc<System>) -> Result<Self> {
        let class = Class::new(NAME)?;
        let chrdev = CharDevice::new(NAME, system.clone())?;
        let device = ClassDevice::new(class, chrdev.devt(), NAME)?;
        let topology = Topology::new(device.device())?;
        Ok(Self {
            topology,
            _device: device,
            chrdev,
        })
    }
}

impl Registration {
    /// Makes the interface, which takes GPUs into service from here on. [`Facade::open`] shows it to user space.
    /// `take_file` is that of the DRM driver, whose files bring the address spaces.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Safety
    ///
    /// Must be called once, before anything that calls [`facade`].
    pub(crate) unsafe fn new(take_file: TakeFile) -> Result<Self> {
        // SAFETY: By the function's contract this is the first and only use.
        unsafe { FACADE.init() };
        let facade = Facade::new(take_file)?;
        *FACADE.lock() = Some(facade.clone());
        Ok(Self { facade })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let published = FACADE.lock().take();
        drop(published);
        let node = self.facade.node.lock().take();
        drop(node);
        self.facade.system.processes.shutdown();
    }
}
