// SPDX-License-Identifier: GPL-2.0

//! The compute face: `/dev/kfd` and the topology in sysfs.
//!
//! A thin layer: it composes per-device address spaces, schedulers and events into what the
//! interface calls a process ([`process`]), checks what user space asks for ([`ioctl`]) and describes the
//! machine ([`topology`]). Nothing below it knows the word process.

pub(crate) mod command;
pub(crate) mod device;
pub(crate) mod file;
pub(crate) mod ioctl;
pub(crate) mod process;
pub(crate) mod topology;
pub(crate) mod uapi;

use crate::kapi::{
    chrdev::CharDevice,
    class::{
        Class,
        ClassDevice, //
    },
};
use device::Device;
use file::KfdFile;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use process::ProcessTable;
use topology::Topology;

/// Name of the class, the device and the device node.
const NAME: &CStr = c"kfd";

/// What all open files share.
#[pin_data]
pub(crate) struct Facade {
    /// The processes.
    pub(crate) processes: Arc<ProcessTable>,
    /// The GPUs, in the order of the topology.
    #[pin]
    devices: Mutex<KVec<Arc<Device>>>,
}

impl Facade {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                processes: ProcessTable::new()?,
                devices <- new_mutex!(KVec::new(), "rkfd_devices"),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// The GPUs of this moment.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn devices(&self) -> Result<KVec<Arc<Device>>> {
        let devices = self.devices.lock();
        let mut list = KVec::with_capacity(devices.len(), GFP_KERNEL)?;
        for device in &*devices {
            list.push(device.clone(), GFP_KERNEL)?;
        }
        Ok(list)
    }

    /// Number of nodes of the topology, CPUs included.
    pub(crate) fn node_count(&self) -> usize {
        topology::cpu_node_count() + self.devices.lock().len()
    }
}

/// The registered face, until dropped. GPUs must be gone by then.
pub(crate) struct Registration {
    // In the order of the drop: no new opens, then no device node, then nothing to describe.
    file: Option<Node>,
    facade: Arc<Facade>,
}

/// The parts that only one driver of the machine can have.
struct Node {
    topology: Topology,
    _device: ClassDevice,
    chrdev: Pin<KBox<CharDevice<KfdFile>>>,
}

impl Node {
    fn new(facade: &Arc<Facade>) -> Result<Self> {
        let class = Class::new(NAME)?;
        let chrdev = CharDevice::new(NAME, facade.clone())?;
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
    /// Registers the face. Where another driver has it, the module goes on without.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the registration of the device reports.
    pub(crate) fn new() -> Result<Self> {
        let facade = Facade::new()?;
        let file = match Node::new(&facade) {
            Ok(file) => Some(file),
            Err(error) if error == EEXIST => {
                pr_warn!(
                    "/dev/kfd belongs to another driver (amdgpu?); only render nodes are served\n"
                );
                None
            }
            Err(error) => return Err(error),
        };
        Ok(Self { file, facade })
    }

    /// The shared part.
    pub(crate) fn facade(&self) -> &Arc<Facade> {
        &self.facade
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        drop(self.file.take());
        self.facade.processes.shutdown();
    }
}
