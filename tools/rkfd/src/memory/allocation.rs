// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the kernel knows of a buffer: a handle, and the GPUs that it is mapped on.

use std::sync::Arc;

use crate::abi;
use crate::device::Device;
use crate::error::Result;
use crate::sys;

/// Memory that the kernel has allocated; unmapped from its GPU and freed when dropped.
#[derive(Debug)]
pub(crate) struct Allocation {
    device: Arc<Device>,
    handle: u64,
    /// Where the render node shows it, for those kinds that it shows.
    pub(crate) mmap_offset: u64,
}

impl Allocation {
    /// Allocates `size` bytes at the GPU address `va`; `source` is the address of a process's own memory. It is not mapped on
    /// any GPU yet.
    ///
    /// # Errors
    /// [`crate::error::Error::Call`].
    pub(crate) fn new(
        device: &Arc<Device>,
        va: u64,
        size: u64,
        source: u64,
        flags: u32,
    ) -> Result<Self> {
        let mut arg = abi::AllocMemory {
            va_addr: va,
            size,
            mmap_offset: source,
            gpu_id: device.id(),
            flags,
            ..Default::default()
        };
        device
            .kfd()
            .plain("ALLOC_MEMORY_OF_GPU", abi::ALLOC_MEMORY_OF_GPU, &mut arg)?;
        Ok(Self {
            device: device.clone(),
            handle: arg.handle,
            mmap_offset: arg.mmap_offset,
        })
    }

    /// The GPU that it was allocated for.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The kernel's handle.
    pub(crate) fn handle(&self) -> u64 {
        self.handle
    }

    /// Maps it on a GPU of this process.
    ///
    /// # Errors
    /// [`crate::error::Error::Call`].
    pub(crate) fn map(&self, device: &Device) -> Result<()> {
        let ids = [device.id()];
        let mut arg = abi::MapMemory {
            handle: self.handle,
            device_ids_array_ptr: ids.as_ptr() as u64, // CAST: an address.
            n_devices: 1,
            n_success: 0,
        };
        // SAFETY: the pointer names one id that lives across the call.
        unsafe {
            sys::call_again(
                &**self.device.kfd(),
                "MAP_MEMORY_TO_GPU",
                abi::MAP_MEMORY_TO_GPU,
                &mut arg,
            )
        }
    }

    /// Takes the mapping on a GPU away.
    ///
    /// # Errors
    /// [`crate::error::Error::Call`]; `EINVAL` where it is not mapped.
    pub(crate) fn unmap(&self, device: &Device) -> Result<()> {
        let ids = [device.id()];
        let mut arg = abi::UnmapMemory {
            handle: self.handle,
            device_ids_array_ptr: ids.as_ptr() as u64, // CAST: an address.
            n_devices: 1,
            n_success: 0,
        };
        // SAFETY: as in `map`.
        unsafe {
            sys::call_again(
                &**self.device.kfd(),
                "UNMAP_MEMORY_FROM_GPU",
                abi::UNMAP_MEMORY_FROM_GPU,
                &mut arg,
            )
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // EINVAL where it never was mapped. One that stays mapped is not freed: the end of the process does it.
        let _ = self.unmap(&self.device);
        let mut arg = abi::FreeMemory {
            handle: self.handle,
        };
        let _ = self
            .device
            .kfd()
            .plain("FREE_MEMORY_OF_GPU", abi::FREE_MEMORY_OF_GPU, &mut arg);
    }
}
