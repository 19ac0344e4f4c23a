// SPDX-License-Identifier: GPL-2.0

//! What regions of device-private memory end by, and what keeps the module until then. Suite: `rkfd_devmem`.

use core::ops::Deref;

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    },
    time::msecs_to_jiffies, //
};

use crate::kapi::{
    waitqueue::{
        new_waitqueue,
        Sleep,
        WaitQueue,
        Woken, //
    },
    workqueue::OwnedQueue, //
};

/// Pause between two messages about regions that keep the module from being unloaded.
const PATIENCE_MS: u32 = 10_000;

/// What makes regions end where a [`Keeper`] waits for them.
#[derive(Clone)]
pub(crate) struct KeeperHandle {
    pub(super) queue: Arc<OwnedQueue>,
    pub(super) regions: Arc<Regions>,
}

/// Where regions end; one for the module.
///
/// Dropping it waits until all regions are unmapped, without bound; all pagemaps are closed then, and no handle is used any
/// more.
pub(crate) struct Keeper(KeeperHandle);

impl KeeperHandle {
    /// Waits for the work that is due at the moment: the rooms of frames whose last page has gone are dropped.
    pub(crate) fn settle(&self) {
        self.queue.flush();
    }
}

impl Deref for Keeper {
    type Target = KeeperHandle;

    fn deref(&self) -> &KeeperHandle {
        &self.0
    }
}

impl Keeper {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        // Not frozen: memory is given back while the system goes to sleep, too.
        let queue = OwnedQueue::leisurely(c"rkfd_devmem", 0)?;
        let regions = Arc::pin_init(
            pin_init!(Regions {
                count: Atomic::new(0),
                gone <- new_waitqueue!("rkfd_devmem"),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self(KeeperHandle {
            queue: Arc::new(queue, GFP_KERNEL)?,
            regions,
        }))
    }

    /// How many regions are mapped.
    #[cfg(rkfd_kunit)]
    pub(crate) fn regions(&self) -> i32 {
        self.regions.count.load(Relaxed)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let regions = &self.regions;
        let all_gone = || {
            let gone = || regions.count.load(Acquire) == 0;
            let timeout = msecs_to_jiffies(PATIENCE_MS);
            regions.gone.wait(Sleep::Uninterruptible, timeout, gone) == Woken::Met
        };
        while !all_gone() {
            pr_warn!("waiting for the last pages of device memory\n");
        }
        // A worker that has unmapped its region may still run, and has the queue, which no worker may destroy.
        self.queue.flush();
    }
}

/// How many regions are mapped, and who waits for their end.
#[pin_data]
pub(super) struct Regions {
    count: Atomic<i32>,
    #[pin]
    gone: WaitQueue,
}

/// One of the regions that are mapped.
pub(super) struct Member(Arc<Regions>);

impl Member {
    /// One more.
    pub(super) fn new(regions: &Arc<Regions>) -> Self {
        regions.count.add(1, Relaxed);
        Self(regions.clone())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Full);
        self.0.gone.wake_all();
    }
}

/// A reference of this module: it is not unloaded.
pub(super) struct ModuleReference(());

impl ModuleReference {
    /// Takes one; `None` while the module is being unloaded.
    pub(super) fn take() -> Option<Self> {
        // SAFETY: No preconditions.
        unsafe { crate::bindings::rkfd_module_get() }.then_some(Self(()))
    }
}

impl Drop for ModuleReference {
    fn drop(&mut self) {
        // SAFETY: The reference is of this value. The code that is running goes on: the unload waits for the keeper's
        // queue.
        unsafe { crate::bindings::rkfd_module_put() };
    }
}
