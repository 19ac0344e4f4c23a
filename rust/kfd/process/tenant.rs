// SPDX-License-Identifier: GPL-2.0

//! A process as the target of reports about an address space of a GPU.

use super::shared::Process;
use crate::{
    event::Events,
    kapi::task::ThreadGroup,
    kfd::{
        device::Tenant,
        reasons::Reasons, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// A process on one of its GPUs.
struct OnDevice {
    process: Arc<Process>,
    /// The GPU, as the process numbers them.
    index: usize,
}

impl Process {
    /// What reports for the address space of this process on GPU `index` go to.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn tenant(self: &Arc<Self>, index: usize) -> Result<Arc<dyn Tenant>> {
        let tenant = OnDevice {
            process: self.clone(),
            index,
        };
        Ok(Arc::new(tenant, GFP_KERNEL_ACCOUNT)?)
    }
}

impl Tenant for OnDevice {
    fn group(&self) -> &ThreadGroup {
        self.process.group()
    }

    fn has_queues(&self) -> bool {
        let device = self.process.devices.get(self.index);
        device.is_some_and(|device| device.sched_process().is_some())
    }

    fn events(&self) -> &Events {
        &self.process.events
    }

    fn stop_on_fault(&self) {
        if let Some(device) = self.process.devices.get(self.index) {
            device.stop_on_fault();
        }
    }

    fn queue_failed(&self, doorbell: u32, reasons: Reasons) -> bool {
        self.process.queue_failed(self.index, doorbell, reasons)
    }
}
