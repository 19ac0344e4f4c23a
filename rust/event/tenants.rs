// SPDX-License-Identifier: GPL-2.0

//! The owner of the address space with a PASID of a GPU, as the target of reports about it.
//!
//! Facades know GPUs; this is how what a GPU reports reaches the facade that has the address space.
//!
//! What the [`MoveMonitor`] learns goes to the facade that watches the GPU, whatever has the address space.
//!
//! [`Tenants::list`] is an innermost spinlock: the interrupt thread and the scheduler take it when they report, and do
//! not wait for threads of a program. [`Tenants::monitor`] is one, too, but for the locks of the monitor.

use kernel::{
    new_spinlock,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        SpinLock, //
    },
};

use super::reasons::Reasons;
use crate::{
    gpu::{
        retry::FaultToken,
        VmFault, //
    },
    kapi::task::ThreadGroup,
    vm::{
        MoveMonitor,
        Moved, //
    }, //
};

/// What a GPU lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// A queue hung and was reset. Memory is as it was.
    Queue,
    /// The GPU is reset, out of service, or gone, with all its memory.
    Gpu,
}

/// The owner of an address space. Called by the interrupt thread and the scheduler: waits for no lock that a thread of
/// a program may hold for long, and for no memory.
pub(crate) trait Tenant: Send + Sync {
    /// The program, for messages.
    fn group(&self) -> &ThreadGroup;
    /// Whether the scheduler knows it, which it does from the first queue on.
    fn has_queues(&self) -> bool;
    /// A packet or a wave raised an interrupt with context id `id`.
    fn interrupt(&self, id: u32);
    /// Interrupts were lost, perhaps some of this address space.
    fn interrupts_lost(&self);
    /// An access was refused: takes the queues on the GPU off the hardware for good. Returns whether a thread waits for
    /// the report. Called by the worker that handles the faults of all address spaces, so that the rule above holds.
    fn faulted(&self, fault: &VmFault) -> bool;
    /// `count` more were refused, of which nothing else is known. By the same worker, before the fault that they followed.
    fn faults_dropped(&self, count: u64);
    /// An access is being repeated, and reported again once `token` is dropped: takes both, and has the access allowed or
    /// refused soon. Returns the token if such accesses are not served here.
    fn repeats(&self, _fault: &VmFault, token: FaultToken) -> Option<FaultToken> {
        Some(token)
    }
    /// Reports what the GPU lost.
    fn lost(&self, what: Loss);
    /// Reports that the queue with `doorbell` failed; returns whether a thread learns of it.
    fn queue_failed(&self, doorbell: u32, reasons: Reasons) -> bool;
}

/// The address spaces of one GPU that are in use.
#[pin_data]
pub(crate) struct Tenants {
    #[pin]
    list: SpinLock<RBTree<u16, Arc<dyn Tenant>>>,
    #[pin]
    monitor: SpinLock<Option<Arc<dyn MoveMonitor>>>,
}

impl Tenants {
    /// None.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                list <- new_spinlock!(RBTree::new(), "rkfd_tenants"),
                monitor <- new_spinlock!(None, "rkfd_monitor"),
            }),
            GFP_KERNEL,
        )
    }

    /// Sets the monitor of the GPU.
    pub(crate) fn set_monitor(&self, monitor: Arc<dyn MoveMonitor>) {
        let old = self.monitor.lock().replace(monitor);
        drop(old);
    }

    /// Notes the owner of address space `pasid`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: it is noted already.
    /// - `ENOMEM`: no memory.
    pub(crate) fn set(&self, pasid: u16, tenant: Arc<dyn Tenant>) -> Result {
        let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let mut list = self.list.lock();
        if list.get(&pasid).is_some() {
            // Dropped after the lock is released.
            drop(list);
            return Err(EINVAL);
        }
        list.insert(node.into_node(pasid, tenant));
        Ok(())
    }

    /// Forgets the owner of address space `pasid`.
    pub(crate) fn clear(&self, pasid: u16) {
        let tenant = self.list.lock().remove(&pasid);
        drop(tenant);
    }

    /// The owner of address space `pasid`.
    pub(crate) fn get(&self, pasid: u16) -> Option<Arc<dyn Tenant>> {
        self.list.lock().get(&pasid).cloned()
    }

    /// Calls `f`, without the lock, for each address space, in the order of the PASIDs. Allocates nothing. Those that
    /// come or go meanwhile may be left out.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&dyn Tenant)) {
        let mut next = Some(0);
        while let Some(pasid) = next {
            let found = {
                let list = self.list.lock();
                let cursor = list.cursor_lower_bound(&pasid);
                cursor.map(|cursor| {
                    let (pasid, tenant) = cursor.current();
                    (*pasid, tenant.clone())
                })
            };
            let Some((pasid, tenant)) = found else { return };
            f(&*tenant);
            next = pasid.checked_add(1);
        }
    }
}

impl MoveMonitor for Tenants {
    fn moved(&self, group: &ThreadGroup, what: Moved) {
        if let Some(monitor) = &*self.monitor.lock() {
            monitor.moved(group, what);
        }
    }
}
