// SPDX-License-Identifier: GPL-2.0

//! What all open files of `/dev/kfd` share: the processes, and the GPUs in service.

use super::{
    device::Device,
    process::ProcessTable,
    smi::Smi, //
};
use crate::{
    gpu::Gpu,
    vm::file::TakeFile, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};

/// Processes and GPUs.
///
/// Lock order: the scheduler takes `devices` when it reports, so nothing is allocated under it: reclaim may wait
/// for the scheduler.
#[pin_data]
pub(crate) struct System {
    /// The processes.
    pub(crate) processes: Arc<ProcessTable>,
    /// Takes hold of a file of a render node.
    pub(crate) take_file: TakeFile,
    /// The readers of events of GPUs.
    pub(crate) smi: Arc<Smi>,
    /// The GPUs, in the order of the topology.
    #[pin]
    devices: Mutex<KVec<Arc<Device>>>,
    /// See [`Self::node_count`].
    nodes: Atomic<usize>,
}

impl System {
    /// Without processes and GPUs.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(take_file: TakeFile) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                processes: ProcessTable::new()?,
                take_file,
                smi: Smi::new()?,
                devices <- new_mutex!(KVec::new(), "rkfd_devices"),
                nodes: Atomic::new(0),
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
        let mut list = KVec::new();
        loop {
            {
                let devices = self.devices.lock();
                if devices.len() <= list.capacity() {
                    for device in &*devices {
                        list.push_within_capacity(device.clone())
                            .map_err(|_| ENOMEM)?;
                    }
                    return Ok(list);
                }
            }
            list.reserve(list.capacity() + 1, GFP_KERNEL)?;
        }
    }

    /// Number of nodes of the topology, CPUs included; 0 without one.
    pub(crate) fn node_count(&self) -> usize {
        self.nodes.load(Relaxed)
    }

    /// Notes how many nodes the topology has.
    pub(super) fn set_node_count(&self, nodes: usize) {
        self.nodes.store(nodes, Relaxed);
    }

    /// Puts a GPU at the end of the list.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn list(&self, device: Arc<Device>) -> Result {
        // GPUs come one by one, but not under one lock.
        let mut room = KVec::new();
        loop {
            let mut devices = self.devices.lock();
            if room.capacity() > devices.len() {
                for device in devices.drain_all() {
                    room.push_within_capacity(device).map_err(|_| ENOMEM)?;
                }
                room.push_within_capacity(device).map_err(|_| ENOMEM)?;
                let old = core::mem::replace(&mut *devices, room);
                drop(devices);
                drop(old);
                return Ok(());
            }
            let len = devices.len();
            drop(devices);
            room.reserve(len + 1, GFP_KERNEL)?;
        }
    }

    /// Takes a GPU off the list, if it is there.
    pub(super) fn unlist(&self, gpu: &Arc<Gpu>) -> Option<Arc<Device>> {
        let mut devices = self.devices.lock();
        let at = devices.iter().position(|d| Arc::ptr_eq(d.gpu(), gpu));
        at.and_then(|at| devices.remove(at).ok())
    }

    /// `gpu` as the interface shows it, while it is in service.
    pub(super) fn device_of(&self, gpu: &Arc<Gpu>) -> Option<Arc<Device>> {
        let devices = self.devices.lock();
        let found = devices.iter().find(|device| Arc::ptr_eq(device.gpu(), gpu));
        found.cloned()
    }
}
