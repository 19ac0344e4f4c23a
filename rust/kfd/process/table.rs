// SPDX-License-Identifier: GPL-2.0

//! All processes of the module, by address space, but for [contexts](super::context).

use super::{
    shared::Process,
    work::Runner, //
};
use crate::{
    kapi::task::{
        current_mm,
        in_compat_syscall,
        MmKey,
        MmRelease,
        MmWatch, //
    },
    kfd::device::Device,
};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        Mutex, //
    },
};

/// Ends a process with its address space.
struct Release {
    process: Arc<Process>,
    table: Arc<ProcessTable>,
}

impl MmRelease for Release {
    fn mm_released(&self) {
        drop(self.table.remove(self.process.key()));
        self.process.teardown();
    }
}

struct Entry {
    process: Arc<Process>,
    _watch: MmWatch,
}

/// All processes of the module.
#[pin_data]
pub(crate) struct ProcessTable {
    #[pin]
    entries: Mutex<RBTree<MmKey, Entry>>,
}

impl ProcessTable {
    /// An empty table.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                entries <- new_mutex!(RBTree::new(), "rkfd_processes"),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// The process of the caller, made with `devices()` if this is its first open.
    ///
    /// # Errors
    ///
    /// - `EPERM`: the caller is a 32-bit program.
    /// - `EINVAL`: the caller has no address space.
    /// - `ENOMEM`: no memory.
    pub(crate) fn open(
        self: &Arc<Self>,
        devices: impl FnOnce() -> Result<KVec<Arc<Device>>>,
    ) -> Result<Arc<Process>> {
        if in_compat_syscall() {
            return Err(EPERM);
        }
        let (mm, key) = current_mm().ok_or(EINVAL)?;
        if let Some(process) = self.find(key) {
            return Ok(process);
        }
        let process = Process::new(&mm, key, &devices()?, Runner::own()?)?;
        // The end, which this reports, does not come before the return: the caller runs in the address
        // space. So it always finds the entry.
        let release = Release {
            process: process.clone(),
            table: self.clone(),
        };
        let watch = MmWatch::new(&mm, Arc::new(release, GFP_KERNEL_ACCOUNT)?)?;
        let entry = Entry {
            process,
            _watch: watch,
        };
        self.insert(key, entry)
    }

    /// The process of the address space `key`.
    fn find(&self, key: MmKey) -> Option<Arc<Process>> {
        let entries = self.entries.lock();
        entries.get(&key).map(|entry| entry.process.clone())
    }

    /// Inserts `new` and returns its process, or that of the same address space which another thread has
    /// inserted meanwhile; `new`, which is not visible yet, is then dropped.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn insert(&self, key: MmKey, new: Entry) -> Result<Arc<Process>> {
        let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get(&key) {
            let first = entry.process.clone();
            drop(entries);
            // Outside the lock; its watch ends without a report.
            drop(new);
            return Ok(first);
        }
        let process = new.process.clone();
        entries.insert(node.into_node(key, new));
        Ok(process)
    }

    fn remove(&self, key: MmKey) -> Option<Entry> {
        self.entries.lock().remove(&key)
    }

    /// Whether the thread group with this id of the initial namespace has opened the device.
    pub(crate) fn has_pid(&self, pid: i32) -> bool {
        let entries = self.entries.lock();
        let mut all = entries.values();
        all.any(|entry| entry.process.pid() == pid)
    }

    /// Ends every process. For the end of the module, when no file is open.
    pub(crate) fn shutdown(&self) {
        let entries = core::mem::take(&mut *self.entries.lock());
        for entry in entries.values() {
            entry.process.teardown();
        }
        // The watches end.
        drop(entries);
        crate::kapi::task::mm_watch_barrier();
    }
}
