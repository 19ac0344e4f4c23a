// SPDX-License-Identifier: GPL-2.0

//! The DRM driver as a type, and what its devices have.

use kernel::sync::Arc;

use super::debug::VmList;
use crate::{
    event::tenants::Tenants,
    gpu::Gpu,
    sched::Scheduler, //
};

/// The DRM driver.
pub(crate) struct RkfdDrm;

/// What a DRM device has: its GPU and what runs queues there. It may outlive the PCI device, as they may.
pub(crate) struct DrmData {
    pub(super) gpu: Arc<Gpu>,
    pub(super) sched: Arc<Scheduler>,
    /// The owners of the address spaces.
    pub(super) tenants: Arc<Tenants>,
    /// The address spaces of open files.
    pub(super) vms: Arc<VmList>,
}

impl DrmData {
    /// The GPU.
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// The scheduler.
    pub(crate) fn sched(&self) -> &Arc<Scheduler> {
        &self.sched
    }
}
