// SPDX-License-Identifier: GPL-2.0

//! The DRM driver as a type, and what its devices have.

use kernel::sync::Arc;

use super::debug::VmList;
use crate::gpu::Gpu;

/// The DRM driver.
pub(crate) struct RkfdDrm;

/// What a DRM device has: its GPU. It may outlive the PCI device, as the GPU may.
pub(crate) struct DrmData {
    pub(super) gpu: Arc<Gpu>,
    /// The address spaces of open files.
    pub(super) vms: Arc<VmList>,
}

impl DrmData {
    /// The GPU.
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }
}
