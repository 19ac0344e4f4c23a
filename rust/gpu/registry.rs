// SPDX-License-Identifier: GPL-2.0

//! All live GPUs, and their resets.
//!
//! The locks here are innermost; none is taken under another.

use kernel::{
    debugfs::Dir,
    new_mutex, new_spinlock, pci,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    },
    workqueue::{
        HasWork,
        WorkItem, //
    },
};

use super::{
    conduct::Conducts,
    ids::IdPool,
    Gpu, //
};
use crate::kapi::{
    devmem::{
        Keeper,
        KeeperHandle, //
    },
    log::monotonic_ns,
    workqueue::OwnedQueue, //
};

kernel::sync::global_lock! {
    // SAFETY: `Registry::publish` initialises it, and `registry` is only called by code that runs
    // after that: the PCI driver, the faces and the tests of the loaded module.
    unsafe(uninit) static REGISTRY: Mutex<Option<Arc<Registry>>> = None;
}

/// The list of GPUs of the loaded module.
///
/// # Errors
///
/// `ENODEV` while the module is being unloaded.
pub(crate) fn registry() -> Result<Arc<Registry>> {
    REGISTRY.lock().clone().ok_or(ENODEV)
}

/// The list is reachable by [`registry`] until this is dropped.
pub(crate) struct Published(());

impl Drop for Published {
    fn drop(&mut self) {
        // Finishes resets that are under way; they may still look for the list.
        if let Ok(registry) = registry() {
            let resets = registry.resets.lock().queue.take();
            drop(resets);
            let refills = registry.refills.lock().take();
            drop(refills);
            // Waits for pages in VRAM that programs have, whose end calls this module.
            let keeper = registry.keeper.lock().take();
            drop(keeper);
        }
        let registry = REGISTRY.lock().take();
        drop(registry);
    }
}

/// What is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The engines; if that does not help, the chip.
    Engines,
    /// The chip.
    Chip,
}

/// Resets of one kind and GPU that [`RESET_WINDOW_NS`] allows.
const RESETS: usize = 3;
/// A minute.
const RESET_WINDOW_NS: i64 = 60_000_000_000;

/// Resets that run and that were.
struct Resets {
    /// Where they run; `None` once the module goes away.
    queue: Option<OwnedQueue>,
    /// Id of the GPU, what was reset, and when.
    history: KVec<(u32, Kind, i64)>,
}

/// The list of live GPUs.
#[pin_data]
pub(crate) struct Registry {
    #[pin]
    gpus: Mutex<KVec<Arc<Gpu>>>,
    ids: Arc<IdPool>,
    /// What is held against processes, for longer than a GPU is bound.
    conducts: Arc<Conducts>,
    #[pin]
    resets: Mutex<Resets>,
    /// Where memory of programs is found again; `None` once the module goes away. For all files: such work may wait for
    /// user space, and no file's end may wait for it, so that it must not be a file's or a GPU's.
    #[pin]
    refills: SpinLock<Option<OwnedQueue>>,
    /// Where regions of pages in VRAM end; `None` once the module goes away.
    #[pin]
    keeper: Mutex<Option<Keeper>>,
    /// The module's directory in debugfs; only the published list has it.
    debugfs: Option<Dir>,
}

impl Registry {
    /// An empty list.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[cfg(rkfd_kunit)]
    pub(crate) fn new() -> Result<Arc<Self>> {
        Self::with_debugfs(None)
    }

    fn with_debugfs(debugfs: Option<Dir>) -> Result<Arc<Self>> {
        // A reset must not meet the sleep of the system half way.
        let queue = OwnedQueue::freezable(c"rkfd_reset", 1)?;
        // As many at a time as wait for user space, each for another file.
        let refills = OwnedQueue::unhurried(c"rkfd_refill", 0)?;
        let keeper = Keeper::new()?;
        Arc::pin_init(
            try_pin_init!(Self {
                gpus <- new_mutex!(KVec::new(), "rkfd_gpus"),
                ids: IdPool::new()?,
                conducts: Conducts::new()?,
                resets <- new_mutex!(
                    Resets { queue: Some(queue), history: KVec::new() },
                    "rkfd_resets"
                ),
                refills <- new_spinlock!(Some(refills), "rkfd_refills"),
                keeper <- new_mutex!(Some(keeper), "rkfd_keeper"),
                debugfs,
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Makes an empty list and lets [`registry`] find it.
    ///
    /// # Safety
    ///
    /// Called once, when the module is loaded, before anything calls [`registry`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) unsafe fn publish() -> Result<Published> {
        // SAFETY: By the function's contract this is the first and only use.
        unsafe { REGISTRY.init() };
        *REGISTRY.lock() = Some(Self::with_debugfs(Some(Dir::new(c"rkfd")))?);
        Ok(Published(()))
    }

    /// The module's directory in debugfs.
    pub(crate) fn debugfs(&self) -> Option<&Dir> {
        self.debugfs.as_ref()
    }

    /// Has work run soon that finds memory of programs, and may wait for them. Neither sleeps nor allocates. The
    /// unload of the module waits for it.
    pub(crate) fn refill<W, const ID: u64>(&self, item: Arc<W>)
    where
        W: HasWork<W, ID> + WorkItem<ID, Pointer = Arc<W>> + Send + Sync + 'static,
    {
        if let Some(queue) = &*self.refills.lock() {
            // It may be waiting already.
            let _ = queue.enqueue::<_, ID>(item);
        }
    }

    /// Where regions of pages in VRAM end.
    ///
    /// # Errors
    ///
    /// `ENODEV` while the module is being unloaded.
    pub(super) fn keeper(&self) -> Result<KeeperHandle> {
        let keeper = self.keeper.lock();
        Ok(KeeperHandle::clone(keeper.as_deref().ok_or(ENODEV)?))
    }

    /// Ids of GPUs.
    pub(crate) fn ids(&self) -> &Arc<IdPool> {
        &self.ids
    }

    /// What is held against processes.
    pub(crate) fn conducts(&self) -> &Arc<Conducts> {
        &self.conducts
    }

    /// The GPU with the given id.
    #[cfg(rkfd_kunit)]
    pub(crate) fn find(&self, id: u32) -> Option<Arc<Gpu>> {
        self.gpus.lock().iter().find(|gpu| gpu.id() == id).cloned()
    }

    /// The GPU that drives `pdev`.
    pub(crate) fn find_device(&self, pdev: &pci::Device) -> Option<Arc<Gpu>> {
        let same = |gpu: &&Arc<Gpu>| core::ptr::eq(gpu.pdev(), pdev);
        self.gpus.lock().iter().find(same).cloned()
    }

    /// Calls `f` for every GPU in the order of probing, without a lock held.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[cfg(rkfd_kunit)]
    pub(crate) fn for_each(&self, mut f: impl FnMut(&Arc<Gpu>)) -> Result {
        let gpus = self.snapshot()?;
        for gpu in &gpus {
            f(gpu);
        }
        Ok(())
    }

    #[cfg(rkfd_kunit)]
    fn snapshot(&self) -> Result<KVec<Arc<Gpu>>> {
        let gpus = self.gpus.lock();
        let mut copy = KVec::with_capacity(gpus.len(), GFP_KERNEL)?;
        for gpu in gpus.iter() {
            copy.push(gpu.clone(), GFP_KERNEL)?;
        }
        Ok(copy)
    }

    /// Lists a GPU that works.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn add(&self, gpu: &Arc<Gpu>) -> Result {
        Ok(self.gpus.lock().push(gpu.clone(), GFP_KERNEL)?)
    }

    /// Takes a GPU off the list; nothing happens if it is not listed.
    pub(crate) fn remove(&self, gpu: &Arc<Gpu>) {
        let mut gpus = self.gpus.lock();
        let at = gpus.iter().position(|g| Arc::ptr_eq(g, gpu));
        let removed = at.and_then(|i| gpus.remove(i).ok());
        drop(gpus);
        drop(removed);
    }

    /// Runs `work`, which resets `gpu` (or what `kind` says of it), in the background, while the
    /// system does not sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY`: that was done [`RESETS`] times within a minute. `ENODEV`: the module goes away.
    /// `ENOMEM`.
    pub(crate) fn reset(
        &self,
        gpu: &Arc<Gpu>,
        kind: Kind,
        work: impl FnOnce() + Send + 'static,
    ) -> Result {
        let now = monotonic_ns();
        let id = gpu.id();
        let mut resets = self.resets.lock();
        resets
            .history
            .retain(|(_, _, at)| now - *at < RESET_WINDOW_NS);
        let same = |(of, what, _): &&(u32, Kind, i64)| *of == id && *what == kind;
        if resets.history.iter().filter(same).count() >= RESETS {
            return Err(EBUSY);
        }
        resets.history.push((id, kind, now), GFP_KERNEL)?;
        resets
            .queue
            .as_ref()
            .ok_or(ENODEV)?
            .try_spawn(GFP_KERNEL, work)?;
        Ok(())
    }
}
