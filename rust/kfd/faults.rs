// SPDX-License-Identifier: GPL-2.0

//! The worker of a GPU that handles faults, outside of the interrupt thread.
//!
//! The interrupt thread signals the events of all processes. What a fault costs, which is a register of the hub, lines in
//! the log and whatever the owner of the address space does about it, is not its to spend: it leaves the fault in a
//! [`FaultQueue`] and goes on. The worker stops the queues of the offender and reports the fault.
//!
//! [`FaultWorker::pending`] is an innermost spinlock; nothing is called, allocated or freed under it.

use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    },
};

use super::{
    device::Device,
    smi::SmiEvent, //
};
use crate::{
    event::{
        faults::{
            Added,
            FaultQueue,
            Pending, //
        },
        tenants::Tenant, //
    },
    gpu::VmFault,
    kapi::{
        log::dev_limited,
        workqueue::OwnedQueue, //
    },
};

/// Handles the faults of one GPU.
#[pin_data]
pub(super) struct FaultWorker {
    device: Arc<Device>,
    #[pin]
    pending: SpinLock<FaultQueue<Arc<dyn Tenant>>>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for FaultWorker { self.work }
}

impl WorkItem for FaultWorker {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // Taken apart from the loop's condition, which would hold the lock.
        let next = || this.pending.lock().take();
        while let Some(pending) = next() {
            this.handle(&pending);
        }
    }
}

impl FaultWorker {
    /// For the faults of `device`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(device: &Arc<Device>) -> Result<Arc<Self>> {
        let pending = FaultQueue::new()?;
        Arc::pin_init(
            pin_init!(Self {
                device: device.clone(),
                pending <- new_spinlock!(pending, "rkfd_pending_faults"),
                work <- new_work!("rkfd_faults"),
            }),
            GFP_KERNEL,
        )
    }

    /// Has a fault in the address space of `tenant` handled soon, by `queue`. Neither sleeps nor allocates. Returns
    /// whether it is logged then.
    pub(super) fn add(
        self: &Arc<Self>,
        queue: &OwnedQueue,
        tenant: Arc<dyn Tenant>,
        fault: &VmFault,
    ) -> bool {
        let added = self.pending.lock().add(tenant, *fault);
        // Already queued is fine: it takes what is there when it runs.
        let _ = queue.enqueue(self.clone());
        match &added {
            Added::Kept => true,
            Added::Dropped(_) => {
                self.device.gpu().ih().count_dropped_fault();
                true
            }
            // As many address spaces as there are places: its queues are to stop, too.
            Added::Full(own) => {
                self.report(own);
                false
            }
        }
    }

    fn handle(&self, pending: &Pending<Arc<dyn Tenant>>) {
        if !pending.fault.fault.retry {
            self.device.gpu().log_fault(&pending.fault);
        }
        self.report(pending);
    }

    /// Stops the queues of the offender, and reports the fault.
    fn report(&self, pending: &Pending<Arc<dyn Tenant>>) {
        let Pending {
            tenant,
            fault,
            dropped,
        } = pending;
        if *dropped > 0 {
            // Before the report, after which a reader looks.
            tenant.faults_dropped(*dropped);
        }
        let note = if tenant.faulted(fault) {
            ""
        } else {
            ", and has no event that this signals"
        };
        self.device.report(&SmiEvent::VmFault(tenant.group()));
        dev_limited!(
            dev_info,
            self.device.gpu().dev(),
            "pid {} (PASID {}) faulted at {:#x}{}\n",
            tenant.group().pid(),
            fault.pasid,
            fault.fault.address,
            note
        );
    }
}
