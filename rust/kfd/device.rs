// SPDX-License-Identifier: GPL-2.0

//! GPUs as the compute face sees them, and what each process has of them outside its lock.

use super::{
    process::Process,
    uapi::Apertures, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// First address of the LDS window: address bits 63:48 are 1.
const LDS_BASE: u64 = 1 << 48;
/// First address of the scratch window: address bits 63:48 are 2.
const SCRATCH_BASE: u64 = 2 << 48;
/// Length of either window, bytes.
const WINDOW: u64 = 1 << 32;
/// First address of user space on the GPU; what lies below catches null pointers.
pub(crate) const GPUVM_BASE: u64 = 0x1_0000;
/// Last address of user space on the GPU, the same as on the CPU.
pub(crate) const GPUVM_LIMIT: u64 = (1 << 47) - 1;

/// The apertures of every gfx9 GPU for 64-bit processes.
pub(crate) fn apertures(gpu_id: u32) -> Apertures {
    Apertures {
        lds_base: LDS_BASE,
        lds_limit: LDS_BASE + WINDOW - 1,
        scratch_base: SCRATCH_BASE,
        scratch_limit: SCRATCH_BASE + WINDOW - 1,
        gpuvm_base: GPUVM_BASE,
        gpuvm_limit: GPUVM_LIMIT,
        gpu_id,
        pad: 0,
    }
}

/// A GPU.
pub(crate) struct Device {
    gpu_id: u32,
}

impl Device {
    /// Id in the topology.
    pub(crate) fn gpu_id(&self) -> u32 {
        self.gpu_id
    }

    /// Ticks of the GPU, 0 if it cannot be asked.
    pub(crate) fn clock_counter(&self) -> u64 {
        0
    }
}

/// A GPU in the hands of one process.
pub(crate) struct ProcessDevice {
    device: Arc<Device>,
}

impl ProcessDevice {
    /// Nothing taken yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(device: Arc<Device>) -> Result<Self> {
        Ok(Self { device })
    }

    /// Id in the topology.
    pub(crate) fn gpu_id(&self) -> u32 {
        self.device.gpu_id()
    }

    /// The GPU.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The process ends.
    pub(crate) fn release(&self, _process: &Process) {}
}
