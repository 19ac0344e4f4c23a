// SPDX-License-Identifier: GPL-2.0

//! What a process has, under its lock: address spaces, buffers and queues.

use crate::{
    kapi::slots::Slots,
    queue::{
        address_space,
        manager::QueueManager, //
    },
    sched::ProcessParams,
    vm::{
        file::{
            BoHandle,
            VmFile, //
        },
        Bo,
        Vm, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

/// Handles carry 32 bits of index, and C calls them signed.
const HANDLE_LIMIT: u32 = 0x7fff_ffff;

/// A handle of a buffer: GPU id above, index below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    /// The GPU that it was made on.
    pub(crate) gpu_id: u32,
    /// Index, from 1: user space takes 0 for "none".
    pub(crate) index: u32,
}

impl Handle {
    /// From user space.
    pub(crate) fn decode(handle: u64) -> Self {
        Self {
            gpu_id: crate::hw::num::hi32(handle),
            index: crate::hw::num::lo32(handle),
        }
    }

    /// For user space.
    pub(crate) fn encode(self) -> u64 {
        crate::hw::num::join(self.index, self.gpu_id)
    }
}

/// A buffer and where it will be mapped.
#[pin_data]
pub(crate) struct Allocation {
    /// The buffer.
    pub(crate) bo: Arc<Bo>,
    /// Lets the process map it through its render node, and share it.
    pub(crate) handle: BoHandle,
    /// GPU address.
    pub(crate) va: u64,
    /// Held while the buffer is mapped, unmapped or freed, across waits for the hardware; whether it was freed. Comes
    /// before the process lock.
    #[pin]
    pub(crate) freed: Mutex<bool>,
}

impl Allocation {
    /// A buffer that will be mapped at `va`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(handle: BoHandle, va: u64) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                bo: handle.bo().clone(),
                handle,
                va,
                freed <- new_mutex!(false, "rkfd_allocation"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }
}

/// State of a process that the process lock protects.
pub(crate) struct State {
    /// By the number of the GPU among those of the process.
    pub(crate) devices: KVec<DeviceState>,
    /// The queues.
    pub(crate) queues: QueueManager,
    /// Retry faults were asked for.
    pub(crate) xnack: bool,
    /// Handle of the buffer that holds the signal page; 0 for none. It cannot be freed.
    pub(crate) signal_handle: u64,
}

impl State {
    pub(super) fn new(devices: KVec<DeviceState>) -> Self {
        Self {
            devices,
            queues: QueueManager::new(),
            xnack: false,
            signal_handle: 0,
        }
    }

    /// The state on GPU `index`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the process has ended.
    pub(crate) fn device(&self, index: usize) -> Result<&DeviceState> {
        self.devices.get(index).ok_or(EINVAL)
    }

    /// The state on GPU `index`, to change.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the process has ended.
    pub(crate) fn device_mut(&mut self, index: usize) -> Result<&mut DeviceState> {
        self.devices.get_mut(index).ok_or(EINVAL)
    }

    /// What installs this process on the hardware of GPU `index`.
    ///
    /// # Errors
    ///
    /// `ENODEV`: no address space yet; `ENOMEM`.
    pub(super) fn process_params(&self, index: usize) -> Result<ProcessParams> {
        let device = self.device(index)?;
        let vm = device.vm()?;
        address_space::params(vm, self.xnack, device.tba, device.tma)
    }

    /// Unmaps every buffer and takes all memory out, to be dropped without the lock.
    pub(super) fn take_memory(&mut self) -> KVec<DeviceState> {
        for owner in &self.devices {
            for (_, allocation) in owner.allocations.iter() {
                for user in &self.devices {
                    let Ok(vm) = user.vm() else { continue };
                    if vm.is_mapped(&allocation.bo) {
                        // The address space reports what went wrong, and keeps the memory.
                        let _ = vm.unmap(&allocation.bo);
                    }
                }
            }
        }
        core::mem::take(&mut self.devices)
    }

    /// The buffer with a handle.
    pub(crate) fn allocation(&self, device: usize, index: u32) -> Option<&Arc<Allocation>> {
        self.devices.get(device)?.allocations.get(index)
    }
}

/// State of a process on one GPU.
pub(crate) struct DeviceState {
    /// Buffers made on this GPU, by handle index.
    pub(crate) allocations: Slots<Arc<Allocation>>,
    /// The file whose address space the process uses.
    pub(crate) render: Option<Arc<dyn VmFile>>,
    /// Trap handler.
    pub(crate) tba: u64,
    /// Memory of the trap handler.
    pub(crate) tma: u64,
    /// Where scratch memory lies, for schedulers without firmware.
    pub(crate) scratch_base: u64,
}

impl DeviceState {
    pub(super) fn new() -> Self {
        Self {
            allocations: Slots::new(1),
            render: None,
            tba: 0,
            tma: 0,
            scratch_base: 0,
        }
    }

    /// The file whose address space the process uses.
    ///
    /// # Errors
    ///
    /// `ENODEV`: none yet.
    pub(crate) fn render(&self) -> Result<&dyn VmFile> {
        self.render.as_deref().ok_or(ENODEV)
    }

    /// As [`Self::render`], to be kept without the lock.
    ///
    /// # Errors
    ///
    /// `ENODEV`: none yet.
    pub(crate) fn shared_render(&self) -> Result<Arc<dyn VmFile>> {
        self.render.clone().ok_or(ENODEV)
    }

    /// The address space of the process.
    ///
    /// # Errors
    ///
    /// `ENODEV`: none yet.
    pub(crate) fn vm(&self) -> Result<&Arc<Vm>> {
        Ok(self.render()?.vm())
    }

    /// Stores a buffer under a new handle.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENOSPC`.
    pub(crate) fn insert(&mut self, gpu_id: u32, allocation: Arc<Allocation>) -> Result<Handle> {
        let index = self.allocations.insert(allocation, HANDLE_LIMIT)?;
        Ok(Handle { gpu_id, index })
    }
}
