// SPDX-License-Identifier: GPL-2.0

//! A process as the target of reports about an address space of a GPU.

use super::shared::Process;
use crate::{
    event::{
        payload::{
            HwExceptionData,
            Payload, //
        },
        reasons::Reasons,
        tenants::{
            Loss,
            Tenant, //
        }, //
    },
    gpu::{
        retry::FaultToken,
        VmFault, //
    },
    kapi::task::ThreadGroup,
    kfd::{
        device::ProcessDevice,
        interrupt::{
            gpu_lost,
            memory_exception, //
        }, //
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

impl OnDevice {
    fn device(&self) -> Option<&ProcessDevice> {
        self.process.devices.get(self.index).map(|device| &**device)
    }

    /// The GPU as the interface names it.
    fn gpu_id(&self) -> u32 {
        self.device().map_or(0, ProcessDevice::gpu_id)
    }
}

impl Tenant for OnDevice {
    fn group(&self) -> &ThreadGroup {
        self.process.group()
    }

    fn has_queues(&self) -> bool {
        self.device()
            .is_some_and(|device| device.space().process().is_some())
    }

    fn interrupt(&self, id: u32) {
        self.process.events.interrupt(id);
    }

    fn interrupts_lost(&self) {
        self.process.events.lost();
    }

    fn repeats(&self, fault: &VmFault, token: FaultToken) -> Option<FaultToken> {
        let mirrors = self.device().and_then(ProcessDevice::mirrors);
        let Some(mirrors) = mirrors.filter(|mirrors| mirrors.serves_accesses()) else {
            return Some(token);
        };
        mirrors.serve_soon(fault, token);
        None
    }

    fn faulted(&self, fault: &VmFault) -> bool {
        if let Some(device) = self.device() {
            device.space().stop_on_fault();
        }
        let events = &self.process.events;
        let data = memory_exception(&fault.fault, self.gpu_id());
        let is_awaited = events.has_memory_events();
        events.raise(Payload::Memory(data));
        is_awaited
    }

    fn faults_dropped(&self, _count: u64) {
        // An event holds one fault.
    }

    fn lost(&self, what: Loss) {
        let data = match what {
            Loss::Gpu => gpu_lost(self.gpu_id()),
            // One engine was reset, because it hung; the memory is as it was.
            Loss::Queue => HwExceptionData {
                reset_type: 1,
                reset_cause: 0,
                memory_lost: 0,
                gpu_id: self.gpu_id(),
            },
        };
        self.process.events.raise(Payload::HwException(data));
    }

    fn queue_failed(&self, doorbell: u32, reasons: Reasons) -> bool {
        self.process.queue_failed(self.index, doorbell, reasons)
    }
}
