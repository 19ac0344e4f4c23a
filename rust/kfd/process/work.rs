// SPDX-License-Identifier: GPL-2.0

//! Where work of a process runs: to restore its queues, and to report failures. Both may wait for a fault that another
//! thread of the process serves as late as it wants, as with userfaultfd.

use crate::{
    gpu::registry::Registry,
    kapi::workqueue::OwnedQueue, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::{
        HasWork,
        WorkItem, //
    },
};

/// Items of one process.
const WORK_ITEMS: u16 = 2;

/// Where work of a process runs.
pub(super) enum Runner {
    /// In a queue of its own, whose drop waits for the work. For a process object that ends with the address space:
    /// nothing waits for user space then, whose memory it cannot get hold of.
    Own(OwnedQueue),
    /// With that of others. For a process object that ends before the address space does: the thread that ends it may be
    /// the one that the work waits for, so it does not wait for the work.
    Shared(Arc<Registry>),
}

impl Runner {
    /// A queue of its own.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn own() -> Result<Self> {
        let queue = OwnedQueue::unhurried(c"rkfd-process", WORK_ITEMS)?;
        Ok(Self::Own(queue))
    }

    /// Has work `ID` of `item` run soon. Allocates nothing.
    pub(super) fn enqueue<W, const ID: u64>(&self, item: Arc<W>)
    where
        W: HasWork<W, ID> + WorkItem<ID, Pointer = Arc<W>> + Send + Sync + 'static,
    {
        match self {
            Self::Own(queue) => {
                // It may be waiting already.
                let _ = queue.enqueue::<_, ID>(item);
            }
            Self::Shared(registry) => registry.refill::<_, ID>(item),
        }
    }
}
